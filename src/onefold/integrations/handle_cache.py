"""Handles of sessions that were made, one for each: a compactor remembers by its handle what a session was given, and a
new one looks the session over."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")

_MOST = 1_000


class HandleCache(Generic[T]):
    """The newest of them. One that is forgotten costs a correction of estimates, which is learnt again."""

    def __init__(self) -> None:
        self._by_id: dict[str, T] = {}

    def get(self, id: str) -> T | None:
        return self._by_id.get(id)

    def keep(self, id: str, handle: T) -> T:
        """The handle to use from now on: the first one that was made."""
        kept = self._by_id.setdefault(id, handle)
        if len(self._by_id) > _MOST:
            self._by_id.pop(next(iter(self._by_id)), None)
        return kept
