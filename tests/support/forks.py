"""Forks of sessions."""

from __future__ import annotations

import copy
from typing import Any

from onefold import Record
from onefold.journal.journal import Journal
from onefold.storage.base import Transaction


def own_records(journal: Journal, session: str) -> list[Record]:
    """What a session has written itself, read past the view that shows a fork its parent's."""
    return journal.backend.read(lambda tx: tx.records(session, 1, 1 << 62, 10_000))


def all_of(journal: Journal, session: str) -> Any:
    """Everything a store has of a session: its own records and what is derived from them."""

    def work(tx: Transaction) -> Any:
        leases = tx.leases.get(session), tx.turn_leases.get(session)
        return own_records(journal, session), copy.deepcopy(tx.derived(session)), leases

    return journal.backend.read(work)
