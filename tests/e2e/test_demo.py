"""`cascade demo` against a live server: a run that ends in every state, and where to look at it."""

import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.server import Server


def demo(server: Server, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**server.env, "CASCADE_URL": server.url, "CASCADE_TOKEN": server.token}
    line = [sys.executable, "-m", "cascade.cli", "demo", *arguments]
    return subprocess.run(line, env=env, cwd=cwd, capture_output=True, text=True, timeout=200)


def test_it_ends_in_every_state_and_says_where_to_look(tmp_path: Path) -> None:
    with Server(tmp_path / "data", CASCADE_HEARTBEAT_TIMEOUT_S="3") as server, server.client() as client:
        done = demo(server, "--speed", "20", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        (run,) = client.get("/api/runs").json()["runs"]
        for state in ("succeeded", "failed", "cancelled", "lost"):
            assert run["counts"][state] >= 1, state
            assert state in done.stdout
        assert run["counts"]["running"] == run["counts"]["queued"] == 0
        assert f"{server.url}/#/runs/{run['id']}" in done.stdout
        addresses = re.findall(rf"{re.escape(server.url)}(/api/\S+)", done.stdout)
        assert len(addresses) > 6
        (timed,) = re.findall(r"/#/sims/(sim-\w+)\?tab=timing", done.stdout)
        timing = client.get(f"/api/sims/{timed}/step-timeline").json()
        assert [step["kind"] for step in timing["simulated"]["steps"]] == ["prefill"] + 15 * ["decode"]
        assert 0 < timing["compare"]["summary"]["wall_ns"]["mean_abs_error_pct"] < 20
        for address in addresses:
            assert client.get(address).status_code == 200, address


def test_without_a_server_it_is_one_line(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "cascade.cli", "demo", "--url", "http://127.0.0.1:1", "--token", "x"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert (done.stdout + done.stderr).count("\n") == 1
    assert "127.0.0.1:1" in done.stdout + done.stderr
