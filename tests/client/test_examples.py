"""The examples that `--help` shows, run as they are printed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cascade.cli import main
from cascade.client import Client
from cascade.sample_log import SampleLog
from cascade.timeline import model, synthetic
from cascade.timeline.compare import compare
from cascade.timeline.kernel_times import KernelTimes
from cascade.timeline.simulate import simulate
from tests.client.test_commands import commands
from tests.e2e.server import Server

RUN, OTHER_RUN, SIM = "run-0f3a9c2b5d71", "run-77aa01b2c3d4", "sim-6b4c91e71437"
ELSEWHERE = {
    ("serve",),  # tests/e2e/test_server.py
    ("demo",),  # tests/e2e/test_demo.py
    ("worker",),  # tests/e2e/test_worker.py
    ("timeline", "import"),  # tests/timeline/test_traces.py
}


def examples() -> Iterator[tuple[tuple[str, ...], str]]:
    for path, command in commands(main):
        if path not in ELSEWHERE:
            for line in (command.epilog or "").splitlines():
                if line.startswith("Example: "):
                    yield path, line.removeprefix("Example: ")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.mark.parametrize(("path", "line"), list(examples()), ids=lambda v: v if isinstance(v, str) else "")
def test_an_example_runs_as_printed(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: tuple[str, ...], line: str
) -> None:
    monkeypatch.setenv("CASCADE_URL", server.url)
    monkeypatch.setenv("CASCADE_TOKEN", server.token)
    monkeypatch.chdir(tmp_path)
    log = list(SampleLog(kernels=2, seed=3).lines())
    (tmp_path / "accelsim.log").write_text("\n".join(log))
    (tmp_path / "kernel-stats.csv").write_text("a,b\n")
    real = synthetic.timeline(synthetic.llm_run(1, decode_steps=2, layers=1), "example")
    # Without kernels, which the log would have under other names.
    real = model.RealTimeline(meta=real.meta, steps=[step.model_copy(update={"kernels": []}) for step in real.steps])
    (tmp_path / "real_timeline.json").write_bytes(model.dump(real))
    simulated = simulate(real, KernelTimes("x", {}, {}, stand_in=False))
    (tmp_path / "simulated_timeline.json").write_bytes(model.dump(simulated))
    (tmp_path / "compare.json").write_bytes(model.dump(compare(simulated, real)))
    with Client(server.url, server.token) as client:
        ids = []
        for _ in range(2):
            run = client.create_run("example", [{"name": "a"}])
            for sim in run.sims:
                client.send_log_chunk(sim.id, 0, log)
                client.upload_file(sim.id, "accelsim.log.gz", b"x")
                client.heartbeat(sim.id, "succeeded", 0)
            ids.append(run)
        if "--from" in line or "--state" in line:  # what is to be run again must have failed
            ids[0] = client.create_run("example", [{}])
            client.heartbeat(ids[0].sims[0].id, "failed", 1)
    # In one piece, however long: pasted with a line end within, it would be two commands.
    assert f"Example: {line}\n" in CliRunner().invoke(main, [*path, "--help"]).output
    found = line.replace(RUN, ids[0].id).replace(OTHER_RUN, ids[1].id).replace(SIM, ids[0].sims[0].id)
    words = shlex.split(re.sub(r" [>|] .*$", "", found))
    assert words[0] == "cascade"
    done = CliRunner().invoke(main, words[1:])
    assert done.exit_code == 0, done.output
