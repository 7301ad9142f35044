// Views that are lists: FIB, route sources, next hops and groups, neighbors.

import { badge, bar, bytes, card, count, facts, h, ms, percent, put, rates, short, spark, table, unit } from "./tools.js";

/** A list with a field that narrows it: `rows` makes cells, with the words that are searched. */
function listed(name, title, needs, hint, body) {
  return {
    name, title, needs,
    open(root) {
      let wanted = "";
      let latest = null;
      const field = h("input", { type: "search", placeholder: hint, oninput: () => { wanted = field.value.toLowerCase(); latest && draw(); } });
      const holder = h("div", { class: "grid" });
      root.append(h("div", { class: "tools" }, h("label", { class: "grow" }, "Show only", field)), holder);
      const keep = (...words) => wanted === "" || words.join(" ").toLowerCase().includes(wanted);
      const draw = () => put(holder, body(latest.data, latest.now, keep));
      return { update(data, now) { latest = { data, now }; draw(); } };
    },
  };
}

const MOST = 500;
function cut(rows) {
  return rows.length > MOST ? [rows.slice(0, MOST), h("p", { class: "note" }, `${count(rows.length - MOST)} more: narrow the list.`)] : [rows, ""];
}

function fitness(row) {
  const list = [...row.fitness].sort((a, b) => b.fitness - a.fitness);
  return h("div", { class: "fit", role: "img", "aria-label": `Fitness: ${list.map((a) => `${a.name} ${a.fitness}`).join(", ")}` }, list.map(({ name, fitness }) => {
    const kind = name === row.algorithm ? "now" : fitness === 0 ? "none" : "";
    return [h("span", { class: kind }, name), bar(fitness / 255), h("span", { class: `n ${kind}` }, fitness)];
  }));
}

function one(row, now) {
  const name = `fib ${row.family} ${row.table} ${row.paths}`;
  const churn = rates.of(name, row.applied, now);
  const title = [`IPv${row.family}, table ${row.table === 254 ? "main" : row.table}${row.paths ? ", all paths" : ""} `, h("small", {}, row.choice === "auto" ? "chosen by fitness" : row.choice === "measured" ? "chosen by calibration" : "pinned"), " ",
    row.in_xdp === false && !row.paths ? badge("not in XDP", "warn") : row.in_xdp ? badge("read by XDP", "xdp") : "", row.mismatch_routes > 0 ? badge(`${row.mismatch_routes} wrong`, "bad") : ""];
  return card(title, "half", facts([
    ["Algorithm", row.algorithm], ["Prefixes", count(row.prefixes)], ["Routes", count(row.routes)],
    ["Memory", bytes(row.bytes)], ["Per prefix", row.bytes_per_prefix === null ? "–" : `${row.bytes_per_prefix.toFixed(2)} B`], ["RIB", bytes(row.rib_bytes)],
    ["Generation", count(row.generation)], ["Changes", unit(churn, "/s")], ["In place", count(row.applied)],
    ["Pending", count(row.pending), row.pending ? "warn" : ""], ["Behind", row.behind_ms === null ? "0" : ms(row.behind_ms), row.behind_ms ? "warn" : ""], ["Longest delay", ms(row.longest_delay_ms)],
    ["Builds", count(row.builds)], ["Last build", ms(row.last_build_ms)], ["Failures", count(row.failures), row.failures ? "bad" : ""],
    ["Audited", unit(row.audited, "addresses")], ["Audit passes", count(row.audit_passes)], ["Mismatches", count(row.mismatch_routes), row.mismatch_routes ? "bad" : "good"],
    ...(row.shared ? [["In XDP", bytes(row.shared.used)], ["Reserved", bytes(row.shared.reserved)], ["Limit", bytes(row.shared.cap)]] : []),
  ]), h("div", { class: "fibline" }, h("p", { class: "note" }, "Changes in the last minute"), spark([[rates.series(name), "rx"]], `Changes of IPv${row.family} in the last minute: ${short(churn)} per second now`)),
  row.fitness.length ? [h("h2", {}, "Fitness ", h("small", {}, "of each algorithm for this table, 0 to 255")), fitness(row)] : "");
}

export const fib = {
  name: "fib",
  title: "FIB",
  needs: ["/v1/fibs"],
  open: (root) => ({ update: (data, now) => put(root, h("div", { class: "grid" }, data.fibs.map((row) => one(row, now)))) }),
};

const SOURCES = [["Source"], ["State"], ["Distance", "n"], ["Routes", "n"], ["Updates/s", "n"], ["Updates", "n"], ["Lag", "n"], ["Resyncs", "n"], ["Errors", "n"], ["Peer", "m"]];
export const sources = listed("sources", "Sources", ["/v1/sources"], "name, kind or peer", (data, now, keep) => {
  const rows = data.sources.filter((row) => keep(row.name, row.kind, row.peer)).map((row) => [
    h("span", {}, h("b", {}, row.name), " ", row.name === row.kind ? "" : h("span", { class: "soft" }, row.kind)),
    row.in_sync ? badge("in sync", "ok") : badge(row.sessions === null ? "loading" : "no session", "warn"), row.distance, count(row.routes),
    short(rates.of(`source ${row.name}`, row.updates, now)), count(row.updates), ms(row.lag_ms),
    h("span", { title: row.resync_reason }, count(row.resyncs)),
    h("span", { class: row.errors ? "bad" : "", title: row.last_error || row.last_refusal }, count(row.errors)), row.peer ?? "–",
  ]);
  return card("Route sources", "", table("Route sources", SOURCES, rows));
});

const HOPS = [["Index", "n"], ["Type"], ["Gateway", "m"], ["Interface"], ["Flags", "m"], ["MTU", "n"], ["Routes and groups", "n"], ["Packets/s", "n"], ["Packets", "n"]];
const GROUPS = [["Index", "n"], ["Members"], ["Slots", "n"], ["Routes", "n"], ["Packets/s", "n"], ["Packets", "n"]];
export const hops = listed("hops", "Next hops", ["/v1/nexthops", "/v1/groups"], "gateway, interface, type or index", (data, now, keep) => {
  const rate = (row) => rates.of(`hop ${row.index}`, row.use, now);
  const kept = data.nexthops.filter((row) => keep(row.gateway, row.interface, row.type, row.index));
  kept.sort((a, b) => rate(b) - rate(a) || b.references - a.references);
  const [rows, more] = cut(kept.map((row) => [row.index, row.type, row.gateway ?? "–", row.interface ?? "–", row.flags,
    row.mtu ?? "–", count(row.references), short(rate(row)), count(row.use)]));
  const member = (part) => h("tr", {}, h("td", { class: "m" }, part.gateway ?? "–"), h("td", {}, part.interface ?? "–"), h("td", { class: "n soft" }, `weight ${part.weight}`), h("td", { class: "mid" }, bar(part.share)), h("td", { class: "n" }, percent(part.share, 1)));
  const [groups, others] = cut(data.groups.filter((row) => keep(row.index, ...row.members.flatMap((part) => [part.gateway, part.interface]))).map((row) => [row.index,
    h("table", { "aria-label": `Members of group ${row.index}` }, row.members.map(member)), count(row.slots), count(row.references), short(rate(row)), count(row.use)]));
  return [card(["Next hops ", h("small", {}, count(data.nexthops.length))], "", table("Next hops", HOPS, rows), more),
    card(["Groups ", h("small", {}, count(data.groups.length))], "", table("Groups", GROUPS, groups), others)];
});

const KINDS = { reachable: "ok", permanent: "ok", incomplete: "warn", failed: "bad", suspended: "warn" };
export const neighbors = listed("neighbors", "Neighbors", ["/v1/neighbors"], "address, interface, link address or state", (data, now, keep) => {
  const states = new Map();
  data.neighbors.forEach((row) => states.set(row.state, (states.get(row.state) ?? 0) + 1));
  const [rows, more] = cut(data.neighbors.filter((row) => keep(row.addr, row.interface, row.mac, row.state)).map((row) => [row.addr, row.interface, row.mac ?? "–", badge(row.state, KINDS[row.state]), row.source]));
  const summary = [...states].map(([name, n]) => `${count(n)} ${name}`).join(", ");
  return card(["Neighbors ", h("small", {}, summary)], "", table("Neighbors", [["Address", "m"], ["Interface"], ["Link address", "m"], ["State"], ["Source"]], rows), more);
});
