"""Sim states, heartbeats, silence and cancel."""

import itertools
from typing import Any

import pytest

from chalicelib import sims, table
from chalicelib.states import FINAL, SIM_TRANSITIONS, STATES
from chalicelib.sweep import sweep
from tests.aws import Api
from tests.conftest import Clock
from tests.contract.counting import requests

TIMEOUT = 60
CONTRACT = {
    "queued": {"running", "succeeded", "failed", "cancelled"},
    "running": {"succeeded", "failed", "cancelled", "lost"},
    "lost": {"running", "succeeded", "failed", "cancelled"},
    "succeeded": set(),
    "failed": set(),
    "cancelled": set(),
}
REPORTED = ("running", "succeeded", "failed")
BROUGHT = [state for state in STATES if state != "lost"]


def beat(api: Api, sim: str, state: str = "running", **more: Any) -> dict[str, Any]:
    answer = api.post(f"/api/sims/{sim}/heartbeat", {"state": state, **more})
    assert answer.status == 200
    ack: dict[str, Any] = answer.json()
    return ack


def show(api: Api, sim: str) -> dict[str, Any]:
    shown: dict[str, Any] = api.get(f"/api/sims/{sim}").json()
    return shown


def bring(api: Api, sim: str, state: str) -> None:
    """Move a queued sim to `state`, which is not `lost`, as life would."""
    if state in REPORTED:
        beat(api, sim, state)
    elif state == "cancelled":
        api.post(f"/api/sims/{sim}/cancel")
    assert show(api, sim)["state"] == state


def lose(api: Api, clock: Clock, sim: str) -> None:
    """Let silence make a queued sim `lost`."""
    beat(api, sim)
    clock.advance(TIMEOUT + 1)
    sweep()
    assert show(api, sim)["state"] == "lost"


def test_the_table_of_transitions_is_the_contracts() -> None:
    assert SIM_TRANSITIONS == CONTRACT
    assert set(STATES) == set(CONTRACT)
    assert {"succeeded", "failed", "cancelled"} == FINAL


@pytest.mark.parametrize(("before", "reported"), list(itertools.product(BROUGHT, REPORTED)))
def test_a_heartbeat_moves_where_the_table_allows(api: Api, before: str, reported: str) -> None:
    sim = api.new_sim()
    bring(api, sim, before)
    after = reported if reported in CONTRACT[before] else before
    assert beat(api, sim, reported) == {"state": after, "cancel": after == "cancelled"}
    assert show(api, sim)["state"] == after


@pytest.mark.parametrize("reported", REPORTED)
def test_a_heartbeat_moves_a_lost_sim_where_the_table_allows(api: Api, clock: Clock, reported: str) -> None:
    sim = api.new_sim()
    lose(api, clock, sim)
    assert reported in CONTRACT["lost"]
    assert beat(api, sim, reported) == {"state": reported, "cancel": False}
    assert show(api, sim)["state"] == reported


def test_cancel_moves_a_lost_sim(api: Api, clock: Clock) -> None:
    sim = api.new_sim()
    lose(api, clock, sim)
    assert api.post(f"/api/sims/{sim}/cancel").json()["state"] == "cancelled"
    assert beat(api, sim) == {"state": "cancelled", "cancel": True}


@pytest.mark.parametrize("before", BROUGHT)
def test_cancel_moves_what_has_not_finished(api: Api, before: str) -> None:
    sim = api.new_sim()
    bring(api, sim, before)
    earlier = show(api, sim)
    answer = api.post(f"/api/sims/{sim}/cancel")
    assert answer.status == 200
    assert answer.json()["state"] == (before if before in FINAL else "cancelled")
    if before in FINAL:
        assert show(api, sim) == earlier
    assert api.post(f"/api/sims/{sim}/cancel").json() == show(api, sim)


def test_cancel_reaches_the_simulator_with_its_next_heartbeat(api: Api) -> None:
    sim = api.new_sim()
    beat(api, sim)
    api.post(f"/api/sims/{sim}/cancel")
    for state in REPORTED:
        assert beat(api, sim, state) == {"state": "cancelled", "cancel": True}


@pytest.mark.parametrize("state", ["queued", "lost", "cancelled", "RUNNING", "", None, 1])
def test_422_for_a_state_that_no_simulator_reports(api: Api, state: Any) -> None:
    answer = api.post(f"/api/sims/{api.new_sim()}/heartbeat", {"state": state})
    assert answer.status == 422
    assert answer.json()["detail"][0]["loc"] == ["body", "state"]


def test_404_says_which_sim(api: Api) -> None:
    answer = api.post("/api/sims/sim-000000000000/heartbeat", {"state": "running"})
    assert (answer.status, answer.json()) == (404, {"detail": "sim sim-000000000000 not found"})


def test_a_repeated_final_heartbeat_keeps_the_first_exit_code_and_error(api: Api) -> None:
    sim = api.new_sim()
    beat(api, sim, "failed", exit_code=-9, error="killed")
    first = show(api, sim)
    assert (first["exit_code"], first["error"]) == (-9, "killed")
    for state in REPORTED:
        assert beat(api, sim, state, exit_code=0, error="other") == {"state": "failed", "cancel": False}
    assert show(api, sim) == first


def test_times_are_the_servers_and_have_microseconds(api: Api) -> None:
    sim = api.new_sim()
    queued = show(api, sim)
    assert (queued["started_at"], queued["finished_at"], queued["last_heartbeat_at"]) == (None, None, None)
    beat(api, sim)
    started = show(api, sim)
    beat(api, sim)
    beat(api, sim, "succeeded")
    done = show(api, sim)
    assert started["started_at"] == started["last_heartbeat_at"] == done["started_at"]
    assert done["finished_at"] == done["last_heartbeat_at"] > started["started_at"]
    for name in ("created_at", "started_at", "finished_at", "last_heartbeat_at"):
        assert len(done[name]) == 27
        assert done[name].endswith("Z")


# Errors.


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 4095, 4096])
def test_an_error_of_up_to_4_kib_comes_back_whole(api: Api, size: int) -> None:
    sim = api.new_sim()
    beat(api, sim, "failed", error="x" * size)
    assert show(api, sim)["error"] == "x" * size


@pytest.mark.parametrize("text", ["x" * 4097, "é" * 3000, "x" * 4095 + "é", "\U0001f600" * 2000, "x" * 5_000_000])
def test_a_longer_error_is_cut_between_characters(api: Api, text: str) -> None:
    sim = api.new_sim()
    beat(api, sim, "failed", error=text)
    kept = show(api, sim)["error"]
    assert text.startswith(kept)
    assert 4096 - 3 <= len(kept.encode()) <= 4096


@pytest.mark.parametrize("text", ["", "\x00", "a\nb", "\x1b[31mred", "‮right to left", "<script>"])
def test_any_text_is_an_error(api: Api, text: str) -> None:
    sim = api.new_sim()
    beat(api, sim, "failed", error=text)
    assert show(api, sim)["error"] == text


def test_lone_surrogates_in_an_error_are_replaced(api: Api) -> None:
    sim = api.new_sim()
    body = '{"state": "failed", "error": "a\\ud800b"}'
    assert (
        api("POST", f"/api/sims/{sim}/heartbeat", data=body, headers={"Content-Type": "application/json"}).status == 200
    )
    assert show(api, sim)["error"] == "a�b"


def test_a_run_shows_the_first_bytes_of_an_error(api: Api) -> None:
    run, (sim,) = api.new_run()
    beat(api, sim, "failed", error="é" * 2000)
    (shown,) = api.get(f"/api/runs/{run}").json()["sims"]
    assert shown["error"] == "é" * 128


# Requests and sizes.


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("reported", REPORTED)
@pytest.mark.parametrize("error", [None, "short", "x" * 9_000])
def test_a_heartbeat_is_exactly_one_request(
    api: Api, clock: Clock, before: str, reported: str, error: str | None
) -> None:
    sim = api.new_sim()
    if before == "lost":
        lose(api, clock, sim)
    else:
        bring(api, sim, before)
    with requests() as seen:
        beat(api, sim, reported, error=error)
    assert sum(seen.values()) == 1


@pytest.mark.in_process
def test_a_heartbeat_for_nobody_is_one_request(api: Api) -> None:
    with requests() as seen:
        assert api.post("/api/sims/sim-000000000000/heartbeat", {"state": "running"}).status == 404
    assert seen == {"UpdateItem": 1}


@pytest.mark.in_process
def test_an_id_that_cannot_be_costs_no_request(api: Api) -> None:
    with requests() as seen:
        assert api.post("/api/sims/nobody/heartbeat", {"state": "running"}).status == 404
    assert not seen


@pytest.mark.in_process
@pytest.mark.parametrize("character", ["x", "é", "\U0001f600"])
def test_the_item_of_a_heartbeat_is_at_most_1_kb(api: Api, character: str) -> None:
    run = api.post("/api/runs", {"name": "n" * 200, "sims": [{"name": "n" * 200}]}).json()
    sim = run["sims"][0]["id"]
    api.post(f"/api/runs/{run['id']}/claim", {"worker": "w" * 200})
    beat(api, sim, "failed", exit_code=-(2**63), error=character * 4096)
    stored = table.encode_item(table.get(sim, sims.HOT) or {})
    size = sum(len(name) + len(next(iter(value.values()))) for name, value in stored.items())
    assert size <= 1024


# Silence.


@pytest.mark.parametrize(("silent_us", "state"), [(TIMEOUT * 1_000_000, "running"), (TIMEOUT * 1_000_000 + 1, "lost")])
def test_silence_of_exactly_the_timeout_is_alive(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch, silent_us: int, state: str
) -> None:
    run, (sim,) = api.new_run()
    beat(api, sim)
    heard = table.get(sim, sims.HOT)
    assert heard
    monkeypatch.setattr("chalicelib.clock.now_us", lambda: heard["beat"] + silent_us)
    assert show(api, sim)["state"] == state
    assert api.get(f"/api/runs/{run}").json()["counts"][state] == 1
    assert api.get("/api/runs").json()["runs"][0]["counts"][state] == 1
    sweep()
    assert (table.get(sim, sims.HOT) or {})["state"] == state


def test_no_read_shows_a_stale_running(api: Api, clock: Clock) -> None:
    run, (sim,) = api.new_run()
    beat(api, sim)
    clock.advance(TIMEOUT + 1)
    assert show(api, sim)["state"] == "lost"
    shown = api.get(f"/api/runs/{run}").json()
    assert (shown["counts"]["running"], shown["counts"]["lost"], shown["sims"][0]["state"]) == (0, 1, "lost")
    (listed,) = api.get("/api/runs").json()["runs"]
    assert listed["counts"] == shown["counts"]
    assert api.delete(f"/api/runs/{run}").status == 204  # a lost sim is not a running one


def test_a_lost_sim_comes_back_with_a_heartbeat_before_and_after_the_sweep(api: Api, clock: Clock) -> None:
    sim = api.new_sim()
    beat(api, sim)
    for swept in (False, True):
        clock.advance(TIMEOUT + 1)
        if swept:
            assert sweep()["lost"] == 1
        assert show(api, sim)["state"] == "lost"
        assert beat(api, sim) == {"state": "running", "cancel": False}
        assert show(api, sim)["state"] == "running"


def test_a_queued_sim_waits_forever(api: Api, clock: Clock) -> None:
    sim = api.new_sim()
    clock.advance(10 * 365 * 86400)
    sweep()
    assert show(api, sim)["state"] == "queued"


def test_the_timeout_can_be_set(api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_HEARTBEAT_TIMEOUT_S", "5")
    sim = api.new_sim()
    beat(api, sim)
    clock.advance(6)
    assert show(api, sim)["state"] == "lost"


# The sweep.


def test_a_shard_of_more_sims_than_one_request_reads_is_swept_whole(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sims, "SHARDS", 1)
    monkeypatch.setattr(table, "BATCH_GET_MAX", 2)
    fleet = [api.new_sim() for _ in range(5)]
    for sim in fleet:
        beat(api, sim)
    clock.advance(TIMEOUT + 1)
    beat(api, fleet[2])
    assert sweep()["lost"] == 4
    assert [sim for sim in fleet if table.get(sim, sims.HOT)["state"] == "running"] == [fleet[2]]  # type: ignore[index]


@pytest.mark.parametrize("came", ["running", "succeeded", "failed", "cancelled"])
def test_a_beat_or_an_end_between_the_sweeps_look_and_its_write_wins(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch, came: str
) -> None:
    sim = api.new_sim()
    beat(api, sim)
    clock.advance(TIMEOUT + 1)
    look = table.batch_get

    def look_before_it_comes(*args: Any, **more: Any) -> Any:
        found = look(*args, **more)
        if any(key[0] == sim for key in found):
            bring(api, sim, came)
        return found

    monkeypatch.setattr(table, "batch_get", look_before_it_comes)
    assert sweep()["lost"] == 0
    monkeypatch.setattr(table, "batch_get", look)
    assert (table.get(sim, sims.HOT) or {})["state"] == came


def test_the_sweep_marks_every_silent_sim_and_no_other(api: Api, clock: Clock) -> None:
    _, silent = api.new_run(40)
    _, alive = api.new_run(40)
    for sim in silent:
        beat(api, sim)
    clock.advance(TIMEOUT)
    for sim in alive:
        beat(api, sim)
    clock.advance(1)
    assert sweep()["lost"] == 40
    assert sweep()["lost"] == 0
    assert {(table.get(sim, sims.HOT) or {})["state"] for sim in silent} == {"lost"}
    assert {(table.get(sim, sims.HOT) or {})["state"] for sim in alive} == {"running"}


def test_a_failing_step_does_not_keep_the_sweep_from_the_rest(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chalicelib import logs

    _, (bad, good) = api.new_run(2)
    for sim in (bad, good):
        beat(api, sim)
        beat(api, sim, "succeeded")
    settle = logs.settle

    def fail_for_one(sim_id: str, *args: Any) -> bool:
        if sim_id == bad:
            raise RuntimeError("broken")
        return settle(sim_id, *args)

    monkeypatch.setattr(logs, "settle", fail_for_one)
    clock.advance(TIMEOUT + 1)
    counts = sweep()
    assert (counts["settled"], counts["failed"]) == (1, 1)


def test_a_sweep_reads_a_hundred_sims_a_request_and_writes_nothing_for_the_living(api: Api, clock: Clock) -> None:
    _, running = api.new_run(320)
    for sim in running:
        beat(api, sim)
    with requests() as seen:
        sweep()
    # 16 shards each of running, to settle and held; runs being deleted; creations under way; sims with objects to look at.
    assert seen["Query"] == 3 * 16 + 3
    assert seen["BatchGetItem"] == 16
    assert set(seen) == {"Query", "BatchGetItem"}
