"""Fixtures of all in-process tests: AWS by moto, the app, and a clock that only moves when told to."""

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests import aws, rights

# Before anything of AWS is imported: no test may reach a real account or print metrics between the dots.
os.environ |= {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "CASCADE_TOKEN": aws.TOKEN,
    "POWERTOOLS_METRICS_DISABLED": "true",
}


rights.install()

TOGETHER = ("tests/deploy/", "tests/edge/", "tests/page/")
"""Folders whose tests share what takes long to start."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each process takes a file, or a folder of TOGETHER, at a time; those with the most tests first."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What ends what other tests share comes after them."""
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


@pytest.fixture(autouse=True)
def granted() -> Iterator[None]:
    """The stage's policy grants every call of AWS that the app makes in any test."""
    yield
    assert rights.newly_refused() == set()


class Clock:
    """The server's clock, in microseconds since the epoch."""

    def __init__(self) -> None:
        self.us = 1_780_000_000_000_000

    def __call__(self) -> int:
        self.us += 1  # no two readings are the same, as in life
        return self.us

    def advance(self, seconds: float) -> None:
        self.us += int(seconds * 1_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    from chalicelib import clock as module

    made = Clock()
    monkeypatch.setattr(module, "now_us", made)
    return made


@cache
def clients() -> tuple[Any, Any]:
    """The app's clients of DynamoDB and S3 for all tests on moto: making them takes ten times as long as a test."""
    from chalicelib import blobs, table

    return table.client.__wrapped__(), blobs.client.__wrapped__()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Empty table and bucket in moto, and clients that reach them."""
    from moto import mock_aws

    from cascade.serve import resources
    from chalicelib import blobs, settings, table

    with mock_aws():
        dynamodb, s3 = clients()
        monkeypatch.setattr(table, "client", lambda: dynamodb)
        monkeypatch.setattr(blobs, "client", lambda: s3)
        resources.create_table(dynamodb, settings.table_name())
        resources.create_bucket(s3, settings.bucket_name())
        yield


@pytest.fixture
def api(service: None, monkeypatch: pytest.MonkeyPatch) -> aws.Api:
    """The app with a server in front that delivers any number of bytes itself, as the local one does."""
    from app import app

    monkeypatch.setenv("CASCADE_DIRECT_DOWNLOADS", "1")
    monkeypatch.setattr(app.api, "binary_types", [])
    return aws.Api(app)


@pytest.fixture
def lambda_api(service: None, monkeypatch: pytest.MonkeyPatch) -> aws.Api:
    """The app behind API Gateway: large and binary answers are redirects."""
    from app import app

    monkeypatch.delenv("CASCADE_DIRECT_DOWNLOADS", raising=False)
    return aws.Api(app)
