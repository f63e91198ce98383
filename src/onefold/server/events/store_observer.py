"""Observes every session of a store, whichever process writes, for metrics, the log and followers of all sessions.

It looks at the sessions with the latest activity, as long as it finds news there. A clock that was set back could hide
some of it, and so could a session that was deleted: so from time to time it looks at all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from onefold.metrics import Counts
from onefold.model import (
    CANCELLED,
    COMMITTED,
    FAILED,
    JOINED,
    MESSAGE,
    REQUESTED,
    STARTED,
    SUPERSEDED,
    Compaction,
    Record,
    SessionState,
)
from onefold.server.events.record_batches import RecordBatch, portion
from onefold.storage.base import Transaction
from onefold.store import Store

log = logging.getLogger("onefold.server")

FEW = 64
MANY = 5_000
PAGE = 500
MOST = 2_000
"""Records read at once; what is left waits for the next look."""
MOST_BYTES = 8 << 20
"""The same, in bytes of what is told of them."""
WHOLE_AT_MOST, WHOLE_AT_LEAST = 2.0, 10.0
"""Seconds between two looks at all sessions."""

_OF_COMPACTIONS = frozenset({REQUESTED, JOINED, STARTED, COMMITTED, FAILED, CANCELLED, SUPERSEDED})
_ENDS = {COMMITTED: "committed", FAILED: "failed", CANCELLED: "cancelled", SUPERSEDED: "superseded"}


@dataclass(frozen=True, slots=True)
class StoreChange:
    """What is new in one session."""

    session: str
    told: tuple[RecordBatch, ...] = ()
    """Its records, each with the text of its event."""
    compactions: dict[str, Compaction] = field(default_factory=dict)
    """Those that the records are about, as they stand now."""
    gone: bool = False

    @property
    def records(self) -> list[Record]:
        return [one.record for one in self.told]


class Observer:
    """Knows how far each session was seen. Only one thread looks at a time."""

    def __init__(self, store: Store, counts: Counts | None = None) -> None:
        self.counts = counts or Counts()
        self.deleted: Callable[[str], None] = lambda session: None
        """Called with each session that was deleted, before anybody else is told."""
        self.behind = False
        """There is more than was read."""
        self.partial = False
        """The last look was at some of the sessions: what was deleted may not have been seen."""
        self._store = store
        self._seen: dict[str, int] = {}
        self._running: set[tuple[str, str]] = set()
        self._whole_at = 0.0

    def begin(self) -> None:
        """From here on: what was there before the server is not counted."""
        states, running = self._store.journal.backend.read(_everything)
        self._seen = {state.id: state.last for state in states}
        self._running = {(c.session, c.id) for c in running if c.state == "running"}

    def look(self, now: float) -> list[StoreChange]:
        """What is new since the last look."""
        since = now - self._whole_at
        changes = self._changes(whole=False) if since < WHOLE_AT_LEAST else []
        self.partial = bool(changes) or since <= WHOLE_AT_MOST
        if not self.partial:
            changes = self._changes(whole=True)
            self._whole_at = now
        for change in changes:
            self._take_in(change)
        return changes

    def _changes(self, *, whole: bool) -> list[StoreChange]:
        moved, gone = self._store.journal.backend.read(partial(self._moved, whole))
        self.behind = False
        changes = [StoreChange(session, gone=True) for session in gone]
        room, size = MOST, MOST_BYTES
        for state in moved:
            if room <= 0 or size <= 0:
                self.behind = True
                break
            change = self._store.journal.backend.read(partial(self._news, state, min(room, PAGE), size))
            changes.append(change)
            room -= len(change.told)
            size -= sum(len(one.text) for one in change.told)
        return changes

    def _moved(self, whole: bool, tx: Transaction) -> tuple[list[SessionState], list[str]]:
        """Sessions with news, and those that are no longer there."""
        size = MANY if whole else FEW
        after: tuple[float, str] | None = None
        moved: list[SessionState] = []
        there: set[str] = set()
        while True:
            page = tx.sessions(size, after)
            news = [s for s in page if self._seen.get(s.id, s.forked_at) < s.last]
            moved += news
            there.update(s.id for s in page)
            if len(page) < size:
                return moved, [id for id in self._seen if id not in there]
            if not (whole or news):
                return moved, []
            after = (page[-1].touched_at, page[-1].id)

    def _news(self, state: SessionState, limit: int, most: int, tx: Transaction) -> StoreChange:
        start, stop = self._seen.get(state.id, state.forked_at) + 1, state.last + 1

        def read(first: int, several: int) -> list[Record]:
            return tx.records(state.id, first, stop, several)

        told = portion(state.id, read, start, stop, limit=limit, most=most)
        if len(told) < stop - start:
            self.behind = True
        named = {_compaction_of(one.record) for one in told if one.record.kind in _OF_COMPACTIONS}
        found = {id: c for id in named if id and (c := tx.compaction(state.id, id)) is not None}
        return StoreChange(state.id, tuple(told), found)

    # ------------------------------------------------------------------ counted, and said in the log

    def _take_in(self, change: StoreChange) -> None:
        if change.gone:
            self._seen.pop(change.session, None)
            self.deleted(change.session)
            log.info("a session was deleted", extra={"session": change.session})
            return
        if change.told:
            self._seen[change.session] = change.told[-1].record.number
        self.counts.appended(sum(r.kind == MESSAGE for r in change.records))
        for record in change.records:
            if record.kind in _OF_COMPACTIONS:
                self._compaction(change, record)

    def _compaction(self, change: StoreChange, record: Record) -> None:
        id = _compaction_of(record)
        known = change.compactions.get(id)
        key = (change.session, id)
        cause = record.body.get("cause")
        if record.kind == STARTED:
            if key in self._running:
                self.counts.taken_over()
            self._running.add(key)
        elif record.kind in _ENDS:
            self._running.discard(key)
            if record.kind != FAILED or record.body.get("final"):
                self.counts.compacted(_ENDS[record.kind], known.trigger if known is not None else "unknown")
            if record.kind == COMMITTED and known is not None and known.started_at is not None:
                self.counts.took(record.at - known.started_at)
            if record.body.get("refusal"):
                self.counts.refused(str(record.body["refusal"]))
        log.log(
            logging.WARNING if record.kind == FAILED else logging.INFO, record.kind,
            extra={"session": change.session, "compaction": id, "fence": _fence(record, known),
                   "holder": str(known.holder) if known is not None and known.holder is not None else None,
                   "cause": cause if isinstance(cause, str) else None},
        )  # fmt: skip


def _everything(tx: Transaction) -> tuple[list[SessionState], list[Compaction]]:
    states: list[SessionState] = []
    after: tuple[float, str] | None = None
    while page := tx.sessions(MANY, after):
        states += page
        after = (page[-1].touched_at, page[-1].id)
    return states, tx.compactions(None, open_only=True)


def _compaction_of(record: Record) -> str:
    return str(record.body.get("compaction", "")) if isinstance(record.body, dict) else ""


def _fence(record: Record, known: Compaction | None) -> int | None:
    if record.kind == STARTED:
        return record.number
    return known.fence or None if known is not None else None
