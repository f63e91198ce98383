"""Errors as responses: status, kind, what happened and what to do. All are declared in OpenAPI."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from onefold import errors
from onefold.acp.room_errors import FORBIDDEN, RequestRejected
from onefold.ids import system_clock
from onefold.server.response_models import ErrorJson, ErrorWords
from onefold.server.security.rejections import ANSWERS
from onefold.server.serializers import dumps

log = logging.getLogger("onefold.server")

_STATUS: tuple[tuple[type[errors.OnefoldError], int, str | None], ...] = (
    (errors.SessionNotFound, 404, None),
    (errors.ContextTooLarge, 413, "compact the session, or take something back"),
    (errors.MessageTooLarge, 413, "send less at once, or keep large content in a file and send its path"),
    (errors.InvalidMessage, 400, "correct the message; nothing was written"),
    (errors.KeyConflict, 409, "use a new key for new content"),
    (errors.StaleHandle, 409, "attach again, look at what came, then decide"),
    (errors.TurnBusy, 409, "wait until the turn is over, or queue the input"),
    (errors.TurnLost, 409, "read the context again, and begin a new turn"),
    (errors.CommitRefused, 409, "attach again to see which summary was first"),
    (errors.CompactionDisabled, 409, None),
    (errors.NotNow, 429, "wait as long as Retry-After says"),
    (errors.OutcomeUnknown, 503, "repeat the same call with the same key"),
    (errors.StoreUnavailable, 503, "the same call may work later"),
    (errors.StoreError, 500, "look at the store with `onefold verify`"),
    (errors.OnefoldError, 409, None),
)
"""The first that fits counts. A plain `OnefoldError` is a rejection: there is nothing to undo, and the like."""

_OTHER: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "TooLarge",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    503: "Unavailable",
}

_TOLD: dict[int, str] = {
    400: "The request cannot be read.",
    401: "The token is missing, invalid or expired.",
    403: "The token does not have the scope, or the request comes from somewhere else.",
    404: "There is no such session, segment or path.",
    405: "The path has other methods: see `Allow`.",
    409: "The session is not in a state for it, or not where the caller saw it; nothing was written.",
    413: "The request, or what is in it, is too large.",
    422: "A parameter or a field is not as it has to be; the message names it.",
    429: "Too much at once: see `Retry-After`.",
    500: "The store is damaged, or something else failed; the message says what.",
    503: "The store or the server cannot do it now.",
}

_AN_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorJson"}}}
DECLARED: dict[int | str, dict[str, Any]] = {
    status: {"description": words, "content": _AN_ERROR} for status, words in sorted((ANSWERS | _TOLD).items())
}
"""What any call may be answered in addition to its own responses."""


def error_schema() -> dict[str, Any]:
    """The schema that all of them refer to."""
    words, whole = TypeAdapter(ErrorWords).json_schema(), TypeAdapter(ErrorJson).json_schema()
    return {**whole, "properties": {"error": words}, "$defs": {}}


class NotThere(errors.OnefoldError):
    """A segment or a record that a session does not have."""


class BadCursor(errors.OnefoldError):
    """A cursor that this server did not give out."""


class BadCombination(errors.OnefoldError):
    """Parameters that say two different things."""


class AnswerTooLarge(errors.OnefoldError):
    """What was asked for is more than one answer may be."""


class TryLater(errors.NotNow):
    """Somebody else is at it, and one at a time is enough."""


def answer(status: int, kind: str, message: str, remedy: str | None = None, **headers: str) -> Response:
    """An error as every part of the server answers it."""
    body: ErrorJson = {"error": {"kind": kind, "message": message}}
    if remedy is not None:
        body["error"]["remedy"] = remedy
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(dumps(body), status, named, media_type="application/json")


def refusal(error: errors.OnefoldError, now: float) -> Response:
    """What the library raised, as an answer."""
    if isinstance(error, NotThere):
        return answer(404, "NotFound", str(error))
    if isinstance(error, BadCursor):
        return answer(422, "Invalid", str(error), "take the cursor from the last answer, or begin without one")
    if isinstance(error, BadCombination):
        return answer(422, "Invalid", str(error), "leave one of them out")
    if isinstance(error, AnswerTooLarge):
        return answer(413, "TooLarge", str(error), "read it in pages with /api/records, or compact the session")
    if isinstance(error, RequestRejected) and error.code == FORBIDDEN:
        return answer(403, "Forbidden", str(error), "`onefold token new NAME --scope …` makes one that may")
    status, remedy = next((code, remedy) for kind, code, remedy in _STATUS if isinstance(error, kind))
    kind = "Refused" if type(error) is errors.OnefoldError else errors.kind_of(error)
    headers = {}
    if isinstance(error, errors.NotNow):
        wait = 1 if error.retry_at is None else max(1, math.ceil(error.retry_at - now))
        headers["Retry-After"] = str(wait)
    elif status == 503:
        headers["Retry-After"] = "1"
    if status >= 500:
        log.error("%s: %s", type(error).__name__, error)
    return answer(status, kind, str(error), remedy, **headers)


def install(app: FastAPI) -> None:
    """Makes an app answer every error in this way."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.OnefoldError)
        return refusal(error, system_clock())

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return answer(400, "BadRequest", f"the body is not JSON: {first['ctx']['error']}")
        return answer(422, "Invalid", "; ".join(_wrong(e) for e in error.errors()[:5]))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = {name.replace("-", "_"): value for name, value in (error.headers or {}).items()}
        if error.status_code == 405:
            allowed = ", ".join(_methods(app.routes, request))
            words = f"{request.url.path} is asked with {allowed}, not with {request.method}"
            return answer(405, _OTHER[405], words, Allow=allowed)
        words = str(error.detail)
        if error.status_code == 404:
            words = f"there is nothing at {request.url.path}; /openapi.json lists what there is"
        elif error.status_code == 400:
            words = "the body cannot be read: it is nested too deeply, no UTF-8, or has a number of thousands of digits"
        return answer(error.status_code, _OTHER.get(error.status_code, "Refused"), words, **headers)

    async def failed(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return answer(
            500,
            errors.kind_of(error),
            f"{request.method} {request.url.path} failed in a way that nobody foresaw; the server's log says where",
            "report it with the lines from the log",
        )

    app.add_exception_handler(errors.OnefoldError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, failed)


def _methods(routes: Iterable[BaseRoute], request: Request) -> list[str]:
    """All methods of a path: its routes may be several, and each knows of its own."""
    partly = [r for r in routes if r.matches(request.scope)[0] != Match.NONE]
    return sorted({method for route in partly for method in getattr(route, "methods", None) or ()})


def _wrong(error: Mapping[str, Any]) -> str:
    """One thing that is not as it has to be. What was given is not repeated: it may be anything."""
    place = [str(part) for part in error["loc"]]
    where = {"query": "the parameter", "body": "the field", "path": "the path's", "header": "the header"}
    if len(place) == 1:
        return "the body has to be a JSON object, sent as application/json"
    name = ".".join(place[1:]).encode("utf-8", "replace").decode()[:80]
    return f"{where.get(place[0], place[0])} {name}: {_plain(str(error['msg']))}"


def _plain(message: str) -> str:
    message = message.removeprefix("Value error, ").encode("utf-8", "replace").decode()
    return message[:1].lower() + message[1:]
