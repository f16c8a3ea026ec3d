// Numbers, times and bytes as people read them.

export const STATES = ["queued", "running", "succeeded", "failed", "cancelled", "lost"];
export const FINAL = new Set(["succeeded", "failed", "cancelled"]);
const MARKS = { queued: "○", running: "▶", succeeded: "✓", failed: "✕", cancelled: "⊘", lost: "?" };

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const dateTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clockTime = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** A state's sign, so that it is told by more than colour. */
export const mark = (state) => MARKS[state] ?? "?";

/** 1234567 as 1,234,567; nothing as a dash. */
export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

/** A count with its noun: 1 sim, 2 sims. */
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** A number that names something: no separators. Above 2^53 the page has it rounded, so it says so. */
export function id(value) {
  if (value === null || value === undefined) return "–";
  return Number.isSafeInteger(value) ? String(value) : `≈${BigInt(value)}`;
}

/** A decimal with at most `digits` significant digits. */
export function decimal(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const big = Math.abs(value) >= 10 ** digits;
  return value.toLocaleString("en", big ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: digits });
}

export function percent(value, signed = false) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return `${signed && value > 0 ? "+" : ""}${value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : 1 })} %`;
}

function scaled(value, units, step) {
  let at = 0;
  while (Math.abs(value) >= step && at < units.length - 1) {
    value /= step;
    at += 1;
  }
  return `${at === 0 ? whole.format(value) : decimal(value, 3)} ${units[at]}`;
}

export const bytes = (value) => (value === null || value === undefined ? "–" : scaled(value, ["B", "KiB", "MiB", "GiB"], 1024));

/** A short form for axes: 1.2M. */
export function short(value) {
  if (value === null || value === undefined) return "";
  return value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 4 });
}

/** Nanoseconds with a unit that fits. */
export function ns(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (Math.abs(value) >= size) return `${decimal(value / size)} ${unit}`;
  }
  return `${decimal(value)} ns`;
}

/** Seconds as 5 s, 3 min 20 s, 4 h 10 min, 3 d 2 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

export const seconds = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;

const utc = (text) => `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;

/** A time in the reader's zone, UTC on hover. */
export function time(text, whole = true) {
  if (!text) return document.createTextNode("–");
  const element = document.createElement("time");
  element.dateTime = text;
  element.title = utc(text);
  element.textContent = (whole ? dateTime : clockTime).format(new Date(text));
  return element;
}

export const localClock = (date) => clockTime.format(date);

/** JSON values of params as one short text. */
export const value = (json) => (typeof json === "string" ? json : JSON.stringify(json));

/** Text cut for a cell, by code points, so that no pair is torn. */
export function cut(text, most = 200) {
  if (text.length <= most) return text;
  return `${[...text.slice(0, most)].slice(0, -1).join("")}…`;
}

const ESCAPES = /\u001b(?:\[([0-9;:]*)([@-~])|\[[0-9;:?<=>!"'$ ]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\^_]|[ -/]+[0-~])/g;
const CONTROL = /[\u0000-\u0008\u000a-\u001f\u007f]/g;

/** Control characters as the pictures Unicode has of them; tabs stay. */
export const visible = (text) => text.replace(CONTROL, (c) => (c === "\u007f" ? "␡" : String.fromCharCode(0x2400 + c.charCodeAt(0))));

/** A line without its terminal escapes. */
export const stripped = (text) => (text.includes("\u001b") ? text.replace(ESCAPES, "") : text);

/** A line as [text, classes] pieces, colours as the terminal would show them. */
export function ansi(text, style = {}) {
  if (!text.includes("\u001b")) return [[text, ""]];
  const pieces = [];
  let at = 0;
  for (const found of text.matchAll(ESCAPES)) {
    if (found.index > at) pieces.push([text.slice(at, found.index), classes(style)]);
    at = found.index + found[0].length;
    if (found[2] === "m") style = rendition(style, found[1]);
  }
  if (at < text.length) pieces.push([text.slice(at), classes(style)]);
  return pieces;
}

const classes = (style) => Object.entries(style).filter(([, set]) => set !== false && set !== undefined).map(([name, set]) => (set === true ? `a-${name}` : `a-${name}${set}`)).join(" ");

function rendition(style, codes) {
  const now = { ...style };
  const list = codes.split(/[;:]/).map((code) => Number(code || 0));
  for (let i = 0; i < list.length; i += 1) {
    const code = list[i];
    if (code === 0) for (const name of Object.keys(now)) delete now[name];
    else if (code === 1) now.bold = true;
    else if (code === 2) now.dim = true;
    else if (code === 3) now.italic = true;
    else if (code === 4) now.under = true;
    else if (code === 7) now.inverse = true;
    else if (code === 9) now.strike = true;
    else if (code === 22) { delete now.bold; delete now.dim; }
    else if (code === 23) delete now.italic;
    else if (code === 24) delete now.under;
    else if (code === 27) delete now.inverse;
    else if (code === 29) delete now.strike;
    else if (code >= 30 && code <= 37) now.fg = code - 30;
    else if (code >= 90 && code <= 97) now.fg = code - 90;
    else if (code === 39) delete now.fg;
    else if (code >= 40 && code <= 47) now.bg = code - 40;
    else if (code >= 100 && code <= 107) now.bg = code - 100;
    else if (code === 49) delete now.bg;
    else if (code === 38 || code === 48) {
      // Of 256 or 16 million colours the nearest of the eight: those are legible in light and dark.
      const name = code === 38 ? "fg" : "bg";
      if (list[i + 1] === 5) { now[name] = nearest(...indexed(list[i + 2] ?? 0)); i += 2; }
      else if (list[i + 1] === 2) { now[name] = nearest(list[i + 2] ?? 0, list[i + 3] ?? 0, list[i + 4] ?? 0); i += 4; }
    }
  }
  return now;
}

function indexed(n) {
  if (n < 16) return [n & 1 ? 200 : 0, n & 2 ? 200 : 0, n & 4 ? 200 : 0];
  if (n >= 232) return [8 + (n - 232) * 10, 8 + (n - 232) * 10, 8 + (n - 232) * 10];
  const c = n - 16;
  return [Math.floor(c / 36) * 51, (Math.floor(c / 6) % 6) * 51, (c % 6) * 51];
}

const nearest = (r, g, b) => {
  const most = Math.max(r, g, b);
  if (most < 60) return 0;
  return (r > most / 2 ? 1 : 0) + (g > most / 2 ? 2 : 0) + (b > most / 2 ? 4 : 0);
};
