// Elements, words and small pictures. Text is always set as text: names of topics are somebody else's.

const SVG = "http://www.w3.org/2000/svg";

/** An element; attributes that are functions listen, those that are false are left out. */
export function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

const NUMBER = new Intl.NumberFormat("en");

export const count = (value) => (value === null || value === undefined ? "?" : NUMBER.format(value));

export function plural(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** Milliseconds in words. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "?";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** How long ago something was; parts of a second say nothing there. */
export const past = (ms) => (ms < 1000 ? "just now" : `${duration(ms)} ago`);

/** How long the source keeps what waits. */
export const keptFor = ({ keptMs, keptKnown }) => (keptMs !== null ? duration(keptMs) : keptKnown ? "no end in sight" : "not known");

/** Bytes in words. */
export function bytes(value) {
  if (value === null || value === undefined) return "?";
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) (value /= 1000), unit++;
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** Bytes a second in words. */
export const rate = (value) => (value === null || value === undefined ? "?" : `${bytes(value)}/s`);

const LAST_MS = 8.64e15; // of a date; rows of others may say more

export const clock = (ms) =>
  ms === null || ms === undefined || Math.abs(ms) > LAST_MS ? "?" : new Date(ms).toISOString().replace("T", " ").slice(0, 19);

const STATES = new Map(); // by name: the catalogue's row

/** Take the catalogue of the server: what states there are, and how each is shown. */
export const learn = (states) => states.forEach((one) => STATES.set(one.state, one));

/** good, warn or bad; nothing where the state is not known. */
export const kind = (state) => (state === "UNKNOWN" ? "" : STATES.get(state)?.severity || "warn");

export const badge = (state, text = state) => h("span", { class: `badge ${kind(state)}`, title: STATES.get(state)?.meaning }, text);

const USED = "a, button, summary, input, select, [tabindex]";
/** By what an element is found again. What changes by itself is left out: the time in a table's caption, the arrow of a sorted column. */
const namesOf = (one) => one.matches(".scroll") ? "a table" : `${one.tagName} ${one.getAttribute("href") || ""} ${one.getAttribute("aria-label") || one.textContent.replace(/ [▲▼]$/, "")}`;

/** What stands in the page for an element that new numbers have replaced. */
export const counterpart = (gone) => [...document.querySelectorAll(USED)].find((one) => namesOf(one) === namesOf(gone));

/** Put children into a container in place of what it has. What is equal stays; of what is not, the
 * element with the keyboard's focus, unfolded details and how far a table is scrolled are as before. */
export function put(container, ...children) {
  const fresh = h("div", {}, children);
  const of = (root, selector) => [...root.querySelectorAll(selector)];
  const folds = (one) => `${one.dataset.of || ""} ${one.firstChild.textContent}`;
  const opened = new Set(of(container, "details[open]").map(folds));
  for (const one of of(fresh, "details")) if (opened.has(folds(one))) one.open = true;
  const [before, after] = [[...container.childNodes], [...fresh.childNodes]];
  if (before.length === after.length && before.every((one, n) => one.isEqualNode(after[n]))) return;
  const scrolled = of(container, ".scroll").map((one) => one.scrollLeft);
  const held = container.contains(document.activeElement) && document.activeElement;
  const nth = held && of(container, USED).filter((one) => namesOf(one) === namesOf(held)).indexOf(held);
  container.replaceChildren(...after);
  of(container, ".scroll").forEach((one, n) => (one.scrollLeft = scrolled[n] || 0));
  if (!held) return;
  const same = of(container, USED).filter((one) => namesOf(one) === namesOf(held))[nth];
  // one that is disabled by now, as Next is on the last page, leaves the keyboard to what stands beside it
  (same?.disabled ? of(same.parentElement, USED).find((one) => !one.disabled) : same)?.focus({ preventScroll: true });
}

export function card(label, value, note = "") {
  return h("div", { class: "card" }, h("span", { class: "small soft" }, label), h("b", {}, value), note && h("span", { class: "small soft" }, note));
}

/** A table; a column is {name, cell, number, wrap, sort}; `sorted` is the value of the one in use;
 * `note` is a line below a row, or nothing, and `below` what it unfolds to. Where it is `stacked`, a narrow window has a line for each cell. */
export function table(caption, columns, rows, { sorted = "", onSort = null, note = () => "", below = () => null, stacked = false } = {}) {
  const head = columns.map((column) => {
    const turned = sorted === `-${column.sort}`;
    const used = column.sort && (turned || sorted === column.sort);
    const content = column.sort && onSort
      ? h("button", { click: () => onSort(used && turned ? column.sort : `-${column.sort}`) }, column.name, used ? (turned ? " ▼" : " ▲") : "")
      : column.name;
    return h("th", { scope: "col", class: column.number && "number", "aria-sort": used && (turned ? "descending" : "ascending") }, content);
  });
  const body = rows.flatMap((row) => {
    const [said, more] = [note(row), below(row)];
    const cells = columns.map((column) => h("td", { class: column.number ? "number" : column.wrap && "wrap", "data-name": stacked && column.name }, column.cell(row)));
    return [h("tr", {}, cells), said && h("tr", {}, h("td", { class: "note small", colspan: columns.length }, said)),
      more && h("tr", {}, h("td", { class: "below", colspan: columns.length }, h("div", {}, more)))];
  });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: stacked && "stacked" }, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

/** A line of [ms, value]; `marks` are moments. */
export function spark(points, label, marks = []) {
  const known = points.filter(([, value]) => value !== null && value !== undefined);
  if (known.length < 2) return h("p", { class: "small soft" }, "a line comes with the next numbers");
  const [first, last] = [known[0][0], known[known.length - 1][0]];
  const top = Math.max(1, ...known.map(([, value]) => value));
  const x = (at) => ((at - first) / Math.max(1, last - first)) * 100;
  const path = known.map(([at, value], n) => `${n ? "L" : "M"}${x(at).toFixed(2)} ${(30 - (value / top) * 28).toFixed(2)}`).join("");
  const lines = marks.filter((at) => at >= first && at <= last).map((at) => svg("line", { x1: x(at), x2: x(at), y1: 0, y2: 30 }));
  return svg("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": label }, svg("path", { d: path }), lines);
}
