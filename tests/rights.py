"""Which rights the app's calls to AWS need, and which a policy grants.

`install` makes every call that `chalicelib` sends in this process, from whatever test, end up in `SEEN`; a fixture of all
tests looks after each of them whether the policy grants what is new there.
"""

import fnmatch
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from types import FrameType
from typing import Any

from botocore import signers
from botocore.client import BaseClient

TABLE, BUCKET, SECRET = "arn:aws:dynamodb:::table/T", "arn:aws:s3:::B", "arn:aws:secretsmanager:::secret:S"
"""Stand for the stage's own, whatever a test calls them."""
LOGS, QUEUE = "arn:aws:logs:::log-group:L:*", "arn:aws:sqs:::Q"
POLICY_FILE = Path(__file__).resolve().parents[1] / ".chalice" / "policy.json"


@dataclass(frozen=True)
class Need:
    """One right that a call needs."""

    action: str
    resource: str
    prefix: str | None = None
    """What a listing asks for, S3's condition key `s3:prefix`."""


SEEN: set[Need] = set()
_checked: set[Need] = set()

_TRANSACTION = {
    "Put": "dynamodb:PutItem",
    "Update": "dynamodb:UpdateItem",
    "Delete": "dynamodb:DeleteItem",
    "ConditionCheck": "dynamodb:ConditionCheckItem",
}
_PUTS = ("PutObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload")


def needs(service: str, operation: str, request: dict[str, Any]) -> Iterator[Need]:
    """The rights that a call needs, by the service authorization reference. Raises LookupError for an unknown call."""
    if service == "dynamodb":
        yield from _dynamodb(operation, request)
    elif service == "s3":
        yield from _s3(operation, request)
    elif (service, operation) == ("secretsmanager", "GetSecretValue"):
        yield Need("secretsmanager:GetSecretValue", SECRET)
    else:
        raise LookupError(f"no idea which rights {service} {operation} needs")


def _dynamodb(operation: str, request: dict[str, Any]) -> Iterator[Need]:
    if operation == "TransactWriteItems":
        for entry in request["TransactItems"]:
            yield Need(_TRANSACTION[next(iter(entry))], TABLE)
    elif operation == "Query" and "IndexName" in request:
        yield Need("dynamodb:Query", f"{TABLE}/index/{request['IndexName']}")
    else:
        yield Need(f"dynamodb:{operation}", TABLE)


def _s3(operation: str, request: dict[str, Any]) -> Iterator[Need]:
    if operation == "ListObjectVersions":
        yield Need("s3:ListBucketVersions", BUCKET, request["Prefix"])
        return
    if operation == "DeleteObjects":
        for one in request["Delete"]["Objects"]:
            yield Need("s3:DeleteObjectVersion" if "VersionId" in one else "s3:DeleteObject", f"{BUCKET}/{one['Key']}")
        return
    key = f"{BUCKET}/{request['Key']}"
    version = "Version" if "VersionId" in request else ""
    if operation in ("GetObject", "HeadObject"):
        yield Need(f"s3:GetObject{version}", key)
        # Without it S3 says 403 of what is not there, and nobody can tell that it is gone.
        yield Need("s3:ListBucket", BUCKET)
    elif operation == "DeleteObject":
        yield Need(f"s3:DeleteObject{version}", key)
    elif operation in _PUTS:
        yield Need("s3:PutObject", key)
    elif operation == "AbortMultipartUpload":
        yield Need("s3:AbortMultipartUpload", key)
    else:
        raise LookupError(f"no idea which rights s3 {operation} needs")


def _is_the_apps() -> bool:
    """Whether a call comes from the app, not from a test or the local engine.

    Inside the SDK there may be a test's own function that makes calls fail.
    """
    frame: FrameType | None = sys._getframe(2)
    outside = ""
    while frame and (outside := str(frame.f_globals["__name__"])).startswith(("botocore.", "tests.")):
        before = str(frame.f_back.f_globals["__name__"]) if frame.f_back else ""
        if outside.startswith("tests.") and not before.startswith("botocore."):
            return False
        frame = frame.f_back
    return outside.startswith(("chalicelib.", "aws_lambda_powertools.", "infra.edge."))


def install() -> None:
    """Note each call from now on."""
    call, presign = BaseClient._make_api_call, signers.generate_presigned_url  # type: ignore[attr-defined]

    def noted(self: Any, operation: str, request: dict[str, Any]) -> Any:
        if _is_the_apps():
            SEEN.update(needs(self.meta.service_model.service_name, operation, request))
        return call(self, operation, request)

    def noted_presign(self: Any, method: str, Params: dict[str, Any], **more: Any) -> Any:
        if _is_the_apps():
            operation = self.meta.method_to_api_mapping[method]
            SEEN.update(needs(self.meta.service_model.service_name, operation, Params))
        return presign(self, method, Params=Params, **more)

    BaseClient._make_api_call = noted  # type: ignore[attr-defined]
    # Clients get it as a method when they are made.
    signers.generate_presigned_url = noted_presign


def newly_refused() -> set[Need]:
    """What was seen since this was last asked and the stage's policy does not grant."""
    new = SEEN - _checked
    _checked.update(new)
    return missing(stage_policy(), new) if new else set()


# Policies.


@cache
def stage_policy() -> Any:
    """The policy document of the functions of a stage."""
    names = {"TableArn": TABLE, "BucketArn": BUCKET, "SecretArn": SECRET, "DeadLettersArn": QUEUE}
    names |= dict.fromkeys(("ApiLogsArn", "SweepLogsArn", "StoredLogsArn"), LOGS)
    return json.loads(Template(POLICY_FILE.read_text()).substitute(names))


@dataclass(frozen=True)
class Grant:
    """One action on one resource pattern, as a policy has it."""

    action: str
    resource: str
    prefixes: tuple[str, ...] = ()

    def covers(self, need: Need) -> bool:
        """Whether it is enough for that. Resources and prefixes may have wildcards, actions may not."""
        if need.action != self.action or not fnmatch.fnmatchcase(need.resource, self.resource):
            return False
        return not self.prefixes or any(fnmatch.fnmatchcase(need.prefix or "", prefix) for prefix in self.prefixes)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def grants(policy: dict[str, Any]) -> list[Grant]:
    """What a policy document grants, each action, resource and prefix on its own."""
    found = []
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        prefixes = _listed(statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix", []))
        for action in _listed(statement["Action"]):
            for resource in _listed(statement["Resource"]):
                found += [Grant(action, resource, (prefix,)) for prefix in prefixes] or [Grant(action, resource)]
    return found


def missing(policy: dict[str, Any], used: Iterable[Need]) -> set[Need]:
    """Rights that are needed and not granted."""
    granted = grants(policy)
    return {need for need in used if not any(grant.covers(need) for grant in granted)}


def unused(policy: dict[str, Any], used: Iterable[Need]) -> set[Grant]:
    """Rights that are granted and not needed: by no call, or on more than the one thing that calls are about."""
    wanted = list(used)
    return {
        grant
        for grant in grants(policy)
        if not any(grant.covers(need) for need in wanted) or _is_too_wide(grant, {need.resource for need in wanted})
    }


def _is_too_wide(grant: Grant, resources: set[str]) -> bool:
    """Whether a pattern stands where one name would do."""
    return grant.resource not in resources and len(fnmatch.filter(resources, grant.resource)) < 2
