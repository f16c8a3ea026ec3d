"""What survives a killed process, a full disk, and hands that reach into the folder."""

import errno
import hashlib
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from cascade.serve import engine as engine_module
from cascade.serve.durable import open_database, write
from cascade.serve.engine import Engine, EngineError

pytestmark = pytest.mark.engine

SEED = 20261201
TABLE = BUCKET = "cascade"
MIB = 1024 * 1024


def once(engine: Engine, service: str) -> Any:
    """A client that sends a request that failed no second time."""
    client = boto3.client(service, config=Config(retries={"total_max_attempts": 1}))  # type: ignore[call-overload]
    engine.connect(client)
    return client


def key(pk: str) -> dict[str, Any]:
    return {"pk": {"S": pk}, "sk": {"S": "s"}}


def item(client: Any, pk: str) -> Any:
    return client.get_item(TableName=TABLE, Key=key(pk)).get("Item")


# A process that dies.

WRITER = """
import hashlib, os, pathlib, random, sys, threading
from cascade.serve.engine import Engine

engine = Engine(pathlib.Path(sys.argv[1]))
engine.start()
dynamodb, s3 = engine.client("dynamodb"), engine.client("s3")

def key(name):
    return {"pk": {"S": name}, "sk": {"S": "s"}}

def work(worker):
    rng = random.Random(f"{sys.argv[2]} {worker}")
    for n in range(10**9):
        name, value = f"{sys.argv[2]}-{worker}-{n % 20}", str(n)
        kind = rng.choice(["item", "pair", "object"])
        if kind == "item":
            dynamodb.put_item(TableName="cascade", Item={**key(f"item-{name}"), "n": {"N": value}})
        elif kind == "pair":
            puts = [{"Put": {"TableName": "cascade", "Item": {**key(f"{side}-{name}"), "n": {"N": value}}}} for side in "ab"]
            dynamodb.transact_write_items(TransactItems=puts)
        else:
            body = rng.randbytes(rng.choice([0, 10, 100_000]))
            value = hashlib.sha256(body).hexdigest()
            s3.put_object(Bucket="cascade", Key=f"files/sim-1/{name}", Body=body)
        os.write(1, f"{kind} {name} {value}\\n".encode())

for worker in range(4):
    threading.Thread(target=work, args=(worker,)).start()
"""


def acknowledged(data_dir: Path, seed: int, count: int) -> dict[tuple[str, str], str]:
    """The last value of each name that a killed writer was told is stored."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(data_dir), str(seed)], stdout=subprocess.PIPE)
    assert process.stdout
    lines = [process.stdout.readline() for _ in range(count)]
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.readlines()  # what it had said by then
    process.wait()
    process.stdout.close()
    told = [line.decode().split() for line in lines if line.endswith(b"\n")]
    return {(kind, name): value for kind, name, value in told}


def test_a_killed_process_loses_nothing_that_it_answered(data_dir: Path) -> None:
    rng = random.Random(SEED)
    told: dict[tuple[str, str], str] = {}
    for round_ in range(4):
        told |= acknowledged(data_dir, round_, rng.randrange(50, 400))
        with Engine(data_dir) as engine:
            dynamodb, s3 = engine.client("dynamodb"), engine.client("s3")
            for (kind, name), value in told.items():
                if kind == "object":
                    assert_stored(s3, f"files/sim-1/{name}", value)
                elif kind == "item":
                    # A later write that was not answered may be there too.
                    assert int(item(dynamodb, f"item-{name}")["n"]["N"]) >= int(value)
                else:
                    a, b = (item(dynamodb, f"{side}-{name}")["n"]["N"] for side in "ab")
                    assert a == b
                    assert int(a) >= int(value)
            assert_published(engine)


def assert_stored(s3: Any, name: str, digest: str) -> None:
    versions = s3.list_object_versions(Bucket=BUCKET, Prefix=name)["Versions"]
    ids = [version["VersionId"] for version in versions if version["Key"] == name]
    bodies = (s3.get_object(Bucket=BUCKET, Key=name, VersionId=id_)["Body"].read() for id_ in ids)
    assert digest in {hashlib.sha256(body).hexdigest() for body in bodies}, name


def assert_published(engine: Engine) -> None:
    """The folder shows each current object, and no bytes are kept that nothing names."""
    s3 = engine.client("s3")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    names = {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", ())}
    shown = {str(p.relative_to(engine.data_dir)): p.stat().st_size for p in (engine.data_dir / "files").glob("*/*")}
    assert shown == names
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=BUCKET)
    count = sum(len(page.get("Versions", ())) for page in pages)
    assert len([path for path in (engine.data_dir / "objects").rglob("*") if path.is_file()]) == count


def test_of_a_write_of_several_rows_all_are_there_or_none(tmp_path: Path) -> None:
    database = open_database(tmp_path / "rows", "CREATE TABLE rows (n INTEGER PRIMARY KEY)")
    try:
        with pytest.raises(sqlite3.IntegrityError):
            write(database, [("INSERT INTO rows VALUES (?)", (n,)) for n in (1, 2, 1)])
        assert not database.in_transaction
        other = sqlite3.connect(tmp_path / "rows")  # another reader, as the next start is
        with closing(other):
            assert other.execute("SELECT n FROM rows").fetchall() == []
            write(database, [("INSERT INTO rows VALUES (?)", (n,)) for n in (1, 2)])
            assert other.execute("SELECT n FROM rows").fetchall() == [(1,), (2,)]
    finally:
        database.close()


# A disk that is full.


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file of this process can grow further: a write ends in the middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_on_a_full_disk_nothing_is_half_written_and_later_all_is_well(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Engine(data_dir) as engine:
        dynamodb, s3 = once(engine, "dynamodb"), once(engine, "s3")
        dynamodb.put_item(TableName=TABLE, Item={**key("a"), "v": {"S": "before"}})
        s3.put_object(Bucket=BUCKET, Key="files/sim-1/x", Body=b"before")
        with files_of_at_most((data_dir / "table.sqlite-wal").stat().st_size + 5000):
            for _ in range(3):
                with pytest.raises(dynamodb.exceptions.InternalServerError):
                    dynamodb.put_item(TableName=TABLE, Item={**key("a"), "v": {"S": "x" * 100_000}})
                with pytest.raises(s3.exceptions.ClientError, match="InternalError"):
                    s3.put_object(Bucket=BUCKET, Key="files/sim-1/x", Body=bytes(MIB))
            assert item(dynamodb, "a")["v"] == {"S": "before"}
            assert s3.get_object(Bucket=BUCKET, Key="files/sim-1/x")["Body"].read() == b"before"
            assert_published(engine)
        dynamodb.put_item(TableName=TABLE, Item={**key("b"), "v": {"S": "x" * 100_000}})
        s3.put_object(Bucket=BUCKET, Key="files/sim-1/y", Body=bytes(MIB))
    # One line for each kind of failure, not one for each request.
    assert "Traceback" not in caplog.text
    assert caplog.text.count("cannot read or write what is stored") <= 2
    with Engine(data_dir) as engine:
        dynamodb = engine.client("dynamodb")
        assert item(dynamodb, "a")["v"] == {"S": "before"}
        assert len(item(dynamodb, "b")["v"]["S"]) == 100_000
        assert (data_dir / "files" / "sim-1" / "x").read_bytes() == b"before"
        assert (data_dir / "files" / "sim-1" / "y").stat().st_size == MIB
        assert_published(engine)


def test_a_start_on_a_full_disk_is_a_clear_error_and_the_next_one_works(data_dir: Path) -> None:
    with files_of_at_most(0), pytest.raises(EngineError, match=r"cannot write .*lock: File too large"):
        Engine(data_dir).start()
    with files_of_at_most(100), pytest.raises(EngineError, match=r"cannot use .*: "):
        Engine(data_dir).start()
    with Engine(data_dir) as engine:
        engine.client("dynamodb").put_item(TableName=TABLE, Item=key("a"))


def test_a_failure_that_goes_on_is_said_again_after_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(engine_module.time, "monotonic", lambda: now)
    complain = engine_module._Complaints()
    full, gone = (OSError(number, os.strerror(number)) for number in (errno.ENOSPC, errno.ENOENT))
    for error in (full, gone, full, full, gone):
        complain(error)
    now += engine_module.COMPLAINT_SECONDS
    for error in (full, full):
        complain(error)
    said = [record.getMessage().removeprefix("cannot read or write what is stored: ") for record in caplog.records]
    assert said == [str(full), str(gone), f"{full} (2 more since this was last said)"]


# Hands that reach into the folder.


@pytest.mark.parametrize("name", ["table.sqlite", "table.sqlite-wal"])
@pytest.mark.parametrize("replace", [False, True])
def test_what_would_be_written_into_a_removed_file_is_refused(
    data_dir: Path, name: str, replace: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with Engine(data_dir) as engine:
        client = once(engine, "dynamodb")
        client.put_item(TableName=TABLE, Item=key("a"))
        aside = data_dir / f"{name}.aside"
        (data_dir / name).rename(aside)
        if replace:
            (data_dir / name).write_bytes(aside.read_bytes())
        with pytest.raises(client.exceptions.InternalServerError):
            client.put_item(TableName=TABLE, Item=key("b"))
        assert f"{data_dir / name} was removed or replaced" in caplog.text
        assert item(client, "b") is None
        aside.replace(data_dir / name)
        client.put_item(TableName=TABLE, Item=key("c"))
    with Engine(data_dir) as engine:
        client = engine.client("dynamodb")
        assert [bool(item(client, pk)) for pk in "abc"] == [True, False, True]


def test_objects_too(data_dir: Path) -> None:
    with Engine(data_dir) as engine:
        client = once(engine, "s3")
        client.put_object(Bucket=BUCKET, Key="files/sim-1/x", Body=b"1")
        (data_dir / "bucket.sqlite").unlink()
        with pytest.raises(client.exceptions.ClientError, match="InternalError"):
            client.put_object(Bucket=BUCKET, Key="files/sim-1/x", Body=b"2")
        assert client.get_object(Bucket=BUCKET, Key="files/sim-1/x")["Body"].read() == b"1"


def test_folders_that_somebody_removed_are_made_again(data_dir: Path) -> None:
    with Engine(data_dir) as engine:
        client = once(engine, "s3")
        client.put_object(Bucket=BUCKET, Key="files/sim-1/x", Body=b"1")
        (data_dir / "files" / "sim-1" / "x").unlink()
        (data_dir / "files" / "sim-1").rmdir()
        (data_dir / "files").rmdir()
        (data_dir / "scratch").rmdir()
        client.put_object(Bucket=BUCKET, Key="files/sim-1/x", Body=b"2")
        assert (data_dir / "files" / "sim-1" / "x").read_bytes() == b"2"


def test_one_lost_file_does_not_keep_the_others(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Engine(data_dir) as engine:
        client = once(engine, "s3")
        for name in ("lost", "kept"):
            client.put_object(Bucket=BUCKET, Key=f"files/sim-1/{name}", Body=name.encode())
        lost = next(p for p in (data_dir / "objects").rglob("*") if p.is_file() and p.read_bytes() == b"lost")
    lost.unlink()
    with Engine(data_dir) as engine:
        client = once(engine, "s3")
        assert client.get_object(Bucket=BUCKET, Key="files/sim-1/kept")["Body"].read() == b"kept"
        with pytest.raises(client.exceptions.ClientError, match="InternalError"):
            client.get_object(Bucket=BUCKET, Key="files/sim-1/lost")
        assert [path.name for path in (data_dir / "files" / "sim-1").iterdir()] == ["kept"]
        assert "the bytes of files/sim-1/lost are gone" in caplog.text
        # It can be put again, and what was lost be deleted.
        (version,) = client.list_object_versions(Bucket=BUCKET, Prefix="files/sim-1/lost")["Versions"]
        client.put_object(Bucket=BUCKET, Key="files/sim-1/lost", Body=b"found")
        client.delete_object(Bucket=BUCKET, Key="files/sim-1/lost", VersionId=version["VersionId"])
        assert (data_dir / "files" / "sim-1" / "lost").read_bytes() == b"found"


def test_all_objects_lost_do_not_keep_the_table(data_dir: Path) -> None:
    with Engine(data_dir) as engine:
        engine.client("dynamodb").put_item(TableName=TABLE, Item=key("a"))
        engine.client("s3").put_object(Bucket=BUCKET, Key="files/sim-1/x", Body=b"1")
    (data_dir / "objects").rename(data_dir.parent / "elsewhere")
    with Engine(data_dir) as engine:
        assert item(engine.client("dynamodb"), "a")


def test_a_folder_that_cannot_be_written_is_a_clear_error() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        was = os.geteuid()
        if was == 0:
            os.seteuid(65534)  # root may write anywhere
        try:
            for data_dir in (Path(folder), Path(folder) / "data"):
                with pytest.raises(EngineError, match=rf"cannot use {data_dir}: Permission denied"):
                    Engine(data_dir).start()
        finally:
            os.seteuid(was)


def test_a_page_of_the_database_that_is_damaged_is_a_clear_error(data_dir: Path) -> None:
    with Engine(data_dir) as engine:
        for n in range(300):
            engine.client("dynamodb").put_item(TableName=TABLE, Item={**key(str(n)), "v": {"S": "x" * 1000}})
    path = data_dir / "table.sqlite"
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (path.stat().st_size - 8192))
    with pytest.raises(EngineError, match=r"cannot use .*: database disk image is malformed"):
        Engine(data_dir).start()


def test_what_a_killed_first_start_left_is_no_obstacle(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "format.new").write_text("")
    (data_dir / "lock").write_text("123456789\n")
    with Engine(data_dir):
        pass
    assert (data_dir / "format").read_text() == "1\n"
    assert not (data_dir / "format.new").exists()


def test_a_database_left_locked_by_a_reader_does_not_stop_writes(data_dir: Path) -> None:
    with Engine(data_dir) as engine, closing(sqlite3.connect(data_dir / "table.sqlite")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM items").fetchone()
        engine.client("dynamodb").put_item(TableName=TABLE, Item=key("a"))
        assert item(engine.client("dynamodb"), "a")


def test_a_file_that_cannot_be_removed_fails_no_delete(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is the commit; bytes that nothing names are removed by the next start."""
    with Engine(data_dir) as engine:
        client = once(engine, "s3")
        version = client.put_object(Bucket=BUCKET, Key="logs/sim-1/x", Body=b"1")["VersionId"]

        def stuck(*_: Any, **__: Any) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as broken:
            broken.setattr(Path, "unlink", stuck)
            client.delete_object(Bucket=BUCKET, Key="logs/sim-1/x", VersionId=version)
        assert client.list_object_versions(Bucket=BUCKET).get("Versions") is None
    with Engine(data_dir) as engine:
        assert_published(engine)
