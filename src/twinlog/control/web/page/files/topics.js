// Which topic? Filter, sort, page; each code says what to do.

import { ask, flowPath } from "./api.js";
import { changing } from "./change.js";
import { advice, failure } from "./told.js";
import { badge, clock, count, duration, h, keptFor, plural, put, table } from "./view.js";

const PAGE = 200;
const USUAL = { topic: "", state: "", code: "", sort: "-lag", offset: 0 };

export function topics({ state, main, flow, query, noted }) {
  const wish = { ...USUAL, ...Object.fromEntries([...query].filter(([name]) => name in USUAL)) };
  wish.offset = Math.max(0, Math.round(Number(wish.offset)) || 0);
  const field = h("input", { type: "search", value: wish.topic, placeholder: "press / to come here", input: () => soon() });
  const option = (name) => h("option", { value: name, selected: name === wish.state }, name || "any");
  const chosen = h("select", { change: () => again({ state: chosen.value, offset: 0 }) }, option(""), state.states.map(option));
  // all of a code, so that what is half written finds nothing: asked when it is written
  const code = h("input", { list: "codes", value: wish.code, change: () => again({ code: code.value.trim().toUpperCase(), offset: 0 }) });
  const codes = h("datalist", { id: "codes" }, [...state.codes.keys()].sort().map((value) => h("option", { value })));
  const list = h("div");
  const pages = h("div", { class: "bar" });
  main.append(h("h1", {}, `Topics of ${flow}`),
    h("div", { class: "bar" }, h("label", {}, "Topic contains", field), h("label", {}, "State", chosen), h("label", {}, "Code", code), codes), list, pages);
  let waits = 0;
  let isOpen = true;
  let number = 0; // an answer to an earlier question may come last
  let last = null;
  const logs = new Map(); // by partition: what both clusters said of it when it was unfolded

  function soon() {
    clearTimeout(waits);
    waits = setTimeout(() => again({ topic: field.value, offset: 0 }), 250);
  }

  function again(change) {
    Object.assign(wish, change);
    noted(Object.fromEntries(Object.entries(wish).filter(([name, value]) => value !== USUAL[name])));
    return load();
  }

  async function load() {
    const asked = new URLSearchParams({ sort: wish.sort, offset: wish.offset, limit: PAGE });
    if (wish.topic) asked.set("topic", wish.topic);
    if (wish.state) asked.set("state", wish.state);
    if (wish.code) asked.set("code", wish.code);
    const mine = ++number;
    try {
      const found = await ask(`${flowPath(flow)}/partitions?${asked}`);
      if (isOpen && mine === number) show(found);
    } catch (error) {
      if (isOpen && mine === number) list.replaceChildren(failure(error));
    }
  }

  /** Where both logs of a partition begin and end, asked when somebody looks. */
  async function look(one, name) {
    const before = logs.get(name);
    if (before && (before.isAsked || Date.now() - before.at < FRESH_MS)) return;
    logs.set(name, { ...before, isAsked: true });
    const asked = new URLSearchParams({ topic: one.topic, partition: one.partition });
    try {
      logs.set(name, { at: Date.now(), found: await ask(`${flowPath(flow)}/logs?${asked}`) });
    } catch (error) {
      logs.set(name, { at: Date.now(), error });
    }
    if (isOpen && last) show(last);
  }

  function unfolded(one) {
    const name = `${one.topic}-${one.partition}`;
    const known = logs.get(name);
    return h("details", { toggle: (event) => event.target.open && look(one, name) }, h("summary", {}, name),
      known?.error ? failure(known.error) : known?.found ? bothLogs(known.found) : h("p", { class: "small soft" }, "Asking both clusters ..."));
  }

  function show(found) {
    last = found;
    const to = found.offset + found.partitions.length;
    const caption = `${plural(found.total, "partition")}, ${count(found.total ? found.offset + 1 : 0)} to ${count(to)}; reported by ${found.toldBy === "here" ? "this process" : "both clusters"} at ${clock(found.asOfMs)} UTC`;
    const one = state.flows.find((each) => each.flow === flow);
    const wanted = one?.wanted ?? null;
    const note = wanted === null && h("p", { class: "warn" }, `What people want of ${flow} is not known, so neither Pause nor Resume is offered${one?.problem ? `: ${one.problem}` : ""}`);
    put(list, note, table(caption, COLUMNS(flow, wanted, unfolded), found.partitions, { sorted: wish.sort, onSort: (sort) => again({ sort, offset: 0 }), note: (one) => (one.message || one.code) && [one.message, advice(state, one.code)] }));
    put(pages,
      h("button", { class: "do", disabled: found.offset === 0, click: () => again({ offset: Math.max(0, wish.offset - PAGE) }) }, "Before"),
      h("button", { class: "do", disabled: to >= found.total, click: () => again({ offset: wish.offset + PAGE }) }, "Next"));
  }

  load();
  const timer = setInterval(() => !document.hidden && load(), 5000);
  return { close: () => ((isOpen = false), clearInterval(timer), clearTimeout(waits)) };
}

const FRESH_MS = 4000; // less than a turn of the list: what is unfolded is asked for once a turn

function bothLogs(found) {
  const log = (one) => !one ? "none" : [
    one.end === null ? "" : `${count(one.start)} to ${count(one.end)}, last stable ${count(one.lastStable)}`,
    one.leader === null ? (one.end === null ? "" : "no leader") : `leader ${one.leader}, in sync ${one.inSync.join(", ")} of ${one.replicas.join(", ")}`,
    one.problem].filter(Boolean).join("; ");
  const lines = [["source", log(found.source)], ["copied to", count(found.nextOffset)],
    ["lane", found.lane === null ? "none here" : String(found.lane)], ["target", log(found.target)], ["asked", `${clock(found.asOfMs)} UTC`]];
  return h("ul", { class: "plain small" }, lines.map(([name, text]) => h("li", {}, h("span", { class: "soft" }, `${name}: `), text)));
}

const COLUMNS = (flow, wanted, unfolded) => [
  { name: "Topic", sort: "topic", cell: unfolded },
  { name: "State", cell: (one) => badge(one.state) },
  { name: "Lag", sort: "lag", number: true, cell: (one) => count(one.lag) },
  { name: "Lag, time", number: true, cell: (one) => (one.lagMs === null ? "?" : duration(one.lagMs)) },
  { name: "Would be lost", sort: "lossRecords", number: true, cell: (one) => count(one.lossRecords) },
  { name: "Kept by the source for", sort: "keptMs", number: true, cell: (one) => h("span", { class: one.isNearDeletion && "bad" }, keptFor(one)) },
  { name: "Next offset", number: true, cell: (one) => count(one.nextOffset) },
  { name: "On the target", cell: (one) => one.targetTopic },
  { name: "Catches up in", number: true, cell: (one) => (one.keptMs === null ? "" : one.catchesUpMs === null ? "no nearer" : one.catchesUpMs ? duration(one.catchesUpMs) : "?") },
  { name: "Copied", sort: "records", number: true, cell: (one) => count(one.records) },
  { name: "Since", sort: "sinceMs", cell: (one) => (one.sinceMs === null ? "?" : new Date(one.sinceMs).toISOString().slice(11, 19)) },
  { name: "Steer", cell: (one) => act(flow, wanted, one.topic) },
];

/** What was named is resumed; of a flow that is paused as a whole no topic can be, but each may be named besides. */
function act(flow, wanted, topic) {
  if (wanted === null) return "not known";
  const isNamed = wanted.some((row) => row.topic === topic && (row.intent === "pause" || row.intent === "release"));
  const [what, title] = isNamed ? ["topics/resume", "Resume"] : ["topics/pause", "Pause"];
  const topics = [topic.replace(/[.]/g, "\\.")];
  return h("button", { class: "do small", click: () => changing(what, flow, title, { topics }), "aria-label": `${title} ${topic}` }, title);
}
