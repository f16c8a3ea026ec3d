"""What the server's connections put on the wire."""

import asyncio
from typing import Any

import pytest

from cascade.serve.protocol import SMALL_BYTES, OneSend


class Wire:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True


def sent(*calls: Any) -> tuple[list[bytes], list[bytes]]:
    """What was sent when the calls returned, and a turn of the loop later."""

    async def turns() -> tuple[list[bytes], list[bytes]]:
        transport: Any = OneSend(wire, asyncio.get_running_loop())  # type: ignore[arg-type]
        for call in calls:
            call(transport)
        at_once = list(wire.sent)
        await asyncio.sleep(0)
        return at_once, wire.sent

    wire = Wire()
    return asyncio.run(turns())


def write(data: bytes) -> Any:
    return lambda transport: transport.write(data)


def test_head_and_body_are_sent_at_once_and_as_one() -> None:
    assert sent(write(b"head"), write(b"body")) == ([b"headbody"], [b"headbody"])


def test_a_head_alone_waits_for_no_body() -> None:
    assert sent(write(b"head")) == ([], [b"head"])


def test_closing_sends_what_is_held_first() -> None:
    assert sent(write(b"head"), lambda transport: transport.close()) == ([b"head"], [b"head"])


@pytest.mark.parametrize("size", [SMALL_BYTES, SMALL_BYTES + 1])
def test_what_is_large_is_not_copied_into_one(size: int) -> None:
    body = bytes(size)
    small = size <= SMALL_BYTES
    assert sent(write(b"head"), write(body)) == ([b"head" + body],) * 2 if small else ([b"head", body],) * 2
    assert sent(write(body)) == (([] if small else [body]), [body])


def test_nothing_is_sent_twice_or_in_another_order() -> None:
    pieces = [b"a", b"b", b"c", bytes(SMALL_BYTES + 1), b"d"]
    assert b"".join(sent(*map(write, pieces))[1]) == b"".join(pieces)
