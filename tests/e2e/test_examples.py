"""The example clients of the documentation, each against a live server, and through a door that makes it hard."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import pytest

from cascade.sample_log import SampleLog
from chalicelib import settings
from chalicelib.models import StepTimelineUpload
from tests.e2e.server import Server

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "bring-your-own-simulator.md").read_text(encoding="utf-8")
CLIENTS = {"client.py": [sys.executable], "client.sh": ["bash"], "client.mjs": ["node"]}
LINES = list(SampleLog(kernels=5, seed=9).lines())
each_example = pytest.mark.parametrize("name", CLIENTS)

Answer = tuple[int, dict[str, str], bytes]


class Door:
    """Between client and server: `rule` answers a call itself, or lets it through with None."""

    def __init__(self, target: str, rule: Callable[[str, str, Any], Answer | None]) -> None:
        self.target = target
        self.rule = rule
        self.seen: list[tuple[float, str, str, Any]] = []
        """When each call came, its method, its path, and its body's JSON."""
        self.beaten = threading.Event()
        """A heartbeat was answered."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def of(self, end: str) -> list[Any]:
        """The bodies of the calls whose path ends so."""
        return [body for _, _, path, body in self.seen if path.endswith(end)]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        door = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

            def do_GET(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    body = json.loads(sent)
                except ValueError:
                    body = None
                door.seen.append((time.monotonic(), self.command, self.path, body))
                status, headers, content = door.rule(self.command, self.path, body) or self.passed_on(sent)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
                if self.path.endswith("/heartbeat"):
                    door.beaten.set()

            do_POST = do_PUT = do_GET

            def passed_on(self, sent: bytes) -> Answer:
                wanted = ("Authorization", "Content-Type")
                headers = {name: self.headers[name] for name in wanted if name in self.headers}
                answer = httpx.request(self.command, door.target + self.path, content=sent, headers=headers, timeout=60)
                return answer.status_code, {}, answer.content

        return Handler


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def sim(client: httpx.Client) -> str:
    return str(client.post("/api/runs", json={"name": "example", "sims": [{}]}).json()["sims"][0]["id"])


def run(server: Server, folder: Path, name: str, sim: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    """An example with a log and a file, to its end."""
    if shutil.which(CLIENTS[name][0]) is None:
        pytest.skip(f"{CLIENTS[name][0]} is not on this machine")
    (folder / "accelsim.log").write_text("\n".join(LINES))
    (folder / "kernel-stats.csv").write_text("a,b\n")
    env = os.environ | {"CASCADE_URL": url or server.url, "CASCADE_TOKEN": server.token}
    line = [*CLIENTS[name], str(DOCS / "examples" / name), sim, "accelsim.log", "kernel-stats.csv"]
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def check_whole(client: httpx.Client, sim: str, done: subprocess.CompletedProcess[str]) -> None:
    """It said that it succeeded, and everything is there."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded" in done.stdout
    shown = client.get(f"/api/sims/{sim}").json()
    assert (shown["state"], shown["exit_code"], shown["kernels"]) == ("succeeded", 0, 5)
    assert shown["log"]["missing"] == []
    assert client.get(f"/api/sims/{sim}/logs", headers={"Accept": "text/plain"}).text == "\n".join(LINES) + "\n"
    assert client.get(f"/api/sims/{sim}/files/kernel-stats.csv").text == "a,b\n"


def test_every_example_is_run_here() -> None:
    assert {path.name for path in (DOCS / "examples").iterdir()} == set(CLIENTS)


@each_example
def test_an_example_is_a_whole_client(
    server: Server, client: httpx.Client, tmp_path: Path, name: str, sim: str
) -> None:
    check_whole(client, sim, run(server, tmp_path, name, sim))


@each_example
def test_an_example_repeats_what_may_pass_and_waits_as_long_as_it_is_told(
    server: Server, client: httpx.Client, tmp_path: Path, name: str, sim: str
) -> None:
    refusals: dict[str, Answer] = {
        "heartbeat": (408, {}, b""),
        "logs": (429, {"Retry-After": "3"}, b""),
        "kernel-stats.csv": (503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"<html>"),
    }
    with Door(server.url, lambda method, path, body: refusals.pop(path.rpartition("/")[2], None)) as door:
        check_whole(client, sim, run(server, tmp_path, name, sim, door.url))
    first, second, *_ = [when for when, _, path, _ in door.seen if path.endswith("/logs")]
    assert 3 <= second - first < 10
    assert not refusals


@each_example
def test_an_example_sends_again_what_the_server_has_not_got(
    server: Server, client: httpx.Client, tmp_path: Path, name: str, sim: str
) -> None:
    lost: list[int] = []

    def lose_one(method: str, path: str, body: Any) -> Answer | None:
        if path.endswith("/logs") and body["seq"] == 1 and not lost:
            lost.append(1)
            return 204, {}, b""
        return None

    with Door(server.url, lose_one) as door:
        check_whole(client, sim, run(server, tmp_path, name, sim, door.url))
    assert [body["seq"] for body in door.of("/logs")].count(1) == 2


@each_example
def test_an_example_does_not_repeat_what_will_not_get_better(server: Server, tmp_path: Path, name: str) -> None:
    with Door(server.url, lambda method, path, body: None) as door:
        done = run(server, tmp_path, name, "sim-000000000000", door.url)
    assert done.returncode == 1
    assert "404" in done.stderr
    assert len(door.seen) == 1


@each_example
def test_an_example_stops_when_its_sim_is_cancelled(
    server: Server, client: httpx.Client, tmp_path: Path, name: str, sim: str
) -> None:
    def cancel_at_the_first_chunk(method: str, path: str, body: Any) -> Answer | None:
        if path.endswith("/logs") and len(door.of("/logs")) == 1:
            client.post(f"/api/sims/{sim}/cancel")
            door.beaten.clear()
            assert door.beaten.wait(60)
        return None

    with Door(server.url, cancel_at_the_first_chunk) as door:
        done = run(server, tmp_path, name, sim, door.url)
    assert done.returncode == 1
    assert "cancelled" in done.stdout
    assert "succeeded" not in [body["state"] for body in door.of("/heartbeat")]
    assert len(door.of("/logs")) < 3
    assert client.get(f"/api/sims/{sim}").json()["state"] == "cancelled"


@each_example
def test_a_beat_that_fails_ends_nothing(
    server: Server, client: httpx.Client, tmp_path: Path, name: str, sim: str
) -> None:
    failed = threading.Event()

    def fail_one(method: str, path: str, body: Any) -> Answer | None:
        if path.endswith("/logs"):
            assert failed.wait(60)
        elif path.endswith("/heartbeat") and body["state"] == "running" and door.of("/logs") and not failed.is_set():
            failed.set()
            return 500, {}, b"<html>"
        return None

    with Door(server.url, fail_one) as door:
        done = run(server, tmp_path, name, sim, door.url)
    check_whole(client, sim, done)
    assert "500" in done.stderr


def test_the_python_snippet_works(server: Server, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_URL", server.url)
    monkeypatch.setenv("CASCADE_TOKEN", server.token)
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(snippet, names)
    assert client.get(f"/api/sims/{names['sim']}").json()["state"] == "succeeded"


def test_the_limits_of_the_page_are_those_of_the_api() -> None:
    assert f"{settings.JSON_MAX_BYTES // settings.MIB} MiB of JSON" in PAGE
    assert f"{settings.FILE_MAX_BYTES // settings.MIB} MiB" in PAGE
    assert f"{settings.SIM_FILES_MAX_BYTES // settings.MIB} MiB a sim" in PAGE


def test_the_step_timing_of_the_page_is_taken(client: httpx.Client, sim: str) -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    body = json.loads(shown)
    assert set(body) == set(StepTimelineUpload.model_fields)
    assert client.post(f"/api/sims/{sim}/step-timeline", json=body).status_code == 204
