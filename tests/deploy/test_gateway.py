"""The enforcing proxy itself: what it refuses and lets pass, at both sides of each limit, with the answers as deployed."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tests.deploy.conftest import Deployed
from tests.deploy.gateway import RESULT_BYTES, SECONDS, Gateway

pytestmark = pytest.mark.slow


class Backend:
    """Stands where the local AWS stands: answers `size` bytes, once it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.asked = threading.Semaphore(0)
        self.size = 0
        backend = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                backend.asked.release()
                assert backend.may.wait(60)
                self.send_response_only(200)
                self.send_header("Content-Type", "text/plain")
                self.end_headers()
                self.wfile.write(b"x" * backend.size)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def backend() -> Iterator[Backend]:
    made = Backend()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.may.set()
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def before(backend: Backend, deployed: Deployed, seconds: float = SECONDS) -> Gateway:
    """A proxy with what the deployed one answers."""
    return Gateway(backend.url, deployed.proxy.responses, deployed.proxy.binary_types, seconds)


def test_the_deployed_one_waits_as_long_as_api_gateway(deployed: Deployed) -> None:
    assert deployed.proxy.seconds == SECONDS == 29


def test_who_does_not_answer_in_time_is_a_504_that_says_to_come_back(deployed: Deployed, backend: Backend) -> None:
    with before(backend, deployed, seconds=0.1) as proxy:
        answer = httpx.get(f"{proxy.url}/slow", timeout=30)
        assert backend.asked.acquire(timeout=30), "the call was under way"
        assert answer.status_code == 504
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["retry-after"] == "1"
        assert answer.json() == {"detail": "the service did not answer, send the same request again"}


def test_who_answers_late_but_in_time_is_heard(deployed: Deployed, backend: Backend) -> None:
    with before(backend, deployed) as proxy:
        answers: list[httpx.Response] = []
        client = threading.Thread(target=lambda: answers.append(httpx.get(f"{proxy.url}/slow", timeout=30)))
        client.start()
        assert backend.asked.acquire(timeout=30)
        backend.may.set()
        client.join(30)
    assert [answer.status_code for answer in answers] == [200]


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 502)])
def test_both_sides_of_the_limit_of_an_answer(deployed: Deployed, backend: Backend, more: int, status: int) -> None:
    backend.may.set()
    empty = {"statusCode": 200, "headers": {"Content-Type": "text/plain"}, "body": ""}
    backend.size = RESULT_BYTES - len(json.dumps(empty)) + more
    with before(backend, deployed) as proxy:
        answer = httpx.get(f"{proxy.url}/large", timeout=30)
    assert answer.status_code == status
    if status == 200:
        assert len(answer.content) == backend.size > 6_000_000
    else:
        assert answer.json() == {"detail": "the service did not answer, send the same request again"}


def test_gzip_that_is_none_is_refused_in_the_one_shape(deployed: Deployed) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with deployed.client() as client:
        answer = client.post("/api/runs", content=b"\x1f\x8b\x08\x00garbage", headers=headers)
    assert answer.status_code == 400
    assert set(answer.json()) == {"detail"}
