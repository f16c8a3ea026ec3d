"""DynamoDB for one machine: ministack's tables in memory, each item on disk in SQLite before it is answered."""

import copy
import gc
import json
import logging
import marshal
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

from ministack.core.responses import AccountRegionScopedDict, request_scope
from ministack.services import dynamodb

from cascade.serve.durable import ACCOUNT, Answer, Checkpoints, Database, Guard, drive, open_database, write
from cascade.serve.packed import PAGE_BYTES, Item, Items, Partition, partition_of, whole_answer, window

logger = logging.getLogger(__name__)

Key = tuple[str, str, str]
"""Table name, partition key, sort key."""

EXPIRY_SECONDS = 60.0
"""How often items whose time to live is over are removed."""
EXPIRY_ROWS = 1000
REMEMBERED = 1024
"""So many expressions and numbers are remembered as read: the app has some dozens of expressions and reading them was a
sixth of a heartbeat's time; a number is read five times while one request is answered."""
MAX_DIGITS = 38
SMALL_BYTES = 1024
"""No update of this size counts as the 400 KB that an item may have, whatever its expression repeats; counting takes a
twentieth of a heartbeat's time."""
TOKENS_KEPT = 200
"""So many transactions are remembered by their idempotency tokens, for the SDK's retries, which end within seconds.
DynamoDB's ten minutes of them, whole requests of 20 KB and more, would be 100 MB for every ten a second."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
  table_name TEXT NOT NULL, pk TEXT NOT NULL, sk TEXT NOT NULL, item TEXT NOT NULL, expires_at INTEGER,
  PRIMARY KEY (table_name, pk, sk)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS expiring ON items (expires_at) WHERE expires_at IS NOT NULL;
"""


class _SettingsOfNobody(AccountRegionScopedDict):  # type: ignore[misc]  # ministack ships no types
    """Time to live settings that ministack's own remover, which reads every item every minute, does not see."""

    def all_items(self) -> list[Any]:
        return []


class _Copying:
    """The module `copy` as ministack uses it: an item, of plain dicts and strings, is copied in a quarter of the time."""

    @staticmethod
    def deepcopy(value: Any) -> Any:
        try:
            return marshal.loads(marshal.dumps(value))  # noqa: S302 - no bytes from elsewhere
        except ValueError:  # not plain
            return copy.deepcopy(value)


def _is_plain(text: Any) -> bool:
    """Whether a number is a whole one in DynamoDB's canonical form, as nearly all are; finding that form takes 3 us."""
    return type(text) is str and len(text) <= MAX_DIGITS and text.isascii() and text.isdigit() and text[0] != "0"


def _remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, pure, with what it found for the last strings remembered."""
    remembered = lru_cache(REMEMBERED)(function)
    return lambda text, *more: (remembered if type(text) is str else function)(text, *more)


class TableStore:
    """The items of the kept tables. `handle` answers a DynamoDB request; what it wrote is on disk when it returns.

    ministack has two write points, `_set_item` and `_remove_item`, which every put, update, delete, batch, transaction
    and PartiQL statement goes through, and `_items_replaced`, called when a failed PartiQL transaction puts all items of
    a table back. All three are wrapped here, the first two to note what changed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.guard = Guard(self._commit, self._rollback)
        self._kept: dict[str, str] = {}
        # The value is the table and the item before the first change of this request.
        self._changed: dict[Key, tuple[dict[str, Any], Item | None]] = {}
        self._database: Database | None = None
        self._checkpoints: Checkpoints | None = None
        self._is_small = False
        self._stop = threading.Event()
        self._remover = threading.Thread(target=self._remove_expired_forever, name="expiry", daemon=True)
        replaced = ("_set_item", "_remove_item", "_items_replaced", "_lock", "_ttl_settings", "_txn_token_store")
        reading = (
            *("copy", "_tokenize", "_condition_syntax_error"),
            *("_ddb_canonicalize_number", "_number_error", "_number_size_bytes", "_update_request_charge"),
        )
        self._own = {name: getattr(dynamodb, name) for name in (*replaced, *reading, "handle_request")}

    def open(self) -> None:
        """Open the database and take over ministack's write points and its lock."""
        self._database = open_database(self.path, SCHEMA)
        self._checkpoints = Checkpoints(self._database, self.path, self.guard)
        self._checkpoints.start()
        dynamodb._set_item = self._set_item
        dynamodb._remove_item = self._remove_item
        dynamodb._items_replaced = self._items_replaced
        dynamodb._lock = self.guard
        dynamodb._ttl_settings = _SettingsOfNobody()
        dynamodb._txn_token_store = self._store_token
        tokens = _remembering(self._own["_tokenize"])
        dynamodb._tokenize = lambda expression: list(tokens(expression))
        dynamodb.copy = _Copying
        for name in ("_condition_syntax_error", "_number_size_bytes", "_number_error"):
            setattr(dynamodb, name, _remembering(self._own[name]))
        dynamodb._update_request_charge = self._update_request_charge
        canonical = self._own["_ddb_canonicalize_number"]
        dynamodb._ddb_canonicalize_number = lambda text: text if _is_plain(text) else canonical(text)
        self._remover.start()

    def close(self) -> None:
        """Give ministack back its own functions, without any tables, and close the database."""
        self._stop.set()
        if self._checkpoints:
            self._checkpoints.stop()
            self._checkpoints = None
        with self.guard:
            dynamodb.reset()
            for name, own in self._own.items():
                setattr(dynamodb, name, own)
            self._kept.clear()
            if self._database:
                self._database.close()
                self._database = None
        if self._remover.is_alive():
            self._remover.join()

    def load(self, name: str, region: str) -> int:
        """Bring back the items of a table that was just made, and keep it from now on. Returns how many there are."""
        table = dynamodb._tables.get_scoped(ACCOUNT, region, name)
        items = Items()
        with self.guard, _no_garbage_collection():
            for pk, sk, text in self._open_database().execute(
                "SELECT pk, sk, item FROM items WHERE table_name = ? ORDER BY pk, sk", (name,)
            ):
                items[pk].set_text(sk, text)
            table["items"] = items
            self._own["_items_replaced"](table)
            self._kept[table["TableArn"]] = name
            # Rows of a deleted table would be back after the next start; a kept table stays.
            table["DeletionProtectionEnabled"] = True
        return int(table["ItemCount"])

    def handle(self, headers: Mapping[str, str], body: bytes, region: str) -> Answer:
        """Answer one request. Raises whatever ministack or the disk raised; then nothing has changed."""
        with request_scope(ACCOUNT, region):
            return self.answer("POST", "/", headers, body, {})

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query: Mapping[str, Any]
    ) -> Answer:
        """ministack's own handler, made durable, for a request whose account and region are set."""
        try:
            with self.guard, _no_garbage_collection():
                self._open_database()
                found = self._queried(body) if headers.get("x-amz-target", "").endswith(".Query") else None
                whole = whole_answer(*found) if found else None
                if whole is not None:
                    return 200, {"Content-Type": "application/x-amz-json-1.0"}, whole.encode()
                self._is_small = len(body) <= SMALL_BYTES
                with _narrowed(*found) if found else nullcontext():
                    request = self._own["handle_request"](method, path, headers, body, query)
                    status, answer_headers, answer = drive(request)
        except BaseException:
            self._forget_token(body)
            raise
        return status, answer_headers, answer if isinstance(answer, bytes) else answer.encode()

    def _queried(self, body: bytes) -> tuple[Partition, Mapping[str, Any], re.Match[str], Mapping[str, Any]] | None:
        """The partition that a query reads part of, the query, its parsed key condition and its table."""
        try:
            query = json.loads(body)
            table = dynamodb._tables.get(query.get("TableName"))
        except (ValueError, AttributeError, TypeError):
            return None  # ministack says what is wrong with it
        if not table or not isinstance(table["items"], Items):
            return None
        named = partition_of(query, table["pk_name"])
        partition = table["items"].get(named[0]) if named else None
        return None if not named or partition is None else (partition, query, named[1], table)

    def _update_request_charge(self, *arguments: Any) -> int:
        """What an update is counted as, against the 400 KB that an item may have."""
        return 0 if self._is_small else int(self._own["_update_request_charge"](*arguments))

    def _forget_token(self, body: bytes) -> None:
        """A transaction that was undone must not be taken for done when the SDK sends it again."""
        if b"ClientRequestToken" in body:
            dynamodb._txn_idempotency.pop(json.loads(body).get("ClientRequestToken"), None)

    def _store_token(self, token: str, entry: dict[str, Any]) -> None:
        self._own["_txn_token_store"](token, entry)
        kept = dynamodb._txn_idempotency._data
        while len(kept) > TOKENS_KEPT:
            del kept[next(iter(kept))]

    def _set_item(self, table: dict[str, Any], pk: str, sk: str, item: Item) -> Any:
        with self.guard:
            old = self._own["_set_item"](table, pk, sk, item)
            self._note(table, pk, sk, old)
            return old

    def _remove_item(self, table: dict[str, Any], pk: str, sk: str) -> Any:
        with self.guard:
            old = self._own["_remove_item"](table, pk, sk)
            if old is not None:
                self._note(table, pk, sk, old)
            return old

    def _items_replaced(self, table: dict[str, Any]) -> None:
        if table.get("TableArn") in self._kept:
            table["items"] = Items(table["items"])
        self._own["_items_replaced"](table)

    def _note(self, table: dict[str, Any], pk: str, sk: str, old: Item | None) -> None:
        name = self._kept.get(table.get("TableArn", ""))
        if name is not None:
            self._changed.setdefault((name, pk, sk), (table, old))

    def _open_database(self) -> Database:
        if not self._database:
            raise RuntimeError("the engine is closed")
        return self._database

    def _commit(self) -> None:
        if self._changed:
            statements = [self._statement(key, table) for key, (table, _) in self._changed.items()]
            write(self._open_database(), statements)
            self._changed.clear()

    def _statement(self, key: Key, table: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        _, pk, sk = key
        partition = table["items"].get(pk)
        text = partition.text(sk) if partition is not None else None
        if text is None:
            return "DELETE FROM items WHERE table_name = ? AND pk = ? AND sk = ?", key
        return "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?)", (
            *key,
            text,
            self._expires_at(table, partition, sk, text),
        )

    def _expires_at(self, table: dict[str, Any], partition: Partition, sk: str, text: str) -> int | None:
        setting = dynamodb._ttl_settings.get(table["TableName"]) or {}
        attribute = setting.get("AttributeName", "")
        if not attribute or attribute not in text:
            return None
        number = (partition[sk].get(attribute) or {}).get("N")
        return int(float(number)) if number is not None else None

    def _rollback(self) -> None:
        for (_, pk, sk), (table, old) in self._changed.items():
            if old is None:
                self._own["_remove_item"](table, pk, sk)
            else:
                self._own["_set_item"](table, pk, sk, old)
        self._changed.clear()

    def _remove_expired_forever(self) -> None:
        while not self._stop.wait(EXPIRY_SECONDS):
            try:
                while self.remove_expired(time.time()) == EXPIRY_ROWS:
                    pass
            except Exception:  # such as a full disk: the next round may find room
                logger.exception("could not remove expired items")

    def remove_expired(self, now: float) -> int:
        """Remove items whose time to live is over, at most `EXPIRY_ROWS`. Returns how many."""
        with self.guard:
            expired = self._open_database().execute(
                "SELECT table_name, pk, sk FROM items WHERE expires_at <= ? LIMIT ?", (int(now), EXPIRY_ROWS)
            )
            removed = 0
            for name, pk, sk in expired.fetchall():
                for table in dynamodb._tables.all_values():
                    if self._kept.get(table["TableArn"]) == name:
                        self._remove_item(table, pk, sk)
                        removed += 1
            return removed


@contextmanager
def _narrowed(
    partition: Partition, query: Mapping[str, Any], match: re.Match[str], table: Mapping[str, Any]
) -> Iterator[None]:
    """Show a query only the part of its partition that its page can come from."""
    keys = window(partition, query, match, table)
    partition.window = _page((partition[sk] for sk in keys), query.get("Limit"))
    try:
        yield
    finally:
        partition.window = None


def _page(items: Iterator[Item], limit: Any) -> Iterator[Item]:
    """`items` up to where DynamoDB ends a page, so that ministack finds its end itself."""
    size = 0
    for count, item in enumerate(items, 1):
        yield item
        size += dynamodb._item_size_bytes(item)
        if count == limit or size > PAGE_BYTES:
            return


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """What loads and what answers makes very many objects and no cycles of them; looking for those would take long.

    Used with the guard held, so by one thread at a time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
