"""What quotes cost: choosing them in a megabyte of text, showing them, and a worker that makes them."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

import onefold
from benchmarks.speed.report import TIMES, Bound, Row
from onefold.model import Json
from onefold.worker import Worker

_MEGABYTE = 1_000_000
_WORDS = ["".join(Random(n).choices("aeiouklmnprst", k=3 + n % 7)) for n in range(4_000)]
"""What these people speak with, a few words often and most of them rarely."""
_SESSIONS, _TURNS = 4, 200
"""Of a worker, each round: about what fills a usual window."""
_LOOKS = 20
NONE = onefold.Policy(quote_tokens=0)
USUAL = onefold.Policy()


def quotes(folder: Path, rounds: int, say: Callable[[str], None]) -> list[Row]:
    return [_megabyte(folder, rounds, say), _shown(folder, rounds, say), _worker(folder, rounds, say)]


def _megabyte(folder: Path, rounds: int, say: Callable[[str], None]) -> Row:
    """One compaction of a megabyte that people said, with quotes and without."""
    say("choosing quotes in a megabyte of text")
    said = _people(_MEGABYTE)
    pairs = [(_compacted(folder, said, USUAL), _compacted(folder, said, NONE)) for _ in range(max(3, rounds // 3))]
    took, without = (median(side) for side in zip(*pairs, strict=True))
    tracemalloc.start()
    _compacted(folder, said, USUAL)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Row(
        "choosing quotes in a megabyte of people's words",
        max(0.0, took - without),
        "s",
        f"a compaction of {took:.2f} s against {without:.2f} without; {peak / 1e6:.0f} MB at its peak; "
        "finding facts by rules took 15 s",
    )


def _shown(folder: Path, rounds: int, say: Callable[[str], None]) -> Row:
    """The context of one conversation, with quotes and without."""
    say("a context with quotes, against one without")
    sides = []
    for name, policy in (("quoting", USUAL), ("silent", NONE)):
        store = onefold.open(folder / f"{name}.db", summarizer=onefold.extractive_summary, policy=policy)
        session = store.session("one")
        for n in range(4):
            session.append(_turns(n, _TURNS))
            session.compact()
        sides.append((store, session))
    pairs = [(_timed(sides[0][1].context), _timed(sides[1][1].context)) for _ in range(_LOOKS * rounds)]
    tokens = [session.context().tokens for _, session in sides]
    for store, _ in sides:
        store.close()
    with_quotes, without = (median(side) for side in zip(*pairs, strict=True))
    return Row(
        "context() with quotes, against one without",
        with_quotes / without,
        TIMES,
        f"{with_quotes * 1e3:.2f} against {without * 1e3:.2f} ms, {tokens[0]:,} against {tokens[1]:,} tokens; "
        f"with facts found by rules 1.17 {TIMES}",
    )


def _worker(folder: Path, rounds: int, say: Callable[[str], None]) -> Row:
    """Compactions of agents' conversations by a worker whose summaries cost nothing."""
    say("a worker that quotes, against one that does not")
    stores = [onefold.open(folder / f"worker-{n}.db", policy=policy) for n, policy in enumerate((USUAL, NONE))]
    pairs = []
    for n in range(max(5, rounds)):
        took = {at: _worked(stores[at], n) for at in ((0, 1) if n % 2 else (1, 0))}
        pairs.append((took[0], took[1]))
    for store in stores:
        store.close()
    rate, without = (_SESSIONS / median(side) for side in zip(*pairs, strict=True))
    return Row(
        "a worker with quotes, against one without",
        median(b / a for a, b in pairs),
        TIMES,
        f"{rate:,.0f} against {without:,.0f} compactions a second of {4 * _TURNS} messages; with facts found by rules "
        f"0.09 to 0.13 {TIMES}",
        Bound(0.7, TIMES, least=True),
    )


def _worked(store: onefold.Store, round: int) -> float:
    for n in range(_SESSIONS):
        session = store.session(f"session-{n}")
        session.append(_turns(1_000 * round + n, _TURNS))
        store.journal.request(session.id)
    worker = Worker(store, onefold.extractive_summary, upkeep=None)
    took = _timed(lambda: worker.run(threading.Event(), once=True))
    if worker.standing.committed != _SESSIONS:
        raise RuntimeError(f"the bench's own worker made {worker.standing.committed} of {_SESSIONS} compactions")
    return took


def _compacted(folder: Path, said: list[Json], policy: onefold.Policy) -> float:
    path = folder / "megabyte.db"
    with onefold.open(path, summarizer=onefold.extractive_summary, policy=policy) as store:
        session = store.session(f"{time.perf_counter_ns()}")
        session.append(said)
        return _timed(session.compact)


def _people(size: int) -> list[Json]:
    """So many bytes of users' messages, each with a short answer."""
    rng = Random(1)
    made: list[Json] = []
    while size > 0:
        words = " ".join(_sentence(rng) for _ in range(rng.randint(1, 8)))
        size -= len(words)
        made += [{"role": "user", "content": words}, {"role": "assistant", "content": "Ok."}]
    return made


def _turns(seed: int, turns: int) -> list[Json]:
    """An agent at work: a user's request, a call, its long result, an answer. People say a tenth of it."""
    rng = Random(seed)
    made: list[Json] = []
    for n in range(turns):
        call = f"call_{seed}_{n}"
        function = {"name": "look", "arguments": f'{{"page": {n}}}'}
        calls = [{"id": call, "type": "function", "function": function}]
        result = "\n".join(_sentence(rng) for _ in range(20))
        made += [
            {"role": "user", "content": " ".join(_sentence(rng) for _ in range(2))},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": call, "content": result},
            {"role": "assistant", "content": " ".join(_sentence(rng) for _ in range(4))},
        ]  # fmt: skip
    return made


def _sentence(rng: Random) -> str:
    words = [_WORDS[int(rng.paretovariate(0.6)) % len(_WORDS)] for _ in range(rng.randint(5, 14))]
    return f"{' '.join(words)} {rng.randrange(10**5)}." if rng.random() < 0.25 else f"{' '.join(words)}."


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
