"""What an attacker or a broken client sends: each gets a plain answer in the one shape of all errors."""

import json
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from chalicelib import http
from tests.aws import TOKEN, Api

JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}


def unsendable(header: str) -> ParameterSet:
    """What no HTTP client or server lets through, so that it never gets as far as the app."""
    return pytest.param(header, marks=pytest.mark.in_process)


def send(api: Api, path: str, text: str) -> Any:
    return api("POST", path, data=text, headers=JSON)


@pytest.mark.parametrize(
    "header",
    [
        unsendable("Bearer \ud800"),
        unsendable(f"Bearer \x00{TOKEN}"),
        unsendable(f"Bearer {TOKEN}\x00"),
        f"Bearer {TOKEN} {TOKEN}",
        f"Bearer {TOKEN},",
        f"Bearer Bearer {TOKEN}",
        f"Bearer {TOKEN.upper()}",
        unsendable("Bearer " + "x" * 1_000_000),
    ],
    ids=lambda header: ascii(header)[:40],
)
def test_no_odd_token_is_let_in_or_breaks_the_check(api: Api, header: str) -> None:
    answer = api.get("/api/runs", token=None, headers={"Authorization": header})
    assert answer.status == 401
    assert list(answer.json()) == ["detail"]


def test_a_secret_that_cannot_be_read_lets_nobody_in_and_is_told_in_the_one_shape(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> list[bytes]:
        raise RuntimeError("arn:aws:secretsmanager:inside")

    monkeypatch.setattr(http, "_tokens", broken)
    answer = api.get("/api/runs")
    assert (answer.status, answer.json()) == (500, {"detail": "internal error"})
    assert api.get("/api/health", token=None).status == 200


@pytest.mark.parametrize("value", ["1e999", "-1e999", "[1e999]", '{"a": [1e999]}', "[[[[[[[[1e999]]]]]]]]"])
def test_a_number_beyond_a_double_is_422_wherever_it_is(api: Api, value: str) -> None:
    answer = send(api, "/api/runs", f'{{"name": "x", "sims": [{{"params": {{"a": {value}}}}}]}}')
    assert answer.status == 422
    assert answer.json()["detail"][0]["loc"][:4] == ["body", "sims", 0, "params"]
    # Where a whole field is of the wrong kind, its preview holds the number.
    answer = send(api, "/api/runs", f'{{"name": {value}, "sims": [{{}}]}}')
    assert answer.status == 422
    assert json.loads(answer.body, parse_constant=pytest.fail)["detail"][0]["loc"] == ["body", "name"]


@pytest.mark.parametrize("depth", [100, 200, 201, 254, 255, 256, 300, 500, 900, 950, 1000, 2000, 100_000])
@pytest.mark.parametrize("inner", ["", '"\\ud800"'])
def test_nesting_of_any_depth_is_stored_and_read_or_is_422(api: Api, depth: int, inner: str) -> None:
    nested = "[" * depth + inner + "]" * depth
    made = send(api, "/api/runs", f'{{"name": "x", "sims": [{{"params": {{"a": {nested}}}}}]}}')
    assert made.status == (201 if depth <= 200 else 422)
    if made.status == 201:
        run = made.json()
        assert api.get(f"/api/sims/{run['sims'][0]['id']}").status == 200
        assert api.get(f"/api/runs/{run['id']}/params").status == 200
        assert api.post(f"/api/runs/{run['id']}/claim", {"worker": "w"}).status == 200
    path = f"/api/sims/{api.new_sim()}/step-timeline"
    sent = send(api, path, f'{{"simulated": {{"steps": {nested}, "summary": {{}}}}}}')
    assert sent.status in (204, 422)
    assert api.get(path).status == (200 if sent.status == 204 else 404)


@pytest.mark.parametrize(
    "name",
    [
        "%2e",
        "%2e%2e",
        "a%00",
        "a%0a",
        "a%2fb",
        "..%2fa",
        "a%252fb",
        "%2561",
        "a%5cb",
        "%22a%22",
        "a%0d%0aX-Y:z",
        "%ff",
        "a;b=c",
    ],
)
def test_no_file_name_leaves_its_place_or_splits_a_header(api: Api, name: str) -> None:
    sim = api.new_sim()
    for answer in (
        api.put(f"/api/sims/{sim}/files/{name}", b"x", headers=BYTES),
        api.get(f"/api/sims/{sim}/files/{name}"),
    ):
        assert answer.status == 422
        assert all("\n" not in v and "\r" not in v for v in answer.headers.values())
    assert api.get(f"/api/sims/{sim}/files").json() == []


def test_a_name_is_percent_decoded_once(api: Api) -> None:
    sim = api.new_sim()
    assert api.put(f"/api/sims/{sim}/files/%61%2ecsv", b"x", headers=BYTES).json()["name"] == "a.csv"
    assert api.get(f"/api/sims/{sim}/files/a.csv").body == b"x"


def test_the_last_of_two_equal_keys_counts(api: Api) -> None:
    path = f"/api/sims/{api.new_sim()}/heartbeat"
    assert send(api, path, '{"state": "failed", "state": "running"}').json()["state"] == "running"


@pytest.mark.parametrize("cursor", ["", "%00", "x", "1", "-1", "..", "9" * 5000, "1780000000000000-run-00000000000G"])
def test_a_cursor_nobody_gave_out_is_422(api: Api, cursor: str) -> None:
    answer = api.get(f"/api/runs?cursor={cursor}")
    assert answer.status == 422
    assert answer.json()["detail"][0]["loc"] == ["query", "cursor"]
    assert len(answer.body) < 1000
