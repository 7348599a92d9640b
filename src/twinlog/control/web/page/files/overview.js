// The overview: a verdict in one sentence, a picture of the clusters, then each flow.

import { ago, isOld, nowOf, once, stateNow } from "./notes.js";
import { badge, chart, clock, count, duration, h, kind, past, plural, put, rate, svg, table } from "./view.js";

export function overview({ state, main }) {
  const verdict = h("p", { class: "verdict", role: "status", id: "verdict" });
  const picture = h("div");
  const list = h("div");
  main.append(h("h1", {}, "Is replication healthy?"), verdict, h("h2", {}, "Clusters and flows"), picture, h("h2", {}, "Flows"), list);
  return {
    update() {
      const [text, level] = sentence(state);
      if (verdict.textContent !== text) verdict.textContent = text;
      verdict.className = `verdict ${level}`;
      put(picture, map(state, Math.min(600, picture.clientWidth || 600)));
      put(list, flows(state));
    },
  };
}

const SILENT_MS = 45000; // this process reports each second; the server leaves out outdated reports of other processes

/** Why a flow needs a check although none of its partitions has failed; empty if it does not. */
function doubt(one) {
  if (one.state === "UNKNOWN") return "state unknown";
  if (one.ageMs === null) return "no report yet";
  if (one.reportedBy === "here" && one.ageMs > SILENT_MS) return `last report ${past(one.ageMs)}`;
  if (one.state === "STANDBY") return "STANDBY, but no leader reports";
  if (one.problem && one.reportedBy !== "here") return "partly unknown"; // its row shows why
  if (one.verified?.differences) return "the copy differs";
  if (last(one)?.answer === "different") return "the last verify found differences";
  return kind(one.state) === "warn" || one.loss.excess || one.unusualPartitions ? one.state : "";
}

/** The verdict, and its level: good, warn or bad. */
export function sentence(state) {
  const { flows, problem } = state;
  if (isOld(state)) return [problem ? "Unknown." : "Unknown: no answer for 15 seconds.", "bad"];
  if (!flows.length) return ["No flow is configured.", "warn"];
  const bad = flows.filter((one) => kind(one.state) === "bad");
  const odd = flows.filter(doubt);
  const known = flows.filter((one) => one.loss.records !== null);
  const lost = known.reduce((sum, one) => sum + one.loss.records, 0);
  const unknown = flows.length - known.length;
  const dark = known.reduce((sum, one) => sum + one.loss.unknownPartitions, 0);
  const loss = unknown === flows.length ? "the possible loss is unknown"
    : lost ? `${plural(lost, "record")} would be lost if the sources died now`
    : dark || unknown ? "no loss is known if the sources died now" : "nothing would be lost if the sources died now";
  const hidden = [unknown && unknown < flows.length && plural(unknown, "flow"), dark && plural(dark, "partition")].filter(Boolean);
  const rest = hidden.length ? ` (unknown for ${hidden.join(" and ")})` : "";
  if (bad.length) return [`No: ${bad.map((one) => `${one.flow} is ${one.state}`).join(", ")}; ${loss}${rest}.`, "bad"];
  if (odd.length) return [`Check ${odd.map((one) => `${one.flow} (${doubt(one)})`).join(", ")}; ${loss}${rest}.`, "warn"];
  return [`Yes: ${flows.length === 1 ? "the flow is copying" : `all ${flows.length} flows are copying`}; ${loss}${rest}.`, "good"];
}

function flows(state) {
  return table(`${plural(state.flows.length, "flow")}; times are UTC`, [
    { name: "Flow", cell: (one) => h("a", { href: `#/flow/${encodeURIComponent(one.flow)}` }, one.flow) },
    { name: "State", cell: (one) => [badge(one.state, stateNow(state, one)), h("div", { class: "small soft" }, `since ${clock(one.sinceMs)}`)] },
    { name: "Lost if the source died now", cell: (one) => loss(one) },
    { name: "Lag", number: true, cell: (one) => [count(one.lag), lagUnknown(one)] },
    { name: "Lag, last hour", cell: (one) => chart((state.history.get(one.flow) || []).map((row) => [row.at, row.lag]), `lag of ${one.flow}`, (value) => plural(value, "record")) },
    { name: "Speed", number: true, cell: (one) => rate(speed(state, one)) },
    { name: "Caught up in", number: true, cell: (one) => caughtUp(state, one) },
    { name: "Last verification", cell: (one) => proof(state, one) },
    { name: "Guarantee", cell: (one) => one.guarantee || "?" },
    { name: "Reported by", cell: (one) => [one.reportedBy, h("div", { class: "small soft" }, ago(state, one))] },
  ], state.flows, { stacked: true, note: (one) => once(one.loss.excess, one.reason, one.problem).join("; ") });
}

export function loss(one) {
  if (one.loss.records === null) return "unknown";
  const ms = one.loss.ms ? ` (${duration(one.loss.ms)})` : "";
  const dark = one.loss.unknownPartitions;
  return h("span", { class: one.loss.excess ? "bad" : one.loss.records || dark ? "" : "good" }, `${plural(one.loss.records, "record")}${ms}`, unknownFor(dark));
}

/** The last run of `twinlog verify`; null if none is known, or if the leader has compared records since. */
function last(one) {
  const run = one.verifyRuns?.[0]; // the newest comes first
  return run && !(one.verified?.atMs > run.beganMs) ? run : null;
}

/** The last comparison: by `twinlog verify`, or by the leader during replication. */
export function proof(state, one) {
  const run = last(one);
  if (run) {
    return h("span", { class: run.answer === "different" ? "bad" : "" }, `${run.answer}${run.isWhole ? "" : ", partial"}`,
      h("div", { class: "small soft" }, `verify, ${since(state, one, run.beganMs)}`));
  }
  if (one.verified) return [compared(state, one), !one.verifyRuns && h("div", { class: "small soft" }, "verify: unknown")];
  return !one.verifyRuns || one.ageMs === null ? "unknown" : "none";
}

const since = (state, one, ms) => past(nowOf(state, one) - ms);

/** How much of the copy the flow's leader has compared with the source during replication. */
export function compared(state, one) {
  const found = one.verified;
  if (!found) return "none";
  const when = found.atMs === null ? "not yet" : since(state, one, found.atMs);
  const equal = `${plural(found.records, "record")} equal${found.isComplete ? ", all copied records" : ""}`;
  return h("span", { class: found.differences ? "bad" : "" },
    found.differences ? `${plural(found.differences, "range")} differ` : found.atMs === null ? "" : equal,
    h("div", { class: "small soft" }, when));
}

/** Bytes per second over the last half minute, or since the flow entered its state, because a paused flow has no speed. */
export function speed(state, one, field = "bytesPerS") {
  const rows = (state.history.get(one.flow) || []).slice(-16);
  const isOf = (row) => row?.state === one.state;
  const seen = rows.slice(1).filter((row, n) => isOf(row) && isOf(rows[n])).map((row) => row[field]).filter((value) => value !== null);
  return seen.length ? seen.reduce((a, b) => a + b, 0) / seen.length : null;
}

const unknownFor = (partitions) => partitions ? h("span", { class: "small" }, `; unknown for ${plural(partitions, "partition")}`) : "";

/** A note with the number of partitions whose lag is unknown, if there are any. */
export const lagUnknown = (one) => unknownFor(one.lagUnknownPartitions);

/** Possible loss up to which a flow keeps up. The loss is measured once a second, and a response may be late. */
const KEEPS_UP_MS = 5000;

export function caughtUp(state, one) {
  if (one.lagUnknownPartitions) return "?";
  if (one.lag === 0) return "caught up";
  // a continuous stream always has some records in flight, which do not count as lag here
  if (one.loss.records !== null && one.loss.ms < KEEPS_UP_MS && !one.loss.unknownPartitions) return "keeps up";
  const seen = (state.history.get(one.flow) || []).filter((row) => row.lag !== null).slice(-15);
  if (one.lag === null || seen.length < 3) return "?";
  const [first, last] = [seen[0], seen[seen.length - 1]];
  const gained = (first.lag - last.lag) / Math.max(1, last.at - first.at);
  return gained > 0 ? duration(one.lag / gained) : "not at this rate";
}

const IN_A_SENTENCE = { "?": "catch-up time unknown", "not at this rate": "not caught up at this rate" };

/** `caughtUp` as a sentence, for places without a column header. */
export function catchesUp(state, one) {
  const found = caughtUp(state, one);
  return IN_A_SENTENCE[found] || (/\d/.test(found) ? `caught up in ${found}` : found);
}

/** The clusters on a ring, `wide` pixels wide. A narrow window reduces the distances, not the text. */
function map(state, wide) {
  const { flows } = state;
  const names = [...new Set(flows.flatMap((one) => [one.source, one.target]))];
  const [high, radius] = [names.length > 2 ? 300 : 140, 34];
  const at = new Map(names.map((name, n) => {
    const turn = Math.PI + (2 * Math.PI * n) / names.length;
    return [name, [wide / 2 + Math.cos(turn) * Math.min(wide * 0.36, wide / 2 - radius - 14), high / 2 + Math.sin(turn) * high * 0.32]];
  }));
  const edges = flows.filter((one) => one.source !== one.target).map((one) => {
    const [[x1, y1], [x2, y2]] = [at.get(one.source), at.get(one.target)];
    const long = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [ux, uy] = [(x2 - x1) / long, (y2 - y1) / long];
    const [sx, sy, ex, ey] = [x1 + ux * (radius + 8), y1 + uy * 26, x2 - ux * (radius + 14), y2 - uy * 30];
    const [mx, my] = [(sx + ex) / 2 - uy * 28, (sy + ey) / 2 + ux * 28];
    const title = `${one.flow}: ${stateNow(state, one)}`;
    return svg("a", { href: `#/flow/${encodeURIComponent(one.flow)}`, "aria-label": title },
      svg("title", {}, title),
      svg("path", { class: `edge ${kind(one.state)}`, d: `M${sx} ${sy}Q${mx} ${my} ${ex} ${ey}`, "marker-end": "url(#tip)" }),
      svg("text", { x: (sx + ex) / 2 - uy * 36, y: (sy + ey) / 2 + ux * 30 + 4 }, stateNow(state, one)));
  });
  const nodes = names.map((name) => {
    const [x, y] = at.get(name);
    return [svg("rect", { class: "node", x: x - radius - 12, y: y - 20, width: 2 * radius + 24, height: 40, rx: 8 }),
      svg("text", { x, y: y + 5 }, name.length > 12 ? `${name.slice(0, 11)}…` : name, svg("title", {}, name))];
  });
  return svg("svg", { class: "map", viewBox: `0 0 ${wide} ${high}`, role: "group", "aria-label": flows.map((one) => `${one.flow} ${stateNow(state, one)}`).join(", ") },
    svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0 8 4 0 8z", fill: "context-stroke" }))),
    edges, nodes);
}
