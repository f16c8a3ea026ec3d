"""Where commands find a token by themselves, and where they must not take one."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cascade.cli import main
from cascade.local import default_token, local_token
from tests.e2e.server import Server


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CASCADE_TOKEN", "CASCADE_URL", "CASCADE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def keep(folder: Path, token: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text(token + "\n")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://127.0.0.2", "http://localhost:9", "http://[::1]:8000", "HTTP://LOCALHOST"]
)
def test_a_server_on_this_machine_is_given_the_token_it_made(tmp_path: Path, url: str) -> None:
    keep(tmp_path / ".cascade", "made-here")
    assert local_token(url) == "made-here"


@pytest.mark.parametrize(
    "url",
    [
        "https://cascade.example.com", "http://10.0.0.1:8000", "http://0.0.0.0:8000", "http://localhost.example.com",
        "http://127.0.0.1.example.com", "http://localhost@example.com", "http://[::1", "127.0.0.1:8000", "",
    ],
)  # fmt: skip
def test_no_other_machine_is_given_it(tmp_path: Path, url: str) -> None:
    keep(tmp_path / ".cascade", "made-here")
    assert local_token(url) is None


def test_the_environment_comes_first_and_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keep(tmp_path / "elsewhere", "other")
    monkeypatch.setenv("CASCADE_DATA_DIR", "elsewhere")
    assert default_token("http://127.0.0.1:8000") == "other"
    monkeypatch.setenv("CASCADE_TOKEN", "said")
    assert default_token("http://127.0.0.1:8000") == "said"
    monkeypatch.delenv("CASCADE_TOKEN")
    monkeypatch.setenv("CASCADE_DATA_DIR", "nowhere")
    assert default_token("http://127.0.0.1:8000") is None


def test_commands_beside_a_local_server_need_no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = Server(tmp_path / ".cascade")
    del server.env["CASCADE_TOKEN"]
    # Nobody else may see it on its way.
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with server:
        monkeypatch.setenv("CASCADE_URL", server.url)
        for arguments in (["runs", "create", "x"], ["runs", "list"]):
            done = CliRunner().invoke(main, arguments)
            assert done.exit_code == 0, done.output
        sim = CliRunner().invoke(main, ["simulate", "--timeline", "real.json", "--sim", "sim-000000000000"])
        assert "real.json" in sim.output, "it went on to read the timeline"


def test_without_a_token_the_error_says_where_it_is() -> None:
    done = CliRunner().invoke(main, ["runs", "list", "--url", "http://127.0.0.1:1"])
    assert done.exit_code == 1
    assert done.output.count("\n") == 1
    for word in ("CASCADE_TOKEN", "--token", ".cascade", "Secrets Manager"):
        assert word in done.output
