"""What a list of a sim's kernels tells between its rows: attempts, kernels that overlapped, and kernels of two sims in pairs.

All functions are pure and take kernels in log order, of the API or of `cascade simulate`.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar


class Row(Protocol):
    """What is read of a kernel. Each may be None, when the log does not say it."""

    @property
    def name(self) -> str | None: ...
    @property
    def launch_uid(self) -> int | None: ...
    @property
    def sim_cycles(self) -> int | float | None: ...
    @property
    def sim_insns(self) -> int | float | None: ...
    @property
    def tot_sim_cycles(self) -> int | float | None: ...


K = TypeVar("K", bound=Row)


def attempts(kernels: Sequence[Row]) -> list[int]:
    """The attempt of each kernel, from 1: how often the simulator had been started when it printed the block.

    A log holds the blocks of several processes when the simulator was started again for the same sim. Within one
    process `tot_sim_cycles` rises by at least the kernel's own cycles, and no launch uid comes twice. So an attempt
    begins where the total falls or rises by less: the first kernel of a process has a total of its own cycles alone.
    Where the log does not say one of these numbers, a uid that the attempt has already had begins the next. A kernel
    that says nothing belongs to the one before it. The page has the same rule (chalicelib/static/attempts.js).
    """
    found: list[int] = []
    attempt = 1
    total: int | float | None = None
    uids: set[int] = set()
    for kernel in kernels:
        if _begins_anew(kernel, total, uids):
            attempt += 1
            total = None
            uids.clear()
        if kernel.tot_sim_cycles is not None:
            total = kernel.tot_sim_cycles
        if kernel.launch_uid is not None:
            uids.add(kernel.launch_uid)
        found.append(attempt)
    return found


def _begins_anew(kernel: Row, total: int | float | None, uids: set[int]) -> bool:
    """Whether `kernel` cannot be of the process whose last known total is `total` and which has ended `uids`."""
    now, own = kernel.tot_sim_cycles, kernel.sim_cycles
    if total is not None and now is not None:
        if now < total + (own or 0):
            return True
        if own is not None:
            return False
    return kernel.launch_uid in uids


def last_attempt(kernels: Sequence[K]) -> Sequence[K]:
    """The kernels of the last attempt: the only ones whose cycles add up to the sim's total."""
    numbers = attempts(kernels)
    return kernels[numbers.index(numbers[-1]) :] if numbers else kernels


def overlapped(kernels: Sequence[Row]) -> list[bool]:
    """Which kernels certainly ran together with another, so that their cycles are not their own duration.

    The cycles of a block are those since the block before it. So they are a kernel's own only if it began after the one
    before it had ended, and the list tells when it did not: a kernel ended after one that was launched later, both of
    which are meant, or nothing was executed since the block before, whose kernel is then meant too. Kernels that
    overlapped and yet ended one by one in launch order cannot be told from others.
    """
    found: list[bool] = []
    numbers = attempts(kernels)
    start = 0
    while start < len(kernels):
        end = start + numbers.count(numbers[start])
        found += _overlapped(kernels[start:end])
        start = end
    return found


def _overlapped(kernels: Sequence[Row]) -> list[bool]:
    """`overlapped` within one attempt."""
    found = [False] * len(kernels)
    latest = 0
    for position, kernel in enumerate(kernels):
        if kernel.launch_uid is not None:
            found[position] = kernel.launch_uid < latest
            latest = max(latest, kernel.launch_uid)
        if kernel.sim_insns == 0 and position:
            found[position - 1] = found[position] = True
    earliest: int | None = None
    for position in range(len(kernels) - 1, -1, -1):
        uid = kernels[position].launch_uid
        if uid is not None:
            found[position] |= earliest is not None and earliest < uid
            earliest = uid if earliest is None else min(earliest, uid)
    return found


def pairs(first: Sequence[K], second: Sequence[K]) -> Iterator[tuple[K | None, K | None]]:
    """Kernels of two sims side by side: the n-th of a name with the n-th of that name, as the page pairs them.

    In the order of `first`; what only `second` has comes last. So no row holds two kernels of different names.
    """
    waiting: dict[str | None, list[K]] = {}
    for kernel in reversed(second):
        waiting.setdefault(kernel.name, []).append(kernel)
    for kernel in first:
        partners = waiting.get(kernel.name)
        yield kernel, partners.pop() if partners else None
    left = {id(kernel) for partners in waiting.values() for kernel in partners}
    yield from ((None, kernel) for kernel in second if id(kernel) in left)
