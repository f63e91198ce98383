"""Searches everything that was ever said, in one session or in all, and reads it again."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from shlex import quote
from threading import Lock

from onefold.errors import OnefoldError
from onefold.journal import lineage
from onefold.model import Record, Segment
from onefold.recall.hits import Hit, HitReader, SearchRequest, SearchResult
from onefold.recall.index import Index, IndexUnavailable
from onefold.recall.indexer import Deadline, Progress, catch_up
from onefold.recall.query import parse
from onefold.recall.ranker import rank
from onefold.recall.scan import scan, scan_literally, stretches
from onefold.storage.base import Backend, Transaction
from onefold.storage.locations import sidecar_path
from onefold.store import Store

log = logging.getLogger("onefold")

MOST = 1000
"""Hits at most."""
PATIENCE = 2.0
"""Seconds that a search may take to bring the index up to date before it answers with what there is."""
_EXAMINED = 5000
"""Candidates that are looked up in the journal at most: of those that match, few are undone or gone."""
_WINDOW = 500

_in_memory: weakref.WeakKeyDictionary[Backend, Index] = weakref.WeakKeyDictionary()
_one = Lock()


class Recall:
    """Looks through everything that was ever said in a store. It writes no record.

    The index is a sidecar file, `<store>.search`. It is updated by whoever searches, or by a
    `Follower`; it may be deleted at any time. Without it (`index=False`), or where it cannot be written, the journal
    itself is read through.
    """

    def __init__(self, store: Store, *, index: bool = True) -> None:
        self.store = store
        self._backend = store.journal.backend
        self.index = _index(self._backend) if index else None

    def search(
        self,
        query: str,
        *,
        session: str | None = None,
        forks: bool = False,
        limit: int = 20,
        undone: bool = True,
        in_view: bool = True,
        around: bool = True,
        patience: float | None = PATIENCE,
        progress: Progress | None = None,
    ) -> SearchResult:
        """What matches words, "phrases", beginnings* and -what-not, the best first and of equals the newest.

        In one session, with its past if it is a fork, and with `forks` also in every fork of it, such as those of its
        sub-agents; or in all, where each record is shown once. Records with all of
        the words come first, then those with most of them, or with some; to a question also counts what was said around
        a record. `undone` False leaves out what was taken back, `in_view` False what the session's context shows.
        `around` gives each hit what was said before and after it. `patience` bounds the time for reading what is new,
        None does not.
        """
        within = self.store.resolve(session) if session is not None else None
        read = None if forks else within
        ask = SearchRequest(parse(query), within, max(1, min(limit, MOST)), undone, in_view, around, forks)
        if not ask.query.indexed:
            return scan_literally(self._backend, ask, Deadline.after(patience))
        if self.index is not None:
            for again in (True, False):
                try:
                    behind = catch_up(
                        self._backend, self.index, Deadline.after(patience), session=read, progress=progress
                    )
                    return SearchResult(tuple(self._look(self.index, ask)), behind)
                except IndexUnavailable as error:
                    if not again:
                        log.warning("%s; the journal is read through instead", error)
        index, behind = scan(self._backend, within, forks, Deadline.after(patience))
        return SearchResult(tuple(self._look(index, ask)), behind, indexed=False)

    def _look(self, index: Index, ask: SearchRequest) -> list[Hit]:
        with index.open(PATIENCE) as entries:

            def judge(tx: Transaction) -> list[Hit]:
                scopes, ours = None, None
                if ask.session is not None:
                    parts = stretches(tx, ask.session, forks=ask.forks)
                    ours = {owner: range(first, stop) for owner, first, stop in parts}
                    scopes = [m for owner in ours if (m := entries.mark(owner)) is not None]
                    if not scopes:
                        return []
                ranking = rank(entries, ask.query, scopes, ask.limit)
                candidates = (c for c in ranking.found if ours is None or c[1] in ours[c[0]])
                reader = HitReader(tx, replace(ask, query=ranking.query))
                return [*islice(reader.hits(islice(candidates, _EXAMINED)), ask.limit)]

            hits = self._backend.read(judge)
        if not hits and (loose := ask.query.loosened()) is not None:
            return self._look(index, replace(ask, query=loose))
        return hits

    def read(self, session: str, first: int = 1, last: int | None = None) -> list[Record]:
        """Records of a session, both ends included, those of its past in its parent too."""
        id = self.store.resolve(session)
        return [*self.store.journal.read(id, first, None if last is None else last + 1)]

    def segment(self, session: str, number: int | None = None) -> Segment:
        """A boundary of a session, by default the one in force."""
        id = self.store.resolve(session)

        def read_segment(tx: Transaction) -> Segment | None:
            return lineage.segment(tx, id, number if number is not None else lineage.get_session(tx, id).head)

        found = self._backend.read(read_segment)
        if found is None:
            raise OnefoldError(f"session {id!r} has no segment {number}; `onefold show {quote(id)}` names them")
        return found

    def expand(self, session: str, segment: int | None = None, *, added: bool = False) -> list[Record]:
        """The messages that a segment's summary stands for, by default of the segment in force: those before its cut
        that it does not hide. With `added`, only those that its compaction added to what the summary before it had.
        """
        return [*self.expanded(session, self.segment(session, segment), added=added)]

    def expanded(self, session: str, of: Segment, *, added: bool = False, first: int = 1) -> Iterator[Record]:
        """The same, from a record on, read as it is asked for: it may be long."""
        id = self.store.resolve(session)
        if of.summary is None:
            return
        start = max(first, self._backend.read(lambda tx: _begins(tx, id, of)) if added else 1)
        for begin in range(start, of.cut, _WINDOW):
            yield from self._backend.read(partial(_messages, id, begin, min(begin + _WINDOW, of.cut), of))

    def rebuild(self, progress: Progress | None = None) -> None:
        """Rebuilds the index from the journal."""
        if self.index is not None:
            self.index.rebuild()
            catch_up(self._backend, self.index, Deadline.after(None), progress=progress)

    def purge(self) -> bool:
        """Takes out what was erased or deleted since, and rewrites the index's file, so that nothing of it is left.

        Searching does that by itself, but for an index of more than 256 MiB. False if somebody is in the way now.
        """
        if self.index is None:
            return True
        return catch_up(self._backend, self.index, Deadline.after(None)) == 0 and self.index.wipe(whole=True)


def search(
    store: Store,
    query: str,
    *,
    session: str | None = None,
    limit: int = 20,
    undone: bool = True,
    in_view: bool = True,
    around: bool = True,
    patience: float | None = PATIENCE,
) -> list[Hit]:
    """Looks for words in one session, or in all of a store: `Recall(store).search` for one question."""
    found = Recall(store).search(
        query, session=session, limit=limit, undone=undone, in_view=in_view, around=around, patience=patience
    )
    if found.behind:
        log.warning("search in %s: the index is behind by %d records; search again", store.address, found.behind)
    return [*found.hits]


def _messages(session: str, start: int, stop: int, of: Segment, tx: Transaction) -> list[Record]:
    return lineage.messages(tx, session, start, stop, of.hidden)


def _begins(tx: Transaction, session: str, of: Segment) -> int:
    """Where the messages begin that a summary's own compaction cut."""
    made = lineage.segment(tx, session, of.summary) if of.summary is not None else None
    base = lineage.segment(tx, session, made.base) if made is not None and made.base is not None else None
    return base.cut if base is not None else 1


def _index(backend: Backend) -> Index | None:
    if backend.address == "memory:" or "://" in backend.address:  # no file to keep an index beside
        with _one:
            return _in_memory.setdefault(backend, Index(None, backend.generation))
    path = Path(backend.address).absolute()
    if not path.exists():
        log.warning("%s is not seen from this folder: open the store by its whole path to have an index", path)
        return None
    return Index(sidecar_path(backend.address, "search").absolute(), backend.generation)
