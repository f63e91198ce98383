"""Who would write a summary, and about what that would cost: told before anybody is asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from onefold.compaction.cut_planner import NoCut
from onefold.compaction.material import preview_material
from onefold.compaction.policy import Policy
from onefold.compaction.prompt import asked
from onefold.compaction.summarizer import Summarizer, SummaryInput, budget, extractive_summary
from onefold.journal import lineage
from onefold.journal.checks import compacts
from onefold.journal.journal import Journal
from onefold.messages.codecs import estimate
from onefold.storage.base import Transaction
from onefold.summarizers.fallback import Fallbacks
from onefold.summarizers.model_summarizer import ModelSummarizer


@dataclass(frozen=True, slots=True)
class SummarizerInfo:
    """Who writes summaries. `by` is the model and where it is, or the name of a function."""

    by: str
    asks_model: bool | None
    """None for a function of the program's own: only its author knows."""
    price: tuple[float, float] | None
    """For a million tokens of input, and of output; None if nobody named one."""
    instead: tuple[str, ...]
    """Who is asked if it fails, in this order."""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """About what one summary takes, in tokens by the estimate that sizes everything here. What a model thinks first,
    what is shortened before it is sent, and calls that are repeated are not in it."""

    input_tokens: int
    output_tokens: int
    """Of a summary as long as it may be."""
    cost: float | None
    """None without a price."""


def describe(summarizer: Summarizer) -> SummarizerInfo:
    first, *others = summarizer.summarizers if isinstance(summarizer, Fallbacks) else (summarizer,)
    instead = tuple(describe(other).by for other in others)
    if isinstance(first, ModelSummarizer):
        return SummarizerInfo(first.who, True, first.price, instead)
    if first is extractive_summary:
        return SummarizerInfo("extract", False, None, instead)
    return SummarizerInfo(str(getattr(first, "__name__", type(first).__name__)), None, None, instead)


def estimate_summary(journal: Journal, session: str, summarizer: Summarizer, policy: Policy) -> CostEstimate | str:
    """What a summary of a session would cost now; or why none would be made. Reads no message, and asks nobody."""
    return journal.backend.read(partial(_estimate, session, summarizer, policy))


def _estimate(session: str, summarizer: Summarizer, policy: Policy, tx: Transaction) -> CostEstimate | str:
    state = lineage.get_session(tx, session)
    if not compacts(tx, state):
        return "a review is not compacted"
    preview = preview_material(session, state.head, tx)
    if preview is None:
        return "a compaction is under way already"
    planned = preview.plan(policy)
    if isinstance(planned, NoCut):
        return planned.reason
    info = describe(summarizer)
    if info.asks_model is False:
        return CostEstimate(0, 0, None)
    cut = [m for m in preview.messages if m.number < planned.cut]
    removed = sum(m.header.tokens - preview.masked.get(m.number, 0) for m in cut if m.header is not None)
    head = lineage.segment(tx, session, state.head)
    before = lineage.summary_body(tx, session, head) if head is not None else None
    previous = None if before is None else str(before["summary"])
    empty = SummaryInput(session, previous, (), None, budget(removed, policy.summary_tokens), 1)
    prompt = asked(empty, nonce="x" * 20, records=())
    read = sum(m.header.tokens for m in cut if m.header is not None) + estimate(prompt.system) + estimate(prompt.user)
    price = info.price
    cost = None if price is None else (read * price[0] + empty.max_tokens * price[1]) / 1e6
    return CostEstimate(read, empty.max_tokens, cost)
