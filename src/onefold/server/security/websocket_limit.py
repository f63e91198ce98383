"""Bounds unfinished WebSocket messages: for each connection, in time, and for all together.

Uvicorn holds the fragments of a message until its end, however long that takes, and knows one size for all paths: a few
connections that never finish would hold as much memory as they like. And it takes all that came at once, which may be
forty thousand frames of six bytes each.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from onefold.server.settings import Settings

MOST = "onefold.most"
"""In the message that accepts a WebSocket: bytes of one message from this client."""
BEFORE = 4 << 10
"""Bytes that a client may send before it is let in, after its head. None has a reason to."""
FRAGMENT = 128
"""Bytes that a fragment costs in addition to its content, so that empty ones do not bypass the limit."""
SLICE = 4 << 10
"""Bytes that are looked at before the clock is."""
TURN = 0.005
"""Seconds after which others have their turn."""
TOO_LARGE, TRY_LATER = 1009, 1013


def bounded_sockets(settings: Settings) -> type[WebSocketsSansIOProtocol]:
    """The protocol for `uvicorn.Config(ws=…)`."""
    budget = MessageBudget(settings.max_unfinished)

    class Bounded(LimitedWebSocket):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(budget, settings, *given, **named)

    return Bounded


class MessageBudget:
    """What all connections hold together of messages that nobody has taken yet. Beyond it, the oldest of those that
    are unfinished goes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[LimitedWebSocket, int] = {}
        self._unfinished: dict[LimitedWebSocket, None] = {}
        self.total = 0

    def hold(self, socket: LimitedWebSocket, size: int, *, unfinished: bool) -> None:
        self.total += size - self._held.pop(socket, 0)
        if size:
            self._held[socket] = size
        if not unfinished:
            self._unfinished.pop(socket, None)
        elif socket not in self._unfinished:
            self._unfinished[socket] = None
        while self.total > self._most and self._unfinished:
            next(iter(self._unfinished)).fail(TRY_LATER, "too many unfinished messages here; send it again later")


class LimitedWebSocket(WebSocketsSansIOProtocol):
    def __init__(self, budget: MessageBudget, settings: Settings, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn.max_message_size = BEFORE
        self._budget = budget
        self._patience = settings.body_timeout
        self._late: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._rest = memoryview(b"")
        """What came and was not looked at yet."""
        self._fragments = 0
        """What the pieces of an unfinished message cost."""
        self._given = 0
        """Bytes of messages that the app has not dealt with yet."""
        self._pong = b""

    # ------------------------------------------------------------------ a slice at a time

    def data_received(self, data: bytes) -> None:
        self._rest = memoryview(bytes(self._rest) + data if self._rest else data)
        if self._soon is None:
            self._go_on()

    def _go_on(self) -> None:
        self._soon = None
        ends = self.loop.time() + TURN
        while self._rest and not self.transport.is_closing():
            piece, self._rest = bytes(self._rest[:SLICE]), self._rest[SLICE:]
            super().data_received(piece)
            self._weigh()
            if self.read_paused or self.loop.time() > ends:
                break
        if not self._rest and not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()
        self._go_on_later()

    def _go_on_later(self) -> None:
        if self._rest and not self.transport.is_closing():
            self.transport.pause_reading()
            if not self.read_paused and self._soon is None:
                self._soon = self.loop.call_soon(self._go_on)

    async def receive(self) -> Any:
        if self._given and self.queue.empty():
            self._given = 0
            self._weigh()
        message = await super().receive()
        self._go_on_later()
        return message

    async def send(self, message: Any) -> None:
        if message["type"] == "websocket.accept":
            self.conn.max_message_size = message.get(MOST, BEFORE)
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # a rejection is an answer too; uvicorn's own log calls it an error
        self._go_on_later()

    # ------------------------------------------------------------------ how much

    def _weigh(self) -> None:
        waiting = len(self.conn.reader.buffer)  # a frame is here until it is whole
        unfinished = bool(waiting or self.frames)
        held = waiting + self._fragments + self._given
        most = self.conn.max_message_size
        if self.close_sent or self.transport.is_closing():
            self._forget()
        elif most is not None and waiting + self._fragments > 2 * most + BEFORE:
            self.fail(TOO_LARGE, "this message is in too many pieces")
        else:
            if unfinished and self._late is None:
                self._late = self.loop.call_later(self._patience, self._is_late)
            elif not unfinished:
                self._expect_nothing()
            self._budget.hold(self, held, unfinished=unfinished)

    def handle_text(self, event: Frame) -> None:
        self._count(event, 0)
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._count(event, 0)
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        self._count(event, self._fragments)
        super().handle_cont(event)

    def _count(self, event: Frame, before: int) -> None:
        size = before + len(event.data) + FRAGMENT
        self._fragments = 0 if event.fin else size
        self._given += size if event.fin else 0

    # ------------------------------------------------------------------ pings of who does not read

    def handle_ping(self) -> None:
        """While nothing is taken, the last one is answered later, and the others not at all."""
        if self.writable.is_set():
            super().handle_ping()
        elif pongs := self.conn.data_to_send():
            self._pong = bytes(pongs[-1])

    def resume_writing(self) -> None:
        super().resume_writing()
        pong, self._pong = self._pong, b""
        if pong and not self.close_sent and not self.transport.is_closing():
            self.transport.write(pong)

    # ------------------------------------------------------------------ the end

    def fail(self, code: int, why: str) -> None:
        """Ends it, and releases what it holds."""
        self._forget()
        if self.close_sent or self.transport.is_closing():
            return
        if not self.handshake_complete:
            self.transport.abort()
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": why})
        self.conn.fail(code, why)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _is_late(self) -> None:
        self._late = None
        if self.read_paused or self._rest:  # it is waited for here, not there
            self._weigh()
        else:
            self.fail(TRY_LATER, f"a message was not finished within {self._patience:g} seconds")

    def _expect_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _forget(self) -> None:
        self._expect_nothing()
        self.frames, self._fragments, self._given, self._rest = [], 0, 0, memoryview(b"")
        self.conn.reader.buffer.clear()
        self._budget.hold(self, 0, unfinished=False)
