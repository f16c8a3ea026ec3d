"""Heartbeats from a thread of their own, which nothing else can hold up.

Each try is made by a thread of its own too. A try that has not come back after half an interval is left to itself and
the next one starts on another connection, so a server that swallows requests or answers a byte a minute costs one try
and not the sim. A late answer still counts.
"""

import contextlib
import os
import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from cascade.client import CascadeError, Client, NotFound, Unauthorized
from chalicelib.models import HeartbeatAck

INTERVAL_S: Final = 5.0
TRY_TIMEOUT_S: Final = 30.0
TRIES_MAX: Final = 16
"""Tries under way at once; more would mean that even closed connections do not end."""
GONE_TRIES: Final = 5
GONE_S: Final = 30.0
"""A sim is gone once so many answers, and none else in between, have said so for so long."""


def server_timeout_s() -> float:
    """Silence after which the server calls a sim lost: its `CASCADE_HEARTBEAT_TIMEOUT_S`, 60 s unless told here too."""
    with contextlib.suppress(ValueError):
        return max(float(os.environ.get("CASCADE_HEARTBEAT_TIMEOUT_S", "60")), 0.3)
    return 60.0


def gone_after_s() -> float:
    """Seconds for which the server must say that it does not know a sim until that is believed: it may have been started
    with a wrong data folder. `CASCADE_WORKER_GONE_S` is for tests."""
    with contextlib.suppress(KeyError, ValueError):
        return float(os.environ["CASCADE_WORKER_GONE_S"])
    return max(GONE_S, server_timeout_s())


class Heart:
    """Beats for one sim until stopped.

    Args:
        connect: Makes a client that tries each call once.
        on_ack: Called with each answer, from a thread of a try.
        on_gone: Called when the server has not known the sim for long enough.
        on_beat: Called before each try.
    """

    def __init__(
        self,
        connect: Callable[[float], Client],
        sim_id: str,
        on_ack: Callable[[HeartbeatAck], None],
        on_gone: Callable[[], None],
        on_beat: Callable[[], None],
    ) -> None:
        third = server_timeout_s() / 3
        self.interval = min(INTERVAL_S, third / 2)
        self._retry_max = third / 2
        self._connect = connect
        self._sim_id = sim_id
        self._on_ack = on_ack
        self._on_gone = on_gone
        self._on_beat = on_beat
        self._clients: queue.SimpleQueue[Client] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._under_way = 0
        self._unknown: list[float] = []
        """When the server said that it does not know the sim: the first time and the last ones, since any other answer."""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"heart {sim_id}", daemon=True)
        self.last_ack: float | None = None
        """When the last answer came, by the monotonic clock, in seconds."""
        self.trouble: str | None = None
        """Why the last try failed; None once one succeeds."""
        self.refused = False
        """The last try was refused for its token."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """No beat starts after this. One that is under way may still arrive; behind a final one it changes nothing."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        while True:
            try:
                self._clients.get_nowait().close()
            except queue.Empty:
                return

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            began = time.monotonic()
            self._on_beat()
            if self._try():
                failures = 0
                wait = self.interval - (time.monotonic() - began)
            else:
                failures += 1
                bound = min(0.2 * 2**failures, self.interval, self._retry_max)
                wait = bound * random.uniform(0.5, 1)  # noqa: S311  spreads a fleet, no secret
            self._stopped.wait(max(wait, 0.0))

    def _try(self) -> bool:
        """One beat; whether it was answered within half an interval."""
        with self._lock:
            if self._under_way >= TRIES_MAX:
                return False
            self._under_way += 1
        done = threading.Event()
        answered: list[bool] = []

        def send() -> None:
            try:
                answered.append(self._send())
            finally:
                with self._lock:
                    self._under_way -= 1
                done.set()

        threading.Thread(target=send, name=f"beat {self._sim_id}", daemon=True).start()
        done.wait(max(self.interval / 2, 0.1))
        return bool(answered and answered[0])

    def _send(self) -> bool:
        try:
            client = self._clients.get_nowait()
        except queue.Empty:
            client = self._connect(TRY_TIMEOUT_S)
        try:
            ack = client.heartbeat(self._sim_id)
        except NotFound as error:
            client.close()
            self.trouble, self.refused = str(error), False
            if self._is_gone(time.monotonic()):
                self._on_gone()
            return True
        except CascadeError as error:
            client.close()  # whatever was wrong, the next try gets a fresh connection
            self._unknown = []
            self.trouble = str(error)
            self.refused = isinstance(error, Unauthorized)
            return False
        if self._stopped.is_set():
            client.close()
        else:
            self._clients.put(client)
        self._unknown = []
        self.last_ack = time.monotonic()
        self.trouble, self.refused = None, False
        self._on_ack(ack)
        return True

    def _is_gone(self, now: float) -> bool:
        """Whether that the server does not know the sim, as it says now again, is to be believed."""
        with self._lock:
            self._unknown.append(now)
            del self._unknown[1 : 1 - GONE_TRIES]
            return len(self._unknown) >= GONE_TRIES and now - self._unknown[0] >= gone_after_s()
