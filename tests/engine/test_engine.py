"""The engine's folder, its lock, and the ways in."""

import errno
import fcntl
import os
import re
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from cascade.serve.engine import Engine, EngineError

pytestmark = pytest.mark.engine

KEY = {"pk": {"S": "a"}, "sk": {"S": "b"}}


def test_the_folder_is_the_users_own(engine: Engine) -> None:
    assert stat.S_IMODE(engine.data_dir.stat().st_mode) == 0o700
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in engine.data_dir.rglob("*.sqlite*")}
    assert modes
    assert set(modes.values()) == {0o600}


def test_a_second_engine_in_the_process_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=f"already runs an engine on {re.escape(str(engine.data_dir))}"):
        Engine(tmp_path / "other").start()


def test_a_second_process_on_the_folder_is_refused_and_told_who_holds_it(engine: Engine) -> None:
    code = "import sys, pathlib; from cascade.serve.engine import Engine; Engine(pathlib.Path(sys.argv[1])).start()"
    result = subprocess.run(
        [sys.executable, "-c", code, str(engine.data_dir)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert f"{engine.data_dir} is in use by process {os.getpid()}" in result.stderr


def test_the_folder_can_be_taken_again_after_a_failed_start(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "format").write_text("2\n")
    for _ in range(2):
        with pytest.raises(EngineError, match=r"newer Cascade \(format 2\); this one reads up to 1"):
            Engine(data_dir).start()
    (data_dir / "format").write_text("1\n")
    with Engine(data_dir):
        pass


def test_a_format_that_is_no_number_is_refused(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "format").write_text("one\n")
    with pytest.raises(EngineError, match=r"cannot read .*format"):
        Engine(data_dir).start()


def test_a_folder_with_files_of_somebody_else_is_left_alone(data_dir: Path) -> None:
    precious = data_dir / "files" / "thesis" / "chapter-1.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("everything")
    with pytest.raises(EngineError, match="it has a files but no format file"):
        Engine(data_dir).start()
    assert precious.read_text() == "everything"


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"cannot use .*file/data: Not a directory"):
        Engine(tmp_path / "file" / "data").start()


def test_a_file_system_without_locks_is_a_clear_error(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(EngineError, match=r"cannot lock .*lock, choose a folder on a local disk: No locks available"):
        Engine(data_dir).start()


def test_a_damaged_database_is_a_clear_error(data_dir: Path) -> None:
    with Engine(data_dir):
        pass
    (data_dir / "table.sqlite").write_bytes(b"not a database, but long enough to be taken for one" * 100)
    with pytest.raises(EngineError, match=r"cannot use .*: file is not a database"):
        Engine(data_dir).start()


def test_a_closed_engine_answers_nobody_and_nothing_goes_to_aws(data_dir: Path) -> None:
    config = Config(retries={"total_max_attempts": 1})
    client = boto3.client("dynamodb", config=config)
    with Engine(data_dir) as engine:
        engine.connect(client)
        client.put_item(TableName="cascade", Item=KEY)
    with pytest.raises(client.exceptions.ClientError, match="InternalServerError"):
        client.put_item(TableName="cascade", Item=KEY)
    with Engine(data_dir) as engine:
        engine.connect(client)
        assert client.get_item(TableName="cascade", Key=KEY)["Item"] == KEY


def test_only_dynamodb_and_s3_are_there(engine: Engine) -> None:
    with pytest.raises(KeyError):
        engine.client("sqs")


def test_ministack_is_left_as_it_was(data_dir: Path) -> None:
    from ministack.services import dynamodb, s3

    def state() -> list[Any]:
        return [
            *(getattr(dynamodb, name) for name in ("_set_item", "_lock", "handle_request")),
            s3._read_body,
            s3.S3_PERSIST,
        ]

    before = state()
    with Engine(data_dir) as engine:
        engine.listen()
        assert all(a is not b for a, b in zip(before, state(), strict=True))
    assert all(a is b for a, b in zip(before, state(), strict=True))
    assert not s3._buckets._data
    assert not dynamodb._tables.all_items()


def wire(url: str, service: str) -> Any:
    session = boto3.session.Session(region_name="us-east-1")
    return session.client(
        service,
        endpoint_url=url,
        config=Config(s3={"addressing_style": "path"}, signature_version="s3v4" if service == "s3" else None),
    )


def test_a_socket_shows_the_same_state_as_the_process(engine: Engine) -> None:
    url = engine.listen()
    assert url.startswith("http://127.0.0.1:")
    engine.client("dynamodb").put_item(TableName="cascade", Item=KEY)
    assert wire(url, "dynamodb").get_item(TableName="cascade", Key=KEY)["Item"] == KEY
    s3 = wire(url, "s3")
    s3.put_object(Bucket="cascade", Key="files/sim-1/a b+c%20.txt", Body=b"over the wire", Metadata={"x": "y"})
    got = engine.client("s3").get_object(Bucket="cascade", Key="files/sim-1/a b+c%20.txt")
    assert (got["Body"].read(), got["Metadata"]) == (b"over the wire", {"x": "y"})


def test_what_comes_over_a_socket_is_as_durable(data_dir: Path) -> None:
    with Engine(data_dir) as engine:
        url = engine.listen()
        wire(url, "dynamodb").put_item(TableName="cascade", Item=KEY)
        wire(url, "s3").put_object(Bucket="cascade", Key="files/sim-1/x", Body=b"1")
    assert (data_dir / "files" / "sim-1" / "x").read_bytes() == b"1"
    with Engine(data_dir) as engine:
        assert engine.client("dynamodb").get_item(TableName="cascade", Key=KEY)["Item"] == KEY
        assert engine.client("s3").get_object(Bucket="cascade", Key="files/sim-1/x")["Body"].read() == b"1"


def test_a_failure_over_a_socket_is_aws_own_error(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    url = engine.listen()

    def full(*_: Any) -> str:
        raise OSError("no space left on device")

    monkeypatch.setattr(engine.objects, "_write_file", full)
    session = boto3.session.Session(region_name="us-east-1")
    once = session.client(
        "s3", endpoint_url=url, config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    )
    with pytest.raises(once.exceptions.ClientError) as raised:
        once.put_object(Bucket="cascade", Key="k", Body=b"1")
    assert raised.value.response["Error"]["Code"] == "InternalError"
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500


def test_presigned_urls_work_over_a_socket(engine: Engine) -> None:
    s3 = wire(engine.listen(), "s3")
    put = s3.generate_presigned_url("put_object", {"Bucket": "cascade", "Key": "exports/x"}, ExpiresIn=60)
    assert httpx.put(put, content=b"signed").status_code == 200
    parameters = {"Bucket": "cascade", "Key": "exports/x", "ResponseContentType": "text/csv"}
    get = s3.generate_presigned_url("get_object", parameters, ExpiresIn=60)
    answer = httpx.get(get)
    assert (answer.content, answer.headers["content-type"]) == (b"signed", "text/csv")
    assert httpx.get(get.replace("exports/x", "exports/y")).status_code == 403


def test_the_database_can_be_read_while_the_engine_runs(engine: Engine) -> None:
    engine.client("dynamodb").put_item(TableName="cascade", Item=KEY)
    reader = sqlite3.connect(f"file:{engine.data_dir / 'table.sqlite'}?mode=ro", uri=True)
    assert reader.execute("SELECT table_name, pk, sk, item FROM items").fetchall() == [
        ("cascade", "a", "b", '{"pk":{"S":"a"},"sk":{"S":"b"}}')
    ]
    reader.close()


def told(call: Any, **request: Any) -> Any:
    """What a call gave or raised, without what is a request's own."""
    try:
        answer = call(**request)
    except ClientError as error:
        answer = {**error.response, "raised": type(error).__name__}
        for name in ("message", "Message"):  # some errors say again what is under `Error`
            answer.pop(name, None)
    answer["ResponseMetadata"] = answer["ResponseMetadata"]["HTTPStatusCode"]
    return answer


def walk(client: Any) -> list[Any]:
    table: Any = {"TableName": "cascade"}
    item = {
        **KEY,
        "n": {"N": "7"},
        "raw": {"B": b"\x00\xff"},
        "deep": {"M": {"B": {"L": [{"NULL": True}, {"B": b"\x01"}]}}},
    }
    taken = {"ConditionExpression": "attribute_not_exists(pk)", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    add = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": {"N": "1"}}, "Key": KEY}
    query = {"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {":pk": KEY["pk"]}}
    return [
        told(client.put_item, **table, Item=item, ReturnValues="ALL_OLD"),
        told(client.get_item, **table, Key=KEY, ConsistentRead=True),
        told(client.put_item, **table, Item=item, **taken),
        told(client.update_item, **table, **add, ReturnValues="UPDATED_NEW"),
        told(client.transact_write_items, TransactItems=[{"Put": {**table, "Item": item, **taken}}]),
        told(client.batch_get_item, RequestItems={"cascade": {"Keys": [KEY]}}),
        told(client.query, **table, **query),
        told(client.query, **table, KeyConditionExpression="pk ="),
        told(client.get_item, TableName="nowhere", Key=KEY),
        told(client.delete_item, **table, Key=KEY, ReturnValues="ALL_OLD"),
        told(client.get_item, **table, Key=KEY),
    ]


def test_a_client_on_the_short_way_is_told_the_same(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    long, short = (boto3.client("dynamodb", config=Config(retries={"total_max_attempts": 1})) for _ in range(2))
    engine.connect(long)
    engine.connect(short, short=True)
    wanted = walk(long)
    assert [answer.get("raised") for answer in wanted if "raised" in answer] == [
        "ConditionalCheckFailedException",
        "TransactionCanceledException",
        "ClientError",  # of a query that makes no sense
        "ResourceNotFoundException",
    ]
    assert walk(short) == wanted
    monkeypatch.setattr(engine.tables.guard, "_commit", fail)
    failed = told(short.put_item, TableName="cascade", Item=KEY)
    assert failed["Error"]["Code"] == "InternalServerError"
    assert failed == told(long.put_item, TableName="cascade", Item=KEY)
    monkeypatch.undo()
    assert "Item" not in short.get_item(TableName="cascade", Key=KEY)


def fail() -> None:
    raise OSError(errno.ENOSPC, "no room")


def test_a_client_comes_back_from_the_short_way(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    client = engine.client("dynamodb")
    engine.connect(client, short=True)
    engine.connect(client)
    seen = []
    client.meta.events.register("before-send", lambda **_: seen.append(1))
    assert client.get_item(TableName="cascade", Key=KEY)["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert seen
