"""A client of the Cascade API that expects the network to fail and the server to lie.

    from cascade.client import Client

    with Client("http://127.0.0.1:8000", token) as cascade:
        run = cascade.create_run("a sweep", [{"params": {"config": "volta"}}])
        sim = cascade.claim(run.id, worker="me")

Every call of the API is safe to repeat, so every call here is repeated until it is answered properly, up to
`give_up_after` seconds: after faults of the network, after 408, 425, 429 and 5xx, and after a success whose body is not
what the API promises (a proxy's page, half an answer). `Retry-After` is honoured; else the wait is random and grows.
What the server refuses for good is raised at once, each kind as an exception of its own whose text says what to do.

Values come back as the API's own models (`chalicelib.models`), the ones its OpenAPI document is made from.
"""

from __future__ import annotations

import email.utils
import gzip
import json
import math
import random
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urljoin

import httpx
import tenacity
from pydantic import BaseModel, TypeAdapter, ValidationError

from cascade.local import default_token, default_url, is_loopback
from chalicelib.models import (
    Heartbeat,
    HeartbeatAck,
    Kernel,
    KernelPage,
    LogPage,
    ParamsPage,
    RunDetail,
    RunList,
    RunSummary,
    SimDetail,
    SimFile,
    SimParams,
    SimSpec,
    SimSummary,
    StepTimeline,
    Upload,
)  # fmt: skip

T = TypeVar("T")

FILE_MAX_BYTES: Final = 64 * 1024 * 1024
"""The API's limit for one file, inclusive."""
GATEWAY_MAX_BYTES: Final = 10 * 1000 * 1000
"""Larger requests go through no deployment on AWS without a front door."""
ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024
"""More than this in a JSON answer is not the API: its pages stay under 5 MB, step timing under 32 MiB."""
RETRY_AFTER_MAX_S: Final = 300.0
"""A longer `Retry-After` is taken as this."""
BACKOFF_MAX_S: Final = 15.0
"""Longest wait between two tries when the server names none."""
_PIECE: Final = 256 * 1024
_UPLOADS: Final = 3
"""So often an upload is begun for one file."""
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_TRANSIENT: Final = (408, 425, 429)
_TOKEN = re.compile(r"[!-~]+")
_WHERE: Final = (
    "a server on one machine keeps it in the file token of its data folder, .cascade; a deployed one in Secrets Manager"
)


class CascadeError(Exception):
    """Base of what this module raises. Its text is one line for people."""


class Unauthorized(CascadeError):
    """401: the token is missing or wrong."""


class NotFound(CascadeError):
    """404, said by the API itself: no such run, sim or file."""


class Conflict(CascadeError):
    """409: not now, or not with this."""


class TooLarge(CascadeError):
    """413: over a limit."""


class Rejected(CascadeError):
    """422 or another 4xx: the request itself is wrong."""


class _StoreRefused(Rejected):
    """The object store refuses bytes at the URL it was given: the URL has expired, as a rule."""


class NotCascade(CascadeError):
    """Something answered that is not a Cascade server: a redirect, a page of a proxy."""


class Unavailable(CascadeError):
    """No proper answer within `give_up_after` seconds, or the waiting was ended by `stop`."""


class _Transient(Exception):
    """This try failed; the next may not."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Source:
    """Bytes to send, which each try reads from the start: in memory, or a file of which `size` bytes are sent."""

    def __init__(self, content: bytes | Path) -> None:
        self.content = content
        self.size = content.stat().st_size if isinstance(content, Path) else len(content)

    def open(self) -> bytes | Iterator[bytes]:
        """What httpx takes as content. Raises OSError in the middle when the file can't be read."""
        return self.content if isinstance(self.content, bytes) else self._pieces(self.content)

    def _pieces(self, path: Path) -> Iterator[bytes]:
        left = self.size
        with path.open("rb") as file:
            while left:
                piece = file.read(min(left, _PIECE))
                if not piece:
                    raise OSError(f"{path.name} became shorter while it was sent")
                left -= len(piece)
                yield piece


class Client:
    """The API of one server. May be used by several threads at once.

    Args:
        url: The server, with or without a trailing `/api`. Default `$CASCADE_URL`, else the local server.
        token: The bearer token. Default `$CASCADE_TOKEN`, else for a URL of this machine the one the local server keeps.
        timeout: Seconds to wait for each step of a try: the connection, a piece of the request or of the answer.
        give_up_after: Seconds after which a call that keeps failing raises Unavailable; 0 for one try, `math.inf` for
            ever.
        stop: Once set, no call waits any longer: a failed try raises Unavailable.
        on_retry: Called before each wait with the reason and the seconds.

    Raises:
        CascadeError: the URL or the token can't be right.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        give_up_after: float = 60.0,
        stop: threading.Event | None = None,
        on_retry: Callable[[str, float], None] | None = None,
    ) -> None:
        self.url = _checked_url(url if url is not None else default_url())
        self._headers = {
            "Authorization": f"Bearer {_checked_token(token if token is not None else default_token(self.url))}",
            "User-Agent": "cascade-client",
            "Accept": "application/json",
        }
        self.named: str | None = None
        """What the API names in each 404 that these calls can get: another 404 is that of something on the way, which
        may be put right, and the call is repeated."""
        self._give_up_after = give_up_after
        self._stop = stop or threading.Event()
        self._on_retry = on_retry
        self._timeout = httpx.Timeout(timeout, connect=min(timeout, 10.0))
        # $HTTP_PROXY is for other machines: it would be handed this one's token.
        self._http = httpx.Client(timeout=self._timeout, follow_redirects=False, trust_env=not is_loopback(self.url))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def hurry(self, seconds: float) -> None:
        """Let no later call wait longer than `seconds`, but one at least, for an answer, or for a better one."""
        self._http.timeout = self._timeout = httpx.Timeout(max(seconds, 1.0))
        self._give_up_after = min(self._give_up_after, seconds)

    # What a simulator calls.

    def heartbeat(
        self, sim_id: str, state: str = "running", exit_code: int | None = None, error: str | None = None
    ) -> HeartbeatAck:
        """Say that the sim is alive (`running`) or over (`succeeded`, `failed`); learn its state and whether to stop.

        Args:
            exit_code: The process's, with a final state; a signal as minus its number.
            error: Why it failed; the server keeps 4 KiB.
        """
        body = {"state": state, "exit_code": exit_code, "error": error}
        return self._json("POST", f"/sims/{_part(sim_id)}/heartbeat", HeartbeatAck, body)

    def send_log_chunk(self, sim_id: str, seq: int, lines: Sequence[str]) -> None:
        """Store chunk `seq` (from 0, one more each time) of the log, sent as gzip; durable on return.

        The first chunk the server stores for a seq wins: a repeat must hold the same lines.
        """
        source, headers = _packed({"seq": seq, "lines": lines}, 1)
        self._call("POST", f"/sims/{_part(sim_id)}/logs", _nothing, source, headers)

    def send_step_timeline(
        self, sim_id: str, simulated: Mapping[str, Any], compare: Mapping[str, Any] | None = None
    ) -> None:
        """Store what `cascade simulate` and `cascade compare` made; replaces what was there."""
        source, headers = _packed({"simulated": simulated, "compare": compare})
        self._call("POST", f"/sims/{_part(sim_id)}/step-timeline", _nothing, source, headers)

    def upload_file(self, sim_id: str, name: str, content: bytes | Path) -> SimFile:
        """Store a file's bytes as the sim's file `name`, replacing an earlier one.

        Args:
            name: 1 to 128 of letters, digits, `.`, `_`, `-`; not `.` or `..`.
            content: At most 64 MiB. A path is read in pieces.

        Raises:
            TooLarge: over 64 MiB, or the sim's files would pass 256 MiB in all.
            OSError: the file can't be read.
        """
        if name in (".", "..") or not name:  # a URL can't hold these: they would be resolved on the way
            raise Rejected(f"{name!r} is no file name")
        source = Source(content)
        if source.size > FILE_MAX_BYTES:
            raise TooLarge(f"{name} has {source.size} bytes, over the 64 MiB limit of a file")
        headers = {"Content-Type": "application/octet-stream"}
        path = f"/sims/{_part(sim_id)}/files/{_part(name)}"
        if source.size > GATEWAY_MAX_BYTES:
            # API Gateway may hang up on such a body before it is sent, which looks like a fault of the network.
            return self._upload_past_the_door(sim_id, name, source)
        try:
            return self._call("PUT", path, _reader(SimFile), source, headers, timeout=self._upload_timeout)
        except TooLarge:
            # A deployment whose door takes less than a file may have; if it is the file that is too large, this says so.
            return self._upload_past_the_door(sim_id, name, source)

    @property
    def _upload_timeout(self) -> httpx.Timeout:
        """The answer comes once the whole file is stored, which for 64 MiB takes longer than any other."""
        usual = self._timeout
        return httpx.Timeout(connect=usual.connect, read=max(usual.read or 0.0, 120.0), write=usual.write, pool=None)

    def _upload_past_the_door(self, sim_id: str, name: str, source: Source) -> SimFile:
        """Three calls: where to put the bytes, the bytes, done. Begun anew when that place is no more by then."""
        path = f"/sims/{_part(sim_id)}/uploads/{_part(name)}"
        tries = 0
        while True:
            begun = self._json("POST", path, Upload, {"size": source.size})
            try:
                self._call("PUT", begun.url, _anything, source, begun.headers, timeout=self._upload_timeout)
                return self._json("POST", f"{path}/{_part(begun.id)}", SimFile, {})
            except (_StoreRefused, Conflict) as error:
                # The URL holds for a while only, and tries that failed may have taken longer.
                tries += 1
                if tries == _UPLOADS:
                    raise Rejected(f"{error} ({_UPLOADS} uploads begun)") from None

    # Runs.

    def create_run(
        self, name: str, sims: Iterable[SimSpec | Mapping[str, Any]], idempotency_key: str | None = None
    ) -> RunDetail:
        """Make a run of queued sims, once, whatever happens on the way.

        Args:
            sims: 1 to 1,000 of `{"name"?: str, "params"?: {...}}`; `add_sims` adds more.
            idempotency_key: A repeat with the same key gives the same run. Default a new one for each call.
        """
        body = {"name": name, "sims": [_spec(sim) for sim in sims]}
        return self._json("POST", "/runs", RunDetail, body, {"Idempotency-Key": idempotency_key or _key()})

    def list_runs(self, limit: int = 20, cursor: str | None = None) -> RunList:
        """One page of runs, newest first; `next_cursor` leads to the next, None ends."""
        return self._json("GET", "/runs", RunList, params=_query(limit=limit, cursor=cursor))

    def runs(self) -> Iterator[RunSummary]:
        """All runs, newest first."""
        cursor = None
        while True:
            page = self.list_runs(100, cursor)
            yield from page.runs
            cursor = page.next_cursor
            if cursor is None:
                return

    def show_run(self, run_id: str) -> RunDetail:
        """A run with all its sims."""
        return self._json("GET", f"/runs/{_part(run_id)}", RunDetail)

    def params(self, run_id: str) -> Iterator[SimParams]:
        """The params of a run's sims in their order, a page at a time."""
        cursor = None
        while True:
            page = self._json("GET", f"/runs/{_part(run_id)}/params", ParamsPage, params=_query(cursor=cursor))
            yield from page.sims
            cursor = page.next_cursor
            if cursor is None:
                return

    def add_sims(
        self, run_id: str, sims: Iterable[SimSpec | Mapping[str, Any]], idempotency_key: str | None = None
    ) -> list[SimSummary]:
        """Add 1 to 1,000 queued sims to a run, once; returns the new ones."""
        body = {"sims": [_spec(sim) for sim in sims]}
        headers = {"Idempotency-Key": idempotency_key or _key()}
        return self._json("POST", f"/runs/{_part(run_id)}/sims", list[SimSummary], body, headers)

    def claim(self, run_id: str, worker: str, idempotency_key: str | None = None) -> SimDetail | None:
        """Take one queued sim for `worker` alone: it is running then. None when none is queued.

        Args:
            worker: Who takes it, such as `host:pid`, at most 200 characters.
            idempotency_key: A repeat with the same key and worker gives the same sim. Default a new one for each call.
        """
        headers = {"Idempotency-Key": idempotency_key or _key(), "Content-Type": "application/json"}
        source = Source(json.dumps({"worker": worker}).encode())
        return self._call("POST", f"/runs/{_part(run_id)}/claim", _optional(SimDetail), source, headers)

    def cancel_run(self, run_id: str) -> RunDetail:
        """Cancel every sim of the run that has not finished."""
        return self._json("POST", f"/runs/{_part(run_id)}/cancel", RunDetail)

    def delete_run(self, run_id: str) -> None:
        """Delete a run and everything of it. Raises Conflict while a sim is running."""
        tries = 0

        def count(_: int) -> None:
            nonlocal tries
            tries += 1

        try:
            self._call("DELETE", f"/runs/{_part(run_id)}", _nothing, before=count)
        except NotFound:
            if tries < 2:
                raise
            # An earlier try did it and its answer was lost: gone is what was asked for.

    # Sims and results.

    def show_sim(self, sim_id: str) -> SimDetail:
        """A sim whole."""
        return self._json("GET", f"/sims/{_part(sim_id)}", SimDetail)

    def cancel_sim(self, sim_id: str) -> SimDetail:
        """Cancel a sim; one that has finished stays as it is."""
        return self._json("POST", f"/sims/{_part(sim_id)}/cancel", SimDetail)

    def read_log(self, sim_id: str, from_seq: int = 0, limit: int = 100) -> LogPage:
        """Stored chunks from `from_seq` on: at most `limit` (1,000) and 5 MB; ask again from `next_seq`."""
        params = _query(from_seq=from_seq, limit=limit)
        return self._json("GET", f"/sims/{_part(sim_id)}/logs", LogPage, params=params)

    def log_tail(self, sim_id: str, lines: int) -> LogPage:
        """The last `lines` (at most 10,000) lines, in the chunks they came in."""
        return self._json("GET", f"/sims/{_part(sim_id)}/logs", LogPage, params=_query(tail=lines))

    def kernels(self, sim_id: str, stats: bool = True) -> Iterator[Kernel]:
        """All kernels in log order, a page at a time; without `stats` only the headline numbers."""
        cursor = None
        while True:
            params = _query(limit=1000, cursor=cursor, stats="true" if stats else "false")
            page = self._json("GET", f"/sims/{_part(sim_id)}/kernels", KernelPage, params=params)
            yield from page.kernels
            cursor = page.next_cursor
            if cursor is None:
                return

    def download_kernels_csv(self, sim_id: str, target: Path) -> None:
        """Write all kernels as CSV to `target`, whole or not at all."""
        self._download(f"/sims/{_part(sim_id)}/kernels.csv", target)

    def step_timeline(self, sim_id: str) -> StepTimeline:
        """The sim's step timing. Raises NotFound when none was sent."""
        return self._json("GET", f"/sims/{_part(sim_id)}/step-timeline", StepTimeline)

    def files(self, sim_id: str) -> list[SimFile]:
        """The sim's files by name."""
        return self._json("GET", f"/sims/{_part(sim_id)}/files", list[SimFile])

    def download_file(self, sim_id: str, name: str, target: Path) -> None:
        """Write the sim's file `name` to `target`, whole or not at all."""
        self._download(f"/sims/{_part(sim_id)}/files/{_part(name)}", target)

    def health(self) -> bool:
        """Whether a Cascade server answers. Raises Unavailable or NotCascade when none does."""
        return self._json("GET", "/health", dict[str, str])["status"] == "ok"

    # One call, and one try of it.

    def _json(
        self,
        method: str,
        path: str,
        model: type[T],
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> T:
        source = None
        sent = dict(headers or {})
        if body is not None:
            source = Source(json.dumps(body).encode())
            sent["Content-Type"] = "application/json"
            if source.size > 64 * 1024:  # a run of 1,000 sims with large params is over the gateway's 6 MB as it is
                source, packed = _packed(body)
                sent.update(packed)
        return self._call(method, path, _reader(model), source, sent, params)

    def _download(self, path: str, target: Path) -> None:
        def save(response: httpx.Response) -> None:
            partial = target.with_name(f".{target.name}.{_key()}.part")
            try:
                with partial.open("wb") as file:
                    for piece in response.iter_bytes(_PIECE):
                        file.write(piece)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)

        self._call("GET", path, save, None, {"Accept": "*/*"})

    def _call(
        self,
        method: str,
        path: str,
        read: Callable[[httpx.Response], T],
        source: Source | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | None = None,
        before: Callable[[int], None] | None = None,
    ) -> T:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Transient),
            stop=tenacity.stop_before_delay(self._give_up_after) | tenacity.stop_when_event_set(self._stop),
            wait=_wait,
            sleep=tenacity.sleep_using_event(self._stop),
            before=(lambda state: before(state.attempt_number)) if before else tenacity.before_nothing,
            before_sleep=self._tell,
            retry_error_callback=self._give_up,
        )
        value: T = retrying(self._once, method, path, read, source, headers, params, timeout)
        return value

    def _tell(self, state: tenacity.RetryCallState) -> None:
        if self._on_retry and state.outcome and state.next_action:
            self._on_retry(f"{self.url}: {state.outcome.exception()}", state.next_action.sleep)

    def _give_up(self, state: tenacity.RetryCallState) -> Any:
        error = state.outcome.exception() if state.outcome else None
        tried = f" ({state.attempt_number} tries in {state.seconds_since_start or 0:.0f} s)"
        raise Unavailable(f"{self.url}: {error}{tried if state.attempt_number > 1 else ''}") from error

    def _once(
        self,
        method: str,
        path: str,
        read: Callable[[httpx.Response], T],
        source: Source | None,
        headers: Mapping[str, str] | None,
        params: Mapping[str, str] | None,
        timeout: httpx.Timeout | None,
    ) -> T:
        sent = {**self._headers, **(headers or {})}
        url = urljoin(f"{self.url}/", path) if path.startswith(("http", "/api/")) else f"{self.url}/api{path}"
        if path.startswith("http"):
            del sent["Authorization"]  # the object store neither needs it nor may see it
        content: bytes | Iterator[bytes] | None = None
        if source is not None:
            sent["Content-Length"] = str(source.size)
            content = source.open()
        try:
            for _ in range(5):
                request = self._http.build_request(
                    method, url, headers=sent, params=params, content=content, timeout=timeout or self._timeout
                )
                response = self._http.send(request, stream=True)
                try:
                    if response.status_code in _REDIRECTS and method == "GET" and response.headers.get("location"):
                        url = urljoin(url, response.headers["location"])
                        params = None
                        if httpx.URL(url).netloc != request.url.netloc or httpx.URL(url).scheme != request.url.scheme:
                            sent.pop("Authorization", None)  # the object store neither needs it nor may see it
                        continue
                    return self._taken(response, path, read)
                finally:
                    response.close()
            raise NotCascade(f"{self.url}: redirects in a circle: is this the right CASCADE_URL?")
        except httpx.InvalidURL as error:
            raise NotCascade(f"{self.url}: redirects to an address that is none ({error})") from None
        except httpx.RequestError as error:
            raise _Transient(_describe(error)) from error

    def _taken(self, response: httpx.Response, path: str, read: Callable[[httpx.Response], T]) -> T:
        """The answer's value. Raises what its status stands for."""
        status = response.status_code
        if 200 <= status < 300:
            try:
                return read(response)
            except (ValidationError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise _Transient(f"answered {path} with {status} and what the API never sends ({reason})") from error
        if path.startswith("http") and 400 <= status < 500 and status not in _TRANSIENT:
            raise _StoreRefused(f"{status} of the object store{_store_said(response)}")
        if status in _REDIRECTS:
            to = response.headers.get("location", "nowhere")
            raise NotCascade(f"{self.url}: redirects to {to[:200]}: set CASCADE_URL to where the server is")
        detail = _detail(response)
        if status in _TRANSIENT or status >= 500:
            raise _Transient(f"{status} {detail or response.reason_phrase}", _retry_after(response.headers))
        if status == 401:
            raise Unauthorized(
                f"{self.url}: 401 {detail or 'Unauthorized'}: set CASCADE_TOKEN or --token to the server's token ({_WHERE})"
            )
        if status == 413:
            raise TooLarge(f"413 {detail or 'too large for a proxy on the way'}: send less")
        if status == 404 and self.named and self.named not in (detail or ""):
            raise _Transient(f"404 {detail or response.reason_phrase}, which the API does not say of {self.named}")
        if detail is None:
            raise NotCascade(
                f"{self.url}: {status} for {path}, and not as Cascade answers: is this the right CASCADE_URL?"
            )
        if status == 404:
            raise NotFound(detail)
        raise (Conflict if status == 409 else Rejected)(f"{status} {detail}")


# Requests.


def _checked_url(url: str) -> str:
    text = url.strip().rstrip("/").removesuffix("/api")
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise CascadeError(f"{url!r} is no URL ({error}): set CASCADE_URL or --url") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise CascadeError(f"{url!r} is no http or https URL: set CASCADE_URL or --url, such as http://127.0.0.1:8000")
    if parsed.query or parsed.fragment:
        raise CascadeError(f"{url!r} has a query or a fragment: set CASCADE_URL or --url to the server alone")
    return text


def _checked_token(token: str | None) -> str:
    token = (token or "").strip()
    if not token:
        raise CascadeError(f"no token: set CASCADE_TOKEN or --token to the server's token ({_WHERE})")
    if not _TOKEN.fullmatch(token):
        raise CascadeError(
            "the token has blanks or characters that a header can't hold: check CASCADE_TOKEN or --token"
        )
    return token


def _part(text: str) -> str:
    """A path parameter, so encoded that it stays one."""
    return quote(text, safe="", errors="replace")


def _packed(value: Any, level: int = 6) -> tuple[Source, dict[str, str]]:
    """`value` as compressed JSON, and the headers that say so.

    Not by `Content-Encoding`: API Gateway would inflate it, and measure it against its 6 MB only then.
    """
    body = gzip.compress(json.dumps(value).encode(), level, mtime=0)
    return Source(body), {"Content-Type": "application/gzip"}


def _key() -> str:
    return uuid.uuid4().hex


def _spec(sim: SimSpec | Mapping[str, Any]) -> dict[str, Any]:
    return sim.model_dump(exclude_none=True) if isinstance(sim, BaseModel) else dict(sim)


def _query(**values: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _wait(state: tenacity.RetryCallState) -> float:
    """Seconds before the next try: what the server asked for and a little more, else random up to a doubling bound."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, _Transient) and error.retry_after is not None:
        return min(error.retry_after, RETRY_AFTER_MAX_S) + random.uniform(0, 1)  # noqa: S311  spreads a herd, no secret
    return _backoff(state)


_backoff = tenacity.wait_random_exponential(multiplier=0.25, max=BACKOFF_MAX_S)


# Answers.


def _body(response: httpx.Response) -> bytes:
    """The whole body. Raises ValueError when it is too long to be the API's."""
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes(_PIECE):
        parts.append(part)
        size += len(part)
        if size > ANSWER_MAX_BYTES:
            raise ValueError(f"over {ANSWER_MAX_BYTES} bytes")
    return b"".join(parts)


def _reader(model: type[T]) -> Callable[[httpx.Response], T]:
    adapter: TypeAdapter[T] = TypeAdapter(model)

    def read(response: httpx.Response) -> T:
        if response.status_code == 204:
            raise ValueError("no content")
        return adapter.validate_json(_body(response), strict=True)

    return read


def _optional(model: type[T]) -> Callable[[httpx.Response], T | None]:
    """Reads a 204 as None."""
    read = _reader(model)
    return lambda response: None if response.status_code == 204 else read(response)


def _nothing(response: httpx.Response) -> None:
    """Reads a 204. A page with 200 is not the API's word that something is stored."""
    if response.status_code != 204:
        raise ValueError("expected 204")
    _body(response)


def _anything(response: httpx.Response) -> None:
    """Reads any success: the object store's, which has no shape of the API's."""
    _body(response)


def _detail(response: httpx.Response) -> str | None:
    """What an error of the API says, as one line; None when it is no error of the API."""
    try:
        detail = json.loads(_body(response))["detail"]
        if isinstance(detail, list):
            detail = "; ".join(f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in detail[:5])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return " ".join(detail.split())[:1000] if isinstance(detail, str) else None


def _store_said(response: httpx.Response) -> str:
    """What the XML of an S3 error says, if anything."""
    try:
        found = re.search(rb"<Message>([^<]{1,200})</Message>", _body(response))
    except (ValueError, httpx.HTTPError):
        return ""
    return f": {' '.join(found[1].decode(errors='replace').split())}" if found else ""


def _retry_after(headers: httpx.Headers) -> float | None:
    """Seconds asked for. A date counts from the answer's own Date, so that a wrong clock here does no harm."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            until = email.utils.parsedate_to_datetime(value)
            now = email.utils.parsedate_to_datetime(headers["date"])
            seconds = (until - now).total_seconds()
        except (ValueError, TypeError, LookupError, OverflowError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _describe(error: httpx.RequestError) -> str:
    """A fault of the network in a few words."""
    words = {
        httpx.ConnectTimeout: "no connection in time",
        httpx.ReadTimeout: "no answer in time",
        httpx.WriteTimeout: "the request was not taken in time",
        httpx.RemoteProtocolError: "a broken answer",
        httpx.DecodingError: "an answer that can't be decompressed",
    }
    said = next((text for kind, text in words.items() if isinstance(error, kind)), None)
    text = " ".join(str(error).split())
    if said is None:
        return text or type(error).__name__
    return f"{said} ({text})" if text and text != "timed out" else said


__all__ = [
    "CascadeError",
    "Client",
    "Conflict",
    "Heartbeat",
    "HeartbeatAck",
    "Kernel",
    "LogPage",
    "NotCascade",
    "NotFound",
    "Rejected",
    "RunDetail",
    "RunSummary",
    "SimDetail",
    "SimFile",
    "SimParams",
    "SimSummary",
    "StepTimeline",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "default_url",
]
