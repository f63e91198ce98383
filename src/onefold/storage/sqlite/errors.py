"""SQLite's errors in words that say what to do."""

from __future__ import annotations

import apsw

from onefold.errors import StoreDamaged, StoreError, StoreUnavailable


def in_words(address: str, error: apsw.Error, patience: int, *, reading: bool = False) -> StoreError:
    """What an error means for a store. `patience`: for how many milliseconds somebody waited for the write lock."""
    kind: type[StoreError] = StoreUnavailable
    nothing = "nothing was read" if reading else "nothing was written"
    remedy = f"{nothing} ({error})"
    match error:
        case apsw.FullError():
            remedy = f"the disk is full; {nothing}. Free some space and try again"
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            remedy = f"the file or its folder is read-only; {nothing}. Make both writable"
        case apsw.CantOpenError():
            remedy = f"the file cannot be opened ({error}). Check that its folder exists and is writable"
        case apsw.BusyError() | apsw.LockedError():
            held = f"another process has held the write lock for {patience // 1000} s"
            remedy = f"{held}; {nothing}. Look for one that is stopped"
        case apsw.NotADBError():
            kind, remedy = StoreDamaged, "it is not a database. Restore it from a backup"
        case apsw.CorruptError():
            kind, remedy = StoreDamaged, f"it is damaged ({error}). Run `onefold verify`, or restore a backup"
        case apsw.IOError():
            remedy = f"the disk failed ({error}); {nothing}. Check the disk, then try again"
    return kind(f"store {address}: {remedy}")
