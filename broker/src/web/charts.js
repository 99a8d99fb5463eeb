// Pictures, drawn as SVG at the width that there is. Every picture has a title and stands beside the same in words.

import { h, s, bytes, clockText, percent, rate } from "./dom.js";

/** How wide a picture may be, in pixels. */
export const room = (most = 1080) => {
  const view = document.getElementById("view");
  const width = (view?.clientWidth || document.documentElement.clientWidth) - 34;
  return Math.max(240, Math.min(most, width));
};

const hues = new Map();

/** A lease's colour: one of eight that colour-blind people can tell apart; names and numbers stand beside them. */
export function hue(id) {
  if (!hues.has(id)) hues.set(id, hues.size % 8);
  return `hue${hues.get(id)}`;
}

/** A piece of a lease's colour. */
export const swatch = (kind) =>
  s("svg", { class: "swatch", viewBox: "0 0 10 10", width: 10, height: 10, "aria-hidden": "true" }, s("rect", { class: kind, width: 10, height: 10, rx: 2 }));

/** What of something is granted (the frame) and used (the bar). */
export const bar = (granted, used, label) =>
  s("svg", { class: "meter", viewBox: "0 0 1000 12", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: "track", width: 1000, height: 12, rx: 3 }),
    s("rect", { class: "granted", width: Math.min(1000, granted), height: 12, rx: 3 }),
    s("rect", { class: "used", width: Math.min(1000, used), height: 6, y: 3, rx: 2 }));

/** Points of a series as lines; where nothing was measured there is none. */
function lines(values, x, y) {
  let path = "";
  let pen = false;
  values.forEach((value, at) => {
    if (value === null || value === undefined) {
      pen = false;
      return;
    }
    path += `${pen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    // A single point is a short line.
    if (!pen) path += `h0.5`;
    pen = true;
  });
  return path;
}

/** An hour at a glance: granted as a step behind, used as a line before it. */
export function spark(granted, used, label, most = 1000) {
  const [width, height] = [160, 32];
  const span = Math.max(granted?.length ?? 0, used?.length ?? 0, 2) - 1;
  const x = (at) => (at / span) * width;
  const y = (value) => height - 1 - (Math.min(value, most) / most) * (height - 2);
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: "track", width, height }),
    s("path", { class: "line granted", d: lines(granted ?? [], x, y) }),
    s("path", { class: "line used", d: lines(used ?? [], x, y) }));
}

/** Latest value of a series that is there. */
export const latest = (values) => values?.findLast((value) => value !== null) ?? null;

const WRITE = { milli: percent, mbps: rate };

/** Several series over time: `{name, kind, values}`. */
export function chart(title, end, interval, series, unit) {
  const [width, height, left, bottom, top] = [room(), 170, 74, 22, 8];
  const values = series.flatMap((one) => one.values.filter((value) => value !== null));
  const greatest = Math.max(0, ...values);
  const most = unit === "milli" ? 1000 : nice(greatest);
  const count = Math.max(2, ...series.map((one) => one.values.length));
  const x = (at) => left + ((width - left - 6) * at) / (count - 1);
  const y = (value) => top + (height - top - bottom) * (1 - value / most);
  const write = WRITE[unit];
  const grid = [0, 0.25, 0.5, 0.75, 1].map((part) => [
    s("line", { class: "grid", x1: left, x2: width - 6, y1: y(part * most), y2: y(part * most) }),
    part % 0.5 === 0 && s("text", { class: "axis", x: left - 6, y: y(part * most) + 4, "text-anchor": "end" }, write(part * most)),
  ]);
  const ticks = width > 500 ? 6 : 3;
  const times = Array.from({ length: ticks + 1 }, (_, at) => {
    const unix = end - (count - 1) * interval * (1 - at / ticks);
    const anchor = at === 0 ? "start" : at === ticks ? "end" : "middle";
    return s("text", { class: "axis", x: x((count - 1) * (at / ticks)), y: height - 5, "text-anchor": anchor }, clockText(unix).slice(-8, -3));
  });
  const label = series.map((one) => {
    const value = latest(one.values);
    return `${one.name} ${value === null ? "not known" : write(value)} now`;
  });
  return h("figure", { class: "chart" },
    h("figcaption", {}, h("strong", {}, title), " ", legend(series, write)),
    s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${title}: ${label.join(", ")}` },
      grid, times, series.map((one) => s("path", { class: `line ${one.kind}`, d: lines(one.values, x, y) }))));
}

const legend = (series, write) =>
  series.map((one) => {
    const value = latest(one.values);
    return h("span", { class: "legend" },
      s("svg", { viewBox: "0 0 24 8", width: 24, height: 8, "aria-hidden": "true" }, s("path", { class: `line ${one.kind}`, d: "M0 4H24" })),
      ` ${one.name}${value === null ? "" : `: ${write(value)}`}`);
  });

/** A round number that is at least this. */
function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

/** Which leases something had when: `{key, label, href, from, to, goes, hue, note}`, drawn from `start` to `end`. */
export function timeline(title, start, end, spans) {
  const [width, row, bottom] = [room(), 26, 22];
  const lanes = [];
  const placed = [...spans].sort((a, b) => a.from - b.from).map((span) => {
    let lane = lanes.findIndex((until) => until <= span.from);
    if (lane < 0) lane = lanes.push(0) - 1;
    lanes[lane] = span.to;
    return { ...span, lane };
  });
  const height = Math.max(1, lanes.length) * row + bottom;
  const x = (unix) => ((Math.min(Math.max(unix, start), end) - start) / (end - start)) * (width - 2) + 1;
  const ticks = width > 500 ? 6 : 3;
  const times = Array.from({ length: ticks + 1 }, (_, at) => {
    const place = 1 + ((width - 2) * at) / ticks;
    const anchor = at === 0 ? "start" : at === ticks ? "end" : "middle";
    const text = clockText(start + ((end - start) * at) / ticks).slice(-8, -3);
    return [
      s("line", { class: "grid", x1: place, x2: place, y1: 0, y2: height - bottom }),
      s("text", { class: "axis", x: place, y: height - 5, "text-anchor": anchor }, text),
    ];
  });
  const free = lanes.map(() => 0);
  const bands = placed.map((span) => {
    const [from, to] = [x(span.from), Math.max(x(span.to), x(span.from) + 3)];
    const letters = Math.floor((to - from - 10) / 7);
    // A name that has no room inside stands before it, where that is free.
    const inside = letters >= Math.min(6, span.label.length);
    const before = !inside && from - free[span.lane] > span.label.length * 7 + 10;
    free[span.lane] = to;
    const y = span.lane * row + 17;
    return s("a", { href: span.href, "data-key": span.key, "aria-label": span.note },
      s("title", {}, span.note),
      s("rect", { class: `band ${span.hue}`, x: from, y: span.lane * row + 3, width: to - from, height: row - 6, rx: 4 }),
      inside && s("text", { class: "on", x: from + 6, y }, cut(span.label, letters)),
      before && s("text", { class: "off", x: from - 6, y, "text-anchor": "end" }, span.label));
  });
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": title, class: "timeline" }, times, bands);
}

/** At most so many letters. */
export const cut = (text, letters) => (text.length > letters ? `${text.slice(0, Math.max(1, letters - 1))}…` : text);

/** A device with the leases that have parts of it, side by side: `{key, milli, hue, label}`; `others` is what others have. */
export function cell(parts, others, available, label) {
  let at = 0;
  const bands = parts.map((part) => {
    const from = at;
    at += part.milli;
    return s("rect", { class: `band ${part.hue}`, x: from / 10, width: Math.max(1, part.milli / 10), y: 0, height: 28 }, s("title", {}, part.label));
  });
  return s("svg", { class: available ? "cell" : "cell off", viewBox: "0 0 100 28", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: "track", width: 100, height: 28 }),
    bands,
    others > 0 && s("rect", { class: "band others", x: at / 10, width: others / 10, y: 0, height: 28 }));
}

/** What a round did: jobs at the left, devices at the right, and lines for what was given to whom. */
export function placements(title, jobs, devices, links, width) {
  const [box, row] = [Math.min(230, width * 0.4), 32];
  const height = Math.max(jobs.length, devices.length, 1) * row + 4;
  const middle = (at, of) => (height * (at + 0.5)) / of;
  const letters = Math.floor((box - 14) / 6.4);
  const job = (one, at) => {
    const y = middle(at, jobs.length) - 13;
    const shape = s("rect", { class: `job ${one.waits ? "waits" : one.hue}`, x: 1, y, width: box, height: 26, rx: 13 });
    return s("a", { href: one.href, "data-key": one.key, "aria-label": one.note },
      s("title", {}, one.note), shape,
      s("text", { class: one.waits ? "off" : "on", x: 12, y: y + 17 }, cut(one.label, letters)));
  };
  const device = (one, at) => {
    const y = middle(at, devices.length) - 13;
    return s("g", {},
      s("title", {}, one.note),
      s("rect", { class: "device", x: width - box - 1, y, width: box, height: 26, rx: 4 }),
      s("text", { class: "off", x: width - box + 9, y: y + 17 }, cut(one.label, letters)));
  };
  const link = (one) => {
    const [from, to] = [middle(one.job, jobs.length), middle(one.device, devices.length)];
    const [left, right] = [box + 1, width - box - 1];
    const bend = (left + right) / 2;
    return s("path", {
      class: `link ${one.hue}`,
      d: `M${left} ${from}C${bend} ${from} ${bend} ${to} ${right} ${to}`,
      "stroke-width": 2 + (one.milli / 1000) * 6,
    }, s("title", {}, one.note));
  };
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": title, class: "placements" },
    links.map(link), jobs.map(job), devices.map(device));
}

/** When what waits is expected to begin: `{label, start, deviation, href}`, from `now` on. */
export function forecast(title, now, items) {
  const [width, row, bottom, left] = [room(), 26, 22, Math.min(170, room() * 0.34)];
  const height = items.length * row + bottom;
  const far = Math.max(10, ...items.map((one) => one.start + one.deviation - now)) * 1.08;
  const x = (unix) => left + (Math.max(0, Math.min(unix - now, far)) / far) * (width - left - 8);
  const ticks = width > 500 ? 4 : 2;
  const times = Array.from({ length: ticks + 1 }, (_, at) => {
    const unix = now + (far * at) / ticks;
    const anchor = at === ticks ? "end" : at === 0 ? "start" : "middle";
    return [
      s("line", { class: "grid", x1: x(unix), x2: x(unix), y1: 0, y2: height - bottom }),
      s("text", { class: "axis", x: x(unix), y: height - 5, "text-anchor": anchor }, at === 0 ? "now" : clockText(unix).slice(-8)),
    ];
  });
  const rows = items.map((one, at) => {
    const y = at * row + row / 2;
    return s("a", { href: one.href, "data-key": one.key, "aria-label": one.note },
      s("title", {}, one.note),
      s("text", { class: "off", x: 2, y: y + 4 }, cut(one.label, Math.floor(left / 7.5))),
      s("line", { class: "range", x1: x(one.start - one.deviation), x2: x(one.start + one.deviation), y1: y, y2: y }),
      s("circle", { class: "moment", cx: x(one.start), cy: y, r: 6 }));
  });
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": title, class: "forecast" }, times, rows);
}

/** Memory of a whole in words. */
export const memory = (granted, used, all) => `${bytes(granted)} of ${bytes(all)} granted, ${bytes(used)} in use`;
