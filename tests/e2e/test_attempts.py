"""A sim whose simulator is started more than once: left by a worker that was told to stop, or lost with its node."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from cascade.sample_log import SampleLog
from tests.e2e.server import Server
from tests.e2e.test_worker import finish, new_run, start, wait_for

LINES = list(SampleLog(kernels=4, seed=31).lines())
AGAIN = "cascade: attempt 2, the simulator is started again"
# The first attempt stops for ever in the middle of the third kernel's statistics; another goes on to `lines`.
SIMULATOR = """\
import os, signal, sys, time
log, lines, deaf = sys.argv[1:]
first = os.environ["CASCADE_ATTEMPT"] == "1"
if deaf == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
text = open(log).read().split("\\n")
if first:
    blocks = [number for number, line in enumerate(text) if line.startswith("gpu_sim_cycle")]
    print("\\n".join(text[: blocks[2]]), end="\\nhalf a li", flush=True)
    time.sleep(600)
print("\\n".join(text[: int(lines)]), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "accelsim.log").write_text("\n".join(LINES))
    (tmp_path / "simulator.py").write_text(SIMULATOR)
    return tmp_path


class Fleet:
    """A run of one sim, the workers that come to it, and what it looks like from outside."""

    def __init__(self, server: Server, client: httpx.Client, folder: Path) -> None:
        self.server, self.client, self.folder = server, client, folder
        self.run, (self.sim,) = new_run(client, [{}])

    def worker(self, *options: str, lines: int = len(LINES), deaf: str = "-") -> subprocess.Popen[str]:
        """A worker on the run. What it finds in the spool keeps the command it was begun with."""
        command = [
            sys.executable,
            str(self.folder / "simulator.py"),
            str(self.folder / "accelsim.log"),
            str(lines),
            deaf,
        ]
        return start(self.server, self.folder, "--run", self.run, *options, "--", *command)

    def wait_until_it_hangs(self) -> None:
        """Until two kernels of the first attempt are there, and half of the third."""
        wait_for(lambda: self.log().count("gpu_sim_cycle") == 2 and self.pids()[1] is not None)

    @property
    def spool(self) -> Path:
        return self.folder / "spool" / self.sim

    def meta(self) -> dict[str, Any]:
        return json.loads((self.spool / "sim.json").read_text())

    def status(self) -> dict[str, Any]:
        """What the warden of the first attempt wrote."""
        return json.loads((self.spool / "attempt-1" / "status").read_text())

    def pids(self) -> tuple[int | None, int | None]:
        """The warden and the simulator of the first attempt."""
        status = self.status()
        return status.get("warden"), status.get("simulator")

    def shown(self) -> dict[str, Any]:
        return self.client.get(f"/api/sims/{self.sim}").json()

    def log(self) -> str:
        return self.client.get(f"/api/sims/{self.sim}/logs", headers={"Accept": "text/plain"}).text


@pytest.fixture
def fleet(server: Server, client: httpx.Client, folder: Path) -> Fleet:
    return Fleet(server, client, folder)


def left(fleet: Fleet) -> None:
    """Have a worker leave the sim."""
    worker = fleet.worker("--on-stop", "leave", "--grace", "1")
    fleet.wait_until_it_hangs()
    worker.send_signal(signal.SIGTERM)
    code, output = finish(worker, 30)
    assert code == 1
    assert "SIGTERM: stopping the simulators, leaving their sims for the next worker" in output
    assert f"left in {fleet.spool}: the next worker on this spool starts its simulator again" in output
    assert "left for the next worker, 2 kernels finished, 3 launched, " in output


def check_second_attempt(fleet: Fleet, output: str) -> None:
    """Both attempts are in the log, apart, and only the second one counts."""
    shown = fleet.shown()
    assert (shown["state"], shown["exit_code"], shown["error"]) == ("succeeded", 0, None)
    assert "succeeded, 4 kernels finished, " in output
    _, second = fleet.log().split(f"\n{AGAIN}\n")
    assert second == "\n".join(LINES) + "\n"
    kernels = fleet.client.get(f"/api/sims/{fleet.sim}/kernels").json()["kernels"]
    assert [kernel["launch_uid"] for kernel in kernels] == [1, 2, 1, 2, 3, 4]
    assert not fleet.spool.exists()


def test_a_sim_that_is_left_is_run_again_by_the_next_worker(fleet: Fleet) -> None:
    left(fleet)
    shown = fleet.shown()
    assert (shown["state"], shown["exit_code"]) in (("running", None), ("lost", None))
    *_, torn, last = fleet.log().rstrip("\n").split("\n")
    assert torn == "half a li"
    assert last.startswith("cascade: attempt 1 ends, the worker was told to stop (SIGTERM)")
    assert last.endswith("the next worker starts the simulator again")
    code, output = finish(fleet.worker())
    assert code == 0, output
    assert "left by a worker that was told to stop, starting the simulator again" in output
    check_second_attempt(fleet, output)


def test_a_worker_killed_in_its_grace_leaves_the_sim_all_the_same(fleet: Fleet) -> None:
    worker = fleet.worker("--on-stop", "leave", "--grace", "2", deaf="deaf")
    fleet.wait_until_it_hangs()
    worker.send_signal(signal.SIGTERM)
    wait_for(lambda: fleet.meta()["leaving"])
    worker.kill()
    finish(worker)
    code, output = finish(fleet.worker())
    assert code == 0, output
    check_second_attempt(fleet, output)


def test_a_worker_killed_before_it_stopped_a_simulator_that_it_leaves_leaves_it_all_the_same(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.wait_until_it_hangs()
    worker.kill()
    finish(worker)
    # What it writes down before it sends the signal.
    (fleet.spool / "sim.json").write_text(json.dumps(fleet.meta() | {"leaving": True}))
    code, output = finish(fleet.worker("--grace", "1"), 60)
    assert code == 0, output
    check_second_attempt(fleet, output)


def test_a_signal_to_every_process_of_a_job_leaves_the_sim(fleet: Fleet) -> None:
    """As `scancel` does it: here in the order that is worst for the worker, the simulator first."""
    worker = fleet.worker("--on-stop", "leave", "--grace", "1")
    fleet.wait_until_it_hangs()
    warden, simulator = fleet.pids()
    assert warden
    assert simulator
    os.kill(simulator, signal.SIGTERM)
    wait_for(lambda: fleet.status()["exit"] is not None)
    with suppress(ProcessLookupError):
        os.kill(warden, signal.SIGTERM)
    worker.send_signal(signal.SIGTERM)
    code, output = finish(worker, 30)
    assert (code, fleet.shown()["state"] in ("running", "lost")) == (1, True), output
    code, output = finish(fleet.worker())
    assert code == 0, output
    check_second_attempt(fleet, output)


def test_a_sim_cancelled_while_it_is_left_is_not_run_again(fleet: Fleet) -> None:
    left(fleet)
    fleet.client.post(f"/api/sims/{fleet.sim}/cancel")
    code, output = finish(fleet.worker())
    assert code == 1, output
    assert fleet.shown()["state"] == "cancelled"
    assert AGAIN not in fleet.log()
    assert not fleet.spool.exists()


def test_a_sim_that_is_left_without_a_server_keeps_its_log_on_disk(fleet: Fleet) -> None:
    worker = fleet.worker("--on-stop", "leave", "--grace", "1")
    fleet.wait_until_it_hangs()
    fleet.server.process.send_signal(signal.SIGSTOP)
    try:
        worker.send_signal(signal.SIGTERM)
        code, output = finish(worker, 60)
    finally:
        fleet.server.process.send_signal(signal.SIGCONT)
    assert code == 1
    assert "left in " in output
    assert "Traceback" not in output
    code, output = finish(fleet.worker())
    assert code == 0, output
    check_second_attempt(fleet, output)


def test_a_simulator_that_somebody_else_ends_has_failed(fleet: Fleet) -> None:
    worker = fleet.worker("--on-stop", "leave")
    fleet.wait_until_it_hangs()
    _, simulator = fleet.pids()
    assert simulator
    os.kill(simulator, signal.SIGTERM)
    assert finish(worker, 30)[0] == 1
    shown = fleet.shown()
    assert (shown["state"], shown["exit_code"]) == ("failed", -signal.SIGTERM)
    assert "killed by SIGTERM in kernel 3" in shown["error"]


def die(fleet: Fleet, worker: subprocess.Popen[str]) -> None:
    """The node goes down: nobody can say a last word."""
    warden, simulator = fleet.pids()
    assert warden
    assert simulator
    os.kill(warden, signal.SIGSTOP)  # or it would see its simulator end
    worker.kill()
    os.killpg(simulator, signal.SIGKILL)
    os.kill(warden, signal.SIGKILL)
    finish(worker)


def test_after_the_death_of_a_node_the_second_attempt_is_judged_alone(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.wait_until_it_hangs()
    die(fleet, worker)
    code, output = finish(fleet.worker())
    assert code == 0, output
    assert "the simulator died with its warden, starting it again" in output
    check_second_attempt(fleet, output)


def test_a_second_attempt_that_fails_is_told_in_its_own_numbers(fleet: Fleet) -> None:
    second_launch = [number for number, line in enumerate(LINES) if line.startswith("launching kernel name")][1]
    worker = fleet.worker(lines=second_launch + 1)
    fleet.wait_until_it_hangs()
    die(fleet, worker)
    assert finish(fleet.worker())[0] == 1
    error = fleet.shown()["error"]
    assert "the log stops in kernel 2 " in error
    assert error.endswith("; 1 kernel finished, 2 launched")


def test_a_lost_sim_without_a_spool_is_marked_in_the_log_too(fleet: Fleet, tmp_path: Path) -> None:
    worker = fleet.worker()
    fleet.wait_until_it_hangs()
    die(fleet, worker)
    log = str(fleet.folder / "accelsim.log")
    printing = [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", log]
    line = ["--sim", fleet.sim, "--spool", str(tmp_path / "other"), "--", *printing]
    code, output = finish(start(fleet.server, fleet.folder, *line))
    assert code == 0, output
    mark = "\ncascade: another attempt, the simulator is started again by a worker that has nothing of the last one\n"
    assert fleet.log().split(mark)[1].rstrip("\n") == "\n".join(LINES)
    assert "succeeded, 4 kernels finished, " in output
