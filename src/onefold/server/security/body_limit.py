"""Reads a request's body within limits on size, time and depth, before anything looks into it."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import accumulate
from typing import TYPE_CHECKING

from onefold.messages import json_size
from onefold.server.security.rejections import malformed, too_large, too_slow

if TYPE_CHECKING:
    from starlette.types import Receive

_NO_SIGNS = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = tuple({**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}.get(byte, 0) for byte in range(256))
_PIECE = 1 << 16
_DRAINED = 64 << 20
_DRAIN_SECONDS = 2.0


class ClientGone(Exception):
    """The client left before its body was there. Nobody is left to answer."""


async def read(receive: Receive, length: int | None, *, most: int, seconds: float) -> bytes:
    """The whole body. `length` is what the client said, if it did."""
    if length is not None and length > most:
        raise too_large(most)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGone
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise too_large(most)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise too_slow(seconds) from None
    if length is not None and size != length:
        raise malformed(f"Content-Length says {length} bytes, and {size} came")
    return b"".join(parts)


async def drain(receive: Receive) -> None:
    """Takes what still comes, for a moment: a client that is cut off while it sends would never read the answer."""
    left = _DRAINED
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                left -= len(message.get("body", b""))


def check(body: bytes, *, depth: int, values: int) -> None:
    """Rejects JSON that expands to more than its size suggests."""
    if json_size.values(body, values) > values:
        raise malformed(f"the JSON has more than {values:,} values; send it in several requests")
    check_depth(body, depth)


def check_depth(body: bytes, most: int) -> None:
    """Rejects JSON nested too deeply for a parser that goes down with it."""
    if body.count(b"[") + body.count(b"{") > most and depth(body, most) > most:
        raise malformed(f"the JSON is nested more than {most} levels deep")


def depth(body: bytes, most: int) -> int:
    """How deep the brackets of a JSON text are nested; if deeper than `most`, some number above it.

    Nothing is parsed: each step is a pass over the bytes at the speed of C.
    """
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side open and close, or close and open: without them the rest is inside or outside as before.
    signs = unescaped.translate(None, _NO_SIGNS).replace(b'""', b"")
    outside = b"".join(signs.split(b'"')[::2])
    deepest = level = 0
    for start in range(0, len(outside), _PIECE):  # in pieces, so that other threads get their turn
        levels = list(accumulate(map(_STEPS.__getitem__, outside[start : start + _PIECE]), initial=level))
        level, highest = levels[-1], max(levels)
        deepest = max(deepest, highest)
        if deepest > most:
            break
    return deepest
