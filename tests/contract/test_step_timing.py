"""Step timing: what was sent is what is read, to the character."""

import json
from typing import Any

import pytest

from tests.aws import Api
from tests.contract.counting import requests
from tests.contract.stored import versions

EMPTY: dict[str, Any] = {"steps": [], "summary": {}}


def send(api: Api, sim: str, text: str) -> Any:
    return api("POST", f"/api/sims/{sim}/step-timeline", data=text, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize(
    "simulated",
    [
        '{"steps": [], "summary": {}}',
        '{"summary": {"b": 1, "a": 2}, "steps": [], "meta": {"z": 0, "y": 0}}',
        '{"steps": [9007199254740993, 18446744073709551617, -0, 0, 0.0, -0.0, 1e0, 1.0, 1E400, 0.1000]}'.replace(
            "1E400", "1E40"
        )[:-1]
        + ', "summary": {}}',
        '{"steps": ["\\u00e9", "é", "\\ud83d\\ude00", "\\n", "\\/"], "summary": {"": null, "é": [true, false]}}',
        '{"steps": [], "summary": {"a": 1, "a": 2}}',
    ],
)
def test_the_same_json_comes_back(api: Api, simulated: str) -> None:
    sim = api.new_sim()
    answer = send(api, sim, f'{{ "compare" : {{"x": 0.0}} ,\n"simulated":{simulated}, "unknown": 1}}')
    assert (answer.status, answer.body) == (204, b"")
    got = api.get(f"/api/sims/{sim}/step-timeline")
    pairs = lambda text: json.loads(text, object_pairs_hook=list)  # noqa: E731
    assert repr(pairs(got.text)) == repr(pairs(f'{{"simulated": {simulated}, "compare": {{"x": 0.0}}}}'))
    assert api.get(f"/api/sims/{sim}").json()["step_timeline"] is True


@pytest.mark.parametrize(
    "text",
    ['{"simulated": {"steps": [], "summary": {}}}', '{"simulated": {"steps": [], "summary": {}}, "compare": null}'],
)
def test_compare_may_be_absent(api: Api, text: str) -> None:
    sim = api.new_sim()
    assert send(api, sim, text).status == 204
    assert api.get(f"/api/sims/{sim}/step-timeline").json() == {"simulated": EMPTY, "compare": None}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"simulated": None},
        {"simulated": []},
        {"simulated": {"summary": {}}},
        {"simulated": {"steps": []}},
        {"simulated": {"steps": {}, "summary": {}}},
        {"simulated": {"steps": [], "summary": []}},
        {"simulated": {"steps": None, "summary": {}}},
        {"simulated": EMPTY, "compare": []},
        {"simulated": EMPTY, "compare": "x"},
        {"simulated": EMPTY, "compare": False},
    ],
)
def test_422_for_what_is_no_step_timing(api: Api, body: Any) -> None:
    assert api.post(f"/api/sims/{api.new_sim()}/step-timeline", body).status == 422


def large(n: int) -> dict[str, Any]:
    """Step timing that goes to the object store, another for each `n`."""
    return {"steps": [f"{n} {i * 7919 % 104729:x}" for i in range(20_000)], "summary": {}}


def test_sending_again_replaces(api: Api) -> None:
    sim = api.new_sim()
    for simulated in (large(0), large(1), EMPTY, large(2)):
        assert api.post(f"/api/sims/{sim}/step-timeline", {"simulated": simulated}).status == 204
        assert api.get(f"/api/sims/{sim}/step-timeline").json()["simulated"] == simulated


@pytest.mark.in_process
def test_what_is_replaced_leaves_no_bytes_behind(api: Api) -> None:
    sim = api.new_sim()
    for simulated, objects in ((large(0), 1), (large(1), 1), (EMPTY, 0)):
        assert api.post(f"/api/sims/{sim}/step-timeline", {"simulated": simulated}).status == 204
        assert len(versions("timing/")) == objects


@pytest.mark.in_process
def test_a_small_one_is_two_requests(api: Api) -> None:
    sim = api.new_sim()
    with requests() as seen:
        assert send(api, sim, '{"simulated": {"steps": [], "summary": {}}}').status == 204
    assert seen == {"Query": 1, "PutItem": 1}


@pytest.mark.parametrize("megabytes", [4, 6])
def test_over_5_mb_it_is_a_redirect_on_lambda(lambda_api: Api, megabytes: int) -> None:
    sim = lambda_api.new_sim()
    body = {"simulated": {"steps": ["x" * 999_997] * megabytes, "summary": {}}, "compare": None}
    assert lambda_api.post(f"/api/sims/{sim}/step-timeline", body).status == 204
    answer = lambda_api.get(f"/api/sims/{sim}/step-timeline")
    assert answer.status == (200 if megabytes < 5 else 302)
    if megabytes > 5:
        assert json.loads(lambda_api.follow(answer)) == body
