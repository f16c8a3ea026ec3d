"""The life of a local server: its start, its end of every kind, and what is there afterwards."""

import os
import random
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from cascade.serve import server as serving
from cascade.serve.gateway import THREADS
from tests.e2e import disk
from tests.e2e.server import Server
from tests.e2e.wire import Connection
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024
SEED = 20261201

on_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")


def run_to_end(data_dir: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A server that is expected not to start."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CASCADE_", "POWERTOOLS_"))}
    return subprocess.run(
        [sys.executable, "-m", *(arguments or ("cascade.cli", "serve"))],
        env=inherited | {"CASCADE_DATA_DIR": str(data_dir), "PORT": "0"} | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def assert_refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """It ended with 1 and one line that says why."""
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(r"cascade: [^\n]+\n", result.stderr), result.stderr
    for word in words:
        assert word in result.stderr


def complaints(server: Server) -> list[str]:
    """What an ended server said beside what it always says."""
    return [line for line in server.output[2:] if "Ctrl+C again" not in line]


def new_sims(client: httpx.Client, count: int = 1) -> list[str]:
    run = client.post("/api/runs", json={"name": "life", "sims": [{}] * count}).raise_for_status().json()
    return [sim["id"] for sim in run["sims"]]


@contextmanager
def without_a_token(server: Server) -> Iterator[Server]:
    """The server, started by somebody who gives none and reads what it prints."""
    del server.env["CASCADE_TOKEN"]
    with server:
        assert server.process.stdout
        server.output.append(server.process.stdout.readline())
        found = re.fullmatch(r"export CASCADE_URL=(\S+) CASCADE_TOKEN=(\S+)\n", server.output[-1])
        assert found, server.output
        assert found[1] == server.url
        server.token = found[2]
        yield server


# The start.


def test_it_says_where_it_is_and_what_to_export(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        assert server.output == [f"cascade is ready at {server.url}, data in {tmp_path / 'data'}, Ctrl+C stops it\n"]
        assert server.stop() == 0
    assert server.output[1:] == [f"export CASCADE_URL={server.url}\n"]
    assert not (tmp_path / "data" / "token").exists()


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "token"
    with without_a_token(Server(tmp_path / "data")) as server:
        first = server.token
        assert len(first) >= 32
        assert (path.read_text().strip(), stat.S_IMODE(path.stat().st_mode)) == (first, 0o600)
        with server.client() as client:
            assert client.get("/api/runs").status_code == 200
            assert client.get("/api/runs", headers={"Authorization": f"Bearer {first}x"}).status_code == 401
    with without_a_token(Server(tmp_path / "data")) as server:
        assert server.token == first


@on_linux
def test_it_listens_on_this_machine_alone(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        port = int(server.url.rpartition(":")[2])
        other = socket.create_server(("127.0.0.2", port))  # nobody has it
        other.close()


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert_refused(run_to_end(tmp_path / "data", PORT=port), f"127.0.0.1:{port}", "Address already in use", "PORT")
    assert not (tmp_path / "data").exists()


def test_a_second_server_on_the_folder_is_one_line(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        result = run_to_end(tmp_path / "data")
        assert_refused(result, str(tmp_path / "data"), f"in use by process {server.process.pid}")
        with server.client() as client:
            assert client.get("/api/runs").status_code == 200


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"PORT": "http"}, ["PORT", "'http'"]),
        ({"PORT": "65536"}, ["PORT", "'65536'"]),
        ({"CASCADE_HEARTBEAT_TIMEOUT_S": "1m"}, ["CASCADE_HEARTBEAT_TIMEOUT_S", "'1m'"]),
        ({"CASCADE_HEARTBEAT_TIMEOUT_S": "0"}, ["CASCADE_HEARTBEAT_TIMEOUT_S", "'0'"]),
        ({"CASCADE_HEARTBEAT_TIMEOUT_S": "inf"}, ["CASCADE_HEARTBEAT_TIMEOUT_S", "'inf'"]),
        ({"CASCADE_TOKEN": "tökén"}, ["CASCADE_TOKEN", "ASCII"]),
    ],
)
def test_a_setting_that_is_none_is_one_line(tmp_path: Path, env: dict[str, str], words: list[str]) -> None:
    assert_refused(run_to_end(tmp_path / "data", "cascade.serve", **env), *words)


def test_a_folder_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert_refused(run_to_end(tmp_path / "file" / "data"), "cannot use", "Not a directory")


def test_an_empty_token_file_is_one_line(tmp_path: Path) -> None:
    with Server(tmp_path / "data"):
        pass
    (tmp_path / "data" / "token").touch()
    assert_refused(run_to_end(tmp_path / "data"), "token is empty")


@pytest.mark.parametrize("name", ["with blanks 'and' \"quotes\" $HOME", "ünïcödé 😀 %41?#"])
def test_the_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    with Server(tmp_path / name) as server, server.client() as client:
        (sim,) = new_sims(client)
        client.put(f"/api/sims/{sim}/files/x", content=b"abc").raise_for_status()
        assert (tmp_path / name / "files" / sim / "x").read_bytes() == b"abc"


def test_a_relative_folder_is_below_where_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Server(Path("here/data")) as server:
        assert f"data in {tmp_path}/here/data" in server.output[0]
    assert (tmp_path / "here" / "data" / "table.sqlite").exists()


def test_the_module_serves_as_the_command_does(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        pass
    server.arguments = ["-m", "cascade.serve"]
    with server, server.client() as client:
        assert client.get("/api/runs").json()["runs"] == []


def test_help_has_an_example() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "cascade.cli", "serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for word in ("--host", "PORT", "CASCADE_DATA_DIR", "Example: "):
        assert word in shown


def test_what_this_user_has_set_up_for_aws_changes_nothing(tmp_path: Path) -> None:
    env = {
        "AWS_PROFILE": "production",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1",
        "AWS_REGION": "eu-west-1",
        "AWS_SESSION_TOKEN": "x",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "HTTPS_PROXY": "http://127.0.0.1:1",
    }
    with Server(tmp_path / "data", **env) as server, server.client() as client:
        (sim,) = new_sims(client)
        assert client.put(f"/api/sims/{sim}/files/x", content=b"abc").status_code == 200


@pytest.mark.parametrize(
    ("limits", "granted"),
    [((1024, 1_000_000), 65_536), ((256, resource.RLIM_INFINITY), 65_536), ((1024, 4096), 4096), ((100_000, -1), None)],
)
def test_more_open_files_are_asked_for(
    limits: tuple[int, int], granted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: asked.append(wanted))
    assert serving._raise_file_limit() == (granted or limits[0])
    assert asked == ([] if granted is None else [(granted, limits[1])])


def test_a_system_that_grants_fewer_open_files_than_its_hard_limit_is_asked_for_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def as_on_macos(_: int, wanted: tuple[int, int]) -> None:
        asked.append(wanted[0])
        if wanted[0] > 61_440:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", as_on_macos)
    serving._raise_file_limit()
    assert asked == [65_536, 10_240]


# The end.


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_though_connections_are_open(tmp_path: Path, by: signal.Signals) -> None:
    with Server(tmp_path / "data") as server:
        idle, head, _ = connections = [Connection(server.url) for _ in range(3)]
        idle.ask("GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n")
        head.send(f"GET /api/runs HTTP/1.1\r\nAuthorization: Bearer {server.token}\r\n")
        begun = time.monotonic()
        assert server.stop(by) == 0
        assert time.monotonic() - begun < serving.STOP_SECONDS
        for connection in connections:
            assert connection.is_closed()
            connection.close()
    assert complaints(server) == []


def test_the_end_does_not_wait_for_clients_that_do_nothing(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server, server.client() as client:
        (sim,) = new_sims(client)
        client.put(f"/api/sims/{sim}/files/big", content=bytes(32 * MIB)).raise_for_status()
        auth = f"Host: x\r\nAuthorization: Bearer {server.token}\r\n"
        with Connection(server.url) as upload, Connection(server.url) as download:
            upload.send(f"PUT /api/sims/{sim}/files/x HTTP/1.1\r\n{auth}Content-Length: {32 * MIB}\r\n\r\n")
            upload.send(bytes(8 * MIB))
            download.send(f"GET /api/sims/{sim}/files/big HTTP/1.1\r\n{auth}\r\n")
            assert download.file.readline() == b"HTTP/1.1 200 OK\r\n"  # and reads no further
            begun = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - begun < serving.STOP_SECONDS + 5
    assert complaints(server) == []
    assert not (tmp_path / "data" / "files" / sim / "x").exists()


def test_a_request_that_runs_is_answered_before_the_end(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server, server.client() as client:
        (sim,) = new_sims(client)
        with Connection(server.url) as connection:
            connection.send(
                f"PUT /api/sims/{sim}/files/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
                f"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"
            )
            assert connection.response()[0] == 100  # it runs
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: refused(server), "nobody new is let in")
            connection.send(b"abc")
            assert connection.response()[0] == 200
        assert server.wait() == 0
    assert (tmp_path / "data" / "files" / sim / "x").read_bytes() == b"abc"


def refused(server: Server) -> bool:
    try:
        Connection(server.url).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server, server.client() as client:
        (sim,) = new_sims(client)
        with Connection(server.url) as connection:
            connection.send(
                f"PUT /api/sims/{sim}/files/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
                f"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"
            )
            assert connection.response()[0] == 100
            server.process.send_signal(signal.SIGINT)
            eventually(lambda: refused(server), "it stops")
            begun = time.monotonic()
            assert server.stop() == 130
            assert time.monotonic() - begun < 3


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_starts_ends_it_in_order(tmp_path: Path, by: signal.Signals) -> None:
    for lock_is_there in (False, True):
        server = Server(tmp_path / "data")
        server.launch()
        if lock_is_there:
            eventually((tmp_path / "data" / "lock").exists, "it has begun")
            assert server.stop(by) == 0
            assert server.output == []
        else:
            # Before Python itself can tell one signal from another.
            server.stop(by)
            assert not (tmp_path / "data").exists()


def test_a_signal_that_is_swallowed_while_it_starts_ends_it_all_the_same(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    server.arguments = ["-c", SWALLOWING]
    server.launch()
    assert server.wait() == 0
    assert server.output == ["swallowed\n"]


# As a library may do it that imports what need not be there.
SWALLOWING = """
import os, signal
from cascade.serve import server

load = server._load_app

def swallowing(engine):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    except BaseException:
        print("swallowed")
    return load(engine)

server._load_app = swallowing
server.run()
"""


TWICE = """
import os, signal, threading

class Nagging(threading.Event):
    armed = False

    def set(self):
        with self._cond:
            if Nagging.armed:
                os.kill(os.getpid(), signal.SIGINT)
            self._flag = True
            self._cond.notify_all()

threading.Event = Nagging
from cascade.serve import server

signal.signal(signal.SIGINT, server._stop_early)
Nagging.armed = True
try:
    server._stop_early(signal.SIGTERM, None)
finally:
    Nagging.armed = False
"""


def test_a_second_signal_inside_the_first_one_ends_it_too() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], timeout=30, check=False)
    assert done.returncode == 0


def test_the_paths_that_are_quick_here_are_there() -> None:
    from app import ENDPOINTS
    from cascade.serve.server import LIGHT

    assert {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS} >= LIGHT


QUICK = """
import threading
from cascade.serve import gateway, server

load, call = server._load_app, gateway.Gateway._call

def told(engine):
    module = load(engine)
    from chalicelib import table
    table.client().meta.events.register("before-send", lambda **_: print("an HTTP request"))
    return module

def called(self, request, match, body):
    print(request.method, match[0], threading.current_thread() is threading.main_thread(), flush=True)
    return call(self, request, match, body)

server._load_app, gateway.Gateway._call = told, called
server.run()
"""


def test_a_heartbeat_takes_the_short_ways(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    server.arguments = ["-c", QUICK]
    with server, server.client() as client:
        sim = client.post("/api/runs", json={"name": "x", "sims": [{}]}).json()["sims"][0]["id"]
        assert client.post(f"/api/sims/{sim}/heartbeat", json={"state": "running"}).status_code == 200
        assert server.stop() == 0
    said = [line for line in server.output if not line.startswith(("cascade is ready", "export"))]
    assert said == ["POST /api/runs False\n", "POST /api/sims/{sim_id}/heartbeat True\n"]


# What is there afterwards.


def everything(client: httpx.Client) -> dict[str, Any]:
    """All that the API shows."""
    shown: dict[str, Any] = {"runs": client.get("/api/runs").raise_for_status().json()}
    for run in shown["runs"]["runs"]:
        detail = client.get(f"/api/runs/{run['id']}").raise_for_status().json()
        shown[run["id"]] = detail
        for sim in detail["sims"]:
            url = f"/api/sims/{sim['id']}"
            for part in ("", "/logs", "/kernels", "/files"):
                shown[url + part] = client.get(url + part).raise_for_status().json()
            shown[url + "/step-timeline"] = client.get(url + "/step-timeline").json()
            for file in shown[url + "/files"]:
                shown[url + file["name"]] = client.get(f"{url}/files/{file['name']}").raise_for_status().content
    return shown


@pytest.mark.parametrize("end", [Server.stop, Server.kill])
def test_everything_is_there_after_a_restart(tmp_path: Path, end: Callable[[Server], Any]) -> None:
    server = Server(tmp_path / "data")
    with server, server.client() as client:
        sims = new_sims(client, 4)
        for n, sim in enumerate(sims):
            client.post(f"/api/sims/{sim}/logs", json={"seq": n, "lines": ["a", "ä" * 50_000]}).raise_for_status()
            client.put(f"/api/sims/{sim}/files/{n}.csv", content=os.urandom(n * 100_000)).raise_for_status()
        client.put(f"/api/sims/{sims[0]}/files/0.csv", content=b"newer").raise_for_status()
        timing = {"simulated": {"steps": [1e300, 2**70], "summary": {"ü": None}}}
        client.post(f"/api/sims/{sims[1]}/step-timeline", json=timing).raise_for_status()
        final = {"state": "failed", "exit_code": 3, "error": "e" * 5000}
        client.post(f"/api/sims/{sims[2]}/heartbeat", json=final).raise_for_status()
        client.post(f"/api/sims/{sims[3]}/cancel").raise_for_status()
        deleted = client.post("/api/runs", json={"name": "gone", "sims": [{}]}).json()["id"]
        client.delete(f"/api/runs/{deleted}").raise_for_status()
        before = everything(client)
        end(server)
    assert len(before) > 20
    with server, server.client() as client:
        assert everything(client) == before


def test_a_silent_sim_is_lost_for_good_by_the_schedule(tmp_path: Path) -> None:
    with Server(tmp_path / "data", CASCADE_HEARTBEAT_TIMEOUT_S="1") as server, server.client() as client:
        silent, alive, queued = new_sims(client, 3)
        for sim in (silent, alive):
            client.post(f"/api/sims/{sim}/heartbeat", json={"state": "running"}).raise_for_status()

        def lost() -> bool:
            ack = client.post(f"/api/sims/{alive}/heartbeat", json={"state": "running"}).json()
            assert ack["state"] == "running"
            return disk.states(tmp_path / "data")[silent] == "lost"

        # Readers work it out for themselves; only the schedule writes it.
        eventually(lost, "the silent sim is written lost", 15)
        states = {sim: client.get(f"/api/sims/{sim}").json()["state"] for sim in (silent, alive, queued)}
        assert states == {silent: "lost", alive: "running", queued: "queued"}
        ack = client.post(f"/api/sims/{silent}/heartbeat", json={"state": "running"}).json()
        assert ack == {"state": "running", "cancel": False}


# A machine in trouble.


@on_linux
def test_on_a_full_disk_clients_are_told_to_come_back_and_nothing_is_half_done(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server, server.client() as client:
        alive, queued = new_sims(client, 2)
        client.post(f"/api/sims/{alive}/logs", json={"seq": 0, "lines": ["first"]}).raise_for_status()
        before = everything(client)
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        begun = time.monotonic()
        for path, body in (
            (f"/api/sims/{queued}/heartbeat", {"state": "running"}),
            (f"/api/sims/{alive}/logs", {"seq": 1, "lines": ["second"] * 10_000}),
            (f"/api/sims/{alive}/step-timeline", {"simulated": {"steps": [1] * 300_000, "summary": {}}}),
            ("/api/runs", {"name": "more", "sims": [{}]}),
        ):
            answer = client.post(path, json=body)
            assert (answer.status_code, answer.headers["retry-after"], list(answer.json())) == (503, "1", ["detail"])
        assert time.monotonic() - begun < 5  # nobody waits for a disk that is full
        assert everything(client) == before
        assert client.get("/api/health").status_code == 200
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
        client.post(f"/api/sims/{queued}/heartbeat", json={"state": "running"}).raise_for_status()
        client.post(f"/api/sims/{alive}/logs", json={"seq": 1, "lines": ["second"]}).raise_for_status()
        after = everything(client)
    said = complaints(server)
    assert 1 <= len(said) <= 4, said
    assert all("cannot read or write what is stored" in line for line in said)
    with server, server.client() as client:
        assert everything(client) == after


def test_connections_do_not_take_the_files_that_storing_needs(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    # As `ulimit -n 256` does.
    server.arguments = [
        "-c",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); "
        "from cascade.serve.server import run; run()",
    ]
    patient = httpx.Limits(keepalive_expiry=300)
    with (
        server,
        httpx.Client(
            base_url=server.url, headers={"Authorization": f"Bearer {server.token}"}, limits=patient
        ) as client,
        ExitStack() as stack,
    ):
        (sim,) = new_sims(client)
        for _ in range(250):
            stack.enter_context(Connection(server.url))
        assert client.post(f"/api/sims/{sim}/heartbeat", json={"state": "running"}, timeout=10).status_code == 200
        assert client.put(f"/api/sims/{sim}/files/x", content=b"abc", timeout=10).status_code == 200
        assert client.get(f"/api/sims/{sim}/files/x", timeout=10).content == b"abc"
        stack.close()

        def serves_others() -> bool:
            try:
                with server.client() as other:
                    return other.get("/api/runs", timeout=10).status_code == 200
            except httpx.TransportError:
                return False

        eventually(serves_others, "there is room again")
        assert server.stop() == 0
    assert complaints(server) == []


@on_linux
def test_a_folder_that_is_gone_is_said_and_nothing_is_promised(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server, server.client() as client:
        (sim,) = new_sims(client)
        shutil.rmtree(tmp_path / "data")
        for call in (
            client.post(f"/api/sims/{sim}/heartbeat", json={"state": "running"}),
            client.post(f"/api/sims/{sim}/logs", json={"seq": 0, "lines": ["x"]}),
        ):
            assert (call.status_code, list(call.json())) == (503, ["detail"])
        assert client.get(f"/api/sims/{sim}").json()["state"] == "queued"
        assert server.stop() == 0
    assert "table.sqlite was removed or replaced while it was in use" in complaints(server)[0]


def test_a_server_that_slept_goes_on(tmp_path: Path) -> None:
    with Server(tmp_path / "data", CASCADE_HEARTBEAT_TIMEOUT_S="1") as server, server.client() as client:
        alive, silent = new_sims(client, 2)
        for sim in (alive, silent):
            client.post(f"/api/sims/{sim}/heartbeat", json={"state": "running"}).raise_for_status()
        server.process.send_signal(signal.SIGSTOP)
        with Connection(server.url) as waiting:
            waiting.send(
                f"POST /api/sims/{alive}/heartbeat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
                'Content-Length: 20\r\n\r\n{"state": "running"}'
            )
            time.sleep(1.5)  # longer than silence is allowed to be
            server.process.send_signal(signal.SIGCONT)
            assert waiting.response()[2] == b'{"state":"running","cancel":false}'
        assert client.get(f"/api/sims/{silent}").json()["state"] == "lost"


# What it takes.


def process_status(server: Server, field: str) -> int:
    """A number of /proc/PID/status."""
    found = re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found
    return int(found[1])


def open_files(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


@on_linux
def test_odd_requests_leave_no_connection_file_or_thread_behind(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with Server(tmp_path / "data") as server, server.client() as client:
        (sim,) = new_sims(client)
        auth = f"Host: x\r\nAuthorization: Bearer {server.token}\r\n"
        put = f"PUT /api/sims/{sim}/files/x HTTP/1.1\r\n{auth}"
        odd: list[str | bytes] = [
            "nonsense\r\n\r\n",
            "GET /api/runs HTTP/1.1\r\nHost:",
            f"{put}Content-Length: 100000\r\n\r\n0123456789",
            f"{put}Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            f"POST /api/sims/{sim}/cancel HTTP/1.1\r\n{auth}Content-Length: 0\r\n\r\n" * 3,
            f"PUT /api/sims/{sim}/files/x HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + "x" * 100_000,
            f"GET /api/sims/{sim}/logs HTTP/1.1\r\n{auth}Accept: text/plain\r\n\r\n",
            f"GET /api/runs HTTP/1.1\r\n{auth}\r\n" * 20,
            rng.randbytes(300),
            "",
        ]

        def send(n: int) -> None:
            with Connection(server.url) as connection:
                connection.send(odd[n % len(odd)])
                if n % 3 == 0:
                    connection.socket.settimeout(0.05)
                    with suppress(OSError):
                        connection.file.readline()

        with ThreadPoolExecutor(32) as pool:
            list(pool.map(send, range(100)))
            eventually(lambda: open_files(server) < 60, "the connections are closed")
            files = open_files(server)
            list(pool.map(send, range(500)))
        eventually(lambda: open_files(server) <= files, f"no more than {files} files are open")
        assert process_status(server, "Threads") < THREADS + 8
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < serving.STOP_SECONDS  # nothing is under way still
    assert complaints(server) == []


@on_linux
def test_a_file_of_64_mib_takes_no_more_than_three_times_its_size(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server, server.client() as client:
        (sim,) = new_sims(client)
        client.put(f"/api/sims/{sim}/files/x", content=b"x").raise_for_status()
        idle = process_status(server, "VmRSS")
        for n in range(2):
            client.put(f"/api/sims/{sim}/files/{n}", content=bytes(64 * MIB)).raise_for_status()
        assert (process_status(server, "VmHWM") - idle) / 1024 < 3 * 64


@on_linux
def test_an_idle_server_takes_next_to_no_time(tmp_path: Path) -> None:
    def seconds_used(server: Server) -> float:
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    with Server(tmp_path / "data") as server, Connection(server.url) as connection:
        connection.ask("GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n")
        before = seconds_used(server)
        time.sleep(2)  # what is measured
        assert seconds_used(server) - before < 0.1
