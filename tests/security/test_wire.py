"""What a hostile client sends over a socket to the real server, beside what tests/e2e/test_http.py has already."""

import gzip
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from cascade.serve.gateway import THREADS
from tests.e2e.server import Server
from tests.e2e.test_http import BEAT, head, new_sim
from tests.e2e.wire import Connection
from tests.waiting import eventually

MIB = 1024 * 1024
CANARY = "what lies beside the data"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("place")
    (folder / "canary.txt").write_text(CANARY)
    with Server(folder / "data") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as connected:
        yield connected


# Requests with another one hidden inside.

TEXT = BEAT.decode()
SIZE = f"{len(BEAT):x}"
CHUNKS = f"{SIZE}\r\n{TEXT}\r\n0\r\n\r\n"
HIDING = {
    "an extension that ends in a bare line feed": (f"{SIZE};a\n{TEXT}\r\n0\r\n\r\n", []),
    "an extension with a bare carriage return": (f"{SIZE};a\rb\r\n{TEXT}\r\n0\r\n\r\n", []),
    "a size with a prefix": (f"0x{SIZE}\r\n{TEXT}\r\n0\r\n\r\n", []),
    "a size with an underscore": (f"0_{SIZE}\r\n{TEXT}\r\n0\r\n\r\n", []),
    "a chunk longer than its size": (f"{SIZE}\r\n{TEXT}XX0\r\n\r\n", []),
    "a chunk shorter than its size": (f"{len(BEAT) + 1:x}\r\n{TEXT}\r\n0\r\n\r\n", []),
    "a length behind the chunks": (f"{SIZE}\r\n{TEXT}\r\n0\r\nContent-Length: 5\r\n\r\n", []),
    "identity": (TEXT, ["Transfer-Encoding: identity"]),
    "chunked behind a vertical tab": (CHUNKS, ["Transfer-Encoding: \x0bchunked"]),
    "chunked in quotes": (CHUNKS, ['Transfer-Encoding: "chunked"']),
    "chunked and nothing": (CHUNKS, ["Transfer-Encoding: chunked,"]),
    "a tab before the colon": (CHUNKS, ["Transfer-Encoding\t: chunked"]),
    "an underscore in the name": (CHUNKS, ["Transfer_Encoding: chunked", f"Content-Length : {len(CHUNKS)}"]),
    "two lengths in one": (TEXT, [f"Content-Length: {len(BEAT)} {len(BEAT)}"]),
    "a length with an underscore": (TEXT, ["Content-Length: 2_0"]),
    "a length of other digits": (TEXT, ["Content-Length: \xb2\xb0"]),
    "a length behind a NUL": (TEXT, [f"Content-Length: \0{len(BEAT)}"]),
    "a fraction": (TEXT, ["Content-Length: 20.0"]),
}


@pytest.mark.parametrize(("body", "headers"), HIDING.values(), ids=HIDING.keys())
def test_no_framing_hides_a_second_request(server: Server, client: httpx.Client, body: str, headers: list[str]) -> None:
    sim = new_sim(client)
    hidden = head(server, "POST", f"/api/sims/{sim}/cancel", "Content-Length: 0")
    sent = head(server, "POST", f"/api/sims/{sim}/heartbeat", *(headers or ["Transfer-Encoding: chunked"]))
    with Connection(server.url) as connection:
        connection.send(sent + body + hidden)
        status, answered, _ = connection.response()
        assert (status, answered["connection"]) == (400, "close")
        assert connection.is_closed()
    assert client.get(f"/api/sims/{sim}").json()["state"] == "queued"


def test_chunk_extensions_and_trailers_are_read_and_mean_nothing(server: Server, client: httpx.Client) -> None:
    sim, other = new_sim(client), new_sim(client)
    request = head(server, "POST", f"/api/sims/{sim}/heartbeat", "Transfer-Encoding: chunked")
    body = f'{SIZE};a=b;c="d"\r\n{TEXT}\r\n0;{"e" * 1000}\r\nAuthorization: Bearer x\r\nX-A: b\r\n\r\n'
    after = head(server, "GET", f"/api/sims/{other}")
    with Connection(server.url) as connection:
        connection.send(request + body + after)
        assert json.loads(connection.response()[2])["state"] == "running"
        assert json.loads(connection.response()[2])["id"] == other
    stranger = f"POST /api/sims/{other}/heartbeat HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Connection(server.url) as connection:
        connection.send(f"{stranger}{SIZE}\r\n{TEXT}\r\n0\r\nAuthorization: Bearer {server.token}\r\n\r\n")
        assert connection.response()[0] == 401


def test_of_two_authorizations_a_wrong_one_is_never_let_in_by_a_right_one_before_it(server: Server) -> None:
    right, wrong = f"Authorization: Bearer {server.token}", "Authorization: Bearer wrong"
    with Connection(server.url) as connection:
        assert connection.ask(f"GET /api/runs HTTP/1.1\r\nHost: x\r\n{right}\r\n{wrong}\r\n\r\n")[0] == 401


# Answers with a header inside that nobody wrote.

INJECTED = [
    "%0d%0aX-Injected:%201",
    "%0aX-Injected:1",
    "%0d%0a%0d%0a<script>",
    "%E5%98%8A%E5%98%8DX-Injected:1",
    "%22;x=%22",
]


@pytest.mark.parametrize("injected", INJECTED)
def test_nothing_of_a_path_or_a_header_becomes_a_header_of_the_answer(
    server: Server, client: httpx.Client, injected: str
) -> None:
    sim = new_sim(client)
    for method, path in [
        ("GET", f"/api/sims/{sim}{injected}/logs"),
        ("GET", f"/api/sims/{sim}/files/a.txt{injected}"),
        ("PUT", f"/api/sims/{sim}/files/a.txt{injected}"),
        ("GET", f"/api/sims/{injected}/kernels.csv"),
        ("GET", f"/api/runs?cursor={injected}"),
        ("GET", f"/static/{injected}/app.js"),
        ("GET", f"/static/x/{injected}"),
        ("GET", f"/{injected}"),
    ]:
        more = ["Accept: text/plain", f"If-None-Match: {injected}", "Content-Length: 0"]
        with Connection(server.url) as connection:
            connection.send(head(server, method, path, *more))
            status, headers, _ = connection.response()
        assert status in (200, 404, 422), path
        assert "x-injected" not in headers
        assert injected not in str(headers)
        assert headers.get("content-type") != "text/html; charset=utf-8"


# Paths that lead elsewhere.

TRICKS = [
    "..", "../canary.txt", "..%2fcanary.txt", "%2e%2e%2fcanary.txt", "%2e%2e/canary.txt", "..%5ccanary.txt", "..\\canary.txt",
    "%252e%252e%252fcanary.txt", "%c0%ae%c0%ae%c0%afcanary.txt", "%uff0e%uff0e/canary.txt", "..;/canary.txt", "..%00/canary.txt",
    "canary.txt%00.csv", "%2fetc%2fpasswd", "//etc/passwd", "/etc/passwd", "file:///etc/passwd", "./././a", "a" * 5000,
    "%2e%2e%2f" * 50 + "etc%2fpasswd", "..%ef%bc%8fcanary.txt", "con", "a:b", "~", "$HOME", "*", "a%0d%0a",
]  # fmt: skip


def below(folder: Path) -> set[str]:
    """Every path below a folder but for the server's own databases and stored bytes."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not re.search(r"/(objects|scratch)\b|sqlite", str(path))
    }


def test_no_path_leads_out_of_its_place(server: Server, client: httpx.Client) -> None:
    sim = new_sim(client)
    place = server.data_dir.parent
    before = below(place)
    stored = set()
    for trick in TRICKS:
        for method, path in [
            ("PUT", f"/api/sims/{sim}/files/{trick}"),
            ("GET", f"/api/sims/{sim}/files/{trick}"),
            ("GET", f"/api/sims/{trick}/files/canary.txt"),
            ("GET", f"/static/x/{trick}"),
            ("GET", f"/static/{trick}"),
            ("GET", f"/{trick}"),
            ("GET", f"/api/runs/{trick}"),
        ]:
            request = head(server, method, path, f"Content-Length: {7 * (method == 'PUT')}").encode("utf-8")
            with Connection(server.url) as connection:
                connection.send(request + b"hostile" * (method == "PUT"))
                status, _, body = connection.response()
            assert status in (200, 400, 404, 405, 422), path
            if method == "PUT" and status == 200:
                stored.add(json.loads(body)["name"])
            assert CANARY.encode() not in body, path
            assert b"root:" not in body, path
    # Of all these names one is a name.
    assert stored == {"con"}
    assert below(place) - before == {f"data/files/{sim}", f"data/files/{sim}/con"}


# Bodies that grow.


def rss_mib(server: Server, field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_bombs_of_every_build_are_413_and_take_bounded_memory(tmp_path: Path) -> None:
    ten = gzip.compress(bytes(10 * MIB), 9)
    bombs = {
        "one member": gzip.compress(bytes(100 * MIB), 9),
        "twenty members": ten * 20,
        "a bomb in a bomb": gzip.compress(gzip.compress(bytes(100 * MIB), 9), 9),
        "a long name": b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * (20 * MIB) + b"\0" + ten[10:],
    }
    kinds = [{"Content-Encoding": "gzip", "Content-Type": "application/json"}, {"Content-Type": "application/gzip"}]
    with Server(tmp_path / "data") as server, server.client() as client:
        sim = new_sim(client)
        url = f"/api/sims/{sim}/heartbeat"
        idle = rss_mib(server, "VmRSS")
        for bomb in bombs.values():
            for headers in kinds:
                with httpx.Client(base_url=server.url) as stranger:
                    assert stranger.post(url, content=bomb, headers=headers).status_code == 401
        assert rss_mib(server, "VmHWM") - idle < 64  # nobody inflates what a stranger sends
        answers = [client.post(url, content=bomb, headers=h) for bomb in bombs.values() for h in kinds]
        assert [answer.status_code for answer in answers] == [413] * 4 + [422] * 4
        with ThreadPoolExecutor(16) as pool:
            many = list(pool.map(lambda _: client.post(url, content=bombs["one member"], headers=kinds[0]), range(16)))
        assert {answer.status_code for answer in many} == {413}
        # Three times what a body may hold, for each that is looked at: the decompressor's buffer grows as it goes.
        grown = rss_mib(server, "VmHWM") - idle
        print(f"{grown:.0f} MiB for 16 bombs at once")
        assert grown < 16 * 3 * 32
        assert client.get(f"/api/sims/{sim}").json()["state"] == "queued"


# Clients that take their time.

# The real server, with less patience than it has.
IMPATIENT = """
from cascade.serve.gateway import Gateway
from cascade.serve.protocol import JsonProtocol
JsonProtocol.head_seconds = Gateway.__init__.__kwdefaults__["stall_seconds"] = 3.0
from cascade.serve.server import run
run()
"""


def test_slow_clients_hold_up_nobody_and_are_let_go(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    server.arguments = ["-c", IMPATIENT]
    with server, server.client() as client, ExitStack() as stack:
        sim = new_sim(client)
        client.put(f"/api/sims/{sim}/files/big", content=bytes(16 * MIB)).raise_for_status()
        path = f"/api/sims/{sim}/heartbeat"
        begun = head(server, "POST", path, f"Content-Length: {len(BEAT)}")
        kinds = [
            ("a head without an end", f"POST {path} HTTP/1.1\r\nX-A: "),
            ("a body that stops", begun + '{"st'),
            ("chunks that stop", head(server, "POST", path, "Transfer-Encoding: chunked") + "5\r\n{"),
            ("a large body that stops", head(server, "PUT", f"/api/sims/{sim}/files/x", f"Content-Length: {16 * MIB}")),
            ("an answer nobody takes", head(server, "GET", f"/api/sims/{sim}/files/big")),
        ]
        slow = []
        for n in range(4 * THREADS):  # more than there are threads, of each kind nearly
            connection = stack.enter_context(Connection(server.url))
            connection.send(kinds[n % len(kinds)][1])
            slow.append(connection)
        longest = 0.0
        for _ in range(20):
            sent = time.monotonic()
            client.post(path, json={"state": "running"}).raise_for_status()
            longest = max(longest, time.monotonic() - sent)
        assert longest < 5
        # Letter by letter gains a head no time.
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.2):
                for connection in slow[:: len(kinds)]:
                    with suppress(OSError):
                        connection.send("a")

        dripping = threading.Thread(target=drip)
        dripping.start()
        own = Path(f"/proc/{server.process.pid}/fd")
        if own.exists():
            eventually(lambda: sum("socket:" in target for target in links(own)) < 12, "they are let go", 60)
        stop.set()
        dripping.join()
        assert client.get(f"/api/sims/{sim}").json()["state"] == "running"
        assert server.stop() == 0
    assert [line for line in server.output[2:] if "Ctrl+C again" not in line] == []


def links(folder: Path) -> list[str]:
    found = []
    for path in folder.iterdir():
        with suppress(OSError):  # closed meanwhile
            found.append(str(path.readlink()))
    return found


# Markup that is stored.

MARKUP = "<script>alert(1)</script><svg onload=alert(1)>"


def test_no_answer_but_the_page_is_something_that_a_browser_shows(server: Server, client: httpx.Client) -> None:
    run = client.post("/api/runs", json={"name": MARKUP, "sims": [{"name": MARKUP, "params": {MARKUP: MARKUP}}]}).json()
    sim = run["sims"][0]["id"]
    client.post(f"/api/sims/{sim}/logs", json={"seq": 0, "lines": [MARKUP]}).raise_for_status()
    client.post(f"/api/sims/{sim}/step-timeline", json={"simulated": {"steps": [MARKUP], "summary": {}}})
    names = [
        "a.html",
        "a.htm",
        "a.svg",
        "a.xml",
        "a.xhtml",
        "a.js",
        "a.css",
        "a.pdf",
        "a.json",
        "a.txt",
        "a",
        "a.HTML",
        "a.html.",
    ]
    for name in names:
        client.put(f"/api/sims/{sim}/files/{name}", content=MARKUP.encode()).raise_for_status()
    client.post(f"/api/sims/{sim}/heartbeat", json={"state": "failed", "error": MARKUP})
    for name in names:
        got = client.get(f"/api/sims/{sim}/files/{name}")
        assert got.content == MARKUP.encode()
        assert got.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert got.headers["content-security-policy"] == "sandbox"
        assert got.headers["x-content-type-options"] == "nosniff"
    url = f"/api/sims/{sim}"
    paths = [
        "/api/runs", f"/api/runs/{run['id']}", f"/api/runs/{run['id']}/params", url, f"{url}/logs", f"{url}/logs?tail=1",
        f"{url}/kernels", f"{url}/step-timeline", f"{url}/files", f"/api/runs?limit={MARKUP}", f"/api/sims/{MARKUP}",
        f"/api/nothing/{MARKUP}", "/api/openapi.json", "/api/health",
    ]  # fmt: skip
    for path in paths:
        got = client.get(path)
        assert got.headers["content-type"] == "application/json", path
        if got.status_code != 404:
            assert got.headers["x-content-type-options"] == "nosniff", path
    for got in (client.get(f"{url}/logs", headers={"Accept": "text/plain"}), client.get(f"{url}/kernels.csv")):
        assert got.headers["content-type"].split(";")[0] in ("text/plain", "text/csv")
        assert got.headers["content-disposition"].startswith("attachment")
        assert got.headers["x-content-type-options"] == "nosniff"


def test_the_page_of_the_real_server_runs_nothing_but_its_own_files(client: httpx.Client) -> None:
    got = client.get("/")
    policy = dict(part.strip().partition(" ")[::2] for part in got.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in got.headers["content-security-policy"]
    assert (got.headers["x-frame-options"], got.headers["x-content-type-options"]) == ("DENY", "nosniff")
    assert "<script>" not in got.text  # each has a src
