"""The page at `/`: static files beside this module, each served under a path that holds the digest of them all."""

import functools
import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from chalicelib import blobs, settings
from chalicelib.errors import NotFound
from chalicelib.http import Response

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOREVER = "public, max-age=31536000, immutable"
COMPRESSED_FROM = 1024
"""Smaller files are sent as they are."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}


@functools.cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES}


@functools.cache
def version() -> str:
    """Digest of all files: 12 hex digits, another one as soon as any file differs."""
    made = hashlib.sha256()
    for name, data in _files().items():
        made.update(f"{name}\0{len(data)}\0".encode() + data)
    return made.hexdigest()[:12]


@functools.cache
def _compressed(name: str) -> bytes:
    return gzip.compress(_files()[name], mtime=0)


def _policy() -> str:
    """Content-Security-Policy of the page: its own files, this API, and the bucket that large answers redirect to."""
    connect = "'self'"
    if not settings.direct_downloads():
        bucket = urlsplit(blobs.presigned("exports/-", "-", "-", "text/plain"))
        connect += f" {bucket.scheme}://{bucket.netloc}"
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src {connect}; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _send(name: str, body: bytes, headers: Mapping[str, str], accepted: str) -> Response:
    sent = {"Content-Type": TYPES[Path(name).suffix], **_HEADERS, **headers}
    if not settings.direct_downloads():
        # API Gateway compresses by itself, and would take bytes for text.
        return Response(body.decode(), sent, 200)
    if "gzip" in accepted and len(body) >= COMPRESSED_FROM:
        return Response(_compressed(name), {**sent, "Content-Encoding": "gzip"}, 200)
    return Response(body, sent, 200)


def index(headers: Mapping[str, str]) -> Response:
    """The page itself. It is asked for anew each time and answered by 304 while nothing has changed."""
    policy = _policy()
    etag = f'"{version()}-{hashlib.sha256(policy.encode()).hexdigest()[:12]}"'
    own = {
        "Cache-Control": "no-cache",
        "ETag": etag,
        "Content-Security-Policy": policy,
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    }
    if etag in (headers.get("if-none-match") or ""):
        return Response("", {**_HEADERS, **own}, 304)
    body = _files()["index.html"].replace(b"{version}", version().encode())
    return _send("index.html", body, own, "")


def static(asked: str, name: str, headers: Mapping[str, str]) -> Response:
    """A file by its name. Raises NotFound.

    Args:
        asked: The version in the path. One that is not the current one is of a page loaded before an upgrade: it gets
            the current file, to be asked for again.
    """
    if name not in _files() or name == "index.html":
        raise NotFound("not found")
    cache = FOREVER if asked == version() else "no-cache"
    return _send(name, _files()[name], {"Cache-Control": cache}, headers.get("accept-encoding") or "")
