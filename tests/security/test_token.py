"""The token is nowhere but with those who were given it: in no log, answer, metric, exception, file or core."""

import gzip
import hmac
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cascade.client import CascadeError, Client
from cascade.serve.lambda_event import scheduled_event
from tests.aws import Api
from tests.e2e.server import Server
from tests.e2e.test_worker import finish, new_run
from tests.e2e.wire import Connection

# Everything that can be said is said, and some calls fail inside.
LOUD = """
import logging, sys, warnings
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
warnings.simplefilter("always")
from chalicelib import http, kernels, metrics, page, runs
metrics.FLUSH_SECONDS = 0

def broken(*_):
    raise ZeroDivisionError("an error of the inside")

def torn(sim_id):
    yield b"index"
    broken()

class Unsendable(http.Response):
    to_dict = broken

runs.listing = broken
kernels.as_csv = torn
page.static = lambda *_: Unsendable("", {}, 200)
from cascade.serve.server import run
run()
"""
LOUD_ENV = {
    "POWERTOOLS_LOG_LEVEL": "DEBUG",
    "POWERTOOLS_LOGGER_LOG_EVENT": "true",
    "POWERTOOLS_METRICS_DISABLED": "false",
    "PYTHONASYNCIODEBUG": "1",
    "PYTHONFAULTHANDLER": "1",
}

BOMB = gzip.compress(bytes(33 * 1024 * 1024))


class LoudServer(Server):
    """A server whose output is read while it runs: it says more than a pipe holds."""

    def start(self) -> None:
        self.arguments = ["-c", LOUD]
        super().start()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        self.output += self.process.stdout

    def wait(self) -> int:
        code = self.process.wait(timeout=30)
        self.reader.join()
        return code


def everything_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of each file, unpacked where it is gzip."""
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            yield str(path), gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def requests(sim: str, run: str, token: str) -> list[bytes]:
    """Calls that succeed, that are refused at each place where a call can be, and that fail inside."""
    last = "Host: x\r\nConnection: close\r\n"
    auth = f"{last}Authorization: Bearer {token}\r\n"
    post = f"POST /api/sims/{sim}/heartbeat HTTP/1.1\r\n{auth}"
    texts = [
        f"GET /api/runs/{run} HTTP/1.1\r\n{auth}\r\n",
        f"GET /api/runs HTTP/1.1\r\n{auth}\r\n",  # 500
        f"GET /api/sims/{sim}/kernels.csv HTTP/1.1\r\n{auth}\r\n",  # breaks off
        f"GET /static/a/b HTTP/1.1\r\n{auth}\r\n",  # 500 of the server in front of the app
        f"GET / HTTP/1.1\r\n{auth}\r\n",
        f"GET /api/openapi.json HTTP/1.1\r\n{auth}\r\n",
        f"GET /api/nothing HTTP/1.1\r\n{auth}\r\n",  # 404
        f"TRACE /api/runs HTTP/1.1\r\n{auth}\r\n",  # 405, and no echo
        f"OPTIONS * HTTP/1.1\r\n{auth}\r\n",
        f"GET /api/runs?limit=x HTTP/1.1\r\n{auth}\r\n",  # 422
        f"{post}Content-Length: 1\r\n\r\n{{",  # 422
        f"{post}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}",  # 415
        f"{post}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}",  # 400
        f"{post}X-A: {'a' * 40_000}\r\n\r\n",  # 431
        f"PUT /api/sims/{sim}/files/x HTTP/1.1\r\n{auth}Content-Length: 3\r\n\r\nabc",
        f"{post}Content-Type: application/gzip\r\nContent-Length: {len(BOMB)}\r\n\r\n{BOMB.decode('latin-1')}",  # 413
        # 401, of those who have it and send it wrongly.
        f"GET /api/runs HTTP/1.1\r\n{last}Authorization: Basic {token}\r\n\r\n",
        f"GET /api/runs HTTP/1.1\r\n{last}Authorization: Bearer {token}x\r\n\r\n",
        f"GET /api/runs HTTP/1.1\r\n{last}Authorization: {token}\r\n\r\n",
        f"GET /api/runs HTTP/1.1\r\n{last}X-Token: {token}\r\n\r\n",
        f"GET /api/runs HTTP/1.1\r\n{last}Authorization: Bearer {token}\r\nAuthorization: Bearer x\r\n\r\n",
    ]
    return [text.encode("latin-1") for text in texts]


def all_of(connection: Connection) -> bytes:
    """What comes until the server hangs up."""
    data = b""
    with suppress(ConnectionResetError):
        while piece := connection.socket.recv(65536):
            data += piece
    return data


def test_a_loud_server_in_trouble_says_all_but_the_token(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with LoudServer(data_dir, **LOUD_ENV) as server:
        with server.client() as client:
            run, (sim,) = new_run(client, [{"params": {"a": 1}}])
            client.post(f"/api/sims/{sim}/logs", json={"seq": 0, "lines": ["a", "b"]}).raise_for_status()
        heard = b""
        for request in requests(sim, run, server.token):
            with Connection(server.url) as connection:
                connection.send(request)
                heard += all_of(connection)
        # A disk that takes no more, so that the engine and what calls it fail too.
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        with server.client() as client:
            busy = client.post(f"/api/sims/{sim}/heartbeat", json={"state": "running"})
            assert busy.status_code == 503
            heard += busy.content + str(busy.headers).encode()
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert server.stop() == 0
        said = "".join(server.output)
        # What it was provoked to say is there.
        for status in (200, 400, 401, 404, 405, 413, 415, 422, 431, 500):
            assert f"HTTP/1.1 {status} ".encode() in heard, status
        assert "ZeroDivisionError" in said
        assert "/static/{version}/{name} failed" in said
        assert "DEBUG" in said
        assert "cannot read or write what is stored" in said
        assert '"_aws"' in said, "a metric"
        assert server.token not in said
        assert server.token.encode() not in heard
        for path, data in everything_below(data_dir):
            assert server.token.encode() not in data, path


def test_a_token_that_the_server_made_is_shown_once_and_kept_in_one_file(tmp_path: Path) -> None:
    server = LoudServer(tmp_path / "data", **LOUD_ENV)
    del server.env["CASCADE_TOKEN"]
    with server:
        token = (tmp_path / "data" / "token").read_text().strip()
        server.token = token
        with server.client() as client:
            _, (sim,) = new_run(client, [{}])
            client.get("/api/runs/run-000000000000")
            client.post(f"/api/sims/{sim}/logs", json={"seq": 0, "lines": ["a"]}).raise_for_status()
        assert server.stop() == 0
        shown = [line for line in server.output if token in line]
        assert shown == [f"export CASCADE_URL={server.url} CASCADE_TOKEN={token}\n"]
        holders = [path for path, data in everything_below(tmp_path / "data") if token.encode() in data]
        assert holders == [str(tmp_path / "data" / "token")]


@contextmanager
def cores_allowed() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


def way_of_death(process: subprocess.Popen[Any]) -> int:
    """Whether a process that gets SIGABRT leaves a core: CLD_DUMPED, or CLD_KILLED."""
    process.send_signal(signal.SIGABRT)
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert ended
    return ended.si_code


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="needs waitid")
def test_a_server_that_dies_leaves_no_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with cores_allowed():
        other = subprocess.Popen([sys.executable, "-c", "print(1, flush=True); import time; time.sleep(60)"], stdout=-1)
        assert other.stdout
        other.stdout.readline()
        died = way_of_death(other)
        other.communicate()
        if died != os.CLD_DUMPED:
            pytest.skip("this system makes no core files")
        for path in tmp_path.iterdir():
            path.unlink()
        with Server(tmp_path / "data") as server:
            assert way_of_death(server.process) == os.CLD_KILLED
            server.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


# Lambda.


def lambda_calls(api: Api, token: str) -> bytes:
    """Good calls, refused ones and failing ones; what was answered."""
    _, (sim,) = api.new_run()
    sent = [
        api.post(f"/api/sims/{sim}/heartbeat", {"state": "running"}),
        api.post(f"/api/sims/{sim}/logs", {"seq": 0, "lines": ["a"]}),
        api.put(f"/api/sims/{sim}/files/a.txt", b"x", headers={"Content-Type": "application/octet-stream"}),
        api.get(f"/api/sims/{sim}/files/a.txt"),
        api.post(f"/api/sims/{sim}/uploads/b.txt", {"size": 100}),
        api.get("/api/runs"),  # made to fail
        api.get("/api/sims/sim-000000000000"),
        api.post(f"/api/sims/{sim}/heartbeat", data="{"),
        api.post(f"/api/sims/{sim}/heartbeat", {"state": "lost"}),
        api.get("/api/runs", headers={"Authorization": f"Basic {token}"}),
        api.get("/api/runs", headers={"Authorization": f"Bearer {token}x"}),
        api.get("/"),
        api.get("/api/openapi.json"),
    ]
    assert {answer.status for answer in sent} >= {200, 201, 204, 302, 401, 404, 422, 500}
    return b"".join(answer.body + json.dumps(answer.headers).encode() for answer in sent)


@pytest.mark.parametrize("kept", ["environment", "secret"])
def test_the_function_logs_all_but_the_token(
    lambda_api: Api,
    kept: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    import boto3
    from aws_lambda_powertools.utilities import parameters

    from app import sweep_function
    from chalicelib import log, metrics, runs

    token = "a-token-that-is-nowhere-else"  # the one of other tests is a common word
    for name, value in LOUD_ENV.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tests.aws.TOKEN", token)
    monkeypatch.setattr(Api.__call__, "__kwdefaults__", {**(Api.__call__.__kwdefaults__ or {}), "token": token})
    if kept == "environment":
        monkeypatch.setenv("CASCADE_TOKEN", token)
        caplog.set_level(logging.DEBUG)
    else:
        # The SDK at DEBUG would log the secret as it reads it: nothing of ours ever sets that.
        caplog.set_level(logging.DEBUG, "cascade")
        monkeypatch.delenv("CASCADE_TOKEN")
        monkeypatch.setenv("CASCADE_TOKEN_SECRET", "token")
        boto3.client("secretsmanager", region_name="us-east-1").create_secret(Name="token", SecretString=token)
        parameters.clear_caches()

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("an error of the inside")

    monkeypatch.setattr(runs, "listing", broken)
    log.logger.cache_clear()
    answered = lambda_calls(lambda_api, token)
    sweep_function(scheduled_event("sweep"), None)
    metrics.flush(force=True)
    parameters.clear_caches()
    log.logger.cache_clear()

    written = capfd.readouterr()
    assert "ZeroDivisionError" in caplog.text
    assert '"Chunks"' in written.out, "a metric"
    for text in (caplog.text, written.out, written.err, answered.decode()):
        assert token not in text
    assert not any(token in str(record.__dict__) for record in caplog.records)


# The worker and the client.

SNOOP = """
import os, pathlib
print(dict(os.environ))
for process in ("self", os.getppid()):
    try:
        print(pathlib.Path(f"/proc/{process}/environ").read_bytes())
    except OSError as error:
        print(error)
pathlib.Path("environment.txt").write_text(repr(os.environ))
print("HOME is", os.environ.get("HOME"), "and the marker", os.environ.get("OF_THE_USER"))
"""
LOUD_WORKER = "import logging; logging.basicConfig(level=logging.DEBUG); from cascade.cli import main; main()"


def test_a_worker_keeps_the_token_from_its_log_its_spool_and_the_simulator(tmp_path: Path) -> None:
    (tmp_path / "simulator.py").write_text(SNOOP)
    with Server(tmp_path / "data") as server, server.client() as client:
        run, (sim,) = new_run(client, [{}])
        env = {
            **server.env,
            "CASCADE_URL": server.url,
            "CASCADE_SPOOL_DIR": str(tmp_path / "spool"),
            "OF_THE_USER": "is here",
        }
        arguments = ["worker", "--run", run, "--keep", "--success", "exit-code"]
        line = [sys.executable, "-c", LOUD_WORKER, *arguments, "--", sys.executable, str(tmp_path / "simulator.py")]
        worker = subprocess.Popen(
            line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
        )
        code, output = finish(worker)
        assert code == 0, output
        assert "DEBUG" in output
        text = client.get(f"/api/sims/{sim}/logs", headers={"Accept": "text/plain"}).text
        assert "the marker is here" in text  # the simulator has all else that is in the environment
        kept = dict(everything_below(tmp_path))
        assert any("/spool/" in path for path in kept)
        assert any(path.endswith("environment.txt") for path in kept)
    assert server.token not in output
    assert server.token not in text
    for path, data in kept.items():
        assert server.token.encode() not in data, path


def test_no_error_of_the_client_holds_the_token() -> None:
    token = "a-token-that-is-nowhere-else"
    texts = []
    for url in ("http://127.0.0.1:1", "http://127.0.0.1:1/?x=1", "nonsense", "http://[::1"):
        with pytest.raises(CascadeError) as caught:
            Client(url, token, give_up_after=0).list_runs()
        error: BaseException | None = caught.value
        while error:
            texts.append(f"{error!r} {error}")
            error = error.__cause__ or error.__context__
    with pytest.raises(CascadeError) as caught:
        Client("http://127.0.0.1:1", f"{token} and more")
    texts.append(repr(caught.value))
    client = Client("http://127.0.0.1:1", token)
    texts.append(f"{client!r} {client} {client._http!r}")
    assert not [text for text in texts if token in text]


# Comparing.


def test_tokens_are_compared_in_constant_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every valid token is compared with what was sent, to its end, whatever is right or wrong."""
    from chalicelib import tokens

    compared: list[tuple[bytes, bytes]] = []

    class NeverEqual(bytes):
        """A token that nothing but the constant-time comparison may look at."""

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared by ==")

        __hash__ = bytes.__hash__

    def recorded(a: bytes, b: bytes) -> bool:
        compared.append((bytes(a), bytes(b)))
        return constant(*compared[-1])

    constant = hmac.compare_digest
    monkeypatch.setattr(tokens.hmac, "compare_digest", recorded)
    monkeypatch.setattr(tokens, "valid", lambda secret: [NeverEqual(token.encode()) for token in secret.split()])
    monkeypatch.setenv("CASCADE_TOKEN", "first second")
    for header, status in (
        ("Bearer first", 200),
        ("Bearer second", 200),
        ("Bearer firsu", 401),
        ("Bearer f", 401),
        ("Bearer ", 401),
        ("Basic first", 401),
        ("", 401),
    ):
        compared.clear()
        assert api.get("/api/runs", headers={"Authorization": header}).status == status
        given = header.partition(" ")[2].encode()
        assert compared == [(given, b"first"), (given, b"second")]
