"""What it costs the others when somebody holds a session of a PostgreSQL store: nothing, or nearly so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import psycopg
from psycopg import sql

import onefold
from benchmarks.speed.measures import in_turn, timed
from benchmarks.speed.report import TIMES, Bound, Row
from benchmarks.speed.stores import message
from tests.support.postgres_server import Server

_WANTING = 32
_WAITS = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
_SCHEMA = "held"
Say = Callable[[str], None]


def held_session(rounds: int, say: Say) -> list[Row]:
    """On a server of its own."""
    server = Server(quick=False)
    try:
        with onefold.open(f"{server.dsn}&onefold_schema={_SCHEMA}") as store:
            for id in ("held", "free"):
                store.session(id)
        return [beside_a_held_session(server.dsn, _SCHEMA, held="held", free="free", rounds=rounds, say=say)]
    finally:
        server.stop()


def beside_a_held_session(dsn: str, schema: str, *, held: str, free: str, rounds: int, say: Say) -> Row:
    """Appends to a session of its own by one process, while somebody holds another session's row and many threads of
    that process want to write to it; against the same with nobody there."""
    say("append beside a session that somebody holds")
    given = [message(n) for n in range(100)]
    table = sql.SQL("select 1 from {} where id = %s for update").format(sql.Identifier(schema, "sessions"))
    with (
        onefold.open(f"{dsn}&onefold_schema={schema}&onefold_patience=600") as store,
        psycopg.connect(dsn) as link,
        psycopg.connect(dsn, autocommit=True) as looking,
    ):
        session, other = store.session(free), store.session(held)

        def appends() -> None:
            for m in given:
                session.append(m)

        def beside() -> float:
            link.execute(table, (held,))
            with ThreadPoolExecutor(_WANTING) as threads:
                wanting = [threads.submit(other.append, message(1)) for _ in range(_WANTING)]
                while looking.execute(_WAITS).fetchall() == [(0,)]:
                    looking.execute("select pg_sleep(0.01)")
                took = timed(appends)
                link.rollback()
                for one in wanting:
                    one.result()
            return took

        pairs = in_turn(beside, lambda: timed(appends), rounds)
    rates = [len(given) / median(side) for side in zip(*pairs, strict=True)]
    return Row(
        f"append while another session is held and {_WANTING} threads want that, against before",
        median(before / meanwhile for meanwhile, before in pairs),
        TIMES,
        f"{rates[0]:,.0f} against {rates[1]:,.0f} a second",
        Bound(0.8, TIMES, least=True),
    )
