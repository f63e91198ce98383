"""What two views of a session differ in."""

from __future__ import annotations

from onefold.journal import lineage
from onefold.journal.journal import Journal
from onefold.model import NOTE, Ranges, Record, Segment
from onefold.storage.base import Transaction


def changed_between(journal: Journal, session: str, before: Segment, after: Segment) -> list[Record]:
    """The messages and notes that one view hides and the other shows, whichever way it went."""

    def only(here: Ranges, there: Ranges) -> list[tuple[int, int]]:
        return [part for a, b in here for part in lineage.visible(there, a, b + 1)]

    stretches = sorted((*only(after.hidden, before.hidden), *only(before.hidden, after.hidden)))

    def read_changed(tx: Transaction) -> list[Record]:
        found = [r for a, b in stretches for r in lineage.messages(tx, session, a, b)]
        parts = [part for a, b in stretches for part in lineage.record_ranges(tx, session, a, b)]
        found += [r for owner, a, b in parts for r in tx.marks(owner, a, b) if r.kind == NOTE]
        return sorted(found, key=lambda r: r.number)

    return journal.backend.read(read_changed)
