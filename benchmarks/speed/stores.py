"""The stores that are measured, and the bare file they are measured against."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw

import onefold
from onefold.compaction.holder import this_process
from onefold.ids import random_id, system_clock
from onefold.messages.codecs import draft
from onefold.model import Claim, Json, Quotes, Segment
from onefold.storage.sqlite.queries import queries

TAIL = 100
BATCH = 5_000


def message(number: int) -> dict[str, Json]:
    """A chat message of about 400 bytes as JSON."""
    return {"role": "user" if number % 2 else "assistant", "content": f"{number:010} " + "some words and more " * 18}


class Bare:
    """A one-table file, and the shortest durable way to put a row into it."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.pragma("journal_mode", "wal")
        self._connection.execute("pragma synchronous = full")
        self._connection.execute("create table messages (number integer primary key, body text not null)")

    def insert(self, body: str) -> None:
        self._connection.execute("begin immediate")
        self._connection.execute("insert into messages (body) values (?)", (body,))
        self._connection.execute("commit")

    def close(self) -> None:
        self._connection.close()


class Statements:
    """The statements of an append on a store of ours, without the program around them."""

    def __init__(self, path: Path) -> None:
        with onefold.open(path) as store:
            self._state = store.session("one").state
        self._connection = apsw.Connection(str(path))
        self._connection.execute("pragma synchronous = full")
        self._record, self._session = queries()["add_record"], queries()["touch_session"]

    def insert(self, body: str) -> None:
        self._state = state = self._state._replace(last=self._state.last + 1)
        nothing = (None,) * 5
        about = ("0" * 20, "message", state.touched_at, "openai-chat", "user", 100)
        self._connection.execute("begin immediate")
        self._connection.execute(self._record, ((1 << 32) + state.last, *about, *nothing, body))
        self._connection.execute(
            self._session, (state.touched_at, state.last, state.messages, state.tokens, 0, state.id)
        )
        self._connection.execute("commit")

    def close(self) -> None:
        self._connection.close()


class Straight:
    """What no append can do without, in one straight line, with no program around it: JSON that comes back equal, an
    id, a header, taking turns with other processes, a look whether anybody else wrote, the record, a commit."""

    def __init__(self, path: Path) -> None:
        with onefold.open(path) as store:
            self._last = store.session("one").state.last
        self._connection = apsw.Connection(str(path))
        self._connection.execute("pragma synchronous = full")
        self._record = queries()["add_record"]
        self._gate = os.open(f"{path}-gate", os.O_RDWR | os.O_CREAT)
        self._seen = self._connection.data_version()

    def insert(self, said: Json) -> None:
        made = draft(said, random_id)
        header = made.header
        assert header is not None
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        self._connection.execute("begin immediate")
        if self._connection.data_version() != self._seen:
            raise RuntimeError("somebody else wrote to the bench's own store")
        self._last += 1
        self._connection.execute(
            self._record,
            ((1 << 32) + self._last, made.id, made.kind, system_clock(), made.format, header.role, header.tokens,
             None, None, made.key, made.turn, made.actor, made.data),
        )  # fmt: skip
        self._connection.execute("commit")
        self._seen = self._connection.data_version()
        fcntl.flock(self._gate, fcntl.LOCK_UN)

    def close(self) -> None:
        self._connection.close()
        os.close(self._gate)


def build(path: Path, records: int, progress: Callable[[int], None]) -> None:
    """A store with one session of so many records, compacted so that about the last `TAIL` of them stay verbatim."""
    with onefold.open(path) as store:
        session = store.session("long")
        written = session.state.last
        while written < records - TAIL:
            count = min(BATCH, records - TAIL - written)
            session.append([message(written + i) for i in range(count)])
            written += count
            progress(written)
        ready_to_commit(store, TAIL // 2)()
        last = session.state.last
        session.append([message(last + i) for i in range(records - last)])


def ready_to_commit(store: onefold.Store, tail: int, quotes: Quotes | None = None) -> Callable[[], Segment]:
    """Asks for a compaction of the long session and claims it. What is left to do is the commit alone."""
    journal = store.journal
    journal.request("long")
    claim = journal.claim("long", this_process())
    if not isinstance(claim, Claim):
        raise RuntimeError(f"the bench's own compaction was not granted: {claim}")
    cut = claim.fence - tail
    return partial(journal.commit, claim, f"What was said before record {cut}. " * 20, cut, quotes=quotes)
