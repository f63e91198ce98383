"""The one place that renders a context: what a model is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onefold.compaction.groups import LEADING, group
from onefold.errors import OnefoldError
from onefold.journal.seam import Transaction
from onefold.messages.codecs import estimate
from onefold.messages.frame import framed
from onefold.model import Json, Record, Segment


@dataclass(frozen=True, slots=True)
class Context:
    """What a model is sent, and where it comes from."""

    messages: list[Json]
    tokens: int
    segment: int
    numbers: tuple[int, ...]
    """The record each message comes from; the summary's is the segment's."""
    summary: str | None
    left_out: tuple[int, ...]
    """Tool results whose call is not there: kept in the journal, but no provider takes them."""
    last: int
    """The newest record that was seen when this was made."""


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
    parts: list[tuple[int, Json, int]] = [_part(r) for r in kept if _leads(r)]
    if summary is not None:
        text = framed(summary)
        parts.append((segment.number, {"role": "user", "content": text}, estimate(text)))
    parts += [_part(r) for r in kept if not _leads(r)]
    parts += [_part(r) for r in order]
    return Context(
        messages=[body for _, body, _ in parts],
        tokens=sum(tokens for _, _, tokens in parts),
        segment=segment.number,
        numbers=tuple(number for number, _, _ in parts),
        summary=summary,
        left_out=tuple(sorted(orphans)),
        last=last,
    )


def _leads(record: Record) -> bool:
    return record.header is not None and record.header.role in LEADING


def _part(record: Record) -> tuple[int, Json, int]:
    return record.number, record.body, record.header.tokens if record.header else 0


def _order(messages: Sequence[Record]) -> tuple[list[Record], frozenset[int]]:
    """Messages in order, but results right after their call; what came in between follows them."""
    grouped = group((r.number, r.header) for r in messages if r.header is not None)
    by_number = {r.number: r for r in messages}
    owner = {n: g.first for g in grouped.groups for n in g.members[1:]}  # of two calls it answers, the later one
    follows: dict[int, list[int]] = {}
    for number in sorted(owner):
        follows.setdefault(owner[number], []).append(number)
    order: list[Record] = []
    for record in messages:
        following = [] if record.number in owner or record.number in grouped.orphans else [record.number]
        while following:
            number = following.pop(0)
            order.append(by_number[number])
            following[:0] = follows.get(number, ())
    return order, grouped.orphans
