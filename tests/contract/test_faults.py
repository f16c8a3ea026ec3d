"""Every call that changes something, hit by a fault at each of its AWS calls, sent again, swept: once and whole."""

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.sweep import sweep
from tests.aws import Answer, Api
from tests.conftest import Clock
from tests.contract import faults
from tests.contract.test_runs import QUARTER, everything, key, objects

MOST_CALLS = 40
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
        "timing": ["queued"] * 2,
    }[name]
    assert sorted(states.values()) == sorted(wanted)
    if name == "end":
        detail = api.get(f"/api/sims/{sims[0]}").json()
        assert (detail["exit_code"], detail["error"]) == (7, "e" * 4000)
    if name == "claim":
        assert states[answer.json()["id"]] == "running"
    if name == "timing":
        assert len(api.get(f"/api/sims/{sims[0]}/step-timeline").json()["simulated"]["steps"]) == 20_000


@pytest.mark.parametrize("when", faults.WHENS)
@pytest.mark.parametrize("name", CALLS)
def test_a_fault_at_any_call_and_a_retry_do_it_once(api: Api, clock: Clock, name: str, when: faults.When) -> None:
    for n in range(1, MOST_CALLS):
        run, sims = api.new_run(2)
        answers: list[Any] = []
        with faults.at(n, when) as reached:
            answers.append(CALLS[name](api, run, sims))
        if when == "throttled" and reached:
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
        # An empty service for the next n; the key, a run's id, is new each time.
        for listed in api.get("/api/runs").json()["runs"]:
            api.post(f"/api/runs/{listed['id']}/cancel")
            assert api.delete(f"/api/runs/{listed['id']}").status == 204
        if not reached:
            assert n > 1
            return
    pytest.fail(f"more than {MOST_CALLS} calls")
