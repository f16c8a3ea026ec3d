"""`cascade worker` as a process, against a real server: what a simulator printed and wrote is there, whatever happens.

`CASCADE_WORKER_SEEDS=50 CASCADE_WORKER_KILLS=20 pytest tests/e2e/test_worker.py` is the long form.
"""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from cascade.cli import main
from cascade.commands_worker import duration
from cascade.sample_log import SampleLog
from chalicelib.accelsim import Parser
from tests.e2e.faulty import FaultyProxy
from tests.e2e.server import Server

SEEDS = int(os.environ.get("CASCADE_WORKER_SEEDS", "4"))
KILLS = int(os.environ.get("CASCADE_WORKER_KILLS", "3"))
LINES = list(SampleLog(kernels=6, seed=21).lines())
SIMULATOR = """\
import os, pathlib, sys, time
for number, line in enumerate(open(sys.argv[1], "rb")):
    sys.stdout.buffer.write(line)
    if number % 100 == 0:
        sys.stdout.flush()
        time.sleep(float(sys.argv[2]))
pathlib.Path("kernel-stats.csv").write_text("kernel,cycles\\n")
pathlib.Path("deep").mkdir(exist_ok=True)
pathlib.Path("deep", "odd name é.txt").write_text("odd")
pathlib.Path("empty").touch()
os._exit(int(sys.argv[3])) if len(sys.argv) > 3 and not sys.stdout.flush() else None
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "accelsim.log").write_text("\n".join(LINES) + "\n")
    (tmp_path / "simulator.py").write_text(SIMULATOR)
    return tmp_path


def command(folder: Path, *more: str) -> list[str]:
    return [sys.executable, str(folder / "simulator.py"), str(folder / "accelsim.log"), *more]


def new_run(client: httpx.Client, sims: list[dict[str, Any]]) -> tuple[str, list[str]]:
    run = client.post("/api/runs", json={"name": "worker", "sims": sims}).json()
    return run["id"], [sim["id"] for sim in run["sims"]]


def start(server: Server, folder: Path, *arguments: str, url: str | None = None) -> subprocess.Popen[str]:
    env = {
        **server.env,
        "CASCADE_URL": url or server.url,
        "CASCADE_TOKEN": server.token,
        "CASCADE_SPOOL_DIR": str(folder / "spool"),
        "CASCADE_HEARTBEAT_TIMEOUT_S": "9",
    }
    line = [sys.executable, "-m", "cascade.cli", "worker", *arguments]
    return subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)


def finish(worker: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str]:
    output, _ = worker.communicate(timeout=seconds)
    return worker.returncode, output


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def check_whole(client: httpx.Client, sim: str, folder: Path) -> None:
    """Every line once, every file, every kernel."""
    text = client.get(f"/api/sims/{sim}/logs", headers={"Accept": "text/plain"}).text
    assert text == "\n".join(LINES) + "\n"
    shown = client.get(f"/api/sims/{sim}").json()
    assert shown["log"]["missing"] == []
    parser = Parser()
    wanted = parser.feed(LINES)[0] + parser.finish()
    kernels = client.get(f"/api/sims/{sim}/kernels").json()["kernels"]
    assert [k["tot_sim_cycles"] for k in kernels] == [k["tot_sim_cycles"] for k in wanted]
    files = {file["name"]: file["size"] for file in client.get(f"/api/sims/{sim}/files").json()}
    assert files.pop("accelsim.log.gz")
    assert files.pop("kernel-stats.csv") == 14
    assert files.pop("empty") == 0
    ((odd, size),) = files.items()
    assert odd.startswith("deep.odd_name_")
    assert size == 3
    packed = client.get(f"/api/sims/{sim}/files/accelsim.log.gz").content
    assert gzip.decompress(packed) == (folder / "accelsim.log").read_bytes()


def test_a_run_is_worked_through(server: Server, client: httpx.Client, folder: Path) -> None:
    run, sims = new_run(client, [{"params": {"pause": 0}}, {"params": {"pause": 0.01}}, {"params": {"pause": 0}}])
    code, output = finish(start(server, folder, "--run", run, "--jobs", "2", "--", *command(folder, "{pause}")))
    assert code == 0, output
    for sim in sims:
        assert client.get(f"/api/sims/{sim}").json()["state"] == "succeeded"
        check_whole(client, sim, folder)
    assert output.count("succeeded, 6 kernels finished") == 3
    assert not list((folder / "spool").glob("sim-*"))
    assert not list((folder / "spool" / "claims").iterdir())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_through_a_faulty_network_everything_arrives_once(
    server: Server, client: httpx.Client, folder: Path, seed: int
) -> None:
    run, (sim,) = new_run(client, [{}])
    with FaultyProxy(server.url, seed, faults=0.25) as proxy:
        worker = start(server, folder, "--run", run, "--", *command(folder, "0.02"), url=proxy.url)
        code, output = finish(worker)
    assert code == 0, output
    assert proxy.seen > 8
    assert client.get(f"/api/sims/{sim}").json()["state"] == "succeeded"
    check_whole(client, sim, folder)


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_worker_killed_and_started_again_goes_on_where_it_was(
    server: Server, client: httpx.Client, folder: Path, kill: int
) -> None:
    run, (sim,) = new_run(client, [{}])
    at = random.Random(kill).uniform(0.5, 4.5)
    arguments = ("--", *command(folder, "0.15"))
    worker = start(server, folder, "--run", run, *arguments)
    with suppress(subprocess.TimeoutExpired):
        worker.wait(at)  # the point in time is what is random here
    worker.kill()
    finish(worker)
    code, output = finish(start(server, folder, "--run", run, *arguments))
    assert code == 0, output
    assert client.get(f"/api/sims/{sim}").json()["state"] == "succeeded"
    check_whole(client, sim, folder)


def test_a_cancel_reaches_the_simulator(server: Server, client: httpx.Client, folder: Path) -> None:
    run, (sim,) = new_run(client, [{}])
    with FaultyProxy(server.url, 3, faults=0.1) as proxy:
        worker = start(server, folder, "--run", run, "--grace", "1", "--", *command(folder, "5"), url=proxy.url)
        wait_for(lambda: client.get(f"/api/sims/{sim}").json()["log"]["chunks"] > 0)
        client.post(f"/api/sims/{sim}/cancel")
        began = time.monotonic()
        code, output = finish(worker)
    assert code == 1
    assert time.monotonic() - began < 2 * 1.5 + 1 + 5  # two beats, the grace, the delivery
    assert client.get(f"/api/sims/{sim}").json()["state"] == "cancelled"
    assert "cancelled" in output


def test_sigterm_to_the_worker_is_passed_on_and_reported(server: Server, client: httpx.Client, folder: Path) -> None:
    run, (sim,) = new_run(client, [{}])
    worker = start(server, folder, "--run", run, "--grace", "1", "--", *command(folder, "5"))
    wait_for(lambda: client.get(f"/api/sims/{sim}").json()["log"]["chunks"] > 0)
    worker.send_signal(signal.SIGTERM)
    code, _ = finish(worker)
    shown = client.get(f"/api/sims/{sim}").json()
    assert (code, shown["state"]) == (1, "failed")
    assert "SIGTERM" in shown["error"]
    assert shown["exit_code"] == -signal.SIGTERM


def test_exit_0_without_the_simulators_last_line_is_no_success(
    server: Server, client: httpx.Client, folder: Path
) -> None:
    (folder / "accelsim.log").write_text("\n".join(LINES[: len(LINES) // 2]) + "\n")
    run, (sim,) = new_run(client, [{}])
    assert finish(start(server, folder, "--run", run, "--", *command(folder, "0")))[0] == 1
    shown = client.get(f"/api/sims/{sim}").json()
    assert (shown["state"], shown["exit_code"]) == ("failed", 0)
    assert "kernels finished" in shown["error"]
    run, (sim,) = new_run(client, [{}])
    arguments = ("--run", run, "--success", "exit-code", "--", *command(folder, "0"))
    assert finish(start(server, folder, *arguments))[0] == 0
    assert client.get(f"/api/sims/{sim}").json()["state"] == "succeeded"


def test_an_exit_code_comes_with_a_reason(server: Server, client: httpx.Client, folder: Path) -> None:
    run, (sim,) = new_run(client, [{}])
    assert finish(start(server, folder, "--run", run, "--", *command(folder, "0", "3")))[0] == 1
    shown = client.get(f"/api/sims/{sim}").json()
    assert (shown["state"], shown["exit_code"]) == ("failed", 3)
    assert "exit code 3" in shown["error"]


def test_an_unknown_placeholder_is_an_error_before_anything_starts(
    server: Server, client: httpx.Client, folder: Path
) -> None:
    run, (sim,) = new_run(client, [{"params": {"trace": "x"}}])
    code, output = finish(start(server, folder, "--run", run, "--", sys.executable, "{trase}"))
    assert code == 2
    assert output == f"Error: {{trase}} is no param of {sim}, which has sim, trace\n"
    assert client.get(f"/api/sims/{sim}").json()["state"] == "queued"


def test_a_program_that_is_not_there_is_an_error_before_anything_starts(
    server: Server, client: httpx.Client, folder: Path
) -> None:
    run, (sim,) = new_run(client, [{}])
    code, output = finish(start(server, folder, "--run", run, "--", "no-such-simulator"))
    assert (code, output) == (2, "Error: no-such-simulator: no such program\n")
    assert client.get(f"/api/sims/{sim}").json()["state"] == "queued"


def test_two_workers_on_one_sim_run_it_once(server: Server, client: httpx.Client, folder: Path) -> None:
    _, (sim,) = new_run(client, [{}])
    one, two = (start(server, folder, "--sim", sim, "--", *command(folder, "0.02")) for _ in range(2))
    codes = sorted(finish(worker)[0] for worker in (one, two))
    assert codes == [0, 1]
    check_whole(client, sim, folder)


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [(None, "wrong", "401"), ("http://127.0.0.1:1", None, "127.0.0.1:1"), ("nonsense", None, "http")],
)
def test_a_wrong_server_or_token_is_told_in_one_line(
    server: Server, folder: Path, url: str, token: str, words: str
) -> None:
    options = ["--url", url] if url else []
    options += ["--token", token] if token else []
    code, output = finish(
        start(server, folder, "--run", "run-000000000000", "--give-up-after", "1", *options, "--", "true")
    )
    assert code == 1
    *before, last = output.splitlines()
    assert last.startswith("Error: ")
    assert words in last
    assert all(line.startswith("trying again: ") for line in before)


def test_step_timing_is_sent_when_the_trace_has_it(server: Server, client: httpx.Client, folder: Path) -> None:
    trace = folder / "trace"
    trace.mkdir()
    parser = Parser()
    first = (parser.feed(LINES)[0] + parser.finish())[0]
    kernel = {"name": first["name"], "start_ns": 10, "end_ns": 30, "launch_uid": first["launch_uid"]}
    step = {"repeat": 0, "index": 0, "kind": "decode", "start_ns": 0, "end_ns": 50, "kernels": [kernel]}
    (trace / "real_timeline.json").write_text(json.dumps({"meta": {"run_name": "t"}, "steps": [step], "requests": []}))
    run, (sim,) = new_run(client, [{}])
    code, output = finish(start(server, folder, "--run", run, "--", *command(folder, "0", "0"), "-trace", "./trace"))
    assert code == 0, output
    timing = client.get(f"/api/sims/{sim}/step-timeline").json()
    assert timing["simulated"]["summary"]["simulation"]["coverage"]["kernels"] == 1
    assert timing["compare"]["summary"]["wall_ns"]["count"] == 1


def test_a_worker_that_waits_for_the_server_says_so_and_ends_when_told(server: Server, folder: Path) -> None:
    worker = start(server, folder, "--run", "run-000000000000", "--", "true", url="http://127.0.0.1:1")
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith("trying again: http://127.0.0.1:1: ")
    worker.send_signal(signal.SIGTERM)
    code, output = finish(worker, 30)
    assert code == 1
    assert "Error: http://127.0.0.1:1: " in output


def test_a_second_sigterm_leaves_the_rest_for_the_next_worker(
    server: Server, client: httpx.Client, folder: Path
) -> None:
    run, (sim,) = new_run(client, [{}])
    with FaultyProxy(server.url, 0, faults=0) as proxy:
        worker = start(server, folder, "--run", run, "--grace", "1", "--", *command(folder, "5"), url=proxy.url)
        wait_for(lambda: client.get(f"/api/sims/{sim}").json()["log"]["chunks"] > 0)
    worker.send_signal(signal.SIGTERM)  # with no server to report to
    assert worker.stdout is not None
    while "trying again" not in worker.stdout.readline():
        assert worker.poll() is None
    worker.send_signal(signal.SIGTERM)
    code, output = finish(worker, 30)
    assert code == 1
    assert "nothing is lost" in output
    code, output = finish(start(server, folder, "--run", run, "--", *command(folder, "5")))
    shown = client.get(f"/api/sims/{sim}").json()
    assert shown["state"] == "failed"
    assert "SIGTERM" in shown["error"]


def test_a_success_that_is_being_delivered_stays_one_when_the_worker_is_told_to_stop(
    server: Server, client: httpx.Client, folder: Path
) -> None:
    run, (sim,) = new_run(client, [{}])
    status = folder / "spool" / sim / "attempt-1" / "status"
    with FaultyProxy(server.url, 0, faults=0) as proxy:
        worker = start(server, folder, "--run", run, "--", *command(folder, "0.05"), url=proxy.url)
        wait_for(lambda: client.get(f"/api/sims/{sim}").json()["log"]["chunks"] > 0)
    wait_for(lambda: bool(json.loads(status.read_text())["exit"]))  # with no server to report to
    worker.send_signal(signal.SIGTERM)
    assert worker.stdout is not None
    while "stopping the simulators" not in worker.stdout.readline():
        assert worker.poll() is None
    worker.send_signal(signal.SIGTERM)
    finish(worker, 30)
    ran = json.loads(status.read_text())["exit"]["seconds"]
    code, output = finish(start(server, folder, "--run", run, "--", *command(folder, "0.05")))
    assert (code, client.get(f"/api/sims/{sim}").json()["state"]) == (0, "succeeded")
    check_whole(client, sim, folder)
    # The time is the simulator's, not that of the worker which found it ended.
    assert output.endswith(f"succeeded, 6 kernels finished, {ran:.0f} s\n")
    assert ran >= 0.5


def test_a_run_with_nothing_queued_is_told_apart_from_one_that_was_worked_through(
    server: Server, client: httpx.Client, folder: Path
) -> None:
    run, sims = new_run(client, [{}, {}, {}])
    for sim in sims[:2]:
        client.post(f"/api/sims/{sim}/heartbeat", json={"state": "succeeded"})
    client.post(f"/api/sims/{sims[2]}/cancel")
    worker = start(server, folder, "--run", run, "--jobs", "2", "--", "true")
    assert finish(worker) == (0, "nothing queued: 2 succeeded, 1 cancelled\n")
    worker = start(server, folder, "--run", run, "--forever", "--", "true")
    assert worker.stdout is not None
    assert worker.stdout.readline() == "nothing queued: 2 succeeded, 1 cancelled; waiting for more\n"
    worker.send_signal(signal.SIGTERM)
    assert finish(worker)[0] == 0


def test_no_more_sims_than_a_worker_is_to_take(server: Server, client: httpx.Client, folder: Path) -> None:
    run, sims = new_run(client, [{}] * 4)
    options = ("--run", run, "--jobs", "3", "--success", "exit-code")
    code, output = finish(start(server, folder, *options, "--max-sims", "2", "--", "true"))
    assert (code, output.count(": succeeded, ")) == (0, 2)
    assert output.endswith("no other sim after 2, as --max-sims says\n")
    code, output = finish(start(server, folder, *options, "--stop-claiming-after", "0s", "--", "true"))
    assert (code, output) == (0, "no other sim after 0 s, as --stop-claiming-after says\n")
    assert sorted(client.get(f"/api/sims/{sim}").json()["state"] for sim in sims) == ["queued"] * 2 + ["succeeded"] * 2


def test_the_simulator_finds_its_files_and_who_it_is(server: Server, client: httpx.Client, folder: Path) -> None:
    for config in ("volta", "ampere"):
        (folder / config).mkdir()
        (folder / config / "gpgpusim.config").write_text(f"-gpgpu_of {config}\n")
    run, (sim,) = new_run(client, [{"params": {"config": "ampere"}}])
    script = "cat gpgpusim.config; pwd; printf '%s %s %s <%s> ' $CASCADE_SIM_ID $CASCADE_RUN_ID $CASCADE_ATTEMPT $CASCADE_TOKEN; echo $0 {{}}"
    options = ("--run", run, "--success", "exit-code", "--copy", "{config}/gpgpusim.config")
    code, output = finish(start(server, folder, *options, "--", "sh", "-c", script, "./accelsim.log"))
    assert code == 0, output
    config, where, said = client.get(f"/api/sims/{sim}/logs", headers={"Accept": "text/plain"}).text.splitlines()
    assert config == "-gpgpu_of ampere"
    assert where == str(folder / "spool" / sim / "work")
    assert said == f"{sim} {run} 1 <> {folder / 'accelsim.log'} {{}}"
    assert client.get(f"/api/sims/{sim}/files/gpgpusim.config").text == "-gpgpu_of ampere\n"


def test_a_file_to_copy_that_is_not_there_is_an_error_before_anything_starts(
    server: Server, client: httpx.Client, folder: Path
) -> None:
    run, (sim,) = new_run(client, [{"params": {"config": "volta"}}])
    code, output = finish(start(server, folder, "--run", run, "--copy", "{config}/gpgpusim.config", "--", "true"))
    assert (code, output) == (2, f"Error: {folder}/volta/gpgpusim.config: no such file to copy\n")
    assert client.get(f"/api/sims/{sim}").json()["state"] == "queued"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--run", ""], "empty run id"),
        (["--sim", " "], "empty sim id"),
        (["--run", "r", "--stop-claiming-after", "16"], "'16' is no duration such as 16h, 1h30m or 45s"),
        (["--run", "r", "--max-sims", "0"], "0 is not in the range"),
        (["--sim", "s", "--max-sims", "2"], "--max-sims and --stop-claiming-after go with --run"),
        (["--run", "r", "--sim", "s"], "give either --run or --sim"),
    ],
)
def test_a_wrong_command_line_is_told(options: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["worker", *options, "--", "true"])
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(("text", "seconds"), [("16h", 57_600), ("1h30m", 5_400), ("45s", 45), ("2d", 172_800)])
def test_a_duration_is_written_with_its_units(text: str, seconds: float) -> None:
    assert duration(text) == seconds
