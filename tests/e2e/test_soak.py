"""A steady load of mixed calls for a while: memory, threads and open files stay what they are.

`CASCADE_SOAK_SECONDS=600 pytest tests/e2e/test_soak.py -s` is the long form; it prints what it saw.
"""

import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from cascade.sample_log import SampleLog
from cascade.serve.gateway import THREADS
from tests.e2e.server import Server

SECONDS = float(os.environ.get("CASCADE_SOAK_SECONDS", "20"))
WARM_UP_SECONDS = min(60.0, SECONDS / 3)
"""Until then every kind of call was made often, and what is made once is there."""
CLIENTS = 8
CALLS_PER_SECOND = 80.0
"""Of all clients: what two slow cores answer with time to spare."""
SEED = 20261201
KIB_AN_HOUR = 6_000
"""Growth that counts as none: a seventh of a KB for each run of its hundreds that came and went."""
SLACK_KIB = 4_000
"""The allocator's share, whatever the time."""

# The real server, but for a deleted run, which it remembers for a quarter of an hour: longer than this test, which would
# see nothing but that.
FORGETFUL = """
from chalicelib import runs
runs.ABANDONED_US = 5_000_000
from cascade.serve.server import run
run()
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 2 * SECONDS)]

LOG = list(SampleLog(kernels=3, seed=1).lines())
CHUNKS = [LOG[i : i + 50] for i in range(0, len(LOG), 50)]


@dataclass(frozen=True)
class Sample:
    """What the server's process holds at a time."""

    at: float
    rss_kib: int
    threads: int
    files: int


def sample(server: Server, began: float) -> Sample:
    process = Path(f"/proc/{server.process.pid}")
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    files = len(os.listdir(process / "fd"))
    return Sample(time.monotonic() - began, int(status["VmRSS"].split()[0]), int(status["Threads"]), files)


def life(client: httpx.Client, rng: random.Random, pace: "Pace", calls: Counter[str]) -> None:
    """A run of two sims from its creation to its deletion, with what goes wrong in between."""

    def call(method: str, path: str, expected: int, **more: object) -> httpx.Response:
        pace.wait()
        answer = client.request(method, path, **more)  # type: ignore[arg-type]
        assert answer.status_code in (expected, 503), (method, path, answer.status_code, answer.text[:200])
        calls[f"{method} {path.split('?')[0].rsplit('/', 1)[-1][:12] if '/api/' in path else path}"] += 1
        return answer

    created = call("POST", "/api/runs", 201, json={"name": "soak", "sims": [{"params": {"n": rng.random()}}] * 2})
    run = created.json()["id"]
    claimed = call("POST", f"/api/runs/{run}/claim", 200, json={"worker": "w"}).json()["id"]
    url = f"/api/sims/{claimed}"
    for seq, lines in enumerate(CHUNKS):
        call("POST", f"{url}/logs", 204, json={"seq": seq, "lines": lines})
        call("POST", f"{url}/heartbeat", 200, json={"state": "running"})
    call("POST", f"{url}/logs", 204, json={"seq": len(CHUNKS), "lines": [rng.randbytes(20_000).hex()]})
    for size in (0, 1000, 300_000):
        call("PUT", f"{url}/files/f{size}", 200, content=rng.randbytes(size))
    call("PUT", f"{url}/files/f0", 200, content=b"again")
    call("POST", f"{url}/step-timeline", 204, json={"simulated": {"steps": [rng.random()] * 5000, "summary": {}}})
    for part in ("", "/logs", "/logs?tail=5", "/kernels", "/kernels.csv", "/files", "/files/f300000", "/step-timeline"):
        call("GET", url + part, 200)
    for path in ("/", "/api/runs", "/api/health", "/api/openapi.json", f"/api/runs/{run}", f"/api/runs/{run}/params"):
        call("GET", path, 200)
    call("GET", "/api/nothing", 404)
    call("GET", "/api/sims/sim-000000000000", 404)
    call("POST", f"{url}/heartbeat", 422, content=b"{", headers={"Content-Type": "application/json"})
    call("PUT", f"{url}/files/%2e%2e", 422, content=b"x")
    call("GET", "/api/runs", 401, headers={"Authorization": "Bearer wrong"})
    call("POST", f"{url}/heartbeat", 200, json={"state": "running"})
    call("DELETE", f"/api/runs/{run}", 409)
    call("POST", f"{url}/heartbeat", 200, json={"state": "failed", "exit_code": 1, "error": "e" * 2000})
    call("POST", f"/api/runs/{run}/cancel", 200)
    call("DELETE", f"/api/runs/{run}", 204)
    call("GET", url, 404)


class Over(Exception):
    """The time is up."""


class Pace:
    """Lets through so many calls a second, of all clients together, until the time is up."""

    def __init__(self, per_second: float, until: float) -> None:
        self.gap = 1 / per_second
        self.until = until
        self.next = time.monotonic()
        self.lock = threading.Lock()

    def wait(self) -> None:
        with self.lock:
            self.next = max(self.next, time.monotonic() - 1) + self.gap
            due = self.next
        if due > self.until:
            raise Over
        time.sleep(max(0.0, due - time.monotonic()))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_under_a_steady_load_nothing_grows(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", CASCADE_HEARTBEAT_TIMEOUT_S="8")
    server.arguments = ["-c", FORGETFUL]
    with server:
        began = time.monotonic()
        pace, calls, samples = Pace(CALLS_PER_SECOND, began + SECONDS), Counter[str](), list[Sample]()

        def work(n: int) -> None:
            rng = random.Random(f"{SEED} {n}")
            with suppress(Over):
                while True:
                    # Connections come and go, too.
                    with server.client() as client:
                        life(client, rng, pace, calls)

        with ThreadPoolExecutor(CLIENTS) as pool:
            workers = [pool.submit(work, n) for n in range(CLIENTS)]
            while time.monotonic() - began < SECONDS and not any(worker.done() for worker in workers):
                samples.append(sample(server, began))
                time.sleep(0.5)  # twice a second
            for worker in workers:
                worker.result()
        warm = [s for s in samples if s.at >= WARM_UP_SECONDS]
        third = len(warm) // 3
        first, last = warm[:third], warm[-third:]
        print(f"\n{sum(calls.values())} calls in {SECONDS:.0f} s; at the start of each of six parts, and at the end:")
        for s in [*warm[:: max(1, len(warm) // 6)], warm[-1]]:
            print(f"{s.at:5.0f} s  {s.rss_kib / 1024:6.1f} MiB  {s.threads} threads  {s.files} open files")
        print(
            f"most of the first third {max(s.rss_kib for s in first)} KiB, of the last {max(s.rss_kib for s in last)} KiB"
        )

        hours = (last[-1].at - first[-1].at) / 3600
        grown = max(s.rss_kib for s in last) - max(s.rss_kib for s in first)
        assert grown <= SLACK_KIB + KIB_AN_HOUR * hours
        # A pool makes its threads as calls meet each other, so a few may come late; files are those of connections.
        assert max(s.threads for s in last) <= min(max(s.threads for s in first) + 4, THREADS + 8)
        assert max(s.files for s in last) <= max(s.files for s in first) + CLIENTS
        assert server.stop() == 0
    assert [line for line in server.output[2:] if "Ctrl+C again" not in line] == []
