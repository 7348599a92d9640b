// Is it all right? One sentence first, then a picture, then each flow.

import { ago, isOld, nowOf, once, stateNow } from "./notes.js";
import { badge, clock, count, duration, h, kind, past, plural, put, rate, spark, svg, table } from "./view.js";

export function overview({ state, main }) {
  const verdict = h("p", { class: "verdict", role: "status", id: "verdict" });
  const picture = h("div");
  const list = h("div");
  main.append(h("h1", {}, "Is it all right?"), verdict, h("h2", {}, "Clusters and flows"), picture, h("h2", {}, "Flows"), list);
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

const OLD_MS = 45000; // as long as the row of a leader holds

/** What speaks against a flow though nothing of it is broken; empty where nothing does. */
function doubt(one) {
  if (one.state === "UNKNOWN") return "its state is not known";
  if (one.ageMs === null || one.ageMs > OLD_MS) return one.ageMs === null ? "no report yet" : `last report ${past(one.ageMs)}`;
  if (one.state === "STANDBY") return "STANDBY, and no leader reports";
  if (one.problem && one.reportedBy !== "here") return "not all of it is known"; // its row says why
  if (one.verified?.differences) return "its copy differs";
  if (last(one)?.answer === "different") return "its last verify found differences";
  return kind(one.state) === "warn" || one.loss.excess || one.unusualPartitions ? one.state : "";
}

/** The one sentence, and its level: good, warn or bad. */
export function sentence(state) {
  const { flows, problem } = state;
  if (isOld(state)) return [problem ? "Nobody knows." : "Nobody knows: nothing has answered for long.", "bad"];
  if (!flows.length) return ["No flow is configured.", "warn"];
  const bad = flows.filter((one) => kind(one.state) === "bad");
  const odd = flows.filter(doubt);
  const known = flows.filter((one) => one.loss.records !== null);
  const lost = known.reduce((sum, one) => sum + one.loss.records, 0);
  const unknown = flows.length - known.length;
  const dark = known.reduce((sum, one) => sum + one.loss.unknownPartitions, 0);
  const loss = unknown === flows.length ? "what would be lost is not known"
    : lost ? `${plural(lost, "record")} would be lost if the sources died now`
    : dark || unknown ? "nothing is known that would be lost if the sources died now" : "nothing would be lost if the sources died now";
  const hidden = [unknown && unknown < flows.length && plural(unknown, "flow"), dark && plural(dark, "partition")].filter(Boolean);
  const rest = hidden.length ? ` (of ${hidden.join(" and ")} it is not known)` : "";
  if (bad.length) return [`No: ${bad.map((one) => `${one.flow} is ${one.state}`).join(", ")}; ${loss}${rest}.`, "bad"];
  if (odd.length) return [`Check ${odd.map((one) => `${one.flow} (${doubt(one)})`).join(", ")}; ${loss}${rest}.`, "warn"];
  return [`Yes: ${flows.length === 1 ? "the flow copies" : `all ${flows.length} flows copy`}; ${loss}${rest}.`, "good"];
}

function flows(state) {
  return table(`${plural(state.flows.length, "flow")}; times are UTC`, [
    { name: "Flow", cell: (one) => h("a", { href: `#/flow/${encodeURIComponent(one.flow)}` }, one.flow) },
    { name: "State", cell: (one) => [badge(one.state, stateNow(state, one)), h("div", { class: "small soft" }, `since ${clock(one.sinceMs)}`)] },
    { name: "Lost if the source died now", cell: (one) => loss(one) },
    { name: "Lag", number: true, cell: (one) => [count(one.lag), lagUnknown(one)] },
    { name: "Lag, lately", cell: (one) => spark((state.history.get(one.flow) || []).map((row) => [row.at, row.lag]), `lag of ${one.flow}`) },
    { name: "Speed", number: true, cell: (one) => rate(speed(state, one)) },
    { name: "Caught up in", number: true, cell: (one) => caughtUp(state, one) },
    { name: "Last proof", cell: (one) => proof(state, one) },
    { name: "Guarantee", cell: (one) => one.guarantee || "?" },
    { name: "Reported by", cell: (one) => [one.reportedBy, h("div", { class: "small soft" }, ago(state, one))] },
  ], state.flows, { stacked: true, note: (one) => once(one.loss.excess, one.reason, one.problem).join("; ") });
}

export function loss(one) {
  if (one.loss.records === null) return "not known";
  const ms = one.loss.ms ? ` (${duration(one.loss.ms)})` : "";
  const dark = one.loss.unknownPartitions;
  return h("span", { class: one.loss.excess ? "bad" : one.loss.records || dark ? "" : "good" }, `${plural(one.loss.records, "record")}${ms}`, dark ? `; not known of ${plural(dark, "partition")}` : "");
}

/** The last `twinlog verify`; null where its leader has compared since, or nothing is known of one. */
function last(one) {
  const run = one.verifyRuns?.[0]; // the newest comes first
  return run && !(one.verified?.atMs > run.beganMs) ? run : null;
}

/** What was compared last, by a `twinlog verify` or by the leader while it copies. */
export function proof(state, one) {
  const run = last(one);
  if (run) {
    return h("span", { class: run.answer === "different" ? "bad" : "" }, `${run.answer}${run.isWhole ? "" : ", of a part"}`,
      h("div", { class: "small soft" }, `verify, ${since(state, one, run.beganMs)}`));
  }
  if (one.verified) return [compared(state, one), !one.verifyRuns && h("div", { class: "small soft" }, "verify: not known")];
  return !one.verifyRuns || one.ageMs === null ? "not known" : "none";
}

const since = (state, one, ms) => past(nowOf(state, one) - ms);

/** What of the copy its leader has compared with the source while it was made. */
export function compared(state, one) {
  const found = one.verified;
  if (!found) return "none";
  const when = found.atMs === null ? "nothing yet" : since(state, one, found.atMs);
  const equal = `${plural(found.records, "record")} equal${found.isComplete ? ", all that is copied" : ""}`;
  return h("span", { class: found.differences ? "bad" : "" },
    found.differences ? `${plural(found.differences, "range")} differ` : found.atMs === null ? "" : equal,
    h("div", { class: "small soft" }, when));
}

/** Bytes a second over the last half minute, or since the flow is in its state: one that was paused is at rest. */
export function speed(state, one, field = "bytesPerS") {
  const rows = (state.history.get(one.flow) || []).slice(-16);
  const isOf = (row) => row?.state === one.state;
  const seen = rows.slice(1).filter((row, n) => isOf(row) && isOf(rows[n])).map((row) => row[field]).filter((value) => value !== null);
  return seen.length ? seen.reduce((a, b) => a + b, 0) / seen.length : null;
}

/** Of how many partitions the number of waiting records says nothing. */
export function lagUnknown(one) {
  return one.lagUnknownPartitions ? `; not known of ${plural(one.lagUnknownPartitions, "partition")}` : "";
}

/** What would be lost is asked for once a second, and an answer may be late. */
const KEEPS_UP_MS = 5000;

export function caughtUp(state, one) {
  if (one.lagUnknownPartitions) return "?";
  if (one.lag === 0) return "caught up";
  // a stream that never ends has some records on their way, and is not behind for that
  if (one.loss.records !== null && one.loss.ms < KEEPS_UP_MS && !one.loss.unknownPartitions) return "keeps up";
  const seen = (state.history.get(one.flow) || []).filter((row) => row.lag !== null).slice(-15);
  if (one.lag === null || seen.length < 3) return "?";
  const [first, last] = [seen[0], seen[seen.length - 1]];
  const gained = (first.lag - last.lag) / Math.max(1, last.at - first.at);
  return gained > 0 ? duration(one.lag / gained) : "not at this pace";
}

const IN_A_SENTENCE = { "?": "not known when it is caught up", "not at this pace": "not caught up at this pace" };

/** The same, where no column says what it is about. */
export function catchesUp(state, one) {
  const found = caughtUp(state, one);
  return IN_A_SENTENCE[found] || (/\d/.test(found) ? `caught up in ${found}` : found);
}

/** The clusters on a ring; `wide` pixels, so that a narrow window shrinks distances and not the words. */
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
