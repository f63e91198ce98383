"""The measurements. The two sides of a ratio are measured in turn, and medians are compared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

import onefold
from benchmarks.speed.child import Child, append_times, together
from benchmarks.speed.files import append_to_files, list_of_files
from benchmarks.speed.followers import live_followers
from benchmarks.speed.listing import listed_sessions
from benchmarks.speed.quotes import quotes
from benchmarks.speed.report import TIMES, Bound, Row
from benchmarks.speed.search import MESSAGES, searches
from benchmarks.speed.stores import BATCH, TAIL, Bare, Statements, Straight, build, message, ready_to_commit
from onefold.messages import encode
from onefold.model import Quote, Quotes

_SMALL = 1_000
_WINDOW = 1_100
"""Messages of the bench that fill a window of 128,000 tokens."""
_QUOTED, _QUOTED_LENGTH = 300, 120
_MB = 1e6
_SHORT = 5
"""Into how many parts a round of appends is cut, so that its two sides lie close together: disks drift."""
_GROWN = 1_500
"""Commits after which a log has reached its lasting size; before that, each fsync costs more."""
Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    records: int
    rounds: int
    appends: int
    seconds: float
    followers: int


FULL = Size(records=1_000_000, rounds=15, appends=300, seconds=6.0, followers=1_000)
QUICK = Size(records=50_000, rounds=5, appends=150, seconds=2.0, followers=200)


def everything(folder: Path, size: Size, say: Say) -> list[Row]:
    rows = [*durable_append(folder, size, say), threads(folder, size, say), during_compaction(folder, size, say)]
    rows += processes(folder, size, say)
    rows += followers(folder, size, say)
    rows += live_followers(folder, size.followers, int(50 * 2 * size.seconds), 50.0, say)
    rows += listed_sessions(folder, size.followers * 10, say)
    rows.append(append_to_files(folder, size.appends // _SHORT, size.rounds * _SHORT, say))
    rows.append(list_of_files(folder, size.followers * 10, say))
    rows += quotes(folder, size.rounds, say)
    rows += searches(folder, MESSAGES, say)
    small, large = folder / "small.db", folder / "large.db"
    build(small, _SMALL, lambda _: None)

    say(f"a store of {size.records:,} records")
    build(large, size.records, lambda written: _every_tenth(written, size.records, say))
    rows += contexts(small, large, size, say)
    rows.append(commit(small, large, size, say))
    rows.append(fork(large, size, say))
    rows += on_disk(small, large, size, say)
    rows.append(quoted_contexts(small, large, size, say))
    return rows


def durable_append(folder: Path, size: Size, say: Say) -> list[Row]:
    bare, statements = Bare(folder / "bare.db"), Statements(folder / "statements.db")
    straight = Straight(folder / "straight.db")
    each, rounds = size.appends // _SHORT, size.rounds * _SHORT
    given = [message(n) for n in range(each)]
    texts = [encode(m) for m in given]
    with onefold.open(folder / "append.db") as store:
        session = store.session("one")

        def ours() -> None:
            for m in given:
                session.append(m)

        def theirs() -> None:
            for text in texts:
                bare.insert(text)

        def in_line() -> None:
            for m in given:
                straight.insert(m)

        def only_sql() -> None:
            for text in texts:
                statements.insert(text)

        say("durable append, against a bare insert")
        for _ in range(_GROWN // each):
            ours()
            theirs()
            only_sql()
            in_line()
        pairs = in_turn(lambda: timed(ours), lambda: timed(theirs), rounds)
        sql_pairs = in_turn(lambda: timed(only_sql), lambda: timed(theirs), rounds)
        line_pairs = in_turn(lambda: timed(in_line), lambda: timed(theirs), rounds)
    bare.close()
    statements.close()
    straight.close()
    rate, bare_rate = (each / median(side) for side in zip(*pairs, strict=True))
    more = (1 / rate - 1 / bare_rate) * 1e3
    return [
        Row(
            "durable append, one thread, against a bare insert",
            median(b / a for a, b in pairs),
            TIMES,
            f"{rate:,.0f} against {bare_rate:,.0f} a second, {more:.2f} ms more each",
            Bound(0.7, TIMES, least=True),
        ),
        Row(
            "the SQL of an append without the program around it, against a bare insert",
            median(b / a for a, b in sql_pairs),
            TIMES,
            "the rest of an append is Python: JSON, header, numbering, taking turns",
        ),
        Row(
            "what no append can do without, in one straight line, against a bare insert",
            median(b / a for a, b in line_pairs),
            TIMES,
            "JSON, id, header, turn, record, commit: no state, no shared commits, no care for what fails",
        ),
    ]


def threads(folder: Path, size: Size, say: Say) -> Row:
    with onefold.open(folder / "threads.db") as store:
        sessions = [store.session(f"thread-{n}") for n in range(16)]

        def alone() -> float:
            return size.appends / together([partial(_run, sessions[0], size.appends)])

        def many() -> float:
            each = size.appends // 4
            return 16 * each / together([partial(_run, session, each) for session in sessions])

        say("16 threads, against one")
        pairs = in_turn(alone, many, size.rounds)
    one, all_of_them = (median(side) for side in zip(*pairs, strict=True))
    return Row(
        "16 threads together, against one",
        median(b / a for a, b in pairs),
        TIMES,
        f"{all_of_them:,.0f} against {one:,.0f} a second",
        Bound(2, TIMES, least=True),
    )


def contexts(small: Path, large: Path, size: Size, say: Say) -> list[Row]:
    say(f"context(), at {size.records:,} records and at {_SMALL:,}")
    with onefold.open(small) as few, onefold.open(large) as many:
        at_few, at_many = few.session("long"), many.session("long")
        pairs = in_turn(lambda: timed(at_many.context), lambda: timed(at_few.context), 20 * size.rounds)
    slow, quick = (median(side) for side in zip(*pairs, strict=True))
    with Child("context", large) as child:
        child.go()
        found = child.found()
    return [
        Row(
            f"context() at {size.records:,} records, against {_SMALL:,}",
            slow / quick,
            TIMES,
            f"{slow * 1e3:.2f} against {quick * 1e3:.2f} ms, {found['messages']} messages",
            Bound(1.5, TIMES),
        ),
        Row(
            f"memory of a fresh process for context() at {size.records:,} records",
            found["peak"] / _MB,
            "MB",
            f"at its peak; {(found['peak'] - found['before']) / _MB:.1f} MB more than before it opened the store",
            Bound(100, "MB"),
        ),
    ]


def quoted_contexts(small: Path, large: Path, size: Size, say: Say) -> Row:
    """The last of all that is measured with these stores, which quote from then on."""
    say(f"context() with quotes, at {size.records:,} records and at {_SMALL:,}")

    def quoting(store: onefold.Store, records: int) -> onefold.Session:
        step = (records - 2 * TAIL) // _QUOTED
        scattered = [Quote(TAIL + n * step, "/content", 0, _QUOTED_LENGTH, 0.0) for n in range(_QUOTED)]
        ready_to_commit(store, TAIL, Quotes(tuple(scattered)))()
        return store.session("long")

    with onefold.open(small) as few, onefold.open(large) as many:
        at_few, at_many = quoting(few, _SMALL), quoting(many, size.records)
        pairs = in_turn(lambda: timed(at_many.context), lambda: timed(at_few.context), 20 * size.rounds)
        quoted = [len(session.context().quotes) for session in (at_few, at_many)]
    if quoted != [_QUOTED, _QUOTED]:
        raise RuntimeError(f"the bench's own contexts quote {quoted} messages, and not {_QUOTED} each")
    slow, quick = (median(side) for side in zip(*pairs, strict=True))
    return Row(
        f"context() with quotes at {size.records:,} records, against {_SMALL:,}",
        slow / quick,
        TIMES,
        f"{slow * 1e3:.2f} against {quick * 1e3:.2f} ms, from {_QUOTED} messages scattered over all of them",
        Bound(1.5, TIMES),
    )


def commit(small: Path, large: Path, size: Size, say: Say) -> Row:
    say(f"commit, at {size.records:,} records and at {_SMALL:,}")

    def once(store: onefold.Store) -> float:
        store.session("long").append([message(n) for n in range(4)])
        return timed(ready_to_commit(store, TAIL))

    with onefold.open(small) as few, onefold.open(large) as many:
        pairs = in_turn(lambda: once(many), lambda: once(few), 4 * size.rounds)
    slow, quick = (median(side) for side in zip(*pairs, strict=True))
    return Row(
        f"commit of a compaction at {size.records:,} records, against {_SMALL:,}",
        slow / quick,
        TIMES,
        f"{slow * 1e3:.2f} against {quick * 1e3:.2f} ms",
        Bound(1.5, TIMES),
    )


def fork(large: Path, size: Size, say: Say) -> Row:
    say(f"a fork at {size.records:,} records, against an append")
    with onefold.open(large) as store:
        session = store.session("long")
        pairs = in_turn(
            lambda: timed(session.fork), lambda: timed(partial(session.append, message(1))), 20 * size.rounds
        )
    slow, quick = (median(side) for side in zip(*pairs, strict=True))
    return Row(
        f"fork of a session of {size.records:,} records, against an append to it",
        slow / quick,
        TIMES,
        f"{slow * 1e3:.2f} against {quick * 1e3:.2f} ms",
        Bound(2, TIMES),
    )


def during_compaction(folder: Path, size: Size, say: Say) -> Row:
    """Each round with a compaction begins before its first append and ends after its last but a few."""
    policy = onefold.Policy(lease_renew_interval=0.25)
    appends = 10 * size.appends
    enough = threading.Event()

    def slow(material: onefold.SummaryInput) -> str:
        enough.wait(60)
        return f"The summary of {len(material.records)} messages up to {material.records[-1].number}. " * 4

    with onefold.open(folder / "during.db", summarizer=slow, policy=policy) as store:
        session = store.session("one")
        append_times(session, appends)

        def quiet() -> list[float]:
            return append_times(session, appends)

        def compacting() -> list[float]:
            enough.set()
            session.compact(base=session.head)
            append_times(session, _WINDOW)
            enough.clear()
            started = session.compact(wait=False, base=session.head)
            times = append_times(session, appends - appends // 10)
            if session.compaction_holder() is None:
                raise RuntimeError("the compaction was over before the appends were")
            enough.set()
            times += append_times(session, appends // 10)
            ended = session.compact(base=started.segment)
            if ended.segment == started.segment:
                raise RuntimeError(f"the compaction did not end well: {ended.cause}")
            return times

        say("appends while a compaction runs, against without")
        pairs = in_turn(compacting, quiet, size.rounds)
    # All rounds of a side together: the slowest hundredth of one round is a handful of hiccups of the disk.
    with_one, without = (_p99([t for times in side for t in times]) for side in zip(*pairs, strict=True))
    return Row(
        "append p99 during a compaction, against without",
        with_one / without,
        TIMES,
        f"{with_one * 1e3:.2f} against {without * 1e3:.2f} ms",
        Bound(1.5, TIMES),
    )


def processes(folder: Path, size: Size, say: Say) -> list[Row]:
    say("4 processes with 4 threads each")
    with ExitStack() as stack:
        store = folder / "processes.db"
        onefold.open(store).close()
        children = [stack.enter_context(Child("writers", store, 4, size.appends)) for _ in range(4)]
        for child in children:
            child.go()
        found = [child.found() for child in children]
    took = max(f["end"] for f in found) - min(f["start"] for f in found)
    return [
        Row(f"4 processes {TIMES} 4 threads, together", sum(f["appends"] for f in found) / took, "appends a second"),
        Row(f"4 processes {TIMES} 4 threads, worst wait", max(f["worst"] for f in found) * 1e3, "ms"),
    ]


def followers(folder: Path, size: Size, say: Say) -> list[Row]:
    say("a follower in another process")
    store_path = folder / "followed.db"
    pause = threading.Event()
    returned: dict[int, float] = {}
    count = size.appends
    with onefold.open(store_path) as store:
        session = store.session("followed")
        with Child("follower", store_path, count) as child:
            child.go()
            for n in range(count):
                pause.wait(0.001 * (n % 25))
                number = session.append(message(n)).numbers[0]
                returned[number] = time.monotonic()
            seen = {int(number): at for number, at in child.found().items()}
        late = sorted(max(0.0, seen[number] - at) for number, at in returned.items())
        store.session("quiet")
        say("an idle follower")
        with Child("idler", store_path, size.seconds) as child:
            child.go()
            share = child.found()["share"]
    return [
        Row("follower in another process, p50", median(late) * 1e3, "ms"),
        Row("follower in another process, p99", _p99(late) * 1e3, "ms"),
        Row("idle follower, share of a core", share * 100, "%", bound=Bound(1, "%")),
    ]


def on_disk(small: Path, large: Path, size: Size, say: Say) -> list[Row]:
    say("opening, and size on disk")

    def once(path: Path) -> float:
        began = time.perf_counter()
        store = onefold.open(path)
        store.session("long")
        took = time.perf_counter() - began
        store.close()
        return took

    pairs = in_turn(lambda: once(large), lambda: once(small), size.rounds)
    slow, quick = (median(side) for side in zip(*pairs, strict=True))
    body = len(encode(message(1)))
    return [
        Row("size on disk", large.stat().st_size / size.records, "bytes a record", f"of {body} bytes of JSON each"),
        Row(f"opening a store of {size.records:,} records", slow * 1e3, "ms", f"{quick * 1e3:.2f} ms at {_SMALL:,}"),
    ]


def _every_tenth(written: int, records: int, say: Say) -> None:
    if written % (records // 10) < BATCH:
        say(f"a store of {records:,} records: {written:,} written")


def _run(session: onefold.Session, appends: int) -> None:
    for n in range(appends):
        session.append(message(n))


def timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def in_turn(one: Callable[[], T], other: Callable[[], T], rounds: int) -> list[tuple[T, T]]:
    """Measures both sides in every round, and changes who comes first."""
    pairs = []
    for n in range(rounds):
        if n % 2:
            second = other()
            pairs.append((one(), second))
        else:
            pairs.append((one(), other()))
    return pairs


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]
