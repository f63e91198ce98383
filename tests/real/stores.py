"""What stands in the real programs' databases, asked for by tests."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

import apsw


@dataclass(frozen=True)
class Compactions:
    """How often OpenCode was asked to compact a session, and how often it did."""

    markers: int
    summaries: int


def compactions(store: Path, session: str) -> Compactions:
    """What OpenCode's database shows of a session's compactions."""
    with contextlib.closing(apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        parts = connection.execute("select data from part where session_id = ?", (session,)).fetchall()
        messages = connection.execute("select data from message where session_id = ?", (session,)).fetchall()
    return Compactions(
        sum(json.loads(str(data)).get("type") == "compaction" for (data,) in parts),
        sum(json.loads(str(data)).get("summary") is True for (data,) in messages),
    )


def only_session(store: Path) -> str:
    """OpenCode's own id of the one session it has."""
    with contextlib.closing(apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        ((id,),) = connection.execute("select id from session").fetchall()
    return str(id)


def count(store: Path, table: str) -> int:
    """The rows of a table, by its name."""
    queries = {"message": "select 1 from message", "messages": "select 1 from messages"}
    with contextlib.closing(apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return len(connection.execute(queries[table]).fetchall())
