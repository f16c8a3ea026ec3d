"""Presigned links: each good for one method on one object, for minutes, and for nothing else."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chalicelib import blobs
from tests.aws import TOKEN, Api
from tests.security.sigv4 import accepts

BYTES = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=2)  # the signer's clock is read to the second


def good(method: str, url: str, headers: dict[str, str], now: datetime) -> bool:
    return accepts(method, url, headers, os.environ["AWS_SECRET_ACCESS_KEY"], now)


def link(api: Api, path: str, headers: dict[str, str] | None = None) -> str:
    answer = api.get(path, headers=headers)
    assert (answer.status, answer.body) == (302, b"")
    assert answer.headers["cache-control"] == "no-store"
    return answer.headers["location"]


def two_files(api: Api) -> tuple[str, str]:
    """A sim with a file put twice, and the link to what counts."""
    sim = api.new_sim()
    for body in (b"old", b"new"):
        assert api.put(f"/api/sims/{sim}/files/a.html", body, headers=BYTES).status == 200
    api.put(f"/api/sims/{sim}/files/b.html", b"other", headers=BYTES)
    return sim, link(api, f"/api/sims/{sim}/files/a.html")


def test_a_download_link_is_good_for_five_minutes(lambda_api: Api, now: datetime) -> None:
    _, url = two_files(lambda_api)
    assert good("GET", url, {}, now)
    assert good("GET", url, {"Range": "bytes=0-1"}, now)
    assert good("GET", url, {}, now + timedelta(seconds=blobs.PRESIGNED_SECONDS - 5))
    assert not good("GET", url, {}, now + timedelta(seconds=blobs.PRESIGNED_SECONDS))
    assert not good("GET", url, {}, now - timedelta(minutes=1))
    assert blobs.PRESIGNED_SECONDS == 300


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "HEAD"])
def test_a_download_link_is_for_reading_alone(lambda_api: Api, now: datetime, method: str) -> None:
    assert not good(method, two_files(lambda_api)[1], {}, now)


def test_a_download_link_is_for_one_version_of_one_file_as_an_attachment(lambda_api: Api, now: datetime) -> None:
    sim, url = two_files(lambda_api)
    version = url.partition("versionId=")[2].partition("&")[0]
    changes = [
        ("a.html", "b.html"),
        (sim, lambda_api.new_sim()),
        ("/files/", "/logs/"),
        (f"versionId={version}", "versionId=null"),
        (f"versionId={version}&", ""),
        ("attachment", "inline"),
        ("text%2Fhtml", "text%2Fplain"),
        (f"X-Amz-Expires={blobs.PRESIGNED_SECONDS}", "X-Amz-Expires=604800"),
        ("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders="),
    ]
    for old, new in changes:
        assert old in url, old
        assert not good("GET", url.replace(old, new), {}, now), new
    for added in ("&acl", "&tagging", "&versions", "&response-content-type=text/html"):
        assert not good("GET", url + added, {}, now), added
    assert TOKEN not in url


def test_an_upload_link_takes_that_many_bytes_of_that_file_for_ten_minutes(lambda_api: Api, now: datetime) -> None:
    sim = lambda_api.new_sim()
    begun = lambda_api.post(f"/api/sims/{sim}/uploads/a.csv", {"size": 1000})
    assert begun.status == 201
    url, given = begun.json()["url"], begun.json()["headers"]
    right = {**given, "Content-Length": "1000"}
    assert good("PUT", url, right, now)
    assert good("PUT", url, right, now + timedelta(seconds=blobs.UPLOAD_SECONDS - 5))
    assert not good("PUT", url, right, now + timedelta(seconds=blobs.UPLOAD_SECONDS))
    assert blobs.UPLOAD_SECONDS == 600
    for method in ("GET", "DELETE", "POST"):
        assert not good(method, url, right, now)
    wrong: list[dict[str, Any]] = [
        {"Content-Length": "1001"},
        {"Content-Length": "0"},
        {"Content-Type": "text/html"},
        {"x-amz-meta-upload": "0" * 16},
        {"x-amz-acl": "public-read"},
        {"x-amz-meta-more": "x"},
        {"x-amz-copy-source": "/bucket/another"},
    ]
    for change in wrong:
        assert not good("PUT", url, right | change, now), change
    for name in right:
        assert not good("PUT", url, {k: v for k, v in right.items() if k != name}, now), name
    assert not good("PUT", url.replace("a.csv", "b.csv"), right, now)
    assert not good("PUT", url.replace(sim, lambda_api.new_sim()), right, now)
    assert TOKEN not in url


def test_a_link_to_an_answer_that_is_too_large_is_as_narrow(
    lambda_api: Api, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chalicelib import settings

    sim = lambda_api.new_sim()
    lambda_api.post(f"/api/sims/{sim}/logs", {"seq": 0, "lines": ["x" * 200]})
    lambda_api.post(f"/api/sims/{sim}/step-timeline", {"simulated": {"steps": ["x" * 200], "summary": {}}})
    monkeypatch.setattr(settings, "RESPONSE_MAX_BYTES", 100)
    text = link(lambda_api, f"/api/sims/{sim}/logs", {"Accept": "text/plain"})
    timing = link(lambda_api, f"/api/sims/{sim}/step-timeline")
    for url in (text, timing):
        assert good("GET", url, {}, now)
        assert not good("GET", url, {}, now + timedelta(seconds=blobs.PRESIGNED_SECONDS))
        assert not good("PUT", url, {}, now)
        assert "response-content-disposition=attachment" in url
        # Nobody guesses the name of another one.
        assert len(url.partition("/exports/")[2].partition("?")[0]) == 32
    assert text.partition("?")[0] != timing.partition("?")[0]
