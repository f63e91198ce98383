"""Assembles the server: the guard around everything, the API, the live events, the page."""

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

from onefold.acp.host import RoomHost
from onefold.server.error_responses import error_schema, install
from onefold.server.events.hub import Hub
from onefold.server.routes import drafts, health, read, rooms, write
from onefold.server.routes.drafts import Drafts
from onefold.server.routes.write import RequestedCompactions
from onefold.server.security.guard import SCOPE_OF, Guard
from onefold.server.security.login_links import LoginLinks
from onefold.server.security.tokens import Tokens
from onefold.server.settings import Settings
from onefold.server.snapshot import AppState, known, snapshot
from onefold.server.static import FILES, page
from onefold.store import Store

log = logging.getLogger("onefold.server")

_ABOUT = (
    "Sessions of AI agents: what they remember, what was compacted, by whom and why. Every call needs a token, as "
    "`Authorization: Bearer …`. A session is always named by the parameter `session`."
)


def create_app(
    store: Store,
    settings: Settings,
    tokens: Tokens,
    hub: Hub | None = None,
    host: RoomHost | None = None,
    *,
    links: LoginLinks | None = None,
) -> ASGIApp:
    """The ASGI app on one open store. It begins and ends the hub, and the agents' host if there is one; closing the
    store is its opener's."""
    return Guard(api(store, settings, hub or Hub(store, settings), host), settings, tokens, links=links)


def api(store: Store, settings: Settings, hub: Hub, host: RoomHost | None = None) -> FastAPI:
    """What is inside the guard."""
    app_state = AppState(store, settings, hub, host)
    hub.observer.deleted = app_state.session_cache.forget
    compacting, made = RequestedCompactions(app_state), Drafts(app_state)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        hub.start()
        if host is not None:
            host.snapshots, host.changed = partial(_described_to_clients, app_state), hub.room_changed
            host.start()
        ends = threading.Event()
        warming = asyncio.create_task(run_in_threadpool(app_state.warm, ends))
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
    app.state.app_state, app.state.compacting, app.state.drafts = app_state, compacting, made
    install(app)
    app.router.routes += [
        *read.router.routes,
        *write.router.routes,
        *drafts.router.routes,
        *rooms.router.routes,
    ]  # as they are: including them would rebuild them
    app.router.routes += [*hub.routes(), *health.routes(hub), *rooms.routes(host)]
    app.router.routes += [Route(path, page, include_in_schema=False) for path in FILES]
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


def _described_to_clients(app_state: AppState, session: str) -> dict[str, Any]:
    """A session as those are told who attach to its room."""
    found = app_state.store.journal.backend.read(lambda tx: snapshot(app_state, tx, known(tx, session)))
    return dict(found)


def _described(app: FastAPI) -> dict[str, Any]:
    """OpenAPI, with what FastAPI does not know: the token, the scope of each call, and the routes that are not typed
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
"""Routes that are not typed. `/api/live` is a WebSocket, which OpenAPI cannot describe."""
