"""Opens a segment with another view of a session, and answers where such a view may begin.

A segment is a view: a cut, a summary, what is kept by name, and what is hidden. Its summary stands for exactly the
messages before its cut that it does not hide. So an older boundary fits a new view if both hide the same records before
its cut, and a summary that knows a hidden record never comes back. Every step opens a new segment: nothing is moved
back, and whatever is open on the old head is settled in the same transaction.
"""

from __future__ import annotations

from dataclasses import replace

from onefold.errors import OnefoldError, StaleHandle
from onefold.journal import lineage
from onefold.journal.journal import Journal, segment
from onefold.journal.lineage import Masks, get_session
from onefold.model import (
    ASKING,
    TURN_STARTED,
    Json,
    Ranges,
    Segment,
    SessionState,
)
from onefold.storage.base import Transaction
from onefold.storage.projection import segment_body

_PAGE = 500


def redo_target(tx: Transaction, state: SessionState, head: Segment) -> int | None:
    """Where a redo goes now, if there is one: nothing was said since."""
    stands = lineage.origin(tx, state.id, head)
    return None if said_since(tx, state, stands) else stands.redo


def said_since(tx: Transaction, state: SessionState, head: Segment) -> bool:
    return bool(lineage.headers(tx, state.id, head.number, state.last + 1))


def newest(tx: Transaction, state: SessionState, hidden: Ranges) -> Segment:
    """The newest boundary that knows none of the hidden records; with none, the whole conversation."""
    for some in lineage.segments(tx, state.id, state.last + 1):
        if lineage.same_before(tx, state.id, some.cut, some.hidden, hidden) and not erased(tx, state.id, some):
            return some
    return Segment(0, None, 1, "created", 0.0)


def open_view(
    journal: Journal,
    tx: Transaction,
    state: SessionState,
    like: Segment,
    hidden: Ranges,
    *,
    actor: str | None = None,
    masked: Masks | None = None,
    **other: Json,
) -> Segment:
    """Opens a segment with another one's boundary, under what is hidden now. What was masked there or is now stays so,
    unless somebody says what is."""
    head = segment(tx, state.id, state.head)
    stay = lineage.united(like.masked, head.masked) if masked is None else masked
    stay = tuple(m for m in stay if m[0] >= like.cut and not lineage.is_hidden(hidden, m[0]))
    items = tuple(m for m in lineage.united(like.adopted, head.adopted) if not lineage.is_hidden(hidden, m[0]))
    like = replace(like, hidden=hidden, masked=stay, adopted=items, keeper=head.keeper)
    usual: dict[str, Json] = {
        "source": "restored",
        "summary_of": like.summary,
        "tokens_after": lineage.context_tokens(
            tx, state.id, like, state.last, told=lineage.summary_body(tx, state.id, like)
        ),
    }
    state = journal.open_segment(tx, state, segment_body(like, state, **(usual | other)), actor)
    tx.put_session(state)
    return segment(tx, state.id, state.head)


def check_unmoved(tx: Transaction, session: str, head: int, seen: int | None) -> SessionState:
    state = get_session(tx, session)
    if state.head != head:
        raise StaleHandle(f"session {session!r} is at segment {state.head}, not {head}: look at it again, then decide")
    if seen is not None and (unseen := tx.headers(session, seen + 1, state.last + 1)):
        raise StaleHandle(
            f"session {session!r} has {len(unseen)} messages after record {seen}, the last one seen: look at it again, "
            "then decide"
        )
    return state


def landing(tx: Transaction, session: str, to: int, hidden: Ranges, newest: Segment | None = None) -> int:
    """The newest record, up to this one, after which no call waits for its result."""
    while waiting := lineage.open_groups(tx, session, to + 1, hidden, newest):
        to, newest = min(members[0] for members in waiting) - 1, None
    return to


def opening(tx: Transaction, session: str, asked: int, hidden: Ranges) -> int:
    """The first message of the user in the turn of this one."""
    said = lineage.record(tx, session, asked)
    if said is None or said.turn is None:
        return asked
    first = stop = asked
    while stop > 1:
        page = lineage.records(tx, session, max(1, stop - _PAGE), stop, _PAGE)
        mine = [r for r in page if r.turn == said.turn and not lineage.is_hidden(hidden, r.number)]
        first = min((r.number for r in mine if r.header is not None and r.header.role in ASKING), default=first)
        if any(r.kind == TURN_STARTED for r in mine):
            break
        stop -= _PAGE
    return first


def erased(tx: Transaction, session: str, of: Segment) -> bool:
    said = lineage.summary(tx, session, of)
    return said is not None and bool(said.body.get("erased"))


def check_not_erased(tx: Transaction, session: str, of: Segment) -> None:
    if erased(tx, session, of):
        raise OnefoldError(
            f"session {session!r}: segment {of.number} had a summary of what was erased since, and cannot be restored"
        )
