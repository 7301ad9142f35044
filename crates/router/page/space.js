// The address space along a Hilbert curve: neighboring addresses lie side by side, a prefix is a square or two.

import { badge, count, h, rates, request } from "./tools.js";

const HEAD = 24;
const NONE = 255;
const FADE = 6;
const ROOTS = { 4: "0.0.0.0/0", 6: "2000::/3" };
const BITS = { 4: 32, 6: 128 };

const QUADS = [[0, 0], [0, 1], [1, 1], [1, 0]];
/** A step down the curve: the quadrant of a digit, and how it is turned within. */
function descend([swap, invert], digit) {
  let [x, y] = QUADS[digit];
  if (invert) [x, y] = [1 - x, 1 - y];
  if (swap) [x, y] = [y, x];
  return [x, y, digit === 0 || digit === 3 ? [!swap, digit === 3 ? !invert : invert] : [swap, invert]];
}

/** Cell of each place of a square, whose own place on the curve is that of `digits`; and the place of each cell. */
function curve(order, digits) {
  let turn = [false, false];
  for (const digit of digits) turn = descend(turn, digit)[2];
  const side = 1 << order;
  const places = new Uint32Array(side * side);
  const walk = (cell, x, y, size, turned) => {
    if (size === 1) { places[cell] = y * side + x; return; }
    const half = size / 2;
    const step = (size * size) / 4;
    for (let digit = 0; digit < 4; digit += 1) {
      const [dx, dy, next] = descend(turned, digit);
      walk(cell + digit * step, x + dx * half, y + dy * half, half, next);
    }
  };
  walk(0, 0, 0, side, turn);
  const cells = new Uint32Array(side * side);
  places.forEach((place, cell) => { cells[place] = cell; });
  return { side, places, cells };
}

/** Value of an address, and its family. */
function parse(text) {
  const [addr, length] = text.trim().split("/");
  const family = addr.includes(":") ? 6 : 4;
  const len = length === undefined || length === "" ? BITS[family] : Number(length);
  let value = 0n;
  if (family === 4) {
    const parts = addr.split(".").map(Number);
    if (parts.length > 4 || parts.some((n) => !(n >= 0 && n <= 255) || !Number.isInteger(n)) || addr === "") return null;
    while (parts.length < 4) parts.push(0);
    parts.forEach((n) => { value = value * 256n + BigInt(n); });
  } else {
    const [left, right] = addr.split("::").map((side) => (side ? side.split(":") : []));
    const words = right ? [...left, ...Array(Math.max(0, 8 - left.length - right.length)).fill("0"), ...right] : left;
    if (words.length !== 8 || words.some((word) => !/^[0-9a-f]{1,4}$/i.test(word))) return null;
    words.forEach((word) => { value = value * 65536n + BigInt(`0x${word}`); });
  }
  return len >= 0 && len <= BITS[family] && Number.isInteger(len) ? { family, value, len } : null;
}

function written({ family, value, len }) {
  const parts = [];
  if (family === 4) {
    for (let i = 3; i >= 0; i -= 1) parts.push((value >> BigInt(8 * i)) & 255n);
    return `${parts.join(".")}/${len}`;
  }
  for (let i = 7; i >= 0; i -= 1) parts.push(((value >> BigInt(16 * i)) & 65535n).toString(16));
  const text = parts.join(":").replace(/(?:^|:)(?:0(?::|$)){2,}/, "::");
  return `${text}/${len}`;
}
const masked = ({ family, value, len }, to) => { const rest = BigInt(BITS[family] - to); return { family, value: (value >> rest) << rest, len: to }; };
/** The square that shows a prefix: of a length that squares have. */
const squareOf = (prefix) => { const root = parse(ROOTS[prefix.family]).len; const most = BITS[prefix.family] - 4; const len = Math.min(prefix.len, most); return masked(prefix, Math.max(root, len - ((len - root) % 4))); };

function hue(n) { return (n * 137.508) % 360; }
function rgb(h, sat, light) {
  const part = (n) => { const k = (n + h / 30) % 12; return Math.round(255 * (light - sat * Math.min(light, 1 - light) * Math.max(-1, Math.min(k - 3, 9 - k, 1)))); };
  return [part(0), part(8), part(4)];
}
const LENGTHS = { 4: [8, 12, 16, 18, 20, 22, 24, 32], 6: [12, 20, 28, 32, 36, 40, 48, 64] };
const STOPS = [[68, 30, 110], [59, 82, 160], [33, 130, 160], [30, 160, 130], [90, 190, 90], [190, 210, 50], [245, 190, 60], [240, 120, 80]];
function ofLength(len, family) {
  const lengths = LENGTHS[family];
  if (len <= lengths[0]) return STOPS[0];
  const at = lengths.findIndex((n) => len <= n);
  if (at < 0) return STOPS.at(-1);
  const share = (len - lengths[at - 1]) / (lengths[at] - lengths[at - 1]);
  return STOPS[at].map((to, i) => Math.round(STOPS[at - 1][i] + (to - STOPS[at - 1][i]) * share));
}
function ofShare(share) { const at = Math.min(1, share) ** 0.4; return [Math.round(40 + 205 * at), Math.round(60 + 90 * at), Math.round(110 - 60 * at)]; }

export default {
  name: "space",
  title: "Address space",
  needs: ["/v1/nexthops"],
  open(root) {
    let square = parse(ROOTS[4]);
    let map = null;
    let version = null;
    let order = 8;
    let cells = null;
    let color = "length";
    let cursor = 0;
    let shown = null;
    let hops = new Map();
    let [busy, failed] = [false, false];
    let total = 0;
    let changed = 0;

    const canvas = h("canvas", { class: "cells", "aria-hidden": "true" });
    const over = h("canvas", { class: "over", tabindex: 0, role: "application", "aria-label": "Map of the address space. Arrow keys move, Enter zooms in, Backspace zooms out.", "aria-describedby": "cell" });
    const crumbs = h("ol", { class: "crumbs", "aria-label": "Zoomed to" });
    const field = h("input", { name: "prefix", placeholder: "198.51.100.0/24", autocomplete: "off", spellcheck: "false", size: 22 });
    const problem = h("p", { class: "error", role: "alert" });
    const family = segment("Family", [["4", "IPv4"], ["6", "IPv6"]], "4", (name) => go(parse(ROOTS[name])));
    const colors = segment("Colors", [["length", "Prefix length"], ["hop", "Next hop"], ["traffic", "Traffic"]], color, (name) => { color = name; paint(); legend(); });
    const cell = h("section", { class: "cell", id: "cell", "aria-live": "polite" });
    const key = h("div", { class: "legend" });
    const sums = h("p", { class: "note" });
    root.append(h("div", { class: "tools" }, family.element, colors.element,
      h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); jump(field.value); } }, h("label", {}, "Prefix or address", field), h("button", { type: "submit" }, "Show")),
      h("button", { type: "button", onclick: () => out() }, "Zoom out")), problem, crumbs,
      h("div", { class: "space" }, h("div", { class: "plot" }, canvas, over),
        h("div", {}, h("section", { class: "card", "aria-label": "Cell" }, cell), h("h2", { class: "gap" }, "Key"), key, sums,
          h("p", { class: "note" }, "Each cell is a prefix, in the order of a Hilbert curve. Cells light up when their routes change. Choose a cell to zoom in."))));

    function segment(label, options, first, choose) {
      const buttons = options.map(([name, words]) => h("button", { type: "button", "aria-pressed": String(name === first), "data-name": name, onclick: () => { set(name); choose(name); } }, words));
      const set = (name) => buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.name === name)));
      return { element: h("div", { class: "seg", role: "group", "aria-label": label }, buttons), set };
    }

    const digits = () => { const start = parse(ROOTS[square.family]); const all = []; for (let len = start.len; len < square.len; len += 2) all.push(Number((square.value >> BigInt(BITS[square.family] - len - 2)) & 3n)); return all; };
    const prefixOf = (number) => { const len = square.len + 2 * order; return { family: square.family, len, value: square.value | (BigInt(number) << BigInt(BITS[square.family] - len)) }; };

    /** Shows a square. */
    function go(next) {
      square = next;
      order = Math.min(8, Math.floor((BITS[square.family] - square.len) / 2));
      map = curve(order, digits());
      [version, cells, changed] = [null, null, 0];
      cursor = Math.floor(map.side * map.side / 2);
      family.set(String(square.family));
      problem.textContent = "";
      canvas.width = canvas.height = map.side;
      trail();
      legend();
      return load();
    }

    function trail() {
      const start = parse(ROOTS[square.family]).len;
      const all = [];
      for (let len = start; len <= square.len; len += 4) all.push(masked(square, len));
      crumbs.replaceChildren(...all.map((prefix, i) => h("li", {}, h("button", { type: "button", class: "quiet", "aria-current": i === all.length - 1 ? "location" : null, onclick: () => go(prefix) }, written(prefix)))));
    }

    function jump(text) {
      const found = parse(text);
      if (!found) { problem.textContent = `“${text}” is no prefix and no address.`; return; }
      const wanted = masked(found, found.len);
      const start = parse(ROOTS[found.family]);
      if (masked(wanted, Math.min(start.len, wanted.len)).value !== masked(start, Math.min(start.len, wanted.len)).value) { problem.textContent = `${written(wanted)} is outside of ${ROOTS[found.family]}.`; return; }
      go(squareOf(wanted)).then(() => { if (wanted.len > square.len) { cursor = Number((wanted.value - square.value) >> BigInt(BITS[square.family] - square.len - 2 * order)); mark(); } });
    }

    const zoom = (number) => { const inner = prefixOf(number); if (square.len + 4 <= BITS[square.family] - 4) go(masked(inner, square.len + 4)); };
    const out = () => { const start = parse(ROOTS[square.family]).len; if (square.len > start) go(masked(square, square.len - 4)); };

    /** Reads the cells that changed. */
    async function load() {
      if (busy) return;
      busy = true;
      const [mine, began] = [square, performance.now()];
      try {
        const query = new URLSearchParams({ prefix: written(square), order });
        if (version !== null) query.set("since", version);
        const response = await request(`/v1/map?${query}`);
        const view = new DataView(await response.arrayBuffer());
        if (mine !== square) return;
        const whole = view.getUint32(8, true) === 1;
        const size = map.side * map.side;
        if (whole || !cells) cells = { longest: new Uint8Array(size), covering: new Uint8Array(size), routes: new Uint16Array(size), hop: new Uint32Array(size), heat: new Uint8Array(size) };
        version = view.getBigUint64(0, true).toString();
        total = Number(view.getBigUint64(16, true));
        const read = (number, at) => {
          cells.longest[number] = view.getUint8(at);
          cells.covering[number] = view.getUint8(at + 1);
          cells.routes[number] = view.getUint16(at + 2, true);
          cells.hop[number] = view.getUint32(at + 4, true);
        };
        for (let i = 0; i < size; i += 1) if (cells.heat[i] > 0) cells.heat[i] -= 1;
        changed = 0;
        if (whole) for (let i = 0; i < size; i += 1) read(i, HEAD + 8 * i);
        else for (let at = HEAD; at < view.byteLength; at += 12) { const number = view.getUint32(at, true); read(number, at + 4); cells.heat[number] = FADE; changed += 1; }
        paint();
        mark();
        if (whole) root.dataset.drawn = String(Math.round(performance.now() - began));
        root.dataset.square = written(square);
        root.dataset.routes = String(total);
        root.dataset.changed = String(changed + Number(root.dataset.changed ?? 0));
        sums.textContent = `${count(total)} routes in ${written(square)}; ${count(changed)} of ${count(size)} cells changed in the last second.`;
        if (failed) [failed, problem.textContent] = [false, ""];
      } catch (error) {
        [failed, problem.textContent] = [true, error.message];
      } finally {
        busy = false;
        if (mine !== square) load();
      }
    }

    function paint() {
      if (!cells) return;
      const dark = document.documentElement.dataset.theme === "dark";
      const [none, fire] = dark ? [[24, 29, 36], [255, 255, 255]] : [[236, 239, 242], [0, 0, 0]];
      const context = canvas.getContext("2d");
      const image = context.createImageData(map.side, map.side);
      const most = Math.max(1, ...[...hops.values()].map((hop) => hop.rate ?? 0));
      const known = new Map();
      for (let number = 0; number < cells.hop.length; number += 1) {
        const own = cells.longest[number] !== NONE;
        const len = own ? cells.longest[number] : cells.covering[number];
        let tint = none;
        if (len !== NONE && (own || len > 0)) {
          const what = color === "length" ? len : cells.hop[number];
          tint = known.get(what);
          if (!tint) {
            tint = color === "length" ? ofLength(len, square.family) : color === "hop" ? rgb(hue(what), 0.55, dark ? 0.55 : 0.5) : ofShare((hops.get(what)?.rate ?? 0) / most);
            known.set(what, tint);
          }
          if (!own) tint = tint.map((part, i) => Math.round(part * 0.45 + none[i] * 0.55));
        }
        const heat = cells.heat[number] / FADE;
        const at = map.places[number] * 4;
        for (let i = 0; i < 3; i += 1) image.data[at + i] = tint[i] + (fire[i] - tint[i]) * heat * 0.85;
        image.data[at + 3] = 255;
      }
      context.putImageData(image, 0, 0);
    }

    /** Outlines, labels and the cell under the cursor. */
    function mark() {
      const size = over.clientWidth;
      const scale = devicePixelRatio || 1;
      if (over.width !== Math.round(size * scale)) over.width = over.height = Math.round(size * scale);
      const context = over.getContext("2d");
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.clearRect(0, 0, size, size);
      const unit = size / map.side;
      const dark = document.documentElement.dataset.theme === "dark";
      const levels = Math.min(4, order);
      const blocks = 1 << levels;
      const each = size / blocks;
      context.strokeStyle = dark ? "#ffffff1c" : "#0000001c";
      context.lineWidth = 1;
      context.beginPath();
      for (let i = 1; i < blocks; i += 1) { const at = Math.round(i * each) + 0.5; context.moveTo(at, 0); context.lineTo(at, size); context.moveTo(0, at); context.lineTo(size, at); }
      context.stroke();
      context.font = `${Math.max(9, Math.min(11, each / 4))}px system-ui, sans-serif`;
      const step = (map.side * map.side) / (blocks * blocks);
      for (let block = 0; block < blocks * blocks; block += 1) {
        const place = Math.min(...[0, step - 1, Math.floor(step / 3), Math.floor(step * 2 / 3)].map((n) => map.places[block * step + n] % map.side));
        const row = Math.min(...[0, step - 1, Math.floor(step / 3), Math.floor(step * 2 / 3)].map((n) => Math.floor(map.places[block * step + n] / map.side)));
        const prefix = masked(prefixOf(block * step), square.len + 2 * levels);
        const full = written(prefix);
        const text = square.family === 4 ? full.split(".").slice(0, Math.ceil(prefix.len / 8)).join(".").split("/")[0] : full.split("/")[0];
        if (context.measureText(text).width > each - 6) continue;
        const [x, y] = [Math.floor(place / (map.side / blocks)) * each + 4, Math.floor(row / (map.side / blocks)) * each + 11];
        context.strokeStyle = dark ? "#0009" : "#fffa";
        context.lineWidth = 2;
        context.strokeText(text, x, y);
        context.fillStyle = dark ? "#fffd" : "#000c";
        context.fillText(text, x, y);
      }
      const zoomed = Math.floor(cursor / ((map.side * map.side) / 16));
      if (order >= 2 && square.len + 4 <= BITS[square.family] - 4) {
        const corner = map.places[zoomed * ((map.side * map.side) / 16)];
        const quarter = map.side / 4;
        context.strokeStyle = dark ? "#ffffff90" : "#00000090";
        context.lineWidth = 1.5;
        context.strokeRect(Math.floor((corner % map.side) / quarter) * quarter * unit + 0.75, Math.floor(Math.floor(corner / map.side) / quarter) * quarter * unit + 0.75, quarter * unit - 1.5, quarter * unit - 1.5);
      }
      const place = map.places[cursor];
      const [x, y] = [(place % map.side) * unit, Math.floor(place / map.side) * unit];
      context.strokeStyle = "#fff"; context.lineWidth = 3; context.strokeRect(x - 2, y - 2, unit + 4, unit + 4);
      context.strokeStyle = "#000"; context.lineWidth = 1.4; context.strokeRect(x - 2, y - 2, unit + 4, unit + 4);
      describe();
    }

    function describe() {
      if (!cells) return;
      const own = cells.longest[cursor] !== NONE;
      const covering = cells.covering[cursor];
      const hop = hops.get(cells.hop[cursor]);
      const prefix = prefixOf(cursor);
      const led = cells.hop[cursor] === 0 ? "none" : hop ? `${hop.gateway ?? hop.type}${hop.interface ? ` on ${hop.interface}` : ""}` : `index ${cells.hop[cursor]}`;
      const state = `${written(prefix)}${cells.longest[cursor]}${covering}${cells.routes[cursor]}${led}`;
      if (state === shown) return;
      shown = state;
      cell.replaceChildren(h("h2", { class: "m" }, written(prefix)), h("dl", { class: "facts" },
        ...[["Routes within", count(cells.routes[cursor])], ["Longest", own ? `/${cells.longest[cursor]}` : "–"], ["Covered by", covering === NONE ? "nothing" : written(masked(prefix, covering))], ["Next hop", led]]
          .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { title: value }, value)))), own || covering !== NONE ? "" : badge("no route", "bad"));
    }

    function legend() {
      const item = (tint, words) => { const box = h("i", {}); box.style.background = `rgb(${tint})`; return [box, h("span", {}, words), h("span", {})]; };
      if (color === "length") key.replaceChildren(...LENGTHS[square.family].flatMap((len, i) => item(STOPS[i], `/${len}${i === 0 ? " and shorter" : ""}`)));
      else if (color === "hop") {
        const used = new Map();
        cells?.hop.forEach((hop, i) => { if (hop && cells.longest[i] !== NONE) used.set(hop, (used.get(hop) ?? 0) + 1); });
        const most = [...used].sort((a, b) => b[1] - a[1]).slice(0, 12);
        const dark = document.documentElement.dataset.theme === "dark";
        key.replaceChildren(...most.flatMap(([hop, n]) => { const [box, name] = item(rgb(hue(hop), 0.55, dark ? 0.55 : 0.5), hops.get(hop)?.gateway ?? `index ${hop}`); return [box, name, h("span", { class: "soft n" }, `${count(n)} cells`)]; }));
      } else key.replaceChildren(...[1, 0.3, 0.1, 0.01, 0].flatMap((share) => item(ofShare(share), share === 0 ? "idle next hops" : `${share * 100} % of the busiest next hop`)));
    }

    const under = (event) => {
      const box = over.getBoundingClientRect();
      const at = (value, start) => Math.max(0, Math.min(map.side - 1, Math.floor(((value - start) / box.width) * map.side)));
      return map.cells[at(event.clientY, box.top) * map.side + at(event.clientX, box.left)];
    };
    over.addEventListener("pointermove", (event) => { cursor = under(event); mark(); });
    over.addEventListener("click", (event) => { cursor = under(event); zoom(cursor); });
    over.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const move = moves[event.key];
      if (move) {
        const far = event.shiftKey ? Math.max(1, map.side / 16) : 1;
        const place = map.places[cursor];
        const clamp = (n) => Math.max(0, Math.min(map.side - 1, n));
        cursor = map.cells[clamp(Math.floor(place / map.side) + move[1] * far) * map.side + clamp((place % map.side) + move[0] * far)];
        mark();
      } else if (event.key === "Enter" || event.key === "+") zoom(cursor);
      else if (event.key === "Backspace" || event.key === "-" || event.key === "Escape") out();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const resized = new ResizeObserver(() => mark());
    resized.observe(over);
    go(square);
    return {
      words: (words) => words && jump(words),
      themed: () => { paint(); mark(); legend(); },
      async update(data, now) {
        hops = new Map(data.nexthops.map((hop) => [hop.index, { ...hop, rate: rates.of(`hop ${hop.index}`, hop.use, now) }]));
        await load();
        if (color !== "length") legend();
      },
      close: () => resized.disconnect(),
    };
  },
};
