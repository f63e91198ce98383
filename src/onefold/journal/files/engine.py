"""The queries that an index is asked on top of those of every SQLite store."""

from __future__ import annotations

from functools import cache
from importlib import resources

from onefold.journal.sqlite.engine import named, queries


@cache
def index_queries() -> dict[str, str]:
    return queries() | named(resources.files(__package__).joinpath("queries.sql").read_text())
