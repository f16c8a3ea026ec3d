"""A simulator and its warden: start them, find them again, stop them, learn how it ended."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cascade.worker import warden

ORPHAN_S: Final = 900.0
"""A simulator whose worker has been gone for this long is ended: nobody would ever cancel it."""
KILLED_S: Final = 5.0
"""A killed process may take so long to be gone."""


@dataclass(frozen=True)
class Exit:
    """How a simulator ended."""

    code: int | None
    """The exit code, a signal as minus its number; None when it was never started."""
    error: str | None = None
    """Why it could not be started."""
    stopped: str | None = None
    """Why the warden ended it or what it left behind, if it did."""
    seconds: float = 0.0
    max_rss_bytes: int = 0
    """Peak memory of the largest process."""
    oom_killed: bool = False
    """The kernel killed something of this cgroup for want of memory meanwhile."""
    output_lost: bool = False
    """The disk stayed full, and the end of the log is missing."""
    interrupted: bool = False
    """It did not end by itself: it or its warden was told to end, or the warden was killed, or there was no start."""


class Simulator:
    """One attempt at running a sim's simulator, kept in a folder of its own.

    Only the holder of the sim's lock may use it, so that no two workers start one attempt.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = folder / "warden.lock"
        self._status = folder / "status"
        self._child: subprocess.Popen[bytes] | None = None

    def start(
        self, argv: Sequence[str], cwd: Path, log: Path, beat: Path, grace_s: float, variables: Mapping[str, str]
    ) -> None:
        """Start the warden, which starts `argv` (its first is a path) in `cwd` and appends to `log`.

        Args:
            variables: For the simulator's environment, besides this process's.
            beat: A file this worker touches often; once it doesn't for ORPHAN_S seconds, the warden ends the simulator.
            grace_s: Seconds from SIGTERM to SIGKILL.

        Raises:
            OSError: the folder can't be written or the warden can't be started.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        start = {
            "argv": list(argv),
            "cwd": str(cwd),
            "log": str(log),
            "status": str(self._status),
            "beat": str(beat),
            "grace_s": grace_s,
            "orphan_s": ORPHAN_S,
        }
        (self.folder / "start.json").write_text(json.dumps(start))
        # The warden inherits the lock, already held: there is no moment in which it runs and the lock is free.
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Overwritten in place from here on, as a full disk has no room for a new file.
            self._status.write_bytes(b"{}".ljust(warden.STATUS_BYTES))
            with (self.folder / "warden.log").open("ab") as errors:
                self._child = subprocess.Popen(  # noqa: S603  our own interpreter and file
                    [sys.executable, "-I", "-S", warden.__file__, str(self.folder), str(lock)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    env={**_without_the_token(), **variables},
                    pass_fds=[lock],
                    start_new_session=True,
                )
        finally:
            os.close(lock)

    @property
    def started(self) -> bool:
        """Whether a warden was started, by this worker or an earlier one."""
        return self._status.exists()

    def status(self) -> dict[str, Any]:
        """What the warden wrote last; empty while it has written nothing."""
        for _ in range(20):
            with contextlib.suppress(ValueError):  # read in the middle of a write
                value = json.loads(self._status.read_bytes())
                return value if isinstance(value, dict) else {}
        return {}

    def alive(self) -> bool:
        """Whether the warden is there."""
        if self._child is not None:
            self._child.poll()  # or it stays a zombie
        try:
            lock = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(lock)

    def exit(self) -> Exit | None:
        """How the simulator ended; None while it runs, and for ever when its warden was killed (`alive` tells)."""
        status = self.status()
        found = status.get("exit")
        if not found:
            return None
        if "error" in found:
            return Exit(None, error=found["error"])
        return Exit(
            code=found["code"],
            stopped=status.get("stopped"),
            seconds=found["seconds"],
            max_rss_bytes=found["max_rss_bytes"],
            oom_killed=found["oom_killed"],
            output_lost=found["output_lost"],
            interrupted=status.get("stopped") == warden.TOLD
            or found["code"] in (-signal.SIGTERM, 128 + signal.SIGTERM),
        )

    def disk_full(self) -> str | None:
        """What the disk says when it takes no more of the log; None when all is well."""
        full = self.status().get("full")
        return full if isinstance(full, str) else None

    def stop(self) -> None:
        """Have the warden end the simulator: SIGTERM, and SIGKILL after the grace. Safe to repeat."""
        pid = self.status().get("warden")
        if isinstance(pid, int) and self._is_here() and self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def kill_leftover(self) -> None:
        """SIGKILL to the group of a simulator whose warden was killed, if that very process is still there.

        Returns once it has ended, so that nothing is written behind what is read then.
        """
        status = self.status()
        pid, started = status.get("simulator"), status.get("simulator_started")
        if isinstance(pid, int) and self._is_here() and started is not None and warden.start_time(pid) == started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            deadline = time.monotonic() + KILLED_S
            while warden.runs(pid) and warden.start_time(pid) == started and time.monotonic() < deadline:
                time.sleep(0.02)

    def _is_here(self) -> bool:
        """Whether the warden runs, or ran, on this machine: on a shared spool an id may be another machine's."""
        return self.status().get("host") == os.uname().nodename


def _without_the_token() -> dict[str, str]:
    """The environment for a simulator. A script that prints its own, or a core file of it, would send the token along."""
    return {name: value for name, value in os.environ.items() if name != "CASCADE_TOKEN"}
