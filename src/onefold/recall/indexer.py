"""Brings the index up to date with the journal: in pages, after the appends, within a deadline.

One filler works at a time; others look again when it is done, and do what is left. What was read and how far are
written together, so a filler that dies has done whole pages and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from onefold.errors import SessionNotFound
from onefold.journal import lineage
from onefold.model import ERASED, INPUT_TAKEN, Record, SessionState
from onefold.recall.index import Index, IndexedUpTo, IndexRows, Said
from onefold.recall.searchable_text import part, searched, speaker
from onefold.recall.tokenizer import spaced
from onefold.storage.base import Backend, Transaction

Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many records have been read, and how many there are to read."""

PAGE = 500
_ALL = 1 << 62
_BATCH = 2000
"""Records in one transaction: so long does another filler wait at most."""
_TURN = 0.25
"""Seconds to wait for another filler before looking again."""
_STUCK = 10.0
"""Seconds in which somebody has to come on, or nobody is waited for any longer: a filler may be stopped."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time on the monotonic clock; None for never."""

    at: float | None

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        return cls(None if seconds is None else time.monotonic() + seconds)

    def left(self, most: float) -> float:
        return most if self.at is None else max(0.0, min(most, self.at - time.monotonic()))

    @property
    def over(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at


def catch_up(
    backend: Backend, index: Index, deadline: Deadline, *, session: str | None = None, progress: Progress | None = None
) -> int:
    """Reads what the index has not seen, of one session with its past or of all. How many records are left to read."""
    total, tried = 0, False
    stuck = Deadline.after(_STUCK)
    before: dict[str, IndexedUpTo] | None = None
    while True:
        marks, to_wipe = _known(index, deadline)  # before the journal: nothing new is then taken for gone
        states = _sessions(backend, session)
        todo = [s for s in states if _left(s, marks.get(s.id))]
        here = {s.id for s in states}
        gone = [] if session is not None else [m for m in marks.values() if m.id not in here]
        behind = sum(_unread(s, marks.get(s.id)) for s in todo)
        total = max(total, behind)
        if progress is not None and total:
            progress(total - behind, total)
        if not todo and not gone:
            break
        if marks != before:
            before, stuck = marks, Deadline.after(_STUCK)
        if tried and (deadline.over or stuck.over):
            return behind
        _one_batch(backend, index, todo, gone, deadline)
        tried = True
    if to_wipe:
        index.wipe()
    return 0


def _one_batch(
    backend: Backend, index: Index, todo: list[SessionState], gone: list[IndexedUpTo], deadline: Deadline
) -> None:
    with index.writing(deadline.left(_TURN)) as entries:
        if entries is None:
            return  # another filler has its turn
        for mark in gone:
            if backend.read(partial(_state, mark.id)) is None:
                entries.drop_session(mark)
        read = 0
        for state in todo:
            while read < _BATCH and not (deadline.over and read):
                count = _one_page(backend, entries, state.id)
                read += count
                if count < PAGE:
                    break


def _known(index: Index, deadline: Deadline) -> tuple[dict[str, IndexedUpTo], bool]:
    with index.open(deadline.left(_TURN)) as entries:
        return entries.marks(), entries.has_to_wipe() is not None


def _sessions(backend: Backend, session: str | None) -> list[SessionState]:
    if session is None:
        return backend.read(lambda tx: tx.sessions(_ALL, None))
    return backend.read(
        lambda tx: [lineage.get_session(tx, owner) for owner, _, _ in lineage.record_ranges(tx, session, 1, _ALL)]
    )


def _state(session: str, tx: Transaction) -> SessionState | None:
    return tx.session(session)


def _left(state: SessionState, mark: IndexedUpTo | None) -> bool:
    return mark is None or mark.upto != state.last


def _unread(state: SessionState, mark: IndexedUpTo | None) -> int:
    """Records to read; all of them if the index knows more than there is."""
    seen = mark.upto if mark is not None and mark.upto <= state.last else state.forked_at
    return state.last - seen


def _one_page(backend: Backend, entries: IndexRows, session: str) -> int:
    """Reads on in one session. How many records there were."""
    mark = entries.mark(session)

    def read_one_page(tx: Transaction) -> tuple[list[Record], int, bool]:
        state = lineage.get_session(tx, session)
        if mark is None:
            return tx.records(session, state.forked_at + 1, _ALL, PAGE), state.forked_at, True
        seen = tx.record(session, mark.upto) if mark.upto > state.forked_at else None
        same = mark.upto <= state.last and (seen.id if seen is not None else "") == mark.last_id
        return (tx.records(session, mark.upto + 1, _ALL, PAGE) if same else []), mark.upto, same

    try:
        page, upto, same = backend.read(read_one_page)
    except SessionNotFound:
        return 0  # deleted just now; the next round takes it out
    if mark is not None and not same:
        entries.drop_session(mark)  # it is another journal than the one that was read
        return _one_page(backend, entries, session)
    if page:
        mark = entries.put_mark(session, page[-1].number, page[-1].id)
        take_in(entries, mark, page)
    elif mark is None:
        entries.put_mark(session, upto, "")
    return len(page)


def take_in(entries: IndexRows, mark: IndexedUpTo, page: Iterable[Record]) -> None:
    """What is said in a page of records goes in. What is announced in it as erased, or said once more, goes out."""
    new: dict[int, Said] = {}
    gone: set[int] = set()
    repeated: set[int] = set()
    for record in page:
        if record.kind == ERASED and "numbers" in record.body:
            gone |= {*record.body["numbers"], *record.body["summaries"]}
        elif record.kind == INPUT_TAKEN:
            if record.body.get("unqueued"):
                continue
            repeated.add(record.body["input"])  # the message that follows says the same
        elif said := searched(record):
            new[record.number] = Said(record.at, spaced(said), spaced(speaker(record)), part(record, said))
    erased = [entries.drop(mark, number) for number in gone]
    if any(erased):
        entries.to_wipe()
    for number in repeated:
        entries.drop(mark, number)
    entries.add(mark, {number: said for number, said in new.items() if number not in gone | repeated})
