"""One PostgreSQL transaction: the journal's rows, and what is derived from them.

What is only written waits until something is read, or for the commit, and then goes to the server in one exchange.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import psycopg

from onefold.errors import InvalidMessage, StoreDamaged
from onefold.messages import encode
from onefold.model import Clock, Compaction, KeyUse, Lease, Record, Segment, SessionState
from onefold.storage import row_codec
from onefold.storage.base import MessageHeader, ProjectionSnapshot, SessionLocked, UniqueViolation
from onefold.storage.postgres.connection import Link, Rows, Statement

_MOST = (1 << 62) - 1
_LAST = (float("inf"), "")
_PAGE = 64
"""How many open compactions are read at a time."""
_LARGE = 16 << 20
"""How many characters of records wait at most before they are sent."""
_EVERYTHING = (
    "drop_session", "drop_segments", "drop_compactions", "drop_keys", "drop_inputs", "drop_aliases",
)  # fmt: skip


class Raced(UniqueViolation):
    """Somebody else was first, and what this transaction has read no longer holds: it is run again, with these
    sessions kept as they are from its start."""

    def __init__(self, message: str, *held: str) -> None:
        super().__init__(message)
        self.held = held


class Unclear(Exception):
    """The connection was lost during the commit: only reading back can tell whether it happened."""


class PostgresLeases:
    def __init__(self, tx: PostgresTransaction, what: str) -> None:
        self._tx = tx
        self._what = what

    def get(self, session: str) -> Lease | None:
        if self._what == "lease" and session in self._tx.known_leases:
            return self._tx.known_leases[session]
        found = self._tx.run_apart(self._what, session)
        return Lease(*found[0]) if found else None

    def put(self, session: str, lease: Lease) -> None:
        self._change(f"put_{self._what}", session, *astuple(lease))

    def drop(self, session: str) -> None:
        self._change(f"drop_{self._what}", session)

    def _change(self, query: str, session: str, *values: Any) -> None:
        self._tx.known_leases.pop(session, None)
        self._tx.run_apart(query, session, *values)
        self._tx.wrote = True


class PostgresTransaction:
    """What one operation sees and writes. A new one for each, so that it can say what it wrote."""

    def __init__(self, link: Link, queries: dict[str, bytes], clock: Clock | None) -> None:
        self._link = link
        self._queries = queries
        self._clock = clock
        self._now: float | None = None
        self._begin: list[Statement] = []
        self._added: list[tuple[Any, ...]] = []
        self._added_size = 0
        self._later: list[Statement] = []
        self._states: dict[str, SessionState | None] = {}
        self._keys: dict[tuple[str, str], KeyUse | None] = {}
        self._compactions: dict[tuple[str, str], Compaction] = {}
        self._segments: dict[tuple[str, int], Segment] = {}
        self.known_leases: dict[str, Lease | None] = {}
        """Of compactions, where they were read ahead."""
        self.wrote = False
        self.commit_probe: tuple[str, Sequence[Any]] | None = None
        """A query that finds something after the commit, and nothing if that did not happen."""
        self.stray: tuple[int, str] = (0, "")
        """The server's process and the start of this transaction, by which it can be ended from elsewhere."""
        self.min_writer = 0

    # ------------------------------------------------------------------ its beginning and its end

    def begin_reading(self) -> None:
        self._begin = [self._query("begin_reading")]

    def begin_writing(
        self, session: str, held: Sequence[str], lock: int, wait: float, patience: float, *, patient: bool = True
    ) -> None:  # fmt: skip
        """Takes the session's row; where there is none, its id. What is looked at after that is up to date. `wait`: for
        so many seconds, at most."""
        bounds = (f"{max(1, round(wait * 1000))}ms", f"{round(patience * 2000)}ms")
        opening = [self._query("begin_writing"), self._query("bounds", *bounds)]
        if held:
            opening.append(self._query("hold_sessions", sorted(held)))
        locking = [self._query("lock_session", session), self._query("about")]
        if not patient:
            locking[0] = self._query("try_session", session)
        *_, found, about = self._link.send([*opening, *locking])
        if not found and not patient and self.run("session", session):
            raise SessionLocked(session)
        if not found:
            *_, found, about = self._link.send([self._query("lock_new", lock), *locking])
        self._states[session] = SessionState(*found[0][:-1]) if found else None
        self.min_writer, now, process, since = about[0]
        self.stray = (process, since)
        if self._clock is None:
            self._now = now

    def commit(self, channel: str, told: str) -> None:
        """Sends what waits, and commits. Raises `Unclear` if no answer came.

        Those who listen are told after the commit, in the same exchange: NOTIFY within it would take one lock for the
        whole database until the commit is on disk. What is lost between the two, they find by looking.
        """
        if not self.wrote and not self._waiting():
            self._link.send([self._query("commit")])
            return
        try:
            self._link.send([*self._waiting(), self._query("commit"), self._query("notify", channel, told)])
        except psycopg.Error as error:
            if self._link.in_error:
                raise
            raise Unclear from error

    def end(self) -> None:
        """Ends what was not committed, where the connection still stands."""
        if not self._link.lost and (self._link.in_transaction or self._link.in_error):
            self._link.send([self._query("rollback")])

    # ------------------------------------------------------------------ asking and telling

    def run(self, query: str, *bindings: Any) -> list[Any]:
        return self._send([self._query(query, *bindings)])[-1]

    def run_apart(self, query: str, *bindings: Any) -> list[Any]:
        """Where an error is no reason to give the transaction up. If it was one of what waited, it is: there is no
        savepoint yet to go back to."""
        try:
            return self._send([self._query("savepoint"), self._query(query, *bindings), self._query("release")])[-2]
        except psycopg.Error:
            if self._link.in_error:
                with contextlib.suppress(psycopg.errors.InvalidSavepointSpecification):
                    self._link.send([self._query("back"), self._query("release")])
            raise

    def _later_run(self, query: str, *bindings: Any) -> None:
        self._later.append(self._query(query, *bindings))
        self.wrote = True

    def _send(self, statements: list[Statement]) -> list[Rows]:
        everything = [*self._begin, *self._waiting(), *statements]
        self._forget_waiting()
        return self._link.send(everything)

    def _waiting(self) -> list[Statement]:
        added: list[Statement] = []
        if len(self._added) == 1:
            added.append(self._query("add_record", *self._added[0]))
        elif self._added:
            added.append(self._query("add_records", *map(list, zip(*self._added, strict=True))))
        return [*added, *self._later]

    def _forget_waiting(self) -> None:
        self._begin, self._added, self._later, self._added_size = [], [], [], 0

    def _forget_known(self) -> None:
        self._keys.clear()
        self._compactions.clear()
        self._segments.clear()
        self.known_leases.clear()

    def _query(self, name: str, *bindings: Any) -> Statement:
        return self._queries[name], bindings

    @property
    def now(self) -> float:
        if self._now is None:
            self._now = self._clock() if self._clock is not None else float(self.run("time")[0][0])
        return self._now

    @property
    def leases(self) -> PostgresLeases:
        return PostgresLeases(self, "lease")

    @property
    def turn_leases(self) -> PostgresLeases:
        return PostgresLeases(self, "turn_lease")

    def usable(self) -> bool:
        return bool(self._begin) or self._link.in_transaction

    # ------------------------------------------------------------------ the journal

    def add(self, session: str, record: Record, data: str) -> None:
        r = record
        row = (
            session,
            r.number,
            r.id,
            r.kind,
            r.at,
            r.format,
            *row_codec.header_columns(r.header),
            r.key,
            r.turn,
            r.actor,
            data,
        )
        _check_text(session, r.number, row)
        self._added.append(row)
        self._added_size += len(data)
        self.wrote = True
        self.commit_probe = ("commit_probe", (session, r.number, r.id))
        if self._added_size > _LARGE:
            self._send([])

    def record(self, session: str, number: int) -> Record | None:
        found = self.records(session, number, number + 1, 1)
        return found[0] if found else None

    def records(self, session: str, start: int, stop: int, limit: int) -> list[Record]:
        return [row_codec.record(session, row) for row in self.run("records", *_range(session, start, stop), limit)]

    def messages(self, session: str, start: int, stop: int) -> list[Record]:
        return [row_codec.record(session, row) for row in self.run("messages", *_range(session, start, stop))]

    def some(self, session: str, numbers: Sequence[int]) -> list[Record]:
        wanted = sorted({*numbers})
        return [row_codec.record(session, row) for row in self.run("some", session, wanted)] if wanted else []

    def headers(self, session: str, start: int, stop: int, *, tools_only: bool = False) -> list[MessageHeader]:
        found = self.run("tool_headers" if tools_only else "headers", *_range(session, start, stop))
        return [MessageHeader(number, row_codec.header(*about), turn) for number, *about, turn in found]

    def tokens(self, session: str, start: int, stop: int) -> int:
        return int(self.run("tokens", *_range(session, start, stop))[0][0])

    def last_user(self, session: str, start: int, stop: int) -> int | None:
        found = self.run("last_user", *_range(session, start, stop))
        return found[0][0] if found else None

    def marks(self, session: str, start: int, stop: int) -> list[Record]:
        return [row_codec.record(session, row) for row in self.run("marks", *_range(session, start, stop))]

    def rewrite(self, session: str, record: Record, data: str) -> None:
        row = (record.kind, record.format, *row_codec.header_columns(record.header), data)
        self._later_run("rewrite", *row, session, record.number)

    def last_number(self, session: str) -> int:
        return int(self.run("last_number", session)[0][0])

    # ------------------------------------------------------------------ what is derived from it

    def session(self, session: str) -> SessionState | None:
        if session not in self._states:
            # Whoever asks for a fork's parent goes on to its parents: a long line of them is one question.
            upwards = any(known is not None and known.parent == session for known in self._states.values())
            found = [SessionState(*row[:-1]) for row in self.run("line" if upwards else "session", session)]
            self._states |= {state.id: state for state in found if state.id not in self._states}
            self._states.setdefault(session, None)
        return self._states[session]

    def put_session(self, state: SessionState) -> None:
        before = self.session(state.id)
        if before is None:
            self._begin_session(state)
        self._states[state.id] = state
        if before is not None and row_codec.only_messages(before, state):
            seal = row_codec.row_checksum(state)
            self._later_run("touch_session", state.touched_at, state.last, state.messages, state.tokens, seal, state.id)
        else:
            self._later_run("put_session", *state, row_codec.row_checksum(state))

    def _begin_session(self, state: SessionState) -> None:
        """Takes the id of a new session. If it is a fork, its parent has to stay as this transaction saw it: what is
        erased there is erased in the forks that are there by then."""
        self._take_name(state.id, state.id, "session")
        seen = self._states.get(state.parent) if state.parent is not None else None
        if seen is not None:
            self.run("hold_sessions", [seen.id])
            now = self.run("session", seen.id)
            if not now or SessionState(*now[0][:-1]).head != seen.head:
                raise Raced(f"session {seen.id!r} moved on while it was forked", seen.id)

    def _take_name(self, id: str, session: str, kind: str) -> None:
        self.wrote = True
        if self.run("take_name", id, session, kind, self.now):
            return
        if self.run("name", id) != [(session, kind)] or kind == "alias":
            raise Raced(f"a session is known by {id!r} already")

    def sessions(self, limit: int, after: tuple[float, str] | None) -> list[SessionState]:
        return [SessionState(*row[:-1]) for row in self.run("sessions", *(after or _LAST), limit)]

    def walk(self, limit: int, after: str) -> list[tuple[str, SessionState | None]]:
        rows = self.run("walk", after, limit)
        return [(row[0], SessionState(*row[:-1]) if row[1] is not None else None) for row in rows]

    def lasts(self, sessions: Sequence[str]) -> dict[str, int]:
        return dict(self.run("lasts", list(sessions)))

    def segment(self, session: str, number: int) -> Segment | None:
        return self._segments.get((session, number)) or self._one_segment("segment", session, number)

    def segment_at(self, session: str, number: int) -> Segment | None:
        return self._one_segment("segment_at", session, number)

    def successor(self, session: str, base: int) -> Segment | None:
        return self._one_segment("successor", session, base)

    def _one_segment(self, query: str, session: str, number: int) -> Segment | None:
        found = self.run(query, session, number)
        return row_codec.segment(found[0]) if found else None

    def segments(self, session: str) -> list[Segment]:
        return [row_codec.segment(row) for row in self.run("segments", session)]

    def add_segment(self, session: str, segment: Segment) -> None:
        s = segment
        self.wrote = True
        added = self.run(
            "add_segment", session, s.number, s.base or 0, s.cut, s.source, s.at, s.compaction, s.summary,
            encode(list(s.kept)), s.tokens_before, s.tokens_after, row_codec.segment_extra(s),
        )  # fmt: skip
        if not added:
            raise UniqueViolation(f"session {session!r}: segment {s.base} has a successor already")
        self._segments[session, s.number] = s

    def compaction(self, session: str, id: str) -> Compaction | None:
        if (session, id) in self._compactions:
            return self._compactions[session, id]
        found = self.run("compaction", session, id)
        return row_codec.compaction(found[0]) if found else None

    def put_compaction(self, compaction: Compaction) -> None:
        self._compactions[compaction.session, compaction.id] = compaction
        self._later_run("put_compaction", *row_codec.compaction_row(compaction))

    def compactions(self, session: str | None, *, open_only: bool) -> list[Compaction]:
        if session is not None:
            found = [row_codec.compaction(row) for row in self.run("compactions", session)]
            return [c for c in found if c.open or not open_only]
        return [*row_codec.skip_damaged(self.run("open_compactions" if open_only else "all_compactions"))]

    def open_compactions(self) -> Iterator[Compaction]:
        after: tuple[float, str, str] = (float("-inf"), "", "")
        while rows := self.run("some_open_compactions", *after, _PAGE):
            page = [*row_codec.skip_damaged(rows)]
            self._look_ahead(page)
            yield from page
            session, id, _, requested_at, _ = rows[-1]
            after = (requested_at, session, id)

    def _look_ahead(self, page: Sequence[Compaction]) -> None:
        """Whoever goes through open compactions asks of each what its base is and who works on it: two questions for a
        page of them."""
        asked = [c.session for c in page], [c.base for c in page]
        for session, *row in self.run("some_segments", *asked):
            with contextlib.suppress(StoreDamaged):  # whoever asks for it is told
                self._segments[session, row[0]] = row_codec.segment(row)
        running = [c.session for c in page if c.state == "running"]
        try:
            leases = self.run_apart("some_leases", running) if running else []
        except psycopg.Error:  # whoever asks for one of them is told
            if not self.usable():
                raise
        else:
            self.known_leases |= dict.fromkeys(running) | {session: Lease(*row) for session, *row in leases}

    def key(self, session: str, key: str) -> KeyUse | None:
        if (session, key) in self._keys:
            return self._keys[session, key]
        found = self.run("key", session, _hash(key))
        return KeyUse(*found[0]) if found else None

    def keys(self, session: str, keys: Sequence[str]) -> dict[str, KeyUse]:
        unknown = [key for key in keys if (session, key) not in self._keys]
        found = self.run("some_keys", session, [_hash(key) for key in unknown]) if unknown else []
        self._keys |= {(session, key): None for key in unknown}
        self._keys |= {(session, key): KeyUse(*use) for key, *use in found}
        return {key: use for key in keys if (use := self._keys[session, key]) is not None}

    def put_key(self, session: str, key: str, use: KeyUse) -> None:
        self._keys[session, key] = use
        self._later_run("put_key", session, _hash(key), key, use.first, use.count, use.digest)

    def add_input(self, session: str, number: int) -> None:
        self._later_run("add_input", session, number)

    def drop_input(self, session: str, number: int) -> None:
        self._later_run("drop_input", session, number)

    def next_input(self, session: str) -> int | None:
        number: int | None = self.run("next_input", session)[0][0]
        return number

    def inputs(self, session: str) -> list[int]:
        return [number for (number,) in self.run("inputs", session)]

    def add_alias(self, session: str, alias: str) -> None:
        self._take_name(alias, session, "alias")

    def owner(self, alias: str) -> str | None:
        found = self.run("owner", alias)
        return found[0][0] if found else None

    def forks(self, session: str) -> list[SessionState]:
        return [SessionState(*row[:-1]) for row in self.run("forks", session)]

    # ------------------------------------------------------------------ what is gone

    def wipe(self, session: str, ids: Sequence[str]) -> None:
        for what in ("wipe_records", *_EVERYTHING, "drop_lease", "drop_turn_lease"):
            self._later_run(what, session)
        self._later_run("put_tombstones", session, self.now, list(ids))
        self._states[session] = None
        self._forget_known()
        self.commit_probe = ("commit_probe_gone", (session,))

    def deleted(self, id: str) -> str | None:
        found = self.run("deleted", id)
        return found[0][0] if found else None

    def tombstones(self, limit: int, after: str) -> list[tuple[str, str]]:
        return [(id, session) for id, session in self.run("tombstones", after, limit)]

    # ------------------------------------------------------------------ checking one against the other

    def looks_right(self, session: str) -> bool:
        counts = (self._queries["counts"], {"s": session})
        *_, found, counted = self._send([self._query("session", session), counts])
        if not found or row_codec.row_checksum(found[0][:-1]) != found[0][-1]:
            return False
        state = SessionState(*found[0][:-1])
        segments, compactions, inputs, aliases, newest, last = counted[0]
        return (segments, compactions, inputs, aliases, newest, last) == (
            state.segments, state.compactions, state.pending, state.aliases, state.head, state.last,
        )  # fmt: skip

    def derived(self, session: str) -> ProjectionSnapshot:
        found = self.run("session", session)
        sealed = bool(found) and row_codec.row_checksum(found[0][:-1]) == found[0][-1]
        return ProjectionSnapshot(
            state=SessionState(*found[0][:-1]) if sealed else None,
            segments={row[0]: row_codec.segment_or_not(row) for row in self.run("segments", session)},
            compactions={row[1]: row_codec.compaction_or_not(row) for row in self.run("compactions", session)},
            keys={row[0]: KeyUse(*row[1:]) for row in self.run("keys", session)},
            inputs={row[0] for row in self.run("inputs", session)},
            aliases={row[0] for row in self.run("aliases", session)},
        )

    def replace(self, session: str, derived: ProjectionSnapshot) -> None:
        for what in _EVERYTHING:
            self._later_run(what, session)
        self._states[session] = None
        self._forget_known()
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


def _range(session: str, start: int, stop: int) -> tuple[str, int, int]:
    return session, max(0, min(start, _MOST)), max(0, min(stop, _MOST))


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _check_text(session: str, number: int, row: tuple[Any, ...]) -> None:
    """JSON text carries NUL and lone surrogates as escapes. Names next to it cannot, and PostgreSQL takes neither."""
    for value in row:
        if isinstance(value, str) and ("\0" in value or not value.isascii()):
            try:
                bad = b"\0" in value.encode()
            except UnicodeEncodeError:
                bad = True
            if bad:
                raise InvalidMessage(
                    f"session {session!r}: record {number} has {value!r:.80} as a name, which PostgreSQL cannot store; "
                    "nothing was written"
                )
