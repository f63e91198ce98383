"""Search without an index: reads the journal, newest first, within a deadline."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from onefold.errors import SessionNotFound
from onefold.journal import lineage
from onefold.recall.hits import Hit, HitReader, SearchRequest, SearchResult
from onefold.recall.indexer import PAGE, Deadline
from onefold.storage.base import Backend, Transaction

_ALL = 1 << 62


def scan(backend: Backend, ask: SearchRequest, deadline: Deadline) -> SearchResult:
    hits: list[Hit] = []
    stretches = backend.read(lambda tx: _stretches(tx, ask.session))
    left = sum(stop - first for _, first, stop in stretches)
    for owner, first, stop in stretches:
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


def _matching(ask: SearchRequest, owner: str, start: int, end: int, tx: Transaction) -> list[Hit]:
    judge = HitReader(tx, ask)
    records = tx.records(owner, start, end, end - start)
    return [hit for record in reversed(records) if (hit := judge.hit(owner, record)) is not None]


def _stretches(tx: Transaction, session: str | None) -> list[tuple[str, int, int]]:
    """Whose records to read, the newest first."""
    if session is None:
        return [(s.id, s.forked_at + 1, s.last + 1) for s in tx.sessions(_ALL, None)]
    return lineage.record_ranges(tx, session, 1, lineage.get_session(tx, session).last + 1)[::-1]


def _pages(first: int, stop: int) -> Iterator[tuple[int, int]]:
    while first < stop:
        start = max(first, stop - PAGE)
        yield start, stop
        stop = start
