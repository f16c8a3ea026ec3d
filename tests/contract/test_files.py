"""Output files: names, sizes, quota, replacement, reading."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from chalicelib import blobs, files, settings, table
from chalicelib.errors import Busy, TooLarge
from chalicelib.sweep import sweep
from tests.aws import Api
from tests.conftest import Clock
from tests.contract.stored import versions
from tests.model.faults import Died, dies_at

MIB = 1024 * 1024
QUARTER = 15 * 60 + 1


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of 8 bytes a file and 20 a sim, and no waiting for room."""
    monkeypatch.setattr(settings, "FILE_MAX_BYTES", 8)
    monkeypatch.setattr(settings, "SIM_FILES_MAX_BYTES", 20)
    monkeypatch.setattr(files, "WAIT_SECONDS", 0.0)


def put(api: Api, sim: str, name: str, body: bytes, **more: Any) -> Any:
    return api.put(f"/api/sims/{sim}/files/{name}", body, **more)


def total(api: Api, sim: str) -> dict[str, int]:
    found: dict[str, int] = api.get(f"/api/sims/{sim}").json()["files"]
    return found


def listed(api: Api, sim: str) -> dict[str, int]:
    return {file["name"]: file["size"] for file in api.get(f"/api/sims/{sim}/files").json()}


def stored(sim: str) -> list[str]:
    """One name for each version of an object that the sim's files have."""
    return sorted(name.rpartition("/")[2] for name, _ in versions(f"files/{sim}/"))


def test_a_file_comes_back_with_its_description(api: Api) -> None:
    sim = api.new_sim()
    answer = put(api, sim, "kernel-stats.csv", b"a,b\n")
    assert answer.status == 200
    shown = answer.json()
    assert shown == {
        "name": "kernel-stats.csv",
        "size": 4,
        "content_type": "text/csv",
        "created_at": shown["created_at"],
    }
    assert len(shown["created_at"]) == 27
    assert api.get(f"/api/sims/{sim}/files").json() == [shown]
    got = api.get(f"/api/sims/{sim}/files/kernel-stats.csv")
    assert (got.status, got.body) == (200, b"a,b\n")
    assert got.headers["content-type"] == "text/csv"


@pytest.mark.parametrize(
    "name",
    ["a", "...", "..a", ".hidden", "-", "_", "a" * 128, "A.Z-0_9", "x.meta.json", "x.tmp", "con", "a..b"],
)
def test_names_that_fit(api: Api, name: str) -> None:
    sim = api.new_sim()
    assert put(api, sim, name, b"x").status == 200
    assert api.get(f"/api/sims/{sim}/files/{name}").body == b"x"
    assert list(listed(api, sim)) == [name]


@pytest.mark.parametrize(
    "name",
    [
        ".",
        "..",
        "%2e",
        "%2E%2e",
        "a" * 129,
        "a%20b",
        "a%0A",
        "a%0D",
        "%C3%A9",
        "a%2Fb",
        "..%2Fx",
        "a%00",
        "a%5Cb",
        "%FF",
        "a+b",
        "a:b",
        "%252e",
    ],
)
def test_names_that_do_not_fit_are_422(api: Api, name: str) -> None:
    sim = api.new_sim()
    for method in ("PUT", "GET"):
        answer = api(method, f"/api/sims/{sim}/files/{name}", data=b"x" if method == "PUT" else None)
        assert answer.status == (422 if method == "PUT" else answer.status)
        assert answer.status in (404, 422)
    assert listed(api, sim) == {}


def test_the_refusal_names_the_name_and_the_pattern(api: Api) -> None:
    answer = put(api, api.new_sim(), "my%20file.txt", b"x")
    assert answer.json() == {"detail": r"file name 'my file.txt' must match ^(?!\.\.?$)[A-Za-z0-9._-]{1,128}$"}


def test_percent_encoding_of_an_allowed_name_is_decoded_once(api: Api) -> None:
    sim = api.new_sim()
    assert put(api, sim, "a%2Ecsv", b"x").json()["name"] == "a.csv"
    assert api.get(f"/api/sims/{sim}/files/%61.csv").body == b"x"


def test_a_bad_name_comes_before_404_and_that_before_413(api: Api, small: None) -> None:
    assert put(api, "sim-000000000000", "a%20b", b"x" * 9).status == 422
    assert put(api, "sim-000000000000", "ab", b"x" * 9).status == 404
    assert put(api, api.new_sim(), "ab", b"x" * 9).status == 413


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.csv", "text/csv"),
        ("a.CSV", "text/csv"),
        ("a.json", "application/json"),
        ("a.log.gz", "application/gzip"),
        ("a.log", "text/plain"),
        ("a.txt", "text/plain"),
        ("a.yaml", "application/yaml"),
        ("a.png", "image/png"),
        ("a.svg", "image/svg+xml"),
        ("a.html", "text/html"),
        ("a.sqlite", "application/vnd.sqlite3"),
        ("a.unknown", "application/octet-stream"),
        ("csv", "application/octet-stream"),
        (".csv", "text/csv"),
        ("a.", "application/octet-stream"),
    ],
)
def test_content_types_are_of_our_own_table(api: Api, name: str, kind: str) -> None:
    sim = api.new_sim()
    assert put(api, sim, name, b"x", headers={"Content-Type": "text/x-sent"}).json()["content_type"] == kind


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "application/x-www-form-urlencoded"},
        # Of any other type API Gateway makes text, and the app answers 415.
        pytest.param({"Content-Type": ""}, marks=pytest.mark.in_process),
        pytest.param({"content-TYPE": "application/json"}, marks=pytest.mark.in_process),
        pytest.param({"Content-Type": "text/html"}, marks=pytest.mark.in_process),
    ],
)
def test_any_content_type_or_none_is_taken(api: Api, headers: dict[str, str]) -> None:
    sim = api.new_sim()
    assert put(api, sim, "a", b"\xff\x00", headers=headers).status == 200
    assert api.get(f"/api/sims/{sim}/files/a").body == b"\xff\x00"


def test_gzip_bytes_are_stored_as_sent(api: Api) -> None:
    sim = api.new_sim()
    body = b"\x1f\x8b\x08\x00not really"
    assert put(api, sim, "a.gz", body).status == 200
    assert api.get(f"/api/sims/{sim}/files/a.gz").body == body


def test_zero_bytes_are_a_file(api: Api) -> None:
    sim = api.new_sim()
    assert put(api, sim, "empty", b"").json()["size"] == 0
    assert api.get(f"/api/sims/{sim}/files/empty").body == b""
    assert total(api, sim) == {"count": 1, "bytes": 0}


@pytest.mark.in_process  # behind API Gateway the object store answers: test_on_lambda_a_download_is_a_short_lived_link
def test_markup_is_never_served_inline(api: Api) -> None:
    sim = api.new_sim()
    put(api, sim, "a.html", b"<script>alert(1)</script>")
    headers = api.get(f"/api/sims/{sim}/files/%61%2Ehtml").headers
    assert headers["content-disposition"] == 'attachment; filename="a.html"'
    assert headers["content-security-policy"] == "sandbox"
    assert headers["x-content-type-options"] == "nosniff"


def test_files_are_listed_by_name(api: Api) -> None:
    sim = api.new_sim()
    for name in ("b", "a", "C", "10", "9"):
        put(api, sim, name, b"x")
    assert list(listed(api, sim)) == ["10", "9", "C", "a", "b"]


# Limits.


@pytest.mark.in_process  # API Gateway takes 10 MB; tests/deploy/test_deploy.py has the way round it
def test_64_mib_is_a_file_and_one_byte_more_is_not(api: Api) -> None:
    sim = api.new_sim()
    assert put(api, sim, "big", bytes(64 * MIB)).status == 200
    answer = put(api, sim, "big", bytes(64 * MIB + 1))
    assert (answer.status, answer.json()) == (413, {"detail": "file is over the 64 MiB per-file limit"})
    assert listed(api, sim) == {"big": 64 * MIB}
    for name in ("b", "c", "d"):
        assert put(api, sim, name, bytes(64 * MIB)).status == 200
    assert total(api, sim) == {"count": 4, "bytes": 256 * MIB}
    assert put(api, sim, "e", b"").status == 200
    answer = put(api, sim, "f", b"x")
    assert answer.status == 413
    assert "256 MiB" in answer.json()["detail"]


def test_what_a_put_replaces_does_not_count(api: Api, small: None) -> None:
    sim = api.new_sim()
    for name, size in (("a", 8), ("b", 8), ("c", 4)):
        assert put(api, sim, name, b"x" * size).status == 200
    assert put(api, sim, "a", b"y" * 8).status == 200
    assert put(api, sim, "c", b"y" * 5).status == 413
    assert api.get(f"/api/sims/{sim}/files/c").body == b"xxxx"
    assert put(api, sim, "b", b"y").status == 200
    assert put(api, sim, "c", b"y" * 8).status == 200
    assert total(api, sim) == {"count": 3, "bytes": 17}
    assert stored(sim) == ["a", "b", "c"]


def test_a_put_gives_the_time_of_this_put(api: Api) -> None:
    sim = api.new_sim()
    first = put(api, sim, "a", b"x").json()
    second = put(api, sim, "a", b"x").json()
    assert second["created_at"] > first["created_at"]
    assert api.get(f"/api/sims/{sim}/files").json() == [second]


def test_files_are_taken_after_the_end(api: Api) -> None:
    sim = api.new_sim()
    api.post(f"/api/sims/{sim}/heartbeat", {"state": "succeeded"})
    assert put(api, sim, "a", b"x").status == 200


# Failures.


def test_a_put_whose_bytes_cannot_be_written_leaves_the_old_file(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = api.new_sim()
    put(api, sim, "a", b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("broken")

    with monkeypatch.context() as broken:
        broken.setattr(blobs, "put", fail)
        assert put(api, sim, "a", b"newer").status == 500
    assert api.get(f"/api/sims/{sim}/files/a").body == b"old"
    assert total(api, sim) == {"count": 1, "bytes": 3}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 13))
@pytest.mark.parametrize("replaced", [True, False])
def test_a_put_that_died_leaves_row_bytes_and_total_in_agreement(
    api: Api, clock: Clock, small: None, call: int, when: Any, replaced: bool
) -> None:
    sim = api.new_sim()
    if replaced:
        put(api, sim, "a", b"old")
    with suppress(Died), dies_at(call, when):
        put(api, sim, "a", b"newer!")
    kept = listed(api, sim)
    assert kept in ({"a": 6}, {"a": 3} if replaced else {})
    assert total(api, sim)["bytes"] == sum(kept.values())
    for name, size in kept.items():
        assert len(api.get(f"/api/sims/{sim}/files/{name}").body) == size
    clock.advance(QUARTER)
    sweep()
    assert listed(api, sim) == kept
    assert stored(sim) == list(kept)
    # Nothing is held any more: the whole quota is free.
    for name, size in (("a", 8), ("b", 8), ("c", 4)):
        assert put(api, sim, name, b"x" * size).status == 200
    assert put(api, sim, "d", b"x").status == 413


def test_room_that_is_held_is_no_reason_to_refuse_for_good(api: Api, clock: Clock, small: None) -> None:
    sim = api.new_sim()
    for name in ("a", "b"):
        put(api, sim, name, b"x" * 8)
    with suppress(Died), dies_at(4, "before"):
        put(api, sim, "c", b"x" * 4)
    answer = put(api, sim, "d", b"x" * 4)
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) >= 1
    clock.advance(QUARTER)
    sweep()
    assert put(api, sim, "d", b"x" * 4).status == 200


def held(sim: str) -> dict[str, Any]:
    holds: dict[str, Any] = (table.get(sim, "a#files") or {"holds": {}})["holds"]
    return holds


@pytest.mark.parametrize("written", [False, True])
def test_puts_that_fail_give_their_room_back_at_once_and_leave_nothing(
    api: Api, clock: Clock, small: None, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """Also bytes of which the app was never told, for S3's answer came too late."""
    sim, write = api.new_sim(), blobs.put

    def fail(*arguments: Any) -> None:
        if written:
            write(*arguments)
        raise Busy()

    with monkeypatch.context() as broken:
        broken.setattr(blobs, "put", fail)
        assert [put(api, sim, name, b"x" * 8).status for name in ("a", "b", "c", "d", "a", "a")] == [503] * 6
    assert len(held(sim)) == 4  # of a name one is enough
    for name, size in (("e", 8), ("f", 8), ("a", 4)):
        assert put(api, sim, name, b"y" * size).status == 200
    clock.advance(QUARTER)
    sweep()
    assert stored(sim) == ["a", "e", "f"]
    assert held(sim) == {}
    assert api.get(f"/api/sims/{sim}/files/a").body == b"yyyy"
    assert total(api, sim) == {"count": 3, "bytes": 20}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(3, 7))
@pytest.mark.parametrize("replaced", [0, 3, 8])
def test_a_dead_put_does_not_stand_in_the_way_of_the_next_of_its_name(
    api: Api, clock: Clock, small: None, call: int, when: Any, replaced: int
) -> None:
    sim = api.new_sim()
    for name, size in (("a", replaced), ("b", 8), ("c", 4)):
        if size:
            put(api, sim, name, b"x" * size)
    with suppress(Died), dies_at(call, when):
        put(api, sim, "a", b"x" * 8)
    assert put(api, sim, "a", b"y" * 8).status == 200
    assert put(api, sim, "a", b"z" * 7).status == 200
    assert total(api, sim) == {"count": 3, "bytes": 19}
    assert put(api, sim, "d", b"xx").status == 413
    clock.advance(QUARTER)
    sweep()
    assert stored(sim) == ["a", "b", "c"]
    assert held(sim) == {}
    assert put(api, sim, "d", b"x").status == 200


def test_what_a_put_that_became_smaller_meanwhile_was_to_replace_stays_set_aside(api: Api, small: None) -> None:
    sim = api.new_sim()
    for name, size in (("a", 8), ("b", 8), ("c", 4)):
        put(api, sim, name, b"x" * size)
    hold = files.hold(sim, "a", 8)
    assert put(api, sim, "a", b"y").status == 200
    assert put(api, sim, "d", b"y").status == 503
    files.commit(sim, "a", hold, 8, blobs.put(f"files/{sim}/a", b"z" * 8))
    assert total(api, sim) == {"count": 3, "bytes": 20}
    assert stored(sim) == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(6))
def test_holds_commits_and_deaths_in_any_order_keep_the_ledger(api: Api, clock: Clock, small: None, seed: int) -> None:
    """What was set aside can always be committed, and rows and holds together never pass the quota."""
    rng, sim = random.Random(seed), api.new_sim()
    under_way: list[tuple[str, str, int]] = []
    for _ in range(60):
        step = rng.choice(["hold", "hold", "commit", "commit", "fail", "late", "die", "sweep"])
        if step == "hold":
            name, size = rng.choice("abcd"), rng.randrange(9)
            with suppress(TooLarge, Busy):
                under_way.append((files.hold(sim, name, size), name, size))
        elif step == "sweep":
            clock.advance(60)
            sweep()
        elif under_way:
            hold, name, size = under_way.pop(rng.randrange(len(under_way)))
            if step == "commit":
                files.commit(sim, name, hold, size, blobs.put(f"files/{sim}/{name}", bytes(size)))
            elif step == "late":
                blobs.put(f"files/{sim}/{name}", bytes(size))
            if step in ("fail", "late"):
                files.abandon(sim, name, hold, None)
        ledger = files._ledger(sim)
        rows = {row["sk"][2:]: row["size"] for row in table.query(sim, "f#", "f#~")}
        assert (ledger["count"], ledger["bytes"]) == (len(rows), sum(rows.values()))
        room = dict(rows)
        for hold in (hold for hold in held(sim).values() if "drop" not in hold):
            room[hold["name"]] = max(room.get(hold["name"], 0), hold["size"])
        assert ledger["bytes"] + files._held(ledger) == sum(room.values()) <= settings.SIM_FILES_MAX_BYTES
        if seed % 2:
            clock.advance(5)
            under_way = [one for one in under_way if one[0] in held(sim)]
    clock.advance(QUARTER)
    sweep()
    assert held(sim) == {}
    assert stored(sim) == sorted(listed(api, sim))


def test_a_hold_whose_answer_was_lost_is_found_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    sim, transact = api.new_sim(), table.transact

    def answer_lost(ops: Any) -> None:
        monkeypatch.setattr(table, "transact", transact)
        transact(ops)
        raise Busy()

    monkeypatch.setattr(table, "transact", answer_lost)
    assert put(api, sim, "a", b"x").status == 200
    assert held(sim) == {}


def test_a_hold_given_up_on_is_void(api: Api, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WAIT_SECONDS", -1.0)
    sim, transact = api.new_sim(), table.transact

    def answer_lost(ops: Any) -> None:
        monkeypatch.setattr(table, "transact", transact)
        transact(ops)
        raise Busy()

    monkeypatch.setattr(table, "transact", answer_lost)
    assert put(api, sim, "a", b"x" * 8).status == 503
    assert [hold["bytes"] for hold in held(sim).values()] == [0]


def test_a_put_is_not_refused_by_a_ledger_and_a_row_of_two_moments(
    api: Api, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is read, the file becomes smaller, its row is read: together they look like more than there is."""
    sim, look = api.new_sim(), files._ledger
    for name, size in (("a", 8), ("b", 8), ("c", 4)):
        put(api, sim, name, b"x" * size)

    def shrink_after(which: int) -> None:
        left = [which]

        def looked(sim_id: str) -> Any:
            found = look(sim_id)
            left[0] -= 1
            if not left[0]:
                monkeypatch.setattr(files, "_ledger", look)
                assert put(api, sim, "a", b"y").status == 200
            return found

        monkeypatch.setattr(files, "_ledger", looked)

    for which in (1, 2):  # to hold, to commit
        shrink_after(which)
        assert put(api, sim, "a", b"z" * 8).status == 200
        assert total(api, sim) == {"count": 3, "bytes": 20}


def test_a_hold_that_is_too_small_does_not_pass_the_quota(api: Api, small: None) -> None:
    sim = api.new_sim()
    for name in ("a", "b"):
        put(api, sim, name, b"x" * 8)
    hold = files.hold(sim, "c", 1)
    with pytest.raises(Busy):
        files.commit(sim, "c", hold, 5, blobs.put(f"files/{sim}/c", b"x" * 5))
    assert total(api, sim) == {"count": 2, "bytes": 16}
    assert stored(sim) == ["a", "b"]
    assert held(sim) == {}


@pytest.mark.parametrize("replaced", [False, True])
def test_a_put_later_than_its_hold_is_not_committed_while_the_sweep_takes_its_bytes(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    sim, delete = api.new_sim(), blobs.delete
    if replaced:
        put(api, sim, "a", b"old")
    hold = files.hold(sim, "a", 3)
    version = blobs.put(f"files/{sim}/a", b"new")
    clock.advance(QUARTER)

    def commit_first(key: str, which: str) -> None:
        monkeypatch.setattr(blobs, "delete", delete)
        with pytest.raises(Busy):
            files.commit(sim, "a", hold, 3, version)
        delete(key, which)

    monkeypatch.setattr(blobs, "delete", commit_first)
    sweep()
    assert listed(api, sim) == ({"a": 3} if replaced else {})
    if replaced:
        assert api.get(f"/api/sims/{sim}/files/a").body == b"old"
    assert stored(sim) == sorted(listed(api, sim))
    assert held(sim) == {}


def test_the_sweep_takes_no_bytes_of_a_put_under_way_for_those_of_a_dead_one(api: Api, clock: Clock) -> None:
    sim = api.new_sim()
    files.hold(sim, "a", 3)  # of a put that died
    clock.advance(QUARTER - 60)
    hold = files.hold(sim, "a", 3)
    version = blobs.put(f"files/{sim}/a", b"new")
    clock.advance(60)
    sweep()
    files.commit(sim, "a", hold, 3, version)
    assert api.get(f"/api/sims/{sim}/files/a").body == b"new"
    sweep()
    assert held(sim) == {}
    assert stored(sim) == ["a"]


def test_the_sweep_takes_no_bytes_of_a_put_that_came_while_it_looked(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim, look = api.new_sim(), blobs.versions
    files.hold(sim, "a", 3)
    clock.advance(QUARTER)

    def put_first(prefix: str) -> Any:
        monkeypatch.setattr(blobs, "versions", look)
        assert put(api, sim, "a", b"new").status == 200
        return look(prefix)

    monkeypatch.setattr(blobs, "versions", put_first)
    sweep()
    assert api.get(f"/api/sims/{sim}/files/a").body == b"new"
    assert stored(sim) == ["a"]


def test_a_put_waits_for_room_that_another_holds(api: Api, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WAIT_SECONDS", 30.0)
    sim = api.new_sim()
    for name in ("a", "b"):
        put(api, sim, name, b"x" * 8)
    holding, seen = threading.Event(), threading.Event()
    commit, look = files._commit, files._ledger

    def fail_late(sim_id: str, name: str, *more: Any) -> Any:
        if name == "c":
            holding.set()
            assert seen.wait(20)
            raise OSError("broken")
        return commit(sim_id, name, *more)

    def watch(sim_id: str) -> Any:
        found = look(sim_id)
        if holding.is_set() and threading.current_thread() is threading.main_thread():
            seen.set()
        return found

    monkeypatch.setattr(files, "_commit", fail_late)
    monkeypatch.setattr(files, "_ledger", watch)
    with ThreadPoolExecutor(1) as pool:
        failing = pool.submit(put, api, sim, "c", b"x" * 4)
        assert holding.wait(20)
        assert put(api, sim, "d", b"x" * 4).status == 200
        assert failing.result().status == 500
    assert listed(api, sim) == {"a": 8, "b": 8, "d": 4}


# Races.


@pytest.mark.parametrize("seed", range(3))
def test_the_quota_holds_under_concurrent_puts(
    api: Api, small: None, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(files, "WAIT_SECONDS", 30.0)
    sim = api.new_sim()
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda n: put(api, sim, f"f{n}", b"x" * 5).status, range(8)))
    assert sorted(statuses) == [200] * 4 + [413] * 4
    assert total(api, sim) == {"count": 4, "bytes": 20}
    assert len(stored(sim)) == 4


def test_two_puts_of_one_name_leave_one_of_them_whole(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WAIT_SECONDS", 30.0)
    sim = api.new_sim()
    bodies = [bytes([65 + n]) * (n + 1) for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert {answer.status for answer in pool.map(lambda body: put(api, sim, "a", body), bodies)} == {200}
    kept = api.get(f"/api/sims/{sim}/files/a").body
    assert kept in bodies
    assert total(api, sim) == {"count": 1, "bytes": len(kept)}
    assert stored(sim) == ["a"]
    assert not (table.get(sim, "a#files") or {})["holds"]


# Lambda.


def test_on_lambda_a_download_is_a_short_lived_link(lambda_api: Api) -> None:
    sim = lambda_api.new_sim()
    put(lambda_api, sim, "a.html", b"<b>")
    answer = lambda_api.get(f"/api/sims/{sim}/files/a.html")
    assert answer.status == 302
    link = answer.headers["location"]
    assert f"/files/{sim}/a.html?" in link
    assert "response-content-disposition=attachment" in link
    assert "X-Amz-Expires=300" in link
    assert "versionId=" in link
    assert "test-token" not in link


@pytest.mark.parametrize("path", ["files/nothing", "step-timeline"])
def test_404_for_what_was_not_sent(api: Api, path: str) -> None:
    answer = api.get(f"/api/sims/{api.new_sim()}/{path}")
    assert answer.status == 404
    assert isinstance(answer.json()["detail"], str)
