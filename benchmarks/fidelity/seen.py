"""A context as a model sees it: the quotes one by one, the rest message by message, and what stands in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import zip_longest

from benchmarks.fidelity.talks import End, Planted, Trap, text
from onefold import Context

ORDERS = frozenset({"rule", "limit", "preference"})
"""Labels that tell an agent what to do."""
_NEAR = 400
"""Characters within which the parts of a fact have to stand."""
_ENTRY = re.compile(r"^#(\d+)(?: \(([^)]*)\))?[^>:\n]*[>:]", re.MULTILINE)
"""Where the quotation of a message begins: `#12 (rule)>`. Its other lines are marked."""


@dataclass(frozen=True, slots=True)
class Quoted:
    """What is quoted of one message."""

    number: int
    words: str


@dataclass(frozen=True, slots=True)
class Seen:
    texts: tuple[str, ...]
    """All messages, in order."""
    quotes: tuple[Quoted, ...]
    """In order; of one message the stretches together."""
    labels: frozenset[int]
    """Messages that are shown as something the agent was told to do."""


def seen(context: Context) -> Seen:
    texts = tuple(text(message) for message in context.messages)
    made_up = (words for number, words in zip(context.numbers, texts, strict=True) if number == 0)
    quotes: list[Quoted] = []
    labels = {fact.source for fact in context.facts if fact.kind in ORDERS and not fact.until}
    for words in made_up:
        heads = list(_ENTRY.finditer(words))
        for head, after in zip_longest(heads, heads[1:]):
            quotes.append(Quoted(int(head[1]), words[head.end() : after.start() if after else None]))
            if ORDERS & {*(head[2] or "").split(", ")}:
                labels.add(int(head[1]))
    if {one.number for one in quotes} != {one.number for one in context.quotes}:
        raise RuntimeError("the quotes of a context are not read as they are written")
    return Seen(texts, tuple(quotes), frozenset(labels))


# ------------------------------------------------------------------ what is held


def holds(fact: Planted, texts: Iterable[str]) -> bool:
    """Whether all that is needed of a fact stands together in one of the texts, word for word."""
    return any(_together([plain(need) for need in fact.needs], plain(words)) for words in texts)


def _together(needs: Sequence[str], words: str) -> bool:
    if not all(need in words for need in needs):
        return False
    *names, value = needs
    return any(
        all(name in words[max(0, at.start() - _NEAR) : at.end() + _NEAR] for name in names)
        for at in _word(value).finditer(words)
    )


def only_former(fact: Planted, texts: Sequence[str]) -> bool:
    """Whether a former value stands with its name, and the present one nowhere."""
    names = fact.needs[:-1]
    former = (Planted(fact.kind, (*names, value)) for value in fact.stale)
    return not holds(fact, texts) and any(holds(one, texts) for one in former)


# ------------------------------------------------------------------ what must not be


def shown(trap: Trap, view: Seen) -> bool:
    """Whether words of it are quoted."""
    return any(plain(order) in plain(one.words) for one in view.quotes for order in trap.orders)


def torn(trap: Trap, view: Seen, numbers: Sequence[int]) -> bool:
    """Whether words of it are quoted without those that introduce it: in the same message, or the one before."""
    intro = plain(trap.intro)
    for place, one in enumerate(view.quotes):
        if not any(plain(order) in plain(one.words) for order in trap.orders):
            continue
        before = view.quotes[place - 1] if place else None
        led = before is not None and before.number == numbers[trap.intro_at] and intro in plain(before.words)
        if not led and intro not in plain(one.words):
            return True
    return False


def labelled(trap: Trap, view: Seen, numbers: Sequence[int]) -> bool:
    return numbers[trap.at] in view.labels


ORDERED, ALONE, NEITHER, ONLY_END = "in order", "alone", "neither", "the end only"


def ended(end: End, view: Seen) -> str:
    """How something that was taken back is shown."""
    everything = plain("\n".join(view.texts))
    said, over = everything.find(_bare(end.said)), everything.rfind(_bare(end.ended))
    if said < 0:
        return NEITHER if over < 0 else ONLY_END
    return ORDERED if over > said else ALONE


def _bare(words: str) -> str:
    return plain(words).rstrip(".。!?")


# ------------------------------------------------------------------ words


@cache
def _word(value: str) -> re.Pattern[str]:
    """The value alone: not as the beginning or the end of a longer name, path or number."""
    return re.compile(rf"(?<![A-Za-z0-9_/.-]){re.escape(value)}(?![A-Za-z0-9_-]|[./][A-Za-z0-9])")


@lru_cache(maxsize=50_000)
def plain(words: str) -> str:
    """Without what a phone, a line break, or a mark of quotation at the beginning of a line changes."""
    unmarked = re.sub(r"(?m)^[ \t]*>[ \t]?", "", words.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    return " ".join(unmarked.split()).casefold()
