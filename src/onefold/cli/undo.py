"""`onefold undo`: goes back in a session, and forward again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from onefold.cli.message_list import print_messages
from onefold.cli.options import JsonOption, SessionArgument, StoreOption, WrongUse, open_store
from onefold.cli.output import as_json, refusing, safe, say
from onefold.describe import turn_words, words
from onefold.dry_run import dry_run_of
from onefold.export import plain
from onefold.humanize import count
from onefold.journal import lineage
from onefold.journal.journal import Journal
from onefold.journal.view_diff import changed_between
from onefold.model import NOTE, OpenTurn, Record, Segment, SessionState
from onefold.session import Session


def command(  # noqa: PLR0917  a parameter here is an option there
    session: SessionArgument,
    redo: Annotated[bool, typer.Option("--redo", help="Take the last undo or rewind back.")] = False,
    to: Annotated[
        int | None,
        typer.Option("--to", min=0, metavar="NUMBER", help="Rewind: hide all after this record.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what it would do; write nothing.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Takes back what the user said last, and all that came of it.

    Prints the messages and notes it hides, and the context's size before and after. Nothing is deleted: what is hidden
    is in no context any more, `onefold show` still shows it, and --redo restores it until something else is said.
    With --to, it goes back as far as that record; if a call there has its results later, as far as the record before
    the call. An open turn is cancelled. If nothing was said since a compaction was unfolded, that is taken back
    instead, and no message. If there is nothing to undo or to redo, the exit code is 1.

    \b
    Examples:
      onefold undo my-session --dry-run
      onefold undo my-session --to 120
      onefold undo my-session --redo
    """
    if redo and to is not None:
        raise WrongUse("--redo takes the last step back as a whole; leave out --to")
    with open_store(store) as opened:
        found = opened.session(session, create=False)
        before, turn, now = _as_it_is(opened.journal, found)
        acting = dry_run_of(opened).session(found.id, create=False) if dry_run else found
        with refusing():
            after = acting.redo() if redo else acting.undo() if to is None else acting.rewind(to)
        changed = changed_between(opened.journal, found.id, before, after)
    if json:
        as_json(
            {
                "session": found.id,
                "step": "redo" if redo else "undo" if to is None else "rewind",
                "dry_run": dry_run,
                "changed": [
                    {"number": r.number, "kind": r.kind, "role": r.header.role if r.header else None, "text": words(r)}
                    for r in changed
                ],
                "tokens_before": after.tokens_before,
                "tokens_after": after.tokens_after,
                "segment": plain(after),
            }
        )
        return
    if before.hidden == after.hidden:  # a compaction was unfolded, and nothing was said since
        say(_folding(before, after, dry_run=dry_run), style="bold")
        say(f"context of {safe(found.id)}: {after.tokens_before:,} → {after.tokens_after:,} tokens")
        return
    does = ("would restore" if redo else "would hide") if dry_run else ("restored" if redo else "hidden")
    messages = _counted(changed)
    since = f", from #{changed[0].number} on:" if changed else ""
    say(f"{does} {messages}{since}" if dry_run else f"{messages} {does}{since}", style="bold")
    print_messages(changed)
    if turn is not None:
        say(f"{'would cancel' if dry_run else 'cancelled'}: {safe(turn_words(turn, now))}", style="yellow")
    say(f"context of {safe(found.id)}: {after.tokens_before:,} → {after.tokens_after:,} tokens")
    if not dry_run and not redo:
        say("nothing is deleted: `onefold undo --redo` restores it", style="dim")


def _as_it_is(journal: Journal, session: Session) -> tuple[Segment, OpenTurn | None, float]:
    state: SessionState = session.state
    head = journal.backend.read(lambda tx: lineage.segment(tx, session.id, state.head))
    assert head is not None, "every session has the segment in force"
    return head, session.open_turn(), journal.backend.read(lambda tx: tx.now)


def _counted(changed: Sequence[Record]) -> str:
    notes = sum(1 for r in changed if r.kind == NOTE)
    messages = count(len(changed) - notes, "message")
    return f"{messages} and {count(notes, 'note')}" if notes else messages


def _folding(before: Segment, after: Segment, *, dry_run: bool) -> str:
    if after.unfolds:
        return f"{count(len(after.unfolds), 'compaction')} {'would be unfolded' if dry_run else 'unfolded'} again"
    folds = count(len(before.unfolds), "compaction")
    return (
        f"{folds} {'would be in force' if dry_run else 'in force'} again: the unfolding is taken back, and no message"
    )
