"""The log to the server in chunks, from a thread of its own that nothing else waits for."""

import threading
import time
from typing import Final

from cascade.client import (
    CascadeError,
    Client,
    Conflict,
    NotCascade,
    NotFound,
    Rejected,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from cascade.worker import lines
from cascade.worker.spool import Chunks, Spool

CUT_S: Final = 1.0
"""New lines are sent at least this often."""
POLL_S: Final = 0.1
REFUSED_S: Final = 30.0
"""Pause after a 401 or a proxy's page: a token or a network may be put right while the simulator runs."""
UNKNOWN_S: Final = 5.0
"""Pause when the server does not know the sim."""
SMALLEST: Final = 64 * 1024


class Relay:
    """Sends a growing log until `finish`.

    Args:
        client: Its calls retry; one that gives up in the end is repeated here while the simulator runs.
    """

    def __init__(self, client: Client, sim_id: str, spool: Spool, chunks: Chunks) -> None:
        self._client = client
        self._sim_id = sim_id
        self._spool = spool
        self.chunks = chunks
        self._limit = lines.CHUNK_BYTES
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"relay {sim_id}", daemon=True)
        self.trouble: str | None = None
        """Why the last chunk could not be sent; None when it could."""
        self.failed: CascadeError | None = None
        """Why there is no point in going on."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """The log is complete: send what is left. Raises CascadeError when that can't be done."""
        self._ended.set()
        self._thread.join()
        if self.failed is None:
            while self._step(whole=True):
                pass
        if self.failed is not None:
            raise self.failed

    @property
    def busy(self) -> bool:
        """Whether its thread is still there."""
        return self._thread.is_alive()

    def leave(self, seconds: float) -> None:
        """Send what is there for so many seconds at most: what is not sent by then is the next worker's."""
        deadline = time.monotonic() + seconds
        while self._thread.is_alive() and self._waiting() and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self._ended.set()
        self._thread.join(max(deadline - time.monotonic(), POLL_S))

    def close(self) -> None:
        """Begin no other call."""
        self._ended.set()
        self.chunks.close()

    def resend(self, missing: list[list[int]], next_seq: int) -> None:
        """Send again what the server has not got, though it said it had: of another worker's, nothing is here.

        Args:
            missing, next_seq: What the server says of its log: gaps, and where it ends.
        """
        end = self.chunks.seq - 1
        for first, last in [*missing, [next_seq, end]]:
            low, high = max(first, self.chunks.first_seq), min(last, end)
            for seq in range(low, high + 1):
                self._client.send_log_chunk(
                    self._sim_id, seq, self.chunks.read(self._spool.log, seq - self.chunks.first_seq)
                )

    def _run(self) -> None:
        sent_at = 0.0
        while not self._ended.is_set():
            if time.monotonic() - sent_at >= CUT_S or self._waiting() >= self._limit:
                sent_at = time.monotonic()
                try:
                    while self._step(whole=False) and not self._ended.is_set():
                        pass
                except (Unauthorized, NotCascade) as error:
                    self.trouble = str(error)
                    self._ended.wait(REFUSED_S)
                except NotFound as error:  # whether that is to be believed the heartbeats tell
                    self.trouble = str(error)
                    self._ended.wait(UNKNOWN_S)
                except CascadeError as error:
                    self.trouble = str(error)
                    if not isinstance(error, Unavailable):
                        self.failed = error
                        return
            self._ended.wait(POLL_S)

    def _waiting(self) -> int:
        return self._spool.log_bytes - self.chunks.start

    def _step(self, whole: bool) -> bool:
        """Send one chunk; whether there was one."""
        if not self.chunks.pending and not self._cut(whole):
            return False
        position = self.chunks.acked
        new = self.chunks.read(self._spool.log, position)
        self._send(position, new)
        return True

    def _cut(self, whole: bool) -> bool:
        try:
            with self._spool.log.open("rb") as file:
                file.seek(self.chunks.start)
                data = file.read(self._limit + lines.LOOKAHEAD)
        except FileNotFoundError:
            return False
        end = lines.cut(data, whole, self._limit)
        if end:
            self.chunks.cut(self.chunks.start + end)
        return bool(end)

    def _send(self, position: int, new: list[str]) -> None:
        try:
            self._client.send_log_chunk(self._sim_id, self.chunks.seq, new)
        except TooLarge:
            if self._limit > SMALLEST:
                self._limit //= 2  # a door on the way that takes less than the API does
                self._recut()
                return
            self._note(position, new, "too large for the server")
            return
        except (Rejected, Conflict, NotCascade) as error:
            if isinstance(error, NotCascade):
                self._client.health()  # raises too, when it is not this chunk alone that does not get through
            self._note(position, new, str(error))
            return
        self.trouble = None
        self.chunks.ack(len(new))

    def _recut(self) -> None:
        if self.chunks.ends[self.chunks.acked] - self.chunks.start > self._limit:
            with self._spool.log.open("rb") as file:
                file.seek(self.chunks.start)
                data = file.read(self._limit + lines.LOOKAHEAD)
            self.chunks.cut(self.chunks.start + lines.cut(data, False, self._limit))

    def _note(self, position: int, new: list[str], why: str) -> None:
        if position in self.chunks.notes:
            raise Rejected(why)
        self.chunks.note(
            f"[cascade worker: {len(new)} lines are only in accelsim.log.gz, since they were refused: {why}]"
        )
