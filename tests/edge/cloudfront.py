"""Plays CloudFront in front of an S3 with real sockets: the four steps of a request, its limits, and its death at any of them.

viewer-request -> origin-request -> S3 (the body streams from the client, unseen by the functions) -> origin-response.
What a function does that CloudFront would answer with 502 raises `Refused`, which a test finds in `Door.faults`.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from infra.edge import origin, viewer

VIEWER_SECONDS, ORIGIN_SECONDS = 5.0, 30.0
VIEWER_BODY_BYTES, ORIGIN_BODY_BYTES = 40 * 1024, 1024 * 1024
# "Headers that aren't exposed to edge functions, and that the functions can't add".
DISALLOWED = (
    *("connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("trailer", "upgrade", "x-accel-buffering", "x-accel-charset", "x-accel-limit-rate", "x-accel-redirect"),
    *("x-amzn-auth", "x-amzn-errortype", "x-amzn-requestid", "x-cache", "x-forwarded-proto", "x-real-ip"),
)
DISALLOWED_PREFIXES = ("x-amz-cf-", "x-amzn-cf-", "x-amzn-fle-", "x-amzn-header-", "x-amzn-lambda-", "x-edge-")
READ_ONLY = ("content-length", "host", "transfer-encoding", "via")
# What reaches the origin when no origin request policy adds more.
TO_ORIGIN = ("content-length", "content-type", "host", "transfer-encoding", "user-agent", "via", "x-forwarded-for")


class Refused(Exception):
    """CloudFront would answer 502 to what a function returned."""


class Died(BaseException):
    """The edge dies here: no answer, and nothing that comes after."""


class Door:
    """A distribution whose one behaviour is the upload door.

    Args:
        s3: Endpoint of the object store.
        bucket: Where the origin leads.
        http: For those who knock.
    """

    def __init__(self, s3: str, bucket: str, http: httpx.Client) -> None:
        self.s3 = urlsplit(s3)
        self.bucket = bucket
        self.http = http
        self.dies_after = ""
        """A step after which everything stops: `viewer-request`, `origin-request`, `s3`, `origin-response`."""
        self.body_bytes_read = 0
        self.faults: list[BaseException] = []
        door = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None:
                pass

            def handle_expect_100(self) -> bool:
                return True  # only once the body is wanted

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return lambda: door.handle(self)
                raise AttributeError(name)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    # One request.

    def handle(self, client: BaseHTTPRequestHandler) -> None:
        client.streamed = False  # type: ignore[attr-defined]
        try:
            self.answer(client, self.passed(client))
        except Died:
            client.close_connection = True
        except Exception as fault:  # noqa: BLE001  told by the test
            self.faults.append(fault)
            client.close_connection = True

    def passed(self, client: BaseHTTPRequestHandler) -> dict[str, Any]:
        """The answer to a client's request."""
        uri, _, query = client.path.partition("?")
        request: dict[str, Any] = {
            "clientIp": client.client_address[0],
            "headers": _headers(client.headers.items()),
            "method": client.command,
            "querystring": query,
            "uri": uri,
        }
        request = self.call(viewer.handler, "viewer-request", request, VIEWER_SECONDS, VIEWER_BODY_BYTES)
        self.step("viewer-request")
        if "status" in request:
            return request
        domain = f"{self.bucket}.s3.us-east-1.amazonaws.com"
        request["headers"] = {name: value for name, value in request["headers"].items() if name in TO_ORIGIN}
        request["headers"]["host"] = [{"key": "Host", "value": domain}]
        request["origin"] = {
            "s3": {
                "authMethod": "none",
                "customHeaders": {},
                "domainName": domain,
                "path": "",
                "region": "us-east-1",
            }
        }
        request["querystring"] = ""
        request = self.call(origin.on_request, "origin-request", request, ORIGIN_SECONDS, ORIGIN_BODY_BYTES)
        self.step("origin-request")
        if "status" in request:
            return request
        response = self.store(client, request)
        self.step("s3")
        answer = self.call(
            origin.on_response, "origin-response", request, ORIGIN_SECONDS, ORIGIN_BODY_BYTES, response=response
        )
        self.step("origin-response")
        return answer

    def step(self, name: str) -> None:
        if self.dies_after == name:
            raise Died(name)

    def call(
        self,
        function: Callable[[Any, Any], dict[str, Any]],
        kind: str,
        request: dict[str, Any],
        seconds: float,
        body_bytes: int,
        **more: Any,
    ) -> dict[str, Any]:
        """Run a function on an event and hold it to CloudFront's rules."""
        config = {
            "distributionDomainName": "d111111abcdef8.cloudfront.net",
            "distributionId": "EDFDVBD6EXAMPLE",
            "eventType": kind,
            "requestId": "4TyzHTaYWb1GX1qTfsHhEqV6HUDd_BzoBZnwfnvQc_1oF26ClkoUSEQ==",
        }
        event = json.loads(json.dumps({"Records": [{"cf": {"config": config, "request": request, **more}}]}))
        began = time.monotonic()
        result = json.loads(json.dumps(function(event, None)))
        if time.monotonic() - began > seconds:
            raise Refused(f"{kind} took longer than {seconds} s")
        for name in result["headers"]:
            if name in DISALLOWED or name.startswith(DISALLOWED_PREFIXES):
                raise Refused(f"{kind} added {name}")
        if "status" in result:
            if not (isinstance(result["status"], str) and result["status"].isdecimal()):
                raise Refused(f"{kind} answered with status {result['status']!r}")
            if len(result.get("body", "").encode()) > body_bytes:
                raise Refused(f"{kind} answered with too long a body")
        else:
            before = {name: value for name, value in request["headers"].items() if name in READ_ONLY}
            after = {name: value for name, value in result["headers"].items() if name in READ_ONLY}
            if before != after:
                raise Refused(f"{kind} changed a read-only header: {before} {after}")
        return dict(result)

    def store(self, client: BaseHTTPRequestHandler, request: dict[str, Any]) -> dict[str, Any]:
        """Send the request to S3, its body straight from the client; S3's response."""
        client.streamed = True  # type: ignore[attr-defined]
        if (client.headers.get("Expect") or "").lower() == "100-continue":
            client.send_response_only(100)
            client.end_headers()
        left = int(request["headers"]["content-length"][0]["value"])
        connection = http.client.HTTPConnection(self.s3.hostname or "", self.s3.port, timeout=60)
        try:
            connection.putrequest(request["method"], f"/{self.bucket}{request['uri']}", skip_host=False)
            for name, values in request["headers"].items():
                if name != "host":
                    connection.putheader(values[0]["key"], values[0]["value"])
            # Origin Access Control signs what CloudFront sends, without a digest of the body.
            connection.putheader("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
            connection.endheaders()
            while left:
                piece = client.rfile.read(min(left, 256 * 1024))
                if not piece:
                    raise Died("the client went away")
                self.body_bytes_read += len(piece)
                left -= len(piece)
                connection.send(piece)
            response = connection.getresponse()
            response.read()
            return {
                "headers": _headers(response.getheaders()),
                "status": str(response.status),
                "statusDescription": response.reason,
            }
        finally:
            connection.close()

    def answer(self, client: BaseHTTPRequestHandler, answer: dict[str, Any]) -> None:
        body = answer.get("body", "").encode()
        client.send_response_only(int(answer["status"]), answer.get("statusDescription"))
        for values in answer["headers"].values():
            for value in values:
                client.send_header(value["key"], value["value"])
        client.send_header("Content-Length", str(len(body)))
        if not client.streamed and client.headers.get("Content-Length", "0") != "0":
            # The body was not read: the connection can't be used again.
            client.send_header("Connection", "close")
            client.close_connection = True
        client.end_headers()
        if client.command != "HEAD":
            client.wfile.write(body)


def _headers(items: Any) -> dict[str, list[dict[str, str]]]:
    made: dict[str, list[dict[str, str]]] = {}
    for name, value in items:
        if name.lower() not in DISALLOWED and not name.lower().startswith(DISALLOWED_PREFIXES):
            made.setdefault(name.lower(), []).append({"key": name, "value": value})
    return made
