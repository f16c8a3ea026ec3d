"""One sim, from its start to its final heartbeat, and from wherever an earlier worker left it."""

import contextlib
import itertools
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from cascade.client import CascadeError, Client, NotFound
from cascade.worker import story
from cascade.worker.heart import Heart
from cascade.worker.outputs import Outputs
from cascade.worker.process import Exit, Simulator
from cascade.worker.relay import Relay
from cascade.worker.spool import Sim, Spool
from cascade.worker.story import Story
from chalicelib.models import HeartbeatAck

POLL_S: Final = 0.1
STORY_S: Final = 0.5
GONE: Final = "gone"
LEFT: Final = "left for the next worker"
TOLD_S: Final = 5.0
"""Slurm tells all processes of a job to end: the simulator may hear it first, this one then within that time."""
ANSWER_S: Final = 5.0
"""So long a simulator that starts again waits for the server's word whether it still should."""
LEAVE_MIN_S: Final = 2.0
"""Time for the log of a sim that is left, however short the grace."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What all jobs of a worker have in common."""

    connect: Callable[[float, float], Client]
    """Makes a client from seconds a try and seconds before giving up."""
    root: Path
    grace_s: float
    success: str
    leave: bool
    """Whether a worker that is told to stop leaves its sims for the next one, and does not report them as failed."""
    give_up_after: float
    keep: bool


class Job:
    """Runs one sim.

    Args:
        spool: Its folder, locked, which knows the sim.
        say: Takes a line for people.
    """

    def __init__(self, settings: Settings, spool: Spool, say: Say) -> None:
        if spool.sim is None:
            raise ValueError("the spool knows no sim")
        self.settings = settings
        self.spool = spool
        self.sim: Sim = spool.sim
        self.say = say
        self.story = Story(spool.log, story.count_kernels(self.sim.argv), self.sim.log_start)
        self.state = "starting"
        self.began = time.monotonic()
        self.ran_s: float | None = None
        """How long the simulator ran, under whatever worker; None while it does."""
        self._cancelled = threading.Event()
        self._gone = threading.Event()
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._why = ""
        self._unsaved_said = False
        self._client = self._connect(60.0, settings.give_up_after)
        self.heart = Heart(
            lambda timeout: self._connect(timeout, 0), self.sim.sim_id, self._heard, self._gone.set, spool.touch
        )

    def _connect(self, timeout: float, give_up_after: float) -> Client:
        client = self.settings.connect(timeout, give_up_after)
        client.named = self.sim.sim_id
        return client

    def stop(self, why: str) -> None:
        """End the simulator, for the reason `why`; a sim whose simulator has ended is delivered as it is.

        May be called from any thread and from a signal handler's thread.
        """
        self._why = self._why or why
        self._stop.set()

    def cancel(self) -> None:
        """The server has said so already."""
        self._cancelled.set()

    def run(self) -> str:
        """Do everything that is left to do. Returns the sim's state at the server, or GONE, or LEFT.

        Raises:
            CascadeError: the server would not take the rest; it stays in the spool for `cascade worker --sim`.
            OSError: the disk failed.
        """
        done = self.spool.done
        if done is not None:
            self.spool.remove(self.settings.keep)
            return done
        relay = Relay(self._client, self.sim.sim_id, self.spool, self.spool.chunks(self.sim.first_seq))
        self.heart.start()
        relay.start()
        try:
            end = self._simulate()
            self.ran_s = end.seconds or None
            if self._is_left(end):
                self._leave(relay)
                return LEFT
            self.state = "delivering"
            state = self._deliver_or_gone(end, relay)
        finally:
            self.heart.stop()
            relay.close()
            if not relay.busy:  # its last call ends with the process
                self._client.close()
        if state == GONE:
            self.say(
                f"{self.sim.sim_id}: the server does not know {self.sim.sim_id}; its output is kept in {self.spool.folder}"
            )
            return state
        with contextlib.suppress(OSError):  # a full disk, on which there is room once the folder is gone
            self.spool.finish(state)
        self.spool.remove(self.settings.keep)
        return state

    # Heartbeats.

    def _heard(self, ack: HeartbeatAck) -> None:
        if ack.cancel:
            self._cancelled.set()
        self._answered.set()

    # The simulator.

    def _simulate(self) -> Exit:
        """Run it, or go on with the one that an earlier worker started."""
        return (self._take_up() if self.sim.attempt else None) or self._start()

    def _take_up(self) -> Exit | None:
        """Go on with an earlier worker's attempt. None: it came to nothing, and the simulator has to start again."""
        simulator = self.spool.simulator(self.sim.attempt)
        if not simulator.started:
            self.say(f"{self.sim.sim_id}: taken up before its simulator was started")
            self._answered.wait(ANSWER_S)
            self.sim.attempt -= 1
            return None
        if not simulator.alive() and simulator.exit() is None:
            # The machine went down, or somebody killed the warden: what ran cannot be trusted, so it runs again.
            simulator.kill_leftover()
            if self.sim.stop_reason is None:
                self.say(f"{self.sim.sim_id}: the simulator died with its warden, starting it again")
            return None
        if not self.sim.leaving:
            self.say(f"{self.sim.sim_id}: taken up where it was")
            return self._watch(simulator)
        simulator.stop()  # its worker may have been killed before it came to that
        end = self._watch(simulator)
        if not end.interrupted or self._asked():
            return end
        self.say(f"{self.sim.sim_id}: left by a worker that was told to stop, starting the simulator again")
        return None

    def _start(self) -> Exit:
        again = self.sim.attempt > 0
        if again:
            self._answered.wait(ANSWER_S)
        if self.sim.stop_reason is not None or self._asked():
            self._settle()
            return Exit(None, error="the simulator was not started", interrupted=True)
        self.sim.attempt += 1
        self.sim.leaving = False
        if again:
            self.spool.remark(f"attempt {self.sim.attempt}, the simulator is started again")
        elif self.sim.first_seq:
            self.spool.remark(
                "another attempt, the simulator is started again by a worker that has nothing of the last one"
            )
        self.sim.log_start = self.spool.log_bytes
        self.story = Story(self.spool.log, self.story.expected, self.sim.log_start)
        self.spool.save(self.sim)
        simulator = self.spool.simulator(self.sim.attempt)
        work = self.spool.folder / "work"
        work.mkdir(exist_ok=True)
        for path in self.sim.copies:
            try:
                self._copy(Path(path), work)
            except OSError as error:
                return Exit(None, error=f"{path} can't be copied: {error.strerror or error}")
        simulator.start(
            self.sim.argv, work, self.spool.log, self.spool.beat_file, self.settings.grace_s, self._variables()
        )
        return self._watch(simulator)

    def _copy(self, path: Path, work: Path) -> None:
        """Put a file into the simulator's folder, in the place of what an earlier attempt has there, whatever it is."""
        partial = self.spool.folder / "copy.part"
        partial.unlink(missing_ok=True)
        shutil.copy(path, partial)
        partial.replace(work / path.name)

    def _variables(self) -> dict[str, str]:
        """What a job script can go by."""
        return {
            "CASCADE_SIM_ID": self.sim.sim_id,
            "CASCADE_RUN_ID": self.sim.run_id,
            "CASCADE_ATTEMPT": str(self.sim.attempt),
        }

    def _watch(self, simulator: Simulator) -> Exit:
        self.state = "running"
        read_at, stopped = 0.0, False
        while True:
            alive = simulator.alive()
            end = simulator.exit()
            if end is not None or not alive:
                if end is None:
                    simulator.kill_leftover()  # or it would run on for ever, and write into what is read next
                    end = Exit(None, error="the process that watched the simulator was killed", interrupted=True)
                if end.interrupted and not stopped and not self.sim.leaving and self._stop.wait(TOLD_S):
                    self._settle()
                return end
            if not stopped and self._asked():
                stopped = True
                self._settle()
                self.state = "stopping"
                simulator.stop()
            if time.monotonic() - read_at > STORY_S:
                self.story.read()
                read_at = time.monotonic()
            self._stop.wait(POLL_S) if not stopped else time.sleep(POLL_S)

    def _asked(self) -> bool:
        """Whether the simulator is to end, whoever wants it."""
        return self._cancelled.is_set() or self._gone.is_set() or self._stop.is_set()

    def _settle(self) -> None:
        """Write down why the simulator ends, before it does: a worker that is killed next must not change that."""
        if self._cancelled.is_set() or self._gone.is_set():
            self.sim.leaving = False
            reason = "cancelled" if self._cancelled.is_set() else "the server did not know the sim"
        else:
            self.sim.leaving = self.settings.leave and self.sim.stop_reason is None
            reason = self._why
        if not self.sim.leaving:
            self.sim.stop_reason = self.sim.stop_reason or reason
        try:
            self.spool.save(self.sim)
        except OSError as error:  # no reason to let the simulator run on
            self._unsaved(error)

    def _unsaved(self, error: OSError) -> None:
        """Say once that the spool does not take what became of the sim."""
        if not self._unsaved_said:
            self._unsaved_said = True
            what = "left" if self.sim.leaving else "stopped"
            self.say(
                f"{self.sim.sim_id}: {self.spool.folder} can't be written ({error.strerror or error}): make room there, "
                f"or a worker that takes the sim up does not know that it was {what} and reports it as killed"
            )

    # A sim that is gone.

    def _deliver_or_gone(self, end: Exit, relay: Relay) -> str:
        """The sim's state at the server once all is delivered; GONE once the server has not known it for long enough."""
        while True:
            gone = self._gone.is_set()
            try:
                return self._deliver(end, relay)
            except NotFound:
                if gone:
                    return GONE
                self.state = "unknown to the server"
                self._gone.wait(self.heart.interval)

    # A sim that is left.

    def _is_left(self, end: Exit) -> bool:
        """Whether the next worker starts the simulator again. One that ended by itself is delivered."""
        return self.sim.leaving and end.interrupted and not (self._cancelled.is_set() or self._gone.is_set())

    def _leave(self, relay: Relay) -> None:
        """Nothing is final: the log goes as far as it gets, and the spool stays."""
        self.state = "leaving"
        if self.sim.attempt:
            self.spool.remark(
                f"attempt {self.sim.attempt} ends, {self._why}; the next worker starts the simulator again"
            )
        self.story.read()
        relay.leave(max(self.settings.grace_s, LEAVE_MIN_S))
        if self._unsaved_said:
            try:
                self.spool.save(self.sim)  # there may be room by now
            except OSError:
                self.say(f"{self.sim.sim_id}: its output stays in {self.spool.folder}")
                return
        self.say(
            f"{self.sim.sim_id}: left in {self.spool.folder}: the next worker on this spool starts its simulator again"
        )

    # The end.

    def _deliver(self, end: Exit, relay: Relay) -> str:
        """Everything in its order: the log, what is missing of it, step timing, files, the log as a file, the last beat."""
        sim_id = self.sim.sim_id
        outputs = Outputs(self._client, sim_id, self.spool.folder)
        with outputs.noting("the log but as a file"):
            relay.finish()
        with outputs.noting("chunks of the log"):
            log = self._client.show_sim(sim_id).log
            relay.resend(log.missing, log.next_seq)
        self.story.finish()
        self._send_step_timing(outputs)
        outputs.send_all(self.spool.folder / "work")
        outputs.send_log(self.spool.log)
        state, reason = self._verdict(end)
        told = outputs.told()
        if told:
            reason = f"{reason}; {told}" if reason else told
        code = end.code
        ack = self._client.heartbeat(sim_id, state, code, reason)
        if reason and ack.state == "failed":
            self.say(f"{sim_id}: failed: {reason}")
        elif told:
            self.say(f"{sim_id}: {told}")
        return ack.state

    def _verdict(self, end: Exit) -> tuple[Literal["succeeded", "failed"], str | None]:
        if self.sim.stop_reason is not None:
            return "failed", f"{self.sim.stop_reason}; {self.story.progress()}"
        return self.story.judge(end, self.sim.success)

    def _send_step_timing(self, outputs: Outputs) -> None:
        """Simulated and compared step timing, when the trace has a measured timeline beside it."""
        timeline = _real_timeline(self.sim.argv)
        if timeline is None or self.sim.stop_reason is not None:
            return
        from cascade.timeline.model import TimelineError
        from cascade.timeline.whole import simulate_and_compare

        with outputs.noting("step timing"):
            try:
                simulated, compare = simulate_and_compare(timeline, self.spool.log)
            except TimelineError as error:
                outputs.problems.append(f"step timing: {' '.join(str(error).split())}")
                return
            self._client.send_step_timeline(self.sim.sim_id, simulated, compare)


def _real_timeline(argv: list[str]) -> Path | None:
    """`real_timeline.json` beside the trace that the argument after `-trace` names."""
    for option, value in itertools.pairwise(argv):
        if option == "-trace":
            trace = Path(value)
            with contextlib.suppress(OSError, ValueError):  # it can't be a path at all
                path = (trace if trace.is_dir() else trace.parent) / "real_timeline.json"
                return path if path.is_file() else None
    return None


def describe(error: CascadeError, spool: Spool) -> str:
    """What a person can do when the rest could not be delivered."""
    return f"{error}; nothing is lost: run `cascade worker --sim {spool.folder.name}` again to deliver what is left"
