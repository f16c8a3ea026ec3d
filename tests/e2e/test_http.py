"""What real clients, broken ones and hostile ones send over a socket, and what a real server answers."""

import gzip
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server
from tests.e2e.wire import Connection, Response

MIB = 1024 * 1024
BEAT = b'{"state": "running"}'
DETAIL = {"detail": "not a valid HTTP request"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as connected:
        yield connected


@pytest.fixture(scope="module")
def sim(client: httpx.Client) -> str:
    return new_sim(client)


def new_sim(client: httpx.Client) -> str:
    run = client.post("/api/runs", json={"name": "http", "sims": [{}]}).raise_for_status().json()
    return str(run["sims"][0]["id"])


def head(server: Server, method: str, path: str, *headers: str) -> str:
    """A request's head with the right token."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {server.token}", *headers, "", ""]
    return "\r\n".join(lines)


def ask(server: Server, *request: str | bytes) -> Response:
    with Connection(server.url) as connection:
        for part in request:
            connection.send(part)
        return connection.response()


def assert_serves(server: Server) -> None:
    with server.client() as client:
        assert client.get("/api/health").status_code == 200


def chunked(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


# Sizes.


@pytest.fixture(scope="module")
def full() -> bytes:
    return bytes(range(256)) * (64 * MIB // 256)


@pytest.mark.parametrize("how", ["Content-Length", "chunked"])
def test_a_file_of_64_mib_is_stored_and_one_byte_more_is_not(client: httpx.Client, full: bytes, how: str) -> None:
    path = f"/api/sims/{new_sim(client)}/files/full.bin"

    def body(data: bytes) -> Any:
        return data if how == "Content-Length" else chunked(data, 300_000)

    stored = client.put(path, content=body(full))
    assert (stored.status_code, stored.json()["size"]) == (200, 64 * MIB)
    refused = client.put(path, content=body(full + b"x"))
    assert (refused.status_code, refused.json()) == (413, {"detail": "file is over the 64 MiB per-file limit"})
    assert client.get(path).content == full


def test_a_file_far_over_the_limit_is_refused_to_a_client_that_sends_it_all_before_it_reads(
    server: Server, sim: str
) -> None:
    with Connection(server.url) as connection:
        connection.send(head(server, "PUT", f"/api/sims/{sim}/files/huge", f"Content-Length: {100 * MIB}"))
        for _ in range(100):
            connection.send(bytes(MIB))
        status, headers, body = connection.response()
        assert (status, headers["connection"], json.loads(body)) == (
            413,
            "close",
            {"detail": "file is over the 64 MiB per-file limit"},
        )
        assert connection.is_closed()


def test_a_json_body_over_32_mib_is_413(client: httpx.Client, sim: str) -> None:
    lines = json.dumps({"seq": 0, "lines": ["x" * (32 * MIB)]})
    answer = client.post(f"/api/sims/{sim}/logs", content=lines)
    assert (answer.status_code, "32 MiB" in answer.json()["detail"]) == (413, True)


@pytest.mark.parametrize("framing", [f"Content-Length: {64 * MIB}", "Transfer-Encoding: chunked"])
def test_a_stranger_gets_his_401_before_he_has_sent_a_large_body(server: Server, sim: str, framing: str) -> None:
    with Connection(server.url) as connection:
        connection.send(f"PUT /api/sims/{sim}/files/x HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n")
        piece = bytes(100_000)
        connection.send(b"%x\r\n%s\r\n" % (len(piece), piece) if "chunked" in framing else piece)
        status, headers, body = connection.response()
        assert (status, headers["www-authenticate"], headers["connection"]) == (401, "Bearer", "close")
        assert list(json.loads(body)) == ["detail"]


def test_expect_100_continue_is_told_before_the_body_is_sent(server: Server, sim: str) -> None:
    request = head(server, "PUT", f"/api/sims/{sim}/files/x", "Expect: 100-continue", "Content-Length: 3")
    with Connection(server.url) as connection:
        assert connection.ask(request)[0] == 100
        status, _, body = connection.ask(b"abc")
        assert (status, json.loads(body)["size"]) == (200, 3)


def test_expect_100_continue_is_refused_without_the_body(server: Server, sim: str) -> None:
    with Connection(server.url) as connection:
        status, headers, _ = connection.ask(
            f"PUT /api/sims/{sim}/files/x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {MIB}\r\n\r\n"
        )
        assert (status, headers["connection"]) == (401, "close")
        assert connection.is_closed()


# Kinds of bodies.


def test_chunked_json(client: httpx.Client, sim: str) -> None:
    answer = client.post(f"/api/sims/{sim}/heartbeat", content=chunked(BEAT, 1))
    assert (answer.status_code, answer.json()) == (200, {"state": "running", "cancel": False})


def test_a_put_without_a_content_type_is_stored(server: Server, client: httpx.Client, sim: str) -> None:
    status, _, body = ask(server, head(server, "PUT", f"/api/sims/{sim}/files/bare.csv", "Content-Length: 4"), b"a,b\n")
    assert (status, json.loads(body)["content_type"]) == (200, "text/csv")
    assert client.get(f"/api/sims/{sim}/files/bare.csv").content == b"a,b\n"


@pytest.mark.parametrize("name", ["content-type", "Content-type", "CONTENT-TYPE", "cOnTeNt-TyPe"])
@pytest.mark.parametrize("value", ["application/json", "Application/JSON; charset=utf-8"])
def test_content_type_in_any_case(server: Server, sim: str, name: str, value: str) -> None:
    request = head(server, "POST", f"/api/sims/{sim}/heartbeat", f"{name}: {value}", f"Content-Length: {len(BEAT)}")
    assert ask(server, request, BEAT)[0] == 200


def test_an_underscore_makes_another_header_of_a_name(server: Server, sim: str) -> None:
    own = ("Content-Type: application/json", f"Content-Length: {len(BEAT)}")
    others = ("Content_Type: text/plain", "Content_Length: 3", "Content_Encoding: br", "Authorization_: Bearer x")
    assert ask(server, head(server, "POST", f"/api/sims/{sim}/heartbeat", *own, *others), BEAT)[0] == 200


def test_another_content_type_is_415(client: httpx.Client, sim: str) -> None:
    answer = client.post(f"/api/sims/{sim}/heartbeat", content=BEAT, headers={"Content-Type": "text/plain"})
    assert (answer.status_code, list(answer.json())) == (415, ["detail"])


@pytest.mark.parametrize(
    "headers", [{"Content-Encoding": "gzip", "Content-Type": "application/json"}, {"Content-Type": "application/gzip"}]
)
def test_gzip_bodies_and_a_bomb(client: httpx.Client, sim: str, headers: dict[str, str]) -> None:
    url = f"/api/sims/{sim}/heartbeat"
    assert client.post(url, content=gzip.compress(BEAT), headers=headers).json()["state"] == "running"
    bomb = gzip.compress(b'{"state": "running", "error": "' + bytes(200 * MIB), compresslevel=9)
    assert len(bomb) < MIB
    answer = client.post(url, content=bomb, headers=headers)
    assert (answer.status_code, list(answer.json())) == (413, ["detail"])
    torn = client.post(url, content=gzip.compress(BEAT)[:-6], headers=headers)
    assert (torn.status_code, torn.json()["detail"][0]["loc"][0]) == (422, "body")


def test_a_file_is_stored_as_sent_though_it_says_gzip(client: httpx.Client, sim: str) -> None:
    data, path = gzip.compress(b"log\n" * 1000), f"/api/sims/{sim}/files/accelsim.log.gz"
    answer = client.put(path, content=data, headers={"Content-Encoding": "gzip"})
    assert answer.json()["size"] == len(data)
    got = client.get(path)
    assert (got.content, "content-encoding" in got.headers) == (data, False)


BAD_BODIES = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[1]",
    "no UTF-8": b'{"state": "\xff"}',
    "nested deeply": b"[" * 100_000 + b"]" * 100_000,
    "nested in a field": b'{"state": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a number of 40 digits": b'{"state": "running", "exit_code": ' + b"9" * 40 + b"}",
    "a number of 100,000 digits": b'{"state": "running", "exit_code": ' + b"9" * 100_000 + b"}",
    "NaN": b'{"state": "failed", "exit_code": NaN}',
    "a boolean for a number": b'{"state": "failed", "exit_code": true}',
    "text for a number": b'{"state": "failed", "exit_code": "1"}',
    "another state": b'{"state": "lost"}',
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_bodies_that_are_no_heartbeat(server: Server, sim: str, body: bytes) -> None:
    request = head(server, "POST", f"/api/sims/{sim}/heartbeat", f"Content-Length: {len(body)}")
    status, headers, answer = ask(server, request, body)
    assert (status, headers["content-type"]) == (422, "application/json")
    for error in json.loads(answer)["detail"]:
        assert error["loc"][0] == "body"
        assert len(json.dumps(error)) < 1000


def test_lines_no_terminal_would_show_come_back_as_they_were(client: httpx.Client) -> None:
    url = f"/api/sims/{new_sim(client)}/logs"
    lines = ["", "\x00", "\x1b[31mred\x1b[0m", "a\nb", "a\rb", "\u2028", "😀", "\x7f\x80", "x" * MIB]
    body = json.dumps({"seq": 0, "lines": [*lines, "\ud800", "a\udfffb"]})
    assert client.post(url, content=body).status_code == 204
    assert client.get(url).json()["chunks"] == [{"seq": 0, "lines": [*lines, "\ufffd", "a\ufffdb"]}]


# Names.


@pytest.mark.parametrize(
    ("sent", "stored"),
    [("kernel%2Dstats%2Ecsv", "kernel-stats.csv"), ("%61", "a"), ("a%2e%2E", "a.."), ("..a", "..a"), ("a" * 128, "a" * 128)],
)  # fmt: skip
def test_names_may_be_percent_encoded(server: Server, client: httpx.Client, sent: str, stored: str) -> None:
    path = f"/api/sims/{new_sim(client)}/files"
    status, _, body = ask(server, head(server, "PUT", f"{path}/{sent}", "Content-Length: 1"), b"x")
    assert (status, json.loads(body)["name"]) == (200, stored)
    assert [file["name"] for file in client.get(path).json()] == [stored]


@pytest.mark.parametrize(
    "name",
    ["..", ".", "%2e%2e", "%2E", "a%2Fb", "..%2f..%2fetc", "a%0A", "a%00", "a%20b", "%C3%A4", "%ff", "%2525", "%2561", "a" * 129, "a+b"],
)  # fmt: skip
def test_names_that_are_none(server: Server, client: httpx.Client, name: str) -> None:
    path = f"/api/sims/{new_sim(client)}/files"
    status, _, body = ask(server, head(server, "PUT", f"{path}/{name}", "Content-Length: 1"), b"x")
    assert (status, list(json.loads(body))) == (422, ["detail"])
    assert client.get(path).json() == []


# Requests that end too early.


def test_a_body_that_stops_halfway_stores_nothing(server: Server, client: httpx.Client) -> None:
    sim = new_sim(client)
    file, logs = f"/api/sims/{sim}/files/half", f"/api/sims/{sim}/logs"
    for request, body in (
        (head(server, "PUT", file, "Content-Length: 1000"), b"x" * 500),
        (head(server, "PUT", file, "Transfer-Encoding: chunked"), b"4\r\nabcd\r\n"),
        (head(server, "PUT", file, f"Content-Length: {8 * MIB}"), bytes(4 * MIB)),
        (head(server, "POST", logs, "Content-Length: 100"), b'{"seq": 0, "lines": []}'),
    ):
        with Connection(server.url) as connection:
            connection.send(request)
            connection.send(body)
    assert client.get(file).status_code == 404
    shown = client.get(f"/api/sims/{sim}").json()
    assert (shown["files"], shown["log"]["chunks"]) == ({"count": 0, "bytes": 0}, 0)
    assert client.put(file, content=bytes(64 * MIB)).status_code == 200


# The same call twice.


def test_two_identical_calls_at_once_are_one(server: Server, client: httpx.Client) -> None:
    sim = new_sim(client)
    meet = threading.Barrier(8)
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", f"/api/sims/{sim}/heartbeat", {"json": {"state": "running"}}),
        ("POST", f"/api/sims/{sim}/logs", {"json": {"seq": 0, "lines": ["a", "b"]}}),
        ("PUT", f"/api/sims/{sim}/files/x", {"content": b"abc"}),
        ("POST", f"/api/sims/{sim}/step-timeline", {"json": {"simulated": {"steps": [], "summary": {}}}}),
        ("POST", "/api/runs", {"json": {"name": "once", "sims": [{}]}, "headers": {"Idempotency-Key": sim}}),
    ]

    def send(method: str, path: str, more: dict[str, Any]) -> httpx.Response:
        with server.client() as own:
            own.get("/api/health")
            meet.wait(30)
            return own.request(method, path, **more)

    with ThreadPoolExecutor(8) as pool:
        for call in calls:
            answers = [future.result() for future in [pool.submit(send, *call) for _ in range(8)]]
            assert {answer.status_code for answer in answers} <= {200, 201, 204}, call
            if call[1] == "/api/runs":
                assert len({answer.json()["id"] for answer in answers}) == 1
    shown = client.get(f"/api/sims/{sim}").json()
    assert shown["log"] | {"bytes": 0} == {"chunks": 1, "lines": 2, "bytes": 0, "next_seq": 1, "missing": []}
    assert shown["files"] == {"count": 1, "bytes": 3}


# What is not HTTP, and what two parties could read in two ways.

LENGTH = f"Content-Length: {len(BEAT)}"
CHUNKS = f"{len(BEAT):x}\r\n{BEAT.decode()}\r\n0\r\n\r\n"
AMBIGUOUS = {
    "length and chunks": ([LENGTH, "Transfer-Encoding: chunked"], CHUNKS),
    "chunks and length": (["Transfer-Encoding: chunked", LENGTH], CHUNKS),
    "two lengths": ([LENGTH, "Content-Length: 3"], BEAT.decode()),
    "the same length twice": ([LENGTH, LENGTH], BEAT.decode()),
    "a list of lengths": ([f"{LENGTH}, {len(BEAT)}"], BEAT.decode()),
    "a length with a sign": ([f"Content-Length: +{len(BEAT)}"], BEAT.decode()),
    "a negative length": (["Content-Length: -1"], BEAT.decode()),
    "a length of 23 digits": (["Content-Length: 99999999999999999999999"], BEAT.decode()),
    "a length in hex": (["Content-Length: 0x14"], BEAT.decode()),
    "no length": (["Content-Length:"], BEAT.decode()),
    "a blank before the colon": ([LENGTH.replace(":", " :")], BEAT.decode()),
    "a folded header": (["X-A: a\r\n b", LENGTH], BEAT.decode()),
    "a folded length": ([f"Content-Length:\r\n {len(BEAT)}"], BEAT.decode()),
    "a bare line feed": ([f"X-A: a\n{LENGTH}"], BEAT.decode()),
    "a bare carriage return": ([f"X-A: a\r{LENGTH}"], BEAT.decode()),
    "another coding after chunked": (["Transfer-Encoding: chunked, identity"], CHUNKS),
    "an unknown coding": (["Transfer-Encoding: xchunked"], CHUNKS),
    "chunked twice": (["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], CHUNKS),
    "a NUL in a header": (["X-A: a\0b", LENGTH], BEAT.decode()),
    "a blank in a name": (["X A: b", LENGTH], BEAT.decode()),
    "a header without a name": ([": b", LENGTH], BEAT.decode()),
    "a header without a colon": (["nothing", LENGTH], BEAT.decode()),
}


@pytest.mark.parametrize(("headers", "body"), AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_what_could_be_read_in_two_ways_is_400_and_the_end_of_the_connection(
    server: Server, client: httpx.Client, headers: list[str], body: str
) -> None:
    sim = new_sim(client)
    with Connection(server.url) as connection:
        hidden = head(server, "POST", f"/api/sims/{sim}/cancel", "Content-Length: 0")
        connection.send(head(server, "POST", f"/api/sims/{sim}/heartbeat", *headers) + body + hidden)
        status, answered, answer = connection.response()
        assert (status, answered["content-type"], json.loads(answer)) == (400, "application/json", DETAIL)
        assert answered["connection"] == "close"
        assert connection.is_closed()
    assert client.get(f"/api/sims/{sim}").json()["state"] == "queued"


@pytest.mark.parametrize("chunk", ["zz\r\n", "-1\r\n", "f" * 17 + "\r\n", "14\n", "\r\n"])
def test_a_chunk_that_is_none_ends_the_request_and_changes_nothing(
    server: Server, client: httpx.Client, chunk: str
) -> None:
    sim = new_sim(client)
    request = head(server, "POST", f"/api/sims/{sim}/heartbeat", "Transfer-Encoding: chunked")
    status, _, answer = ask(server, request, chunk + BEAT.decode() + "\r\n0\r\n\r\n")
    assert (status, json.loads(answer)) == (400, DETAIL)
    assert client.get(f"/api/sims/{sim}").json()["state"] == "queued"


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /api/health HTTP/9.9\r\n\r\n",
        b"FOO /api/health HTTP/1.1\r\n\r\n",
        b"get /api/health HTTP/1.1\r\n\r\n",
        b"GET /api/a b HTTP/1.1\r\n\r\n",
        b"GET /api/\xe4 HTTP/1.1\r\n\r\n",
        b"GET /api/runs?cursor=\xf0\x9f\x98\x80 HTTP/1.1\r\n\r\n",
        b"GET /api/\0 HTTP/1.1\r\n\r\n",
        b"GET api/health HTTP/1.1\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\n\r\n",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_not_http_is_400_in_json(server: Server, data: bytes) -> None:
    with Connection(server.url) as connection:
        status, headers, body = connection.ask(data)
        assert (status, headers["content-type"], json.loads(body)) == (400, "application/json", DETAIL)
        assert connection.is_closed()


@pytest.mark.parametrize(
    "request_line",
    ["GET /api/health HTTP/1.0", "GET http://x/api/health HTTP/1.1", "\r\n\r\nGET /api/health? HTTP/1.1"],
)
def test_what_is_unusual_and_right_is_answered(server: Server, request_line: str) -> None:
    status, _, body = ask(server, f"{request_line}\r\nHost: x\r\n\r\n")
    assert (status, json.loads(body)["status"]) == (200, "ok")


@pytest.mark.parametrize(
    ("path", "headers", "answer"),
    [
        ("/api/runs", ["X-A: " + "a" * 40_000], 431),
        ("/api/runs", ["X-A: a"] * 10_000, 431),
        ("/api/" + "a" * 40_000, [], 431),
        ("/api/runs", ["X-A: " + "a" * 30_000], 200),
        ("/api/" + "a" * 30_000, [], 404),
    ],
    ids=["header", "headers", "path", "a header below", "a path below"],
)
def test_heads_over_32_kib_are_431(server: Server, path: str, headers: list[str], answer: int) -> None:
    status, _, body = ask(server, head(server, "GET", path, *headers))
    assert (status, answer == 200 or list(json.loads(body)) == ["detail"]) == (answer, True)


# Methods.


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "PURGE"])
def test_another_method_is_405_and_says_which_is_right(server: Server, sim: str, method: str) -> None:
    path = f"/api/sims/{sim}/heartbeat"
    with Connection(server.url) as connection:
        connection.send(head(server, method, path, "Content-Length: 0"))
        status, headers, body = connection.response(method)
        assert (status, headers["allow"], headers["content-type"]) == (405, "POST", "application/json")
        assert method == "HEAD" or json.loads(body) == {"detail": f"{method} is not allowed here"}
        connection.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, body = connection.response(method)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert method == "HEAD" or list(json.loads(body)) == ["detail"]


@pytest.mark.parametrize(
    "path", ["/nothing", "/api", "/api/", "/api/nothing", "//api/runs", "/api/../api/runs", "/api%2fruns"]
)
def test_an_unknown_path_is_404_for_those_who_may_ask_and_401_for_others(server: Server, path: str) -> None:
    status, headers, body = ask(server, head(server, "GET", path))
    assert (status, headers["content-type"], list(json.loads(body))) == (404, "application/json", ["detail"])
    status, headers, body = ask(server, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (status, headers["www-authenticate"], list(json.loads(body))) == (401, "Bearer", ["detail"])


# Connections.


def test_pipelined_requests_are_answered_in_their_order(server: Server, client: httpx.Client) -> None:
    sim = new_sim(client)
    beat = head(server, "POST", f"/api/sims/{sim}/heartbeat", f"Content-Length: {len(BEAT)}") + BEAT.decode()
    with Connection(server.url) as connection:
        connection.send(beat + head(server, "POST", f"/api/sims/{sim}/cancel", "Content-Length: 0") + beat)
        bodies = [json.loads(connection.response()[2]) for _ in range(3)]
    assert [body["state"] for body in bodies] == ["running", "cancelled", "cancelled"]


def test_a_wrong_request_behind_a_right_one_does_not_take_its_answer(server: Server, sim: str) -> None:
    with Connection(server.url) as connection:
        connection.send(head(server, "GET", f"/api/sims/{sim}") + "nonsense\r\n\r\n")
        assert json.loads(connection.response()[2])["id"] == sim
        assert connection.is_closed()


def test_a_thousand_idle_connections_do_not_stop_a_heartbeat(server: Server, client: httpx.Client, sim: str) -> None:
    with ExitStack() as stack:
        for n in range(1000):
            connection = stack.enter_context(Connection(server.url))
            if n % 2:
                connection.send("POST /api/runs HTTP/1.1\r\nHost: x\r\n")  # and no more
        with server.client() as late:
            answer = late.post(f"/api/sims/{sim}/heartbeat", content=BEAT, timeout=5)
        assert answer.status_code == 200
    assert_serves(server)


@pytest.mark.parametrize("offer", ["h2c", "websocket"])
def test_a_client_that_offers_another_protocol_is_served_in_this_one(server: Server, sim: str, offer: str) -> None:
    path, upgrade = f"/api/sims/{sim}/heartbeat", ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {offer}")
    with_length = head(server, "POST", path, *upgrade, f"Content-Length: {len(BEAT)}")
    in_chunks = head(server, "POST", path, *upgrade, "Transfer-Encoding: chunked")
    nothing = head(server, "GET", f"/api/sims/{sim}", *upgrade)
    with Connection(server.url) as connection:
        connection.send(with_length + BEAT.decode() + in_chunks + CHUNKS + nothing + with_length)
        assert [connection.response()[0] for _ in range(3)] == [200, 200, 200]
        for part in (BEAT, in_chunks, CHUNKS[:9], CHUNKS[9:]):  # the body comes later than its head
            connection.send(part)
        assert [connection.response()[0] for _ in range(2)] == [200, 200]
        connection.send(with_length.replace("Content-Length", "Content-Length: 1\r\nContent-Length") + BEAT.decode())
        assert connection.response()[0] == 400
        assert connection.is_closed()
