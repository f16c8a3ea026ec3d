"""The other way to deploy: everything of a stage in one CloudFormation template, by `chalice package --merge-template`.

    python -m infra.one_stack dev build/one-stack
    aws cloudformation package --template-file build/one-stack/sam.json --s3-bucket BUCKET \
        --use-json --output-template-file build/one-stack/packaged.json
    aws cloudformation deploy --template-file build/one-stack/packaged.json --stack-name cascade-dev-whole \
        --s3-bucket BUCKET --capabilities CAPABILITY_IAM CAPABILITY_AUTO_EXPAND

Of use where deployments go through CloudFormation alone, a pipeline say. The template is made for one stage.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from chalice.package import YAMLTemplateSerializer

from infra import stage as stages
from infra.deploy import TEMPLATE, DeployError, say

SUBSTITUTES = {
    "TableName": "${CascadeTable}",
    "TableArn": "${CascadeTable.Arn}",
    "BucketName": "${CascadeBucket}",
    "BucketArn": "${CascadeBucket.Arn}",
    "SecretArn": "${TokenSecret}",
    "DeadLettersArn": "${DeadLetters.Arn}",
    "ApiLogsArn": "${ApiLogs.Arn}",
    "SweepLogsArn": "${SweepLogs.Arn}",
    "StoredLogsArn": "${StoredLogs.Arn}",
}
"""What stands in the one template for an output of the stack of its own."""

FUNCTIONS = {"APIHandler": "", "Sweep": "-sweep", "Stored": "-stored"}
"""Chalice's names of the functions, and what ends the names that logs and alarms know."""

_MARK = re.compile(r"@(\w+)@")


def merge_template(stage: str) -> dict[str, Any]:
    """The stack's template, and what chalice's part of the one template lacks."""
    merged: dict[str, Any] = YAMLTemplateSerializer().load_template(TEMPLATE.read_text(encoding="utf-8"))
    merged["Parameters"]["Stage"] |= {"Default": stage, "AllowedValues": [stage]}
    for name, end in FUNCTIONS.items():
        properties: dict[str, Any] = {"FunctionName": f"cascade-{stage}{end}"}
        if name != "APIHandler":
            failed = {"Type": "SQS", "Destination": {"Fn::GetAtt": ["DeadLetters", "Arn"]}}
            properties["EventInvokeConfig"] = {"MaximumRetryAttempts": 2, "DestinationConfig": {"OnFailure": failed}}
        merged["Resources"][name] = {"Properties": properties}
    return merged


def substituted(value: Any) -> Any:
    """`value` with each marked output as the resource of the same template."""
    if isinstance(value, dict):
        return {key: substituted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [substituted(inner) for inner in value]
    if isinstance(value, str) and _MARK.search(value):
        return {"Fn::Sub": _MARK.sub(lambda match: SUBSTITUTES[match[1]], value)}
    return value


def package(stage: str, folder: Path, *, local: bool = False) -> Path:
    """Write `sam.json` and `deployment.zip` into `folder`; returns the template's path. Raises DeployError."""
    project = stages.BUILD / f"{stage}-one-stack"
    stages.prepare(project, stage, {name: f"@{name}@" for name in SUBSTITUTES}, local=local)
    merged = project / "merge.json"
    merged.write_text(json.dumps(merge_template(stage)), encoding="utf-8")
    command = [sys.executable, "-m", "infra.chalice_cli", "--project-dir", str(project), "package", "--stage", stage]
    # Nothing is asked of AWS; the SDK wants a region all the same.
    environment = {**os.environ, "AWS_DEFAULT_REGION": os.environ.get("AWS_REGION", "us-east-1")}
    done = subprocess.run(  # noqa: S603  our own command
        [*command, "--merge-template", str(merged), str(folder.resolve())],
        cwd=stages.ROOT,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise DeployError("chalice package failed, see above")
    path = folder / "sam.json"
    path.write_text(json.dumps(substituted(json.loads(path.read_text(encoding="utf-8"))), indent=1), encoding="utf-8")
    return path


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(description="Write everything of a stage as one CloudFormation template.")
    parser.add_argument("stage", help="such as dev or prod")
    parser.add_argument("folder", type=Path, help="where the template and the package go")
    given = parser.parse_args(arguments)
    try:
        say(str(package(given.stage, given.folder, local=bool(os.environ.get("AWS_ENDPOINT_URL")))))
    except DeployError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
