"""A compaction that is killed before each of its writes in turn, and what somebody finds who opens the store then.

Every try has a copy of the same store and processes of its own, forked from one that has imported the framework and
opened nothing. The first try is not killed: it shows what the compaction leaves when it ends.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import shutil
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

from benchmarks.peers.conversation import SUMMARY, Compacts, Exchange, Left, Meter, exchanges, marks
from benchmarks.peers.trip import Trip, die

EXCHANGES = 40
_LONGEST = 120.0
_TOGETHER = 3.0
"""How long one of two waits in its summarizer for the other to be in its own."""


@dataclass(frozen=True)
class Found:
    """After one try: `before` names the write that did not happen, by its statement."""

    before: str
    state: str
    """`as before`, `done`, or what is wrong."""
    lost: int
    """Messages that no context of the store accounts for: neither there nor under a summary."""
    doubled: int
    gone: int
    """Messages that were there before, and are nowhere in the store any more."""
    held: float
    asked: int
    """How often a summary was asked for, until one was in force."""
    goes_on: str
    """Empty if the next turn went well; otherwise the error."""
    finished: bool
    """Whether the next turn left a summary in force."""


def killed(compacts: Compacts, folder: Path) -> dict[str, Any]:
    filled, turns = _filled(compacts, folder)
    last = _left(compacts, filled)
    writes = _try(compacts, filled, folder / "whole", turns, None)
    whole = _left(compacts, folder / "whole")
    found = []
    for at in _points(writes):
        place = folder / f"at-{at}"
        seen = _try(compacts, filled, place, turns, at)
        name = seen[-1] if len(seen) == at else "the end"
        found.append(_judged(compacts, place, name, turns[1], (last, whole)))
        shutil.rmtree(place)
        if found[-1].before == "the end":
            break
    return {"writes": writes, "whole": _shape(whole), "found": [asdict(one) for one in found]}


def at_once(compacts: Compacts, folder: Path) -> dict[str, Any]:
    """Two processes have a turn each with a context that is too long."""
    filled, turns = _filled(compacts, folder)
    place = folder / "both"
    shutil.copytree(filled, place)
    barrier = multiprocessing.get_context("fork").Barrier(2)
    others = [_process(_race, compacts, place, turn, barrier) for turn in turns]
    for other in others:
        _done(other)
    left = _left(compacts, place)
    said = [Path(f"{place}.{turn.number}.error") for turn in turns]
    errors = [path.read_text() for path in said if path.exists()]
    seen, asked = marks(left.context), Meter(Path(f"{place}.calls")).asked
    before = marks(_left(compacts, filled).context)
    in_turns = [m for turn in turns for m in marks([turn.question, turn.answer])]
    return {
        "asked": asked,
        "summaries": _summaries(left),
        "doubled": len(seen) - len(set(seen)),
        "gone": len(set(before) - set(marks(left.stored))),
        "turns lost": len([m for m in in_turns if m not in marks(left.context)]),
        "errors": errors,
    }


def _race(compacts: Compacts, place: Path, turn: Exchange, barrier: Barrier) -> None:
    def together() -> None:
        try:
            barrier.wait(_TOGETHER)
        except BrokenBarrierError:
            """The other one does not summarise: it waits, or was refused."""

    meter = Meter(Path(f"{place}.calls"), together)
    try:
        asyncio.run(compacts.say(place, turn))
        asyncio.run(compacts.compact(place, turn, meter))
    except Exception as error:
        Path(f"{place}.{turn.number}.error").write_text(f"{type(error).__name__}: {error}"[:300])


def _filled(compacts: Compacts, folder: Path) -> tuple[Path, list[Exchange]]:
    filled = folder / "filled"
    filled.mkdir()
    _done(_process(lambda: asyncio.run(compacts.fill(filled, list(exchanges(EXCHANGES))))))
    return filled, list(exchanges(2, first=EXCHANGES))


def _try(compacts: Compacts, filled: Path, place: Path, turns: Sequence[Exchange], at: int | None) -> list[str]:
    """One compaction on a copy, killed before its `at`-th write. Its writes, with the one that it did not get to do."""
    shutil.copytree(filled, place)
    seen = Path(f"{place}.writes")

    def run() -> None:
        asyncio.run(compacts.say(place, turns[0]))
        Trip(at, seen).watch()
        asyncio.run(compacts.compact(place, turns[0], Meter(Path(f"{place}.calls"))))
        if at is not None:
            die()

    _done(_process(run), killed=at is not None)
    return seen.read_text().splitlines() if seen.exists() else []


def _judged(compacts: Compacts, place: Path, name: str, turn: Exchange, ends: tuple[Left, Left]) -> Found:
    """`ends` are what there is before a compaction, and after one that was left alone."""
    last, whole = ends
    meter = Meter(Path(f"{place}.calls"))
    try:
        left = _left(compacts, place)
    except RuntimeError as error:
        all_of_it = len(last.context)
        return Found(name, "cannot be read", all_of_it, 0, all_of_it, 0.0, meter.asked, str(error), False)
    state, lost, doubled = _state(left, last, whole)
    gone = len(set(marks(last.stored)) - set(marks(left.stored)))
    wrong = ""
    try:
        _answered(place, lambda: str(asyncio.run(compacts.go_on(place, turn, meter))))
        finished = _summaries(_left(compacts, place)) == 1
    except RuntimeError as error:
        wrong, finished = str(error), False
    return Found(name, state, lost, doubled, gone, left.held, meter.asked, wrong, finished)


def _state(left: Left, last: Left, whole: Left) -> tuple[str, int, int]:
    """What stands there, the messages that nothing accounts for, and those that stand there twice."""
    seen = marks(left.context)
    before, end = set(marks(last.context)), set(marks(whole.context)) & set(marks(last.context))
    expected = end if _summaries(left) else before
    missing, doubled = len(expected - set(seen)), len(seen) - len(set(seen))
    if missing or doubled or _summaries(left) > 1:
        words = "a summary" if _summaries(left) else "no summary"
        return f"{len(set(seen))} messages, {words}", missing, doubled
    return ("done" if _summaries(left) else "as before"), 0, 0


def _summaries(left: Left) -> int:
    return sum(text.count(SUMMARY) for text in left.context)


def _shape(left: Left) -> dict[str, int]:
    return {
        "context": len(left.context),
        "summaries": _summaries(left),
        "messages": len(set(marks(left.context))),
        "stored": len(set(marks(left.stored))),
    }


def _left(compacts: Compacts, place: Path) -> Left:
    """What a new process finds."""
    said = _answered(place, lambda: json.dumps(asdict(asyncio.run(compacts.left(place)))))
    return Left(**json.loads(said))


def _answered(place: Path, ask: Callable[[], str]) -> str:
    """What a new process says; RuntimeError if it fails."""
    path = Path(f"{place}.answer")
    path.unlink(missing_ok=True)

    def run() -> None:
        try:
            answer = f"+{ask()}"
        except Exception as error:
            traceback.print_exc()
            answer = f"-{type(error).__name__}: {error}"
        path.write_text(answer)

    _done(_process(run))
    said = path.read_text()
    if said.startswith("-"):
        raise RuntimeError(said[1:300])
    return said[1:]


def _process(run: Callable[..., None], *given: object) -> Any:
    """A child that ends without what its parent registered to be done at the end."""

    def body() -> None:
        try:
            run(*given)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=body)
    process.start()
    return process


def _done(process: Any, *, killed: bool = False) -> None:
    process.join(_LONGEST)
    if process.exitcode is None:
        process.kill()
        raise RuntimeError(f"a try did not end within {_LONGEST:.0f} s")
    if process.exitcode != (-9 if killed else 0):
        raise RuntimeError(f"a try ended with {process.exitcode}")


def _points(writes: Sequence[str]) -> list[int]:
    """Before which writes it is killed: of many of the same kind in a row, the first and the last. And after all."""
    ends = [n for n, name in enumerate(writes) if writes[n - 1 : n] != [name] or writes[n + 1 : n + 2] != [name]]
    return [n + 1 for n in (*ends, len(writes))]
