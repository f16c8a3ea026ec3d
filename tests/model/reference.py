"""What Cascade promises, said again in plain Python: dictionaries, one clock, no storage and no races."""

from dataclasses import dataclass, field
from typing import Any

from chalicelib.accelsim import Parser

TIMEOUT_S = 60
FILE_MAX, SIM_MAX = 8, 20
"""Bytes a file and a sim may hold while the model test runs."""
MAY_GO = {
    "queued": {"running", "succeeded", "failed", "cancelled"},
    "running": {"succeeded", "failed", "cancelled", "lost"},
    "lost": {"running", "succeeded", "failed", "cancelled"},
    "succeeded": set(),
    "failed": set(),
    "cancelled": set(),
}


@dataclass
class Sim:
    """One sim. Times in seconds."""

    state: str = "queued"
    worker: str | None = None
    beat: float = 0.0
    finished: float = 0.0
    exit_code: int | None = None
    error: str | None = None
    chunks: dict[int, list[str]] = field(default_factory=dict)
    parsed: list[int | None] = field(default_factory=list)
    """Seqs in the order they were parsed, None for a gap that was stepped over."""
    next_seq: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    timing: Any = None

    @property
    def final(self) -> bool:
        return not MAY_GO[self.state]

    def look(self, now: float) -> None:
        """Silence makes it lost, for whoever looks."""
        if self.state == "running" and now - self.beat > TIMEOUT_S:
            self.state = "lost"

    def heartbeat(self, state: str, exit_code: int | None, error: str | None, now: float) -> None:
        self.look(now)
        if state in MAY_GO[self.state] or state == self.state == "running":
            self.state, self.beat = state, now
            if self.final:
                self.finished, self.exit_code, self.error = now, exit_code, error

    def cancel(self, now: float) -> None:
        self.look(now)
        if not self.final:
            self.state, self.finished = "cancelled", now

    def chunk(self, seq: int, lines: list[str]) -> None:
        self.chunks.setdefault(seq, lines)
        self.parse()

    def parse(self) -> None:
        while self.next_seq in self.chunks:
            self.parsed.append(self.next_seq)
            self.next_seq += 1

    def sweep(self, now: float) -> None:
        """A gap that is open for longer than the timeout after the end is stepped over."""
        self.look(now)
        while self.final and now - self.finished > TIMEOUT_S and self.next_seq < max(self.chunks, default=0):
            self.parsed.append(None)
            self.next_seq = min(seq for seq in self.chunks if seq > self.next_seq)
            self.parse()

    def kernels(self) -> list[Any]:
        parser, found = Parser(), []
        for seq in self.parsed:
            found += parser.tear() if seq is None else parser.feed(self.chunks[seq])[0]
        tail = parser.tail()
        return [*found, tail] if tail else found

    def missing(self) -> list[list[int]]:
        ranges, expected = [], 0
        for seq in sorted(self.chunks):
            if seq > expected:
                ranges.append([expected, seq - 1])
            expected = seq + 1
        return ranges

    def put(self, name: str, body: bytes) -> int:
        """The status of the put."""
        others = sum(len(data) for other, data in self.files.items() if other != name)
        if len(body) > FILE_MAX or others + len(body) > SIM_MAX:
            return 413
        self.files[name] = body
        return 200


@dataclass
class Run:
    """One run, its sims by id in order."""

    sims: dict[str, Sim]
