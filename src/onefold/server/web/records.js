// The records of one session as far as they were read: in pages, as they are looked at.

import { get } from "./api.js";

const PAGE = 100;
const PAGES = 120; // that are kept
const AT_ONCE = 3;

export class Records {
  constructor(session, came, failed) {
    Object.assign(this, { session, came, failed });
    this.pages = new Map(); // number of a page -> Map of its records
    this.asked = new Map(); // number of a page -> AbortController
  }

  get(number) {
    return this.pages.get(Math.floor(number / PAGE))?.get(number) ?? null;
  }

  put(record) {
    const page = Math.floor(record.number / PAGE);
    if (!this.pages.has(page)) this.pages.set(page, new Map());
    this.pages.get(page).set(record.number, record);
  }

  /** Sees to it that these are read. Pages that nobody wants any longer are not waited for. */
  want(list, last) {
    const pages = new Set();
    for (const number of list) if (number >= 1 && number <= last && !this.get(number)) pages.add(Math.floor(number / PAGE));
    for (const [page, asked] of this.asked) if (!pages.has(page)) asked.abort();
    for (const page of pages) if (!this.asked.has(page) && this.asked.size < AT_ONCE) this.#ask(page);
    this.wanted = () => this.want(list, last);
  }

  async one(number) {
    if (!this.get(number)) {
      const { records } = await get("records", { session: this.session, start: number, stop: number + 1, limit: 1 });
      records.forEach((record) => this.put(record));
    }
    return this.get(number);
  }

  forget() {
    for (const asked of this.asked.values()) asked.abort();
    this.pages.clear();
  }

  async #ask(page) {
    const control = new AbortController();
    this.asked.set(page, control);
    let more = false;
    try {
      const first = Math.max(1, page * PAGE);
      let start = first;
      const found = [];
      while (start !== null && start < (page + 1) * PAGE) {
        const answer = await get("records", { session: this.session, start, stop: (page + 1) * PAGE, limit: PAGE }, control.signal);
        found.push(...answer.records);
        start = answer.records.length ? answer.next : null;
      }
      this.#keep(page, found);
      this.came(first, (page + 1) * PAGE);
      more = true;
    } catch (error) {
      if (error.name === "AbortError") more = true;
      else this.failed(error);
    } finally {
      this.asked.delete(page);
    }
    if (more) this.wanted?.();
  }

  #keep(page, found) {
    const known = this.pages.get(page) ?? new Map();
    for (const record of found) known.set(record.number, record);
    this.pages.delete(page);
    this.pages.set(page, known);
    for (const old of this.pages.keys()) {
      if (this.pages.size <= PAGES) break;
      this.pages.delete(old);
    }
  }
}
