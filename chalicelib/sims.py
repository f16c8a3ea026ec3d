"""A sim: its hot item, heartbeats, cancel, what readers are told, and the sweep that finds the silent ones.

Items of a sim, all under `pk = sim_id`:

| sk | what | written |
|---|---|---|
| `a#hot` | run, state, times, exit code, first bytes of the error | each heartbeat; at most 1 KB, so 1 write unit |
| `a#log` | the parse cursor and the log's totals (`logs`) | each chunk |
| `a#files` | the quota ledger (`files`) | each put |
| `b#meta` | name, params, worker | when created, when claimed |
| `b#error` | the whole error when it does not fit the hot item | once |
| `b#timing` | step timing (`timing`) | each upload |
| `c#<seq>`, `g#<seq>` | chunks; gaps that parsing went past (`logs`) | once each |
| `f#<name>` | a file's row (`files`) | each put |
| `k#<index>` | pages of kernels (`logs`) | once each |

`a#` items are read together by one query: whoever needs one needs to know that the sim exists.
"""

import json
import secrets
import zlib
from typing import Any

from chalicelib import clock, metrics, settings, states, table
from chalicelib.clock import rfc3339
from chalicelib.models import FileTotals, Heartbeat, HeartbeatAck, LogTotals, SimDetail, SimSummary
from chalicelib.names import check_id, not_found
from chalicelib.states import State

HOT, LOG, FILES, META, ERROR, TIMING = "a#hot", "a#log", "a#files", "b#meta", "b#error", "b#timing"

SHARDS = 16
"""Shards of the sweep index: 16,000 state changes a second before one partition is full."""

ERROR_PREVIEW_BYTES = 256
"""What the hot item keeps of an error; with all else it stays under 1 KB."""


def new_token() -> str:
    """Twelve unguessable hex digits, for ids and for object keys that must not collide."""
    return secrets.token_hex(6)


def shard(kind: str, sim_id: str) -> str:
    """The sweep index key of a sim that waits for `kind`: `running`, `settle` or `holds`. For `tidy` see `sweep`."""
    return f"{kind}#{int(sim_id[-2:], 16) % SHARDS:02d}"


def cut_utf8(text: str, limit: int) -> str:
    """`text` cut to at most `limit` bytes of UTF-8, never inside a character."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= limit else raw[:limit].decode("utf-8", "ignore")


# Creation, used by `runs`.


def new_items(sim_id: str, run_id: str, name: str, params: dict[str, Any], now: int) -> list[table.Item]:
    """The items of a queued sim."""
    packed = zlib.compress(json.dumps(params, ensure_ascii=False).encode("utf-8", "replace"))
    return [
        {"pk": sim_id, "sk": HOT, "run_id": run_id, "state": "queued", "created_at": now},
        {"pk": sim_id, "sk": META, "name": name, "params": packed},
    ]


# Moving.


def beat(sim_id: str, heartbeat: Heartbeat) -> HeartbeatAck:
    """Record a heartbeat: one request to the table, whatever the outcome.

    Raises:
        NotFound: no sim has this id.
    """
    check_id(sim_id)
    now = clock.now_us()
    metrics.count("Heartbeats")
    error = cut_utf8(heartbeat.error, settings.ERROR_MAX_BYTES) if heartbeat.error is not None else None
    try:
        if heartbeat.state == "running":
            _move(sim_id, "running", now)
        else:
            _finish(sim_id, heartbeat.state, now, heartbeat.exit_code, error)
            metrics.count(f"Sims{heartbeat.state.capitalize()}")
        state: State = heartbeat.state
    except table.ConditionFailed as failed:
        if failed.old is None:
            raise not_found(sim_id) from None
        state = failed.old["state"]
    return HeartbeatAck(state=state, cancel=state == "cancelled")


def _condition(target: State) -> tuple[str, dict[str, Any]]:
    """The condition under which a sim may move to `target`, or beat in it, from SIM_TRANSITIONS; each state under its name.

    A sim that is not there has no state.
    """
    allowed = states.sources(target) + (("running",) if target == "running" else ())
    values = {f":{state}": state for state in allowed}
    return f"#state IN ({', '.join(values)})", values


def _move(sim_id: str, target: State, now: int) -> None:
    condition, values = _condition(target)
    # `sweep_pk` and `started_at` keep their values in a steady beat, so the index is not written.
    table.update(
        sim_id,
        HOT,
        f"SET #state = :{target}, beat = :now, started_at = if_not_exists(started_at, :now), sweep_pk = :sweep",
        {":now": now, ":sweep": shard("running", sim_id), **values},
        {"#state": "state"},
        condition,
    )


def _finish(sim_id: str, target: State, now: int, exit_code: int | None, error: str | None) -> None:
    condition, values = _condition(target)
    expression = (
        f"SET #state = :{target}, beat = :now, started_at = if_not_exists(started_at, :now), finished_at = :now, "
        "sweep_pk = :sweep"
    )
    values |= {f":{target}": target, ":now": now, ":sweep": shard("settle", sim_id)}
    if exit_code is not None:
        expression += ", exit_code = :code"
        values[":code"] = exit_code
    if error is not None:
        expression += ", #error = :error"
        values[":error"] = cut_utf8(error, ERROR_PREVIEW_BYTES)
    names = {"#state": "state"} | ({"#error": "error"} if error is not None else {})
    if error is None or values[":error"] == error:
        table.update(sim_id, HOT, expression, values, names, condition)
        return
    # A long error has an item of its own, in the same request: the hot item stays one write unit.
    try:
        table.transact(
            [
                table.update_op(sim_id, HOT, expression, values, names, condition, returns_old=True),
                table.put_op({"pk": sim_id, "sk": ERROR, "error": error}),
            ]
        )
    except table.TransactionFailed as failed:
        raise table.ConditionFailed(failed.old[0]) from None


def cancel(sim_id: str) -> None:
    """Make the sim cancelled unless it has finished. Raises NotFound."""
    check_id(sim_id)
    now = clock.now_us()
    condition, values = _condition("cancelled")
    try:
        table.update(
            sim_id,
            HOT,
            "SET #state = :cancelled, finished_at = :now, sweep_pk = :sweep",
            {":cancelled": "cancelled", ":now": now, ":sweep": shard("settle", sim_id), **values},
            {"#state": "state"},
            condition,
        )
        metrics.count("SimsCancelled")
    except table.ConditionFailed as failed:
        if failed.old is None:
            raise not_found(sim_id) from None


def claim_ops(sim_id: str, worker: str, now: int) -> list[dict[str, Any]]:
    """The parts of a transaction that moves a queued sim to running for one worker."""
    return [
        table.update_op(
            sim_id,
            HOT,
            "SET #state = :running, beat = :now, started_at = :now, sweep_pk = :sweep",
            {":running": "running", ":now": now, ":sweep": shard("running", sim_id), ":queued": "queued"},
            {"#state": "state"},
            "#state = :queued",
        ),
        table.update_op(sim_id, META, "SET worker = :worker", {":worker": worker}, None, "attribute_exists(pk)"),
    ]


# Looking again at what the sweep is done with.


def settle_again(hot: table.Item) -> None:
    """Have the sweep settle a sim that is over once more, and in an hour or more look for objects that no item names."""
    # Not if it is in another state by now: then the sweep will look at it anyway, and may have to for another reason.
    try:
        table.update(
            hot["pk"],
            HOT,
            "SET sweep_pk = :s",
            {":s": shard("settle", hot["pk"]), ":state": hot["state"]},
            {"#state": "state"},
            "#state = :state",
        )
    except table.ConditionFailed:
        return  # it beat, ended or was deleted meanwhile


def expect_object(hot: table.Item) -> None:
    """To be called before an object of a sim is put: should its item never be, the sweep will find it."""
    if hot["state"] not in ("queued", "running"):  # else the sweep looks once they are over
        settle_again(hot)


# Reading.


def head(sim_id: str) -> dict[str, table.Item]:
    """The `a#` items by sort key, in one request. Raises NotFound when the sim is not there."""
    items = {item["sk"]: item for item in table.query(check_id(sim_id), "a#", "a#~")}
    if HOT not in items:
        raise not_found(sim_id)
    return items


def state_of(hot: table.Item, now: int) -> State:
    """The state a reader is told."""
    return states.observed(hot["state"], hot.get("beat"), now, settings.heartbeat_timeout_us())


def _time(us: int | None) -> str | None:
    return None if us is None else rfc3339(us)


def summary(sim_id: str, name: str, hot: table.Item, log: table.Item | None, now: int) -> SimSummary:
    """A sim as its run shows it."""
    log = log or {}
    return SimSummary.model_construct(
        id=sim_id,
        name=name,
        state=state_of(hot, now),
        created_at=rfc3339(hot["created_at"]),
        started_at=_time(hot.get("started_at")),
        finished_at=_time(hot.get("finished_at")),
        last_heartbeat_at=_time(hot.get("beat")),
        exit_code=hot.get("exit_code"),
        error=hot.get("error"),
        kernels=log.get("kernels", 0) + log.get("tail", 0),
        tot_sim_cycles=log.get("cycles"),
        tot_sim_insns=log.get("insns"),
        log_bytes=log.get("bytes", 0),
    )


def params_of(meta: table.Item) -> dict[str, Any]:
    """What was given at creation, from the item that holds it."""
    params: dict[str, Any] = json.loads(zlib.decompress(meta["params"]))
    return params


def detail(sim_id: str, log_totals: Any, file_totals: Any) -> SimDetail:
    """A sim whole. `log_totals` and `file_totals` are the functions of `logs` and `files` that read their item."""
    items = {item["sk"]: item for item in table.query(check_id(sim_id), "a#", "b#~")}
    if HOT not in items or META not in items:
        raise not_found(sim_id)
    hot, meta, log = items[HOT], items[META], items.get(LOG)
    totals: LogTotals = log_totals(sim_id, log)
    files: FileTotals = file_totals(items.get(FILES))
    return SimDetail.model_construct(
        id=sim_id,
        run_id=hot["run_id"],
        name=meta["name"],
        state=state_of(hot, clock.now_us()),
        params=params_of(meta),
        worker=meta.get("worker"),
        created_at=rfc3339(hot["created_at"]),
        started_at=_time(hot.get("started_at")),
        finished_at=_time(hot.get("finished_at")),
        last_heartbeat_at=_time(hot.get("beat")),
        exit_code=hot.get("exit_code"),
        error=items[ERROR]["error"] if ERROR in items else hot.get("error"),
        kernels=(log or {}).get("kernels", 0) + (log or {}).get("tail", 0),
        log=totals,
        files=files,
        step_timeline=TIMING in items,
    )


# The sweep's part.


def mark_lost(now: int) -> int:
    """Mark each running sim that has been silent for longer than the timeout; returns how many.

    Each write is conditional on the state and on the very beat that was seen, so a beat in between wins.
    """
    cutoff = now - settings.heartbeat_timeout_us()
    return sum(table.fan_out(lambda n: _mark_lost_in(f"running#{n:02d}", cutoff), range(SHARDS)))


def _mark_lost_in(sweep_pk: str, cutoff: int) -> int:
    # A request at a time, as eight shards are under way at once: with a whole fleet's items in memory the collector would look
    # at them over and over, and more threads than that only wait for each other.
    keys = list(table.sweep_entries(sweep_pk))
    size = table.BATCH_GET_MAX
    return sum(_mark_lost_of(keys[i : i + size], cutoff) for i in range(0, len(keys), size))


def _mark_lost_of(keys: list[tuple[str, str]], cutoff: int) -> int:
    lost = 0
    for (sim_id, sk), hot in table.batch_get(keys, ("state", "beat")).items():
        if hot["state"] != "running" or hot["beat"] >= cutoff:
            continue
        try:
            table.update(
                sim_id,
                sk,
                "SET #state = :lost, sweep_pk = :settle",
                {":lost": "lost", ":settle": shard("settle", sim_id), ":running": "running", ":seen": hot["beat"]},
                {"#state": "state"},
                "#state = :running AND beat = :seen",
            )
        except table.ConditionFailed:
            continue  # it beat, finished or was deleted meanwhile
        lost += 1
        metrics.count("SimsLost")
    return lost
