"""The store's shape over time: making it, moving it on, telling who may write, and what is wrong with it as a whole."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from psycopg import sql

from onefold.errors import StoreDamaged, StoreError, StoreTooNew
from onefold.model import Ids
from onefold.storage.postgres.connection import Link
from onefold.storage.postgres.queries import migrations, queries

WRITER = 4
"""The version of this program's way of writing. A store may ask for a newer one: its `min_writer`."""
OLDEST_SERVER = 140000
Steps = tuple[tuple[int, str, bool], ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """Where the tables are, for those who make and change them."""

    schema: str
    shown: str

    @property
    def queries(self) -> dict[str, bytes]:
        return queries(self.schema)


def number(*parts: str) -> int:
    """A number for an advisory lock. Two names that share one wait for each other, and nothing worse."""
    digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def prepare(link: Link, shape: Shape, ids: Ids, *, create: bool, steps: Steps = ()) -> str:
    """Makes the tables, or brings older ones up to date, in one transaction; gives the store's generation."""
    if link.info.server_version < OLDEST_SERVER:
        raise StoreError(f"{shape.shown}: the server is older than PostgreSQL 14; update it")
    steps = steps or migrations(shape.schema)
    at = version(link, shape)
    if not at and not create:
        raise StoreError(
            f"there is no store in {shape.shown}, schema {shape.schema}; check the address, or make one: "
            "`onefold init`, onefold.open(address)"
        )
    if at < steps[-1][0]:
        with link.transaction():
            _move_on(link, shape, ids, steps)
    elif at > steps[-1][0]:
        check_writer(shape, int(meta(link, shape, "min_writer")))
    return meta(link, shape, "incarnation")


def _move_on(link: Link, shape: Shape, ids: Ids, steps: Steps) -> None:
    link.ask(shape.queries["one_at_a_time"], number("migrate", shape.schema))
    at = version(link, shape)
    if not at:
        link.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(shape.schema)))
        if there := tables(link, shape):
            raise StoreError(
                f"{shape.shown}: the schema {shape.schema} has tables of another program ({', '.join(sorted(there))}); "
                "choose another one: onefold_schema=NAME"
            )
    else:
        check_writer(shape, int(meta(link, shape, "min_writer")))
        link.ask(shape.queries["stop_writers"])
    for step, script, undo in steps:
        if step <= at:
            continue
        link.execute(script.encode())
        if step == 1:
            link.ask(shape.queries["put_meta"], "min_writer", str(WRITER))
            link.ask(shape.queries["put_meta"], "incarnation", ids())
        elif not undo:
            link.ask(shape.queries["put_meta"], "min_writer", str(step))
        link.ask(shape.queries["put_meta"], "schema", str(step))


def version(link: Link, shape: Shape) -> int:
    """The number of the newest step that was taken; 0 if there is no store."""
    there = tables(link, shape)
    if "meta" not in there:
        if "records" in there:
            raise StoreDamaged(f"{shape.shown}: the table meta is gone; restore a backup")
        return 0
    found = link.ask(shape.queries["meta"], "schema")
    return int(found[0][0]) if found else 0


def meta(link: Link, shape: Shape, name: str) -> str:
    """A fact about the store that every store has."""
    found = link.ask(shape.queries["meta"], name)
    if not found:
        raise StoreDamaged(f"{shape.shown} does not say its {name}: it is damaged. Restore a backup")
    return str(found[0][0])


def check_writer(shape: Shape, accepted: int | None) -> None:
    if accepted is None:
        raise StoreDamaged(f"{shape.shown} does not say its min_writer: it is damaged. Restore a backup")
    if accepted > WRITER:
        raise StoreTooNew(
            f"{shape.shown} was written by a newer onefold and accepts writers from version {accepted} on; this "
            f"program is version {WRITER}. Update it: pip install -U onefold. Nothing was written"
        )


def tables(link: Link, shape: Shape) -> set[str]:
    return {name for (name,) in link.ask(shape.queries["tables"], f'"{shape.schema}"')}


def missing(link: Link, shape: Shape) -> list[str]:
    """Tables that a store of this version should have."""
    there = tables(link, shape)
    return [name for name in _made(shape) if name not in there]


def recreate(link: Link, shape: Shape, table: str) -> None:
    """Recreates a missing derived table, empty, with its indexes; its rows are folded from the journal after that."""
    if table in ("records", "meta"):
        raise StoreDamaged(f"{shape.shown}: the table {table} is gone, and with it the journal; restore a backup")
    with link.transaction():
        for statement in _statements(shape):
            if re.search(rf'(create table|alter table|on) "{shape.schema}"\.{table} ', statement):
                link.execute(statement.encode())


def warnings(link: Link, shape: Shape) -> list[tuple[str, str, bool]]:
    """Settings of the server under which what was answered may be lost."""
    settings = {str(name): str(value) for name, value in link.ask(shape.queries["settings"])}
    found = [
        (f"the server has {n} = off", f"{n} = on", False) for n in ("fsync", "full_page_writes") if _off(settings, n)
    ]
    if (commit := settings.get("synchronous_commit")) in ("off", "local"):
        found.append((f"the server has synchronous_commit = {commit}", "synchronous_commit = on", False))
    return found


def _off(settings: dict[str, str], name: str) -> bool:
    return settings.get(name) == "off"


def _made(shape: Shape) -> list[str]:
    creates = [s for s in _statements(shape) if s.startswith("create table")]
    return [*dict.fromkeys(s.split()[2].rpartition(".")[2] for s in creates)]


def _statements(shape: Shape) -> list[str]:
    script = "\n".join(script for _, script, _ in migrations(shape.schema))
    lines = [line.split("--")[0].rstrip() for line in script.splitlines()]
    return [s.strip() for s in "\n".join(lines).split(";") if s.strip()]
