"""What a server refuses of a sim's results stops nothing else of it."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cascade.client import Client, Conflict, NotCascade, Rejected, TooLarge
from cascade.sample_log import SampleLog
from cascade.worker import outputs
from cascade.worker.job import Job, Settings
from cascade.worker.outputs import LOG_NAME, Outputs, fit
from cascade.worker.spool import Sim, Spool
from chalicelib.accelsim import Parser
from tests.e2e.server import Server

# A warden writes down how its simulator ended a moment before it ends itself, and no job waits for that.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess [0-9]+ is still running:ResourceWarning")

LINES = list(SampleLog(kernels=2, seed=21).lines())
REFUSALS = [TooLarge("413 too much"), Rejected("422 no"), Conflict("409 later"), NotCascade("403 a proxy's page")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data")) as running:
        yield running


def timeline(folder: Path) -> Path:
    """A trace with the measured step timing of the log's first kernel."""
    parser = Parser()
    first = (parser.feed(LINES)[0] + parser.finish())[0]
    kernel = {"name": first["name"], "start_ns": 10, "end_ns": 30, "launch_uid": first["launch_uid"]}
    step = {"repeat": 0, "index": 0, "kind": "decode", "start_ns": 0, "end_ns": 50, "kernels": [kernel]}
    measured = {"meta": {"run_name": "t"}, "steps": [step], "requests": []}
    (folder / "trace").mkdir()
    (folder / "trace" / "real_timeline.json").write_text(json.dumps(measured))
    return folder / "trace"


def deliver(
    server: Server, folder: Path, method: str, error: Exception, only: str = ""
) -> tuple[Client, str, list[str]]:
    """Runs a sim whose calls of `method` (on the file `only`) fail with `error`."""
    said: list[str] = []
    client = Client(server.url, server.token)
    usual = getattr(client, method)

    def refuse(sim_id: str, *arguments: Any) -> Any:
        if only in ("", arguments[0]):
            raise error
        return usual(sim_id, *arguments)

    setattr(client, method, refuse)
    (sim,) = client.create_run("refused", [{}]).sims
    (folder / "log").write_text("\n".join(LINES) + "\n")
    argv = ["/bin/sh", "-c", f"echo 1 > a.csv; echo 2 > b.csv; cat {folder / 'log'}", "-trace", str(timeline(folder))]
    connect = iter([client])
    settings = Settings(
        lambda timeout, _: next(connect, None) or Client(server.url, server.token, timeout=timeout),
        folder, 1.0, "accel-sim", False, 10.0, False,
    )  # fmt: skip
    place = Spool.take(folder, sim.id)
    place.save(Sim(sim.id, "run", "name", {}, argv=argv, success="accel-sim", first_seq=0, copies=[]))
    assert Job(settings, place, said.append).run() == "succeeded"
    place.close()
    assert threading.active_count() < 20
    return Client(server.url, server.token), sim.id, said


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_refused_step_timing_is_told_and_all_else_delivered(server: Server, tmp_path: Path, error: Exception) -> None:
    client, sim, said = deliver(server, tmp_path, "send_step_timeline", error)
    shown = client.show_sim(sim)
    assert (shown.state, shown.exit_code) == ("succeeded", 0)
    assert shown.error == f"not sent: step timing: {error}"
    assert {file.name for file in client.files(sim)} == {"a.csv", "b.csv", LOG_NAME}
    assert f"{sim}: {shown.error}" in said
    assert not (tmp_path / sim).exists()


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", ["a.csv", LOG_NAME])
def test_a_refused_file_is_told_and_all_else_delivered(
    server: Server, tmp_path: Path, name: str, error: Exception
) -> None:
    client, sim, _ = deliver(server, tmp_path, "upload_file", error, name)
    shown = client.show_sim(sim)
    assert shown.state == "succeeded"
    assert shown.error == f"not sent: {name}: {error}"
    assert {file.name for file in client.files(sim)} == {"a.csv", "b.csv", LOG_NAME} - {name}
    assert client.step_timeline(sim).compare is not None


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_a_log_of_which_no_chunk_is_taken_is_told_and_all_else_delivered(
    server: Server, tmp_path: Path, error: Exception
) -> None:
    client, sim, _ = deliver(server, tmp_path, "send_log_chunk", error)
    shown = client.show_sim(sim)
    assert shown.state == "succeeded"
    assert (shown.error or "").startswith("not sent: the log but as a file: ")
    assert {file.name for file in client.files(sim)} == {"a.csv", "b.csv", LOG_NAME}


def test_where_nothing_gets_through_everything_waits_in_the_spool(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    portal = NotCascade("302 to a page that asks for a password")

    def health(self: Client) -> bool:
        raise portal

    monkeypatch.setattr(Client, "health", health)
    with pytest.raises(NotCascade, match="password"):
        deliver(server, tmp_path, "upload_file", portal, "a.csv")
    assert list(tmp_path.glob("sim-*/log"))


class Taking:
    """Takes files; what is stored under a name that was taken already is lost."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def upload_file(self, sim_id: str, name: str, content: Path) -> None:
        self.names.append(name)


@pytest.mark.parametrize(
    "files",
    [
        {"big.bin": 11, "big.bin.gz": 1},
        {"accelsim.log": 11},
        {"accelsim.log.gz": 11, "accelsim.log": 11},
        {"a b": 11, "a b.gz": 1, "a_b": 11, "a_b.gz": 11},
        {"n" * 128: 11, "n" * 127: 11, "n" * 126: 11, "n" * 125: 11, "n" * 125 + ".gz": 1},
    ],
    ids=lambda files: " ".join(files)[:40],
)
def test_two_files_never_share_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, int]) -> None:
    monkeypatch.setattr(outputs, "FILE_MAX_BYTES", 10)
    (tmp_path / "work").mkdir()
    for name, size in files.items():
        (tmp_path / "work" / name).write_bytes(bytes(size))
    (tmp_path / "log").write_text("log")
    server = Taking()
    sending = Outputs(server, "sim", tmp_path)  # type: ignore[arg-type]
    sending.send_all(tmp_path / "work")
    sending.send_log(tmp_path / "log")
    assert sending.problems == []
    assert len(set(server.names)) == len(files) + 1
    assert sum(name.endswith(".gz") for name in server.names) >= sum(size > 10 for size in files.values()) + 1
    assert max(map(len, server.names)) <= 128


def test_a_name_that_looks_marked_is_not_given_twice() -> None:
    marked = fit("a b.txt", set())
    names = {fit(marked, taken := set()), fit("a b.txt", taken)}
    assert len(names) == 2


@pytest.mark.parametrize("relative", ["x/" + "a." + "b" * 125, "." * 140, "é" * 200, "a/" + "b" * 200 + ".csv"])
def test_a_long_name_is_one_the_server_takes(relative: str) -> None:
    name = fit(relative, set())
    assert 0 < len(name) <= 128
    assert set(name) != {"."}
