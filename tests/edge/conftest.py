"""The upload front door in front of a local AWS with real sockets."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cascade.serve import resources
from chalicelib import blobs, settings, table
from infra.edge import viewer
from tests.aws import TOKEN, Api
from tests.deploy.cloud import LocalAws
from tests.edge.cloudfront import Door


@pytest.fixture(scope="session")
def local_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    with LocalAws(tmp_path_factory.mktemp("edge") / "aws.log") as aws:
        resources.create_table(aws.client("dynamodb"), "cascade")
        resources.create_bucket(aws.client("s3"), "cascade")
        aws.client("secretsmanager").create_secret(Name="token", SecretString=f"{TOKEN} second-token")
        yield aws


@pytest.fixture(scope="session")
def clients(local_aws: LocalAws) -> Iterator[tuple[Any, Any]]:
    """The domain code's clients of DynamoDB and S3, on that AWS; making them takes longer than most tests."""
    made = (
        local_aws.session.client("dynamodb", endpoint_url=local_aws.endpoint, config=table.CONFIG),
        local_aws.session.client("s3", endpoint_url=local_aws.endpoint, config=blobs.CONFIG),
    )
    yield made
    for client in made:
        client.close()


@pytest.fixture
def cloud(local_aws: LocalAws, clients: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> LocalAws:
    """The domain code and the edge, in this process, on that AWS."""
    monkeypatch.setattr(table, "client", lambda: clients[0])
    monkeypatch.setattr(blobs, "client", lambda: clients[1])
    monkeypatch.setenv("AWS_ENDPOINT_URL", local_aws.endpoint)
    monkeypatch.setenv("CASCADE_TOKEN_SECRET", "token")
    monkeypatch.delenv("CASCADE_DIRECT_DOWNLOADS", raising=False)
    monkeypatch.setattr(viewer, "_cached", None)
    return local_aws


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    """A client as good as any; making one takes a tenth of a second."""
    with httpx.Client(timeout=60) as made:
        yield made


@pytest.fixture
def cloud_api(cloud: LocalAws) -> Api:
    """The app on the same table and bucket as the door."""
    from app import app

    return Api(app)


@pytest.fixture
def door(cloud: LocalAws, http: httpx.Client) -> Iterator[Door]:
    with Door(cloud.endpoint, settings.bucket_name(), http) as made:
        yield made
    assert made.faults == []
