"""Kernels of the simulator that do not fit those of the timeline: never a silent guess."""

from pathlib import Path

import pytest

from cascade.sample_log import SampleLog
from cascade.timeline.kernel_times import SimulatorKernel, from_map, from_simulator
from cascade.timeline.model import Kernel, RealMeta, RealTimeline, Simulation, Step, TimelineError
from cascade.timeline.simulate import simulate
from cascade.timeline.simulator import times_of_log

KERNELS = [Kernel("a", 1_000, 5_000, launch_uid=1), Kernel("b", 6_000, 16_000, launch_uid=2)]
REAL = RealTimeline(
    meta=RealMeta(run_name="x"),
    steps=[Step(repeat=0, index=3, kind="decode", start_ns=0, end_ns=32_000, kernels=KERNELS)],
)


def kernel(name: str, uid: int | None, cycles: int | None = 100, finished: bool = True) -> SimulatorKernel:
    return SimulatorKernel(name=name, launch_uid=uid, finished=finished, sim_cycles=cycles)


def simulated(*kernels: SimulatorKernel) -> Simulation:
    return simulate(REAL, from_simulator(kernels, "accelsim.log", 1000.0)).summary.simulation


def test_another_name_names_launch_step_and_kernel() -> None:
    with pytest.raises(
        TimelineError, match=r"accelsim\.log: launch 2 is 'zzz'.*step decode 3 of repeat 0, kernel 1 'b'"
    ):
        simulated(kernel("a", 1), kernel("zzz", 2))


def test_the_error_of_another_name_says_what_to_do() -> None:
    with pytest.raises(
        TimelineError, match=r"--step-range REGEX --renumber.*--kernels.*How kernels are matched"
    ) as error:
        simulated(kernel("b", 1))
    assert "\n" not in str(error.value)


def test_only_the_last_attempt_of_a_simulator_counts() -> None:
    def row(name: str, uid: int, cycles: int, total: int) -> SimulatorKernel:
        return SimulatorKernel(name=name, launch_uid=uid, finished=True, sim_cycles=cycles, tot_sim_cycles=total)

    # The first attempt ran with other kernels: had they counted, their names would be an error.
    earlier = [row("zzz", 1, 100, 100), row("zzz", 2, 100, 200)]
    found = simulated(*earlier, row("a", 1, 300, 300))
    assert (found.coverage.simulated_kernels, found.coverage.covered_simulated_gpu_ns) == (1, 300)
    assert found.notes["simulated_kernels_of_earlier_attempts"] == 2
    assert "simulated_kernels_of_earlier_attempts" not in simulated(row("a", 1, 300, 300)).notes


def test_the_clock_of_the_last_attempt_counts(tmp_path: Path) -> None:
    first = "\n".join(SampleLog(kernels=2, seed=1).lines())
    log = tmp_path / "accelsim.log"
    log.write_text(first.replace("1410.0:1410.0", "900.0:900.0") + "\n" + first + "\n")
    times = times_of_log(log, None)
    assert times.core_clock_mhz == 1410.0
    assert times.notes["simulated_kernels_of_earlier_attempts"] == 2


def test_kernels_that_overlapped_in_the_simulator_are_counted_with_their_stand_ins() -> None:
    assert simulated(kernel("b", 2), kernel("a", 1)).notes == {
        "kernels_with_times_of_overlapped_ones": 2, "simulated_kernels_that_overlapped": 2,
    }  # fmt: skip
    assert simulated(kernel("a", 1), kernel("b", 2)).notes == {}
    third = Step(
        repeat=0, index=4, kind="decode", start_ns=40_000, end_ns=50_000, kernels=[Kernel("a", 41_000, 42_000, launch_uid=3)]
    )  # fmt: skip
    real = RealTimeline(meta=REAL.meta, steps=[*REAL.steps, third])
    times = from_simulator([kernel("b", 2), kernel("a", 1)], "accelsim.log", 1000.0)
    assert simulate(real, times).summary.simulation.notes["kernels_with_times_of_overlapped_ones"] == 3


def test_names_of_which_one_is_mangled_were_not_compared_to_the_end() -> None:
    def notes(simulated_name: str, measured: str) -> dict[str, int]:
        step = Step(repeat=0, index=0, kind="decode", start_ns=0, end_ns=9, kernels=[Kernel(measured, 1, 2)])
        real = RealTimeline(meta=RealMeta(run_name="x"), steps=[step])
        return simulate(real, from_simulator([kernel(simulated_name, 1)], "log", 1000.0)).summary.simulation.notes

    assert notes("_Z6vecAddPKfS0_Pfi", "vecAdd(float const*, float const*, float*, int)") == {
        "names_compared_without_their_arguments": 1
    }
    assert notes("f(int) ", "f(int)") == {}


@pytest.mark.parametrize(
    ("kernels", "covered", "note"),
    [
        ([kernel("a", 1), kernel("b", 2), kernel("c", 3)], 2, "unused_simulated_kernels"),
        ([kernel("a", 1), kernel("b", 2, finished=False)], 1, "unfinished_simulated_kernels"),
        ([kernel("a", 1), kernel("b", 2, cycles=None)], 1, "simulated_kernels_without_cycles"),
    ],
)
def test_what_does_not_fit_is_counted(kernels: list[SimulatorKernel], covered: int, note: str) -> None:
    found = simulated(*kernels)
    assert found.coverage.simulated_kernels == covered
    assert found.notes[note] == 1


def test_a_kernel_without_a_time_keeps_the_measured_one() -> None:
    coverage = simulated(kernel("a", 1)).coverage
    assert (coverage.covered_measured_gpu_ns, coverage.unmodeled_gpu_ns) == (4_000, 10_000)


def test_a_log_without_a_clock_asks_for_one(tmp_path: Path) -> None:
    log = tmp_path / "accelsim.log"
    lines = [line for line in SampleLog(kernels=2, seed=1).lines() if "gpgpu_clock_domains" not in line]
    log.write_text("\n".join(lines))
    with pytest.raises(TimelineError, match=r"accelsim\.log.*clock"):
        times_of_log(log, None)
    assert times_of_log(log, 1000.0).by_uid


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b'[{"name": "a"}]', b'[{"name": "a", "ns": -1}]', b'[{"name": "a", "ns": 1.5}]', b'[{"name": "", "ns": 1}]',
     b'[{"name": "a", "ns": 1}, {"name": "a", "ns": 2}]', b'[{"name": "a", "launch_uid": 1, "ns": 1}, {"name": "a", "launch_uid": 1, "ns": 1}]'],
)  # fmt: skip
def test_a_wrong_map_is_one_line_that_names_the_file(data: bytes) -> None:
    with pytest.raises(TimelineError, match=r"map\.json") as error:
        from_map(data, "map.json")
    assert "\n" not in str(error.value)
