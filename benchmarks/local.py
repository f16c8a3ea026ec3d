"""The app's storage on the embedded engine, in this process."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cascade.serve.engine import Engine

TOKEN = "bench"


@contextmanager
def engine() -> Iterator[Engine]:
    """An engine on an empty folder, with the app's clients connected to it."""
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "CASCADE_TOKEN": TOKEN,
        "CASCADE_DIRECT_DOWNLOADS": "1",
        "CASCADE_HEARTBEAT_TIMEOUT_S": "3600",
        "POWERTOOLS_METRICS_DISABLED": "true",
        "POWERTOOLS_LOG_LEVEL": "ERROR",
    }
    from chalicelib import blobs, table

    with tempfile.TemporaryDirectory() as folder, Engine(Path(folder)) as running:
        running.connect(table.client())
        running.connect(blobs.client())
        yield running
