"""Logs every frame of a room durably, then broadcasts it, and appends complete messages to the session's journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from onefold.acp.agent_config import Redact
from onefold.acp.detectors.observation import text_of
from onefold.acp.frame_erasure import ERASED_FRAME, stone
from onefold.acp.frame_log import ErasureFirst, FrameLog
from onefold.acp.frame_pages import NewFrame
from onefold.acp.members import Broadcast, Member, Members
from onefold.acp.message_assembler import CompleteMessage, MessageAssembler
from onefold.acp.room_journal import RoomJournal
from onefold.errors import StoreError, TurnLost
from onefold.jsonrpc import Frame, notification, parse, text
from onefold.model import Json, TurnClaim

T = TypeVar("T")
log = logging.getLogger("onefold.acp")

PAGE = 500
HEAVY = 4 << 20
"""Characters that wait to be kept; when there are more, they are kept before anything else is done. If they cannot be,
nothing more is taken."""


class Threads(Protocol):
    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class RoomRecorder:
    """The frames of a room. All of it is used in the room's own task."""

    def __init__(
        self, frames: FrameLog, room_journal: RoomJournal, members: Members, redact: Redact | None, in_thread: Threads
    ) -> None:
        self.last = 0
        """The number of the last frame that is kept."""
        self.record = 0
        """The journal's last number, as far as this room wrote it."""
        self.claim: TurnClaim | None = None
        """The turn that what is said belongs to."""
        self._frames = frames
        self._room_journal = room_journal
        self._members = members
        self._redact = redact
        self._in_thread = in_thread
        self._rows: list[NewFrame] = []
        self._waiting = 0
        self._unsaid = 0
        """Characters of frames that are kept, and of which the journal may not have all that is whole."""
        self._after: list[Callable[[int], None]] = []
        self._folding = MessageAssembler()
        self._wholes: list[CompleteMessage] = []
        self._complained = False
        self._failed: StoreError | None = None
        self._of = {"session": room_journal.session}

    @property
    def folded_up_to(self) -> int:
        """The last frame of which all is in the journal: from there on a client needs frames."""
        since = self._folding.since
        return self.last if since is None else since - 1

    @property
    def heavy(self) -> bool:
        """Whether much waits to be kept."""
        return self._waiting > HEAVY

    @property
    def stuck(self) -> StoreError | None:
        """Why nothing more may come: the store takes nothing now, and what waits for it is as much as may wait."""
        return self._failed if self._waiting + self._unsaid > HEAVY else None

    # ------------------------------------------------------------------ keeping and telling

    def keep(
        self, kind: str, frame: Frame | str, after: Callable[[int], None] | None = None, *, said: str | None = None
    ) -> None:
        """Puts a frame or a line down to be kept; `after` hears its number once it is. `said` is the frame as text,
        where somebody has it already."""
        if isinstance(frame, Frame):
            kept = self.redacted(frame)
            shown = without_secrets(kept) if kept is not None else Frame({})
            body = said if said is not None and shown is frame else text(shown)
        else:
            body = self.line(frame)
        self._rows.append(NewFrame(kind, body, self.record))
        self._waiting += len(body)
        self._after.append(after or _nothing)

    def redacted(self, frame: Frame) -> Frame | None:
        """What of a frame may be kept; None for nothing."""
        if self._redact is None:
            return frame
        try:
            kept = self._redact(frame)
        except Exception as trouble:  # somebody else's code: what it could not look at is not kept at all
            if not self._complained:
                log.error(
                    "the redact hook failed (%s): nothing of such frames is kept", type(trouble).__name__,
                    extra=self._of, exc_info=trouble,
                )  # fmt: skip
            self._complained = True
            return None
        return kept if isinstance(kept, Frame) else None

    def line(self, said: str) -> str:
        """What of a line may be kept. Whoever redacts sees it as a frame with the method `onefold/stderr`."""
        if self._redact is None:
            return said
        kept = self.redacted(notification("onefold/stderr", {"text": said}))
        return str(kept.params.get("text", "")) if kept is not None else ""

    def words(self, said: str) -> str | None:
        """The same for words that go to the agent: seen as a prompt."""
        kept = self.redacted(notification("session/prompt", {"prompt": [{"type": "text", "text": said}]}))
        return text_of(kept.params.get("prompt")) or None if kept is not None else None

    def hear(self, frame: Frame, *, replayed: bool) -> None:
        """A notification of the agent: told to all, unless it only repeats what was. Then not its content is kept
        either: the journal has it, unless somebody erased it since."""
        if replayed:
            self.keep("old", _outline(frame))
        else:
            self.keep("in", frame, partial(self._pass_on, frame))

    def _pass_on(self, frame: Frame, number: int) -> None:
        self._members.tell(frame, number)
        kept = self.redacted(frame)
        if kept is not None:
            self._wholes += self._folded(kept, number)

    def tell(self, method: str, params: dict[str, Json], *, but: Member | None = None) -> None:
        """Something that the room itself says."""
        frame = notification(method, {"sessionId": self._room_journal.session, **params})
        self.keep("note", frame, lambda number: self._members.tell(frame, number, but=but))

    async def commit(self) -> None:
        """Makes what was put down durable, then passes it on."""
        try:
            await self._commit()
        except StoreError as error:
            self._failed = error
            raise
        self._failed = None

    async def _commit(self) -> None:
        while self._rows:
            rows, after, size = self._rows, self._after, self._waiting
            self._rows, self._after, self._waiting = [], [], 0
            try:
                last = await asyncio.wrap_future(self._frames.append(self._room_journal.session, rows, after=self.last))
            except (
                ErasureFirst,
                StoreError,
            ) as error:  # a full disk, say: they come with the next ones, in their order
                self._rows, self._after = rows + self._rows, after + self._after
                self._waiting += size
                if isinstance(error, StoreError):
                    raise
                await self.heed()
                continue
            self.last = last
            self._unsaid += size
            for number, then in enumerate(after, last - len(rows) + 1):
                try:
                    then(number)
                except Exception as trouble:  # one frame that nobody can make sense of must not cost the others
                    log.error("frame %d was not understood", number, extra=self._of, exc_info=trouble)
        if self._wholes:
            await self._say()
        self._unsaid = 0

    # ------------------------------------------------------------------ what somebody erased

    async def heed(self) -> None:
        """Somebody erased something, here or in another process, and has kept a frame that says so. What waits to be
        kept says nothing of it any more, what waits for clients is taken back, and all are told."""
        session = self._room_journal.session
        told: list[tuple[Frame, int]] = []
        last = await self._in_thread(partial(self._frames.last, session))
        while rows := await self._in_thread(partial(self._frames.read, session, self.last, PAGE)):
            self.last = rows[-1].number
            marks = [row for row in rows if row.kind == "note" and ERASED_FRAME in row.text]
            told += [(frame, row.number) for row in marks for frame in parse(row.text)]
        self.last = max(self.last, last)  # some may have been forgotten meanwhile
        gone = await self._in_thread(self._room_journal.gone)
        for i, row in enumerate(self._rows) if gone is not None else ():
            left = gone.left(*row)  # type: ignore[union-attr]
            if left == stone(session):
                self._after[i] = _nothing
            self._rows[i] = row._replace(text=left)
        for member in self._members:
            await self._take_back(member)
        for frame, number in told:
            self._members.tell(frame, number)

    async def _take_back(self, member: Member) -> None:
        """What of a client's frames was erased while they waited for it."""
        waiting = member.send_queue.numbers()
        erased: set[int] = set()
        after, last = min(waiting, default=1) - 1, max(waiting, default=0)
        while after < last and (
            rows := await self._in_thread(partial(self._frames.read, self._room_journal.session, after, PAGE))
        ):
            after = rows[-1].number
            erased |= {row.number for row in rows if row.text == stone(self._room_journal.session)}
        member.send_queue.take_back(erased)

    # ------------------------------------------------------------------ what goes into the journal

    async def all_said(self) -> None:
        """Everything the agent said until now is in the journal, whole or not: a turn ends, or a boundary comes."""
        await self.commit()
        self._wholes += self._folding.flush()
        await self.commit()

    async def _say(self) -> None:
        wholes, self._wholes = self._wholes, []
        try:
            try:
                last = await self._in_thread(partial(self._room_journal.say, wholes, self.claim))
            except TurnLost:  # somebody ended the turn from outside; what was said is kept all the same
                last = await self._in_thread(partial(self._room_journal.say, wholes, None))
        except StoreError:
            self._wholes = wholes + self._wholes
            raise
        self.record = last or self.record

    def _folded(self, frame: Frame, number: int) -> list[CompleteMessage]:
        """A prompt that the agent says back is in the journal already."""
        echo = frame.update.get("sessionUpdate") == "user_message_chunk" and self.claim is not None
        return [] if echo else self._folding.take(frame.update, number)

    async def take_up(self, turn: TurnClaim | None) -> None:
        """What a process that is gone had heard and not yet said is said now."""
        session = self._room_journal.session
        self.claim = turn
        self.last = await self._in_thread(lambda: self._frames.last(session))
        number = await self._in_thread(self._room_journal.folded)
        while rows := await self._in_thread(partial(self._frames.read, session, number, PAGE)):
            for row in rows:
                number = row.number
                if row.kind == "in":
                    for frame in parse(row.text):
                        self._wholes += self._folded(frame, number)
        await self.all_said()
        self.claim = None

    # ------------------------------------------------------------------ who comes late

    async def catch_up(self, member: Member) -> None:
        """Reads to a client what it missed, until it is where the others are."""
        while member in self._members and member.last < self.last:
            rows = await self._in_thread(partial(self._frames.read, self._room_journal.session, member.last, PAGE))
            for row in rows:
                await member.send_queue.room()
                if member not in self._members or member.send_queue.closed is not None:
                    return
                if row.kind in ("in", "note"):
                    for frame in parse(row.text):
                        if frame.is_notification:
                            Broadcast(frame, self._room_journal.session, row.number).to(member)
                member.last = row.number
            if not rows:  # they were forgotten meanwhile
                member.last = self.last
        member.live = True


def without_secrets(frame: Frame) -> Frame:
    """A frame as it may be kept: of MCP servers their names, since their settings hold keys."""
    servers = frame.params.get("mcpServers")
    if not isinstance(servers, list) or not servers:
        return frame
    named = [{"name": s.get("name")} if isinstance(s, dict) else None for s in servers]
    return Frame({**frame.body, "params": {**frame.params, "mcpServers": named}})


def _outline(frame: Frame) -> Frame:
    """What a frame is, without what it says."""
    return notification(frame.method or "", {"update": {"sessionUpdate": frame.update.get("sessionUpdate")}})


def _nothing(number: int) -> None:
    pass
