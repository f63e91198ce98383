"""Writes the conversations of another program down as sessions, and goes on where it stopped.

Every message is appended under a key made from its id there. So what is here already is compared, message by message,
and only what follows is new; if something differs, nothing of that session is touched. The steps of a batch are one
transaction of the journal's own operations, each at the time it happened: whoever is killed leaves whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TypeVar

import apsw

from onefold.doctor.importing.applying import Within, bound, go_back, numbers_of
from onefold.doctor.importing.comparing import Here, changed
from onefold.doctor.importing.talks import Back, Boundary, LeftOut, Said, Step, Talk
from onefold.errors import InvalidMessage, Moved, OnefoldError, SessionNotFound, StoreError
from onefold.journal import history, marks
from onefold.journal.contract import SUMMARY_LIMIT, Journal
from onefold.journal.refusals import check_name
from onefold.journal.seam import Transaction
from onefold.journal.view import known
from onefold.messages import draft
from onefold.messages.codecs import PLAIN
from onefold.model import (
    REQUESTED,
    Draft,
    Json,
    SessionState,
)
from onefold.session import MESSAGE_LIMIT

T = TypeVar("T")

_STEPS = 500
_BYTES = 4 << 20
_NAMES = 99


@dataclass(frozen=True, slots=True)
class Brought:
    """What became of one conversation."""

    id: str
    """There."""
    session: str | None
    """Here; None if there is none."""
    messages: int = 0
    """That it has there."""
    new: int = 0
    boundaries: int = 0
    """New ones; so are the forks."""
    fork: str | None = None
    aliases: int = 0
    left_out: tuple[str, ...] = ()
    """What is not here, and why."""
    lost: int = 0
    """How much of that somebody said."""
    remarks: tuple[str, ...] = ()
    cause: str | None = None
    """Why it was not taken in, or not further."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a conversation goes."""

    session: str
    last: int
    """The newest record; 0 if the session is not here yet."""
    parent: str | None = None
    at: int = 0
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class _Count:
    """What was told of one conversation."""

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
class _Ready:
    """A step, and its messages made ready for the journal."""

    step: Step
    drafts: tuple[Draft, ...] = ()

    @property
    def size(self) -> int:
        return sum(len(d.data) for d in self.drafts)


class Importer:
    """Takes the conversations of one store in, parents before what branched off from them."""

    def __init__(
        self, journal: Journal, program: str, *, extras: str, dry_run: bool, seen: Callable[[int], None]
    ) -> None:
        self._journal = journal
        self._program = program
        self._extras = extras
        """The field in a message under which stands what no format knows. It may change, and is not compared."""
        self._dry_run = dry_run
        self._seen = seen
        self._homes: dict[str, str] = {}
        """What the sessions there are here, as far as they were looked at."""

    def bring(self, talk: Talk) -> Brought:
        """Takes one conversation in, as far as it is not here yet."""
        count = _Count()
        place: _Place | None = None
        cause = None
        remarks = list(talk.remarks)
        try:
            place = self._place(talk)
            if place is None:
                return Brought(talk.id, None, left_out=("it has no message",), remarks=talk.remarks)
            remarks += place.remarks
            self._homes |= dict.fromkeys((talk.id, *talk.others), place.session)
            remarks += self._bring(talk, place, count)
        except StoreError:
            raise
        except OnefoldError as error:
            cause = str(error)
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            cause = f"session {talk.id!r} cannot be read any further: {error}; run `onefold doctor` on the store"
        return Brought(
            id=talk.id,
            session=place.session if place else None,
            messages=count.messages,
            new=count.new,
            boundaries=count.boundaries,
            fork=talk.origin.kind if talk.origin and place and place.parent and not place.last else None,
            aliases=count.aliases,
            left_out=tuple(count.left_out),
            lost=count.lost,
            remarks=tuple(remarks),
            cause=cause,
        )

    def _bring(self, talk: Talk, place: _Place, count: _Count) -> list[str]:
        steps = talk.tell(place.parent is not None)
        late: list[Boundary] = []
        if place.last:
            late, steps = self._compared(place, steps, count)
        ready = self._ready(chain(late, steps), count)
        names, taken = self._names(talk, place)
        count.aliases = len(names)
        if self._dry_run:
            for batch in _batches(ready):
                self._counted(batch, count)
            return taken
        last = place.last
        for batch in _batches(ready):
            last = self._written(place, last, names, batch, talk)
            names = ()
            self._counted(batch, count)
        if names or not last:
            self._written(place, last, names, [], talk)
        return taken

    def _counted(self, batch: list[_Ready], count: _Count) -> None:
        said = sum(1 for r in batch if isinstance(r.step, Said))
        count.messages += said
        count.new += said
        count.boundaries += sum(1 for r in batch if isinstance(r.step, Boundary))
        self._seen(said)

    # ------------------------------------------------------------------ where it goes

    def _place(self, talk: Talk) -> _Place | None:
        """The session that it is here already, or a new one under its own id, if that is free; None if there is
        nothing to put there. The other store is never read inside a transaction of ours."""
        check_name("session id", talk.id)
        origin, at = self._origin(talk)
        first = {forked: _first(talk, forked=forked) for forked in (False, origin is not None)}
        for name in names_of(self._program, talk.id):
            if self._read(lambda tx, name=name: tx.deleted(name)) is not None:  # type: ignore[misc]
                raise SessionNotFound(name, deleted=True)
            state = self._read(lambda tx, name=name: _known_as(tx, name))  # type: ignore[misc]
            if state is not None:
                if state.parent is not None and True not in first:
                    first[True] = _first(talk, forked=True)
                if self._is(talk, state, first[state.parent is not None], origin):
                    return _Place(state.id, state.last, state.parent, state.forked_at)
                continue
            if origin is None and first[False] is None:
                return None
            remarks = [_not_a_fork(talk)] if talk.origin is not None and origin is None else []
            remarks += [f"{talk.id!r} is another session here, so it is {name!r}"] if name != talk.id else []
            return _Place(name, 0, origin, at, tuple(remarks))
        raise OnefoldError(f"session {talk.id!r}: this id and those like it are taken; import it into another store")

    def _is(self, talk: Talk, state: SessionState, first: str | None, origin: str | None) -> bool:
        """Whether a session is what was taken in of a conversation: it has the first thing told, or, of a fork with
        nothing of its own yet, the same origin."""
        if first is not None and self._read(lambda tx: tx.key(state.id, first)) is not None:
            return True
        own = self._read(lambda tx: tx.headers(state.id, state.forked_at + 1, state.last + 1))
        return state.parent is not None and state.parent == origin and not own

    def _origin(self, talk: Talk) -> tuple[str | None, int]:
        """The session it branches off from here, and the record; None if that was not taken in."""
        if talk.origin is None:
            return None, 0
        other = talk.origin.session
        names = ([self._homes[other]] if other in self._homes else []) or [*names_of(self._program, other)]
        there = [s.id for name in names if (s := self._read(partial(_known_as, name=name))) is not None]
        if there:
            for key in talk.origin.points():
                for session in there:
                    numbers = self._read(partial(numbers_of, session=session, key=key))
                    if numbers is not None:
                        return session, numbers[-1]
        return (self._homes[other], 0) if self._dry_run and other in self._homes else (None, 0)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        return self._journal.backend.read(work)

    def _names(self, talk: Talk, place: _Place) -> tuple[tuple[str, ...], list[str]]:
        """The ids it is to be known by as well, and why some cannot be."""
        wanted, taken = [], []
        for name in dict.fromkeys((talk.id, *talk.others)):
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
            elif owner != place.session and name != talk.id:
                taken.append(f"{name!r} is another session's id here and cannot be an alias")
        return tuple(wanted), taken

    # ------------------------------------------------------------------ what is here already

    def _compared(self, place: _Place, steps: Iterator[Step], count: _Count) -> tuple[list[Boundary], Iterator[Step]]:
        """Goes over what is here and what is told side by side. Gives compactions that came later than what follows
        them here, and the steps that are new. Raises `Moved` if the two are not the same conversation."""
        here = Here(self._journal, place.session, self._program, place.at, place.last)
        late: list[Boundary] = []
        for step in steps:
            match step:
                case LeftOut(words, lost):
                    count.leave(words, lost=lost)
                case Boundary():
                    if self._has(place, step):
                        late.clear()
                    elif why := _inexpressible(step):
                        count.leave(why)
                    else:
                        late.append(step)
                case Back():
                    if not here.went_back() and here.at_the_end():
                        behind = next(steps, None)
                        if not (isinstance(behind, Boundary) and self._has(place, behind)):
                            ahead = [step] if behind is None else [step, behind]
                            return self._going_on(here, late, chain(ahead, steps))
                        late.clear()  # it was taken in without this, and went on: too late for it
                case Said():
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
        self, here: Here, late: list[Boundary], steps: Iterator[Step]
    ) -> tuple[list[Boundary], Iterator[Step]]:
        if here.foreign:
            raise Moved(
                f"session {here.session!r} went on here by itself since record {here.foreign}, and there as well. "
                "Nothing of it was taken in; import it into another store to have both"
            )
        return late, steps

    def _has(self, place: _Place, step: Boundary) -> bool:
        def look(tx: Transaction) -> str | None:
            use = tx.key(place.session, step.key)
            said = tx.record(place.session, use.first) if use is not None else None
            done = tx.compaction(place.session, said.body["compaction"]) if said and said.kind == REQUESTED else None
            told = tx.record(place.session, done.segment) if done is not None and done.segment else None
            if told is None:
                return None
            return step.summary if told.body.get("erased") else str(told.body.get("summary"))

        there = self._journal.backend.read(look)
        if there is not None and there != step.summary:
            raise changed(place.session, f"the summary {step.key} says something else there")
        return there is not None

    # ------------------------------------------------------------------ writing

    def _ready(self, steps: Iterable[Step], count: _Count) -> Iterator[_Ready]:
        for step in steps:
            match step:
                case LeftOut(words, lost):
                    count.leave(words, lost=lost)
                case Boundary():
                    if why := _inexpressible(step):
                        count.leave(why)
                    else:
                        yield _Ready(step)
                case Back():
                    yield _Ready(step)
                case Said():
                    try:
                        yield _Ready(step, tuple(self._draft(body, step) for body in step.bodies))
                    except InvalidMessage as error:
                        count.leave(f"message {step.key}: {error}", lost=True)

    def _draft(self, body: Json, step: Said) -> Draft:
        try:
            made = draft(body, self._journal.new_id, format=step.format)
        except InvalidMessage:
            made = draft(body, self._journal.new_id, format=PLAIN)
        if len(made.data) * 4 > MESSAGE_LIMIT and len(made.data.encode()) > MESSAGE_LIMIT:
            raise InvalidMessage(f"it has more than {MESSAGE_LIMIT >> 20} MiB")
        return made

    def _written(self, place: _Place, last: int, names: tuple[str, ...], batch: list[_Ready], talk: Talk) -> int:
        """Writes a batch, with the session itself before the first one. Gives the newest record."""

        def work(tx: Transaction) -> int:
            inner = Within(self._journal, tx)
            state = tx.session(place.session)
            if (state.last if state is not None else 0) != last:
                raise Moved(f"session {place.session!r} was written to meanwhile; import again")
            times = (r.step.at for r in batch if not isinstance(r.step, LeftOut) and r.step.at)
            inner.at(next(times, state.touched_at if state is not None else None))
            if state is None and place.parent is not None:
                assert talk.origin is not None
                history.fork(inner.journal, place.parent, place.session, kind=talk.origin.kind, at=place.at)
            elif state is None:
                inner.journal.create(place.session)
            for name in names:
                marks.alias(inner.journal, place.session, name, actor=self._program)
            for ready in batch:
                self._apply(inner, tx, place.session, ready)
            return known(tx, place.session).last

        return self._journal.backend.write(place.session, work, size=sum(r.size for r in batch))

    def _apply(self, inner: Within, tx: Transaction, session: str, ready: _Ready) -> None:
        match ready.step:
            case Said(key=key, at=at):
                inner.at(at)
                inner.journal.append(session, ready.drafts, key=key)
            case Boundary() as step:
                inner.at(step.at)
                bound(inner.journal, tx, session, step, self._program)
            case Back(to=to, at=at):
                inner.at(at)
                go_back(inner.journal, tx, session, to)


# ---------------------------------------------------------------------- small parts


def names_of(program: str, id: str) -> Iterator[str]:
    """What a session may be called here: its own id, or one made from it where another session has that."""
    yield id
    yield from (f"{program}-{id}{f'-{n}' if n > 1 else ''}" for n in range(1, _NAMES))


def _known_as(tx: Transaction, name: str) -> SessionState | None:
    return tx.session(name) or tx.session(tx.owner(name) or name)


def _first(talk: Talk, *, forked: bool) -> str | None:
    """The key of the first thing that is told."""
    return next((s.key for s in talk.tell(forked) if isinstance(s, Said | Boundary)), None)


def _batches(ready: Iterable[_Ready]) -> Iterator[list[_Ready]]:
    batch: list[_Ready] = []
    room = _BYTES
    for one in ready:
        batch.append(one)
        room -= one.size
        if len(batch) >= _STEPS or room <= 0:
            yield batch
            batch, room = [], _BYTES
    if batch:
        yield batch


def _inexpressible(step: Boundary) -> str | None:
    """Why a compaction cannot be one here."""
    if not step.summary.strip():
        why = "has a summary that says nothing"
    elif len(step.summary.encode("utf-8", "surrogatepass")) > SUMMARY_LIMIT:
        why = "has a summary of more than 1 MiB"
    else:
        return None
    return f"the compaction {step.key} {why}; what was said before it stays in the context"


def _not_a_fork(talk: Talk) -> str:
    origin = talk.origin.session if talk.origin is not None else ""
    return f"it comes from {origin!r}, but where in it is not known here, so it is a session of its own"
