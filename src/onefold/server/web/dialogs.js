// Dialogs that say what will happen before it does, menus, and short notices of what has happened.

import { button, el, replace } from "./dom.js";

/**
 * Asks before it acts. `says` are paragraphs; `fields` are elements; `act` does it and may be rejected, in which case its
 * words are shown and the dialog stays.
 */
export function ask({ title, says, fields = [], label, act, danger = false, busy = label, no = "Not now", wide = false }) {
  const trouble = el("div.trouble", { role: "alert", hidden: true });
  const go = el(`button.primary${danger ? ".danger" : ""}`, { type: "submit" }, label);
  const form = el("form", { method: "dialog" },
    el("h2", { id: "asked" }, title),
    el("div.says", {}, says.filter(Boolean).map((one) => (one instanceof Node ? one : el("p", {}, one)))),
    fields,
    trouble,
    el("div.choices", {}, button(no, () => dialog.close()), go),
  );
  const dialog = el(`dialog.ask${wide ? ".wide" : ""}`, { "aria-labelledby": "asked" }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    go.replaceChildren(busy);
    trouble.hidden = true;
    try {
      const done = await act(new FormData(form));
      dialog.close();
      if (done) tell(done);
    } catch (error) {
      complain(trouble, error);
      trouble.hidden = false;
    } finally {
      go.disabled = false;
      go.replaceChildren(label);
    }
  });
  show(dialog);
  (form.querySelector("textarea, input:not([type=radio])") ?? go).focus();
  return dialog;
}

export function inform(title, content, label = "Close") {
  const dialog = el("dialog.ask.wide", { "aria-label": title }, el("form", { method: "dialog" }, el("h2", {}, title), content, el("div.choices", {}, el("button.primary", { type: "submit" }, label))));
  show(dialog);
  return dialog;
}

function show(dialog) {
  const before = document.activeElement;
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus({ preventScroll: true });
  });
  document.body.append(dialog);
  dialog.showModal();
}

/** An error in words, with what can be done. */
export function complain(node, error) {
  const remedy = error.remedy ? el("p", {}, error.remedy) : null;
  replace(node, el("p", {}, el("b", {}, error.message || String(error))), remedy);
  return node;
}

export function trouble(error, again) {
  return el("div.trouble.large", { role: "alert" }, complain(el("div"), error), again && button("Try again", again));
}

export function tell(text, bad = false) {
  const toast = el(`div.toast${bad ? ".bad" : ""}`, {}, text);
  const list = document.getElementById("toasts");
  list.append(toast);
  while (list.children.length > 3) list.firstChild.remove();
  setTimeout(() => toast.remove(), bad ? 9000 : 5000);
}

/** A small menu next to a button. */
export function menu(anchor, entries) {
  document.querySelector(".popup")?.remove();
  const list = el("div.popup", { role: "menu" }, entries.filter(Boolean).map(([label, act]) => el("button", { type: "button", role: "menuitem", onclick: () => {
    close();
    act();
  } }, label)));
  const away = (event) => {
    if (!list.contains(event.target)) close();
  };
  const key = (event) => {
    const items = [...list.children];
    const at = items.indexOf(document.activeElement);
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
      anchor.focus({ preventScroll: true });
    } else if (event.key === "ArrowDown" || event.key === "j") items[(at + 1) % items.length].focus();
    else if (event.key === "ArrowUp" || event.key === "k") items[(at + items.length - 1) % items.length].focus();
    else if (event.key === "Tab") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  function close() {
    list.remove();
    document.removeEventListener("pointerdown", away, true);
    document.removeEventListener("scroll", close, true);
    anchor.removeAttribute("aria-expanded");
  }
  list.addEventListener("keydown", key);
  document.addEventListener("pointerdown", away, true);
  document.body.append(list);
  const box = anchor.getBoundingClientRect();
  const top = box.bottom + list.offsetHeight + 8 > innerHeight ? box.top - list.offsetHeight - 4 : box.bottom + 4;
  list.style.top = `${Math.max(4, top)}px`;
  list.style.left = `${Math.max(4, Math.min(box.right - list.offsetWidth, innerWidth - list.offsetWidth - 4))}px`;
  anchor.setAttribute("aria-expanded", "true");
  list.firstElementChild?.focus();
  setTimeout(() => document.addEventListener("scroll", close, true), 50);
}
