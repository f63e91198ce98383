"""The journal's operations as an import needs them: several in one transaction, each at the time it happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from onefold.compaction.holder import this_process
from onefold.errors import OnefoldError, StaleHandle
from onefold.foreign.importers.conversation import CompactionStep
from onefold.journal import lineage, undo
from onefold.journal.journal import Journal, segment
from onefold.journal.lineage import get_session
from onefold.model import REQUESTED, Claim, Segment, Summary
from onefold.storage.base import Backend, Transaction

T = TypeVar("T")


class TransactionJournal:
    """The journal's operations inside a transaction that is open already, each at the time it is told."""

    def __init__(self, journal: Journal, tx: Transaction) -> None:
        self._tx = tx
        self.address = journal.backend.address
        self._now = tx.now
        self.journal = Journal(cast(Backend, self), ids=journal.new_id)
        self.journal.leases = journal.leases

    def at(self, time: float | None) -> None:
        """Without one, the time of what came before."""
        self._now = time if time is not None else self._now

    def write(self, session: str, work: Callable[[Transaction], T], *, size: int = 0) -> T:
        return work(cast(Transaction, _TransactionAt(self._tx, self._now)))

    def read(self, work: Callable[[Transaction], T]) -> T:
        return work(cast(Transaction, _TransactionAt(self._tx, self._now)))


class _TransactionAt:
    """A transaction at another time."""

    def __init__(self, tx: Transaction, now: float) -> None:
        self._tx = tx
        self.now = now

    def __getattr__(self, name: str) -> object:
        return getattr(self._tx, name)


def bound(journal: Journal, tx: Transaction, session: str, step: CompactionStep, program: str) -> None:
    """One compaction, from its request to its commit, with the summary that the other program made."""
    state = get_session(tx, session)
    head = segment(tx, session, state.head)
    if state.open is not None:
        raise StaleHandle(f"session {session!r} is being compacted here; import again when that is over")
    first = numbers_of(tx, session, step.first) if step.first is not None else None
    cut = first[0] if first is not None else None
    named = [n for key in step.kept for n in numbers_of(tx, session, key) or ()]
    if cut is not None and cut <= head.cut:  # the tail is older than the last one's, so it is kept by name
        named += [h.number for h in lineage.headers(tx, session, cut, state.last + 1, head.hidden)]
        cut = None
    asked = journal.request(session, trigger=step.trigger, key=step.key, actor=program)
    claim = journal.claim(session, this_process(program)) if asked.outcome == "opened" else None
    if not isinstance(claim, Claim):
        raise OnefoldError(f"session {session!r}: its compaction {step.key} was rejected: {asked.cause or 'held'}")
    kept = _whole(tx, session, head, sorted({*named}), cut if cut is not None else claim.fence)
    journal.commit(claim, Summary(step.summary, by=program), cut, kept=kept)


def _whole(tx: Transaction, session: str, head: Segment, numbers: list[int], cut: int) -> list[int]:
    """Those before a cut that can be kept by name: in view, and no call without its results nor the other way round."""
    if not numbers:
        return []
    found = lineage.headers(tx, session, numbers[0], cut, head.hidden)
    named = {*numbers}
    there = [h for h in found if h.number in named]
    opened = {id for h in there for id in h.header.call_ids}
    closed = {id for h in there for id in h.header.result_ids}
    return [h.number for h in there if closed >= {*h.header.call_ids} and opened >= {*h.header.result_ids}]


def go_back(journal: Journal, tx: Transaction, session: str, to: str | None) -> None:
    state = get_session(tx, session)
    head = segment(tx, session, state.head)
    numbers = numbers_of(tx, session, to) if to is not None else (1,)
    if numbers is None:
        raise OnefoldError(f"session {session!r}: message {to}, the target of a rewind, is not here")
    if lineage.headers(tx, session, numbers[-1] + 1, state.last + 1, head.hidden):
        undo.rewind(journal, session, numbers[-1], expect_head=state.head)


def numbers_of(tx: Transaction, session: str, key: str) -> tuple[int, ...] | None:
    """The records of a message, in this session or in what it is a fork of; of a compaction, its segment."""
    state = tx.session(session)
    upto = state.last if state is not None else 0
    while state is not None:
        use = tx.key(state.id, key)
        if use is not None and use.first <= upto:
            said = tx.record(state.id, use.first)
            if said is None or said.kind != REQUESTED:
                return tuple(range(use.first, use.first + use.count))
            done = tx.compaction(state.id, said.body["compaction"])
            return (done.segment,) if done is not None and done.segment is not None else None
        upto = min(upto, state.forked_at)
        state = tx.session(state.parent) if state.parent is not None else None
    return None
