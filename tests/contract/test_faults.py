"""Every call that changes something, hit by a fault at each of its AWS calls, sent again, swept: once and whole."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from cascade.sample_log import SampleLog
from chalicelib import logs, stored
from chalicelib import sims as sims_module
from chalicelib.sweep import ORPHAN_US, TIDY_SLOTS, sweep
from tests.aws import Answer, Api
from tests.conftest import Clock
from tests.contract import faults
from tests.contract.stored import orphans, versions
from tests.contract.test_runs import QUARTER, everything, key, objects

MOST_CALLS = 40
LOG = list(SampleLog(kernels=2, seed=3).lines())
Call = Callable[[Api, str, list[str]], Answer]

CALLS: dict[str, Call] = {
    "create": lambda api, run, sims: api.post("/api/runs", {"name": "x", "sims": [{}] * 3}, headers=key(run)),
    "add": lambda api, run, sims: api.post(f"/api/runs/{run}/sims", {"sims": [{}] * 3}, headers=key(run)),
    "claim": lambda api, run, sims: api.post(f"/api/runs/{run}/claim", {"worker": "w"}, headers=key(run)),
    "cancel run": lambda api, run, sims: api.post(f"/api/runs/{run}/cancel"),
    "cancel sim": lambda api, run, sims: api.post(f"/api/sims/{sims[0]}/cancel"),
    "beat": lambda api, run, sims: api.post(f"/api/sims/{sims[0]}/heartbeat", {"state": "running"}),
    "end": lambda api, run, sims: api.post(
        f"/api/sims/{sims[0]}/heartbeat", {"state": "failed", "exit_code": 7, "error": "e" * 4000}
    ),
    "timing": lambda api, run, sims: api.post(
        f"/api/sims/{sims[0]}/step-timeline",
        {"simulated": {"steps": [f"{i * 7919 % 104729:x}" for i in range(20_000)], "summary": {}}},
    ),
    "log": lambda api, run, sims: api.post(f"/api/sims/{sims[0]}/logs", {"seq": 0, "lines": LOG}),
    "put": lambda api, run, sims: api.put(f"/api/sims/{sims[0]}/files/a.csv", b"a,b\n"),
    "delete": lambda api, run, sims: api.delete(f"/api/runs/{run}"),
}


def check(api: Api, name: str, run: str, sims: list[str], answer: Answer) -> None:
    """What the call promises, and that nothing else is left in the table or the bucket."""
    shown = api.get(f"/api/runs/{run}")
    found = {pk for pk, _ in everything() if pk.startswith("sim-")}
    listed = [listed["id"] for listed in api.get("/api/runs").json()["runs"]]
    if name == "delete":
        assert (shown.status, found, objects(), listed) == (404, set(), [], [])
        return
    states = {sim["id"]: sim["state"] for sim in shown.json()["sims"]}
    if name == "create":
        made = {sim["id"] for sim in answer.json()["sims"]}
        assert listed == [answer.json()["id"], run]
        assert (len(made), found) == (3, made | set(sims))
        return
    assert listed == [run]
    assert found == set(states)
    wanted = {
        "add": ["queued"] * 5,
        "claim": ["running", "queued"],
        "cancel run": ["cancelled"] * 2,
        "cancel sim": ["cancelled", "queued"],
        "beat": ["running", "queued"],
        "end": ["failed", "queued"],
    }.get(name, ["queued"] * 2)
    assert sorted(states.values()) == sorted(wanted)
    if name == "end":
        detail = api.get(f"/api/sims/{sims[0]}").json()
        assert (detail["exit_code"], detail["error"]) == (7, "e" * 4000)
    if name == "claim":
        assert states[answer.json()["id"]] == "running"
    if name == "timing":
        assert len(api.get(f"/api/sims/{sims[0]}/step-timeline").json()["simulated"]["steps"]) == 20_000
    if name == "log":
        detail = api.get(f"/api/sims/{sims[0]}").json()
        kernels = api.get(f"/api/sims/{sims[0]}/kernels").json()["kernels"]
        (chunk,) = api.get(f"/api/sims/{sims[0]}/logs").json()["chunks"]
        assert (detail["kernels"], len(kernels), detail["log"]["lines"]) == (2, 2, len(LOG))
        assert chunk["lines"] == LOG
    if name == "put":
        assert api.get(f"/api/sims/{sims[0]}").json()["files"] == {"count": 1, "bytes": 4}
        assert api.get(f"/api/sims/{sims[0]}/files/a.csv").body == b"a,b\n"


def tidied(api: Api, clock: Clock) -> list[tuple[str, str]]:
    """What no item names once everything has ended and the sweep has looked at it."""
    for listed in api.get("/api/runs").json()["runs"]:
        assert api.post(f"/api/runs/{listed['id']}/cancel").status == 200
    for found, version in versions("files/"):
        stored.handle({"object": {"key": found, "version-id": version}})  # as AWS does for each that lands
    for seconds in (61, (TIDY_SLOTS - 1) * ORPHAN_US // 1_000_000):
        clock.advance(seconds)
        sweep()
    return orphans()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "ITEM_MAX_BYTES", 10)
    monkeypatch.setattr(logs, "INLINE_MAX_BYTES", 10)
    monkeypatch.setattr(sims_module, "SHARDS", 1)  # a sweep on moto is ten times as fast


def empty(api: Api) -> None:
    """Delete all runs, for the next n; the key, a run's id, is new each time."""
    for listed in api.get("/api/runs").json()["runs"]:
        assert api.delete(f"/api/runs/{listed['id']}").status == 204


@pytest.mark.parametrize("when", faults.WHENS)
@pytest.mark.parametrize("name", CALLS)
def test_a_fault_at_any_call_and_a_retry_do_it_once(api: Api, clock: Clock, name: str, when: faults.When) -> None:
    for n in range(1, MOST_CALLS):
        clock.us = time.time_ns() // 1000  # an object's age is told by the object store's clock
        run, sims = api.new_run(2)
        answers: list[Any] = []
        with faults.at(n, when) as reached:
            answers.append(CALLS[name](api, run, sims))
        if when == "sent twice":
            assert answers[0].status < 300, (n, answers[0])
            check(api, name, run, sims, answers[0])  # not only once a retry has made it good
        # A put tries its moves of the ledger again itself.
        fails = when in faults.WITHOUT_EFFECT and reached and name != "put"
        if fails or (when not in ("before", "after") and answers[0].status >= 300):
            assert answers[0].status == 503
            assert answers[0].headers["retry-after"].isdigit()
            assert isinstance(answers[0].json()["detail"], str)
        again = CALLS[name](api, run, sims)
        assert again.status < 300, (n, again)
        if name in ("claim", "beat"):
            check(api, name, run, sims, again)  # before the sweep, which would make a silent sim lost
        clock.advance(QUARTER)
        sweep()
        if name not in ("claim", "beat"):
            check(api, name, run, sims, again)
        assert tidied(api, clock) == []
        empty(api)
        if not reached:
            assert n > 1
            return
    pytest.fail(f"more than {MOST_CALLS} calls")


KEYLESS: dict[str, Call] = {
    "create": lambda api, run, sims: api.post("/api/runs", {"name": "x", "sims": [{}] * 3}),
    "add": lambda api, run, sims: api.post(f"/api/runs/{run}/sims", {"sims": [{}] * 3}),
}


@pytest.mark.parametrize("name", KEYLESS)
def test_without_a_key_too_what_the_sdk_sends_twice_is_done_once(api: Api, clock: Clock, name: str) -> None:
    for n in range(1, MOST_CALLS):
        run, sims = api.new_run(2)
        with faults.at(n, "sent twice") as reached:
            answer = KEYLESS[name](api, run, sims)
        assert answer.status == 201, (n, answer)
        check(api, name, run, sims, answer)
        made = answer.json()["sims"] if name == "create" else answer.json()
        assert {sim["state"] for sim in made} == {"queued"}
        assert len({sim["id"] for sim in made}) == 3
        empty(api)
        if not reached:
            assert n > 1
            return
    pytest.fail(f"more than {MOST_CALLS} calls")
