// The cluster at a glance.

import { badge, clock, count, duration, h, nothing, number, percent, rate, short } from "./dom.js";
import { cell, hue, swatch } from "./charts.js";
import { now, store } from "./api.js";

/** The most nodes on the map. */
const MOST = 200;
/** The most leases that are named at a device. */
const SOME = 3;

export const needs = ["summary", "nodes", "devices", "leases", "policy", "health"];

export function render() {
  const { summary, nodes, devices, leases, policy } = store.data;
  if (!summary || !nodes || !devices) return [h("h2", { tabindex: "-1" }, "Overview"), nothing("Asking the broker…")];
  return [
    h("h2", { tabindex: "-1" }, "Overview"),
    tiles(summary, policy),
    attention(nodes, leases ?? []),
    h("h3", {}, "Where leases are"),
    map(nodes, devices, leases ?? []),
    h("h3", {}, "What happened lately"),
    log(),
  ];
}

const tiles = (summary, policy) => {
  const tile = (name, value, note) => h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, value), note && h("span", {}, note)));
  return h("dl", { class: "tiles" },
    tile("Nodes ready", number(summary.nodes_ready), `of ${number(summary.nodes)}`),
    tile("GPUs granted", number(summary.granted_milli / 1000, 2), `of ${number(summary.devices)}`),
    tile("Leases active", number(summary.active)),
    tile("Waiting", number(summary.waiting)),
    tile("Leases’ traffic", rate(summary.traffic_mbps)),
    tile("Kernel launches", number(summary.launches_per_s), "per second"),
    tile("Placement rounds", number(summary.rounds), `the last took ${short(summary.round_us)}`),
    policy && tile("Policy", policy.active.name, policy.active.network_aware === true ? "aware of the network" : ""));
};

/** What somebody may have to do something about. */
function attention(nodes, leases) {
  const found = [];
  for (const node of nodes) {
    if (["lost", "silent", "joining", "draining"].includes(node.state)) {
      const since = node.state === "lost" || node.state === "silent" ? `, not heard of for ${duration(node.heard_s)}` : "";
      found.push(h("li", { "data-key": `n${node.name}` }, badge(node.state), ` node ${node.name}${since}`));
    }
  }
  for (const lease of leases) {
    if (lease.deadline_kept === false && (lease.state === "active" || lease.state === "waiting")) {
      found.push(h("li", { "data-key": `d${lease.id}` }, badge(lease.state), " ", h("a", { href: `#/lease/${lease.id}` }, lease.name),
        " is not expected to keep its deadline, ", clock(lease.deadline)));
    }
  }
  const longest = leases.filter((lease) => lease.state === "waiting").sort((a, b) => a.submitted - b.submitted)[0];
  if (longest && now() - longest.submitted > 600) {
    found.push(h("li", { "data-key": "longest" }, badge("waiting"), " ", h("a", { href: `#/lease/${longest.id}` }, longest.name),
      ` has waited for ${duration(now() - longest.submitted)}`));
  }
  if (!found.length) return null;
  return h("section", { class: "attention", "aria-label": "Needs attention" }, h("h3", {}, "Needs attention"), h("ul", {}, found.slice(0, 20)));
}

/** Every device with what is granted of it. */
function map(nodes, devices, leases) {
  const mine = new Map(leases.map((lease) => [lease.id, lease]));
  const shown = nodes.filter((node) => node.devices > 0);
  if (!shown.length) return nothing("No node has joined yet: rgpu serve --broker URL on a machine with GPUs adds one.");
  const all = new Map();
  for (const device of devices) all.set(device.node, [...(all.get(device.node) ?? []), device]);
  const one = (device) => {
    const parts = device.leases.flatMap((id) => {
      const lease = mine.get(id);
      if (!lease) return [];
      const milli = lease.grants
        .filter((grant) => grant.node === device.node && grant.device === device.index)
        .reduce((sum, grant) => sum + grant.share_milli, 0);
      return [{ key: id, milli, hue: hue(id), name: lease.name, label: `${lease.name} of ${lease.tenant}: ${percent(milli)}` }];
    });
    const own = parts.reduce((sum, part) => sum + part.milli, 0);
    const names = parts.map((part) => part.label).join("; ");
    const others = Math.max(0, device.granted_milli - own);
    const label = `GPU ${device.index} of ${device.node}: ${percent(device.granted_milli)} granted${names && `: ${names}`}`;
    return h("a", { href: `#/device/${encodeURIComponent(device.node)}/${device.index}`, "data-key": `${device.index}` },
      cell(parts, others, device.available, label),
      h("span", { "aria-hidden": "true" }, h("strong", {}, `GPU ${device.index}`), ` ${percent(device.granted_milli)}`),
      parts.slice(0, SOME).map((part) => h("span", { "aria-hidden": "true", class: "part", "data-key": part.key }, swatch(part.hue), ` ${part.name}`)),
      parts.length > SOME && h("span", { "aria-hidden": "true", class: "part" }, `and ${parts.length - SOME} more`));
  };
  const tile = (node) => h("li", { "data-key": node.name },
    h("p", {}, node.name, " ", node.state === "ready" ? null : badge(node.state)),
    h("div", { class: "cells" }, (all.get(node.name) ?? []).map(one)));
  return [
    h("ul", { class: "map" }, shown.slice(0, MOST).map(tile)),
    shown.length > MOST && h("p", { class: "hint" }, `The first ${MOST} of ${count(shown.length, "node")}; `, h("a", { href: "#/devices" }, "all of them"), "."),
    h("p", { class: "hint" }, "Each bar is a GPU; coloured parts are leases that you may see, grey ones are others’."),
  ].filter(Boolean);
}

function log() {
  if (!store.events.length) return nothing("Nothing has happened since the broker was started.");
  const line = (event) => h("li", { "data-key": String(event.number) }, clock(event.time), " ", h("span", { class: "kind" }, event.kind.replaceAll("_", " ")), " ",
    event.lease ? h("a", { href: `#/lease/${event.lease}` }, event.text) : event.text);
  return h("ol", { class: "log" }, store.events.slice(0, 25).map(line));
}

export const title = () => "Overview";
