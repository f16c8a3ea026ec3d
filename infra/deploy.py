"""Deploys a stage of Cascade to AWS, and removes it.

    python -m infra.deploy deploy dev
    python -m infra.deploy destroy dev

A deployment is the stack of infra/resources.yaml, then `chalice deploy` with the stack's names, then a smoke test. What
chalice noted about it is kept in the stage's bucket, so any checkout can deploy again or remove it. The account is the one
the AWS SDK finds; `AWS_ENDPOINT_URL` may point to an AWS on this machine (infra/local_aws.py).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import httpx
from botocore.exceptions import BotoCoreError, ClientError, WaiterError

from infra import stage as stages

TEMPLATE = stages.ROOT / "infra" / "resources.yaml"
NOTES = "deployments/{stage}.json"
"""Key in the stage's bucket."""
SETTLE_SECONDS = 60.0
"""A new API answers everywhere after a few seconds."""


class DeployError(Exception):
    """It did not work; the message says what and why, in one line, for a person."""


def say(text: str) -> None:
    """Tell what is going on."""
    print(text, flush=True)


class Deployment:
    """One stage in one account and region.

    Raises:
        DeployError: the stage's name can't be one, or no account or region is configured.
    """

    def __init__(self, stage: str, session: boto3.session.Session | None = None) -> None:
        if not stages.STAGE_PATTERN.fullmatch(stage):
            raise DeployError(f"stage {stage!r} must be a-z, then up to 19 of a-z, 0-9 and -")
        self.stage = stage
        # Unlike other SDKs, boto3 does not look at AWS_REGION.
        self.session = session or boto3.session.Session(region_name=os.environ.get("AWS_REGION"))
        if self.session.region_name is None:
            raise DeployError("no AWS region: set AWS_REGION, or run `aws configure`")
        self.stack = f"cascade-{stage}"
        self.local = bool(os.environ.get("AWS_ENDPOINT_URL"))
        self.folder = stages.BUILD / stage

    def client(self, service: str) -> Any:
        """A client of the deployment's account and region."""
        return self.session.client(service)

    # The stack.

    def describe_stack(self) -> dict[str, Any] | None:
        """The stack; None when there is none."""
        try:
            found: dict[str, Any] = self.client("cloudformation").describe_stacks(StackName=self.stack)["Stacks"][0]
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise
        return None if found["StackStatus"] in ("REVIEW_IN_PROGRESS", "DELETE_COMPLETE") else found

    def outputs(self) -> dict[str, str]:
        """The stack's outputs. Raises DeployError when there is no stack."""
        found = self.describe_stack()
        if found is None:
            raise DeployError(f"there is no stack {self.stack} in {self.session.region_name}")
        return {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])}

    def put_stack(self, parameters: dict[str, str] | None = None) -> bool:
        """Make the stack or bring it up to date; returns whether anything changed."""
        return put_stack(
            self.client("cloudformation"), self.stack, TEMPLATE, {"Stage": self.stage, **(parameters or {})}
        )

    # What chalice noted.

    def read_notes(self, bucket: str) -> dict[str, Any]:
        """`{"digest", "deployed"}` of the last deployment; empty when there is none."""
        s3 = self.client("s3")
        try:
            notes: dict[str, Any] = json.loads(
                s3.get_object(Bucket=bucket, Key=NOTES.format(stage=self.stage))["Body"].read()
            )
        except s3.exceptions.NoSuchKey:
            return {}
        return notes

    def write_notes(self, bucket: str, notes: dict[str, Any]) -> None:
        """Keep them for the next deployment."""
        key = NOTES.format(stage=self.stage)
        self.client("s3").put_object(Bucket=bucket, Key=key, Body=json.dumps(notes).encode())

    def url(self, deployed: dict[str, Any]) -> str:
        """Where the API is, without the `/api` that every path begins with."""
        api = next(one for one in deployed["resources"] if one["resource_type"] == "rest_api")
        if self.local:
            endpoint = os.environ["AWS_ENDPOINT_URL"].rstrip("/")
            return f"{endpoint}/_aws/execute-api/{api['rest_api_id']}/{self.stage}"
        return str(api["rest_api_url"]).rstrip("/")

    def token(self, outputs: dict[str, str]) -> str:
        """The stage's newest token."""
        secret = self.client("secretsmanager").get_secret_value(SecretId=outputs["SecretArn"])["SecretString"]
        return str(secret).split()[0]

    # Commands.

    def deploy(self, parameters: dict[str, str] | None = None, *, force: bool = False) -> str:
        """Bring everything up to date; returns the API's URL."""
        say(f"stack {self.stack}: {'changed' if self.put_stack(parameters) else 'nothing to change'}")
        outputs = self.outputs()
        notes = self.read_notes(outputs["BucketName"])
        deployed: dict[str, Any] | None = notes.get("deployed")
        stages.prepare(
            self.folder, self.stage, outputs, json.dumps(deployed, indent=2) if deployed else None, local=self.local
        )
        digest = stages.digest(self.folder)
        if deployed and notes["digest"] == digest and not force and self._stands(deployed):
            say("functions and API: nothing to change")
        else:
            self._chalice("deploy")
            deployed = json.loads((self.folder / ".chalice" / "deployed" / f"{self.stage}.json").read_text())
            assert deployed is not None, "chalice wrote an object"  # noqa: S101
            self._catch_failures(deployed, outputs)
            self.write_notes(outputs["BucketName"], {"digest": digest, "deployed": deployed})
        url = self.url(deployed)
        smoke_test(url, self.token(outputs))
        return url

    def _stands(self, deployed: dict[str, Any]) -> bool:
        """Whether the functions and the API that were noted are there."""
        functions, api = self.client("lambda"), self.client("apigateway")
        try:
            for one in deployed["resources"]:
                if one["resource_type"] == "lambda_function":
                    functions.get_function_configuration(FunctionName=one["lambda_arn"])
                elif one["resource_type"] == "rest_api":
                    api.get_rest_api(restApiId=one["rest_api_id"])
        except (functions.exceptions.ResourceNotFoundException, api.exceptions.NotFoundException):
            return False
        return True

    def _catch_failures(self, deployed: dict[str, Any], outputs: dict[str, str]) -> None:
        """Send events that a function failed on for good to the dead letter queue."""
        functions = self.client("lambda")
        for one in deployed["resources"]:
            # The API's own function is called and answers; nobody waits for the others.
            if one["resource_type"] == "lambda_function" and one["name"] != "api_handler":
                functions.put_function_event_invoke_config(
                    FunctionName=one["lambda_arn"],
                    MaximumRetryAttempts=2,
                    DestinationConfig={"OnFailure": {"Destination": outputs["DeadLettersArn"]}},
                )

    def _chalice(self, command: str) -> None:
        run = [sys.executable, "-m", "infra.chalice_cli", "--project-dir", str(self.folder), command]
        environment = {**os.environ, "AWS_DEFAULT_REGION": str(self.session.region_name)}
        ended = subprocess.run(  # noqa: S603  our own command
            [*run, "--stage", self.stage], cwd=stages.ROOT, env=environment, check=False
        )
        if ended.returncode:
            raise DeployError(f"chalice {command} failed, see above")

    def destroy(self, *, keep_data: bool = False) -> None:
        """Remove functions, API and stack; and the table and the bucket with all that is in them, unless kept."""
        found = self.describe_stack()
        if found is None:
            raise DeployError(f"there is no stack {self.stack} in {self.session.region_name}")
        outputs = self.outputs()
        noted = self.read_notes(outputs["BucketName"]).get("deployed")
        if noted:
            stages.prepare(self.folder, self.stage, outputs, json.dumps(noted, indent=2), local=self.local)
            self._chalice("delete")
            self.client("s3").delete_object(Bucket=outputs["BucketName"], Key=NOTES.format(stage=self.stage))
        delete_stack(self.client("cloudformation"), self.stack)
        if keep_data:
            say(f"kept: table {outputs['TableName']}, bucket {outputs['BucketName']}")
            return
        self._remove_table(outputs["TableName"])
        self._remove_bucket(outputs["BucketName"])

    def _remove_table(self, name: str) -> None:
        dynamodb = self.client("dynamodb")
        dynamodb.update_table(TableName=name, DeletionProtectionEnabled=False)
        dynamodb.get_waiter("table_exists").wait(TableName=name)
        dynamodb.delete_table(TableName=name)

    def _remove_bucket(self, name: str) -> None:
        s3 = self.client("s3")
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=name):
            found = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
            objects = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
            if objects:
                failed = s3.delete_objects(Bucket=name, Delete={"Objects": objects, "Quiet": True}).get("Errors")
                if failed:
                    raise DeployError(f"could not delete {failed[0]['Key']} of {name}: {failed[0]['Message']}")
        s3.delete_bucket(Bucket=name)


# Stacks.


def put_stack(client: Any, name: str, template: Path, parameters: dict[str, str]) -> bool:
    """Make a stack or bring it up to date; parameters not given keep their values. Returns whether anything changed.

    Raises:
        DeployError: CloudFormation refused or rolled back; the message has its first reason.
    """
    try:
        before = {p["ParameterKey"] for p in client.describe_stacks(StackName=name)["Stacks"][0].get("Parameters", [])}
        kind = "UPDATE"
        if client.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"] == "REVIEW_IN_PROGRESS":
            kind = "CREATE"
    except ClientError as error:
        if "does not exist" not in str(error):
            raise
        before, kind = set(), "CREATE"
    given: list[dict[str, Any]] = [{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()]
    given += [{"ParameterKey": key, "UsePreviousValue": True} for key in sorted(before - set(parameters))]
    change = f"cascade-{int(time.time() * 1000)}"
    client.create_change_set(
        StackName=name,
        ChangeSetName=change,
        ChangeSetType=kind,
        TemplateBody=template.read_text(encoding="utf-8"),
        Parameters=given,
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    try:
        client.get_waiter("change_set_create_complete").wait(
            StackName=name, ChangeSetName=change, WaiterConfig={"Delay": 1, "MaxAttempts": 300}
        )
    except WaiterError:
        found = client.describe_change_set(StackName=name, ChangeSetName=change)
        reason = found.get("StatusReason", "")
        client.delete_change_set(StackName=name, ChangeSetName=change)
        if "didn't contain changes" in reason or "No updates" in reason:
            return False
        raise DeployError(f"stack {name}: {reason or found['Status']}") from None
    if not client.describe_change_set(StackName=name, ChangeSetName=change).get("Changes"):
        client.delete_change_set(StackName=name, ChangeSetName=change)
        return False
    client.execute_change_set(StackName=name, ChangeSetName=change)
    _wait(client, "stack_create_complete" if kind == "CREATE" else "stack_update_complete", name)
    return True


def delete_stack(client: Any, name: str) -> None:
    """Remove a stack; what it retains stays. Raises DeployError."""
    client.delete_stack(StackName=name)
    _wait(client, "stack_delete_complete", name)


def _wait(client: Any, what: str, name: str) -> None:
    try:
        client.get_waiter(what).wait(StackName=name, WaiterConfig={"Delay": 2, "MaxAttempts": 900})
    except WaiterError:
        raise DeployError(f"stack {name}: {_first_failure(client, name)}") from None


def _first_failure(client: Any, name: str) -> str:
    events = client.describe_stack_events(StackName=name)["StackEvents"]
    failed = [event for event in events if event["ResourceStatus"].endswith("_FAILED")]
    if not failed:
        return "not done in time"
    first = failed[-1]
    return f"{first['LogicalResourceId']}: {first.get('ResourceStatusReason', first['ResourceStatus'])}"


# Smoke test.


def smoke_test(url: str, token: str) -> None:
    """Ask a deployed API for the least that must work, until it does. Raises DeployError with the first thing wrong."""
    say("smoke test")
    deadline = time.monotonic() + SETTLE_SECONDS
    with httpx.Client(base_url=url, timeout=35, headers={"Authorization": f"Bearer {token}"}) as client:
        while True:
            wrong = _first_wrong(client)
            if wrong is None:
                return
            if time.monotonic() > deadline:
                raise DeployError(f"{url}: {wrong}")
            time.sleep(2)


def _first_wrong(client: httpx.Client) -> str | None:
    def expect(answer: httpx.Response, status: int, part: str) -> str | None:
        if answer.status_code == status and part in answer.text:
            return None
        asked = f"{answer.request.method} {answer.request.url.path}"
        return f"{asked} answered {answer.status_code} {answer.text[:200]!r}, not {status}"

    checks: list[Callable[[], str | None]] = [
        lambda: expect(client.get("/api/health"), 200, '"ok"'),
        lambda: expect(client.get("/api/runs", headers={"Authorization": "Bearer wrong"}), 401, '"detail"'),
        lambda: expect(client.get("/api/nothing-here"), 404, '"detail"'),
        lambda: expect(client.delete("/api/runs"), 405, '"detail"'),
        lambda: _run_passes(client, expect),
    ]
    try:
        return next((wrong for wrong in (check() for check in checks) if wrong), None)
    except httpx.TransportError as error:
        return f"no answer ({error})"


def _run_passes(client: httpx.Client, expect: Callable[[httpx.Response, int, str], str | None]) -> str | None:
    made = client.post("/api/runs", json={"name": "smoke test", "sims": [{}]})
    wrong = expect(made, 201, '"queued"')
    if wrong:
        return wrong
    run = made.json()
    sim = run["sims"][0]["id"]
    return (
        expect(client.post(f"/api/sims/{sim}/heartbeat", json={"state": "running"}), 200, '"running"')
        or expect(client.post(f"/api/sims/{sim}/logs", json={"seq": 0, "lines": ["hello"]}), 204, "")
        or expect(client.put(f"/api/sims/{sim}/files/a.csv", content=b"a,b\n"), 200, '"text/csv"')
        or expect(client.post(f"/api/sims/{sim}/heartbeat", json={"state": "succeeded"}), 200, '"succeeded"')
        or expect(client.delete(f"/api/runs/{run['id']}"), 204, "")
    )


# The command.


def _confirm(stage: str, keep_data: bool) -> None:
    what = "functions, API, alarms and token" + ("" if keep_data else ", and every run, log and file")
    answer = input(f"This removes stage {stage} for good: {what}. Type {stage} to go on: ")
    if answer.strip() != stage:
        raise DeployError("nothing was removed")


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(description="Deploy a stage of Cascade to AWS, or remove it.")
    parser.add_argument("command", choices=["deploy", "destroy"])
    parser.add_argument("stage", help="such as dev or prod")
    parser.add_argument("--force", action="store_true", help="deploy functions and API even if nothing changed")
    parser.add_argument(
        "--parameter", action="append", default=[], metavar="NAME=VALUE", help="of infra/resources.yaml"
    )
    parser.add_argument("--yes", action="store_true", help="destroy without asking")
    parser.add_argument("--keep-data", action="store_true", help="leave the table and the bucket when destroying")
    given = parser.parse_args(arguments)
    try:
        deployment = Deployment(given.stage)
        if given.command == "deploy":
            parameters = dict(one.partition("=")[::2] for one in given.parameter)
            url = deployment.deploy(parameters, force=given.force)
            say(f"CASCADE_URL={url}")
            # The page's own links are relative: without the slash they would leave the stage.
            say(f"the page: {url}/")
        else:
            if not given.yes:
                _confirm(given.stage, given.keep_data)
            deployment.destroy(keep_data=given.keep_data)
            say(f"stage {given.stage} is removed")
    except (DeployError, ClientError, BotoCoreError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, EOFError):
        print("error: nothing was done", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
