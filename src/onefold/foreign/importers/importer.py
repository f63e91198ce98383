"""Writes the conversations of another program as sessions, and resumes where it stopped.

Every message is appended under a key made from its id there. So what is here already is compared, message by message,
and only what follows is new; if something differs, that session is left unchanged. The steps of a batch are one
transaction of the journal's own operations, each at the time it happened: a killed import leaves whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TypeVar

import apsw

from onefold.errors import InvalidMessage, OnefoldError, SessionNotFound, StaleHandle, StoreError
from onefold.foreign.importers.conversation import (
    CompactionStep,
    Conversation,
    MessageStep,
    RewindStep,
    SkippedStep,
    Step,
)
from onefold.foreign.importers.journal_writer import TransactionJournal, bound, go_back, numbers_of
from onefold.foreign.importers.reconciliation import ExistingMessages, changed
from onefold.journal import forks, pins_and_notes
from onefold.journal.checks import check_name
from onefold.journal.journal import SUMMARY_LIMIT, Journal
from onefold.journal.lineage import get_session
from onefold.messages import draft
from onefold.messages.codecs import PLAIN
from onefold.model import (
    REQUESTED,
    Draft,
    Json,
    SessionState,
)
from onefold.session import MESSAGE_LIMIT
from onefold.storage.base import Transaction

T = TypeVar("T")

_STEPS = 500
_BYTES = 4 << 20
_NAMES = 99


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of importing one conversation."""

    id: str
    """Its id in the other store."""
    session: str | None
    """Its session here; None if there is none."""
    messages: int = 0
    """How many it has in the other store."""
    new: int = 0
    boundaries: int = 0
    """New compactions. `fork` is set for a new fork only."""
    fork: str | None = None
    aliases: int = 0
    left_out: tuple[str, ...] = ()
    """What was not imported, and why."""
    lost: int = 0
    """How much of that are messages."""
    remarks: tuple[str, ...] = ()
    cause: str | None = None
    """Why it was not imported, or not completely."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The session that a conversation is imported into."""

    session: str
    last: int
    """The newest record; 0 if the session is not here yet."""
    parent: str | None = None
    at: int = 0
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class _StepCount:
    """Counts of the steps of one conversation."""

    messages: int = 0
    new: int = 0
    boundaries: int = 0
    aliases: int = 0
    left_out: list[str] = field(default_factory=list)
    lost: int = 0

    def leave(self, words: str, *, lost: bool = False) -> None:
        self.left_out.append(words)
        self.lost += lost


@dataclass(frozen=True, slots=True)
class _PreparedStep:
    """A step, and its messages as drafts for the journal."""

    step: Step
    drafts: tuple[Draft, ...] = ()

    @property
    def size(self) -> int:
        return sum(len(d.data) for d in self.drafts)


class Importer:
    """Imports the conversations of one store, parents before their branches."""

    def __init__(
        self, journal: Journal, program: str, *, extras: str, dry_run: bool, seen: Callable[[int], None]
    ) -> None:
        self._journal = journal
        self._program = program
        self._extras = extras
        """The field of a message that holds what no format knows. It may change, and is not compared."""
        self._dry_run = dry_run
        self._seen = seen
        self._homes: dict[str, str] = {}
        """The sessions here, by their ids in the other store, as far as they were read."""

    def import_conversation(self, conversation: Conversation) -> ImportResult:
        """Imports what is new of one conversation."""
        count = _StepCount()
        place: _Target | None = None
        cause = None
        remarks = list(conversation.remarks)
        try:
            place = self._place(conversation)
            if place is None:
                return ImportResult(
                    conversation.id, None, left_out=("it has no message",), remarks=conversation.remarks
                )
            remarks += place.remarks
            self._homes |= dict.fromkeys((conversation.id, *conversation.others), place.session)
            remarks += self._import(conversation, place, count)
        except StoreError:
            raise
        except OnefoldError as error:
            cause = str(error)
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            cause = (
                f"session {conversation.id!r} cannot be read any further: {error}; run `onefold doctor` on the store"
            )
        return ImportResult(
            id=conversation.id,
            session=place.session if place else None,
            messages=count.messages,
            new=count.new,
            boundaries=count.boundaries,
            fork=conversation.origin.kind
            if conversation.origin and place and place.parent and not place.last
            else None,
            aliases=count.aliases,
            left_out=tuple(count.left_out),
            lost=count.lost,
            remarks=tuple(remarks),
            cause=cause,
        )

    def _import(self, conversation: Conversation, place: _Target, count: _StepCount) -> list[str]:
        steps = conversation.tell(place.parent is not None)
        late: list[CompactionStep] = []
        if place.last:
            late, steps = self._compared(place, steps, count)
        ready = self._ready(chain(late, steps), count)
        names, taken = self._names(conversation, place)
        count.aliases = len(names)
        if self._dry_run:
            for batch in _batches(ready):
                self._counted(batch, count)
            return taken
        last = place.last
        for batch in _batches(ready):
            last = self._written(place, last, names, batch, conversation)
            names = ()
            self._counted(batch, count)
        if names or not last:
            self._written(place, last, names, [], conversation)
        return taken

    def _counted(self, batch: list[_PreparedStep], count: _StepCount) -> None:
        said = sum(1 for r in batch if isinstance(r.step, MessageStep))
        count.messages += said
        count.new += said
        count.boundaries += sum(1 for r in batch if isinstance(r.step, CompactionStep))
        self._seen(said)

    # ------------------------------------------------------------------ where it goes

    def _place(self, conversation: Conversation) -> _Target | None:
        """The session that it is here already, or a new one under its own id, if that is free; None if there is
        nothing to put there. The other store is never read inside a transaction of ours."""
        check_name("session id", conversation.id)
        origin, at = self._origin(conversation)
        first = {forked: _first(conversation, forked=forked) for forked in (False, origin is not None)}
        for name in names_of(self._program, conversation.id):
            if self._read(lambda tx, name=name: tx.deleted(name)) is not None:  # type: ignore[misc]
                raise SessionNotFound(name, deleted=True)
            state = self._read(lambda tx, name=name: _known_as(tx, name))  # type: ignore[misc]
            if state is not None:
                if state.parent is not None and True not in first:
                    first[True] = _first(conversation, forked=True)
                if self._is(conversation, state, first[state.parent is not None], origin):
                    return _Target(state.id, state.last, state.parent, state.forked_at)
                continue
            if origin is None and first[False] is None:
                return None
            remarks = [_not_a_fork(conversation)] if conversation.origin is not None and origin is None else []
            remarks += (
                [f"{conversation.id!r} is another session here, so it is {name!r}"] if name != conversation.id else []
            )
            return _Target(name, 0, origin, at, tuple(remarks))
        raise OnefoldError(
            f"session {conversation.id!r}: this id and those like it are taken; import it into another store"
        )

    def _is(self, conversation: Conversation, state: SessionState, first: str | None, origin: str | None) -> bool:
        """Whether a session is what was imported of a conversation: it has the first thing told, or, of a fork with
        nothing of its own yet, the same origin."""
        if first is not None and self._read(lambda tx: tx.key(state.id, first)) is not None:
            return True
        own = self._read(lambda tx: tx.headers(state.id, state.forked_at + 1, state.last + 1))
        return state.parent is not None and state.parent == origin and not own

    def _origin(self, conversation: Conversation) -> tuple[str | None, int]:
        """The session it branches off from here, and the record; None if that was not imported."""
        if conversation.origin is None:
            return None, 0
        other = conversation.origin.session
        names = ([self._homes[other]] if other in self._homes else []) or [*names_of(self._program, other)]
        there = [s.id for name in names if (s := self._read(partial(_known_as, name=name))) is not None]
        if there:
            for key in conversation.origin.points():
                for session in there:
                    numbers = self._read(partial(numbers_of, session=session, key=key))
                    if numbers is not None:
                        return session, numbers[-1]
        return (self._homes[other], 0) if self._dry_run and other in self._homes else (None, 0)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        return self._journal.backend.read(work)

    def _names(self, conversation: Conversation, place: _Target) -> tuple[tuple[str, ...], list[str]]:
        """The ids it is to be known by as well, and why some cannot be."""
        wanted, taken = [], []
        for name in dict.fromkeys((conversation.id, *conversation.others)):
            try:
                check_name("alias", name)
            except OnefoldError as error:
                taken.append(str(error))
                continue
            if name == place.session:
                continue
            owner = self._read(
                lambda tx, name=name: (
                    (name if tx.session(name) is not None else None) or tx.owner(name) or tx.deleted(name)
                )  # type: ignore[misc]
            )
            if owner is None:
                wanted.append(name)
            elif owner != place.session and name != conversation.id:
                taken.append(f"{name!r} is another session's id here and cannot be an alias")
        return tuple(wanted), taken

    # ------------------------------------------------------------------ what is here already

    def _compared(
        self, place: _Target, steps: Iterator[Step], count: _StepCount
    ) -> tuple[list[CompactionStep], Iterator[Step]]:
        """Goes over what is here and what is told side by side. Gives compactions that came later than what follows
        them here, and the steps that are new. Raises `Moved` if the two are not the same conversation."""
        here = ExistingMessages(self._journal, place.session, self._program, place.at, place.last)
        late: list[CompactionStep] = []
        for step in steps:
            match step:
                case SkippedStep(words, lost):
                    count.leave(words, lost=lost)
                case CompactionStep():
                    if self._has(place, step):
                        late.clear()
                    elif why := _inexpressible(step):
                        count.leave(why)
                    else:
                        late.append(step)
                case RewindStep():
                    if not here.went_back() and here.at_the_end():
                        behind = next(steps, None)
                        if not (isinstance(behind, CompactionStep) and self._has(place, behind)):
                            ahead = [step] if behind is None else [step, behind]
                            return self._going_on(here, late, chain(ahead, steps))
                        late.clear()  # it was imported without this, and went on: too late for it
                case MessageStep():
                    if here.at_the_end(step.key):
                        return self._going_on(here, late, chain([step], steps))
                    here.take(step, self._extras)
                    late = [b if b.first else replace(b, first=step.key) for b in late]
                    count.messages += 1
                    self._seen(1)
        if not here.at_the_end():
            raise changed(place.session, f"message {here.next_key()} is here and no longer there")
        return (late, iter(())) if not late else self._going_on(here, late, iter(()))

    def _going_on(
        self, here: ExistingMessages, late: list[CompactionStep], steps: Iterator[Step]
    ) -> tuple[list[CompactionStep], Iterator[Step]]:
        if here.foreign:
            raise StaleHandle(
                f"session {here.session!r} went on here by itself since record {here.foreign}, and there as well. "
                "Nothing of it was imported; import it into another store to have both"
            )
        return late, steps

    def _has(self, place: _Target, step: CompactionStep) -> bool:
        def read_has(tx: Transaction) -> str | None:
            use = tx.key(place.session, step.key)
            said = tx.record(place.session, use.first) if use is not None else None
            done = tx.compaction(place.session, said.body["compaction"]) if said and said.kind == REQUESTED else None
            told = tx.record(place.session, done.segment) if done is not None and done.segment else None
            if told is None:
                return None
            return step.summary if told.body.get("erased") else str(told.body.get("summary"))

        there = self._journal.backend.read(read_has)
        if there is not None and there != step.summary:
            raise changed(place.session, f"the summary {step.key} has other content there")
        return there is not None

    # ------------------------------------------------------------------ writing

    def _ready(self, steps: Iterable[Step], count: _StepCount) -> Iterator[_PreparedStep]:
        for step in steps:
            match step:
                case SkippedStep(words, lost):
                    count.leave(words, lost=lost)
                case CompactionStep():
                    if why := _inexpressible(step):
                        count.leave(why)
                    else:
                        yield _PreparedStep(step)
                case RewindStep():
                    yield _PreparedStep(step)
                case MessageStep():
                    try:
                        yield _PreparedStep(step, tuple(self._draft(body, step) for body in step.bodies))
                    except InvalidMessage as error:
                        count.leave(f"message {step.key}: {error}", lost=True)

    def _draft(self, body: Json, step: MessageStep) -> Draft:
        try:
            made = draft(body, self._journal.new_id, format=step.format)
        except InvalidMessage:
            made = draft(body, self._journal.new_id, format=PLAIN)
        if len(made.data) * 4 > MESSAGE_LIMIT and len(made.data.encode()) > MESSAGE_LIMIT:
            raise InvalidMessage(f"it has more than {MESSAGE_LIMIT >> 20} MiB")
        return made

    def _written(
        self, place: _Target, last: int, names: tuple[str, ...], batch: list[_PreparedStep], conversation: Conversation
    ) -> int:
        """Writes a batch, with the session itself before the first one. Gives the newest record."""

        def written_in(tx: Transaction) -> int:
            inner = TransactionJournal(self._journal, tx)
            state = tx.session(place.session)
            if (state.last if state is not None else 0) != last:
                raise StaleHandle(f"session {place.session!r} was written to meanwhile; import again")
            times = (r.step.at for r in batch if not isinstance(r.step, SkippedStep) and r.step.at)
            inner.at(next(times, state.touched_at if state is not None else None))
            if state is None and place.parent is not None:
                assert conversation.origin is not None
                forks.fork(inner.journal, place.parent, place.session, kind=conversation.origin.kind, at=place.at)
            elif state is None:
                inner.journal.create(place.session)
            for name in names:
                pins_and_notes.alias(inner.journal, place.session, name, actor=self._program)
            for ready in batch:
                self._apply(inner, tx, place.session, ready)
            return get_session(tx, place.session).last

        return self._journal.backend.write(place.session, written_in, size=sum(r.size for r in batch))

    def _apply(self, inner: TransactionJournal, tx: Transaction, session: str, ready: _PreparedStep) -> None:
        match ready.step:
            case MessageStep(key=key, at=at):
                inner.at(at)
                inner.journal.append(session, ready.drafts, key=key)
            case CompactionStep() as step:
                inner.at(step.at)
                bound(inner.journal, tx, session, step, self._program)
            case RewindStep(to=to, at=at):
                inner.at(at)
                go_back(inner.journal, tx, session, to)


# ---------------------------------------------------------------------- small parts


def names_of(program: str, id: str) -> Iterator[str]:
    """What a session may be called here: its own id, or one made from it where another session has that."""
    yield id
    yield from (f"{program}-{id}{f'-{n}' if n > 1 else ''}" for n in range(1, _NAMES))


def _known_as(tx: Transaction, name: str) -> SessionState | None:
    return tx.session(name) or tx.session(tx.owner(name) or name)


def _first(conversation: Conversation, *, forked: bool) -> str | None:
    """The key of the first thing that is told."""
    return next((s.key for s in conversation.tell(forked) if isinstance(s, MessageStep | CompactionStep)), None)


def _batches(ready: Iterable[_PreparedStep]) -> Iterator[list[_PreparedStep]]:
    batch: list[_PreparedStep] = []
    room = _BYTES
    for one in ready:
        batch.append(one)
        room -= one.size
        if len(batch) >= _STEPS or room <= 0:
            yield batch
            batch, room = [], _BYTES
    if batch:
        yield batch


def _inexpressible(step: CompactionStep) -> str | None:
    """Why a compaction cannot be one here."""
    if not step.summary.strip():
        why = "has a summary that says nothing"
    elif len(step.summary.encode("utf-8", "surrogatepass")) > SUMMARY_LIMIT:
        why = "has a summary of more than 1 MiB"
    else:
        return None
    return f"the compaction {step.key} {why}; what was said before it stays in the context"


def _not_a_fork(conversation: Conversation) -> str:
    origin = conversation.origin.session if conversation.origin is not None else ""
    return f"it comes from {origin!r}, but where in it is not known here, so it is a session of its own"
