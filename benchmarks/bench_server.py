"""The local server under load: heartbeats, chunks, a 64 MiB file, memory. Prints rows of a markdown table."""

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import load

SECONDS = 5.0
MIB = 1024 * 1024


class Server:
    """`cascade serve` on a free port with a data folder of its own."""

    def __init__(self, folder: str) -> None:
        self.token = secrets.token_urlsafe(16)
        env = {**os.environ, "CASCADE_TOKEN": self.token, "PORT": "0", "CASCADE_DATA_DIR": folder}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cascade.cli", "serve"], env=env, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        for line in self.process.stdout:
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found:
                self.url = found.group()
                return
        raise RuntimeError("the server did not start")

    def memory(self, field: str) -> float:
        """A field of /proc/PID/status in MiB, such as VmRSS or VmHWM."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+) kB", text)
        return int(found.group(1)) / 1024 if found else float("nan")

    def stop(self) -> None:
        """Stop it as Ctrl-C would."""
        self.process.terminate()
        self.process.wait(timeout=20)


def new_sims(connection: load.Connection, count: int) -> list[str]:
    """Ids of `count` queued sims."""
    run = connection.json("POST", "/api/runs", {"name": "bench", "sims": [{}] * count})
    assert isinstance(run, dict)
    return [sim["id"] for sim in run["sims"]]


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder)
        try:
            measure(server)
        finally:
            server.stop()


def measure(server: Server) -> None:
    """All rows."""
    setup = load.Connection(server.url, server.token)
    sims = new_sims(setup, 24)
    beat = json.dumps({"state": "running"}).encode()
    for _ in range(200):
        setup.call("POST", f"/api/sims/{sims[0]}/heartbeat", beat)
    beats = load.run(
        server.url, server.token, 8, SECONDS, lambda c, w, i: c.call("POST", f"/api/sims/{sims[w]}/heartbeat", beat)[0]
    )
    line = "Total_core_cache_stats_breakdown[GLOBAL_ACC_R][HIT] = {}"

    def chunk(connection: load.Connection, worker: int, i: int) -> int:
        body = json.dumps({"seq": i, "lines": [line.format(i * 200 + n) for n in range(200)]}).encode()
        return connection.call("POST", f"/api/sims/{sims[8 + worker]}/logs", body)[0]

    chunks = load.run(server.url, server.token, 8, SECONDS, chunk)
    idle = server.memory("VmRSS")
    body = os.urandom(64 * MIB)
    times = []
    for n in range(3):
        start = time.perf_counter()
        status, answer = setup.call("PUT", f"/api/sims/{sims[20 + n]}/files/big.bin", body, "application/octet-stream")
        times.append(time.perf_counter() - start)
        assert status == 200, answer
    peak = server.memory("VmHWM")
    print("| what | goal | measured |\n|---|---|---|")
    print(f"| heartbeats a second, 8 keep-alive connections | 300 | {beats.rate:.0f} |")
    print(f"| their p50 / p99 | p99 < 100 ms | {beats.p50:.1f} / {beats.p99:.1f} ms |")
    print(f"| chunks of 200 lines a second | 150 | {chunks.rate:.0f} |")
    print(f"| their p50 / p99 | | {chunks.p50:.1f} / {chunks.p99:.1f} ms |")
    print(f"| PUT of 64 MiB, median of 3 | 1.5 s | {sorted(times)[1]:.2f} s |")
    print(f"| peak memory over idle ({idle:.0f} MiB), in bodies of 64 MiB | 3 | {(peak - idle) / 64:.2f} |")


if __name__ == "__main__":
    main()
