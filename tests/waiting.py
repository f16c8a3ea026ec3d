"""Waiting for what happens elsewhere, without sleeping for luck."""

import time
from collections.abc import Callable
from typing import Any


def eventually(condition: Callable[[], Any], what: str, seconds: float = 20) -> Any:
    """The first true value of `condition`, asked until the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what}")
