// How one record looks: who speaks, what is said, calls and results compactly. Everything long is folded.

import { el, icon, put } from "./dom.js";
import { parts } from "./message_parts.js";
import * as words from "./format.js";

const LINES = 14;
const LETTERS = 1800;
const MORE = 200_000; // letters that one click shows at most

export const ROLES = { __proto__: null, user: "user", assistant: "assistant", agent: "assistant", tool: "tool", function: "tool", call: "assistant", reasoning: "assistant", system: "system", developer: "system" };

/** A row for a record: message or event. `marks` says what is known about it: pinned, hidden, depth. */
export function row(record, marks, open) {
  if (record.kind === "message") return message(record, marks, open);
  return event(record, marks);
}

export function waiting(number) {
  return el("article.row.waits", { tabindex: -1, data: { number, waits: "" }, "aria-busy": "true" }, gutter(number), el("div.said", {}, el("span.ghost")));
}

export function nothing(number) {
  return el("article.row.none", { data: { number }, "aria-hidden": "true" });
}

function gutter(number) {
  return el("span.number", { "aria-hidden": "true" }, number ? `#${number}` : "");
}

function message(record, marks, open) {
  const role = record.header?.role ?? "other";
  const tone = ROLES[role] ?? "other";
  const said = parts(record);
  const quiet = said.every((part) => part.kind === "result" || part.kind === "call");
  return el(
    `article.row.message.${tone}${marks.pinned ? ".pinned" : ""}${marks.hidden ? ".hidden" : ""}${quiet ? ".quiet" : ""}${tone === "tool" ? ".gives" : ""}`,
    {
      tabindex: -1,
      data: { number: record.number, depth: marks.depth ?? 0 },
      "aria-label": `${marks.hidden ? "Undone, " : ""}${role} ${record.number}`,
    },
    gutter(record.number),
    el("div.said", {},
      el("header.who", {},
        el("span.role", {}, role),
        record.actor && el("span.actor", {}, record.actor),
        marks.pinned && el("span.tag.accent", { title: "Stays in every context, word for word" }, icon("pin"), "pinned"),
        marks.kept && el("span.tag", { title: "Kept word for word by the compaction" }, "kept"),
        marks.masked && el("span.tag", { title: "The model sees one line in its place, and can read it again by its number" }, "masked"),
        marks.provided && el("span.tag", { title: "Came back with a compaction that the provider made: no other model sees it" }, "provider's"),
        marks.hidden && el("span.tag", { title: "Taken back by an undo: the model does not see it" }, "undone"),
        el("span.aside", {},
          el("span.tokens", { title: "Estimated size" }, `${words.tokens(record.header?.tokens)} tok`),
          el("time", { title: words.whole(record.at) }, words.clock(record.at)),
        ),
        el("button.icon.menu", { type: "button", "aria-label": `Actions for record ${record.number}`, "aria-haspopup": "menu", data: { menu: record.number } }, icon("more")),
      ),
      marks.instead ? el("div.result", {}, put(el("pre"), marks.instead)) : null,
      said.map((part, i) => (marks.masked && part.kind === "result" ? folded("masked", marks.instead ? "The result itself" : "Result", part.text, `${record.number}.${i}`, open) : PARTS[part.kind](part, `${record.number}.${i}`, open))),
    ),
  );
}

const PARTS = {
  text: (part, key, open) => long(el("div.text"), part.text, key, open, prose),
  thought: (part, key, open) => folded("thought", "Thought", part.text, key, open),
  call: (part, key, open) => call(part, key, open),
  result: (part, key, open) => long(el(`div.result${part.failed ? ".failed" : ""}`), part.text || "(nothing)", key, open, plain, 4),
  media: (part) => el("div.media", {}, `[${part.text}]`),
};

function call(part, key, open) {
  const line = words.first(part.text, 220);
  const short = line === part.text.trim();
  if (short) return el("div.call", {}, el("b", {}, part.name), " ", el("code", {}, part.text.trim()));
  return details("call", key, open, () => [el("b", {}, part.name), " ", el("code.line", {}, line)], () => long(el("div.result"), part.text, `${key}.all`, open, plain, 40));
}

function folded(kind, title, text, key, open) {
  return details(kind, key, open, () => [el("b", {}, title), " ", el("span.line", {}, words.first(text, 140))], () => long(el("div.text"), text, `${key}.all`, open, plain));
}

/** A fold of the browser's own kind, whose inside is made when it is opened, and which stays open while rows come and go. */
export function details(kind, key, open, head, inside) {
  const made = el(`details.${kind}`, { open: open.has(key) }, el("summary", {}, ...head()));
  let there = false;
  const fill = () => {
    if (made.open && !there) {
      there = true;
      made.append(...[inside()].flat());
    }
    if (made.open) open.set(key, true);
    else open.delete(key);
  };
  fill();
  made.addEventListener("toggle", fill);
  return made;
}

/** Text of which the beginning is shown; the rest on demand, in pieces that a browser can bear. */
function long(node, text, key, open, show, lines = LINES) {
  const shown = open.get(key) ?? 0;
  const most = shown || cut(text, lines);
  show(node, text.slice(0, most));
  if (most >= text.length) {
    if (shown) node.append(more("Show less", key, () => open.delete(key)));
    return node;
  }
  const rest = text.length - most;
  const what = rest > 2000 ? words.bytes(rest) : words.many(text.slice(most).split("\n").length, "line");
  node.append(more(`Show ${rest > MORE ? `${words.bytes(MORE)} of ` : ""}${what} more`, key, () => open.set(key, Math.min(text.length, most + MORE))));
  return node;
}

function more(label, key, act) {
  return el("button.more", { type: "button", onclick: (event) => {
    act();
    event.target.dispatchEvent(new CustomEvent("redraw", { bubbles: true }));
  } }, label);
}

/** Where a long text is cut: after so many lines, or so many letters. All of it if little would be left. */
function cut(text, lines) {
  let at = -1;
  const most = (LETTERS * lines) / LINES;
  for (let i = 0; i < lines; i++) {
    at = text.indexOf("\n", at + 1);
    if (at < 0 || at > most) break;
  }
  const end = at < 0 ? most : Math.min(at, most);
  if (text.length <= end * 1.25 && (at < 0 || text.indexOf("\n", text.indexOf("\n", at + 1) + 1) < 0)) return text.length;
  return Math.floor(end);
}

export function plain(node, text) {
  node.append(put(el("pre"), text));
}

/** Paragraphs; what stands between fences or in backticks as code, what is in stars strong. Nothing else is read into it. */
export function prose(node, text) {
  text.split(/^[ \t]*```[^\n]*\n?/m).forEach((piece, i) => {
    if (i % 2) plain(node, piece.replace(/\n$/, ""));
    else for (const one of piece.split(/\n[ \t]*\n\s*/)) if (one.trim()) node.append(paragraph(one.replace(/^\n+|\s+$/g, "")));
  });
}

function paragraph(text) {
  const made = el("p");
  text.split(/(`[^`\n]{1,200}`|\*\*[^*\n]{1,200}\*\*)/).forEach((piece, i) => {
    if (i % 2 === 0) put(made, piece);
    else if (piece[0] === "`") made.append(put(el("code"), piece.slice(1, -1)));
    else made.append(put(el("strong"), piece.slice(2, -2)));
  });
  return made;
}

const TONES = { __proto__: null, "compaction.failed": "bad", healed: "warn", "agent.ended": "warn", "question.asked": "note", "question.settled": "note", erased: "warn", note: "note", "pin.added": "note", "pin.removed": "note" };

function event(record, marks) {
  const tone = TONES[record.kind] ?? "";
  return el(`article.row.event${tone ? `.${tone}` : ""}${marks.hidden ? ".hidden" : ""}`, { tabindex: -1, data: { number: record.number, depth: marks.depth ?? 0 }, "aria-label": `Event ${record.number}` },
    gutter(record.number),
    el("p.said", {}, el("span", {}, words.sentence(record)), el("time", { title: words.whole(record.at) }, words.clock(record.at))),
  );
}

/** A message that is being said: its end, as far as it has come. */
export function saying(piece) {
  const thought = piece.kind === "agent_thought_chunk";
  const text = piece.text.length > LETTERS * 2 ? `…${piece.text.slice(-LETTERS * 2)}` : piece.text;
  const said = el(`div.text${thought ? ".thinks" : ""}`);
  prose(said, text);
  return el("article.row.message.assistant", { data: { depth: 0 } }, gutter(0), el("div.said", {}, el("header.who", {}, el("span.role", {}, thought ? "thinks" : "agent"), el("span.dots", { "aria-label": "being said" }, "…")), said));
}

/** Facts by kind, in the order in which they come: what must not be forgotten first. */
export function facts(list) {
  if (!list.length) return null;
  const kinds = Map.groupBy ? Map.groupBy(list, (f) => f.kind) : grouped(list);
  return el("dl.facts", {}, [...kinds].map(([kind, of]) => [el("dt", {}, kind), of.map((f) => el(`dd${f.until ? ".over" : ""}`, {}, f.text, f.source ? jump(f.source) : null, f.until ? [" ended by ", jump(f.until)] : null))]));
}

/** What a model called words. Identifiers, which may be many, are folded together. */
export function labels(list, open) {
  const named = list.filter((f) => f.kind === "identifier");
  return [
    facts(list.filter((f) => f.kind !== "identifier")),
    named.length ? details("identifiers", "labels.identifiers", open, () => [el("b", {}, words.many(named.length, "identifier"))], () => facts(named)) : null,
  ];
}

function jump(number) {
  return el("button.ref", { type: "button", data: { jump: number } }, `#${number}`);
}

/** What people said, each with a way to its message. */
export function quotes(list) {
  return el("dl.facts.quotes", {}, list.map((q) => [
    el("dt", {}, q.who === "person" ? "said" : q.who, q.kinds.map((kind) => el("span.tag", {}, kind))),
    el("dd", {}, q.text || `a message of ${q.size} characters, which is not quoted`, el("button.ref", { type: "button", data: { jump: q.number } }, `#${q.number}`)),
  ]));
}

function grouped(list) {
  const kinds = new Map();
  for (const one of list) kinds.set(one.kind, [...(kinds.get(one.kind) ?? []), one]);
  return kinds;
}

/** A long text, as a message's, for other places. */
export function excerpted(text, key, open, lines = LINES) {
  return long(el("div.text"), text, key, open, prose, lines);
}
