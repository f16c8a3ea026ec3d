// Tabs by the WAI-ARIA pattern: arrows move, the chosen one alone is in the tab order.

import { h } from "./dom.js";

let made = 0;

/**
 * @param tabs [{key, label, panel}]
 * @param onchoose called with the key
 */
export class Tabs {
  constructor(label, tabs, onchoose) {
    const own = (made += 1);
    this.onchoose = onchoose;
    this.tabs = tabs.map(({ key, label: text, panel }) => {
      const button = h("button", { type: "button", role: "tab", id: `tab-${own}-${key}`, "aria-controls": `panel-${own}-${key}`, onclick: () => this.choose(key), onkeydown: (event) => this.key(event) }, text);
      const place = h("div", { role: "tabpanel", id: `panel-${own}-${key}`, "aria-labelledby": `tab-${own}-${key}` }, panel);
      return { key, button, place };
    });
    this.element = h("div", {}, h("div", { role: "tablist", "aria-label": label }, this.tabs.map((tab) => tab.button)), this.tabs.map((tab) => tab.place));
  }

  choose(key, tell = true) {
    this.chosen = this.tabs.some((tab) => tab.key === key) ? key : this.tabs[0].key;
    for (const tab of this.tabs) {
      const is = tab.key === this.chosen;
      tab.button.setAttribute("aria-selected", String(is));
      tab.button.tabIndex = is ? 0 : -1;
      tab.place.hidden = !is;
    }
    if (tell) this.onchoose(this.chosen);
  }

  key(event) {
    const at = this.tabs.findIndex((tab) => tab.key === this.chosen);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: this.tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = this.tabs[(to + this.tabs.length) % this.tabs.length];
    this.choose(next.key);
    next.button.focus();
  }
}
