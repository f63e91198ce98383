// Looks on in an agent's room, over ACP: what the agent is saying before it is whole, which no record has yet, and that
// something has changed there which is in no record at all.

import { admitted, protocols } from "./api.js";

const REFUSED = 1008; // the code of a socket whose token no longer counts
const RETRY = [500, 1000, 2000, 5000, 10_000];
const LINGERS = 1500; // milliseconds that a whole message waits for its record
const REMEMBERED = 500;
const GLUED = new Set(["agent_message_chunk", "agent_thought_chunk"]);
const OVER = new Set(["completed", "failed"]);

export class Watch {
  constructor(session, { said, changed, used }) {
    Object.assign(this, { session, said, changed, used, socket: null, tries: 0, retry: 0 });
    this.written = new Set(); // first frames of messages that are in the journal
    this.visible = () => (document.hidden ? this.#close() : this.#open());
    document.addEventListener("visibilitychange", this.visible);
    this.#begin();
    this.#open();
  }

  stop() {
    document.removeEventListener("visibilitychange", this.visible);
    this.said = this.changed = this.used = () => {};
    this.#close();
  }

  /** A record came: what it holds need not be shown as growing any more. */
  record(record) {
    const first = Number(/^frames:(\d+)-/.exec(record.key ?? "")?.[1]);
    if (!first) return;
    this.written.add(first);
    if (this.written.size > REMEMBERED) this.written.delete(this.written.values().next().value);
    this.#tell();
  }

  #begin() {
    this.pieces = []; // the last one grows, unless it is whole
    this.#tell();
  }

  #tell() {
    this.pieces = this.pieces.filter((one) => !one.whole || !this.written.has(one.first));
    this.said(this.pieces.filter((one) => !this.written.has(one.first)));
  }

  #open() {
    this.#close();
    const place = new URL("acp", document.baseURI);
    place.protocol = place.protocol === "https:" ? "wss:" : "ws:";
    place.search = new URLSearchParams({ session: this.session }).toString();
    place.hash = "";
    const socket = (this.socket = new WebSocket(place, protocols()));
    // It only looks on: what this page does in the room, it asks for over HTTP.
    const attach = { jsonrpc: "2.0", id: 1, method: "session/attach", params: { sessionId: this.session, history: "none", watch: true } };
    socket.onopen = () => socket.send(JSON.stringify(attach));
    socket.onmessage = ({ data }) => this.socket === socket && this.#heard(JSON.parse(data));
    socket.onclose = ({ code }) => {
      if (this.socket !== socket) return;
      if (code === REFUSED) this.stop();
      else this.#again();
    };
  }

  #close() {
    clearTimeout(this.retry);
    this.retry = 0;
    const { socket } = this;
    this.socket = null;
    socket?.close();
    this.#begin();
  }

  #again() {
    this.#close();
    this.retry = setTimeout(() => this.#back(), RETRY[Math.min(this.tries, RETRY.length - 1)]);
    this.tries += 1;
  }

  /** A rejected socket does not say why, so it is asked for. */
  async #back() {
    const { retry } = this;
    const welcome = await admitted();
    if (this.retry !== retry) return;
    if (welcome) this.#open();
    else this.stop();
  }

  #heard(frame) {
    if (frame.id === 1) {
      if (frame.error) this.#again();
      else {
        this.tries = 0;
        this.changed(); // between what the page knew and this moment something may have changed
      }
    } else if (frame.method === "session/update") this.#update(frame.params?.update ?? {}, frame.params?._meta?.onefold?.number ?? 0);
    else if (frame.method?.startsWith("onefold/")) {
      if (frame.method === "onefold/turn_settled") this.#whole();
      this.changed();
    }
  }

  /** As the server glues chunks: by kind and message, until something else is said or done. */
  #update(update, number) {
    const kind = update.sessionUpdate;
    if (kind === "usage_update") {
      if (Number.isInteger(update.used) && update.size > 0) this.used({ used: update.used, size: update.size });
    } else if (GLUED.has(kind)) {
      const last = this.pieces.at(-1);
      const message = update.messageId ?? null;
      const text = update.content?.text ?? (update.content?.type ? `[${update.content.type}]` : "");
      if (last && !last.whole && last.kind === kind && last.message === message) last.text += text;
      else {
        this.#whole();
        this.pieces.push({ kind, message, text, first: number, whole: false });
      }
      this.#tell();
    } else if (kind === "user_message_chunk" || kind === "tool_call" || (kind === "tool_call_update" && OVER.has(update.status))) this.#whole();
  }

  #whole() {
    const last = this.pieces.at(-1);
    if (!last || last.whole) return;
    last.whole = true;
    setTimeout(() => {
      this.pieces = this.pieces.filter((one) => one !== last);
      this.#tell();
    }, LINGERS);
  }
}
