"""What the log says of the run so far, and whether it was a success.

The exit code of accel-sim.out says little: a kernel whose trace is missing, a limit that was reached, kernels that were
never launched and a full disk all end with 0. A whole run has exit code 0, the simulator's own last line, no limit, and
as many finished kernels as were launched and as the trace's kernel list names. Anything else failed, for a reason.
"""

import itertools
import re
import signal
from collections import deque
from pathlib import Path
from typing import Final, Literal

from cascade.worker import lines
from cascade.worker.process import Exit
from chalicelib.accelsim import Outcome, Parser

ACCEL_SIM, EXIT_CODE = "accel-sim", "exit-code"
LAST_LINE: Final = "GPGPU-Sim: *** exit detected ***"
REASON_MAX: Final = 600
"""Characters of one part of a reason; the server keeps 4 KiB of the whole."""
_TAIL_LINES: Final = 20
_LAUNCH: Final = re.compile(r"^launching kernel (?:name: (.*) uid: ([0-9]+)|command : (.*))", re.MULTILINE)
_MEMORY: Final = re.compile(
    r"std::bad_alloc|cannot allocate memory|out of memory|\bMemoryError\b|oom[- ]?kill", re.IGNORECASE
)


def count_kernels(argv: list[str]) -> int | None:
    """Kernels in the trace's list, named by the argument after `-trace` (the list or its folder); None without one."""
    for option, value in itertools.pairwise(argv):
        if option == "-trace":
            path = Path(value)
            try:
                with (path / "kernelslist.g" if path.is_dir() else path).open("rb") as file:
                    return sum(line.startswith(b"kernel") for line in file)
            except (OSError, ValueError):  # or it can't be a path at all
                return None
    return None


class Story:
    """Reads a growing log. Memory is bounded, whatever the log holds.

    Args:
        log: The file; need not be there yet.
        expected: Kernels in the trace's list, None when unknown.
        start: Bytes of the log that are of earlier attempts, whose kernels are not this one's.
    """

    def __init__(self, log: Path, expected: int | None, start: int = 0) -> None:
        self.expected = expected
        self.bytes = start
        """Where the next read begins."""
        self.lines = 0
        self.cycles: int | None = None
        """`gpu_tot_sim_cycle` of the last kernel."""
        self._log = log
        self._parser = Parser()
        self._running: dict[int, str] = {}
        self._launched_before = 0
        self._last: deque[str] = deque(maxlen=_TAIL_LINES)

    @property
    def outcome(self) -> Outcome:
        """What the parser has found."""
        return self._parser.outcome

    @property
    def kernels(self) -> int:
        """Kernels finished, the one whose block waits for its next line included."""
        return self._parser.outcome.finished + (self._parser.tail() is not None)

    def read(self, whole: bool = False, budget: int = 16 * lines.CHUNK_BYTES) -> bool:
        """Read on, about `budget` bytes at most; whether there is more. With `whole` the log is complete."""
        try:
            file = self._log.open("rb")
        except FileNotFoundError:
            return False
        with file:
            stop = self.bytes + budget
            while self.bytes < stop:
                file.seek(self.bytes)
                data = file.read(lines.CHUNK_BYTES + lines.LOOKAHEAD)
                end = lines.cut(data, whole and len(data) < lines.CHUNK_BYTES + lines.LOOKAHEAD)
                if not end:
                    return False
                self._take(lines.split(data[:end]))
                self.bytes += end
        return True

    def finish(self) -> None:
        """Read the rest of a complete log."""
        while self.read(whole=True):
            pass
        for kernel in self._parser.finish():
            self._ended(kernel["launch_uid"], kernel["tot_sim_cycles"])

    def _take(self, new: list[str]) -> None:
        self.lines += len(new)
        self._last.extend(line[:REASON_MAX] for line in new[-_TAIL_LINES:] if line.strip())
        kernels, _ = self._parser.feed(new)
        for found in _LAUNCH.finditer("\n".join(new)) if any(line.startswith("launching k") for line in new) else ():
            self._running[int(found[2] or 0)] = found[1] or found[3]
        for kernel in kernels:
            self._ended(kernel["launch_uid"], kernel["tot_sim_cycles"])

    def _ended(self, uid: int | None, cycles: float | None) -> None:
        self._running.pop(uid or 0, None)
        if cycles is not None:
            self.cycles = int(cycles)

    # How it ended.

    def judge(self, exit: Exit, success: str) -> tuple[Literal["succeeded", "failed"], str | None]:
        """The final state, and the reason of a failure. Call `finish` before.

        Args:
            exit: How the process ended.
            success: `accel-sim`, or `exit-code` to look at nothing else.
        """
        if success == EXIT_CODE:
            return ("succeeded", None) if exit.code == 0 and not exit.output_lost else ("failed", self._why(exit))
        if self._whole(exit):
            return "succeeded", None if self.kernels else "no kernel ran: the trace's kernel list is empty"
        return "failed", f"{self._why(exit)}; {self.progress()}"

    def _whole(self, exit: Exit) -> bool:
        run = self.outcome
        return (
            exit.code == 0
            and not exit.output_lost
            and run.exit_detected
            and run.limit is None
            and run.deadlock is None
            and not run.block_open
            and run.finished == run.launched
            and self.expected in (None, run.finished)
        )

    def progress(self) -> str:
        """How far the run has come, in kernels."""
        launched = "" if self.outcome.launched == self.kernels else f", {self.outcome.launched} launched"
        if not self.expected:
            return f"{_kernels(self.kernels)} finished{launched}"
        return f"{self.kernels} of {_kernels(self.expected)} finished{launched}"

    def _where(self) -> str:
        """The kernel that was running, if the log says which."""
        if len(self._running) != 1:
            return f"after {_kernels(self.kernels)}" if self.kernels else "before the first kernel ended"
        uid, name = next(iter(self._running.items()))
        return f"in kernel {uid} {name[:200]}" if uid else f"in kernel {name[:200]}"

    def _why(self, exit: Exit) -> str:
        run, code = self.outcome, exit.code
        peak = f"peak {exit.max_rss_bytes / 1e9:.1f} GB" if exit.max_rss_bytes else "peak unknown"
        if exit.error is not None:
            return exit.error[:REASON_MAX]
        if exit.output_lost:
            return "the disk stayed full and the end of the log is lost"
        if run.deadlock:
            return f"deadlock {self._where()}: {run.deadlock[:REASON_MAX]}"
        number = _signal(code)
        memory = next((line for line in self._last if _MEMORY.search(line)), None)
        if exit.oom_killed and number == signal.SIGKILL:
            return f"out of memory: the kernel killed the simulator ({peak}) {self._where()}"
        if run.error:
            return f"{run.error[:REASON_MAX]} ({self._where()})"
        if memory and code != 0:
            return f"out of memory ({peak}): {memory}"
        if number is not None:
            hint = f", which the system does when memory runs out ({peak})" if number == signal.SIGKILL else ""
            return f"killed by {_signal_name(number)}{hint} {self._where()}"
        if code != 0:
            said = f": {self._last[-1]}" if self._last else ", and nothing was printed"
            return f"exit code {code}{said}"
        if run.limit:
            return f"stopped at a limit: {run.limit[:REASON_MAX]}"
        if not run.exit_detected:
            if not run.launched and run.core_clock_mhz is None:
                return (
                    "exit code 0, but nothing in the log is Accel-Sim's: no header, no kernel launched, no last line "
                    f"`{LAST_LINE}` (for another simulator: --success exit-code)"
                )
            return f"exit code 0, but the log stops {self._where()}, without the simulator's last line `{LAST_LINE}`"
        if self.expected == 0:
            return "exit code 0, but the trace's kernel list names no kernel"
        if run.launched < (self.expected or 0):
            return "exit code 0, but not every kernel of the list was launched"
        if run.launched == run.finished:
            return "exit code 0, but more kernels ran than the trace's kernel list names"
        return "exit code 0, but the kernels that finished are not those that were launched"


def _kernels(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'}"


def _signal(code: int | None) -> int | None:
    """The signal that ended a process, told as minus its number, or by a shell in between as 128 and its number."""
    if code is None:
        return None
    number = -code if code < 0 else code - 128
    return number if 0 < number < signal.NSIG else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
