"""`cascade demo`: a run of made-up simulations, at a speed one can watch, that ends in every state a sim can end in."""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import click
import httpx

from cascade import sample_log
from cascade.local import is_loopback, local_token
from cascade.words import counted

BEAT_SECONDS = 2.0
LINES_PER_SECOND = 400.0
LINES_PER_CHUNK = 100

PLAN: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("gemm, 6 MB of L2", {"l2": "6MB", "kernel": "gemm", "end": "succeeded"}, {"kernels": 6, "seed": 1}),
    ("gemm, 4 MB of L2", {"l2": "4MB", "kernel": "gemm", "end": "succeeded"}, {"kernels": 6, "seed": 2}),
    ("two streams", {"l2": "6MB", "kernel": "attention", "end": "succeeded"}, {"kernels": 6, "seed": 3, "streams": 2}),
    ("steps of a small LLM", {"l2": "6MB", "kernel": "decode", "end": "succeeded"}, {"kernels": 5, "seed": 7}),
    ("hangs in its third kernel", {"l2": "6MB", "kernel": "softmax", "end": "failed"}, {"kernels": 4, "seed": 4, "deadlock_at": 2}),
    ("cancelled half-way", {"l2": "2MB", "kernel": "gemm", "end": "cancelled"}, {"kernels": 12, "seed": 5}),
    ("its machine dies", {"l2": "1MB", "kernel": "gemm", "end": "lost"}, {"kernels": 12, "seed": 6}),
)  # fmt: skip


TIMED = "steps of a small LLM"


def step_timing(seed: int = 1) -> dict[str, Any]:
    """A body for `POST /api/sims/{id}/step-timeline`: what `cascade simulate` and `cascade compare` make of a made-up trace.

    A prefill and 15 decode steps on a GPU whose simulator is up to a fifth off, and knows nine kernels in ten.
    """
    # Here since they take a quarter of a second to import.
    from cascade.timeline import model, synthetic
    from cascade.timeline.compare import compare
    from cascade.timeline.kernel_times import KernelTimes
    from cascade.timeline.simulate import simulate

    random = Random(seed)  # noqa: S311  a simulation, not a secret
    real = synthetic.timeline(synthetic.llm_run(seed, decode_steps=15, layers=4, scale=0.9), "demo")
    kernels = [kernel for step in real.steps for kernel in step.kernels]
    error = {kernel.name: random.uniform(0.85, 1.2) for kernel in kernels}
    times = {
        uid: (kernel.name, round((kernel.end_ns - kernel.start_ns) * error[kernel.name]))
        for uid, kernel in enumerate(kernels, 1)
        if random.random() < 0.9
    }
    simulated = simulate(real, KernelTimes("demo", times, {}, stand_in=False))
    return {
        "simulated": json.loads(model.dump(simulated)),
        "compare": json.loads(model.dump(compare(simulated, real))),
    }


def run(url: str, token: str | None, speed: float) -> int:
    """Play the demo against the server at `url`, `speed` times as fast as meant; returns an exit code."""
    token = token or local_token(url)
    if not token:
        click.echo("demo: no token: set CASCADE_TOKEN to what `make run` printed", err=True)
        return 2
    try:
        headers = {"Authorization": f"Bearer {token}"}
        # $HTTP_PROXY is for other machines: it would be handed this one's token.
        with httpx.Client(base_url=url, headers=headers, timeout=30, trust_env=not is_loopback(url)) as client:
            return _play(client, url, speed)
    except httpx.ConnectError:
        click.echo(f"demo: no server at {url}: start one with `make run`", err=True)
        return 1
    except httpx.TransportError as error:
        click.echo(f"demo: {url} went away: {error}", err=True)
        return 1
    except httpx.HTTPStatusError as error:
        click.echo(
            f"demo: {error.request.method} {error.request.url.path}: {error.response.status_code} {error.response.text}",
            err=True,
        )
        return 1


def _play(client: httpx.Client, url: str, speed: float) -> int:
    made = client.post(
        "/api/runs",
        json={"name": "demo", "sims": [{"name": name, "params": params} for name, params, _ in PLAN]},
    ).raise_for_status().json()  # fmt: skip
    click.echo(f"page     {url}/#/runs/{made['id']}")
    click.echo(f"run      {url}/api/runs/{made['id']}")
    for sim, (_, params, _) in zip(made["sims"], PLAN, strict=True):
        click.echo(f"sim      {url}/api/sims/{sim['id']}  {sim['name']} (will be {params['end']})")
        click.echo(f"  log    {url}/api/sims/{sim['id']}/logs?tail=20")
        click.echo(f"  cycles {url}/api/sims/{sim['id']}/kernels.csv")
        if sim["name"] == TIMED:
            click.echo(f"  steps  {url}/#/sims/{sim['id']}?tab=timing")
    click.echo(
        "The one whose machine dies is lost after the heartbeat timeout, 60 s unless the server was told otherwise."
    )
    click.echo('Look at the API with: curl -H "Authorization: Bearer $CASCADE_TOKEN" URL')
    failures: list[BaseException] = []
    threads = [
        threading.Thread(target=_guard, args=(failures, client, sim["id"], params["end"], log, speed))
        for sim, (_, params, log) in zip(made["sims"], PLAN, strict=True)
    ]
    for thread in threads:
        thread.start()
    (timed,) = (sim["id"] for sim in made["sims"] if sim["name"] == TIMED)
    client.post(f"/api/sims/{timed}/step-timeline", json=step_timing()).raise_for_status()
    wanted = {
        end: sum(params["end"] == end for _, params, _ in PLAN) for end in ("succeeded", "failed", "cancelled", "lost")
    }
    last = None
    while True:
        shown = client.get(f"/api/runs/{made['id']}").raise_for_status().json()
        line = ", ".join(f"{count} {state}" for state, count in shown["counts"].items() if count)
        kernels = sum(sim["kernels"] for sim in shown["sims"])
        if (line, kernels) != last:
            click.echo(f"{line}; {counted(kernels, 'kernel')}")
            last = (line, kernels)
        if all(shown["counts"][state] == count for state, count in wanted.items()):
            break
        if failures:
            raise failures[0]
        time.sleep(0.5)
    for thread in threads:
        thread.join()
    click.echo(f"done     {url}/#/runs/{made['id']}")
    return 0


def _guard(failures: list[BaseException], *args: Any) -> None:
    try:
        _simulate(*args)
    except BaseException as error:  # noqa: BLE001  carried to the main thread, which raises it
        failures.append(error)


def _simulate(client: httpx.Client, sim_id: str, end: str, log: dict[str, Any], speed: float) -> None:
    """Be one simulator: beat, print, and end as planned."""
    path = f"/api/sims/{sim_id}"

    def beat(**body: Any) -> bool:
        cancel: bool = client.post(f"{path}/heartbeat", json=body).raise_for_status().json()["cancel"]
        return cancel

    lines = list(sample_log.generate(cores=8, partitions=2, **log))
    chunks = [lines[i : i + LINES_PER_CHUNK] for i in range(0, len(lines), LINES_PER_CHUNK)]
    beaten = 0.0
    for seq, chunk in enumerate(chunks):
        if time.monotonic() - beaten > BEAT_SECONDS / speed:
            if beat(state="running"):
                return  # cancelled: stop at once
            beaten = time.monotonic()
        client.post(f"{path}/logs", json={"seq": seq, "lines": chunk}).raise_for_status()
        if end in ("cancelled", "lost") and seq >= len(chunks) // 3:
            if end == "lost":
                return
            client.post(f"{path}/cancel").raise_for_status()
        time.sleep(LINES_PER_CHUNK / LINES_PER_SECOND / speed)
    client.put(f"{path}/files/summary.csv", content=_summary(lines)).raise_for_status()
    if end == "failed":
        beat(state="failed", exit_code=-6, error="deadlock detected in the third kernel")
    else:
        beat(state="succeeded", exit_code=0)


def _summary(lines: list[str]) -> bytes:
    rows: Iterator[str] = (line for line in lines if line.startswith("gpu_tot_sim_cycle"))
    return "\n".join(itertools.chain(["gpu_tot_sim_cycle"], (row.split("=")[1].strip() for row in rows))).encode()
