"""The log of a sim as a reader uses it."""

from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.page import sims
from tests.page.conftest import Open


def box(page: Any) -> Any:
    return page.get_by_role("region", name="Log lines")


def lines(page: Any) -> list[str]:
    """The lines drawn, in order."""
    texts: list[str] = box(page).locator(".line").all_inner_texts()
    return texts


@pytest.fixture
def long(client: httpx.Client) -> str:
    """A running sim with 300 chunks of 50 lines."""
    sim = sims.new_sim(client)
    sims.beat(client, sim)
    for seq in range(300):
        sims.log(client, sim, seq, *[f"chunk {seq} line {i}" for i in range(50)])
    return sim


def test_the_newest_lines_are_in_sight_until_the_reader_scrolls_away(
    open_page: Open, client: httpx.Client, long: str
) -> None:
    page = open_page(f"#/sims/{long}")
    follow = page.get_by_role("button", name="Follow")
    expect(page.get_by_text("chunk 299 line 49")).to_be_visible()
    assert len(lines(page)) < 100, "only what is in sight is drawn"
    sims.log(client, long, 300, "newest")
    expect(page.get_by_text("newest")).to_be_visible()
    box(page).hover()
    page.mouse.wheel(0, -2000)
    expect(follow).to_have_attribute("aria-pressed", "false")
    seen = lines(page)[20]
    sims.log(client, long, 301, *["more"] * 100)
    expect(page.get_by_text("15,101 lines").first).to_be_visible()
    assert seen in lines(page)
    follow.click()
    expect(box(page).get_by_text("more").last).to_be_visible()
    expect(follow).to_have_attribute("aria-pressed", "true")


def test_scrolling_up_reads_what_is_above_and_keeps_the_place(open_page: Open, long: str) -> None:
    page = open_page(f"#/sims/{long}")
    expect(page.get_by_text("chunk 299 line 49")).to_be_visible()
    seen: list[str] = []
    box(page).hover()
    for _ in range(400):
        page.mouse.wheel(0, -5000)
        page.wait_for_timeout(30)
        now = lines(page)
        if now and (not seen or now[0] != seen[-1]):
            seen.append(now[0])
        if "chunk 0 line 0" in now:
            break
    assert "chunk 0 line 0" in lines(page)
    # Never further down than before: what was put above did not push the reader.
    places = [int(text.split()[1]) * 50 + int(text.split()[3]) for text in seen]
    assert places == sorted(places, reverse=True)


@pytest.mark.parametrize("seq", [0, 7, 150, 298])
def test_a_jump_leads_to_a_chunk(open_page: Open, long: str, seq: int) -> None:
    page = open_page(f"#/sims/{long}")
    expect(page.get_by_text("chunk 299 line 49")).to_be_visible()
    page.get_by_label("Chunk number").fill(str(seq))
    page.get_by_label("Chunk number").press("Enter")
    expect(page.get_by_text(f"chunk {seq} line 0", exact=True)).to_be_in_viewport()
    page.get_by_role("button", name="End").click()
    expect(page.get_by_text("chunk 299 line 49")).to_be_in_viewport()


def test_what_is_found_in_the_whole_log_can_be_stepped_through(open_page: Open, long: str) -> None:
    page = open_page(f"#/sims/{long}")
    expect(page.get_by_text("chunk 299 line 49")).to_be_visible()
    page.get_by_label("Find in log").fill("CHUNK 1 LINE 4")
    expect(page.get_by_text("11 of 11", exact=True).or_(page.get_by_text("1 of 11", exact=True))).to_be_visible()
    field = page.get_by_label("Find in log")
    field.press("Enter")
    first = box(page).locator(".hit.now .line").inner_text()
    field.press("Enter")
    second = box(page).locator(".hit.now .line").inner_text()
    field.press("Shift+Enter")
    assert box(page).locator(".hit.now .line").inner_text() == first != second
    assert first.startswith("chunk 1 line 4")
    field.fill("no such line")
    expect(page.get_by_text("No match", exact=True)).to_be_visible()
    field.press("Escape")
    expect(page.get_by_text("No match", exact=True)).to_be_hidden()


def test_new_lines_are_searched_too(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    sims.log(client, sim, 0, "error one", "fine")
    page = open_page(f"#/sims/{sim}")
    expect(page.get_by_text("error one")).to_be_visible()
    page.get_by_label("Find in log").fill("error")
    expect(page.get_by_text("1 of 1", exact=True)).to_be_visible()
    sims.log(client, sim, 1, "error two")
    expect(page.get_by_text("1 of 2", exact=True)).to_be_visible()


def test_a_gap_is_shown_as_a_gap_until_it_is_filled(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    sims.beat(client, sim)
    for seq in (0, 3, 5):
        sims.log(client, sim, seq, f"line of {seq}")
    page = open_page(f"#/sims/{sim}")
    expect(page.get_by_text("line of 5")).to_be_visible()
    assert lines(page) == [
        "line of 0",
        "Chunks 1 to 2 have not arrived yet",
        "line of 3",
        "Chunk 4 has not arrived yet",
        "line of 5",
    ]
    expect(page.get_by_text("3 chunks missing")).to_be_visible()
    sims.log(client, sim, 2, "line of 2")
    expect(page.get_by_text("line of 2")).to_be_visible()
    assert lines(page)[1:3] == ["Chunk 1 has not arrived yet", "line of 2"]
    sims.log(client, sim, 4, "line of 4")
    sims.log(client, sim, 1, "line of 1")
    expect(page.get_by_text("line of 1")).to_be_visible()
    expect(page.get_by_text("line of 4")).to_be_visible()
    assert lines(page) == [f"line of {seq}" for seq in range(6)]


def test_a_gap_at_the_start_is_shown(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    sims.log(client, sim, 2, "line of 2")
    page = open_page(f"#/sims/{sim}")
    expect(page.get_by_text("line of 2")).to_be_visible()
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("Chunks 0 to 1 have not arrived yet")).to_be_visible()


@pytest.mark.parametrize("seq", [10**12, 2**63 - 1])
def test_a_lone_huge_seq_is_no_burden(open_page: Open, client: httpx.Client, seq: int) -> None:
    sim = sims.new_sim(client)
    sims.beat(client, sim)
    sims.log(client, sim, 0, "the start")
    sims.log(client, sim, seq, "far out")
    page = open_page(f"#/sims/{sim}")
    expect(page.get_by_text("far out")).to_be_visible()
    expect(page.get_by_text("the start")).to_be_visible()
    sims.log(client, sim, 1, "the second")
    expect(page.get_by_text("the second")).to_be_visible()


def test_terminal_colours_are_shown_stripped_or_raw(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    sims.log(
        client,
        sim,
        0,
        "\x1b[1;31mbad\x1b[0m then \x1b[38;5;46mgreen\x1b[39m \x1b]8;;http://x\x07link\x1b]8;;\x07 end\x1b[K",
    )
    page = open_page(f"#/sims/{sim}")
    expect(page.get_by_text("bad", exact=True)).to_have_class("a-bold a-fg1")
    expect(page.get_by_text("green", exact=True)).to_have_class("a-fg2")
    assert lines(page) == ["bad then green link end"]
    page.get_by_label("Terminal colours").select_option("stripped")
    assert lines(page) == ["bad then green link end"]
    assert page.locator(".line span").count() == 0
    page.get_by_label("Terminal colours").select_option("raw")
    assert lines(page)[0].startswith("␛[1;31mbad␛[0m then")


def test_control_characters_are_visible_and_a_line_stays_a_line(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    sims.log(client, sim, 0, "nul \x00 bell \x07", "two\nin one\r", "", "tab\there")
    page = open_page(f"#/sims/{sim}")
    expect(page.get_by_text("nul ␀ bell ␇")).to_be_visible()
    assert box(page).locator(".line").all_text_contents() == ["nul ␀ bell ␇", "two␊in one␍", "", "tab\there"]
    heights = box(page).locator(".log-row").evaluate_all("(rows) => rows.map((row) => row.offsetHeight)")
    assert heights == [18] * 4


def test_a_line_of_a_megabyte_is_cut_and_can_be_read_whole(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    sims.log(client, sim, 0, "x" * 1_000_000 + "THE END")
    page = open_page(f"#/sims/{sim}")
    button = page.get_by_role("button", name="+ 998,007 characters")
    button.scroll_into_view_if_needed()
    button.click()
    assert page.get_by_role("dialog").inner_text().rstrip().endswith("THE END\n\nClose")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_whole_log_is_downloaded(open_page: Open, long: str) -> None:
    page = open_page(f"#/sims/{long}")
    expect(page.get_by_text("chunk 299 line 49")).to_be_visible()
    with page.expect_download() as waited:
        page.get_by_role("button", name="Download", exact=True).click()
    text = waited.value.path().read_text()
    assert text.splitlines() == [f"chunk {seq} line {i}" for seq in range(300) for i in range(50)]
    assert waited.value.suggested_filename == f"{long}.log"


def test_chunks_put_above_and_between_keep_rows_in_order(open_page: Open) -> None:
    """The model of the log against a plain list, for a thousand seeds."""
    page = open_page("#/")
    wrong = page.evaluate(
        """async () => {
          const src = document.querySelector('script[type=module]').src.replace('main.js', 'logmodel.js');
          const { LogModel } = await import(src);
          for (let seed = 1; seed <= 1000; seed += 1) {
            let state = seed;
            const random = (n) => { state = (state * 48271) % 2147483647; return state % n; };
            const all = [];
            for (let seq = 0; seq < 30; seq += 1) if (random(4)) all.push({ seq, lines: Array.from({ length: random(4) }, (_, i) => `${seq}.${i}`) });
            const model = new LogModel();
            const [low, high] = [10 + random(5), 20 + random(5)];
            const inside = all.filter(({ seq }) => seq >= low && seq < high);
            const late = inside.filter(() => random(5) === 0);
            model.clear(low);
            model.append(inside.filter((chunk) => !late.includes(chunk)), high);
            model.append(all.filter(({ seq }) => seq >= high), 30);
            model.append(all.filter(({ seq }) => seq >= 25), 30);
            model.insert(late, low);
            const from = random(low);
            const above = model.insert(all.filter(({ seq }) => seq >= from && seq < low), from);
            const rows = [];
            let next = from;
            let wantedAbove = 0;
            for (const { seq, lines } of all.filter((chunk) => chunk.seq >= from)) {
              if (seq > next) rows.push(`gap ${next}-${seq - 1}`);
              if (model.rowOf(seq) !== rows.length && (lines.length || seq > next)) return `rowOf ${seq}, seed ${seed}`;
              rows.push(...lines);
              next = seq + 1;
            }
            const got = Array.from({ length: model.rows }, (_, row) => { const { gap, text } = model.at(row); return gap ? `gap ${gap[0]}-${gap[1]}` : text; });
            const most = random(40);
            const { lines, chunks } = model;
            const removed = model.trim(most);
            const left = Array.from({ length: model.rows }, (_, row) => { const { gap, text } = model.at(row); return gap ? `gap ${gap[0]}-${gap[1]}` : text; });
            if (left.join() !== rows.slice(removed).join() && removed) return `trim, seed ${seed}: ${left.join()}`;
            if (model.lines > most && model.chunks.length > 1) return `trim, seed ${seed}: ${model.lines} of ${lines} held, not ${most}`;
            if (model.chunks.length < chunks.length && model.chunks.length && model.lines + chunks.at(-model.chunks.length - 1).lines.length <= most) return `trim, seed ${seed}: too much`;
            if (got.join() !== rows.join()) return `seed ${seed}: ${got.join()} is not ${rows.join()}`;
          }
          return null;
        }"""
    )
    assert wrong is None


@pytest.mark.slow
def test_a_tab_that_follows_for_long_lets_go_of_old_lines_and_can_read_them_again(
    open_page: Open, client: httpx.Client
) -> None:
    sim = sims.new_sim(client)
    sims.beat(client, sim)
    sims.log(client, sim, 0, "the very first")
    page = open_page(f"#/sims/{sim}")
    expect(page.get_by_text("the very first")).to_be_visible()
    for seq in range(1, 31):
        sims.log(client, sim, seq, *[f"{seq}.{i}" for i in range(4000)])
        if seq % 4 == 0:
            expect(page.get_by_text(f"{seq}.3999", exact=True)).to_be_visible()
    expect(page.get_by_text("30.3999", exact=True)).to_be_visible()
    held = box(page).evaluate("(box) => box.scrollHeight / 18")
    assert held < 101_000
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("the very first")).to_be_in_viewport()
