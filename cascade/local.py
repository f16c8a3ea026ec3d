"""Where commands find the server on this machine, and its token."""

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit


def default_url() -> str:
    """`$CASCADE_URL`, else the local server at `$PORT` (8000)."""
    return os.environ.get("CASCADE_URL") or f"http://127.0.0.1:{os.environ.get('PORT') or '8000'}"


def token_file() -> Path:
    """Where the local server keeps the token it made: in `$CASCADE_DATA_DIR`, else in ./.cascade."""
    return Path(os.environ.get("CASCADE_DATA_DIR") or ".cascade") / "token"


def local_token(url: str) -> str | None:
    """The token in the local server's data folder, for a server on this machine alone; None when there is none.

    A token that was made here is no other machine's business, so a URL that leaves this machine gets none.
    """
    if not is_loopback(url):
        return None
    try:
        return token_file().read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def default_token(url: str) -> str | None:
    """`$CASCADE_TOKEN`, else the local server's for a URL of this machine."""
    return os.environ.get("CASCADE_TOKEN") or local_token(url)


def is_loopback(url: str) -> bool:
    """Whether a URL is of this machine: its token goes there, and nowhere by way of a proxy."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, or no URL at all
        return False
