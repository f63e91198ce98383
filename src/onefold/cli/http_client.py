"""The client of a server, here or on another machine: calls, and live events that survive a lost connection."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import SplitResult, urlencode, urlsplit

from onefold.cli.options import WrongUse
from onefold.errors import OnefoldError, SessionNotFound, StaleHandle
from onefold.model import Header, Json, Record
from onefold.server.security.host_check import is_loopback

SILENCE = 50.0
"""Seconds of silence after which a connection is taken for lost: a server sends a heartbeat every 15."""
FIRST, LONGEST = 0.2, 5.0
"""Seconds to wait before connecting again: at first, and at most."""
_LATER = (408, 429, 500, 502, 503, 504)
"""Answers after which it is worth trying again."""


class NotReached(OnefoldError):
    """The server cannot be reached now."""


class ServerRefused(OnefoldError):
    """The server answered with an error."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ServerEvent:
    name: str
    id: str
    data: Json


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def address(url: str, *, allow_http: bool) -> SplitResult:
    """The address of a server. Another machine without TLS is rejected unless it is allowed: everybody on the way
    could read the token, and what is said."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WrongUse(f"{url!r} is not the address of a server; write it as http://127.0.0.1:8642")
    try:
        port = parts.port
    except ValueError:
        raise WrongUse(f"{url!r} has an invalid port; write it as http://127.0.0.1:8642") from None
    if parts.scheme == "http" and not is_loopback(parts.hostname) and not allow_http:
        at = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        raise WrongUse(
            f"{parts.hostname} is another machine, and by plain http the token and what is said can be read on the "
            f"way; nothing was sent. Write https://{at}{'' if port is None else f':{port}'}, if it has TLS, or give "
            "--allow-http if the network itself is safe"
        )
    return parts


class Remote:
    """One server. Nothing is kept open between calls but the stream that is followed."""

    def __init__(
        self, url: str, token: str | None, *, allow_http: bool = False, pause: Callable[[float], None] = _pause
    ) -> None:
        parts = address(url, allow_http=allow_http)
        self._port = parts.port
        self._tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._base = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self._base}"
        self._token = token
        self._pause = pause

    def get(self, path: str, **query: str) -> Json:
        with closing(self._connect()) as connection:
            return json.loads(self._answer(connection, path, query).read())

    def post(self, path: str, body: Json = None, **query: str) -> Json:
        with closing(self._connect()) as connection:
            return json.loads(self._answer(connection, path, query, method="POST", body=body).read())

    def follow(self, session: str, after: int, lost: Callable[[str], None]) -> Iterator[Record]:
        """Records after a number, live. A lost connection is resumed where it was; `lost` is called then."""
        generation: str | None = None
        wait, connected = FIRST, False
        while True:
            try:
                for event in self._events(session, after, generation):
                    connected = True
                    match event.name:
                        case "hello":
                            generation = event.data["incarnation"]
                        case "record":
                            wait = FIRST
                            yield (record := as_record(event.data))
                            after = record.number
                        case "gone":
                            raise SessionNotFound(session, deleted=True)
                        case "moved":
                            raise StaleHandle(
                                f"session {session!r} at {self.url} ends at #{event.data['last']} now, and numbers "
                                "seen before no longer count: the store was restored from a backup. Attach again"
                            )
                        case "refused":  # which it would be told again, and again
                            raise self._refused(401, json.dumps(event.data).encode(), session)
                        case "resume":
                            break
                why = "the server ended the stream"
            except (NotReached, ServerRefused) as error:
                if not connected or (isinstance(error, ServerRefused) and error.status not in _LATER):
                    raise
                why = str(error)
            lost(f"{why}; going on from #{after} in {wait:g} s")
            self._pause(wait)
            wait = min(wait * 2, LONGEST)

    def _events(self, session: str, after: int, generation: str | None) -> Iterator[ServerEvent]:
        query = {"session": session, "after": str(after), "name": f"attach on {socket.gethostname()}"}
        if generation is not None:
            query["incarnation"] = generation
        with closing(self._connect()) as connection:
            answer = self._answer(connection, "/api/events", query)
            fields: dict[str, str] = {}
            try:
                for line in answer:
                    text = line.decode().rstrip("\r\n")
                    if text:
                        name, _, value = text.partition(":")
                        fields[name] = value.removeprefix(" ")
                    elif "event" in fields:
                        yield ServerEvent(fields["event"], fields.get("id", ""), json.loads(fields.get("data", "null")))
                        fields = {}
                    else:
                        fields = {}
            except (OSError, http.client.HTTPException) as error:
                raise NotReached(f"the line to {self.url} was cut ({_words(error)})") from error

    def _connect(self) -> http.client.HTTPConnection:
        if not self._tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=SILENCE)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=SILENCE, context=ssl.create_default_context()
        )

    def _answer(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        query: dict[str, str],
        method: str = "GET",
        body: Json = None,
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json, text/event-stream"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            where = f"{self._base}{path}?{urlencode(query)}"
            if body is None:
                connection.request(method, where, headers=headers)
            else:
                connection.request(method, where, json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise self._refused(answer.status, answer.read(1 << 16), query.get("session", ""))
        except ssl.SSLCertVerificationError as error:
            raise NotReached(
                f"{self.url} shows a certificate that is not trusted here ({error.verify_message}); "
                "name the file of who issued it in SSL_CERT_FILE"
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotReached(
                f"no answer from {self.url} ({_words(error)}); is `onefold serve` running there?"
            ) from error
        return answer

    def _refused(self, status: int, body: bytes, session: str) -> OnefoldError:
        try:
            said = json.loads(body)["error"]
            kind, message = str(said["kind"]), str(said["message"])
            remedy = f"; {said['remedy']}" if said.get("remedy") else ""
        except (ValueError, KeyError, TypeError):
            kind, message, remedy = "", f"it answered {status}, which is not how onefold answers", ""
        if kind == "SessionNotFound":
            return SessionNotFound(session, deleted="deleted" in message)
        if status == 401:
            what = "the token does not count there" if self._token else "it answers nobody without a token"
            return ServerRefused(f"{self.url}: {what}; give one with --token or ONEFOLD_TOKEN{remedy}", status)
        return ServerRefused(f"{self.url}: {message}{remedy}", status)


def as_record(data: Json) -> Record:
    """A record as the server wrote it."""
    header = data.get("header")
    return Record(
        number=data["number"], id=data["id"], kind=data["kind"], at=data["at"], body=data["body"],
        format=data.get("format"), key=data.get("key"), turn=data.get("turn"), actor=data.get("actor"),
        header=None if header is None else Header(
            header["role"], header["tokens"], tuple(header.get("opens", ())), tuple(header.get("closes", ()))
        ),
    )  # fmt: skip


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it says nothing"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
