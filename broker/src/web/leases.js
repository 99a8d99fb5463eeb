// The leases.

import { badge, between, bytes, clock, count, duration, h, nothing, percent, table } from "./dom.js";
import { now, store } from "./api.js";

const FEW = 100;
let shown = FEW;
let wanted = "";
let ended = false;

export const needs = () => [ended ? "all" : "leases"];
export const title = () => "Leases";

export function act(action, value) {
  if (action === "more-leases") shown += FEW;
  if (action === "filter-leases") [wanted, shown] = [value, FEW];
  if (action === "ended-leases") ended = value;
}

/** Where a lease's devices are. */
export const places = (lease) => between([
  ...lease.grants.map((grant) => h("a", { href: `#/device/${encodeURIComponent(grant.node)}/${grant.device}` }, `${grant.node}/${grant.device}`)),
  ...(lease.nvmes ?? []).map((nvme) => `${nvme.node}/${nvme.device}`),
]);

const sum = (list, of) => list.reduce((all, one) => all + of(one), 0);

export function render() {
  const problem = store.problems.leases;
  const leases = store.data[ended ? "all" : "leases"];
  const head = h("h2", { tabindex: "-1" }, "Leases");
  if (problem) return [head, nothing(problem)];
  if (!leases) return [head, nothing("Asking the broker…")];
  const order = { waiting: 0, active: 1, ending: 2, ended: 3 };
  const fits = (lease) => [lease.name, lease.tenant, lease.state, lease.id, ...lease.grants.map((grant) => grant.node)]
    .some((text) => text.toLowerCase().includes(wanted.trim().toLowerCase()));
  const found = leases.filter(fits).sort((a, b) => order[a.state] - order[b.state] || b.submitted - a.submitted);
  const rows = found.slice(0, shown).map((lease) => [lease.id, [
    h("a", { href: `#/lease/${lease.id}` }, lease.name),
    lease.tenant,
    badge(lease.state),
    lease.grants.length ? places(lease) : "–",
    lease.grants.length ? `${percent(sum(lease.usage, (use) => use.share_milli))} of ${percent(sum(lease.grants, (grant) => grant.share_milli))}` : "–",
    lease.grants.length ? `${bytes(sum(lease.usage, (use) => use.memory))} of ${bytes(sum(lease.grants, (grant) => grant.memory))}` : "–",
    lease.ended ? ["ended ", clock(lease.ended)] : lease.granted ? `runs for ${duration(now() - lease.granted)}` : `waits for ${duration(now() - lease.submitted)}`,
    h("a", { href: `#/lease/${lease.id}`, "aria-label": `Explain ${lease.name}` }, "Explain"),
  ]]);
  return [
    head,
    h("p", { class: "tools" }, h("label", { for: "filter-leases" }, "Show leases with "),
      h("input", { id: "filter-leases", "data-key": "filter-leases", value: wanted, type: "search", "data-action": "filter-leases", placeholder: "a name, a tenant, a state, a node" }), " ",
      h("label", {}, h("input", { id: "ended-leases", "data-key": "ended-leases", checked: ended, type: "checkbox", "data-action": "ended-leases" }), " those too that have ended"),
      h("span", { class: "hint" }, ` ${count(found.length, "lease")}`)),
    rows.length
      ? table(h("span", { class: "unseen" }, "Leases"), ["Lease", "Tenant", "State", "Where", "Time used", "Memory used", "Since", "Why"], rows)
      : nothing(leases.length ? "No lease fits." : "There are no leases: rgpu run asks for one."),
    found.length > shown && h("p", {}, h("button", { type: "button", "data-action": "more-leases" }, `Show more of ${count(found.length, "lease")}`)),
  ].filter(Boolean);
}
