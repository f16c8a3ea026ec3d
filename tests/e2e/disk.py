"""What a local server has stored, read behind its back."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def _rows(database: Path, select: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as opened:
        return opened.execute(select).fetchall()


def states(data_dir: Path) -> dict[str, str]:
    """The stored state of each sim, which is not always the one that a reader works out."""
    rows = _rows(data_dir / "table.sqlite", "SELECT pk, json_extract(item, '$.state.S') FROM items WHERE sk = 'a#hot'")
    return dict(rows)


def partitions(data_dir: Path) -> set[str]:
    """Every id that items are stored under."""
    return {pk for (pk,) in _rows(data_dir / "table.sqlite", "SELECT DISTINCT pk FROM items")}


def versions(data_dir: Path) -> list[str]:
    """The key of every stored object, once for each of its versions."""
    rows = _rows(data_dir / "bucket.sqlite", "SELECT key, state FROM objects")
    return sorted(key for key, state in rows for _ in json.loads(state)["files"])
