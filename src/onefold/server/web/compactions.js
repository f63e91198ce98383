// Compactions of all sessions: those that run, those that wait, those that failed, and what was done.

import * as actions from "./actions.js";
import { get, learnScopes, Live, may } from "./api.js";
import { trouble } from "./dialogs.js";
import { after, button, el, replace } from "./dom.js";
import { empty, sessionLink } from "./components.js";
import * as words from "./format.js";

const GROUPS = [
  ["Running", (c) => c.active, "Somebody works on these now."],
  ["Waiting", (c) => !c.active && (c.state === "requested" || c.state === "running"), "Asked for, and nobody works on them: they wait for a worker, for the time of the next try, or for a silent worker to be given up."],
  ["Failed", (c) => c.state === "failed", "All attempts are over. The context is as it was."],
  ["Done", (c) => !["failed", "requested", "running"].includes(c.state), ""],
];

export class Compactions {
  constructor(main, { live }) {
    this.body = el("div");
    replace(main, el("section.view.list", { "aria-label": "Compactions" }, el("div.bar", {}, el("h1", {}, "Compactions")), this.body));
    this.soon = after(250, () => this.load());
    this.live = new Live({ record: (record) => /^(compaction|segment|gone)/.test(record.kind) && this.soon(), state: (now) => {
      live(now);
      if (now === "live") this.soon();
    } });
    this.seconds = 0;
    this.clock = setInterval(() => this.#tick(), 1000);
    this.load();
  }

  stop() {
    this.live.stop();
    this.soon.stop();
    clearInterval(this.clock);
    this.stopped = true;
  }

  async load() {
    try {
      const [{ compactions }, failed] = await Promise.all([get("compactions", { state: "all", limit: 200 }), get("compactions", { state: "failed", limit: 100 }), learnScopes()]);
      if (this.stopped) return;
      const seen = new Set(compactions.map((c) => c.id));
      this.all = [...compactions, ...failed.compactions.filter((c) => !seen.has(c.id))];
      this.#draw();
    } catch (error) {
      if (!this.stopped) replace(this.body, trouble(error, () => this.load()));
    }
  }

  /** Times go on; and a worker that falls silent writes nothing, so it has to be looked for. */
  #tick() {
    if (!this.all?.some((c) => c.active || c.not_before)) return;
    this.seconds += 1;
    if (this.seconds % 10) this.#draw();
    else this.load();
  }

  #draw() {
    if (this.body.contains(document.activeElement) && document.activeElement.matches("button")) return;
    const focused = document.activeElement?.dataset?.compaction;
    replace(this.body, this.all.length ? GROUPS.map(([name, fits, about]) => group(name, this.all.filter(fits), about)) : empty("No compactions yet", "As soon as a session is compacted, it is here: by whom, why, how long it took, what it cost."));
    if (focused) [...this.body.querySelectorAll("[data-compaction]")].find((one) => one.dataset.compaction === focused)?.focus({ preventScroll: true });
  }

  key(event) {
    const all = [...this.body.querySelectorAll(".compaction > a")];
    return walk(event, all);
  }
}

export function walk(event, all) {
  const at = all.indexOf(document.activeElement);
  const next = event.key === "j" ? all[at + 1] : event.key === "k" ? all[at < 0 ? all.length - 1 : at - 1] : null;
  if (event.key !== "j" && event.key !== "k") return false;
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
  return true;
}

function group(name, list, about) {
  if (!list.length && name !== "Running") return null;
  return el(`section.group.${name.toLowerCase()}`, {}, el("h2", {}, name, el("span.total", {}, list.length)), list.length && about ? el("p.about", {}, about) : null, list.length ? list.map(line) : el("p.about", {}, "Nothing runs now."));
}

function line(one) {
  const now = Date.now() / 1000;
  const who = words.holder(one.holder ?? one.worker);
  const open = one.state === "requested" || one.state === "running";
  const facts = [
    words.trigger(one.trigger),
    one.requests > 1 ? `${one.requests} requests` : null,
    one.attempts ? `attempt ${one.attempts} of ${one.attempts_allowed}` : "no attempt yet",
    who,
    one.active ? `for ${words.lasted(now - (one.started_at ?? one.requested_at))}` : one.duration !== null ? words.lasted(one.duration) : null,
    open && one.not_before > now ? `next try in ${words.lasted(one.not_before - now)}` : null,
    one.spent.calls ? [`${words.tokens(one.spent.input_tokens)} in, ${words.tokens(one.spent.output_tokens)} out`, words.money(one.spent.cost)].filter(Boolean).join(", ") : null,
  ];
  return el(`div.compaction.${one.active ? "running" : one.state}`, {},
    el("a", { href: sessionLink(one.session, one.segment ? { view: "all", at: one.segment } : one.fence ? { view: "all", at: one.fence } : {}), data: { compaction: one.id } },
      el("span.head", {}, el("span.state", {}, one.active ? "running" : open ? "waiting" : one.state), el("span.id", {}, one.session), el("time", { title: words.whole(one.requested_at) }, words.ago(one.requested_at))),
      el("span.how", {}, facts.filter(Boolean).join(" · ")),
      one.cause && el("span.cause", {}, one.cause),
      one.instructions && el("span.how", {}, `“${words.first(one.instructions, 200)}”`)),
    open && may("compact") ? button("Cancel…", () => actions.cancel(one.session, one)) : null);
}
