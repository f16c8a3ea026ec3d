"""What the commands that call the server have in common."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., None])

STATES = ("queued", "running", "succeeded", "failed", "cancelled", "lost")


def connected(command: F) -> F:
    """Give a command a client as its first argument, `--url` and `--token`, and errors in one line."""

    @click.option("--url", help="The server. Default: $CASCADE_URL, else the one on this machine.")
    @click.option("--token", help="Bearer token. Default: $CASCADE_TOKEN, else that of the server on this machine.")
    @functools.wraps(command)
    def wrapped(*args: Any, url: str | None, token: str | None, **named: Any) -> None:
        from cascade.client import CascadeError, Client

        try:
            with Client(url, token, give_up_after=20.0) as client:
                command(client, *args, **named)
        except CascadeError as error:
            raise click.ClickException(str(error)) from None

    return wrapped  # type: ignore[return-value]


as_json = click.option("--json", "as_json", is_flag=True, help="JSON as the API gives it, for scripts.")
