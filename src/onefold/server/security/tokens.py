"""Tokens: who may use a server, and what for. Only hashes are kept.

A token is 256 random bits, so SHA-256 is enough: nobody can try them all, and a slow hash such as scrypt, made for
passwords that people choose, would only make every request slow. The file is written by whoever holds its lock, and
replaced as a whole; a server looks at its date with every request, so that a token counts, or no longer does, at once.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import math
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from shlex import quote
from typing import Any, Literal, cast, get_args

from onefold.errors import OnefoldError
from onefold.messages import decode, encode
from onefold.storage import file_lock
from onefold.storage.permissions import make_folder

Scope = Literal["read", "write", "agents", "compact", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
FIRST = "first"
"""The name of the token that a server makes for itself at its first start."""
VARIABLE = "ONEFOLD_TOKEN"

_PREFIX = "onefold_"  # so that a token that ended up in the wrong place can be found
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_SECRET = re.compile(r"[A-Za-z0-9._~+/=-]{20,512}")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_COARSE = 3600.0
"""Seconds within which a second use of a token is not worth a write."""


class TokensError(OnefoldError):
    """The tokens cannot be read, written or changed as asked."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a request: the name of the token, and what it is for."""

    name: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes


@dataclass(frozen=True, slots=True)
class Token:
    name: str
    digest: str
    """Of the token, which itself is kept nowhere."""
    scopes: tuple[Scope, ...]
    created_at: float | None = None
    expires_at: float | None = None
    last_used: float | None = None
    """To the hour: a token is not worth a write with every request."""
    source: str = "tokens"
    """Where it stands: `tokens`, `environment` or `token-file`. Only the first can be revoked here."""
    login: bool = False
    """Made for who follows login links: nobody has it, and it counts for visits of browsers alone."""

    @property
    def who(self) -> Principal:
        return Principal(self.name, frozenset(self.scopes))

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


class Tokens:
    """The tokens of a server: those in a file, which this object also writes, and those given by a container.

    It may be used by threads, and its file by processes. `path` None means that there is no such file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        token_file: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        secret: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        self.path = None if path is None else Path(path).resolve()
        self._clock = clock
        self._secret = secret
        self._files = [_TokenFile(self.path, _parse)] if self.path else []
        if token_file is not None:
            self._files.append(_TokenFile(Path(token_file), _parse_lines, required=True))
        self._fixed = _from_environment(environ or {})
        self._used: dict[str, float] = {}
        self._unsaved: dict[str, float] = {}
        self._lock = threading.Lock()

    def known(self) -> tuple[Token, ...]:
        """All tokens as they stand now, expired ones too. Raises `TokensError` if a file cannot be trusted or read."""
        with self._lock:
            return (*self._fixed, *(token for file in self._files for token in file.tokens()))

    def find(self, secret: str) -> Token | None:
        """The token that this is, if it counts now."""
        digest = digest_of(secret)
        return self.fitting(lambda token: hmac.compare_digest(token.digest, digest))

    def fitting(self, fits: Callable[[Token], bool]) -> Token | None:
        """The token that fits, if it counts now."""
        now, found = self._clock(), None
        for token in self.known():
            # Every one is compared, in constant time: how long it takes says nothing.
            if fits(token):
                found = token
        if found is None or found.expired(now):
            return None
        self._note_use(found, now)
        return found

    def counts(self, token: Token) -> bool:
        """Whether a token found before still counts, with the same scopes: for streams that stay open."""
        now = self._clock()
        return any(
            known.digest == token.digest and known.scopes == token.scopes and not known.expired(now)
            for known in self.known()
        )

    def now(self) -> float:
        """By the clock that decides whether a token has expired."""
        return self._clock()

    def seconds_left(self, token: Token) -> float:
        """How long a token will count, by itself."""
        return math.inf if token.expires_at is None else max(0.0, token.expires_at - self._clock())

    # ---------------------------------------------------------------- changes

    def new(self, name: str, scopes: Iterable[str], *, expires: float | None = None) -> tuple[str, Token]:
        """Makes a token and returns it: the only time that it can be seen. `expires` is in seconds from now."""
        if not _NAME.fullmatch(name):
            raise TokensError(f"{name!r} cannot be a token's name: at most 64 of A-Z a-z 0-9 . _ @ -")
        if expires is not None and expires <= 0:
            raise TokensError(f"token {name!r} would expire before it is made; give a time above 0")
        wanted = checked_scopes(scopes)
        with self._writing() as tokens:
            if any(t.name == name for t in tokens):
                raise TokensError(f"there is a token {name!r} already; `onefold token revoke {quote(name)}` removes it")
            secret, token = self._made(name, wanted, expires)
            tokens.append(token)
        return secret, token

    def first(self) -> str | None:
        """A token for everything if there is none at all, as at a server's first start; None if there is one."""
        if self.path is None or self.known():
            return None
        with self._writing() as tokens:
            if tokens:
                return None
            secret, token = self._made(FIRST, ("admin",), None)
            tokens.append(token)
        return secret

    def of_person(self, person: str) -> Token:
        """The token of whoever follows a login link, made if there is none. Its secret is thrown away."""
        with self._writing() as tokens:
            taken = {token.name for token in tokens if not token.login}
            name = next(n for i in count(1) if (n := person if i == 1 else f"{person}-{i}") not in taken)
            token = next((token for token in tokens if token.name == name), None)
            if token is None:
                token = replace(self._made(name, ("admin",), None)[1], login=True)
                tokens.append(token)
        return token

    def revoke(self, name: str) -> Token:
        """Removes a token. A running server rejects it from its next request on."""
        with self._writing() as tokens:
            found = next((t for t in tokens if t.name == name), None)
            if found is None:
                raise TokensError(f"there is no token {name!r} in {self.path}; see `onefold token list`")
            tokens.remove(found)
        return found

    # ---------------------------------------------------------------- uses

    @property
    def unsaved(self) -> bool:
        """Whether a token was used whose last use, as the file has it, is an hour ago or more."""
        return bool(self._unsaved)

    def save_uses(self) -> None:
        """Writes when tokens were used last. If somebody else is writing, it is left for the next time."""
        with self._lock:
            uses, self._unsaved = self._unsaved, {}
        with contextlib.suppress(BlockingIOError), self._writing(patient=False) as tokens:
            for i, token in enumerate(tokens):
                if token.digest in uses:
                    tokens[i] = replace(token, last_used=max(uses[token.digest], token.last_used or 0.0))

    def _note_use(self, token: Token, now: float) -> None:
        if token.source != "tokens" or now - max(token.last_used or 0.0, self._used.get(token.digest, 0.0)) < _COARSE:
            return
        with self._lock:
            self._used[token.digest] = self._unsaved[token.digest] = float(int(now))

    # ---------------------------------------------------------------- the file

    def _made(self, name: str, scopes: tuple[Scope, ...], expires: float | None) -> tuple[str, Token]:
        secret, now = _PREFIX + self._secret(), self._clock()
        until = None if expires is None else now + expires
        return secret, Token(name, digest_of(secret), scopes, created_at=now, expires_at=until)

    @contextlib.contextmanager
    def _writing(self, *, patient: bool = True) -> Iterator[list[Token]]:
        """The tokens in the file, to be changed: what they are at the end is what the file has then."""
        if self.path is None:
            raise TokensError("these tokens are given by the environment or a file, and cannot be changed here")
        try:
            make_folder(self.path.parent)
            with locked(self.path.with_name(self.path.name + ".lock"), patient=patient):
                before = _read(self.path)[0]
                tokens = list(before)
                yield tokens
                if tuple(tokens) != before:
                    _replace(self.path, tokens)
        except BlockingIOError:
            raise
        except OSError as error:
            raise TokensError(f"{self.path} cannot be written: {error.strerror or error}") from error


class _TokenFile:
    """A file of tokens, read again when it is another than before."""

    def __init__(self, path: Path, parse: Callable[[Path, str], Iterable[Token]], *, required: bool = False) -> None:
        self._path = path
        self._parse = parse
        self._required = required
        self._seen: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()

    def tokens(self) -> tuple[Token, ...]:
        try:
            now = _mark(self._path.stat())
        except FileNotFoundError:
            if self._required:
                raise TokensError(f"there is no token file {self._path}") from None
            self._seen, self._tokens = None, ()
            return ()
        except OSError as error:
            raise TokensError(f"{self._path} cannot be read: {error.strerror}") from error
        if now != self._seen:
            self._tokens, self._seen = _read(self._path, self._parse)
        return self._tokens


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def checked_scopes(scopes: Iterable[str]) -> tuple[Scope, ...]:
    """In the order of `SCOPES`, each once. Raises for one that is none, and for none at all."""
    given = set(scopes)
    if not given or given - set(SCOPES):
        wrong = ", ".join(sorted(map(repr, given - set(SCOPES)))) or "nothing"
        raise TokensError(f"{wrong} is not a scope; scopes are: {', '.join(SCOPES)}")
    return tuple(s for s in SCOPES if s in given)


def link(url: str, secret: str) -> str:
    """The address that lets a browser in."""
    from urllib.parse import quote

    return f"{url.rstrip('/')}/?token={quote(secret, safe='')}"


# -------------------------------------------------------------------- reading


def _read(
    path: Path, parse: Callable[[Path, str], Iterable[Token]] | None = None
) -> tuple[tuple[Token, ...], tuple[int, ...] | None]:
    """The tokens of a file, with a mark by which a change of it is seen."""
    parse = parse or _parse
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if parse is _parse:
                _refuse_what_others_reach(path, found)
            text = file.read().decode()
    except FileNotFoundError:
        return (), None
    except (OSError, UnicodeDecodeError) as error:
        raise TokensError(f"{path} cannot be read: {error}") from error
    return tuple(parse(path, text)), _mark(found)


def read_private(path: Path) -> str | None:
    """What stands in a file that is for its owner alone; None if there is none."""
    try:
        with path.open("rb") as file:
            _refuse_what_others_reach(path, os.fstat(file.fileno()))
            return file.read().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise TokensError(f"{path} cannot be read: {error}") from error


def _mark(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size)


def _refuse_what_others_reach(path: Path, found: os.stat_result) -> None:
    if os.name != "posix":
        return
    if found.st_mode & _OTHERS:
        raise TokensError(
            f"{path} can be reached by other users of this machine; `chmod 600 {quote(str(path))}` makes it yours"
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise TokensError(
            f"{path} belongs to another user, who could write tokens into it; `chown` it, or choose another"
        )
    folder = path.parent.stat()
    if folder.st_mode & _OTHERS_WRITE and not folder.st_mode & stat.S_ISVTX:
        raise TokensError(
            f"other users can replace files in {path.parent}; `chmod 700 {quote(str(path.parent))}` makes it yours"
        )


def _parse(path: Path, text: str) -> Iterator[Token]:
    damaged = TokensError(f"{path} is damaged, or not a file of tokens; move it away, and create new tokens")
    try:
        content: Any = decode(text)
    except ValueError as error:
        raise damaged from error
    if not isinstance(content, dict) or not isinstance(content.get("tokens"), list):
        raise damaged
    if content.get("version") != 1:
        raise TokensError(
            f"{path} was written by a newer onefold (version {content.get('version')!r}); update this one"
        )
    for row in content["tokens"]:
        match row:
            case {"name": str() as name, "digest": str() as digest, "scopes": [*scopes]}:
                times = {key: row.get(key) for key in ("created_at", "expires_at", "last_used")}
                if any(at is not None and not isinstance(at, int | float) for at in times.values()):
                    raise damaged
                login = row.get("login") is True
                yield Token(name, digest, checked_scopes(cast("list[str]", scopes)), **times, login=login)
            case _:
                raise damaged


def _parse_lines(path: Path, text: str) -> Iterator[Token]:
    """One token a line, as it is or as name:scopes:token. Lines that begin with # are for people."""
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1)]
    lines = [(n, line) for n, line in lines if line and not line.startswith("#")]
    if not lines:
        raise TokensError(f"the token file {path} has no token in it; write one a line, as name:scopes:token")
    names: set[str] = set()
    for n, line in lines:
        name, scopes, secret = line.split(":") if line.count(":") == 2 else (f"line-{n}", "admin", line)
        if not _SECRET.fullmatch(secret) or not _NAME.fullmatch(name) or name in names:
            raise TokensError(
                f"line {n} of the token file {path} is none: write name:scopes:token, with a name of its own, "
                "scopes such as read,compact, and 20 characters or more for the token"
            )
        names.add(name)
        yield Token(name, digest_of(secret), checked_scopes(scopes.split(",")), source="token-file")


def _from_environment(environ: Mapping[str, str]) -> tuple[Token, ...]:
    secret = environ.get(VARIABLE, "").strip()
    if not secret:
        return ()
    if not _SECRET.fullmatch(secret):
        raise TokensError(
            f"{VARIABLE} has no token that is safe: take 20 characters or more, of letters, digits and . _ ~ + / = -"
        )
    return (Token("environment", digest_of(secret), ("admin",), source="environment"),)


# -------------------------------------------------------------------- writing


@contextlib.contextmanager
def locked(path: Path, *, patient: bool = True) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if patient:
            file_lock.lock(fd)
        elif not file_lock.try_lock(fd):
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by somebody else", str(path))
        yield
    finally:
        os.close(fd)


def _replace(path: Path, tokens: Iterable[Token]) -> None:
    rows = [_row(token) for token in tokens]
    write_private(path, '{"version": 1, "tokens": [' + ",".join("\n  " + encode(row) for row in rows) + "\n]}\n")


def write_private(path: Path, text: str) -> None:
    """For its owner alone. Written to a new file first, so that a reader sees the old file or the new one, whatever
    happens."""
    beside = path.with_name(path.name + ".new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(fd, "wb") as file:
        if os.name == "posix":
            os.fchmod(fd, 0o600)
        file.write(text.encode())
        file.flush()
        os.fsync(fd)
    beside.replace(path)
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _row(token: Token) -> dict[str, object]:
    row: dict[str, object] = {
        "name": token.name,
        "digest": token.digest,
        "scopes": list(token.scopes),
        "created_at": token.created_at,
    }
    row |= {"expires_at": token.expires_at, "last_used": token.last_used}
    return row | ({"login": True} if token.login else {})
