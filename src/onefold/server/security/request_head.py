"""The checks of a request's head, on the bytes as they came, before it is let in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs

from onefold.server.security import rejections

if TYPE_CHECKING:
    from starlette.types import Scope

    from onefold.server.security.host_check import PublicAddress

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
PROTOCOL = "onefold"
"""The subprotocol of the WebSocket. A client that can set no header offers it, and `onefold.token.` with the token."""

By = Literal["header", "cookie", "protocol", "link", "login"]

_BY_PROTOCOL = PROTOCOL + ".token."
_PAGE = PROTOCOL + ".page."
_PATH = re.compile(rb"/|(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._~-]+)+/?")
_MOST_HEADERS = 100
_MOST_BYTES = 32 << 10
_ONCE = frozenset({
    b"host", b"origin", b"authorization", b"content-length", b"transfer-encoding", b"content-type",
})  # fmt: skip
_SECRET = frozenset({b"authorization", b"cookie", b"x-onefold-page", b"sec-websocket-protocol"})


@dataclass(frozen=True, slots=True)
class RequestHead:
    method: str
    raw_path: bytes
    query: bytes
    websocket: bool
    headers: dict[bytes, str]
    """Those that come more than once are joined by commas, cookies by semicolons."""
    protocols: tuple[str, ...]
    peer: str
    plain_body: bool
    """Whether a body is announced if there is one, as before HTTP/2."""

    @classmethod
    def of(cls, scope: Scope) -> RequestHead:
        """Raises `Rejection` for what no honest client sends."""
        headers = _headers(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise rejections.malformed("Content-Length and Transfer-Encoding exclude each other")
        websocket = scope["type"] == "websocket"
        raw_path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
        return cls(
            method="GET" if websocket else scope["method"],
            raw_path=raw_path.partition(b"?")[0],
            query=scope.get("query_string", b""),
            websocket=websocket,
            headers=headers,
            protocols=tuple(scope.get("subprotocols") or ()),
            peer=(scope.get("client") or ("",))[0],
            plain_body=scope.get("http_version", "1.1").startswith("1"),
        )

    @property
    def path(self) -> str:
        """Raises `Rejection` for one that has an escaped sign, an empty step, or one up: none of ours has."""
        if not _PATH.fullmatch(self.raw_path):
            raise rejections.malformed("the path has signs in it that no path of this server has")
        return self.raw_path.decode("ascii")

    @property
    def length(self) -> int | None:
        text = self.headers.get(b"content-length")
        if text is not None and not re.fullmatch(r"[0-9]{1,18}", text):
            raise rejections.malformed("Content-Length is not a number")
        return None if text is None else int(text)

    @property
    def has_body(self) -> bool:
        announced = b"content-length" in self.headers or b"transfer-encoding" in self.headers
        return not self.websocket and (announced or not self.plain_body or self.method not in SAFE)

    @property
    def changes(self) -> bool:
        return self.websocket or self.method not in SAFE

    @property
    def followed_from_elsewhere(self) -> bool:
        """Whether a person followed a link that stood on another site, or in a file."""
        return self.headers.get(b"sec-fetch-site") in ("cross-site", "same-site")

    @property
    def from_elsewhere(self) -> bool:
        """Whether a browser says that another site asks. A person who follows a link there may still come in."""
        if not self.followed_from_elsewhere:
            return False
        followed = (
            self.headers.get(b"sec-fetch-mode") == "navigate" and self.headers.get(b"sec-fetch-dest") == "document"
        )
        return self.changes or not followed

    def last(self, name: bytes) -> str | None:
        """What the nearest proxy says, in a list to which each one adds."""
        value = self.headers.get(name)
        return value.rpartition(",")[2].strip() if value else None

    @property
    def page(self) -> str:
        """The half of a visit that only its page has: in a header, or among a WebSocket's protocols."""
        for offered in self.protocols if self.websocket else ():
            if offered.startswith(_PAGE):
                return offered.removeprefix(_PAGE)
        return self.headers.get(b"x-onefold-page", "")

    def secret(self, here: PublicAddress) -> tuple[str, By] | None:
        """The token that is shown, and how: header, WebSocket's protocols, link; or what a login link holds, or the
        cookie of a visit. Nowhere else."""
        if (given := self.headers.get(b"authorization")) is not None:
            scheme, _, secret = given.partition(" ")
            return (secret.strip(), "header") if scheme.lower() == "bearer" and secret.strip() else None
        for offered in self.protocols if self.websocket else ():
            if offered.startswith(_BY_PROTOCOL):
                return offered.removeprefix(_BY_PROTOCOL), "protocol"
        if self.method == "GET" and not self.websocket and self.raw_path == b"/":
            asked = parse_qs(self.query.decode("latin-1"), keep_blank_values=True)
            if "login" in asked:
                return asked["login"][0], "login"
            if "token" in asked:
                return asked["token"][0], "link"
        name = cookie_name(here)
        for pair in self.headers.get(b"cookie", "").split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name and value:
                return value, "cookie"
        return None


def without_secrets(scope: Scope) -> dict[str, object]:
    """The scope as the app may see it, and log it."""
    cleaned = {**scope, "headers": [(k, v) for k, v in scope["headers"] if k.lower() not in _SECRET]}
    if "subprotocols" in scope:
        cleaned["subprotocols"] = [p for p in scope["subprotocols"] if not p.startswith((_BY_PROTOCOL, _PAGE))]
    return cleaned


def cookie_name(here: PublicAddress) -> str:
    """A name of its own for each port: cookies know hosts only, and two servers on one machine would take turns."""
    return f"onefold-{here.port}"


def _headers(given: list[tuple[bytes, bytes]]) -> dict[bytes, str]:
    if len(given) > _MOST_HEADERS or sum(len(k) + len(v) for k, v in given) > _MOST_BYTES:
        raise rejections.big_head()
    found: dict[bytes, str] = {}
    for key, value in given:
        name, text = key.lower(), value.decode("latin-1")
        if name in found and name in _ONCE:
            raise rejections.malformed(f"there is more than one {name.decode('latin-1')}")
        found[name] = f"{found[name]}{';' if name == b'cookie' else ','}{text}" if name in found else text
    return found
