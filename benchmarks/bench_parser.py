"""The log parser beside a bare loop over the same lines and beside a scraper with a regular expression a statistic.

On the real log `07-*` beside the checkout, or on a generated one.
"""

import json
import re
import statistics
import time
from collections.abc import Callable, Sequence

from cascade.sample_log import generate
from chalicelib.accelsim import Parser
from tests.e2e.shared import LOGS, lines_of

ROUNDS = 9
CHUNK = 200
PREFIXES = ("kernel_name", "kernel_launch_uid", "gpu_sim_cycle", "gpu_sim_insn", "gpu_tot_sim_cycle", "gpu_occupancy")
STATISTICS = (
    "kernel_name", "kernel_launch_uid", "gpu_sim_cycle", "gpu_sim_insn", "gpu_ipc", "gpu_tot_sim_cycle",
    "gpu_tot_sim_insn", "gpu_tot_ipc", "gpu_occupancy", "gpu_tot_occupancy", "L2_BW", "gpgpu_n_stall_shd_mem",
    "L2_total_cache_accesses", "L2_total_cache_misses", "total dram reads", "total dram writes",
)  # fmt: skip
PATTERNS = [re.compile(rf"^{re.escape(name)}\s*=\s*(.*?)\s*$") for name in STATISTICS]


def bare(lines: Sequence[str]) -> int:
    """What no parser in Python can do without."""
    found = 0
    for line in lines:
        if line.startswith(PREFIXES):
            found += 1
    return found


def scrape(lines: Sequence[str]) -> int:
    """A regular expression a statistic, as scripts around the simulator do it."""
    found = 0
    for line in lines:
        for pattern in PATTERNS:
            if pattern.search(line):
                found += 1
    return found


def whole(lines: Sequence[str]) -> int:
    """The parser with all lines at once."""
    kernels, _ = Parser().feed(lines)
    return len(kernels)


def chunked(lines: Sequence[str]) -> int:
    """The parser in chunks, its state written and read between them as the service does it."""
    state, found = Parser().to_state(), 0
    for start in range(0, len(lines), CHUNK):
        parser = Parser.from_state(json.loads(state))
        found += len(parser.feed(lines[start : start + CHUNK])[0])
        state = parser.to_state()
    return found


def main() -> None:
    """Measure and print."""
    real = [path for path in LOGS if path.name.startswith("07-")]
    lines = lines_of(real[0]) if real else list(generate(kernels=60, seed=7))
    source = f"`{real[0].name}`" if real else "a generated log"
    ways: dict[str, Callable[[Sequence[str]], int]] = {
        "bare loop, `startswith` with six prefixes": bare,
        "parser, all lines at once": whole,
        f"parser, chunks of {CHUNK} lines, state saved between": chunked,
        "a regular expression a statistic (16)": scrape,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way(lines)
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.process_time()
            way(lines)
            seconds[name].append(time.process_time() - start)
    base = seconds[next(iter(ways))]
    print(f"{len(lines):,} lines of {source}; CPU time, median of {ROUNDS} rounds in turns.\n")
    print("| what | goal | million lines a second | speed against the bare loop |\n|---|---|---|---|")
    for name, each in seconds.items():
        ratio = statistics.median(b / t for b, t in zip(base, each, strict=True))
        goal = "0.7" if name.startswith("parser, all") else ""
        print(f"| {name} | {goal} | {len(lines) / statistics.median(each) / 1e6:.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
