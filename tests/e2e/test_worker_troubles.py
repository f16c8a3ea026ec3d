"""A worker whose surroundings fail: a 404 that is not true, a full disk, a killed warden, a stderr that nobody reads."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from cascade.client import Client
from cascade.worker import spool
from cascade.worker.heart import GONE_TRIES, Heart
from cascade.worker.job import Job, Settings
from cascade.worker.spool import Sim, Spool
from cascade.worker.warden import runs
from chalicelib.models import HeartbeatAck
from tests.e2e.server import Server
from tests.e2e.test_worker import finish, new_run, start, wait_for

# A warden writes down how its simulator ended a moment before it ends itself, and no job waits for that.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess [0-9]+ is still running:ResourceWarning")

SLEEPS = ["sh", "-c", "echo $$ > pid; echo begun; exec sleep 300"]


class Answers:
    """A server of prepared answers, the last one for ever: (status, detail), or (0, state) for a heartbeat's own."""

    def __init__(self, answers: list[tuple[int, str]]) -> None:
        given = iter(answers)
        last = answers[-1]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, text = next(given, last)
                body = json.dumps({"detail": text} if status else {"state": text, "cancel": False}).encode()
                self.send_response(status or 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "Answers":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


SIM = "sim-0123456789ab"
OWN, FOREIGN, KNOWN = (404, f"sim {SIM} not found"), (404, "Not Found"), (0, "running")


def beats(monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, str]], after_s: float, wait: float) -> bool:
    """Whether a heart that gets the answers calls the sim gone within `wait` seconds."""
    monkeypatch.setenv("CASCADE_HEARTBEAT_TIMEOUT_S", "0.6")
    monkeypatch.setenv("CASCADE_WORKER_GONE_S", str(after_s))
    gone = threading.Event()

    def connect(timeout: float) -> Client:
        made = Client(served.url, "token", timeout=timeout, give_up_after=0)
        made.named = SIM
        return made

    with Answers(answers) as served:
        heart = Heart(connect, SIM, lambda _: None, gone.set, lambda: None)
        heart.start()
        try:
            return gone.wait(wait)
        finally:
            heart.stop()


@pytest.mark.parametrize(
    ("answers", "after_s", "gone"),
    [
        ([OWN], 0.3, True),
        ([OWN] * (GONE_TRIES - 1) + [KNOWN], 0, False),
        (([OWN] * (GONE_TRIES - 1) + [KNOWN]) * 9, 0, False),
        (([OWN] * (GONE_TRIES - 1) + [(503, "busy")]) * 9, 0, False),
        ([OWN], 60, False),
        ([FOREIGN], 0, False),
        ([FOREIGN] * 3 + [OWN], 0, True),
    ],
)
def test_a_sim_is_gone_once_the_server_itself_says_so_for_some_time(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, str]], after_s: float, gone: bool
) -> None:
    assert beats(monkeypatch, answers, after_s, 10 if gone else 2.5) is gone


def test_a_beat_that_nobody_answers_costs_one_try_and_not_the_sim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_HEARTBEAT_TIMEOUT_S", "0.6")
    answered, over = threading.Event(), threading.Event()
    tries: list[int] = []

    class Swallowing(Client):
        def heartbeat(self, *arguments: Any, **named: Any) -> HeartbeatAck:
            tries.append(1)
            if len(tries) == 1:
                over.wait(60)  # on a connection that stays open
            return HeartbeatAck(state="running", cancel=False)

    def connect(timeout: float) -> Client:
        return Swallowing("http://127.0.0.1:1", "token", timeout=timeout, give_up_after=0)

    heart = Heart(connect, SIM, lambda _: answered.set(), lambda: None, lambda: None)
    heart.start()
    try:
        assert answered.wait(10)
    finally:
        over.set()
        heart.stop()


def test_a_deleted_sim_is_stopped_and_its_output_kept(
    server: Server, client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(server.env, "CASCADE_WORKER_GONE_S", "1")
    run, (sim,) = new_run(client, [{}])
    worker = start(server, tmp_path, "--run", run, "--grace", "1", "--", *SLEEPS)
    place = tmp_path / "spool" / sim
    wait_for(lambda: client.get(f"/api/sims/{sim}").json()["log"]["chunks"] > 0)
    pid = int((place / "work" / "pid").read_text())
    client.post(f"/api/sims/{sim}/heartbeat", json={"state": "failed"}).raise_for_status()
    client.delete(f"/api/runs/{run}").raise_for_status()
    code, output = finish(worker, 60)
    assert code == 1
    assert f"the server does not know {sim}; its output is kept in {place}\n" in output
    assert not runs(pid)
    assert (place / "log").read_text() == "begun\n"
    assert (place / "work" / "pid").exists()


def test_a_server_with_a_wrong_data_folder_costs_nothing(server: Server, client: httpx.Client, tmp_path: Path) -> None:
    """The log's chunks and the delivery meet the 404 too."""
    (sim,) = (made := Client(server.url, server.token)).create_run("wrong", [{}]).sims
    made.heartbeat(sim.id)
    refusing = threading.Event()
    refusing.set()

    def connect(timeout: float, give_up_after: float) -> Client:
        one = Client(server.url, server.token, timeout=timeout, give_up_after=give_up_after)
        usual = one._taken

        def taken(response: httpx.Response, path: str, read: Any) -> Any:
            if refusing.is_set():
                response = httpx.Response(404, json={"detail": f"sim {sim.id} not found"})
            return usual(response, path, read)

        one._taken = taken  # type: ignore[method-assign]
        return one

    place = Spool.take(tmp_path, sim.id)
    place.save(Sim(sim.id, "run-0", "wrong", {}, ["/bin/echo", "hi"], "exit-code"))
    threading.Timer(4, refusing.clear).start()
    said: list[str] = []
    job = Job(Settings(connect, tmp_path, 1, "exit-code", False, 60, True), place, said.append)
    try:
        assert job.run() == "succeeded", said
    finally:
        place.close()
        made.close()
    assert client.get(f"/api/sims/{sim.id}/logs", headers={"Accept": "text/plain"}).text == "hi\n"


@pytest.mark.parametrize("lost", [0, 1])
def test_a_chunk_that_a_server_took_and_lost_is_sent_again(
    server: Server, client: httpx.Client, tmp_path: Path, lost: int
) -> None:
    """As after a power cut: in the middle of the log, or its last one."""
    (sim,) = (made := Client(server.url, server.token)).create_run("lost", [{}]).sims
    made.heartbeat(sim.id)
    place = Spool.take(tmp_path, sim.id)
    seen: list[int] = []

    def connect(timeout: float, give_up_after: float) -> Client:
        one = Client(server.url, server.token, timeout=timeout, give_up_after=give_up_after)
        usual = one.send_log_chunk

        def taken(sim_id: str, seq: int, lines: Sequence[str]) -> None:
            seen.append(seq)
            if seq != lost or seen.count(seq) > 1:
                usual(sim_id, seq, lines)
            (place.folder / "work" / "go").touch()

        one.send_log_chunk = taken  # type: ignore[method-assign]
        return one

    script = "echo one; until [ -e go ]; do sleep 0.05; done; echo two"
    place.save(Sim(sim.id, "run-0", "lost", {}, ["/bin/sh", "-c", script], "exit-code"))
    job = Job(Settings(connect, tmp_path, 1, "exit-code", False, 60, False), place, lambda _: None)
    assert job.run() == "succeeded"
    place.close()
    made.close()
    assert sorted(seen) == sorted([0, 1, lost])
    assert client.get(f"/api/sims/{sim.id}/logs", headers={"Accept": "text/plain"}).text == "one\ntwo\n"


@contextmanager
def running(
    server: Server, folder: Path, script: str, leave: bool
) -> Iterator[tuple[Job, Spool, list[str], Callable[[], str]]]:
    """A job of a shell script; its spool, what it says, and what waits for its end and gives what became of it."""
    made = Client(server.url, server.token)
    (sim,) = made.create_run("one", [{}]).sims
    made.heartbeat(sim.id)
    place = Spool.take(folder, sim.id)
    place.save(Sim(sim.id, "run-0", "one", {}, ["/bin/sh", "-c", script], "exit-code"))
    said: list[str] = []
    settings = Settings(
        lambda t, g: Client(server.url, server.token, timeout=t, give_up_after=g),
        folder,
        1,
        "exit-code",
        leave,
        60,
        False,
    )
    job = Job(settings, place, said.append)
    states: list[str] = []
    thread = threading.Thread(target=lambda: states.append(job.run()))
    thread.start()

    def ended() -> str:
        thread.join(40)
        (state,) = states
        return state

    try:
        yield job, place, said, ended
    finally:
        place.close()
        made.close()


@pytest.mark.parametrize("leave", [False, True])
def test_a_full_spool_keeps_no_simulator_running(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: bool
) -> None:
    def full(path: Path, value: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with running(server, tmp_path, "echo $$ > pid; exec sleep 300", leave) as (job, place, said, ended):
        pid = place.folder / "work" / "pid"
        wait_for(lambda: pid.exists() and pid.read_text() != "")
        number = int(pid.read_text())
        monkeypatch.setattr(spool, "replace", full)
        job.stop("told")
        assert ended() == ("left for the next worker" if leave else "failed")
        assert not runs(number)
        line = f"{place.folder.name}: {place.folder} can't be written (No space left on device): make room there, "
        assert sum(text.startswith(line) for text in said) == 1


def test_a_simulator_that_ends_by_itself_just_when_it_is_to_be_left_is_delivered(
    server: Server, client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo begun; until [ -e go ]; do sleep 0.05; done; echo ended"
    with running(server, tmp_path, script, leave=True) as (job, place, said, ended):
        wait_for(lambda: place.log_bytes > 0)
        save = place.save

        def then_ended(remembered: Sim) -> None:
            """It ends between the decision and the signal."""
            save(remembered)
            if remembered.leaving:
                (place.folder / "work" / "go").touch()
                wait_for(lambda: place.simulator(1).exit() is not None)

        monkeypatch.setattr(place, "save", then_ended)
        job.stop("told")
        assert ended() == "succeeded", said
        sim = client.get(f"/api/sims/{place.folder.name}")
        assert sim.json()["exit_code"] == 0
        assert client.get(f"{sim.url.path}/logs", headers={"Accept": "text/plain"}).text == "begun\nended\n"


def test_a_simulator_whose_warden_is_killed_is_killed_too(server: Server, client: httpx.Client, tmp_path: Path) -> None:
    run, (sim,) = new_run(client, [{}])
    worker = start(server, tmp_path, "--run", run, "--", *SLEEPS)
    wait_for(lambda: client.get(f"/api/sims/{sim}").json()["log"]["chunks"] > 0)
    place = tmp_path / "spool" / sim
    pid = int((place / "work" / "pid").read_text())
    os.kill(json.loads((place / "attempt-1" / "status").read_text())["warden"], signal.SIGKILL)
    assert finish(worker, 60)[0] == 1
    assert not runs(pid)
    assert "the process that watched the simulator was killed" in client.get(f"/api/sims/{sim}").json()["error"]


@pytest.mark.parametrize("there", ["read-only", "a link", "as it was"])
def test_a_copy_takes_the_place_of_what_an_earlier_attempt_left(tmp_path: Path, there: str) -> None:
    source, outside = tmp_path / "gpgpusim.config", tmp_path / "outside"
    source.write_text("new")
    source.chmod(0o444)
    outside.write_text("untouched")
    work = tmp_path / "sim" / "work"
    work.mkdir(parents=True)
    if there == "a link":
        (work / source.name).symlink_to(outside)
    else:
        (work / source.name).write_text("old")
        (work / source.name).chmod(0o444 if there == "read-only" else 0o644)
    job = Job.__new__(Job)
    job.spool = Spool(tmp_path / "sim", -1)
    for _ in range(2):
        job._copy(source, work)
    assert (work / source.name).read_text() == "new"
    assert not (work / source.name).is_symlink()
    assert outside.read_text() == "untouched"
    assert sorted(path.name for path in (tmp_path / "sim").iterdir()) == ["work"]


@pytest.mark.parametrize("kind", ["reader gone", "disk full"])
def test_a_worker_whose_stderr_takes_nothing_goes_on(
    server: Server, client: httpx.Client, tmp_path: Path, kind: str
) -> None:
    run, sims = new_run(client, [{}, {}])
    env = {**server.env, "CASCADE_URL": server.url, "CASCADE_TOKEN": server.token, "CASCADE_SPOOL_DIR": str(tmp_path)}
    line = [sys.executable, "-m", "cascade.cli", "worker", "--run", run, "--success", "exit-code", "--", "true"]
    if kind == "disk full":
        number = os.open("/dev/full", os.O_WRONLY)
    else:
        read, number = os.pipe()
        os.close(read)
    try:
        done = subprocess.run(line, env=env, stderr=number, timeout=60, check=False)
    finally:
        os.close(number)
    assert done.returncode == 0
    assert [client.get(f"/api/sims/{sim}").json()["state"] for sim in sims] == ["succeeded"] * 2
