"""The sweep over 10,000 running sims on the engine in process: requests counted, time, extrapolated to 100,000."""

import os
import tempfile
import time
from collections import Counter
from pathlib import Path

RUNNING = 10_000


def main() -> None:
    """Measure and print."""
    os.environ |= {
        "CASCADE_TOKEN": "bench",
        "POWERTOOLS_METRICS_DISABLED": "true",
        "CASCADE_HEARTBEAT_TIMEOUT_S": "3600",
    }
    from cascade.serve.engine import Engine
    from chalicelib import blobs, clock, sims, sweep, table

    requests: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, Engine(Path(folder)) as engine:
        engine.connect(table.client())
        engine.connect(blobs.client())
        now = clock.now_us()
        table.batch_write(
            {
                "pk": (sim_id := f"sim-{n:012x}"),
                "sk": sims.HOT,
                "run_id": "run-000000000000",
                "state": "running",
                "created_at": now,
                "beat": now,
                "sweep_pk": sims.shard("running", sim_id),
            }
            for n in range(RUNNING)
        )
        table.client().meta.events.register("before-call.dynamodb", lambda model, **_: requests.update([model.name]))
        times = []
        for _ in range(3):
            requests.clear()
            start = time.perf_counter()
            sweep.sweep()
            times.append(time.perf_counter() - start)
    seconds = sorted(times)[1]
    total = sum(requests.values())
    scale = 100_000 / RUNNING
    gets = requests["BatchGetItem"]
    # On AWS a BatchGetItem of 100 small items takes 10 to 20 ms, and eight are under way at once.
    aws = gets * scale * 0.020 / 8
    print("| what | goal | measured |\n|---|---|---|")
    print(f"| sweep of {RUNNING:,} running sims, requests | | {total} ({dict(requests)}) |")
    print(f"| its time here, median of 3, one process with the engine inside | | {seconds:.2f} s |")
    print(f"| 100,000 sims: CPU and engine by the same rate | 60 s | {seconds * scale:.1f} s |")
    print(f"| 100,000 sims: waiting for AWS at 20 ms a request, 8 at once | 60 s | {aws:.1f} s |")


if __name__ == "__main__":
    main()
