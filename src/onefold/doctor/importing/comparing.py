"""What is here already of a conversation, side by side with what is told of it."""

from __future__ import annotations

from onefold.doctor.importing.talks import Said
from onefold.errors import Moved
from onefold.journal import view
from onefold.journal.contract import Journal, segment
from onefold.journal.view import known
from onefold.model import ERASED, MESSAGE, SEGMENT_OPENED, Json, Record


class Here:
    """The messages of a session that is here, one after the other."""

    def __init__(self, journal: Journal, session: str, program: str, after: int, last: int) -> None:
        self.session = session
        self.foreign = 0
        """The first record that did not come from there; 0 if all did."""
        self._program = program
        self._records = journal.read(session, after + 1, last + 1)
        self._hidden = journal.backend.read(lambda tx: segment(tx, session, known(tx, session).head)).hidden
        self._next: Record | None = None
        self._advance()

    def _advance(self) -> None:
        """On to the next message that came from there, or to a place where somebody went back."""
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
        """Whether somebody goes back here; then that is passed."""
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
            elif view.is_hidden(self._hidden, self._next.number):
                passed = True
            else:
                return False
            self._advance()
        return self._next is None

    def next_key(self) -> str | None:
        return self._next.key if self._next is not None else None

    def take(self, step: Said, extras: str) -> None:
        """Passes one message, which has to be the same."""
        if self.next_key() != step.key:
            raise changed(self.session, f"after what both have comes {step.key} there, and {self.next_key()} here")
        for body in step.bodies:
            found = self._next
            if found is None or found.key != step.key:
                raise changed(self.session, f"message {step.key} has more in it there")
            if found.kind != ERASED and _told(found.body, extras) != _told(body, extras):
                raise changed(self.session, f"message {step.key} says something else there")
            self._advance()
        if self.next_key() == step.key:
            raise changed(self.session, f"message {step.key} has less in it there")


def changed(session: str, how: str) -> Moved:
    return Moved(
        f"session {session!r} was taken in before, and is not the same any more: {how}. Nothing of it was changed; "
        "import it into another store"
    )


def _went_back(record: Record) -> bool:
    return record.kind == SEGMENT_OPENED and record.body.get("source") == "restored"


def _told(body: Json, extras: str) -> Json:
    return {name: value for name, value in body.items() if name != extras} if isinstance(body, dict) else body
