"""The one place that renders a context: what a model is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onefold.compaction.groups import LEADING, group
from onefold.errors import OnefoldError
from onefold.journal.seam import Transaction
from onefold.messages import codec, convert
from onefold.messages.codecs import OPENAI_CHAT, PLAIN, estimate
from onefold.messages.frame import framed
from onefold.messages.said import Result, Said
from onefold.model import Json, Record, Segment


@dataclass(frozen=True, slots=True)
class Context:
    """What a model is sent, and where it comes from."""

    messages: list[Json]
    tokens: int
    segment: int
    numbers: tuple[int, ...]
    """The record each message comes from; the summary's is the segment's. 0 stands for a result that never came: no
    provider takes a call without one, so it says that there is none."""
    formats: tuple[str, ...]
    summary: str | None
    left_out: tuple[int, ...]
    """Tool results whose call is not there: kept in the journal, but no provider takes them."""
    last: int
    """The newest record that was seen when this was made."""

    def to(self, format: str) -> list[Json]:
        """The same messages in another provider's format."""
        return convert(zip(self.formats, self.messages, strict=True), format)


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a context begins: what stands for everything before the cut."""

    segment: Segment
    summary: str | None
    kept: tuple[Record, ...]


def boundary(tx: Transaction, session: str, number: int) -> Boundary:
    """Reads the boundary of one segment."""
    segment = tx.segment(session, number)
    if segment is None:
        known = ", ".join(str(s.number) for s in tx.segments(session)[-5:])
        raise OnefoldError(f"session {session!r} has no segment {number}; its newest are {known or 'none'}")
    said = None if segment.summary is None else tx.record(session, segment.summary)
    kept = tuple(r for n in segment.kept if (r := tx.record(session, n)) is not None)
    return Boundary(segment, None if said is None else str(said.body["summary"]), kept)


def render(begins: Boundary, tail: Sequence[Record], last: int) -> Context:
    """System prompt, summary, messages kept by name, then everything from the cut on, each group together."""
    order, orphans = _order(tail)
    segment, summary, kept = begins.segment, begins.summary, begins.kept
    parts: list[_Part] = [_part(r) for r in kept if _leads(r)]
    if summary is not None:
        text = framed(summary)
        parts.append(_Part(segment.number, {"role": "user", "content": text}, estimate(text), OPENAI_CHAT))
    parts += [_part(r) for r in kept if not _leads(r)]
    parts += order
    return Context(
        messages=[p.body for p in parts],
        tokens=sum(p.tokens for p in parts),
        segment=segment.number,
        numbers=tuple(p.number for p in parts),
        formats=tuple(p.format for p in parts),
        summary=summary,
        left_out=tuple(sorted(orphans)),
        last=last,
    )


def _leads(record: Record) -> bool:
    return record.header is not None and record.header.role in LEADING


class _Part(NamedTuple):
    number: int
    body: Json
    tokens: int
    format: str


def _part(record: Record) -> _Part:
    return _Part(record.number, record.body, record.header.tokens if record.header else 0, record.format or PLAIN)


def _order(messages: Sequence[Record]) -> tuple[list[_Part], frozenset[int]]:
    """Messages in order, but results right after their call; what came in between follows them."""
    grouped = group((r.number, r.header) for r in messages if r.header is not None)
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
    place = {number: at for at, number in enumerate(order)}
    given_up = {max(g.members, key=place.__getitem__): g for g in grouped.groups if g.abandoned and g.waiting}
    parts: list[_Part] = []
    for number in order:
        parts.append(_part(by_number[number]))
        if (lacks := given_up.get(number)) is not None:
            parts += _no_results(by_number[lacks.first], sorted(lacks.waiting))
    return parts, grouped.orphans


def _no_results(call: Record, ids: list[str]) -> list[_Part]:
    """What stands for the results of calls that were given up, in the format of the call."""
    name = call.format or PLAIN
    never = [Said("tool", (Result(id, "(no result: the call was interrupted)", failed=True),)) for id in ids]
    return [_Part(0, body, codec(name).header(body).tokens, name) for body in codec(name).write(never)]
