"""The on-disk form of frames: several to a page, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from onefold.errors import StoreDamaged

PAGE_BYTES = 1 << 20
"""A page ends with the frame that fills it; a larger frame has one of its own."""
SMALL = 256
"""Pages below this size are kept as they are."""
LARGE = 4 << 20
"""So many bytes in one commit, or one append: a large one delays nobody who came before it."""
LEVEL = 3

_PLAIN, _ZLIB = 0, 1


class NewFrame(NamedTuple):
    """A frame to be kept, or a line of stderr, or a note. A tuple, because there are very many."""

    kind: str
    """in and out: from the agent and to it; old: told again by the agent; err: its stderr; note: the room's own."""
    text: str
    record: int
    """The journal's last number at that time."""


class LoggedFrame(NamedTuple):
    """A frame that was kept."""

    number: int
    kind: str
    text: str
    record: int
    at: float


def pages(rows: Sequence[NewFrame]) -> Iterator[tuple[int, bytes]]:
    """How many frames, and they themselves, page by page."""
    some: list[tuple[str, int, bytes]] = []
    size = 0
    for kind, text, record in rows:
        data = text.encode(errors="surrogatepass")
        if some and size + len(data) > PAGE_BYTES:
            yield len(some), _page(some)
            some, size = [], 0
        some.append((kind, record, data))
        size += len(data)
    if some:
        yield len(some), _page(some)


def page(rows: Sequence[NewFrame]) -> bytes:
    """All of them in one, however large."""
    return _page([(kind, record, text.encode(errors="surrogatepass")) for kind, text, record in rows])


def _page(some: Sequence[tuple[str, int, bytes]]) -> bytes:
    """A line of JSON with kind, record and length of each, then all texts."""
    heads = orjson.dumps([(kind, record, len(data)) for kind, record, data in some])
    return b"".join((heads, b"\n", *(data for _, _, data in some)))


def packed(body: bytes) -> tuple[int, bytes]:
    """How it is packed, and the packed page."""
    if len(body) >= SMALL:
        smaller = zlib.compress(body, LEVEL if len(body) < LARGE else 1)  # others wait meanwhile
        if len(smaller) < len(body):
            return _ZLIB, smaller
    return _PLAIN, body


def unpacked(coding: Any, body: Any) -> Iterator[NewFrame]:
    try:
        data: bytes = zlib.decompress(body) if coding == _ZLIB else body
        begins = data.index(b"\n") + 1
        for kind, record, length in orjson.loads(data[:begins]):
            yield NewFrame(kind, data[begins : begins + length].decode(errors="surrogatepass"), record)
            begins += length
    except (zlib.error, ValueError) as error:
        raise StoreDamaged(f"a page of the frame log is damaged ({error}); the journal does not need it") from error
