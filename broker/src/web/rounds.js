// What the latest placement rounds came to.

import { clock, count, h, nothing, number, percent, bytes, short } from "./dom.js";
import { hue, placements, room } from "./charts.js";
import { store } from "./api.js";

const FEW = 10;
/** In a cluster of at most so many devices all are drawn, else those that were given. */
const SMALL = 16;
let shown = FEW;

export const needs = ["rounds", "devices"];
export const title = () => "Rounds";

export function act(action) {
  if (action === "more-rounds") shown += FEW;
}

export function render() {
  const { rounds, devices } = store.data;
  const head = [
    h("h2", { tabindex: "-1" }, "Placement rounds"),
    h("p", { class: "hint" }, "A round decides about all that waits. Shown are the latest in which something was granted, or was left for other reasons than before."),
  ];
  if (store.problems.rounds) return [...head, nothing(store.problems.rounds)];
  if (!rounds) return [...head, nothing("Asking the broker…")];
  if (!rounds.length) return [...head, nothing("No round has had anything to decide since the broker was started.")];
  const latest = [...rounds].reverse();
  // Two beside each other where there is room.
  const width = room() > 860 ? room() / 2 - 26 : room() - 2;
  return [
    ...head,
    h("div", { class: "rounds" }, latest.slice(0, shown).map((round) => one(round, devices ?? [], width))),
    latest.length > shown && h("p", {}, h("button", { type: "button", "data-action": "more-rounds" }, "Show earlier rounds")),
  ].filter(Boolean);
}

function one(round, devices, width) {
  const given = [...round.granted.flatMap((lease) => lease.grants.map((grant) => ({ ...grant, lease })))];
  const name = (node, device) => `${node}/${device}`;
  const drawn = devices.length <= SMALL && devices.length
    ? devices.map((device) => name(device.node, device.index))
    : [...new Set(given.map((grant) => name(grant.node, grant.device)))].sort();
  for (const grant of given) {
    if (!drawn.includes(name(grant.node, grant.device))) drawn.push(name(grant.node, grant.device));
  }
  const jobs = [
    ...round.granted.map((lease) => ({
      key: lease.lease, label: lease.name, hue: hue(lease.lease), href: `#/lease/${lease.lease}`,
      note: `${lease.name} of ${lease.tenant}, whose program runs on ${lease.client_node}`,
    })),
    ...round.left.map((lease) => ({
      key: lease.lease, label: lease.name, waits: true, href: `#/lease/${lease.lease}`, note: `${lease.name} of ${lease.tenant} waits: ${lease.reason}`,
    })),
  ];
  const links = given.map((grant) => ({
    job: round.granted.indexOf(grant.lease), device: drawn.indexOf(name(grant.node, grant.device)), milli: grant.share_milli, hue: hue(grant.lease.lease),
    note: `${grant.lease.name}: ${percent(grant.share_milli)} and ${bytes(grant.memory)} of ${name(grant.node, grant.device)}`,
  }));
  const parts = (label) => links.filter((link) => drawn[link.device] === label).reduce((sum, link) => sum + link.milli, 0);
  const boxes = drawn.map((label) => ({ label: parts(label) ? `${label}  ${percent(parts(label))}` : label, note: `GPU ${label}` }));
  const hidden = round.granted_count + round.left_count - round.granted.length - round.left.length;
  const again = round.repeated ? `; ${count(round.repeated, "round")} after it came to the same` : "";
  const words = [
    ...links.map((link) => h("li", {}, link.note)),
    ...round.left.map((lease) => h("li", {}, h("a", { href: `#/lease/${lease.lease}` }, lease.name), ` waits: ${lease.reason}`)),
  ];
  return h("article", { class: "round", "data-key": String(round.number) },
    h("h3", {}, `Round ${number(round.number)}: ${number(round.granted_count)} granted, ${number(round.left_count)} left waiting`),
    h("p", { class: "about" }, clock(round.time), `, ${short(round.round_us)}, ${count(round.considered, "job")} looked at${again}`,
      hidden > 0 ? `; ${number(hidden)} of these not shown` : ""),
    jobs.length ? h("figure", {}, placements(`Round ${round.number}: which jobs were placed on which devices`, jobs, boxes, links, width)) : null,
    words.length > 0 && h("details", { open: !round.granted_count }, h("summary", {}, "The same in words"), h("ul", {}, words)));
}
