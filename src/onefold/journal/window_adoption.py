"""A provider's window that is written and adopted at once: nobody sees a session that has its past twice.

Some programs clear a session, and then write what the provider made of it. That is an adoption, and no clear. The clear
is written when it is asked for: whoever dies before the window comes has cleared the session. With the window the clear
is taken back, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onefold.errors import OnefoldError, StaleHandle
from onefold.journal import adoption, lineage, undo
from onefold.journal.adoption import Adoption, Origin, Sight
from onefold.journal.journal import Journal, segment
from onefold.journal.lineage import get_session
from onefold.messages.provider_item import item
from onefold.model import Draft, Quotes, Segment, SessionState
from onefold.storage.base import Transaction


def look(
    tx: Transaction, session: str, cleared: int | None, window: Sequence[Draft], covers: Collection[int], *, key: str
) -> Adoption | Segment:
    """What adopting a window would amount to that is not written yet, with what was there before the clear in view, if
    there was one: it has no numbers of the window. If it was written with this `key`, the segment in force. Raises
    `Moved` if something happened since the clear. Writes nothing."""
    if tx.key(session, key) is not None:
        return segment(tx, session, get_session(tx, session).head)
    state = get_session(tx, session) if cleared is None else _only_cleared(tx, session, cleared)
    before = segment(tx, session, state.head) if cleared is None else undo.taken_from(tx, state)
    made = item(window[-1].format, window[-1].body)
    if made is None:
        raise OnefoldError(f"session {session!r}: the last message of the window has no compaction of a provider's")
    sight = Sight(tx, state._replace(head=before.number), before, state.last + 1)
    return adoption.judged(sight, adoption.in_force(tx, session, before), (), made, {*covers})


def replace(
    journal: Journal, session: str, cleared: int | None, window: Sequence[Draft], covers: Collection[int], *,
    origin: Origin, said: Quotes | None = None, key: str, actor: str | None = None,
) -> Segment:  # fmt: skip
    """Takes a clear back, if there was one, writes a window and adopts it, all or none. With the same `key` again it
    writes nothing."""

    def replace_in(tx: Transaction) -> Segment:
        if tx.key(session, key) is not None:
            return segment(tx, session, get_session(tx, session).head)
        if cleared is not None:
            undo.redone(journal, tx, _only_cleared(tx, session, cleared), actor=actor)
        state = get_session(tx, session)
        adoption.may_adopt(journal, tx, state)
        first = state.last + 1
        for draft in window:
            state = journal.add(tx, state, draft._replace(key=key))
        tx.put_session(state)
        made = adoption.adoptable(tx, session, range(first, state.last + 1), covers)
        return adoption.opened(journal, tx, state, made, origin=origin, said=said, actor=actor)

    return journal.backend.write(session, replace_in, size=sum(len(draft.data) for draft in window))


def _only_cleared(tx: Transaction, session: str, cleared: int) -> SessionState:
    state = get_session(tx, session)
    head = segment(tx, session, state.head)
    if state.head != cleared or head.redo is None or lineage.last_message(tx, session, state.last + 1, head.hidden):
        raise StaleHandle(f"session {session!r}: something happened since it was cleared; the clear stands")
    return state
