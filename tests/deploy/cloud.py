"""A local AWS of its own, and the command that deploys to it, run from a copy of the checkout."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
import httpx

ROOT = Path(__file__).resolve().parents[2]
STAGE = "ci"
NEEDED = ("app.py", "requirements.txt", "chalicelib", "infra", ".chalice/config.json", ".chalice/policy.json")
"""All of a checkout that a deployment reads."""


def copy_checkout(folder: Path, original: Path = ROOT) -> Path:
    """What a fresh clone has, as far as a deployment is concerned."""
    for name in NEEDED:
        source, target = original / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    return folder


class LocalAws:
    """infra/local_aws.py as a process.

    Args:
        log: Where its standard error goes.
        libraries: A folder of packages that it may import beside what is installed.
    """

    def __init__(self, log: Path, libraries: Path | None = None) -> None:
        self.log = log
        self.libraries = libraries
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CASCADE_", "POWERTOOLS_"))}
        self.env |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
        self.session = boto3.session.Session("test", "test", region_name="us-east-1")

    def __enter__(self) -> Self:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "infra.local_aws", "--port", "0"],
                cwd=ROOT,
                env={**self.env, "PYTHONPATH": str(self.libraries)} if self.libraries else self.env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        self.endpoint = self.process.stdout.readline().strip().partition("=")[2]
        deadline = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"{self.endpoint}/_ministack/health")
                break
            except httpx.TransportError:
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, "the local AWS does not come up"
                time.sleep(0.1)
        self.env["AWS_ENDPOINT_URL"] = self.endpoint
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def client(self, service: str) -> Any:
        return self.session.client(service, endpoint_url=self.endpoint)

    def run(
        self, checkout: Path, *arguments: str, typed: str | None = None, module: str = "infra.deploy", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """`python -m infra.deploy` with these arguments; what is typed goes to its standard input."""
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=checkout,
            env={**self.env, **env},
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
        )
