"""What an import left out, changed, assumed or only counted, so that nothing of it happens in silence."""

from dataclasses import dataclass, field
from typing import Literal

from cascade.words import counted

Action = Literal["dropped", "clamped", "guessed", "counted"]
ACTIONS: tuple[Action, ...] = ("dropped", "clamped", "guessed", "counted")


@dataclass(slots=True)
class Entry:
    """One kind of thing that happened. `gpu_ns` sums the GPU time concerned; `first` shows the first case."""

    action: Action
    what: str
    count: int = 0
    gpu_ns: int = 0
    first: str = ""


@dataclass(slots=True)
class ImportReport:
    """The report of one import. Every kernel of the trace is in `kernels_kept` or in a `dropped` entry."""

    source: str
    trace_format: str = ""
    kernels_found: int = 0
    kernels_kept: int = 0
    steps: int = 0
    gpu_ns: int = 0
    entries: dict[tuple[Action, str], Entry] = field(default_factory=dict)

    def add(self, action: Action, what: str, count: int = 1, gpu_ns: int = 0, first: str = "") -> None:
        """Count `count` more of `what`, concerning `gpu_ns` ns of GPU time. Nothing happens at count 0."""
        if count:
            entry = self.entries.setdefault((action, what), Entry(action, what, first=first))
            entry.count += count
            entry.gpu_ns += gpu_ns

    def count(self, action: Action, what: str) -> int:
        """How many of `what`; 0 when it did not happen."""
        entry = self.entries.get((action, what))
        return 0 if entry is None else entry.count

    def lines(self) -> list[str]:
        """The report as text, one line an entry, in the order of ACTIONS and then of happening."""
        text = [
            f"{self.source}: {self.trace_format}, {counted(self.kernels_found, 'kernel')}, {self.kernels_kept:,} of them "
            f"in {counted(self.steps, 'step')} with {show_ns(self.gpu_ns)} of GPU time"
        ]
        for action in ACTIONS:
            for entry in self.entries.values():
                if entry.action == action:
                    time = f" ({show_ns(entry.gpu_ns)})" if entry.gpu_ns else ""
                    first = f"; first: {entry.first}" if entry.first else ""
                    text.append(f"  {action:8} {entry.count:>9,}  {entry.what}{time}{first}")
        return text


def show_ns(ns: float) -> str:
    """A time for people, with three to four digits: `1.234 ms`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.4g} {unit}" if abs(ns) < 1e4 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns:.4g} ns"
