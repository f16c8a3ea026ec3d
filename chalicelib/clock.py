"""The server's clock, in one place so that tests can set it."""

import time
from datetime import UTC, datetime


def now_us() -> int:
    """Microseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1000


def rfc3339(us: int) -> str:
    """`us` microseconds since the epoch as RFC 3339 UTC with microseconds and `Z`."""
    seconds, micros = divmod(us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"
