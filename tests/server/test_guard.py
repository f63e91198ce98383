"""Who may: each sentence of it, and what people do to get around it. Small apps stand in for what is guarded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from onefold.server.security import body_limit, guard, rejections
from onefold.server.security.browser_sessions import BrowserSessions
from onefold.server.security.connection_limit import IdleConnections, bounded
from onefold.server.security.guard import SCOPE_OF, Guard, ListeningRefused, check_listening, scope_for
from onefold.server.security.host_check import AllowedHosts, PublicAddress
from onefold.server.security.login_links import LoginLinks
from onefold.server.security.rate_limit import RateLimiter
from onefold.server.security.rejections import ANSWERS
from onefold.server.security.tokens import SCOPES, Principal, Tokens
from onefold.server.settings import Settings
from tests.conftest import StoppedClock

HERE = "127.0.0.1:8642"
ELSEWHERE = "https://evil.example"


# ---------------------------------------------------------------------- raw calls


@dataclass
class Inside:
    """An app that notes what reaches it, reads the body and answers with it."""

    reached: list[Scope] = field(default_factory=list)
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.reached.append(scope)
        body = (await receive()).get("body", b"")
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"inside:" + body})


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.body)["error"]
        return found


@dataclass
class World:
    """A guard around an app, with a token of each scope."""

    tokens: Tokens
    clock: StoppedClock
    settings: Settings = field(default_factory=Settings)
    inside: Inside = field(default_factory=Inside)
    secrets: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.secrets = {scope: self.tokens.new(scope, [scope])[0] for scope in SCOPES}
        self.guard = Guard(self.inside, self.settings, self.tokens, clock=self.clock)

    def ask(self, method: str = "GET", path: str = "/api/sessions", **more: Any) -> Answer:
        return asyncio.run(asked(self.guard, scope_of(method, path, **more), more.get("body", b"")))

    def bearer(self, scope: str = "admin") -> dict[str, str]:
        return {"authorization": f"Bearer {self.secrets[scope]}"}

    def cookie(self, scope: str = "admin") -> dict[str, str]:
        """What a page shows whose browser came by the link: both halves of its visit."""
        return halves(self.ask("GET", f"/?token={self.secrets[scope]}"))


def halves(came: Answer) -> dict[str, str]:
    cookie = came.headers["set-cookie"].partition(";")[0]
    return {"cookie": f"other=1; {cookie}", "x-onefold-page": came.headers["location"].removeprefix("/#page=")}


def scope_of(method: str, path: str, **more: Any) -> Scope:
    """As uvicorn makes it. A header whose value is None is left out, one whose value is a list comes more than once."""
    raw, _, query = path.partition("?")
    given = {"host": HERE, **more.get("headers", {})}
    pairs = [(n, v) for n, values in given.items() for v in (values if isinstance(values, list) else [values])]
    return {
        "type": more.get("type", "http"),
        "method": method,
        "path": raw,
        "raw_path": raw.encode("latin-1"),
        "query_string": query.encode(),
        "scheme": more.get("scheme", "http"),
        "headers": [(n.encode(), v.encode("latin-1")) for n, v in pairs if v is not None],
        "client": (more.get("peer", "127.0.0.1"), 50000),
        "http_version": "1.1",
        "state": {},
    }


async def asked(app: ASGIApp, scope: Scope, body: bytes | list[bytes]) -> Answer:
    parts = [body] if isinstance(body, bytes) else body
    coming = [
        {"type": "http.request", "body": part, "more_body": n < len(parts)} for n, part in enumerate(parts, start=1)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return coming.pop(0) if coming else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], headers, b"".join(m.get("body", b"") for m in sent[1:]))


@pytest.fixture
def tokens(tmp_path: Path, clock: StoppedClock) -> Tokens:
    return Tokens(tmp_path / "onefold" / "tokens.json", clock=clock)


@pytest.fixture
def world(tokens: Tokens, clock: StoppedClock) -> World:
    return World(tokens, clock)


Make = Callable[..., World]


@pytest.fixture
def make(tokens: Tokens, clock: StoppedClock) -> Make:
    return lambda **settings: World(tokens, clock, Settings(**settings))


# ---------------------------------------------------------------------- "loopback by default"


def test_it_listens_on_loopback_by_default() -> None:
    assert Settings().host == "127.0.0.1"
    check_listening(Settings())


# ---------------------------------------------------------------------- "a token is made at first start, …"


def test_the_link_of_the_first_start_lets_a_browser_in_and_leaves_the_address_bar(world: World) -> None:
    secret = world.secrets["admin"]

    came = world.ask("GET", f"/?token={secret}")

    assert (came.status, came.body) == (303, b"")
    assert re.fullmatch(r"/#page=[\w-]{43}", came.headers["location"])
    cookie, about = came.headers["set-cookie"].split("; ", 1)
    assert re.fullmatch(r"onefold-8642=[\w.-]+", cookie)
    assert about == "Path=/; HttpOnly; SameSite=Strict; Max-Age=259200"
    assert secret not in str(came.headers)
    assert world.inside.reached == []
    assert world.ask("GET", "/", headers={"cookie": cookie}).status == 200


def test_a_cookie_goes_over_tls_only_if_it_came_so_and_ends_with_its_token(tokens: Tokens, make: Make) -> None:
    world = make(proxy="https://agents.example.org")
    short, _ = tokens.new("short", ["read"], expires=60)

    by_tls = world.ask("GET", f"/?token={short}", scheme="https")
    by_proxy = world.ask("GET", f"/?token={short}", headers={"host": "agents.example.org"})

    assert by_tls.headers["set-cookie"].endswith("SameSite=Strict; Max-Age=60; Secure")
    assert by_proxy.headers["set-cookie"].startswith("onefold-443=")
    assert by_proxy.headers["set-cookie"].endswith("; Secure")


def test_a_token_in_an_address_counts_nowhere_else(world: World) -> None:
    secret = world.secrets["admin"]

    elsewhere = [
        world.ask("GET", f"/api/sessions?token={secret}"),
        world.ask("GET", f"/static/app.js?token={secret}"),
        world.ask("POST", f"/?token={secret}"),
        world.ask("HEAD", f"/?token={secret}"),
        world.ask("GET", f"//?token={secret}"),
        world.ask("GET", "/?token=wrong"),
        world.ask("GET", "/?token="),
    ]

    assert [answer.status for answer in elsewhere] == [401] * 7
    assert world.inside.reached == []


# ---------------------------------------------------------------------- "a login link lets one browser in, once"


@pytest.fixture
def links(tokens: Tokens) -> LoginLinks:
    return LoginLinks(tokens, "ann")


@pytest.fixture
def door(tokens: Tokens, clock: StoppedClock, links: LoginLinks) -> World:
    made = World(tokens, clock)
    made.guard = Guard(made.inside, made.settings, tokens, clock=clock, links=links)
    return made


def test_a_login_link_lets_a_browser_in_once_and_the_person_is_who_acts(door: World, links: LoginLinks) -> None:
    secret = links.new()

    came, again = door.ask("GET", f"/?login={secret}"), door.ask("GET", f"/?login={secret}")

    assert came.status == 303
    assert secret not in str(came.headers)
    assert (again.status, "set-cookie" in again.headers) == (401, False)
    assert "was used already" in again.error["message"]
    assert door.ask(headers=halves(came)).status == 200
    assert door.inside.reached[-1]["state"]["who"] == Principal("ann", frozenset({"admin"}))


def test_of_many_who_follow_a_login_link_at_once_one_is_let_in(door: World, links: LoginLinks) -> None:
    secret = links.new()

    async def all_at_once() -> list[Answer]:
        return await asyncio.gather(*(asked(door.guard, scope_of("GET", f"/?login={secret}"), b"") for _ in range(20)))

    assert sorted(answer.status for answer in asyncio.run(all_at_once())) == [303] + [401] * 19


def test_a_login_link_runs_out_and_no_other_server_knows_it(
    door: World, tokens: Tokens, links: LoginLinks, clock: StoppedClock
) -> None:
    late, elsewhere = links.new(), LoginLinks(tokens, "ann").new()

    clock.advance(601)

    assert [door.ask("GET", f"/?login={secret}").status for secret in (late, elsewhere, "", "x")] == [401] * 4
    assert door.ask("GET", f"/?login={links.new()}").status == 303


def test_what_a_login_link_holds_is_no_token_and_counts_nowhere_else(
    door: World, tokens: Tokens, links: LoginLinks
) -> None:
    secret = links.new()

    elsewhere = [
        door.ask(headers={"authorization": f"Bearer {secret}"}),
        door.ask("GET", f"/?token={secret}"),
        door.ask("GET", f"/api/sessions?login={secret}"),
        door.ask("POST", f"/?login={secret}"),
        door.ask("HEAD", f"/?login={secret}"),
        door.ask("GET", f"/?login={door.secrets['admin']}"),
    ]

    assert [answer.status for answer in elsewhere] == [401] * 6
    assert door.inside.reached == []
    assert tokens.path is not None
    assert secret not in tokens.path.read_text()
    assert door.ask("GET", f"/?login={secret}").status == 303, "none of that has used it up"


def test_a_server_without_login_links_takes_none(world: World, links: LoginLinks) -> None:
    assert world.ask("GET", f"/?login={links.new()}").status == 401


def test_a_visit_by_a_login_link_outlives_the_server_and_ends_when_its_token_is_revoked(
    door: World, tokens: Tokens, links: LoginLinks, clock: StoppedClock
) -> None:
    visit, waiting = halves(door.ask("GET", f"/?login={links.new()}")), links.new()
    restarted = Guard(door.inside, door.settings, tokens, clock=clock, links=LoginLinks(tokens, "ann"))
    assert asyncio.run(asked(restarted, scope_of("GET", "/api/sessions", headers=visit), b"")).status == 200
    assert [t.name for t in tokens.known() if t.login] == ["ann"]

    tokens.revoke("ann")

    assert door.ask(headers=visit).status == 401
    assert door.ask("GET", f"/?login={waiting}").status == 401
    fresh = halves(door.ask("GET", f"/?login={links.new()}"))
    assert door.ask(headers=visit).status == 401
    assert door.ask(headers=fresh).status == 200


def test_a_token_that_somebody_has_is_not_taken_for_that_of_login_links(tokens: Tokens) -> None:
    secret, _ = tokens.new("ann", ["read"])

    made = tokens.of_person("ann")

    assert (made.name, made.login, tokens.of_person("ann")) == ("ann-2", True, made)
    assert tokens.find(secret) is not None


def test_wrong_login_links_are_bounded_like_wrong_tokens(door: World) -> None:
    statuses = [door.ask("GET", f"/?login=guess{n}").status for n in range(25)]

    assert statuses[0] == 401
    assert statuses[-1] == 429


# ---------------------------------------------------------------------- "tokens are … named, revocable, with scopes"


def test_the_app_is_told_who_asks_and_never_the_token(world: World) -> None:
    world.ask("GET", headers=world.bearer("read") | world.cookie("admin"))

    scope = world.inside.reached[0]
    assert scope["state"]["who"] == Principal("read", frozenset({"read"}))
    assert not any(secret.encode() in repr(scope).encode() for secret in world.secrets.values())


def test_a_revoked_token_is_refused_at_once_and_a_new_one_let_in(world: World, tmp_path: Path) -> None:
    assert world.ask(headers=world.bearer("read")).status == 200
    elsewhere = Tokens(tmp_path / "onefold" / "tokens.json")

    elsewhere.revoke("read")
    fresh, _ = elsewhere.new("fresh", ["read"])

    assert world.ask(headers=world.bearer("read")).status == 401
    assert world.ask(headers={"authorization": f"Bearer {fresh}"}).status == 200


def test_the_file_says_when_a_token_was_used_last(world: World, tokens: Tokens, clock: StoppedClock) -> None:
    world.ask(headers=world.bearer("read"))

    assert {t.name: t.last_used for t in tokens.known() if t.last_used} == {"read": clock.now}


def test_a_token_that_ran_out_is_refused(world: World, tokens: Tokens, clock: StoppedClock) -> None:
    short, _ = tokens.new("short", ["read"], expires=60)
    clock.advance(61)

    assert world.ask(headers={"authorization": f"Bearer {short}"}).status == 401


@pytest.mark.parametrize(("asks", "needed"), sorted(SCOPE_OF.items(), key=str))
def test_each_call_takes_the_scope_of_the_table_and_refuses_by_its_name(
    world: World, asks: tuple[str, str], needed: str | None
) -> None:
    method, path = asks

    answers = {scope: world.ask(method, path, headers=world.bearer(scope)) for scope in SCOPES}

    allowed = set(SCOPES) if needed is None else {needed, "admin"}
    assert {scope for scope, answer in answers.items() if answer.status == 200} == allowed
    for scope in set(SCOPES) - allowed:
        assert answers[scope].status == 403
        assert answers[scope].error["message"] == f"token '{scope}' lacks the scope '{needed}'"
        assert answers[scope].error["remedy"] == f"`onefold token new NAME --scope {needed}`"


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("HEAD", "/api/sessions", "read"),
        ("GET", "/openapi.json", "read"),
        ("GET", "/api/not-there-yet", "read"),
        ("POST", "/api/not-there-yet", "admin"),
        ("DELETE", "/api/sessions", "admin"),
        ("POST", "/api/append/", "admin"),
        ("post", "/api/append", "admin"),
        ("GET", "/debug/other", "admin"),
        ("GET", "/static/app.js", None),
        ("POST", "/static/app.js", "admin"),
    ],
)
def test_what_is_in_no_table_is_not_left_open(method: str, path: str, needed: str | None) -> None:
    assert scope_for(method, path) == needed


# ---------------------------------------------------------------------- "from a file or the environment in containers"


def test_a_token_from_the_environment_or_a_file_lets_one_in(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"board:read:{'b' * 40}\n")
    tokens = Tokens(None, token_file=tmp_path / "secret", environ={"ONEFOLD_TOKEN": "e" * 40})
    guard = Guard(Inside(), Settings(), tokens)

    def status(secret: str, method: str, path: str) -> int:
        headers = {"authorization": f"Bearer {secret}"}
        return asyncio.run(asked(guard, scope_of(method, path, headers=headers), b"")).status

    assert status("e" * 40, "POST", "/api/verify") == 200
    assert status("b" * 40, "GET", "/api/sessions") == 200
    assert status("b" * 40, "POST", "/api/append") == 403
    assert status("c" * 40, "GET", "/api/sessions") == 401


# ---------------------------------------------------------------------- "no token, no answer"

PATHS = [
    "/",
    "/api/sessions",
    "/api/append",
    "/static/app.js",
    "/metrics",
    "/debug/sessions",
    "/nothing",
    "/%2e%2e/",
    "/a\\b",
]


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "PUT", "TRACE", "FOO"])
def test_without_a_token_every_path_gives_the_same_answer_and_reaches_nothing(world: World, method: str) -> None:
    answers = [world.ask(method, path) for path in PATHS]

    assert {answer.status for answer in answers} == {401}
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}
    assert len({answer.body for answer in answers}) == 1
    assert len({json.dumps({k: v for k, v in a.headers.items() if k != "cache-control"}) for a in answers}) == 1
    assert world.inside.reached == []


@pytest.mark.parametrize("path", ["/", "/api/sessions", "/metrics", "/static/app.js", "/nothing/there"])
def test_a_browser_without_a_token_is_shown_how_to_sign_in_the_same_at_every_path(world: World, path: str) -> None:
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

    shown = world.ask("GET", path, headers=browser)

    assert (shown.status, shown.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert b"onefold serve" in shown.body
    assert shown.body == world.ask("GET", "/", headers=browser).body
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert "frame-ancestors 'none'" in policy
    assert world.ask("GET", path, headers=world.bearer() | browser).headers["content-security-policy"] != policy
    assert world.ask("GET", path, headers={"accept": "*/*"}).error["message"] == "a token is needed"


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Basic b25lZm9sZDpvbmVmb2xk"},
        {"authorization": "Bearer \xff\xfe"},
        {"cookie": "onefold-8642="},
        {"cookie": "onefold-8642=wrong; ;=;;"},
        {"x-api-key": "anything"},
    ],
)
def test_what_is_no_token_of_ours_is_refused_like_none(world: World, headers: dict[str, str]) -> None:
    none = world.ask()

    assert world.ask(headers=headers) == none


def test_a_token_is_taken_from_a_header_or_the_cookie_of_this_port(world: World) -> None:
    secret = world.secrets["read"]

    assert world.ask(headers={"authorization": f"bearer {secret}"}).status == 200
    assert world.ask(headers=world.cookie("read")).status == 200
    assert world.ask(headers={"cookie": f"onefold-8642={secret}"}).status == 401, "the token itself is no cookie"
    other = {name: value.replace("onefold-8642", "onefold-9000") for name, value in world.cookie("read").items()}
    assert world.ask(headers=other).status == 401
    assert world.ask(headers={"authorization": "Bearer wrong"} | world.cookie()).status == 401


# ---------------------------------------------------------------------- visits of browsers


def test_the_cookie_alone_which_every_port_is_sent_opens_nothing_but_the_pages_files(world: World) -> None:
    """M9: whoever serves another port of this host has it, and can send what headers they like."""
    stolen = {name: value for name, value in world.cookie().items() if name == "cookie"}
    like_the_page = {"origin": f"http://{HERE}", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}

    for half in ({}, {"x-onefold-page": ""}, {"x-onefold-page": "x" * 43}, {"x-onefold-page": "\xff"}):
        for (method, path), needed in SCOPE_OF.items():
            answer = world.ask(method, path, headers=stolen | like_the_page | half)
            assert answer.status == (200 if needed is None else 401), (method, path)
            assert "set-cookie" not in answer.headers, "it does not last longer by that"
    assert {scope["path"] for scope in world.inside.reached} == {"/"}
    assert world.ask("GET", "/static/app.js", headers=stolen).status == 200


def test_neither_half_of_a_visit_is_a_token(world: World) -> None:
    both = world.cookie()
    value, half = both["cookie"].partition("onefold-8642=")[2], both["x-onefold-page"]

    for secret in (value, half, f"{value}{half}", f"onefold_{half}", value.split(".")[0]):
        assert world.ask(headers={"authorization": f"Bearer {secret}"}).status == 401
        assert world.ask(headers={"authorization": f"Bearer {secret}", **both}).status == 401
        assert world.ask("GET", f"/?token={secret}").status == 401
        assert world.ask(headers={"cookie": f"onefold-8642={secret}", "x-onefold-page": half}).status == (
            200 if secret == value else 401
        )


def test_no_sign_of_a_cookie_can_be_another_one(world: World) -> None:
    both = world.cookie("read")
    name, _, value = both["cookie"].partition("onefold-8642=")

    for at, sign in enumerate(value):
        other = value[:at] + ("1" if sign != "1" else "2") + value[at + 1 :]
        assert world.ask(headers=both | {"cookie": f"{name}onefold-8642={other}"}).status in (401, 429), at


def test_the_halves_of_two_visits_do_not_fit(world: World) -> None:
    one, other = world.cookie(), world.cookie()

    assert world.ask(headers=one).status == world.ask(headers=other).status == 200
    assert world.ask(headers=one | {"x-onefold-page": other["x-onefold-page"]}).status == 401


@pytest.mark.parametrize(
    ("host", "scheme"), [("localhost:8642", "http"), ("127.0.0.1:9000", "http"), ("127.0.0.1:8642", "https")]
)
def test_a_visit_counts_at_the_address_that_it_began_at(world: World, host: str, scheme: str) -> None:
    both = world.cookie()
    port = host.rpartition(":")[2]
    both["cookie"] = both["cookie"].replace("onefold-8642", f"onefold-{port}")

    assert world.ask(headers=both | {"host": host}, scheme=scheme).status == 401
    assert world.ask("GET", "/", headers=both | {"host": host}, scheme=scheme).status == 401


def test_a_visit_lasts_while_its_page_is_used_and_no_longer_than_a_month(world: World, clock: StoppedClock) -> None:
    both = world.cookie("read")
    for _ in range(9):
        clock.advance(3 * 86_400 - 1)
        answer = world.ask(headers=both)
        assert answer.status == 200
        name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
        both["cookie"] = f"{name}={value}"
        assert "set-cookie" not in world.ask(headers=both).headers, "not with every answer"
    left = int(answer.headers["set-cookie"].rpartition("Max-Age=")[2])
    assert left == 3 * 86_400
    clock.advance(left - 1)
    assert world.ask(headers=both).status == 200
    clock.advance(10)
    assert world.ask(headers=both).status == 401, "a month is over"

    unused = world.cookie("read")
    clock.advance(3 * 86_400)
    assert world.ask(headers=unused).status == 401


def test_a_visit_ends_with_its_token_at_once(world: World, tokens: Tokens, clock: StoppedClock) -> None:
    short, _ = tokens.new("short", ["read"], expires=60)
    both, lasting = halves(world.ask("GET", f"/?token={short}")), world.cookie("write")
    assert world.ask(headers=both).status == 200

    clock.advance(61)
    tokens.revoke("write")
    tokens.new("write", ["write"])

    assert world.ask(headers=both).status == 401
    assert world.ask("GET", "/", headers=both).status == 401
    assert world.ask("POST", "/api/append", headers=lasting | {"origin": f"http://{HERE}"}).status == 401


def test_a_visit_outlives_the_server_and_a_browser_that_logged_out_does_not_come_back(
    world: World, tokens: Tokens, clock: StoppedClock
) -> None:
    own = {"origin": f"http://{HERE}"}
    goes, stays = world.cookie() | own, world.cookie() | own

    assert world.ask("POST", "/api/logout", headers=goes | {"x-onefold-page": "guessed"}).status == 401
    assert world.ask("POST", "/api/logout", headers={k: v for k, v in goes.items() if k != "origin"}).status == 403
    out = world.ask("POST", "/api/logout", headers=goes)

    assert (out.status, out.body) == (204, b"")
    assert out.headers["set-cookie"] == "onefold-8642=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
    assert world.ask(headers=goes).status == 401
    again = Guard(world.inside, world.settings, tokens, clock=clock)
    statuses = [
        asyncio.run(asked(again, scope_of("GET", "/api/sessions", headers=h), b"")).status for h in (goes, stays)
    ]
    assert statuses == [401, 200]


def test_the_key_of_visits_is_for_its_owner_alone(world: World, tokens: Tokens) -> None:
    assert tokens.path is not None
    kept = tokens.path.with_name("tokens.json.visits")
    both = world.cookie()

    assert kept.stat().st_mode & 0o777 == 0o600
    assert both["x-onefold-page"] not in kept.read_text()

    for spoil in (lambda: kept.write_text("{}"), lambda: kept.chmod(0o644)):
        spoil()
        other = World.__new__(World)
        other.guard = Guard(world.inside, world.settings, tokens, clock=world.clock)
        assert other.ask(headers=both).status == 503
        assert other.ask("GET", f"/?token={world.secrets['admin']}").status == 503
        assert other.ask(headers=world.bearer()).status == 200, "who shows a token needs no visit"


def test_where_nothing_can_be_kept_visits_end_with_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {"environ": {"ONEFOLD_TOKEN": "e" * 40}}
    (tmp_path / "file").write_text("")
    for path, warned in ((None, 0), (tmp_path / "file" / "tokens.json", 1)):
        caplog.clear()
        tokens = Tokens(None, **given)  # type: ignore[arg-type]
        visits = BrowserSessions(path, tokens)
        guard = Guard(Inside(), Settings(), tokens, visits=visits)
        both = halves(asyncio.run(asked(guard, scope_of("GET", f"/?token={'e' * 40}"), b"")))
        assert asyncio.run(asked(guard, scope_of("GET", "/api/sessions", headers=both), b"")).status == 200
        other = Guard(Inside(), Settings(), tokens, visits=BrowserSessions(path, tokens))
        assert asyncio.run(asked(other, scope_of("GET", "/api/sessions", headers=both), b"")).status == 401
        assert len([r for r in caplog.records if "show their token again" in r.getMessage()]) == 2 * warned


@pytest.mark.parametrize(("path", "elsewhere"), [("/healthz", 200), ("/readyz", 403)])
def test_health_is_told_to_everybody_and_readiness_to_who_knows_the_name(
    world: World, path: str, elsewhere: int
) -> None:
    assert world.ask("GET", path).status == 200
    assert world.ask("GET", path, headers={"host": "10.1.2.3:8642"}).status == elsewhere
    assert world.ask("POST", path).status == 401
    assert world.ask("GET", path + "/x").status == 401


def test_if_tokens_cannot_be_read_nobody_is_let_in_and_the_log_says_why(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "onefold" / "tokens.json").chmod(0o644)

    with caplog.at_level(logging.ERROR, "onefold.server"):
        answers = [world.ask(headers=world.bearer()) for _ in range(3)]

    assert [a.status for a in answers] == [503] * 3
    assert "tokens.json" not in answers[0].body.decode()
    assert [r.getMessage().partition(";")[0] for r in caplog.records] == [
        f"{tmp_path}/onefold/tokens.json can be reached by other users of this machine"
    ]


# ---------------------------------------------------------------------- "other sites' pages cannot reach it"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "localhost.evil.example:8642",
             "evil.example#@127.0.0.1", "10.0.0.5",
             "[::2]", "127.0.0.1:8642:1", "127.0.0.1 ", "", "[::1", "localhost.", "a@localhost", "0.0.0.0"],
)  # fmt: skip
def test_another_name_in_host_is_refused_so_that_dns_rebinding_leads_nowhere(world: World, host: str) -> None:
    answer = world.ask(headers={"host": host, **world.bearer()})

    assert answer.status == 403
    assert world.inside.reached == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:8642", "[::1]:8642", "127.0.0.1:9999"])
def test_the_names_of_loopback_are_its_own(world: World, host: str) -> None:
    assert world.ask(headers={"host": host, **world.bearer()}).status == 200


def test_other_names_have_to_be_told(make: Make) -> None:
    world = make(hosts=("box.lan", "other.lan:81"), proxy="https://agents.example.org")

    def status(host: str) -> int:
        return world.ask(headers={"host": host, **world.bearer()}).status

    assert [status(h) for h in ("box.lan", "box.lan:8642", "other.lan:81", "agents.example.org")] == [200] * 4
    assert [status(h) for h in ("other.lan", "x.box.lan", "example.org")] == [403] * 3


def test_a_server_on_every_address_takes_addresses_and_no_names(make: Make) -> None:
    world = make(host="0.0.0.0", allow_remote=True)

    def status(host: str) -> int:
        return world.ask(headers={"host": host, **world.bearer()}).status

    assert [status(h) for h in ("10.0.0.5:8642", "[fe80::1]:8642", "localhost")] == [200] * 3
    assert status("evil.example") == 403


def test_a_request_without_a_host_is_refused(world: World) -> None:
    assert world.ask(headers={"host": None, **world.bearer()}).status == 400


@pytest.mark.parametrize(
    "origin",
    [ELSEWHERE, "null", "", "http://127.0.0.1", "http://127.0.0.1:3000", "https://127.0.0.1:8642", "http://localhost:8642",
     "http://127.0.0.1:8642.evil.example", "http://127.0.0.1:8642/", "http://x@127.0.0.1:8642", "file://"],
)  # fmt: skip
@pytest.mark.parametrize("by", ["bearer", "cookie"])
def test_a_page_of_another_origin_is_refused_whatever_it_shows(world: World, origin: str, by: str) -> None:
    shown = getattr(world, by)()

    for method, path in (("GET", "/api/sessions"), ("POST", "/api/append"), ("OPTIONS", "/api/append")):
        answer = world.ask(method, path, headers={"origin": origin, **shown})
        assert answer.status == 403
        assert not any(name.startswith("access-control-") for name in answer.headers)
    assert world.inside.reached == []


def test_a_page_of_its_own_is_let_in(world: World, make: Make) -> None:
    own = {"origin": f"http://{HERE}", "sec-fetch-site": "same-origin"}

    assert world.ask("POST", "/api/append", headers=own | world.cookie()).status == 200
    assert world.ask("GET", headers=own | world.cookie()).status == 200


def test_a_page_behind_the_proxy_is_its_own(make: Make) -> None:
    world = make(proxy="https://agents.example.org")
    own = {"origin": "https://agents.example.org", **world.bearer()}

    assert world.ask("POST", "/api/append", headers={"host": "agents.example.org", **own}).status == 200
    assert world.ask("POST", "/api/append", headers=own).status == 200, "a proxy that does not pass the name on"
    other = own | {"host": "agents.example.org", "origin": "http://agents.example.org"}
    assert world.ask("POST", "/api/append", headers=other).status == 403


def test_a_write_with_a_cookie_has_to_say_which_page_it_is_from(world: World) -> None:
    assert world.ask("POST", "/api/append", headers=world.cookie()).status == 403
    assert world.ask("POST", "/api/append", headers=world.bearer()).status == 200, "no browser sends this by itself"
    assert world.ask("GET", headers=world.cookie()).status == 200


def test_a_picture_or_script_on_another_page_is_refused_and_a_link_is_followed(world: World) -> None:
    for site in ("cross-site", "same-site"):
        loaded = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
        framed = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
        followed = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        assert world.ask(headers=loaded | world.cookie()).status == 403
        assert world.ask("GET", "/", headers=framed | world.cookie()).status == 403
        assert world.ask("GET", f"/?token={world.secrets['read']}", headers=followed).status == 200
        assert world.ask("POST", "/api/append", headers=followed | world.bearer()).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_on_another_site_goes_on_by_a_page_since_a_redirect_would_come_without_the_cookie(
    world: World, site: str
) -> None:
    followed = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}

    came = world.ask("GET", f"/?token={world.secrets['read']}", headers=followed)

    place = re.search(rb'content="0; url=(/#page=[\w-]{43})"', came.body)
    assert place is not None
    assert came.headers["content-type"] == "text/html; charset=utf-8"
    assert world.secrets["read"].encode() not in came.body
    key = place[1].decode().removeprefix("/#page=")
    visit = {"cookie": came.headers["set-cookie"].partition(";")[0], "x-onefold-page": key}
    assert world.ask(headers=visit).status == 200


def test_no_answer_has_a_cors_header_and_every_answer_has_those_that_guard(world: World) -> None:
    world.inside.headers = [
        (b"Access-Control-Allow-Origin", b"*"), (b"content-security-policy", b"default-src *"),
        (b"cache-control", b"public"), (b"content-type", b"text/html"),
    ]  # fmt: skip

    answers = [
        world.ask(headers=world.bearer()),
        world.ask(),
        world.ask("GET", "/healthz"),
        world.ask("GET", "/?token=x"),
    ]

    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert not any(name.lower().startswith("access-control") for name in answer.headers)
        assert policy.startswith("default-src 'self'; script-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "*" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answers[0].headers["content-type"] == "text/html"
    static = world.ask("GET", "/static/app.js", headers=world.bearer())
    assert static.headers["cache-control"] == "public", "the page's files may be kept"


def test_only_a_stated_proxy_is_believed(make: Make) -> None:
    world = make(proxies=("10.0.0.0/24",), hosts=("agents.example.org",))
    says = {
        "x-forwarded-proto": "https",
        "x-forwarded-host": "agents.example.org",
        "x-forwarded-for": "6.6.6.6, 203.0.113.9, 10.0.0.8",
        "origin": "https://agents.example.org",
        **world.bearer(),
    }

    believed = world.ask("POST", "/api/append", headers=says, peer="10.0.0.7")
    doubted = world.ask("POST", "/api/append", headers=says, peer="10.0.1.7")

    assert (believed.status, doubted.status) == (200, 403)
    assert world.inside.reached[0]["client"] == ("203.0.113.9", 0), "the last one that is no proxy"
    rebound = says | {"x-forwarded-host": "evil.example", "origin": None}
    assert world.ask("POST", "/api/append", headers=rebound, peer="10.0.0.7").status == 403


def test_who_is_behind_proxies_is_the_last_one_that_a_proxy_saw() -> None:
    names = AllowedHosts(Settings(proxies=("10.0.0.0/24", "::1")))

    assert names.farthest("10.0.0.7", ["203.0.113.9"]) == "203.0.113.9"
    assert names.farthest("10.0.0.7", ["6.6.6.6", "203.0.113.9", " 10.0.0.3"]) == "203.0.113.9"
    assert names.farthest("10.0.0.7", [""]) == "10.0.0.7"
    assert names.farthest("10.0.0.7", ["6.6.6.6", "<script>"]) == "10.0.0.7"
    assert names.farthest("203.0.113.9", ["6.6.6.6"]) == "203.0.113.9"
    assert names.is_proxy("::ffff:10.0.0.7")


def test_an_origin_is_scheme_name_and_port() -> None:
    assert PublicAddress.at("https://Agents.Example.org") == PublicAddress("https", "agents.example.org", 443)
    assert PublicAddress.at("http://[::1]:8642") == PublicAddress("http", "[::1]", 8642)
    assert [
        PublicAddress.at(o) for o in ("null", "ftp://a", "http://", "http://a/b", "//a", "http://a:b", "http://a:1:2")
    ] == [None] * 7


# ---------------------------------------------------------------------- "listening beyond loopback …"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.5", "2001:db8::1", "agents.example.org"])
def test_listening_beyond_loopback_is_refused_unless_it_is_safe_or_told_otherwise(host: str) -> None:
    with pytest.raises(
        ListeningRefused, match=r"can be reached from other machines.*--tls-cert.*--proxy.*--allow-remote"
    ):
        check_listening(Settings(host=host))

    check_listening(Settings(host=host, tls_cert=Path("cert.pem"), tls_key=Path("key.pem")))
    check_listening(Settings(host=host, proxy="https://agents.example.org"))
    check_listening(Settings(host=host, proxies=("10.0.0.7",)))
    check_listening(Settings(host=host, allow_remote=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost", "::ffff:127.0.0.1"])
def test_loopback_by_any_name_needs_nothing(host: str) -> None:
    check_listening(Settings(host=host))


def test_a_proxy_that_is_no_address_is_refused() -> None:
    with pytest.raises(ListeningRefused, match=r"proxy 'agents\.example\.org' is not an address; write it as https://"):
        check_listening(Settings(host="0.0.0.0", proxy="agents.example.org"))
    with pytest.raises(ListeningRefused, match="'the proxy' is not the address of a proxy"):
        check_listening(Settings(host="0.0.0.0", proxies=("the proxy",)))


# ---------------------------------------------------------------------- "limits on body size, rate and connections"


def test_a_body_that_is_too_large_is_refused_by_its_length_and_by_its_bytes(make: Make) -> None:
    world = make(max_body=100)
    announced = {"content-length": "101", **world.bearer()}
    chunked = {"transfer-encoding": "chunked", **world.bearer()}

    assert world.ask("POST", "/api/append", headers=announced, body=b"x" * 101).status == 413
    assert world.ask("POST", "/api/append", headers=chunked, body=[b"x" * 60, b"x" * 41]).status == 413
    assert world.inside.reached == []
    within = world.ask("POST", "/api/append", headers=chunked, body=[b"x" * 60, b"x" * 40])
    assert (within.status, within.body) == (200, b"inside:" + b"x" * 100)


def test_a_body_is_not_even_read_for_one_who_may_not(make: Make) -> None:
    world = make(max_body=100)
    read: list[str] = []

    async def unread() -> Message:
        read.append("body")
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def drop(message: Message) -> None:
        pass

    for headers in ({}, world.bearer("read"), {"origin": ELSEWHERE, **world.bearer()}):
        asyncio.run(world.guard(scope_of("POST", "/api/append", headers=headers), unread, drop))

    assert read == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT"])
def test_the_limit_holds_for_every_method(make: Make, method: str) -> None:
    world = make(max_body=100)

    answer = world.ask(method, "/api/sessions", headers={"content-length": "1000", **world.bearer()}, body=b"x" * 1000)

    assert answer.status == 413


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "", " ", "\u0661", "1,1", "9" * 40])
def test_a_content_length_that_is_no_number_is_refused(world: World, length: str) -> None:
    scope = scope_of("POST", "/api/append", headers=world.bearer())
    scope["headers"].append((b"content-length", length.encode()))

    assert asyncio.run(asked(world.guard, scope, b"x")).status == 400


@pytest.mark.parametrize("came", [b"", b"12345678", b"123456789012"])
def test_a_content_length_that_lies_is_refused(world: World, came: bytes) -> None:
    answer = world.ask("POST", "/api/append", headers={"content-length": "10", **world.bearer()}, body=came)

    assert answer.status == 400
    assert world.inside.reached == []


@pytest.mark.parametrize(
    "twice", ["host", "origin", "authorization", "content-length", "transfer-encoding", "content-type"]
)
def test_a_header_that_may_come_once_is_refused_twice(world: World, twice: str) -> None:
    value = {"host": HERE, "origin": f"http://{HERE}", "content-length": "0"}.get(
        twice, world.bearer()["authorization"]
    )

    answer = world.ask("GET", headers={**world.bearer(), twice: [value, value]})

    assert answer.status == 400


def test_two_ways_to_say_how_long_a_body_is_are_refused(world: World) -> None:
    headers = {"content-length": "1", "transfer-encoding": "chunked", **world.bearer()}

    assert world.ask("POST", "/api/append", headers=headers, body=b"x").status == 400


def test_too_many_or_too_large_headers_are_refused(world: World) -> None:
    many = {f"x-{n}": "1" for n in range(200)}

    assert world.ask(headers=many | world.bearer()).status == 431
    assert world.ask(headers={"x-big": "x" * 40_000, **world.bearer()}).status == 431
    assert world.ask("GET", "/healthz", headers=many).status == 431


@pytest.mark.parametrize(
    "path",
    ["/../etc/passwd", "/static/../../tokens.json", "/static/..", "/static/./app.js", "/static/%2e%2e/x",
     "/static/..%2f..%2fx", "/static%2fapp.js", "/api/%73essions", "/api/sessions%00", "/api/sessions%00.js",
     "/api//sessions", "//api/sessions", "/api/sessions;x=1", "/api\\sessions", "/static/%5c..%5cx",
     "/static/%252e%252e/x", "http://127.0.0.1:8642/api/sessions", "*",
     "/api/sess\x00ions", "/api/\xff", "/api/se ssions", "/%c0%ae%c0%ae/"],
)  # fmt: skip
def test_a_path_that_could_mean_another_is_refused(world: World, path: str) -> None:
    answer = world.ask("GET", path, headers=world.bearer())

    assert answer.status == 400
    assert world.inside.reached == []


@pytest.mark.parametrize(
    "path", ["/", "/api/sessions", "/api/sessions/", "/static/page.min.js", "/static/a..b", "/.well-known"]
)
def test_an_honest_path_is_let_through(world: World, path: str) -> None:
    assert world.ask("GET", path, headers=world.bearer()).status == 200


def test_json_that_is_nested_too_deeply_is_refused_before_anybody_parses_it(make: Make) -> None:
    world = make(max_depth=50)

    def status(body: bytes) -> int:
        return world.ask("POST", "/api/append", headers=world.bearer(), body=body).status

    assert status(b"[" * 50 + b"]" * 50) == 200
    assert status(b"[" * 51 + b"]" * 51) == 400
    assert status(b'{"a":' * 51 + b"1" + b"}" * 51) == 400
    assert status(b'[{"a":' * 26 + b"1" + b"}]" * 26) == 400
    assert status(b"[" * 100_000) == 400
    assert status(b"[]," * 1000) == 200
    assert status(json.dumps({"text": "[{" * 1000}).encode()) == 200, "what is said is no structure"
    assert status(json.dumps({"text": '\\"' * 99 + "[" * 1000}).encode()) == 200
    assert status(b'["\\\\",' + b"[" * 60 + b"]" * 61) == 400, (
        "the quote ends the string: the sign before it is escaped"
    )
    assert status(b" " * 300_000 + b"[" * 51 + b"]" * 51) == 400, "a large one, looked at in a thread"
    assert status(b"[" * 40_000 + b"]" * 40_000) == 400


def test_depth_is_what_a_parser_finds() -> None:
    def deep(value: Any) -> int:
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(deep, inner), default=0)

    texts = ["", '"', "\\", '\\"', '"[', "]}", "a", '{"b": [', "\\\\", "é[", "\n"]
    values: list[Any] = [1, [], {}, [[]], {"a": [{}]}, [texts], {t: [t, {t: [t]}] for t in texts}]
    values.append([list(values), {"x": list(values)}])

    for value in values:
        for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
            assert body_limit.depth(text.encode(), 1000) == deep(value)


def test_a_token_is_slowed_down_and_told_when_to_come_again(make: Make, clock: StoppedClock) -> None:
    world = make(rate=0.5, burst=3)

    statuses = [world.ask(headers=world.bearer("read")).status for _ in range(4)]
    refused = world.ask(headers=world.bearer("read"))

    assert statuses == [200, 200, 200, 429]
    assert (refused.status, refused.headers["retry-after"]) == (429, "2")
    assert world.ask(headers=world.bearer("write")).status == 403, "another token has its own rate"
    clock.advance(2)
    assert world.ask(headers=world.bearer("read")).status == 200
    assert world.ask(headers=world.bearer("read")).status == 429


def test_wrong_tokens_from_one_address_are_slowed_down_and_right_ones_are_not(make: Make, clock: StoppedClock) -> None:
    world = make(wrong_tokens=3, allow_remote=True)

    def status(peer: str, secret: str) -> int:
        return world.ask(headers={"authorization": f"Bearer {secret}"}, peer=peer).status

    assert [status("127.0.0.1", f"guess-{n}") for n in range(5)] == [401, 401, 401, 429, 429]
    assert status("127.0.0.1", world.secrets["read"]) == 200, "nobody locks the owner out"
    assert world.ask(peer="127.0.0.1").status == 401, "to have no token is no guess"
    assert status("127.0.0.2", "guess") == 401
    assert [status(f"2001:db8::{n}", "guess") for n in range(1, 5)] == [401, 401, 401, 429], "a network of one's own"
    assert world.ask("GET", "/?token=guess").headers["retry-after"] == "3"
    clock.advance(3)
    assert [status("127.0.0.1", "guess") for _ in range(2)] == [401, 429]


def test_a_bucket_holds_its_burst_and_no_more_however_long_nobody_takes(clock: StoppedClock) -> None:
    buckets = RateLimiter(2.0, 3, clock)
    buckets.take("a")
    clock.advance(3_600)

    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_bucket_says_how_long_it_takes_until_there_is_one_and_then_there_is(clock: StoppedClock) -> None:
    buckets = RateLimiter(0.5, 1, clock)
    buckets.take("a")
    clock.advance(1.5)

    assert buckets.take("a") == pytest.approx(0.5)
    clock.advance(0.5)
    assert buckets.take("a") == 0


def test_a_bucket_without_a_burst_holds_one(clock: StoppedClock) -> None:
    buckets = RateLimiter(1.0, 0, clock)

    assert [buckets.take("a"), buckets.take("a")] == [0, 1.0]


def test_buckets_do_not_grow_with_the_number_of_keys(clock: StoppedClock) -> None:
    buckets = RateLimiter(1.0, 1, clock, most=10)

    for n in range(100):
        buckets.take(f"key-{n}")

    assert len(buckets._left) == 10
    assert buckets.take("key-99") == 1.0
    clock.now -= 50
    assert buckets.take("key-99") == 1.0, "a clock that goes back fills nothing"
    assert RateLimiter(0, 1, clock).take("any") == RateLimiter(0, 1, clock).take("any") == 0


def held(world: World, path: str, secret: str, entered: asyncio.Event, until: asyncio.Event) -> Awaitable[Answer]:
    """A request that stays inside until it is let go."""

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await until.wait()
        await Inside()(scope, receive, send)

    world.guard._app = waits
    return asyncio.ensure_future(
        asked(world.guard, scope_of("GET", path, headers={"authorization": f"Bearer {secret}"}), b"")
    )


def test_more_connections_than_there_is_room_for_are_told_to_come_again(make: Make) -> None:
    world = make(max_connections=2)

    async def story() -> tuple[Answer, Answer, list[int]]:
        until = asyncio.Event()
        waiting = []
        for _ in range(2):
            entered = asyncio.Event()
            waiting.append(held(world, "/api/sessions", world.secrets["read"], entered, until))
            await asyncio.wait_for(entered.wait(), 5)
        full = await asked(world.guard, scope_of("GET", "/api/sessions", headers=world.bearer()), b"")
        until.set()
        done = [(await w).status for w in waiting]
        after = await asked(world.guard, scope_of("GET", "/api/sessions", headers=world.bearer()), b"")
        return full, after, done

    full, after, done = asyncio.run(story())

    assert (full.status, full.headers["retry-after"]) == (503, "1")
    assert (done, after.status) == ([200, 200], 200)


def test_one_token_has_no_more_streams_than_it_may(make: Make) -> None:
    world = make(max_streams=1)

    async def story() -> list[int]:
        until, entered = asyncio.Event(), asyncio.Event()
        first = held(world, "/api/events", world.secrets["read"], entered, until)
        await asyncio.wait_for(entered.wait(), 5)
        until_others = asyncio.Event()
        until_others.set()
        second = await held(world, "/api/events", world.secrets["read"], asyncio.Event(), until_others)
        other = await held(world, "/api/events", world.secrets["admin"], asyncio.Event(), until_others)
        page = await held(world, "/api/sessions", world.secrets["read"], asyncio.Event(), until_others)
        until.set()
        done = (await first).status
        again = await held(world, "/api/events", world.secrets["read"], asyncio.Event(), until_others)
        return [second.status, other.status, page.status, done, again.status]

    assert asyncio.run(story()) == [429, 200, 200, 200, 200]


def test_every_status_of_a_refusal_is_listed_for_the_description_of_the_api() -> None:
    source = (Path(__file__).parents[2] / "src/onefold/server/security/rejections.py").read_text()

    assert {int(s) for s in re.findall(r"Rejection\(\s*(\d{3})", source)} == set(ANSWERS)


# ---------------------------------------------------------------------- on the wire


class Small:
    """A server's worth of app: a stream, a WebSocket, and everything else answers with what it got."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(receive, send)
        elif scope["path"] == "/api/events":
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            await send({"type": "http.response.body", "body": b": here\n\n", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
        else:
            await Inside()(scope, receive, send)

    async def _socket(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": str(len(message.get("text") or ""))})


@dataclass
class Live:
    """A real server on a port of its own."""

    port: int
    tokens: Tokens
    secret: str

    @contextlib.contextmanager
    def speak(self, *lines: str, body: bytes = b"", auth: bool = True) -> Iterator[socket.socket]:
        shown = [f"Authorization: Bearer {self.secret}"] if auth else []
        head = "\r\n".join([lines[0], f"Host: 127.0.0.1:{self.port}", *shown, *lines[1:], "", ""])
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as wire:
            wire.sendall(head.encode("latin-1") + body)
            yield wire

    def ask(self, *lines: str, body: bytes = b"", auth: bool = True) -> bytes:
        """Everything that comes back until the server closes."""
        with self.speak(*lines, "Connection: close", body=body, auth=auth) as wire:
            return to_the_end(wire)

    def visit(self) -> tuple[dict[str, str], str]:
        """The cookie of a browser that came by the link, and the half that its page has."""
        came = self.ask(f"GET /?token={self.secret} HTTP/1.1", auth=False).decode()
        cookie, half = re.search(r"set-cookie: ([^;]+);", came), re.search(r"#page=([\w-]+)", came)
        assert cookie is not None
        assert half is not None
        return {"Cookie": cookie[1]}, half[1]

    def socket(self, **more: Any) -> Any:
        return connect(f"ws://127.0.0.1:{self.port}/api/live", open_timeout=10, proxy=None, **more)


def to_the_end(wire: socket.socket) -> bytes:
    parts = []
    while part := wire.recv(65536):
        parts.append(part)
    return b"".join(parts)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    tokens = Tokens(tmp_path / "onefold" / "tokens.json")
    secret, _ = tokens.new("wire", ["read", "write"])
    settings = Settings(max_body=200_000, body_timeout=0.3, max_connections=20)
    guard = Guard(Small(), settings, tokens, look_every=0.05)
    config = uvicorn.Config(
        guard, log_config=None, access_log=False, proxy_headers=False, server_header=False, lifespan="off",
        ws="websockets-sansio", http=bounded(settings), timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    started = threading.Event()
    startup = server.startup

    async def noticed(sockets: list[socket.socket] | None = None) -> None:
        await startup(sockets)
        started.set()

    server.startup = noticed  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert started.wait(10)
        yield Live(listening.getsockname()[1], tokens, secret)
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        assert not thread.is_alive()


def test_on_the_wire_one_is_let_in_with_a_token_and_not_without(live: Live) -> None:
    inside = live.ask("POST /api/append HTTP/1.1", "Content-Length: 4", body=b"true")
    outside = live.ask("POST /api/append HTTP/1.1", "Content-Length: 4", body=b"true", auth=False)

    assert status_of(inside) == 200
    assert b"inside:true" in inside
    assert status_of(outside) == 401
    assert b"\r\nwww-authenticate: Bearer\r\n" in outside
    assert b"server:" not in outside.lower()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["GET /static/../../../etc/passwd HTTP/1.1"], 400),
        (["GET /static/%2e%2e%2f%2e%2e%2fetc/passwd HTTP/1.1"], 400),
        (["GET /api/sessions%00 HTTP/1.1"], 400),
        (["GET /api/sessions\x00 HTTP/1.1"], 400),
        (["GET http://evil.example/api/sessions HTTP/1.1"], 400),
        (["POST /api/append HTTP/1.1", "Content-Length: 4", "Content-Length: 5"], 400),
        (["POST /api/append HTTP/1.1", "Content-Length: 4", "Transfer-Encoding: chunked"], 400),
        (["POST /api/append HTTP/1.1", "Content-Length: -4"], 400),
        (["POST /api/append HTTP/1.1", "Content-Length: 999999999999"], 413),
        (["GET /api/sessions HTTP/1.1", "Host: evil.example"], 400),
        (["GET /api/sessions HTTP/1.1", "X-Giant: " + "x" * 40_000], 431),
        (["GET /api/sessions HTTP/1.1", *(f"X-{n}: 1" for n in range(150))], 431),
        (["GET /api/sessions HTTP/1.1", "X: a\x00b"], 400),
        (["GET /api/sessions HTTP/1.1", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings"], 200),
        (["GET /api/sessions HTTP/1.1", "Upgrade: websocket"], 200),
        (["GET  /api/sessions  HTTP/1.1"], 400),
        (["\x16\x03\x01\x02\x00"], 400),
    ],
)
def test_what_is_malformed_on_the_wire_is_refused(live: Live, lines: list[str], expected: int) -> None:
    assert status_of(live.ask(*lines)) == expected
    assert status_of(live.ask("GET /api/sessions HTTP/1.1")) == 200


def test_a_giant_header_is_refused_before_it_is_whole(live: Live) -> None:
    with live.speak("GET /api/sessions HTTP/1.1\r\nX-Giant: " + "x" * 100_000) as wire:
        assert status_of(wire.recv(65536)) in (400, 431), "by the server or by the guard: as the pieces arrive"


def test_an_upgrade_to_a_websocket_that_is_none_is_refused(live: Live) -> None:
    with live.speak("GET /api/live HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade") as wire:
        assert status_of(wire.recv(65536)) in (400, 426)


def test_a_body_that_comes_too_slowly_is_given_up(live: Live) -> None:
    with live.speak("POST /api/append HTTP/1.1", "Content-Length: 100", body=b"[1,") as wire:
        answer = to_the_end(wire)

    assert status_of(answer) == 408


def test_a_head_that_comes_byte_by_byte_is_given_up(live: Live) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as wire:
        wire.settimeout(0.02)
        sent = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < 1000:
                wire.sendall(b"G" if sent == 0 else b"E")
                sent += 1
                with contextlib.suppress(TimeoutError):
                    if wire.recv(1) == b"":
                        break

    assert 0 < sent < 1000


def test_a_second_request_on_a_connection_has_its_own_time(live: Live) -> None:
    asks = f"GET /api/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {live.secret}\r\n\r\n".encode()

    with socket.create_connection(("127.0.0.1", live.port), timeout=10) as wire:
        for _ in range(2):
            wire.sendall(asks)
            seen = b""
            while not seen.endswith(b"0\r\n\r\n"):
                seen += wire.recv(65536)
            assert status_of(seen) == 200
        assert to_the_end(wire) == b"", "and one that never comes ends it"


def test_a_stream_stays_open_longer_than_a_head_may_take(live: Live) -> None:
    with live.speak("GET /api/events HTTP/1.1") as events:
        seen = b""
        while b": here" not in seen:
            seen += events.recv(65536)
        events.settimeout(0.6)
        with pytest.raises(TimeoutError):
            events.recv(1)
    with live.socket(additional_headers={"Authorization": f"Bearer {live.secret}"}) as opened:
        with pytest.raises(TimeoutError):
            opened.recv(timeout=0.6)
        opened.send("hello")
        assert opened.recv(timeout=10) == "5"


def test_when_all_connections_are_taken_the_oldest_silent_one_makes_room(live: Live) -> None:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", live.port), timeout=10)) for _ in range(20)]
        assert status_of(live.ask("GET /api/sessions HTTP/1.1")) == 200
        assert all(to_the_end(wire) == b"" for wire in idle), "those who say nothing are let go in time"


def test_a_connection_too_many_is_told_to_come_again(live: Live) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            events = stack.enter_context(live.speak("GET /api/events HTTP/1.1"))
            while b": here" not in events.recv(65536):
                pass
        refused = stack.enter_context(socket.create_connection(("127.0.0.1", live.port), timeout=10))
        assert status_of(to_the_end(refused)) == 503


def test_an_address_has_so_many_idle_connections_and_those_that_asked_before_go_last() -> None:
    class Wire:
        ended = False

        def abort(self) -> None:
            self.ended = True

    rests, first, second, other = (Wire() for _ in range(4))
    headless = IdleConnections()
    headless.add(cast("Any", rests), "a", asked=True)
    for wire, address in ((first, "a"), (second, "a"), (other, "b")):
        headless.add(cast("Any", wire), address, asked=False)
    assert headless.count("a") == 3

    assert headless.drop_oldest("a")
    assert (first.ended, second.ended, rests.ended) == (True, False, False)
    assert headless.drop_oldest()
    assert second.ended
    assert headless.drop_oldest("a")
    assert rests.ended
    assert not headless.drop_oldest("a")
    assert headless.drop_oldest()
    assert other.ended
    assert not headless.drop_oldest()


def test_chunks_without_an_end_are_cut_off_and_the_answer_is_read(live: Live) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"

    with live.speak("POST /api/append HTTP/1.1", "Transfer-Encoding: chunked") as wire:
        for _ in range(20):
            wire.sendall(chunk)
        assert status_of(wire.recv(65536)) == 413


def test_chunks_that_stop_coming_are_given_up(live: Live) -> None:
    with live.speak("POST /api/append HTTP/1.1", "Transfer-Encoding: chunked", body=b"5\r\nhello\r\n") as wire:
        assert status_of(to_the_end(wire)) == 408


def test_what_follows_a_refused_request_is_never_taken_for_another(live: Live) -> None:
    hidden = f"POST /api/append HTTP/1.1\r\nHost: 127.0.0.1:{live.port}\r\nAuthorization: Bearer {live.secret}\r\n\r\n"

    with live.speak(
        "POST /api/append HTTP/1.1", f"Content-Length: {len(hidden)}", body=hidden.encode(), auth=False
    ) as wire:
        answer = to_the_end(wire)

    assert answer.count(b"HTTP/1.1 ") == 1
    assert status_of(answer) == 401


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    with live.speak("POST /api/append HTTP/1.1", "Content-Length: 100", body=b"[1,"):
        pass

    assert status_of(live.ask("GET /api/sessions HTTP/1.1")) == 200
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


def test_a_websocket_is_opened_by_header_cookie_or_protocol(live: Live) -> None:
    own = Origin(f"http://127.0.0.1:{live.port}")
    cookie, half = live.visit()
    offered = [Subprotocol("onefold"), Subprotocol(f"onefold.token.{live.secret}")]
    page = [Subprotocol("onefold"), Subprotocol(f"onefold.page.{half}")]

    with live.socket(additional_headers={"Authorization": f"Bearer {live.secret}"}) as opened:
        opened.send("hello")
        assert opened.recv(timeout=10) == "5"
    with live.socket(additional_headers=cookie, origin=own, subprotocols=page) as opened:
        assert opened.subprotocol == "onefold", "the page's half is not sent back"
    with live.socket(subprotocols=offered) as opened:
        assert opened.subprotocol == "onefold", "the token is not sent back"


def test_a_websocket_is_refused_like_any_other_request(live: Live) -> None:
    cookie, half = live.visit()
    page = [Subprotocol("onefold"), Subprotocol(f"onefold.page.{half}")]
    own = Origin(f"http://127.0.0.1:{live.port}")
    bearer = {"Authorization": f"Bearer {live.secret}"}
    weak, _ = live.tokens.new("weak", ["write"])

    def refused(**more: Any) -> int:
        with pytest.raises(InvalidStatus) as found, live.socket(**more):
            pass
        return found.value.response.status_code

    assert refused() == 401
    assert refused(subprotocols=[Subprotocol("onefold"), Subprotocol("onefold.token.wrong")]) == 401
    assert refused(additional_headers=cookie, subprotocols=page) == 403, "the page has to be its own"
    assert refused(additional_headers=cookie, subprotocols=page, origin=Origin(ELSEWHERE)) == 403
    assert refused(additional_headers=cookie, origin=own) == 401, "another port has the cookie, too"
    assert refused(subprotocols=page, origin=own) == 401
    assert refused(additional_headers=bearer, origin=Origin(ELSEWHERE)) == 403
    assert refused(additional_headers={"Authorization": f"Bearer {weak}"}) == 403


def test_logging_out_ends_what_the_browser_has_open_and_nothing_else(live: Live) -> None:
    own = Origin(f"http://127.0.0.1:{live.port}")
    (cookie, half), (other, its) = live.visit(), live.visit()

    def opened(shown: dict[str, str], key: str) -> Any:
        protocols = [Subprotocol("onefold"), Subprotocol(f"onefold.page.{key}")]
        return live.socket(additional_headers=shown, origin=own, subprotocols=protocols)

    with opened(cookie, half) as goes, opened(other, its) as stays:
        out = live.ask(
            "POST /api/logout HTTP/1.1", f"Cookie: {cookie['Cookie']}", f"X-Onefold-Page: {half}", f"Origin: {own}",
            "Content-Length: 0", auth=False,
        )  # fmt: skip
        assert status_of(out) == 204
        with pytest.raises(ConnectionClosed) as closed:
            goes.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
        stays.send("hello")
        assert stays.recv(timeout=10) == "5"


def test_a_message_that_is_too_large_ends_the_websocket(live: Live) -> None:
    with live.socket(additional_headers={"Authorization": f"Bearer {live.secret}"}) as opened:
        opened.send("x" * 200_001)
        with pytest.raises(ConnectionClosed) as closed:
            opened.recv(timeout=10)

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def test_revoking_a_token_ends_what_it_has_open(live: Live) -> None:
    with (
        live.speak("GET /api/events HTTP/1.1") as events,
        live.socket(additional_headers={"Authorization": f"Bearer {live.secret}"}) as opened,
    ):
        seen = b""
        while b": here" not in seen:
            seen += events.recv(65536)
        opened.send("hello")
        assert opened.recv(timeout=10) == "5"

        live.tokens.revoke("wire")

        with pytest.raises(ConnectionClosed) as closed:
            opened.recv(timeout=10)
        while not seen.endswith(b"0\r\n\r\n"):
            part = events.recv(65536)
            assert part
            seen += part

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    assert "no longer counts" in closed.value.rcvd.reason
    assert re.search(rb'event: refused\ndata: {"error":{.*no longer counts', seen)
    assert status_of(live.ask("GET /api/sessions HTTP/1.1")) == 401


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [("/api/events", b"data: 1\n\n", True), ("/api/events", b"data: {", False), ("/api/export", b"{}\n\n", False)],
)
def test_half_an_event_is_not_made_whole_by_word_of_a_revoked_token(path: str, body: bytes, told: bool) -> None:
    """L11: a client would take the one for the end of the other. And what is no stream of events gets none."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        answer = guard._Answer({"type": "http", "path": path}, _nothing, send)
        await answer.send({"type": "http.response.start", "status": 200})
        await answer.send({"type": "http.response.body", "body": body, "more_body": True})
        await answer.refuse(rejections.revoked())

    asyncio.run(run())

    assert sent[-1]["more_body"] is False
    assert sent[-1]["body"].startswith(b"event: refused\n" if told else b"")
    assert bool(sent[-1]["body"]) == told


async def _nothing() -> Message:
    raise AssertionError("nothing is asked for")
