// The plan of a switchover or failover, and the command that runs it. The page does not run it itself.

import { ask, flowPath } from "./api.js";
import { failure } from "./notes.js";
import { count, h, plural, table } from "./view.js";

export function cutover({ main, flow }) {
  const body = h("div");
  const button = (verb, text) => h("button", { class: "do", click: () => load(verb) }, text);
  main.append(h("h1", {}, `Cut-over of ${flow}`),
    h("p", {}, "A plan reads both clusters and changes nothing."),
    h("div", { class: "bar" }, button("switchover", "Plan a switchover"), button("failover", "Plan a failover")), body);
  let isOpen = true;
  let number = 0; // of the last request: answers may arrive out of order

  async function load(verb) {
    const mine = ++number;
    const isMine = () => isOpen && mine === number;
    body.replaceChildren(h("p", { class: "soft", role: "status" }, "Reading both clusters ..."));
    try {
      const plan = await ask(`${flowPath(flow)}/${verb}`);
      if (isMine()) body.replaceChildren(...(verb === "switchover" ? switchover(flow, plan) : failover(flow, plan)).filter(Boolean));
    } catch (error) {
      if (isMine()) body.replaceChildren(failure(error));
    }
  }

  return { close: () => (isOpen = false) };
}

const command = (verb, flow) => [
  h("h2", {}, "The command"),
  h("pre", {}, `twinlog ${verb} run FILE --flow '${flow}' --dry-run\ntwinlog ${verb} run FILE --flow '${flow}'`),
  h("p", { class: "small soft" }, "The command asks for the flow's name as confirmation. After the promotion only twinlog flow demote can undo it, and only until another client writes to the remote topics."),
];

function switchover(flow, plan) {
  if (plan.promoted) return [h("p", { class: "verdict warn" }, `${plan.promoted}: the remote topics are now the originals.`)];
  const shut = plan.gates.filter((gate) => !gate.isOpen);
  const left = plan.partitions.reduce((sum, one) => sum + (one.missing ?? 0), 0);
  const dark = plan.partitions.filter((one) => one.missing === null).length;
  return [
    h("p", { class: `verdict ${shut.length ? "bad" : "good"}`, role: "status" }, shut.length ? `${plural(shut.length, "gate")} closed.` : "All gates are open."),
    plan.fenced.length ? h("p", { class: "warn" }, `Producers of ${plural(plan.fenced.length, "topic")} are already fenced.`) : null,
    ...notes(plan),
    table("Gates", [
      { name: "Gate", cell: (gate) => gate.gate },
      { name: "State", cell: (gate) => h("span", { class: `badge ${gate.isOpen ? "good" : "bad"}` }, gate.isOpen ? "open" : "CLOSED") },
      { name: "Evidence", wrap: true, cell: (gate) => gate.evidence.map((line) => h("div", {}, line)) },
    ], plan.gates, { stacked: true }),
    h("p", {}, `${count(left)} offsets of ${plural(plan.partitions.length, "partition")} remain to be drained${dark ? `; unknown for ${plural(dark, "partition")}` : ""}.`),
    groupTables(plan.groups), ...command("switchover", flow),
  ];
}

function failover(flow, plan) {
  const missing = plan.partitions.filter((one) => one.missing !== 0);
  return [
    plan.promoted ? h("p", { class: "verdict warn" }, plan.promoted) : null,
    plan.sourceProblem ? h("p", { class: "warn" }, plan.sourceProblem) : h("p", {}, "The source is reachable, so a switchover would lose nothing."),
    plan.groupsProblem ? h("p", { class: "warn" }, plan.groupsProblem) : null,
    ...notes(plan),
    h("p", { class: `verdict ${missing.length ? "bad" : "good"}`, role: "status" }, missing.length ? `${plural(missing.length, "partition")} would lose records, or the loss is unknown.` : "No records are known to be missing."),
    missing.length ? table("Possible loss", [
      { name: "Partition", cell: (one) => `${one.topic}-${one.partition}` },
      { name: "Missing", number: true, cell: (one) => (one.missing === null ? "unknown" : count(one.missing)) },
    ], missing.slice(0, 200)) : null,
    groupTables(plan.groups), ...command("failover", flow),
  ];
}

function notes(plan) {
  return plan.notes.map((line) => h("p", { class: "warn" }, line));
}

function groupTables(groups) {
  if (!groups.length) return h("p", { class: "soft" }, "No group has committed offsets.");
  return h("div", {}, h("h2", {}, "Groups"), groups.map((one) => h("details", { class: "card" },
    h("summary", {}, `${one.group} `, h("span", { class: `badge ${one.isExact ? "good" : "warn"}` }, one.isExact ? "exact" : "not exact")),
    one.problem && h("p", { class: "bad" }, one.problem),
    table(`Resume offsets of ${one.group}`, [
      { name: "Partition", cell: (p) => `${p.topic}-${p.partition}` },
      { name: "Committed", number: true, cell: (p) => count(p.committed) },
      { name: "Target topic", cell: (p) => p.targetTopic },
      { name: "Resumes at", number: true, cell: (p) => count(p.to) },
      { name: "Now", number: true, cell: (p) => (p.now === null ? "none" : count(p.now)) },
      { name: "Outcome", wrap: true, cell: (p) => [p.outcome, p.whyNotExact && h("div", { class: "small warn" }, p.whyNotExact)] },
    ], one.offsets.slice(0, 300), { stacked: true }))));
}
