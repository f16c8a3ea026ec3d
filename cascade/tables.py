"""What commands print: a table on a terminal, tab-separated lines in a pipe, CSV and JSON for scripts."""

import csv
import itertools
import json
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.table import Table

LEAST: Final = 8
"""Characters of a column that gives way; where not even these are left, the table is wider than the terminal."""

GAP: Final = 2
"""Blanks between two columns."""

Rows = Iterable[Sequence[object]]


def clean(text: object) -> str:
    """Text of others, which must not move the cursor or colour this terminal."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", "" if text is None else str(text))


def on_terminal() -> bool:
    """Whether a person reads standard output."""
    return sys.stdout.isatty()


def show_json(value: Any) -> None:
    """A model, a list of models or plain data as JSON."""
    from pydantic import TypeAdapter

    click.echo(json.dumps(TypeAdapter(Any).dump_python(value), ensure_ascii=False, indent=2))


def show_csv(header: Sequence[str], rows: Rows) -> None:
    """CSV with a header row. Values are as they are, but on a terminal, which they must not control."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([clean(cell) for cell in row] if on_terminal() else row)


def show_table(header: Sequence[str], rows: Rows, fold: Collection[str] = (), cut: Collection[str] = ()) -> None:
    """A table on a terminal, tab-separated lines for whatever reads a pipe.

    Args:
        header: Column names; no line of them is printed when all are blank.
        fold: Columns that become lines in a cell where the terminal is narrow.
        cut: Columns that are cut there, at a mark. All others are always whole: an id that is cut is of no use.
    """
    if not on_terminal():
        for row in itertools.chain([header] if "".join(header).strip() else [], rows):
            click.echo("\t".join(clean(cell) for cell in row))
        return
    from rich.console import Console

    console = Console()
    table, width = terminal_table(header, rows, console.width, fold, cut)
    console.width = max(console.width, width)
    console.print(table)


def show_fields(rows: Rows) -> None:
    """Names and values below each other, without a header."""
    show_table(("", " "), rows, fold=(" ",))


def terminal_table(
    header: Sequence[str], rows: Rows, room: int, fold: Collection[str] = (), cut: Collection[str] = ()
) -> "tuple[Table, int]":
    """The table for a terminal of `room` columns, and how many it takes. Columns that are empty are left out."""
    from rich.table import Table
    from rich.text import Text

    cells = [[clean(cell) for cell in row] for row in rows]
    kept = [n for n in range(len(header)) if not cells or any(row[n] for row in cells)]
    natural = [max(len(header[n]), *(Text(row[n]).cell_len for row in cells), 1) for n in kept]
    elastic = [header[n] in fold or header[n] in cut for n in kept]
    widths = _widths(natural, elastic, room)
    table = Table(
        box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold", show_header=bool("".join(header).strip())
    )
    for n, width in zip(kept, widths, strict=True):
        table.add_column(
            header[n], width=width, no_wrap=header[n] not in fold, overflow="ellipsis" if header[n] in cut else "fold"
        )
    for row in cells:
        table.add_row(*(Text(row[n]) for n in kept))
    return table, sum(widths) + GAP * (len(widths) - 1)


def _widths(natural: Sequence[int], elastic: Sequence[bool], room: int) -> list[int]:
    """Width of each column: as wide as it is, but the elastic ones share what the others leave, the narrow ones first."""
    left = room - GAP * (len(natural) - 1) - sum(n for n, gives in zip(natural, elastic, strict=True) if not gives)
    widths = list(natural)
    sharing = sorted((n for n in range(len(natural)) if elastic[n]), key=natural.__getitem__)
    for place, n in enumerate(sharing):
        widths[n] = min(natural[n], max(left // (len(sharing) - place), LEAST))
        left -= widths[n]
    return widths
