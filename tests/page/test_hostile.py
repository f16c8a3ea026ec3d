"""Whatever simulators and people put in is shown as text, and the layout holds."""

from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.page import sims
from tests.page.conftest import Open

MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
BAD = {
    "markup": MARKUP,
    "entities": "&lt;b&gt; &amp; &#x27;",
    "right to left": "abc \u202egnp.exe \u2067שלום\u2066",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 é́́́́ 𝔘𝔫𝔦",
    "breaks": "one\ntwo\r\tthree\u2028four\x00",
    "path": "../../%2e%2e/#/runs?x=1&y=2",
}
WORD = "W" * 100_000


def whole(page: Any) -> None:
    """The page is no wider than its window, and nothing in it ran."""
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert page.title() != "owned"
    assert page.locator("main img, main script, main b").count() == 0


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_bad_text_stays_text_everywhere(open_page: Open, client: httpx.Client, bad: str, width: int) -> None:
    run, (sim, other) = sims.new_run(
        client,
        bad[:200],
        [{"name": bad[:200], "params": {bad[:100]: bad, "n": 1}}, {"name": "b", "params": {bad[:100]: "b"}}],
    )
    sims.beat(client, sim)
    block = sims.blocks(1, 2)
    block = [
        line.replace("k1 ", f"{bad} ") if line.startswith(("kernel_name", "launching")) else line for line in block
    ]
    sims.log(client, sim, 0, bad, *block)
    sims.beat(client, sim, "failed", exit_code=1, error=bad)
    size = {"viewport": {"width": width, "height": 800}}
    shown = bad[:20].split("\n")[0].strip()

    page = open_page("#/", **size)
    expect(page.get_by_role("table", name="Runs").get_by_text(shown).first).to_be_visible()
    whole(page)
    page.goto(page.url.partition("#")[0] + f"#/runs/{run}?x=n")
    # Long values are cut in their middle; on a phone they stand for the name, which hides elsewhere.
    table = page.get_by_role("table", name="Sims")
    expect(table.get_by_text(shown[:4]).locator("visible=true").first).to_be_visible()
    page.get_by_label("Parameter", exact=True).select_option(index=1)
    whole(page)
    page.goto(page.url.partition("#")[0] + f"#/sims/{sim}")
    expect(page.get_by_role("heading").get_by_text(shown)).to_be_visible()
    expect(page.get_by_role("region", name="Log lines").locator(".line").first).to_contain_text(shown)
    expect(page.get_by_role("region", name="Error")).to_contain_text(shown)
    whole(page)
    page.get_by_role("tab", name="Kernels").click()
    expect(page.get_by_role("table", name="Kernels").get_by_role("row")).to_have_count(3)
    whole(page)
    page.goto(page.url.partition("#")[0] + f"#/compare?a={run}&b={run}&sa={sim}&sb={other}")
    expect(page.get_by_role("table", name="Kernels side by side").get_by_role("row")).to_have_count(3)
    whole(page)


@pytest.mark.parametrize("width", [1280, 390])
def test_words_without_an_end_break_no_layout(open_page: Open, client: httpx.Client, width: int) -> None:
    run, (sim,) = sims.new_run(client, "W" * 200, [{"name": "W" * 200, "params": {"W" * 100: "W" * 16_000}}])
    sims.log(client, sim, 0, WORD, "short")
    sims.beat(client, sim, "failed", error="W" * 4096)
    client.put(f"/api/sims/{sim}/files/{'W' * 128}", content=b"x").raise_for_status()
    page = open_page(f"#/runs/{run}?x=1", viewport={"width": width, "height": 800})
    expect(page.get_by_text("WWW").first).to_be_visible()
    whole(page)
    page.goto(page.url.partition("#")[0] + f"#/sims/{sim}")
    expect(page.get_by_text("short")).to_be_attached()
    whole(page)
    page.get_by_role("tab", name="Files").click()
    expect(page.get_by_role("button", name="Download WWW")).to_be_attached()
    whole(page)


def test_a_direction_mark_does_not_reach_beyond_its_text(open_page: Open, client: httpx.Client) -> None:
    """An override in one name must not turn round what stands behind it."""
    run, (sim,) = sims.new_run(client, "evil \u202e", [{"name": "\u202e drow"}])
    sims.log(client, sim, 0, "\u202e reversed", "plain line")
    page = open_page(f"#/sims/{sim}")
    line = page.get_by_text("plain line")
    expect(line).to_be_visible()
    for element in (line, page.get_by_text("Last beat"), page.get_by_text(f"Run {run}").first):
        assert element.evaluate("(e) => getComputedStyle(e).direction") == "ltr"
    number = page.get_by_role("region", name="Log lines").locator(".log-row").first.locator(".seq")
    text = page.get_by_role("region", name="Log lines").locator(".log-row").first.locator(".line")
    assert number.bounding_box()["x"] < text.bounding_box()["x"]
