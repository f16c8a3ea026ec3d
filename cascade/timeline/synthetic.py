"""Traces of LLM inference with a realistic shape, made from a seed: a prefill, then decode steps of some hundred kernels.

The times come from a small host queue, which is also the ground truth of `benchmarks/host_queue.py`: the host spends
some time before each launch, a launch reaches the GPU after a latency, and the GPU runs kernels in order with a short
delay between two. With other kernel durations the same queue says how long the step would really have taken.
"""

import gzip
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from random import Random
from typing import BinaryIO, Literal, TextIO, cast

from cascade.timeline.model import Kernel, Kind, RealMeta, RealTimeline, Request, Size3, Step

Launch = Literal["eager", "graph"]

GPU = "NVIDIA A100-SXM4-80GB"
CLOCK_MHZ = 1410
STREAM = 7
_PID = 4242
_BETWEEN_STEPS_NS = 60_000
_QUEUE_NS = 250_000


@dataclass(frozen=True, slots=True)
class QueuedKernel:
    """A kernel as the queue sees it; times in ns."""

    name: str
    grid: Size3
    block: Size3
    duration_ns: int
    host_ns: int  # what the host does before it launches the kernel
    delay_ns: int  # what the GPU needs between the kernel before and this one


@dataclass(frozen=True, slots=True)
class QueuedStep:
    """A step as the queue sees it. In a graph one launch, after the first kernel's `host_ns`, starts all kernels."""

    kind: Kind
    name: str
    launch: Launch
    latency_ns: int
    tail_ns: int  # what the host does after the last kernel has ended
    kernels: list[QueuedKernel]


@dataclass(frozen=True, slots=True)
class RanStep:
    """What came of a step, in ns from its start, one value a kernel."""

    wall: int
    launches: list[int]
    starts: list[int]
    ends: list[int]


def run_queue(step: QueuedStep, durations: Sequence[int] | None = None) -> RanStep:
    """Run a step through the queue with its own kernel durations, or with `durations` in ns, one a kernel."""
    launches: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    host = 0
    gpu = 0
    for position, kernel in enumerate(step.kernels):
        if step.launch == "eager" or position == 0:
            host += kernel.host_ns
        start = max(host + step.latency_ns, gpu + kernel.delay_ns)
        gpu = start + (kernel.duration_ns if durations is None else durations[position])
        launches.append(host)
        starts.append(start)
        ends.append(gpu)
    return RanStep(max(host, gpu) + step.tail_ns, launches, starts, ends)


# One transformer layer: (kernel, decode time in ns at scale 1, prefill time over decode time, block). The times are in
# proportion to the bytes (decode) and operations (prefill) of a dense model with grouped-query attention.
_LAYER: tuple[tuple[str, int, float, Size3], ...] = (
    ("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*, float, int, int)", 2_300, 8, (1024, 1, 1)),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", 9_400, 28, (128, 1, 1)),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*, c10::BFloat16*, int)", 2_100, 9, (512, 1, 1)),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(__nv_bfloat16 const*, long const*)", 1_900, 6, (256, 1, 1)),
    ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4> >(Flash_fwd_params)", 6_800, 24, (128, 1, 1)),
    ("ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", 6_200, 26, (128, 1, 1)),
    ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*, float, int, int)", 2_600, 9, (1024, 1, 1)),
    ("ampere_bf16_s16816gemm_bf16_256x64_ldg8_f2f_stages_64x3_tn", 21_000, 34, (256, 1, 1)),
    ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>(c10::BFloat16*, c10::BFloat16 const*, int)", 2_200, 11, (1024, 1, 1)),
    ("ampere_bf16_s16816gemm_bf16_128x64_sliced1x2_ldg8_f2f_stages_64x4_tn", 11_500, 33, (128, 1, 1)),
)  # fmt: skip
_HEAD: tuple[tuple[str, int, float, Size3], ...] = (
    ("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*, float, int, int)", 2_300, 1, (1024, 1, 1)),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn", 58_000, 1, (256, 1, 1)),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, long> >(ArgMax)", 9_000, 1, (512, 1, 1)),
)  # fmt: skip


def llm_run(
    seed: int, decode_steps: int = 32, layers: int = 28, launch: Launch = "eager", scale: float = 1.0
) -> list[QueuedStep]:
    """One request: a prefill, launched kernel by kernel, then decode steps launched as `launch` says.

    Args:
        seed: everything follows from it.
        decode_steps: tokens after the first.
        layers: transformer layers, of 10 kernels each; 3 more end a step.
        launch: how decode steps are launched. Eager launches cost the host about 6 us each.
        scale: factor of all kernel durations: below about 0.8, eager decode is bound by the host.
    """
    random = Random(seed)  # noqa: S311  a simulation, not a secret
    steps = [_llm_step(random, "prefill", "prefill", layers, "eager", scale)]
    steps += [_llm_step(random, "decode", f"decode_{token}", layers, launch, scale) for token in range(decode_steps)]
    return steps


def _llm_step(random: Random, kind: Kind, name: str, layers: int, launch: Launch, scale: float) -> QueuedStep:
    kernels = []
    for kernel, decode_ns, factor, block in _LAYER * layers + _HEAD:
        prefill = kind == "prefill"
        ns = decode_ns * scale * (factor if prefill else 1) * random.lognormvariate(0, 0.03)
        # The host's time has a long tail: an allocation, a garbage collection, another thread.
        host = random.lognormvariate(8.65, 0.25) + (random.random() < 0.01) * random.uniform(10_000, 60_000)
        grid: Size3 = (random.choice((64, 108, 128)) if prefill else 1, len(kernel) % 13 + 1, 1)
        kernels.append(QueuedKernel(kernel, grid, block, max(round(ns), 1), round(host), random.randint(700, 1_500)))
    return QueuedStep(kind, name, launch, random.randint(3_500, 5_500), random.randint(20_000, 40_000), kernels)


def timeline(steps: Sequence[QueuedStep], run_name: str, launches: bool = True) -> RealTimeline:
    """The measured timeline of steps run one after the other, as repeat 0 with its request; without launch times if so asked."""
    made: list[Step] = []
    numbers: dict[Kind, int] = {}
    for origin, step, ran in _laid_out(steps):
        kernels = [
            Kernel(
                name=kernel.name,
                start_ns=origin + start,
                end_ns=origin + end,
                launch_ns=origin + launched if launches else None,
                stream=STREAM,
                grid=kernel.grid,
                block=kernel.block,
            )
            for kernel, launched, start, end in zip(step.kernels, ran.launches, ran.starts, ran.ends, strict=True)
        ]
        index = numbers.get(step.kind, 0)
        numbers[step.kind] = index + 1
        made.append(
            Step(
                repeat=0,
                index=index,
                kind=step.kind,
                start_ns=origin,
                end_ns=origin + ran.wall,
                name=step.name,
                kernels=kernels,
            )
        )
    requests = []
    if made:
        first_token = next((step.end_ns for step in made if step.kind == "prefill"), None)
        arrival = made[0].start_ns - _QUEUE_NS
        requests.append(Request(repeat=0, arrival_ns=arrival, first_token_ns=first_token, end_ns=made[-1].end_ns))
    meta = RealMeta(run_name=run_name, gpu=GPU, core_clock_mhz=CLOCK_MHZ)
    return RealTimeline(meta=meta, steps=made, requests=requests)


def write_kineto(steps: Sequence[QueuedStep], path: Path) -> None:
    """Write the steps as a PyTorch profiler trace; gzipped when the name ends in `.gz`.

    Each step is a `user_annotation`; each kernel comes with two operators, its launch and the arrow between them.
    """
    with path.open("wb") as raw:
        # mtime: the same steps give the same bytes.
        binary = gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) if path.suffix == ".gz" else raw
        with TextIOWrapper(cast(BinaryIO, binary), encoding="utf-8") as text:
            _write_kineto(steps, text)


def write_nsys(steps: Sequence[QueuedStep], path: Path) -> None:
    """Write the steps as an Nsight Systems SQLite export, with the tables and columns of its published schema."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(_NSYS_SCHEMA)
        strings: dict[str, int] = {}
        global_pid = _PID << 24
        for correlation, (origin, step, ran) in _numbered(steps):
            text = step.name
            database.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, NULL)",
                (origin, origin + ran.wall, text, global_pid + 1),
            )
            for position, kernel in enumerate(step.kernels):
                number = correlation + (position if step.launch == "eager" else 0)
                start, end = origin + ran.starts[position], origin + ran.ends[position]
                name = strings.setdefault(kernel.name, len(strings) + 1)
                database.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (start, end, STREAM, number, global_pid, name, name, name, *kernel.grid, *kernel.block),
                )
                if step.launch == "eager" or position == 0:
                    api = strings.setdefault(_API[step.launch], len(strings) + 1)
                    launched = origin + ran.launches[position]
                    database.execute(
                        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)",
                        (launched, launched + 2_000, global_pid + 1, number, api),
                    )
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, name) for name, i in strings.items()])
        database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, ?, ?)", (GPU, CLOCK_MHZ * 1_000_000))
        database.commit()


_API: dict[Launch, str] = {"eager": "cudaLaunchKernel", "graph": "cudaGraphLaunch"}
_NSYS_SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT, clockRate INTEGER);
CREATE TABLE NVTX_EVENTS (
    start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER, textId INTEGER
);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL
);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL, mangledName INTEGER, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
    gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL
);
"""


def _laid_out(steps: Sequence[QueuedStep]) -> Iterator[tuple[int, QueuedStep, RanStep]]:
    """(start in ns, step, what came of it), one step after the other."""
    origin = 10_000_000
    for step in steps:
        ran = run_queue(step)
        yield origin, step, ran
        origin += ran.wall + _BETWEEN_STEPS_NS


def _numbered(steps: Sequence[QueuedStep]) -> Iterator[tuple[int, tuple[int, QueuedStep, RanStep]]]:
    """The laid-out steps, each with the correlation of its first launch."""
    correlation = 1
    for laid in _laid_out(steps):
        yield correlation, laid
        correlation += len(laid[1].kernels)


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _write_kineto(steps: Sequence[QueuedStep], file: TextIO) -> None:
    properties = [{"id": 0, "name": GPU, "numSms": 108, "warpSize": 32}]
    file.write(f'{{"schemaVersion": 1, "deviceProperties": {json.dumps(properties)}, "traceEvents": [\n')
    names: dict[str, str] = {}
    host = f'"pid": {_PID}, "tid": {_PID}'
    for correlation, (origin, step, ran) in _numbered(steps):
        file.write(
            f'{{"ph": "X", "cat": "user_annotation", "name": {json.dumps(step.name)}, {host}, '
            f'"ts": {_us(origin)}, "dur": {_us(ran.wall)}, "args": {{"External id": {correlation}}}}}'
        )
        for position, kernel in enumerate(step.kernels):
            eager = step.launch == "eager"
            number = correlation + (position if eager else 0)
            name = names.setdefault(kernel.name, json.dumps(kernel.name))
            start, launched = origin + ran.starts[position], origin + ran.launches[position]
            duration = ran.ends[position] - ran.starts[position]
            if eager or position == 0:
                file.write(
                    f',\n{{"ph": "X", "cat": "cpu_op", "name": "aten::linear", {host}, "ts": {_us(launched - 1500)}, '
                    f'"dur": 4.200, "args": {{"External id": {number}, "Sequence number": {number}, "Fwd thread id": 0, '
                    f'"Input Dims": [[1, 4096], [4096, 4096], []], "Input type": ["c10::BFloat16", "c10::BFloat16", ""]}}}}'
                    f',\n{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", {host}, "ts": {_us(launched - 900)}, '
                    f'"dur": 3.100, "args": {{"External id": {number}, "Input Dims": [[1, 4096], [4096, 4096]]}}}}'
                    f',\n{{"ph": "X", "cat": "cuda_runtime", "name": "{_API[step.launch]}", {host}, "ts": {_us(launched)}, '
                    f'"dur": 2.000, "args": {{"External id": {number}, "cbid": 211, "correlation": {number}}}}}'
                    f',\n{{"ph": "s", "id": {number}, {host}, "ts": {_us(launched)}, "cat": "ac2g", "name": "ac2g"}}'
                    f',\n{{"ph": "f", "id": {number}, "pid": 0, "tid": {STREAM}, "ts": {_us(start)}, "cat": "ac2g", '
                    f'"name": "ac2g", "bp": "e"}}'
                )
            file.write(
                f',\n{{"ph": "X", "cat": "kernel", "name": {name}, "pid": 0, "tid": {STREAM}, "ts": {_us(start)}, '
                f'"dur": {_us(duration)}, "args": {{"External id": {number}, "queued": 0, "device": 0, "context": 1, '
                f'"stream": {STREAM}, "correlation": {number}, "registers per thread": 122, "shared memory": 49152, '
                f'"blocks per SM": 5.925926, "warps per SM": 23.703703, "grid": {list(kernel.grid)}, '
                f'"block": {list(kernel.block)}, "est. achieved occupancy %": 25}}}}'
            )
        file.write(",\n")
    file.write('{"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 0}\n]}\n')
