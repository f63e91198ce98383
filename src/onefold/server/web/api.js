// Asking the server, and following it. Addresses are relative: the page works behind a proxy's prefix too.

export class Refused extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.kind = error.kind;
    this.remedy = error.remedy ?? REMEDIES[status] ?? null;
  }
}

const REMEDIES = {
  401: "Open the link that onefold serve printed, or make another token: onefold token new NAME",
  403: "This token may not do that. One with the scope may: onefold token new NAME --scope …",
  429: "Too many requests at once. It goes on by itself in a moment.",
  503: "The store cannot be used now. Try again in a moment.",
};

// ---------------------------------------------------------------- who asks

const PAGE = "onefold.page";
let half = null;

// A browser sends its cookie to every port of this host, so the server wants something besides that only this page has:
// it came behind the # of the address that the token was shown at, and is kept where no other port can read it.
const came = /^#page=([\w-]+)$/.exec(location.hash);
if (came) {
  half = came[1];
  try {
    localStorage.setItem(PAGE, half);
  } catch {
    // Then it holds for this page only.
  }
  history.replaceState(null, "", `${location.pathname}${location.search}#/`);
}

/** What shows that this page asks; empty if it does not know. Read each time: another tab may have shown another token. */
export function shown() {
  try {
    return localStorage.getItem(PAGE) ?? half ?? "";
  } catch {
    return half ?? "";
  }
}

const asPage = (headers) => ({ ...headers, "x-onefold-page": shown() });

/** The subprotocols by which a WebSocket shows the same: a page can set no header there. */
export const protocols = () => ["onefold", `onefold.page.${shown() || "none"}`];

/** Ends this browser's visit, here and at the server. */
export async function logOut() {
  await answer(() => fetch(address("logout"), { method: "POST", headers: asPage({}) }), () => null);
  half = null;
  try {
    localStorage.removeItem(PAGE);
  } catch {
    // It was kept nowhere else.
  }
}

// ---------------------------------------------------------------- what they may do

let learned = null;
let scopes = null;

/** Learns what the token of this page may do. Until that is known nothing is withheld: the server decides in any case. */
export function learnScopes() {
  learned ??= get("rooms").then((told) => {
    scopes = told.may;
  }, () => {
    learned = null; // whatever it is that is wrong is said by what is shown
  });
  return learned;
}

/** Whether to offer something that takes a scope. */
export const may = (scope) => scopes === null || scopes.includes(scope);

// ---------------------------------------------------------------- asking

export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const made = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `api/${path}${made ? `?${made}` : ""}`;
}

export async function get(path, query, signal) {
  return answer(() => fetch(address(path, query), { signal, headers: asPage({ accept: "application/json" }) }), undefined, signal);
}

/** Saves an answer as a file. A link would show the cookie only. */
export async function save(path, query, name) {
  const content = await answer(() => fetch(address(path, query), { headers: asPage({}) }), (response) => response.blob());
  const href = URL.createObjectURL(content);
  Object.assign(document.createElement("a"), { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

export async function post(path, query, body = {}) {
  return answer(() =>
    fetch(address(path, query), { method: "POST", headers: asPage({ "content-type": "application/json" }), body: JSON.stringify(body) }),
  );
}

async function answer(ask, read = (response) => response.json(), signal = null) {
  let response;
  try {
    response = await ask();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, {
      kind: "Unreachable",
      message: "The server does not answer.",
      remedy: "Look whether onefold serve still runs. The page goes on as soon as it does.",
    });
  }
  let body = null;
  try {
    body = await (response.ok ? read(response) : response.json());
  } catch (error) {
    // Nobody wants the rest of it. A browser does not always say so by the name of the error.
    if (signal?.aborted || error.name === "AbortError") throw signal?.reason ?? error;
    if (response.ok) throw new Refused(response.status, { kind: "NoAnswer", message: "The server's answer was cut off.", remedy: "Try again." });
  }
  if (response.ok) return body;
  throw new Refused(response.status, body?.error ?? { kind: "Refused", message: `The server answered ${response.status}.` });
}

/** Whether the server still lets this page in. One that does not answer has not said no. */
export async function admitted() {
  try {
    return (await fetch(address("rooms"), { headers: asPage({ accept: "application/json" }) })).status !== 401;
  } catch {
    return true;
  }
}

/**
 * Follows records, of one session or of all. It disconnects while nobody looks at the page, since a browser has few
 * connections to one host, and goes on from the last number it saw.
 */
export class Live {
  constructor({ session = null, after = null, record, state = () => {}, gone = () => {} }) {
    Object.assign(this, { session, after, record, state, gone, source: null, retry: 0, tries: 0 });
    this.seen = () => (document.hidden ? this.#close() : this.#open());
    document.addEventListener("visibilitychange", this.seen);
    this.#open();
  }

  stop() {
    document.removeEventListener("visibilitychange", this.seen);
    this.#close();
    this.state = () => {};
  }

  #close() {
    clearTimeout(this.retry);
    this.retry = 0;
    this.source?.abort();
    this.source = null;
  }

  /** Not an EventSource: that would show the cookie only. */
  async #open() {
    this.#close();
    const source = (this.source = new AbortController());
    const headers = asPage({ accept: "text/event-stream" });
    const asked = fetch(address("events", { session: this.session, after: this.after }), { headers, signal: source.signal, cache: "no-store" });
    const response = await asked.catch(() => null); // it does not answer, or nobody wants it any more
    if (this.source === source && response?.ok) {
      this.tries = 0;
      this.state("live");
      const stream = events(response.body);
      while (this.source === source) {
        const { value, done } = await stream.next().catch(() => ({ done: true }));
        if (done || this.source !== source) break;
        try {
          this.#heard(value);
        } catch (error) {
          reportError(error); // what is wrong with one must not cost the others
        }
      }
    }
    if (this.source === source) this.#again();
  }

  #heard({ name, id, data }) {
    if (name === "refused") this.#refused();
    else if (name === "record") {
      this.after = id || this.after;
      this.record(data);
    } else if (name === "resume") {
      this.after = data.after ?? this.after;
      this.#open();
    } else if (name === "reload") {
      // Of all sessions, and this place is no longer known: whatever changed meanwhile has to be looked up.
      this.record({ kind: "gone" });
    } else if (name === "room") this.record({ kind: "room", ...data }); // no record says how an agent is
    else if (name === "moved") this.gone("moved");
    else if (name === "gone" && this.session === null) this.record({ kind: "gone", ...data });
    else if (name === "gone") {
      this.stop();
      this.gone("gone");
    }
  }

  #again() {
    this.#close();
    this.state("lost");
    this.tries += 1;
    // A place in the stream of all sessions is known to one run of the server only; whoever follows all starts again.
    if (this.session === null) this.after = null;
    this.retry = setTimeout(() => this.#back(), Math.min(500 * 2 ** this.tries, 10_000));
  }

  /** A rejected stream does not say why, so it is asked for: without a token there is nothing to wait for. */
  async #back() {
    const { retry } = this;
    const welcome = await admitted();
    if (this.retry !== retry) return; // stopped, hidden or open again meanwhile
    if (welcome) this.#open();
    else this.#refused();
  }

  #refused() {
    this.state("refused");
    this.stop();
  }
}

/** Server-sent events out of a stream of bytes. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = {};
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    if (!value.includes("\n")) continue; // a record may be large, and come in many pieces
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const at = line.indexOf(":");
      if (at > 0) event[line.slice(0, at)] = line.slice(at + 1).replace(/^ /, "");
      else if (line === "") {
        const { event: name, id = "", data = "null" } = event;
        event = {};
        if (name) yield { name, id, data: JSON.parse(data) };
      }
    }
  }
}
