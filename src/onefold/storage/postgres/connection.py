"""Connections to the server: made in one place, each with a deadline of its own, several in a pool.

Nothing about a connection outlives a transaction: no prepared statement, no setting, no lock. So each transaction may
run on another one, as it does behind a PgBouncer in transaction mode. Values are put into the text on this side, so
that several statements travel in one message.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.waiting import Ready, Wait
from psycopg_pool import ConnectionPool

RV = TypeVar("RV")
Statement: TypeAlias = tuple[bytes, Sequence[Any] | dict[str, Any]]
Rows: TypeAlias = list[tuple[Any, ...]]
Pool: TypeAlias = "ConnectionPool[Link]"

ENCODING = "UTF8"
MOST_CONNECTIONS = 16
IDLE_SECONDS = 300.0


class Stalled(psycopg.OperationalError):
    """The server did not answer in time. The connection is closed; what became of the statement is not known."""


class WrongEncoding(psycopg.OperationalError):
    """Text would not come back from this database as it was given."""


class Link(psycopg.Connection[tuple[Any, ...]]):
    """A connection that does not wait for its server for ever."""

    longest = 60.0

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        try:
            return super().wait(_bounded(gen, time.monotonic() + self.longest), *args, **kwargs)
        except Stalled:
            self.close()
            raise

    def send(self, statements: Sequence[Statement]) -> list[Rows]:
        """Runs several statements in one exchange, and gives what each of them found. The first that fails ends it."""
        with psycopg.ClientCursor(self) as cursor:
            try:
                text = b";".join([cursor.mogrify(q, b).encode() if b else q for q, b in statements])
            except UnicodeEncodeError as error:
                raise psycopg.DataError(str(error)) from error
            cursor.execute(text)
            found = [_rows(cursor)]
            while cursor.nextset():
                found.append(_rows(cursor))
        return found

    def ask(self, query: bytes, *bindings: Any) -> Rows:
        """Runs one statement."""
        return self.send([(query, bindings)])[0]

    @property
    def in_transaction(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.INTRANS

    @property
    def in_error(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.INERROR

    @property
    def busy(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.ACTIVE

    @property
    def lost(self) -> bool:
        return self.closed or self.pgconn.transaction_status == TransactionStatus.UNKNOWN


def connect(conninfo: str, longest: float) -> Link:
    """The one place that makes a connection."""
    link = Link.connect(conninfo, autocommit=True, prepare_threshold=None)
    link.longest = longest
    try:
        check_encoding(link)
    except BaseException:
        link.close()
        raise
    return link


def check_encoding(link: Link) -> None:
    """Rejects a connection on which not all text comes back as it was given. That of the client is set by the address,
    over whatever else says something about it; that of the server is the database's for good."""
    server, client = (_setting(link, name) for name in ("server_encoding", "client_encoding"))
    if server != ENCODING:
        raise WrongEncoding(
            f"the database {link.info.dbname!r} has the encoding {server}, in which not every text can be stored; "
            f"nothing was made. Make another database: create database NAME encoding '{ENCODING}' template template0"
        )
    if client != ENCODING:
        raise WrongEncoding(
            f"what lies between here and the database {link.info.dbname!r} sets client_encoding to {client}, and text "
            f"would be altered; nothing was made. Let it pass client_encoding={ENCODING} on"
        )


def _setting(link: Link, name: str) -> str:
    said = link.info.parameter_status(name)
    if said is None:  # as a proxy may do that tells only some
        said = str(link.execute(sql.SQL("show {}").format(sql.Identifier(name))).fetchall()[0][0])
    return said


def pool(conninfo: str, longest: float, patience: float, kind: type[ConnectionPool[Link]]) -> Pool:
    def configure(link: Link) -> None:
        link.longest = longest
        link.add_notify_handler(_unheard)
        check_encoding(link)

    return kind(
        conninfo,
        connection_class=Link,
        kwargs={"autocommit": True, "prepare_threshold": None},
        configure=configure,
        min_size=0,
        max_size=MOST_CONNECTIONS,
        max_idle=IDLE_SECONDS,
        timeout=patience,
        reconnect_timeout=patience,
        num_workers=1,
        name="onefold",
        open=True,
    )


def _unheard(notification: psycopg.Notify) -> None:
    """Behind a PgBouncer, a connection may hear what another client listened for. psycopg would keep all of it."""


def _rows(cursor: psycopg.ClientCursor[tuple[Any, ...]]) -> Rows:
    found = cursor.pgresult
    return cursor.fetchall() if found is not None and found.status == ExecStatus.TUPLES_OK else []


def _bounded(gen: PQGen[RV], ends: float) -> PQGen[RV]:
    """The same, until a time. psycopg comes by now and then also when nothing happens."""
    ready: Ready | int | None = None
    while True:
        try:
            wanted: Wait = next(gen) if ready is None else gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result
        ready = yield wanted
        if not ready and time.monotonic() > ends:
            gen.close()
            raise Stalled("the server did not answer in time")
