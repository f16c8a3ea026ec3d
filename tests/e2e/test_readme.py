"""What the README tells a newcomer to type is what works."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from chalicelib import openapi
from tests.e2e.server import Server

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_curl_calls_answer_as_shown(tmp_path: Path) -> None:
    _, create, report = BLOCKS[:3]
    with Server(tmp_path / "data") as server:
        env = os.environ | {"CASCADE_URL": server.url, "CASCADE_TOKEN": server.token}

        def typed(script: str) -> str:
            line = ["bash", "-euo", "pipefail", "-c", script.replace("curl ", "curl --silent --show-error --fail ")]
            return subprocess.run(line, env=env, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

        sim = json.loads(typed(create))["sims"][0]["id"]
        assert "SIM=sim-..." in report
        answers = typed(report.replace("SIM=sim-...", f"SIM={sim}"))
        decoder, shown, at = json.JSONDecoder(), [], 0
        while at < len(answers):
            value, at = decoder.raw_decode(answers, at)
            shown.append(value)
    ack, file, last, detail = shown
    assert ack == {"state": "running", "cancel": False}
    assert (file["name"], file["size"], file["content_type"]) == ("kernel-stats.csv", 14, "text/csv")
    assert last == {"state": "succeeded", "cancel": False}
    assert (detail["state"], detail["exit_code"]) == ("succeeded", 0)
    assert detail["log"]["lines"] == 1
    assert detail["files"] == {"count": 1, "bytes": 14}


def test_the_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text() + "".join(path.read_text() for path in ROOT.glob("*.mk"))
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for page in PAGES:
        for command in re.findall(r"\bmake ([a-z][a-z-]+)\b(?=[^a-z]*(?:`|#|$|[A-Z]))", page.read_text(), re.MULTILINE):
            assert command in targets, f"{page.name}: make {command}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_layout_names_what_is_there() -> None:
    layout = next(block for block in BLOCKS if "app.py" in block)
    for name in re.findall(r"^(\S+)", layout, re.MULTILINE):
        assert (ROOT / name).exists(), name


def test_the_api_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version == openapi.VERSION


def test_the_tests_that_the_guarantees_name_exist() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    named = re.findall(r"`(tests/[^`:]+)(?:::(\w+))?`", page)
    assert len(named) > 20
    for path, function in named:
        assert (ROOT / path).exists(), path
        assert not function or f"def {function}(" in (ROOT / path).read_text(), f"{path}::{function}"
