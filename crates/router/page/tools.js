// Parts that all views use: requests, elements, numbers, sparklines, rates.

let token = sessionStorage.getItem("token");

/** Longest time of a request: a router that hangs is reported instead of shown as it was. */
const LONGEST_MS = 5000;

/** Response of a path of the API; requests the token from the user where one is needed. */
export async function request(path) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(LONGEST_MS) });
  if (response.status === 401) {
    await requestToken();
    return request(path);
  }
  if (!response.ok) {
    const found = await response.json().catch(() => null);
    throw new Error(found?.error?.message ?? `${path}: ${response.status}`);
  }
  return response;
}

export const get = async (path) => (await request(path)).json();

let requested = null;
function requestToken() {
  requested ??= new Promise((done) => {
    const dialog = document.getElementById("token");
    dialog.addEventListener("close", () => {
      // What no header can have is no token: the page asks again.
      const typed = dialog.querySelector("input").value.trim();
      token = /^[!-~]+$/.test(typed) ? typed : "";
      sessionStorage.setItem("token", token);
      requested = null;
      done();
    }, { once: true });
    dialog.showModal();
  });
  return requested;
}

function make(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element of HTML: name, attributes, children. */
export const h = (name, attributes, ...children) => make(document.createElement(name), attributes, children);
/** An element of SVG. */
export const s = (name, attributes, ...children) =>
  make(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

const PREFIXES = ["", "k", "M", "G", "T", "P"];
/** A number in three digits with a prefix of its unit. */
export function short(value, base = 1000) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  let at = 0;
  while (Math.abs(value) >= base * 0.9995 && at < PREFIXES.length - 1) { value /= base; at += 1; }
  const digits = at === 0 ? (Number.isInteger(value) || value >= 100 ? 0 : 1) : value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)}${at ? ` ${PREFIXES[at]}` : ""}`;
}
export const count = (value) => value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en").replaceAll(",", " ");
export const unit = (value, name) => { const text = short(value); return `${text}${/[a-zA-Z]$/.test(text) && /^[a-z]/.test(name) && name.length < 6 ? "" : " "}${name}`; };
export const bytes = (value) => { const text = short(value, 1024); return /[a-zA-Z]$/.test(text) ? `${text.toUpperCase()}iB` : `${text} B`; };
export const ms = (value) => value === null || value === undefined ? "–" : value === 0 ? "0" : value >= 1000 ? `${(value / 1000).toFixed(2)} s` : value >= 10 ? `${value.toFixed(0)} ms` : value >= 0.1 ? `${value.toFixed(2)} ms` : `${(value * 1000).toFixed(0)} µs`;
export const percent = (part, all) => part === 0 ? "0 %" : all > 0 ? `${((100 * part) / all).toFixed(part / all >= 0.1 ? 0 : 1)} %` : "–";
export function age(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].map(([size, name]) => { const n = Math.floor(seconds / size); seconds -= n * size; return [n, name]; });
  const first = Math.max(0, parts.findIndex(([n]) => n > 0));
  return parts.slice(first < 0 ? 3 : first, first + 2).map(([n, name]) => `${n} ${name}`).join(" ");
}

const KEPT = 60;
const PAUSE = 5000;
/** Rates of counters, by name, from one look to the next; and the latest of them, for sparklines. */
export class Rates {
  #last = new Map();
  #series = new Map();
  /** Rate of a counter that is `value` at `now` (ms); null at the first look. */
  of(name, value, now) {
    const last = this.#last.get(name);
    if (last && last.now === now) return last.rate;
    // A series is of looks in a row: after a pause, such as in another view, another one begins.
    const paused = last && now - last.now > PAUSE;
    const rate = last && !paused ? Math.max(0, value - last.value) * 1000 / (now - last.now) : null;
    if (paused) this.#series.delete(name);
    this.#last.set(name, { value, now, rate });
    if (rate !== null) {
      const series = this.#series.get(name) ?? [];
      series.push(rate);
      if (series.length > KEPT) series.shift();
      this.#series.set(name, series);
    }
    return rate;
  }
  series(name) { return this.#series.get(name) ?? []; }
}
export const rates = new Rates();

/** Lines of a minute, each with a class. */
export function spark(lines, label) {
  const [width, height] = [170, 28];
  const most = Math.max(1, ...lines.flatMap(([values]) => values));
  const paths = lines.flatMap(([values, name]) => {
    if (values.length < 2) return [];
    const at = (value, i) => `${(width - (values.length - 1 - i) * (width / (KEPT - 1))).toFixed(1)} ${(height - 2 - (value / most) * (height - 5)).toFixed(1)}`;
    const line = `M${values.map(at).join("L")}`;
    const first = (width - (values.length - 1) * (width / (KEPT - 1))).toFixed(1);
    return [s("path", { class: `${name} area`, d: `${line}L${width} ${height}L${first} ${height}Z` }), s("path", { class: name, d: line })];
  });
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, paths);
}

/** A table: columns are [heading, class], rows are lists of cells. */
export function table(label, columns, rows, empty = "None.") {
  if (rows.length === 0) return h("p", { class: "empty" }, empty);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, h("table", { "aria-label": label },
    h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h("th", { class: kind, scope: "col" }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", { class: columns[i][1] }, cell)))))));
}

export const badge = (words, kind) => h("span", { class: `badge ${kind ?? ""}` }, words);
export const facts = (list) => h("dl", { class: "facts" }, list.map(([name, value, kind]) => h("div", {}, h("dt", {}, name), h("dd", { class: kind, title: typeof value === "string" ? value : null }, value))));
export const card = (title, kind, ...children) => h("section", { class: `card ${kind ?? ""}`, "aria-label": typeof title === "string" ? title : null }, title && h("h2", {}, title), ...children);
export function bar(share, kind) {
  const inner = h("i", {});
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span", { class: `bar ${kind ?? ""}`, "aria-hidden": "true" }, inner);
}

/** Replaces the children of an element; scroll positions and the focus stay. */
export function put(element, ...children) {
  const scrolled = [...element.querySelectorAll(".scroll")].map((part) => part.scrollLeft);
  const focused = element.contains(document.activeElement) ? [...element.querySelectorAll("[tabindex], a, button")].indexOf(document.activeElement) : -1;
  element.replaceChildren(...children.flat(3).filter(Boolean));
  [...element.querySelectorAll(".scroll")].forEach((part, i) => { if (scrolled[i]) part.scrollLeft = scrolled[i]; });
  if (focused >= 0) [...element.querySelectorAll("[tabindex], a, button")][focused]?.focus({ preventScroll: true });
}
