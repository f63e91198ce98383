"""`onefold context`: what a model is sent now."""

from __future__ import annotations

from typing import Annotated

import typer

from onefold.cli.options import JsonOption, SessionArgument, StoreOption, open_store
from onefold.cli.output import as_json, count, listed, plain, safe, safe_lines, say, short, text_width
from onefold.cli.words import said
from onefold.compaction.context import Context
from onefold.model import Record, Segment
from onefold.session import Session


def command(
    session: SessionArgument,
    segment: Annotated[
        int | None,
        typer.Option("--segment", min=1, metavar="N", help="As an older segment has it.", show_default=False),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Whole texts, not only their beginnings.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Shows what a model is sent now.

    Prints the size in tokens, then the fold (what the summary stands for, and the summary), then the messages that
    are sent word for word, with their numbers in the journal. With --json, the messages exactly as they are sent.

    \b
    Examples:
      onefold context my-session
      onefold context my-session --json | jq .messages
    """
    with open_store(store) as opened:
        found = opened.session(session, create=False)
        context = found.context(segment)
        if json:
            as_json({"session": session, **plain(context)})
            return
        begins = next(s for s in found.segments() if s.number == context.segment)
        _print(found, context, begins, full=full)


def _print(session: Session, context: Context, begins: Segment, *, full: bool) -> None:
    sent = count(len(context.messages), "message")
    say(
        f"session {safe(session.id)}, segment {context.segment}: {sent}, about {context.tokens:,} tokens, "
        f"as of record #{context.last}",
        style="bold",
    )
    told = False
    for number in context.numbers:
        if number == context.segment:
            _fold(context, begins, full=full)
            told = True
            continue
        for record in session.read(number, number + 1):
            _message(record, before_cut=number < begins.cut, full=full)
    if not told and context.numbers:
        say("nothing is folded: these are all messages", style="dim")
    if context.left_out:
        numbers = listed(f"#{n}" for n in context.left_out)
        say(f"left out, for their tool call is not there: {numbers}", style="yellow")


def _fold(context: Context, begins: Segment, *, full: bool) -> None:
    sizes = f"{begins.tokens_before:,} → {begins.tokens_after:,} tokens when it was folded"
    say(f"─── folded: everything before #{begins.cut} ({sizes})", style="cyan")
    lines = safe_lines(context.summary or "")
    shown = lines if full else lines[:12]
    for line in shown:
        say(f"  │ {line if full else short(line, text_width() - 4)}", style="cyan")
    if len(lines) > len(shown):
        say(f"  │ … {count(len(lines) - len(shown), 'more line')}; --full shows them", style="dim")
    say(f"─── word for word from #{begins.cut} on", style="cyan")


def _message(record: Record, *, before_cut: bool, full: bool) -> None:
    role = record.header.role if record.header else ""
    tokens = record.header.tokens if record.header else 0
    head = f"#{record.number:<5} {short(role, 12):<12} {tokens:>6,}  {'kept by name: ' if before_cut else ''}"
    if full:
        say(head.rstrip(), style="bold")
        for line in safe_lines(said(record)):
            say(f"    {line}")
    else:
        say(head + short(said(record), max(24, text_width() - len(head))))
