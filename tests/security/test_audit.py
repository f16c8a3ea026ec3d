"""The audit against a copy of the advisory database, on small advisories that are made up."""

import subprocess
import sys
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra import audit

TODAY = date(2026, 1, 31)


def advisory(folder: Path, name: str = "Some.Package", **fields: Any) -> Path:
    """A file of the database in `folder`; `fields` are those of the file, or of its one affected package."""
    part = {key: fields.pop(key) for key in ("versions", "ranges") if key in fields}
    found: dict[str, Any] = {
        "id": "PYSEC-2026-1",
        "modified": "2026-01-30T10:00:00Z",
        "published": "2026-01-01T10:00:00Z",
        "aliases": ["CVE-2026-1", "GHSA-aaaa-bbbb-cccc"],
        "details": "It fails.\n\nIn two lines.",
        "affected": [{"package": {"ecosystem": "PyPI", "name": name}, **part}],
    } | fields
    path = folder / "vulns" / "some-package" / f"{found['id']}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(found))
    return path


def events(*pairs: tuple[str, Any], kind: str = "ECOSYSTEM") -> list[dict[str, Any]]:
    return [{"type": kind, "events": [{key: value} for key, value in pairs]}]


def package(version: str, name: str = "some-package", group: str = "run") -> audit.Package:
    return audit.Package(name, version, group)


@pytest.fixture
def affected(tmp_path: Path) -> Any:
    """Whether an advisory with these fields is one for a version."""

    def ask(version: str, **fields: Any) -> bool:
        return audit.read_advisory(advisory(tmp_path, **fields)).affects(package(version))

    return ask


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.1", False),
        ("1.0rc1", False),
        ("1.0", True),
        ("1.4.1", True),
        ("1.5rc1", True),
        ("1.5", False),
        ("1.5.post1", False),
        ("1.9", False),
        ("2.0", True),
        ("2.3", True),
        ("2.3.1", False),
        ("3.0", True),
        ("9.9", True),
    ],
)
def test_ranges_begin_at_introduced_and_end_before_fixed_or_after_last_affected(
    affected: Any, version: str, expected: bool
) -> None:
    # In an order that is not that of the versions, as in the database.
    pairs = [("introduced", "2.0"), ("last_affected", "2.3"), ("introduced", "3.0"), ("introduced", "1.0")]
    ranges = events(*pairs, ("fixed", "1.5"))
    assert affected(version, ranges=ranges) is expected


@pytest.mark.parametrize("version", ["0.0.dev0", "0a1", "0", "1.4"])
def test_introduced_at_0_is_the_first_version_there_was(affected: Any, version: str) -> None:
    assert affected(version, ranges=events(("introduced", "0"), ("fixed", "1.5")))


@pytest.mark.parametrize(("version", "expected"), [("1.9", True), ("2.0", True), ("2.0.1", False)])
def test_what_is_fixed_and_introduced_in_one_version_is_affected_there(
    affected: Any, version: str, expected: bool
) -> None:
    ranges = events(("introduced", "2.0"), ("fixed", "2.0.1"), ("introduced", "0"), ("fixed", "2.0"))
    assert affected(version, ranges=ranges) is expected


@pytest.mark.parametrize(("version", "expected"), [("1.9", False), ("2.0", True), ("2.0.1", False)])
def test_what_is_introduced_and_last_affected_in_one_version_is_affected_there(
    affected: Any, version: str, expected: bool
) -> None:
    assert affected(version, ranges=events(("last_affected", "2.0"), ("introduced", "2.0"))) is expected


def test_each_of_several_ranges_counts(affected: Any) -> None:
    ranges = events(("introduced", "1.0"), ("fixed", "1.1")) + events(("introduced", "2.0"), ("fixed", "2.1"))
    assert [affected(version, ranges=ranges) for version in ("1.0", "1.1", "2.0", "2.1")] == [True, False] * 2


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.0", True), ("1.0.0", True), ("1.1", False), ("1.2-odd", True), ("1.3-odd", False), ("1.0+cu118", True)],
)
def test_listed_versions_are_affected_however_they_are_written(affected: Any, version: str, expected: bool) -> None:
    assert affected(version, versions=["1.0", "1.2-odd"]) is expected


def test_listed_versions_and_ranges_add_up(affected: Any) -> None:
    fields = {"versions": ["1.0"], "ranges": events(("introduced", "2.0"), ("fixed", "2.1"))}
    assert [affected(version, **fields) for version in ("1.0", "1.5", "2.0", "2.1")] == [True, False, True, False]


def test_a_version_of_a_builder_of_its_own_is_as_fixed_as_the_public_one(affected: Any) -> None:
    ranges = events(("introduced", "0"), ("last_affected", "1.0"))
    assert affected("1.0+cu118", ranges=ranges)
    assert not affected("1.0.1+cu118", ranges=ranges)


@pytest.mark.parametrize(
    ("pairs", "version", "expected"),
    [
        # An end that can't be read is none.
        ([("introduced", "1.0"), ("fixed", "2019-09-12x")], "9.0", True),
        ([("introduced", "1.0"), ("fixed", "2019-09-12x")], "0.9", False),
        ([("introduced", "1.0"), ("last_affected", "0.2.0-n653")], "9.0", True),
        # A beginning that can't be read is the first version.
        ([("introduced", "first one"), ("fixed", "2.0")], "0.1", True),
        ([("introduced", "first one"), ("fixed", "2.0")], "2.0", False),
        # What an event of another kind says is not known.
        ([("introduced", "1.0"), ("limit", "2.0")], "3.0", True),
        # Nor is where an installed version is that can't be read.
        ([("introduced", "1.0"), ("fixed", "2.0")], "1.2-odd", True),
    ],
)
def test_what_cannot_be_compared_counts_as_affected(affected: Any, pairs: Any, version: str, expected: bool) -> None:
    assert affected(version, ranges=events(*pairs)) is expected


def test_commits_are_not_versions(affected: Any) -> None:
    commits = events(("introduced", "0"), ("fixed", "4e98d57809dacab1"), kind="GIT")
    assert not affected("1.0", ranges=commits)
    assert affected("1.0", ranges=commits + events(("introduced", "0"), ("fixed", "1.1")))


def test_an_advisory_that_was_withdrawn_is_none(affected: Any) -> None:
    fields = {"versions": ["1.0"]}
    assert affected("1.0", **fields)
    assert not affected("1.0", withdrawn="2026-01-02T00:00:00Z", **fields)


@pytest.mark.parametrize("name", ["some-package", "Some_Package", "SOME.package"])
def test_names_are_compared_normalised(tmp_path: Path, name: str) -> None:
    found = audit.read_advisory(advisory(tmp_path, name, versions=["1.0"]))
    assert found.affects(package("1.0"))
    assert not found.affects(package("1.0", "some-package-2"))


def test_another_ecosystem_has_other_packages(tmp_path: Path) -> None:
    part = {"package": {"ecosystem": "npm", "name": "some-package"}, "versions": ["1.0"]}
    assert not audit.read_advisory(advisory(tmp_path, affected=[part])).affects(package("1.0"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"summary": "Short."}, "Short."),
        ({}, "It fails. In two lines."),
        ({"details": "word " * 100}, "word " * 31 + "..."),
        ({"details": ""}, "no summary"),
    ],
)
def test_a_summary_is_one_line(tmp_path: Path, fields: dict[str, Any], expected: str) -> None:
    assert audit.read_advisory(advisory(tmp_path, **fields)).summary == expected


def test_an_advisory_is_as_old_as_its_publication_or_else_its_last_change(tmp_path: Path) -> None:
    assert audit.read_advisory(advisory(tmp_path)).published == date(2026, 1, 1)
    assert audit.read_advisory(advisory(tmp_path, published=None)).published == date(2026, 1, 30)
    # Without quotes YAML makes a time of it.
    path = advisory(tmp_path)
    path.write_text(path.read_text().replace("'2026-01-01T10:00:00Z'", "2026-01-01T10:00:00Z"))
    assert audit.read_advisory(path).published == date(2026, 1, 1)


def test_a_report_tells_how_much_was_looked_at_how_old_it_is_and_each_hit(tmp_path: Path) -> None:
    ranges = events(("introduced", "0"), ("fixed", "1.1"), ("introduced", "2"), ("fixed", "2.1"))
    advisory(tmp_path, ranges=ranges)
    advisory(tmp_path, id="PYSEC-2026-2", published="2026-01-20T00:00:00Z", aliases=None, versions=["1.0"])
    advisory(tmp_path, id="PYSEC-2026-3", withdrawn="2026-01-02T00:00:00Z", versions=["1.0"])
    advisory(tmp_path, "other", id="PYSEC-2026-4", versions=["1.0"])
    looked = [package("1.0"), package("1.0", "third"), package("1.1", group="dev"), package("2", group="lowest")]
    lines, hits = audit.report(audit.read_database(tmp_path), looked, TODAY)
    assert lines == [
        "database: 4 advisories on 2 packages, 1 of them withdrawn",
        "newest: PYSEC-2026-2 of 2026-01-20, 11 days ago",
        "run: 2 packages, 3 advisories on them, hits: 2",
        "  some-package 1.0: PYSEC-2026-1, CVE-2026-1, GHSA-aaaa-bbbb-cccc; fixed in 1.1, 2.1",
        "    It fails. In two lines.",
        "  some-package 1.0: PYSEC-2026-2; fixed in no version",
        "    It fails. In two lines.",
        "dev: 1 packages, 3 advisories on them, hits: 0",
        "lowest: 1 packages, 3 advisories on them, hits: 1",
        "  some-package 2: PYSEC-2026-1, CVE-2026-1, GHSA-aaaa-bbbb-cccc; fixed in 1.1, 2.1",
        "    It fails. In two lines.",
        "hits in all: 3",
    ]
    assert hits == 3


@pytest.mark.parametrize("name", ["PYSEC-2026-1", "CVE-2026-1"])
def test_what_is_accepted_is_told_with_the_reason_and_is_no_hit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(audit, "ACCEPTED", {("some-package", "1.0", name): "it is not called"})
    advisory(tmp_path, versions=["1.0", "1.1"])
    advisories = audit.read_database(tmp_path)
    lines, hits = audit.report(advisories, [package("1.0")], TODAY)
    assert lines[2:6] == [
        "run: 1 packages, 1 advisories on them, hits: 0",
        "  some-package 1.0: PYSEC-2026-1, CVE-2026-1, GHSA-aaaa-bbbb-cccc; fixed in no version",
        "    It fails. In two lines.",
        "    accepted: it is not called",
    ]
    assert hits == 0
    assert audit.report(advisories, [package("1.1")], TODAY)[1] == 1


def test_nothing_is_accepted_for_a_version_that_is_no_longer_installed() -> None:
    there = {(canonicalize_name(one.metadata["Name"]), one.version) for one in metadata.distributions()}
    assert {(name, version) for name, version, _ in audit.ACCEPTED} <= there
    assert all(len(reason) > 40 for reason in audit.ACCEPTED.values())


def test_a_requirement_installs_what_it_needs_in_turn_for_this_machine_with_its_extras() -> None:
    there = audit.installed()
    names = audit.needed([Requirement("moto[dynamodb]"), Requirement("Moto")], there)
    assert {"moto", "docker", "requests", "urllib3"} <= names  # docker is the extra's
    assert "docker" not in audit.needed([Requirement("moto")], there)
    assert "colorama" not in audit.needed([Requirement("click")], there)  # of Windows


def distribution(folder: Path, name: str, version: str, *requires: str) -> None:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    (folder / f"{name}-{version}.dist-info").mkdir()
    path = folder / f"{name}-{version}.dist-info" / "METADATA"
    path.write_text("\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires), ""]))


def test_packages_that_need_each_other_are_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "first", "1", "second[extra]")
    distribution(tmp_path, "second", "1", "First", "third; extra == 'extra'")
    distribution(tmp_path, "third", "1")
    monkeypatch.syspath_prepend(tmp_path)
    assert audit.needed([Requirement("first")], audit.installed()) == {"first", "second", "third"}


def test_of_two_with_a_name_the_one_that_is_imported_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, "NumPy", "0.0.1")
    monkeypatch.syspath_prepend(tmp_path)
    assert audit.installed()["numpy"].version == "0.0.1"


def test_a_requirement_that_is_not_installed_is_told() -> None:
    with pytest.raises(audit.UnreadableError, match="not-there is not installed"):
        audit.needed([Requirement("Not_There>=1")], audit.installed())


def test_the_lowest_version_is_that_of_the_lower_bound() -> None:
    wanted = map(Requirement, ["One.Name>=1.2,<2", "two==3.0.*", "three~=4.1", "four<5", "five"])
    assert [(one.name, one.version) for one in audit.lowest(wanted)] == [
        ("one-name", "1.2"),
        ("two", "3.0"),
        ("three", "4.1"),
    ]


def test_a_package_without_a_name_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "METADATA").write_text("Version: 1.0\n")
    monkeypatch.setattr(metadata, "distributions", lambda: [metadata.PathDistribution(tmp_path)])
    with pytest.raises(audit.UnreadableError, match="has no name"):
        audit.installed()


def test_all_that_the_project_asks_for_is_looked_at() -> None:
    packages = audit.audited(audit.ROOT / "pyproject.toml")
    groups = {group: {one.name for one in packages if one.group == group} for group in ("run", "dev", "lowest")}
    assert {"ministack", "botocore", "urllib3", "pip", "setuptools"} <= groups["run"]
    assert {"pytest", "mypy", "moto"} <= groups["dev"]
    assert {"setuptools", "numpy", "ruff"} <= groups["lowest"]
    assert not groups["run"] & groups["dev"]
    assert "cascade-sim" not in groups["run"] | groups["dev"]


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infra.audit", str(folder)]
    return subprocess.run(command, cwd=audit.ROOT, capture_output=True, text=True, check=False)


def test_the_command_ends_with_1_on_a_hit_and_0_without(tmp_path: Path) -> None:
    version = metadata.version("numpy")
    advisory(tmp_path, "numpy", versions=["0.0.1"])
    done = run(tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "hits in all: 0")
    advisory(tmp_path, "NumPy", versions=[version])
    done = run(tmp_path)
    assert done.returncode == 1
    assert f"  numpy {version}: PYSEC-2026-1" in done.stdout


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "- 1",
        "a: [",
        "id: PYSEC-2026-1",
        "{id: 1, published: soon, affected: []}",
        "{id: 1, published: 2026-01-01, affected: [{package: {name: a}}]}",
        "{id: 1, published: 2026-01-01, affected: [{package: {name: a, ecosystem: PyPI}, ranges: [{type: SEMVER}]}]}",
        "{id: 1, published: 2026-01-01, affected: [{package: {ecosystem: PyPI}}]}",
        "{id: 1, published: 2026-01-01, "
        "affected: [{package: {name: a, ecosystem: PyPI}, ranges: [{type: ECOSYSTEM, events: [1]}]}]}",
    ],
)
def test_the_command_ends_with_2_on_a_database_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    if content is not None:
        advisory(tmp_path)  # one that can be read is not enough
        (tmp_path / "vulns" / "some-package" / "PYSEC-2026-9.yaml").write_text(content)
    assert audit.main([str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("audit: ")
    assert ("PYSEC-2026-9.yaml" in err) == (content is not None)


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        audit.main(["--help"])
    assert "make audit ADVISORIES=../advisory-database" in capsys.readouterr().out
