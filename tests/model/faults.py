"""A process that dies at a call to AWS: from then on it sends nothing, and nobody hears from it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal
from unittest.mock import patch

from botocore.client import BaseClient

When = Literal["before", "after"]


class Died(BaseException):
    """Not an Exception: nothing in the service may catch it and go on."""


@contextmanager
def dies_at(call: int, when: When) -> Iterator[None]:
    """The process dies at its `call`-th call, from 1, `before` or `after` the call takes effect."""
    made, send = 0, BaseClient._make_api_call  # type: ignore[attr-defined]

    def counted(self: Any, operation: str, arguments: Any) -> Any:
        nonlocal made
        made += 1
        if made < call:
            return send(self, operation, arguments)
        if made == call and when == "after":
            send(self, operation, arguments)
        raise Died

    with patch.object(BaseClient, "_make_api_call", counted):
        yield
