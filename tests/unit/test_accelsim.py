"""The log parser: exact on real logs and on made-up ones, in pieces of any size, whatever else is in the log."""

import itertools
import json
import math
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cascade.sample_log import SampleLog, Version
from chalicelib import accelsim
from chalicelib.accelsim import Kernel, Parser
from tests.e2e.shared import LOGS, expected, found, lines_of

BREAK = "GPGPU-Sim: ** break due to reaching the maximum cycles (or instructions) **"
TIME = (
    "gpgpu_simulation_time = 0 days, 0 hrs, 1 min, 9 sec (69 sec)",
    "gpgpu_simulation_rate = 22186 (inst/sec)",
    "gpgpu_simulation_rate = 935 (cycle/sec)",
    "gpgpu_silicon_slowdown = 1210695x",
)
HEADLINE = (
    "kernel_stream_id = 7",
    "gpu_sim_cycle = 38790",
    "gpu_sim_insn = 95092736",
    "gpu_ipc =    2451.4756",
    "gpu_tot_sim_cycle = 70821",
    "gpu_tot_sim_insn = 140181856",
    "gpu_tot_ipc =    1979.3826",
    "gpu_occupancy = 95.6263% ",
    "L2_BW  =     418.4525 GB/Sec",
)
WHOLE = {
    "name": "_Z1kPf",
    "launch_uid": 12,
    "finished": True,
    "stream_id": 7,
    "sim_cycles": 38790,
    "sim_insns": 95092736,
    "ipc": 2451.4756,
    "tot_sim_cycles": 70821,
    "tot_sim_insns": 140181856,
    "tot_ipc": 1979.3826,
    "occupancy": 95.6263,
    "l2_bw_gbps": 418.4525,
    "stats": {
        "gpgpu_simulation_time": 69,
        "gpgpu_simulation_rate (inst/sec)": 22186,
        "gpgpu_simulation_rate (cycle/sec)": 935,
        "gpgpu_silicon_slowdown": 1210695,
    },
}


def launch(uid: int = 12, name: str = "_Z1kPf", stream: int = 7) -> str:
    return f"launching kernel name: {name} uid: {uid} cuda_stream_id: {stream}"


def block(
    uids: Sequence[int] = (12,),
    name: str = "_Z1kPf ",
    ended: int | None = 12,
    rows: Iterable[str] = HEADLINE,
    time: Iterable[str] = TIME,
) -> list[str]:
    """A block, after the line that tells which kernel ended."""
    return [
        *([f"Destroy streams for kernel {ended}: size 0"] if ended is not None else []),
        f"kernel_name = {name}",
        f"kernel_launch_uid = {''.join(f'{uid} ' for uid in uids)}",
        *rows,
        *time,
    ]


def parse(lines: Sequence[str]) -> list[Kernel]:
    parser = Parser()
    kernels, read = parser.feed(lines)
    assert read == len(lines)
    return kernels + parser.finish()


def one(lines: Sequence[str]) -> Kernel:
    (kernel,) = parse(lines)
    return kernel


def parse_in_pieces(lines: Sequence[str], sizes: Iterable[int], keep: int = 1) -> tuple[list[Kernel], Parser]:
    """Feed pieces of these sizes; after every `keep` of them another parser goes on from the state."""
    parser, kernels, start = Parser(), [], 0
    for count, size in enumerate(sizes, 1):
        piece = lines[start : start + size]
        start += size
        got, read = parser.feed(piece)
        assert read == len(piece)
        kernels += got
        if count % keep == 0:
            parser = Parser.from_state(parser.to_state())
        if start >= len(lines):
            break
    return kernels + parser.finish(), parser


# Real logs.

real = pytest.mark.skipif(not LOGS, reason="the real logs are not beside this checkout")
each_log = pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem[:24])


@real
@each_log
def test_real_log_whole(log: Path) -> None:
    kernels = parse(lines_of(log))
    assert found([dict(kernel) for kernel in kernels]) == expected(log)


@real
@pytest.mark.parametrize("size", [1, 7, 200])
@each_log
def test_real_log_in_chunks(log: Path, size: int) -> None:
    lines = lines_of(log)
    keep = max(1, len(lines) // size // 1_000)  # a state a line would take a minute for the longest logs
    kernels, parser = parse_in_pieces(lines, itertools.repeat(size), keep)
    whole = Parser()
    assert kernels == whole.feed(lines)[0] + whole.finish()
    assert parser.outcome == whole.outcome


@real
@each_log
def test_real_log_needs_little_state(log: Path) -> None:
    parser = Parser()
    for start in range(0, len(lines := lines_of(log)), 211):
        parser.feed(lines[start : start + 211])
        assert len(zlib.compress(parser.to_state().encode(), 4)) < 16 * 1024


@real
@each_log
def test_real_outcome(log: Path) -> None:
    parser = Parser()
    parser.feed(lines_of(log))
    wanted = json.loads((log.parents[1] / "expected" / f"{log.stem}.json").read_text())
    outcome = parser.outcome
    assert outcome.exit_detected == wanted["exit_detected"]
    assert bool(outcome.limit) == wanted["break_limit"]
    assert bool(outcome.deadlock) == wanted["deadlock"]


# A block.


def test_a_block_is_read_whole() -> None:
    assert one([launch(), *block()]) == WHOLE


def test_every_other_number_is_a_statistic() -> None:
    rows = (
        "gpu_stall_icnt2sh    = 16",
        "gpu_total_sim_rate=186823",
        "partiton_level_parallism_total  =       2.5000",
        "\tTotal_core_cache_stats_breakdown[GLOBAL_ACC_R][HIT] = 4",
        "\tTotal_core_cache_stats_breakdown[Stream_94469360496112][L1_WR_ALLOC_R][MSHR_HIT] = 5",
        "gpgpu_n_load_insn  = 6",
        "gpgpu_stall_shd_mem[gl_mem][data_port_stall] = 7",
        "traffic_breakdown_coretomem[GLOBAL_ACC_W] = 40 {40:1,}",
        "maxmflatency = 233 ",
        "min_bank_accesses = 0!",
        "average row locality = 48/5 = 9.600000",
        "total dram reads = 8",
        "Row_Bus_Util =  0.250000 ",
        "icnt_total_pkts_mem_to_simt=9",
        "Injected packet rate average = 0.066192 (1 samples)",
        "L2_BW  calculated_by_classic=     418.4525 GB/Sec",
    )
    assert one([launch(), *block(rows=(*HEADLINE, *rows))])["stats"] == WHOLE["stats"] | {
        "gpu_stall_icnt2sh": 16,
        "gpu_total_sim_rate": 186823,
        "partiton_level_parallism_total": 2.5,
        "Total_core_cache_stats_breakdown[GLOBAL_ACC_R][HIT]": 4,
        "Total_core_cache_stats_breakdown[Stream_94469360496112][L1_WR_ALLOC_R][MSHR_HIT]": 5,
        "gpgpu_n_load_insn": 6,
        "gpgpu_stall_shd_mem[gl_mem][data_port_stall]": 7,
        "traffic_breakdown_coretomem[GLOBAL_ACC_W]": 40,
        "maxmflatency": 233,
        "min_bank_accesses": 0,
        "average row locality": 9.6,
        "total dram reads": 8,
        "Row_Bus_Util": 0.25,
        "icnt_total_pkts_mem_to_simt": 9,
        "Injected packet rate average": 0.066192,
        "L2_BW  calculated_by_classic": 418.4525,
    }


@pytest.mark.parametrize(
    "line",
    [
        "\tL1D_cache_core[0]: Access = 1, Miss = 1, Miss_rate = 1.000",
        "n_cmd=19420 n_nop=19420 n_act=0",
        "mrqq: max=0 avg=0",
        "In Dram Latency Queue (total = 0): ",
        "dram_util_bins: 0 0 0 0",
        "total accesses: 0",
        "gpgpu_clock = fast",
        "gpu_n = 12 34",
        "gpu_n = 12, 34",
        "gpu_n = 12.34.56",
        "gpu_n = 0x12",
        "gpu_n = ",
        "= 5",
        "gpu_n 5",
        "mf: uid=3 = 4 = 5",
        "  ] = 5",
        "",
    ],
)
def test_what_is_no_statistic(line: str) -> None:
    assert one([launch(), *block(rows=(*HEADLINE, line))]) == WHOLE


def test_the_last_of_a_name_counts() -> None:
    assert one(block(rows=(*HEADLINE, "a = 1", "b = 2", "a = 3")))["stats"]["a"] == 3


def test_of_the_memory_partitions_the_first_is_read() -> None:
    rows = ["bwutil = 0.1 "]
    for partition in range(12):
        rows += [f"Memory Partition {partition}: ", f"Row_Buffer_Locality = 0.{partition + 1}", "total_CMD = 5 "]
    rows += ["========= L2 cache stats =========", "L2_total_cache_accesses = 6", "icnt_total_pkts_simt_to_mem=7"]
    stats = one(block(rows=(*HEADLINE, *rows)))["stats"]
    assert stats == WHOLE["stats"] | {
        "bwutil": 0.1,
        "Row_Buffer_Locality": 0.1,
        "total_CMD": 5,
        "L2_total_cache_accesses": 6,
        "icnt_total_pkts_simt_to_mem": 7,
    }


@pytest.mark.parametrize("torn", range(3))
def test_what_follows_the_partitions_is_read_also_when_a_heading_is_torn(torn: int) -> None:
    after = [
        "========= L2 cache stats =========",
        "L2_cache_bank[0]: Access = 0, Miss = 0",
        "L2_total_cache_misses = 6",
    ]
    after[torn] = "x" + after[torn]
    rows = (*HEADLINE, "Memory Partition 0: ", "Memory Partition 1: ", "Read = 1 ", *after, "icnt_total_pkts_x=7")
    stats = one(block(rows=rows))["stats"]
    assert "Read" not in stats
    assert stats.get("L2_total_cache_misses") == (6 if torn < 2 else None)
    assert stats["icnt_total_pkts_x"] == 7


# Numbers.


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-1", -1),
        ("-2147483648", -(2**31)),
        ("4294967295", 2**32 - 1),
        ("18446744073709551615", 2**64 - 1),
        ("0.0000", 0.0),
        ("-0.5", -0.5),
        ("1e+06", 1e6),
        ("1.5E-3", 0.0015),
        ("nan", None),
        ("-nan", None),
        ("Nan", None),
        ("inf", None),
        ("-inf", None),
        ("1e999", None),
        ("9" * 38, 10**38 - 1),
    ],
)
def test_a_number_is_exact_or_null(text: str, number: int | float | None) -> None:
    kernel = one(block(rows=(*HEADLINE, f"gpu_n = {text}")))
    assert kernel["stats"]["gpu_n"] == number
    assert type(kernel["stats"]["gpu_n"]) is type(number)


@pytest.mark.parametrize("text", ["9" * 39, "1" * 40, "1." + "1" * 39, "1" * 1_000_000])
def test_a_number_that_storage_cannot_hold_is_left_out(text: str) -> None:
    assert one([launch(), *block(rows=(*HEADLINE, f"gpu_n = {text}"))]) == WHOLE


@pytest.mark.parametrize(
    ("text", "count"),
    [("1e+06", 1_000_000), ("38790.0000", 38790), ("1.5", None), ("1e40", None), ("nan", None), ("-7", -7)],
)
def test_a_count_is_an_integer_or_null(text: str, count: int | None) -> None:
    names = ("gpu_sim_cycle", "gpu_sim_insn", "gpu_tot_sim_cycle", "gpu_tot_sim_insn")
    kernel = one(block(rows=[f"{name} = {text}" for name in names]))
    for value in (kernel["sim_cycles"], kernel["sim_insns"], kernel["tot_sim_cycles"], kernel["tot_sim_insns"]):
        assert value == count
        assert not isinstance(value, float)


@pytest.mark.parametrize("text", ["-nan% ", "-nan%", "nan", "-nan", "inf% "])
def test_no_occupancy_is_null(text: str) -> None:
    assert one(block(rows=("gpu_sim_cycle = 1", f"gpu_occupancy = {text}")))["occupancy"] is None


@pytest.mark.parametrize("row", ["gpu_sim_cycle=38790", "gpu_sim_cycle    =    38790", "\tgpu_sim_cycle = 38790 "])
def test_blanks_around_a_row_do_not_matter(row: str) -> None:
    assert one(block(rows=[row]))["sim_cycles"] == 38790


def test_a_block_without_a_row_has_null_for_it() -> None:
    for missing in range(1, len(HEADLINE)):
        rows = HEADLINE[:missing] + HEADLINE[missing + 1 :]
        kernel = one([launch(), *block(rows=rows)])
        differing = [key for key in WHOLE if kernel[key] != WHOLE[key]]  # type: ignore[literal-required]
        assert len(differing) == 1
        assert kernel[differing[0]] is None  # type: ignore[literal-required]


# Versions and forks.


@given(st.permutations(HEADLINE), st.integers(0, 9), st.booleans())
@settings(max_examples=50, deadline=None)
def test_rows_may_come_in_any_order(rows: list[str], at: int, uid_first: bool) -> None:
    head = ["kernel_launch_uid = 12 ", "kernel_name = _Z1kPf "]
    if not uid_first:  # the uid somewhere among the rows
        head, rows = [head[1]], [*rows[:at], head[0], *rows[at:]]
    assert one(["Destroy streams for kernel 12: size 0", *head, *rows, *TIME]) == WHOLE
    assert one([*head, *rows, *TIME]) == WHOLE


@pytest.mark.parametrize("time", [TIME[:3], TIME[:1], (TIME[0], TIME[1], TIME[2], "gpgpu_silicon_slowdown = Nan")])
def test_a_block_ends_with_the_rows_of_time_its_version_prints(time: tuple[str, ...]) -> None:
    kernel = one([launch(), *block(time=time), launch(13)])
    assert kernel["tot_sim_cycles"] == WHOLE["tot_sim_cycles"]
    assert kernel["stats"]["gpgpu_simulation_time"] == 69
    assert kernel["stats"].get("gpgpu_silicon_slowdown") is None


@pytest.mark.parametrize(
    "name",
    [
        "void gemm<float, 128, true>(float const*, int)",
        "k uid: 3",
        "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT",
        "größe<λ, 2>",
        "k = 5",
        "_Z" + "x" * 2_000,
    ],
)
def test_names_of_any_kind(name: str) -> None:
    assert one([launch(name=name), *block(name=f"{name} ")])["name"] == name
    assert one(block(name=name))["name"] == name
    push = f"GPGPU-Sim PTX: pushing kernel '{name}' to stream 0, gridDim= (1,1,1) blockDim = (1,1,1) "
    assert one([push, *block((1,), f"{name} ", None)])["name"] == name


def test_a_name_of_a_megabyte_is_cut() -> None:
    name = "ä" * 500_000
    assert one([launch(name=name), *block(name=f"{name} ")])["name"] == "ä" * (accelsim.MAX_NAME_BYTES // 2)


def test_without_uids_at_launch_names_go_by_the_order_of_loading() -> None:
    lines = ["-kernel name = a b", "-kernel name = c", *["launching kernel command : x"] * 2]
    lines += block((1, 2), "a b c ", 2) + block((), "", 1)
    assert [(kernel["launch_uid"], kernel["name"]) for kernel in parse(lines)] == [(2, "c"), (1, "a b")]


def test_the_kernel_that_ended_is_named_not_the_ones_issued() -> None:
    lines = [launch(1, "a", 8), launch(2, "b", 9), *block((1, 2), "a b ", 2), launch(4, "d", 9)]
    lines += [*block((4,), "d ", 1), launch(3, "c", 8), *block((), "", 4), *block((3,), "c ", 3)]
    assert [(kernel["launch_uid"], kernel["name"]) for kernel in parse(lines)] == [
        (2, "b"),
        (1, "a"),
        (4, "d"),
        (3, "c"),
    ]


def test_two_that_end_in_one_cycle_have_a_block_each() -> None:
    phantom = ("gpu_sim_cycle = 1", "gpu_sim_insn = 0", "gpu_ipc =       0.0000", "gpu_occupancy = -nan% ")
    lines = [launch(1, "a", 8), launch(2, "b", 9), *block((1, 2), "a b ", 1), *block((), "", 2, phantom)]
    assert [(kernel["launch_uid"], kernel["name"], kernel["sim_cycles"]) for kernel in parse(lines)] == [
        (1, "a", 38790),
        (2, "b", 1),
    ]


def test_destroyed_without_having_run_is_not_ended() -> None:
    """Some versions delete every second kernel that waits when the GPU is idle."""
    waiting = [f"Destroy streams for kernel {uid}: size 0" for uid in (3, 5, 7)]
    kernel = one([launch(1), *waiting, *block((1,), ended=1)])
    assert (kernel["launch_uid"], kernel["name"]) == (1, "_Z1kPf")
    kernel = one([launch(1), "Destroy streams for kernel 1: size 0", *waiting, *block((1,), ended=None)])
    assert (kernel["launch_uid"], kernel["name"]) == (1, "_Z1kPf")


def test_of_several_destroyed_the_stream_tells() -> None:
    lines = [launch(1, "a", 8), launch(2, "b", 7), "Destroy streams for kernel 1: size 0", *block((1, 2), "a b ", 2)]
    assert (one(lines)["launch_uid"], one(lines)["name"]) == (2, "b")


def test_what_the_log_does_not_say_is_null() -> None:
    overlapped = [launch(1, "a", 8), launch(2, "b", 9)]
    for uids, name in (((1, 2), "a b "), ((2,), "b "), ((), "")):
        kernel = one([*overlapped, *block(uids, name, None)])
        assert (kernel["launch_uid"], kernel["name"]) == (None, None)
    same = [launch(1, "a", 8), launch(2, "a", 9)]
    kernel = one([*same, *block((1, 2), "a a ", None)])
    assert (kernel["launch_uid"], kernel["name"]) == (None, "a")


def test_without_a_line_on_who_ended_a_serial_run_is_what_it_prints() -> None:
    lines = [launch(1, "a"), *block((1,), "a ", None), launch(2, "b"), *block((2,), "b ", None)]
    assert [(kernel["launch_uid"], kernel["name"]) for kernel in parse(lines)] == [(1, "a"), (2, "b")]


def test_a_power_report_is_no_kernel() -> None:
    report = ["kernel_name = _Z1kPf ", "kernel_launch_uid = 12 ", "gpu_avg_power = 25.5"]
    assert one([launch(), "Destroy streams for kernel 12: size 0", *report, *block(ended=None)]) == WHOLE
    assert parse([launch(), *report, *TIME, launch(13)]) == []


def test_times_without_a_block_are_no_kernel() -> None:
    assert parse(list(TIME)) == []
    assert one([launch(), *block(), *TIME, *TIME]) == WHOLE
    assert one([launch(), *block(), *TIME, BREAK]) == WHOLE  # the limit cut a later kernel, which has no block


def test_the_same_words_elsewhere_are_not_rows() -> None:
    noise = [
        "-gpgpu_max_insn                          0 # gpu_sim_insn = 5",
        "maxmrqlatency = 5",
        "GPGPU-Sim uArch: ERROR ** x @ gpu_sim_cycle 5029 (+ gpu_tot_sim_cycle 4294872574)",
        " kernel_name = other",
    ]
    inside = ("gpu_sim_insn calculated by classic = 5", "x gpu_sim_cycle = 6")
    kernel = one([*noise, launch(), *block(rows=(*HEADLINE, *inside)), *noise])
    assert {key: value for key, value in kernel.items() if key != "stats"} == {
        key: value for key, value in WHOLE.items() if key != "stats"
    }


def test_in_ptx_mode_a_kernel_may_be_pushed_while_a_block_is_printed() -> None:
    push = "GPGPU-Sim PTX: pushing kernel '{}' to stream 0, gridDim= (1,1,1) blockDim = (1,1,1) "
    lines = [push.format("a"), *block((1,), "a ", None, (*HEADLINE[:4], push.format("b"), *HEADLINE[4:]))]
    lines += block((2,), "b ", None)
    assert [(kernel["name"], kernel["tot_sim_cycles"]) for kernel in parse(lines)] == [("a", 70821), ("b", 70821)]


# Ends of a run.


def test_a_block_that_a_limit_cut_is_not_finished() -> None:
    end = [BREAK, "GPGPU-Sim: *** simulation thread exiting ***", "GPGPU-Sim: *** exit detected ***"]
    for uids, name in (((12,), "_Z1kPf "), ((), "")):
        assert one([launch(), *block(uids, name), *end]) == WHOLE | {"finished": False}
    ptx = [end[1], "", "some text of the program", end[0], end[2]]
    assert one([launch(), *block(), *ptx])["finished"] is False


def test_several_that_a_limit_cut_are_nobodys_block() -> None:
    lines = [launch(1, "a", 8), launch(2, "b", 9), "Destroy streams for kernel 1: size 0", *block((), "", 2), BREAK]
    kernel = one(lines)
    assert (kernel["launch_uid"], kernel["name"], kernel["finished"]) == (None, None, False)


@pytest.mark.parametrize(
    "line",
    [
        launch(13),
        "launching memcpy command : MemcpyHtoD,0x00007fa9cca00000,262148",
        "launching kernel command : x",
        "Processing kernel x",
        "-kernel name = x",
        "Header info loaded for kernel command : x",
        "thread block = 0,0,0",
        "Destroy streams for kernel 13: size 0",
        "kernel_name = x ",
        "kernel_launch_uid = 13 ",
        "GPGPU-Sim uArch: Shader 0 bind to kernel 13 'x'",
        "GPGPU-Sim: *** exit detected ***",
        "Accel-Sim [build x]",
        "GPGPU-Sim: Configuration options:",
        TIME[0],
    ],
)
def test_a_block_is_given_out_at_the_next_word_of_the_simulator(line: str) -> None:
    parser = Parser()
    assert parser.feed([launch(), *block()])[0] == []
    assert parser.tail() == WHOLE
    assert parser.feed(["", "text of the program", "GPGPU-Sim: *** simulation thread exiting ***"])[0] == []
    assert parser.feed([line])[0] == [WHOLE]
    assert parser.tail() is None


def test_the_end_of_the_log_gives_the_waiting_block_once() -> None:
    parser = Parser()
    parser.feed([launch(), *block()])
    assert parser.finish() == [WHOLE]
    assert parser.finish() == []


def test_a_block_cut_short_is_left_out_and_told() -> None:
    parser = Parser()
    parser.feed([launch(), *block(time=())])
    assert parser.outcome.block_open
    assert parser.tail() is None
    assert parser.finish() == []
    assert parser.outcome.block_open


@pytest.mark.parametrize("line", [launch(13), "thread block = 0,0,0", "GPGPU-Sim: *** exit detected ***", BREAK])
def test_a_block_that_another_line_cuts_is_left_out(line: str) -> None:
    assert parse([launch(), *block(time=()), line, *HEADLINE, *TIME]) == []


def test_outcome_of_a_whole_run() -> None:
    parser = Parser()
    parser.feed(
        [
            "GPGPU-Sim: Configuration options:",
            "-gpgpu_clock_domains    1132.0:1132.0:1132.0:3500.5 # clocks",
            launch(),
            *block(),
            "GPGPU-Sim: *** exit detected ***",
        ]
    )
    assert parser.outcome == accelsim.Outcome(exit_detected=True, launched=1, finished=1, core_clock_mhz=1132.0)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (BREAK, "limit"),
        ("GPGPU-Sim uArch: ERROR ** deadlock detected: last writeback core 4 @ gpu_sim_cycle 5 (+ ...", "deadlock"),
        ("GPGPU-Sim uArch: ERROR ** Kernel requires more resources than shader has.", "error"),
        ("Execution error: Shader kernel CTA (block) size is too large for microarch config.", "error"),
        ("ERROR:  undefined instruction : X Opcode: X", "error"),
        ("unsupported binary version: 0", "error"),
        ("Unable to open file: kernelslist.g", "error"),
        ("accel-sim.out: trace.cc:91: bool f(): Assertion `x > 0' failed.", "error"),
        ("thread block = 1,0accel-sim.out: trace.cc:91: bool f(): Assertion `x > 0' failed.", "error"),
    ],
)
def test_outcome_names_what_ended_the_run(line: str, field: str) -> None:
    parser = Parser()
    parser.feed([launch(), line, "other text", "Unable to open file: later"])
    assert getattr(parser.outcome, field) == line


# What else is in logs.


def test_crlf() -> None:
    lines = [launch(), *block(rows=(*HEADLINE, "a = 1 ", "b = 2", "c = 3%")), launch(13, "other"), "x"]
    assert parse([f"{line}\r" for line in lines]) == parse(lines)
    assert parse([f"{line}\r\n" for line in lines]) == parse(lines)
    assert parse(["\r\n".join(lines)]) == parse(lines)


def test_lines_may_bring_their_line_ends() -> None:
    lines = [launch(), *block(), launch(13), *block((13,), ended=13)]
    wanted = parse(lines)
    assert len(wanted) == 2
    assert parse([f"{line}\n" for line in lines]) == wanted
    assert parse(["\n".join(lines)]) == wanted
    assert parse(["\n".join(lines[:9]), *lines[9:]]) == wanted


@pytest.mark.parametrize(
    "line",
    ["\0" * 100, "\x1b[31mred\x1b[0m", "\udc80\ud800", "x" * 1_000_000, "", "\u2028", "\v\f", "a = " + "[" * 100_000]
    + [start * 200_000 for start in ("a ", "= ", "a=", "\t", "1", "[a]", "(", "a = 1 ", "{", "'", "`")],
)
def test_odd_lines_change_nothing(line: str) -> None:
    lines = [launch(), *block()]
    mixed = [part for each in lines for part in (line, each)] + [line]
    assert parse(mixed) == [WHOLE]


@pytest.mark.parametrize(
    "start",
    [
        "kernel_name = ",
        "kernel_launch_uid = ",
        "launching kernel name: ",
        "-kernel name = ",
        "Destroy streams for kernel ",
        "gpgpu_simulation_time = ",
        "gpgpu_simulation_rate = ",
        "gpgpu_silicon_slowdown = ",
        "-gpgpu_clock_domains ",
        "GPGPU-Sim PTX: pushing kernel '",
        "GPGPU-Sim: ** break",
        "ERROR:  undefined instruction",
        "gpu_sim_cycle = ",
    ],
)
@pytest.mark.parametrize("rest", ["1 ", "(", "\ud800", "a\x00", "uid: ", "9", ": "])
def test_lines_of_a_megabyte_are_taken(start: str, rest: str) -> None:
    parser = Parser()
    parser.feed([start + rest * (1_000_000 // len(rest)), *block(), start + rest * (1_000_000 // len(rest))])
    parser.finish()
    assert len(parser.to_state().encode()) < 600_000


STDERR = (
    "slurmstepd: error: *** STEP 77.0 ON node3 CANCELLED ***\n",
    " line 54: 3871878 Aborted                 (core dumped) accel-sim.out\n",
    "WARNING: x = 5\n",
    "\ttabbed 17\n",
    "no line end",
    "cat: kernel-3.traceg: No such file or directory\n",
)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_row_torn_by_stderr_is_left_out_never_half_read(data: st.DataObject) -> None:
    text = "\n".join(["", launch(), *block(rows=(*HEADLINE, "total dram reads = 1234")), launch(13), ""])
    whole = one(text.split("\n"))
    at = data.draw(st.integers(0, len(text)))
    noise = data.draw(st.sampled_from(STDERR))
    for kernel in parse((text[:at] + noise + text[at:]).split("\n")):
        for key, value in kernel.items():
            # Text without a line end of its own, inside a name, is part of the name for all that the line says.
            in_name = key == "name" and noise.strip() in str(value)
            assert value in (None, whole[key]) or in_name or key == "stats", key  # type: ignore[literal-required]
        for name in whole["stats"]:
            assert kernel["stats"].get(name) in (None, whole["stats"][name])
    if at % 7 == 0:  # and the block itself is lost only when all its rows of time are torn
        assert parse((text[:at] + noise + text[at:]).split("\n"))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_retry_appended_to_the_log_begins_anew(data: st.DataObject) -> None:
    options: dict[str, Any] = {"cores": 1, "partitions": 1, "kernels": 3}
    version = data.draw(st.sampled_from(get_args(Version)))
    first = "\n".join(SampleLog(version=version, seed=1, **options).lines())
    second = SampleLog(version=version, seed=2, names=["other", "names"], **options)
    retry = "\n".join(second.lines())
    cut = first[: data.draw(st.integers(0, len(first)))]
    # The first process was killed at any byte: the second one's first line may be glued to its last.
    glue = data.draw(st.sampled_from(("", "\n", "\nslurmstepd: error\n")))
    parser = Parser()
    kernels = parser.feed((cut + glue + retry).split("\n"))[0] + parser.finish()
    assert kernels == parse(cut.split("\n")) + second.blocks
    assert parser.outcome.launched == 3
    assert parser.outcome.exit_detected


# Pieces.


@given(st.lists(st.integers(1, 40), min_size=1, max_size=400), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_pieces_of_any_size_give_the_same(sizes: list[int], seed: int) -> None:
    sample = SampleLog(seed=seed, streams=2, concurrent=True, kernels=5, cores=1, partitions=2, limit="insn")
    lines = list(sample.lines())
    kernels, parser = parse_in_pieces(lines, itertools.cycle(sizes))
    assert kernels == sample.blocks
    assert parser.outcome.exit_detected


@pytest.mark.parametrize("most", [1, 2, 3])
def test_kernels_are_handed_out_in_portions(most: int) -> None:
    sample = SampleLog(kernels=7, cores=1, partitions=1)
    lines = list(sample.lines())
    parser, kernels, start = Parser(), [], 0
    while start < len(lines):
        got, start = parser.feed(lines, start, most)
        assert len(got) <= most
        kernels += got
        parser = Parser.from_state(parser.to_state())
    assert kernels + parser.finish() == sample.blocks


def test_portions_end_inside_a_line_that_has_lines_of_its_own() -> None:
    sample = SampleLog(kernels=5, cores=1, partitions=1)
    text = "\n".join(sample.lines())
    for lines in ([text], text.split("\n", 500), [text, text]):
        parser, kernels, start = Parser(), [], 0
        while start < len(lines):
            got, start = parser.feed(lines, start, 1)
            kernels += got
            parser = Parser.from_state(parser.to_state())
        kernels += parser.finish()
        assert kernels == sample.blocks * (len(kernels) // 5)


def test_portions_hold_a_kernel() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Parser().feed([], 0, 0)


# Gaps.


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_block_torn_by_a_gap_is_left_out_not_mixed(data: st.DataObject) -> None:
    sample = SampleLog(
        version=data.draw(st.sampled_from(("1.2", "release", "stream-stats", "dev"))),
        kernels=6,
        streams=data.draw(st.integers(1, 3)),
        concurrent=data.draw(st.booleans()),
        limit=data.draw(st.sampled_from((None, "insn"))),
        seed=data.draw(st.integers(0, 3)),
        cores=1,
        partitions=1,
    )
    lines = list(sample.lines())
    first = data.draw(st.integers(0, len(lines) - 1))
    last = data.draw(st.integers(first, min(len(lines), first + 900)))
    parser = Parser()
    kernels = parser.feed(lines[:first])[0] + parser.tear()
    parser = Parser.from_state(parser.to_state())
    kernels += parser.feed(lines[last:])[0] + parser.finish()

    starts = [at for at, line in enumerate(lines) if line.startswith("kernel_name =")]
    ends = [
        max(at for at in range(start, end) if lines[at].startswith("gpgpu_si"))  # the rows of time, the last of a block
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
        if any(line.startswith("gpgpu_simulation_time =") for line in lines[start:end])
    ]
    places = list(zip(sample.blocks, starts, ends, strict=False))
    whole = [b for b, start, end in places if end < first or start >= last]
    # What says that a limit cut a block short comes behind it: in the gap, or behind the gap, it is not known as its own.
    decided = [b for b, start, end in places if end + 8 < first or start >= last]
    by_total = {(b["tot_sim_cycles"], b["sim_cycles"]): b for b in sample.blocks}
    for kernel in kernels:
        truth = by_total[kernel["tot_sim_cycles"], kernel["sim_cycles"]]
        for key in ("stats", "ipc", "sim_insns", "tot_sim_insns", "occupancy", "l2_bw_gbps", "stream_id"):
            if key != "stats" or truth in whole:
                assert kernel[key] == truth[key]  # type: ignore[literal-required]
        assert kernel["stats"].items() <= truth["stats"].items()
        if truth in decided:
            assert kernel["finished"] == truth["finished"]
    totals = [(kernel["tot_sim_cycles"], kernel["sim_cycles"]) for kernel in kernels]
    assert totals == sorted(totals)
    assert set(totals) >= {(b["tot_sim_cycles"], b["sim_cycles"]) for b in whole}


def test_a_gap_inside_a_block() -> None:
    lines = [launch(), *block()]
    for first in range(4, len(lines) - len(TIME)):  # behind the first of the headline rows
        for last in range(first + 1, len(lines) + 1):
            parser = Parser()
            assert parser.feed(lines[:first])[0] == []
            assert parser.tear() == []
            assert parser.feed([*lines[last:], launch(13), *block((13,), ended=13)])[0] == []
            assert [kernel["launch_uid"] for kernel in parser.finish()] == [13]


def test_a_gap_behind_a_whole_block() -> None:
    parser = Parser()
    parser.feed([launch(), *block()])
    assert parser.tear() == [WHOLE]
    assert parser.finish() == []


def test_a_gap_that_ends_inside_a_block() -> None:
    rest = block()[3:]  # the rows of names and uids are in the gap
    parser = Parser()
    parser.tear()
    assert parser.feed([*rest, launch(13), *block((13,), ended=13)])[0] == []
    assert [kernel["launch_uid"] for kernel in parser.finish()] == [13]
    parser = Parser()
    parser.tear()
    assert parser.feed([*block()[2:], launch(13)])[0] == []  # its row of uids is the first line seen


def test_behind_a_gap_what_was_launched_in_it_is_named_by_its_rows() -> None:
    parser = Parser()
    parser.feed([launch(1, "a")])
    parser.tear()
    parser.feed(block((5,), "e ", 5))
    (kernel,) = parser.finish()
    assert (kernel["launch_uid"], kernel["name"]) == (5, "e")


def test_behind_a_gap_the_one_that_ended_is_known_though_its_launch_is_not() -> None:
    parser = Parser()
    parser.feed([launch(1, "a", 8), launch(2, "b", 9)])
    parser.tear()
    parser.feed(block((5, 6), "", 5))  # both launched in the gap
    (kernel,) = parser.finish()
    assert kernel["launch_uid"] == 5


def test_what_ended_before_a_gap_is_not_taken_for_what_ended_behind_it() -> None:
    parser = Parser()
    parser.feed(
        [launch(1, "a"), launch(2, "b"), "Destroy streams for kernel 1: size 0"]
    )  # the block of 1 is in the gap
    parser.tear()
    parser.feed(block((1, 2), "", 2, [row for row in HEADLINE if "stream" not in row]))
    (kernel,) = parser.finish()
    assert (kernel["launch_uid"], kernel["name"]) == (2, "b")


def test_a_name_loaded_before_a_gap_is_not_given_to_a_uid_behind_it() -> None:
    """The gap may hide that the simulator was started again: its uids begin anew."""
    parser = Parser()
    parser.feed(["-kernel name = old", "launching kernel command : x.traceg"])
    parser.tear()
    parser.feed(
        block((1, 2), "void new<int, float>(float) void other<int>()", 1)
    )  # names with blanks can't be told apart
    (kernel,) = parser.finish()
    assert (kernel["launch_uid"], kernel["name"]) == (1, None)


def test_behind_a_gap_overlapping_kernels_launched_before_it_are_known() -> None:
    parser = Parser()
    parser.feed([launch(1, "a", 8), launch(2, "b", 9)])
    parser.tear()
    parser.feed(block((), "", 2))
    (kernel,) = parser.finish()
    assert (kernel["launch_uid"], kernel["name"]) == (2, "b")


# State.


@pytest.mark.parametrize(
    "state",
    [
        "",
        "{",
        "[]",
        "null",
        "5",
        "{}",
        '{"v": 0}',
        '{"v": 3}',
        '{"v": 3, "phase": 9}',
        b"\xff",
        '{"v": 3, "phase": []}',
    ],
)
def test_what_is_no_state_is_refused(state: str | bytes) -> None:
    with pytest.raises(ValueError):
        Parser.from_state(state)


def test_a_state_with_a_wrong_part_is_refused() -> None:
    parser = Parser()
    parser.feed([launch(), *block()[:-1]])
    state = json.loads(parser.to_state())
    Parser.from_state(state)
    for key in state:
        for wrong in ("x", 5, [[1, 2, 3]], None):
            if wrong != state[key] and not (key == "loaded" and wrong in (5, None)) and key not in ("skip", "dropped"):
                try:
                    Parser.from_state(state | {key: wrong})
                except ValueError:
                    continue
                assert key in ("destroyed", "loaded", "phase"), (key, wrong)


def test_a_new_log_has_no_state() -> None:
    assert Parser.from_state(None).to_state() == Parser().to_state()


def test_the_state_is_small() -> None:
    parser = Parser()
    assert len(parser.to_state()) < 500
    largest = 0
    for line in SampleLog(kernels=3).lines():
        parser.feed([line])
        largest = max(largest, len(parser.to_state()))
    assert 5_000 < largest < 20_000


def test_rows_in_a_state_stay_as_they_were() -> None:
    """A state holds them as one text; line by line each is in it, and the last of a name counts."""
    names = ("a", "b[x][y]", "c\td", "e (f) & g's", "g]", "h%/.<>*+-#", "n" * accelsim.MAX_STAT_NAME, "n" * 200)
    numbers = ("0", "007", "-3", "1.50", "1e5", "2.5e999", "nan", "40/2 = 20.5", "9" * accelsim.MAX_NUMBER, "6 GB/Sec")
    rows = [f"{name}{blank}={number}" for number in numbers for name in names for blank in ("", " ", "  \t ")]
    lines = [launch(), *block(rows=(*rows[:90], *HEADLINE, *rows[90:]))]
    (whole,) = parse(lines)
    assert len(whole["stats"]) == len(names) - 2 + len(TIME)  # torn, and too long
    (pieces,), _ = parse_in_pieces(lines, itertools.repeat(1))
    assert pieces == whole
    assert list(pieces["stats"]) == list(whole["stats"])
    assert [type(number) for number in pieces["stats"].values()] == [type(number) for number in whole["stats"].values()]


def test_a_headline_behind_too_many_rows_still_tells_a_kernel() -> None:
    rows = [f"n{n} = {n}" for n in range(3 * accelsim.MAX_STATS)]
    lines = [launch(), *block(rows=(*rows, *HEADLINE))]
    (whole,) = parse(lines)
    (pieces,), _ = parse_in_pieces(lines, (len(lines) - len(TIME), len(TIME)))  # the state has no room for it
    assert pieces == whole
    assert (len(whole["stats"]), whole["sim_cycles"], whole["launch_uid"]) == (accelsim.MAX_STATS, None, 12)


def hostile(kind: str, random: Random) -> list[str]:
    """Lines that each want to be kept."""
    letters = "".join(chr(random.choice((*range(65, 91), *range(97, 123)))) for _ in range(3_000))
    many = range(20_000)
    return {
        "statistics": [*block()[:4], *(f"{letters[n % 2_900 : n % 2_900 + 90]}{n} = {n}" for n in many)],
        "long statistics": [*block()[:4], *(f"{letters}{n} = 1" for n in range(2_000))],
        "numbers": [*block()[:4], *(f"n{n} = {'9' * 38}.{'9' * 38}" for n in many)],
        "brackets": [*block()[:4], *(f"n[{letters[:100]}][{n}] = 1" for n in many)],
        "launches": [launch(n, letters[:200]) for n in many],
        "long launches": [launch(n, f"{n}é" * 3_000) for n in range(200)],
        "destroyed": [f"Destroy streams for kernel {n}: size 0" for n in many],
        "launched and destroyed": [
            line for n in many for line in (launch(n, "k"), f"Destroy streams for kernel {n}: size 0")
        ],
        "uids": ["kernel_name = x", "kernel_launch_uid = " + "18446744073709551615 " * 20_000],
        "loaded": [f"-kernel name = {letters}{n}" for n in range(2_000)],
        "errors": [f"{error}{letters * 50}" for error in accelsim._ERRORS] + [BREAK + letters * 50],
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "statistics",
        "long statistics",
        "numbers",
        "brackets",
        "launches",
        "long launches",
        "destroyed",
        "launched and destroyed",
        "uids",
        "loaded",
        "errors",
    ],
)
def test_the_state_is_bounded_whatever_is_fed(kind: str) -> None:
    lines = hostile(kind, Random(1))
    parser = Parser()
    for start in range(0, len(lines), 500):
        parser.feed(lines[start : start + 500])
        state = parser.to_state().encode()
        assert len(state) < 600_000
        assert len(zlib.compress(state, 4)) < 250_000
    again = Parser.from_state(state)
    assert again.to_state().encode() == state
    kernels = [kernel for each in (parser, again) for kernel in each.feed(list(TIME))[0] + each.finish()]
    assert len(kernels) in (0, 2)
    for kernel in kernels:
        assert kernel == kernels[0]
        assert len(kernel["stats"]) <= accelsim.MAX_STATS + len(TIME)
        assert max(map(len, kernel["stats"])) <= accelsim.MAX_STAT_NAME


def test_bounds_on_a_block_include_their_limits() -> None:
    long = "n" * accelsim.MAX_STAT_NAME
    stats = one(block(rows=(*HEADLINE, f"{long} = 1", f"{long}n = 2")))["stats"]
    assert (stats.get(long), stats.get(f"{long}n")) == (1, None)
    room = accelsim.MAX_STATS - len(HEADLINE)
    rows = [f"n{n} = {n}" for n in range(room + 5_000)]
    stats = one(block(rows=(*HEADLINE, *rows)))["stats"]
    assert f"n{room - 1}" in stats
    assert f"n{room + len(TIME)}" not in stats


# Anything.

PIECES = st.sampled_from(
    [
        *block(),
        *block((), "", None),
        *block((1, 2), "a b ", 1),
        launch(1, "a"),
        launch(2, "b"),
        launch(12),
        BREAK,
        "",
        "Accel-Sim [build x]",
        "GPGPU-Sim: Configuration options:",
        "-gpgpu_clock_domains 1.0:2",
        "-kernel name = c",
        "Processing kernel x",
        "thread block = 0,0,0",
        "launching kernel command : x",
        "GPGPU-Sim PTX: pushing kernel 'c' to stream 0",
        "GPGPU-Sim PTX: cudaLaunch for x",
        "GPGPU-Sim uArch: ERROR ** deadlock detected",
        "GPGPU-Sim: *** exit detected ***",
        "x: Assertion `y' failed.",
        "Memory Partition 0: ",
        "Memory Partition 1: ",
        "========= L2 cache stats =========",
        "total dram reads = 5",
        "Destroy streams for kernel 1: size 0",
        "Destroy streams for kernel 2: size 0",
    ]
)
LINES = st.lists(
    st.one_of(
        PIECES,
        PIECES,
        st.tuples(PIECES, st.integers(0, 40), st.text(max_size=5)).map(lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :]),
        st.text(st.characters(), max_size=30),  # surrogates, NUL and line ends too
        st.tuples(PIECES, PIECES).map("\n".join),
    ),
    max_size=60,
)


@given(LINES, st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(1, 3))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_raises_and_pieces_change_nothing(lines: list[str], sizes: list[int], most: int) -> None:
    whole = Parser()
    kernels = whole.feed(lines)[0] + whole.finish()
    pieces, parser = parse_in_pieces(lines, itertools.cycle(sizes))
    assert pieces == kernels
    assert parser.outcome == whole.outcome
    # Kernels handed out in portions.
    parser, portions, start = Parser(), [], 0
    while start < len(lines):
        got, start = parser.feed(lines, start, most)
        portions += got
        parser = Parser.from_state(parser.to_state())
    assert portions + parser.finish() == kernels
    # What comes out can be stored: JSON without nan, UTF-8, integers of at most 38 digits.
    json.dumps(kernels, allow_nan=False, ensure_ascii=False).encode()
    json.dumps(whole.to_state()).encode()
    for kernel in kernels:
        assert kernel["name"] is None or len(kernel["name"].encode()) <= accelsim.MAX_NAME_BYTES
        for number in kernel["stats"].values():
            assert number is None or (isinstance(number, int) and abs(number) < 10**38) or math.isfinite(number)


@given(LINES, st.integers(0, 60), st.integers(0, 10))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_gap_anywhere_raises_nothing(lines: list[str], first: int, size: int) -> None:
    parser = Parser()
    parser.feed(lines[:first])
    parser.tear()
    again = Parser.from_state(parser.to_state())
    rest = lines[first + size :]
    assert parser.feed(rest) == again.feed(rest)
    assert parser.finish() == again.finish()
