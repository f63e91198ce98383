"""A walk over all sessions of a store, in the order of their ids: the one way to meet each of them.

An id never changes. So whatever is written between two pages, a session that is there before the walk and after it is
met once. By activity sessions move, and a list in that order is for looking.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from onefold.model import SessionState
from onefold.storage.base import Backend, Transaction

PAGE = 500
"""Sessions that are read at a time, in one transaction."""

Met = tuple[str, SessionState | None]
"""A session's id, and its state as it was when its page was read; None if its row is missing."""


def scan_sessions(backend: Backend, after: str = "", *, page: int = PAGE) -> Iterator[Met]:
    """Every session that has a record or a derived row, in the order of ids, those behind `after`."""
    while found := backend.read(partial(_page, page, after)):
        yield from found
        if len(found) < page:
            return
        after = found[-1][0]


def _page(limit: int, after: str, tx: Transaction) -> list[Met]:
    return tx.walk(limit, after)
