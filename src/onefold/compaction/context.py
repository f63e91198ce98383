"""The one place that renders a context: what a model is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onefold.errors import OnefoldError
from onefold.journal import view
from onefold.journal.quotes import NOTHING, Quoting
from onefold.journal.seam import Transaction
from onefold.journal.view import Standing
from onefold.messages import codec, convert
from onefold.messages.codecs import OPENAI_CHAT, PLAIN, estimate, no_results
from onefold.messages.frame import EARLIER, framed, noted, stated
from onefold.messages.groups import LEADING, group
from onefold.messages.quotation import Quotation
from onefold.messages.said import AGENT, ANSWERS, Text, Thought
from onefold.model import MESSAGE, Fact, Json, Note, Record, Segment

_MODELS = ANSWERS | {"tool", "function"}
_WORKING = frozenset({AGENT, "tool", "function"})


@dataclass(frozen=True, slots=True)
class Context:
    """What a model is sent, and where it comes from."""

    messages: list[Json]
    tokens: int
    segment: int
    numbers: tuple[int, ...]
    """The record each message comes from; the summary's is the segment's. 0 stands for what no record holds as it is:
    the notes together, the quotes together, a result that is not there, since no provider takes a call without one, and
    a line of a user's before words of the model that would stand first."""
    formats: tuple[str, ...]
    summary: str | None
    left_out: tuple[int, ...]
    """Tool results whose call is not there, and reasoning without what it led to: kept in the journal, but no provider
    takes them."""
    last: int
    """The newest record that was seen when this was made."""
    pinned: tuple[int, ...] = ()
    """Messages from before the cut that are here because they are pinned."""
    notes: tuple[Note, ...] = ()
    """What somebody noted, which stands in every context."""
    facts: tuple[Fact, ...] = ()
    """Of what is quoted, what the model that wrote the summary called a rule, a limit and so on; in segments of older
    versions, what was carried word for word, and holds now."""
    quotes: tuple[Quotation, ...] = ()
    """What people said before the cut, word for word, as far as there is room for it."""

    def to(self, format: str) -> list[Json]:
        """The same messages in another provider's format."""
        return convert(zip(self.formats, self.messages, strict=True), format)


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a context begins: what stands for everything before the cut."""

    segment: Segment
    summary: str | None
    kept: tuple[Record, ...]
    pinned: tuple[Record, ...]
    standing: Standing
    facts: tuple[Fact, ...] = ()
    """Those of a segment that an older version made, as far as they hold now."""
    quoting: Quoting = NOTHING
    filled: bool = True
    """Whether it was made with quotes in mind: older versions carried facts instead, and imports carry nothing."""


def boundary(tx: Transaction, session: str, number: int, stop: int) -> Boundary:
    """Reads the boundary of one segment, with what stands in every context by the records before `stop`."""
    segment = view.segment(tx, session, number)
    if segment is None:
        known = ", ".join(str(s.number) for s in tx.segments(session)[-5:])
        raise OnefoldError(f"session {session!r} has no segment {number}; its newest are {known or 'none'}")
    told = view.told(tx, session, segment)
    kept = (view.record(tx, session, n) for n in segment.kept)
    standing = view.standing(tx, session, stop, segment.hidden)
    return Boundary(
        segment,
        None if told is None else str(told["summary"]),
        tuple(r for r in kept if r is not None and r.kind == MESSAGE),
        tuple(r for r in view.pinned_messages(tx, session, standing, segment.cut) if r.number not in segment.kept),
        standing,
        view.holding(view.facts(told), standing, segment.hidden),
        view.quoting(tx, session, told, segment.kept),
        told is None or "quotes" in told,
    )


def render(begins: Boundary, tail: Sequence[Record], last: int, live: str | None = None) -> Context:
    """System prompt, pins, notes, quotes, summary, messages kept by name, then everything from the cut on, by groups.

    `live` is the turn that is open: calls that another one left without a result will get none.
    """
    segment, summary, notes = begins.segment, begins.summary, begins.standing.notes
    order, left_out = _order(tail, {r.number for r in tail if r.turn is not None and r.turn != live})
    # No call waits that is pinned or kept: one without a result here was given up. What is kept of a pinned call
    # stands with it.
    with_pins = [r for r in begins.kept if r.number in begins.standing.pinned and _calling(r)]
    verbatim = sorted((*begins.pinned, *with_pins), key=lambda r: r.number)
    pins, alone = _order([r for r in verbatim if not _leads(r)], {r.number for r in verbatim})
    by_name = [r for r in begins.kept if not _leads(r) and r not in with_pins]
    kept, lost = _order(by_name, {r.number for r in by_name})
    parts: list[_Part] = [_part(r) for r in (*begins.kept, *begins.pinned) if _leads(r)]
    parts += pins
    parts += [] if order else kept  # an old request never stands last
    if notes:
        parts.append(_text(0, noted(notes)))
    if begins.quoting.text:
        parts.append(_text(0, begins.quoting.text))
    if begins.facts:
        parts.append(_text(0, stated(begins.facts)))
    if summary is not None:
        parts.append(_text(segment.number, framed(summary)))
    parts += kept if order else []
    parts += order
    parts = _opened(parts)
    return Context(
        messages=[p.body for p in parts],
        tokens=sum(p.tokens for p in parts),
        segment=segment.number,
        numbers=tuple(p.number for p in parts),
        formats=tuple(p.format for p in parts),
        summary=summary,
        left_out=tuple(sorted(left_out | alone | lost)),
        last=last,
        pinned=tuple(r.number for r in begins.pinned),
        notes=notes,
        facts=(*begins.facts, *begins.quoting.facts),
        quotes=begins.quoting.shown,
    )


def _leads(record: Record) -> bool:
    return record.header is not None and record.header.role in LEADING


def _calling(record: Record) -> bool:
    return record.header is not None and bool(record.header.opens or record.header.closes)


class _Part(NamedTuple):
    number: int
    body: Json
    tokens: int
    format: str
    role: str


def _text(number: int, text: str) -> _Part:
    return _Part(number, {"role": "user", "content": text}, estimate(text), OPENAI_CHAT, "user")


def _part(record: Record) -> _Part:
    tokens, role = (record.header.tokens, record.header.role) if record.header else (0, "")
    return _Part(record.number, record.body, tokens, record.format or PLAIN, role)


def _opened(parts: list[_Part]) -> list[_Part]:
    """The same, with a user's line before words of the model that would stand first: most providers take none there."""
    at = next((n for n, part in enumerate(parts) if part.role not in LEADING), len(parts))
    spoken = (p.role for p in parts[at:] if p.role in _MODELS or not (p.role in LEADING or _silent(p.format, p.body)))
    if next(spoken, "") not in _MODELS:
        return parts
    line = {"role": "user", "content": EARLIER}
    return [*parts[:at], _made_up(line, OPENAI_CHAT, "user"), *parts[at:]]


def _made_up(body: Json, format: str, role: str) -> _Part:
    return _Part(0, body, codec(format).header(body).tokens, format, role)


def _silent(format: str, body: Json) -> bool:
    """Whether there is nothing in it that a model is told."""
    return all(
        (isinstance(p, Text) and not p.text.strip()) or isinstance(p, Thought) for p in codec(format).parse(body).parts
    )


def _order(messages: Sequence[Record], over: set[int]) -> tuple[list[_Part], frozenset[int]]:
    """Messages in order, but results right after their call; what came in between follows them. Calls of those that
    are `over` will get no result. Beside them, the numbers of those that no provider takes."""
    grouped = group(((r.number, r.header) for r in messages if r.header is not None), over)
    by_number = {r.number: r for r in messages}
    owner = {n: g.first for g in grouped.groups for n in g.members[1:]}  # of two calls it answers, the later one
    follows: dict[int, list[int]] = {}
    for number in sorted(owner):
        follows.setdefault(owner[number], []).append(number)
    order: list[int] = []
    for record in messages:
        following = [] if record.number in owner or record.number in grouped.orphans else [record.number]
        while following:
            order.append(following.pop(0))
            following[:0] = follows.get(order[-1], ())
    thoughts = _without_end(order, by_number)
    order = [n for n in order if n not in thoughts]
    place = {number: at for at, number in enumerate(order)}
    lacking = {max(g.members, key=lambda n: place.get(n, -1)): g for g in grouped.groups if g.waiting}
    parts: list[_Part] = []
    for at, number in enumerate(order):
        parts.append(_part(by_number[number]))
        if (lacks := lacking.get(number)) is not None:
            mine = {by_number[n].format for n in lacks.members}
            behind = (by_number[n] for n in order[at + 1 :])
            if not lacks.abandoned and len(mine) == 1 and not any(_speaks(r, *mine) for r in behind):
                continue  # its results are what comes next
            why = "the call was interrupted" if lacks.abandoned else "the call is still at work"
            for call in (by_number[n] for n in lacks.members):
                parts += _no_results(call, [id for id in _calls(call) if id in lacks.waiting], why)
    return parts, grouped.orphans | thoughts


def _without_end(order: Sequence[int], by_number: dict[int, Record]) -> frozenset[int]:
    """Reasoning that nothing of the same answer follows."""
    found: set[int] = set()
    goes_on = False
    for number in reversed(order):
        header = by_number[number].header
        role = header.role if header is not None else ""
        if role == "reasoning" and not goes_on:
            found.add(number)
        else:
            goes_on = role in ANSWERS
    return frozenset(found)


def _speaks(record: Record, format: str | None) -> bool:
    """Whether it is more than an agent of this format at work: then what is open before it has no result for now."""
    role = record.header.role if record.header is not None else ""
    if role == "other" and _silent(record.format or PLAIN, record.body):
        return False  # news for clients
    return role not in _WORKING or record.format != format


def _calls(record: Record) -> tuple[str, ...]:
    return record.header.opens if record.header is not None else ()


def _no_results(call: Record, ids: list[str], why: str) -> list[_Part]:
    """What stands for results that are not there, in the format of the call."""
    name = call.format or PLAIN
    made = no_results(name, call.body, ids, why) if ids else []
    return [_made_up(body, name, "tool") for body in made]
