"""Summarising again: a draft next to the summary in force, of the same messages, for a person to compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from onefold.compaction.cut_planner import Plan
from onefold.compaction.material import Past, load_material
from onefold.compaction.policy import Policy
from onefold.compaction.proposal import Brief, propose
from onefold.compaction.summarizer import Summarizer
from onefold.errors import CompactionDisabled, SummarizerFailed
from onefold.journal import summary_drafts
from onefold.journal.journal import Journal
from onefold.journal.summary_drafts import Present
from onefold.messages.codecs import estimate
from onefold.model import HolderId, Quotes, Segment, Summary, Usage
from onefold.storage.base import Transaction


@dataclass(frozen=True, slots=True)
class SummaryDraft:
    """A summary that could replace the one in force. It is nowhere but here: what it cost is in the journal,
    whether it is taken or not."""

    session: str
    head: int
    """The segment in force when it was made. Once another one is, it cannot be taken any more."""
    number: int
    """The record that says what it cost."""
    summary: Summary
    quotes: Quotes | None
    present: str
    """The summary in force."""

    @property
    def text(self) -> str:
        return self.summary.text

    @property
    def spent(self) -> Usage:
        return self.summary.spent

    @property
    def tokens(self) -> tuple[int, int]:
        """The size of the summary in force, and of this one."""
        return estimate(self.present), estimate(self.text)

    @property
    def gains(self) -> tuple[str, ...]:
        """Names and values that this one has, and the one in force has not."""
        return _beyond(self.text, self.present)

    @property
    def loses(self) -> tuple[str, ...]:
        """Names and values that the one in force has, and this one has not."""
        return _beyond(self.present, self.text)


def draft(
    journal: Journal, session: str, summarizer: Summarizer, policy: Policy, *, instructions: str | None = None,
    actor: str | None = None, stopped: Callable[[], bool] = bool,
) -> SummaryDraft:  # fmt: skip
    """Has the summary in force made again, of what it was made of. No claim is held, and nothing changes but that the
    journal says what it cost. `SummarizerFailed` if there is none, or it is rejected; that is counted as well."""
    if not policy.enabled:
        raise CompactionDisabled(f"session {session!r}: compaction is switched off by this program's policy")

    seen = journal.backend.read(partial(_present, session))
    work = load_material(journal, Past(session, seen.base.number, seen.head.cut - 1, seen.head.hidden))
    planned = Plan(seen.head.cut, seen.head.kept)

    def count(by: str | None, spent: Usage, refusal: str | None = None) -> int:
        return summary_drafts.drafted(
            journal, session, seen.head.number, by=by, spent=spent, refusal=refusal, actor=actor
        )

    brief = Brief(session, instructions, stopped=stopped)
    try:
        made = propose(work, planned, summarizer, policy, brief, window=seen.window or policy.of().window)
    except SummarizerFailed as failed:
        count(None, failed.spent, failed.kind)
        raise
    if made.wrong is not None:
        count(made.made.by, made.made.spent, made.wrong.name)
        raise SummarizerFailed(made.wrong.words, kind="garbage", spent=made.made.spent)
    number = count(made.made.by, made.made.spent)
    return SummaryDraft(session, seen.head.number, number, made.made, made.quotes, seen.text)


def take(journal: Journal, draft: SummaryDraft, who: HolderId, *, actor: str | None = None) -> Segment:
    """Puts a draft in the place of the summary in force, in one transaction. `Moved` if the session moved on. Taken
    again, nothing happens."""
    return summary_drafts.replaced(
        journal, draft.session, draft.summary, draft.quotes, number=draft.number, expect_head=draft.head, who=who,
        actor=actor,
    )  # fmt: skip


def _present(session: str, tx: Transaction) -> Present:
    return summary_drafts.present(tx, session)


def _beyond(text: str, other: str) -> tuple[str, ...]:
    """The names and values of a text that do not stand in another one."""
    from onefold.compaction.rarity import identifiers  # its patterns are not needed to open a store

    there = other.casefold()
    return tuple(name for name in identifiers(text) if name.casefold() not in there)
