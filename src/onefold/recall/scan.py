"""Search where no index can be used: reads the journal, newest first, within a deadline.

Words are looked up in an index in memory, made for the one search; a query without any word is looked for sign by sign.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from onefold.errors import SessionNotFound
from onefold.journal import lineage
from onefold.model import Record, SessionState
from onefold.recall.hits import Hit, HitReader, SearchRequest, SearchResult
from onefold.recall.index import Index
from onefold.recall.indexer import PAGE, Deadline, take_in
from onefold.storage.base import Backend, Transaction

_ALL = 1 << 62


def scan(backend: Backend, session: str | None, forks: bool, deadline: Deadline) -> tuple[Index, int]:
    """An index of what there was time to read, of a session with its past or of all, and how many records are left."""
    index = Index(None, backend.generation)
    to_read = backend.read(lambda tx: stretches(tx, session, forks=forks))
    left = sum(stop - first for _, first, stop in to_read)
    with index.writing() as entries:
        if entries is None:
            raise AssertionError("nobody else has this index")
        for owner, first, stop in to_read:
            for start, end in _pages(first, stop):
                if deadline.over:
                    return index, left
                try:
                    page = backend.read(partial(_records, owner, start, end))
                except SessionNotFound:
                    break  # deleted meanwhile
                take_in(entries, entries.put_mark(owner, stop - 1, ""), page)
                left -= end - start
    return index, left


def scan_literally(backend: Backend, ask: SearchRequest, deadline: Deadline) -> SearchResult:
    hits: list[Hit] = []
    to_read = backend.read(lambda tx: stretches(tx, ask.session, forks=ask.forks))
    left = sum(stop - first for _, first, stop in to_read)
    for owner, first, stop in to_read:
        for start, end in _pages(first, stop):
            if len(hits) >= ask.limit:
                return SearchResult(tuple(hits[: ask.limit]), indexed=False)
            if deadline.over:
                return SearchResult(tuple(hits), left, indexed=False)
            try:
                hits += backend.read(partial(_matching, ask, owner, start, end))
            except SessionNotFound:
                break  # deleted meanwhile
            left -= end - start
    return SearchResult(tuple(hits[: ask.limit]), indexed=False)


def _records(owner: str, start: int, end: int, tx: Transaction) -> list[Record]:
    lineage.get_session(tx, owner)
    return tx.records(owner, start, end, end - start)


def _matching(ask: SearchRequest, owner: str, start: int, end: int, tx: Transaction) -> list[Hit]:
    judge = HitReader(tx, ask)
    return [
        hit for record in reversed(_records(owner, start, end, tx)) if (hit := judge.hit(owner, record)) is not None
    ]


def stretches(tx: Transaction, session: str | None, *, forks: bool) -> list[tuple[str, int, int]]:
    """Whose records belong to a search, from a number up to another one, the newest first."""
    if session is None:
        return [(s.id, s.forked_at + 1, s.last + 1) for s in tx.sessions(_ALL, None)]
    own = lineage.record_ranges(tx, session, 1, lineage.get_session(tx, session).last + 1)[::-1]
    return [*((s.id, s.forked_at + 1, s.last + 1) for s in _forks(tx, session)), *own] if forks else own


def _forks(tx: Transaction, session: str) -> Iterator[SessionState]:
    """Every fork of a session, and those of its forks."""
    for fork in tx.forks(session):
        yield fork
        yield from _forks(tx, fork.id)


def _pages(first: int, stop: int) -> Iterator[tuple[int, int]]:
    while first < stop:
        start = max(first, stop - PAGE)
        yield start, stop
        stop = start
