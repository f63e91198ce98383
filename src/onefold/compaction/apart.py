"""Finding facts in a process of its own, where there is much to read.

Reading a long conversation by rules takes seconds, and in Python one thread at a time runs: the agent's own appends
would wait for it again and again. So a child does it. What it cannot do, for whatever reason, the caller does itself,
more slowly and with the same result.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, BinaryIO

from onefold.model import Fact, Record

log = logging.getLogger("onefold")

WORTH_IT = 64 << 10
"""Tokens times four, about as many bytes: starting a process takes as long as reading that much."""
_AT_ONCE = 20
_LOOK = 0.25
_NICE = 10


def extracted_apart(
    groups: Sequence[Sequence[Record]], *, pause: Callable[[], object], stopped: Callable[[], bool]
) -> list[list[Fact]] | None:
    """The facts of each group of messages; None if that is better done here, or nobody wants them any more."""
    size = sum(4 * r.header.tokens for group in groups for r in group if r.header is not None)
    if size < WORTH_IT or not sys.executable or getattr(sys, "frozen", False):
        return None
    parts = []
    for group in groups:
        for at in range(0, len(group), _AT_ONCE):
            parts.append(pickle.dumps(list(group[at : at + _AT_ONCE])))
            pause()
        parts.append(pickle.dumps(None))
    try:
        answer = _asked(b"".join(parts), stopped)
        return None if answer is None else pickle.loads(answer)
    except (OSError, ValueError, EOFError, LookupError, ImportError, AttributeError, pickle.UnpicklingError) as error:
        log.warning("facts are looked for in this process, because one of their own does not work: %s", error)
        return None


def _asked(question: bytes, stopped: Callable[[], bool]) -> bytes | None:
    home = str(Path(__file__).parents[2])  # the same onefold, however this process found it
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C is for whoever waits for the compaction
    )
    assert child.stdin is not None
    writer = threading.Thread(target=_write, args=(child.stdin, question), name="onefold-apart", daemon=True)
    child.stdin = None  # `communicate`, called again after a timeout, would forget what is not written yet
    writer.start()
    with child:
        try:
            while not stopped():
                try:
                    answer, words = child.communicate(timeout=_LOOK)
                except subprocess.TimeoutExpired:
                    continue
                if child.returncode:
                    raise OSError(f"it ended with {child.returncode}: {words.decode(errors='replace')[-500:]}")
                return answer
            return None
        finally:
            child.kill()
            writer.join()


def _write(pipe: IO[bytes], question: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), pipe:  # a child that ended early says why by itself
        pipe.write(question)


def answer(source: BinaryIO, target: BinaryIO) -> None:
    """What the child does: groups of messages in, their facts out."""
    from onefold.compaction.extraction import extracted  # its many patterns are for the child alone

    found: list[list[Fact]] = []
    group: list[Record] = []
    with contextlib.suppress(EOFError):
        while True:
            some = pickle.load(source)
            if some is None:
                found.append(extracted(group))
                group = []
            else:
                group += some
    target.write(pickle.dumps(found))


if __name__ == "__main__":
    with contextlib.suppress(OSError, AttributeError):
        os.nice(_NICE)
    answer(sys.stdin.buffer, sys.stdout.buffer)
