"""`onefold verify`: compares derived data with the journal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from onefold.cli.options import JsonOption, StoreOption, open_store
from onefold.cli.output import as_json, console, safe, say
from onefold.export import plain
from onefold.humanize import count
from onefold.model import Finding, Report
from onefold.store import Store


def command(
    fix: Annotated[bool, typer.Option("--fix", help="Repair what the journal can repair.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Compares the derived data of a store with its journal.

    Prints what differs; --fix repairs it, in one transaction per session, and records the repair in the journal. A
    healthy store is not written to. The exit code is 1 if something is left to repair.

    \b
    Examples:
      onefold verify
      onefold verify --fix --store agent.db
    """
    with open_store(store) as opened:
        with _progress(opened, quiet=json) as seen:
            report = opened.verify(fix=fix, progress=seen)
        address = opened.address
    left = [f for f in report.findings if not f.repaired]
    if json:
        as_json({"store": address, "healthy": report.healthy, "left": len(left), **plain(report)})
    else:
        _print(report, len(left), fix=fix)
    if left:
        raise SystemExit(1)


def _print(report: Report, left: int, *, fix: bool) -> None:
    for finding in report.findings:
        _finding(finding)
    looked = f"{count(report.sessions, 'session')}, {count(report.records, 'record')}"
    if report.healthy:
        say(f"{looked}: everything agrees with the journal", style="green")
    elif not left:
        say(f"{looked}: {count(len(report.findings), 'finding')}, all repaired", style="green")
    else:
        tried = fix or any(f.fatal for f in report.findings)
        remedy = (
            "do what they say, or restore a backup" if tried else "`onefold verify --fix` repairs what can be repaired"
        )
        say(f"{looked}: {count(left, 'finding')} left; {remedy}", style="yellow")


def _finding(finding: Finding) -> None:
    where = f"session {safe(finding.session)}, {safe(finding.what)}" if finding.session else safe(finding.what)
    what = "repaired" if finding.repaired else "damaged" if finding.fatal else "wrong"
    say(f"{what}: {where}", style="green" if finding.repaired else "red")
    say(f"  there was  {safe(finding.found)}")
    say(f"  should be  {safe(finding.expected)}")


@contextlib.contextmanager
def _progress(store: Store, *, quiet: bool) -> Iterator[Callable[[str, int], None] | None]:
    """A progress bar, if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("checking records"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=sum(s.last - s.forked_at for s in store.walk()))
        yield lambda session, records: bar.update(task, completed=records)
