// The offset at which each group would resume on the target, and whether it is exact.

import { ask, flowPath } from "./api.js";
import { failure } from "./notes.js";
import { count, h, plural, table, words } from "./view.js";

export function groups({ main, flow }) {
  const body = h("div");
  const again = h("button", { class: "do", click: () => load() }, "Refresh");
  main.append(h("h1", {}, `Groups of ${flow}`), h("div", { class: "bar" }, again), body);
  let isOpen = true;

  async function load() {
    again.disabled = true;
    body.replaceChildren(h("p", { class: "soft", role: "status" }, "Querying both clusters ..."));
    try {
      const found = await ask(`${flowPath(flow)}/groups`);
      if (isOpen) body.replaceChildren(...shown(found));
    } catch (error) {
      if (isOpen) body.replaceChildren(failure(error));
    }
    again.disabled = false;
  }

  load();
  return { close: () => (isOpen = false) };
}

function shown(found) {
  const ready = found.groups.filter((one) => one.isReady).length;
  return [
    h("p", { class: `verdict ${!found.groups.length ? "" : ready === found.groups.length ? "good" : "warn"}` }, found.groups.length ? `${ready} of ${plural(found.groups.length, "group")} ready to move.` : "The flow syncs no group: none on the source is selected by its configuration."),
    ...found.notes.map((note) => h("p", { class: "small soft" }, note)),
    found.leftOut ? h("p", { class: "small soft" }, `${plural(found.leftOut, "group")} excluded by groups and groups.exclude`) : null,
    found.groups.length ? table(`Groups of ${found.flow} and their members`, [
      { name: "Group", wrap: true, cell: (one) => one.group },
      { name: "Ready", cell: (one) => h("span", { class: `badge ${one.isReady ? "good" : "warn"}` }, one.isReady ? "ready" : "not ready") },
      ...side("source"),
      ...side("target"),
      { name: "Lag", number: true, cell: (one) => known(one.lag) },
    ], found.groups, { stacked: true, note: (one) => [...new Set([...one.whyNot, one.source.problem, one.target.problem])].filter(Boolean).join("; ") }) : null,
    found.groups.length ? h("h2", {}, "Resume offsets") : null,
    ...found.groups.map((one) => h("details", { class: "card" },
      h("summary", {}, `${one.group} `, h("span", { class: `badge ${one.isReady ? "good" : "warn"}` }, one.isReady ? "ready" : one.whyNot[0]), ` lag ${known(one.lag)}`),
      one.whyNot.length ? h("ul", {}, one.whyNot.map((why) => h("li", {}, why))) : null,
      table(`Offsets of ${one.group}`, columns(one.offsets), one.offsets))),
  ].filter(Boolean);
}

/** The group on one cluster. Kafka reports the state Dead if the group does not exist. */
const side = (where) => [
  { name: `State on ${where}`, cell: (one) => (one[where].state === null ? "unknown" : one[where].state === "Dead" ? "no such group" : one[where].state || "unknown") },
  { name: `Members on ${where}`, number: true, cell: (one) => (one[where].members === null ? "unknown" : count(one[where].members)) },
];

/** An offset or lag. */
const known = (value) => (value === null ? "unknown" : count(value));

const UNKNOWN = new Set(["end", "lag"]); // null means that it could not be read

/** One column for each field of an offset. */
function columns(offsets) {
  const names = [...new Set(offsets.flatMap((one) => Object.keys(one)))];
  return names.map((name) => ({
    name: words(name),
    number: offsets.some((one) => typeof one[name] === "number"),
    cell: (one) => (UNKNOWN.has(name) ? known(one[name]) : one[name] === null || one[name] === undefined ? "" : typeof one[name] === "number" ? count(one[name]) : String(one[name])),
  }));
}
