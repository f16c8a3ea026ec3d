"""Requests and answers as CloudFront hands them to a function and takes them back."""

import json
import os
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from chalicelib.errors import Busy, CascadeError

Event = dict[str, Any]
"""What a function gets; documented under "Lambda@Edge event structure"."""

PATH = re.compile(r"/api/sims/([^/]+)/files/([^/]+)")
METHODS = ("GET", "PUT")
CONFIG_FILE = Path(__file__).with_name("config.json")
"""Functions at the edge have no environment variables of their own: settings are packed with the code."""

SAFE_HEADERS = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def configure() -> None:
    """Take the packed settings for the environment that the domain code reads."""
    if CONFIG_FILE.exists():
        os.environ.update(json.loads(CONFIG_FILE.read_text(encoding="utf-8")))


def request_of(event: Event) -> dict[str, Any]:
    """The request of any event."""
    request: dict[str, Any] = event["Records"][0]["cf"]["request"]
    return request


def header(request: Mapping[str, Any], name: str) -> str | None:
    """A header of a request, its last value; None when there is none."""
    values = request["headers"].get(name.lower())
    return str(values[-1]["value"]) if values else None


def headers(values: Mapping[str, str]) -> dict[str, list[dict[str, str]]]:
    """Headers in CloudFront's shape."""
    return {name.lower(): [{"key": name, "value": value}] for name, value in values.items()}


def target(request: Mapping[str, Any]) -> tuple[str, str] | None:
    """Sim id and file name of an upload's path, percent-decoded once; None when it is no such path."""
    match = PATH.fullmatch(request["uri"])
    return (unquote(match[1], errors="replace"), unquote(match[2], errors="replace")) if match else None


def answer(status: int, value: Any, more: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A JSON answer that CloudFront sends to the client."""
    return {
        "status": str(status),
        "statusDescription": HTTPStatus(status).phrase,
        "headers": headers({**SAFE_HEADERS, **(more or {})}),
        "body": json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        "bodyEncoding": "text",
    }


def refusal(error: CascadeError) -> dict[str, Any]:
    """The answer for an error of the domain's."""
    more = {"Retry-After": str(error.retry_after)} if isinstance(error, Busy) else None
    return answer(error.status, {"detail": error.detail}, more)
