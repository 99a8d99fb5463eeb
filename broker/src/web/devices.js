// Nodes and their devices, and a device's last hour.

import { badge, between, bytes, clock, count, duration, facts, h, nothing, percent, rate, table } from "./dom.js";
import { bar, chart, hue, latest, memory, spark, swatch, timeline } from "./charts.js";
import { now, store } from "./api.js";

/** How many nodes are shown at first. */
const FEW = 30;
let shown = FEW;
let wanted = "";

/** The nodes whose history is on the screen. */
function inSight() {
  const near = (element) => {
    const box = element.getBoundingClientRect();
    return box.bottom > -200 && box.top < innerHeight + 200;
  };
  return [...document.querySelectorAll("[data-history]")].filter(near).map((element) => element.dataset.history).slice(0, 40);
}

export const list = {
  needs: ["nodes", "devices", "leases"],
  title: () => "Nodes and devices",

  async more() {
    await Promise.all(inSight().map((node) => store.history(node)));
  },

  act(action, value) {
    if (action === "more-nodes") shown += FEW;
    if (action === "filter-nodes") [wanted, shown] = [value, FEW];
  },

  render() {
    const { nodes, devices, leases } = store.data;
    const head = h("h2", { tabindex: "-1" }, "Nodes and devices");
    if (!nodes || !devices) return [head, nothing("Asking the broker…")];
    const by = new Map();
    for (const device of devices) by.set(device.node, [...(by.get(device.node) ?? []), device]);
    const names = new Map((leases ?? []).map((lease) => [lease.id, lease.name]));
    const fits = (node) => [node.name, node.state, ...(by.get(node.name) ?? []).map((device) => device.model)]
      .some((text) => text.toLowerCase().includes(wanted.trim().toLowerCase()));
    const found = nodes.filter((node) => node.state !== "client" && fits(node));
    const clients = nodes.filter((node) => node.state === "client");
    return [
      head,
      h("p", { class: "tools" }, h("label", { for: "filter-nodes" }, "Show nodes with "),
        h("input", { id: "filter-nodes", "data-key": "filter-nodes", value: wanted, type: "search", "data-action": "filter-nodes", placeholder: "a name, a state or a model" }),
        h("span", { class: "hint" }, ` ${count(found.length, "node")}`),
        h("span", { class: "hint" }, swatch("granted"), " granted, ", swatch("used"), " used")),
      ...found.slice(0, shown).map((node) => one(node, by.get(node.name) ?? [], names)),
      found.length > shown && h("p", {}, h("button", { type: "button", "data-action": "more-nodes" }, `Show more of ${count(found.length, "node")}`)),
      !found.length && nothing(nodes.length ? "No node fits." : "No node has joined yet: rgpu serve --broker URL on a machine with GPUs adds one."),
      clients.length > 0 && h("p", { class: "hint" }, `Machines without GPUs of their own where programs run: ${clients.map((node) => node.name).join(", ")}.`),
    ].filter(Boolean);
  },
};

function one(node, devices, names) {
  const history = store.histories.get(node.name)?.value;
  const heard = node.state === "lost" || node.state === "silent" ? `, not heard of for ${duration(node.heard_s)}` : "";
  const most = Math.max(node.nic_mbps, 1);
  const both = (a, b) => a?.map((value, at) => (value === null ? null : Math.max(value, b[at])));
  const rows = devices.map((device) => {
    const past = history?.devices.find((one) => one.device === device.index);
    const milli = (part) => (part / device.memory) * 1000;
    const use = device.load.utilization_percent * 10;
    return [`${device.index}`, [
      [h("a", { href: `#/device/${encodeURIComponent(node.name)}/${device.index}` }, `GPU ${device.index}`), " ", h("span", { class: "model" }, device.model)],
      [bar(device.granted_milli, use, "Time"), h("span", { class: "figures" }, `${percent(device.granted_milli)} granted, ${percent(use)} busy`)],
      [bar(milli(device.granted_memory), milli(device.load.memory_used), "Memory"),
        h("span", { class: "figures" }, memory(device.granted_memory, device.load.memory_used, device.memory))],
      spark(past?.granted_milli, past?.busy_milli, "The last hour: time granted, and busy"),
      device.leases.length
        ? between(device.leases.map((id) => h("a", { href: `#/lease/${id}`, "data-key": id }, names.get(id) ?? id)))
        : device.granted_milli > 0 ? "others’" : "none",
    ]];
  });
  return h("article", { "data-key": node.name, "data-history": node.name },
    h("h3", {}, node.name, " ", badge(node.state)),
    h("p", { class: "about" }, `${node.address}, rgpu ${node.version}, ${rate(node.nic_mbps)} network${heard}`),
    h("div", { class: "network" },
      h("span", {}, `Network: ${rate(node.nic_in_mbps)} in, ${rate(node.nic_out_mbps)} out; not leases’: ${rate(node.others_mbps)}`),
      spark(both(history?.nic_in_mbps, history?.nic_out_mbps), both(history?.own_in_mbps, history?.own_out_mbps),
        "The last hour: all traffic, and that of leases", most)),
    table(h("span", { class: "unseen" }, `Devices of ${node.name}`), ["Device", "Time", "Memory", "Last hour", "Leases"], rows));
}

/** The last hour, or more, of one device. */
const HOURS = [1, 6, 24];
let hours = 1;

export const device = {
  needs: ["nodes", "devices", "all"],
  title: ([node, index]) => `GPU ${index} of ${node}`,

  more: ([node]) => store.history(node),

  act(action, value) {
    if (action === "hours") hours = Number(value);
  },

  render([name, index]) {
    const { nodes, devices, all } = store.data;
    const head = [
      h("p", { class: "trail" }, h("a", { href: "#/devices" }, "Nodes and devices"), " ›"),
      h("h2", { tabindex: "-1" }, `GPU ${index} of ${name}`),
    ];
    if (!nodes || !devices) return [...head, nothing("Asking the broker…")];
    const node = nodes.find((node) => node.name === name);
    const device = devices.find((device) => device.node === name && device.index === Number(index));
    if (!node || !device) return [...head, nothing("There is no such device (any more).")];
    const history = store.histories.get(name)?.value;
    const past = history?.devices.find((one) => one.device === device.index);
    const power = device.load.power_w;
    return [
      ...head,
      facts([
        ["State", [badge(device.available ? "available" : "unavailable"), node.state === "ready" ? "" : ` (its node is ${node.state})`]],
        ["Model", device.model],
        ["Kind", `${device.software ? "software GPU" : "NVIDIA GPU"}, compute capability ${device.compute_capability}`],
        ["Time", `${percent(device.granted_milli)} granted, ${percent(device.load.utilization_percent * 10)} busy`],
        ["Memory", memory(device.granted_memory, device.load.memory_used, device.memory)],
        ["Most memory in use", bytes(device.load.peak_memory)],
        ["Shares are held by", device.enforced_by || "not said"],
        power !== null && power !== undefined && ["Power", `${power.toFixed(0)}\u202fW`],
      ]),
      h("h3", {}, "Which leases were on it, and when"),
      life(device, all ?? [], history),
      h("h3", {}, "The last hour"),
      ...(past ? curves(history, past, device) : [nothing("Nothing was measured yet: the first value comes after ten seconds.")]),
    ];
  },
};

const curves = (history, past, device) => [
  chart("Time", history.end, history.interval_s,
    [{ name: "granted", kind: "granted", values: past.granted_milli }, { name: "busy", kind: "used", values: past.busy_milli }], "milli"),
  chart(`Memory, of ${bytes(device.memory)}`, history.end, history.interval_s,
    [{ name: "granted", kind: "granted", values: past.memory_granted_milli }, { name: "in use", kind: "used", values: past.memory_used_milli }], "milli"),
  chart(`Network of ${history.node}`, history.end, history.interval_s,
    [{ name: "in", kind: "granted", values: history.nic_in_mbps }, { name: "out", kind: "third", values: history.nic_out_mbps },
      { name: "leases’ in", kind: "used", values: history.own_in_mbps }, { name: "leases’ out", kind: "fourth", values: history.own_out_mbps }], "mbps"),
];

/** A device's life: the leases that had parts of it. */
function life(device, leases, history) {
  const end = now();
  const start = end - hours * 3600;
  const had = leases.flatMap((lease) => {
    const grants = lease.grants.filter((grant) => grant.node === device.node && grant.device === device.index);
    const to = lease.ended ?? end;
    if (!grants.length || lease.granted === null || to < start) return [];
    const share = grants.reduce((sum, grant) => sum + grant.share_milli, 0);
    const size = grants.reduce((sum, grant) => sum + grant.memory, 0);
    return [{ lease, share, size, from: lease.granted, to }];
  });
  const spans = had.map(({ lease, share, size, from, to }) => ({
    key: lease.id, label: lease.name, href: `#/lease/${lease.id}`, from, to, hue: hue(lease.id),
    note: `${lease.name} of ${lease.tenant}: ${percent(share)}, ${bytes(size)}, for ${duration(to - from)}`,
  }));
  const rows = [...had].sort((a, b) => b.from - a.from).slice(0, 50).map(({ lease, share, size, from, to }) => [lease.id, [
    [swatch(hue(lease.id)), " ", h("a", { href: `#/lease/${lease.id}` }, lease.name)], lease.tenant, percent(share), bytes(size), clock(from),
    lease.ended ? clock(lease.ended) : badge(lease.state), duration(to - from),
  ]]);
  const unseen = latest(history?.devices.find((one) => one.device === device.index)?.granted_milli);
  return [
    h("p", { class: "tools" }, h("label", { for: "hours" }, "Show the last "),
      h("select", { id: "hours", "data-key": "hours", "data-action": "hours" },
        HOURS.map((value) => h("option", { value, selected: value === hours }, value === 1 ? "hour" : `${value} hours`)))),
    had.length
      ? h("figure", {}, timeline(`Leases on GPU ${device.index} of ${device.node}`, start, end, spans))
      : nothing(unseen ? "None that you may see: what is granted is others’." : "None."),
    had.length > 0 && h("details", { open: had.length <= 12 }, h("summary", {}, `The same as a table: ${count(had.length, "lease")}`),
      table("", ["Lease", "Tenant", "Time", "Memory", "From", "To", "For"], rows)),
  ].filter(Boolean);
}
