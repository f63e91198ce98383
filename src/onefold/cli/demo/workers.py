"""The worker processes of the demo. Each prints JSON lines: what it was promised, what it does, how it ended.

A line on stdin is a command; the end of stdin means that the parent is gone, and then so is the actor.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict

import onefold
from onefold.cli.demo.scenario import POLICY, REPEAT_EVERY, SOFT, conversation
from onefold.compaction.summarizer import SummaryInput
from onefold.errors import CommitRefused
from onefold.export import plain
from onefold.messages import decode, digest, encode
from onefold.model import Json, Summary
from onefold.session import Session

Mind = Callable[[SummaryInput], Summary]


class Actor:
    """What every process has: the store, a voice and an ear."""

    def __init__(self, part: Json) -> None:
        self.name: str = part["name"]
        self.pace: float = part["pace"]
        self.part = part
        self._told: set[str] = set()
        self._news = threading.Condition()
        self._voice = threading.Lock()
        self.store = onefold.open(part["store"], create=False, policy=POLICY, agent=self.name)
        self.session: Session = self.store.session(part["session"], create=False)
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, what: str, **more: Json) -> None:
        with self._voice:
            sys.stdout.write(encode({"say": what, **more}) + "\n")
            sys.stdout.flush()

    def told(self, command: str, seconds: float = 0.0) -> bool:
        """Whether the parent gave this command; waits for it so long."""
        with self._news:
            return self._news.wait_for(lambda: command in self._told, seconds)

    def _listen(self) -> None:
        for line in sys.stdin:
            with self._news:
                word, _, off = line.strip().partition(" ")
                (self._told.discard if off == "off" else self._told.add)(word)
                self._news.notify_all()
        os._exit(3)

    def think(self, seconds: float) -> Mind:
        """A summarizer that takes its time, as a model does."""

        def summarise(material: SummaryInput) -> Summary:
            self.say("summarizing", attempt=material.attempt)
            self.told("hurry", seconds * self.pace)
            return onefold.extractive_summary(material)

        return summarise


def writer(actor: Actor) -> None:
    """Appends until it is told to stop, repeats some appends, and compacts in the background if told to watch."""
    actor.say("ready")
    turn = sent = 0
    while not actor.told("stop"):
        for messages in conversation(actor.name, turn):
            key = f"{actor.name}-{sent}"
            promised = actor.session.append(messages, key=key, actor=actor.name)
            marks = [digest("", "message", "openai-chat", m) for m in messages]
            actor.say("acknowledged", key=key, numbers=list(promised.numbers), digests=marks)
            sent += 1
            if sent % REPEAT_EVERY == 0:
                again = actor.session.append(messages, key=key, actor=actor.name)
                actor.say("repeated", same=again.duplicate and again.numbers == promised.numbers)
            if actor.told("watch") and actor.session.state.open is None:
                _watch(actor)
            actor.told("stop", 0.16 * actor.pace)
        turn += 1


def _watch(actor: Actor) -> None:
    """At the soft limit the summary is made while the talk goes on."""
    context = actor.session.context()
    if context.tokens >= SOFT:
        actor.say("asking")
        result = actor.session.compact(actor.think(0.6), trigger="threshold", wait=False)
        actor.say("asked", id=result.id, joined=result.joined)


def caller(actor: Actor) -> None:
    """Measures the context, waits at the barrier with the others, and asks for a compaction at the same moment."""
    actor.session.context()
    actor.say("ready")
    os.read(actor.part["barrier"], 1)  # it ends when the parent opens the barrier, for all at once

    def summarise(material: SummaryInput) -> Summary:
        made = actor.think(1.2)(material)
        _everybody_asked(actor, actor.part["callers"])
        return made

    _ask(actor, summarise)


def _everybody_asked(actor: Actor, callers: int) -> None:
    """On a busy machine a caller may be late: the summary is not done before all of them have asked."""
    last = actor.session.state.last
    if actor.session.compactions()[-1].requests >= callers:
        return
    for _ in actor.session.follow(last, idle=10.0):
        if actor.session.compactions()[-1].requests >= callers:
            return


def slow(actor: Actor) -> None:
    """Begins a summary that only the parent's word ends; by then somebody else may have committed."""
    refused = threading.Event()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if isinstance(record.args, tuple) and record.args and isinstance(record.args[0], CommitRefused):
                actor.say("refused", why=str(record.args[0]))
                refused.set()

    log = logging.getLogger("onefold")
    log.setLevel(logging.INFO)
    log.addHandler(Ear())
    _on_command(actor)
    _ask(actor, actor.think(60.0 / actor.pace))
    refused.wait(10.0)


def quick(actor: Actor) -> None:
    """Asks as well, and takes over if it has to."""
    _on_command(actor)
    _ask(actor, actor.think(0.6))


def _on_command(actor: Actor) -> None:
    actor.say("ready")
    actor.told("ask", 60.0)
    actor.session.context()


def _ask(actor: Actor, mind: Mind) -> None:
    actor.say("asking")
    result = actor.session.compact(mind, trigger=actor.part["trigger"])
    actor.say("asked", id=result.id, joined=result.joined)
    actor.say("result", **plain(asdict(result)))


PARTS = {"writer": writer, "caller": caller, "slow": slow, "quick": quick}


def main() -> None:
    part = decode(sys.argv[1])
    actor = Actor(part)
    PARTS[part["role"]](actor)
    actor.store.close()
    actor.say("done")


if __name__ == "__main__":
    main()
