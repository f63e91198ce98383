"""`onefold doctor`: what is wrong in a store that another program left, and the repair of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from onefold import doctor
from onefold.cli import verify
from onefold.cli.options import JsonOption, WrongUse, default_store
from onefold.cli.output import as_json, console, count, line_on_stderr, plain, safe, say
from onefold.doctor import CannotMend, Examined, Finding, InUse, Outcome, Progress, Store
from onefold.ids import system_clock
from onefold.model import Json

_STYLES = {"harm": "red", "risk": "yellow", "note": None}


def command(  # noqa: PLR0917  a parameter here is an option there
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The store: a file, or a folder of sessions.", show_default=False)
    ],
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended; a backup is made first.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="ID", help="Only this finding, by id or by kind. Again for more.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what --fix would do, and do nothing.")] = False,
    backups: Annotated[
        Path | None,
        typer.Option("--backups", metavar="FOLDER", help="Where backups go. Without it: beside the default store."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for report-only findings too.")] = False,
    json: JsonOption = False,
) -> None:
    """Says what is wrong with the store of another program.

    It knows those of Hermes Agent, OpenCode and OpenViking. Says for each finding what is wrong, what it means and what
    can be done, and changes nothing. With --fix what can be mended is: a backup is made and checked first, nothing is
    thrown away, and how to go back is printed. A store that a program has open is looked at and not repaired. A store
    of onefold is verified. The exit code is 0 if there is nothing to mend, 1 if there is something that --fix would
    mend, or damage that only a backup mends, and 2 if the store could not be looked at. What is only reported, since it
    is past or for a person to judge, leaves it at 0, unless --strict is given.

    \b
    Examples:
      onefold doctor ~/.hermes/state.db
      onefold doctor ~/.openviking/workspace --fix --only stale-messages
    """
    store = doctor.store_at(path)
    if store.program is None:
        _own(store, fix=fix and not dry_run, only=only or (), json=json)
        return
    now = system_clock()
    with _progress(quiet=json) as seen:
        examined = doctor.examine(store, now=now, progress=seen)
    _check(only or (), examined.findings)
    picked = doctor.chosen(examined.findings, only or ())
    outcome = None
    if any(f.mendable for f in picked) and (dry_run or (fix and not examined.users)):
        with _progress(quiet=json) as seen:
            outcome = _mended(store, only or (), backups, now, seen, dry_run=dry_run)
    after = examined.findings if outcome is None or dry_run else outcome.left
    left = doctor.ills(doctor.chosen(after, only or ()))
    if json:
        as_json(_as_data(examined, picked, outcome, left, dry_run=dry_run))
    else:
        _print(examined, picked, outcome, left, asked=fix and not dry_run)
    if left if strict else doctor.pressing(left):
        raise SystemExit(1)


def _mended(
    store: Store, only: Sequence[str], backups: Path | None, now: float, seen: Progress, *, dry_run: bool
) -> Outcome | None:
    if dry_run:
        return doctor.rehearse(store, only, now=now, progress=seen)
    try:
        return doctor.mend(store, only, backups=backups or default_store().parent / "doctor", now=now, progress=seen)
    except (CannotMend, InUse) as error:
        line_on_stderr(str(error))
        return None


def _own(store: Store, *, fix: bool, only: Sequence[str], json: bool) -> None:
    if only:
        raise WrongUse(f"{store.path} is a store of onefold, which is mended whole: leave --only out")
    address = f"files:{store.path}" if store.path.is_dir() else str(store.path)
    verify.command(fix=fix, store=address, json=json)


def _check(only: Sequence[str], findings: Sequence[Finding]) -> None:
    known = {f.id for f in findings} | {f.kind for f in findings}
    if unknown := [id for id in only if id not in known]:
        raise WrongUse(f"nothing here is known as {unknown[0]!r}; look without --only first, and take an id from there")


def _as_data(
    examined: Examined, picked: Sequence[Finding], outcome: Outcome | None, left: Sequence[Finding], *, dry_run: bool
) -> Json:
    return {
        "path": str(examined.store.path),
        "program": examined.store.name,
        "version": examined.store.version,
        "units": examined.units,
        "in_use_by": list(examined.users),
        "findings": [_finding_data(f) for f in picked],
        "dry_run": dry_run,
        "mended": [{"id": m.finding.id, "done": m.done} for m in outcome.mended] if outcome else [],
        "refused": list(outcome.refused) if outcome else [],
        "left": [f.id for f in left],
        "backup": str(outcome.backup) if outcome and outcome.backup else None,
        "back": outcome.back if outcome and outcome.back else None,
        "healthy": not left,
    }


def _finding_data(finding: Finding) -> Json:
    return {"id": finding.id, **plain(finding)}


def _print(
    examined: Examined, picked: Sequence[Finding], outcome: Outcome | None, left: Sequence[Finding], *, asked: bool
) -> None:
    store = examined.store
    say(f"{safe(store.name)} ({safe(store.version)}): {safe(str(store.path))}")
    if examined.users:
        say(f"in use by {safe(', '.join(examined.users))}: looked at, and not repaired", style="yellow")
    for finding in picked:
        _print_finding(finding)
    if outcome is not None:
        _print_outcome(outcome)
    looked = f"{count(examined.units, 'session')} looked at: " if store.folder is not None else ""
    if not left:
        say(f"{looked}{'nothing is wrong' if outcome is None else 'nothing is left'}", style="green")
        return
    mendable = sum(1 for f in left if f.mendable)
    hint = f"; --fix mends {mendable}" if mendable and not asked else ""
    hint = hint if doctor.pressing(left) else ", only reported: there is nothing to mend"
    say(f"{looked}{count(len(left), 'finding')}{' left' if asked else ''}{hint}", style="yellow")


def _print_finding(finding: Finding) -> None:
    say(f"{finding.severity}: {safe(finding.id)}", style=_STYLES[finding.severity])
    say(f"  where   {safe(finding.where)}")
    say(f"  wrong   {safe(finding.wrong)}")
    say(f"  means   {safe(finding.means)}")
    say(f"  {'--fix ' if finding.mendable else 'remedy'}  {safe(finding.remedy)}")


def _print_outcome(outcome: Outcome) -> None:
    for mended in outcome.mended:
        say(f"{'mended' if outcome.backup else 'would mend'}: {safe(mended.finding.id)}", style="green")
        say(f"  {safe(mended.done)}")
    for why in outcome.refused:
        say(f"not mended: {safe(why)}", style="red")
    if outcome.backup is not None:
        say(f"backup: {safe(str(outcome.backup))}")
        say(f"  to go back: {safe(outcome.back)}")


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress]:
    """A bar on stderr, if somebody is there to look at it."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("looking"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
