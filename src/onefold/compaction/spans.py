"""A sentence as words, and what stands at one of them: a name before or after it, a value that begins there. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from onefold.compaction.subjects import word_set

LOOSE, NAMED, EXACT = 1, 2, 3


class Word(NamedTuple):
    text: str
    low: str
    start: int
    end: int
    before: str
    """The bracket or quotation mark that opens on it."""
    after: str
    """The punctuation that follows it."""


class Span(NamedTuple):
    start: int
    end: int
    exact: int


_OPENING, _CLOSING = "([{\"'“`*", ".,;:!?)]}\"'”`*…"
_RAW = re.compile(r"\S+")


def words_of(text: str) -> list[Word]:
    found: list[Word] = []
    for match in _RAW.finditer(text):
        raw, start = match[0], match.start()
        core = raw.lstrip(_OPENING)
        before = raw[: len(raw) - len(core)]
        inner = core.rstrip(_CLOSING)
        if core[len(inner) :].startswith(("'", "\u2019")) and inner.endswith("s") and "'" not in before:
            inner += "'"  # "Maria Santos' room"
        if not inner:
            if found and raw[0] in ",;:-\u2013\u2014":
                found[-1] = found[-1]._replace(after=found[-1].after + raw[0])
            continue
        at = start + len(before)
        low = core[: len(inner)].casefold().replace("’", "'")  # noqa: RUF001
        found.append(Word(core[: len(inner)], low, at, at + len(inner), before, core[len(inner) :]))
    return found


THE = word_set("the our my your this its their his her that these those")
A = word_set("a an")
OF = word_set("of for at in from about on with per to")
NO_NAME = word_set(
    "is are was were be been being will would should shall must can could may might has have had having do does did it "
    "it's that's there's they we you i he she who what which when where why how if and or but so because since not no "
    "never now then than please instead just still again here there today yesterday tomorrow until till unless ok okay "
    "i'd i'll we'll we've we're i've i'm let's you'll they're it'll them me us him isn't wasn't can't don't won't as "
    "anyway though although while whereas whether once before after by also too only really maybe perhaps that "
    "forget drop scrap scratch "
    "changed change moved switched wrong correction sorry wait actually -> => → = thanks hi hey yes yeah ah oh"
)
ACTING = word_set(
    "put use take make set keep note say get got quote mention include add enter write tell give gave try see look "
    "consider call told know need want confirmed noted understood updated here's put remember find note: "
    "latest updated current currently asked using need needed change switch switching move bump raise lower "
    "confirm book send told agreed picked chose choose settled going go went"
)
_BREAKS = frozenset(",;:!?)-\u2013\u2014")


def breaks(word: Word) -> bool:
    return any(c in _BREAKS for c in word.after)


def _stops(word: Word) -> bool:
    """Whether no name has that word in it."""
    return word.low in NO_NAME and word.text != "May"


def name_before(words: Sequence[Word], end: int) -> Span | None:
    """The name that ends before a word: up to its article, or to where its clause begins."""
    at = inner = end
    while at > 0 and end - at < 9:
        word = words[at - 1]
        if at < end and breaks(word):
            break
        if (_stops(word) and word.low not in THE) or word.low.endswith("n't"):
            at = at if inner == end else inner  # "it doesn't work for the | flight"
            break
        at -= 1
        if word.low in THE or word.low in A:
            if at > 1 and words[at - 1].low in OF and words[at - 1].low != "that" and not breaks(words[at - 1]):
                inner = at
                at -= 1
                continue
            break
        if "(" in word.before:
            break
    while at < end and (words[at].low in ACTING or words[at].low in OF or words[at].low == "under"):
        at += 1
    return Span(at, end, 0) if at < end else None


def name_after(words: Sequence[Word], start: int) -> Span | None:
    """The name that begins with a word: up to where its clause ends."""
    at = start
    while at < len(words) and at - start < 10:
        word = words[at]
        if _stops(word) and not (at == start and word.low in THE):
            break
        if at > start and word.low in THE and words[at - 1].low not in OF:
            break
        if word.low in OF and (at + 1 >= len(words) or _stops(words[at + 1]) or is_exact(words[at + 1])):
            break
        if at > start and "(" in word.before:
            break
        at += 1
        if word.after:
            break
    while at > start and words[at - 1].low in OF:
        at -= 1
    return Span(start, at, 0) if at > start and not (at == start + 1 and words[start].low in THE) else None


_DIGIT = re.compile(r"\d")
_MARKED = re.compile(r"\w[/_@\\#:+-]\w|^[/~\\$€£#@.]\S|\w\.\w|[a-z][A-Z]")
NUMBER = re.compile(r"[$€£¥~]?\d[\d.,:]*(?:%|[a-zA-Z]{1,3})?$")
_UNIT_STOPS = NO_NAME | word_set(
    "for as of or and to at on in with late ago long old more less so sharp instead from until since "
    "after before by per"
)
_PARTICLES = word_set("am do de da del di von van der den la le of at by and & the y")
_NOT_NAMES = word_set(
    "one i i'm i'll i've i'd ok okay yes no the a an this that it its it's we you they he she and but so if when not "
    "my our "
    "thanks please also just never always good great nice"
)
_TITLES = word_set("mr mrs ms dr prof")


def is_exact(word: Word) -> bool:
    if word.low.endswith(("'s", "s'")):
        return False
    return _DIGIT.search(word.text) is not None or '"' in word.before or "`" in word.before or "“" in word.before


_ADJECTIVE = re.compile(
    r"^[a-z]+(?:-[a-z]+)*-(?:\w*(?:ed|ing|ly|able|ible|ful)|free|only|based|wide|safe|ready|time|term|to|up|off)$"
)


def is_marked(word: Word) -> bool:
    return is_exact(word) or (
        _MARKED.search(word.text) is not None and "'" not in word.text and not _ADJECTIVE.search(word.low)
    )


def is_named(word: Word) -> bool:
    return word.low in _TITLES or (word.text[0].isupper() and word.low not in _NOT_NAMES and not _stops(word))


_FILLERS = word_set(
    "let's say up down now currently still actually just set at on in under called named to be exactly really only with"
)


def value_at(words: Sequence[Word], start: int, *, fill: bool = True) -> Span | None:
    """The value that begins with a word, perhaps after "now" or "set to"."""
    at = start
    while fill and at < len(words) and words[at].low in _FILLERS and not words[at].after.strip("\"'`"):
        at += 1
    if at >= len(words):
        return None
    first = words[at]
    if first.before[:1] in '"“`' and first.before:
        return _quoted(words, at)
    article = first.low in A or first.low == "the"
    head = at + 1 if article and at + 1 < len(words) else at
    word = words[head]
    if not article and NUMBER.match(word.text):
        return Span(at, _unit_end(words, at), EXACT)
    if word.low in ("n", "p") and head + 2 < len(words) and words[head + 1].text == "=":
        return Span(at, head + 3, EXACT)
    if word.low.endswith(("'s", "s'")):
        return None
    if is_named(word) or (word.text[0].isupper() and is_marked(word)):
        return _named(words, at, head)
    if is_marked(word) and (not article or is_exact(word)):
        return Span(at, head + 1, EXACT)
    return _loose(words, at, head)


def _quoted(words: Sequence[Word], at: int) -> Span | None:
    for end in range(at, min(at + 12, len(words))):
        if any(c in '"”`' for c in words[end].after):
            return Span(at, end + 1, EXACT)
    return None


def _unit_end(words: Sequence[Word], at: int) -> int:
    """Where a number with its unit ends: "1,240", "8 520 words", "2 per year", "9 to 17", "euros a head"."""
    end = at + 1
    while end < len(words) and end - at < 6 and not words[end - 1].after:
        low = words[end].low
        joins = low in ("to", "a", "an", "per", "x") and end + 1 < len(words)
        if joins and low == "to" and (end > at + 1 or not _DIGIT.match(words[end + 1].low)):
            break
        if not joins and (low in _UNIT_STOPS or not (low.isalpha() or NUMBER.match(low) or "-" in low)):
            break
        end += 1
    return end


def _named(words: Sequence[Word], at: int, head: int) -> Span:
    end, exact = head + 1, EXACT if is_marked(words[head]) else NAMED
    while end < len(words) and end - head < 6 and not words[end - 1].after.strip("."):
        word, ended = words[end], words[end - 1].after.startswith(".")
        if ended and words[end - 1].low not in _TITLES:
            break
        if is_named(word) or NUMBER.match(word.text) or word.low == "&":
            end += 1
        elif word.low in _PARTICLES and end + 1 < len(words) and is_named(words[end + 1]) and not word.after:
            end += 2
        elif word.low.isalpha() and end == head + 1 and word.low.endswith(("ion", "model", "test", "plan")):
            end += 1
        else:
            break
    if any(_DIGIT.search(w.text) for w in words[head:end]):
        exact = EXACT
    return Span(at, end, exact)


def _loose(words: Sequence[Word], at: int, head: int) -> Span | None:
    end = head
    while end < len(words) and end - head < 4 and words[end].low not in NO_NAME and words[end].low not in OF:
        end += 1
        if words[end - 1].after:
            break
    return Span(at, end, LOOSE) if end > head else None


def antecedent(words: Sequence[Word], end: int) -> Span | None:
    """The thing with an article that was named last before a word."""
    for at in range(end - 1, -1, -1):
        owner = words[at].low.endswith(("'s", "s'")) and words[at].text[0].isupper()
        if owner or (words[at].low in THE and words[at].low not in ("that", "this", "these", "those")):
            start = at
            while owner and start > 0 and is_named(words[start - 1]) and not words[start - 1].after:
                start -= 1
            while start > 1 and words[start - 1].low in OF and words[start - 2].low not in NO_NAME | ACTING:
                before = name_before(words, start - 1)
                if before is None or words[before.start].low not in THE:
                    break
                start = before.start
            found = name_after(words, start)
            if found is not None and found.end <= end:
                return found
    return None


def the(words: Sequence[Word], at: int) -> bool:
    return at < len(words) and (words[at].low in THE or words[at].low in A)


def ends_up(words: Sequence[Word], end: int) -> bool:
    """Whether "ended up" or "turned out" stands before a word."""
    return end > 1 and words[end - 1].low in ("up", "out") and words[end - 2].low in ("ended", "turned", "turns")


LEADING = word_set(
    "and but so also oh ok okay well right then btw fyi ps hm hmm actually sorry now please wait no yes ah hi hey new "
    "update correction note one more thing as just one again correction"
)


def begins_at(words: Sequence[Word], at: int) -> bool:
    """Whether a clause begins with that word."""
    return at == 0 or breaks(words[at - 1]) or words[at - 1].low in LEADING or words[at - 1].low == "that"
