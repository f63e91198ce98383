"""The server put together: the guard around everything, the API, the live events, the page."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.openapi.utils import get_openapi
from starlette.routing import Route
from starlette.types import ASGIApp

from onefold.agents.hosting import Host
from onefold.server import acting, drafts, metrics, reading, rooms
from onefold.server.acting import Compacting
from onefold.server.drafts import Drafts
from onefold.server.errors import error_schema, install
from onefold.server.guard import SCOPE_OF, Guard
from onefold.server.live import Hub
from onefold.server.settings import Settings
from onefold.server.snapshot import Desk, known, snapshot
from onefold.server.static import FILES, page
from onefold.server.tokens import Tokens
from onefold.store import Store

log = logging.getLogger("onefold.server")

_ABOUT = (
    "Sessions of AI agents: what they remember, what was compacted, by whom and why. Every call needs a token, as "
    "`Authorization: Bearer …`. A session is always named by the parameter `session`."
)


def create_app(
    store: Store, settings: Settings, tokens: Tokens, hub: Hub | None = None, host: Host | None = None
) -> ASGIApp:
    """The ASGI app on one open store. It begins and ends the hub, and the agents' host if there is one; closing the
    store is its opener's."""
    return Guard(api(store, settings, hub or Hub(store, settings), host), settings, tokens)


def api(store: Store, settings: Settings, hub: Hub, host: Host | None = None) -> FastAPI:
    """What is inside the guard."""
    desk = Desk(store, settings, hub, host)
    compacting, made = Compacting(desk), Drafts(desk)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        hub.start()
        if host is not None:
            host.snapshots, host.changed = partial(_described_to_clients, desk), hub.room_changed
            host.start()
        ends = threading.Event()
        warming = asyncio.create_task(run_in_threadpool(desk.warm, ends))
        yield
        ends.set()
        for error in await asyncio.gather(warming, return_exceptions=True):
            if isinstance(error, Exception):
                log.warning("the list could not be made ready: %s", error)
        await hub.close()
        if host is not None:
            await host.close()
        made.close()
        await run_in_threadpool(compacting.close)

    app = FastAPI(
        title="onefold",
        description=_ABOUT,
        version="1",
        docs_url=None,  # they load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
    )
    app.state.desk, app.state.compacting, app.state.drafts = desk, compacting, made
    install(app)
    app.router.routes += [
        *reading.router.routes,
        *acting.router.routes,
        *drafts.router.routes,
        *rooms.router.routes,
    ]  # as they are: an inclusion makes them anew
    app.router.routes += [*hub.routes(), *metrics.routes(hub), *rooms.routes(host)]
    app.router.routes += [Route(path, page, include_in_schema=False) for path in FILES]
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


def _described_to_clients(desk: Desk, session: str) -> dict[str, Any]:
    """A session as those are told who attach to its room."""
    found = desk.store.journal.backend.read(lambda tx: snapshot(desk, tx, known(tx, session)))
    return dict(found)


def _described(app: FastAPI) -> dict[str, Any]:
    """OpenAPI, with what FastAPI does not know: the token, the scope of each call, and the routes that are no typed
    ones."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        made["paths"] |= _OTHERS
        made["components"]["schemas"]["ErrorJson"] = error_schema()
        made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"token": []}]
        for path, methods in made["paths"].items():
            for method, call in methods.items():
                scope = SCOPE_OF.get((method.upper(), path))
                if scope is not None:
                    call["x-scope"] = scope
                    call["description"] = f"{call.get('description', '')}\n\nScope: `{scope}`.".strip()
        app.openapi_schema = made
    return app.openapi_schema


def _plain(words: str, type: str, **more: Any) -> dict[str, Any]:
    return {"summary": words, "responses": {"200": {"description": words, "content": {type: {}}}}, **more}


_NO_TOKEN: dict[str, Any] = {"security": []}
_NOT_READY = {"description": "Not now, and why.", "content": {"application/json": {}}}
_OTHERS: dict[str, Any] = {
    "/api/events": {
        "get": _plain(
            "Server-sent events of one session, or of all: every record from a number on, and then as they come.",
            "text/event-stream",
            parameters=[
                {"name": "session", "in": "query", "schema": {"type": "string"}},
                {"name": "after", "in": "query", "schema": {"type": "string"}},
                {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}},
            ],
        )
    },
    "/healthz": {"get": _plain("The server lives.", "application/json", **_NO_TOKEN)},
    "/readyz": {
        "get": {
            **_plain("The server can use its store.", "application/json", **_NO_TOKEN),
            "responses": {
                "200": {"description": "It can.", "content": {"application/json": {}}},
                "503": _NOT_READY,
            },
        }
    },
    "/metrics": {"get": _plain("Numbers for a monitoring system.", "text/plain")},
}
"""What is no typed route. `/api/live` is a WebSocket, which OpenAPI cannot describe."""
