"""Sims as simulators make them, by the API."""

from typing import Any

import httpx

from cascade import sample_log


def new_run(
    client: httpx.Client, name: str = "a run", sims: list[dict[str, Any]] | None = None
) -> tuple[str, list[str]]:
    """A run's id and those of its sims."""
    made = client.post("/api/runs", json={"name": name, "sims": sims or [{}]}).raise_for_status().json()
    return made["id"], [sim["id"] for sim in made["sims"]]


def new_sim(client: httpx.Client, **spec: Any) -> str:
    """A queued sim in a run of its own."""
    return new_run(client, sims=[spec])[1][0]


def beat(client: httpx.Client, sim: str, state: str = "running", **more: Any) -> dict[str, Any]:
    """A heartbeat's answer."""
    answer: dict[str, Any] = (
        client.post(f"/api/sims/{sim}/heartbeat", json={"state": state, **more}).raise_for_status().json()
    )
    return answer


def log(client: httpx.Client, sim: str, seq: int, *lines: str) -> None:
    """A chunk."""
    client.post(f"/api/sims/{sim}/logs", json={"seq": seq, "lines": lines}).raise_for_status()


def simulate(client: httpx.Client, sim: str, kernels: int = 4, **options: Any) -> list[str]:
    """Everything a simulator prints, in chunks of 200 lines; the lines."""
    beat(client, sim)
    lines = list(sample_log.generate(cores=2, partitions=1, kernels=kernels, **options))
    for seq, start in enumerate(range(0, len(lines), 200)):
        log(client, sim, seq, *lines[start : start + 200])
    return lines


def blocks(first: int, last: int) -> list[str]:
    """The shortest log of one process's kernels `first` to `last`, each of as many cycles as its number."""
    return [
        line
        for i in range(first, last + 1)
        for line in (
            f"launching kernel name: k{i} uid: {i} cuda_stream_id: 0",
            f"Destroy streams for kernel {i}: size 0",
            f"kernel_name = k{i} ",
            f"kernel_launch_uid = {i} ",
            f"gpu_sim_cycle = {i}",
            f"gpu_sim_insn = {2 * i}",
            "gpu_ipc = 2.0",
            f"gpu_tot_sim_cycle = {i * (i + 1) // 2}",
            f"gpu_tot_sim_insn = {i}",
            "gpgpu_simulation_time = 0 days, 0 hrs, 0 min, 44 sec (44 sec)",
            "gpgpu_simulation_rate = 81894 (inst/sec)",
            "gpgpu_simulation_rate = 2670 (cycle/sec)",
            "gpgpu_silicon_slowdown = 528089x",
        )
    ]


TIMING = {
    "simulated": {
        "meta": {"run_name": "a"},
        "steps": [
            {
                "repeat": 0,
                "index": index,
                "kind": "decode" if index else "prefill",
                "start_ns": index * 2_000_000,
                "end_ns": index * 2_000_000 + 1_500_000,
                "wall_ns": 1_500_000 + 10_000 * index,
                "gpu_busy_ns": 1_200_000,
                "host_gap_ns": 300_000,
                "measured_wall_ns": 1_600_000,
                "measured_gpu_busy_ns": 1_300_000,
            }
            for index in range(8)
        ],
        "requests": [],
        "summary": {
            "simulation": {
                "host_model": "scaled-gaps",
                "coverage": {
                    "kernels": 80,
                    "simulated_kernels": 72,
                    "kernel_fraction": 0.9,
                    "gpu_time_fraction": 0.954,
                    "measured_gpu_ns": 9_600_000,
                    "covered_measured_gpu_ns": 9_158_400,
                    "unmodeled_gpu_ns": 441_600,
                    "steps": [
                        {
                            "repeat": 0,
                            "index": i,
                            "kind": "decode" if i else "prefill",
                            "gpu_time_fraction": 0.9 + i / 100,
                        }
                        for i in range(8)
                    ],
                },
            },
            "per_kind": {
                "decode": {
                    "steps": 7,
                    "wall_ns": {"total": 10_780_000, "mean": 1_540_000, "p50": 1_540_000, "p95": 1_567_000},
                    "gpu_busy_ns": {"total": 8_400_000, "mean": 1_200_000, "p50": 1_200_000, "p95": 1_200_000},
                    "host_gap_ns": 2_380_000,
                    "gpu_busy_fraction": 0.779,
                }
            },
        },
    },
    "compare": {
        "steps": [
            {
                "repeat": 0,
                "index": index,
                "kind": "decode" if index else "prefill",
                "wall_ns": {
                    "simulated": 1_500_000 + 10_000 * index,
                    "real": 1_600_000,
                    "error": -100_000,
                    "error_pct": -6.25,
                },
                "gpu_busy_ns": {"simulated": 1_200_000, "real": 1_300_000, "error": -100_000, "error_pct": -7.69},
                "gpu_time_fraction": 0.95,
            }
            for index in range(8)
        ],
        "requests": [],
        "summary": {
            name: {
                "count": 8,
                "mean_error": -65_000.0,
                "mean_abs_error": 65_000.0,
                "p50_abs_error": 65_000.0,
                "p95_abs_error": 96_500.0,
                "mean_error_pct": -4.06,
                "mean_abs_error_pct": 4.06,
                "p50_abs_error_pct": 4.06,
                "p95_abs_error_pct": 6.03,
            }
            for name in ("wall_ns", "gpu_busy_ns")
        },
    },
}
