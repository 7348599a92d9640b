// The router, the poll of /flows every two seconds, and the history of the last hour.

import { Refused, WITHIN_MS, ask, flowPath, setToken } from "./api.js";
import { h, learn, past, put } from "./view.js";
import { isOld, oldNote } from "./notes.js";
import { overview } from "./overview.js";
import { flowScreen } from "./flow.js";
import { topics } from "./topics.js";
import { groups } from "./groups.js";
import { cutover } from "./cutover.js";
import { compare } from "./compare.js";
import { events } from "./events.js";

const EVERY_MS = 2000;
const KEPT_MS = 3600000;

/** Shared by all screens: the flows as last reported, and their history. */
const state = { flows: [], history: new Map(), codes: new Map(), states: [], problem: null, askedMs: 0 };

const OF_FLOW = { "": flowScreen, topics, groups, cutover, compare };
const NAMES = { "": "Flow", topics: "Topics", groups: "Groups", cutover: "Cut-over", compare: "Compare" };
const main = document.getElementById("main");
const note = h("div"); // above each screen
let screen = null;
let isAsked = false; // the user is asked to sign in: no screen opens until then

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decoded);
  return { ...screenOf(parts), query: new URLSearchParams(query || "") };
}

function screenOf(parts) {
  if (parts[0] === "flow" && parts[1]) {
    const name = Object.hasOwn(OF_FLOW, parts[2]) ? parts[2] : "";
    return { make: OF_FLOW[name], flow: parts[1], name };
  }
  if (parts[0] === "events") return { make: events, flow: "", name: "events" };
  return { make: overview, flow: "", name: "overview" };
}

/** Keep the screen's filters in the address, so that the address can be shared. */
function noted(values) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  history.replaceState(null, "", `${location.hash.split("?")[0] || "#/"}${query.size ? `?${query}` : ""}`);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // not an address of this page
  }
}

function links(here) {
  const link = (href, text, isHere) => h("a", { href, "aria-current": isHere && "page" }, text);
  const found = [link("#/", "Overview", here.name === "overview")];
  const flow = here.flow || (state.flows.length === 1 ? state.flows[0].flow : "");
  if (flow) {
    if (state.flows.length > 1) found.push(h("span", { class: "soft" }, flow));
    for (const [name, text] of Object.entries(NAMES))
      found.push(link(`#/flow/${encodeURIComponent(flow)}${name && `/${name}`}`, text, here.flow === flow && here.name === name));
  }
  found.push(link("#/events", "Events", here.name === "events"));
  put(document.getElementById("screens"), found);
}

function open() {
  const here = route();
  screen?.close?.();
  document.getElementById("dialog").close(); // it belongs to the previous screen
  main.replaceChildren(note);
  screen = here.make({ state, main, flow: here.flow, query: here.query, noted });
  links(here);
  document.title = `${here.flow || "Twinlog"} ${NAMES[here.name] || here.name} - Twinlog`;
  screen.update?.();
}

/** A row with its speed since the previous row. The speed is null if the copy has started again in between. */
function withSpeed(row, before) {
  const seconds = before ? (row.at - before.at) / 1000 : 0;
  const isOn = seconds > 0 && row.bytes !== null && before.bytes !== null && row.bytes >= before.bytes && row.generation === before.generation;
  const perSecond = (field) => (isOn ? (row[field] - before[field]) / seconds : null);
  return { ...row, bytesPerS: perSecond("bytes"), recordsPerS: perSecond("records") };
}

function remember(flows) {
  for (const one of flows) {
    if (!state.history.has(one.flow)) recall(one.flow);
    const seen = state.history.get(one.flow);
    const before = seen[seen.length - 1];
    if (before && before.asOf === one.asOfMs && one.asOfMs !== null) continue; // reported before
    const at = one.asOfMs ?? Date.now(); // by the clock of the process: the browser's may differ
    seen.push(withSpeed({
      at, asOf: one.asOfMs, lag: one.lag, loss: one.loss.records, lossMs: one.loss.ms, bytes: one.bytes, records: one.records,
      generation: one.generation, state: one.state, p50: one.latency?.p50Ms ?? null, p99: one.latency?.p99Ms ?? null,
    }, before));
    while (seen[0].at < at - KEPT_MS) seen.shift();
  }
}

/** Request the history of a flow from before the page was opened. Only the process that leads the flow has it. */
async function recall(flow) {
  const seen = [];
  state.history.set(flow, seen);
  try {
    const { rows } = await ask(`${flowPath(flow)}/history`, undefined, WITHIN_MS);
    const older = rows
      .map((one) => ({ ...one, at: one.atMs, asOf: one.atMs, loss: one.lossRecords, p50: one.p50Ms, p99: one.p99Ms }))
      .filter((one) => !seen.length || one.at < seen[0].at);
    seen.unshift(...older.map((one, n) => withSpeed(one, older[n - 1])));
    screen?.update?.(); // the next poll is seconds away
  } catch {
    // ignored, because the poll shows why the process does not respond
  }
}

async function poll() {
  try {
    if (!state.codes.size) {
      const found = await ask("/codes", undefined, WITHIN_MS);
      state.states = found.partitionStates.map((one) => one.state);
      learn([...found.flowStates, ...found.partitionStates]);
      for (const one of found.codes) state.codes.set(one.code, one);
    }
    const { flows } = await ask("/flows", undefined, WITHIN_MS);
    state.problem = null;
    state.flows = flows;
    state.askedMs = Date.now();
    remember(flows);
  } catch (error) {
    state.problem = error;
    if (error.status === 401) return login(error);
  }
  setTimeout(poll, EVERY_MS); // also if a screen cannot show the answer
  age();
  if (screen === null) open();
  else {
    links(route());
    screen.update?.();
  }
}

function login(error) {
  screen?.close?.();
  screen = null;
  isAsked = true;
  setToken("");
  // without a valid token no earlier data stays on the screen
  Object.assign(state, { flows: [], history: new Map(), askedMs: 0 });
  document.getElementById("screens").replaceChildren();
  document.getElementById("dialog").close();
  document.getElementById("dialog").replaceChildren();
  const field = h("input", { type: "password", name: "token", autocomplete: "off", required: true });
  main.replaceChildren(
    h("h1", {}, "Sign in"),
    h("p", {}, error.problem.what),
    h("form", {
      submit: (event) => {
        event.preventDefault();
        if (!isAsked) return; // submitted twice
        isAsked = false;
        setToken(field.value.trim());
        poll();
      },
    }, h("div", { class: "bar" }, h("label", {}, "Token", field), h("button", { class: "do first" }, "Sign in"))),
    h("p", { class: "small soft" }, "twinlog token new creates a token. It is stored for this tab only."),
  );
  field.focus();
}

function age() {
  main.classList.toggle("old", isOld(state));
  put(note, oldNote(state));
  const text = state.problem instanceof Refused
    ? `not up to date: ${state.problem.message}`
    : state.askedMs ? `updated ${past(Date.now() - state.askedMs)}` : "";
  document.getElementById("age").textContent = text;
}

addEventListener("hashchange", () => {
  if (isAsked || screen === null) return;
  open();
  main.focus();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // #main is not the address of a screen
  main.focus();
});
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    const filter = document.querySelector("input[type=search]");
    if (filter) event.preventDefault(), filter.focus();
  }
});
setInterval(() => {
  age();
  if (isOld(state)) screen?.update?.(); // ages grow even without answers
}, 1000);
poll();
