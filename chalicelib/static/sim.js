// One sim: what state it is in, its log at once, and what it made.

import { Refused, address, call, now } from "./api.js";
import { command, confirm, foreign, h, setText } from "./dom.js";
import { FINAL, bytes, count, counted, cut, duration, localClock, seconds, time, value } from "./format.js";
import { FilesPanel } from "./files.js";
import { KernelsPanel } from "./kernels.js";
import { Live, words } from "./live.js";
import { LogPanel } from "./log.js";
import { simulator } from "./params.js";
import { badge } from "./states.js";
import { Tabs } from "./tabs.js";
import { TimingPanel } from "./timing.js";

const PARAM_MOST = 400;
const PARAMS_SCROLL = 300;

export const title = () => "Sim";

export function open(root, { id, query, setQuery }) {
  let sim = null;
  let panels = null;
  let tabs = null;
  const seen = [];

  const name = h("h1", { tabindex: "-1" }, id);
  const state = h("span");
  const cancel = h("button", { type: "button", class: "danger", hidden: true, onclick: () => stop() }, "Cancel sim");
  const up = h("p", { class: "muted" });
  const history = h("ol", { class: "history", "aria-label": "History of the state" });
  const facts = h("dl", { class: "facts" });
  const params = h("ul", { class: "params", "aria-label": "Parameters" });
  const error = h("div", { class: "error", hidden: true, tabindex: "0", role: "region", "aria-label": "Error" });
  const help = h("div", { class: "empty", hidden: true });
  const note = h("p", { class: "bad", role: "alert", hidden: true });
  const body = h("div");
  root.append(up, h("div", { class: "heading" }, name, state, cancel), note, history, error, facts, params, help, body);

  const fact = (label) => {
    const place = h("dd", {}, "–");
    facts.append(h("div", {}, h("dt", {}, label), place));
    return place;
  };
  const at = { beat: fact("Last beat"), ran: fact("Ran for"), worker: fact("Worker"), kernels: fact("Kernels"), log: fact("Log"), files: fact("Files"), code: fact("Exit code") };

  async function stop() {
    if (!(await confirm(`Cancel ${cut(sim.name, 80)}? Its simulator is told to stop by the answer to its next heartbeat.`, "Cancel sim"))) return;
    cancel.disabled = true;
    try {
      draw(await call(`sims/${id}/cancel`, { method: "POST" }));
      note.hidden = true;
    } catch (failed) {
      note.hidden = false;
      setText(note, words(failed));
    } finally {
      cancel.disabled = false;
      live.now();
    }
  }

  function first(found) {
    document.title = `${cut(found.name, 60)} · Cascade`;
    name.replaceChildren(foreign(found.name));
    up.replaceChildren("Run ", h("a", { href: `#/runs/${found.run_id}` }, found.run_id), " · ", h("code", {}, found.id));
    const pairs = Object.entries(found.params);
    params.replaceChildren(...pairs.map(([key, given]) => {
      const text = value(given);
      return h("li", { title: cut(text, 4000) }, foreign(cut(key, PARAM_MOST)), " = ", foreign(cut(text, PARAM_MOST)));
    }));
    params.hidden = pairs.length === 0;
    // What scrolls must be reached by keyboard.
    if (params.textContent.length > PARAMS_SCROLL) params.tabIndex = 0;
    panels = { log: new LogPanel(found), kernels: new KernelsPanel(found), timing: new TimingPanel(found), files: new FilesPanel(found) };
    tabs = new Tabs("Of this sim", [
      { key: "log", label: "Log", panel: panels.log.element },
      { key: "kernels", label: "Kernels", panel: panels.kernels.element },
      { key: "timing", label: "Step timing", panel: panels.timing.element },
      { key: "files", label: "Files", panel: panels.files.element },
    ], (key) => {
      if (key === "log") query.delete("tab");
      else query.set("tab", key);
      setQuery(query);
      live.now();
    });
    tabs.choose(query.get("tab") ?? "log", false);
    body.append(tabs.element);
  }

  function draw(found) {
    const before = sim;
    sim = found;
    if (!panels) first(found);
    if (before && before.state !== found.state) seen.push([found.state, new Date()]);
    state.replaceChildren(badge(found.state));
    cancel.hidden = FINAL.has(found.state);
    drawHistory();
    error.hidden = !found.error;
    setText(error, found.error ?? "");
    setText(at.worker, found.worker ? cut(found.worker, 80) : "–");
    setText(at.kernels, count(found.kernels));
    setText(at.log, `${counted(found.log.lines, "line")}, ${bytes(found.log.bytes)}`);
    setText(at.files, found.files.count ? `${found.files.count}, ${bytes(found.files.bytes)}` : "–");
    setText(at.code, found.exit_code === null ? "–" : String(found.exit_code));
    help.hidden = found.state !== "queued";
    if (found.state === "queued" && !help.firstChild) {
      help.append(h("p", {}, "Queued: it waits for a worker. Start one where the simulator is installed and CASCADE_TOKEN is set:"), command(`export CASCADE_URL=${address}\ncascade worker --run ${found.run_id} -- ${simulator(Object.keys(found.params))}`));
    }
    tick();
  }

  let historyOf = "";
  function drawHistory() {
    const shape = JSON.stringify([sim.state, sim.started_at, sim.finished_at, seen.length]);
    if (shape === historyOf) return;
    historyOf = shape;
    const steps = [h("li", {}, badge("queued"), " ", time(sim.created_at))];
    if (sim.started_at) steps.push(h("li", {}, badge("running"), " ", time(sim.started_at), h("span", { class: "muted" }, ` after ${duration(seconds(sim.created_at, sim.started_at))}`)));
    if (sim.state === "lost") steps.push(h("li", {}, badge("lost"), " silent since ", time(sim.last_heartbeat_at)));
    if (sim.finished_at) steps.push(h("li", {}, badge(sim.state), " ", time(sim.finished_at), h("span", { class: "muted" }, ` after ${duration(seconds(sim.started_at ?? sim.created_at, sim.finished_at))}`)));
    // The service keeps when it started and finished; a lost sim that came back is only known to who watched.
    const others = seen.filter(([one], i) => !FINAL.has(one) && !(one === "lost" && i === seen.length - 1) && !(one === "running" && i === 0));
    if (others.length) steps.push(h("li", { class: "muted" }, "seen here: ", others.map(([one, when]) => `${one} at ${localClock(when)}`).join(", ")));
    history.replaceChildren(...steps);
  }

  function tick() {
    if (!sim) return;
    if (at.beat.of !== sim.last_heartbeat_at) {
      at.beat.of = sim.last_heartbeat_at;
      at.beat.age = h("span");
      at.beat.replaceChildren(at.beat.age, ...(sim.last_heartbeat_at ? [h("span", { class: "muted" }, " · "), time(sim.last_heartbeat_at, false)] : []));
    }
    setText(at.beat.age, sim.last_heartbeat_at ? `${duration((now() - Date.parse(sim.last_heartbeat_at)) / 1000)} ago` : "none yet");
    setText(at.ran, sim.started_at ? duration((sim.finished_at ? Date.parse(sim.finished_at) : sim.state === "lost" ? Date.parse(sim.last_heartbeat_at) : now()) / 1000 - Date.parse(sim.started_at) / 1000) : "–");
  }
  const ticking = setInterval(tick, 1000);

  function gone() {
    live.stop();
    root.replaceChildren(h("h1", { tabindex: "-1" }, sim ? foreign(sim.name) : id), h("p", {}, sim ? "This sim was deleted, with its run, while it was open here." : "No sim has this id. It may have been deleted with its run."), h("p", {}, h("a", { href: "#/" }, "All runs")));
    root.querySelector("h1").focus();
  }

  const live = new Live(async (signal) => {
    try {
      const found = await call(`sims/${id}`, { signal });
      draw(found);
      await panels[tabs.chosen].refresh(found, signal);
      return !FINAL.has(found.state) || recent(found);
    } catch (failed) {
      if (!(failed instanceof Refused && failed.status === 404)) throw failed;
      gone();
      return false;
    }
  });
  // Chunks may come after the end.
  const recent = (found) => now() - Date.parse(found.finished_at) < 120_000;

  return () => {
    clearInterval(ticking);
    live.stop();
    if (panels) for (const panel of Object.values(panels)) panel.stop();
  };
}
