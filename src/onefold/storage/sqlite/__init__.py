"""Sessions in one SQLite file."""

from onefold.storage.sqlite.backend import SqliteBackend

__all__ = ["SqliteBackend"]
