// Overview: throughput of interfaces, where packets go, and why they are dropped.

import { badge, bar, bytes, card, count, get, h, ms, percent, put, rates, short, spark, table, unit } from "./tools.js";

const sum = (list, of) => list.reduce((all, row) => all + of(row), 0);
let meanings = null;

/** Meanings of drop reasons, and of reasons to leave XDP. */
export async function reasons() {
  meanings ??= Object.fromEntries((await get("/v1/drop-reasons")).map((row) => [`${row.xdp ? "xdp " : ""}${row.name}`, row.meaning]));
  return meanings;
}

/** Counters of a graph, summed over workers. */
export function totals({ elements, drivers }) {
  const drops = new Map();
  const add = (name, n, where) => {
    const row = drops.get(name) ?? { name, n: 0, where: new Set() };
    row.n += n;
    row.where.add(where);
    drops.set(name, row);
  };
  for (const { name, reasons } of elements) for (const [reason, n] of Object.entries(reasons)) add(reason, n, name);
  for (const [reason, n] of Object.entries(drivers.dropped)) add(reason, n, "XDP");
  const of = (name) => sum(elements.filter((row) => row.class === name), (row) => row.packets);
  const dropped = sum([...drops.values()], (row) => row.n);
  return { drops: [...drops.values()], dropped, xdp: drivers.forwarded, graph: of("ToPorts"), entered: of("FromPorts"), left: drivers.left };
}

const ICONS = { xdp: "XDP", afxdp: "graph", kernel: "kernel" };

function tiles(data, now, all) {
  const { status, fibs } = data;
  const forwarded = rates.of("xdp", all.xdp, now) + rates.of("graph", all.graph, now);
  const dropped = rates.of("dropped", all.dropped, now);
  const bits = sum(data.interfaces, (row) => rates.of(`${row.name} txb`, row.tx_bytes, now) ?? 0) * 8;
  const behind = Math.max(0, ...fibs.map((fib) => fib.behind_ms ?? 0));
  const list = [
    ["Forwarded", unit(forwarded, "packets/s"), unit(bits, "bit/s")],
    ["Dropped", unit(dropped, "packets/s"), `${count(all.dropped)} in all`],
    ["Routes", count(status.routes_v4 + status.routes_v6), `${unit(status.routes_v4, "IPv4")}, ${unit(status.routes_v6, "IPv6")}`],
    ["Change to visible", ms(status.visible.p99_ms), behind > 0 ? `behind by ${ms(behind)} now` : "99th percentile"],
    ["Interfaces", `${status.interfaces} of ${data.interfaces.length}`, `taken over, ${status.workers} worker${status.workers === 1 ? "" : "s"}`],
    ["Memory", bytes(status.resident_kib * 1024), `version ${status.version}`],
  ];
  return list.map(([name, value, more]) => h("dl", { class: "tile" }, h("dt", {}, name), h("dd", {}, value), h("dd", {}, more)));
}

function interfaces(rows, now) {
  const cells = rows.map((row) => {
    const rate = (key, value) => rates.of(`${row.name} ${key}`, value, now);
    const [rx, tx] = [rate("rx", row.rx_packets), rate("tx", row.tx_packets)];
    const [rxb, txb] = [rate("rxb", row.rx_bytes), rate("txb", row.tx_bytes)];
    const lines = [[rates.series(`${row.name} rx`), "rx"], [rates.series(`${row.name} tx`), "tx"]];
    const label = `${row.name}: ${short(rx)} packets/s received, ${short(tx)} sent, in the last minute`;
    return [
      h("span", {}, h("b", {}, row.name), row.up ? "" : [" ", badge("down", "bad")]),
      h("span", { title: row.mode }, badge(ICONS[row.path] ?? row.path, row.path), row.policy ? [" ", badge("policy", "warn")] : ""),
      spark(lines, label), h("span", { class: "in" }, short(rx)), h("span", { class: "out" }, short(tx)),
      unit(rxb === null ? null : rxb * 8, "b"), unit(txb === null ? null : txb * 8, "b"),
      short(rate("punted", row.punted)), h("span", { class: "soft" }, row.addresses.slice(0, 2).join(", ")),
    ];
  });
  const columns = [["Interface"], ["Path"], ["Last minute", "mid"], [h("span", { class: "in" }, "RX packets/s"), "n"], [h("span", { class: "out" }, "TX packets/s"), "n"],
    ["RX bit/s", "n"], ["TX bit/s", "n"], ["To kernel/s", "n"], ["Addresses", "m"]];
  return card("Interfaces", "", table("Interfaces", columns, cells, "No interface."));
}

function fates(data, now, all) {
  const punted = sum(data.interfaces, (row) => row.punted);
  const list = [
    ["xdp", "Forwarded in XDP", all.xdp, "c-xdp"],
    ["graph", "Forwarded by the graph", all.graph, "c-graph"],
    ["punted", "Passed to the kernel", punted, "c-kernel"],
    ["dropped", "Dropped", all.dropped, "c-drop"],
  ].map(([key, name, n, color]) => ({ name, n, color, rate: rates.of(key, n, now) }));
  const now_ = sum(list, (row) => row.rate ?? 0);
  const stack = h("div", { class: "stack", role: "img", "aria-label": list.map((row) => `${row.name}: ${short(row.rate)}/s`).join(", ") }, list.map((row) => {
    const part = h("i", { class: row.color });
    part.style.flexGrow = now_ > 0 ? row.rate : row.n;
    return part;
  }));
  const rows = list.map((row) => [h("span", {}, h("i", { class: `key ${row.color}` }), row.name), short(row.rate), percent(row.rate ?? 0, now_), count(row.n)]);
  return card("Where packets go", "half", stack, table("Where packets go", [["Result"], ["Packets/s", "n"], ["Share", "n"], ["In all", "n"]], rows));
}

function left(all, now, words) {
  const list = Object.entries(all.left).map(([name, n]) => ({ name, n, rate: rates.of(`left ${name}`, n, now) })).sort((a, b) => b.n - a.n);
  const rows = list.map((row) => [h("span", { class: "m" }, row.name), h("span", { class: "soft" }, words[`xdp ${row.name}`] ?? ""), short(row.rate), count(row.n)]);
  return card(["Packets that leave XDP ", h("small", {}, "for the graph or the kernel")], "half",
    table("Packets that leave XDP", [["Reason"], ["Meaning"], ["Per second", "n"], ["In all", "n"]], rows, "None has left."));
}

function drops(all, now, words) {
  const list = all.drops.map((row) => ({ ...row, rate: rates.of(`drop ${row.name}`, row.n, now) })).sort((a, b) => b.rate - a.rate || b.n - a.n);
  const most = Math.max(1, ...list.map((row) => row.n));
  const rows = list.map((row) => [h("span", { class: "m drop" }, row.name), words[row.name] ?? "", h("span", { class: "m soft" }, [...row.where].join(", ")),
    short(row.rate), count(row.n), bar(row.n / most, "d")]);
  return card("Drops by reason", "", table("Drops by reason", [["Reason"], ["Meaning"], ["Where"], ["Per second", "n"], ["In all", "n"], ["", "mid"]], rows, "No packet was dropped."));
}

export default {
  name: "overview",
  title: "Overview",
  needs: ["/v1/interfaces", "/v1/graph", "/v1/fibs"],
  open: (root) => ({
    async update(data, now) {
      const words = await reasons();
      const all = totals(data.graph);
      put(root, h("div", { class: "grid" }, h("div", { class: "tiles" }, tiles(data, now, all)), interfaces(data.interfaces, now),
        fates(data, now, all), left(all, now, words), drops(all, now, words)));
    },
  }),
};
