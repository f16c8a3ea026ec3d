"""What a worker does with folders that another one was killed over: nothing is run twice, and nothing is stuck."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cascade.worker import spool
from cascade.worker.spool import Sim, Spool
from tests.e2e.server import Server
from tests.e2e.test_worker import finish, new_run, start, wait_for

PRINTS = "import os; print('attempt', os.environ['CASCADE_ATTEMPT'])"
HANGS = "import time; print('begun', flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data"), CASCADE_HEARTBEAT_TIMEOUT_S="2") as running:
        yield running


class One:
    """A run of one sim and a spool."""

    def __init__(self, server: Server, client: httpx.Client, folder: Path) -> None:
        self.server, self.client, self.folder = server, client, folder
        self.root = folder / "spool"
        self.run, (self.sim,) = new_run(client, [{}])
        self.spool = self.root / self.sim

    def claim(self, key: str) -> None:
        headers = {"Idempotency-Key": key}
        answer = self.client.post(f"/api/runs/{self.run}/claim", json={"worker": "w"}, headers=headers)
        assert answer.json()["id"] == self.sim

    def remember(self, **more: Any) -> None:
        """Leave a folder as a worker does that is killed."""
        place = Spool.take(self.root, self.sim)
        argv = [sys.executable, "-c", PRINTS]
        place.save(Sim(self.sim, self.run, "sim", {}, argv=argv, success="exit-code", **more))
        place.close()

    def worker(self, *options: str, code: str = PRINTS) -> tuple[int, str]:
        given = options or ("--run", self.run)
        line = [*given, "--success", "exit-code", "--", sys.executable, "-c", code]
        return finish(start(self.server, self.folder, *line), 60)

    def shown(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.client.get(f"/api/sims/{self.sim}").json()
        return shown

    def log(self) -> str:
        return self.client.get(f"/api/sims/{self.sim}/logs", headers={"Accept": "text/plain"}).text


@pytest.fixture
def one(server: Server, client: httpx.Client, tmp_path: Path) -> One:
    return One(server, client, tmp_path)


def test_a_worker_killed_before_the_warden_has_run_nothing(one: One) -> None:
    one.claim("a")
    one.remember(attempt=1)
    code, output = one.worker()
    assert code == 0, output
    assert one.log() == "attempt 1\n"
    assert not one.spool.exists()


def test_a_folder_is_removed_in_an_order_that_can_be_taken_up(one: One, monkeypatch: pytest.MonkeyPatch) -> None:
    one.remember(attempt=1)
    place = Spool.take(one.root, one.sim)
    (one.spool / "log").write_text("a\n")
    (one.spool / "attempt-1").mkdir()
    place.finish("succeeded")
    seen = []
    unlink = Path.unlink

    def noted(path: Path, missing_ok: bool = False) -> None:
        seen.append(path.name)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", noted)
    place.remove()
    place.close()
    assert seen == ["log", "sim.json", "done", "lock"]
    assert not one.spool.exists()


def test_a_sim_that_is_over_is_not_run_again(one: One) -> None:
    assert one.worker()[0] == 0
    one.remember(attempt=1)  # as an older worker left it, killed while it removed the folder
    code, output = one.worker()
    assert code == 0, output
    assert f"{one.sim} has succeeded already" in output
    assert one.log() == "attempt 1\n"
    assert not one.spool.exists()
    one.spool.mkdir()
    (one.spool / "work").mkdir()
    (one.spool / "work" / "kept").touch()
    code, output = one.worker("--sim", one.sim)
    assert (code, f"{one.sim} has succeeded already" in output) == (0, True), output
    assert (one.spool / "work" / "kept").exists()
    assert one.log() == "attempt 1\n"


def test_a_delivered_sim_whose_folder_was_half_removed_is_not_run_again(one: One) -> None:
    """Its worker was killed after the log and the simulator's end had gone, and before `sim.json` had."""
    one.claim("c")
    ran = one.folder / "ran"
    place = Spool.take(one.root, one.sim)
    argv = [sys.executable, "-c", f"open({str(ran)!r}, 'w')"]
    place.save(Sim(one.sim, one.run, "sim", {}, argv=argv, success="exit-code", attempt=1))
    one.client.post(f"/api/sims/{one.sim}/heartbeat", json={"state": "succeeded", "exit_code": 0}).raise_for_status()
    place.finish("succeeded")
    place.close()
    code, output = one.worker()
    assert code == 0, output
    assert not ran.exists()
    assert not one.spool.exists()


def test_a_folder_that_another_worker_removed_meanwhile_is_not_begun(one: One, monkeypatch: pytest.MonkeyPatch) -> None:
    one.remember(attempt=1)
    found = list(spool.unfinished(one.root, one.run))
    assert found == [one.sim]
    Spool.take(one.root, one.sim).remove()
    place = Spool.take(one.root, one.sim)
    assert place.sim is None
    place.remove_if_empty()
    place.close()
    assert not one.spool.exists()


def test_a_claim_whose_sim_was_lost_meanwhile_is_run(one: One) -> None:
    claim = spool.new_claim(one.root, one.run, "w")
    one.claim(claim.key)
    os.close(claim.handle)  # dead
    wait_for(lambda: one.shown()["state"] == "lost")
    code, output = one.worker()
    assert code == 0, output
    assert one.shown()["state"] == "succeeded"
    assert not list((one.root / "claims").iterdir())


def test_a_claim_takes_another_name_when_one_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, held = spool.lock, []

    def once(path: Path) -> int | None:
        held.append(path)
        return None if len(held) == 1 else lock(path)

    monkeypatch.setattr(spool, "lock", once)
    claim = spool.new_claim(tmp_path, "run-1", "w")
    assert claim.path == held[1]
    claim.close()
    monkeypatch.setattr(spool, "lock", lambda _: None)
    with pytest.raises(OSError, match=r"no file in .* can be locked"):
        spool.new_claim(tmp_path, "run-1", "w")


def test_what_no_thread_expects_is_an_error_in_one_line(one: One) -> None:
    sabotage = one.folder / "sabotage.py"
    sabotage.write_text(
        "from cascade.worker import spool\n"
        "def broken(*_): raise RuntimeError('two\\nlines')\n"
        "spool.new_claim = broken\n"
        "from cascade.cli import main\n"
        "main()\n"
    )
    line = [str(sabotage), "worker", "--run", one.run, "--", sys.executable]
    env = {**one.server.env, "CASCADE_URL": one.server.url, "CASCADE_TOKEN": one.server.token}
    done = subprocess.run(
        [sys.executable, *line, "-c", ""],
        env={**env, "CASCADE_SPOOL_DIR": str(one.root)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (1, "error: unexpected RuntimeError: two lines\n")


def abandoned(one: One) -> int:
    """Kill a worker whose simulator hangs; the simulator's process id."""
    line = ["--run", one.run, "--success", "exit-code", "--grace", "1", "--", sys.executable, "-c", HANGS]
    worker = start(one.server, one.folder, *line)
    status = one.spool / "attempt-1" / "status"
    wait_for(lambda: status.exists() and json.loads(status.read_bytes() or "{}").get("simulator") is not None)
    worker.send_signal(signal.SIGKILL)
    finish(worker)
    return int(json.loads(status.read_bytes())["simulator"])


def test_a_simulator_whose_sim_is_over_is_ended(one: One) -> None:
    pid = abandoned(one)
    beat = {"state": "succeeded", "exit_code": 0}
    assert one.client.post(f"/api/sims/{one.sim}/heartbeat", json=beat).json()["state"] == "succeeded"
    code, output = one.worker()
    assert code == 0, output
    assert f"{one.sim} has succeeded already" in output
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), 5)
    assert not one.spool.exists()


def test_a_simulator_of_a_deleted_run_is_ended(one: One, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = abandoned(one)
    one.client.post(f"/api/runs/{one.run}/cancel")
    assert one.client.delete(f"/api/runs/{one.run}").status_code < 300
    monkeypatch.setitem(one.server.env, "CASCADE_WORKER_GONE_S", "1")
    code, output = one.worker()
    assert code == 1
    assert f"kept in {one.spool}" in output
    assert f"run {one.run} not found" in output
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), 5)
    code, output = one.worker("--sim", one.sim)
    assert code == 1
    assert f"what it left is in {one.spool}, to be removed by hand" in output
    assert f"Error: sim {one.sim} not found" in output


@pytest.mark.parametrize(
    ("option", "text"), [("--run", ""), ("--run", "{"), ("--run", "[]"), ("--sim", ""), ("--sim", '{"run_id": "x"}')]
)
def test_a_sim_whose_memory_is_broken_is_run_anew(one: One, text: str, option: str) -> None:
    one.claim("b")
    one.remember(attempt=1)
    (one.spool / "sim.json").write_text(text)
    (one.spool / "log").write_text("of the last one\n")
    time.sleep(0.1)
    code, output = one.worker(option, one.run if option == "--run" else one.sim)
    assert code == 0, output
    assert output.count("can't be read: nothing is taken up, it is run anew") == 1
    assert one.log() == "attempt 1\n"
    assert not one.spool.exists()
