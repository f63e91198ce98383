"""Runs the server: the socket, the log, and a graceful shutdown."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import logging
import math
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from onefold.errors import OnefoldError
from onefold.messages import encode
from onefold.metrics import Counts
from onefold.server.events.hub import Hub
from onefold.server.security.connection_limit import CountedListener, bounded
from onefold.server.security.websocket_limit import bounded_sockets
from onefold.server.settings import Settings
from onefold.store import Store

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger("onefold.server")

SOCKET_BYTES = 256 << 10
"""What the system holds for a client that takes nothing: enough for a quick one, and no megabytes for a dead one."""
BACKLOG = 2_048
"""Connections that the system holds until they are accepted."""
ACCEPTED = 32
"""Connections that are accepted at once, before those that are there have their turn."""
DEAD_AFTER = 60
"""Seconds after which the system gives up a connection whose other end does not answer."""
_FIELDS = ("session", "compaction", "fence", "holder", "cause", "client", "after", "store", "url", "signal")


class PortTaken(OnefoldError):
    """The address to listen on is not to be had."""


class CertificateUnusable(OnefoldError):
    """TLS was asked for, and its files are of no use."""


def serve(
    store: Store,
    settings: Settings,
    app: Callable[[Hub], ASGIApp],
    ready: Callable[[str], None],
    begin: Callable[[Callable[[], None]], Awaitable[None]] | None = None,
) -> None:
    """Serves until a signal comes, then drains and closes the store. `ready` gets the address once it listens; `begin`
    is awaited before that, in the event loop, and gets a way to end the server."""
    hub = Hub(store, settings)
    make_room(settings.max_connections)
    try:
        listening = listen(settings.host, settings.port)
        protocol = bounded(settings)
        if settings.tls:
            listening.arrived = protocol.arrivals.arrived
        config = uvicorn.Config(
            AppendTimer(app(hub), hub.observer.counts),
            log_config=None,
            access_log=False,
            lifespan="auto",
            proxy_headers=False,
            server_header=False,
            loop="asyncio",  # which asks the socket itself for connections, so that they can be counted
            http=protocol,
            ws=bounded_sockets(settings),
            ws_max_size=settings.max_frame,
            ws_per_message_deflate=False,  # a few bytes would become megabytes before anybody could look at them
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            backlog=ACCEPTED,
            timeout_graceful_shutdown=math.ceil(settings.drain),
        )
        _load(config, settings)
        server = Server(config, hub, lambda: ready(url(listening, settings)), begin)
        with lease_warnings(hub.observer.counts):
            server.run(sockets=[listening])
        if server.trouble is not None:
            raise server.trouble
    finally:
        store.close()
    log.info("the server has ended", extra={"store": store.address})


def _load(config: uvicorn.Config, settings: Settings) -> None:
    try:
        config.load()
    except OSError as error:  # those of ssl are among them
        if not settings.tls:
            raise
        raise CertificateUnusable(
            f"{settings.tls_cert} and {settings.tls_key} cannot be used for TLS ({error.strerror or error}); "
            "both have to be there, as PEM, and belong together"
        ) from error


class Server(uvicorn.Server):
    """Uvicorn, with an end of ours: a first signal drains and ends in 0, a second one ends at once."""

    def __init__(
        self,
        config: uvicorn.Config,
        hub: Hub,
        ready: Callable[[], None],
        begin: Callable[[Callable[[], None]], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(config)
        self._hub = hub
        self._ready = ready
        self._begin = begin
        self.trouble: OnefoldError | None = None
        self._signal = ""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self._signal = signal.Signals(sig).name
        self._hub.draining = True
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started:
            return
        for listening in sockets or ():
            listening.listen(BACKLOG)  # the event loop takes one number for both, and has set the small one
        self._hub.start()
        try:
            if self._begin is not None:
                await self._begin(self.end)
            _let_be()
            self._ready()
        except OnefoldError as trouble:
            self.trouble = trouble
            self.end()

    def end(self) -> None:
        """Ends it as a signal would."""
        self._hub.draining = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("the server drains", extra={"signal": self._signal})
        self._hub.drain()
        await super().shutdown(sockets)
        await self._hub.close()


class AppendTimer:
    """Counts how long it takes to answer an append."""

    def __init__(self, app: ASGIApp, counts: Counts) -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/api/append":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        await self._app(scope, receive, send)
        self._counts.answered(time.perf_counter() - began)


def _let_be() -> None:
    """What is there now stays: looked at by no collection of garbage any more, it makes none of them long."""
    gc.collect()
    gc.freeze()


# ---------------------------------------------------------------------- the socket


def listen(host: str, port: int) -> CountedListener:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise PortTaken(f"there is no address {host!r} to listen on: {error.strerror}") from None
    made = CountedListener(family, kind, protocol)
    try:
        # Accepted connections inherit these.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER * 1000)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise PortTaken(_why(host, port, error)) from None
    return made


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is in use already, perhaps by another `onefold serve`; "
            "end that one, or choose another port with --port"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} of {host} is not for this user to listen on; choose one above 1023 with --port"
    return f"port {port} of {host} cannot be listened on: {error.strerror}"


def url(listening: socket.socket, settings: Settings) -> str:
    """The address under which a person reaches the server."""
    if settings.proxy is not None:
        return settings.proxy
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http{'s' if settings.tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def make_room(connections: int) -> None:
    """Asks the system for as many open files as there may be connections: by default it allows a thousand."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 256
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# ---------------------------------------------------------------------- the log


class JsonLines(logging.Formatter):
    """One JSON object a line. Of an error that nobody expected, its kind and place: its words may quote a message."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage().encode("utf-8", "replace").decode(),
        }
        line |= {name: value for name in _FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info and (error := record.exc_info[1]) is not None:
            known = isinstance(error, OnefoldError | OSError)
            line["error"] = f"{type(error).__name__}: {error}" if known else type(error).__name__
            frames = traceback.extract_tb(error.__traceback__)[-12:]
            line["where"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return encode(line)


class PlainLines(logging.Formatter):
    """The same for people: the time of day, what happened, and to whom. Nothing in it can act on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._json = JsonLines()

    def format(self, record: logging.LogRecord) -> str:
        line = json.loads(self._json.format(record))
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno == logging.INFO else f"{line['level']}: "
        more = [f"{name}={line[name]}" for name in (*_FIELDS, "error") if name in line]
        told = f"{at}  {level}{line['message']}" + (f"  ({', '.join(more)})" if more else "")
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in told)


def log_to(stream: Any = None, level: str | None = None) -> None:
    """On stderr, from `ONEFOLD_LOG` on: for people on a terminal, and JSON lines everywhere else."""
    wanted = (level or os.environ.get("ONEFOLD_LOG") or "info").upper()
    number = logging.getLevelNamesMapping().get(wanted)
    if number is None:
        raise OnefoldError(f"ONEFOLD_LOG={wanted.lower()!r} is not a log level; write debug, info, warning or error")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(PlainLines() if (stream or sys.stderr).isatty() else JsonLines())
    for name in ("onefold", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(number)
    logging.getLogger("uvicorn").setLevel(max(number, logging.WARNING))
    logging.getLogger("uvicorn.error").addFilter(_not_our_own)


def _not_our_own(record: logging.LogRecord) -> bool:
    """A follower that is disconnected leaves its answer unfinished, on purpose, and that was said already."""
    return record.getMessage() != "ASGI callable returned without completing response."


@contextlib.contextmanager
def lease_warnings(counts: Counts) -> Iterator[None]:
    """Counts the warnings about leases: they fail nothing, so a line in the log is all that is made of them."""
    counting = _CountingHandler(counts)
    log = logging.getLogger("onefold.leases")
    log.addHandler(counting)
    try:
        yield
    finally:
        log.removeHandler(counting)


class _CountingHandler(logging.Handler):
    def __init__(self, counts: Counts) -> None:
        super().__init__(logging.WARNING)
        self._counts = counts

    def emit(self, record: logging.LogRecord) -> None:
        self._counts.lease_failed()
