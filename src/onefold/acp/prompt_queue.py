"""Prompts: one runs at a time, the others wait in a bounded, durable queue."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from onefold.acp.detectors import asks_to_compact, may_compact
from onefold.acp.handover import handover
from onefold.acp.members import Broadcast, Member
from onefold.acp.room_errors import BUSY, FORBIDDEN, RequestRejected
from onefold.errors import OnefoldError, StoreError, TurnLost
from onefold.jsonrpc import Frame, error, notification, text
from onefold.model import ClaimDenied, Json, Outcome, Record, TurnClaim

if TYPE_CHECKING:
    from onefold.acp.room import Room

T = TypeVar("T")
log = logging.getLogger("onefold.acp")

AGAIN = 1.0
"""Seconds after which something is tried again that the store could not take."""
OBEYS = 30.0
"""Seconds that an agent may go on with a turn after it was asked to stop."""
QUEUE = 32
"""Prompts that wait at most."""
MOST_BYTES = 16 << 20
"""As much as they may be together: all of them are told whenever one comes or goes. One by itself always passes."""


class SubmittedPrompt(NamedTuple):
    """A prompt on its way: its number once it is on disk (None: it is none that waits), and its end as the agent said
    it."""

    accepted: asyncio.Future[int | None]
    ended: asyncio.Future[Json]


@dataclass(slots=True)
class RunningTurn:
    """The turn that the agent is in."""

    claim: TurnClaim
    owner: str
    prompt: int
    """The number of the queued prompt; 0 if onefold itself asked, for a compaction."""
    cancelled: bool = False


@dataclass(slots=True)
class _PromptWaiter:
    """Who waits for the end of a prompt, and what exactly was sent."""

    params: dict[str, Json]
    member: Member
    futures: list[asyncio.Future[Json]] = field(default_factory=list)


class PromptQueue:
    """All of it is used in the room's own task."""

    def __init__(self, room: Room) -> None:
        self.turn: RunningTurn | None = None
        self.queued: list[Json] = []
        """What waits, as clients are told it."""
        self.held = False
        """Another writer has the turn that the next prompt waits for."""
        self._room = room
        self._waiting: dict[int, _PromptWaiter] = {}
        self._sizes: dict[int, int] = {}
        """Of what waits."""
        self._steered: int | None = None

    # ------------------------------------------------------------------ coming in

    async def take(self, member: Member, params: dict[str, Json], first: bool, asked: SubmittedPrompt) -> None:
        """A prompt of a client. It is on disk before the agent gets it."""
        try:
            self._check(params.get("prompt"), member.may_compact)
            instructions = asks_to_compact(params.get("prompt"))
            if instructions is not None:
                asked.accepted.set_result(None)
                ended = self._told(member, asked.ended)
                await self._room.compactions.asked("manual", instructions or None, member.name, ended)
                return
            number = await self._queue(member, params, asked.ended)
            asked.accepted.set_result(number)
            if number is not None and first:
                self._steered = number
                await self.cancel(member.name, member)
            await self.next()
        except OnefoldError as refused:
            refuse(asked.ended, refused)
            if not asked.accepted.done():
                asked.accepted.set_exception(refused)

    def _told(self, member: Member, ended: asyncio.Future[Json]) -> asyncio.Future[Json]:
        """The end of a compaction that a client asked for by a prompt. One that knows nothing of onefold sees the end
        of a turn and no more: if nothing came of it, it is told as an agent would tell it."""
        known: asyncio.Future[Json] = asyncio.get_running_loop().create_future()

        def over(_: asyncio.Future[Json]) -> None:
            trouble = known.exception()
            if isinstance(trouble, OnefoldError):
                refuse(ended, trouble)
                return
            cause = why_not(known.result())
            if cause is not None and not member.attached:
                words = {"type": "text", "text": f"The context was not compacted: {cause}."}
                update = {"sessionUpdate": "agent_message_chunk", "content": words}
                session = self._room.session
                Broadcast(notification("session/update", {"sessionId": session, "update": update}), session, None).to(
                    member
                )
            fulfil(ended, known.result())

        known.add_done_callback(over)
        return known

    async def _queue(self, member: Member, params: dict[str, Json], ended: asyncio.Future[Json]) -> int | None:
        room = self._room
        if len(self.queued) >= QUEUE:
            raise RequestRejected(f"{QUEUE} prompts wait already; wait until one is done, or take one back")
        kept = room.recorder.redacted(notification("session/prompt", {"prompt": params.get("prompt")}))
        said = kept.params.get("prompt") if kept is not None else None
        body: dict[str, Json] = {"prompt": said if isinstance(said, list) else []}
        if not member.may_compact:
            body["_meta"] = {"onefold": {"may": ["agents"]}}
        held = sum(self._sizes.values())
        if held and held + await room.in_thread(partial(_size, body)) > MOST_BYTES:
            raise RequestRejected(
                f"the prompts that wait have {held:,} bytes already; wait until one is done, or take one back"
            )
        key = _own_meta(params).get("key")
        number = await room.in_thread(
            partial(room.room_journal.queue, body, actor=member.name, key=key if isinstance(key, str) else None)
        )
        await self.changed()
        if not self.runs(number) and all(q["input"] != number for q in self.queued):
            fulfil(ended, {"stopReason": "end_turn", "_meta": {"onefold": {"duplicate": True}}})
            return None  # the same key, and its turn is over
        self._waiting.setdefault(number, _PromptWaiter(params, member)).futures.append(ended)
        return number

    def _check(self, prompt: Json, permitted: bool) -> None:
        """A prompt can be a command. The one to compact takes a scope of its own, however it comes and is spelled."""
        if not permitted and may_compact(prompt, self._room.compactions.commands):
            raise RequestRejected(
                "this is a command to compact, for which its token lacks the scope `compact`", FORBIDDEN
            )

    async def changed(self) -> None:
        """The queue is not as it was."""
        room_journal, known = self._room.room_journal, self._sizes

        def read_changed() -> tuple[list[Record], dict[int, int]]:
            waiting = room_journal.queued()
            return waiting, {r.number: known[r.number] if r.number in known else _size(_body(r)) for r in waiting}

        waiting, self._sizes = await self._room.in_thread(read_changed)
        self.queued = [_shown(r) for r in waiting]
        self._room.recorder.tell("onefold/queue_changed", {"queue": self.queued})

    def runs(self, number: int) -> bool:
        """Whether the agent is at this prompt now."""
        return self.turn is not None and self.turn.prompt == number

    async def unqueue(self, member: Member, number: int, done: asyncio.Future[Json]) -> None:
        """Takes a prompt back that waits."""
        room = self._room
        taken = await room.in_thread(partial(room.room_journal.unqueue, number, actor=member.name))
        if taken:
            self._settle(number, {"stopReason": "cancelled"})
            await self.changed()
        done.set_result({"unqueued": taken})

    async def forget(self, inputs: Collection[int]) -> None:
        """Prompts were erased. Of those that waited, nobody waits for the end any more."""
        for number in [n for n in self._waiting if n in inputs and (self.turn is None or self.turn.prompt != n)]:
            self._settle(number, {"stopReason": "cancelled"})
        await self.changed()

    # ------------------------------------------------------------------ the turn

    async def next(self) -> None:
        """Gives the agent what it has to do next, if it is free: a compaction that was asked for, or a prompt."""
        room = self._room
        if self.turn is not None or room.phase != "ready" or not room.process.takes:
            return
        if await room.compactions.begin_wanted():
            return
        waiting = await room.in_thread(room.room_journal.queued)
        if not waiting:
            return
        chosen = next((r for r in waiting if r.number == self._steered), waiting[0])
        owner = chosen.actor or "somebody"
        if not await self.begin(owner, chosen.number):
            return
        self._steered = None
        record = await room.in_thread(partial(room.room_journal.take, self._claim, chosen.number))
        if record is None:
            await self.end("cancelled", "its prompt was taken back", Frame({}))
            return
        try:
            await self._run(record, chosen.number)
        except OnefoldError as trouble:  # nothing was sent, so nobody would ever end the turn
            code = trouble.code if isinstance(trouble, RequestRejected) else BUSY
            await self.end("failed", str(trouble), error(None, code, str(trouble)))
            room.soon(self.next)

    async def begin(self, owner: str, prompt: int) -> bool:
        """Begins a turn; False if another writer has it, and the journal will tell when that is over."""
        room = self._room
        await room.recorder.all_said()
        claim = await room.in_thread(partial(room.room_journal.begin, owner=owner))
        self.held = isinstance(claim, ClaimDenied)
        if isinstance(claim, ClaimDenied):
            return False
        self.turn = RunningTurn(claim, owner, prompt)
        room.recorder.claim = claim
        room.compactions.turn_began()
        return True

    @property
    def _claim(self) -> TurnClaim:
        if self.turn is None:
            raise RequestRejected("no turn is open")
        return self.turn.claim

    async def _run(self, record: Record, number: int) -> None:
        room, claim = self._room, self._claim
        room.recorder.record = record.number
        waiting = self._waiting.get(number)
        params = dict(waiting.params) if waiting is not None else {"prompt": _body(record).get("prompt")}
        blocks = params.get("prompt")
        blocks = blocks if isinstance(blocks, list) else []
        self._check(blocks, _may_compact(record))  # the agent may have told of its commands since it was queued
        for block in blocks:
            said = {"sessionUpdate": "user_message_chunk", "content": block}
            room.recorder.tell("session/update", {"update": said}, but=waiting.member if waiting is not None else None)
        owner = self.turn.owner if self.turn is not None else ""
        room.recorder.tell("onefold/turn_started", {"turn": claim.id, "owner": owner, "record": record.number})
        await self.changed()
        if room.process.handover:
            context = await room.in_thread(lambda: room.around.store.session(room.session).context())
            told = handover(context, before=record.number, nonce=room.room_journal.journal.new_id())
            params["prompt"] = [told, *blocks] if told is not None else blocks
            room.process.handover = False
        await self.send(params)

    async def send(self, params: dict[str, Json]) -> None:
        process = self._room.process
        try:
            process.request("session/prompt", {**params, "sessionId": process.session}, then=self._answered)
        except RequestRejected as gone:
            await self.end("interrupted", str(gone), error(None, BUSY, str(gone)))

    async def _answered(self, frame: Frame) -> None:
        try:
            await self._over(frame)
        except StoreError as trouble:  # a full disk, say. The turn is not over before it is so on disk
            log.error("a turn cannot be ended yet: %s", trouble, extra={"session": self._room.session})
            self._room.later(AGAIN, self._answered, frame)

    async def _over(self, frame: Frame) -> None:
        room = self._room
        await room.recorder.all_said()
        await room.compactions.turn_ends()
        outcome, cause = _outcome(room.recorder.redacted(frame) or Frame({k: {} for k in frame.body if k == "error"}))
        by_us = self.turn is not None and not self.turn.prompt
        await self.end(outcome, cause, frame)
        if by_us:
            room.compactions.not_yet(cause or "the agent ended the turn without compacting")
        await self.next()

    async def end(self, outcome: Outcome, cause: str | None, frame: Frame) -> None:
        """The turn is over, as the agent says it in a frame, or as we have to say it for the agent."""
        room, turn = self._room, self.turn
        if turn is None:
            return
        await room.questions.withdraw()
        try:
            await room.in_thread(partial(room.room_journal.settle, turn.claim, outcome, cause))
        except TurnLost as lost:
            log.warning("the turn was ended by somebody else: %s", lost, extra={"session": room.session})
        self.turn = room.recorder.claim = None
        told: dict[str, Json] = {"turn": turn.claim.id, "outcome": outcome}
        if cause is not None:
            told["cause"] = cause
        room.recorder.tell("onefold/turn_settled", told)
        await room.recorder.commit()
        if turn.prompt:
            self._settle(turn.prompt, _failure(frame) or frame.body.get("result"))

    def _settle(self, number: int, how: Json | RequestRejected) -> None:
        waiting = self._waiting.pop(number, None)
        for future in waiting.futures if waiting is not None else ():
            if isinstance(how, RequestRejected):
                refuse(future, how)
            else:
                fulfil(future, how)

    def let_go(self) -> None:
        """The room ends: what waits stays where it is, and nobody waits here for its end."""
        why = RequestRejected(
            "the room was closed before its turn came; the prompt waits, and runs when it is taken up again"
        )
        for number in list(self._waiting):
            self._settle(number, why)

    async def cancel(self, by: str, member: Member | None = None) -> None:
        """Asks the agent to stop what it is at."""
        room = self._room
        if self.turn is None or self.turn.cancelled:
            return
        self.turn.cancelled = True
        room.later(OBEYS, self._obeyed, self.turn)
        room.recorder.tell("onefold/cancelling", {"by": by})
        with contextlib.suppress(
            RequestRejected
        ):  # it is about to end, and its turn with it; or it does not read, and will be
            room.process.send(notification("session/cancel", {"sessionId": room.process.session}))
        await room.questions.withdraw("cancelled", member)

    async def _obeyed(self, turn: RunningTurn) -> None:
        """An agent that does not stop is ended, so that what waits is not stuck behind it."""
        if self.turn is turn:
            room = self._room
            log.warning("the agent does not stop and is ended", extra={"session": room.session})
            room.process.stop(f"it went on for {OBEYS:.0f} seconds after it was asked to stop")

    async def look(self) -> None:
        """Says that the turn's writer lives; if somebody ended the turn from outside, the agent is told."""
        room, turn = self._room, self.turn
        if turn is not None and await room.in_thread(partial(room.room_journal.renew, turn.claim)) is None:
            await self.cancel("somebody else")

    def concerns(self, turn: int) -> bool:
        """Whether the room has to look, now that this turn is open in the journal (0: none). From any thread."""
        mine = self.turn
        if mine is not None:
            return not mine.cancelled and mine.claim.number != turn
        return self.held and not turn


def _outcome(frame: Frame) -> tuple[Outcome, str | None]:
    failed = frame.body.get("error")
    if failed is not None:
        return "failed", str(failed.get("message") if isinstance(failed, dict) else failed)
    value = frame.body.get("result")
    reason = value.get("stopReason") if isinstance(value, dict) else None
    if reason == "cancelled":
        return "cancelled", "it was cancelled"
    return "settled", None if reason in (None, "end_turn") else str(reason)


def _failure(frame: Frame) -> RequestRejected | None:
    failed = frame.body.get("error")
    if not isinstance(failed, dict):
        return None
    code = failed.get("code")
    return RequestRejected(str(failed.get("message")), code if isinstance(code, int) else BUSY, failed.get("data"))


def _shown(record: Record) -> dict[str, Json]:
    return {"input": record.number, "by": record.actor, "at": record.at, "prompt": record.body.get("prompt")}


def _size(body: dict[str, Json]) -> int:
    return len(text(Frame(body)))


def _may_compact(record: Record) -> bool:
    """What a prompt may do was settled by the token that sent it. One without it is not from a client of a server."""
    may = _own_meta(_body(record)).get("may")
    return not isinstance(may, list) or "compact" in may


def _body(record: Record) -> dict[str, Json]:
    return record.body if isinstance(record.body, dict) else {}


def _own_meta(params: dict[str, Json]) -> dict[str, Json]:
    meta = params.get("_meta")
    own = meta.get("onefold") if isinstance(meta, dict) else None
    return own if isinstance(own, dict) else {}


def why_not(ended: Json) -> str | None:
    """Why nothing came of a compaction, by what its end says."""
    cause = _own_meta(ended).get("cause") if isinstance(ended, dict) else None
    return cause if isinstance(cause, str) else None


def fulfil(future: asyncio.Future[T], value: T) -> None:
    """Who waited for it may be gone."""
    if not future.done():
        future.set_result(value)


def refuse(future: asyncio.Future[T], why: OnefoldError) -> None:
    if not future.done():
        future.set_exception(why)
