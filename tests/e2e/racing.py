"""Requests that reach a server at the same moment, over connections of their own."""

import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.e2e.server import Server
from tests.e2e.wire import Connection

REPEATS = 200
"""A 503 is sent again as often, as every client does."""


@dataclass(frozen=True)
class Call:
    """One request; `body` is sent as it is when it is bytes, else as JSON."""

    method: str
    path: str
    body: Any = None
    headers: tuple[str, ...] = ()

    def encoded(self, token: str) -> bytes:
        body = (
            self.body if isinstance(self.body, bytes) else b"" if self.body is None else json.dumps(self.body).encode()
        )
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *self.headers]
        if self.method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Racers:
    """Open connections to one server.

    All of a round's requests are sent but for their last bytes; then these follow in an order, and with gaps of at most
    two milliseconds, that `rng` gives. So the server has everything else behind it, and which request is first is
    settled inside it.
    """

    def __init__(self, token: str, connections: list[Connection]) -> None:
        self.token = token
        self.connections = connections

    def race(self, rng: random.Random, *calls: Call) -> list[Answer]:
        """The answers, in the order of `calls`."""
        encoded = [call.encoded(self.token) for call in calls]
        pairs = list(zip(self.connections, encoded, strict=False))
        assert len(pairs) == len(calls), "a connection for each call"
        for connection, data in pairs:
            connection.send(data[:-1])
        gap = rng.choice([0, 0, 0.0005, 0.002])
        for connection, data in rng.sample(pairs, len(pairs)):
            if gap:
                time.sleep(rng.random() * gap)
            connection.send(data[-1:])
        first = [connection.response(call.method) for connection, call in zip(self.connections, calls, strict=False)]
        return [self._settled(c, d, Answer(a[0], a[2])) for (c, d), a in zip(pairs, first, strict=True)]

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """One request alone."""
        return self.race(random.Random(0), Call(method, path, body))[0]

    def new_run(self, count: int = 1) -> tuple[str, list[str]]:
        """A run of `count` queued sims: its id and theirs."""
        run = self.ask("POST", "/api/runs", {"name": "race", "sims": [{}] * count}).json()
        return run["id"], [sim["id"] for sim in run["sims"]]

    def _settled(self, connection: Connection, data: bytes, answer: Answer) -> Answer:
        for _ in range(REPEATS):
            if answer.status != 503:
                break
            connection.send(data)
            status, _, body = connection.response()
            answer = Answer(status, body)
        return answer


@contextmanager
def racers(server: Server, count: int) -> Iterator[Racers]:
    """`count` connections to `server`."""
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.url, 60)) for _ in range(count)]
        for connection in connections:
            # Or the last byte waits in the kernel for the acknowledgement of those before it: 40 ms.
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Racers(server.token, connections)
