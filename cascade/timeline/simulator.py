"""Kernels of one simulation: from the simulator's log, or from a Cascade server that has read the log."""

import gzip
import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from cascade.kernels import last_attempt
from cascade.local import is_loopback
from cascade.timeline.kernel_times import KernelTimes, SimulatorKernel, from_simulator
from cascade.timeline.kineto import GZIP_MAGIC, Progress
from cascade.timeline.model import Model, TimelineError
from chalicelib.accelsim import Parser

_LINES = 4_096
_PAGE_KERNELS = 1_000
# The header with the clock is in the first 30 kB of a log; these are pages of 100 chunks.
_CLOCK_PAGES = 5
_TRIES = 4
_RETRIED = (429, 500, 502, 503, 504)


class KernelPage(Model):
    """One page of `GET /api/sims/{id}/kernels`."""

    kernels: list[SimulatorKernel]
    next_cursor: str | None


Page = TypeVar("Page", bound=Model)


class LogChunk(Model):
    """One chunk of `GET /api/sims/{id}/logs`."""

    seq: int
    lines: list[str]


class LogPage(Model):
    """One page of `GET /api/sims/{id}/logs`."""

    chunks: list[LogChunk]
    next_seq: int


def times_of_log(path: Path, clock_mhz: float | None, progress: Progress = lambda read: None) -> KernelTimes:
    """Kernel times of an Accel-Sim or GPGPU-Sim log, plain or gzipped.

    Args:
        path: the log.
        clock_mhz: core clock; by default that of the configuration header in the log, of its last attempt when there are
            several.
        progress: called with the bytes of the file read so far.

    Raises:
        TimelineError: the file cannot be read, has no kernel, names no core clock, or names two.
    """
    kernels: list[SimulatorKernel] = []
    clocks: list[float | None] = []
    parser = Parser()
    try:
        for lines in _lines(path, progress):
            start = 0
            while start < len(lines):
                # One kernel at a time: the clock of an appended retry must not be taken for that of the run before.
                found, start = parser.feed(lines, start, max_kernels=1)
                kernels += [SimulatorKernel.model_validate(dict(kernel)) for kernel in found]
                clocks += [parser.outcome.core_clock_mhz] * len(found)
    except OSError as error:
        raise TimelineError(f"{path}: {error.strerror or error}") from error
    except zlib.error as error:
        raise TimelineError(f"{path}: broken gzip data: {error}") from error
    left = [SimulatorKernel.model_validate(dict(kernel)) for kernel in parser.finish()]
    kernels += left
    clocks += [parser.outcome.core_clock_mhz] * len(left)
    if not kernels:
        raise TimelineError(f"{path}: no kernel's statistics in this log")
    counting = clocks[-len(last_attempt(kernels)) :]
    return from_simulator(kernels, str(path), clock_mhz or _one_clock(str(path), set(counting)))


def times_of_sim(
    url: str, token: str, sim_id: str, clock_mhz: float | None, sleep: Callable[[float], None] = time.sleep
) -> KernelTimes:
    """Kernel times of a sim on a Cascade server.

    Args:
        url: of the server, without `/api`.
        token: bearer token. It is in no message.
        sim_id: such as `sim-6b4c91e71437`.
        clock_mhz: core clock; by default that of the configuration header in the sim's log.
        sleep: waits that many seconds before another try.

    Raises:
        TimelineError: the server cannot be reached or refuses, the sim has no kernel, or no clock is known.
    """
    headers = {"Authorization": f"Bearer {token}"}
    base = f"{url.rstrip('/')}/api/sims/{quote(sim_id, safe='')}"
    try:
        # $HTTP_PROXY is for other machines: it would be handed this one's token.
        with httpx.Client(headers=headers, timeout=30, trust_env=not is_loopback(url)) as client:
            kernels = list(_kernels(client, base, sleep))
            if not kernels:
                raise TimelineError(f"{base}: the sim has no kernel yet")
            if clock_mhz is None:
                clock_mhz = _clock_of_sim(client, base, sleep)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeEncodeError) as error:
        raise TimelineError(f"{url}: not a server's URL or not a token: {error}") from error
    return from_simulator(kernels, sim_id, clock_mhz or _one_clock(sim_id, {clock_mhz}))


def _lines(path: Path, progress: Progress) -> Iterator[list[str]]:
    """The log's lines, some thousand at a time. Bytes that are no UTF-8 become U+FFFD."""
    with path.open("rb") as raw:
        compressed = raw.read(2) == GZIP_MAGIC
        raw.seek(0)
        stream = gzip.GzipFile(fileobj=raw) if compressed else raw
        whole = _until_cut(stream)
        while lines := [line.decode("utf-8", "replace").rstrip("\n") for line in islice(whole, _LINES)]:
            yield lines
            progress(raw.tell())


def _until_cut(stream: Iterable[bytes]) -> Iterator[bytes]:
    with suppress(EOFError):  # a gzip stream without its end: what was logged so far counts
        yield from stream


def _one_clock(source: str, clocks: set[float | None]) -> float:
    """The one clock of a log. Raises TimelineError for none and for several."""
    known = sorted(clock for clock in clocks if clock is not None)
    if len(known) == 1 and len(clocks) == 1 and known[0] > 0:
        return known[0]
    if len(known) > 1:
        shown = " and ".join(f"{clock:g}" for clock in known)
        raise TimelineError(f"{source}: runs at two core clocks, {shown} MHz; say with --clock-mhz which one counts")
    raise TimelineError(
        f"{source}: no core clock known (no -gpgpu_clock_domains in the log); give one with --clock-mhz"
    )


def _kernels(client: httpx.Client, base: str, sleep: Callable[[float], None]) -> Iterator[SimulatorKernel]:
    cursor: str | None = None
    while True:
        params = {"limit": _PAGE_KERNELS, "stats": "false"} | ({} if cursor is None else {"cursor": cursor})
        page = _get(client, f"{base}/kernels", params, KernelPage, sleep)
        yield from page.kernels
        if page.next_cursor is None:
            return
        if page.next_cursor == cursor:
            raise TimelineError(f"{base}/kernels: the server gives the same page again and again")
        cursor = page.next_cursor


def _clock_of_sim(client: httpx.Client, base: str, sleep: Callable[[float], None]) -> float | None:
    """Core clock in MHz from the head of the sim's log; None when it is not there."""
    parser = Parser()
    seq = 0
    for _ in range(_CLOCK_PAGES):
        page = _get(client, f"{base}/logs", {"from_seq": seq, "limit": 100}, LogPage, sleep)
        for chunk in page.chunks:
            parser.feed(chunk.lines)
            if parser.outcome.core_clock_mhz is not None:
                return parser.outcome.core_clock_mhz
        if page.next_seq <= seq:
            break
        seq = page.next_seq
    return None


def _get(
    client: httpx.Client, url: str, params: Mapping[str, Any], model: type[Page], sleep: Callable[[float], None]
) -> Page:
    """The answer as `model`. What may pass is tried again, with growing pauses; what will not is a TimelineError."""
    for attempt in range(1, _TRIES + 1):
        try:
            answer = client.get(url, params=params)
        except httpx.TransportError as error:
            if attempt == _TRIES:
                raise TimelineError(f"{url}: cannot be reached: {error}") from error
        else:
            if answer.status_code == 200:
                return _parsed(answer, url, model)
            if answer.status_code not in _RETRIED or attempt == _TRIES:
                raise TimelineError(f"{url}: {answer.status_code}: {_detail(answer)}")
        sleep(2 ** (attempt - 2) * random.uniform(0.5, 1.5))  # noqa: S311  jitter, not a secret
    raise AssertionError("the last try returns or raises")


def _parsed(answer: httpx.Response, url: str, model: type[Page]) -> Page:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise TimelineError(f"{url}: not a Cascade server's answer: {where} {first['msg']}") from error


def _detail(answer: httpx.Response) -> str:
    """The server's reason on one line; its text may be anybody's, so not much of it."""
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = answer.reason_phrase
    return " ".join(str(detail).split())[:200]
