"""Bytes of the log as chunks of lines.

A line ends with a line feed, a carriage return, or both: each state of a progress bar is a line. Where a chunk ends
depends on when it is cut, what a line is does not, so a log read back is the same however it was sent.
"""

from typing import Final

CHUNK_BYTES: Final = 1024 * 1024
"""Bytes of log in a chunk at most. As JSON that is 6 MB in the worst case, all control characters; the gateway's limit is
10 MB, and a server that takes less says so (413) and gets smaller chunks."""
CHUNK_LINES: Final = 10_000
LOOKAHEAD: Final = 2
"""Bytes a caller should show `cut` beyond the limit, so that a line of just that size keeps its end."""


def cut(data: bytes, whole: bool, limit: int = CHUNK_BYTES) -> int:
    """How many of `data`'s first bytes make the next chunk; 0 when its line has not ended yet.

    Args:
        data: The log from where the last chunk ended: `limit + LOOKAHEAD` bytes, or fewer when there are no more.
        whole: Nothing will follow `data`'s last byte.
    """
    # A carriage return at the very end may be half of a line end.
    known = len(data) if whole and len(data) <= limit + LOOKAHEAD - 1 else len(data) - data.endswith(b"\r")
    end = max(data.rfind(b"\n", 0, known), data.rfind(b"\r", 0, known)) + 1
    if end:
        return _line_limit(data, end)
    if len(data) < limit + LOOKAHEAD:
        return len(data) if whole else 0
    # One line, longer than a chunk: in pieces, and not inside a character.
    end = limit
    while end > limit - 3 and 0x80 <= data[end] < 0xC0:
        end -= 1
    return end


def _line_limit(data: bytes, end: int) -> int:
    if data.count(b"\n", 0, end) <= CHUNK_LINES:
        return end
    at = 0
    for _ in range(CHUNK_LINES):
        at = data.index(b"\n", at) + 1
    return at


def split(data: bytes) -> list[str]:
    """The lines of a chunk, without their ends. What is not UTF-8 becomes U+FFFD."""
    text = data.decode("utf-8", "replace")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines
