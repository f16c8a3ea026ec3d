"""Output files: quota, put, read, and the reconciler for what a dead put left.

The bytes of `name` are versions of the object `files/<sim_id>/<name>`; the row `f#<name>` names the one version that
counts, so row and bytes always belong to the same put. The ledger `a#files` holds the committed count and bytes, and a
hold for each put under way. A put is three moves of the ledger, each conditional on its revision:

1. hold: room for the new size is set aside;
2. the object is written;
3. commit: row, totals and the end of the hold, in one transaction. A replaced version is deleted behind it and keeps a
   hold of zero bytes until that is done.

Of a name one version counts, so what it needs is the largest of its row and its holds: what a put replaces does not
count, nor does the hold of a dead put against the next one of its name.

A put that fails makes its hold void: it sets no room aside and cannot be committed, but stays for what its write may
still leave. A put that dies leaves a hold that expires, and is void then. For either the sweep deletes the versions no
row names. Room that others hold but have not committed is no reason to refuse for good: the put waits for them a little
and is then told to come back.

The bytes need not come through the app. A client may write them to the object store itself, by a presigned URL, and the
front door writes what a client sends it; both name the hold in the object's metadata, so that whoever finds the bytes
first can commit: the client's next call, the front door, or the event that tells of every new object. Where the server
in front takes any number of bytes, the URL is its own, and each put to it has a hold beside the upload's.
"""

import secrets
import time
from collections.abc import Callable
from typing import Any

from chalicelib import blobs, clock, metrics, settings, sims, table
from chalicelib.clock import rfc3339
from chalicelib.errors import Busy, Conflict, NotFound, TooLarge
from chalicelib.log import logger
from chalicelib.models import FileTotals, SimFile, Upload
from chalicelib.names import check_id, content_type, object_key
from chalicelib.table import Item, TransactionFailed

HOLD_US = 15 * 60 * 1_000_000
"""A hold lives this long: longer than any request (29 s on AWS, a slow 64 MiB upload through the front door)."""
WAIT_SECONDS = 8.0
"""How long a put waits for room that others hold."""
POLL_SECONDS = 0.1
UPLOAD_HEADER = "Cascade-Upload"
"""Of a put to an upload's URL that is the server's own: which upload it is."""
UNKNOWN = ""
"""As the version that a void hold waits to see gone: the write failed, and may have left one all the same."""


def totals(ledger: Item | None) -> FileTotals:
    """Committed files of a sim."""
    ledger = ledger or {}
    return FileTotals.model_construct(count=ledger.get("count", 0), bytes=ledger.get("bytes", 0))


# The ledger.


def _ledger(sim_id: str) -> Item:
    """The ledger, empty when none was written yet. Raises NotFound when the sim is not there."""
    found = sims.head(sim_id).get(sims.FILES)
    return found or {"rev": 0, "count": 0, "bytes": 0, "holds": {}}


def _ledger_op(sim_id: str, ledger: Item) -> dict[str, Any]:
    """The ledger's next revision as a part of a transaction; it fails when somebody else wrote one."""
    holds = ledger["holds"]
    item: Item = {"pk": sim_id, "sk": sims.FILES, **{k: ledger[k] for k in ("count", "bytes", "holds")}}
    item["rev"] = ledger["rev"] + 1
    if holds:
        item["sweep_pk"] = sims.shard("holds", sim_id)
    return table.put_op(item, "attribute_not_exists(rev) OR rev = :rev", {":rev": ledger["rev"]})


def _held(ledger: Item) -> int:
    """Bytes set aside beyond those of the files. Of the holds of one name the largest counts, for one file will be."""
    growth: dict[str, int] = {}
    for hold in ledger["holds"].values():
        growth[hold["name"]] = max(growth.get(hold["name"], 0), hold["bytes"])
    return sum(growth.values())


def _hold(sim_id: str, name: str, size: int) -> str:
    """Set room aside; returns the hold's id. Raises NotFound, TooLarge, Busy."""
    deadline = time.monotonic() + WAIT_SECONDS
    hold_id = secrets.token_hex(8)
    while True:
        ledger = _ledger(sim_id)
        if hold_id in ledger["holds"]:
            return hold_id  # by the try before, whose answer was lost
        row = table.get(sim_id, f"f#{name}")
        growth = size - (row["size"] if row else 0)
        if ledger["bytes"] + growth > settings.SIM_FILES_MAX_BYTES:
            if _ledger(sim_id)["rev"] != ledger["rev"]:
                continue  # the row may be of another moment
            raise TooLarge(f"the sim's files would pass {settings.SIM_FILES_MAX_BYTES // settings.MIB} MiB in all")
        until = clock.now_us() + HOLD_US
        ledger["holds"][hold_id] = {"name": name, "bytes": max(0, growth), "until": until, "size": size}
        if ledger["bytes"] + _held(ledger) <= settings.SIM_FILES_MAX_BYTES:
            try:
                table.transact([_ledger_op(sim_id, ledger)])
                return hold_id
            except (TransactionFailed, Busy):
                if time.monotonic() > deadline:
                    abandon(sim_id, name, hold_id, None)
                    raise Busy() from None
                time.sleep(0.01)
                continue  # another put moved the ledger
        if time.monotonic() > deadline:
            raise Busy("other uploads of this sim hold the room that is left, send the same request again", 2)
        time.sleep(POLL_SECONDS)


def _change_holds(sim_id: str, change: Callable[[dict[str, Item]], bool]) -> None:
    """Write the holds as `change` leaves them, unless it returns False or the sim is gone. Raises Busy after a while."""
    for _ in range(50):
        try:
            ledger = _ledger(sim_id)
        except NotFound:
            return
        if not change(ledger["holds"]):
            return
        try:
            table.transact([_ledger_op(sim_id, ledger)])
            return
        except (TransactionFailed, Busy):
            time.sleep(0.01)
    raise Busy()


def _release(sim_id: str, hold_id: str, dropped: str) -> None:
    """End a hold whose version `dropped` is gone. Raises Busy after a while; the hold then expires."""

    def end(holds: dict[str, Item]) -> bool:
        # A hold of one upload may wait for another's version: bytes can be put twice.
        return hold_id in holds and holds[hold_id].get("drop") == dropped and bool(holds.pop(hold_id))

    _change_holds(sim_id, end)


def _void(sim_id: str, hold_id: str, version: str) -> None:
    """Give up the room of a hold and let nobody commit it any more; it stays until its version is gone. Raises Busy."""

    def void(holds: dict[str, Item]) -> bool:
        hold = holds.get(hold_id)
        if hold is None or "drop" in hold:
            return False
        hold |= {"bytes": 0, "drop": version}
        if version == UNKNOWN:
            # This one makes the sweep look at all versions of the name, and later: it stands for the earlier ones.
            for other, earlier in list(holds.items()):
                same = earlier["name"] == hold["name"] and earlier.get("drop") == UNKNOWN
                if same and earlier["until"] < hold["until"]:
                    del holds[other]
        return True

    _change_holds(sim_id, void)


def _commit(
    sim_id: str, name: str, hold_id: str, size: int, version: str, upload_id: str | None
) -> tuple[Item, str | None]:
    """Make the written version the file, and end the upload it is of; returns its row and the version it replaced."""
    for _ in range(100):
        ledger = _ledger(sim_id)
        hold = ledger["holds"].get(hold_id)
        old = table.get(sim_id, f"f#{name}")
        if old and old["version"] == version:
            return old, hold.get("drop") if hold else None  # by whoever found the bytes before
        if hold is None or "drop" in hold:
            raise Busy("the upload took longer than its reservation, send it again")
        ledger["bytes"] += size - (old["size"] if old else 0)
        ledger["count"] += 0 if old else 1
        if old:
            hold |= {"bytes": 0, "drop": old["version"]}
        else:
            del ledger["holds"][hold_id]
        if upload_id:
            ledger["holds"].pop(upload_id, None)
        for other in ledger["holds"].values():
            if other["name"] == name and "drop" not in other:
                other["bytes"] = max(0, other["size"] - size)
        if ledger["bytes"] + _held(ledger) > settings.SIM_FILES_MAX_BYTES:
            if _ledger(sim_id)["rev"] != ledger["rev"]:
                continue  # the row may be of another moment
            # Cannot be, for this only uses what was set aside; but nothing else stands between a wrong hold and the quota.
            raise Busy("other uploads of this sim hold the room that is left, send the same request again", 2)
        row: Item = {
            "pk": sim_id,
            "sk": f"f#{name}",
            "size": size,
            "version": version,
            "content_type": content_type(name),
            "created_at": clock.now_us(),
            "upload": upload_id or hold_id,
        }
        try:
            table.transact([_ledger_op(sim_id, ledger), table.put_op(row)])
            return row, old["version"] if old else None
        except (TransactionFailed, Busy):
            # Either another put moved the ledger, or this very commit went through and its answer was lost.
            done = table.get(sim_id, f"f#{name}")
            if done and done["version"] == version:
                return done, old["version"] if old else None
            time.sleep(0.01)
    raise Busy()


# Calls.


def put(sim_id: str, name: str, body: bytes, upload_id: str | None = None) -> SimFile:
    """Store `body` as the file `name`, whole or not at all.

    Args:
        upload_id: The upload that this ends, when it is put to an upload's URL.

    Raises:
        NotFound: no sim has this id.
        TooLarge: over 64 MiB, or the sim's files would pass 256 MiB.
        Busy: the room is held by puts still under way, or a passing fault; the earlier file stands.
    """
    hold_id = hold(sim_id, name, len(body))
    try:
        version = blobs.put(object_key(sim_id, name), body, content_type(name))
    except BaseException:
        abandon(sim_id, name, hold_id, None)
        raise
    return commit(sim_id, name, hold_id, len(body), version, upload_id)


def hold(sim_id: str, name: str, size: int) -> str:
    """Set room aside for a file of `size` bytes; returns the hold's id.

    Raises:
        NotFound, TooLarge, Busy: as `put`.
    """
    check_id(sim_id)
    if size > settings.FILE_MAX_BYTES:
        sims.head(sim_id)
        raise TooLarge(f"file is over the {settings.FILE_MAX_BYTES // settings.MIB} MiB per-file limit")
    return _hold(sim_id, name, size)


def commit(sim_id: str, name: str, hold_id: str, size: int, version: str, upload_id: str | None = None) -> SimFile:
    """Make a written version the file, or take it away again. Safe to do twice, also at the same time.

    Raises:
        NotFound: the sim was deleted meanwhile.
        Busy: the hold has expired, its room is gone, or a passing fault.
    """
    try:
        row, replaced = _commit(sim_id, name, hold_id, size, version, upload_id)
    except BaseException:
        abandon(sim_id, name, hold_id, version)
        raise
    if replaced and replaced != version:
        blobs.delete(object_key(sim_id, name), replaced)
        _release(sim_id, hold_id, replaced)
    metrics.count("Files")
    metrics.count("FileBytes", size)
    return _sim_file(row)


def abandon(sim_id: str, name: str, hold_id: str, version: str | None) -> None:
    """After a failed put: give its room back and take its bytes away, or leave to the sweep what can't be done now.

    Args:
        version: None when the write failed. It may still have happened, or yet happen: the hold stays for the sweep.
    """
    try:
        # Voided before the bytes are taken, so that nobody else who found them commits them meanwhile.
        _void(sim_id, hold_id, version or UNKNOWN)
        if version is None:
            return
        row = table.get(sim_id, f"f#{name}")
        if row and row["version"] == version:
            return  # it went through after all
        blobs.delete(object_key(sim_id, name), version)
        _release(sim_id, hold_id, version)
    except Exception as error:  # noqa: BLE001  the first failure is what the caller must see; the sweep does the rest
        logger().warning("left to the sweep", sim_id=sim_id, file=name, reason=type(error).__name__)


def _sim_file(row: Item) -> SimFile:
    return SimFile.model_construct(
        name=row["sk"][2:],
        size=row["size"],
        content_type=row["content_type"],
        created_at=rfc3339(row["created_at"]),
    )


# Bytes that do not come through the app.


def begin(sim_id: str, name: str, size: int) -> Upload:
    """Set room aside and tell where to put the bytes. Raises NotFound, TooLarge, Busy as `put`."""
    hold_id = hold(sim_id, name, size)
    if settings.direct_downloads():
        # The server in front takes any file itself, and its object store has no door of its own.
        url = f"/api/sims/{sim_id}/files/{name}"
        headers = {"Content-Type": "application/octet-stream", UPLOAD_HEADER: hold_id}
    else:
        url, headers = blobs.presigned_put(object_key(sim_id, name), size, content_type(name), hold_id)
    expires = clock.now_us() + blobs.UPLOAD_SECONDS * 1_000_000
    return Upload(id=hold_id, url=url, headers=headers, expires_at=rfc3339(expires))


def receive(sim_id: str, name: str, upload_id: str, body: bytes) -> SimFile:
    """Store the bytes of an upload. Safe to do twice.

    Raises:
        NotFound, Busy: as `put`.
        Conflict: the upload is of another name or size, or has expired.
    """
    held = _ledger(check_id(sim_id))["holds"].get(upload_id)
    row = table.get(sim_id, f"f#{name}")
    if row and row["upload"] == upload_id:
        size = row["size"]
    elif held and held["name"] == name and "drop" not in held:
        size = held["size"]
    else:
        raise Conflict(f"no upload {upload_id[:40]} of {name} is under way: begin again")
    if len(body) != size:
        raise Conflict(f"upload {upload_id} is of {size} bytes, and {len(body)} bytes came")
    return _sim_file(row) if row and row["upload"] == upload_id else put(sim_id, name, body, upload_id)


def complete(sim_id: str, name: str, upload_id: str) -> SimFile:
    """Make the bytes that were put to an upload's URL the file. Safe to do twice.

    Raises:
        NotFound: no sim has this id.
        Conflict: no bytes have arrived for this upload, or it has expired.
        Busy: as `put`.
    """
    row = table.get(check_id(sim_id), f"f#{name}")
    if row and row["upload"] == upload_id:
        return _sim_file(row)
    held = _ledger(sim_id)["holds"].get(upload_id)
    if held and held["name"] == name and "drop" not in held:
        key = object_key(sim_id, name)
        for found, version in list(blobs.versions(key)):
            try:
                is_its = found == key and blobs.upload_of(key, version) == (held["size"], upload_id)
            except blobs.Gone:
                continue  # replaced, or taken away, since it was listed
            if is_its:
                return commit(sim_id, name, upload_id, held["size"], version)
    # The event of the new object may have committed it just now.
    row = table.get(sim_id, f"f#{name}")
    if row and row["upload"] == upload_id:
        return _sim_file(row)
    sims.head(sim_id)  # or all of it went with its run
    raise Conflict(f"no bytes of upload {upload_id[:40]} are stored as {name}: put them to its URL, or begin again")


def arrived(sim_id: str, name: str, version: str) -> str:
    """What to do about a version that the object store says is new: commit it, leave it, or take it away.

    Part of the function that is told of each new object, which ends what a client or the front door left half done.

    Returns:
        `committed`, `kept` (it is the file, or a put under way will tell), or `removed`.
    """
    key = object_key(sim_id, name)
    try:
        upload = blobs.upload_of(key, version)
        holds = _ledger(sim_id)["holds"]
    except blobs.Gone:
        return "kept"
    except NotFound:
        blobs.delete(key, version)
        return "removed"
    if upload and upload[1] in holds:
        size, hold_id = upload
        held = holds[hold_id]
        if held["name"] == name and held["size"] == size and "drop" not in held:
            commit(sim_id, name, hold_id, size, version)
            return "committed"
    elif any(held["name"] == name and "drop" not in held for held in holds.values()):
        return "kept"  # a put of this name is under way, and this may be its version; else the sweep will look
    row = table.get(sim_id, f"f#{name}")
    if row and row["version"] == version:
        return "kept"
    blobs.delete(key, version)
    return "removed"


# Reading.


def listing(sim_id: str) -> list[SimFile]:
    """All files by name. Raises NotFound."""
    sims.head(sim_id)
    return [_sim_file(row) for row in table.query(sim_id, "f#", "f#~")]


def find(sim_id: str, name: str) -> Item:
    """The row of a file. Raises NotFound for the sim or the file."""
    sims.head(sim_id)
    row = table.get(sim_id, f"f#{name}")
    if row is None:
        raise NotFound(f"sim {sim_id} has no file {name}")
    return row


def read(sim_id: str, name: str) -> tuple[SimFile, bytes]:
    """A file and its bytes. Raises NotFound for the sim or the file."""
    while True:
        row = find(sim_id, name)
        try:
            return _sim_file(row), blobs.get(object_key(sim_id, name), row["version"])
        except blobs.Gone:
            if find(sim_id, name)["version"] == row["version"]:
                raise  # not replaced or deleted meanwhile: row and bytes disagree, which must be seen


def url(sim_id: str, name: str) -> str:
    """A short-lived URL of a file's bytes. Raises NotFound for the sim or the file."""
    row = find(sim_id, name)
    return blobs.presigned(object_key(sim_id, name), row["version"], name, row["content_type"])


# The sweep's part.


def reconcile(sim_id: str, now: int) -> int:
    """End the holds that have expired, and delete the versions of their files that no row names; returns how many."""
    expired: dict[str, Item] = {}

    def void(holds: dict[str, Item]) -> bool:
        expired.clear()
        expired.update({hold_id: hold for hold_id, hold in holds.items() if hold["until"] <= now})
        alive = [hold for hold in expired.values() if "drop" not in hold]
        for hold in alive:
            hold |= {"bytes": 0, "drop": UNKNOWN}
        return bool(alive)

    # Before a version is looked at, so that no late put commits one that is about to be deleted.
    _change_holds(sim_id, void)
    try:
        for name in sorted({hold["name"] for hold in expired.values()}):
            _reconcile_file(sim_id, name, [hold_id for hold_id, hold in expired.items() if hold["name"] == name])
        return len(expired)
    except NotFound:
        return 0  # deleted; its blobs go with it


def _reconcile_file(sim_id: str, name: str, expired: list[str]) -> None:
    key = object_key(sim_id, name)
    # The order matters: a put that wrote a version seen here held room before that, so if no live hold is seen
    # afterwards, it has committed, failed or died, and the row read last tells which version counts.
    seen = [version for found, version in blobs.versions(key) if found == key]
    holds = _ledger(sim_id)["holds"].values()
    if any(hold["name"] == name and "drop" not in hold for hold in holds):
        return
    row = table.get(sim_id, f"f#{name}")
    for version in seen:
        if row is None or row["version"] != version:
            blobs.delete(key, version)

    def end(holds: dict[str, Item]) -> bool:
        return len([holds.pop(hold_id) for hold_id in expired if hold_id in holds]) > 0

    _change_holds(sim_id, end)
