"""Faults of AWS at a chosen call of an endpoint: the process dies there, or that one call is throttled."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal
from unittest.mock import patch

from botocore.client import BaseClient
from botocore.exceptions import ClientError

from tests.model.faults import Died, dies_at

__all__ = ["WHENS", "Died", "Reached", "When", "at"]

When = Literal["before", "after", "throttled"]
WHENS: tuple[When, ...] = ("before", "after", "throttled")


class Reached:
    """Whether the call that the fault waits for was made."""

    def __init__(self) -> None:
        self.calls = 0

    def __bool__(self) -> bool:
        return self.calls > 0


@contextmanager
def at(n: int, when: When) -> Iterator[Reached]:
    """Let the `n`-th AWS call inside the block, from 1, fail; yields what tells whether there was such a call.

    `before` and `after` kill the process before or after that call takes effect: `Died` leaves the block's calls, is
    caught here, and nothing later reaches AWS. `throttled` refuses that one call as AWS does after the SDK's retries.
    """
    reached = Reached()
    if when != "throttled":
        with dies_at(n, when):
            try:
                yield reached
            except Died:
                reached.calls += 1
        return
    made, send = 0, BaseClient._make_api_call  # type: ignore[attr-defined]

    def counted(self: Any, operation: str, arguments: Any) -> Any:
        nonlocal made
        made += 1
        if made != n:
            return send(self, operation, arguments)
        reached.calls += 1
        s3 = self.meta.service_model.service_name == "s3"
        code, status = ("SlowDown", 503) if s3 else ("ThrottlingException", 400)
        answer: Any = {"Error": {"Code": code, "Message": "slow down"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise ClientError(answer, operation)

    with patch.object(BaseClient, "_make_api_call", counted):
        yield reached
