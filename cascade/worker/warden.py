"""The simulator's parent: a small process that outlives a killed worker, so that no simulation is lost with it.

It is started as a file, with nothing but the standard library, as `warden.py FOLDER LOCK_FD`. FOLDER holds `start.json`:

    {"argv": [...], "cwd": "...", "log": "...", "status": "...", "beat": "...", "grace_s": 10.0, "orphan_s": 900.0}

It runs `argv` in a session of its own and copies stdout and stderr into `log`, whole lines at a time, so that text of
one never lands inside a line of the other. A disk that is full holds the simulator up instead of losing its output.
SIGTERM is passed on to the simulator's process group, and after `grace_s` seconds SIGKILL. When the simulator's first
process ends, what is left of its group is ended too: the sim is over, and nothing may write behind its last line.

`status` tells the rest of the story: a JSON object padded to a fixed size and overwritten in place, since on a full disk
no new file could be written. The lock that LOCK_FD holds is free exactly when this process is gone.
"""

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import sys
import time

STATUS_BYTES = 4096
TOLD = "the simulator was told to stop"
"""`stopped` when SIGTERM came to this process."""
PIPE_BYTES = 1024 * 1024
READ_BYTES = 1024 * 1024
HOLD_BYTES = 64 * 1024
"""An unfinished line longer than this is written as far as it is."""
NAP_MAX_S = 0.02
"""Longest pause between two reads of a busy pipe. A reader that waits at the pipe costs the writer a context switch a
write, 20 % of its time when it prints 60 MB/s; one that naps costs nothing measurable."""
FULL_MAX_S = 600.0
"""A disk that stays full for this long ends the simulation."""


class Status:
    """The status file."""

    def __init__(self, path: str) -> None:
        self.values: dict[str, object] = {}
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def set(self, **values: object) -> None:
        """Add values and write all."""
        self.values.update(values)
        text = json.dumps(self.values).encode()
        if len(text) > STATUS_BYTES:
            raise ValueError("the status does not fit its file")
        os.pwrite(self.fd, text.ljust(STATUS_BYTES), 0)


class Stream:
    """One of the simulator's two pipes."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.open = True
        self.held = b""


class Warden:
    """See the module."""

    def __init__(self, start: dict[str, object]) -> None:
        self.argv: list[str] = start["argv"]  # type: ignore[assignment]
        self.grace_s: float = start["grace_s"]  # type: ignore[assignment]
        self.orphan_s: float = start["orphan_s"]  # type: ignore[assignment]
        self.beat_path = str(start["beat"])
        self.status = Status(str(start["status"]))
        self.status.set(
            warden=os.getpid(), host=os.uname().nodename, simulator=None, full=False, stopped=None, exit=None
        )
        self.log = os.open(str(start["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.unfinished: Stream | None = None
        """The stream whose unfinished line is the log's last."""
        self.waiting: list[bytes] = []
        """What a full disk has not taken yet."""
        self.full_since: float | None = None
        self.dropped = False
        self.asked = False
        self.kill_at: float | None = None
        self.beat: int | None = None
        self.beat_changed = time.monotonic()
        self.last_read = time.monotonic()
        self.pid = 0

    def run(self) -> None:
        """Run the simulator to its end and leave its exit in the status."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.ask)
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        oom_before = oom_kills()
        began = time.monotonic()
        streams = self.spawn()
        if streams is None:
            return
        poll = select.poll()
        poll.register(wake_read, select.POLLIN)
        for stream in streams:
            poll.register(stream.fd, select.POLLIN)
        reading = True
        while not self.ended():
            if reading is not (not self.waiting):  # a full disk: let the pipes fill, so that the simulator waits
                reading = not self.waiting
                for stream in streams:
                    if stream.open:
                        poll.modify(stream.fd, select.POLLIN if reading else 0)
            busy = {fd for fd, _ in poll.poll(200 if self.waiting else 1000)}
            if wake_read in busy:
                os.read(wake_read, 4096)
            if self.waiting:
                self.flush()
                time.sleep(0.05)
            else:
                self.pump([s for s in streams if s.open and s.fd in busy], poll)
            self.check_times()
        self.end_group()
        self.drain(streams)
        usage = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(usage[1])
        # Linux counts in KiB, macOS in bytes.
        memory = usage[2].ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        kills = oom_kills()
        self.status.set(
            exit={
                "code": code,
                "seconds": round(time.monotonic() - began, 3),
                "cpu_seconds": round(usage[2].ru_utime + usage[2].ru_stime, 3),
                "max_rss_bytes": memory,
                "oom_killed": kills is not None and oom_before is not None and kills > oom_before,
                "output_lost": self.dropped,
            }
        )

    def spawn(self) -> list[Stream] | None:
        """Start the simulator; None, with the reason in the status, when that can't be done."""
        streams = []
        actions: list[tuple[object, ...]] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        ends = []
        for target in (1, 2):
            read, write = os.pipe()
            with contextlib.suppress(OSError, AttributeError):  # a user over the limit of pipe pages keeps small pipes
                fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            os.set_blocking(read, False)
            streams.append(Stream(read))
            ends.append(write)
            actions.append((os.POSIX_SPAWN_DUP2, write, target))
        options: dict[str, object] = {
            "file_actions": actions,
            "setsigmask": (),
            "setsigdef": [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD],
        }
        try:
            try:
                self.pid = os.posix_spawn(self.argv[0], self.argv, os.environ, setsid=True, **options)  # type: ignore[arg-type]
            except NotImplementedError:
                # This system can't spawn into a new session: a group of its own is what can be had, and is all that is killed.
                self.pid = os.posix_spawn(self.argv[0], self.argv, os.environ, setpgroup=0, **options)  # type: ignore[arg-type]
        except (OSError, ValueError) as error:
            number, said = getattr(error, "errno", None), getattr(error, "strerror", None)
            hint = " (a script needs a #! line)" if number == errno.ENOEXEC else ""
            self.status.set(exit={"error": f"{self.argv[0][:500]} can't be started: {said or error}{hint}"})
            return None
        finally:
            for end in ends:
                os.close(end)
        self.status.set(simulator=self.pid, simulator_started=start_time(self.pid))
        return streams

    def ended(self) -> bool:
        """Whether the simulator's first process has ended. It stays a zombie, so that its id can't be another's."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def ask(self, *_: object) -> None:
        """Handler of SIGTERM: the loop, which the signal wakes, does the rest."""
        self.asked = True

    def stop(self, why: str) -> None:
        """SIGTERM to the group now, SIGKILL after the grace."""
        if self.kill_at is None and self.pid:
            self.kill_at = time.monotonic() + self.grace_s
            self.status.set(stopped=why)
            self.signal_group(signal.SIGTERM)
            self.signal_group(signal.SIGCONT)  # a stopped process would not see it

    def signal_group(self, number: int) -> None:
        """A signal to the simulator's process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def check_times(self) -> None:
        """What is due: SIGKILL, a worker that is gone, a disk that stays full."""
        now = time.monotonic()
        if self.asked:
            self.stop(TOLD)
        if self.kill_at is not None and now >= self.kill_at:
            self.signal_group(signal.SIGKILL)
            self.kill_at = now + 1.0
        with contextlib.suppress(OSError):
            beat = os.stat(self.beat_path).st_mtime_ns
            if beat != self.beat:  # only whether it changes counts: clocks jump
                self.beat, self.beat_changed = beat, now
        if now - self.beat_changed > self.orphan_s:
            self.stop(f"its worker was gone for {self.orphan_s:.0f} s")
        if self.full_since is not None and now - self.full_since > FULL_MAX_S:
            self.dropped = True
            self.waiting.clear()
            self.stop(f"the disk was full for {FULL_MAX_S:.0f} s")

    # The log.

    def pump(self, streams: list[Stream], poll: "select.poll | None") -> bool:
        """Copy what the pipes hold; whether there was anything."""
        taken = 0
        for stream in streams:
            try:
                data = os.read(stream.fd, READ_BYTES)
            except BlockingIOError:
                continue
            if not data:
                stream.open = False
                if poll:
                    poll.unregister(stream.fd)
                os.close(stream.fd)
                continue
            taken += len(data)
            self.take(stream, data)
        if taken and poll:
            # Nap for about a quarter of the pipe at the present rate.
            now = time.monotonic()
            rate = taken / max(now - self.last_read, 1e-6)
            self.last_read = now
            nap = min(NAP_MAX_S, PIPE_BYTES / 4 / rate)
            if nap > 0.0002:
                time.sleep(nap)
        return taken > 0

    def take(self, stream: Stream, data: bytes) -> None:
        """Write the whole lines of what came, and keep the rest."""
        data = stream.held + data
        end = len(data) - data.endswith(b"\r")  # its line feed may be still to come
        cut = max(data.rfind(b"\n", 0, end), data.rfind(b"\r", 0, end)) + 1
        if len(data) - cut > HOLD_BYTES:
            cut = end
        stream.held = data[cut:]
        if cut:
            self.write(stream, data[:cut])

    def write(self, stream: Stream, data: bytes) -> None:
        """Append to the log; a line of the other stream that is still unfinished ends here."""
        if self.unfinished not in (None, stream):
            data = b"\n" + data
        self.unfinished = None if data.endswith((b"\n", b"\r")) else stream
        self.waiting.append(data)
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as the disk takes it."""
        while self.waiting:
            try:
                written = os.write(self.log, self.waiting[0])
            except OSError as error:
                if self.full_since is None:
                    self.full_since = time.monotonic()
                    self.status.set(full=error.strerror or "full")
                return
            self.waiting[0] = self.waiting[0][written:]
            if not self.waiting[0]:
                self.waiting.pop(0)
        if self.full_since is not None:
            self.full_since = None
            self.status.set(full=False)

    # The end.

    def end_group(self) -> None:
        """End what the simulator's first process left in its group."""
        if not self.others():
            return
        self.stop("processes it left behind were ended")
        deadline = time.monotonic() + self.grace_s
        while self.others() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.signal_group(signal.SIGKILL)

    def others(self) -> bool:
        """Whether the group has living members besides its first."""
        try:
            entries = [entry for entry in os.listdir("/proc") if entry.isdigit()]
        except OSError:
            self.signal_group(signal.SIGTERM)  # no /proc here: nobody can be asked, so nobody is waited for
            return False
        for entry in entries:
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if int(fields[2]) == self.pid and int(entry) != self.pid and fields[0] not in (b"Z", b"X"):
                    return True
        return False

    def drain(self, streams: list[Stream]) -> None:
        """Take what is left in the pipes, then the lines that never ended."""
        while not self.waiting and self.pump([s for s in streams if s.open], None):
            pass
        for stream in streams:
            if stream.held and not self.waiting:
                held, stream.held = stream.held, b""
                self.write(stream, held)
        deadline = time.monotonic() + FULL_MAX_S
        while self.waiting and not self.asked and time.monotonic() < deadline:
            time.sleep(0.5)
            self.flush()
            if not self.waiting:
                return self.drain(streams)
        self.dropped = self.dropped or bool(self.waiting)
        return None


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie. False without /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def start_time(pid: int) -> str | None:
    """When a process started, in the kernel's ticks: with its id this names it for good. None without /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None


def oom_kills() -> int | None:
    """How often the kernel has killed in this process's cgroup for want of memory; None where it doesn't say."""
    try:
        with open("/proc/self/cgroup") as file:
            group = next(line.rstrip("\n").split(":", 2)[2] for line in file if line.startswith("0::"))
        with open(f"/sys/fs/cgroup{group}/memory.events") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def main(folder: str, lock: str) -> None:
    """Run what `start.json` in `folder` says."""
    os.set_inheritable(int(lock), False)
    with open(os.path.join(folder, "start.json")) as file:
        start = json.load(file)
    os.chdir(start["cwd"])
    Warden(start).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
