"""What SQLite connections say about themselves."""

from __future__ import annotations

import sqlite3

_LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def pragmas(connection: sqlite3.Connection) -> str:
    """How durable a connection is, by its own word."""
    mode = connection.execute("pragma journal_mode").fetchone()[0]
    level = connection.execute("pragma synchronous").fetchone()[0]
    return f"{'WAL' if mode == 'wal' else f'{mode} journal'}, synchronous={_LEVELS[level]}"
