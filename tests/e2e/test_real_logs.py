"""Real simulator output through a real server: every kernel once and right, also when the server dies in the middle."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server
from tests.e2e.shared import LOGS, expected, found, lines_of

pytestmark = pytest.mark.skipif(not LOGS, reason="the real logs are not beside this checkout")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data")) as running:
        yield running


def chunks_of(lines: list[str], size: int = 200) -> list[dict[str, Any]]:
    return [{"seq": n, "lines": lines[i : i + size]} for n, i in enumerate(range(0, len(lines), size))]


def new_sim(client: httpx.Client) -> str:
    run = client.post("/api/runs", json={"name": "log", "sims": [{}]}).raise_for_status().json()
    return str(run["sims"][0]["id"])


def kernels_of(client: httpx.Client, sim_id: str) -> list[dict[str, Any]]:
    kernels: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = client.get(f"/api/sims/{sim_id}/kernels{cursor}").raise_for_status().json()
        kernels += page["kernels"]
        if page["next_cursor"] is None:
            return kernels
        cursor = f"?cursor={page['next_cursor']}"


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem[:24])
def test_a_log_in_random_order_from_four_threads_gives_its_kernels(server: Server, log: Path) -> None:
    lines = lines_of(log)
    chunks = chunks_of(lines)
    random.Random(log.stem).shuffle(chunks)
    with server.client() as client:
        sim_id = new_sim(client)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda chunk: client.post(f"/api/sims/{sim_id}/logs", json=chunk), chunks))
        assert {answer.status_code for answer in answers} == {204}
        kernels = kernels_of(client, sim_id)
        assert found(kernels) == expected(log)
        assert [kernel["index"] for kernel in kernels] == list(range(len(kernels)))
        shown = client.get(f"/api/sims/{sim_id}").json()
        assert (shown["log"]["chunks"], shown["log"]["lines"]) == (len(chunks), len(lines))
        assert shown["log"]["missing"] == []
        assert client.get(f"/api/sims/{sim_id}/logs", headers={"Accept": "text/plain"}).text == "\n".join(lines) + "\n"


def test_killed_in_the_middle_it_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    log = next(path for path in LOGS if path.stem.startswith("30-"))
    chunks = chunks_of(lines_of(log))
    random.Random(7).shuffle(chunks)
    server = Server(tmp_path / "data")
    with server, server.client() as client:
        sim_id = new_sim(client)
    acknowledged: set[int] = set()
    for part in (15, 30, 45):
        server.start()
        with server.client() as client, ThreadPoolExecutor(4) as pool:

            def send(chunk: dict[str, Any], client: httpx.Client = client) -> None:
                try:
                    if client.post(f"/api/sims/{sim_id}/logs", json=chunk).status_code == 204:
                        acknowledged.add(chunk["seq"])
                except httpx.TransportError:
                    return  # killed under it: not acknowledged, so sent again below

            waiting = [pool.submit(send, chunk) for chunk in chunks if chunk["seq"] not in acknowledged]
            while len(acknowledged) < part:
                waiting.pop(0).result()
            server.kill()
    with server, server.client() as client:
        stored = client.get(f"/api/sims/{sim_id}/logs", params={"limit": 1000}).json()["chunks"]
        assert acknowledged <= {chunk["seq"] for chunk in stored}
        for chunk in chunks:
            if chunk["seq"] not in acknowledged:
                assert client.post(f"/api/sims/{sim_id}/logs", json=chunk).status_code == 204
        assert found(kernels_of(client, sim_id)) == expected(log)
        assert client.get(f"/api/sims/{sim_id}").json()["log"]["lines"] == len(lines_of(log))
