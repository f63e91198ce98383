"""A dry run: what an operation would do, by the same rules, with every write rolled back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from onefold.storage.base import Backend, Transaction
from onefold.store import Store

T = TypeVar("T")


def dry_run_of(store: Store) -> Store:
    """The same store, in which nothing that is written stays. Each operation runs on the store as it is."""
    return Store(cast("Backend", _RolledBack(store.journal.backend)))


class _Enough(Exception):
    """Ends a transaction, so that it is rolled back."""


class _RolledBack:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def write(self, session: str, work: Callable[[Transaction], T], *, size: int = 0) -> T:
        answers: list[T] = []

        def tried(tx: Transaction) -> T:
            answers.append(work(tx))
            raise _Enough

        try:
            return self._backend.write(session, tried, size=size)
        except _Enough:
            return answers[-1]

    address = ""  # so that nothing is found next to it

    def purge(self) -> bool:
        return True
