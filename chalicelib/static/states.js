// How states look, the same everywhere.

import { h, setText } from "./dom.js";
import { STATES, count, mark } from "./format.js";

/** A sim's state as sign, word and colour. Give it again to change it. */
export function badge(state, old = null) {
  const element = old ?? h("span", {});
  if (element.dataset.state !== state) {
    element.dataset.state = state;
    element.className = `badge s-${state}`;
    element.replaceChildren(h("span", { "aria-hidden": "true" }, mark(state)), h("span", { class: "word" }, ` ${state}`));
  }
  return element;
}

const inWords = (counts) => STATES.filter((state) => counts[state]).map((state) => `${count(counts[state])} ${state}`).join(", ") || "no sims";

/** Counts of states as a bar and in words. */
export class Bar {
  constructor() {
    this.parts = STATES.map((state) => h("span", { class: `part s-${state}` }));
    this.bar = h("div", { class: "bar", "aria-hidden": "true" }, this.parts);
    this.words = h("span", { class: "words" });
    // In a table on a phone there is no room for words.
    this.marks = h("span", { class: "marks", role: "img" });
    this.text = h("span", { class: "counts" }, this.words, this.marks);
    this.element = h("div", { class: "bar-box" }, this.bar, this.text);
  }

  set(counts) {
    STATES.forEach((state, i) => {
      this.parts[i].style.flexGrow = counts[state];
      this.parts[i].hidden = !counts[state];
    });
    setText(this.words, inWords(counts));
    setText(this.marks, STATES.filter((state) => counts[state]).map((state) => `${mark(state)}\u00a0${count(counts[state])}`).join("\u2002"));
    this.marks.setAttribute("aria-label", inWords(counts));
    return this;
  }
}
