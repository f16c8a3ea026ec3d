"""The client against servers that answer oddly, without a network."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from cascade.client import (
    Client,
    Conflict,
    NotCascade,
    NotFound,
    Rejected,
    TooLarge,
    Unauthorized,
    Unavailable,
)

ACK = {"state": "running", "cancel": False}
FILE = {
    "name": "a.bin",
    "size": 3,
    "content_type": "application/octet-stream",
    "created_at": "2026-01-01T00:00:00.000000Z",
}
Answer = httpx.Response | Exception


@contextmanager
def answering(
    monkeypatch: pytest.MonkeyPatch, *answers: Answer | Callable[[httpx.Request], Answer]
) -> Iterator[tuple[Client, list[httpx.Request]]]:
    """A client whose calls get `answers` one after the other, the last one for ever; waits take no time."""
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        request.read()
        seen.append(request)
        answer = answers[min(len(seen), len(answers)) - 1]
        found = answer if isinstance(answer, httpx.Response | Exception) else answer(request)
        if isinstance(found, Exception):
            raise found
        return httpx.Response(found.status_code, headers=found.headers, content=found.content)

    waits: list[float] = []
    with Client("http://cascade.test", "secret", give_up_after=1e9, on_retry=lambda _, s: waits.append(s)) as client:
        monkeypatch.setattr(client, "_http", httpx.Client(transport=httpx.MockTransport(handle)))
        monkeypatch.setattr("tenacity.nap.sleep_using_event.__call__", lambda self, seconds: None)
        client.waits = waits  # type: ignore[attr-defined]
        yield client, seen


@pytest.mark.parametrize(
    "bad",
    [
        httpx.Response(500),
        httpx.Response(502, text="<html>Bad Gateway</html>"),
        httpx.Response(429),
        httpx.Response(408),
        httpx.Response(200, text="<html>Please log in</html>"),
        httpx.Response(200, text='{"state": "run'),
        httpx.Response(200, json={"state": "nowhere", "cancel": False}),
        httpx.Response(204),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("late"),
        httpx.RemoteProtocolError("half an answer"),
    ],
    ids=str,
)  # fmt: skip
def test_what_may_be_better_next_time_is_tried_again(monkeypatch: pytest.MonkeyPatch, bad: Answer) -> None:
    with answering(monkeypatch, bad, bad, httpx.Response(200, json=ACK)) as (client, seen):
        assert client.heartbeat("sim-6b4c91e71437").state == "running"
    assert len(seen) == 3
    assert {request.content for request in seen} == {seen[0].content}


def test_retry_after_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    later = httpx.Response(503, headers={"Retry-After": "7"}, json={"detail": "slow"})
    with answering(monkeypatch, later, httpx.Response(200, json=ACK)) as (client, _):
        client.heartbeat("sim-6b4c91e71437")
        (wait,) = client.waits  # type: ignore[attr-defined]
    assert 7 <= wait <= 8


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (httpx.Response(401, json={"detail": "no"}), Unauthorized, "CASCADE_TOKEN"),
        (httpx.Response(404, json={"detail": "sim x not found"}), NotFound, "sim x not found"),
        (httpx.Response(404, text="<html>nginx</html>"), NotCascade, "CASCADE_URL"),
        (httpx.Response(409, json={"detail": "later"}), Conflict, "later"),
        (httpx.Response(422, json={"detail": [{"loc": ["body", "seq"], "msg": "wrong"}]}), Rejected, "body.seq: wrong"),
        (httpx.Response(301, headers={"Location": "https://elsewhere.test/"}), NotCascade, "elsewhere.test"),
    ],
)
def test_what_will_not_get_better_is_raised_at_once(
    monkeypatch: pytest.MonkeyPatch, answer: httpx.Response, kind: type[Exception], words: str
) -> None:
    with answering(monkeypatch, answer) as (client, seen), pytest.raises(kind, match=words):
        client.heartbeat("sim-6b4c91e71437")
    assert len(seen) == 1


def test_it_gives_up_after_the_time_it_was_given() -> None:
    with (
        Client("http://127.0.0.1:1", "secret", give_up_after=0) as client,
        pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"),
    ):
        client.heartbeat("sim-6b4c91e71437")


def test_a_deletion_whose_answer_was_lost_is_a_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = httpx.Response(404, json={"detail": "run not found"})
    with answering(monkeypatch, httpx.ReadTimeout("late"), gone) as (client, _):
        client.delete_run("run-0f3a9c2b5d71")
    with answering(monkeypatch, gone) as (client, _), pytest.raises(NotFound):
        client.delete_run("run-0f3a9c2b5d71")


def test_a_file_too_large_for_the_door_goes_past_it_and_the_token_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        httpx.Response(413, json={"detail": "over the door's limit"}),
        httpx.Response(201, json=BEGUN),
        httpx.Response(200, text=""),
        httpx.Response(200, json=FILE),
    ]
    with answering(monkeypatch, *answers) as (client, seen):
        assert client.upload_file("sim-6b4c91e71437", "a.bin", b"abc").size == 3
    assert [(request.method, str(request.url)) for request in seen] == [
        ("PUT", "http://cascade.test/api/sims/sim-6b4c91e71437/files/a.bin"),
        ("POST", "http://cascade.test/api/sims/sim-6b4c91e71437/uploads/a.bin"),
        ("PUT", "https://bucket.test/key?sig=1"),
        ("POST", "http://cascade.test/api/sims/sim-6b4c91e71437/uploads/a.bin/u1"),
    ]
    assert json.loads(seen[1].content) == {"size": 3}
    assert seen[2].content == b"abc"
    assert seen[2].headers["x-amz-meta-upload"] == "u1"
    assert "authorization" not in seen[2].headers
    assert all(request.headers["authorization"] == "Bearer secret" for request in (seen[0], seen[1], seen[3]))


BEGUN = {
    "id": "u1",
    "url": "https://bucket.test/key?sig=1",
    "headers": {"x-amz-meta-upload": "u1"},
    "expires_at": "2026-01-01T00:00:00.000000Z",
}
EXPIRED = httpx.Response(
    403, text="<?xml?><Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
)


@pytest.mark.parametrize("refused", ["bytes", "done"])
def test_an_upload_that_expired_on_the_way_is_begun_anew(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    begun, gone = httpx.Response(201, json=BEGUN), httpx.Response(409, json={"detail": "no bytes of upload u1"})
    first = [EXPIRED] if refused == "bytes" else [httpx.Response(200), gone]
    answers = [begun, *first, begun, httpx.Response(200), httpx.Response(200, json=FILE)]
    with answering(monkeypatch, httpx.Response(413), *answers) as (client, seen):
        assert client.upload_file("sim-6b4c91e71437", "a.bin", b"abc").size == 3
    assert [str(request.url) for request in seen].count(
        "http://cascade.test/api/sims/sim-6b4c91e71437/uploads/a.bin"
    ) == 2


def test_an_upload_that_is_always_refused_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "bucket.test":
            return EXPIRED
        return httpx.Response(413) if request.method == "PUT" else httpx.Response(201, json=BEGUN)

    with (
        answering(monkeypatch, answer) as (client, seen),
        pytest.raises(Rejected, match="403 of the object store: Request has expired"),
    ):
        client.upload_file("sim-6b4c91e71437", "a.bin", b"abc")
    assert len(seen) == 1 + 2 * 3


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda client: client.send_log_chunk("sim-6b4c91e71437", 0, ["x"]), httpx.Response(204)),
        (lambda client: client.send_step_timeline("sim-6b4c91e71437", {"steps": []}), httpx.Response(204)),
        (
            lambda client: client.add_sims("run-0f3a9c2b5d71", [{"params": {"p": "x" * 100_000}}]),
            httpx.Response(201, json=[]),
        ),
    ],
    ids=["log", "step timing", "sims"],
)
def test_compressed_json_is_sent_so_that_api_gateway_hands_it_on_compressed(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Client], object], answer: httpx.Response
) -> None:
    with answering(monkeypatch, answer) as (client, seen):
        call(client)
    assert seen[0].headers["content-type"] == "application/gzip"
    assert "content-encoding" not in seen[0].headers
    assert isinstance(json.loads(gzip.decompress(seen[0].content)), dict)


def test_a_file_that_is_too_large_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    full = httpx.Response(413, json={"detail": "the sim's files would pass 256 MiB in all"})
    with answering(monkeypatch, full) as (client, seen), pytest.raises(TooLarge, match="256 MiB"):
        client.upload_file("sim-6b4c91e71437", "a.bin", b"abc")
    assert len(seen) == 2


def test_a_redirect_to_the_object_store_goes_without_the_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = httpx.Response(302, headers={"Location": "https://bucket.test/key"})
    with answering(monkeypatch, found, httpx.Response(200, content=b"bytes")) as (client, seen):
        client.download_file("sim-6b4c91e71437", "a.bin", tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == b"bytes"
    assert "authorization" not in seen[1].headers
