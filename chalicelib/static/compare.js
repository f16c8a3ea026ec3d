// Two runs side by side: their sims in pairs, and the kernels of one pair.

import { call } from "./api.js";
import { Chart } from "./chart.js";
import { foreign, h, setText } from "./dom.js";
import { FINAL, count, counted, cut, decimal, percent } from "./format.js";
import { Kernels } from "./kernels.js";
import { Live } from "./live.js";
import { middle, shortened } from "./params.js";
import { Table } from "./table.js";

const RUNS = 100;
const SIDES = ["a", "b"];
const NAME_WIDE = 60;

export const title = () => "Compare";

const change = (a, b) => (a && b !== null && b !== undefined ? (100 * (b - a)) / a : null);

/** Whether nothing of a run can change any more. */
const still = (run) => Boolean(run) && run.sims.every((sim) => FINAL.has(sim.state));

/** Sims in pairs: by name where it is there once on both sides, then by place. */
export function pairSims(a, b) {
  const unique = (sims) => {
    const names = new Map();
    for (const sim of sims) names.set(sim.name, names.has(sim.name) ? null : sim);
    return names;
  };
  const [namesA, namesB] = [unique(a), unique(b)];
  const used = new Set();
  const pairs = a.map((sim) => {
    const partner = namesA.get(sim.name) && namesB.get(sim.name);
    if (partner) used.add(partner.id);
    return { a: sim, b: partner ?? null };
  });
  b.forEach((sim, i) => {
    if (used.has(sim.id)) return;
    const place = pairs[i];
    if (place?.a && !place.b) place.b = sim;
    else pairs.push({ a: null, b: sim });
  });
  return pairs;
}

/** Kernels in pairs: the n-th of a name with the n-th of that name, in the order of a; what only b has comes last. */
export function pairKernels(a, b) {
  const waiting = new Map();
  for (const kernel of b) {
    if (!waiting.has(kernel.name)) waiting.set(kernel.name, []);
    waiting.get(kernel.name).push(kernel);
  }
  for (const queue of waiting.values()) queue.reverse();
  const pairs = a.map((kernel) => ({ a: kernel, b: waiting.get(kernel.name)?.pop() ?? null }));
  const rest = [...waiting.values()].flat().sort((x, y) => x.index - y.index);
  return [...pairs, ...rest.map((kernel) => ({ a: null, b: kernel }))].map((pair, position) => ({ ...pair, position }));
}

export function open(root, { query, setQuery }) {
  const runs = { a: null, b: null };
  const kernels = { a: null, b: null };
  const chosen = { a: query.get("a"), b: query.get("b"), sims: { a: query.get("sa"), b: query.get("sb") } };
  const seen = { a: null, b: null };

  const runSelect = {};
  const simSelect = {};
  const side = (which, label) => {
    runSelect[which] = h("select", { id: `run-${which}`, onchange: () => { chosen[which] = runSelect[which].value || null; chosen.sims = { a: null, b: null }; runs[which] = null; remember(); live.now(); } });
    simSelect[which] = h("select", { id: `sim-${which}`, onchange: () => { chosen.sims[which] = simSelect[which].value || null; remember(); live.now(); } });
    return h("fieldset", {}, h("legend", {}, label), h("label", { for: `run-${which}` }, "Run"), runSelect[which], h("label", { for: `sim-${which}` }, "Sim"), simSelect[which]);
  };
  const remember = () => {
    for (const which of SIDES) {
      if (chosen[which]) query.set(which, chosen[which]);
      else query.delete(which);
      if (chosen.sims[which]) query.set(`s${which}`, chosen.sims[which]);
      else query.delete(`s${which}`);
    }
    setQuery(query);
  };

  const both = (key, label, of, text, more = {}) => [
    { key: `${key}-a`, label: `${label} A`, number: true, narrow: more.narrow, text: (pair) => text(pair.a && of(pair.a)), sort: (pair) => pair.a && of(pair.a) },
    { key: `${key}-b`, label: `${label} B`, number: true, narrow: more.narrow, text: (pair) => text(pair.b && of(pair.b)), sort: (pair) => pair.b && of(pair.b) },
    { key: `${key}-d`, label: `${label} B−A`, number: true, text: (pair) => percent(pair.a && pair.b ? change(of(pair.a), of(pair.b)) : null, true), sort: (pair) => (pair.a && pair.b ? change(of(pair.a), of(pair.b)) : null) },
  ];
  const cellName = (cell, text, more, title = text) => {
    if (cell.shown === text) return;
    cell.shown = text;
    cell.title = cut(title, 1000);
    cell.replaceChildren(foreign(cut(text)), more ?? "");
  };
  // Names by trace paths differ only far behind.
  const short = { a: new Map(), b: new Map() };
  const named = (which, name) => short[which].get(name) ?? middle(name, NAME_WIDE);
  const pairName = (pair, of) => (pair.a && pair.b && pair.a.name !== pair.b.name ? `${of("a", pair.a.name)} | ${of("b", pair.b.name)}` : pair.a ? of("a", pair.a.name) : of("b", pair.b.name));

  const simTable = new Table({
    label: "Sims in pairs",
    id: (pair) => `${pair.a?.id}-${pair.b?.id}`,
    height: "40vh",
    empty: "Choose two runs.",
    columns: [
      { key: "name", label: "Sims", rest: true, sort: (pair) => (pair.a ?? pair.b).name, fill: (cell, pair) => cellName(cell, pairName(pair, named), "", pairName(pair, (which, name) => name)) },
      { key: "state", label: "States", narrow: false, text: (pair) => `${pair.a?.state ?? "–"} | ${pair.b?.state ?? "–"}` },
      ...both("cycles", "Cycles", (sim) => sim.tot_sim_cycles, count),
      ...both("kernels", "Kernels", (sim) => sim.kernels, count, { narrow: false }),
      {
        key: "open",
        label: "Kernels",
        fill: (cell, pair) => {
          if (cell.firstChild) return;
          cell.append(h("button", { type: "button", "aria-label": `Kernels of ${cut((pair.a ?? pair.b).name, 60)}`, disabled: !pair.a || !pair.b, onclick: () => { chosen.sims = { a: pair.a.id, b: pair.b.id }; remember(); live.now(); } }, "Show"));
        },
      },
    ],
  });
  const kernelTable = new Table({
    label: "Kernels side by side",
    id: (pair) => pair.position,
    height: "60vh",
    empty: "Neither sim has a kernel yet.",
    columns: [
      { key: "position", label: "#", number: true, text: (pair) => String((pair.a ?? pair.b).index), sort: (pair) => pair.position },
      { key: "name", label: "Kernel", rest: true, sort: (pair) => (pair.a ?? pair.b).name, fill: (cell, pair) => cellName(cell, (pair.a ?? pair.b).name ?? "(unknown)", pair.a && pair.b ? "" : h("span", { class: "muted" }, pair.a ? " (only in A)" : " (only in B)")) },
      ...both("cycles", "Cycles", (kernel) => kernel.sim_cycles, count),
      ...both("ipc", "IPC", (kernel) => kernel.ipc, decimal, { narrow: false }),
    ],
  });
  const chart = new Chart("Cycles of each kernel in both sims");
  const kernelTitle = h("h2", {});
  const kernelPart = h("section", { hidden: true }, kernelTitle, chart.element, kernelTable.element);
  const hint = h("p", { class: "empty" });
  const simPart = h("section", {}, h("h2", {}, "Sims"), simTable.element);
  root.append(h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, "Compare")), h("div", { class: "pickers" }, side("a", "A"), side("b", "B")), hint, simPart, kernelPart);

  function fillRuns(list) {
    for (const which of SIDES) {
      const known = list.some((run) => run.id === chosen[which]);
      runSelect[which].replaceChildren(
        h("option", { value: "" }, "Choose a run"),
        ...list.map((run) => h("option", { value: run.id }, `${cut(run.name, 60)} (${run.id})`)),
        ...(chosen[which] && !known ? [h("option", { value: chosen[which] }, chosen[which])] : []),
      );
      runSelect[which].value = chosen[which] ?? "";
    }
  }

  function fillSims(which) {
    const sims = runs[which]?.sims ?? [];
    const shape = JSON.stringify([runs[which]?.id, sims.length]);
    if (seen[which] !== shape) {
      seen[which] = shape;
      short[which] = shortened(sims.map((sim) => sim.name), NAME_WIDE);
      simSelect[which].replaceChildren(h("option", { value: "" }, "Choose a sim"), ...sims.map((sim) => h("option", { value: sim.id, title: cut(sim.name, 300) }, named(which, sim.name))));
    }
    simSelect[which].value = chosen.sims[which] ?? "";
    simSelect[which].disabled = sims.length === 0;
  }

  function drawSims() {
    SIDES.forEach(fillSims);
    const ready = runs.a && runs.b;
    setText(hint, ready ? "" : "Choose a run on each side; the same run on both compares its sims.");
    hint.hidden = Boolean(ready);
    // Once both sims of one run are chosen there is nothing left to say.
    simPart.hidden = Boolean(ready) && runs.a.id === runs.b.id && SIDES.every((which) => chosen.sims[which]);
    simTable.set(ready && runs.a.id !== runs.b.id ? pairSims(runs.a.sims, runs.b.sims) : []);
    setText(simTable.none, ready ? "One run on both sides: choose a sim on each." : "Choose two runs.");
  }

  function drawKernels() {
    const [a, b] = SIDES.map((which) => kernels[which]);
    if (!a || !b) return;
    const pairs = pairKernels(a.last, b.last);
    const names = SIDES.map((which) => runs[which]?.sims.find((sim) => sim.id === chosen.sims[which])?.name ?? chosen.sims[which]);
    kernelTitle.replaceChildren("Kernels of A ", foreign(named("a", names[0])), " and B ", foreign(named("b", names[1])));
    kernelTitle.title = `A ${cut(names[0], 300)}\nB ${cut(names[1], 300)}`;
    kernelTable.set(pairs);
    chart.element.hidden = pairs.length === 0;
    if (!pairs.length) return;
    const total = (known) => known.last.reduce((sum, kernel) => sum + (kernel.sim_cycles ?? 0), 0);
    const again = SIDES.filter((which) => kernels[which].attempts.length > 1).map((which) => ` The log of ${which.toUpperCase()} has several attempts: the last is compared.`).join("");
    const [totalA, totalB] = [total(a), total(b)];
    chart.set(
      { kind: "line", xLabel: "Kernel", x: pairs.map((pair) => pair.position), series: [{ label: "A", axis: "Cycles", values: pairs.map((pair) => pair.a?.sim_cycles ?? null) }, { label: "B", values: pairs.map((pair) => pair.b?.sim_cycles ?? null) }] },
      `${count(a.last.length)} and ${counted(b.last.length, "kernel")}; ${count(totalA)} and ${counted(totalB, "cycle")}, B ${percent(change(totalA, totalB), true)} against A.${again}`,
    );
  }

  let listed = false;
  const live = new Live(async (signal) => {
    if (!listed) {
      fillRuns((await call(`runs?limit=${RUNS}`, { signal })).runs);
      listed = true;
    }
    for (const which of SIDES) {
      const other = which === "a" ? "b" : "a";
      if (!chosen[which]) runs[which] = null;
      else if (chosen[which] === chosen[other] && which === "b" && runs.a) runs.b = runs.a;
      else if (!still(runs[which])) runs[which] = await call(`runs/${chosen[which]}`, { signal });
    }
    drawSims();
    const ready = SIDES.every((which) => chosen.sims[which]);
    kernelPart.hidden = !ready;
    if (ready) {
      for (const which of SIDES) {
        const id = chosen.sims[which];
        if (kernels[which]?.simId !== id) kernels[which] = new Kernels(id);
        const sim = runs[which]?.sims.find((one) => one.id === id);
        if (kernels[which].complete && kernels[which].seen === sim?.kernels) continue;
        await kernels[which].read(signal);
        kernels[which].seen = sim?.kernels;
      }
      drawKernels();
    }
    return SIDES.some((which) => runs[which] && !still(runs[which]));
  });

  return () => {
    live.stop();
    simTable.stop();
    kernelTable.stop();
    chart.stop();
  };
}
