"""Sessions and records as JSON: every field of them, in an order in which they can be imported again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass

from onefold.errors import SessionNotFound
from onefold.journal.session_scan import scan_sessions
from onefold.messages import encode
from onefold.model import Finding, Header, Json, Record, SessionState
from onefold.session import Session
from onefold.store import Store

_NAMES: dict[type, dict[str, str]] = {
    Finding: {"repaired": "mended"},
    Header: {"call_ids": "opens", "result_ids": "closes"},
}
"""What fields are called in JSON, where they have another name here."""


def plain(value: Json) -> Json:
    """Data as JSON can carry it: objects for dataclasses, lists for tuples. Bodies of messages stay as they are."""
    if isinstance(value, Record):
        names = ("number", "id", "kind", "at", "turn", "key", "actor", "format")
        return {**{name: getattr(value, name) for name in names}, "header": plain(value.header), "body": value.body}
    if is_dataclass(value) and not isinstance(value, type):
        known = _NAMES.get(type(value), {})
        return plain({known.get(name, name): getattr(value, name) for name in value.__dataclass_fields__})
    if isinstance(value, SessionState):
        return value._asdict()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def lines(session: Session) -> Iterator[str]:
    """A session's own records, one line each: a fork's begin after the record it was forked at."""
    for record in session.read(session.state.forked_at + 1):
        yield encode({"session": session.id, **plain(record)}) + "\n"


def all_parents_first(store: Store, deleted: list[str]) -> Iterator[Session]:
    """Every session of a store, each once and looked at when its turn comes, in an order in which they can be taken in
    again. Those that were deleted since they were met are named."""
    done: set[str] = set()
    for id, met in scan_sessions(store.journal.backend):
        line: list[Session] = []
        above: str | None = id
        while above is not None and above not in done:
            try:
                session = store.session(above, create=False)
                done.add(above)
                above = (met if met is not None and met.id == above else session.state).parent  # which never changes
            except SessionNotFound as error:
                if error.deleted and above == id:
                    deleted.append(id)
                break  # a parent that is nobody's past any more; or rows without a record, of which `verify` tells
            line.append(session)
        yield from reversed(line)


def parents_first(store: Store, ids: list[str], *, with_parents: bool) -> list[Session]:
    """The sessions, each once, in an order in which they can be taken in again."""
    named = {session.id: session for session in (store.session(id, create=False) for id in ids)}
    order: dict[str, Session] = {}
    for id, session in named.items():
        line = {id: session}
        parent = session.state.parent
        while parent is not None and parent not in order:
            try:
                above = named.get(parent) or store.session(parent, create=False)
            except SessionNotFound:
                break  # it was deleted, and is nobody's past any more
            if with_parents or parent in named:
                line[parent] = above
            parent = above.state.parent
        order |= {key: line[key] for key in reversed(line) if key not in order}
    return list(order.values())
