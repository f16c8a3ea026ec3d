// Making elements. Text only ever becomes text nodes: nothing here parses markup.

/** An element. Properties that are functions become listeners, `class` and the rest attributes; false leaves one out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Text of somebody else's: whatever its direction marks say, they end where it ends. */
export function foreign(text, className) {
  return h("bdi", className ? { class: className } : {}, text);
}

/** Set an element's text unless it is there already, so that selections and screen readers are left alone. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show or hide. */
export function show(element, wanted) {
  element.hidden = !wanted;
}

/** A question, text or nodes, in a dialog; resolves to whether the answer was yes. */
export function confirm(question, yes) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { "aria-label": yes, "aria-describedby": "question", onclose: () => { dialog.remove(); resolve(dialog.returnValue === "yes"); } },
      h("p", { id: "question" }, question),
      h(
        "p",
        { class: "actions" },
        h("button", { type: "button", onclick: () => dialog.close("no") }, "Keep"),
        h("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, yes),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A command with a button that copies it. */
export function command(text) {
  const button = h("button", {
    type: "button",
    class: "quiet",
    onclick: async () => {
      await navigator.clipboard.writeText(text);
      setText(button, "Copied");
    },
  }, "Copy");
  return h("div", { class: "command" }, h("pre", { tabindex: "0", "aria-label": "Command" }, text), navigator.clipboard ? button : null);
}

/** Save bytes as a file. */
export function save(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
