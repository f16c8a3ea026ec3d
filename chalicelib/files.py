"""Output files: quota, put, read, and the reconciler for what a dead put left.

The bytes of `name` are versions of the object `files/<sim_id>/<name>`; the row `f#<name>` names the one version that
counts, so row and bytes always belong to the same put. The ledger `a#files` holds the committed count and bytes, and a
hold for each put under way. A put is three moves of the ledger, each conditional on its revision:

1. hold: room for the new size is set aside (what the replaced file frees counts);
2. the object is written;
3. commit: row, totals and the end of the hold, in one transaction. A replaced version is deleted behind it and keeps a
   hold of zero bytes until that is done.

A put that dies leaves a hold that expires; the sweep then deletes the versions no row names. Room that others hold but
have not committed is no reason to refuse for good: the put waits for them a little and is then told to come back.
"""

import re
import secrets
import time
from typing import Any

from chalicelib import blobs, clock, metrics, settings, sims, table
from chalicelib.clock import rfc3339
from chalicelib.errors import Busy, NotFound, TooLarge, Unprocessable
from chalicelib.models import FileTotals, SimFile
from chalicelib.table import Item, TransactionFailed

NAME_PATTERN = r"^(?!\.\.?$)[A-Za-z0-9._-]{1,128}$"
_NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,128}")

HOLD_US = 15 * 60 * 1_000_000
"""A hold lives this long: longer than any request (29 s on AWS, a slow 64 MiB upload through the front door)."""
WAIT_SECONDS = 8.0
"""How long a put waits for room that others hold."""
POLL_SECONDS = 0.1

CONTENT_TYPES = {
    "bin": "application/octet-stream",
    "bz2": "application/x-bzip2",
    "csv": "text/csv",
    "gif": "image/gif",
    "gz": "application/gzip",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "log": "text/plain",
    "md": "text/markdown",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "png": "image/png",
    "sqlite": "application/vnd.sqlite3",
    "svg": "image/svg+xml",
    "tar": "application/x-tar",
    "toml": "application/toml",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "xml": "application/xml",
    "xz": "application/x-xz",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
    "zst": "application/zstd",
}
"""By the last extension, lower-cased; a table of our own, since a machine's differs from the next one's."""


def content_type(name: str) -> str:
    """Content type for a file name."""
    return CONTENT_TYPES.get(name.rpartition(".")[2].lower() if "." in name else "", "application/octet-stream")


def valid_name(name: str) -> bool:
    """Whether the whole of `name` is a file name: letters, digits, `.`, `_`, `-`, 1 to 128 of them, not `.` or `..`."""
    return _NAME.fullmatch(name) is not None


def checked_name(name: str) -> str:
    """`name`, if it is a file name. Raises Unprocessable."""
    if not valid_name(name):
        shown = name if len(name) <= 140 else name[:140] + "…"
        raise Unprocessable(f"file name {shown!r} must match {NAME_PATTERN}")
    return name


def object_key(sim_id: str, name: str) -> str:
    """Where the bytes are."""
    return f"files/{sim_id}/{name}"


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


def _held(ledger: Item, but: str = "") -> int:
    return sum(hold["bytes"] for hold_id, hold in ledger["holds"].items() if hold_id != but)


def _hold(sim_id: str, name: str, size: int) -> str:
    """Set room aside; returns the hold's id. Raises NotFound, TooLarge, Busy."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        ledger = _ledger(sim_id)
        row = table.get(sim_id, f"f#{name}")
        committed = ledger["bytes"] - (row["size"] if row else 0) + size
        if committed > settings.SIM_FILES_MAX_BYTES:
            raise TooLarge(f"the sim's files would pass {settings.SIM_FILES_MAX_BYTES // settings.MIB} MiB in all")
        if committed + _held(ledger) <= settings.SIM_FILES_MAX_BYTES:
            hold_id = secrets.token_hex(8)
            growth = max(0, size - (row["size"] if row else 0))
            ledger["holds"][hold_id] = {"name": name, "bytes": growth, "until": clock.now_us() + HOLD_US}
            try:
                table.transact([_ledger_op(sim_id, ledger)])
                return hold_id
            except (TransactionFailed, Busy):
                if time.monotonic() > deadline:
                    raise Busy() from None
                continue  # another put moved the ledger
        if time.monotonic() > deadline:
            raise Busy("other uploads of this sim hold the room that is left, send the same request again", 2)
        time.sleep(POLL_SECONDS)


def _release(sim_id: str, hold_id: str) -> None:
    """End a hold. Raises Busy after a while; the hold then expires."""
    for _ in range(50):
        try:
            ledger = _ledger(sim_id)
        except NotFound:
            return
        if ledger["holds"].pop(hold_id, None) is None:
            return
        try:
            table.transact([_ledger_op(sim_id, ledger)])
            return
        except (TransactionFailed, Busy):
            time.sleep(0.01)
    raise Busy()


def _commit(sim_id: str, name: str, hold_id: str, size: int, version: str) -> tuple[Item, str | None]:
    """Make the written version the file; returns its row and the version it replaced."""
    for _ in range(100):
        ledger = _ledger(sim_id)
        hold = ledger["holds"].get(hold_id)
        if hold is None:
            raise Busy("the upload took longer than its reservation, send it again")
        old = table.get(sim_id, f"f#{name}")
        ledger["bytes"] += size - (old["size"] if old else 0)
        if ledger["bytes"] + _held(ledger, but=hold_id) > settings.SIM_FILES_MAX_BYTES:
            # The file this put was to replace became smaller meanwhile, and others hold the room.
            raise Busy("other uploads of this sim hold the room that is left, send the same request again", 2)
        ledger["count"] += 0 if old else 1
        row: Item = {
            "pk": sim_id,
            "sk": f"f#{name}",
            "size": size,
            "version": version,
            "content_type": content_type(name),
            "created_at": clock.now_us(),
        }
        if old:
            hold |= {"bytes": 0, "drop": old["version"]}
        else:
            del ledger["holds"][hold_id]
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


def put(sim_id: str, name: str, body: bytes) -> SimFile:
    """Store `body` as the file `name`, whole or not at all.

    Raises:
        NotFound: no sim has this id.
        TooLarge: over 64 MiB, or the sim's files would pass 256 MiB.
        Busy: the room is held by puts still under way, or a passing fault; the earlier file stands.
    """
    sims.check_id(sim_id)
    if len(body) > settings.FILE_MAX_BYTES:
        sims.head(sim_id)
        raise TooLarge(f"file is over the {settings.FILE_MAX_BYTES // settings.MIB} MiB per-file limit")
    hold_id = _hold(sim_id, name, len(body))
    key = object_key(sim_id, name)
    version = None
    try:
        version = blobs.put(key, body, content_type(name))
        row, replaced = _commit(sim_id, name, hold_id, len(body), version)
    except BaseException:
        _abandon(sim_id, name, hold_id, version)
        raise
    if replaced and replaced != version:
        blobs.delete(key, replaced)
        _release(sim_id, hold_id)
    metrics.count("Files")
    metrics.count("FileBytes", len(body))
    return _sim_file(row)


def _abandon(sim_id: str, name: str, hold_id: str, version: str | None) -> None:
    """After a failed put: take its bytes and its hold away if that can be done now, else leave both to the sweep."""
    try:
        if version is not None:
            row = table.get(sim_id, f"f#{name}")
            if row and row["version"] == version:
                return  # it went through after all
            blobs.delete(object_key(sim_id, name), version)
            _release(sim_id, hold_id)
        # Without a version the write may still have happened: the hold stays and the sweep looks.
    except Exception as error:  # noqa: BLE001  the first failure is what the caller must see; the sweep does the rest
        from chalicelib.http import logger

        logger.warning("left to the sweep", sim_id=sim_id, file=name, reason=type(error).__name__)


def _sim_file(row: Item) -> SimFile:
    return SimFile.model_construct(
        name=row["sk"][2:],
        size=row["size"],
        content_type=row["content_type"],
        created_at=rfc3339(row["created_at"]),
    )


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
    try:
        names = {h["name"]: hold_id for hold_id, h in _ledger(sim_id)["holds"].items() if h["until"] <= now}
        for name, hold_id in names.items():
            _reconcile_file(sim_id, name, hold_id, now)
        return len(names)
    except NotFound:
        return 0  # deleted; its blobs go with it


def _reconcile_file(sim_id: str, name: str, hold_id: str, now: int) -> None:
    key = object_key(sim_id, name)
    # The order matters: a put that wrote a version seen here held room before that, so if no live hold is seen
    # afterwards, it has committed, failed or died, and the row read last tells which version counts.
    seen = [version for found, version in blobs.versions(key) if found == key]
    holds = _ledger(sim_id)["holds"].values()
    if any(h["name"] == name and h["until"] > now and "drop" not in h for h in holds):
        return
    row = table.get(sim_id, f"f#{name}")
    for version in seen:
        if row is None or row["version"] != version:
            blobs.delete(key, version)
    _release(sim_id, hold_id)
