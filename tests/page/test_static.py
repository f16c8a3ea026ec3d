"""What is sent for the page, without a browser."""

import gzip
import hashlib
import re

import pytest

from chalicelib import page
from tests.aws import Api

FILES = sorted(path.name for path in page.FOLDER.iterdir() if path.suffix in page.TYPES and path.name != "index.html")
PINNED = {
    "uplot-1.6.32.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uplot-1.6.32.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""SHA-256 of the files that are not the project's own, as published on npm."""


def test_the_page_needs_no_token_and_says_what_a_browser_may_do_with_it(api: Api) -> None:
    answer = api.get("/", token=None)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_the_page_is_asked_for_anew_and_answered_by_304(api: Api) -> None:
    tag = api.get("/").headers["etag"]
    again = api.get("/", headers={"If-None-Match": tag})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert api.get("/", headers={"If-None-Match": '"other"'}).status == 200


def test_every_file_the_page_names_is_there(api: Api) -> None:
    text = api.get("/").text
    assert "{version}" not in text
    named = re.findall(r'(?:href|src)="(static/[^"]+)"', text)
    assert len(named) > 5
    for path in named:
        assert api.get(f"/{path}", token=None).status == 200, path
    for name in FILES:
        if name.endswith(".js"):
            source = (page.FOLDER / name).read_text(encoding="utf-8")
            for imported in re.findall(r'(?:from |import\(|import )"\./([^"]+)"', source):
                assert imported in FILES, f"{name} imports {imported}"


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_kept_forever_under_its_version(api: Api, name: str) -> None:
    answer = api.get(f"/static/{page.version()}/{name}", token=None)
    assert (answer.status, answer.body) == (200, (page.FOLDER / name).read_bytes())
    assert answer.headers["content-type"] == page.TYPES[f".{name.rpartition('.')[2]}"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "immutable" in answer.headers["cache-control"]
    assert api.get(f"/static/000000000000/{name}").headers["cache-control"] == "no-cache"


def test_a_large_file_is_compressed_for_those_who_take_it(api: Api) -> None:
    path = f"/static/{page.version()}/run.js"
    plain = api.get(path)
    packed = api.get(path, headers={"Accept-Encoding": "gzip, br"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert "Accept-Encoding" in packed.headers["vary"]


@pytest.mark.parametrize("name", ["none.js", "index.html", "..%2fpage.py", "uplot-1.6.32.LICENSE.txt", "%2e%2e"])
def test_nothing_else_is_served(api: Api, name: str) -> None:
    answer = api.get(f"/static/{page.version()}/{name}", token=None)
    assert (answer.status, answer.json()) == (404, {"detail": "not found"})


def test_behind_api_gateway_files_are_text_and_the_bucket_may_be_read(lambda_api: Api) -> None:
    answer = lambda_api.get("/", token=None)
    policy = answer.headers["content-security-policy"]
    assert re.search(r"connect-src 'self' https://[a-z0-9.-]*amazonaws\.com;", policy)
    packed = lambda_api.get(f"/static/{page.version()}/run.js", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in packed.headers
    assert packed.text.startswith("// One run")


def test_the_page_is_no_part_of_the_api(api: Api) -> None:
    paths = api.get("/api/openapi.json").json()["paths"]
    assert all(path.startswith("/api/") for path in paths)
    assert api.post("/", token=None).status == 405


def test_everything_together_is_under_150_kb_compressed() -> None:
    whole = sum(len(gzip.compress(path.read_bytes())) for path in page.FOLDER.iterdir() if path.suffix in page.TYPES)
    assert whole < 150_000


@pytest.mark.parametrize("name", FILES)
def test_nothing_asks_another_host(name: str) -> None:
    text = (page.FOLDER / name).read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
    assert not addresses or name in PINNED


@pytest.mark.parametrize("name", FILES)
def test_no_file_of_ours_parses_markup(name: str) -> None:
    if name in PINNED:
        pytest.skip("not ours")
    text = (page.FOLDER / name).read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)


@pytest.mark.parametrize(("name", "digest"), PINNED.items())
def test_code_of_others_is_as_published_and_has_its_licence(name: str, digest: str) -> None:
    assert hashlib.sha256((page.FOLDER / name).read_bytes()).hexdigest() == digest
    assert "MIT" in (page.FOLDER / "uplot-1.6.32.LICENSE.txt").read_text(encoding="utf-8")
