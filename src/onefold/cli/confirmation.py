"""What `erase` and `delete` share: what will be gone is shown first, confirmed twice, and cannot be undone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

from onefold.cli.options import WrongUse
from onefold.cli.output import line_on_stderr, safe, say
from onefold.humanize import listed
from onefold.journal.sidecars import copies
from onefold.store import Store

YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]
CopiesOption: TypeAlias = Annotated[
    bool,
    typer.Option("--remove-copies", help="Also remove the copies that onefold left next to the store."),
]


def confirm(yes: bool, *, json: bool) -> None:
    """Returns if --yes was given, or a person at a terminal confirms."""
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
        say(f"forks that lose it from their past: {safe(listed(forks))}", style="yellow")


def print_copies(store: Store, sessions: Sequence[str], *, remove: bool) -> None:
    """The copies that onefold itself left, which hold other sessions too."""
    if found := copies(store.address, sessions):
        does = "go whole with it" if remove else "may hold it, and stay without --remove-copies"
        say(f"copies that {does}: {safe(listed(map(str, found)))}", style="yellow")


def print_last_words(remains: Sequence[str]) -> None:
    if remains:
        say("may still be found in:", style="yellow")
        for one in remains:
            say(f"  {safe(one)}", style="yellow")
    say("backups, exports and other copies still have it", style="yellow")
