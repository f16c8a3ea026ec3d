"""What `docs/on-a-cluster.md` tells people to write: its scripts are run, its unit is checked."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from cascade.cli import main
from cascade.sample_log import SampleLog
from tests.e2e.server import Server
from tests.e2e.test_worker import finish, new_run, wait_for

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "on-a-cluster.md").read_text(encoding="utf-8")
LINES = list(SampleLog(kernels=2, seed=5).lines())


def block(start: str) -> str:
    """The only block of the page that begins so."""
    (found,) = [text for text in re.findall(r"```\w+\n(.*?)```", PAGE, re.DOTALL) if text.startswith(start)]
    return str(found)


JOB = block("#!/bin/bash")


@pytest.fixture
def home(tmp_path: Path, server: Server) -> Path:
    """A home as the page supposes it, with a simulator that ends only when it is started a second time."""
    (tmp_path / "cascade" / ".venv" / "bin").mkdir(parents=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    os.symlink(Path(sys.executable).parent / "cascade", programs / "cascade")
    (tmp_path / "cascade" / ".venv" / "bin" / "activate").write_text(f"PATH={programs}:$PATH\n")
    (tmp_path / "cascade.env").write_text(f"export CASCADE_URL={server.url} CASCADE_TOKEN={server.token}\n")
    (tmp_path / "accelsim.log").write_text("\n".join(LINES) + "\n")
    simulator = programs / "accel-sim.out"
    simulator.write_text(
        f'#!/bin/sh\necho attempt $CASCADE_ATTEMPT "$@"\n[ $CASCADE_ATTEMPT = 1 ] && exec sleep 600\ncat {tmp_path}/accelsim.log\n'
    )
    simulator.chmod(0o755)
    return tmp_path


def submit(home: Path, run: str) -> subprocess.Popen[str]:
    """The script as Slurm starts it: the shell is the process that is told to stop."""
    (home / "job.sh").write_text(JOB)
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "RUN": run}
    return subprocess.Popen(
        ["bash", str(home / "job.sh")],
        env=env,
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_slurm_job_survives_a_preemption(server: Server, client: httpx.Client, home: Path) -> None:
    run, (sim,) = new_run(client, [{"params": {"trace": "gemm", "config": "volta"}}])
    job = submit(home, run)
    wait_for(lambda: client.get(f"/api/sims/{sim}").json()["log"]["lines"] > 0)
    job.send_signal(signal.SIGTERM)
    code, output = finish(job, 30)
    assert code == 1, output
    assert client.get(f"/api/sims/{sim}").json()["state"] in ("running", "lost")
    code, output = finish(submit(home, run))
    assert code == 0, output
    assert client.get(f"/api/sims/{sim}").json()["state"] == "succeeded"
    log = client.get(f"/api/sims/{sim}/logs", headers={"Accept": "text/plain"}).text
    assert "attempt 1 -trace gemm -config volta" in log
    assert "attempt 2 -trace gemm -config volta" in log


def test_the_slurm_job_asks_for_a_signal_that_reaches_the_worker() -> None:
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?", JOB, re.MULTILINE))
    # Without B: all steps are signalled, but not the batch shell, and this job has no steps.
    assert re.fullmatch(r"B:TERM@\d+", options["signal"])
    assert {"requeue", "mem", "output", "time", "array"} <= set(options)
    assert re.search(r"^exec cascade worker ", JOB, re.MULTILINE)  # the shell's place is the worker's


def test_options_that_the_page_names_exist() -> None:
    known = {name for parameter in main.commands["worker"].params for name in parameter.opts}
    for text in (JOB, block("[Unit]"), block("docker run")):
        called = text[text.index("worker ") :].replace("\\\n", " ").partition("\n")[0].partition(" -- ")[0]
        for name in re.findall(r"(?<= )--[a-z-]+", called):
            assert name in known, name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_systemd_unit_is_one(tmp_path: Path) -> None:
    unit = block("[Unit]").replace("/opt/cascade/bin/cascade", "/bin/true").replace("User=cascade", "User=root")
    path = tmp_path / "cascade-worker.service"
    path.write_text(unit)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=60
    )
    assert "cascade-worker.service" not in done.stdout + done.stderr


@pytest.mark.parametrize(("host", "here"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_a_server_on_all_addresses_says_how_others_reach_it(tmp_path: Path, host: str, here: str) -> None:
    if host == "::" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    server = Server(tmp_path / "data")
    server.arguments += ["--host", host]
    server.launch()
    try:
        assert server.process.stdout is not None
        said = [server.process.stdout.readline() for _ in range(3)]
        (port,) = re.findall(rf"at http://{re.escape(socket.gethostname())}:(\d+),", said[0])
        assert said[1] == f"export CASCADE_URL=http://{socket.gethostname()}:{port}\n"
        assert said[2] == "plain HTTP: for a trusted network, or behind a proxy with TLS\n"
        assert httpx.get(f"http://{here}:{port}/api/health").status_code == 200
    finally:
        server.stop()
