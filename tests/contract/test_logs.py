"""Log chunks and the kernels in them."""

import csv
import io
import itertools
import json
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from cascade.sample_log import SampleLog
from chalicelib import blobs, logs, table
from chalicelib.accelsim import Parser
from chalicelib.sweep import sweep
from tests.aws import Api
from tests.conftest import Clock
from tests.contract.counting import requests
from tests.contract.faults import at
from tests.contract.stored import versions
from tests.model.faults import Died, dies_at

MB = 1_000_000
LAST = 2**63 - 1
SAMPLE = SampleLog(kernels=5, seed=11)
LINES = list(SAMPLE.lines())
SIZE = 200
CHUNKS = [LINES[at : at + SIZE] for at in range(0, len(LINES), SIZE)]


def send(api: Api, sim: str, seq: int, lines: list[str]) -> None:
    assert api.post(f"/api/sims/{sim}/logs", {"seq": seq, "lines": lines}).status == 204


def send_packed(api: Api, sim: str, seq: int, lines: list[str]) -> None:
    """In the way that more than 6 MB get past API Gateway."""
    assert api.packed(f"/api/sims/{sim}/logs", {"seq": seq, "lines": lines}).status == 204


def read(api: Api, sim: str, query: str = "") -> Any:
    answer = api.get(f"/api/sims/{sim}/logs{query}")
    assert answer.status == 200
    return answer.json()


def kernels(api: Api, sim: str, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"/api/sims/{sim}/kernels?limit=1000{query}").json()["kernels"]
    return found


@cache
def parsed() -> list[dict[str, Any]]:
    """The kernels of the sample log as the parser alone finds them."""
    parser = Parser()
    found = parser.feed(LINES)[0] + parser.finish()
    return [{"index": index, **kernel} for index, kernel in enumerate(found)]


# Storing.


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""],
        ["", ""],
        ["a\nb", "c\rd", "\r\n"],
        ["\x00", "\x1b[31mred\x1b[0m", "\x07\x7f"],
        ["é", "\U0001f600", "‮", "\ufeff"],
        ["x" * MB],
        ['"', "\\", "</script>", "a,b;c"],
    ],
    ids=lambda lines: repr(lines)[:24],
)
def test_lines_come_back_as_they_were_sent(api: Api, lines: list[str]) -> None:
    sim = api.new_sim()
    send(api, sim, 0, lines)
    assert read(api, sim)["chunks"] == [{"seq": 0, "lines": lines}]
    assert api.get(f"/api/sims/{sim}").json()["log"] == {
        "chunks": 1,
        "lines": len(lines),
        "bytes": sum(len(line.encode()) for line in lines),
        "next_seq": 1,
        "missing": [],
    }


def test_a_lone_surrogate_comes_back_as_the_replacement_character(api: Api) -> None:
    sim = api.new_sim()
    body = '{"seq": 0, "lines": ["a\\ud800b", "\\udfff", "\\ud83d\\ude00"]}'
    assert api("POST", f"/api/sims/{sim}/logs", data=body, headers={"Content-Type": "application/json"}).status == 204
    assert read(api, sim)["chunks"][0]["lines"] == ["a\ufffdb", "\ufffd", "\U0001f600"]


def test_204_has_no_body(api: Api) -> None:
    answer = api.post(f"/api/sims/{api.new_sim()}/logs", {"seq": 0, "lines": ["x"]})
    assert (answer.status, answer.body) == (204, b"")


@pytest.mark.parametrize("lines", [None, "x", [1], [None], [["x"]], {}, [True]])
def test_422_for_what_are_no_lines(api: Api, lines: Any) -> None:
    assert api.post(f"/api/sims/{api.new_sim()}/logs", {"seq": 0, "lines": lines}).status == 422


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("large", [False, True])
def test_the_first_stored_chunk_of_a_seq_wins(api: Api, first: int, large: bool) -> None:
    sim = api.new_sim()
    lines = [f"{n * 7919 % 104729:x}" for n in range(20_000)] if large else ["first"]
    send(api, sim, first, lines)
    for other in (["second"], [], lines, [f"other {n * 31 % 77:x}" for n in range(20_000)]):
        send(api, sim, first, other)
    assert read(api, sim)["chunks"] == [{"seq": first, "lines": lines}]


@pytest.mark.in_process
def test_a_chunk_that_comes_second_leaves_no_bytes_behind(api: Api) -> None:
    sim = api.new_sim()
    for n in range(3):
        send(api, sim, 0, [f"{n} {i * 31 % 77:x} {i * 7919 % 104729:x}" for i in range(20_000)])
        assert len(versions("logs/")) == 1


def test_a_repeat_with_other_lines_is_not_parsed(api: Api) -> None:
    sim = api.new_sim()
    send(api, sim, 1, ["junk"])
    for seq, lines in enumerate(CHUNKS):
        send(api, sim, seq, lines)
    assert read(api, sim)["chunks"][1]["lines"] == ["junk"]
    assert kernels(api, sim) != parsed()


@pytest.mark.in_process
@pytest.mark.parametrize("large", [False, True])
def test_of_two_chunks_that_both_found_no_other_the_first_stored_wins(
    api: Api, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    sim, put = api.new_sim(), table.put
    first, second = ([f"{name} {n * 7919 % 104729:x}" for n in range(20_000 if large else 1)] for name in "ab")

    def put_second(*arguments: Any) -> None:
        monkeypatch.setattr(table, "put", put)
        send(api, sim, 0, first)
        put(*arguments)

    monkeypatch.setattr(table, "put", put_second)
    send(api, sim, 0, second)
    assert read(api, sim)["chunks"] == [{"seq": 0, "lines": first}]
    assert len(versions("logs/")) == large


@pytest.mark.in_process
def test_a_repeat_with_other_lines_parses_those_that_a_request_stored_before_it_died(api: Api) -> None:
    sim = api.new_sim()
    with suppress(Died), dies_at(2, "after"):  # the put of the chunk; what would move the cursor is next
        send(api, sim, 0, CHUNKS[0])
    assert table.get(sim, logs.chunk_key(0))
    assert table.get(sim, "a#log") is None
    send(api, sim, 0, ["junk"])
    for seq, lines in enumerate(CHUNKS[1:], 1):
        send(api, sim, seq, lines)
    assert read(api, sim)["chunks"][0]["lines"] == CHUNKS[0]
    assert kernels(api, sim) == parsed()


def test_a_lone_huge_seq_costs_nothing(api: Api) -> None:
    sim = api.new_sim()
    send(api, sim, LAST, ["last"])
    assert api.get(f"/api/sims/{sim}").json()["log"]["missing"] == [[0, LAST - 1]]
    assert api.get(f"/api/sims/{sim}").json()["log"]["next_seq"] == LAST + 1
    assert read(api, sim)["missing"] == [[0, LAST - 1]]
    send(api, sim, 0, ["first"])
    assert [chunk["seq"] for chunk in read(api, sim)["chunks"]] == [0, LAST]


def test_missing_ranges_are_inclusive(api: Api) -> None:
    sim = api.new_sim()
    for seq in (0, 1, 4, 6, 9):
        send(api, sim, seq, ["x"])
    assert read(api, sim)["missing"] == [[2, 3], [5, 5], [7, 8]]
    assert api.get(f"/api/sims/{sim}").json()["log"]["missing"] == [[2, 3], [5, 5], [7, 8]]


def end(api: Api, sim: str, state: str) -> None:
    api.post(f"/api/sims/{sim}/heartbeat", {"state": "running"})
    if state in ("succeeded", "failed"):
        api.post(f"/api/sims/{sim}/heartbeat", {"state": state})
    elif state == "cancelled":
        api.post(f"/api/sims/{sim}/cancel")


def send_all(api: Api, sim: str, state: str) -> None:
    """Send the sample log to a sim whose state is `state` and stays so."""
    for seq, lines in enumerate(CHUNKS):
        send(api, sim, seq, lines)
    assert kernels(api, sim) == parsed()
    assert api.get(f"/api/sims/{sim}").json()["state"] == state


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_chunks_are_taken_after_the_end(api: Api, state: str) -> None:
    sim = api.new_sim()
    end(api, sim, state)
    send_all(api, sim, state)


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "lost"])
def test_chunks_are_taken_long_after_the_end_and_by_lost_sims(api: Api, clock: Clock, state: str) -> None:
    sim = api.new_sim()
    end(api, sim, state)
    clock.advance(1000)
    sweep()
    send_all(api, sim, state)


def test_chunks_are_no_sign_of_life(api: Api, clock: Clock) -> None:
    sim = api.new_sim()
    api.post(f"/api/sims/{sim}/heartbeat", {"state": "running"})
    clock.advance(61)
    send(api, sim, 0, ["x"])
    assert api.get(f"/api/sims/{sim}").json()["state"] == "lost"


# Requests.


@pytest.mark.in_process
def test_an_in_order_chunk_is_three_requests_with_a_kernel_or_without(api: Api) -> None:
    sim = api.new_sim()
    found = 0
    for seq, lines in enumerate(CHUNKS):
        before = table.get(sim, "a#log") or {}
        with requests() as seen:
            send(api, sim, seq, lines)
        finished = (table.get(sim, "a#log") or {}).get("kernels", 0) - before.get("kernels", 0)
        found += finished
        assert seen == {"Query": 1, "PutItem": 1, "TransactWriteItems" if finished else "UpdateItem": 1}
    assert found >= 4


@pytest.mark.in_process
def test_a_large_chunk_costs_one_object_more_and_is_not_read_again(api: Api) -> None:
    sim = api.new_sim()
    for seq in range(3):
        with requests() as seen:
            send(api, sim, seq, [f"{n * 7919 % 104729:x}" for n in range(20_000)])
        assert seen == {"Query": 1, "PutObject": 1, "PutItem": 1, "UpdateItem": 1}


@pytest.mark.in_process
@pytest.mark.parametrize("when", ["before it is stored", "before it is parsed"])
def test_a_chunk_that_comes_while_the_one_before_it_is_under_way_is_parsed(
    api: Api, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    where = (logs, "_store") if when == "before it is stored" else (logs, "_Run")
    original = getattr(*where)
    sim, sent = api.new_sim(), set[int]()

    def meanwhile(*arguments: Any, **named: Any) -> Any:
        seq = max(sent)
        if seq + 1 < len(CHUNKS) and seq % 2 == 0:
            sent.add(seq + 1)
            send(api, sim, seq + 1, CHUNKS[seq + 1])
        return original(*arguments, **named)

    monkeypatch.setattr(*where, meanwhile)
    for seq in range(0, len(CHUNKS), 2):
        sent.add(seq)
        send(api, sim, seq, CHUNKS[seq])
        log = table.get(sim, "a#log")
        assert log is not None
        assert log["next_seq"] == len(sent) == max(sent) + 1
    assert kernels(api, sim) == parsed()


@pytest.mark.in_process
def test_a_move_of_the_cursor_says_what_changed_and_no_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = api.new_sim()
    update, said = table.update, list[set[str]]()

    def noted(pk: str, sk: str, expression: str, values: Any, *more: Any, **named: Any) -> Any:
        said.append({name.removeprefix(":") for name in values if not name.startswith(":was_")})
        return update(pk, sk, expression, values, *more, **named)

    monkeypatch.setattr(table, "update", noted)
    for seq, lines in enumerate((["a"], ["bb", "cc"], [], ["kernel_name = k"])):
        send(api, sim, seq, lines)
    assert {"next_seq", "line", "state", "kernels", "tail"} < said[0]
    assert said[1:] == [
        {"next_seq", "chunks", "lines", "bytes"},
        {"next_seq", "chunks"},
        {"next_seq", "chunks", "lines", "bytes", "state"},
    ]
    log = table.get(sim, "a#log")
    assert log is not None
    assert [log[name] for name in ("next_seq", "line", "kernels", "tail", "chunks", "lines", "bytes")] == [
        4,
        0,
        0,
        0,
        4,
        4,
        20,
    ]


# Reading.


def test_pages_follow_each_other(api: Api) -> None:
    sim = api.new_sim()
    for seq in range(25):
        send(api, sim, seq, [f"line {seq}"])
    page = read(api, sim, "?limit=10")
    assert [chunk["seq"] for chunk in page["chunks"]] == list(range(10))
    assert page["next_seq"] == 10
    page = read(api, sim, "?from_seq=20&limit=10")
    assert [chunk["seq"] for chunk in page["chunks"]] == list(range(20, 25))
    assert page["next_seq"] == 25
    assert read(api, sim, "?from_seq=25") == {"chunks": [], "next_seq": 25, "missing": []}


@pytest.mark.parametrize(
    ("query", "status"), [("limit=0", 422), ("limit=1", 200), ("limit=1000", 200), ("limit=1001", 422)]
)
def test_both_ends_of_limit(api: Api, query: str, status: int) -> None:
    assert api.get(f"/api/sims/{api.new_sim()}/logs?{query}").status == status


@pytest.mark.parametrize(("seq", "status"), [(-1, 422), (0, 200), (LAST, 200), (LAST + 1, 200), (LAST + 2, 422)])
def test_both_ends_of_from_seq(api: Api, seq: int, status: int) -> None:
    assert api.get(f"/api/sims/{api.new_sim()}/logs?from_seq={seq}").status == status


def test_the_last_seq_is_followed_like_any_other(api: Api) -> None:
    sim = api.new_sim()
    send(api, sim, LAST, ["the end"])
    found = read(api, sim, f"?from_seq={LAST}")
    assert found["chunks"] == [{"seq": LAST, "lines": ["the end"]}]
    assert read(api, sim, f"?from_seq={found['next_seq']}") == {"chunks": [], "next_seq": LAST + 1, "missing": []}


def test_a_page_stays_under_5_mb_but_holds_a_chunk(api: Api) -> None:
    sim = api.new_sim()
    for seq in range(8):
        send(api, sim, seq, ["x" * 100] * 10_000)
    send_packed(api, sim, 8, ["y" * 6 * MB])
    seqs, at = [], 0
    while at < 9:
        answer = api.get(f"/api/sims/{sim}/logs?from_seq={at}&limit=1000")
        page = answer.json()
        assert len(answer.body) < 5 * MB or [chunk["seq"] for chunk in page["chunks"]] == [8]
        seqs += [chunk["seq"] for chunk in page["chunks"]]
        at = page["next_seq"]
    assert seqs == list(range(9))


@pytest.mark.parametrize(
    ("count", "lines"), [(1, ["e"]), (2, ["d", "e"]), (3, ["c", "d", "e"]), (99, ["a", "b", "c", "d", "e"])]
)
def test_tail_gives_the_last_lines(api: Api, count: int, lines: list[str]) -> None:
    sim = api.new_sim()
    for seq, chunk in enumerate((["a", "b"], [], ["c"], ["d", "e"])):
        send(api, sim, seq, chunk)
    page = read(api, sim, f"?tail={count}")
    assert [line for chunk in page["chunks"] for line in chunk["lines"]] == lines
    assert page["next_seq"] == 4


@pytest.mark.parametrize(("count", "status"), [(0, 422), (1, 200), (10_000, 200), (10_001, 422)])
def test_both_ends_of_tail(api: Api, count: int, status: int) -> None:
    assert api.get(f"/api/sims/{api.new_sim()}/logs?tail={count}").status == status


def test_the_whole_log_as_text(api: Api) -> None:
    sim = api.new_sim()
    for seq in (0, 2, 1):
        send(api, sim, seq, [f"{seq} a", "", f"{seq} é"])
    answer = api.get(f"/api/sims/{sim}/logs", headers={"Accept": "text/plain"})
    assert answer.text == "0 a\n\n0 é\n1 a\n\n1 é\n2 a\n\n2 é\n"
    assert answer.headers["content-type"].startswith("text/plain")


def test_a_long_log_as_text_is_a_redirect_on_lambda(lambda_api: Api) -> None:
    sim = lambda_api.new_sim()
    send(lambda_api, sim, 0, ["x" * 99] * 49_000)
    assert lambda_api.get(f"/api/sims/{sim}/logs", headers={"Accept": "text/plain"}).status == 200
    send(lambda_api, sim, 1, ["x" * 99] * 49_000)
    answer = lambda_api.get(f"/api/sims/{sim}/logs", headers={"Accept": "text/plain"})
    assert answer.status == 302
    assert "exports/" in answer.headers["location"]
    assert "X-Amz-Expires=300" in answer.headers["location"]
    assert lambda_api.follow(answer) == (b"x" * 99 + b"\n") * 98_000


# Kernels.


def test_kernels_are_what_the_simulator_printed(api: Api) -> None:
    sim = api.new_sim()
    for seq, lines in enumerate(CHUNKS):
        send(api, sim, seq, lines)
    found = kernels(api, sim)
    assert found == parsed()
    assert len(found) == 5
    for index, kernel in enumerate(found):
        assert set(kernel) == {
            "index", "name", "launch_uid", "finished", "stream_id", "sim_cycles", "sim_insns", "ipc", "tot_sim_cycles",
            "tot_sim_insns", "tot_ipc", "occupancy", "l2_bw_gbps", "stats",
        }  # fmt: skip
        assert kernel["index"] == index
        assert kernel["finished"] is True
        assert kernel["stats"]
    totals = list(itertools.accumulate(kernel["sim_cycles"] for kernel in found))
    assert [kernel["tot_sim_cycles"] for kernel in found] == totals


@pytest.mark.parametrize("size", [*(pytest.param(n, marks=pytest.mark.in_process) for n in (1, 7)), 61, 200])  # time
def test_chunking_changes_nothing(api: Api, size: int) -> None:
    first, last = 0, len(LINES)
    if size == 1:  # from the last rows of the first kernel to the first ones of the second
        end = next(at for at, line in enumerate(LINES) if line.startswith("gpgpu_simulation_time"))
        first, last = end - 100, end + 150
    cuts = [0, *range(first, last, size), last, len(LINES)]
    sim, other = api.new_sim(), api.new_sim()
    send(api, sim, 0, LINES)
    for seq, (first, last) in enumerate(itertools.pairwise(sorted(set(cuts)))):
        send(api, other, seq, LINES[first:last])
    assert kernels(api, sim) == kernels(api, other) != []


@pytest.mark.parametrize("seed", range(5))
def test_order_and_threads_change_nothing(api: Api, seed: int) -> None:
    sim = api.new_sim()
    order = [*range(len(CHUNKS)), *range(0, len(CHUNKS), 3)]
    random.Random(seed).shuffle(order)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seq: send(api, sim, seq, CHUNKS[seq]), order))
    assert kernels(api, sim) == parsed()
    assert api.get(f"/api/sims/{sim}").json()["kernels"] == 5


@pytest.mark.in_process
@pytest.mark.parametrize("late", range(len(CHUNKS)))
def test_a_request_that_was_overtaken_moves_nothing_back(api: Api, monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    """Its chunk is parsed by a repeat, and all that follow it, before it gets to writing what it found."""
    sim, commit = api.new_sim(), logs._Run.commit
    for seq, lines in enumerate(CHUNKS[:late]):
        send(api, sim, seq, lines)

    def overtaken(*arguments: Any) -> bool:
        monkeypatch.setattr(logs._Run, "commit", commit)
        for seq, lines in enumerate(CHUNKS[late:], late):
            send(api, sim, seq, lines)
        return commit(*arguments)

    monkeypatch.setattr(logs._Run, "commit", overtaken)
    send(api, sim, late, CHUNKS[late])
    assert kernels(api, sim) == parsed()
    log = api.get(f"/api/sims/{sim}").json()["log"]
    assert (log["chunks"], log["lines"], log["next_seq"]) == (len(CHUNKS), len(LINES), len(CHUNKS))
    assert (table.get(sim, "a#log") or {})["next_seq"] == len(CHUNKS)


@pytest.mark.in_process
@pytest.mark.parametrize("early", range(1, len(CHUNKS)))
def test_a_chunk_that_comes_while_the_one_before_it_is_parsed_is_parsed_behind_it(
    api: Api, monkeypatch: pytest.MonkeyPatch, early: int
) -> None:
    """Its sender parses both, and is overtaken by the sender of the one before, who began before this one came."""
    sim, other, commit = api.new_sim(), api.new_sim(), logs._Run.commit
    for seq, lines in enumerate(CHUNKS[: early - 1]):
        send(api, sim, seq, lines)
    moved = []

    def mover(*first: Any) -> bool:
        def overtaken(*second: Any) -> bool:
            monkeypatch.setattr(logs._Run, "commit", commit)
            moved.append(commit(*first))
            return commit(*second)

        monkeypatch.setattr(logs._Run, "commit", overtaken)
        send(api, sim, early, CHUNKS[early])
        return moved[0]

    monkeypatch.setattr(logs._Run, "commit", mover)
    send(api, sim, early - 1, CHUNKS[early - 1])
    assert len(moved) == 1
    for seq, lines in enumerate(CHUNKS[: early + 1]):
        send(api, other, seq, lines)
    assert kernels(api, sim) == kernels(api, other)
    assert (table.get(sim, "a#log") or {})["next_seq"] == early + 1


def test_a_gap_holds_parsing_back(api: Api) -> None:
    sim = api.new_sim()
    for seq, lines in enumerate(CHUNKS):
        if seq != 2:
            send(api, sim, seq, lines)
    held = kernels(api, sim)
    assert held == parsed()[: len(held)]
    assert len(held) < 5
    send(api, sim, 2, CHUNKS[2])
    assert kernels(api, sim) == parsed()


@pytest.mark.parametrize("hole", range(len(CHUNKS) - 1))
def test_a_gap_of_a_finished_sim_tears_its_block_and_no_other(api: Api, clock: Clock, hole: int) -> None:
    sim = api.new_sim()
    for seq, lines in enumerate(CHUNKS):
        if seq != hole:
            send(api, sim, seq, lines)
    api.post(f"/api/sims/{sim}/heartbeat", {"state": "succeeded"})
    before = kernels(api, sim)
    sweep()
    clock.advance(59)
    sweep()
    assert kernels(api, sim) == before
    clock.advance(2)
    sweep()
    key = lambda kernel: {name: value for name, value in kernel.items() if name != "index"}  # noqa: E731
    every, found = [key(k) for k in parsed()], [key(k) for k in kernels(api, sim)]
    assert all(kernel in every or kernel["name"] is None or kernel["launch_uid"] is None for kernel in found)
    cycles = [kernel["tot_sim_cycles"] for kernel in found]
    assert cycles == [kernel["tot_sim_cycles"] for kernel in every if kernel["tot_sim_cycles"] in cycles]
    assert len(found) >= len(every) - 2
    # What fills the gap afterwards is stored and read back, and changes no kernel.
    send(api, sim, hole, CHUNKS[hole])
    sweep()
    assert [key(k) for k in kernels(api, sim)] == found
    assert [chunk["lines"] for chunk in read(api, sim, "?limit=1000")["chunks"]] == CHUNKS
    assert api.get(f"/api/sims/{sim}").json()["log"]["missing"] == []


def test_a_block_whose_first_row_is_in_the_gap_is_left_out(api: Api, clock: Clock) -> None:
    """The rest of it would be a kernel by the looks."""
    sim = api.new_sim()
    _, name, *_ = (at for at, line in enumerate(LINES) if line.startswith("kernel_name = "))
    send(api, sim, 0, LINES[:name])
    send(api, sim, 2, LINES[name + 1 :])
    api.post(f"/api/sims/{sim}/heartbeat", {"state": "succeeded"})
    clock.advance(61)
    sweep()
    totals = [kernel["tot_sim_cycles"] for kernel in parsed()]
    assert [kernel["tot_sim_cycles"] for kernel in kernels(api, sim)] == totals[:1] + totals[2:]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 6))
@pytest.mark.parametrize("retried", [True, False])
def test_a_request_that_died_is_made_good_by_its_retry_or_the_next(
    api: Api, clock: Clock, call: int, when: Any, retried: bool
) -> None:
    sim = api.new_sim()
    died_at = next(
        seq for seq, lines in enumerate(CHUNKS) if seq and any("gpu_tot_sim_cycle" in line for line in lines)
    )
    for seq, lines in enumerate(CHUNKS):
        if seq == died_at:
            with suppress(Died), dies_at(call, when):
                send(api, sim, seq, lines)
            stored = table.get(sim, logs.chunk_key(seq)) is not None
            if not (retried or stored):
                return
            if not retried:
                continue
        send(api, sim, seq, lines)
    api.post(f"/api/sims/{sim}/heartbeat", {"state": "succeeded"})
    sweep()
    assert kernels(api, sim) == parsed()
    assert api.get(f"/api/sims/{sim}").json()["log"]["lines"] == len(LINES)


@pytest.mark.in_process
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 12))
def test_a_catch_up_that_died_is_finished_by_the_next(api: Api, call: int, when: Any) -> None:
    sim = api.new_sim()
    for seq, lines in enumerate(CHUNKS):
        if seq:
            send(api, sim, seq, lines)
    with suppress(Died), dies_at(call, when):
        send(api, sim, 0, CHUNKS[0])
    send(api, sim, 0, CHUNKS[0])
    send(api, sim, len(CHUNKS), [])
    assert kernels(api, sim) == parsed()


@pytest.mark.in_process
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 12))
def test_a_request_that_died_within_a_chunk_of_many_kernels_is_made_good_by_its_retry(
    api: Api, monkeypatch: pytest.MonkeyPatch, call: int, when: Any
) -> None:
    monkeypatch.setattr(logs, "KERNELS_PER_COMMIT", 2)
    sim = api.new_sim()
    with suppress(Died), dies_at(call, when):
        send(api, sim, 0, LINES)
    send(api, sim, 0, LINES)
    assert kernels(api, sim) == parsed()
    assert api.get(f"/api/sims/{sim}").json()["log"]["lines"] == len(LINES)


@pytest.mark.in_process
@pytest.mark.parametrize("call", range(1, 7))
def test_a_catch_up_goes_on_where_the_sdk_sent_a_call_twice(api: Api, call: int) -> None:
    """A move of the cursor that meets its own first try was made, and nobody else will read what waits behind it."""
    sim = api.new_sim()
    for seq in range(1, len(CHUNKS)):
        send(api, sim, seq, CHUNKS[seq])
    with at(call, "sent twice") as reached:
        send(api, sim, 0, CHUNKS[0])
    assert reached
    assert (table.get(sim, "a#log") or {})["next_seq"] == len(CHUNKS)
    assert kernels(api, sim) == parsed()


@pytest.mark.in_process
def test_a_move_that_is_made_again_stores_its_kernels_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "ITEM_MAX_BYTES", 10)
    sim = api.new_sim()
    move = table.update_op

    def meanwhile(*arguments: Any, **options: Any) -> dict[str, Any]:
        monkeypatch.setattr(table, "update_op", move)
        table.update(sim, "a#log", "SET ahead = :seq", {":seq": len(CHUNKS)})
        return move(*arguments, **options)

    monkeypatch.setattr(table, "update_op", meanwhile)
    for seq, lines in enumerate(CHUNKS):
        send(api, sim, seq, lines)
    assert table.update_op is move
    assert len(versions(f"kernels/{sim}/")) == len(list(table.query(sim, "k#", "k#~")))


def test_pages_of_kernels_follow_each_other(api: Api) -> None:
    sim = api.new_sim()
    for seq, lines in enumerate(CHUNKS):
        send(api, sim, seq, lines)
    for limit in (1, 2, 4, 5, 6):
        seen: list[Any] = []
        cursor = ""
        while cursor is not None:
            page = api.get(f"/api/sims/{sim}/kernels?limit={limit}{cursor and '&cursor=' + cursor}").json()
            assert len(page["kernels"]) <= limit
            seen += page["kernels"]
            cursor = page["next_cursor"]
        assert seen == kernels(api, sim)


@pytest.mark.parametrize("cursor", ["x", "1", "1.", ".1", "1.2.3", "-1.0", "1.%200", "0.0%0A", "9" * 30 + ".0"])
def test_422_for_a_cursor_nobody_gave(api: Api, cursor: str) -> None:
    assert api.get(f"/api/sims/{api.new_sim()}/kernels?cursor={cursor}").status == 422


def test_stats_can_be_left_out(api: Api) -> None:
    sim = api.new_sim()
    send(api, sim, 0, LINES)
    slim = kernels(api, sim, "&stats=false")
    assert [kernel.pop("stats") for kernel in slim] == [None] * 5
    assert slim == [{name: value for name, value in kernel.items() if name != "stats"} for kernel in kernels(api, sim)]


def test_the_last_block_is_shown_before_anything_follows_it(api: Api) -> None:
    sim = api.new_sim()
    end = max(n for n, line in enumerate(LINES) if line.startswith("gpgpu_silicon_slowdown"))
    send(api, sim, 0, LINES[: end + 1])
    assert len(kernels(api, sim)) == 5
    assert api.get(f"/api/sims/{sim}").json()["kernels"] == 5


def test_thousands_of_kernels_come_in_pages_under_6_mb(lambda_api: Api) -> None:
    sim = lambda_api.new_sim()
    sample = SampleLog(kernels=300, seed=5)
    send_packed(lambda_api, sim, 0, list(sample.lines()))
    count, cursor = 0, ""
    while cursor is not None:
        answer = lambda_api.get(f"/api/sims/{sim}/kernels?limit=1000{cursor and '&cursor=' + cursor}")
        assert answer.status == 200
        assert len(json.dumps(answer.text)) < 6 * MB
        count += len(answer.json()["kernels"])
        cursor = answer.json()["next_cursor"]
    assert count == 300


def test_csv_has_a_row_a_kernel_and_a_column_a_statistic(api: Api) -> None:
    sim = api.new_sim()
    send(api, sim, 0, LINES)
    answer = api.get(f"/api/sims/{sim}/kernels.csv")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    for row, kernel in zip(rows, kernels(api, sim), strict=True):
        stats = kernel.pop("stats")
        for name, value in (kernel | stats).items():
            assert row[name] == ("" if value is None else str(value).lower() if isinstance(value, bool) else str(value))


def test_a_large_csv_is_a_redirect_on_lambda(lambda_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from chalicelib import settings

    sim = lambda_api.new_sim()
    send(lambda_api, sim, 0, LINES)
    text = lambda_api.get(f"/api/sims/{sim}/kernels.csv")
    assert text.status == 200
    monkeypatch.setattr(settings, "RESPONSE_MAX_BYTES", len(text.body) - 1)
    assert lambda_api.get(f"/api/sims/{sim}/kernels.csv").status == 302
    ((name, version),) = versions("exports/")
    assert blobs.get(name, version) == text.body


def test_an_empty_log_has_no_kernels(api: Api) -> None:
    sim = api.new_sim()
    assert api.get(f"/api/sims/{sim}/kernels").json() == {"kernels": [], "next_cursor": None}
    assert api.get(f"/api/sims/{sim}/kernels.csv").text.startswith("index,name,launch_uid,finished")
    assert read(api, sim) == {"chunks": [], "next_seq": 0, "missing": []}
