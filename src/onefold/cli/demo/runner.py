"""Runs the demo, and follows the journal while it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import onefold
from onefold.cli.demo.processes import Cast, Child, StoryFailed
from onefold.cli.demo.report import Narrator
from onefold.cli.demo.scenario import CALLERS, POLICY, SOFT, WRITERS
from onefold.ids import random_id
from onefold.model import COMMITTED, FAILED, JOINED, MESSAGE, REQUESTED, SEGMENT_OPENED, Record
from onefold.session import Session
from onefold.store import Store


@dataclass(frozen=True, slots=True)
class Point:
    """The context's size after a record."""

    seconds: float
    tokens: int


@dataclass(slots=True)
class Played:
    """Everything the checks go by."""

    store: Store
    session: Session
    children: list[Child]
    killed: list[Child]
    late: list[Child]
    """Processes that were stopped past their lease and finished too late."""
    followed: list[Record]
    curve: list[Point] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)
    seconds: float = 0.0


class DemoFollower:
    """Reads the journal as it grows, as any other program could, and tells what it sees."""

    def __init__(self, session: Session, narrator: Narrator, news: threading.Condition) -> None:
        self.records: list[Record] = []
        self.curve: list[Point] = []
        self.commits: list[float] = []
        self.began = session.state.created_at
        self._session = session
        self._narrator = narrator
        self._news = news
        self._until: int | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def tokens(self) -> int:
        return self.curve[-1].tokens if self.curve else 0

    def count(self, kind: str, since: int = 0) -> int:
        return sum(1 for r in list(self.records[since:]) if r.kind == kind)

    def finish(self, last: int) -> None:
        """Reads on to this record, and ends."""
        self._until = last
        self._thread.join(timeout=20)

    def _follow(self) -> None:
        while self._until is None or len(self.records) < self._until:
            for record in self._session.follow(len(self.records), idle=0.2):
                self._see(record)

    def _see(self, record: Record) -> None:
        tokens = self.tokens
        if record.kind == MESSAGE and record.header is not None:
            tokens += record.header.tokens
        elif record.kind == SEGMENT_OPENED:
            tokens = record.body.get("tokens_after", 0)
        seconds = record.at - self.began
        if record.kind == COMMITTED:
            self.commits.append(seconds)
        with self._news:
            self.curve.append(Point(seconds, tokens))
            self.records.append(record)
            self._narrator.record(record, seconds, self.records, tokens)  # told before anybody acts on it
            self._news.notify_all()


@contextlib.contextmanager
def play(store: str, pace: float, narrator: Narrator) -> Iterator[Played]:
    """Plays the story; inside the block the store is open and every process of the story has ended."""
    news = threading.Condition()
    with onefold.open(store, policy=POLICY) as opened, tempfile.TemporaryFile() as log:
        session = opened.session(_free_name(opened))
        began = time.monotonic()
        narrator.begin(store, session.id)
        follower = DemoFollower(session, narrator, news)
        try:
            with Cast(store, session.id, pace, news, log) as cast:
                late = Play(cast, follower, narrator).all()
        except StoryFailed as error:
            log.seek(0)
            heard = log.read().decode(errors="replace").strip().splitlines()[-3:]
            raise StoryFailed(f"{error}. {' / '.join(heard)}".strip()) from None
        finally:
            follower.finish(session.state.last)
        yield Played(
            opened, session, cast.children, cast.killed, late, follower.records, follower.curve, follower.commits,
            time.monotonic() - began,
        )  # fmt: skip


def _free_name(store: Store) -> str:
    taken = {state.id for state in store.walk()}
    return "demo" if "demo" not in taken else f"demo-{random_id()[:6]}"


class Play:
    """The acts, one method each."""

    def __init__(self, cast: Cast, follower: DemoFollower, narrator: Narrator) -> None:
        self.cast = cast
        self.sees = follower
        self.tell = narrator

    def all(self) -> list[Child]:
        writers = self.three_processes_talk()
        self.three_triggers_at_once()
        self.a_compactor_is_killed()
        late = self.a_compactor_comes_too_late()
        self.calm_again(writers)
        return [late]

    def three_processes_talk(self) -> list[Child]:
        writers = [self.cast.start("writer", name) for name in WRITERS]
        self._ready(*writers)
        self.tell.act("Three processes talk in one session; ada compacts in the background.")
        writers[0].tell("watch")
        self._commits(2, "ada's compactions")
        writers[0].tell("watch off")
        self.cast.until("the end of ada's compaction", self._settled)
        return writers

    def three_triggers_at_once(self) -> None:
        commits = self.sees.count(COMMITTED)
        barrier, gate = os.pipe()
        self.tell.act("Three more ask at once: by hand, at the threshold, after an overflow.")
        try:
            callers = [
                self.cast.start(
                    "caller", name, trigger=trigger, barrier=barrier, callers=len(CALLERS), pass_fds=(barrier,)
                )
                for name, trigger in CALLERS.items()
            ]
            self._ready(*callers)
            self._full()
        finally:
            os.close(barrier)
            os.close(gate)
        self._commits(commits + 1, "the compaction that three asked for")
        self._over(*callers)

    def a_compactor_is_killed(self) -> None:
        commits = self.sees.count(COMMITTED)
        self.tell.act("A compactor is killed in mid summary, while another one waits for it.")
        victim, heir = self._holder_and_heir("gil", "hal")
        self.cast.kill(victim)
        self.tell.note(f"SIGKILL for gil (pid {victim.pid})")
        self._commits(commits + 1, "the takeover")
        self._over(heir)

    def a_compactor_comes_too_late(self) -> Child:
        commits = self.sees.count(COMMITTED)
        self.tell.act("A compactor is stopped past its lease, then comes with its summary.")
        late, heir = self._holder_and_heir("ivy", "joe")
        self._stop(late)
        self.tell.note(f"SIGSTOP for ivy (pid {late.pid})")
        self._commits(commits + 1, "the takeover")
        late.tell("hurry")
        late.signal(signal.SIGCONT)
        self._over(late, heir)
        if late.heard("refused"):
            self.tell.note("ivy goes on; its commit is rejected, and nothing is written")
        return late

    def calm_again(self, writers: list[Child]) -> None:
        commits = self.sees.count(COMMITTED)
        self.tell.act("The talk went on all the while; ada watches again.")
        writers[0].tell("watch")
        self._commits(commits + 1, "ada's last compaction")
        writers[0].tell("watch off")
        self.cast.until("the end of ada's compaction", self._settled)
        seen = len(self.sees.records)
        self.cast.until("some more talk", lambda: len(self.sees.records) > seen + 20)
        for writer in writers:
            writer.tell("stop")
        self._over(*writers)

    def _holder_and_heir(self, first: str, second: str) -> tuple[Child, Child]:
        """One process in mid summary, and another one that waits for it."""
        joins = self.sees.count(JOINED)
        holder = self.cast.start("slow", first, trigger="threshold")
        heir = self.cast.start("quick", second, trigger="overflow")
        self._ready(holder, heir)
        self._full()
        holder.tell("ask")
        self.cast.until(f"{first}'s summary", lambda: bool(holder.heard("summarizing")))
        heir.tell("ask")
        self.cast.until(f"{second}'s request", lambda: self.sees.count(JOINED) > joins)
        return holder, heir

    def _stop(self, child: Child) -> None:
        """Stops a process, but not inside a transaction: nobody could write until it goes on. Then tries again."""
        for _ in range(20):
            seen = len(self.sees.records)
            child.signal(signal.SIGSTOP)
            if self.cast.within(1.0, lambda: len(self.sees.records) > seen + 6):  # noqa: B023  used at once
                return
            child.signal(signal.SIGCONT)
        raise StoryFailed(f"the story stopped: nobody could write while {child.name} was stopped")

    def _ready(self, *children: Child) -> None:
        self.cast.until("the start of all processes", lambda: all(c.heard("ready") for c in children))

    def _full(self) -> None:
        self.cast.until("a full context", lambda: self.sees.tokens >= SOFT)

    def _commits(self, number: int, what: str) -> None:
        self.cast.until(what, lambda: self.sees.count(COMMITTED) >= number)

    def _settled(self) -> bool:
        ended = self.sees.count(COMMITTED) + sum(
            1 for r in list(self.sees.records) if r.kind == FAILED and r.body["final"]
        )
        return ended == self.sees.count(REQUESTED)

    def _over(self, *children: Child) -> None:
        self.cast.until("the end of processes", lambda: all(c.heard("done") for c in children))
        for child in children:
            child.process.wait(timeout=30)
