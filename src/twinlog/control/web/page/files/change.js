// A change: enter a reason, preview the effect, then save. Only the previewed change can be saved.

import { ask, flowPath } from "./api.js";
import { failure } from "./notes.js";
import { counterpart, h, rate } from "./view.js";

const dialog = document.getElementById("dialog");

/** `what`: a path below the flow; `more`: further fields of the request's body. */
export function changing(what, flow, title, more = {}) {
  const reason = h("input", { name: "reason", maxlength: 500, placeholder: "shown in the status", input: edited });
  const limit = h("input", { name: "rate", type: "number", min: 1, step: "any", input: edited });
  const none = h("input", { name: "none", type: "checkbox", input: () => ((limit.disabled = none.checked), edited()) });
  const shown = h("div", { role: "status" });
  const write = h("button", { class: "do first", disabled: true, click: () => send(false) }, title);
  const preview = h("button", { class: "do", click: () => send(true) }, "Preview");
  let previewed = null; // the body that is previewed, and may be saved

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

  /** An empty, partial or infinite number is an error, because it would be sent as null, which removes the limit. */
  function bytesPerSecond() {
    const found = Math.round(limit.valueAsNumber * 1e6);
    if (limit.validity.badInput || !Number.isFinite(found)) throw new Error("MB/s must be a number. Nothing was sent.");
    return found;
  }

  async function send(dryRun) {
    preview.disabled = write.disabled = true;
    try {
      if (dryRun) previewed = body();
      const asked = previewed;
      const { changes } = await ask(`${flowPath(flow)}/${what}`, { ...asked, dryRun });
      if (dryRun && asked !== previewed) return; // edited in the meantime
      const needed = changes.filter((one) => one.isNeeded);
      shown.replaceChildren(h("pre", {}, changes.map(line).join("\n") || "no changes"), h("p", { class: "small soft" }, dryRun ? "Nothing has been changed yet." : "Saved. The leader applies it within two seconds."));
      write.disabled = !dryRun || !needed.length;
    } catch (error) {
      shown.replaceChildren(failure(error));
    } finally {
      preview.disabled = false;
    }
  }

  const rates = [h("label", {}, "MB/s", limit), h("label", { class: "choice" }, none, "Use the configured limit")];
  dialog.replaceChildren(
    h("h2", { id: "dialog-title" }, `${title} ${flow}${more.topics ? `: ${more.topics.join(", ")}` : ""}`),
    ...(what === "limit" ? rates : []),
    h("label", {}, "Reason", reason),
    shown,
    h("div", { class: "bar" }, preview, write, h("button", { class: "do", click: () => dialog.close() }, "Close")));
  const from = document.activeElement;
  const back = () => {
    const now = document.activeElement; // it may still be in the dialog that was just closed
    if (now === document.body || dialog.contains(now)) (counterpart(from) || document.getElementById("main")).focus({ preventScroll: true });
  };
  dialog.addEventListener("close", back, { once: true }); // while `from` exists, the browser restores the focus itself
  dialog.showModal();
}

function line(one) {
  const intent = one.bytesPerSecond === null ? one.intent : `${one.intent} ${rate(one.bytesPerSecond)}`;
  return `${one.topic || one.flow}: ${one.isNeeded ? (one.isSet ? intent : `${intent} removed`) : "no change"}`;
}
