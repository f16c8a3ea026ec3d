"""Everything of a stage as one CloudFormation template."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra import one_stack
from infra.deploy import smoke_test
from tests.deploy.cloud import LocalAws, copy_checkout

pytestmark = pytest.mark.slow

STAGE = "whole"
SAM_TRANSLATOR = "aws-sam-translator>=1.115,<2"


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made for functions that run on this machine."""
    folder = tmp_path_factory.mktemp("one-stack")
    checkout = copy_checkout(folder / "clone")
    done = subprocess.run(
        [sys.executable, "-m", "infra.one_stack", STAGE, str(folder / "out")],
        cwd=checkout,
        env={**os.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


def test_the_template_is_valid_and_names_what_the_alarms_look_at(packaged: Path) -> None:
    template = json.loads((packaged / "sam.json").read_text())
    assert "@" not in (packaged / "sam.json").read_text().replace("@Type", "")
    names = {name: template["Resources"][name]["Properties"]["FunctionName"] for name in one_stack.FUNCTIONS}
    assert names == {
        "APIHandler": f"cascade-{STAGE}",
        "Sweep": f"cascade-{STAGE}-sweep",
        "Stored": f"cascade-{STAGE}-stored",
    }
    variables = template["Resources"]["APIHandler"]["Properties"]["Environment"]["Variables"]
    assert variables["CASCADE_TABLE"] == {"Fn::Sub": "${CascadeTable}"}
    done = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), "--ignore-checks", "W", "--", packaged / "sam.json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def sam(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What turns `AWS::Serverless::*` into resources; apart, for it wants an older pydantic than the app."""
    folder = tmp_path_factory.mktemp("sam")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), SAM_TRANSLATOR]
    subprocess.run(command, check=True)
    return folder


def test_it_deploys_as_one_stack_and_passes_the_smoke_test(packaged: Path, sam: Path, tmp_path: Path) -> None:
    with LocalAws(tmp_path / "aws.log", sam) as aws:
        s3, stacks = aws.client("s3"), aws.client("cloudformation")
        s3.create_bucket(Bucket="code")
        s3.put_object(Bucket="code", Key="deployment.zip", Body=(packaged / "deployment.zip").read_bytes())
        # As `aws cloudformation package` does it.
        text = (packaged / "sam.json").read_text().replace("./deployment.zip", "s3://code/deployment.zip")
        s3.put_object(Bucket="code", Key="sam.json", Body=text.encode())
        request: dict[str, Any] = {
            "StackName": "whole",
            "ChangeSetName": "first",
            "TemplateURL": f"{aws.endpoint}/code/sam.json",
            "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
        }
        stacks.create_change_set(**request, ChangeSetType="CREATE")
        wait = {"Delay": 1, "MaxAttempts": 100}
        stacks.get_waiter("change_set_create_complete").wait(
            StackName="whole", ChangeSetName="first", WaiterConfig=wait
        )
        stacks.execute_change_set(StackName="whole", ChangeSetName="first")
        stacks.get_waiter("stack_create_complete").wait(StackName="whole", WaiterConfig=wait)
        found = stacks.describe_stacks(StackName="whole")["Stacks"][0]["Outputs"]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in found}
        secret = aws.client("secretsmanager").get_secret_value(SecretId=outputs["SecretArn"])["SecretString"]
        smoke_test(f"{aws.endpoint}/_aws/execute-api/{outputs['RestAPIId']}/{STAGE}", secret)
        rules = [rule.get("ScheduleExpression") for rule in aws.client("events").list_rules()["Rules"]]
        assert "rate(1 minute)" in rules
        config = aws.client("lambda").get_function_event_invoke_config(
            FunctionName=f"cascade-{STAGE}-sweep", Qualifier="$LATEST"
        )
        assert config["DestinationConfig"]["OnFailure"]["Destination"] == outputs["DeadLettersArn"]
