"""Which records an index holds for a query, the best first.

A record is weighed by what is looked for and stands in it, the rarer the more, in other forms a little less. To a query
that says more than a name also counts what stands around a record: the question before an answer, the call before its
result. That is weighed when it is asked, and less than the record itself; nothing of it is stored.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import log, log2

from onefold.recall.hits import REACH
from onefold.recall.index import IndexedUpTo, IndexRows, Neighbour
from onefold.recall.query import NEAR, Phrase, Query, Row, parts_of
from onefold.recall.searchable_text import Part
from onefold.recall.word_forms import with_forms

_BEHIND, _BEHIND_FALL = 0.5, 0.72
"""How well something stands for the record right behind the one it was said in, and how fast that falls."""
_BEFORE, _BEFORE_FALL = 0.3, 0.65
_ANSWERED = (0.85, 0.5)
"""The same for the two records behind a question or a call."""
_TOOL_STEP = 0.5
"""Calls and results follow closely: a step to one is shorter."""
_FAR = 4.0
_TOOLS = (Part.CALL, Part.RESULT)
_LEADING = (Part.CALL, Part.QUESTION)
_APART = 6 * 3600.0
_APART_WEIGHT = 0.3
"""What was said hours before or later belongs less to a record."""
_HELD = 2000
"""The newest records that are looked at for a word: one that is in more of them says little."""
_CENTERS = 100
_CANDIDATES = 300
"""Records whose neighbours are looked at, and records that are put in order by their length and their time too."""
_USUAL = 300
"""Characters of a usual message. In longer ones more words stand by chance."""
_LENGTH_WEIGHT = 0.08
_TIME_WEIGHT = 2.0
_WHOLE = 1e6
"""Puts records with all of the words before all others."""
_FOLLOWING = 0.25
"""What two words in a row weigh more than apart, of what they weigh."""


@dataclass(frozen=True, slots=True)
class Ranking:
    query: Query
    """With the forms of its words that the index has."""
    found: tuple[tuple[str, int], ...]
    """Sessions and numbers, the best first and of equals the newest."""


@dataclass(slots=True)
class _Held:
    """What holds a phrase."""

    records: dict[int, float]
    """Each with how well the phrase stands in it."""
    weight: float
    full: bool = False
    """Older ones were not looked at."""


def rank(entries: IndexRows, asked: Query, scopes: Sequence[IndexedUpTo] | None, most: int) -> Ranking:
    """In some sessions, or in all of them."""
    query = with_forms(asked, entries.words_from)
    search = _Search(entries, scopes)
    held = [search.held(phrase) for phrase in query.wanted]
    parts = [part for phrase, one in zip(query.wanted, held, strict=True) if not one.records for part in _parts(phrase)]
    if parts:
        query = with_forms(replace(query, parts=tuple(parts)), entries.words_from)
        held += [search.held(phrase) for phrase in query.parts]
    search.complete(query.wanted, held)
    held += search.following(query.wanted, held)
    scores = _own(held)
    for span in query.times:
        if span.bounds is not None:
            for id in entries.dated(*span.bounds, _HELD):
                scores.setdefault(id, 0.0)
    for id in frozenset.intersection(*(_whole(one) for one in held[: len(query.wanted)])):
        scores[id] += _WHOLE
    if query.asks:
        _add_beside(scores, held, entries.around(_best(scores, _CENTERS), REACH))
    ranked = []
    for one in entries.named(_best(scores, max(_CANDIDATES, 3 * most))):
        whole, score = divmod(scores[one.id], _WHOLE)
        score += sum(_TIME_WEIGHT for span in query.times if span.holds(one.at))
        score /= 1 + _LENGTH_WEIGHT * log2(1 + one.length / _USUAL)
        ranked.append((whole, round(score, 6), one.at, one.id, one.session, one.number))
    ranked.sort(reverse=True)
    return Ranking(query, tuple((session, number) for *_, session, number in ranked))


def _best(scores: dict[int, float], most: int) -> list[int]:
    return [id for _, id in heapq.nlargest(most, zip(scores.values(), scores.keys(), strict=True))]


def _parts(phrase: Phrase) -> Iterator[Phrase]:
    return (Phrase((word,), weight=0.5) for word in parts_of(phrase))


def _whole(held: _Held) -> frozenset[int]:
    return frozenset(id for id, weight in held.records.items() if weight >= NEAR)


def _own(held: Iterable[_Held]) -> dict[int, float]:
    """What each record weighs by itself."""
    scores: dict[int, float] = {}
    for one in held:
        for id, weight in one.records.items():
            scores[id] = scores.get(id, 0.0) + one.weight * weight
    return scores


def _add_beside(scores: dict[int, float], held: Sequence[_Held], around: Iterable[Neighbour]) -> None:
    """Adds to records what stands beside them, as far as it does not stand in themselves. The best of each phrase
    counts, and not each time that it is said."""
    beside: list[dict[int, float]] = [{} for _ in held]
    for center, group in groupby(around, key=lambda one: one.center):
        row = [*group]
        here = next(i for i, one in enumerate(row) if one.id == center)
        near = [*_near(row, here)]
        for one, found in zip(held, beside, strict=True):
            if (weight := one.records.get(center)) is not None:
                for id, nearness in near:
                    found[id] = max(found.get(id, 0.0), weight * nearness)
    for one, found in zip(held, beside, strict=True):
        for id, weight in found.items():
            if (more := weight - one.records.get(id, 0.0)) > 0:
                scores[id] = scores.get(id, 0.0) + one.weight * more


def _estimate(newest: Iterable[int], size: int) -> float:
    """How many records hold something, by how close together the newest of them lie."""
    ids = [*newest]
    return len(ids) * size / (max(ids) - min(ids) + 1)


def _near(row: Sequence[Neighbour], here: int) -> Iterator[tuple[int, float]]:
    """The records around one, each with how well what was said in that one stands for it."""
    center = row[here]
    for others, first, fall in ((row[here + 1 :], _BEHIND, _BEHIND_FALL), (row[:here][::-1], _BEFORE, _BEFORE_FALL)):
        far = 0.0
        for place, other in enumerate(others):
            far += _TOOL_STEP if other.part in _TOOLS else 1.0
            if far > _FAR:
                break
            nearness = first * fall ** (far - 1)
            if first == _BEHIND and center.part in _LEADING and place < len(_ANSWERED):
                nearness = max(nearness, _ANSWERED[place])
            yield other.id, nearness * (_APART_WEIGHT if abs(other.at - center.at) > _APART else 1.0)


class _Search:
    """Looks phrases up in the index, in some sessions or in all."""

    def __init__(self, entries: IndexRows, scopes: Sequence[IndexedUpTo] | None) -> None:
        self._entries = entries
        self._among = "" if scopes is None else " OR ".join(f'"{scope.scope}"' for scope in scopes)
        self._size = entries.size(scopes)

    def held(self, phrase: Phrase) -> _Held:
        records: dict[int, float] = {}
        full = False
        for weight, expression in _by_weight(phrase):
            found = self._holding(expression)
            full |= len(found) == _HELD
            for id in found:
                records.setdefault(id, weight)
        return _Held(
            records, phrase.weight * self._rarity(_estimate(records, self._size) if full else len(records)), full
        )

    def complete(self, phrases: Sequence[Phrase], held: Sequence[_Held]) -> None:
        """Finds what was left out because newer records hold the same words: those that hold all of them, and those
        that hold a rare one."""
        full = [i for i, one in enumerate(held[: len(phrases)]) if one.full]
        if not full or len(phrases) < 2:
            return
        every = self._holding(" AND ".join(_typed(phrase) for phrase in phrases))
        rare = " OR ".join(_typed(p) for i, p in enumerate(phrases) if i not in full)
        for i in range(len(phrases)):
            found = self._holding(f"{_typed(phrases[i])} AND ({rare})") if i in full and rare else []
            for id in (*every, *found):
                held[i].records.setdefault(id, 1.0)

    def following(self, phrases: Sequence[Phrase], held: Sequence[_Held]) -> list[_Held]:
        """Words that stand in a row in the query, and so in a record."""
        made = []
        for i in range(len(phrases) - 1):
            one, other = phrases[i], phrases[i + 1]
            plain = len(one.words) == len(other.words) == 1 and not (one.begins or other.begins)
            if plain and not held[i].records.keys().isdisjoint(held[i + 1].records):
                found = self._holding(_quoted((*one.words, *other.words)))
                weight = _FOLLOWING * (held[i].weight + held[i + 1].weight)
                made.append(_Held(dict.fromkeys(found, 1.0), weight))
        return made

    def _rarity(self, count: float) -> float:
        return log(1 + max(0.0, self._size - count + 0.5) / (count + 0.5)) + 0.05

    def _holding(self, expression: str) -> list[int]:
        text = f"{{said speaker}} : ({expression})"
        return self._entries.holding(f"scope : ({self._among}) AND {text}" if self._among else text, _HELD)


def _by_weight(phrase: Phrase) -> Iterator[tuple[float, str]]:
    """What to look up for a phrase, the best first."""
    yield 1.0, _typed(phrase)
    rows: dict[float, list[str]] = {}
    for row, weight in phrase.rows:
        rows.setdefault(weight, []).append(_quoted(row))
    for word, weight in phrase.forms.items():
        rows.setdefault(weight, []).append(_quoted((word,)))
    for start in phrase.starts:
        rows.setdefault(NEAR, []).append(_quoted((start,)) + " *")
    for weight in sorted(rows, reverse=True):
        yield weight, " OR ".join(rows[weight])


def _typed(phrase: Phrase) -> str:
    return _quoted(phrase.words) + (" *" if phrase.begins else "")


def _quoted(row: Row) -> str:
    """As FTS5 wants words in a row. They hold nothing but letters and digits, so quotes are enough."""
    return '"' + " ".join(row) + '"'
