"""The calls of tests.aws.Api over HTTP, to a deployed stage."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.aws import TOKEN, Answer, Api

OCTETS = {"Content-Type": "application/octet-stream"}
SECONDS = 60.0


class HttpApi(Api):
    """Speaks to a stage as tests.aws.Api speaks to the app in this process.

    Each request has a connection of its own, so that calls at the same time are; bytes of path and headers go out as they
    are given, which clients with better manners would not do. TOKEN, wherever a test puts it, is the stage's token on the
    way there and TOKEN again on the way back, so that a test may also look for it where it must not be.

    Args:
        url: Of the stage, without `/api`.
        token: Of the stage.
    """

    def __init__(self, url: str, token: str) -> None:
        self.url = urlsplit(url)
        self.token = token
        self.follows = False
        """Whether an answer that is a redirect is followed, and what is there given back."""
        self.runs: list[str] = []
        """What was made."""

    def __call__(
        self,
        method: str,
        path: str,
        json_body: Any = None,
        *,
        data: bytes | str | None = None,
        headers: dict[str, str] | None = None,
        token: str | None = TOKEN,
    ) -> Answer:
        sent = {"Authorization": f"Bearer {token}"} if token is not None else {}
        if json_body is not None:
            data = json.dumps(json_body)
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        body = data.encode() if isinstance(data, str) else data
        answer = self._send(method, path, body, {k: v.replace(TOKEN, self.token) for k, v in sent.items()})
        if (method, path, answer.status) == ("POST", "/api/runs", 201):
            self.runs.append(answer.json()["id"])
        if self.follows and answer.status == 302:
            fetched = httpx.get(answer.headers["location"], timeout=SECONDS)
            raw = {"statusCode": fetched.status_code, "headers": fetched.headers, "body": fetched.content}
            return Answer(raw)
        return answer

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        secure = self.url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self.url.hostname or "", self.url.port, timeout=SECONDS)
        try:
            connection.request(method, self.url.path + path, body, headers)
            response = connection.getresponse()
            answered = response.read().replace(self.token.encode(), TOKEN.encode())
        finally:
            connection.close()
        found = {name.lower(): value.replace(self.token, TOKEN) for name, value in response.getheaders()}
        # API Gateway renames this one and nobody can stop it: docs/aws.md.
        found |= {k.removeprefix("x-amzn-remapped-"): v for k, v in found.items() if k.startswith("x-amzn-remapped-")}
        return Answer({"statusCode": response.status, "headers": found, "body": answered})

    def put(self, path: str, data: bytes, **more: Any) -> Answer:
        """As every client must here: of bytes of any other type, API Gateway makes text."""
        more["headers"] = {**OCTETS, **(more.get("headers") or {})}
        return super().put(path, data, **more)

    def follow(self, answer: Answer) -> bytes:
        assert answer.status == 302
        return httpx.get(answer.headers["location"], timeout=SECONDS).raise_for_status().content

    def clean(self) -> None:
        """Delete what was made."""
        for run in self.runs:
            self.post(f"/api/runs/{run}/cancel")
            assert self.delete(f"/api/runs/{run}").status in (204, 404)
        self.runs.clear()
