"""Masking: old large tool results are shown as one line. The cheapest way to make a context smaller, and nothing of it
is lost: no summary is written, no message moves.

What is masked is part of a view, like what is kept and what is hidden: a segment says it, and the next ones take it
along. A segment that only masks stands on another one: what was tried, failed or taken back there holds here too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from onefold.errors import NotNow, OnefoldError, StaleHandle
from onefold.journal import lineage
from onefold.journal.checks import may_compact
from onefold.journal.journal import Journal, segment
from onefold.journal.lineage import Masks, get_session
from onefold.messages.codecs import PLAIN, codec
from onefold.messages.result_mask import masked
from onefold.model import MANUAL, MESSAGE, Ranges, Record, Segment, SessionState
from onefold.storage.base import Transaction
from onefold.storage.projection import segment_body

NEWEST, LARGE = 10, 200
"""So many of the newest results are shown in any case, and those of fewer tokens."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What could be masked in a segment, and by how much that would make its context smaller."""

    head: int
    masks: Masks = ()

    @property
    def saves(self) -> int:
        return sum(saves for _, saves in self.masks)


def choose(tx: Transaction, session: str, *, newest: int = NEWEST, large: int = LARGE) -> Choice:
    """The results from the cut on that may be masked: large ones, not the newest, none that is pinned, and none of a
    group that is open. Writes nothing."""
    state = get_session(tx, session)
    head = segment(tx, session, state.head)
    tools = lineage.headers(tx, session, head.cut, state.last + 1, head.hidden, tools_only=True)
    results = [h for h in tools if h.header.result_ids]
    old = results[: max(0, len(results) - newest)]
    wanted = [h.number for h in old if h.header.tokens >= large]
    return Choice(head.number, _masks(tx, state, head, wanted) if wanted else ())


def mask(
    journal: Journal, session: str, numbers: Iterable[int], *, expect_head: int, full: bool = False,
    actor: str | None = None, by_hand: bool = False,
) -> Segment:  # fmt: skip
    """Opens a segment in which these results are shown as one line each, if the head is the one that was looked at.

    Those that may not be masked are left as they are; if none is left, nothing is written. No claim is needed, since
    nothing is paid for. It never gives up a compaction that somebody works on, nor one that a person asked for, and one
    that only waits if the context is `full` and not by hand. Where somebody went back, an automatic one waits until the
    context is full.
    """

    def mask_in(tx: Transaction) -> Segment:
        state = get_session(tx, session)
        if state.head != expect_head:
            raise StaleHandle(f"session {session!r} is at segment {state.head}, not {expect_head}: look at it again")
        may_compact(tx, state)
        head = segment(tx, session, state.head)
        if head.keeper != "onefold":
            raise OnefoldError(
                f"session {session!r} is compacted by its agent, which has the results; nothing is masked"
            )
        _may(journal, tx, state, head, full=full, by_hand=by_hand)
        made = _masks(tx, state, head, {*numbers})
        if not made:
            raise OnefoldError(f"session {session!r}: none of these can be masked, so nothing was written")
        return _open(journal, tx, state, made, actor=actor)

    return journal.backend.write(session, mask_in)


def _open(journal: Journal, tx: Transaction, state: SessionState, made: Masks, *, actor: str | None) -> Segment:
    head = segment(tx, state.id, state.head)
    like = replace(head, masked=lineage.united(head.masked, made))
    told = lineage.summary_body(tx, state.id, head)
    body = segment_body(
        like, state, source="masked", summary_of=head.summary, origin=head.origin or head.number,
        masks=[n for n, _ in made],
        tokens_after=lineage.context_tokens(tx, state.id, like, state.last, told=told),
    )  # fmt: skip
    state = journal.open_segment(tx, state, body, actor)
    tx.put_session(state)
    return segment(tx, state.id, state.head)


def _may(journal: Journal, tx: Transaction, state: SessionState, head: Segment, *, full: bool, by_hand: bool) -> None:
    current = None if state.open is None else tx.compaction(state.id, state.open)
    if current is not None:
        held = journal.holds(tx, current) is not None
        if held or by_hand or not full or current.trigger == MANUAL:
            raise NotNow(
                f"session {state.id!r}: compaction {current.id} is open, and would be given up by a mask; wait for it, "
                "or cancel it first",
                session=state.id,
            )
    if not by_hand and not full and lineage.origin(tx, state.id, head).source == "restored":
        raise NotNow(
            f"session {state.id!r}: somebody went back in it; nothing is masked until the context is full, or a person "
            "asks",
            session=state.id,
        )


def _masks(tx: Transaction, state: SessionState, head: Segment, wanted: Collection[int]) -> Masks:
    """Those of these records that may be masked, each with the tokens that saves."""
    stands = lineage.load_pins_and_notes(tx, state.id, state.last + 1, head.hidden)
    waiting = lineage.open_groups(tx, state.id, state.last + 1, head.hidden, head)
    stays = {*stands.pinned, *(n for members in waiting for n in members), *(n for n, _ in head.masked)}
    numbers = [n for n in wanted if n not in stays and _in_view(head.hidden, head.cut, n)]
    made = ((r.number, saves(r)) for r in lineage.some(tx, state.id, numbers) if r.kind == MESSAGE)
    return tuple((number, tokens) for number, tokens in made if tokens > 0)


def _in_view(hidden: Ranges, cut: int, number: int) -> bool:
    return number >= cut and not lineage.is_hidden(hidden, number)


def saves(record: Record) -> int:
    """By how much a context is smaller if this message is masked: nothing, if it cannot be."""
    if record.header is None or not record.header.result_ids:
        return 0
    shown = masked(record.format, record.body, record.number)
    return 0 if shown is None else max(0, record.header.tokens - codec(record.format or PLAIN).header(shown).tokens)
