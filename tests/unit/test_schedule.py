"""The schedule of the local server."""

import threading
from typing import Any

import pytest

from cascade.serve import server


def test_a_scheduled_function_is_called_again_after_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    stopped, events = threading.Event(), []

    def function(event: dict[str, Any], context: Any) -> None:
        events.append((event["resources"], context.aws_request_id == event["id"]))
        if len(events) == 3:
            stopped.set()
        raise LookupError("this time")

    server.call_forever("sweep", function, 0.001, stopped)
    assert events == [(["arn:aws:events:us-east-1:000000000000:rule/sweep"], True)] * 3
    assert caplog.text.count("the scheduled function sweep failed") == 3


@pytest.mark.parametrize(("timeout", "interval"), [("60", 15), ("1", 1), ("0.1", 1), ("3600", 60), ("20", 5)])
def test_silence_is_looked_for_as_often_as_it_matters(
    timeout: str, interval: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASCADE_HEARTBEAT_TIMEOUT_S", timeout)
    assert server.sweep_interval() == interval
