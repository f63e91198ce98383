// The list of sessions: those with problems first, then by their latest activity. Live, and filtered as one types.

import { get, Live } from "./api.js";
import { trouble } from "./dialogs.js";
import { after, el, replace } from "./dom.js";
import { empty, fullness, sessionLink, state } from "./components.js";
import * as words from "./format.js";

const PAGE = 100;

export class Sessions {
  constructor(main, { live, query, remember }) {
    Object.assign(this, { main, remember });
    this.rows = new Map(); // id -> { element, shown }
    this.next = null;
    this.shown = 0;
    this.asked = null;
    this.filter = el("input.filter", { type: "search", placeholder: "Filter by id or title", "aria-label": "Filter sessions", autocomplete: "off", spellcheck: "false", id: "filter" });
    this.filter.value = query.get("q") ?? "";
    this.total = el("span.total", { role: "status" });
    this.list = el("div.sessions", { role: "list", "aria-label": "Sessions" });
    this.more = el("div.sentinel");
    this.note = el("div");
    this.element = el("section.view.list", { "aria-label": "Sessions" },
      el("div.bar", {}, el("h1", {}, "Sessions"), this.total, this.filter),
      el("div.columns", { "aria-hidden": "true" }, ["Session", "State", "Context", "Compactions", "Last activity"].map((name) => el("span", {}, name))),
      this.list, this.note, this.more);
    replace(main, this.element);
    this.filter.addEventListener("input", after(120, () => {
      this.remember({ q: this.filter.value });
      this.load();
    }));
    this.element.addEventListener("focusin", (event) => this.#choose(event.target.closest(".session")));
    this.watch = new IntersectionObserver(([entry]) => entry.isIntersecting && this.next && this.load(true), { root: main, rootMargin: "600px" });
    this.watch.observe(this.more);
    this.changed = after(250, () => this.load());
    this.live = new Live({ record: () => this.changed(), state: (now) => {
      live(now);
      if (now === "live") this.changed();
    } });
    this.clock = setInterval(() => this.#tick(), 15_000);
    this.load();
  }

  stop() {
    this.live.stop();
    this.changed.stop();
    clearInterval(this.clock);
    this.watch.disconnect();
    this.asked?.abort();
  }

  /** Loads the list again, as far as it is shown; or its next page. */
  async load(further = false) {
    if (further && this.loading) return;
    this.asked?.abort();
    const control = (this.asked = new AbortController());
    this.loading = true;
    try {
      const limit = further ? PAGE : Math.max(PAGE, Math.min(this.shown, 500));
      const q = this.filter.value.trim().slice(0, 200);
      const [answer, { rooms }] = await Promise.all([
        get("sessions", { q, limit, problems: "first", after: further ? this.next : null }, control.signal),
        get("rooms", {}, control.signal),
      ]);
      const hosted = new Map(rooms.map((room) => [room.session, room]));
      for (const row of answer.sessions) row.room = hosted.get(row.id) ?? null;
      this.#show(answer, further, q);
    } catch (error) {
      if (error.name !== "AbortError") replace(this.note, trouble(error, () => this.load()));
    } finally {
      if (this.asked === control) this.loading = false;
    }
  }

  #show({ sessions, next, total, complete }, further, q) {
    this.next = next;
    replace(this.note);
    replace(this.total, total || q ? `${words.count(total)}${complete === false ? " so far" : ""}` : "");
    const keep = new Set(sessions.map((row) => row.id));
    if (!further) {
      for (const [id, { element }] of this.rows) {
        if (keep.has(id)) continue;
        element.remove();
        this.rows.delete(id);
      }
    }
    let place = further ? null : this.list.firstElementChild;
    for (const row of sessions) {
      const element = this.#row(row);
      if (element === place) place = place.nextElementSibling;
      else this.list.insertBefore(element, place);
    }
    this.shown = this.rows.size;
    this.element.classList.toggle("bare", !this.shown);
    if (!this.shown) {
      replace(this.note, q ? empty("No session matches", `Nothing has “${q}” in its id or title. The search field above looks through what was said.`) : empty("No sessions yet", "As soon as an agent opens a session in this store, it is here."));
    }
  }

  #row(row) {
    const shown = JSON.stringify(row);
    const known = this.rows.get(row.id);
    if (known && known.shown === shown) return known.element;
    const made = this.#draw(row, known?.element);
    this.rows.set(row.id, { element: made, shown });
    return made;
  }

  #draw(row, old) {
    const bad = row.problems.length > 0;
    const element = old ?? el("a", { role: "listitem" });
    element.className = `session${bad ? " troubled" : ""}`;
    element.setAttribute("href", sessionLink(row.id));
    element.dataset.session = row.id;
    const failed = row.failures ? el("span.failures", {}, `· ${row.failures} failed`) : null;
    return replace(element,
      el("span.name", {},
        el("span.title", {}, row.title || row.id),
        el("span.sub", {}, el("span.id", {}, row.title ? row.id : ""), row.parent && el("span.tag", {}, `fork of ${row.parent}`), row.room ? agent(row.room) : row.keeper === "agent" && el("span.tag", {}, "kept by its agent"), row.pending ? el("span.tag", {}, words.many(row.pending, "input") + " waiting") : null),
        bad && el("span.problems", {}, row.problems.map((problem) => el("span.problem", {}, problem))),
      ),
      el("span.cell.doing", {}, state(row)),
      el("span.cell.size", {}, fullness(row)),
      el("span.cell.cuts", {}, el("b", {}, words.count(row.committed)), el("span.unit", {}, row.committed === 1 ? " compaction" : " compactions"), failed),
      el("span.cell.when", { title: words.whole(row.touched_at), data: { at: row.touched_at } }, words.ago(row.touched_at)),
    );
  }

  #tick() {
    for (const cell of this.list.querySelectorAll(".when")) replace(cell, words.ago(Number(cell.dataset.at)));
    if (this.list.querySelector(".state:is(.busy, .turn), .tag[data-phase='starting']")) this.changed(); // a worker that falls silent writes nothing
  }

  #choose(element) {
    for (const old of this.list.querySelectorAll(".chosen")) if (old !== element) old.classList.remove("chosen");
    element?.classList.add("chosen");
  }

  // ---------------------------------------------------------------- keys

  key(event) {
    const chosen = this.list.querySelector(".session:focus") ?? this.list.querySelector(".chosen");
    if (event.key === "j" || event.key === "ArrowDown") move(chosen ? chosen.nextElementSibling : this.list.firstElementChild);
    else if (event.key === "k" || event.key === "ArrowUp") move(chosen ? chosen.previousElementSibling : this.list.lastElementChild);
    else if (event.key === "f") this.filter.focus();
    else return false;
    return true;
  }
}

/** That an agent runs there, and whether somebody has to do something for it. */
function agent(room) {
  const about = { ready: "runs", starting: "is starting", locked: "wants a login", down: "is down" }[room.phase] ?? room.phase;
  return [
    el(`span.tag${room.phase === "down" || room.phase === "locked" ? ".warn" : ".accent"}`, { title: room.trouble ?? null, data: { phase: room.phase } }, `${room.agent} ${about}`),
    room.questions ? el("span.tag.warn.asks", {}, "waits for an answer") : null,
  ];
}

function move(element) {
  element?.focus();
  element?.scrollIntoView({ block: "nearest" });
}
