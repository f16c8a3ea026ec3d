"""Runs: create, list, show, add sims, claim, cancel, delete.

Items of a run, under `pk = run_id`:

| sk | what |
|---|---|
| `a#run` | name, created_at, `n` sims, status `ready` or `deleting`; the counts once all its sims are final |
| `a#claim` | how far claims have come |
| `i#<token>` | the intent of a creation under way: ids of sims whose items may exist |
| `s#<start>` | a page of (sim id, name) from position `start` |

and one under `pk = "runs"`, `sk = <created_at>-<run_id>`, that lists it, newest last. What a caller can see appears in
one transaction; the items of its sims are written before that, under an intent by which the sweep finds what a dead
creation left. Nothing of a run is visible once deletion has begun, and the sweep finishes what a dead deletion left.

A record of an idempotency key lies under `pk = idem#<hash>` and expires after a day.
"""

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib import blobs, clock, logs, settings, sims, states, table
from chalicelib.clock import rfc3339
from chalicelib.errors import Busy, Conflict, NotFound
from chalicelib.models import Counts, ParamsPage, RunDetail, RunList, RunSummary, SimParams, SimSpec, SimSummary
from chalicelib.table import ConditionFailed, Item, TransactionFailed

RUN, CLAIM = "a#run", "a#claim"
SIMS_PER_PAGE = 250
"""(id, name) pairs an item; with the longest names that is 210 KB of DynamoDB's 400."""
IDEMPOTENCY_S = 24 * 3600
ABANDONED_US = 15 * 60 * 1_000_000
"""A creation or deletion older than this is dead: a request lives 29 s."""
DELETE_SECONDS = 20.0
"""A delete ends this long after it began; the sweep does the rest. API Gateway waits 29 s."""
HIDE_AT_ONCE = 500
"""So many sims of a deleted run are made invisible between two looks at the clock."""
DELETING_US = 30 * 1_000_000
"""A deletion older than this that has not emptied its run has died or was cut short."""
LIST_SIMS_MAX = 5000
"""A page of runs ends early when counting its unfinished runs' sims would read more than this."""
CLAIM_TRIES = 4
PARAMS_PER_READ = 50
PARAMS_BYTES = 3_500_000
"""A page of params ends with the read that goes over this; the largest 50 sims hold 820 KB, or 4.3 MB in all."""
HOT_ATTRIBUTES = ("state", "beat", "created_at", "started_at", "finished_at", "exit_code", "error")
LOG_ATTRIBUTES = ("kernels", "tail", "cycles", "insns", "bytes")


@dataclass
class Run:
    """A run's own items, and (id, name) of each of its sims in order."""

    id: str
    item: Item
    claim: Item
    sims: list[tuple[str, str]]


def not_found(run_id: str) -> NotFound:
    """The error for an id that nothing has."""
    return NotFound(f"run {run_id[:100]} not found")


def _check_id(run_id: str) -> str:
    if len(run_id) != 16 or not run_id.startswith("run-") or set(run_id[4:]) - set("0123456789abcdef"):
        raise not_found(run_id)
    return run_id


def load(run_id: str) -> Run:
    """A run's items. Raises NotFound, also once its deletion has begun."""
    return _ready(_load_also_deleting(run_id))


def _load_without_sims(run_id: str) -> Run:
    """As `load`, in one small read however many sims the run has."""
    return _ready(_run_of(run_id, table.query(_check_id(run_id), "a#", "a#~")))


def _load_also_deleting(run_id: str) -> Run:
    return _run_of(run_id, table.query(_check_id(run_id)))


def _run_of(run_id: str, items: Iterable[Item]) -> Run:
    found = {item["sk"]: item for item in items}
    if RUN not in found:
        raise not_found(run_id)
    pairs = [tuple(pair) for sk, item in found.items() if sk.startswith("s#") for pair in logs.unpack(item["data"])]
    return Run(run_id, found[RUN], found.get(CLAIM, {}), pairs[: found[RUN]["n"]])


def _ready(run: Run) -> Run:
    if run.item["status"] != "ready":
        raise not_found(run.id)
    return run


# Idempotency.


def _idem_pk(scope: str, key: str) -> str:
    return "idem#" + hashlib.sha256(f"{scope}\0{key}".encode()).hexdigest()


def _fingerprint(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _recall(scope: str, key: str | None, fingerprint: str) -> Item | None:
    """What an earlier request with this key did. Raises Conflict when its body was another."""
    if key is None:
        return None
    record = table.get(_idem_pk(scope, key), "-")
    if record and record["expires_at"] <= clock.now_us() // 1_000_000:
        try:
            table.delete(record["pk"], "-", "expires_at = :seen", {":seen": record["expires_at"]})
        except ConditionFailed:
            return _recall(scope, key, fingerprint)  # somebody else removed it, and may have made the next one
        return None
    if record and record["fingerprint"] != fingerprint:
        raise Conflict("this Idempotency-Key was used with another body")
    return record


def _record_op(scope: str, key: str, fingerprint: str, result: Item) -> dict[str, Any]:
    item = {
        "pk": _idem_pk(scope, key),
        "sk": "-",
        "fingerprint": fingerprint,
        "expires_at": clock.now_us() // 1_000_000 + IDEMPOTENCY_S,
        **result,
    }
    return table.put_op(item, "attribute_not_exists(pk)")


# Creation.


def _prepare(
    run_id: str, specs: Sequence[SimSpec], start: int
) -> tuple[str, list[tuple[str, str]], list[dict[str, Any]]]:
    """Write the items of new sims under an intent; returns its key, the sims, and the writes that make them visible."""
    now = clock.now_us()
    pairs = [(f"sim-{sims.new_token()}", spec.name or f"#{start + i}") for i, spec in enumerate(specs)]
    intent = f"i#{sims.new_token()}"
    table.put(
        {
            "pk": run_id,
            "sk": intent,
            "sims": logs.pack([sim_id for sim_id, _ in pairs]),
            "created_at": now,
            "sweep_pk": "intent#00",
        }
    )
    table.batch_write(
        item
        for (sim_id, name), spec in zip(pairs, specs, strict=True)
        for item in sims.new_items(sim_id, run_id, name, spec.params, now)
    )
    ops = [table.delete_op(run_id, intent, "attribute_exists(pk)")]
    for i in range(0, len(pairs), SIMS_PER_PAGE):
        page = pairs[i : i + SIMS_PER_PAGE]
        ops.append(table.put_op({"pk": run_id, "sk": f"s#{start + i:06d}", "data": logs.pack(page)}))
    return intent, pairs, ops


def create(name: str, specs: Sequence[SimSpec], key: str | None) -> RunDetail:
    """Make a run of queued sims, visible all at once. With the same idempotency key it is made once.

    Raises:
        Conflict: the key was used with another body.
    """
    fingerprint = _fingerprint([name, [spec.model_dump() for spec in specs]])
    run_id = f"run-{sims.new_token()}"
    record = _recall("runs", key, fingerprint)
    if record is None:
        intent, _, ops = _prepare(run_id, specs, 0)
        now = clock.now_us()
        ops.append(
            table.put_op({"pk": run_id, "sk": RUN, "name": name, "created_at": now, "n": len(specs), "status": "ready"})
        )
        ops.append(table.put_op({"pk": "runs", "sk": _listing_key(now, run_id)}))
        if key:
            ops.append(_record_op("runs", key, fingerprint, {"run_id": run_id}))
        try:
            table.transact(ops)
        except TransactionFailed:
            record = _recall("runs", key, fingerprint)
            if record is None and table.get(run_id, RUN) is None:
                raise
            # Otherwise the same key won the race, or this very transaction was sent twice by the SDK.
            if record and record["run_id"] != run_id:
                _drop_intent(run_id, intent)
    return detail(record["run_id"] if record else run_id)


def add(run_id: str, specs: Sequence[SimSpec], key: str | None) -> list[SimSummary]:
    """Add queued sims to a run; with the same idempotency key they are added once.

    Raises:
        NotFound: no run has this id.
        Conflict: the key was used with another body, or the run would hold more than 10,000 sims.
    """
    fingerprint = _fingerprint([spec.model_dump() for spec in specs])
    while True:
        run = load(run_id)
        record = _recall(run_id, key, fingerprint)
        if record:
            return _summaries(run.sims[record["start"] : record["start"] + len(specs)])
        start = run.item["n"]
        if start + len(specs) > settings.RUN_MAX_SIMS:
            raise Conflict(f"the run holds {start} sims, and at most {settings.RUN_MAX_SIMS} fit")
        intent, pairs, ops = _prepare(run_id, specs, start)
        ops.append(
            table.update_op(
                run_id,
                RUN,
                "SET n = :n REMOVE final_counts",
                {":n": start + len(specs), ":seen": start, ":ready": "ready"},
                {"#status": "status"},
                "n = :seen AND #status = :ready",
            )
        )
        if key:
            ops.append(_record_op(run_id, key, fingerprint, {"start": start}))
        try:
            table.transact(ops)
            return _summaries(pairs)
        except TransactionFailed:
            if set(pairs) <= set(load(run_id).sims):
                return _summaries(pairs)  # sent twice by the SDK
            _drop_intent(run_id, intent)


def _drop_intent(run_id: str, intent: str) -> None:
    """Undo a creation that will not become visible."""
    item = table.get(run_id, intent)
    if item:
        _delete_sims(logs.unpack(item["sims"]))
        table.delete(run_id, intent)


# Reading.


def _listing_key(created_at: int, run_id: str) -> str:
    return f"{created_at:016d}-{run_id}"


def _summaries(pairs: Sequence[tuple[str, str]]) -> list[SimSummary]:
    keys = [(sim_id, sk) for sim_id, _ in pairs for sk in (sims.HOT, sims.LOG)]
    items = table.batch_get(keys, (*HOT_ATTRIBUTES, *LOG_ATTRIBUTES))
    now = clock.now_us()
    return [
        sims.summary(sim_id, name, items[sim_id, sims.HOT], items.get((sim_id, sims.LOG)), now)
        for sim_id, name in pairs
        if (sim_id, sims.HOT) in items
    ]


def _count(observed: Sequence[states.State]) -> Counts:
    return Counts.model_validate({state: observed.count(state) for state in states.STATES})


def detail(run_id: str) -> RunDetail:
    """A run with all its sims in order. Raises NotFound."""
    run = load(run_id)
    summaries = _summaries(run.sims)
    return RunDetail.model_construct(
        id=run_id,
        name=run.item["name"],
        created_at=rfc3339(run.item["created_at"]),
        counts=_count([s.state for s in summaries]),
        sims=summaries,
    )


def params(run_id: str, limit: int, cursor: str | None) -> ParamsPage:
    """Params of a run's sims in order: at most `limit`, at most about 4.5 MB of JSON. They never change. Raises NotFound.

    `cursor` matches PARAMS_CURSOR: the position of the page's first sim.
    """
    start = int(cursor or 0)
    run = load(run_id)
    ids = [sim_id for sim_id, _ in run.sims[start : start + limit]]
    found: list[SimParams] = []
    size = 0
    for first in range(0, len(ids), PARAMS_PER_READ):
        some = ids[first : first + PARAMS_PER_READ]
        metas = table.batch_get([(sim_id, sims.META) for sim_id in some], ("params",))
        for sim_id in some:
            # Deleted since its run was read.
            values = sims.params_of(metas[sim_id, sims.META]) if (sim_id, sims.META) in metas else {}
            found.append(SimParams.model_construct(id=sim_id, params=values))
        size += sum(len(json.dumps(sim.params, ensure_ascii=False).encode()) for sim in found[first:])
        if size > PARAMS_BYTES:
            break
    after = start + len(found)
    return ParamsPage.model_construct(sims=found, next_cursor=str(after) if after < len(run.sims) else None)


def listing(limit: int, cursor: str | None) -> RunList:
    """Runs, newest first. A page may hold fewer than `limit` when many large runs are unfinished.

    `cursor` matches RUNS_CURSOR and is the listing key of the last run of the page before.
    """
    before = cursor or ""
    ids: list[str] = []
    keys: list[str] = []
    more = False
    for entry in table.query("runs", "", before, backward=True, page=limit + 2):
        if entry["sk"] == before:
            continue
        if len(ids) == limit:
            more = True
            break
        keys.append(entry["sk"])
        ids.append(entry["sk"].partition("-")[2])
    items = table.batch_get((run_id, RUN) for run_id in ids)
    summaries: list[RunSummary] = []
    last, work = "", 0
    for run_id, key in zip(ids, keys, strict=True):
        item = items.get((run_id, RUN))
        if item is None or item["status"] != "ready":
            last = key
            continue
        if "final_counts" not in item:
            work += item["n"]
            if summaries and work > LIST_SIMS_MAX:
                more = True
                break
        last = key
        summaries.append(
            RunSummary.model_construct(
                id=run_id, name=item["name"], created_at=rfc3339(item["created_at"]), counts=_counts(run_id, item)
            )
        )
    return RunList.model_construct(runs=summaries, next_cursor=last if more else None)


def _counts(run_id: str, item: Item) -> Counts:
    """A run's counts; kept on its item once all its sims are final, for final is final."""
    if "final_counts" in item:
        return Counts.model_construct(**item["final_counts"])
    try:
        pairs = load(run_id).sims
    except NotFound:
        return Counts()  # deleted since it was listed
    hots = table.batch_get([(sim_id, sims.HOT) for sim_id, _ in pairs], ("state", "beat"))
    now = clock.now_us()
    counts = _count([sims.state_of(hot, now) for hot in hots.values()])
    if sum(getattr(counts, state) for state in states.FINAL) == len(pairs) == item["n"]:
        try:
            table.update(
                run_id, RUN, "SET final_counts = :c", {":c": counts.model_dump(), ":n": item["n"]}, None, "n = :n"
            )
        except ConditionFailed:
            return counts  # sims were added meanwhile; these counts were true when read
    return counts


# Claim and cancel.


def claim(run_id: str, worker: str, key: str | None) -> str | None:
    """Move one queued sim to running for `worker` alone; returns its id, None when none is queued.

    Claims take a number from a counter and so do not meet; a number that leads to no queued sim (it was cancelled, or
    a claim died holding it) is made up for by a look at every sim once the numbers are used up.

    Raises:
        NotFound: no run has this id.
        Conflict: the key was used by another worker.
    """
    run = _load_without_sims(run_id)
    fingerprint = _fingerprint(worker)
    scope = f"claim#{run_id}"
    record = _recall(scope, key, fingerprint)
    if record:
        return str(record["sim_id"])

    def take(sim_id: str) -> bool:
        ops = sims.claim_ops(sim_id, worker, clock.now_us())
        if key:
            ops.append(_record_op(scope, key, fingerprint, {"sim_id": sim_id}))
        try:
            table.transact(ops)
        except TransactionFailed as failed:
            if key and len(ops) - 1 in failed.failed:
                raise _AlreadyClaimed from None
            return False
        return True

    try:
        return _claim_numbered(run, take) or _claim_any(run, take)
    except _AlreadyClaimed:
        record = _recall(scope, key, fingerprint)
        return record["sim_id"] if record else None


class _AlreadyClaimed(Exception):
    """The same idempotency key won a race."""


def _claim_numbered(run: Run, take: Callable[[str], bool]) -> str | None:
    for _ in range(CLAIM_TRIES):
        if run.claim.get("next", 0) >= run.item["n"]:
            return None
        try:
            run.claim = table.update(
                run.id,
                CLAIM,
                "ADD #next :one",
                {":one": 1, ":n": run.item["n"]},
                {"#next": "next"},
                "attribute_not_exists(#next) OR #next < :n",
                returns="ALL_NEW",
            )
        except ConditionFailed:
            return None
        sim_id = _sim_at(run.id, run.claim["next"] - 1)
        if sim_id and take(sim_id):
            return sim_id
    return None


def _sim_at(run_id: str, position: int) -> str | None:
    """The sim at a position of the run, None when the run was deleted meanwhile."""
    page = next(table.query(run_id, "s#", f"s#{position:06d}", backward=True, page=1), None)
    if page is None:
        return None
    sim_id: str = logs.unpack(page["data"])[position - int(page["sk"][2:])][0]
    return sim_id


def _claim_any(run: Run, take: Callable[[str], bool]) -> str | None:
    """Look at every sim. That nothing is queued among the first n stays true, so it is remembered."""
    if run.claim.get("drained", 0) >= run.item["n"]:
        return None
    run = load(run.id)
    hots = table.batch_get([(sim_id, sims.HOT) for sim_id, _ in run.sims], ("state",))
    queued = [sim_id for (sim_id, _), hot in hots.items() if hot["state"] == "queued"]
    random.shuffle(queued)
    for sim_id in queued:
        if take(sim_id):
            return sim_id
    table.update(run.id, CLAIM, "SET drained = :n", {":n": run.item["n"]})
    return None


def cancel(run_id: str) -> None:
    """Cancel each sim that has not finished. Raises NotFound."""
    run = load(run_id)
    hots = table.batch_get([(sim_id, sims.HOT) for sim_id, _ in run.sims], ("state",))
    table.fan_out(sims.cancel, [sim_id for (sim_id, _), hot in hots.items() if hot["state"] not in states.FINAL])


# Deletion.


def delete(run_id: str) -> None:
    """Delete a run and everything of it. Gone for every reader when it returns; the sweep removes what takes longer.

    Sent again it goes on where an earlier one died, and succeeds, until the sweep has forgotten the run.

    Raises:
        NotFound: no run has this id.
        Conflict: a sim is running.
        Busy: the run is gone, but not yet all of its sims.
    """
    deadline = time.monotonic() + DELETE_SECONDS
    run = _load_also_deleting(run_id)
    hots = [(sim_id, sims.HOT) for sim_id, _ in run.sims]
    if run.item["status"] != "ready":
        hots = list(table.batch_get(hots, ("state",)))  # those that the earlier one left
    elif not _bury(run):
        raise Conflict("the run was changed meanwhile, send the same request again")
    for first in range(0, len(hots), HIDE_AT_ONCE):
        if time.monotonic() > deadline:
            raise Busy("the run is being deleted, send the same request again")
        table.batch_write(deletes=hots[first : first + HIDE_AT_ONCE])
    for sim_id, _ in run.sims:
        if time.monotonic() > deadline:
            return
        _delete_sims([sim_id])
    _mark_emptied(run_id)


def _bury(run: Run) -> bool:
    """Make the run invisible, for good; False when it is not as it was loaded. Raises Conflict when a sim is running."""
    hots = table.batch_get([(sim_id, sims.HOT) for sim_id, _ in run.sims], ("state", "beat"))
    now = clock.now_us()
    running = sum(sims.state_of(hot, now) == "running" for hot in hots.values())
    if running:
        raise Conflict(f"{running} of the run's sims are running: cancel it first")
    values = {":deleting": "deleting", ":sweep": "deleting#00", ":now": now, ":ready": "ready", ":n": run.item["n"]}
    tombstone = table.update_op(
        run.id,
        RUN,
        "SET #status = :deleting, sweep_pk = :sweep, deleted_at = :now",
        values,
        {"#status": "status"},
        "#status = :ready AND n = :n",
    )
    try:
        table.transact([tombstone, table.delete_op("runs", _listing_key(run.item["created_at"], run.id))])
    except TransactionFailed:
        # Sims were added, or it is buried already: by another request, or by this one, sent twice by the SDK.
        status: str = _load_also_deleting(run.id).item["status"]
        return status == "deleting"
    return True


def _mark_emptied(run_id: str) -> None:
    """Note on the tombstone that everything of the run was removed once."""
    try:
        table.update(run_id, RUN, "SET emptied = :yes", {":yes": True}, None, "attribute_exists(pk)")
    except ConditionFailed:
        return  # forgotten meanwhile


def _delete_sims(sim_ids: Sequence[str]) -> None:
    """Remove every item and every blob of these sims; safe to do again."""
    for sim_id in sim_ids:
        table.batch_write(deletes=[(sim_id, item["sk"]) for item in table.query(sim_id, attributes=("sk",))])
        for kind in ("files", "logs", "timing", "kernels"):
            blobs.delete_prefix(f"{kind}/{sim_id}/")


def finish_deletions(now: int) -> int:
    """Remove what is left of deleted runs, and of creations that died. Part of the sweep; returns how many it ended.

    What a dead deletion left is removed by the next sweep. A deleted run's sims are gone over once more after a quarter
    of an hour, for what requests that were still under way wrote, and then the run is forgotten.
    """
    done = 0
    for run_id, sk in list(table.sweep_entries("deleting#00")):
        item = table.get(run_id, sk)
        if item is None:
            continue
        forget = item["deleted_at"] + ABANDONED_US <= now
        if not forget and (item.get("emptied") or item["deleted_at"] + DELETING_US > now):
            continue
        pages = [i for i in table.query(run_id) if i["sk"].startswith("s#")]
        sim_ids = [sim_id for page in pages for sim_id, _ in logs.unpack(page["data"])]
        table.batch_write(deletes=[(sim_id, sims.HOT) for sim_id in sim_ids])
        _delete_sims(sim_ids)
        if not forget:
            _mark_emptied(run_id)
            continue
        table.batch_write(
            deletes=[(run_id, i["sk"]) for i in table.query(run_id, attributes=("sk",)) if i["sk"] != RUN]
        )
        table.delete(run_id, RUN)
        done += 1
    for run_id, intent in list(table.sweep_entries("intent#00")):
        item = table.get(run_id, intent)
        if item and item["created_at"] + ABANDONED_US <= now:
            _drop_intent(run_id, intent)
            done += 1
    return done
