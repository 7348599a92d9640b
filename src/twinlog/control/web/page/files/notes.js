// What went wrong, what to do, and how old what is shown is.

import { clock, h, past } from "./view.js";

const LATE_MS = 15000; // an answer may take ten seconds, and is asked for every two

/** Flows are shown as they were: the last question failed, or nothing has answered for long. */
export const isOld = ({ problem, askedMs }) => Boolean(problem) || (askedMs > 0 && Date.now() - askedMs > LATE_MS);

/** Above each screen while that is so. */
export function oldNote(state) {
  if (!isOld(state)) return [];
  return [state.problem && failure(state.problem), state.askedMs > 0 && h("p", { class: "warn" }, `The last answer came at ${clock(state.askedMs)} UTC. What is below is not of now.`)];
}

/** A flow's state in words: of now, or of the last answer. */
export const stateNow = (state, one) => (isOld(state) ? `was ${one.state}` : one.state);

/** How old a flow's numbers are by now, in milliseconds; null where it has none. */
export const ageNow = (state, one) => (one.ageMs === null ? null : one.ageMs + Date.now() - state.askedMs);

/** What time it is by the clock that a flow's times are of; a browser's own may be an hour off. */
export const nowOf = (state, one) => (one.asOfMs === null ? Date.now() : one.asOfMs + ageNow(state, one));

export function ago(state, one) {
  const age = ageNow(state, one);
  return age === null ? "never" : past(age);
}

/** These texts, and none that another of them says already. */
export function once(...texts) {
  const said = [...new Set(texts.filter(Boolean))];
  return said.filter((one) => !said.some((other) => other !== one && other.includes(one)));
}

/** A problem as it was answered. */
export function failure(error) {
  const problem = error.problem || {};
  return h("div", { class: "verdict bad", role: "alert" }, `${error.message}${problem.code ? ` [${problem.code}]` : ""}`,
    problem.do && h("div", { class: "small" }, problem.do));
}

/** What a code means, folded; `of` distinguishes it from those of others in the same list. */
export function advice(state, code, of = "") {
  const found = code && state.codes.get(code);
  if (!found) return code ? h("span", { class: "small" }, ` ${code}`) : null;
  return h("details", { class: "small", "data-of": of }, h("summary", {}, code), h("div", {}, found.meaning), found.advice && h("div", { class: "soft" }, found.advice));
}

/** A text and what its code means: texts for people end with their code, which is shown once. */
export function explained(state, text, code, of = "") {
  return [code && text ? text.replaceAll(` [${code}]`, "") : text, advice(state, code, of)];
}

export function missing(state, flow) {
  return h("p", { class: "verdict warn" }, state.flows.length ? `There is no flow ${flow} here.` : "Asking ...");
}
