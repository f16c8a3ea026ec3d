"""The host model: what must hold for any step, and the formula against another computation of it."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.timeline.host_model import (
    TAU_NS,
    MeasuredStep,
    busy_ns,
    fit_alpha,
    measure,
    play,
    scaled,
    union,
    wall_from_totals,
)
from cascade.timeline.model import Kernel, Step
from tests.timeline.strategies import factors, hundreds, steps, thousand


def durations(step: MeasuredStep) -> list[int]:
    return [kernel.end - kernel.start for kernel in step.kernels]


def step_of(
    *kernels: tuple[int, int], wall: int, launches: tuple[int, ...] = (), streams: tuple[int, ...] = ()
) -> Step:
    """A step from 0 to `wall` with kernels (start, end), launches and streams given in the same order."""
    made = [
        Kernel(
            name=f"k{position}",
            start_ns=start,
            end_ns=end,
            launch_ns=launches[position] if launches else None,
            stream=streams[position] if streams else 0,
        )
        for position, (start, end) in enumerate(kernels)
    ]
    return Step(repeat=0, index=0, kind="decode", start_ns=0, end_ns=wall, kernels=made)


@thousand
@given(steps())
def test_same_durations_give_the_measured_wall(step: Step) -> None:
    measured = measure(step)
    played = play(measured, durations(measured))
    assert played.wall == step.wall_ns
    assert played.busy == busy_ns(step) == measured.busy
    assert played.starts == [kernel.start for kernel in measured.kernels]
    assert played.ends == [kernel.end for kernel in measured.kernels]


@thousand
@given(steps(), st.data())
def test_wall_does_not_fall_when_a_duration_grows(step: Step, data: st.DataObject) -> None:
    measured = measure(step)
    alpha = data.draw(st.sampled_from([0.0, 0.5, 1.0, 1.3]))
    less = [round(ns * data.draw(factors)) for ns in durations(measured)]
    more = [ns + data.draw(st.sampled_from([0, 1, 700, 90_000])) for ns in less]
    before, after = play(measured, less, alpha), play(measured, more, alpha)
    assert after.wall >= before.wall
    assert all(late >= early for late, early in zip(after.ends, before.ends, strict=True))


@thousand
@given(steps(), st.data())
def test_slower_kernels_stay_between_wall_and_busy_plus_gaps(step: Step, data: st.DataObject) -> None:
    measured = measure(step)
    slower = [ns + data.draw(st.sampled_from([0, 0, 1, 1_500, 40_000, ns])) for ns in durations(measured)]
    played = play(measured, slower)
    assert step.wall_ns <= played.wall <= played.busy + step.wall_ns - busy_ns(step)


@thousand
@given(steps(), st.data())
def test_faster_kernels_stay_between_busy_and_wall(step: Step, data: st.DataObject) -> None:
    measured = measure(step)
    faster = [ns - data.draw(st.integers(0, ns)) for ns in durations(measured)]
    played = play(measured, faster)
    assert played.busy <= played.wall <= step.wall_ns


@hundreds
@given(steps(), st.data())
def test_gaps_do_not_grow_with_busy_time(step: Step, data: st.DataObject) -> None:
    measured = measure(step)
    slower = [ns + data.draw(st.integers(0, 9_000)) for ns in durations(measured)]
    played = play(measured, slower)
    assert played.wall - played.busy <= step.wall_ns - busy_ns(step)


@hundreds
@given(steps(), st.data())
def test_each_stream_keeps_the_measured_order(step: Step, data: st.DataObject) -> None:
    measured = measure(step)
    played = play(measured, [round(ns * data.draw(factors)) for ns in durations(measured)])
    last: dict[object, int] = {}
    for position, k in enumerate(measured.order):
        stream = step.kernels[k].stream
        assert played.starts[position] >= last.get(stream, 0)
        last[stream] = played.starts[position]


@hundreds
@given(steps(most_streams=1, shuffled=False), st.data())
def test_one_stream_is_the_published_formula(step: Step, data: st.DataObject) -> None:
    """E'_k as a running maximum in NumPy, for kernels that do not overlap: no recursion in common with the code."""
    kernels = step.kernels
    if not kernels or any(b.start_ns < a.end_ns for a, b in itertools.pairwise(kernels)):
        return
    alpha = data.draw(st.sampled_from([1.0, 0.5, 1.25]))
    start = np.array([k.start_ns for k in kernels]) - step.start_ns
    end = np.array([k.end_ns for k in kernels]) - step.start_ns
    new = np.array([round(ns * data.draw(factors)) for ns in (end - start).tolist()])
    gap = start - np.concatenate(([0], end[:-1]))
    launch = np.array(
        [np.nan if k.launch_ns is None else min(k.launch_ns, k.start_ns) - step.start_ns for k in kernels]
    )
    least = np.nanmin(start - launch) if not np.isnan(launch).all() else 0.0
    host = np.where(gap > TAU_NS, start, np.nan_to_num(launch + least, nan=0.0))
    delay = np.minimum(gap, TAU_NS)
    # E_k = d_k + max(alpha h_k, E_{k-1} + delay_k): relative to the running sum of d and delay it is a maximum so far.
    ahead = np.cumsum(delay + new)
    released = np.maximum(np.round(alpha * host), 0)
    ends = ahead + np.maximum(np.maximum.accumulate(released - (ahead - new)), 0)
    expected = ends[-1] + round(alpha * (step.wall_ns - int(end[-1])))
    assert play(measure(step), new.tolist(), alpha).wall == expected


def test_worked_by_hand() -> None:
    # k1 is back to back (gap 1 us), k2 waited for the host (gap 5 us).
    step = step_of((3_000, 13_000), (14_000, 24_000), (29_000, 39_000), wall=42_000)
    # Twice as fast: 3 + 5, 9 to 14, then the host is late at 29, 34, and 3 at the end.
    assert play(measure(step), [5_000, 5_000, 5_000]).wall == 37_000
    # Twice as slow: 3 + 20, 24 to 44, then tau instead of the host, 46 to 66, and 3.
    assert play(measure(step), [20_000, 20_000, 20_000]).wall == 69_000


def test_launch_times_say_how_early_a_kernel_may_start() -> None:
    step = step_of((4_000, 14_000), (15_000, 25_000), wall=25_000, launches=(0, 8_000))
    # Fast kernels: without launches only the back-to-back delay counts, with them the host's 8 us plus 4 of latency.
    assert play(measure(step), [1_000, 1_000]).wall == 13_000
    without = step_of((4_000, 14_000), (15_000, 25_000), wall=25_000)
    assert play(measure(without), [1_000, 1_000]).wall == 7_000


def test_a_chain_over_two_streams_stays_a_chain() -> None:
    step = step_of((0, 10_000), (11_000, 21_000), (22_000, 32_000), wall=32_000, streams=(1, 2, 1))
    assert play(measure(step), [20_000] * 3).wall == 62_000
    assert play(measure(step), [5_000] * 3).wall == 17_000


def test_concurrent_streams_stay_concurrent() -> None:
    step = step_of((0, 10_000), (0, 10_000), (11_000, 21_000), (11_000, 21_000), wall=21_000, streams=(1, 2, 1, 2))
    assert play(measure(step), [20_000] * 4).wall == 41_000
    assert play(measure(step), [5_000] * 4).wall == 11_000


@pytest.mark.parametrize(("alpha", "expected"), [(1.0, 1_001), (0.5, 500), (0.0, 0), (2.0, 2_002)])
def test_an_empty_step_takes_alpha_times_its_wall(alpha: float, expected: int) -> None:
    assert play(measure(step_of(wall=1_001)), [], alpha).wall == expected


def test_alpha_one_is_exact_beyond_what_a_double_holds() -> None:
    assert scaled(1.0, 2**62 + 1) == 2**62 + 1


def test_totals_alone() -> None:
    assert wall_from_totals(700, 300) == 1_000
    assert wall_from_totals(700, 300, 0.5) == 850


@hundreds
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60))))
def test_union_counts_each_moment_once(pairs: list[tuple[int, int]]) -> None:
    intervals = [(start, start + length) for start, length in pairs]
    covered = np.zeros(400, dtype=bool)
    for start, end in intervals:
        covered[start:end] = True
    assert union(intervals) == covered.sum()


def timed_twice(*gaps: tuple[int, int]) -> list[Step]:
    """Steps with 1,000 ns of GPU time and host gaps (with the profiler, without)."""
    return [
        step_of((0, 1_000), wall=1_000 + traced).model_copy(
            update={"index": i, "untraced_wall_ns": None if untraced is None else 1_000 + untraced}
        )
        for i, (traced, untraced) in enumerate(gaps)
    ]


def test_alpha_is_the_least_squares_through_the_origin() -> None:
    pairs = [(4_000, 1_900), (5_000, 2_700), (9_000, 4_400)]
    fit = fit_alpha(timed_twice(*pairs))["decode"]
    x, y = np.array(pairs, dtype=float).T
    (expected,), (left,), _, _ = np.linalg.lstsq(x[:, None], y, rcond=None)
    assert fit.alpha == pytest.approx(expected, rel=1e-12)
    assert fit.rms_residual_ns == pytest.approx(np.sqrt(left / 3), rel=1e-9)
    assert fit.steps == 3


def test_alpha_is_per_kind_and_only_of_steps_timed_twice() -> None:
    decode = timed_twice((4_000, 2_000))
    prefill = [step.model_copy(update={"kind": "prefill"}) for step in timed_twice((4_000, 4_400))]
    untimed = [step_of((0, 10), wall=50)]
    fits = fit_alpha(decode + prefill + untimed)
    assert {kind: fit.alpha for kind, fit in fits.items()} == {"prefill": 1.1, "decode": 0.5}
    assert list(fits) == ["prefill", "decode"]


def test_no_fit_without_host_time_and_none_below_zero() -> None:
    assert fit_alpha(timed_twice((0, 0))) == {}
    assert fit_alpha(timed_twice((4_000, -900)))["decode"].alpha == 0.0
