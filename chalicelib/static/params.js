// What tells the sims of a run apart: the parameters that vary, in as few characters as show how.

import { value } from "./format.js";

const BOUNDARY = /[\s/=,;:|]/;
const LEAST = 4;
/** Characters; a shorter beginning is not worth an ellipsis. */
const WORD_LEAST = 8;
const OPTIONS_MOST = 6;
const NAME_MOST = 200;
/** Characters; what the command line makes longer it cuts. */

/**
 * Parameters of all sims, apart by whether they vary. One that some sims lack varies.
 * @param all [params of each sim]
 * @returns {varied: [{key, values: Map(text, times)}], constant: [{key, text}]} in the order in which they are met
 */
export function survey(all) {
  const found = new Map();
  for (const own of all) {
    for (const [key, given] of Object.entries(own)) {
      if (!found.has(key)) found.set(key, new Map());
      const text = value(given);
      found.get(key).set(text, (found.get(key).get(text) ?? 0) + 1);
    }
  }
  const varied = [];
  const constant = [];
  for (const [key, values] of found) {
    const [[text, times]] = values;
    if (times === all.length) constant.push({ key, text });
    else varied.push({ key, values });
  }
  return { varied, constant };
}

/** The simulator's command for `cascade worker`, with placeholders for a sim's own parameters. */
export function simulator(keys) {
  const given = [...keys].filter((key) => /^[A-Za-z_][A-Za-z0-9_-]*$/.test(key)).slice(0, OPTIONS_MOST);
  return ["accel-sim.out", ...given.map((key) => `-${key} {${key}}`)].join(" ");
}

/** Part of a text without half of a surrogate pair at either end. */
function part(text, from, to) {
  const low = (at) => (text.charCodeAt(at) & 0xfc00) === 0xdc00;
  return text.slice(low(from) ? from + 1 : from, low(to) ? to - 1 : to);
}

/** A text of at most `most` characters: beginning and end, the end larger, since that is where paths differ. */
export function middle(text, most) {
  if (text.length <= most) return text;
  const head = Math.floor((most - 1) * 0.4);
  return `${part(text, 0, head)}…${part(text, text.length - (most - 1 - head), text.length)}`;
}

/** How many characters all texts share, counted from one end. */
function alike(texts, at) {
  const [first] = texts;
  let same = first.length;
  for (const text of texts) {
    let i = 0;
    while (i < same && i < text.length && at(text, i) === at(first, i)) i += 1;
    same = i;
  }
  return same;
}
const begin = (text, i) => text.charCodeAt(i);
const end = (text, i) => text.charCodeAt(text.length - 1 - i);

/**
 * Texts in at most `most` characters each, so that those that differ still do: what all begin or end with is left out
 * up to a word's or a folder's border, the rest is cut in the middle, and where that leaves two alike, what is shown is
 * the place where they differ.
 * @returns {Map(text, short)}
 */
export function shortened(texts, most) {
  const list = [...new Set(texts)];
  if (list.every((text) => text.length <= most)) return new Map(list.map((text) => [text, text]));
  return byWords(list, most) ?? whole(list, most);
}

/** Of texts of as many words each, `trace=/a/b config=/c/d`, each word that differs on its own; null when that does not fit. */
function byWords(list, most) {
  const words = list.map((text) => text.split(/\s+/));
  const differ = words[0].map((word, i) => i).filter((i) => words.some((own) => own[i] !== words[0][i]));
  const room = Math.floor((most + 1) / differ.length) - 1;
  if (words[0].length < 2 || !differ.length || room < WORD_LEAST || words.some((own) => own.length !== words[0].length)) return null;
  const short = differ.map((i) => shortened(words.map((own) => own[i]), room));
  // Only the gaps between words may have differed.
  const made = new Map(list.map((text, i) => [text, differ.map((at, j) => short[j].get(words[i][at])).join(" ")]));
  return new Set(made.values()).size === list.length ? made : null;
}

function whole(list, most) {
  let [head, tail] = [0, 0];
  if (list.length > 1) {
    const least = Math.min(...list.map((text) => text.length));
    head = alike(list, begin);
    while (head > 0 && !BOUNDARY.test(list[0][head - 1])) head -= 1;
    tail = Math.min(alike(list, end), least - head);
    while (tail > 0 && !BOUNDARY.test(list[0][list[0].length - tail])) tail -= 1;
    if (head < LEAST) head = 0;
    if (tail < LEAST) tail = 0;
  }
  const short = new Map(list.map((text) => [text, middle(`${head ? "…" : ""}${text.slice(head, text.length - tail)}${tail ? "…" : ""}`, most)]));
  apart(list, short, most);
  number(list, short, most);
  return short;
}

function apart(list, short, most) {
  const groups = new Map();
  for (const text of list) {
    if (!groups.has(short.get(text))) groups.set(short.get(text), []);
    groups.get(short.get(text)).push(text);
  }
  for (const group of groups.values()) {
    if (group.length === 1) continue;
    // The first place where two of them differ is in sight, so each round tells some apart.
    const from = Math.max(0, alike(group, begin) - Math.floor(most / 3));
    for (const text of group) short.set(text, `${from ? "…" : ""}${part(text, from, from + most - 2)}${text.length > from + most - 2 ? "…" : ""}`);
    apart(group, short, most);
  }
}

/** Number those that differ in several places so far from each other that no few characters show them. */
function number(list, short, most) {
  const times = new Map();
  for (const text of list) times.set(short.get(text), (times.get(short.get(text)) ?? 0) + 1);
  const turn = new Map();
  for (const text of list) {
    const one = short.get(text);
    if (times.get(one) === 1) continue;
    turn.set(one, (turn.get(one) ?? 0) + 1);
    const tail = ` ${turn.get(one)}`;
    short.set(text, part(one, 0, most - tail.length) + tail);
  }
}

/** Whether a sim's name says nothing but its parameters: `l2=4 trace=/a/b`, as the command line names them, or one value. */
export function saysParams(name, own) {
  const pairs = Object.entries(own).map(([key, given]) => [key, given, value(given)]);
  if (pairs.some(([, , text]) => text === name)) return true;
  let rest = name;
  while (rest) {
    const said = pairs.map((pair) => says(rest, ...pair, name.length >= NAME_MOST)).reduce((a, b) => Math.max(a, b), 0);
    if (!said) return false;
    rest = rest.slice(said).trimStart();
  }
  return name !== "";
}

/** Length of `key=value` at the beginning of a text, 0 when it is not there. */
function says(text, key, given, shown, cut) {
  if (!text.startsWith(`${key}=`)) return 0;
  const from = key.length + 1;
  // Python writes True and 1.0.
  const word = text.slice(from).match(/^\S*/)[0];
  if (typeof given === "number" && word !== "" && Number(word) === given) return from + word.length;
  if (typeof given === "boolean" && word.toLowerCase() === shown) return from + word.length;
  const after = text.slice(from);
  if (after.startsWith(shown) && /^(\s|$)/.test(after.slice(shown.length))) return from + shown.length;
  return cut && shown.startsWith(after) && from + after.length === text.length ? text.length : 0;
}
