"""On AWS a large answer is a redirect to the bucket: the page follows it, and takes the token nowhere."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from playwright.sync_api import Route, expect

from tests.page import sims
from tests.page.conftest import Open


class Bucket(BaseHTTPRequestHandler):
    """Gives bytes to whoever has the URL, with the CORS header of infra/resources.yaml, and notes how it was asked."""

    asked: list[dict[str, str]]

    def do_GET(self) -> None:
        self.asked.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"bytes")

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def bucket() -> Iterator[tuple[str, list[dict[str, str]]]]:
    handler = type("Asked", (Bucket,), {"asked": []})
    with HTTPServer(("127.0.0.1", 0), handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}", handler.asked
        made.shutdown()
        thread.join()


def test_a_file_is_downloaded_from_the_bucket_without_the_token(
    open_page: Open, client: httpx.Client, bucket: tuple[str, list[dict[str, str]]]
) -> None:
    origin, asked = bucket
    sim = sims.new_sim(client)
    client.put(f"/api/sims/{sim}/files/a.bin", content=b"other").raise_for_status()

    def behind_aws(route: Route) -> None:
        answer = route.fetch()
        policy = answer.headers["content-security-policy"].replace("connect-src 'self'", f"connect-src 'self' {origin}")
        route.fulfill(response=answer, headers={**answer.headers, "content-security-policy": policy})

    def prepare(page: Any) -> None:
        page.route(str(client.base_url), behind_aws)
        moved = {"Location": f"{origin}/a.bin?X-Amz-Signature=1"}
        page.route("**/files/a.bin", lambda route: route.fulfill(status=302, headers=moved))

    # Chromium takes an answer made by the test for one of a public host, which has to be let onto this machine.
    allowed = ["local-network-access"]
    page = open_page(f"#/sims/{sim}?tab=files", own=(origin,), prepare=prepare, permissions=allowed)
    with page.expect_download() as waited:
        page.get_by_role("button", name="Download a.bin").click()
    assert waited.value.path().read_bytes() == b"bytes"
    assert len(asked) == 1
    assert "authorization" not in asked[0]
    assert "referer" not in asked[0]
    expect(page.get_by_role("button", name="Download a.bin")).to_be_visible()
