// The broker's REST API: requests with the user's token, what was answered lately, and the stream of events.

const KEPT = "rgpu.token";
const EVENTS = 200;

/** The user's token: in this tab only. */
export const session = {
  get token() {
    return sessionStorage.getItem(KEPT) ?? "";
  },
  keep(token) {
    sessionStorage.setItem(KEPT, token);
  },
  forget() {
    sessionStorage.removeItem(KEPT);
  },
  /** Whom the token is for: it says so itself, and the broker checks it. */
  get claims() {
    try {
      const bytes = Uint8Array.from(atob(url64(this.token.split(".")[1])), (c) => c.charCodeAt(0));
      return JSON.parse(new TextDecoder().decode(bytes));
    } catch {
      return null;
    }
  },
};

const url64 = (text) => text.replaceAll("-", "+").replaceAll("_", "/");

/** Why a request failed. Status 0: the broker was not reached. */
export class Failure extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

/** What the broker's clock is ahead of this one, in seconds. */
let ahead = 0;

/** The broker's time, in seconds since 1970. */
export const now = () => Date.now() / 1000 + ahead;

/** What another token's owner was to see is not shown. */
function check(token) {
  if (session.token !== token) throw new Failure(0, "changed", "the token is another one");
}

async function send(path, signal) {
  let answer;
  const token = session.token;
  try {
    const headers = { authorization: `Bearer ${token}` };
    answer = await fetch(path, { headers, signal, cache: "no-store", redirect: "error", credentials: "omit" });
  } catch (e) {
    throw new Failure(0, "away", signal?.aborted ? "stopped" : "the broker cannot be reached");
  }
  check(token);
  const date = Date.parse(answer.headers.get("date") ?? "") / 1000;
  const skew = date - Date.now() / 1000;
  // The header has whole seconds, and the answer was under way.
  if (Number.isFinite(date)) ahead = Math.abs(skew) > 3 ? skew : 0;
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  throw new Failure(answer.status, body?.error?.code ?? "", body?.error?.message ?? `the answer was ${answer.status}`);
}

/** Asks for something. */
export async function ask(path, signal) {
  const token = session.token;
  const answer = await send(path, signal);
  const body = await answer.json().catch(() => {
    throw new Failure(0, "away", "the broker's answer broke off");
  });
  check(token);
  return body;
}

/** What views may need: where it is, and how old it may be (seconds). */
const RESOURCES = {
  health: ["/v1/health", 10],
  summary: ["/v1/summary", 2],
  nodes: ["/v1/nodes", 2],
  devices: ["/v1/devices", 2],
  leases: ["/v1/leases", 2],
  // Those too that have ended: there may be thousands.
  all: ["/v1/leases?all=true", 6],
  jobs: ["/v1/jobs", 2],
  rounds: ["/v1/rounds", 2],
  policy: ["/v1/policy", 30],
};

/** What was answered lately. */
export const store = {
  data: {},
  problems: {},
  events: [],
  /** Since when the broker is away, and why; null while it answers. */
  away: null,
  /** Why the token is refused; null while it is not. */
  refused: null,
  meta: {},
  histories: new Map(),
  /** Why a lease is where it is: the one that was looked at last. */
  explained: { id: "", at: 0, value: null, problem: "" },

  clear() {
    Object.assign(this, { data: {}, problems: {}, events: [], away: null, refused: null, meta: {} });
    this.explained = { id: "", at: 0, value: null, problem: "" };
    this.histories.clear();
  },

  /** Brings what is needed up to date; `soon`: also what was asked for a moment ago. */
  async refresh(needs, soon = false) {
    const due = needs.filter((name) => {
      const meta = this.meta[name];
      if (!meta) return true;
      // A big cluster's broker is not to be kept busy by somebody who looks on.
      const pause = Math.max(soon ? 0.4 : RESOURCES[name][1], 5 * meta.took);
      return Date.now() / 1000 - meta.at >= pause - 0.2;
    });
    await Promise.all(due.map((name) => this.bring(name)));
  },

  async bring(name) {
    const began = Date.now() / 1000;
    try {
      this.data[name] = await ask(RESOURCES[name][0]);
      delete this.problems[name];
      this.answered();
    } catch (failure) {
      this.failed(failure, name);
    }
    const at = Date.now() / 1000;
    this.meta[name] = { at, took: at - began };
  },

  answered() {
    this.away = null;
  },

  failed(failure, name) {
    if (failure.code === "changed") return;
    if (failure.status === 401) this.refused = failure.message;
    else if (failure.status === 403 || failure.status === 404) this.problems[name] = failure.message;
    else this.away ??= { since: Date.now() / 1000, why: failure.message };
  },

  /** The last hour of a node; what is missing is asked for. */
  async history(node) {
    const kept = this.histories.get(node);
    if (kept?.busy || (kept && Date.now() / 1000 - kept.at < 10)) return;
    const entry = kept ?? { at: 0, value: null };
    this.histories.set(node, Object.assign(entry, { busy: true }));
    try {
      const since = entry.value ? `?since=${entry.value.end}` : "";
      const news = await ask(`/v1/nodes/${encodeURIComponent(node)}/history${since}`);
      entry.value = entry.value ? joined(entry.value, news) : news;
      this.answered();
    } catch (failure) {
      this.failed(failure, `history ${node}`);
    }
    Object.assign(entry, { busy: false, at: Date.now() / 1000 });
  },

  /** Follows the stream of events until told to stop. Calls `happened` for each. */
  async follow(happened, signal) {
    let last = 0;
    let pause = 1000;
    while (!signal.aborted) {
      try {
        const answer = await send(`/v1/events?since=${last}`, signal);
        pause = 1000;
        for await (const event of parsed(answer.body)) {
          last = event.number;
          this.events = [event, ...this.events].slice(0, EVENTS);
          happened(event);
        }
      } catch (failure) {
        if (failure.status === 401) this.refused = failure.message;
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(2 * pause, 15000);
    }
  },
};

/** The same series with what came after. */
function joined(old, news) {
  const most = 3600 / news.interval_s;
  const tail = (before, after) => [...(before ?? []), ...after].slice(-most);
  const merged = { ...news };
  for (const [name, value] of Object.entries(news)) {
    if (Array.isArray(value) && name !== "devices") merged[name] = tail(old[name], value);
  }
  merged.devices = news.devices.map((device) => {
    const before = old.devices.find((one) => one.device === device.device);
    const entries = Object.entries(device).map(([name, value]) => [
      name,
      Array.isArray(value) ? tail(before?.[name] ?? [], value) : value,
    ]);
    return Object.fromEntries(entries);
  });
  return merged;
}

/** The events of a stream of server-sent events. */
async function* parsed(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) yield JSON.parse(line.slice(5));
    }
  }
}
