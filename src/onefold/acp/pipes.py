"""Non-blocking pipes of a subprocess on an event loop."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import termios
from collections import deque
from collections.abc import Callable
from typing import IO

CHUNK = 1 << 16
"""As much as a pipe usually holds."""


class Output:
    """A pipe that the child writes. Nothing is read from it before somebody asks for more."""

    def __init__(self, pipe: IO[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._pipe = pipe
        self._loop = loop
        self._left: int | None = None
        self._readable: asyncio.Future[None] | None = None
        os.set_blocking(pipe.fileno(), False)

    def take(self, most: int = CHUNK) -> bytes | None:
        """What there is, without waiting: None if that is nothing now, no bytes at the end."""
        if self._left is not None:
            most = min(most, self._left)
        if not most or self._pipe.closed:
            return b""
        try:
            data = os.read(self._pipe.fileno(), most)
        except BlockingIOError:
            return None if self._left is None else b""
        if self._left is not None:
            self._left -= len(data)
        return data

    @property
    def held(self) -> int:
        """How many bytes stand in the pipe at this moment."""
        if self._pipe.closed:
            return 0
        held = array.array("i", [0])
        fcntl.ioctl(self._pipe.fileno(), termios.FIONREAD, held)
        return held[0]

    def finish(self) -> None:
        """The child is dead: what stands in the pipe now is the last of it, whoever else may write there."""
        self._left = self.held
        self._wake()

    async def wait(self) -> None:
        """Until there is something, or the end."""
        self._readable = self._loop.create_future()
        self._loop.add_reader(self._pipe.fileno(), self._wake)
        try:
            await self._readable
        finally:
            self._readable = None
            if not self._pipe.closed:
                self._loop.remove_reader(self._pipe.fileno())

    def _wake(self) -> None:
        if self._readable is not None and not self._readable.done():
            self._readable.set_result(None)

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()


class Input:
    """The pipe that the child reads: whatever it does not take at once waits here."""

    def __init__(self, pipe: IO[bytes], loop: asyncio.AbstractEventLoop, broken: Callable[[], None]) -> None:
        self._pipe = pipe
        self._loop = loop
        self._broken = broken
        self._queue: deque[memoryview] = deque()
        self.waiting = 0
        self.closing = False
        os.set_blocking(pipe.fileno(), False)

    def write(self, data: bytes) -> None:
        self._queue.append(memoryview(data))
        self.waiting += len(data)
        if len(self._queue) == 1:
            self._flush()
            if self._queue and not self._pipe.closed:
                self._loop.add_writer(self._pipe.fileno(), self._flush)

    def close(self) -> None:
        """Once all is written."""
        self.closing = True
        if not self._queue:
            self.drop()

    def drop(self) -> None:
        """At once."""
        self.closing = True
        self._queue.clear()
        self.waiting = 0
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()

    def _flush(self) -> None:
        """As much as the pipe takes now, one piece a call."""
        try:
            written = os.write(self._pipe.fileno(), self._queue[0][:CHUNK])
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more
            self.drop()
            self._broken()
            return
        self.waiting -= written
        self._queue[0] = self._queue[0][written:]
        if not self._queue[0]:
            self._queue.popleft()
        if not self._queue:
            self._loop.remove_writer(self._pipe.fileno())
            if self.closing:
                self.drop()
