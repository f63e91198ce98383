"""A search: how fast its index is filled, how large that is, and how long a question takes.

`python -m benchmarks.speed.search` measures this alone, in a store of as many messages as one likes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

import onefold
from benchmarks.speed.report import Row, as_text
from onefold.recall import Recall
from onefold.storage.locations import sidecar_path

MESSAGES = 10_000
_WORDS, _SAID, _ASKED, _QUESTIONS = 20_000, 60, 4, 50
_PAGE = 5_000


def searches(folder: Path, messages: int, say: Callable[[str], None]) -> list[Row]:
    """Words are drawn so that a few are in most messages and most are in a few."""
    say(f"search at {messages:,} messages")
    dice = Random(messages)
    words = ["".join(dice.choices("abcdefghijklmnoprstu", k=dice.randint(3, 10))) for _ in range(_WORDS)]
    often = [1 / (rank + 5) for rank in range(_WORDS)]
    path = folder / f"searched-{messages}.db"
    with onefold.open(path) as store:
        session = store.session("long")
        for first in range(0, messages, _PAGE):
            said = [
                f"{' '.join(dice.choices(words, often, k=_SAID))} src/mod{n}.py"
                for n in range(first, min(messages, first + _PAGE))
            ]
            session.append([{"role": "user", "content": text} for text in said])
        recall = Recall(store)
        began = time.perf_counter()
        recall.search(words[0], patience=None)
        filled = time.perf_counter() - began
        index = sidecar_path(str(path), "search")
        size = sum(p.stat().st_size for p in index.parent.glob(f"{index.name}*"))
        times = []
        for _ in range(_QUESTIONS):
            question = f"what did we say about {' '.join(dice.choices(words, k=_ASKED))}"
            began = time.perf_counter()
            recall.search(question, session="long", limit=10, patience=None)
            times.append(time.perf_counter() - began)
    return [
        Row(f"a search at {messages:,} messages", median(times) * 1e3, "ms", f"{max(times) * 1e3:.1f} ms at most"),
        Row(f"filling the search index of {messages:,} messages", messages / filled, "messages a second"),
        Row("search index, for a message of 430 bytes", size / messages, "bytes"),
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="onefold-bench-") as chosen:
        count = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
        print(as_text(searches(Path(chosen), count, lambda what: print(what, file=sys.stderr))))
