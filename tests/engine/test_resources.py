"""infra/resources.yaml as the local server and the tests read it."""

from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moto import mock_aws

from cascade.serve import resources


@mock_aws
@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_table_and_bucket_are_made_from_the_template_and_again_on_every_start(region: str) -> None:
    dynamodb, s3 = boto3.client("dynamodb", region), boto3.client("s3", region)
    for _ in range(2):
        resources.create_table(dynamodb, "table")
        resources.create_bucket(s3, "bucket")
    table = dynamodb.describe_table(TableName="table")["Table"]
    assert [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]] == [("pk", "HASH"), ("sk", "RANGE")]
    (index,) = table["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "sweep"
    assert index["Projection"]["ProjectionType"] == "KEYS_ONLY"
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["sweep_pk", "pk"]
    ttl = dynamodb.describe_time_to_live(TableName="table")["TimeToLiveDescription"]
    assert ttl == {"AttributeName": "expires_at", "TimeToLiveStatus": "ENABLED"}
    assert s3.get_bucket_versioning(Bucket="bucket")["Status"] == "Enabled"


def test_intrinsic_functions_are_tolerated(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text(
        "Resources:\n  B:\n    Type: AWS::S3::Bucket\n    Properties:\n"
        "      BucketName: !Sub '${AWS::StackName}-b'\n      Tags: [!Ref T, !GetAtt X.Arn, !If [C, 1, 2]]\n      X: !M {a: !Ref b}\n"
    )
    found = resources.properties("AWS::S3::Bucket", template)
    assert found["BucketName"] == {"Sub": "${AWS::StackName}-b"}
    assert found["Tags"] == [{"Ref": "T"}, {"GetAtt": "X.Arn"}, {"If": ["C", 1, 2]}]
    assert found["X"] == {"M": {"a": {"Ref": "b"}}}


def test_a_template_without_the_resource_is_refused(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("Resources: {}\n")
    with pytest.raises(LookupError, match="0 resources of type AWS::S3::Bucket"):
        resources.properties("AWS::S3::Bucket", template)


def test_another_error_than_being_there_already_is_raised() -> None:
    s3, dynamodb = boto3.client("s3", "us-east-1"), boto3.client("dynamodb", "us-east-1")
    with Stubber(s3) as stub:
        stub.add_client_error("create_bucket", "BucketAlreadyExists")
        with pytest.raises(ClientError, match="BucketAlreadyExists"):
            resources.create_bucket(s3, "bucket")
    with Stubber(dynamodb) as stub:
        stub.add_client_error("create_table", "LimitExceededException")
        with pytest.raises(ClientError, match="LimitExceededException"):
            resources.create_table(dynamodb, "table")
