// Making elements. The only way in which text gets onto the page is a text node: nothing here parses markup, and no
// attribute that a browser would follow (href, src, style) is ever made from what a session contains.

const SVG = "http://www.w3.org/2000/svg";

// Characters that would change how other text is shown, or that cannot be seen: they are shown by their number.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/;
const UNSEEN_ALL = new RegExp(UNSEEN, "g");

/** el("p.note", { title: "…" }, "text", child): null, undefined and false children are left out. */
export function el(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag || "div");
  if (classes.length) made.className = classes.join(" ");
  return fill(set(made, attributes), ...children);
}

export function svg(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElementNS(SVG, tag);
  if (classes.length) made.setAttribute("class", classes.join(" "));
  return fill(set(made, attributes), ...children);
}

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : visible(String(value)));
  }
  return node;
}

export function fill(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) node.append(child);
    else put(node, String(child));
  }
  return node;
}

export function replace(node, ...children) {
  node.replaceChildren();
  return fill(node, ...children);
}

/** Adds text as text. What is invisible or would turn the writing around becomes a small label. */
export function put(node, text) {
  if (!UNSEEN.test(text)) {
    node.append(text);
    return node;
  }
  let done = 0;
  for (const found of text.matchAll(UNSEEN_ALL)) {
    if (found[0] === "\r" && text[found.index + 1] === "\n") continue;
    node.append(text.slice(done, found.index));
    const label = document.createElement("span");
    label.className = "unseen";
    label.textContent = code(found[0]);
    node.append(label);
    done = found.index + 1;
  }
  node.append(text.slice(done));
  return node;
}

/** The same for places that take plain text only: titles and labels. */
export function visible(text) {
  return text.replace(UNSEEN_ALL, (found) => (found === "\n" ? found : `[${code(found)}]`));
}

// Everything that is not a letter, a sign or a plain space: also what is harmless in a conversation, such as the joiners in emoji.
const HIDDEN = /(?![\n\t ])[\p{C}\p{Z}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;

/** The whole of a text, for somebody who is to approve it: nothing in it is invisible, or looks like something else. */
export function revealed(text) {
  return text.replace(HIDDEN, (found) => `[${code(found)}]`);
}

function code(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A button with a label. */
export function button(label, act, attributes = {}) {
  const { kind = "", ...rest } = attributes;
  return el(`button${kind ? `.${kind}` : ""}`, { type: "button", onclick: act, ...rest }, label);
}

export function icon(name) {
  return svg("svg.ico", { viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

const ICONS = {
  pin: "M5.500 2h5l-.7 4.200 2.200 2.300v1H8.600V14h-1.200V9.500H4v-1l2.200-2.300z",
  fold: "M6 3.500 10.500 8 6 12.500",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.500M8 13.500V15M1 8h1.500M13.500 8H15M3 3l1.100 1.100M11.900 11.900 13 13M3 13l1.100-1.100M11.900 4.100 13 3",
  moon: "M13 9.600A5.500 5.500 0 0 1 6.400 3 5.500 5.500 0 1 0 13 9.600z",
  system: "M2 3h12v8H2zM6 13.500h4",
  more: "M3.500 8h.01M8 8h.01M12.500 8h.01",
  down: "M8 3v9.500M4 8.500l4 4 4-4",
  fork: "M4 2.500v11M4 9.500c5 0 8-1.500 8-5.500M10 6l2-2.500L14 6",
};

/** Waits for a pause before it calls; `now` calls at once. */
export function after(milliseconds, call) {
  let timer = 0;
  const later = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), milliseconds);
  };
  later.stop = () => clearTimeout(timer);
  return later;
}
