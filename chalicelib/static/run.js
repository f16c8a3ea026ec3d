// One run: its sims as a table that can be searched, filtered and sorted, and a chart across a parameter.

import { Refused, address, call, now } from "./api.js";
import { Chart } from "./chart.js";
import { command, confirm, foreign, h, setText } from "./dom.js";
import { FINAL, STATES, bytes, count, counted, cut, decimal, duration, mark, time, value } from "./format.js";
import { Live, words } from "./live.js";
import { middle, saysParams, shortened, simulator, survey } from "./params.js";
import { Bar, badge } from "./states.js";
import { Table } from "./table.js";

const RATE_MS = 12_000;
const PARAM_COLUMNS = 4;
/** With more parameters that vary they share a column. */
const PARAMS_WIDE = 48;
const NAME_WIDE = 30;
const CONSTANT_WIDE = 60;
const TILTED_WIDE = 16;
/** Characters, so that cycles and errors are still in sight at 1280 px. */
const CONSTANTS_OPEN = 6;
const VALUES_MOST = 200;
const GROUPS_MOST = 6;

export const title = () => "Run";

const METRICS = {
  cycles: { label: "Cycles", of: (sim) => sim.tot_sim_cycles },
  ipc: { label: "IPC", of: ipc, format: decimal },
  kernels: { label: "Kernels", of: (sim) => sim.kernels },
  seconds: { label: "Seconds it ran", of: (sim) => ran(sim) },
  bytes: { label: "Bytes of log", of: (sim) => sim.log_bytes },
};

function ipc(sim) {
  return sim.tot_sim_cycles && sim.tot_sim_insns !== null ? sim.tot_sim_insns / sim.tot_sim_cycles : null;
}

function ran(sim) {
  if (!sim.started_at) return null;
  const end = sim.finished_at ? Date.parse(sim.finished_at) : sim.state === "lost" ? Date.parse(sim.last_heartbeat_at) : now();
  return (end - Date.parse(sim.started_at)) / 1000;
}

export function open(root, { id, query, setQuery }) {
  let run = null;
  let rows = [];
  const params = new Map();
  // Parameters that vary, each with its values and with short ones for them.
  let varied = [];
  let paramsOf = 0;
  // Of each sim: its name as it is shown, and what a search looks through.
  const names = new Map();
  const places = new Map();
  const texts = new Map();
  const rates = new Map();

  // What the address says.
  const wanted = { text: query.get("q") ?? "", states: new Set((query.get("state") ?? "").split(",").filter((one) => STATES.includes(one))), param: query.get("param") ?? "", value: query.get("value") };
  const chosen = { x: query.get("x") ?? "", y: METRICS[query.get("y")] ? query.get("y") : "cycles", by: query.get("by") ?? "" };
  const remember = () => {
    const set = (name, text) => (text ? query.set(name, text) : query.delete(name));
    set("q", wanted.text);
    set("state", [...wanted.states].join(","));
    set("param", wanted.param);
    if (wanted.param && wanted.value !== null) query.set("value", wanted.value);
    else query.delete("value");
    set("x", chosen.x);
    set("y", chosen.y === "cycles" ? "" : chosen.y);
    set("by", chosen.by);
    set("sort", table.sorted ? `${table.sorted.down ? "-" : ""}${table.sorted.key}` : "");
    setQuery(query);
  };

  const name = h("h1", { tabindex: "-1" }, id);
  const cancel = h("button", { type: "button", class: "danger", hidden: true, onclick: () => cancelRun() }, "Cancel run");
  const remove = h("button", { type: "button", class: "danger", hidden: true, onclick: () => deleteRun() }, "Delete run");
  const compare = h("a", { href: `#/compare?a=${id}` }, "Compare with another run");
  const about = h("p", { class: "muted" });
  const bar = new Bar();
  const note = h("p", { class: "bad", role: "alert", hidden: true });
  const help = h("div", { class: "empty", hidden: true });
  const constants = h("div", { hidden: true });

  const search = h("input", { type: "search", id: "sims-search", autocomplete: "off", placeholder: "Name, id, error or parameter", oninput: () => { wanted.text = search.value.trim(); remember(); draw(); } });
  search.value = wanted.text;
  const stateButtons = STATES.map((state) => h("button", {
    type: "button",
    class: "quiet",
    "aria-pressed": String(wanted.states.has(state)),
    onclick: (event) => {
      if (!wanted.states.delete(state)) wanted.states.add(state);
      event.currentTarget.setAttribute("aria-pressed", String(wanted.states.has(state)));
      remember();
      draw();
    },
  }, `${mark(state)} ${state}`));
  const paramSelect = h("select", { id: "param", onchange: () => { wanted.param = paramSelect.value; wanted.value = null; fillValues(); remember(); draw(); } });
  const valueSelect = h("select", { id: "param-value", "aria-label": "Value of the parameter", onchange: () => { wanted.value = valueSelect.value === "" ? null : valueSelect.value.slice(1); remember(); draw(); } });
  const matches = h("span", { class: "muted", role: "status" });
  const paramFilter = h("span", { class: "filters", hidden: true }, h("label", { for: "param" }, "Parameter"), paramSelect, valueSelect);

  /** A sim's value of a parameter as text; null when it has none. */
  const given = (sim, key) => {
    const own = params.get(sim.id);
    return own && Object.hasOwn(own, key) ? value(own[key]) : null;
  };
  const inShort = (sim, { key, short }) => short.get(given(sim, key)) ?? "–";
  const together = (sim) => varied.map((one) => `${one.key}=${inShort(sim, one)}`).join("  ");
  const inFull = (sim) => varied.map(({ key }) => `${key}=${given(sim, key) ?? "–"}`).join("\n");
  const place = (sim) => `#${places.get(sim.id)}`;
  /** What the sim is called: its name, or, when that only repeats the parameters that stand beside it, its place. */
  const shownName = (sim) => names.get(sim.id) ?? cut(sim.name);
  const sortable = (sim, key) => (typeof params.get(sim.id)?.[key] === "number" ? params.get(sim.id)[key] : given(sim, key));

  const fillText = (cell, text, title, className) => {
    if (cell.shown === text) return;
    cell.shown = text;
    cell.replaceChildren(foreign(text, className));
    cell.title = cut(title, 1000);
  };
  const paramColumn = (one) => ({
    key: `p:${one.key}`,
    label: cut(one.key, 24),
    title: cut(one.key, 200),
    narrow: false,
    number: one.numbers,
    sort: (sim) => sortable(sim, one.key),
    fill: (cell, sim) => fillText(cell, inShort(sim, one), given(sim, one.key) ?? "This sim has no such parameter"),
  });
  const allParams = { key: "params", label: "Parameters", narrow: false, rest: true, sort: together, fill: (cell, sim) => fillText(cell, cut(together(sim), 300), inFull(sim)) };
  const before = [
    { key: "state", label: "State", sort: (sim) => STATES.indexOf(sim.state), fill: (cell, sim) => { cell.badge = badge(sim.state, cell.badge); if (!cell.firstChild) cell.append(cell.badge); } },
    {
      key: "name",
      label: "Sim",
      sort: (sim) => (names.has(sim.id) ? places.get(sim.id) : sim.name),
      fill: (cell, sim) => {
        const text = shownName(sim);
        if (cell.shown === text) return;
        cell.shown = text;
        cell.firstChild ?? cell.append(h("a", { href: `#/sims/${sim.id}`, class: "name" }));
        // A phone has no room for the parameters, so there they are the name.
        const repeats = text === place(sim) && varied.length > 0;
        cell.firstChild.replaceChildren(h("span", { class: repeats && "wide-only" }, foreign(text)), ...(repeats ? [h("span", { class: "narrow-only" }, foreign(cut(varied.map((one) => inShort(sim, one)).join(", "), 60)))] : []));
        cell.firstChild.title = cut(sim.name, 500);
      },
    },
  ];
  const after = [
    { key: "cycles", label: "Cycles", number: true, sort: (sim) => sim.tot_sim_cycles, text: (sim) => count(sim.tot_sim_cycles) },
    { key: "ipc", label: "IPC", number: true, narrow: false, sort: ipc, text: (sim) => decimal(ipc(sim)), title: "Instructions over cycles of the whole sim so far" },
    { key: "kernels", label: "Kernels", number: true, narrow: false, sort: (sim) => sim.kernels, text: (sim) => count(sim.kernels), title: "In the log; of all attempts, where a simulator was started again" },
    { key: "beat", label: "Last beat", number: true, ticks: true, sort: (sim) => (sim.last_heartbeat_at ? -Date.parse(sim.last_heartbeat_at) : null), text: (sim) => (sim.last_heartbeat_at ? duration((now() - Date.parse(sim.last_heartbeat_at)) / 1000) : "–"), title: "How long ago the last heartbeat was" },
    { key: "ran", label: "Ran for", number: true, narrow: false, ticks: true, sort: ran, text: (sim) => duration(ran(sim)) },
    { key: "rate", label: "Log rate", number: true, narrow: false, sort: (sim) => rate(sim), text: (sim) => (FINAL.has(sim.state) || sim.state === "queued" ? "–" : `${bytes(rate(sim) ?? 0)}/s`), title: "Of the last seconds" },
    {
      key: "error",
      label: "Error",
      narrow: false,
      rest: true,
      sort: (sim) => sim.error,
      fill: (cell, sim) => fillText(cell, sim.error ? cut(sim.error, 120) : sim.exit_code ? `exit code ${sim.exit_code}` : "", sim.error ? cut(sim.error, 300) : "", "bad"),
    },
    {
      key: "cancel",
      label: "Actions",
      narrow: false,
      fill: (cell, sim) => {
        if (!cell.firstChild) cell.append(h("button", { type: "button", class: "quiet", "aria-label": `Cancel ${cut(sim.name, 60)}`, onclick: () => cancelSim(sim) }, "Cancel"));
        cell.firstChild.hidden = FINAL.has(sim.state);
      },
    },
  ];
  const sorting = query.get("sort");
  const table = new Table({
    label: "Sims",
    id: (sim) => sim.id,
    sorted: sorting ? { key: sorting.replace(/^-/, ""), down: sorting.startsWith("-") } : null,
    onsort: () => setTimeout(remember),
    empty: "No sim matches.",
    columns: [...before, ...after],
  });

  const select = (key, label, idName) => h("label", {}, `${label} `, h("select", { id: idName, onchange: (event) => { chosen[key] = event.target.value; remember(); drawChart(); } }));
  const [xLabel, yLabel, byLabel] = [select("x", "Across", "chart-x"), select("y", "show", "chart-y"), select("by", "by", "chart-by")];
  yLabel.lastChild.append(...Object.entries(METRICS).map(([key, { label }]) => h("option", { value: key }, label)));
  yLabel.lastChild.value = chosen.y;
  const chart = new Chart("Sims across a parameter");
  const charts = h("details", { hidden: true }, h("summary", {}, "Chart across a parameter"), h("div", { class: "filters" }, xLabel, yLabel, byLabel), chart.element);
  charts.open = query.has("x") || query.has("y");
  charts.addEventListener("toggle", () => drawChart());

  root.append(
    h("p", { class: "muted" }, h("a", { href: "#/" }, "Runs"), " · ", h("code", {}, id)),
    h("div", { class: "heading" }, name, compare, cancel, remove),
    note, about, bar.element, help,
    h("div", { class: "filters" }, h("label", { for: "sims-search" }, "Search"), search, h("span", { class: "filters", role: "group", "aria-label": "States shown" }, stateButtons), paramFilter, matches),
    constants, charts, table.element,
  );

  async function act(doing) {
    try {
      await doing();
      note.hidden = true;
    } catch (error) {
      note.hidden = false;
      setText(note, words(error));
    }
    live.now();
  }

  async function cancelRun() {
    const open = rows.filter((sim) => !FINAL.has(sim.state)).length;
    if (await confirm(open === 1 ? "Cancel the one sim of this run that has not finished?" : `Cancel the ${count(open)} sims of this run that have not finished?`, "Cancel run")) await act(async () => set(await call(`runs/${id}/cancel`, { method: "POST" })));
  }

  async function deleteRun() {
    const open = rows.filter((sim) => !FINAL.has(sim.state)).length;
    const question = ["Delete the run ", h("strong", {}, foreign(cut(run.name, 80))), ` with its ${counted(rows.length, "sim")}, their logs, kernels and files? `, open ? `${counted(open, "sim")} of it ${open === 1 ? "has" : "have"} not finished. ` : "", "It cannot be brought back."];
    if (!(await confirm(question, "Delete run"))) return;
    remove.disabled = true;
    setText(remove, "Deleting…");
    try {
      await call(`runs/${id}`, { method: "DELETE", raw: true });
      location.hash = "#/";
    } catch (error) {
      remove.disabled = false;
      setText(remove, "Delete run");
      note.hidden = false;
      setText(note, words(error));
      live.now();
    }
  }

  async function cancelSim(sim) {
    if (await confirm(`Cancel ${cut(sim.name, 80)}? Its simulator is told to stop by the answer to its next heartbeat.`, "Cancel sim")) await act(() => call(`sims/${sim.id}/cancel`, { method: "POST" }));
  }

  // Bytes a second over the last seconds this page has seen.
  function rate(sim) {
    const known = rates.get(sim.id);
    if (!known) return null;
    const [[t0, b0]] = known;
    const [t1, b1] = known.at(-1);
    return t1 > t0 ? ((b1 - b0) * 1000) / (t1 - t0) : 0;
  }

  function note_rates() {
    const at = Date.now();
    for (const sim of rows) {
      if (FINAL.has(sim.state)) { rates.delete(sim.id); continue; }
      const known = rates.get(sim.id) ?? [];
      known.push([at, sim.log_bytes]);
      while (known.length > 2 && at - known[0][0] > RATE_MS) known.shift();
      rates.set(sim.id, known);
    }
  }

  function set(found) {
    if (!run) {
      document.title = `${cut(found.name, 60)} · Cascade`;
      name.replaceChildren(foreign(found.name));
    }
    if (!run) requestAnimationFrame(() => performance.mark("sims shown"));
    run = found;
    rows = found.sims;
    note_rates();
    rows.forEach((sim, i) => places.set(sim.id, i));
    const ended = rows.every((sim) => FINAL.has(sim.state));
    cancel.hidden = ended;
    // The service deletes no run of which a sim is running.
    remove.hidden = found.counts.running > 0;
    table.show("rate", found.counts.running + found.counts.lost > 0);
    table.show("error", rows.some((sim) => sim.error || sim.exit_code));
    table.show("cancel", !ended);
    if (!about.firstChild) about.append("Created ", time(found.created_at), h("span"));
    setText(about.lastChild, `, ${counted(rows.length, "sim")}`);
    bar.set(found.counts);
    help.hidden = !(found.counts.queued && !found.counts.running);
    if (paramsOf) sayHow();
    draw();
  }

  /** How a worker is started, with placeholders for the parameters that this run has. */
  function sayHow() {
    if (help.hidden || help.firstChild) return;
    const keys = new Set([...params.values()].flatMap((own) => Object.keys(own)));
    help.append(h("p", {}, "Sims are queued and none runs. Start a worker where the simulator is installed and CASCADE_TOKEN is set:"), command(`export CASCADE_URL=${address}\ncascade worker --run ${id} -- ${simulator(keys)}`));
  }

  function draw() {
    const text = wanted.text.toLowerCase();
    const shown = rows.filter((sim) => {
      if (wanted.states.size && !wanted.states.has(sim.state)) return false;
      if (wanted.param && wanted.value !== null && given(sim, wanted.param) !== wanted.value) return false;
      return !text || (texts.get(sim.id) ?? "").includes(text) || [sim.name, sim.id, sim.error ?? "", place(sim)].some((one) => one.toLowerCase().includes(text));
    });
    setText(matches, shown.length === rows.length ? "" : `${count(shown.length)} of ${counted(rows.length, "sim")}`);
    table.set(shown);
    drawn = shown;
    drawChart();
  }
  let drawn = [];

  // Parameters never change, so they are read once, and again when sims were added.
  async function readParams(signal) {
    let cursor = null;
    do {
      const page = await call(`runs/${id}/params?limit=1000${cursor === null ? "" : `&cursor=${cursor}`}`, { signal });
      for (const sim of page.sims) params.set(sim.id, sim.params);
      cursor = page.next_cursor;
    } while (cursor !== null);
    paramsOf = rows.length;
    const all = rows.map((sim) => params.get(sim.id) ?? {});
    const found = survey(all);
    const apart = found.varied.length <= PARAM_COLUMNS;
    const wide = Math.floor(PARAMS_WIDE / Math.max(1, Math.min(found.varied.length, PARAM_COLUMNS)));
    varied = found.varied.map((one) => ({ ...one, short: shortened([...one.values.keys()], wide), numbers: all.every((own) => !Object.hasOwn(own, one.key) || typeof own[one.key] === "number") }));
    nameSims();
    sayHow();
    for (const sim of rows) texts.set(sim.id, Object.entries(params.get(sim.id) ?? {}).map(([key, own]) => `${key}=${value(own)}`).join("\n").toLowerCase());
    drawConstants(found.constant);
    table.setColumns([...before, ...(apart ? varied.map(paramColumn) : [allParams]), ...after]);
    paramFilter.hidden = charts.hidden = varied.length === 0;
    const option = ({ key }) => h("option", { value: key }, cut(key, 60));
    paramSelect.replaceChildren(h("option", { value: "" }, "any"), ...varied.map(option));
    // A filter by what all have, or none, filters nothing.
    if (!varied.some(({ key }) => key === wanted.param)) wanted.param = "";
    paramSelect.value = wanted.param;
    fillValues();
    xLabel.lastChild.replaceChildren(...varied.map(option));
    byLabel.lastChild.replaceChildren(h("option", { value: "" }, "nothing"), ...varied.filter(({ values }) => values.size <= GROUPS_MOST).map(option));
    if (!varied.some(({ key }) => key === chosen.x)) chosen.x = varied[0]?.key ?? "";
    xLabel.lastChild.value = chosen.x;
    byLabel.lastChild.value = chosen.by;
    draw();
  }

  function nameSims() {
    const own = rows.filter((sim) => !saysParams(sim.name, params.get(sim.id) ?? {}));
    const short = shortened(own.map((sim) => sim.name), NAME_WIDE);
    for (const sim of rows) names.set(sim.id, place(sim));
    for (const sim of own) names.set(sim.id, short.get(sim.name));
  }

  function drawConstants(list) {
    constants.hidden = list.length === 0;
    const items = h("ul", { class: "params", "aria-label": "Parameters that all sims share" }, list.map(({ key, text }) => h("li", { title: cut(text, 4000) }, foreign(middle(key, CONSTANT_WIDE)), " = ", foreign(middle(text, CONSTANT_WIDE)))));
    const label = rows.length === 1 ? "Parameters" : `Same in all ${count(rows.length)} sims`;
    const many = list.length > CONSTANTS_OPEN;
    constants.replaceChildren(many ? h("details", {}, h("summary", {}, `${label} (${count(list.length)})`), items) : h("div", { class: "inline" }, h("span", { class: "muted" }, label), items));
  }

  function fillValues() {
    const one = varied.find(({ key }) => key === wanted.param);
    valueSelect.hidden = !one;
    if (!one) return;
    const some = [...one.values].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true })).slice(0, VALUES_MOST);
    const short = shortened(some.map(([text]) => text), 60);
    valueSelect.replaceChildren(h("option", { value: "" }, "any value"), ...some.map(([text, times]) => h("option", { value: `=${text}` }, `${short.get(text)} (${times})`)));
    valueSelect.value = wanted.value === null ? "" : `=${wanted.value}`;
  }

  function drawChart() {
    if (charts.hidden || !charts.open || !chosen.x) return;
    const metric = METRICS[chosen.y];
    const some = drawn.filter((sim) => given(sim, chosen.x) !== null && metric.of(sim) !== null);
    const numeric = varied.find(({ key }) => key === chosen.x)?.numbers;
    const values = [...new Set(some.map((sim) => given(sim, chosen.x)))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    const placed = new Map(values.map((text, i) => [text, i]));
    const room = chart.fits(values.length);
    const short = shortened(values, Math.max(room, TILTED_WIDE));
    const points = some.map((sim) => ({ x: placed.get(given(sim, chosen.x)), y: metric.of(sim), group: chosen.by ? given(sim, chosen.by) ?? "–" : metric.label })).sort((a, b) => a.x - b.x);
    const groups = [...new Set(points.map((point) => point.group))].slice(0, GROUPS_MOST);
    const labels = shortened(groups, 40);
    const ys = points.map((point) => point.y);
    chart.set(
      {
        kind: "points",
        xLabel: cut(chosen.x, 60),
        x: points.map((point) => point.x),
        xText: (i) => short.get(values[i]) ?? "",
        tilted: [...short.values()].some((text) => text.length > room),
        series: groups.map((group) => ({ label: labels.get(group), axis: metric.label, points: true, format: metric.format, values: points.map((point) => (point.group === group ? point.y : null)) })),
      },
      some.length ? `${metric.label} of ${counted(some.length, "sim")} across ${counted(values.length, "value")} of ${cut(chosen.x, 60)}${numeric ? ", evenly spaced" : ""}: from ${(metric.format ?? count)(Math.min(...ys))} to ${(metric.format ?? count)(Math.max(...ys))}.` : `No sim shown has both ${cut(chosen.x, 60)} and ${metric.label.toLowerCase()} yet.`,
    );
  }

  function gone() {
    live.stop();
    root.replaceChildren(h("h1", { tabindex: "-1" }, run ? foreign(run.name) : id), h("p", {}, run ? "This run was deleted while it was open here." : "No run has this id. It may have been deleted."), h("p", {}, h("a", { href: "#/" }, "All runs")));
    root.querySelector("h1").focus();
  }

  const live = new Live(async (signal) => {
    try {
      set(await call(`runs/${id}`, { signal }));
      if (paramsOf < rows.length) await readParams(signal);
      return rows.some((sim) => !FINAL.has(sim.state));
    } catch (error) {
      if (!(error instanceof Refused && error.status === 404)) throw error;
      gone();
      return false;
    }
  });
  const ticking = setInterval(() => table.tick(), 1000);

  return () => {
    clearInterval(ticking);
    live.stop();
    table.stop();
    chart.stop();
  };
}
