"""`onefold export`: records as JSON lines, every field of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from onefold.cli.options import StoreOption, WrongUse, open_store
from onefold.cli.output import as_json, line_on_stderr, raw, refuse, send
from onefold.errors import SessionNotFound
from onefold.export import all_parents_first, lines, parents_first, plain
from onefold.humanize import count, listed
from onefold.session import Session
from onefold.storage.permissions import new_text

_NAMED = 5
"""So many of the sessions that were deleted meanwhile are named."""


@dataclass(slots=True)
class ExportCounts:
    """What an export has in it."""

    sessions: int = 0
    records: int = 0
    deleted: list[str] = field(default_factory=list)
    """Sessions that were deleted while it was written: it has nothing of them, or what was written before that."""

    def words(self) -> str:
        said = f"{count(self.records, 'record')} of {count(self.sessions, 'session')} written"
        if not self.deleted:
            return said
        more = len(self.deleted) - _NAMED
        names = listed(repr(id) for id in self.deleted[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        return f"{said}; {count(len(self.deleted), 'session')} deleted meanwhile, and at most begun here: {names}"


def command(
    sessions: Annotated[
        list[str] | None, typer.Argument(metavar="[SESSION]...", help="Sessions' ids.", show_default=False)
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All sessions of the store.")] = False,
    no_parents: Annotated[bool, typer.Option("--no-parents", help="Forks without the sessions they are of.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Into a new file, not stdout.", show_default=False)
    ] = None,
    store: StoreOption = None,
    json: Annotated[bool, typer.Option("--json", help="Say what was written as JSON; needs --out.")] = False,
) -> None:
    """Writes sessions out as JSON lines.

    Prints one object a line, each record with all its fields: session, number, id, kind, at, turn, key, actor,
    format, header, body. Numbers have no gap and begin at 1, in a fork after the record it was forked at: what came
    before is its parent's, which is written first unless --no-parents says otherwise. Lines are split by a newline and
    by nothing else. With --out the lines go to a new file; if it exists, nothing is written and the exit code is 1.
    `onefold import` takes it all in again.

    How many records and sessions were written is said on stderr. Others may write meanwhile: with --all each session
    that is there before and after is written once, as it was when its turn came. One that is deleted meanwhile is not
    an error, and is named.

    \b
    Examples:
      onefold export my-session | jq .kind
      onefold export --all --out everything.jsonl
    """
    if bool(sessions) == everything:
        raise WrongUse("name the sessions to export, or --all for all of them; see `onefold export --help`")
    if json and out is None:
        raise WrongUse("--json says on stdout what was written, and the records go there; name a file with --out")
    with open_store(store) as opened:
        written = ExportCounts()
        found: Iterable[Session]
        if sessions:
            found = parents_first(opened, sessions, with_parents=not no_parents)
        else:
            found = all_parents_first(opened, written.deleted)
        with _sink(out) as write:
            for session in found:
                _write(session, write, written)
    if json:
        as_json({"out": str(out), **plain(written)})
    else:
        line_on_stderr(written.words() + ("" if out is None else f", to {out}"))


def _write(session: Session, write: Callable[[str], object], written: ExportCounts) -> None:
    records = 0
    try:
        for line in lines(session):
            write(line)
            records += 1
    except SessionNotFound:
        written.deleted.append(session.id)
    else:
        written.sessions += 1
    written.records += records


@contextlib.contextmanager
def _sink(out: Path | None) -> Iterator[Callable[[str], object]]:
    if out is None:
        yield raw
        send()
        return
    try:
        file = new_text(out)
    except FileExistsError:
        refuse(f"{out} exists already; choose another name, an export overwrites nothing")
    except OSError as error:
        raise WrongUse(f"{out} cannot be written: {error.strerror}") from None
    with file:
        try:
            yield file.write
        except BaseException:
            out.unlink()  # half an export looks like a whole one
            raise
