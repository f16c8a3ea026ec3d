"""Faults of AWS at a chosen call of an endpoint: the process dies there, or that one call fails, or is sent twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args
from unittest.mock import patch

from botocore.client import BaseClient
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from tests.model.faults import Died, dies_at

__all__ = ["WHENS", "WITHOUT_EFFECT", "Died", "Reached", "When", "at"]

When = Literal["before", "after", "throttled", "refused", "timed out", "unanswered", "sent twice"]
WHENS: tuple[When, ...] = get_args(When)
WITHOUT_EFFECT: tuple[When, ...] = ("throttled", "refused", "timed out")
"""The process lives, and that one call did nothing."""


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
    caught here, and nothing later reaches AWS. The others happen to a process that lives on, to that one call: it is
    `throttled` as AWS does after the SDK's retries, the connection is `refused`, or it `timed out` before it had an
    effect; it had one and is `unanswered`; the SDK lost the answer and the call is `sent twice`, so that a conditional
    write meets its own first try.
    """
    reached = Reached()
    if when in ("before", "after"):
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
        if when == "throttled":
            raise _throttled(self.meta.service_model.service_name, operation)
        if when == "refused":
            raise EndpointConnectionError(endpoint_url="https://aws")
        if when in ("unanswered", "sent twice"):
            send(self, operation, dict(arguments))  # a copy, for botocore replaces a body by a stream, and reads it
        if when == "sent twice":
            return send(self, operation, arguments)
        raise ReadTimeoutError(endpoint_url="https://aws")

    with patch.object(BaseClient, "_make_api_call", counted):
        yield reached


def _throttled(service: str, operation: str) -> ClientError:
    code, status = ("SlowDown", 503) if service == "s3" else ("ThrottlingException", 400)
    answer: Any = {"Error": {"Code": code, "Message": "slow down"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, operation)
