"""`onefold backup`: a copy of a store while others write."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from onefold.cli.options import JsonOption, StoreOption, open_store
from onefold.cli.output import as_json, console, refuse, safe, say


def command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Where to put the copy.", show_default=False)],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Copies a whole store to a file, consistent while others write.

    Prints the copy's path and size. It overwrites nothing: if PATH exists, the exit code is 1. A copy is another
    generation of the store, so that a follower of the old one is told to read again.

    \b
    Example:
      onefold backup backups/agent-monday.db --store agent.db
    """
    with open_store(store) as opened:
        if path.exists() or path.is_symlink():
            refuse(f"{path} exists already; choose another name, a backup overwrites nothing")
        with _progress() as step:
            opened.backup(path, progress=step)
        size = sum(f.stat().st_size for f in (path, *path.rglob("*")) if f.is_file())
        if json:
            as_json({"store": opened.address, "path": str(path), "bytes": size})
        else:
            say(f"copied {safe(opened.address)} to {safe(str(path))}, {size:,} bytes")


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    with Progress(
        TextColumn("copying"), BarColumn(), TaskProgressColumn(), console=console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, pages: bar.update(task, completed=done, total=pages)
