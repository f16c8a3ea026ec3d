"""The host model `scaled-gaps`: how long a step takes when its kernels take another time than was measured.

Times are integer nanoseconds relative to the step's start; a prime marks the new value. For one stream:

    S'_k = max(alpha * h_k, E'_prev + min(g_k, tau))        E'_k = S'_k + d'_k
    wall' = E'_last + alpha * (wall - e_last)

`d'_k` is kernel k's new duration, `g_k` the time the GPU idled before it, `tau` the back-to-back delay, and `h_k` when
the host let it start: its measured start when `g_k > tau` (the host was late), else its launch plus the step's smallest
launch latency when launches are known, else 0. Gaps never grow with busy time.

Several streams keep the order they were measured in, by these rules, which are the one above when there is one stream:

- The GPU was idle when kernel k began: it follows everything before it, so `E'_prev` is the latest end so far. Kernels
  of one chain that a graph launch spreads over streams stay a chain.
- Another stream was busy, and k's own stream had idled at most tau: it follows its own stream with the measured delay;
  if that stream is now later than measured the delay shrinks, since other work no longer hides it.
- Another stream was busy and k's own stream had idled longer: something the trace does not show held k back, so it
  starts when measured, or when its own stream is done.

A kernel never starts before the one before it on its stream started.

These hold for any streams and any durations (tests/timeline/test_host_model.py):

- same durations, alpha 1: wall' is the measured wall, exactly;
- wall' does not fall when any duration grows;
- alpha 1, no kernel faster: wall <= wall' <= busy' + gaps; no kernel slower: busy' <= wall' <= wall;
- a step without kernels takes alpha * wall.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import sqrt
from typing import NamedTuple

from cascade.timeline.model import HostFit, Kernel, Kind, Step, by_kind

TAU_NS = 2_000


class Follows(Enum):
    """What a kernel waits for besides its host; see the module's text."""

    ALL = "all kernels before it"
    STREAM = "its stream, with the measured delay"
    START = "its stream, and not before its measured start"


class MeasuredKernel(NamedTuple):
    """One kernel of a step in start order. Times in ns from the step's start."""

    start: int
    end: int
    host: int  # h_k
    delay: int  # ALL: min(g_k, tau); STREAM: measured idle time of its stream, negative where kernels overlap
    follows: Follows
    previous: int  # position of the kernel before it on its stream, -1 for the first


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step prepared for `play`. `order[i]` is the position in the step's kernel list of the i-th kernel to start."""

    wall: int
    busy: int
    last_end: int
    order: list[int]
    kernels: list[MeasuredKernel]


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """A step with new durations. `starts` and `ends` in start order as measured, ns from the step's start."""

    wall: int
    busy: int
    starts: list[int]
    ends: list[int]


def scaled(alpha: float, ns: int) -> int:
    """alpha * ns to the nearest integer, ties to even; exact at any size when alpha is 1."""
    return ns if alpha == 1 else round(alpha * ns)


def union(intervals: Iterable[tuple[int, int]]) -> int:
    """Length covered by intervals (start, end), in their unit, overlaps once."""
    total = 0
    frontier: int | None = None
    for start, end in sorted(intervals):
        if frontier is None or start > frontier:
            total += end - start
            frontier = end
        elif end > frontier:
            total += end - frontier
            frontier = end
    return total


def busy_ns(step: Step) -> int:
    """GPU busy time of a measured step in ns: the union of its kernel intervals."""
    return union((kernel.start_ns, kernel.end_ns) for kernel in step.kernels)


def start_order(kernels: Sequence[Kernel]) -> list[int]:
    """Positions of `kernels` by start, then end, then position: the order in which they are played."""
    return sorted(range(len(kernels)), key=lambda k: (kernels[k].start_ns, kernels[k].end_ns))


def measure(step: Step) -> MeasuredStep:
    """Prepare a measured step: for each kernel its host time, its delay and what it follows.

    A launch after its kernel's start counts as at the start, as the profiler's two clocks may differ a little.
    """
    order = start_order(step.kernels)
    origin = step.start_ns
    latencies = [max(k.start_ns - k.launch_ns, 0) for k in step.kernels if k.launch_ns is not None]
    least_latency = min(latencies, default=0)
    kernels: list[MeasuredKernel] = []
    last_on: dict[int | str | None, int] = {}
    frontier = 0
    busy = 0
    for position, k in enumerate(order):
        kernel = step.kernels[k]
        start, end = kernel.start_ns - origin, kernel.end_ns - origin
        host = 0
        if kernel.launch_ns is not None:
            host = min(kernel.launch_ns, kernel.start_ns) - origin + least_latency
        previous = last_on.get(kernel.stream, -1)
        idle = start - frontier
        stream_idle = start - (kernels[previous].end if previous >= 0 else 0)
        if idle >= 0:
            follows, delay = Follows.ALL, min(idle, TAU_NS)
            if idle > TAU_NS:
                host = start
        elif previous >= 0 and stream_idle <= TAU_NS:
            follows, delay = Follows.STREAM, stream_idle
        else:
            follows, delay, host = Follows.START, 0, start
        kernels.append(MeasuredKernel(start, end, host, delay, follows, previous))
        last_on[kernel.stream] = position
        busy += max(end - max(start, frontier), 0)
        frontier = max(frontier, end)
    return MeasuredStep(step.wall_ns, busy, frontier, order, kernels)


def play(step: MeasuredStep, durations: Sequence[int], alpha: float = 1.0) -> PlayedStep:
    """The step with `durations[i]` ns for the i-th kernel in start order, and host time scaled by `alpha`."""
    starts: list[int] = []
    ends: list[int] = []
    frontier = 0
    for kernel, duration in zip(step.kernels, durations, strict=True):
        previous_end = ends[kernel.previous] if kernel.previous >= 0 else 0
        start = scaled(alpha, kernel.host)
        if kernel.follows is Follows.ALL:
            start = max(start, frontier + kernel.delay)
        elif kernel.follows is Follows.STREAM:
            start = max(start, min(previous_end + kernel.delay, max(kernel.start, previous_end)))
        else:
            start = max(start, previous_end)
        if kernel.previous >= 0:
            start = max(start, starts[kernel.previous])
        end = start + duration
        starts.append(start)
        ends.append(end)
        frontier = max(frontier, end)
    wall = frontier + scaled(alpha, step.wall - step.last_end)
    return PlayedStep(wall, union(zip(starts, ends, strict=True)), starts, ends)


def wall_from_totals(busy_ns: int, gaps_ns: int, alpha: float = 1.0) -> int:
    """wall' of a step known by its totals alone: new busy time plus alpha times the measured gaps, in ns."""
    return busy_ns + scaled(alpha, gaps_ns)


def fit_alpha(steps: Sequence[Step]) -> dict[Kind, HostFit]:
    """Per kind, the least squares through the origin of the untraced host gap on the traced one.

    Uses the steps timed both ways (`untraced_wall_ns`); host gap is wall minus GPU busy time. A kind without such a step,
    or whose traced gaps are all 0, is not in the answer: its alpha is 1. A fit below 0 is taken as 0.
    """
    gaps: dict[Kind, list[tuple[int, int]]] = {}
    for step in steps:
        if step.untraced_wall_ns is not None:
            busy = busy_ns(step)
            gaps.setdefault(step.kind, []).append((step.wall_ns - busy, step.untraced_wall_ns - busy))
    fits: dict[Kind, HostFit] = {}
    for kind in by_kind(gaps):
        pairs = gaps[kind]
        square = sum(traced * traced for traced, _ in pairs)
        if square == 0:
            continue
        alpha = max(sum(traced * untraced for traced, untraced in pairs) / square, 0.0)
        left = sum((untraced - alpha * traced) ** 2 for traced, untraced in pairs)
        fits[kind] = HostFit(alpha=alpha, steps=len(pairs), rms_residual_ns=sqrt(left / len(pairs)))
    return fits
