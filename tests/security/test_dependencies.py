"""What the project depends on and which warnings it silences, as far as that can be told without a network."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = [
    ROOT / "app.py",
    *(path for name in ("chalicelib", "cascade", "infra") for path in (ROOT / name).rglob("*.py")),
]


def test_what_is_installed_fits_together() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    function = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    return [*project["dependencies"], *function]


@pytest.mark.parametrize("requirement", requirements())
def test_every_dependency_has_a_bound_on_both_sides(requirement: str) -> None:
    """A version that nobody has tried is not taken, and none so old that its faults are known."""
    assert re.search(r"==", requirement) or (re.search(r">=", requirement) and re.search(r"<\d", requirement))


def test_the_function_carries_nothing_that_the_package_does_not_ask_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    function = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    assert set(function) <= set(project)


def test_security_rules_are_on_and_each_exception_says_why() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    assert not [rule for rule in lint["ignore"] if rule.startswith("S")]
    # Only what is no part of the product is excused as a whole: tests assert, start processes and hold passwords of toys.
    excused = {path for path, rules in lint["per-file-ignores"].items() if any(rule[0] == "S" for rule in rules)}
    assert excused == {"tests/**", "benchmarks/**", "docs/examples/**"}
    silent = []
    for path in PRODUCT:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.search(r"# noqa: [A-Z0-9, ]*\bS\d+(.*)", line)
            # An assertion's message is its reason.
            if found and not re.search(r"[a-z]{2}", found[1]) and not re.search(r'assert .+, "', line):
                silent.append(f"{path.relative_to(ROOT)}:{number}")
    assert not silent
