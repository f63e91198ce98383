"""PostgreSQL's errors: which of them pass by themselves, and all of them in words that say what to do."""

from __future__ import annotations

import psycopg
from psycopg import errors
from psycopg_pool import PoolTimeout

from onefold.errors import OnefoldError, StoreDamaged, StoreError, StoreUnavailable
from onefold.storage.postgres.connection import WrongEncoding

# The transaction did not happen, and the same one may well happen when it is run again.
_PASSING = (errors.SerializationFailure, errors.DeadlockDetected, errors.UniqueViolation)
# The server goes down, comes up, or has its hands full: the connection is lost, or there is none yet.
_AWAY = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
    errors.TooManyConnections,
)


_HELD = "another transaction has held the session for {patience} s; {nothing}. Look for it in pg_stat_activity"
_Words = tuple[tuple[type[psycopg.Error], ...], type[OnefoldError], str]
_WORDS: tuple[_Words, ...] = (
    (
        (PoolTimeout,),
        StoreUnavailable,
        "all its connections were in use for {patience} s; {nothing}. Use fewer threads at once",
    ),
    ((WrongEncoding,), StoreError, "{said}"),
    (
        (errors.DiskFull,),
        StoreUnavailable,
        "the server's disk is full; {nothing}. Free some space there and try again",
    ),
    (
        (errors.ReadOnlySqlTransaction,),
        StoreUnavailable,
        (
            "the server is read-only, as a standby is; {nothing}. Connect to the primary: name all hosts in "
            "the address, and target_session_attrs=read-write"
        ),
    ),
    (
        (errors.LockNotAvailable,),
        StoreUnavailable,
        _HELD,
    ),
    (
        (errors.InsufficientPrivilege,),
        StoreError,
        "this user may not do that ({said}). Grant it create on the database, or own the schema",
    ),
    (
        (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName),
        StoreDamaged,
        "a part of it is missing ({said}). Run `onefold verify --fix`",
    ),
    (
        (errors.DataCorrupted, errors.IndexCorrupted),
        StoreDamaged,
        "the server found damage ({said}). Look at its disk, and restore a backup",
    ),
    (
        (errors.UniqueViolation,),
        StoreDamaged,
        "its rows disagree with its journal ({said}). Run `onefold verify --fix`",
    ),
    ((psycopg.DataError,), OnefoldError, "the server cannot store or look for this ({said}); {nothing}"),
)
_OTHERWISE: tuple[type[OnefoldError], str] = (StoreUnavailable, "{nothing} ({said})")


def is_transient(error: psycopg.Error) -> bool:
    """Whether running the transaction again may help, on the same connection or another one."""
    return isinstance(error, _PASSING) or is_disconnect(error)


def is_disconnect(error: psycopg.Error) -> bool:
    """Whether the connection is of no use any more."""
    if isinstance(error, _AWAY):
        return True
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None and not _never(error)


def is_outcome_unknown(error: psycopg.Error) -> bool:
    """Whether the other connections may be no better. Behind a lock that nobody releases there may be a server that
    was replaced, and waits for a standby that it lost: new connections find the one that writes now."""
    return is_disconnect(error) or isinstance(error, errors.LockNotAvailable)


def translated(error: psycopg.Error, shown: str, patience: float, *, reading: bool = False) -> OnefoldError:
    said = " ".join(str(error).split()) or type(error).__name__
    kind, remedy = next(((k, words) for types, k, words in _WORDS if isinstance(error, types)), _OTHERWISE)
    if isinstance(error, psycopg.OperationalError) and _never(error) and not isinstance(error, WrongEncoding):
        kind, remedy = StoreError, "the server does not let this in ({said}). Check the address"
    elif (kind, remedy) == _OTHERWISE and is_disconnect(error):
        remedy = "the server cannot be reached ({said}); {nothing}. Look whether it runs, then try again"
    nothing = "nothing was read" if reading else "nothing was written"
    return kind(f"store {shown}: {remedy.format(said=said, patience=f'{patience:g}', nothing=nothing)}")


def held_too_long(shown: str, patience: float) -> str:
    """The same of a session that was waited for in this process."""
    return f"store {shown}: {_HELD.format(patience=f'{patience:g}', nothing='nothing was written')}"


def _never(error: psycopg.OperationalError) -> bool:
    """Whether a connection was rejected for good. libpq tells so in words alone."""
    if isinstance(error, WrongEncoding):
        return True
    refused = ("does not exist", "authentication failed", "no password supplied", "no pg_hba.conf entry")
    return any(words in str(error) for words in refused) and "No such file" not in str(error)
