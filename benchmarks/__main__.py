"""`make bench`: every benchmark after the other, each in a process of its own, its table printed and in docs/benchmarks.md.

`python -m benchmarks parser server` runs only those; `--write` also puts the tables into docs/benchmarks.md.
"""

import argparse
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
FINDINGS = FOLDER / "findings.md"
NAMES = sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))
HEAD = """# Benchmarks

Written by `make bench`: one run of everything in `benchmarks/`, on {machine}, Python {python}, {day}. Machines differ and
are shared, so read the ratios: both sides of each were measured in the same run, in turns, and are medians.
"""


def machine() -> str:
    """Processor and number of cores."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        if found:
            model = f"{len(found)} cores of {found[0].partition(':')[2].strip()}"
    return model


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} too")
    asked = parser.parse_args()
    parts = [HEAD.format(machine=machine(), python=platform.python_version(), day=f"{datetime.now(UTC):%Y-%m-%d}")]
    for name in asked.names or NAMES:
        title = f"\n## {name}\n\n"
        print(title, end="", flush=True)
        command = [sys.executable, "-m", f"benchmarks.bench_{name}"]
        table = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        print(table, end="", flush=True)
        parts += [title, table]
    if asked.write:
        PAGE.write_text("".join([*parts, FINDINGS.read_text(encoding="utf-8")]), encoding="utf-8")


if __name__ == "__main__":
    main()
