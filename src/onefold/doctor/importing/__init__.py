"""Brings the sessions of other programs into onefold: lineage, compactions and messages, each message once.

One module for each program tells what its store holds (`talks`), and `writing` writes it down. The other store is only
ever read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import apsw

from onefold.doctor import opencode as opencode_store
from onefold.doctor.importing import hermes, opencode, openviking
from onefold.doctor.importing.talks import Talk
from onefold.doctor.importing.writing import Brought, Importer
from onefold.doctor.looking import sqlite_store
from onefold.doctor.recognise import Store
from onefold.errors import StoreError
from onefold.journal.contract import Journal

__all__ = ["Brought", "Found", "look_into"]


@dataclass(frozen=True)
class Found:
    """The conversations in a store, while it is open."""

    program: str
    talks: tuple[Talk, ...]

    @property
    def size(self) -> int:
        """How many messages there are, about."""
        return sum(talk.size for talk in self.talks)

    def only(self, ids: Sequence[str]) -> Found:
        """Those that somebody named by any id they have there. Raises `KeyError` for one that nobody has."""
        if not ids:
            return self
        wanted = {*ids}
        if unknown := wanted - {id for talk in self.talks for id in (talk.id, *talk.others)}:
            raise KeyError(min(unknown))
        return Found(self.program, tuple(t for t in self.talks if wanted & {t.id, *t.others}))

    def bring_in(self, journal: Journal, *, dry_run: bool, seen: Callable[[int], None]) -> Iterator[Brought]:
        """Takes them in, as far as they are not here yet; `dry_run` only looks."""
        importer = Importer(journal, self.program, extras=self.program, dry_run=dry_run, seen=seen)
        return (importer.bring(talk) for talk in self.talks)


@contextlib.contextmanager
def look_into(store: Store, journal: Journal) -> Iterator[Found]:
    """Opens the store of another program, as of one moment."""
    with contextlib.ExitStack() as stack:
        try:
            found = _found(store, journal, stack)
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{store.path} cannot be read: {error}; run `onefold doctor` on it. Nothing was taken in"
            ) from error
        yield found


def _found(store: Store, journal: Journal, stack: contextlib.ExitStack) -> Found:
    if store.folder is not None:
        return Found(openviking.program, tuple(openviking.talks(store.path)))
    connection = stack.enter_context(sqlite_store(store.path)).connection
    if store.database is opencode_store:
        return Found(opencode.program, tuple(opencode.talks(connection)))
    return Found(hermes.program, tuple(hermes.talks(connection, partial(_here, journal))))


def _here(journal: Journal, id: str) -> str | None:
    """The session that an id of Hermes stands for here. Where another session has the id, it is one made from it."""
    for name in (f"{hermes.program}-{id}", id):
        session = journal.backend.read(lambda tx, n=name: n if tx.session(n) else tx.owner(n))  # type: ignore[misc]
        if session is not None:
            return str(session)
    return None
