"""Counts go out summed, and nothing piles up."""

import json

import pytest

from chalicelib import metrics


@pytest.fixture(autouse=True)
def _nothing_counted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics.flush(force=True)
    monkeypatch.setattr(metrics, "_flushed_at", metrics._flushed_at)


def test_a_flush_writes_one_line_with_sums(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_DISABLED", "false")
    metrics.count("Chunks")
    metrics.count("Chunks", 2)
    metrics.count("LogBytes", 10)
    metrics.flush()
    assert capsys.readouterr().out == ""  # not yet time
    metrics.flush(force=True)
    (line,) = capsys.readouterr().out.splitlines()
    written = json.loads(line)
    assert (written["Chunks"], written["LogBytes"]) == ([3.0], [10.0])
    metrics.flush(force=True)
    assert capsys.readouterr().out == ""


def test_disabled_metrics_neither_write_nor_pile_up(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(250):
        metrics.count("Sweeps")
        metrics.flush(force=True)
    assert capsys.readouterr().out == ""
