"""Sentences that say what something is, in whichever order and words: a subject, its value, and the value it had.

"The venue is Villa Serena", "let's go with Villa Serena for the venue", "about the venue: Villa Serena now" are one.
A sentence is read word by word from what joins the two, so the time is that of its length. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from onefold.compaction.spans import (
    ACTING,
    EXACT,
    LEADING,
    LOOSE,
    NAMED,
    NO_NAME,
    NUMBER,
    OF,
    THE,
    A,
    Span,
    antecedent,
    begins_at,
    breaks,
    ends_up,
    is_exact,
    is_marked,
    is_named,
    name_after,
    name_before,
    the,
    value_at,
    words_of,
)
from onefold.compaction.subjects import name, plain, word_set

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


_MONTH = re.compile(
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?|(?:mon|tues|wednes|thurs|fri|satur|sun)day|tomorrow|today)$"
)
_IS = word_set("stands sits lies is are be became becomes become equals reads stays remains being means -> => → =")
_ARROWS = word_set("-> => →")
_WAS = word_set("was were")
_ITS = word_set("it's that's its")
_CHOOSING = word_set(
    "use uses using take taking with on confirmed confirm pick picked choose chose chosen have got gave gives give "
    "want wants say said suggested approved fixed booked reserved set prefer keep offered "
    "assigned named adopt decided opted for try be"
)
_USING = word_set("use uses using have want wants keep prefer got try say said call gave give")
"""What is used for something is not what it is: "use Redis for the cache"."""
_ASKING = word_set(
    "ask asked asking thank thanks thanked tell told call called wait waiting met meet see saw know blame blamed "
    "pay paid "
    "to by from of and than is are was with on in at about"
)
_GOING = word_set(
    "go going goes gone went settle settled agree agreed decide decided opt opted stick sticking stay staying landed"
)
_CHANGING = word_set(
    "set change changed changing switch switched switching move moved moving bump bumped raise raised lower lowered "
    "increase increased reduce reduced update updated extend extended correct corrected adjust adjusted shift shifted "
    "shifts slip slipped moves comes changes postponed postpone delayed delay rescheduled reschedule slips drops rises "
    "shorten shortened cuts fell falls rose grew shrunk amounts forward "
    " push pushed went goes go reset rotate rotated rename renamed cut drop dropped migrate migrated "
    "swap swapped turn turned revise revised amend amended bring brought replaced"
)
_SETTLED = word_set("change again fixed settled agreed decided confirmed")
_SETTING = word_set("set change changed changing switch switched switching swap swapped")
_REPLACING = word_set("replace replaces replaced replacing swap swaps swapped exchange succeeds substitute")
_MAKING = word_set("make makes making made call name")
_AUXILIARY = word_set("has have had is was were been be got gets just now again to needs need did will being recently")
_CHANGES = re.compile(
    r"\b(?:now|no longer|instead|chang\w+|mov(?:ed|ing|e)|switch\w*|updat\w+|correct\w*|scratch|forget|actually|sorry|"
    r"wrong|new|after all|from (?:here|now|today) on|turns out|turned out|not what i|wait|rather|make (?:that|it|the)|"
    r"mistake\w*|mistyped|misread|misspoke|revis\w+|replac\w+|swap\w*|amend\w*|not any ?more|any ?more|used to be|"
    r"bump\w*|rais\w+|lower\w*|increas\w+|decreas\w+|reduc\w+|cut|extend\w*|postpone\w*|push\w*|slip\w*|"
    r"shift\w*|reschedul\w+|becomes?|became|goes|went|second thoughts?|it is\W*$|it is for)\b|->|=>|→"
)


class _Reading:
    """One sentence, and what its words say."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = words_of(text)
        self.low = plain(text)
        self.changes = _CHANGES.search(self.low) is not None

    def cut(self, span: Span) -> str:
        words = self.words
        return self.text[words[span.start].start : words[span.end - 1].end]

    def term(self, subject: Span | None, value: Span | None, former: str = "", *, sure: bool = True) -> Term | None:
        if subject is None or value is None or (value.start < subject.end and subject.start < value.end):
            return None
        called = name(self.cut(subject))
        if not called or _NO_SUBJECT.match(called) or _MONTH.match(called) or not any(c.isalpha() for c in called):
            return None
        return Term(called[:200], self.cut(value), former, self.changes, sure, value.exact)

    # The ways to say it

    def found(self) -> Iterator[Term | None]:
        for at, word in enumerate(self.words):
            for joins, read in _JOINTS:
                if word.low in joins:
                    yield read(self, at)
        yield from (self.colon(at) for at, word in enumerate(self.words) if ":" in word.after)
        yield from (self.about(at) for at, w in enumerate(self.words) if w.low in _ABOUT and begins_at(self.words, at))
        yield from (self.given_for(at) for at, word in enumerate(self.words) if word.low in ("for", "as"))

    def moved(self, to: int) -> Term | None:
        """ "Change S to V", "S has moved from X to V"."""
        words = self.words
        verb = next((v for v in range(to - 1, max(-1, to - 14), -1) if words[v].low in _CHANGING), None)
        if verb is None or any(breaks(w) for w in words[verb:to]):
            return None
        value = value_at(words, to + 1)
        if value is None or (value.exact == LOOSE and words[verb].low not in _SETTING):
            return None
        origin = next((n for n in range(verb + 1, to) if words[n].low == "from"), to)
        left = value_at(words[:to], origin + 1) if origin < to else None
        ranges = [n for n in range(origin, len(words)) if words[n].low == "to"] if left is not None else []
        if len(ranges) == 3 and to != ranges[1]:
            return None
        if left is not None and not alike(self.cut(left), self.cut(value)):
            origin = to  # "the order from May"
        former = self.cut(Span(origin + 1, to, 0)) if origin + 1 < to else ""
        end = origin
        while end > verb + 1 and words[end - 1].low in ("back", "up", "down", "out", "over"):
            end -= 1
        if end > verb + 1:
            return self.term(name_after(words[:end], verb + 1), value, former)
        while verb > 0 and words[verb - 1].low in _AUXILIARY:
            verb -= 1
        return self.term(name_before(words, verb), value, former)

    def copula(self, at: int) -> Term | None:
        """ "S is V", "V is S", "…, it's V"."""
        words = self.words
        value = value_at(words, at + 1)
        end = at
        if words[at].low == "=" and at > 0 and len(words[at - 1].low) == 1:
            return None  # "n = 140" is a value
        while end > 0 and (words[end - 1].low in _MODAL or ends_up(words, end)):
            end -= 1
        if (
            words[at].low == "that's"
            and (first := self.value_before(at))
            and first.exact > LOOSE
            and the(words, at + 1)
        ):
            return self.term(name_after(words, at + 1), first)
        if words[at].low in _ITS or (end > 0 and words[end - 1].low in ("it", "that", "this")):
            subject = antecedent(words, at if words[at].low in _ITS else end - 1)
            return self.checked(subject, value)
        if end > 0 and breaks(words[end - 1]) and words[end - 1].after[:1] == ",":
            return self.checked(antecedent(words, end), value)  # "the inbound one, on the other hand, is V"
        subject = name_before(words, end)
        first = self.value_before(end)
        if words[at].low in _ARROWS and first and first.start > 0 and ":" in words[first.start - 1].after:
            return self.term(name_before(words, first.start), value, self.cut(first))  # "S: X → V"
        if (
            first
            and first.exact > LOOSE
            and words[at].low in ("is", "are", "be")
            and the(words, at + 1)
            and (not value or value.exact == LOOSE)
        ):
            return self.term(name_after(words, at + 1), first)
        if first and first.exact == EXACT and first.end == first.start + 1 and value and value.exact == NAMED:
            return self.term(name_after(words, at + 1), first)  # "4711 is Miller's number"
        if subject is None or not (the(words, subject.start) or begins_at(words, subject.start)):
            subject = antecedent(words, end) or subject
        return self.checked(subject, value)

    def no_longer(self, at: int) -> Term | None:
        """ "S is no longer X but V", "not X but V is S"."""
        words = self.words
        but = next((n for n in range(at + 2, min(at + 14, len(words))) if words[n].low == "but"), None)
        former = value_at(words, at + 1 + (words[at + 1].low in ("longer", "be", "use")) if but else len(words))
        if but is None or former is None or former.end > but:
            return None
        value = value_at(words, but + 1)
        end = at
        while end > 0 and words[end - 1].low in _MODAL | _IS:
            end -= 1
        subject = name_before(words, end) or antecedent(words, but) or antecedent(words, len(words))
        if subject is not None and value is not None and subject.start < value.end and subject.end > value.start:
            return None
        return self.term(subject, value, self.cut(former))

    def checked(self, subject: Span | None, value: Span | None) -> Term | None:
        """A value that does not look like one has to be said to change, or to be of the sort of its subject."""
        if subject is None or value is None:
            return None
        if value.exact == LOOSE:
            same = self.words[value.end - 1].low == self.words[subject.end - 1].low
            if not (same or (_CHANGED_NOW.search(self.low) and self.words[subject.start].low in THE)):
                return None
            if _NO_VALUE.match(self.words[value.start].low):
                return None
        return self.term(subject, value)

    def was(self, at: int) -> Term | None:
        """ "S was X, but we go with V now"."""
        words = self.words
        former = value_at(words, at + 1)
        if _SO_FAR.search(self.low):
            return self.checked(name_before(words, at), former)
        if former is None or not words[former.end - 1].after:
            return None
        for then in range(former.end, len(words)):
            if words[then].low in ("with", "use", "take", "to", "is", "be", "it's"):
                value = value_at(words, then + 1)
                if value is not None and (value.exact > LOOSE or words[then].low == "with"):
                    return self.term(name_before(words, at), value, self.cut(former))
        return None

    def given_for(self, at: int) -> Term | None:
        """ "V for S", "use V as S"."""
        words = self.words
        value = self.value_before(at)
        subject = name_after(words, at + 1)
        if value is None or subject is None:
            return None
        verb = words[value.start - 1].low if value.start > 0 else ""
        chosen = verb in _CHOOSING and not (verb in _USING and words[at].low == "for")
        if verb in ("with", "on", "for"):
            chosen = value.start > 1 and words[value.start - 2].low in _GOING
        open_to = value.exact == NAMED and verb not in _USING | _ASKING and words[at + 1].low in ("the", "our", "my")
        if value.exact < EXACT and not (chosen or open_to or self.changes):
            return None
        if value.exact == LOOSE and _NO_VALUE.match(words[value.start].low):
            return None
        return self.term(subject, value)

    def replaces(self, at: int) -> Term | None:
        """ "V replaces X as S", "replace S with V", "swap X for V as S"."""
        words = self.words
        first, former = self.value_before(at), value_at(words, at + 1)
        if former is None or former.end >= len(words):
            return None
        if first is not None and first.exact > LOOSE and words[former.end].low in ("as", "for"):
            return self.term(name_after(words, former.end + 1), first, self.cut(former))
        join = next((n for n in range(at + 2, min(at + 10, len(words))) if words[n].low in ("with", "for", "by")), None)
        value = value_at(words, join + 1) if join is not None else None
        if join is None or value is None or value.exact == LOOSE:
            return None
        left = value_at(words[:join], at + 1)
        if left is None or left.exact == LOOSE:
            return self.term(name_after(words[:join], at + 1), value)
        then = value.end
        if then < len(words) and words[then].low in ("as", "for") and not words[then - 1].after:
            return self.term(name_after(words, then + 1), value, self.cut(left))
        return None

    def it_is(self, at: int) -> Term | None:
        """ "X doesn't work for S, so V it is"."""
        words = self.words
        if at + 1 >= len(words) or words[at + 1].low not in ("is", "will", "shall") or at + 4 < len(words):
            return None
        value = self.value_before(at)
        return self.term(antecedent(words, value.start), value) if value is not None else None

    def value_before(self, end: int) -> Span | None:
        """The value that ends before a word: it begins after the verb that chooses it, or its clause does."""
        words = self.words
        if end > 1 and words[end - 1].low == "down":
            end -= 1
        if end > 2 and [w.low for w in words[end - 2 : end]] == ["it", "is"]:
            end -= 2
        for start in range(max(0, end - 7), end):
            if words[start].low in _CHOOSING and start + 1 < end:
                continue
            begins = start == 0 or breaks(words[start - 1]) or words[start - 1].low in _CHOOSING | _STARTS
            equation = words[start].low in ("n", "p") and start + 2 < end
            if begins or equation or is_marked(words[start]) or is_named(words[start]):
                value = value_at(words, start, fill=False)
                if value is not None and value.end == end and (begins or value.exact > LOOSE):
                    return value
        return None

    def colon(self, at: int) -> Term | None:
        """ "S: V", "S had to change: V"."""
        words = self.words
        value = value_at(words, at + 1)
        end = at + 1
        while end > 0 and words[end - 1].low in _CHANGING | _AUXILIARY | _SETTLED:
            end -= 1
        subject = name_before(words, end)
        if subject is None or value is None or "=" in self.words[value.start].text:
            return None
        changed = end <= at
        starts = subject.start == 0 or breaks(words[subject.start - 1])
        starts = starts or all(w.low in LEADING or breaks(w) for w in words[: subject.start])
        there = words[subject.start].low in THE
        if value.exact == LOOSE and not (changed or (starts and self.changes) or self._of_its_sort(subject, value)):
            return None
        ends = value.end == len(words) or bool(words[value.end - 1].after) or value.exact == EXACT
        return self.term(subject, value) if (starts or there or changed) and ends else None

    def _of_its_sort(self, subject: Span, value: Span) -> bool:
        return self.words[value.end - 1].low == self.words[subject.end - 1].low

    def made(self, at: int) -> Term | None:
        """ "Make S V"."""
        words = self.words
        if at + 2 >= len(words) or words[at + 1].low not in THE - {"that", "this"}:
            return None
        for start in range(at + 3, min(at + 9, len(words))):
            value = value_at(words, start, fill=False)
            ends = value is not None and (value.end == len(words) or bool(words[value.end - 1].after))
            if words[start].low in THE and words[start - 1].low in OF:
                continue
            marked = the(words, start) or is_marked(words[start])
            marked = marked or (len(words[start].low) == 1 and start + 2 < len(words))
            if value is not None and ends and (marked or is_named(words[start])):
                return self.term(Span(at + 1, start, 0), value)
            if words[start].low in NO_NAME:
                return None
        return None

    def about(self, at: int) -> Term | None:
        """ "For S, use V", "about S: V now", "for S we're going with V"."""
        words = self.words
        start = at + 1 + (words[at].low == "as" and at + 1 < len(words) and words[at + 1].low == "for")
        subject = name_after(words, start)
        if subject is None:
            return None
        then = subject.end
        for verb in range(then, min(then + 9, len(words))):
            if words[verb].low in _CHOOSING | {"say", "be", "is", "it's", "agreed", "to"}:
                value = value_at(words, verb + 1)
                if value is None or _NO_VALUE.match(words[value.start].low):
                    continue
                if value.exact == LOOSE and (words[value.start].low in _CHOOSING or not self.changes):
                    continue
                return self.term(subject, value)
        value = value_at(words, then)
        return self.term(subject, value) if value is not None and value.exact > LOOSE else None

    def beside(self) -> Term | None:
        """The one exact value, with what stands before it or is named last: "order number A-12", "the flag (exp_2)"."""
        words = self.words
        spans = [v for n in range(len(words)) if is_exact(words[n]) and (v := self._exactly_at(n)) is not None]
        apart = [s for n, s in enumerate(spans) if n == 0 or s.start >= spans[n - 1].end]
        if len(apart) != 1:
            return None
        value = apart[0]
        subject = name_before(words, value.start)
        if subject is None or words[subject.start].low in ACTING:
            subject = antecedent(words, value.start) or antecedent(words, len(words))
        if subject is not None and subject.end > value.start and subject.start < value.start:
            subject = Span(subject.start, value.start, 0)
        return self.term(subject, value, sure=False)

    def _exactly_at(self, at: int) -> Span | None:
        words = self.words
        if at > 0 and is_named(words[at - 1]) and not words[at - 1].after and at > 1 and NUMBER.match(words[at].text):
            value = value_at(words, at - 1, fill=False)
        else:
            value = value_at(words, at, fill=False)
        return value if value is not None and value.exact == EXACT else None


_MODAL = word_set(
    "happens ended turned turns will should must shall has have to needs need can may would going now "
    "currently also is still"
)
_STARTS = word_set("so that's and but then ok okay now maybe rather actually no wait sorry of than about")
_ABOUT = word_set("for about regarding concerning re on as with")
_NO_SUBJECT = re.compile(
    r"(?:thing|point|idea|question|problem|way|time|reason|everything|something|anything|nothing|one|it|that|this|"
    r"which|who|what|here|there|best|worst|same|only|following|reference|records?|rules?|decisions?|goal|policy|"
    r"note|fyi|btw|ps|update|correction|plan|day|lot|number one|first|second|"
    r"(?:file|link|copy|original|result|output|version|draft|folder|detail|info|place|today|week|case)s?"
    r"(?: (?:that|which|for later).*)?)$"
)
_NO_VALUE = re.compile(
    r"(?:not|no|very|too|so|fine|good|bad|ok|okay|great|nice|slow|broken|down|up|gone|wrong|right|missing|ready|done|"
    r"important|clear|unclear|open|closed|free|full|empty|late|early|it|that|this|what|me|us|you|now|again|over|off|"
    r"much|more|less|always|never|only|all|sure|happy|glad|sorry|weird|odd|strange|better|worse|same|there|here|"
    r"working|running|failing|forgotten|forbidden|allowed|required|mandatory|\w+(?:ed|ing|ly))$"
)
_SO_FAR = re.compile(r"\b(?:last (?:i|we) (?:heard|knew|checked|saw)|so far|as far as i know|when i last)\b")
_CHANGED_NOW = re.compile(
    r"\b(?:is|are|will be|be|it's) now\b|\bnow\W*$|\b(?:correction|scratch that|change of plans?|update|instead|"
    r"after all|turns out|not what i said|wrong|from (?:here|now) on|forget|decided|agreed)\b"
)


_JOINTS: tuple[tuple[frozenset[str], Callable[[_Reading, int], Term | None]], ...] = (
    (frozenset({"to"}), _Reading.moved),
    (_IS | _ITS, _Reading.copula),
    (_WAS, _Reading.was),
    (word_set("no not won't isn't"), _Reading.no_longer),
    (frozenset({"it"}), _Reading.it_is),
    (_REPLACING, _Reading.replaces),
    (_MAKING, _Reading.made),
)
"""The words that may join a subject and its value, each with how to read the sentence from there."""


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
    r"(?P<what>[^,;!?]{1,60}?)(?=$|[,;!?]|\.(?:\s|$)|\s(?:any ?more|but|doesn't|does not|for|anymore|didn't|won't|"
    r"is|fell)\b)"
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
    for word in words_of(value):
        if _MONTH.match(word.low):
            signs.append("month")
        elif NUMBER.match(word.text):
            signs.append("$0" if word.text[0] in "$€£¥" else "0:0" if ":" in word.text else "0")
        elif is_marked(word) and not word.text.replace("-", "").isalpha():
            signs.append("code")
        elif word.text[0].isupper():
            signs.append("A")
        elif word.low not in THE and word.low not in A:
            signs.append("unit" if signs[-1:] == ["0"] else "a")
    return " ".join(dict.fromkeys(signs))


def is_value(text: str) -> bool:
    """Whether it is an exact value or a name, and nothing else."""
    words = words_of(text)
    value = value_at(words, 0, fill=False) if words else None
    return value is not None and value.exact > LOOSE and value.end == len(words)


def alike(one: str, other: str) -> bool:
    """Whether two values can be of the same thing, as far as their first words tell."""
    first, second = (shape(v).replace("$", "").replace("a", "A").split()[:1] for v in (one, other))
    return first == second or not first or not second
