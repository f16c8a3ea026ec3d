"""What makes ministack's answers durable: one lock a service, whose outermost release is the commit."""

import logging
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

logger = logging.getLogger(__name__)

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body of an answer, as ministack's services give it."""

ACCOUNT = "000000000000"
"""The one account that owns what is kept; it is ministack's own default."""


BUSY_SECONDS = 1.0
"""A write waits so long for another process to unlock the database, and is then refused. There should be none: the folder
has a lock of its own."""
CHECKPOINT_SECONDS = 1.0
CHECKPOINT_CHANGES = 250
"""So many changed rows are some 1,000 pages in the log, SQLite's own measure of when it is time."""
LOG_MAX_PAGES = 16_384
"""64 MiB."""


class Guard:
    """A reentrant lock that commits when its outermost block ends and rolls back when the block or the commit raises.

    ministack changes its state in memory and answers. Inside this lock nobody else sees the change until it is on disk,
    and a change that cannot be written is undone, so what is answered and what is read is always what a restart finds.
    """

    def __init__(self, commit: Callable[[], None], rollback: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._commit = commit
        self._rollback = rollback

    @contextmanager
    def held_if_free(self) -> Iterator[bool]:
        """Keep everybody else out for the block, unless somebody is inside already; says whether. It commits nothing itself."""
        free = self._lock.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._depth == 1:
                self._end(error)
        finally:
            self._depth -= 1
            self._lock.release()

    def _end(self, error: BaseException | None) -> None:
        try:
            if error is None:
                self._commit()
        except BaseException:
            self._rollback()
            raise
        if error is not None:
            self._rollback()


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never really awaits, without an event loop. Raises RuntimeError if it does."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise RuntimeError("ministack's handler waited for something; only requests that do not are served in process")


class Database(sqlite3.Connection):
    """A connection that knows the files it was opened on.

    On Unix a file that is removed or replaced below an open connection takes writes as before, and they are nowhere.
    """

    _files: Mapping[Path, tuple[int, int]]

    def remember_files(self, path: Path) -> None:
        """Take the files at `path` for those that are open here."""
        self._files = {file: _identity(file) for file in (path, path.with_name(f"{path.name}-wal"))}

    def check_files(self) -> None:
        """Raises OSError if a file is no longer what was opened."""
        for file, identity in self._files.items():
            try:
                found = _identity(file)
            except FileNotFoundError:
                found = None
            if found != identity:
                raise OSError(
                    f"{file} was removed or replaced while it was in use; restart to go on with what is there"
                )


def _identity(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_dev, status.st_ino


def open_database(path: Path, schema: str) -> Database:
    """A database that survives the death of the process at any moment, for one writer at a time on any thread.

    In WAL mode with `synchronous=NORMAL` a commit is one write to the log without an fsync: what is committed survives
    the process, and a power cut can take the last moments' commits but never leaves a torn one.
    """
    path.touch(mode=0o600)
    database = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS, factory=Database
    )
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(schema)
        database.remember_files(path)
    except BaseException:
        database.close()
        raise
    return database


class Checkpoints(threading.Thread):
    """Copies what was committed from the log of a database into the database, which SQLite else does within a commit.

    It takes two fsyncs, so a commit that does it waits for the disk, and everybody else for that commit.

    Args:
        database: the connection that writes; it makes no checkpoints of its own any more.
        path: its file.
        guard: held while anything is written.
    """

    def __init__(self, database: Database, path: Path, guard: Guard) -> None:
        super().__init__(name="checkpoints", daemon=True)
        database.execute("PRAGMA wal_autocheckpoint = 0")
        self._database = database
        self._copied = database.total_changes
        self._guard = guard
        self._stopped = threading.Event()
        self._own = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        self._own.execute("PRAGMA synchronous = NORMAL")

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopped.wait(CHECKPOINT_SECONDS):
            try:
                self.check()
            except sqlite3.Error:
                logger.exception("could not copy committed rows from the log")

    def check(self) -> None:
        """Copy, if there is enough to be copied."""
        changes = self._database.total_changes
        if changes - self._copied < CHECKPOINT_CHANGES:
            return
        self._copied = changes  # also where the copy fails: nothing is lost by that, and it is not said every second
        if self._copy() > LOG_MAX_PAGES:
            # The log begins anew once all of it is copied. Under a steady load that never happens beside the commits; what
            # is left now is little.
            with self._guard:
                self._copy()

    def _copy(self) -> int:
        """Copy as much as can be without holding up anybody. Returns how many pages are in the log and not yet reused."""
        _, pages, copied = self._own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return int(pages) if copied < pages else 0

    def stop(self) -> None:
        """End it."""
        self._stopped.set()
        if self.is_alive():
            self.join()
        self._own.close()


def write(database: Database, statements: list[tuple[str, tuple[Any, ...]]]) -> None:
    """Run all of `statements` or none."""
    database.check_files()
    if len(statements) == 1:
        # A statement alone is a transaction of its own.
        database.execute(*statements[0])
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            database.execute(*statement)
        database.execute("COMMIT")
    except BaseException:
        # After some errors, a full disk among them, SQLite has rolled back by itself.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
