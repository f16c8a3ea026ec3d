"""The example clients of the documentation, each against a live server."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cascade.sample_log import SampleLog
from tests.e2e.server import Server

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLIENTS = {"client.py": [sys.executable], "client.sh": ["bash"], "client.mjs": ["node"]}
LINES = list(SampleLog(kernels=3, seed=9).lines())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data")) as running:
        yield running


def test_every_example_is_run_here() -> None:
    assert {path.name for path in (DOCS / "examples").iterdir()} == set(CLIENTS)


@pytest.mark.parametrize("name", CLIENTS)
def test_an_example_is_a_whole_client(server: Server, tmp_path: Path, name: str) -> None:
    if shutil.which(CLIENTS[name][0]) is None:
        pytest.skip(f"{CLIENTS[name][0]} is not on this machine")
    (tmp_path / "accelsim.log").write_text("\n".join(LINES))
    (tmp_path / "kernel-stats.csv").write_text("a,b\n")
    env = os.environ | {"CASCADE_URL": server.url, "CASCADE_TOKEN": server.token}
    with server.client() as client:
        sim = client.post("/api/runs", json={"name": name, "sims": [{}]}).json()["sims"][0]["id"]
        line = [*CLIENTS[name], str(DOCS / "examples" / name), sim, "accelsim.log", "kernel-stats.csv"]
        done = subprocess.run(line, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "succeeded" in done.stdout
        shown = client.get(f"/api/sims/{sim}").json()
        assert (shown["state"], shown["exit_code"], shown["kernels"]) == ("succeeded", 0, 3)
        assert shown["log"]["missing"] == []
        assert client.get(f"/api/sims/{sim}/logs", headers={"Accept": "text/plain"}).text == "\n".join(LINES) + "\n"
        assert client.get(f"/api/sims/{sim}/files/kernel-stats.csv").text == "a,b\n"


def test_the_python_snippet_works(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_URL", server.url)
    monkeypatch.setenv("CASCADE_TOKEN", server.token)
    page = (DOCS / "bring-your-own-simulator.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    exec(snippet, names)
    with server.client() as client:
        assert client.get(f"/api/sims/{names['sim']}").json()["state"] == "succeeded"
