"""Simulated kernel times: from the simulator's kernels or from a map, and which kernel of a timeline has which.

The simulator counts cycles of its core clock; a time is cycles over that clock, rounded to the nanosecond. Kernels are
matched by launch uid, the number of the launch in its run from 1. A timeline without uids gets them by launch order.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from cascade.kernels import last_attempt, overlapped
from cascade.timeline.kernel_names import names_agree
from cascade.timeline.model import Count, Kernel, Model, NsLength, RealTimeline, TimelineError, kernel_label

OVERLAPPED = "kernels_with_times_of_overlapped_ones"
"""Note that counts the kernels of a timeline whose simulated time is not that of one kernel alone."""
ADVICE = (
    "the log has to begin with the timeline's first launch; if it is of some steps only, import a timeline of these alone "
    "(cascade timeline import --step-range REGEX --renumber), or give times by name with --kernels: docs/step-timing.md, How kernels are "
    "matched"
)

Shape = tuple[str, tuple[int, int, int] | None, tuple[int, int, int] | None]


class MapRow(Model):
    """One row of a `--kernels` file."""

    name: Annotated[str, Field(min_length=1)]
    launch_uid: Count | None = None
    ns: NsLength


class SimulatorKernel(Model):
    """A kernel as the log parser and `GET /api/sims/{id}/kernels` give it, without the statistics."""

    name: str | None
    launch_uid: int | None
    finished: bool
    sim_cycles: int | float | None
    sim_insns: int | float | None = None
    tot_sim_cycles: int | float | None = None


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Simulated times in ns. What `by_uid` and `by_name` both know, `by_uid` decides.

    `stand_in` says whether a launch's time may stand for other launches of the same name and shape: for a simulator's
    kernels it may, while a map says itself what each row stands for. `overlapped` are the uids whose time is not their
    own: their kernel ran together with another.
    """

    source: str
    by_uid: dict[int, tuple[str, int]]
    by_name: dict[str, int]
    stand_in: bool
    core_clock_mhz: float | None = None
    notes: Counter[str] = field(default_factory=Counter)
    overlapped: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class StepKernelTimes:
    """Of one step: the simulated ns of each kernel of its list, None where there is none, and who has it by stand-in."""

    ns: list[int | None]
    via: list[bool]


def cycles_to_ns(cycles: float, clock_mhz: float) -> int:
    """Core cycles as ns at `clock_mhz`, to the nearest integer, ties to even, without rounding in between."""
    # str() of a float is the decimal somebody wrote: 1132.1 MHz, not its nearest double.
    return round(Fraction(str(cycles)) * 1000 / Fraction(str(clock_mhz)))


def from_simulator(kernels: Iterable[SimulatorKernel], source: str, clock_mhz: float) -> KernelTimes:
    """Times of the kernels a simulator finished, given in log order.

    `source` is the file or sim, for errors; `clock_mhz` is the core clock of the simulated GPU. Only the last attempt of
    a simulator that was started again counts (`cascade.kernels.attempts`). Left out and counted besides: kernels that
    did not finish, whose cycles, name or uid the log does not say, and the empty blocks that a simulator prints when two
    kernels end in one cycle. Of a uid that comes twice the later one counts. When no kernel has a uid, log order stands
    in.
    """
    every = list(kernels)
    last = last_attempt(every)
    notes: Counter[str] = Counter({"simulated_kernels_of_earlier_attempts": len(every) - len(last)})
    rows: list[tuple[int | None, str, int, bool]] = []
    for kernel, together in zip(last, overlapped(last), strict=True):
        if not kernel.finished:
            notes["unfinished_simulated_kernels"] += 1
        elif kernel.sim_cycles is None or kernel.sim_cycles < 0 or (kernel.sim_insns == 0 and kernel.sim_cycles <= 1):
            notes["simulated_kernels_without_cycles"] += 1
        elif kernel.name is None:
            notes["simulated_kernels_without_name"] += 1
        else:
            rows.append((kernel.launch_uid, kernel.name, cycles_to_ns(kernel.sim_cycles, clock_mhz), together))
    if all(uid is None for uid, *_ in rows):
        rows = [(position, name, ns, together) for position, (_, name, ns, together) in enumerate(rows, 1)]
    by_uid: dict[int, tuple[str, int]] = {}
    overlapping: set[int] = set()
    for uid, name, ns, together in rows:
        if uid is None:
            notes["simulated_kernels_without_launch_uid"] += 1
            continue
        notes["repeated_launch_uids"] += uid in by_uid
        by_uid[uid] = name, ns
        if together:
            overlapping.add(uid)
    notes["simulated_kernels_that_overlapped"] += len(overlapping)
    return KernelTimes(
        source,
        by_uid,
        {},
        stand_in=True,
        core_clock_mhz=clock_mhz,
        notes=notes,
        overlapped=frozenset(overlapping),
    )


def from_map(data: bytes, source: str) -> KernelTimes:
    """Times of a `--kernels` file: a JSON list of `{"name", "launch_uid"?, "ns"}`.

    A row with a uid is that launch's; one without stands for every launch of that name. Raises TimelineError for
    anything else and for two rows that stand for the same.
    """
    try:
        rows = TypeAdapter(list[MapRow]).validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = f"row {first['loc'][0]}: {'.'.join(map(str, first['loc'][1:]))}: " if len(first["loc"]) > 1 else ""
        raise TimelineError(f"{source}: {where}{' '.join(first['msg'].split())}") from error
    by_uid: dict[int, tuple[str, int]] = {}
    by_name: dict[str, int] = {}
    for position, row in enumerate(rows):
        if row.launch_uid is None:
            if row.name in by_name:
                raise TimelineError(f"{source}: row {position}: {row.name!r} is there twice without a launch_uid")
            by_name[row.name] = row.ns
        else:
            if row.launch_uid in by_uid:
                raise TimelineError(f"{source}: row {position}: launch_uid {row.launch_uid} is there twice")
            by_uid[row.launch_uid] = row.name, row.ns
    return KernelTimes(source, by_uid, by_name, stand_in=False)


def assign(timeline: RealTimeline, times: KernelTimes) -> tuple[list[StepKernelTimes], Counter[str]]:
    """The simulated times of a timeline's kernels, step by step in the order of the file, and what was counted.

    Raises TimelineError when a launch has another name in the timeline than where it was simulated, or when a launch
    uid comes twice in a repeat.
    """
    notes = Counter(times.notes)
    uids = launch_uids(timeline)
    used_uids: set[int] = set()
    used_names: set[str] = set()
    agreed: dict[tuple[str, str], bool] = {}
    simulated: dict[Shape, list[int]] = {}
    shared: set[Shape] = set()
    steps: list[StepKernelTimes] = []
    for step, step_uids in zip(timeline.steps, uids, strict=True):
        found: list[int | None] = []
        for position, (kernel, uid) in enumerate(zip(step.kernels, step_uids, strict=True)):
            row = None if uid is None else times.by_uid.get(uid)
            if uid is None or row is None:
                ns = times.by_name.get(kernel.name)
                if ns is not None:
                    used_names.add(kernel.name)
                found.append(ns)
                continue
            name, ns = row
            used_uids.add(uid)
            if name != kernel.name:
                pair = name, kernel.name
                if pair not in agreed:
                    agreed[pair] = names_agree(name, kernel.name)
                if not agreed[pair]:
                    raise TimelineError(
                        f"{times.source}: launch {uid} is {name!r}, but in the timeline it is {step.label}, "
                        f"{kernel_label(position, kernel.name)}; {ADVICE}"
                    )
                # One is mangled and the other not. Their arguments may well agree: nobody has compared them.
                notes["names_compared_without_their_arguments"] += name.strip() != kernel.name.strip()
            found.append(ns)
            simulated.setdefault(_shape(kernel), []).append(ns)
            if uid in times.overlapped:
                notes[OVERLAPPED] += 1
                shared.add(_shape(kernel))
        steps.append(StepKernelTimes(found, [False] * len(found)))
    notes["kernels_without_launch_uid"] += sum(uid is None for step_uids in uids for uid in step_uids)
    notes["unused_simulated_kernels"] += len(times.by_uid) - len(used_uids)
    notes["unused_map_names"] += len(times.by_name) - len(used_names)
    if times.stand_in:
        _let_stand_in(timeline, steps, simulated, shared, notes)
    return steps, notes


def launch_uids(timeline: RealTimeline) -> list[list[int | None]]:
    """The launch uid of each kernel, step by step: its own, or when no kernel of the timeline has one, its position
    from 1 in the run's launch order.

    Launch order is by repeat, then by launch time when every kernel has one, else by start. Raises TimelineError when
    a uid comes twice in one repeat.
    """
    own = [[kernel.launch_uid for kernel in step.kernels] for step in timeline.steps]
    if any(uid is not None for uids in own for uid in uids):
        _check_unique(timeline)
        return own
    launched = all(kernel.launch_ns is not None for step in timeline.steps for kernel in step.kernels)
    places: list[tuple[int, int, int, int, int]] = []
    for s, step in enumerate(timeline.steps):
        for k, kernel in enumerate(step.kernels):
            first = kernel.launch_ns if launched and kernel.launch_ns is not None else kernel.start_ns
            places.append((step.repeat, first, kernel.start_ns, s, k))
    for uid, (_, _, _, s, k) in enumerate(sorted(places), 1):
        own[s][k] = uid
    return own


def _check_unique(timeline: RealTimeline) -> None:
    seen: set[tuple[int, int]] = set()
    for step in timeline.steps:
        for position, kernel in enumerate(step.kernels):
            if kernel.launch_uid is None:
                continue
            if (step.repeat, kernel.launch_uid) in seen:
                raise TimelineError(
                    f"{step.label}, {kernel_label(position, kernel.name)}: launch_uid {kernel.launch_uid} "
                    f"comes twice in repeat {step.repeat}"
                )
            seen.add((step.repeat, kernel.launch_uid))


def _shape(kernel: Kernel) -> Shape:
    return kernel.name, kernel.grid, kernel.block


def _let_stand_in(
    timeline: RealTimeline,
    steps: list[StepKernelTimes],
    simulated: dict[Shape, list[int]],
    shared: set[Shape],
    notes: Counter[str],
) -> None:
    """Give kernels without a time the mean of those simulated with the same name and launch shape.

    Of the shapes in `shared` a kernel overlapped others in the simulator.
    """
    mean = {shape: round(Fraction(sum(ns), len(ns))) for shape, ns in simulated.items()}
    for step, times in zip(timeline.steps, steps, strict=True):
        for position, kernel in enumerate(step.kernels):
            if times.ns[position] is None and (shape := _shape(kernel)) in mean:
                times.ns[position] = mean[shape]
                times.via[position] = True
                # Two launches of one name may do different work; without a shape nobody can tell.
                notes["stand_ins_without_known_shape"] += kernel.grid is None
                notes[OVERLAPPED] += shape in shared
