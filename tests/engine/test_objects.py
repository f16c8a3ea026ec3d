"""S3 objects: versions, their bytes on disk before they are answered, and the files published under their names."""

import errno
import io
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from ministack.services import s3 as ministack_s3

from cascade.serve import published
from cascade.serve.engine import Engine

pytestmark = pytest.mark.engine

BUCKET = "cascade"
KEY = "files/sim-1/out.csv"


def once(engine: Engine, attempts: int = 1) -> Any:
    client = boto3.client("s3", config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}))
    engine.connect(client)
    return client


def body(client: Any, key: str = KEY, **more: str) -> bytes:
    return bytes(client.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read())


def put(client: Any, data: bytes, key: str = KEY, **more: Any) -> str:
    return str(client.put_object(Bucket=BUCKET, Key=key, Body=data, **more)["VersionId"])


def versions(client: Any) -> list[tuple[str, str, bool]]:
    answer = client.list_object_versions(Bucket=BUCKET)
    return [
        (v["Key"], v["VersionId"], v["IsLatest"])
        for v in (*answer.get("Versions", ()), *answer.get("DeleteMarkers", ()))
    ]


def published_files(engine: Engine) -> dict[str, bytes]:
    root = engine.data_dir / "files"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def blobs(engine: Engine) -> list[Path]:
    return [path for path in (engine.data_dir / "objects").rglob("*") if path.is_file()]


def restarted(engine: Engine) -> Engine:
    engine.close()
    again = Engine(engine.data_dir)
    again.start()
    return again


@pytest.fixture
def restart(engine: Engine) -> Any:
    """Restarts the engine as often as it is called; the last one is closed at the end."""
    engines = [engine]

    def again() -> Engine:
        engines.append(restarted(engines[-1]))
        return engines[-1]

    yield again
    engines[-1].close()


def test_versions_and_what_is_known_of_them_are_there_after_a_restart(
    engine: Engine, restart: Callable[[], Engine]
) -> None:
    client = engine.client("s3")
    first = put(client, b"one", ContentType="text/csv", Metadata={"who": "me"}, Tagging="a=b")
    second = put(client, b"two" * 1000, ContentType="text/plain")
    client.put_object_tagging(Bucket=BUCKET, Key=KEY, Tagging={"TagSet": [{"Key": "c", "Value": "d"}]})
    before = versions(client)
    client = restart().client("s3")
    assert versions(client) == before
    assert body(client) == b"two" * 1000
    assert body(client, VersionId=first) == b"one"
    head = client.head_object(Bucket=BUCKET, Key=KEY, VersionId=first)
    assert (head["ContentType"], head["Metadata"], head["ContentLength"]) == ("text/csv", {"who": "me"}, 3)
    head = client.head_object(Bucket=BUCKET, Key=KEY)
    assert (head["VersionId"], head["ContentType"]) == (second, "text/plain")
    assert client.get_object_tagging(Bucket=BUCKET, Key=KEY)["TagSet"] == [{"Key": "c", "Value": "d"}]


def test_deleting_the_newest_version_brings_back_the_one_before(engine: Engine, restart: Callable[[], Engine]) -> None:
    client = engine.client("s3")
    first, second = put(client, b"one"), put(client, b"two")
    assert published_files(engine) == {"sim-1/out.csv": b"two"}
    client.delete_object(Bucket=BUCKET, Key=KEY, VersionId=second)
    assert (body(client), published_files(engine)) == (b"one", {"sim-1/out.csv": b"one"})
    engine = restart()
    client = engine.client("s3")
    assert (body(client), published_files(engine)) == (b"one", {"sim-1/out.csv": b"one"})
    assert client.head_object(Bucket=BUCKET, Key=KEY)["VersionId"] == first
    with pytest.raises(client.exceptions.ClientError, match="NoSuchVersion"):
        body(client, VersionId=second)
    client.delete_object(Bucket=BUCKET, Key=KEY, VersionId=first)
    assert (versions(client), published_files(engine), blobs(engine)) == ([], {}, [])
    assert list((engine.data_dir / "files").iterdir()) == []


def test_a_delete_marker_hides_and_its_removal_shows(engine: Engine, restart: Callable[[], Engine]) -> None:
    client = engine.client("s3")
    put(client, b"one")
    marker = client.delete_object(Bucket=BUCKET, Key=KEY)["VersionId"]
    assert published_files(engine) == {}
    engine = restart()
    client = engine.client("s3")
    with pytest.raises(client.exceptions.NoSuchKey):
        body(client)
    assert published_files(engine) == {}
    client.delete_object(Bucket=BUCKET, Key=KEY, VersionId=marker)
    assert (body(client), published_files(engine)) == (b"one", {"sim-1/out.csv": b"one"})


def test_deleting_many_versions_leaves_no_bytes(engine: Engine, restart: Callable[[], Engine]) -> None:
    client = engine.client("s3")
    for i in range(20):
        put(client, b"x" * i, f"files/sim-{i % 2}/{i % 5}")
    found = [{"Key": key, "VersionId": version} for key, version, _ in versions(client)]
    client.delete_objects(Bucket=BUCKET, Delete={"Objects": found, "Quiet": True})
    assert (versions(client), published_files(engine), blobs(engine)) == ([], {}, [])
    assert versions(restart().client("s3")) == []


def test_bytes_leave_the_memory(engine: Engine) -> None:
    client = engine.client("s3")
    for _ in range(3):
        put(client, bytes(1000))
    entries = ministack_s3._object_versions._data["000000000000", (BUCKET, KEY)]
    assert [entry["data"] for entry in entries] == [None] * 3
    assert ministack_s3._buckets._data["000000000000", BUCKET]["objects"][KEY]["body"] is None


NAMES = ["x.meta.json", "x.tmp", "x", ".hidden", "..x", "-", "a" * 128, "UPPER.lower_1-2"]


def test_every_file_name_is_published_as_it_is(engine: Engine, restart: Callable[[], Engine]) -> None:
    client = engine.client("s3")
    for name in NAMES:
        put(client, name.encode(), f"files/sim-1/{name}")
    expected = {f"sim-1/{name}": name.encode() for name in NAMES}
    assert published_files(engine) == expected
    assert published_files(restart()) == expected


@pytest.mark.parametrize(
    "key",
    ["files/../x", "files/sim-1/..", "files/sim-1", "files/sim-1/a/b", "logs/sim-1/x", "files//x", "files/sim 1/x"],
)
def test_other_keys_are_stored_and_not_published(engine: Engine, key: str) -> None:
    client = engine.client("s3")
    put(client, b"1", key)
    assert body(client, key) == b"1"
    assert published_files(engine) == {}


@pytest.mark.parametrize(
    "key", ["a b+c", "ä/😀", "100%", "%2F", "a?b=c&d", "a//b", "/a", "a/", ".", "..", "a#b", "x" * 1000]
)
@pytest.mark.parametrize("style", ["path", "virtual"])
def test_any_key_is_one_key(engine: Engine, key: str, style: str) -> None:
    client = boto3.client("s3", config=Config(s3={"addressing_style": style}))
    engine.connect(client)
    version = put(client, b"1", key)
    assert body(client, key, VersionId=version) == b"1"
    assert [k for k, _, _ in versions(client)] == [key]
    client.delete_object(Bucket=BUCKET, Key=key, VersionId=version)
    assert versions(client) == []


@pytest.mark.parametrize("mode", ["when_supported", "when_required"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_bodies_of_every_kind_arrive_as_they_are(engine: Engine, mode: str, scheme: str) -> None:
    config = Config(request_checksum_calculation=mode)
    client = boto3.client("s3", endpoint_url=f"{scheme}://s3.us-east-1.amazonaws.com", config=config)
    engine.connect(client)
    data = bytes(range(256)) * 5000
    path = engine.data_dir / "upload"
    path.write_bytes(data)
    with path.open("rb") as file:
        for given in (data, bytearray(data), io.BytesIO(data), file):
            version = put(client, given)  # type: ignore[arg-type]
            assert body(client, VersionId=version) == data
    put(client, data, ContentEncoding="gzip")
    assert client.head_object(Bucket=BUCKET, Key=KEY)["ContentEncoding"] == "gzip"
    put(client, b"")
    assert body(client) == b""


def test_a_wrong_checksum_is_refused(engine: Engine) -> None:
    client = once(engine)
    with pytest.raises(client.exceptions.ClientError, match="BadDigest"):
        client.put_object(Bucket=BUCKET, Key=KEY, Body=b"1", ChecksumCRC32="AAAAAA==")
    assert versions(client) == []


def test_ranges_conditions_and_heads(engine: Engine) -> None:
    client = engine.client("s3")
    put(client, b"0123456789")
    assert body(client, Range="bytes=2-4") == b"234"
    with pytest.raises(client.exceptions.ClientError, match="PreconditionFailed"):
        put(client, b"", IfNoneMatch="*")
    etag = client.head_object(Bucket=BUCKET, Key=KEY)["ETag"]
    put(client, b"new", IfMatch=etag)
    with pytest.raises(client.exceptions.ClientError, match="PreconditionFailed"):
        put(client, b"newer", IfMatch=etag)
    with pytest.raises(client.exceptions.ClientError, match="404"):
        client.head_object(Bucket=BUCKET, Key="none")
    assert body(client) == b"new"


def test_a_thousand_keys_and_more_are_listed_in_pages(engine: Engine) -> None:
    client = engine.client("s3")
    for i in range(1005):
        put(client, b"", f"logs/{i:04d}")
    first = client.list_object_versions(Bucket=BUCKET, Prefix="logs/")
    assert first["IsTruncated"]
    second = client.list_object_versions(
        Bucket=BUCKET, Prefix="logs/", KeyMarker=first["NextKeyMarker"], VersionIdMarker=first["NextVersionIdMarker"]
    )
    keys = [v["Key"] for v in first["Versions"] + second["Versions"]]
    assert keys == [f"logs/{i:04d}" for i in range(1005)]


def test_an_upload_in_parts(engine: Engine, restart: Callable[[], Engine]) -> None:
    client = engine.client("s3")
    parts = [os.urandom(5 * 1024 * 1024), b"end"]
    upload = client.create_multipart_upload(Bucket=BUCKET, Key=KEY)["UploadId"]
    done = []
    for number, part in enumerate(parts, 1):
        etag = client.upload_part(Bucket=BUCKET, Key=KEY, UploadId=upload, PartNumber=number, Body=part)["ETag"]
        done.append({"PartNumber": number, "ETag": etag})
    assert published_files(engine) == {}
    client.complete_multipart_upload(Bucket=BUCKET, Key=KEY, UploadId=upload, MultipartUpload={"Parts": done})
    assert body(restart().client("s3")) == b"".join(parts)


def test_an_unversioned_bucket_keeps_one_version(engine: Engine, restart: Callable[[], Engine]) -> None:
    client = engine.client("s3")
    client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Suspended"})
    client.put_object(Bucket=BUCKET, Key=KEY, Body=b"one")
    client.put_object(Bucket=BUCKET, Key=KEY, Body=b"two")
    assert len(blobs(engine)) == 1
    engine = restart()
    assert body(engine.client("s3")) == b"two"
    put(engine.client("s3"), b"three")
    assert body(restart().client("s3"), VersionId="null") == b"two"


def test_a_bucket_of_somebody_elses_lives_in_memory_only(engine: Engine, restart: Callable[[], Engine]) -> None:
    client = engine.client("s3")
    client.create_bucket(Bucket="other-bucket")
    client.put_object(Bucket="other-bucket", Key=KEY, Body=b"1")
    client.put_object(Bucket="other-bucket", Key=KEY, Body=b"2")
    assert client.get_object(Bucket="other-bucket", Key=KEY)["Body"].read() == b"2"
    assert published_files(engine) == {}
    assert [bucket["Name"] for bucket in restart().client("s3").list_buckets()["Buckets"]] == [BUCKET]


# Failures.


def fail_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full after half of the bytes."""
    real = os.open

    def full(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if flags & os.O_EXCL and "objects" in str(path):
            descriptor = real(path, flags, mode, **more)
            os.write(descriptor, b"half")
            os.close(descriptor)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", full)


def fail_to_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("cascade.serve.object_store.write", full)


@pytest.mark.parametrize("fail", [fail_to_write, fail_to_commit])
def test_a_put_that_fails_leaves_the_version_before(
    engine: Engine, restart: Callable[[], Engine], fail: Callable[[pytest.MonkeyPatch], None]
) -> None:
    client = once(engine)
    first = put(client, b"one", Tagging="a=b")
    before, files = versions(client), blobs(engine)
    with pytest.MonkeyPatch.context() as monkeypatch:
        fail(monkeypatch)
        for key in (KEY, "files/sim-2/new"):
            with pytest.raises(client.exceptions.ClientError, match="InternalError"):
                put(client, b"two", key)
        if fail is fail_to_commit:
            for version in ({}, {"VersionId": first}):
                with pytest.raises(client.exceptions.ClientError, match="InternalError"):
                    client.delete_object(Bucket=BUCKET, Key=KEY, **version)
        assert (body(client), versions(client)) == (b"one", before)
        assert client.get_object_tagging(Bucket=BUCKET, Key=KEY)["TagSet"] == [{"Key": "a", "Value": "b"}]
    assert (blobs(engine), published_files(engine)) == (files, {"sim-1/out.csv": b"one"})
    put(client, b"three")
    engine = restart()
    assert body(engine.client("s3")) == b"three"
    assert body(engine.client("s3"), VersionId=first) == b"one"
    assert published_files(engine) == {"sim-1/out.csv": b"three"}


def test_a_completion_that_fails_can_be_sent_again(
    engine: Engine, restart: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = once(engine, attempts=3)
    upload = client.create_multipart_upload(Bucket=BUCKET, Key=KEY)["UploadId"]
    etag = client.upload_part(Bucket=BUCKET, Key=KEY, UploadId=upload, PartNumber=1, Body=b"part")["ETag"]
    failures: list[int] = []
    real = engine.objects._write_file

    def failing_once(*arguments: Any) -> str:
        if not failures:
            failures.append(1)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    monkeypatch.setattr(engine.objects, "_write_file", failing_once)
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    answer = client.complete_multipart_upload(Bucket=BUCKET, Key=KEY, UploadId=upload, MultipartUpload=parts)
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1
    assert body(restart().client("s3")) == b"part"


def test_nothing_is_answered_while_the_state_is_unknown(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    client = once(engine)
    put(client, b"one")
    real = engine.objects._stored

    def unreadable(*_: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken:
        fail_to_commit(broken)
        broken.setattr(engine.objects, "_stored", unreadable)
        with pytest.raises(client.exceptions.ClientError, match="InternalError"):
            put(client, b"two")
        with pytest.raises(client.exceptions.ClientError, match="InternalError"):
            body(client)
    assert engine.objects._stored == real
    assert body(client) == b"one"


def test_damaged_bytes_are_not_given_out(engine: Engine) -> None:
    client = once(engine)
    put(client, b"whole")
    (file,) = blobs(engine)
    file.chmod(0o600)
    file.write_bytes(b"torn")
    with pytest.raises(client.exceptions.ClientError, match="InternalError"):
        body(client)


# The published files.


def test_published_files_are_the_stored_ones_and_read_only(engine: Engine) -> None:
    put(engine.client("s3"), b"one")
    (stored,) = blobs(engine)
    file = engine.data_dir / "files" / "sim-1" / "out.csv"
    assert file.samefile(stored)
    assert stat.S_IMODE(file.stat().st_mode) == 0o400
    assert list((engine.data_dir / "scratch").iterdir()) == []


def test_a_name_always_shows_one_whole_version(engine: Engine) -> None:
    client = engine.client("s3")
    contents = {bytes([i]) * 100_000 for i in range(20)}
    put(client, bytes(100_000))
    file, done = engine.data_dir / "files" / "sim-1" / "out.csv", threading.Event()

    def read() -> set[bytes]:
        seen = set()
        while not done.is_set():
            seen.add(file.read_bytes())
        return seen

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        for content in contents:
            put(client, content)
        done.set()
        assert reader.result() <= contents


def test_a_start_puts_the_published_files_right(engine: Engine, restart: Callable[[], Engine]) -> None:
    client = engine.client("s3")
    for name in ("kept", "lost", "stale"):
        put(client, name.encode(), f"files/sim-1/{name}")
    folder = engine.data_dir / "files" / "sim-1"
    engine.close()
    (folder / "lost").unlink()
    (folder / "stale").unlink()
    (folder / "stale").write_bytes(b"older")
    (folder / "left-over").write_bytes(b"of a delete that was cut")
    (folder.parent / "sim-2").mkdir()
    (folder.parent / "sim-2" / "left-over").touch()
    (engine.data_dir / "scratch" / "left-over").touch()
    orphan = engine.data_dir / "objects" / "000000000000" / BUCKET / "ab" / "ab12"
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"of a put that was cut")
    with Engine(engine.data_dir) as again:
        assert published_files(again) == {f"sim-1/{name}": name.encode() for name in ("kept", "lost", "stale")}
        assert not orphan.exists()
        assert list((engine.data_dir / "scratch").iterdir()) == []
        assert not (folder.parent / "sim-2").exists()


def test_files_are_copied_where_links_are_not_to_be_had(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", unsupported)
    with Engine(data_dir) as engine:
        put(engine.client("s3"), b"one")
        put(engine.client("s3"), b"two")
        file = data_dir / "files" / "sim-1" / "out.csv"
        assert file.read_bytes() == b"two"
        assert not any(file.samefile(stored) for stored in blobs(engine))

    def never(*_: Any) -> None:
        raise AssertionError("a copy that is right is left alone")

    monkeypatch.setattr(published, "_link", never)
    with Engine(data_dir) as engine:
        assert published_files(engine) == {"sim-1/out.csv": b"two"}


def test_a_file_that_cannot_be_published_fails_its_put_and_is_published_by_the_next(engine: Engine) -> None:
    client = once(engine)
    obstacle = engine.data_dir / "files" / "sim-1"
    obstacle.touch()
    with pytest.raises(client.exceptions.ClientError, match="InternalError"):
        put(client, b"one")
    obstacle.unlink()
    put(client, b"2", "files/sim-2/x")
    assert published_files(engine) == {"sim-1/out.csv": b"one", "sim-2/x": b"2"}
