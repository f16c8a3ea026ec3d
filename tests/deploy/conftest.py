"""One deployment to a local AWS, shared by the tests of this folder."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.deploy.cloud import STAGE, LocalAws, copy_checkout
from tests.deploy.gateway import STATUS, Gateway

HERE = Path(__file__).parent
TIMEOUT_S = "30"
"""Of a heartbeat: longer than any test leaves a sim alone, and over by the time the last ones look for the silent sim."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--url", help="of a deployed stage, for the contract tests to run against; CASCADE_TOKEN is its token"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out single values of parameters that contract tests can't be run with over HTTP."""
    out = {one: one.path.parent == HERE and one.get_closest_marker("in_process") is not None for one in items}
    config.hook.pytest_deselected(items=[one for one in items if out[one]])
    items[:] = [one for one in items if not out[one]]


@dataclass
class Deployed:
    """What `make deploy` left."""

    aws: LocalAws
    checkout: Path
    output: str
    direct: str
    """URL at the local AWS."""
    proxy: Gateway
    """Stands before it and enforces what the local AWS does not."""
    token: str
    silent_sim: str
    """Claimed right after the deployment, and never heard of again."""

    @property
    def url(self) -> str:
        """URL through the enforcing proxy."""
        return self.proxy.url

    def client(self, url: str | None = None) -> httpx.Client:
        return httpx.Client(base_url=url or self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=60)

    def outputs(self) -> dict[str, str]:
        stack = self.aws.client("cloudformation").describe_stacks(StackName=f"cascade-{STAGE}")["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("deploy")
    checkout = copy_checkout(folder / "clone")
    with LocalAws(folder / "aws.log") as aws:
        done = aws.run(checkout, "deploy", STAGE, CASCADE_HEARTBEAT_TIMEOUT_S=TIMEOUT_S)
        assert done.returncode == 0, done.stdout
        found = re.search(r"^CASCADE_URL=(.+)$", done.stdout, re.MULTILINE)
        assert found, done.stdout
        secrets = aws.client("secretsmanager")
        secret_id = secrets.list_secrets()["SecretList"][0]["Name"]
        token = secrets.get_secret_value(SecretId=secret_id)["SecretString"]
        gateway = aws.client("apigateway")
        api = gateway.get_rest_apis()["items"][0]
        responses = {kind: gateway.get_gateway_response(restApiId=api["id"], responseType=kind) for kind in STATUS}
        with Gateway(found[1], responses, api["binaryMediaTypes"]) as proxy:
            made = Deployed(aws, checkout, done.stdout, found[1], proxy, token, "")
            with made.client() as client:
                run = client.post("/api/runs", json={"name": "silent", "sims": [{}]}).json()
                made.silent_sim = client.post(f"/api/runs/{run['id']}/claim", json={"worker": "w"}).json()["id"]
            yield made
