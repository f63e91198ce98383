"""A server's socket with something bad in between: what a network does to a commit."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Literal

from psycopg.conninfo import conninfo_to_dict

Harm = Literal["none", "swallow the answer", "lose the commit", "stall", "silence", "full disk"]
COMMIT = b"commit;select set_config"
_FULL = b"SERROR\0VERROR\0C53100\0Mcould not extend file: No space left on device\0\0"
FULL = b"E" + (len(_FULL) + 4).to_bytes(4, "big") + _FULL + b"Z\0\0\0\5E"
"""What a server without room answers, and that the transaction is of no use any more."""
NAME = ".s.PGSQL.5432"


class Proxy:
    """Passes everything on, but for what `harm` says of the next commit. After it, `shut` lets nobody in any more."""

    def __init__(self, dsn: str, *, shut: bool = False) -> None:
        self.harm: Harm = "none"
        self.done = threading.Event()
        self._shut_after = shut
        self._server = str(Path(str(conninfo_to_dict(dsn)["host"]), NAME))
        self._folder = Path(tempfile.mkdtemp(prefix="onefold-px-"))
        self._open: list[socket.socket] = []
        self._silent: list[socket.socket] = []
        self._stalled: list[tuple[socket.socket, bytes]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / NAME))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for some in (self._listener, *self._open):
            _close(some)
        shutil.rmtree(self._folder)

    def address(self, address: str) -> str:
        """The same store, reached through here."""
        return address.replace(str(Path(self._server).parent), str(self._folder))

    def deliver(self) -> None:
        """What was stalled arrives after all."""
        for server, data in self._stalled:
            with contextlib.suppress(OSError):
                server.sendall(data)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._open += [client, server]
            threading.Thread(target=self._up, args=(client, server), daemon=True).start()
            threading.Thread(target=self._down, args=(client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self.harm == "full disk" and COMMIT in data:
                    client.sendall(FULL)
                    self.done.set()
                    continue
                if self.harm != "none" and COMMIT in data:
                    self._do_harm(client, server, data)
                    return
                server.sendall(data)
        _close(server)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        if client not in self._silent:  # where even the end does not get through
            _close(client)

    def _do_harm(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        harm, self.harm = self.harm, "none"
        if self._shut_after:
            _close(self._listener)
        if harm in ("stall", "silence"):
            self._stalled.append((server, data))
            if harm == "stall":
                _end(client)
            else:
                self._silent.append(client)
        elif harm == "lose the commit":
            _close(server)
            _end(client)
        else:
            _end(client)  # first: no answer must get through
            server.sendall(data)
        self.done.set()


def _end(some: socket.socket) -> None:
    with contextlib.suppress(OSError):
        some.shutdown(socket.SHUT_RDWR)


def _close(some: socket.socket) -> None:
    _end(some)
    some.close()
