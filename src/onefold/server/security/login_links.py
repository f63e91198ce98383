"""Login links: each lets one browser in, once, within minutes.

A link is for the person at whose terminal it is printed. What it holds is no token: it is known to the server that made
it alone, which keeps only a hash of it, and ends with it. A browser that follows it gets a visit of a token in that
person's name, which nobody has and which therefore opens nothing by itself.
"""

from __future__ import annotations

import getpass
import re
import secrets
from collections.abc import Callable

from onefold.server.security.tokens import Token, Tokens, digest_of

LIFE = 600.0
"""Seconds that a link can be followed."""
MOST = 100
"""Links of one server that wait to be followed; beyond that, the oldest counts no more."""


class LoginLinks:
    """Those of one server. Used in its event loop, and before that begins."""

    def __init__(
        self, tokens: Tokens, person: str, *, secret: Callable[[], str] = lambda: secrets.token_urlsafe(32)
    ) -> None:
        self._tokens = tokens
        self._person = person
        self._secret = secret
        self._waiting: dict[str, tuple[float, Token]] = {}

    def new(self) -> str:
        """What the next link holds. Raises `TokensError` if the file of tokens cannot be written."""
        secret, token = self._secret(), self._tokens.of_person(self._person)
        self._waiting[digest_of(secret)] = self._tokens.now() + LIFE, token
        while len(self._waiting) > MOST:
            del self._waiting[next(iter(self._waiting))]
        return secret

    def redeem(self, secret: str) -> Token | None:
        """The token for which a link lets a browser in; None if it was followed before, ran out, or is none."""
        until, token = self._waiting.pop(digest_of(secret), (0.0, None))
        now = self._tokens.now()
        return token if token is not None and now < until and self._tokens.counts(token) else None


def person() -> str:
    """Who runs this process, as a name that a token may have."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        name = ""
    return re.sub(r"[^A-Za-z0-9._@-]+", "-", name).lstrip("._@-")[:50] or "me"


def login_link(url: str, secret: str) -> str:
    """The address that lets a browser in once."""
    return f"{url.rstrip('/')}/?login={secret}"
