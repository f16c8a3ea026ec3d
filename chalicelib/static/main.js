// The page: asks for the token once a tab, and shows the view that the address names.

import { Refused, call, events, token } from "./api.js";
import { command, h, setText } from "./dom.js";
import { words } from "./live.js";

const main = document.getElementById("main");
const forget = document.getElementById("forget");

const VIEWS = [
  [/^\/?$/, () => import("./runs.js")],
  [/^\/runs\/(run-[0-9a-f]{12})$/, () => import("./run.js")],
  [/^\/sims\/(sim-[0-9a-f]{12})$/, () => import("./sim.js")],
  [/^\/compare$/, () => import("./compare.js")],
];

let close = null;
let turn = 0;

function address() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  return { path, query: new URLSearchParams(query ?? "") };
}

/** Change what the address says beside the view, without going anywhere. */
function setQuery(query) {
  const text = query.toString();
  history.replaceState(null, "", `#${address().path}${text ? `?${text}` : ""}`);
}

async function go() {
  const mine = (turn += 1);
  close?.();
  close = null;
  const { path, query } = address();
  forget.hidden = !token.get();
  if (!token.get()) return ask();
  const view = VIEWS.find(([pattern]) => pattern.test(path));
  if (!view) return nothing();
  let module;
  try {
    module = await view[1]();
  } catch {
    if (mine === turn) main.replaceChildren(h("p", { class: "banner bad" }, "A part of this page could not be loaded. Load the page again."));
    return undefined;
  }
  if (mine !== turn) return undefined;
  main.replaceChildren();
  document.title = `${module.title()} · Cascade`;
  close = module.open(main, { id: path.match(view[0])[1], query, setQuery });
  main.querySelector("h1")?.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  return undefined;
}

function nothing() {
  document.title = "Not found · Cascade";
  main.replaceChildren(h("h1", { tabindex: "-1" }, "Nothing is here"), h("p", {}, "No view has this address. ", h("a", { href: "#/" }, "All runs")));
}

/** Ask for the token; `why` when the one that was there does not do any more. */
function ask(why = "") {
  document.title = "Token · Cascade";
  const input = h("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false", "aria-describedby": "token-help token-error" });
  const error = h("p", { id: "token-error", class: "bad", role: "alert" }, why);
  const button = h("button", { class: "primary" }, "Open");
  const form = h("form", { class: "token" }, h("label", { for: "token" }, "Token"), input, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = input.value.trim().replace(/^CASCADE_TOKEN=/, "");
    if (!/^[!-~]+$/.test(given)) return setText(error, "A token has no blanks and only ASCII characters.");
    button.disabled = true;
    token.set(given);
    try {
      await call("runs?limit=1");
      return go();
    } catch (failed) {
      token.forget();
      setText(error, failed instanceof Refused && failed.status === 401 ? "The server does not know this token." : words(failed));
      input.focus();
    } finally {
      button.disabled = false;
    }
    return undefined;
  });
  main.replaceChildren(
    h("h1", { tabindex: "-1" }, "Cascade"),
    h("p", { id: "token-help" }, "This page needs the token of the server. It is kept for this tab only."),
    form,
    error,
    h("details", {}, h("summary", {}, "Where is the token?"),
      h("p", {}, "A local server prints it when it starts, and keeps it in its data folder:"), command('cat "${CASCADE_DATA_DIR:-.cascade}/token"'),
      h("p", {}, "On AWS it is in Secrets Manager; ask whoever deployed this service.")),
  );
  input.focus();
}

events.addEventListener("unauthorized", () => {
  if (close === null) return;  // the form itself tells
  turn += 1;
  close();
  close = null;
  token.forget();
  forget.hidden = true;
  ask("The server no longer knows this tab's token. Enter another one to go on where you were.");
});
forget.addEventListener("click", () => { token.forget(); go(); });
window.addEventListener("hashchange", go);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
go();
