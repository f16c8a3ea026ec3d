"""Waiting for a run to end."""

import shutil
import sys
from collections.abc import Iterator
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from cascade.client import Client
    from chalicelib.models import RunDetail, RunSummary

POLL_S: Final = 2.0
"""Seconds between two looks at a run; one more for each 250 sims, which the server reads one by one."""
CALL_S: Final = 20.0
"""Seconds that one look may take at most, when the waiting has an end."""
LOST_S: Final = 60.0
"""How long a run of which nothing is left but lost sims is waited for: a lost one comes back with its next heartbeat."""


def until_ended(client: "Client", run_id: str, timeout: float | None = None) -> "Iterator[RunDetail]":
    """The run as it is, again and again until no sim is queued or running; a lost one has `LOST_S` to come back.

    A server that is away for a while is waited for, once the first look has succeeded.

    Raises:
        click.ClickException: not ended within `timeout` seconds.
        CascadeError: of the first look; later, whatever will not get better.
    """
    from cascade.client import Unavailable

    begun = monotonic()
    only_lost_since: float | None = None
    run: RunDetail | None = None
    while True:
        if timeout is not None:
            client.hurry(min(begun + timeout - monotonic(), CALL_S))
        try:
            run = client.show_run(run_id)
        except Unavailable as error:
            if run is None:
                raise
            click.echo(f"waiting on: {error}", err=True)
        else:
            yield run
            if run.counts.queued + run.counts.running:
                only_lost_since = None
            elif not run.counts.lost:
                return
            elif only_lost_since is None:
                only_lost_since = monotonic()
            elif monotonic() - only_lost_since >= LOST_S:
                return
        pause = POLL_S + len(run.sims) / 250
        if timeout is not None:
            left = begun + timeout - monotonic()
            if left <= 0:
                raise click.ClickException(f"{run.id} has not ended after {timeout:g} s: {counts_words(run)}")
            pause = min(pause, left)
        sleep(pause)


def counts_words(run: "RunSummary") -> str:
    """`2 running, 1 failed`."""
    return ", ".join(f"{count} {state}" for state, count in run.counts.model_dump().items() if count)


class Progress:
    """One line on standard error that is written over, when that is a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def show(self, line: str) -> None:
        """Show `line` instead of the one before."""
        if self._shown:
            fits = line[: shutil.get_terminal_size().columns - 1]  # a line that wraps can't be written over
            click.echo(f"\r\x1b[2K{fits}", nl=False, err=True)

    def clear(self) -> None:
        """Leave no line."""
        self.show("")
