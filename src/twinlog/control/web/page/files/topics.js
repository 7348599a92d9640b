// The topics of a flow: filter, sort, page. A topic unfolds to its partitions, each code to its advice.

import { ask, flowPath } from "./api.js";
import { changing } from "./change.js";
import { advice, explained, failure } from "./notes.js";
import { lagUnknown } from "./overview.js";
import { badge, bytes, chart, clock, count, duration, h, keptFor, plural, put, rate, table } from "./view.js";

const PAGE = 200;
const PARTITIONS = 50; // of a topic at once
const USUAL = { topic: "", state: "", code: "", sort: "-lag", offset: 0 };

export function topics({ state, main, flow, query, noted }) {
  const wish = { ...USUAL, ...Object.fromEntries([...query].filter(([name]) => name in USUAL)) };
  // an old address may name a column that only partitions have
  if (!SORTED.has(wish.sort.replace(/^-/, ""))) wish.sort = USUAL.sort;
  wish.offset = Math.min(1e7, Math.max(0, Math.round(Number(wish.offset)) || 0));
  const field = h("input", { type: "search", value: wish.topic, placeholder: "press / to search", input: () => soon() });
  const option = (name) => h("option", { value: name, selected: name === wish.state }, name || "any");
  const chosen = h("select", { change: () => again({ state: chosen.value, offset: 0 }) }, option(""), state.states.map(option));
  // only whole codes match, so the filter is applied when the input is complete
  const code = h("input", { list: "codes", value: wish.code, change: () => again({ code: code.value.trim().toUpperCase(), offset: 0 }) });
  const codes = h("datalist", { id: "codes" }, [...state.codes.keys()].sort().map((value) => h("option", { value })));
  const list = h("div", {}, h("p", { class: "small soft", role: "status" }, "Loading ..."));
  const pages = h("div", { class: "bar" });
  main.append(h("h1", {}, `Topics of ${flow}`),
    h("div", { class: "bar" }, h("label", {}, "Topic contains", field), h("label", {}, "State", chosen), h("label", {}, "Code", code), codes), list, pages);
  let waits = 0;
  let isOpen = true;
  let asking = 0;
  let number = 0; // of the last request: answers may arrive out of order
  let last = null;
  const unfolded = new Map(); // by topic: its partitions, and their logs on both clusters

  function soon() {
    clearTimeout(waits);
    waits = setTimeout(() => again({ topic: field.value, offset: 0 }), 250);
  }

  function again(change) {
    Object.assign(wish, change);
    for (const [topic] of unfolded) unfolded.set(topic, { offset: 0, historyAt: 0 });
    noted(Object.fromEntries(Object.entries(wish).filter(([name, value]) => value !== USUAL[name])));
    return load();
  }

  function filtered(query) {
    const asked = new URLSearchParams(query);
    for (const name of ["state", "code"]) if (wish[name]) asked.set(name, wish[name]);
    return asked;
  }

  async function load() {
    const asked = filtered({ sort: wish.sort, offset: wish.offset, limit: PAGE });
    if (wish.topic) asked.set("topic", wish.topic);
    const mine = ++number;
    asking++;
    try {
      const found = await ask(`${flowPath(flow)}/topics?${asked}`);
      if (!isOpen || mine !== number) return;
      // the list now ends before this page's first row
      if (found.offset > 0 && !found.topics.length) return again({ offset: Math.floor(Math.max(0, found.total - 1) / PAGE) * PAGE });
      show(found);
    } catch (error) {
      if (!isOpen || mine !== number) return;
      last = null;
      list.replaceChildren(failure(error));
      pages.replaceChildren();
    } finally {
      asking--;
    }
  }

  /** Load a topic's partitions, then the start and end of their logs on both clusters. */
  async function loadPartitions(topic) {
    const mine = unfolded.get(topic);
    if (mine.isAsked || Date.now() - mine.at < FRESH_MS) return;
    mine.isAsked = true;
    const isMine = () => isOpen && unfolded.get(topic) === mine;
    mine.problem = await problemOf(async () => {
      mine.found = await ask(`${flowPath(flow)}/partitions?${filtered({ ofTopic: topic, offset: mine.offset, limit: PARTITIONS })}`);
      if (isMine()) show(last);
    });
    await loadHistory(topic, mine);
    const numbers = (mine.found?.partitions || []).map((one) => one.partition);
    if (numbers.length && isMine() && !mine.problem) {
      mine.logsProblem = await problemOf(async () => {
        const asked = new URLSearchParams({ topic, partitions: numbers.join() });
        mine.logs = await ask(`${flowPath(flow)}/logs?${asked}`);
      });
    }
    Object.assign(mine, { at: Date.now(), isAsked: false });
    if (isMine()) show(last);
  }

  /** Load a topic's history. The leader adds a row every half minute; it has none for a topic with little traffic. */
  async function loadHistory(topic, mine) {
    if (Date.now() - mine.historyAt < HISTORY_MS) return;
    mine.historyAt = Date.now();
    await problemOf(async () => {
      const { rows } = await ask(`${flowPath(flow)}/topics/${encodeURIComponent(topic)}/history`);
      mine.history = rows;
    });
  }

  function turned(topic, offset) {
    unfolded.set(topic, { offset, historyAt: 0 });
    show(last);
  }

  function name(one) {
    const isUnfolded = unfolded.has(one.topic);
    const turn = () => (unfolded.delete(one.topic) ? show(last) : turned(one.topic, 0));
    return h("button", { class: "unfold", "aria-expanded": String(isUnfolded), click: turn }, one.topic);
  }

  function below({ topic }) {
    const mine = unfolded.get(topic);
    if (!mine) return null;
    const { found, logs } = mine;
    if (mine.problem) return failure(mine.problem);
    if (!found) return h("p", { class: "small soft", role: "status" }, "Loading ...");
    const to = mine.offset + found.partitions.length;
    const of = [wish.state, wish.code && `with ${wish.code}`].filter(Boolean).join(" ");
    const caption = `${plural(found.total, "partition")} of ${topic}${of && ` ${of}`}, ${count(found.total ? mine.offset + 1 : 0)} to ${count(to)}; ${asOf(mine)}`;
    const known = new Map((logs?.partitions || []).map((one) => [one.partition, one]));
    const rows = found.partitions.map((one) => ({ ...one, logs: known.get(one.partition) }));
    const turn = (text, offset, disabled) => h("button", { class: "do small", disabled, "aria-label": `${text} partitions of ${topic}`, click: () => turned(topic, offset) }, text);
    return [mine.logsProblem && failure(mine.logsProblem), charts(topic, mine.history),
      table(caption, PARTS, rows, { stacked: true, note: (one) => partNote(state, one) }),
      found.total > PARTITIONS && h("div", { class: "bar" }, turn("Previous", mine.offset - PARTITIONS, mine.offset === 0), turn("Next", to, to >= found.total))];
  }

  function show(found) {
    last = found;
    if (!found) return; // the last request for the list failed
    const to = found.offset + found.topics.length;
    const caption = `${plural(found.total, "topic")}, ${count(found.total ? found.offset + 1 : 0)} to ${count(to)}; reported by ${found.reportedBy === "here" ? "this process" : "both clusters"} at ${clock(found.asOfMs)} UTC`;
    const one = state.flows.find((each) => each.flow === flow);
    const wanted = one?.wanted ?? null;
    const note = wanted === null && h("p", { class: "warn" }, `The commands in effect for ${flow} are unknown, so Pause and Resume are not available${one?.problem ? `: ${one.problem}` : ""}`);
    const advices = (row) => row.codes.length > 0 && !unfolded.has(row.topic) && row.codes.map((code) => advice(state, code, row.topic));
    put(list, note, table(caption, COLUMNS(flow, wanted, name), found.topics, { sorted: wish.sort, onSort: (sort) => again({ sort, offset: 0 }), note: advices, below }));
    put(pages,
      h("button", { class: "do", disabled: found.offset === 0, click: () => again({ offset: Math.max(0, wish.offset - PAGE) }) }, "Previous"),
      h("button", { class: "do", disabled: to >= found.total, click: () => again({ offset: wish.offset + PAGE }) }, "Next"));
    for (const { topic } of found.topics) if (unfolded.has(topic)) loadPartitions(topic);
  }

  load();
  // one request at a time, because a response may take half a minute, and a browser has only six connections
  const timer = setInterval(() => !document.hidden && !asking && load(), 5000);
  return { close: () => ((isOpen = false), clearInterval(timer), clearTimeout(waits)) };
}

const FRESH_MS = 4000; // less than the list's interval: unfolded topics are loaded once per interval
const HISTORY_MS = 28000;

/** Lag and speed of a topic over the last hour. */
function charts(topic, rows) {
  if (!(rows?.length > 1)) return null;
  const speeds = rows.slice(1).map((row, n) => [row.atMs, speedOf(row, rows[n])]);
  const line = (name, shown, points) => h("div", { class: "card" }, h("span", { class: "small soft" }, name), chart(points, `${name} of ${topic}`, shown));
  return h("div", { class: "cards wide" },
    line("speed, last hour", rate, speeds), line("lag in records, last hour", count, rows.map((row) => [row.atMs, row.lag])));
}

/** Bytes per second since the previous row; null if the copy has started again in between. */
const speedOf = (row, before) => (row.bytes >= before.bytes && row.atMs > before.atMs ? ((row.bytes - before.bytes) * 1000) / (row.atMs - before.atMs) : null);

/** The error of a request, or null if it succeeded. */
async function problemOf(question) {
  try {
    await question();
    return null;
  } catch (error) {
    return error;
  }
}

const keeps = (one) => h("span", { class: one.isNearDeletion && "bad" }, keptFor(one));
const lagTime = (one) => (one.lagMs === null ? "?" : duration(one.lagMs));
const lossTime = (one) => one.lossMs > 0 && ` (${duration(one.lossMs)})`;
const lossUnknown = (one) => one.lossRecords !== null && one.lossUnknownPartitions > 0 && `; unknown for ${plural(one.lossUnknownPartitions, "partition")}`;

const COLUMNS = (flow, wanted, name) => [
  { name: "Topic", sort: "topic", cell: name },
  { name: "State", sort: "state", cell: (one) => badge(one.state) },
  { name: "Partitions", sort: "partitions", number: true, cell: (one) => count(one.partitions) },
  { name: "Partitions with problems", sort: "unusualPartitions", number: true, cell: (one) => count(one.unusualPartitions) },
  { name: "Lag", sort: "lag", number: true, cell: (one) => [count(one.lag), one.lag !== null && lagUnknown(one)] },
  { name: "Lag, time", number: true, cell: lagTime },
  { name: "Would be lost", sort: "lossRecords", number: true, cell: (one) => [count(one.lossRecords), lossTime(one), lossUnknown(one)] },
  { name: "Kept by the source for", sort: "keptMs", number: true, cell: keeps },
  { name: "Copied", sort: "records", number: true, cell: (one) => count(one.records) },
  { name: "Bytes copied", sort: "bytes", number: true, cell: (one) => bytes(one.bytes) },
  { name: "Target topic", cell: (one) => one.targetTopic },
  { name: "Actions", cell: (one) => (one.state === "PROMOTED" ? "" : act(flow, wanted, one.topic)) },
];
const SORTED = new Set([...COLUMNS().map((column) => column.sort), "lossMs"]);

const side = (one, which) => one.logs?.[which];
const hasNone = (one) => one.logs && !one.logs.target; // the topic does not exist on the target yet
const second = (...texts) => h("div", { class: "small soft" }, texts);

/** Which logs are shown, and as of when. If a cluster is unreachable, all its partitions have a problem. */
function asOf({ logs, logsProblem }) {
  if (!logs) return logsProblem ? "both logs unknown" : "querying both clusters ...";
  const isAway = (which) => logs.partitions.length > 0 && logs.partitions.every((one) => one[which]?.problem);
  const [source, target] = [isAway("source"), isAway("target")];
  if (source && target) return "both logs unknown";
  const known = source ? "the target's logs" : target ? "the source's logs" : "both logs";
  return `${known} as of ${clock(logs.asOfMs)} UTC`;
}

function leader(log) {
  if (!log || log.leader === null) return log?.end >= 0 && log.end !== null ? "none" : "?";
  return `${log.leader}; in sync ${log.inSync.join(", ")} of ${log.replicas.join(", ")}`;
}

function catchesUp(one) {
  if (one.keptMs === null) return "";
  if (one.catchesUpMs === null) return "not catching up";
  return one.catchesUpMs ? `caught up in ${duration(one.catchesUpMs)}` : "catch-up time unknown";
}

/** Columns of a partition, which fit a window of 1200 pixels. Fields of its logs are `?` until both clusters have responded. */
const PARTS = [
  { name: "Partition", number: true, cell: (one) => String(one.partition) },
  { name: "State", cell: (one) => [badge(one.state), second(`since ${clock(one.sinceMs)}`)] },
  { name: "Source start", number: true, cell: (one) => count(side(one, "source")?.start) },
  { name: "Last stable", number: true, cell: (one) => count(side(one, "source")?.lastStable) },
  { name: "Source end", number: true, cell: (one) => count(side(one, "source")?.end) },
  { name: "Copied to", number: true, cell: (one) => count(one.nextOffset) },
  { name: "Target end", number: true, cell: (one) => (hasNone(one) ? "none" : count(side(one, "target")?.end)) },
  { name: "Lag", number: true, cell: (one) => [count(one.lag), second(one.lagMs === null ? "? s" : duration(one.lagMs))] },
  { name: "Would be lost", number: true, cell: (one) => [count(one.lossRecords), second(one.lossMs > 0 && duration(one.lossMs))] },
  { name: "Kept by the source for", number: true, cell: (one) => [keeps(one), second(catchesUp(one))] },
  { name: "Leaders", cell: (one) => [h("div", {}, `source: ${leader(side(one, "source"))}`), h("div", {}, `target: ${hasNone(one) ? "none" : leader(side(one, "target"))}`)] },
  { name: "Copied", number: true, cell: (one) => [count(one.records), second(one.lane === null ? "no lane here" : `lane ${one.lane}`)] },
];

function partNote(state, one) {
  const problems = ["source", "target"].filter((which) => side(one, which)?.problem).map((which) => h("div", {}, `${which}: ${side(one, which).problem}`));
  return (one.message || one.code || problems.length > 0) && [explained(state, one.message, one.code, `${one.topic}-${one.partition}`), problems];
}

/** The button that resumes a topic if it was paused or released by name, and pauses it otherwise, also in a paused flow. */
function act(flow, wanted, topic) {
  if (wanted === null) return "unknown";
  const isNamed = wanted.some((row) => row.topic === topic && (row.intent === "pause" || row.intent === "release"));
  const [what, title] = isNamed ? ["topics/resume", "Resume"] : ["topics/pause", "Pause"];
  const topics = [topic.replace(/[.]/g, "\\.")];
  return h("button", { class: "do small", click: () => changing(what, flow, title, { topics }), "aria-label": `${title} ${topic}` }, title);
}
