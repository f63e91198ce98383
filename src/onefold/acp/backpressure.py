"""Backpressure on an agent: large frames one by one, and none are read while nothing can be stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from onefold.acp.prompt_queue import AGAIN
from onefold.acp.room_errors import RequestRejected
from onefold.errors import StoreError

if TYPE_CHECKING:
    from onefold.acp.room import Room

log = logging.getLogger("onefold.acp")

LARGE = 64 << 10
"""Bytes of what an agent says that is waited for: the next is read when this is kept."""


class Backpressure:
    """Of a room."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.stuck: StoreError | None = None
        """Why nothing more is taken, from the agent or from clients."""
        self._trying = False

    async def hear(self, work: Callable[..., Awaitable[None]], said: Any, size: int) -> None:
        """The agent says something. What is large is kept before this returns, so that there is one of it at a time."""
        if size <= LARGE:
            await self._room.post(work, said)
            return
        kept = asyncio.Event()

        async def whole() -> None:
            try:
                await work(said)
                await self._room.recorder.commit()
            finally:
                kept.set()

        await self._room.post(whole)
        await kept.wait()

    def heed(self) -> None:
        """In the room's own task, after each commit. While the store cannot be written, and much waits for that, the
        agent has to wait. What it says stays in its pipe."""
        room, was = self._room, self.stuck
        self.stuck = stuck = room.recorder.stuck
        if (stuck is None) != (was is None):
            room.process.hold(stuck is not None)
            room.around.told(room.session)
            what = (
                "the store cannot be written; frames wait until it can" if stuck else "the store can be written again"
            )
            log.warning(what, extra={"session": room.session})
        if stuck is not None and not self._trying:
            self._trying = True
            room.later(AGAIN, self._try_again)

    async def _try_again(self) -> None:
        """It is, after this step as after any other."""
        self._trying = False

    def check(self) -> None:
        """Rejects what clients send meanwhile."""
        if self.stuck is not None:
            raise RequestRejected(f"session {self._room.session!r} takes nothing now: {self.stuck}")
