"""A live server and Debian's chromium, driven by Playwright: what a reader sees is what is tested."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server

NOISE = ("Failed to load resource",)
"""Chromium's own note of an answer that is not 2xx; the tests that provoke those look at what the page makes of it."""


def _chromium() -> str:
    path = shutil.which("chromium")
    if path is None:
        reason = "no chromium: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


# Of the package, not of the session: while Playwright runs, no other event loop can on this thread.
@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    path = _chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Without a sandbox, since root has none; the pages are the project's own.
        made = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("page"), CASCADE_HEARTBEAT_TIMEOUT_S="3600") as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made


Open = Callable[..., Any]


def _nothing(page: Any) -> None:
    """The preparation of a page that needs none."""


@pytest.fixture
def open_page(browser: Any, server: Server) -> Iterator[Open]:
    """Opens the page at an address, with the token unless told not to; fails on any error of the page's own."""
    contexts, wrong = [], []

    def opened(
        address: str = "#/",
        *,
        token: str | None = server.token,
        own: tuple[str, ...] = (),
        prepare: Callable[[Any], None] = _nothing,
        **options: Any,
    ) -> Any:
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, "accept_downloads": True} | options
        )
        contexts.append(context)
        context.set_default_timeout(15_000)
        if token is not None:
            # Once: a reload after "Forget token" must not bring it back.
            context.add_init_script(
                "if (!sessionStorage.getItem('begun')) { sessionStorage.setItem('begun', '1');"
                f" sessionStorage.setItem('cascade-token', '{token}'); }}"
            )
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "console",
            lambda message: (
                wrong.append(f"console: {message.text}")
                if message.type in ("error", "warning") and not message.text.startswith(NOISE)
                else None
            ),
        )
        page.on("request", lambda request: _own(request.url, own))
        prepare(page)
        page.goto(f"{server.url}/{address}")
        return page

    def _own(url: str, also: tuple[str, ...]) -> None:
        if not url.startswith((f"{server.url}/", "blob:", *also)):
            wrong.append(f"request elsewhere: {url}")

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
