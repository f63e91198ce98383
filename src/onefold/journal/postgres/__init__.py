"""Sessions in a PostgreSQL database."""

from onefold.journal.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend"]
