"""For everyone: a checker on every view in light and dark, the keyboard alone, and a phone."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.e2e.server import Server
from tests.page import sims
from tests.page.conftest import Open

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def world(server: Server) -> Iterator[dict[str, str]]:
    """A run with a sim in every state that is reached without waiting, one of them with everything a sim can have."""
    with server.client() as client:
        run, ids = sims.new_run(
            client,
            "everything",
            [{"name": f"sim {i}", "params": {"l2": f"{i}MB", "kind": "ab"[i % 2]}} for i in range(5)],
        )
        sims.simulate(client, ids[0], kernels=5)
        sims.log(
            client,
            ids[0],
            40,
            "\x1b[31mred\x1b[32m green\x1b[33m yellow\x1b[34m blue\x1b[35m magenta\x1b[36m cyan\x1b[37m white\x1b[41m on\x1b[47;30m white\x1b[0m",
        )
        client.post(f"/api/sims/{ids[0]}/step-timeline", json=sims.TIMING).raise_for_status()
        client.put(f"/api/sims/{ids[0]}/files/stats.csv", content=b"a,b").raise_for_status()
        sims.simulate(client, ids[1], kernels=4, seed=2)
        sims.beat(client, ids[1], "succeeded", exit_code=0)
        sims.beat(client, ids[2], "failed", exit_code=3, error="no trace at /traces/one")
        client.post(f"/api/sims/{ids[3]}/cancel").raise_for_status()
        yield {"run": run, "sim": ids[0], "other": ids[1], "failed": ids[2], "queued": ids[4]}


VIEWS = {
    "runs": ("#/", "everything"),
    "run": ("#/runs/{run}?x=l2", "Cycles of 2 sims"),
    "log": ("#/sims/{sim}", "magenta"),
    "kernels": ("#/sims/{sim}?tab=kernels", "5 kernels, "),
    "timing": ("#/sims/{sim}?tab=timing", "7 decode steps; simulated"),
    "files": ("#/sims/{sim}?tab=files", "stats.csv"),
    "failed": ("#/sims/{failed}", "no trace at /traces/one"),
    "queued": ("#/sims/{queued}", "it waits for a worker"),
    "compare": ("#/compare?a={run}&b={run}&sa={sim}&sb={other}", "B against A".replace("B against A", "against A")),
    "gone": ("#/sims/sim-000000000000", "No sim has this id."),
}


def faults(page: Any) -> list[str]:
    """What axe finds serious or critical, each with the elements it is about."""
    found = Axe().run(page, options={"runOnly": TAGS, "resultTypes": ["violations"]}).response["violations"]
    return [
        f"{one['impact']} {one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']][:3]}"
        for one in found
        if one["impact"] in ("serious", "critical", "moderate")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_the_checker_finds_nothing(open_page: Open, world: dict[str, str], view: str, scheme: str) -> None:
    address, words = VIEWS[view]
    page = open_page(address.format(**world), color_scheme=scheme)
    expect(page.get_by_text(words).first).to_be_visible()
    assert faults(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_checker_finds_nothing_in_the_token_form_a_dialog_and_a_banner(
    open_page: Open, world: dict[str, str], scheme: str
) -> None:
    page = open_page("#/", token=None, color_scheme=scheme)
    page.get_by_text("Where is the token?").click()
    assert faults(page) == []
    page = open_page(f"#/sims/{world['sim']}", color_scheme=scheme)
    page.get_by_role("button", name="Cancel sim").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert faults(page) == []
    page.keyboard.press("Escape")
    page.route("**/api/**", lambda route: route.abort())
    expect(page.get_by_role("button", name="Try now")).to_be_visible(timeout=10_000)
    assert faults(page) == []


def test_everything_is_reached_and_done_by_keyboard(open_page: Open, client: httpx.Client) -> None:
    run, (sim, _) = sims.new_run(client, "by keys", [{"name": "only keys"}, {"name": "another"}])
    page = open_page("#/")

    def tab_to(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.innerText || document.activeElement.ariaLabel") == name:
                return
        raise AssertionError(f"never came to {name}")

    expect(page.get_by_role("link", name="by keys")).to_be_visible()
    tab_to("by keys")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="by keys")).to_be_focused()
    tab_to("○ queued")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="queued")).to_have_attribute("aria-pressed", "true")
    tab_to("only keys")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="only keys")).to_be_focused()
    tab_to("Log")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Kernels")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Kernels")).to_be_visible()
    page.keyboard.press("End")
    expect(page.get_by_role("tab", name="Files")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Home")
    expect(page.get_by_role("tab", name="Log")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    for _ in range(20):
        if page.evaluate("document.activeElement.innerText") == "Cancel sim":
            break
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("cancelled").first).to_be_visible()
    assert client.get(f"/api/sims/{sim}").json()["state"] == "cancelled", run


def test_a_refresh_takes_no_focus_away(open_page: Open, client: httpx.Client) -> None:
    run, (sim, _) = sims.new_run(client, "steady", [{"name": "first"}, {"name": "second"}])
    page = open_page(f"#/runs/{run}")
    link = page.get_by_role("link", name="second")
    link.focus()
    sims.beat(client, sim)
    expect(page.get_by_role("row", name="running")).to_be_visible()
    expect(link).to_be_focused()


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_scrolls_in_one_direction_only(open_page: Open, world: dict[str, str], view: str) -> None:
    address, words = VIEWS[view]
    page = open_page(address.format(**world), viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    expect(page.get_by_text(words).first).to_be_attached()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_rows_tell_screen_readers_how_many_there_are(open_page: Open, client: httpx.Client) -> None:
    run, _ = sims.new_run(client, "many", [{"name": f"sim {i}"} for i in range(300)])
    page = open_page(f"#/runs/{run}")
    table = page.get_by_role("table", name="Sims")
    expect(table).to_have_attribute("aria-rowcount", "301")
    assert table.locator("tbody tr:not(.space)").count() < 80
    page.get_by_role("region", name="Sims").evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
    expect(page.get_by_role("link", name="sim 299")).to_be_visible()
    assert table.locator("tbody tr:not(.space)").last.get_attribute("aria-rowindex") == "301"
