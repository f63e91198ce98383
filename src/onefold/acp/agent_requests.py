"""Requests from the agent to its clients: sent to everybody who may answer, and answered once."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from onefold.acp.members import Member, translated
from onefold.acp.room_errors import BUSY, RequestRejected
from onefold.acp.tool_calls import ToolCalls
from onefold.jsonrpc import METHOD_NOT_FOUND, Frame, error, notification, request
from onefold.messages.json_size import weight
from onefold.model import Json

if TYPE_CHECKING:
    from onefold.acp.room import Room

MOST = 256
"""Questions that wait at the same time."""
MOST_BYTES = 16 << 20
"""And what they are together. One by itself always passes."""

_WITHHELD = ("fs/", "terminal/")


@dataclass(frozen=True, slots=True)
class AgentRequest:
    id: str
    asked_as: str | int
    """The agent's own id of its request."""
    method: str
    params: dict[str, Json]
    at: float
    shown: dict[str, Json]
    """The parameters as who is to answer sees them: with all that is known of the call that is asked about."""
    weight: int


class AgentRequests:
    """Those of a room that wait for an answer. All of it is used in the room's own task."""

    def __init__(self, room: Room) -> None:
        self.calls = ToolCalls()
        self._room = room
        self._waiting: dict[str, AgentRequest] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def shown(self) -> list[Json]:
        return [{"question": q.id, "method": q.method, "params": q.shown, "at": q.at} for q in self._waiting.values()]

    async def asked(self, frame: Frame) -> None:
        """The agent asks. It is in the journal before anybody is asked."""
        room, method, id = self._room, frame.method or "", frame.id
        room.recorder.keep("in", frame)
        if id is None:
            return
        if method.startswith(_WITHHELD):
            room.process.send(error(id, METHOD_NOT_FOUND, f"{method}: onefold gives agents no files and no terminals"))
            return
        shown = self.calls.whole(frame.params)
        heavy, held = weight(shown), sum(q.weight for q in self._waiting.values())
        if len(self._waiting) >= MOST or (held and held + heavy > MOST_BYTES):
            why = f"{len(self._waiting)} questions wait for an answer already; ask again when some are answered"
            room.process.send(error(id, BUSY, f"{method}: {why}"))
            return
        await room.recorder.all_said()
        question = AgentRequest(
            room.room_journal.journal.new_id(), id, method, frame.params, room.around.clock(), shown, heavy
        )
        kept = room.recorder.redacted(frame)
        params = kept.params if kept is not None else {}
        room.recorder.record = await room.in_thread(
            partial(room.room_journal.asked, question.id, method, params, room.recorder.claim)
        )
        self._waiting[question.id] = question
        for member in room.members:
            self._put(member, question)
        room.recorder.tell(
            "onefold/question_asked", {"question": question.id, "method": method, "params": frame.params}
        )

    def put_all(self, member: Member) -> None:
        """To one who comes late."""
        for question in self._waiting.values():
            self._put(member, question)

    def _put(self, member: Member, question: AgentRequest) -> None:
        if member.may_act and member.live:
            member.send(request(question.id, question.method, translated(question.shown, self._room.session)))

    async def answer(self, member: Member, frame: Frame) -> None:
        """A client's answer. The first one wins; one that is an error only if nobody else can give another."""
        question = self._waiting.get(str(frame.id))
        if question is None or not member.may_act:
            return
        if "error" in frame.body:
            member.declined.add(question.id)
            if any(m.may_act and question.id not in m.declined for m in self._room.members):
                return
        said = {k: v for k, v in frame.body.items() if k in ("result", "error")}
        await self._settle(question, "answered", said, member)

    async def taken_back(self, asked_as: Json) -> None:
        """The agent itself wants no answer any more."""
        for question in list(self._waiting.values()):
            if question.asked_as == asked_as:
                await self._settle(question, "withdrawn", None, None)

    async def forget(self, ids: Collection[str]) -> None:
        """Questions were erased: what nobody may see, nobody can answer."""
        for question in [q for q in self._waiting.values() if q.id in ids]:
            await self._settle(question, "withdrawn", None, None)

    def forget_calls(self) -> None:
        """Something was erased, and it may have been a call: what is not in the question itself is shown no more."""
        self.calls.forget()
        self._waiting = {q.id: replace(q, shown=q.params) for q in self._waiting.values()}

    async def withdraw(self, outcome: str = "withdrawn", by: Member | None = None) -> None:
        """Nobody need answer any more: the turn is over, or somebody cancels it."""
        for question in list(self._waiting.values()):
            await self._settle(question, outcome, None, by)
        if outcome == "withdrawn":
            self.calls.forget()

    async def _settle(
        self, question: AgentRequest, outcome: str, said: dict[str, Json] | None, by: Member | None
    ) -> None:
        room = self._room
        self._waiting.pop(question.id, None)
        actor = by.name if by is not None else None
        kept = (
            room.recorder.redacted(Frame({"jsonrpc": "2.0", "id": question.id, **said})) if said is not None else None
        )
        answer = {k: v for k, v in kept.body.items() if k in ("result", "error")} if kept is not None else None
        room.recorder.record = await room.in_thread(
            partial(room.room_journal.answered, question.id, outcome, answer=answer, actor=actor)
        )
        body = said if said is not None else _no_answer(question.method)
        with contextlib.suppress(RequestRejected):  # it is gone, and asks no more
            room.process.send(Frame({"jsonrpc": "2.0", "id": question.asked_as, **body}))
        for member in room.members:
            if member is not by and member.may_act:
                member.send(notification("$/cancel_request", {"requestId": question.id}))
        told: dict[str, Json] = {"question": question.id, "outcome": outcome}
        if actor is not None:
            told["by"] = actor
        room.recorder.tell("onefold/question_settled", told)


def _no_answer(method: str) -> dict[str, Json]:
    """What the agent is told when nobody answered."""
    if method == "session/request_permission":
        return {"result": {"outcome": {"outcome": "cancelled"}}}
    return {"error": {"code": BUSY, "message": "nobody answered: the question was withdrawn"}}
