"""The command line as people and scripts use it, against a real server."""

import csv
import io
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner, Result

from cascade.cli import main
from cascade.client import Client, Unavailable
from cascade.commands_results import _pairs
from cascade.kernels import overlapped
from cascade.sample_log import SampleLog
from cascade.waiting import Progress, until_ended
from chalicelib.models import Counts, RunDetail
from tests.e2e.server import Server

LINES = list(SampleLog(kernels=3, seed=4).lines())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, server.token) as made:
        yield made


@pytest.fixture(autouse=True)
def _environment(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CASCADE_URL", server.url)
    monkeypatch.setenv("CASCADE_TOKEN", server.token)
    monkeypatch.chdir(tmp_path)


def cascade(*arguments: str, code: int = 0, **more: Any) -> Result:
    result = CliRunner().invoke(main, arguments, **more)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(group, click.Group):
        for name, command in group.commands.items():
            yield from commands(command, (*path, name))
    else:
        yield path, group


@pytest.mark.parametrize(
    ("path", "command"), list(commands(main)), ids=lambda v: " ".join(v) if isinstance(v, tuple) else ""
)
def test_help_says_what_it_does_and_shows_an_example(path: tuple[str, ...], command: click.Command) -> None:
    result = cascade(*path, "--help")
    assert f"Example: cascade {' '.join(path)}" in " ".join(result.output.split())
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.is_flag:
            assert parameter.help or parameter.name in ("host", "port", "url"), parameter.name


def test_create_makes_the_product_of_its_params(client: Client, tmp_path: Path) -> None:
    (tmp_path / "traces.txt").write_text("gemm\n# not this\n\nconv\n")
    run = cascade(
        "runs", "create", "sweep", "--param", "config=volta,ampere", "--param", "trace=@traces.txt", "--param", "l2=6"
    )
    sims = client.show_run(run.stdout.strip()).sims
    assert [sim.name for sim in sims] == [
        "config=volta trace=gemm", "config=volta trace=conv", "config=ampere trace=gemm", "config=ampere trace=conv",
    ]  # fmt: skip
    assert client.show_sim(sims[1].id).params == {"config": "volta", "trace": "conv", "l2": 6}


def test_create_without_params_makes_one_sim(client: Client) -> None:
    assert len(client.show_run(cascade("runs", "create", "one").stdout.strip()).sims) == 1


@pytest.mark.parametrize(
    "text",
    [
        "- {name: a, params: {x: 1}}\n- {params: {x: 2}}\n",
        '{"sims": [{"name": "a", "params": {"x": 1}}, {"params": {"x": 2}}]}',
    ],
)
def test_create_reads_yaml_and_json(client: Client, tmp_path: Path, text: str) -> None:
    (tmp_path / "sims.yaml").write_text(text)
    run = json.loads(cascade("runs", "create", "file", "--file", "sims.yaml", "--json").stdout)
    assert [sim["name"] for sim in run["sims"]] == ["a", "x=2"]
    assert client.show_sim(run["sims"][1]["id"]).params == {"x": 2}


def test_create_of_many_sims_goes_in_pieces(client: Client) -> None:
    result = cascade("runs", "create", "many", "--param", "n=" + ",".join(map(str, range(450))))
    run = client.show_run(result.stdout.strip())
    assert [client.show_sim(run.sims[n].id).params["n"] for n in (0, 200, 449)] == [0, 200, 449]
    assert "450 of 450 sims" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--param", "x"], "NAME=VALUE"),
        (["--param", "=1"], "NAME=VALUE"),
        (["--param", "x=@nothing.txt"], "nothing.txt: No such file"),
        (["--param", "x=1", "--param", "x=2"], "given twice"),
        (["--param", "x="], "has no value"),
        (["--param", "x=1,,2"], "value 2 is empty"),
        (["--param", "x=1,1"], "comes twice"),
        (["--param", "x=1", "--file", "bad.yaml"], "give one of"),
        (["--state", "failed"], "goes with --from"),
        (["--from", "run-000000000000", "--state", "dead"], "'dead' is not one of"),
        (["--from", "run-000000000000"], "not found"),
        (["--file", "nothing.yaml"], "nothing.yaml: No such file"),
        (["--file", "bad.yaml"], "bad.yaml"),
        (["--file", "odd.yaml"], "not worker"),
    ],
)
def test_a_wrong_sweep_is_told_in_words(tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "bad.yaml").write_text("{")
    (tmp_path / "odd.yaml").write_text("- {worker: x}")
    result = CliRunner().invoke(main, ["runs", "create", "x", *arguments])
    assert result.exit_code in (1, 2)
    assert words in result.output


@pytest.fixture(scope="module")
def ended(server: Server) -> Iterator[RunDetail]:
    """A run with a sim in each state but lost, the ended ones with params and results."""
    sims = [{"name": name, "params": {"l2": n, "state": "mine", "list": [n]}} for n, name in enumerate("abcd")]
    with Client(server.url, server.token) as made:
        run = made.create_run("ended", [*sims, {"name": "e"}, {"name": "f"}])
        ok, bad, worse, stopped, running, _ = (sim.id for sim in run.sims)
        made.send_log_chunk(ok, 0, LINES)
        made.heartbeat(ok, "succeeded", 0)
        made.heartbeat(bad, "failed", 3, "one, two\nthree")
        made.heartbeat(worse, "failed", -6, "broken")
        made.cancel_sim(stopped)
        made.heartbeat(running)
        yield made.show_run(run.id)


def test_what_failed_runs_again_under_its_name_with_its_params(client: Client, ended: RunDetail) -> None:
    done = cascade("runs", "create", "--from", ended.id)
    again = client.show_run(done.stdout.strip())
    assert again.name == "ended again"
    assert [(sim.name, sim.state) for sim in again.sims] == [("b", "queued"), ("c", "queued")]
    assert [client.show_sim(sim.id).params for sim in again.sims] == [
        {"l2": 1, "state": "mine", "list": [1]}, {"l2": 2, "state": "mine", "list": [2]},
    ]  # fmt: skip
    assert "left out: 1 cancelled; --state failed,lost,cancelled takes the cancelled ones too" in done.stderr
    assert "2 sims queued" in done.stderr
    named = cascade("runs", "create", "mine", "--from", ended.id, "--state", "failed, cancelled")
    assert [sim.name for sim in client.show_run(named.stdout.strip()).sims] == ["b", "c", "d"]
    assert client.show_run(named.stdout.strip()).name == "mine"
    assert "left out" not in named.stderr


def test_where_nothing_failed_there_is_nothing_to_run_again(client: Client, ended: RunDetail) -> None:
    done = cascade("runs", "create", "--from", ended.id, "--state", "lost", code=1)
    assert done.output == (
        f"Error: {ended.id} has no sim that is lost: 1 queued, 1 running, 1 succeeded, 2 failed, 1 cancelled\n"
    )
    stopped = client.create_run("stopped", [{}]).id
    client.cancel_run(stopped)
    assert cascade("runs", "create", "--from", stopped, code=1).output == (
        f"Error: {stopped} has no sim that is failed or lost: 1 cancelled; "
        "--state failed,lost,cancelled takes the cancelled ones too\n"
    )
    cascade("runs", "create", code=2)


def test_a_run_as_csv_has_a_column_for_each_parameter(ended: RunDetail) -> None:
    rows = list(csv.DictReader(io.StringIO(cascade("runs", "show", ended.id, "--csv").stdout)))
    assert list(rows[0]) == [
        "sim", "name", "l2", "param.state", "list", "state", "exit_code", "kernels", "cycles", "instructions", "ipc",
        "started", "finished", "error",
    ]  # fmt: skip
    ok, bad, _, stopped, _, queued = rows
    last = ended.sims[0]
    assert last.tot_sim_insns is not None
    assert last.tot_sim_cycles is not None
    assert (ok["sim"], ok["name"], ok["l2"], ok["list"]) == (last.id, "a", "0", "[0]")
    assert (ok["kernels"], ok["cycles"]) == ("3", str(last.tot_sim_cycles))
    assert float(ok["ipc"]) == pytest.approx(last.tot_sim_insns / last.tot_sim_cycles, abs=1e-4)
    assert (ok["started"], ok["finished"]) == (last.started_at, last.finished_at)
    assert (bad["exit_code"], bad["error"], bad["cycles"], bad["ipc"]) == ("3", "one, two\nthree", "", "")
    assert (stopped["state"], stopped["param.state"]) == ("cancelled", "mine")
    assert (queued["state"], queued["l2"], queued["started"], queued["exit_code"]) == ("queued", "", "", "")
    some = cascade("runs", "show", ended.id, "--csv", "--state", "failed").stdout
    assert [row["name"] for row in csv.DictReader(io.StringIO(some))] == ["b", "c"]
    assert len(json.loads(cascade("runs", "show", ended.id, "--json", "--state", "failed").stdout)["sims"]) == 2
    cascade("runs", "show", ended.id, "--csv", "--json", code=2)
    assert "runs wait" in cascade("runs", "show", ended.id, "--watch", code=2).output


@pytest.mark.parametrize(
    ("ends", "code"), [(("succeeded", "succeeded"), 0), (("succeeded", "failed"), 1), (("cancelled", "succeeded"), 1)]
)
def test_waiting_ends_with_the_last_sim(
    client: Client, monkeypatch: pytest.MonkeyPatch, ends: tuple[str, str], code: int
) -> None:
    run = client.create_run("wait", [{}, {}])
    todo = dict(zip((sim.id for sim in run.sims), ends, strict=True))

    def pass_time(seconds: float) -> None:
        assert 0 < seconds < 10
        sim, end = todo.popitem()
        if end == "cancelled":
            client.cancel_sim(sim)
        else:
            client.heartbeat(sim, end, 0 if end == "succeeded" else 1)

    monkeypatch.setattr("cascade.waiting.sleep", pass_time)
    done = cascade("runs", "wait", run.id, code=code)
    assert not todo
    assert done.stdout.startswith(f"{run.id} wait: ")
    assert ("--from" in done.stderr) == ("failed" in ends)
    assert json.loads(cascade("runs", "wait", run.id, "--json", code=code).stdout)["id"] == run.id


def test_waiting_has_a_timeout(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("cascade.waiting.monotonic", lambda: now)

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("cascade.waiting.sleep", pass_time)
    run = client.create_run("slow", [{}])
    done = cascade("runs", "wait", run.id, "--timeout", "5", code=1)
    assert done.output == f"Error: {run.id} has not ended after 5 s: 1 queued\n"
    assert now == 5


def test_a_server_that_hangs_does_not_stretch_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        done = cascade("runs", "wait", "run-000000000000", "--timeout", "1", "--url", url, "--token", "x", code=1)
        # Without it the first try alone waits for 30 s.
        assert time.monotonic() - begun < 15
    assert "no answer in time" in done.output


def test_a_creation_that_is_cut_says_what_there_is(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Unavailable("no answer in time")

    monkeypatch.setattr(Client, "add_sims", refuse)
    many = ",".join(str(i) for i in range(450))
    done = cascade("runs", "create", "cut", "--param", f"a={many}", code=1)
    run = client.list_runs().runs[0]
    assert run.name == "cut"
    assert f"{run.id} has 200 of 450 sims" in done.output
    assert f"cascade runs delete {run.id}" in done.output


def test_a_lost_sim_is_given_a_minute_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("cascade.waiting.monotonic", lambda: now)

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("cascade.waiting.sleep", pass_time)

    class Server:
        """A run whose lost sim comes back after 30 s and is lost again after 50 s; unreachable for a while then."""

        def show_run(self, run_id: str) -> RunDetail:
            if 52 < now < 58:
                raise Unavailable("no answer in time")
            state = "running" if 30 <= now < 50 else "lost"
            counts = Counts.model_validate({state: 1})
            return RunDetail.model_construct(id=run_id, name="x", created_at="", counts=counts, sims=[])

    seen = [run.counts.lost for run in until_ended(cast(Client, Server()), "run-x")]
    assert 110 <= now < 115
    assert seen == [1] * 15 + [0] * 10 + [1] * (len(seen) - 25)


def test_progress_is_one_line_of_a_terminal_and_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "20")
    for stream, wanted in ((Terminal(), "\r\x1b[2K" + "x" * 19 + "\r\x1b[2K"), (io.StringIO(), "")):
        monkeypatch.setattr("sys.stderr", stream)
        progress = Progress()
        progress.show("x" * 50)
        progress.clear()
        assert stream.getvalue() == wanted


def test_a_server_that_was_never_there_is_not_waited_for() -> None:
    class Nobody:
        def show_run(self, run_id: str) -> RunDetail:
            raise Unavailable("refused")

    with pytest.raises(Unavailable):
        next(until_ended(cast(Client, Nobody()), "run-x"))


def test_cancelling_counts_what_it_cancelled(client: Client) -> None:
    run = client.create_run("cancel twice", [{}, {}, {}])
    first, second, third = (sim.id for sim in run.sims)
    client.heartbeat(first, "succeeded", 0)
    assert cascade("sims", "cancel", first).stdout == f"{first}: had finished already: succeeded\n"
    assert cascade("sims", "cancel", second).stdout == f"{second}: cancelled\n"
    assert cascade("sims", "cancel", second).stdout == f"{second}: had finished already: cancelled\n"
    assert cascade("runs", "cancel", run.id).stdout == f"{run.id}: 1 cancelled; 2 had finished already\n"
    assert cascade("runs", "cancel", run.id).stdout == f"{run.id}: 0 cancelled; 3 had finished already\n"
    assert json.loads(cascade("sims", "cancel", third, "--json").stdout)["state"] == "cancelled"


def test_one_is_one(client: Client) -> None:
    done = cascade("runs", "create", "one", "--param", "x=1")
    assert "1 sim queued" in done.stderr
    assert "with 1 sim, with logs" in cascade("runs", "delete", done.stdout.strip(), input="n\n", code=1).output


def test_a_sim_in_a_pipe_has_no_empty_line(client: Client) -> None:
    sim = client.create_run("one", [{}]).sims[0].id
    assert cascade("sims", "show", sim).stdout.startswith(f"id\t{sim}\n")


def test_list_show_and_cancel(client: Client) -> None:
    run = client.create_run("to cancel", [{}, {}])
    rows = cascade("runs", "list", "--limit", "1").stdout.splitlines()
    assert rows[0].split("\t")[:3] == ["run", "name", "created"]
    assert rows[1].split("\t")[:2] == [run.id, "to cancel"]
    assert json.loads(cascade("runs", "list", "--limit", "1", "--json").stdout)[0]["id"] == run.id
    client.heartbeat(run.sims[0].id, "failed", 3, "broken\x1b[31m")
    shown = cascade("runs", "show", run.id, "--state", "failed").stdout.splitlines()
    assert len(shown) == 2
    assert shown[1].split("\t")[6:] == ["3", "broken\ufffd[31m"]
    assert json.loads(cascade("runs", "cancel", run.id, "--json").stdout)["counts"]["cancelled"] == 1
    assert "failed" in cascade("sims", "show", run.sims[0].id, code=1).stdout
    assert json.loads(cascade("sims", "show", run.sims[1].id, "--json", code=1).stdout)["state"] == "cancelled"


def test_delete_asks_first(client: Client) -> None:
    run = client.create_run("to delete", [{}])
    cascade("runs", "delete", run.id, code=1, input="n\n")
    assert client.show_run(run.id).name == "to delete"
    cascade("runs", "delete", run.id, "--yes")
    cascade("runs", "show", run.id, code=1)


def test_logs_kernels_and_files(client: Client, tmp_path: Path) -> None:
    sim = client.create_run("results", [{}]).sims[0].id
    client.send_log_chunk(sim, 0, LINES[:100])
    client.send_log_chunk(sim, 1, LINES[100:])
    assert cascade("logs", sim).stdout.splitlines() == LINES
    assert cascade("logs", sim, "--tail", "2").stdout.splitlines() == LINES[-2:]
    chunks = [json.loads(line) for line in cascade("logs", sim, "--json").stdout.splitlines()]
    assert chunks == [{"seq": 0, "lines": LINES[:100]}, {"seq": 1, "lines": LINES[100:]}]
    (last,) = cascade("logs", sim, "--json", "--tail", "2").stdout.splitlines()
    assert json.loads(last) == {"seq": 1, "lines": LINES[-2:]}
    rows = cascade("kernels", sim).stdout.splitlines()
    assert len(rows) == 4
    found = json.loads(cascade("kernels", sim, "--json").stdout)
    assert [kernel["index"] for kernel in found] == [0, 1, 2]
    assert found[0]["stats"]
    (tmp_path / "a.csv").write_bytes(b"a,b\n")
    assert cascade("files", "put", sim, "a.csv").stdout == "a.csv: 4 bytes\n"
    assert cascade("files", "ls", sim).stdout.splitlines()[1].split("\t")[:3] == ["a.csv", "4", "text/csv"]
    cascade("files", "get", sim, "a.csv", "-o", "b.csv")
    assert (tmp_path / "b.csv").read_bytes() == b"a,b\n"
    cascade("files", "put", sim, "nothing", code=1)
    cascade("files", "get", sim, "nothing", code=1)
    assert not list(tmp_path.glob(".*part"))


def retried(seed: int = 4) -> list[str]:
    """A log of two attempts: the first died after two of its three kernels."""
    first = list(SampleLog(kernels=2, seed=seed).lines())[:-2]
    return first + list(SampleLog(kernels=3, seed=seed).lines())


def test_the_kernels_of_a_sim_that_was_started_again_say_of_which_attempt_they_are(client: Client) -> None:
    sim = client.create_run("again", [{}]).sims[0].id
    client.send_log_chunk(sim, 0, retried())
    done = cascade("kernels", sim)
    header, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert header == ["index", "attempt", "kernel", "uid", "cycles", "IPC", "occupancy %", "note"]
    assert [row[1] for row in rows] == ["1", "1", "2", "2", "2"]
    assert "started 2 times; attempt 2 counts" in done.stderr
    assert [k["attempt"] for k in json.loads(cascade("kernels", sim, "--json").stdout)] == [1, 1, 2, 2, 2]


def test_rows_of_kernels_that_overlapped_are_marked(client: Client) -> None:
    sample = SampleLog(kernels=6, seed=1, streams=3, concurrent=True)
    sim = client.create_run("overlap", [{}]).sims[0].id
    client.send_log_chunk(sim, 0, list(sample.lines()))
    wanted = overlapped(list(client.kernels(sim)))
    assert any(wanted)
    done = cascade("kernels", sim)
    header, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert "attempt" not in header
    assert [row[-1] == "overlapped" for row in rows] == wanted
    assert "not the kernel's own duration" in done.stderr
    assert [k["overlapped"] for k in json.loads(cascade("kernels", sim, "--json").stdout)] == wanted


def test_following_a_log_ends_with_the_sim(client: Client) -> None:
    sim = client.create_run("follow", [{}]).sims[0].id
    client.send_log_chunk(sim, 0, ["one"])
    client.heartbeat(sim, "succeeded", 0)
    assert cascade("logs", sim, "-f").stdout == "one\n"


def test_two_runs_side_by_side(client: Client) -> None:
    runs = []
    for seed in (4, 4):
        run = client.create_run("compare", [{"name": "a"}])
        client.send_log_chunk(run.sims[0].id, 0, list(SampleLog(kernels=3, seed=seed).lines()))
        runs.append(run.id)
    rows = json.loads(cascade("compare-runs", *runs, "--json").stdout)
    assert [row["cycles"]["change_pct"] for row in rows] == [0, 0, 0]
    assert all(row["cycles"]["first"] == row["cycles"]["second"] > 0 for row in rows)
    assert cascade("compare-runs", *runs).stdout.splitlines()[1].split("\t")[5] == "+0.00 %"


def test_kernels_are_compared_by_name_and_turn_in_the_last_attempt(client: Client) -> None:
    names = ("first", "second", "third")
    logs = [
        list(SampleLog(kernels=3, seed=4, names=names).lines()),
        list(SampleLog(kernels=3, seed=4, names=("second", "first", "new")).lines()),
    ]
    logs[0] = list(SampleLog(kernels=2, seed=9, names=names).lines())[:-2] + logs[0]
    runs = []
    for lines, sims in zip(logs, ([{"name": "a"}, {"name": "lonely"}], [{"name": "a"}]), strict=True):
        run = client.create_run("compare", sims)
        client.send_log_chunk(run.sims[0].id, 0, lines)
        runs.append(run)
    ids = [run.id for run in runs]
    done = cascade("compare-runs", *ids, "--json")
    rows = json.loads(done.stdout)
    assert [(row["kernel"], row["index"], row["only"]) for row in rows] == [
        ("first", 2, None), ("second", 3, None), ("third", 4, "first"), ("new", 2, "second"),
    ]  # fmt: skip
    of = [{k.name: k.sim_cycles for k in list(client.kernels(run.sims[0].id))[-3:]} for run in runs]
    for row in rows:
        assert row["cycles"]["first"] == of[0].get(row["kernel"])
        assert row["cycles"]["second"] == of[1].get(row["kernel"])
        assert (row["cycles"]["change_pct"] is None) == bool(row["only"])
    assert f"note: 1 sim of {ids[0]} without a partner" in done.stderr
    assert f"{runs[0].sims[0].id} was started again: 2 kernels of its earlier attempts left out" in done.stderr
    assert cascade("compare-runs", *ids).stdout.splitlines()[-1].endswith("\tonly in second")


def test_sims_are_paired_by_a_name_that_is_there_once_and_else_by_place(client: Client) -> None:
    first = client.create_run("x", [{"name": n} for n in ("a", "b", "b", "c")])
    second = client.create_run("y", [{"name": n} for n in ("c", "b", "z", "a", "more")])
    found = [(one.name, two.name, second.sims.index(two)) for one, two in _pairs(first, second)]
    assert found == [("a", "a", 3), ("b", "b", 1), ("b", "z", 2), ("c", "c", 0)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("runs", "show", "run-000000000000"),
        ("sims", "cancel", "sim-000000000000"),
        ("logs", "sim-000000000000"),
        ("kernels", "x"),
    ],
)
def test_what_is_not_there_is_one_line_and_exit_code_1(arguments: tuple[str, ...]) -> None:
    result = cascade(*arguments, code=1)
    assert result.output.count("\n") == 1
    assert result.output.startswith("Error: ")
    assert "not found" in result.output


@pytest.mark.parametrize("options", [["--token", "wrong"], ["--token", ""], ["--url", "ftp://x"], ["--url", "nothing"]])
def test_a_wrong_token_or_url_says_what_to_set(options: list[str]) -> None:
    result = cascade("runs", "list", *options, code=1)
    assert result.output.count("\n") == 1
    assert "CASCADE_TOKEN" in result.output or "CASCADE_URL" in result.output


def test_shell_completion_is_there() -> None:
    result = CliRunner().invoke(main, [], env={"_CASCADE_COMPLETE": "bash_source"}, prog_name="cascade")
    assert "_cascade_completion" in result.output
