"""Compares the imported part of a conversation with the other store."""

from __future__ import annotations

from onefold.errors import StaleHandle
from onefold.foreign.importers.conversation import MessageStep
from onefold.journal import lineage
from onefold.journal.journal import Journal, segment
from onefold.journal.lineage import get_session
from onefold.model import ERASED, MESSAGE, SEGMENT_OPENED, Json, Record


class ExistingMessages:
    """The messages of a session here, one after the other."""

    def __init__(self, journal: Journal, session: str, program: str, after: int, last: int) -> None:
        self.session = session
        self.foreign = 0
        """The first record that was not imported from there; 0 if all were."""
        self._program = program
        self._records = journal.read(session, after + 1, last + 1)
        self._hidden = journal.backend.read(lambda tx: segment(tx, session, get_session(tx, session).head)).hidden
        self._next: Record | None = None
        self._advance()

    def _advance(self) -> None:
        """Advances to the next imported message, or to a rewind."""
        for record in self._records:
            if self._came_from_there(record) or _went_back(record):
                self._next = record
                return
            if record.kind == MESSAGE:
                self.foreign = self.foreign or record.number
        self._next = None

    def _came_from_there(self, record: Record) -> bool:
        said = record.kind == MESSAGE or (record.kind == ERASED and record.body.get("was") == MESSAGE)
        return said and record.key is not None and record.key.startswith(f"{self._program}:")

    def went_back(self) -> bool:
        """Whether there is a rewind here; then it is passed."""
        if self._next is None or not _went_back(self._next):
            return False
        self._advance()
        return True

    def at_the_end(self, key: str | None = None) -> bool:
        """Whether nothing is left before, or under, this key. What somebody took back may be gone there."""
        passed = False
        while self._next is not None and (key is None or self._next.key != key):
            if _went_back(self._next):
                self.foreign = self.foreign or (0 if passed else self._next.number)
            elif lineage.is_hidden(self._hidden, self._next.number):
                passed = True
            else:
                return False
            self._advance()
        return self._next is None

    def next_key(self) -> str | None:
        return self._next.key if self._next is not None else None

    def take(self, step: MessageStep, extras: str) -> None:
        """Passes one message, which has to be the same."""
        if self.next_key() != step.key:
            raise changed(self.session, f"after what both have comes {step.key} there, and {self.next_key()} here")
        for body in step.bodies:
            found = self._next
            if found is None or found.key != step.key:
                raise changed(self.session, f"message {step.key} has more in it there")
            if found.kind != ERASED and _told(found.body, extras) != _told(body, extras):
                raise changed(self.session, f"message {step.key} has other content there")
            self._advance()
        if self.next_key() == step.key:
            raise changed(self.session, f"message {step.key} has less in it there")


def changed(session: str, how: str) -> StaleHandle:
    return StaleHandle(
        f"session {session!r} was imported before, and has changed since: {how}. Nothing of it was changed; "
        "import it into another store"
    )


def _went_back(record: Record) -> bool:
    return record.kind == SEGMENT_OPENED and record.body.get("source") == "restored"


def _told(body: Json, extras: str) -> Json:
    return {name: value for name, value in body.items() if name != extras} if isinstance(body, dict) else body
