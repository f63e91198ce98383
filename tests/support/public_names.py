"""What other modules of the package use of a session, a turn or a compactor, and is no part of the contract."""

from __future__ import annotations

METHODS = frozenset({
    "after_compaction", "compaction_job", "could_mask", "drafts", "fork_as", "hand_over", "queue_draft",
    "turn_request", "wrote_up_to",
})  # fmt: skip
PLANS = frozenset({
    "plan_after_overflow", "plan_before_turn", "plan_compact_idle", "plan_compact_now", "plan_mid_turn", "plan_request",
})  # fmt: skip
ATTRIBUTES = frozenset({"agent", "journal", "measured_segment", "policy", "summarizer", "tenure"})
