"""Every order in which actors may use one session, to a depth: a transaction is the atom, and nothing else matters.

An actor knows what a process knows: the segment it saw, and the claim it holds. At each step any actor does anything it
could do, right or wrong, early or late; a crash is an actor that forgets, a zombie one that does not. A death that its
machine knows of is a crash too, and one may be called dead who is not. States that were met before are not gone into
again. After each step the promises are checked from the journal alone.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from onefold.compaction.cut_planner import Plan
from onefold.compaction.material import CompactionMaterial, load_material
from onefold.compaction.policy import Policy
from onefold.errors import OnefoldError
from onefold.journal import adoption, lineage, masks, summary_drafts, turns, undo, unfold
from onefold.journal.adoption import Origin
from onefold.journal.journal import Journal
from onefold.journal.process_liveness import Whereabouts
from onefold.messages import draft
from onefold.model import Claim, Clock, Draft, HolderId, Json, Record, Segment, Summary, TurnClaim, Usage
from onefold.storage.base import Backend, ProjectionSnapshot, Transaction
from onefold.storage.memory import MemoryBackend, MemoryData, SessionData
from onefold.storage.memory_projection import DictProjection

SESSION = "s"
LEASE, LIFE = 60.0, 150.0
KEYED = "said once"
LONG = "what the tool gave " * 40
_FINAL = ("committed", "failed", "cancelled", "superseded", "skipped")
_WHO = HolderId("host", 1, "A", None, "nonce")
_THEM = Origin("a provider")
BY_ITEMS = " and by items "
_SHORT = Policy(tail_tokens=1, tail_messages=1, min_shrink=0.01)
"""By which nearly everything may be cut: the planner is to be tempted."""


@dataclass(frozen=True, slots=True)
class Actor:
    """What a process knows."""

    name: str
    seen: int = 1
    """The segment it measured last."""
    claim: Claim | None = None
    peeked: bool = False
    """The canary's: it looked, and found nothing open."""
    work: CompactionMaterial | None = None
    """What it read for its claim."""
    planned: Plan | None = None
    """Where it means to cut."""
    process: int = 0
    """Another one after a death that is known."""
    draft: tuple[int, int, str] | None = None
    """A new summary, with its record and the segment that was in force."""
    sent: tuple[tuple[int, ...], str] | None = None
    """What its provider was sent, and the text that stands for all of it."""
    item: tuple[int, tuple[int, ...]] | None = None
    """The message in which the provider gave that text, and what was sent."""


@dataclass(frozen=True, slots=True)
class World:
    """Everything there is at one moment, and how it came about."""

    room: MemoryData | None
    """All of a store in memory, to come back to; other stores only go on."""
    derived: ProjectionSnapshot
    now: float
    ids: int
    actors: tuple[Actor, ...]
    appended: tuple[str, ...]
    """Contents of messages that were acknowledged."""
    settled: tuple[tuple[str, str], ...] = ()
    """Compactions that were seen in a final state."""
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that does not hold, and the steps to it."""

    what: str
    path: tuple[str, ...]


@dataclass(slots=True)
class Explored:
    states: int = 0
    steps: int = 0
    depth: int = 0
    refused: int = 0
    broken: Broken | None = None


class Living:
    """A machine that knows which processes there are: those of the actors."""

    def __init__(self) -> None:
        self.me = 0
        self.living: frozenset[int] = frozenset()

    def this(self) -> Json:
        return self.me

    def whereabouts(self, process: Json) -> Whereabouts:
        return "here" if process in self.living else "gone"


class Stage:
    """One journal on which every world is set up in turn; or, of another kind of store, one that goes through one."""

    def __init__(self, open: Callable[[Clock], Backend] | None = None) -> None:
        self.now = 0.0
        self._ids = 0
        self.backend: Backend = open(lambda: self.now) if open else MemoryBackend(clock=lambda: self.now)
        self.machine = Living()
        self.journal = Journal(self.backend, ids=self._id, machine=self.machine)

    def _id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    def begin(
        self, actors: int, *, in_turn: bool = False, answered: bool = False, folded: bool = False
    ) -> World:  # fmt: skip
        """Two messages; or a turn that is open, with a call that waits and a word of the user after it; or a call that
        is `answered` at length; or two messages that are `folded`, and one more."""
        self._set(1000.0, 0, MemoryData())
        self.journal.create(SESSION)
        said: tuple[str, ...] = ("first", "second")
        if in_turn:
            said = ("look", "call 1", "by the way")
            turn = turns.start(self.journal, SESSION, _WHO, lease=1e9)
            assert isinstance(turn, TurnClaim)
            calls = {"role": "assistant", "content": "call 1", "tool_calls": [_call("c1")]}
            self.journal.append(SESSION, [self._message("look"), draft(calls, self._id)], turn=turn)
            self.journal.append(SESSION, [self._message("by the way")])
        elif answered:
            said = ("look", "call 1", LONG)
            calls = {"role": "assistant", "content": "call 1", "tool_calls": [_call("c1")]}
            given = {"role": "tool", "tool_call_id": "c1", "content": LONG}
            self.journal.append(SESSION, [self._message("look"), draft(calls, self._id), draft(given, self._id)])
        else:
            self.journal.append(SESSION, [self._message(text) for text in said])
        if folded:
            self.journal.request(SESSION)
            claim = self.journal.claim(SESSION, _WHO, lease=LEASE, life=LIFE)
            assert isinstance(claim, Claim)
            covers = self.backend.read(lambda tx: _covered(tx, claim))
            self.journal.commit(claim, f"covers {sorted(covers)}")
            self.journal.append(SESSION, [self._message("third")])
            said = (*said, "third")
        names = tuple(Actor(name, process=n) for n, name in enumerate("ABC"[:actors]))
        return World(*self._all(), names, said)

    def _set(self, now: float, ids: int, room: MemoryData | None) -> None:
        self.now, self._ids = now, ids
        if isinstance(self.backend, MemoryBackend) and room is not None:
            self.backend._room = room

    def _all(self) -> tuple[MemoryData | None, ProjectionSnapshot, float, int]:
        room = self.backend._room if isinstance(self.backend, MemoryBackend) else None
        return room, self.backend.read(lambda tx: tx.derived(SESSION)), self.now, self._ids

    def new_process(self) -> int:
        """A number that no process had before."""
        self._ids += 1
        return 100 + self._ids

    def _message(self, content: str) -> Draft:
        return draft({"role": "user", "content": content}, self._id)

    def after(self, world: World, actor: int, act: str) -> tuple[World, str | None] | None:
        """The world after one step, and what was refused; None if the step makes no sense there."""
        me = world.actors[actor]
        self._set(world.now, world.ids, None if world.room is None else _copy(world.room))
        self.machine.me, self.machine.living = me.process, frozenset(a.process for a in world.actors)
        refused = None
        try:
            known = _ALL_ACTS[act](self, me)
        except OnefoldError as error:
            known, refused = me, type(error).__name__
        if known is None:
            return None
        actors = (*world.actors[:actor], known, *world.actors[actor + 1 :])
        appended = world.appended
        if act in _TOLD and refused is None:
            appended = (*appended, f"{_TOLD[act]} {len(world.appended)}")
        if act == "append with the key" and refused is None and KEYED not in appended:
            appended = (*appended, KEYED)
        then = World(*self._all(), actors, appended, world.settled, (*world.path, f"{me.name} {act}"))
        return replace(then, settled=self._settled(then)), refused

    def _settled(self, world: World) -> tuple[tuple[str, str], ...]:
        found = world.derived.compactions.values()
        return tuple(sorted((c.id, c.state) for c in found if c.state in _FINAL))

    def read(self, world: World, look: Callable[[Transaction], object]) -> object:
        self._set(world.now, world.ids, world.room)
        return self.backend.read(look)


# ---------------------------------------------------------------------- what an actor may do


def _append(stage: Stage, me: Actor) -> Actor:
    count = stage.journal.state(SESSION).messages
    stage.journal.append(SESSION, [stage._message(f"message {count}")])
    return me


def _append_once(stage: Stage, me: Actor) -> Actor:
    """The same message with the same key from everybody, as after a lost answer: it counts once."""
    stage.journal.append(SESSION, [stage._message(KEYED)], key="the key")
    return me


def _look(stage: Stage, me: Actor) -> Actor | None:
    head = stage.journal.state(SESSION).head
    return None if head == me.seen else replace(me, seen=head)


def _request(stage: Stage, me: Actor, *, trigger: str = "manual") -> Actor:
    stage.journal.request(SESSION, trigger=trigger, base=me.seen, attempts=2)
    return me


def _claim(stage: Stage, me: Actor) -> Actor | None:
    who = HolderId("host", 1, me.name, None, "nonce")
    got = stage.journal.claim(SESSION, who, lease=LEASE, life=LIFE)
    return replace(me, claim=got) if isinstance(got, Claim) else me


def _renew(stage: Stage, me: Actor) -> Actor | None:
    if me.claim is None:
        return None
    stage.journal.renew(me.claim)
    return me


def _commit(stage: Stage, me: Actor, *, beyond: bool = False) -> Actor | None:
    """Commits a summary of exactly what was claimed; `beyond`, with a cut that lies after it."""
    claim = me.claim
    if claim is None:
        return None
    covers = stage.backend.read(lambda tx: _covered(tx, claim))
    cut = stage.journal.state(SESSION).last + 1 if beyond else claim.fence
    stage.journal.commit(claim, f"covers {sorted(covers)}", cut)
    return me


def _fail(stage: Stage, me: Actor) -> Actor | None:
    if me.claim is None:
        return None
    stage.journal.fail(me.claim, "no answer", 0.0)
    return me


def _hand_back(stage: Stage, me: Actor) -> Actor | None:
    if me.claim is None:
        return None
    stage.journal.hand_back(me.claim, "closed", asked=True)
    return me


def _skip(stage: Stage, me: Actor) -> Actor | None:
    if me.claim is None:
        return None
    stage.journal.skip(me.claim, "nothing to compact")
    return me


def _cancel(stage: Stage, me: Actor) -> Actor:
    stage.journal.cancel(SESSION)
    return me


def _restore(stage: Stage, me: Actor) -> Actor | None:
    """Goes back to the segment before the one it saw."""
    here = stage.backend.read(lambda tx: tx.segment(SESSION, me.seen))
    if here is None or here.base is None:
        return None
    return replace(me, seen=undo.restore(stage.journal, SESSION, here.base, expect_head=me.seen).number)


def _undo(stage: Stage, me: Actor) -> Actor:
    return replace(me, seen=undo.undo(stage.journal, SESSION, expect_head=me.seen).number)


def _unfold(stage: Stage, me: Actor) -> Actor:
    return replace(me, seen=unfold.unfold(stage.journal, SESSION, expect_head=me.seen).number)


def _refold(stage: Stage, me: Actor) -> Actor:
    return replace(me, seen=unfold.refold(stage.journal, SESSION, expect_head=me.seen).number)


def _crash(stage: Stage, me: Actor) -> Actor | None:
    return None if me.claim is None else replace(me, claim=None)


def _die(stage: Stage, me: Actor, *, really: bool = True) -> Actor | None:
    """A crash that is known at once, as a machine knows of its own processes. Not `really`: it lives and works on."""
    if me.claim is None:
        return None
    return replace(me, claim=None if really else me.claim, process=stage.new_process())


def _time(stage: Stage, me: Actor) -> Actor:
    """A lease runs out. Twice that, and the attempt's longest life is over too."""
    stage.now += LEASE + 20.0
    return me


def _peek(stage: Stage, me: Actor) -> Actor:
    return replace(me, peeked=stage.journal.state(SESSION).open is None)


def _open_unseen(stage: Stage, me: Actor) -> Actor | None:
    """Opens a compaction because none was open when it looked: right when nobody else is there, and a race."""
    if not me.peeked:
        return None

    def work(tx: Transaction) -> None:
        tx.put_session(stage.journal.ask(tx, lineage.get_session(tx, SESSION), "manual"))

    stage.backend.write(SESSION, work)
    return replace(me, peeked=False)


# ---------------------------------------------------------------------- the same with a planner, in a turn with calls


def _call(id: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}}


def _result(stage: Stage, me: Actor) -> Actor | None:
    """The result of the call comes, late or in time."""
    state = stage.journal.state(SESSION)
    there = [r for r in stage.journal.read(SESSION) if r.header is not None and r.header.result_ids]
    if there:
        return None
    body = {"role": "tool", "tool_call_id": "c1", "content": f"result {state.messages}"}
    stage.journal.append(SESSION, [draft(body, stage._id)])
    return me


def _settle(stage: Stage, me: Actor) -> Actor | None:
    """The turn ends by itself, whether or not its call was answered."""
    open_turn = turns.current(stage.journal, SESSION)
    if open_turn is None:
        return None
    own = TurnClaim(SESSION, open_turn.id, open_turn.number, None, 1e9, open_turn.until, os.getpid())
    turns.end(stage.journal, own)
    return me


def _gather(stage: Stage, me: Actor) -> Actor | None:
    return None if me.claim is None else replace(me, work=load_material(stage.journal, me.claim), planned=None)


def _plan(stage: Stage, me: Actor) -> Actor | None:
    planned = None if me.work is None else me.work.plan(_SHORT)
    return replace(me, planned=planned) if isinstance(planned, Plan) else None


def _commit_plan(stage: Stage, me: Actor) -> Actor | None:
    claim, planned = me.claim, me.planned
    if claim is None or planned is None:
        return None
    covers = stage.backend.read(lambda tx: _covered(tx, claim, planned.cut))
    stage.journal.commit(claim, f"covers {sorted(covers)}", planned.cut, kept=planned.kept)
    return me


PLANNED: dict[str, Callable[[Stage, Actor], Actor | None]] = {
    "append": _append,
    "result": _result,
    "settle": _settle,
    "request": _request,
    "claim": _claim,
    "gather": _gather,
    "plan": _plan,
    "commit the plan": _commit_plan,
    "time": _time,
}
_TOLD = {"append": "message", "result": "result", "provide": "item"}


def _torn(tx: Transaction, records: list[Record], head: Segment) -> str | None:
    """A call that was open by the records that were claimed must not lie before the cut, whatever came since."""
    by = None if head.compaction is None else tx.compaction(SESSION, head.compaction)
    if by is None:
        return None
    claimed = [r for r in records if r.number < by.fence]
    ended = {r.turn for r in claimed if r.kind == "turn.settled"}
    for call in (r for r in claimed if r.header is not None and r.header.call_ids and r.number < head.cut):
        since = [r.header for r in claimed if r.number > call.number and r.header is not None]
        answered = {id for header in since for id in header.result_ids}
        opens = call.header.call_ids if call.header is not None else ()
        asked_again = any(header.role == "assistant" for header in since)
        if not answered >= {*opens} and not asked_again and call.turn not in ended:
            return f"the call in message {call.number} was open when it was claimed, and lies before the cut"
    return None


def _mask(stage: Stage, me: Actor, *, full: bool = False) -> Actor:
    """Masks the results of the segment that it saw."""
    given = [r.number for r in stage.journal.read(SESSION) if r.header is not None and r.header.result_ids]
    return replace(me, seen=masks.mask(stage.journal, SESSION, given, expect_head=me.seen, full=full).number)


def _unmask(stage: Stage, me: Actor) -> Actor | None:
    """Shows again what was masked where it looked last."""
    seen = stage.backend.read(lambda tx: tx.segment(SESSION, me.seen))
    if seen is None or seen.source != "masked":
        return None
    return replace(me, seen=unfold.unfold(stage.journal, SESSION, seen.number, expect_head=me.seen).number)


MASKED: dict[str, Callable[[Stage, Actor], Actor | None]] = {
    "append": _append,
    "look": _look,
    "request": _request,
    "request by itself": lambda stage, me: _request(stage, me, trigger="threshold"),
    "claim": _claim,
    "commit": _commit,
    "fail": _fail,
    "restore": _restore,
    "unfold": _unfold,
    "mask": _mask,
    "mask what is full": lambda stage, me: _mask(stage, me, full=True),
    "unmask": _unmask,
    "seem dead": lambda stage, me: _die(stage, me, really=False),
    "time": _time,
}
"""Where a call was answered at length: masks beside compactions and ways back."""


def _draft(stage: Stage, me: Actor) -> Actor:
    """The summary in force once more, of what it was made of."""
    seen = stage.backend.read(lambda tx: summary_drafts.present(tx, SESSION))
    covers = stage.backend.read(lambda tx: _made_of(tx, seen.base, seen.head))
    number = summary_drafts.drafted(stage.journal, SESSION, seen.head.number, by=None, spent=Usage())
    return replace(me, draft=(number, seen.head.number, f"covers {sorted(covers)}"))


def _made_of(tx: Transaction, base: Segment, head: Segment) -> set[int]:
    return {r.number for r in lineage.messages(tx, SESSION, base.cut, head.cut, head.hidden)} | _knows(tx, base)


def _take(stage: Stage, me: Actor) -> Actor | None:
    """Takes the draft that it has, however old that is, and keeps it: its answer may have been lost."""
    if me.draft is None:
        return None
    number, head, text = me.draft
    summary_drafts.replaced(stage.journal, SESSION, Summary(text), None, number=number, expect_head=head, who=_WHO)
    return me


DRAFTED: dict[str, Callable[[Stage, Actor], Actor | None]] = {
    "append": _append,
    "look": _look,
    "request": _request,
    "claim": _claim,
    "commit": _commit,
    "undo": _undo,
    "unfold": _unfold,
    "refold": _refold,
    "draft": _draft,
    "take": _take,
    "time": _time,
}
"""Where something is folded: summaries that are written once more, beside compactions and ways back."""


def _send(stage: Stage, me: Actor, *, part: bool = False) -> Actor:
    """Its provider is sent the context as it is now; or only a `part`, without what tools gave."""

    def look(tx: Transaction) -> tuple[tuple[int, ...], str]:
        head = tx.segment(SESSION, lineage.get_session(tx, SESSION).head)
        assert head is not None
        shown = lineage.messages(tx, SESSION, head.cut, lineage.get_session(tx, SESSION).last + 1, head.hidden)
        given = [r for r in (*shown, *lineage.some(tx, SESSION, head.kept)) if not (part and _answers(r))]
        sent = {r.number for r in given}
        items = (r.body["content"][0]["content"] for r in given if type(r.body["content"]) is list)
        known = _knows(tx, head).union(*(_numbers(text) for text in items))
        told = f"covers {sorted(sent | _knows(tx, head, itself=True))}{BY_ITEMS}{sorted(known)}"
        return tuple(sorted(sent | ({head.number} if head.summary is not None else set()))), told

    return replace(me, sent=stage.backend.read(look))


def _answers(record: Record) -> bool:
    return record.header is not None and bool(record.header.result_ids)


def _provide(stage: Stage, me: Actor) -> Actor | None:
    """The provider has made its item, much later perhaps, and it is a message like any other."""
    if me.sent is None:
        return None
    numbers, told = me.sent
    name = f"item {stage.journal.state(SESSION).messages}"
    body = {"role": "assistant", "content": [{"type": "compaction", "content": told, "name": name}]}
    stage.journal.append(SESSION, [draft(body, stage._id, format="anthropic")])
    return replace(me, item=(stage.journal.state(SESSION).last, numbers), sent=None)


def _adopt(stage: Stage, me: Actor) -> Actor | None:
    """Adopts the item that it has, on the segment that it saw, and keeps it: its answer may have been lost."""
    if me.item is None:
        return None
    number, sent = me.item
    made = adoption.adopt(stage.journal, SESSION, [number], sent, origin=_THEM, expect_head=me.seen)
    return replace(me, seen=made.number)


ADOPTED: dict[str, Callable[[Stage, Actor], Actor | None]] = {
    "append": _append,
    "look": _look,
    "request": _request,
    "request by itself": lambda stage, me: _request(stage, me, trigger="threshold"),
    "claim": _claim,
    "commit": _commit,
    "undo": _undo,
    "unfold": _unfold,
    "refold": _refold,
    "send": _send,
    "send a part": lambda stage, me: _send(stage, me, part=True),
    "provide": _provide,
    "adopt": _adopt,
    "seem dead": lambda stage, me: _die(stage, me, really=False),
}
"""Where a call was answered at length: what a provider made of it, beside compactions and ways back."""


def _parted(records: list[Record], head: Segment) -> str | None:
    """A call and its result stand in a context both, or neither."""
    there = [r for r in records if r.header is not None and not lineage.is_hidden(head.hidden, r.number)]
    shown = {r.number for r in there if r.number >= head.cut or r.number in head.kept}
    for call in (r for r in there if r.header is not None and r.header.call_ids):
        given = [r for r in there if r.header is not None and {*r.header.result_ids} & {*call.header.call_ids}]  # type: ignore[union-attr]
        if any((r.number in shown) != (call.number in shown) for r in given):
            return f"the call in message {call.number} is parted from its result"
    return None


CANARY: dict[str, Callable[[Stage, Actor], Actor | None]] = {"peek": _peek, "open unseen": _open_unseen}
"""A race that is known: check in one transaction, write in the next. A search that does not find it finds nothing."""

ACTS: dict[str, Callable[[Stage, Actor], Actor | None]] = {
    "append": _append,
    "append with the key": _append_once,
    "look": _look,
    "request": _request,
    "claim": _claim,
    "renew": _renew,
    "commit": _commit,
    "commit too much": lambda stage, me: _commit(stage, me, beyond=True),
    "fail": _fail,
    "hand back": _hand_back,
    "skip": _skip,
    "cancel": _cancel,
    "restore": _restore,
    "undo": _undo,
    "unfold": _unfold,
    "refold": _refold,
    "crash": _crash,
    "die": _die,
    "seem dead": lambda stage, me: _die(stage, me, really=False),
    "time": _time,
}


_ALL_ACTS = {**PLANNED, **MASKED, **DRAFTED, **ADOPTED, **CANARY, **ACTS}


def _covered(tx: Transaction, claim: Claim, cut: int | None = None) -> set[int]:
    """What a good summary of a claim stands for: what the one before stands for, and the messages since."""
    base = tx.segment(SESSION, claim.base)
    assert base is not None
    since = lineage.messages(tx, SESSION, base.cut, claim.fence if cut is None else cut, base.hidden)
    return {r.number for r in since} | _knows(tx, base) | {*base.kept}


def _knows(tx: Transaction, segment: Segment, *, itself: bool = False) -> set[int]:
    """What a segment's summary tells of: all, or only what it tells of `itself` and not by an item that was sent as the
    message that it is. What somebody appends may tell of anything, also of what was taken back."""
    said = lineage.summary(tx, SESSION, segment)
    if said is None:
        return set()
    own, _, _ = said.body["summary"].partition(BY_ITEMS)
    return _numbers(own if itself else said.body["summary"])


def _numbers(text: str) -> set[int]:
    return {int(n) for n in re.findall(r"\d+", text)}


# ---------------------------------------------------------------------- the promises


def complaint(stage: Stage, before: World | None, world: World) -> str | None:
    """The first promise that does not hold in a world."""
    found = stage.read(world, lambda tx: _wrong(tx, world))
    if isinstance(found, str):
        return found
    if before is not None:
        now = dict(world.settled)
        for id, state in before.settled:
            if now.get(id) != state:
                return f"compaction {id} was {state} and is {now.get(id, 'open')} again"
        return _needless(before, world) or _evicted(before, world) or _unasked(before, world)
    return None


def _wrong(tx: Transaction, world: World) -> str | None:
    state = tx.session(SESSION)
    assert state is not None
    records = tx.records(SESSION, 1, 1 << 30, 1 << 30)
    if [r.number for r in records] != list(range(1, state.last + 1)):
        return "records are not numbered without gaps"
    segments = tx.segments(SESSION)
    bases = [s.base for s in segments]
    if len(set(bases)) != len(bases):
        return "a segment has two successors"
    if any(b.base != a.number for a, b in pairwise(segments)):
        return "the segments are no chain"
    head = segments[-1]
    if state.head != head.number:
        return "the head is not the newest segment"
    open_ones = tx.compactions(SESSION, open_only=True)
    if len(open_ones) > 1:
        return "two compactions are open"
    if open_ones and open_ones[0].base != head.number:
        return "an open compaction is not on the head"
    if any("plan" in act for act in world.path) and (torn := _torn(tx, records, head)) is not None:
        return torn
    if any("adopt" in act for act in world.path) and (parted := _parted(records, head)) is not None:
        return parted
    return _lost_or_found(tx, records, head, world)


def _lost_or_found(tx: Transaction, records: list[Record], head: Segment, world: World) -> str | None:
    messages = [r for r in records if r.kind == "message"]
    if sorted(_content(r) for r in messages) != sorted(world.appended):
        return "what was acknowledged is not what is there"
    if any(number < head.cut or lineage.is_hidden(head.hidden, number) for number, _ in head.masked):
        return "something is masked that is not in view"
    knows, tells = _knows(tx, head), _knows(tx, head, itself=True)
    # An item that was adopted is shown to nobody but its provider, and was taken back by nobody for that.
    items = {n for r in records if r.kind == "segment.opened" for n in r.body.get("adopts", {}).get("window", ())}
    for message in messages:
        hidden = lineage.is_hidden(head.hidden, message.number)
        if hidden and message.number in tells and message.number not in items:
            return f"the summary knows message {message.number}, which was undone"
        if not hidden and message.number < head.cut and message.number not in knows | {*head.kept}:
            return f"message {message.number} is neither in the context nor in its summary"
    return None


def _content(message: Record) -> str:
    said = message.body["content"]
    return said if isinstance(said, str) else said[0]["name"]


def _needless(before: World, world: World) -> str | None:
    """Whoever measured an old segment opens nothing: what it asks for has been done."""
    name, _, what = world.path[-1].partition(" ")
    seen = next(a.seen for a in before.actors if a.name == name)
    then, now = before.derived, world.derived
    if what.startswith("request") and then.state is not None and seen != then.state.head:
        opened = len(now.compactions) > len(then.compactions)
        since = [s for number, s in then.segments.items() if number > seen]
        heard = what == "request" and all(s.source == "masked" for s in since)  # a person who saw it before that
        return f"{name} measured segment {seen}, and had the head compacted" if opened and not heard else None
    return None


def _unasked(before: World, world: World) -> str | None:
    """An item is adopted on the segment that was looked at, and gives up nothing that a person asked for."""
    name, _, what = world.path[-1].partition(" ")
    then, now = before.derived.state, world.derived.state
    if what != "adopt" or then is None or now is None or then.head == now.head:
        return None
    seen = next(a.seen for a in before.actors if a.name == name)
    if seen != then.head:
        return f"{name} looked at segment {seen}, and adopted on segment {then.head}"
    asked = any(c.open and c.trigger == "manual" for c in before.derived.compactions.values())
    return f"{name} adopted, and what a person asked for was given up" if asked else None


def _evicted(before: World, world: World) -> str | None:
    """A live attempt is ended by its own actor, by a person, or by a segment that opened; never by a zombie, and never
    by a mask or by what a provider made."""
    then, now = _running(before), _running(world)
    act = world.path[-1]
    name, _, what = act.partition(" ")
    if then is not None and now is None and what.startswith(("mask", "adopt")) and _held(before):
        return f"{name} did {what}, and the attempt {then} of another one was given up"
    if then is None or now is not None or what not in ("fail", "hand back", "skip"):
        return None
    claim = next(a.claim for a in before.actors if a.name == name)
    if claim is not None and claim.fence != then:
        return f"{name} ended the attempt {then}, which is another one's"
    return None


def _held(world: World) -> bool:
    """Whether a lease of somebody who lives is in force."""
    assert world.room is not None
    lease = world.room.leases.get(SESSION)
    return lease is not None and lease.in_force(world.now) and _holder(world) in {a.process for a in world.actors}


def _running(world: World) -> int | None:
    found = world.derived.compactions.values()
    return next((c.fence for c in found if c.state == "running"), None)


def ends(stage: Stage, world: World) -> bool:
    """Whether the open compaction ends, if a process lives that only ever claims, dies each time it works, and those
    that hold something renew it for ever."""
    last = len(world.actors) - 1
    for _ in range(12):
        if _open_id(world) is None:
            return True
        for actor, act in ((0, "time"), *((n, "renew") for n in range(last + 1)), (last, "claim"), (last, "crash")):
            step = stage.after(world, actor, act)
            world = world if step is None else step[0]
    return False


def waited_for(stage: Stage, world: World) -> bool:
    """Whether anybody has to wait for a holder that is known to be dead: a claim neither gets the work nor ends it."""
    fence = _running(world)
    if fence is None or _holder(world) in {a.process for a in world.actors}:
        return False
    step = stage.after(world, len(world.actors) - 1, "claim")
    return step is None or _running(step[0]) == fence


def _holder(world: World) -> Json:
    """The process that works on the open compaction."""
    assert world.room is not None
    fence = _running(world)
    return None if fence is None else world.room.shelves[SESSION].records[fence - 1][0].body["process"]


def _open_id(world: World) -> str | None:
    found = world.derived.compactions.values()
    return next((c.id for c in found if c.open), None)


# ---------------------------------------------------------------------- the search


def explore(
    depth: int,
    *,
    actors: int = 2,
    most: int | None = None,
    stage: Stage | None = None,
    acts: tuple[str, ...] = tuple(ACTS),
    in_turn: bool = False,
    answered: bool = False,
    folded: bool = False,
) -> Explored:
    """Goes through every order of steps to a depth, the shortest first, or until so many states were met."""
    stage = stage or Stage()
    first = stage.begin(actors, in_turn=in_turn, answered=answered, folded=folded)
    found = Explored(states=1)
    seen = {_essence(first)}
    line: deque[World] = deque([first])
    while line:
        world = line.popleft()
        found.depth = len(world.path) + 1
        for then, refused in _next(stage, world, acts):
            found.steps += 1
            found.refused += refused
            wrong = complaint(stage, world, then)
            if wrong is not None:
                found.broken = Broken(wrong, then.path)
                return found
            essence = _essence(then)
            if essence in seen:
                continue
            seen.add(essence)
            found.states += 1
            if _open_id(then) is not None and not ends(stage, then):
                found.broken = Broken("a compaction never ends", then.path)
                return found
            if waited_for(stage, then):
                found.broken = Broken("somebody waits for a holder that is known to be dead", then.path)
                return found
            if len(then.path) < depth:
                line.append(then)
            if most is not None and found.states >= most:
                return found
    return found


def explore_plans(depth: int) -> Explored:
    """The same where reading, planning and committing are steps of their own, in a turn whose call waits."""
    return explore(depth, acts=tuple(PLANNED), in_turn=True)


def explore_masks(depth: int) -> Explored:
    """The same where a tool has given much, and anybody may mask that."""
    return explore(depth, acts=tuple(MASKED), answered=True)


def explore_drafts(depth: int) -> Explored:
    """The same where a summary is in force, and anybody may have it written once more."""
    return explore(depth, acts=tuple(DRAFTED), folded=True)


def explore_adoptions(depth: int) -> Explored:
    """The same where a provider compacts what it was sent, and anybody may adopt that."""
    return explore(depth, acts=tuple(ADOPTED), answered=True)


def walk(stage: Stage, steps: int, chance: random.Random, *, actors: int = 3) -> Explored:
    """One order of steps, taken by chance: for any kind of store, and as long as one likes."""
    world, found = stage.begin(actors), Explored(states=1)
    while found.steps < steps:
        step = stage.after(world, chance.randrange(actors), chance.choice(tuple(ACTS)))
        if step is None:
            continue
        then, refused = step
        found.steps += 1
        found.refused += refused is not None
        wrong = complaint(stage, world, then)
        if wrong is not None:
            found.broken = Broken(wrong, then.path)
            return found
        world = then
    return found


def canary() -> Broken | None:
    """What the search says of a race that is surely there."""
    return explore(4, acts=tuple(CANARY)).broken


def _next(stage: Stage, world: World, acts: tuple[str, ...]) -> Iterator[tuple[World, bool]]:
    for actor in range(len(world.actors)):
        for act in acts:
            if act == "time" and actor:
                continue  # it passes for all
            step = stage.after(world, actor, act)
            if step is not None:
                yield step[0], step[1] is not None


def _essence(world: World) -> object:
    """What of a world matters for what can come of it: not ids, nor the time itself."""
    assert world.room is not None
    shelf = world.room.shelves[SESSION]
    lease = world.room.leases.get(SESSION)
    holder = _holder(world)
    knows = (
        (
            a.seen, 0 if a.claim is None else a.claim.fence, a.peeked, a.process == holder,
            str(a.work and a.work.turns), str(a.planned), str(a.draft), str(a.sent), str(a.item),
        )
        for a in world.actors
    )  # fmt: skip
    return (
        _records(shelf),
        KEYED in world.appended,
        None if lease is None else (lease.fence, round(lease.until - world.now)),
        tuple(
            (c.state, c.trigger, c.attempts, c.fence, round(world.now - c.started_at) if c.started_at and c.open else 0)
            for c in world.derived.compactions.values()
        ),
        tuple(sorted(knows)),  # which of them is called A does not matter either
    )


def _records(shelf: SessionData) -> tuple[object, ...]:
    return tuple(
        (
            r.kind,
            str(r.body.get("hidden")),
            r.body["cut"],
            r.body.get("summary"),
            str(r.body.get("masked")),
            r.body.get("item"),
            str(r.body.get("adopts")),
        )
        if r.kind == "segment.opened"
        else r.kind
        for r, _ in shelf.records
    )


def _copy(room: MemoryData) -> MemoryData:
    made = MemoryData()
    for id, shelf in room.shelves.items():
        copied = SessionData()
        copied.records = list(shelf.records)
        d = shelf.rows.derived
        copied.rows = DictProjection(
            ProjectionSnapshot(
                d.state, dict(d.segments), dict(d.compactions), dict(d.keys), set(d.inputs), set(d.aliases)
            )
        )
        made.shelves[id] = copied
    made.leases._rows = dict(room.leases._rows)
    made.turn_leases._rows = dict(room.turn_leases._rows)
    return made


def _searches() -> dict[str, Callable[[argparse.Namespace], Explored]]:
    return {
        "plans": lambda _: explore_plans(7),
        "masks": lambda _: explore_masks(5),
        "drafts": lambda _: explore_drafts(6),
        "adoptions": lambda _: explore_adoptions(5),
        "compactions": lambda chosen: explore(chosen.depth, actors=chosen.actors, most=chosen.most),
    }


def main() -> int:
    options = argparse.ArgumentParser(description="Goes through every order of steps of a few actors.")
    options.add_argument("--depth", type=int, default=5)
    options.add_argument("--actors", type=int, default=2)
    options.add_argument("--most", type=int, help="states after which it stops")
    options.add_argument("--only", choices=list(searches := _searches()), help="one search instead of all")
    chosen = options.parse_args()
    if canary() is None:
        print("BROKEN: the search did not find a race that is there")
        return 1
    for found in (search(chosen) for name, search in searches.items() if chosen.only in (None, name)):
        print(f"{found.states:,} states, {found.steps:,} steps, depth {found.depth}, {found.refused:,} refused")
        if found.broken is not None:
            print(f"BROKEN: {found.broken.what}: {' / '.join(found.broken.path)}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
