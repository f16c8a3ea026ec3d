"""`compare`: how far a simulated timeline is from the real one."""

from collections.abc import Iterable, Sequence
from math import fsum
from typing import Any

import numpy as np

from cascade.timeline.host_model import busy_ns
from cascade.timeline.model import (
    Compare,
    CompareRequest,
    CompareStep,
    CompareSummary,
    CoverageSummary,
    ErrorStats,
    KindErrors,
    Pair,
    RealTimeline,
    RequestErrors,
    SimulatedRequest,
    SimulatedTimeline,
    Step,
    StepCoverage,
    StepId,
    TimelineError,
    Unmatched,
    by_kind,
)


def compare(simulated: SimulatedTimeline, real: RealTimeline) -> Compare:
    """Errors of the simulated timeline, step by step and in sum. Pure: same arguments, same answer.

    Steps are matched by (repeat, kind, index), requests by repeat; what has no partner is counted and listed. An error
    is simulated minus real, in ns. Covered GPU time is that of the kernels which have a simulated time, against the
    measured time of the same kernels as the simulated timeline recorded it.

    Raises:
        TimelineError: the simulated timeline has a step twice, or no coverage for one.
    """
    real_steps = {step.key: step for step in real.steps}
    coverage = {row.key: row for row in simulated.summary.simulation.coverage.steps}
    simulated_keys = {step.key for step in simulated.steps}
    if len(simulated_keys) < len(simulated.steps):
        raise TimelineError("the simulated timeline has a step twice")
    steps: list[CompareStep] = []
    covered: list[StepCoverage] = []
    for step in simulated.steps:
        if step.key not in real_steps:
            continue
        if step.key not in coverage:
            raise TimelineError(f"the simulated timeline has no coverage of {step.label}")
        covered.append(coverage[step.key])
        steps.append(_compare_step(step.wall_ns, step.gpu_busy_ns, real_steps[step.key], coverage[step.key]))
    requests = _compare_requests(simulated, real)
    summary: dict[str, Any] = {
        "wall_ns": error_stats(step.wall_ns for step in steps),
        "gpu_busy_ns": error_stats(step.gpu_busy_ns for step in steps),
    }
    # Without any step the answer is exactly the API reference's empty object, so nothing is added to it.
    if simulated.steps or real.steps:
        summary["covered_gpu_ns"] = error_stats(step.covered_gpu_ns for step in steps)
        untraced = [step.untraced_wall_ns for step in steps if step.untraced_wall_ns is not None]
        if untraced:
            summary["untraced_wall_ns"] = error_stats(untraced)
        summary["per_kind"] = {
            kind: _kind_errors([step for step in steps if step.kind == kind])
            for kind in by_kind(step.kind for step in steps)
        }
        summary["requests"] = RequestErrors(
            wall_ns=error_stats(request.wall_ns for request in requests),
            ttft_ns=error_stats(request.ttft_ns for request in requests),
            tpot_ns=error_stats(request.tpot_ns for request in requests if request.tpot_ns is not None),
        )
        summary["coverage"] = _coverage_of(covered)
        summary["unmatched"] = _unmatched(simulated, real)
    return Compare(steps=steps, requests=requests, summary=CompareSummary(**summary))


def error_stats(pairs: Iterable[Pair]) -> ErrorStats:
    """Statistics of the errors of `pairs`; percentiles by linear interpolation.

    A pair whose real is 0 has no percentage: it is left out of the four `_pct` and counted in `real_zero`. All are null
    at count 0.
    """
    rows = list(pairs)
    if not rows:
        return ErrorStats(
            count=0,
            mean_error=None,
            mean_abs_error=None,
            p50_abs_error=None,
            p95_abs_error=None,
            mean_error_pct=None,
            mean_abs_error_pct=None,
            p50_abs_error_pct=None,
            p95_abs_error_pct=None,
        )
    errors = [row.error for row in rows]
    percents = [row.error_pct for row in rows if row.error_pct is not None]
    real = sum(row.real for row in rows)
    p50, p95 = _percentiles(errors)
    p50_pct, p95_pct = _percentiles(percents)
    return ErrorStats(
        count=len(rows),
        mean_error=sum(errors) / len(rows),
        mean_abs_error=sum(map(abs, errors)) / len(rows),
        p50_abs_error=p50,
        p95_abs_error=p95,
        mean_error_pct=fsum(percents) / len(percents) if percents else None,
        mean_abs_error_pct=fsum(map(abs, percents)) / len(percents) if percents else None,
        p50_abs_error_pct=p50_pct,
        p95_abs_error_pct=p95_pct,
        aggregate_abs_error_pct=100 * sum(map(abs, errors)) / real if real else None,
        real_zero=len(rows) - len(percents),
    )


def _percentiles(errors: Sequence[float]) -> tuple[float | None, float | None]:
    """Median and 95th percentile of the absolute errors."""
    if not errors:
        return None, None
    p50, p95 = np.percentile(np.abs(np.asarray(errors, dtype=np.float64)), [50, 95])
    return float(p50), float(p95)


def _pair(simulated: float, real: float) -> Pair:
    error = simulated - real
    return Pair(simulated=simulated, real=real, error=error, error_pct=100 * error / real if real else None)


def _compare_step(wall_ns: int, gpu_busy_ns: int, real: Step, coverage: StepCoverage) -> CompareStep:
    pairs = {
        "wall_ns": _pair(wall_ns, real.wall_ns),
        "gpu_busy_ns": _pair(gpu_busy_ns, busy_ns(real)),
        "covered_gpu_ns": _pair(coverage.covered_simulated_gpu_ns, coverage.covered_measured_gpu_ns),
    }
    if real.untraced_wall_ns is not None:
        pairs["untraced_wall_ns"] = _pair(wall_ns, real.untraced_wall_ns)
    return CompareStep(
        repeat=real.repeat,
        index=real.index,
        kind=real.kind,
        gpu_time_fraction=coverage.gpu_time_fraction,
        **pairs,
    )


def _compare_requests(simulated: SimulatedTimeline, real: RealTimeline) -> list[CompareRequest]:
    requests = {request.repeat: request for request in simulated.requests}
    rows = []
    for request in real.requests:
        partner = requests.get(request.repeat)
        if partner is not None:
            rows.append(_compare_request(partner, real, request.end_ns - request.arrival_ns, request.arrival_ns))
    return rows


def _compare_request(
    simulated: SimulatedRequest, real: RealTimeline, measured_wall: int, arrival: int
) -> CompareRequest:
    """Both sides composed alike, of queue and walls, so that the error is the simulation's and not the composition's."""
    steps = [step for step in real.steps if step.repeat == simulated.repeat]
    queue = min(step.start_ns for step in steps) - arrival
    prefill = sum(step.wall_ns for step in steps if step.kind == "prefill")
    decode = [step.wall_ns for step in steps if step.kind == "decode"]
    wall = queue + prefill + sum(decode)
    tpot = None
    if simulated.tpot_ns is not None and decode:
        tpot = _pair(simulated.tpot_ns, sum(decode) / len(decode))
    return CompareRequest(
        repeat=simulated.repeat,
        wall_ns=_pair(simulated.wall_ns, wall),
        ttft_ns=_pair(simulated.ttft_ns, queue + prefill),
        tpot_ns=tpot,
        measured_wall_ns=measured_wall,
        residual_ns=measured_wall - wall,
    )


def _kind_errors(steps: Sequence[CompareStep]) -> KindErrors:
    return KindErrors(
        wall_ns=error_stats(step.wall_ns for step in steps),
        gpu_busy_ns=error_stats(step.gpu_busy_ns for step in steps),
        covered_gpu_ns=error_stats(step.covered_gpu_ns for step in steps),
    )


def _coverage_of(rows: Sequence[StepCoverage]) -> CoverageSummary:
    kernels = sum(row.kernels for row in rows)
    measured = sum(row.measured_gpu_ns for row in rows)
    return CoverageSummary(
        kernel_fraction=sum(row.simulated_kernels for row in rows) / kernels if kernels else 0,
        gpu_time_fraction=sum(row.covered_measured_gpu_ns for row in rows) / measured if measured else 0,
    )


def _unmatched(simulated: SimulatedTimeline, real: RealTimeline) -> Unmatched:
    ours, theirs = {step.key for step in simulated.steps}, {step.key for step in real.steps}
    only_simulated = [_step_id(step) for step in simulated.steps if step.key not in theirs]
    only_real = [_step_id(step) for step in real.steps if step.key not in ours]
    our_requests, their_requests = ({request.repeat for request in side.requests} for side in (simulated, real))
    return Unmatched(
        simulated=len(only_simulated),
        real=len(only_real),
        simulated_steps=only_simulated,
        real_steps=only_real,
        simulated_requests=sorted(our_requests - their_requests),
        real_requests=sorted(their_requests - our_requests),
    )


def _step_id(step: StepId) -> StepId:
    return StepId(repeat=step.repeat, index=step.index, kind=step.kind)
