"""Turns: one writer at a time, from an input to its settled answer, and the inputs that wait for one.

The open turn is the session's writer fence: the number of its `turn.started`. An append that names another turn is
rejected inside its own transaction, so a writer that lost its turn cannot write, however late it comes. The lease only
says when others need not wait any longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from onefold.journal import lineage
from onefold.journal.checks import check_choice, check_name, check_owner_process, check_seconds, key_conflict, turn_lost
from onefold.journal.journal import Journal, segment
from onefold.journal.lineage import get_session
from onefold.journal.record_bodies import same_content
from onefold.messages import draft, encode
from onefold.messages.codecs import PLAIN, placeholder_results
from onefold.model import (
    INPUT_QUEUED,
    INPUT_TAKEN,
    MESSAGE,
    TURN_SETTLED,
    TURN_STARTED,
    AppendResult,
    ClaimDenied,
    Draft,
    HolderId,
    Json,
    Lease,
    OpenTurn,
    Outcome,
    Ranges,
    Record,
    SessionState,
    TurnClaim,
)
from onefold.storage.base import Transaction


def start(
    journal: Journal, session: str, who: HolderId, *, owner: str | None = None, lease: float = 30.0
) -> TurnClaim | ClaimDenied:
    """Begins a turn, unless another one is open whose writer still says that it lives."""
    check_seconds(session, lease=lease)

    def start_in(tx: Transaction) -> TurnClaim | ClaimDenied:
        state = get_session(tx, session)
        if (current := opened(journal, tx, state)) is not None:
            if (waits := _held(journal, tx, session, current)) is not None:
                return waits
            gone = journal.leases.whereabouts(_process(tx, session, current.number)) == "gone"
            why = "its process is gone" if gone else "its writer was not heard of again"
            state = close(journal, tx, state, "interrupted", f"{why}: {current.holder}")
        body = {"owner": owner, "lease": lease, **journal.leases.holder(who)}
        begun = journal.draft(TURN_STARTED, body, actor=owner)
        state = journal.add(tx, state, begun._replace(turn=begun.id))
        tx.put_session(state)
        until = tx.now + lease
        journal.leases.put_turn(tx, session, Lease(begun.id, state.last, until, lease))
        return TurnClaim(session, begun.id, state.last, owner, lease, until, os.getpid())

    return journal.backend.write(session, start_in)


def held(journal: Journal, session: str) -> ClaimDenied | None:
    """What a start would be answered, without writing, so that those who wait only look: None if it is worth trying."""

    def held_in(tx: Transaction) -> ClaimDenied | None:
        current = opened(journal, tx, get_session(tx, session))
        return None if current is None else _held(journal, tx, session, current)

    return journal.backend.read(held_in)


def _held(journal: Journal, tx: Transaction, session: str, current: OpenTurn) -> ClaimDenied | None:
    if tx.now >= current.until:
        return None
    return ClaimDenied("held", current.until, near=journal.leases.near(_process(tx, session, current.number)))


def _process(tx: Transaction, session: str, number: int) -> Json:
    """The process that began a turn, as its record names it."""
    started = tx.record(session, number)
    return None if started is None else started.body.get("process")


def renew(journal: Journal, turn: TurnClaim) -> float | None:
    """Says that the turn's writer lives. None: the turn is over."""
    check_owner_process(turn)

    def renew_in(tx: Transaction) -> float | None:
        if get_session(tx, turn.session).turn != turn.number:
            return None
        until = tx.now + turn.lease
        journal.leases.put_turn(tx, turn.session, Lease(turn.id, turn.number, until, turn.lease))
        return until

    return journal.backend.write(turn.session, renew_in)


def end(journal: Journal, turn: TurnClaim, outcome: Outcome = "settled", cause: str | None = None) -> None:
    """Ends a turn. Said again, nothing happens; if somebody else ended it in another way, that is `TurnLost`."""
    check_owner_process(turn)
    check_choice(turn.session, "outcome of a turn", outcome, Outcome)

    def end_in(tx: Transaction) -> None:
        state = get_session(tx, turn.session)
        if state.turn == turn.number:
            tx.put_session(close(journal, tx, state, outcome, cause))
        elif (ended := settled(tx, turn)) is None or ended.body["outcome"] != outcome:
            raise turn_lost(tx, turn)

    journal.backend.write(turn.session, end_in)


def stop(journal: Journal, session: str, *, cause: str | None = None, actor: str | None = None) -> OpenTurn | None:
    """Ends the open turn from outside, whoever writes in it: it is cancelled. None if none was open."""

    def stop_in(tx: Transaction) -> OpenTurn | None:
        state = get_session(tx, session)
        if (current := opened(journal, tx, state)) is not None:
            tx.put_session(close(journal, tx, state, "cancelled", cause, actor=actor))
        return current

    return journal.backend.write(session, stop_in)


def interrupt(journal: Journal, session: str, number: int, *, cause: str) -> bool:
    """Ends the turn that began at this record, whose writer is known to be gone: nobody need wait for its lease."""

    def interrupt_in(tx: Transaction) -> bool:
        state = get_session(tx, session)
        if state.turn != number:
            return False
        tx.put_session(close(journal, tx, state, "interrupted", cause))
        return True

    return journal.backend.write(session, interrupt_in)


def current(journal: Journal, session: str) -> OpenTurn | None:
    """The turn that is open, and until when its writer is left alone."""
    return journal.backend.read(lambda tx: opened(journal, tx, get_session(tx, session)))


def settled(tx: Transaction, turn: TurnClaim) -> Record | None:
    """How a turn ended, if it did."""
    number = turn.number + 1
    while page := tx.records(turn.session, number, 1 << 62, 500):
        for record in page:
            if record.kind == TURN_SETTLED and record.turn == turn.id:
                return record
        number = page[-1].number + 1
    return None


def close(
    journal: Journal,
    tx: Transaction,
    state: SessionState,
    outcome: Outcome,
    cause: str | None,
    *,
    actor: str | None = None,
    stays: int | None = None,
) -> SessionState:
    """Ends the open turn. Unless it settled by itself, the calls it left open get results that say so, since no
    provider takes a call without one; those after `stays` are about to be hidden, and need none."""
    started = tx.record(state.id, state.turn)
    if started is None or started.turn is None:
        return state
    if outcome != "settled":
        stop = min(state.last, state.last if stays is None else stays) + 1
        hidden = segment(tx, state.id, state.head).hidden
        why = f"the turn {'failed' if outcome == 'failed' else f'was {outcome}'} before it came"
        for call, waiting in _unanswered(tx, state.id, stop, hidden, started.turn):
            format = call.format or PLAIN
            for body in placeholder_results(format, call.body, waiting, why):
                state = journal.add(tx, state, draft(body, journal.new_id, format=format, turn=started.turn))
    ended = {"outcome": outcome, "cause": cause}
    state = journal.add(tx, state, journal.draft(TURN_SETTLED, ended, turn=started.turn, actor=actor))
    journal.leases.drop_turn(tx, state.id)
    return state


def _unanswered(
    tx: Transaction, session: str, stop: int, hidden: Ranges, turn: str
) -> Iterator[tuple[Record, list[str]]]:
    """The messages of a turn with calls that have no result, and which."""
    for members in lineage.open_groups(tx, session, stop, hidden):
        said = [r for n in members if (r := lineage.record(tx, session, n)) is not None and r.header is not None]
        answered = {id for r in said if r.header for id in r.header.result_ids}
        for call in said:
            waiting = [id for id in call.header.call_ids if id not in answered] if call.header else []
            if call.turn == turn and waiting:
                yield call, waiting


def opened(journal: Journal, tx: Transaction, state: SessionState) -> OpenTurn | None:
    """The turn that is open, within a transaction."""
    started = tx.record(state.id, state.turn) if state.turn else None
    if started is None or started.turn is None:
        return None
    body = started.body
    until = journal.leases.turn_until(tx, state.id, started)
    return OpenTurn(started.turn, started.number, body["owner"], HolderId(**body["holder"]), started.at, until)


# ---------------------------------------------------------------------- inputs that wait for a turn


def queue_input(journal: Journal, session: str, message: Draft, *, key: str | None = None) -> AppendResult:
    """Keeps an input until a turn takes it."""
    if key is not None:
        check_name("key", key)
    return journal.append(session, [message._replace(kind=INPUT_QUEUED)], key=key)


def take_input(
    journal: Journal, session: str, *, turn: TurnClaim | None = None, key: str | None = None, number: int | None = None
) -> Record | None:
    """Takes the oldest input that waits, or this one, as a message of this session. Nobody else gets the same one."""
    if turn is not None:
        check_owner_process(turn)
    if key is not None:
        check_name("key", key)

    def take_input_in(tx: Transaction) -> Record | None:
        state = get_session(tx, session)
        if key is not None and (use := tx.key(session, key)) is not None:
            before = tx.record(session, use.first)
            if before is None or before.kind != INPUT_TAKEN:
                raise key_conflict(session, key, use)
            return tx.record(session, use.first + 1)
        if turn is not None and state.turn != turn.number:
            raise turn_lost(tx, turn)
        chosen = tx.next_input(session) if number is None else number if number in tx.inputs(session) else None
        queued = tx.record(session, chosen) if chosen is not None else None
        if queued is None:
            return None
        within = turn.id if turn is not None else None
        state = journal.add(tx, state, journal.draft(INPUT_TAKEN, {"input": chosen}, turn=within, key=key))
        message = Draft(
            journal.new_id(), MESSAGE, queued.body, encode(queued.body), queued.format, queued.header, turn=within,
            actor=queued.actor,
        )  # fmt: skip
        state = journal.add(tx, state, message)
        tx.put_session(state)
        return tx.record(session, state.last)

    return journal.backend.write(session, take_input_in)


def unqueue_input(journal: Journal, session: str, number: int, *, actor: str | None = None) -> bool:
    """Takes an input back that waits. False if a turn has taken it, or somebody else took it back."""

    def unqueue_input_in(tx: Transaction) -> bool:
        if number not in tx.inputs(session):
            return False
        state = get_session(tx, session)
        body = {"input": number, "unqueued": True}
        tx.put_session(journal.add(tx, state, journal.draft(INPUT_TAKEN, body, actor=actor)))
        return True

    return journal.backend.write(session, unqueue_input_in)


def append_each(
    journal: Journal, session: str, keyed: Sequence[tuple[str, Draft]], *, turn: TurnClaim | None = None
) -> list[int]:
    """Adds records of which each has a key of its own, in one transaction: those that are not there yet, all or none.
    Their numbers."""
    if turn is not None:
        check_owner_process(turn)

    def append_each_in(tx: Transaction) -> list[int]:
        state = get_session(tx, session)
        numbers: list[int] = []
        for key, made in keyed:
            if (use := tx.key(session, key)) is not None:
                if not same_content(tx, session, use, [made]):
                    raise key_conflict(session, key, use)
                numbers.append(use.first)
                continue
            if turn is not None and state.turn != turn.number:
                raise turn_lost(tx, turn)
            within = turn.id if turn is not None else made.turn
            state = journal.add(tx, state, made._replace(key=key, turn=within))
            numbers.append(state.last)
        tx.put_session(state)
        return numbers

    return journal.backend.write(session, append_each_in, size=sum(len(made.data) for _, made in keyed))
