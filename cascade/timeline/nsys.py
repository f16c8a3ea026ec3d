"""Reads Nsight Systems SQLite exports (`nsys export --type sqlite`).

Which tables and columns an export has depends on the version of nsys, on what was traced and on what happened in the
run: a table without rows is often absent. So each query is made for the columns that are there. Times are ns already.
"""

import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from cascade.timeline.model import Size3, TimelineError
from cascade.timeline.report import ImportReport
from cascade.timeline.trace import NO_TIME, Range, Shape, Trace, TraceBuilder, as_column

SQLITE_MAGIC = b"SQLite format 3\0"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"
COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
# NVTX event types with an end: push/pop and start/end ranges.
_RANGE_TYPES = (59, 60)


def read_nsys(path: Path) -> Trace:
    """The trace in an SQLite export.

    Raises TimelineError naming the file when it is no database, is cut off, or has neither kernels nor graph launches.
    """
    report = ImportReport(str(path), "Nsight Systems SQLite export")
    try:
        # immutable: a database in a read-only folder, or with a journal beside it, is read as it is.
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as error:
        raise TimelineError(f"{path}: {error}") from error
    try:
        return _Export(connection, report).trace()
    except sqlite3.Error as error:
        raise TimelineError(f"{path}: not a whole SQLite export: {error}") from error
    finally:
        connection.close()


class _Export:
    def __init__(self, connection: sqlite3.Connection, report: ImportReport) -> None:
        self._connection = connection
        self._report = report
        self._builder = TraceBuilder(report)
        # An export may hold names that are not UTF-8; they are names all the same.
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        tables = [
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        ]
        self._columns = {
            table: {row[1] for row in connection.execute("SELECT * FROM pragma_table_info(?)", (table,))}
            for table in tables
        }

    def trace(self) -> Trace:
        """Kernels, launches and ranges of the export."""
        source = self._report.source
        if KERNELS not in self._columns and GRAPHS not in self._columns:
            raise TimelineError(f"{source}: no table {KERNELS}: no kernel was traced (nsys profile needs --trace=cuda)")
        strings = self._strings()
        launches = self._launch_times()
        launch = array("q")
        for name, row, shape in chain(self._kernels(strings), self._graphs()):
            start, end = row["start"], row["end"]
            if not isinstance(start, int) or not isinstance(end, int):
                # Start 0 is what a lost time looks like elsewhere too, and is dropped and counted with those.
                start = end = 0
            device = row["deviceId"] if isinstance(row["deviceId"], int) else 0
            self._builder.add_kernel(name, start, end, device, row["streamId"], shape)
            launch.append(launches.get((_process(row["globalPid"]), row["correlationId"]), NO_TIME))
            self._report.kernels_found += 1
        self._builder.ranges.extend(self._ranges(strings))
        self._read_gpus()
        self._count_copies()
        return self._builder.trace(as_column(launch))

    def _select(self, table: str, wanted: Iterable[str], required: Iterable[str] = ()) -> Iterator[dict[str, Any]]:
        """Rows of `table` with the `wanted` columns, None for those the table lacks. Nothing when there is no table."""
        there = self._columns.get(table)
        if there is None:
            return
        for column in required:
            if column not in there:
                raise TimelineError(f"{self._report.source}: table {table} has no column {column}")
        wanted = list(wanted)
        # Table and column names are constants of this module, never of the file.
        terms = ", ".join(f'"{column}"' if column in there else f'NULL AS "{column}"' for column in wanted)
        for row in self._connection.execute(f'SELECT {terms} FROM "{table}"'):  # noqa: S608  see above
            yield dict(zip(wanted, row, strict=True))

    def _strings(self) -> dict[int, str]:
        if "StringIds" not in self._columns:
            self._report.add("guessed", "names: the numbers of their strings, as there is no table StringIds")
        return {row["id"]: row["value"] for row in self._select("StringIds", ("id", "value"), ("id", "value"))}

    def _launch_times(self) -> dict[tuple[int | None, int], int]:
        """(process, correlation) -> start of the earliest API call, since one call of the host may be traced twice."""
        if LAUNCHES not in self._columns:
            self._report.add("guessed", f"launch times: none, as there is no table {LAUNCHES}")
        earliest: dict[tuple[int | None, int], int] = {}
        for row in self._select(LAUNCHES, ("start", "correlationId", "globalTid")):
            start, correlation = row["start"], row["correlationId"]
            if isinstance(start, int) and isinstance(correlation, int):
                key = _process(row["globalTid"]), correlation
                earliest[key] = min(start, earliest.get(key, start))
        return earliest

    def _kernels(self, strings: dict[int, str]) -> Iterator[tuple[str, dict[str, Any], Shape]]:
        wanted = (
            "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "mangledName",
            "shortName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
        )  # fmt: skip
        for row in self._select(KERNELS, wanted, ("start", "end")):
            ids = [row[key] for key in ("demangledName", "mangledName", "shortName") if row[key] is not None]
            nameless = f"string {ids[0]}" if ids else "kernel without a name"
            name = next((strings[i] for i in ids if i in strings), nameless)
            grid = _size3(row["gridX"], row["gridY"], row["gridZ"])
            yield name, row, (grid, _size3(row["blockX"], row["blockY"], row["blockZ"]))

    def _graphs(self) -> Iterator[tuple[str, dict[str, Any], Shape]]:
        """A graph traced as a whole is one kernel: its own kernels are not in the export, but its time is."""
        wanted = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId")
        for row in self._select(GRAPHS, wanted, ("start", "end")):
            what = "kernels: whole CUDA graphs as one kernel each (nsys profile --cuda-graph-trace=node shows more)"
            self._report.add("guessed", what)
            yield f"CUDA graph {row['graphId']}", row, (None, None)

    def _ranges(self, strings: dict[int, str]) -> Iterator[Range]:
        wanted = ("start", "end", "eventType", "text", "textId")
        for row in self._select("NVTX_EVENTS", wanted, ("start", "end")):
            if row["eventType"] not in (*_RANGE_TYPES, None):
                continue
            name = row["text"] if row["text"] is not None else strings.get(row["textId"])
            start, end = row["start"], row["end"]
            if not isinstance(start, int) or not isinstance(end, int) or end < start:
                self._report.add("dropped", "NVTX ranges without an end", first=repr(name))
            elif name is not None:
                yield Range(str(name), start, end)

    def _read_gpus(self) -> None:
        for row in self._select("TARGET_INFO_GPU", ("id", "name", "clockRate")):
            if isinstance(row["id"], int) and isinstance(row["name"], str):
                self._builder.gpus[row["id"]] = row["name"]
            if isinstance(row["id"], int) and isinstance(row["clockRate"], int) and row["clockRate"] > 0:
                self._builder.clocks_mhz[row["id"]] = row["clockRate"] / 1e6

    def _count_copies(self) -> None:
        for table in COPIES:
            for row in self._select(table, ("start", "end")):
                times = isinstance(row["start"], int) and isinstance(row["end"], int)
                what = "copies and memsets, which are no kernels: their time is a gap"
                self._report.add("counted", what, 1, max(row["end"] - row["start"], 0) if times else 0)


def _process(global_id: Any) -> int | None:
    """The process in a globalPid or globalTid, whose low 24 bits are the thread. Correlations count per process."""
    return global_id >> 24 if isinstance(global_id, int) else None


def _size3(*sides: Any) -> Size3 | None:
    x, y, z = (side if isinstance(side, int) and side >= 0 else None for side in sides)
    return None if x is None or y is None or z is None else (x, y, z)
