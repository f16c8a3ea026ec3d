"""The folder that `chalice` deploys a stage from: the app alone, with the stage's names and rights filled in.

`.chalice/config.json` and `.chalice/policy.json` are the same for everybody and stay as they are in the checkout; the
names that CloudFormation gave to a stage's table, bucket and secret are written into a copy under `build/deploy/<stage>`.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "deploy"
STAGE_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,19}")
"""As infra/resources.yaml has it: the stage is part of names."""

ENVIRONMENT = {"CASCADE_TABLE": "TableName", "CASCADE_BUCKET": "BucketName", "CASCADE_TOKEN_SECRET": "SecretArn"}
"""The functions' settings, and the outputs of the stack they come from."""

CONSTANTS = {
    # Looking for plugins that nobody installed reads every package's metadata, a tenth of a cold start.
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    # Else Python reads how it was built to find the time zones, which nobody here asks for.
    "PYTHONTZPATH": "/usr/share/zoneinfo",
}
"""Settings of every function that make it start sooner."""
PASSED_ON = ("CASCADE_HEARTBEAT_TIMEOUT_S",)
"""Settings that the functions get from whoever deploys."""

Outputs = Mapping[str, str]


def policy(outputs: Outputs) -> dict[str, Any]:
    """The functions' rights, with the stack's ARNs filled in. Raises KeyError for one the stack lacks."""
    text = (ROOT / ".chalice" / "policy.json").read_text(encoding="utf-8")
    filled: dict[str, Any] = json.loads(Template(text).substitute(outputs))
    return filled


def config(stage: str, outputs: Outputs, *, local: bool = False) -> dict[str, Any]:
    """Chalice's configuration of the stage.

    Args:
        local: The functions will run on this machine, so they need its architecture.
    """
    made: dict[str, Any] = json.loads((ROOT / ".chalice" / "config.json").read_text(encoding="utf-8"))
    own = made["stages"].setdefault(stage, {"api_gateway_stage": stage, "iam_policy_file": f"policy-{stage}.json"})
    made["stages"] = {stage: own}
    own["environment_variables"] = {
        **{name: outputs[output] for name, output in ENVIRONMENT.items()},
        # The dimension of every metric, which the alarms look at.
        "POWERTOOLS_SERVICE_NAME": f"cascade-{stage}",
        **CONSTANTS,
        **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
    }
    if local:
        made["lambda_architecture"] = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
    return made


def prepare(folder: Path, stage: str, outputs: Outputs, deployed: str | None = None, *, local: bool = False) -> None:
    """Make `folder` the stage's chalice project, keeping the packages it built before.

    Args:
        deployed: What chalice noted of the last deployment, wherever that was made from; None for the first.
    """
    settings = folder / ".chalice"
    settings.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "chalicelib", ignore_errors=True)
    shutil.copytree(ROOT / "chalicelib", folder / "chalicelib", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("app.py", "requirements.txt"):
        shutil.copyfile(ROOT / name, folder / name)
    # Lambda can't write next to the code, so without these every cold start would compile all of it.
    compile_modules(folder / "chalicelib", folder)
    # Chalice keeps each package it ever built, to use it again; the last one is enough for that.
    for package in sorted((settings / "deployments").glob("*.zip"), key=lambda path: path.stat().st_mtime)[:-1]:
        package.unlink()
    _write(settings / "config.json", config(stage, outputs, local=local))
    _write(settings / f"policy-{stage}.json", policy(outputs))
    notes = settings / "deployed" / f"{stage}.json"
    notes.unlink(missing_ok=True)
    if deployed is not None:
        notes.parent.mkdir(exist_ok=True)
        notes.write_text(deployed, encoding="utf-8")


def compile_modules(path: Path, root: Path) -> None:
    """Put byte code beside the modules of a folder, which Python then takes without a look at their times.

    Args:
        root: What will be the root of the package; `path` is it or is in it.

    The same modules give the same bytes: in a process of its own, since sets are written in the order of their hashes.
    """
    command = [sys.executable, "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"]
    names = ["-s", str(root), "-p", "/var/task", str(path)]
    subprocess.run([*command, *names], check=True, env={**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S603  our own


def digest(folder: Path) -> str:
    """What a deployment from `folder` depends on, as one number: the same digest makes the same functions and API."""
    made = hashlib.sha256()
    named = [folder / "app.py", folder / "requirements.txt", *sorted((folder / "chalicelib").rglob("*"))]
    named += sorted((folder / ".chalice").glob("*.json"))
    named += [ROOT / "infra" / "chalice_cli.py"]
    for path in named:
        if path.is_file() and path.suffix != ".pyc":
            made.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    made.update(".".join(platform.python_version_tuple()[:2]).encode())
    return made.hexdigest()


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
