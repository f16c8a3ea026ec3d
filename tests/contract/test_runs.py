"""Runs: create, list, show, add, claim, cancel, delete."""

import json
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from chalicelib import blobs, runs, table
from chalicelib.sweep import sweep
from tests.aws import Api
from tests.conftest import Clock
from tests.contract.stored import versions
from tests.model.faults import Died, dies_at

MINUTE = 60
QUARTER = 15 * MINUTE + 1


def key(value: str) -> dict[str, str]:
    return {"Idempotency-Key": value}


def everything() -> list[tuple[str, str]]:
    """Keys of all items in the table."""
    found = table.client().scan(TableName=table.settings.table_name())["Items"]
    return [(item["pk"]["S"], item["sk"]["S"]) for item in found]


def objects() -> list[str]:
    return [name for name, _ in versions("")]


# Create.


def test_a_new_run_is_its_detail(api: Api) -> None:
    answer = api.post("/api/runs", {"name": "sweep", "sims": [{"name": "a", "params": {"l2": 6}}, {}]})
    assert answer.status == 201
    run = answer.json()
    assert set(run) == {"id", "name", "created_at", "counts", "sims"}
    assert len(run["id"]) == 16
    assert run["name"] == "sweep"
    assert run["counts"] == {"queued": 2, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 0, "lost": 0}
    assert [sim["name"] for sim in run["sims"]] == ["a", "#1"]
    assert all("params" not in sim for sim in run["sims"])
    assert api.get(f"/api/runs/{run['id']}").json() == run
    sim = api.get(f"/api/sims/{run['sims'][0]['id']}").json()
    assert sim == {
        "id": run["sims"][0]["id"],
        "run_id": run["id"],
        "name": "a",
        "state": "queued",
        "params": {"l2": 6},
        "worker": None,
        "created_at": sim["created_at"],
        "started_at": None,
        "finished_at": None,
        "last_heartbeat_at": None,
        "exit_code": None,
        "error": None,
        "kernels": 0,
        "log": {"chunks": 0, "lines": 0, "bytes": 0, "next_seq": 0, "missing": []},
        "files": {"count": 0, "bytes": 0},
        "step_timeline": False,
    }


@pytest.mark.parametrize(("count", "status"), [(0, 422), (1, 201), (1000, 201), (1001, 422)])
def test_one_to_a_thousand_sims(api: Api, count: int, status: int) -> None:
    answer = api.post("/api/runs", {"name": "x", "sims": [{}] * count})
    assert answer.status == status
    if status == 201:
        assert len({sim["id"] for sim in answer.json()["sims"]}) == count
        assert [sim["name"] for sim in answer.json()["sims"]] == [f"#{n}" for n in range(count)]
        assert len(answer.body) < 1_000_000


@pytest.mark.parametrize(("size", "status"), [(0, 422), (1, 201), (200, 201), (201, 422)])
def test_names_have_1_to_200_characters(api: Api, size: int, status: int) -> None:
    assert api.post("/api/runs", {"name": "é" * size, "sims": [{}]}).status == status
    assert api.post("/api/runs", {"name": "x", "sims": [{"name": "é" * size}]}).status == status


@pytest.mark.parametrize("more", [0, 1])
def test_params_of_a_sim_hold_16_kib(api: Api, more: int) -> None:
    params = {"k": "x" * (16 * 1024 - len('{"k": ""}') + more)}
    answer = api.post("/api/runs", {"name": "x", "sims": [{"params": params}]})
    assert answer.status == (422 if more else 201)
    if not more:
        assert api.get(f"/api/sims/{answer.json()['sims'][0]['id']}").json()["params"] == params


def test_a_thousand_sims_with_16_kib_of_params_each(api: Api) -> None:
    sims = [{"params": {"k": "x" * 16_000}}] * 1000
    answer = api.packed("/api/runs", {"name": "x", "sims": sims})
    assert answer.status == 201
    assert len(answer.body) < 1_000_000


def test_params_come_back_as_they_were(api: Api) -> None:
    params = {"b": 2**60 + 1, "a": 0.0, "é": None, "n": [1, {"x": True}], "": "\x00"}
    run = api.post("/api/runs", {"name": "x", "sims": [{"params": params}]}).json()
    shown = api.get(f"/api/sims/{run['sims'][0]['id']}").json()["params"]
    assert json.dumps(shown) == json.dumps(params)


@pytest.mark.parametrize("sims", [None, {}, "x", [None], [1], [{"name": 1}], [{"params": []}], [{"params": None}]])
def test_422_for_what_are_no_sims(api: Api, sims: Any) -> None:
    assert api.post("/api/runs", {"name": "x", "sims": sims}).status == 422


def test_an_idempotency_key_makes_a_retry_give_the_same_run(api: Api) -> None:
    name = uuid4().hex
    body = {"name": name, "sims": [{}]}
    first = api.post("/api/runs", body, headers=key(name))
    again = api.post("/api/runs", body, headers=key(name))
    assert (first.status, again.status) == (201, 201)
    assert first.json() == again.json()
    assert api.post("/api/runs", body, headers=key(f"{name} other")).json()["id"] != first.json()["id"]
    assert [run["name"] for run in api.get("/api/runs").json()["runs"]].count(name) == 2


def test_the_same_key_with_another_body_is_409(api: Api) -> None:
    once = key(uuid4().hex)
    api.post("/api/runs", {"name": "x", "sims": [{}]}, headers=once)
    answer = api.post("/api/runs", {"name": "y", "sims": [{}]}, headers=once)
    assert answer.status == 409
    assert isinstance(answer.json()["detail"], str)


def test_a_key_is_forgotten_after_a_day(api: Api, clock: Clock) -> None:
    first = api.post("/api/runs", {"name": "x", "sims": [{}]}, headers=key("k")).json()
    clock.advance(24 * 3600 + 2)
    assert api.post("/api/runs", {"name": "y", "sims": [{}]}, headers=key("k")).json()["id"] != first["id"]


@pytest.mark.parametrize("removed_by", ["a call", "time to live"])
def test_a_key_whose_day_is_over_is_found_by_two_at_once(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch, removed_by: str
) -> None:
    """Both find the record of the day before, and the second finds it gone, or replaced, when it gets to removing it."""
    body: dict[str, Any] = {"name": "x", "sims": [{}]}
    old = api.post("/api/runs", body, headers=key("k")).json()["id"]
    clock.advance(24 * 3600 + 2)
    remove, others = table.delete, []

    def overtaken(pk: str, sk: str, *condition: Any) -> None:
        monkeypatch.setattr(table, "delete", remove)
        if removed_by == "a call":
            others.append(api.post("/api/runs", body, headers=key("k")).json()["id"])
        else:
            remove(pk, sk)
        remove(pk, sk, *condition)

    monkeypatch.setattr(table, "delete", overtaken)
    answer = api.post("/api/runs", body, headers=key("k"))
    assert answer.status == 201
    assert answer.json()["id"] != old
    assert set(others) <= {answer.json()["id"]}


@pytest.mark.parametrize(
    ("value", "status"), [("", 422), ("x", 201), ("x" * 255, 201), ("x" * 256, 422), ("é", 422), ("a\tb", 422)]
)
def test_what_is_an_idempotency_key(api: Api, value: str, status: int) -> None:
    assert api.post("/api/runs", {"name": "x", "sims": [{}]}, headers=key(value)).status == status


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 7))
def test_a_creation_that_died_leaves_nothing_and_its_retry_one_run(
    api: Api, clock: Clock, call: int, when: Any
) -> None:
    body = {"name": "x", "sims": [{}, {}]}
    with suppress(Died), dies_at(call, when):
        api.post("/api/runs", body, headers=key("k"))
    assert api.post("/api/runs", body, headers=key("k")).status == 201
    assert len(api.get("/api/runs").json()["runs"]) == 1
    clock.advance(QUARTER)
    sweep()
    (run,) = api.get("/api/runs").json()["runs"]
    sims = {sim["id"] for sim in api.get(f"/api/runs/{run['id']}").json()["sims"]}
    assert {pk for pk, _ in everything() if pk.startswith("sim-")} == sims


# List and show.


def test_runs_are_listed_newest_first_in_pages(api: Api) -> None:
    ids = [api.new_run()[0] for _ in range(7)]
    seen: list[str] = []
    cursor = ""
    for size in (3, 3, 1):
        page = api.get(f"/api/runs?limit={size}{cursor and '&cursor=' + cursor}").json()
        assert len(page["runs"]) == size
        seen += [run["id"] for run in page["runs"]]
        cursor = page["next_cursor"]
    assert seen == ids[::-1]


@pytest.mark.in_process  # wants a service without other runs
def test_the_last_page_has_no_next(api: Api) -> None:
    for _ in range(7):
        api.new_run()
    cursor, sizes = "", []
    while cursor is not None:
        page = api.get(f"/api/runs?limit=3{cursor and '&cursor=' + cursor}").json()
        sizes.append(len(page["runs"]))
        cursor = page["next_cursor"]
    assert sizes == [3, 3, 1]


@pytest.mark.in_process  # wants a service without other runs
def test_a_full_last_page_has_no_next(api: Api) -> None:
    for _ in range(3):
        api.new_run()
    assert api.get("/api/runs?limit=3").json()["next_cursor"] is None


def test_a_cursor_of_a_deleted_run_goes_on_behind_it(api: Api) -> None:
    ids = [api.new_run()[0] for _ in range(4)]
    cursor = api.get("/api/runs?limit=2").json()["next_cursor"]
    api.delete(f"/api/runs/{ids[2]}")
    assert [run["id"] for run in api.get(f"/api/runs?cursor={cursor}").json()["runs"]][:2] == ids[1::-1]


def test_counts_in_the_list_follow_the_sims(api: Api) -> None:
    run, sims = api.new_run(3)
    for sim, state in zip(sims, ("running", "succeeded", "failed"), strict=True):
        api.post(f"/api/sims/{sim}/heartbeat", {"state": state})

    def counts() -> dict[str, int]:
        """Those of this run."""
        (found,) = [listed["counts"] for listed in api.get("/api/runs").json()["runs"] if listed["id"] == run]
        return dict(found)

    for _ in range(2):  # the second time from what was kept, where it can be
        assert counts() == {"queued": 0, "running": 1, "succeeded": 1, "failed": 1, "cancelled": 0, "lost": 0}
    api.post(f"/api/sims/{sims[0]}/heartbeat", {"state": "succeeded"})
    for _ in range(2):
        assert counts()["succeeded"] == 2
    api.post(f"/api/runs/{run}/sims", {"sims": [{}]})
    assert counts()["queued"] == 1


# Add.


def test_added_sims_come_behind_the_others(api: Api) -> None:
    run, sims = api.new_run(2)
    added = api.post(f"/api/runs/{run}/sims", {"sims": [{"name": "late"}, {}]})
    assert added.status == 201
    assert [sim["name"] for sim in added.json()] == ["late", "#3"]
    assert [sim["id"] for sim in api.get(f"/api/runs/{run}").json()["sims"]] == [
        *sims,
        *(s["id"] for s in added.json()),
    ]


def test_adding_with_a_key_happens_once(api: Api) -> None:
    run, _ = api.new_run()
    body = {"sims": [{}]}
    first = api.post(f"/api/runs/{run}/sims", body, headers=key("k")).json()
    api.post(f"/api/runs/{run}/sims", body)
    assert api.post(f"/api/runs/{run}/sims", body, headers=key("k")).json() == first
    assert api.post(f"/api/runs/{run}/sims", {"sims": [{}, {}]}, headers=key("k")).status == 409
    assert len(api.get(f"/api/runs/{run}").json()["sims"]) == 3


def test_a_run_holds_10_000_sims_and_not_one_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from chalicelib import settings

    monkeypatch.setattr(settings, "RUN_MAX_SIMS", 5)
    run, _ = api.new_run(3)
    assert api.post(f"/api/runs/{run}/sims", {"sims": [{}] * 3}).status == 409
    assert api.post(f"/api/runs/{run}/sims", {"sims": [{}] * 2}).status == 201
    assert api.post(f"/api/runs/{run}/sims", {"sims": [{}]}).status == 409


# Claim.


def test_claims_go_through_the_queue_and_then_answer_204(api: Api) -> None:
    run, sims = api.new_run(3)
    claimed = [api.post(f"/api/runs/{run}/claim", {"worker": f"w{n}"}) for n in range(4)]
    assert [answer.status for answer in claimed] == [200, 200, 200, 204]
    assert [answer.json()["id"] for answer in claimed[:3]] == sims
    assert [answer.json()["worker"] for answer in claimed[:3]] == ["w0", "w1", "w2"]
    assert {answer.json()["state"] for answer in claimed[:3]} == {"running"}
    assert claimed[3].body == b""
    assert claimed[0].json() == api.get(f"/api/sims/{sims[0]}").json()


def test_what_is_not_queued_is_not_claimed(api: Api) -> None:
    run, sims = api.new_run(4)
    api.post(f"/api/sims/{sims[0]}/cancel")
    api.post(f"/api/sims/{sims[1]}/heartbeat", {"state": "running"})
    api.post(f"/api/sims/{sims[3]}/heartbeat", {"state": "failed"})
    assert api.post(f"/api/runs/{run}/claim", {"worker": "w"}).json()["id"] == sims[2]
    assert api.post(f"/api/runs/{run}/claim", {"worker": "w"}).status == 204


def test_many_cancelled_sims_in_a_row_do_not_hide_the_queued_one(api: Api) -> None:
    run, sims = api.new_run(20)
    for sim in sims[:19]:
        api.post(f"/api/sims/{sim}/cancel")
    assert api.post(f"/api/runs/{run}/claim", {"worker": "w"}).json()["id"] == sims[19]


def test_sims_added_after_the_last_was_claimed_are_claimed_too(api: Api) -> None:
    run, _ = api.new_run()
    assert [api.post(f"/api/runs/{run}/claim", {"worker": "w"}).status for _ in range(2)] == [200, 204]
    (added,) = api.post(f"/api/runs/{run}/sims", {"sims": [{}]}).json()
    assert api.post(f"/api/runs/{run}/claim", {"worker": "w"}).json()["id"] == added["id"]


def test_a_claim_sent_again_with_its_key_gets_the_same_sim(api: Api) -> None:
    run, sims = api.new_run(2)
    first = api.post(f"/api/runs/{run}/claim", {"worker": "w"}, headers=key("k")).json()
    again = api.post(f"/api/runs/{run}/claim", {"worker": "w"}, headers=key("k")).json()
    assert first["id"] == again["id"] == sims[0]
    assert api.post(f"/api/runs/{run}/claim", {"worker": "other"}, headers=key("k")).status == 409
    assert api.post(f"/api/runs/{run}/claim", {"worker": "w"}, headers=key("l")).json()["id"] == sims[1]


def test_a_key_is_of_one_run_and_one_kind_of_call(api: Api) -> None:
    made = [api.new_run(2, headers=key("k")), api.new_run(2)]
    for run, sims in made:
        assert api.post(f"/api/runs/{run}/sims", {"sims": [{}]}, headers=key("k")).status == 201
        claimed = api.post(f"/api/runs/{run}/claim", {"worker": "w"}, headers=key("k"))
        assert claimed.status == 200
        assert claimed.json()["id"] in sims


@pytest.mark.in_process
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 6))
def test_a_claim_that_died_and_was_sent_again_took_one_sim(api: Api, call: int, when: Any) -> None:
    run, sims = api.new_run(2)
    with suppress(Died), dies_at(call, when):
        api.post(f"/api/runs/{run}/claim", {"worker": "w"}, headers=key("k"))
    claimed = api.post(f"/api/runs/{run}/claim", {"worker": "w"}, headers=key("k")).json()["id"]
    states = {sim: api.get(f"/api/sims/{sim}").json()["state"] for sim in sims}
    assert states.pop(claimed) == "running"
    assert list(states.values()) == ["queued"]
    # The other one is not forgotten, whatever number the dead claim took.
    assert api.post(f"/api/runs/{run}/claim", {"worker": "w"}).json()["id"] in states


@pytest.mark.in_process
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 7))
def test_a_sim_that_two_dead_claims_came_near_is_claimed(api: Api, call: int, when: Any) -> None:
    """The first took its number, the second died looking at every sim, or right after that."""
    run, (sim,) = api.new_run()
    with suppress(Died), dies_at(4, "before"):
        api.post(f"/api/runs/{run}/claim", {"worker": "w"})
    assert (table.get(run, runs.CLAIM) or {})["next"] == 1
    with suppress(Died), dies_at(call, when):
        api.post(f"/api/runs/{run}/claim", {"worker": "w"}, headers=key("k"))
    assert api.post(f"/api/runs/{run}/claim", {"worker": "w"}, headers=key("k")).json()["id"] == sim


# Cancel.


def test_cancelling_a_run_cancels_what_has_not_finished(api: Api) -> None:
    run, sims = api.new_run(3)
    api.post(f"/api/sims/{sims[0]}/heartbeat", {"state": "succeeded"})
    api.post(f"/api/sims/{sims[1]}/heartbeat", {"state": "running"})
    answer = api.post(f"/api/runs/{run}/cancel")
    assert answer.status == 200
    assert [sim["state"] for sim in answer.json()["sims"]] == ["succeeded", "cancelled", "cancelled"]
    assert api.post(f"/api/runs/{run}/cancel").json() == answer.json()


# Delete.


def fill(api: Api, sim: str) -> None:
    """Something of everything that a sim can have, large enough for the object store where that matters."""
    noise = [f"{n * 7919 % 104729:x}" * 3 for n in range(4000)]
    assert api.post(f"/api/sims/{sim}/logs", {"seq": 0, "lines": noise}).status == 204
    assert api.post(f"/api/sims/{sim}/logs", {"seq": 5, "lines": ["x"]}).status == 204
    timing = {"simulated": {"steps": noise, "summary": {}}}
    assert api.post(f"/api/sims/{sim}/step-timeline", timing).status == 204
    for _ in range(2):
        assert api.put(f"/api/sims/{sim}/files/a.csv", b"x").status == 200
    assert api.post(f"/api/sims/{sim}/heartbeat", {"state": "failed", "error": "x" * 4000}).status == 200


def test_a_deleted_run_is_gone_with_everything_of_it(api: Api, clock: Clock) -> None:
    kept, _ = api.new_run()
    run, sims = api.new_run(2)
    for sim in sims:
        fill(api, sim)
    assert objects()
    assert api.delete(f"/api/runs/{run}").status == 204
    for path in (f"/api/runs/{run}", *(f"/api/sims/{sim}" for sim in sims), *(f"/api/sims/{sim}/logs" for sim in sims)):
        assert api.get(path).status == 404
    for sim in sims:
        assert api.post(f"/api/sims/{sim}/heartbeat", {"state": "running"}).status == 404
        assert api.put(f"/api/sims/{sim}/files/a.csv", b"x").status == 404
    assert [listed["id"] for listed in api.get("/api/runs").json()["runs"]] == [kept]
    assert objects() == []
    assert not {pk for pk, _ in everything()} & set(sims)
    clock.advance(QUARTER)
    sweep()
    assert not [key for key in everything() if any(run in part for part in key)]  # nor what lists it


def test_a_run_with_a_running_sim_is_not_deleted(api: Api) -> None:
    run, sims = api.new_run(2)
    api.post(f"/api/sims/{sims[1]}/heartbeat", {"state": "running"})
    answer = api.delete(f"/api/runs/{run}")
    assert answer.status == 409
    assert "1 of the run's sims" in answer.json()["detail"]
    assert len(api.get(f"/api/runs/{run}").json()["sims"]) == 2
    api.post(f"/api/runs/{run}/cancel")
    assert api.delete(f"/api/runs/{run}").status == 204


def test_deleting_again_succeeds_until_the_sweep_has_forgotten_the_run(api: Api, clock: Clock) -> None:
    run, _ = api.new_run()
    assert [api.delete(f"/api/runs/{run}").status for _ in range(2)] == [204, 204]
    clock.advance(QUARTER)
    sweep()
    assert api.delete(f"/api/runs/{run}").status == 404


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 12))
@pytest.mark.parametrize("retried", [True, False])
def test_a_deletion_that_died_is_finished_by_its_retry_or_the_sweep(
    api: Api, clock: Clock, call: int, when: Any, retried: bool
) -> None:
    run, sims = api.new_run(2)
    fill(api, sims[0])
    with suppress(Died), dies_at(call, when):
        api.delete(f"/api/runs/{run}")
    begun = api.get(f"/api/runs/{run}").status == 404
    if retried:
        assert api.delete(f"/api/runs/{run}").status == 204
    elif begun:
        clock.advance(MINUTE)
        sweep()
    if retried or begun:
        assert objects() == []
        assert not {pk for pk, _ in everything()} & set(sims)
        assert api.get(f"/api/sims/{sims[0]}").status == 404


class Stopwatch:
    """Plays `time` for `runs`: each request to DynamoDB, which the tests let count, takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def slow(self, monkeypatch: pytest.MonkeyPatch, name: str, seconds: float) -> list[int]:
        """Make a function of `table` take this long; returns a list that grows by the number of keys of each call."""
        calls, real = [], getattr(table, name)

        def slowed(*args: Any, **more: Any) -> Any:
            self.now += seconds
            calls.append(len(args[0] if args else more["deletes"]))
            return real(*args, **more)

        monkeypatch.setattr(table, name, slowed)
        return calls


def test_a_deletion_that_takes_long_answers_in_time_and_is_gone_for_every_reader_by_then(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of reading the sims and of making them invisible counts too."""
    run, sims = api.new_run(5)
    fill(api, sims[-1])
    watch = Stopwatch()
    with monkeypatch.context() as patch:
        patch.setattr(runs, "time", watch)
        watch.slow(patch, "batch_get", 15)
        watch.slow(patch, "batch_write", 4)
        assert api.delete(f"/api/runs/{run}").status == 204
        assert watch.now <= runs.DELETE_SECONDS + 4
    assert {api.get(f"/api/sims/{sim}").status for sim in sims} == {404}
    assert objects()
    clock.advance(MINUTE)
    sweep()
    assert objects() == []
    assert not {pk for pk, _ in everything()} & set(sims)


def test_a_deletion_that_cannot_hide_all_sims_in_time_says_so_and_goes_on_where_it_was(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, sims = api.new_run(10)
    watch = Stopwatch()
    monkeypatch.setattr(runs, "HIDE_AT_ONCE", 2)
    monkeypatch.setattr(runs, "time", watch)
    hidden = watch.slow(monkeypatch, "batch_write", 9)
    answers = [api.delete(f"/api/runs/{run}") for _ in range(2)]
    assert [answer.status for answer in answers] == [503, 204]
    assert answers[0].headers["retry-after"]
    assert hidden[:5] == [2] * 5  # none a second time
    assert {api.get(f"/api/sims/{sim}").status for sim in sims} == {404}


def test_what_a_request_under_way_wrote_after_the_deletion_goes_too(api: Api, clock: Clock) -> None:
    run, (sim,) = api.new_run()
    api.delete(f"/api/runs/{run}")
    table.put({"pk": sim, "sk": "c#0000000000000000000", "lines": 1, "bytes": 1, "data": b""})
    blobs.put(f"files/{sim}/late", b"x")
    clock.advance(QUARTER)
    sweep()
    assert objects() == []
    assert sim not in {pk for pk, _ in everything()}


def test_sims_added_during_the_deletion_stop_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = api.new_run()
    look = table.batch_get

    def look_then_add(*args: Any, **more: Any) -> Any:
        found = look(*args, **more)
        monkeypatch.setattr(table, "batch_get", look)
        assert api.post(f"/api/runs/{run}/sims", {"sims": [{}]}).status == 201
        return found

    monkeypatch.setattr(table, "batch_get", look_then_add)
    assert api.delete(f"/api/runs/{run}").status == 409
    assert len(api.get(f"/api/runs/{run}").json()["sims"]) == 2
