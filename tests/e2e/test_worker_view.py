"""What a person at a terminal sees while `cascade worker` runs."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cascade.sample_log import SampleLog
from cascade.worker.view import Rate
from tests.e2e.server import Server

KERNELS = 4
# All but the last kernel, a pause in which the table is looked at, the rest.
SIMULATOR = """\
import sys, time
lines = open(sys.argv[1]).readlines()
start = [n for n, line in enumerate(lines) if line.startswith("launching kernel")][-1]
print("".join(lines[:start]), end="", flush=True)
time.sleep(3)
print("".join(lines[start:]), end="", flush=True)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data")) as running:
        yield running


def on_a_terminal(line: list[str], env: dict[str, str], folder: Path) -> tuple[int, str]:
    """Exit code, and all that was written to a terminal of 160 columns."""
    master, terminal = pty.openpty()
    env = {**env, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    process = subprocess.Popen(line, env=env, cwd=folder, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    shown, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([master], [], [], 0.2)[0]:
            continue
        try:
            shown += os.read(master, 65536)
        except OSError:  # Linux's way to say that nobody has the other end any more
            break
    os.close(master)
    return process.wait(30), shown.decode()


def test_a_table_of_the_sims_under_way_is_shown_and_taken_away(server: Server, tmp_path: Path) -> None:
    (tmp_path / "accelsim.log").write_text("\n".join(SampleLog(kernels=KERNELS, seed=3).lines()) + "\n")
    (tmp_path / "simulator.py").write_text(SIMULATOR)
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "kernelslist.g").write_text("".join(f"kernel-{n}.traceg\n" for n in range(KERNELS)))
    with server.client() as client:
        run = client.post("/api/runs", json={"name": "seen", "sims": [{"name": "volta 4MB"}]}).json()
    sim = run["sims"][0]["id"]
    line = [sys.executable, "-m", "cascade.cli", "worker", "--run", run["id"], "--", sys.executable]
    env = {
        **server.env,
        "CASCADE_URL": server.url,
        "CASCADE_TOKEN": server.token,
        "CASCADE_SPOOL_DIR": str(tmp_path / "spool"),
    }
    code, shown = on_a_terminal([*line, "./simulator.py", "./accelsim.log", "-trace", "./trace"], env, tmp_path)
    assert code == 0, shown
    rows = [" ".join(row.split()) for row in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown))]
    assert "sim name state kernels cycles log last beat" in rows
    running = [row for row in rows if row.startswith(f"{sim} volta 4MB running ")]
    assert any(
        re.fullmatch(rf"{sim} volta 4MB running 3 of 4 [0-9,]+ \d\.\d MB, \d+\.\d\d MB/s \d s ago", row)
        for row in running
    ), running
    assert sum(row.startswith(f"{sim} volta 4MB: succeeded, 4 of 4 kernels finished, ") for row in rows) == 1
    assert "\x1b[2K" in shown.rpartition("last beat")[2], "the table is wiped at the end"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate(0.0, 5_000_000)  # what an earlier worker had is no growth
    assert rate.at(2.0, 9_000_000) == pytest.approx(2.0)
    for second in range(3, 60):
        assert rate.at(float(second), 9_000_000) <= 2.0
    assert rate.at(60.0, 9_000_000) == 0.0
    assert rate.at(65.0, 10_000_000) == pytest.approx(0.1)
