"""What tests of erasing and deleting say."""

from __future__ import annotations

from collections.abc import Callable

from onefold import Record, Session, Store
from onefold.compaction.summarizer import SummaryInput
from onefold.journal.journal import Journal
from onefold.model import Segment
from tests.conftest import running

SECRET = "zebra-4711"
OTHER = {"role": "user", "content": "quite another thing"}


def secret(role: str = "user") -> dict[str, str]:
    return {"role": role, "content": f"my password is {SECRET}"}


def tell(session: Session, role: str = "user", *, key: str | None = None) -> int:
    """Says the secret; the number of the record that holds it."""
    return session.append(secret(role), key=key).numbers[0]


def compacted(journal: Journal, text: str, *, cut: int | None = None, session: str = "s") -> Segment:
    return journal.commit(running(journal, session), text, cut)


def noting(seen: list[SummaryInput], text: str) -> Callable[[SummaryInput], str]:
    """A summarizer that keeps what it was given to read."""

    def summarize(material: SummaryInput) -> str:
        seen.append(material)
        return text

    return summarize


def told(store: Store) -> str:
    """Everything that the sessions of a store say, of themselves and of their past, in whatever way they are asked."""
    parts: list[object] = []
    for state in store.sessions():
        session = store.session(state.id)
        parts += [tuple(record) for record in session.read(1)]
        parts += [session.context(s.number).messages for s in session.segments()]
        parts += [session.context().messages, session.notes(), session.compactions()]
    return repr(parts)


def at(session: Session, number: int) -> Record:
    (found,) = session.read(number, number + 1)
    return found


def everything(store: Store) -> dict[str, list[Record]]:
    """Every record of every session, for comparing."""
    return {s.id: list(store.session(s.id).read(1)) for s in sorted(store.sessions(), key=lambda s: s.id)}
