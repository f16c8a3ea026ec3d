"""The folder of one sim on this machine: what a worker that was killed left, and the next one takes up.

    <root>/<sim_id>/
        lock            held by the worker that has this sim; touched with each beat
        sim.json        what the sim is and which attempt this is
        log             stdout and stderr, as the warden wrote them
        chunks          how the log was cut into chunks, and which the server has
        attempt-<n>/    a warden's own files
        work/           where the simulator ran
        done            everything is delivered: only the folder is left to remove
    <root>/claims/      claims under way

Only sim.json and done are flushed to the platter: a killed process loses none of the rest, and after a crash of the whole
machine the simulator has to run again anyway.
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
import uuid
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from cascade.worker import lines
from cascade.worker.process import Simulator

END_S: Final = 10.0
"""So much longer than the grace a simulator that is to end may take."""
NAMES_MAX: Final = 100
"""Names tried for a claim."""


class Held(Exception):
    """Another worker of this machine has the sim."""


def lock(path: Path) -> int | None:
    """Hold the lock file `path`, made if need be, until the returned descriptor is closed; None when another holds it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        # Its last holder may have removed it between the two calls: then this lock is on nothing.
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(handle).st_ino:
                return handle
        os.close(handle)


def replace(path: Path, value: Any) -> None:
    """Write JSON to a file, whole or not at all, even when the machine goes down."""
    partial = path.with_name(path.name + ".part")
    with partial.open("w") as file:
        file.write(json.dumps(value))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


@dataclass
class Sim:
    """What a worker must remember of a sim."""

    sim_id: str
    run_id: str
    name: str
    params: dict[str, Any]
    argv: list[str]
    success: str
    attempt: int = 0
    """Of running the simulator, from 1; 0 before the first."""
    first_seq: int = 0
    """Seq of the first chunk from here; others may have sent earlier ones."""
    stop_reason: str | None = None
    """Why the simulator was stopped for good, once it was."""
    leaving: bool = False
    """This attempt's simulator was stopped to be started again, or is about to be."""
    log_start: int = 0
    """Where in the log this attempt begins, in bytes."""
    copies: list[str] = field(default_factory=list)
    """Files that the simulator finds in its folder."""


class Chunks:
    """How the log was cut. A chunk's bounds are written down before it is sent, so that a repeat holds the same lines.

    Chunks are cut when they can be sent, not before: while the server is away the log just grows, and what waited
    goes in few large chunks.
    """

    def __init__(self, path: Path, first_seq: int) -> None:
        self.first_seq = first_seq
        self.ends = array("Q")
        """Where each chunk ends in the log, in bytes."""
        self.acked = 0
        """How many of them the server has, the first ones."""
        self.lines = 0
        """Lines in those."""
        self.notes: dict[int, str] = {}
        """By position: chunks that the server would not take, and the line that stands for each."""
        self._file = path.open("ab+", buffering=0)
        self._load()

    def _load(self) -> None:
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._file.truncate(whole)  # a record that was cut off when the worker died
        for record in data[:whole].decode().splitlines():
            kind, _, rest = record.partition(" ")
            if kind == "cut":
                del self.ends[self.acked :]
                self.ends.append(int(rest))
            elif kind == "ack":
                self.acked, self.lines = len(self.ends), int(rest)
            else:
                self.notes[len(self.ends) - 1] = rest

    def _write(self, record: str) -> None:
        # On a full disk this worker still knows; only one that is killed before there is room again does not.
        # A chunk whose answer comes after `close` is sent again by the next worker.
        with contextlib.suppress(OSError, ValueError):
            self._file.write(f"{record}\n".encode())

    @property
    def start(self) -> int:
        """Where the first chunk that the server has not got starts, in bytes."""
        return self.ends[self.acked - 1] if self.acked else 0

    @property
    def pending(self) -> bool:
        """Whether that chunk is cut already."""
        return len(self.ends) > self.acked

    @property
    def seq(self) -> int:
        """Its seq."""
        return self.first_seq + self.acked

    def cut(self, end: int) -> None:
        """Let it end at byte `end` of the log."""
        del self.ends[self.acked :]
        self.ends.append(end)
        self._write(f"cut {end}")

    def note(self, text: str) -> None:
        """Let it be sent as this line instead."""
        self.notes[self.acked] = text
        self._write(f"note {text}")

    def ack(self, count: int) -> None:
        """The server has it; it holds `count` lines."""
        self.acked += 1
        self.lines += count
        self._write(f"ack {self.lines}")

    def read(self, log: Path, position: int) -> list[str]:
        """The lines of the chunk at `position` (its seq less `first_seq`)."""
        if position in self.notes:
            return [self.notes[position]]
        start = self.ends[position - 1] if position else 0
        with log.open("rb") as file:
            file.seek(start)
            return lines.split(file.read(self.ends[position] - start))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Spool:
    """A sim's folder, locked."""

    def __init__(self, folder: Path, handle: int) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.beat_file = folder / "lock"
        self._handle = handle
        self._meta = folder / "sim.json"
        self.sim: Sim | None = None
        self.broken = False
        """Whether there is a sim.json that tells nothing."""
        with contextlib.suppress(FileNotFoundError):
            try:
                self.sim = Sim(**json.loads(self._meta.read_text()))
            except (ValueError, TypeError):
                self.broken = True

    @classmethod
    def take(cls, root: Path, sim_id: str) -> Self:
        """The folder of a sim, made if need be. Raises Held."""
        folder = root / sim_id
        handle = lock(folder / "lock")
        if handle is None:
            raise Held(f"another worker on this machine has {sim_id} (its folder is {folder})")
        return cls(folder, handle)

    def touch(self) -> None:
        """Tell the warden that this worker lives."""
        with contextlib.suppress(OSError):
            os.utime(self.beat_file)

    def save(self, sim: Sim) -> None:
        """Remember the sim."""
        replace(self._meta, asdict(sim))
        self.sim = sim

    def remark(self, text: str) -> None:
        """Put a line of Cascade's own into the log. Only while no warden writes to it."""
        # A disk that is full has no room for remarks, and that is no reason to stop.
        with contextlib.suppress(OSError), self.log.open("ab+") as log:
            torn = False
            if log.tell():
                log.seek(-1, os.SEEK_END)
                torn = log.read(1) not in (b"\n", b"\r")
            log.write(f"{chr(10) if torn else ''}cascade: {text}\n".encode())

    @property
    def log_bytes(self) -> int:
        """How long the log is."""
        try:
            return self.log.stat().st_size
        except FileNotFoundError:
            return 0

    def chunks(self, first_seq: int) -> Chunks:
        """How the log was cut so far."""
        return Chunks(self.folder / "chunks", first_seq)

    def simulator(self, attempt: int) -> Simulator:
        """The given attempt at running the simulator."""
        return Simulator(self.folder / f"attempt-{attempt}")

    def end_simulators(self, grace_s: float) -> bool:
        """End whatever still runs of any attempt, which nobody wants any more; whether it was there and is gone."""
        ended = False
        for folder in self.folder.glob("attempt-*"):
            simulator = Simulator(folder)
            if not simulator.started:
                continue
            deadline = time.monotonic() + grace_s + END_S
            while simulator.alive() and time.monotonic() < deadline:
                simulator.stop()
                ended = True
                time.sleep(0.1)
            if simulator.alive():
                raise OSError(f"the simulator in {folder} can't be ended from here")
            if simulator.exit() is None:
                simulator.kill_leftover()
        return ended

    @property
    def done(self) -> str | None:
        """The sim's state at the server once everything is delivered."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return str(json.loads((self.folder / "done").read_text()))
        return None

    def finish(self, state: str) -> None:
        """Everything is delivered."""
        replace(self.folder / "done", state)

    def clear(self, keep: bool = False) -> None:
        """Empty the folder but for its lock; with `keep` what the simulator wrote stays too, if it wrote anything."""
        work = self.folder / "work"
        # `done` goes last and sim.json before it: whoever is killed on the way leaves something that says it is done.
        last = [self._meta, self.folder / "done"]
        for entry in [*sorted(set(self.folder.iterdir()) - set(last)), *last]:
            if entry == self.beat_file or (entry == work and keep and any(work.iterdir())):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)

    def remove(self, keep: bool = False) -> None:
        """Remove the folder, with `keep` as `clear` does."""
        self.clear(keep)
        self.beat_file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def remove_if_empty(self) -> None:
        """Undo what locking a folder that was removed meanwhile has made."""
        if set(self.folder.iterdir()) <= {self.beat_file, self.folder / "work"}:
            self.remove(keep=True)

    def close(self) -> None:
        """Let go of the sim."""
        os.close(self._handle)


def unfinished(root: Path, run_id: str) -> Iterator[str]:
    """Ids of the run's sims that have a folder here, whoever has them, and of those whose sim.json tells no run."""
    for path in sorted(root.glob("sim-*/sim.json")):
        with contextlib.suppress(OSError):
            try:
                found = json.loads(path.read_text())["run_id"]
            except (ValueError, LookupError, TypeError):
                found = None
            if found in (run_id, None):
                yield path.parent.name


@dataclass
class Claim:
    """A claim under way, on disk before it is sent: a worker that dies between sending it and the answer would else
    leave a sim running that nobody runs."""

    path: Path
    handle: int
    run_id: str
    worker: str
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    def close(self) -> None:
        """The claim is settled."""
        self.path.unlink(missing_ok=True)
        os.close(self.handle)


def new_claim(root: Path, run_id: str, worker: str) -> Claim:
    """A claim written down."""
    for _ in range(NAMES_MAX):
        path = root / "claims" / uuid.uuid4().hex
        handle = lock(path)
        if handle is not None:
            break  # else another worker came in between, who takes it for a dead worker's and removes it
    else:
        raise OSError(f"no file in {root / 'claims'} can be locked")
    claim = Claim(path, handle, run_id, worker)
    os.write(handle, json.dumps({"run_id": run_id, "worker": worker, "key": claim.key}).encode())
    return claim


def old_claims(root: Path, run_id: str) -> Iterator[Claim]:
    """Claims on the run that dead workers left."""
    for path in sorted((root / "claims").glob("*")):
        handle = lock(path)
        if handle is None:
            continue
        with contextlib.suppress(ValueError, LookupError, TypeError):
            found = json.loads(os.read(handle, 4096))
            if found["run_id"] == run_id:
                yield Claim(path, handle, run_id, found["worker"], found["key"])
                continue
            os.close(handle)
            continue
        Claim(path, handle, run_id, "").close()  # died before it was written, so never sent
