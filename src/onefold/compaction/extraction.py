"""Finds facts in messages by rules alone: no model, always the same, and in time proportional to the text.

Who may say what: a rule, a limit, a preference and a goal come from people only, a decision also from the agent that
makes it. Tool output, and what is only shown (code, quotations, documents), makes none of these, whatever it says; it
gives identifiers, and with its call an effect. One sentence makes one fact, of the first kind that fits, and is carried
whole, so that no condition and no negation is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from onefold.compaction.effects import Effects, effect
from onefold.compaction.intentions import decision, goal, next_step, open_work, preference
from onefold.compaction.orders import limit, prohibition, rule, withdrawal
from onefold.compaction.statements import AGENT, PERSON, TOOL, Statement, said, spoken, statements, voice
from onefold.compaction.subjects import Made, Sentence, name, order_key, plain, word_set
from onefold.compaction.terms import alike, is_value, shape, term
from onefold.compaction.values import mentioned, paired, shown, valued
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


def extracted(records: Iterable[Record]) -> list[Fact]:
    """The facts that messages state, in the order in which they were said."""
    found: list[Fact] = []
    effects = Effects()
    recent: list[Fact] = []
    for record in records:
        parsed = said(record)
        for statement in spoken(record, parsed):
            if is_short(statement):
                found += corrected(statement, recent)
            else:
                made = [Fact(m.kind, m.key, fitting(m.text), statement.source) for m in _made(statement)]
                recent = [*recent, *made][-_RECENT:]
                found += [f for f in made if may_say(f.kind, statement)]
        for part in parsed.parts:
            match part:
                case Call():
                    effects.called(part, record.number)
                case Progress(id, _, str(arguments)):
                    effects.asked(id, arguments)
                case Result():
                    effects.answered(part, record.number)
                    if effects.may_name(part):
                        found += _in_result(part.text, record.number)
    return sorted([*found, *effects.facts()], key=lambda f: f.source)


_RECENT = 12
_NEARBY = 6
"""How many messages back "make that 90" may refer to."""


def is_short(statement: Statement) -> bool:
    """Whether it is a new value and nothing else: "make that 90", "no wait, TP 562"."""
    return statement.voice == PERSON and not statement.shown and _new_value(statement.text) is not None


def _new_value(text: str) -> str | None:
    first = _WORD.search(text) if len(text) <= _SHORT else None
    match = _CORRECTS.match(text) if first is not None and first[0].casefold() in _CORRECTING else None
    if match is None:
        return None
    if (read := term(text)) is not None and read.sure:
        return None
    marked = match["mark"] or (match["verb"] or "").casefold().startswith(_ITSELF)
    value = match["value"].strip() if marked else ""
    return value if is_value(value) else None


def corrected(statement: Statement, recent: Sequence[Fact]) -> list[Fact]:
    """What a short correction corrects: the value of that sort that was stated last, with its name before the words."""
    value = _new_value(statement.text) or ""
    near = [
        f for f in recent if statement.source - f.source <= _NEARBY and f.kind in ("identifier", "limit", "decision")
    ]
    told = [(f, t) for f in reversed(near) if (t := term(f.text)) is not None and t.sure]
    meant = next((f for f, t in told if shape(t.value) == shape(value)), None)
    meant = meant or next((f for f, t in told if alike(t.value, value)), None)
    if meant is None:
        return []
    kind = meant.kind if meant.kind != "decision" else "identifier"
    return [Fact(kind, meant.key, fitting(f"{meant.key}: {statement.text}"), statement.source)]


_SHORT = 90
_CORRECTS = re.compile(
    r"^\W*(?:(?:hm+|oh|ah|ok|okay|well|and|but|so|um+|uh)[,.]? )*(?P<mark>(?:(?:no|wait|hold on|stop|actually|scratch "
    r"that|correction|my mistake|my bad|i meant?|rather|better|on second thoughts?|sorry|make (?:that|it)|call "
    r"it)\b[,:.]? "
    r"?[\u2013-]? ?){0,4})(?P<verb>(?:it|that) (?:has to be|should be|must be|needs to be|will be|should read|"
    r"should have "
    r"been|was meant to be) (?:actually |now )?|(?:it|that)'s (?:actually |now )|it'll be |(?:take|use|try|go with|"
    r"let's "
    r"(?:say|do|take|make it)) )?(?P<value>(?:[^,;:?!=]|[,:](?=\d)){1,50}?)"
    r"(?:,? (?:instead|actually|then|please|sorry|rather|now|after all))?(?:, [^,;:?]{1,60})?[.!]?$",
    re.IGNORECASE,
)
_CORRECTING = word_set(
    "hm hmm hmmm oh ah ok okay well and but so um uh no wait hold stop actually scratch correction my i rather "
    "better on "
    "sorry make call it that that's it's it'll"
)
_ITSELF = ("it", "that")


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
    looks = _OF_A_PERSON if who == PERSON else () if _IN_PASSING.search(low) else _OF_AN_AGENT
    made = next((found for look in looks if (found := look(sentence))), [])
    if made and not _SUPPOSED.search(low) and not _DISMISSED.search(low):
        return _decided(made, sentence)
    if others := next_step(sentence) or open_work(sentence) or effect(sentence):
        return others
    made = mentioned(text)
    return [] if made and _DISMISSED.search(low) else made


def _decided(made: list[Made], sentence: Sentence) -> list[Made]:
    """A value that somebody chose is a decision."""
    if len(made) == 1 and made[0].kind == "identifier" and decision(sentence):
        return [made[0]._replace(kind="decision")]
    return made


def _did(sentence: Sentence) -> list[Made]:
    return effect(sentence) if _OWN_DEED.match(sentence.low) else []


_OWN_DEED = re.compile(r"(?:i|i've|we|we've|\w{3,}ed|sent|wrote|ran|paid) ")


_OF_A_PERSON = (withdrawal, goal, paired, limit, prohibition, valued, preference, rule, decision)
_OF_AN_AGENT = (_did, valued, decision)
_IN_PASSING = re.compile(
    r"\b(?:won't|will not|will never|let's (?:run|make|put|build|leave|skip|call|do|keep|start|see|check|look))\b"
)
"""What an agent promises or is about to do is no decision: a promise would outlive the rule that it echoes."""


def _under(statement: Statement) -> str:
    """A line with the heading it is listed under, where only both say it: "Do not:", "Staging:"."""
    heading = statement.heading
    if not heading or statement.shown or len(heading) > _LONGEST_HEADING or not _says_more(heading):
        return statement.text
    return f"{heading} {statement.text}"


_LONGEST_HEADING = 80
_ORDERS = re.compile(
    r"\b(?:not|never|don't|always|must|mustn't|should|no|only|avoid|rules?|limits?|required|forbidden|allowed|please|"
    r"until|before|if|when|for|on|in)\b"
)
_INTRODUCES = re.compile(
    r"\b(?:things?|points?|notes?|items?|remarks?|questions?|stuff|bits?|updates?|changes?|info|following|below|here|"
    r"these|some|few|couple|so|also|ok|okay|first|list|summary|details|facts?|values?|me|i|my|we|you|thoughts?|"
    r"comments?|"
    r"news|fyi|reminders?|today|now)\b"
)


def _says_more(heading: str) -> bool:
    """Whether a heading is part of what stands under it, as "Do not:" and "Staging:" are, and "A few things:" is "
    "not."""
    low = plain(heading)
    return not _INTRODUCES.search(low) and (_ORDERS.search(low) is not None or len(low.split()) <= 3)


_QUOTED = re.compile(r"\"[^\"]{12,400}\"|“[^”]{12,400}”|«[^»]{12,400}»|(?<!\w)'[^']{20,300}'(?!\w)|`[^`]{30,300}`")
_OWN_WORDS = re.compile(r"^(?:the |my |our |new |one )*(?:rule|remember|policy|instruction|decision|requirement)s?\b")


def _unquoted(low: str) -> str:
    """The words that are the speaker's own: what is quoted at length orders nothing."""
    return low if _OWN_WORDS.match(low) else _QUOTED.sub('"…"', low)


_WORD = re.compile(r"[\w'-]{1,60}")
_POLITE = re.compile(
    r"\b(?:can|could|would|will) you (?:please |kindly )?(?:not|never|avoid|stop|make sure|always|refrain|keep|set|"
    r"change|make|bump|raise|lower|increase|reduce|update|move|switch|use|rename|extend|note|remember|write down|"
    r"record|"
    r"stick|go (?:for|with)|prefer|bear in mind|take note|jot)\b"
)
_TAGGED = re.compile(
    r"[,;]\s*(?:ok|okay|right|alright|please|yes|understood|got it|clear|agreed|deal|(?:will|would|won't|can|could) "
    r"you|yeah|yep|all right|is that clear|are we clear)\s*\?\W*$"
)


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


_DISMISSED = re.compile(
    r"^\W*(?:[\w,]+ ){0,3}?(?:someone|somebody|some (?:people|folks|guys|\w+s)|people|others|a (?:friend|guy|"
    r"colleague)|my "
    r"(?:old|last|former|previous|ex)\S* \w+|the (?:internet|forum))(?: \w+){0,4}? (?:says?|said|"
    r"thinks?|"
    r"thought|claims?|claimed|insists?|insisted|believes?|believed|suggests?|suggested|recommends?|argues?|argued|"
    r"swears?|"
    r"(?:have|has|had) a rule)\b"
    r"|^\W*(?:my|the|a|his|her) \w+ (?:thinks|believes|thought|believed)\b"
    r"|\b(?:back (?:in (?:\d{4}|the \w+)|then)|at my (?:last|old|previous|former)|in my (?:last|old|previous|"
    r"former|phd|"
    r"student|university)|in those days|years ago|different times|when i was (?:a|in|at))\b"
    r"|\b(?:which|that|this) (?:is|was|isn't|wasn't) (?:nonsense|rubbish|wrong|not true|true|silly)\b"
    r"|\bno idea (?:what|why|how|yet|where|if)|\bwho knows\b|\bi don't think so\b|\bsomewhere\W*$"
    r"|\b(?:maybe|perhaps|around|like|say) (?:at )?\d\S*(?: or so)?\b.{0,20}\b(?:no idea|not sure|don't know|we'll "
    r"see)\b"
    r"|\bmust have been\b"
)
"""What others say or said elsewhere, what is over, and what the speaker himself does not believe."""

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
