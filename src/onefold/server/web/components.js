// Small parts that several views share.

import { el } from "./dom.js";
import * as words from "./format.js";

/** A bar of the context's size against its limits, which are marked on it; without a bar where nobody knows them. */
export function gauge(tokens, limit, wide = false) {
  if (!limit) {
    const unknown = `${words.count(tokens)} tokens; how many its model takes is not known`;
    return el(`span.gauge.unknown${wide ? ".wide" : ""}`, { title: unknown, "aria-label": `Size of the context: ${unknown}`, role: "img" },
      el("span.reading", {}, el("b", {}, words.tokens(tokens)), " / ?"));
  }
  const whole = Math.max(limit.window, 1);
  const share = Math.min(1, tokens / whole);
  const levels = ["soft", "hard"].filter((name) => limit[name]);
  const tone = tokens >= limit.hard ? "bad" : tokens >= limit.soft ? "warn" : "fine";
  const bar = el("span.fill");
  bar.style.width = `${Math.max(share * 100, tokens ? 1 : 0).toFixed(2)}%`;
  const ticks = levels.map((name) => {
    const tick = el(`span.tick.${name}`, { title: `${name} limit: ${words.count(limit[name])} tokens` });
    tick.style.left = `${((limit[name] / whole) * 100).toFixed(2)}%`;
    return tick;
  });
  const said = [`${words.count(tokens)} of ${words.count(limit.window)} tokens`, ...levels.map((name) => `${name} limit ${words.count(limit[name])}`), limit.by].filter(Boolean).join(", ");
  return el(`span.gauge.${tone}${wide ? ".wide" : ""}`, { role: "meter", "aria-valuemin": 0, "aria-valuemax": limit.window, "aria-valuenow": Math.min(tokens, limit.window), "aria-valuetext": said, "aria-label": "Size of the context", title: said },
    el("span.track", {}, bar, ticks),
    el("span.reading", {}, el("b", {}, words.tokens(tokens)), ` / ${words.tokens(limit.window)}`),
  );
}

/** How full a session's context is. Where its agent compacts by itself only that knows: its own word is shown, or none. */
export function fullness(row, wide = false) {
  if (row.keeper !== "agent") return gauge(row.tokens, row.limit, wide);
  if (row.usage) return gauge(row.usage.used, { window: row.usage.size, by: "as its agent says" }, wide);
  const unknown = "How full its context is only its agent knows, and it has not said so here";
  return el(`span.gauge.unknown${wide ? ".wide" : ""}`, { title: unknown, "aria-label": unknown, role: "img" }, el("span.reading", {}, el("b", {}, "?")));
}

/** What a session does now, in a word. */
export function state(row) {
  if (row.active) return el("span.state.busy", {}, "compacting");
  if (row.open) return el("span.state.wait", {}, "waiting to compact");
  if (row.turn) return el("span.state.turn", {}, "in a turn");
  return el("span.state", {}, "idle");
}

export const sessionLink = (id, query = {}) => {
  const asked = new URLSearchParams(query).toString();
  return `#/session/${encodeURIComponent(id)}${asked ? `?${asked}` : ""}`;
};

export function empty(title, ...about) {
  return el("div.empty", {}, el("h2", {}, title), about.map((one) => el("p", {}, one)));
}
