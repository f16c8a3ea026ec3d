"""Real profiler traces: what is imported is what is in them, and simulating what was measured changes nothing."""

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cascade.timeline.host_model import union
from cascade.timeline.importing import import_trace
from cascade.timeline.model import RealTimeline
from tests.timeline.traces import KINETO, NSYS, with_times

pytestmark = pytest.mark.skipif(not KINETO, reason="the real traces are not beside this checkout")


def kernels_of(path: Path) -> list[tuple[str, float]]:
    """(name, duration in ns) of the kernels that ran, counted without any of the importer's code."""
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "SELECT value, end - start FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON demangledName = StringIds.id"
            )
            return [(name, float(ns)) for name, ns in rows]
    events: Any = json.loads(gzip.decompress(path.read_bytes()))
    events = events["traceEvents"] if isinstance(events, dict) else events
    return [(e["name"], e["dur"] * 1000) for e in events if e.get("cat", "").lower() == "kernel" and e["ts"] > 0]


@pytest.mark.parametrize("path", [*KINETO, *NSYS], ids=lambda path: path.stem[:24])
def test_totals_agree_with_an_independent_count(path: Path) -> None:
    real, _ = import_trace(path)
    wanted = kernels_of(path)
    found = [kernel for step in real.steps for kernel in step.kernels]
    assert sorted(kernel.name for kernel in found) == sorted(name for name, _ in wanted)
    # Each start and end is rounded to a nanosecond.
    assert abs(sum(k.end_ns - k.start_ns for k in found) - sum(ns for _, ns in wanted)) <= len(found)


@pytest.mark.parametrize("path", [*KINETO, *NSYS], ids=lambda path: path.stem[:24])
def test_what_was_measured_gives_no_error(path: Path) -> None:
    real, _ = import_trace(path)
    simulated, result = with_times(real, lambda kernel: kernel.end_ns - kernel.start_ns)
    for before, after in zip(real.steps, simulated.steps, strict=True):
        assert after.wall_ns == before.wall_ns
    for stats in (result.summary.wall_ns, result.summary.gpu_busy_ns):
        assert stats.count == len(real.steps)
        assert (stats.mean_error, stats.mean_abs_error, stats.p95_abs_error) == (0, 0, 0)
    coverage = simulated.summary.simulation.coverage
    assert coverage.kernels == coverage.simulated_kernels == sum(len(step.kernels) for step in real.steps)
    assert coverage.unmodeled_gpu_ns == 0


@pytest.mark.parametrize("path", [*KINETO, *NSYS], ids=lambda path: path.stem[:24])
def test_kernels_twice_as_slow_stay_within_the_bounds(path: Path) -> None:
    real, _ = import_trace(path)
    simulated, _ = with_times(real, lambda kernel: 2 * (kernel.end_ns - kernel.start_ns))
    for before, after in zip(real.steps, simulated.steps, strict=True):
        busy = union((kernel.start_ns, kernel.end_ns) for kernel in before.kernels)
        total = sum(kernel.end_ns - kernel.start_ns for kernel in before.kernels)
        assert before.wall_ns <= after.wall_ns <= 2 * total + (before.wall_ns - busy)


def test_the_same_trace_gives_the_same_bytes() -> None:
    from cascade.timeline.model import dump

    assert dump(import_trace(KINETO[0])[0]) == dump(import_trace(KINETO[0])[0])


def test_a_timeline_is_read_back_as_it_was_written() -> None:
    from cascade.timeline.model import dump

    real, _ = import_trace(KINETO[0])
    assert RealTimeline.model_validate_json(dump(real)) == real
