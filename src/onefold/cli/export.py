"""`onefold export`: records as JSON lines, every field of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from onefold.cli.options import StoreOption, WrongUse, open_store
from onefold.cli.output import count, line_on_stderr, plain, raw, refuse
from onefold.errors import SessionNotFound
from onefold.messages import encode
from onefold.session import Session
from onefold.store import Store


def command(
    sessions: Annotated[
        list[str] | None, typer.Argument(metavar="[SESSION]...", help="Sessions' ids.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All sessions of the store.")] = False,
    no_parents: Annotated[bool, typer.Option("--no-parents", help="Forks without the sessions they are of.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Into a new file, not stdout.", show_default=False)
    ] = None,
    store: StoreOption = None,
) -> None:
    """Writes sessions out as JSON lines.

    Prints one object a line, each record with all its fields: session, number, id, kind, at, turn, key, actor,
    format, header, body. Numbers have no gap and begin at 1, in a fork after the record it was forked at: what came
    before is its parent's, which is written first unless --no-parents says otherwise. Lines are split by a newline and
    by nothing else. With --out the lines go to a new file; if it exists, nothing is written and the exit code is 1.
    `onefold import` takes it all in again.

    \b
    Examples:
      onefold export my-session | jq .kind
      onefold export --all --out everything.jsonl
    """
    if bool(sessions) == everything:
        raise WrongUse("name the sessions to export, or --all for all of them; see `onefold export --help`")
    with open_store(store) as opened:
        ids = sessions or [state.id for state in opened.sessions()]
        found = parents_first(opened, ids, with_parents=not no_parents)
        written = 0
        with _sink(out) as write:
            for session in found:
                for line in lines(session):
                    write(line)
                    written += 1
    if out is not None:
        line_on_stderr(f"{count(written, 'record')} of {count(len(found), 'session')} written to {out}")


def lines(session: Session) -> Iterator[str]:
    """A session's own records, one line each: a fork's begin after the record it was forked at."""
    for record in session.read(session.state.forked_at + 1):
        yield encode({"session": session.id, **plain(record)}) + "\n"


def parents_first(store: Store, ids: list[str], *, with_parents: bool) -> list[Session]:
    """The sessions, each once, in an order in which they can be taken in again."""
    named = {session.id: session for session in (store.session(id, create=False) for id in ids)}
    order: dict[str, Session] = {}
    for id, session in named.items():
        line = {id: session}
        parent = session.state.parent
        while parent is not None and parent not in order:
            try:
                above = named.get(parent) or store.session(parent, create=False)
            except SessionNotFound:
                break  # it was deleted, and is nobody's past any more
            if with_parents or parent in named:
                line[parent] = above
            parent = above.state.parent
        order |= {key: line[key] for key in reversed(line) if key not in order}
    return list(order.values())


@contextlib.contextmanager
def _sink(out: Path | None) -> Iterator[Callable[[str], object]]:
    if out is None:
        yield raw
        return
    try:
        file = out.open("x", encoding="utf-8", newline="\n")
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
