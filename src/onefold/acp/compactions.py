"""An agent's compactions: recorded once however many signals report them, requested once however many clients ask."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from onefold.acp import compaction_correlator, detectors
from onefold.acp.detectors.observation import text_of
from onefold.acp.prompt_queue import fulfil, refuse
from onefold.acp.room_errors import BUSY, RequestRejected
from onefold.errors import OnefoldError
from onefold.jsonrpc import Frame, error, notification
from onefold.model import Claim, Json

if TYPE_CHECKING:
    from onefold.acp.room import Room


@dataclass(frozen=True, slots=True)
class AgentUsage:
    """In tokens: what its context holds, and what it can hold."""

    used: int
    size: int


class Compactions:
    """Those of a room. All of it is used in the room's own task."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._seen: detectors.DetectorState | None = None
        self._joiner = compaction_correlator.CompactionCorrelator(room.room_journal.journal.new_id)
        self._claim: Claim | None = None
        """The one that the agent is at."""
        self._waiting: dict[str, list[asyncio.Future[Json]]] = {}
        self._full = False
        self.usage: AgentUsage | None = None
        """How full the agent's context is, by its own word; None until it has said so."""

    async def take_up(self) -> None:
        """What is in the journal is not seen again."""
        room_journal = self._room.room_journal
        before = await self._room.in_thread(room_journal.observed)
        self._joiner = compaction_correlator.CompactionCorrelator(
            room_journal.journal.new_id, remembered=before.acts, sources=before.by_itself, asked=before.asked
        )

    # ------------------------------------------------------------------ seen

    def watch(self, family: detectors.Family) -> None:
        """Another process of the agent is watched from now on."""
        self._seen = detectors.watch(family)

    def sent(self, frame: Frame) -> None:
        """Something goes to the agent; what follows of it is done soon."""
        if self._seen is not None:
            self._seen, told = detectors.see(self._seen, detectors.ToAgent(frame))
            if told:
                self._room.soon(partial(self._observed, told))

    @property
    def commands(self) -> frozenset[str]:
        """By which the agent says that it compacts."""
        return self._seen.traffic.compacting if self._seen is not None else frozenset()

    async def heard(self, event: detectors.Event) -> None:
        """Something came from the agent."""
        if self._seen is not None:
            self._seen, told = detectors.see(self._seen, event)
            await self._observed(told)

    async def _observed(self, told: Sequence[detectors.Observation]) -> None:
        for one in told:
            await self._act(self._joiner.observed(one, self._room.around.clock(), self._room.recorder.record))

    def turn_began(self) -> None:
        self._joiner.turn_started()

    async def turn_ends(self) -> None:
        await self._act(self._joiner.turn_settled(self._room.around.clock()))

    async def agent_started(self) -> None:
        await self._act(self._joiner.agent_started())

    async def agent_died(self, why: str) -> None:
        await self._act(self._joiner.agent_died(why))
        await self._failed(f"the agent ended: {why}")

    async def look(self) -> None:
        await self._act(self._joiner.tick(self._room.around.clock()))

    async def _act(self, acts: Sequence[compaction_correlator.Outcome]) -> None:
        for act in acts:
            match act:
                case compaction_correlator.CompactionBegan():
                    await self._begun(act)
                case compaction_correlator.CompactionFinished():
                    await self._finished(act)
                case compaction_correlator.CompactionFailed():
                    await self._failed(act.cause)

    async def _begun(self, act: compaction_correlator.CompactionBegan) -> None:
        if self._claim is not None:
            return  # it was asked for, and is in the journal as begun
        room = self._room
        await room.recorder.all_said()
        self._claim = await room.in_thread(room.room_journal.begun)
        room.recorder.tell("onefold/compaction_started", {"compaction": self._claim.compaction, "source": act.source})

    async def _finished(self, act: compaction_correlator.CompactionFinished) -> None:
        """The boundary: what was said before it is in the journal before it."""
        room = self._room
        await room.recorder.all_said()
        for other in act.aliases:
            await room.in_thread(partial(room.room_journal.alias, other))
        segment = await room.in_thread(
            partial(
                room.room_journal.finished, act.source, act.signals, act=act.key, said=self._may_be_kept(act.summary)
            )
        )
        room.recorder.record = segment.number
        id = segment.compaction or ""
        if self._claim is None:  # nobody saw it begin: whoever is told of an end was told of a beginning
            room.recorder.tell("onefold/compaction_started", {"compaction": id, "source": act.source})
        self._claim = None
        done: dict[str, Json] = {
            "compaction": id, "state": "committed", "source": act.source, "witnesses": list(act.signals),
            "confidence": act.confidence,
        }  # fmt: skip
        if act.before is not None and act.after is not None:
            done["tokens"] = {"before": act.before, "after": act.after}
        room.recorder.tell("onefold/compaction_done", done)
        room.recorder.tell("onefold/head_changed", {"head": segment.number})
        await room.recorder.commit()
        self._settle(id, "committed", None)

    def _may_be_kept(self, summary: str | None) -> str | None:
        """What of a summary is left by whoever redacts."""
        if summary is None:
            return None
        told = {"sessionUpdate": "compaction_update", "summary": [{"type": "text", "text": summary}]}
        kept = self._room.recorder.redacted(notification("session/update", {"update": told}))
        return None if kept is None else text_of(kept.update.get("summary")) or None

    async def _failed(self, cause: str) -> None:
        room, claim, self._claim = self._room, self._claim, None
        if claim is None:
            return
        await room.recorder.all_said()
        await room.in_thread(partial(room.room_journal.failed, claim, cause))
        told = {"compaction": claim.compaction, "state": "failed", "cause": cause}
        room.recorder.tell("onefold/compaction_done", told)
        await room.recorder.commit()
        self._settle(claim.compaction, "failed", cause)

    # ------------------------------------------------------------------ asked for

    async def asked(
        self, trigger: str, instructions: str | None, actor: str | None, ended: asyncio.Future[Json] | None
    ) -> None:
        """Somebody wants one: it is begun when the agent is free, or the one that is open is joined."""
        room = self._room
        try:
            kept = room.recorder.words(instructions) if instructions else None
            asked = await room.in_thread(partial(room.room_journal.request, trigger, kept, actor))
            if asked.compaction is None or not asked.compaction.open:
                if ended is not None:
                    fulfil(ended, {"stopReason": "end_turn", "_meta": {"onefold": {"cause": asked.cause}}})
                return
            if ended is not None:
                self._waiting.setdefault(asked.compaction.id, []).append(ended)
            await room.prompts.next()
        except OnefoldError as refused:
            if ended is not None:
                refuse(ended, refused)

    async def begin_wanted(self) -> bool:
        """Asks the agent for the compaction that somebody wants. False if nobody does."""
        room = self._room
        wanted = await room.in_thread(room.room_journal.open_compaction)
        if wanted is None or wanted.state != "requested":
            return False
        if not await room.prompts.begin("onefold", 0):
            return True
        self._claim = await room.in_thread(room.room_journal.begun)
        room.recorder.tell("onefold/compaction_started", {"compaction": wanted.id, "source": "asked"})
        command = detectors.command(self._seen) if self._seen is not None else None
        if command is None:
            agent = room.process.agent.name
            await self._failed(f"onefold knows no command by which {agent!r} compacts; it does so by itself, if at all")
            await room.prompts.end("failed", "the agent cannot be asked to compact", error(None, BUSY, "cannot"))
            room.soon(room.prompts.next)
            return True
        self._joiner.asked()
        words = f"{command} {wanted.instructions}" if wanted.instructions else command
        await room.prompts.send({"prompt": [{"type": "text", "text": words}]})
        return True

    def not_yet(self, why: str) -> None:
        """The turn in which it was asked for is over. A log line may come a little late; then it has failed."""
        if self._claim is not None:
            self._room.later(compaction_correlator.GRACE, self._given_up, self._claim, why)

    async def _given_up(self, claim: Claim, why: str) -> None:
        if self._claim is claim and self._joiner.open is None:
            await self._failed(why)
            await self._room.prompts.next()

    def _settle(self, id: str, state: str, cause: str | None) -> None:
        meta: dict[str, Json] = {"compaction": id, "state": state}
        if cause is not None:
            meta["cause"] = cause
        for future in self._waiting.pop(id, ()):
            fulfil(future, {"stopReason": "end_turn", "_meta": {"onefold": meta}})

    def let_go(self) -> None:
        """The room ends: what was asked for stays so, and nobody waits here for its end."""
        why = RequestRejected(
            "the room was closed before the agent was asked; the compaction waits until it is taken up again"
        )
        for future in (one for waiting in self._waiting.values() for one in waiting):
            refuse(future, why)
        self._waiting.clear()

    def used(self, update: dict[str, Json]) -> None:
        """How full the agent says that its context is. A policy may ask it to compact then: once, until that has
        fallen again."""
        share = self._room.around.compact_at
        used, size = update.get("used"), update.get("size")
        if type(used) is not int or type(size) is not int or used < 0 or size <= 0:
            return
        self.usage = AgentUsage(used, size)
        if share is None:
            return
        full = used >= share * size
        if full and not self._full:
            self._room.soon(partial(self.asked, "threshold", None, "policy", None))
        self._full = full
