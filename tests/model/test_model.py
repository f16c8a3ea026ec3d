"""Random histories of calls, deaths, clock steps and sweeps, compared with the reference after every step.

`CASCADE_MODEL_EXAMPLES=2000 pytest tests/model` is the long form.
"""

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cascade.sample_log import generate
from cascade.serve.engine import Engine
from tests import aws
from tests.conftest import Clock
from tests.model import reference
from tests.model.faults import Died, dies_at
from tests.model.reference import Run, Sim

EXAMPLES = int(os.environ.get("CASCADE_MODEL_EXAMPLES", "15"))
LOG = list(generate(kernels=4, seed=1))
CHUNKS = [LOG[len(LOG) * n // 8 : len(LOG) * (n + 1) // 8] for n in range(8)]
NAMES = ("a.csv", "b.log", "c")
# No sum of steps comes near the timeout, where a microsecond would decide.
STEPS_S = (7, 26, 61, 1000)

deaths = st.none() | st.tuples(st.integers(1, 8), st.sampled_from(("before", "after")))
pick = st.integers(0, 99)


class Cascade(RuleBasedStateMachine):
    """The API beside the reference."""

    patches: pytest.MonkeyPatch

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[str, Run] = {}
        self.gone: list[str] = []
        self.keys = itertools.count()
        self.folder = TemporaryDirectory()
        self.engine = Engine(Path(self.folder.name))

    @initialize()
    def start(self) -> None:
        from app import app
        from chalicelib import blobs, clock, settings, table

        self.patches = pytest.MonkeyPatch()
        self.clock = Clock()
        self.patches.setattr(clock, "now_us", self.clock)
        self.patches.setattr(settings, "FILE_MAX_BYTES", reference.FILE_MAX)
        self.patches.setattr(settings, "SIM_FILES_MAX_BYTES", reference.SIM_MAX)
        self.patches.setenv("CASCADE_DIRECT_DOWNLOADS", "1")
        self.patches.setattr(app.api, "binary_types", [])
        table.client.cache_clear()
        blobs.client.cache_clear()
        self.engine.start()
        self.engine.connect(table.client())
        self.engine.connect(blobs.client())
        self.api = aws.Api(app)

    def teardown(self) -> None:
        self.patches.undo()
        self.engine.close()
        self.folder.cleanup()

    @property
    def now(self) -> float:
        return self.clock.us / 1e6

    @property
    def sims(self) -> dict[str, Sim]:
        return {sim_id: sim for run in self.runs.values() for sim_id, sim in run.sims.items()}

    def a_sim(self, number: int) -> tuple[str, Sim]:
        sims = list(self.sims.items())
        return sims[number % len(sims)]

    def a_run(self, number: int) -> tuple[str, Run]:
        runs = list(self.runs.items())
        return runs[number % len(runs)]

    def send(self, call: Callable[[], aws.Answer], death: Any) -> aws.Answer:
        """The call; if the process dies on the way, the client sends the same again."""
        if death:
            try:
                with dies_at(*death):
                    return call()
            except Died:
                pass
        return call()

    # What people and simulators do.

    @rule(count=st.integers(1, 3), death=deaths)
    def create(self, count: int, death: Any) -> None:
        key = {"Idempotency-Key": f"k{next(self.keys)}"}
        body = {"name": "model", "sims": [{"params": {"n": n}} for n in range(count)]}
        made = self.send(lambda: self.api.post("/api/runs", body, headers=key), death)
        assert made.status == 201
        assert self.api.post("/api/runs", body, headers=key).json()["id"] == made.json()["id"]
        self.runs[made.json()["id"]] = Run({sim["id"]: Sim() for sim in made.json()["sims"]})

    @precondition(lambda self: self.runs)
    @rule(number=pick, death=deaths)
    def add_sim(self, number: int, death: Any) -> None:
        run_id, run = self.a_run(number)
        key = {"Idempotency-Key": f"k{next(self.keys)}"}
        added = self.send(lambda: self.api.post(f"/api/runs/{run_id}/sims", {"sims": [{}]}, headers=key), death)
        assert added.status == 201
        run.sims[added.json()[0]["id"]] = Sim()

    @precondition(lambda self: self.runs)
    @rule(number=pick, death=deaths)
    def claim(self, number: int, death: Any) -> None:
        run_id, run = self.a_run(number)
        key = {"Idempotency-Key": f"k{next(self.keys)}"}
        claimed = self.send(lambda: self.api.post(f"/api/runs/{run_id}/claim", {"worker": "w"}, headers=key), death)
        queued = {sim_id for sim_id, sim in run.sims.items() if sim.state == "queued"}
        assert claimed.status == (200 if queued else 204)
        if queued:
            assert claimed.json()["id"] in queued
            sim = run.sims[claimed.json()["id"]]
            sim.state, sim.worker, sim.beat = "running", "w", self.now

    @precondition(lambda self: self.sims)
    @rule(
        number=pick,
        state=st.sampled_from(("running", "running", "succeeded", "failed")),
        exit_code=st.none() | st.integers(-9, 1),
        error=st.none() | st.sampled_from(("deadlock", "x" * 300, "x" * 5000)),
        death=deaths,
    )
    def heartbeat(self, number: int, state: str, exit_code: int | None, error: str | None, death: Any) -> None:
        sim_id, sim = self.a_sim(number)
        body = {"state": state, "exit_code": exit_code, "error": error}
        ack = self.send(lambda: self.api.post(f"/api/sims/{sim_id}/heartbeat", body), death)
        sim.heartbeat(state, exit_code, error and error[:4096], self.now)
        assert ack.json() == {"state": sim.state, "cancel": sim.state == "cancelled"}

    @precondition(lambda self: self.sims)
    @rule(number=pick, seq=st.integers(0, 7), junk=st.booleans(), death=deaths)
    def chunk(self, number: int, seq: int, junk: bool, death: Any) -> None:
        sim_id, sim = self.a_sim(number)
        lines = ["\x00\ud800junk\n", ""] if junk else CHUNKS[seq]
        body = json.dumps({"seq": seq, "lines": lines})
        sent = self.send(
            lambda: self.api(
                "POST", f"/api/sims/{sim_id}/logs", data=body, headers={"Content-Type": "application/json"}
            ),
            death,
        )
        assert sent.status == 204
        sim.chunk(seq, [line.replace("\ud800", "\ufffd") for line in lines])

    @precondition(lambda self: self.sims)
    @rule(number=pick, name=st.sampled_from(NAMES), body=st.binary(max_size=reference.FILE_MAX + 1), death=deaths)
    def upload(self, number: int, name: str, body: bytes, death: Any) -> None:
        sim_id, sim = self.a_sim(number)
        put = self.send(lambda: self.api.put(f"/api/sims/{sim_id}/files/{name}", body), death)
        before = dict(sim.files)
        wanted = sim.put(name, body)
        if put.status == 503 and death:
            # What a dead put still holds is given back by the sweep, a quarter of an hour later.
            sim.files = before
            self.advance(1000)
            self.sweep(None)
            put = self.api.put(f"/api/sims/{sim_id}/files/{name}", body)
            wanted = sim.put(name, body)
        assert put.status == wanted

    @precondition(lambda self: self.sims)
    @rule(number=pick, value=st.sampled_from((1, 2**60 + 1, 0.0, "é")), death=deaths)
    def step_timing(self, number: int, value: Any, death: Any) -> None:
        sim_id, sim = self.a_sim(number)
        sent = {"simulated": {"steps": [value], "summary": {"b": value, "a": 0}}, "compare": None}
        assert self.send(lambda: self.api.post(f"/api/sims/{sim_id}/step-timeline", sent), death).status == 204
        sim.timing = sent

    @precondition(lambda self: self.sims)
    @rule(number=pick, death=deaths)
    def cancel_sim(self, number: int, death: Any) -> None:
        sim_id, sim = self.a_sim(number)
        assert self.send(lambda: self.api.post(f"/api/sims/{sim_id}/cancel"), death).status == 200
        sim.cancel(self.now)

    @precondition(lambda self: self.runs)
    @rule(number=pick, death=deaths)
    def cancel_run(self, number: int, death: Any) -> None:
        run_id, run = self.a_run(number)
        assert self.send(lambda: self.api.post(f"/api/runs/{run_id}/cancel"), death).status == 200
        for sim in run.sims.values():
            sim.cancel(self.now)

    @precondition(lambda self: self.runs)
    @rule(number=pick, death=deaths)
    def delete(self, number: int, death: Any) -> None:
        run_id, run = self.a_run(number)
        for sim in run.sims.values():
            sim.look(self.now)
        deleted = self.send(lambda: self.api.delete(f"/api/runs/{run_id}"), death)
        if any(sim.state == "running" for sim in run.sims.values()):
            assert deleted.status == 409
            return
        assert deleted.status == 204
        self.gone += [run_id, *run.sims]
        del self.runs[run_id]

    # What time does.

    @rule(seconds=st.sampled_from(STEPS_S))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(death=deaths)
    def sweep(self, death: Any) -> None:
        from chalicelib.sweep import sweep

        if death:
            try:
                with dies_at(*death):
                    sweep()
            except Died:
                pass
        sweep()
        for sim in self.sims.values():
            sim.sweep(self.now)

    # What must hold.

    @invariant()
    def every_reader_sees_the_same(self) -> None:
        for run_id, run in self.runs.items():
            for sim in run.sims.values():
                sim.look(self.now)
            shown = self.api.get(f"/api/runs/{run_id}").json()
            states = [sim.state for sim in run.sims.values()]
            assert [(sim["id"], sim["state"]) for sim in shown["sims"]] == list(zip(run.sims, states, strict=True))
            assert shown["counts"] == {state: states.count(state) for state in reference.MAY_GO}
            for sim_id, sim in run.sims.items():
                self.check(sim_id, sim)
        if hasattr(self, "api"):
            listed = self.api.get("/api/runs?limit=100").json()["runs"]
            assert [run["id"] for run in listed] == list(reversed(self.runs))
            for run in listed:
                states = [sim.state for sim in self.runs[run["id"]].sims.values()]
                assert run["counts"] == {state: states.count(state) for state in reference.MAY_GO}
            for path in self.gone[-4:]:
                assert self.api.get(f"/api/{path[:3]}s/{path}").status == 404

    def check(self, sim_id: str, sim: Sim) -> None:
        shown = self.api.get(f"/api/sims/{sim_id}").json()
        assert shown["state"] == sim.state
        assert (shown["exit_code"], shown["error"], shown["worker"]) == (sim.exit_code, sim.error, sim.worker)
        lines = [line for seq in sorted(sim.chunks) for line in sim.chunks[seq]]
        assert shown["log"] == {
            "chunks": len(sim.chunks),
            "lines": len(lines),
            "bytes": sum(len(line.encode()) for line in lines),
            "next_seq": max(sim.chunks, default=-1) + 1,
            "missing": sim.missing(),
        }
        assert shown["files"] == {"count": len(sim.files), "bytes": sum(map(len, sim.files.values()))}
        read = self.api.get(f"/api/sims/{sim_id}/logs").json()
        assert {chunk["seq"]: chunk["lines"] for chunk in read["chunks"]} == sim.chunks
        kernels = self.api.get(f"/api/sims/{sim_id}/kernels").json()["kernels"]
        wanted = sim.kernels()
        assert len(kernels) == len(wanted) == shown["kernels"]
        for index, (kernel, want) in enumerate(zip(kernels, wanted, strict=True)):
            assert kernel["index"] == index
            assert {name: kernel[name] for name in want if name != "index"} == {
                name: value for name, value in want.items() if name != "index"
            }
        for name, body in sim.files.items():
            assert self.api.get(f"/api/sims/{sim_id}/files/{name}").body == body
        assert [file["name"] for file in self.api.get(f"/api/sims/{sim_id}/files").json()] == sorted(sim.files)
        timing = self.api.get(f"/api/sims/{sim_id}/step-timeline")
        assert timing.status == (404 if sim.timing is None else 200)
        if sim.timing is not None:
            assert json.dumps(timing.json()) == json.dumps(sim.timing)


@pytest.mark.timeout(0)  # the long form takes as long as it takes
@pytest.mark.slow
def test_the_service_does_what_the_reference_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from chalicelib import files

    monkeypatch.setattr(files, "WAIT_SECONDS", 0.0)
    run_state_machine_as_test(
        Cascade,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=30,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
