"""`onefold note`: facts that stand in every context, word for word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from onefold.cli.options import JsonOption, SessionArgument, StoreOption, WrongUse, open_store
from onefold.cli.output import as_json, refusing, safe, safe_lines, say, short, text_width
from onefold.export import plain
from onefold.humanize import ago, count
from onefold.messages.quotation import KINDS
from onefold.model import Fact, Note


def command(  # noqa: PLR0917  a parameter here is an option there
    session: SessionArgument,
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="Such as rule, path or goal.", show_default=False)
    ] = None,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The fact, in words.", show_default=False)
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="K", help="What it is about.", show_default=False)] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the note of this kind and key.")] = False,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="NAME", help="Who says so.", show_default=False)
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Writes a fact down for every context; or lists them.

    Prints the note's number, and the context's size before and after. A later note of the same kind and key takes its
    place, or that of a fact that compactions carry. A note without a key is known by its number: --key '#12'. Without
    a text it lists them and writes nothing. Removing a note that does not exist is rejected with exit code 1.

    \b
    Examples:
      onefold note my-session
      onefold note my-session rule "never push to main" --key git
      onefold note my-session rule --key git --remove
    """
    _sensible(kind, text, key, actor, remove=remove)
    with open_store(store) as opened:
        found = opened.session(session, create=False)
        before = found.state
        number = 0
        if kind is not None:
            with refusing():
                number = found.note(kind, text or "", key, actor=actor)
        notes, facts = found.notes(), found.facts()
        after = found.state
        now = opened.journal.backend.read(lambda tx: tx.now)
    if kind is None:
        if json:
            as_json({"session": found.id, "notes": plain(notes), "facts": plain(facts)})
        else:
            _list(found.id, notes, facts, now)
    elif json:
        done = {"session": found.id, "number": number, "duplicate": after.last == before.last, "notes": plain(notes)}
        as_json({**done, "tokens_before": before.tokens, "tokens_after": after.tokens})
    else:
        about = f"{kind} ({key})" if key else kind
        noted = f"stood there already, #{number}" if after.last == before.last else f"noted, #{number}"
        say(safe(f"{about} {'no longer holds' if remove else noted}"))
        say(f"context of {safe(found.id)}: {before.tokens:,} → {after.tokens:,} tokens")


def _sensible(kind: str | None, text: str | None, key: str | None, actor: str | None, *, remove: bool) -> None:
    if kind is None and (key or actor or remove):
        raise WrongUse("name the kind of the note too: `onefold note SESSION KIND TEXT`, or KIND --key K --remove")
    if remove and text is not None:
        raise WrongUse("--remove takes a note away, so it needs no text; name its kind and --key")
    if remove and key is None:
        raise WrongUse("say which note to take away with --key; one without a key is known by its number: --key '#12'")
    if kind is not None and not remove and not (text or "").strip():
        raise WrongUse("a note needs a text; to take one away: `onefold note SESSION KIND --key K --remove`")
    for name, value in (("--key", key), ("--actor", actor)):
        if value is not None and (not 0 < len(value) <= 512 or not value.isprintable()):
            raise WrongUse(f"{name} {value!r:.80} is invalid: use 1 to 512 printable characters")


def _list(session: str, notes: Sequence[Note], facts: Sequence[Fact], now: float) -> None:
    if not notes:
        say(f"no notes in {safe(session)}")
    else:
        say(f"{count(len(notes), 'note')} in every context of {safe(session)}:", style="bold")
    for note in notes:
        print_note(note, now)
    if facts:
        say(f"{count(len(facts), 'fact')} carried from before the cut, word for word:", style="bold")
    print_facts(facts)


def print_facts(facts: Sequence[Fact]) -> None:
    """Facts whole, in the order in which they come: what must not be forgotten first. Identifiers, which may be many,
    are together at the end, a line each."""
    for fact in facts:
        if fact.kind != KINDS[-1]:
            print_fact(fact)
    if named := [fact for fact in facts if fact.kind == KINDS[-1]]:
        say(f"  {count(len(named), 'identifier')}", style="dim")
    for fact in named:
        head = f"         #{fact.source} {safe(fact.key)}{_over(fact)}: "
        say(head + short(fact.text, max(24, text_width() - len(head))))


def print_fact(fact: Fact) -> None:
    """A fact whole, with its key."""
    where = f", from #{fact.source}" if fact.source else ""
    say(f"  {safe(f'{fact.kind}, key {fact.key}{where}{_over(fact)}')}", style="dim")
    for line in safe_lines(fact.text):
        say(f"         {line}")


def _over(fact: Fact) -> str:
    return f", ended by #{fact.until}" if fact.until else ""


def print_note(note: Note, now: float) -> None:
    """The note whole, since every word of it is in the context, and whose it is."""
    known = "" if note.key == f"#{note.number}" else f", key {note.key}"
    whose = f", by {note.actor}" if note.actor else ""
    say(f"  #{note.number:<5} {safe(note.kind + known + whose)}, {ago(note.at, now)}", style="dim")
    for line in safe_lines(note.text):
        say(f"         {line}")
