"""What runs on a user's machine: the `cascade` command, the client, the worker, the local server, step timing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cascade.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    # Late: the client's packages take a quarter of a second to import, and `cascade --help` needs none of them.
    if name == "Client":
        from cascade.client import Client

        return Client
    raise AttributeError(f"module 'cascade' has no attribute {name!r}")
