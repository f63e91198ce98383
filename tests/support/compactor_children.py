"""What the processes of the compactor's tests do."""

from __future__ import annotations

import os
import sys
import threading

import onefold
from onefold import Compactor, SummaryInput
from tests.support.helpers import PATIENCE, at_barrier, hear, quick, say


def prepare(path: str, session: str, limits: list[int]) -> None:
    """Begins a turn at the soft limit, and never ends the summary that this begins."""
    window, output = limits
    with onefold.open(path, policy=quick(limits=onefold.Limits(window, output, 0.5, 0.9))) as store:

        def endless(material: SummaryInput) -> str:
            say("summarizing", attempt=material.attempt)
            hear("never")
            return "too late"

        Compactor(store, endless).before_turn(store.session(session))
        threading.Event().wait()


def mask(path: str, session: str, limits: list[int], rounds: int) -> None:
    """Begins a turn with a full context, together with others, so many times, each in a session of its own; says how
    large its contexts were, and how many results were one line in them."""
    window, output = limits
    policy = quick(limits=onefold.Limits(window, output, 0.5, 0.9), mask_newest=3)
    with onefold.open(path, policy=policy) as store:

        def never(material: SummaryInput) -> str:
            raise AssertionError("a model was asked")

        compactor = Compactor(store, never)
        for n in range(rounds):
            at_barrier()
            context = compactor.before_turn(store.session(f"{session}{n}"))
            say("masked", tokens=context.tokens, masked=len(context.masked))


def short_lives(path: str, session: str, limits: list[int], turns: int) -> None:
    """Has so many processes take one turn each, one after another, a minute apart, and says what each ended with. A
    summary takes longer than a turn, unless its turn waits for it."""
    for turn in range(turns):
        if (pid := os.fork()) == 0:
            sys.exit(_one_turn(path, session, limits, turn))
        say("lived", ended=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _one_turn(path: str, session: str, limits: list[int], turn: int) -> int:
    """What the process ends with: 0 for a turn that was allowed, 2 for one that was allowed while a summary was under
    way, which is left to the end of the process, 1 for one that was refused."""
    window, output = limits
    policy = quick(limits=onefold.Limits(window, output, 0.5, 0.9), wait_timeout=PATIENCE)
    asked, waited_for = threading.Event(), threading.Event()

    def slow(material: SummaryInput) -> str:
        asked.set()
        waited_for.wait(PATIENCE)
        return f"A summary, up to #{material.records[-1].number}."

    store = onefold.open(path, policy=policy, clock=lambda: 1_700_000_000.0 + 60.0 * turn)
    opened = store.session(session)
    opened.append({"role": "user", "content": f"question {turn} " + "word " * 12})
    if opened.state.tokens > policy.of().hard_tokens:
        waited_for.set()
    try:
        Compactor(store, slow).before_turn(opened)
    except onefold.ContextTooLarge:
        return 1
    begun = opened.compaction_holder() is not None
    if begun:
        asked.wait(PATIENCE)  # it is paid for
    opened.append({"role": "assistant", "content": f"answer {turn} " + "word " * 12})
    if turn % 2:
        store.close()
    return 2 if begun else 0
