"""Browser sessions: what a browser presents instead of its token after signing in.

A browser sends a cookie to every port of its host, so the cookie is not a token, and useless alone. A visit
has two halves: the cookie, which no script can read, and a key that the page keeps in its storage, which belongs to
this host *and port*. Both come from one random id, signed for one token and one address with a key that is kept next to
the tokens. So nothing has to be kept for each of them, they outlive the server, and they count for as long as their
token.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onefold.messages import decode, encode
from onefold.server.security.tokens import Token, Tokens, TokensError, locked, read_private, write_private
from onefold.storage.permissions import make_folder

if TYPE_CHECKING:
    from onefold.server.security.host_check import PublicAddress

log = logging.getLogger("onefold.server")

LIFE = 3 * 86_400
"""Seconds that a visit lasts without a request of its page."""
RENEWED = 3_600
"""Seconds after which a request makes it last longer."""
LONGEST = 30 * 86_400
"""Seconds after which the token has to be shown again."""

_COOKIE = re.compile(r"([A-Za-z0-9_-]{22})\.([0-9a-f]{16})\.([0-9]{1,12})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """One browser with one token. `key` is the half that only the page has."""

    id: str
    token: Token
    begun: int
    until: int
    key: str


class BrowserSessions:
    """The visits of a server. `path` is where the key is kept; None keeps it in memory, until the server ends."""

    def __init__(
        self,
        path: Path | None,
        tokens: Tokens,
        *,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._path = path
        self._tokens = tokens
        self._random = random
        self._secret: bytes | None = None
        self._ended: dict[str, float] = {}

    def begin(self, token: Token, here: PublicAddress) -> tuple[BrowserSession, str]:
        """A new one, for a browser that has just shown the token at this address; and its cookie."""
        id = base64.urlsafe_b64encode(self._random(16)).decode().rstrip("=")
        return self._made(id, token, here, int(self._tokens.now()))

    def find(self, cookie: str, here: PublicAddress) -> BrowserSession | None:
        """The visit that a cookie is half of, if it and its token count now, at this address."""
        found = _COOKIE.fullmatch(cookie)
        if found is None:
            return None
        id, mark, begun, until, signed = found[1], found[2], int(found[3]), int(found[4]), found[5]
        token = self._tokens.fitting(lambda token: hmac.compare_digest(_mark(token), mark))
        if token is None or not hmac.compare_digest(self._signed("cookie", here, id, token, begun, until), signed):
            return None
        if self._tokens.now() >= until or not self.counts(id):
            return None
        return BrowserSession(id, token, begun, until, self._signed("page", here, id, token, begun))

    def renewed(self, visit: BrowserSession, here: PublicAddress) -> str | None:
        """Another cookie for a visit that goes on, once in a while."""
        longer, cookie = self._made(visit.id, visit.token, here, visit.begun)
        return cookie if longer.until - visit.until >= RENEWED else None

    def counts(self, id: str) -> bool:
        """Whether nobody has ended a visit."""
        return id not in self._ended

    def end(self, visit: BrowserSession) -> None:
        """Whoever has both halves gets in with them no more."""
        until = visit.begun + LONGEST
        self._ended[visit.id] = until
        self._keep({visit.id: until})

    def seconds_left(self, cookie: str) -> int:
        """How long a browser has to keep a cookie of ours."""
        return max(0, int(cookie.split(".")[3]) - int(self._tokens.now()))

    # ---------------------------------------------------------------- how they are made

    def _made(self, id: str, token: Token, here: PublicAddress, begun: int) -> tuple[BrowserSession, str]:
        left = self._tokens.seconds_left(token)
        until = int(min(self._tokens.now() + min(LIFE, left), begun + LONGEST))
        signed = self._signed("cookie", here, id, token, begun, until)
        visit = BrowserSession(id, token, begun, until, self._signed("page", here, id, token, begun))
        return visit, f"{id}.{_mark(token)}.{begun}.{until}.{signed}"

    def _signed(self, what: str, here: PublicAddress, id: str, token: Token, *times: int) -> str:
        said = "\0".join((what, here.scheme, here.name, str(here.port), id, token.digest, *map(str, times)))
        made = hmac.digest(self._key(), said.encode(), "sha256")
        return base64.urlsafe_b64encode(made).decode().rstrip("=")

    # ---------------------------------------------------------------- what is kept

    def _key(self) -> bytes:
        """Read or made when the first browser comes. Raises `TokensError` if others could have read it."""
        if self._secret is None:
            self._keep({})
        if self._secret is None:
            self._secret = self._random(32)
        return self._secret

    def _keep(self, ended: dict[str, float]) -> None:
        """Adds to what is kept, and takes what is there. Where nothing can be written, visits end with the server."""
        if self._path is None:
            return
        try:
            make_folder(self._path.parent)
            with locked(self._path.with_name(self._path.name + ".lock")):
                key, before = _parsed(self._path, read_private(self._path))
                self._secret = self._secret or key or self._random(32)
                now = self._tokens.now()
                kept = {id: until for id, until in {**before, **self._ended, **ended}.items() if until > now}
                self._ended = kept
                if key != self._secret or kept != before:
                    row = {"version": 1, "key": self._secret.hex(), "ended": kept}
                    write_private(self._path, encode(row) + "\n")
        except OSError as error:
            log.warning(
                "%s cannot be written (%s): browsers have to show their token again when the server has ended",
                self._path, error.strerror or error,
            )  # fmt: skip


def _mark(token: Token) -> str:
    """Says which token it is, and nothing about it."""
    return hashlib.sha256(f"visit {token.digest}".encode()).hexdigest()[:16]


def _parsed(path: Path, text: str | None) -> tuple[bytes | None, dict[str, float]]:
    if text is None:
        return None, {}
    with contextlib.suppress(ValueError, TypeError):
        content: Any = decode(text)
        match content:
            case {"version": 1, "key": str() as key, "ended": dict() as ended} if len(made := bytes.fromhex(key)) == 32:
                return made, {str(id): float(until) for id, until in ended.items()}
    raise TokensError(f"{path} is damaged; move it away, and open the page with a token again")
