// A complete Cascade client with fetch, for Node.js 18 and later. Usage: node client.mjs SIM LOG [FILE...]
import { readFile } from "node:fs/promises";
import { basename } from "node:path";

const { CASCADE_URL, CASCADE_TOKEN } = process.env;
const [sim, log, ...files] = process.argv.slice(2);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Every call is safe to repeat, so it is repeated: after faults of the network, 429 and 5xx.
async function call(method, path, body, type = "application/json") {
  for (let attempt = 0; attempt < 10; attempt++) {
    try {
      const answer = await fetch(`${CASCADE_URL}/api${path}`, {
        method,
        headers: { Authorization: `Bearer ${CASCADE_TOKEN}`, "Content-Type": type },
        body,
        signal: AbortSignal.timeout(60_000),
      });
      const text = await answer.text();
      if (answer.ok) return text ? JSON.parse(text) : null;
      if (answer.status !== 429 && answer.status < 500) {
        console.error(`${method} ${path}: ${answer.status} ${text}`);
        process.exit(1);
      }
    } catch (error) {
      if (attempt === 9) throw error;
    }
    await pause(Math.min(500 * 2 ** attempt, 15_000));
  }
  throw new Error(`${method} ${path}: no answer`);
}

const beat = (body) => call("POST", `/sims/${sim}/heartbeat`, JSON.stringify(body));

// 1. Alive, and again every few seconds whatever else happens.
let cancelled = false;
await beat({ state: "running" });
const beats = setInterval(async () => {
  if ((await beat({ state: "running" })).cancel) cancelled = true;
}, 5000);

// 2. The log in chunks, numbered from 0.
const lines = (await readFile(log, "utf8")).split("\n");
for (let seq = 0; seq * 200 < lines.length && !cancelled; seq++) {
  const chunk = { seq, lines: lines.slice(seq * 200, seq * 200 + 200) };
  await call("POST", `/sims/${sim}/logs`, JSON.stringify(chunk));
}

// 3. Output files.
for (const file of files) {
  await call("PUT", `/sims/${sim}/files/${basename(file)}`, await readFile(file), "application/octet-stream");
}

// 4. The end, once. After a cancel this changes nothing.
clearInterval(beats);
console.log((await beat({ state: "succeeded", exit_code: 0 })).state);
