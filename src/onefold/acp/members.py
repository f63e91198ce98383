"""The clients of a room, and how a frame is delivered to each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from onefold.acp.detectors import as_tool_call
from onefold.acp.send_queue import SendQueue
from onefold.jsonrpc import Frame, notification, text
from onefold.model import Json

OWN = "onefold/"
"""Methods of ours begin so; only a client that attached gets them, since others would not know them."""

_COMPACTION = frozenset({"compaction_update", "compaction_summary_chunk"})


@dataclass(slots=True, eq=False)
class Member:
    """A client in a room."""

    name: str
    send_queue: SendQueue
    since: float
    kind: str = "acp"
    may_act: bool = True
    """It may prompt, cancel, and answer what the agent asks; another one only looks on."""
    may_compact: bool = True
    knows_compaction: bool = False
    """It announced ACP's `session.compaction`; for another one, a compaction is shown as a tool call."""
    attached: bool = False
    """It came by `session/attach`: its frames are numbered, and it hears what only onefold says."""
    live: bool = True
    """It takes frames as they come; otherwise it is still read to from those that are kept."""
    last: int = 0
    left: bool = False
    """It went, or has another place: no room lets it in, or goes on with it, from here on."""
    declined: set[str] = field(default_factory=set)
    """Questions that it answered with an error: it does not know them."""

    def send(self, frame: Frame) -> None:
        self.send_queue.give(text(frame))


class Broadcast:
    """One frame for everybody: made into each form that some client needs, once."""

    def __init__(self, frame: Frame, session: str, number: int | None) -> None:
        self._frame = frame
        self._session = session
        self.number = number
        self._forms: dict[tuple[bool, bool], list[str]] = {}

    @property
    def own(self) -> bool:
        return (self._frame.method or "").startswith(OWN)

    def to(self, member: Member) -> bool:
        """Hands it to a client. False if that disconnects it."""
        if self.own and not member.attached:
            return True
        form = (member.attached, member.knows_compaction)
        if form not in self._forms:
            self._forms[form] = [text(f) for f in self._made(*form)]
        return all(member.send_queue.give(made, self.number) for made in self._forms[form])

    def _made(self, numbered: bool, knows_compaction: bool) -> Iterable[Frame]:
        for params in self._params(knows_compaction):
            if numbered and self.number is not None:
                meta = params.get("_meta")
                mine = {"onefold": {"number": self.number}}
                params["_meta"] = {**meta, **mine} if isinstance(meta, dict) else mine
            yield notification(self._frame.method or "", params)

    def _params(self, knows_compaction: bool) -> Iterable[dict[str, Json]]:
        params = translated(self._frame.params, self._session)
        update = self._frame.update
        if knows_compaction or update.get("sessionUpdate") not in _COMPACTION:
            yield dict(params)
            return
        shown = as_tool_call(update)
        if shown is not None:
            yield {**params, "update": shown}


def known_as(given: Json, token: str, most: int = 64) -> str:
    """What a client calls itself, with the name of its token behind it: that part is not chosen by the client. Token
    names have neither spaces nor brackets, so nobody passes for another one."""
    said = "".join(c for c in given if c.isprintable()).strip()[:most] if isinstance(given, str) else ""
    return f"{said} ({token})" if said and said != token else token


def translated(params: dict[str, Json], session: str) -> dict[str, Json]:
    """The same for another session's id: the agent has its own, and clients know the room's."""
    return {**params, "sessionId": session} if "sessionId" in params else params


class Members:
    """All clients of a room, in the order they came."""

    def __init__(self, session: str, left: Callable[[Member], None]) -> None:
        self._session = session
        self._left = left
        self._all: list[Member] = []

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, member: Member) -> bool:
        return member in self._all

    def add(self, member: Member) -> None:
        self._all.append(member)

    def drop(self, member: Member) -> None:
        if member in self._all:
            self._all.remove(member)

    def tell(self, frame: Frame, number: int | None, *, but: Member | None = None) -> None:
        """Gives a frame to all who are live. One that does not read is disconnected. Without a number, it is none
        of those that are kept. `but` said it itself; attached, it gets it all the same: its numbers have no gaps."""
        told = Broadcast(frame, self._session, number)
        for member in list(self._all):
            if member.left or not member.live or (number is not None and number <= member.last):
                continue  # it is read to, or was read this one a moment before it was told here
            if (member is not but or member.attached) and not told.to(member):
                self.drop(member)
                self._left(member)
            elif number is not None:
                member.last = number

    def names(self) -> list[Json]:
        return [{"name": m.name, "since": m.since, "kind": m.kind} for m in self._all]
