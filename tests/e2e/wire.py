"""A client's end of a connection, for what no client library sends."""

import socket
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

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
