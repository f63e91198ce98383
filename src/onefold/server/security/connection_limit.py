"""Limits concurrent connections and the time a client has to send its request headers.

Uvicorn waits for the head of a request as long as a client likes, and counts nothing before it is there. A few thousand
clients that send a byte now and then would take every connection there is, without a token. So those that have said
nothing yet make room for new ones, the oldest first: of the same address when these are many, else of any. With TLS
that begins before the handshake, of which the event loop tells nobody: so they are counted where they are accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import Callable, Sized
from typing import Any, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from onefold.server.security.host_check import neighbourhood
from onefold.server.settings import Settings

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

HANDSHAKES = 64
"""Of one address at the same time: each takes a quarter of a megabyte."""


class Closable(Protocol):
    """A connection that can be ended at once."""

    def abort(self) -> None: ...


class CountedListener(socket.socket):
    """A socket that says which connections were accepted."""

    arrived: Callable[[socket.socket, str], None] | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        made, address = super().accept()
        if self.arrived is not None:
            self.arrived(made, address[0])
        return made, address


class Handshakes:
    """Connections in their handshake: each ends after a while, or when another one needs its place."""

    def __init__(self, headless: IdleConnections, settings: Settings) -> None:
        self.open: Sized = ()
        """Those that are through it."""
        self._headless = headless
        self._settings = settings
        self._under_way: dict[int, _Handshake] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._under_way)

    def arrived(self, made: socket.socket, peer: str) -> None:
        self.through(made.fileno())  # one of this number that is gone
        address = f"{neighbourhood(peer)} in its handshake"
        if self._headless.count(address) >= HANDSHAKES:
            self._forget_the_gone()
            self._headless.make_room(address, HANDSHAKES)
        self._count += 1
        if self._count % HANDSHAKES == 0:
            gc.collect()  # each that was ended leaves a quarter of a megabyte behind, in a circle
        if len(self.open) + len(self) >= self._settings.max_connections:
            self._forget_the_gone()
            if len(self.open) + len(self) >= self._settings.max_connections:
                self._headless.drop_oldest()
        begun = _Handshake(made, self._settings.body_timeout)
        self._under_way[made.fileno()] = begun
        self._headless.add(begun, address, asked=False)

    def through(self, number: int) -> None:
        """The handshake on this descriptor is over."""
        begun = self._under_way.pop(number, None)
        if begun is not None:
            begun.over()
            self._headless.discard(begun)

    def _forget_the_gone(self) -> None:
        for number in [number for number, begun in self._under_way.items() if begun.gone]:
            self.through(number)


class _Handshake:
    def __init__(self, made: socket.socket, patience: float) -> None:
        self._socket = made
        self._late = asyncio.get_running_loop().call_later(patience, self.abort)

    @property
    def gone(self) -> bool:
        return self._socket.fileno() < 0

    def abort(self) -> None:
        """The event loop finds its end, and closes it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def over(self) -> None:
        self._late.cancel()


class LimitedProtocol(H11Protocol):
    """The protocol of one server; `bounded` makes it."""

    arrivals: Handshakes


def bounded(settings: Settings) -> type[LimitedProtocol]:
    """The protocol for `uvicorn.Config(http=…)`."""
    headless = IdleConnections()

    class Here(LimitedProtocol):
        arrivals = Handshakes(headless, settings)

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.arrivals.open = self.connections
            self._late: asyncio.TimerHandle | None = None
            self._address = ""
            self._asked = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            made = transport.get_extra_info("socket")
            if made is not None:
                self.arrivals.through(made.fileno())
            super().connection_made(transport)
            self._address = neighbourhood(self.client[0]) if self.client else ""
            headless.make_room(self._address, settings.max_idle)
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
            """From now on, whatever comes of it: a byte now and then is not a request head."""
            if self._late is None and not self.transport.is_closing():
                self._late = self.loop.call_later(settings.body_timeout, self.transport.close)
                headless.add(self.transport, self._address, asked=self._asked)

        def _expect_nothing(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None
                headless.discard(self.transport)

    return Here


class IdleConnections:
    """Connections on which no request is under way, the oldest first, and those of each address. Those that never had
    one go before those of clients that may ask again."""

    def __init__(self) -> None:
        self._all: dict[Closable, str] = {}
        self._silent: dict[str | None, dict[Closable, None]] = {}
        self._resting: dict[str | None, dict[Closable, None]] = {}

    def add(self, one: Closable, address: str, *, asked: bool) -> None:
        self._all[one] = address
        for key in (address, None):
            (self._resting if asked else self._silent).setdefault(key, {})[one] = None

    def discard(self, one: Closable) -> None:
        if (address := self._all.pop(one, None)) is None:
            return
        for those in (self._silent, self._resting):
            for key in (address, None):
                if one in those.get(key, ()):
                    del those[key][one]
                    if not those[key]:
                        del those[key]

    def count(self, address: str) -> int:
        return len(self._silent.get(address, ())) + len(self._resting.get(address, ()))

    def make_room(self, address: str, most: int) -> None:
        """For one more of an address."""
        if self.count(address) >= most:
            self.drop_oldest(address)

    def drop_oldest(self, address: str | None = None) -> bool:
        """Ends the one that waits longest, of one address or of any. False if there is none."""
        those = self._silent.get(address) or self._resting.get(address)
        if those is None:
            return False
        oldest = next(iter(those))
        self.discard(oldest)
        oldest.abort()
        return True
