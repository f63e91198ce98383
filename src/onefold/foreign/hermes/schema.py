"""The tables and columns that a Hermes store really has, and its messages one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import apsw

from onefold.foreign.column_values import fitted, statements
from onefold.foreign.hermes.message_checks import MessageRow, row
from onefold.model import Json

_ABSENT = {"active": "1", "compacted": "0", "scope": "''"}


@dataclass(frozen=True)
class Schema:
    """A store's tables and columns as they are."""

    connection: apsw.Connection
    tables: Mapping[str, frozenset[str]]

    def has(self, table: str, *columns: str) -> bool:
        return table in self.tables and {*columns} <= self.tables[table]

    @cached_property
    def _fitted(self) -> dict[tuple[str, str], str]:
        return {}

    def ask(self, query: str, *bindings: Json, table: str = "messages") -> apsw.Cursor:
        if (query, table) not in self._fitted:
            columns = self.tables.get(table, frozenset())
            self._fitted[query, table] = fitted(statements("hermes/queries.sql")[query], columns, _ABSENT)
        return self.connection.execute(self._fitted[query, table], bindings)

    def one(self, query: str, *bindings: Json, table: str = "messages") -> Json:
        found = self.ask(query, *bindings, table=table).fetchone()
        return None if found is None else found[0]

    @cached_property
    def archives(self) -> bool:
        """Whether messages can leave the live set and stay in the store."""
        return self.has("messages", "active", "compacted")


def rows_of(shape: Schema, numbers: Iterable[int]) -> Iterator[MessageRow]:
    for id in numbers:
        values = shape.ask("message", id).fetchone()
        if values is not None:
            yield row(id, values)


def numbers_of(shape: Schema, session: str) -> list[int]:
    return sorted(found for (found,) in shape.ask("ids_of", session) if isinstance(found, int))
