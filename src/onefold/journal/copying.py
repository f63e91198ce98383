"""Taking in records that another store wrote, under the same numbers, ids, keys and times."""

from __future__ import annotations

from collections.abc import Sequence

from onefold.errors import Moved, OnefoldError, SessionNotFound, StoreDamaged
from onefold.journal import fold, view
from onefold.journal.contract import Journal
from onefold.journal.seam import Taken, Transaction
from onefold.messages import encode
from onefold.model import ALIAS, FORK, MESSAGE, Record, SessionState


def take_in(journal: Journal, session: str, records: Sequence[Record], *, alone: bool = False) -> int:
    """Adds records as they are, in one transaction, and says how many were new. `alone` is said of a fork that no
    longer sees anything of its parent, since that was deleted: it needs none here.

    Those that are there already have to be the same, so that a copy that was cut short can be taken up again. The
    first ones of a session go together: a session without its first segment is none.
    """

    def work(tx: Transaction) -> int:
        state = tx.session(session)
        if state is None:
            state = _begin(tx, session, records[0], alone)
        before = state.last
        for record in records:
            if record.number <= before:
                if tx.record(session, record.number) != record:
                    raise Moved(
                        f"session {session!r}: record {record.number} is another one here. Nothing of this part was "
                        "taken in; the two have a common past at best. Import into another store, or delete it here"
                    )
                continue
            state = _add(tx, state, record)
        if not state.head:
            raise OnefoldError(f"session {session!r}: its first segment is missing; take in more records at once")
        if state.last > before:
            tx.put_session(state)
            _can_be_seen(tx, state)
        return state.last - before

    if not records:
        return 0
    return journal.backend.write(session, work)


def _begin(tx: Transaction, session: str, first: Record, alone: bool) -> SessionState:
    if tx.deleted(session) is not None:
        raise SessionNotFound(session, deleted=True)
    if (owner := tx.owner(session)) is not None:
        raise OnefoldError(f"session {owner!r} of this store is known as {session!r} already; nothing was taken in")
    at = 0
    if first.kind == FORK:
        parent, at = str(first.body["parent"]), int(first.body["at"])
        origin = tx.session(parent)
        if (origin is None or origin.last < at) and not alone:
            raise OnefoldError(
                f"session {session!r} is a fork of {parent!r}; take in that one first, up to record {at}"
            )
    if first.number != at + 1:
        raise OnefoldError(f"session {session!r} begins at record {at + 1}, not {first.number}; nothing was taken in")
    return fold.newborn(session, first.at)._replace(last=at)


def _add(tx: Transaction, state: SessionState, record: Record) -> SessionState:
    if record.number != state.last + 1:
        raise OnefoldError(f"session {state.id!r}: after record {state.last} comes {record.number}; one is missing")
    if record.kind == MESSAGE and record.header is None:
        raise OnefoldError(f"session {state.id!r}: message {record.number} comes without its header")
    try:
        if record.kind == ALIAS and _of_another(tx, str(record.body.get("alias"))):
            raise OnefoldError(
                f"session {state.id!r}: record {record.number} gives it another session's id for an alias"
            )
        tx.add(state.id, record, encode(record.body))
        return fold.apply(tx, state, record)
    except Taken as error:
        raise OnefoldError(f"session {state.id!r}: record {record.number} cannot be taken in: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, StoreDamaged) as error:
        raise OnefoldError(
            f"session {state.id!r}: record {record.number} ({record.kind}) makes no sense: {error!r}"
        ) from error


def _can_be_seen(tx: Transaction, state: SessionState) -> None:
    """What stands in every context is read once, so that what was edited by hand is refused and not met later."""
    head = tx.segment(state.id, state.head)
    try:
        if head is not None:
            stands = view.standing(tx, state.id, state.last + 1, head.hidden)
            view.pinned_messages(tx, state.id, stands, head.cut)
            for number in head.kept:
                view.record(tx, state.id, number)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise OnefoldError(
            f"session {state.id!r}: its pins, notes or kept messages make no sense by record {state.last}: {error!r}"
        ) from error


def _of_another(tx: Transaction, alias: str) -> bool:
    """Whether an id is, or was, a session's."""
    return tx.session(alias) is not None or tx.deleted(alias) is not None
