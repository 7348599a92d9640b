// A change: a reason, what it would do, and then the order. Only what was shown is written.

import { ask, flowPath } from "./api.js";
import { failure } from "./notes.js";
import { counterpart, h, rate } from "./view.js";

const dialog = document.getElementById("dialog");

/** `what`: a path below the flow; `more`: what else its body has. */
export function changing(what, flow, title, more = {}) {
  const reason = h("input", { name: "reason", maxlength: 500, placeholder: "for those who see it", input: edited });
  const limit = h("input", { name: "rate", type: "number", min: 1, step: "any", input: edited });
  const none = h("input", { name: "none", type: "checkbox", input: () => ((limit.disabled = none.checked), edited()) });
  const shown = h("div", { role: "status" });
  const write = h("button", { class: "do first", disabled: true, click: () => send(false) }, title);
  const preview = h("button", { class: "do", click: () => send(true) }, "What would it do?");
  let previewed = null; // the body that is shown, and may be written

  function edited() {
    previewed = null;
    write.disabled = true;
    shown.replaceChildren();
  }

  function body() {
    const found = { ...more, reason: reason.value };
    if (what === "limit") found.bytesPerSecond = none.checked ? null : bytesPerSecond();
    return found;
  }

  /** Nothing, a half number and one without end are no limit: sent as null they would remove it. */
  function bytesPerSecond() {
    const found = Math.round(limit.valueAsNumber * 1e6);
    if (limit.validity.badInput || !Number.isFinite(found)) throw new Error("MB a second needs a number. Nothing was sent.");
    return found;
  }

  async function send(dryRun) {
    preview.disabled = write.disabled = true;
    try {
      if (dryRun) previewed = body();
      const asked = previewed;
      const { changes } = await ask(`${flowPath(flow)}/${what}`, { ...asked, dryRun });
      if (dryRun && asked !== previewed) return; // edited meanwhile
      const needed = changes.filter((one) => one.isNeeded);
      shown.replaceChildren(h("pre", {}, changes.map(line).join("\n") || "nothing"), h("p", { class: "small soft" }, dryRun ? "Nothing was changed yet." : "Written; it is followed within two seconds."));
      write.disabled = !dryRun || !needed.length;
    } catch (error) {
      shown.replaceChildren(failure(error));
    } finally {
      preview.disabled = false;
    }
  }

  const rates = [h("label", {}, "MB a second", limit), h("label", { class: "choice" }, none, "No limit but the file's")];
  dialog.replaceChildren(
    h("h2", { id: "dialog-title" }, `${title} ${flow}${more.topics ? `: ${more.topics.join(", ")}` : ""}`),
    ...(what === "limit" ? rates : []),
    h("label", {}, "Reason", reason),
    shown,
    h("div", { class: "bar" }, preview, write, h("button", { class: "do", click: () => dialog.close() }, "Close")));
  const from = document.activeElement;
  const back = () => {
    const now = document.activeElement; // of a dialog that is closed just now it may be there still
    if (now === document.body || dialog.contains(now)) (counterpart(from) || document.getElementById("main")).focus({ preventScroll: true });
  };
  dialog.addEventListener("close", back, { once: true }); // a browser knows the way back while `from` is still there
  dialog.showModal();
}

function line(one) {
  const intent = one.bytesPerSecond === null ? one.intent : `${one.intent} ${rate(one.bytesPerSecond)}`;
  return `${one.topic || one.flow}: ${one.isNeeded ? (one.isSet ? intent : `${intent} no more`) : "is so already"}`;
}
