"""Sessions in one SQLite file."""

from onefold.journal.sqlite.backend import SqliteBackend

__all__ = ["SqliteBackend"]
