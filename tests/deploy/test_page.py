"""The page of a deployed stage."""

import re

import httpx

from tests.deploy.conftest import Deployed


def test_the_page_is_served_beside_the_api(deployed: Deployed) -> None:
    page = httpx.get(f"{deployed.url}/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "connect-src 'self' http" in page.headers["content-security-policy"], "the bucket, for what is redirected"
    for path in re.findall(r'(?:href|src)="(static/[^"]+)"', page.text):
        found = httpx.get(f"{deployed.url}/{path}")
        assert found.status_code == 200
        assert "immutable" in found.headers["cache-control"]
    assert httpx.get(f"{deployed.url}/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
