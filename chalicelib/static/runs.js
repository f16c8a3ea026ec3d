// All runs, newest first.

import { address, call } from "./api.js";
import { command, foreign, h, setText } from "./dom.js";
import { count, counted, cut, time } from "./format.js";
import { Live } from "./live.js";
import { Bar } from "./states.js";
import { Table } from "./table.js";

const PAGE = 20;
const SEARCH_PAGE = 100;
const SEARCH_MOST = 2000;

export const title = () => "Runs";

export function open(root) {
  // Cursors of the pages before this one; the last is this page's.
  const cursors = [null];
  let next = null;
  let searched = 0;
  let hits = null;

  const table = new Table({
    label: "Runs",
    id: (run) => run.id,
    height: "none",
    empty: "No run matches.",
    columns: [
      { key: "name", label: "Run", fill: (cell, run) => { if (!cell.firstChild) cell.append(h("a", { href: `#/runs/${run.id}`, class: "name", title: cut(run.name) }, foreign(cut(run.name)))); } },
      {
        key: "counts",
        label: "Sims",
        fill: (cell, run) => {
          cell.bar ??= new Bar();
          if (!cell.firstChild) cell.append(cell.bar.element);
          cell.bar.set(run.counts);
        },
      },
      { key: "total", label: "Total", number: true, narrow: false, text: (run) => count(Object.values(run.counts).reduce((a, b) => a + b, 0)) },
      { key: "created", label: "Created", narrow: false, fill: (cell, run) => { if (!cell.firstChild) cell.append(time(run.created_at)); } },
      { key: "id", label: "Id", narrow: false, fill: (cell, run) => { if (!cell.firstChild) cell.append(h("code", {}, run.id)); } },
    ],
  });
  const newer = h("button", { type: "button", onclick: () => { cursors.pop(); live.now(); } }, "Newer");
  const older = h("button", { type: "button", onclick: () => { cursors.push(next); live.now(); } }, "Older");
  const place = h("span", { class: "muted" });
  const search = h("input", { type: "search", id: "search", placeholder: "Name or id", autocomplete: "off", oninput: () => find(search.value.trim()) });
  const found = h("p", { class: "muted", role: "status" });
  const pages = h("p", { class: "actions" }, newer, older, place);
  const empty = h(
    "section",
    { class: "empty", hidden: true },
    h("h2", {}, "No run yet"),
    h("p", {}, "Play a run that ends in every state, in a terminal where CASCADE_TOKEN is set:"),
    command(`cascade demo --url ${address}`),
    h("p", {}, "Or create one of your own:"),
    command(`curl -X POST "${address}/api/runs" -H "Authorization: Bearer $CASCADE_TOKEN" -H "Content-Type: application/json" -d '{"name": "first", "sims": [{"params": {"l2": "6MB"}}]}'`),
  );
  const filled = h("div", {}, table.element, pages);
  root.append(
    h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, "Runs"), h("label", { class: "search", for: "search" }, "Search ", search)),
    found, empty, filled,
  );

  let looking = null;
  async function find(text) {
    looking?.abort();
    hits = null;
    setText(found, "");
    if (!text) return live.now();
    const mine = new AbortController();
    looking = mine;
    const wanted = text.toLowerCase();
    hits = [];
    searched = 0;
    let cursor = null;
    try {
      do {
        const page = await call(`runs?limit=${SEARCH_PAGE}${cursor ? `&cursor=${cursor}` : ""}`, { signal: mine.signal });
        searched += page.runs.length;
        hits.push(...page.runs.filter((run) => run.name.toLowerCase().includes(wanted) || run.id.includes(wanted)));
        cursor = page.next_cursor;
        draw(hits);
        setText(found, `${count(hits.length)} of ${counted(searched, "run")}${cursor ? ", searching on" : ""}`);
      } while (cursor && searched < SEARCH_MOST);
      if (cursor) setText(found, `${count(hits.length)} of the newest ${counted(searched, "run")}; older ones were not searched`);
    } catch (error) {
      if (!mine.signal.aborted) setText(found, `The search stopped: ${error.message}`);
    }
    return undefined;
  }

  function draw(runs) {
    const nothing = runs.length === 0 && cursors.length === 1 && hits === null;
    empty.hidden = !nothing;
    filled.hidden = nothing;
    pages.hidden = hits !== null || (cursors.length === 1 && !next);
    newer.disabled = cursors.length === 1;
    older.disabled = !next;
    setText(place, `Page ${cursors.length}`);
    table.set(runs);
  }

  const live = new Live(async (signal) => {
    if (hits !== null) return false;
    const cursor = cursors.at(-1);
    const page = await call(`runs?limit=${PAGE}${cursor ? `&cursor=${cursor}` : ""}`, { signal });
    if (hits !== null || cursor !== cursors.at(-1)) return true;
    next = page.next_cursor;
    draw(page.runs);
    return true;
  });

  return () => {
    looking?.abort();
    live.stop();
    table.stop();
  };
}
