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
