"""The gateway and its protocol over real sockets, with an app of the test's own and limits that are soon reached."""

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from chalice.app import Chalice

from cascade.serve import gateway
from cascade.serve.gateway import LIGHT_BYTES, Gateway
from cascade.serve.protocol import JsonProtocol
from chalicelib import http
from chalicelib.http import Endpoint, Request, Response
from tests.aws import TOKEN
from tests.e2e.wire import Connection, served
from tests.waiting import eventually

AUTH = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\n"
MIB = 1024 * 1024
LIMIT = 3 * MIB


class Impatient(JsonProtocol):
    """A head must be there at once, or almost."""

    head_seconds = 0.3


class App:
    """An app that notes what it is given and answers as it is told."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.answer: Callable[[Request], Any] = lambda request: {"size": len(request.raw)}
        self.chalice = Chalice("test")
        endpoints = [
            Endpoint("PUT", "/files/{name}", self.handle, "put", raw_body=True),
            Endpoint("GET", "/files/{name}", self.handle, "get"),
        ]
        http.mount(self.chalice, endpoints)

    def handle(self, request: Request) -> Any:
        self.bodies.append(request.raw)
        return self.answer(request)

    @contextmanager
    def served(self, protocol: type[JsonProtocol] = JsonProtocol, **more: Any) -> Iterator[str]:
        gateway = Gateway(self.chalice, authorized=http.authorized, limit=lambda method, path: LIMIT, **more)
        with served(gateway, protocol) as url:
            yield url
        gateway.pool.shutdown()


@pytest.fixture
def app() -> App:
    return App()


def put(length: int) -> str:
    return f"PUT /files/x HTTP/1.1\r\n{AUTH}Content-Length: {length}\r\n\r\n"


GET = f"GET /files/x HTTP/1.1\r\n{AUTH}\r\n"


def detail(body: bytes) -> str:
    value = json.loads(body)
    assert list(value) == ["detail"]
    return str(value["detail"])


# Slow clients.


@pytest.mark.parametrize("head", ["G", "GET /files/x HTTP/1.1\r\n", f"GET /files/x HTTP/1.1\r\n{AUTH}"])
def test_a_head_that_does_not_come_is_408(app: App, head: str) -> None:
    with app.served(Impatient) as url, Connection(url) as connection:
        status, headers, body = connection.ask(head)
        assert (status, headers["content-type"], headers["connection"]) == (408, "application/json", "close")
        assert detail(body) == "the request's headers did not arrive"
        assert connection.is_closed()


def test_a_head_that_comes_letter_by_letter_gains_no_time(app: App) -> None:
    with app.served(Impatient) as url, Connection(url) as connection:
        connection.socket.settimeout(0.02)
        connection.send("GET /files/x HTTP/1.1\r\nX-A: ")
        begun = time.monotonic()
        answer = b""
        while not answer:
            connection.send("a")
            try:
                answer = connection.socket.recv(100)
            except TimeoutError:
                assert time.monotonic() - begun < 10, "the server waits for ever"
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_the_next_request_has_its_own_time_and_an_idle_connection_all_of_it(app: App) -> None:
    with app.served(Impatient) as url, Connection(url) as connection:
        assert connection.ask(put(3) + "abc")[0] == 200
        time.sleep(2 * Impatient.head_seconds)
        assert connection.ask(put(3) + "abc")[0] == 200
        assert connection.ask("PUT /files/x HTTP/1.1\r\n")[0] == 408


def test_a_connection_that_says_nothing_is_closed(app: App) -> None:
    with app.served(Impatient) as url, Connection(url) as connection:
        assert connection.is_closed()


@pytest.mark.parametrize(
    "request_", [put(3) + "ab", f"PUT /files/x HTTP/1.1\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"]
)
def test_a_body_that_stops_is_408_and_reaches_nobody(app: App, request_: str) -> None:
    with app.served(stall_seconds=0.2) as url, Connection(url) as connection:
        status, headers, body = connection.ask(request_)
        assert (status, headers["connection"]) == (408, "close")
        assert detail(body) == "the rest of the request did not arrive"
        assert connection.is_closed()
    assert app.bodies == []


def test_a_body_that_comes_slowly_but_steadily_is_taken(app: App) -> None:
    with app.served(stall_seconds=0.5) as url, Connection(url) as connection:
        connection.send(put(8))
        for letter in "abcdefgh":
            time.sleep(0.1)  # 0.8 s in all
            connection.send(letter)
        assert connection.response()[0] == 200
    assert app.bodies == [b"abcdefgh"]


def test_a_client_that_does_not_take_its_answer_is_let_go(app: App, caplog: Any) -> None:
    closed = threading.Event()

    def endless(_: Request) -> Response:
        def parts() -> Iterator[bytes]:
            try:
                while True:
                    yield bytes(MIB)
            finally:
                closed.set()

        return Response(parts(), {"Content-Type": "text/plain"}, 200)

    app.answer = endless
    with app.served(stall_seconds=0.2) as url, Connection(url) as connection:
        connection.send(GET)
        assert closed.wait(20)
        got = b""
        while piece := connection.socket.recv(MIB):
            got = got[-10:] + piece
        assert not got.endswith(b"0\r\n\r\n")
    assert caplog.text == ""


def test_a_client_that_takes_none_of_many_answers_is_let_go(app: App, caplog: Any) -> None:
    """Each of them fits into what the connection may hold; the one after it does not begin."""
    lost = threading.Event()

    class Watched(JsonProtocol):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    app.answer = lambda _: {"a": "a" * 100_000}
    with app.served(Watched, stall_seconds=0.2) as url, Connection(url) as connection:
        connection.send(GET * 200)
        assert lost.wait(20)
    assert caplog.text == ""


def test_requests_that_wait_for_their_turn_are_few(app: App) -> None:
    """A client that sends many at once has them read as they are answered."""
    waiting = []

    class Watched(JsonProtocol):
        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            waiting.append(len(self.pipeline))

    many, request = 3000, f"GET /nothing HTTP/1.1\r\n{AUTH}X-A: {'a' * 900}\r\n\r\n"
    with app.served(Watched) as url, Connection(url) as connection, ThreadPoolExecutor(1) as sender:
        sent = sender.submit(connection.send, request * many)
        for _ in range(many):
            assert connection.response()[0] == 404
        sent.result()
    assert len(waiting) == many
    # asyncio reads 256 KiB at a time.
    assert max(waiting) <= 2 * 256 * 1024 / len(request)


def test_a_client_that_leaves_stops_the_answer_it_does_not_take(app: App) -> None:
    closed = threading.Event()

    def long(_: Request) -> Response:
        def parts() -> Iterator[bytes]:
            try:
                for _ in range(10_000):
                    yield bytes(MIB)
            finally:
                closed.set()

        return Response(parts(), {"Content-Type": "text/plain"}, 200)

    app.answer = long
    with app.served(stall_seconds=0.5) as url:
        with Connection(url) as connection:
            connection.send(GET)
            connection.socket.recv(MIB)
        assert closed.wait(20)


def test_more_connections_than_there_are_files_for_are_told_to_come_back(app: App) -> None:
    class Small(JsonProtocol):
        connections_max = 2

    with app.served(Small) as url, Connection(url) as first:
        assert first.ask(GET)[0] == 200
        with Connection(url) as second, Connection(url) as third:
            status, headers, body = third.response()
            assert (status, headers["retry-after"], detail(body)) == (503, "1", "too many connections, try again")
            assert third.is_closed()
            assert [connection.ask(GET)[0] for connection in (first, second)] == [200, 200]

        def served_again() -> bool:
            with Connection(url) as fourth:
                try:
                    return fourth.ask(GET)[0] == 200
                except ConnectionError:
                    return False  # refused while it sent

        eventually(served_again, "there is room again")


# Sizes.


@pytest.mark.parametrize(("size", "seen"), [(LIMIT, LIMIT), (LIMIT + 1, LIMIT + 1), (LIMIT + 9 * MIB, LIMIT + 1)])
@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_the_app_sees_one_byte_over_the_limit_and_no_more(app: App, size: int, seen: int, framing: str) -> None:
    with app.served() as url, Connection(url) as connection:
        if framing == "length":
            connection.send(put(size))
            connection.send(bytes(size))
        else:
            connection.send(f"PUT /files/x HTTP/1.1\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\n")
            for start in range(0, size, 100_000):
                piece = bytes(min(100_000, size - start))
                connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            connection.send("0\r\n\r\n")
        status, headers, body = connection.response()
        assert (status, json.loads(body)) == (200, {"size": seen})
        # What was left unread ends the connection.
        assert size <= seen or headers["connection"] == "close"


def test_a_head_without_an_end_is_431_once_it_is_too_large(app: App) -> None:
    with app.served() as url, Connection(url) as connection:
        connection.send("GET /files/x HTTP/1.1\r\nX-A: " + "a" * 40_000)
        status, headers, body = connection.response()
        assert (status, headers["connection"]) == (431, "close")
        assert detail(body) == "the request's headers are too large"
        assert connection.is_closed()


def test_large_bodies_wait_for_room_and_small_ones_do_not(app: App) -> None:
    with app.served(memory_bytes=LIMIT) as url, Connection(url) as first, Connection(url) as second:
        first.send(put(2 * MIB))
        first.send(bytes(MIB))
        second.send(put(2 * MIB))
        second.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            # The server reads none of it, so the buffers of both ends are soon full.
            second.send(bytes(2 * MIB) * 20)
        with Connection(url) as small:
            assert small.ask(put(3) + "abc")[0] == 200
        first.send(bytes(MIB))
        assert first.response()[0] == 200
        second.socket.settimeout(20)
        assert second.response()[0] == 200
    assert [len(body) for body in app.bodies] == [3, 2 * MIB, 2 * MIB]


@pytest.mark.parametrize(
    ("framing", "room"), [(f"Content-Length: {2 * MIB}", 2 * MIB), ("Transfer-Encoding: chunked", LIMIT)]
)
def test_room_is_held_for_the_size_that_is_told_or_else_for_the_largest(
    app: App, monkeypatch: pytest.MonkeyPatch, framing: str, room: int
) -> None:
    held, hold = [], gateway.Memory.hold

    def noted(memory: gateway.Memory, size: int) -> Any:
        held.append(size)
        return hold(memory, size)

    monkeypatch.setattr(gateway.Memory, "hold", noted)
    with app.served() as url, Connection(url) as connection:
        connection.send(f"PUT /files/x HTTP/1.1\r\n{AUTH}{framing}\r\n\r\n")
        body = bytes(2 * MIB)
        connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if "chunked" in framing else body)
        assert connection.response()[0] == 200
    assert held == [room + 1]  # the byte that tells the app that it is too much


def test_room_is_given_back_by_those_who_leave(app: App) -> None:
    with app.served(memory_bytes=LIMIT) as url:
        for _ in range(3):
            with Connection(url) as connection:
                connection.send(put(3 * MIB))
                connection.send(bytes(MIB))
        with Connection(url) as connection:
            connection.send(put(3 * MIB))
            connection.send(bytes(3 * MIB))
            assert connection.response()[0] == 200


def test_a_stranger_is_asked_for_his_token_before_more_than_64_kib_are_read(app: App) -> None:
    asked: list[Mapping[str, str]] = []

    def nobody(headers: Mapping[str, str]) -> bool:
        asked.append(headers)
        return False

    gateway = Gateway(app.chalice, authorized=nobody, limit=lambda method, path: LIMIT)
    with served(gateway) as url:
        for size, questions in ((64 * 1024, 0), (64 * 1024 + 1, 1)):
            asked.clear()
            with Connection(url) as connection:
                connection.send(f"PUT /files/x HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n")
                if not questions:
                    connection.send(bytes(size))
                assert connection.response()[0] == 401
            assert len(asked) == questions
    gateway.pool.shutdown()
    assert app.bodies == []


# Failures.


def test_an_app_that_raises_is_a_500_that_says_nothing_of_the_inside(app: App, caplog: Any) -> None:
    def broken(_: Request) -> Response:
        def parts() -> Iterator[bytes]:
            raise LookupError("secret")
            yield b""

        return Response(parts(), {"Content-Type": "text/plain"}, 200)

    app.answer = broken
    with app.served() as url, Connection(url) as connection:
        status, _, body = connection.ask(GET)
        assert (status, detail(body)) == (500, "internal error")
        app.answer = lambda _: {"is": "well"}
        assert connection.ask(GET)[0] == 200
    assert "secret" in caplog.text


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(app: App, caplog: Any) -> None:
    def torn(_: Request) -> Response:
        def parts() -> Iterator[bytes]:
            yield b"the first half"
            raise OSError("the disk is gone")

        return Response(parts(), {"Content-Type": "text/plain"}, 200)

    app.answer = torn
    with app.served() as url, Connection(url) as connection, pytest.raises((ConnectionError, ValueError)):
        connection.ask(GET)  # the last chunk never comes
    assert "the disk is gone" in caplog.text


# Answers.


def test_a_stream_is_sent_in_chunks_or_whole_to_those_who_know_none(app: App) -> None:
    app.answer = lambda _: Response(iter([b"a", b"", b"b" * 300_000]), {"Content-Type": "text/plain"}, 200)
    whole = b"a" + b"b" * 300_000
    with app.served() as url:
        with Connection(url) as connection:
            _, headers, body = connection.ask(GET)
            assert (headers["transfer-encoding"], body == whole) == ("chunked", True)
        with Connection(url) as connection:
            _, headers, body = connection.ask(GET.replace("HTTP/1.1", "HTTP/1.0"))
            assert (headers["content-length"], body == whole) == (str(len(whole)), True)
            assert connection.is_closed()


def test_every_answer_has_a_request_id_of_its_own(app: App) -> None:
    with app.served() as url, Connection(url) as connection:
        ids = {connection.ask(GET)[1]["x-amzn-requestid"] for _ in range(3)}
    assert len(ids) == 3


def test_calls_at_once_do_not_see_each_other(app: App) -> None:
    meet = threading.Barrier(8)

    def who(request: Request) -> dict[str, str]:
        meet.wait(20)
        current = app.chalice.current_request
        meet.wait(20)
        assert current is not None
        return {"name": request.path["name"], "seen": current.uri_params["name"]}

    app.answer = who

    def ask(n: int) -> Any:
        with Connection(url) as connection:
            return json.loads(connection.ask(f"GET /files/{n} HTTP/1.1\r\n{AUTH}\r\n")[2])

    with app.served() as url, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [{"name": str(n), "seen": str(n)} for n in range(8)]


def test_a_thread_keeps_nothing_of_its_last_request(app: App) -> None:
    with app.served(threads=1) as url, Connection(url) as connection:
        assert connection.ask(put(3) + "abc")[0] == 200
        eventually(lambda: app.chalice.current_request is None, "the request is gone")


def test_a_client_that_sends_all_before_it_reads_gets_an_early_answer(app: App) -> None:
    with app.served() as url, Connection(url) as connection:
        connection.send(f"PUT /files/x HTTP/1.1\r\nHost: x\r\nContent-Length: {20 * MIB}\r\n\r\n")
        connection.send(bytes(20 * MIB))
        assert connection.response()[0] == 401


def test_what_comes_behind_an_early_answer_is_read_for_a_while_only(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "LINGER_SECONDS", 0.2)
    with app.served() as url, Connection(url) as connection:
        status, headers, _ = connection.ask(f"PUT /files/x HTTP/1.1\r\nHost: x\r\nContent-Length: {20 * MIB}\r\n\r\n")
        assert (status, headers["connection"]) == (401, "close")
        assert connection.is_closed()


def test_what_comes_behind_an_early_answer_is_read_up_to_a_size_only(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "LINGER_SECONDS", 60)
    monkeypatch.setattr(gateway, "LINGER_BYTES", MIB)
    with app.served() as url, Connection(url) as connection:
        connection.send(f"PUT /files/x HTTP/1.1\r\nHost: x\r\nContent-Length: {64 * MIB}\r\n\r\n")
        with pytest.raises(ConnectionError):
            connection.send(bytes(64 * MIB))


LIGHT = {("PUT", "/files/{name}")}


def on_threads(app: App) -> list[bool]:
    """Filled with whether each request was answered on a thread."""
    seen: list[bool] = []

    def answer(_: Request) -> dict[str, Any]:
        seen.append(threading.current_thread().name.startswith("lambda"))
        return {}

    app.answer = answer
    return seen


def test_only_what_is_light_is_answered_in_the_loop(app: App) -> None:
    seen = on_threads(app)
    packed = gzip.compress(b"abc").decode("latin-1")
    with app.served(light=LIGHT) as url, Connection(url) as connection:
        for body in ("a" * LIGHT_BYTES, "a" * (LIGHT_BYTES + 1), packed):
            assert connection.ask(put(len(body)) + body)[0] == 200
        assert connection.ask(GET)[0] == 200
    assert seen == [False, True, True, True]


def test_what_would_wait_for_another_is_answered_on_a_thread(app: App) -> None:
    seen, free = on_threads(app), iter([True, False, True])
    with app.served(light=LIGHT, hold=lambda: nullcontext(next(free))) as url, Connection(url) as connection:
        for _ in range(3):
            assert connection.ask(put(3) + "abc")[0] == 200
    assert seen == [False, True, False]


def test_what_took_long_in_the_loop_is_kept_out_of_it_for_a_while(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, now = on_threads(app), [1000.0]
    monkeypatch.setattr(gateway, "time", SimpleNamespace(monotonic=lambda: now[0]))
    quick, times = app.answer, [0.0]

    def slow(request: Request) -> Any:
        now[0] += times[-1]
        return quick(request)

    app.answer = slow
    with app.served(light=LIGHT) as url, Connection(url) as connection:
        for took, then in (
            (gateway.SLOW_SECONDS, 0.0),
            (10.0, 0.0),  # as another process that locks the database makes it
            (0.0, 10 * gateway.SLOW_FACTOR - 0.001),
            (0.0, 0.001),
            (0.0, 0.0),
        ):
            times.append(took)
            assert connection.ask(put(3) + "abc")[0] == 200
            now[0] += then
    assert seen == [False, False, True, True, False]
