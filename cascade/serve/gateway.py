"""An ASGI application that plays API Gateway and Lambda for a Chalice app, with bodies far beyond their limits.

Where it differs from AWS on purpose: bodies go in and out as bytes, and an answer may be an iterator of bytes.
"""

import asyncio
import base64
import logging
import threading
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Iterator,
    Mapping,
    MutableMapping,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from cascade.serve.lambda_event import Context, HttpRequest, Match, Resources, error_body, rest_event

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

KIB = 1024
MIB = 1024 * KIB

THREADS = 32
FREE_BYTES = 64 * KIB
"""This much of a body is read before anybody asks who sends it."""
LIGHT_BYTES = 8 * KIB
"""No request with a larger body is light."""
GZIP = b"\x1f\x8b"
SLOW_SECONDS = 0.05
"""A light request that took longer was not."""
SLOW_FACTOR = 20.0
"""For so many times as long as it took all requests are answered on threads."""
SMALL_BYTES = MIB
"""Bodies up to this size do not count in the memory that bodies share."""
MEMORY_BYTES = 512 * MIB
"""Larger bodies wait, unread, until there is room for them in this."""
STALL_SECONDS = 30.0
"""A client that for this long sends none of its body, or takes none of its answer, is given up."""
LINGER_SECONDS = 10.0
LINGER_BYTES = 256 * MIB
"""After an early answer so much of the rest of the body is read and dropped: a client that sends all before it reads
anything would find its connection reset in place of the answer."""
PIECE_BYTES = 256 * KIB
BODILESS = (204, 304)


class Gone(Exception):
    """The client closed the connection before its request was complete."""


class Stalled(Exception):
    """The client does nothing for longer than anybody waits."""


@dataclass
class Body:
    """What was read of a request's body; `complete` is false when there is more, that nobody wants."""

    data: bytes
    complete: bool = True


@dataclass
class Answer:
    """An answer as the gateway sends it. `first` is what was already taken from an iterator."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes | Iterator[bytes]
    first: bytes = b""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> "Answer":
        """From what a Lambda function returns to API Gateway."""
        named: dict[str, list[Any]] = {name: [value] for name, value in (result.get("headers") or {}).items()}
        named |= result.get("multiValueHeaders") or {}
        headers = [(_latin(name.lower()), _latin(str(value))) for name, values in named.items() for value in values]
        body = result.get("body") or b""
        if result.get("isBase64Encoded"):
            body = base64.b64decode(body)
        return cls(int(result["statusCode"]), headers, body.encode() if isinstance(body, str) else body)

    @classmethod
    def error(cls, status: int, detail: str) -> "Answer":
        """In the one shape that all errors of the API have."""
        return cls(status, [(b"content-type", b"application/json")], error_body(detail))


def _latin(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


class Memory:
    """How many bytes of large bodies are held at a time."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Wait until there is room for `size` bytes and keep it for the block."""
        size = min(size, self._size)
        async with self._changed:
            await self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            async with self._changed:
                self._free += size
                self._changed.notify_all()


class Gateway:
    """Serves a Chalice app.

    Args:
        app: the Chalice object. It becomes safe to call on many threads at once.
        authorized: whether a request's headers let its sender in. Asked before a large body is read; the app asks too.
        limit: largest body of a method and a path in bytes, inclusive. Of a larger one the app gets one byte more, to
            refuse it in its own order of checks; the rest is dropped and the connection closed.
        light: methods and resource paths of requests that take so little time that the way to a thread and back is a good
            part of it. They are answered in the event loop, unless they have to wait.
        hold: keeps off for its block whatever a light request may have to wait for, and says whether it could at once.
        threads: how many other requests are handled at a time.
        stall_seconds, memory_bytes: for tests.
    """

    def __init__(
        self,
        app: Any,
        *,
        authorized: Callable[[Mapping[str, str]], bool],
        limit: Callable[[str, str], int],
        light: Container[tuple[str, str]] = (),
        hold: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(True),
        threads: int = THREADS,
        stall_seconds: float = STALL_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        per_thread(app)
        for path, methods in app.routes.items():
            app.routes[path] = _EveryMethod(methods)
        # Bytes stay bytes: no base64, and no Accept header is asked for.
        app.api.binary_types = []
        self.app = app
        self.authorized = authorized
        self.limit = limit
        self.light = light
        self.hold = hold
        self._threads_until = 0.0
        self.stall_seconds = stall_seconds
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="lambda")
        self.running = 0
        self._memory = Memory(memory_bytes)
        self._resources = Resources(app.routes)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        try:
            await self._serve(scope, receive, send)
        except asyncio.CancelledError:
            return  # the server stops, and has hung up already

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        request = _request(scope)
        async with AsyncExitStack() as held:
            try:
                body = await self._read(request, receive, held)
            except Gone:
                return
            except Stalled:
                body, answer = Body(b""), Answer.error(408, "the rest of the request did not arrive")
                answer.headers.append((b"connection", b"close"))
            else:
                answer = await self._answer(request, body)
            try:
                await self._send(request, answer, send, None if body.complete else receive)
            except Stalled:
                # Closing in order would wait for ever to have the last bytes taken.
                await _hang_up(scope)
            except Exception:
                # The client was told that all is well; an end before its time tells it otherwise.
                logger.exception("%s %s failed, request %s", request.method, request.path, request.id)
                await _hang_up(scope)

    # The request.

    async def _read(self, request: HttpRequest, receive: Receive, held: AsyncExitStack) -> Body:
        headers = request.last_values
        declared = int(headers.get("content-length", 0))
        if not declared and "transfer-encoding" not in headers:
            return Body(b"")
        limit = self.limit(request.method, request.path)
        parts: list[bytes] = []
        size, more, trusted, counted = 0, True, False, False
        while more and size <= limit:
            expected = max(declared, size)
            if expected > FREE_BYTES and not trusted:
                trusted = self.authorized(headers)
                if not trusted:
                    return Body(b"", complete=False)
            if expected > SMALL_BYTES and not counted:
                await held.enter_async_context(self._memory.hold(min(declared or limit, limit) + 1))
                counted = True
            message = await self._receive(receive)
            if message["type"] == "http.disconnect":
                raise Gone
            # One byte beyond the limit tells the app all there is to tell.
            parts.append(message["body"][: limit + 1 - size])
            size += len(message["body"])
            more = message["more_body"]
        return Body(b"".join(parts), complete=not more)

    async def _receive(self, receive: Receive) -> Message:
        """What the client sends next. Raises Stalled when that takes too long."""
        try:
            async with asyncio.timeout(self.stall_seconds):
                return await receive()
        except TimeoutError:
            raise Stalled from None

    async def _take(self, send: Send, *messages: Message) -> None:
        """Have the client take parts of an answer. Raises Stalled when it does not, nor what was sent before them."""
        try:
            async with asyncio.timeout(self.stall_seconds):
                for message in messages:
                    await send(message)
        except TimeoutError:
            raise Stalled from None

    # The function.

    async def _answer(self, request: HttpRequest, body: Body) -> Answer:
        match = self._resources.match(request.path)
        answer: Answer
        if match:
            at_once = self._in_the_loop(request, match, body) if self._is_light(request, match, body) else None
            answer = at_once or await self._on_a_thread(self._call, request, match, body)
        elif self.authorized(request.last_values):
            answer = Answer.error(404, "not found")
        else:
            answer = Answer.error(401, "missing or wrong token")
            answer.headers.append((b"www-authenticate", b"Bearer"))
        answer.headers.append((b"x-amzn-requestid", request.id.encode()))
        if not body.complete:
            answer.headers.append((b"connection", b"close"))
        return answer

    def _is_light(self, request: HttpRequest, match: Match, body: Body) -> bool:
        return (
            (request.method, match[0]) in self.light
            and len(body.data) <= LIGHT_BYTES
            and not body.data.startswith(GZIP)  # which may be a bomb
            and time.monotonic() >= self._threads_until
        )

    def _in_the_loop(self, request: HttpRequest, match: Match, body: Body) -> Answer | None:
        """The answer, while nobody else can use the loop; None if it would have to wait for somebody."""
        with self.hold() as free:
            if not free:
                return None
            begun = time.monotonic()
            answer = self._call(request, match, body)
            ended = time.monotonic()
        if ended - begun > SLOW_SECONDS:
            # It waited for a disk or a lock, and so may the next.
            self._threads_until = ended + SLOW_FACTOR * (ended - begun)
        return answer

    async def _on_a_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self.running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.pool, call, *arguments)
        finally:
            self.running -= 1

    def _call(self, request: HttpRequest, match: Match, body: Body) -> Answer:
        event = rest_event(request, match, body.data)
        body.data = b""  # the event is its one owner now, and gone before the answer is sent
        try:
            answer = Answer.of(self.app(event, Context(request.id)))
            if not isinstance(answer.body, bytes):
                # What fails before its first byte is still a 500.
                answer.first = next(answer.body, b"")
        except Exception:  # as API Gateway answers for a function that failed
            logger.exception("%s %s failed, request %s", request.method, match[0], request.id)
            return Answer.error(500, "internal error")
        finally:
            # Chalice would hold the request, and its body, until this thread's next one.
            self.app.current_request = self.app.lambda_context = None
        return answer

    # The answer.

    async def _send(self, request: HttpRequest, answer: Answer, send: Send, rest: Receive | None) -> None:
        silent = request.method == "HEAD" or answer.status in BODILESS
        if request.protocol == "HTTP/1.0" and not silent and not isinstance(answer.body, bytes):
            # It knows no chunks, so it must be told the length.
            answer.body = answer.first + await self._on_a_thread(b"".join, answer.body)
        headers = _with_length(answer, request.method)
        start = {"type": "http.response.start", "status": answer.status, "headers": headers}
        if isinstance(answer.body, bytes) and len(answer.body) <= PIECE_BYTES and not rest:
            # Nearly every answer.
            return await self._take(send, start, _body_part(b"" if silent else answer.body, more=False))
        await self._take(send, start)
        async with aclosing(self._pieces(answer)) as pieces:
            async for piece in pieces:
                if silent:
                    break
                await self._take(send, _body_part(piece, more=True))
        if rest and not request.expects_continue:
            await _drop(rest)
        await self._take(send, _body_part(b"", more=False))
        return None

    async def _pieces(self, answer: Answer) -> AsyncGenerator[bytes, None]:
        if isinstance(answer.body, bytes):
            for start in range(0, len(answer.body), PIECE_BYTES):
                yield answer.body[start : start + PIECE_BYTES]
            return
        piece: bytes | None = answer.first
        try:
            while piece is not None:
                if piece:
                    yield piece
                piece = await self._on_a_thread(next, answer.body, None)
        finally:
            close = getattr(answer.body, "close", None)
            if close:
                await self._on_a_thread(close)


def _body_part(piece: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": more}


def _with_length(answer: Answer, method: str) -> list[tuple[bytes, bytes]]:
    """The answer's headers with the length of its body, if that is known and may be told."""
    headers = answer.headers
    if method == "HEAD" and not answer.body:
        return headers  # the function may have told the length of what GET would give
    headers = [header for header in headers if header[0] not in (b"content-length", b"transfer-encoding")]
    if isinstance(answer.body, bytes) and answer.status not in BODILESS:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    return headers


async def _drop(receive: Receive) -> None:
    """Read on for a while, to nobody's use but the client's, who is sending still."""
    dropped = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while dropped <= LINGER_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect" or not message["more_body"]:
                    return
                dropped += len(message["body"])


async def _hang_up(scope: Message) -> None:
    scope["extensions"]["cascade.abort"]()
    # The connection is lost in the loop's next turn; uvicorn would complain of an answer without an end until then.
    await asyncio.sleep(0)


def _request(scope: Message) -> HttpRequest:
    client = scope.get("client")
    return HttpRequest(
        method=scope["method"],
        path=scope["raw_path"].decode("ascii"),
        query=scope["query_string"].decode("ascii"),
        # A copy: what follows a chunked body is added to the scope's own list, unchecked.
        headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]],
        source_ip=client[0] if client else "",
        protocol=f"HTTP/{scope['http_version']}",
    )


# The app.


class _EveryMethod(dict[str, Any]):
    """A path's routes by method. One of them takes the methods that HTTP has and Chalice does not know, such as TRACE.

    The app refuses them as it refuses every wrong method, where Chalice would answer in a shape of its own, unasked who asks.
    """

    def __contains__(self, method: object) -> bool:
        return True

    def __missing__(self, method: str) -> Any:
        return next(iter(self.values()))


class _PerThread(threading.local):
    current_request: Any = None
    lambda_context: Any = None


def per_thread(app: Any) -> None:
    """Let many threads call one Chalice object at once.

    Chalice keeps the request and the context of the call as attributes of the object, for a Lambda serves one call at a
    time. `chalice local` makes them per thread by the same change of class.
    """
    kept = _PerThread()

    def attribute(name: str) -> property:
        return property(lambda self: getattr(kept, name), lambda self, value: setattr(kept, name, value))

    attributes = {name: attribute(name) for name in ("current_request", "lambda_context")}
    app.__class__ = type("PerThreadChalice", (type(app),), attributes)
