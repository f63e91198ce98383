"""Liveness, readiness, and metrics in Prometheus' text format.

A server sees every change of its store, whoever makes it, so most numbers are of the whole store; they count from the
start of this process. What stands in the store now is looked up when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from onefold.metrics import TYPE, compactions, head, one, sizes
from onefold.server.readiness import Readiness

if TYPE_CHECKING:
    from onefold.server.events.hub import Hub


def routes(hub: Hub) -> list[BaseRoute]:
    """`/healthz` and `/readyz`, which need no token, and `/metrics`."""

    readiness = Readiness(hub.store)

    async def lives(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        why = "the server is about to end" if hub.draining else await readiness.trouble()
        return JSONResponse({"status": "not ready" if why else "ok", **({"cause": why} if why else {})},
                            503 if why else 200)  # fmt: skip

    def numbers(request: Request) -> Response:
        return Response(text(hub), media_type=TYPE)

    return [
        Route("/healthz", lives, methods=["GET"], include_in_schema=False),
        Route("/readyz", ready, methods=["GET"], include_in_schema=False),
        Route("/metrics", numbers, methods=["GET"], include_in_schema=False),
    ]


def text(hub: Hub) -> str:
    counts, store = hub.observer.counts, hub.store
    lines = [
        *one("appends_total", "counter", "Messages appended to the store, by any process.", counts.appends),
        *head("append_seconds", "histogram", "Seconds to answer an append that came through this server."),
        *counts.append_seconds.lines("onefold_append_seconds"),
        *compactions(counts, store),
        *sizes(store),
        *one("followers", "gauge", "Clients that follow live events now.", hub.followers),
        *one("follower_drops_total", "counter", "Followers that were too slow and were told to resume.", hub.drops),
    ]
    return "\n".join(lines) + "\n"
