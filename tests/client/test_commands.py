"""The command line as people and scripts use it, against a real server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from cascade.cli import main
from cascade.client import Client
from cascade.sample_log import SampleLog
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
    assert [sim["name"] for sim in run["sims"]] == ["a", "#1"]
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
