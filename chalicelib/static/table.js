// A table that draws only the rows in sight, so that ten thousand are as quick as ten.

import { foreign, h, setText } from "./dom.js";

const ROW = 34;
const SPARE = 8;
const collator = new Intl.Collator(undefined, { numeric: true });

function order(a, b) {
  if (a === b) return 0;
  // What is not there comes last, whichever the direction.
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === "string" || typeof b === "string") return collator.compare(a, b);
  return a - b;
}

const looks = (column) => [column.number && "number", column.narrow === false && "wide-only", column.rest && "rest"].filter(Boolean).join(" ");

/** Change a row's cells from those of some columns to those of others. */
function replace(row, before, cells, columns, make) {
  const kept = new Map(before.map((column, i) => [column, cells[i]]));
  for (const [column, cell] of kept) if (!columns.includes(column)) cell.remove();
  let last = null;
  return columns.map((column) => {
    const cell = kept.get(column) ?? make(column);
    if (!kept.has(column)) {
      if (last) last.after(cell);
      else row.prepend(cell);
    }
    last = cell;
    return cell;
  });
}

/**
 * @param options.columns [{key, label, number?, text(row) | fill(cell, row), sort?(row), ticks?, narrow?, title?}]
 *   `text` gives a cell's text; `fill` changes the cell itself and is called again for the same one. `narrow: false`
 *   leaves the column out on a phone, `rest: true` gives it what width the others leave.
 * @param options.id a row's key
 * @param options.label name for screen readers
 * @param options.sorted {key, down}
 * @param options.onsort called with it when it changes
 */
export class Table {
  constructor({ columns, id, label, sorted = null, onsort = () => {}, empty = "Nothing here.", height = "68vh" }) {
    Object.assign(this, { columns, id, sorted, onsort, rows: [], shown: new Map(), off: new Set() });
    this.heads = columns.map((column) => this.head(column));
    this.headRow = h("tr", { "aria-rowindex": "1" }, this.heads);
    this.above = h("tr", { "aria-hidden": "true", class: "space" }, h("td", { colspan: columns.length }));
    this.below = h("tr", { "aria-hidden": "true", class: "space" }, h("td", { colspan: columns.length }));
    this.body = h("tbody", {}, this.above, this.below);
    this.table = h("table", { "aria-label": label }, h("thead", {}, this.headRow), this.body);
    this.box = h("div", { class: "table", tabindex: "0", role: "region", "aria-label": label, onscroll: () => this.soon() }, this.table);
    this.box.style.maxHeight = height;
    this.none = h("p", { class: "empty", hidden: true }, empty);
    this.element = h("div", {}, this.box, this.none);
    this.resized = new ResizeObserver(() => this.soon());
    this.resized.observe(this.box);
  }

  head(column) {
    const sort = column.sort && h("button", { type: "button", class: "sort", onclick: () => this.sortBy(column) }, foreign(column.label));
    return h("th", { scope: "col", class: looks(column), hidden: this.off.has(column.key), title: column.title }, sort || foreign(column.label));
  }

  cell(column) {
    return h("td", { class: looks(column), hidden: this.off.has(column.key) });
  }

  /** Show these columns from now on. The elements of those that stay are left where they are, and with them the focus. */
  setColumns(columns) {
    const before = this.columns;
    this.columns = columns;
    this.heads = replace(this.headRow, before, this.heads, columns, (column) => this.head(column));
    for (const entry of this.shown.values()) entry.cells = replace(entry.element, before, entry.cells, columns, (column) => this.cell(column));
    for (const space of [this.above, this.below]) space.firstChild.colSpan = columns.length;
    if (this.given) this.set(this.given);
  }

  /** Show a column, or leave it out while it has nothing to say. */
  show(key, wanted) {
    if (this.off.has(key) !== wanted) return;
    if (wanted) this.off.delete(key);
    else this.off.add(key);
    const i = this.columns.findIndex((column) => column.key === key);
    for (const cells of [this.heads, ...[...this.shown.values()].map((entry) => entry.cells)]) cells[i].hidden = !wanted;
  }

  sortBy(column) {
    const again = this.sorted?.key === column.key;
    // Numbers are wanted largest first, words from A.
    this.sorted = { key: column.key, down: again ? !this.sorted.down : Boolean(column.number) };
    this.onsort(this.sorted);
    this.set(this.given);
  }

  /** Show these rows. */
  set(rows) {
    this.given = rows;
    const column = this.sorted && this.columns.find((one) => one.key === this.sorted.key);
    if (column) {
      const keys = new Map(rows.map((row) => [row, column.sort(row)]));
      const sign = this.sorted.down ? -1 : 1;
      const missing = (key) => key === null || key === undefined;
      rows = [...rows].sort((a, b) => {
        const [x, y] = [keys.get(a), keys.get(b)];
        return order(x, y) * (missing(x) || missing(y) ? 1 : sign);
      });
    }
    this.heads.forEach((cell, i) => {
      const is = column === this.columns[i];
      if (is) cell.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    this.rows = rows;
    this.table.setAttribute("aria-rowcount", rows.length + 1);
    this.box.hidden = rows.length === 0;
    this.none.hidden = rows.length > 0;
    this.draw(true);
  }

  /** Fill again the cells that tell how long ago something was. */
  tick() {
    for (const [, { row, cells }] of this.shown) {
      this.columns.forEach((column, i) => { if (column.ticks) this.fill(column, cells[i], row); });
    }
  }

  soon() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => { this.waits = false; this.draw(false); });
  }

  fill(column, cell, row) {
    if (column.text) setText(cell, column.text(row));
    else column.fill(cell, row);
  }

  draw(changed) {
    const height = this.box.clientHeight || window.innerHeight * 0.7;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE);
    const last = Math.min(this.rows.length, Math.ceil((this.box.scrollTop + height) / ROW) + SPARE);
    const wanted = new Set();
    let before = this.above;
    for (let i = first; i < last; i += 1) {
      const row = this.rows[i];
      const key = this.id(row);
      wanted.add(key);
      let entry = this.shown.get(key);
      if (!entry) {
        const cells = this.columns.map((column) => this.cell(column));
        entry = { element: h("tr", {}, cells), cells, row: null };
        this.shown.set(key, entry);
      }
      if (changed || entry.row !== row) {
        entry.row = row;
        this.columns.forEach((column, j) => this.fill(column, entry.cells[j], row));
      }
      entry.element.setAttribute("aria-rowindex", i + 2);
      if (before.nextSibling !== entry.element) before.after(entry.element);
      before = entry.element;
    }
    for (const [key, entry] of this.shown) {
      if (wanted.has(key)) continue;
      entry.element.remove();
      this.shown.delete(key);
    }
    this.above.style.height = `${first * ROW}px`;
    this.below.style.height = `${(this.rows.length - last) * ROW}px`;
  }

  stop() {
    this.resized.disconnect();
  }
}
