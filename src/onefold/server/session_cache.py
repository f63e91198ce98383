"""All sessions of a store in memory, so that a list of ten thousand is quick to filter and sort.

What is kept is what the store said; each page that is shown is read from the store again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from onefold.journal import lineage
from onefold.model import Ranges, SessionState
from onefold.server.serializers import read_as
from onefold.storage.base import Backend, Transaction

_PAGE = 100
_ALL = 1 << 62
_MARGIN = 5.0
"""Seconds by which the clocks of two writers may differ without a session being overlooked."""
_ANEW = 60.0
"""Seconds after which everything is read again: somebody may have deleted a session, or set a clock back."""
_TITLES = 50_000
_TITLE = 80
_LOOKED = 200
"""Records at the beginning of a session among which its title is looked for."""


class SessionCache:
    """The sessions of a store, the latest activity first."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._version = -1
        self._complete = float("-inf")
        self._states: dict[str, SessionState] = {}
        self._order: list[SessionState] = []

    def states(self) -> list[SessionState]:
        """All of them. What changed since the last look is read, not the rest."""
        with self._lock:
            version = self._backend.version()
            stale = time.monotonic() > self._complete + _ANEW
            if version != self._version:
                changed = self._read_again() if stale else self._catch_up()
                self._version = version
                if changed:
                    self._order = sorted(self._states.values(), key=lambda s: (s.touched_at, s.id), reverse=True)
            return self._order

    def forget(self, session: str) -> None:
        """One that was deleted. Nobody writes a record of that, so whoever learns of it says so here."""
        with self._lock:
            if self._states.pop(session, None) is not None:
                self._order = [state for state in self._order if state.id != session]

    def is_there(self, tx: Transaction, session: str) -> bool:
        """Whether a session of the list is still in the store; if not, the list forgets it."""
        there = tx.session(session) is not None
        if not there:
            self.forget(session)
        return there

    def _read_again(self) -> bool:
        """All at once, in one transaction: from one to the next they move."""
        self._complete = time.monotonic()
        self._states = {s.id: s for s in self._page(None, _ALL)}
        return True

    def _catch_up(self) -> bool:
        """The newest pages, down to what was known already and is older than any change since."""
        enough = (self._order[0].touched_at if self._order else 0.0) - _MARGIN
        after: tuple[float, str] | None = None
        changed = False
        while page := self._page(after, _PAGE):
            news = {s.id: s for s in page if self._states.get(s.id) != s}
            self._states |= news
            changed = changed or bool(news)
            if not news and page[-1].touched_at < enough:
                break
            after = (page[-1].touched_at, page[-1].id)
        return changed

    def _page(self, after: tuple[float, str] | None, size: int) -> list[SessionState]:
        return self._backend.read(lambda tx: tx.sessions(size, after))


class Titles:
    """What sessions are about: the first words that a user said, as long as they are neither undone nor erased."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[int, str | None]] = OrderedDict()

    def known(self, state: SessionState) -> tuple[bool, str | None]:
        """Whether the title is known without looking, and what it is. An undo and an erasure open a segment, so a
        title is good for as long as the head is the same."""
        head, title = self._known.get(state.id, (None, None))
        return head == state.head, title

    def of(self, tx: Transaction, state: SessionState) -> str | None:
        there, title = self.known(state)
        if not there:
            title = _title(tx, state)
            if title is not None or state.last > _LOOKED:
                with self._lock:
                    self._known[state.id] = (state.head, title)
                    self._known.move_to_end(state.id)
                    while len(self._known) > _TITLES:
                        self._known.popitem(last=False)
        return title


def _title(tx: Transaction, state: SessionState) -> str | None:
    head = lineage.segment(tx, state.id, state.head)
    hidden: Ranges = head.hidden if head is not None else ()
    for start in range(1, _LOOKED, 20):
        if start > state.last:
            return None
        asked = (h.number for h in lineage.headers(tx, state.id, start, start + 20, hidden) if h.header.role == "user")
        if (number := next(asked, None)) is not None:
            said = lineage.record(tx, state.id, number)
            return None if said is None else _beginning(read_as(said))
    return None


def _beginning(text: str) -> str:
    line = " ".join(text[: _TITLE * 8].split())
    return line if len(line) <= _TITLE else line[: _TITLE - 1].rstrip() + "…"
