// Events: log lines of this process, and events that the leaders of other flows report.

import { WITHIN_MS, ask } from "./api.js";
import { explained, failure } from "./notes.js";
import { clock, h, plural, put, table } from "./view.js";

const about = (one) => (one.partition === null ? one.topic || "" : `${one.topic}-${one.partition}`);
const who = (one) => [one.person, one.who].filter(Boolean).join(", ");

export function events({ state, main, query, noted }) {
  const body = h("div");
  const field = h("input", { type: "search", value: query.get("contains"), input: () => (noted({ contains: field.value }), show()) });
  main.append(h("h1", {}, "Events"), h("div", { class: "bar" }, h("label", {}, "Contains", field)), body);
  let [last, rows, isOpen] = [0, [], true];
  let [isAsked, isShown] = [false, false];

  async function load() {
    if (isAsked) return; // a second request would return the same events again
    isAsked = true;
    try {
      const found = await ask(`/events?since=${last}&limit=1000`, undefined, WITHIN_MS);
      last = found.last;
      rows = [...rows, ...found.events].slice(-1000);
      if (isOpen && (found.events.length || !isShown)) show();
    } catch (error) {
      isShown = false;
      if (isOpen) body.replaceChildren(failure(error));
    } finally {
      isAsked = false;
    }
  }

  function show() {
    isShown = true;
    const word = field.value.toLowerCase();
    const some = rows.filter((one) => !word || `${one.flow} ${about(one)} ${one.code} ${one.message} ${who(one)}`.toLowerCase().includes(word)).sort((a, b) => b.atMs - a.atMs || b.number - a.number);
    put(body, table(`${plural(some.length, "event")}, newest first`, [
      { name: "Time (UTC)", cell: (one) => clock(one.atMs, 23) },
      { name: "Level", cell: (one) => h("span", { class: one.level === "ERROR" ? "bad" : one.level === "WARNING" ? "warn" : "" }, one.level) },
      { name: "Flow", cell: (one) => (one.flow ? h("a", { href: `#/flow/${encodeURIComponent(one.flow)}` }, one.flow) : "") },
      { name: "Topic", wrap: true, cell: about },
      { name: "Message", wrap: true, cell: (one) => explained(state, one.message, one.code) },
      { name: "Who", wrap: true, cell: who },
    ], some, { stacked: true }));
  }

  load();
  const timer = setInterval(load, 2000);
  return { close: () => ((isOpen = false), clearInterval(timer)) };
}
