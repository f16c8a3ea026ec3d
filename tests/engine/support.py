"""What the engine's tests share: waiting for conditions, servers in threads and in processes, raw HTTP."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from cascade.serve.protocol import JsonProtocol

REPOSITORY = Path(__file__).parents[2]
STUB = Path(__file__).parent / "stub"
TOKEN = "stub-token"
AUTH = f"Authorization: Bearer {TOKEN}\r\n"


def eventually(condition: Callable[[], Any], what: str, seconds: float = 20) -> Any:
    """The first true value of `condition`, asked until the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what}")


# A server in a thread of this process.


@contextlib.contextmanager
def served(asgi: Any, protocol: type[JsonProtocol] = JsonProtocol, **config: Any) -> Iterator[int]:
    """Serve an ASGI application as the product does; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    settings = {"http": protocol, "loop": "asyncio", "ws": "none", "lifespan": "off", "log_config": None}
    server = uvicorn.Server(uvicorn.Config(asgi, access_log=False, timeout_graceful_shutdown=1, **(settings | config)))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        eventually(lambda: server.started, "the server has started")
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


# Raw HTTP, for what no client library sends.


class Connection:
    """A client's end of a connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, data: str | bytes) -> None:
        self.socket.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def response(self, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next response."""
        status_line = self.file.readline()
        if not status_line:
            raise ConnectionError("closed without a response")
        status = int(status_line.split()[1])
        headers: dict[str, str] = {}
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if status == 100 or method == "HEAD":
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, self._chunks()
        return status, headers, self.file.read(int(headers.get("content-length", 0)))

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.file.readline(), 16):
            body += self.file.read(size)
            self.file.readline()
        self.file.readline()
        return body

    def is_closed(self) -> bool:
        """Whether the server closes the connection without saying any more."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


# The product's server, in a process of its own.


class Server:
    """`python -m cascade.serve`, for the stub app or the real one."""

    def __init__(self, data_dir: Path, port: int = 0, app: Path = STUB, **environment: str) -> None:
        # None of these is set by the caller's shell, nor by the tests' conftest.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CASCADE_", "AWS_", "PORT"))}
        inherited |= {"PYTHONPATH": f"{app}{os.pathsep}{REPOSITORY}", "PYTHONWARNINGS": "error", "PORT": str(port)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cascade.serve"],
            env=inherited | {"CASCADE_DATA_DIR": str(data_dir)} | environment,
            cwd=app,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.port = 0
        self.token = ""

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()

    def ready(self) -> "Server":
        """Wait for the lines that say so."""
        assert self.process.stdout
        lines = self.process.stdout.readline() + self.process.stdout.readline()
        found = re.search(r"http://[^:]+:(\d+)", lines)
        assert found, lines + (self.process.stderr.read() if self.process.stderr else "")
        self.port = int(found[1])
        token = re.search(r"CASCADE_TOKEN=(\S+)", lines)
        self.token = token[1] if token else ""
        return self

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a power button would."""
        self.process.kill()
        self.process.wait()

    def end(self) -> tuple[int, str, str]:
        """Exit code, and what it still had to say on stdout and stderr."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err
