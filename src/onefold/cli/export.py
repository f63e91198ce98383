"""`onefold export`: records as JSON lines, every field of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from onefold.cli.options import StoreOption, WrongUse, open_store
from onefold.cli.output import count, line_on_stderr, plain, raw, refuse
from onefold.messages import encode


def command(
    sessions: Annotated[
        list[str] | None, typer.Argument(metavar="[SESSION]...", help="Sessions' ids.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All sessions of the store.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Into a new file, not stdout.", show_default=False)
    ] = None,
    store: StoreOption = None,
) -> None:
    """Writes sessions out as JSON lines.

    Prints one object a line, each record with all its fields: session, number, id, kind, at, turn, key, actor,
    format, header, body. Numbers begin at 1 in each session and have no gap. Lines are split by a newline and by
    nothing else. With --out the lines go to a new file; if it exists, nothing is written and the exit code is 1.

    \b
    Examples:
      onefold export my-session | jq .kind
      onefold export --all --out everything.jsonl
    """
    if bool(sessions) == everything:
        raise WrongUse("name the sessions to export, or --all for all of them; see `onefold export --help`")
    with open_store(store) as opened:
        ids = sessions or [state.id for state in opened.sessions()]
        found = [opened.session(id, create=False) for id in ids]
        written = 0
        with _sink(out) as write:
            for session in found:
                for record in session.read():
                    write(encode({"session": session.id, **plain(record)}) + "\n")
                    written += 1
    if out is not None:
        line_on_stderr(f"{count(written, 'record')} of {count(len(ids), 'session')} written to {out}")


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
