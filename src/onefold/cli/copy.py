"""`onefold copy`: sessions from one store to another, of any kind."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

import onefold
from onefold.cli.options import JsonOption, WrongUse, open_store
from onefold.cli.output import as_json, console, line_on_stderr, say
from onefold.errors import StoreError
from onefold.export import plain
from onefold.humanize import count
from onefold.journal import replication
from onefold.journal.replication import Buried, Copied, CopyPlan, Seen
from onefold.journal.sidecars import forget
from onefold.storage.locations import path_of
from onefold.store import Store

_NOT_THERE = "there is no store"
"""How the error of every kind of store begins if it does not exist."""


def command(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="The store to copy from. It is only read.", show_default=False)
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="TO", help="The store to copy to. Created if it does not exist.", show_default=False),
    ],
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SESSION]...", help="Sessions' ids. Without any: all.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what it would do; write nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Copies sessions to another store, of any kind.

    Prints what was copied, what was there already, what differs and what was verified. FROM and TO are addresses as
    --store takes them: a SQLite file, a folder of plain files, postgresql://… Numbers, ids, keys, times and everything
    else of a record stay as they are; forks include their parents. Each record is read back and compared with
    FROM's, and then everything that is derived from them.

    It is copied as it is when the command begins; others may write to FROM meanwhile. If it was cut short, the same
    command goes on where it stopped, and run again later it copies what is new. A session that has diverged in TO
    is rejected and left as it is; others continue, and the exit code is 1. A compaction or a turn that is open in
    FROM is open in the copy, and nobody holds it there.

    \b
    Examples:
      onefold copy agent.db postgresql://localhost/agents
      onefold copy agent.db sessions/ my-session
      onefold copy agent.db other.db --dry-run
    """
    if not source or not target or _same_place(source, target):
        raise WrongUse("FROM and TO are the same store, or one of them is not a valid address; nothing was copied")
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(open_store(source))
        names = replication.wanted(origin.journal.backend, sessions or ())
        goal, made = _open_target(target, dry_run=dry_run)
        if goal is not None:
            stack.enter_context(goal)
            _check_apart(origin, goal)
        if made and not dry_run:
            line_on_stderr(f"made the store {_shown(target)}")
        copied = _copied(origin, goal, names, dry_run=dry_run, quiet=json)
        buried = [] if sessions else [*_buried(origin, goal, dry_run=dry_run)]
        changed = [done.session for done in copied if done.erased]
        if goal is not None and not dry_run and changed:
            _purge(goal, changed)
    causes = [*(done.cause for done in copied), *(done.cause for done in buried)]
    refused = [cause for cause in causes if cause is not None]
    for cause in refused:
        line_on_stderr(f"rejected: {cause}")
    if json:
        told = {"from": origin.address, "to": _shown(target), "made": made}
        as_json({**told, "dry_run": dry_run, "sessions": plain(copied), "deleted": plain(buried)})
    else:
        _print(copied, buried, dry_run=dry_run, made=made)
    if refused:
        raise SystemExit(1)


def _shown(address: str) -> str:
    """An address without its password."""
    if "://" not in address:
        return address
    from onefold.storage.postgres.dsn import parse

    return parse(address).shown


def _same_place(source: str, target: str) -> bool:
    """Whether two addresses are of one file or folder."""
    if "://" in source or "://" in target:
        return source == target
    one, other = path_of(source), path_of(target)
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))


def _check_apart(source: Store, target: Store) -> None:
    """One server has many addresses. A store in it is identified by its generation."""
    on_servers = "://" in source.address and "://" in target.address
    if on_servers and source.generation == target.generation:
        raise WrongUse(f"{source.address} and {target.address} are the same store; nothing was copied")


def _open_target(address: str, *, dry_run: bool) -> tuple[Store | None, bool]:
    """The store to copy to, and whether it is new. A dry run creates none."""
    empty = "://" not in address and path_of(address).is_file() and not path_of(address).stat().st_size
    try:
        if not empty:
            return open_store(address), False
    except StoreError as error:
        if not str(error).startswith(_NOT_THERE):
            raise
    return (None if dry_run else onefold.open(address)), True


def _copied(
    source: Store, target: Store | None, names: Sequence[CopyPlan], *, dry_run: bool, quiet: bool
) -> list[Copied]:  # fmt: skip
    journal = None if target is None else target.journal
    with _progress(names, quiet=quiet) as (seen, next_one):
        found = []
        for done in replication.copy(source.journal.backend, journal, names, seen, dry_run=dry_run):
            found.append(done)
            next_one(len(found))
        return found


def _buried(source: Store, target: Store | None, *, dry_run: bool) -> Iterator[Buried]:
    return replication.copy_tombstones(
        source.journal.backend, None if target is None else target.journal, dry_run=dry_run
    )


def _purge(target: Store, sessions: list[str]) -> None:
    """What was erased in FROM since the last copy is gone from TO's records now. From its files too, if it is quick."""
    done = target.journal.backend.purge()
    if forget(target.journal, sessions) or not done:
        line_on_stderr("what was erased may still be in files of TO: see Store.purge()")


def _print(copied: list[Copied], buried: list[Buried], *, dry_run: bool, made: bool) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in ("sessions", "records"):
        table.add_column(name, justify="right", no_wrap=True)
    fine = [done for done in copied if done.cause is None]
    new = [done for done in copied if done.new]
    there = [done for done in fine if not done.new]
    differing = [done for done in copied if done.cause is not None]
    for name, which, records in (
        ("would be copied" if dry_run else "copied", new, sum(done.new for done in copied)),
        ("already there", there, sum(done.there for done in fine)),
        ("differing", differing, sum(max(0, done.last - done.same) for done in differing)),
        *(() if dry_run else (("verified", fine, sum(done.verified for done in fine)),)),
    ):
        table.add_row(name, f"{len(which):,}", f"{records:,}")
    console().print(table)
    if erased := sum(done.erased for done in fine):
        say(f"{count(erased, 'record')} erased in FROM since{'' if dry_run else ', and in TO now'}")
    if buried:
        say(f"{count(len(buried), 'deleted session')} in FROM: {sum(b.new for b in buried):,} new in TO")
    if made and dry_run:
        say("TO does not exist; it would be created")


@contextlib.contextmanager
def _progress(names: Sequence[CopyPlan], *, quiet: bool) -> Iterator[tuple[Seen, Seen]]:
    """A progress bar, if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield (lambda records: None), (lambda done: None)
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    total = sum(one.records for one in names)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn(f"of {total:,} records"))
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"0 of {count(len(names), 'session')}", total=2 * total)

        def next_one(done: int) -> None:
            bar.update(task, description=f"{done:,} of {count(len(names), 'session')}")

        yield (lambda records: bar.advance(task, records)), next_one
