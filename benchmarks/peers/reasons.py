"""Why onefold is not ahead somewhere, for the page: one sentence for each measure, by the row that it is about.

Whether a sentence is on the page, the numbers decide. A sentence has to hold for the code as it is.
"""

from __future__ import annotations

_MORE_THAN_AN_INSERT = (
    "an append does more than an insert: it gives a number, derives a header for the planner and takes turns with "
    "other processes; here it also has a key, so that it can be repeated after a lost answer, which is one more row."
)
_CONTEXT = (
    "what is loaded is a context: each message is read with its header, and what a model is shown is worked out from "
    "them (what is summarised, hidden or pinned, which call has its result). The other one decodes rows."
)
_HEADER = "beside its text a message has a number, an id, a time and a header"
_KEYED = f"{_HEADER}, and the key of its append is a row of its own."

_BY_MEASURE = {
    "rate": "an append does more than an insert: it gives a number, derives a header for the planner and takes turns "
    "with other processes.",
    "load": _CONTEXT,
    "size": f"{_HEADER}.",
}
_BY_ROW = {
    ("openai-onefold", "rate"): _MORE_THAN_AN_INSERT,
    ("openai-onefold", "size"): _KEYED,
    ("adk-onefold", "rate"): _MORE_THAN_AN_INSERT,
    ("adk-onefold", "load"): "each event is read with its header and its time, the state is made from all of them, and "
    "once something was compacted or noted, the context is read as well, to know which summary holds.",
    ("adk-onefold", "size"): _KEYED,
    ("langchain-onefold", "rate"): "before each call of the model the context is read from the journal, whoever else "
    "may have written to it, and a run without a checkpointer begins by making messages of it; LangGraph reads its "
    "state once a run. With compaction on, which it is not here, a context has a bound.",
    ("pydantic-onefold", "size"): f"{_HEADER}, and the ids of its run and conversation in it, which the file, made "
    "without a run, has not; the key of its append is a row of its own, and each run writes its beginning and its end. "
    "What a message leaves empty is not written.",
    ("claude-onefold", "load"): "lines come from the journal in pages, each with its header and its time; the SDK "
    "reads a file at once.",
    ("claude-onefold", "size"): f"it is a second copy of the transcript, and {_KEYED}",
}  # fmt: skip


def reason(name: str, measure: str) -> str:
    """Why a row of onefold's is behind in a measure: `rate`, `load` or `size`."""
    return _BY_ROW.get((name, measure), _BY_MEASURE[measure])
