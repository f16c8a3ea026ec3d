"""What holds for every endpoint: who may call, what a body must be, how errors look, in which order things are checked."""

import gzip
import json
import zlib
from typing import Any

import pytest

from tests.aws import TOKEN, Api

NONE = "000000000000"
UPLOAD = "0000000000000000"
SIM, RUN = f"/api/sims/sim-{NONE}", f"/api/runs/run-{NONE}"
BEAT = {"state": "running"}
CHUNK = {"seq": 0, "lines": []}
TIMING = {"simulated": {"steps": [], "summary": {}}}
CALLS: list[tuple[str, str, Any]] = [
    ("POST", f"{SIM}/heartbeat", BEAT),
    ("POST", f"{SIM}/logs", CHUNK),
    ("POST", f"{SIM}/step-timeline", TIMING),
    ("PUT", f"{SIM}/files/a.csv", None),
    ("POST", "/api/runs", {"name": "x", "sims": [{}]}),
    ("GET", "/api/runs", None),
    ("GET", RUN, None),
    ("DELETE", RUN, None),
    ("POST", f"{RUN}/sims", {"sims": [{}]}),
    ("POST", f"{RUN}/claim", {"worker": "w"}),
    ("POST", f"{RUN}/cancel", None),
    ("POST", f"{SIM}/cancel", None),
    ("GET", SIM, None),
    ("GET", f"{SIM}/logs", None),
    ("GET", f"{SIM}/kernels", None),
    ("GET", f"{SIM}/kernels.csv", None),
    ("GET", f"{SIM}/step-timeline", None),
    ("GET", f"{SIM}/files", None),
    ("GET", f"{SIM}/files/a.csv", None),
    # What the contract does not have: the params of all sims of a run, and uploads past the app.
    ("GET", f"{RUN}/params", None),
    ("POST", f"{SIM}/uploads/a.csv", {"size": 1}),
    ("POST", f"{SIM}/uploads/a.csv/{UPLOAD}", None),
]
BODIES = [(path, body) for method, path, body in CALLS if method == "POST" and body is not None]
MIB = 1024 * 1024

every_call = pytest.mark.parametrize(("method", "path", "body"), CALLS, ids=lambda v: v if isinstance(v, str) else "")
every_body = pytest.mark.parametrize(("path", "body"), BODIES, ids=lambda v: v if isinstance(v, str) else "")


def test_the_list_of_calls_is_the_whole_api(api: Api) -> None:
    document = api.get("/api/openapi.json", token=None).json()
    known = {(method, template(path)) for method, path, _ in CALLS}
    found = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    assert found == known | {("GET", "/api/health"), ("GET", "/api/openapi.json")}


def template(path: str) -> str:
    """The path as the document has it."""
    for value, name in ((UPLOAD, "upload_id"), (f"sim-{NONE}", "sim_id"), (f"run-{NONE}", "run_id"), ("a.csv", "name")):
        path = path.replace(value, f"{{{name}}}")
    return path


# Who may call.


@every_call
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer wrong",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer \xff",
    ],
)
def test_401_without_the_token(api: Api, method: str, path: str, body: Any, header: str | None) -> None:
    answer = api(method, path, body, token=None, headers={} if header is None else {"Authorization": header})
    assert answer.status == 401
    assert isinstance(answer.json()["detail"], str)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.text


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
@pytest.mark.parametrize("name", ["Authorization", "authorization"])
def test_scheme_and_header_are_taken_in_any_case(api: Api, scheme: str, name: str) -> None:
    assert api.get("/api/runs", token=None, headers={name: f"{scheme} {TOKEN}"}).status == 200


def test_both_of_two_tokens_are_valid_while_one_is_replaced(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_TOKEN", "old new")
    assert [api.get("/api/runs", token=t).status for t in ("old", "new", "old new", "")] == [200, 200, 401, 401]


def test_no_token_configured_lets_nobody_in(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_TOKEN", "")
    assert api.get("/api/runs", token="").status == 401


@pytest.mark.parametrize("path", ["/api/nothing", "/api/sims", f"{SIM}/nothing"])
def test_unknown_routes_are_401_before_they_are_404(api: Api, path: str) -> None:
    assert api.get(path, token=None).status == 401
    answer = api.get(path)
    assert (answer.status, answer.json()) == (404, {"detail": "not found"})


def test_health_and_openapi_need_no_token(api: Api) -> None:
    assert api.get("/api/health", token=None).json()["status"] == "ok"
    assert api.get("/api/openapi.json", token=None).json()["openapi"].startswith("3.1")


# Order of checks.


@every_body
def test_auth_comes_before_the_body(api: Api, path: str, body: Any) -> None:
    assert api("POST", path, data="{", headers={"Content-Type": "application/json"}, token="no").status == 401


@every_body
def test_a_malformed_body_comes_before_404(api: Api, path: str, body: Any) -> None:
    assert api.post(path, {}).status == 422


@every_call
def test_404_for_what_nobody_has(api: Api, method: str, path: str, body: Any) -> None:
    if path == "/api/runs":
        return
    answer = api(method, path, body, data=b"x" if method == "PUT" else None)
    assert answer.status == 404
    assert isinstance(answer.json()["detail"], str)


@pytest.mark.parametrize(
    "bad", ["sim-xyz", "sim-ABCDEF012345", "sim-0000000000000", "x", "sim-%00", "%2e%2e", "sim-00000000000%0A"]
)
def test_ids_that_cannot_be_are_404(api: Api, bad: str) -> None:
    assert api.get(f"/api/sims/{bad}").status == 404
    assert api.post(f"/api/sims/{bad}/heartbeat", BEAT).status == 404
    assert api.get(f"/api/runs/{bad}").status == 404


# Methods and types.


@every_call
def test_405_names_what_is_allowed(api: Api, method: str, path: str, body: Any) -> None:
    answer = api("PATCH", path)
    assert answer.status == 405
    assert isinstance(answer.json()["detail"], str)
    assert method in answer.headers["allow"].split(", ")
    assert "PATCH" not in answer.headers["allow"]


@every_body
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"]
)
def test_415_for_what_is_not_json(api: Api, path: str, body: Any, kind: str) -> None:
    answer = api("POST", path, data=json.dumps(body), headers={"Content-Type": kind})
    assert answer.status == 415
    assert isinstance(answer.json()["detail"], str)


@pytest.mark.parametrize(
    "header",
    [
        {"Content-Type": "application/json"},
        {"content-type": "Application/JSON"},
        {"CONTENT-TYPE": "application/json; charset=utf-8"},
        {"Content-Type": "application/json;charset=UTF-8"},
        {},
    ],
)
def test_json_is_known_in_any_case_and_with_a_charset(api: Api, header: dict[str, str]) -> None:
    sim = api.new_sim()
    assert api("POST", f"/api/sims/{sim}/heartbeat", data=json.dumps(BEAT), headers=header).status == 200


# Bodies.


@every_body
@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"nul", b"[]", b"1", b'"x"', b"null", b"true", b"\xff\xfe", b'{"a": "\xff"}', b'{"a": NaN}', b'{"a": Infinity}',
        b'{"a": -Infinity}', b"{'a': 1}", b'{"a": 1,}', b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000,
        b'{"a": ' + b"9" * 5_000 + b"}", b"\xef\xbb\xbf{}", b'{"a": 1} x', b"\x00",
    ],
    ids=lambda data: repr(data[:16]),
)  # fmt: skip
def test_422_for_what_is_no_json_object(api: Api, path: str, body: Any, data: bytes) -> None:
    answer = api("POST", path, data=data, headers={"Content-Type": "application/json"})
    assert answer.status == 422
    for entry in answer.json()["detail"]:
        assert set(entry) == {"type", "loc", "msg", "input"}
        assert entry["loc"][0] == "body"


@every_body
def test_deep_nesting_beside_the_fields_never_breaks_it(api: Api, path: str, body: Any) -> None:
    text = json.dumps(body)[:-1] + ', "extra": ' + "[" * 100_000 + "]" * 100_000 + "}"
    assert api("POST", path, data=text, headers={"Content-Type": "application/json"}).status in (404, 201, 422)


@every_body
def test_unknown_fields_are_ignored(api: Api, path: str, body: Any) -> None:
    assert api.post(path, {**body, "unknown": [1, {"x": None}]}).status in (404, 201)


@pytest.mark.parametrize("seq", [True, False, "0", 0.5, None, [0], -1, 2**63, 10**40, -(10**40), 1e300])
def test_what_is_no_seq(api: Api, seq: Any) -> None:
    answer = api.post(f"{SIM}/logs", {"seq": seq, "lines": []})
    assert answer.status == 422
    (entry,) = answer.json()["detail"]
    assert entry["loc"] == ["body", "seq"]


@pytest.mark.parametrize("seq", [0, 2**63 - 1, 7.0])
def test_what_is_a_seq(api: Api, seq: Any) -> None:
    assert api.post(f"/api/sims/{api.new_sim()}/logs", {"seq": seq, "lines": []}).status == 204


@pytest.mark.parametrize("code", [-(2**63), 2**63 - 1, 0, -9, None])
def test_exit_codes_of_64_bits_come_back(api: Api, code: int | None) -> None:
    sim = api.new_sim()
    assert api.post(f"/api/sims/{sim}/heartbeat", {"state": "failed", "exit_code": code}).status == 200
    assert api.get(f"/api/sims/{sim}").json()["exit_code"] == code


@pytest.mark.parametrize("code", [-(2**63) - 1, 2**63, True, "1", 1.5, 10**40])
def test_what_is_no_exit_code(api: Api, code: Any) -> None:
    assert api.post(f"{SIM}/heartbeat", {"state": "failed", "exit_code": code}).status == 422


def test_the_input_in_an_error_is_a_short_preview(api: Api) -> None:
    answer = api.post(f"{SIM}/heartbeat", {"state": "x" * 1_000_000})
    assert answer.status == 422
    assert len(answer.body) < 1_000
    answer = api.post(f"{SIM}/logs", {"seq": 0, "lines": ["x" * 1_000_000, 1]})
    assert answer.status == 422
    assert len(answer.body) < 2_000


def test_thousands_of_wrong_lines_give_a_short_answer(api: Api) -> None:
    answer = api.post(f"{SIM}/logs", {"seq": 0, "lines": list(range(50_000))})
    assert answer.status == 422
    assert len(answer.body) < 50_000


# Compressed bodies.

ENCODED, TYPED = {"Content-Encoding": "gzip"}, {"Content-Type": "application/gzip"}
INFLATED = pytest.param(ENCODED, marks=pytest.mark.in_process)
"""API Gateway inflates it, and sees to errors and to limits of its own: tests/deploy/test_deploy.py."""


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Encoding": "gzip", "Content-Type": "application/json"},
        {"content-encoding": "GZIP"},
        {"Content-Type": "application/gzip"},
        pytest.param({"Content-Type": "application/x-gzip"}, marks=pytest.mark.in_process),  # text for API Gateway
    ],
)
def test_gzip_is_taken_by_encoding_and_by_type(api: Api, headers: dict[str, str]) -> None:
    sim = api.new_sim()
    data = gzip.compress(json.dumps({"seq": 0, "lines": ["packed"]}).encode())
    assert api("POST", f"/api/sims/{sim}/logs", data=data, headers=headers).status == 204
    assert api.get(f"/api/sims/{sim}/logs").json()["chunks"] == [{"seq": 0, "lines": ["packed"]}]


@every_body
@pytest.mark.parametrize("headers", [INFLATED, TYPED])
def test_a_bomb_is_413(api: Api, path: str, body: Any, headers: dict[str, str]) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join(packer.compress(b" " * MIB) for _ in range(200)) + packer.flush()
    assert len(data) < MIB
    answer = api("POST", path, data=data, headers=headers)
    assert answer.status == 413
    assert "32 MiB" in answer.json()["detail"]


@pytest.mark.parametrize(("more", "status"), [(0, 204), (1, 413)])
@pytest.mark.parametrize(
    "headers", [pytest.param({"Content-Type": "application/json"}, marks=pytest.mark.in_process), INFLATED, TYPED]
)
def test_a_json_body_may_hold_32_mib_and_no_byte_more(
    api: Api, more: int, status: int, headers: dict[str, str]
) -> None:
    sim = api.new_sim()
    text = json.dumps({"seq": 0, "lines": []})
    data = (text[:-1] + " " * (32 * MIB + more - len(text)) + "}").encode()
    if headers in (ENCODED, TYPED):
        data = gzip.compress(data, 1)
    answer = api("POST", f"/api/sims/{sim}/logs", data=data, headers=headers)
    assert answer.status == status


@pytest.mark.parametrize("data", [b"\x1f\x8b", b"\x1f\x8b\x08\x00garbage", gzip.compress(b"{}", mtime=0)[:-6]])
@pytest.mark.parametrize("headers", [INFLATED, TYPED])
def test_broken_gzip_is_422(api: Api, data: bytes, headers: dict[str, str]) -> None:
    assert api("POST", f"{SIM}/heartbeat", data=data, headers=headers).status == 422


def test_an_encoding_nobody_knows_is_415(api: Api) -> None:
    assert api("POST", f"{SIM}/heartbeat", data=b"x", headers={"Content-Encoding": "br"}).status == 415


# Queries.


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=x",
        "limit=1.5",
        "limit=",
        "cursor=",
        "cursor=x",
        "cursor=%00",
        "limit=" + "9" * 5_000,
    ],
)
def test_422_for_a_wrong_query(api: Api, query: str) -> None:
    answer = api.get(f"/api/runs?{query}")
    assert answer.status == 422
    assert answer.json()["detail"][0]["loc"][0] == "query"


@pytest.mark.parametrize("limit", [1, 100])
def test_both_ends_of_a_limit_are_inside(api: Api, limit: int) -> None:
    assert api.get(f"/api/runs?limit={limit}").status == 200


# Faults below.


def test_500_says_nothing_of_the_inside(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from chalicelib import runs

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("secret of the inside")

    monkeypatch.setattr(runs, "listing", fail)
    answer = api.get("/api/runs")
    assert (answer.status, answer.json()) == (500, {"detail": "internal error"})
    assert "ZeroDivisionError" in caplog.text
    assert TOKEN not in caplog.text


def test_503_tells_when_to_come_back(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.client import BaseClient
    from botocore.exceptions import ClientError

    def throttled(*_: Any) -> None:
        raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow"}}, "UpdateItem")

    monkeypatch.setattr(BaseClient, "_make_api_call", throttled)
    answer = api.post(f"{SIM}/heartbeat", BEAT)
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert isinstance(answer.json()["detail"], str)
