// The page: which view is shown, with whose token, and whether the broker answers.

import { clockText, h, patch } from "./dom.js";
import { session, store } from "./api.js";
import * as overview from "./overview.js";
import * as devices from "./devices.js";
import * as leases from "./leases.js";
import * as lease from "./lease.js";
import * as queue from "./queue.js";
import * as rounds from "./rounds.js";

const TABS = [["overview", "Overview"], ["devices", "Devices"], ["leases", "Leases"], ["queue", "Queue"], ["rounds", "Rounds"]];
const VIEWS = { overview, devices: devices.list, device: devices.device, leases, lease, queue, rounds };
/** Under which tab other views are. */
const UNDER = { device: "devices", lease: "leases" };
/** How often it is looked whether something is to be asked anew (ms). */
const BEAT = 1000;

const element = (id) => document.getElementById(id);
const [door, view, banner, tabs, who, forget, about] = ["door", "view", "banner", "tabs", "who", "forget", "about"].map(element);

/** The view that the address names, and what it is about. */
function place() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const known = Object.hasOwn(VIEWS, name);
  const said = rest.map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { name: known ? name : "overview", about: known ? said : [] };
}

/** A token behind the address's # is taken, and removed from there and from the history. */
function takeToken() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (!given) return false;
  session.keep(given[1].trim());
  history.replaceState(null, "", `${location.pathname}#/overview`);
  return true;
}

function drawTabs(name) {
  const current = UNDER[name] ?? name;
  patch(tabs, TABS.map(([id, label]) => h("a", {
    id: `tab-${id}`, href: `#/${id}`, role: "tab", "aria-selected": String(id === current), "aria-controls": "view",
    tabindex: id === current ? "0" : "-1", "data-key": id,
  }, label, id === "queue" && store.data.summary?.waiting ? h("span", { class: "number" }, String(store.data.summary.waiting)) : null)));
  view.setAttribute("aria-labelledby", `tab-${current}`);
}

function drawBanner() {
  const { away, refused } = store;
  const text = refused ? "" : away
    ? `No answer since ${clockText(away.since)}: ${away.why}. What is shown is from before; the page goes on by itself.` : "";
  banner.hidden = !text;
  if (banner.textContent !== text) banner.textContent = text;
}

function draw() {
  drawBanner();
  const open = session.token && !store.refused;
  for (const part of [view, tabs, forget]) part.hidden = !open;
  door.hidden = Boolean(open);
  if (!open) {
    const why = store.refused ? `The broker refuses this token: ${store.refused}` : "";
    if (element("refused").textContent !== why) element("refused").textContent = why;
    who.textContent = "";
    // What the token let its owner see goes with it.
    patch(view, []);
    document.title = "rgpu";
    return;
  }
  const { name, about: of } = place();
  drawTabs(name);
  const claims = session.claims?.role;
  who.textContent = claims ? `${claims.name} (${claims.role})` : "";
  patch(view, VIEWS[name].render(of).flat().filter(Boolean));
  document.title = `${VIEWS[name].title(of)} – rgpu`;
  const { health } = store.data;
  if (health) about.textContent = `rgpu ${health.version}${health.status === "ok" ? "" : ` – ${health.status}`}`;
}

let timer = 0;
let busy = false;
let again = false;

/** Asks for what the view needs, and shows it. */
async function beat(soon = false) {
  clearTimeout(timer);
  if (busy) {
    again ||= soon;
    return;
  }
  if (!session.token || store.refused || document.hidden) return;
  busy = true;
  const { name, about: of } = place();
  const { needs, more } = VIEWS[name];
  const list = typeof needs === "function" ? needs() : needs;
  try {
    await store.refresh([...new Set([...list, "summary", "health"])], soon);
    draw();
    await more?.(of);
    draw();
  } finally {
    busy = false;
    const now = again;
    again = false;
    timer = setTimeout(() => beat(now), now ? 50 : BEAT);
  }
}

let following = new AbortController();

function start() {
  following.abort();
  following = new AbortController();
  store.clear();
  draw();
  if (!session.token) {
    element("token").focus();
    return;
  }
  beat(true);
  let due = 0;
  store.follow(() => {
    // Many things may happen at once.
    clearTimeout(due);
    due = setTimeout(() => beat(true), 250);
  }, following.signal);
}

addEventListener("hashchange", () => {
  if (takeToken()) {
    start();
    return;
  }
  const from = document.activeElement;
  draw();
  // Who has chosen a tab stays there; whoever followed a link goes to what it leads to.
  if (!tabs.contains(from)) {
    view.querySelector("h2")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  beat(true);
});

document.addEventListener("visibilitychange", () => beat(true));
addEventListener("resize", draw);

tabs.addEventListener("keydown", (event) => {
  const all = [...tabs.querySelectorAll("[role=tab]")];
  const at = all.indexOf(document.activeElement);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined || at < 0) return;
  event.preventDefault();
  const next = all[(to + all.length) % all.length];
  next.focus();
  location.hash = next.getAttribute("href");
});

/** What controls inside a view do. */
function act(event) {
  const control = event.target.closest?.("[data-action]");
  const button = control instanceof HTMLButtonElement;
  if (!control || button !== (event.type === "click")) return;
  const value = control.type === "checkbox" ? control.checked : control.value;
  VIEWS[place().name].act?.(control.dataset.action, value);
  draw();
  beat(true);
}
view.addEventListener("click", act);
view.addEventListener("input", act);

door.addEventListener("submit", (event) => {
  event.preventDefault();
  const input = element("token");
  session.keep(input.value.trim());
  input.value = "";
  start();
});

forget.addEventListener("click", () => {
  session.forget();
  start();
});

element("skip").addEventListener("click", (event) => {
  // The address says which view is shown: it is not to change.
  event.preventDefault();
  (view.hidden ? element("token") : view).focus();
});

takeToken();
start();
