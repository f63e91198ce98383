"""Reading a journal, and waiting for what comes: in pages by number, never with a statement left open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from onefold.errors import StaleHandle
from onefold.journal import lineage
from onefold.model import Record
from onefold.storage.base import Backend, Transaction

PAGE = 500
_FOREVER = 3600.0  # one wait at a time; whoever waits looks again after it
_END = 1 << 62


@dataclass(frozen=True, slots=True)
class WaitFor:
    """What something that goes step by step waits for: that the store moves on from a version, or a time on the
    monotonic clock."""

    version: int
    until: float

    def wait(self, backend: Backend) -> None:
        left = self.until - time.monotonic()
        if left > 0:
            backend.wait(self.version, left)


def iter_records(backend: Backend, session: str, start: int, stop: int | None) -> Iterator[Record]:
    end = _last(backend, session) + 1 if stop is None else stop
    while start < end:
        page = _page(backend, session, start, end)
        yield from page
        if not page:
            return
        start = page[-1].number + 1


def follow(
    backend: Backend, session: str, after: int, *, generation: str | None, idle: float | None
) -> Iterator[Record]:
    deadline: float | None = None
    while True:
        version = backend.version()  # before looking: a change after that is not missed
        if page := read_page(backend, session, after, generation):
            yield from page
            after, deadline = page[-1].number, None
            continue
        if idle is not None and deadline is None:
            deadline = time.monotonic() + idle
        left = _FOREVER if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return
        backend.wait(version, left)


def read_page(backend: Backend, session: str, after: int, generation: str | None) -> list[Record]:
    """What came after a number, a page of it; `Moved` if the number is none of this store's any more."""

    def read_page_in(tx: Transaction) -> tuple[int, list[Record]]:
        last = lineage.get_session(tx, session).last
        return last, lineage.records(tx, session, after + 1, _END, PAGE) if last > after else []

    last, page = backend.read(read_page_in)
    _check_there(backend, session, after, last, generation)
    return page


def wait(backend: Backend, session: str, after: int, version: int, timeout: float | None) -> bool:
    deadline = None if timeout is None else time.monotonic() + timeout
    while _last(backend, session) <= after:
        left = _FOREVER if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return False
        backend.wait(version, left)
        version = backend.version()
    return True


def _last(backend: Backend, session: str) -> int:
    return backend.read(lambda tx: lineage.get_session(tx, session)).last


def _page(backend: Backend, session: str, start: int, stop: int) -> list[Record]:
    return backend.read(lambda tx: lineage.records(tx, session, start, stop, PAGE))


def _check_there(backend: Backend, session: str, after: int, last: int, generation: str | None) -> None:
    if generation is not None and generation != backend.generation:
        raise StaleHandle(
            f"the store was restored from a backup since (it is {backend.generation} now): "
            f"numbers of session {session!r} from before do not count; read it again from the start"
        )
    if after > last:
        raise StaleHandle(
            f"session {session!r} ends at record {last}, before {after}: the store was restored from a backup, or "
            "the number is another session's; read it again from the start"
        )
