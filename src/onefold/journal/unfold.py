"""Takes a compaction back without losing what was said since, and makes it hold again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onefold.errors import ContextTooLarge, OnefoldError
from onefold.journal import lineage, masks
from onefold.journal.journal import Journal, segment
from onefold.journal.lineage import get_session
from onefold.journal.segments import check_unmoved, erased, newest, open_view, redo_target
from onefold.model import (
    Segment,
    SessionState,
)
from onefold.storage.base import Transaction

FOLDS = ("compaction", "provider")
"""Sources of segments that stand for what came before: what a summarizer wrote, and what a provider made."""


def unfold(
    journal: Journal, session: str, fold: int | None = None, *, expect_head: int | None = None,
    most: int | None = None, actor: str | None = None,
) -> Segment:  # fmt: skip
    """Takes a compaction back: the boundary that it replaced, under what is hidden now. By default the newest one.

    What was said since stays, and what was taken back since stays hidden. Compactions that were made of its summary are
    taken back with it; the new segment names them all. An open turn goes on. `most` is the size in tokens over which it
    is rejected.
    """

    def unfold_in(tx: Transaction) -> Segment:
        state = get_session(tx, session) if expect_head is None else check_unmoved(tx, session, expect_head, None)
        head = _kept_here(tx, state)
        mask = None if fold is None else lineage.segment(tx, session, fold)
        if mask is not None and mask.source == "masked":
            return _fits(tx, session, _unmask(journal, tx, state, mask, actor=actor), most)
        if mask is not None and mask.item == mask.number == head.item != head.summary:  # sealed: its boundary is older
            plain = replace(head, item=None)
            return open_view(
                journal, tx, state, plain, head.hidden, actor=actor, restored=head.number,
                redo=redo_target(tx, state, head), unfolds=[mask.number],
            )  # fmt: skip
        folds: list[int] = []
        for made in in_force(tx, session, head):
            folds.append(made.number)
            if fold is None or made.number <= fold:
                break
        if not folds or fold not in (None, folds[-1]):
            raise OnefoldError(_nothing_to_unfold(tx, session, head, fold))
        before = newest(tx, state._replace(last=folds[-1] - 1), head.hidden)
        opened = open_view(
            journal, tx, state, before, head.hidden, actor=actor, restored=before.number,
            redo=redo_target(tx, state, head), unfolds=folds[::-1],
        )  # fmt: skip
        return _fits(tx, session, opened, most)

    return journal.backend.write(session, unfold_in)


def refold(
    journal: Journal, session: str, fold: int | None = None, *, expect_head: int | None = None,
    actor: str | None = None,
) -> Segment:  # fmt: skip
    """Goes to the boundary of a compaction again that was unfolded, also after new turns, under what is hidden now. By
    default the newest one that stands for nothing that was taken back since."""

    def refold_in(tx: Transaction) -> Segment:
        state = get_session(tx, session) if expect_head is None else check_unmoved(tx, session, expect_head, None)
        head = _kept_here(tx, state)
        found = lineage.segments(tx, session, state.last + 1) if fold is None else [lineage.segment(tx, session, fold)]
        for made in found:
            if made is None or made.source not in FOLDS:
                continue
            again = made.cut > head.cut or _sealed(made, head) or _made_of(tx, session, made, head)
            fits = again and lineage.same_before(tx, session, made.cut, made.hidden, head.hidden)
            if fits and not erased(tx, session, made):
                return refold_to(journal, tx, state, head, made, actor=actor, redo=redo_target(tx, state, head))
        what = "no compaction" if fold is None else f"segment {fold} is not a compaction that"
        raise OnefoldError(
            f"session {session!r}: {what} was unfolded and stands for just what is in view before its cut; compact it"
        )

    return journal.backend.write(session, refold_in)


# ---------------------------------------------------------------------- the rules' small parts


def in_force(tx: Transaction, session: str, of: Segment) -> Iterator[Segment]:
    """The compactions that a segment's summary comes from, the newest first: each was made of the one before it."""
    base: Segment | None = of
    while base is not None and base.summary is not None:
        made = lineage.segment(tx, session, base.summary)
        if made is None or made.source not in FOLDS:
            return
        yield made
        base = None if made.base is None else lineage.segment(tx, session, made.base)


def _made_of(tx: Transaction, session: str, made: Segment, head: Segment) -> bool:
    """Whether a summary was written again in place of the one that is in force now."""
    same = made.cut == head.cut and made.summary != head.summary
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
    said = lineage.record(tx, state.id, mask.number)
    whole = {*(said.body["masks"] if said is not None else ())}
    stay = tuple(m for m in head.masked if m[0] not in whole)
    if stay == head.masked:
        raise OnefoldError(f"session {state.id!r}: nothing that segment {mask.number} masked is masked now")
    return open_view(
        journal, tx, state, head, head.hidden, actor=actor, restored=head.number, redo=redo_target(tx, state, head),
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
    raise ContextTooLarge(
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
        f"session {session!r}: segment {fold} is not a compaction in force, so it cannot be unfolded; the newest "
        f"that are: {', '.join(str(n) for n in stands)}"
    )


def refold_to(
    journal: Journal, tx: Transaction, state: SessionState, head: Segment, like: Segment, *, actor: str | None,
    redo: int | None,
) -> Segment:  # fmt: skip
    """Opens a segment with the boundary of compactions that were unfolded, and names them. An open turn goes on."""
    stood = {made.number for made in in_force(tx, state.id, head)}
    again = [made.number for made in in_force(tx, state.id, like) if made.number not in stood]
    return open_view(
        journal, tx, state, like, head.hidden, actor=actor, restored=like.number, redo=redo, refolds=again[::-1]
    )
