// One lease: what it has, and why.

import { badge, between, bytes, clock, count, duration, facts, h, nothing, number, percent, table } from "./dom.js";
import { ask, now, store } from "./api.js";
import { places } from "./leases.js";

export const needs = ["all"];
export const title = ([id]) => {
  const lease = store.data.all?.find((lease) => lease.id === id);
  return lease ? `Lease ${lease.name}` : `Lease ${id}`;
};

/** Asks why. Of a lease that waits the answer may take as long as a round. */
export async function more([id]) {
  if (store.explained.id !== id) store.explained = { id, at: 0, value: null, problem: "" };
  const entry = store.explained;
  if (Date.now() - entry.at < 4000 || !/^[0-9a-f]{16}$/.test(id)) return;
  entry.at = Date.now();
  try {
    entry.value = await ask(`/v1/leases/${id}/explain`);
    entry.problem = "";
    store.answered();
  } catch (failure) {
    entry.problem = failure.message;
    store.failed(failure, "explain");
  }
}

/** How an end or a start is known. */
const BASES = {
  learnt: "by earlier runs with the same input", similar: "by runs with other inputs", estimate: "by what its request says",
  profile: "by a written profile", expiry: "when it expires", ending: "it is being ended",
  waiting: "the policy lets it begin after a while", unknown: "not known",
};

/** An estimated moment. */
export function expected(estimate) {
  if (!estimate) return "not worked out yet";
  if (estimate.start === null || estimate.start === undefined) return `not known: ${estimate.why}`;
  const about = estimate.deviation_s >= 1 ? ` ± ${duration(estimate.deviation_s)}` : "";
  return [clock(estimate.start), `${about}, in ${duration(estimate.start - now())} (${BASES[estimate.basis] ?? estimate.basis})`];
}

const deadline = (lease) => lease.deadline && ["Deadline", [clock(lease.deadline), lease.deadline_kept === true ? ", expected to be kept"
  : lease.deadline_kept === false ? ", not expected to be kept" : ""]];

export function render([id]) {
  const { all } = store.data;
  const trail = h("p", { class: "trail" }, h("a", { href: "#/leases" }, "Leases"), " ›");
  const lease = all?.find((lease) => lease.id === id);
  if (!lease) {
    const text = !all ? "Asking the broker…" : "There is no such lease, or it ended long ago, or it is another tenant’s.";
    return [trail, h("h2", { tabindex: "-1" }, `Lease ${id}`), nothing(text)];
  }
  return [
    trail,
    h("h2", { tabindex: "-1" }, lease.name, " ", badge(lease.state)),
    facts([
      ["Id", h("code", {}, lease.id)],
      ["Tenant", lease.tenant],
      ["Its program runs on", lease.client_node],
      ["Asked for", clock(lease.submitted)],
      lease.granted ? ["Granted", clock(lease.granted)] : ["Expected to begin", lease.estimate?.start ? expected(lease.estimate) : "not known"],
      lease.ended && ["Ended", clock(lease.ended)],
      lease.state === "active" && lease.expires && ["Expires unless renewed", clock(lease.expires)],
      deadline(lease),
      lease.reason && [lease.state === "waiting" ? "Waits because" : "Ended because", lease.reason],
      lease.grants.length > 0 && ["Devices", [places(lease), lease.remote ? ` (${number(lease.remote)} on other nodes than its program)` : ""]],
      ["Programs with a session", number(lease.sessions)],
    ]),
    lease.grants.length > 0 && [h("h3", {}, "What it has, and uses"), uses(lease)],
    h("h3", {}, "Why"),
    ...why(id),
  ].flat().filter(Boolean);
}

const uses = (lease) => table(h("span", { class: "unseen" }, "Devices of the lease"),
  ["Device", "Time", "Memory", "Most memory", "Kernels", "Received", "Sent"],
  lease.grants.map((grant, at) => {
    const use = lease.usage[at];
    return [`${grant.node}/${grant.device}`, [
      h("a", { href: `#/device/${encodeURIComponent(grant.node)}/${grant.device}` }, `${grant.node}/${grant.device}`),
      `${percent(use.share_milli)} of ${percent(grant.share_milli)}`, `${bytes(use.memory)} of ${bytes(grant.memory)}`,
      bytes(use.peak_memory), number(use.launches), bytes(use.bytes_in), bytes(use.bytes_out),
    ]];
  }));

function why(id) {
  const { value, problem } = store.explained.id === id ? store.explained : {};
  if (!value) return [nothing(problem || "Asking the broker why…")];
  return [
    h("p", { class: "outcome" }, value.outcome, h("span", { class: "hint" }, ` (policy ${value.policy})`)),
    value.estimate && h("p", {}, "Expected to begin: ", expected(value.estimate),
      value.estimate.queued ? `; ${count(value.estimate.queued, "request")} before it come first` : ""),
    ...blockers(value.blocked_by ?? []),
    ...alternatives(value.alternatives ?? []),
    ...(value.steps ?? []).map(step),
    h("details", {}, h("summary", {}, "The same in words, as rgpu explain prints it"), h("pre", { tabindex: "0" }, value.text)),
  ].filter(Boolean);
}

function blockers(list) {
  if (!list.length) return [];
  const rows = list.map((one, at) => [`${at}`, [
    one.lease ? h("a", { href: `#/lease/${one.lease}` }, one.name) : "another tenant’s",
    one.tenant ?? "–", `${one.node}/${one.device}${one.nvme ? " (NVMe)" : ""}`, percent(one.share_milli), bytes(one.memory),
    one.waits ? "waits, and comes first" : "has it",
    one.end ? [clock(one.end), ` (${BASES[one.basis] ?? one.basis})`] : "not known",
  ]]);
  return [table("In its way", ["Lease", "Tenant", "Device", "Time", "Memory", "State", "Expected end"], rows)];
}

const alternatives = (list) => (list.length
  ? [h("h4", {}, "It would begin now"), h("ul", {}, list.map((one) => h("li", {}, one.text)))] : []);

function step(one, at) {
  const rows = one.candidates.map((candidate, at) => [`${at}`, [
    [candidate.place, candidate.chosen ? h("strong", {}, " (chosen)") : ""],
    number(candidate.cost, 3), candidate.expected_s === null || candidate.expected_s === undefined ? "–" : duration(candidate.expected_s), number(candidate.load, 3),
  ]]);
  const out = one.ruled_out.map(([reason, places]) => `${count(places, "place")}: ${reason}`);
  return h("section", { class: "step", "data-key": `step${at}` },
    h("h4", {}, `Step ${at + 1}: ${one.phase}, ${count(one.places, "place")} considered`),
    out.length > 0 && h("p", {}, "Ruled out: ", between(out, "; ")),
    rows.length > 0 && table(h("span", { class: "unseen" }, "Places"), ["Place", "Cost", "Expected time", "Load"], rows),
    one.unscheduled_cost !== null && one.unscheduled_cost !== undefined && h("p", { class: "hint" }, `Leaving it would cost ${number(one.unscheduled_cost, 3)}.`));
}
