"""Random histories of everything that can happen to sessions, judged after each step by `tests.support.life_oracle`.

A summary here is a text that lists the records it stands for, made of nothing but the material that the library hands
to a summarizer. So a context can be read for what it knows, and a message is lost exactly if it is neither there nor in
that list. ONEFOLD_STEPS=100000 makes a long run, with other histories each time.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import onefold
from onefold import Policy, Session, Store
from onefold.compaction.context import Context
from onefold.compaction.cut_planner import Plan, plan
from onefold.compaction.material import Past, load_material
from onefold.dry_run import dry_run_of
from onefold.errors import OnefoldError
from onefold.journal import adoption, agent_compactions, forks, masks, pins_and_notes, summary_drafts, undo, unfold
from onefold.journal.adoption import Origin
from onefold.journal.process_liveness import Whereabouts
from onefold.messages import draft
from onefold.model import Claim, Json, Quote, Quotes, Record, Summary, Usage
from onefold.turn import Turn
from tests.conftest import KINDS, NOON, CountedIds, StoppedClock, who
from tests.support.life_oracle import Act, Life, Refused, World

ASKED = int(os.environ.get("ONEFOLD_STEPS", "0"))
STEPS = 50
LEASE, LIFE, TURN = 100.0, 250.0, 3000.0
MOST = 5
QUOTED = 5
"""So many sessions at once: few enough that their fates cross."""

ORIGINS = {"openai": Origin("openai"), "anthropic": Origin("anthropic", account="ours")}

POLICY = Policy(
    turn_lease=TURN, tail_tokens=30, min_shrink=0.05
)  # a turn's own thread would renew it long after the test

some = st.integers(0, 11)
where = st.integers(-4, 40)
keys = st.sampled_from([None, None, "k1", "k2", "k3"])
names = st.sampled_from(["s1", "s2", "s3", "f1", "f2", "f3", "a1", "a2", "a3"])
roles = st.lists(st.sampled_from(["user", "assistant", "call", "result", "system"]), min_size=1, max_size=4)
calls = st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True)


ADOPTING: dict[str, Any] = {
    "some": some,
    "origin": st.sampled_from([*ORIGINS]),
    "drop": st.integers(-6, 3),
    "again": st.integers(-3, 2),
    "sealed": st.booleans(),
    "speaks": st.booleans(),
}


@dataclass
class Handle:
    """A session in somebody's hands: what it has seen, by its last look and its own writing."""

    session: Session
    saw: int
    """The segment that was in force, and the newest record."""
    seen: int
    wrote: set[int] = field(default_factory=set)


@dataclass
class InTurn:
    handle: Handle
    turn: Turn
    number: int


@dataclass
class Worker:
    """A claim, and what its holder read when it was granted. It may come back with that at any time."""

    life: Life
    claim: Claim
    act: Act
    previous: set[int]
    messages: list[int]
    cuts: list[int]
    """Those that part no call from its result."""
    planned: Plan | None


@dataclass
class Made:
    """What a provider was sent, and, once it answered, the messages in which it made something of that."""

    life: Life
    origin: str
    sent: frozenset[int]
    knows: frozenset[int]
    window: tuple[int, ...] = ()


class Mortals:
    """A machine on which each claim and each turn has a process of its own, which lives until it is said to be dead."""

    def __init__(self) -> None:
        self.born = 0
        self.dead: set[Json] = set()

    def this(self) -> Json:
        self.born += 1
        return self.born

    def whereabouts(self, process: Json) -> Whereabouts:
        return "gone" if process in self.dead else "here"


class Lives(RuleBasedStateMachine):
    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="onefold-life-"))
        self.clock = StoppedClock()
        self.ids = CountedIds()
        self.machine = Mortals()
        self.store = self.opened()
        self.world = World(NOON)
        self.handles: list[Handle] = []
        self.turns: list[InTurn] = []
        self.workers: list[Worker] = []
        self.drafts: list[tuple[Life, int, int, frozenset[int]]] = []
        """Summaries that were made once more, each with its record, the head then, and what it knows."""
        self.sends: list[Made] = []
        self.items: list[Made] = []
        self.looks: dict[str, Session] = {}
        self.past: dict[tuple[str, int], set[int]] = {}
        """The messages that stood in each session's context when it ended at a record."""
        self.words = 0
        self.told: Counter[str] = Counter()
        """How often an append was new, was there already, and was there but taken back."""
        self.steps = 0
        self.held: dict[str, tuple[onefold.SessionState, ...]] = {}
        """Each session and those it comes from, as they were when every promise was seen to hold."""

    def opened(self) -> Store:
        store = onefold.open(KINDS[self.kind](self.folder), clock=self.clock, ids=self.ids, policy=POLICY)
        store.journal.leases.machine = self.machine
        return store

    def teardown(self) -> None:
        assert self.store.verify().findings == ()
        self.let_go()
        self.store.close()
        shutil.rmtree(self.folder)

    def let_go(self) -> None:
        for t in self.turns:
            t.turn._over.set()

    # ------------------------------------------------------------------ small parts

    def life(self, some: int) -> Life:
        return list(self.world.lives.values())[some % len(self.world.lives)]

    def handle(self, some: int) -> Handle:
        return self.handles[some % len(self.handles)]

    def of(self, handle: Handle) -> Life:
        """The life that a handle is on. What was deleted has none."""
        if (life := self.world.lives.get(handle.session.id)) is None:
            raise Refused("SessionNotFound")
        return life

    def add_handle(self, session: Session) -> None:
        life = self.world.lives[session.id]
        self.handles = [*self.handles[-7:], Handle(session, life.head, life.last)]

    def said(self, role: str, **more: Json) -> Json:
        self.words += 1
        if role == "call":
            return self.said("assistant", tool_calls=[call_of("a")])
        if role == "result":
            return self.said("tool", tool_call_id="a")
        many = self.words % 9 if role != "tool" else 60 * (self.words % 2)  # some results are long
        return {"role": role, "content": f"word {self.words} " + "of many " * many, **more}

    def both(self, real: Callable[[], Any], ideal: Callable[[Any], Any]) -> tuple[Any, Any]:
        """Does it, and asks the oracle what had to come of it: the same refusal, or an answer each."""
        got, error, expected, why = None, None, None, None
        try:
            got = real()
        except OnefoldError as raised:
            error = raised
        try:
            expected = ideal(got)
        except Refused as refused:
            why = refused.why
        assert (type(error).__name__ if error else None) == why, f"the oracle says {why}, the library: {error!r}"
        return got, expected

    # ------------------------------------------------------------------ sessions and messages

    @initialize()
    def begins(self) -> None:
        self.create("s1", "onefold")
        self.say(0, False, ["system", "user", "assistant", "user", "call", "result", "assistant"], None)

    @precondition(lambda self: len(self.world.lives) < MOST)
    @rule(id=names, keeper=st.sampled_from(["onefold", "onefold", "agent"]))
    def create(self, id: str, keeper: Any) -> None:
        known = self.world.names.get(id)
        got, life = self.both(
            lambda: self.store.session(id, keeper=keeper), lambda _: self.world.create(known or id, keeper)
        )
        if got is not None:
            assert got.id == life.id
            self.add_handle(got)

    def write(self, some: int, inside: bool, bodies: list[Json], key: str | None) -> None:
        """An append: free, or by somebody who has, or had, a turn."""
        known = {id: dict(life.keys) for id, life in self.world.lives.items()}
        if inside and self.turns:
            mine = self.turns[-1 - some % len(self.turns)]
            got, numbers = self.both(
                lambda: mine.turn.append(bodies, key=key),
                lambda _: self.of(mine.handle).append(bodies, key, mine.number),
            )
            handle = mine.handle
        else:
            handle = self.handle(some)
            got, numbers = self.both(
                lambda: handle.session.append(bodies, key=key), lambda _: self.of(handle).append(bodies, key)
            )
        if got is not None:
            life = self.of(handle)
            assert list(got.numbers) == numbers
            assert got.duplicate == (key in known[life.id])
            assert list(got.hidden) == (life.taken_back(numbers) if got.duplicate else [])
            self.told["again" if got.hidden else "there" if got.duplicate else "new"] += 1
            handle.wrote |= set(numbers)

    @rule(some=some, inside=st.booleans(), roles=roles, key=keys)
    def say(self, some: int, inside: bool, roles: list[str], key: str | None) -> None:
        self.write(some, inside, [self.said(role) for role in roles], key)

    @rule(some=some, inside=st.booleans(), count=st.integers(1, 2))
    def replace_prompt(self, some: int, inside: bool, count: int) -> None:
        """A program begins with another system prompt."""
        bodies = [self.said("system") for _ in range(count)]
        mine = self.turns[-1 - some % len(self.turns)] if inside and self.turns else None
        handle = self.handle(some) if mine is None else mine.handle
        got, numbers = self.both(
            lambda: (handle.session if mine is None else mine.turn).append(bodies, slot="prompt"),
            lambda _: self.of(handle).append_prompt(bodies, None if mine is None else mine.number),
        )
        if got is not None:
            assert list(got.numbers) == numbers
            handle.wrote |= set(numbers)

    @rule(some=some, inside=st.booleans())
    def work(self, some: int, inside: bool) -> None:
        """What a turn is made of."""
        self.write(some, inside, [self.said(role) for role in ("user", "call", "result", "assistant")], None)

    @rule(some=some, inside=st.booleans(), key=st.sampled_from(["k1", "k2", "k3"]), other=st.booleans())
    def say_again(self, some: int, inside: bool, key: str, other: bool) -> None:
        """The same key once more, for the same content or for another."""
        life = self.world.lives.get(self.handle(some).session.id)
        before = life.keys[key][1] if life is not None and key in life.keys else None
        if isinstance(before, tuple) and before[0] == "message" and not other:
            self.write(some, inside, before[1], key)
        else:
            self.write(some, inside, [self.said("user")], key)

    @rule(some=some, key=st.sampled_from(["k1", "k2", "k3"]), place=where, how=st.sampled_from("uuured"), queued=some)
    def say_after_taking_back(self, some: int, key: str, place: int, how: str, queued: int) -> None:
        """What had a key is undone or erased, perhaps brought back, and said once more."""
        life = self.world.lives.get(self.handle(some).session.id)
        self.queue(some, key) if queued == 0 else self.say_again(some, False, key, False)
        self.take(some, False, None) if queued == 0 and life is not None and life.inputs else None
        self.look(some)
        match how:
            case "u":
                self.undo(some)
            case "r":
                self.rewind(some, place)
            case "e":
                self.erase(some, place)
            case "d":
                self.undo(some)
                self.redo(some)
        if queued == 0 and life is not None and key in life.keys and life.keys[key][1][0] == "input.queued":
            body = life.keys[key][1][1][0]
            handle = self.handle(some)
            number, _ = self.both(
                lambda: handle.session.queue_input(body, key=key),
                lambda _: self.of(handle).append([body], key, kind="input.queued"),
            )
            assert number is None or list(handle.session.hidden(number)) == self.of(handle).taken_back([number])
        self.say_again(some, False, key, False)

    @rule(some=some, inside=st.booleans(), ids=calls)
    def call(self, some: int, inside: bool, ids: list[str]) -> None:
        self.write(some, inside, [self.said("assistant", tool_calls=[call_of(id) for id in ids])], None)

    @rule(some=some, inside=st.booleans(), ids=calls)
    def answer(self, some: int, inside: bool, ids: list[str]) -> None:
        self.write(some, inside, [self.said("tool", tool_call_id=id) for id in ids], None)

    @rule(some=some, key=keys)
    def queue(self, some: int, key: str | None) -> None:
        handle, body = self.handle(some), self.said("user")
        got, numbers = self.both(
            lambda: handle.session.queue_input(body, key=key),
            lambda _: self.of(handle).append([body], key, kind="input.queued"),
        )
        assert got is None or got == numbers[0]
        if got is not None:
            assert list(handle.session.hidden(got)) == self.of(handle).taken_back([got])

    @precondition(lambda self: any(life.inputs or life.keys for life in self.world.lives.values()))
    @rule(some=some, inside=st.booleans(), key=keys)
    def take(self, some: int, inside: bool, key: str | None) -> None:
        mine = self.turns[-1 - some % len(self.turns)] if inside and self.turns else None
        handle = self.handle(some) if mine is None else mine.handle
        got, number = self.both(
            lambda: (handle.session if mine is None else mine.turn).take_input(key=key),
            lambda _: self.of(handle).take(key, None if mine is None else mine.number),
        )
        assert (got and got.number) == number
        handle.wrote |= {number} if number else set()

    # ------------------------------------------------------------------ turns

    @rule(some=some)
    def start(self, some: int) -> None:
        handle = self.handle(some)
        got, number = self.both(lambda: handle.session.turn(wait=False), lambda _: self.of(handle).start(TURN))
        if got is not None:
            assert got.number == number
            self.turns.append(InTurn(handle, got, number))

    @precondition(lambda self: self.turns)
    @rule(some=some, outcome=st.sampled_from(["settled", "failed", "cancelled", "interrupted", "stopped"]))
    def end(self, some: int, outcome: Any) -> None:
        """By its writer, or from outside."""
        mine = self.turns[-1 - some % len(self.turns)]
        if outcome == "stopped":
            self.both(mine.handle.session.stop_turn, lambda _: self.of(mine.handle).close("cancelled"))
        else:
            self.both(lambda: mine.turn.end(outcome), lambda _: self.of(mine.handle).end(mine.number, outcome))

    @rule(some=some, ids=calls, outcome=st.sampled_from(["settled", "failed", "cancelled", "interrupted", "stopped"]))
    def call_and_end(self, some: int, ids: list[str], outcome: str) -> None:
        """A turn that leaves its calls open."""
        before = len(self.turns)
        self.start(some)
        if len(self.turns) > before:
            self.call(0, True, ids)
            self.end(0, outcome)

    @rule(seconds=st.sampled_from([10, 90, 300, 4000, -10, -500, -5000]))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.world.now = self.clock.now

    # ------------------------------------------------------------------ compaction

    @rule(
        some=some, trigger=st.sampled_from(["manual", "manual", "limit", "soft"]), back=some, attempts=st.integers(1, 3)
    )
    def request(self, some: int, trigger: str, back: int, attempts: int) -> None:
        life = self.life(some)
        own = [n for n in life.views if n > life.forked_at]
        base = own[-2] if back == 0 and len(own) > 1 else life.head
        life.tokens = self.store.journal.state(life.id).tokens
        got, outcome = self.both(
            lambda: self.store.journal.request(life.id, trigger=trigger, base=base, attempts=attempts),
            lambda _: life.request(trigger, base, attempts),
        )
        assert got is None or (got.outcome, got.head) == (outcome, life.head)

    @precondition(lambda self: any(life.open for life in self.world.lives.values()))
    @rule(some=some, lease=st.sampled_from([LEASE, 2 * LIFE]))
    def claim(self, some: int, lease: float) -> None:
        self.claimed(self.life(some), lease)

    def claimed(self, life: Life, lease: float) -> bool:
        got, act = self.both(
            lambda: self.store.journal.claim(life.id, who(), lease=lease, life=LIFE), lambda _: life.claim(lease, LIFE)
        )
        if not isinstance(got, Claim):
            assert got.reason == act
            return False
        assert isinstance(act, Act), f"a claim was granted, and the oracle says {act}"
        assert (got.fence, got.base, got.attempt) == (act.fence, act.base, act.attempts)
        work = load_material(self.store.journal, got)
        messages = [r.number for r in (*work.untold, *work.messages)]
        planned = plan(
            [(r.number, r.header) for r in work.messages if r.header],
            kept=[(r.number, r.header) for r in work.kept if r.header],
            total=work.tokens,
            policy=POLICY,
            prompt=work.prompt,
            pinned=work.pinned,
            turns=work.turns,
        )
        cuts = [n for n in range(life.view.cut + 1, got.fence + 1) if life.legal_cut(n, got.upto)]
        worker = Worker(
            life, got, act, numbers_in(work.previous), messages, cuts, planned if isinstance(planned, Plan) else None
        )
        self.workers = [*self.workers[-5:], worker]
        return True

    @precondition(lambda self: self.workers)
    @rule(some=some, place=some, wrong=some, keeps=st.booleans(), follows=st.booleans())
    def commit(self, some: int, place: int, wrong: int, keeps: bool, follows: bool) -> None:
        """Of any claim ever made: most come too late."""
        worker = self.workers[-1 - some % len(self.workers)]
        life, fence = worker.life, worker.claim.fence
        kept: tuple[int, ...] = ()
        if wrong == 0:
            cut = fence + 1
        elif wrong == 1:
            cut = life.view.cut
        elif place == 0 and worker.planned is not None:
            cut, kept = worker.planned.cut, worker.planned.kept
        else:
            cut = worker.cuts[place % len(worker.cuts)] if worker.cuts else fence
            plain = [n for n in worker.messages if n in life.entries and life.entries[n].role in ("user", "system")]
            kept = tuple(n for n in plain[:2] if keeps and n < cut)
        if wrong == 2 and worker.messages:
            kept = tuple(n for n in worker.messages[-1:] if n >= cut)
        knows = worker.previous | {n for n in worker.messages if n < cut}
        text = "It stands for " + ", ".join(str(n) for n in sorted(knows)) + "."
        body = self.said("user") if follows else None
        spoken = [n for n in sorted(knows) if n in life.entries and life.entries[n].role == "user"]
        named = spoken[place % 3 :: 2] if wrong != 3 else worker.messages[-1:]
        stretches = tuple(Quote(n, "/content", 0, QUOTED, 1.0) for n in named)
        got, segment = self.both(
            lambda: self.store.journal.commit(
                worker.claim, text, cut, kept=kept, quotes=Quotes(stretches),
                follow_up=None if body is None else draft(body, self.ids),
            ),
            lambda _: self.alive(life).commit(
                worker.act, fence, cut=cut, kept=kept, knows=knows, follow_up=body, quotes=named
            ),
        )  # fmt: skip
        assert got is None or got.number == segment

    def alive(self, life: Life) -> Life:
        if life.id not in self.world.lives:
            raise Refused("SessionNotFound")
        return life

    @precondition(lambda self: self.workers)
    @rule(
        some=some,
        how=st.sampled_from(["renew", "fail", "retry", "wait", "cancel", "hand back", "skip"]),
        asked=st.booleans(),
    )
    def worry(self, some: int, how: str, asked: bool) -> None:
        """What else a claim's holder does, or somebody else does to it."""
        worker = self.workers[-1 - some % len(self.workers)]
        claim, fence = worker.claim, worker.claim.fence
        journal, gone = self.store.journal, worker.life.id not in self.world.lives
        if not gone:
            worker.life.tokens = journal.state(claim.session).tokens
        if how == "renew":
            got = journal.renew(claim)
            assert (got is not None) == (not gone and worker.life.renew(worker.act, fence, claim.lease))
        elif how == "cancel":
            self.both(lambda: journal.cancel(claim.session), lambda _: self.alive(worker.life).cancel())
        elif how == "hand back":
            self.both(
                lambda: journal.hand_back(claim, "it was closed", asked=asked),
                lambda _: self.alive(worker.life).hand_back(worker.act, fence, asked),
            )
        elif how == "skip":
            self.both(
                lambda: journal.skip(claim, "there is nothing to compact"),
                lambda _: self.alive(worker.life).skip(worker.act, fence),
            )
        else:
            retry = {"fail": None, "retry": 0.0, "wait": 15.0}[how]
            self.both(
                lambda: journal.fail(claim, "it did not work", retry, asked=asked),
                lambda _: self.alive(worker.life).fail(worker.act, fence, retry, asked),
            )

    @rule(some=some, writer=st.booleans())
    def die(self, some: int, writer: bool) -> None:
        """The process that compacts, or writes in a turn, is known to be dead. It may seem so, and go on."""
        self.dies(self.life(some), writer)

    def dies(self, life: Life, writer: bool) -> None:
        act = life.open
        if writer and life.turn:
            self.machine.dead.add(self.process(life, life.turn))
            life.turn_gone = True
        elif act is not None and act.state == "running":
            self.machine.dead.add(self.process(life, act.fence))
            act.gone = True
            assert self.store.journal.holder(life.id) is None

    def process(self, life: Life, number: int) -> Json:
        (started,) = self.store.journal.read(life.id, number, number + 1)
        return started.body["process"]

    @rule(some=some, writer=st.booleans(), attempts=st.integers(1, 2), place=some)
    def die_at_work(self, some: int, writer: bool, attempts: int, place: int) -> None:
        """The next one need not wait, and finds what is left: a turn to settle, an attempt, or none. It was not dead
        after all, and comes too late or first."""
        life = self.world.lives.get(self.handle(some).session.id) if writer else self.life(some)
        if life is None:
            return
        if writer:
            self.start(some)
            self.dies(life, True)
            self.start(some)
            return
        self.request(some, "manual", 1, attempts)
        if self.claimed(life, LEASE):
            self.dies(life, False)
            self.claimed(life, LEASE)
            self.commit(1, place, 9, False, False)

    @rule(some=some, how=st.sampled_from(["fail", "retry", "cancel", "hand back", "skip"]), place=some)
    def come_back(self, some: int, how: str, place: int) -> None:
        """A claim that was ended, and its summary all the same."""
        life = self.life(some)
        self.request(some, "manual", 1, 3)
        if self.claimed(life, LEASE):
            self.worry(0, how, True)
            self.commit(0, place, 9, False, False)

    @rule(some=some, how=st.sampled_from(["fail", "hand back", "skip"]), times=st.integers(2, 5), asked=st.booleans())
    def wear_out(self, some: int, how: str, times: int, asked: bool) -> None:
        """The same ends again and again: who is still heard then is what the bounds are about."""
        life = self.life(some)
        for _ in range(times):
            self.request(some, "soft", 1, 3)
            if self.claimed(life, LEASE):
                self.worry(0, how, asked)
        self.request(some, "limit", 1, 3)

    @rule(some=some, place=st.integers(0, 6), full=st.booleans(), by_hand=st.booleans(), stale=some)
    def mask(self, some: int, place: int, full: bool, by_hand: bool, stale: int = 9) -> None:
        """The oldest few results, or something that is none."""
        life = self.life(some)
        head = max((n for n in life.views if n < life.head), default=life.head) if stale == 0 else life.head

        def judged(_: Any) -> None:
            if head != life.head:
                raise Refused("StaleHandle")
            life.mask(chosen, full=full, by_hand=by_hand)

        results = [n for n in life.visible() if life.entries[n].answers is not None]
        chosen = results[:place] if place else [life.head, life.last]
        got, _ = self.both(
            lambda: masks.mask(self.store.journal, life.id, chosen, expect_head=head, full=full, by_hand=by_hand),
            judged,
        )
        assert got is None or {n for n, _ in got.masked} == life.view.masked

    @rule(
        some=some,
        speaks=st.booleans(),
        how=st.sampled_from(["undo", "redo", "compact", "unfold", "request", "restore", "mask", "fold", "open"]),
    )
    def mask_and_go_on(self, some: int, speaks: bool, how: str) -> None:
        """What holds of the segment that a mask stands on holds of it: what was undone, what failed, what rests."""
        handle = self.handle(some)
        if (life := self.world.lives.get(handle.session.id)) is None:
            return
        at = [*self.world.lives].index(life.id)
        self.before_a_mask(some, at, how)
        self.mask(at, 6, True, False)
        masked = life.head
        if speaks:
            self.work(some, False)
        self.look(some)
        self.after_a_mask(some, at, how, masked)

    def before_a_mask(self, some: int, at: int, how: str) -> None:
        self.work(some, False)
        self.work(some, False)
        if how == "fold":
            self.compact(at, 0, 9, False, -1)
            self.unfold(some, -1)
        if how == "redo":
            self.look(some)
            self.undo(some)
        if how == "request":
            self.wear_out(at, "fail", 3, True)
        if how == "open":
            self.call(some, False, ["a", "b", "c"])
            self.answer(some, False, ["a", "b"])

    def after_a_mask(self, some: int, at: int, how: str, masked: int) -> None:
        match how:
            case "undo" | "fold":
                self.undo(some)
                self.redo(some)
            case "redo":
                self.redo(some)
            case "compact":
                self.compact(at, 3, 9, False, -1)
                self.unfold(some, 0)
            case "unfold":
                self.unfolded(self.handle(some), masked)
                self.undo(some)
            case "request":
                self.request(at, "soft", 1, 3)
                self.request(at, "limit", 1, 3)
                self.request(at, "manual", 0, 3)
            case "restore":
                self.restore(at, 1, 5)
            case "mask":
                self.mask(at, 6, False, True)

    @rule(some=some, window=st.sampled_from([1_000, 8_000]))
    def go_by(self, some: int, window: int) -> None:
        handle, limits = self.handle(some), onefold.Limits(window, 100)
        got, number = self.both(
            lambda: handle.session.go_by(limits, "a model"), lambda _: self.of(handle).go_by(limits)
        )
        assert got == number

    @rule(some=some, place=some, wrong=some, keeps=st.booleans(), pinned=where)
    def compact(self, some: int, place: int, wrong: int, keeps: bool, pinned: int) -> None:
        """The way it goes when nobody is in the way: a commit that cannot hold is mended, and an old message pinned."""
        life = self.life(some)
        self.request(some, "manual", 1, 3)
        if self.claimed(life, LEASE):
            self.commit(0, place, wrong, keeps, False)
            self.commit(0, place, 9, keeps, False)
            for at, handle in enumerate(self.handles):
                if handle.session.id == life.id and pinned >= 0:
                    self.pin(at, pinned, 9)
                    break

    @rule(some=some, place=some, roles=roles)
    def work_and_compact(self, some: int, place: int, roles: list[str]) -> None:
        """Messages come between a claim and its commit."""
        life = self.life(some)
        self.work(some, False)
        self.request(some, "limit", 1, 3)
        if self.claimed(life, LEASE):
            self.say(some, False, roles, None)
            self.commit(0, place, 9, True, True)

    @rule(some=some)
    def draft(self, some: int) -> None:
        """The summary in force is made once more, of what it was made of."""
        life = self.life(some)
        got, knows = self.both(lambda: self.drafted(life.id), lambda _: life.draft())
        if got is not None:
            number, head, again = got
            assert again == knows, "it is made of what the one in force was made of"
            assert number == life.last
            self.drafts = [*self.drafts[-3:], (life, number, head, frozenset(again))]

    def drafted(self, id: str) -> tuple[int, int, set[int]]:
        journal = self.store.journal
        seen = journal.backend.read(lambda tx: summary_drafts.present(tx, id))
        work = load_material(journal, Past(id, seen.base.number, seen.head.cut - 1, seen.head.hidden))
        again = numbers_in(work.previous) | {r.number for r in (*work.untold, *work.messages)}
        return summary_drafts.drafted(journal, id, seen.head.number, by=None, spent=Usage()), seen.head.number, again

    @precondition(lambda self: self.drafts)
    @rule(some=some, place=some)
    def take_draft(self, some: int, place: int) -> None:
        """Any that was made: many come too late."""
        life, number, head, knows = self.drafts[-1 - some % len(self.drafts)]
        text = "It stands for " + ", ".join(str(n) for n in sorted(knows)) + "."
        spoken = [n for n in sorted(knows) if n in life.entries and life.entries[n].role == "user"]
        named = spoken[place % 3 :: 2]
        quotes = Quotes(tuple(Quote(n, "/content", 0, QUOTED, 1.0) for n in named))
        got, segment = self.both(
            lambda: summary_drafts.replaced(
                self.store.journal, life.id, Summary(text), quotes, number=number, expect_head=head, who=who()
            ),
            lambda _: self.alive(life).take_draft(number, head, knows, named),
        )
        assert got is None or got.number == segment

    @rule(some=some, how=st.sampled_from(["unfold", "refold", "undo", "compact", "mask", "again", "erase", "fork"]))
    def draft_and_go_on(self, some: int, how: str) -> None:
        """A summary in place of another one is a boundary like any other, and so is a way back from it."""
        handle = self.handle(some)
        if (life := self.world.lives.get(handle.session.id)) is None:
            return
        at = [*self.world.lives].index(life.id)
        self.work(some, False)
        self.compact(at, 0, 9, False, -1)
        self.draft(at)
        if how == "mask":
            self.work(some, False)
            self.mask(at, 6, True, True)
        if how == "compact":
            self.compact(at, 3, 9, False, -1)
        if not self.drafts:
            return
        self.take_draft(0, 0)
        self.look(some)
        match how:
            case "unfold" | "refold":
                self.unfold(some, 0)
                self.look(some)
                if how == "refold":
                    self.refold(some, -1)
                self.take_draft(0, 0)
            case "undo":
                self.undo(some)
                self.redo(some)
            case "again":
                self.draft(at)
                self.take_draft(0, 1)
                self.unfold(some, 1)
            case "erase":
                self.erase(some, 0)
            case "fork":
                self.fork(some, "f3", "branch", -1, True)

    # ------------------------------------------------------------------ compactions that a provider makes

    def seen(self, id: str) -> Session:
        """A session in the hands of nobody who writes."""
        self.looks[id] = self.looks.get(id) or self.store.session(id, create=False)
        return self.looks[id]

    @rule(some=some, origin=st.sampled_from([*ORIGINS]), drop=st.integers(-3, 5), whole=st.booleans())
    def send(self, some: int, origin: str, drop: int, whole: bool) -> None:
        """A provider is sent a context, perhaps without some of it."""
        life = self.life(some)
        context = self.seen(life.id).context(origin=ORIGINS[origin])
        sent = {*context.numbers, *context.left_out} - {0}
        said = [n for n in sorted(sent) if n in life.entries and life.entries[n].kind == "message"]
        if drop >= 0 and said:
            pairs = life.paired(said, life.last)
            groups = [{c, *pairs.results.get(c, ())} for c in pairs.lacks]
            gone = {said[-1 - drop % len(said)]}
            sent -= next((g for g in groups if g & gone), gone) if whole else gone
        self.sends = [*self.sends[-3:], Made(life, origin, frozenset(sent), life.told_by(sent))]

    @precondition(lambda self: self.sends)
    @rule(some=some, again=st.integers(0, 2), rest=st.booleans(), sealed=st.booleans())
    def provide(self, some: int, again: int, rest: bool, sealed: bool) -> None:
        """It answers, with an item that stands for all that, behind copies of what users said or with words behind."""
        asked = self.sends[-1 - some % len(self.sends)]
        handle = next((h for h in self.handles if h.session.id == asked.life.id), None)
        if handle is None or asked.life.id not in self.world.lives:
            return
        text = "It stands for " + ", ".join(str(n) for n in sorted(asked.knows)) + "."
        block: Json = {"type": "compaction", ("encrypted_content" if sealed else "content"): text}
        more = [{"type": "text", "text": self.said("assistant")["content"]}] if rest else []
        body = block if sealed else {"role": "assistant", "content": [block, *more]}
        copies = [self.said("user") for _ in range(again)]
        window = list(handle.session.append(copies).numbers) if copies else []
        window += handle.session.append(body, format="openai-responses" if sealed else "anthropic").numbers
        assert asked.life.append([*copies, body]) == window
        handle.wrote |= {*window}
        made = Made(asked.life, asked.origin, asked.sent, asked.knows, tuple(window))
        self.items = [*self.items[-3:], made]

    @precondition(lambda self: self.items)
    @rule(some=some, wrong=some, place=some, stale=some)
    def adopt(self, some: int, wrong: int, place: int, stale: int = 9) -> None:
        """Any that came: many of them late. Or a message that has none, or by a look at an older head."""
        made = self.items[-1 - some % len(self.items)]
        life = made.life
        window = (life.last,) if wrong == 0 else made.window
        spoken = [n for n in sorted(made.knows) if n in life.entries and life.entries[n].role == "user"]
        named = spoken[place % 3 :: 2] if wrong != 1 else [window[-1]]
        said = Quotes(tuple(Quote(n, "/content", 0, QUOTED, 1.0) for n in named))
        head = max((n for n in life.views if n < life.head), default=life.head) if stale == 0 else life.head
        got, segment = self.both(
            lambda: adoption.adopt(
                self.store.journal, life.id, window, made.sent, origin=ORIGINS[made.origin], expect_head=head, said=said
            ),
            lambda _: self.alive(life).adopt(window, made.sent, made.origin, named, head),
        )
        assert got is None or got.number == segment

    @rule(
        **ADOPTING,
        how=st.sampled_from(
            ["undo", "cross", "unfold", "refold", "erase", "fork", "mask", "compact", "again", "note", "draft", "late"]
        ),
    )
    def adopt_and_go_on(
        self, *, some: int, origin: str, drop: int, again: int, sealed: bool, speaks: bool, how: str
    ) -> None:
        """An item is in force until something that it covers is taken back, or something else stands for that."""
        handle = self.handle(some)
        if (life := self.world.lives.get(handle.session.id)) is None:
            return
        at = [*self.world.lives].index(life.id)
        self.work(some, False)
        if how == "note":
            self.note(some, "be brief", None, -1)
        self.send(at, origin, drop, how != "part")
        if how == "late":  # what was sent is taken back while the provider is at it
            self.look(some)
            self.undo(some) if sealed else self.erase(some, 3)
        if speaks:
            self.say(some, False, ["user"], None)
        self.provide(0, max(0, again), again < 0, sealed)
        if not self.items:
            return
        self.adopt(0, 9, drop % 3)
        adopted = life.head
        self.look(some)
        self.say(some, False, ["assistant", "user"] if speaks else ["user", "assistant"], None)
        self.after_an_item(some, at, how, adopted)

    def after_an_item(self, some: int, at: int, how: str, adopted: int) -> None:
        match how:
            case "undo" | "note":
                self.pin(some, 2, 9)
                self.undo(some)
                self.redo(some)
            case "cross":
                self.undo(some)
                self.undo(some)
                self.redo(some)
                self.adopt(0, 9, 0)
            case "unfold" | "refold":
                self.unfolded(self.handle(some), adopted)
                self.look(some)
                if how == "refold":
                    self.refold(some, 1)
                else:
                    self.undo(some)
            case "erase":
                self.erase(some, 3)
            case "fork":
                self.fork(some, "f3", "branch", -1, True)
                self.erase(some, 2)
            case "mask":
                self.work(some, False)
                self.mask(at, 6, True, True)
            case "compact":
                self.compact(at, 0, 9, False, -1)
                self.unfold(some, 0)
            case "draft":
                self.draft(at)
                if self.drafts:
                    self.take_draft(0, 0)
            case "again":
                self.send(at, "anthropic", -1, True)
                self.provide(0, 1, True, False)
                self.adopt(0, 9, 1)
                self.unfold(some, 0)

    # ------------------------------------------------------------------ what stands in every context, and names

    @rule(some=some, place=where, off=some)
    def pin(self, some: int, place: int, off: int) -> None:
        handle = self.handle(some)
        number = self.number(handle, place)
        if off > 3:
            got, group = self.both(lambda: handle.session.pin(number), lambda _: self.of(handle).pin(number))
            assert got is None or list(got) == group
        else:
            pins = sorted(self.world.lives[handle.session.id].pinned()) if handle.session.id in self.world.lives else []
            number = pins[place % len(pins)] if pins else number
            self.both(lambda: handle.session.unpin(number), lambda group: self.of(handle).unpin(number, group))

    @rule(
        some=some,
        text=st.sampled_from(["", "be brief", "be as exact as you can"]),
        key=st.sampled_from([None, "tone"]),
        place=where,
    )
    def note(self, some: int, text: str, key: str | None, place: int) -> None:
        handle = self.handle(some)
        if not text and key is None:
            return
        source = (self.number(handle, place),) if place >= 0 else ()
        self.both(
            lambda: pins_and_notes.note(self.store.journal, handle.session.id, "rule", text, key=key, source=source),
            lambda _: self.of(handle).note("rule", text, key, source),
        )

    @rule(some=some, name=names)
    def alias(self, some: int, name: str) -> None:
        handle = self.handle(some)
        self.both(lambda: handle.session.alias(name), lambda _: self.of(handle).alias(name))

    def number(self, handle: Handle, place: int) -> int:
        """A record of a session: the first message and so on, or, below 0, the newest ones of whatever kind."""
        life = self.world.lives.get(handle.session.id)
        if life is None:
            return 1
        if place < 0:
            return max(1, life.last + 1 + place)
        found = [n for n, e in sorted(life.entries.items()) if e.kind in ("message", "note", "input.queued")]
        return found[place % len(found)] if found else 1

    # ------------------------------------------------------------------ going back, and branching off

    @rule(some=some)
    def look(self, some: int) -> None:
        handle = self.handle(some)
        self.both(handle.session.context, lambda _: self.of(handle))
        if (life := self.world.lives.get(handle.session.id)) is not None:
            handle.saw, handle.seen, handle.wrote = life.head, life.last, set()

    def go_back(self, handle: Handle, real: Callable[[], Any], ideal: Callable[[Life], None]) -> None:
        def judged(_: Any) -> None:
            life = self.of(handle)
            begun = {t.number for t in self.turns if t.handle is handle}
            later = {n for n, e in life.entries.items() if e.kind == "message" and e.turn not in begun}
            differ = life.views[handle.saw].hidden ^ life.view.hidden
            taken_back = not all(life.silent(n) for n in differ)  # what nobody can see is nothing to look at
            if taken_back or any(n > handle.seen for n in later - handle.wrote):
                raise Refused("StaleHandle")
            ideal(life)

        got, _ = self.both(real, judged)
        if got is not None:
            handle.saw = handle.seen = self.of(handle).head
            handle.wrote = set()

    @rule(some=some)
    def undo(self, some: int) -> None:
        handle = self.handle(some)
        self.go_back(handle, handle.session.undo, Life.undo)

    @precondition(lambda self: any(life.view.redo for life in self.world.lives.values()))
    @rule(some=some)
    def redo(self, some: int) -> None:
        handle = self.handle(some)
        self.go_back(handle, handle.session.redo, Life.redo)

    @rule(some=some, times=st.integers(1, 3), again=st.booleans())
    def pop(self, some: int, times: int, again: bool) -> None:
        """As somebody does who takes back what he wrote item by item, and writes it anew."""
        handle = self.handle(some)
        if (life := self.world.lives.get(handle.session.id)) is None or life.turn:
            return
        for _ in range(times):
            got, expected = self.both(
                lambda: undo.pop(handle.session.journal, handle.session.id), lambda _: self.of(handle).pop()
            )
            assert (None if got is None else got.number) == expected
            if again:
                self.write(some, False, [self.said("assistant")], None)

    @rule(some=some, place=where)
    def rewind(self, some: int, place: int) -> None:
        handle = self.handle(some)
        to = self.number(handle, place)
        self.go_back(handle, lambda: handle.session.rewind(to), lambda life: life.rewind(to))

    @rule(some=some, back=some, stale=some)
    def restore(self, some: int, back: int, stale: int) -> None:
        life = self.life(some)
        places = sorted(life.views)
        to = places[-1 - back % len(places)]
        head = life.head if stale != 0 else places[0]
        seen = max(life.forked_at, life.last - 2) if stale == 1 else life.last

        def judged(_: Any) -> None:
            unseen = any(n > seen and e.kind == "message" for n, e in life.entries.items())
            if head != life.head or unseen:
                raise Refused("StaleHandle")
            life.restore(to)

        self.both(lambda: undo.restore(self.store.journal, life.id, to, expect_head=head, seen=seen), judged)

    @precondition(lambda self: any(life.folds() for life in self.world.lives.values()))
    @rule(some=some, back=st.integers(-1, 3))
    def unfold(self, some: int, back: int) -> None:
        """One of the compactions in force, the newest of all, or a segment that is none."""
        handle = self.handle(some)
        life = self.world.lives.get(handle.session.id)
        folds = life.folds() if life is not None else []
        places = sorted(life.views) if life is not None else [1]
        segment = (
            None if back < 0 else folds[back % len(folds)] if folds and back < 3 else places[-1 - some % len(places)]
        )
        self.unfolded(handle, segment)

    def unfolded(self, handle: Handle, segment: int | None) -> None:
        life = self.world.lives.get(handle.session.id)
        seen, saw = (set(life.visible()), life.view.hidden) if life is not None else (set(), frozenset[int]())
        turn = life.turn if life is not None else 0
        size = self.size_unfolded(handle.session.id, segment)
        got, _ = self.both(lambda: handle.session.unfold(segment), lambda _: self.of(handle).unfold(segment, size))
        if got is not None and life is not None:
            assert got.unfolds == life.view.unfolds
            assert (set(life.visible()), life.view.hidden, life.turn) == (seen, saw, turn)

    def size_unfolded(self, id: str, segment: int | None) -> int:
        """What the context would weigh, by a try that is taken back; 0 if it is refused anyway."""
        try:
            return unfold.unfold(dry_run_of(self.store).journal, id, segment).tokens_after
        except OnefoldError:
            return 0

    @precondition(lambda self: any(life.acts for life in self.world.lives.values()))
    @rule(some=some, place=st.integers(-1, 5))
    def refold(self, some: int, place: int) -> None:
        """The newest compaction that fits, or any segment."""
        handle = self.handle(some)
        life = self.world.lives.get(handle.session.id)
        places = sorted(life.views) if life is not None else []
        segment = None if place < 0 or not places else places[-1 - place % len(places)]
        self.both(lambda: handle.session.refold(segment), lambda _: self.of(handle).refold(segment))

    @rule(
        some=some,
        back=st.integers(0, 2),
        speaks=st.booleans(),
        how=st.sampled_from(["undo", "refold", "redo", "soft", "cross"]),
    )
    def compact_and_unfold(self, some: int, back: int, speaks: bool, how: str) -> None:
        """Folded more than once, unfolded at one of them, perhaps something said, and taken back in one way or the
        other; what asks by itself is not heard."""
        handle = self.handle(some)
        if (life := self.world.lives.get(handle.session.id)) is None:
            return
        at = [*self.world.lives].index(life.id)
        for _ in range(2):
            self.work(some, False)
            self.compact(at, back, 9, False, -1)
        self.unfold(some, back)
        if speaks:
            self.work(some, False)
        self.look(some)
        match how:
            case "undo":
                self.undo(some)
            case "redo":
                self.undo(some)
                self.redo(some)
                self.undo(some)
            case "refold":
                self.refold(some, -1)
            case "cross":
                self.rewind(some, 2 + back)
                self.refold(some, -1)
                self.redo(some)
                self.refold(some, -1)
            case "soft":
                self.request(at, "soft", 1, 3)

    @precondition(lambda self: len(self.world.lives) < MOST)
    @rule(
        some=some,
        id=names,
        kind=st.sampled_from(["branch", "branch", "subagent", "review"]),
        place=where,
        now=st.booleans(),
    )
    def fork(self, some: int, id: str, kind: Any, place: int, now: bool) -> None:
        handle = self.handle(some)
        at = None if now else self.number(handle, place)
        got, _ = self.both(lambda: handle.session.fork(kind, at, id=id), lambda _: self.of(handle).fork(id, kind, at))
        if got is not None:
            self.add_handle(got)
            life = self.world.lives[id]
            was = self.past.get((handle.session.id, life.forked_at))
            if was is not None and life.last == life.forked_at + 2 and not self.touched(life):
                assert verbatim_in(life, self.store.session(id).context()) == was

    @precondition(lambda self: len(self.world.lives) < MOST)
    @rule(some=some, id=names, place=where, now=st.booleans(), waits=st.booleans())
    def branch_off(self, some: int, id: str, place: int, now: bool, waits: bool) -> None:
        """Parent and fork go on, each with records of its own under the same numbers."""
        parent = self.handle(some).session.id
        if waits:
            self.queue(some, None)
        self.fork(some, id, "branch", place, now)
        if id in self.world.lives and self.handles[-1].session.id == id:
            self.work(len(self.handles) - 1, False)
        at = next((n for n, h in enumerate(self.handles) if h.session.id == parent), None)
        if waits and at is not None:
            self.take(at, False, None)

    def touched(self, life: Life) -> bool:
        """Whether anything of its past was erased: then it is no longer what its parent was."""
        return any(e.kind == "erased" for n, e in life.entries.items() if n <= life.forked_at) or life.lost > 0

    @precondition(lambda self: any(life.parent for life in self.world.lives.values()))
    @rule(some=some, place=where)
    def fork_again(self, some: int, place: int) -> None:
        """Said again, the same fork; and a fork of something else is not that one."""
        life = self.life(some)
        parent = self.world.lives.get(life.parent or "")
        if parent is None:
            return
        at = None if place < 0 else min(place, parent.last)
        self.both(
            lambda: forks.fork(self.store.journal, parent.id, life.id, kind=life.kind, at=at),  # type: ignore[arg-type]
            lambda _: parent.fork(life.id, life.kind, at),
        )

    @rule(some=some)
    def observe_an_agent(self, some: int) -> None:
        """It compacts by itself, tells of it, and leaves the session to onefold."""
        for keeper in ("agent", "observe", "onefold"):
            self.keep(some, keeper)

    @rule(some=some, keeper=st.sampled_from(["onefold", "onefold", "agent", "observe"]))
    def keep(self, some: int, keeper: Any) -> None:
        handle = self.handle(some)
        if keeper == "observe":
            self.both(lambda: self.observe(handle.session), lambda _: self.of(handle).observe())
        else:
            self.both(lambda: handle.session.set_compaction_owner(keeper), lambda _: self.of(handle).keep(keeper))

    def observe(self, session: Session) -> None:
        """Its agent tells of a summary of its own, which knows all there is: what was undone, too."""
        knows = [r.number for r in session.read(1) if r.kind == "message"]
        told = "It stands for " + ", ".join(map(str, knows)) + "."
        agent_compactions.record_agent_compaction(self.store.journal, session.id, source="its transcript", said=told)

    # ------------------------------------------------------------------ what people remove, and what accidents do

    @rule(some=some, place=where)
    def erase(self, some: int, place: int) -> None:
        handle = self.handle(some)
        number = self.number(handle, place)
        life = self.world.lives.get(handle.session.id)
        knew = life is not None and life.views[handle.saw].hidden == life.view.hidden
        got, forks = self.both(lambda: handle.session.erase(number), lambda _: self.of(handle).erase(number))
        if got is not None:
            assert sorted(got.forks) == sorted(forks)
            handle.saw = self.of(handle).head if knew else handle.saw

    @precondition(lambda self: len(self.world.lives) > 2)
    @rule(some=some)
    def delete(self, some: int) -> None:
        life = self.life(some)
        got, forks = self.both(lambda: self.store.delete(life.id), lambda _: life.delete())
        assert sorted(got.forks) == sorted(forks)
        ghosts = [h for h in self.handles if h.session.id == life.id]
        self.handles = [h for h in self.handles if h not in ghosts[1:]]

    @rule(known=st.booleans())
    def crash(self, known: bool) -> None:
        """The process dies: handles, claims and turns are gone with it, and their leases stand until they run out;
        unless the one that comes after it knows of that."""
        self.let_go()
        if known:
            self.machine.dead.update(range(self.machine.born + 1))
            for life in self.world.lives.values():
                life.turn_gone = bool(life.turn)
                for act in life.acts:
                    act.gone = act.state == "running"
        if self.kind == "memory":
            self.store = Store(self.store.journal.backend, policy=POLICY, ids=self.ids)
            self.store.journal.leases.machine = self.machine
        else:
            self.store.journal.backend.close()
            self.store = self.opened()
        self.turns, self.workers, self.drafts, self.looks = [], [], [], {}
        self.sends, self.items = [], []
        self.handles = []
        for id in self.world.lives:
            self.add_handle(self.store.session(id, create=False))

    # ------------------------------------------------------------------ what holds after each step

    @invariant()
    def promises_hold(self) -> None:
        """Of every session that is not as it was when it was looked at last, or whose past is not. Everything is looked
        over every few steps."""
        self.steps += 1
        now = {id: self.store.journal.state(id) for id in self.world.lives}
        for id, life in self.world.lives.items():
            assert (now[id].last, now[id].head) == (life.last, life.head)
            seen = tuple(now[some] for some in self.line_of(id) if some in now)
            if self.held.get(id) == seen:
                continue
            self.held[id] = seen
            session = self.seen(id)
            records = {r.number: r for r in session.read(1)}
            the_journal_holds_what_was_said(life, records)
            the_boundaries_are_one_line(life, session)
            context = session.context()
            the_context_holds_exactly_what_is_visible(life, context)
            no_call_is_without_its_result(life, context)
            for name, origin in ORIGINS.items():
                the_item_is_for_its_origin(life, name, session.context(origin=origin), context)
            self.past[id, life.last] = verbatim_in(life, context)
            state = session.state
            life.tokens, life.stood = state.tokens, life.notes()
            the_state_is_what_the_records_say(life, state)
            made_up = context.numbers.count(0) - bool(life.notes(life.head)) - bool(life.quoted())
            if not made_up and not context.left_out and life.pinned() <= set(context.numbers):
                assert state.tokens == context.tokens
            for act in life.acts:
                is_ = self.store.journal.compaction(id, records[act.number].body["compaction"])
                assert (is_.state, is_.attempts, is_.requests) == (act.state, act.attempts, act.requests)
                assert is_.segment == act.segment
        assert {s.id for s in self.store.sessions()} == set(self.world.lives)
        assert [s.id for s in self.store.walk(page=2)] == sorted(self.world.lives)
        if self.steps % 8 == 0:
            self.held.clear()
            assert self.store.verify().findings == ()

    def line_of(self, id: str) -> list[str]:
        """A session and those it has its past from."""
        line = [id]
        while (life := self.world.lives.get(line[-1])) is not None and life.parent is not None:
            line.append(life.parent)
        return line


def the_journal_holds_what_was_said(life: Life, records: dict[int, Record]) -> None:
    first = life.lost + 1
    assert sorted(records) == sorted(life.entries) == list(range(first, life.last + 1))
    turn = None
    for number, entry in sorted(life.entries.items()):
        record = records[number]
        assert record.kind == entry.kind, f"record {number} of {life.id}"
        assert record.key == entry.key
        if entry.kind == "segment.opened":  # in force or not, no summary knows what people removed
            for told in (record.body.get("summary"), record.body.get("said")):
                assert not any(n <= life.lost or life.entries[n].was for n in numbers_in(told))
        if entry.kind in ("message", "input.queued"):
            assert record.body == entry.body
        started = records.get(entry.turn)
        assert record.turn == (started.turn if started is not None else record.turn)
        assert (record.turn is not None) == (entry.turn > 0)
        if number > life.forked_at:  # a fork may begin in the middle of its parent's turn
            turn = record.turn if record.kind == "turn.started" else turn
            assert record.turn in (None, turn)
            turn = None if record.kind == "turn.settled" else turn


def the_boundaries_are_one_line(life: Life, session: Session) -> None:
    segments = session.segments()
    assert [s.number for s in segments] == [n for n in sorted(life.views) if n > life.forked_at]
    assert [s.base for s in segments] == [None, *(s.number for s in segments[:-1])]
    assert [s.cut for s in segments] == [life.views[s.number].cut for s in segments]
    assert [{n for n, _ in s.masked} for s in segments] == [life.views[s.number].masked for s in segments]
    open = [a for a in life.acts if a.open]
    assert [a.base for a in open] in ([], [life.head])


def the_context_holds_exactly_what_is_visible(life: Life, context: Context) -> None:
    known = numbers_in(context.summary)
    noted = {n for n in context.numbers if n in life.entries and life.entries[n].kind == "note"}
    verbatim = [n for n in context.numbers if n not in (0, context.segment) and n not in noted]
    visible = set(life.visible())
    assert len(verbatim) == len(set(verbatim))
    assert known | set(verbatim) | set(context.left_out) == visible, "lost, or a ghost"
    assert [(n.kind, n.text) for n in context.notes] == life.notes()
    for number, body in zip(context.numbers, context.messages, strict=True):
        if number in (0, context.segment, *noted):
            continue
        said = shown_of(life, number)
        if number in context.masked:
            assert body["content"].startswith(f"[The result #{number}, of about ")
            said = said | {"content": body["content"]}
        assert body == said
    assert {*context.masked} == life.shown_short().intersection(context.numbers)
    assert list(context.numbers) == life.context()
    assert {q.number: q.text for q in context.quotes} == {
        n: life.entries[n].body["content"][:QUOTED] for n in life.quoted()
    }
    tail = life.paired(life.visible(start=life.view.cut), life.last)
    since = [n for e in life.entries.values() if e.kind == "pin.added" and isinstance(e.body, list) for n in e.body]
    ever = (life.pinned(life.head) | life.pinned() | set(since)) & visible
    alone = {
        n for n in ever - set(verbatim) if n < life.view.cut and (n in life.pinned(life.head) or n in brought(life))
    }
    assert all(life.entries[n].answers for n in alone), "a result of a call that was erased"
    alone |= {*life.paired(life.by_name(), life.last).results.get(0, [])}  # kept, since no provider was sent it
    assert list(context.left_out) == sorted({*tail.results.get(0, []), *alone, *life.replaced()})
    assert life.pinned() - set(verbatim) <= {*context.left_out}


def shown_of(life: Life, number: int) -> Json:
    """A message, without the item that was adopted of it."""
    entry = life.entries[number]
    return entry.rest if number in life.view.bare else entry.body


def the_item_is_for_its_origin(life: Life, name: str, context: Context, plain: Context) -> None:
    """Everybody else is told the plain text. Nothing is told twice, and nothing is missing."""
    item = life.item()
    if item is None or item.origin != name:
        assert context == plain
        return
    assert (context.item, context.origin, context.summary) == (item.window, ORIGINS[name], None)
    assert list(context.numbers) == life.provided(item)
    shown = [n for n in context.numbers if n in life.entries and life.entries[n].kind == "message"]
    assert len(shown) == len({*shown})
    visible = {*life.visible()}
    told = {*shown, *context.left_out, *item.knows}
    assert visible <= told | {*item.window}, "lost"
    assert told <= visible | {*item.window}, "a ghost"
    stays = {*context.prompt, *context.pinned}
    assert not [n for n in shown if item.covers(n) and n not in stays], "sent, and stood for"
    for number, body in zip(context.numbers, context.messages, strict=True):
        if number in item.window:
            assert body == life.entries[number].body, "as it came"
        elif number in shown and number not in context.masked:
            assert body == shown_of(life, number)
    assert {q.number for q in context.quotes} == {
        n for n in item.quotes if n not in item.kept and life.entries[n].kind == "message"
    }
    no_call_is_without_its_result(life, context)


def brought(life: Life) -> set[int]:
    """Messages that were pinned since the segment began."""
    marks = [e.body for n, e in life.entries.items() if n > life.head and e.kind == "pin.added"]
    return {n for body in marks if isinstance(body, list) for n in body}


def verbatim_in(life: Life, context: Context) -> set[int]:
    """The messages from the cut on that stand in a context, but for system prompts, which a new segment moves."""
    said = {n for n in context.numbers if n in life.entries and life.entries[n].kind == "message"}
    prompts = {n for some in life.prompts(life.last + 1) for n in some}
    return {n for n in said - prompts if n >= life.view.cut}


def no_call_is_without_its_result(life: Life, context: Context) -> None:
    waits = life.waiting(life.last, life.view.hidden)
    due: set[str] = set()
    for number, body in zip(context.numbers, context.messages, strict=True):
        if body.get("role") == "tool":
            assert body["tool_call_id"] in due, "a result without its call right before it"
            due.remove(body["tool_call_id"])
            continue
        assert not due, "a call without its result"
        speaks = any(life.entries[n].role in ("user", "system") for n in life.tail(number + 1))
        speaks = speaks or any(n > number for n in life.since())
        due = {c["id"] for c in body.get("tool_calls", ())} - set(() if speaks else waits.get(number, ()))
    assert not due, "a call without its result"


def the_state_is_what_the_records_say(life: Life, state: onefold.SessionState) -> None:
    own = [e for n, e in life.entries.items() if n > life.forked_at]
    assert (state.last, state.head, state.cut) == (life.last, life.head, life.view.cut)
    assert (state.turn, state.pending, state.aliases) == (life.turn, len(life.inputs), len(life.aliases))
    assert (state.parent, state.forked_at) == (life.parent, life.forked_at)
    assert (state.compactions, state.committed) == (len(life.acts), sum(a.state == "committed" for a in life.acts))
    assert (state.open is not None) == (life.open is not None)
    assert state.segments == sum(e.kind == "segment.opened" for e in own)
    assert state.messages == sum(e.kind == "message" or e.was == "message" for e in own)
    assert (state.failures, state.paid, state.rests > 0) == (life.failures, life.paid, life.rests > 0)
    number, limits = life.limits
    assert (state.limits, state.window) == (number, limits.window if limits is not None else 0)


def call_of(id: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}}


def numbers_in(summary: str | None) -> set[int]:
    return {int(n) for n in re.findall(r"\d+", summary or "")}


class LivesOnDisk(Lives):
    kind = "sqlite"


class LivesWithAProvider(Lives):
    """The same, where a provider compacts often."""

    @rule(**ADOPTING, how=st.sampled_from(["undo", "cross", "again", "note"]))
    def adopt_and_take_back(self, **chosen: Any) -> None:
        self.adopt_and_go_on(**chosen)

    @rule(**ADOPTING, how=st.sampled_from(["unfold", "refold", "mask", "compact", "draft", "part"]))
    def adopt_and_fold(self, **chosen: Any) -> None:
        self.adopt_and_go_on(**chosen)

    @rule(**ADOPTING, how=st.sampled_from(["erase", "fork", "late"]))
    def adopt_and_remove(self, **chosen: Any) -> None:
        self.adopt_and_go_on(**chosen)


class LivesWithAProviderOnDisk(LivesWithAProvider):
    kind = "sqlite"


def setting(examples: int, share: int) -> settings:
    """So many histories; in a long run more of them, and others each time."""
    return settings(
        max_examples=max(examples, ASKED // STEPS // share),
        stateful_step_count=STEPS,
        derandomize=not ASKED,
        # To make a history of fifty steps short takes longer than a test may: a long run has the time.
        phases=(Phase.generate, Phase.shrink) if ASKED else (Phase.generate,),
    )


TestLivesInMemory = Lives.TestCase
TestLivesInMemory.settings = setting(120, share=1)
TestLivesOnDisk = LivesOnDisk.TestCase
TestLivesOnDisk.settings = setting(20, share=4)
TestLivesWithAProvider = LivesWithAProvider.TestCase
TestLivesWithAProvider.settings = setting(60, share=4)
TestLivesWithAProviderOnDisk = LivesWithAProviderOnDisk.TestCase
TestLivesWithAProviderOnDisk.settings = setting(10, share=16)


Step = tuple[str, dict[str, Json]]
LOOK: Step = ("look", {"some": 0})
FOUND: dict[str, list[Step]] = {
    "a clock that jumped back hides no failure from the bound": [
        *[("pass_time", {"seconds": 10})] * 4,
        ("wear_out", {"asked": True, "how": "fail", "some": 0, "times": 2}),
        ("wear_out", {"asked": False, "how": "fail", "some": 0, "times": 2}),
        ("pass_time", {"seconds": -10}),
        ("wear_out", {"asked": True, "how": "fail", "some": 0, "times": 2}),
    ],
    "views that differ in what nobody can see are one": [
        LOOK,
        ("say_after_taking_back", {"how": "u", "key": "k1", "place": 0, "queued": 0, "some": 0}),
        ("redo", {"some": 0}),
        ("undo", {"some": 0}),
        ("erase", {"place": 7, "some": 0}),
        *[LOOK] * 4,
        ("restore", {"back": 3, "some": 0, "stale": 1}),
        ("undo", {"some": 0}),
    ],
    "a prompt that was erased is in force in no older view": [
        *[("note", {"key": None, "place": 0, "some": 0, "text": ""})] * 2,
        ("replace_prompt", {"count": 1, "inside": False, "some": 0}),
        ("queue", {"key": None, "some": 0}),
        ("work_and_compact", {"place": 0, "roles": ["user"], "some": 0}),
        ("erase", {"place": 7, "some": 0}),
        ("start", {"some": 0}),
        ("restore", {"back": 2, "some": 0, "stale": 1}),
    ],
    "nor in a fork at a record before that": [
        ("answer", {"ids": ["a", "b"], "inside": False, "some": 1}),
        ("undo", {"some": 0}),
        ("queue", {"key": None, "some": 0}),
        ("say", {"inside": False, "key": None, "roles": ["user"], "some": 0}),
        ("queue", {"key": None, "some": 0}),
        ("replace_prompt", {"count": 1, "inside": False, "some": 0}),
        ("call", {"ids": ["a"], "inside": False, "some": 0}),
        ("erase", {"place": 40, "some": 0}),
        ("branch_off", {"id": "s2", "now": True, "place": 0, "some": 0, "waits": False}),
    ],
}


@pytest.mark.parametrize("name", FOUND)
def test_lives_that_a_long_search_found(name: str) -> None:
    lives = Lives()
    try:
        lives.begins()
        for rule, how in FOUND[name]:
            getattr(lives, rule)(**how)
            lives.promises_hold()
    finally:
        lives.teardown()
