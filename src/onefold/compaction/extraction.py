"""Finds facts in messages by rules alone: no model, always the same, and in time proportional to the text.

Who may say what: a rule, a limit, a preference and a goal come from people only, a decision also from the agent that
makes it. Tool output, and what is only shown (code, quotations, documents), makes none of these, whatever it says; it
gives identifiers, and with its call an effect. One sentence makes one fact, of the first kind that fits, and is carried
whole, so that no condition and no negation is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from onefold.compaction.effects import Effects, effect
from onefold.compaction.intentions import decision, goal, next_step, open_work, preference
from onefold.compaction.orders import limit, prohibition, rule, withdrawal
from onefold.compaction.statements import AGENT, PERSON, TOOL, Statement, said, spoken, statements, voice
from onefold.compaction.subjects import Made, Sentence, name, order_key, plain
from onefold.compaction.values import mentioned, shown, valued
from onefold.messages.said import Call, Progress, Result
from onefold.model import Fact, Record

_READ = 20_000
LONGEST = 300
"""A fact's text has at most that many characters."""

_SPEAKERS: dict[str, frozenset[str]] = {
    "rule": frozenset({PERSON}),
    "limit": frozenset({PERSON}),
    "preference": frozenset({PERSON}),
    "goal": frozenset({PERSON}),
    "decision": frozenset({PERSON, AGENT}),
    "next": frozenset({PERSON, AGENT}),
    "open": frozenset({PERSON, AGENT}),
}


def may_say(kind: str, statement: Statement) -> bool:
    """Whether this one's word makes a fact of that kind."""
    speakers = _SPEAKERS.get(kind)
    return speakers is None or (statement.voice in speakers and not statement.shown)


def extracted(records: Sequence[Record]) -> list[Fact]:
    """The facts that messages state, in the order in which they were said."""
    found: list[Fact] = []
    effects = Effects()
    for record in records:
        parsed = said(record)
        for statement in spoken(record, parsed):
            found += facts_of(statement)
        for part in parsed.parts:
            match part:
                case Call():
                    effects.called(part, record.number)
                case Progress(id, _, str(arguments)):
                    effects.asked(id, arguments)
                case Result():
                    effects.answered(part, record.number)
                    found += _in_result(part.text, record.number)
    return sorted([*found, *effects.facts()], key=lambda f: f.source)


def heard(record: Record) -> Iterator[Statement]:
    """Everything a message states, with whose word it is: what its speaker says, and what its results show."""
    parsed = said(record)
    yield from spoken(record, parsed)
    for part in parsed.parts:
        match part:
            case Result(_, text):
                yield from statements(text, TOOL, record.number, shown=True)
            case Call(_, called, arguments):
                yield Statement(f"{called} {arguments}", voice(parsed.role), record.number, shown=True)


def facts_of(statement: Statement) -> Iterator[Fact]:
    """The facts of one statement: mostly none, mostly one at the most."""
    made = _made(statement)
    yield from (Fact(m.kind, m.key, fitting(m.text), statement.source) for m in made if may_say(m.kind, statement))


def key_of(kind: str, statement: Statement, given: str) -> str:
    """The key of a fact that a model proposes: the one that extraction would give it, or else its own, normalised. What
    was only shown has a key of its own sort, so that it takes no place of what was said."""
    made = _made(statement) if may_say(kind, statement) else []
    key = next((m.key for m in made if m.kind == kind), None)
    if key is None:
        key = name(given) or order_key(statement.text)
        return f"tool {key}" if statement.shown or statement.voice == TOOL else key
    return key


def fitting(text: str) -> str:
    """A text that is not too long: cut between words, and never without the condition or the negation in its end."""
    text = text.strip()
    if len(text) <= LONGEST:
        return text
    tail = _TAIL.search(text, LONGEST // 2)
    if tail is None:
        return _cut(text, LONGEST)
    end = _cut(text[tail.start() :], LONGEST // 2)
    return f"{_cut(text[: tail.start()], LONGEST - len(end) - 1)} {end}"


_TAIL = re.compile(
    r"\b(?:unless|except|without|until|only if|not|never|no|cannot|don['\u2019]t|must)\b",
    re.IGNORECASE,
)


def _cut(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    head = text[: size - 1]
    return f"{head[: head.rfind(' ')] if ' ' in head[size // 2 :] else head}…"


def _made(statement: Statement) -> list[Made]:
    text, who = statement.text, statement.voice
    under = _under(statement)
    if statement.shown or who == TOOL:
        return shown(text)
    low = _unquoted(plain(under))
    if _asks(low):
        return []
    sentence = Sentence(under, low, frozenset(_WORD.findall(low)))
    supposed = _SUPPOSED.search(low) is not None
    if who == PERSON and not supposed:
        for look in (withdrawal, goal, limit, prohibition, valued, preference, rule, decision):
            if made := look(sentence):
                return made
    elif not supposed and not _IN_PASSING.search(low):
        for look in (valued, decision):
            if made := look(sentence):
                return made
    return next_step(sentence) or open_work(sentence) or effect(sentence) or mentioned(text)


_IN_PASSING = re.compile(
    r"\b(?:won't|will not|will never|let's (?:run|make|put|build|leave|skip|call|do|keep|start|see|check|look))\b"
)
"""What an agent promises or is about to do is no decision: a promise would outlive the rule that it echoes."""


def _under(statement: Statement) -> str:
    """A line with the heading it is listed under, where only both say it: "Do not:", "Staging:"."""
    heading = statement.heading
    if not heading or statement.shown:
        return statement.text
    return f"{heading} {statement.text}" if len(heading) <= 80 else statement.text


_QUOTED = re.compile(r"\"[^\"]{12,400}\"|“[^”]{12,400}”|«[^»]{12,400}»|(?<!\w)'[^']{20,300}'(?!\w)|`[^`]{30,300}`")
_OWN_WORDS = re.compile(r"^(?:the |my |our |new |one )*(?:rule|remember|policy|instruction|decision|requirement)s?\b")


def _unquoted(low: str) -> str:
    """The words that are the speaker's own: what is quoted at length orders nothing."""
    return low if _OWN_WORDS.match(low) else _QUOTED.sub('"…"', low)


_WORD = re.compile(r"[\w'-]{1,60}")
_POLITE = re.compile(
    r"\b(?:can|could|would|will) you (?:please |kindly )?(?:not|never|avoid|stop|make sure|always|refrain|keep|set|"
    r"change|make|bump|raise|lower|increase|reduce|update|move|switch|use|rename|extend)\b"
)
_TAGGED = re.compile(r"[,;]\s*(?:ok|okay|right|alright|please|yes|understood|got it|clear|agreed|deal)\s*\?\W*$")


def _asks(low: str) -> bool:
    """Whether it is a question, and no order in a question's clothes."""
    if not low.rstrip("\"')”*` ").endswith(("?", "\uff1f")):
        return False
    return not (_POLITE.search(low) or _TAGGED.search(low))


_SUPPOSED = re.compile(
    r"^\W*(?:what if|suppose|supposing|imagine|hypothetically|let's say|say we|if (?:i|we|you|they|he|she|it) (?:had|"
    r"were|"
    r"was|did|could|would)\b|had (?:i|we)|i wonder|i was wondering|maybe|perhaps|in theory)|\bwould(?:n't| never| not| "
    r"have)? (?:have been|be (?:nice|great|cool|fun|better|a good))|\bi wish\b|\bmight (?:be|want|need|have)\b"
    r"|\b(?:would|could|should)(?:n't|'ve| never| not)? have\b"
)


_MOST_IN_RESULT = 4


def _in_result(text: str, source: int) -> list[Fact]:
    """Identifiers that a result shows, if it shows few: a listing is data to look up, not to carry."""
    found: dict[str, Fact] = {}
    for statement in statements(text[:_READ], TOOL, source, shown=True):
        for made in shown(statement.text):
            found.setdefault(made.key, Fact(made.kind, made.key, fitting(made.text), source))
        if len(found) > _MOST_IN_RESULT:
            return []
    return list(found.values())
