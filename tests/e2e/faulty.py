"""A proxy between client and server that drops, delays, repeats and cuts off, at random but seeded."""

import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import httpx


class FaultyProxy:
    """Serves `url` and passes on to `target`, with each fault in a share of the calls."""

    def __init__(self, target: str, seed: int, faults: float = 0.1) -> None:
        self.target = target
        self.faults = faults
        self.seen = 0
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._client = httpx.Client(timeout=60, transport=httpx.HTTPTransport(retries=3))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._client.close()

    def fault(self) -> str:
        """What happens to the next call."""
        kinds = ("drop", "delay", "repeat", "cut", "lose", "error", "garbage")
        with self._lock:
            self.seen += 1
            return self._random.choice(kinds) if self._random.random() < self.faults else "none"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (ConnectionError, TimeoutError):
                    self.close_connection = True

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fault = proxy.fault()
                if fault == "drop":
                    self.close_connection = True
                    return
                if fault == "delay":
                    time.sleep(0.3)
                headers = {
                    k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection", "content-length")
                }
                for _ in range(2 if fault == "repeat" else 1):
                    answer = proxy._client.request(
                        self.command, proxy.target + self.path, headers=headers, content=body
                    )
                content = answer.content
                if fault == "lose":  # it took effect, and nobody hears of it
                    self.close_connection = True
                    return
                status = answer.status_code
                if fault == "error":
                    status, content = 502, b"<html>Bad Gateway</html>"
                if fault == "garbage":
                    status, content = 200, b"<html>Please log in</html>"
                self.send_response(status)
                self.send_header("Content-Type", answer.headers.get("content-type", "text/html"))
                if status != 204:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
                self.close_connection = fault == "cut"

            do_GET = do_POST = do_PUT = do_DELETE = pass_on

        return Handler
