"""`make bench-scaling`: what one PostgreSQL server carries. Starts a server of its own, fills it, loads it with real
processes, writes `docs/scaling.md`, and fails if a bound is not met."""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import psycopg

import onefold
from benchmarks.scaling.page import Line, Measured, Point, page, plot, text
from benchmarks.speed.child import Child, used, used_with_ended
from benchmarks.speed.filling import LONG, RECORDS, check, fill
from benchmarks.speed.held import beside_a_held_session
from benchmarks.speed.load import WARM
from benchmarks.speed.measures import in_turn, timed
from benchmarks.speed.report import TIMES, Bound, Row, machine, missed
from benchmarks.speed.stores import message
from onefold.compaction.holder import this_process
from onefold.messages import encode
from tests.support.postgres_server import Server

DOCS = Path(__file__).parent.parent.parent / "docs"
PROCESSES = (1, 2, 4, 8)
# What a server of this size is usually given. Everything that an answer's safety depends on is as by default.
_SETTINGS = ("shared_buffers=2GB", "max_wal_size=8GB", "checkpoint_timeout=15min", "autovacuum=on",
             "maintenance_work_mem=256MB", "effective_cache_size=12GB")  # fmt: skip
_SMALL_SESSIONS, _SMALL_LONG = 10, 1_000
_ASKING = 8
_LISTENING, _QUIET, _LOAD = 2.0, 0.15, "load at the start"
_BUSY = "The machine was busy with something else when this run began: measure again on a quiet one."
_MOST_A_SECOND = {"bare": 60, "": 8}
"""Compactions that a worker may get done at most, so that enough of them wait."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    sessions: int
    long: int
    seconds: float
    processes: tuple[int, ...]
    rounds: int
    followed: int


FULL = Size(10_000, 1_000_000, 5.0, PROCESSES, 15, 200)
SHORT = Size(100, 20_000, 2.0, (1, 2), 5, 20)


class Bench:
    """A filled server, and whose turn it is to be compacted."""

    def __init__(self, server: Server, size: Size, say: Say) -> None:
        self.say = say
        self.size = size
        self._server = server
        self.dsn = dsn = server.dsn
        self.small = fill(dsn, "small", _SMALL_SESSIONS, _SMALL_LONG, say)
        self.large = fill(dsn, "large", size.sessions, size.long, say)
        chance = random.Random(1)
        self.verified = check(self.large, [chance.randrange(size.sessions) for _ in range(20)])
        self._asked = 0
        self._seed = 0

    def run(self, what: str, agents: int, workers: int, followers: int = 0, kind: str = "") -> dict[str, Point]:
        """Loads the server with so many processes of each kind, all at once; how often each thing was done in a second,
        how long it took, and what share of the machine's cores was the server's."""
        self.say(f"{what}: {agents} agents, {workers} workers")
        address, seconds, sessions = self.large.address, self.size.seconds, self.size.sessions
        self._ask_for_compactions(int(workers * _MOST_A_SECOND[kind] * (seconds + WARM)))
        with ExitStack() as stack:
            children = []
            for _ in range(agents):
                self._seed += 1
                children.append(Child("agent", address, seconds, self._seed, sessions, what))
            children += [Child("worker", address, seconds, kind) for _ in range(workers)]
            if followers:
                children.append(Child("followers", address, seconds, sessions, followers))
            for child in children:  # after all of them were started: they get ready together
                stack.enter_context(child)
            used = self._server_used()
            for child in children:
                child.go()
            found = [child.found() for child in children]
            used = self._server_used() - used
        return _together(found, seconds) | {"server": Point(used / (seconds + WARM))}

    def _server_used(self) -> float:
        """The seconds of a core that the server has used, with all that it started."""
        while True:
            first, *others = self._server.processes()
            with suppress(FileNotFoundError, ProcessLookupError):  # one ended just now: again
                total = used_with_ended(first) + sum(used(pid) for pid in others)
                if self._server.processes() == [first, *others]:
                    return total

    def _ask_for_compactions(self, wanted: int) -> None:
        """Sees to it that so many compactions wait, of sessions that were not compacted for longest."""
        with onefold.open(self.large.address) as store, ThreadPoolExecutor(_ASKING) as threads:
            open_ones = len(store.compactions()) if wanted else 0
            names = [self.large.session(self._asked + n) for n in range(max(0, wanted - open_ones))]
            self._asked += len(names)
            list(threads.map(store.journal.request, names))


def _together(found: Sequence[dict[str, list[float] | int]], seconds: float) -> dict[str, Point]:
    times: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for one in found:
        for what, value in one.items():
            if isinstance(value, list):
                times.setdefault(what, []).extend(value)
            else:
                counts[what] = counts.get(what, 0) + value
    points = {what: Point(len(t) / seconds, *_percentiles(t)) for what, t in times.items() if t}
    return points | {what: Point(count / seconds) for what, count in counts.items()}


def _percentiles(times: list[float]) -> tuple[float, float]:
    ordered = sorted(times)
    return median(ordered) * 1e3, ordered[int(len(ordered) * 0.99)] * 1e3


# ---------------------------------------------------------------------- against the number of processes


def lines(bench: Bench) -> dict[str, Line]:
    """By what is done. Each with what the server used for it."""
    many = bench.size.processes
    runs = {
        "appends": ("append", {n: bench.run("append", n, 0) for n in many}),
        "contexts": ("context", {n: bench.run("context", n, 0) for n in many}),
        "compactions": ("committed", {n: bench.run("nothing else", 0, n) for n in many}),
        "compactions, bare": ("committed", {n: bench.run("nothing else", 0, n, kind="bare") for n in many}),
    }
    return {
        name: Line({n: found[what] for n, found in by.items()}, {n: found["server"].rate for n, found in by.items()})
        for name, (what, by) in runs.items()
    }


def mixed(bench: Bench) -> dict[int, dict[str, Point]]:
    agents = bench.size.processes[-1]
    return {n: bench.run("turns", agents, n, bench.size.followed, kind="bare") for n in bench.size.processes}


# ---------------------------------------------------------------------- one after another


def bare(bench: Bench) -> tuple[Row, float]:
    """One append at a time, against the least that a program can do on the same server: one row and a commit."""
    bench.say("durable append, against a bare insert")
    given = [message(n) for n in range(100)]
    texts = [encode(m) for m in given]
    with onefold.open(bench.large.address) as store, psycopg.connect(bench.dsn) as link:
        session = store.session(bench.large.session(0))
        link.execute("create table bare (number bigint generated always as identity primary key, body text not null)")
        link.commit()

        def theirs() -> None:
            for text in texts:
                link.execute("insert into bare (body) values (%s)", (text,))
                link.commit()

        def ours() -> None:
            for m in given:
                session.append(m)

        pairs = in_turn(lambda: timed(ours), lambda: timed(theirs), bench.size.rounds)
        link.execute("drop table bare")
    rate, bare_rate = (len(given) / median(side) for side in zip(*pairs, strict=True))
    row = Row(
        "durable append, one process, against a bare INSERT loop",
        median(b / a for a, b in pairs),
        TIMES,
        f"{rate:,.0f} against {bare_rate:,.0f} a second, {(1 / rate - 1 / bare_rate) * 1e3:.2f} ms more each",
    )
    return row, bare_rate


def contexts(bench: Bench) -> list[Row]:
    few, many, size = bench.small, bench.large, bench.size
    chance = random.Random(2)
    rounds = 20 * size.rounds
    with onefold.open(few.address) as small, onefold.open(many.address) as large:
        bench.say("context(), at many records and at few")
        near = [small.session(few.session(n)) for n in range(few.sessions)]
        far = [large.session(many.session(chance.randrange(many.sessions))) for _ in range(50)]
        first = median(timed(session.context) for session in far)
        ratio, numbers = _compared(
            lambda: timed(chance.choice(far).context), lambda: timed(chance.choice(near).context), rounds
        )
        long, short = large.session(LONG), small.session(LONG)
        long_ratio, long_numbers = _compared(lambda: timed(long.context), lambda: timed(short.context), rounds)
        appended, append_numbers = _compared(
            lambda: timed(partial(chance.choice(far).append, message(1))),
            lambda: timed(partial(chance.choice(near).append, message(1))),
            rounds,
        )
        messages = len(near[0].context().messages)
    within = Bound(1.5, TIMES)
    return [
        Row(
            f"context() with {many.records:,} records in the store, against {few.records:,}", ratio, TIMES,
            f"{numbers}, {messages} messages; {first * 1e3:.2f} ms where nobody has looked before", within,
        ),
        Row(f"context() of a session of {size.long:,} records, against {_SMALL_LONG:,}", long_ratio, TIMES,
            long_numbers, within),
        Row(f"append with {many.records:,} records in the store, against {few.records:,}", appended, TIMES,
            append_numbers, within),
    ]  # fmt: skip


def _compared(one: Callable[[], float], other: Callable[[], float], rounds: int) -> tuple[float, str]:
    pairs = in_turn(one, other, rounds)
    slow, quick = (median(side) for side in zip(*pairs, strict=True))
    return slow / quick, f"{slow * 1e3:.2f} against {quick * 1e3:.2f} ms"


def beside_a_held_one(bench: Bench) -> Row:
    """Beside a session of the small store that somebody holds."""
    small = bench.small
    return beside_a_held_session(
        bench.dsn, "small", held=small.session(0), free=small.session(1), rounds=max(3, bench.size.rounds // 3),
        say=bench.say,
    )  # fmt: skip


def looks(bench: Bench) -> Row:
    """What a worker's look costs while as many compactions wait as there are sessions."""
    bench.say("a worker's look where everything waits")
    bench._ask_for_compactions(bench.size.sessions)
    with onefold.open(bench.large.address) as store:
        count = len(store.compactions())
        times = [timed(partial(store.journal.claim_next, this_process())) for _ in range(bench.size.rounds)]
    return Row(f"taking the next compaction where {count:,} wait", median(times) * 1e3, "ms")


# ---------------------------------------------------------------------- all of it


def measure(size: Size, say: Say) -> Measured:
    server = Server(quick=False, settings=_SETTINGS)
    try:
        facts = machine(server.folder)
        with psycopg.connect(server.dsn) as link:
            version = link.info.parameter_status("server_version") or "unknown"
        bench = Bench(server, size, say)
        others = in_use_by_others()
        append, bare_rate = bare(bench)
        rows = [*contexts(bench), append, beside_a_held_one(bench)]
        swept = lines(bench)
        together = mixed(bench)
        rows.append(looks(bench))
        return Measured(rows, bare_rate, swept, together, _facts(facts, version, others), bench.large.sessions,
                        bench.large.records, bench.verified, _BUSY if others > _QUIET else "")  # fmt: skip
    finally:
        server.stop()


def in_use_by_others() -> float:
    """The share of the cores that is in use just before the bench begins."""
    before = _ticks()
    threading.Event().wait(_LISTENING)
    idle, total = (after - then for after, then in zip(_ticks(), before, strict=True))
    return 1 - idle / max(1, total)


def _ticks() -> tuple[int, int]:
    numbers = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return numbers[3] + numbers[4], sum(numbers)


def _facts(facts: dict[str, str], version: str, others: float) -> dict[str, str]:
    kept = {name: value for name, value in facts.items() if name not in ("apsw", "SQLite", "settings", _LOAD)}
    settings = "fsync=on, synchronous_commit=on, full_page_writes=on, " + ", ".join(_SETTINGS)
    more = {"PostgreSQL": version, "psycopg": psycopg.__version__, "settings": settings}
    return kept | more | {"in use by others just before": f"{others:.0%} of the cores"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a run of a minute with a small store; writes no page")
    parser.add_argument("--sessions", type=int, help=f"how many, of {RECORDS:,} records each; {FULL.sessions:,} if not")
    parser.add_argument("--seconds", type=float, help=f"of each run; {FULL.seconds:g} if not given")
    parser.add_argument("--page", type=Path, help="where to write the page; by default docs/scaling.md")
    chosen = parser.parse_args()
    size = SHORT if chosen.short else FULL
    size = replace(size, sessions=chosen.sessions or size.sessions, seconds=chosen.seconds or size.seconds)
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}", file=sys.stderr, flush=True)

    found = measure(size, say)
    say("done")
    print(text(found))
    path: Path | None = chosen.page or (None if chosen.short else DOCS / "scaling.md")
    if path is not None:
        path.write_text(page(found), encoding="utf-8")
        path.with_suffix(".svg").write_text(plot(found), encoding="utf-8")
    for row in missed(found.rows):
        print(f"not met: {row.what}: {row.measured}, and it should be {row.bound}", file=sys.stderr)
    return 1 if missed(found.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
