"""Copies sessions from one store to another, under the same numbers, ids, keys and times; and imports records.

A copy is read from its source and written page by page, then read back and compared. Nothing of it is remembered: how
far it came is what the target has. So it may be killed at any moment and begun again, by the same process or another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from onefold.errors import OnefoldError, SessionNotFound, StaleHandle, StoreDamaged, StoreError
from onefold.journal import lineage
from onefold.journal.journal import Journal
from onefold.journal.session_scan import scan_sessions
from onefold.messages import encode
from onefold.model import (
    AGENT_ENDED,
    ALIAS,
    COMMITTED,
    ERASED,
    FAILED,
    FORK,
    INPUT_TAKEN,
    MESSAGE,
    SEGMENT_OPENED,
    TURN_SETTLED,
    KeyUse,
    Record,
    SessionState,
)
from onefold.storage import projection
from onefold.storage.base import Backend, Transaction, UniqueViolation
from onefold.storage.memory_projection import DictProjection

MOST_RECORDS = 500
MOST_BYTES = 4 << 20
_GOES_ON = (FORK, COMMITTED, INPUT_TAKEN)
"""Kinds that were written in one transaction with the record after them."""
_TELLING = {
    SEGMENT_OPENED: ("summary", "erased", "facts", "quotes", "gaps", "labels", "said"),
    **dict.fromkeys((FAILED, TURN_SETTLED, AGENT_ENDED), ("cause", "erased")),
}
"""Records that stay what they are when what they tell is erased, and the fields that change."""
_NONE: Mapping[int, Record] = {}
_FIRST_PAGE = 16
_STONES = 500

Seen = Callable[[int], None]
"""Told how many records were compared or written, each of them twice by the end."""


# ---------------------------------------------------------------------- records as they are


def parts(records: Iterable[tuple[Record, int]]) -> Iterator[list[Record]]:
    """Records, each with its size, as parts of one transaction each. What was written together, and what has one key,
    stays together: whoever looks in between sees a session that could have been. A boundary begins a part, so that in
    a store of files each segment has its file."""
    part: list[Record] = []
    room = MOST_BYTES
    erasing = False
    try:
        for record, size in records:
            last = part[-1] if part else None
            goes_on = erasing or (last is not None and _together(last, record))
            full = len(part) >= MOST_RECORDS or room <= 0
            if part and not goes_on and (full or _begins(record)):
                yield part
                part, room = [], MOST_BYTES
            part.append(record)
            room -= size
            erasing = (erasing or is_erasure(record)) and record.kind != SEGMENT_OPENED
    except OnefoldError:
        if part:
            yield part  # what stands before the trouble is good
        raise
    if part:
        yield part


def _together(last: Record, record: Record) -> bool:
    """Whether two records in a row were written in one transaction, as far as they say so."""
    return last.kind in _GOES_ON or lineage.is_prompt(record) or (last.key is not None and last.key == record.key)


def _begins(record: Record) -> bool:
    return record.kind in (COMMITTED, SEGMENT_OPENED) or is_erasure(record)


def is_erasure(record: Record) -> bool:
    """Whether a record says that somebody erased something. What is left of a record that was erased is of the same
    kind."""
    return record.kind == ERASED and "numbers" in record.body


def ingest(
    journal: Journal,
    session: str,
    records: Sequence[Record],
    *,
    alone: bool = False,
    erased: Mapping[int, Record] = _NONE,
) -> int:
    """Adds records as they are, in one transaction, and says how many were new. `alone` is said of a fork that no
    longer sees anything of its parent, since that was deleted: it needs none here.

    Those that are there already have to be the same, so that a copy that was cut short can be taken up again. The
    first ones of a session go together: a session without its first segment is none.

    `erased` are tombstones, by number, of what is still whole here: each takes its place with the record that says
    that it was erased.
    """

    def ingest_in(tx: Transaction) -> int:
        state = tx.session(session)
        if state is None:
            state = _begin(tx, session, records[0], alone)
        before = state.last
        tx.keys(
            session, [record.key for record in records if record.key is not None]
        )  # each is asked for: see `projection`
        for record in records:
            if record.number <= before:
                if tx.record(session, record.number) != record:
                    raise StaleHandle(
                        f"session {session!r}: record {record.number} differs from the one in this store. "
                        "Nothing of this part was imported. Import into another store, or delete the session here"
                    )
                continue
            if is_erasure(record):
                _erase_too(tx, session, record, erased)
            state = _add(tx, state, record)
        if not state.head:
            raise OnefoldError(f"session {session!r}: its first segment is missing; import more records at once")
        if state.last > before:
            tx.put_session(state)
            _can_be_seen(tx, state)
        return state.last - before

    if not records:
        return 0
    return journal.backend.write(session, ingest_in, size=sum(len(encode(record.body)) for record in records))


def _begin(tx: Transaction, session: str, first: Record, alone: bool) -> SessionState:
    if tx.deleted(session) is not None:
        raise SessionNotFound(session, deleted=True)
    if (owner := tx.owner(session)) is not None:
        raise OnefoldError(f"session {owner!r} of this store has the alias {session!r} already; nothing was imported")
    at = 0
    if first.kind == FORK:
        parent, at = str(first.body["parent"]), int(first.body["at"])
        origin = tx.session(parent)
        if (origin is None or origin.last < at) and not alone:
            raise OnefoldError(f"session {session!r} is a fork of {parent!r}; import that one first, up to record {at}")
    if first.number != at + 1:
        raise OnefoldError(f"session {session!r} begins at record {at + 1}, not {first.number}; nothing was imported")
    return projection.initial_state(session, first.at)._replace(last=at)


def _add(tx: Transaction, state: SessionState, record: Record) -> SessionState:
    if record.number != state.last + 1:
        raise OnefoldError(f"session {state.id!r}: after record {state.last} comes {record.number}; one is missing")
    if record.kind == MESSAGE and record.header is None:
        raise OnefoldError(f"session {state.id!r}: message {record.number} comes without its header")
    try:
        if record.kind == ALIAS and _of_another(tx, str(record.body.get("alias"))):
            raise OnefoldError(
                f"session {state.id!r}: record {record.number} gives it another session's id for an alias"
            )
        tx.add(state.id, record, encode(record.body))
        return projection.apply(tx, state, record)
    except UniqueViolation as error:
        raise OnefoldError(f"session {state.id!r}: record {record.number} cannot be imported: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, StoreDamaged) as error:
        raise OnefoldError(
            f"session {state.id!r}: record {record.number} ({record.kind}) is invalid: {error!r}"
        ) from error


def _erase_too(tx: Transaction, session: str, said: Record, erased: Mapping[int, Record]) -> None:
    for number in (*said.body["numbers"], *said.body.get("summaries", ()), *said.body.get("causes", ())):
        stone = erased.get(number)
        if stone is None:
            continue
        if stone.kind == FAILED:
            _erase_cause(tx, session, stone)
        tx.rewrite(session, stone, encode(stone.body))
        if stone.kind == ERASED and stone.key is not None and (use := tx.key(session, stone.key)) is not None:
            tx.put_key(session, stone.key, KeyUse(use.first, use.count, ERASED))


def _erase_cause(tx: Transaction, session: str, stone: Record) -> None:
    """The row of a compaction says what its records say."""
    was, failed = tx.record(session, stone.number), tx.compaction(session, stone.body["compaction"])
    if was is not None and failed is not None and failed.cause == was.body["cause"]:
        tx.put_compaction(replace(failed, cause=stone.body["cause"]))


def _can_be_seen(tx: Transaction, state: SessionState) -> None:
    """What stands in every context is read once, so that an invalid edit by hand is rejected now."""
    head = tx.segment(state.id, state.head)
    try:
        if head is not None:
            stands = lineage.load_pins_and_notes(tx, state.id, state.last + 1, head.hidden)
            lineage.pinned_messages(tx, state.id, stands, head.cut)
            for number in head.kept:
                lineage.record(tx, state.id, number)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise OnefoldError(
            f"session {state.id!r}: its pins, notes or kept messages are invalid as of record {state.last}: {error!r}"
        ) from error


def _of_another(tx: Transaction, alias: str) -> bool:
    """Whether an id is, or was, a session's."""
    return tx.session(alias) is not None or tx.deleted(alias) is not None


# ---------------------------------------------------------------------- from store to store


class CopyConflict(OnefoldError):
    """A session of the target is not the source's any more, or not yet what it should be."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """A session to copy, as it was when the copy began."""

    session: str
    first: int = 1
    last: int = 0
    parent: str | None = None
    alone: bool = False
    """A fork whose parent was deleted, and which sees nothing of it any more."""
    trouble: str | None = None
    """Why it cannot be copied."""

    @property
    def records(self) -> int:
        return max(0, self.last - self.first + 1)


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of one session."""

    session: str
    last: int
    """The last record that was copied, or would be."""
    there: int = 0
    """Records that were there already, the same."""
    new: int = 0
    erased: int = 0
    """Records that were there, and were erased in the source since: here too now."""
    verified: int = 0
    """Records that were read back and are the same, with everything that is derived from them."""
    same: int = 0
    """Up to which record it is the source's."""
    cause: str | None = None
    """Why it was rejected."""


@dataclass(frozen=True, slots=True)
class Buried:
    """What became of the ids of a session that was deleted in the source."""

    session: str
    ids: tuple[str, ...]
    new: bool = False
    cause: str | None = None


def wanted(source: Backend, names: Sequence[str] = ()) -> list[CopyPlan]:
    """The sessions to copy, parents before their forks, and how far: to where they are now. Of names given, any id that
    a session is known by; forks include their parents."""
    found: dict[str, CopyPlan] = {}
    for id in [source.read(partial(_named, name)) for name in names] or (met for met, _ in scan_sessions(source)):
        line: list[str] = []
        above: str | None = id
        while above is not None and above not in found and above not in line:
            line.append(above)
            above = source.read(partial(_parent, above))
        for session in reversed(line):
            if (want := source.read(partial(_want, session))) is not None:
                found[session] = want
    for one in found.values():
        if one.parent in found and not one.alone:
            parent = found[one.parent]  # which may have been looked at before the fork was made
            found[one.parent] = replace(parent, last=max(parent.last, one.first - 1))
    return [*found.values()]


def copy(
    source: Backend, target: Journal | None, sessions: Sequence[CopyPlan], seen: Seen, *, dry_run: bool = False
) -> Iterator[Copied]:
    """Copies sessions one after another and verifies each. A rejected session does not stop the others."""
    same: dict[str, int] = {}
    for one in sessions:
        if target is None:
            done = Copied(one.session, one.last, new=one.records, same=one.last, cause=one.trouble)
        else:
            done = _copy_one(source, target, one, same, seen, dry_run=dry_run)
        same[one.session] = done.same
        if done.new or done.there or not source.read(partial(_is_deleted, one.session)):
            yield done  # else it was deleted before anything of it was copied, and is buried with the others


def copy_tombstones(source: Backend, target: Journal | None, *, dry_run: bool = False) -> Iterator[Buried]:
    """Takes the ids of sessions that were deleted in the source, so that nobody makes them in the target either."""
    gone: dict[str, list[str]] = {}
    after = ""
    while page := source.read(partial(_stones, after)):
        for id, session in page:
            gone.setdefault(session, []).append(id)
        after = page[-1][0]
    for session, ids in gone.items():
        try:
            new = target is None or target.backend.read(partial(_are_free, session, ids))
            if new and target is not None and not dry_run:
                target.backend.write(session, partial(_wipe, session, ids))
        except CopyConflict as error:
            yield Buried(session, tuple(ids), cause=str(error))
        else:
            yield Buried(session, tuple(ids), new)


def _copy_one(
    source: Backend, target: Journal, one: CopyPlan, same: Mapping[str, int], seen: Seen, *, dry_run: bool
) -> Copied:
    act = _Act(source, target, one, seen)
    cause = None
    try:
        if one.trouble is not None:
            raise CopyConflict(one.trouble)
        if one.parent is not None and not one.alone and same.get(one.parent, 0) < one.first - 1:
            raise CopyConflict(
                f"session {one.session!r} is a fork of {one.parent!r} at record {one.first - 1}, which was "
                "rejected; nothing of it was copied"
            )
        act.compare()
        if not dry_run:
            act.take()
            act.verify()
    except StoreError as error:
        if not isinstance(error, StoreDamaged):
            raise
        cause = str(error)
    except OnefoldError as error:
        cause = str(error)
    done = Copied(
        one.session, act.last, act.there - one.first + 1, act.new, len(act.erased), act.verified, act.same, cause
    )
    if dry_run and cause is None:
        return replace(done, new=act.last - act.there, same=act.last)
    return done


class _Act:
    """The copy of one session: what is there is compared, what is missing is imported, all of it is verified."""

    def __init__(self, source: Backend, target: Journal, one: CopyPlan, seen: Seen) -> None:
        self._source, self._target, self._one, self._seen = source, target, one, seen
        self._id = one.session
        self.last = one.last
        self.there = one.first - 1
        """The last record that was there already, the same."""
        self.new = 0
        self.verified = 0
        self.same = one.first - 1
        self.erased: dict[int, Record] = {}
        self._check = _Check(self._id)

    def compare(self) -> None:
        """What stands in the target has to be what the source has there, but for what was erased there since."""
        here = self._target.backend.read(partial(_stands, self._one))
        if here > self.last:
            self._look_again()
        for page in _pages(self._source, self._id, self._one.first, min(here, self.last)):
            self._compare(page)
            self.there = page[-1].number
            self._seen(2 * len(page))
        if here > self.last:
            raise self._differs(self.last + 1, here, "the target goes on where the source has nothing")
        if self.erased:
            self._look_again()  # the record that says so may have come after the copy began

    def take(self) -> None:
        pages = _pages(self._source, self._id, self.there + 1, self.last)
        for part in parts((record, len(encode(record.body))) for page in pages for record in page):
            self.new += ingest(self._target, self._id, part, alone=self._one.alone, erased=self.erased)
            self._seen(len(part))

    def verify(self) -> None:
        """Reads back what was imported and compares it once more, then the projection with what it all amounts to."""
        carried, self.erased = self.erased, {}
        if carried:
            self._check = _Check(self._id)  # what was folded so far is no longer so
        for page in _pages(self._source, self._id, self._one.first if carried else self.there + 1, self.last):
            self._compare(page)
            self._seen(len(page))
        if self.erased:
            raise CopyConflict(
                f"session {self._id!r}: record {min(self.erased)} was erased in the source while it was copied; "
                "run the same command again"
            )
        self.erased = carried
        self._is_right(self._target.backend.read(self._check.rows_differ))
        self.verified = self._check.records

    def _compare(self, page: list[Record]) -> None:
        first, stop = page[0].number, page[-1].number + 1
        here, last = self._target.backend.read(partial(_records, self._id, first, stop))
        for mine, theirs in zip(page, here, strict=False):
            if _was_erased(mine, theirs):
                self.erased[mine.number] = mine
            elif not _is_same(mine, theirs):
                raise self._differs(mine.number, last, f"record {mine.number} differs")
            self.same = max(self.same, mine.number)
        if len(here) < len(page):
            raise self._differs(last + 1, last, "the target was cut short while it was copied")
        self._is_right(self._target.backend.read(partial(self._check.keys_differ, self._check.take(here))))

    def _is_right(self, wrong: str | None) -> None:
        if wrong is not None:
            raise CopyConflict(
                f"session {self._id!r}: {wrong} in the target; look with `onefold verify --store TARGET`"
            )

    def _look_again(self) -> None:
        state = self._source.read(partial(_state, self._id))
        self.last = max(self.last, state.last if state is not None else 0)

    def _differs(self, number: int, here: int, why: str) -> CopyConflict:
        self.same = min(self.same, number - 1)
        return CopyConflict(
            f"session {self._id!r} has diverged: {why}. It ends at record {self.last} in the source and at {here} "
            f"in the target, and is the same up to {number - 1}. It was left as it is; copy it to another store"
        )


class _Check(DictProjection):
    """What the records of the target amount to, page by page. A key is forgotten once it was compared: there may be as
    many of them as records."""

    def __init__(self, session: str) -> None:
        super().__init__()
        self.records = 0
        self._session = session
        self._state: SessionState | None = None

    def take(self, page: list[Record]) -> dict[str, KeyUse]:
        """Folds a page, and gives what its keys were used for; but for the last one, which may go on."""
        for record in page:
            state = self._state or projection.initial_state(self._session, record.at)
            self._state = projection.apply(self, state, record)
            self.records += 1
        self.undo.clear()
        keys = self.derived.keys
        going_on = page[-1].key
        self.derived.keys = {key: use for key, use in keys.items() if key == going_on}
        return {key: use for key, use in keys.items() if key != going_on}

    def keys_differ(self, keys: Mapping[str, KeyUse], tx: Transaction) -> str | None:
        here = tx.keys(self._session, [*keys])
        wrong = next((key for key, use in keys.items() if here.get(key) != use), None)
        return None if wrong is None else f"key {wrong!r} is not what its records say"

    def rows_differ(self, tx: Transaction) -> str | None:
        """The first thing that is not as the records say."""
        id, should = self._session, self.derived
        if tx.session(id) != self._state:
            return "its state is not what its records say, or somebody wrote to it meanwhile,"
        for what, same in (
            ("a segment is", tx.segments(id) == [*should.segments.values()]),
            ("a compaction is", {c.id: c for c in tx.compactions(id, open_only=False)} == should.compactions),
            ("an input is", tx.inputs(id) == sorted(should.inputs)),
            ("an alias is", all(tx.owner(alias) == id for alias in should.aliases)),
            ("its seal is", tx.looks_right(id)),
        ):
            if not same:
                return f"{what} not what its records say"
        return self.keys_differ(should.keys, tx)


def _pages(source: Backend, session: str, first: int, last: int) -> Iterator[list[Record]]:
    """A session's own records, as many at a time as fit by the size of those before them."""
    most = _FIRST_PAGE
    while first <= last:
        page, end = source.read(partial(_records, session, first, min(last + 1, first + most)))
        if not page or page[0].number != first:
            raise CopyConflict(f"session {session!r}: record {first} is gone from the source, which ends at {end} now")
        yield page
        first = page[-1].number + 1
        each = sum(len(encode(record.body)) for record in page) // len(page) + 1
        most = max(1, min(MOST_RECORDS, 4 * most, MOST_BYTES // each))


def _is_same(one: Record, other: Record) -> bool:
    """Every field, and the body as it is written down: 1 is not 1.0, and not True."""
    return one == other and encode(one.body) == encode(other.body)


def _was_erased(mine: Record, theirs: Record) -> bool:
    """Whether one record is what erasing left of the other."""
    if mine.kind == ERASED and theirs.kind != ERASED:
        gone = theirs._replace(kind=ERASED, body=mine.body, format=None, header=None)
        return mine == gone and bool(mine.body.get("was") == theirs.kind)
    if mine.kind == theirs.kind and mine.body.get("erased") and not theirs.body.get("erased"):
        names = _TELLING.get(mine.kind, ())
        told = {name: mine.body[name] for name in names if name in mine.body}
        return bool(names) and mine == theirs._replace(body={**theirs.body, **told})
    return False


# ---------------------------------------------------------------------- what is asked of a store


def _named(name: str, tx: Transaction) -> str:
    return lineage.get_session(tx, tx.owner(name) or name).id


def _state(session: str, tx: Transaction) -> SessionState | None:
    return tx.session(session)


def _parent(session: str, tx: Transaction) -> str | None:
    """None for the parent that was deleted too."""
    state = tx.session(session)
    return state.parent if state is not None and state.parent and tx.session(state.parent) is not None else None


def _want(session: str, tx: Transaction) -> CopyPlan | None:
    """None for a session that was deleted since it was found."""
    state = tx.session(session)
    if state is None and tx.deleted(session) == session:
        return None
    if state is None or not tx.looks_right(session):
        said = f"session {session!r} differs from its journal in the source; repair it there: `onefold verify --fix`"
        return CopyPlan(session, trouble=said)
    alone = state.parent is not None and tx.session(state.parent) is None
    return CopyPlan(session, state.forked_at + 1, state.last, state.parent, alone)


def _is_deleted(session: str, tx: Transaction) -> bool:
    return tx.deleted(session) == session


def _stands(one: CopyPlan, tx: Transaction) -> int:
    """The last record that the target has of a session; of one that is not there, what comes before its first."""
    state = tx.session(one.session)
    if (state is not None or tx.last_number(one.session)) and not tx.looks_right(one.session):
        raise CopyConflict(
            f"session {one.session!r} differs from its journal in the target; repair it there: `onefold verify --fix`"
        )
    if state is not None:
        return state.last
    if tx.deleted(one.session) is not None:
        raise CopyConflict(
            f"session {one.session!r} was deleted in the target, and its id stays taken; nothing was copied"
        )
    if (owner := tx.owner(one.session)) is not None:
        raise CopyConflict(f"session {owner!r} of the target has the alias {one.session!r} already; nothing was copied")
    return one.first - 1


def _records(session: str, start: int, stop: int, tx: Transaction) -> tuple[list[Record], int]:
    return tx.records(session, start, stop, stop - start), tx.last_number(session)


def _stones(after: str, tx: Transaction) -> list[tuple[str, str]]:
    return tx.tombstones(_STONES, after)


def _are_free(session: str, ids: Sequence[str], tx: Transaction) -> bool:
    """Whether ids of a deleted session are neither in use in the target nor taken there already."""
    for id in ids:
        if (owner := id if tx.session(id) is not None else tx.owner(id)) is not None:
            raise CopyConflict(
                f"session {session!r} was deleted in the source, and session {owner!r} of the target is known as "
                f"{id!r}; that one was left as it is. Delete it there too, if it is the same"
            )
    return any(tx.deleted(id) != session for id in ids)


def _wipe(session: str, ids: Sequence[str], tx: Transaction) -> None:
    if _are_free(session, ids, tx):
        tx.wipe(session, ids)
