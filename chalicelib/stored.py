"""The function that is told of each new object: ends what a client or the upload front door left half done."""

import re
from typing import Any

from chalicelib import files, metrics, names, settings
from chalicelib.log import logger

_KEY = re.compile(r"files/(sim-[0-9a-f]{12})/([^/]+)")


def event_pattern() -> dict[str, Any]:
    """What EventBridge must match: output files that land in this stage's bucket."""
    return {
        "source": ["aws.s3"],
        "detail-type": ["Object Created"],
        "detail": {"bucket": {"name": [settings.bucket_name()]}, "object": {"key": [{"prefix": "files/"}]}},
    }


def handle(detail: Any) -> dict[str, str]:
    """One new object; returns what became of it. Raises Busy for what may work when the event is sent again."""
    key, version = detail["object"]["key"], detail["object"]["version-id"]
    match = _KEY.fullmatch(key)
    if not match or not names.valid_name(match[2]):
        logger().warning("an object that is no file", key=key)
        return {"outcome": "ignored"}
    outcome = files.arrived(match[1], match[2], version)
    if outcome != "kept":
        logger().info("reconciled", sim_id=match[1], file=match[2], outcome=outcome)
        metrics.count("FilesReconciled")
    metrics.flush(force=True)
    return {"outcome": outcome}
