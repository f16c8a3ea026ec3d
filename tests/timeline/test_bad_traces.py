"""Traces as they should not be: each gives a counted entry in the report or one line that names the file."""

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cascade.timeline.importing import import_trace
from cascade.timeline.model import TimelineError

Event = dict[str, Any]


def kernel(number: int, ts: Any, dur: Any = 4.0) -> Event:
    args = {"correlation": number, "stream": 7, "device": 0}
    return {"ph": "X", "cat": "kernel", "name": f"k{number}", "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


def launch(number: int, ts: float) -> Event:
    args = {"correlation": number}
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": 1.0,
        "args": args,
    }


def step(number: int, ts: float, dur: float) -> Event:
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"ProfilerStep#{number}",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": dur,
    }


BASE = [step(0, 0, 100), launch(1, 5), kernel(1, 10), launch(2, 20), kernel(2, 30)]


def write(path: Path, events: list[Event]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@pytest.mark.parametrize(
    ("events", "action", "what", "kept"),
    [
        ([*BASE, launch(3, 40), kernel(3, 0)], "dropped", "kernels that start at 0", 2),
        ([*BASE, launch(3, 40), kernel(3, 50, -3)], "dropped", "kernels that end before they start", 2),
        ([*BASE, launch(3, 400), kernel(3, 410)], "dropped", "kernels launched outside any step", 2),
        (
            [step(0, 0, 100), launch(1, 12), kernel(1, 10)],
            "clamped",
            "launches after their kernel's start, moved to it",
            1,
        ),
        ([step(0, 0, 100), kernel(1, 10)], "guessed", "step of kernels without a known launch: where they ran", 1),
        (
            [step(0, 0, 100), step(1, 50, 100), launch(1, 5), kernel(1, 10), launch(2, 60), kernel(2, 70)],
            "clamped",
            "step ranges that begin before the one before ends, moved to its end",
            2,
        ),
        (
            [*BASE, launch(3, 40), kernel(3, 50, 0)],
            "counted",
            "steps of kind other: no --kind-of matches their name",
            3,
        ),
    ],
)
def test_what_is_odd_is_counted(tmp_path: Path, events: list[Event], action: Any, what: str, kept: int) -> None:
    real, report = import_trace(write(tmp_path / "trace.json", events))
    assert report.count(action, what) == 1
    assert sum(len(found.kernels) for found in real.steps) == report.kernels_kept == kept
    assert any(action in line and what in line for line in report.lines())


def test_the_order_of_events_does_not_matter(tmp_path: Path) -> None:
    one, _ = import_trace(write(tmp_path / "trace.json", BASE))
    two, _ = import_trace(write(tmp_path / "trace.json", BASE[::-1]))
    assert one == two


def test_a_trace_cut_off_in_the_middle_gives_what_it_holds(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json", BASE)
    path.write_text(path.read_text()[:-2])
    real, report = import_trace(path)
    assert len(real.steps[0].kernels) == 2
    assert "file ends early" in "".join(report.lines())


@pytest.mark.parametrize("events", [[], [step(0, 0, 10)], [step(0, 0, 10), kernel(1, "soon")]])
def test_no_kernel_at_all_is_an_error(tmp_path: Path, events: list[Event]) -> None:
    with pytest.raises(TimelineError, match=r"trace\.json: no GPU kernel"):
        import_trace(write(tmp_path / "trace.json", events))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1, 2",
        b'{"other": []}',
        b"\x1f\x8bnot gzip",
        gzip.compress(b"{}", mtime=0)[:8],
        b"\x00" * 64,
        b"\xff{}",
    ],
)
def test_what_is_no_trace_is_one_line_that_names_the_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "trace.json").write_bytes(data)
    with pytest.raises(TimelineError, match=r"trace\.json") as error:
        import_trace(tmp_path / "trace.json")
    assert "\n" not in str(error.value)


def test_an_export_without_its_table_says_which(tmp_path: Path) -> None:
    path = tmp_path / "export.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    database.close()
    with pytest.raises(TimelineError, match=r"export\.sqlite: no table CUPTI_ACTIVITY_KIND_KERNEL"):
        import_trace(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TimelineError, match=r"nothing\.json: No such file"):
        import_trace(tmp_path / "nothing.json")


def test_launches_are_counted_in_the_whole_trace_or_in_the_chosen_steps_alone(tmp_path: Path) -> None:
    events = [
        launch(9, 2), kernel(9, 3),
        step(0, 5, 100), launch(1, 10), kernel(1, 15), launch(2, 20), kernel(2, 25),
        step(1, 200, 100), launch(4, 203), kernel(4, 0), launch(5, 210), kernel(5, 215), launch(6, 220), kernel(6, 225),
    ]  # fmt: skip
    path = write(tmp_path / "trace.json", events)

    def uids(**options: Any) -> dict[str, int | None]:
        real, _ = import_trace(path, "^ProfilerStep#1$", **options)
        return {kernel.name: kernel.launch_uid for step in real.steps for kernel in step.kernels}

    assert uids() == {"k5": 5, "k6": 6}
    # The one whose time the profiler lost was launched all the same, and a simulator runs it.
    assert uids(renumber=True) == {"k5": 2, "k6": 3}
