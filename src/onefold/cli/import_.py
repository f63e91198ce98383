"""`onefold import`: imports what `onefold export` wrote, under the same numbers, ids, keys and times.

The stores of other programs are imported by `import_foreign`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from onefold.cli import import_foreign
from onefold.cli.export_file import Exported, Unreadable, exported
from onefold.cli.options import JsonOption, WrongUse, open_store
from onefold.cli.output import as_json, console, line_on_stderr, safe, say
from onefold.errors import OnefoldError, SessionNotFound, StaleHandle, StoreError
from onefold.export import plain
from onefold.humanize import count
from onefold.journal.journal import Journal
from onefold.journal.replication import ingest, parts
from onefold.model import Record
from onefold.storage.base import Transaction


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The result of importing one session of the file."""

    session: str
    records: int
    """How many the file has of it."""
    new: int
    cause: str | None = None
    """Why its import was rejected, from some record on."""


def command(
    file: Annotated[
        str,
        typer.Argument(metavar="PATH", help="An export, - for stdin, or another program's store.", show_default=False),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what it would do; write nothing.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="ID", help="Of another program: only this session. Again for more.", show_default=False
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            "--into",
            metavar="STORE",
            help="The store. Without it: see `onefold --help`.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Imports sessions of another program, or an export.

    Reads what `onefold export` wrote, and the stores of Hermes Agent, OpenCode and OpenViking, which it detects by
    their content and opens read-only. A chain of sessions created by compactions is imported as one session with its
    summaries; every old id resolves to it. Run it again to import what is new.

    For an export it prints how many records were new and how many existed already. Numbers, ids, keys and times are
    preserved; parents are imported before their forks, whatever the order in the file. If it was interrupted, the same
    command resumes; if everything exists already, it changes nothing. If an id exists with different content, its
    import stops at the first differing record; other sessions continue. A torn or invalid line is reported with its
    number. The exit code is 1 if anything was rejected or lost, and 2 if PATH is neither.

    \b
    Examples:
      onefold import everything.jsonl --into new.db
      ssh elsewhere onefold export --all | onefold import -
      onefold import ~/.hermes/state.db --dry-run
    """
    if (found := import_foreign.recognised(file)) is not None:
        import_foreign.import_store(found, store, only or (), dry_run=dry_run, json=json)
        return
    if only:
        raise WrongUse("--only names a session of another program; an export is imported whole")
    with open_store(store) as opened, exported(file) as source:
        with _progress(source.records, quiet=json) as seen:
            results = [*_sessions(opened.journal, source, seen, dry_run=dry_run)]
        address = opened.address
    refused = [r for r in results if r.cause is not None]
    new = sum(r.new for r in results)
    for fault in source.faults:
        line_on_stderr(f"line {fault.line} of {source.name} was skipped: {fault.cause}")
    for result in refused:
        before = f"; {count(result.new, 'record')} before that: new" if result.new else ""
        line_on_stderr(f"rejected: {result.cause}{before}")
    if json:
        counts = {"new": new, "refused": len(refused), "faults": [plain(f) for f in source.faults]}
        as_json({"file": file, "store": address, "dry_run": dry_run, "sessions": plain(results), **counts})
    else:
        held = f"{count(len(results), 'session')} with {count(source.records, 'record')} in {source.name}"
        say(safe(f"{held}: {_what_became(results, new, dry_run=dry_run)}"))
    if refused or source.faults:
        raise SystemExit(1)


def _what_became(results: list[ImportedFile], new: int, *, dry_run: bool) -> str:
    there = sum(r.records - r.new for r in results if r.cause is None)
    refused = sum(1 for r in results if r.cause is not None)
    parts = [f"{new:,} {'would be imported' if dry_run else 'imported'}"] if new else []
    if there:
        parts.append(f"{there:,} there already")
    if refused:
        parts.append(f"{count(refused, 'session')} rejected")
    return ", ".join(parts)


def _sessions(
    journal: Journal, source: Exported, seen: Callable[[int], None], *, dry_run: bool
) -> Iterator[ImportedFile]:
    take = _would_take if dry_run else _take
    refused: set[str] = set()
    for session in source.in_order():
        new = 0
        cause = None
        try:
            if source.parent(session) in refused:
                _has_the_same_past(journal, source, session)
            for part in parts(source.read(session)):
                new += take(journal, source, session, part)
                seen(len(part))
        except StoreError:
            raise
        except OnefoldError as error:
            refused.add(session)
            cause = str(error)
        yield ImportedFile(session, source.count(session), new, cause)


def _has_the_same_past(journal: Journal, source: Exported, session: str) -> None:
    """A fork may be imported although its parent was rejected, if that differs only after the fork."""
    parent, upto = source.parent(session), source.forked_at(session)
    while parent is not None and parent in source:
        if not _stands(journal, source, parent, upto):
            raise OnefoldError(
                f"session {session!r} is a fork of {parent!r}, which was rejected together with the shared past"
            )
        upto = min(upto, source.forked_at(parent))
        parent = source.parent(parent)


def _stands(journal: Journal, source: Exported, session: str, upto: int) -> bool:
    """Whether a session here equals the one in the file, up to a record."""
    try:
        for record, _ in source.read(session):
            if record.number > upto:
                break
            if journal.backend.read(_at(session, record.number)) != record:
                return False
    except Unreadable:
        return False
    return True


def _at(session: str, number: int) -> Callable[[Transaction], Record | None]:
    return lambda tx: tx.record(session, number)


def _take(journal: Journal, source: Exported, session: str, records: list[Record]) -> int:
    return ingest(journal, session, records, alone=source.alone(session))


def _would_take(journal: Journal, source: Exported, session: str, records: list[Record]) -> int:
    """The same, read-only. A record that the journal rejects shows only in the import itself."""
    parent = source.parent(session)

    def would_take_in(tx: Transaction) -> int:
        state = tx.session(session)
        if state is None and tx.deleted(session) is not None:
            raise SessionNotFound(session, deleted=True)
        if state is None and (owner := tx.owner(session)) is not None:
            raise OnefoldError(f"session {owner!r} of this store has the alias {session!r} already")
        here = parent is None or parent in source or tx.session(parent) is not None
        if state is None and not here and not source.alone(session):
            raise OnefoldError(
                f"session {session!r} is a fork of {parent!r}, which is neither in this store nor in the file"
            )
        last = state.last if state is not None else source.forked_at(session)
        if source.first(session) > last + 1:
            raise OnefoldError(
                f"session {session!r} ends at record {last} in this store, and the file lacks record {last + 1}"
            )
        for record in records:
            if record.number <= last and tx.record(session, record.number) != record:
                raise StaleHandle(f"session {session!r}: record {record.number} differs from the one in this store")
        return sum(1 for record in records if record.number > last)

    return journal.backend.read(would_take_in)


@contextlib.contextmanager
def _progress(records: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar, if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("importing records"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=records)
        yield lambda done: bar.advance(task, done)
