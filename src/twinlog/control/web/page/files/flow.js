// One flow: its state, progress and speed, why it is not faster, and the commands in effect.

import { ask, flowPath } from "./api.js";
import { catchesUp, lagUnknown, loss, proof, speed } from "./overview.js";
import { ago, explained, failure, missing, stateNow } from "./notes.js";
import { badge, card, chart, clock, count, duration, h, keptFor, plural, put, rate, table } from "./view.js";
import { changing } from "./change.js";

export function flowScreen({ state, main, flow }) {
  const [head, numbers, lines, wanted, doctor, last] = Array.from({ length: 6 }, () => h("div"));
  const why = h("button", { class: "do", click: () => diagnose() }, "Why is it not faster?");
  const bar = h("div", { class: "bar" },
    h("button", { class: "do", click: () => changing("pause", flow, "Pause") }, "Pause"),
    h("button", { class: "do", click: () => changing("resume", flow, "Resume") }, "Resume"),
    h("button", { class: "do", click: () => changing("limit", flow, "Limit") }, "Limit"), why);
  const known = h("div", { hidden: true }, bar, numbers, doctor, h("h2", {}, "The last hour"), lines, h("h2", {}, "Commands in effect"), wanted, h("h2", {}, "Latest events (UTC)"), last);
  main.append(head, known);
  let marks = [];

  async function diagnose() {
    why.disabled = true;
    doctor.replaceChildren(h("p", { class: "soft", role: "status" }, "Measuring for a few seconds ..."));
    try {
      const found = await ask(`${flowPath(flow)}/doctor`);
      doctor.replaceChildren(h("h2", {}, "Why is it not faster?"),
        found.findings.length
          ? h("ol", {}, found.findings.map((one) => h("li", {}, one.what, h("div", { class: "small soft" }, one.todo))))
          : h("p", {}, "No bottleneck found."),
        found.notes.map((note) => h("p", { class: "small soft" }, note)));
    } catch (error) {
      doctor.replaceChildren(failure(error));
    }
    why.disabled = false;
  }

  async function recent() {
    try {
      const { events } = await ask(`/events?limit=8&flow=${encodeURIComponent(flow)}`);
      marks = events.map((one) => [one.atMs, `${clock(one.atMs)} ${one.message}`]);
      put(last, events.length
        ? h("ul", { class: "plain small" }, events.reverse().map((one) => h("li", {}, h("span", { class: "soft" }, `${clock(one.atMs, 23)} `), explained(state, one.message, one.code))))
        : h("p", { class: "soft" }, "No events."));
    } catch (error) {
      last.replaceChildren(failure(error));
    }
  }
  recent();
  const timer = setInterval(recent, 5000);

  return {
    close: () => clearInterval(timer),
    update() {
      const one = state.flows.find((each) => each.flow === flow);
      known.hidden = !one;
      if (!one) return put(head, missing(state, flow));
      const recordsPerS = speed(state, one, "recordsPerS");
      const seen = state.history.get(flow) || [];
      put(head,
        h("h1", {}, `${flow} `, badge(one.state, stateNow(state, one))),
        h("p", {}, `since ${clock(one.sinceMs)} UTC`, explained(state, one.reason && `: ${one.reason}`, one.code)),
        one.problem && !one.reason.includes(one.problem) && h("p", { class: "warn" }, one.problem));
      put(numbers, h("div", { class: "cards" },
        card("lost if the source died now", loss(one), one.loss.excess || (one.loss.objectiveMs ? `objective ${duration(one.loss.objectiveMs)}` : "")),
        card("lag, records", [count(one.lag), lagUnknown(one)], one.lag === null ? "see Topics" : catchesUp(state, one)),
        card("speed", rate(speed(state, one)), `${count(recordsPerS && Math.round(recordsPerS))} records/s`),
        card("latency, p50", one.latency ? duration(one.latency.p50Ms) : "?", one.latency ? `p99 ${duration(one.latency.p99Ms)} over the last minute` : "no batch in the last minute"),
        card("source retention", kept(one), retention(one)),
        card(`copied by ${one.reportedBy === "here" ? "this process" : one.reportedBy}`, count(one.records), "records"),
        card("partitions", count(one.partitions), one.unusualPartitions ? `${plural(one.unusualPartitions, "partition")} with problems` : ""),
        card("last verification", proof(state, one)),
        card("guarantee", one.guarantee || "?"),
        card("lanes", count(one.lanes), one.generation === null ? "" : `generation ${one.generation}`),
        card("reported by", one.reportedBy, ago(state, one))));
      const line = (label, field, shown) => h("div", { class: "card" }, h("span", { class: "small soft" }, label),
        chart(seen.map((row) => [row.at, row[field]]), label, shown, marks));
      put(lines, h("div", { class: "cards wide" },
        line("speed, bytes", "bytesPerS", rate), line("speed, records", "recordsPerS", (value) => `${count(Math.round(value))}/s`),
        line("lag, records", "lag", count), line("latency, p50", "p50", duration), line("latency, p99", "p99", duration),
        line("records that would be lost", "loss", count), line("time that would be lost", "lossMs", duration)),
        marks.length > 0 && h("p", { class: "small soft" }, "Dashed lines are the events below."));
      put(wanted, one.wanted === null ? h("p", { class: "soft" }, `Unknown${one.problem && ", for the reason above"}.`)
        : one.wanted.length ? table("Commands", [
          { name: "Command", cell: (row) => row.intent },
          { name: "Topic", cell: (row) => row.topic || "the flow" },
          { name: "Rate", number: true, cell: (row) => (row.bytesPerSecond === null ? "" : rate(row.bytesPerSecond)) },
          { name: "Set by", cell: (row) => row.who },
          { name: "Set at (UTC)", cell: (row) => clock(row.atMs) },
          { name: "Reason", wrap: true, cell: (row) => row.reason },
        ], one.wanted)
        : h("p", { class: "soft" }, "None: the flow runs as configured."));
    },
  };
}

/** How long the source keeps waiting records: the shortest time of all partitions. */
function kept(one) {
  if (!one.retention) return one.reportedBy === "here" && one.state !== "STANDBY" ? "unknown" : "known to the leader only";
  return h("span", { class: one.retention.nearDeletion.length ? "bad" : "" }, keptFor(one.retention));
}

function retention({ flow, retention: found }) {
  if (!found) return "";
  const near = found.nearDeletion;
  if (near.length) return h("a", { href: `#/flow/${encodeURIComponent(flow)}/topics?sort=keptMs` }, `will lose records of ${plural(near.length, "topic")}: ${near.slice(0, 3).join(", ")}`);
  if (found.topic) return `until records of ${found.topic} are deleted${found.keptKnown ? "" : "; unknown for other partitions"}`;
  return found.keptKnown ? "no waiting records will be deleted" : "";
}
