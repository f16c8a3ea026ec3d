"""Moto as the AWS of the in-process tests, and a caller that plays API Gateway in front of the app."""

import gzip
import json
import os
import re
import threading
from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import moto.core.botocore_stubber as stubber

TOKEN = "test-token"
GIVEN_TOKEN = os.environ.get("CASCADE_TOKEN", "")
"""What the environment had before tests/conftest.py put TOKEN there: for `--url` of tests/deploy/test_contract.py."""

# moto in process loses updates under threads unless one lock surrounds its stubber.
_lock, _call = threading.RLock(), stubber.BotocoreStubber.__call__


def _locked(self: Any, *args: Any, **kwargs: Any) -> Any:
    with _lock:
        return _call(self, *args, **kwargs)


stubber.BotocoreStubber.__call__ = _locked  # type: ignore[method-assign]


class Answer:
    """What came back."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.status: int = raw["statusCode"]
        self.headers = {k.lower(): v for k, v in raw["headers"].items()}
        body = raw["body"]
        self.body: bytes = (
            body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else b"".join(body)
        )

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"<{self.status} {self.body[:300]!r}>"


@cache
def _operations() -> dict[tuple[str, str], dict[str, Any]]:
    """By method and route, what the OpenAPI document says of a call."""
    import app
    from chalicelib import openapi

    paths = json.loads(openapi.text(app.ENDPOINTS))["paths"]
    return {(method.upper(), path): said for path, methods in paths.items() for method, said in methods.items()}


def assert_documented(
    method: str, route: str, parameters: Mapping[str, str], sent: Mapping[str, str], answer: Answer
) -> None:
    """Each answer of any test is one that the OpenAPI document has, with the headers it has, to what it lets be asked."""
    from chalicelib import settings

    said = _operations().get((method, route))
    if said is None:
        return  # the page, or what is no call of the API
    if answer.status == 302 and settings.RESPONSE_MAX_BYTES < settings.MIB:
        return  # a test made the limit so small that answers are redirects which never get that large
    response = said["responses"].get(str(answer.status))
    assert response is not None, f"{method} {route} answers {answer.status}, of which the document says nothing"
    for name in response.get("headers", ()):
        assert name.lower() in answer.headers, f"{method} {route} answers {answer.status} without {name}"
    if answer.status == 503:
        assert "Retry-After" in response.get("headers", ()), f"{method} {route} has a 503 without it"
    if answer.status < 400:
        for parameter in said.get("parameters", ()):
            if parameter["in"] == "path":
                value = unquote(parameters[parameter["name"]])
                assert re.search(parameter["schema"].get("pattern", ""), value), f"{method} {route} takes {value}"
    known = {parameter["name"].lower() for parameter in said.get("parameters", ()) if parameter["in"] == "header"}
    own = {name.lower() for name in sent} & {"idempotency-key", "cascade-upload"}
    assert own <= known, f"{method} {route} takes {own - known}, of which the document says nothing"


class Api:
    """Calls the app as API Gateway would: the route's pattern, path parameters still percent-encoded."""

    def __init__(self, app: Any) -> None:
        self.app = app

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
        url = urlsplit(path)
        route, parameters = self._match(url.path)
        sent = {"Authorization": f"Bearer {token}"} if token is not None else {}
        if json_body is not None:
            data = json.dumps(json_body)
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        event = {
            "resource": route,
            "path": url.path,
            "headers": sent,
            "multiValueHeaders": {k: [v] for k, v in sent.items()},
            "multiValueQueryStringParameters": parse_qs(url.query, keep_blank_values=True) or None,
            "pathParameters": parameters or None,
            "stageVariables": None,
            "requestContext": {
                "httpMethod": method,
                "resourcePath": route,
                "path": url.path,
                "identity": {},
                "requestId": "r",
            },
            "body": data,
            "isBase64Encoded": False,
        }
        answer = Answer(self.app(event, SimpleNamespace(aws_request_id="r", function_name="cascade")))
        assert_documented(method, route, parameters, sent, answer)
        return answer

    def _match(self, path: str) -> tuple[str, dict[str, str]]:
        parts = path.split("/")
        for route in sorted(self.app.routes):
            wanted = route.split("/")
            if len(wanted) == len(parts) and all(
                w == p or w.startswith("{") for w, p in zip(wanted, parts, strict=True)
            ):
                return route, {w[1:-1]: p for w, p in zip(wanted, parts, strict=True) if w.startswith("{")}
        return path, {}

    def get(self, path: str, **more: Any) -> Answer:
        return self("GET", path, **more)

    def post(self, path: str, json_body: Any = None, **more: Any) -> Answer:
        return self("POST", path, json_body, **more)

    def packed(self, path: str, json_body: Any) -> Answer:
        """POST as gzip, which is how more than 6 MB of JSON get past API Gateway."""
        data = gzip.compress(json.dumps(json_body).encode(), 1)
        return self("POST", path, data=data, headers={"Content-Type": "application/gzip"})

    def put(self, path: str, data: bytes, **more: Any) -> Answer:
        return self("PUT", path, data=data, **more)

    def delete(self, path: str, **more: Any) -> Answer:
        return self("DELETE", path, **more)

    def follow(self, answer: Answer) -> bytes:
        """The bytes that a redirect leads to."""
        from chalicelib import blobs

        assert answer.status == 302
        url = urlsplit(answer.headers["location"])
        found = re.search("(exports|files)/.+", unquote(url.path))
        assert found, url.path
        return blobs.get(found[0], parse_qs(url.query)["versionId"][0])

    def new_run(self, count: int = 1, **more: Any) -> tuple[str, list[str]]:
        """A run of `count` queued sims: its id and theirs."""
        run = self.post("/api/runs", {"name": "a run", "sims": [{} for _ in range(count)]}, **more).json()
        return run["id"], [sim["id"] for sim in run["sims"]]

    def new_sim(self) -> str:
        """The id of a queued sim in a run of its own."""
        return self.new_run()[1][0]
