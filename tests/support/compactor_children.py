"""What the processes of the compactor's tests do."""

from __future__ import annotations

import threading

import onefold
from onefold import Compactor, SummaryInput
from tests.support.helpers import at_barrier, hear, quick, say


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
