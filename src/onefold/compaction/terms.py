"""Sentences that say what something is, in whichever order and words: a subject, its value, and the value it had.

"The venue is Villa Serena", "let's go with Villa Serena for the venue", "about the venue: Villa Serena now" are one.
A sentence is read word by word from what joins the two, so the time is that of its length. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from onefold.compaction.subjects import name, plain, word_set

LOOSE, NAMED, EXACT = 1, 2, 3
_MOST_WORDS = 70


class Term(NamedTuple):
    """What a clause says of something."""

    subject: str
    """Its name, in normal form."""
    value: str
    former: str
    """The value that it no longer has, if that is said."""
    changes: bool
    sure: bool
    """The words themselves join subject and value; otherwise they only stand side by side."""
    exact: int
    """How much the value looks like one: `EXACT`, `NAMED` or `LOOSE`."""


class _Word(NamedTuple):
    text: str
    low: str
    start: int
    end: int
    before: str
    """The bracket or quotation mark that opens on it."""
    after: str
    """The punctuation that follows it."""


class _Span(NamedTuple):
    start: int
    end: int
    exact: int


_OPENING, _CLOSING = "([{\"'“`*", ".,;:!?)]}\"'”`*…"
_RAW = re.compile(r"\S+")


def _words(text: str) -> list[_Word]:
    found = []
    for match in _RAW.finditer(text):
        raw, start = match[0], match.start()
        core = raw.lstrip(_OPENING)
        before = raw[: len(raw) - len(core)]
        inner = core.rstrip(_CLOSING)
        if not inner:
            if found and raw[0] in ",;:–—-":
                found[-1] = found[-1]._replace(after=found[-1].after + raw[0])
            continue
        at = start + len(before)
        low = inner.casefold().replace("’", "'")  # noqa: RUF001
        found.append(_Word(inner, low, at, at + len(inner), before, core[len(inner) :]))
    return found


_THE = word_set("the our my your this its their his her that these those")
_A = word_set("a an")
_OF = word_set("of for at in from about on with per to")
_NO_NAME = word_set(
    "is are was were be been being will would should shall must can could may might has have had having do does did it "
    "it's that's there's they we you i he she who what which when where why how if and or but so because since not no "
    "never now then than please instead just still again here there today yesterday tomorrow until till unless ok okay "
    "i'd i'll we'll we've we're i've i'm let's you'll they're it'll them me us him isn't wasn't can't don't won't as "
    "anyway though although while whereas whether once before after by also too only really maybe perhaps that "
    "changed change moved switched wrong correction sorry wait actually -> => → = thanks hi hey yes yeah ah oh"
)
_ACTING = word_set(
    "put use take make set keep note say get got quote mention include add enter write tell give gave try see look "
    "consider call told know need want confirmed noted understood updated here's put remember find note: new newest "
    "latest updated current currently reference asked using need needed change switch switching move bump raise lower "
    "confirm book send told agreed picked chose choose settled going go went"
)
_BREAKS = frozenset(",;:!?–—)")


def _breaks(word: _Word) -> bool:
    return any(c in _BREAKS for c in word.after)


def _name_before(words: Sequence[_Word], end: int) -> _Span | None:
    """The name that ends before a word: up to its article, or to where its clause begins."""
    at = end
    while at > 0 and end - at < 9:  # noqa: PLR2004  no name is longer
        word = words[at - 1]
        if at < end and _breaks(word):
            break
        if word.low in _NO_NAME and word.low not in _THE:
            break
        at -= 1
        if word.low in _THE or word.low in _A:
            if at > 1 and words[at - 1].low in _OF and words[at - 1].low != "that" and not _breaks(words[at - 1]):
                at -= 1
                continue
            break
        if "(" in word.before:
            break
    while at < end and (words[at].low in _ACTING or words[at].low in _OF):
        at += 1
    return _Span(at, end, 0) if at < end else None


def _name_after(words: Sequence[_Word], start: int) -> _Span | None:
    """The name that begins with a word: up to where its clause ends."""
    at = start
    while at < len(words) and at - start < 10:  # noqa: PLR2004  no name is longer
        word = words[at]
        if word.low in _NO_NAME and not (at == start and word.low in _THE):
            break
        if at > start and word.low in _THE and words[at - 1].low not in _OF:
            break
        if word.low in _OF and (at + 1 >= len(words) or words[at + 1].low in _NO_NAME or _is_exact(words[at + 1])):
            break
        at += 1
        if word.after:
            break
    while at > start and words[at - 1].low in _OF:
        at -= 1
    return _Span(start, at, 0) if at > start and not (at == start + 1 and words[start].low in _THE) else None


_DIGIT = re.compile(r"\d")
_MARKED = re.compile(r"\w[/_@\\#:+-]\w|^[/~\\$€£#@.]\S|\w\.\w|[a-z][A-Z]|^[A-Z]{2,}$")
_NUMBER = re.compile(r"[$€£¥~]?\d[\d.,:]*(?:%|[a-zA-Z]{1,3})?$")
_UNIT_STOPS = _NO_NAME | word_set("for as of or and to at on in with late ago long old more less so sharp instead")
_MONTH = re.compile(
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*$|(?:mon|tues|wednes|thurs|fri|satur|sun)day$"
)
_PARTICLES = word_set("am do de da del di von van der den la le of at by and & the y")
_NOT_NAMES = word_set(
    "i i'm i'll i've i'd ok okay yes no the a an this that it its it's we you they he she and but so if when not my our "
    "thanks please also just never always good great nice"
)
_TITLES = word_set("mr mrs ms dr prof")


def _is_exact(word: _Word) -> bool:
    return _DIGIT.search(word.text) is not None or '"' in word.before or "`" in word.before or "“" in word.before


def _is_marked(word: _Word) -> bool:
    return _is_exact(word) or (_MARKED.search(word.text) is not None and "'" not in word.text)


def _is_named(word: _Word) -> bool:
    return word.text[0].isupper() and word.low not in _NOT_NAMES and word.low not in _NO_NAME


_FILLERS = word_set("now currently still actually just set at on in under called named to be exactly really only with")


def _value_at(words: Sequence[_Word], start: int, *, fill: bool = True) -> _Span | None:
    """The value that begins with a word, perhaps after "now" or "set to"."""
    at = start
    while fill and at < len(words) and words[at].low in _FILLERS and not words[at].after.strip("\"'`"):
        at += 1
    if at >= len(words):
        return None
    first = words[at]
    if first.before[:1] in '"“`' and first.before:
        return _quoted(words, at)
    article = first.low in _A or first.low == "the"
    head = at + 1 if article and at + 1 < len(words) else at
    word = words[head]
    if not article and _NUMBER.match(word.text):
        return _Span(at, _unit_end(words, at), EXACT)
    if (word.low == "n" or word.low == "p") and head + 2 < len(words) and words[head + 1].text == "=":
        return _Span(at, head + 3, EXACT)
    if _is_named(word) or (word.text[0].isupper() and _is_marked(word)):
        return _named(words, at, head)
    if _is_marked(word):
        return _Span(at, head + 1, EXACT)
    return _loose(words, at, head)


def _quoted(words: Sequence[_Word], at: int) -> _Span | None:
    for end in range(at, min(at + 12, len(words))):
        if any(c in '"”`' for c in words[end].after):
            return _Span(at, end + 1, EXACT)
    return None


def _unit_end(words: Sequence[_Word], at: int) -> int:
    """Where a number with its unit ends: "1,240", "8 520 words", "2 per year", "9 to 17", "euros a head"."""
    end = at + 1
    while end < len(words) and end - at < 6 and not words[end - 1].after:  # noqa: PLR2004  "12 euros a head each"
        low = words[end].low
        joins = low in ("to", "a", "an", "per", "x") and end + 1 < len(words)
        if joins and low == "to" and not _DIGIT.match(words[end + 1].low):
            break
        if not joins and (low in _UNIT_STOPS or not (low.isalpha() or _NUMBER.match(low) or "-" in low)):
            break
        end += 1
    return end


def _named(words: Sequence[_Word], at: int, head: int) -> _Span:
    end, exact = head + 1, EXACT if _is_marked(words[head]) else NAMED
    while end < len(words) and end - head < 6 and not words[end - 1].after.strip("."):  # noqa: PLR2004
        word, ended = words[end], words[end - 1].after.startswith(".")
        if ended and words[end - 1].low not in _TITLES:
            break
        if _is_named(word) or _NUMBER.match(word.text) or word.low == "&":
            end += 1
        elif word.low in _PARTICLES and end + 1 < len(words) and _is_named(words[end + 1]) and not word.after:
            end += 2
        elif word.low.isalpha() and end == head + 1 and word.low.endswith(("ion", "model", "test", "plan")):
            end += 1
        else:
            break
    if any(_DIGIT.search(w.text) for w in words[head:end]):
        exact = EXACT
    return _Span(at, end, exact)


def _loose(words: Sequence[_Word], at: int, head: int) -> _Span | None:
    end = head
    while end < len(words) and end - head < 4 and words[end].low not in _NO_NAME and words[end].low not in _OF:  # noqa: PLR2004
        end += 1
        if words[end - 1].after:
            break
    return _Span(at, end, LOOSE) if end > head else None


_IS = word_set("is are be becomes become equals reads stays remains being means -> => → =")
_WAS = word_set("was were")
_ITS = word_set("it's that's its")
_CHOOSING = word_set(
    "use uses using take taking with on confirmed confirm pick picked choose chose chosen have got gave gives give "
    "want wants say said suggested approved fixed booked reserved set prefer keep note noted understood call offered "
    "assigned named adopt decided opted for try"
)
_CHANGING = word_set(
    "set change changed changing switch switched switching move moved moving bump bumped raise raised lower lowered "
    "increase increased reduce reduced update updated extend extended correct corrected adjust adjusted shift shifted "
    "shifts slip slipped push pushed went goes go reset rotate rotated rename renamed cut drop dropped migrate migrated "
    "swap swapped turn turned revise revised amend amended bring brought replaced"
)
_MAKING = word_set("make makes making made call name")
_AUXILIARY = word_set("has have had is was were been be got gets just now again to needs need did will being recently")
_CHANGES = re.compile(
    r"\b(?:now|no longer|instead|chang\w+|mov(?:ed|ing|e)|switch\w*|updat\w+|correct\w*|scratch|forget|actually|sorry|"
    r"wrong|new|after all|from (?:here|now|today) on|turns out|turned out|not what i|wait|rather|make (?:that|it|the)|"
    r"mistake\w*|mistyped|misread|misspoke|revis\w+|replac\w+|swap\w*|amend\w*|not any ?more|any ?more|used to be|"
    r"no more|drop\w*|bump\w*|rais\w+|lower\w*|extend\w*|postpone\w*|push\w*|slip\w*|shift\w*|different|it is|it's|"
    r"since|earlier|previous\w*|instead of|set|becomes?|became|goes|went|second thoughts?|better)\b|->|=>|→"
)


def _antecedent(words: Sequence[_Word], end: int) -> _Span | None:
    """The thing with an article that was named last before a word."""
    for at in range(end - 1, -1, -1):
        if words[at].low in _THE and words[at].low not in ("that", "this", "these", "those"):
            start = at
            while start > 1 and words[start - 1].low in _OF and words[start - 2].low not in _NO_NAME | _ACTING:
                before = _name_before(words, start - 1)
                if before is None or before.start == start:
                    break
                start = before.start
            found = _name_after(words, start)
            if found is not None and found.end <= end:
                return found
    return None


class _Reading:
    """One sentence, and what its words say."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = _words(text)
        self.low = plain(text)
        self.changes = _CHANGES.search(self.low) is not None

    def cut(self, span: _Span) -> str:
        words = self.words
        return self.text[words[span.start].start : words[span.end - 1].end]

    def term(self, subject: _Span | None, value: _Span | None, former: str = "", *, sure: bool = True) -> Term | None:
        if subject is None or value is None or value.start < subject.end and subject.start < value.end:
            return None
        called = name(self.cut(subject))
        if not called or _NO_SUBJECT.match(called) or not any(c.isalpha() for c in called):
            return None
        return Term(called[:200], self.cut(value), former, self.changes, sure, value.exact)

    # The ways to say it

    def found(self) -> Iterator[Term | None]:
        for at, word in enumerate(self.words):
            if word.low == "to":
                yield self.moved(at)
            elif word.low in _IS or word.low in _ITS:
                yield self.copula(at)
            elif word.low in _WAS:
                yield self.was(at)
            elif word.low in ("for", "as"):
                yield self.given_for(at)
            if ":" in word.after:
                yield self.colon(at)
            if word.low in _MAKING:
                yield self.made(at)
        yield self.about()

    def moved(self, to: int) -> Term | None:
        """ "Change S to V", "S has moved from X to V"."""
        words = self.words
        verb = next((v for v in range(to - 1, max(-1, to - 14), -1) if words[v].low in _CHANGING), None)
        if verb is None or any(_breaks(w) for w in words[verb:to]):
            return None
        origin = next((n for n in range(verb + 1, to) if words[n].low == "from"), None)
        former = self.cut(_Span(origin + 1, to, 0)) if origin is not None and origin + 1 < to else ""
        end = origin if origin is not None else to
        while end > verb + 1 and words[end - 1].low in ("back", "up", "down", "out", "over"):
            end -= 1
        value = _value_at(words, to + 1)
        if end > verb + 1:
            return self.term(_name_after(words[:end], verb + 1), value, former)
        while verb > 0 and words[verb - 1].low in _AUXILIARY:
            verb -= 1
        return self.term(_name_before(words, verb), value, former)

    def copula(self, at: int) -> Term | None:
        """ "S is V", "V is S", "…, it's V"."""
        words = self.words
        value = _value_at(words, at + 1)
        end = at
        while end > 0 and words[end - 1].low in _MODAL:
            end -= 1
        if words[at].low in _ITS or (end > 0 and words[end - 1].low in ("it", "that", "this")):
            subject = _antecedent(words, at if words[at].low in _ITS else end - 1)
            return self.checked(subject, value)
        if end > 0 and _breaks(words[end - 1]) and words[end - 1].after[:1] == ",":
            return self.checked(_antecedent(words, end), value)  # "the inbound one, on the other hand, is V"
        subject = _name_before(words, end)
        first = self.value_before(end)
        if first is not None and first.exact == EXACT and (value is None or value.exact == LOOSE):
            return self.term(_name_after(words, at + 1), first)
        if subject is None:
            subject = _antecedent(words, end)
        return self.checked(subject, value)

    def checked(self, subject: _Span | None, value: _Span | None) -> Term | None:
        """A value that does not look like one has to be said to change, or to be of the sort of its subject."""
        if subject is None or value is None:
            return None
        if value.exact == LOOSE:
            same = self.words[value.end - 1].low == self.words[subject.end - 1].low
            if not (same or (_CHANGED_NOW.search(self.low) and self.words[subject.start].low in _THE)):
                return None
            if _NO_VALUE.match(self.words[value.start].low):
                return None
        return self.term(subject, value)

    def was(self, at: int) -> Term | None:
        """ "S was X, but we go with V now"."""
        words = self.words
        former = _value_at(words, at + 1)
        if former is None or not words[former.end - 1].after:
            return None
        for then in range(former.end, len(words)):
            if words[then].low in ("with", "use", "take", "to", "is", "be", "it's"):
                value = _value_at(words, then + 1)
                if value is not None and value.exact > LOOSE:
                    return self.term(_name_before(words, at), value, self.cut(former))
        return None

    def given_for(self, at: int) -> Term | None:
        """ "V for S", "use V as S"."""
        words = self.words
        value = self.value_before(at)
        subject = _name_after(words, at + 1)
        if value is None or subject is None:
            return None
        chosen = value.start > 0 and words[value.start - 1].low in _CHOOSING
        if value.exact < EXACT and not chosen and not self.changes:
            return None
        if value.exact == LOOSE and _NO_VALUE.match(words[value.start].low):
            return None
        return self.term(subject, value)

    def value_before(self, end: int) -> _Span | None:
        """The value that ends before a word: it begins after the verb that chooses it, or its clause does."""
        words = self.words
        if end > 2 and [w.low for w in words[end - 2 : end]] == ["it", "is"]:
            end -= 2
        for start in range(max(0, end - 7), end):
            begins = start == 0 or _breaks(words[start - 1]) or words[start - 1].low in _CHOOSING | _STARTS
            if begins or _is_marked(words[start]) or _is_named(words[start]):
                value = _value_at(words, start, fill=False)
                if value is not None and value.end == end and (begins or value.exact > LOOSE):
                    return value
        return None

    def colon(self, at: int) -> Term | None:
        """ "S: V", "S had to change: V"."""
        words = self.words
        value = _value_at(words, at + 1)
        end = at + 1
        while end > 0 and words[end - 1].low in _CHANGING | _AUXILIARY | {"change", "again"}:
            end -= 1
        subject = _name_before(words, end)
        if subject is None or value is None:
            return None
        changed = end <= at
        starts = subject.start == 0 or _breaks(words[subject.start - 1])
        starts = starts or all(w.low in _LEADING or _breaks(w) for w in words[: subject.start])
        there = words[subject.start].low in _THE
        if value.exact == LOOSE and not (changed or (starts and self.changes) or self._of_its_sort(subject, value)):
            return None
        ends = value.end == len(words) or bool(words[value.end - 1].after) or value.exact == EXACT
        return self.term(subject, value) if (starts or there or changed) and ends else None

    def _of_its_sort(self, subject: _Span, value: _Span) -> bool:
        return self.words[value.end - 1].low == self.words[subject.end - 1].low

    def made(self, at: int) -> Term | None:
        """ "Make S V"."""
        words = self.words
        if at + 2 >= len(words) or words[at + 1].low not in _THE - {"that", "this"}:
            return None
        for start in range(at + 3, min(at + 9, len(words))):
            value = _value_at(words, start, fill=False)
            ends = value is not None and (value.end == len(words) or bool(words[value.end - 1].after))
            marked = words[start].low in _A or words[start].low == "the" or _is_marked(words[start])
            if value is not None and ends and (marked or _is_named(words[start])):
                return self.term(_Span(at + 1, start, 0), value)
            if words[start].low in _NO_NAME:
                return None
        return None

    def about(self) -> Term | None:
        """ "For S, use V", "about S: V now", "for S we're going with V"."""
        words = self.words
        at = 0
        while at < len(words) and (words[at].low in _LEADING) and words[at].low not in _ABOUT:
            at += 1
        if at >= len(words) or words[at].low not in _ABOUT:
            return None
        start = at + 1 + (words[at].low == "as" and words[at + 1 : at + 2] != [] and words[at + 1].low == "for")
        subject = _name_after(words, start)
        if subject is None:
            return None
        then = subject.end
        for verb in range(then, min(then + 9, len(words))):
            if words[verb].low in _CHOOSING | {"say", "be", "is", "it's", "agreed", "to"}:
                value = _value_at(words, verb + 1)
                if value is not None and not _NO_VALUE.match(words[value.start].low):
                    if value.exact == LOOSE and words[value.start].low in _CHOOSING:
                        continue
                    return self.term(subject, value)
        value = _value_at(words, then)
        return self.term(subject, value) if value is not None and value.exact > LOOSE and then else None

    def beside(self) -> Term | None:
        """The one exact value, with what stands before it or is named last: "order number A-12", "the flag (exp_2)"."""
        words = self.words
        spans = [v for n in range(len(words)) if _is_exact(words[n]) and (v := self._exactly_at(n)) is not None]
        apart = [s for n, s in enumerate(spans) if n == 0 or s.start >= spans[n - 1].end]
        if len(apart) != 1:
            return None
        value = apart[0]
        subject = _name_before(words, value.start)
        if subject is None or words[subject.start].low in _ACTING:
            subject = _antecedent(words, value.start) or _antecedent(words, len(words))
        if subject is not None and subject.end > value.start and subject.start < value.start:
            subject = _Span(subject.start, value.start, 0)
        return self.term(subject, value, sure=False)

    def _exactly_at(self, at: int) -> _Span | None:
        words = self.words
        if at > 0 and _is_named(words[at - 1]) and not words[at - 1].after and at > 1 and _NUMBER.match(words[at].text):
            value = _value_at(words, at - 1, fill=False)
        else:
            value = _value_at(words, at, fill=False)
        return value if value is not None and value.exact == EXACT else None


_MODAL = word_set("will should must shall has have to needs need can may would going now currently also is still")
_STARTS = word_set("so that's and but then ok okay now maybe rather actually no wait sorry of than about")
_ABOUT = word_set("for about regarding concerning re on as with")
_LEADING = word_set(
    "and but so also oh ok okay well right then btw fyi ps hm hmm actually sorry now please wait no yes ah hi hey new "
    "update correction note one more thing as just one again correction"
)
_NO_SUBJECT = re.compile(
    r"(?:thing|point|idea|question|problem|way|time|reason|everything|something|anything|nothing|one|it|that|this|"
    r"which|who|what|here|there|rule|note|fyi|btw|ps|update|correction|plan|day|lot|number one|first|second|"
    r"(?:file|link|copy|original|result|output|version|draft|folder|detail|info|place|today|week|case)s?"
    r"(?: (?:that|which|for later).*)?)$"
)
_NO_VALUE = re.compile(
    r"(?:not|no|very|too|so|fine|good|bad|ok|okay|great|nice|slow|broken|down|up|gone|wrong|right|missing|ready|done|"
    r"important|clear|unclear|open|closed|free|full|empty|late|early|it|that|this|what|me|us|you|now|again|over|off|"
    r"much|more|less|always|never|only|all|sure|happy|glad|sorry|weird|odd|strange|better|worse|same|there|here|"
    r"working|running|failing|forgotten|forbidden|allowed|required|mandatory|\w+(?:ed|ing|ly))$"
)
_CHANGED_NOW = re.compile(
    r"\b(?:is|are|will be|be|it's) now\b|\bnow\W*$|\b(?:correction|scratch that|change of plans?|update|instead|"
    r"after all|turns out|not what i said|wrong|from (?:here|now) on|forget|decided|agreed)\b"
)


_CLAUSE = re.compile(r"(?:;|,? and|,? while|,? whereas|,? but|,) (?=\S)")


@lru_cache(maxsize=4096)
def term(text: str) -> Term | None:
    """What a clause says of something: the surest reading, the one whose value looks most like one."""
    reading = _Reading(text)
    if not 1 < len(reading.words) <= _MOST_WORDS:
        return None
    best: Term | None = None
    for found in reading.found():
        if found is not None and (best is None or found.exact > best.exact):
            best = found
    best = best or reading.beside()
    return best._replace(former=_former(reading.low, best)) if best is not None and not best.former else best


_FORMER = re.compile(
    r"\b(?:instead of|not|rather than|forget|no longer|was|out|drop|over|replaces|(?:turns|turned) out)\s+"
    r"(?P<what>[^,;!?]{1,60}?)(?=$|[,;!?]|\.(?:\s|$)|\s(?:any ?more|but|doesn't|does not|for|anymore|didn't|won't|is|fell)\b)"
)


def _former(low: str, found: Term) -> str:
    """The value that is named as the old one."""
    for match in _FORMER.finditer(low):
        what = match["what"].strip()
        if any(c.isalnum() for c in what) and plain(found.value) not in what:
            return what
    return ""


def shape(value: str) -> str:
    """What sort of value it is: the same for two dates, for two flights, for two sums."""
    signs = []
    for word in _words(value):
        if _MONTH.match(word.low):
            signs.append("month")
        elif _NUMBER.match(word.text):
            signs.append("$0" if word.text[0] in "$€£¥" else "0:0" if ":" in word.text else "0")
        elif _is_marked(word):
            signs.append("code")
        elif word.text[0].isupper():
            signs.append("A")
        elif word.low not in _THE and word.low not in _A:
            signs.append("unit" if signs[-1:] == ["0"] else "a")
    return " ".join(dict.fromkeys(signs))
