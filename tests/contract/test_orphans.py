"""Objects that no item names, left by what died between the two: removed once their sim is settled, and no others."""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from cascade.sample_log import SampleLog
from chalicelib import blobs, logs, sims, table, timing
from chalicelib.sweep import TIDY_SLOTS, sweep
from tests.aws import Answer, Api
from tests.conftest import Clock
from tests.contract.counting import requests
from tests.contract.stored import orphans, versions
from tests.model.faults import Died, dies_at

pytestmark = pytest.mark.in_process

HOUR = 3600
LOG = list(SampleLog(kernels=2, seed=3).lines())
MOST_CALLS = 40


@pytest.fixture
def clock(clock: Clock) -> Clock:
    clock.us = time.time_ns() // 1000  # an object is as old as the object store says, which knows nothing of our clock
    return clock


@pytest.fixture(autouse=True)
def _everything_in_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limit in ((logs, "INLINE_MAX_BYTES"), (logs, "ITEM_MAX_BYTES"), (timing, "INLINE_MAX_BYTES")):
        monkeypatch.setattr(module, limit, 10)
    monkeypatch.setattr(sims, "SHARDS", 1)  # sixteen times as fast on moto


def send(api: Api, sim: str, seq: int = 0) -> Answer:
    return api.post(f"/api/sims/{sim}/logs", {"seq": seq, "lines": LOG})


def time_steps(api: Api, sim: str) -> Answer:
    return api.post(f"/api/sims/{sim}/step-timeline", {"simulated": {"steps": [1, 2], "summary": {"a": "b" * 99}}})


CALLS: dict[str, Callable[[Api, str], Answer]] = {"logs": send, "timing": time_steps}


def finish(api: Api, sim: str) -> None:
    assert api.post(f"/api/sims/{sim}/heartbeat", {"state": "succeeded"}).status == 200


def settle(clock: Clock) -> None:
    clock.advance(61)
    sweep()


def tidy(clock: Clock, hours: int = TIDY_SLOTS) -> None:
    """Long enough for each sim that waits to be looked at."""
    for _ in range(hours):
        clock.advance(HOUR)
        sweep()


def whole(api: Api, sim: str) -> bool:
    """Whether all that was acknowledged can be read."""
    (chunk,) = api.get(f"/api/sims/{sim}/logs").json()["chunks"]
    kernels = api.get(f"/api/sims/{sim}/kernels").json()["kernels"]
    return chunk["lines"] == LOG and len(kernels) == 2 and api.get(f"/api/sims/{sim}/step-timeline").status == 200


def waits(sim: str) -> Any:
    return (table.get(sim, sims.HOT) or {}).get("sweep_pk")


def orphan(sim: str) -> None:
    blobs.put(f"logs/{sim}/{0:019d}-{sims.new_token()}", b"x")


@pytest.mark.parametrize("late", [False, True], ids=["running", "long finished"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", CALLS)
def test_what_died_at_any_call_leaves_no_object(api: Api, clock: Clock, kind: str, when: Any, late: bool) -> None:
    left = 0
    for n in range(1, MOST_CALLS):
        clock.us = time.time_ns() // 1000
        sim, died = api.new_sim(), True
        if late:
            clock.us -= 2 * TIDY_SLOTS * HOUR * 1_000_000
            finish(api, sim)
            settle(clock)
            tidy(clock)
            assert waits(sim) is None
            clock.us = time.time_ns() // 1000
        with suppress(Died), dies_at(n, when):
            CALLS[kind](api, sim)
            died = False
        left += len(orphans())
        finish(api, sim)
        settle(clock)
        tidy(clock, 2 * TIDY_SLOTS)
        assert orphans() == [], (n, when)
        assert waits(sim) is None
        if not died:
            assert left > 0
            return
    pytest.fail(f"more than {MOST_CALLS} calls")


def test_a_retry_that_went_through_keeps_its_objects(api: Api, clock: Clock) -> None:
    for n in range(1, MOST_CALLS):
        clock.us = time.time_ns() // 1000
        sim, died = api.new_sim(), True
        with suppress(Died), dies_at(n, "after"):
            send(api, sim)
            time_steps(api, sim)
            died = False
        assert (send(api, sim).status, time_steps(api, sim).status) == (204, 204)
        finish(api, sim)
        settle(clock)
        tidy(clock)
        assert orphans() == []
        assert whole(api, sim)
        if not died:
            return
    pytest.fail(f"more than {MOST_CALLS} calls")


def test_the_loser_of_a_race_for_the_cursor_leaves_no_kernels(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim, transact = api.new_sim(), table.transact

    def second(ops: Any) -> None:
        monkeypatch.setattr(table, "transact", transact)
        assert send(api, sim).status == 204
        transact(ops)

    monkeypatch.setattr(table, "transact", second)
    assert send(api, sim).status == 204
    assert [name.split("/")[0] for name, _ in orphans()] == ["kernels"]
    time_steps(api, sim)
    finish(api, sim)
    settle(clock)
    tidy(clock)
    assert orphans() == []
    assert whole(api, sim)


def test_a_version_that_the_sdk_wrote_twice_goes_and_the_one_that_counts_stays(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = blobs.put

    def twice(key: str, body: bytes) -> str:
        version = put(key, body)
        put(key, body)  # the first try, that arrives last: the version that counts is not the current one
        return version

    monkeypatch.setattr(blobs, "put", twice)
    sim = api.new_sim()
    send(api, sim)
    time_steps(api, sim)
    assert len(orphans()) == 3
    finish(api, sim)
    settle(clock)
    tidy(clock)
    assert orphans() == []
    assert whole(api, sim)


def test_a_put_under_way_is_not_hit(api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the object and its item everything that can be due comes, but for an hour."""
    sim, put = api.new_sim(), table.put
    finish(api, sim)
    settle(clock)

    def late(*args: Any) -> None:
        clock.us = time.time_ns() // 1000 + 59 * 60 * 1_000_000
        for slot in range(TIDY_SLOTS):
            table.update(sim, sims.HOT, "SET sweep_pk = :s", {":s": f"tidy#{slot}"})
            sweep()
        put(*args)

    monkeypatch.setattr(table, "put", late)
    assert send(api, sim).status == 204
    monkeypatch.undo()
    assert api.get(f"/api/sims/{sim}/logs").json()["chunks"][0]["lines"] == LOG


def test_young_orphans_are_looked_at_again_when_they_are_old(api: Api, clock: Clock) -> None:
    sim = api.new_sim()
    orphan(sim)
    clock.us -= HOUR * TIDY_SLOTS * 1_000_000  # so that the object is younger than an hour at the first look
    finish(api, sim)
    settle(clock)
    settled = waits(sim)
    tidy(clock)
    assert len(orphans()) == 1
    assert waits(sim) not in (settled, None)
    with requests() as seen:
        sweep()
        clock.advance(60)
        sweep()
    assert "ListObjectVersions" not in seen  # it waits for an hour, not at each sweep
    tidy(clock, 2 * TIDY_SLOTS)
    assert orphans() == []
    assert waits(sim) is None


def test_a_finished_sim_is_listed_once_and_a_running_one_never(api: Api, clock: Clock) -> None:
    _, (done, running, queued) = api.new_run(3)
    for sim in (done, running):
        api.post(f"/api/sims/{sim}/heartbeat", {"state": "running"})
        send(api, sim)
    finish(api, done)
    with requests() as seen:
        for _ in range(4 * TIDY_SLOTS):
            for _ in range(4):
                clock.advance(HOUR / 4)
                api.post(f"/api/sims/{running}/heartbeat", {"state": "running"})
                sweep()
    assert seen["ListObjectVersions"] == 3
    assert seen["DeleteObject"] == 0
    assert waits(done) is None
    assert waits(queued) is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_sweep_that_died_is_made_good_by_the_next(api: Api, clock: Clock, when: Any) -> None:
    for n in range(1, MOST_CALLS):
        clock.us = time.time_ns() // 1000
        sim, died = api.new_sim(), True
        send(api, sim)
        time_steps(api, sim)
        for _ in range(2):
            orphan(sim)
        finish(api, sim)
        settle(clock)
        clock.advance((TIDY_SLOTS - 1) * HOUR)
        with suppress(Died), dies_at(n, when):
            sweep()
            died = False
        sweep()
        assert orphans() == [], n
        assert waits(sim) is None
        assert whole(api, sim)
        if not died:
            assert n > 8
            return
    pytest.fail(f"more than {MOST_CALLS} calls")


def test_a_late_chunk_with_a_gap_is_settled_though_the_sweep_looked_just_before(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim, look = api.new_sim(), logs.settle
    finish(api, sim)

    def looked(*args: Any) -> bool:
        done = look(*args)
        send(api, sim, 7)
        return done

    clock.advance(61)
    with monkeypatch.context() as patched:
        patched.setattr(logs, "settle", looked)
        sweep()
    settle(clock)
    tidy(clock)
    assert len(api.get(f"/api/sims/{sim}/kernels").json()["kernels"]) == 2


def test_a_sim_that_was_lost_is_tidied_and_may_come_back(api: Api, clock: Clock) -> None:
    sim = api.new_sim()
    api.post(f"/api/sims/{sim}/heartbeat", {"state": "running"})
    orphan(sim)
    settle(clock)
    tidy(clock)
    assert versions("logs/") == []
    assert api.post(f"/api/sims/{sim}/heartbeat", {"state": "running"}).json()["state"] == "running"
    assert waits(sim) == sims.shard("running", sim)


def test_an_object_of_a_sim_that_came_back_just_then_leaves_it_among_the_running(api: Api, clock: Clock) -> None:
    sim = api.new_sim()
    api.post(f"/api/sims/{sim}/heartbeat", {"state": "running"})
    settle(clock)
    seen = table.get(sim, sims.HOT)
    assert seen
    assert seen["state"] == "lost"
    api.post(f"/api/sims/{sim}/heartbeat", {"state": "running"})
    sims.expect_object(seen)
    assert waits(sim) == sims.shard("running", sim)


def test_many_finish_at_once(api: Api, clock: Clock) -> None:
    _, found = api.new_run(70)
    random.shuffle(found)
    for sim in found:
        finish(api, sim)
    for sim in found[:5]:
        orphan(sim)
    settle(clock)
    tidy(clock)
    assert orphans() == []
    assert {waits(sim) for sim in found} == {None}
