"""Compares derived data with the journal, row by row and by identity, and repairs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from onefold.errors import StoreDamaged, StoreError
from onefold.journal.session_scan import scan_sessions
from onefold.messages import encode
from onefold.model import FORK, HEALED, Finding, Ids, Record, Report
from onefold.storage import projection
from onefold.storage.base import Backend, ProjectionSnapshot, Transaction, UniqueViolation
from onefold.storage.memory_projection import DictProjection

K = TypeVar("K")
V = TypeVar("V")

_PAGE = 1000
_SHOWN = 200


def verify(
    backend: Backend, ids: Ids, *, fix: bool = False, progress: Callable[[str, int], None] | None = None
) -> Report:
    """Examines the whole store; with `fix`, repairs what the journal can repair, each session in one transaction."""
    findings = [Finding(None, "store", found, expected, repaired) for found, expected, repaired in backend.examine(fix)]
    sessions = records = 0
    try:
        for session, _ in scan_sessions(backend):
            seen, found = backend.read(partial(_audited, session))
            if not seen and not found:
                continue  # deleted since the walk came by
            if fix and found and not any(f.fatal for f in found):
                found = backend.write(session, partial(_healed, session, ids))
            sessions += 1
            records += seen
            findings += found
            if progress is not None:
                progress(session, records)
    except StoreError:
        # Where the file itself is damaged, or a table is gone, it cannot be read further: what was found says why.
        if not any(f.session is None and not f.repaired for f in findings):
            raise
    return Report(sessions, records, tuple(findings))


def repair(tx: Transaction, session: str, ids: Ids) -> list[Finding]:
    """Rebuilds the projection from the journal, replaces the rows that disagree, and records it; one transaction."""
    _, found, folded = check(tx, session)
    if any(f.fatal for f in found):
        raise StoreDamaged(f"session {session!r}: {found[0].what}: {found[0].found}; restore it from a backup")
    if not found or folded.state is None:
        return []
    repaired = [replace(f, repaired=True) for f in found]
    body = {"findings": [{"what": f.what, "found": f.found, "expected": f.expected} for f in repaired]}
    record = Record(folded.state.last + 1, ids(), HEALED, tx.now, body)
    folded.state = projection.apply(DictProjection(folded), folded.state, record)
    try:
        tx.replace(session, folded)
    except UniqueViolation as error:
        raise StoreDamaged(
            f"session {session!r} cannot be repaired by itself: {error}, and its own journal says that it is known by "
            "that id too. Delete or rename the other session, or restore a backup"
        ) from error
    tx.add(session, record, encode(body))
    return repaired


def check(tx: Transaction, session: str) -> tuple[int, list[Finding], ProjectionSnapshot]:
    """How many records there are, what disagrees with them, and the rows as they should be. Of a session that was
    deleted, nothing."""
    rows = DictProjection()
    state = None
    seen = number = 0
    while page := _page(tx, session, number + 1):
        if isinstance(page, Finding):
            return seen, [page], rows.derived
        for record in page:
            if state is None and record.kind == FORK and record.body.get("at") == record.number - 1:
                number = record.number - 1  # a fork's numbers go on where it left its parent
            if record.number != number + 1:
                return seen, [_gap(session, number, record.number)], rows.derived
            number, seen = record.number, seen + 1
            state = state or projection.initial_state(session, record.at)
            try:
                state = projection.apply(rows, state, record)
            except (KeyError, TypeError, AttributeError, StoreDamaged) as error:
                return seen, [_unreadable(session, record, error)], rows.derived
        rows.undo.clear()
    rows.derived.state = state
    if number < (last := tx.last_number(session)):
        return seen, [_gap(session, number, last)], rows.derived
    stands = tx.derived(session)
    if state is None:
        if stands == ProjectionSnapshot() and tx.deleted(session) == session:
            return 0, [], ProjectionSnapshot()
        what = "derived rows without a single record"
        return 0, [Finding(session, "journal", what, "records", fatal=True)], ProjectionSnapshot()
    return seen, _differences(session, stands, rows.derived), rows.derived


def _page(tx: Transaction, session: str, start: int) -> list[Record] | Finding:
    try:
        return tx.records(session, start, 1 << 62, _PAGE)
    except StoreDamaged as error:
        return Finding(session, "journal", str(error), "a readable record", fatal=True)


def _audited(session: str, tx: Transaction) -> tuple[int, list[Finding]]:
    seen, found, _ = check(tx, session)
    return seen, found


def _healed(session: str, ids: Ids, tx: Transaction) -> list[Finding]:
    return repair(tx, session, ids)


def _differences(session: str, stands: ProjectionSnapshot, should: ProjectionSnapshot) -> list[Finding]:
    found: list[Finding] = []
    if stands.state != should.state:
        found.append(Finding(session, "session", _brief(stands.state), _brief(should.state)))
    found += _compare(session, "segment", stands.segments, should.segments)
    found += _compare(session, "compaction", stands.compactions, should.compactions)
    found += _compare(session, "key", stands.keys, should.keys)
    known = dict.fromkeys(stands.aliases, "known")
    found += _compare(session, "alias", known, dict.fromkeys(should.aliases, "known"))
    waiting = dict.fromkeys(stands.inputs, "waiting")
    found += _compare(session, "input", waiting, dict.fromkeys(should.inputs, "waiting"))
    return found


def _compare(session: str, what: str, stands: Mapping[K, V], should: Mapping[K, V]) -> list[Finding]:
    ids = sorted(stands.keys() | should.keys(), key=str)
    return [
        Finding(session, f"{what} {id}", _brief(stands.get(id)), _brief(should.get(id)))
        for id in ids
        if stands.get(id) != should.get(id)
    ]


def _brief(value: object) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _gap(session: str, number: int, then: int) -> Finding:
    return Finding(session, "journal", f"after record {number} comes {then}", f"record {number + 1}", fatal=True)


def _unreadable(session: str, record: Record, error: Exception) -> Finding:
    found = f"record {record.number} ({record.kind}) makes no sense: {error!r}"
    return Finding(session, "journal", found, "a readable record", fatal=True)
