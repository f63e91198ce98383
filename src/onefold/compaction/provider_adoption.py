"""How an item that a provider made is adopted: what it covers is looked at, quotes are chosen, and it is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

from onefold.compaction.context import Context
from onefold.compaction.cut_planner import Plan
from onefold.compaction.material import load_material
from onefold.compaction.policy import Policy
from onefold.errors import StaleHandle
from onefold.journal import adoption, lineage, window_adoption
from onefold.journal.adoption import Adoption, Origin
from onefold.journal.journal import Journal
from onefold.messages import codec
from onefold.messages.codecs import PLAIN
from onefold.model import Claim, Draft, Quotes, Record, Segment
from onefold.storage.base import Transaction

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
        said = _quoted(journal, session, made, policy, _texts(journal, session, made)) if policy.quote_tokens else None
        try:
            return adoption.adopt(
                journal, session, window, sent, origin=origin, expect_head=made.head, said=said, actor=actor
            )
        except StaleHandle:
            if not left:
                raise
    raise AssertionError("unreachable")


def adopt_new(
    journal: Journal, session: str, window: Sequence[Draft], *, cleared: int | None, origin: Origin,
    covers: Collection[int], policy: Policy, key: str, actor: str | None = None,
) -> Segment:  # fmt: skip
    """Writes a window and adopts it. If it was given in place of all that a session had, `cleared` is the segment of
    the clear before it, which is taken back. Raises `Moved` with nothing written if something happened since that."""
    made = journal.backend.read(lambda tx: window_adoption.look(tx, session, cleared, window, covers, key=key))
    if isinstance(made, Segment):
        return made
    again = {codec(d.format or PLAIN).parse(d.body).spoken.strip() for d in window[:-1]}
    said = _quoted(journal, session, made, policy, again) if policy.quote_tokens else None
    return window_adoption.replace(
        journal, session, cleared, window, covers, origin=origin, said=said, key=key, actor=actor
    )  # fmt: skip


def _look(
    session: str, window: Sequence[int], origin: Origin, sent: Collection[int], tx: Transaction
) -> Adoption | Segment:
    """What is to be adopted; or the segment in force, if that adopted just this."""
    head = lineage.segment(tx, session, lineage.get_session(tx, session).head)
    there = None if head is None else adoption.in_force(tx, session, head)
    if head is not None and there is not None and (there.window, there.origin) == (tuple(sorted({*window})), origin):
        return head
    return adoption.adoptable(tx, session, window, sent)


def _texts(journal: Journal, session: str, made: Adoption) -> set[str]:
    """What came back with an item whole."""
    return {_text(r) for r in journal.backend.read(lambda tx: lineage.some(tx, session, made.window[:-1]))}


def _quoted(journal: Journal, session: str, made: Adoption, policy: Policy, again: Collection[str]) -> Quotes:
    """What the segment quotes of what the item covers, but for what stands in its window `again`."""
    from onefold.compaction.quote_material import quoted_of  # its patterns are not needed to open a store

    state = journal.state(session)
    claim = Claim(session, "", made.cut, made.head, 1, 1, 0.0, 0.0, 0.0, 0, turn=state.turn)
    work = load_material(journal, claim)
    covered = tuple(r for r in work.messages if lineage.is_hidden(made.covers, r.number))
    shown = tuple(r for r in covered if _text(r) not in again)
    removed = sum(r.header.tokens for r in covered if r.header is not None) + work.quoting.tokens
    chosen = quoted_of(
        replace(work, messages=shown), Plan(made.cut, made.kept), (), policy=policy,
        window=state.window or policy.of().window, removed=removed, texts={}, pause=lambda: None,
    ).quotes  # fmt: skip
    quoted = work.quoting.text.strip()
    whole = bool(quoted) and any(quoted in text for text in again)  # the quotes themselves were sent, and came back
    repeated = {r.number for r in work.quoting.records if whole or _text(r) in again}
    if not repeated:
        return chosen
    stretches = tuple(q for q in chosen.stretches if q.number not in repeated)
    return replace(chosen, stretches=stretches, labels=tuple(x for x in chosen.labels if x.number not in repeated))


def _text(record: Record) -> str:
    return codec(record.format or PLAIN).parse(record.body).spoken.strip()
