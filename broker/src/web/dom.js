// Elements, and how numbers are written. Text is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false && child !== "") {
      element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }
  return element;
}

/** An HTML element. */
export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/** An SVG element. */
export const s = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

const keyOf = (node) => node?.dataset?.key;
const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

/** Makes an element's children what they are to be; those that stay keep focus, selection and place. */
export function patch(parent, children) {
  const wanted = new Set(children.map(keyOf).filter(Boolean));
  const known = new Map([...parent.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
  let at = parent.firstChild;
  const drop = () => {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  };
  for (const next of children) {
    while (at && keyOf(at) && !wanted.has(keyOf(at))) drop();
    const key = keyOf(next);
    const found = key ? known.get(key) : at;
    if (!found || !alike(found, next)) {
      parent.insertBefore(next, at);
      if (at && !key && !keyOf(at)) drop();
      continue;
    }
    if (found === at) at = at.nextSibling;
    else parent.insertBefore(found, at);
    sync(found, next);
  }
  while (at) drop();
}

function sync(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  // What the user has opened or typed is the user's.
  const own = old instanceof HTMLInputElement || old instanceof HTMLSelectElement;
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (name === "open" || (own && (name === "value" || name === "checked"))) continue;
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (!(old instanceof HTMLSelectElement)) patch(old, [...next.childNodes]);
}

const NARROW = "\u202f";

const plain = (value, digits) => value.toLocaleString("en", { maximumFractionDigits: digits });

/** A whole number or one with few digits. */
export const number = (value, digits = 0) => plain(value ?? 0, digits);

/** Bytes of memory. */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${plain(value, value < 10 && at > 0 ? 1 : 0)}${NARROW}${units[at]}`;
}

/** Thousandths, as a percentage. */
export const percent = (milli) => `${plain((milli ?? 0) / 10, 1)}${NARROW}%`;

/** A rate in Mbit/s. */
export const rate = (mbps) => (mbps >= 1000 ? `${plain(mbps / 1000, 1)}${NARROW}Gbit/s` : `${plain(mbps, mbps < 10 ? 1 : 0)}${NARROW}Mbit/s`);

/** A length of time in seconds. */
export function duration(seconds) {
  const part = (value, unit) => `${Math.floor(value)}${NARROW}${unit}`;
  const all = Math.max(0, Math.round(seconds));
  if (all < 120) return part(all, "s");
  if (all < 7200) return part(all / 60, "min");
  if (all < 172800) return `${part(all / 3600, "h")} ${part((all % 3600) / 60, "min")}`;
  return part(all / 86400, "d");
}

/** A time in milliseconds or less. */
export const short = (us) => (us >= 1000 ? `${plain(us / 1000, 1)}${NARROW}ms` : `${plain(us, 0)}${NARROW}µs`);

const two = (value) => String(value).padStart(2, "0");

/** The time of day, and the day where it is another one. */
export function clockText(unix) {
  const date = new Date(unix * 1000);
  const day = date.toDateString() === new Date().toDateString();
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return day ? time : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

/** A moment, in seconds since 1970. */
export const clock = (unix) => h("time", { datetime: new Date(unix * 1000).toISOString() }, clockText(unix));

/** `1 lease`, `2 leases`. */
export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

/** Commas between things. */
export const between = (things, comma = ", ") => things.flatMap((thing, at) => (at ? [comma, thing] : [thing]));

/** A state in a frame; states that ask for attention have a sign besides a colour. */
export function badge(state) {
  const kinds = {
    ready: "good", active: "good", ok: "good", available: "good",
    waiting: "wait", joining: "wait", draining: "wait", ending: "wait", silent: "wait",
    lost: "bad", away: "bad", unavailable: "bad",
  };
  const kind = kinds[state] ?? "plain";
  const sign = { good: "●", wait: "◐", bad: "▲", plain: "○" }[kind];
  return h("span", { class: `badge ${kind}` }, h("span", { "aria-hidden": "true" }, sign), ` ${state}`);
}

/** What something is called, and what it is. */
export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

/** A table that becomes a list of cards where it is narrow. Rows are `[key, cells]`. */
export function table(caption, heads, rows) {
  const cell = (value, at) => (at === 0
    ? h("th", { scope: "row", role: "rowheader", "data-label": heads[at] }, value)
    : h("td", { role: "cell", "data-label": heads[at] }, value));
  // Roles are said again: a table that is laid out as cards is none for some browsers.
  return h("table", { role: "table" },
    h("caption", {}, caption),
    h("thead", { role: "rowgroup" },
      h("tr", { role: "row" }, heads.map((head) => h("th", { scope: "col", role: "columnheader" }, head)))),
    h("tbody", { role: "rowgroup" },
      rows.map(([key, cells]) => h("tr", { role: "row", "data-key": key }, cells.map(cell)))));
}

/** Says that there is nothing to show, and why. */
export const nothing = (text) => h("p", { class: "nothing" }, text);
