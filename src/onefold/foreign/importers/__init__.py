"""Imports the sessions of other programs: lineage, compactions and messages, each message once.

One module for each program reads what its store holds (`conversations`), and `importer` writes it. The other store
is only ever read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import apsw

from onefold.errors import StoreError
from onefold.foreign import opencode as opencode_store
from onefold.foreign.detection import ForeignStore
from onefold.foreign.importers import hermes, opencode, openviking
from onefold.foreign.importers.conversation import Conversation
from onefold.foreign.importers.importer import Importer, ImportResult
from onefold.foreign.readonly import sqlite_store
from onefold.journal.journal import Journal

__all__ = ["ForeignConversations", "ImportResult", "look_into"]


@dataclass(frozen=True)
class ForeignConversations:
    """The conversations in a store, while it is open."""

    program: str
    conversations: tuple[Conversation, ...]

    @property
    def size(self) -> int:
        """How many messages there are, about."""
        return sum(conversation.size for conversation in self.conversations)

    def only(self, ids: Sequence[str]) -> ForeignConversations:
        """Those that somebody named by any id they have there. Raises `KeyError` for one that nobody has."""
        if not ids:
            return self
        wanted = {*ids}
        if unknown := wanted - {
            id for conversation in self.conversations for id in (conversation.id, *conversation.others)
        }:
            raise KeyError(min(unknown))
        return ForeignConversations(self.program, tuple(t for t in self.conversations if wanted & {t.id, *t.others}))

    def import_all(self, journal: Journal, *, dry_run: bool, seen: Callable[[int], None]) -> Iterator[ImportResult]:
        """Takes them in, as far as they are not here yet; `dry_run` only looks."""
        importer = Importer(journal, self.program, extras=self.program, dry_run=dry_run, seen=seen)
        return (importer.import_conversation(conversation) for conversation in self.conversations)


@contextlib.contextmanager
def look_into(store: ForeignStore, journal: Journal) -> Iterator[ForeignConversations]:
    """Opens the store of another program, as of one moment."""
    with contextlib.ExitStack() as stack:
        try:
            found = _found(store, journal, stack)
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{store.path} cannot be read: {error}; run `onefold doctor` on it. Nothing was imported"
            ) from error
        yield found


def _found(store: ForeignStore, journal: Journal, stack: contextlib.ExitStack) -> ForeignConversations:
    if store.folder is not None:
        return ForeignConversations(openviking.program, tuple(openviking.conversations(store.path)))
    connection = stack.enter_context(sqlite_store(store.path)).connection
    if store.database is opencode_store:
        return ForeignConversations(opencode.program, tuple(opencode.conversations(connection)))
    return ForeignConversations(hermes.program, tuple(hermes.conversations(connection, partial(_here, journal))))


def _here(journal: Journal, id: str) -> str | None:
    """The session that an id of Hermes stands for here. Where another session has the id, it is one made from it."""
    for name in (f"{hermes.program}-{id}", id):
        session = journal.backend.read(lambda tx, n=name: n if tx.session(n) else tx.owner(n))  # type: ignore[misc]
        if session is not None:
            return str(session)
    return None
