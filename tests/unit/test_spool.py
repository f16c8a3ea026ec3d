"""How a log was cut, as a worker that was killed left it: the next one sends the very same chunks."""

from pathlib import Path

import pytest

from cascade.client import CascadeError, NotCascade, NotFound, Unauthorized, Unavailable
from cascade.worker import relay as module
from cascade.worker.relay import Relay
from cascade.worker.spool import Chunks, Spool
from tests.waiting import eventually

SIM = "sim-0123456789ab"


class Killed(BaseException):
    """Nothing of the worker goes on after it."""


class Server:
    """Stores the first chunk of a seq, as the API does; the worker may be killed before it hears of that."""

    def __init__(self) -> None:
        self.stored: dict[int, list[str]] = {}
        self.sent: list[tuple[int, list[str]]] = []
        self.kills = False
        self.errors: list[CascadeError] = []
        """What the next calls end with."""
        self.last: CascadeError | None = None

    def health(self) -> None:
        """It is not the last chunk alone that did not get through."""
        if self.last:
            raise self.last

    def send_log_chunk(self, sim_id: str, seq: int, lines: list[str]) -> None:
        if self.errors:
            self.last = self.errors.pop()
            raise self.last
        self.sent.append((seq, lines))
        self.stored.setdefault(seq, lines)
        if self.kills:
            raise Killed


def relay(server: Server, place: Spool) -> Relay:
    """One that nobody has started: the test lets it step."""
    return Relay(server, SIM, place, place.chunks(0))  # type: ignore[arg-type]


def test_a_chunk_whose_answer_the_worker_did_not_live_to_hear_is_sent_again_with_the_same_lines(tmp_path: Path) -> None:
    server, place = Server(), Spool.take(tmp_path, SIM)
    place.log.write_text("one\ntwo\n")
    server.kills = True
    first = relay(server, place)
    with pytest.raises(Killed):
        first._step(whole=False)
    first.close()
    with place.log.open("a") as log:
        log.write("three\n")
    server.kills = False
    second = relay(server, place)
    while second._step(whole=True):
        pass
    second.close()
    place.close()
    assert server.sent == [(0, ["one", "two"])] * 2 + [(1, ["three"])]
    assert [line for seq in sorted(server.stored) for line in server.stored[seq]] == ["one", "two", "three"]


def test_a_record_that_was_cut_off_anywhere_is_as_if_it_had_never_been_begun(tmp_path: Path) -> None:
    path = tmp_path / "chunks"
    written = Chunks(path, 0)
    written.cut(10)
    written.ack(2)
    written.cut(250)
    written.note("only in the file")
    written.ack(1)
    written.cut(3000)
    written.close()
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        one = Chunks(path, 0)
        one.cut(9000)
        one.ack(7)
        one.close()
        other = Chunks(path, 0)
        other.close()
        assert (other.ends, other.acked, other.lines, other.notes) == (one.ends, one.acked, one.lines, one.notes), size
        assert (other.ends[-1], other.lines - 7 in (0, 2, 3)) == (9000, True), size


@pytest.mark.parametrize(
    "error", [Unauthorized("401"), NotCascade("a page"), NotFound("not found"), Unavailable("away")]
)
def test_what_may_be_put_right_while_the_simulator_runs_ends_no_relay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: CascadeError
) -> None:
    monkeypatch.setattr(module, "REFUSED_S", 0.01)
    monkeypatch.setattr(module, "UNKNOWN_S", 0.01)
    monkeypatch.setattr(module, "CUT_S", 0.01)
    server, place = Server(), Spool.take(tmp_path, SIM)
    place.log.write_text("one\n")
    server.errors = [error] * 3
    sending = relay(server, place)
    sending.start()
    eventually(lambda: server.stored == {0: ["one"]}, "the chunk is there")
    sending.finish()
    assert (sending.trouble, sending.failed) == (None, None)
    sending.close()
    place.close()
