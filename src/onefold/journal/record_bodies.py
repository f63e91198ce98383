"""What records say of a compaction's summary and its price, and whether a repeated append says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from onefold.journal.quote_refs import as_record
from onefold.messages import digest
from onefold.model import ERASED, Compaction, Draft, Json, KeyUse, Quotes, Summary, Usage
from onefold.storage.base import Transaction

NOTHING = Usage()


def summary_fields(made: Summary, quotes: Quotes | None) -> dict[str, Json]:
    """What a segment says of all that is before its cut."""
    said: dict[str, Json] = {"summary": made.text, "by": made.by}
    if quotes is not None:
        said |= as_record(quotes)
    if made.instead_of:
        said["instead_of"] = list(made.instead_of)
    return said


def usage_fields(spent: Usage) -> dict[str, Json]:
    return {} if spent == NOTHING else {"spent": asdict(spent)}


def failed(cause: str, wait: float | None, more: dict[str, Json], now: float, of: Compaction) -> dict[str, Json]:
    """What is said of an attempt that failed: without a wait, or with no attempt left, it was the last."""
    final = wait is None or of.attempts >= of.attempts_allowed
    said: dict[str, Json] = {"attempt": of.attempts, "cause": printable(cause), "final": final, **more}
    return said if wait is None or final else {**said, "retry_after": wait, "not_before": round(now + wait, 6)}


def handed_back(cause: str, asked: bool, now: float, of: Compaction) -> dict[str, Json]:
    """What is said of an attempt that was given back, which is none then."""
    said = {"attempt": of.attempts, "cause": printable(cause), "final": False}
    return {**said, "handed_back": True, "asked": int(asked)}


def printable(text: str) -> str:
    """A cause is for people, and never rejected for its text."""
    return text.encode("utf-8", "replace").decode()


def same_content(tx: Transaction, session: str, use: KeyUse, drafts: Sequence[Draft]) -> bool:
    """Whether a key stands for just this. Of what was erased, only the kind is known any more."""
    if use.digest == ERASED:
        first = tx.record(session, use.first)
        return first is not None and drafts[0].kind in (first.kind, first.body.get("was"))
    running = ""
    for d in drafts:
        running = digest(running, d.kind, d.format, d.body)
    return running == use.digest
