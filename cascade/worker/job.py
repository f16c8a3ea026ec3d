"""One sim, from its start to its final heartbeat, and from wherever an earlier worker left it."""

import itertools
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

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What all jobs of a worker have in common."""

    connect: Callable[[float, float], Client]
    """Makes a client from seconds a try and seconds before giving up."""
    root: Path
    grace_s: float
    success: str
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
        self.story = Story(spool.log, story.count_kernels(self.sim.argv))
        self.state = "starting"
        self.began = time.monotonic()
        self._cancelled = threading.Event()
        self._gone = threading.Event()
        self._stop = threading.Event()
        self._client = settings.connect(60.0, settings.give_up_after)
        self.heart = Heart(
            lambda timeout: settings.connect(timeout, 0), self.sim.sim_id, self._heard, self._gone.set, spool.touch
        )

    def stop(self, why: str) -> None:
        """End the simulator and report `why`. May be called from any thread and from a signal handler's thread."""
        if self.sim.stop_reason is None:
            self.sim.stop_reason = why
        self._stop.set()

    def run(self) -> str:
        """Do everything that is left to do. Returns the sim's state at the server, or `gone`.

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
            self.state = "delivering"
            state = self._deliver(end, relay)
        except NotFound:
            state = GONE
        finally:
            self.heart.stop()
            relay.chunks.close()
            self._client.close()
        self.spool.finish(state)
        self.spool.remove(self.settings.keep)
        return state

    # Heartbeats.

    def _heard(self, ack: HeartbeatAck) -> None:
        if ack.cancel:
            self._cancelled.set()

    # The simulator.

    def _simulate(self) -> Exit:
        """Run it, or go on with the one that an earlier worker started."""
        if self.sim.attempt == 0:
            simulator = self._start()
        else:
            simulator = self.spool.simulator(self.sim.attempt)
            if simulator.exit() is None and not simulator.alive():
                # The machine went down, or somebody killed the warden: what ran cannot be trusted, so it runs again.
                simulator.kill_leftover()
                self.say(f"{self.sim.sim_id}: the simulator died with its warden, starting it again")
                simulator = self._start()
            else:
                self.say(f"{self.sim.sim_id}: taken up where it was")
        self.state = "running"
        return self._watch(simulator)

    def _start(self) -> Simulator:
        if self.sim.stop_reason is not None or self._gone.is_set():
            return self.spool.simulator(self.sim.attempt)
        self.sim.attempt += 1
        self.spool.save(self.sim)
        simulator = self.spool.simulator(self.sim.attempt)
        work = self.spool.folder / "work"
        work.mkdir(exist_ok=True)
        simulator.start(self.sim.argv, work, self.spool.log, self.spool.beat_file, self.settings.grace_s)
        return simulator

    def _watch(self, simulator: Simulator) -> Exit:
        read_at, stopped = 0.0, False
        while True:
            end = simulator.exit()
            if end is not None:
                return end
            if not simulator.alive():
                end = simulator.exit()
                return end or Exit(None, error="the process that watched the simulator was killed")
            if not stopped and (self._cancelled.is_set() or self._gone.is_set() or self._stop.is_set()):
                stopped = True
                if self.sim.stop_reason is None:
                    self.sim.stop_reason = "cancelled" if self._cancelled.is_set() else "the sim was deleted"
                self.spool.save(self.sim)
                self.state = "stopping"
                simulator.stop()
            if time.monotonic() - read_at > STORY_S:
                self.story.read()
                read_at = time.monotonic()
            self._stop.wait(POLL_S) if not stopped else time.sleep(POLL_S)

    # The end.

    def _deliver(self, end: Exit, relay: Relay) -> str:
        """Everything in its order: the log, what is missing of it, step timing, files, the log as a file, the last beat."""
        sim_id = self.sim.sim_id
        relay.finish()
        relay.resend(self._client.show_sim(sim_id).log.missing)
        self.story.finish()
        outputs = Outputs(self._client, sim_id, self.spool.folder)
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
            path = (trace if trace.is_dir() else trace.parent) / "real_timeline.json"
            return path if path.is_file() else None
    return None


def describe(error: CascadeError, spool: Spool) -> str:
    """What a person can do when the rest could not be delivered."""
    return f"{error}; nothing is lost: run `cascade worker --sim {spool.folder.name}` again to deliver what is left"
