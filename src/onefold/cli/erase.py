"""`onefold erase`: the content of some records, for good."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Annotated

import typer

from onefold.cli.confirmation import CopiesOption, YesOption, confirm, print_copies, print_forks, print_last_words
from onefold.cli.message_list import print_messages
from onefold.cli.options import JsonOption, SessionArgument, StoreOption, open_store
from onefold.cli.output import as_json, refusing, safe, say
from onefold.describe import numbered
from onefold.dry_run import dry_run_of
from onefold.export import plain
from onefold.humanize import count, listed
from onefold.model import Erased
from onefold.session import Session


def command(  # noqa: PLR0917  a parameter here is an option there
    session: SessionArgument,
    numbers: Annotated[
        list[int], typer.Argument(metavar="NUMBER...", min=1, help="The records' numbers.", show_default=False)
    ],
    yes: YesOption = False,
    remove_copies: CopiesOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Removes the content of messages, inputs or notes for good.

    What an agent asked can be erased, too. Prints first what will go: the records, the summaries and notes that come
    from them, and the forks that see them as their past. Then it asks; where nobody can be asked it needs --yes, and
    ends with exit code 2 without it. A numbered tombstone stays in each place, and a new summary is asked for where one
    went. The sidecar files, search index and frame log, lose it too. Copies that onefold left there are named, and
    removed with --remove-copies. Backups, exports and other copies are not reached. If one of the records cannot
    be erased, none is, and the exit code is 1.

    \b
    Example:
      onefold erase my-session 12 13
    """
    wanted = sorted(set(numbers))
    with open_store(store) as opened:
        found = opened.session(session, create=False)
        stage = dry_run_of(opened).session(found.id, create=False)
        with refusing():
            plan = stage.erase(*wanted)
        if not json:
            _print_plan(found, plan, wanted)
            print_copies(opened, (found.id, *plan.forks), remove=remove_copies)
        confirm(yes, json=json)
        with refusing():
            done = found.erase(*wanted, remove_copies=remove_copies)
        state = found.state
    if json:
        as_json({**plain(done), "tokens": state.tokens})
        return
    say(f"erased {numbered(done.numbers)} of {safe(found.id)}" if done.numbers else "they were erased before")
    if state.open is not None:
        say(f"a new summary is asked for; `onefold compact {safe(quote(found.id))}` makes it now")
    print_last_words(done.remains)


def _print_plan(session: Session, plan: Erased, wanted: Sequence[int]) -> None:
    records = [record for n in plan.numbers for record in session.read(n, n + 1)]
    if records:
        say(f"{count(len(records), 'record')} of {safe(session.id)} to erase for good:", style="bold")
        print_messages(records)
        if more := [n for n in plan.numbers if n not in wanted]:
            say(f"{numbered(more)} besides: the same content once more, or a note that comes from it")
    else:
        say(f"{numbered(wanted)} of {safe(session.id)}: erased before; forks are checked again", style="bold")
    if plan.summaries:
        say(f"summaries of it that go too: of segment {listed(plan.summaries)}")
    print_forks(plan.forks)
