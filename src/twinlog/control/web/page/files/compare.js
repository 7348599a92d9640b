// Differences between the two clusters of a flow, by the flow's rules.

import { ask, flowPath } from "./api.js";
import { compared } from "./overview.js";
import { failure, nowOf } from "./notes.js";
import { count, duration, h, past, plural, put, table, words } from "./view.js";

export function compare({ state, main, flow }) {
  const last = h("div");
  const body = h("div");
  const all = h("input", { type: "checkbox" });
  const again = h("button", { class: "do first", click: () => load() }, "Compare");
  main.append(h("h1", {}, `Compare ${flow}`), last, h("div", { class: "bar" }, again, h("label", {}, "include differences that the flow does not sync", all)), body);
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
      put(last, one ? [h("p", {}, "Records compared during replication: ", compared(state, one)), runs(state, one)] : []);
    },
  };
}

/** The last results of `twinlog verify`: for the whole flow, and for a part of the flow. */
function runs(state, one) {
  const found = one.verifyRuns;
  if (!found?.length) return h("p", {}, found ? "No run of twinlog verify is recorded for this flow." : "The last results of twinlog verify are unknown.");
  const now = nowOf(state, one);
  return table("Last results of twinlog verify", [
    { name: "Result", cell: (run) => h("span", { class: `badge ${{ identical: "good", different: "bad" }[run.answer] || "warn"}` }, run.answer) },
    { name: "Started", cell: (run) => [past(now - run.beganMs), h("div", { class: "small soft" }, `by ${run.who}, in ${duration(run.endedMs - run.beganMs)}`)] },
    { name: "Scope", wrap: true, cell: scope },
    { name: "Equal", number: true, cell: (run) => [plural(run.equalRecords, "record"), h("div", { class: "small soft" }, plural(run.partitions, "partition"))] },
    { name: "Differences", wrap: true, cell: differences },
  ], found, { stacked: true, note: (run) => `SHA-256 of the flow in the report: ${run.sha256}` });
}

function scope(run) {
  const parts = [run.topics === null ? "all topics" : `topics ${run.topics}`, run.since && `since ${run.since}`, run.until && `until ${run.until}`, run.deep && "every record decoded"];
  return parts.filter(Boolean).join(", ");
}

function differences(run) {
  const ranges = Object.entries(run.ranges).map(([name, number]) => `${plural(number, "range")} ${name}`);
  const rest = [[run.configs, "config"], [run.groups, "offset"]].filter(([number]) => number).map(([number, name]) => (name === "offset" ? `${plural(number, `group ${name}`)} ahead` : plural(number, name)));
  const unknown = run.notCompared ? [`${plural(run.notCompared, "partition")} not compared`] : [];
  return [...ranges, ...rest, ...unknown].join(", ") || "none";
}

const HEADS = { leftAlone: "Not synced because" };

function shown(found) {
  const names = [...new Set(found.deviations.flatMap((one) => Object.keys(one).filter((name) => one[name])))];
  const totals = Object.entries(found.totals).map(([name, one]) => `${words(name)}: ${count(one.compared)} compared, ${count(one.different)} different${one.leftAlone ? `, ${count(one.leftAlone)} not synced` : ""}`);
  return [
    h("p", { class: `verdict ${found.isEqual ? "good" : "warn"}`, role: "status" }, found.isEqual ? "No differences." : "The two clusters differ."),
    h("p", { class: "small soft" }, totals.join("; ")),
    ...found.notes.map((note) => h("p", { class: "small soft" }, note)),
    found.deviations.length ? table("Differences", names.map((name) => ({
      name: HEADS[name] || words(name).replace(/^./, (first) => first.toUpperCase()), wrap: true,
      cell: (one) => (name === "aspect" ? words(one.aspect) : one[name]),
    })), found.deviations, { stacked: true }) : h("span"),
  ];
}
