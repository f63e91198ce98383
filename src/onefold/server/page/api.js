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

export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const made = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `api/${path}${made ? `?${made}` : ""}`;
}

export async function get(path, query, signal) {
  return answer(() => fetch(address(path, query), { signal, headers: { accept: "application/json" } }));
}

export async function post(path, query, body = {}) {
  return answer(() =>
    fetch(address(path, query), { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
  );
}

async function answer(ask) {
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
    body = await response.json();
  } catch {
    if (response.ok) throw new Refused(response.status, { kind: "NoAnswer", message: "The server's answer was cut off.", remedy: "Try again." });
  }
  if (response.ok) return body;
  throw new Refused(response.status, body?.error ?? { kind: "Refused", message: `The server answered ${response.status}.` });
}

/** Whether the server still lets this page in. One that does not answer has not said no. */
export async function admitted() {
  try {
    return (await fetch(address("rooms"), { headers: { accept: "application/json" } })).status !== 401;
  } catch {
    return true;
  }
}

/**
 * Follows records, of one session or of all. It lets go while nobody looks at the page, since a browser has few
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
    this.source?.close();
    this.source = null;
  }

  #open() {
    this.#close();
    const source = new EventSource(address("events", { session: this.session, after: this.after }));
    this.source = source;
    source.onopen = () => {
      this.tries = 0;
      this.state("live");
    };
    source.onerror = () => this.#again();
    source.addEventListener("refused", () => this.#refused());
    source.addEventListener("record", (event) => {
      this.after = event.lastEventId || this.after;
      this.record(JSON.parse(event.data));
    });
    source.addEventListener("resume", (event) => {
      this.after = JSON.parse(event.data).after ?? this.after;
      this.#open();
    });
    // Of all sessions, and this place is no longer known: whatever changed meanwhile has to be looked up.
    source.addEventListener("reload", () => this.record({ kind: "gone" }));
    source.addEventListener("moved", () => this.gone("moved"));
    source.addEventListener("gone", (event) => {
      if (this.session === null) return this.record({ kind: "gone", ...JSON.parse(event.data) });
      this.stop();
      return this.gone("gone");
    });
  }

  #again() {
    this.#close();
    this.state("lost");
    this.tries += 1;
    // A place in the stream of all sessions is known to one run of the server only; whoever follows all looks anew.
    if (this.session === null) this.after = null;
    this.retry = setTimeout(() => this.#back(), Math.min(500 * 2 ** this.tries, 10_000));
  }

  /** A stream that is refused does not say why, so it is asked for: without a token there is nothing to wait for. */
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
