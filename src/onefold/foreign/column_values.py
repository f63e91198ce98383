"""Statements for the columns that another program's store really has, and what stands in such columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from typing import ParamSpec

import orjson

from onefold.errors import StoreError
from onefold.foreign.findings import ForeignFinding
from onefold.model import Json
from onefold.storage import sql_files

P = ParamSpec("P")


@cache
def statements(file: str) -> dict[str, str]:
    """The statements of a file by name."""
    return sql_files.statements(__package__, file)


def fitted(statement: str, columns: frozenset[str], absent: Mapping[str, str]) -> str:
    """A statement for a table as it is: `{active}` is the column, or what stands for it where there is none."""

    def column(match: re.Match[str]) -> str:
        name = match.group(1)
        return name if name in columns else absent.get(name, "null")

    return re.sub(r"\{(\w+)\}", column, statement)


def readable(examine: Callable[P, Iterator[ForeignFinding]]) -> Callable[P, Iterator[ForeignFinding]]:
    """Says in words that a store holds a name that cannot be one. What SQLite itself cannot read, the frame tells."""

    @wraps(examine)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> Iterator[ForeignFinding]:
        try:
            yield from examine(*args, **kwargs)
        except UnicodeDecodeError:
            raise StoreError("the store has a name in it that is not text; restore a backup of it") from None

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
