"""Connections before they are requests: the head has to come in time, and there are no more of them than may be.

Uvicorn waits for the head of a request as long as a client likes, and counts nothing before it is there. A few thousand
clients that send a byte now and then would take every connection there is, without a token. So those that have said
nothing yet make room for new ones, the oldest first: of the same address when these are many, else of any.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from onefold.server.origins import neighbourhood
from onefold.server.settings import Settings

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def bounded(settings: Settings) -> type[H11Protocol]:
    """The protocol for `uvicorn.Config(http=…)`."""
    headless = Headless()

    class Bounded(H11Protocol):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._late: asyncio.TimerHandle | None = None
            self._address = ""
            self._asked = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(transport)
            self._address = neighbourhood(self.client[0]) if self.client else ""
            if headless.count(self._address) >= settings.max_idle:
                headless.drop_oldest(self._address)
            if len(self.connections) > settings.max_connections and not headless.drop_oldest():
                transport.write(_FULL)
                transport.close()
                return
            self._expect_a_head()

        def handle_events(self) -> None:
            super().handle_events()
            if self.conn.their_state is h11.IDLE:
                self._expect_a_head()
            else:
                self._asked = True
                self._expect_nothing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._expect_nothing()
            super().connection_lost(exc)

        def _expect_a_head(self) -> None:
            """From now on, whatever comes of it: a byte now and then is no head."""
            if self._late is None and not self.transport.is_closing():
                self._late = self.loop.call_later(settings.body_timeout, self.transport.close)
                headless.add(self.transport, self._address, asked=self._asked)

        def _expect_nothing(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None
                headless.discard(self.transport)

    return Bounded


class Headless:
    """Connections on which no request is under way, the oldest first, and those of each address. Those that never had
    one go before those of clients that may ask again."""

    def __init__(self) -> None:
        self._all: dict[asyncio.Transport, str] = {}
        self._silent: dict[str | None, dict[asyncio.Transport, None]] = {}
        self._resting: dict[str | None, dict[asyncio.Transport, None]] = {}

    def add(self, transport: asyncio.Transport, address: str, *, asked: bool) -> None:
        self._all[transport] = address
        for key in (address, None):
            (self._resting if asked else self._silent).setdefault(key, {})[transport] = None

    def discard(self, transport: asyncio.Transport) -> None:
        if (address := self._all.pop(transport, None)) is None:
            return
        for those in (self._silent, self._resting):
            for key in (address, None):
                if transport in those.get(key, ()):
                    del those[key][transport]
                    if not those[key]:
                        del those[key]

    def count(self, address: str) -> int:
        return len(self._silent.get(address, ())) + len(self._resting.get(address, ()))

    def drop_oldest(self, address: str | None = None) -> bool:
        """Ends the one that waits longest, of one address or of any. False if there is none."""
        those = self._silent.get(address) or self._resting.get(address)
        if those is None:
            return False
        oldest = next(iter(those))
        self.discard(oldest)
        oldest.abort()
        return True
