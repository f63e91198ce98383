"""The answers to requests that are not let in. They say what to do, and nothing about what is inside."""

from __future__ import annotations

import math

import orjson


class Rejection(Exception):
    """Not let in, with this answer."""

    def __init__(
        self, status: int, kind: str, message: str, remedy: str = "", *, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        error = {"kind": kind, "message": message} | ({"remedy": remedy} if remedy else {})
        self.body = orjson.dumps({"error": error})


ANSWERS = {
    400: "The request is malformed, or its body nested too deeply.",
    401: "No token, or one that does not count.",
    403: "The token lacks a scope; or the Host or Origin is none of this server's.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    429: "Too many requests, wrong tokens or streams; Retry-After says when to come again.",
    431: "The headers are too many or too large.",
    503: "The server has its hands full, or cannot check tokens now.",
}
"""Every status that the guard answers by itself, for whoever describes the API."""


def revoked() -> Rejection:
    """For what a token has open when it is revoked or runs out."""
    return Rejection(
        401, "Unauthorized", "this token no longer counts: it was revoked, or ran out",
        "coming again with it is of no use; `onefold token new` makes another",
        headers=((b"www-authenticate", b"Bearer"),),
    )  # fmt: skip


def no_token() -> Rejection:
    """The same for every path: whether there is something behind it is not told."""
    return Rejection(
        401, "Unauthorized", "a token is needed", "open the link that the server printed, or `onefold token new` one",
        headers=((b"www-authenticate", b"Bearer"),),
    )  # fmt: skip


def used_link() -> Rejection:
    """For a login link that was followed before, ran out, or is of another server or start of it."""
    return Rejection(
        401, "Unauthorized", "this login link was used already, has run out, or is of an earlier start of the server",
        "start `onefold serve` in a terminal again, or make a token with `onefold token new`",
        headers=((b"www-authenticate", b"Bearer"),),
    )  # fmt: skip


def no_scope(name: str, scope: str) -> Rejection:
    return Rejection(
        403, "Forbidden", f"token {name!r} lacks the scope {scope!r}", f"`onefold token new NAME --scope {scope}`"
    )


def other_host() -> Rejection:
    return Rejection(
        403, "Forbidden", "this server does not go by that name", "if it does, start it with --allow-host and the name"
    )


def other_origin() -> Rejection:
    return Rejection(403, "Forbidden", "a page of another site cannot use this server")


def malformed(what: str) -> Rejection:
    return Rejection(400, "BadRequest", what)


def too_large(most: int) -> Rejection:
    return Rejection(413, "TooLarge", f"the body is larger than {most:,} bytes", "send it in several requests")


def too_slow(seconds: float) -> Rejection:
    return Rejection(408, "Timeout", f"the body did not come within {seconds:g} seconds")


def big_head() -> Rejection:
    return Rejection(431, "TooLarge", "the headers are too many or too large")


def too_many(what: str, wait: float) -> Rejection:
    return Rejection(429, "TooMany", f"too many {what}", headers=(_retry_after(wait),))


def full() -> Rejection:
    return Rejection(503, "Unavailable", "too many connections at once", headers=(_retry_after(1.0),))


def cannot_check() -> Rejection:
    return Rejection(
        503, "Unavailable", "tokens cannot be checked now", "see the server's log", headers=(_retry_after(1.0),)
    )


def _retry_after(seconds: float) -> tuple[bytes, bytes]:
    return (b"retry-after", b"%d" % max(1, math.ceil(seconds)))
