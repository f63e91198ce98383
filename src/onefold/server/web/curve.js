// The saw-tooth: how large the context was from record to record, and where a compaction made it smaller. Records stand
// evenly, so that a night in which nothing happened takes no room; hours are written under it.

import { el, replace, svg } from "./dom.js";
import * as words from "./format.js";

const HEIGHT = 132;
const MOST = 1200; // points, which is twice what is asked for
const PAD = { top: 16, right: 12, bottom: 20, left: 40 };
const LETTER = 6.2; // pixels of one in a label, on average and a little more
const GAP = 12;

export class Curve {
  constructor({ go }) {
    this.go = go;
    this.tip = el("div.tip", { "aria-hidden": "true" });
    this.plot = el("div.plot");
    this.element = el("figure.curve", { "aria-label": "Size of the context over time" }, this.plot, this.tip);
    this.sized = new ResizeObserver(() => this.#draw());
    this.sized.observe(this.plot);
    this.data = null;
    this.reading = null;
  }

  stop() {
    this.sized.disconnect();
  }

  show(data, failed) {
    this.data = data;
    this.failed = failed;
    this.#draw();
  }

  /** One more record, at the end of what is known. */
  grow(point) {
    if (this.data && point.number > (this.data.points.at(-1)?.number ?? 0)) this.data.points.push(point);
  }

  /** Draws what has grown. False where that is too much, or nothing is known: then it is to be asked for. */
  drawn() {
    if (!this.data || this.data.points.length > MOST) return false;
    this.#draw();
    return true;
  }

  /** Marks the records that are in view. */
  read(first, last) {
    if (first === null || last === null) return;
    this.reading = [first, last];
    this.#band();
  }

  #draw() {
    const width = this.plot.clientWidth;
    if (!this.data || !width) return;
    const { points, marks, limit } = this.data;
    this.element.classList.toggle("bare", points.length < 2);
    if (points.length < 2) return replace(this.plot);
    const first = points[0].number;
    const last = Math.max(points.at(-1).number, first + 1);
    const top = Math.max(...points.map((p) => p.tokens), ...marks.map((m) => m.tokens_before));
    const high = Math.max(limit && top > limit.soft * 0.45 ? limit.hard : 0, top) * 1.06 || 1;
    this.x = (number) => PAD.left + ((number - first) / (last - first)) * (width - PAD.left - PAD.right);
    this.y = (size) => HEIGHT - PAD.bottom - (size / high) * (HEIGHT - PAD.top - PAD.bottom);
    this.number = (x) => Math.round(first + ((x - PAD.left) / (width - PAD.left - PAD.right)) * (last - first));
    const line = points.map((p, i) => `${i ? "L" : "M"}${this.x(p.number).toFixed(1)} ${this.y(p.tokens).toFixed(1)}`).join("");
    const floor = this.y(0);
    const drawn = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "group", "aria-label": this.#words() });
    this.strip = svg("rect.band", { y: PAD.top - 6, height: HEIGHT - PAD.top - PAD.bottom + 6, x: 0, width: 0 });
    drawn.append(
      this.strip,
      ...this.#levels(high, width, limit),
      ...this.#hours(points, width),
      svg("path.area", { d: `${line}L${this.x(points.at(-1).number).toFixed(1)} ${floor}L${this.x(first).toFixed(1)} ${floor}Z` }),
      svg("path.line", { d: line }),
      ...this.#failures(),
      ...this.#marks(marks),
    );
    drawn.addEventListener("pointermove", (event) => this.#point(event));
    drawn.addEventListener("pointerleave", () => this.tip.classList.remove("on"));
    drawn.addEventListener("click", (event) => {
      if (!event.target.closest(".cut")) this.go(this.#under(event));
    });
    replace(this.plot, drawn);
    this.#band();
    return undefined;
  }

  #words() {
    const { points, marks } = this.data;
    const cuts = marks.filter((m) => m.compaction).length;
    return `${words.count(points.at(-1).tokens)} tokens now, ${words.many(cuts, "compaction")}`;
  }

  #levels(high, width, limit) {
    const step = nice(high / 3);
    const made = [];
    for (let size = 0; size <= high; size += step) {
      made.push(svg("line.grid", { x1: PAD.left, x2: width - PAD.right, y1: this.y(size), y2: this.y(size) }));
      made.push(svg("text.axis", { x: PAD.left - 6, y: this.y(size) + 3.5, "text-anchor": "end" }, words.tokens(size)));
    }
    for (const name of ["soft", "hard"]) {
      if (!limit || limit[name] > high) continue;
      const y = this.y(limit[name]);
      made.push(svg(`line.${name}`, { x1: PAD.left, x2: width - PAD.right, y1: y, y2: y }));
      // Side by side: the lines may be closer together than their names are high.
      made.push(svg(`text.axis.${name}`, { x: PAD.left + (name === "soft" ? 4 : 4 + 10 * LETTER + GAP), y: y - 4 }, `${name} limit`));
    }
    return made;
  }

  #hours(points, width) {
    const many = Math.max(2, Math.floor((width - PAD.left) / 110));
    const made = [];
    let free = 0; // what is left of it is taken
    let date = "";
    let hour = "";
    for (let i = 0; i < many; i++) {
      const point = points[Math.round((i / (many - 1)) * (points.length - 1))];
      const [day, time] = [words.day(point.at), words.hour(point.at)];
      if (day === date && time === hour) continue; // so little happened that it says nothing
      const label = day === date ? time : `${day}, ${time}`;
      const wide = label.length * LETTER;
      const left = Math.min(Math.max(PAD.left, this.x(point.number) - (i ? wide / 2 : 0)), width - PAD.right - wide);
      if (made.length && left < free) continue;
      free = left + wide + GAP;
      [date, hour] = [day, time];
      made.push(svg("text.axis", { x: left, y: HEIGHT - 5 }, label));
    }
    return made;
  }

  #marks(marks) {
    let order = 0;
    return marks.filter((m) => m.source !== "created").map((mark) => {
      const folds = mark.compaction !== null && mark.source !== "restored";
      if (folds) order += 1;
      const x = this.x(mark.number);
      const name = folds ? `Compaction ${order}` : words.SOURCES[mark.source] ?? mark.source;
      const label = `${name}, ${words.tokens(mark.tokens_before)} to ${words.tokens(mark.tokens_after)} tokens, ${words.clock(mark.at)}`;
      const act = () => this.go(mark.number, folds);
      return svg(`g.cut${folds ? "" : ".other"}`, { role: "button", tabindex: 0, "aria-label": label, onclick: act, data: { mark: mark.number },
        onkeydown: (event) => {
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            event.stopPropagation();
            act();
          }
        } },
        svg("rect.hit", { x: x - 9, y: 0, width: 18, height: HEIGHT - PAD.bottom }),
        svg("line", { x1: x, x2: x, y1: this.y(Math.max(mark.tokens_before, mark.tokens_after)), y2: this.y(0) }),
        svg("circle", { cx: x, cy: this.y(Math.max(mark.tokens_before, mark.tokens_after)), r: folds ? 4 : 3 }),
      );
    });
  }

  #failures() {
    return (this.failed ?? []).map((one) => {
      const x = this.x(one.number);
      const y = this.y(this.#size(one.number)) - 9;
      return svg("g.cut.failed", { role: "button", tabindex: 0, "aria-label": `Failed compaction: ${one.cause ?? ""}`, onclick: () => this.go(one.number) },
        svg("rect.hit", { x: x - 9, y: 0, width: 18, height: HEIGHT - PAD.bottom }),
        svg("path", { d: `M${x - 3} ${y - 3}l6 6m0-6l-6 6` }));
    });
  }

  #size(number) {
    let size = 0;
    for (const point of this.data.points) {
      if (point.number > number) break;
      size = point.tokens;
    }
    return size;
  }

  #band() {
    if (!this.strip || !this.reading || !this.x) return;
    const [first, last] = this.reading;
    const from = Math.max(PAD.left, this.x(first));
    this.strip.setAttribute("x", from);
    this.strip.setAttribute("width", Math.max(2, this.x(last) - from));
  }

  #under(event) {
    const { points } = this.data;
    const wanted = this.number(event.clientX - this.plot.getBoundingClientRect().left);
    return Math.max(points[0].number, Math.min(wanted, points.at(-1).number));
  }

  #point(event) {
    const number = this.#under(event);
    const cut = event.target.closest?.(".cut");
    const near = this.data.points.reduce((best, p) => (Math.abs(p.number - number) < Math.abs(best.number - number) ? p : best));
    replace(this.tip, cut ? cut.getAttribute("aria-label") : `#${number} · ${words.tokens(near.tokens)} tok · ${words.clock(near.at)}`);
    const box = this.plot.getBoundingClientRect();
    const x = event.clientX - box.left;
    this.tip.classList.add("on");
    this.tip.style.left = `${Math.max(4, Math.min(x - this.tip.offsetWidth / 2, box.width - this.tip.offsetWidth - 4))}px`;
  }
}

function nice(step) {
  const power = 10 ** Math.floor(Math.log10(Math.max(step, 1)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= step) ?? 10 * power;
}
