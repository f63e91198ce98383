// The conversation of a session, as the model sees it or as it happened. Both are lists of sections: single items, such
// as a fold, and stretches of records. A fold that is opened puts what it stands for behind itself; in that, the fold
// before it may be opened, and so on to the first record.

import { button, el, icon } from "./dom.js";
import { Records } from "./records.js";
import * as rows from "./record_view.js";
import { Windowed } from "./virtual_list.js";
import * as words from "./format.js";

export class Conversation {
  constructor(scroller, session, { open, seen, atEnd, failed, unfold, summarise }) {
    Object.assign(this, { scroller, open, unfold, summarise });
    this.records = new Records(session, (first, stop) => this.#came(first, stop), failed);
    this.folds = new Set(); // segments whose originals are shown
    this.view = "model";
    this.sections = [];
    this.starts = [];
    this.count = 0;
    this.flash = null;
    this.windowed = new Windowed(scroller, this, {
      label: "Conversation",
      seen: (first, last) => seen(this.#number(first, 1), this.#number(last, -1)),
      wanted: (first, last) => this.#want(first, last),
      atEnd,
    });
    this.element = this.windowed.element;
    this.element.addEventListener("redraw", (event) => this.#redraw(event.target));
  }

  stop() {
    this.windowed.stop();
    this.records.forget();
  }

  /** What is known of the session: its snapshot, its ledger, its compactions by their id. */
  show(known, view = this.view) {
    this.known = known;
    this.view = view;
    this.segments = new Map(known.segments.map((segment) => [segment.number, segment]));
    this.pins = new Set(known.pins);
    this.#learnSent();
    this.#arrange();
    this.windowed.reset();
  }

  /** The same, of which only the end is new: no row has to be drawn again. */
  goOn(known) {
    this.known = known;
    this.#learnSent();
  }

  /** What the server says that the model is sent: which records, and what in place of those that it is not sent whole. */
  #learnSent() {
    const { sent } = this.known;
    this.sent = sent && new Set(sent.numbers);
    this.instead = new Map((sent?.others ?? []).filter((one) => one.kind === "masked").map((one) => [one.number, one.text]));
  }

  /** A record came, live. True if it is a row of this view. */
  add(record) {
    this.records.put(record);
    this.known.last = Math.max(this.known.last, record.number);
    const tail = this.sections.at(-1);
    if (!tail || tail.start === undefined || record.number < tail.stop) return false;
    this.count += record.number + 1 - tail.stop;
    tail.stop = record.number + 1;
    this.windowed.grown();
    return this.view === "all" || isShown(record);
  }

  // ---------------------------------------------------------------- what stands where

  #arrange() {
    this.sections = this.view === "all" ? [stretch(1, this.known.last + 1, "all")] : this.#asModelSees();
    this.starts = [];
    this.count = 0;
    for (const section of this.sections) {
      this.starts.push(this.count);
      this.count += size(section);
    }
  }

  #asModelSees() {
    if (this.known.head.keeper === "agent") return this.#asSaid();
    return this.known.sent ? this.#asSent() : this.#asRecorded();
  }

  /** Every message of the context in its order, as the server sends it. What no record holds stands as a row of its own. */
  #asSent() {
    const { head, ledger, last, sent } = this.known;
    const others = new Map(sent.others.map((one) => [one.at, one]));
    const older = sent.others.some((one) => one.kind === "facts"); // a version that carried them by themselves
    const shown = {
      summary: () => this.#fold(this.segments.get(head.summary) ?? head, 0),
      // What a model called some of these words stands with them in one text, and here before it.
      quotes: (one) => [...(ledger.facts.length && !older ? shown.facts() : []), { key: "quotes", render: () => this.#quotes(ledger.quotes, one.text) }],
      facts: () => [{ key: "facts", render: () => this.#facts(ledger.facts) }],
      notes: () => [{ key: "notes", render: () => notes(ledger.notes) }],
    };
    const made = [];
    let run = null; // the stretch that grows
    sent.numbers.forEach((number, at) => {
      const other = others.get(at);
      if (other && other.kind !== "masked") {
        run = null;
        made.push(...(shown[other.kind]?.(other) ?? [{ key: `made:${at}`, render: () => inserted(other) }]));
      } else if (number < head.cut || (run && number < run.stop) || made.some((one) => one.start !== undefined && number < one.stop)) {
        run = null; // from before the cut, here by a pin or by name
        made.push({ key: `kept:${number}`, number, render: () => this.#record(number, { kept: true }) });
      } else {
        if (!run) made.push((run = stretch(number, number, "sent")));
        run.stop = number + 1;
      }
    });
    if (run) run.stop = last + 1;
    else made.push(stretch(last + 1, last + 1, "sent"));
    return made;
  }

  /** Of a session that its agent compacts: what was said, folded at the last place where the agent compacted. */
  #asSaid() {
    const { head, last, segments } = this.known;
    const acts = segments.filter((one) => one.source === "observed" && one.number >= head.cut && !hidden(one.number, head));
    if (!acts.length) return this.#asRecorded();
    return [...this.#agentFold(acts, acts.length - 1, 0), ...this.#shown(acts.at(-1).number + 1, last + 1, 0, true)];
  }

  #agentFold(acts, at, depth) {
    const { number } = acts[at];
    const from = at ? acts[at - 1].number + 1 : this.known.head.cut;
    const made = [{ key: `fold:${number}`, fold: acts[at], render: () => this.#boundary(this.records.get(number), number, depth, from) }];
    if (!this.folds.has(number)) return made;
    const { summary } = this.known.head;
    if (at) made.push(...this.#agentFold(acts, at - 1, depth + 1));
    else if (summary !== null) made.push(...this.#fold(this.segments.get(summary) ?? this.known.head, depth + 1));
    made.push(...this.#shown(from, number, depth + 1));
    made.push({ key: `end:${number}`, render: () => el("div.row.end", { data: { depth: depth + 1 } }, "end of what its agent compacted") });
    return made;
  }

  /** By the records alone, where the server does not say what is sent: the context is too large to be told of. */
  #asRecorded() {
    const { head, ledger, last } = this.known;
    const before = [...new Set([...head.kept, ...this.pins])].filter((n) => n < head.cut && !hidden(n, head)).sort((a, b) => a - b);
    const made = before.map((number) => ({ key: `kept:${number}`, number, render: () => this.#record(number, { kept: true }) }));
    if (ledger.notes.length) made.push({ key: "notes", render: () => notes(ledger.notes) });
    if (ledger.facts.length) made.push({ key: "facts", render: () => this.#facts(ledger.facts) });
    if (ledger.quotes.length) made.push({ key: "quotes", render: () => this.#quotes(ledger.quotes) });
    if (head.summary !== null) made.push(...this.#fold(this.segments.get(head.summary) ?? head, 0));
    made.push(...this.#shown(head.cut, last + 1, 0));
    const tail = made.at(-1);
    // What comes live goes on here, even if all before it is hidden.
    if (tail?.stop !== last + 1) made.push(stretch(last + 1, last + 1, "messages"));
    return made;
  }

  /** A fold, and if it is open, what it stands for: the fold before it and the records since. */
  #fold(segment, depth) {
    const made = [{ key: `fold:${segment.number}`, fold: segment, render: () => this.#card(segment, depth, true) }];
    if (!this.folds.has(segment.number)) return made;
    const base = this.segments.get(segment.base);
    if (base && base.summary !== null) made.push(...this.#fold(this.segments.get(base.summary) ?? base, depth + 1));
    made.push(...this.#shown(base ? base.cut : 1, segment.cut, depth + 1));
    made.push({ key: `end:${segment.number}`, render: () => el("div.row.end", { data: { depth: depth + 1 } }, `end of what the summary stands for`) });
    return made;
  }

  #shown(start, stop, depth, grows = false) {
    const made = [];
    let from = start;
    for (const [first, last] of this.known.head.hidden) {
      if (last < from || first >= stop) continue;
      if (first > from) made.push(stretch(from, first, "messages", depth));
      from = last + 1;
    }
    if (from < stop || grows) made.push(stretch(from, stop, "messages", depth));
    return made;
  }

  // ---------------------------------------------------------------- rows, for the windowed list

  key(index) {
    const [section, at] = this.#at(index);
    return section.key ?? section.start + at;
  }

  estimate(index) {
    const [section, at] = this.#at(index);
    if (section.key) return section.fold ? 260 : 120;
    const record = this.records.get(section.start + at);
    if (!record) return 76;
    if (isObserved(record)) return 110;
    if (record.kind !== "message") return section.mode === "all" ? 30 : 0;
    return 48 + Math.min(14, Math.ceil((record.text?.length ?? 0) / 90)) * 21;
  }

  find(key) {
    for (let i = 0; i < this.sections.length; i++) {
      const section = this.sections[i];
      if (section.key ? section.key === key : key >= section.start && key < section.stop) return this.starts[i] + (section.key ? 0 : key - section.start);
    }
    return -1;
  }

  render(index) {
    const [section, at] = this.#at(index);
    if (section.key) {
      const made = section.render();
      if (this.flash && this.flash === section.key) made.classList.add("found");
      return made;
    }
    const number = section.start + at;
    const made = this.#record(number, { depth: section.depth, mode: section.mode });
    if (this.flash === number) made.classList.add("found");
    return made;
  }

  #record(number, { depth = 0, mode = "all", kept = false }) {
    const record = this.records.get(number);
    if (!record) return rows.waiting(number);
    if (mode === "messages" && !isShown(record)) return rows.nothing(number);
    if (mode === "sent" && !this.#isSent(record)) return rows.nothing(number);
    if (isObserved(record)) return this.#boundary(record, number, depth);
    const segment = record.kind === "segment.opened" && this.segments.get(number);
    if (segment && typeof record.body.summary === "string") return this.#card(segment, depth, false);
    const pinned = this.pins.has(number);
    const masked = !pinned && this.known.head.masked?.includes(number);
    const provided = mode === "all" && this.known.provided.includes(number);
    const instead = mode === "all" ? null : this.instead.get(number);
    const marks = { depth, pinned, masked, provided, instead, kept: kept && !pinned, hidden: mode === "all" && !provided && hidden(number, this.known.head) };
    return rows.row(record, marks, this.open);
  }

  /** Whether the model is sent a record at its place: a summary is sent in its own, as a fold. What came since the server
   *  said so is, if it is a message. */
  #isSent(record) {
    if (record.kind === "segment.opened") return false;
    return record.number > this.known.sent.last ? isShown(record) : this.sent.has(record.number);
  }

  #at(index) {
    let low = 0;
    let high = this.starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.starts[middle] <= index) low = middle;
      else high = middle - 1;
    }
    // Sections without rows share their start with the next one.
    while (low > 0 && size(this.sections[low]) === 0) low--;
    return [this.sections[low], index - this.starts[low]];
  }

  #number(index, step) {
    for (let i = index; i >= 0 && i < this.count; i += step) {
      const [section, at] = this.#at(i);
      if (!section.key) return section.start + at;
      if (section.number) return section.number;
      if (section.fold) return section.fold.source === "observed" ? section.fold.number : section.fold.cut;
    }
    return null;
  }

  #want(first, last) {
    const list = [];
    for (let i = first; i <= last; i++) {
      const [section, at] = this.#at(i);
      if (!section.key) list.push(section.start + at);
      else if (section.number) list.push(section.number);
      else if (section.fold) list.push(section.fold.number);
    }
    this.records.want(list, this.known?.last ?? 0);
  }

  #came(first, stop) {
    for (const [key, element] of [...this.windowed.shown]) {
      const number = typeof key === "number" ? key : Number(key.split(":")[1]);
      const waits = element.dataset.waits !== undefined;
      if (waits && number >= first && number < stop) this.windowed.refresh(this.windowed.indexOf(element));
    }
    this.windowed.settle();
  }

  #redraw(target) {
    const element = target.closest(".row");
    const index = this.windowed.indexOf(element);
    if (index < 0) return;
    this.windowed.refresh(index);
    this.windowed.settle();
  }

  // ---------------------------------------------------------------- folds

  #card(segment, depth, opens) {
    const record = this.records.get(segment.number);
    if (!record) return rows.waiting(segment.number);
    const compaction = this.known.compactions.get(segment.compaction);
    const base = this.segments.get(segment.base);
    const from = base ? base.cut : 1;
    const covers = segment.cut - from;
    const isOpen = this.folds.has(segment.number);
    const facts = Array.isArray(record.body.facts) ? record.body.facts.map(fact) : [];
    const quotes = Array.isArray(record.body.quotes) ? record.body.quotes : [];
    const order = this.known.order.get(segment.number);
    const summary = el("div.summary");
    summary.append(rows.excerpted(record.body.summary ?? "", `${segment.number}.summary`, this.open, opens ? 14 : 5));
    return el(`article.row.fold${isOpen && opens ? ".open" : ""}`, { tabindex: -1, data: { number: segment.number, depth, fold: segment.number }, "aria-label": `Compaction ${order ?? ""}, ${words.tokens(segment.tokens_before)} to ${words.tokens(segment.tokens_after)} tokens` },
      el("span.number", { "aria-hidden": "true" }, `#${segment.number}`),
      el("div.said", {},
        el("header.who", {},
          el("span.role", {}, order ? `Compaction ${order}` : words.SOURCES[segment.source]),
          el("span.change", { title: "Estimated size of the context before and after" }, `${words.tokens(segment.tokens_before)} → ${words.tokens(segment.tokens_after)} tok`),
          saved(segment),
          record.body.erased && el("span.tag", {}, "erased"),
          el("span.aside", {}, el("time", { title: words.whole(segment.at) }, words.clock(segment.at))),
        ),
        summary,
        quotes.length ? rows.details("quotes", `${segment.number}.quotes`, this.open, () => [el("b", {}, "Quotes"), ` ${words.many(new Set(quotes.map((q) => q[0])).size, "message")}, word for word`], () => el("p.covers", {}, [...new Set(quotes.map((q) => q[0]))].map((n) => [ref(n), " "]))) : null,
        facts.length ? rows.details("ledger", `${segment.number}.facts`, this.open, () => [el("b", {}, "Ledger"), ` ${words.many(facts.length, "fact")} carried word for word`], () => rows.facts(facts)) : null,
        compaction && rows.details("made", `${segment.number}.made`, this.open, () => [el("b", {}, "How it was made"), ` ${made(compaction, record)}`], () => account(compaction, segment, record)),
        opens
          ? button([icon("fold"), isOpen ? "Fold the originals" : `Unfold ${words.many(covers, "original")}, #${from}–#${segment.cut - 1}`], () => this.toggle(segment.number), { kind: "unfold", "aria-expanded": String(isOpen) })
          : null,
        opens && this.known.head.keeper !== "agent" && this.unfold
          ? button(`Tell the model the originals again, about +${words.tokens(this.#cost(segment))} tok…`, () => this.unfold(segment.number), { kind: "back", title: "The model sees again what this summary stands for, and all that was said since" })
          : null,
        segment.number === this.known.head.summary && this.known.head.keeper !== "agent" && this.summarise
          ? button("Summarise again…", () => this.summarise(), { kind: "again", title: "Writes this summary once more, of the same messages; you compare, and decide" })
          : null,
        opens
          ? null
          : el("p.covers", {}, "stands for ", ref(from), "–", ref(segment.cut - 1), base?.summary ? " and the summary before it" : ""),
      ),
    );
  }

  /** By how many tokens the context grows if this fold is taken back, with those that were made of it. */
  #cost(segment) {
    let sum = 0;
    for (let one = this.segments.get(this.known.head.summary); one; one = this.segments.get(this.segments.get(one.base)?.summary)) {
      sum += one.tokens_before - one.tokens_after;
      if (one.number <= segment.number) break;
    }
    return Math.max(0, sum);
  }

  /** Where an agent compacted by itself: what is before it stays, but the agent may know only a summary of it. */
  #boundary(record, number, depth, from = null) {
    if (!record) return rows.waiting(number);
    const isOpen = this.folds.has(number);
    const opens = from !== null && from < number;
    const { by, witnesses, said, compaction } = record.body;
    const order = this.known.order.get(record.number);
    const how = this.known.compactions.get(compaction);
    const segment = this.segments.get(record.number);
    const seen = [...new Set([by, ...(Array.isArray(witnesses) ? witnesses : [])])].filter(Boolean);
    return el(`article.row.fold.observed${isOpen && opens ? ".open" : ""}`, { tabindex: -1, data: { number: record.number, depth, ...(opens ? { fold: number } : {}) }, "aria-label": `Compaction ${order ?? ""} by the agent itself` },
      el("span.number", { "aria-hidden": "true" }, `#${record.number}`),
      el("div.said", {},
        el("header.who", {},
          el("span.role", {}, order ? `Compaction ${order}` : words.SOURCES.observed),
          el("span.change", {}, "by the agent itself"),
          seen.map((one, i) => el(`span.tag${i ? "" : ".accent"}`, { title: `Seen by ${words.witness(one)}` }, String(one))),
          el("span.aside", {}, el("time", { title: words.whole(record.at) }, words.clock(record.at)))),
        typeof said === "string" && said
          ? el("div.summary", {}, rows.excerpted(said, `${record.number}.said`, this.open, opens ? 14 : 5))
          : el("p.about", {}, "It did not say what it made of what was said before. Nobody but the agent knows."),
        how && segment ? rows.details("made", `${record.number}.made`, this.open, () => [el("b", {}, "How it was seen"), ` ${made(how, record)}`], () => account(how, segment, record, seen)) : null,
        opens
          ? button([icon("fold"), isOpen ? "Fold the originals" : `Unfold what was said before, #${from}–#${number - 1}`], () => this.toggle(number), { kind: "unfold", "aria-expanded": String(isOpen) })
          : null));
  }

  toggle(number) {
    if (this.folds.has(number)) this.folds.delete(number);
    else this.folds.add(number);
    this.#arrange();
    this.windowed.stick = false;
    this.windowed.reset();
  }

  #quotes(list, sent = null) {
    const what = `${words.many(list.length, "message")} quoted word for word next to the summary`;
    return el("article.row.standing", { tabindex: -1, "aria-label": "Quotes" }, el("span.number"), el("div.said", {}, el("header.who", {}, el("span.role", {}, "quotes"), el("span.about", {}, what)), rows.details("quotes", "quotes", this.open, () => [el("b", {}, "What people said"), " ", el("span.line", {}, words.first(list.at(-1).text, 140))], () => rows.quotes(list)), sent ? rows.details("sent", "quotes.sent", this.open, () => [el("b", {}, "As it is sent")], () => rows.excerpted(sent, "quotes.sent.all", this.open, 40)) : null));
  }

  #facts(list) {
    return el("article.row.standing", { tabindex: -1, "aria-label": "Facts" }, el("span.number"), el("div.said", {}, el("header.who", {}, el("span.role", {}, "facts"), el("span.about", {}, "what the summary's model called what was said")), rows.labels(list, this.open)));
  }

  // ---------------------------------------------------------------- going somewhere

  /** Shows a record: unfolds what it is in, or gives false if this view does not have it. */
  async goTo(number) {
    if (number < 1 || number > this.known.last) return false;
    if (this.view === "model") {
      const record = await this.records.one(number);
      const fold = this.find(`fold:${number}`);
      if (fold >= 0) return this.#land(fold, `fold:${number}`);
      const shown = record && isShown(record);
      if (shown && this.sent && number >= this.known.head.cut && !this.#isSent(record)) return false;
      if (!shown && !this.#unfoldTo(number, true)) return false;
      if (shown && (hidden(number, this.known.head) || !this.#unfoldTo(number, false))) return false;
      const key = this.find(`fold:${number}`) >= 0 ? `fold:${number}` : number;
      return this.#land(this.find(key), key);
    }
    return this.#land(this.find(number), number);
  }

  #unfoldTo(number, isFold) {
    for (let i = 0; i < 10_000; i++) {
      if (this.find(isFold ? `fold:${number}` : number) >= 0) return true;
      const next = this.sections.find((s) => s.fold && !this.folds.has(s.fold.number));
      if (!next || (isFold && next.fold.number < number)) return false;
      this.folds.add(next.fold.number);
      this.#arrange();
    }
    return false;
  }

  #land(index, key) {
    if (index < 0) return false;
    this.flash = key;
    this.windowed.reset();
    this.windowed.toRow(index);
    setTimeout(() => {
      if (this.flash !== key) return;
      this.flash = null;
      this.windowed.shown.get(key)?.classList.remove("found");
    }, 2500);
    this.windowed.refreshAll();
    const element = this.windowed.shown.get(key);
    if (element) focusRow(element);
    return true;
  }
}

export function focusRow(element) {
  element.parentElement?.querySelectorAll(":scope > [tabindex='0']").forEach((row) => row.setAttribute("tabindex", "-1"));
  element.setAttribute("tabindex", "0");
  element.focus({ preventScroll: true });
}

export const hidden = (number, head) => head.hidden.some(([first, last]) => number >= first && number <= last);

const isObserved = (record) => record.kind === "segment.opened" && record.body?.source === "observed";
/** Whether the view of the model has a record: what was said, and where its agent compacted by itself. */
const isShown = (record) => record.kind === "message" || isObserved(record);

const stretch = (start, stop, mode, depth = 0) => ({ start, stop, mode, depth });
const size = (section) => (section.key ? 1 : section.stop - section.start);
const ref = (number) => el("button.ref", { type: "button", data: { jump: number } }, `#${number}`);

/** A fact of a record's body: it may be a list or an object, by the version that wrote it. */
function fact(one) {
  if (Array.isArray(one)) return { kind: String(one[0]), text: String(one[2] ?? one[1]), source: Number(one[3]) || 0 };
  return { kind: String(one?.kind ?? "fact"), text: String(one?.text ?? ""), source: Number(one?.source) || 0 };
}

function saved(segment) {
  if (!segment.tokens_before) return null;
  const share = 1 - segment.tokens_after / segment.tokens_before;
  return share > 0 ? el("span.saved", {}, `−${Math.round(share * 100)} %`) : null;
}

function made(compaction, record) {
  return [compaction.trigger, compaction.duration !== null && words.lasted(compaction.duration), record.body.by, words.money(compaction.spent.cost)].filter(Boolean).join(" · ");
}

function account(compaction, segment, record, seen = null) {
  const { spent } = compaction;
  const joined = compaction.requests - 1;
  const lines = [
    seen ? ["Seen by", seen.map(words.witness).join("; ")] : ["Tokens", `${words.count(segment.tokens_before)} before, ${words.count(segment.tokens_after)} after`],
    ["Trigger", words.trigger(compaction.trigger)],
    ["Requests", joined > 0 ? `${compaction.requests}: ${words.many(joined, "request")} joined the first one` : "1"],
    ["Attempts", `${compaction.attempts} of ${compaction.attempts_allowed}`],
    ["Holder", words.holder(compaction.holder ?? compaction.worker)],
    ["Asked for", words.whole(compaction.requested_at)],
    ["Duration", compaction.duration === null ? null : words.lasted(compaction.duration)],
    ["Summary by", seen ? null : record.body.by],
    ["Cost", seen ? null : spent.calls ? [words.many(spent.calls, "call"), `${words.tokens(spent.input_tokens)} tokens in, ${words.tokens(spent.output_tokens)} out`, words.money(spent.cost)].filter(Boolean).join(", ") : "no model was called"],
    ["Instructions", compaction.instructions],
    ["Last failure", compaction.cause],
  ];
  return el("dl.account", {}, lines.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

/** A message that no record holds as it is: it was made for this context. */
function inserted({ kind, role, text }) {
  const about = kind === "no result" ? "made for this context: this call got no result" : "made for this context: a line that says where what follows comes from";
  return el("article.row.standing.inserted", { tabindex: -1, "aria-label": "Made for this context" }, el("span.number"), el("div.said", {}, el("header.who", {}, el("span.role", {}, role), el("span.about", {}, about)), el("div.result", {}, el("pre", {}, text))));
}

function notes(list) {
  return el("article.row.standing", { tabindex: -1, "aria-label": "Notes" }, el("span.number"), el("div.said", {}, el("header.who", {}, el("span.role", {}, "notes"), el("span.about", {}, "stand in every context")), rows.facts(list.map((n) => ({ kind: n.kind, text: n.text, source: n.number })))));
}
