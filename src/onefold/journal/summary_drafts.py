"""Another summary in place of the one in force: of the same messages, so that the boundary stays where it is.

A draft is nobody's claim: a person may read it for as long as he likes, and whoever compacts meanwhile is not kept from
it. It is not in the journal either, only what it cost. To take it is one transaction: asked for, claimed and committed
at once, if the session is still where the draft was made. The summary it replaces is a segment's, and so is a way back.
"""

from __future__ import annotations

from typing import NamedTuple

from onefold.errors import MessageTooLarge, NotNow, OnefoldError, StaleHandle
from onefold.journal import lineage, quote_refs
from onefold.journal.checks import may_compact
from onefold.journal.journal import SUMMARY_LIMIT, Journal, segment
from onefold.journal.lineage import get_session
from onefold.journal.record_bodies import summary_fields, usage_fields
from onefold.journal.unfold import in_force
from onefold.messages.quotation import utterances
from onefold.model import (
    COMMITTED,
    DRAFTED,
    MANUAL,
    STARTED,
    HolderId,
    Quotes,
    Segment,
    SessionState,
    Summary,
    Usage,
)
from onefold.storage.base import Transaction
from onefold.storage.projection import segment_body

_AT_ONCE = 60.0
"""The life of an attempt that ends in the transaction it begins in."""


class Present(NamedTuple):
    """The summary in force, and what another one is to be made of."""

    head: Segment
    base: Segment
    """The boundary on which it was made, of the messages from its cut on."""
    text: str
    window: int


def present(tx: Transaction, session: str) -> Present:
    """What is to be summarised again. Raises if there is nothing, or it is not for onefold to do."""
    state = get_session(tx, session)
    head = segment(tx, session, state.head)
    _may(tx, state, head)
    said = lineage.summary_body(tx, session, head) or {}
    return Present(head, _made_of(tx, session, head), str(said.get("summary", "")), state.window)


def drafted(
    journal: Journal, session: str, head: int, *, by: str | None, spent: Usage, refusal: str | None = None,
    actor: str | None = None,
) -> int:  # fmt: skip
    """Notes what a draft cost, whatever becomes of it: the record's number."""

    def drafted_in(tx: Transaction) -> int:
        body = {"segment": head, "by": by, "refusal": refusal, **usage_fields(spent)}
        said = {name: value for name, value in body.items() if value is not None}
        state = journal.add(tx, get_session(tx, session), journal.draft(DRAFTED, said, actor=actor))
        tx.put_session(state)
        return state.last

    return journal.backend.write(session, drafted_in)


def replaced(
    journal: Journal, session: str, made: Summary, said: Quotes | None, *, number: int, expect_head: int,
    who: HolderId, actor: str | None = None,
) -> Segment:  # fmt: skip
    """Opens a segment like the one in force, with this summary and these quotes, if nothing but masks came since the
    one that was looked at, and nobody compacts. `number` is the record that says what it cost; the same one again is
    the same segment."""
    if not made.text.strip():
        raise OnefoldError(f"session {session!r}: the summary is empty; nothing was written")
    if (size := len(made.text.encode("utf-8", "surrogatepass"))) > SUMMARY_LIMIT:
        raise MessageTooLarge(f"session {session!r}: a summary of {size} bytes is over the limit of 1 MiB")

    def replaced_in(tx: Transaction) -> Segment:
        state = get_session(tx, session)
        head = segment(tx, session, state.head)
        if (lineage.summary_body(tx, session, head) or {}).get("draft") == number:
            return head
        _may(tx, state, head)
        if not lineage.masked_since(tx, session, head, expect_head):
            raise StaleHandle(
                f"session {session!r} is at segment {head.number}, and the draft was made at {expect_head}: nothing "
                "was written. Make another draft"
            )
        if state.open is not None:
            raise NotNow(
                f"session {session!r}: compaction {state.open} is open, and would be given up; wait for it, or cancel "
                "it",
                session=session,
            )
        records = lineage.some(tx, session, [q.number for q in said.stretches]) if said is not None else []
        shown = [r for r in records if not lineage.is_hidden(head.hidden, r.number)]
        heard = utterances(said.stretches, shown) if said is not None else {}
        if said is not None and (why := quote_refs.wrong(said, shown, heard, head.cut)) is not None:
            raise OnefoldError(f"session {session!r}: {why}; nothing was written")
        quoted = quote_refs.NOTHING if said is None else quote_refs.read(said, shown, head.kept, heard)
        state = journal.ask(tx, state, MANUAL, attempts=1, actor=actor)
        id = state.open or ""
        began = {"compaction": id, "base": head.number, "life": _AT_ONCE, **journal.leases.holder(who)}
        state = journal.add(tx, state, journal.draft(STARTED, began))
        done = {"compaction": id, "fence": state.last, "segment": state.last + 2}
        body = segment_body(head, state, source="compaction", compaction=id, draft=number, **summary_fields(made, said))
        body["tokens_after"] = lineage.context_tokens(tx, session, head, state.last, told=body, quoted=quoted)
        state = journal.open_segment(tx, journal.add(tx, state, journal.draft(COMMITTED, done)), body, actor)
        tx.put_session(state)
        return segment(tx, session, state.head)

    return journal.backend.write(session, replaced_in)


def _may(tx: Transaction, state: SessionState, head: Segment) -> None:
    may_compact(tx, state)
    if head.keeper != "onefold":
        raise OnefoldError(f"session {state.id!r} is compacted by its agent, which wrote the summary")


def _made_of(tx: Transaction, session: str, head: Segment) -> Segment:
    """The boundary on which the summary in force was made, of the messages from its cut on. Raises without one."""
    for made in in_force(tx, session, head):
        base = None if made.base is None else lineage.segment(tx, session, made.base)
        if base is not None and base.cut < made.cut:
            return base
    raise OnefoldError(
        f"session {session!r}: no compaction is in force of which it is known what it was made of, so there is nothing "
        "to summarise again"
    )
