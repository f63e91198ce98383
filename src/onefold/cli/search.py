"""`onefold search`: what was said before, whatever was compacted since."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from onefold.cli.options import JsonOption, StoreOption, open_store
from onefold.cli.output import as_json, console, line_on_stderr, on_terminal, safe, say
from onefold.export import plain
from onefold.humanize import clock_time, count
from onefold.recall import Hit, Recall, SearchResult
from onefold.recall.hits import Place

_PLACES: dict[Place, str] = {
    "context": "", "masked": "masked", "past": "compacted away", "undone": "undone", "waiting": "waits",
}  # fmt: skip


def command(  # noqa: PLR0917  a parameter here is an option there
    query: Annotated[list[str], typer.Argument(metavar="QUERY...", help="What to look for.", show_default=False)],
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="In this session only.", show_default=False)
    ] = None,
    forks: Annotated[bool, typer.Option("--forks", help="With --session: in its forks too, as of sub-agents.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many.")] = 20,
    hide_undone: Annotated[bool, typer.Option("--hide-undone", help="Leave out what was taken back.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Rebuild the index first.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Searches everything ever said, in one session or in all.

    Takes a question or words: messages with their tool calls and results, summaries, notes, inputs that wait. Records
    with all of the words come first, then those with most, then some; other forms of a word count, and to a question
    also what was said around a record. Case and accents do not count. "In quotes" words have to stand in a row, a word
    with * may go on, and after --
    a -word must not be there. Prints each record that matches, the best first, with its session, number and time, and
    whether it is still in the context. The index is a sidecar file of the store, STORE.search; it is brought up to date
    first. The exit code is 1 if nothing was found.

    \b
    Examples:
      onefold search src/app.py --session my-session
      onefold search -- '"connection refused"' port* -staging
    """
    with open_store(store) as opened:
        recall = Recall(opened)
        with _progress(quiet=json) as step:
            if rebuild:
                recall.rebuild(step)
            words = " ".join(query)
            found = recall.search(
                words,
                session=session,
                forks=forks and session is not None,
                limit=limit,
                undone=not hide_undone,
                patience=None,
                progress=step,
            )
    if json:
        hits = [{**plain(hit), "snippet": hit.snippet} for hit in found]
        as_json({"query": words, "hits": hits, "behind": found.behind, "indexed": found.indexed})
    else:
        _print(found, words, shows_session=session is None or forks)
    if not found.hits:
        raise SystemExit(1)


def _print(found: SearchResult, words: str, *, shows_session: bool) -> None:
    if not found.hits:
        line_on_stderr(f"nothing was found for {words!r}")
        return
    if found.hits[0].nearby:
        say("no record has any of these words; they stand near these:", style="yellow")
    elif found.hits[0].partial:
        say("no record has all of these words; these have some:", style="yellow")
    for hit in found:
        _print_hit(hit, shows_session=shows_session)
    if found.behind:
        say(f"{count(found.behind, 'record')} could not be searched", style="yellow")


def _print_hit(hit: Hit, *, shows_session: bool) -> None:
    from rich.text import Text

    where = f"{safe(hit.session)} " if shows_session else ""
    state = f"  ({_PLACES[hit.place]})" if _PLACES[hit.place] else ""
    say(f"{where}#{hit.number} {safe(hit.role)}  {clock_time(hit.at)}{state}", style="bold")
    if not on_terminal():
        say(f"  {safe(hit.snippet)}")
        return
    line, done = Text("  "), 0
    for start, stop in hit.marks:
        line.append(safe(hit.excerpt[done:start]))
        line.append(safe(hit.excerpt[start:stop]), style="bold reverse")
        done = stop
    line.append(safe(hit.excerpt[done:]))
    console().print(line, soft_wrap=True)


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar, if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("reading records"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
