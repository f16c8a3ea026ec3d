// Keeping a view fresh: one load after another, slower in a hidden tab and while the server does not answer.

import { Refused, Unreachable } from "./api.js";
import { h, setText } from "./dom.js";
import { localClock } from "./format.js";

const SECONDS = 2;
const HIDDEN_SECONDS = 30;
const IDLE_SECONDS = 15;
const MOST_SECONDS = 20;

const pulse = document.getElementById("pulse");
const banner = document.getElementById("banner");

/** Words for an error, for the reader. */
export function words(error) {
  if (error instanceof Unreachable) return `The server does not answer (${error.message}).`;
  if (error instanceof Refused && error.status === 503) return `The server is busy (${error.message}).`;
  if (error instanceof Refused) return `The server refused: ${error.message}.`;
  return `This page failed: ${error.message}`;
}

/** Whether waiting may help. */
const passing = (error) => error instanceof Unreachable || (error instanceof Refused && (error.status >= 500 || error.status === 429 || error.status === 408));

/** Calls `load(signal)` again and again until stopped; what it returns as false is at rest and asked for less often. */
export class Live {
  constructor(load) {
    this.load = load;
    this.failures = 0;
    this.controller = new AbortController();
    this.timer = null;
    this.busy = false;
    this.fresh = null;
    this.onVisible = () => { if (!document.hidden) this.now(); };
    document.addEventListener("visibilitychange", this.onVisible);
    setText(pulse, "");
    this.now();
  }

  /** Load at once. */
  now() {
    clearTimeout(this.timer);
    if (this.busy) this.again = true;
    else this.turn();
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    this.controller.abort();
    document.removeEventListener("visibilitychange", this.onVisible);
    banner.replaceChildren();
    setText(pulse, "");
  }

  async turn() {
    this.busy = true;
    this.again = false;
    let wait = SECONDS;
    const begun = performance.now();
    try {
      const moving = await this.load(this.controller.signal);
      if (this.stopped) return;
      // A server that takes long to answer is not asked the more.
      wait = Math.max(wait, (2 * (performance.now() - begun)) / 1000);
      if (moving === false) wait = IDLE_SECONDS;
      this.recovered();
    } catch (error) {
      if (this.stopped || error.status === 401) return;
      if (!passing(error)) console.error(error);
      this.failures += 1;
      wait = passing(error) ? Math.max(error.retryAfter ?? 0, Math.min(SECONDS * 2 ** (this.failures - 1), MOST_SECONDS)) : MOST_SECONDS;
      this.failed(error, wait);
    } finally {
      this.busy = false;
    }
    if (document.hidden) wait = Math.max(wait, HIDDEN_SECONDS);
    if (this.again) wait = 0;
    this.timer = setTimeout(() => this.turn(), wait * 1000);
  }

  recovered() {
    this.failures = 0;
    this.fresh = new Date();
    if (banner.childElementCount) banner.replaceChildren();
    document.body.classList.remove("stale");
    setText(pulse, "Live");
    pulse.title = `Last answer at ${localClock(this.fresh)}`;
  }

  failed(error, wait) {
    document.body.classList.add("stale");
    setText(pulse, "Not live");
    const since = this.fresh ? ` What you see is of ${localClock(this.fresh)}.` : "";
    const text = `${words(error)}${since} Trying again every ${Math.round(wait)} s.`;
    const shown = banner.querySelector("span");
    if (shown) setText(shown, text);
    else banner.replaceChildren(h("p", { class: "banner" }, h("span", {}, text), " ", h("button", { type: "button", onclick: () => this.now() }, "Try now")));
  }
}

