"""The local server under load, beside the same endpoints on FastAPI and SQLite (benchmarks/baseline), in turns."""

import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import load

SECONDS = 3.0
ROUNDS = 3
CONNECTIONS = 8
MIB = 1024 * 1024
LINE = "Total_core_cache_stats_breakdown[GLOBAL_ACC_R][HIT] = {}"


class Server:
    """A server in a process of its own, with a data folder of its own, that prints its URL."""

    def __init__(self, command: list[str], folder: str, token: str) -> None:
        env = {**os.environ, "CASCADE_TOKEN": token, "PORT": "0", "CASCADE_DATA_DIR": folder}
        self.token = token
        self.next_seq = [0] * CONNECTIONS
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        for line in self.process.stdout:
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found:
                self.url = found.group()
                break
        else:
            raise RuntimeError(f"{command} did not start")
        run = load.Connection(self.url, token).json(
            "POST", "/api/runs", {"name": "bench", "sims": [{}] * (2 * CONNECTIONS + 1)}
        )
        assert isinstance(run, dict)
        self.sims = [sim["id"] for sim in run["sims"]]

    def memory(self, field: str) -> float:
        """A field of /proc/PID/status in MiB, such as VmRSS or VmHWM; nan where there is no /proc."""
        path = Path(f"/proc/{self.process.pid}/status")
        found = re.search(rf"{field}:\s+(\d+) kB", path.read_text()) if path.exists() else None
        return int(found.group(1)) / 1024 if found else float("nan")

    def stop(self) -> None:
        """Stop it as Ctrl-C would."""
        self.process.terminate()
        self.process.wait(timeout=20)

    def heartbeats(self) -> load.Load:
        """Heartbeats on all connections, one sim each."""
        body = json.dumps({"state": "running"}).encode()

        def beat(connection: load.Connection, worker: int, _: int) -> int:
            return connection.call("POST", f"/api/sims/{self.sims[worker]}/heartbeat", body)[0]

        return load.run(self.url, self.token, CONNECTIONS, SECONDS, beat)

    def chunk_load(self) -> load.Load:
        """Chunks of 200 lines, in order, on all connections, one sim each."""

        def chunk(connection: load.Connection, worker: int, i: int) -> int:
            seq = self.next_seq[worker]
            self.next_seq[worker] += 1
            body = json.dumps({"seq": seq, "lines": [LINE.format(i * 200 + n) for n in range(200)]}).encode()
            return connection.call("POST", f"/api/sims/{self.sims[CONNECTIONS + worker]}/logs", body)[0]

        return load.run(self.url, self.token, CONNECTIONS, SECONDS, chunk)

    def mixed(self) -> load.Load:
        """Heartbeats, while chunks are sent on as many connections again."""
        with ThreadPoolExecutor(1) as other:
            chunks = other.submit(self.chunk_load)
            beats = self.heartbeats()
            chunks.result()
        return beats

    def upload(self, body: bytes) -> float:
        """Seconds of one PUT."""
        connection = load.Connection(self.url, self.token)
        start = time.perf_counter()
        path = f"/api/sims/{self.sims[-1]}/files/big.bin"
        status, answer = connection.call("PUT", path, body, "application/octet-stream")
        assert status == 200, answer
        took = time.perf_counter() - start
        connection.socket.close()
        return took


def main() -> None:
    """Measure and print."""
    token = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as plain:
        servers = {
            "cascade": Server([sys.executable, "-m", "cascade.cli", "serve"], ours, token),
            "plain": Server([sys.executable, "-m", "benchmarks.baseline.server", plain, token], plain, token),
        }
        try:
            measure(servers)
        finally:
            for server in servers.values():
                server.stop()


def measure(servers: dict[str, Server]) -> None:
    """All rows."""
    beats: dict[str, list[load.Load]] = {name: [] for name in servers}
    chunks: dict[str, list[load.Load]] = {name: [] for name in servers}
    both: dict[str, list[load.Load]] = {name: [] for name in servers}
    puts: dict[str, list[float]] = {name: [] for name in servers}
    for server in servers.values():
        server.heartbeats()  # warm
    for _ in range(ROUNDS):
        for name, server in servers.items():
            beats[name].append(server.heartbeats())
    for _ in range(ROUNDS):
        for name, server in servers.items():
            chunks[name].append(server.chunk_load())
    for _ in range(ROUNDS):
        for name, server in servers.items():
            both[name].append(server.mixed())
    idle = {name: server.memory("VmRSS") for name, server in servers.items()}
    body = os.urandom(64 * MIB)
    for _ in range(ROUNDS):
        for name, server in servers.items():
            puts[name].append(server.upload(body))
    peak = {name: server.memory("VmHWM") - idle[name] for name, server in servers.items()}
    print(
        f"{CONNECTIONS} keep-alive connections; each number the median of {ROUNDS} rounds of {SECONDS:.0f} s in turns.\n"
    )
    print("| what | goal | Cascade | plain FastAPI + SQLite | ratio |\n|---|---|---|---|---|")

    def rows(title: str, goals: tuple[str, str], loads: dict[str, list[load.Load]]) -> None:
        rate = {name: statistics.median(x.rate for x in each) for name, each in loads.items()}
        p50 = {name: statistics.median(x.p50 for x in each) for name, each in loads.items()}
        p99 = {name: statistics.median(x.p99 for x in each) for name, each in loads.items()}
        for what, goal, value in (
            (f"{title} a second", goals[0], rate),
            ("their p50, ms", "", p50),
            ("their p99, ms", goals[1], p99),
        ):
            print(
                f"| {what} | {goal} | {value['cascade']:.1f} | {value['plain']:.1f} | {value['cascade'] / value['plain']:.2f} |"
            )

    rows("heartbeats", ("300, and the plain one's", "under 100"), beats)
    rows("chunks of 200 lines", ("150", ""), chunks)
    rows("heartbeats beside such chunks on 8 more connections,", ("", "under 100"), both)
    put = {name: statistics.median(each) for name, each in puts.items()}
    print(
        f"| PUT of 64 MiB, s | 1.5 | {put['cascade']:.2f} | {put['plain']:.2f} | {put['cascade'] / put['plain']:.2f} |"
    )
    print(
        f"| peak memory over idle during it, bodies of 64 MiB | 3 | {peak['cascade'] / 64:.2f} | {peak['plain'] / 64:.2f} "
        f"| {peak['cascade'] / peak['plain']:.2f} |"
    )
    print(
        f"| memory before it, MiB | | {idle['cascade']:.0f} | {idle['plain']:.0f} | {idle['cascade'] / idle['plain']:.2f} |"
    )


if __name__ == "__main__":
    main()
