// Output files of a sim.

import { call, path } from "./api.js";
import { foreign, h, save, setText } from "./dom.js";
import { bytes, counted, time } from "./format.js";
import { words } from "./live.js";
import { Table } from "./table.js";

export class FilesPanel {
  constructor(sim) {
    this.simId = sim.id;
    this.status = h("p", { class: "muted", role: "status" });
    this.table = new Table({
      label: "Files",
      id: (file) => file.name,
      sorted: { key: "name", down: false },
      empty: "No file yet. A simulator uploads its output files before its last heartbeat.",
      columns: [
        { key: "name", label: "File", sort: (file) => file.name, fill: (cell, file) => { if (!cell.firstChild) { cell.title = file.name; cell.append(foreign(file.name)); } } },
        { key: "size", label: "Size", number: true, sort: (file) => file.size, fill: (cell, file) => { setText(cell, bytes(file.size)); cell.title = counted(file.size, "byte"); } },
        { key: "type", label: "Type", narrow: false, sort: (file) => file.content_type, text: (file) => file.content_type },
        { key: "created", label: "Stored", narrow: false, sort: (file) => file.created_at, fill: (cell, file) => { if (cell.at !== file.created_at) { cell.at = file.created_at; cell.replaceChildren(time(file.created_at)); } } },
        { key: "get", label: "Download", fill: (cell, file) => { if (!cell.firstChild) cell.append(h("button", { type: "button", "aria-label": `Download ${file.name}`, onclick: () => this.download(file.name) }, "Download")); } },
      ],
    });
    this.element = h("div", {}, this.status, this.table.element);
  }

  async refresh(sim, signal) {
    // A replaced file of the same size changes neither count nor bytes, so the list is also read again on the way to a final state.
    const now = JSON.stringify([sim.files, sim.state]);
    if (this.seen === now) return;
    this.table.set(sim.files.count ? await call(`sims/${this.simId}/files`, { signal }) : []);
    this.seen = now;
  }

  async download(name) {
    setText(this.status, `Reading ${name}…`);
    try {
      const answer = await call(`sims/${this.simId}/files/${path(name)}`, { raw: true, seconds: 600 });
      save(await answer.blob(), name);
      setText(this.status, "");
    } catch (error) {
      setText(this.status, words(error));
    }
  }

  stop() {
    this.table.stop();
  }
}
