"""The client through what stands in front of a deployment, with API Gateway's and Lambda's limits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app import app
from cascade.client import Client, TooLarge
from tests.deploy.gateway import EVENT_BYTES, Gateway
from tests.e2e.server import Server

REFUSED = {"responseTemplates": {"application/json": '{"detail": "over 6 MB"}'}, "statusCode": "413"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Server(tmp_path_factory.mktemp("data")) as server:
        responses = dict.fromkeys(("REQUEST_TOO_LARGE", "DEFAULT_4XX", "DEFAULT_5XX"), REFUSED)
        with (
            Gateway(server.url, responses, app.api.binary_types) as gateway,
            Client(gateway.url, server.token, give_up_after=5) as made,
        ):
            yield made


def test_json_over_the_limit_gets_through_compressed(client: Client) -> None:
    text = "x" * (EVENT_BYTES // 100)
    run = client.create_run("large", [{"params": {"p": "y" * 9_000}} for _ in range(900)])
    sim = run.sims[0].id
    client.send_log_chunk(sim, 0, [text] * 110)
    client.send_step_timeline(sim, {"steps": [{"note": text}] * 110, "summary": {}})
    assert client.show_sim(sim).log.bytes > EVENT_BYTES


def test_a_file_over_the_limit_is_refused_by_the_gateway_in_the_first_place(client: Client, tmp_path: Path) -> None:
    """Else the test above shows nothing."""
    sim = client.create_run("file", [{}]).sims[0].id
    (tmp_path / "a.bin").write_bytes(bytes(EVENT_BYTES))
    with pytest.raises(TooLarge, match="over 6 MB"):
        client.upload_file(sim, "a.bin", tmp_path / "a.bin")
