// A change: a reason, what it would do, and then the order.

import { ask, flowPath } from "./api.js";
import { failure } from "./told.js";
import { h } from "./view.js";

const dialog = document.getElementById("dialog");

/** `what`: a path below the flow; `more`: what else its body has. */
export function changing(what, flow, title, more = {}) {
  const reason = h("input", { name: "reason", maxlength: 500, placeholder: "for those who see it" });
  const limit = h("input", { name: "rate", type: "number", min: 1, step: "any", placeholder: "empty: as the file says" });
  const shown = h("div", { role: "status" });
  const write = h("button", { class: "do first", disabled: true, click: () => send(false) }, title);
  const look = h("button", { class: "do", click: () => send(true) }, "What would it do?");

  function body(dryRun) {
    const found = { ...more, reason: reason.value, dryRun };
    if (what === "limit") found.bytesPerSecond = limit.value === "" ? null : Math.round(Number(limit.value) * 1e6);
    return found;
  }

  async function send(dryRun) {
    look.disabled = write.disabled = true;
    try {
      const { changes } = await ask(`${flowPath(flow)}/${what}`, body(dryRun));
      const needed = changes.filter((one) => one.isNeeded);
      const lines = changes.map((one) => `${one.topic || one.flow}: ${one.isNeeded ? (one.isSet ? one.intent : `${one.intent} no more`) : "is so already"}`);
      shown.replaceChildren(h("pre", {}, lines.join("\n") || "nothing"), h("p", { class: "small soft" }, dryRun ? "Nothing was changed yet." : "Written; it is followed within two seconds."));
      look.disabled = false;
      write.disabled = !dryRun || !needed.length;
      if (!dryRun) look.disabled = true;
    } catch (error) {
      shown.replaceChildren(failure(error));
      look.disabled = false;
    }
  }

  dialog.replaceChildren(
    h("h2", { id: "dialog-title" }, `${title} ${flow}${more.topics ? `: ${more.topics.join(", ")}` : ""}`),
    what === "limit" && h("label", {}, "MB a second", limit),
    h("label", {}, "Reason", reason),
    shown,
    h("div", { class: "bar" }, look, write, h("button", { class: "do", click: () => dialog.close() }, "Close")));
  dialog.showModal();
}
