// Elements, number formats and charts. All text is set as text, never as HTML: topic names are untrusted.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Attributes that are functions become event listeners; false and null ones are left out. */
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

/** A field's name as words: `toTopic` is "to topic". */
export const words = (name) => name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

/** Format milliseconds. */
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

/** How long ago; less than a second is "just now". */
export const past = (ms) => (ms < 1000 ? "just now" : `${duration(ms)} ago`);

/** How long the source keeps waiting records. */
export const keptFor = ({ keptMs, keptKnown }) => (keptMs !== null ? duration(keptMs) : keptKnown ? "no deletion expected" : "unknown");

/** Format bytes. */
export function bytes(value) {
  if (value === null || value === undefined) return "?";
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) (value /= 1000), unit++;
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** Format bytes per second. */
export const rate = (value) => (value === null || value === undefined ? "?" : `${bytes(value)}/s`);

const LAST_MS = 8.64e15; // the largest valid date; rows of other processes may exceed it

/** A time as text of `long` characters: 19 for seconds, 23 for milliseconds. */
export const clock = (ms, long = 19) =>
  ms === null || ms === undefined || Math.abs(ms) > LAST_MS ? "?" : new Date(ms).toISOString().replace("T", " ").slice(0, long);

const STATES = new Map(); // by name, from the server's catalogue

/** Store the server's catalogue of states and their severity. */
export const learn = (states) => states.forEach((one) => STATES.set(one.state, one));

/** A state's severity: good, warn or bad; empty if the state is unknown. */
export const kind = (state) => (state === "UNKNOWN" ? "" : STATES.get(state)?.severity || "warn");

export const badge = (state, text = state) => h("span", { class: `badge ${kind(state)}`, title: STATES.get(state)?.meaning }, text);

const USED = "a, button, summary, input, select, [tabindex]";
/** The key by which an element is found again after an update. It leaves out text that an update changes: the time in a table's caption, and the arrow of a sorted column. */
const namesOf = (one) => one.matches(".scroll") ? "a table" : `${one.tagName} ${one.getAttribute("href") || ""} ${one.getAttribute("aria-label") || one.textContent.replace(/ [▲▼]$/, "")}`;

/** The element on the page that has replaced `gone` in an update. */
export const counterpart = (gone) => [...document.querySelectorAll(USED)].find((one) => namesOf(one) === namesOf(gone));

/** Replace a container's children. Equal children stay. Otherwise the keyboard focus, unfolded details
 * and the scroll position of tables are kept. */
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
  // if the button is now disabled, such as Next on the last page, the button beside it gets the focus
  (same?.disabled ? of(same.parentElement, USED).find((one) => !one.disabled) : same)?.focus({ preventScroll: true });
}

export function card(label, value, note = "") {
  return h("div", { class: "card" }, h("span", { class: "small soft" }, label), h("b", {}, value), note && h("span", { class: "small soft" }, note));
}

/** A table. A column is {name, cell, number, wrap, sort}; `sorted` is the `sort` value in use; `note` is a line below a row
 * or nothing; `below` is what the row unfolds to. If `stacked`, a narrow window shows each cell on its own line. */
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
    h("table", { class: stacked && "stacked" }, h("caption", {}, h("div", {}, caption)), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

const GAP_MS = 60000;

/** A line chart of [ms, value], with its largest value and its first and last time (UTC); `shown` formats a value. `marks` are [ms, text]. */
export function chart(points, label, shown, marks = []) {
  const known = points.filter(([, value]) => value !== null && value !== undefined);
  if (known.length < 2) return h("p", { class: "small soft" }, "not enough data yet");
  const [first, last] = [known[0][0], known[known.length - 1][0]];
  const top = Math.max(...known.map(([, value]) => value));
  const x = (at) => ((at - first) / Math.max(1, last - first)) * 100;
  const y = (value) => (30 - (value / Math.max(1, top)) * 28).toFixed(2);
  // the line has a gap after a minute without a value
  const path = known.map(([at, value], n) => `${n && at - known[n - 1][0] < GAP_MS ? "L" : "M"}${x(at).toFixed(2)} ${y(value)}`).join("");
  const lines = marks.filter(([at]) => at >= first && at <= last).map(([at, text]) => svg("line", { x1: x(at), x2: x(at), y1: 0, y2: 30 }, svg("title", {}, text)));
  const time = (ms) => clock(ms).slice(11, last - first < 600000 ? 19 : 16);
  return h("div", { class: "chart small soft" }, h("div", {}, `most: ${shown(top)}`),
    svg("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": `${label}, at most ${shown(top)}` }, svg("path", { d: path }), lines),
    h("div", { class: "times" }, h("span", {}, time(first)), h("span", {}, `${time(last)} UTC`)));
}
