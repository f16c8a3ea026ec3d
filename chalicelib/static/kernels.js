// Kernels of a sim: reading them page by page, as a table and as a chart.

import { call } from "./api.js";
import { Chart } from "./chart.js";
import { foreign, h, save, setText } from "./dom.js";
import { count, cut, decimal } from "./format.js";
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
}

const nameOf = (kernel) => kernel.name ?? "(unknown)";

export const columns = [
  { key: "index", label: "#", number: true, text: (k) => String(k.index), sort: (k) => k.index },
  {
    key: "name",
    label: "Kernel",
    sort: nameOf,
    fill: (cell, k) => {
      if (cell.kernel === k.name && cell.firstChild) return;
      cell.kernel = k.name;
      cell.title = cut(nameOf(k), 1000);
      cell.replaceChildren(foreign(cut(nameOf(k))), k.finished ? "" : h("span", { class: "muted" }, " (cut short)"));
    },
  },
  { key: "uid", label: "Launch", number: true, narrow: false, text: (k) => count(k.launch_uid), sort: (k) => k.launch_uid, title: "Launch uid" },
  { key: "stream", label: "Stream", number: true, narrow: false, text: (k) => count(k.stream_id), sort: (k) => k.stream_id },
  { key: "cycles", label: "Cycles", number: true, text: (k) => count(k.sim_cycles), sort: (k) => k.sim_cycles },
  { key: "insns", label: "Instructions", number: true, narrow: false, text: (k) => count(k.sim_insns), sort: (k) => k.sim_insns },
  { key: "ipc", label: "IPC", number: true, text: (k) => decimal(k.ipc), sort: (k) => k.ipc },
  { key: "occupancy", label: "Occupancy %", number: true, narrow: false, text: (k) => decimal(k.occupancy), sort: (k) => k.occupancy },
  { key: "l2", label: "L2 GB/s", number: true, narrow: false, text: (k) => decimal(k.l2_bw_gbps), sort: (k) => k.l2_bw_gbps },
  { key: "total", label: "Total cycles", number: true, narrow: false, text: (k) => count(k.tot_sim_cycles), sort: (k) => k.tot_sim_cycles, title: "Running total after this kernel" },
];

export class KernelsPanel {
  constructor(sim) {
    this.known = new Kernels(sim.id);
    this.table = new Table({ label: "Kernels", id: (kernel) => kernel.index, columns, sorted: { key: "index", down: false }, height: "60vh", empty: "No kernel has finished yet. They are read from the log as it comes." });
    this.chart = new Chart("IPC and cycles along the run");
    this.status = h("span", { class: "muted", role: "status" });
    this.csv = h("button", { type: "button", onclick: () => this.download() }, "All statistics as CSV");
    this.element = h("div", {}, h("p", { class: "actions" }, this.csv, this.status), this.chart.element, this.table.element);
  }

  async refresh(sim, signal) {
    if (this.seen === sim.kernels && this.known.complete && sim.state === this.state) return;
    await this.known.read(signal, () => this.draw());
    this.seen = sim.kernels;
    this.state = sim.state;
  }

  draw() {
    const list = this.known.list;
    this.table.set(list);
    this.chart.element.hidden = list.length === 0;
    this.csv.disabled = list.length === 0;
    setText(this.status, list.length ? `${count(list.length)} kernels` : "");
    if (!list.length) return;
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
      `${count(list.length)} kernels, ${count(last.tot_sim_cycles)} cycles in all, IPC ${decimal(last.tot_ipc)} over the whole run.`,
    );
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
