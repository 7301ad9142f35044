// The packet graph: elements in layers, with rates and drops; edges as wide as their packets are many.

import { card, count, h, put, rates, s, short, table } from "./tools.js";
import { reasons, totals } from "./overview.js";

const [WIDTH, HEIGHT, GAP, DROP] = [148, 46, 24, 74];

/** Elements summed over workers, in the order of the graph. */
function elements(stats) {
  const all = new Map();
  for (const row of stats.elements.filter((row) => row.class)) {
    const sum = all.get(row.name) ?? { ...row, packets: 0, batches: 0, dropped: 0, reasons: {} };
    sum.packets += row.packets;
    sum.batches += row.batches;
    sum.dropped += row.dropped;
    for (const [name, n] of Object.entries(row.reasons)) sum.reasons[name] = (sum.reasons[name] ?? 0) + n;
    all.set(row.name, sum);
  }
  return all;
}

/** Places of elements and bends of edges: a layer for each step from the start, ordered so that edges cross seldom. */
function layout(names, edges) {
  const layer = new Map(names.map((name) => [name, 0]));
  const forward = edges.filter((edge) => !edge.back && edge.from !== edge.to);
  for (let round = 0; round < names.length; round += 1) {
    for (const { from, to } of forward) if (layer.get(to) <= layer.get(from)) layer.set(to, Math.min(layer.get(from) + 1, names.length));
  }
  // An edge over several layers has a place of its own in each, so that it passes between elements.
  const rows = [];
  const item = (width, y) => { const made = { width, y, x: 0, above: [], below: [] }; (rows[y] ??= []).push(made); return made; };
  const nodes = new Map(names.map((name) => [name, item(WIDTH, layer.get(name))]));
  const bends = new Map();
  for (const edge of forward) {
    const chain = [nodes.get(edge.from)];
    for (let y = layer.get(edge.from) + 1; y < layer.get(edge.to); y += 1) chain.push(item(10, y));
    chain.push(nodes.get(edge.to));
    chain.slice(1).forEach((part, i) => { chain[i].below.push(part); part.above.push(chain[i]); });
    bends.set(edge, chain.slice(1, -1));
  }
  const mean = (list, otherwise) => (list.length ? list.reduce((sum, part) => sum + part.x, 0) / list.length : otherwise);
  const spread = (row) => { let at = 0; row.forEach((part) => { part.x = at + part.width / 2; at += part.width + GAP; }); row.forEach((part) => { part.x -= (at - GAP) / 2; }); };
  rows.forEach(spread);
  for (let round = 0; round < 24; round += 1) {
    const side = round % 2 ? "below" : "above";
    for (const row of round % 2 ? [...rows].reverse() : rows) {
      row.forEach((part) => { part.wish = mean(part[side], part.x); });
      row.sort((a, b) => a.wish - b.wish);
      spread(row);
    }
  }
  // Then each moves to between its neighbors as far as its row lets it.
  for (let round = 0; round < 40; round += 1) {
    for (const row of rows) {
      const wish = row.map((part) => mean([...part.above, ...part.below], part.x));
      const apart = (i) => (row[i - 1].width + row[i].width) / 2 + GAP;
      const left = [...wish];
      const right = [...wish];
      for (let i = 1; i < row.length; i += 1) left[i] = Math.max(left[i], left[i - 1] + apart(i));
      for (let i = row.length - 2; i >= 0; i -= 1) right[i] = Math.min(right[i], right[i + 1] - apart(i + 1));
      row.forEach((part, i) => { part.x = (left[i] + right[i]) / 2; });
    }
  }
  const all = rows.flat();
  const start = Math.min(...all.map((part) => part.x - part.width / 2));
  const width = Math.max(...all.map((part) => part.x + part.width / 2)) - start;
  const top = (part) => part.y * (HEIGHT + DROP);
  const places = new Map([...nodes].map(([name, part]) => [name, { x: part.x - start - WIDTH / 2, y: top(part) }]));
  const points = new Map([...bends].map(([edge, chain]) => [edge, chain.map((part) => ({ x: part.x - start, y: top(part) }))]));
  return { places, points, width, height: rows.length * (HEIGHT + DROP) - DROP };
}

/** Rates of edges that follow from those of elements: an idle element sends nothing, and what enters one enters by its edges. */
function flows(edges, entered) {
  const flow = new Map(edges.filter((edge) => entered.get(edge.from) === 0).map((edge) => [edge, 0]));
  for (const [name, total] of entered) {
    const into = edges.filter((edge) => edge.to === name);
    const unknown = into.filter((edge) => !flow.has(edge));
    if (unknown.length === 1) flow.set(unknown[0], total);
  }
  return flow;
}

/** Line of an edge: down through its bends, or around all elements where it returns. */
function curve(a, b, edge, plan, gutter) {
  const [x1, y1, x2, y2] = [a.x + WIDTH / 2 + edge.shift, a.y + HEIGHT, b.x + WIDTH / 2 + edge.land, b.y];
  if (gutter === null) {
    const bend = DROP * 0.55;
    let [d, x, y] = [`M${x1} ${y1}`, x1, y1];
    for (const point of [...plan.points.get(edge).flatMap((p) => [p, { x: p.x, y: p.y + HEIGHT, straight: true }]), { x: x2, y: y2 }]) {
      d += point.straight ? `L${point.x} ${point.y}` : `C${x} ${y + bend} ${point.x} ${point.y - bend} ${point.x} ${point.y}`;
      [x, y] = [point.x, point.y];
    }
    return d;
  }
  const [r, low, high] = [7, y1 + 12 + (edge.number % 5) * 3, y2 - 12 - (edge.number % 4) * 3];
  const out = Math.sign(gutter - x1) * r;
  const back = Math.sign(x2 - gutter) * r;
  return `M${x1} ${y1}V${low - r}Q${x1} ${low} ${x1 + out} ${low}H${gutter - out}Q${gutter} ${low} ${gutter} ${low - r}V${high + r}Q${gutter} ${high} ${gutter + back} ${high}H${x2 - back}Q${x2} ${high} ${x2} ${high + r}V${y2}`;
}

export default {
  name: "graph",
  title: "Graph",
  needs: ["/v1/graph"],
  open(root) {
    let chosen = null;
    let drawn = "";
    let parts = null;
    let latest = null;
    const drawing = h("div", { class: "drawing", tabindex: 0, role: "region", "aria-label": "Packet graph" });
    const detail = h("div", { "aria-live": "polite" });
    root.append(h("div", { class: "grid" }, h("section", { class: "card", "aria-label": "Packet graph" },
      h("p", { class: "note" }, "Packets per second into each element, and along edges where that follows; drops in red. Dashed edges return to an earlier step. Choose an element for its counters."), drawing),
      h("section", { class: "card", "aria-label": "Element" }, detail)));

    function draw(stats) {
      const all = elements(stats);
      const edges = stats.edges.map((edge, number) => ({ ...edge, number }));
      const plan = layout([...all.keys()], edges);
      for (const name of all.keys()) {
        const spread = (side, key) => side.forEach((edge, i) => { if (key === "shift") edge.step = i % 3; edge[key] = (i - (side.length - 1) / 2) * Math.min(34, (WIDTH - 16) / Math.max(1, side.length)); });
        const near = (edge, end) => { const bends = plan.points.get(edge) ?? []; const bend = end === "to" ? bends[0] : bends.at(-1); return bend ? bend.x : plan.places.get(edge[end]).x + WIDTH / 2; };
        const by = (end) => (a, b) => near(a, end) - near(b, end);
        spread(edges.filter((edge) => edge.from === name).sort(by("to")), "shift");
        spread(edges.filter((edge) => edge.to === name).sort(by("from")), "land");
      }
      const gutters = [0, 0];
      const lines = edges.map((edge) => {
        const [a, b] = [plan.places.get(edge.from), plan.places.get(edge.to)];
        let gutter = null;
        if (!plan.points.has(edge)) {
          const side = a.x + b.x + WIDTH < plan.width ? 0 : 1;
          gutters[side] += 1;
          gutter = side ? plan.width + 6 + 8 * gutters[1] : -6 - 8 * gutters[0];
        }
        const d = curve(a, b, edge, plan, gutter);
        const [x, y] = [a.x + WIDTH / 2 + edge.shift, a.y + HEIGHT + 15 + edge.step * 12];
        const label = edge.output_name ?? (edges.filter((other) => other.from === edge.from).length > 1 ? `[${edge.output}]` : "");
        const path = s("path", { class: `edge${edge.back ? " back" : ""}`, d, "stroke-width": 1.2, "marker-end": "url(#tip)" }, s("title", {}, `${edge.from} ${label ? `[${label}] ` : ""}→ ${edge.to}`));
        return { edge, path, name: label, text: s("text", { class: "label", x, y }, label) };
      });
      const nodes = [...all.keys()].map((name) => {
        const { x, y } = plan.places.get(name);
        const choose = () => { chosen = name; update(latest.stats, latest.now); };
        const rate = s("text", { class: "rate", x: WIDTH - 9, y: 37 });
        const lost = s("text", { class: "rate lost", x: WIDTH - 9, y: 61 });
        const group = s("g", { class: "node", transform: `translate(${x} ${y})`, tabindex: 0, role: "button", "aria-label": name, "data-element": name,
          onclick: choose, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { choose(); event.preventDefault(); } } },
          s("rect", { width: WIDTH, height: HEIGHT, rx: 6 }), s("text", { x: 9, y: 18 }, name.length > 20 ? `${name.slice(0, 19)}…` : name), s("text", { class: "class", x: 9, y: 37 }, all.get(name).class), rate, lost);
        return { name, group, rate, lost };
      });
      const pad = 16 + 8 * Math.max(...gutters);
      const svg = s("svg", { viewBox: `${-pad} -8 ${plan.width + 2 * pad} ${plan.height + 34}`, width: plan.width + 2 * pad, height: plan.height + 34, role: "group", "aria-label": `Graph of ${nodes.length} elements` },
        s("defs", {}, s("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto", markerUnits: "userSpaceOnUse" }, s("path", { d: "M0 0L8 4L0 8z", fill: "context-stroke" }))),
        lines.map((line) => line.path), lines.map((line) => line.text), nodes.map((node) => node.group));
      drawing.replaceChildren(svg);
      drawing.scrollLeft = (drawing.scrollWidth - drawing.clientWidth) / 2;
      return { edges, lines, nodes };
    }

    async function update(stats, now) {
      latest = { stats, now };
      const shape = JSON.stringify([stats.edges, stats.elements.map((row) => row.name)]);
      if (shape !== drawn) [drawn, parts] = [shape, draw(stats)];
      const all = elements(stats);
      const entered = new Map();
      const lost = new Map();
      for (const row of all.values()) {
        entered.set(row.name, rates.of(`element ${row.name}`, row.packets, now) ?? 0);
        lost.set(row.name, rates.of(`lost ${row.name}`, row.dropped, now) ?? 0);
      }
      const flow = flows(parts.edges, entered);
      const most = Math.max(1, ...entered.values());
      for (const { name, group, rate, lost: red } of parts.nodes) {
        const row = all.get(name);
        rate.textContent = entered.get(name) > 0 ? `${short(entered.get(name))}/s` : "";
        red.textContent = row.dropped > 0 ? `−${short(lost.get(name) > 0 ? lost.get(name) : row.dropped)}${lost.get(name) > 0 ? "/s" : ""}` : "";
        group.classList.toggle("busy", entered.get(name) > 0);
        group.classList.toggle("on", name === chosen);
        group.setAttribute("aria-label", `${name}, ${row.class}: ${short(entered.get(name))} packets per second, ${count(row.dropped)} dropped`);
      }
      for (const { edge, path, text, name } of parts.lines) {
        const rate = flow.get(edge) ?? 0;
        path.setAttribute("stroke-width", rate > 0 ? (1.4 + 4.6 * Math.sqrt(rate / most)).toFixed(1) : 1.2);
        path.classList.toggle("busy", rate > 0);
        text.classList.toggle("busy", rate > 0);
        text.textContent = rate > 0 ? `${name} ${short(rate)}`.trim() : name;
      }
      const words = await reasons();
      const xdp = totals(stats);
      const row = all.get(chosen);
      if (row) {
        const reasons = Object.entries(row.reasons).map(([name, n]) => [h("span", { class: "m drop" }, name), words[name] ?? "", count(n)]);
        put(detail, h("h2", {}, row.name, " ", h("small", {}, row.class)), h("p", { class: "note" }, `${count(row.packets)} packets in ${count(row.batches)} batches, ${count(row.dropped)} dropped`),
          table("Drops of the element", [["Reason"], ["Meaning"], ["Packets", "n"]], reasons, "It has dropped nothing."));
      } else {
        put(detail, h("h2", {}, "Beside the graph"), h("p", { class: "note" }, `XDP has forwarded ${count(xdp.xdp)} packets without the graph; ${count(xdp.entered)} have entered the graph.`));
      }
    }
    return { update: (data, now) => update(data.graph, now) };
  },
};
