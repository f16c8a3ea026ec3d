"""Attempts, overlap and pairs, read from nothing but a list of kernels."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from cascade.kernels import attempts, last_attempt, overlapped, pairs
from cascade.sample_log import SampleLog
from chalicelib.accelsim import Parser
from tests.e2e.shared import LOGS, lines_of


@dataclass(frozen=True)
class Row:
    launch_uid: int | None
    tot_sim_cycles: int | None
    name: str | None = "k"
    sim_insns: int | None = 10
    sim_cycles: int | None = None


def rows_of(lines: list[str]) -> list[Row]:
    parser = Parser()
    found = parser.feed(lines)[0] + parser.finish()
    return [Row(k["launch_uid"], k["tot_sim_cycles"], k["name"], k["sim_insns"], k["sim_cycles"]) for k in found]


def real(number: str) -> list[Row]:
    log: Path | None = next((log for log in LOGS if log.name.startswith(number)), None)
    if log is None:
        pytest.skip("the real logs are not beside this checkout")
    return rows_of(lines_of(log))


@pytest.mark.parametrize(
    ("kernels", "wanted"),
    [
        ([], []),
        ([(1, 100), (2, 200), (3, 300)], [1, 1, 1]),
        ([(1, 100), (2, 200), (1, 100), (2, 200)], [1, 1, 2, 2]),
        ([(1, 100), (1, 100)], [1, 2]),  # a total that did not fall: the uid tells
        ([(1, 100), (1, 900)], [1, 2]),
        ([(2, 100), (1, 200), (4, 300), (3, 400)], [1, 1, 1, 1]),  # kernels that overlap end in any order
        ([(2, 100), (1, 100)], [1, 1]),  # both in one cycle
        ([(1, 100), (2, 200), (3, 150)], [1, 1, 2]),  # the first block of the second attempt is torn
        ([(None, 100), (None, 200), (None, 50), (None, 60)], [1, 1, 2, 2]),
        ([(None, None), (None, None)], [1, 1]),
        ([(1, None), (2, None), (1, None), (2, None)], [1, 1, 2, 2]),
        ([(1, 100), (2, None), (3, 50)], [1, 1, 2]),  # a kernel without a total does not hide a fall
        ([(5, 500), (5, None), (6, 200)], [1, 2, 2]),  # nor does a new attempt fall once more
        ([(1, 9), (1, 9), (1, 9)], [1, 2, 3]),
        ([(1, 0), (2, 0)], [1, 1]),
    ],
)
def test_an_attempt_begins_where_the_total_falls_or_a_uid_comes_again(
    kernels: list[tuple[int | None, int | None]], wanted: list[int]
) -> None:
    rows = [Row(*kernel) for kernel in kernels]
    assert attempts(rows) == wanted
    assert list(last_attempt(rows)) == [row for row, n in zip(rows, wanted, strict=True) if n == wanted[-1]]


@pytest.mark.parametrize(
    ("kernels", "wanted"),
    [
        ([(1, 100, 100), (2, 150, 50)], [1, 1]),
        ([(1, 100, 100), (2, 160, 50)], [1, 1]),  # some simulators count the idle cycles between two kernels too
        ([(1, 100, 100), (1, 120, 120)], [1, 2]),  # a first kernel that took longer than all before it
        ([(None, 100, 100), (None, 120, 120)], [1, 2]),
        ([(1, 100, 100), (1, 200, 100)], [1, 1]),  # the process went on, whatever its uids
        ([(1, 100, 100), (2, 101, 1), (3, 102, 1)], [1, 1, 1]),
    ],
)
def test_a_total_that_rises_by_less_than_the_kernels_own_cycles_is_another_process(
    kernels: list[tuple[int | None, int, int]], wanted: list[int]
) -> None:
    assert attempts([Row(uid, total, sim_cycles=cycles) for uid, total, cycles in kernels]) == wanted


@pytest.mark.parametrize(
    ("uids", "wanted"),
    [
        ([1, 2, 3], [False, False, False]),
        ([2, 1, 3], [True, True, False]),
        ([3, 1, 2], [True, True, True]),
        ([1, None, 2], [False, False, False]),
        ([2, None, 1], [True, False, True]),
        ([None, None], [False, False]),
        ([1, 2, 3, 2, 1], [False, False, False, True, True]),  # two attempts, of which the second overlapped
    ],
)
def test_kernels_that_end_in_another_order_than_they_were_launched_overlapped(
    uids: list[int | None], wanted: list[bool]
) -> None:
    assert overlapped([Row(uid, None) for uid in uids]) == wanted


def test_a_block_in_which_nothing_was_executed_overlapped_the_one_before() -> None:
    kernels = [Row(1, 100), Row(2, 101, sim_insns=0), Row(3, 200)]
    assert overlapped(kernels) == [True, True, False]
    assert overlapped([Row(1, 100, sim_insns=0)]) == [False]


@pytest.mark.parametrize("seed", range(5))
def test_kernels_one_after_the_other_never_overlapped(seed: int) -> None:
    kernels = rows_of(list(SampleLog(kernels=6, seed=seed).lines()))
    assert attempts(kernels) == [1] * 6
    assert not any(overlapped(kernels))
    assert any(overlapped(rows_of(list(SampleLog(kernels=6, seed=seed, streams=3, concurrent=True).lines()))))


def test_real_logs_tell_their_attempts_and_overlap() -> None:
    assert attempts(real("56")) == [1, 1, 2, 2, 2, 2]
    assert overlapped(real("34")) == [True, True, True, True]
    assert not any(overlapped(real("03")))
    for log in LOGS:
        if not log.name.startswith("56"):
            assert set(attempts(rows_of(lines_of(log)))) <= {1}, log.name


def test_kernels_are_paired_by_name_and_turn() -> None:
    first = [Row(1, None, "a"), Row(2, None, "b"), Row(3, None, "a"), Row(4, None, None)]
    second = [Row(1, None, "b"), Row(2, None, "a"), Row(3, None, "c"), Row(4, None, "b"), Row(5, None, None)]
    found = [(a and a.launch_uid, b and b.launch_uid) for a, b in pairs(first, second)]
    assert found == [(1, 2), (2, 1), (3, None), (4, 5), (None, 3), (None, 4)]
    assert all(a is None or b is None or a.name == b.name for a, b in pairs(first, second))
