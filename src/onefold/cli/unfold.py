"""`onefold unfold`: takes a compaction back, without losing what came after it."""

from __future__ import annotations

from typing import Annotated

import typer

from onefold.cli.options import JsonOption, SessionArgument, StoreOption, open_store, policy
from onefold.cli.output import as_json, refusing, safe, say
from onefold.describe import numbered
from onefold.dry_run import dry_run_of
from onefold.export import plain
from onefold.humanize import count
from onefold.journal import unfold
from onefold.model import Segment


def command(  # noqa: PLR0917  a parameter here is an option there
    session: SessionArgument,
    segment: Annotated[
        int | None,
        typer.Argument(min=1, metavar="SEGMENT", help="Of the compaction: by default the newest.", show_default=False),
    ] = None,
    again: Annotated[bool, typer.Option("--refold", help="Go to the boundary of the compaction again.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what it would cost in tokens; write nothing.")
    ] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Takes a compaction back, and nothing that was said since.

    Prints which compactions are taken back, and the context's size before and after. What their summary stands for is
    in the context again, word for word. What was said since stays, and what was undone or erased stays out. Compactions
    that were made of its summary are taken back with it. The segment is the one that the compaction opened; `onefold
    show` has its number. A compaction that is under way is given up, an open turn goes on, and automatic compactions
    rest until the context is full. --refold goes to its boundary again, also when more was said since; `onefold undo`
    does so if nothing was. If the context would be over what the session's agent goes by, or there is nothing to
    unfold, the exit code is 1.

    \b
    Examples:
      onefold unfold my-session --dry-run
      onefold unfold my-session 120
      onefold unfold my-session --refold
    """
    with open_store(store) as opened:
        found = opened.session(session, create=False)
        journal = dry_run_of(opened).journal if dry_run else opened.journal
        goes_by = found.limits() or policy(None).said
        most = None if goes_by is None else goes_by.hard_tokens
        with refusing():
            if again:
                after = unfold.refold(journal, found.id, segment)
            else:
                after = unfold.unfold(journal, found.id, segment, most=most)
        masked = any(s.source == "masked" for s in found.segments() if s.number in after.unfolds)
    if json:
        as_json(
            {
                "session": found.id,
                "step": "refold" if again else "unfold",
                "dry_run": dry_run,
                "unfolds": list(after.unfolds),
                "tokens_before": after.tokens_before,
                "tokens_after": after.tokens_after,
                "limit": most,
                "segment": plain(after),
            }
        )
        return
    say(_did(after, again=again, masked=masked, dry_run=dry_run), style="bold")
    change = after.tokens_after - after.tokens_before
    say(f"context of {safe(found.id)}: {after.tokens_before:,} → {after.tokens_after:,} tokens ({change:+,})")
    if not dry_run and not again and not masked:
        say("nothing is lost: `onefold unfold --refold` goes to the summary again", style="dim")


def _did(after: Segment, *, again: bool, masked: bool, dry_run: bool) -> str:
    if again:
        return f"{'would be folded' if dry_run else 'folded'} again: everything before #{after.cut} is a summary"
    many = count(len(after.unfolds), "mask" if masked else "compaction")
    does = "would be unfolded" if dry_run else "unfolded"
    return f"{many} {does} ({numbered(after.unfolds)}): verbatim from #{after.cut} on"
