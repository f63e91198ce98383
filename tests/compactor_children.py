"""What the processes of the compactor's tests do."""

from __future__ import annotations

import threading

import onefold
from onefold import Compactor, Material
from tests.helpers import hear, quick, say


def prepare(path: str, session: str, limits: list[int]) -> None:
    """Begins a turn at the soft limit, and never ends the summary that this begins."""
    window, output = limits
    with onefold.open(path, policy=quick(limits=onefold.Limits(window, output, 0.5, 0.9))) as store:

        def endless(material: Material) -> str:
            say("summarizing", attempt=material.attempt)
            hear("never")
            return "too late"

        Compactor(store, endless).before_turn(store.session(session))
        threading.Event().wait()
