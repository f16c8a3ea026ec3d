"""Raw HTTP over sockets: a client's end for what no client library sends, and a server in a thread of this process."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import uvicorn

from cascade.serve.protocol import JsonProtocol
from tests.waiting import eventually

Response = tuple[int, dict[str, str], bytes]
"""Status, headers by lower-case name, body."""


class Connection:
    """One connection to `url`. Nothing waits longer than `seconds`."""

    def __init__(self, url: str, seconds: float = 30) -> None:
        address = urlsplit(url)
        self.socket = socket.create_connection((address.hostname, address.port), timeout=seconds)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def send(self, data: str | bytes) -> None:
        self.socket.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def response(self, method: str = "GET") -> Response:
        """The next response. Raises ConnectionError where there is none."""
        status_line = self.file.readline()
        if not status_line:
            raise ConnectionError("closed without a response")
        status = int(status_line.split()[1])
        headers: dict[str, str] = {}
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if status in (100, 204, 304) or method == "HEAD":
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, self._chunks()
        return status, headers, self.file.read(int(headers["content-length"]))

    def ask(self, data: str | bytes) -> Response:
        """Send one request and read its response."""
        self.send(data)
        return self.response()

    def is_closed(self) -> bool:
        """Whether the server closes the connection without saying any more; waits for one or the other."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.file.readline(), 16):
            body += self.file.read(size)
            self.file.readline()
        self.file.readline()
        return body


@contextmanager
def served(asgi: Any, protocol: type[JsonProtocol] = JsonProtocol) -> Iterator[str]:
    """Serve an ASGI application with the product's protocol; yields the URL."""
    config = uvicorn.Config(
        asgi,
        http=protocol,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            eventually(lambda: server.started, "the server has started")
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
