"""Whether a later fact takes an earlier one's place: the same matter, said anew. In doubt it does not. Pure.

What carries a value goes by its subject, whichever kind it is: a decision for the venue ends with the venue's new name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from onefold.compaction.subjects import Choice, choice, is_bare, order, plain, stem, tokens
from onefold.compaction.terms import Term, alike, shape, term
from onefold.model import Fact

_CHOOSING = frozenset({"decision", "preference"})
_VALUED = frozenset({"identifier", "limit", "decision", "preference"})


def replaced(fact: Fact, by: Sequence[Fact]) -> list[Fact]:
    """Those of earlier facts whose place a later one takes. Where it cannot be told, none."""
    same = [f for f in by if (f.kind, f.key) == (fact.kind, fact.key)]
    others = [f for f in by if f not in same]
    return [*same, *_values_replaced(fact, others)] or _otherwise_replaced(fact, by)


def adopted(fact: Fact, gone: Sequence[Fact]) -> Fact:
    """A fact that took the place of one with a longer name is called that too, so that both names still mean it."""
    new = _said(fact)
    longer = [
        f for f in gone if (old := _said(f)) is not None and new is not None and new.words < old.words and old.sure
    ]
    return replace(fact, key=longer[-1].key) if longer and new is not None and new.sure else fact


def _otherwise_replaced(fact: Fact, earlier: Sequence[Fact]) -> list[Fact]:
    match fact.kind:
        case "rule":
            return _orders_replaced(fact, [f for f in earlier if f.kind == "rule"])
        case "decision" | "preference":
            return [f for f in earlier if f.kind in _CHOOSING and _chosen_otherwise(choice(fact.text), choice(f.text))]
        case "effect":
            return [f for f in earlier if f.kind == "open" and _is_done(fact.key, f.key)]
    return []


class _Said(NamedTuple):
    """What a fact says of which subject."""

    words: frozenset[str]
    term: Term | None
    sure: bool


def _said(fact: Fact) -> _Said | None:
    """The subject that a fact gives a value to; None if it does not."""
    if fact.kind not in _VALUED or is_bare(fact):
        return None
    read = term(fact.text)
    if read is not None and read.subject and not read.sure and fact.key.startswith(f"{read.subject} "):
        return _Said(_words(read.subject), read, False)
    if fact.kind in _CHOOSING and (read is None or not set(read.subject.split()) <= set(fact.key.split())):
        return None
    return _Said(_words(fact.key), read, True)


def _words(key: str) -> frozenset[str]:
    return frozenset(stem(w.removesuffix("'s")) for w in key.split())


def _values_replaced(fact: Fact, earlier: Sequence[Fact]) -> list[Fact]:
    """Values of the same subject. By a shorter or longer name only what is said to change, if one alone is meant."""
    new = _said(fact)
    if new is None or not new.words:
        return []
    changes = new.term is not None and new.term.changes
    if not new.sure and not changes:
        return []
    if new.term is None or not new.term.former:
        named = []
    else:
        named = [f for f in earlier if _tells_of(f, new.words) and _has(f.text, new.term.former)]
    told = [(f, old) for f in earlier if (old := _said(f) or _told(f)) is not None and old.words]
    same = [f for f, old in told if old.words == new.words and _fits(new, old)]
    if same or named or new.term is None or not changes:
        return [*same, *(f for f in named if f not in same)]
    near = [(f, old) for f, old in told if old.words < new.words or new.words < old.words]
    return _only(new.term, near)


_TELLING = frozenset({"rule", "effect", "identifier", "limit", "decision", "preference"})


def _told(fact: Fact) -> _Said | None:
    """The subject of a fact that goes by another key: a rule or a choice that gives something a value all the same."""
    read = term(fact.text) if fact.kind in _TELLING and not is_bare(fact) else None
    return _Said(_words(read.subject), read, False) if read is not None and read.sure else None


def _fits(new: _Said, old: _Said) -> bool:
    return old.sure or new.term is None or old.term is None or alike(new.term.value, old.term.value)


def _tells_of(fact: Fact, words: frozenset[str]) -> bool:
    """Whether a fact is about one of these words at least."""
    return fact.kind in _TELLING and not is_bare(fact) and not words.isdisjoint(map(stem, tokens(fact.text)))


def _only(new: Term, near: Sequence[tuple[Fact, _Said]]) -> list[Fact]:
    """The one that can be meant: the only one, or the only one with a value of that sort."""
    near = [(f, old) for f, old in near if old.term is None or alike(old.term.value, new.value)]
    if len({old.words for _, old in near}) > 1:
        near = [(f, old) for f, old in near if old.term is not None and shape(old.term.value) == shape(new.value)]
    return [f for f, _ in near] if len({old.words for _, old in near}) == 1 else []


def _has(text: str, value: str) -> bool:
    return f" {plain(value)} " in f" {plain(text).rstrip('.')} "


def _orders_replaced(fact: Fact, rules: Sequence[Fact]) -> list[Fact]:
    new = order(fact.text)
    if new.condition or not new.base:
        return []
    if new.names_rule:
        named = [f for f in rules if set(new.base) <= {*order(f.text).base, *order(f.text).condition}]
        return named if len(named) == 1 else []
    return [f for f in rules if (old := order(f.text)).way != new.way and old.base == new.base]


def _chosen_otherwise(new: Choice, old: Choice) -> bool:
    if not new.chosen or not old.chosen or new.chosen == old.chosen:
        return False
    if new.purpose != old.purpose and (new.purpose or not new.changes):
        return False
    if set(new.chosen[:1]) & old.rejected or new.rejected & set(old.chosen):
        return True
    if not new.changes or new.purpose != old.purpose:
        return False
    same_sort = len(new.chosen) == len(old.chosen) == 2 and new.chosen[1] == old.chosen[1]  # dark mode, light mode
    return bool(new.purpose) or same_sort


def _is_done(done: str, left: str) -> bool:
    """Whether an effect is the end of open work: the same act on the same thing, perhaps told in more words."""
    still, over = left.split(), done.split()
    return still[:1] == over[:1] and set(still) <= set(over)
