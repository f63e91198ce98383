"""A room's access to the journal: every step that must be durable before a client hears of it.

All of it blocks and is called in a thread. A step that is repeated after a crash writes nothing twice: messages carry
the numbers of their frames as a key, compactions the agent's own id.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onefold.acp.frame_erasure import FROM_FRAMES, ErasedFrames, frames_of, gone, newest
from onefold.acp.message_assembler import CompleteMessage
from onefold.compaction.holder import this_process
from onefold.errors import MessageTooLarge, OnefoldError, StoreError
from onefold.journal import agent_compactions, pins_and_notes, turns
from onefold.journal.lineage import get_session
from onefold.messages import draft
from onefold.model import (
    AGENT_ENDED,
    AGENT_STARTED,
    COMMITTED,
    INPUT_QUEUED,
    QUESTION_ASKED,
    QUESTION_SETTLED,
    REQUESTED,
    SEGMENT_OPENED,
    Claim,
    ClaimDenied,
    Compaction,
    Json,
    Outcome,
    Record,
    RequestOutcome,
    Segment,
    SessionState,
    TurnClaim,
)
from onefold.session import MESSAGE_LIMIT
from onefold.storage.base import Transaction
from onefold.store import Store

log = logging.getLogger("onefold.acp")

ACP = "acp"
LEASE = 30.0
LIFE = 600.0
"""Seconds that an agent may compact; then nobody waits for it any longer."""
_PAGE = 500
_LOOKED_AT = 20_000
_REMEMBERED = 200
_ACT = "act:"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a room that ended without a word had open."""

    turn: int | None
    questions: tuple[str, ...]
    compaction: Compaction | None


@dataclass(frozen=True, slots=True)
class ObservedBefore:
    """What is in the journal of compactions that the agent made."""

    acts: frozenset[str]
    """The agent's own ids of them."""
    by_itself: frozenset[str]
    """The sources of those that it began by itself."""
    asked: frozenset[str]
    """And of those that somebody asked for."""


def begins(message: Record) -> int:
    """The first frame that a message comes from; 0 if it comes from none."""
    some = frames_of(message.key)
    return 0 if some is None else some[0]


class RoomJournal:
    """One session, as its room writes it."""

    def __init__(self, store: Store, session: str) -> None:
        self.store = store
        self.journal = store.journal
        self.session = session
        self.who = this_process("room")

    def open(self) -> None:
        """The session, made if it is new. From here on its agent compacts it."""
        self.store.session(self.session, keeper="agent")
        agent_compactions.set_compaction_owner(self.journal, self.session, "agent")

    def state(self) -> SessionState:
        return self.journal.state(self.session)

    # ------------------------------------------------------------------ the agent

    def started(self, body: dict[str, Json]) -> int:
        return self._note(AGENT_STARTED, body)

    def ended(self, body: dict[str, Json]) -> int:
        return self._note(AGENT_ENDED, body)

    def alias(self, other: str) -> None:
        """Agents that count their sessions give the same id to many: then it finds the first of them, and no harm."""
        if other == self.session:
            return
        try:
            pins_and_notes.alias(self.journal, self.session, other)
        except StoreError:
            raise
        except OnefoldError as taken:
            log.warning(
                "could not register the agent's session id as an alias: %s", taken, extra={"session": self.session}
            )

    # ------------------------------------------------------------------ prompts and turns

    def queue(self, body: Json, *, actor: str, key: str | None) -> int:
        """Keeps a prompt until its turn comes; the same key again is the same prompt."""
        made = draft(body, self.journal.new_id, format=ACP, actor=actor)
        if len(made.data) > MESSAGE_LIMIT:
            raise MessageTooLarge(
                f"session {self.session!r}: a prompt of {len(made.data):,} bytes is over the limit of "
                f"{MESSAGE_LIMIT:,}; keep large content in a file and name it"
            )
        return turns.queue_input(self.journal, self.session, made, key=key).numbers[0]

    def unqueue(self, number: int, *, actor: str) -> bool:
        return turns.unqueue_input(self.journal, self.session, number, actor=actor)

    def queued(self) -> list[Record]:
        def read_queued(tx: Transaction) -> list[Record]:
            found = (tx.record(self.session, n) for n in tx.inputs(self.session))
            return [r for r in found if r is not None and r.kind == INPUT_QUEUED]

        return self.journal.backend.read(read_queued)

    def begin(self, *, owner: str) -> TurnClaim | ClaimDenied:
        return turns.start(self.journal, self.session, self.who, owner=owner, lease=LEASE)

    def take(self, turn: TurnClaim, number: int | None) -> Record | None:
        return turns.take_input(self.journal, self.session, turn=turn, number=number)

    def renew(self, turn: TurnClaim) -> float | None:
        return turns.renew(self.journal, turn)

    def settle(self, turn: TurnClaim, outcome: Outcome, cause: str | None) -> None:
        turns.end(self.journal, turn, outcome, cause)

    def say(self, wholes: Sequence[CompleteMessage], turn: TurnClaim | None) -> int | None:
        """Messages that are whole, in one transaction. Those that stand there already, from before a crash, are not
        written again."""
        if not wholes:
            return None
        keyed = [(f"{FROM_FRAMES}{a}-{b}", draft(body, self.journal.new_id, format=ACP)) for body, a, b in wholes]
        return turns.append_each(self.journal, self.session, keyed, turn=turn)[-1]

    # ------------------------------------------------------------------ questions

    def asked(self, question: str, method: str, params: Json, turn: TurnClaim | None) -> int:
        body = {"question": question, "method": method, "params": params}
        return self._note(QUESTION_ASKED, body, turn=turn)

    def answered(self, question: str, outcome: str, *, answer: Json = None, actor: str | None = None) -> int:
        body: dict[str, Json] = {"question": question, "outcome": outcome}
        if answer is not None:
            body["answer"] = answer
        return self._note(QUESTION_SETTLED, body, actor=actor, key=f"question:{question}")

    # ------------------------------------------------------------------ compactions

    def request(
        self, trigger: str, instructions: str | None = None, actor: str | None = None, base: int | None = None
    ) -> RequestOutcome:
        return self.journal.request(
            self.session, trigger=trigger, instructions=instructions, attempts=1, actor=actor, base=base
        )

    def begun(self) -> Claim:
        return agent_compactions.watch(self.journal, self.session, self.who, life=LIFE)

    def finished(self, source: str, signals: Sequence[str], *, act: str | None, said: str | None) -> Segment:
        """The agent's own id of it makes it the same one, told as often as may be."""
        key = None if act is None else f"{_ACT}{act}"
        return agent_compactions.record_agent_compaction(
            self.journal, self.session, source=source, signals=tuple(signals), key=key, said=said
        )

    def failed(self, claim: Claim, cause: str) -> Compaction:
        return self.journal.fail(claim, cause, None)

    def open_compaction(self) -> Compaction | None:
        def read_open_compaction(tx: Transaction) -> Compaction | None:
            state = get_session(tx, self.session)
            return tx.compaction(self.session, state.open) if state.open is not None else None

        return self.journal.backend.read(read_open_compaction)

    def compaction(self, id: str) -> Compaction:
        return self.journal.compaction(self.session, id)

    # ------------------------------------------------------------------ what people erase

    def erased_at(self) -> int:
        """The newest segment that an erasure opened; 0 if nothing was ever erased."""
        return self.journal.backend.read(lambda tx: newest(tx, self.session))

    def gone(self) -> ErasedFrames | None:
        return self.journal.backend.read(lambda tx: gone(tx, self.session))

    # ------------------------------------------------------------------ after a crash

    def left(self) -> Unfinished:
        """What the room's last process left open. Only for who knows that it is gone."""

        def read_left(tx: Transaction) -> Unfinished:
            state = get_session(tx, self.session)
            turn = tx.record(self.session, state.turn) if state.turn else None
            ours = turn is not None and turn.body["holder"].get("agent") == self.who.agent
            compaction = tx.compaction(self.session, state.open) if state.open is not None else None
            return Unfinished(state.turn if ours else None, tuple(self._open_questions(tx, state)), compaction)

        return self.journal.backend.read(read_left)

    def folded(self) -> int:
        """The last frame that a message of the journal comes from: what came after it may have been lost on the way."""

        def read_folded(tx: Transaction) -> int:
            for record in self._backwards(tx, get_session(tx, self.session)):
                if (some := frames_of(record.key)) is not None:
                    return some[1]
            return 0

        return self.journal.backend.read(read_folded)

    def observed(self) -> ObservedBefore:
        """What the newest recorded compactions of the agent say of the next ones: reported again, they are not new, and
        where a strong detector reported one, weaker ones stay silent."""

        def read_observed(tx: Transaction) -> ObservedBefore:
            acts: set[str] = set()
            sources: dict[str, set[str]] = {"asked": set(), "by itself": set()}
            seen: dict[str, str] = {}
            for record in self._backwards(tx, get_session(tx, self.session)):
                if record.kind == COMMITTED and record.key is not None and record.key.startswith(_ACT):
                    acts.add(record.key.removeprefix(_ACT))
                elif record.kind == SEGMENT_OPENED and isinstance(record.body.get("by"), str):
                    seen[str(record.body.get("compaction"))] = record.body["by"]
                elif record.kind == REQUESTED and (by := seen.pop(record.body["compaction"], None)) is not None:
                    sources["by itself" if record.body["trigger"] == "observed" else "asked"].add(by)
                if len(acts) >= _REMEMBERED:
                    break
            return ObservedBefore(frozenset(acts), frozenset(sources["by itself"]), frozenset(sources["asked"]))

        return self.journal.backend.read(read_observed)

    def claim_of(self, number: int) -> TurnClaim | None:
        """The turn that began at this record, for the process that takes it up."""

        def read_claim_of(tx: Transaction) -> TurnClaim | None:
            started = tx.record(self.session, number)
            if started is None or started.turn is None:
                return None
            return TurnClaim(self.session, started.turn, number, started.body["owner"], LEASE, 0.0, os.getpid())

        return self.journal.backend.read(read_claim_of)

    def settle_left(self, left: Unfinished, cause: str) -> None:
        """Ends what was left open: no question, turn or compaction outlives its agent."""
        for question in left.questions:
            self.answered(question, "withdrawn")
        running = left.compaction
        if running is not None and running.state == "running":
            claim = Claim(
                self.session, running.id, running.fence, running.base, running.attempts, running.attempts_allowed,
                LIFE, LIFE, 0.0, os.getpid(),
            )  # fmt: skip
            self.journal.fail(claim, cause, None)
        if left.turn is not None:
            turns.interrupt(self.journal, self.session, left.turn, cause=cause)

    def _open_questions(self, tx: Transaction, state: SessionState) -> list[str]:
        """Asked and not settled, the oldest first: looked for back to where the agent was started."""
        settled: set[str] = set()
        found: list[str] = []
        for record in self._backwards(tx, state):
            if record.kind == QUESTION_SETTLED:
                settled.add(record.body["question"])
            elif record.kind == QUESTION_ASKED and record.body["question"] not in settled:
                found.append(record.body["question"])
            elif record.kind == AGENT_STARTED:
                break
        return found[::-1]

    def _backwards(self, tx: Transaction, state: SessionState) -> Iterator[Record]:
        """The session's own records, the newest first, so many of them at most."""
        stop, first = state.last + 1, max(state.forked_at, state.last - _LOOKED_AT)
        while stop > first + 1:
            start = max(first + 1, stop - _PAGE)
            yield from reversed(tx.records(self.session, start, stop, _PAGE))
            stop = start

    def _note(
        self, kind: str, body: dict[str, Json], *, turn: TurnClaim | None = None, key: str | None = None,
        actor: str | None = None,
    ) -> int:  # fmt: skip
        made = self.journal.draft(kind, body, actor=actor)
        return self.journal.append(self.session, [made], key=key, turn=turn).numbers[-1]
