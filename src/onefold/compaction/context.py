"""The one place that renders a context: what a model is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

from onefold.errors import OnefoldError
from onefold.journal import adoption, context_prefix, lineage, quote_refs
from onefold.journal.adoption import Adopted, Origin
from onefold.journal.context_prefix import Since
from onefold.journal.lineage import PinsAndNotes
from onefold.journal.quote_refs import NOTHING, Quoting
from onefold.messages import codec, convert
from onefold.messages.codecs import OPENAI_CHAT, PLAIN, estimate, placeholder_results
from onefold.messages.context_text import EARLIER, PINNED, PINNED_END, facts_block, notes_block, summary_block
from onefold.messages.parts import AGENT, ANSWERS, OpaquePart, ReasoningPart, TextPart
from onefold.messages.provider_item import without
from onefold.messages.quotation import Quotation
from onefold.messages.result_mask import masked
from onefold.messages.tool_groups import LEADING, group
from onefold.model import MESSAGE, Fact, Json, Note, Record, Segment
from onefold.storage.base import Transaction

_MODELS = ANSWERS | {"tool", "function"}
_WORKING = frozenset({AGENT, "tool", "function"})


@dataclass(frozen=True, slots=True)
class Context:
    """What a model is sent, and where it comes from."""

    messages: list[Json]
    tokens: int
    segment: int
    numbers: tuple[int, ...]
    """The record each message comes from: the summary's is the segment's, and that of a note which was made since the
    segment began is the note's. 0 stands for what no record holds as it is: the other notes together, the quotes
    together, a result that is not there, since no provider takes a call without one, and a line of a user's before
    words of the model that would stand first, and around what was pinned since."""
    formats: tuple[str, ...]
    summary: str | None
    left_out: tuple[int, ...]
    """Tool results whose call is not there, reasoning without what it led to, messages from before the segment that are
    nothing but reasoning, and system prompts that were replaced: kept in the journal, and not for the model."""
    last: int
    """The newest record that was seen when this was made."""
    pinned: tuple[int, ...] = ()
    """Messages from before the cut that are here by a pin. One that was unpinned since the segment began is among them
    until the next one begins."""
    notes: tuple[Note, ...] = ()
    """What somebody noted, and holds now."""
    facts: tuple[Fact, ...] = ()
    """Of what is quoted, what the model that wrote the summary called a rule, a limit and so on; in segments of older
    versions, what was carried word for word, as it held when the segment began."""
    quotes: tuple[Quotation, ...] = ()
    """What people said before the cut, word for word, as far as there is room for it."""
    prompt: tuple[int, ...] = ()
    """The system and developer messages that stand first: those in force when the segment began."""
    masked: tuple[int, ...] = ()
    """Tool results that are shown as one line. The journal has them whole."""
    origin: Origin | None = None
    """Whose item stands in it, if one does. It is for nobody else."""
    item: tuple[int, ...] = ()
    """The messages in which a provider compacted what came before, as it gave them back."""

    def to(self, format: str) -> list[Json]:
        """The same messages in another provider's format."""
        return convert(zip(self.formats, self.messages, strict=True), format)


@dataclass(frozen=True, slots=True)
class ContextView:
    """Where a context begins: what stands for everything before the cut."""

    segment: Segment
    summary: str | None
    kept: tuple[Record, ...]
    """Without the prompt."""
    pinned: tuple[Record, ...]
    standing: PinsAndNotes
    """As it was when the segment began."""
    facts: tuple[Fact, ...] = ()
    """Those of a segment that an older version made, as far as they hold now."""
    carried: tuple[Fact, ...] = ()
    """The facts of the segment, whether or not they hold now."""
    quoting: Quoting = NOTHING
    filled: bool = True
    """Whether it was made with quotes in mind: older versions carried facts instead, and imports carry nothing."""
    prompt: tuple[Record, ...] = ()
    now: PinsAndNotes | None = None
    """What stands now, if that is more."""
    since: tuple[Since, ...] = ()
    """What was marked since the segment began."""
    brought: Mapping[int, Record] = field(default_factory=dict)
    """Messages from before the cut that were pinned since."""
    adopted: Adopted | None = None
    """The provider's item that stands for what came before, for a caller that named its origin."""
    window: tuple[Record, ...] = ()
    edits: bool = False
    """Whether the provider clears old results itself."""
    untold: tuple[int, ...] = ()
    """Of what is kept by name, what the summary does not know: a provider wrote that, and was not sent them."""


def load_view(tx: Transaction, session: str, number: int, stop: int, origin: Origin | None = None) -> ContextView:
    """Reads the boundary of one segment, with what stands in every context by the records before `stop`. For a caller
    that names the origin of the item which is in force, that is the boundary."""
    segment = lineage.segment(tx, session, number)
    if segment is None:
        known = ", ".join(str(s.number) for s in tx.segments(session)[-5:])
        raise OnefoldError(f"session {session!r} has no segment {number}; its newest are {known or 'none'}")
    adopted = None if origin is None else adoption.in_force(tx, session, segment)
    adopted = adopted if adopted is not None and adopted.origin == origin else None
    if adopted is not None:
        segment = replace(segment, cut=adopted.cut, kept=adopted.kept)
    told = lineage.summary_body(tx, session, segment) if adopted is None else None
    carried = lineage.facts(told)
    begins = context_prefix.of(tx, session, segment, stop)
    opening, prompt = begins.opening, begins.opening.prompt

    def read(numbers: Iterable[int]) -> tuple[Record, ...]:
        found = (lineage.record(tx, session, n) for n in numbers)
        return tuple(r for r in found if r is not None and r.kind == MESSAGE)

    window = adopted.window if adopted is not None else ()
    by_name = [n for n in opening.by_name(segment.kept, segment.cut) if n not in prompt]
    there = {*by_name, *prompt, *window}
    pinned = [n for n in sorted(opening.pinned) if n < segment.cut and n not in there]
    said = quote_refs.as_record(adopted.quotes) if adopted is not None else told
    return ContextView(
        segment,
        None if told is None else str(told["summary"]),
        read(by_name),
        read(pinned),
        opening,
        lineage.holding(carried, begins.now, segment.hidden),
        carried,
        lineage.quoting(tx, session, said, segment.kept),
        told is None or "quotes" in told,
        read(prompt),
        begins.now,
        begins.since,
        {r.number: r for r in read(n for one in begins.since for n in one.brings)},
        adopted,
        read(window),
        origin is not None and origin.edits,
        tuple(told["adopts"]["kept"]) if told is not None and "adopts" in told else (),
    )


def render(begins: ContextView, tail: Sequence[Record], last: int, live: str | None = None) -> Context:
    """Prompt, pins, quotes, summary, notes, messages kept by name, then everything from the cut on, by groups.

    What stands before the tail is as it was when the segment began: within it, a context only grows at its end. What
    was noted or pinned since stands at its own place. `live` is the turn that is open: calls that another one left
    without a result will get none. A provider's item is told otherwise, see `_provided`.
    """
    if begins.adopted is not None:
        return _provided(begins, begins.adopted, tail, last, live)
    segment, opening = begins.segment, begins.standing
    telling = _Telling(segment, _masks(begins))
    prompt = telling.verbatim(begins.prompt)
    shown = [r for r in tail if r.number not in opening.replaced and r.number not in opening.prompt]
    # No call waits that is pinned or kept: one without a result here was given up. What is kept of a pinned call
    # stands with it.
    with_pins = [r for r in begins.kept if r.number in opening.pinned and _calling(r)]
    pins = telling.over(sorted((*begins.pinned, *with_pins), key=lambda r: r.number))
    kept = telling.over([r for r in begins.kept if r not in with_pins], alone=True)
    held = lineage.holding(begins.carried, opening, segment.hidden)
    standing: list[_Part] = []
    if begins.quoting.text:
        standing.append(_text(0, begins.quoting.text))
    if held:
        standing.append(_text(0, facts_block(held)))
    if begins.summary is not None:
        standing.append(_text(segment.number, summary_block(begins.summary)))
    if opening.notes:
        standing.append(_text(0, notes_block(opening.notes)))
    # The messages that a session begins with stand before what was noted before them.
    lead = [] if prompt or pins or kept or standing else [*takewhile(_leads, shown)]
    rest = shown[len(lead) :]
    over = {r.number for r in rest if r.turn is not None and r.turn != live}
    order = [*telling.verbatim(lead), *telling.tail(rest, over, _placed(begins, telling))]
    was_there = {r.number for r in shown if r.number < segment.number} - telling.left_out
    goes_on = bool(was_there)  # when the segment began, something was behind the front
    parts = [*prompt, *pins, *standing, *kept] if goes_on else [*prompt, *pins, *kept, *standing]
    if not goes_on and not standing and (pins or kept):
        parts.append(_line(PINNED_END))
    parts = _opened([*parts, *order])
    made = _context(begins, parts, telling, tail, last)
    held_now = (*held, *begins.quoting.facts)
    return replace(made, summary=begins.summary, facts=held_now, prompt=tuple(r.number for r in begins.prompt))


def _provided(begins: ContextView, adopted: Adopted, tail: Sequence[Record], last: int, live: str | None) -> Context:
    """The prompt, the window as the provider gave it, and what it does not cover; with quotes and notes in one text.

    That text stands right behind a sealed window. Where the item can be read, its provider may check the reasoning that
    follows it, so there it stands behind what was there when the item was adopted, and nothing of that is changed.
    """
    segment, opening = begins.segment, begins.standing
    as_given = segment.number == adopted.segment and not adopted.kept
    telling = _Telling(segment, _masks(begins), whole=adopted.window, old=0 if as_given else None)
    prompt = [] if any(map(_leads, begins.window)) else telling.verbatim(begins.prompt)
    apart = {*opening.replaced, *opening.prompt, *adopted.window}
    rest = [*begins.kept, *(r for r in tail if r.number not in apart)]
    over = {r.number for r in (*begins.window, *rest) if r.turn is not None and r.turn != live}
    over |= {r.number for r in begins.kept}  # nothing that waits is kept: what gave a call up may be covered
    texts = [begins.quoting.text, notes_block(opening.notes) if opening.notes else ""]
    beside = [_text(0, "\n\n".join(filter(None, texts)))] if any(texts) else []
    if pins := telling.over(begins.pinned):
        beside = [_line(PINNED), *pins, _line(PINNED_END), *beside]
    placed = _placed(begins, telling)
    if adopted.sealed and not any(_calls(r) for r in begins.window):
        parts = [*telling.verbatim(begins.window), *beside, *telling.tail(rest, over, placed)]
    else:
        slot = {adopted.segment: beside} if beside else {}
        parts = telling.tail([*begins.window, *rest], over, slot | placed)
    parts = [*prompt, *parts]
    made = _context(begins, parts, telling, tail, last)
    return replace(made, prompt=tuple(p.number for p in prompt), origin=adopted.origin, item=adopted.window)


def _context(
    begins: ContextView, parts: Sequence[_Part], telling: _Telling, tail: Sequence[Record], last: int
) -> Context:  # fmt: skip
    """What every context says of itself."""
    replaced = {r.number for r in tail if r.number in begins.standing.replaced}
    brought = [n for one in begins.since for n in one.brings if n in begins.brought]
    return Context(
        messages=[p.body for p in parts],
        tokens=sum(p.tokens for p in parts),
        segment=begins.segment.number,
        numbers=tuple(p.number for p in parts),
        formats=tuple(p.format for p in parts),
        summary=None,
        left_out=tuple(sorted(telling.left_out | replaced)),
        last=last,
        pinned=(*(r.number for r in begins.pinned), *dict.fromkeys(brought)),
        notes=(begins.now or begins.standing).notes,
        facts=begins.quoting.facts,
        quotes=begins.quoting.shown,
        masked=tuple(sorted(telling.masked - telling.left_out)),
    )


def _masks(begins: ContextView) -> Set[int]:
    """What is shown as one line: nothing, where the provider clears old results itself."""
    masks = () if begins.edits else begins.segment.masked
    return {number for number, _ in masks}.difference(begins.standing.pinned)


class _Part(NamedTuple):
    number: int
    body: Json
    tokens: int
    format: str
    role: str


class _Telling:
    """Messages as one segment tells them, and those that it leaves out or masks.

    Reasoning of messages from before the segment is left out, all of it: it was thought with something else before it,
    and a provider that checks that rejects it, or what is left if some is missing. An agent that keeps its session
    itself has what it has. What a provider made of the past stands in no message but in those that are told `whole`.
    """

    def __init__(
        self, segment: Segment, masks: Set[int], *, whole: Iterable[int] = (), old: int | None = None
    ) -> None:  # fmt: skip
        self._old = (segment.number if segment.keeper == "onefold" else 0) if old is None else old
        self._masks = masks
        self._items = {number for number, _ in segment.adopted}.difference(whole)
        self.left_out: set[int] = set()
        self.masked: set[int] = set()

    def verbatim(self, records: Sequence[Record]) -> list[_Part]:
        """Messages one after another."""
        return [_part(r) for r in self._unthought(records, alone=False)]

    def over(self, records: Sequence[Record], *, alone: bool = False) -> list[_Part]:
        """Messages from before the cut, where no call waits any more. `alone`: without what belongs to them."""
        return self._ordered(self._unthought(records, alone=alone), {r.number for r in records}, {})

    def tail(self, records: Sequence[Record], over: set[int], since: Mapping[int, list[_Part]]) -> list[_Part]:
        """Messages from the cut on, and at their places the parts for what was marked since. Calls of those that are
        `over` will get no result."""
        return self._ordered(self._unthought(records, alone=False), over, since)

    def _unthought(self, records: Sequence[Record], *, alone: bool) -> list[Record]:
        """Without what was thought before the segment. An item whose reasoning is not there does not refer to it.

        What is hidden, erased or not told here may have been reasoning too: so where a number from before the segment
        is missing, what follows is told as if it was. Within a segment nothing goes.
        """
        told: list[Record] = []
        lost = alone = alone and self._old > 0
        before = 0
        for record in records:
            role = record.header.role if record.header is not None else ""
            lost = lost or before + 1 != record.number < self._old
            before = record.number
            if role not in ANSWERS:
                lost = lost if role in _WORKING else alone
                told.append(self._shown(record))
                continue
            lost = record.number < self._old if role == "reasoning" else lost
            how, body = codec(record.format or PLAIN), record.body
            left = without(record.format, body) if record.number in self._items else body
            left = how.unthought(left) if left is not None and record.number < self._old else left
            if left is not None and lost:
                left = how.adrift(left)
            if left is None:
                self.left_out.add(record.number)
            else:
                told.append(record if left is body else record._replace(body=left, header=how.header(left)))
        return told

    def _shown(self, record: Record) -> Record:
        """A message, with a line in place of its results if it is masked."""
        made = masked(record.format, record.body, record.number) if record.number in self._masks else None
        if made is None:
            return record
        self.masked.add(record.number)
        return record._replace(body=made, header=codec(record.format or PLAIN).header(made))

    def _ordered(self, messages: Sequence[Record], over: set[int], since: Mapping[int, list[_Part]]) -> list[_Part]:
        """Messages in order, but results right after their call; what came in between follows them."""
        grouped = group(((r.number, r.header) for r in messages if r.header is not None), over)
        by_number = {r.number: r for r in messages}
        owner = {n: g.first for g in grouped.groups for n in g.members[1:]}  # of two calls it answers, the later one
        follows: dict[int, list[int]] = {}
        for number in sorted(owner):
            follows.setdefault(owner[number], []).append(number)
        order: list[int] = []
        for number in _merged([r.number for r in messages], sorted(since)):
            following = [] if number in owner or number in grouped.orphans else [number]
            while following:
                order.append(following.pop(0))
                following[:0] = follows.get(order[-1], ())
        thoughts = _without_end([n for n in order if n in by_number], by_number)
        order = [n for n in order if n not in thoughts]
        self.left_out |= grouped.orphans | thoughts
        place = {number: at for at, number in enumerate(order)}
        lacking = {max(g.members, key=lambda n: place.get(n, -1)): g for g in grouped.groups if g.waiting}
        parts: list[_Part] = []
        for at, number in enumerate(order):
            if number in since:
                parts += since[number]
                continue
            parts.append(_part(by_number[number]))
            if (lacks := lacking.get(number)) is not None:
                mine = {by_number[n].format for n in lacks.members}
                behind = order[at + 1 :]
                spoken = any(n in since or _speaks(by_number[n], *mine) for n in behind) if len(mine) == 1 else True
                if not lacks.abandoned and not spoken:
                    continue  # its results are what comes next
                why = "the call was interrupted" if lacks.abandoned else "the call is still at work"
                for call in (by_number[n] for n in lacks.members):
                    parts += _no_results(call, [id for id in _calls(call) if id in lacks.waiting], why)
        return parts


def _merged(messages: Sequence[int], marks: Sequence[int]) -> Iterator[int]:
    """Messages as they are given, and each mark before the first that is newer."""
    left = [*reversed(marks)]
    for number in messages:
        while left and left[-1] < number:
            yield left.pop()
        yield number
    yield from reversed(left)


def _placed(begins: ContextView, telling: _Telling) -> dict[int, list[_Part]]:
    """What was marked since the segment began, by where it stands."""
    made: dict[int, list[_Part]] = {}
    for one in begins.since:
        if one.words is not None:
            made[one.number] = [_text(one.number, one.words)]
        elif group := [begins.brought[n] for n in one.brings if n in begins.brought]:
            made[one.number] = [_line(PINNED), *telling.over(group), _line(PINNED_END)]
    return made


def _leads(record: Record) -> bool:
    return record.header is not None and record.header.role in LEADING


def _calling(record: Record) -> bool:
    return record.header is not None and bool(record.header.call_ids or record.header.result_ids)


def _text(number: int, text: str) -> _Part:
    return _Part(number, {"role": "user", "content": text}, estimate(text), OPENAI_CHAT, "user")


def _line(text: str) -> _Part:
    return _made_up({"role": "user", "content": text}, OPENAI_CHAT, "user")


def _part(record: Record) -> _Part:
    tokens, role = (record.header.tokens, record.header.role) if record.header else (0, "")
    return _Part(record.number, record.body, tokens, record.format or PLAIN, role)


def _opened(parts: list[_Part]) -> list[_Part]:
    """The same, with a user's line before words of the model that would stand first: most providers take none there."""
    for at, part in enumerate(parts):
        if part.role in _MODELS:
            return [*parts[:at], _line(EARLIER), *parts[at:]]
        if part.role not in LEADING and not _silent(part.format, part.body):
            break
    return parts


def _made_up(body: Json, format: str, role: str) -> _Part:
    return _Part(0, body, codec(format).header(body).tokens, format, role)


def _silent(format: str, body: Json) -> bool:
    """Whether there is nothing in it that a model is told."""
    return all(
        (isinstance(p, TextPart) and not p.text.strip()) or isinstance(p, ReasoningPart | OpaquePart)
        for p in codec(format).parse(body).parts
    )


def _without_end(order: Sequence[int], by_number: dict[int, Record]) -> frozenset[int]:
    """Reasoning that nothing of the same answer follows. What a provider compacted is not an answer."""
    found: set[int] = set()
    goes_on = False
    for number in reversed(order):
        header, body = by_number[number].header, by_number[number].body
        role = header.role if header is not None else ""
        if role == "reasoning" and not goes_on:
            found.add(number)
        elif not (isinstance(body, dict) and str(body.get("type")).startswith("compaction")):
            goes_on = role in ANSWERS
    return frozenset(found)


def _speaks(record: Record, format: str | None) -> bool:
    """Whether it is more than an agent of this format at work: then what is open before it has no result for now."""
    role = record.header.role if record.header is not None else ""
    if role == "other" and _silent(record.format or PLAIN, record.body):
        return False  # news for clients
    return role not in _WORKING or record.format != format


def _calls(record: Record) -> tuple[str, ...]:
    return record.header.call_ids if record.header is not None else ()


def _no_results(call: Record, ids: list[str], why: str) -> list[_Part]:
    """What stands for results that are not there, in the format of the call."""
    name = call.format or PLAIN
    made = placeholder_results(name, call.body, ids, why) if ids else []
    return [_made_up(body, name, "tool") for body in made]
