// A list of any length of which only what is near the viewport is in the document.
//
// Heights are estimated until a row was seen, then measured. Whatever changes above the row that is being read (a
// height, rows that come or go) is made up for in the scroll position, so that this row does not move.

import { el } from "./dom.js";

const BLOCK = 256;
const BEYOND = 500; // pixels above and below the viewport that are in the document as well
const BY_HAND = ["wheel", "touchmove", "pointerdown", "keydown"];
const MOST = 600; // rows in the document at once, whatever their heights

const FOCUSABLE = "a[href], button, input, select, summary, textarea";

/** Which of the things in a row that can have the focus has it; -1 for the row itself. */
const placeIn = (row) => [...row.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);

/** Gives the focus to the same thing in a row that was drawn again: who works with the keyboard goes on from there. */
function focusAt(row, place) {
  if (!row) return;
  row.setAttribute("tabindex", "0");
  (row.querySelectorAll(FOCUSABLE)[place] ?? row).focus({ preventScroll: true });
}

/** Heights of rows with their sums: blocks of them, so that a change costs nothing and a sum little. */
export class Heights {
  constructor() {
    this.rows = [];
    this.blocks = [];
    this.total = 0;
  }

  push(height) {
    const block = this.rows.length >> 8;
    this.rows.push(height);
    this.blocks[block] = (this.blocks[block] ?? 0) + height;
    this.total += height;
  }

  set(index, height) {
    const change = height - this.rows[index];
    if (!change) return 0;
    this.rows[index] = height;
    this.blocks[index >> 8] += change;
    this.total += change;
    return change;
  }

  /** The height of all rows before this one. */
  before(index) {
    let sum = 0;
    const block = index >> 8;
    for (let i = 0; i < block; i++) sum += this.blocks[i];
    for (let i = block * BLOCK; i < index; i++) sum += this.rows[i];
    return sum;
  }

  /** The row at a distance from the top. */
  at(distance) {
    let sum = 0;
    let block = 0;
    while (block < this.blocks.length - 1 && sum + this.blocks[block] <= distance) sum += this.blocks[block++];
    let index = block * BLOCK;
    while (index < this.rows.length - 1 && sum + this.rows[index] <= distance) sum += this.rows[index++];
    return Math.max(0, Math.min(index, this.rows.length - 1));
  }
}

export class Windowed {
  /**
   * `rows` has `count`, `key(index)`, `render(index)` giving an element, and `estimate(index)` giving pixels.
   * `seen(first, last)` is called with the rows in the viewport, and `wanted(first, last)` with those in the document.
   */
  constructor(scroller, rows, { label, seen = () => {}, wanted = () => {}, atEnd = () => {} }) {
    Object.assign(this, { scroller, rows, seen, wanted, atEnd });
    this.above = el("div.space", { "aria-hidden": "true" });
    this.body = el("div.rows", { role: "feed", "aria-label": label });
    this.below = el("div.space", { "aria-hidden": "true" });
    this.element = el("div.windowed", {}, this.above, this.body, this.below);
    this.measured = new Map();
    this.shown = new Map(); // key -> element
    this.indexes = new WeakMap(); // element -> index
    this.stick = false;
    this.frame = 0;
    this.ours = 0;
    this.anchor = null;
    this.resized = new ResizeObserver((entries) => this.#measure(entries));
    this.scrolled = () => this.#later();
    scroller.addEventListener("scroll", this.scrolled, { passive: true });
    // A row that somebody went to stays where it is while others around it load, until they scroll on.
    this.held = false;
    this.letGo = () => {
      this.held = false;
    };
    for (const name of BY_HAND) scroller.addEventListener(name, this.letGo, { passive: true });
    this.viewport = new ResizeObserver(() => this.#keep());
    this.viewport.observe(scroller);
    this.reset();
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.resized.disconnect();
    this.viewport.disconnect();
    this.scroller.removeEventListener("scroll", this.scrolled);
    for (const name of BY_HAND) this.scroller.removeEventListener(name, this.letGo);
  }

  /** Rebuilds all rows: some came or went in the middle. What is read stays where it is, if it is still there. */
  reset() {
    const { anchor } = this;
    const held = this.#focused();
    this.heights = new Heights();
    for (let i = 0; i < this.rows.count; i++) this.heights.push(this.measured.get(this.rows.key(i)) ?? this.rows.estimate(i));
    for (const element of this.shown.values()) this.#drop(element);
    this.shown.clear();
    // Room for all of them, or there is nowhere to scroll to.
    this.above.style.height = `${this.heights.total}px`;
    this.below.style.height = "0px";
    const index = anchor ? this.rows.find(anchor.key) : -1;
    if (index >= 0) {
      this.#place(index, anchor.offset);
      this.#draw();
      this.#place(index, anchor.offset, true);
      this.anchor = anchor;
    }
    this.#draw();
    if (this.stick) this.toEnd();
    if (held) focusAt(this.shown.get(held.key), held.place);
  }

  /** The row that has the focus, and which of the things in it. */
  #focused() {
    for (const [key, element] of this.shown) if (element.contains(document.activeElement)) return { key, place: placeIn(element) };
    return null;
  }

  /** Rows came at the end. */
  grown() {
    while (this.heights.rows.length < this.rows.count) this.heights.push(this.rows.estimate(this.heights.rows.length));
    this.#draw();
    if (this.stick) this.toEnd();
  }

  /** A row has other content now. */
  refresh(index) {
    const key = this.rows.key(index);
    const old = this.shown.get(key);
    if (!old) return null;
    const place = old.contains(document.activeElement) ? placeIn(old) : null;
    const made = this.#make(index, key);
    made.setAttribute("tabindex", old.getAttribute("tabindex") ?? "-1");
    this.resized.unobserve(old);
    old.replaceWith(made);
    if (place !== null) focusAt(made, place);
    return made;
  }

  refreshAll() {
    for (const element of [...this.shown.values()]) this.refresh(this.indexes.get(element));
    this.settle();
  }

  toEnd() {
    this.stick = true;
    this.held = false;
    this.#to(this.scroller.scrollHeight);
    this.#draw();
    this.#to(this.scroller.scrollHeight);
    this.#draw();
  }

  /** Scrolls a row into view, at this many pixels below the top. */
  toRow(index, offset = 120) {
    if (index < 0 || index >= this.rows.count) return null;
    this.stick = this.held = false;
    this.#place(index, offset);
    this.#draw();
    this.#place(index, offset, true);
    this.#draw();
    this.anchor = { key: this.rows.key(index), offset };
    this.held = true;
    this.#hold();
    return this.shown.get(this.rows.key(index)) ?? null;
  }

  /** Scrolls a row into view by as little as it takes, and gives its element. It stays there while others load. */
  reveal(index) {
    const key = this.rows.key(index);
    const element = this.shown.get(key);
    if (!element) return this.toRow(index);
    const box = element.getBoundingClientRect();
    const view = this.#view();
    let move = 0;
    if (box.top < view.top + 8) move = box.top - view.top - 8;
    else if (box.bottom > view.bottom - 8) move = Math.min(box.bottom - view.bottom + 8, box.top - view.top - 8);
    if (move) this.#to(this.scroller.scrollTop + move);
    this.stick = false;
    this.held = true;
    this.anchor = { key, offset: element.getBoundingClientRect().top - this.#view().top };
    this.#draw();
    return this.shown.get(key) ?? null;
  }

  indexOf(element) {
    return this.indexes.get(element) ?? -1;
  }

  get nearEnd() {
    return this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < 40;
  }

  #view() {
    const box = this.scroller.getBoundingClientRect();
    const covered = this.inset?.() ?? 0;
    return { top: box.top + covered, bottom: box.bottom - (this.foot?.() ?? 0) };
  }

  #top() {
    return this.element.getBoundingClientRect().top - this.scroller.getBoundingClientRect().top + this.scroller.scrollTop;
  }

  #place(index, offset, exactly = false) {
    const shown = exactly ? this.shown.get(this.rows.key(index)) : null;
    if (shown) {
      this.#to(this.scroller.scrollTop + shown.getBoundingClientRect().top - this.#view().top - offset);
      return;
    }
    this.#to(this.#top() + this.heights.before(index) - offset - (this.inset?.() ?? 0));
  }

  /** Scrolls, and remembers where to: every other place was chosen by hand. */
  #to(place) {
    this.scroller.scrollTop = place;
    this.ours = this.scroller.scrollTop;
  }

  #later() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const end = this.nearEnd;
      const byHand = Math.abs(this.scroller.scrollTop - this.ours) >= 1;
      if (end !== this.stick && (end || byHand)) {
        this.stick = end;
        this.atEnd(end);
      }
      this.#draw();
      if (this.stick) this.#hold();
    });
  }

  #draw() {
    const count = this.rows.count;
    const height = this.scroller.clientHeight;
    if (!count || !height) {
      this.body.replaceChildren();
      this.above.style.height = this.below.style.height = "0px";
      return;
    }
    const from = this.scroller.scrollTop - this.#top();
    const first = this.heights.at(Math.max(0, from - BEYOND));
    let last = this.heights.at(Math.max(0, from + height + BEYOND));
    last = Math.min(count - 1, Math.max(last, first), first + MOST);
    // Before rows go: a list that is too short for a moment would be scrolled elsewhere.
    this.above.style.height = `${this.heights.before(first)}px`;
    this.below.style.height = `${Math.max(0, this.heights.total - this.heights.before(last + 1))}px`;
    this.#sweep(first, last);
    let place = null;
    for (let i = last; i >= first; i--) {
      const key = this.rows.key(i);
      let element = this.shown.get(key);
      // Those that stay are never moved: a row that is moved loses the focus.
      if (!element) this.body.insertBefore((element = this.#make(i, key)), place);
      this.indexes.set(element, i);
      place = element;
    }
    this.wanted(first, last);
    this.#remember();
  }

  /** Takes out what is no longer near. */
  #sweep(first, last) {
    const keep = new Set();
    for (let i = first; i <= last; i++) keep.add(this.rows.key(i));
    for (const [key, element] of this.shown) {
      if (keep.has(key)) continue;
      if (element.contains(document.activeElement)) this.scroller.focus({ preventScroll: true });
      this.#drop(element);
      this.shown.delete(key);
    }
  }

  #make(index, key) {
    const element = this.rows.render(index);
    element.setAttribute("aria-posinset", index + 1);
    element.setAttribute("aria-setsize", this.rows.count);
    this.shown.set(key, element);
    this.indexes.set(element, index);
    this.resized.observe(element);
    return element;
  }

  #drop(element) {
    this.resized.unobserve(element);
    element.remove();
  }

  /** The first and the last row in the viewport; null if there is none. */
  get visible() {
    const view = this.#view();
    let first = null;
    let last = null;
    for (const element of this.body.children) {
      const box = element.getBoundingClientRect();
      if (box.bottom <= view.top + 1 || !box.height) continue;
      if (box.top >= view.bottom) break;
      first ??= { index: this.indexes.get(element), offset: box.top - view.top };
      last = this.indexes.get(element);
    }
    return first && { first: first.index, offset: first.offset, last };
  }

  /** Notes which row is being read, and where it stands in the viewport. */
  #remember() {
    const { visible } = this;
    if (!visible) return;
    if (!this.held) this.anchor = { key: this.rows.key(visible.first), offset: visible.offset };
    this.seen(visible.first, visible.last);
  }

  /** Puts the row that is being read back to where it stood. */
  #hold() {
    if (this.stick) {
      this.#to(this.scroller.scrollHeight);
      return;
    }
    const element = this.anchor && this.shown.get(this.anchor.key);
    if (!element) return;
    const drift = element.getBoundingClientRect().top - this.#view().top - this.anchor.offset;
    if (Math.abs(drift) >= 1) this.#to(this.scroller.scrollTop + drift);
  }

  #measure(entries) {
    if (this.#take(entries.map((entry) => entry.target))) this.#keep();
  }

  /** Takes the heights of rows as they are now. True if one was different. */
  #take(elements) {
    let changed = false;
    for (const element of elements) {
      const index = this.indexes.get(element);
      if (index === undefined || !element.isConnected) continue;
      const height = element.offsetHeight;
      if (element.dataset.waits === undefined) this.measured.set(this.rows.key(index), height);
      changed = this.heights.set(index, height) !== 0 || changed;
    }
    return changed;
  }

  /** After rows got other content: nothing that is read moves, not even until the next frame. */
  settle() {
    if (this.#take(this.shown.values())) this.#keep();
  }

  #keep() {
    this.#hold();
    this.#draw();
    this.#hold();
  }
}
