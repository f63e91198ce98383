"""The SQLite that apsw includes, and the queries it runs: one place for both."""

from __future__ import annotations

from functools import cache

import apsw

from onefold.errors import StoreError
from onefold.storage import sql_files

_BROKEN_FROM = (3, 7, 0)
_BROKEN_TO = (3, 51, 2)


def check_library(version: str | None = None) -> None:
    """Rejects a SQLite whose WAL-reset bug can corrupt a database that several processes write."""
    version = version or apsw.sqlite_lib_version()
    parts = tuple(int(p) for p in version.split("."))
    if _BROKEN_FROM <= parts <= _BROKEN_TO:
        raise StoreError(
            f"SQLite {version} can corrupt a database that several processes write (its WAL-reset bug, 3.7.0 to "
            "3.51.2). Install a current apsw from its wheel, which includes its own SQLite: pip install -U apsw"
        )


@cache
def queries() -> dict[str, str]:
    """The statements of `queries.sql` by name."""
    return sql_files.statements(__package__, "queries.sql")


@cache
def migrations() -> tuple[tuple[int, str, bool], ...]:
    """(number, script, whether an older program can still use the store after it), in order."""
    return tuple(sql_files.migrations(__package__))
