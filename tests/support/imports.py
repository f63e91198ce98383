"""What the tests of `onefold import` have in common: importing a store, and reading the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onefold
from onefold import foreign
from onefold.foreign.importers import ImportResult, look_into
from onefold.messages.context_text import summary_block
from onefold.model import Json

PROGRAMS = ("hermes", "opencode", "openviking")


def import_from(
    path: Path, store: onefold.Store, only: Sequence[str] = (), *, dry_run: bool = False
) -> list[ImportResult]:
    """Imports a store, and sees to it that the journal is as it should be."""
    with look_into(foreign.store_at(path), store.journal) as found:
        results = [*found.only(only).import_all(store.journal, dry_run=dry_run, seen=lambda done: None)]
    assert store.verify().healthy
    return results


def plain(message: Json) -> Json:
    """A message without what no format knows."""
    return {name: value for name, value in message.items() if name not in PROGRAMS}


def context(store: onefold.Store, any_id: str) -> list[Json]:
    return [plain(m) for m in store.session(any_id, create=False).context().messages]


def summary(text: str) -> Json:
    return {"role": "user", "content": summary_block(text)}


def said(store: onefold.Store, any_id: str) -> list[Json]:
    """Every message of a session, its own ones alone."""
    session = store.session(any_id, create=False)
    return [plain(r.body) for r in session.read(session.state.forked_at + 1) if r.kind == "message"]


def records(store: onefold.Store) -> dict[str, list[Json]]:
    """All that a store holds."""
    return {
        s.id: [(r.number, r.id, r.kind, r.at, r.body) for r in store.session(s.id).read()] for s in store.sessions()
    }


def one(results: list[ImportResult]) -> ImportResult:
    (result,) = results
    return result
