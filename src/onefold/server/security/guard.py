"""ASGI middleware around the whole server: whoever is not let in is answered here and reaches nothing else.

In this order: room, name (Host), page (Origin), token, rate, path, scope, body. Everything that a request must show
before it is let in is decided in this package's own code, on the bytes as they came, not by routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from onefold.server.security import body_limit, rejections
from onefold.server.security.browser_sessions import BrowserSession, BrowserSessions
from onefold.server.security.host_check import (
    AllowedHosts,
    ListeningRefused,
    PublicAddress,
    check_listening,
    neighbourhood,
)
from onefold.server.security.login_links import LoginLinks
from onefold.server.security.rate_limit import RateLimiter
from onefold.server.security.rejections import Rejection
from onefold.server.security.request_head import PROTOCOL, SAFE, By, RequestHead, cookie_name, without_secrets
from onefold.server.security.sign_in import POLICY, onward_page, sign_in_page
from onefold.server.security.tokens import Principal, Scope, Token, Tokens, TokensError
from onefold.server.security.websocket_limit import MOST
from onefold.server.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Send
    from starlette.types import Scope as Asked

__all__ = ["PROTOCOL", "SCOPE_OF", "Guard", "ListeningRefused", "Principal", "check_listening", "scope_for"]

logger = logging.getLogger("onefold.server")

_READ = (
    "sessions", "attach", "records", "context", "segments", "expand", "compactions", "ledger", "curve", "search",
    "sent", "summarizers", "export", "verify", "events", "live", "rooms",
)  # fmt: skip
_WRITE = ("append", "note", "pin", "unpin", "undo", "redo", "unfold", "refold", "fork")
_AGENTS = ("prompt", "unqueue", "stop", "answer", "restart", "close")
SCOPE_OF: dict[tuple[str, str], Scope | None] = {
    **{("GET", f"/api/{name}"): "read" for name in _READ},
    **{("POST", f"/api/{name}"): "write" for name in _WRITE},
    **{("POST", f"/api/{name}"): "agents" for name in _AGENTS},
    ("POST", "/api/compact"): "compact",
    ("POST", "/api/mask"): "compact",
    ("POST", "/api/drafts"): "compact",
    ("POST", "/api/drafts/take"): "compact",
    ("POST", "/api/cancel"): "compact",
    ("POST", "/api/verify"): "admin",
    ("GET", "/debug/sessions"): "admin",
    ("GET", "/metrics"): "read",
    ("GET", "/acp"): "read",
    ("GET", "/"): None,
}
"""What a token must have for a method and a path. None: any token will do."""

OPEN = frozenset({b"/healthz", b"/readyz"})
"""What is answered without a token; whether it lives also to who knows no name of it."""
STREAMS = frozenset({"/api/events", "/api/live", "/acp"})
"""What stays open: counted for each token, and ended when the token is revoked."""
LOGOUT = "/api/logout"
"""Ends the visit of a browser. Answered here: what is inside knows nothing of tokens and cookies."""
_LARGE = 256 << 10
_LITTLE = 64 << 10
_NOTHING = 4 << 10

_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_HTML = b"text/html; charset=utf-8"
_OURS = frozenset(name for name, _ in _SECURITY)


def scope_for(method: str, path: str) -> Scope | None:
    """What is in no table is not left open: reading takes read, everything else admin."""
    method = "GET" if method == "HEAD" else method
    if (method, path) in SCOPE_OF:
        return SCOPE_OF[method, path]
    if path.startswith("/static/") and method == "GET":
        return None
    return "read" if method in SAFE and not path.startswith("/debug") else "admin"


@dataclass(eq=False, slots=True)
class _Stream:
    token: Token
    visit: BrowserSession | None
    task: asyncio.Task[Any] | None = field(default_factory=asyncio.current_task)
    revoked: bool = False


class Guard:
    """ASGI middleware around a whole app. To those let in, `scope["state"]["who"]` says who asks; tokens stay here."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        tokens: Tokens,
        *,
        clock: Callable[[], float] = time.monotonic,
        look_every: float = 0.5,
        visits: BrowserSessions | None = None,
        links: LoginLinks | None = None,
    ) -> None:
        """`visits` are those of browsers; by default their key is kept next to the tokens. `links` let browsers in."""
        self._app = app
        self._settings = settings
        self._tokens = tokens
        beside = tokens.path.with_name(tokens.path.name + ".visits") if tokens.path is not None else None
        self._visits = visits or BrowserSessions(beside, tokens)
        self._links = links
        self._names = AllowedHosts(settings)
        self._requests = RateLimiter(settings.rate, settings.burst, clock)
        self._frames = RateLimiter(settings.rate, settings.burst, clock)
        self._wrong = RateLimiter(1 / 3 if settings.wrong_tokens else 0, settings.wrong_tokens, clock)
        self._inside = 0
        self._streams: set[_Stream] = set()
        self._streams_of: Counter[str] = Counter()
        self._look_every = look_every
        self._looking = False
        self._complaint = ""

    async def __call__(self, scope: Asked, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, receive, send)
        try:
            with self._room():
                await self._handle(scope, receive, answer)
        except Rejection as refused:
            await answer.refuse(refused)
        except body_limit.ClientGone:
            return

    async def _handle(self, scope: Asked, receive: Receive, answer: _Answer) -> None:
        head = RequestHead.of(scope)
        if head.raw_path in OPEN and head.method in ("GET", "HEAD") and not head.websocket:
            if head.raw_path != b"/healthz":
                self._reached(scope, head)
            await self._app(without_secrets(scope), receive, answer.send)
            return
        here, peer = self._reached(scope, head)
        token, by, visit = self._recognised(head, here, peer)
        if wait := self._requests.take(token.digest):
            raise rejections.too_many("requests with this token", wait)
        if by in ("link", "login"):
            cookie, key = self._begun(token, here)
            await answer.welcome(cookie, key, redirects=not head.followed_from_elsewhere)
            return
        path = head.path
        needed = scope_for(head.method, path)
        if visit is not None and needed is not None:
            self._with_both_halves(visit, head, here, answer)
            if (head.method, path) == ("POST", LOGOUT):
                await asyncio.to_thread(self._visits.end, visit)
                await answer.farewell(self._cookie(here, None))
                return
        if needed is not None and not token.who.may(needed):
            raise rejections.no_scope(token.name, needed)
        let_in = without_secrets(scope) | {"state": {**scope.get("state", {}), "who": token.who}}
        if peer != head.peer:
            let_in["client"] = (peer, 0)
        if head.websocket:
            answer.most = self._most(path, token)
            receive = self._counted(receive, token, answer.most)
        elif head.has_body:
            receive = await self._with_body(receive, head)
        if path in STREAMS:
            await self._stream(_Stream(token, visit), let_in, receive, answer)
        else:
            await self._app(let_in, receive, answer.send)

    # ---------------------------------------------------------------- who

    def _reached(self, scope: Asked, head: RequestHead) -> tuple[PublicAddress, str]:
        """Where the request thinks it is, and who sent it; rejected if that is not here, or a page of another site."""
        scheme, host, peer = scope.get("scheme", "http"), head.headers.get(b"host"), head.peer
        if self._names.is_proxy(peer):
            scheme = head.last(b"x-forwarded-proto") or scheme
            host = head.last(b"x-forwarded-host") or host
            peer = self._names.farthest(peer, head.headers.get(b"x-forwarded-for", "").split(","))
        if host is None:
            raise rejections.malformed("there is no Host")
        here = self._names.place(scheme, host)
        if here is None or not self._names.known(here):
            raise rejections.other_host()
        origin = head.headers.get(b"origin")
        if head.from_elsewhere or (origin is not None and not self._names.same(origin, here)):
            raise rejections.other_origin()
        return here, peer

    def _recognised(self, head: RequestHead, here: PublicAddress, peer: str) -> tuple[Token, By, BrowserSession | None]:
        shown = head.secret(here)
        if shown is None:
            raise rejections.no_token()
        secret, by = shown
        visit: BrowserSession | None = None
        try:
            if by == "cookie":
                visit = self._visits.find(secret, here)
                token = visit.token if visit is not None else None
            elif by == "login":
                token = self._links.redeem(secret) if self._links is not None else None
            else:
                token = self._tokens.find(secret)
        except TokensError as error:
            self._complain(str(error))
            raise rejections.cannot_check() from error
        if token is None:
            # Nobody guesses 256 bits. This bounds the noise; who has a right token from the same address stays in.
            if wait := self._wrong.take(neighbourhood(peer)):
                raise rejections.too_many("wrong tokens", wait)
            logger.warning("a wrong token was shown", extra={"client": peer})
            raise rejections.used_link() if by == "login" else rejections.no_token()
        if by == "cookie" and head.changes and b"origin" not in head.headers:
            raise rejections.other_origin()
        self._save_uses()
        return token, by, visit

    def _begun(self, token: Token, here: PublicAddress) -> tuple[str, str]:
        """Both halves of a visit."""
        try:
            visit, cookie = self._visits.begin(token, here)
        except TokensError as error:
            self._complain(str(error))
            raise rejections.cannot_check() from error
        return self._cookie(here, cookie), visit.key

    def _with_both_halves(self, visit: BrowserSession, head: RequestHead, here: PublicAddress, answer: _Answer) -> None:
        """A cookie alone, which every port of this host is sent, opens the page's own files and nothing else."""
        if not hmac.compare_digest(head.page.encode("latin-1", "replace"), visit.key.encode()):
            raise rejections.no_token()
        cookie = self._visits.renewed(visit, here)
        answer.cookie = None if cookie is None else self._cookie(here, cookie)

    def _cookie(self, here: PublicAddress, value: str | None) -> str:
        """Out of reach of scripts and other sites, and no longer than the token itself. Without a value, its end."""
        life = 0 if value is None else self._visits.seconds_left(value)
        secure = "; Secure" if here.scheme == "https" else ""
        return f"{cookie_name(here)}={value or ''}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}{secure}"

    def _save_uses(self) -> None:
        if not self._tokens.unsaved:
            return
        saved = asyncio.get_running_loop().run_in_executor(None, self._tokens.save_uses)
        saved.add_done_callback(self._saved)

    def _saved(self, saved: asyncio.Future[None]) -> None:
        if not saved.cancelled() and (error := saved.exception()) is not None:
            self._complain(str(error))

    def _complain(self, what: str) -> None:
        """Once: the same is true for every request until somebody fixes it."""
        if what != self._complaint:
            self._complaint = what
            logger.error("%s", what)

    # ---------------------------------------------------------------- how much

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        if self._inside >= self._settings.max_connections:
            raise rejections.full()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    async def _with_body(self, receive: Receive, head: RequestHead) -> Receive:
        """The body is here before the app is asked, so that no route waits for a slow one or sees too large a one."""
        settings = self._settings
        body = await body_limit.read(receive, head.length, most=settings.max_body, seconds=settings.body_timeout)
        check = partial(body_limit.check, body, depth=settings.max_depth, values=settings.max_values)
        if len(body) > _LARGE:
            await asyncio.to_thread(check)
        else:
            check()
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def given() -> Message:
            return whole.pop() if whole else await receive()

        return given

    def _most(self, path: str, token: Token) -> int:
        """Bytes of one message on a WebSocket. Who only follows says nothing, and who only looks on little."""
        if path != "/acp":
            return _NOTHING
        return self._settings.max_frame if token.who.may("agents") else min(_LITTLE, self._settings.max_frame)

    def _counted(self, receive: Receive, token: Token, most: int) -> Receive:
        """Frames that are not too large, and no faster than the token may: who sends more waits, and so does its
        socket."""

        async def counted() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive" and (wait := self._frames.owe(token.digest)):
                await asyncio.sleep(wait)
            if len(message.get("bytes") or b"") + len(message.get("text") or "") > most:
                raise rejections.too_large(most)
            return message

        return counted

    # ---------------------------------------------------------------- streams

    async def _stream(self, stream: _Stream, scope: Asked, receive: Receive, answer: _Answer) -> None:
        """Lets a stream run until it ends, or its token or its visit no longer counts."""
        token = stream.token
        if self._streams_of[token.digest] >= self._settings.max_streams:
            raise rejections.too_many("streams with this token", 1.0)
        self._streams.add(stream)
        self._streams_of[token.digest] += 1
        self._look_later()

        async def send(message: Message) -> None:
            if not stream.revoked:  # from then on it is told that, and nothing else: not even to come again
                await answer.send(message)

        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not stream.revoked or (stream.task is not None and stream.task.uncancel() > 0):
                raise
            raise rejections.revoked() from None
        finally:
            self._streams.discard(stream)
            self._streams_of[token.digest] -= 1
            if not self._streams_of[token.digest]:
                del self._streams_of[token.digest]

    def _look_later(self) -> None:
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(self._look_every, self._look)

    def _look(self) -> None:
        """Ends the streams of tokens that were revoked or ran out, and of browsers that logged out."""
        self._looking = False
        gone = {token for token in {stream.token for stream in self._streams} if not self._counts(token)}
        for stream in self._streams:
            left = stream.visit is not None and not self._visits.counts(stream.visit.id)
            if (left or stream.token in gone) and not stream.revoked and stream.task is not None:
                stream.revoked = True
                stream.task.cancel()
        if self._streams:
            self._look_later()

    def _counts(self, token: Token) -> bool:
        try:
            return self._tokens.counts(token)
        except TokensError as error:
            self._complain(str(error))
            return False


class _Answer:
    """What goes back: the app's answer with the headers that every answer has, or a rejection."""

    def __init__(self, scope: Asked, receive: Receive, send: Send) -> None:
        self._websocket = scope["type"] == "websocket"
        self._can_explain = not self._websocket or "websocket.http.response" in (scope.get("extensions") or {})
        self._speaks = PROTOCOL in scope.get("subprotocols", ())
        self._static = scope["path"].startswith("/static/")
        self._events = scope["path"] == "/api/events"
        accepts = (value for name, value in scope.get("headers", ()) if name.lower() == b"accept")
        self._shows_pages = not self._websocket and any(b"text/html" in value for value in accepts)
        self._between_events = False
        """Half an event must not be made a whole one by what comes behind it."""
        self._receive = receive
        self._send = send
        self._started = self._done = False
        self.most = 0
        """Bytes of one message from the client, on a WebSocket."""
        self.cookie: str | None = None
        """Another one for the browser that asks."""
        self._policy: bytes | None = None
        """What the page may do that is shown in place of a rejection, if not what every page may."""

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            message = {**message, "headers": self._dressed(message.get("headers", ()))}
        elif kind == "websocket.accept":
            spoken = message.get("subprotocol") or (PROTOCOL if self._speaks else None)
            message = {**message, "subprotocol": spoken, MOST: self.most}
        self._started = True
        if self._events:
            self._between_events = message.get("body", b"").endswith(b"\n\n")
        self._done = kind == "websocket.close" or (kind == "http.response.body" and not message.get("more_body", False))
        await self._send(message)

    def _dressed(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        kept = [(name, value) for name, value in headers if not _is_ours(name, static=self._static)]
        if not any(name.lower() == b"cache-control" for name, _ in kept):
            kept.append((b"cache-control", b"no-cache" if self._static else b"no-store"))
        if self.cookie is not None:
            kept.append((b"set-cookie", self.cookie.encode()))
        if self._policy is not None:
            return [*kept, (_SECURITY[0][0], self._policy), *_SECURITY[1:]]
        return [*kept, *_SECURITY]

    async def refuse(self, refused: Rejection) -> None:
        if self._started:
            await self._end(refused)
            return
        if not self._can_explain:
            await self._send({"type": "websocket.close", "code": 1008})
            return
        # What is left of the body is not a request: the connection ends with the answer.
        closing = () if self._websocket else ((b"connection", b"close"),)
        type, body = b"application/json", refused.body
        if refused.status == 401 and self._shows_pages:
            type, body, self._policy = _HTML, sign_in_page(str(refused)), POLICY
        plain = ((b"content-type", type), (b"content-length", b"%d" % len(body)))
        headers = (*plain, *closing, *refused.headers)
        await self._respond(refused.status, headers, body, drain=refused.status == 413)

    async def welcome(self, cookie: str, key: str, *, redirects: bool) -> None:
        """Gives both halves of a visit for the token that came in a link, and takes that out of the address. What is
        behind the # is sent to nobody; the page takes it from there. Where a redirect would come without the cookie,
        a page goes on to it."""
        self.cookie = cookie
        place = f"/#page={key}"
        if redirects:
            await self._respond(303, ((b"location", place.encode()), (b"content-length", b"0")), b"")
            return
        body = onward_page(place)
        await self._respond(200, ((b"content-type", _HTML), (b"content-length", b"%d" % len(body))), body)

    async def farewell(self, cookie: str) -> None:
        self.cookie = cookie
        await self._respond(204, ((b"connection", b"close"),), b"")

    async def _end(self, refused: Rejection) -> None:
        """Ends a stream that has begun."""
        if self._done:
            return
        if self._websocket:
            code = 1009 if refused.status == 413 else 1008
            await self.send({"type": "websocket.close", "code": code, "reason": str(refused)})
        else:
            last = b"event: refused\ndata: %b\n\n" % refused.body if self._between_events else b""
            await self.send({"type": "http.response.body", "body": last, "more_body": False})

    async def _respond(
        self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes, *, drain: bool = False
    ) -> None:
        kind = "websocket.http.response" if self._websocket else "http.response"
        await self.send({"type": f"{kind}.start", "status": status, "headers": list(headers)})
        if drain:
            await self.send({"type": f"{kind}.body", "body": body, "more_body": True})
            await body_limit.drain(self._receive)
            body = b""
        await self.send({"type": f"{kind}.body", "body": body, "more_body": False})


def _is_ours(name: bytes, *, static: bool) -> bool:
    """Whether the app has no say in a header: what guards, what would let other sites in, and how long it is kept."""
    name = name.lower()
    return name in _OURS or name.startswith(b"access-control-") or (name == b"cache-control" and not static)
