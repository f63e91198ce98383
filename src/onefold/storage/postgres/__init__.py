"""Sessions in a PostgreSQL database."""

from onefold.storage.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend"]
