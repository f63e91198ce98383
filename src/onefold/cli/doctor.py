"""`onefold doctor`: what is wrong in a store that another program left, and the repair of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from onefold import foreign
from onefold.cli import verify
from onefold.cli.options import JsonOption, WrongUse, default_store
from onefold.cli.output import as_json, console, line_on_stderr, safe, say
from onefold.export import plain
from onefold.foreign import Examination, ForeignFinding, ForeignStore, Outcome, Progress, RepairAborted, StoreInUse
from onefold.humanize import count
from onefold.ids import system_clock
from onefold.model import Json

_STYLES = {"harm": "red", "risk": "yellow", "note": None}


def command(  # noqa: PLR0917  a parameter here is an option there
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The store: a file, or a folder of sessions.", show_default=False)
    ],
    fix: Annotated[bool, typer.Option("--fix", help="Repair what can be repaired, after a verified backup.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="ID", help="Only this finding, by id or by kind. Again for more.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what --fix would do; change nothing.")] = False,
    backups: Annotated[
        Path | None,
        typer.Option("--backups", metavar="FOLDER", help="Where backups go. Default: next to the default store."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for report-only findings too.")] = False,
    json: JsonOption = False,
) -> None:
    """Checks the store of another program, and repairs it.

    Supports Hermes Agent, OpenCode and OpenViking. Reports for each finding what is wrong, what it means and what can
    be done, and changes nothing. --fix repairs what can be repaired: it makes and verifies a backup first, discards
    nothing, and prints how to restore the store as it was. A store that a program has open is checked, not repaired. A
    store of onefold is verified. The exit code is 0 if there is nothing to repair, 1 if --fix would repair something or
    if there is damage that only a backup restores, and 2 if the store could not be checked. Findings that are only
    reported, because they are past or for a person to judge, leave it at 0 unless --strict is given.

    \b
    Examples:
      onefold doctor ~/.hermes/state.db
      onefold doctor ~/.openviking/workspace --fix --only stale-messages
    """
    store = foreign.store_at(path)
    if store.program is None:
        _own(store, fix=fix and not dry_run, only=only or (), json=json)
        return
    now = system_clock()
    with _progress(quiet=json) as seen:
        examined = foreign.examine(store, now=now, progress=seen)
    _check(only or (), examined.findings)
    picked = foreign.chosen(examined.findings, only or ())
    outcome = None
    if any(f.repairable for f in picked) and (dry_run or (fix and not examined.users)):
        with _progress(quiet=json) as seen:
            outcome = _repaired(store, only or (), backups, now, seen, dry_run=dry_run)
    after = examined.findings if outcome is None or dry_run else outcome.left
    left = foreign.ills(foreign.chosen(after, only or ()))
    if json:
        as_json(_as_data(examined, picked, outcome, left, dry_run=dry_run))
    else:
        _print(examined, picked, outcome, left, asked=fix and not dry_run)
    if left if strict else foreign.pressing(left):
        raise SystemExit(1)


def _repaired(
    store: ForeignStore, only: Sequence[str], backups: Path | None, now: float, seen: Progress, *, dry_run: bool
) -> Outcome | None:
    if dry_run:
        return foreign.dry_run(store, only, now=now, progress=seen)
    try:
        return foreign.repair_store(
            store, only, backups=backups or default_store().parent / "doctor", now=now, progress=seen
        )
    except (RepairAborted, StoreInUse) as error:
        line_on_stderr(str(error))
        return None


def _own(store: ForeignStore, *, fix: bool, only: Sequence[str], json: bool) -> None:
    if only:
        raise WrongUse(f"{store.path} is a store of onefold, which is repaired as a whole: leave out --only")
    address = f"files:{store.path}" if store.path.is_dir() else str(store.path)
    verify.command(fix=fix, store=address, json=json)


def _check(only: Sequence[str], findings: Sequence[ForeignFinding]) -> None:
    known = {f.id for f in findings} | {f.kind for f in findings}
    if unknown := [id for id in only if id not in known]:
        raise WrongUse(f"no finding has the id or kind {unknown[0]!r}; run without --only to list them")


def _as_data(
    examined: Examination,
    picked: Sequence[ForeignFinding],
    outcome: Outcome | None,
    left: Sequence[ForeignFinding],
    *,
    dry_run: bool,
) -> Json:
    return {
        "path": str(examined.store.path),
        "program": examined.store.name,
        "version": examined.store.version,
        "units": examined.units,
        "in_use_by": list(examined.users),
        "findings": [_finding_data(f) for f in picked],
        "dry_run": dry_run,
        "mended": [{"id": m.finding.id, "done": m.done} for m in outcome.repaired] if outcome else [],
        "refused": list(outcome.refused) if outcome else [],
        "left": [f.id for f in left],
        "backup": str(outcome.backup) if outcome and outcome.backup else None,
        "back": outcome.back if outcome and outcome.back else None,
        "healthy": not left,
    }


def _finding_data(finding: ForeignFinding) -> Json:
    data = {"mendable" if name == "repairable" else name: value for name, value in plain(finding).items()}
    return {"id": finding.id, **data}


def _print(
    examined: Examination,
    picked: Sequence[ForeignFinding],
    outcome: Outcome | None,
    left: Sequence[ForeignFinding],
    *,
    asked: bool,
) -> None:
    store = examined.store
    say(f"{safe(store.name)} ({safe(store.version)}): {safe(str(store.path))}")
    if examined.users:
        say(f"in use by {safe(', '.join(examined.users))}: checked, not repaired", style="yellow")
    for finding in picked:
        _print_finding(finding)
    if outcome is not None:
        _print_outcome(outcome)
    looked = f"{count(examined.units, 'session')} checked: " if store.folder is not None else ""
    if not left:
        say(f"{looked}{'nothing is wrong' if outcome is None else 'nothing is left'}", style="green")
        return
    repairable = sum(1 for f in left if f.repairable)
    hint = f"; --fix repairs {repairable}" if repairable and not asked else ""
    hint = hint if foreign.pressing(left) else ", only reported: nothing to repair"
    say(f"{looked}{count(len(left), 'finding')}{' left' if asked else ''}{hint}", style="yellow")


def _print_finding(finding: ForeignFinding) -> None:
    say(f"{finding.severity}: {safe(finding.id)}", style=_STYLES[finding.severity])
    say(f"  where   {safe(finding.where)}")
    say(f"  wrong   {safe(finding.wrong)}")
    say(f"  means   {safe(finding.means)}")
    say(f"  {'--fix ' if finding.repairable else 'remedy'}  {safe(finding.remedy)}")


def _print_outcome(outcome: Outcome) -> None:
    for repaired in outcome.repaired:
        say(f"{'repaired' if outcome.backup else 'would repair'}: {safe(repaired.finding.id)}", style="green")
        say(f"  {safe(repaired.done)}")
    for why in outcome.refused:
        say(f"not repaired: {safe(why)}", style="red")
    if outcome.backup is not None:
        say(f"backup: {safe(str(outcome.backup))}")
        say(f"  to go back: {safe(outcome.back)}")


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress]:
    """A progress bar, if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("checking"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
