"""Going back and branching off: restore, rewind, undo, redo, unfold, fork and so on; sessions that their agent keeps.

A segment is a view: a cut, a summary, what is kept by name, and what is hidden. Its summary stands for exactly the
messages before its cut that it does not hide. So an older boundary fits a new view if both hide the same records before
its cut, and a summary that knows a hidden record never comes back. Every step opens a new segment: nothing is moved
back, and whatever is open on the old head is settled in the same transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from onefold.errors import Moved, OnefoldError, StoreDamaged, TooLarge
from onefold.journal import adoption, fold, masks, view
from onefold.journal.contract import Journal, segment
from onefold.journal.fold import boundary
from onefold.journal.refusals import check_name, conflict, known_word
from onefold.journal.seam import Transaction
from onefold.journal.turns import close
from onefold.journal.view import Masks, known
from onefold.model import (
    AGENT_ENDED,
    AGENT_STARTED,
    ASKING,
    COMMITTED,
    FORK,
    SEGMENT_OPENED,
    STARTED,
    TURN_STARTED,
    Claim,
    ForkKind,
    HolderId,
    Json,
    Keeper,
    Lease,
    Ranges,
    Record,
    Segment,
    SessionState,
)

FOLDS = ("compaction", "provider")
"""Sources of segments that stand for what came before: what a summarizer wrote, and what a provider made."""
_PAGE = 500
_LOOKED_AT = 20_000


def restore(
    journal: Journal, session: str, to: int, *, expect_head: int, seen: int | None = None, actor: str | None = None
) -> Segment:
    """Opens a new segment with the view of an older one, if the session is still as the caller saw it."""

    def work(tx: Transaction) -> Segment:
        state = _unmoved(tx, session, expect_head, seen)
        older = view.segment(tx, session, to)
        if older is None:
            raise OnefoldError(f"session {session!r} has no segment {to}; `onefold show {quote(session)}` lists them")
        _not_erased(tx, session, older)
        state = close(journal, tx, state, "cancelled", "the session was taken back to an older segment", actor=actor)
        keeper = segment(tx, session, state.head).keeper
        return _open(
            journal, tx, state, older, older.hidden, actor=actor, restored=to, keeper=keeper, masked=older.masked
        )

    return journal.backend.write(session, work)


def rewind(
    journal: Journal, session: str, to: int, *, expect_head: int, seen: int | None = None, actor: str | None = None
) -> Segment:
    """Hides everything after a record; or after the call before it, if that has its result later."""

    def work(tx: Transaction) -> Segment:
        state = _unmoved(tx, session, expect_head, seen)
        if not 0 <= to <= state.last:
            raise OnefoldError(f"session {session!r} has records 1 to {state.last}; it cannot be rewound to {to}")
        return _rewind(journal, tx, state, to, actor=actor)

    return journal.backend.write(session, work)


def undo(
    journal: Journal, session: str, *, expect_head: int, seen: int | None = None, actor: str | None = None
) -> Segment:
    """Hides the newest message of the user and all that came of it, whatever was compacted since. If nothing was said
    since somebody unfolded a compaction, it takes that back instead."""

    def work(tx: Transaction) -> Segment:
        state = _unmoved(tx, session, expect_head, seen)
        head = segment(tx, session, state.head)
        stands = view.origin(tx, session, head)
        if stands.unfolds and not _said_since(tx, state, stands):
            before = newest(tx, state._replace(last=stands.number - 1), head.hidden)
            return _refold(journal, tx, state, head, before, actor=actor, redo=head.number)
        asked = view.last_user(tx, session, state.last + 1, head.hidden)
        if asked is None:
            raise OnefoldError(f"session {session!r}: there is nothing to undo")
        return _rewind(journal, tx, state, _opening(tx, session, asked, head.hidden) - 1, actor=actor)

    return journal.backend.write(session, work)


def pop(journal: Journal, session: str) -> Record | None:
    """Hides the newest message alone, and gives it; None if none is in view. It may be a result whose call stays: for a
    program that takes back what it wrote item by item, and writes it anew."""

    def work(tx: Transaction) -> Record | None:
        state = known(tx, session)
        newest = view.last_message(tx, session, state.last + 1, segment(tx, session, state.head).hidden)
        if newest is not None:
            _rewind(journal, tx, state, newest.number - 1, exact=True)
        return newest

    return journal.backend.write(session, work)


def clear(journal: Journal, session: str) -> Segment:
    """Hides every message, so that the conversation begins anew under the same id; the segment in force."""

    def work(tx: Transaction) -> Segment:
        state = known(tx, session)
        head = segment(tx, session, state.head)
        if view.last_message(tx, session, state.last + 1, head.hidden) is None:
            return head
        return _rewind(journal, tx, state, 0)

    return journal.backend.write(session, work)


def redo(
    journal: Journal, session: str, *, expect_head: int, seen: int | None = None, actor: str | None = None
) -> Segment:
    """Takes the last undo or rewind back, if nothing was said since."""

    def work(tx: Transaction) -> Segment:
        state = _unmoved(tx, session, expect_head, seen)
        head = segment(tx, session, state.head)
        stands = view.origin(tx, session, head)
        before = None if stands.redo is None else view.segment(tx, session, stands.redo)
        if before is None:
            raise OnefoldError(f"session {session!r}: there is nothing to redo")
        if _said_since(tx, state, stands):
            raise Moved(f"session {session!r}: messages came after the undo, and a redo would be between them; fork it")
        _not_erased(tx, session, before)
        if before.hidden != head.hidden:  # else a compaction is unfolded again, and whoever writes goes on
            state = close(journal, tx, state, "cancelled", "an undo was taken back", actor=actor)
        stood = view.origin(tx, session, before)
        return _open(
            journal, tx, state, before, before.hidden, actor=actor, restored=before.number, redo=stood.redo,
            unfolds=list(stood.unfolds),
        )  # fmt: skip

    return journal.backend.write(session, work)


def unfold(
    journal: Journal, session: str, fold: int | None = None, *, expect_head: int | None = None,
    most: int | None = None, actor: str | None = None,
) -> Segment:  # fmt: skip
    """Takes a compaction back: the boundary that it replaced, under what is hidden now. By default the newest one.

    What was said since stays, and what was taken back since stays hidden. Compactions that were made of its summary are
    taken back with it; the new segment names them all. An open turn goes on. `most` is the size in tokens over which it
    is refused.
    """

    def work(tx: Transaction) -> Segment:
        state = known(tx, session) if expect_head is None else _unmoved(tx, session, expect_head, None)
        head = _kept_here(tx, state)
        mask = None if fold is None else view.segment(tx, session, fold)
        if mask is not None and mask.source == "masked":
            return _fits(tx, session, _unmask(journal, tx, state, mask, actor=actor), most)
        if mask is not None and mask.item == mask.number == head.item != head.summary:  # sealed: its boundary is older
            plain = replace(head, item=None)
            return _open(
                journal, tx, state, plain, head.hidden, actor=actor, restored=head.number, redo=_redo(tx, state, head),
                unfolds=[mask.number],
            )  # fmt: skip
        folds: list[int] = []
        for made in in_force(tx, session, head):
            folds.append(made.number)
            if fold is None or made.number <= fold:
                break
        if not folds or fold not in (None, folds[-1]):
            raise OnefoldError(_nothing_to_unfold(tx, session, head, fold))
        before = newest(tx, state._replace(last=folds[-1] - 1), head.hidden)
        opened = _open(
            journal, tx, state, before, head.hidden, actor=actor, restored=before.number,
            redo=_redo(tx, state, head), unfolds=folds[::-1],
        )  # fmt: skip
        return _fits(tx, session, opened, most)

    return journal.backend.write(session, work)


def refold(
    journal: Journal, session: str, fold: int | None = None, *, expect_head: int | None = None,
    actor: str | None = None,
) -> Segment:  # fmt: skip
    """Goes to the boundary of a compaction again that was unfolded, also after new turns, under what is hidden now. By
    default the newest one that stands for nothing that was taken back since."""

    def work(tx: Transaction) -> Segment:
        state = known(tx, session) if expect_head is None else _unmoved(tx, session, expect_head, None)
        head = _kept_here(tx, state)
        found = view.segments(tx, session, state.last + 1) if fold is None else [view.segment(tx, session, fold)]
        for made in found:
            if made is None or made.source not in FOLDS:
                continue
            again = made.cut > head.cut or _sealed(made, head) or _made_of(tx, session, made, head)
            fits = again and view.same_before(tx, session, made.cut, made.hidden, head.hidden)
            if fits and not _erased(tx, session, made):
                return _refold(journal, tx, state, head, made, actor=actor, redo=_redo(tx, state, head))
        what = "no compaction" if fold is None else f"segment {fold} is no compaction that"
        raise OnefoldError(
            f"session {session!r}: {what} was unfolded and stands for just what is in view before its cut; compact it"
        )

    return journal.backend.write(session, work)


def fork(
    journal: Journal, parent: str, child: str, *, kind: ForkKind = "branch", at: int | None = None,
    actor: str | None = None,
) -> SessionState:  # fmt: skip
    """A new session whose past is another one's, as that was at a record. Nothing is copied, nothing written there.

    It begins at a closed group: at the record before a call whose results come later. It is kept by onefold, also where
    its parent's agent compacts by itself: that agent knows nothing of it. Said again, the same fork.
    """

    def work(tx: Transaction) -> SessionState:
        origin = known(tx, parent)
        there = tx.session(child)
        if there is not None:
            return _same_fork(tx, there, parent, kind, at)
        if tx.owner(child) is not None or tx.deleted(child) is not None or tx.last_number(child):
            raise OnefoldError(f"{child!r} is, or was, another session's id; choose another one for the fork")
        if at is not None and not 1 <= at <= origin.last:
            raise OnefoldError(f"session {parent!r} has records 1 to {origin.last}; it cannot be forked at {at}")
        upto = origin.last if at is None else at
        inherits = _as_of(tx, parent, upto)
        lands = _landing(tx, parent, upto, inherits.hidden, inherits)
        if lands != upto:
            upto, inherits = lands, _as_of(tx, parent, lands)
        if inherits.number != origin.head and _erased(tx, parent, inherits):
            fits = newest(tx, origin._replace(last=upto), inherits.hidden)
            inherits = replace(fits, hidden=inherits.hidden)
        state = fold.newborn(child, tx.now)._replace(last=upto, tokens=origin.tokens)
        body: dict[str, Json] = {"parent": parent, "at": upto, "kind": kind}
        if (limits := view.limits(tx, origin)) is not None:
            body["limits"] = limits
        state = journal.add(tx, state, journal.draft(FORK, body, actor=actor))
        opened: dict[str, Json] = boundary(
            inherits, state, base=None, source="forked", summary_of=inherits.summary, session=child, keeper="onefold"
        )
        as_it_is = inherits.number == origin.head and upto == origin.last
        if not as_it_is or view.marked(tx, parent, origin.head, upto + 1):  # otherwise it is as large as its parent
            opened["tokens_after"] = view.size(tx, parent, inherits, upto, told=view.told(tx, parent, inherits))
        state = journal.add(tx, state, journal.draft(SEGMENT_OPENED, opened))
        tx.put_session(state)
        return state

    return journal.backend.write(child, work)


def keep(journal: Journal, session: str, keeper: Keeper) -> Segment:
    """Says who compacts a session from now on: onefold, or its agent by itself."""
    known_word(session, "keeper", keeper, Keeper)

    def work(tx: Transaction) -> Segment:
        state = known(tx, session)
        head = segment(tx, session, state.head)
        if head.keeper == keeper:
            return head
        return _open(journal, tx, state, head, head.hidden, source="kept", keeper=keeper)

    return journal.backend.write(session, work)


def watch(journal: Journal, session: str, who: HolderId, *, life: float) -> Claim:
    """Notes that the agent has begun to compact by itself, for as long as `life` at most; `observe` or `fail` ends it.

    If a compaction is open, this is it, and whoever worked on it comes late: the agent itself is at it now.
    """

    def work(tx: Transaction) -> Claim:
        state = known(tx, session)
        _kept_by_agent(tx, state)
        if state.open is None:
            state = journal.ask(tx, state, "observed", attempts=1)
        current = tx.compaction(session, state.open or "")
        if current is None:
            raise StoreDamaged(
                f"session {session!r}: its open compaction {state.open!r} has no row; run `onefold verify`"
            )
        body = {"compaction": current.id, "base": current.base, "life": life, **journal.leases.holder(who)}
        state = journal.add(tx, state, journal.draft(STARTED, body))
        tx.put_session(state)
        until = tx.now + life
        journal.leases.put(tx, session, Lease(current.id, state.last, until, life))
        return Claim(
            session, current.id, state.last, current.base, current.attempts + 1, current.attempts_allowed, life, life,
            until, os.getpid(),
        )  # fmt: skip

    return journal.backend.write(session, work)


def observe(
    journal: Journal,
    session: str,
    *,
    source: str,
    witnesses: tuple[str, ...] = (),
    key: str | None = None,
    said: str | None = None,
) -> Segment:
    """Notes that the agent compacted by itself: a mark and a new segment, which moves no cut and hides nothing.

    If a compaction is open, this is it; else it is one that nobody here asked for. `said` is the summary as the agent
    told it, for people to read. The same key again is the same one.
    """
    if key is not None:
        check_name("key", key)

    def work(tx: Transaction) -> Segment:
        state = known(tx, session)
        if key is not None and (use := tx.key(session, key)) is not None:
            before = tx.record(session, use.first)
            done = before.body.get("segment") if before is not None and before.kind == COMMITTED else None
            if done is None:
                raise conflict(session, key, use)
            return segment(tx, session, done)
        head = _kept_by_agent(tx, state)
        if state.open is None:
            state = journal.ask(tx, state, "observed")
        id = state.open or ""
        done = {"compaction": id, "fence": 0, "segment": state.last + 2}  # no claim's: whoever has one comes late
        state = journal.add(tx, state, journal.draft(COMMITTED, done, key=key))
        journal.leases.drop(tx, session)
        seen: dict[str, Json] = {"compaction": id, "by": source, "witnesses": list(witnesses)}
        if said is not None:
            seen["said"] = said
        return _open(journal, tx, state, head, head.hidden, source="observed", **seen)

    return journal.backend.write(session, work)


def has_agent(tx: Transaction, state: SessionState) -> bool:
    """Whether an agent was started in this session and has not ended, as far as the journal knows."""
    stop = state.last + 1
    first = max(state.forked_at, state.last - _LOOKED_AT)
    while stop > first + 1:
        start = max(first + 1, stop - _PAGE)
        for record in reversed(tx.records(state.id, start, stop, _PAGE)):
            if record.kind in (AGENT_STARTED, AGENT_ENDED):
                return record.kind == AGENT_STARTED
        stop = start
    return False


def _kept_by_agent(tx: Transaction, state: SessionState) -> Segment:
    head = segment(tx, state.id, state.head)
    if head.keeper != "agent":
        raise OnefoldError(
            f"session {state.id!r} is compacted by onefold, so what an agent does by itself is no boundary of it; "
            "call keep('agent') first"
        )
    return head


# ---------------------------------------------------------------------- the rules' small parts


def in_force(tx: Transaction, session: str, of: Segment) -> Iterator[Segment]:
    """The compactions that a segment's summary comes from, the newest first: each was made of the one before it."""
    base: Segment | None = of
    while base is not None and base.summary is not None:
        made = view.segment(tx, session, base.summary)
        if made is None or made.source not in FOLDS:
            return
        yield made
        base = None if made.base is None else view.segment(tx, session, made.base)


def _made_of(tx: Transaction, session: str, made: Segment, head: Segment) -> bool:
    """Whether a summary was written again in place of the one that is in force now."""
    same = made.cut == head.cut and made.number != head.summary
    return same and any(one.number == head.summary for one in in_force(tx, session, made))


def _kept_here(tx: Transaction, state: SessionState) -> Segment:
    head = segment(tx, state.id, state.head)
    if head.keeper != "onefold":
        raise OnefoldError(
            f"session {state.id!r} is compacted by its agent, which knows nothing of a boundary here; there is nothing "
            "to unfold"
        )
    return head


def _unmask(journal: Journal, tx: Transaction, state: SessionState, mask: Segment, *, actor: str | None) -> Segment:
    """Opens a segment that shows again what one masked."""
    head = segment(tx, state.id, state.head)
    said = view.record(tx, state.id, mask.number)
    whole = {*(said.body["masks"] if said is not None else ())}
    stay = tuple(m for m in head.masked if m[0] not in whole)
    if stay == head.masked:
        raise OnefoldError(f"session {state.id!r}: nothing that segment {mask.number} masked is masked now")
    return _open(
        journal, tx, state, head, head.hidden, actor=actor, restored=head.number, redo=_redo(tx, state, head),
        unfolds=[mask.number], masked=stay,
    )  # fmt: skip


def _sealed(made: Segment, head: Segment) -> bool:
    """Whether a segment adopted what cannot be read, on the boundary that is in force."""
    return made.source == "provider" and made.summary != made.number and made.summary == head.summary and not head.item


def _fits(tx: Transaction, session: str, opened: Segment, most: int | None) -> Segment:
    """A segment that shows what another one did not; raises if that is more than a model is sent."""
    if most is None or opened.tokens_after <= most:
        return opened
    saves = masks.choose(tx, session).saves
    raise TooLarge(
        f"session {session!r}: with segment {opened.unfolds[0]} unfolded its context would have about "
        f"{opened.tokens_after:,} tokens, over the {most:,} that its model is sent at most; nothing was written. "
        f"Masking old tool results would save about {saves:,} of them. Unfold a later compaction, or read what it "
        "stands for without bringing it back"
    )


def _nothing_to_unfold(tx: Transaction, session: str, head: Segment, fold: int | None) -> str:
    stands = [made.number for made in in_force(tx, session, head)][:5]
    if not stands:
        return f"session {session!r}: no compaction is in force, so there is nothing to unfold"
    return (
        f"session {session!r}: segment {fold} is no compaction that is in force, so it cannot be unfolded; the newest "
        f"that are: {', '.join(str(n) for n in stands)}"
    )


def _redo(tx: Transaction, state: SessionState, head: Segment) -> int | None:
    """Where a redo goes now, if there is one: nothing was said since."""
    stands = view.origin(tx, state.id, head)
    return None if _said_since(tx, state, stands) else stands.redo


def _said_since(tx: Transaction, state: SessionState, head: Segment) -> bool:
    return bool(view.headers(tx, state.id, head.number, state.last + 1))


def _refold(
    journal: Journal, tx: Transaction, state: SessionState, head: Segment, like: Segment, *, actor: str | None,
    redo: int | None,
) -> Segment:  # fmt: skip
    """Opens a segment with the boundary of compactions that were unfolded, and names them. An open turn goes on."""
    stood = {made.number for made in in_force(tx, state.id, head)}
    again = [made.number for made in in_force(tx, state.id, like) if made.number not in stood]
    return _open(
        journal, tx, state, like, head.hidden, actor=actor, restored=like.number, redo=redo, refolds=again[::-1]
    )


def newest(tx: Transaction, state: SessionState, hidden: Ranges) -> Segment:
    """The newest boundary that knows none of the hidden records; with none, the whole conversation."""
    for some in view.segments(tx, state.id, state.last + 1):
        if view.same_before(tx, state.id, some.cut, some.hidden, hidden) and not _erased(tx, state.id, some):
            return some
    return Segment(0, None, 1, "created", 0.0)


def _rewind(
    journal: Journal, tx: Transaction, state: SessionState, to: int, *, actor: str | None = None, exact: bool = False
) -> Segment:
    head = segment(tx, state.id, state.head)
    to = to if exact else _landing(tx, state.id, to, head.hidden)
    if not view.headers(tx, state.id, to + 1, state.last + 1, head.hidden):
        raise OnefoldError(
            f"session {state.id!r}: no message after record {to} is in view, so there is nothing to hide"
        )
    state = close(journal, tx, state, "cancelled", "the session was rewound", actor=actor, stays=to)
    hidden = view.joined(tx, state.id, view.hide(head.hidden, (to + 1, state.last)))
    fits = newest(tx, state, hidden)
    if adoption.beyond(tx, state.id, fits, to):
        there = view.segment_at(tx, state.id, to)
        fits = replace(fits, item=None if there is None else there.item)
    return _open(journal, tx, state, fits, hidden, actor=actor, restored=fits.number, redo=state.head, since=to + 1)


def _open(
    journal: Journal,
    tx: Transaction,
    state: SessionState,
    like: Segment,
    hidden: Ranges,
    *,
    actor: str | None = None,
    masked: Masks | None = None,
    **other: Json,
) -> Segment:
    """Opens a segment with another one's boundary, under what is hidden now. What was masked there or is now stays so,
    unless somebody says what is."""
    head = segment(tx, state.id, state.head)
    stay = view.united(like.masked, head.masked) if masked is None else masked
    stay = tuple(m for m in stay if m[0] >= like.cut and not view.is_hidden(hidden, m[0]))
    items = tuple(m for m in view.united(like.adopted, head.adopted) if not view.is_hidden(hidden, m[0]))
    like = replace(like, hidden=hidden, masked=stay, adopted=items, keeper=head.keeper)
    usual: dict[str, Json] = {
        "source": "restored",
        "summary_of": like.summary,
        "tokens_after": view.size(tx, state.id, like, state.last, told=view.told(tx, state.id, like)),
    }
    state = journal.open_segment(tx, state, boundary(like, state, **(usual | other)), actor)
    tx.put_session(state)
    return segment(tx, state.id, state.head)


def _unmoved(tx: Transaction, session: str, head: int, seen: int | None) -> SessionState:
    state = known(tx, session)
    if state.head != head:
        raise Moved(f"session {session!r} is at segment {state.head}, not {head}: look at it again, then decide")
    if seen is not None and (unseen := tx.headers(session, seen + 1, state.last + 1)):
        raise Moved(
            f"session {session!r} has {len(unseen)} messages after record {seen}, the last one seen: look at it again, "
            "then decide"
        )
    return state


def _landing(tx: Transaction, session: str, to: int, hidden: Ranges, newest: Segment | None = None) -> int:
    """The newest record, up to this one, after which no call waits for its result."""
    while waiting := view.open_groups(tx, session, to + 1, hidden, newest):
        to, newest = min(members[0] for members in waiting) - 1, None
    return to


def _opening(tx: Transaction, session: str, asked: int, hidden: Ranges) -> int:
    """The first message of the user in the turn of this one."""
    said = view.record(tx, session, asked)
    if said is None or said.turn is None:
        return asked
    first = stop = asked
    while stop > 1:
        page = view.records(tx, session, max(1, stop - _PAGE), stop, _PAGE)
        mine = [r for r in page if r.turn == said.turn and not view.is_hidden(hidden, r.number)]
        first = min((r.number for r in mine if r.header is not None and r.header.role in ASKING), default=first)
        if any(r.kind == TURN_STARTED for r in mine):
            break
        stop -= _PAGE
    return first


def _as_of(tx: Transaction, session: str, number: int) -> Segment:
    found = view.segment_at(tx, session, number)
    if found is None:
        raise OnefoldError(f"session {session!r} had no segment yet at record {number}; fork it at a later one")
    return found


def _same_fork(tx: Transaction, there: SessionState, parent: str, kind: str, at: int | None) -> SessionState:
    said = tx.record(there.id, there.forked_at + 1) if there.parent == parent else None
    if at is not None and said is not None and at > there.forked_at:
        at = _landing(tx, parent, at, _as_of(tx, parent, at).hidden)
    if said is None or said.body.get("kind") != kind or at not in (None, there.forked_at):
        raise OnefoldError(f"session {there.id!r} exists already and is another one; choose another id for the fork")
    return there


def _erased(tx: Transaction, session: str, of: Segment) -> bool:
    said = view.summary(tx, session, of)
    return said is not None and bool(said.body.get("erased"))


def _not_erased(tx: Transaction, session: str, of: Segment) -> None:
    if _erased(tx, session, of):
        raise OnefoldError(
            f"session {session!r}: segment {of.number} had a summary of what was erased since, and cannot be restored"
        )
