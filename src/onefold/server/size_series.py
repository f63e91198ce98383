"""The size of a session's context over its records, in few points, exact where a segment begins."""

from __future__ import annotations

from onefold.journal import lineage
from onefold.model import NOTE, PIN_ADDED, PIN_REMOVED, Segment, SessionState
from onefold.server.response_models import MarkJson, PointJson
from onefold.storage.base import Transaction

_MOST_MARKS = 2_000


def curve(tx: Transaction, state: SessionState, points: int) -> tuple[list[PointJson], list[MarkJson]]:
    """Points in order of number, about as many as asked for and two more for each segment; and where segments begin.

    A context grows by the size of each message, pin and note, and starts again with a segment: so sums over stretches
    of the journal are enough, and no message is read.
    """
    stop = state.last + 1
    bounds: list[Segment] = []
    for opened in lineage.segments(tx, state.id, stop):
        bounds.append(opened)
        if len(bounds) > _MOST_MARKS:
            break
    bounds.reverse()
    step = max(1, stop // max(1, points))
    made: list[tuple[int, int]] = []
    for opened, after in zip(bounds, [*bounds[1:], None], strict=True):
        ends = after.number if after is not None else stop
        made += _stretch(tx, state.id, opened, ends, step)
        if after is not None and ends - 1 > opened.number:
            made[-1] = (ends - 1, after.tokens_before)
    times = _times(tx, state.id, [number for number, _ in made])
    return [{"number": n, "at": times[n], "tokens": size} for n, size in made], [_mark(s) for s in bounds]


def _stretch(tx: Transaction, session: str, opened: Segment, ends: int, step: int) -> list[tuple[int, int]]:
    """The size right after a segment began, and then every few records up to the last one before `ends`."""
    size = opened.tokens_after
    sizes = [(opened.number, size)]
    marks = _marks(tx, session, opened.number + 1, ends)
    at = opened.number
    while at < ends - 1:
        upto = min(at + step, ends - 1)
        size += lineage.tokens(tx, session, at + 1, upto + 1)
        size += sum(tokens for number, tokens in marks if at < number <= upto)
        sizes.append((upto, size))
        at = upto
    return sizes


def _marks(tx: Transaction, session: str, start: int, stop: int) -> list[tuple[int, int]]:
    """By how much pins and notes made the context larger, by number."""
    found = [r for owner, a, b in lineage.record_ranges(tx, session, start, stop) for r in tx.marks(owner, a, b)]
    return [(r.number, int(r.body["tokens"])) for r in found if r.kind in (PIN_ADDED, PIN_REMOVED, NOTE)]


def _times(tx: Transaction, session: str, numbers: list[int]) -> dict[int, float]:
    """When each of some records was written, in order; a clock that was set back does not show."""
    times: dict[int, float] = {}
    newest = 0.0
    for number in numbers:
        found = lineage.record(tx, session, number)
        newest = max(newest, found.at if found is not None else newest)
        times[number] = newest
    return times


def _mark(opened: Segment) -> MarkJson:
    return {
        "number": opened.number,
        "at": opened.at,
        "source": opened.source,
        "compaction": opened.compaction,
        "tokens_before": opened.tokens_before,
        "tokens_after": opened.tokens_after,
    }
