"""A 64 MiB upload through the front door: refused before a byte is stored, or stored, or nothing, whoever dies."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.client import BaseClient

from chalicelib import blobs, files, names, settings, stored, sweep, table
from infra.edge import viewer
from tests.aws import TOKEN, Api
from tests.conftest import Clock
from tests.deploy.cloud import LocalAws
from tests.e2e.wire import Connection
from tests.edge.cloudfront import Died, Door
from tests.edge.test_uploads import assert_consistent
from tests.waiting import eventually

MIB = settings.MIB
AUTH = {"Authorization": f"Bearer {TOKEN}"}


def put(door: Door, sim_id: str, name: str, body: bytes, **headers: str) -> httpx.Response:
    """As the documented clients do."""
    sent = {**AUTH, "Content-Type": "application/octet-stream", **headers}
    return door.http.put(f"{door.url}/api/sims/{sim_id}/files/{name}", content=body, headers=sent)


def tell_of_everything(sim_id: str) -> None:
    """The event of each object of a sim, as S3 sends it sooner or later, and once more."""
    for key, version in [*blobs.versions(f"files/{sim_id}/")] * 2:
        stored.handle({"object": {"key": key, "version-id": version}})


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("big") / "64.bin"
    path.write_bytes(os.urandom(MIB) * 64)
    return path


# Stored.


def test_curl_puts_64_mib_and_gets_the_documented_answer(door: Door, cloud_api: Api, big: Path) -> None:
    sim_id = cloud_api.new_sim()
    done = subprocess.run(
        [
            *("curl", "--silent", "--show-error", "--write-out", "\n%{http_code} %{content_type}", "-X", "PUT"),
            f"{door.url}/api/sims/{sim_id}/files/trace.gz",
            *("-H", f"Authorization: Bearer {TOKEN}", "-H", "Content-Type: application/octet-stream"),
            *("--data-binary", f"@{big}"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    body, _, tail = done.stdout.rpartition("\n")
    assert tail == "200 application/json"
    made = json.loads(body)
    assert made | {"created_at": ""} == {
        "name": "trace.gz",
        "size": 64 * MIB,
        "content_type": "application/gzip",
        "created_at": "",
    }
    assert cloud_api.get(f"/api/sims/{sim_id}/files").json() == [made]
    assert (
        door.http.get(cloud_api.get(f"/api/sims/{sim_id}/files/trace.gz").headers["location"]).content
        == big.read_bytes()
    )
    assert_consistent(sim_id)


def test_one_byte_more_is_413_and_no_byte_of_it_is_read(door: Door, cloud_api: Api) -> None:
    sim_id = cloud_api.new_sim()
    with Connection(door.url) as connection:
        connection.send(
            f"PUT /api/sims/{sim_id}/files/a.bin HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Length: {64 * MIB + 1}\r\nExpect: 100-continue\r\n\r\n"
        )
        status, _, body = connection.response()
    assert (status, json.loads(body)) == (413, {"detail": "file is over the 64 MiB per-file limit"})
    assert door.body_bytes_read == 0
    assert_consistent(sim_id)


@pytest.mark.parametrize("size", [0, 1, 5 * MIB])
def test_any_size_up_to_the_limit(door: Door, cloud_api: Api, size: int) -> None:
    sim_id = cloud_api.new_sim()
    answer = put(door, sim_id, "a.csv", b"x" * size)
    assert (answer.status_code, answer.json()["size"]) == (200, size)
    assert_consistent(sim_id)


def test_a_put_replaces_the_file_and_its_bytes(door: Door, cloud_api: Api) -> None:
    sim_id = cloud_api.new_sim()
    assert put(door, sim_id, "a.csv", b"first").status_code == 200
    second = put(door, sim_id, "a.csv", b"second!").json()
    assert cloud_api.get(f"/api/sims/{sim_id}/files").json() == [second]
    assert_consistent(sim_id)


def test_the_answer_is_the_same_as_the_apps_own(door: Door, cloud_api: Api) -> None:
    sim_id = cloud_api.new_sim()
    through = put(door, sim_id, "a.csv", b"abc")
    own = cloud_api.put(f"/api/sims/{sim_id}/files/a.csv", b"abc")
    assert through.json().keys() == own.json().keys()
    for name in ("content-type", "x-content-type-options", "cache-control"):
        assert through.headers[name] == own.headers[name]
    assert not [name for name in through.headers if name.startswith("x-amz")]


def test_a_download_is_sent_to_the_object(door: Door, cloud_api: Api) -> None:
    sim_id = cloud_api.new_sim()
    put(door, sim_id, "a.csv", b"abc")
    answer = door.http.get(f"{door.url}/api/sims/{sim_id}/files/a.csv", headers=AUTH)
    assert answer.status_code == 302
    assert door.http.get(answer.headers["location"]).content == b"abc"


# Refused, before a byte is stored.


@pytest.mark.parametrize(
    ("authorization", "path", "more", "status", "said"),
    [
        ("", "files/a", "Content-Length: 5", 401, "token"),
        ("Bearer wrong", "files/a", "Content-Length: 5", 401, "token"),
        ("Basic x", "files/..", "Content-Length: 5", 401, "token"),
        ("ok", "files/a%20b", "Content-Length: 5", 422, "must match"),
        ("ok", "files/..%2fx", "Content-Length: 5", 422, "must match"),
        ("ok", "files/" + "n" * 129, "Content-Length: 5", 422, "must match"),
        ("ok", "files/a%0A", "Content-Length: 5", 422, "must match"),
        ("ok", "files/a", "Transfer-Encoding: chunked", 411, "Content-Length"),
        ("ok", "files/a/b", "Content-Length: 5", 404, "not found"),
    ],
)
def test_what_the_viewer_function_refuses(
    door: Door, cloud_api: Api, authorization: str, path: str, more: str, status: int, said: str
) -> None:
    sim_id = cloud_api.new_sim()
    token = f"Bearer {TOKEN}" if authorization == "ok" else authorization
    with Connection(door.url) as connection:
        # The body is never sent: the answer must come without it.
        connection.send(
            f"PUT /api/sims/{sim_id}/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n{more}\r\n\r\n"
        )
        got, headers, body = connection.response()
    assert got == status
    assert said in json.loads(body)["detail"]
    assert ("www-authenticate" in headers) == (status == 401)
    assert door.body_bytes_read == 0
    assert list(blobs.versions(f"files/{sim_id}/")) == []


@pytest.mark.parametrize("sim_id", ["sim-000000000000", "no-sim", "%2e%2e"])
def test_a_sim_that_is_not_there(door: Door, cloud: LocalAws, sim_id: str) -> None:
    for size in (3, 64 * MIB + 1):  # 404 comes before 413
        with Connection(door.url) as connection:
            connection.send(
                f"PUT /api/sims/{sim_id}/files/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
                f"Content-Length: {size}\r\n\r\n"
            )
            assert connection.response()[0] == 404
    assert door.body_bytes_read == 0


@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_a_wrong_method(door: Door, cloud_api: Api, method: str) -> None:
    answer = door.http.request(method, f"{door.url}/api/sims/{cloud_api.new_sim()}/files/a", headers=AUTH)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, PUT")


def test_nothing_that_a_client_sends_reaches_s3_but_the_body(door: Door, cloud_api: Api) -> None:
    sim_id = cloud_api.new_sim()
    evil = {
        "x-amz-acl": "public-read",
        "x-amz-meta-upload": "forged",
        "x-amz-tagging": "a=b",
        "Cache-Control": "public",
    }
    answer = door.http.put(
        f"{door.url}/api/sims/{sim_id}/files/a.html?acl&tagging&partNumber=1&uploadId=2",
        content=b"<script>",
        headers={**AUTH, **evil, "Content-Type": "text/html; evil"},
    )
    assert answer.status_code == 200
    ((key, version),) = blobs.versions(f"files/{sim_id}/")
    head = blobs.client().head_object(Bucket=settings.bucket_name(), Key=key, VersionId=version)
    assert head["ContentType"] == "text/html"
    assert head["Metadata"].keys() == {"upload"}
    assert head["Metadata"]["upload"] != "forged"
    assert "CacheControl" not in head
    assert_consistent(sim_id)


# Quota.


def test_the_quota_holds_when_many_put_at_once(
    door: Door, cloud_api: Api, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(settings, "SIM_FILES_MAX_BYTES", 4 * MIB)
    sim_id = cloud_api.new_sim()
    answers: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda i=i: answers.append(put(door, sim_id, f"f{i}", bytes(MIB)))) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [answer for answer in answers if answer.status_code == 200]
    assert len(kept) == 4, [(answer.status_code, answer.text) for answer in answers]
    assert {answer.status_code for answer in answers} <= {200, 413, 503}
    assert sum(file["size"] for file in cloud_api.get(f"/api/sims/{sim_id}/files").json()) == 4 * MIB
    assert_consistent(sim_id)
    assert put(door, sim_id, "more", b"x").status_code == 413
    assert (
        put(door, sim_id, "f0" if kept[0].json()["name"] == "f0" else kept[0].json()["name"], b"x").status_code == 200
    )


def test_two_puts_of_one_name_leave_one_whole_file(door: Door, cloud_api: Api) -> None:
    sim_id = cloud_api.new_sim()
    threads = [threading.Thread(target=put, args=(door, sim_id, "a.bin", bytes([i]) * (MIB + i))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell_of_everything(sim_id)
    assert_consistent(sim_id)
    (file,) = cloud_api.get(f"/api/sims/{sim_id}/files").json()
    body = door.http.get(cloud_api.get(f"/api/sims/{sim_id}/files/a.bin").headers["location"]).content
    assert body == bytes([file["size"] - MIB]) * file["size"]


def test_a_put_that_s3_refuses_gives_its_room_back(
    door: Door, cloud_api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SIM_FILES_MAX_BYTES", 20)
    monkeypatch.setattr(files, "WAIT_SECONDS", 0.0)
    sim_id = cloud_api.new_sim()
    with monkeypatch.context() as patch:
        patch.setattr(door, "bucket", "no-such-bucket")
        assert put(door, sim_id, "a", b"x" * 15).status_code == 503
    assert put(door, sim_id, "b", b"x" * 15).status_code == 200
    clock.advance(files.HOLD_US / 1_000_000 + 1)
    sweep.sweep()
    assert_consistent(sim_id)


# The token.


def test_two_tokens_are_valid_while_one_is_replaced(door: Door, cloud_api: Api) -> None:
    sim_id = cloud_api.new_sim()
    assert put(door, sim_id, "a", b"x", Authorization="bearer second-token").status_code == 200


def test_a_rotated_token_counts_without_a_deployment(
    door: Door, cloud: LocalAws, cloud_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets, sim_id, now = cloud.client("secretsmanager"), cloud_api.new_sim(), [1000.0]
    monkeypatch.setattr("infra.edge.viewer.time.monotonic", lambda: now[0])
    assert put(door, sim_id, "a", b"x").status_code == 200
    secrets.put_secret_value(SecretId="token", SecretString="rotated")
    try:
        assert put(door, sim_id, "a", b"x").status_code == 200, "cached"
        now[0] += viewer.TOKEN_SECONDS + 1
        assert put(door, sim_id, "a", b"x").status_code == 401
        assert put(door, sim_id, "a", b"x", Authorization="Bearer rotated").status_code == 200
    finally:
        secrets.put_secret_value(SecretId="token", SecretString=f"{TOKEN} second-token")


def test_the_last_known_token_counts_while_the_secret_cannot_be_read(
    door: Door, cloud_api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sim_id = cloud_api.new_sim()

    def broken() -> Any:
        raise ConnectionError("no way there")

    monkeypatch.setattr(viewer, "_client", broken)
    answer = put(door, sim_id, "a", b"x")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    monkeypatch.setattr(viewer, "_cached", (-viewer.TOKEN_SECONDS - 1e9, [TOKEN.encode()]))
    capsys.readouterr()
    assert put(door, sim_id, "a", b"x").status_code == 200
    told = capsys.readouterr().out
    assert "the last known one counts" in told
    assert TOKEN not in told


# Whoever dies.


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("step", ["viewer-request", "origin-request", "s3", "origin-response"])
@pytest.mark.parametrize("event", [False, True])
def test_an_edge_killed_between_two_steps_leaves_no_orphan(
    door: Door, cloud_api: Api, clock: Clock, step: str, earlier: bool, event: bool
) -> None:
    """With the event of the new object it is mended at once, without it when the hold has expired."""
    sim_id = cloud_api.new_sim()
    if earlier:
        assert put(door, sim_id, "a.csv", b"earlier").status_code == 200
    door.dies_after = step
    with pytest.raises(httpx.TransportError):
        put(door, sim_id, "a.csv", b"abc")
    if event:
        tell_of_everything(sim_id)
    sizes = [file["size"] for file in cloud_api.get(f"/api/sims/{sim_id}/files").json()]
    if step == "origin-response" or (event and step == "s3"):
        assert sizes == [3]
    else:
        assert sizes == ([7] if earlier else [])
    clock.advance(files.HOLD_US / 1_000_000 + 1)
    sweep.sweep()
    assert_consistent(sim_id)
    door.dies_after = ""
    assert put(door, sim_id, "a.csv", b"again").json()["size"] == 5
    assert_consistent(sim_id)


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Kills whoever makes the n-th call to AWS, before it is sent (`n`) or once it is answered (`-n`)."""
    state = {"at": 0, "calls": 0}
    call = BaseClient._make_api_call  # type: ignore[attr-defined]

    def counted(self: Any, operation: str, request: dict[str, Any]) -> Any:
        state["calls"] += 1
        mine = state["calls"]
        if mine == state["at"]:
            raise Died(operation)
        answer = call(self, operation, request)
        if mine == -state["at"]:
            raise Died(operation)
        return answer

    monkeypatch.setattr(BaseClient, "_make_api_call", counted)
    yield state
    state["at"] = 0


@pytest.mark.parametrize("after", [False, True])
def test_an_edge_killed_at_any_call_leaves_no_orphan(
    door: Door, cloud_api: Api, clock: Clock, killer: dict[str, int], after: bool
) -> None:
    deaths = 0
    for n in range(1, 40):
        sim_id = cloud_api.new_sim()
        cloud_api.put(f"/api/sims/{sim_id}/files/a.csv", b"earlier")
        killer.update(at=-n if after else n, calls=0)
        try:
            status = put(door, sim_id, "a.csv", b"abc").status_code
        except httpx.TransportError:
            status = 0
        killer["at"] = 0
        if n % 2:
            tell_of_everything(sim_id)
        clock.advance(files.HOLD_US / 1_000_000 + 1)
        sweep.sweep()
        assert_consistent(sim_id)
        sizes = [file["size"] for file in cloud_api.get(f"/api/sims/{sim_id}/files").json()]
        assert sizes in ([7], [3])
        if status == 200:
            assert sizes == [3]
        if killer["calls"] < n or status == 200:
            break
        deaths += 1
    assert deaths >= 8


def test_a_client_that_goes_away_in_the_middle_leaves_the_old_file(door: Door, cloud_api: Api, clock: Clock) -> None:
    sim_id = cloud_api.new_sim()
    put(door, sim_id, "a.csv", b"earlier")
    with Connection(door.url) as connection:
        connection.send(
            f"PUT /api/sims/{sim_id}/files/a.csv HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Length: 1000\r\n\r\nonly this"
        )
    held = lambda: (table.get(sim_id, "a#files") or {}).get("holds")  # noqa: E731
    eventually(held, "the door holds room")
    clock.advance(files.HOLD_US / 1_000_000 + 1)
    sweep.sweep()
    assert [file["size"] for file in cloud_api.get(f"/api/sims/{sim_id}/files").json()] == [7]
    assert_consistent(sim_id)


def test_s3_that_does_not_store_is_told_as_busy(door: Door, cloud_api: Api, clock: Clock) -> None:
    sim_id = cloud_api.new_sim()
    door.bucket = "no-such-bucket"
    answer = put(door, sim_id, "a.csv", b"abc")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    clock.advance(files.HOLD_US / 1_000_000 + 1)
    sweep.sweep()
    assert_consistent(sim_id)
    assert names.object_key(sim_id, "a.csv") not in [key for key, _ in blobs.versions("files/")]
