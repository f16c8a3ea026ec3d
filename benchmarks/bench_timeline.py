"""Step timing at size: 100,000 kernels in 2,000 steps, and a PyTorch profiler trace of 500 MB.

`CASCADE_BENCH_TRACE_MB` sets another size of the trace. Each in a process of its own, whose peak memory is told.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, KERNELS = 2_000, 50
TRACE_MB = int(os.environ.get("CASCADE_BENCH_TRACE_MB", "500"))
MEASURE = """
import resource, sys, time
{setup}
began = time.process_time()
{work}
# Linux counts in KiB, macOS in bytes.
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20))
"""


def measured(setup: str, work: str) -> tuple[float, float]:
    """CPU seconds of `work`, and the process's peak memory in MiB."""
    code = MEASURE.format(setup=setup, work=work)
    seconds, mib = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    return float(seconds), float(mib)


def write_timeline(path: Path) -> None:
    """A run of decode steps, and a map beside it in which every kernel is a tenth slower."""
    steps, rows, uid, at = [], [], 0, 0
    for index in range(STEPS):
        kernels = []
        for n in range(KERNELS):
            uid += 1
            start = at + 5_000 * n + 500
            kernels.append(
                {
                    "name": f"kernel_{n}",
                    "start_ns": start,
                    "end_ns": start + 4_000,
                    "launch_uid": uid,
                    "launch_ns": start - 400,
                }
            )
            rows.append({"name": f"kernel_{n}", "launch_uid": uid, "ns": 4_400})
        end = at + 5_000 * KERNELS
        steps.append({"repeat": 0, "index": index, "kind": "decode", "start_ns": at, "end_ns": end, "kernels": kernels})
        at = end
    path.write_text(json.dumps({"meta": {"run_name": "bench"}, "steps": steps, "requests": []}))
    path.with_name("map.json").write_text(json.dumps(rows))


def write_trace(path: Path) -> int:
    """A trace as the profiler writes it, of about TRACE_MB; returns its number of kernels."""
    kernels = 0
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        while file.tell() < TRACE_MB * 1_000_000:
            step, at = kernels // 500, kernels * 10.0
            span = {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{step}",
                "pid": 1,
                "tid": 1,
                "ts": at,
                "dur": 4_999.0,
            }
            file.write(json.dumps(span) + ",\n")
            for _ in range(500):
                kernels += 1
                ts = kernels * 10.0
                args = {"correlation": kernels, "stream": 7, "device": 0, "grid": [64, 1, 1], "block": [128, 1, 1]}
                host = {
                    "ph": "X",
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    "pid": 1,
                    "tid": 1,
                    "ts": ts - 8,
                    "dur": 3.0,
                    "args": {"correlation": kernels},
                }
                op = {
                    "ph": "X",
                    "cat": "cpu_op",
                    "name": "aten::mm",
                    "pid": 1,
                    "tid": 1,
                    "ts": ts - 9,
                    "dur": 5.0,
                    "args": {"Input Dims": [[64, 64], [64, 64]], "External id": kernels},
                }
                gpu = {
                    "ph": "X",
                    "cat": "kernel",
                    "name": f"gemm_{kernels % 40}",
                    "pid": 0,
                    "tid": 7,
                    "ts": ts - 5,
                    "dur": 4.0,
                    "args": args,
                }
                file.write(f"{json.dumps(op)},\n{json.dumps(host)},\n{json.dumps(gpu)},\n")
        file.write('{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]}\n')
    return kernels


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        timeline, trace = Path(folder) / "real_timeline.json", Path(folder) / "trace.json"
        write_timeline(timeline)
        seconds, mib = measured(
            "from pathlib import Path\n"
            "from cascade.timeline.compare import compare\nfrom cascade.timeline.kernel_times import from_map\n"
            "from cascade.timeline.model import RealTimeline, read\nfrom cascade.timeline.simulate import simulate\n"
            f"real = read(Path({str(timeline)!r}), RealTimeline)\n"
            f"times = from_map(Path({str(timeline.with_name('map.json'))!r}).read_bytes(), 'map.json')",
            "compare(simulate(real, times), real)",
        )
        print("| what | goal | CPU, s | peak memory, MiB |\n|---|---|---|---|")
        print(
            f"| simulate and compare {STEPS * KERNELS:,} kernels in {STEPS:,} steps | 2 s, 300 MB | {seconds:.2f} | {mib:.0f} |",
            flush=True,
        )
        kernels = write_trace(trace)
        size = trace.stat().st_size / 1e6
        seconds, mib = measured(
            "from pathlib import Path\nfrom cascade.timeline.importing import import_trace",
            f"import_trace(Path({str(trace)!r}))",
        )
        print(
            f"| import a kineto trace of {size:.0f} MB with {kernels:,} kernels | 60 s, bounded | {seconds:.1f} | {mib:.0f} |"
        )


if __name__ == "__main__":
    main()
