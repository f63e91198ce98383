"""What an agent holds: one conversation, under one id for life."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSet, Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

from onefold.compaction import resummary
from onefold.compaction.attempt import AttemptRegistry
from onefold.compaction.context import Context, ContextView, load_view, render
from onefold.compaction.holder import this_process
from onefold.compaction.job import CompactionJob, compact
from onefold.compaction.limits import Limits
from onefold.compaction.policy import Policy
from onefold.compaction.provider_adoption import adopt
from onefold.compaction.resummary import SummaryDraft
from onefold.compaction.summarizer import Summarizer, extractive_summary
from onefold.errors import InvalidMessage, MessageTooLarge, OnefoldError, StaleHandle
from onefold.journal import agent_compactions, erasure, forks, lineage, masks, pins_and_notes, turns, undo, unfold
from onefold.journal.adoption import Origin
from onefold.journal.checks import check_name
from onefold.journal.journal import Journal
from onefold.journal.masks import LARGE, Choice
from onefold.messages import draft, plain_draft
from onefold.model import (
    MANUAL,
    AppendResult,
    Compaction,
    CompactResult,
    Draft,
    Erased,
    Fact,
    ForkKind,
    Holder,
    Ids,
    Json,
    Keeper,
    Note,
    OpenTurn,
    Record,
    Segment,
    SessionState,
    Slot,
    TurnClaim,
)
from onefold.storage.base import Transaction
from onefold.turn import Tenure, Turn, TurnRequest, acquire_turn

MESSAGE_LIMIT = 64 << 20
_REMEMBERED = 1000
"""Stretches of its own messages that a handle remembers since it looked last."""


class Session:
    """A handle on one session. Cheap to make; any number of them, in any number of processes, may be in use."""

    def __init__(
        self,
        journal: Journal,
        state: SessionState,
        *,
        summarizer: Summarizer | None,
        policy: Policy,
        runner: AttemptRegistry,
        ids: Ids,
        agent: str | None = None,
        turns: MutableSet[Tenure] | None = None,
    ) -> None:
        self.id = state.id
        self.journal = journal
        self.summarizer = summarizer
        self.policy = policy
        self._runner = runner
        self._ids = ids
        self.agent = agent
        self._turns: MutableSet[Tenure] = turns if turns is not None else weakref.WeakSet()
        self.measured_segment: int | None = None
        self._saw, self._seen = state.head, state.last  # what was there when the handle was made, it knows
        self._wrote: list[tuple[int, int]] = []  # since then, after somebody else did
        self._began: list[str] = []  # turns: what is in them comes of this handle, results for calls left open included

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    @property
    def state(self) -> SessionState:
        return self.journal.state(self.id)

    @property
    def head(self) -> int:
        """The number of the segment in force."""
        return self.state.head

    def segments(self) -> list[Segment]:
        """Every boundary this session ever had, the oldest first."""
        return self.journal.backend.read(lambda tx: tx.segments(self.id))

    def compactions(self) -> list[Compaction]:
        """Every compaction this session was ever asked for, the oldest first."""
        return self.journal.backend.read(lambda tx: tx.compactions(self.id, open_only=False))

    def append(
        self,
        messages: Json | Sequence[Json],
        *,
        key: str | None = None,
        format: str | None = None,
        actor: str | None = None,
        slot: Slot | None = None,
        program: bool = False,
    ) -> AppendResult:
        """Adds one message or a list of them, all or none. They are on disk when this returns.

        The same `key` again returns the same numbers and writes nothing; with other content it is `KeyConflict`. If
        they were undone or erased since, `hidden` says so: they are in no context, and a key does not bring them back.

        `slot="prompt"` says that these system and developer messages are the system prompt from here on, in place of
        the one before: a program that starts with a new version of it says so. `program` says that what stands in a
        user's place is no person's word: a reminder, a file of instructions. After a compaction people's words are
        quoted, and a program's are not.
        """
        if key is not None:
            check_name("key", key)
        if slot is not None:
            return self._put(slot, messages, key, format, actor)
        plain = plain_draft(messages, self._ids) if type(messages) is dict and format is actor is None else None
        if plain is None or program:
            done = self.journal.append(self.id, self.drafts(messages, format, actor, program=program), key=key)
        else:
            done = self.journal.append(self.id, [plain], key=key)
        if done.numbers[0] == self._seen + 1:  # as most are
            self._seen = done.numbers[-1]
        else:
            self.wrote_up_to(done.numbers)
        return done

    def read(self, start: int = 1, stop: int | None = None) -> Iterator[Record]:
        """Records with start ≤ number < stop: everything that ever happened, whatever was compacted."""
        return self.journal.read(self.id, start, stop)

    def follow(self, after: int = 0, *, generation: str | None = None, idle: float | None = None) -> Iterator[Record]:
        """Records after a number, live, from this and other processes, without a gap or a repeat."""
        return self.journal.follow(self.id, after, generation=generation, idle=idle)

    def context(self, segment: int | None = None, *, origin: Origin | None = None) -> Context:
        """What to send to a model now; or what an older segment would send.

        With the `origin` of a provider's item that was adopted and is in force, it has that item in place of what it
        covers. For anybody else it is plain.
        """

        def read_context(tx: Transaction) -> tuple[ContextView, list[Record], int, str | None]:
            state = lineage.get_session(tx, self.id)
            begins = load_view(tx, self.id, segment or state.head, state.last + 1, origin)
            tail = lineage.messages(tx, self.id, begins.segment.cut, state.last + 1, begins.segment.hidden)
            live = tx.record(self.id, state.turn) if state.turn else None
            return begins, tail, state.last, live.turn if live is not None else None

        begins, tail, last, live = self.journal.backend.read(read_context)
        if segment is None:
            self.measured_segment = self._saw = begins.segment.number
            self._seen, self._wrote = last, []
        return render(begins, tail, last, live)

    def compact(
        self,
        summarizer: Summarizer | None = None,
        *,
        trigger: str = MANUAL,
        instructions: str | None = None,
        wait: bool | float = True,
        base: int | None = None,
        follow_up: Json | None = None,
        policy: Policy | None = None,
    ) -> CompactResult:
        """Makes the context smaller, once, whoever else asks for it at the same time.

        It is for the segment this handle saw last, by `context()` or by the last `compact()`: if somebody compacted
        that one meanwhile, there is nothing to do, and the result says so. `follow_up` is an input that the next
        turn takes, written together with the summary. `policy` is for this call, instead of the store's; switched off
        by either (`enabled=False`), it is `CompactionDisabled`, whatever the trigger.
        """
        call = self.compaction_job(
            summarizer or self.summarizer or extractive_summary,
            trigger=trigger, instructions=instructions, wait=wait, base=base, follow_up=follow_up, policy=policy,
        )  # fmt: skip
        return self.after_compaction(compact(call, self.journal))

    def cancel(self) -> Compaction | None:
        """Ends the compaction that is open, if one is."""
        return self.journal.cancel(self.id, actor=self.agent)

    def compaction_holder(self) -> Holder | None:
        """Who compacts this session now, since when and until when; None if nobody does."""
        return self.journal.holder(self.id)

    # ------------------------------------------------------------------ turns, and inputs that wait for one

    def turn(self, *, owner: str | None = None, wait: bool | float = True) -> Turn:
        """Begins a turn: until it ends, no other turn writes. `with session.turn(owner="gateway") as turn: …`

        If one is open, waits for it: True for as long as the policy says, a number of seconds, or False for not at all.
        Then it is `Busy`. The other way is to `queue` the input for the next turn. A turn whose process died is settled
        as interrupted by the next one, once that is known or its lease has run out.
        """
        return self.hand_over(acquire_turn(self.turn_request(owner, wait), self.journal))

    def open_turn(self) -> OpenTurn | None:
        """The turn that is open now, and whose it is."""
        return turns.current(self.journal, self.id)

    def stop_turn(self, cause: str | None = None) -> OpenTurn | None:
        """Cancels the turn that is open, whoever writes in it; None if none is."""
        return turns.stop(self.journal, self.id, cause=cause, actor=self.agent)

    def queue_input(self, message: Json, *, format: str | None = None, key: str | None = None) -> int:
        """Keeps an input until a turn takes it. The same `key` again gives the same number; whether what came of it was
        undone or erased since, `hidden` says."""
        return self.queue_draft(message, format, key).numbers[0]

    def take_input(self, *, key: str | None = None) -> Record | None:
        """Takes the oldest input that waits, as a message of this session; None if none does."""
        taken = turns.take_input(self.journal, self.id, key=key)
        if taken is not None:
            self.wrote_up_to((taken.number,))
        return taken

    def hidden(self, *numbers: int) -> tuple[int, ...]:
        """Those of some records that are in no context now, because they were undone or erased; of an input, because
        the message it became was, or because it was withdrawn. What a summary stands for is not hidden."""
        return self.journal.backend.read(lambda tx: lineage.taken_back(tx, self.id, numbers))

    # ------------------------------------------------------------------ what stands in every context

    def pin(self, number: int, *, actor: str | None = None) -> tuple[int, ...]:
        """Keeps a message in every context, word for word, with the call or results that belong to it."""
        return pins_and_notes.pin(self.journal, self.id, number, actor=actor or self.agent)

    def unpin(self, number: int, *, actor: str | None = None) -> tuple[int, ...]:
        """Lets a pinned message go. It was summarised like the rest: nothing is lost by that."""
        return pins_and_notes.unpin(self.journal, self.id, number, actor=actor or self.agent)

    def pins(self) -> tuple[int, ...]:
        """The messages that are pinned."""
        return tuple(sorted(self._standing().pinned))

    def note(
        self,
        kind: str,
        text: str,
        key: str | None = None,
        *,
        actor: str | None = None,
        source: Sequence[int] = (),
    ) -> int:
        """Writes a fact down (a rule, a path, a goal) that stands in every context, word for word.

        A later note of the same kind and key takes its place; with an empty text it is taken away. `source` are the
        messages that it comes from: if one of them is erased, so is the note.
        """
        actor = actor or self.agent
        return pins_and_notes.note(self.journal, self.id, kind, text, key=key, actor=actor, source=tuple(source))

    def notes(self) -> tuple[Note, ...]:
        """The facts that hold now."""
        return self._standing().notes

    def facts(self) -> tuple[Fact, ...]:
        """Of what is quoted from before the cut, what the model that wrote the summary called a rule, a limit and so
        on, in the words that were said."""

        def read_facts(tx: Transaction) -> tuple[Fact, ...]:
            state = lineage.get_session(tx, self.id)
            begins = load_view(tx, self.id, state.head, state.last + 1)
            return (*begins.facts, *begins.quoting.facts)

        return self.journal.backend.read(read_facts)

    # ------------------------------------------------------------------ going back, and branching off

    def undo(self) -> Segment:
        """Takes the newest message of the user back, and all that came of it, whatever was compacted since.

        Nothing is deleted: it is hidden, and `redo` brings it back. `Moved` if messages came that this handle has
        neither read with `context()` nor written. If nothing was said since somebody unfolded a compaction, that is
        taken back, and no message.
        """
        return self._go_back(undo.undo)

    def redo(self) -> Segment:
        """Takes the last undo or rewind back, if nothing was said since."""
        return self._go_back(undo.redo)

    def rewind(self, to: int) -> Segment:
        """Hides everything after a record. It lands before a call whose results would be hidden."""
        return self._go_back(partial(_rewound, to))

    def unfold(self, segment: int | None = None) -> Segment:
        """Takes a compaction back, by the segment that it opened; by default the newest. What it stood for is in view
        again, and what was said since stays.

        Compactions that were made of its summary are taken back with it: `unfolds` of the segment in force names them.
        Automatic compactions rest until the context is full. `undo` takes it back if nothing was said since, and
        `refold` at any time. `ContextTooLarge` if the context would be over what its agent goes by.
        """
        goes_by = self.limits() or self.policy.said
        most = None if goes_by is None else goes_by.hard_tokens
        moved = unfold.unfold(self.journal, self.id, segment, most=most, actor=self.agent)
        self.measured_segment = moved.number
        return moved

    def refold(self, segment: int | None = None) -> Segment:
        """Goes to the boundary of a compaction again that was unfolded, whatever was said since; by default the newest
        that stands for nothing that was taken back or erased meanwhile."""
        moved = unfold.refold(self.journal, self.id, segment, actor=self.agent)
        self.measured_segment = moved.number
        return moved

    def draft_summary(
        self, summarizer: Summarizer | None = None, *, instructions: str | None = None, policy: Policy | None = None
    ) -> SummaryDraft:
        """Has the summary in force written once more, of the same messages, for a person to compare; blocks meanwhile.

        Nothing changes by that: `take_draft` puts it in the place of the one in force, and what is not taken is
        forgotten. What it cost is in the journal either way. No claim is held, so others may compact; then it cannot be
        taken. `SummarizerFailed` if no summary was made, or a bad one.
        """
        return resummary.draft(
            self.journal, self.id, summarizer or self.summarizer or extractive_summary, policy or self.policy,
            instructions=instructions, actor=self.agent,
        )  # fmt: skip

    def take_draft(self, draft: SummaryDraft) -> Segment:
        """Puts a draft in the place of the summary in force, in one transaction. `Moved` with nothing written if the
        session is at another boundary by now, `NotNow` while a compaction is open. `unfold` goes to the summary before
        it again."""
        if draft.session != self.id:
            raise OnefoldError(f"session {self.id!r}: this draft was made for session {draft.session!r}")
        opened = resummary.take(self.journal, draft, this_process(self.agent), actor=self.agent)
        self.measured_segment = opened.number
        return opened

    def mask(self, *numbers: int) -> Segment:
        """Shows old tool results as one line each, with the number by which they can be read again: by default those
        that the policy says, in any case not the newest ones. Nothing is summarised, and nothing is lost.

        `Compactor` does so by itself before it asks for a summary, if that is enough. What is pinned, what belongs to a
        call that is open, and what is not text stays as it is. `unfold` with the segment's number shows them again.
        """
        _, could = self.could_mask(self.policy)
        chosen = numbers or [n for n, _ in could.masks]
        opened = masks.mask(self.journal, self.id, chosen, expect_head=could.head, actor=self.agent, by_hand=True)
        self.measured_segment = opened.number
        return opened

    def adopt(self, *window: int, origin: Origin, covers: Context | Iterable[int]) -> Segment:
        """Takes a compaction that the provider made for a boundary of this session, by the number of the message that
        has its item; where more came back with it, by the numbers of all of them. No model is asked.

        `covers` is what was sent when it was made: the context, or numbers of messages; what it does not cover stays.
        `context(origin=…)` has the item from then on. Any other context has its text as a summary, or, where that is
        sealed, the boundary from before. `unfold` takes it back. Said again, nothing is written.
        """
        nobody_else = self.journal.backend.read(self._sees_the_same)
        opened = adopt(
            self.journal, self.id, window, origin=origin, covers=covers, policy=self.policy, actor=self.agent
        )
        self.measured_segment = opened.number
        if nobody_else:
            self._saw = opened.number
        return opened

    def could_mask(self, policy: Policy) -> tuple[SessionState, Choice]:
        def read_could_mask(tx: Transaction) -> tuple[SessionState, Choice]:
            could = masks.choose(tx, self.id, newest=policy.mask_newest, large=policy.mask_tokens or LARGE)
            return lineage.get_session(tx, self.id), could

        return self.journal.backend.read(read_could_mask)

    def fork(self, kind: ForkKind = "branch", at: int | None = None, *, id: str | None = None) -> Session:
        """A new session whose past is this one's, as it was at a record (by default now). Nothing is copied.

        A `branch` or a `subagent` lives on its own. A `review` does not compact. None of them writes to this one.
        """
        return self.fork_as(kind, at, id, self.agent)

    def fork_as(self, kind: ForkKind, at: int | None, id: str | None, actor: str | None) -> Session:
        child = id if id is not None else self._ids()
        check_name("session id", child)
        if kind not in get_args(ForkKind):
            raise OnefoldError(f"{kind!r} is not a kind of fork; use one of {', '.join(get_args(ForkKind))}")
        state = forks.fork(self.journal, self.id, child, kind=kind, at=at, actor=actor)
        return Session(
            self.journal, state, summarizer=self.summarizer, policy=self.policy, runner=self._runner,
            ids=self._ids, agent=self.agent, turns=self._turns,
        )  # fmt: skip

    def erase(self, *numbers: int, remove_copies: bool = False) -> Erased:
        """Removes the content of messages, inputs, notes or questions for good, with every summary and note that comes
        from them, here, in forks, and in the sidecar files. Tombstones stay in their place.

        What may still hold it is named in `remains`. With `remove_copies`, the copies go too that onefold itself left
        next to the store, such as the one from before a migration.
        """
        nobody_else = self.journal.backend.read(self._sees_the_same)
        erased = erasure.erase(self.journal, self.id, numbers, actor=self.agent, remove_copies=remove_copies)
        if nobody_else:
            self._saw = self.head
        return erased

    # ------------------------------------------------------------------ other ids, other keepers

    def alias(self, other_id: str) -> None:
        """Makes this session known by one more id, such as the one its agent gave it, before or after a rotation."""
        check_name("alias", other_id)
        pins_and_notes.alias(self.journal, self.id, other_id, actor=self.agent)

    def aliases(self) -> list[str]:
        """The other ids this session is known by, the newest last."""
        return pins_and_notes.aliases(self.journal, self.id)

    def set_compaction_owner(self, keeper: Keeper) -> Segment:
        """Says who compacts this session from now on: "onefold", or the "agent" by itself."""
        return agent_compactions.set_compaction_owner(self.journal, self.id, keeper)

    def record_agent_compaction(self, source: str, signals: Sequence[str] = ()) -> Segment:
        """Notes that the agent compacted by itself: a mark and a segment for reading, which moves no cut."""
        return agent_compactions.record_agent_compaction(self.journal, self.id, source=source, signals=tuple(signals))

    def limits(self) -> Limits | None:
        """What its agent goes by, as it said when it looked last; None if nobody said anything."""
        said = self.journal.backend.read(lambda tx: lineage.limits(tx, lineage.get_session(tx, self.id)))
        return None if said is None else Limits.from_record(said)

    def go_by(self, limits: Limits, model: str | None = None) -> int:
        """Notes what its agent goes by, for workers, the server and everybody else who has to know. `Compactor` does so
        by itself. Said again, nothing is written; gives the number of the record that says so."""
        return pins_and_notes.go_by(self.journal, self.id, limits.as_record(model), actor=self.agent)

    # ------------------------------------------------------------------ small parts

    def compaction_job(
        self, summarizer: Summarizer, *, trigger: str, instructions: str | None, wait: bool | float, base: int | None,
        follow_up: Json | None, policy: Policy | None = None,
    ) -> CompactionJob:  # fmt: skip
        return CompactionJob(
            self.journal,
            self.id,
            summarizer,
            self.policy if policy is None else replace(policy, enabled=policy.enabled and self.policy.enabled),
            self._runner,
            base=base or self.measured_segment or self.head,
            trigger=trigger,
            instructions=instructions,
            wait=wait,
            agent=self.agent,
            follow_up=None if follow_up is None else self._draft(follow_up, None, None, program=True),
        )

    def _put(
        self, slot: Slot, messages: Json | Sequence[Json], key: str | None, format: str | None, actor: str | None
    ) -> AppendResult:
        done = pins_and_notes.append(self.journal, self.id, self.drafts(messages, format, actor), slot, key=key)
        self.wrote_up_to(done.numbers)
        return done

    def queue_draft(self, message: Json, format: str | None, key: str | None, actor: str | None = None) -> AppendResult:
        return turns.queue_input(self.journal, self.id, self._draft(message, format, actor), key=key)

    def after_compaction(self, result: CompactResult) -> CompactResult:
        self.measured_segment = result.segment
        return result

    def turn_request(self, owner: str | None, wait: bool | float) -> TurnRequest:
        if owner is not None:
            check_name("owner", owner)
        seconds = self.policy.seconds(wait)
        return TurnRequest(
            self.journal, self.id, this_process(self.agent), owner=owner, lease=self.policy.turn_lease, seconds=seconds
        )

    def hand_over(self, claim: TurnClaim) -> Turn:
        made = Turn(self.journal, claim, self.drafts, self.wrote_up_to)
        self._began.append(claim.id)
        del self._began[:-_REMEMBERED]
        self._turns.add(made.tenure)
        return made

    def _standing(self) -> lineage.PinsAndNotes:
        def read_standing(tx: Transaction) -> lineage.PinsAndNotes:
            state = lineage.get_session(tx, self.id)
            head = tx.segment(self.id, state.head)
            return lineage.load_pins_and_notes(tx, self.id, state.last + 1, head.hidden if head is not None else ())

        return self.journal.backend.read(read_standing)

    def _go_back(self, how: Callable[..., Segment]) -> Segment:
        """Goes back from where this handle saw the session last. What it wrote itself since, it has seen."""

        def read_go_back(tx: Transaction) -> tuple[SessionState, list[int]]:
            state = lineage.get_session(tx, self.id)
            if not self._sees_the_same(tx):
                raise StaleHandle(f"session {self.id!r}: somebody took something back in it; look at context() first")
            since = tx.headers(self.id, self._seen + 1, state.last + 1)
            return state, [h.number for h in since if h.turn not in self._began]

        state, since = self.journal.backend.read(read_go_back)
        if unseen := [n for n in since if not any(a <= n <= b for a, b in self._wrote)]:
            raise StaleHandle(
                f"session {self.id!r} has messages that this handle has not seen, from record {unseen[0]} on; "
                "look at context() first, then decide"
            )
        moved = how(self.journal, self.id, expect_head=state.head, seen=state.last, actor=self.agent)
        self.measured_segment = self._saw = self._seen = moved.number
        self._wrote = []
        return moved

    def _sees_the_same(self, tx: Transaction) -> bool:
        """Whether nothing was taken back since this handle looked. A compaction alone hides nothing."""
        state = lineage.get_session(tx, self.id)
        saw, head = tx.segment(self.id, self._saw), tx.segment(self.id, state.head)
        if saw is None or head is None:
            return False
        return lineage.same_before(tx, self.id, state.last + 1, saw.hidden, head.hidden)

    def wrote_up_to(self, numbers: Sequence[int]) -> None:
        wrote = self._wrote
        if numbers[0] == self._seen + 1:
            self._seen = numbers[-1]
        elif wrote and wrote[-1][1] + 1 == numbers[0]:
            wrote[-1] = (wrote[-1][0], numbers[-1])
        else:
            wrote.append((numbers[0], numbers[-1]))
            del wrote[:-_REMEMBERED]

    def drafts(
        self, messages: Json | Sequence[Json], format: str | None, actor: str | None, *, program: bool = False
    ) -> list[Draft]:
        given = list(messages) if isinstance(messages, list | tuple) else [messages]
        if not given:
            raise InvalidMessage(f"session {self.id!r}: there is nothing to append; give a message or a list of them")
        if actor is not None:
            check_name("actor", actor)
        return [self._draft(m, format, actor, program=program) for m in given]

    def _draft(
        self, message: Json, format: str | None, actor: str | None, *, program: bool = False
    ) -> Draft:  # fmt: skip
        try:
            if type(message) is not dict and isinstance(message, Mapping):
                message = dict(message)
            made = draft(message, self._ids, format=format, actor=actor, program=program)
        except InvalidMessage as error:
            raise InvalidMessage(f"session {self.id!r}: {error}") from None
        if len(made.data) * 4 > MESSAGE_LIMIT and (size := len(made.data.encode())) > MESSAGE_LIMIT:
            raise MessageTooLarge(
                f"session {self.id!r}: a message of {size:,} bytes is over the limit of {MESSAGE_LIMIT:,}; "
                "nothing was written. Keep large content in a file and send its path"
            )
        return made


def _rewound(to: int, journal: Journal, session: str, *, expect_head: int, seen: int, actor: str | None) -> Segment:
    return undo.rewind(journal, session, to, expect_head=expect_head, seen=seen, actor=actor)
