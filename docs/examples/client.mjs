// A complete Cascade client with fetch, for Node.js 18 and later. Usage: node client.mjs SIM LOG [FILE...]
import { readFile } from "node:fs/promises";
import { basename } from "node:path";

const { CASCADE_URL, CASCADE_TOKEN } = process.env;
const [sim, log, ...files] = process.argv.slice(2);
const LINES = 1000; // a chunk; a real client sends what came in a second, at most about 1 MB
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// The answer's JSON. Every call is safe to repeat, so it is: after faults of the network, 408, 429 and 5xx.
async function call(method, path, body, { tries = 10, timeout = 60_000 } = {}) {
  let reason;
  let pause = 0;
  for (let attempt = 0; attempt < tries; attempt++) {
    await sleep(pause);
    pause = (0.5 + Math.random() / 2) * Math.min(500 * 2 ** attempt, 15_000);
    try {
      const answer = await fetch(`${CASCADE_URL}/api${path}`, {
        method,
        headers: {
          Authorization: `Bearer ${CASCADE_TOKEN}`,
          "Content-Type": method === "PUT" ? "application/octet-stream" : "application/json",
        },
        body,
        signal: AbortSignal.timeout(timeout),
      });
      const text = await answer.text();
      if (answer.ok) return text ? JSON.parse(text) : null;
      reason = `${answer.status} ${text}`;
      if (![408, 429].includes(answer.status) && answer.status < 500) break;
      const asked = Number(answer.headers.get("Retry-After"));
      if (asked > 0) pause += Math.min(asked, 300) * 1000;
    } catch (error) {
      reason = String(error);
    }
  }
  throw new Error(`${method} ${path}: ${reason}`);
}

let cancelled = false;
async function beat(body, options) {
  const ack = await call("POST", `/sims/${sim}/heartbeat`, JSON.stringify(body), { timeout: 10_000, ...options });
  cancelled ||= ack.cancel;
  return ack.state;
}

async function main() {
  // 1. Alive, and again every few seconds whatever else happens. A beat that waits for repeats would hold up the next one.
  await beat({ state: "running" });
  let beating = Promise.resolve();
  const beats = setInterval(() => {
    beating = beat({ state: "running" }, { tries: 1 }).catch((error) => console.error(error.message));
  }, 5000);
  try {
    // 2. The log in chunks, numbered from 0. A real client reads it from the simulator as it grows.
    const lines = (await readFile(log, "utf8")).split("\n");
    const count = Math.ceil(lines.length / LINES);
    const send = (seq) =>
      call("POST", `/sims/${sim}/logs`, JSON.stringify({ seq, lines: lines.slice(seq * LINES, (seq + 1) * LINES) }));
    for (let seq = 0; seq < count && !cancelled; seq++) await send(seq); // cancelled: a real client stops the simulator
    // 3. Output files.
    for (const file of files) await call("PUT", `/sims/${sim}/files/${basename(file)}`, await readFile(file));
    // 4. What was lost although it was acknowledged.
    for (const [first, last] of (await call("GET", `/sims/${sim}`)).log.missing) {
      for (let seq = first; seq <= last && seq < count; seq++) await send(seq);
    }
  } finally {
    clearInterval(beats);
    await beating;
  }
  // 5. The end, once, last. Nothing overwrites a cancel: then the answer is `cancelled`.
  return beat(cancelled ? { state: "failed", error: "cancelled" } : { state: "succeeded", exit_code: 0 });
}

try {
  const state = await main();
  console.log(state);
  process.exitCode = state === "succeeded" ? 0 : 1;
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
