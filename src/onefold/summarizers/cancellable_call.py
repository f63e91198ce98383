"""A connection to a model that can be cut while somebody waits for its answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

from onefold.model import Clock

Why: TypeAlias = Literal["stopped", "timeout"]

_LOOK = 0.05


class CancellableCall:
    """One request's connection. A read that waits for the other side ends at once when the line is cut.

    A timeout of the HTTP client is too coarse for that: it tells silence, and not that nobody wants the answer any
    more, or that an answer goes on for ever.
    """

    def __init__(self) -> None:
        self.why: Why | None = None
        self._socket: socket.socket | None = None
        self._hang_up: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def attach(self, request: Any) -> None:
        """A hook for an HTTP client: it tells of the connection that this request gets."""
        request.extensions["trace"] = self._seen

    def ends_by(self, hang_up: Callable[[], object]) -> None:
        """For a request whose connection is somebody else's: what ends it, from any thread."""
        with self._lock:
            self._hang_up = hang_up
            if self.why is not None:
                self._shut()

    def cut(self, why: Why) -> None:
        with self._lock:
            self.why = self.why or why
            self._shut()

    @contextlib.contextmanager
    def watched(self, stopped: Callable[[], bool], *, until: float, timer: Clock) -> Iterator[None]:
        """Cuts the line as soon as nobody wants the answer, or at this time."""
        over = threading.Event()

        def read_watched() -> None:
            while not over.wait(_LOOK):
                if stopped() or timer() >= until:
                    self.cut("stopped" if stopped() else "timeout")
                    break

        watcher = threading.Thread(target=read_watched, name=f"{threading.current_thread().name}-watch", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _seen(self, event: str, details: dict[str, Any]) -> None:
        if not event.endswith(".complete"):
            return
        get = getattr(details.get("return_value"), "get_extra_info", None)
        if get is not None:
            with self._lock:
                self._socket = get("socket") or self._socket
                if self.why is not None:
                    self._shut()

    def _shut(self) -> None:
        if self._hang_up is not None:
            self._hang_up()
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it may be closed by now
                socket.socket.shutdown(
                    self._socket, socket.SHUT_RDWR
                )  # also of one with TLS: no farewell is waited for
