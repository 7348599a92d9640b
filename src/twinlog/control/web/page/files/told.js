// What went wrong, and what to do.

import { h } from "./view.js";

/** A problem as it was answered. */
export function failure(error) {
  const problem = error.problem || {};
  return h("div", { class: "verdict bad", role: "alert" }, `${error.message}${problem.code ? ` [${problem.code}]` : ""}`,
    problem.do && h("div", { class: "small" }, problem.do));
}

/** What a code means, folded. */
export function advice(state, code) {
  const found = code && state.codes.get(code);
  if (!found) return code ? h("span", { class: "small" }, ` ${code}`) : null;
  return h("details", { class: "small" }, h("summary", {}, code), h("div", {}, found.meaning), found.advice && h("div", { class: "soft" }, found.advice));
}

export function missing(state, flow) {
  return state.problem ? failure(state.problem) : h("p", { class: "verdict warn" }, state.flows.length ? `There is no flow ${flow} here.` : "Asking ...");
}
