"""Messages that have ids of their own: each is written once, however often a framework hands it over."""

from __future__ import annotations

from collections.abc import Sequence

from onefold.errors import OutcomeUnknown
from onefold.ids import random_id
from onefold.journal import lineage
from onefold.journal.checks import check_name
from onefold.journal.lineage import get_session
from onefold.messages import codec, digest
from onefold.messages.result_mask import is_rendered
from onefold.model import ERASED, MESSAGE, Draft, Ids, Json, SessionState
from onefold.session import Session
from onefold.storage.base import Transaction


def append_new(
    session: Session,
    messages: Sequence[tuple[str | None, Json]],
    format: str,
    *,
    changes: bool = False,
    ids: Ids = random_id,
) -> tuple[int, ...]:
    """Appends those whose id is not in the journal yet, all or none, and gives their numbers.

    One that was undone or erased since stays so: a framework hands over all it has, again and again, and that is how it
    learns that something was taken back. What is to be said once more has an id of its own.

    A message without an id is appended as it comes. One whose id is there with other content is passed over, or with
    `changes` written as well, once for each content; but calls and results stay as they were said first, since two
    messages would have the same ones. What stands for a masked result is written under no id. If the store cannot tell
    whether it was written, it is asked again; `OutcomeUnknown` is raised only if it cannot tell then either.
    """
    if not messages:
        return ()
    own = [key if key is not None else f"append-{ids()}" for key, _ in messages]
    for key in own:
        check_name("key", key)
    made = session.drafts([m for _, m in messages], format, None)
    drafts = [d._replace(key=key) for d, key in zip(made, own, strict=True)]

    def append_new_in(tx: Transaction) -> tuple[int, ...]:
        state = get_session(tx, session.id)
        first = state.last + 1
        for draft in drafts:
            if (new := _new(tx, state, draft, changes)) is not None:
                state = session.journal.add(tx, state, new)
        if state.last >= first:
            tx.put_session(state)
        return tuple(range(first, state.last + 1))

    size = sum(len(d.data) for d in drafts)
    try:
        numbers = session.journal.backend.write(session.id, append_new_in, size=size)
    except OutcomeUnknown:
        numbers = session.journal.backend.write(session.id, append_new_in, size=size)
    if numbers:
        session.wrote_up_to(numbers)
    return numbers


def _comes_back(tx: Transaction, state: SessionState, draft: Draft) -> bool:
    """Whether a draft is a masked result that a framework hands over under another id: it was rendered, and nothing
    rendered is written. A tool may well give such words, so the journal has to have a result of that call."""
    header = draft.header
    if header is None or not header.result_ids or header.call_ids or not is_rendered(draft.format, draft.body):
        return False
    answered: set[str] = set()
    for heading in lineage.headers(tx, state.id, 1, state.last + 1, tools_only=True):
        answered.difference_update(heading.header.call_ids)
        answered.update(heading.header.result_ids)
    return answered.issuperset(header.result_ids)


def without_lines(session: Session, messages: Sequence[Json], format: str) -> list[Json]:
    """Messages without masked results that come back."""
    if not any(is_rendered(format, message) for message in messages):
        return list(messages)
    drafts = session.drafts(messages, format, None)

    def read_without_lines(tx: Transaction) -> list[bool]:
        state = get_session(tx, session.id)
        return [_comes_back(tx, state, draft) for draft in drafts]

    back = session.journal.backend.read(read_without_lines)
    return [message for message, gone in zip(messages, back, strict=True) if not gone]


def _new(tx: Transaction, state: SessionState, draft: Draft, changes: bool) -> Draft | None:
    """The draft as it is to be written; None if it was, whatever became of it."""
    if draft.key is None or (use := tx.key(state.id, draft.key)) is None:
        return None if _comes_back(tx, state, draft) else draft
    content = digest("", draft.kind, draft.format, draft.body)
    if not changes or use.digest in (content, ERASED) or _without_thoughts(tx, state, use.first, draft):
        return None
    key = f"{draft.key}#{content[:16]}"
    return None if tx.key(state.id, key) or _told(tx, state, use.first, draft) else draft._replace(key=key)


def _without_thoughts(tx: Transaction, state: SessionState, first: int, draft: Draft) -> bool:
    """Whether a message is the one in the journal as contexts tell it after a while: without what the model thought."""
    said = tx.record(state.id, first)
    if said is None or said.kind != MESSAGE or said.format is None:
        return False
    left = codec(said.format).unthought(said.body)
    return left is not said.body and left == draft.body


def _told(tx: Transaction, state: SessionState, first: int, draft: Draft) -> bool:
    """Whether a call or a result of this message is in the journal already, from a record on."""
    if draft.header is None or not (draft.header.call_ids or draft.header.result_ids):
        return False
    known = [heading.header for heading in tx.headers(state.id, first, state.last + 1, tools_only=True)]
    opened, closed = ({id for h in known for id in h.call_ids}, {id for h in known for id in h.result_ids})
    return not (opened.isdisjoint(draft.header.call_ids) and closed.isdisjoint(draft.header.result_ids))
