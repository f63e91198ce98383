"""The page on what masking saves and costs. Every number on it is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.masking.measures import DELAY, HITS, Place, Reached, Run, Way
from benchmarks.masking.record import LAGS
from benchmarks.masking.talks import Talk

CACHED, OUTPUT = 0.1, 5
"""What a cached token of input and a token of output cost, in tokens of input that are not cached."""

_INTRODUCTION = """\
# What masking saves, and what it costs

This page is written by `make bench-masking`, and the same code writes the same page. Ten recorded conversations of
coding agents go through the real `Compactor`, call by call, once with [masks](concepts/design.md#masks) and once
without (`Policy.mask_tokens=0`); everything else is as by default. Sizes are onefold's estimates, four bytes to a
token.

- **The conversations** ({size} tokens, {calls} calls of the model) are in `benchmarks/masking/conversations.jsonl.gz`.
  What tools answer in them is real: files of this repository, searches, listings, diffs, histories, and test runs,
  some of which fail since a line was broken for it. Who asks for what, and in which order, comes from a script.
- **The summarizer** is asked with onefold's own prompts by a model of the same window. It writes a text of about 750
  tokens that remembers nothing. A summary is there {delay} calls after it was begun, unless a turn has to wait for it.
- **Uncached** are the tokens behind the first message that differs from what the call before was sent. A **broken
  prefix** is a call that did not begin with all that was sent before it.
- **What is needed later** is known by construction: {needs} times a call needs a line (where a function stands, which
  test failed, which commit it was) that stood in one earlier result and nowhere else. The agents are recorded: they do
  not act on what they see, and nothing is read again in the tables of calls and tokens.
"""

_PLACES = """\
Where what a call needs is at that moment:

- **in the context**, word for word;
- **one number away**: the context names the record that holds it, for `recall_read`. *First answer*: of those, how many
  are in the first answer of `recall_read`, which has 8,000 characters. *Right place*: of the masked results of calls of
  the same tool with the same path, pattern or command, how many hold it;
- found **by search** for what one knows of it, among the first {hits} hits. *Right hits*: of all, how many hold it;
- **not found** so. *To read*: tokens of all the answers that it takes to find everything.
"""

_NOT_SHOWN = """\
## What is not shown

- **Whether a model does read a result again** when it needs it, or guesses. A line says how; no model was asked here.
- **What a good summary would keep.** The summarizer here remembers nothing, so without masks everything that was cut
  away has to be searched for. A real one keeps some of it. `extract` names messages by their numbers, and stands for
  the other end: the table above has both.
- **Time.** A summary takes as long as {delay} calls here, whatever its size.
- **Prompts and tools of the agent** are sent and cached with each call, and are in no number.
- **Caches end.** Here one lasts for ever. Where it is gone after five minutes, a changed prefix costs less beside it.
- **Other kinds of agents.** These conversations are of one repository and one script. A session with pictures, or one
  whose results people quote back, is another matter.
"""


@dataclass(frozen=True, slots=True)
class Sum:
    """Several conversations together."""

    runs: tuple[Run, ...]

    def __getattr__(self, name: str) -> int:
        return sum(getattr(r, name) for r in self.runs)

    @property
    def reached(self) -> list[Reached]:
        return [n for r in self.runs for n in r.needs]

    @property
    def price(self) -> int:
        """Everything that is paid, in tokens of uncached input."""
        agent = self.uncached + CACHED * (self.sent - self.uncached)
        return round(agent + self.read + OUTPUT * self.written)


def total(runs: Iterable[Run], way: Way, *names: str) -> Sum:
    return Sum(tuple(r for r in runs if r.way == way and (not names or r.talk in names)))


def page(runs: Sequence[Run], talks: Sequence[Talk]) -> str:
    ways = sorted({r.way for r in runs}, key=lambda w: (w.writer != "forgetful", w.window, not w.mask))
    plain = [w for w in ways if w.writer == "forgetful"]
    middle = [w for w in plain if w.window == sorted({w.window for w in plain})[len({w.window for w in plain}) // 2]]
    first = total(runs, plain[0])
    size = sum(len(str(m.get("content") or "")) // 4 for t in talks for m in t.messages)
    head = _INTRODUCTION.format(
        size=f"{size:,}", calls=f"{first.calls:,}", delay=DELAY, needs=f"{len(first.reached):,}"
    )
    return "\n".join(
        [
            head,
            "## In short\n",
            *_short(runs, plain),
            "",
            "## Calls and tokens\n",
            f"All {len(first.runs)} conversations together.\n",
            *_calls(runs, plain),
            "",
            "*Read* and *written* are the summarizer's, *sent* and *uncached* the agent's model's; *waited* are",
            "calls at the hard limit.",
            f"*Price* is all of it in tokens of uncached input: a cached one at {CACHED:g}, one of output at {OUTPUT}.",
            "",
            f"### Each conversation, in a window of {middle[0].window:,}\n",
            *_each(runs, middle, talks),
            "",
            "## Recall\n",
            _PLACES.format(hits=HITS),
            *_recall(runs, ways),
            "",
            f"### By how long ago it was, in a window of {middle[0].window:,}\n",
            *_by_lag(runs, middle),
            "",
            "## Where masking is worse\n",
            *_worse(runs, plain, talks),
            *_nothing(runs, plain),
            "",
            _NOT_SHOWN.format(delay=DELAY),
        ]
    )


def _short(runs: Sequence[Run], ways: Sequence[Way]) -> list[str]:
    lines = []
    for on in (w for w in ways if w.mask):
        a, b = total(runs, on), total(runs, Way(on.window, mask=False))
        near = [sum(n.place in ("context", "number") for n in side.reached) for side in (a, b)]
        lines.append(
            f"- **{on.window // 1000}k**: {a.summaries} summaries instead of {b.summaries}, {a.asked} calls for them "
            f"instead of {b.asked}, and {a.read:,} tokens read for them instead of {b.read:,}. What is needed later is "
            f"in the context or one number away in {_part(near[0], len(a.reached))} instead of "
            f"{_part(near[1], len(b.reached))}. All in all {_price(a.price, b.price)}."
        )
    return lines


def _price(a: int, b: int) -> str:
    """What masks come to beside what there is without."""
    return f"it costs {abs(a - b) / b:.0%} {'more' if a > b else 'less'}" if a != b else "it costs the same"


def _name(way: Way) -> str:
    return f"{way.window // 1000}k | {'masks' if way.mask else 'no masks'}"


def _calls(runs: Sequence[Run], ways: Sequence[Way]) -> list[str]:
    rows = [
        (
            "| window | | masks | summaries | calls for them | read | written | sent | uncached | broken prefixes "
            "| waited | price |"
        ),
        "| --- | --- |" + " ---: |" * 10,
    ]
    for way in ways:
        of = total(runs, way)
        cells = (
            of.masks,
            of.summaries,
            of.asked,
            of.read,
            of.written,
            of.sent,
            of.uncached,
            of.broken,
            of.waited,
            of.price,
        )
        rows.append(f"| {_name(way)} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    return rows


def _each(runs: Sequence[Run], pair: Sequence[Way], talks: Sequence[Talk]) -> list[str]:
    rows = [
        "Each cell: with masks / without.\n",
        "| conversation | calls | summaries | read | sent | uncached | broken prefixes | price |",
        "| --- |" + " ---: |" * 7,
    ]
    for talk in talks:
        a, b = (total(runs, way, talk.name) for way in pair)
        if not a.runs:
            continue
        both = [
            f"{x:,} / {y:,}"
            for x, y in (
                (a.summaries, b.summaries), (a.read, b.read), (a.sent, b.sent), (a.uncached, b.uncached),
                (a.broken, b.broken), (a.price, b.price),
            )
        ]  # fmt: skip
        rows.append(f"| **{talk.name}**: {talk.about} | {a.calls:,} | " + " | ".join(both) + " |")
    return rows


def _recall(runs: Sequence[Run], ways: Sequence[Way]) -> list[str]:
    rows = [
        (
            "| window | | summary | in the context | one number away | first answer | right place | by search "
            "| right hits | not found | to read |"
        ),
        "| --- | --- | --- |" + " ---: |" * 8,
    ]
    for way in ways:
        found = total(runs, way).reached
        near, far = [n for n in found if n.place == "number"], [n for n in found if n.place in ("search", "nowhere")]
        cells = (
            _share(found, "context"), _share(found, "number"), _part(sum(n.first for n in near), len(near)),
            _part(sum(n.right for n in near), sum(n.of for n in near)), _share(found, "search"),
            _part(sum(n.right for n in far), sum(n.of for n in far)), _share(found, "nowhere"),
            f"{sum(n.tokens for n in found):,}",
        )  # fmt: skip
        writer = "remembers nothing" if way.writer == "forgetful" else "`extract`"
        rows.append(f"| {_name(way)} | {writer} | " + " | ".join(cells) + " |")
    return rows


def _by_lag(runs: Sequence[Run], pair: Sequence[Way]) -> list[str]:
    rows = [
        "Each cell: with masks / without.\n",
        "| results since | needed | in the context | one number away | by search | not found |",
        "| ---: |" + " ---: |" * 5,
    ]
    for lag in LAGS:
        sides = [[n for n in total(runs, way).reached if n.lag == lag] for way in pair]
        cells = [
            " / ".join(f"{sum(n.place == place for n in side):,}" for side in sides)
            for place in ("context", "number", "search", "nowhere")
        ]
        rows.append(f"| {lag} | {len(sides[0])} | " + " | ".join(cells) + " |")
    return rows


_COMPARED: tuple[tuple[str, Callable[[Sum], int]], ...] = (
    ("more tokens are sent to the agent's model", lambda s: s.sent),
    ("more of them are uncached", lambda s: s.uncached),
    ("the prefix breaks more often", lambda s: s.broken),
    ("the summarizer reads more", lambda s: s.read),
    ("more calls wait", lambda s: s.waited),
    ("the price is higher", lambda s: s.price),
    ("less of what is needed is in the context", lambda s: -sum(n.place == "context" for n in s.reached)),
    ("more of what is needed is not found", lambda s: sum(n.place == "nowhere" for n in s.reached)),
)  # fmt: skip


def _worse(runs: Sequence[Run], ways: Sequence[Way], talks: Sequence[Talk]) -> list[str]:
    """Every comparison that masks lose, over all conversations, and in how many of them."""
    lines: list[str] = []
    for on in (w for w in ways if w.mask):
        off = Way(on.window, mask=False)
        for what, of in _COMPARED:
            a, b = of(total(runs, on)), of(total(runs, off))
            each = [of(total(runs, on, t.name)) > of(total(runs, off, t.name)) for t in talks]
            if a > b:
                lines.append(
                    f"- In a window of {on.window:,}, {what}: {abs(a):,} against {abs(b):,}"
                    f"{_percent(abs(a), abs(b))}; in {sum(each)} of {len(each)} conversations."
                )
    if not lines:
        return ["Nowhere in the sums above."]
    return [
        "A mask leaves more in the context than a summary does, so the next comes sooner, and each breaks the prefix.",
        "These sums are worse with masks:\n",
        *lines,
    ]


def _nothing(runs: Sequence[Run], ways: Sequence[Way]) -> list[str]:
    """Where no mask was made though summaries were."""
    lines = []
    for on in (w for w in ways if w.mask):
        names = [r.talk for r in total(runs, on).runs if not r.masks and r.summaries]
        if names:
            lines.append(
                f"- In a window of {on.window:,}, no mask is made in {', '.join(names)}: the ten newest results stay, "
                "and the rest is too little."
            )
    return lines


def _percent(a: int, b: int) -> str:
    return f" ({(a - b) / b:+.0%})" if b else ""


def _share(found: Sequence[Reached], place: Place) -> str:
    return _part(sum(n.place == place for n in found), len(found))


def _part(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "-"
