"""What a cold start costs: the size of the package, and the CPU time of `import app` against `import boto3` alone.

The package is built as a deployment builds it, byte code included, once for Lambda's arm64 to be weighed and once for this
machine to be imported. CPU time of the process, less that of an interpreter that imports nothing, and the median of several
turns of all of them. Each ends at once after its import: a function does not tidy up either.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from infra import stage

TURNS = 21
OUTPUTS = dict.fromkeys(
    (
        *("TableName", "TableArn", "BucketName", "BucketArn", "SecretArn"),
        *("DeadLettersArn", "ApiLogsArn", "SweepLogsArn", "StoredLogsArn"),
    ),
    "arn:aws:x:us-east-1:000000000000:y",
)
"""Of no stack; nothing here is ever called."""
CASES = {
    "import boto3": ("import boto3", True),
    "import app, with .pyc": ("import app", True),
    "import app, without .pyc": ("import app", False),
}


def package(folder: Path, *, local: bool) -> Path:
    """The zip that a deployment would upload, for Lambda or for this machine."""
    stage.prepare(folder / "project", "dev", OUTPUTS, local=local)
    command = [sys.executable, "-m", "infra.chalice_cli", "--project-dir", str(folder / "project"), "package"]
    environment = {**os.environ, "AWS_DEFAULT_REGION": "us-east-1"}
    subprocess.run([*command, str(folder / "out")], cwd=stage.ROOT, check=True, capture_output=True, env=environment)
    return folder / "out" / "deployment.zip"


def environment() -> dict[str, str]:
    """As a function has it."""
    return {"PATH": os.environ["PATH"], "AWS_REGION": "us-east-1", "PYTHONDONTWRITEBYTECODE": "1", **stage.CONSTANTS}


def cpu_seconds(code: str, folder: Path) -> float:
    """CPU time of a Python that runs `code` in `folder`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"{code}; import os; os._exit(0)"], cwd=folder, env=environment(), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def import_times(compiled: Path, plain: Path, turns: int = TURNS) -> list[dict[str, float]]:
    """CPU seconds of each case in each turn, less an empty interpreter's."""
    seen = []
    for _ in range(turns):
        empty = cpu_seconds("pass", plain)
        seen.append(
            {
                name: cpu_seconds(code, compiled if with_pyc else plain) - empty
                for name, (code, with_pyc) in CASES.items()
            }
        )
    return seen


def top_importers(folder: Path, count: int = 12) -> list[tuple[str, float]]:
    """Packages by the milliseconds that their own modules take of one `import app`."""
    command = [sys.executable, "-X", "importtime", "-c", "import app"]
    said = subprocess.run(command, cwd=folder, env=environment(), check=True, capture_output=True, text=True).stderr
    spent: dict[str, float] = {}
    for line in said.splitlines():
        own, _, name = line.removeprefix("import time:").split("|")
        if own.strip().isdecimal():
            top = name.strip().partition(".")[0]
            top = top if top not in sys.stdlib_module_names else "(standard library)"
            spent[top] = spent.get(top, 0.0) + int(own) / 1000
    return sorted(spent.items(), key=lambda entry: -entry[1])[:count]


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("lambda", "local", "compiled", "plain"):
            (folder / kind).mkdir()
        archive = package(folder / "lambda", local=False)
        with zipfile.ZipFile(archive) as opened:
            unpacked = sum(info.file_size for info in opened.infolist())
        print(f"package for arm64: {archive.stat().st_size / 1e6:.2f} MB zipped, {unpacked / 1e6:.1f} MB unpacked\n")
        local = package(folder / "local", local=True)
        for kind in ("compiled", "plain"):
            with zipfile.ZipFile(local) as opened:
                opened.extractall(folder / kind)
        for byte_code in (folder / "plain").rglob("*.pyc"):
            byte_code.unlink()
        turns = import_times(folder / "compiled", folder / "plain")
        print("| | CPU, ms | times boto3 |\n|---|---|---|")
        for case in CASES:
            milliseconds = statistics.median(turn[case] for turn in turns) * 1000
            ratio = statistics.median(turn[case] / turn["import boto3"] for turn in turns)
            print(f"| `{case}` | {milliseconds:.0f} | {ratio:.2f} |")
        print("\n| own modules of | ms of one `import app` |\n|---|---|")
        for package_name, milliseconds in top_importers(folder / "compiled"):
            print(f"| {package_name} | {milliseconds:.0f} |")


if __name__ == "__main__":
    main()
