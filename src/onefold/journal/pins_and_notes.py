"""Prompts, pins and notes, which stand in every context, and other ids of a session. Each says who set it."""

from __future__ import annotations

from collections.abc import Sequence

from onefold.errors import InvalidMessage, MessageTooLarge, OnefoldError
from onefold.journal import context_prefix, lineage
from onefold.journal.checks import check_choice, check_owner_process, key_conflict, turn_lost
from onefold.journal.journal import AliasTaken, Journal, segment
from onefold.journal.lineage import get_session
from onefold.journal.record_bodies import same_content
from onefold.messages.tool_groups import LEADING, Group, group
from onefold.model import (
    ERASED,
    LIMITS,
    MESSAGE,
    NOTE,
    PIN_ADDED,
    PIN_REMOVED,
    AppendResult,
    Draft,
    Json,
    Note,
    Segment,
    SessionState,
    Slot,
    TurnClaim,
)
from onefold.storage.base import Transaction

NOTE_LIMIT = 16 << 10


def append(
    journal: Journal, session: str, drafts: Sequence[Draft], slot: Slot, *, key: str | None = None,
    turn: TurnClaim | None = None,
) -> AppendResult:  # fmt: skip
    """Adds messages that are the system prompt from here on, in place of the one before: all or none, with the mark
    that says so. As for any append, the same key again writes nothing."""
    check_choice(session, "slot", slot, Slot)
    for d in drafts:
        if d.header is None or d.header.role not in LEADING:
            role = d.header.role if d.header is not None else d.kind
            raise InvalidMessage(
                f"session {session!r}: a message of role {role!r} is not a system prompt; only system and developer "
                "messages go into that slot. Append the others without it; nothing was written"
            )
    if turn is not None:
        check_owner_process(turn)
    within = turn.id if turn is not None else None

    def append_in(tx: Transaction) -> AppendResult:
        state = get_session(tx, session)
        use = tx.key(session, key) if key is not None else None
        first = use.first if use is not None else state.last + 1
        numbers = tuple(range(first, first + len(drafts)))
        body: dict[str, Json] = {"numbers": list(numbers), "slot": slot, "tokens": 0}  # they count as messages
        every = [d._replace(key=key, turn=within) for d in drafts]
        every.append(journal.draft(PIN_ADDED, body, actor=drafts[0].actor, key=key, turn=within))
        if use is not None:
            if not same_content(tx, session, use, every):
                raise key_conflict(session, str(key), use)
            return AppendResult(numbers, duplicate=True, hidden=lineage.taken_back(tx, session, numbers))
        if turn is not None and state.turn != turn.number:
            raise turn_lost(tx, turn)
        for d in every:
            state = journal.add(tx, state, d)
        tx.put_session(state)
        return AppendResult(numbers)

    return journal.backend.write(session, append_in, size=sum(len(d.data) for d in drafts))


def pin(journal: Journal, session: str, number: int, *, actor: str | None = None) -> tuple[int, ...]:
    """Keeps a message in every context, word for word, with the others of its tool group. Gives their numbers."""

    def pin_in(tx: Transaction) -> tuple[int, ...]:
        state = get_session(tx, session)
        head = segment(tx, session, state.head)
        said = lineage.record(tx, session, number)
        if said is None or said.kind != MESSAGE or said.header is None:
            what = f"is a {said.kind}" if said is not None else "is not there"
            raise OnefoldError(f"session {session!r}: record {number} {what}; only messages are pinned")
        if lineage.is_hidden(head.hidden, number):
            raise OnefoldError(f"session {session!r}: message {number} was undone; redo it first, or pin another one")
        stands = lineage.load_pins_and_notes(tx, session, state.last + 1, head.hidden)
        its = _its_group(tx, state, head, number)
        if not its.closed:
            raise OnefoldError(
                f"session {session!r}: message {number} makes a call that has no result yet; pin it when it has"
            )
        numbers = tuple(sorted(its.members))
        if numbers == (number,) and said.header.result_ids:
            raise OnefoldError(
                f"session {session!r}: message {number} is the result of a call that is not there, which no provider "
                "takes; note what it says instead"
            )
        if stands.pinned >= {*numbers}:
            return numbers
        body = {"numbers": list(numbers), "tokens": _brings(tx, state, head, numbers)}
        tx.put_session(journal.add(tx, state, journal.draft(PIN_ADDED, body, actor=actor)))
        return numbers

    return journal.backend.write(session, pin_in)


def unpin(journal: Journal, session: str, number: int, *, actor: str | None = None) -> tuple[int, ...]:
    """Lets a message go again. It was summarised like the rest, so nothing is lost. Gives what was pinned with it."""

    def unpin_in(tx: Transaction) -> tuple[int, ...]:
        state = get_session(tx, session)
        head = segment(tx, session, state.head)
        stands = lineage.load_pins_and_notes(tx, session, state.last + 1, head.hidden)
        if number not in stands.pinned:
            return ()
        numbers = tuple(n for n in sorted(_its_group(tx, state, head, number).members) if n in stands.pinned)
        body = {"numbers": list(numbers), "tokens": 0}  # what stands in front stays until the next segment
        tx.put_session(journal.add(tx, state, journal.draft(PIN_REMOVED, body, actor=actor)))
        return numbers

    return journal.backend.write(session, unpin_in)


def note(
    journal: Journal, session: str, kind: str, text: str, *, key: str | None = None, actor: str | None = None,
    source: tuple[int, ...] = (),
) -> int:  # fmt: skip
    """Writes a fact down that stands in every context. The same kind and key again takes its place; an empty text
    takes it away, and so it does with a fact that a segment carries. `source` are the messages it comes from: it goes
    if they are erased."""
    if not kind or not kind.isprintable():
        raise InvalidMessage(f"session {session!r}: a note needs a kind, such as rule, path or goal")
    if not text.strip() and key is None:
        raise InvalidMessage(f"session {session!r}: a note needs a text; to take one away, name its key")
    if (size := len(text.encode("utf-8", "surrogatepass"))) > NOTE_LIMIT:
        raise MessageTooLarge(f"session {session!r}: a note of {size:,} bytes is over the limit of {NOTE_LIMIT:,}")

    def note_in(tx: Transaction) -> int:
        state = get_session(tx, session)
        head = segment(tx, session, state.head)
        for n in source:
            if (said := lineage.record(tx, session, n)) is None or said.kind == ERASED:
                raise OnefoldError(f"session {session!r}: record {n}, which the note comes from, is not there any more")
        before = lineage.load_pins_and_notes(tx, session, state.last + 1, head.hidden).notes
        same = next((n for n in before if (n.kind, n.key) == (kind, key)), None)
        if text.strip():
            if same is not None and same.text == text:
                return same.number
        elif same is None and not any(
            (f.kind, f.key) == (kind, key) for f in lineage.facts(lineage.summary_body(tx, session, head))
        ):
            raise OnefoldError(f"session {session!r} has no note and no fact of kind {kind!r} with the key {key!r}")
        made = Note(state.last + 1, kind, text if text.strip() else "", key or f"#{state.last + 1}", actor, tx.now)
        body: dict[str, Json] = {
            "kind": kind,
            "text": made.text,
            "key": key,
            "tokens": context_prefix.note_tokens(made, same),
        }
        if source:
            body["source"] = list(source)
        state = journal.add(tx, state, journal.draft(NOTE, body, actor=actor))
        tx.put_session(state)
        return state.last

    return journal.backend.write(session, note_in)


def alias(journal: Journal, session: str, other_id: str, *, actor: str | None = None) -> None:
    """Makes a session known by one more id, for good. Said again, nothing happens; no two sessions share one."""

    def alias_in(tx: Transaction) -> None:
        state = get_session(tx, session)
        named = journal.name(tx, state, other_id, actor)
        if named != state:
            tx.put_session(named)

    try:
        journal.backend.write(session, alias_in)
    except AliasTaken as error:
        raise OnefoldError(f"{error}. Nothing was written") from None


def aliases(journal: Journal, session: str) -> list[str]:
    """The other ids of a session, the newest last."""

    def aliases_in(tx: Transaction) -> list[str]:
        state = get_session(tx, session)
        marks = tx.marks(session, state.forked_at + 1, state.last + 1) if state.aliases else []
        return [m.body["alias"] for m in marks if m.kind == "alias"]

    return journal.backend.read(aliases_in)


def go_by(journal: Journal, session: str, limits: dict[str, Json], *, actor: str | None = None) -> int:
    """Notes which limits a session's agent goes by, for all who look at the session without it. Said again, nothing
    happens. Gives the number of the record that says so."""

    def go_by_in(tx: Transaction) -> int:
        state = get_session(tx, session)
        if lineage.limits(tx, state) == limits:
            return state.limits
        state = journal.add(tx, state, journal.draft(LIMITS, {"limits": limits}, actor=actor))
        tx.put_session(state)
        return state.limits

    return journal.backend.write(session, go_by_in)


def resolve(journal: Journal, any_id: str) -> str:
    """The id of the session that is known by this one, its own or any other."""

    def resolve_in(tx: Transaction) -> str:
        return any_id if tx.session(any_id) is not None else tx.owner(any_id) or get_session(tx, any_id).id

    return journal.backend.read(resolve_in)


def _its_group(tx: Transaction, state: SessionState, head: Segment, number: int) -> Group:
    """A message with the calls and results that no provider takes apart from it."""
    start = next((s.cut for s in lineage.segments(tx, state.id, state.last + 1) if s.cut <= number), 1)
    found = lineage.headers(tx, state.id, start, state.last + 1, head.hidden)
    live = tx.record(state.id, state.turn) if state.turn else None
    over = {h.number for h in found if h.turn is not None and (live is None or h.turn != live.turn)}
    groups = group(((h.number, h.header) for h in found), over).groups
    return next((some for some in groups if number in some.members), Group([number]))


def _brings(tx: Transaction, state: SessionState, head: Segment, numbers: tuple[int, ...]) -> int:
    """How much larger a context is by a pin: what it shows anyway costs nothing."""
    apart = [n for n in numbers if n < head.cut]
    if context_prefix.of(tx, state.id, head, state.last + 1).shown.issuperset(apart):
        return 0
    return context_prefix.pin_tokens(tx, state.id, apart)
