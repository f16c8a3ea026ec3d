"""The scheduled function: marks silent sims lost, parses on, and tidies up what dead requests left."""

from collections.abc import Callable

from chalicelib import clock, files, logs, metrics, runs, sims, table
from chalicelib.log import logger


def sweep() -> dict[str, int]:
    """One pass; returns how much it did. Safe to run at any time, also twice at once."""
    now = clock.now_us()
    lost = sims.mark_lost(now)
    failed = settled = reconciled = 0
    for n in range(sims.SHARDS):
        for (sim_id, sk), hot in table.batch_get(table.sweep_entries(f"settle#{n:02d}")).items():
            done = _step("settle", sim_id, lambda s=sim_id, k=sk, h=hot: _settle(s, k, h, now))  # type: ignore[misc]
            settled, failed = settled + (done or 0), failed + (done is None)
        for sim_id, _ in list(table.sweep_entries(f"holds#{n:02d}")):
            done = _step("reconcile", sim_id, lambda s=sim_id: files.reconcile(s, now))  # type: ignore[misc]
            reconciled, failed = reconciled + (done or 0), failed + (done is None)
    deleted = _step("finish deletions", "", lambda: runs.finish_deletions(now))
    failed += deleted is None
    counts = {"lost": lost, "settled": settled, "reconciled": reconciled, "deleted": deleted or 0, "failed": failed}
    metrics.count("Sweeps")
    metrics.flush(force=True)
    if any(counts.values()):
        logger().info("sweep", extra=counts)
    return counts


def _step(name: str, sim_id: str, step: Callable[[], int]) -> int | None:
    """One step's result; None when it failed, which is logged and counted and does not keep the sweep from the rest."""
    try:
        return step()
    except Exception:  # noqa: BLE001
        logger().exception("sweep step failed", step=name, sim_id=sim_id)
        metrics.count("SweepFailures")
        return None


def _settle(sim_id: str, sk: str, hot: table.Item, now: int) -> int:
    if "sweep_pk" not in hot or not logs.settle(sim_id, hot, now):
        return 0
    try:
        # Only if nothing has happened to the sim since it was read: a beat, a late chunk, another end.
        table.update(
            sim_id,
            sk,
            "REMOVE sweep_pk",
            {":seen": hot["sweep_pk"], ":state": hot["state"]},
            {"#state": "state"},
            "sweep_pk = :seen AND #state = :state",
        )
    except table.ConditionFailed:
        return 0
    return 1
