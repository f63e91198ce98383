"""The statements and scripts of the PostgreSQL store, for the schema that it lives in."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from onefold.journal.postgres.address import SCHEMA

_WRITTEN = re.compile(rf"\b{SCHEMA}\.")
"""In the files every table is written with the usual schema, so that nothing depends on a search path."""


@cache
def queries(schema: str) -> dict[str, bytes]:
    """The statements of `queries.sql` by name."""
    text = _WRITTEN.sub(f'"{schema}".', resources.files(__package__).joinpath("queries.sql").read_text())
    found = re.findall(r"^-- (\w+): [^\n]*\n(.*?;)\n", text + "\n", flags=re.MULTILINE | re.DOTALL)
    return {name: statement.rstrip(";").encode() for name, statement in found}


@cache
def migrations(schema: str) -> tuple[tuple[int, str, bool], ...]:
    """(number, script, whether an older program can still use the store after it), in order."""
    folder = resources.files(__package__).joinpath("migrations")
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".sql"))
    scripts = [(int(name[:4]), folder.joinpath(name).read_text()) for name in files]
    return tuple((n, _WRITTEN.sub(f'"{schema}".', text), "-- undo: yes" in text) for n, text in scripts)
