"""What erasing and deleting have in common: they are said first, asked for twice, and cannot be taken back."""

from __future__ import annotations

import sys
from typing import Annotated, TypeAlias

import typer

from onefold.cli.options import WrongUse
from onefold.cli.output import line_on_stderr, listed, safe, say
from onefold.journal.beside import beside
from onefold.store import Store

YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


def confirm(yes: bool, *, json: bool) -> None:
    """Goes on if the caller has said --yes, or a person at a terminal says it now."""
    if yes:
        return
    if json or sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise WrongUse(
            "nothing was removed: it cannot be taken back, and nobody is here to ask; say it again with --yes"
        )
    if not typer.confirm("Remove it for good?", default=False, err=True):
        line_on_stderr("nothing was removed")
        raise SystemExit(1)


def print_forks(forks: tuple[str, ...]) -> None:
    if forks:
        say(f"forks that see it as their past, and no longer will: {safe(listed(forks))}", style="yellow")


def wiped_from_index(store: Store) -> bool:
    """Takes what is gone out of the search index as well, if there is one. True if none of it is left there."""
    if not beside(store.address, "search").exists():
        return True
    from onefold.recall import Recall

    return Recall(store).scrub()


def print_last_words(wiped: bool) -> None:
    if not wiped:
        say(
            "the store's files or its search index may still hold it: a reader was in the way, they are large, or they "
            "are a server's.",
            style="yellow",
        )
        say("say it again later, or call Store.scrub(), which rewrites the store while writers wait", style="yellow")
    say("backups, exports and other copies still have it", style="yellow")
