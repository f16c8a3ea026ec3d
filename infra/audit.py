"""Compares what is installed with a copy of the Python advisory database, for networks that reach no vulnerability service.

    git clone --depth 1 https://github.com/pypa/advisory-database ../advisory-database
    make audit ADVISORIES=../advisory-database
    python -m infra.audit ../advisory-database

Three groups are looked at: `run`, what the project needs, with all that this needs in turn; `dev`, the rest of the
environment; and `lowest`, the lowest version that each requirement of pyproject.toml admits, its build's too.

Where an advisory can't be compared with a version, it counts as a hit. Passed over are those that were withdrawn, those
that are told in commits alone, and those in ACCEPTED, which is in the source with the reasons.

The exit code is 0 without a hit, 1 with one, 2 if the database or the environment can't be read.
"""

import argparse
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's reads the database in a second, and is not in every build of PyYAML."""


FIRST = Version("0.dev0")
"""No version is below it."""
ORDER = {"fixed": 0, "introduced": 1, "last_affected": 2}
"""Of events at the same version: what was fixed may begin again, and what begins may end at once."""
ACCEPTED = {
    ("graphql-core", "3.2.12", "CVE-2026-134795"): (
        "ministack 1.5.33 requires this version. It parses what is sent to ministack's AppSync, which `cascade serve` does "
        "not serve; `make local-aws` does, to its own machine."
    ),
}
"""Why an advisory, by its id or any alias, on a version of a package is none for this project; another version is a hit."""


class UnreadableError(Exception):
    """The database or the environment is not what it should be; says what is wrong."""


@dataclass(frozen=True)
class Package:
    """A version of a distribution, and why it is looked at."""

    name: str
    """Normalised."""
    version: str
    group: str
    """`run`, `dev` or `lowest`."""


@dataclass(frozen=True)
class Advisory:
    """A file of the database, in the Open Source Vulnerability format."""

    id: str
    aliases: tuple[str, ...]
    summary: str
    published: date
    withdrawn: bool
    affected: tuple[dict[str, Any], ...]
    """Those of the Python ecosystem."""

    def packages(self) -> set[str]:
        return {_name(part) for part in self.affected}

    def of(self, package: Package) -> list[dict[str, Any]]:
        """Its parts on this package, at any version."""
        return [part for part in self.affected if _name(part) == package.name]

    def affects(self, package: Package) -> bool:
        return not self.withdrawn and any(_is_affected(part, package.version) for part in self.of(package))

    def fixed(self, package: Package) -> list[str]:
        """The versions in which it is fixed, as they are written there."""
        events = (event for part in self.of(package) for events in _ranges(part) for event in events)
        return list(dict.fromkeys(str(event["fixed"]) for event in events if "fixed" in event))

    def accepted(self, package: Package) -> str:
        """Why it is none for this project, or nothing."""
        keys = ((package.name, package.version, name) for name in (self.id, *self.aliases))
        return next((ACCEPTED[key] for key in keys if key in ACCEPTED), "")


def _name(part: dict[str, Any]) -> str:
    return canonicalize_name(str(part["package"]["name"]))


def _ranges(part: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """The events of each range that is told in versions, not in commits."""
    for one in part.get("ranges") or []:
        if one["type"] != "GIT":
            yield one["events"]


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _public(text: str) -> Version | None:
    """Without what a builder of its own adds: no advisory tells 2.0+cu118 from 2.0."""
    version = _version(text)
    return Version(version.public) if version else None


def _is_affected(part: dict[str, Any], text: str) -> bool:
    version = _public(text)
    listed = [str(one) for one in part.get("versions") or []]
    if text in listed or (version and version in map(_version, listed)):
        return True
    return any(_is_within(events, version) for events in _ranges(part))


def _is_within(events: list[dict[str, Any]], version: Version | None) -> bool:
    """Whether the last event up to this version leaves it affected.

    A beginning that can't be read counts as the first version, an end as never, a version that can't be read as within.
    """
    if version is None:
        return True
    affected = False
    for bound, kind in sorted(_bounds(events), key=lambda one: (one[0], ORDER[one[1]])):
        if kind == "last_affected":
            affected = affected and version <= bound
        elif version >= bound:
            affected = kind == "introduced"
    return affected


def _bounds(events: list[dict[str, Any]]) -> Iterator[tuple[Version, str]]:
    for event in events:
        for kind, text in event.items():
            # "0" stands for the first version there is.
            bound = None if (kind, str(text)) == ("introduced", "0") else _version(str(text))
            if kind in ORDER and (bound or kind == "introduced"):
                yield bound or FIRST, kind


def _date(value: Any) -> date:
    """Of a time that YAML has read, or left as text."""
    return date.fromisoformat(str(value)[:10])


def read_advisory(path: Path) -> Advisory:
    """Raises UnreadableError, with the file's name, if it is no advisory."""
    try:
        found = yaml.load(path.read_bytes(), Loader=LOADER)  # noqa: S506  it is a safe loader
        advisory = Advisory(
            id=str(found["id"]),
            aliases=tuple(found.get("aliases") or ()),
            summary=_summary(found),
            published=_date(found.get("published") or found["modified"]),
            withdrawn=bool(found.get("withdrawn")),
            affected=tuple(part for part in found["affected"] if part["package"]["ecosystem"] == "PyPI"),
        )
        for part in advisory.affected:  # what is compared later is here, or the file is not read
            _name(part)
            [[event.items() for event in events] for events in _ranges(part)]
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableError(f"{path} is no advisory: {type(error).__name__}: {error}") from error
    return advisory


def _summary(found: dict[str, Any]) -> str:
    text = found.get("summary") or found.get("details") or "no summary"
    return textwrap.shorten(text, 160, placeholder=" ...")


def read_database(folder: Path) -> list[Advisory]:
    """All advisories of a checkout. Raises UnreadableError if there is none, or one can't be read."""
    paths = sorted((folder / "vulns").glob("*/*.yaml"))
    if not paths:
        raise UnreadableError(
            f"{folder} has no vulns/<package>/*.yaml: it must be a checkout of pypa/advisory-database"
        )
    return [read_advisory(path) for path in paths]


def installed() -> dict[str, metadata.Distribution]:
    """The distributions of this environment by normalised name; of two with a name, the one that is imported."""
    found: dict[str, metadata.Distribution] = {}
    for one in metadata.distributions():
        if not one.metadata["Name"]:
            raise UnreadableError(f"a package in {sys.prefix} has no name: its installation is broken")
        found.setdefault(canonicalize_name(one.metadata["Name"]), one)
    return found


def needed(wanted: Iterable[Requirement], there: dict[str, metadata.Distribution]) -> set[str]:
    """The names of all that these requirements install. Raises UnreadableError if one of them is not installed."""
    names: set[str] = set()
    left, done = list(wanted), set[Requirement]()
    while left:
        requirement = left.pop()
        if requirement in done:
            continue
        done.add(requirement)
        name = canonicalize_name(requirement.name)
        if name not in there:
            raise UnreadableError(f"{name} is not installed in {sys.prefix}: this is not what the project runs in")
        names.add(name)
        extras = requirement.extras or {""}
        left += [
            one
            for one in map(Requirement, there[name].requires or [])
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)
        ]
    return names


def lowest(wanted: Iterable[Requirement]) -> Iterator[Package]:
    """The lowest version that each requirement admits, if it says so."""
    for requirement in wanted:
        for bound in requirement.specifier:
            if bound.operator in (">=", "==", "~="):
                yield Package(canonicalize_name(requirement.name), bound.version.removesuffix(".*"), "lowest")


def audited(pyproject: Path) -> list[Package]:
    """All that is looked at. Raises UnreadableError."""
    found = tomllib.loads(pyproject.read_text())
    project = found["project"]
    run = [Requirement(text) for text in project["dependencies"]]
    others = [*project["optional-dependencies"]["dev"], *found["build-system"]["requires"]]
    there = installed()
    names = needed(run, there)
    there.pop(canonicalize_name(project["name"]), None)
    return [
        *(Package(name, one.version, "run" if name in names else "dev") for name, one in sorted(there.items())),
        *lowest([*run, *map(Requirement, others)]),
    ]


def report(advisories: list[Advisory], packages: list[Package], today: date) -> tuple[list[str], int]:
    """Lines to print, and the number of hits."""
    newest = max(advisories, key=lambda one: (one.published, one.id))
    known = {name for one in advisories for name in one.packages()}
    lines = [
        f"database: {len(advisories)} advisories on {len(known)} packages, "
        f"{sum(one.withdrawn for one in advisories)} of them withdrawn",
        f"newest: {newest.id} of {newest.published}, {(today - newest.published).days} days ago",
    ]
    hits = 0
    for group in ("run", "dev", "lowest"):
        members = [one for one in packages if one.group == group]
        looked = [one for one in advisories if one.packages() & {package.name for package in members}]
        found = [(package, one) for package in members for one in looked if one.affects(package)]
        count = sum(not one.accepted(package) for package, one in found)
        lines.append(f"{group}: {len(members)} packages, {len(looked)} advisories on them, hits: {count}")
        for package, one in found:
            names, fixed = ", ".join((one.id, *one.aliases)), ", ".join(one.fixed(package)) or "no version"
            lines += [f"  {package.name} {package.version}: {names}; fixed in {fixed}", f"    {one.summary}"]
            if reason := one.accepted(package):
                lines.append(f"    accepted: {reason}")
        hits += count
    return [*lines, f"hits in all: {hits}"], hits


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit code."""
    description, _, rest = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m infra.audit",
        description=description,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("advisories", type=Path, help="a checkout of pypa/advisory-database")
    given = parser.parse_args(arguments)
    try:
        lines, hits = report(
            read_database(given.advisories), audited(ROOT / "pyproject.toml"), datetime.now(UTC).date()
        )
    except UnreadableError as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 1 if hits else 0


if __name__ == "__main__":
    sys.exit(main())
