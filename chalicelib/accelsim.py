"""Reads what Accel-Sim and GPGPU-Sim print, line by line, into finished kernels and the outcome of the run.

A kernel that ends prints a block of some 600 to 5,000 lines: `kernel_name =`, `kernel_launch_uid =`, about twenty
headline rows, cache, DRAM and network statistics, and last the rows of the wall clock. `Parser` takes the lines in
pieces of any size and keeps between them a small state that can be written as JSON and taken up by another process.

What the log says, and what it does not:

- The printed name and uid list the kernels that were *issued* since the previous block, not the one that ended. The
  one that ended is on a line `Destroy streams for kernel N` just before the block, and its name on the line that
  launched N. Some forks destroy queued kernels that never ran, so a uid that was not launched does not count.
- A cycle or instruction limit prints a block for the kernel it cuts short, and says so only on the line *after* the
  block. A complete block is therefore held back until a line of the simulator decides; `Parser.tail` shows it.
- Text of stderr may land inside a line of stdout and tear it in two. A torn row is left out, never half read.

Lines are joined and matched at their start, by one compiled pattern a phase whose first character is the newline: the
regular expression engine then runs from line to line in C, and Python sees only the lines that mean something. In a
block a second pattern reads the rows up to that line. They become numbers when the block ends, and are text in a state
until then.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypedDict

from pydantic_core import to_json

Number = int | float

MAX_STATS: Final = 4_096
"""Statistics kept of a block. The widest real block has about 370 names; 16 CUDA streams with breakdowns of their own
add 2,240."""
MAX_STAT_NAME: Final = 128
"""Characters of a statistic's name; a longer one is skipped. The longest real one has 85."""
MAX_STAT_NAMES: Final = 128 * 1024
"""Characters, all ASCII, of all names in a block together, so that a block of random names stays under 110 KB compressed."""
MAX_NUMBER: Final = 38
"""Digits before and after the point of a number; a row with more is left out. DynamoDB keeps 38 digits exactly, a wrapped
64-bit counter has 20."""
MAX_NAME_BYTES: Final = 8 * 1024
"""UTF-8 bytes of a kernel's name, cut beyond. Mangled names of template kernels reach 1 KB, demangled ones 4 KB."""
MAX_LAUNCHES: Final = 1_024
"""Kernels remembered as launched and not ended, the oldest dropped. At most one a CUDA stream runs at a time."""
MAX_LAUNCHES_BYTES: Final = 48 * 1024
"""Bytes of their names together, the oldest dropped."""
MAX_DESTROYED: Final = 256
"""`Destroy streams` lines remembered before a block, besides those of kernels known to be launched."""
MAX_PRINTED_UIDS: Final = 256
"""uids read from a `kernel_launch_uid` row. Upstream loads at most 32 kernels at once by default."""
MAX_TEXT: Final = 1_000
"""Characters kept of a line that tells how the run ended. A deadlock lists up to eight cores, about 100."""
_MAX_ROW: Final = 64 * 1024
"""Characters looked at in a line with a name, a list of uids or a message."""
_WINDOW: Final = 4_096
"""Lines joined at a time, so that a call which stops early has not copied all that is left."""

STATE_VERSION: Final = 3


class Kernel(TypedDict):
    """One block of statistics. A value the block lacks, and nan and inf, is None. Every float is finite."""

    name: str | None
    """Of the kernel that ended; None when the log does not say which."""
    launch_uid: int | None
    """The simulator's uid of the kernel that ended; None when the log does not say which."""
    finished: bool
    """False for the block of a kernel that a cycle or instruction limit cut short."""
    stream_id: int | None
    """`kernel_stream_id`, an unsigned 64-bit number (2**64 - 1 when the simulator found none)."""
    sim_cycles: int | None
    """`gpu_sim_cycle`: core cycles since the previous block."""
    sim_insns: int | None
    """`gpu_sim_insn`: thread-level instructions since the previous block."""
    ipc: Number | None
    """`gpu_ipc`: thread-level instructions a cycle."""
    tot_sim_cycles: int | None
    """`gpu_tot_sim_cycle`: core cycles since the run began."""
    tot_sim_insns: int | None
    """`gpu_tot_sim_insn`: thread-level instructions since the run began."""
    tot_ipc: Number | None
    """`gpu_tot_ipc`."""
    occupancy: Number | None
    """`gpu_occupancy`, in percent."""
    l2_bw_gbps: Number | None
    """`L2_BW`, in GB/s. Versions differ in the clock they divide by."""
    stats: dict[str, Number | None]
    """Every other row `name = number`, under the name as printed. Running totals are totals. Of a name printed more
    than once the last value counts, as in the framework's own scripts; of the memory partitions only the first is read. The two rows
    `gpgpu_simulation_rate` keep their unit in the name, `gpgpu_simulation_rate (inst/sec)` and `(cycle/sec)`;
    `gpgpu_simulation_time` is in seconds, `gpgpu_silicon_slowdown` a factor."""


@dataclass(slots=True)
class Outcome:
    """How the run went so far. A new banner in the log (a retry appended to it) starts a new outcome."""

    exit_detected: bool = False
    """The simulator's own last line was printed. A run cut by a limit has it too; a missing trace file does not."""
    limit: str | None = None
    """The line that says a cycle, instruction or CTA limit was reached."""
    deadlock: str | None = None
    """The line that says a deadlock was detected."""
    error: str | None = None
    """The first line with a failed assertion, an execution error, an undefined instruction, an unsupported binary
    version or a file that could not be opened."""
    launched: int = 0
    """Kernels launched."""
    finished: int = 0
    """Kernels returned as finished. A complete block still held back is not counted."""
    core_clock_mhz: float | None = None
    """First of the four `-gpgpu_clock_domains` in the header."""
    block_open: bool = False
    """The log so far ends inside a kernel's statistics; after `Parser.finish`, it was cut there."""


_OUTCOME: Final = tuple(each.name for each in fields(Outcome))
_HEADLINE: Final = ("gpu_sim_cycle", "gpu_sim_insn", "gpu_tot_sim_cycle")


@dataclass(slots=True)
class _Block:
    """The block being read."""

    destroyed: list[int]
    """uids of the `Destroy streams` lines before the block, as printed."""
    names: str | None = None
    """Text of the `kernel_name` row; None if it was torn, or not come yet."""
    uids: list[int] | None = None
    """Of the `kernel_launch_uid` row; None if it was torn, or not come yet."""
    is_kernel: bool = False
    """Whether a headline row was read. A power report repeats kernel_name and kernel_launch_uid, but has none."""
    packed: str = ""
    """Rows as the state holds them, `name=number` with `;` between; neither has these characters."""
    rows: list[tuple[str, str]] = field(default_factory=list)
    """Rows read since: name, perhaps with blanks behind, and number, as printed."""
    count: int = 0
    """Rows in both."""
    size: int = 0
    """Characters of the names in both, or more."""

    def add(self, rows: list[tuple[str, str]], size: int) -> None:
        """Append rows read from `size` characters of text."""
        self.is_kernel = self.is_kernel or any(name.rstrip() in _HEADLINE for name, _ in rows)
        self.rows += rows
        self.count += len(rows)
        self.size += size
        if self.count > 2 * MAX_STATS or self.size > 2 * MAX_STAT_NAMES:  # twice: not again for every row
            self.bound()

    def pack(self) -> str:
        """The rows as text, within their bounds. They stay text until the block ends: most states are only passed on."""
        self.bound()
        rows = ";".join(map("=".join, self.rows))
        self.packed = f"{self.packed};{rows}" if self.packed and rows else self.packed or rows
        self.rows = []
        self.size = min(self.size, len(self.packed))
        return self.packed

    def unpack(self) -> None:
        """Turn the text into rows again."""
        words = self.packed.replace(";", "=").split("=")
        self.rows[:0] = zip(words[::2], words[1::2], strict=False)
        self.packed = ""

    def bound(self) -> None:
        """Hold the rows to the bounds on a block: of a name the last, in order of the first."""
        if self.count <= MAX_STATS and self.size <= MAX_STAT_NAMES:
            return
        self.unpack()
        kept: dict[str, str] = {}
        size = 0
        for printed, value in self.rows:
            name = printed.rstrip()
            if name not in kept:
                if len(name) > MAX_STAT_NAME or len(kept) == MAX_STATS or size + len(name) > MAX_STAT_NAMES:
                    continue
                size += len(name)
            kept[name] = value
        self.rows = list(kept.items())
        self.count = len(kept)
        self.size = size

    def stats(self) -> dict[str, Number | None]:
        """The rows as numbers by name; the last of a name counts."""
        if self.count > MAX_STAT_NAMES // MAX_STAT_NAME:  # fewer are within the bounds, but for names too long
            self.bound()
        self.unpack()
        stats = {name.rstrip(): int(text) if text.isdigit() else _number(text) for name, text in self.rows}
        if max(map(len, stats), default=0) > MAX_STAT_NAME:
            return {name: number for name, number in stats.items() if len(name) <= MAX_STAT_NAME}
        return stats


class _Kernels:
    """Names and streams of kernels by uid, bounded: the oldest is dropped."""

    __slots__ = ("_by_uid", "_bytes", "dropped")

    def __init__(self, entries: Iterable[Sequence[Any]] = (), dropped: bool = False) -> None:
        self._by_uid: dict[int, tuple[str, int | None]] = {}
        self._bytes = 0
        self.dropped = dropped
        for uid, name, stream in entries:
            self.add(uid, name, stream)

    def __contains__(self, uid: int) -> bool:
        return uid in self._by_uid

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_uid)

    def __len__(self) -> int:
        return len(self._by_uid)

    def add(self, uid: int, name: str, stream: int | None = None) -> None:
        self.pop(uid)  # a uid comes again when a retry is appended to the log
        self._by_uid[uid] = (name, stream)
        self._bytes += len(name.encode())
        while len(self._by_uid) > MAX_LAUNCHES or self._bytes > MAX_LAUNCHES_BYTES:
            self.pop(next(iter(self._by_uid)))
            self.dropped = True

    def pop(self, uid: int) -> None:
        if uid in self._by_uid:
            self._bytes -= len(self._by_uid.pop(uid)[0].encode())

    def name(self, uid: int) -> str | None:
        return self._by_uid[uid][0] if uid in self._by_uid else None

    def stream(self, uid: int) -> int | None:
        return self._by_uid[uid][1] if uid in self._by_uid else None

    def entries(self) -> list[tuple[int, str, int | None]]:
        return [(uid, name, stream) for uid, (name, stream) in self._by_uid.items()]


# Phases: between blocks; in a block; in its memory partitions from the second on; complete, and held back.
_OUTSIDE: Final = 0
_BODY: Final = 1
_PARTITIONS: Final = 2
_HELD: Final = 3

_NAME = "kernel_name ="
_UIDS = "kernel_launch_uid ="
_LAUNCH = "launching kernel name: "
_LAUNCH_FILE = "launching kernel command"
_PUSH = "GPGPU-Sim PTX: pushing kernel '"
_TRACE_NAME = "-kernel name = "
_DESTROY = "Destroy streams for kernel "
_CLOCKS = "-gpgpu_clock_domains "
_BUILD = "Accel-Sim [build"
_OPTIONS = "GPGPU-Sim: Configuration options:"
_EXIT = "GPGPU-Sim: *** exit detected ***"
_BREAK = "GPGPU-Sim: ** break"
_UARCH_ERROR = "GPGPU-Sim uArch: ERROR"
_DEADLOCK = "deadlock detected"
_TIME = "gpgpu_simulation_time ="
_RATE = "gpgpu_simulation_rate ="
_SLOWDOWN = "gpgpu_silicon_slowdown ="
_CLOCK_ROWS = (_TIME, _RATE, _SLOWDOWN)
_ERRORS = (
    _UARCH_ERROR,
    "GPGPU-Sim PTX: ERROR",
    "Execution error",
    "ERROR:  undefined instruction",
    "unsupported binary version",
    "Unable to open file",
)
# Lines that are never inside a block: one thread prints it in one go. Reaching one means the block was cut.
_NEVER_INSIDE = (
    _NAME,
    "launching ",
    "Processing kernel ",
    "Header info loaded ",
    "thread block = ",
    _DESTROY,
    _BUILD,
    _OPTIONS,
    _EXIT,
    _BREAK,
)
# These too end the wait for the break line after a complete block. Blank lines, `simulation thread exiting` (which PTX
# mode prints before the break line) and text of the application or of stderr do not.
_DECISIVE = (_UIDS, _TRACE_NAME, "GPGPU-Sim uArch: ", "GPGPU-Sim PTX: cudaLaunch")
# In PTX mode the application's thread may launch a kernel while the block of another is printed.
_ANYWHERE = (*_ERRORS, _PUSH)


def _line_starts(*starts: str) -> re.Pattern[str]:
    """A pattern for lines that begin with one of `starts`, which is group 1.

    Three sets turn most lines down on their first characters. Only then does a look back over these try each start.
    """
    first = "".join(f"[{''.join(sorted({re.escape(start[at]) for start in starts}))}]" for at in range(3))
    return re.compile(rf"\n{first}(?<=(?=({'|'.join(re.escape(start) for start in starts)}))...)")


_PARTITION = "Memory Partition "
_AFTER_PARTITIONS = ("========= ", "L2_cache_bank", "L2_total_cache", "icnt_total_pkts")  # any of them may be torn
_SCAN: Final = {
    _OUTSIDE: _line_starts(
        *_ANYWHERE, _NAME, _UIDS, _LAUNCH, _LAUNCH_FILE, _TRACE_NAME, _DESTROY, _CLOCKS, _BUILD, _OPTIONS, _EXIT, _BREAK
    ),
    _BODY: _line_starts(
        *_NEVER_INSIDE, *_ANYWHERE, _UIDS, *_CLOCK_ROWS, *(f"{_PARTITION}{n}" for n in range(1, 10))
    ),
    # The rows of 10 to 32 partitions are most of a block's lines, and repeat the names of the first.
    _PARTITIONS: _line_starts(
        *_NEVER_INSIDE, *_ANYWHERE, _UIDS, *_CLOCK_ROWS, *_AFTER_PARTITIONS
    ),
    _HELD: _line_starts(*_NEVER_INSIDE, *_ANYWHERE, *_DECISIVE, *_CLOCK_ROWS),
}  # fmt: skip

# Characters are spelt out, as the engine makes a bit map of them and not of \w.
_CHARS = r"A-Za-z0-9_#%/.<>*&+'() \t-"
_NUMBER = rf"-?+(?:[0-9]{{1,{MAX_NUMBER}}}+(?:\.[0-9]{{1,{MAX_NUMBER}}}+)?+(?:[eE][-+]?+[0-9]{{1,4}}+)?+|[nN][aA][nN]|[iI][nN][fF])"
_STAT: Final = re.compile(
    rf"""\n[ \t]*+
    ([A-Za-z_][{_CHARS}]*+(?!\])[][{_CHARS}]*+)             # a "]" before any "[" is the end of a torn name
    =(?:[ \t]*+|[ \t]*+[0-9]++/[0-9]++[ ]=[ ])             # average row locality = 40/2 = 20.000000
    ([0-9]{{1,{MAX_NUMBER}}}+(?=\n)                         # most rows: the next line reads them too, but slower
    |{_NUMBER}
    # Behind it a unit of one word or a remark in brackets; text of stderr and lists of numbers are not.
    (?=[%!]?+[ \t\r]*+(?:[A-Za-z/%]++[ \t\r]*+|[({{][^=\n]*+)?+\n))""",
    re.VERBOSE,
)
# Rows that end in a word of their own are whole whatever is glued to them.
_SECONDS: Final = re.compile(r"[^(]*+\(([0-9]{1,18}) sec\)")
_RATE_ROW: Final = re.compile(rf"\s*+({_NUMBER}) (\((?:inst|cycle)/sec\))")
_SLOWDOWN_ROW: Final = re.compile(rf"\s*+({_NUMBER})(?:x|\s*$)")
_LAUNCHED: Final = re.compile(r"([0-9]{1,20})(?:\s+cuda_stream_id: ([0-9]{1,20}))?(?=\s*$|\s+[A-Za-z_]+: )")
_DESTROYED: Final = re.compile(r"([0-9]{1,20}): size ")
_CLOCK: Final = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?):")
_ASSERTION = "Assertion `"


def _number(text: str) -> Number | None:
    """The number as printed: an int exactly, a float if finite, else None."""
    if "." not in text and text.removeprefix("-").isdigit():
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else None


def _count(number: Number | None) -> int | None:
    """A number of cycles or instructions; None for what cannot be one. A fork may print it as 1e+06 or 38790.0000."""
    if isinstance(number, float):
        return int(number) if number.is_integer() and abs(number) < 10**MAX_NUMBER else None
    return number


def _cut(text: str, limit: int) -> str:
    """`text` in at most `limit` bytes of UTF-8: surrogate pairs joined, a lone surrogate replaced by U+FFFD."""
    text = text[:limit]
    if text.isascii():
        return text
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.encode()[:limit].decode("utf-8", "ignore")


def _name_row(row: str) -> str:
    """Text of a `kernel_name` row, bounded."""
    return _cut(row.strip(), MAX_NAME_BYTES)


def _uids(row: str) -> list[int] | None:
    """The uids of a `kernel_launch_uid` row; None when the row is torn."""
    words = row.split()
    if not all(word.isascii() and word.isdigit() and len(word) <= 20 for word in words):
        return None
    return [int(word) for word in words[:MAX_PRINTED_UIDS]]


def _names(row: str, count: int) -> list[str] | None:
    """The `count` names of a `kernel_name` row, which follow each other with a blank; None when it cannot be told.

    A demangled name has blanks of its own, so a row of several splits only if it has as many words as names, or if
    all are the same.
    """
    if count == 1:
        return [row] if row else None
    if count == 0 or len(row.encode()) >= MAX_NAME_BYTES - 3:  # nothing, or perhaps cut within a name
        return None
    words = row.split(" ")
    if len(words) == count:
        return words
    same = row[: len(row) // count]
    return [same] * count if " ".join([same] * count) == row else None


class Parser:
    """Parser of one log, fed in order. What it holds between two calls is small and bounded: see `to_state`.

    ```python
    parser = Parser.from_state(stored)          # None for a new log
    kernels, consumed = parser.feed(lines)
    stored = parser.to_state()
    ...
    kernels = parser.finish()                   # once, when no line follows
    ```
    """

    __slots__ = (
        "_block", "_destroyed", "_launched", "_loaded", "_outcome", "_overlapped", "_partial", "_phase", "_skip",
        "_torn", "_traced", "_uids_launched",
    )  # fmt: skip

    def __init__(self) -> None:
        self._skip = 0  # characters of the next line already read: only if it has newlines of its own
        self._torn = False  # nothing of the simulator seen since a gap
        self._phase = _OUTSIDE
        self._block: _Block | None = None
        self._new_run()

    def _new_run(self) -> None:
        """Forget what belongs to one process of the simulator: uids begin again with the next."""
        self._outcome = Outcome()
        self._destroyed: dict[int, None] = {}  # in order, each once
        self._launched = _Kernels()  # launched with a uid and not ended
        self._traced = _Kernels()  # as loaded; uid by order of loading, for versions whose launch line has no uid
        self._loaded: int | None = 0  # kernels loaded; None when a gap hid some
        self._uids_launched = False  # this version prints uids in its launch lines
        self._partial = False  # a gap hid launches
        self._overlapped = False  # a kernel was launched while another ran

    @property
    def outcome(self) -> Outcome:
        """How the run went so far; a copy."""
        inside = self._block is not None and self._phase != _HELD and self._block.is_kernel
        return replace(self._outcome, block_open=inside or self._outcome.block_open)

    def feed(self, lines: Sequence[str], start: int = 0, max_kernels: int | None = None) -> tuple[list[Kernel], int]:
        """Read `lines[start:]` and return the kernels whose blocks are now decided, and the first line not read.

        That is `len(lines)`, unless `max_kernels` were found: then the rest is left, to be fed again from there.
        Lines may have their line end or newlines of their own, which count as line ends. Any text is taken.
        Raises ValueError if `max_kernels` is less than 1.
        """
        if max_kernels is not None and max_kernels < 1:
            raise ValueError("max_kernels must be at least 1")
        kernels: list[Kernel] = []
        while start < len(lines):
            piece = lines[start : start + _WINDOW]
            window = piece if isinstance(piece, list) else list(piece)  # a slice of a list is one of its own
            window.append("")
            window[0] = "\n" + window[0][self._skip :]
            stop = self._scan("\n".join(window), kernels, max_kernels)
            if stop is not None:
                window[0] = window[0][1:]
                return kernels, start + self._stop_at(window, stop)
            self._skip = 0
            start += len(window) - 1
        return kernels, start

    def _stop_at(self, window: list[str], offset: int) -> int:
        """Lines of `window` before `offset` in its text; what was read of the next line is skipped next time."""
        for count, line in enumerate(window):
            if offset <= len(line):
                self._skip += offset
                return count
            offset -= len(line) + 1
            self._skip = 0
        return len(window)

    def tail(self) -> Kernel | None:
        """The kernel whose block is complete but waits for the next line to decide; changes nothing."""
        return self._kernel(self._block, True) if self._block and self._phase == _HELD else None

    def finish(self) -> list[Kernel]:
        """End of the stream: the kernel `tail` shows, if any. A block cut short is dropped."""
        if self._block and self._phase == _HELD:
            return [self._close(self._block, True)]
        if self._block:
            self._outcome.block_open = self._block.is_kernel
            self._drop()
        return []

    def tear(self) -> list[Kernel]:
        """Lines are missing here. Drops the block the gap tears; returns the one that was complete, if any.

        A break line hidden by the gap would make that one unfinished; but a limit cuts one block in a run, and after
        it two lines are left. What is known of launches stays only if kernels overlap, to name those that end later.
        """
        kernels = self.finish()
        self._outcome.block_open = False
        self._skip = 0
        self._torn = True
        self._partial = True
        self._loaded = None
        self._traced = _Kernels()
        self._destroyed = {}
        if not self._overlapped:
            self._launched = _Kernels()
        return kernels

    def to_state(self) -> str:
        """The state as JSON text, from which `from_state` goes on at the next line in any process.

        About 1 KB between blocks and 15 KB inside one; at most some 500 KB, under 250 KB compressed, whatever was
        fed.
        """
        block = self._block
        packed = block.pack() if block else ""
        return to_json(
            {
                "v": STATE_VERSION,
                "phase": self._phase,
                "block": block
                and [block.destroyed, block.names, block.uids, block.is_kernel, packed, block.count, block.size],
                "destroyed": list(self._destroyed),
                "launched": self._launched.entries(),
                "dropped": self._launched.dropped,
                "traced": self._traced.entries(),
                "loaded": self._loaded,
                "flags": [self._torn, self._uids_launched, self._partial, self._overlapped],
                "skip": self._skip,
                "outcome": {name: getattr(self._outcome, name) for name in _OUTCOME},
            },
        ).decode()

    @classmethod
    def from_state(cls, state: str | bytes | Mapping[str, Any] | None) -> Parser:
        """A parser that goes on from `to_state`, as text, as UTF-8 or as the object it holds; a new one for None.

        Raises ValueError for anything else, and for the state of another version.
        """
        parser = cls()
        if state is None:
            return parser
        value = json.loads(state) if isinstance(state, str | bytes) else state
        if not isinstance(value, Mapping) or value.get("v") != STATE_VERSION:
            raise ValueError("not a parser state of this version")
        try:
            parser._phase = value["phase"]
            if parser._phase not in _SCAN or (parser._phase == _OUTSIDE) != (value["block"] is None):
                raise ValueError("not a parser state of this version")
            if value["block"] is not None:
                destroyed, names, uids, is_kernel, packed, count, size = value["block"]
                parser._block = _Block(list(destroyed), names, uids, is_kernel, packed, [], count, size)
            parser._destroyed = dict.fromkeys(value["destroyed"])
            parser._launched = _Kernels(value["launched"], value["dropped"])
            parser._traced = _Kernels(value["traced"])
            parser._loaded = value["loaded"]
            parser._torn, parser._uids_launched, parser._partial, parser._overlapped = value["flags"]
            parser._skip = value["skip"]
            parser._outcome = Outcome(**value["outcome"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("not a parser state of this version") from error
        return parser

    def _scan(self, text: str, kernels: list[Kernel], max_kernels: int | None) -> int | None:
        """Read `text`, lines that each follow a newline. Returns the offset of the first newline not passed.

        None when all was read; otherwise `max_kernels` were found.
        """
        end = len(text) - 1
        position = 0
        assertions = 0 if "`" in text else end  # searched for up to here; one character is found without cost
        while True:
            match = _SCAN[self._phase].search(text, position)
            stop = match.start() if match else end
            if assertions < stop:
                self._find_assertion(text, assertions, stop)
                assertions = stop
            if self._phase == _BODY and self._block:
                self._block.add(_STAT.findall(text, position, stop + 1), stop - position)
            if match is None:
                return None
            found, position = match[1], match.end(1)
            if self._phase == _OUTSIDE:
                self._outside(found, _rest(text, position))
            elif self._block and found in _CLOCK_ROWS and not (self._phase == _HELD and found == _TIME):
                self._clock_row(self._block, found, _rest(text, position))  # a second time row has no block
            elif self._block and self._phase == _HELD:
                kernels.append(self._close(self._block, found != _BREAK))
                if len(kernels) == max_kernels:
                    return stop
                position = stop
            else:
                position = self._inside(found, text, match)

    def _outside(self, found: str, rest: str) -> None:
        """A line between blocks."""
        run = self._outcome
        if found == _UIDS and self._torn:
            return  # the first line of this block is in the gap
        self._torn = False
        if found == _NAME:
            self._open().names = _name_row(rest)
        elif found == _UIDS:
            self._open().uids = _uids(rest)  # the row of names comes next, or was torn by stderr
        elif found == _DESTROY:
            if uid := _DESTROYED.match(rest):
                self._destroy(int(uid[1]))
        elif found == _LAUNCH:
            run.launched += 1
            self._launch(rest)
        elif found == _LAUNCH_FILE:
            run.launched += 1
        elif found == _PUSH:
            run.launched += 1
            self._load(rest.partition("'")[0])
        elif found == _TRACE_NAME:
            self._load(rest.strip())
        elif found == _CLOCKS:
            clock = _CLOCK.match(rest)
            run.core_clock_mhz = float(clock[1]) if clock else None
        elif found in (_BUILD, _OPTIONS):
            self._new_run()
        elif found == _EXIT:
            run.exit_detected = True
        elif found == _BREAK:
            run.limit = _cut((found + rest).rstrip(), MAX_TEXT)
        else:
            self._error(found, rest)

    def _inside(self, found: str, text: str, match: re.Match[str]) -> int:
        """A line in a block that is no statistic; returns where to go on."""
        block = self._block
        if found == _UIDS and block and block.uids is None:
            block.uids = _uids(_rest(text, match.end(1)))
        elif found == _NAME and block and block.names is None and not block.is_kernel:
            block.names = _name_row(_rest(text, match.end(1)))
        elif found in _ANYWHERE:
            self._outside(found, _rest(text, match.end(1)))
        elif found.startswith(_PARTITION):
            self._phase = _PARTITIONS
        elif found in _AFTER_PARTITIONS:
            self._phase = _BODY
            return match.start()
        else:
            self._drop()
            return match.start()
        return match.end(1)

    def _open(self) -> _Block:
        self._block = _Block(list(self._destroyed))
        self._destroyed = {}
        self._outcome.block_open = False
        self._phase = _BODY
        return self._block

    def _drop(self) -> None:
        """Leave the open block out."""
        if self._block and not self._block.is_kernel:
            self._destroyed = dict.fromkeys(
                self._block.destroyed
            )  # no block at all: a power report before the real one
        self._block = None
        self._phase = _OUTSIDE

    def _close(self, block: _Block, finished: bool) -> Kernel:
        kernel = self._kernel(block, finished)
        if kernel["launch_uid"] is not None:
            self._launched.pop(kernel["launch_uid"])
            self._traced.pop(kernel["launch_uid"])
        self._outcome.finished += finished
        self._block = None
        self._phase = _OUTSIDE
        return kernel

    def _kernel(self, block: _Block, finished: bool) -> Kernel:
        stats = block.stats()
        stream = stats.pop("kernel_stream_id", None)
        stream_id = stream if isinstance(stream, int) else None
        uid, name = self._ended(block, stream_id)
        return Kernel(
            name=name,
            launch_uid=uid,
            finished=finished,
            stream_id=stream_id,
            sim_cycles=_count(stats.pop("gpu_sim_cycle", None)),
            sim_insns=_count(stats.pop("gpu_sim_insn", None)),
            ipc=stats.pop("gpu_ipc", None),
            tot_sim_cycles=_count(stats.pop("gpu_tot_sim_cycle", None)),
            tot_sim_insns=_count(stats.pop("gpu_tot_sim_insn", None)),
            tot_ipc=stats.pop("gpu_tot_ipc", None),
            occupancy=stats.pop("gpu_occupancy", None),
            l2_bw_gbps=stats.pop("L2_BW", None),
            stats=stats,
        )

    def _ended(self, block: _Block, stream: int | None) -> tuple[int | None, str | None]:
        """uid and name of the kernel that ended with this block, each None when the log leaves it open."""
        printed = block.uids or []
        count = len(printed) if block.uids is not None or self._overlapped else 1
        names = _names(block.names or "", count) or []
        ran = [uid for uid in block.destroyed if uid in self._launched]
        if not ran and (self._partial or self._launched.dropped or not self._uids_launched):
            ran = block.destroyed  # nothing says that these were not launched
        if len(ran) > 1:
            ran = [uid for uid in ran if self._launched.stream(uid) == stream is not None] or ran
        uid = ran[0] if len(ran) == 1 else None
        if uid is None and len(printed) == 1:
            # Without a word on which one ended, the printed one is it only if kernels run one at a time.
            sure = printed[0] in ran if ran else printed[0] in block.destroyed or not self._overlapped
            uid = printed[0] if sure else None
        if uid is None:
            # The name is known all the same if all that can have ended have the same.
            if ran or self._overlapped:
                same = {self._launched.name(uid) for uid in ran or self._launched}
            else:
                same = set(names)
            return None, same.pop() if len(same) == 1 else None
        by_row = dict(zip(printed, names, strict=False)).get(uid)
        return uid, self._launched.name(uid) or by_row or self._traced.name(uid)

    def _clock_row(self, block: _Block, found: str, rest: str) -> None:
        """A row of the wall clock, the last of a block: complete from the first of them that is whole."""
        if found == _TIME:
            row = _SECONDS.match(rest)
            name = "gpgpu_simulation_time"
        elif found == _RATE:
            row = _RATE_ROW.match(rest)
            name = f"gpgpu_simulation_rate {row[2]}" if row else ""
        else:
            row = _SLOWDOWN_ROW.match(rest)
            name = "gpgpu_silicon_slowdown"
        if row is None:
            return
        block.add([(name, row[1])], len(name))
        if block.is_kernel:
            self._phase = _HELD
        else:
            self._drop()

    def _launch(self, rest: str) -> None:
        name, _, numbers = rest.rpartition(" uid: ")
        row = _LAUNCHED.match(numbers)
        if row is None or not name:
            self._partial = True  # torn by stderr
            return
        uid = int(row[1])
        self._overlapped |= len(self._launched) > (uid in self._launched)
        self._launched.add(uid, _cut(name, MAX_NAME_BYTES), int(row[2]) if row[2] else None)
        self._uids_launched = True
        self._traced = _Kernels()

    def _load(self, name: str) -> None:
        if self._loaded is not None and not self._uids_launched:
            self._loaded += 1
            self._traced.add(self._loaded, _cut(name, MAX_NAME_BYTES))

    def _destroy(self, uid: int) -> None:
        if uid in self._launched or len(self._destroyed) < MAX_DESTROYED:
            self._destroyed[uid] = None

    def _error(self, found: str, rest: str) -> None:
        line = _cut((found + rest).rstrip(), MAX_TEXT)
        if found == _UARCH_ERROR and _DEADLOCK in line:
            self._outcome.deadlock = self._outcome.deadlock or line
        else:
            self._outcome.error = self._outcome.error or line

    def _find_assertion(self, text: str, start: int, end: int) -> None:
        """Note the line of a failed assertion. It comes from stderr, so it may begin inside a line of stdout."""
        if self._outcome.error is None and (at := text.find(_ASSERTION, start, end)) >= 0:
            first = text.rfind("\n", max(0, at - MAX_TEXT // 2), at) + 1 or at - MAX_TEXT // 2
            line = text[first : first + MAX_TEXT].partition("\n")[0]
            self._outcome.error = _cut(line.rstrip(), MAX_TEXT)


def _rest(text: str, position: int) -> str:
    """The rest of the line at `position`, cut if it is out of all proportion."""
    return text[position : min(text.index("\n", position), position + _MAX_ROW)]
