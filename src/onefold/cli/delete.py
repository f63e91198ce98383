"""`onefold delete`: a whole session, for good."""

from __future__ import annotations

from onefold.cli.confirmation import CopiesOption, YesOption, confirm, print_copies, print_forks, print_last_words
from onefold.cli.options import JsonOption, SessionArgument, StoreOption, open_store
from onefold.cli.output import as_json, refusing, safe, say
from onefold.dry_run import dry_run_of
from onefold.export import plain
from onefold.humanize import clock_time, count, listed
from onefold.model import Deleted
from onefold.store import Store


def command(
    session: SessionArgument,
    yes: YesOption = False,
    remove_copies: CopiesOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Removes a session whole, for good.

    Prints first what will go, and the forks that see it as their past. Then it asks; where nobody can be asked it
    needs --yes, and ends with exit code 2 without it. The session's ids stay taken, so that nobody makes it again by
    accident; forks of it stay, without that past. The sidecar files, search index and frame log, lose it too. Copies
    that onefold left there are named, and removed with --remove-copies. Backups, exports and other copies are not
    reached. If a delete was cut short, the same command finishes it.

    \b
    Example:
      onefold delete my-session
    """
    with open_store(store) as opened:
        plan = dry_run_of(opened).delete(session)
        if not json:
            _print_plan(opened, plan)
            print_copies(opened, (plan.session, *plan.forks), remove=remove_copies)
        confirm(yes, json=json)
        with refusing():
            done = opened.delete(session, remove_copies=remove_copies)
    if json:
        as_json(plain(done))
        return
    gone = f"deleted {safe(done.session)}: {count(done.records, 'record')}"
    say(gone if done.records else f"nothing was left of {safe(done.session)}")
    print_last_words(done.remains)


def _print_plan(store: Store, plan: Deleted) -> None:
    if plan.records:
        found = store.session(plan.session, create=False)
        state = found.state
        say(f"session {safe(plan.session)} to delete for good:", style="bold")
        when = f"from {clock_time(state.created_at)} to {clock_time(state.touched_at)}"
        say(f"  {count(state.messages, 'message')} in {count(plan.records, 'record')}, {when}")
        if aliases := found.aliases():
            say(f"  also known as {safe(listed(aliases))}")
        if state.turn:
            say("  a turn is open in it", style="yellow")
    else:
        say(f"session {safe(plan.session)} was deleted before; its forks are checked again", style="bold")
    print_forks(plan.forks)
