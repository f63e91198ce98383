"""`make soak`: the whole proof at length, and its page. `--quick` runs a little of everything and writes no page."""

from __future__ import annotations

import argparse
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from verification import cuts, files, kills, line_mutants, load, mutants, power, schedules, spec
from verification.report import PAGE, Guard, Row, page, table
from verification.told import Told

ROOT = Path(__file__).parent.parent
_MODEL = "tests/faults/test_life_model.py"
_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done."""

    steps: int
    depth: int
    depth_of_three: int
    power_seeds: int
    kill_rounds: int
    load_kills: int
    cuts: int
    long: bool


SOAK = Size(1_000_000, 7, 6, 2, 8, 3_200, 200, long=True)
SHORT = Size(60_000, 6, 5, 1, 1, 300, 30, long=False)
QUICK = Size(5_000, 5, 4, 1, 1, 60, 5, long=False)

Say = Callable[[str], None]


class Model:
    """The model test, in processes of its own beside the others: it takes longest."""

    def __init__(self, size: Size) -> None:
        self._steps = size.steps
        self._began = time.monotonic()
        self._runs = [self._start(size.steps * 4 // 5 // _AT_ONCE) for _ in range(_AT_ONCE)]

    def _start(self, steps: int) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        """So many steps in memory, and a quarter of that on disk."""
        said = tempfile.TemporaryFile()  # noqa: SIM115  as long as the process
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "timeout=0", _MODEL]
        environment = {**os.environ, "ONEFOLD_STEPS": str(steps)}
        return subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT, env=environment), said

    def row(self, say: Say) -> Row:
        failed = 0
        for process, said in self._runs:
            if process.wait():
                failed += 1
                said.seek(0)
                say(said.read().decode(errors="replace")[-6000:])
            said.close()
        seconds = time.monotonic() - self._began
        say(f"model: {'BROKEN' if failed else 'well'}, {seconds:.0f} s")
        return Row("model", f"{self._steps:,} steps", lost=failed, seconds=seconds)


def every_schedule(size: Size, say: Say) -> Row:
    if schedules.canary() is None:
        raise RuntimeError("the search did not find a race that is there; nothing it says counts")
    two = schedules.explore(size.depth)
    say(f"two actors: {two.states:,} states")
    three = schedules.explore(size.depth_of_three, actors=3)
    plans = schedules.explore_plans(size.depth + 1)
    say(f"reading, planning and committing apart: {plans.states:,} states")
    masked = schedules.explore_masks(size.depth)
    say(f"with masks: {masked.states:,} states")
    drafted = schedules.explore_drafts(size.depth)
    say(f"with summaries that are written again: {drafted.states:,} states")
    adopted = schedules.explore_adoptions(size.depth - 1)
    say(f"with what a provider made: {adopted.states:,} states")
    searches = (two, three, plans, masked, drafted, adopted)
    broken = [found.broken for found in searches if found.broken is not None]
    for what in broken:
        say(f"BROKEN: {what.what}: {' / '.join(what.path)}")
    lost = [b for b in broken if "acknowledged" in b.what or "neither in" in b.what or "summary knows" in b.what]
    stuck = [b for b in broken if "never ends" in b.what]
    return Row(
        "schedules",
        f"{sum(s.steps for s in searches):,} steps, {sum(s.states for s in searches):,} states, "
        f"depth {two.depth}, {three.depth}, {plans.depth}, {masked.depth}, {drafted.depth} and {adopted.depth}",
        faults=two.refused + three.refused,
        lost=len(lost),
        stuck=len(stuck),
        forked=len(broken) - len(lost) - len(stuck),
    )


def power_loss(size: Size, say: Say) -> Row:
    told = Told()
    for seed in range(1, size.power_seeds + 1):
        power.everything(seed, sparing=not size.long, each=lambda _, one: told.add(one))
        say(f"{told.faults:,} losses of power")
    return _row("power loss", f"{len(power.NAMES)} operations and a story", told, say)


def system_calls(size: Size, say: Say) -> Row:
    def each(name: str, told: Told) -> None:
        if name == kills.NAMES[-1]:
            say(f"{told.faults:,} kills")

    told = kills.run(rounds=size.kill_rounds, each=each)
    return _row("kills at system calls", f"{len(kills.NAMES)} operations", told, say)


def under_load(size: Size, say: Say) -> Row:
    told = load.run(size.load_kills, seed=int(time.time()) if size.long else 1)
    return _row("kills under load", f"{load.WRITERS} processes at a time", told, say)


def real_cuts(size: Size, say: Say) -> Row:
    return _cuts("real power cuts", size.cuts, say, files=False)


def _cuts(method: str, count: int, say: Say, *, files: bool) -> Row:
    why_not = cuts.why_not()
    if why_not is not None:
        return Row(method, "", left_out=why_not)
    found: list[cuts.Cut] = []

    def each(cut: cuts.Cut) -> None:
        found.append(cut)
        if len(found) % 20 == 0:
            say(f"{len(found)} cuts")

    cuts.rounds(count, 1, each, files=files)
    told = Told(
        faults=len(found),
        acknowledged=sum(c.acknowledged for c in found),
        lost=sum(len(c.lost) for c in found),
        unopenable=sum(c.wrong is not None for c in found),
        words=[c.wrong for c in found if c.wrong is not None],
    )
    return _row(method, "ext4, two writers", told, say)


def files_power_loss(size: Size, say: Say) -> Row:
    return _files("files: power loss", ("power", "twice"), size, say)


def files_killed(size: Size, say: Say) -> Row:
    return _files("files: killed beside another", ("bystander",), size, say)


def files_full(size: Size, say: Say) -> Row:
    return _files("files: full and failing disks", ("failing",), size, say)


def _files(method: str, ways: tuple[str, ...], size: Size, say: Say) -> Row:
    told = Told()

    def each(_: str, one: Told) -> bool:
        told.add(one)
        return False

    files.everything(1, sparing=not size.long, each=each, methods=ways)
    return _row(method, f"{len(files.NAMES)} operations" + " and a story" * ("power" in ways), told, say)


def files_system_calls(size: Size, say: Say) -> Row:
    told = kills.run(kind=kills.FILES)
    return _row("files: kills at system calls", f"{len(kills.NAMES)} operations", told, say)


def files_under_load(size: Size, say: Say) -> Row:
    told = load.run(size.load_kills // 8, seed=1, store="sessions/")
    return _row("files: kills under load", f"{load.WRITERS} processes at a time", told, say)


def files_cuts(size: Size, say: Say) -> Row:
    return _cuts("files: real power cuts", size.cuts // 4, say, files=True)


def specification(size: Size, say: Say) -> Row:
    try:
        spec.jar()
    except RuntimeError as error:
        return Row("specification", "", left_out=str(error))
    states = wrong = count = 0
    for one in spec.MODELS:
        if one.long and not size.long:
            continue
        done = spec.check(one, workers=1)
        say(f"{one.name}: {done.states:,} states")
        states, count = states + done.states, count + 1
        if not done.as_it_should:
            wrong += 1
            say(f"{one.name}: found {done.found}, expected {one.finds}")
    return Row("specification", f"{count} models, {states:,} states", forked=wrong)


def lines(size: Size, say: Say) -> Row:
    missed = [tried.line.name for tried in line_mutants.attempts() if not tried.noticed]
    for name in missed:
        say(f"NOT NOTICED: {name}")
    return Row("mutants of lines", f"{len(line_mutants.LINES)} lines, each with its test", unnoticed=len(missed))


def guards(size: Size, say: Say) -> Iterator[Guard]:
    for mutant in mutants.MUTANTS:
        tried = mutants.attempt(mutant)
        said = re.sub(r"^BROKEN: ", "", tried.said)
        if not tried.as_it_should:
            said = f"**NOT as it should be**: {said}"
            say(f"{mutant.name}: {said}")
        yield Guard(mutant.name, mutant.caught_by or "nobody: the others cover it", said if tried.caught else "")


METHODS: dict[str, Callable[[Size, Say], Row]] = {
    "schedules": every_schedule,
    "power": power_loss,
    "calls": system_calls,
    "load": under_load,
    "cuts": real_cuts,
    "files power": files_power_loss,
    "files killed": files_killed,
    "files full": files_full,
    "files calls": files_system_calls,
    "files load": files_under_load,
    "files cuts": files_cuts,
    "spec": specification,
    "lines": lines,
}


def _row(method: str, tried: str, told: Told, say: Say) -> Row:
    for line in told.words[:10]:
        say(f"WRONG: {line}")
    lost = told.lost + told.between + told.twice
    return Row(method, tried, told.faults, told.acknowledged, lost, told.forked, told.stuck, told.unopenable)


def _timed(name: str, method: Callable[[Size, Say], Row], size: Size, say: Say) -> Row:
    began = time.monotonic()
    say(f"{name} …")
    row = replace(method(size, lambda what: say(f"{name}: {what}")), seconds=time.monotonic() - began)
    say(f"{name}: {'well' if row.well else 'BROKEN'}, {row.seconds:.0f} s")
    return row


def main() -> int:
    options = argparse.ArgumentParser(prog="make soak", description="Proves the promises at length.")
    options.add_argument("--quick", action="store_true", help="a little of everything; writes no page")
    options.add_argument("--short", action="store_true", help="some of everything, in ten minutes; writes the page")
    options.add_argument("--only", choices=["model", *METHODS, "guards"], help="one method; writes no page")
    chosen = options.parse_args()
    size = QUICK if chosen.quick else SHORT if chosen.short else SOAK
    logging.getLogger("onefold").setLevel(logging.CRITICAL)  # which says what it finds after each fault
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{(time.monotonic() - began) / 60:5.1f} min  {what}", flush=True)

    rows: list[Row] = []
    found: list[Guard] = []
    wanted = {chosen.only} if chosen.only else {"model", *METHODS, "guards"}
    longest = Model(size) if "model" in wanted else None
    rows += [_timed(name, method, size, say) for name, method in METHODS.items() if name in wanted]
    if "guards" in wanted:
        say("guards …")
        found = list(guards(size, say))
    if longest is not None:
        rows.insert(0, longest.row(say))
    print("\n".join(table(rows)))
    if not chosen.quick and not chosen.only:
        PAGE.write_text(page(rows, found, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")))
        say(f"written: {PAGE.relative_to(ROOT)}")
    wrong = [r.method for r in rows if not r.well] + [g.name for g in found if "NOT as it should" in g.said]
    if wrong:
        print(f"BROKEN: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
