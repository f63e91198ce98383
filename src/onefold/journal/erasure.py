"""Compaction never deletes; people may. What they erase is gone from the journal and from all that came from it:
summaries, notes, questions about a call, causes that may quote it; here and in the session's forks. A numbered
tombstone stays, which no late append brings back to life.

A session and its forks are separate transactions, and its sidecar files are cleaned after them. Each step
may be repeated, so a crash between them is repaired by repeating it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from onefold.errors import OnefoldError, SessionNotFound
from onefold.journal import adoption, context_prefix, lineage, sidecars
from onefold.journal.checks import compacts
from onefold.journal.journal import Journal, segment
from onefold.journal.lineage import get_session
from onefold.journal.segments import newest
from onefold.messages import encode
from onefold.model import (
    AGENT_ENDED,
    ERASED,
    FAILED,
    INPUT_QUEUED,
    INPUT_TAKEN,
    MESSAGE,
    NOTE,
    QUESTION_ASKED,
    QUESTION_SETTLED,
    SKIPPED,
    TURN_SETTLED,
    Deleted,
    Erased,
    Json,
    KeyUse,
    Ranges,
    Record,
    Segment,
    SessionState,
)
from onefold.storage.base import Transaction
from onefold.storage.projection import segment_body

_CONTENT = (MESSAGE, INPUT_QUEUED, NOTE, QUESTION_ASKED, QUESTION_SETTLED)
_CAUSES = (FAILED, SKIPPED, TURN_SETTLED, AGENT_ENDED)
"""Kinds that say why something failed, in words that may quote what was said."""
_GONE = "(erased: this summary covered what was erased since)"
_GONE_CAUSE = "(erased: it may have quoted what was erased since)"
_PAGE = 500
_EVERYTHING: Ranges = ((1, 1 << 62),)


@dataclass(frozen=True, slots=True)
class _Gone:
    """What is to go."""

    said: Ranges
    """Messages, perhaps a fork's from its past: no summary and no note may come from them."""
    others: tuple[int, ...] = ()
    """Records that no summary of ours has read."""
    first: int = 0
    """The first record that anybody may have read; 0 if nobody read any. An agent's own summary that came after it, and
    a cause that came after it, may say it again."""
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class _Done:
    numbers: tuple[int, ...]
    summaries: tuple[int, ...]
    compaction: str | None
    items: tuple[int, ...] = ()
    """Messages that went because a provider's item in them covered what was to go."""


def erase(
    journal: Journal, session: str, numbers: Sequence[int], *, actor: str | None = None, remove_copies: bool = False
) -> Erased:
    """Removes the content of messages, inputs, notes and questions for good, and asks for a new summary of what
    remains. `remove_copies`: the copies too that onefold itself left next to the store."""
    if not numbers:
        raise OnefoldError(f"session {session!r}: name the records to erase")

    def erase_in(tx: Transaction) -> tuple[_Done, list[int], set[int], int]:
        state = get_session(tx, session)
        for number in numbers:
            _can_be_erased(tx, state, number)
        copies = {n for number in numbers for n in _copies(tx, state, number)}
        copies |= {n for number in copies for n in _questions(tx, state, number)}
        what = {n: _what(tx.record(session, n)) for n in copies}
        said = [n for n in copies if what[n] == MESSAGE]
        others = tuple(sorted(copies.difference(said)))  # which no summary of ours has read
        first = min((n for n in copies if what[n] != INPUT_QUEUED), default=0)
        return _forget(journal, tx, state, _Gone(_each(said), others, first, actor)), said, copies, first

    done, said, copies, first = journal.backend.write(session, erase_in)
    gone = _Gone(lineage.hide(_each(said), *_each(done.items)), first=first, actor=actor)
    forks = tuple(_forget_in_forks(journal, session, gone, min({*copies, *done.numbers})))
    remains = _clean(journal, (session, *forks), remove_copies)
    return Erased(session, done.numbers, done.summaries, forks, done.compaction, not remains, remains)


def delete(
    journal: Journal, session: str, *, actor: str | None = None, remove_copies: bool = False
) -> Deleted:  # fmt: skip
    """Removes a session whole. Its ids stay taken, and forks of it no longer see it as their past."""

    def delete_in(tx: Transaction) -> int:
        state = tx.session(session)
        if state is None:
            if tx.deleted(session) != session:
                raise SessionNotFound(session)
            return 0
        marks = tx.marks(session, 1, state.last + 1)
        tx.wipe(session, [session, *(m.body["alias"] for m in marks if m.kind == "alias")])
        return state.last - state.forked_at

    records = journal.backend.write(session, delete_in)
    forks = tuple(_forget_in_forks(journal, session, _Gone(_EVERYTHING, first=1, actor=actor), 1))
    remains = _clean(journal, (session, *forks), remove_copies)
    return Deleted(session, records, forks, not remains, remains)


def _clean(journal: Journal, sessions: tuple[str, ...], remove_copies: bool) -> tuple[str, ...]:
    """Sees to it that no file holds what is gone; what may still do so, in words or by its path."""
    backend = journal.backend
    left = [] if backend.purge() else [_own_files(backend.address)]
    left += sidecars.forget(journal, sessions)
    copies = sidecars.copies(backend.address, sessions)
    if remove_copies:
        copies = sidecars.removed(copies)
    return (*left, *map(str, copies))


def _own_files(address: str) -> str:
    if "://" in address:
        return f"{address}: the server's files, until Store.purge() rewrites the tables"
    return f"{address}: a reader was in the way, or it is large; say it again later, or call Store.purge()"


def _forget_in_forks(journal: Journal, session: str, gone: _Gone, first: int) -> Iterator[str]:
    """Every fork that saw any of it, or anything else from the first erased record on, as its own past, and forks of
    those."""
    parents = deque([(session, gone)])
    while parents:
        parent, gone = parents.popleft()
        for child in journal.backend.read(partial(_forks, parent)):
            past = child.forked_at  # above it, the same numbers are the fork's own records
            if past < first:
                continue
            said = tuple((a, min(b, past)) for a, b in gone.said if a <= past)
            its = replace(gone, said=said, first=gone.first if gone.first <= past else 0)
            try:
                done = journal.backend.write(child.id, _in_a_fork(journal, child.id, its))
            except SessionNotFound:
                continue  # deleted since, and its forks lost their past with it
            parents.append((child.id, replace(its, said=lineage.hide(its.said, *_each(done.items)))))
            yield child.id


def _forks(session: str, tx: Transaction) -> list[SessionState]:
    return tx.forks(session)


def _in_a_fork(journal: Journal, session: str, gone: _Gone) -> Callable[[Transaction], _Done]:
    return lambda tx: _forget(journal, tx, get_session(tx, session), gone)


def _forget(journal: Journal, tx: Transaction, state: SessionState, gone: _Gone) -> _Done:
    """Tombstones for what is this session's own; no summary or note that comes from any of it; a new segment."""
    head = segment(tx, state.id, state.head)
    items = adoption.windows(tx, state, gone.said)  # what a provider made of it goes with it
    gone = replace(gone, said=lineage.hide(gone.said, *_each(items)))
    ranges, actor = gone.said, gone.actor
    hidden = lineage.hide(head.hidden, *ranges)
    own = [n for a, b in ranges for n in range(max(a, state.forked_at + 1), b + 1)]
    own += gone.others
    found = [r for n in own if (r := tx.record(state.id, n)) is not None and r.kind in _CONTENT]
    covering = [r for s in tx.segments(state.id) if (r := _telling(tx, state, s, gone)) is not None]
    notes = [m for m in tx.marks(state.id, state.forked_at + 1, state.last + 1) if _comes_from(m, ranges)]
    notes = [m for m in notes if m.number not in {r.number for r in found}]
    nothing = hidden == head.hidden and not found and not covering and not notes
    if nothing and state.tokens == context_prefix.size(tx, state, head, lineage.summary_body(tx, state.id, head)):
        return _Done((), (), None)  # nothing that a fork's past says in every context is gone either
    causes = [*_causes(tx, state, gone.first)]
    hidden = lineage.joined(tx, state.id, hidden)
    was_open = state.open is not None
    for record in (*found, *notes):
        state = _tombstone(journal, tx, state, record)
    for record in covering:
        _rewrite(tx, state, record, _untold(record.body))
    for record in causes:
        _forget_cause(tx, state, record)
    numbers = tuple(sorted(r.number for r in (*found, *notes)))
    summaries = tuple(r.number for r in covering)
    told: dict[str, Json] = {"numbers": list(numbers), "summaries": list(summaries)}
    if causes:
        told["causes"] = [r.number for r in causes]
    state = journal.add(tx, state, journal.draft(ERASED, told, actor=actor))
    fits = newest(tx, state, hidden)
    masks, adopted = (
        tuple(m for m in lineage.united(*some) if not lineage.is_hidden(hidden, m[0]))
        for some in ((fits.masked, head.masked), (fits.adopted, head.adopted))
    )
    fits = replace(fits, hidden=hidden, keeper=head.keeper, masked=masks, adopted=adopted)
    size = lineage.context_tokens(tx, state.id, fits, state.last, told=lineage.summary_body(tx, state.id, fits))
    body = segment_body(fits, state, source="erased", summary_of=fits.summary, tokens_after=size)
    state = journal.open_segment(tx, state, body)
    if (was_open or fits.summary != head.summary) and compacts(tx, state) and head.keeper == "onefold":
        state = journal.ask(tx, state, "erase", actor=actor)
    tx.put_session(state)
    return _Done(numbers, summaries, state.open, tuple(items))


def _tombstone(journal: Journal, tx: Transaction, state: SessionState, record: Record) -> SessionState:
    """Puts a tombstone in a record's place. Its key, if it had one, stays taken, and of its content not even a digest
    stays; an input that waits is taken by nobody."""
    body: dict[str, Json] = {"was": record.kind}
    if record.kind in (QUESTION_ASKED, QUESTION_SETTLED):
        body["question"] = record.body["question"]  # its id, by which its answer is found, and what clients were told
    gone = record._replace(kind=ERASED, body=body, format=None, header=None)
    tx.rewrite(state.id, gone, encode(body))
    if record.key is not None and (use := tx.key(state.id, record.key)) is not None:
        tx.put_key(state.id, record.key, KeyUse(use.first, use.count, ERASED))
    if record.kind == INPUT_QUEUED and not lineage.taken(tx, state.id, record.number):
        return journal.add(tx, state, journal.draft(INPUT_TAKEN, {"input": record.number, "erased": True}))
    return state


def _can_be_erased(tx: Transaction, state: SessionState, number: int) -> None:
    if 0 < number <= state.forked_at:
        owner = next((o for o, _, _ in lineage.record_ranges(tx, state.id, number, number + 1)), state.parent)
        raise OnefoldError(f"record {number} of session {state.id!r} belongs to session {owner!r}; erase it there")
    record = tx.record(state.id, number)
    if record is None:
        raise OnefoldError(f"session {state.id!r} has no record {number}; nothing was erased")
    if _what(record) not in _CONTENT:
        raise OnefoldError(
            f"record {number} of session {state.id!r} is a {record.kind}, which holds nothing that somebody said; "
            "messages, inputs, notes and questions can be erased"
        )


def _copies(tx: Transaction, state: SessionState, number: int) -> list[int]:
    """An input and the message it became are the same content."""
    numbers = {number}
    record, before = tx.record(state.id, number), tx.record(state.id, number - 1)
    if before is not None and before.kind == INPUT_TAKEN and not lineage.by_nobody(before):
        numbers.add(before.body["input"])
    waited = _what(record) == INPUT_QUEUED
    if waited and (taken := lineage.taken(tx, state.id, number)) is not None and not lineage.by_nobody(taken):
        numbers.add(taken.number + 1)
    return sorted(numbers)


def _questions(tx: Transaction, state: SessionState, number: int) -> list[int]:
    """What the agent asked about a call, and what it was answered; of a question, the other half."""
    record = tx.record(state.id, number)
    if record is None:
        return []
    calls = {*record.header.call_ids, *record.header.result_ids} if record.header is not None else set()
    asked = {record.body["question"]} if _what(record) in (QUESTION_ASKED, QUESTION_SETTLED) else set()
    if not calls and not asked:
        return []
    found: list[int] = []
    for one in _records(tx, state, state.forked_at + 1):
        if one.kind == QUESTION_ASKED and (one.body["question"] in asked or about(one.body.get("params")) in calls):
            asked.add(one.body["question"])
            found.append(one.number)
        elif one.kind == QUESTION_SETTLED and one.body["question"] in asked:
            found.append(one.number)
    return found


def about(params: Json) -> str | None:
    """The call that an agent's question is about, if it is about one."""
    call = params.get("toolCall") if isinstance(params, dict) else None
    id = call.get("toolCallId") if isinstance(call, dict) else None
    return id if isinstance(id, str) else None


def _records(tx: Transaction, state: SessionState, start: int) -> Iterator[Record]:
    """A session's own records from a number on."""
    start = max(start, state.forked_at + 1)
    while page := tx.records(state.id, start, state.last + 1, _PAGE):
        yield from page
        start = page[-1].number + 1


def _causes(tx: Transaction, state: SessionState, first: int) -> Iterator[Record]:
    """What says why something failed, and came after a record: it may quote that."""
    for record in _records(tx, state, first) if first else ():
        if record.kind in _CAUSES and record.body.get("cause") and not record.body.get("erased"):
            yield record


def _forget_cause(tx: Transaction, state: SessionState, record: Record) -> None:
    """In the record, and in the row of the compaction that it was folded into."""
    _rewrite(tx, state, record, record.body | {"cause": _GONE_CAUSE, "erased": True})
    failed = tx.compaction(state.id, record.body["compaction"]) if "compaction" in record.body else None
    if failed is not None and failed.cause == record.body["cause"]:
        tx.put_compaction(replace(failed, cause=_GONE_CAUSE))


def _what(record: Record | None) -> Json:
    """What a record is; of a tombstone, what it was."""
    return None if record is None else record.body.get("was") if record.kind == ERASED else record.kind


def _each(numbers: Iterable[int]) -> Ranges:
    return tuple((n, n) for n in sorted(numbers))


def _covers(some: Segment, ranges: Ranges) -> bool:
    """Whether a segment's summary stands for any of these records."""
    return any([*lineage.visible(some.hidden, a, min(b + 1, some.cut))] for a, b in ranges)


def _comes_from(mark: Record, ranges: Ranges) -> bool:
    return mark.kind == NOTE and any(lineage.is_hidden(ranges, n) for n in mark.body.get("source", ()))


def _telling(tx: Transaction, state: SessionState, some: Segment, gone: _Gone) -> Record | None:
    """The record of a segment that tells of what is to go: by its own summary, which covers it, or by the one that an
    agent told of its own. Nobody here knows what an agent has read, so that one covers all that stands before it."""
    own = some.summary == some.number and _covers(some, gone.said)
    agents = some.source == "observed" and 0 < gone.first < some.number
    adopts = some.item == some.number
    if not own and not agents and not adopts:
        return None
    said = tx.record(state.id, some.number)
    if said is None or said.body.get("erased"):
        return None
    if adopts:
        return said if own or adoption.tells_of(said, some, gone.said) else None
    return said if own or said.body.get("said") else None


def _untold(body: dict[str, Json]) -> dict[str, Json]:
    """The body of a segment's record without what it tells."""
    told = {"said": _GONE, "summary": _GONE, "facts": [], "quotes": [], "gaps": [], "labels": []}
    return body | {name: value for name, value in told.items() if name in body} | {"erased": True}


def _rewrite(tx: Transaction, state: SessionState, record: Record, body: dict[str, Json]) -> None:
    tx.rewrite(state.id, record._replace(body=body), encode(body))
