// Problems, advice, and the age of the data shown.

import { clock, h, past } from "./view.js";

const LATE_MS = 15000; // a response may take ten seconds, and is requested every two seconds

/** True if the flows shown are old, because the last request failed or no response came for LATE_MS. */
export const isOld = ({ problem, askedMs }) => Boolean(problem) || (askedMs > 0 && Date.now() - askedMs > LATE_MS);

/** The note above each screen while the data is old. */
export function oldNote(state) {
  if (!isOld(state)) return [];
  return [state.problem && failure(state.problem), state.askedMs > 0 && h("p", { class: "warn" }, `Last update at ${clock(state.askedMs)} UTC. The data below is out of date.`)];
}

/** A flow's state, or "was STATE" while the data is old. */
export const stateNow = (state, one) => (isOld(state) ? `was ${one.state}` : one.state);

/** The current age of a flow's numbers in milliseconds, or null if it has none. */
export const ageNow = (state, one) => (one.ageMs === null ? null : one.ageMs + Date.now() - state.askedMs);

/** The current time by the clock of the process that reports the flow; the browser's clock may be an hour off. */
export const nowOf = (state, one) => (one.asOfMs === null ? Date.now() : one.asOfMs + ageNow(state, one));

export function ago(state, one) {
  const age = ageNow(state, one);
  return age === null ? "never" : past(age);
}

/** The texts without duplicates, and without texts that are part of another text. */
export function once(...texts) {
  const said = [...new Set(texts.filter(Boolean))];
  return said.filter((one) => !said.some((other) => other !== one && other.includes(one)));
}

/** An error of the server, with its code and advice. */
export function failure(error) {
  const problem = error.problem || {};
  return h("div", { class: "verdict bad", role: "alert" }, `${error.message}${problem.code ? ` [${problem.code}]` : ""}`,
    problem.do && h("div", { class: "small" }, problem.do));
}

/** The meaning of a code, in a folded element. `of` distinguishes equal codes in one list. */
export function advice(state, code, of = "") {
  const found = code && state.codes.get(code);
  if (!found) return code ? h("span", { class: "small" }, ` ${code}`) : null;
  return h("details", { class: "small", "data-of": of }, h("summary", {}, code), h("div", {}, found.meaning), found.advice && h("div", { class: "soft" }, found.advice));
}

/** A text and the meaning of its code. Messages end with their code, which is shown only once. */
export function explained(state, text, code, of = "") {
  return [code && text ? text.replaceAll(` [${code}]`, "") : text, advice(state, code, of)];
}

export function missing(state, flow) {
  return h("p", { class: "verdict warn" }, state.flows.length ? `There is no flow ${flow}.` : "Loading ...");
}
