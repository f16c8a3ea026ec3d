"""Packs the edge functions, and puts the upload front door in front of a deployed stage.

python -m infra.front_door deploy dev
python -m infra.front_door remove dev
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra import stage as stages
from infra.deploy import DeployError, Deployment, delete_stack, put_stack, say

TEMPLATE = stages.ROOT / "infra" / "front-door.yaml"
REGION = "us-east-1"
"""The one region that CloudFront takes functions from."""
VIEWER_MAX_BYTES = 1024 * 1024
ORIGIN_MAX_BYTES = 50 * 1024 * 1024
"""Zipped, as Lambda@Edge has it."""

VIEWER_MODULES = ("chalicelib/__init__.py", "chalicelib/errors.py", "chalicelib/names.py", "chalicelib/tokens.py")
EDGE_MODULES = ("infra/__init__.py", "infra/edge/__init__.py", "infra/edge/cloudfront.py")
_CONFIG = "infra/edge/config.json"
_VERSIONS = {"ViewerVersion": "viewer", "OriginRequestVersion": "origin", "OriginResponseVersion": "origin"}


def viewer_package(settings: Mapping[str, str]) -> bytes:
    """The zip of viewer-request: standard library, the runtime's boto3, and nothing else."""
    wanted = [*VIEWER_MODULES, *EDGE_MODULES, "infra/edge/viewer.py"]
    return _zip({name: (stages.ROOT / name).read_bytes() for name in wanted} | _config(settings), VIEWER_MAX_BYTES)


def origin_package(settings: Mapping[str, str]) -> bytes:
    """The zip of origin-request and origin-response: the domain code, with the libraries it needs for x86_64."""
    wanted = [*EDGE_MODULES, "infra/edge/origin.py"]
    wanted += [f"chalicelib/{path.name}" for path in sorted((stages.ROOT / "chalicelib").glob("*.py"))]
    content = {name: (stages.ROOT / name).read_bytes() for name in wanted} | _config(settings)
    with tempfile.TemporaryDirectory() as folder:
        _install(Path(folder))
        stages.compile_modules(Path(folder), Path(folder))
        content |= {
            str(path.relative_to(folder)): path.read_bytes()
            for path in Path(folder).rglob("*")
            if path.is_file() and path.parts[-2] != "bin"
        }
    return _zip(content, ORIGIN_MAX_BYTES)


def _config(settings: Mapping[str, str]) -> dict[str, bytes]:
    return {_CONFIG: json.dumps(dict(sorted(settings.items())), indent=2).encode()}


def _install(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
        str(folder),
    ]
    command += ["--only-binary=:all:", "--implementation", "cp", "--platform", "manylinux2014_x86_64"]
    command += ["--python-version", python_version(), "-r", str(stages.ROOT / "requirements.txt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own command
    if done.returncode:
        raise DeployError(f"pip cannot install requirements.txt for the edge: {done.stderr.strip().splitlines()[-1]}")


def python_version() -> str:
    """The Python that packs, which must be the one that runs it."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _zip(content: Mapping[str, bytes], limit: int) -> bytes:
    """A zip that depends on its content alone. Raises DeployError when it is over the edge's limit."""
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(content):
                info = zipfile.ZipInfo(name)
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(info, content[name])
        file.seek(0)
        made = file.read()
    if len(made) > limit:
        raise DeployError(f"an edge package has {len(made)} bytes, over the limit of {limit}")
    return made


def template(packages: Mapping[str, bytes]) -> str:
    """The template, each of whose versions is named by the code it holds: new code makes a new one, and only that."""
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, package in _VERSIONS.items():
        digest = hashlib.sha256(packages[package]).hexdigest()[:12]
        text = re.sub(rf"\b{name}\b", f"{name}{digest}", text)
    return text


class FrontDoor:
    """The door of one deployed stage. Raises DeployError when the stage is not deployed."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.stack = f"cascade-{deployment.stage}-front-door"
        self.session = boto3.session.Session(region_name=REGION)

    def deploy(self) -> str:
        """Put it there or bring it up to date; returns the stage's URL with the door."""
        outputs = self.deployment.outputs()
        deployed = self.deployment.read_notes(outputs["BucketName"]).get("deployed")
        if not deployed:
            raise DeployError(f"stage {self.deployment.stage} has no functions yet: deploy it first")
        home = str(self.deployment.session.region_name)
        api = next(one for one in deployed["resources"] if one["resource_type"] == "rest_api")
        settings = {name: outputs[output] for name, output in stages.ENVIRONMENT.items()}
        settings |= {
            **stages.CONSTANTS,
            "CASCADE_REGION": home,
            "POWERTOOLS_SERVICE_NAME": f"cascade-{self.deployment.stage}",
        }
        packages = {"viewer": viewer_package(settings), "origin": origin_package(settings)}
        bucket = self._code_bucket()
        keys = {name: self._upload(bucket, name, package) for name, package in packages.items()}
        parameters = {
            "Stage": self.deployment.stage,
            "ApiDomain": f"{api['rest_api_id']}.execute-api.{home}.amazonaws.com",
            "BucketDomain": f"{outputs['BucketName']}.s3.{home}.amazonaws.com",
            "BucketArn": outputs["BucketArn"],
            "TableArn": outputs["TableArn"],
            "SecretArn": outputs["SecretArn"],
            "CodeBucket": bucket,
            "ViewerKey": keys["viewer"],
            "OriginKey": keys["origin"],
            "Runtime": f"python{python_version()}",
        }
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "front-door.yaml"
            path.write_text(template(packages), encoding="utf-8")
            changed = put_stack(self._client("cloudformation"), self.stack, path, parameters)
        say(f"stack {self.stack}: {'changed' if changed else 'nothing to change'}")
        found = self._outputs()
        # The bucket lets this one distribution write files, and no other.
        self.deployment.put_stack({"FrontDoorDistributionArn": found["DistributionArn"]})
        return found["Url"]

    def remove(self) -> None:
        """Close it; the stage goes on without. Replicas of the functions keep them for hours: AWS removes them later."""
        self.deployment.put_stack({"FrontDoorDistributionArn": ""})
        delete_stack(self._client("cloudformation"), self.stack)

    def _client(self, service: str) -> Any:
        return self.session.client(service)

    def _outputs(self) -> dict[str, str]:
        stack = self._client("cloudformation").describe_stacks(StackName=self.stack)["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def _code_bucket(self) -> str:
        account = self._client("sts").get_caller_identity()["Account"]
        name, s3 = f"cascade-edge-code-{account}", self._client("s3")
        try:
            s3.create_bucket(Bucket=name)  # in us-east-1 making it again is fine
        except s3.exceptions.BucketAlreadyOwnedByYou:
            return name
        blocked = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
        s3.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=dict.fromkeys(blocked, True))
        return name

    def _upload(self, bucket: str, name: str, package: bytes) -> str:
        key = f"{self.deployment.stage}/{name}-{hashlib.sha256(package).hexdigest()[:16]}.zip"
        self._client("s3").put_object(Bucket=bucket, Key=key, Body=package)
        return key


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Put the upload front door in front of a deployed stage, or remove it."
    )
    parser.add_argument("command", choices=["deploy", "remove"])
    parser.add_argument("stage", help="such as dev or prod")
    given = parser.parse_args(arguments)
    try:
        door = FrontDoor(Deployment(given.stage))
        if given.command == "deploy":
            url = door.deploy()
            say(f"CASCADE_URL={url}")
            say(f"the page: {url}/")
        else:
            door.remove()
            say(f"the front door of stage {given.stage} is removed")
    except (DeployError, ClientError, BotoCoreError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
