"""Each view against the live server, as a reader walks through it."""

import json
import re
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from cascade.kernels import attempts
from tests.e2e.server import Server
from tests.page import sims
from tests.page.conftest import Open
from tests.waiting import eventually


def cells(page: Any, table: str, column: int | str) -> list[str]:
    """The texts of a column, given by its place from 1 or by its head, of the rows in sight."""
    if isinstance(column, str):
        heads = page.get_by_role("table", name=table).locator("thead th").all_text_contents()
        column = heads.index(column) + 1
    return [
        text.strip()
        for text in page.get_by_role("table", name=table)
        .locator(f"tbody tr:not(.space) td:nth-child({column})")
        .all_inner_texts()
    ]


def drawn(page: Any, chart: str) -> int:
    """Pixels of a chart that have a colour."""
    canvas = page.get_by_role("figure", name=chart).locator("canvas")
    canvas.wait_for()
    count = """(c) => {
      const copy = new OffscreenCanvas(c.width, c.height).getContext('2d', { willReadFrequently: true });
      copy.drawImage(c, 0, 0);
      return copy.getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 === 3 && v > 0).length;
    }"""
    # Not by wait_for_function: it would evaluate text in the page, which the page's policy refuses.
    eventually(lambda: canvas.evaluate(f"(c) => c.width > 100 && ({count})(c) > 0"), "a chart")
    return int(canvas.evaluate(count))


# The token.


def test_the_token_is_asked_for_once_a_tab(open_page: Open, server: Server, client: httpx.Client) -> None:
    sims.new_run(client, "behind the token")
    page = open_page("#/", token=None)
    field = page.get_by_label("Token", exact=True)
    assert field.get_attribute("type") == "password"
    field.fill("wrong")
    page.get_by_role("button", name="Open").click()
    page.get_by_role("alert").get_by_text("The server does not know this token.").wait_for()
    field.fill(server.token)
    field.press("Enter")
    page.get_by_role("link", name="behind the token").first.wait_for()
    page.reload()
    page.get_by_role("link", name="behind the token").first.wait_for()
    assert server.token not in page.url
    page.get_by_role("button", name="Forget token").click()
    page.get_by_label("Token", exact=True).wait_for()
    page.reload()
    page.get_by_label("Token", exact=True).wait_for()


# Runs.


def test_runs_are_newest_first_with_their_states(open_page: Open, client: httpx.Client) -> None:
    sims.new_run(client, "older of two")
    _, ids = sims.new_run(client, "newer of two", [{}, {}, {}])
    sims.beat(client, ids[0])
    sims.beat(client, ids[1], "failed", exit_code=1, error="no trace")
    page = open_page("#/")
    page.get_by_role("link", name="newer of two").wait_for()
    names = cells(page, "Runs", 1)
    assert names.index("newer of two") < names.index("older of two")
    assert cells(page, "Runs", 2)[names.index("newer of two")] == "1 queued, 1 running, 1 failed"


def test_runs_are_paged_and_searched(open_page: Open, client: httpx.Client) -> None:
    for i in range(45):
        sims.new_run(client, f"page {i} of the list")
    page = open_page("#/")
    page.get_by_role("link", name="page 44 of the list").wait_for()
    assert len(cells(page, "Runs", 1)) == 20
    page.get_by_role("button", name="Older").click()
    page.get_by_role("link", name="page 24 of the list").wait_for()
    page.get_by_role("button", name="Newer").click()
    page.get_by_role("link", name="page 44 of the list").wait_for()
    page.get_by_label("Search").fill("PAGE 3 of")
    page.get_by_role("link", name="page 3 of the list").wait_for()
    expect(page.locator("tbody tr:not(.space)")).to_have_count(1)
    page.get_by_label("Search").fill("no such run")
    page.get_by_text("No run matches.").wait_for()


def test_an_empty_list_says_what_to_do_next(open_page: Open, tmp_path: Path) -> None:
    with Server(tmp_path) as other:
        page = open_page("#/", token=None)
        page.context.clear_cookies()
        page.route("**/*", lambda route: route.continue_())
        page.goto("about:blank")
        context = page.context.browser.new_context()
        page = context.new_page()
        page.goto(other.url)
        page.get_by_label("Token", exact=True).fill(other.token)
        page.get_by_role("button", name="Open").click()
        page.get_by_text("No run yet").wait_for()
        assert page.get_by_text(f"cascade demo --url {other.url}").is_visible()
        context.close()


# A run.

SWEEP = [
    {"name": f"l2 {l2}, {kind}", "params": {"l2": l2, "kind": kind, "same": 1}} for l2 in (1, 2, 4) for kind in "ab"
]


@pytest.fixture(scope="module")
def swept(server: Server) -> tuple[str, list[str]]:
    """A run across two parameters with a sim in each state but lost and queued, kernels in some."""
    with server.client() as client:
        run, ids = sims.new_run(client, "a sweep", SWEEP)
        for i, sim in enumerate(ids[:4]):
            sims.simulate(client, sim, kernels=3, seed=i)
        sims.beat(client, ids[1], "succeeded", exit_code=0)
        sims.beat(client, ids[2], "failed", exit_code=3, error="assertion in the memory partition")
        client.post(f"/api/sims/{ids[3]}/cancel").raise_for_status()
    return run, ids


def test_a_run_shows_its_sims(open_page: Open, swept: tuple[str, list[str]], client: httpx.Client) -> None:
    page = open_page(f"#/runs/{swept[0]}")
    page.get_by_role("heading", name="a sweep").wait_for()
    assert cells(page, "Sims", 1) == ["▶ running", "✓ succeeded", "✕ failed", "⊘ cancelled", "○ queued", "○ queued"]
    page.get_by_role("columnheader", name="l2").wait_for()
    assert cells(page, "Sims", "Sim") == [str(sim["name"]) for sim in SWEEP]
    assert cells(page, "Sims", "l2") == ["1", "1", "2", "2", "4", "4"]
    assert cells(page, "Sims", "kind") == ["a", "b"] * 3
    # What all sims share is said once, above the table.
    assert page.get_by_role("list", name="Parameters that all sims share").inner_text() == "same = 1"
    assert page.get_by_role("columnheader", name="same").count() == 0
    assert re.fullmatch(r"\d+ s|\d+ min \d+ s", cells(page, "Sims", "Last beat")[0])
    first = client.get(f"/api/runs/{swept[0]}").json()["sims"][0]
    assert cells(page, "Sims", "Kernels")[0] == "3"
    assert cells(page, "Sims", "Cycles")[0] == f"{first['tot_sim_cycles']:,}"
    last = client.get(f"/api/sims/{swept[1][0]}/kernels").json()["kernels"][-1]
    assert float(cells(page, "Sims", "IPC")[0]) == pytest.approx(last["tot_ipc"], rel=1e-3)
    assert cells(page, "Sims", "Log rate")[0].endswith("/s")
    assert cells(page, "Sims", "Error")[2] == "assertion in the memory partition"


def test_sims_are_filtered_by_state_parameter_and_text_and_the_address_keeps_it(
    open_page: Open, swept: tuple[str, list[str]]
) -> None:
    page = open_page(f"#/runs/{swept[0]}")
    page.get_by_role("columnheader", name="l2").wait_for()
    page.get_by_role("button", name="queued").click()
    assert cells(page, "Sims", 2) == ["l2 4, a", "l2 4, b"]
    page.get_by_label("Parameter", exact=True).select_option("kind")
    page.get_by_label("Value of the parameter").select_option("=b")
    assert cells(page, "Sims", 2) == ["l2 4, b"]
    page.get_by_text("1 of 6 sims").wait_for()
    page.reload()
    page.get_by_text("1 of 6 sims").wait_for()
    assert cells(page, "Sims", 2) == ["l2 4, b"]
    page.get_by_role("button", name="queued").click()
    assert cells(page, "Sims", 2) == ["l2 1, b", "l2 2, b", "l2 4, b"]
    page.get_by_label("Search").fill("partition")
    page.get_by_text("No sim matches.").wait_for()
    page.get_by_label("Value of the parameter").select_option("")
    assert cells(page, "Sims", 2) == ["l2 2, a"]


def test_sims_are_sorted_with_what_is_missing_last(open_page: Open, swept: tuple[str, list[str]]) -> None:
    page = open_page(f"#/runs/{swept[0]}")
    page.get_by_role("columnheader", name="l2").wait_for()
    head = page.get_by_role("columnheader", name="Cycles")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    down = cells(page, "Sims", "Cycles")
    head.get_by_role("button").click()
    up = cells(page, "Sims", "Cycles")
    number = [int(text.replace(",", "")) for text in down[:4]]
    assert number == sorted(number, reverse=True)
    assert up == [*reversed(down[:4]), "–", "–"]


def test_a_chart_shows_sims_across_a_parameter(open_page: Open, swept: tuple[str, list[str]]) -> None:
    page = open_page(f"#/runs/{swept[0]}")
    page.get_by_text("Chart across a parameter").click()
    assert drawn(page, "Sims across a parameter") > 500
    page.get_by_text("Cycles of 4 sims across 2 values of l2").wait_for()
    page.locator("#chart-by").select_option("kind")
    page.locator("#chart-y").select_option("ipc")
    page.get_by_text("IPC of 4 sims across 2 values of l2").wait_for()
    page.locator("#chart-y").select_option("kernels")
    page.get_by_text("Kernels of 6 sims across 3 values of l2").wait_for()
    assert page.locator(".u-legend .u-label").all_inner_texts()[1:] == ["a", "b"]


TRACES = [f"/data/traces/accel-sim/rodinia-3.1/{name}/traces/kernelslist.g" for name in ("backprop", "bfs", "hotspot")]
CONFIG = "/data/configs/tested-cfgs/SM7_QV100/gpgpusim.config"


def traced(client: httpx.Client, **more: Any) -> tuple[str, list[str]]:
    """A run as the command line makes it of trace paths; the error of the last sim is as long as errors are."""
    run, ids = sims.new_run(
        client,
        "by traces",
        [{"name": f"trace={trace}", "params": {"trace": trace, "config": CONFIG} | more} for trace in TRACES],
    )
    sims.simulate(client, ids[0], kernels=2)
    sims.beat(client, ids[1])
    sims.beat(client, ids[2], "failed", exit_code=1, error="Unable to open file: " + TRACES[2])
    return run, ids


def in_sight(page: Any, head: str) -> bool:
    """Whether a column of the sims lies within the table's box, unscrolled."""
    box = page.get_by_role("region", name="Sims").bounding_box()
    cell = page.get_by_role("columnheader", name=head).bounding_box()
    return bool(cell["x"] >= box["x"] and cell["x"] + cell["width"] <= box["x"] + box["width"] + 1)


def test_sims_of_long_paths_are_told_apart_and_every_column_is_in_sight(open_page: Open, client: httpx.Client) -> None:
    run, ids = traced(client)
    page = open_page(f"#/runs/{run}?x=trace&y=kernels")
    page.get_by_role("columnheader", name="trace").wait_for()
    assert cells(page, "Sims", "trace") == ["…backprop…", "…bfs…", "…hotspot…"]
    assert page.get_by_role("cell", name="…bfs…", exact=True).get_attribute("title") == TRACES[1]
    # The name says nothing that the parameter does not.
    assert cells(page, "Sims", "Sim") == ["#0", "#1", "#2"]
    link = page.get_by_role("link", name="#1")
    assert link.get_attribute("title") == f"trace={TRACES[1]}"
    shared = page.get_by_role("list", name="Parameters that all sims share")
    assert shared.inner_text() == f"config = {CONFIG}"
    for head in ("Cycles", "IPC", "Kernels", "Last beat", "Ran for", "Log rate", "Error", "Actions"):
        assert in_sight(page, head), head
    assert page.get_by_label("Value of the parameter").is_hidden()
    page.get_by_label("Parameter", exact=True).select_option("trace")
    values = page.get_by_label("Value of the parameter").locator("option").all_inner_texts()
    assert values == ["any value", "…backprop… (1)", "…bfs… (1)", "…hotspot… (1)"]
    # The whole text is what is searched.
    page.get_by_label("Search").fill("rodinia-3.1/hotspot/traces")
    page.get_by_text("1 of 3 sims").wait_for()
    assert cells(page, "Sims", "Sim") == ["#2"]
    page.get_by_label("Search").fill("config=/data/configs")
    expect(page.get_by_role("table", name="Sims").locator("tbody tr:not(.space)")).to_have_count(3)
    page.get_by_text("Kernels of 3 sims across 3 values of trace").wait_for()
    link.click()
    page.get_by_role("heading", name=f"trace={TRACES[1]}").wait_for()
    assert page.url.endswith(ids[1])


def test_on_a_phone_the_parameters_stand_for_a_name_that_only_repeats_them(
    open_page: Open, client: httpx.Client
) -> None:
    run, _ = traced(client)
    page = open_page(f"#/runs/{run}", viewport={"width": 390, "height": 800})
    page.get_by_role("link", name="…bfs…").wait_for()
    assert cells(page, "Sims", "Sim") == ["…backprop…", "…bfs…", "…hotspot…"]
    assert page.get_by_role("columnheader", name="trace").is_hidden()
    assert in_sight(page, "Cycles")


def test_on_a_phone_the_list_tells_states_by_signs(open_page: Open, client: httpx.Client) -> None:
    _, ids = sims.new_run(client, "signs", [{}, {}, {}])
    sims.beat(client, ids[0])
    page = open_page("#/", viewport={"width": 390, "height": 800})
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="signs"))
    assert row.get_by_role("img", name="2 queued, 1 running").inner_text().split() == ["○", "2", "▶", "1"]


def test_many_parameters_that_vary_share_a_column(open_page: Open, client: httpx.Client) -> None:
    names = ("l1", "l2", "clock", "warps", "policy")
    run, _ = sims.new_run(
        client, "five", [{"name": f"sim {i}", "params": {name: f"{name} {i}" for name in names}} for i in range(2)]
    )
    page = open_page(f"#/runs/{run}")
    page.get_by_role("columnheader", name="Parameters").wait_for()
    assert cells(page, "Sims", "Parameters")[1] == " ".join(f"{name}={name} 1" for name in names)


def test_columns_that_have_nothing_to_say_are_left_out(open_page: Open, client: httpx.Client) -> None:
    run, (sim,) = sims.new_run(client, "quiet columns", [{"params": {"l2": 1}}])
    page = open_page(f"#/runs/{run}")
    page.get_by_role("columnheader", name="Actions").wait_for()
    page.get_by_role("list", name="Parameters that all sims share").wait_for()
    assert page.get_by_text("Chart across a parameter").is_hidden()
    assert page.get_by_label("Parameter", exact=True).is_hidden()
    for head in ("Log rate", "Error"):
        assert page.get_by_role("columnheader", name=head).count() == 0
    sims.beat(client, sim, "failed", exit_code=2)
    page.get_by_role("columnheader", name="Error").wait_for()
    assert cells(page, "Sims", "Error") == ["exit code 2"]
    assert page.get_by_role("columnheader", name="Actions").count() == 0


def test_short_texts_differ_where_the_long_ones_do(open_page: Open) -> None:
    page = open_page("#/")
    made = page.evaluate(
        """async () => {
          const src = document.querySelector('script[type=module]').src.replace('main.js', 'params.js');
          const { middle, saysParams, shortened, survey } = await import(src);
          const short = (most, ...texts) => texts.map((text) => shortened(texts, most).get(text));
          const long = 'x'.repeat(40);
          const pairs = [];
          for (let i = 0; i < 300; i += 1) pairs.push(`${long}${String.fromCharCode(97 + (i % 26))}${long}${Math.floor(i / 26)}${long}`);
          return {
            fit: short(9, '/a/b', '/a/c'),
            folders: short(12, '/data/runs/one/trace.g', '/data/runs/two/trace.g'),
            words: short(25, 'trace=/data/one/t.g gpu=/c/volta/conf', 'trace=/data/two/t.g gpu=/c/volta/conf', 'trace=/data/one/t.g gpu=/c/ampere/conf'),
            gaps: new Set(short(12, 'one two three four', 'one  two three four')).size,
            nested: short(12, '/data/runs/one', '/data/runs/one/deep/er'),
            alone: short(11, '/data/runs/one/trace.g'),
            inside: short(12, `${long}a${long}`, `${long}b${long}`),
            many: new Set(shortened(pairs, 12).values()).size,
            longest: Math.max(...[...shortened(pairs, 12).values()].map((text) => text.length)),
            pair: middle('😀'.repeat(20), 8),
            none: short(5),
            says: [
              saysParams('l2=4 trace=/a/b c', { trace: '/a/b c', l2: 4 }),
              saysParams('on=True x=1.0', { on: true, x: 1 }),
              saysParams('/a/b', { trace: '/a/b', l2: 4 }),
              saysParams(`trace=${'y'.repeat(194)}`, { trace: 'y'.repeat(300) }),
              saysParams('l2=4 fast', { l2: 4 }),
              saysParams('l2=4', { l2: 40 }),
              saysParams('l2=40', { l2: '4' }),
              saysParams('gemm', { l2: 4 }),
              saysParams('', {}),
            ],
            survey: JSON.stringify(survey([{ a: 1, b: [2], c: 'x' }, { a: 1, b: [3] }]), (k, v) => (v instanceof Map ? [...v] : v)),
          };
        }"""
    )
    assert made["fit"] == ["/a/b", "/a/c"]
    assert made["folders"] == ["…one…", "…two…"]
    assert made["words"] == ["…one… …volta…", "…two… …volta…", "…one… …ampere…"]
    assert made["gaps"] == 2
    assert made["nested"] == ["…one", "…one/deep/er"]
    assert made["alone"] == ["/dat…race.g"]
    assert [text.replace("x", "") for text in made["inside"]] == ["…a…", "…b…"]
    assert (made["many"], made["longest"]) == (300, 12)
    assert made["pair"] == "😀…😀😀"
    assert made["none"] == []
    assert made["says"] == [True, True, True, True, False, False, False, False, False]
    assert json.loads(made["survey"]) == {
        "varied": [{"key": "b", "values": [["[2]", 1], ["[3]", 1]]}, {"key": "c", "values": [["x", 1]]}],
        "constant": [{"key": "a", "text": "1"}],
    }


def test_a_run_is_deleted_after_a_question_that_names_it(open_page: Open, client: httpx.Client) -> None:
    run, ids = sims.new_run(client, "to delete", [{"name": "one"}, {"name": "two"}])
    sims.beat(client, ids[0])
    page = open_page(f"#/runs/{run}")
    page.get_by_role("button", name="Cancel run").wait_for()
    button = page.get_by_role("button", name="Delete run")
    # The service refuses while a sim is running, so it is not offered.
    assert button.is_hidden()
    sims.beat(client, ids[0], "succeeded", exit_code=0)
    button.click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("paragraph").first.inner_text() == (
        "Delete the run to delete with its 2 sims, their logs, kernels and files? 1 sim of it has not finished."
        " It cannot be brought back."
    )
    assert dialog.get_by_role("button", name="Keep").evaluate("(e) => e === document.activeElement")
    page.keyboard.press("Escape")
    assert client.get(f"/api/runs/{run}").status_code == 200
    button.click()
    dialog.get_by_role("button", name="Delete run").click()
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    assert client.get(f"/api/runs/{run}").status_code == 404
    page.get_by_role("link", name="to delete").wait_for(state="detached")


def test_a_run_that_may_not_be_deleted_any_more_stays_and_the_page_says_why(
    open_page: Open, client: httpx.Client
) -> None:
    run, (sim,) = sims.new_run(client, "claimed meanwhile")
    page = open_page(f"#/runs/{run}")
    page.get_by_role("button", name="Delete run").click()
    sims.beat(client, sim)
    page.get_by_role("dialog").get_by_role("button", name="Delete run").click()
    page.get_by_role("alert").get_by_text("running: cancel it first").wait_for()
    page.get_by_role("button", name="Delete run").wait_for(state="hidden")
    assert client.get(f"/api/runs/{run}").status_code == 200


def test_a_sim_and_a_run_are_cancelled_after_a_question(open_page: Open, client: httpx.Client) -> None:
    run, ids = sims.new_run(client, "to cancel", [{"name": "one"}, {"name": "two"}, {"name": "three"}])
    sims.beat(client, ids[0])
    page = open_page(f"#/runs/{run}")
    page.get_by_role("button", name="Cancel two").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep").click()
    assert client.get(f"/api/sims/{ids[1]}").json()["state"] == "queued"
    page.get_by_role("button", name="Cancel two").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel sim").click()
    page.get_by_text("1 queued, 1 running, 1 cancelled").wait_for()
    assert sims.beat(client, ids[1])["cancel"]
    page.get_by_role("button", name="Cancel run").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
    page.get_by_text("3 cancelled").wait_for()
    assert sims.beat(client, ids[0])["cancel"]
    assert page.get_by_role("button", name="Cancel run").is_hidden()


# A sim.


def test_a_sim_shows_its_state_history_parameters_and_log_at_once(
    open_page: Open, swept: tuple[str, list[str]], client: httpx.Client
) -> None:
    sim = client.get(f"/api/sims/{swept[1][2]}").json()
    page = open_page(f"#/sims/{sim['id']}")
    page.get_by_role("heading", name="l2 2, a").wait_for()
    history = page.get_by_role("list", name="History of the state").inner_text()
    assert [word for word in re.findall(r"[a-z]+", history) if word in ("queued", "running", "failed")] == [
        "queued",
        "running",
        "failed",
    ]
    assert page.get_by_role("region", name="Error").inner_text() == "assertion in the memory partition"
    assert page.get_by_role("list", name="Parameters").get_by_role("listitem").all_inner_texts() == [
        "l2 = 2",
        "kind = a",
        "same = 1",
    ]
    last = client.get(f"/api/sims/{sim['id']}/logs?tail=1").json()["chunks"][0]["lines"][0]
    assert last.strip() in page.get_by_role("region", name="Log lines").inner_text()
    assert page.get_by_text(f"{sim['log']['lines']:,} lines").count() == 2
    assert page.get_by_role("definition").filter(has_text=re.compile("^3$")).count() == 2  # kernels, exit code


def test_times_are_local_with_utc_on_hover(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    created = client.get(f"/api/sims/{sim}").json()["created_at"]
    page = open_page(f"#/sims/{sim}", timezone_id="Asia/Tokyo", locale="en-GB")
    shown = page.locator("time").first
    shown.wait_for()
    assert shown.get_attribute("title") == f"{created[:10]} {created[11:19]} UTC"
    hour = (int(created[11:13]) + 9) % 24
    assert re.search(rf"\b{hour:02d}:{created[14:16]}", shown.inner_text())


def test_a_queued_sim_says_how_a_worker_is_started(open_page: Open, client: httpx.Client, server: Server) -> None:
    run, (sim,) = sims.new_run(client, sims=[{"params": {"trace": "/t", "config": "/c", "odd key": 1}}])
    # With what this run's own sims can fill in.
    words = f"cascade worker --run {run} -- accel-sim.out -trace {{trace}} -config {{config}}"
    page = open_page(f"#/runs/{run}")
    assert page.get_by_text(words).inner_text().endswith("-config {config}")
    page = open_page(f"#/sims/{sim}")
    assert page.get_by_text(words).inner_text().endswith("-config {config}")
    page.get_by_text("No line yet.").wait_for()
    for tab, words in (
        ("Kernels", "No kernel"),
        ("Step timing", f"cascade timeline send {sim} --simulated simulated_timeline.json --compare compare.json"),
        ("Files", "No file yet"),
    ):
        page.get_by_role("tab", name=tab).click()
        page.get_by_role("tabpanel", name=tab).get_by_text(words).wait_for()


def test_kernels_are_a_sortable_table_and_a_chart(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    sims.simulate(client, sim, kernels=8, names=["gemm", "softmax"])
    kernels = client.get(f"/api/sims/{sim}/kernels").json()["kernels"]
    page = open_page(f"#/sims/{sim}")
    page.get_by_role("tab", name="Kernels").click()
    assert drawn(page, "IPC and cycles") > 500
    assert cells(page, "Kernels", 1) == [str(i) for i in range(8)]
    assert cells(page, "Kernels", 5) == [f"{kernel['sim_cycles']:,}" for kernel in kernels]
    page.get_by_role("columnheader", name="IPC").get_by_role("button").click()
    by_ipc = sorted(kernels, key=lambda kernel: -kernel["ipc"])
    assert cells(page, "Kernels", 1) == [str(kernel["index"]) for kernel in by_ipc]
    page.get_by_text(f"8 kernels, {kernels[-1]['tot_sim_cycles']:,} cycles in all").wait_for()
    with page.expect_download() as waited:
        page.get_by_role("button", name="All statistics as CSV").click()
    assert len(Path(waited.value.path()).read_text().splitlines()) == 9
    assert waited.value.suggested_filename == f"{sim}-kernels.csv"


def test_more_kernels_than_a_page_are_all_read(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    sims.log(client, sim, 0, *sims.blocks(1, 1203))
    page = open_page(f"#/sims/{sim}?tab=kernels")
    page.get_by_text("1,203 kernels", exact=True).wait_for()
    sims.log(client, sim, 1, *sims.blocks(1204, 1210))
    page.get_by_text("1,210 kernels", exact=True).wait_for()
    page.get_by_role("columnheader", name="#").get_by_role("button").click()
    assert cells(page, "Kernels", 2)[:2] == ["k1210", "k1209"]


def ended(*kernels: tuple[int, int, int], stream: int = 0) -> list[str]:
    """A log of one process: kernels as they ended, each as (launch uid, cycles since the block before, total)."""
    return [
        line
        for uid, cycles, total in kernels
        for line in (
            f"launching kernel name: k{uid} uid: {uid} cuda_stream_id: {stream}",
            f"Destroy streams for kernel {uid}: size 0",
            f"kernel_name = k{uid} ",
            f"kernel_launch_uid = {uid} ",
            f"kernel_stream_id = {stream}",
            f"gpu_sim_cycle = {cycles}",
            f"gpu_sim_insn = {2 * cycles}",
            "gpu_ipc = 2.0",
            f"gpu_tot_sim_cycle = {total}",
            f"gpu_tot_sim_insn = {2 * total}",
            "gpu_tot_ipc = 2.0",
            "gpgpu_simulation_time = 0 days, 0 hrs, 0 min, 44 sec (44 sec)",
            "gpgpu_simulation_rate = 81894 (inst/sec)",
            "gpgpu_simulation_rate = 2670 (cycle/sec)",
            "gpgpu_silicon_slowdown = 528089x",
        )
    ]


def test_of_a_sim_that_began_anew_the_last_attempt_is_shown_and_the_earlier_ones_can_be(
    open_page: Open, client: httpx.Client
) -> None:
    run, (sim, other) = sims.new_run(client, "anew", [{"name": "twice"}, {"name": "once"}])
    sims.log(client, sim, 0, *ended((1, 38790, 38790)))
    sims.log(client, sim, 1, *ended((1, 38790, 38790), (2, 32031, 70821)))
    sims.log(client, other, 0, *ended((1, 38790, 38790)))
    page = open_page(f"#/sims/{sim}?tab=kernels")
    page.get_by_text("2 kernels, 70,821 cycles in all").wait_for()
    assert cells(page, "Kernels", 1) == ["1", "2"]
    assert cells(page, "Kernels", 5) == ["38,790", "32,031"]
    page.get_by_text("The log has the kernels of 2 attempts").wait_for()
    attempt = page.get_by_label("Attempt")
    assert attempt.locator("option").all_inner_texts() == ["2 of 2: 2 kernels", "1 of 2: 1 kernel"]
    attempt.select_option("1 of 2: 1 kernel")
    page.get_by_text("1 kernel, 38,790 cycles in all").wait_for()
    assert cells(page, "Kernels", 1) == ["0"]
    # A new attempt is shown by itself to who looks at the last one, and to nobody else.
    attempt.select_option("2 of 2: 2 kernels")
    sims.log(client, sim, 2, *ended((1, 38790, 38790)))
    page.get_by_text("The log has the kernels of 3 attempts").wait_for()
    page.get_by_text("1 kernel, 38,790 cycles in all").wait_for()
    with page.expect_download() as waited:
        page.get_by_role("button", name="All statistics as CSV").click()
    assert len(Path(waited.value.path()).read_text().splitlines()) == 5
    page = open_page(f"#/compare?a={run}&b={run}&sa={sim}&sb={other}")
    page.get_by_text("1 and 1 kernel; 38,790 and 38,790 cycles, B 0 % against A.").wait_for()
    page.get_by_text("The log of A has several attempts: the last is compared.").wait_for()
    assert len(cells(page, "Kernels side by side", 1)) == 1


def test_attempts_are_told_apart_by_the_running_total(open_page: Open) -> None:
    page = open_page("#/")
    made = page.evaluate(
        """async () => {
          const src = document.querySelector('script[type=module]').src.replace('main.js', 'attempts.js');
          const { attempts } = await import(src);
          const of = (...rows) => attempts(rows.map(([sim_cycles, tot_sim_cycles, launch_uid = null]) => ({ sim_cycles, tot_sim_cycles, launch_uid })))
            .map((list) => list.map((kernel) => kernel.tot_sim_cycles));
          return {
            none: of(),
            one: of([5, 5], [3, 8], [0, 8]),
            falls: of([5, 5], [3, 8], [5, 5], [3, 8]),
            same: of([5, 5], [5, 5], [3, 8]),
            longer: of([5, 5], [9, 9]),
            thrice: of([5, 5], [5, 5], [5, 5]),
            skips: of([5, 5], [3, 20]),
            unknown: of([5, null], [5, 5], [3, null], [5, 5], [null, 7], [null, 6]),
            uids: of([null, 5, 1], [null, 6, 2], [null, 9, 1]),
          };
        }"""
    )
    assert made == {
        "none": [],
        "one": [[5, 8, 8]],
        "falls": [[5, 8], [5, 8]],
        "same": [[5], [5, 8]],
        "longer": [[5], [9]],
        "thrice": [[5], [5], [5]],
        "skips": [[5, 20]],  # memory is copied between kernels, or a block was left out
        "unknown": [[None, 5, None], [5, 7], [6]],
        "uids": [[5, 6], [9]],
    }, json.dumps(made)


def test_the_page_tells_attempts_as_the_command_line_does(open_page: Open) -> None:
    random = Random(7)
    some = [None, 0, 1, 2, 3, 5]
    lists = [
        [
            {
                "sim_cycles": random.choice(some),
                "tot_sim_cycles": random.choice(some),
                "launch_uid": random.choice(some),
            }
            for _ in range(random.randrange(8))
        ]
        for _ in range(500)
    ]
    made = open_page("#/").evaluate(
        """async (lists) => {
          const src = document.querySelector('script[type=module]').src.replace('main.js', 'attempts.js');
          const { attempts } = await import(src);
          return lists.map((kernels) => attempts(kernels).flatMap((list, i) => list.map(() => i + 1)));
        }""",
        lists,
    )
    rows = [[SimpleNamespace(name=None, sim_insns=None, **kernel) for kernel in kernels] for kernels in lists]
    assert made == [attempts(one) for one in rows]


def test_kernels_that_overlap_are_marked_and_their_cycles_explained(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    sims.log(client, sim, 0, *ended((1, 10, 10), (3, 20, 30), (2, 5, 35), (4, 1, 36), stream=93_770_765_415_584))
    page = open_page(f"#/sims/{sim}?tab=kernels")
    page.get_by_text("1 kernel ended out of launch order.").wait_for()
    page.get_by_text("Kernels overlap here").wait_for()
    assert cells(page, "Kernels", 2) == ["k1", "k3", "out of orderk2", "k4"]
    assert (
        page.get_by_text("out of order", exact=True).get_attribute("title")
        == "It ended after launch 3, which began later"
    )
    assert "not how long this kernel itself took" in str(
        page.get_by_role("columnheader", name="Cycles", exact=True).get_attribute("title")
    )
    # A name is no amount: it has no separators.
    assert cells(page, "Kernels", 4)[0] == "93770765415584"
    two = sims.new_sim(client)
    sims.log(client, two, 0, *ended((1, 10, 10)), *ended((2, 20, 30), stream=8))
    page = open_page(f"#/sims/{two}?tab=kernels")
    page.get_by_text("Kernels of 2 streams may overlap").wait_for()
    together = sims.new_sim(client)
    sims.log(client, together, 0, *ended((1, 10, 10), (2, 0, 10)))
    page = open_page(f"#/sims/{together}?tab=kernels")
    page.get_by_text("Kernels overlap here").wait_for()
    straight = sims.new_sim(client)
    sims.log(client, straight, 0, *ended((1, 10, 10), (2, 20, 30)))
    page = open_page(f"#/sims/{straight}?tab=kernels")
    page.get_by_text("2 kernels, 30 cycles in all").wait_for()
    assert page.get_by_text("overlap").count() == 0
    assert page.get_by_text("out of order", exact=True).count() == 0


def test_a_chart_of_one_step_has_an_axis_of_one_step(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    one = {"simulated": {**sims.TIMING["simulated"], "steps": sims.TIMING["simulated"]["steps"][1:2]}}
    client.post(f"/api/sims/{sim}/step-timeline", json=one).raise_for_status()
    page = open_page(
        f"#/sims/{sim}?tab=timing",
        prepare=lambda page: page.add_init_script(
            "const write = CanvasRenderingContext2D.prototype.fillText; window.written = [];"
            "CanvasRenderingContext2D.prototype.fillText = function (text, ...at)"
            " { window.written.push(text); return write.call(this, text, ...at); };"
        ),
    )
    page.get_by_text("1 decode step; simulated 1.51 ms in all, measured 1.6 ms.").wait_for()
    eventually(lambda: page.evaluate("window.written.includes('Step')"), "an axis")
    written = page.evaluate("window.written")
    assert [text for text in written if str(text).isdigit()] == ["1"]
    assert {"0 ns", "1.5 ms"} <= set(written)


def test_step_timing_shows_errors_and_coverage(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    client.post(f"/api/sims/{sim}/step-timeline", json=sims.TIMING).raise_for_status()
    page = open_page(f"#/sims/{sim}?tab=timing")
    assert drawn(page, "Wall time of each step") > 500
    panel = page.get_by_role("tabpanel", name="Step timing")
    for words in (
        "72 of 80",
        "95.4 %",
        "441.6 µs",
        "-4.06 %",
        "6.03 %",
        "7 decode steps; simulated 10.78 ms in all, measured 11.2 ms",
    ):
        assert panel.get_by_text(words).count() >= 1, words
    page.get_by_label("Show").select_option("prefill, 1 step")
    panel.get_by_text("1 prefill step; simulated 1.5 ms in all, measured 1.6 ms").wait_for()
    page.get_by_label("Show").select_option("all 8 steps")
    panel.get_by_text("8 steps; simulated 12.28 ms in all, measured 12.8 ms").wait_for()
    assert cells(page, "Steps", 1)[:2] == ["prefill 0", "decode 1"]
    assert cells(page, "Steps", 5)[0] == "-6.25 %"
    assert cells(page, "Steps", 8)[1] == "91 %"


@pytest.mark.parametrize(
    "upload",
    [
        {"simulated": {"steps": [], "summary": {}}},
        {
            "simulated": {"steps": [1, None, {}, {"kind": 7}], "summary": {"simulation": [], "per_kind": 3}},
            "compare": {"steps": 4},
        },
    ],
)
def test_step_timing_of_any_shape_is_shown_as_far_as_it_goes(
    open_page: Open, client: httpx.Client, upload: dict[str, Any]
) -> None:
    sim = sims.new_sim(client)
    client.post(f"/api/sims/{sim}/step-timeline", json=upload).raise_for_status()
    page = open_page(f"#/sims/{sim}?tab=timing")
    page.get_by_text("No comparison was sent").wait_for()


def test_files_are_listed_and_downloaded(open_page: Open, client: httpx.Client) -> None:
    sim = sims.new_sim(client)
    data = bytes(range(256)) * 12
    client.put(f"/api/sims/{sim}/files/raw.bin", content=data).raise_for_status()
    client.put(f"/api/sims/{sim}/files/a.csv", content=b"").raise_for_status()
    page = open_page(f"#/sims/{sim}?tab=files")
    page.get_by_role("button", name="Download raw.bin").wait_for()
    assert cells(page, "Files", 1) == ["a.csv", "raw.bin"]
    assert cells(page, "Files", 2) == ["0 B", "3 KiB"]
    with page.expect_download() as waited:
        page.get_by_role("button", name="Download raw.bin").click()
    assert Path(waited.value.path()).read_bytes() == data
    assert waited.value.suggested_filename == "raw.bin"


# Two runs.


def test_two_runs_stand_side_by_side_kernel_by_kernel(open_page: Open, client: httpx.Client) -> None:
    ids = []
    runs = []
    for number in (1, 2):
        run, made = sims.new_run(client, f"side {number}", [{"name": "same"}, {"name": f"only in {number}"}])
        sims.simulate(client, made[0], kernels=3 + number, seed=number, names=["gemm"])
        runs.append(run)
        ids.append(made[0])
    page = open_page(f"#/runs/{runs[0]}")
    page.get_by_role("link", name="Compare with another run").click()
    page.get_by_label("Run").nth(1).select_option(runs[1])
    page.get_by_role("button", name="Kernels of same").click()
    assert drawn(page, "Cycles of each kernel") > 500
    a, b = (client.get(f"/api/sims/{sim}/kernels").json()["kernels"] for sim in ids)
    shown = cells(page, "Kernels side by side", 3)
    assert shown == [*(f"{kernel['sim_cycles']:,}" for kernel in a), "–"]
    assert cells(page, "Kernels side by side", 4) == [f"{kernel['sim_cycles']:,}" for kernel in b]
    change = 100 * (b[0]["sim_cycles"] - a[0]["sim_cycles"]) / a[0]["sim_cycles"]
    assert float(cells(page, "Kernels side by side", 5)[0].rstrip(" %").replace(",", "")) == pytest.approx(
        change, abs=0.06
    )
    page.get_by_text("(only in B)").wait_for()
    page.reload()
    page.get_by_text("(only in B)").wait_for()


def test_sims_of_long_paths_are_told_apart_where_runs_are_compared(open_page: Open, client: httpx.Client) -> None:
    run, ids = traced(client)
    other, _ = traced(client)
    page = open_page(f"#/compare?a={run}&b={other}")
    page.get_by_role("button", name="Kernels of trace=").first.wait_for()
    assert cells(page, "Sims in pairs", 1) == ["…backprop…", "…bfs…", "…hotspot…"]
    box = page.get_by_role("region", name="Sims in pairs").bounding_box()
    button = page.get_by_role("button", name="Kernels of trace=").first.bounding_box()
    assert button["x"] + button["width"] <= box["x"] + box["width"]
    chosen = page.get_by_label("Sim", exact=True).first.locator("option").all_inner_texts()
    assert chosen == ["Choose a sim", "…backprop…", "…bfs…", "…hotspot…"]
    page = open_page(f"#/compare?a={run}&b={run}&sa={ids[0]}&sb={ids[1]}")
    page.get_by_role("heading", name="Kernels of A …backprop… and B …bfs…").wait_for()
    assert page.get_by_role("heading", name="Sims", exact=True).is_hidden()


def test_pairs_are_made_by_name_and_turn(open_page: Open) -> None:
    page = open_page("#/compare")
    made = page.evaluate(
        """async () => {
          const src = document.querySelector('script[type=module]').src.replace('main.js', 'compare.js');
          const { pairKernels, pairSims } = await import(src);
          const k = (names) => [...names].map((name, index) => ({ name, index }));
          const show = (pairs) => pairs.map(({ a, b }) => [a && (a.index ?? a.id), b && (b.index ?? b.id)]);
          const s = (...names) => names.map((name, i) => ({ name, id: name + i }));
          return {
            kernels: show(pairKernels(k('xyxz'), k('yxwx'))),
            none: show(pairKernels([], k('ab'))),
            sims: show(pairSims(s('p', 'q', 'q'), s('q', 'p', 'r'))),
          };
        }"""
    )
    assert made == {
        "kernels": [[0, 1], [1, 0], [2, 3], [3, None], [None, 2]],
        "none": [[None, 0], [None, 1]],
        "sims": [["p0", "p1"], ["q1", None], ["q2", "r2"], [None, "q0"]],
    }, json.dumps(made)


# Elsewhere.


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("#/nothing", "Nothing is here"),
        ("#/sims/sim-000000000000", "No sim has this id."),
        ("#/runs/run-000000000000", "No run has this id."),
    ],
)
def test_an_address_of_nothing_says_so(open_page: Open, address: str, words: str) -> None:
    page = open_page(address)
    page.get_by_text(words).wait_for()
    page.get_by_role("link", name="All runs").click()
    page.get_by_role("heading", name="Runs").wait_for()


def test_going_back_and_forth_leaves_no_poll_behind(open_page: Open, client: httpx.Client) -> None:
    run, (sim,) = sims.new_run(client, "back and forth")
    page = open_page("#/")
    page.get_by_role("link", name="back and forth").first.click()
    page.get_by_role("link", name="#0").click()
    page.get_by_role("tab", name="Log").wait_for()
    page.go_back()
    page.get_by_role("table", name="Sims").wait_for()
    page.go_forward()
    page.get_by_role("tab", name="Log").wait_for()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_event("request", lambda request: request.url.endswith(sim), timeout=10_000)
    page.wait_for_event("request", lambda request: request.url.endswith(sim), timeout=10_000)
    assert {url.rpartition("/")[2] for url in asked} == {sim}, run
