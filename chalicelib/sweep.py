"""The scheduled function: marks silent sims lost, parses on, and tidies up what dead requests left.

An object is put before the item that names it, so what dies in between leaves one that nobody knows of. Once a sim is
settled it waits under `tidy#<hour>` for one to two hours; then its objects are listed, once, and those go that no item
names and that are older than an hour. A request lives 29 s, so none of them is a put under way. An object that comes
to a sim that was settled is announced by settling the sim again, before it is put.
"""

import time
from collections.abc import Callable

from chalicelib import blobs, clock, files, logs, metrics, runs, sims, table
from chalicelib.log import logger

ORPHAN_US = 3600 * 1_000_000
"""An object that no item names is left alone for this long: more than a hundred times what a request takes."""
TIDY_SLOTS = 3
"""Hours that a sim can wait in: this one, the last one, and the one before, whose sims are looked at now."""
TIDY_SECONDS = 5.0
"""So long a sweep goes on beginning to look for objects: some 400 sims. What is left has the next sweep."""
TIDY_AT_ONCE = 64


def sweep() -> dict[str, int]:
    """One pass; returns how much it did. Safe to run at any time, also twice at once."""
    now = clock.now_us()
    lost = sims.mark_lost(now)
    failed = settled = reconciled = 0
    for n in range(sims.SHARDS):
        shard = f"settle#{n:02d}"
        for (sim_id, _), hot in table.batch_get(table.sweep_entries(shard)).items():
            done = _step("settle", sim_id, lambda s=shard, h=hot: _settle(s, h, now))  # type: ignore[misc]
            settled, failed = settled + (done or 0), failed + (done is None)
        for sim_id, _ in list(table.sweep_entries(f"holds#{n:02d}")):
            done = _step("reconcile", sim_id, lambda s=sim_id: files.reconcile(s, now))  # type: ignore[misc]
            reconciled, failed = reconciled + (done or 0), failed + (done is None)
    deleted = _step("finish deletions", "", lambda: runs.finish_deletions(now))
    tidied = _tidy_all(now)
    failed += (deleted is None) + tidied.count(None)
    counts = {
        "lost": lost,
        "settled": settled,
        "reconciled": reconciled,
        "deleted": deleted or 0,
        "orphans": sum(found or 0 for found in tidied),
        "failed": failed,
    }
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


def _settle(shard: str, hot: table.Item, now: int) -> int:
    # The index may be behind: what it says is true only where the item says it too.
    if hot.get("sweep_pk") != shard or not logs.settle(hot["pk"], hot, now):
        return 0
    return int(_move_on(hot, _tidy_slot(now)))


def _move_on(hot: table.Item, to: str | None) -> bool:
    """Have the sim wait for something else, or for nothing; False when something has happened to it since it was read."""
    values = {":seen": hot["sweep_pk"], ":state": hot["state"]} | ({":to": to} if to else {})
    try:
        table.update(
            hot["pk"],
            sims.HOT,
            "SET sweep_pk = :to" if to else "REMOVE sweep_pk",
            values,
            {"#state": "state"},
            "sweep_pk = :seen AND #state = :state",
        )
    except table.ConditionFailed:
        return False  # a beat, a late chunk, another end
    return True


# Objects that no item names.


def _tidy_slot(now: int) -> str:
    return f"tidy#{now // ORPHAN_US % TIDY_SLOTS}"


def _tidy_all(now: int) -> list[int | None]:
    """Look at the sims that wait since the hour before the last; how many objects each lost, None for a failure."""
    slot = _tidy_slot(now - (TIDY_SLOTS - 1) * ORPHAN_US)
    deadline = time.monotonic() + TIDY_SECONDS
    keys = list(table.sweep_entries(slot))
    found: list[int | None] = []
    for first in range(0, len(keys), TIDY_AT_ONCE):
        if time.monotonic() > deadline:
            break
        hots = list(table.batch_get(keys[first : first + TIDY_AT_ONCE]).values())
        found += table.fan_out(lambda hot: _step("tidy", hot["pk"], lambda: _tidy(slot, hot, now)), hots)
    return found


def _tidy(slot: str, hot: table.Item, now: int) -> int:
    sim_id = hot["pk"]
    # Settled once more: a chunk that came just when the sweep took it for settled could not tell.
    if hot.get("sweep_pk") != slot or not logs.settle(sim_id, hot, now):
        return 0
    # Listed before the items are read: what is named by then is named, and what is not and old never will be.
    listed = [found for kind in ("logs", "timing", "kernels") for found in blobs.written(f"{kind}/{sim_id}/")]
    items = table.batch_get([(sim_id, _named_by(name)) for name, _, _ in listed], ("blob", "version"))
    named = {(item.get("blob"), item.get("version")) for item in items.values()}
    orphans = [found for found in listed if found[:2] not in named]
    old = [(name, version) for name, version, at in orphans if at + ORPHAN_US <= now]
    for name, version in old:
        blobs.delete(name, version)
    _move_on(hot, _tidy_slot(now) if len(old) < len(orphans) else None)
    return len(old)


def _named_by(name: str) -> str:
    """Sort key of the one item that may name this object."""
    kind, _, rest = name.split("/")
    number = rest.partition("-")[0]
    return {"logs": f"c#{number}", "kernels": f"k#{number}", "timing": sims.TIMING}[kind]
