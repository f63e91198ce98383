"""Stores with millions of records on a server, made in minutes: one session is written by the library itself, and its
rows are copied under other names by the server. What is measured is the real schema, and it verifies."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import psycopg
from psycopg import sql

import onefold
from benchmarks.speed.stores import message
from onefold.compaction.holder import this_process
from onefold.errors import StoreDamaged
from onefold.journal import verify
from onefold.model import Claim, SessionState
from onefold.storage import row_codec

RECORDS = 1_000
"""Of each session."""
LONG = "long"
_TOKEN = "template"
_ROUNDS, _MESSAGES, _TAIL = 5, 170, 20
_CHUNK, _AT_ONCE = 500, 2
# Of each table, the columns that name a session, a record or a compaction.
_NAMED = {
    "records": ("session", "id", "body"),
    "names": ("id", "session"),
    "segments": ("session", "compaction"),
    "compactions": ("session", "id", "rest"),
}
_Link = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Filled:
    """A store on a server, and how to reach it."""

    address: str
    sessions: int
    records: int

    def session(self, number: int) -> str:
        return f"session-{number % self.sessions:06}"


def fill(dsn: str, schema: str, sessions: int, long: int, say: Callable[[str], None]) -> Filled:
    """A store of so many sessions, each compacted five times, and one of `long` records."""
    address, pattern = f"{dsn}&onefold_schema={schema}", f"{dsn}&onefold_schema={schema}_{_TOKEN}"
    state = _write_template(pattern)
    with onefold.open(address) as store, psycopg.connect(dsn, autocommit=True) as link:
        say(f"{schema}: {sessions * RECORDS:,} records")
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(partial(_copy_rows, dsn, schema, sessions, state), range(0, sessions, _CHUNK)))
        say(f"{schema}: one session of {long:,} records")
        _write_long(store, link, schema, long)
        link.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(f"{schema}_{_TOKEN}")))
        say(f"{schema}: vacuum and analyze")
        for table in ("records", "sessions", "segments", "compactions", "names"):
            link.execute(sql.SQL("vacuum (analyze) {}").format(sql.Identifier(schema, table)))
        link.execute("checkpoint")
    return Filled(address, sessions, sessions * RECORDS + long)


def check(filled: Filled, numbers: list[int]) -> int:
    """Verifies some of the sessions: what is derived is what their journal says. Gives how many records that were."""
    seen = 0
    with onefold.open(filled.address) as store:
        for name in (LONG, *(filled.session(n) for n in numbers)):
            count, found, _ = store.journal.backend.read(lambda tx, s=name: verify.check(tx, s))  # type: ignore[misc]
            if found:
                raise StoreDamaged(f"the bench's own session {name!r} is not as its journal says: {found[0]}")
            seen += count
    return seen


def _write_template(address: str) -> SessionState:
    counted = itertools.count(1)
    with onefold.open(address, ids=lambda: f"{next(counted):012x}-{_TOKEN}") as store:
        session = store.session(f"session-{_TOKEN}")
        for _ in range(_ROUNDS):
            _append(session, session.state.last + _MESSAGES)
            _compact(store, session.id)
        _append(session, RECORDS)
        return session.state


def _append(session: onefold.Session, until: int) -> None:
    last = session.state.last
    session.append([message(last + n) for n in range(until - last)])


def _compact(store: onefold.Store, session: str) -> None:
    store.journal.request(session)
    claim = store.journal.claim(session, this_process())
    if not isinstance(claim, Claim):
        raise RuntimeError(f"the bench's own compaction was not granted: {claim}")
    cut = claim.fence - _TAIL
    store.journal.commit(claim, f"What was said before record {cut}. " * 20, cut)


def _copy_rows(dsn: str, schema: str, sessions: int, state: SessionState, first: int) -> None:
    stop = min(first + _CHUNK, sessions)
    with psycopg.connect(dsn) as link:
        for table, named in _NAMED.items():
            link.execute(_copied(link, schema, table, named), (first, stop - 1))
        _copy_states(link, schema, [state._replace(id=f"session-{n:06}") for n in range(first, stop)])


def _copied(link: _Link, schema: str, table: str, named: tuple[str, ...]) -> sql.Composed:
    """A statement that copies the template's rows of a table, once for each number."""
    found = link.execute(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 order by attnum",
        (f"{schema}.{table}",),
    )
    names = [str(name) for (name,) in found.fetchall()]
    token = sql.SQL("lpad(n::text, 6, '0')")
    values = [
        sql.SQL("replace({}, {}, {})").format(sql.Identifier(name), sql.Literal(_TOKEN), token)
        if name in named
        else sql.Identifier(name)
        for name in names
    ]
    return sql.SQL(
        "insert into {} ({}) select {} from generate_series(%s::int, %s::int) as n "
        "cross join lateral (select * from {} order by 1, 2) as rows"
    ).format(
        sql.Identifier(schema, table),
        sql.SQL(", ").join(map(sql.Identifier, names)),
        sql.SQL(", ").join(values),
        sql.Identifier(f"{schema}_{_TOKEN}", table),
    )


def _copy_states(link: _Link, schema: str, states: list[SessionState]) -> None:
    names = [*SessionState._fields, "seal"]
    into = sql.SQL("copy {} ({}) from stdin").format(
        sql.Identifier(schema, "sessions"), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    with link.cursor() as cursor, cursor.copy(into) as copy:
        for state in states:
            copy.write_row((*state, row_codec.row_checksum(state)))


def _write_long(store: onefold.Store, link: _Link, schema: str, records: int) -> None:
    """A session of its own length: its messages are copies of its first one, until a little before the end."""
    session = store.session(LONG)
    session.append(message(1))
    one = store.journal.state(LONG)
    more = records - RECORDS // 5 - one.last
    table = sql.Identifier(schema, "records")
    with link.transaction():
        link.execute(
            sql.SQL(
                "insert into {} select session, number + n, id || '-' || n, kind, at, format, role, tokens, opens, "
                "closes, key, turn, actor, body from generate_series(1, %s::int) as n cross join {} "
                "where session = %s and number = 2"
            ).format(table, table),
            (more, LONG),
        )
        each = session.context().tokens
        state = one._replace(last=one.last + more, messages=one.messages + more, tokens=one.tokens + more * each)
        link.execute(sql.SQL("delete from {} where id = %s").format(sql.Identifier(schema, "sessions")), (LONG,))
        _copy_states(link, schema, [state])
    _compact(store, LONG)
    _append(session, records)
