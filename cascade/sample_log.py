"""A made-up log of an Accel-Sim run, line by line, together with what a reader has to find in it.

    sample = SampleLog(kernels=3, streams=2, concurrent=True, seed=7)
    for line in sample.lines():
        print(line)
    sample.blocks       # what was printed, as the kernels a parser should return

It has the order, the rows and the formats of the real thing, with invented names and numbers. The same options give the
same log, always.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal, get_args

from chalicelib.accelsim import Kernel

Version = Literal["1.2", "release", "stream-stats", "dev", "ptx"]
"""`1.2` (2021) prints no uid when it launches, `release` (2022) one, `stream-stats` (2023) the stream too, `dev` (2024)
also `kernel_stream_id`. `ptx` is GPGPU-Sim 3.2 without traces."""
Limit = Literal["cycle", "insn"]
"""What cuts the last kernel short: a cycle limit before its first thread block, an instruction limit in the middle."""

NAMES: Final = (
    "_Z13gemm_tile_128PK6__halfS1_Pfiii",
    "_Z14softmax_onlinePfPKfi",
    "_Z9layernormPfPKfS1_S1_if",
    "void attention_forward<__half, 64, true>(__half const*, __half const*, float*, int, float)",
    "_Z11rotary_embdPfPKfi",
    "_ZN7sampler10top_k_top_pIfLi32EEEvPKT_Pifi",
)

WINDOW: Final = 32
"""Kernels whose headers are loaded ahead when they may overlap."""
CLOCK_MHZ: Final = 1410.0
_TRACES = "/traces/llm-decode/traces"
_ACCESSES = (
    "GLOBAL_ACC_R", "LOCAL_ACC_R", "CONST_ACC_R", "TEXTURE_ACC_R", "GLOBAL_ACC_W", "LOCAL_ACC_W", "L1_WRBK_ACC",
    "L2_WRBK_ACC", "INST_ACC_R", "L1_WR_ALLOC_R", "L2_WR_ALLOC_R",
)  # fmt: skip
_RESULTS = ("HIT", "HIT_RESERVED", "MISS", "RESERVATION_FAIL", "SECTOR_MISS", "MSHR_HIT")
_COUNTERS = (
    "gpgpu_n_tot_thrd_icount", "gpgpu_n_tot_w_icount", "gpgpu_n_stall_shd_mem", "gpgpu_n_mem_read_local",
    "gpgpu_n_mem_write_local", "gpgpu_n_mem_read_global", "gpgpu_n_mem_write_global", "gpgpu_n_mem_texture",
    "gpgpu_n_mem_const", "gpgpu_n_load_insn ", "gpgpu_n_store_insn", "gpgpu_n_shmem_insn", "gpgpu_n_sstarr_insn",
    "gpgpu_n_tex_insn", "gpgpu_n_const_mem_insn", "gpgpu_n_param_mem_insn", "gpgpu_n_shmem_bkconflict",
    "gpgpu_n_l1cache_bkconflict", "gpgpu_n_intrawarp_mshr_merge", "gpgpu_n_cmem_portconflict",
    "gpgpu_stall_shd_mem[c_mem][resource_stall]", "gpgpu_stall_shd_mem[s_mem][bk_conf]",
    "gpgpu_stall_shd_mem[gl_mem][resource_stall]", "gpgpu_stall_shd_mem[gl_mem][coal_stall]",
    "gpgpu_stall_shd_mem[gl_mem][data_port_stall]", "gpu_reg_bank_conflict_stalls",
)  # fmt: skip
_DRAM_COUNTERS = (
    "total_CMD", "util_bw", "Wasted_Col", "Wasted_Row", "Idle", "RCDc_limit", "RCDWRc_limit", "WTRc_limit", "RTWc_limit",
    "CCDLc_limit", "rwq", "CCDLc_limit_alone", "WTRc_limit_alone", "RTWc_limit_alone", "n_nop", "Read", "Write", "n_req",
)  # fmt: skip
_OPTIONS = (
    ("-gpgpu_clock_domains", f"{CLOCK_MHZ}:{CLOCK_MHZ}:{CLOCK_MHZ}:1215.0", "MHz of core, network, L2 and DRAM"),
    ("-gpgpu_n_clusters", "{cores}", "number of processing clusters"),
    ("-gpgpu_n_cores_per_cluster", "1", "cores in a cluster"),
    ("-gpgpu_n_mem", "{partitions}", "number of memory controllers"),
    ("-gpgpu_n_sub_partition_per_mchannel", "2", "slices of L2 a controller"),
    ("-gpgpu_max_cycle", "{max_cycle}", "stop after so many cycles, 0 = never"),
    ("-gpgpu_max_insn", "{max_insn}", "stop after so many instructions, 0 = never"),
    ("-gpgpu_deadlock_detect", "1", "stop when nothing moves (1 = on)"),
    ("-gpgpu_concurrent_kernel_sm", "{concurrent}", "several kernels on one core = 1"),
    ("-gpgpu_max_concurrent_kernel", str(WINDOW), "kernels loaded at once"),
    ("-gpgpu_shader_core_pipeline", "2048:32", "threads a core : warp size"),
    ("-gpgpu_shader_registers", "65536", "registers a core"),
    ("-gpgpu_scheduler", "lrr", "warp scheduler: lrr, gto, two_level_active"),
    ("-gpgpu_cache:dl1", "S:4:128:256,L:T:m:L:L,A:384:48,16:0,32", "L1 data cache {{sets}}:{{block}}:{{ways}}"),
    ("-gpgpu_cache:dl2", "S:64:128:16,L:B:m:L:P,A:192:4,32:0,32", "L2 data cache {{sets}}:{{block}}:{{ways}}"),
    ("-gpgpu_dram_timing_opt", "nbk=16:CCD=1:RRD=3:RCD=12:RAS=28:RP=12", "DRAM timing"),
    ("-network_mode", "2", "1 = booksim, 2 = local crossbar"),
    ("-trace", f"{_TRACES}/kernelslist.g", "list of kernel traces"),
)


@dataclass(frozen=True)
class _Planned:
    """A kernel of the run."""

    uid: int
    name: str
    stream: int
    ctas: int
    latency: int
    """Cycles from its launch to its first thread block."""
    duration: int
    """Cycles from there to its end."""
    per_cycle: float
    """Thread-level instructions."""


class _Rows:
    """Lines of a block, and the numbers in those that are `name = number`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stats: dict[str, int | float | None] = {}

    def text(self, *lines: str) -> None:
        self.lines += lines

    def row(self, row: str, number: int | float, digits: int = 4, width: int = 12, named: str | None = None) -> None:
        """Print `number` at `{}` in `row`: an int as it is, a float with `digits` right-aligned in `width` columns."""
        if isinstance(number, int):
            text = str(number)
        else:
            text = f"{number:{width}.{digits}f}" if math.isfinite(number) else "-nan".rjust(width)
        self.lines.append(row.replace("{}", text, 1))
        name = row.split("=")[0].strip() if named is None else named
        self.stats[name] = number if isinstance(number, int) else float(text) if math.isfinite(number) else None


class SampleLog:
    """A run of `kernels` kernels as `accel-sim.out` of that version would print it.

    Args:
        streams: CUDA streams that the kernels go to in turn.
        concurrent: Kernels of different streams overlap.
        names: Names of the kernels, in turn.
        limit: Cuts the last kernel short.
        deadlock_at: The block, counted from 0, that never comes, for the simulator hangs and aborts.
        cores: Cores of the GPU; one line a block each.
        partitions: Memory partitions; 60 lines a block each.

    Raises:
        ValueError: such a run cannot be.
    """

    blocks: list[Kernel]
    """What the lines given out so far have told, block by block; complete when `lines` is at its end."""

    def __init__(
        self,
        *,
        kernels: int = 4,
        version: Version = "dev",
        streams: int = 1,
        concurrent: bool = False,
        seed: int = 0,
        names: Sequence[str] = NAMES,
        limit: Limit | None = None,
        deadlock_at: int | None = None,
        cores: int = 16,
        partitions: int = 4,
    ) -> None:
        if version not in get_args(Version):
            raise ValueError(f"no version {version!r}; there are {', '.join(get_args(Version))}")
        if version == "ptx" and (concurrent or streams > 1 or limit):
            raise ValueError("the ptx version has one stream and no limits here")
        if min(cores, partitions, streams) < 1 or kernels < 0 or not names:
            raise ValueError("a run needs a core, a partition, a stream and a name")
        if deadlock_at is not None and not 0 <= deadlock_at < kernels:
            raise ValueError(f"deadlock_at must be a kernel from 0 to {kernels - 1}")
        self.version, self.concurrent, self.limit, self.deadlock_at = version, concurrent, limit, deadlock_at
        self.cores, self.partitions = cores, partitions
        self._random = random = Random(seed)  # noqa: S311  to be had again, not to be secret
        # Streams are pointers in real runs, but for the default one.
        ids = [0, *(random.randrange(0x5500_0000_0000, 0x5600_0000_0000, 16) for _ in range(streams - 1))]
        self._kernels = [
            _Planned(
                uid=at + 1,
                name=names[at % len(names)],
                stream=ids[at % streams],
                ctas=random.randint(1, 40),
                latency=random.choice((0, 1_000, 5_000)),
                duration=int(2 ** random.uniform(10, 18)),
                per_cycle=random.uniform(0.5, 40) * cores,
            )
            for at in range(kernels)
        ]
        self.blocks = []
        self._cycles = self._insns = self._ctas = 0
        self._seconds = 0.0
        self._totals: dict[str, int] = {}

    def lines(self) -> Iterator[str]:
        """The log, without line ends. To be called once."""
        yield from self._header()
        if self.version != "ptx":
            yield f"launching memcpy command : MemcpyHtoD,0x00007f{self._random.getrandbits(40):010x},262144"
        waiting, running = list(self._kernels), dict[int, tuple[int, _Planned]]()
        loaded = now = last = 0
        unlisted: list[_Planned] = []  # launched, and its first thread block not issued when a block was last printed
        listed: list[_Planned] = []
        while waiting or running:
            ended = len(self._kernels) - len(waiting) - len(running)
            ahead = WINDOW if self.concurrent else 1
            while loaded < min(ended + ahead, len(self._kernels)):
                yield from self._load(self._kernels[loaded])
                loaded += 1
            busy = {kernel.stream for _, kernel in running.values()}
            for kernel in [kernel for kernel in waiting if kernel.uid <= loaded]:
                if kernel.stream not in busy and (self.concurrent or not running):
                    busy.add(kernel.stream)
                    waiting.remove(kernel)
                    unlisted.append(kernel)
                    running[kernel.uid] = (now + kernel.latency + kernel.duration, kernel)
                    yield from self._launch(kernel)
            now, ending = min(running.values(), key=lambda entry: (entry[0], entry[1].uid))
            cut = self.limit is not None and len(running) == 1 and not waiting
            if cut:
                now = last + max(1, ending.latency // 2 if self.limit == "cycle" else (now - last) // 2)
            for kernel in list(unlisted):
                if running[kernel.uid][0] - kernel.duration <= now and not (cut and self.limit == "cycle"):
                    unlisted.remove(kernel)
                    listed.append(kernel)
                    yield from self._issue(kernel)
            if len(self.blocks) == self.deadlock_at:
                yield from self._deadlock()
                return
            del running[ending.uid]
            yield from self._end(ending, listed, max(1, now - last), finished=not cut)
            listed, last = [], max(now, last + 1)
        if self.version == "ptx":
            yield from (
                "GPGPU-Sim: *** simulation thread exiting ***",
                "Test PASSED",
                "GPGPU-Sim: *** exit detected ***",
            )
            return
        if self.limit and self._kernels:
            yield "GPGPU-Sim: ** break due to reaching the maximum cycles (or instructions) **"
        yield from ("GPGPU-Sim: *** simulation thread exiting ***", "GPGPU-Sim: *** exit detected ***")

    # Before and between blocks.

    def _header(self) -> Iterator[str]:
        build = f"{self._random.getrandbits(28):07x}"
        simulator = {"ptx": "3.2.2", "1.2": "4.1.0"}.get(self.version, "4.2.0")
        if self.version != "ptx":
            yield f"Accel-Sim [build accelsim-commit-{build}_modified_0.0]"
        yield from ("", f"        *** GPGPU-Sim Simulator Version {simulator}  [build {build}] ***", "", "")
        yield from ("GPGPU-Sim: Configuration options:", "")
        values = {
            "cores": self.cores,
            "partitions": self.partitions,
            "concurrent": int(self.concurrent),
            "max_cycle": 100_000_000 if self.limit == "cycle" else 0,
            "max_insn": 100_000_000_000 if self.limit == "insn" else 0,
        }
        for option, value, meaning in _OPTIONS:
            if self.version != "ptx" or option != "-trace":
                yield f"{option:<32} {value.format(**values):>20} # {meaning.format()}"
        hertz = f"{CLOCK_MHZ * 1e6:.6f}"
        yield f"Total number of memory sub partition = {2 * self.partitions}"
        yield "addr_dec_mask[CHIP]  = 0000000000000f00 \thigh:12 low:8"
        yield f"GPGPU-Sim uArch: clock freqs: {hertz}:{hertz}:{hertz}:1215000000.000000"
        yield "*** Initializing Memory Statistics ***"
        yield "GPGPU-Sim uArch: performance model initialization complete."

    def _load(self, kernel: _Planned) -> Iterator[str]:
        if self.version == "ptx":
            return
        file = f"{_TRACES}/kernel-{kernel.uid}.traceg"
        yield f"Processing kernel {file}"
        yield f"-kernel name = {kernel.name}"
        yield f"-kernel id = {kernel.uid + 100}"
        yield f"-grid dim = ({kernel.ctas},1,1)"
        yield from ("-block dim = (128,1,1)", "-shmem = 0", "-nregs = 32", "-binary version = 80")
        yield f"-cuda stream id = {kernel.stream}"
        yield from ("-shmem base_addr = 0x00007f05b0000000", "-local mem base_addr = 0x00007f05ae000000")
        yield from ("-nvbit version = 1.7", "-accelsim tracer version = 5")
        yield f"Header info loaded for kernel command : {file}"

    def _launch(self, kernel: _Planned) -> Iterator[str]:
        if self.version == "ptx":
            yield f"GPGPU-Sim PTX: pushing kernel '{kernel.name}' to stream 0, gridDim= ({kernel.ctas},1,1) blockDim = (128,1,1)"
        elif self.version == "1.2":
            yield f"launching kernel command : {_TRACES}/kernel-{kernel.uid}.traceg"
        elif self.version == "release":
            yield f"launching kernel name: {kernel.name} uid: {kernel.uid}"
        else:
            yield f"launching kernel name: {kernel.name} uid: {kernel.uid} cuda_stream_id: {kernel.stream}"

    def _issue(self, kernel: _Planned) -> Iterator[str]:
        core = self._random.randrange(self.cores)
        for at in range(kernel.ctas):
            if not self.concurrent and at < self.cores:
                yield f"GPGPU-Sim uArch: Shader {(core + at) % self.cores} bind to kernel {kernel.uid} '{kernel.name}'"
            if at == 0:
                yield "GPGPU-Sim uArch: CTA/core = 16, limited by: threads regs"
                yield "GPGPU-Sim: Reconfigure L1 cache to 128KB"
            if self.version != "ptx":
                yield f"thread block = {at},0,0"
        self._ctas += kernel.ctas

    def _deadlock(self) -> Iterator[str]:
        """Nothing was written back for some 90,000 cycles; the total in the message is unsigned, 32 bits, and wraps."""
        core, silent = self._random.randrange(self.cores), 100_000 - self._random.randrange(5_000, 30_000)
        yield from ("", "")
        yield (
            f"GPGPU-Sim uArch: ERROR ** deadlock detected: last writeback core {core} @ gpu_sim_cycle {100_000 - silent} "
            f"(+ gpu_tot_sim_cycle {(self._cycles - 100_000) % 2**32}) ({silent} cycles ago)"
        )
        yield "GPGPU-Sim uArch: DEADLOCK  shader cores no longer committing instructions [core(# threads)]:"
        yield "GPGPU-Sim uArch: DEADLOCK  " + " ".join(f"{at}(128)" for at in range(min(8, self.cores))) + " "
        yield from ("", "Re-run the simulator in gdb and use debug routines in .gdbinit to debug this")

    # A block.

    def _end(self, kernel: _Planned, listed: list[_Planned], cycles: int, finished: bool) -> Iterator[str]:
        """The lines a kernel's end prints; its truth goes into `blocks`."""
        insns = int(cycles * kernel.per_cycle) if cycles > 1 else 0
        self._cycles += cycles
        self._insns += insns
        self._seconds += cycles / self._random.uniform(2_000, 9_000)
        rows = _Rows()
        self._clock(rows)
        clock_lines, clock_stats = rows.lines, rows.stats
        if not finished and self.version == "release":
            yield from ("", "", *clock_lines)
            return
        if self.version != "ptx":
            yield f"Destroy streams for kernel {kernel.uid}: size 0"
        yield f"kernel_name = {''.join(f'{each.name} ' for each in listed)}"
        yield f"kernel_launch_uid = {''.join(f'{each.uid} ' for each in listed)}"
        rows = _Rows()
        self._headline(rows, kernel, cycles, insns)
        self._core_caches(rows, kernel)
        self._counters(rows)
        self._memory(rows)
        self._l2(rows, kernel)
        self._network(rows)
        yield from rows.lines
        yield from ("", "", *clock_lines)
        self._seconds += 0.001
        self.blocks.append(_kernel(kernel, finished, rows.stats | clock_stats))

    def _headline(self, rows: _Rows, kernel: _Planned, cycles: int, insns: int) -> None:
        random = self._random
        if self.version == "dev":
            rows.row("kernel_stream_id = {}", kernel.stream)
        rows.row("gpu_sim_cycle = {}", cycles)
        rows.row("gpu_sim_insn = {}", insns)
        rows.row("gpu_ipc = {}", insns / cycles)
        rows.row("gpu_tot_sim_cycle = {}", self._cycles)
        rows.row("gpu_tot_sim_insn = {}", self._insns)
        rows.row("gpu_tot_ipc = {}", self._insns / self._cycles)
        rows.row("gpu_tot_issued_cta = {}", self._ctas)
        if self.version != "ptx":
            rows.row("gpu_occupancy = {}% ", random.uniform(1, 100) if insns else math.nan, width=1)
            rows.row("gpu_tot_occupancy = {}% ", random.uniform(1, 100), width=1)
            rows.row("max_total_param_size = {}", 0)
        rows.row("gpu_stall_dramfull = {}", random.randrange(100_000))
        rows.row("gpu_stall_icnt2sh    = {}", random.randrange(100_000))
        if self.version != "ptx":
            for name in ("partiton_level_parallism", "partiton_level_parallism_util"):
                rows.row(f"{name} = {{}}", random.uniform(0, 8) if insns else math.nan)
                rows.row(f"{name}_total  = {{}}", random.uniform(0, 8))
            rows.row("L2_BW  = {} GB/Sec", random.uniform(0, 2_000))
            rows.row("L2_BW_total  = {} GB/Sec", random.uniform(0, 2_000))
        rows.row("gpu_total_sim_rate={}", int(self._insns / max(1, int(self._seconds))))

    def _core_caches(self, rows: _Rows, kernel: _Planned) -> None:
        random = self._random
        rows.text("", "========= Core cache stats =========", "L1D_cache:")
        for core in range(self.cores):
            seen, missed = random.randrange(1, 50_000), random.randrange(500)
            rows.text(
                f"\tL1D_cache_core[{core}]: Access = {seen}, Miss = {missed}, Miss_rate = {missed / seen:.3f}, "
                f"Pending_hits = {random.randrange(99)}, Reservation_fails = {random.randrange(99)}"
            )
        self._cache(rows, "\tL1D")
        rows.text("", "Total_core_cache_stats:")
        self._breakdown(rows, "Total_core_cache_stats_breakdown", kernel)
        rows.text("", "Total_core_cache_fail_stats:")

    def _total(self, name: str, most: int) -> int:
        """The running total `name`, up to `most` more than a block ago."""
        self._totals[name] = self._totals.get(name, 0) + self._random.randrange(most)
        return self._totals[name]

    def _cache(self, rows: _Rows, cache: str) -> None:
        for name in ("accesses", "misses", "pending_hits", "reservation_fails"):
            rows.row(f"{cache}_total_cache_{name} = {{}}", self._total(f"{cache} {name}", 1_000_000))
        rows.row(f"{cache}_total_cache_miss_rate = {{}}", self._random.random(), width=1)
        rows.row(f"{cache}_cache_data_port_util = {{}}", self._random.random(), digits=3, width=1)

    def _breakdown(self, rows: _Rows, table: str, kernel: _Planned) -> None:
        stream = f"[Stream_{kernel.stream}]" if self.version == "stream-stats" else ""
        for access in _ACCESSES:
            for result in _RESULTS:
                name = f"{table}{stream}[{access}][{result}]"
                rows.row(f"\t{name} = {{}}", self._total(name, 200_000))

    def _counters(self, rows: _Rows) -> None:
        rows.text(f"ctas_completed {self._ctas}, Shader 0 warp_id issue ditsribution:", "warp_id:", "0, 1, 2, 3, ")
        rows.text("distro:", ", ".join(str(self._random.randrange(9_999)) for _ in range(4)) + ", ")
        for name in _COUNTERS:
            total = self._total(name, 2**29 if "icount" in name else 2**20)
            rows.row(f"{name} = {{}}", (total + 2**31) % 2**32 - 2**31)  # 32 bits, printed signed: it wraps
        rows.text("Warp Occupancy Distribution:")
        rows.text("\t".join(f"W{lanes}:{self._random.randrange(9_999)}" for lanes in range(1, 33)) + "\t")
        for way in ("coretomem", "memtocore"):
            rows.row(f"traffic_breakdown_{way}[GLOBAL_ACC_W] = {{}} {{40:1,}}", self._total(way, 99_999))
        for name in ("maxmflatency", "max_icnt2mem_latency", "maxmrqlatency", "max_icnt2sh_latency"):
            rows.row(f"{name} = {{}} ", self._random.randrange(5_000))
        rows.text("mrq_lat_table:" + "0 \t" * 32, "dq_lat_table:" + "0 \t" * 32)

    def _memory(self, rows: _Rows) -> None:
        random = self._random
        reads, writes = self._total("reads", 99_999) + 1, self._total("writes", 99_999) + 1
        rows.text("average row accesses per activate:")
        for partition in range(self.partitions):
            rows.text(f"dram[{partition}]: " + "".join(f"{random.uniform(1, 40):10.4f}" for _ in range(16)) + " ")
        rows.row(f"average row locality = {reads}/{writes} = {{}}", reads / writes, digits=6, width=1)
        rows.text("number of total memory accesses made:")
        rows.row("total dram reads = {}", reads)
        rows.row("min_bank_accesses = {}!", 0)
        rows.row("total dram writes = {}", writes)
        for partition in range(self.partitions):
            part = _Rows()
            self._partition(part, partition)
            rows.text(*part.lines)
            if partition == 0:
                rows.stats |= part.stats

    def _partition(self, rows: _Rows, number: int) -> None:
        random = self._random
        rows.text(f"Memory Partition {number}: ")
        for slice_ in (2 * number, 2 * number + 1):
            rows.text(f"Cache L2_bank_{slice_:03d}:", "MSHR contents", "")
        rows.text("In Dram Latency Queue (total = 0): ", f"DRAM[{number}]: 16 bks, busW=16 BL=2 CL=12, tRRD=3 tCCD=1")
        done = random.randrange(9_999)
        rows.text(f"n_cmd={done} n_nop={done} n_act=0 n_pre=0 n_req=0 n_rd=0 n_write=0 bw_util=0")
        rows.text(" ".join(f"bk{bank}: 0a {done}i" for bank in range(16)) + " ", "", "-" * 72, "")
        rows.row("Row_Buffer_Locality = {}", random.random(), digits=6, width=1)
        rows.row("Row_Buffer_Locality_write = {}", math.nan, digits=6, width=1)
        rows.row("Bank_Level_Parallism = {}", random.uniform(1, 4), digits=6, width=1)
        rows.row("GrpLevelPara = {} ", random.uniform(1, 4), digits=6, width=1)
        rows.text("", "BW Util details:")
        rows.row("bwutil = {} ", random.random(), digits=6, width=1)
        for name in _DRAM_COUNTERS:
            rows.row(f"{name} = {{}} ", random.randrange(99_999))
        rows.row("Row_Bus_Util =  {} ", random.random(), digits=6, width=1)
        rows.row("queue_avg = {} ", random.random(), digits=6, width=1)
        rows.text("", "dram_util_bins: 0 0 0 0 0 0 0 0 0 0", "dram_eff_bins: 0 0 0 0 0 0 0 0 0 0", "mrqq: max=0 avg=0")

    def _l2(self, rows: _Rows, kernel: _Planned) -> None:
        rows.text("", "========= L2 cache stats =========")
        for bank in range(2 * self.partitions):
            rows.text(f"L2_cache_bank[{bank}]: Access = 0, Miss = 0, Miss_rate = -nan, Pending_hits = 0")
        self._cache(rows, "L2")
        rows.text("L2_total_cache_breakdown:")
        self._breakdown(rows, "L2_cache_stats_breakdown", kernel)
        rows.text("L2_total_cache_reservation_fail_breakdown:", "")

    def _network(self, rows: _Rows) -> None:
        random = self._random
        for way in ("mem_to_simt", "simt_to_mem"):
            rows.row(f"icnt_total_pkts_{way}={{}}", self._total(way, 999_999))
        rows.text("LD_mem_lat_dist  " + "0 " * 24, "ST_mem_lat_dist  " + "0 " * 24, "")
        rows.text("-" * 28 + "Interconnect-DETAILS" + "-" * 32)
        for side in ("Req", "Reply"):
            rows.row(f"{side}_Network_injected_packets_num = {{}}", self._total(side, 999_999))
            rows.row(f"{side}_Network_cycles = {{}}", self._cycles)
            rows.row(f"{side}_Network_injected_packets_per_cycle = {{}} ", random.random())
            rows.row(f"{side}_Bank_Level_Parallism = {{}}", random.uniform(1, 4))
        rows.text("-" * 28 + "END-of-Interconnect-DETAILS" + "-" * 25)

    def _clock(self, rows: _Rows) -> None:
        """The last rows: time since the process began, and what it makes of it."""
        seconds = max(1, int(self._seconds))
        hours, rest = divmod(seconds, 3_600)
        spelt = f"{hours // 24} days, {hours % 24} hrs, {rest // 60} min, {rest % 60} sec"
        rows.row(f"gpgpu_simulation_time = {spelt} ({{}} sec)", seconds)
        for kind, total in (("inst", self._insns), ("cycle", self._cycles)):
            name = f"gpgpu_simulation_rate ({kind}/sec)"
            rows.row(f"gpgpu_simulation_rate = {{}} ({kind}/sec)", total // seconds, named=name)
        if self.version != "ptx":
            rate = self._cycles // seconds
            if rate:
                rows.row("gpgpu_silicon_slowdown = {}x", int(CLOCK_MHZ * 1e6 / rate))
            else:
                rows.text("gpgpu_silicon_slowdown = Nan")
                rows.stats["gpgpu_silicon_slowdown"] = None


def _kernel(kernel: _Planned, finished: bool, stats: dict[str, Any]) -> Kernel:
    """A block as a parser should return it."""
    return Kernel(
        name=kernel.name,
        launch_uid=kernel.uid,
        finished=finished,
        stream_id=stats.pop("kernel_stream_id", None),
        sim_cycles=stats.pop("gpu_sim_cycle"),
        sim_insns=stats.pop("gpu_sim_insn"),
        ipc=stats.pop("gpu_ipc"),
        tot_sim_cycles=stats.pop("gpu_tot_sim_cycle"),
        tot_sim_insns=stats.pop("gpu_tot_sim_insn"),
        tot_ipc=stats.pop("gpu_tot_ipc"),
        occupancy=stats.pop("gpu_occupancy", None),
        l2_bw_gbps=stats.pop("L2_BW", None),
        stats=stats,
    )


def generate(**options: Any) -> Iterator[str]:
    """The lines of a `SampleLog` of these options."""
    return SampleLog(**options).lines()
