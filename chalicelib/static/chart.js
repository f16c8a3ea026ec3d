// Charts by uPlot, which is fetched only where one is drawn.

import { h, setText } from "./dom.js";
import { short } from "./format.js";

const HEIGHT = 260;
const COLOURS = ["--running", "--lost", "--cancelled", "--succeeded", "--failed", "--queued"];
const TICKS = 12;
const TILT = 40;
const TILTED_SIZE = 95;
/** Degrees and px, for texts of 16 characters. */
const DASHES = [[], [8, 4], [2, 3], [12, 3, 2, 3]];

const css = (name) => {
  // light-dark() is only resolved in a property that is a colour.
  const probe = h("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
};

/**
 * A chart that follows the width of its place and the colours of the page.
 * Data: {x: number[], series: [{label, values, scale?, points?, format?}], xLabel, xText?(value), tilted?}
 */
export class Chart {
  constructor(label) {
    this.host = h("div", { class: "chart-host" });
    this.words = h("p", { class: "muted" });
    this.element = h("figure", { class: "chart", "aria-label": label }, this.host, this.words);
    this.label = label;
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.repaint = () => this.make();
    this.dark.addEventListener("change", this.repaint);
    this.sized = new ResizeObserver(() => {
      const width = this.host.clientWidth;
      if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    });
    this.sized.observe(this.host);
  }

  /** Draw; `words` say in short what the chart shows, for those who do not see it. */
  async set(data, words) {
    const shape = JSON.stringify([data.xLabel, data.kind, data.tilted, data.series.map((one) => [one.label, one.axis, one.scale, one.points])]);
    this.data = data;
    setText(this.words, words);
    this.Plot ??= (await import("./uplot-1.6.32.js")).default;
    if (this.stopped) return;
    if (this.plot && shape === this.shape) this.plot.setData(this.columns());
    else {
      this.shape = shape;
      this.make();
    }
  }

  columns() {
    return [this.data.x, ...this.data.series.map((one) => one.values)];
  }

  make() {
    if (!this.Plot || !this.data) return;
    this.plot?.destroy();
    const [text, line] = [css("--text"), css("--line")];
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
    const scales = [...new Set(this.data.series.map((one) => one.scale ?? "y"))];
    const xText = this.data.xText;
    this.plot = new this.Plot({
      width: this.host.clientWidth || 600,
      height: HEIGHT,
      scales: {
        x: { time: false, range: (u, min, max) => this.xRange(min, max) },
        ...Object.fromEntries(scales.map((name) => [name, { range: (u, min, max) => (min === null ? [0, 1] : [Math.min(0, min), max * 1.05 || 1]) }])),
      },
      cursor: { drag: { x: this.data.kind !== "points", y: false } },
      axes: [
        { ...axis, label: this.data.xLabel, labelSize: 18, ...(this.data.tilted ? { rotate: TILT, size: TILTED_SIZE } : {}), ...(xText ? { values: () => this.plot ? this.splits().map(xText) : [], splits: () => this.splits() } : { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 1e4, 2e4, 5e4, 1e5, 1e6] }) },
        ...scales.map((scale, i) => ({
          ...axis,
          scale,
          side: i === 0 ? 3 : 1,
          size: 64,
          label: this.data.series.filter((one) => (one.scale ?? "y") === scale).map((one) => one.axis ?? one.label)[0],
          labelSize: 18,
          grid: i === 0 ? axis.grid : { show: false },
          values: (u, values) => values.map((value) => (this.data.series.find((one) => (one.scale ?? "y") === scale).format ?? short)(value)),
        })),
      ],
      series: [
        { label: this.data.xLabel, value: (u, value) => (value === null ? "–" : xText ? xText(value) : String(value)) },
        ...this.data.series.map((one, i) => ({
          label: one.label,
          scale: one.scale ?? "y",
          stroke: css(COLOURS[i % COLOURS.length]),
          width: one.points ? 0 : 2,
          dash: DASHES[i % DASHES.length],
          spanGaps: false,
          paths: one.points ? () => null : undefined,
          points: one.points ? { show: true, size: 8, fill: css(COLOURS[i % COLOURS.length]) } : { show: one.values.length < 60 },
          value: (u, value) => (value === null || value === undefined ? "–" : (one.format ?? short)(value)),
        })),
      ],
    }, this.columns(), this.host);
    const canvas = this.host.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${this.label}. ${this.words.textContent}`);
  }

  /** How many characters of 12 px each of so many ticks has room for when they lie flat. */
  fits(ticks) {
    return Math.max(6, Math.floor(((this.host.clientWidth || 600) - 110) / Math.min(ticks, TICKS) / 7.5));
  }

  /** Left and right end of the x axis; `min` and `max` are those of the data or of what was dragged over. */
  xRange(min, max) {
    const [only, another] = new Set(this.data.x);
    // uPlot makes 0 to 100 of one place alone.
    if (another === undefined) return [(only ?? 0) - 0.5, (only ?? 0) + 0.5];
    return this.data.kind === "points" ? [min - 0.5, max + 0.5] : [min, max];
  }

  /** Where a chart of categories has its ticks: at each, or as many as fit. */
  splits() {
    const all = [...new Set(this.data.x)];
    const step = Math.ceil(all.length / TICKS);
    return all.filter((_, i) => i % step === 0);
  }

  stop() {
    this.stopped = true;
    this.plot?.destroy();
    this.sized.disconnect();
    this.dark.removeEventListener("change", this.repaint);
  }
}
