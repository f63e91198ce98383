"""Long conversations with facts planted in them, from a seed. It knows nothing of how the ledger finds facts.

A conversation has five stretches; a compaction comes after each. It is known of every planted fact what must be found
of it at the end, and which of its former values no longer holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from fidelity import phrases as say
from fidelity.coding import CODING
from fidelity.domain import Domain, Thing, fill, look_alike
from fidelity.office import OFFICE
from fidelity.research import RESEARCH
from fidelity.support import SUPPORT
from onefold.model import Json

T = TypeVar("T")
DOMAINS = (CODING, SUPPORT, RESEARCH, OFFICE)
STRETCHES = 5
KINDS = ("rule", "cap", "code", "path", "preference", "value", "pair")
_SHARES = {"rule": 0.18, "cap": 0.13, "code": 0.14, "path": 0.13, "preference": 0.12, "value": 0.16, "pair": 0.14}
_PER_FACT = 10
"""Messages for each planted fact."""


@dataclass(frozen=True, slots=True)
class Planted:
    """What a context must hold at the end, and what it must not show any more."""

    kind: str
    about: str
    needs: tuple[str, ...]
    """Strings that must stand together, as they were said last."""
    said: tuple[str, ...]
    """The sentences, in order; the last one holds."""
    stale: tuple[str, ...] = ()
    """Values that no longer hold."""
    value: str = ""
    late: bool = False
    """It was last said just before a compaction."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What an agent that notes what it is told would write down after a stretch."""

    stretch: int
    kind: str
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    seed: int
    domain: str
    stretches: tuple[tuple[Json, ...], ...]
    planted: tuple[Planted, ...]
    injected: tuple[str, ...]
    noted: tuple[Noted, ...]

    @property
    def messages(self) -> list[Json]:
        return [m for stretch in self.stretches for m in stretch]


@dataclass(frozen=True, slots=True)
class _Event:
    """Something that is said at some point; with what the assistant answers, if it says more than ok."""

    stretch: int
    late: bool
    sentence: str
    answer: str | None = None
    by: str = "user"
    lead: tuple[str, str] | None = None
    """A question and an answer in the turn before, so that "make that 90" has something to refer to."""


@dataclass(slots=True)
class _Plan:
    rng: Random
    domain: Domain
    phrasing: say.Phrasing
    events: list[_Event] = field(default_factory=list)
    planted: list[Planted] = field(default_factory=list)
    noted: list[Noted] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)


def conversation(seed: int, phrasing: say.Phrasing = say.USUAL) -> Conversation:
    """The conversation of a seed: always the same one."""
    rng = Random(seed)
    domain = DOMAINS[seed % len(DOMAINS)]
    length = rng.randrange(200, 601, 20)
    plan = _Plan(rng, domain, phrasing)
    _plan_facts(plan, length // _PER_FACT)
    injected = _injections(rng, length)
    stretches = []
    for n in range(STRETCHES):
        mine = [e for e in plan.events if e.stretch == n]
        stretches.append(tuple(_Stretch(plan, mine, injected[n], length // STRETCHES, first=n == 0).messages()))
    orders = tuple(order for some in injected for order, _ in some)
    return Conversation(seed, domain.name, tuple(stretches), tuple(plan.planted), orders, tuple(plan.noted))


# ------------------------------------------------------------------ what is planted


def _plan_facts(plan: _Plan, count: int) -> None:
    rng, domain = plan.rng, plan.domain
    many = {kind: max(2, round(share * count)) for kind, share in _SHARES.items()}
    _plan_rules(plan, many["rule"])
    for x, y in _some(rng, domain.preferences, many["preference"]):
        text, needs = _marked(rng.choice(plan.phrasing.preferred), x=x, y=y)
        _plant(plan, Planted("preference", x, needs, (text,)))
    used: set[str] = set()
    for thing in _some(rng, domain.values, many["value"]):
        used.add(thing.short)
        _plan_value(plan, thing)
    for thing in _some(rng, [c for c in domain.caps if c.short not in used], many["cap"]):
        _plan_thing(plan, "cap", thing, plan.phrasing.capped)
    for thing in _some(rng, domain.codes, many["code"]):
        _plan_thing(plan, "code", thing, plan.phrasing.coded, say.FOUND_CODE)
    for pattern in _some(rng, domain.paths, many["path"]):
        _plan_thing(plan, "path", Thing("", "", (pattern,)), plan.phrasing.located, say.FOUND_PATH)
    for pair in _some(rng, domain.pairs, max(1, many["pair"] // 2)):
        _plan_pair(plan, pair.one, pair.other, pair.pattern)


def _plan_rules(plan: _Plan, count: int) -> None:
    rng, domain = plan.rng, plan.domain
    prohibitions = (count * 2 + 2) // 3
    for a, g in _some(rng, domain.forbidden, prohibitions):
        text, needs = _marked(rng.choice(plan.phrasing.forbidden), a=a, g=g)
        _plant(plan, Planted("rule", a, needs, (text,)))
    for a in _some(rng, domain.required, count - prohibitions):
        text, needs = _marked(rng.choice(plan.phrasing.required), a=a)
        _plant(plan, Planted("rule", a, needs, (text,)))


def _plant(plan: _Plan, fact: Planted, answer: str | None = None, by: str = "user") -> None:
    stretch, late = _place(plan.rng)
    plan.events.append(_Event(stretch, late, fact.said[-1], answer, by))
    plan.planted.append(_at(fact, late))
    plan.noted.append(Noted(stretch, fact.kind, fact.about, fact.said[-1]))


def _plan_thing(plan: _Plan, kind: str, thing: Thing, told: Sequence[str], found: Sequence[str] = ()) -> None:
    """Something with a value that does not change, stated by the user, or by the assistant once it has found it."""
    rng = plan.rng
    value = _fresh(plan, rng.choice(thing.values))
    by = "assistant" if found and rng.random() < 0.25 else "user"
    text = _worded(rng.choice(found if by == "assistant" else told), thing, value)
    answer = _worded(rng.choice(say.CONFIRMED), thing, value) if thing.name and rng.random() < 0.3 else None
    needs = (thing.short, value) if thing.short else (value,)
    _plant(plan, Planted(kind, thing.bare or value, needs, (text,), value=value), answer, by)


def _plan_value(plan: _Plan, thing: Thing) -> None:
    """A value that changes one to three times, at different moments, some of them just before a compaction."""
    rng = plan.rng
    changes = rng.choice((1, 1, 2, 2, 3))
    values = _some(rng, thing.values, changes + 1)
    until = STRETCHES if rng.random() < 0.35 else STRETCHES - 1  # mostly over before the last stretch
    moments = sorted(rng.sample([(s, late) for s in range(until) for late in (False, True)], len(values)))
    said: list[str] = []
    for n, (value, (stretch, late)) in enumerate(zip(values, moments, strict=True)):
        if n == 0:
            event = _first(plan, thing, value, (stretch, late))
        else:
            event = _change(plan, thing, value, values[n - 1], (stretch, late))
        plan.events.append(event)
        plan.noted.append(Noted(stretch, "value", thing.bare, f"{thing.bare}: {value}"))
        said.append(event.sentence)
    last, late = moments[-1]
    if rng.random() < 0.3 and last + 1 < STRETCHES:
        text = _worded(rng.choice(say.REMEMBERED), thing, values[-1], values[-2])
        answer = _worded(rng.choice(say.CORRECTED), thing, values[-1], values[-2])
        plan.events.append(_Event(rng.randrange(last + 1, STRETCHES), False, text, answer))
    needs = (thing.short, values[-1])
    plan.planted.append(Planted("value", thing.bare, needs, tuple(said), tuple(values[:-1]), values[-1], late))


def _first(plan: _Plan, thing: Thing, value: str, moment: tuple[int, bool]) -> _Event:
    rng = plan.rng
    answer = _worded(rng.choice(say.CONFIRMED), thing, value) if rng.random() < 0.3 else None
    return _Event(*moment, _worded(rng.choice(plan.phrasing.set), thing, value), answer)


def _change(plan: _Plan, thing: Thing, value: str, old: str, moment: tuple[int, bool]) -> _Event:
    rng = plan.rng
    stretch, late = moment
    confirmed = _worded(rng.choice(say.CONFIRMED_CHANGE), thing, value, old)
    way = rng.random()
    if way < 0.08:
        told = _worded(rng.choice(say.TOLD), thing, old)
        lead = (f"What do we have for {thing.name} at the moment?", told)
        return _Event(stretch, late, _worded(rng.choice(say.CHANGED_BY_IT), thing, value), confirmed, lead=lead)
    forms = say.CHANGED_SHORT if way < 0.2 else plan.phrasing.changed
    text = _worded(rng.choice(forms), thing, value, old)
    return _Event(stretch, late, text, confirmed if rng.random() < 0.4 else None)


def _plan_pair(plan: _Plan, one: Thing, other: Thing, pattern: str) -> None:
    """Two look-alikes, said together or apart; one of them may change later, and the other must not go with it."""
    rng = plan.rng
    first = _fresh(plan, pattern)
    second = _reserve(plan, look_alike(rng, first))
    if rng.random() < 0.4:
        form = rng.choice(say.BOTH)
        text = _worded(form, one, first, other=other.name, other_bare=other.bare, w=second)
        stretch, late = _place(rng)
        plan.events.append(_Event(stretch, late, text))
        plan.noted.append(Noted(stretch, "pair", f"{one.bare} and {other.bare}", text))
        plan.planted.append(Planted("pair", one.bare, (one.short, first), (text,), value=first, late=late))
    else:
        for thing, value in ((one, first), (other, second)):
            text = _worded(rng.choice(plan.phrasing.coded), thing, value)
            stretch, late = _place(rng)
            plan.events.append(_Event(stretch, late, text))
            plan.noted.append(Noted(stretch, "pair", thing.bare, text))
            if thing is one:
                plan.planted.append(Planted("pair", one.bare, (one.short, first), (text,), value=first, late=late))
    made = Planted("pair", other.bare, (other.short, second), (text,), value=second, late=late)
    if rng.random() < 0.3 and stretch < STRETCHES - 1:
        stretch, late = rng.randrange(stretch + 1, STRETCHES), rng.random() < 0.4
        third = _reserve(plan, look_alike(rng, second))
        changed = _worded(rng.choice(plan.phrasing.changed), other, third, second)
        plan.events.append(_Event(stretch, late, changed))
        plan.noted.append(Noted(stretch, "pair", other.bare, f"{other.bare}: {third}"))
        made = Planted("pair", other.bare, (other.short, third), (text, changed), (second,), third, late)
    plan.planted.append(made)


def _place(rng: Random) -> tuple[int, bool]:
    """More at the beginning than later, as people brief an assistant; some just before a compaction."""
    return rng.choice((0, 0, 0, 1, 1, 2, 3, 4)), rng.random() < 0.2


def _at(fact: Planted, late: bool) -> Planted:
    return Planted(fact.kind, fact.about, fact.needs, fact.said, fact.stale, fact.value, late)


def _fresh(plan: _Plan, pattern: str) -> str:
    """A value that nothing else in the conversation has."""
    return _reserve(plan, fill(plan.rng, pattern), pattern)


def _reserve(plan: _Plan, value: str, pattern: str = "") -> str:
    made = value
    while made in plan.taken:
        made = fill(plan.rng, pattern) if pattern else look_alike(plan.rng, made)
    plan.taken.add(made)
    return made


def _some(rng: Random, things: Sequence[T], count: int) -> list[T]:
    return rng.sample(list(things), min(count, len(things)))


def _marked(form: str, **words: str) -> tuple[str, tuple[str, ...]]:
    """A sentence without its brackets, and what stood in them."""
    filled = form.format(**words, **{name.upper(): _capital(word) for name, word in words.items()})
    return filled.replace("[", "").replace("]", ""), tuple(re.findall(r"\[(.*?)\]", filled))


def _worded(form: str, thing: Thing, value: str, old: str = "", **more: str) -> str:
    bare = thing.bare
    return form.format(
        s=thing.name, S=_capital(thing.name), bare=bare, Bare=_capital(bare), short=thing.short,
        v=value, V=value, old=old, **more,
    )  # fmt: skip


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# ------------------------------------------------------------------ what tools try to slip in


def _injections(rng: Random, length: int) -> list[list[tuple[str, str]]]:
    """Orders that stand in tool output: for each stretch, the order and the line it stands in."""
    found: list[list[tuple[str, str]]] = [[] for _ in range(STRETCHES)]
    for order in rng.sample(say.INJECTED_ORDERS, 3 if length < 400 else 5):
        found[rng.randrange(STRETCHES)].append((order, rng.choice(say.INJECTED).format(x=order)))
    return found


# ------------------------------------------------------------------ how it is said


class _Stretch:
    """The messages between two compactions."""

    def __init__(
        self, plan: _Plan, events: list[_Event], injected: list[tuple[str, str]], length: int, *, first: bool
    ) -> None:
        self._rng = plan.rng
        self._domain = plan.domain
        self._events = events
        self._injected = [line for _, line in injected]
        self._length = length
        self._made: list[Json] = [_message("system", plan.domain.system)] if first else []

    def messages(self) -> list[Json]:
        rng = self._rng
        early, late = self._groups(late=False), self._groups(late=True)
        rng.shuffle(early)
        room = self._length - 5 * len(late) - 2
        while len(self._made) < room or early:
            left = max(1, room - len(self._made)) / 4.0  # a turn has about four messages
            if early and rng.random() < len(early) / left:
                self._tell(early.pop())
            else:
                self._turn()
        while self._injected:
            self._work(self._domain_request())
        for group in late:
            self._tell(group)
        self._chat()
        return self._made

    def _groups(self, *, late: bool) -> list[list[_Event]]:
        """Events by the message they are said in: mostly one each, sometimes two or three."""
        mine = [e for e in self._events if e.late is late]
        self._rng.shuffle(mine)
        groups: list[list[_Event]] = []
        for event in mine:
            plain = event.by == "user" and event.lead is None and event.answer is None
            if plain and groups and self._joins(groups[-1]):
                groups[-1].append(event)
            else:
                groups.append([event])
        return groups

    def _joins(self, group: list[_Event]) -> bool:
        last = group[-1]
        free = last.by == "user" and last.lead is None and last.answer is None
        return free and len(group) < 3 and self._rng.random() < 0.25

    def _tell(self, group: list[_Event]) -> None:
        rng, event = self._rng, group[0]
        if event.by == "assistant":
            self._user(self._domain_request())
            self._calls()
            self._assistant(f"{event.sentence} {self._prose(rng.randint(0, 2))}" if rng.random() < 0.5
                            else f"{self._prose(rng.randint(1, 3))} {event.sentence}")  # fmt: skip
            return
        if event.lead is not None:
            question, told = event.lead
            self._user(question)
            self._assistant(told)
            self._user(event.sentence)
            self._assistant(event.answer or "Ok.")
            return
        sentences = [e.sentence for e in group]
        works = rng.random() < 0.4
        self._user(self._composed(sentences, self._domain_request() if works else None))
        if works:
            self._calls()
        answer = event.answer or (rng.choice(say.NODDED) if rng.random() < 0.6 else "")
        told = self._prose(rng.randint(1, 3)) if works or not answer else ""
        self._assistant(f"{answer} {told}".strip())

    def _composed(self, facts: list[str], request: str | None) -> str:
        """A message of the user that says something worth keeping, somewhere in it."""
        rng = self._rng
        shape = rng.choice(("plain", "plain", "greeting", "middle", "middle", "list", "aside", "terse"))
        if shape == "list" or (len(facts) > 1 and rng.random() < 0.5):
            mark = rng.choice(("- ", "* ", "1. "))
            items = [*facts, *([self._chatter()] if rng.random() < 0.6 else []), *([request] if request else [])]
            rng.shuffle(items)
            if len(items) == 1:
                items.append(self._chatter())
            head = rng.choice(("A few things:", "Some notes from my side:", "ok, couple of points", "So:"))
            return "\n".join([head, *(f"{mark if mark != '1. ' else f'{n}. '}{t}" for n, t in enumerate(items, 1))])
        told = _joined(facts)
        if shape == "terse":
            return _joined([*([request] if request else []), _small(told.rstrip("."))])
        if shape == "middle":
            before = [self._chatter() for _ in range(rng.randint(1, 4))]
            after = [self._chatter() for _ in range(rng.randint(0, 3))]
            parts = [*before, told, *after, *([request] if request else [])]
            return "\n\n".join(parts) if rng.random() < 0.3 else _joined(parts)
        if shape == "aside":
            return _joined([request or self._chatter(), f"{rng.choice(say.ASIDES)} {_small(told)}"])
        start = [rng.choice(say.GREETINGS)] if shape == "greeting" else []
        parts = [*start, told, *([request] if request else [])]
        if request and rng.random() < 0.5:
            parts = [*start, request, told]
        return _joined(parts)

    def _turn(self) -> None:
        if self._rng.random() < 0.6:
            self._work(self._domain_request())
        else:
            self._chat()

    def _chat(self) -> None:
        self._user(" ".join(self._chatter() for _ in range(self._rng.randint(1, 3))))
        self._assistant(self._prose(self._rng.randint(1, 3)))

    def _work(self, request: str) -> None:
        asks = [request, *([self._chatter()] if self._rng.random() < 0.5 else [])]
        self._rng.shuffle(asks)
        self._user(_joined(asks))
        self._calls()
        self._assistant(self._prose(self._rng.randint(1, 4)))

    def _calls(self) -> None:
        rng = self._rng
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            tool = rng.choice(self._domain.tools)
            call = f"call_{fill(rng, '%' * 10)}"
            given = json.dumps({tool.argument: fill(rng, rng.choice(("recent/%%%%", "%%%%%%", "last ## days")))})
            asked = {"id": call, "type": "function", "function": {"name": tool.name, "arguments": given}}
            said = rng.choice(say.OPENINGS) if rng.random() < 0.4 else None
            self._made.append({"role": "assistant", "content": said, "tool_calls": [asked]})
            self._made.append({"role": "tool", "tool_call_id": call, "content": self._slipped(tool.output(rng))})

    def _slipped(self, output: str) -> str:
        """Tool output, with an order in it that nobody gave, if one is due."""
        if not self._injected or self._rng.random() < 0.7:
            return output
        lines = output.splitlines()
        lines.insert(self._rng.randint(0, len(lines)), self._injected.pop())
        return "\n".join(lines)

    def _domain_request(self) -> str:
        return self._rng.choice(self._domain.requests)

    def _chatter(self) -> str:
        rng = self._rng
        way = rng.random()
        if way < 0.25:
            return fill(rng, rng.choice(say.DISTRACTORS))
        return rng.choice(self._domain.chatter if way < 0.75 else say.SMALL_TALK)

    def _prose(self, sentences: int) -> str:
        return " ".join(_some(self._rng, self._domain.prose, sentences))

    def _user(self, text: str) -> None:
        if self._rng.random() < 0.25:
            text = text.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}")  # as phones write it
        self._made.append(_message("user", text))

    def _assistant(self, text: str) -> None:
        self._made.append(_message("assistant", text or "Ok."))


def _message(role: str, text: str) -> Json:
    return {"role": role, "content": text}


def _joined(parts: Sequence[str]) -> str:
    """One after the other; a new line where a sentence has no end of its own."""
    return "".join(part + (" " if part[-1] in ".,:?!" else "\n") for part in parts).rstrip()


def _small(text: str) -> str:
    """As it goes on in the middle of a sentence, unless it begins with a name or a code."""
    return text[:1].lower() + text[1:] if text[1:2].islower() and not text.startswith("I ") else text
