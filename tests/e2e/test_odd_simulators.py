"""Simulators that misbehave, under a real worker and a real server."""

import gzip
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.server import Server
from tests.e2e.test_worker import finish, new_run, start, wait_for

EXIT_CODE = ("--success", "exit-code")


def run(server: Server, client: httpx.Client, folder: Path, program: str, *options: str) -> tuple[str, dict[str, Any]]:
    """A worker's run of a Python program: the sim's id, and the sim as it is at the end."""
    (folder / "simulator.py").write_text(program)
    run_id, (sim,) = new_run(client, [{}])
    line = ["--run", run_id, *EXIT_CODE, *options, "--", sys.executable, str(folder / "simulator.py")]
    _, output = finish(start(server, folder, *line))
    shown = client.get(f"/api/sims/{sim}").json()
    assert shown["state"] in ("succeeded", "failed"), output
    return sim, shown


def lines_of(client: httpx.Client, sim: str) -> list[str]:
    return client.get(f"/api/sims/{sim}/logs", headers={"Accept": "text/plain"}).text.split("\n")[:-1]


def test_one_that_prints_nothing(server: Server, client: httpx.Client, tmp_path: Path) -> None:
    _, shown = run(server, client, tmp_path, "")
    assert (shown["state"], shown["log"]["chunks"]) == ("succeeded", 0)


def test_one_that_closes_its_output_early(server: Server, client: httpx.Client, tmp_path: Path) -> None:
    program = "import os, time, pathlib\nos.write(1, b'one\\n')\nos.close(1); os.close(2)\ntime.sleep(1)\npathlib.Path('late').touch()"
    sim, shown = run(server, client, tmp_path, program)
    assert (shown["state"], lines_of(client, sim)) == ("succeeded", ["one"])
    assert [file["name"] for file in client.get(f"/api/sims/{sim}/files").json()] == ["accelsim.log.gz", "late"]


def test_one_whose_children_outlive_it_is_over_when_it_ends(
    server: Server, client: httpx.Client, tmp_path: Path
) -> None:
    program = (
        "import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid)"
    )
    began = time.monotonic()
    sim, shown = run(server, client, tmp_path, program, "--grace", "1")
    assert time.monotonic() - began < 60
    assert shown["exit_code"] == 0
    (child,) = lines_of(client, sim)
    wait_for(lambda: subprocess.run(["kill", "-0", child], capture_output=True).returncode != 0)


def test_one_that_ignores_sigterm_is_killed_after_the_grace(
    server: Server, client: httpx.Client, tmp_path: Path
) -> None:
    program = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(600)"
    )
    (tmp_path / "simulator.py").write_text(program)
    run_id, (sim,) = new_run(client, [{}])
    line = ["--run", run_id, "--grace", "0.5", "--", sys.executable, str(tmp_path / "simulator.py")]
    worker = start(server, tmp_path, *line)
    wait_for(lambda: client.get(f"/api/sims/{sim}").json()["log"]["lines"] == 1)
    client.post(f"/api/sims/{sim}/cancel")
    assert finish(worker, 60)[0] == 1
    assert client.get(f"/api/sims/{sim}").json()["state"] == "cancelled"


def test_one_that_prints_a_line_of_30_mb(server: Server, client: httpx.Client, tmp_path: Path) -> None:
    sim, shown = run(server, client, tmp_path, "print('x' * 30_000_000)\nprint('after')")
    assert shown["state"] == "succeeded"
    lines = lines_of(client, sim)
    assert lines[-1] == "after"
    assert sum(map(len, lines)) == 30_000_005
    packed = client.get(f"/api/sims/{sim}/files/accelsim.log.gz").content
    assert gzip.decompress(packed) == b"x" * 30_000_000 + b"\nafter\n"


def test_one_whose_output_is_no_text(server: Server, client: httpx.Client, tmp_path: Path) -> None:
    program = "import os\nos.write(1, b'a\\xffb\\x00c\\n10 %\\r20 %\\r\\nlast without an end')"
    sim, _ = run(server, client, tmp_path, program)
    assert lines_of(client, sim) == ["a\ufffdb\x00c", "10 %", "20 %", "last without an end"]


def test_files_that_cannot_be_sent_are_told_and_stop_nothing(
    server: Server, client: httpx.Client, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("not yours")
    program = (
        "import os, pathlib, socket\n"
        f"os.symlink({str(tmp_path / 'secret')!r}, 'link')\n"
        "os.symlink('good.csv', 'inside'); pathlib.Path('good.csv').write_text('x')\n"
        "socket.socket(socket.AF_UNIX).bind('socket'); os.mkfifo('pipe')\n"
        "pathlib.Path('a b').write_text('1'); pathlib.Path('a_b').write_text('2')\n"
    )
    sim, shown = run(server, client, tmp_path, program)
    names = {file["name"] for file in client.get(f"/api/sims/{sim}/files").json()}
    assert {"good.csv", "inside", "a_b", "accelsim.log.gz"} <= names
    assert len(names) == 5
    assert shown["state"] == "succeeded"
    for word in ("link is a link to outside", "socket is no file", "pipe is no file"):
        assert word in shown["error"]


def test_one_file_over_64_mib_is_compressed(server: Server, client: httpx.Client, tmp_path: Path) -> None:
    program = "open('large.bin', 'wb').write(bytes(65 * 1024 * 1024))"
    sim, _ = run(server, client, tmp_path, program)
    files = {file["name"]: file["size"] for file in client.get(f"/api/sims/{sim}/files").json()}
    assert set(files) == {"accelsim.log.gz", "large.bin.gz"} or set(files) == {"large.bin.gz"}
    assert files["large.bin.gz"] < 1024 * 1024
