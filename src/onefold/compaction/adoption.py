"""How an item that a provider made is adopted: what it covers is looked at, quotes are chosen, and it is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

from onefold.compaction.context import Context
from onefold.compaction.plan import Plan
from onefold.compaction.policy import Policy
from onefold.compaction.work import gather
from onefold.errors import Moved
from onefold.journal import adoption, view
from onefold.journal.adoption import Adoption, Origin
from onefold.journal.contract import Journal
from onefold.journal.seam import Transaction
from onefold.messages import codec
from onefold.messages.codecs import PLAIN
from onefold.model import Claim, Quotes, Record, Segment

_TRIES = 3


def adopt(
    journal: Journal, session: str, window: Sequence[int], *, origin: Origin, covers: Context | Iterable[int],
    policy: Policy, actor: str | None = None,
) -> Segment:  # fmt: skip
    """Adopts an item. If the head moves while quotes are chosen, they are chosen again."""
    sent = {*covers.numbers, *covers.left_out} if isinstance(covers, Context) else {*covers}
    look = partial(_look, session, window, origin, sent)
    for left in range(_TRIES - 1, -1, -1):
        made = journal.backend.read(look)
        if isinstance(made, Segment):
            return made
        said = _quoted(journal, session, made, policy) if policy.quote_tokens else None
        try:
            return adoption.adopt(
                journal, session, window, sent, origin=origin, expect_head=made.head, said=said, actor=actor
            )
        except Moved:
            if not left:
                raise
    raise AssertionError("unreachable")


def _look(
    session: str, window: Sequence[int], origin: Origin, sent: Collection[int], tx: Transaction
) -> Adoption | Segment:
    """What is to be adopted; or the segment in force, if that adopted just this."""
    head = view.segment(tx, session, view.known(tx, session).head)
    there = None if head is None else adoption.in_force(tx, session, head)
    if head is not None and there is not None and (there.window, there.origin) == (tuple(sorted({*window})), origin):
        return head
    return adoption.adoptable(tx, session, window, sent)


def _quoted(journal: Journal, session: str, made: Adoption, policy: Policy) -> Quotes:
    """What the segment quotes of what the item covers, but for what came back with it whole."""
    from onefold.compaction.quote_sources import quoted_of  # its patterns are not needed to open a store

    state = journal.state(session)
    claim = Claim(session, "", made.cut, made.head, 1, 1, 0.0, 0.0, 0.0, 0, turn=state.turn)
    work = gather(journal, claim)
    covered = tuple(r for r in work.messages if view.is_hidden(made.covers, r.number))
    again = {_text(r) for r in journal.backend.read(lambda tx: view.some(tx, session, made.window[:-1]))}
    shown = tuple(r for r in covered if _text(r) not in again)
    removed = sum(r.header.tokens for r in covered if r.header is not None) + work.quoting.tokens
    chosen = quoted_of(
        replace(work, messages=shown), Plan(made.cut, made.kept), (), policy=policy,
        window=state.window or policy.of().window, removed=removed, texts={}, pause=lambda: None,
    ).quotes  # fmt: skip
    repeated = {r.number for r in work.quoting.records if _text(r) in again}
    if not repeated:
        return chosen
    stretches = tuple(q for q in chosen.stretches if q.number not in repeated)
    return replace(chosen, stretches=stretches, labels=tuple(x for x in chosen.labels if x.number not in repeated))


def _text(record: Record) -> str:
    return codec(record.format or PLAIN).parse(record.body).spoken.strip()
