// Calls of the API with the tab's token.

const BASE = new URL("../../api/", import.meta.url);
const KEY = "cascade-token";
const SECONDS = 30;

/** The address of this service, as CASCADE_URL wants it. */
export const address = new URL("../../", import.meta.url).href.replace(/\/$/, "");

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** The server's clock less this machine's, in ms: ages are told by the server's. */
let skew = 0;
export const now = () => Date.now() + skew;

/** An answer that is not 2xx. */
export class Refused extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** No answer at all. */
export class Unreachable extends Error {}

/** The server did not know the token. */
export const events = new EventTarget();

function words(detail) {
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) return detail.map((field) => `${(field.loc ?? []).slice(1).join(".")}: ${field.msg}`).join("; ");
  return "the server gave no reason";
}

async function refusal(answer) {
  let detail;
  try {
    detail = (await answer.json()).detail;
  } catch {
    // Not this API's own answer: a gateway's, or a page of something in between.
    detail = `the server answered ${answer.status} ${answer.statusText}`;
  }
  return new Refused(answer.status, words(detail), Number(answer.headers.get("retry-after")) || null);
}

/**
 * Call the API.
 * @param {string} path below /api/
 * @returns the answer's JSON, or the Response itself with `raw`
 * @throws {Refused|Unreachable}
 */
export async function call(path, { method = "GET", signal, raw = false, headers = {}, seconds = SECONDS } = {}) {
  const limit = AbortSignal.timeout(seconds * 1000);
  let answer;
  try {
    answer = await fetch(new URL(path, BASE), {
      method,
      headers: { Authorization: `Bearer ${token.get()}`, ...headers },
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      cache: "no-store",
      credentials: "omit",
    });
    const date = Date.parse(answer.headers.get("date"));
    // The header is in whole seconds: less than two apart is no difference.
    if (Number.isFinite(date)) skew = Math.abs(date - Date.now()) < 2000 ? 0 : date - Date.now();
    if (answer.ok) return raw ? answer : await answer.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unreachable(error.name === "TimeoutError" ? `no answer for ${seconds} s` : "no connection");
  }
  const error = await refusal(answer);
  if (answer.status === 401) events.dispatchEvent(new Event("unauthorized"));
  throw error;
}

export const path = (...parts) => parts.map(encodeURIComponent).join("/");
