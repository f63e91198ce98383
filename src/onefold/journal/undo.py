"""Restore, rewind, undo, redo, pop and clear: a session is shown as it was, and nothing is deleted."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

from onefold.errors import OnefoldError, StaleHandle
from onefold.journal import adoption, lineage
from onefold.journal.journal import Journal, segment
from onefold.journal.lineage import get_session
from onefold.journal.segments import check_not_erased, check_unmoved, landing, newest, open_view, opening, said_since
from onefold.journal.turns import close
from onefold.journal.unfold import refold_to
from onefold.model import (
    Record,
    Segment,
    SessionState,
)
from onefold.storage.base import Transaction


def restore(
    journal: Journal, session: str, to: int, *, expect_head: int, seen: int | None = None, actor: str | None = None
) -> Segment:
    """Opens a new segment with the view of an older one, if the session is still as the caller saw it."""

    def restore_in(tx: Transaction) -> Segment:
        state = check_unmoved(tx, session, expect_head, seen)
        older = lineage.segment(tx, session, to)
        if older is None:
            raise OnefoldError(f"session {session!r} has no segment {to}; `onefold show {quote(session)}` lists them")
        check_not_erased(tx, session, older)
        state = close(journal, tx, state, "cancelled", "the session was taken back to an older segment", actor=actor)
        keeper = segment(tx, session, state.head).keeper
        return open_view(
            journal, tx, state, older, older.hidden, actor=actor, restored=to, keeper=keeper, masked=older.masked
        )

    return journal.backend.write(session, restore_in)


def rewind(
    journal: Journal, session: str, to: int, *, expect_head: int, seen: int | None = None, actor: str | None = None
) -> Segment:
    """Hides everything after a record; or after the call before it, if that has its result later."""

    def rewind_in(tx: Transaction) -> Segment:
        state = check_unmoved(tx, session, expect_head, seen)
        if not 0 <= to <= state.last:
            raise OnefoldError(f"session {session!r} has records 1 to {state.last}; it cannot be rewound to {to}")
        return _rewind(journal, tx, state, to, actor=actor)

    return journal.backend.write(session, rewind_in)


def undo(
    journal: Journal, session: str, *, expect_head: int, seen: int | None = None, actor: str | None = None
) -> Segment:
    """Hides the newest message of the user and all that came of it, whatever was compacted since. If nothing was said
    since somebody unfolded a compaction, it takes that back instead."""

    def undo_in(tx: Transaction) -> Segment:
        state = check_unmoved(tx, session, expect_head, seen)
        head = segment(tx, session, state.head)
        stands = lineage.origin(tx, session, head)
        if stands.unfolds and not said_since(tx, state, stands):
            before = newest(tx, state._replace(last=stands.number - 1), head.hidden)
            return refold_to(journal, tx, state, head, before, actor=actor, redo=head.number)
        asked = lineage.last_user(tx, session, state.last + 1, head.hidden)
        if asked is None:
            raise OnefoldError(f"session {session!r}: there is nothing to undo")
        return _rewind(journal, tx, state, opening(tx, session, asked, head.hidden) - 1, actor=actor)

    return journal.backend.write(session, undo_in)


def pop(journal: Journal, session: str) -> Record | None:
    """Hides the newest message alone, and gives it; None if none is in view. It may be a result whose call stays: for a
    program that takes back what it wrote item by item, and writes it again."""

    def pop_in(tx: Transaction) -> Record | None:
        state = get_session(tx, session)
        newest = lineage.last_message(tx, session, state.last + 1, segment(tx, session, state.head).hidden)
        if newest is not None:
            _rewind(journal, tx, state, newest.number - 1, exact=True)
        return newest

    return journal.backend.write(session, pop_in)


def clear(journal: Journal, session: str) -> Segment:
    """Hides every message, so that the conversation starts again under the same id; the segment in force."""

    def clear_in(tx: Transaction) -> Segment:
        state = get_session(tx, session)
        head = segment(tx, session, state.head)
        if lineage.last_message(tx, session, state.last + 1, head.hidden) is None:
            return head
        return _rewind(journal, tx, state, 0)

    return journal.backend.write(session, clear_in)


def redo(
    journal: Journal, session: str, *, expect_head: int, seen: int | None = None, actor: str | None = None
) -> Segment:
    """Takes the last undo or rewind back, if nothing was said since."""

    def redo_in(tx: Transaction) -> Segment:
        return redone(journal, tx, check_unmoved(tx, session, expect_head, seen), actor=actor)

    return journal.backend.write(session, redo_in)


def redone(journal: Journal, tx: Transaction, state: SessionState, *, actor: str | None = None) -> Segment:
    head, before = segment(tx, state.id, state.head), taken_from(tx, state)
    if before.hidden != head.hidden:  # else a compaction is unfolded again, and whoever writes goes on
        state = close(journal, tx, state, "cancelled", "an undo was taken back", actor=actor)
    stood = lineage.origin(tx, state.id, before)
    return open_view(
        journal, tx, state, before, before.hidden, actor=actor, restored=before.number, redo=stood.redo,
        unfolds=list(stood.unfolds),
    )  # fmt: skip


def taken_from(tx: Transaction, state: SessionState) -> Segment:
    """The segment that was in force before the last undo or rewind. Raises if there is no way back to it."""
    stands = lineage.origin(tx, state.id, segment(tx, state.id, state.head))
    before = None if stands.redo is None else lineage.segment(tx, state.id, stands.redo)
    if before is None:
        raise OnefoldError(f"session {state.id!r}: there is nothing to redo")
    if said_since(tx, state, stands):
        raise StaleHandle(
            f"session {state.id!r}: messages came after the undo, and a redo would be between them; fork it"
        )
    check_not_erased(tx, state.id, before)
    return before


def _rewind(
    journal: Journal, tx: Transaction, state: SessionState, to: int, *, actor: str | None = None, exact: bool = False
) -> Segment:
    head = segment(tx, state.id, state.head)
    to = to if exact else landing(tx, state.id, to, head.hidden)
    if not lineage.headers(tx, state.id, to + 1, state.last + 1, head.hidden):
        raise OnefoldError(
            f"session {state.id!r}: no message after record {to} is in view, so there is nothing to hide"
        )
    state = close(journal, tx, state, "cancelled", "the session was rewound", actor=actor, stays=to)
    hidden = lineage.joined(tx, state.id, lineage.hide(head.hidden, (to + 1, state.last)))
    fits = newest(tx, state, hidden)
    if adoption.beyond(tx, state.id, fits, to):
        there = lineage.segment_at(tx, state.id, to)
        fits = replace(fits, item=None if there is None else there.item)
    return open_view(journal, tx, state, fits, hidden, actor=actor, restored=fits.number, redo=state.head, since=to + 1)
