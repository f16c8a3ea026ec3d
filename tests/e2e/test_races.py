"""Calls at the same time, over real sockets: each of them may win, and all that is said afterwards agrees.

`CASCADE_RACE_ROUNDS=300 pytest tests/e2e/test_races.py` is the long form. A test that fails shows its seed and round;
`CASCADE_RACE_SEED` gives the same requests in the same order again.
"""

import hashlib
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cascade.sample_log import SampleLog
from chalicelib import settings
from tests.e2e import disk
from tests.e2e.racing import Answer, Call, Racers, racers
from tests.e2e.server import Server
from tests.waiting import eventually

ROUNDS = int(os.environ.get("CASCADE_RACE_ROUNDS", "30"))
SEED = os.environ.get("CASCADE_RACE_SEED", "20261201")
MANY = 16

MIB = 1024 * 1024
QUOTA = 40_000
"""Bytes of files a sim may hold on the server with small limits."""

pytestmark = pytest.mark.timeout(300 + 10 * ROUNDS)

# The real server, with limits that a test can reach and leftovers that it can wait for.
SMALL = f"""
from chalicelib import files, runs, settings
settings.FILE_MAX_BYTES, settings.SIM_FILES_MAX_BYTES = {QUOTA // 2}, {QUOTA}
files.HOLD_US = runs.ABANDONED_US = 3_000_000
from cascade.serve.server import run
run()
"""


def rounds(name: str, count: int = ROUNDS) -> Iterator[random.Random]:
    """What each round of a test takes its choices from. What is printed is shown when the test fails."""
    for n in range(count):
        print(f"CASCADE_RACE_SEED={SEED}, round {n} of {name}")
        yield random.Random(f"{SEED} {name} {n}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data")) as running:
        yield running
    complaints = [line for line in running.output[2:] if "Ctrl+C again" not in line]
    assert not complaints, "".join(complaints)


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("small"), CASCADE_HEARTBEAT_TIMEOUT_S="2")
    server.arguments = ["-c", SMALL]
    with server:
        yield server
    complaints = [line for line in server.output[2:] if "Ctrl+C again" not in line]
    assert not complaints, "".join(complaints)


@pytest.fixture
def crowd(server: Server) -> Iterator[Racers]:
    with racers(server, MANY) as made:
        yield made


@pytest.fixture
def small_crowd(small_server: Server) -> Iterator[Racers]:
    with racers(small_server, MANY) as made:
        yield made


def beat(sim: str, state: str, **more: Any) -> Call:
    return Call("POST", f"/api/sims/{sim}/heartbeat", {"state": state, **more})


def statuses(answers: list[Answer]) -> Counter[int]:
    return Counter(answer.status for answer in answers)


# Ends.


def test_one_of_many_ends_wins_and_every_answer_says_it(crowd: Racers) -> None:
    for rng in rounds("ends"):
        _, (sim,) = crowd.new_run()
        if rng.random() < 0.5:
            crowd.ask("POST", f"/api/sims/{sim}/heartbeat", {"state": "running"})
        ends: list[Call] = []
        for n in range(MANY - 2):
            kind = rng.choice(["succeeded", "failed", "cancel"])
            if kind == "cancel":
                ends.append(Call("POST", f"/api/sims/{sim}/cancel"))
            else:
                # Half of the errors have an item of their own.
                ends.append(beat(sim, kind, exit_code=n, error=f"{n} " + "e" * rng.choice([0, 3000])))
        answers = crowd.race(rng, *ends, beat(sim, "running"), Call("GET", f"/api/sims/{sim}"))
        assert statuses(answers) == {200: MANY}
        shown = crowd.ask("GET", f"/api/sims/{sim}").json()
        assert {answer.json()["state"] for answer in answers[:-2]} == {shown["state"]}
        assert {answer.json()["state"] for answer in answers[-2:]} <= {"queued", "running", shown["state"]}
        if shown["state"] == "cancelled":
            assert (shown["exit_code"], shown["error"]) == (None, None)
        else:
            # Exit code, error and state are of one and the same call.
            won = ends[shown["exit_code"]].body
            assert (won["state"], won["error"]) == (shown["state"], shown["error"])
        late = crowd.race(rng, *ends, beat(sim, "running"))
        assert {answer.json()["state"] for answer in late} == {shown["state"]}
        assert crowd.ask("GET", f"/api/sims/{sim}").json() == shown


# The sweep.


TIMEOUT_S = 0.4
SILENT, BEATEN = 16, 160


def test_the_sweep_takes_the_silent_and_never_one_that_was_heard(tmp_path: Path) -> None:
    """Beats arrive from eight threads about as often as silence is allowed to last, while the sweep runs each second."""
    seconds = max(6.0, ROUNDS / 5)
    with Server(tmp_path / "data", CASCADE_HEARTBEAT_TIMEOUT_S=str(TIMEOUT_S)) as server:
        with racers(server, 1) as one:
            _, sims = one.new_run(SILENT + BEATEN)
            beaten = sims[SILENT:]
            for sim in sims:
                one.ask("POST", f"/api/sims/{sim}/heartbeat", {"state": "running"})
        began, until = time.monotonic(), time.monotonic() + seconds
        ended, checks = dict[str, str](), Counter[str]()

        def keep(n: int) -> None:
            rng = random.Random(f"{SEED} sweep {n}")
            own = beaten[n::8]
            heard = dict[str, float]()
            with racers(server, 1) as one:
                while time.monotonic() < until:
                    sim = rng.choice(own)
                    if sim not in ended and rng.random() < 0.002:
                        state = one.ask("POST", f"/api/sims/{sim}/heartbeat", {"state": "succeeded"}).json()["state"]
                        assert state == "succeeded"
                        ended[sim] = state
                    sent = time.monotonic()
                    state = one.ask("POST", f"/api/sims/{sim}/heartbeat", {"state": "running"}).json()["state"]
                    assert state == ended.get(sim, "running")
                    heard[sim] = sent
                    # Heard at once, and for as long as it may be silent: the sweep may have looked at it before it was.
                    for look in (sim, rng.choice(own)):
                        shown = one.ask("GET", f"/api/sims/{look}").json()["state"]
                        if time.monotonic() - heard.get(look, 0) < TIMEOUT_S:
                            assert shown == ended.get(look, "running"), f"{look} was heard and is {shown}"
                            checks["heard"] += 1
                        checks[shown] += 1

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(keep, n) for n in range(8)]:
                done.result()
        assert time.monotonic() - began > 5, "the sweep ran some times"
        # It was a race: sims were found on both sides of the timeout, and most checks were in time.
        assert checks["lost"] > 10
        assert checks["heard"] > 100

        wanted = {sim: ended.get(sim, "lost") for sim in sims}
        eventually(lambda: disk.states(server.data_dir) == wanted, "all others are silent now, and written lost")


# One log.


def test_sixteen_writers_of_one_seq_leave_one_chunk_whole(crowd: Racers, server: Server) -> None:
    logs = [list(SampleLog(kernels=1, seed=seed).lines()) for seed in range(4)]
    for rng in rounds("writers"):
        _, (sim,) = crowd.new_run()
        url = f"/api/sims/{sim}/logs"
        # From a few bytes to what is kept as an object.
        sent = [[f"writer {n}", *rng.choice(logs), rng.randbytes(rng.choice([1, 20_000])).hex()] for n in range(MANY)]
        answers = crowd.race(rng, *[Call("POST", url, {"seq": 0, "lines": lines}) for lines in sent])
        assert statuses(answers) == {204: MANY}
        (stored,) = crowd.ask("GET", url).json()["chunks"]
        assert stored["seq"] == 0
        assert stored["lines"] in sent
        (kernel,) = crowd.ask("GET", f"/api/sims/{sim}/kernels").json()["kernels"]
        assert f"gpu_tot_sim_cycle = {kernel['tot_sim_cycles']}" in stored["lines"]
        log = crowd.ask("GET", f"/api/sims/{sim}").json()["log"]
        size = sum(len(line) for line in stored["lines"])
        assert log == {"chunks": 1, "lines": len(stored["lines"]), "bytes": size, "next_seq": 1, "missing": []}
        # The bytes of the losers are gone.
        kept = [key for key in disk.versions(server.data_dir) if f"/{sim}/" in key]
        assert len(kept) <= 1


def test_a_log_from_sixteen_writers_with_every_chunk_twice_has_each_kernel_once(crowd: Racers) -> None:
    lines = list(SampleLog(kernels=4, seed=5).lines())
    for rng in rounds("log", max(4, ROUNDS // 4)):
        _, (sim,) = crowd.new_run()
        url = f"/api/sims/{sim}/logs"
        cuts = sorted(rng.sample(range(1, len(lines)), 31))
        chunks = [lines[a:b] for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
        calls = [Call("POST", url, {"seq": seq, "lines": chunk}) for seq, chunk in enumerate(chunks)] * 2
        rng.shuffle(calls)
        for start in range(0, len(calls), MANY):
            assert statuses(crowd.race(rng, *calls[start : start + MANY])) == {204: MANY}
        kernels = crowd.ask("GET", f"/api/sims/{sim}/kernels").json()["kernels"]
        totals = [line.partition(" = ")[2] for line in lines if line.startswith("gpu_tot_sim_cycle = ")]
        assert [str(kernel["tot_sim_cycles"]) for kernel in kernels] == totals
        assert [kernel["index"] for kernel in kernels] == list(range(len(totals)))
        log = crowd.ask("GET", f"/api/sims/{sim}").json()["log"]
        assert (log["chunks"], log["lines"], log["missing"]) == (len(chunks), len(lines), [])


# Files.


def files_of(crowd: Racers, sim: str) -> dict[str, int]:
    return {file["name"]: file["size"] for file in crowd.ask("GET", f"/api/sims/{sim}/files").json()}


def test_the_quota_is_never_passed_and_what_fits_is_stored(small_crowd: Racers) -> None:
    crowd = small_crowd
    for rng in rounds("quota"):
        _, (sim,) = crowd.new_run()
        sizes = [rng.choice([0, 1, 3000, 5000, 12_000, QUOTA // 2]) for _ in range(MANY - 2)]
        puts = [Call("PUT", f"/api/sims/{sim}/files/f{n}", bytes([n]) * size) for n, size in enumerate(sizes)]
        *answers, early, listed = crowd.race(
            rng, *puts, Call("GET", f"/api/sims/{sim}"), Call("GET", f"/api/sims/{sim}/files")
        )
        assert statuses(answers).keys() <= {200, 413}
        assert early.json()["files"]["bytes"] <= QUOTA
        assert sum(file["size"] for file in listed.json()) <= QUOTA
        stored = {f"f{n}": sizes[n] for n, answer in enumerate(answers) if answer.status == 200}
        assert files_of(crowd, sim) == stored
        total = sum(stored.values())
        assert total <= QUOTA
        for size, answer in zip(sizes, answers, strict=True):
            assert answer.status == 200 or total + size > QUOTA, f"{size} bytes were refused beside {total}"
        assert crowd.ask("GET", f"/api/sims/{sim}").json()["files"] == {"count": len(stored), "bytes": total}


def test_puts_of_few_names_leave_whole_files_and_a_true_total(small_crowd: Racers, small_server: Server) -> None:
    crowd = small_crowd
    for rng in rounds("names"):
        _, (sim,) = crowd.new_run()
        bodies = [rng.randbytes(rng.choice([0, 100, 9000, 15_000])) for _ in range(MANY)]
        names = [f"f{rng.randrange(3)}" for _ in bodies]
        answers = crowd.race(
            rng,
            *[Call("PUT", f"/api/sims/{sim}/files/{n}", body) for n, body in zip(names, bodies, strict=True)],
        )
        assert statuses(answers).keys() <= {200, 413}
        shown = files_of(crowd, sim)
        for name, size in shown.items():
            body = crowd.ask("GET", f"/api/sims/{sim}/files/{name}").body
            put = [b for n, b, a in zip(names, bodies, answers, strict=True) if n == name and a.status == 200]
            assert body in put
            assert len(body) == size
            assert (small_server.data_dir / "files" / sim / name).read_bytes() == body
        assert sum(shown.values()) <= QUOTA
        totals = crowd.ask("GET", f"/api/sims/{sim}").json()["files"]
        assert totals == {"count": len(shown), "bytes": sum(shown.values())}
        # One version a file: what was replaced or lost is gone.
        assert sorted(k for k in disk.versions(small_server.data_dir) if f"/{sim}/" in k) == [
            f"files/{sim}/{name}" for name in sorted(shown)
        ]


@pytest.mark.slow
def test_the_quota_of_256_mib_holds_for_six_puts_of_64_mib(crowd: Racers, server: Server) -> None:
    rng = random.Random(f"{SEED} large")
    _, (sim,) = crowd.new_run()
    body = rng.randbytes(64 * MIB)
    assert len(body) == settings.FILE_MAX_BYTES
    answers = crowd.race(rng, *[Call("PUT", f"/api/sims/{sim}/files/f{n}", body) for n in range(6)])
    assert statuses(answers) == {200: 4, 413: 2}
    shown = crowd.ask("GET", f"/api/sims/{sim}").json()["files"]
    assert shown == {"count": 4, "bytes": settings.SIM_FILES_MAX_BYTES}
    digest = hashlib.sha256(body).digest()
    for name in files_of(crowd, sim):
        with (server.data_dir / "files" / sim / name).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").digest() == digest


# Claims.


def claim(run: str, worker: str, key: str | None = None) -> Call:
    headers = (f"Idempotency-Key: {key}",) if key else ()
    return Call("POST", f"/api/runs/{run}/claim", {"worker": worker}, headers)


def test_each_sim_is_claimed_by_one_worker(crowd: Racers) -> None:
    for rng in rounds("claims"):
        count = rng.choice([1, 5, 12, 16])
        run, sims = crowd.new_run(count)
        # Each worker sends its claim once, or twice at the same time.
        workers = sorted(f"w{rng.randrange(12)}" for _ in range(MANY))
        keyed = {worker: f"{run} {worker}" for worker in workers if rng.random() < 0.6 or workers.count(worker) > 1}
        answers = crowd.race(rng, *[claim(run, worker, keyed.get(worker)) for worker in workers])
        taken: dict[str, str] = {}
        for worker, answer in zip(workers, answers, strict=True):
            assert answer.status in (200, 204)
            if answer.status == 200:
                sim = answer.json()["id"]
                assert sim in sims
                assert taken.setdefault(sim, worker) == worker
                assert (answer.json()["state"], answer.json()["worker"]) == ("running", worker)
        # Nobody goes without while there is one, and nobody gets two.
        assert len(taken) == min(count, len(set(workers)))
        assert len(set(taken.values())) == len(taken)
        counts = crowd.ask("GET", f"/api/runs/{run}").json()["counts"]
        assert (counts["running"], counts["queued"]) == (len(taken), count - len(taken))
        for sim, worker in taken.items():
            assert crowd.ask("GET", f"/api/sims/{sim}").json()["worker"] == worker


def test_a_cancel_and_claims_leave_each_sim_cancelled_or_its_workers(crowd: Racers) -> None:
    for rng in rounds("cancel"):
        run, sims = crowd.new_run(8)
        whole = rng.random() < 0.5
        gone = sims if whole else rng.sample(sims, 4)
        cancels = (
            [Call("POST", f"/api/runs/{run}/cancel")]
            if whole
            else [Call("POST", f"/api/sims/{s}/cancel") for s in gone]
        )
        claims = [claim(run, f"w{n}") for n in range(10)]
        answers = crowd.race(rng, *claims, *cancels)
        assert statuses(answers[10:]) == {200: len(cancels)}
        taken = {a.json()["id"]: f"w{n}" for n, a in enumerate(answers[:10]) if a.status == 200}
        assert statuses(answers[:10]) == Counter({200: len(taken), 204: 10 - len(taken)}) - Counter()
        shown = {sim: crowd.ask("GET", f"/api/sims/{sim}").json() for sim in sims}
        for sim, detail in shown.items():
            assert detail["state"] == ("cancelled" if sim in gone else "running")
            assert detail["worker"] == taken.get(sim)
        # The worker hears of it with its next heartbeat.
        for sim in taken:
            ack = crowd.ask("POST", f"/api/sims/{sim}/heartbeat", {"state": "running"}).json()
            assert ack["cancel"] == (sim in gone)
        assert crowd.ask("POST", f"/api/runs/{run}/claim", {"worker": "late"}).status == 204


# Deletion.


def test_a_deletion_and_uploads_leave_nothing(small_crowd: Racers, small_server: Server) -> None:
    crowd, deleted = small_crowd, set[str]()
    large = ["x" * 100, os.urandom(20_000).hex()]
    for rng in rounds("deletion"):
        run, sims = crowd.new_run(2)
        sim = sims[0]
        for one in sims:
            crowd.ask("POST", f"/api/sims/{one}/heartbeat", {"state": rng.choice(["succeeded", "failed"])})
        crowd.ask("PUT", f"/api/sims/{sim}/files/f0", b"before")
        uploads = [
            *[Call("PUT", f"/api/sims/{sim}/files/f{n}", rng.randbytes(rng.choice([0, 500, 4000]))) for n in range(6)],
            *[Call("POST", f"/api/sims/{sim}/logs", {"seq": n, "lines": rng.choice([large, ["a"]])}) for n in range(4)],
            Call("POST", f"/api/sims/{sim}/step-timeline", {"simulated": {"steps": [large], "summary": {}}}),
            beat(sim, "succeeded"),
            Call("GET", f"/api/sims/{sim}/files/f0"),
            claim(run, "w"),
        ]
        deletes = [Call("DELETE", f"/api/runs/{run}")] * 2
        answers = crowd.race(rng, *deletes, *uploads)
        # Each is before or after the deletion, and says so.
        assert {answer.status for answer in answers[:2]} <= {204, 404}
        assert 204 in {answer.status for answer in answers[:2]}
        assert {answer.status for answer in answers[2:]} <= {200, 204, 404}
        for path in (f"/api/runs/{run}", f"/api/sims/{sim}", f"/api/sims/{sim}/logs", f"/api/sims/{sim}/files/f0"):
            assert crowd.ask("GET", path).status == 404
        assert crowd.ask("PUT", f"/api/sims/{sim}/files/f9", b"late").status == 404
        deleted |= {run, *sims}

    def left() -> set[str]:
        objects = {key.split("/")[1] for key in disk.versions(small_server.data_dir)}
        shown = {path.name for path in (small_server.data_dir / "files").iterdir()}
        return (disk.partitions(small_server.data_dir) | objects | shown) & deleted

    eventually(lambda: not left(), "nothing is left of what was deleted", 60)
