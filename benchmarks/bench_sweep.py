"""Sweep and claim over fleets of 1,000 to 50,000 sims: requests, and CPU time, the engine's in it, and what of that grows."""

import statistics
import time
from collections import Counter
from collections.abc import Callable

from benchmarks.local import engine

FLEETS = (1_000, 10_000, 50_000)
PER_REQUEST = 1_000
CLAIMS = 200
ROUNDS = 3
SWEPT = 30_000
"""A small fleet is swept again until so many sims were looked at."""


def main() -> None:
    """Measure and print."""
    from chalicelib import clock, runs, settings, sims, sweep, table
    from chalicelib.models import SimSpec

    requests: Counter[str] = Counter()

    def cost(work: Callable[[], object], rounds: int) -> tuple[float, int]:
        """Median CPU seconds, and requests of the last round."""
        times = []
        for _ in range(rounds):
            requests.clear()
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
        return statistics.median(times), sum(requests.values())

    print(
        "| sims | sweep, all running: s | its requests | µs a sim | claim: ms | its requests | show a run of 1,000: ms |"
    )
    print("|---|---|---|---|---|---|---|")
    sweeps: dict[int, tuple[float, int]] = {}
    with engine():
        table.client().meta.events.register("before-call.dynamodb", lambda model, **_: requests.update([model.name]))
        running = 0
        for fleet in FLEETS:
            # Claims leave room at the end of the fleet's last run; the rest is moved to running directly.
            run_id, queued, run_ids = "", 0, []
            while running < fleet:
                specs = [SimSpec()] * PER_REQUEST
                if not run_id or queued + PER_REQUEST > settings.RUN_MAX_SIMS:
                    run_id, queued = runs.create("bench", specs, None).id, 0
                    run_ids.append(run_id)
                else:
                    runs.add(run_id, specs, None)
                queued += PER_REQUEST
                running += PER_REQUEST
            one = runs.create("bench", [SimSpec()] * PER_REQUEST, None).id
            claims = min(CLAIMS, queued)
            claim, claim_requests = cost(lambda last=run_id: runs.claim(last, "bench", None), claims)  # type: ignore[misc]
            now = clock.now_us()
            for each in run_ids:
                for sim_id, _ in runs.load(each).sims:
                    hot = {"pk": sim_id, "sk": sims.HOT, "run_id": each, "state": "running", "created_at": now}
                    table.batch_write([{**hot, "beat": now, "sweep_pk": sims.shard("running", sim_id)}])
            sweeps[fleet] = cost(sweep.sweep, max(ROUNDS, SWEPT // fleet))
            show, _ = cost(lambda: runs.detail(one), ROUNDS)  # noqa: B023
            runs.delete(one)
            seconds, count = sweeps[fleet]
            print(
                f"| {fleet:,} | {seconds:.2f} | {count} | {seconds / fleet * 1e6:.0f} "
                f"| {claim * 1e3:.1f} | {claim_requests} | {show * 1e3:.0f} |",
                flush=True,
            )
    seconds, count = sweeps[10_000]
    largest, smallest = (sweeps[fleet][0] / fleet for fleet in (FLEETS[-1], FLEETS[0]))
    # On AWS a BatchGetItem of 100 small items takes 10 to 20 ms, and eight are under way at once.
    print("\n| what | goal | measured |\n|---|---|---|")
    print(f"| a sweep's time a sim, {FLEETS[-1]:,} against {FLEETS[0]:,} sims | at most 1 | {largest / smallest:.2f} |")
    print(f"| 100,000 sims: CPU at the rate of 10,000, s | 60 | {seconds * 10:.1f} |")
    print(f"| 100,000 sims: waiting for AWS at 20 ms a request, 8 at once, s | 60 | {count * 10 * 0.020 / 8:.1f} |")


if __name__ == "__main__":
    main()
