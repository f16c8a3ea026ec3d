"""Counts the requests that the app sends to AWS."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chalicelib import blobs, table


@contextmanager
def requests() -> Iterator[Counter[str]]:
    """Requests to DynamoDB and S3 inside the block, by operation."""
    seen: Counter[str] = Counter()

    def note(model: Any, **_: Any) -> None:
        seen[model.name] += 1

    clients = (table.client(), blobs.client())
    for client in clients:
        client.meta.events.register("before-call", note)
    try:
        yield seen
    finally:
        for client in clients:
            client.meta.events.unregister("before-call", note)
