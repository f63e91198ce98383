// An agent's room: how the agent is, who is there, what it asks, what waits for it, and a place to write to it.

import { post } from "./api.js";
import * as actions from "./actions.js";
import { complain, menu, tell } from "./dialogs.js";
import { button, el, icon, replace, revealed } from "./dom.js";
import { argument } from "./message_parts.js";
import * as words from "./format.js";

const PERMISSION = "session/request_permission";
const FITS = 700; // characters that can be seen at once
const FITS_LINES = 7;
const END = 300;

export class Room {
  /** `acts` is whether whoever looks may run agents; `sent` is called when something was sent to the agent. */
  constructor(session, { acts, sent, resized }) {
    Object.assign(this, { session, sent, acts, shown: new Map(), busy: false, stopping: null, key: null });
    this.questions = el("div.questions", { "aria-live": "polite" });
    this.queue = el("ol.queue", { "aria-label": "What waits for the agent" });
    this.line = el("div.agent", { role: "status" });
    this.field = el("textarea", { rows: 1, name: "prompt", "aria-label": "Write to the agent", placeholder: this.acts ? "Write to the agent (i)" : "This token may not run agents", disabled: !this.acts, autocomplete: "off", enterkeyhint: "send" });
    this.trouble = el("div.trouble", { role: "alert", hidden: true });
    this.form = el("form.prompt", {}, this.field, this.acts && el("button.primary", { type: "submit", title: "Send (Enter); Shift+Enter breaks the line" }, "Send"));
    this.element = el("section.dock", { "aria-label": "Agent" }, this.questions, this.queue, this.line, this.trouble, this.form);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    this.field.addEventListener("input", () => this.#fit());
    this.watch = new ResizeObserver(() => {
      document.documentElement.style.setProperty("--dock", `${this.element.offsetHeight}px`);
      resized();
    });
    this.watch.observe(this.element);
  }

  stop() {
    this.watch.disconnect();
    document.documentElement.style.removeProperty("--dock");
    this.element.remove();
  }

  focus() {
    if (this.acts) this.field.focus();
  }

  focusAnswer() {
    this.questions.querySelector("button:enabled")?.focus();
  }

  show(known) {
    this.known = known;
    const { agent, questions, queue, turn, clients } = known;
    if (turn?.id !== this.stopping) this.stopping = null;
    const running = Boolean(turn) && agent.phase === "ready";
    const here = people(clients);
    this.#part(this.questions, { questions }, () => questions.map((one) => this.#question(one)));
    this.#part(this.queue, { queue }, () => queue.map((record) => this.#waits(record)));
    this.#part(this.line, { agent, running, here, asks: questions.length, stopping: this.stopping }, () => [
      el(`span.state.${tone(agent, running)}`, {}, el("b", {}, agent.name), ` ${phase(agent, running, questions.length)}`),
      agent.trouble && el("span.cause", {}, agent.trouble),
      here.length ? el("span.here", { title: "Who is there" }, `here: ${here.join(", ")}`) : null,
      running && this.acts ? button(this.stopping ? "Stopping …" : "Stop", () => this.#stop(turn, known), { kind: "stop", disabled: Boolean(this.stopping) }) : null,
      agent.phase !== "closed" && this.acts ? button(icon("more"), (event) => this.#more(event.currentTarget), { kind: "icon.acts-agent", "aria-label": "Restart or close", title: "Restart or close", "aria-haspopup": "menu" }) : null,
    ]);
  }

  /** Draws a part again only if it has changed: what one is about to press stays under the finger. */
  #part(node, about, draw) {
    const now = JSON.stringify(about);
    if (this.shown.get(node) === now) return;
    this.shown.set(node, now);
    const at = node.contains(document.activeElement) ? [...node.querySelectorAll("button")].indexOf(document.activeElement) : -1;
    replace(node, ...draw());
    node.hidden = !node.childElementCount;
    if (at >= 0) (node.querySelectorAll("button")[at] ?? this.field).focus({ preventScroll: true });
  }

  // ---------------------------------------------------------------- what the agent asks

  #question(one) {
    const known = one.method === PERMISSION && Array.isArray(one.params?.options);
    return known ? this.#permission(one) : el("article.question", { data: { question: one.question } },
      el("p", {}, el("b", {}, "The agent asks for "), el("code", {}, one.method)),
      whole(JSON.stringify(one.params, null, 1) ?? ""),
      el("p.about", {}, "It cannot be answered here: a client that knows it can, or the turn is stopped."));
  }

  #permission(one) {
    const call = one.params.toolCall ?? {};
    const title = String(call.title ?? call.kind ?? "may it go on?");
    const long = title.length > FITS;
    const about = [...(long ? [title] : []), ...wants(call)];
    return el("article.question", { data: { question: one.question } },
      el("p", {}, el("b", {}, "The agent asks: "), long ? null : revealed(title)),
      about.length ? about.map(whole) : call.title ? null : el("p.about", {}, "It does not say what for. Look at what it said before you allow it."),
      this.acts ? el("div.choices", {}, one.params.options.map((option) => button(String(option?.name ?? option?.optionId), (event) => this.#answer(one, option, event.currentTarget), { kind: /^allow/.test(option?.kind ?? "") ? "primary" : "", data: { option: String(option?.optionId) } }))) : null);
  }

  #answer(one, option, pressed) {
    this.#act(pressed.parentElement.querySelectorAll("button"), async () => {
      const { answered } = await post("answer", { session: this.session }, { question: one.question, answer: { outcome: { outcome: "selected", optionId: option.optionId } } });
      if (!answered) tell("It was answered before, or is no longer asked.");
    });
  }

  // ---------------------------------------------------------------- what waits

  #waits(record) {
    return el("li", { data: { input: record.number } },
      el("span.words", { title: words.cut(record.text ?? "", 2000) }, words.first(record.text ?? "", 160)),
      el("span.by", {}, [record.actor, words.clock(record.at)].filter(Boolean).join(" · ")),
      this.acts ? button("Take back", (event) => this.#takeBack(record, event.currentTarget)) : null);
  }

  #takeBack(record, pressed) {
    this.#act([pressed], async () => {
      const { unqueued } = await post("unqueue", { session: this.session }, { input: record.number });
      tell(unqueued ? "Taken back." : "The agent has it already.");
      if (unqueued && !this.field.value) {
        this.field.value = record.text ?? "";
        this.#fit();
      }
    });
  }

  // ---------------------------------------------------------------- writing, stopping

  async #send() {
    const text = this.field.value;
    if (this.busy || !this.acts || !text.trim()) return;
    this.busy = true;
    this.trouble.hidden = true;
    // The same words sent again after a failure are the same prompt: it may have got through.
    if (this.key?.text !== text) this.key = { text, id: unique() };
    try {
      const { input } = await post("prompt", { session: this.session }, { text, key: this.key.id });
      this.key = null;
      if (this.field.value === text) this.field.value = "";
      this.#fit();
      if (input === null) tell("The agent is asked to compact.");
      this.sent();
    } catch (error) {
      complain(this.trouble, error);
      this.trouble.hidden = false;
    } finally {
      this.busy = false;
    }
  }

  async #stop(turn, known) {
    this.stopping = turn.id;
    this.show(known);
    try {
      await post("stop", { session: this.session });
    } catch (error) {
      this.stopping = null;
      this.show(known);
      tell(error.message, true);
    }
  }

  #more(anchor) {
    menu(anchor, [
      ["Restart the agent…", () => actions.restart(this.known)],
      ["Close the room…", () => actions.close(this.known)],
    ]);
  }

  async #act(buttons, act) {
    for (const one of buttons) one.disabled = true;
    try {
      await act();
    } catch (error) {
      for (const one of buttons) one.disabled = false;
      tell([error.message, error.remedy].filter(Boolean).join(" · "), true);
    }
  }

  #fit() {
    this.field.style.height = "auto";
    this.field.style.height = `${this.field.scrollHeight + 2}px`;
  }
}

/** All that is known of what a call would do: what it is given, how it would change files, and where. */
function wants(call) {
  const { title, kind, status, toolCallId, _meta, rawInput, content, locations, ...others } = call;
  const shown = Array.isArray(content) ? content : content ? [content] : [];
  return [
    rawInput === undefined || rawInput === null ? "" : argument(rawInput),
    ...shown.map((one) => (one?.type === "diff" ? change(one) : block(one))),
    (Array.isArray(locations) ? locations : []).map((one) => [one?.path, one?.line].filter((said) => said !== undefined && said !== null).join(":")).join("\n"),
    Object.keys(others).length ? JSON.stringify(others, null, 1) : "",
  ].filter((text) => text && text !== "{}" && text !== title);
}

/** A block of content in a question, which is no record yet. */
function block(one) {
  const said = one?.content ?? one;
  return said?.text ?? said?.resource?.text ?? said?.resource?.uri ?? said?.uri ?? `[${said?.type ?? "content"}]`;
}

const change = ({ path, oldText, newText }) => [path, typeof oldText === "string" ? `--- before\n${oldText}` : null, `+++ after\n${newText ?? ""}`].filter((text) => text !== null).join("\n");

/** A text of which nothing is cut. Where it does not fit, one scrolls, and sees without that how it ends. */
function whole(text) {
  const said = revealed(text);
  const lines = said.split("\n").length;
  if (said.length <= FITS && lines <= FITS_LINES) return el("pre", {}, said);
  const ends = said.slice(-END).split("\n").slice(-FITS_LINES).join("\n");
  return [
    el("pre", { tabindex: 0 }, said),
    el("p.about", {}, `That is ${said.length.toLocaleString("en")} characters in ${lines === 1 ? "one line" : `${lines.toLocaleString("en")} lines`}: scroll to see all of it. It ends with`),
    el("pre.end", {}, ends),
  ];
}

/** Who looks or takes part, each once. A page is there twice: it follows the records, and watches the room. */
export function people(clients) {
  return [...new Set(clients.filter((one) => one.kind !== "watch").map((one) => one.name))];
}

function phase(agent, running, asks) {
  if (agent.phase === "ready") return asks ? "waits for an answer" : running ? "is answering …" : "is ready";
  return { starting: "is starting …", locked: "wants somebody to log in", down: "is down", closed: "does not run here; it is started when somebody writes to it" }[agent.phase] ?? agent.phase;
}

function tone(agent, running) {
  if (agent.phase === "ready") return running ? "busy" : "ready";
  return agent.phase === "down" ? "down" : "wait";
}

const unique = () => [...crypto.getRandomValues(new Uint32Array(4))].map((n) => n.toString(36)).join("-");
