"""The queries that an index is asked on top of those of every SQLite store."""

from __future__ import annotations

from functools import cache

from onefold.storage import sql_files
from onefold.storage.sqlite.queries import queries


@cache
def index_queries() -> dict[str, str]:
    return queries() | sql_files.statements(__package__, "queries.sql")
