"""`onefold summarize`: drafts the summary in force again, to be taken or discarded."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from onefold.cli.compact import chosen_summarizer
from onefold.cli.options import (
    JsonOption,
    ModelOption,
    SessionArgument,
    StoreOption,
    SummarizerOption,
    WindowOption,
    open_store,
    policy,
)
from onefold.cli.output import as_json, refuse, refusing, safe, safe_lines, say
from onefold.compaction.resummary import SummaryDraft
from onefold.errors import SummarizerFailed
from onefold.export import plain
from onefold.humanize import count


def command(  # noqa: PLR0917  a parameter here is an option there
    session: SessionArgument,
    summarizer: SummarizerOption = None,
    model: ModelOption = None,
    instructions: Annotated[
        str | None, typer.Option("--instructions", metavar="TEXT", help="What the new summary should heed.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Take the draft without asking.")] = False,
    window: WindowOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Writes the newest summary once more, and lets you choose.

    The draft is made of the same messages as the summary in force, by the summarizer of the config file or the one that
    the options name. Prints both, and the names and values that only one of them has. On a terminal you are asked
    whether to take it; elsewhere it is taken with --yes, and otherwise discarded. No message moves, what the draft
    cost is in the journal either way, and `onefold unfold` goes to the present summary again. If somebody compacts
    meanwhile, the draft cannot be taken: nothing is written, and the exit code is 1.

    \b
    Examples:
      onefold summarize my-session --summarizer openai --model gpt-5.2
      onefold summarize my-session --instructions "Keep every file name." --yes
    """
    with open_store(store) as opened, refusing():
        found = opened.session(session, create=False)
        try:
            draft = found.draft_summary(
                chosen_summarizer(summarizer, model), instructions=instructions, policy=policy(window)
            )
        except SummarizerFailed as failed:
            refuse(f"session {session!r}: no draft was made, and nothing changed: {failed}")
        if not json:
            _show(draft)
        take = yes or (not json and sys.stdin.isatty() and typer.confirm("Take the draft?"))
        after = found.take_draft(draft) if take else None
    if json:
        before, now = draft.tokens
        as_json({
            "session": found.id, "taken": after is not None, "draft": draft.text, "present": draft.present,
            "by": draft.summary.by, "gains": list(draft.gains), "loses": list(draft.loses), "tokens_before": before,
            "tokens_after": now, "spent": plain(draft.spent), "segment": None if after is None else plain(after),
        })  # fmt: skip
    elif after is None:
        say("discarded: the present summary stays in force", style="bold")
    else:
        say(f"taken: segment {after.number} of {safe(found.id)} has the new summary", style="bold")
        say("nothing is lost: `onefold unfold` goes to the summary before it again", style="dim")


def _show(draft: SummaryDraft) -> None:
    before, now = draft.tokens
    by = f" by {safe(draft.summary.by)}" if draft.summary.by else ""
    for title, text in ((f"present, {before:,} tokens", draft.present), (f"draft{by}, {now:,} tokens", draft.text)):
        say(title, style="bold")
        for line in safe_lines(text):
            say(f"  {line}")
        say("")
    for title, names in (("only in the present one", draft.loses), ("only in the draft", draft.gains)):
        if names:
            say(f"{title}: {safe(', '.join(names[:_SHOWN]))}{_more(len(names))}")
    if draft.spent.calls:
        asked = count(draft.spent.calls, "call")
        say(f"cost: {asked}, {draft.spent.input_tokens:,} tokens in, {draft.spent.output_tokens:,} out", style="dim")


_SHOWN = 40


def _more(many: int) -> str:
    return f" and {many - _SHOWN} more" if many > _SHOWN else ""
