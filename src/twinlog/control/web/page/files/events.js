// What happened: the lines of this process.

import { ask } from "./api.js";
import { advice, failure } from "./told.js";
import { h, plural, put, table } from "./view.js";

export function events({ state, main, query, noted }) {
  const body = h("div");
  const field = h("input", { type: "search", value: query.get("contains"), input: () => (noted({ contains: field.value }), show()) });
  main.append(h("h1", {}, "Events of this process"), h("div", { class: "bar" }, h("label", {}, "Contains", field)), body);
  let [last, rows, isOpen] = [0, [], true];

  async function load() {
    try {
      const found = await ask(`/events?since=${last}&limit=1000`);
      last = found.last;
      rows = [...rows, ...found.events].slice(-1000);
      if (isOpen && (found.events.length || !body.firstChild)) show();
    } catch (error) {
      if (isOpen) body.replaceChildren(failure(error));
    }
  }

  function show() {
    const word = field.value.toLowerCase();
    const some = rows.filter((one) => !word || `${one.flow} ${one.code} ${one.message}`.toLowerCase().includes(word)).reverse();
    put(body, table(`${plural(some.length, "event")}, the newest first`, [
      { name: "Time", cell: (one) => one.time },
      { name: "Level", cell: (one) => h("span", { class: one.level === "ERROR" ? "bad" : one.level === "WARNING" ? "warn" : "" }, one.level) },
      { name: "Flow", cell: (one) => (one.flow ? h("a", { href: `#/flow/${encodeURIComponent(one.flow)}` }, one.flow) : "") },
      { name: "Text", wrap: true, cell: (one) => [one.message, advice(state, one.code)] },
    ], some));
  }

  load();
  const timer = setInterval(load, 2000);
  return { close: () => ((isOpen = false), clearInterval(timer)) };
}
