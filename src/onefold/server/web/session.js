// One session: what it does now, the saw-tooth of its context, and the conversation, live.

import * as actions from "./actions.js";
import { get, learnScopes, Live, may, save } from "./api.js";
import { Conversation, focusRow } from "./conversation.js";
import { Curve } from "./curve.js";
import { inform, menu, tell, trouble } from "./dialogs.js";
import { after, button, el, icon, replace } from "./dom.js";
import { empty, fullness, sessionLink, state } from "./components.js";
import { people, Room } from "./room.js";
import { saying } from "./record_view.js";
import { Watch } from "./agent_stream.js";
import * as words from "./format.js";

const VIEWS = [["model", "As the model sees it", "Model"], ["all", "As it happened", "History"]];
/** Tokens of a context that is asked for as it is sent; a larger one is drawn by its records. */
const TOLD = 400_000;
/** What the model of such an agent is sent nobody here knows: this is what was said, folded where it compacted. */
const BY_AGENT = ["What was said", "Said"];

export class SessionView {
  constructor(main, { id, query, live, remember }) {
    Object.assign(this, { main, id, remember, saysLive: live });
    this.view = query.get("view") === "all" ? "all" : "model";
    this.wanted = Number(query.get("at")) || null;
    this.open = new Map(); // what is unfolded, by key
    this.unread = 0;
    this.known = null;
    this.busy = false;
    this.again = false;
    this.stopped = false;
    this.head = el("header.head");
    this.curve = new Curve({ go: (number) => this.go(number) });
    this.switch = el("div.switch", { role: "radiogroup", "aria-label": "View" }, VIEWS.map(([value, label, short]) =>
      el("button", { type: "button", role: "radio", data: { view: value }, onclick: () => this.look(value) }, el("span.long", {}, label), el("span.short", {}, short))));
    this.place = el("output.place", { "aria-live": "off" });
    this.jump = el("input.jump", { inputmode: "numeric", placeholder: "#", "aria-label": "Go to record number", title: "Go to a record (#)", autocomplete: "off" });
    this.tools = el("div.tools", {}, this.switch, el("div.where", {}, this.place,
      button("‹", () => this.step(-1), { kind: "icon", "aria-label": "Previous compaction", title: "Previous compaction ([)" }),
      button("›", () => this.step(1), { kind: "icon", "aria-label": "Next compaction", title: "Next compaction (])" }),
      this.jump,
      button(icon("more"), (event) => this.#more(event.currentTarget), { kind: "icon.acts-menu", "aria-label": "Actions", "aria-haspopup": "menu" })));
    this.note = el("div.note");
    this.growing = el("div.growing", { "aria-label": "Being said", hidden: true });
    this.pill = button("", () => this.toEnd(), { kind: "pill", hidden: true });
    this.upper = el("div.upper", {}, this.head, this.curve.element, this.tools);
    this.element = el("section.view.one", { "aria-label": "Session" }, this.upper, this.note);
    replace(main, this.element, this.pill);
    this.jump.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      const number = Number(this.jump.value.replace(/[#,.\s]/g, ""));
      if (Number.isInteger(number) && number > 0) this.go(number);
      this.jump.value = "";
      event.preventDefault();
    });
    this.element.addEventListener("click", (event) => this.#click(event));
    this.element.addEventListener("focusin", (event) => this.#focus(event.target));
    this.soon = after(200, () => this.refresh());
    this.curveSoon = after(700, () => this.#drawCurve());
    this.countedSoon = after(200, () => this.#drawCounted());
    this.seconds = 0;
    this.clock = setInterval(() => this.#tick(), 1000);
    this.start();
  }

  stop() {
    this.stopped = true;
    clearInterval(this.clock);
    this.soon.stop();
    this.curveSoon.stop();
    this.countedSoon.stop();
    this.live?.stop();
    this.watch?.stop();
    cancelAnimationFrame(this.frame);
    this.room?.stop();
    this.conversation?.stop();
    this.curve.stop();
  }

  // ---------------------------------------------------------------- what is known

  async start() {
    try {
      this.known = await this.#learn();
      if (this.stopped) return;
      this.conversation = new Conversation(this.main, this.id, {
        open: this.open,
        seen: (first, last) => this.#seen(first, last),
        atEnd: (end) => end && this.#read(),
        failed: (error) => tell(error.message, true),
        unfold: may("write") ? (segment) => actions.unfold(this.known, segment) : null,
        summarise: may("compact") ? () => actions.summarise(this.known) : null,
      });
      this.conversation.windowed.inset = () => this.#covered();
      this.conversation.windowed.foot = () => this.room?.element.offsetHeight ?? 0;
      this.element.append(this.conversation.element, this.growing);
      this.#drawHead();
      await this.#drawRoom();
      this.conversation.show(this.known, this.view);
      this.#drawSwitch();
      if (this.wanted) this.go(this.wanted);
      else this.conversation.windowed.toEnd();
      this.#drawCurve();
      this.live = new Live({ session: this.id, after: this.known.follow_from, record: (record) => this.#came(record), state: this.saysLive, gone: (why) => this.#gone(why) });
    } catch (error) {
      if (this.stopped) return;
      replace(this.note, error.status === 404 ? empty("There is no such session", error.message) : trouble(error, () => {
        replace(this.note);
        this.start();
      }));
    }
  }

  /** The snapshot with what stands in every context and how compactions were made. */
  async #learn() {
    const session = this.id;
    const [snapshot, ledger, { compactions }] = await Promise.all([
      get("attach", { session, history: "none" }),
      get("ledger", { session }),
      get("compactions", { session, state: "all", limit: 1000 }),
      learnScopes(),
    ]);
    // Of this moment or a later one: then the next event has it drawn again.
    const tells = snapshot.head.keeper !== "agent" && snapshot.session.tokens <= TOLD;
    const sent = tells ? await get("sent", { session }) : null;
    const folds = snapshot.segments.filter((s) => s.source === "compaction" || s.source === "observed");
    return {
      ...snapshot,
      sent: sent?.segment === snapshot.head.number ? sent : null,
      ledger,
      pins: ledger.pins,
      last: snapshot.session.last,
      compactions: new Map(compactions.map((one) => [one.id, one])),
      order: new Map(folds.map((s, i) => [s.number, i + 1])),
    };
  }

  async refresh() {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    try {
      const before = this.known;
      const now = await this.#learn();
      if (this.stopped) return;
      now.last = Math.max(now.last, before.last);
      this.known = now;
      const same = before.head.number === now.head.number && String(before.pins) === String(now.pins) && JSON.stringify(before.ledger) === JSON.stringify(now.ledger) && shape(before.sent) === shape(now.sent);
      if (same) this.conversation.goOn(now);
      else this.conversation.show(now);
      this.#drawHead();
      await this.#drawRoom();
      this.curveSoon();
    } catch (error) {
      if (!this.stopped) tell(error.message, true);
    } finally {
      this.busy = false;
      if (this.again) {
        this.again = false;
        this.soon();
      }
    }
  }

  // ---------------------------------------------------------------- the agent's room

  async #drawRoom() {
    if (!this.known.agent) return this.#leave();
    if (!this.room) {
      this.room = new Room(this.id, { acts: may("agents"), sent: () => this.toEnd(), resized: () => this.#stay() });
      this.element.classList.add("hosts");
      this.element.append(this.room.element);
    }
    // There is nothing to look at where no agent runs.
    if (this.known.agent.phase !== "closed") this.watch ??= new Watch(this.id, { said: (pieces) => this.#grow(pieces), changed: () => this.soon(), used: (usage) => {
      this.known.session.usage = usage;
      this.#drawHead();
    } });
    else {
      this.watch?.stop();
      this.watch = null;
    }
    this.room.show(this.known);
    return undefined;
  }

  /** Its agent is no longer run by this server. */
  #leave() {
    this.watch?.stop();
    this.room?.stop();
    this.watch = this.room = null;
    this.element.classList.remove("hosts");
    this.#grow([]);
  }

  /** What the agent is saying, once for each frame of the screen, however many chunks it comes in. */
  #grow(pieces) {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      replace(this.growing, pieces.map(saying));
      this.growing.hidden = !pieces.length;
      this.#stay();
    });
  }

  #stay() {
    if (this.conversation?.windowed.stick) this.conversation.windowed.toEnd();
  }

  /** Times go on; and a worker that falls silent writes nothing, so it has to be looked for. */
  #tick() {
    if (!this.known || (!this.known.compaction.open && !this.known.turn)) return;
    this.seconds += 1;
    if (this.seconds % 10) this.#drawHead();
    else this.refresh();
  }

  #came(record) {
    if (this.stopped || !this.conversation) return;
    const shown = this.conversation.add(record);
    this.watch?.record(record);
    this.known.last = Math.max(this.known.last, record.number);
    if (shown && !this.conversation.windowed.stick) {
      this.unread += 1;
      replace(this.pill, icon("down"), `${words.count(this.unread)} new`);
      this.pill.hidden = false;
    }
    this.#drawPlace();
    if (this.busy || !this.#count(record)) this.soon();
  }

  /** What a message changes is told by its record. False for a record of which the server has to be asked. */
  #count({ kind, number, at, header }) {
    const { session } = this.known;
    if (kind !== "message" || !session.title) return false;
    if (number <= session.last) return true;
    const tokens = session.tokens + (header?.tokens ?? 0);
    if (session.limit && session.tokens <= session.limit.hard && tokens > session.limit.hard) return false;
    this.known.session = { ...session, tokens, last: number, messages: session.messages + 1, touched_at: at };
    this.curve.grow({ number, at, tokens });
    this.countedSoon();
    return true;
  }

  #drawCounted() {
    this.#drawHead();
    if (!this.curve.drawn()) this.curveSoon();
  }

  #gone(why) {
    if (why === "moved") {
      tell("The store was restored from a backup; the page starts again.", true);
      location.reload();
      return;
    }
    this.live?.stop();
    this.#leave();
    replace(this.element, empty("This session was deleted", "Its id stays taken, and nothing of it is left."));
  }

  // ---------------------------------------------------------------- the head

  #acts() {
    const { head } = this.known;
    const writes = may("write");
    return [
      this.#compacts() ? ["compact", "Compact…", () => actions.compact(this.known)] : null,
      writes ? ["undo", "Undo…", () => actions.undo(this.known)] : null,
      writes && head.redo && this.known.last === head.number ? ["redo", "Redo…", () => actions.redo(this.known)] : null,
      writes ? ["fork", "Fork…", () => this.#fork()] : null,
      ["export", "Export…", () => actions.exported(this.known)],
      ["context", "Context as JSON", () => this.#context()],
    ].filter(Boolean);
  }

  /** Whether somebody can be asked to compact it: an agent that compacts by itself only where it runs. */
  #compacts() {
    return may("compact") && (this.known.head.keeper !== "agent" || Boolean(this.known.agent));
  }

  #drawHead() {
    if (!this.known) return;
    const focused = this.head.contains(document.activeElement) ? document.activeElement.dataset.act : null;
    const { session, turn, queue, clients, agent } = this.known;
    const here = people(clients);
    replace(this.head,
      el("div.title", {},
        el("h1", { title: session.title }, session.title || session.id),
        el("div.sub", {}, el("code.id", {}, session.id),
          session.parent && el("a.tag", { href: sessionLink(session.parent, { view: "all", at: session.forked_at }) }, `fork of ${session.parent} at #${session.forked_at}`),
          session.keeper === "agent" && el("span.tag", {}, "kept by its agent"),
          queue.length && !agent ? el("span.tag", {}, `${words.many(queue.length, "input")} waiting`) : null,
          clients.length > 1 && !agent ? el("span.tag", { title: here.join(", ") }, `${clients.length} looking`) : null,
        ),
      ),
      el("div.now", {}, state(session), fullness(session, true),
        el("span.figures", {}, figure(session.messages, "message"), figure(session.committed, "compaction"), session.failures ? el("span.failures", {}, `${session.failures} failed`) : null)),
      el("div.acts", {}, this.#acts().map(([name, label, act]) => button(label, act, { data: { act: name } }))),
      session.problems.length ? el("ul.problems", {}, session.problems.map((one) => el("li.problem", {}, one))) : null,
      turn && el("p.goes-on", {}, `A turn is open${turn.owner ? ` by ${turn.owner}` : ""}, begun ${words.ago(turn.since)}${turn.silent ? "; its writer is not heard of any more" : ""}.`),
      this.#compacting(),
    );
    if (focused) this.head.querySelector(`[data-act="${focused}"]`)?.focus({ preventScroll: true });
  }

  #compacting() {
    const { open } = this.known.compaction;
    if (!open) return null;
    const now = Date.now() / 1000;
    const who = words.holder(open.holder ?? open.worker);
    const told = open.active
      ? [`Compacting for ${words.lasted(now - (open.started_at ?? open.requested_at))}`, who, `attempt ${open.attempts} of ${open.attempts_allowed}`]
      : [`Asked for ${words.ago(open.requested_at)}, nobody works on it`, open.not_before > now && `tried again in ${words.lasted(open.not_before - now)}`, open.attempts ? `${open.attempts} of ${open.attempts_allowed} attempts are over` : null];
    if (open.requests > 1) told.push(`${open.requests} requests`);
    return el(`div.compacting${open.active ? ".active" : ""}`, { role: "status" },
      el("span", {}, told.filter(Boolean).join(" · "), open.cause ? el("span.cause", {}, `Last failure: ${open.cause}`) : null),
      may("compact") ? button("Cancel…", () => actions.cancel(this.id, open), { data: { act: "cancel" } }) : null);
  }

  /** The actions where there is no room for the head: it is far above when one reads the end. */
  #more(anchor) {
    if (!this.known) return;
    const { open } = this.known.compaction;
    menu(anchor, [
      ...this.#acts().map(([, label, act]) => [label, act]),
      open && may("compact") ? ["Cancel the compaction…", () => actions.cancel(this.id, open)] : null,
      ["Previous compaction", () => this.step(-1)],
      ["Next compaction", () => this.step(1)],
      ["To the top", () => this.#toTop()],
    ]);
  }

  #toTop() {
    this.conversation.windowed.toRow(0, 400);
    this.main.scrollTop = 0;
  }

  #context() {
    inform("Exactly what the model is sent", el("div", {}, el("p", {}, "Every message of this context in its order, as JSON, with the record it comes from."), el("p", {}, button("Download it", () => save("context", { session: this.id }, "context.json").catch((error) => tell(error.message, true))))));
  }

  #fork(at = null) {
    actions.fork(this.known, at, (id) => {
      location.hash = sessionLink(id);
    });
  }

  async #drawCurve() {
    try {
      const points = Math.max(60, Math.min(600, Math.round(this.main.clientWidth / 2)));
      const data = await get("curve", { session: this.id, points });
      if (this.stopped) return;
      const failed = [...this.known.compactions.values()].filter((one) => one.state === "failed" && one.fence).map((one) => ({ number: one.fence, cause: one.cause }));
      this.curve.show(data, failed);
    } catch (error) {
      if (!this.stopped && error.name !== "AbortError") this.curve.element.classList.add("bare");
    }
  }

  /** How many pixels of the conversation lie behind what stays at the top: all of it, or on a phone the tools. */
  #covered() {
    return (getComputedStyle(this.upper).display === "contents" ? this.tools : this.upper).offsetHeight;
  }

  // ---------------------------------------------------------------- looking and going

  #drawSwitch() {
    const [long, short] = this.known.head.keeper === "agent" ? BY_AGENT : VIEWS[0].slice(1);
    replace(this.switch.querySelector("[data-view=model]"), el("span.long", {}, long), el("span.short", {}, short));
    for (const one of this.switch.children) {
      const on = one.dataset.view === this.view;
      one.setAttribute("aria-checked", String(on));
      one.tabIndex = on ? 0 : -1;
    }
  }

  look(view) {
    if (view === this.view || !this.conversation) return;
    const [first] = this.reading ?? [null];
    const end = this.conversation.windowed.stick;
    this.view = view;
    this.remember({ view: view === "all" ? "all" : null });
    this.conversation.windowed.anchor = null;
    this.conversation.show(this.known, view);
    this.#drawSwitch();
    if (end || first === null) this.conversation.windowed.toEnd();
    else {
      const index = this.conversation.find(first);
      if (index >= 0) this.conversation.windowed.toRow(index, 8);
      else this.conversation.windowed.toRow(0, 8);
    }
  }

  async go(number) {
    if (!this.conversation) return;
    try {
      if (await this.conversation.goTo(number)) return;
      if (this.view === "model" && number <= this.known.last) {
        this.look("all");
        if (await this.conversation.goTo(number)) return;
      }
      tell(`There is no record #${number}; the last one is #${this.known.last}.`, true);
    } catch (error) {
      tell(error.message, true);
    }
  }

  /** Goes to the compaction before or after what is read. As the model sees it, a fold stands before its cut. */
  step(by) {
    const cuts = new Map(this.known.segments.map((segment) => [segment.number, segment.cut]));
    const moved = new Set(this.known.segments.filter((segment) => segment.source === "compaction").map((segment) => segment.number));
    const place = (number) => (this.view === "model" && moved.has(number) ? cuts.get(number) - 0.5 : number);
    const folds = [...this.known.order.keys()].sort((a, b) => place(a) - place(b));
    const fold = Number(document.activeElement?.closest?.(".row.fold")?.dataset.number);
    const here = fold ? place(fold) : this.reading?.[by > 0 ? 0 : 1] ?? 0;
    const next = by > 0 ? folds.find((n) => place(n) > here) : folds.reverse().find((n) => place(n) < here);
    if (next) this.go(next);
    else tell(by > 0 ? "There is no later compaction." : "There is no earlier compaction.");
  }

  toEnd() {
    this.#read();
    this.conversation.windowed.toEnd();
  }

  #read() {
    this.unread = 0;
    this.pill.hidden = true;
  }

  #seen(first, last) {
    this.reading = [first, last];
    this.curve.read(first, last);
    this.#drawPlace();
  }

  #drawPlace() {
    if (!this.reading || this.reading[1] === null) return;
    replace(this.place, `#${words.count(this.reading[1])} of ${words.count(this.known.last)}`);
  }

  // ---------------------------------------------------------------- rows

  #focus(target) {
    const row = target.closest(".row");
    if (row && row === target) {
      for (const old of this.element.querySelectorAll(".row[tabindex='0']")) if (old !== row) old.tabIndex = -1;
      row.tabIndex = 0;
    }
  }

  #click(event) {
    const jump = event.target.closest("[data-jump]");
    if (jump) return void this.go(Number(jump.dataset.jump));
    const more = event.target.closest("[data-menu]");
    if (more) return void this.#menu(more, Number(more.dataset.menu));
    return undefined;
  }

  async #menu(anchor, number) {
    const record = await this.conversation.records.one(number);
    const pinned = this.conversation.pins.has(number);
    menu(anchor, [
      may("write") ? [pinned ? "Unpin…" : "Pin…", () => actions.pin(this.known, record, pinned)] : null,
      may("write") ? ["Fork from here…", () => this.#fork(number)] : null,
      ["Copy its text", () => copy(record.text ?? "")],
      ["Copy a link to it", () => copy(`${location.href.split("#")[0]}${sessionLink(this.id, { view: "all", at: number })}`)],
    ]);
  }

  #current() {
    return document.activeElement?.closest?.(".row") ?? this.element.querySelector(".row[tabindex='0']");
  }

  #move(by) {
    const { windowed } = this.conversation;
    const current = this.#current();
    const from = current ? windowed.indexOf(current) : -1;
    const index = from >= 0 ? from + by : windowed.visible?.[by > 0 ? "first" : "last"] ?? 0;
    for (let i = index; i >= 0 && i < this.conversation.count; i += by) {
      const element = windowed.reveal(i);
      if (!element || element.classList.contains("none") || element.classList.contains("end")) continue;
      focusRow(element);
      return;
    }
  }

  #enter() {
    const row = this.#current();
    if (!row) return false;
    if (row.dataset.fold && this.view === "model") {
      const number = Number(row.dataset.fold);
      this.conversation.toggle(number);
      const now = this.conversation.windowed.shown.get(`fold:${number}`);
      if (now) focusRow(now);
      return true;
    }
    const inside = row.querySelector("details > summary, .more");
    inside?.click();
    return Boolean(inside);
  }

  key(event) {
    if (!this.conversation) return false;
    const number = Number(this.#current()?.dataset.number) || null;
    const keys = {
      j: () => this.#move(1),
      k: () => this.#move(-1),
      m: () => this.look(this.view === "all" ? "model" : "all"),
      "[": () => this.step(-1),
      "]": () => this.step(1),
      "#": () => this.jump.focus(),
      G: () => this.toEnd(),
      End: () => this.toEnd(),
      Home: () => this.#toTop(),
      e: () => actions.exported(this.known),
      ...(this.#compacts() ? { c: () => actions.compact(this.known) } : {}),
      ...(may("compact") ? { x: () => this.known.compaction.open && actions.cancel(this.id, this.known.compaction.open) } : {}),
      ...(may("write") ? {
        u: () => actions.undo(this.known),
        r: () => this.known.head.redo && actions.redo(this.known),
        f: () => this.#fork(number),
        p: () => this.#pin(number),
      } : {}),
      i: () => this.room?.focus(),
      a: () => this.room?.focusAnswer(),
    };
    if (event.key === "Enter") return event.target.closest(".row") === event.target && this.#enter();
    const act = keys[event.key];
    if (!act) return false;
    act();
    return true;
  }

  async #pin(number) {
    const record = number && (await this.conversation.records.one(number));
    if (record?.kind === "message") actions.pin(this.known, record, this.conversation.pins.has(number));
    else tell("Go to a message first, with j and k.");
  }
}

/** What of a context is not just one message after another: if it is the same, rows have only come at the end. */
const shape = (sent) => sent && JSON.stringify([sent.left_out, sent.others.map((one) => ({ ...one, at: sent.numbers[one.at - 1] ?? null }))]);

const figure = (n, one) => el("span.figure", {}, el("b", {}, words.count(n)), ` ${n === 1 ? one : `${one}s`}`);

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    tell("Copied.");
  } catch {
    tell("The browser does not let this page copy.", true);
  }
}
