"""One SQLite transaction: the journal's rows, and what is derived from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import apsw

from onefold.messages import encode
from onefold.model import Compaction, KeyUse, Lease, Record, Segment, SessionState
from onefold.storage import row_codec
from onefold.storage.base import MessageHeader, ProjectionSnapshot, UniqueViolation
from onefold.storage.row_codec import header_columns, row_checksum
from onefold.storage.sqlite.queries import queries

_QUERIES = queries()
_LAST = (float("inf"), "")
BURST = 64
"""How many messages a session's row may be behind its journal, and for how long, in seconds: see `put_session`."""
BURST_SECONDS = 0.05
NEVER = (0, 0.0, -1)
MOST = (1 << 32) - 1  # records of one session
EVERYTHING = (
    "drop_session", "drop_segments", "drop_compactions", "drop_keys", "drop_inputs", "drop_aliases",
)  # fmt: skip


class SqliteLeases:
    def __init__(self, tx: SqliteTransaction, what: str) -> None:
        self._tx = tx
        self._what = what

    def get(self, session: str) -> Lease | None:
        rows = self._tx.run(self._what, session)
        return Lease(*rows[0]) if rows else None

    def put(self, session: str, lease: Lease) -> None:
        self._tx.run(f"put_{self._what}", session, *astuple(lease))

    def drop(self, session: str) -> None:
        self._tx.run(f"drop_{self._what}", session)


class Known:
    """What is known of sessions without asking: within one transaction, or, for the connection that writes, from one to
    the next as long as nobody else writes and none is taken back."""

    __slots__ = ("rows", "sids", "states")

    def __init__(self) -> None:
        self.states: dict[str, SessionState | None] = {}
        self.sids: dict[str, int] = {}
        """Their numbers in this store; 0 for one that has no journal."""
        self.rows: dict[str, tuple[int, float, int]] = {}
        """The last number and the time in their row, which may be behind, and how many records up to there are no
        messages: what a row says apart from messages holds as long as there are no more of those."""

    def copy(self) -> Known:
        other = Known()
        other.states.update(self.states)
        other.sids.update(self.sids)
        other.rows.update(self.rows)
        return other

    def clear(self) -> None:
        self.states.clear()
        self.sids.clear()
        self.rows.clear()


class SqliteTransaction:
    """What one operation sees and writes: one after another, if none needs to be told from the one before it."""

    def __init__(
        self, connection: apsw.Connection, now: float, known: Known | None = None, pen: apsw.Cursor | None = None
    ) -> None:
        self._connection = connection
        self.pen = pen or connection
        """What statements are run with. Everything a cursor found is fetched before its next statement."""
        self._queries = _QUERIES
        self.now = now
        self.known = known or Known()
        """What this one reads or writes, and what those before it left: one view. Of no use if it is taken back."""
        self.commit_probe: tuple[str, int, str] | None = None
        """Session, number and id of a record that it added: there after the commit, or nothing is."""

    @property
    def leases(self) -> SqliteLeases:
        return SqliteLeases(self, "lease")

    @property
    def turn_leases(self) -> SqliteLeases:
        return SqliteLeases(self, "turn_lease")

    def run(self, query: str, *bindings: Any) -> list[Any]:
        return self.pen.execute(self._queries[query], bindings).fetchall()

    def usable(self) -> bool:
        return self._connection.in_transaction

    # ------------------------------------------------------------------ the journal

    def add(self, session: str, record: Record, data: str) -> None:
        number, id, kind, at, _, format, header, key, turn, actor = record
        sid = self.known.sids.get(session) or self._sid(session, make=True)
        row: tuple[Any, ...]
        if header is None or header.call_ids or header.result_ids:
            row = ((sid << 32) + number, id, kind, at, format, *header_columns(header), key, turn, actor, data)
        else:  # as most are
            plain = header.role, header.tokens
            row = ((sid << 32) + number, id, kind, at, format, *plain, None, None, key, turn, actor, data)
        self.pen.execute(self._queries["add_record"], row)
        self.commit_probe = (session, number, id)

    def record(self, session: str, number: int) -> Record | None:
        found = self.records(session, number, number + 1, 1)
        return found[0] if found else None

    def records(self, session: str, start: int, stop: int, limit: int) -> list[Record]:
        return [
            row_codec.record(session, row) for row in self.run("records", *self._places(session, start, stop), limit)
        ]

    def messages(self, session: str, start: int, stop: int) -> list[Record]:
        return [row_codec.record(session, row) for row in self.run("messages", *self._places(session, start, stop))]

    def some(self, session: str, numbers: Sequence[int]) -> list[Record]:
        return [row_codec.record(session, row) for row in self._some(session, numbers)]

    def _some(self, session: str, numbers: Sequence[int]) -> list[Any]:
        first = self._sid(session) << 32
        places = [first + n for n in sorted({*numbers}) if 0 < n < MOST]
        return self.run("some", encode(places)) if places else []

    def headers(self, session: str, start: int, stop: int, *, tools_only: bool = False) -> list[MessageHeader]:
        rows = self.run("tool_headers" if tools_only else "headers", *self._places(session, start, stop))
        return [MessageHeader(number, row_codec.header(*head), turn) for number, *head, turn in rows]

    def tokens(self, session: str, start: int, stop: int) -> int:
        return int(self.run("tokens", *self._places(session, start, stop))[0][0])

    def last_user(self, session: str, start: int, stop: int) -> int | None:
        rows = self.run("last_user", *self._places(session, start, stop))
        return rows[0][0] if rows else None

    def marks(self, session: str, start: int, stop: int) -> list[Record]:
        return [row_codec.record(session, row) for row in self.run("marks", *self._places(session, start, stop))]

    def rewrite(self, session: str, record: Record, data: str) -> None:
        self.pen.execute(
            self._queries["rewrite"],
            (
                record.kind,
                record.format,
                *header_columns(record.header),
                data,
                self._places(session, record.number, 0)[0],
            ),
        )

    def last_number(self, session: str) -> int:
        return int(self.run("last_number", *self._places(session, 0, MOST))[0][0])

    def _sid(self, session: str, *, make: bool = False) -> int:
        """A session's number in this store; 0 if it has no journal here."""
        sid = self.known.sids.get(session)
        if not sid:
            rows = self.run("journal", session) or (self.run("add_journal", session) if make else [])
            sid = self.known.sids[session] = rows[0][0] if rows else 0
        return sid

    def _places(self, session: str, start: int, stop: int) -> tuple[int, int]:
        """Where the records start ≤ number < stop of a session are. Without a journal that is before all others."""
        first = self._sid(session) << 32
        return first + max(0, min(start, MOST)), first + max(0, min(stop, MOST))

    # ------------------------------------------------------------------ what is derived from it

    def session(self, session: str) -> SessionState | None:
        states = self.known.states
        if session in states:
            return states[session]
        rows = self.run("session", session)
        found = states[session] = self._caught_up(rows[0]) if rows else None
        return found

    def put_session(self, state: SessionState) -> None:
        """Sets a session's state. In a burst of messages its row is written now and then only: whoever reads it counts
        the messages after it. Everything but messages is written at once."""
        known, id, now, last = self.known, state.id, state.touched_at, state.last
        known.states[id] = state
        written, at, others = known.rows.get(id, NEVER)
        if last - state.messages != others:
            self.write_session(state)
        elif last - written > BURST or not at <= now < at + BURST_SECONDS:
            known.rows[id] = (last, now, others)
            self.pen.execute(self._queries["touch_session"], touched(state))

    def write_session(self, state: SessionState) -> None:
        """Writes a session's row whole."""
        self.known.rows[state.id] = row_of(state)
        self.pen.execute(self._queries["put_session"], (*state, row_checksum(state)))

    def _caught_up(self, row: Any, *, listed: bool = False) -> SessionState:
        """A session's state by its row and the messages after that. If what follows is not a burst of messages, the row
        is damaged: it is taken as it is, and found out by comparing. In a list it keeps the time that put it there."""
        state = SessionState(*row[:-1])
        if row_checksum(state) != row[-1]:
            return state
        self.known.rows[state.id] = row_of(state)
        first, end = self._places(state.id, state.last + 1, MOST)
        count, others, tokens, last, at = self.run("burst", first, end)[0]
        if not count or others or count > BURST or last != first + count - 1:
            return state
        touched_at = state.touched_at if listed else at
        return state._replace(
            last=state.last + count, touched_at=touched_at, messages=state.messages + count,
            tokens=state.tokens + tokens,
        )  # fmt: skip

    def sessions(self, limit: int, after: tuple[float, str] | None) -> list[SessionState]:
        rows = self._listed("sessions", *(after or _LAST), limit)
        return [self._caught_up(row, listed=True) for row in rows]

    def walk(self, limit: int, after: str) -> list[tuple[str, SessionState | None]]:
        rows = self._listed("walk", after, limit)
        return [(row[0], self._caught_up(row) if row[1] is not None else None) for row in rows]

    def _listed(self, query: str, *bindings: Any) -> list[Any]:
        """Rows of several sessions, after one look for all their numbers in this store."""
        rows = self.run(query, *bindings)
        self.known.sids.update(self.run("journals", encode([row[0] for row in rows])))
        return rows

    def lasts(self, sessions: Sequence[str]) -> dict[str, int]:
        states = (self.session(session) for session in sessions)
        return {state.id: state.last for state in states if state is not None}

    def segment(self, session: str, number: int) -> Segment | None:
        rows = self.run("segment", session, number)
        return row_codec.segment(rows[0]) if rows else None

    def segment_at(self, session: str, number: int) -> Segment | None:
        rows = self.run("segment_at", session, number)
        return row_codec.segment(rows[0]) if rows else None

    def successor(self, session: str, base: int) -> Segment | None:
        rows = self.run("successor", session, base)
        return row_codec.segment(rows[0]) if rows else None

    def segments(self, session: str) -> list[Segment]:
        return [row_codec.segment(row) for row in self.run("segments", session)]

    def add_segment(self, session: str, segment: Segment) -> None:
        s = segment
        try:
            self.run(
                "add_segment", session, s.number, s.base or 0, s.cut, s.source, s.at, s.compaction, s.summary,
                encode(list(s.kept)), s.tokens_before, s.tokens_after, row_codec.segment_extra(s),
            )  # fmt: skip
        except apsw.ConstraintError as error:
            raise UniqueViolation(f"session {session!r}: segment {s.base} has a successor already") from error

    def compaction(self, session: str, id: str) -> Compaction | None:
        rows = self.run("compaction", session, id)
        return row_codec.compaction(rows[0]) if rows else None

    def put_compaction(self, compaction: Compaction) -> None:
        self.run("put_compaction", *row_codec.compaction_row(compaction))

    def compactions(self, session: str | None, *, open_only: bool) -> list[Compaction]:
        if session is not None:
            found = [row_codec.compaction(row) for row in self.run("compactions", session)]
            return [c for c in found if c.open or not open_only]
        return [*row_codec.skip_damaged(self.run("open_compactions" if open_only else "all_compactions"))]

    def open_compactions(self) -> Iterator[Compaction]:
        return row_codec.skip_damaged(self.run("open_compactions"))

    def key(self, session: str, key: str) -> KeyUse | None:
        rows = self.run("key", session, key)
        return KeyUse(*rows[0]) if rows else None

    def keys(self, session: str, keys: Sequence[str]) -> dict[str, KeyUse]:
        return {key: use for key in keys if (use := self.key(session, key)) is not None}

    def put_key(self, session: str, key: str, use: KeyUse) -> None:
        self.run("put_key", session, key, use.first, use.count, use.digest)

    def add_input(self, session: str, number: int) -> None:
        self.run("add_input", session, number)

    def drop_input(self, session: str, number: int) -> None:
        self.run("drop_input", session, number)

    def next_input(self, session: str) -> int | None:
        number: int | None = self.run("next_input", session)[0][0]
        return number

    def inputs(self, session: str) -> list[int]:
        return sorted(number for (number,) in self.run("inputs", session))

    def add_alias(self, session: str, alias: str) -> None:
        try:
            self.run("add_alias", alias, session)
        except apsw.ConstraintError as error:
            raise UniqueViolation(f"a session is known by {alias!r} already") from error

    def owner(self, alias: str) -> str | None:
        rows = self.run("owner", alias)
        return rows[0][0] if rows else None

    def forks(self, session: str) -> list[SessionState]:
        return [self._caught_up(row) for row in self.run("forks", session)]

    # ------------------------------------------------------------------ what is gone

    def wipe(self, session: str, ids: Sequence[str]) -> None:
        self.run("put_meta", "gaps", "there are some")  # see the backend's `purge`
        places = self._places(session, 0, MOST)
        for what in ("blank_records", "wipe_records"):
            self.run(what, *places)
        for what in (*EVERYTHING, "drop_lease", "drop_turn_lease", "drop_journal"):
            self.run(what, session)
        self.known.sids[session] = 0
        for id in ids:
            self.run("put_tombstone", id, session, self.now)
        self.known.states[session] = None
        self.known.rows.pop(session, None)

    def deleted(self, id: str) -> str | None:
        rows = self.run("deleted", id)
        return rows[0][0] if rows else None

    def tombstones(self, limit: int, after: str) -> list[tuple[str, str]]:
        return self.run("tombstones", after, limit)

    # ------------------------------------------------------------------ checking one against the other

    def looks_right(self, session: str) -> bool:
        rows = self.run("session", session)
        if not rows or row_checksum(rows[0][:-1]) != rows[0][-1]:
            return False
        state = self._caught_up(rows[0])
        if state.last != self.last_number(session):
            return False
        segments, compactions, inputs, aliases, newest = self.run("counts", session)[0]
        return (segments, compactions, inputs, aliases, newest) == (
            state.segments, state.compactions, state.pending, state.aliases, state.head,
        )  # fmt: skip

    def derived(self, session: str) -> ProjectionSnapshot:
        rows = self.run("session", session)
        sealed = bool(rows) and row_checksum(rows[0][:-1]) == rows[0][-1]
        return ProjectionSnapshot(
            state=self._caught_up(rows[0]) if sealed else None,
            segments={row[0]: row_codec.segment_or_not(row) for row in self.run("segments", session)},
            compactions={row[1]: row_codec.compaction_or_not(row) for row in self.run("compactions", session)},
            keys={row[0]: KeyUse(*row[1:]) for row in self.run("keys", session)},
            inputs={row[0] for row in self.run("inputs", session)},
            aliases={row[0] for row in self.run("aliases", session)},
        )

    def replace(self, session: str, derived: ProjectionSnapshot) -> None:
        for what in EVERYTHING:
            self.run(what, session)
        self.known.states[session] = None
        self.known.rows.pop(session, None)
        if derived.state is not None:
            self.put_session(derived.state)
        for segment in derived.segments.values():
            self.add_segment(session, segment)
        for compaction in derived.compactions.values():
            self.put_compaction(compaction)
        for key, use in derived.keys.items():
            self.put_key(session, key, use)
        for number in derived.inputs:
            self.add_input(session, number)
        for alias in derived.aliases:
            self.add_alias(session, alias)


def touched(state: SessionState) -> tuple[Any, ...]:
    """What `touch_session` is given."""
    return state.touched_at, state.last, state.messages, state.tokens, row_checksum(state), state.id


def row_of(state: SessionState) -> tuple[int, float, int]:
    """What is known of a row with this state: see `Known.rows`."""
    return state.last, state.touched_at, state.last - state.messages


def reseal(connection: apsw.Connection) -> None:
    """Computes the checksum of every session's row again, after a migration gave it more columns."""
    tx = SqliteTransaction(connection, 0.0)
    page = tx.sessions(500, None)
    while page:
        for state in page:
            tx.write_session(state)
        page = tx.sessions(500, (page[-1].touched_at, page[-1].id))
