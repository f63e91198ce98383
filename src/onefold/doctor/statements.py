"""The named statements of a .sql file, fitted to the columns that a store really has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from importlib import resources
from typing import ParamSpec

import orjson

from onefold.doctor.findings import Finding
from onefold.errors import StoreError
from onefold.model import Json

P = ParamSpec("P")


@cache
def statements(file: str) -> dict[str, str]:
    """The statements of a file by name."""
    text = resources.files(__package__).joinpath(file).read_text()
    found = re.findall(r"^-- (\w+): [^\n]*\n(.*?;)\n", text + "\n", flags=re.MULTILINE | re.DOTALL)
    return {name: statement.rstrip(";") for name, statement in found}


def fitted(statement: str, columns: frozenset[str], absent: Mapping[str, str]) -> str:
    """A statement for a table as it is: `{active}` is the column, or what stands for it where there is none."""

    def column(match: re.Match[str]) -> str:
        name = match.group(1)
        return name if name in columns else absent.get(name, "null")

    return re.sub(r"\{(\w+)\}", column, statement)


def readable(examine: Callable[P, Iterator[Finding]]) -> Callable[P, Iterator[Finding]]:
    """Says in words that a store holds a name that cannot be one. What SQLite itself cannot read, the frame tells."""

    @wraps(examine)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> Iterator[Finding]:
        try:
            yield from examine(*args, **kwargs)
        except UnicodeDecodeError:
            raise StoreError("the store has a name in it that is no text; restore a backup of it") from None

    return guarded


def text(value: object) -> str | None:
    """A value that should be text, if it is."""
    return value if isinstance(value, str) else None


def number(value: object) -> float | None:
    """A value that should be a number, if it is."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def parsed(value: object) -> Json:
    """JSON as it stands in a column; None if it is none."""
    if not isinstance(value, bytes | str):
        return None
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


def parsed_object(value: object) -> dict[str, Json]:
    """A JSON object as it stands in a column; an empty one if it is none."""
    found = parsed(value)
    return found if isinstance(found, dict) else {}
