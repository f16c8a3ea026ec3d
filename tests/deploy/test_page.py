"""The page of a deployed stage."""

import re
from urllib.parse import urljoin

import httpx

from tests.deploy.conftest import Deployed


def test_the_page_is_served_beside_the_api(deployed: Deployed) -> None:
    address = deployed.output.splitlines()[-1].removeprefix("the page: ").replace(deployed.direct, deployed.url)
    page = httpx.get(address)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "connect-src 'self' http" in page.headers["content-security-policy"], "the bucket, for what is redirected"
    for path in re.findall(r'(?:href|src)="(static/[^"]+)"', page.text):
        found = httpx.get(urljoin(address, path))  # as a browser finds it
        assert found.status_code == 200
        assert "immutable" in found.headers["cache-control"]
    assert httpx.get(f"{deployed.url}/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
