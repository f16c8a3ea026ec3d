// Kernels of a sim: reading them page by page, as a table and as a chart.

import { call } from "./api.js";
import { attempts, overlap, overtaken } from "./attempts.js";
import { Chart } from "./chart.js";
import { foreign, h, save, setText } from "./dom.js";
import { count, counted, cut, decimal, id } from "./format.js";
import { words } from "./live.js";
import { Table } from "./table.js";

const PAGE = 1000;
const LATER_PAGE = 200;

/** What is known of a sim's kernels. */
export class Kernels {
  constructor(simId) {
    this.simId = simId;
    this.list = [];
    this.cursor = null;
  }

  /**
   * Read what is new. The last page is read again each time: its last kernel may have been waiting for its last line.
   * @param more called after each page
   */
  async read(signal, more = () => {}) {
    for (;;) {
      const limit = this.complete ? LATER_PAGE : PAGE;
      const page = await call(`sims/${this.simId}/kernels?stats=false&limit=${limit}${this.cursor ? `&cursor=${this.cursor}` : ""}`, { signal });
      for (const kernel of page.kernels) this.list[kernel.index] = kernel;
      if (!page.next_cursor) break;
      this.cursor = page.next_cursor;
      more();
    }
    this.complete = true;
    more();
  }

  /** Kernels of each attempt, in order; none while there is no kernel. */
  get attempts() {
    return attempts(this.list);
  }

  /** Those of the last attempt: what went before it is not part of the result. */
  get last() {
    return this.attempts.at(-1) ?? [];
  }
}

const nameOf = (kernel) => kernel.name ?? "(unknown)";

const SINCE = "Cycles since the block before. Where kernels overlap, that is not how long this kernel itself took.";

/** @param late by a kernel's index, the launch uid of the one that overtook it */
const columns = (late) => [
  { key: "index", label: "#", number: true, text: (k) => id(k.index), sort: (k) => k.index, title: "Position in the log" },
  {
    key: "name",
    label: "Kernel",
    rest: true,
    sort: nameOf,
    fill: (cell, k) => {
      const by = late().get(k.index);
      const shown = JSON.stringify([k.name, k.finished, by]);
      if (cell.kernel === shown) return;
      cell.kernel = shown;
      cell.title = cut(nameOf(k), 1000);
      cell.replaceChildren(
        by === undefined ? "" : h("span", { class: "tag", title: `It ended after launch ${id(by)}, which began later` }, "out of order"),
        foreign(cut(nameOf(k))),
        k.finished ? "" : h("span", { class: "muted" }, " (cut short)"),
      );
    },
  },
  { key: "uid", label: "Launch", number: true, narrow: false, text: (k) => id(k.launch_uid), sort: (k) => k.launch_uid, title: "Launch uid" },
  { key: "stream", label: "Stream", number: true, narrow: false, text: (k) => id(k.stream_id), sort: (k) => k.stream_id },
  { key: "cycles", label: "Cycles", number: true, text: (k) => count(k.sim_cycles), sort: (k) => k.sim_cycles, title: SINCE },
  { key: "insns", label: "Instructions", number: true, narrow: false, text: (k) => count(k.sim_insns), sort: (k) => k.sim_insns, title: "Instructions since the block before" },
  { key: "ipc", label: "IPC", number: true, text: (k) => decimal(k.ipc), sort: (k) => k.ipc },
  { key: "occupancy", label: "Occupancy %", number: true, narrow: false, text: (k) => decimal(k.occupancy), sort: (k) => k.occupancy },
  { key: "l2", label: "L2 GB/s", number: true, narrow: false, text: (k) => decimal(k.l2_bw_gbps), sort: (k) => k.l2_bw_gbps },
  { key: "total", label: "Total cycles", number: true, narrow: false, text: (k) => count(k.tot_sim_cycles), sort: (k) => k.tot_sim_cycles, title: "Running total after this kernel" },
];

export class KernelsPanel {
  constructor(sim) {
    this.known = new Kernels(sim.id);
    this.late = new Map();
    // Which attempt is shown, from 0; null for the last, whichever that is.
    this.chosen = null;
    this.table = new Table({ label: "Kernels", id: (kernel) => kernel.index, columns: columns(() => this.late), sorted: { key: "index", down: false }, height: "60vh", empty: "No kernel has finished yet. They are read from the log as it comes." });
    this.chart = new Chart("IPC and cycles along the run");
    this.status = h("span", { class: "muted", role: "status" });
    this.csv = h("button", { type: "button", onclick: () => this.download() }, "All statistics as CSV");
    this.select = h("select", { id: "attempt", onchange: () => { this.chosen = this.select.value === "" ? null : Number(this.select.value); this.draw(); } });
    this.picker = h("label", { hidden: true }, "Attempt ", this.select);
    this.note = h("p", { class: "muted", hidden: true });
    this.element = h("div", {}, h("p", { class: "actions" }, this.csv, this.picker, this.status), this.chart.element, this.note, this.table.element);
  }

  async refresh(sim, signal) {
    if (this.seen === sim.kernels && this.known.complete && sim.state === this.state) return;
    await this.known.read(signal, () => this.draw());
    this.seen = sim.kernels;
    this.state = sim.state;
  }

  draw() {
    const all = this.known.attempts;
    const list = (this.chosen === null ? all.at(-1) : all[this.chosen]) ?? [];
    this.fillPicker(all);
    this.late = overtaken(list);
    this.table.set(list);
    this.chart.element.hidden = list.length === 0;
    this.csv.disabled = list.length === 0;
    setText(this.status, list.length ? counted(list.length, "kernel") : "");
    if (!list.length) return;
    this.explain(all, list);
    const last = list.at(-1);
    this.chart.set(
      {
        kind: "line",
        xLabel: "Kernel",
        x: list.map((k) => k.index),
        series: [
          { label: "IPC", values: list.map((k) => k.ipc), format: decimal },
          { label: "Cycles", values: list.map((k) => k.sim_cycles), scale: "cycles" },
        ],
      },
      `${counted(list.length, "kernel")}, ${counted(last.tot_sim_cycles, "cycle")} in all, IPC ${decimal(last.tot_ipc)} over the whole run.`,
    );
  }

  fillPicker(all) {
    this.picker.hidden = all.length < 2;
    const texts = all.map((list, i) => `${i + 1} of ${all.length}: ${counted(list.length, "kernel")}`);
    const shape = texts.join();
    if (shape === this.picked) return;
    this.picked = shape;
    const options = texts.map((text, i) => h("option", { value: i === all.length - 1 ? "" : i }, text)).reverse();
    this.select.replaceChildren(...options);
    this.select.value = this.chosen === null ? "" : String(this.chosen);
  }

  /** What the numbers do not say by themselves. */
  explain(all, list) {
    const streams = new Set(list.map((k) => k.stream_id)).size;
    const words = [];
    if (all.length > 1) words.push(`The log has the kernels of ${count(all.length)} attempts, as the simulator was started again. Table, chart and sums are of one; the CSV has all.`);
    if (this.late.size) words.push(`${counted(this.late.size, "kernel")} ended out of launch order.`);
    const since = "a row's cycles are those since the row before it in the log, not how long its kernel took.";
    if (overlap(list)) words.push(`Kernels overlap here: ${since}`);
    else if (streams > 1) words.push(`Kernels of ${count(streams)} streams may overlap: where they do, ${since}`);
    setText(this.note, words.join(" "));
    this.note.hidden = words.length === 0;
  }

  async download() {
    setText(this.status, "Reading…");
    try {
      const answer = await call(`sims/${this.known.simId}/kernels.csv`, { raw: true, seconds: 600 });
      save(await answer.blob(), `${this.known.simId}-kernels.csv`);
      setText(this.status, "");
    } catch (error) {
      setText(this.status, words(error));
    }
  }

  stop() {
    this.table.stop();
    this.chart.stop();
  }
}
