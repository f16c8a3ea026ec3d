"""HTTP/1.1 as uvicorn speaks it, with every refusal in JSON and a bound on the time and size of a request's head."""

import asyncio
import socket
from collections.abc import Sized
from contextlib import suppress
from functools import partial
from typing import Any, cast

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from cascade.serve.lambda_event import error_body

HEAD_SECONDS = 20.0
"""A request's line and headers must be there so long after its first byte, or after the connection was made."""
HEAD_BYTES = 32 * 1024
SMALL_BYTES = 16 * 1024
"""Up to here joining two pieces costs less than sending them one by one."""


class _Parser(httptools.HttpRequestParser):
    """Reads on in HTTP/1.1 where a client offers to change to something else, such as HTTP/2: Java's does in every request.

    httptools skips the body of such a request and stops.
    """

    def __init__(self, protocol: "JsonProtocol") -> None:
        super().__init__(protocol)
        self.protocol = protocol
        # As uvicorn has it: answer a request though more follows the last one that its client announced.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: Any) -> None:
        """Parse `data`. Raises HttpParserError."""
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.protocol.decline_upgrade(data[upgrade.args[0] :])


class OneSend:
    """A transport that sends the head of an answer together with what is written next, or in the loop's next turn.

    uvicorn writes head and body one by one: two system calls, and a client that is woken twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send `data`, soon if it is small and the first of this turn."""
        if self._held:
            held, self._held = self._held, b""
            if len(data) <= SMALL_BYTES:
                data = held + data
            else:
                self._transport.write(held)
        elif len(data) <= SMALL_BYTES:
            self._held = data
            self._loop.call_soon(self._send_held)
            return
        self._transport.write(data)

    def _send_held(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def close(self) -> None:
        """Close when all is sent."""
        self._send_held()
        self._transport.close()


class _Flow(FlowControl):
    """Reads no further while requests wait that were read already: else each answer would bring in a thousand more of them."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        """Read on, if nothing waits."""
        if not self._waiting:
            super().resume_reading()


class JsonProtocol(HttpToolsProtocol):
    """One connection."""

    head_seconds = HEAD_SECONDS
    connections_max = 1_000_000
    """More at a time are refused. Each is a file, and without files nothing can be accepted, read or stored."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.parser = _Parser(self)
        self._resuming = False
        self._in_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._refused = False

    @property
    def _busy(self) -> bool:
        """Whether a request is being served."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there; its first request must follow soon."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self.transport = cast(asyncio.Transport, OneSend(transport, self.loop))
        # asyncio does so only for sockets made with an explicit protocol number. Without it the second write of an
        # answer, its body, waits for the client's delayed acknowledgement: 40 ms.
        with suppress(OSError):  # of macOS, where the client is gone already
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self.connections_max:
            self._refuse(503, "too many connections, try again", b"retry-after: 1\r\n")
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, a body, or several of them."""
        if self._refused:
            return
        if not self._busy:
            self._start_head_timer()
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES:
            self._refuse(431, "the request's headers are too large")

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._resuming:
            return
        self._in_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        if not self._resuming:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. Those that follow a chunked body have no use here, and no bound."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A head is complete; its request begins."""
        if self._resuming:
            return
        self._stop_head_timer()
        self._in_head = False
        self._head_bytes = 0
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES:
            self._refuse(431, "the request's headers are too large")
        if not self._refused:
            super().on_headers_complete()
            # ASGI has no way to drop a connection whose client does not take its answer.
            cast(Any, self.scope)["extensions"] = {"cascade.abort": partial(self._abort, self.cycle)}

    def on_body(self, body: bytes) -> None:
        """Part of a body."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of a request."""
        # That of one that offers an upgrade comes too soon, before its body.
        if not self._refused and not self.parser.should_upgrade():
            super().on_message_complete()

    def decline_upgrade(self, rest: bytes) -> None:
        """Go on with a new parser, which is told how long the body is that `rest` begins with."""
        framing = [header for header in self.headers if header[0] in (b"content-length", b"transfer-encoding")]
        self.parser = _Parser(self)
        self._resuming = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(b"%s: %s\r\n" % header for header in framing))
        self._resuming = False
        if rest:
            self.parser.feed_data(rest)

    def send_400_response(self, msg: str) -> None:
        """What came is not HTTP."""
        if self._refused:
            return
        if self._busy and not self.cycle.more_body:
            # The request before it was right and gets its answer, the last one here.
            self._refused = True
            self.cycle.keep_alive = False
            self.flow.pause_reading()
        else:
            self._refuse(400, "not a valid HTTP request")

    def _abort(self, cycle: RequestResponseCycle) -> None:
        # uvicorn would tell it only to the last request that came.
        cycle.disconnected = True
        self.transport.abort()

    def _start_head_timer(self) -> None:
        if not self._head_timer:
            self._head_timer = self.loop.call_later(self.head_seconds, self._head_timed_out)

    def _stop_head_timer(self) -> None:
        if self._head_timer:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_timed_out(self) -> None:
        self._head_timer = None
        if self._head_bytes:
            self._refuse(408, "the request's headers did not arrive")
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str, header: bytes = b"") -> None:
        """Answer in the application's place, unless it has begun to, and close. It learns that the client is gone."""
        self._refused = True
        self._stop_head_timer()
        if not self._busy or not self.cycle.response_started:
            body = error_body(detail)
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in self.server_state.default_headers)
            self.transport.write(
                STATUS_LINE[status] + lines + header + b"content-type: application/json\r\n"
                b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
            )
        self.transport.close()
