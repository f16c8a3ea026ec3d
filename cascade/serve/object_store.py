"""S3 for one machine: ministack's buckets in memory, bytes in files of their own, what is known of them in SQLite.

ministack's own persistence writes an object's bytes and its metadata to two files in place, one after the other: a process
killed between the two leaves the earlier, acknowledged version with the bytes of the later one, and a write that fails is
logged and answered 200. It also keeps the bytes of every version in memory. Here the bytes of a version are a file that is
written once, under a name nobody used before, and the SQLite row that names it is the commit.
"""

import json
import logging
import os
import sqlite3
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ministack.core.persistence import _json_default, _json_object_hook
from ministack.core.responses import request_scope
from ministack.services import s3

from cascade.serve.durable import ACCOUNT, Answer, Database, Guard, drive, open_database, write
from cascade.serve.published import Published

logger = logging.getLogger(__name__)

Name = tuple[str, str]
"""Bucket and key."""
State = dict[str, Any]
"""What is stored of a key: `files` (file name by version id), `current`, `versions`, `subresources`."""

NULL = "null"
"""S3's version id of an object that has none."""
SUBRESOURCES = ("_object_tags", "_object_acl", "_object_annotations", "_object_retention", "_object_legal_hold")
"""ministack's stores of what belongs to one version."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
  bucket TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (bucket, key)
) WITHOUT ROWID
"""


class ObjectStore:
    """The objects of the kept buckets. `handle` answers an S3 request; what it wrote is on disk when it returns.

    Args:
        path: the database.
        blobs: folder of the files that hold the bytes.
        published: where current objects appear under their own names.
    """

    def __init__(self, path: Path, blobs: Path, published: Published) -> None:
        self.path = path
        self.blobs = blobs
        self.published = published
        self.guard = Guard(self._commit, self._rollback)
        self._kept: set[str] = set()
        self._files: dict[Name, dict[str, str]] = {}
        self._changed: dict[Name, None] = {}
        self._new_files: list[Path] = []
        self._unpublished: set[Name] = set()
        # Keys whose state in memory could not be put back after a failure.
        self._unknown: set[Name] = set()
        self._database: Database | None = None
        self._hooks = {
            "_persist_object": lambda bucket, key, obj: self._note(bucket, key),
            "_persist_delete_marker": lambda bucket, key, marker: self._note(bucket, key),
            "_persist_version_state": lambda bucket, key, record: self._note(bucket, key),
            "_persist_displaced_version": lambda bucket, key, prior, versioning: self._note(bucket, key),
            "_delete_version_file": lambda bucket, key, version: self._note(bucket, key),
            "_delete_persisted_object": lambda bucket, key: self._note(bucket, key),
            "_read_body": lambda bucket, key, obj: self._body((bucket, key), obj, "body", _version(obj)),
            "_version_body": lambda record, bucket, key, entry: self._body(
                (bucket, key), entry, "data", entry["version_id"]
            ),
            "S3_PERSIST": True,
            "DATA_DIR": str(blobs),  # ministack makes a folder a bucket here
        }
        self._own = {name: getattr(s3, name) for name in (*self._hooks, "handle_request")}

    def open(self) -> None:
        """Open the database and take over ministack's persistence."""
        self.blobs.mkdir(mode=0o700, exist_ok=True)
        self._database = open_database(self.path, SCHEMA)
        for name, hook in self._hooks.items():
            setattr(s3, name, hook)

    def close(self) -> None:
        """Give ministack back its own functions, without any buckets, and close the database."""
        with self.guard:
            s3.reset()
            for name, own in self._own.items():
                setattr(s3, name, own)
            self._kept.clear()
            if self._database:
                self._database.close()
                self._database = None

    def load(self, bucket: str) -> int:
        """Bring back the objects of a bucket that was just made, and keep it from now on. Returns how many keys it has."""
        with self.guard:
            rows = self._open_database().execute("SELECT key, state FROM objects WHERE bucket = ?", (bucket,))
            count = 0
            for key, state in rows:
                self._restore((bucket, key), _decode(state))
                count += 1
            self._kept.add(bucket)
            self._remove_orphans(bucket)
            objects = s3._buckets._data[ACCOUNT, bucket]["objects"]
            self.published.match({key: self._current_file((bucket, key)) for key in objects})
        return count

    def _remove_orphans(self, bucket: str) -> None:
        """Files of puts and deletes that a killed process did not finish."""
        named = {file for (owner, _), files in self._files.items() if owner == bucket for file in files.values()}
        for folder in os.scandir(self.blobs / ACCOUNT / bucket):
            for entry in os.scandir(folder):
                if entry.name not in named:
                    os.unlink(entry)

    # Requests.

    def handle(
        self, method: str, path: str, headers: dict[str, str], body: bytes, query: Mapping[str, list[str]], region: str
    ) -> Answer:
        """Answer one request. Raises whatever ministack or the disk raised; then nothing has changed."""
        with request_scope(ACCOUNT, region):
            answer = self.answer(method, path, headers, body, query)
            if method == "HEAD":
                answer = s3.format_head_response(path, headers, answer)
        return answer

    def answer(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        query: Mapping[str, list[str]],
        *more: Any,
        **named: Any,
    ) -> Answer:
        """ministack's own handler, made durable, for a request whose account and region are set."""
        upload_id = (query.get("uploadId") or [""])[0]
        upload = s3._multipart_uploads.get(upload_id)
        try:
            with self.guard:
                self._open_database()
                self._catch_up(writing=method not in ("GET", "HEAD"))
                answer: Answer = drive(self._own["handle_request"](method, path, headers, body, query, *more, **named))
                if method not in ("GET", "HEAD") and answer[0] < 300:
                    self._note(*path.lstrip("/").partition("/")[::2])
        except BaseException:
            if upload is not None:
                # The SDK sends the completion again: it must not find it done, nor its parts gone.
                s3._completed_multipart_uploads.pop(upload_id, None)
                s3._multipart_uploads[upload_id] = upload
            raise
        return answer

    def _catch_up(self, *, writing: bool) -> None:
        """Do what an earlier request could not; until that works nothing is answered that depends on it."""
        for name in list(self._unknown):
            self._restore(name, self._stored(name))
            self._unknown.discard(name)
        if writing:
            self._publish()

    def _note(self, bucket: str, key: str) -> None:
        if key and bucket in self._kept:
            with self.guard:
                self._changed[bucket, key] = None

    # Bytes.

    def _path(self, bucket: str, file: str) -> Path:
        return self.blobs / ACCOUNT / bucket / file[:2] / file

    def _current_file(self, name: Name) -> Path | None:
        current = _current(name)
        return None if current is None else self._path(name[0], self._files[name][_version(current)])

    def _body(self, name: Name, record: dict[str, Any], field: str, version: str) -> bytes:
        body: bytes | None = record.get(field)
        if body is not None:
            return body
        path = self._path(name[0], self._files[name][version])
        body = path.read_bytes()
        if len(body) != record["size"]:
            raise OSError(f"{path} has {len(body)} bytes, not the {record['size']} that were stored")
        return body

    def _write_file(self, bucket: str, body: bytes | None) -> str:
        if body is None:
            raise OSError("the bytes of a version are neither in memory nor on disk")
        file = uuid.uuid4().hex
        path = self._path(bucket, file)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._new_files.append(path)
        # Read only: the published name is the same file, and an editor must not write into a stored version.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
        with open(descriptor, "wb", buffering=0) as out:
            rest = memoryview(body)
            while rest:
                rest = rest[out.write(rest) :]
        return file

    # The commit.

    def _open_database(self) -> Database:
        if not self._database:
            raise RuntimeError("the engine is closed")
        return self._database

    def _commit(self) -> None:
        if not self._changed:
            return
        states = {name: self._state(name) for name in self._changed}
        write(self._open_database(), [_statement(name, state) for name, state in states.items()])
        self._changed.clear()
        self._new_files.clear()
        self._unpublished.update(states)
        replaced = [path for name, state in states.items() for path in self._adopt(name, state)]
        self._publish()
        for path in replaced:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                # Nothing names it any more; the next start removes it.
                logger.warning("could not remove bytes that are no longer needed: %s", error)

    def _state(self, name: Name) -> State | None:
        """What is to be stored of a key. The bytes of its new versions are written on the way."""
        current, versions = _current(name), _versions(name)
        if current is None and not versions:
            return None
        known = self._files.get(name, {})
        files = {
            # The bytes of a version never change, but for those of the version without an id.
            version: known[version]
            if version in known and (version != NULL or body is None)
            else self._write_file(name[0], body)
            for version, body in _bodies(current, versions).items()
        }
        return {
            "files": files,
            "current": current and {k: v for k, v in current.items() if k != "body"},
            "versions": [{k: v for k, v in entry.items() if k != "data"} for entry in versions],
            "subresources": {store: found for store in SUBRESOURCES if (found := _subresource(store, name, files))},
        }

    def _adopt(self, name: Name, state: State | None) -> list[Path]:
        """Go over to what is on disk now: the bytes leave the memory. Returns the files that nothing names any more."""
        current = _current(name)
        if current is not None:
            current["body"] = None
        for entry in _versions(name):
            entry["data"] = None
        before = self._files.pop(name, {})
        files = state["files"] if state else {}
        if files:
            self._files[name] = files
        return [self._path(name[0], file) for version, file in before.items() if files.get(version) != file]

    def _publish(self) -> None:
        for name in list(self._unpublished):
            self.published.set(name[1], self._current_file(name))
            self._unpublished.discard(name)

    # And its undoing.

    def _rollback(self) -> None:
        for path in self._new_files:
            path.unlink(missing_ok=True)
        self._new_files.clear()
        self._unknown.update(self._changed)
        self._changed.clear()
        try:
            self._catch_up(writing=False)
        except sqlite3.Error:
            logger.exception("could not read back what is stored; S3 requests are refused until that works")

    def _stored(self, name: Name) -> State | None:
        row = self._open_database().execute("SELECT state FROM objects WHERE bucket = ? AND key = ?", name).fetchone()
        return _decode(row[0]) if row else None

    def _restore(self, name: Name, state: State | None) -> None:
        """Make ministack's memory of a key what is stored of it."""
        bucket, key = name
        objects = s3._buckets._data[ACCOUNT, bucket]["objects"]
        versions = s3._object_versions._data
        for version in {NULL, *self._files.pop(name, {}), *(entry["version_id"] for entry in _versions(name))}:
            for store in SUBRESOURCES:
                getattr(s3, store)._data.pop(_subresource_key(name, version), None)
        objects.pop(key, None)
        versions.pop((ACCOUNT, name), None)
        if state is None:
            return
        self._files[name] = state["files"]
        if state["current"]:
            objects[key] = {**state["current"], "body": None}
        if state["versions"]:
            versions[ACCOUNT, name] = [
                entry if entry.get("is_delete_marker") else {**entry, "data": None} for entry in state["versions"]
            ]
        for store, found in state["subresources"].items():
            for version, value in found.items():
                getattr(s3, store)._data[_subresource_key(name, version)] = value


def _version(record: Mapping[str, Any]) -> str:
    return record.get("version_id") or NULL


def _current(name: Name) -> dict[str, Any] | None:
    bucket, key = name
    current: dict[str, Any] | None = s3._buckets._data.get((ACCOUNT, bucket), {}).get("objects", {}).get(key)
    return current


def _versions(name: Name) -> list[dict[str, Any]]:
    versions: list[dict[str, Any]] = s3._object_versions._data.get((ACCOUNT, name)) or []
    return versions


def _bodies(current: dict[str, Any] | None, versions: list[dict[str, Any]]) -> dict[str, bytes | None]:
    """The bytes of each version, None for those that are on disk already."""
    bodies = {entry["version_id"]: entry.get("data") for entry in versions if not entry.get("is_delete_marker")}
    if current is not None and bodies.get(_version(current)) is None:
        bodies[_version(current)] = current["body"]
    return bodies


def _subresource_key(name: Name, version: str) -> tuple[str, tuple[str, str, str | None]]:
    return ACCOUNT, (*name, None if version == NULL else version)


def _subresource(store: str, name: Name, versions: Mapping[str, Any]) -> dict[str, Any]:
    data = getattr(s3, store)._data
    keys = {version: _subresource_key(name, version) for version in versions}
    return {version: data[key] for version, key in keys.items() if key in data}


def _statement(name: Name, state: State | None) -> tuple[str, tuple[Any, ...]]:
    if state is None:
        return "DELETE FROM objects WHERE bucket = ? AND key = ?", name
    text = json.dumps(state, default=_json_default, separators=(",", ":"))
    return "INSERT OR REPLACE INTO objects VALUES (?, ?, ?)", (*name, text)


def _decode(text: str) -> State:
    # The hook turns tagged text back into bytes and doubles the time, so it is called where there are any.
    state: State = json.loads(text, object_hook=_json_object_hook if "__bytes__" in text else None)
    return state
