"""What people see on a terminal of 80 columns: ids are whole, names give way."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cascade.client import Client
from cascade.sample_log import SampleLog
from cascade.tables import terminal_table
from tests.e2e.server import Server

LONG = "config=SM86_RTX3070 trace=rodinia/backprop-rodinia-3.1/4096/results/traces/kernelslist.g"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data")) as running:
        yield running


def on_terminal(server: Server, *arguments: str, columns: int = 80) -> list[str]:
    """The lines that `cascade` prints on a terminal, as they come: longer ones than the terminal stay one."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    env |= {"CASCADE_URL": server.url, "CASCADE_TOKEN": server.token, "TERM": "xterm", "NO_COLOR": "1"}
    line = [sys.executable, "-m", "cascade.cli", *arguments]
    with subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=env) as process:
        os.close(theirs)
        pieces = []
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # what Linux says when the last writer is gone
                break
            if not piece:
                break
            pieces.append(piece)
        process.wait(timeout=60)
    os.close(ours)
    return b"".join(pieces).decode().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()


@pytest.mark.parametrize("columns", [80, 40, 200])
def test_ids_are_whole_however_narrow_the_terminal(server: Server, tmp_path: Path, columns: int) -> None:
    with Client(server.url, server.token) as client:
        run = client.create_run(LONG, [{"name": f"{LONG} {n}"} for n in range(2)])
        client.send_log_chunk(run.sims[0].id, 0, list(SampleLog(kernels=2, names=["_Z" + "k" * 300]).lines()))
        client.heartbeat(run.sims[0].id, "failed", 1, "an error that is as long as an error can be " * 3)
        second = client.create_run("x", [{"name": f"{LONG} {n}"} for n in range(2)])
        client.send_log_chunk(second.sims[0].id, 0, list(SampleLog(kernels=2, names=["_Z" + "k" * 300]).lines()))
        client.upload_file(run.sims[0].id, "n" * 120, b"")
    for arguments, ids in [
        (("runs", "list"), [run.id, second.id]),
        (("runs", "show", run.id), [sim.id for sim in run.sims]),
        (("sims", "show", run.sims[0].id), [run.sims[0].id, run.id]),
    ]:
        lines = on_terminal(server, *arguments, columns=columns)
        for each in ids:
            assert any(each in line.split() for line in lines), (arguments, lines)
        if columns >= 80:
            assert max(map(len, lines[1:])) <= columns, lines  # the first line may be a headline
    for arguments in [
        ("kernels", run.sims[0].id),
        ("compare-runs", run.id, second.id),
        ("files", "ls", run.sims[0].id),
    ]:
        lines = on_terminal(server, *arguments, columns=columns)
        assert len(lines) > 1
        if columns >= 80 and arguments[0] == "kernels":
            assert max(map(len, lines)) <= columns, lines
            assert "…" in lines[1]


def test_watching_a_run_ends_with_it(server: Server) -> None:
    with Client(server.url, server.token) as client:
        run = client.create_run("watched", [{"name": "a"}, {"name": "b"}])
        client.heartbeat(run.sims[0].id, "succeeded", 0)
        client.cancel_run(run.id)
    lines = on_terminal(server, "runs", "show", run.id, "--watch", "--state", "cancelled")
    text = "\n".join(lines)
    assert f"{run.id} watched: 1 succeeded, 1 cancelled" in text
    assert run.sims[1].id in text
    assert run.sims[0].id not in text


def shown(header: Sequence[str], rows: Sequence[Sequence[object]], room: int) -> list[str]:
    table, width = terminal_table(header, rows, room, fold=("name",), cut=("error",))
    out = StringIO()
    Console(file=out, width=max(width, room)).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_names_and_errors_share_what_is_left() -> None:
    rows = [["sim-000000000001", "n" * 30, "e" * 50], ["sim-000000000002", "short", "why"]]
    wide = shown(["sim", "name", "error"], rows, 120)
    assert len(wide) == 3
    assert wide[1] == f"sim-000000000001  {'n' * 30}  {'e' * 50}"
    narrow = shown(["sim", "name", "error"], rows, 40)
    assert [line.split() for line in narrow[1:]] == [
        ["sim-000000000001", "n" * 10, "e" * 9 + "…"], ["n" * 10], ["n" * 10], ["sim-000000000002", "short", "why"],
    ]  # fmt: skip
    assert max(map(len, narrow)) == 40
    least = shown(["sim", "name", "error"], rows, 10)
    assert least[1].split() == ["sim-000000000001", "n" * 8, "e" * 7 + "…"]


def test_a_column_without_a_value_is_left_out() -> None:
    assert shown(["sim", "name", "error"], [["1", "a", ""], ["2", "b", None]], 80) == ["sim  name", "1    a", "2    b"]
    assert shown(["sim", "name", "error"], [], 80) == ["sim  name  error"]
    assert shown(["", " "], [["id", "x"]], 80) == ["id  x"]
