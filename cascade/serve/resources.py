"""The table and the bucket of infra/resources.yaml, made by API calls where no CloudFormation runs."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from types_boto3_dynamodb.client import DynamoDBClient
    from types_boto3_s3.client import S3Client

TEMPLATE = Path(__file__).resolve().parents[2] / "infra" / "resources.yaml"

TABLE_PROPERTIES = (
    "AttributeDefinitions",
    "KeySchema",
    "BillingMode",
    "GlobalSecondaryIndexes",
    "LocalSecondaryIndexes",
)
"""Properties of AWS::DynamoDB::Table that CreateTable takes as they are and that change what a request does."""


class _TemplateLoader(yaml.SafeLoader):
    """Reads CloudFormation's short intrinsic functions (`!Ref`, `!Sub`, `!GetAtt`, `!If`) as `{name: argument}`."""


def _intrinsic(loader: _TemplateLoader, suffix: str, node: Any) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        return {suffix: loader.construct_scalar(node)}
    if isinstance(node, yaml.SequenceNode):
        return {suffix: loader.construct_sequence(node, deep=True)}
    return {suffix: loader.construct_mapping(node, deep=True)}


_TemplateLoader.add_multi_constructor("!", _intrinsic)


@cache
def _resources(template: Path) -> dict[str, dict[str, Any]]:
    document = yaml.load(template.read_text(encoding="utf-8"), Loader=_TemplateLoader)  # noqa: S506 - a SafeLoader
    resources: dict[str, dict[str, Any]] = document["Resources"]
    return resources


def properties(kind: str, template: Path = TEMPLATE) -> dict[str, Any]:
    """Properties of the template's one resource of type `kind`, such as `AWS::S3::Bucket`. Raises LookupError."""
    found = [resource for resource in _resources(template).values() if resource["Type"] == kind]
    if len(found) != 1:
        raise LookupError(f"{template} has {len(found)} resources of type {kind}, not one")
    return dict(found[0].get("Properties", {}))


def create_table(client: "DynamoDBClient", name: str, template: Path = TEMPLATE) -> None:
    """Make the template's table under `name`, with its time to live. Does nothing where it is there already."""
    wanted = properties("AWS::DynamoDB::Table", template)
    request: dict[str, Any] = {key: wanted[key] for key in TABLE_PROPERTIES if key in wanted}
    try:
        client.create_table(TableName=name, **request)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceInUseException":
            raise
    client.get_waiter("table_exists").wait(TableName=name)
    ttl = wanted.get("TimeToLiveSpecification")
    status = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"].get("TimeToLiveStatus")
    if ttl and status not in ("ENABLED", "ENABLING"):
        client.update_time_to_live(TableName=name, TimeToLiveSpecification=ttl)


def create_bucket(client: "S3Client", name: str, template: Path = TEMPLATE) -> None:
    """Make the template's bucket under `name`, with its versioning. Does nothing where it is there already."""
    wanted = properties("AWS::S3::Bucket", template)
    region = client.meta.region_name
    try:
        if region == "us-east-1":
            client.create_bucket(Bucket=name)
        else:
            client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": region})  # type: ignore[typeddict-item]
    except ClientError as error:
        if error.response["Error"]["Code"] != "BucketAlreadyOwnedByYou":
            raise
    if "VersioningConfiguration" in wanted:
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration=wanted["VersioningConfiguration"])
