// What is only here or only there, and what differs, by the rules of the flow.

import { ask, flowPath } from "./api.js";
import { proof } from "./overview.js";
import { failure } from "./told.js";
import { count, h, table } from "./view.js";

export function compare({ state, main, flow }) {
  const last = h("p");
  const body = h("div");
  const all = h("input", { type: "checkbox" });
  const again = h("button", { class: "do first", click: () => load() }, "Compare");
  main.append(h("h1", {}, `Compare ${flow}`), last, h("div", { class: "bar" }, again, h("label", {}, "also what the flow leaves alone", all)), body);
  let isOpen = true;

  async function load() {
    again.disabled = true;
    body.replaceChildren(h("p", { class: "soft", role: "status" }, "Reading both clusters ..."));
    try {
      const found = await ask(`${flowPath(flow)}/diff${all.checked ? "?all=true" : ""}`);
      if (isOpen) body.replaceChildren(...shown(found));
    } catch (error) {
      if (isOpen) body.replaceChildren(failure(error));
    }
    again.disabled = false;
  }

  load();
  return {
    close: () => (isOpen = false),
    update() {
      const one = state.flows.find((each) => each.flow === flow);
      last.replaceChildren(...(one ? ["Records of both sides, compared while they are copied: ", proof(state, one)] : []));
    },
  };
}

function shown(found) {
  const names = [...new Set(found.deviations.flatMap((one) => Object.keys(one)))];
  const totals = Object.entries(found.totals).map(([name, value]) => `${name.replace(/_/g, " ")}: ${typeof value === "number" ? count(value) : JSON.stringify(value)}`);
  return [
    h("p", { class: `verdict ${found.isEqual ? "good" : "warn"}`, role: "status" }, found.isEqual ? "Nothing differs." : "The two clusters differ."),
    h("p", { class: "small soft" }, totals.join(", ")),
    ...found.notes.map((note) => h("p", { class: "small soft" }, note)),
    found.deviations.length ? table("What differs", names.map((name) => ({
      name: name.replace(/_/g, " "), wrap: true,
      cell: (one) => (one[name] === null || one[name] === undefined ? "" : typeof one[name] === "object" ? JSON.stringify(one[name]) : String(one[name])),
    })), found.deviations) : h("span"),
  ];
}
