// What verify finds, in words.

import * as actions from "./actions.js";
import { get, learnScopes, may } from "./api.js";
import { trouble } from "./dialogs.js";
import { button, el, replace } from "./dom.js";
import { sessionLink } from "./components.js";
import * as words from "./format.js";

/** The look that is under way. The server has one at a time, and goes on with it when this view is left. */
let looking = null;

function verified() {
  looking ??= get("verify").finally(() => (looking = null));
  return looking;
}

export class Health {
  constructor(main, { live }) {
    live(null);
    this.body = el("div", { "aria-live": "polite" });
    replace(main, el("section.view.list", { "aria-label": "Health" }, el("div.bar", {}, el("h1", {}, "Health"), button("Check again", () => this.check())), el("p.about", {}, "Everything that is derived (heads, counters, who compacts) is made anew from each journal and compared with what stands in the store. Looking changes nothing."), this.body));
    this.check();
  }

  stop() {
    this.stopped = true;
  }

  async check() {
    replace(this.body, el("p.busy", {}, "Reading every journal…"));
    const began = performance.now();
    try {
      const [report] = await Promise.all([verified(), learnScopes()]);
      this.#show(report, (performance.now() - began) / 1000);
    } catch (error) {
      if (!this.stopped) replace(this.body, trouble(error, () => this.check()));
    }
  }

  #show(report, took = null) {
    if (this.stopped) return;
    const looked = `${words.many(report.sessions, "session")} and ${words.many(report.records, "record")} looked at${took === null ? "" : ` in ${words.lasted(took)}`}.`;
    const left = report.findings.filter((f) => !f.mended && !f.fatal).length;
    replace(this.body,
      el(`div.verdict.${report.healthy ? "fine" : "bad"}`, {}, el("h2", {}, report.healthy ? "Everything agrees with the journal" : words.many(report.findings.length, "finding")), el("p", {}, looked), left && may("admin") ? button(`Repair ${left === 1 ? "it" : "them"}…`, () => actions.repair(left, (done) => this.#show(done)), { kind: "primary" }) : null),
      el("ul.findings", {}, report.findings.map((one) => el(`li.finding${one.fatal ? ".fatal" : ""}`, {},
        el("p", {}, el("span.state", {}, one.mended ? "repaired" : one.fatal ? "fatal" : "to repair"), " ", one.words),
        one.fatal ? el("p.about", {}, "The journal itself is damaged here. Nothing was changed: restore a backup.") : null,
        one.session ? el("a", { href: sessionLink(one.session) }, one.session) : null))),
    );
  }

  key() {
    return false;
  }
}
