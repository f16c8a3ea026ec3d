"""Log chunks: each stored once, parsed once, in order, whoever delivers it and whoever dies.

A chunk is one conditional put under `c#<seq>`. The cursor `a#log` says how far parsing has come: the next seq and line,
the parser's state after everything before, and the totals up to there. It only moves by a write conditional on where it
was, and the kernels found on the way are written in the same transaction, so a second parse of the same lines by a
retry, a racing request or the sweep changes nothing.

Who parses: the request that delivers the chunk at the cursor, with the lines in hand. A chunk that comes early raises
`ahead` on the cursor; whoever moves the cursor to where somebody waits must know of it, and goes on through what is
stored. Both are writes to one item, so either the mover sees the mark or the marker sees the move: no wake-up is lost.

A gap that is still open when a finished sim has been silent for the heartbeat timeout is stepped over by the sweep: the
cursor moves behind it, the torn block is dropped, and an item `g#<first>` remembers what was stepped over.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from chalicelib import blobs, metrics, settings, sims, states, table
from chalicelib.models import LogPage, LogTotals, StoredChunk
from chalicelib.table import ConditionFailed, Item, TransactionFailed

if TYPE_CHECKING:
    from chalicelib.accelsim import Kernel, Parser

INLINE_MAX_BYTES = 8 * 1024
"""A chunk up to this size, compressed, lives in its item: on demand a write unit (1 KB) costs an eighth of an S3 PUT."""
KERNELS_PER_COMMIT = 64
"""Kernels written with one move of the cursor: about 400 KB as JSON, 100 KB packed."""
CHUNKS_PER_COMMIT = 50
"""The cursor moves at least this often, so that a request that is killed in a long catch-up leaves some of it done."""
CHUNKS_PER_QUERY = 20
"""Read ahead while catching up; most looks end at the first chunk, behind a gap."""
PAGE_BYTES = 4_500_000
"""Line bytes on one page of the log: under 5 MB with JSON's quotes and the rest."""
ITEM_MAX_BYTES = 300_000
"""Packed kernels over this go to S3; DynamoDB's own limit is 400 KB an item."""


def pack(value: Any) -> bytes:
    """JSON, compressed."""
    # Not json.dumps, which looks for characters to escape one by one: for a chunk it takes four to eight times as long.
    return zlib.compress(to_json(value), 4)


def unpack(data: bytes) -> Any:
    """What `pack` was given."""
    return json.loads(zlib.decompress(data))


def chunk_key(seq: int) -> str:
    """Sort key of a chunk: nineteen digits hold any 64-bit seq in order."""
    return f"c#{seq:019d}"


def seq_of(item: Item) -> int:
    """The seq in a chunk's or gap's sort key."""
    return int(item["sk"][2:])


LAST_CHUNK = chunk_key(2**63 - 1)


def _line_bytes(lines: list[str]) -> int:
    return len("".join(lines).encode())  # line by line takes several times as long


# Storing.


def append(sim_id: str, seq: int, lines: list[str]) -> None:
    """Store chunk `seq` and parse what can be parsed. Durable when it returns; a repeat changes nothing.

    Raises:
        NotFound: no sim has this id.
    """
    head = sims.head(sim_id)
    log = head.get(sims.LOG)
    if not _store(head[sims.HOT], seq, lines):
        metrics.count("DuplicateChunks")
        stored = table.get(sim_id, chunk_key(seq)) if _next_seq(log) == seq else None
        if stored:
            lines = _lines_of(sim_id, stored)  # the first chunk of a seq wins, whatever this one holds
    else:
        metrics.count("Chunks")
        metrics.count("LogBytes", _line_bytes(lines))
    if log and seq < log["next_seq"]:
        if log.get("ahead", -1) >= log["next_seq"]:
            # This may be the retry of a request that moved the cursor and died before what waited behind it was parsed.
            drain(sim_id, log)
        return
    if seq > _next_seq(log):
        log = _mark_ahead(sim_id, seq)
        if log["next_seq"] > seq:
            return
        if head[sims.HOT]["state"] in states.FINAL:
            sims.settle_again(head[sims.HOT])
        drain(sim_id, log)
        return
    run = _Run(sim_id, log)
    if run.parse(seq, lines) and run.commit() and run.ahead >= run.next_seq:
        drain(sim_id, run.log)


def _next_seq(log: Item | None) -> int:
    return int(log["next_seq"]) if log else 0


def _store(hot: Item, seq: int, lines: list[str]) -> bool:
    """Put the chunk; False when the seq was there already."""
    sim_id = hot["pk"]
    packed = pack(lines)
    item: Item = {"pk": sim_id, "sk": chunk_key(seq), "lines": len(lines), "bytes": _line_bytes(lines)}
    blob: tuple[str, str] | None = None
    if len(packed) <= INLINE_MAX_BYTES:
        item["data"] = packed
    else:
        # A name of its own for each try, so that the loser of a race cannot touch the winner's bytes.
        name = f"logs/{sim_id}/{seq:019d}-{sims.new_token()}"
        sims.expect_object(hot)
        blob = (name, blobs.put(name, packed))
        item["blob"], item["version"] = blob
    try:
        table.put(item, "attribute_not_exists(pk)")
    except ConditionFailed as failed:
        # The SDK sends a put again when its answer is lost: then what is there is ours.
        if blob and failed.old and failed.old.get("blob") == blob[0]:
            return True
        if blob:
            blobs.delete(*blob)
        return False
    return True


def packed_of(sim_id: str, item: Item) -> bytes:
    """What `pack` made of a chunk, or of kernels. Raises NotFound when the sim was deleted since the item was read."""
    if "data" in item:
        data: bytes = item["data"]
        return data
    try:
        return blobs.get(item["blob"], item["version"])
    except blobs.Gone:
        sims.head(sim_id)
        raise  # the sim is there, and its bytes are not: that must be seen


def _lines_of(sim_id: str, item: Item) -> list[str]:
    lines: list[str] = unpack(packed_of(sim_id, item))
    return lines


def _mark_ahead(sim_id: str, seq: int) -> Item:
    """Note on the cursor that chunks up to `seq` may be waiting behind a gap; returns the cursor as it is then."""
    try:
        return table.update(
            sim_id,
            sims.LOG,
            "SET ahead = :seq, next_seq = if_not_exists(next_seq, :zero), line = if_not_exists(line, :zero)",
            {":seq": seq, ":zero": 0},
            None,
            "attribute_not_exists(ahead) OR ahead < :seq",
            returns="ALL_NEW",
        )
    except ConditionFailed as failed:
        if failed.old is None:
            raise
        return failed.old


# Parsing.


def parser_of(log: Item) -> "Parser":
    """The parser as the cursor left it. One that an older release wrote is begun anew, without the block it was in."""
    # Its expressions are only for who parses, and most cold starts are for heartbeats.
    from chalicelib.accelsim import Parser

    if "state" not in log:
        return Parser()
    try:
        return Parser.from_state(zlib.decompress(log["state"]))
    except ValueError:
        parser = Parser()
        parser.tear()
        return parser


@dataclass
class _Run:
    """Parsing from a cursor onwards, not yet committed."""

    sim_id: str
    log: Item | None
    kernels: "list[Kernel]" = field(default_factory=list)

    def __post_init__(self) -> None:
        log = self.log or {}
        self.next_seq: int = log.get("next_seq", 0)
        self.line: int = log.get("line", 0)
        self.start = (self.next_seq, self.line)
        self.ahead: int = log.get("ahead", -1)
        self.totals = {name: log.get(name, 0) for name in ("chunks", "lines", "bytes")}
        self.committed: int = log.get("kernels", 0)
        self.gaps: int = log.get("gaps", 0)
        self.parser = parser_of(log)

    def parse(self, seq: int, lines: list[str]) -> bool:
        """Feed the chunk at the cursor, committing in between when it holds many kernels; False when overtaken."""
        while True:
            room = KERNELS_PER_COMMIT - len(self.kernels)
            found, end = self.parser.feed(lines, self.line, room)
            self.kernels += found
            if end >= len(lines):
                break
            self.line = end
            if not self.commit():
                return False
        self.next_seq, self.line = seq + 1, 0
        self.totals["chunks"] += 1
        self.totals["lines"] += len(lines)
        self.totals["bytes"] += _line_bytes(lines)
        return True

    def tear(self, first: int, last: int) -> bool:
        """Step over the gap `first` to `last`, for good; False when overtaken."""
        self.kernels += self.parser.tear()
        self.next_seq, self.line = last + 1, 0
        return self.commit({"pk": self.sim_id, "sk": f"g#{first:019d}", "last": last})

    def commit(self, gap: Item | None = None) -> bool:
        """Move the cursor to where this run has come, with the kernels found; False when somebody else moved it."""
        new: Item = {
            "next_seq": self.next_seq,
            "line": self.line,
            "state": zlib.compress(self.parser.to_state().encode(), 4),
            "kernels": self.committed + len(self.kernels),
            "tail": int(self.parser.tail() is not None),
            **self.totals,
        }
        cycles = next((k["tot_sim_cycles"] for k in reversed(self.kernels) if k["tot_sim_cycles"] is not None), None)
        insns = next((k["tot_sim_insns"] for k in reversed(self.kernels) if k["tot_sim_insns"] is not None), None)
        new |= {name: total for name, total in (("cycles", cycles), ("insns", insns)) if total is not None}
        if gap:
            new["gaps"] = self.gaps + 1
        # What the cursor has there already need not be said again: the condition holds it to where it was read.
        new = {name: value for name, value in new.items() if (self.log or {}).get(name) != value}
        # Some of these names are words of DynamoDB's own, so all go by alias.
        expression = "SET " + ", ".join(f"#{name} = :{name}" for name in new)
        names = {f"#{name}": name for name in new}
        values: Item = {f":{name}": value for name, value in new.items()}
        values[":was_seq"], values[":was_line"] = self.start
        unmoved = "next_seq = :was_seq AND line = :was_line"
        if "next_seq" not in (self.log or {}):
            unmoved = f"(attribute_not_exists(next_seq) OR {unmoved})"
        others = [self._page_op()] if self.kernels else []
        others += [table.put_op(gap)] if gap else []
        while True:
            condition = unmoved
            if self.ahead < self.next_seq:
                condition += " AND (attribute_not_exists(ahead) OR ahead < :next_seq)"
                values[":next_seq"] = self.next_seq
            try:
                if others:
                    move = table.update_op(
                        self.sim_id, sims.LOG, expression, values, names, condition, returns_old=True
                    )
                    table.transact([move, *others])
                else:
                    table.update(self.sim_id, sims.LOG, expression, values, names, condition)
            except (ConditionFailed, TransactionFailed) as failed:
                old = (failed.old.get(0) if isinstance(failed, TransactionFailed) else failed.old) or {}
                place = (old.get("next_seq"), old.get("line"))
                if place == self.start and old.get("ahead", -1) >= self.next_seq > self.ahead:
                    self.ahead = old[
                        "ahead"
                    ]  # a chunk behind this one has come: move all the same, and go on through it
                    continue
                if place != (self.next_seq, self.line):
                    return False
                # Made already, perhaps by this very request, which the SDK sends again when its answer is lost: go on.
                self.log, self.ahead = old, old.get("ahead", -1)
            else:
                metrics.count("Kernels", len(self.kernels))
                self.log = (self.log or {}) | new | {"ahead": self.ahead}
            break
        self.gaps += gap is not None
        self.start = (self.next_seq, self.line)
        self.committed += len(self.kernels)
        self.kernels = []
        return True

    def _page_op(self) -> dict[str, Any]:
        packed = pack(self.kernels)
        item: Item = {"pk": self.sim_id, "sk": f"k#{self.committed:010d}", "count": len(self.kernels)}
        if len(packed) <= ITEM_MAX_BYTES:
            item["data"] = packed
        else:
            item["blob"] = f"kernels/{self.sim_id}/{self.committed:010d}-{sims.new_token()}"
            item["version"] = blobs.put(item["blob"], packed)
        return table.put_op(item)


def drain(sim_id: str, log: Item | None) -> bool:
    """Parse on through stored chunks from the cursor; True when a gap stops it, False at the end or when overtaken."""
    while True:
        run = _Run(sim_id, log)
        first, gap, waiting = run.next_seq, False, 0
        for item in table.query(sim_id, chunk_key(first), LAST_CHUNK, page=CHUNKS_PER_QUERY):
            if seq_of(item) != run.next_seq:
                gap = True
                break
            if not run.parse(seq_of(item), _lines_of(sim_id, item)):
                return False
            waiting += 1
            if run.kernels or waiting == CHUNKS_PER_COMMIT:
                if not run.commit():
                    return False
                waiting = 0
        if waiting and not run.commit():
            return False
        if run.next_seq == first or run.ahead < run.next_seq:
            return gap
        # Chunks may have come since the query: their senders saw the cursor as it was and left them to its mover.
        log = run.log


def settle(sim_id: str, hot: Item, now: int) -> bool:
    """Parse what a dead request left, and for a sim final for longer than the timeout step over its gaps.

    Returns whether nothing is left to do for this sim.
    """
    log = table.get(sim_id, sims.LOG)
    while drain(sim_id, log):
        finished = hot.get("finished_at")
        if hot["state"] == "lost":
            return True  # not final: its simulator may come back and fill the gap
        if finished is None or now - finished <= settings.heartbeat_timeout_us():
            return False
        log = table.get(sim_id, sims.LOG)
        run = _Run(sim_id, log)
        beyond = next(table.query(sim_id, chunk_key(run.next_seq), LAST_CHUNK, page=1), None)
        if beyond is None:
            return True
        if seq_of(beyond) > run.next_seq:
            run.tear(run.next_seq, seq_of(beyond) - 1)
        log = table.get(sim_id, sims.LOG)
    finished = hot.get("finished_at")
    return finished is None or now - finished > settings.heartbeat_timeout_us()


# Reading.


def _holes(expected: int, seqs: list[int]) -> list[list[int]]:
    """Inclusive ranges between `expected` and the sorted `seqs`."""
    holes = []
    for seq in seqs:
        if seq > expected:
            holes.append([expected, seq - 1])
        expected = seq + 1
    return holes


def totals(sim_id: str, log: Item | None) -> LogTotals:
    """What is stored, exactly: the cursor's totals, and by query what lies beyond it or came late into a gap."""
    log = log or {}
    next_seq: int = log.get("next_seq", 0)
    sums = {name: log.get(name, 0) for name in ("chunks", "lines", "bytes")}
    missing: list[list[int]] = []

    def add(items: list[Item]) -> list[int]:
        for item in items:
            sums["chunks"] += 1
            sums["lines"] += item["lines"]
            sums["bytes"] += item["bytes"]
        return [seq_of(item) for item in items]

    wanted = ("sk", "lines", "bytes")
    if log.get("gaps"):
        gaps = [(seq_of(g), g["last"]) for g in table.query(sim_id, "g#", "g#~")]
        late = list(table.query(sim_id, chunk_key(gaps[0][0]), chunk_key(gaps[-1][1]), attributes=wanted))
        for first, last in gaps:
            inside = add([item for item in late if first <= seq_of(item) <= last])
            missing += _holes(first, [*inside, last + 1])
    if log.get("ahead", -1) >= next_seq:
        beyond = add(list(table.query(sim_id, chunk_key(next_seq), LAST_CHUNK, attributes=wanted)))
        missing += _holes(next_seq, beyond)
        next_seq = max([next_seq, *(seq + 1 for seq in beyond)])
    return LogTotals.model_construct(**sums, next_seq=next_seq, missing=missing)


def page(sim_id: str, from_seq: int, limit: int) -> LogPage:
    """Stored chunks from `from_seq` on: at most `limit` of them and about 4.5 MB, but always one when there is one."""
    sims.head(sim_id)
    chunks: list[StoredChunk] = []
    size = 0
    # Behind the largest seq there is nothing, and DynamoDB takes no range that ends before it begins.
    first = chunk_key(from_seq)
    for item in table.query(sim_id, first, LAST_CHUNK, page=min(limit, 200)) if first <= LAST_CHUNK else ():
        size += item["bytes"] + 4 * item["lines"] + 64
        if chunks and size > PAGE_BYTES:
            break
        chunks.append(StoredChunk.model_construct(seq=seq_of(item), lines=_lines_of(sim_id, item)))
        if len(chunks) == limit:
            break
    next_seq = chunks[-1].seq + 1 if chunks else from_seq
    return LogPage.model_construct(
        chunks=chunks, next_seq=next_seq, missing=_holes(from_seq, [chunk.seq for chunk in chunks])
    )


def tail(sim_id: str, count: int) -> LogPage:
    """The last `count` lines, in the chunks they came in; the first chunk may be cut. At most about 4.5 MB."""
    sims.head(sim_id)
    chunks: list[StoredChunk] = []
    size = 0
    for item in table.query(sim_id, chunk_key(0), LAST_CHUNK, backward=True, page=20):
        lines = _lines_of(sim_id, item)[-count:]
        size += _line_bytes(lines) + 4 * len(lines) + 64
        if chunks and size > PAGE_BYTES:
            break
        chunks.append(StoredChunk.model_construct(seq=seq_of(item), lines=lines))
        count -= len(lines)
        if count <= 0:
            break
    chunks.reverse()
    seqs = [chunk.seq for chunk in chunks]
    first, after = (seqs[0], seqs[-1] + 1) if seqs else (0, 0)
    return LogPage.model_construct(chunks=chunks, next_seq=after, missing=_holes(first, seqs))


def text(sim_id: str) -> Iterator[bytes]:
    """The whole log as text, a chunk at a time, each line ended by a newline. Raises NotFound before the first."""
    sims.head(sim_id)
    return _text(sim_id)


def _text(sim_id: str) -> Iterator[bytes]:
    for item in table.query(sim_id, chunk_key(0), LAST_CHUNK):
        lines = _lines_of(sim_id, item)
        if lines:
            yield ("\n".join(lines) + "\n").encode()
