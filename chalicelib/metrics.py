"""Counts of what happened, as CloudWatch metrics in embedded metric format.

A line a heartbeat would cost more than the heartbeat, so counts are summed in the process and written at most every
ten seconds. A container that is taken away unflushed loses at most that from a graph, never from the data.
"""

import os
import threading
import time
from collections import Counter

FLUSH_SECONDS = 10.0

_lock = threading.Lock()
_counts: Counter[str] = Counter()
_flushed_at = time.monotonic()


def count(name: str, value: int = 1) -> None:
    """Add to the metric `name`."""
    with _lock:
        _counts[name] += value


def flush(force: bool = False) -> None:
    """Write what was counted, if it is time. Called at the end of each request and of each sweep."""
    global _flushed_at
    now = time.monotonic()
    if not force and now - _flushed_at < FLUSH_SECONDS:
        return
    with _lock:
        taken = dict(_counts)
        _counts.clear()
        _flushed_at = now
        if not taken:
            return
        # Imported when there is something to write: it is a seventh of a cold start.
        from aws_lambda_powertools import Metrics
        from aws_lambda_powertools.metrics import MetricUnit

        metrics = Metrics(namespace="Cascade", service=os.environ.get("POWERTOOLS_SERVICE_NAME", "cascade"))
        for name, value in taken.items():
            unit = MetricUnit.Bytes if name.endswith("Bytes") else MetricUnit.Count
            metrics.add_metric(name=name, unit=unit, value=value)
        metrics.flush_metrics()
        # With metrics disabled nothing is written, and nothing may pile up either.
        metrics.clear_metrics()
