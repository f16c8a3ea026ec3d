"""Reads PyTorch profiler (kineto) Chrome traces, plain or gzipped, as a stream.

What is held is one piece of text, one event, and 72 bytes for each kernel and 16 for each launch. The standard library's
JSON decoder reads event after event out of the text: it is faster than the streaming parsers in C that build the same
objects, and it keeps numbers as the decimal text they are, which matters since a microsecond epoch with three decimals
does not fit a double.
"""

import codecs
import gzip
import json
import re
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import numpy as np

from cascade.timeline.model import Size3, TimelineError
from cascade.timeline.report import ImportReport
from cascade.timeline.trace import NO_TIME, Range, Trace, TraceBuilder, as_column

Progress = Callable[[int], None]

GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 20
# An event has some hundred bytes. A value this long is not a trace's, and reading on would take all memory.
_LONGEST_VALUE = 64 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
_SEPARATORS = re.compile(r"[ \t\r\n,]*")
_MICROSECONDS = re.compile(r"(\d+)(?:\.(\d{1,3}))?")


def read_kineto(path: Path, step_range: str | None, progress: Progress) -> Trace:
    """The trace in a `.json` or `.json.gz` file.

    Args:
        path: a Chrome trace as an object with `traceEvents` or as a bare list of events.
        step_range: when given, operator ranges that it matches count as ranges too, not only annotations.
        progress: called with the bytes of the file read so far.

    A file that ends in the middle is read as far as it goes, and the report says so. Raises TimelineError for a file
    that is not such a trace.
    """
    report = ImportReport(str(path), "PyTorch profiler trace")
    try:
        with path.open("rb") as raw:
            compressed = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            text = _Text(gzip.GzipFile(fileobj=raw) if compressed else raw, raw, progress, str(path))
            kept = _Events(report, re.compile(step_range) if step_range is not None else None)
            for event in _events(text, kept):
                kept.add(event)
            if text.cut:
                report.add("counted", f"file ends early, cut off after {kept.seen:,} events")
            return kept.trace()
    except OSError as error:
        raise TimelineError(f"{path}: {error.strerror or error}") from error
    except zlib.error as error:
        raise TimelineError(f"{path}: broken gzip data: {error}") from error


def microseconds_to_ns(value: object) -> int | None:
    """Microseconds as an int or as decimal text, in ns: exact up to three decimals, else to the nearest, ties to even.

    None for what is not a finite number that fits 64 bits.
    """
    if type(value) is int:
        ns = value * 1000
    elif type(value) is str:
        plain = _MICROSECONDS.fullmatch(value)
        if plain is not None:
            ns = int(plain[1]) * 1000 + (int(plain[2].ljust(3, "0")) if plain[2] else 0)
        else:
            try:
                ns = int((Decimal(value) * 1000).to_integral_value(ROUND_HALF_EVEN))
            except (InvalidOperation, ValueError, OverflowError):
                return None
    else:
        return None
    return ns if -(2**62) < ns < 2**62 else None


class _Text:
    """JSON text of a file, a piece at a time. `cut` is set when the file ended inside a value."""

    def __init__(self, stream: BufferedIOBase, raw: BinaryIO, progress: Progress, source: str) -> None:
        self.cut = False
        self._stream = stream
        self._raw = raw
        self._progress = progress
        self._source = source
        self._decoder = json.JSONDecoder(parse_float=str, strict=False)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._at = 0
        self._before = 0  # characters dropped from the front of _text so far
        self._ended = False

    def peek(self, separators: re.Pattern[str] = _SPACE) -> str:
        """The next character after white space (or `separators`), "" at the end of the file."""
        while True:
            match = separators.match(self._text, self._at)
            assert match is not None  # noqa: S101  the pattern matches the empty string
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(_PIECE):
                return ""

    def take(self, character: str) -> bool:
        """Whether `character` is next; if so, it is passed."""
        if self.peek() != character:
            return False
        self._at += 1
        return True

    def value(self) -> Any:
        """The next JSON value, floats as their text. None and `cut` when the file ends in it."""
        self.peek()
        size = _PIECE
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    # What a cut leaves: an open string, or an error at the very end (a torn literal or escape).
                    if error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - 8:
                        self.cut = True
                        return None
                    raise self.wrong(error.msg, error.pos) from error
                if len(self._text) - self._at > _LONGEST_VALUE:
                    raise self.wrong(error.msg, error.pos) from error
            except RecursionError as error:
                raise self.wrong("nested too deep", self._at) from error
            else:
                # A number at the end of the piece may go on in the next; what closes itself cannot.
                if end < len(self._text) or self._ended or isinstance(value, dict | list):
                    self._at = end
                    return value
            self._more(size)
            size *= 2  # so that a long value is not decoded again for every piece

    def wrong(self, what: str, position: int | None = None) -> TimelineError:
        """An error at `position` of the text held, or at the next character."""
        at = self._before + (self._at if position is None else position)
        return TimelineError(f"{self._source}: not a JSON trace: {what} at character {at:,}")

    def _more(self, size: int) -> bool:
        """Read on. False at the end of the file."""
        if self._ended:
            return False
        data = self._read(size)
        self._ended = not data
        self._before += self._at
        self._text = self._text[self._at :] + self._utf8.decode(data, final=self._ended)
        self._at = 0
        self._progress(self._raw.tell())
        return True

    def _read(self, size: int) -> bytes:
        pieces: list[bytes] = []
        # Not read(): of a gzip file without its end it would lose what was inflated before the end was missed.
        with suppress(EOFError):
            while size > 0 and (piece := self._stream.read1(size)):
                pieces.append(piece)
                size -= len(piece)
        return b"".join(pieces)


def _events(text: _Text, kept: "_Events") -> Iterator[dict[str, Any]]:
    """Each event of the trace; other members of the trace's object go to `kept.member`."""
    first = text.peek()
    if first == "[":
        text.take("[")
        yield from _list_of_events(text)
        return
    if first != "{":
        raise text.wrong("neither an object nor a list")
    text.take("{")
    found = False
    while not text.take("}"):
        name = text.value()
        if text.cut or not text.peek():
            break
        if not isinstance(name, str) or not text.take(":"):
            raise text.wrong("an object's member is missing")
        if name == "traceEvents" and text.take("["):
            found = True
            yield from _list_of_events(text)
        else:
            kept.member(name, text.value())
        if text.cut:
            break
        if text.peek() not in (",", "}", ""):
            raise text.wrong("a comma is missing")
        text.take(",")
        if not text.peek():
            text.cut = True
            break
    if not found:
        raise text.wrong("no traceEvents" + (", the file ends early" if text.cut else ""))


def _list_of_events(text: _Text) -> Iterator[dict[str, Any]]:
    while True:
        following = text.peek(_SEPARATORS)
        if following == "]":
            text.take("]")
            return
        event = text.value() if following else None
        if not following:
            text.cut = True
        if text.cut:
            return
        if isinstance(event, dict):
            yield event


class _Events:
    """What an import keeps of the events."""

    def __init__(self, report: ImportReport, step_range: re.Pattern[str] | None) -> None:
        self.seen = 0
        self._report = report
        self._step_range = step_range
        self._builder = TraceBuilder(report)
        self._correlation, self._has_correlation = array("q"), array("b")
        self._launch_correlation, self._launch = array("q"), array("q")
        self._role: dict[str, Callable[[dict[str, Any]], None] | None] = {}

    def member(self, name: str, value: Any) -> None:
        """A member of the trace's object beside its events."""
        if name == "deviceProperties" and isinstance(value, list):
            for gpu in value:
                if isinstance(gpu, dict) and isinstance(gpu.get("id"), int) and isinstance(gpu.get("name"), str):
                    self._builder.gpus[gpu["id"]] = gpu["name"]

    def add(self, event: dict[str, Any]) -> None:
        """One event of the trace."""
        self.seen += 1
        category = event.get("cat")
        if type(category) is not str:
            return
        if category not in self._role:
            self._role[category] = self._role_of(category.lower())
        role = self._role[category]
        if role is not None:
            role(event)

    def _role_of(self, category: str) -> Callable[[dict[str, Any]], None] | None:
        # Categories as kineto has written them since 2020: "Kernel" and "Runtime" are the oldest.
        if category == "kernel":
            return self._add_kernel
        if category in ("runtime", "cuda_driver") or category.endswith("_runtime"):
            return self._add_launch
        if category == "user_annotation" or (category in ("cpu_op", "operator") and self._step_range is not None):
            return self._add_range
        if category in ("gpu_memcpy", "gpu_memset", "memcpy", "memset"):
            return self._count_copy
        return None

    def _add_kernel(self, event: dict[str, Any]) -> None:
        self._report.kernels_found += 1
        name, args = event.get("name"), event.get("args")
        start, duration = microseconds_to_ns(event.get("ts")), microseconds_to_ns(event.get("dur"))
        if not isinstance(name, str) or start is None or duration is None:
            self._report.add("dropped", "kernels without a name, start or duration", first=repr(name)[:80])
            return
        fields: dict[str, Any] = args if isinstance(args, dict) else {}
        stream = fields.get("stream", event.get("tid"))
        device = fields.get("device", event.get("pid"))
        correlation = fields.get("correlation")
        self._correlation.append(correlation if _fits(correlation) else 0)
        self._has_correlation.append(_fits(correlation))
        self._builder.add_kernel(
            name,
            start,
            start + duration,
            device if _fits(device) else 0,
            stream if isinstance(stream, int | str) else None,
            (_size3(fields.get("grid")), _size3(fields.get("block"))),
        )

    def _add_launch(self, event: dict[str, Any]) -> None:
        args = event.get("args")
        correlation = args.get("correlation") if isinstance(args, dict) else None
        start = microseconds_to_ns(event.get("ts"))
        if start is not None and _fits(correlation):
            self._launch_correlation.append(correlation)
            self._launch.append(start)

    def _add_range(self, event: dict[str, Any]) -> None:
        name = event.get("name")
        start, duration = microseconds_to_ns(event.get("ts")), microseconds_to_ns(event.get("dur"))
        if not isinstance(name, str):
            return
        if self._step_range is not None and not self._step_range.search(name) and event["cat"] != "user_annotation":
            return
        if start is None or duration is None or duration < 0:
            self._report.add("dropped", "ranges without a start or duration", first=repr(name)[:80])
            return
        self._builder.ranges.append(Range(name, start, start + duration))

    def _count_copy(self, event: dict[str, Any]) -> None:
        duration = microseconds_to_ns(event.get("dur"))
        what = "copies and memsets, which are no kernels: their time is a gap"
        self._report.add("counted", what, 1, max(duration or 0, 0))

    def trace(self) -> Trace:
        """The trace, each kernel with the earliest launch of its correlation."""
        launch = as_column(self._launch)
        order = np.lexsort((launch, as_column(self._launch_correlation)))
        launch, by = launch[order], as_column(self._launch_correlation)[order]
        wanted = as_column(self._correlation)
        joined = np.full(len(wanted), NO_TIME, dtype=np.int64)
        if len(by):
            place = np.minimum(np.searchsorted(by, wanted), len(by) - 1)
            found = (by[place] == wanted) & np.array(self._has_correlation, dtype=np.bool_)
            joined[found] = launch[place[found]]
        return self._builder.trace(joined)


def _fits(value: object) -> TypeGuard[int]:
    """Whether it is an integer (not a boolean) of 64 bits."""
    return type(value) is int and -(2**63) <= value < 2**63


def _size3(value: Any) -> Size3 | None:
    if isinstance(value, list) and len(value) == 3 and all(type(side) is int and side >= 0 for side in value):
        return value[0], value[1], value[2]
    return None
