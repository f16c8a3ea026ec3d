"""Claims queued sims one after another and runs them, some at a time."""

import math
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from cascade.client import CascadeError, Client, Conflict, NotFound
from cascade.worker import command, spool
from cascade.worker.job import LEAVE_MIN_S, Job, Settings, describe
from cascade.worker.spool import Held, Sim, Spool
from cascade.worker.view import View
from chalicelib.models import SimDetail

FINAL: Final = ("succeeded", "failed", "cancelled")
WAIT_S: Final = 10.0
"""`--forever` looks for new sims this often."""


@dataclass(frozen=True)
class Limits:
    """How many sims, and for how long."""

    jobs: int = 1
    """At a time."""
    forever: bool = False
    """Whether to wait for more when nothing is queued."""
    max_sims: int | None = None
    """In all."""
    claim_s: float | None = None
    """Seconds after which no other is begun."""


class Worker:
    """See the module.

    Args:
        template: The simulator's command with placeholders.
        copies: Files for the simulator's folder, with placeholders.
        hurry: The clients' `stop`: set, no call that fails is repeated any more.
    """

    def __init__(
        self,
        settings: Settings,
        template: Sequence[str],
        copies: Sequence[str],
        limits: Limits,
        view: View,
        hurry: threading.Event,
    ) -> None:
        self._settings = settings
        self._template = list(template)
        self._copies = list(copies)
        self._limits = limits
        self._began = time.monotonic()
        self._taken = 0
        self._no_more: str | None = None
        self._idle_said = False
        self._view = view
        self._hurry = hurry
        self._stopping = threading.Event()
        self._why = "the worker was told to stop"
        self._lock = threading.Lock()
        self._jobs: list[Job] = []
        self._results: list[str] = []
        self._client: Client = settings.connect(30.0, settings.give_up_after)
        self.name = f"{socket.gethostname()}:{os.getpid()}"[:200]

    # What people call.

    def run_sim(self, sim_id: str) -> int:
        """One sim: a new one, one of a lost worker, or what is left of one. Returns the process's exit code."""
        with self._signals():
            try:
                found = self._client.show_sim(sim_id)
            except NotFound:
                if Path(sim_id).name == sim_id and (self._settings.root / sim_id / "sim.json").is_file():
                    self._one(sim_id)
                raise
            if found.state in FINAL and not (self._settings.root / sim_id).exists():
                self._over(sim_id, found.state)
            else:
                self._one(sim_id, must_run=True)
        return self._code()

    def run_run(self, run_id: str) -> int:
        """Sims of a run until none is queued. Returns the process's exit code: 0 when all it ran have succeeded."""
        with self._signals():
            try:
                self._check(run_id)
            except NotFound:
                for sim_id in spool.unfinished(self._settings.root, run_id):
                    self._one(sim_id, run_id)
                raise
            threads = [
                threading.Thread(target=self._take_turns, args=(run_id,), name=f"job {n}")
                for n in range(self._limits.jobs)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                # In pieces, so that signals are handled meanwhile.
                while thread.is_alive():
                    thread.join(0.2)
            if self._no_more:
                self._view.say(self._no_more)
            elif not self._results and not self._stopping.is_set():
                self._say_idle(run_id)
        return self._code()

    def _say_idle(self, run_id: str, more: str = "") -> None:
        """Say once why there is nothing to do."""
        with self._lock:
            if self._idle_said:
                return
            self._idle_said = True
        counts = self._client.show_run(run_id).counts.model_dump()
        told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        self._view.say(f"nothing queued: {told or 'the run has no sims'}{more}")

    def _code(self) -> int:
        return 0 if all(state == "succeeded" for state in self._results) else 1

    # Before anything starts.

    def _check(self, run_id: str) -> None:
        """An unknown placeholder is an error before a sim is taken. Raises CommandError, CascadeError."""
        command.resolve([self._template[0]] if "{" not in self._template[0] else [sys.executable], Path.cwd())
        wanted = [name for text in (self._template, self._copies) for name in command.names(text)]
        queued = next((sim for sim in self._client.show_run(run_id).sims if sim.state == "queued"), None)
        if queued and (wanted or self._copies):
            params = self._client.show_sim(queued.id).params
            command.fill(self._template, params, queued.id)
            command.files(command.fill(self._copies, params, queued.id), Path.cwd())

    # Taking sims.

    def _take_turns(self, run_id: str) -> None:
        try:
            for claim in spool.old_claims(self._settings.root, run_id):
                with suppress(Conflict):
                    found = self._client.claim(run_id, claim.worker, claim.key)
                    if found and found.state not in FINAL:  # running, or lost since
                        with self._lock:
                            self._taken += 1  # it is this worker's already, whatever the limit
                        self._one(found.id)
                claim.close()
            for sim_id in spool.unfinished(self._settings.root, run_id):
                if not self._may_take():
                    return
                ran = False
                try:
                    ran = self._one(sim_id, run_id)
                except OSError as error:  # of its folder, and no reason to take no other
                    self._failed(f"{sim_id}: {error}")
                if not ran:
                    self._take_back()
            while self._may_take():
                claim = spool.new_claim(self._settings.root, run_id, self.name)
                found = self._client.claim(run_id, self.name, claim.key)
                if found:
                    self._one(found.id, claim=claim, found=found)
                else:
                    claim.close()
                    self._take_back()
                    if not self._limits.forever:
                        return
                    if not self._jobs:
                        self._say_idle(run_id, "; waiting for more")
                    wait = WAIT_S * random.uniform(0.5, 1.5)  # noqa: S311  spreads a fleet, no secret
                    self._stopping.wait(min(wait, self._claim_s_left()))
        except (CascadeError, OSError) as error:
            self._failed(str(error))
        except Exception as error:  # noqa: BLE001  a thread that ends unheard would leave exit code 0
            self._failed(f"unexpected {type(error).__name__}: {' '.join(str(error).split())}")

    def _claim_s_left(self) -> float:
        if self._limits.claim_s is None:
            return math.inf
        return max(self._began + self._limits.claim_s - time.monotonic(), 0.0)

    def _may_take(self) -> bool:
        """Whether another sim may begin; counted as if it did."""
        with self._lock:
            if self._stopping.is_set():
                return False
            if self._limits.max_sims is not None and self._taken >= self._limits.max_sims:
                self._no_more = f"no other sim after {self._taken}, as --max-sims says"
                return False
            if not self._claim_s_left():
                self._no_more = f"no other sim after {self._limits.claim_s:.0f} s, as --stop-claiming-after says"
                return False
            self._taken += 1
            return True

    def _take_back(self) -> None:
        """It did not."""
        with self._lock:
            self._taken -= 1

    def _failed(self, why: str) -> None:
        self._view.say(f"error: {why}", error=True)
        with self._lock:
            self._results.append("error")

    def _one(
        self,
        sim_id: str,
        run_id: str | None = None,
        must_run: bool = False,
        claim: spool.Claim | None = None,
        found: SimDetail | None = None,
    ) -> bool:
        """Run a sim that this worker may run, or do what is left of it; whether it was this worker that had it.

        Args:
            run_id: The sim was found in the spool, as one of this run: only what is there is taken up.
            must_run: That another worker of this machine has it is an error.
            claim: How it came here, else.
            found: What the claim's answer said of it.
        """
        try:
            place = Spool.take(self._settings.root, sim_id)
        except Held as held:
            if claim:
                claim.close()
            if must_run:
                self._failed(str(held))
            return False
        try:
            if run_id and place.sim is None and not place.broken:
                place.remove_if_empty()  # another worker or thread was done with it before it was locked here
                return False
            # Asked for only now: before, the state could change until the lock was there.
            found = found or self._client.show_sim(sim_id)
            if place.sim is None and run_id not in (None, found.run_id):
                return False
            if found.state in FINAL and not self._is_left(place, found):
                self._over(sim_id, found.state)
                self._drop(place, found.state)
                return False
            if place.sim is None:
                if run_id and found.state == "queued":
                    return False  # a claim brings it here
                if place.broken:
                    self._view.say(
                        f"{sim_id}: its sim.json in {place.folder} can't be read: nothing is taken up, it is run anew"
                    )
                place.end_simulators(self._settings.grace_s)
                place.clear()
                place.save(self._new(found))
            if claim:
                claim.close()  # the spool remembers the sim from here on
            self._run(place, cancelled=found.state == "cancelled")
        except NotFound as error:
            if claim:
                claim.close()
            return self._unknown(place, error)
        except command.CommandError as error:
            if claim:
                claim.close()
            self._client.heartbeat(sim_id, "failed", None, str(error))
            self._failed(f"{sim_id}: {error}")
            place.remove()
        finally:
            place.close()
        return True

    def _unknown(self, place: Spool, error: NotFound) -> bool:
        """What becomes of a sim here that the server does not know; whether its simulator was still there."""
        # Something on the way may answer 404 too; and a folder without a readable sim.json may be another server's.
        if place.sim is None or place.sim.sim_id not in str(error):
            place.remove_if_empty()
            return False
        if place.done is None and place.simulator(place.sim.attempt).alive():
            self._run(place, cancelled=False)  # which ends it once the server has said so for long enough
            return True
        self._view.say(
            f"{error}: deleted, or another server's; what it left is in {place.folder}, to be removed by hand",
            error=True,
        )
        return False

    def _is_left(self, place: Spool, found: SimDetail) -> bool:
        """Whether there is something to deliver of a sim that has a final state at the server already."""
        if place.sim is None:
            return False
        # How a cancelled one came to its end is still to be told; of others this may be a repeat of the last words.
        simulator = place.simulator(place.sim.attempt)
        return (
            found.state == "cancelled" or place.done is not None or (simulator.started and simulator.exit() is not None)
        )

    def _over(self, sim_id: str, state: str) -> None:
        self._view.say(f"{sim_id} has {state} already")
        with self._lock:
            self._results.append(state)

    def _drop(self, place: Spool, state: str) -> None:
        """Remove what is left of a sim that is over."""
        place.end_simulators(self._settings.grace_s)
        place.finish(state)
        place.remove(self._settings.keep or place.sim is None)  # who began it may have wanted to keep that

    def _new(self, found: SimDetail) -> Sim:
        here = Path.cwd()
        return Sim(
            found.id,
            found.run_id,
            found.name,
            found.params,
            argv=command.resolve(command.fill(self._template, found.params, found.id), here),
            success=self._settings.success,
            first_seq=found.log.next_seq,
            copies=command.files(command.fill(self._copies, found.params, found.id), here),
        )

    def _run(self, place: Spool, cancelled: bool) -> None:
        job = Job(self._settings, place, self._view.say)
        if cancelled:
            job.cancel()
        with self._lock:
            self._jobs.append(job)
            if self._stopping.is_set():
                job.stop(self._why)
        self._view.begin(job)
        state = "error"
        try:
            state = job.run()
        except CascadeError as error:
            self._view.say(f"{job.sim.sim_id}: {describe(error, place)}", error=True)
        except OSError as error:
            self._view.say(f"{job.sim.sim_id}: {error}", error=True)
        except Exception as error:  # noqa: BLE001  it costs this sim alone
            why = f"unexpected {type(error).__name__}: {' '.join(str(error).split())}"
            self._view.say(f"{job.sim.sim_id}: {why}", error=True)
        finally:
            with self._lock:
                self._jobs.remove(job)
                self._results.append(state)
            self._view.end(job, state)

    # Signals.

    def _signals(self) -> "_Signals":
        return _Signals(self._stop)

    def _stop(self, number: int) -> None:
        name = signal.Signals(number).name
        self._why = f"the worker was told to stop ({name}): a time limit, a preemption or a person"
        with self._lock:
            if self._stopping.is_set() or not self._jobs:
                self._hurry.set()
        self._stopping.set()
        if self._settings.leave:
            # What can't be sent by then is the next worker's, and what stops this one is about to lose its patience.
            timer = threading.Timer(self._settings.grace_s + max(self._settings.grace_s, LEAVE_MIN_S), self._hurry.set)
            timer.daemon = True
            timer.start()
            self._view.say(f"{name}: stopping the simulators, leaving their sims for the next worker")
        else:
            self._view.say(f"{name}: stopping the simulators and reporting")
        for job in list(self._jobs):
            job.stop(self._why)


class _Signals:
    """Hands SIGTERM and SIGINT to a thread, since a handler must not wait for a lock that its own thread holds."""

    def __init__(self, stop: "object") -> None:
        self._stop = stop
        self._before: dict[int, object] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        threading.Thread(target=self._stop, args=(number,), name="stop").start()  # type: ignore[arg-type]


def default_root() -> Path:
    """Where spools are kept: `$CASCADE_SPOOL_DIR`, else `cascade/worker` in the user's state folder."""
    given = os.environ.get("CASCADE_SPOOL_DIR")
    if given:
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "cascade" / "worker"


def forever(seconds: float | None) -> float:
    """`None` as no end."""
    return math.inf if seconds is None else seconds
