// The frame: views by the part of the address behind #, a look a second at what the view needs, light and dark.

import { age, count, get, h } from "./tools.js";
import overview from "./overview.js";
import graph from "./graph.js";
import { fib, hops, neighbors, sources } from "./tables.js";
import packet from "./packet.js";
import space from "./space.js";

const VIEWS = { overview, graph, fib, sources, hops, neighbors, packet, space };
const PERIOD = 1000;
const content = document.getElementById("content");
const nav = document.querySelector("nav");
const state = document.getElementById("state");
const announced = document.getElementById("announced");
let open = null;
let turn = 0;

const links = Object.entries(VIEWS).map(([name, view], i) => h("a", { href: `#${name}`, title: `${view.title} (${i + 1})` }, view.title));
nav.append(...links);

const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };

/** Opens the view that the address names. */
function show() {
  const [name, ...words] = decoded(location.hash.slice(1)).split("=");
  const view = VIEWS[name] ?? overview;
  if (open?.view !== view) {
    open?.shown?.close?.();
    const root = h("div", { class: "view", id: `view-${view.name}` });
    content.replaceChildren(h("h1", {}, view.title), root);
    open = { view, shown: view.open(root) };
    document.title = `${view.title} – Fingerpost`;
    links.forEach((link) => {
      const here = link.hash === `#${view.name}`;
      here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
      if (here) link.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
  }
  open.shown.words?.(words.join("="));
  look();
}

/** A look at what the view needs; the next one follows a second later. */
async function look() {
  const mine = ++turn;
  const { view, shown } = open;
  try {
    const paths = ["/v1/status", ...view.needs];
    const found = await Promise.all(paths.map(get));
    if (mine !== turn) return;
    const now = performance.now();
    report("ok", `${count(found[0].routes_v4 + found[0].routes_v6)} routes, up ${age(found[0].seconds)}`);
    await shown.update(Object.fromEntries(paths.map((path, i) => [path.slice(4), found[i]])), now);
    document.body.dataset.looks = Number(document.body.dataset.looks ?? 0) + 1;
  } catch (error) {
    if (mine !== turn) return;
    report("bad", { TypeError: "not reachable", TimeoutError: "no answer" }[error.name] ?? error.message);
  }
  if (mine === turn && !document.hidden) setTimeout(() => mine === turn && look(), PERIOD);
}

function report(kind, words) {
  const dot = state.querySelector(".dot");
  if (!dot.classList.contains(kind)) {
    // Readers of screens announce what is written here: only what changes, not each second's words.
    announced.textContent = kind === "ok" ? "The router answers." : `The router does not answer: ${words}`;
    dot.className = `dot ${kind}`;
  }
  state.querySelector(".words").textContent = words;
}

const THEMES = ["system", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");
const button = document.getElementById("theme");
function theme(next) {
  const at = THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system";
  const name = next ? THEMES[(THEMES.indexOf(at) + 1) % 3] : at;
  localStorage.setItem("theme", name);
  document.documentElement.dataset.theme = name === "system" ? (system.matches ? "dark" : "light") : name;
  button.textContent = { system: "◐", light: "☀", dark: "☾" }[name];
  button.setAttribute("aria-label", `Color scheme: ${name}`);
  button.title = `Color scheme: ${name} (t)`;
  open?.shown?.themed?.();
}
system.addEventListener("change", () => theme(false));
button.addEventListener("click", () => theme(true));

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, dialog")) return;
  const number = Number(event.key);
  if (number >= 1 && number <= links.length) location.hash = links[number - 1].hash;
  else if (event.key === "t") theme(true);
  else if (event.key === "/") { location.hash = "#packet"; setTimeout(() => document.querySelector("#view-packet input")?.focus(), 0); }
  else return;
  event.preventDefault();
});
addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => document.hidden || look());
theme(false);
show();
