"""A small Chalice app for the server's tests: it stores, echoes, waits and fails as it is asked to."""

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chalice.app import Chalice, Rate, Response

from chalicelib import blobs, table

app = Chalice(app_name="stub")
MARKS = Path(os.environ.get("STUB_MARKS", "/nonexistent"))


def _json(status: int, value: Any) -> Response:
    return Response(value, {"Content-Type": "application/json"}, status)


def _authorized() -> bool:
    return app.current_request.headers.get("authorization") == f"Bearer {os.environ['CASCADE_TOKEN']}"


@app.route("/api/sims/{sim_id}/files/{name}", methods=["GET", "PUT"], content_types=[])
def file(sim_id: str, name: str) -> Any:
    if not _authorized():
        return _json(401, {"detail": "no"})
    if app.current_request.method == "GET":
        item = table.get(f"{sim_id}/{name}", "file")
        return Response(
            blobs.get(f"files/{sim_id}/{name}", item["version"]), {"Content-Type": "application/octet-stream"}
        )
    body = app.current_request.raw_body
    if len(body) > 64 * 1024 * 1024:
        return _json(413, {"detail": "too large"})
    version = blobs.put(f"files/{sim_id}/{name}", body)
    table.put({"pk": f"{sim_id}/{name}", "sk": "file", "version": version})
    return _json(200, {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()})


@app.route("/api/slow", methods=["GET"])
def slow() -> Any:
    (MARKS / "begun").touch()
    deadline = time.monotonic() + 20
    while not (MARKS / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return _json(200, {"done": True})


@app.route("/api/settings", methods=["GET"])
def settings() -> Any:
    names = (
        "CASCADE_TABLE",
        "CASCADE_BUCKET",
        "AWS_REGION",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
        "CASCADE_DIRECT_DOWNLOADS",
    )
    return _json(200, {name: os.environ.get(name) for name in names})


_called = threading.Lock()


@app.schedule(Rate(1, unit=Rate.MINUTES), name="sweep")
def sweep_function(event: Any) -> None:
    with _called:
        marks = sorted(MARKS.glob("swept-*"))
        (MARKS / f"swept-{len(marks)}").write_text(f"{event.source} {event.resources[0]}")
    raise RuntimeError("a sweep that fails does not end the schedule")


def _parts() -> Iterator[bytes]:
    yield b"one "
    yield b"two"


@app.route("/api/stream", methods=["GET"])
def stream() -> Any:
    answer = Response("", {"Content-Type": "text/plain"})
    answer.to_dict = lambda binary_types=None: {  # type: ignore[method-assign]
        "statusCode": 200,
        "headers": {"Content-Type": "text/plain"},
        "body": _parts(),
    }
    return answer
