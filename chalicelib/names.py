"""What files may be called, and where and as what their bytes are kept. Pure: the upload front door needs it too."""

import re

from chalicelib.errors import NotFound, Unprocessable

NAME_PATTERN = r"^(?!\.\.?$)[A-Za-z0-9._-]{1,128}$"
_NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,128}")
_SIM_ID = re.compile(r"sim-[0-9a-f]{12}")

CONTENT_TYPES = {
    "bin": "application/octet-stream",
    "bz2": "application/x-bzip2",
    "csv": "text/csv",
    "gif": "image/gif",
    "gz": "application/gzip",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "log": "text/plain",
    "md": "text/markdown",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "png": "image/png",
    "sqlite": "application/vnd.sqlite3",
    "svg": "image/svg+xml",
    "tar": "application/x-tar",
    "toml": "application/toml",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "xml": "application/xml",
    "xz": "application/x-xz",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
    "zst": "application/zstd",
}
"""By the last extension, lower-cased; a table of our own, since a machine's differs from the next one's."""


def content_type(name: str) -> str:
    """Content type for a file name."""
    return CONTENT_TYPES.get(name.rpartition(".")[2].lower() if "." in name else "", "application/octet-stream")


def valid_name(name: str) -> bool:
    """Whether the whole of `name` is a file name: letters, digits, `.`, `_`, `-`, 1 to 128 of them, not `.` or `..`."""
    return _NAME.fullmatch(name) is not None


def checked_name(name: str) -> str:
    """`name`, if it is a file name. Raises Unprocessable."""
    if not valid_name(name):
        shown = name if len(name) <= 140 else name[:140] + "…"
        raise Unprocessable(f"file name {shown!r} must match {NAME_PATTERN}")
    return name


def not_found(sim_id: str) -> NotFound:
    """The error for a sim id that nothing has."""
    return NotFound(f"sim {sim_id[:100]} not found")


def check_id(sim_id: str) -> str:
    """The sim id, if it can be one at all: anything else never reaches a key. Raises NotFound."""
    if not _SIM_ID.fullmatch(sim_id):
        raise not_found(sim_id)
    return sim_id


def object_key(sim_id: str, name: str) -> str:
    """Where a file's bytes are."""
    return f"files/{sim_id}/{name}"
