"""What people see while a worker runs: a live table on a terminal, plain lines elsewhere."""

import contextlib
import io
import os
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

WAITING_S: Final = 30.0
RATE_S: Final = 10.0
"""A log's rate is that of so many last seconds."""

if TYPE_CHECKING:
    from cascade.worker.job import Job


class Rate:
    """How fast a log grows.

    Args:
        now: Seconds by the monotonic clock.
        size: Bytes by then.
    """

    def __init__(self, now: float, size: int) -> None:
        self._seen = deque([(now, size)])

    def at(self, now: float, size: int) -> float:
        """MB/s of the last seconds."""
        self._seen.append((now, size))
        while self._seen[1][0] <= now - RATE_S:
            self._seen.popleft()
        since, before = self._seen[0]
        return (size - before) / 1e6 / max(now - since, 1e-9)


class View:
    """Lines and, on a terminal, a table of the jobs under way."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self._jobs: dict[Job, Rate] = {}
        self._lock = threading.Lock()
        self._waited_at: float | None = None
        self._live = (
            Live(get_renderable=self._table, console=self._console, refresh_per_second=2, transient=True)
            if self._console.is_terminal
            else None
        )

    def __enter__(self) -> "View":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            with contextlib.suppress(OSError, ValueError):
                self._live.stop()

    def say(self, line: str, error: bool = False) -> None:
        """One line for people. Raises nothing: a disk that is full or a reader that is gone ends no simulation."""
        with contextlib.suppress(OSError, ValueError):
            if self._live:
                self._console.print(line, style="red" if error else None)
            else:
                _print(line)

    def waiting(self, reason: str, seconds: float) -> None:
        """A call failed and is repeated: said at once, and then not more often than every half minute."""
        now = time.monotonic()
        with self._lock:
            if self._waited_at is not None and now - self._waited_at < WAITING_S:
                return
            self._waited_at = now
        self.say(f"trying again: {reason}")

    def begin(self, job: "Job") -> None:
        """A job begins."""
        with self._lock:
            self._jobs[job] = Rate(time.monotonic(), job.spool.log_bytes)
        self.say(f"{job.sim.sim_id} {job.sim.name}: {' '.join(job.sim.argv)[:300]}")

    def end(self, job: "Job", state: str) -> None:
        """A job is over."""
        with self._lock:
            self._jobs.pop(job, None)
        seconds = time.monotonic() - job.began if job.ran_s is None else job.ran_s
        self.say(
            f"{job.sim.sim_id} {job.sim.name}: {state}, {job.story.progress()}, {seconds:.0f} s", state != "succeeded"
        )

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for title in ("sim", "name", "state", "kernels", "cycles", "log", "last beat"):
            table.add_column(title, no_wrap=True, overflow="ellipsis", min_width=16 if title == "sim" else None)
        with self._lock:
            jobs = list(self._jobs.items())
        now = time.monotonic()
        for job, rate in jobs:
            story, beat = job.story, job.heart.last_ack
            kernels = f"{story.kernels}" if story.expected is None else f"{story.kernels} of {story.expected}"
            size = job.spool.log_bytes
            heard = "none yet" if beat is None else f"{now - beat:.0f} s ago"
            cycles = "" if story.cycles is None else f"{story.cycles:,}"
            table.add_row(
                job.sim.sim_id, job.sim.name, job.state, kernels, cycles, f"{size / 1e6:.1f} MB, {rate.at(now, size):.2f} MB/s",
                f"{heard}{' (' + job.heart.trouble[:60] + ')' if job.heart.trouble else ''}",
            )  # fmt: skip
        return table


def _print(line: str) -> None:
    """Print to stderr, past its buffer: what that can't get rid of would be an error again when the process exits."""
    try:
        number = sys.stderr.fileno()
    except (AttributeError, io.UnsupportedOperation):  # none, or one of a test
        print(line, file=sys.stderr, flush=True)
        return
    rest = f"{line}\n".encode(errors="replace")
    while rest:
        rest = rest[os.write(number, rest) :]
