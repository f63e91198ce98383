// The page: which view is shown, the theme, and the keys that work everywhere.

import { get, learnScopes, logOut, may } from "./api.js";
import { ask, inform } from "./dialogs.js";
import { Compactions } from "./compactions.js";
import { button, el, icon, replace } from "./dom.js";
import { Health } from "./health.js";
import { Search } from "./search.js";
import { SessionView } from "./session.js";
import { Sessions } from "./sessions.js";

const main = document.getElementById("main");
const find = document.getElementById("q");
const lamp = document.getElementById("live");
let shown = null;
let route = null;
let going = false; // after g

const LAMPS = { __proto__: null, live: "live", lost: "reconnecting", refused: "token no longer valid" };
const VIEWS = { __proto__: null, sessions: Sessions, compactions: Compactions, health: Health, search: Search, session: SessionView };

// ---------------------------------------------------------------- where we are

function read(hash) {
  const [path, asked = ""] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const query = new URLSearchParams(asked);
  if (name === "session" && rest.length) {
    try {
      return { view: "session", id: decodeURIComponent(rest.join("/")), query };
    } catch {
      return { view: "sessions", query };
    }
  }
  return { view: name in VIEWS && name !== "session" ? name : "sessions", query };
}

function show() {
  const next = read(location.hash);
  const same = route && next.view === route.view && next.id === route.id;
  if (same && next.view === "session" && next.query.get("at") && next.query.toString() !== route.query.toString()) {
    route = next;
    if (next.query.get("view") === "all") shown.look("all");
    shown.go(Number(next.query.get("at")));
    return;
  }
  route = next;
  shown?.stop();
  document.querySelector(".popup")?.remove();
  main.scrollTop = 0;
  for (const link of document.querySelectorAll(".nav a")) {
    const here = link.dataset.view === (next.view === "session" ? "sessions" : next.view);
    if (here) link.setAttribute("aria-current", next.view === "session" ? "true" : "page");
    else link.removeAttribute("aria-current");
  }
  if (next.view === "search") find.value = next.query.get("q") ?? "";
  document.title = `${next.id ?? next.view[0].toUpperCase() + next.view.slice(1)} · onefold`;
  live(null);
  shown = new VIEWS[next.view](main, { ...next, live, remember });
}

/** Keeps what was chosen in the address, without another entry in the history. */
function remember(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value) route.query.set(name, value);
    else route.query.delete(name);
  }
  route.query.delete("at");
  const asked = route.query.toString();
  const path = route.view === "session" ? `session/${encodeURIComponent(route.id)}` : route.view === "sessions" ? "" : route.view;
  history.replaceState(null, "", `#/${path}${asked ? `?${asked}` : ""}`);
}

function live(state) {
  lamp.dataset.state = state ?? "";
  replace(lamp, LAMPS[state] ?? "");
}

// ---------------------------------------------------------------- search

document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  search();
  find.blur();
  main.focus();
});
find.addEventListener("input", () => {
  if (route?.view === "search") search();
});

function search() {
  const q = find.value.trim();
  if (route?.view === "search") {
    remember({ q });
    shown.ask(q);
    return;
  }
  const query = new URLSearchParams(route?.view === "session" ? { q, session: route.id } : { q });
  location.hash = `#/search?${query}`;
}

// ---------------------------------------------------------------- theme

const theme = document.getElementById("theme");
const THEMES = { system: "dark", dark: "light", light: "system" };

function drawTheme() {
  const now = document.documentElement.dataset.theme ?? "system";
  replace(theme, icon({ system: "system", dark: "moon", light: "sun" }[now]));
  theme.setAttribute("aria-label", `Theme: ${now}. Change to ${THEMES[now]}`);
  theme.title = `Theme: ${now} (t)`;
}

function turn() {
  const next = THEMES[document.documentElement.dataset.theme ?? "system"];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem("onefold.theme");
    else localStorage.setItem("onefold.theme", next);
  } catch {
    // Then it holds for this page only.
  }
  drawTheme();
}
theme.addEventListener("click", turn);

// ---------------------------------------------------------------- keys

const KEYS = [
  ["Everywhere", [["/", "search"], ["g s", "sessions"], ["g c", "compactions"], ["g h", "health"], ["t", "theme"], ["Esc", "close, or back to the list"], ["?", "this help"]]],
  ["Lists", [["j k", "next, previous"], ["Enter", "open"], ["f", "filter the sessions"]]],
  ["A session", [["j k", "next, previous record"], ["Enter", "unfold, fold"], ["m", "as the model sees it, as it happened"], ["[ ]", "previous, next compaction"], ["#", "go to a record"], ["Home G", "beginning, end"], ["c", "compact", "compact"], ["x", "cancel the compaction", "compact"], ["u r", "undo, redo", "write"], ["p", "pin, unpin", "write"], ["f", "fork", "write"], ["e", "export"], ["i", "write to its agent", "agents"], ["a", "answer its agent", "agents"]]],
];

async function help() {
  await learnScopes();
  const keys = KEYS.map(([name, some]) => el("section", {}, el("h3", {}, name), el("dl", {}, some.filter(([, , scope]) => !scope || may(scope)).map(([key, what]) => [el("dt", {}, key.split(" ").map((k) => el("kbd", {}, k))), el("dd", {}, what)]))));
  const dialog = inform("Keys", el("div", {}, el("div.keys", {}, keys), el("p", {}, button("Log out…", () => {
    dialog.close();
    leave();
  }))));
}

function leave() {
  ask({
    title: "Log out",
    says: ["This browser is let in no more, in this tab and in all others, until a link with a token is opened again. The token itself stays: onefold token revoke ends that."],
    label: "Log out",
    act: async () => {
      await logOut();
      location.reload();
    },
  });
}
document.getElementById("help").addEventListener("click", help);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

function escape(target) {
  if (target.matches?.("input, textarea")) {
    target.blur();
    main.focus();
  } else if (route.view !== "sessions") location.hash = "#/";
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const { target } = event;
  if (event.key === "Escape") return escape(target);
  if (target.matches?.("input, textarea, select")) return undefined;
  if (going) {
    going = false;
    const to = { s: "#/", c: "#/compactions", h: "#/health" }[event.key];
    if (to) {
      event.preventDefault();
      location.hash = to;
      return undefined;
    }
  }
  const everywhere = { "/": () => find.focus(), "?": help, t: turn, g: () => { going = true; } };
  if (everywhere[event.key]) {
    event.preventDefault();
    everywhere[event.key]();
  } else if (shown?.key(event)) event.preventDefault();
  return undefined;
});

// ---------------------------------------------------------------- staying

// A page that is looked at stays let in, though nothing happens on it. What is wrong is said by what is shown.
setInterval(() => document.hidden || get("rooms").catch(() => {}), 30 * 60_000);

drawTheme();
window.addEventListener("hashchange", show);
show();
