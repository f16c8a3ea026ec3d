"""DynamoDB items: on disk before they are answered, undone when that fails."""

import gc
import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from ministack.services import dynamodb

from cascade.serve import durable, table_store
from cascade.serve.engine import Engine
from tests.waiting import eventually

pytestmark = pytest.mark.engine

SEED = 20260729
TABLE = "cascade"


def key(i: int | str) -> dict[str, Any]:
    return {"pk": {"S": str(i)}, "sk": {"S": "s"}}


def everything(engine: Engine) -> list[dict[str, Any]]:
    pages = engine.client("dynamodb").get_paginator("scan").paginate(TableName=TABLE)
    return [item for page in pages for item in page["Items"]]


def patient(engine: Engine, attempts: int) -> Any:
    """A client that sends a failed request so often in all."""
    client = boto3.client("dynamodb", config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}))
    engine.connect(client)
    return client


@contextmanager
def full_disk(engine: Engine) -> Iterator[None]:
    """SQLite's own way to run out of room; its error is that of a full disk."""
    database = engine.tables._database
    assert database
    with engine.tables.guard:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("PRAGMA max_page_count = 1")
    yield
    with engine.tables.guard:
        database.execute("PRAGMA max_page_count = 1073741823")


LARGE = {"data": {"S": "x" * 20_000}}  # does not fit the room there is in the pages already used


def test_every_kind_of_write_is_there_after_a_restart(data_dir: Path) -> None:
    rng = random.Random(SEED)
    with Engine(data_dir) as engine:
        client = engine.client("dynamodb")
        for _ in range(300):
            i, j = rng.sample(range(40), 2)
            item = {
                **key(i),
                "n": {"N": str(rng.randrange(10**20))},
                "b": {"B": rng.randbytes(20)},
                "u": {"S": "ä\u2028\x00😀"},
            }
            match rng.randrange(6):
                case 0:
                    client.put_item(TableName=TABLE, Item=item)
                case 1:
                    client.update_item(
                        TableName=TABLE,
                        Key=key(i),
                        UpdateExpression="SET l = list_append(if_not_exists(l, :e), :o) ADD c :one REMOVE b",
                        ExpressionAttributeValues={
                            ":e": {"L": []},
                            ":o": {"L": [{"NULL": True}, {"M": {"x": {"BOOL": False}}}]},
                            ":one": {"N": "1"},
                        },
                    )
                case 2:
                    client.delete_item(TableName=TABLE, Key=key(i))
                case 3:
                    requests = [{"PutRequest": {"Item": item}}, {"DeleteRequest": {"Key": key(j)}}]
                    client.batch_write_item(RequestItems={TABLE: requests})
                case 4:
                    client.transact_write_items(
                        TransactItems=[
                            {"Put": {"TableName": TABLE, "Item": item}},
                            {"Delete": {"TableName": TABLE, "Key": key(j)}},
                        ]
                    )
                case 5:
                    with pytest.raises(client.exceptions.TransactionCanceledException):
                        client.transact_write_items(
                            TransactItems=[
                                {"Put": {"TableName": TABLE, "Item": item}},
                                {
                                    "ConditionCheck": {
                                        "TableName": TABLE,
                                        "Key": key("none"),
                                        "ConditionExpression": "attribute_exists(pk)",
                                    }
                                },
                            ]
                        )
        before = everything(engine)
        count = client.describe_table(TableName=TABLE)["Table"]["ItemCount"]
    assert len(before) > 10
    with Engine(data_dir) as engine:
        assert everything(engine) == before
        assert engine.client("dynamodb").describe_table(TableName=TABLE)["Table"]["ItemCount"] == count == len(before)


def test_a_write_that_does_not_fit_the_disk_fails_and_changes_nothing(data_dir: Path) -> None:
    with Engine(data_dir) as engine:
        client = patient(engine, attempts=1)
        client.put_item(TableName=TABLE, Item={**key(1), "v": {"S": "before"}})
        before = everything(engine)
        with full_disk(engine):
            with pytest.raises(client.exceptions.InternalServerError):
                client.put_item(TableName=TABLE, Item={**key(1), **LARGE})
            with pytest.raises(client.exceptions.InternalServerError):
                client.put_item(TableName=TABLE, Item={**key(2), **LARGE})
            with pytest.raises(client.exceptions.InternalServerError):
                client.transact_write_items(
                    TransactItems=[
                        {"Delete": {"TableName": TABLE, "Key": key(1)}},
                        {"Put": {"TableName": TABLE, "Item": {**key(3), **LARGE}}},
                    ]
                )
            assert everything(engine) == before
        client.put_item(TableName=TABLE, Item={**key(2), **LARGE})
        after = everything(engine)
    with Engine(data_dir) as engine:
        assert everything(engine) == after
    assert [item["pk"]["S"] for item in after] == ["1", "2"]


def test_an_index_is_right_after_a_write_that_was_undone(engine: Engine) -> None:
    client = patient(engine, attempts=1)
    query = {
        "TableName": TABLE,
        "IndexName": "sweep",
        "KeyConditionExpression": "sweep_pk = :p",
        "ExpressionAttributeValues": {":p": {"S": "0"}},
    }
    client.put_item(TableName=TABLE, Item={**key(1), "sweep_pk": {"S": "0"}})
    assert client.query(**query)["Count"] == 1
    with full_disk(engine):
        for item in ({**key(1), **LARGE}, {**key(2), **LARGE, "sweep_pk": {"S": "0"}}):
            with pytest.raises(client.exceptions.InternalServerError):
                client.put_item(TableName=TABLE, Item=item)
    assert [item["pk"]["S"] for item in client.query(**query)["Items"]] == ["1"]


def test_a_transaction_sent_again_after_a_failure_is_done_not_remembered_as_done(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = patient(engine, attempts=3)
    real, failures = table_store.write, []

    def failing_once(database: Any, statements: Any) -> None:
        if not failures:
            failures.append(1)
            raise sqlite3.OperationalError("database or disk is full")
        real(database, statements)

    monkeypatch.setattr(table_store, "write", failing_once)
    answer = client.transact_write_items(
        TransactItems=[{"Put": {"TableName": TABLE, "Item": key(1)}}], ClientRequestToken="token"
    )
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1
    assert everything(engine) == [key(1)]
    # And a transaction that was done is not done twice.
    client.delete_item(TableName=TABLE, Key=key(1))
    client.transact_write_items(
        TransactItems=[{"Put": {"TableName": TABLE, "Item": key(1)}}], ClientRequestToken="token"
    )
    assert everything(engine) == []


def test_the_memory_of_transactions_is_bounded(engine: Engine) -> None:
    client = engine.client("dynamodb")
    for n in range(table_store.TOKENS_KEPT + 50):
        client.transact_write_items(TransactItems=[{"Put": {"TableName": TABLE, "Item": key(n)}}])
    assert len(dynamodb._txn_idempotency._data) == table_store.TOKENS_KEPT


def test_a_request_that_ministack_fails_halfway_is_undone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    client = patient(engine, attempts=1)
    client.put_item(TableName=TABLE, Item={**key(1), "v": {"N": "1"}})

    def broken(*_: Any, **__: Any) -> None:
        raise LookupError("a bug after the item was set")

    monkeypatch.setattr(dynamodb, "_emit_stream_event", broken)
    with pytest.raises(client.exceptions.InternalServerError):
        client.put_item(TableName=TABLE, Item={**key(1), "v": {"N": "2"}})
    assert everything(engine) == [{**key(1), "v": {"N": "1"}}]


def test_the_collector_is_off_while_a_request_is_answered_and_on_afterwards(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = patient(engine, attempts=1)
    seen = []

    def broken(*_: Any, **__: Any) -> None:
        seen.append(gc.isenabled())
        raise LookupError("a bug after the item was set")

    monkeypatch.setattr(dynamodb, "_emit_stream_event", broken)
    with pytest.raises(client.exceptions.InternalServerError):
        client.put_item(TableName=TABLE, Item={**key(1), "v": {"N": "1"}})
    assert (seen, gc.isenabled()) == ([False], True)


def test_an_engine_that_has_ended_leaves_the_collector_as_it_was(data_dir: Path) -> None:
    before = gc.get_threshold()
    with Engine(data_dir):
        assert gc.get_threshold() > before
    assert gc.get_threshold() == before


def test_sixteen_threads_of_conditional_writes_lose_nothing(data_dir: Path) -> None:
    with Engine(data_dir) as engine:
        client = engine.client("dynamodb")
        client.put_item(TableName=TABLE, Item={**key(1), "n": {"N": "0"}})
        lost = client.exceptions.ConditionalCheckFailedException

        def count(_: int) -> int:
            won = 0
            while won < 25:
                seen = client.get_item(TableName=TABLE, Key=key(1), ConsistentRead=True)["Item"]["n"]
                try:
                    client.update_item(
                        TableName=TABLE,
                        Key=key(1),
                        UpdateExpression="SET n = n + :one",
                        ConditionExpression="n = :seen",
                        ExpressionAttributeValues={":one": {"N": "1"}, ":seen": seen},
                    )
                    won += 1
                except lost:
                    pass
            return won

        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(count, range(16))) == 400
        assert everything(engine) == [{**key(1), "n": {"N": "400"}}]
    with Engine(data_dir) as engine:
        assert everything(engine) == [{**key(1), "n": {"N": "400"}}]


def test_one_of_many_wins_a_key_and_the_others_are_given_its_item(engine: Engine) -> None:
    client = engine.client("dynamodb")

    def take(i: int) -> str:
        try:
            client.put_item(
                TableName=TABLE,
                Item={**key(1), "by": {"N": str(i)}},
                ConditionExpression="attribute_not_exists(pk)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except client.exceptions.ConditionalCheckFailedException as error:
            return str(error.response["Item"]["by"]["N"])
        return str(i)

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(take, range(64)))) == 1


def test_items_whose_time_is_over_are_removed_from_memory_and_disk(data_dir: Path) -> None:
    now = time.time()
    with Engine(data_dir) as engine:
        client = engine.client("dynamodb")
        for i, expiry in enumerate((now - 10, now + 1000, now + 2000)):
            client.put_item(TableName=TABLE, Item={**key(i), "expires_at": {"N": str(int(expiry))}})
        client.put_item(TableName=TABLE, Item={**key(3), "expires_at": {"S": "no number"}})
        assert engine.tables.remove_expired(now) == 1
        client.update_item(TableName=TABLE, Key=key(2), UpdateExpression="REMOVE expires_at")
        assert engine.tables.remove_expired(now + 5000) == 1
        assert [item["pk"]["S"] for item in everything(engine)] == ["2", "3"]
    with Engine(data_dir) as engine:
        assert [item["pk"]["S"] for item in everything(engine)] == ["2", "3"]


def test_expired_items_are_removed_without_being_asked_for(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_store, "EXPIRY_SECONDS", 0.01)
    with Engine(data_dir) as engine:
        engine.client("dynamodb").put_item(TableName=TABLE, Item={**key(1), "expires_at": {"N": "1"}})
        eventually(lambda: everything(engine) == [], "the expired item is gone")


def test_the_remover_outlives_a_failure(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(table_store, "EXPIRY_SECONDS", 0.01)
    with Engine(data_dir) as engine:
        client = engine.client("dynamodb")
        real = table_store.write

        def full(database: Any, statements: Any) -> None:
            if any(sql.startswith("DELETE") for sql, _ in statements):
                raise sqlite3.OperationalError("database or disk is full")
            real(database, statements)

        monkeypatch.setattr(table_store, "write", full)
        client.put_item(TableName=TABLE, Item={**key(1), "expires_at": {"N": "1"}})
        eventually(lambda: "could not remove expired items" in caplog.text, "the failure is logged")
        monkeypatch.setattr(table_store, "write", real)
        eventually(lambda: everything(engine) == [], "the expired item is gone")


def test_other_tables_live_in_memory_only(data_dir: Path) -> None:
    with Engine(data_dir) as engine:
        client = engine.client("dynamodb")
        client.create_table(
            TableName="other",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        client.put_item(TableName="other", Item={"id": {"S": "1"}})
        assert client.get_item(TableName="other", Key={"id": {"S": "1"}})["Item"] == {"id": {"S": "1"}}
    with Engine(data_dir) as engine:
        assert engine.client("dynamodb").list_tables()["TableNames"] == [TABLE]


def test_the_kept_table_cannot_be_deleted(engine: Engine) -> None:
    client = engine.client("dynamodb")
    with pytest.raises(client.exceptions.ClientError, match="protected against deletion"):
        client.delete_table(TableName=TABLE)


def test_a_large_put_to_s3_does_not_hold_up_a_heartbeat(engine: Engine) -> None:
    client = engine.client("dynamodb")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with engine.objects.guard:
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    client.put_item(TableName=TABLE, Item=key(1))
    assert thread.is_alive()
    done.set()
    thread.join()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b'{"TableName": ["x"]}', b'{"TableName": "none"}', b'{"TableName": "cascade"}']
)
def test_what_is_no_query_is_left_to_ministack(engine: Engine, body: bytes) -> None:
    assert engine.tables._queried(body) is None


@pytest.mark.parametrize(
    "number",
    ["0", "1", "007", "10", "1780000000000000", "9" * 38, "9" * 39, "1" + "0" * 38, "-1", "+1", "1.50", "1e3", "", " 1", "1_0", "²", "٣", "x", 7, None],
)  # fmt: skip
def test_numbers_are_read_as_ministack_reads_them(data_dir: Path, number: Any) -> None:
    wanted = dynamodb._ddb_canonicalize_number(number), dynamodb._number_size_bytes(number)
    with Engine(data_dir):
        assert dynamodb._ddb_canonicalize_number is not Engine._running.tables._own["_ddb_canonicalize_number"]  # type: ignore[union-attr]
        for _ in range(2):
            assert (dynamodb._ddb_canonicalize_number(number), dynamodb._number_size_bytes(number)) == wanted


def test_an_item_that_is_read_is_not_the_stored_one(engine: Engine) -> None:
    nested = {**key(1), "a": {"M": {"b": {"L": [{"S": "c"}]}}}}
    copied = dynamodb.copy.deepcopy(nested)
    assert copied == nested
    copied["a"]["M"]["b"]["L"].clear()
    assert nested["a"]["M"]["b"]["L"] == [{"S": "c"}]
    assert dynamodb.copy.deepcopy(engine.tables._changed) == {}
    unusual = {"of a class of its own": Path("a")}
    assert dynamodb.copy.deepcopy(unusual) == unusual


def test_an_update_that_makes_an_item_too_large_is_refused(engine: Engine) -> None:
    client = patient(engine, attempts=1)
    many = ",".join(f"n{i}=:v" for i in range(400))
    grow = {"TableName": TABLE, "Key": key(1), "UpdateExpression": f"SET {many}"}
    with pytest.raises(client.exceptions.ClientError, match="Item size to update has exceeded"):
        client.update_item(**grow, ExpressionAttributeValues={":v": {"S": "x" * 1100}})
    assert everything(engine) == []
    client.update_item(**grow, ExpressionAttributeValues={":v": {"S": "x" * 900}})
    assert len(everything(engine)[0]) == 402


# Checkpoints.


def fill(client: Any, rows: int) -> None:
    for i in range(rows):
        client.put_item(TableName=TABLE, Item={**key(i), "data": {"S": "x" * 5000}})


def rows_without_the_log(engine: Engine, folder: Path) -> int:
    """What a copy of the database alone has."""
    copied = folder / "copy.sqlite"
    shutil.copyfile(engine.tables.path, copied)
    with closing(sqlite3.connect(copied)) as database:
        return int(database.execute("SELECT count(*) FROM items").fetchone()[0])


@pytest.fixture
def unattended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints are made when a test says so."""
    monkeypatch.setattr(durable, "CHECKPOINT_SECONDS", 3600.0)


def checkpoints(engine: Engine) -> durable.Checkpoints:
    assert engine.tables._checkpoints
    return engine.tables._checkpoints


def test_the_log_is_copied_beside_the_commits(unattended: None, engine: Engine, tmp_path: Path) -> None:
    client = engine.client("dynamodb")
    enough = durable.CHECKPOINT_CHANGES
    checkpoints(engine)._copy()
    before = rows_without_the_log(engine, tmp_path)
    fill(client, enough - 1)
    checkpoints(engine).check()
    assert rows_without_the_log(engine, tmp_path) == before, "too early"
    fill(client, enough)
    assert rows_without_the_log(engine, tmp_path) == before, "within a commit"
    checkpoints(engine).check()
    assert rows_without_the_log(engine, tmp_path) == before + enough


def test_a_log_that_grows_under_a_steady_load_begins_anew(
    unattended: None, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = engine.client("dynamodb")
    log = engine.tables.path.with_name("table.sqlite-wal")
    fill(client, durable.CHECKPOINT_CHANGES)
    monkeypatch.setattr(durable, "LOG_MAX_PAGES", 100)
    copy, calm = durable.Checkpoints._copy, []

    def copy_under_load(self: durable.Checkpoints) -> int:
        calm.append(engine.tables.guard._depth > 0)
        copied = copy(self)
        return copied if calm[-1] else log.stat().st_size // 4096  # as if something had been written meanwhile

    monkeypatch.setattr(durable.Checkpoints, "_copy", copy_under_load)
    checkpoints(engine).check()
    assert calm == [False, True]
    size = log.stat().st_size
    fill(client, 50)
    assert log.stat().st_size == size, "it is written from its start again"


def test_checkpoints_outlive_a_failure(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    results: list[Any] = [sqlite3.OperationalError("disk I/O error"), None]
    waited = threading.Event()

    def check(_: durable.Checkpoints) -> None:
        result = results.pop(0) if results else waited.set()
        if result:
            raise result

    monkeypatch.setattr(durable.Checkpoints, "check", check)
    monkeypatch.setattr(durable, "CHECKPOINT_SECONDS", 0.01)
    made = durable.Checkpoints(engine.tables._open_database(), engine.tables.path, engine.tables.guard)
    made.start()
    assert waited.wait(30)
    made.stop()
    assert "disk I/O error" in caplog.text


def test_a_guard_is_held_if_it_is_free_and_its_commits_stay_where_they_were() -> None:
    commits: list[str] = []
    guard = durable.Guard(lambda: commits.append("commit"), lambda: commits.append("rollback"))
    with guard.held_if_free() as free:
        assert free
        with ThreadPoolExecutor(1) as other:
            assert other.submit(lambda: enters(guard)).result() is False
        with guard:
            assert commits == []
        assert commits == ["commit"]
    with guard, ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: enters(guard)).result() is False
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: enters(guard)).result() is True
    assert commits == ["commit"] * 2


def enters(guard: durable.Guard) -> bool:
    with guard.held_if_free() as free:
        return free
