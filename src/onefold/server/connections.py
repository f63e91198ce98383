"""Connections before they are requests: the head has to come in time, and there are no more of them than may be.

Uvicorn waits for the head of a request as long as a client likes, and counts nothing before it is there. A few thousand
clients that send a byte now and then would take every connection there is, without a token.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from onefold.server.settings import Settings

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def bounded(settings: Settings) -> type[H11Protocol]:
    """The protocol for `uvicorn.Config(http=…)`."""

    class Bounded(H11Protocol):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(transport)
            if len(self.connections) > settings.max_connections:
                transport.write(_FULL)
                transport.close()
                return
            self._expect_a_head()

        def handle_events(self) -> None:
            super().handle_events()
            if self.conn.their_state is h11.IDLE:
                self._expect_a_head()
            else:
                self._expect_nothing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._expect_nothing()
            super().connection_lost(exc)

        def _expect_a_head(self) -> None:
            """From now on, whatever comes of it: a byte now and then is no head."""
            if self._late is None and not self.transport.is_closing():
                self._late = self.loop.call_later(settings.body_timeout, self.transport.close)

        def _expect_nothing(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Bounded
