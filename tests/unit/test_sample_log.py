"""The made-up log: the same each time, in the shape of its version, and told truthfully beside its lines."""

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.sample_log import NAMES, WINDOW, SampleLog, Version, generate
from chalicelib.accelsim import Parser

VERSIONS = get_args(Version)
SMALL = {"cores": 1, "partitions": 1}

# Any name that fits a row: a parser can't tell blanks at its ends, nor a quote in the row where PTX mode quotes it.
words = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="'"), min_size=1, max_size=30
)
names = st.lists(words, min_size=1, max_size=5).map(" ".join)


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    version = draw(st.sampled_from(VERSIONS))
    kernels = draw(st.integers(0, 7))
    options: dict[str, Any] = {
        "version": version,
        "kernels": kernels,
        "seed": draw(st.integers(0, 2**32)),
        "names": draw(st.lists(names, min_size=1, max_size=4)),
        "cores": draw(st.integers(1, 3)),
        "partitions": draw(st.integers(1, 3)),
    }
    if kernels:
        options["deadlock_at"] = draw(st.none() | st.integers(0, kernels - 1))
    if version != "ptx":
        options |= {
            "streams": draw(st.integers(1, 5)),
            "concurrent": draw(st.booleans()),
            "limit": draw(st.sampled_from((None, "cycle", "insn"))),
        }
    return options


@given(runs())
@settings(max_examples=60, deadline=None)
def test_what_was_generated_is_what_is_read_back(options: dict[str, Any]) -> None:
    sample = SampleLog(**options)
    lines = list(sample.lines())
    parser = Parser()
    kernels, _ = parser.feed(lines)
    assert kernels + parser.finish() == sample.blocks
    hung, cut = options.get("deadlock_at") is not None, options.get("limit") is not None and options["kernels"] > 0
    outcome = parser.outcome
    assert outcome.exit_detected == (not hung)
    assert bool(outcome.deadlock) == hung
    assert bool(outcome.limit) == (cut and not hung)
    assert outcome.finished == sum(block["finished"] for block in sample.blocks)
    assert not outcome.block_open
    assert outcome.error is None


@given(runs())
@settings(max_examples=20, deadline=None)
def test_the_same_options_give_the_same_log(options: dict[str, Any]) -> None:
    assert list(generate(**options)) == list(generate(**options))


def test_seeds_differ() -> None:
    assert list(generate(seed=1, **SMALL)) != list(generate(seed=2, **SMALL))


def test_lines_have_no_line_ends() -> None:
    assert not any("\n" in line or "\r" in line for line in generate(**SMALL))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_serial_run_has_a_block_a_kernel_in_order(version: Version) -> None:
    sample = SampleLog(version=version, kernels=8, **SMALL)
    list(sample.lines())
    assert [block["launch_uid"] for block in sample.blocks] == list(range(1, 9))
    assert [block["name"] for block in sample.blocks] == [NAMES[at % len(NAMES)] for at in range(8)]
    totals = [block["tot_sim_cycles"] for block in sample.blocks]
    assert all(isinstance(total, int) for total in totals)
    assert totals == sorted(totals)
    assert totals[-1] == sum(block["sim_cycles"] or 0 for block in sample.blocks)


def _starting(lines: list[str], start: str) -> list[str]:
    return [line for line in lines if line.startswith(start)]


def test_rows_of_each_version() -> None:
    logs = {version: list(generate(version=version, kernels=1, **SMALL)) for version in VERSIONS}
    launch = {version: _starting(lines, "launching kernel") for version, lines in logs.items()}
    assert launch["1.2"] == ["launching kernel command : /traces/llm-decode/traces/kernel-1.traceg"]
    assert launch["release"] == [f"launching kernel name: {NAMES[0]} uid: 1"]
    assert launch["stream-stats"] == launch["dev"] == [f"launching kernel name: {NAMES[0]} uid: 1 cuda_stream_id: 0"]
    assert launch["ptx"] == []
    assert {version for version, lines in logs.items() if _starting(lines, "kernel_stream_id = ")} == {"dev"}
    with_streams = {version for version, lines in logs.items() if any("[Stream_0]" in line for line in lines)}
    assert with_streams == {"stream-stats"}
    for start in ("gpu_occupancy = ", "L2_BW  = ", "gpgpu_silicon_slowdown = ", "Destroy streams for kernel 1: "):
        assert {version for version, lines in logs.items() if _starting(lines, start)} == set(VERSIONS) - {"ptx"}


def test_overlapping_kernels_are_listed_when_issued_not_when_they_end() -> None:
    sample = SampleLog(kernels=12, streams=3, concurrent=True, seed=3, **SMALL)
    lines = list(sample.lines())
    listed = [[int(uid) for uid in row.split("=")[1].split()] for row in _starting(lines, "kernel_launch_uid =")]
    ended = [block["launch_uid"] for block in sample.blocks]
    assert sorted(uid for row in listed for uid in row) == sorted(e for e in ended if e) == list(range(1, 13))
    assert [] in listed
    assert any(len(row) > 1 for row in listed)
    assert any([uid] != row for uid, row in zip(ended, listed, strict=True))
    assert ended != sorted(e for e in ended if e)


def test_at_most_one_kernel_a_stream_runs_at_a_time() -> None:
    running: set[str] = set()
    stream_of: dict[str, str] = {}
    for line in generate(kernels=20, streams=3, concurrent=True, seed=5, **SMALL):
        if line.startswith("launching kernel name: "):
            uid, stream = line.partition(" uid: ")[2].split(" cuda_stream_id: ")
            stream_of[uid] = stream
            assert stream not in running
            running.add(stream)
        elif line.startswith("Destroy streams for kernel "):
            running.remove(stream_of[line.split()[4].rstrip(":")])


def test_headers_are_loaded_ahead_only_when_kernels_overlap() -> None:
    for concurrent, ahead in ((False, 1), (True, WINDOW)):
        lines = list(generate(kernels=WINDOW + 3, concurrent=concurrent, **SMALL))
        first = next(at for at, line in enumerate(lines) if line.startswith("launching kernel name"))
        assert len(_starting(lines[:first], "Processing kernel ")) == ahead


@pytest.mark.parametrize("limit", ["cycle", "insn"])
def test_a_limit_cuts_the_last_kernel(limit: str) -> None:
    sample = SampleLog(kernels=3, limit=limit, **SMALL)
    lines = list(sample.lines())
    assert [block["finished"] for block in sample.blocks] == [True, True, False]
    assert _starting(lines, "kernel_name =")[-1] == (
        "kernel_name = " if limit == "cycle" else f"kernel_name = {NAMES[2]} "
    )
    assert lines[-3:] == [
        "GPGPU-Sim: ** break due to reaching the maximum cycles (or instructions) **",
        "GPGPU-Sim: *** simulation thread exiting ***",
        "GPGPU-Sim: *** exit detected ***",
    ]


def test_the_release_version_prints_no_block_at_a_limit() -> None:
    sample = SampleLog(kernels=3, limit="cycle", version="release", **SMALL)
    lines = list(sample.lines())
    assert len(sample.blocks) == len(_starting(lines, "kernel_name =")) == 2
    assert len(_starting(lines, "gpgpu_simulation_time =")) == 3


def test_a_deadlock_ends_the_log_without_its_block() -> None:
    sample = SampleLog(kernels=4, deadlock_at=2, **SMALL)
    lines = list(sample.lines())
    assert len(sample.blocks) == 2
    assert len(_starting(lines, "GPGPU-Sim uArch: ERROR ** deadlock detected")) == 1
    assert "*** exit detected ***" not in "".join(lines)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"version": "5.0"}, "no version '5.0'"),
        ({"version": "ptx", "streams": 2}, "ptx"),
        ({"version": "ptx", "concurrent": True}, "ptx"),
        ({"version": "ptx", "limit": "cycle"}, "ptx"),
        ({"cores": 0}, "needs"),
        ({"streams": 0}, "needs"),
        ({"names": ()}, "needs"),
        ({"kernels": -1}, "needs"),
        ({"kernels": 2, "deadlock_at": 2}, "from 0 to 1"),
        ({"kernels": 2, "deadlock_at": -1}, "from 0 to 1"),
    ],
)
def test_runs_that_cannot_be(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        SampleLog(**options)
