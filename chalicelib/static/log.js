// The log of a sim: only the rows in sight exist, so that a million lines scroll as ten do.

import { call } from "./api.js";
import { h, save, setText } from "./dom.js";
import { FINAL, ansi, bytes, count, counted, stripped, visible } from "./format.js";
import { words } from "./live.js";
import { LogModel } from "./logmodel.js";

const ROW = 18;
const SPARE = 12;
const LEAST = 240;
const TALLEST = 8_000_000;
/** px; browsers draw no element of more than some ten million. */
const LINE_MOST = 2000;
const TAIL = 2000;
const LINES_AT_ONCE = 5000;
const BEHIND_MOST = 20_000;
const HELD_MOST = 2_000_000;
const HELD_FOLLOWING = 100_000;
/** Lines; a tab that follows for days must not hold them all. */
const SEARCH_UNASKED = 64 * 1024 * 1024;
const SLICE_MS = 8;
const pause = () => new Promise((resolve) => { setTimeout(resolve); });

export class LogPanel {
  constructor(sim) {
    this.simId = sim.id;
    this.model = new LogModel();
    this.follow = true;
    this.hits = [];
    this.hit = -1;
    this.drawn = "";

    const button = (label, onclick, more = {}) => h("button", { type: "button", onclick, ...more }, label);
    this.followButton = button("Follow", () => this.setFollow(!this.follow), { "aria-pressed": "true", title: "Keep the newest lines in sight" });
    this.query = h("input", { type: "search", placeholder: "Find in log", "aria-label": "Find in log", autocomplete: "off", spellcheck: "false", oninput: () => this.searchSoon(), onkeydown: (event) => this.searchKey(event) });
    this.found = h("span", { class: "muted", role: "status" });
    this.whole = button("Search the whole log", () => { this.everything = true; this.search(); }, { hidden: true });
    this.jump = h("input", { type: "number", min: "0", "aria-label": "Chunk number to jump to", placeholder: "seq", onkeydown: (event) => { if (event.key === "Enter") this.jumpTo(Number(this.jump.value)); } });
    this.look = h("select", { "aria-label": "Terminal colours", onchange: () => this.draw(true) }, h("option", { value: "shown" }, "Colours"), h("option", { value: "stripped" }, "No colours"), h("option", { value: "raw" }, "Raw codes"));
    this.status = h("span", { class: "muted" });
    this.rows = h("div", { class: "log-rows" });
    this.size = h("div", { class: "log-size" }, this.rows);
    this.box = h("div", { class: "log", tabindex: "0", role: "region", "aria-label": "Log lines", onscroll: () => this.scrolled() }, this.size);
    this.none = h("p", { class: "empty", hidden: true });
    this.element = h(
      "div",
      {},
      h(
        "div",
        { class: "log-tools" },
        this.followButton,
        this.query,
        button("↑", () => this.step(-1), { "aria-label": "Match before", title: "Match before (Shift+Enter)" }),
        button("↓", () => this.step(1), { "aria-label": "Next match", title: "Next match (Enter)" }),
        this.found,
        this.whole,
        this.jump,
        button("Jump", () => this.jumpTo(Number(this.jump.value)), { title: "To a chunk by its seq" }),
        button("Start", () => this.jumpTo(0)),
        button("End", () => this.setFollow(true)),
        this.look,
        button("Download", () => this.download()),
        this.status,
      ),
      this.none,
      this.box,
    );
    this.resized = new ResizeObserver(() => {
      if (this.follow && this.begun) this.toEnd();
      else this.draw(true);
    });
    this.resized.observe(this.box);
  }

  // Reading.

  /** Read what is new since the last time. */
  async refresh(sim, signal) {
    this.signal = signal;
    this.log = sim.log;
    this.final = FINAL.has(sim.state);
    this.sayWhatIsThere(sim);
    if (!sim.log.chunks) return undefined;
    if (!this.begun) return this.tail(signal);
    await this.fill(signal);
    // Unless the reader jumped away from it, the range goes on to the log's end, however many turns that takes.
    return this.attached ? this.more(signal) : undefined;
  }

  /** Whether the range reaches the log's end. */
  atEnd() {
    return this.model.high >= this.log.next_seq;
  }

  page(from, limit, signal = this.signal) {
    return call(`sims/${this.simId}/logs?from_seq=${from}&limit=${Math.max(1, Math.min(1000, limit))}`, { signal });
  }

  async tail(signal = this.signal) {
    const page = await call(`sims/${this.simId}/logs?tail=${TAIL}`, { signal });
    if (this.stopped) return;
    this.model.clear(page.chunks[0]?.seq ?? 0);
    this.model.append(page.chunks, page.next_seq);
    this.begun = true;
    this.attached = true;
    // Its first chunk may be cut; it is read again before anything above it.
    this.cut = this.model.low > 0 || this.log.lines > this.model.lines;
    this.forgetHits();
    this.draw(true);
    if (this.follow) this.toEnd();
  }

  async more(signal) {
    while (!this.atEnd()) {
      if (!Number.isSafeInteger(this.log.next_seq)) return this.tail(signal);
      if (this.follow && !this.hits.length && this.behind() > BEHIND_MOST) return this.tail(signal);
      const { era } = this.model;
      const page = await this.page(this.model.high, 1000, signal);
      if (era !== this.model.era || !page.chunks.length) break;
      this.model.append(page.chunks, page.next_seq);
      this.trim();
      this.grown();
    }
    return undefined;
  }

  trim() {
    const most = this.follow && !this.query.value ? HELD_FOLLOWING : HELD_MOST;
    if (this.model.lines <= most) return;
    this.keepPlace(() => -this.model.trim(most / 2));
    this.cut = false;
    this.forgetHits();
  }

  behind() {
    return (this.log.next_seq - this.model.high) * (this.log.lines / Math.max(1, this.log.chunks));
  }

  /** Late chunks into gaps that were shown. */
  async fill(signal) {
    const filled = this.model.filled(this.log.missing);
    if (!filled.length) return;
    const { era } = this.model;
    for (const [first, last] of filled) {
      const chunks = [];
      for (let from = first; from <= last;) {
        const page = await this.page(from, last - from + 1, signal);
        const inside = page.chunks.filter((chunk) => chunk.seq <= last);
        chunks.push(...inside);
        if (!inside.length || inside.length < page.chunks.length || !Number.isSafeInteger(page.next_seq)) break;
        from = page.next_seq;
      }
      if (era !== this.model.era) return;
      this.keepPlace(() => this.model.insert(chunks, this.model.low));
      this.forgetHits();
    }
    this.grown();
  }

  /** Lines above the first that is held. */
  async earlier(target = null) {
    if (this.reading || (this.model.low <= 0 && !this.cut)) return;
    this.reading = true;
    try {
      const step = Math.max(1, Math.min(1000, Math.round(LINES_AT_ONCE / Math.max(1, this.log.lines / Math.max(1, this.log.chunks)))));
      let from = Math.max(0, target ?? this.model.low - step);
      const gap = this.log.missing.find(([first, last]) => first <= this.model.low - 1 && this.model.low - 1 <= last);
      if (gap) from = Math.max(0, Math.min(from, gap[0] - (target === null ? step : 0)));
      const end = this.cut ? this.model.low : this.model.low - 1;
      const { era } = this.model;
      const chunks = await this.range(from, end);
      if (era !== this.model.era) return;
      this.keepPlace(() => this.model.insert(chunks, from));
      this.cut = false;
      if (this.hits.length) await this.search(false);
    } catch (error) {
      setText(this.status, words(error));
    } finally {
      this.reading = false;
    }
    this.draw(true);
  }

  /** All chunks of [from, last], page after page. */
  async range(from, last, progress = () => {}) {
    const chunks = [];
    while (from <= last) {
      const page = await this.page(from, Math.min(1000, last - from + 1));
      const inside = page.chunks.filter((chunk) => chunk.seq <= last);
      chunks.push(...inside);
      if (!inside.length || inside.length < page.chunks.length || !Number.isSafeInteger(page.next_seq)) break;
      from = page.next_seq;
      progress(from);
    }
    return chunks;
  }

  async later() {
    // An attached range is carried on by each refresh.
    if (this.reading || this.attached || this.atEnd()) return;
    this.reading = true;
    try {
      const { era } = this.model;
      const page = await this.page(this.model.high, 200);
      if (era === this.model.era && page.chunks.length) this.model.append(page.chunks, page.next_seq);
      this.attached = this.atEnd();
    } catch (error) {
      setText(this.status, words(error));
    } finally {
      this.reading = false;
    }
    this.grown();
  }

  async jumpTo(seq) {
    if (!Number.isSafeInteger(seq) || seq < 0 || !this.log?.chunks) return;
    this.setFollow(false);
    try {
      if (seq < this.model.low || seq >= this.model.high || (this.cut && seq === this.model.low)) {
        const near = seq < this.model.low && this.model.low - seq <= 200;
        if (near) await this.earlier(seq);
        else {
          const from = Math.max(0, Math.min(seq, this.log.next_seq - 1) - 5);
          const page = await this.page(from, 200);
          this.model.clear(from);
          this.cut = false;
          this.model.append(page.chunks, page.next_seq);
          this.attached = this.atEnd();
          this.forgetHits();
        }
      }
    } catch (error) {
      setText(this.status, words(error));
      return;
    }
    this.draw(true);
    this.showRow(this.model.rowOf(seq), 0);
    this.box.focus({ preventScroll: true });
  }

  async download() {
    setText(this.status, "Reading the whole log…");
    try {
      const answer = await call(`sims/${this.simId}/logs`, { raw: true, headers: { Accept: "text/plain" }, seconds: 600 });
      save(await answer.blob(), `${this.simId}.log`);
      setText(this.status, "");
    } catch (error) {
      setText(this.status, words(error));
    }
  }

  // Scrolling.

  /** As tall as the window has room below, so that the newest line is in sight without scrolling the page. */
  fit() {
    const room = window.innerHeight - (this.box.getBoundingClientRect().top + window.scrollY) - 16;
    const height = `${Math.round(room >= LEAST ? room : Math.max(LEAST, window.innerHeight * 0.6))}px`;
    if (this.box.style.height !== height) this.box.style.height = height;
  }

  get height() {
    return Math.min(this.model.rows * ROW, TALLEST);
  }

  get inSight() {
    return Math.max(1, this.box.clientHeight / ROW);
  }

  /** Rows above the first in sight, a fraction. */
  get top() {
    const room = this.height - this.box.clientHeight;
    if (room <= 0) return 0;
    return (this.box.scrollTop / room) * (this.model.rows - this.inSight);
  }

  scrollToRow(row) {
    const most = this.model.rows - this.inSight;
    const room = this.height - this.box.clientHeight;
    this.size.style.height = `${this.height}px`;
    this.box.scrollTop = most > 0 ? (Math.min(row, most) / most) * room : 0;
    this.expected = this.box.scrollTop;
  }

  showRow(row, place = this.inSight / 3) {
    this.scrollToRow(Math.max(0, row - place));
    this.draw(true);
  }

  toEnd() {
    this.scrollToRow(this.model.rows);
    this.draw(true);
  }

  /** Change the model and keep the rows in sight where they are; `change` returns how many rows it added above. */
  keepPlace(change) {
    const top = this.top;
    const added = change();
    this.scrollToRow(top + added);
  }

  setFollow(follow) {
    this.follow = follow;
    this.followButton.setAttribute("aria-pressed", String(follow));
    if (!follow || !this.log?.chunks) return;
    if (this.atEnd()) this.toEnd();
    else this.tail().catch((error) => setText(this.status, words(error)));
  }

  scrolled() {
    const own = Math.abs(this.box.scrollTop - (this.expected ?? -9)) < 2;
    if (this.follow && !own && this.box.scrollTop < this.height - this.box.clientHeight - ROW) this.setFollow(false);
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => {
      this.waits = false;
      this.draw(false);
      if (this.top < 40 && this.log?.chunks && (this.model.low > 0 || this.cut) && !this.follow) this.earlier();
      if (this.top + this.inSight > this.model.rows - 40) this.later();
    });
  }

  /** After lines were added below. */
  grown() {
    if (this.follow) this.toEnd();
    else {
      const top = this.top;
      this.size.style.height = `${this.height}px`;
      if (this.height >= TALLEST) this.scrollToRow(top);
      this.draw(false);
    }
    if (this.hits.length || this.query.value) this.search(false);
  }

  // Drawing.

  sayWhatIsThere(sim) {
    const { log } = sim;
    const gaps = log.missing.length ? `, ${counted(log.missing.reduce((sum, [first, last]) => sum + last - first + 1, 0), "chunk")} missing` : "";
    setText(this.status, log.chunks ? `${counted(log.lines, "line")}, ${bytes(log.bytes)}${gaps}` : "");
    this.none.hidden = log.chunks > 0;
    this.box.hidden = log.chunks === 0;
    if (log.chunks) this.fit();
    if (!log.chunks) setText(this.none, FINAL.has(sim.state) ? "This sim ended without a line of log." : "No line yet. Lines appear here as the simulator sends them.");
  }

  draw(force) {
    const first = Math.max(0, Math.floor(this.top) - SPARE);
    const last = Math.min(this.model.rows, Math.ceil(this.top + this.inSight) + SPARE);
    const place = `${first}-${last}-${this.model.rows}-${this.hit}`;
    if (!force && place === this.drawn) return;
    this.drawn = place;
    this.size.style.height = `${this.height}px`;
    const rows = [];
    for (let row = first; row < last; row += 1) rows.push(this.row(row));
    this.rows.replaceChildren(...rows);
    // The fraction of a row that is above the edge, so that slow scrolling is smooth.
    const offset = this.box.scrollTop - (this.top - first) * ROW;
    this.rows.style.transform = `translateY(${Math.max(0, offset)}px)`;
  }

  row(row) {
    const { seq, text, gap, first } = this.model.at(row);
    if (gap) {
      const [from, to] = gap;
      const what = from === to ? `Chunk ${from} has` : `Chunks ${from} to ${to} have`;
      return h("div", { class: "log-row gap" }, h("span", { class: "seq" }, "gap"), h("span", { class: "line" }, `${what} not arrived${this.final ? "; the sim has ended" : " yet"}`));
    }
    const kind = this.hitRows?.has(row) ? (this.hits[this.hit] === row ? " hit now" : " hit") : "";
    const line = h("span", { class: "line" });
    const long = text.length > LINE_MOST;
    const shown = long ? text.slice(0, LINE_MOST) : text;
    if (this.look.value === "shown") {
      for (const [piece, classes] of ansi(shown)) line.append(classes ? h("span", { class: classes }, visible(piece)) : visible(piece));
    } else line.append(visible(this.look.value === "stripped" ? stripped(shown) : shown));
    return h(
      "div",
      { class: `log-row${kind}` },
      h("span", { class: "seq", title: `chunk ${seq}` }, first ? String(seq) : ""),
      line,
      long ? h("button", { type: "button", onclick: () => this.showWhole(text) }, `+ ${counted(text.length - LINE_MOST, "character")}`) : null,
    );
  }

  showWhole(text) {
    const dialog = h("dialog", { class: "wide", "aria-label": "Whole line", onclose: () => dialog.remove() }, h("pre", { tabindex: "0" }, visible(stripped(text))), h("p", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
    document.body.append(dialog);
    dialog.showModal();
  }

  // Searching.

  forgetHits() {
    this.hits = [];
    this.hitRows = new Set();
    this.hit = -1;
    this.searchId = (this.searchId ?? 0) + 1;
    if (this.query.value) this.searchSoon(false);
  }

  searchSoon(move = true) {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.search(move), 250);
  }

  searchKey(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    }
    if (event.key === "Escape" && this.query.value) {
      this.query.value = "";
      this.search();
    }
  }

  /** Find the rows that hold the text; `move` goes to the match nearest to what is in sight. */
  async search(move = true) {
    const id = (this.searchId = (this.searchId ?? 0) + 1);
    const wanted = this.query.value.toLowerCase();
    const model = this.model;
    if (!wanted) {
      this.hits = [];
      this.hitRows = new Set();
      this.hit = -1;
      setText(this.found, "");
      this.whole.hidden = true;
      this.draw(true);
      return;
    }
    if (move && !(await this.loadAll(id))) return;
    const at = this.hit >= 0 ? this.hits[this.hit] : null;
    const hits = [];
    let started = performance.now();
    for (const chunk of [...model.chunks]) {
      const first = chunk.row + (chunk.gap ? 1 : 0);
      for (let i = 0; i < chunk.lines.length; i += 1) {
        const line = chunk.lines[i];
        if (line.toLowerCase().includes(wanted)) hits.push(first + i);
        if ((i & 255) === 255 && performance.now() - started > SLICE_MS) {
          await pause();
          if (id !== this.searchId) return;
          started = performance.now();
        }
      }
      if (performance.now() - started > SLICE_MS) {
        await pause();
        if (id !== this.searchId) return;
        started = performance.now();
      }
    }
    this.hits = hits;
    this.hitRows = new Set(hits);
    const from = Math.floor(this.top);
    if (move) {
      const next = hits.findIndex((row) => row >= from);
      this.hit = next >= 0 ? next : hits.length - 1;
      if (this.hit >= 0) this.goToHit();
    } else if (at !== null) this.hit = hits.indexOf(at);
    this.sayHits();
    this.draw(true);
  }

  /** Before a search, read what is not held, unless that is very much; false when another search has begun. */
  async loadAll(id) {
    const partly = this.log && (this.model.low > 0 || this.cut || !this.atEnd());
    this.whole.hidden = !partly || this.everything || this.log.bytes <= SEARCH_UNASKED;
    if (!partly || (this.log.bytes > SEARCH_UNASKED && !this.everything)) return true;
    while (this.reading) await pause();
    this.reading = true;
    try {
      const end = this.cut ? this.model.low : this.model.low - 1;
      const said = (from) => setText(this.found, `Reading, ${Math.round((100 * from) / Math.max(1, this.log.next_seq))} %`);
      const { era } = this.model;
      const chunks = await this.range(0, end, said);
      if (id !== this.searchId || era !== this.model.era) return false;
      this.keepPlace(() => this.model.insert(chunks, 0));
      this.cut = false;
      await this.more(this.signal);
      this.attached = this.atEnd();
    } catch (error) {
      setText(this.found, words(error));
      return false;
    } finally {
      this.reading = false;
    }
    return id === this.searchId;
  }

  sayHits() {
    const all = this.model.low <= 0 && !this.cut && this.atEnd();
    const where = all ? "" : " in the lines loaded";
    setText(this.found, this.hits.length ? `${this.hit >= 0 ? `${count(this.hit + 1)} of ` : ""}${count(this.hits.length)}${where}` : `No match${where}`);
  }

  step(by) {
    if (!this.hits.length) return;
    this.hit = (this.hit + by + this.hits.length) % this.hits.length;
    this.goToHit();
    this.sayHits();
  }

  goToHit() {
    if (this.follow) {
      this.follow = false;
      this.followButton.setAttribute("aria-pressed", "false");
    }
    this.showRow(this.hits[this.hit]);
  }

  stop() {
    this.stopped = true;
    this.searchId = -1;
    clearTimeout(this.typing);
    this.resized.disconnect();
  }
}
