// What happens to a packet: a dry run, step by step.

import { badge, card, facts, get, h, put, table } from "./tools.js";

const KINDS = { forward: "ok", drop: "bad", wait: "warn", local: "graph" };

function step(row, frames) {
  const where = row.output_name ? `[${row.output_name}]` : row.output ? `[${row.output}]` : "";
  const does = { passed: `passes it on ${where}`, sent: `sends it on ${row.interface}`, dropped: `drops it: ${row.reason}`, kept: "keeps it", written: "writes it to a file" }[row.does] ?? row.does;
  const details = [
    row.why, ...row.changes.map((change) => `${change.field}: ${change.from} → ${change.to}`), ...(row.notes ?? []), row.cluster,
    row.route && `route ${row.route.prefix ?? "none"} in table ${row.route.table}: ${row.route.action}${row.route.adjacency ? `, ${row.route.adjacency.interface} to ${row.route.adjacency.neighbor ?? "the link"}` : ""}`,
    row.found && `route ${row.found.prefix ?? "none"}${row.found.gateway ? ` by ${row.found.gateway}` : ""}`,
    ...(row.made.length ? [`makes ${row.made.map((n) => frames[n]?.summary ?? `packet ${n}`).join("; ")}`] : []),
  ].filter(Boolean);
  return h("li", { class: row.does }, h("b", {}, row.element), " ", h("span", { class: "soft" }, row.class), row.packet > 0 ? [" ", badge(`packet ${row.packet + 1}`)] : "", h("div", {}, does), details.map((words) => h("div", { class: "detail" }, words)));
}

function result(why) {
  const { dry_run: run, route, drivers } = why;
  const verdict = h("section", { class: "card", "aria-label": "Verdict" }, h("p", { class: "verdict" }, badge(why.does, KINDS[why.does]), " ", why.verdict),
    h("p", { class: "note" }, `Arrives on ${why.interface}. ${run.packets[0]?.summary ?? ""}`));
  const steps = card("Steps in the graph", "half", h("ol", { class: "steps" }, run.steps.map((row) => step(row, run.packets))), run.cut ? h("p", { class: "note" }, "Some steps were left out.") : "");
  const xdp = card("In XDP", "", drivers.length ? table("In XDP", [["Interfaces"], ["Does"], ["Reason"]], drivers.map((row) => [row.interfaces.join(", "), badge(row.does, { forward: "ok", drop: "bad", leave: "warn" }[row.does]),
    h("span", { title: row.reason ?? "" }, row.why ?? (row.adjacency ? `leaves by ${row.adjacency.interface}` : ""))])) : h("p", { class: "empty" }, "No interface forwards in XDP."));
  const found = route && card("Route", "", facts([
    ["Prefix", route.prefix ?? "none"], ["Next hop", String(route.nexthop)], ["Action", route.action ?? "–"], ["Algorithm", route.algorithm],
    ["RIB and lookup", route.agrees ? "agree" : "differ", route.agrees ? "good" : "bad"],
    ...(route.adjacency ? [["Interface", route.adjacency.interface], ["Neighbor", route.adjacency.neighbor ?? "–"], ["Link address", route.adjacency.dst_mac ?? "not resolved", "m"], ["MTU", String(route.adjacency.mtu ?? "–")]] : []),
  ]), h("h2", {}, "Routes of the prefix"), table("Routes of the prefix", [["Source"], ["Distance", "n"], ["Metric", "n"], ["Leads to", "m"]], route.candidates.map((row) => [h("span", {}, row.source, row.best ? [" ", badge("best", "ok")] : ""), row.distance, row.metric,
    row.paths.length ? row.paths.map((path) => `${path.gateway ?? "the link"}${path.dev ? ` dev ${path.dev}` : ""}`).join(", ") : row.kind])));
  const read = route?.steps?.length ? card(["Memory reads of the lookup ", h("small", {}, route.algorithm)], "", table("Memory reads", [["Region", "m"], ["Offset", "n"], ["Value", "m"], ["Meaning"]], route.steps.map((row) => [row.region, row.offset, row.value, row.note]))) : "";
  return h("div", { class: "grid" }, verdict, steps, h("div", { class: "half stacked" }, xdp, found, read));
}

export default {
  name: "packet",
  title: "Packet",
  needs: ["/v1/interfaces"],
  open(root) {
    const text = h("input", { name: "packet", placeholder: "203.0.113.9, 2001:db8::1, or a frame in hex", autocomplete: "off", spellcheck: "false", required: true });
    const on = h("select", { name: "interface" }, h("option", { value: "" }, "any"));
    const flow = h("input", { name: "flow", placeholder: "SRC,DST,PROTOCOL,SPORT,DPORT", autocomplete: "off", spellcheck: "false", size: 30 });
    const shown = h("div", { "aria-live": "polite" });
    const run = async () => {
      const words = text.value.trim();
      const isFrame = /^[0-9a-f\s]{28,}$/i.test(words) && !words.includes(":");
      const query = new URLSearchParams(isFrame ? { packet: words.replace(/\s/g, "") } : { addr: words });
      if (on.value) query.set("interface", on.value);
      if (flow.value.trim() && !isFrame) query.set("flow", flow.value.trim());
      try {
        const why = await get(`/v1/why?${query}`);
        put(shown, result(why));
      } catch (error) {
        put(shown, h("section", { class: "card" }, h("p", { class: "error", role: "alert" }, error.message)));
      }
    };
    const form = h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); const to = `#packet=${encodeURIComponent(text.value.trim())}`; if (location.hash === to) run(); else location.hash = to; } },
      h("label", { class: "grow" }, "Destination address or frame", text), h("label", {}, "Arrives on", on), h("label", {}, "Flow (optional)", flow), h("button", { class: "main", type: "submit" }, "What happens to it?"));
    root.append(h("p", { class: "note" }, "A dry run: nothing is sent, and no state changes."), form, shown);
    return {
      words(words) { if (words) { text.value = words; run(); } else text.focus(); },
      update(data) {
        const names = data.interfaces.map((row) => row.name);
        if (names.join() === [...on.options].slice(1).map((option) => option.value).join()) return;
        const chosen = on.value;
        on.replaceChildren(h("option", { value: "" }, "any"), ...names.map((name) => h("option", { value: name }, name)));
        on.value = chosen;
      },
    };
  },
};
