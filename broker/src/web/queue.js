// What waits: in which order, why, and until when.

import { clock, count, duration, h, nothing, number, table } from "./dom.js";
import { forecast } from "./charts.js";
import { now, store } from "./api.js";
import { expected } from "./lease.js";

const MOST = 200;

export const needs = ["leases", "jobs", "summary"];
export const title = () => "Queue";

export function render() {
  const { leases, jobs, summary } = store.data;
  const head = h("h2", { tabindex: "-1" }, "Queue");
  const problem = store.problems.leases ?? store.problems.jobs;
  if (problem) return [head, nothing(problem)];
  if (!leases || !jobs) return [head, nothing("Asking the broker…")];
  const by = new Map(leases.map((lease) => [lease.id, lease]));
  const waiting = jobs.filter((job) => job.state === "waiting");
  const hidden = summary ? summary.waiting - waiting.length : 0;
  const others = hidden > 0 && h("p", { class: "hint" }, `${count(hidden, "request")} of other tenants wait, too.`);
  if (!waiting.length) return [head, nothing("Nothing waits."), others].filter(Boolean);
  const rows = waiting.slice(0, MOST).map((job) => {
    const lease = by.get(job.lease);
    const late = lease?.deadline ? [clock(lease.deadline), lease.deadline_kept === false ? " (not expected to be kept)" : ""] : "–";
    return [job.lease, [
      [`${number(job.place)}. `, h("a", { href: `#/lease/${job.lease}` }, job.name)],
      job.tenant, duration(now() - job.submitted), lease?.reason || job.reason || "no round has decided yet", expected(lease?.estimate), late,
      h("a", { href: `#/lease/${job.lease}`, "aria-label": `Explain ${job.name}` }, "Explain"),
    ]];
  });
  const known = waiting.flatMap((job) => {
    const estimate = by.get(job.lease)?.estimate;
    if (!estimate?.start) return [];
    return [{
      key: job.lease, label: job.name, start: estimate.start, deviation: estimate.deviation_s ?? 0, href: `#/lease/${job.lease}`,
      note: `${job.name} of ${job.tenant}: in ${duration(estimate.start - now())} ± ${duration(estimate.deviation_s ?? 0)}`,
    }];
  });
  return [
    head,
    known.length > 0 && h("figure", {},
      h("figcaption", {}, h("strong", {}, "Expected starts"), h("span", { class: "hint" }, " (the line is one standard deviation either way)")),
      forecast("Expected starts", now(), known.slice(0, 30))),
    table(h("span", { class: "unseen" }, "What waits"), ["Request", "Tenant", "Waits for", "Reason", "Expected to begin", "Deadline", "Why"], rows),
    waiting.length > MOST && h("p", { class: "hint" }, `The first ${MOST} of ${number(waiting.length)}.`),
    others,
  ].filter(Boolean);
}
