"""The SQLite that apsw brings, and the queries it runs: one place for both."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

import apsw

from onefold.errors import StoreError

_BROKEN_FROM = (3, 7, 0)
_BROKEN_TO = (3, 51, 2)


def check_library(version: str | None = None) -> None:
    """Refuses a SQLite whose WAL-reset bug can corrupt a database that several processes write."""
    version = version or apsw.sqlite_lib_version()
    parts = tuple(int(p) for p in version.split("."))
    if _BROKEN_FROM <= parts <= _BROKEN_TO:
        raise StoreError(
            f"SQLite {version} can corrupt a database that several processes write (its WAL-reset bug, 3.7.0 to "
            "3.51.2). Install a current apsw from its wheel, which brings its own SQLite: pip install -U apsw"
        )


@cache
def queries() -> dict[str, str]:
    """The statements of `queries.sql` by name."""
    return named(resources.files(__package__).joinpath("queries.sql").read_text())


def named(text: str) -> dict[str, str]:
    """Statements by name, each under a comment with its name and a sentence."""
    found = re.findall(r"^-- (\w+): [^\n]*\n(.*?;)\n", text + "\n", flags=re.MULTILINE | re.DOTALL)
    return {name: statement.rstrip(";") for name, statement in found}


@cache
def migrations() -> tuple[tuple[int, str, bool], ...]:
    """(number, script, whether an older program can still use the store after it), in order."""
    folder = resources.files(__package__).joinpath("migrations")
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".sql"))
    scripts = [(int(name[:4]), folder.joinpath(name).read_text()) for name in files]
    return tuple((number, text, "-- undo: yes" in text) for number, text in scripts)
