// Hits over everything that was said, or in one session. A hit opens at its record.

import { get } from "./api.js";
import { trouble } from "./dialogs.js";
import { after, button, el, fill, replace } from "./dom.js";
import { walk } from "./compactions.js";
import { empty, sessionLink } from "./components.js";
import * as words from "./format.js";

const PLACES = { __proto__: null, context: "in the context", past: "compacted", undone: "undone", waiting: "waits" };

export class Search {
  constructor(main, { live, query, remember }) {
    live(null);
    this.session = query.get("session");
    this.q = query.get("q") ?? "";
    this.remember = remember;
    this.body = el("div", { "aria-live": "polite" });
    this.scope = el("div.bar", {}, el("h1", {}, "Search"));
    replace(main, el("section.view.list", { "aria-label": "Search" }, this.scope, this.body));
    this.soon = after(150, () => this.load());
    this.load();
  }

  stop() {
    this.asked?.abort();
    this.soon.stop();
  }

  ask(q) {
    this.q = q;
    this.soon();
  }

  async load() {
    replace(this.scope, el("h1", {}, "Search"), this.session ? el("span.tag", {}, `in ${this.session}`) : null, this.session ? button("Everywhere", () => {
      this.session = null;
      this.remember({ session: null });
      this.load();
    }) : null);
    if (!this.q.trim()) return replace(this.body, empty("Find what was said", "Words, \"phrases\", beginnings* and -what-not, in every session, whatever was compacted or undone since."));
    this.asked?.abort();
    const control = (this.asked = new AbortController());
    try {
      const found = await get("search", { q: this.q.slice(0, 1000), session: this.session, limit: 50 }, control.signal);
      replace(this.body,
        found.behind ? el("p.about", {}, `${words.many(found.behind, "record")} are not looked at yet; search again in a moment.`, " ", button("Again", () => this.load())) : null,
        found.hits.length && found.hits.every((hit) => hit.partial) ? el("p.about", {}, "No record has all of these words. These have some.") : null,
        found.hits.length ? found.hits.map(hit) : empty("Nothing found", "No record has these words."));
      const further = found.behind && found.behind !== this.behind;
      this.behind = found.behind;
      if (further) return this.load(); // a first search goes on by itself, and what is left is shown
    } catch (error) {
      if (error.name !== "AbortError") replace(this.body, trouble(error, () => this.load()));
    }
    return undefined;
  }

  key(event) {
    return walk(event, [...this.body.querySelectorAll(".hit")]);
  }
}

function hit(one) {
  const shown = fill(el("span.excerpt"), marked(one.excerpt, one.marks));
  return el("a.hit", { href: sessionLink(one.session, { view: "all", at: one.number }) },
    el("span.head", {}, el("span.role", {}, one.role), el("span.id", {}, one.session), el("span.number", {}, `#${words.count(one.number)}`), el("span.tag", {}, PLACES[one.place] ?? one.place), el("time", { title: words.whole(one.at) }, words.ago(one.at))),
    shown);
}

/** The excerpt with the words marked. Places count characters, of which some are two in a browser's strings. */
function marked(text, marks) {
  const letters = Array.from(text);
  const made = [];
  let done = 0;
  for (const [start, stop] of marks) {
    made.push(letters.slice(done, start).join(""), el("mark", {}, letters.slice(start, stop).join("")));
    done = stop;
  }
  return [...made, letters.slice(done).join("")];
}
