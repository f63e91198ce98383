// What a person can do to a session. Each first says what it will do, in words, and then does it.

import { get, post, save } from "./api.js";
import { ask, tell } from "./dialogs.js";
import { el } from "./dom.js";
import * as words from "./format.js";

const quote = (text) => el("blockquote", {}, words.first(text, 240));

/** Who could write a summary, with about what that costs, the usual one first; the fields to choose one, if there are several. */
async function writers(known, priced = true) {
  const { summarizers, needless } = await get("summarizers", { session: known.session.id });
  // What the estimate is of is the next compaction, and not what the newest summary was made of.
  if (!priced) for (const one of summarizers) one.input_tokens = null;
  const [usual] = summarizers;
  if (summarizers.length < 2) return { needless, says: el("p", {}, "It is written by ", written(usual)), fields: [] };
  const options = summarizers.map((one, i) => el("label.option", {}, el("input", { type: "radio", name: "summarizer", value: one.name ?? "", checked: i === 0 }), el("span", {}, one.name ? `${one.name}: ` : "", written(one))));
  return { needless, says: null, fields: [el("fieldset", {}, el("legend", {}, "Written by"), options)] };
}

function written({ by, asks_model: asks, input_tokens: read, output_tokens: most, cost: paid, instead }) {
  const about = asks === false ? "without a model: the beginnings of what was said. It costs nothing"
    : !asks ? "a function of the program that runs this server: what it costs is not known"
    : read === null ? "" : [`about ${words.tokens(read)} tokens in and up to ${words.tokens(most)} out`, paid === null ? "at a price that nobody named" : `about ${words.money(paid)}`].join(", ");
  return [el("b", {}, by), about ? `, ${about}` : "", instead.length ? `. If that fails: ${instead.join(", then ")}.` : "."];
}

const chosen = (form) => (form.get("summarizer") ? { summarizer: form.get("summarizer") } : {});

/** `known` is what the page shows now: nobody takes back what they have not seen. */
export async function compact(known) {
  const { session, head, compaction } = known;
  const inView = session.last - head.cut + 1;
  const byAgent = head.keeper === "agent";
  let by = null;
  try {
    by = byAgent || compaction.open ? null : await writers(known);
  } catch (error) {
    return tell([error.message, error.remedy].filter(Boolean).join(" · "), true);
  }
  const says = compaction.open
    ? [`A compaction is under way already, asked for ${words.ago(compaction.open.requested_at)}. Your request joins it: one summary is made, once.`]
    : byAgent
    ? [`The agent ${known.agent.name} is asked to compact by itself, once, whoever else asks too. What it keeps it decides, and what that costs it pays with its own model; nothing is deleted here.`]
    : [
        `A summary replaces most of the ${words.many(inView, "record")} since #${head.cut}: ${words.tokens(session.tokens)} tokens now, far fewer after it. The newest messages stay word for word.`,
        by.needless ? `Nothing would be made of it now: ${by.needless}.` : by.says,
        "Nothing is deleted. The originals stay under the fold, the agent may go on meanwhile, and undo crosses it.",
      ];
  return ask({
    title: "Compact this session",
    says,
    fields: [
      ...(by?.needless ? [] : by?.fields ?? []),
      compaction.open ? null : el("label.field", {}, el("span", {}, "Instructions for the summary, if you have any"), el("textarea", { name: "instructions", rows: 3, placeholder: "Keep the names of all migrations." })),
    ].filter(Boolean),
    label: compaction.open ? "Join it" : "Compact",
    act: async (form) => {
      const instructions = String(form.get("instructions") ?? "").trim();
      return outcome(await post("compact", { session: session.id }, { head: head.number, ...(instructions ? { instructions } : {}), ...chosen(form) }));
    },
  });
}

function outcome(done) {
  if (done.applied) return "Compacted.";
  if (done.joined) return "Your request joined the compaction under way.";
  if (done.state === "requested" || done.state === "running") return "The compaction has begun.";
  return `${done.state}${done.cause ? `: ${done.cause}` : ""}`;
}

export function cancel(session, compaction) {
  const who = words.holder(compaction.holder ?? compaction.worker);
  ask({
    title: "Cancel the compaction",
    says: [
      compaction.active ? `It ends for everybody, also for ${who}, who works on it now. What that has cost is spent.` : "It ends before anybody has finished it.",
      compaction.requests > 1 ? `${words.many(compaction.requests, "request")} wait for it; all of them are told.` : null,
      "The context stays as it is. A compaction can be asked for again at any time.",
    ],
    label: "Cancel the compaction",
    danger: true,
    act: async () => {
      const { cancelled } = await post("cancel", { session });
      return cancelled ? "Cancelled." : "There was nothing to cancel any more: it was over before.";
    },
  });
}

/** What an agent's end does to what goes on. */
const ends = ({ turn, queue, questions, compaction }, waits) => [
  turn ? `The turn that runs${turn.owner ? `, for ${turn.owner},` : ""} is interrupted. What was said so far is kept.` : "No turn runs now.",
  questions.length ? "What the agent asks is withdrawn." : null,
  compaction.active ? "The compaction that it is at has failed, and can be asked for again." : null,
  queue.length ? `${words.many(queue.length, "prompt")} that ${queue.length === 1 ? "waits is" : "wait are"} kept, and ${queue.length === 1 ? "runs" : "run"} ${waits}.` : null,
];

export function restart(known) {
  const { session, agent } = known;
  ask({
    title: `Restart ${agent.name}`,
    says: [
      "Its process is ended, with all that it started, whatever it does now: it is asked to end, and killed after five seconds. Another one takes the session up.",
      ...ends(known, "with the next one"),
    ],
    label: "Restart",
    danger: true,
    act: async () => (await post("restart", { session: session.id }), `${agent.name} is restarted.`),
  });
}

export function close(known) {
  const { session, agent } = known;
  ask({
    title: `Close the room of ${agent.name}`,
    says: [
      "The agent's process is ended, with all that it started. The session stays as it is, and the next prompt takes it up again, whoever writes it.",
      ...ends(known, "then"),
    ],
    label: "Close",
    danger: true,
    act: async () => ((await post("close", { session: session.id })).closed ? "The room is closed." : "It was closed before."),
  });
}

/** What a person is told before a compaction is taken back: above all what it costs. */
export async function unfold(known, segment) {
  const query = { session: known.session.id };
  const what = { head: known.head.number, segment };
  try {
    const { segment: would, limit } = await post("unfold", query, { ...what, dry_run: true });
    const later = would.unfolds.length - 1;
    ask({
      title: "Take this compaction back",
      says: [
        el("p", {}, "The model sees again what the summary stands for, word for word: ", el("b", {}, cost(would)), limit ? `, of ${words.tokens(limit)} that it is sent at most.` : "."),
        later > 0 ? `${words.many(later, "later compaction")} made of this summary ${later === 1 ? "is" : "are"} taken back with it.` : null,
        "What was said since stays, and what was undone stays hidden. Undo goes to the summary again.",
        known.compaction.open ? "The compaction that is under way is given up." : null,
        "From here on it is compacted only when it is full, or when somebody asks.",
      ],
      label: "Take the compaction back",
      act: async () => (await post("unfold", query, what), "Taken back. Undo goes to the summary again."),
    });
  } catch (error) {
    tell([error.message, error.remedy].filter(Boolean).join(" · "), true);
  }
}

/** The summary in force written once more: first a draft is made and paid for, then a person compares. */
export async function summarise(known) {
  const query = { session: known.session.id };
  let dialog;
  let by;
  try {
    by = await writers(known, false);
  } catch (error) {
    tell([error.message, error.remedy].filter(Boolean).join(" · "), true);
    return;
  }
  dialog = ask({
    title: "Summarise again",
    says: [
      by.says,
      "The newest summary is drafted again, from the same messages. You see both side by side, and then decide.",
      "What it costs is spent either way. No message moves, and the agent may go on meanwhile.",
    ],
    fields: [...by.fields, el("label.field", {}, el("span", {}, "Instructions for the summary, if you have any"), el("textarea", { name: "instructions", rows: 3, placeholder: "Keep the names of all migrations." }))],
    label: "Write a draft",
    busy: "Writing…",
    act: async (form) => {
      const instructions = String(form.get("instructions") ?? "").trim();
      const draft = await post("drafts", query, { head: known.head.number, ...(instructions ? { instructions } : {}), ...chosen(form) });
      if (dialog.open) compare(query, draft);
    },
  });
}

function compare(query, draft) {
  const [present, text] = [draft.present ?? "", draft.text ?? ""];
  const { calls, input_tokens: read, output_tokens: written, cost: paid } = draft.spent;
  ask({
    title: "The present summary, and the draft",
    wide: true,
    says: [
      el("div.beside", {},
        el("section", {}, el("h3", {}, `Present, ${words.tokens(draft.tokens_before)} tok`), marked(present, text)),
        el("section", {}, el("h3", {}, `Draft${draft.by ? ` by ${draft.by}` : ""}, ${words.tokens(draft.tokens_after)} tok`), marked(text, present)),
      ),
      draft.loses.length ? el("p", {}, el("b", {}, "Only in the present one: "), draft.loses.join(", ")) : null,
      draft.gains.length ? el("p", {}, el("b", {}, "Only in the draft: "), draft.gains.join(", ")) : null,
      calls ? `It cost ${words.many(calls, "call")}, ${words.tokens(read)} tokens in and ${words.tokens(written)} out${paid === null ? "" : `, ${paid}`}.` : draft.by === "extract" ? "No model was asked." : null,
      "Taken, it is the summary from here on; the fold has a way back to the present one.",
    ],
    label: "Take the draft",
    no: "Throw it away",
    act: async () => (await post("drafts/take", query, { draft: draft.draft }), "The new summary is in force."),
  });
}

const WORD = /[\p{L}\p{N}_]+/gu;

/** A text with those words marked that another one has not. */
function marked(text, other) {
  const there = new Set(other.toLowerCase().match(WORD) ?? []);
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(WORD)) {
    if (there.has(found[0].toLowerCase())) continue;
    parts.push(text.slice(at, found.index), el("mark", {}, found[0]));
    at = found.index + found[0].length;
  }
  return el("p.words", {}, parts, text.slice(at));
}

const cost = ({ tokens_before: before, tokens_after: after }) => `${words.tokens(before)} → ${words.tokens(after)} tokens`;

export async function undo(known) {
  if (known.head.unfolds?.length && known.last === known.head.number) {
    return back(known, "undo", {
      title: "Undo",
      label: "Fold it again",
      says: (_, segment) => [`Nothing was said since a compaction was taken back: it is in force again, and no message is hidden. ${cost(segment)}.`],
      done: "The summary is in force again. Redo takes it back.",
    });
  }
  await back(known, "undo", {
    title: "Undo",
    label: "Take it back",
    says: (changed) => [
      el("p", {}, `Takes the user's newest message back, with all that came of it: ${words.many(changed.length, "message")}, from #${changed[0]?.number}.`),
      changed[0] && quote(changed[0].text ?? ""),
      "The model no longer sees them, and no summary knows of them. Nothing is deleted: Redo restores them, as long as nothing new was said.",
      known.compaction.open ? "The compaction that is under way is given up." : null,
      known.turn ? "The turn that is open is cancelled." : null,
    ],
    done: "Undone. Redo restores it.",
  });
}

export async function redo(known) {
  await back(known, "redo", {
    title: "Redo",
    label: "Restore",
    says: (changed, segment) => segment.unfolds.length ? [`Takes the compaction back again: ${cost(segment)}.`] : [el("p", {}, `Restores what was undone: ${words.many(changed.length, "message")}, from #${changed[0]?.number}. The model sees them again.`), changed[0] && quote(changed[0].text ?? "")],
    done: "It is back.",
  });
}

async function back(known, path, { title, label, says, done }) {
  const seen = { seen: known.last, head: known.head.number };
  const query = { session: known.session.id };
  try {
    const { changed, segment } = await post(path, query, { ...seen, dry_run: true });
    ask({ title, says: says(changed, segment), label, act: async () => (await post(path, query, seen), done) });
  } catch (error) {
    tell([error.message, error.remedy].filter(Boolean).join(" · "), true);
  }
}

const KINDS = [
  ["branch", "Branch", "lives on its own from there, and compacts by itself."],
  ["subagent", "Subagent", "the same, and is marked as somebody's helper."],
  ["review", "Review", "is for looking: it never compacts."],
];

export function fork(known, at, go) {
  ask({
    title: at ? `Fork from #${at}` : "Fork this session",
    says: [
      `Makes a new session whose past is this one's${at ? `, up to #${at}` : " up to now"}. Nothing is copied, and neither writes into the other. If a tool call would be parted from its result, the fork begins before the call.`,
    ],
    fields: [
      el("fieldset", {}, el("legend", {}, "Kind"), KINDS.map(([value, name, about], i) => el("label.option", {}, el("input", { type: "radio", name: "kind", value, checked: i === 0 }), el("span", {}, el("b", {}, name), ` ${about}`)))),
      el("label.field", {}, el("span", {}, "Its id; one is made up if you leave this empty"), el("input", { name: "id", maxlength: 512, autocomplete: "off", spellcheck: "false" })),
    ],
    label: "Fork",
    act: async (form) => {
      const id = String(form.get("id") ?? "").trim();
      const made = await post("fork", { session: known.session.id }, { kind: form.get("kind"), ...(at ? { at } : {}), ...(id ? { id } : {}) });
      go(made.id);
      return `This is the fork, from #${made.at}.`;
    },
  });
}

export function pin(known, record, pinned) {
  const size = record.header?.tokens ?? 0;
  const group = (record.header?.opens?.length ?? 0) + (record.header?.closes?.length ?? 0) > 0;
  const query = { session: known.session.id };
  if (pinned) {
    ask({
      title: `Unpin #${record.number}`,
      says: ["It no longer stays word for word once it is compacted. Nothing is lost by that: it was summarised like the rest."],
      label: "Unpin",
      act: async () => `Unpinned ${words.numbers((await post("unpin", query, { number: record.number })).numbers)}.`,
    });
    return;
  }
  ask({
    title: `Pin #${record.number}`,
    says: [
      quote(record.text ?? ""),
      `It stays in every context from here on, word for word${group ? ", together with the calls and results that belong to it" : ""}, whatever is compacted: about ${words.tokens(size)} tokens${group ? " or more" : ""} in every request.`,
    ],
    label: "Pin",
    act: async () => `Pinned ${words.numbers((await post("pin", query, { number: record.number })).numbers)}.`,
  });
}

export function exported(known) {
  const { session } = known;
  ask({
    title: "Export this session",
    says: [
      `Downloads all ${words.many(session.last, "record")} as JSON lines, as onefold export writes them${session.parent ? ", with the session it is a fork of" : ""}. onefold import takes them in again.`,
      "It holds everything that was said, also what was undone; look through it before you pass it on.",
    ],
    label: "Download",
    act: async () => {
      await save("export", { session: session.id }, "session.jsonl");
      return "It is downloaded.";
    },
  });
}

export function repair(findings, done) {
  ask({
    title: "Repair derived data",
    says: [
      `Rebuilds ${words.many(findings, "row")} from the journal, and records in each session what was found. The journal itself is not changed.`,
      "Fatal findings stay as they are: restore a backup for those.",
    ],
    label: "Repair",
    act: async () => {
      done(await post("verify", {}, { fix: true }));
      return "Repaired.";
    },
  });
}
