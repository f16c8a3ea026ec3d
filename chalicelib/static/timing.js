// Step timing: what was simulated against what was measured, and how much of it the simulation covers.

import { Refused, call } from "./api.js";
import { Chart } from "./chart.js";
import { command, foreign, h } from "./dom.js";
import { count, counted, cut, id, ns, percent } from "./format.js";
import { Table } from "./table.js";

const object = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});
const list = (value) => (Array.isArray(value) ? value.filter((one) => one && typeof one === "object") : []);
const number = (value) => (typeof value === "number" ? value : null);
const keyOf = (step) => JSON.stringify([step.repeat, step.kind, step.index]);
const LABELS = { wall_ns: "Wall", gpu_busy_ns: "GPU busy", covered_gpu_ns: "Covered kernels", untraced_wall_ns: "Wall without profiler", ttft_ns: "Time to first token", tpot_ns: "Time per token" };

function plain(label, heads, rows) {
  return h(
    "div",
    { class: "table", tabindex: "0", role: "region", "aria-label": label },
    h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, heads.map((head, i) => h("th", { scope: "col", class: i ? "number" : "" }, head)))), h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, i) => h("td", { class: i ? "number" : "" }, cell)))))),
  );
}

function errorRows(groups) {
  return groups.flatMap(([of, stats]) => Object.entries(object(stats))
    .filter(([name, one]) => LABELS[name] && typeof object(one).count === "number")
    .map(([name, one]) => [`${of}${LABELS[name]}`, count(one.count), percent(number(one.mean_error_pct), true), percent(number(one.mean_abs_error_pct)), percent(number(one.p50_abs_error_pct)), percent(number(one.p95_abs_error_pct)), ns(number(one.mean_abs_error))]));
}

export class TimingPanel {
  constructor(sim) {
    this.simId = sim.id;
    this.chart = new Chart("Wall time of each step, simulated and measured");
    this.steps = new Table({
      label: "Steps",
      id: (step) => step.key,
      height: "50vh",
      empty: "The timeline has no steps.",
      columns: [
        { key: "kind", label: "Step", sort: (s) => `${s.kind} ${s.index}`, fill: (cell, s) => { cell.replaceChildren(foreign(cut(`${s.kind} ${s.index}`))); } },
        { key: "repeat", label: "Repeat", number: true, narrow: false, text: (s) => id(s.repeat), sort: (s) => s.repeat },
        { key: "wall", label: "Simulated wall", number: true, text: (s) => ns(s.wall), sort: (s) => s.wall },
        { key: "measured", label: "Measured wall", number: true, text: (s) => ns(s.measured), sort: (s) => s.measured },
        { key: "error", label: "Error", number: true, text: (s) => percent(s.error, true), sort: (s) => s.error },
        { key: "busy", label: "Simulated busy", number: true, narrow: false, text: (s) => ns(s.busy), sort: (s) => s.busy },
        { key: "measuredBusy", label: "Measured busy", number: true, narrow: false, text: (s) => ns(s.measuredBusy), sort: (s) => s.measuredBusy },
        { key: "coverage", label: "GPU time covered", number: true, narrow: false, text: (s) => percent(s.coverage), sort: (s) => s.coverage },
      ],
    });
    this.facts = h("dl", { class: "facts" });
    this.summary = h("div");
    // A prefill takes many times as long as a decode step, which nobody could see beside it.
    this.kinds = h("select", { id: "timing-kind", onchange: () => { this.kind = this.kinds.value; this.drawChart(); } });
    this.none = h(
      "div",
      { class: "empty" },
      h("p", {}, "This sim has no step timing. ", h("code", {}, "cascade worker"), " sends it for a trace that has real_timeline.json; by hand it is made and sent so, where CASCADE_URL and CASCADE_TOKEN are set:"),
      command(`cascade simulate --timeline real_timeline.json --sim ${sim.id} -o simulated_timeline.json\ncascade compare simulated_timeline.json real_timeline.json -o compare.json\ncascade timeline send ${sim.id} --simulated simulated_timeline.json --compare compare.json`),
    );
    this.picture = h("div", {}, h("div", { class: "filters" }, h("label", {}, "Show ", this.kinds)), this.chart.element);
    this.full = h("div", { hidden: true }, this.facts, this.picture, this.summary, h("h2", {}, "Steps"), this.steps.element);
    this.element = h("div", {}, this.none, this.full);
  }

  async refresh(sim, signal) {
    this.none.hidden = sim.step_timeline;
    this.full.hidden = !sim.step_timeline;
    // An upload may replace another; nothing but a look tells.
    const wanted = sim.step_timeline && (!this.read || sim.state !== this.state);
    if (!wanted) return;
    try {
      this.draw(await call(`sims/${this.simId}/step-timeline`, { signal }));
      this.read = true;
      this.state = sim.state;
    } catch (error) {
      if (!(error instanceof Refused && error.status === 404)) throw error;
    }
  }

  draw({ simulated, compare }) {
    const coverage = object(object(object(simulated.summary).simulation).coverage);
    const covered = new Map(list(coverage.steps).map((step) => [keyOf(step), step]));
    const compared = new Map(list(object(compare).steps).map((step) => [keyOf(step), step]));
    const steps = list(simulated.steps).map((step, position) => {
      const against = object(compared.get(keyOf(step)));
      const wall = object(against.wall_ns);
      const measured = number(wall.real) ?? number(step.measured_wall_ns);
      return {
        key: position,
        kind: String(step.kind ?? "step"),
        index: number(step.index) ?? position,
        repeat: number(step.repeat),
        wall: number(step.wall_ns),
        measured,
        error: number(wall.error_pct) ?? (measured ? (100 * (step.wall_ns - measured)) / measured : null),
        busy: number(step.gpu_busy_ns),
        measuredBusy: number(object(against.gpu_busy_ns).real) ?? number(step.measured_gpu_busy_ns),
        coverage: ((value) => (value === null ? null : 100 * value))(number(object(covered.get(keyOf(step))).gpu_time_fraction)),
      };
    });
    const kinds = Object.entries(object(object(simulated.summary).per_kind)).map(([kind, one]) => [kind, count(number(one.steps)), ns(number(object(one.wall_ns).mean)), ns(number(object(one.wall_ns).p95)), ns(number(object(one.gpu_busy_ns).mean)), percent(number(one.gpu_busy_fraction) === null ? null : 100 * one.gpu_busy_fraction)]);
    const errors = object(object(compare).summary);
    const rows = errorRows([["", errors], ...Object.entries(object(errors.per_kind)).map(([kind, stats]) => [`${kind}: `, stats]), ["requests: ", errors.requests]]);
    const fact = (name, text) => h("div", {}, h("dt", {}, name), h("dd", {}, text));
    this.facts.replaceChildren(
      fact("Steps", count(steps.length)),
      fact("Kernels simulated", `${count(number(coverage.simulated_kernels))} of ${count(number(coverage.kernels))}`),
      fact("GPU time covered", number(coverage.gpu_time_fraction) === null ? "–" : percent(100 * coverage.gpu_time_fraction)),
      fact("Not modelled", ns(number(coverage.unmodeled_gpu_ns))),
      fact("Host model", String(object(object(simulated.summary).simulation).host_model ?? "–")),
    );
    this.summary.replaceChildren(
      ...(rows.length ? [h("h2", {}, "Errors, simulated against measured"), plain("Errors", ["Of", "Count", "Mean", "Mean absolute", "Median absolute", "95 % absolute", "Mean absolute, time"], rows)] : [h("p", { class: "muted" }, "No comparison was sent, so errors are against the walls that the simulated timeline carries.")]),
      ...(kinds.length ? [h("h2", {}, "Kinds of step, simulated"), plain("Kinds of step", ["Kind", "Steps", "Wall, mean", "Wall, 95 %", "Busy, mean", "Busy share"], kinds)] : []),
    );
    this.steps.set(steps);
    this.drawn = steps;
    const counts = new Map();
    for (const { kind } of steps) counts.set(kind, (counts.get(kind) ?? 0) + 1);
    const all = ["", `all ${counted(steps.length, "step")}`];
    const choices = [...[...counts].map(([kind, n]) => [kind, `${cut(kind, 40)}, ${counted(n, "step")}`]), ...(counts.size > 1 ? [all] : [])];
    this.kinds.replaceChildren(...choices.map(([value, text]) => h("option", { value }, text)));
    if (!choices.some(([value]) => value === this.kind)) this.kind = [...counts].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "";
    this.kinds.value = this.kind;
    this.picture.hidden = steps.length === 0;
    if (steps.length) this.drawChart();
  }

  drawChart() {
    const steps = this.kind === "" ? this.drawn : this.drawn.filter((step) => step.kind === this.kind);
    const total = (name) => ns(steps.reduce((sum, step) => sum + (step[name] ?? 0), 0));
    // By the step's own number where that rises; with repeats it does not.
    const rises = steps.every((step, i) => i === 0 || step.index > steps[i - 1].index);
    this.chart.set(
      { kind: "line", xLabel: "Step", x: steps.map((step, i) => (rises ? step.index : i)), series: [{ label: "Simulated", axis: "Wall", values: steps.map((s) => s.wall), format: ns }, { label: "Measured", values: steps.map((s) => s.measured), format: ns }] },
      `${counted(steps.length, this.kind === "" ? "step" : `${cut(this.kind, 40)} step`)}; simulated ${total("wall")} in all, measured ${total("measured")}.`,
    );
  }

  stop() {
    this.steps.stop();
    this.chart.stop();
  }
}
