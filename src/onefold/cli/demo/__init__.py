"""`onefold demo`: a real story with real processes, and a table of what was checked."""

from __future__ import annotations

import shutil
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from onefold.cli.options import JsonOption
from onefold.cli.output import as_json, line_on_stderr, safe, say

if TYPE_CHECKING:
    from onefold.cli.demo.report import Narrator


def command(
    store: Annotated[
        str | None, typer.Option("--store", metavar="STORE", help="Play in this store, and keep it.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary store and say where it is.")] = False,
    pace: Annotated[
        float, typer.Option("--pace", metavar="FACTOR", min=0.1, max=3.0, help="1 takes some 20 seconds; 0.3 is brisk.")
    ] = 1.0,
    json: JsonOption = False,
) -> None:
    """Plays a real story, with real processes, one of them killed.

    Processes talk in one session, ask for compactions at the same moment, die or fall asleep in mid summary.

    Prints each event as it is seen in the journal, then a picture of the context's size over time, then a table of
    what was checked, by the journal and by what the processes say they were promised. The exit code is 1 if a check
    fails. It plays in a temporary store and leaves nothing behind. With --json, only the checked numbers.

    \b
    Examples:
      onefold demo
      onefold demo --store demo.db        then: onefold show demo --store demo.db
    """
    from onefold.cli.demo.report import Narrator

    narrator = Narrator(quiet=json)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    try:
        with ExitStack() as cleanup:
            if store is None:
                folder = tempfile.mkdtemp(prefix="onefold-demo-")
                if not keep:
                    cleanup.callback(shutil.rmtree, folder)
                ok = _perform(str(Path(folder) / "demo.db"), pace, narrator, json=json, kept=keep)
            else:
                ok = _perform(store, pace, narrator, json=json, kept=True)
    except KeyboardInterrupt:
        if narrator.alone:
            raise SystemExit(0) from None
        line_on_stderr("stopped; no process is left over")
        raise SystemExit(130) from None
    if not ok:
        raise SystemExit(1)


def _perform(store: str, pace: float, narrator: Narrator, *, json: bool, kept: bool) -> bool:
    from onefold.cli.demo.chart import draw
    from onefold.cli.demo.checks import check
    from onefold.cli.demo.report import as_table
    from onefold.cli.demo.runner import play

    with play(store, pace, narrator) as played:
        checks = check(played)
    ok = all(c.ok for c in checks)
    if json:
        numbers = {c.name: {"expected": c.expected, "found": c.found, "ok": c.ok} for c in checks}
        as_json({"ok": ok, "session": played.session.id, "seconds": round(played.seconds, 3), "checks": numbers})
        return ok
    say()
    for line in draw(played.curve, played.commits):
        say(line)
    say()
    as_table(checks)
    if kept:
        say()
        say(f"look around: onefold show {played.session.id} --store {safe(quote(store))}")
    return ok


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt
