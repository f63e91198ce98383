"""Forks: a session that begins with another one's records up to some number, without a copy."""

from __future__ import annotations

from dataclasses import replace

from onefold.errors import OnefoldError
from onefold.journal import lineage
from onefold.journal.journal import Journal
from onefold.journal.lineage import get_session
from onefold.journal.segments import erased, landing, newest
from onefold.model import (
    FORK,
    SEGMENT_OPENED,
    ForkKind,
    Json,
    Segment,
    SessionState,
)
from onefold.storage import projection
from onefold.storage.base import Transaction
from onefold.storage.projection import segment_body


def fork(
    journal: Journal, parent: str, child: str, *, kind: ForkKind = "branch", at: int | None = None,
    actor: str | None = None,
) -> SessionState:  # fmt: skip
    """A new session whose past is another one's, as that was at a record. Nothing is copied, nothing written there.

    It begins at a closed group: at the record before a call whose results come later. It is kept by onefold, also where
    its parent's agent compacts by itself: that agent knows nothing of it. Said again, the same fork.
    """

    def fork_in(tx: Transaction) -> SessionState:
        origin = get_session(tx, parent)
        there = tx.session(child)
        if there is not None:
            return _same_fork(tx, there, parent, kind, at)
        if tx.owner(child) is not None or tx.deleted(child) is not None or tx.last_number(child):
            raise OnefoldError(f"{child!r} is, or was, another session's id; choose another one for the fork")
        if at is not None and not 1 <= at <= origin.last:
            raise OnefoldError(f"session {parent!r} has records 1 to {origin.last}; it cannot be forked at {at}")
        upto = origin.last if at is None else at
        inherits = _as_of(tx, parent, upto)
        lands = landing(tx, parent, upto, inherits.hidden, inherits)
        if lands != upto:
            upto, inherits = lands, _as_of(tx, parent, lands)
        if inherits.number != origin.head and erased(tx, parent, inherits):
            fits = newest(tx, origin._replace(last=upto), inherits.hidden)
            inherits = replace(fits, hidden=inherits.hidden)
        state = projection.initial_state(child, tx.now)._replace(last=upto, tokens=origin.tokens)
        body: dict[str, Json] = {"parent": parent, "at": upto, "kind": kind}
        if (limits := lineage.limits(tx, origin)) is not None:
            body["limits"] = limits
        state = journal.add(tx, state, journal.draft(FORK, body, actor=actor))
        opened: dict[str, Json] = segment_body(
            inherits, state, base=None, source="forked", summary_of=inherits.summary, session=child, keeper="onefold"
        )
        as_it_is = inherits.number == origin.head and upto == origin.last
        if not as_it_is or lineage.marked(tx, parent, origin.head, upto + 1):  # otherwise it is as large as its parent
            opened["tokens_after"] = lineage.context_tokens(
                tx, parent, inherits, upto, told=lineage.summary_body(tx, parent, inherits)
            )
        state = journal.add(tx, state, journal.draft(SEGMENT_OPENED, opened))
        tx.put_session(state)
        return state

    return journal.backend.write(child, fork_in)


def _as_of(tx: Transaction, session: str, number: int) -> Segment:
    found = lineage.segment_at(tx, session, number)
    if found is None:
        raise OnefoldError(f"session {session!r} had no segment yet at record {number}; fork it at a later one")
    return found


def _same_fork(tx: Transaction, there: SessionState, parent: str, kind: str, at: int | None) -> SessionState:
    said = tx.record(there.id, there.forked_at + 1) if there.parent == parent else None
    if at is not None and said is not None and at > there.forked_at:
        at = landing(tx, parent, at, _as_of(tx, parent, at).hidden)
    if said is None or said.body.get("kind") != kind or at not in (None, there.forked_at):
        raise OnefoldError(f"session {there.id!r} exists already and is another one; choose another id for the fork")
    return there
