"""A server and its client for the tests that need nothing special of them; a module with other wishes has fixtures of its own."""

from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data"), CASCADE_HEARTBEAT_TIMEOUT_S="9") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made
