"""A summary of what is to be cut, with what is quoted next to it, and what is wrong with it if something is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onefold.compaction.cut_planner import Plan
from onefold.compaction.material import CompactionMaterial
from onefold.compaction.policy import Policy
from onefold.compaction.summarizer import Summarizer, SummaryInput, budget, call
from onefold.compaction.summary_checks import SummaryProblem, find_problem
from onefold.journal import lineage
from onefold.messages.codecs import estimate
from onefold.model import Quotes, Summary

if TYPE_CHECKING:
    from onefold.compaction.quote_selection import Chosen


@dataclass(frozen=True, slots=True)
class Brief:
    """What a summarizer is asked in addition to the messages."""

    session: str
    instructions: str | None = None
    attempt: int = 1
    refused: str | None = None
    """Why the attempt before this one failed."""
    stuck: bool = False
    """Whether an agent cannot go on without it: then a summary that says the same again is taken."""
    stopped: Callable[[], bool] = bool
    pause: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Proposal:
    made: Summary
    quotes: Quotes | None
    wrong: SummaryProblem | None


def propose(
    work: CompactionMaterial, planned: Plan, summarizer: Summarizer, policy: Policy, brief: Brief, *, window: int
) -> Proposal:  # fmt: skip
    """Has a summary made, chooses what is quoted next to it in a model's `window`, and checks both."""
    cut_away = tuple(r for r in work.messages if r.number < planned.cut)
    stays = {*planned.kept, *work.pinned}
    gone = [r for r in (*work.kept, *cut_away) if r.number not in stays]
    removed = work.size(gone) + _told_tokens(work)
    material = SummaryInput(
        session=brief.session,
        previous=work.previous,
        records=(*work.untold, *cut_away),
        instructions=brief.instructions,
        max_tokens=budget(removed, policy.summary_tokens),
        attempt=brief.attempt,
        facts=(*work.facts, *(fact for fact in work.quoting.facts if not fact.until)),
        refused=brief.refused,
        stopped=brief.stopped,
    )
    made = call(summarizer, material)
    texts: dict[int, str] = {}
    for record in material.records:
        brief.pause()
        texts[record.number] = material.text(record)
    quoted: Chosen | None = None
    if policy.quote_tokens:
        from onefold.compaction.quote_material import quoted_of  # its patterns are not needed to open a store

        quoted = quoted_of(
            work, planned, made.facts, policy=policy, window=window, removed=removed, texts=texts, pause=brief.pause,
            ends=made.ends,
        )  # fmt: skip
    # The whole context has to shrink by that share, and only this part of it can.
    share = min(1.0, policy.min_shrink * work.tokens / max(1, removed))
    wrong = find_problem(
        made,
        previous=None if brief.stuck else work.previous,
        replaces=removed - (quoted.tokens if quoted is not None else 0),
        shrink=share,
        said=texts.values(),
        limit=material.max_tokens,
    )
    return Proposal(made, None if quoted is None else quoted.quotes, wrong)


def _told_tokens(work: CompactionMaterial) -> int:
    return (
        (0 if work.previous is None else estimate(work.previous))
        + lineage.fact_tokens(work.facts)
        + work.quoting.tokens
    )
