"""`simulate`: a measured timeline with simulated kernel times becomes a simulated timeline."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from cascade.timeline.host_model import MeasuredStep, PlayedStep, fit_alpha, measure, play, start_order
from cascade.timeline.kernel_times import KernelTimes, StepKernelTimes, assign
from cascade.timeline.model import (
    Kind,
    KindTimes,
    RealTimeline,
    Request,
    RequestTimes,
    SimulatedMeta,
    SimulatedRequest,
    SimulatedStep,
    SimulatedSummary,
    SimulatedTimeline,
    Simulation,
    Spread,
    Step,
    StepCoverage,
    TimelineCoverage,
    by_kind,
)


def simulate(timeline: RealTimeline, times: KernelTimes) -> SimulatedTimeline:
    """The timeline as it would be if its kernels took the simulated times. Pure: same arguments, same answer.

    Args:
        timeline: what was measured; steps and kernels in any order.
        times: simulated kernel times in ns. A kernel without one keeps its measured time and counts as unmodeled.

    Raises:
        TimelineError: a launch has another name in the timeline than where it was simulated.
    """
    kernel_times, notes = assign(timeline, times)
    notes += _count_oddities(timeline)
    fits = fit_alpha(timeline.steps)
    measured = [measure(step) for step in timeline.steps]
    played: list[PlayedStep] = []
    for step, before, found in zip(timeline.steps, measured, kernel_times, strict=True):
        fit = fits.get(step.kind)
        played.append(play(before, _durations(step, before, found), 1.0 if fit is None else fit.alpha))
    starts = _simulated_starts(timeline.steps, played)
    steps = [
        _simulated_step(step, before, after, start)
        for step, before, after, start in zip(timeline.steps, measured, played, starts, strict=True)
    ]
    simulation: dict[str, Any] = {
        "host_model": "scaled-gaps",
        "host_fit": fits,
        "coverage": _coverage(timeline.steps, kernel_times),
        "request_assumption": Simulation.model_fields["request_assumption"].default,
    }
    meta: dict[str, Any] = {"run_name": timeline.meta.run_name}
    # Without steps the answer is exactly the API reference's empty object, so nothing is added to it.
    if timeline.steps:
        if timeline.meta.gpu is not None:
            meta["gpu"] = timeline.meta.gpu
        if times.core_clock_mhz is not None:
            simulation["core_clock_mhz"] = times.core_clock_mhz
        simulation["notes"] = {name: count for name, count in sorted(notes.items()) if count}
    return SimulatedTimeline(
        meta=SimulatedMeta(**meta),
        steps=steps,
        requests=[_simulated_request(request, timeline.steps, steps) for request in timeline.requests],
        summary=SimulatedSummary(
            simulation=Simulation(**simulation),
            per_kind={kind: _kind_times(steps, kind) for kind in by_kind(step.kind for step in steps)},
        ),
    )


def spread(values: Sequence[int]) -> Spread:
    """Total, mean and percentiles (by linear interpolation) of at least one value, in the values' unit."""
    p50, p95 = np.percentile(np.asarray(values, dtype=np.float64), [50, 95])
    return Spread(total=sum(values), mean=sum(values) / len(values), p50=float(p50), p95=float(p95))


def _durations(step: Step, measured: MeasuredStep, times: StepKernelTimes) -> list[int]:
    """Duration in ns of each kernel in start order: simulated where there is a time, else measured."""
    durations = []
    for position in measured.order:
        ns, kernel = times.ns[position], step.kernels[position]
        durations.append(kernel.end_ns - kernel.start_ns if ns is None else ns)
    return durations


def _simulated_starts(steps: Sequence[Step], played: Sequence[PlayedStep]) -> list[int]:
    """Start of each step in ns: a repeat starts when measured, and the time between its steps stays as measured."""
    starts = [0] * len(steps)
    end_of: dict[int, tuple[int, int]] = {}  # repeat -> measured and simulated end of its latest step
    for position in sorted(range(len(steps)), key=lambda s: (steps[s].repeat, steps[s].start_ns, steps[s].end_ns)):
        step = steps[position]
        measured_end, simulated_end = end_of.get(step.repeat, (step.start_ns, step.start_ns))
        starts[position] = simulated_end + step.start_ns - measured_end
        end_of[step.repeat] = step.end_ns, starts[position] + played[position].wall
    return starts


def _simulated_step(step: Step, before: MeasuredStep, after: PlayedStep, start: int) -> SimulatedStep:
    named: dict[str, Any] = {"name": step.name, "request": step.request}
    return SimulatedStep(
        repeat=step.repeat,
        index=step.index,
        kind=step.kind,
        **{field: value for field, value in named.items() if value is not None},
        start_ns=start,
        end_ns=start + after.wall,
        wall_ns=after.wall,
        gpu_busy_ns=after.busy,
        host_gap_ns=after.wall - after.busy,
        measured_wall_ns=before.wall,
        measured_gpu_busy_ns=before.busy,
    )


def _simulated_request(request: Request, steps: Sequence[Step], simulated: Sequence[SimulatedStep]) -> SimulatedRequest:
    """Times of a request: its measured queue, then the walls of the prefill and decode steps of its repeat."""
    mine = [position for position, step in enumerate(steps) if step.repeat == request.repeat]
    queue = min(steps[position].start_ns for position in mine) - request.arrival_ns
    prefill = [position for position in mine if steps[position].kind == "prefill"]
    decode = [position for position in mine if steps[position].kind == "decode"]
    measured = _request_times(queue, [steps[p].wall_ns for p in prefill], [steps[p].wall_ns for p in decode])
    times = _request_times(queue, [simulated[p].wall_ns for p in prefill], [simulated[p].wall_ns for p in decode])
    measured_wall = request.end_ns - request.arrival_ns
    return SimulatedRequest(
        repeat=request.repeat,
        wall_ns=times.wall_ns,
        ttft_ns=times.ttft_ns,
        tpot_ns=times.tpot_ns,
        queue_ns=queue,
        prefill_steps=len(prefill),
        decode_steps=len(decode),
        measured=measured,
        measured_wall_ns=measured_wall,
        measured_ttft_ns=None if request.first_token_ns is None else request.first_token_ns - request.arrival_ns,
        residual_ns=measured_wall - measured.wall_ns,
    )


def _request_times(queue: int, prefill: Sequence[int], decode: Sequence[int]) -> RequestTimes:
    return RequestTimes(
        wall_ns=queue + sum(prefill) + sum(decode),
        ttft_ns=queue + sum(prefill),
        tpot_ns=sum(decode) / len(decode) if decode else None,
    )


def _coverage(steps: Sequence[Step], times: Sequence[StepKernelTimes]) -> TimelineCoverage:
    usual = _usual_kernel_counts(steps)
    rows = []
    totals: Counter[str] = Counter()
    for step, found in zip(steps, times, strict=True):
        sums = _coverage_sums(step, found)
        totals.update(sums)
        rows.append(
            StepCoverage(
                repeat=step.repeat,
                index=step.index,
                kind=step.kind,
                **_with_fractions(sums),
                kernel_count_differs=len(step.kernels) != usual[step.kind],
            )
        )
    if not totals["kernels"]:
        # The API reference's empty coverage, where these three are 0.0. They are integers once they count something.
        zero: dict[str, Any] = dict.fromkeys(("measured_gpu_ns", "covered_measured_gpu_ns", "unmodeled_gpu_ns"), 0.0)
        return TimelineCoverage(
            kernels=0, simulated_kernels=0, kernel_fraction=0, gpu_time_fraction=0, **zero, steps=rows
        )
    return TimelineCoverage(**_with_fractions(totals), steps=rows)


def _coverage_sums(step: Step, times: StepKernelTimes) -> dict[str, int]:
    measured = covered_measured = covered_simulated = simulated = 0
    for kernel, ns in zip(step.kernels, times.ns, strict=True):
        duration = kernel.end_ns - kernel.start_ns
        measured += duration
        if ns is not None:
            simulated += 1
            covered_measured += duration
            covered_simulated += ns
    return {
        "kernels": len(step.kernels),
        "simulated_kernels": simulated,
        "via_kernels": sum(times.via),
        "measured_gpu_ns": measured,
        "covered_measured_gpu_ns": covered_measured,
        "covered_simulated_gpu_ns": covered_simulated,
    }


def _with_fractions(sums: dict[str, int]) -> dict[str, Any]:
    kernels, measured, covered = sums["kernels"], sums["measured_gpu_ns"], sums["covered_measured_gpu_ns"]
    return {
        **sums,
        "unmodeled_gpu_ns": measured - covered,
        "kernel_fraction": sums["simulated_kernels"] / kernels if kernels else 0,
        "gpu_time_fraction": covered / measured if measured else 0,
    }


def _usual_kernel_counts(steps: Sequence[Step]) -> dict[Kind, int | None]:
    """Per kind the single most common number of kernels in a step; None when several are equally common."""
    counts: dict[Kind, Counter[int]] = {}
    for step in steps:
        counts.setdefault(step.kind, Counter())[len(step.kernels)] += 1
    usual: dict[Kind, int | None] = {}
    for kind, found in counts.items():
        (most, times), *rest = found.most_common(2)
        usual[kind] = None if rest and rest[0][1] == times else most
    return usual


def _kind_times(steps: Sequence[SimulatedStep], kind: Kind) -> KindTimes:
    mine = [step for step in steps if step.kind == kind]
    walls, busy = spread([step.wall_ns for step in mine]), spread([step.gpu_busy_ns for step in mine])
    return KindTimes(
        steps=len(mine),
        wall_ns=walls,
        gpu_busy_ns=busy,
        host_gap_ns=walls.total - busy.total,
        gpu_busy_fraction=busy.total / walls.total if walls.total else 0.0,
    )


def _count_oddities(timeline: RealTimeline) -> Counter[str]:
    """What is unusual in a measured timeline and yet used as it is."""
    notes: Counter[str] = Counter()
    for step in timeline.steps:
        notes["steps_of_zero_duration"] += step.wall_ns == 0
        last_end: dict[int | str | None, int] = {}
        order = start_order(step.kernels)
        notes["kernels_out_of_order"] += sum(k < before for before, k in pairwise(order))
        for k in order:
            kernel = step.kernels[k]
            notes["kernels_of_zero_duration"] += kernel.end_ns == kernel.start_ns
            notes["launches_after_their_kernel"] += kernel.launch_ns is not None and kernel.launch_ns > kernel.start_ns
            end = last_end.get(kernel.stream)
            notes["kernels_overlapping_on_their_stream"] += end is not None and kernel.start_ns < end
            last_end[kernel.stream] = kernel.end_ns if end is None else max(end, kernel.end_ns)
    return notes
