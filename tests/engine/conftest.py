"""Fixtures of the engine's tests: an engine on a folder of the test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cascade.serve.engine import Engine


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def engine(data_dir: Path) -> Iterator[Engine]:
    with Engine(data_dir) as running:
        yield running
