"""What goes into a PostgreSQL store comes out equal, whatever is said of encodings, or opening it is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

import onefold
from onefold.errors import StoreError, StoreUnavailable
from onefold.storage.postgres import connection
from onefold.storage.postgres.connection import Link
from onefold.storage.postgres.dsn import parse
from tests.support.helpers import quick
from tests.support.postgres_server import Server

TEXTS = ["Prüfung: naïve café", "€ — “quoted”", "東京 и Москва", "\N{GRINNING FACE} e\u0301", "plain", "Ã©"]
OTHERS = ["LATIN1", "LATIN9", "WIN1252", "EUC_JP", "SQL_ASCII"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(quick=False)
    try:
        yield server
    finally:
        server.stop()


def made(server: Server, name: str, encoding: str) -> str:
    """The address of a new database."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(
            sql.SQL("create database {} encoding {} template template0 locale 'C'").format(
                sql.Identifier(name), sql.Literal(encoding)
            )
        )
    return server.dsn.replace("/postgres?", f"/{name}?")


WAYS = ("the address", "options of the address", "the environment", "the database", "the user")


@pytest.mark.parametrize("encoding", OTHERS)
@pytest.mark.parametrize("way", WAYS)
def test_whatever_says_something_of_the_clients_encoding_text_comes_back_equal(
    server: Server, monkeypatch: pytest.MonkeyPatch, way: str, encoding: str
) -> None:
    name = f"client_{WAYS.index(way)}_{encoding}".lower()
    plain = made(server, name, "UTF8") if way == "the database" else server.dsn
    plain = address = f"{plain}&onefold_schema={name}"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        match way:
            case "the address":
                address += f"&client_encoding={encoding}"
            case "options of the address":
                address += f"&options={quote(f'-c client_encoding={encoding}')}"
            case "the environment":
                monkeypatch.setenv("PGCLIENTENCODING", encoding)
            case "the database":
                admin.execute(f"alter database {name} set client_encoding to '{encoding}'".encode())
            case _:
                admin.execute(f"create role {name} login superuser".encode())
                admin.execute(f"alter role {name} set client_encoding to '{encoding}'".encode())
                address = address.replace("postgres@", f"{name}@")

    with onefold.open(address, policy=quick()) as store:
        for n, text in enumerate(TEXTS):
            session = store.session(f"{n} {text}")
            session.append({"role": "user", "content": text}, key=text)
            session.alias(f"other {text}")
            assert session.append({"role": "user", "content": text}, key=text).duplicate
        assert {s.id for s in store.sessions()} == {f"{n} {text}" for n, text in enumerate(TEXTS)}
        assert store.verify().findings == ()

    monkeypatch.delenv("PGCLIENTENCODING", raising=False)
    with onefold.open(plain) as store:
        for text in TEXTS:
            session = store.session(f"other {text}")
            assert [m["content"] for m in session.context().messages] == [text]
    with psycopg.connect(parse(plain).conninfo) as admin:
        bodies = sql.SQL("select body from {} where kind = 'message'").format(sql.Identifier(name, "records"))
        assert sorted(json.loads(body)["content"] for (body,) in admin.execute(bodies)) == sorted(TEXTS)


@pytest.mark.parametrize("encoding", OTHERS)
def test_a_database_that_cannot_hold_every_text_is_refused_with_the_remedy_and_nothing_is_made(
    server: Server, encoding: str
) -> None:
    address = made(server, f"server_{encoding}".lower(), encoding)

    for create in (True, False):
        with pytest.raises(StoreError, match=rf"has the encoding {encoding}.*create database NAME encoding 'UTF8'"):
            onefold.open(address, create=create)

    with psycopg.connect(address) as admin:
        assert admin.execute("select count(*) from pg_namespace where nspname = 'onefold'").fetchone() == (0,)


def test_a_proxy_that_sets_another_encoding_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    address = made(server, "behind_a_proxy", "UTF8")
    says = connection._setting

    def other(link: Link, name: str) -> str:
        return "LATIN1" if name == "client_encoding" else says(link, name)

    monkeypatch.setattr(connection, "_setting", other)
    with pytest.raises(StoreError, match=r"sets client_encoding to LATIN1.*Let it pass client_encoding=UTF8 on"):
        onefold.open(address)


def test_a_connection_that_is_made_later_is_looked_at_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a server that took another one's place."""
    address = made(server, "replaced_later", "UTF8")
    with onefold.open(f"{address}&onefold_patience=0.3") as store:
        with monkeypatch.context() as patched:
            patched.setattr(connection, "_setting", lambda link, name: "SQL_ASCII")
            with pytest.raises(StoreError, match="has the encoding SQL_ASCII"):
                store.session("a")

        assert store.session("a").append({"role": "user", "content": TEXTS[0]}).numbers == (2,)


def test_a_server_that_is_away_is_told_of_differently_to_who_reads_and_who_writes() -> None:
    server = Server()
    try:
        with onefold.open(f"{server.dsn}&onefold_patience=0.2") as store:
            session = store.session("a")
            server.kill()

            with pytest.raises(StoreUnavailable, match=r"cannot be reached.*nothing was read") as read:
                session.context()
            with pytest.raises(StoreUnavailable, match=r"cannot be reached.*nothing was written"):
                session.append({"role": "user", "content": "lost"})
    finally:
        server.stop()

    assert "written" not in str(read.value)
