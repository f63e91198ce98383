"""The statements and scripts of the PostgreSQL store, for the schema that it lives in."""

from __future__ import annotations

import re
from functools import cache

from onefold.storage import sql_files
from onefold.storage.postgres.dsn import SCHEMA

_WRITTEN = re.compile(rf"\b{SCHEMA}\.")
"""In the files every table is written with the usual schema, so that nothing depends on a search path."""


@cache
def queries(schema: str) -> dict[str, bytes]:
    """The statements of `queries.sql` by name."""
    found = sql_files.named(_in(schema, sql_files.read(__package__, "queries.sql")))
    return {name: statement.encode() for name, statement in found.items()}


@cache
def migrations(schema: str) -> tuple[tuple[int, str, bool], ...]:
    """(number, script, whether an older program can still use the store after it), in order."""
    return tuple((number, _in(schema, text), undo) for number, text, undo in sql_files.migrations(__package__))


def _in(schema: str, text: str) -> str:
    return _WRITTEN.sub(f'"{schema}".', text)
