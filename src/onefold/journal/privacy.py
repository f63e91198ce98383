"""Compaction never deletes; people may. What they erase is gone from the journal and from every summary and note that
comes from it, here and in the session's forks. A numbered tombstone stays, which no late append brings back to life.

A session and its forks are separate transactions. Each may be repeated, so a crash between them is mended by saying it
again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from onefold.errors import OnefoldError, SessionNotFound
from onefold.journal import view
from onefold.journal.contract import Journal, segment
from onefold.journal.fold import boundary
from onefold.journal.history import newest
from onefold.journal.refusals import compacts
from onefold.journal.seam import Transaction
from onefold.journal.view import known
from onefold.messages import encode
from onefold.model import (
    ERASED,
    INPUT_QUEUED,
    INPUT_TAKEN,
    MESSAGE,
    NOTE,
    Deleted,
    Erased,
    Json,
    KeyUse,
    Ranges,
    Record,
    Segment,
    SessionState,
)

_CONTENT = (MESSAGE, INPUT_QUEUED, NOTE)
_GONE = "(erased: this summary covered what was erased since)"


@dataclass(frozen=True, slots=True)
class _Gone:
    """What is to go."""

    said: Ranges
    """Messages, perhaps a fork's from its past: no summary and no note may come from them."""
    others: tuple[int, ...] = ()
    """Records that no summary has read."""
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class _Done:
    numbers: tuple[int, ...]
    summaries: tuple[int, ...]
    compaction: str | None


def erase(journal: Journal, session: str, numbers: Sequence[int], *, actor: str | None = None) -> Erased:
    """Removes the content of messages, inputs and notes for good, and asks for a new summary of what remains."""
    if not numbers:
        raise OnefoldError(f"session {session!r}: name the records to erase")

    def work(tx: Transaction) -> tuple[_Done, list[int], set[int]]:
        state = known(tx, session)
        for number in numbers:
            _can_be_erased(tx, state, number)
        copies = {n for number in numbers for n in _copies(tx, state, number)}
        said = [n for n in copies if _what(tx.record(session, n)) == MESSAGE]
        others = tuple(sorted(copies.difference(said)))  # which no summary has read
        return _forget(journal, tx, state, _Gone(_each(said), others, actor)), said, copies

    done, said, copies = journal.backend.write(session, work)
    everything = {*copies, *done.numbers}
    forks = tuple(_forget_in_forks(journal, session, _each(said), min(everything), actor))
    wiped = journal.backend.scrub()
    return Erased(session, done.numbers, done.summaries, forks, done.compaction, wiped)


def delete(journal: Journal, session: str, *, actor: str | None = None) -> Deleted:
    """Removes a session whole. Its ids stay taken, and forks of it no longer see it as their past."""

    def work(tx: Transaction) -> int:
        state = tx.session(session)
        if state is None:
            if tx.deleted(session) != session:
                raise SessionNotFound(session)
            return 0
        marks = tx.marks(session, 1, state.last + 1)
        tx.wipe(session, [session, *(m.body["alias"] for m in marks if m.kind == "alias")])
        return state.last - state.forked_at

    records = journal.backend.write(session, work)
    forks = tuple(_forget_in_forks(journal, session, None, 1, actor))
    return Deleted(session, records, forks, journal.backend.scrub())


def _forget_in_forks(
    journal: Journal, session: str, ranges: Ranges | None, first: int, actor: str | None
) -> Iterator[str]:
    """Every fork that saw these messages, or anything else from the first erased record on, as its own past, and forks
    of those. Without ranges: all that it had."""
    parents = deque([(session, ranges)])
    while parents:
        parent, ranges = parents.popleft()
        for child in journal.backend.read(partial(_forks, parent)):
            past = child.forked_at  # above it, the same numbers are the fork's own records
            if past < first:
                continue
            gone = ((1, past),) if ranges is None else tuple((a, min(b, past)) for a, b in ranges if a <= past)
            try:
                journal.backend.write(child.id, _in_a_fork(journal, child.id, _Gone(gone, actor=actor)))
            except SessionNotFound:
                continue  # deleted since, and its forks lost their past with it
            parents.append((child.id, gone))
            yield child.id


def _forks(session: str, tx: Transaction) -> list[SessionState]:
    return tx.forks(session)


def _in_a_fork(journal: Journal, session: str, gone: _Gone) -> Callable[[Transaction], _Done]:
    return lambda tx: _forget(journal, tx, known(tx, session), gone)


def _forget(journal: Journal, tx: Transaction, state: SessionState, gone: _Gone) -> _Done:
    """Tombstones for what is this session's own; no summary or note that comes from any of it; a new segment."""
    head = segment(tx, state.id, state.head)
    ranges, actor = gone.said, gone.actor
    hidden = view.hide(head.hidden, *ranges)
    own = [n for a, b in ranges for n in range(max(a, state.forked_at + 1), b + 1)]
    own += gone.others
    found = [r for n in own if (r := tx.record(state.id, n)) is not None and r.kind in _CONTENT]
    covering = [s for s in tx.segments(state.id) if s.summary == s.number and _covers(s, ranges)]
    covering = [s for s in covering if not _summary(tx, state, s).get("erased")]
    notes = [m for m in tx.marks(state.id, state.forked_at + 1, state.last + 1) if _comes_from(m, ranges)]
    notes = [m for m in notes if m.number not in {r.number for r in found}]
    if hidden == head.hidden and not found and not covering and not notes and state.tokens == _size(tx, state, head):
        return _Done((), (), None)
    was_open = state.open is not None
    for record in (*found, *notes):
        state = _tombstone(journal, tx, state, record)
    for some in covering:
        said = tx.record(state.id, some.number)
        if said is not None:
            body = said.body | {"summary": _GONE, "erased": True, "facts": []}
            tx.rewrite(state.id, said._replace(body=body), encode(body))
    numbers = tuple(sorted(r.number for r in (*found, *notes)))
    told = {"numbers": list(numbers), "summaries": [s.number for s in covering]}
    state = journal.add(tx, state, journal.draft(ERASED, told, actor=actor))
    fits = replace(newest(tx, state, hidden), hidden=hidden, keeper=head.keeper)
    size = _size(tx, state, fits)
    body = boundary(fits, state, source="erased", summary_of=fits.summary, tokens_after=size)
    state = journal.open_segment(tx, state, body)
    if (was_open or fits.summary != head.summary) and compacts(tx, state) and head.keeper == "onefold":
        state = journal.ask(tx, state, "erase", actor=actor)
    tx.put_session(state)
    return _Done(numbers, tuple(s.number for s in covering), state.open)


def _tombstone(journal: Journal, tx: Transaction, state: SessionState, record: Record) -> SessionState:
    """Puts a tombstone in a record's place. Its key, if it had one, stays taken, and of its content not even a digest
    stays; an input that waits is taken by nobody."""
    body: dict[str, Json] = {"was": record.kind}
    gone = record._replace(kind=ERASED, body=body, format=None, header=None)
    tx.rewrite(state.id, gone, encode(body))
    if record.key is not None and (use := tx.key(state.id, record.key)) is not None:
        tx.put_key(state.id, record.key, KeyUse(use.first, use.count, ERASED))
    if record.kind == INPUT_QUEUED and not view.taken(tx, state.id, record.number):
        return journal.add(tx, state, journal.draft(INPUT_TAKEN, {"input": record.number, "erased": True}))
    return state


def _can_be_erased(tx: Transaction, state: SessionState, number: int) -> None:
    if 0 < number <= state.forked_at:
        owner = next((o for o, _, _ in view.parts(tx, state.id, number, number + 1)), state.parent)
        raise OnefoldError(f"record {number} of session {state.id!r} belongs to session {owner!r}; erase it there")
    record = tx.record(state.id, number)
    if record is None:
        raise OnefoldError(f"session {state.id!r} has no record {number}; nothing was erased")
    if _what(record) not in _CONTENT:
        raise OnefoldError(
            f"record {number} of session {state.id!r} is a {record.kind}, which holds nothing that somebody said; "
            "messages, inputs and notes can be erased"
        )


def _copies(tx: Transaction, state: SessionState, number: int) -> list[int]:
    """An input and the message it became are the same content."""
    numbers = {number}
    record, before = tx.record(state.id, number), tx.record(state.id, number - 1)
    if before is not None and before.kind == INPUT_TAKEN and not view.by_nobody(before):
        numbers.add(before.body["input"])
    waited = _what(record) == INPUT_QUEUED
    if waited and (taken := view.taken(tx, state.id, number)) is not None and not view.by_nobody(taken):
        numbers.add(taken.number + 1)
    return sorted(numbers)


def _what(record: Record | None) -> Json:
    """What a record is; of a tombstone, what it was."""
    return None if record is None else record.body.get("was") if record.kind == ERASED else record.kind


def _each(numbers: Iterable[int]) -> Ranges:
    return tuple((n, n) for n in sorted(numbers))


def _size(tx: Transaction, state: SessionState, of: Segment) -> int:
    return view.size(
        tx, state.id, cut=of.cut, last=state.last, kept=of.kept, hidden=of.hidden,
        told=view.told(tx, state.id, of),
    )  # fmt: skip


def _covers(some: Segment, ranges: Ranges) -> bool:
    """Whether a segment's summary stands for any of these records."""
    return any([*view.visible(some.hidden, a, min(b + 1, some.cut))] for a, b in ranges)


def _comes_from(mark: Record, ranges: Ranges) -> bool:
    return mark.kind == NOTE and any(view.is_hidden(ranges, n) for n in mark.body.get("source", ()))


def _summary(tx: Transaction, state: SessionState, some: Segment) -> dict[str, Json]:
    said = tx.record(state.id, some.number)
    return {} if said is None else dict(said.body)
