"""`onefold import` of another program's store: its sessions, and the result for each."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote

from onefold import foreign
from onefold.cli.options import WrongUse, open_store
from onefold.cli.output import as_json, console, line_on_stderr, safe, say
from onefold.errors import StoreError
from onefold.export import plain
from onefold.foreign import ForeignFinding, ForeignStore, Progress
from onefold.foreign.importers import ImportResult, look_into
from onefold.humanize import count
from onefold.ids import system_clock

_DATABASE = b"SQLite format 3\x00"
_SHOWN = 5


def recognised(path: str) -> ForeignStore | None:
    """The store of another program at a path; None if there is something else."""
    place = Path(path)
    if path == "-" or not (place.is_dir() or _is_database(place)):
        return None
    try:
        found = foreign.store_at(place)
    except StoreError:
        if place.is_dir():
            raise
        return None  # then it has to be an export
    return found if found.program is not None else None


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return False


def import_store(found: ForeignStore, store: str | None, only: Sequence[str], *, dry_run: bool, json: bool) -> None:
    """Imports the sessions of another program and reports the results. Ends with 1 if some could not be imported."""
    with _bar("checking", quiet=json) as looked:
        ills = _ills(found, looked)
    with open_store(store) as opened, look_into(found, opened.journal) as held:
        try:
            picked = held.only(only)
        except KeyError as error:
            raise WrongUse(
                f"{found.path} has no session {error.args[0]!r}; run with --dry-run to list its sessions"
            ) from None
        with _bar("importing messages", quiet=json) as shown:
            results = [*picked.import_all(opened.journal, dry_run=dry_run, seen=_counter(shown, picked.size))]
        address = opened.address
    if json:
        total = {"new": sum(r.new for r in results), "refused": sum(1 for r in results if r.cause)}
        told = {"path": str(found.path), "program": found.name, "version": found.version, "store": address}
        findings = [{"id": f.id, "where": f.where, "wrong": f.wrong} for f in ills]
        as_json({**told, "dry_run": dry_run, "sessions": plain(results), **total, "findings": findings})
    else:
        say(f"{safe(found.name)} ({safe(found.version)}): {safe(str(found.path))}")
        _table(results)
        _tell(results, ills, found, dry_run=dry_run)
    if any(r.cause or r.lost for r in results):
        raise SystemExit(1)


def _counter(shown: Progress, total: int) -> Callable[[int], None]:
    done = 0

    def seen(more: int) -> None:
        nonlocal done
        done += more
        shown(done, max(total, done))

    return seen


def _ills(found: ForeignStore, looked: Progress) -> list[ForeignFinding]:
    """What the doctor finds wrong there. It only explains oddities, so it may fail."""
    try:
        return foreign.ills(foreign.examine(found, now=system_clock(), progress=looked).findings)
    except StoreError as error:
        line_on_stderr(f"the doctor cannot check {found.path}: {error}")
        return []


def _table(results: list[ImportResult]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", overflow="fold")
    for name in ("messages", "new", "there", "folds", "ids"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what", overflow="fold")
    for one in results:
        numbers = (one.messages, one.new, one.messages - one.new, one.boundaries, one.aliases)
        what = "rejected" if one.cause else one.fork or ("" if one.session else "empty")
        table.add_row(Text(safe(one.session or one.id)), *(f"{n:,}" for n in numbers), Text(what))
    console().print(table)


def _tell(results: list[ImportResult], ills: list[ForeignFinding], found: ForeignStore, *, dry_run: bool) -> None:
    for one in results:
        for words in (*one.remarks, *_few(one.left_out)):
            say(f"{safe(one.session or one.id)}: {safe(words)}", style="yellow")
        if one.cause:
            before = f"; {count(one.new, 'message')} before that: new" if one.new else ""
            line_on_stderr(f"rejected: {one.cause}{before}")
    if ills:
        say(
            f"{count(len(ills), 'finding')} in it; `onefold doctor {safe(quote(str(found.path)))}` says more",
            style="yellow",
        )
        for words in _few([f"{f.where}: {f.wrong}" for f in ills]):
            say(f"  {safe(words)}", style="yellow")
    say(safe(_sum(results, dry_run=dry_run)))


def _few(words: Sequence[str]) -> list[str]:
    """The first ones, and how many more there are."""
    more = len(words) - _SHOWN
    return [*words[:_SHOWN], *([f"… and {more:,} more like that"] if more > 0 else [])]


def _sum(results: list[ImportResult], *, dry_run: bool) -> str:
    new = sum(r.new for r in results)
    parts = [f"{count(new, 'message')} {'would be imported' if dry_run else 'imported'}"] if new else []
    folds = sum(r.boundaries for r in results)
    forks = sum(1 for r in results if r.fork)
    parts += [f"{count(folds, 'compaction')}"] if folds else []
    parts += [f"{count(forks, 'fork')}"] if forks else []
    if there := sum(r.messages - r.new for r in results):
        parts.append(f"{there:,} there already")
    if left := sum(len(r.left_out) for r in results):
        parts.append(f"{left:,} left out")
    if refused := sum(1 for r in results if r.cause):
        parts.append(f"{count(refused, 'session')} rejected")
    return f"{count(len(results), 'session')}: {', '.join(parts) or 'nothing to import'}"


@contextlib.contextmanager
def _bar(doing: str, *, quiet: bool) -> Iterator[Progress]:
    """A progress bar, if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn(doing), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
