"""`onefold attach`: a session as it happens, here or on another machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onefold.cli.options import JsonOption, SessionArgument, StoreOption, WrongUse, open_store
from onefold.cli.output import finish, line_on_stderr, raw, refuse, safe, say, short, text_width
from onefold.cli.show import RecordPage
from onefold.describe import words
from onefold.errors import SessionNotFound, StaleHandle
from onefold.export import plain
from onefold.messages import encode
from onefold.model import COMMITTED, SEGMENT_OPENED, Record
from onefold.store import Store

if TYPE_CHECKING:
    from onefold.cli.http_client import Remote

History = Literal["none", "segment", "all"]


def command(  # noqa: PLR0917  a parameter here is an option there
    session: SessionArgument,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="A server. Without it: ONEFOLD_URL, or a store.", show_default=False),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TOKEN", help="For the server. Better: ONEFOLD_TOKEN.", show_default=False),
    ] = None,
    after: Annotated[
        int | None, typer.Option("--after", min=0, metavar="N", help="Begin after this record.", show_default=False)
    ] = None,
    history: Annotated[
        History, typer.Option("--history", help="Begin with the current segment, with everything, or with what comes.")
    ] = "segment",
    allow_http: Annotated[
        bool, typer.Option("--allow-http", help="Connect to another machine without TLS. Only on a network you trust.")
    ] = False,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Join its agent's room: speak ACP here, for an editor.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Only follow it, on a terminal too.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Talks with an agent, or follows a session live.

    On a terminal, with --url or ONEFOLD_URL naming the server that runs the agent, there is a line to type in: what you
    type goes to the agent, /compact and /undo do what they say, the agent's questions are answered, Ctrl-C stops the
    turn, Ctrl-D leaves; /help says the rest. `onefold say` does it in scripts.

    Everywhere else, and with --follow, it follows the session until Ctrl-C: on a store of this machine, or on a server.
    It prints a line for each record as it is written, by whatever process: messages, turns, and a compaction as one
    line that says what was folded. A line to a server that is cut is taken up again where it was, without a gap or a
    repeat. With --json, one object a line. If the session is deleted meanwhile, the exit code is 1; if it cannot be
    followed at all, 2. To another machine it speaks https only, unless --allow-http is given: a token that goes by
    plain http can be read on the way.

    With --stdio it joins the room of an agent that a server runs: the Agent Client Protocol on standard input and
    output, so that an editor which starts a command shares the agent with everybody else.

    \b
    Examples:
      onefold attach my-session --history none
      ONEFOLD_TOKEN=... onefold attach my-session --url https://agents.example.org
    """
    server = url or (None if store is not None else os.environ.get("ONEFOLD_URL"))
    if url is not None and store is not None:
        raise WrongUse("--url and --store both name a source; give one of them")
    if stdio:
        from onefold.cli.acp_stdio import bridge

        if server is None:
            raise WrongUse("--stdio joins a server that runs the agent; name it with --url or ONEFOLD_URL")
        bridge(server, token or os.environ.get("ONEFOLD_TOKEN") or None, session, allow_http=allow_http)
        return
    out = Screen(json=json)
    try:
        if server is not None:
            from onefold.cli.http_client import Remote

            secret = token or os.environ.get("ONEFOLD_TOKEN") or None
            remote = Remote(server, secret, allow_http=allow_http)
            if not (follow or json or after is not None) and _talked(remote, secret, session, history, allow_http):
                return
            _print(out, _there(remote, session, after, history))
        else:
            with open_store(store) as opened:
                _print(out, _here(opened, session, after, history))
    except KeyboardInterrupt:
        out.end()
    except StaleHandle as moved:
        refuse(str(moved))


def _talked(remote: Remote, token: str | None, session: str, history: History, allow_http: bool) -> bool:
    """Whether it was talked with: there has to be a terminal, and an agent."""
    from onefold.cli.talk import can_talk, talk

    if not can_talk() or remote.get("/api/attach", session=session, history="none").get("agent") is None:
        return False
    from onefold.cli.room_client import RoomClient, unique_name

    talk(RoomClient(remote.url, token, session, unique_name("terminal"), allow_http=allow_http), remote, history)
    return True


def _here(store: Store, id: str, after: int | None, history: History) -> Iterator[Record]:
    session = store.session(id, create=False)
    state = session.state
    return session.follow(_start(after, history, state.cut, state.last))


def _there(remote: Remote, id: str, after: int | None, history: History) -> Iterator[Record]:
    found = remote.get("/api/attach", session=id, history="none")
    start = _start(after, history, found["head"]["cut"], found["follow_from"])
    return remote.follow(id, start, line_on_stderr)


def _start(after: int | None, history: History, cut: int, last: int) -> int:
    if after is not None:
        return after
    return {"none": last, "segment": cut - 1, "all": 0}[history]


def _print(out: Screen, records: Iterator[Record]) -> None:
    try:
        for record in records:
            out.show(record, orphan=False)
    except SessionNotFound as error:
        refuse(f"session {error.session!r} was deleted; there is nothing left to follow")


class Screen(RecordPage):
    """Records as they come, each on one line."""

    def __init__(self, *, json: bool) -> None:
        super().__init__(full=False)
        self._json = json

    def show(self, record: Record, *, orphan: bool, mark: str = "") -> None:
        if self._json:
            raw(encode(plain(record)) + "\n")
            finish()
        elif record.kind != COMMITTED:  # the segment that it opens says more
            super().show(record, orphan=orphan, mark=mark)

    def end(self) -> None:
        """After Ctrl-C, whose sign the terminal has shown."""
        if not self._json and sys.stdout.isatty():
            say()

    def _event(self, record: Record, head: str, mark: str) -> None:
        if record.kind == SEGMENT_OPENED and record.body.get("source") == "compaction":
            say(
                f"{head}── folded: {short(words(record), max(40, text_width() - len(head) - 14))} ──", style="bold cyan"
            )
        else:
            text = f"{safe(record.kind)}: {words(record)}"
            say(head + short(text, max(40, text_width() - len(head))), style="cyan")
