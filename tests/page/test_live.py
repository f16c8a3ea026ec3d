"""The page stays true while things change, fail and vanish."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.server import Server
from tests.page import sims
from tests.page.conftest import Open
from tests.waiting import eventually

SOON = 3000
"""Milliseconds within which news is shown."""


def test_beats_lines_kernels_and_states_appear_within_3_seconds(open_page: Open, client: httpx.Client) -> None:
    run, (sim,) = sims.new_run(client, "alive", [{"name": "grows"}])
    of_run = open_page(f"#/runs/{run}")
    of_log = open_page(f"#/sims/{sim}")
    of_kernels = open_page(f"#/sims/{sim}?tab=kernels")
    expect(of_run.get_by_role("row", name="queued")).to_be_visible()
    expect(of_log.get_by_text("No line yet.")).to_be_visible()
    expect(of_kernels.get_by_text("No kernel has finished yet.")).to_be_visible()
    sims.beat(client, sim)
    sims.log(client, sim, 0, "first line", *sims.blocks(1, 2))
    expect(of_run.get_by_role("row", name="running")).to_be_visible(timeout=SOON)
    expect(of_log.get_by_text("first line")).to_be_visible(timeout=SOON)
    expect(of_kernels.get_by_role("table", name="Kernels").get_by_text("k2")).to_be_visible(timeout=SOON)
    sims.log(client, sim, 1, "second line", *sims.blocks(3, 3))
    sims.beat(client, sim, "failed", exit_code=2, error="it broke")
    expect(of_run.get_by_role("row", name="it broke")).to_be_visible(timeout=SOON)
    expect(of_log.get_by_text("second line")).to_be_visible(timeout=SOON)
    expect(of_log.get_by_role("region", name="Error")).to_have_text("it broke", timeout=SOON)
    expect(of_kernels.get_by_role("table", name="Kernels").get_by_text("k3")).to_be_visible(timeout=SOON)


def test_a_refresh_is_one_request(open_page: Open, client: httpx.Client) -> None:
    run, (sim,) = sims.new_run(client)
    sims.beat(client, sim)
    sims.log(client, sim, 0, "a line")
    addresses = {f"#/runs/{run}": f"/api/runs/{run}", f"#/sims/{sim}": f"/api/sims/{sim}", "#/": "/api/runs"}
    asked: dict[str, list[tuple[float, str]]] = {}
    pages = []
    for address, path in addresses.items():
        page = open_page(address)
        expect(page.locator("#pulse")).to_have_text("Live")
        pages.append(page)
        asked[path] = []
        page.on("request", lambda request, to=asked[path]: to.append((time.monotonic(), request.url)))
    eventually(lambda: pages[0].wait_for_timeout(100) or all(len(found) >= 3 for found in asked.values()), "3 requests")
    for path, requests in asked.items():
        paths = {url.partition("?")[0] for _, url in requests}
        assert {url[url.index("/api/") :] for url in paths} == {path}
        gaps = [later - earlier for (earlier, _), (later, _) in pairwise(requests)]
        assert min(gaps) > 1.5, "more often than every 2 s"


def test_what_has_ended_is_asked_for_every_15_seconds(open_page: Open, client: httpx.Client) -> None:
    run, (sim,) = sims.new_run(client)
    sims.beat(client, sim, "succeeded", exit_code=0)
    page = open_page(f"#/runs/{run}", prepare=lambda page: page.clock.install())
    expect(page.get_by_role("row", name="succeeded")).to_be_visible()
    expect(page.locator("#pulse")).to_have_text("Live")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(12_000)
    assert asked == []
    with page.expect_response("**/api/runs/*"):
        page.clock.run_for(4000)


def hide(page: Page, hidden: bool) -> None:
    page.evaluate(
        "(hidden) => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def test_a_hidden_tab_is_asked_for_every_30_seconds_and_fresh_when_seen_again(
    open_page: Open, client: httpx.Client
) -> None:
    sim = sims.new_sim(client)
    sims.beat(client, sim)
    page = open_page(f"#/sims/{sim}", prepare=lambda page: page.clock.install())
    expect(page.locator("#pulse")).to_have_text("Live")
    hide(page, True)
    with page.expect_response("**/api/sims/*"):  # the one that was due
        page.clock.run_for(3000)
    expect(page.locator("#pulse")).to_have_text("Live")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(25_000)
    assert asked == []
    with page.expect_response("**/api/sims/*"):
        page.clock.run_for(6000)
    sims.log(client, sim, 0, "while away")
    hide(page, False)
    expect(page.get_by_text("while away")).to_be_visible()


@pytest.mark.parametrize("asked", [True, False], ids=["when asked", "by itself"])
def test_a_server_that_stops_is_told_and_its_return_seen(browser: Any, tmp_path: Path, asked: bool) -> None:
    server = Server(tmp_path, CASCADE_HEARTBEAT_TIMEOUT_S="3600")
    with server:
        with server.client() as client:
            sim = sims.new_sim(client, name="stays")
            sims.beat(client, sim)
            sims.log(client, sim, 0, "the line before")
        context = browser.new_context()
        page = context.new_page()
        page.add_init_script(f"sessionStorage.setItem('cascade-token', '{server.token}')")
        page.clock.install()
        page.goto(f"{server.url}/#/sims/{sim}")
        expect(page.get_by_text("the line before")).to_be_visible()
        server.kill()
        expect(page.get_by_role("alert")).to_contain_text("The server does not answer", timeout=10_000)
        expect(page.get_by_role("alert")).to_contain_text("What you see is of")
        expect(page.locator("#pulse")).to_have_text("Not live")
        expect(page.get_by_text("the line before")).to_be_visible()
        if asked:
            # Its own next try must not come first.
            page.clock.pause_at(page.evaluate("Date.now()") + 10_000)
        server.env["PORT"] = server.url.rpartition(":")[2]
        server.start()
        with server.client() as client:
            sims.log(client, sim, 1, "after")
        if asked:
            page.get_by_role("button", name="Try now").click()
            page.clock.resume()
        expect(page.get_by_text("after", exact=True)).to_be_visible(timeout=40_000)
        expect(page.get_by_role("alert")).to_be_empty()
        expect(page.locator("#pulse")).to_have_text("Live")
        context.close()


def test_a_503_in_the_middle_of_a_follow_loses_and_doubles_nothing(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    sims.beat(client, sim)
    sims.log(client, sim, 0, "line 0")
    page = open_page(f"#/sims/{sim}")
    expect(page.get_by_text("line 0")).to_be_visible()
    refused = []

    def busy(route: Route) -> None:
        refused.append(route.request.url)
        route.fulfill(
            status=503, headers={"Retry-After": "1", "Content-Type": "application/json"}, body='{"detail": "throttled"}'
        )

    page.route("**/logs?from_seq=*", busy)
    sims.log(client, sim, 1, "line 1")
    expect(page.get_by_role("alert")).to_contain_text("The server is busy (throttled)")
    sims.log(client, sim, 2, "line 2")
    page.unroute("**/logs?from_seq=*")
    expect(page.get_by_text("line 2")).to_be_visible(timeout=10_000)
    expect(page.get_by_role("alert")).to_be_empty()
    assert refused
    lines = page.get_by_role("region", name="Log lines").locator(".line").all_inner_texts()
    assert lines == ["line 0", "line 1", "line 2"]


def test_a_gateways_own_error_page_is_told_in_words(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    page = open_page(f"#/sims/{sim}")
    expect(page.get_by_text("No line yet.")).to_be_visible()
    page.route("**/api/**", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
    expect(page.get_by_role("alert")).to_contain_text("the server answered 502")


def test_a_sim_deleted_while_open_says_so_and_is_not_asked_for_again(open_page: Open, client: httpx.Client) -> None:
    run, (sim,) = sims.new_run(client, "soon gone", [{"name": "short-lived"}])
    sims.log(client, sim, 0, "a line")
    of_sim = open_page(f"#/sims/{sim}", prepare=lambda page: page.clock.install())
    of_run = open_page(f"#/runs/{run}")
    expect(of_sim.get_by_text("a line")).to_be_visible()
    expect(of_run.get_by_role("link", name="short-lived")).to_be_visible()
    client.delete(f"/api/runs/{run}").raise_for_status()
    of_sim.clock.run_for(3000)
    expect(of_sim.get_by_text("This sim was deleted, with its run, while it was open here.")).to_be_visible(
        timeout=10_000
    )
    expect(of_run.get_by_text("This run was deleted while it was open here.")).to_be_visible(timeout=10_000)
    asked: list[str] = []
    of_sim.on("request", lambda request: asked.append(request.url))
    of_sim.clock.run_for(60_000)
    assert asked == []
    of_sim.get_by_role("link", name="All runs").click()
    expect(of_sim.get_by_role("heading", name="Runs")).to_be_visible()


def test_a_token_revoked_while_open_is_asked_for_anew_where_the_reader_was(
    open_page: Open, client: httpx.Client, server: Server
) -> None:
    sim = sims.new_sim(client, name="stays put")
    page = open_page(f"#/sims/{sim}")
    expect(page.get_by_role("heading", name="stays put")).to_be_visible()
    page.route(
        "**/api/**",
        lambda route: route.fulfill(
            status=401, content_type="application/json", body='{"detail": "missing or wrong token"}'
        ),
    )
    expect(page.get_by_text("The server no longer knows this tab's token.")).to_be_visible(timeout=10_000)
    assert page.evaluate("sessionStorage.getItem('cascade-token')") is None
    page.unroute("**/api/**")
    page.get_by_label("Token", exact=True).fill(server.token)
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading", name="stays put")).to_be_visible()
