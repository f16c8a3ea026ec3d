"""Sixteen simulators report to a server that is killed again and again: whatever was answered is there.

`CASCADE_CRASH_KILLS=20 pytest tests/e2e/test_crash.py` is the long form.
"""

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from cascade.sample_log import SampleLog
from chalicelib.accelsim import Parser
from tests.e2e.server import Server
from tests.waiting import eventually

KILLS = int(os.environ.get("CASCADE_CRASH_KILLS", "3"))
SEED = os.environ.get("CASCADE_CRASH_SEED", "20261201")
SIMULATORS = 16
SIMS = 1000

pytestmark = pytest.mark.timeout(300 + 60 * KILLS)

LOGS = [list(SampleLog(kernels=5, seed=seed).lines()) for seed in range(4)]
"""A kernel each hundred lines or so."""


@dataclass
class Sim:
    """What one simulator sent of its sim. What is in doubt was sent and not answered: it may have happened or not."""

    id: str
    worker: str
    chunks: list[list[str]]
    waiting: list[int]
    answered: set[int] = field(default_factory=set)
    files: dict[str, bytes] = field(default_factory=dict)
    files_in_doubt: dict[str, set[bytes]] = field(default_factory=dict)
    timings: list[Any] = field(default_factory=list)
    """The one that was answered last, and those in doubt since."""
    end: dict[str, Any] | None = None
    ended: bool = False


class Simulator:
    """A client that goes on after each crash where it was, and sends again what was not answered."""

    def __init__(self, n: int, run: str) -> None:
        self.name = f"simulator {n}"
        self.rng = random.Random(f"{SEED} {n}")
        self.run = run
        self.sims: list[Sim] = []
        self.claims = 0
        self.runs: dict[str, int] = {}
        self.deleted: set[str] = set()

    def step(self, client: httpx.Client) -> None:
        """One call."""
        rng, sim = self.rng, self.sims[-1] if self.sims else None
        kind = rng.random()
        if sim is None or sim.ended:
            self.claim(client)
        elif kind < 0.35 and sim.waiting:
            seq = sim.waiting[min(rng.randrange(4), len(sim.waiting) - 1)]
            self.call(client, f"/api/sims/{sim.id}/logs", {"seq": seq, "lines": sim.chunks[seq]})
            sim.waiting.remove(seq)
            sim.answered.add(seq)
        elif kind < 0.55:
            name, data = f"f{rng.randrange(3)}", rng.randbytes(rng.choice([0, 10, 200_000]))
            doubt = sim.files_in_doubt.setdefault(name, set())
            doubt.add(data)
            client.put(f"/api/sims/{sim.id}/files/{name}", content=data).raise_for_status()
            sim.files[name] = data
            doubt.clear()
        elif kind < 0.65:
            timing = {"steps": [rng.random() for _ in range(rng.choice([1, 20_000]))], "summary": {"n": rng.random()}}
            sim.timings.append(timing)
            self.call(client, f"/api/sims/{sim.id}/step-timeline", {"simulated": timing})
            sim.timings = [timing]
        elif kind < 0.70:
            self.operate(client)
        elif not sim.waiting:
            if sim.end is None:
                error = rng.choice(["", "e" * 3000])
                sim.end = {"state": rng.choice(["succeeded", "failed"]), "exit_code": rng.randrange(9), "error": error}
            ack = self.call(client, f"/api/sims/{sim.id}/heartbeat", sim.end).json()
            assert ack["state"] == sim.end["state"]
            sim.ended = True
        else:
            ack = self.call(client, f"/api/sims/{sim.id}/heartbeat", {"state": "running"}).json()
            assert ack == {"state": "running", "cancel": False}

    def call(self, client: httpx.Client, path: str, body: Any, key: str | None = None) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        return client.post(path, json=body, headers=headers).raise_for_status()

    def claim(self, client: httpx.Client) -> None:
        key = f"{self.name} {self.claims}"
        answer = self.call(client, f"/api/runs/{self.run}/claim", {"worker": self.name}, key)
        self.claims += 1
        lines = self.rng.choice(LOGS)
        size = self.rng.choice([60, 120])
        chunks = [lines[i : i + size] for i in range(0, len(lines), size)]
        self.sims.append(Sim(answer.json()["id"], self.name, chunks, list(range(len(chunks)))))

    def operate(self, client: httpx.Client) -> None:
        """Create a run, or delete one."""
        if len(self.runs) < 3:
            name = f"{self.name} {len(self.runs) + len(self.deleted)}"
            run = self.call(client, "/api/runs", {"name": name, "sims": [{}] * 3}, name).json()
            self.runs[run["id"]] = len(run["sims"])
        else:
            run_id = next(iter(self.runs))
            client.delete(f"/api/runs/{run_id}").raise_for_status()
            del self.runs[run_id]
            self.deleted.add(run_id)


def kernels_of(chunks: list[list[str]]) -> list[tuple[Any, ...]]:
    parser = Parser()
    found = parser.feed([line for chunk in chunks for line in chunk])[0]
    tail = parser.tail()
    return [(kernel["name"], kernel["tot_sim_cycles"]) for kernel in ([*found, tail] if tail else found)]


def check(client: httpx.Client, sim: Sim, data_dir: Path, whole: bool = False) -> None:
    """Compare what the server has of a sim with what it answered; `whole` when nothing is in doubt any more."""
    url = f"/api/sims/{sim.id}"
    shown = client.get(url).raise_for_status().json()
    assert shown["worker"] == sim.worker
    if sim.ended:
        assert sim.end == {name: shown[name] for name in ("state", "exit_code", "error")}
    else:
        assert shown["state"] in {"running", sim.end["state"] if sim.end else "running"}

    stored = {c["seq"]: c["lines"] for c in client.get(f"{url}/logs", params={"limit": 1000}).json()["chunks"]}
    assert sim.answered <= stored.keys()
    assert all(lines == sim.chunks[seq] for seq, lines in stored.items())
    found = client.get(f"{url}/kernels").raise_for_status().json()["kernels"]
    kernels = [(kernel["name"], kernel["tot_sim_cycles"]) for kernel in found]
    count = len(sim.chunks)
    answered = next((seq for seq in range(count) if seq not in sim.answered), count)
    there = next((seq for seq in range(count) if seq not in stored), count)
    # A chunk that is stored and was not answered is parsed when it is sent again, or with the next one.
    assert kernels in [kernels_of(sim.chunks[:n]) for n in range(answered, there + 1)]
    if whole:
        assert (sorted(stored), answered) == (list(range(count)), count)

    for name, data in sim.files.items():
        found_bytes = client.get(f"{url}/files/{name}").raise_for_status().content
        # A put that was not answered may have happened, or have come as far as its bytes.
        assert found_bytes in {data, *sim.files_in_doubt[name]}, name
        assert (data_dir / "files" / sim.id / name).read_bytes() in {found_bytes, *sim.files_in_doubt[name]}
    listed = client.get(f"{url}/files").json()
    assert sim.files.keys() <= {file["name"] for file in listed} <= sim.files_in_doubt.keys()
    assert shown["files"] == {"count": len(listed), "bytes": sum(file["size"] for file in listed)}

    timing = client.get(f"{url}/step-timeline")
    if timing.status_code == 404:
        assert not sim.timings or shown["step_timeline"] is False
    else:
        assert timing.json()["simulated"] in sim.timings


@pytest.mark.slow
def test_killed_under_the_load_of_sixteen_simulators_it_keeps_whatever_it_answered(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print(f"CASCADE_CRASH_SEED={SEED}")
    server = Server(tmp_path / "data")
    with server, server.client() as client:
        run = client.post("/api/runs", json={"name": "crash", "sims": [{}] * SIMS}).raise_for_status().json()["id"]
    simulators = [Simulator(n, run) for n in range(SIMULATORS)]
    answers = 0
    lock = threading.Lock()

    def work(simulator: Simulator) -> None:
        nonlocal answers
        with server.client() as own:
            while True:
                try:
                    simulator.step(own)
                except httpx.TransportError:
                    return
                except httpx.HTTPStatusError as error:
                    if error.response.status_code != 503:  # busy: sent again, as every client does
                        raise
                    continue
                with lock:
                    answers += 1

    for kill in range(KILLS):
        server.start()
        wanted = answers + rng.randrange(100, 600)
        with ThreadPoolExecutor(SIMULATORS) as pool:
            workers = [pool.submit(work, simulator) for simulator in simulators]
            # A worker that ends before the kill has found something.
            eventually(
                lambda wanted=wanted, workers=workers: answers >= wanted or any(worker.done() for worker in workers),
                "enough was answered",
                120,
            )
            server.kill()
            for worker in workers:
                worker.result()
        with server, server.client() as client:
            for simulator in simulators:
                # Those that ended long ago were looked at after the kill before.
                for sim in simulator.sims[-3:]:
                    check(client, sim, tmp_path / "data")
                for run_id, count in simulator.runs.items():
                    # A deletion that was not answered may have happened.
                    shown = client.get(f"/api/runs/{run_id}")
                    first = run_id == next(iter(simulator.runs)) and len(simulator.runs) == 3
                    assert shown.status_code == 200 or first
                    assert shown.status_code == 404 or len(shown.json()["sims"]) == count
                for run_id in simulator.deleted:
                    assert client.get(f"/api/runs/{run_id}").status_code == 404
        print(f"kill {kill + 1}: {answers} answers so far, {sum(len(s.sims) for s in simulators)} sims claimed")

    # In the end, after everything was sent again, it is as if there had been no crash.
    with server, server.client() as client:
        for simulator in simulators:
            if simulator.sims:
                finish(client, simulator.sims[-1])
            for sim in simulator.sims:
                check(client, sim, tmp_path / "data", whole=True)
        claimed = [sim.id for simulator in simulators for sim in simulator.sims]
        assert len(set(claimed)) == len(claimed)
        counts = client.get(f"/api/runs/{run}").json()["counts"]
        # A claim that was not answered took its sim all the same, for the worker that would have sent it again.
        assert 0 <= SIMS - counts["queued"] - len(claimed) <= SIMULATORS


def finish(client: httpx.Client, sim: Sim) -> None:
    """Send what is left of a sim."""
    for seq in sim.waiting:
        client.post(f"/api/sims/{sim.id}/logs", json={"seq": seq, "lines": sim.chunks[seq]}).raise_for_status()
        sim.answered.add(seq)
    for name, doubt in sim.files_in_doubt.items():
        sim.files[name] = name.encode()
        client.put(f"/api/sims/{sim.id}/files/{name}", content=sim.files[name]).raise_for_status()
        doubt.clear()
    sim.end = sim.end or {"state": "succeeded", "exit_code": 0, "error": "x"}
    ack = client.post(f"/api/sims/{sim.id}/heartbeat", json=sim.end).raise_for_status().json()
    assert ack["state"] == sim.end["state"]
    sim.ended = True
