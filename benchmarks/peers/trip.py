"""Ends this process with SIGKILL before its n-th write: no handler runs, nothing is flushed.

A write is a statement that changes rows, or the commit of such statements. They are counted where SQLite runs them, in
whatever thread, so a framework need not be changed for it.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CHANGES = ("INSERT", "UPDATE", "DELETE", "REPLACE")
_ENDS = ("COMMIT", "END")


class Trip:
    """Without a place to end it only counts. What it saw, up to the write that is not done, is in a file."""

    def __init__(self, at: int | None, seen: Path) -> None:
        self._at, self._seen = at, seen
        self._lock = threading.Lock()
        self._count = 0

    def watcher(self) -> Callable[[str], None]:
        """For one connection: hears every statement before it is run."""
        dirty = False

        def hear(sql: str) -> None:
            nonlocal dirty
            word = sql.split(None, 1)[0].upper().rstrip(";") if sql.strip() else ""
            if word in _CHANGES:
                dirty = True
            elif word not in _ENDS or not dirty:
                return
            else:
                dirty = False
            self._write(_short(sql))

        return hear

    def _write(self, name: str) -> None:
        with self._lock:
            self._count += 1
            with self._seen.open("a") as seen:
                seen.write(f"{name}\n")
            if self._count == self._at:
                die()

    def watch(self) -> None:
        """Every connection that is made from now on, by Python's own module or by apsw."""
        real: Callable[..., sqlite3.Connection] = sqlite3.connect

        def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection = real(*args, **kwargs)
            connection.set_trace_callback(self.watcher())
            return connection

        sqlite3.connect = connect  # type: ignore[assignment]
        sqlite3.dbapi2.connect = connect  # type: ignore[assignment]
        if importlib.util.find_spec("apsw") is not None:
            self._watch_apsw()

    def _watch_apsw(self) -> None:
        import apsw

        def watch(connection: apsw.Connection) -> None:
            hear = self.watcher()

            def traced(_cursor: object, sql: str, _bindings: object) -> bool:
                hear(sql)
                return True

            connection.exec_trace = traced

        apsw.connection_hooks.append(watch)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def _short(sql: str) -> str:
    """`insert messages` of a long statement."""
    words = sql.replace("(", " ").split()
    upper = [word.upper() for word in words]
    place = {"INSERT": "INTO", "DELETE": "FROM", "REPLACE": "INTO"}.get(upper[0])
    if place in upper:
        return f"{upper[0].lower()} {words[upper.index(place) + 1]}"
    return " ".join(words[:2]).lower() if upper[0] == "UPDATE" else upper[0].lower().rstrip(";")
