"""A small keep-alive HTTP load generator: raw sockets and threads, so that what is measured is the server."""

import json
import socket
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit


class Connection:
    """One keep-alive connection."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self.socket = socket.create_connection((parts.hostname, parts.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self.buffer = b""

    def call(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """Send one request; returns status and body."""
        head = f"{method} {path} HTTP/1.1\r\n{self.head}Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head_bytes, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        lines = head_bytes.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        length = int(headers.get("content-length", 0))
        while len(self.buffer) < length:
            self._more()
        answer, self.buffer = self.buffer[:length], self.buffer[length:]
        return int(lines[0].split()[1]), answer

    def json(self, method: str, path: str, value: object = None) -> object:
        """Send JSON, return the answer's JSON; raises on a status that is no 2xx."""
        status, answer = self.call(method, path, b"" if value is None else json.dumps(value).encode())
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:300]!r}")
        return json.loads(answer) if answer else None

    def _more(self) -> None:
        got = self.socket.recv(1 << 20)
        if not got:
            raise ConnectionError("the server closed the connection")
        self.buffer += got


@dataclass
class Load:
    """What a load saw: calls a second, and latencies in milliseconds."""

    rate: float
    p50: float
    p99: float


def run(url: str, token: str, connections: int, seconds: float, call: Callable[[Connection, int, int], int]) -> Load:
    """`call(connection, worker, i)` again and again on each connection for `seconds`; it returns the status."""
    latencies: list[list[float]] = [[] for _ in range(connections)]
    failures: list[str] = []
    stop_at = time.perf_counter() + seconds

    def work(worker: int) -> None:
        connection = Connection(url, token)
        i = 0
        while (start := time.perf_counter()) < stop_at:
            status = call(connection, worker, i)
            latencies[worker].append((time.perf_counter() - start) * 1000)
            if not 200 <= status < 300:
                failures.append(str(status))
                return
            i += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(connections)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begin
    if failures:
        raise RuntimeError(f"answers that are no 2xx: {failures[:5]}")
    flat = sorted(x for each in latencies for x in each)
    return Load(len(flat) / took, statistics.median(flat), flat[int(len(flat) * 0.99)])
