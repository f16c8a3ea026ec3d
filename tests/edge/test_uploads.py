"""Uploads past the app: begun, put to the object store, ended by whoever finds the bytes first."""

from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from chalicelib import blobs, files, names, settings, stored, sweep, table
from chalicelib.errors import Busy
from tests.aws import Api
from tests.conftest import Clock
from tests.model.faults import Died, dies_at

NAME = "out.csv"


def begin(api: Api, sim_id: str, size: int, name: str = NAME) -> dict[str, Any]:
    answer = api.post(f"/api/sims/{sim_id}/uploads/{name}", {"size": size})
    assert answer.status == 201, answer
    return dict(answer.json())


def write(sim_id: str, body: bytes, upload_id: str | None, name: str = NAME) -> str:
    """What the object store does with a put to an upload's URL; returns the version."""
    metadata = {blobs.UPLOAD_METADATA: upload_id} if upload_id else {}
    made = blobs.client().put_object(
        Bucket=settings.bucket_name(), Key=names.object_key(sim_id, name), Body=body, Metadata=metadata
    )
    return made["VersionId"]


def end(api: Api, sim_id: str, upload_id: str, name: str = NAME) -> Any:
    return api.post(f"/api/sims/{sim_id}/uploads/{name}/{upload_id}")


def tell(sim_id: str, version: str, name: str = NAME) -> str:
    """What the event of a new object leads to."""
    detail = {"bucket": {"name": "cascade"}, "object": {"key": names.object_key(sim_id, name), "version-id": version}}
    return stored.handle(detail)["outcome"]


def versions(sim_id: str) -> set[str]:
    return {version for _, version in blobs.versions(f"files/{sim_id}/")}


def assert_consistent(sim_id: str) -> None:
    """Each stored version is named by a row, each row's bytes are there, and the ledger holds what rows say and no more."""
    rows = list(table.query(sim_id, "f#", "f#~"))
    ledger = table.get(sim_id, "a#files") or {"count": 0, "bytes": 0, "holds": {}}
    assert versions(sim_id) == {row["version"] for row in rows}
    assert (ledger["count"], ledger["bytes"]) == (len(rows), sum(row["size"] for row in rows))
    assert ledger["holds"] == {}
    for row in rows:
        assert len(blobs.get(names.object_key(sim_id, row["sk"][2:]), row["version"])) == row["size"]


def test_an_upload_in_three_steps_is_the_file(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    upload = begin(lambda_api, sim_id, 4)
    write(sim_id, b"a,b\n", upload["id"])

    made = end(lambda_api, sim_id, upload["id"])

    assert made.status == 200
    assert made.json() | {"created_at": ""} == {"name": NAME, "size": 4, "content_type": "text/csv", "created_at": ""}
    assert lambda_api.get(f"/api/sims/{sim_id}/files").json() == [made.json()]
    assert end(lambda_api, sim_id, upload["id"]).json() == made.json()
    assert_consistent(sim_id)


def test_the_url_names_the_size_the_type_and_the_upload(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    upload = begin(lambda_api, sim_id, 64 * settings.MIB)
    url = urlsplit(upload["url"])
    signed = parse_qs(url.query)["X-Amz-SignedHeaders"][0].split(";")
    assert url.path.endswith(f"/files/{sim_id}/{NAME}")
    assert {"content-length", "content-type", "x-amz-meta-upload"} <= set(signed)
    assert upload["headers"] == {"Content-Type": "text/csv", "x-amz-meta-upload": upload["id"]}


def test_an_upload_replaces_the_file_and_leaves_nothing_of_it(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    lambda_api.put(f"/api/sims/{sim_id}/files/{NAME}", b"old contents")
    upload = begin(lambda_api, sim_id, 3)
    write(sim_id, b"new", upload["id"])
    assert end(lambda_api, sim_id, upload["id"]).json()["size"] == 3
    assert_consistent(sim_id)


def test_without_bytes_an_upload_does_not_end_and_the_old_file_stands(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    old = lambda_api.put(f"/api/sims/{sim_id}/files/{NAME}", b"old").json()
    upload = begin(lambda_api, sim_id, 3)
    answer = end(lambda_api, sim_id, upload["id"])
    assert answer.status == 409
    assert upload["id"] in answer.json()["detail"]
    assert lambda_api.get(f"/api/sims/{sim_id}/files").json() == [old]


@pytest.mark.parametrize(("size", "status"), [(0, 201), (64 * settings.MIB, 201), (64 * settings.MIB + 1, 413)])
def test_the_limit_of_a_file(lambda_api: Api, size: int, status: int) -> None:
    answer = lambda_api.post(f"/api/sims/{lambda_api.new_sim()}/uploads/{NAME}", {"size": size})
    assert answer.status == status


def test_the_room_of_a_sim_is_held_while_an_upload_is_under_way(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    for i in range(4):
        begin(lambda_api, sim_id, 64 * settings.MIB, f"part-{i}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "WAIT_SECONDS", 0)
        assert lambda_api.post(f"/api/sims/{sim_id}/uploads/more", {"size": 1}).status == 503


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/sims/sim-000000000000/uploads/a", {"size": 1}, 404),
        ("/api/sims/no-sim/uploads/a", {"size": 1}, 404),
        ("/api/sims/{sim}/uploads/..", {"size": 1}, 422),
        ("/api/sims/{sim}/uploads/a", {"size": -1}, 422),
        ("/api/sims/{sim}/uploads/a", {"size": True}, 422),
        ("/api/sims/{sim}/uploads/a", {}, 422),
        ("/api/sims/{sim}/uploads/..%2f/0", None, 422),
        ("/api/sims/sim-000000000000/uploads/a/0", None, 404),
        ("/api/sims/{sim}/uploads/a/0", None, 409),
    ],
)
def test_what_is_refused(lambda_api: Api, path: str, body: Any, status: int) -> None:
    answer = lambda_api.post(path.format(sim=lambda_api.new_sim()), body)
    assert answer.status == status
    assert "detail" in answer.json()


# Where the server in front takes any number of bytes, as the local one does, the URL is its own.


def send(api: Api, upload: dict[str, Any], body: bytes) -> Any:
    return api.put(upload["url"], body, headers=upload["headers"])


def test_a_server_of_its_own_takes_the_bytes_by_an_ordinary_put(api: Api) -> None:
    sim_id = api.new_sim()
    upload = begin(api, sim_id, 3)
    assert upload["url"] == f"/api/sims/{sim_id}/files/{NAME}"
    assert upload["headers"] == {"Content-Type": "application/octet-stream", "Cascade-Upload": upload["id"]}
    assert end(api, sim_id, upload["id"]).status == 409
    put = send(api, upload, b"abc")
    assert (put.status, put.json()["size"]) == (200, 3)
    assert end(api, sim_id, upload["id"]).json() == put.json()
    assert send(api, upload, b"abc").json() == put.json()
    assert end(api, sim_id, upload["id"]).json() == put.json()
    assert_consistent(sim_id)


def test_there_an_upload_does_not_end_by_another_put_or_a_bogus_id(api: Api) -> None:
    sim_id = api.new_sim()
    old = api.put(f"/api/sims/{sim_id}/files/{NAME}", b"old").json()
    upload = begin(api, sim_id, 3)
    assert end(api, sim_id, upload["id"]).status == 409
    assert end(api, sim_id, "0123456789abcdef").status == 409
    assert api.get(f"/api/sims/{sim_id}/files").json() == [old]
    api.put(f"/api/sims/{sim_id}/files/{NAME}", b"new")
    assert end(api, sim_id, upload["id"]).status == 409
    assert send(api, upload, b"abc").status == 200
    assert_consistent(sim_id)


@pytest.mark.parametrize("body", [b"", b"abcd", b"abcdefg"])
@pytest.mark.parametrize("stored_before", [False, True])
def test_there_bytes_of_another_size_than_announced_are_refused(api: Api, body: bytes, stored_before: bool) -> None:
    sim_id = api.new_sim()
    upload = begin(api, sim_id, 5)
    if stored_before:
        assert send(api, upload, b"right").status == 200
    answer = send(api, upload, body)
    assert answer.status == 409
    assert f"{len(body)} bytes" in answer.json()["detail"]
    assert end(api, sim_id, upload["id"]).status == (200 if stored_before else 409)
    assert send(api, upload, b"right").status == 200
    assert api.get(f"/api/sims/{sim_id}/files/{NAME}").body == b"right"
    assert_consistent(sim_id)


def test_there_bytes_for_an_upload_that_is_not_of_this_name_are_refused(api: Api) -> None:
    sim_id = api.new_sim()
    upload = begin(api, sim_id, 3)
    other = {**upload, "url": f"/api/sims/{sim_id}/files/other"}
    bogus = {**upload, "headers": {**upload["headers"], "Cascade-Upload": "0123456789abcdef"}}
    assert [send(api, wrong, b"abc").status for wrong in (other, bogus)] == [409, 409]
    nowhere = {**upload, "url": "/api/sims/sim-000000000000/files/out.csv"}
    assert send(api, nowhere, b"abc").status == 404
    assert api.get(f"/api/sims/{sim_id}/files").json() == []


def test_there_the_room_is_held_too_and_never_counts_twice(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SIM_FILES_MAX_BYTES", 20)
    monkeypatch.setattr(files, "WAIT_SECONDS", 0)
    sim_id = api.new_sim()
    uploads = [begin(api, sim_id, 5, f"part-{n}") for n in range(4)]
    assert api.post(f"/api/sims/{sim_id}/uploads/more", {"size": 1}).status == 503
    assert api.put(f"/api/sims/{sim_id}/files/more", b"x").status == 503
    assert {send(api, upload, b"12345").status for upload in uploads} == {200}
    assert api.post(f"/api/sims/{sim_id}/uploads/more", {"size": 1}).status == 413
    assert_consistent(sim_id)


def test_there_bytes_that_could_not_be_stored_can_be_put_again(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim_id, real = api.new_sim(), blobs.put

    def written_but_lost(*arguments: Any) -> None:
        real(*arguments)
        raise Busy()

    upload = begin(api, sim_id, 3)
    with monkeypatch.context() as broken:
        broken.setattr(blobs, "put", written_but_lost)
        assert [send(api, upload, b"abc").status for _ in range(2)] == [503, 503]
    assert send(api, upload, b"abc").status == 200
    assert end(api, sim_id, upload["id"]).status == 200
    clock.advance(files.HOLD_US / 1_000_000 + 1)
    sweep.sweep()
    assert_consistent(sim_id)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 16))
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("earlier", [False, True])
def test_there_a_put_that_died_can_be_sent_again_and_leaves_nothing(
    api: Api, clock: Clock, call: int, when: Any, again: bool, earlier: bool
) -> None:
    sim_id = api.new_sim()
    if earlier:
        api.put(f"/api/sims/{sim_id}/files/{NAME}", b"earlier")
    upload = begin(api, sim_id, 3)
    with suppress(Died), dies_at(call, when):
        send(api, upload, b"abc")
    if again:
        assert send(api, upload, b"abc").status == 200
    ended = end(api, sim_id, upload["id"]).status
    assert ended in ((200,) if again else (200, 409))
    clock.advance(files.HOLD_US / 1_000_000 + 1)
    sweep.sweep()
    assert_consistent(sim_id)
    found = [file["size"] for file in api.get(f"/api/sims/{sim_id}/files").json()]
    assert found == ([3] if ended == 200 else [7] if earlier else [])


def test_there_an_upload_expires(api: Api, clock: Clock) -> None:
    sim_id = api.new_sim()
    upload = begin(api, sim_id, 3)
    clock.advance(files.HOLD_US / 1_000_000 + 1)
    sweep.sweep()
    assert send(api, upload, b"abc").status == 409
    assert end(api, sim_id, upload["id"]).status == 409
    assert_consistent(sim_id)


def test_an_upload_whose_bytes_were_refused_for_good_cannot_be_ended(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    upload = begin(lambda_api, sim_id, 3)
    files.abandon(sim_id, NAME, upload["id"], None)
    write(sim_id, b"abc", upload["id"])
    assert end(lambda_api, sim_id, upload["id"]).status == 409


# The event of a new object.


def test_an_upload_whose_client_died_is_ended_by_the_event(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    upload = begin(lambda_api, sim_id, 3)
    version = write(sim_id, b"abc", upload["id"])
    assert tell(sim_id, version) == "committed"
    assert tell(sim_id, version) == "kept"
    assert lambda_api.get(f"/api/sims/{sim_id}/files").json()[0]["size"] == 3
    assert end(lambda_api, sim_id, upload["id"]).status == 200
    assert_consistent(sim_id)


def test_bytes_put_twice_under_one_upload_leave_one_version(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    upload = begin(lambda_api, sim_id, 3)
    first, second = write(sim_id, b"abc", upload["id"]), write(sim_id, b"abc", upload["id"])
    assert end(lambda_api, sim_id, upload["id"]).status == 200
    assert sorted([tell(sim_id, first), tell(sim_id, second)]) == ["kept", "removed"]
    assert_consistent(sim_id)


def test_bytes_put_twice_do_not_end_the_hold_of_what_the_first_ones_replace(lambda_api: Api, clock: Clock) -> None:
    """Whoever committed the first ones died before the earlier version was deleted: the sweep still has to know of it."""
    sim_id = lambda_api.new_sim()
    lambda_api.put(f"/api/sims/{sim_id}/files/{NAME}", b"earlier")
    upload = begin(lambda_api, sim_id, 3)
    first, second = write(sim_id, b"abc", upload["id"]), write(sim_id, b"abc", upload["id"])
    files._commit(sim_id, NAME, upload["id"], 3, first, None)  # and dead
    with pytest.raises(Busy):
        files.commit(sim_id, NAME, upload["id"], 3, second)
    assert second not in versions(sim_id)
    clock.advance(files.HOLD_US // 1_000_000 + 1)
    sweep.sweep()
    assert versions(sim_id) == {first}
    assert_consistent(sim_id)


def test_bytes_that_go_while_their_upload_is_ended_are_not_missed(
    lambda_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events of bytes put twice come between the look at what is stored and the look at each."""
    sim_id, look = lambda_api.new_sim(), blobs.versions
    upload = begin(lambda_api, sim_id, 3)
    both = [write(sim_id, b"abc", upload["id"]) for _ in range(2)]

    def then_told(prefix: str) -> Any:
        monkeypatch.setattr(blobs, "versions", look)
        found = list(look(prefix))
        assert [tell(sim_id, version) for version in both] == ["committed", "removed"]
        return found

    monkeypatch.setattr(blobs, "versions", then_told)
    answer = end(lambda_api, sim_id, upload["id"])
    assert (answer.status, answer.json()["size"]) == (200, 3)
    assert_consistent(sim_id)


def test_an_upload_that_is_ended_while_its_run_is_deleted_is_404(
    lambda_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, (sim_id,) = lambda_api.new_run()
    upload, look = begin(lambda_api, sim_id, 3), blobs.versions
    write(sim_id, b"abc", upload["id"])

    def then_deleted(prefix: str) -> Any:
        monkeypatch.setattr(blobs, "versions", look)
        found = list(look(prefix))
        assert lambda_api.delete(f"/api/runs/{run_id}").status == 204
        return found

    monkeypatch.setattr(blobs, "versions", then_deleted)
    assert end(lambda_api, sim_id, upload["id"]).status == 404
    assert versions(sim_id) == set()


def test_bytes_put_after_the_upload_ended_are_removed(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    upload = begin(lambda_api, sim_id, 3)
    write(sim_id, b"abc", upload["id"])
    end(lambda_api, sim_id, upload["id"])
    assert tell(sim_id, write(sim_id, b"xyz", upload["id"])) == "removed"
    assert_consistent(sim_id)


def test_bytes_of_another_size_than_was_held_never_become_the_file(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    upload = begin(lambda_api, sim_id, 3)
    version = write(sim_id, b"much too long", upload["id"])
    assert end(lambda_api, sim_id, upload["id"]).status == 409
    assert tell(sim_id, version) == "removed"
    assert lambda_api.get(f"/api/sims/{sim_id}/files").json() == []


def test_the_event_of_a_put_through_the_app_changes_nothing(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    lambda_api.put(f"/api/sims/{sim_id}/files/{NAME}", b"abc")
    (version,) = versions(sim_id)
    assert tell(sim_id, version) == "kept"
    assert_consistent(sim_id)


def test_the_event_leaves_a_version_alone_while_its_put_is_under_way(lambda_api: Api) -> None:
    sim_id = lambda_api.new_sim()
    hold_id = files.hold(sim_id, NAME, 3)
    version = write(sim_id, b"abc", None)
    assert tell(sim_id, version) == "kept"
    files.commit(sim_id, NAME, hold_id, 3, version)
    assert_consistent(sim_id)


def test_bytes_for_a_deleted_sim_are_removed(lambda_api: Api) -> None:
    run_id, (sim_id,) = lambda_api.new_run()
    upload = begin(lambda_api, sim_id, 3)
    assert lambda_api.delete(f"/api/runs/{run_id}").status == 204
    assert tell(sim_id, write(sim_id, b"abc", upload["id"])) == "removed"
    assert versions(sim_id) == set()


def test_an_object_that_is_no_file_is_left_alone(service: None) -> None:
    detail = {"object": {"key": "files/x", "version-id": "1"}}
    assert stored.handle(detail) == {"outcome": "ignored"}


# Two who found the same bytes.


def test_a_commit_that_failed_takes_nothing_away_from_one_that_succeeded(
    lambda_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two committers is told that the commit failed although the other one's went through: the file stays."""
    sim_id = lambda_api.new_sim()
    upload = begin(lambda_api, sim_id, 3)
    version = write(sim_id, b"abc", upload["id"])
    real = files._commit

    def other_first(*arguments: Any) -> Any:
        monkeypatch.setattr(files, "_commit", real)
        files.commit(*arguments)
        raise Busy()

    monkeypatch.setattr(files, "_commit", other_first)
    with pytest.raises(Busy):
        files.commit(sim_id, NAME, upload["id"], 3, version)
    assert lambda_api.get(f"/api/sims/{sim_id}/files").json()[0]["size"] == 3
    assert_consistent(sim_id)


def test_nobody_commits_bytes_that_are_being_taken_away(lambda_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    sim_id = lambda_api.new_sim()
    upload = begin(lambda_api, sim_id, 3)
    version = write(sim_id, b"abc", upload["id"])
    real = blobs.delete

    def commit_first(key: str, which: str) -> None:
        monkeypatch.setattr(blobs, "delete", real)
        assert end(lambda_api, sim_id, upload["id"]).status != 200
        real(key, which)

    monkeypatch.setattr(blobs, "delete", commit_first)
    files.abandon(sim_id, NAME, upload["id"], version)
    assert lambda_api.get(f"/api/sims/{sim_id}/files").json() == []
    assert_consistent(sim_id)


# Who dies.


@pytest.mark.parametrize("put", [False, True])
@pytest.mark.parametrize("earlier", [False, True])
def test_an_upload_that_is_never_ended_leaves_nothing(lambda_api: Api, clock: Clock, put: bool, earlier: bool) -> None:
    """Also when no event comes: the hold expires and the sweep looks."""
    sim_id = lambda_api.new_sim()
    if earlier:
        lambda_api.put(f"/api/sims/{sim_id}/files/{NAME}", b"earlier")
    upload = begin(lambda_api, sim_id, 3)
    if put:
        write(sim_id, b"abc", upload["id"])
    clock.advance(files.HOLD_US / 1_000_000 + 1)
    sweep.sweep()
    assert_consistent(sim_id)
    assert [file["size"] for file in lambda_api.get(f"/api/sims/{sim_id}/files").json()] == ([7] if earlier else [])


def test_the_pattern_matches_output_files_of_this_bucket_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_BUCKET", "mine")
    pattern = stored.event_pattern()
    assert pattern["detail"] == {"bucket": {"name": ["mine"]}, "object": {"key": [{"prefix": "files/"}]}}
