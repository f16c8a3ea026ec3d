"""Stands between a client and the local AWS and refuses what API Gateway and Lambda refuse there and ministack lets pass.

| limit | bytes | answer |
|---|---|---|
| a request at API Gateway | 10 MiB, as sent | 413 |
| the event a function gets, JSON with the body as text or base64, after gzip is inflated | 6 MiB | 413 |
| what a function returns, JSON | 6 MiB and 100 | 502 |
| time until a function answers | 29 s | 504 |

The answers are the gateway responses that were deployed. Of what a function answers, it renames the header that API Gateway
renames.
"""

import base64
import gzip
import http.client
import json
import re
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

GATEWAY_BYTES = 10 * 1024 * 1024
EVENT_BYTES = 6 * 1024 * 1024
RESULT_BYTES = 6 * 1024 * 1024 + 100
SECONDS = 29.0
# What the event of a proxy integration has beside body and headers, measured on one of them.
ENVELOPE_BYTES = 1500

RENAMED = {"www-authenticate": "x-amzn-Remapped-WWW-Authenticate"}

STATUS = {"DEFAULT_4XX": 400, "REQUEST_TOO_LARGE": 413, "INTEGRATION_TIMEOUT": 504, "DEFAULT_5XX": 502}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    # Else of a dozen clients at once some are turned away.
    request_queue_size = 128


class Gateway:
    """Serves on `url` what `target` answers, within the limits.

    Args:
        target: URL of the deployed stage at the local AWS.
        responses: The API's gateway responses by kind, as `get_gateway_response` has them.
        binary_types: The API's.
        seconds: For how long it waits for a function.
    """

    def __init__(
        self,
        target: str,
        responses: dict[str, Any],
        binary_types: list[str],
        seconds: float = SECONDS,
    ) -> None:
        self.target = urlsplit(target)
        self.responses = responses
        self.binary_types = binary_types
        self.seconds = seconds
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Else the headers of an answer wait for the acknowledgement of those before.
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None:
                pass

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return lambda: gateway.handle(self)
                raise AttributeError(name)

        self.server = Server(("127.0.0.1", 0), Handler)
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

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        """One request."""
        size = int(request.headers.get("Content-Length") or 0)
        if size > GATEWAY_BYTES:
            # The rest is read, so that the client gets to see the answer.
            while size > 0 and (piece := request.rfile.read(min(size, 1 << 20))):
                size -= len(piece)
            return self.refuse(request, "REQUEST_TOO_LARGE")
        body = request.rfile.read(size)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "connection")}
        if (request.headers.get("Content-Encoding") or "").lower() == "gzip" and not self.is_binary(request):
            try:
                body = gzip.decompress(body)
            except (EOFError, gzip.BadGzipFile, zlib.error):
                return self.refuse(request, "DEFAULT_4XX")
        if self.event_size(request, body) > EVENT_BYTES:
            return self.refuse(request, "REQUEST_TOO_LARGE")
        return self.forward(request, headers, body)

    def is_binary(self, request: BaseHTTPRequestHandler) -> bool:
        """Whether the body is handed on as base64."""
        kind = (request.headers.get("Content-Type") or "application/json").partition(";")[0].strip().lower()
        return kind in self.binary_types

    def event_size(self, request: BaseHTTPRequestHandler, body: bytes) -> int:
        """Bytes of the event."""
        text = base64.b64encode(body).decode() if self.is_binary(request) else body.decode("utf-8", errors="replace")
        # Each header is there twice.
        headers = 2 * len(json.dumps(dict(request.headers.items())))
        return len(json.dumps(text, ensure_ascii=False).encode()) + headers + ENVELOPE_BYTES

    def forward(self, request: BaseHTTPRequestHandler, headers: dict[str, str], body: bytes) -> None:
        """Hand on what is within the limits."""
        connection = http.client.HTTPConnection(self.target.hostname or "", self.target.port, timeout=self.seconds)
        try:
            connection.request(
                request.command,
                self.target.path + request.path,
                body,
                # The length a client names is part of the event; what is sent on may be longer.
                {**headers, "Content-Length": str(len(body))},
            )
            response = connection.getresponse()
            answered = response.read()
        except TimeoutError:
            return self.refuse(request, "INTEGRATION_TIMEOUT")
        finally:
            connection.close()
        result = {"statusCode": response.status, "headers": dict(response.getheaders()), "body": answered.decode()}
        if len(json.dumps(result, ensure_ascii=False).encode()) > RESULT_BYTES:
            return self.refuse(request, "DEFAULT_5XX")
        dropped = ("content-length", "transfer-encoding")
        kept = {RENAMED.get(k.lower(), k): v for k, v in response.getheaders() if k.lower() not in dropped}
        return self.answer(request, response.status, kept, answered)

    def refuse(self, request: BaseHTTPRequestHandler, kind: str) -> None:
        """A gateway response."""
        response = self.responses[kind]
        template = response["responseTemplates"]["application/json"]
        body = re.sub(r"\$context\.error\.messageString", json.dumps(kind), template)
        headers = {"Content-Type": "application/json"}
        for name, value in response.get("responseParameters", {}).items():
            headers[name.removeprefix("gatewayresponse.header.")] = value.strip("'")
        self.answer(request, int(response.get("statusCode") or STATUS[kind]), headers, body.encode())

    def answer(self, request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send it."""
        request.send_response_only(status)
        for name, value in headers.items():
            request.send_header(name, value)
        if status != 204:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)
