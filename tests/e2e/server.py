"""`cascade serve` as a process of its own, the way a user runs it."""

import os
import re
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx


class Server:
    """A server on a free port; entering starts it, leaving stops it."""

    def __init__(self, data_dir: Path, **env: str) -> None:
        self.data_dir = data_dir
        self.token = secrets.token_urlsafe(16)
        self.arguments = ["-m", "cascade.cli", "serve"]
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CASCADE_", "POWERTOOLS_"))}
        self.env |= {"CASCADE_TOKEN": self.token, "CASCADE_DATA_DIR": str(data_dir), "PORT": "0", **env}

    def launch(self) -> None:
        """Run it."""
        self.output: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, *self.arguments],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start(self) -> None:
        """Run it and wait until it says that it is ready."""
        self.launch()
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found:
                self.url = found.group()
                return
        raise AssertionError(f"the server ended with {self.wait()}: {''.join(self.output)}")

    def client(self) -> httpx.Client:
        """A client with the token."""
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=60)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def stop(self, by: signal.Signals = signal.SIGINT) -> int:
        """End it as Ctrl-C would, or as `by`; returns the exit code. `output` then has all it ever said."""
        self.process.send_signal(by)
        return self.wait()

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        assert self.process.stdout is not None
        self.output += self.process.stdout
        self.process.stdout.close()
        return self.process.wait(timeout=30)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()
        elif self.process.stdout is not None:
            self.process.stdout.close()
