"""The whole server on a port of its own, in a thread of the test: as users reach it, and ended with the test."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import uvicorn

from onefold import Store
from onefold.acp.host import RoomHost
from onefold.server.app import create_app
from onefold.server.security.tokens import Tokens
from onefold.server.settings import Settings

PATIENCE = 20.0


@contextlib.contextmanager
def served(
    store: Store, folder: Path, settings: Settings | None = None, host: RoomHost | None = None
) -> Iterator[tuple[str, dict[str, str]]]:
    """The server's address, and the headers of somebody who may do everything."""
    settings = settings or Settings(rate=0)
    tokens = Tokens(folder / "tokens.json")
    secret, _ = tokens.new("tester", ["admin", "read", "write", "agents", "compact"])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = create_app(store, settings, tokens, host=host)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=5))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            assert httpx.get(f"{address}/healthz", timeout=PATIENCE).status_code == 200
            yield address, {"Authorization": f"Bearer {secret}"}
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the server did not end"
