"""What the worker costs a simulator that prints 200 MB as fast as it can, against `> file`; and the worker's memory.

`CASCADE_BENCH_LOG_MB` sets another size.
"""

import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.bench_server import Server
from cascade.sample_log import generate

MB = 1_000_000
SIZE = int(os.environ.get("CASCADE_BENCH_LOG_MB", "200")) * MB
ROUNDS = 3
# Prints line by line, as a simulator does, and says how long that took.
SIMULATOR = """\
import os, sys, time
lines = open(sys.argv[1]).read().splitlines(keepends=True)
began, left, write = time.monotonic(), int(sys.argv[2]), sys.stdout.write
while left > 0:
    for line in lines:
        write(line)
    left -= sum(map(len, lines))
sys.stdout.flush()
open(sys.argv[3], "a").write(f"{time.monotonic() - began} {time.process_time()}\\n")
"""


def memory(pid: int) -> float:
    """Peak memory of a process in MiB; nan where there is no /proc."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return float("nan")
    return int(found.group(1)) / 1024 if found else float("nan")


def main() -> None:
    """Measure and print."""
    token = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory() as folder:
        server = Server([sys.executable, "-m", "cascade.cli", "serve"], folder, token)
        try:
            measure(server, token, Path(folder))
        finally:
            server.stop()


def measure(server: Server, token: str, folder: Path) -> None:
    """All rows."""
    (folder / "lines.txt").write_text("\n".join(generate(kernels=40, seed=3)) + "\n")
    (folder / "simulator.py").write_text(SIMULATOR)
    plain, relayed, peaks, delivered = folder / "plain.txt", folder / "relayed.txt", [], []
    command = [sys.executable, str(folder / "simulator.py"), str(folder / "lines.txt"), str(SIZE)]
    env = {**os.environ, "CASCADE_URL": server.url, "CASCADE_TOKEN": token, "CASCADE_SPOOL_DIR": str(folder / "spool")}
    for number in range(ROUNDS):
        with (folder / "out").open("wb") as out:
            subprocess.run([*command, str(plain)], stdout=out, check=True)
        options = ["--sim", server.sims[number], "--success", "exit-code", "--", *command, str(relayed)]
        began = time.perf_counter()
        worker = subprocess.Popen(
            [sys.executable, "-m", "cascade.cli", "worker", *options], env=env, stderr=subprocess.DEVNULL
        )
        peak, over = [0.0], threading.Event()

        def watch(pid: int = worker.pid, peak: list[float] = peak, over: threading.Event = over) -> None:
            while not over.wait(0.05):
                peak[0] = max(peak[0], memory(pid))

        thread = threading.Thread(target=watch)
        thread.start()
        assert worker.wait() == 0
        over.set()
        thread.join()
        peaks.append(peak[0])
        delivered.append(time.perf_counter() - began)
    wall, cpu = zip(*([float(x) for x in line.split()] for line in plain.read_text().splitlines()), strict=True)
    wall_r, cpu_r = zip(*([float(x) for x in line.split()] for line in relayed.read_text().splitlines()), strict=True)
    cost = statistics.median(b / a for a, b in zip(wall, wall_r, strict=True)) - 1
    cost_cpu = statistics.median(b / a for a, b in zip(cpu, cpu_r, strict=True)) - 1
    print("| what | goal | measured |\n|---|---|---|")
    print(f"| simulator that prints {SIZE // MB} MB, `> file`, s | | {statistics.median(wall):.2f} |")
    print(f"| the same under `cascade worker`, s | | {statistics.median(wall_r):.2f} |")
    print(f"| cost in its time | under 5 % | {cost * 100:+.1f} % |")
    print(f"| cost in its CPU time | | {cost_cpu * 100:+.1f} % |")
    print(f"| worker's peak memory, MiB | 100 | {max(peaks):.0f} |")
    print(f"| until everything was delivered and parsed, s | | {statistics.median(delivered):.1f} |")


if __name__ == "__main__":
    main()
