"""Calls at the same time, on the engine: each of them may win, and nobody gets half of both."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest

from cascade.serve.engine import Engine
from tests.aws import Answer, Api

pytestmark = pytest.mark.engine


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    from app import app
    from chalicelib import blobs, table

    monkeypatch.setenv("CASCADE_DIRECT_DOWNLOADS", "1")
    monkeypatch.setattr(app.api, "binary_types", [])
    table.client.cache_clear()
    blobs.client.cache_clear()
    with Engine(tmp_path / "data") as engine:
        engine.connect(table.client())
        engine.connect(blobs.client())
        yield Api(app)
    table.client.cache_clear()
    blobs.client.cache_clear()


def at_once(*calls: Callable[[], Answer]) -> list[Answer]:
    """All calls begun at the same time; a 503 is sent again, as every client does."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], Answer]) -> Answer:
        barrier.wait(30)
        answer = call()
        for _ in range(50):
            if answer.status != 503:
                break
            answer = call()
        return answer

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def named(api: Api, name: str) -> set[str]:
    """Ids of the newest runs with this name."""
    return {run["id"] for run in api.get("/api/runs?limit=100").json()["runs"] if run["name"] == name}


def test_the_same_creation_twice_at_once_is_one_run(api: Api) -> None:
    made, series = set(), uuid4().hex
    for n in range(10):
        body, header = {"name": series, "sims": [{}, {}]}, {"Idempotency-Key": f"{series} {n}"}
        answers = at_once(*[lambda b=body, h=header: api.post("/api/runs", b, headers=h)] * 4)  # type: ignore[misc]
        assert {a.status for a in answers} == {201}
        assert len({a.json()["id"] for a in answers}) == 1
        made.add(answers[0].json()["id"])
    assert named(api, series) == made


def test_one_key_with_two_bodies_at_once_is_one_run_and_one_409(api: Api) -> None:
    name = uuid4().hex
    header = {"Idempotency-Key": name}
    bodies: list[Any] = [{"name": name, "sims": [{}] * count} for count in (1, 2)]
    answers = at_once(*(lambda b=body: api.post("/api/runs", b, headers=header) for body in bodies))  # type: ignore[misc]
    assert sorted(a.status for a in answers) == [201, 409]
    assert named(api, name) == {a.json()["id"] for a in answers if a.status == 201}


def test_each_sim_is_claimed_by_one_worker(api: Api) -> None:
    run, sims = api.new_run(12)
    calls = [lambda w=w: api.post(f"/api/runs/{run}/claim", {"worker": f"w{w}"}) for w in range(16)]  # type: ignore[misc]
    answers = at_once(*calls)
    assert sorted(a.status for a in answers) == [200] * 12 + [204] * 4
    assert sorted(a.json()["id"] for a in answers if a.status == 200) == sorted(sims)
    for n, answer in enumerate(answers):
        if answer.status == 200:
            assert api.get(f"/api/sims/{answer.json()['id']}").json()["worker"] == f"w{n}"


def test_the_same_claim_twice_at_once_takes_one_sim(api: Api) -> None:
    run, _ = api.new_run(8)
    header = {"Idempotency-Key": "k"}
    answers = at_once(*[lambda: api.post(f"/api/runs/{run}/claim", {"worker": "w"}, headers=header)] * 6)
    assert {a.status for a in answers} == {200}
    assert len({a.json()["id"] for a in answers}) == 1
    assert api.get(f"/api/runs/{run}").json()["counts"]["running"] == 1


def test_a_cancel_and_two_last_heartbeats_at_once_leave_one_end(api: Api) -> None:
    for _ in range(15):
        sim = api.new_sim()
        end = f"/api/sims/{sim}/heartbeat"
        answers = at_once(
            lambda s=sim: api.post(f"/api/sims/{s}/cancel"),  # type: ignore[misc]
            lambda p=end: api.post(p, {"state": "succeeded", "exit_code": 0}),  # type: ignore[misc]
            lambda p=end: api.post(p, {"state": "failed", "exit_code": 1, "error": "e" * 4000}),  # type: ignore[misc]
        )
        assert {a.status for a in answers} == {200}
        shown = api.get(f"/api/sims/{sim}").json()
        assert {a.json()["state"] for a in answers} == {shown["state"]}
        end_of = {"cancelled": (None, None), "succeeded": (0, None), "failed": (1, "e" * 4000)}
        assert (shown["exit_code"], shown["error"]) == end_of[shown["state"]]


def test_a_claim_and_a_deletion_at_once_leave_a_run_or_nothing(api: Api) -> None:
    for _ in range(15):
        run, (sim,) = api.new_run()
        claimed, deleted = at_once(
            lambda r=run: api.post(f"/api/runs/{r}/claim", {"worker": "w"}),  # type: ignore[misc]
            lambda r=run: api.delete(f"/api/runs/{r}"),  # type: ignore[misc]
        )
        assert deleted.status in (204, 409)
        assert claimed.status in (200, 204, 404)
        after = api.get(f"/api/sims/{sim}")
        assert after.status == (404 if deleted.status == 204 else 200)


def test_sims_added_at_once_are_all_there_once(api: Api) -> None:
    run, first = api.new_run(1)
    answers = at_once(*[lambda: api.post(f"/api/runs/{run}/sims", {"sims": [{}, {}]})] * 5)
    assert {a.status for a in answers} == {201}
    added = [sim["id"] for a in answers for sim in a.json()]
    shown = [sim["id"] for sim in api.get(f"/api/runs/{run}").json()["sims"]]
    assert sorted(shown) == sorted(first + added)
    assert len(set(shown)) == 11
