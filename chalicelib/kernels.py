"""Reading kernels: pages of JSON, and all of them as CSV. They are written by `logs` as it parses."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from chalicelib import sims, table
from chalicelib.http import json_text
from chalicelib.logs import packed_of, parser_of, unpack
from chalicelib.table import Item

PAGE_BYTES = 4_500_000
HEADLINE = (
    "index", "name", "launch_uid", "finished", "stream_id", "sim_cycles", "sim_insns", "ipc",
    "tot_sim_cycles", "tot_sim_insns", "tot_ipc", "occupancy", "l2_bw_gbps",
)  # fmt: skip


def _pages(sim_id: str, log: Item, first_page: int = 0) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """(index of its first kernel, kernels) of each committed page, then the block that waits for its next line."""
    count: int = log.get("kernels", 0)
    if count:
        for item in table.query(sim_id, f"k#{first_page:010d}", f"k#{count - 1:010d}", page=20):
            yield int(item["sk"][2:]), unpack(packed_of(sim_id, item))
    if log.get("tail"):
        waiting = parser_of(log).tail()
        if waiting is not None:
            yield count, [dict(waiting)]


def page(sim_id: str, limit: int, cursor: str | None, stats: bool) -> dict[str, Any]:
    """One page of kernels in log order: at most `limit`, at most about 4.5 MB of JSON, but always one when there is one.

    Raises NotFound. `cursor` matches KERNELS_CURSOR: the first kernel of a stored page, and an offset in it.
    """
    start, skip = (int(part) for part in (cursor or "0.0").split("."))
    log = sims.head(sim_id).get(sims.LOG) or {}
    kernels: list[dict[str, Any]] = []
    size = 0
    for first, found in _pages(sim_id, log, start):
        for offset, kernel in enumerate(found):
            if first == start and offset < skip:
                continue
            row = {"index": first + offset, **kernel}
            if not stats:
                row["stats"] = None
            size += len(json_text(row)) + 1
            if len(kernels) == limit or (kernels and size > PAGE_BYTES):
                return {"kernels": kernels, "next_cursor": f"{first}.{offset}"}
            kernels.append(row)
    return {"kernels": kernels, "next_cursor": None}


def as_csv(sim_id: str) -> Iterator[bytes]:
    """All kernels as CSV: the headline columns, then each statistic that any kernel has, by first appearance.

    Two passes over the stored pages: what is held is the column names and one page. Raises NotFound before the first.
    """
    log = sims.head(sim_id).get(sims.LOG) or {}
    return _csv(sim_id, log)


def _csv(sim_id: str, log: Item) -> Iterator[bytes]:
    columns: dict[str, None] = {}
    for _, kernels in _pages(sim_id, log):
        for kernel in kernels:
            columns.update(dict.fromkeys(kernel["stats"]))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*HEADLINE, *columns])
    for first, kernels in _pages(sim_id, log):
        for offset, kernel in enumerate(kernels):
            row = {"index": first + offset, **kernel}
            writer.writerow(
                [*(_cell(row[name]) for name in HEADLINE), *(kernel["stats"].get(name) for name in columns)]
            )
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()
    yield text.getvalue().encode()


def _cell(value: Any) -> Any:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value
