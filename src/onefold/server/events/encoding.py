"""The events that followers get, each encoded once for all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from onefold.messages import encode
from onefold.model import Json

HEARTBEAT = b": still here\n\n"
RETRY = b"retry: 1000\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. Its place is where it stands in its stream: a record's number, or a count over all sessions."""

    place: int
    id: str
    name: str
    data: str
    """JSON, on one line."""

    def sse(self) -> bytes:
        return f"id: {self.id}\nevent: {self.name}\ndata: {self.data}\n\n".encode()

    def text(self) -> str:
        return f'{{"event":"{self.name}","id":{encode(self.id)},"data":{self.data}}}'


def notice(name: str, id: str, data: Json, place: int = 0) -> Event:
    return Event(place, id, name, encode(data))


class EventBatch:
    """Events in a row, for all who follow: whoever is first to write it in a form, makes that form."""

    def __init__(self, notices: Sequence[Event]) -> None:
        self.notices = notices
        self.size = sum(len(n.data) for n in notices)

    @property
    def first(self) -> int:
        return self.notices[0].place

    @property
    def last(self) -> int:
        return self.notices[-1].place

    @cached_property
    def sse(self) -> bytes:
        return b"".join(n.sse() for n in self.notices)

    @cached_property
    def texts(self) -> list[str]:
        return [n.text() for n in self.notices]

    def after(self, place: int) -> EventBatch | None:
        """What of it comes after a place."""
        if self.first > place:
            return self
        rest = [n for n in self.notices if n.place > place]
        return EventBatch(rest) if rest else None


class RecentEvents:
    """The newest events of a stream, within bounds: for those who were away for a moment only."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._chunks: deque[EventBatch] = deque()
        self._count = self._size = 0

    def add(self, chunk: EventBatch) -> None:
        self._chunks.append(chunk)
        self._count += len(chunk.notices)
        self._size += chunk.size
        while self._chunks and (self._count > self._most or self._size > self._most_bytes):
            gone = self._chunks.popleft()
            self._count -= len(gone.notices)
            self._size -= gone.size

    def clear(self) -> None:
        self._chunks.clear()
        self._count = self._size = 0

    def after(self, place: int) -> EventBatch | None:
        """The chunk in which the place after this one is, if it is here still."""
        if not self._chunks or self._chunks[0].first > place + 1:
            return None
        return next((chunk for chunk in self._chunks if chunk.last > place), None)
