"""Removes from the index what was erased or deleted in the journal, down to the bytes of its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onefold.journal.journal import Journal
from onefold.recall.index import Index
from onefold.recall.indexer import Deadline, catch_up

_PATIENCE = 5.0


def forget(journal: Journal, path: Path, sessions: Sequence[str], *, whole: bool = False) -> str | None:
    """Of some sessions; those that the index has never read are none of its business. Why something may be left."""
    backend, index = journal.backend, Index(path, journal.backend.generation)
    with index.open(_PATIENCE) as entries:
        known = entries.marks()
    behind = 0
    for session in sessions:
        if session not in known:
            continue
        if backend.read(lambda tx, id=session: tx.session(id) is not None):  # type: ignore[misc]
            behind += catch_up(backend, index, Deadline.after(None), session=session)
            continue
        with index.writing(_PATIENCE) as entries_to_write:
            mark = entries_to_write.mark(session) if entries_to_write is not None else None
            if entries_to_write is None:
                behind += 1
            elif mark is not None:
                entries_to_write.drop_session(mark)
    if behind or not index.wipe(whole=whole):
        return "somebody is in the way, or it is large; say it again later, or call Store.purge()"
    return None
