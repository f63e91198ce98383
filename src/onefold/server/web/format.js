// Numbers, times and records in words.

const NUMBER = new Intl.NumberFormat("en");
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const YEAR = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const count = (n) => NUMBER.format(n ?? 0);

export function many(n, one, more = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : more}`;
}

/** 950, 9.2k, 92k, 1.3M. */
export function tokens(n) {
  if (n === null || n === undefined) return "–";
  const size = Math.abs(n);
  if (size < 1000) return String(Math.round(n));
  if (size < 9950) return `${(n / 1000).toFixed(1)}k`;
  if (size < 999_500) return `${Math.round(n / 1000)}k`;
  return `${(n / 1e6).toFixed(1)}M`;
}

export function bytes(n) {
  if (n < 1000) return `${n} B`;
  if (n < 1e6) return `${Math.round(n / 1000)} kB`;
  return `${(n / 1e6).toFixed(1)} MB`;
}

export function clock(at) {
  const when = new Date(at * 1000);
  return when.toDateString() === new Date().toDateString() ? CLOCK.format(when) : `${DAY.format(when)}, ${CLOCK.format(when)}`;
}

export const hour = (at) => CLOCK.format(new Date(at * 1000));
export const whole = (at) => WHOLE.format(new Date(at * 1000));

export function day(at) {
  const when = new Date(at * 1000);
  return (when.getFullYear() === new Date().getFullYear() ? DAY : YEAR).format(when);
}

export function lasted(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.95) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 99.5) return `${Math.round(seconds)} s`;
  if (seconds < 5940) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129_600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

export function ago(at, now = Date.now() / 1000) {
  const since = now - at;
  if (since < -5) return clock(at);
  return since < 5 ? "now" : `${lasted(since)} ago`;
}

export function money(cost) {
  if (cost === null || cost === undefined) return null;
  return cost >= 0.995 ? `$${cost.toFixed(2)}` : `$${Number(cost.toPrecision(2))}`;
}

export function holder(who) {
  if (!who) return null;
  const process = who.pid ? `process ${who.pid} on ${who.host}` : who.host;
  return who.agent ? `${who.agent} (${process})` : process;
}

export function numbers(list) {
  const shown = list.slice(0, 6).map((n) => `#${n}`).join(", ");
  return list.length > 6 ? `${shown} and ${list.length - 6} more` : shown;
}

export function first(text, most = 90) {
  const line = text.slice(0, most * 4).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/** A text that may be long, up to so many letters. */
export const cut = (text, most) => (text.length > most ? `${text.slice(0, most)}…` : text);

export const TRIGGERS = {
  __proto__: null, // looked up with words from elsewhere
  manual: "a person asked",
  limit: "the limit was near",
  soft: "the soft limit was reached",
  hard: "the hard limit was reached",
  threshold: "the threshold was reached",
  overflow: "the model rejected it as too long",
  erase: "a summary was erased",
  observed: "the agent did it by itself",
};

export const trigger = (word) => (TRIGGERS[word] ? `${word}: ${TRIGGERS[word]}` : word);

export const SOURCES = {
  __proto__: null, // looked up with words from elsewhere
  created: "The session begins",
  compaction: "Compacted",
  provider: "The provider compacted",
  masked: "Old tool results masked",
  restored: "Went back",
  forked: "The fork begins here",
  erased: "Content was erased",
  kept: "The keeper changed",
  observed: "The agent compacted by itself",
};

const WITNESSES = {
  __proto__: null, // looked up with words from elsewhere
  acp: "the protocol's own word",
  "hermes.meta": "Hermes' metadata",
  "hermes.stderr": "a line of Hermes' log",
  "qwen.meta": "Qwen's metadata",
  "vibe.meta": "Vibe's metadata",
  "vibe.tool": "Vibe's tool call",
  "qwen.text": "Qwen's answer to the command",
  text: "what it said, a guess",
  usage: "its usage fell, a guess",
  "usage.meta": "the tokens of its turns fell, a guess",
};

/** Who noticed that an agent compacted by itself. */
export const witness = (word) => (WITNESSES[word] ? `${word}: ${WITNESSES[word]}` : String(word));

const by = (record) => (record.actor ? ` by ${record.actor}` : "");

/** One record that is not a message, in a sentence. A body that does not fit its kind is shown as it is. */
export function sentence(record) {
  const body = record.body ?? {};
  const tell = SENTENCES[record.kind];
  try {
    if (tell) return tell(record, body);
  } catch {
    // Falls through: reading never fails.
  }
  return `${record.kind} ${first(JSON.stringify(record.body) ?? "", 300)}`;
}

const SENTENCES = {
  __proto__: null, // looked up with words from elsewhere
  "input.queued": (r) => `Input waits: ${first(r.text ?? "", 160)}`,
  "input.taken": (r, b) => (b.erased ? `Input #${b.input} had been erased` : b.unqueued ? `Input #${b.input} was taken back${by(r)}` : `Input #${b.input} was taken`),
  "turn.started": (r, b) => `Turn begins${b.owner ? `, by ${b.owner}` : ""}`,
  "turn.settled": (r, b) => `Turn ${b.outcome}${b.cause ? `: ${b.cause}` : ""}`,
  "segment.opened": (r, b) => opened(b),
  "compaction.requested": (r, b) => `Compaction asked for${by(r)}, ${b.trigger}${b.instructions ? `: “${first(b.instructions, 160)}”` : ""}`,
  "compaction.joined": (r, b) => `One more request joined it${by(r)}, ${b.trigger}`,
  "compaction.started": (r, b) => `Attempt begins: ${holder(b.holder)}`,
  "compaction.failed": (r, b) => `Attempt ${b.attempt} failed: ${b.cause}${b.final ? ". Given up" : `. Tried again after ${lasted(b.retry_after)}`}`,
  "compaction.committed": (r, b) => `Compaction committed: segment ${b.segment}`,
  "compaction.cancelled": (r) => `Compaction cancelled${by(r)}`,
  "summary.drafted": (r, b) => `A new summary was drafted${b.by ? `, by ${b.by}` : ""}${by(r)}${b.refusal ? `, and rejected: ${b.refusal}` : ""}`,
  "compaction.superseded": (r, b) => `Compaction superseded: ${b.cause}`,
  "pin.added": (r, b) => `${b.slot ? "System prompt" : "Pinned"} ${numbers(b.numbers)}${by(r)}`,
  "pin.removed": (r, b) => `Unpinned ${numbers(b.numbers)}${by(r)}`,
  note: (r, b) => (b.text ? `Note, ${b.kind}: ${b.text}` : `Note taken away: ${b.kind} ${b.key ?? ""}`),
  fork: (r, b) => `Fork (${b.kind}) of ${b.parent} at #${b.at}`,
  alias: (r, b) => `Also known as ${b.alias}`,
  healed: (r, b) => `Derived rows were repaired: ${b.findings.map((f) => f.what).join(", ")}`,
  erased: (r, b) => (b.numbers ? `Erased ${numbers(b.numbers)}${by(r)}` : "Erased"),
  "agent.started": (r, b) => `The agent ${b.agent} runs${HOW[b.how] ?? `, ${b.how}`}: process ${b.pid}`,
  "agent.ended": (r, b) => `The agent ended: ${b.cause}`,
  "question.asked": (r, b) => `The agent asks: ${asked(b)}`,
  "question.settled": (r, b) => `The question was ${b.outcome}${by(r)}${settled(b.answer)}`,
};

const HOW = {
  __proto__: null, // looked up with words from elsewhere
  new: ", with a new session of its own",
  resume: " and has taken its session up again",
  load: " and has loaded its session",
  handover: " again; the next prompt tells it what was said",
};

function asked(body) {
  const { toolCall, options } = body.params ?? {};
  if (!Array.isArray(options)) return body.method;
  return `${first(String(toolCall?.title ?? "may it go on?"), 160)} (${options.map((one) => one.name).join(", ")})`;
}

function settled(answer) {
  if (answer?.error) return `: ${answer.error.message}`;
  const chosen = answer?.result?.outcome;
  const option = chosen?.optionId ?? chosen?.outcome;
  return option ? `: ${option}` : "";
}

function opened(body) {
  if (body.source === "restored") {
    if (body.unfolds?.length) return `Unfolded: compaction ${numbers(body.unfolds)} taken back`;
    if (body.refolds?.length) return `Folded again: compaction ${numbers(body.refolds)} in force again`;
    const range = (body.hidden ?? []).map(([a, b]) => (a === b ? `#${a}` : `#${a}–#${b}`)).join(", ");
    return body.redo ? `Undone: ${range} hidden` : "Redone: what was undone is back";
  }
  if (body.source === "provider") return `A compaction that ${body.adopts.origin.provider} made is adopted: ${tokens(body.tokens_before)} → ${tokens(body.tokens_after)} tok`;
  if (body.source === "masked") return `${many((body.masks ?? []).length, "tool result")} shown as one line each: ${tokens(body.tokens_before)} → ${tokens(body.tokens_after)} tok`;
  if (body.source === "kept") return `From here on, kept by ${body.keeper === "agent" ? "its agent" : "onefold"}`;
  return SOURCES[body.source] ?? body.source;
}
