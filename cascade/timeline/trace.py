"""A profiler's trace, whatever wrote it, and how its kernels become the steps of a measured timeline.

A kernel belongs to the step in whose range the host launched it, since the GPU may run far behind the host; a kernel
without a known launch belongs to the step in which it ran. A step starts with its range and ends with it, or with its
last kernel when that is later; the next one then starts there. So steps never overlap, and when the host runs ahead
their walls are what the GPU took for each.
"""

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cascade.timeline.model import Kernel, Kind, RealMeta, RealTimeline, Size3, Step, TimelineError, kernel_label
from cascade.timeline.report import ImportReport, show_ns

Column = NDArray[np.int64]
Mask = NDArray[np.bool_]
Shape = tuple[Size3 | None, Size3 | None]
NO_TIME = -(2**63)  # where a kernel's launch is unknown

# On one clock a kernel starts after its launch, and some launch finds the GPU idle. Hosts and GPUs are synchronised to
# some ten microseconds, so these bounds only catch times that have nothing to do with each other.
CLOCK_EARLY_NS = 1_000_000
CLOCK_LATE_NS = 1_000_000_000

PROFILER_STEP = re.compile(r"ProfilerStep#\d+")
_KIND_WORDS: tuple[Kind, ...] = ("prefill", "decode", "mixed")


@dataclass(frozen=True, slots=True)
class Range:
    """A named stretch of host time, in ns, end excluded."""

    name: str
    start: int
    end: int


@dataclass(slots=True)
class Trace:
    """Kernels of a trace as columns of equal length, one row a kernel, and its ranges. Times in ns.

    `name`, `stream` and `shape` index `names`, `streams` and `shapes` (grid, block). `launch` is NO_TIME where unknown.
    """

    report: ImportReport
    name: Column
    start: Column
    end: Column
    launch: Column
    device: Column
    stream: Column
    shape: Column
    names: Sequence[str]
    streams: Sequence[int | str | None]
    shapes: Sequence[Shape]
    ranges: Sequence[Range]
    gpus: dict[int, str]
    clocks_mhz: dict[int, float]


class TraceBuilder:
    """Takes what a reader finds, a kernel at a time, in 56 bytes for each."""

    def __init__(self, report: ImportReport) -> None:
        self.report = report
        self.ranges: list[Range] = []
        self.gpus: dict[int, str] = {}
        self.clocks_mhz: dict[int, float] = {}
        self._name, self._start, self._end = array("q"), array("q"), array("q")
        self._device, self._stream, self._shape = array("q"), array("q"), array("q")
        self._names: dict[str, int] = {}
        self._streams: dict[int | str | None, int] = {}
        self._shapes: dict[Shape, int] = {}

    def add_kernel(self, name: str, start: int, end: int, device: int, stream: int | str | None, shape: Shape) -> None:
        """One kernel; times in ns, which fit 64 bits."""
        self._name.append(self._names.setdefault(name, len(self._names)))
        self._start.append(start)
        self._end.append(end)
        self._device.append(device)
        self._stream.append(self._streams.setdefault(stream, len(self._streams)))
        self._shape.append(self._shapes.setdefault(shape, len(self._shapes)))

    def trace(self, launch: Column) -> Trace:
        """What was taken, with the launch time of each kernel in the order they came."""
        return Trace(
            report=self.report,
            name=as_column(self._name),
            start=as_column(self._start),
            end=as_column(self._end),
            launch=launch,
            device=as_column(self._device),
            stream=as_column(self._stream),
            shape=as_column(self._shape),
            names=list(self._names),
            streams=list(self._streams),
            shapes=list(self._shapes),
            ranges=self.ranges,
            gpus=self.gpus,
            clocks_mhz=self.clocks_mhz,
        )


def as_column(values: "array[int]") -> Column:
    """A 64-bit array as a NumPy column, without copying it."""
    return np.frombuffer(values, dtype=np.int64) if len(values) else np.zeros(0, dtype=np.int64)


def timeline_of(
    trace: Trace,
    run_name: str,
    step_range: str | None,
    kind_of: Sequence[tuple[str, Kind]],
    device: int | None,
    renumber: bool = False,
) -> RealTimeline:
    """The measured timeline of one GPU of a trace; what had to be dropped, clamped or guessed is in `trace.report`.

    Args:
        trace: as a reader made it.
        run_name: for the timeline's meta.
        step_range: regular expression of the ranges that are steps. Without one, `ProfilerStep#` ranges; without
            those, the outermost ranges that launch a kernel; without any, the whole trace is one step.
        kind_of: (regular expression, kind) pairs tried in order on a step's name. Without a match a name that holds
            the word decides, else the kind is `other`.
        device: the GPU. Without one, that with the most kernels.
        renumber: launch uids count the launches of the steps alone, not those of the whole trace.

    Raises:
        TimelineError: no kernel, no such range, no such device, or host and GPU times on two clocks.
    """
    report = trace.report
    chosen = _choose_device(trace, device)
    mine = trace.device == chosen
    uid = _launch_uids(trace, mine)
    usable = mine & _usable(trace, mine)
    if not usable.any():
        raise TimelineError(f"{report.source}: no GPU kernel with a usable time; was the GPU profiled?")
    _check_clocks(trace, usable)
    rows = np.flatnonzero(usable)
    rows = rows[np.lexsort((trace.end[rows], trace.start[rows]))]
    ranges, outermost = _choose_ranges(trace, step_range)
    if ranges:
        step_of = _step_of(trace, rows, ranges)
        if outermost:
            ranges, step_of = _without_empty(report, ranges, step_of)
    else:
        report.add("guessed", "steps: no range at all, so the whole trace is one step")
        ranges, step_of = [_whole(trace, rows)], [0] * len(rows)
    if renumber:
        uid = _launch_uids(trace, _launched_in_steps(trace, mine, usable, rows, ranges, step_of))
    steps = _build_steps(trace, rows, uid, ranges, step_of, kind_of)
    report.steps = len(steps)
    report.kernels_kept = sum(len(step.kernels) for step in steps)
    report.gpu_ns = sum(kernel.end_ns - kernel.start_ns for step in steps for kernel in step.kernels)
    meta = RealMeta(run_name=run_name, gpu=trace.gpus.get(chosen), core_clock_mhz=trace.clocks_mhz.get(chosen))
    return RealTimeline(meta=meta, steps=steps, requests=[])


def _choose_device(trace: Trace, device: int | None) -> int:
    report = trace.report
    kernels_on = Counter(trace.device.tolist())
    if not kernels_on:
        raise TimelineError(f"{report.source}: no GPU kernel; was the GPU profiled?")
    if device is not None:
        if device not in kernels_on:
            raise TimelineError(f"{report.source}: no kernel on device {device}; devices: {sorted(kernels_on)}")
        chosen = device
    else:
        chosen = min(kernels_on, key=lambda d: (-kernels_on[d], d))
        if len(kernels_on) > 1:
            others = ", ".join(f"{d} ({kernels_on[d]:,} kernels)" for d in sorted(kernels_on) if d != chosen)
            report.add("guessed", "device: that with the most kernels", first=f"{chosen}, not {others}")
    others_rows = trace.device != chosen
    gpu_ns = int(np.maximum(trace.end - trace.start, 0)[others_rows].sum())
    report.add("dropped", "kernels of another device", int(others_rows.sum()), gpu_ns)
    return chosen


def _launch_uids(trace: Trace, mine: Mask) -> Column:
    """The launch's number in the run, from 1, by launch time (by start where unknown); 0 where neither is known.

    Counts every kernel of `mine`: of the device, also those no step has, as a simulator that was given the whole run does.
    """
    when = np.where(trace.launch != NO_TIME, trace.launch, trace.start)
    known = np.flatnonzero(mine & ((trace.launch != NO_TIME) | (trace.start != 0)))
    order = known[np.lexsort((trace.start[known], when[known]))]
    uid = np.zeros(len(trace.start), dtype=np.int64)
    uid[order] = np.arange(1, len(order) + 1)
    return uid


def _launched_in_steps(
    trace: Trace, mine: Mask, usable: Mask, rows: Column, ranges: Sequence[Range], step_of: Sequence[int]
) -> Mask:
    """The kernels of the steps, and those launched in them whose time was lost: a simulator runs these too."""
    starts = np.array([r.start for r in ranges], dtype=np.int64)
    ends = np.array([r.end for r in ranges], dtype=np.int64)
    place = np.searchsorted(starts, trace.launch, "right") - 1
    inside = (trace.launch != NO_TIME) & (place >= 0) & (trace.launch < ends[np.maximum(place, 0)])
    found: Mask = mine & ~usable & inside
    found[rows[np.array(step_of) >= 0]] = True
    return found


def _usable(trace: Trace, mine: Mask) -> Mask:
    """Which kernels have a time that can be used; the others of the device are reported as dropped."""
    at_zero = trace.start == 0  # what a profiler writes when it lost the kernel's time
    negative = trace.end < trace.start
    for what, bad in (
        ("kernels that start at 0", at_zero),
        ("kernels that end before they start", negative & ~at_zero),
    ):
        rows = np.flatnonzero(mine & bad)
        if len(rows):
            trace.report.add("dropped", what, len(rows), first=_show_kernel(trace, int(rows[0])))
    zero = np.flatnonzero(mine & ~at_zero & (trace.end == trace.start))
    if len(zero):
        trace.report.add("counted", "kernels of zero duration", len(zero), first=_show_kernel(trace, int(zero[0])))
    usable: Mask = ~at_zero & ~negative
    return usable


def _check_clocks(trace: Trace, usable: Mask) -> None:
    """Refuse times of two clocks; take a launch after its kernel's start, as small clock errors give, as at the start."""
    joined = np.flatnonzero(usable & (trace.launch != NO_TIME))
    unknown = int(usable.sum()) - len(joined)
    trace.report.add("guessed", "step of kernels without a known launch: where they ran", unknown)
    if not len(joined):
        return
    latency = trace.start[joined] - trace.launch[joined]
    median, least = int(np.median(latency)), int(latency.min())
    if median < -CLOCK_EARLY_NS or least > CLOCK_LATE_NS:
        worst = int(joined[int(latency.argmin())])
        raise TimelineError(
            f"{trace.report.source}: host and GPU times are on two clocks: kernels start {show_ns(median)} after their "
            f"launch in the median, {show_ns(least)} at least ({_show_kernel(trace, worst)})"
        )
    early = joined[latency < 0]
    if len(early):
        shown = f"{_show_kernel(trace, int(early[0]))}; up to {show_ns(-least)}"
        trace.report.add("clamped", "launches after their kernel's start, moved to it", len(early), first=shown)


def _choose_ranges(trace: Trace, step_range: str | None) -> tuple[list[Range], bool]:
    """The ranges that are steps, in order and apart, and whether they are the outermost ones for want of better."""
    report = trace.report
    outermost = False
    if step_range is not None:
        pattern = re.compile(step_range)
        found = [r for r in trace.ranges if pattern.search(r.name)]
        if not found:
            raise TimelineError(f"{report.source}: no range matches {step_range!r}; {_show_ranges(trace.ranges)}")
    else:
        found = [r for r in trace.ranges if PROFILER_STEP.fullmatch(r.name)]
        if not found and trace.ranges:
            found, outermost = list(trace.ranges), True
            report.add("guessed", "steps: no ProfilerStep# range, so the outermost ranges that launch a kernel")
    ordered = sorted(found, key=lambda r: (r.start, -r.end))
    apart: list[Range] = []
    for candidate in ordered:
        if apart and candidate.end <= apart[-1].end:
            what = "ranges inside another step's range"
            report.add("counted" if outermost else "dropped", what, first=f"{candidate.name!r} in {apart[-1].name!r}")
        elif apart and candidate.start < apart[-1].end:
            shown = f"{candidate.name!r} starts {show_ns(apart[-1].end - candidate.start)} early"
            report.add("clamped", "step ranges that begin before the one before ends, moved to its end", first=shown)
            apart.append(Range(candidate.name, apart[-1].end, candidate.end))
        else:
            apart.append(candidate)
    return apart, outermost


def _whole(trace: Trace, rows: Column) -> Range:
    """From the first launch or kernel start to the last kernel end of `rows`."""
    launches = trace.launch[rows]
    known = launches[launches != NO_TIME]
    start = min([int(trace.start[rows].min()), *([int(known.min())] if len(known) else [])])
    return Range("whole trace", start, int(trace.end[rows].max()))


def _step_of(trace: Trace, rows: Column, ranges: Sequence[Range]) -> list[int]:
    """The range each kernel of `rows` (by start) belongs to, -1 for none. Non-decreasing over the kernels that have one.

    A kernel that starts while kernels of an earlier step still run is given to that step: a timeline's steps are apart.
    """
    starts = np.array([r.start for r in ranges], dtype=np.int64)
    ends = np.array([r.end for r in ranges], dtype=np.int64)
    launch = trace.launch[rows]
    known = launch != NO_TIME
    when = np.where(known, launch, trace.start[rows])
    place = np.searchsorted(starts, when, "right") - 1
    inside = (place >= 0) & (when < ends[np.maximum(place, 0)])
    wanted = np.where(inside, place, -1)
    last_end = np.full(len(ranges), NO_TIME, dtype=np.int64)
    launched = known & inside
    np.maximum.at(last_end, place[launched], trace.end[rows][launched])
    done_at: list[int] = np.maximum.accumulate(last_end).tolist()
    report = trace.report
    chosen: list[int] = []
    current, running_until, begun = 0, NO_TIME, False
    for row, want, has_launch, start, end in zip(
        rows.tolist(),
        wanted.tolist(),
        known.tolist(),
        trace.start[rows].tolist(),
        trace.end[rows].tolist(),
        strict=True,
    ):
        until = max(done_at[current], running_until)
        if want < 0 and (has_launch or not begun or start >= until):
            what = "kernels launched outside any step" if has_launch else "kernels that ran outside any step"
            report.add("dropped", what, 1, end - start, _show_kernel(trace, row))
            chosen.append(-1)
            continue
        while current < want and start >= max(done_at[current], running_until):
            current += 1
        begun = True
        if has_launch and want != current:
            shown = f"{_show_kernel(trace, row)}, launched in {ranges[want].name!r}, ran in {ranges[current].name!r}"
            report.add("clamped", "kernels that ran while another step did, moved to it", 1, end - start, shown)
        running_until = max(running_until, end)
        chosen.append(current)
    return chosen


def _without_empty(
    report: ImportReport, ranges: Sequence[Range], step_of: Sequence[int]
) -> tuple[list[Range], list[int]]:
    """The ranges that have a kernel, and `step_of` in their numbers."""
    number = {old: new for new, old in enumerate(sorted(set(step_of) - {-1}))}
    empty = [position for position in range(len(ranges)) if position not in number]
    if empty:
        report.add("counted", "ranges without a kernel", len(empty), first=repr(ranges[empty[0]].name))
    return [ranges[old] for old in number], [number.get(old, -1) for old in step_of]


def _build_steps(
    trace: Trace,
    rows: Column,
    uid: Column,
    ranges: Sequence[Range],
    step_of: Sequence[int],
    kind_of: Sequence[tuple[str, Kind]],
) -> list[Step]:
    kernels: list[list[Kernel]] = [[] for _ in ranges]
    for row, step in zip(rows.tolist(), step_of, strict=True):
        if step >= 0:
            kernels[step].append(_kernel(trace, row, int(uid[row])))
    numbers: Counter[Kind] = Counter()
    patterns = [(re.compile(pattern), kind) for pattern, kind in kind_of]
    steps: list[Step] = []
    for r, own, (start, end) in zip(ranges, kernels, _bounds(trace.report, ranges, kernels), strict=True):
        kind = _kind(trace.report, r.name, patterns)
        steps.append(
            Step(repeat=0, index=numbers[kind], kind=kind, start_ns=start, end_ns=end, name=r.name, kernels=own)
        )
        numbers[kind] += 1
    return steps


def _bounds(
    report: ImportReport, ranges: Sequence[Range], kernels: Sequence[Sequence[Kernel]]
) -> list[tuple[int, int]]:
    """Start and end of each step in ns: its range, moved so far that its kernels are inside and the steps apart.

    `kernels` of a step are by start, and start no earlier than any kernel of a step before ends.
    """
    bounds: list[tuple[int, int]] = []
    # first_start[s]: when the first kernel of step s or a later one starts.
    first_start: list[float] = [float("inf")] * (len(ranges) + 1)
    for s in range(len(ranges) - 1, -1, -1):
        first_start[s] = kernels[s][0].start_ns if kernels[s] else first_start[s + 1]
    previous_end = NO_TIME
    for s, (r, own) in enumerate(zip(ranges, kernels, strict=True)):
        start = int(min(max(r.start, previous_end), first_start[s]))
        last_end = max((kernel.end_ns for kernel in own), default=start)
        end = int(max(last_end, min(r.end, first_start[s + 1])))
        for what, by in (
            ("step starts moved to the end of the step before", start - r.start),
            ("step starts moved to their first kernel's start", r.start - start),
            ("step ends moved to their last kernel's end", end - r.end),
            ("step ends moved to the next step's first kernel", r.end - end),
        ):
            if by > 0:
                report.add("clamped", what, first=f"{r.name!r} by {show_ns(by)}")
        bounds.append((start, end))
        previous_end = end
    return bounds


def _kernel(trace: Trace, row: int, uid: int) -> Kernel:
    start, launch = int(trace.start[row]), int(trace.launch[row])
    grid, block = trace.shapes[trace.shape[row]]
    return Kernel(
        name=trace.names[trace.name[row]],
        start_ns=start,
        end_ns=int(trace.end[row]),
        launch_uid=uid,
        launch_ns=None if launch == NO_TIME else min(launch, start),
        stream=trace.streams[trace.stream[row]],
        grid=grid,
        block=block,
    )


def _kind(report: ImportReport, name: str, patterns: Sequence[tuple[re.Pattern[str], Kind]]) -> Kind:
    for pattern, kind in patterns:
        if pattern.search(name):
            return kind
    words = [word for word in _KIND_WORDS if word in name.lower()]
    if not words:
        report.add("counted", "steps of kind other: no --kind-of matches their name", first=repr(name))
        return "other"
    kind = words[0] if len(words) == 1 else "mixed"
    report.add("guessed", f"kind {kind}: the step's name says so", first=repr(name))
    return kind


def _show_kernel(trace: Trace, row: int) -> str:
    return f"{kernel_label(row, trace.names[trace.name[row]])} at {int(trace.start[row])} ns"


def _show_ranges(ranges: Sequence[Range]) -> str:
    if not ranges:
        return "the trace has no ranges"
    names = list(dict.fromkeys(r.name for r in ranges))
    shown = ", ".join(repr(name[:60]) for name in names[:5])
    return f"it has {shown}" + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
