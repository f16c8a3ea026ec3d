"""Examples whose answers are known: the empty timeline, one small enough for a hand, and a whole path to a server."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from cascade.cli import main
from cascade.client import Client
from cascade.sample_log import SampleLog
from cascade.timeline.compare import compare
from cascade.timeline.kernel_times import from_map
from cascade.timeline.model import Kernel, RealMeta, RealTimeline, Step, dump, json_schemas
from cascade.timeline.simulate import simulate
from cascade.timeline.whole import simulate_and_compare
from chalicelib.accelsim import Parser
from tests.e2e.server import Server
from tests.e2e.shared import LOGS, lines_of
from tests.timeline.traces import with_times

DOCS = Path(__file__).resolve().parents[2] / "docs"
NULLS = dict.fromkeys(
    f"{name}{end}" for end in ("", "_pct") for name in ("mean_error", "mean_abs_error", "p50_abs_error", "p95_abs_error")
)  # fmt: skip
STATS = {"count": 0, **NULLS}
EMPTY_SIMULATED: dict[str, Any] = {
    "meta": {"run_name": "empty"},
    "steps": [],
    "requests": [],
    "summary": {
        "simulation": {
            "host_model": "scaled-gaps",
            "host_fit": {},
            "coverage": {
                "kernels": 0,
                "simulated_kernels": 0,
                "kernel_fraction": 0,
                "gpu_time_fraction": 0,
                "measured_gpu_ns": 0.0,
                "covered_measured_gpu_ns": 0.0,
                "unmodeled_gpu_ns": 0.0,
                "steps": [],
            },
            "request_assumption": "one request per repeat; queue + prefill/decode walls",
        },
        "per_kind": {},
    },
}
EMPTY_COMPARE = {"steps": [], "requests": [], "summary": {"wall_ns": STATS, "gpu_busy_ns": STATS}}


def within(wanted: Any, found: Any, path: str = "") -> None:
    """Everything of `wanted` is in `found` as it is; what is beside it is allowed."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert key in found, f"{path}.{key}"
            within(value, found[key], f"{path}.{key}")
    else:
        assert found == wanted, path


def test_the_empty_timeline_gives_the_references_objects() -> None:
    real = RealTimeline(meta=RealMeta(run_name="empty"), steps=[])
    simulated, result = with_times(real, lambda kernel: 0)
    within(EMPTY_SIMULATED, json.loads(dump(simulated)))
    within(EMPTY_COMPARE, json.loads(dump(result)))


def three_kernels() -> RealTimeline:
    """The worked example of docs/step-timing.md."""
    kernels = [
        Kernel("embed", 1_000, 5_000, launch_uid=1),
        Kernel("gemm", 6_000, 16_000, launch_uid=2),
        Kernel("sample", 26_000, 30_000, launch_uid=3),
    ]
    step = Step(repeat=0, index=0, kind="decode", start_ns=0, end_ns=32_000, kernels=kernels)
    return RealTimeline(meta=RealMeta(run_name="by hand"), steps=[step])


@pytest.mark.parametrize(
    ("gemm", "wall"),
    [
        (10_000, 32_000),  # as measured
        (12_000, 32_000),  # hidden in the host's late launch of the third
        (30_000, 44_000),  # the third starts 2 us after the second ends: 36 + 2 + 4, and 2 to the end
        (1_000, 32_000),  # the host is as late as before
    ],
)
def test_the_example_worked_by_hand(gemm: int, wall: int) -> None:
    rows = [{"name": "embed", "ns": 4_000}, {"name": "gemm", "ns": gemm}, {"name": "sample", "ns": 4_000}]
    real = three_kernels()
    simulated = simulate(real, from_map(json.dumps(rows).encode(), "map.json"))
    assert simulated.steps[0].wall_ns == wall
    assert compare(simulated, real).summary.wall_ns.mean_error == wall - 32_000
    page = (DOCS / "step-timing.md").read_text()
    assert f"| {gemm / 1000:g} | {wall / 1000:g} |" in page


def test_the_statistics_are_those_of_numpy() -> None:
    random = np.random.default_rng(7)
    steps, at = [], 0
    for index in range(40):
        length = int(random.integers(5_000, 90_000))
        kernel = Kernel(f"k{index}", at + 1_000, at + length - 1_000, launch_uid=index + 1)
        steps.append(Step(repeat=0, index=index, kind="decode", start_ns=at, end_ns=at + length, kernels=[kernel]))
        at += length
    real = RealTimeline(meta=RealMeta(run_name="random"), steps=steps)
    simulated, result = with_times(
        real, lambda kernel: int((kernel.end_ns - kernel.start_ns) * (1 + len(kernel.name) % 3 / 2))
    )
    errors = np.array([a.wall_ns - b.wall_ns for a, b in zip(simulated.steps, real.steps, strict=True)], dtype=float)
    pct = 100 * errors / np.array([step.wall_ns for step in real.steps])
    stats = result.summary.wall_ns
    assert stats.count == 40
    assert stats.mean_error == pytest.approx(errors.mean())
    assert stats.mean_abs_error == pytest.approx(np.abs(errors).mean())
    assert stats.p50_abs_error == pytest.approx(np.percentile(np.abs(errors), 50))
    assert stats.p95_abs_error == pytest.approx(np.percentile(np.abs(errors), 95))
    assert stats.mean_error_pct == pytest.approx(pct.mean())
    assert stats.p95_abs_error_pct == pytest.approx(np.percentile(np.abs(pct), 95))


def test_the_schemas_in_docs_are_the_models() -> None:
    for name, schema in json_schemas().items():
        assert json.loads((DOCS / "schemas" / name).read_text()) == schema, (
            "cascade.timeline.model.write_schemas makes them"
        )


SAMPLE = list(SampleLog(kernels=3, seed=8).lines())


def parsed(lines: list[str]) -> list[Any]:
    """The kernels of a log."""
    parser = Parser()
    return [*parser.feed(lines)[0], *parser.finish()]


@pytest.mark.parametrize(
    "lines", [SAMPLE, *(lines_of(log) for log in LOGS[:2])], ids=lambda lines: f"{len(lines)} lines"
)
def test_from_a_trace_and_a_log_to_the_server_and_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: list[str]
) -> None:
    log = tmp_path / "accelsim.log"
    log.write_text("\n".join(lines) + "\n")
    found = parsed(lines)
    kernels = [
        Kernel(kernel["name"] or "", 10_000 * n, 10_000 * n + 4_000, launch_uid=kernel["launch_uid"])
        for n, kernel in enumerate(found)
    ]
    step = Step(repeat=0, index=0, kind="prefill", start_ns=0, end_ns=10_000 * len(found), kernels=kernels)
    timeline = tmp_path / "real_timeline.json"
    timeline.write_bytes(dump(RealTimeline(meta=RealMeta(run_name="whole"), steps=[step])))
    outputs = [tmp_path / "simulated_timeline.json", tmp_path / "compare.json"]
    for line in (
        ["simulate", "--timeline", str(timeline), "--log", str(log), "-o", str(outputs[0])],
        ["compare", str(outputs[0]), str(timeline), "-o", str(outputs[1])],
    ):
        done = CliRunner().invoke(main, line)
        assert done.exit_code == 0, done.output
    simulated, result = (json.loads(path.read_text()) for path in outputs)
    assert (simulated, result) == simulate_and_compare(timeline, log)
    assert simulated["summary"]["simulation"]["coverage"]["simulated_kernels"] == len(found) > 2
    line = ["timeline", "send", "SIM", "--simulated", str(outputs[0]), "--compare", str(outputs[1])]
    assert f"cascade {' '.join(line)}" in done.output, "what comes next is told"
    with Server(tmp_path / "data") as server, Client(server.url, server.token) as client:
        sim = client.create_run("whole", [{}]).sims[0].id
        monkeypatch.setenv("CASCADE_URL", server.url)
        monkeypatch.setenv("CASCADE_TOKEN", server.token)
        sent = CliRunner().invoke(main, [word.replace("SIM", sim) for word in line])
        assert sent.output == f"{sim}: 1 step sent; {server.url}/#/sims/{sim}?tab=timing\n"
        read = client.step_timeline(sim)
        without = CliRunner().invoke(main, ["timeline", "send", sim, "--simulated", str(outputs[0])])
        assert without.exit_code == 0
        assert client.step_timeline(sim).compare is None
        for wrong in ([str(outputs[1])], [str(outputs[0]), "--compare", str(log)], ["nothing.json"]):
            refused = CliRunner().invoke(main, ["timeline", "send", sim, "--simulated", *wrong])
            assert refused.exit_code == 1
            assert refused.output.count("\n") == 1
    assert json.dumps(read.simulated) == json.dumps(simulated)
    assert json.dumps(read.compare) == json.dumps(result)


def test_the_kernels_of_a_sim_on_the_server_are_those_of_its_last_attempt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    died = list(SampleLog(kernels=2, seed=1, names=["other"]).lines())[:-2]
    kernels = [Kernel(str(block["name"]), 1_000 * n, 1_000 * n + 500) for n, block in enumerate(parsed(SAMPLE))]
    step = Step(repeat=0, index=0, kind="prefill", start_ns=0, end_ns=9_000, kernels=kernels)
    (tmp_path / "real_timeline.json").write_bytes(dump(RealTimeline(meta=RealMeta(run_name="again"), steps=[step])))
    monkeypatch.chdir(tmp_path)
    with Server(tmp_path / "data") as server, Client(server.url, server.token) as client:
        monkeypatch.setenv("CASCADE_URL", server.url)
        monkeypatch.setenv("CASCADE_TOKEN", server.token)
        sim = client.create_run("again", [{}]).sims[0].id
        client.send_log_chunk(sim, 0, died + SAMPLE)
        done = CliRunner().invoke(main, ["simulate", "--timeline", "real_timeline.json", "--sim", sim])
    assert done.exit_code == 0, done.output
    assert "coverage: 3 of 3 kernels simulated" in done.output
    assert "note: simulated kernels of earlier attempts: 2\n" in done.output
    assert f"cascade timeline send {sim} --simulated simulated_timeline.json\n" in done.output


def test_full_coverage_by_kernels_that_overlapped_is_called_out(tmp_path: Path) -> None:
    sample = SampleLog(kernels=6, seed=1, streams=3, concurrent=True)
    (tmp_path / "accelsim.log").write_text("\n".join(sample.lines()))
    kernels = [
        Kernel(block["name"] or "", 10_000 * uid, 10_000 * uid + 4_000, launch_uid=uid)
        for uid, block in sorted((block["launch_uid"] or 0, block) for block in sample.blocks)
    ]
    step = Step(repeat=0, index=0, kind="prefill", start_ns=0, end_ns=100_000, kernels=kernels)
    timeline = tmp_path / "real_timeline.json"
    timeline.write_bytes(dump(RealTimeline(meta=RealMeta(run_name="streams"), steps=[step])))
    made = str(tmp_path / "s.json")
    log = str(tmp_path / "accelsim.log")
    first = CliRunner().invoke(main, ["simulate", "--timeline", str(timeline), "--log", log, "-o", made])
    second = CliRunner().invoke(main, ["compare", made, str(timeline), "-o", str(tmp_path / "c.json")])
    count = json.loads((tmp_path / "s.json").read_bytes())["summary"]["simulation"]["notes"][
        "kernels_with_times_of_overlapped_ones"
    ]
    assert count > 1
    for done in (first, second):
        assert done.exit_code == 0, done.output
        assert f"warning: {count} of these kernels have the time of one that overlapped others" in done.output
    assert "1 step, 0 requests" in first.output
    assert "steps without a partner" not in second.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "real_timeline.json"),
        (
            '{"meta": {"run_name": "x"}, "steps": [{"repeat": 0, "index": 0, "kind": "fast", "start_ns": 0, "end_ns": 1, "kernels": []}]}',
            "kind",
        ),
        (
            '{"meta": {"run_name": "x"}, "steps": [{"repeat": 0, "index": 4, "kind": "decode", "start_ns": 0, "end_ns": 9,'
            ' "kernels": [{"name": "late", "start_ns": 5, "end_ns": 99}]}]}',
            "step decode 4 of repeat 0.*late",
        ),
        (
            '{"meta": {"run_name": "x"}, "steps": [{"repeat": 0, "index": 0, "kind": "decode", "start_ns": 5, "end_ns": 1, "kernels": []}]}',
            "step decode 0 of repeat 0",
        ),
        (
            '{"meta": {"run_name": "x"}, "steps": [{"repeat": 0, "index": 0, "kind": "decode", "start_ns": 0, "end_ns": 9, "kernels": []},'
            ' {"repeat": 0, "index": 1, "kind": "decode", "start_ns": 5, "end_ns": 19, "kernels": []}]}',
            "decode 1",
        ),
    ],
)
def test_a_wrong_timeline_is_one_line_that_names_file_step_and_kernel(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "real_timeline.json").write_text(text)
    (tmp_path / "map.json").write_text("[]")
    line = ["simulate", "--timeline", str(tmp_path / "real_timeline.json"), "--kernels", str(tmp_path / "map.json")]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 1
    assert done.output.count("\n") == 1
    assert "real_timeline.json" in done.output
    assert re.search(words, done.output)
