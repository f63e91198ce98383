"""What a session promises through its whole life, as plain Python: the judge of `test_life_model`.

A `Life` is one session. It holds the records that were acknowledged and, for each segment, the view it gives. Every
operation of the library has a method of the same name, which either says what it writes or is `Refused`. Nothing is
clever here: sets of numbers, no ranges, no indexes, no database. A fork has the very entries of its parent, so that
what is erased there is gone here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from typing import Any

CONTENT = ("message", "input.queued", "note")
SILENT = ("segment", "compaction", "summary", "turn", "input", "agent", "limits")
"""The first words of kinds that no context shows, hidden or not."""
URGENT = ("manual", "limit", "overflow", "erase")


class Refused(Exception):
    """The operation writes nothing and raises the error of this name."""

    @property
    def why(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Prompt:
    """The body of a mark: these messages are the system prompt from here on."""

    numbers: tuple[int, ...]


@dataclass
class Entry:
    """A record, as far as a promise speaks of it. `body` is a message as given, or what the record is about."""

    kind: str
    body: Any = None
    turn: int = 0
    """The number of its turn's `turn.started`; 0 outside of one."""
    key: str | None = None
    was: str = ""
    """What it was before it was erased."""

    @property
    def role(self) -> str:
        return str(self.body.get("role", "assistant")) if self.kind == "message" else ""

    @property
    def calls(self) -> list[str]:
        return [c["id"] for c in self.body.get("tool_calls", ())] if self.kind == "message" else []

    @property
    def answers(self) -> str | None:
        return self.body.get("tool_call_id") if self.kind == "message" else None

    @property
    def item(self) -> str | None:
        """What a provider says here in place of all that it was sent: as a text, or sealed."""
        if self.kind != "message":
            return None
        blocks = self.body["content"] if isinstance(self.body.get("content"), list) else [self.body]
        found = (b for b in blocks if b.get("type") == "compaction")
        return next((b.get("content") or b.get("encrypted_content") for b in found), None)

    @property
    def sealed(self) -> bool:
        return "encrypted_content" in self.body

    @property
    def rest(self) -> Any:
        """The message without its item; None if that is all there is."""
        blocks = self.body["content"] if isinstance(self.body.get("content"), list) else []
        left = [b for b in blocks if b.get("type") != "compaction"]
        return self.body | {"content": left} if left else None


@dataclass
class Summary:
    number: int
    """Of the segment that it was written in."""
    knows: frozenset[int]
    erased: bool = False
    quotes: frozenset[int] = frozenset()
    """Messages that stand beside it word for word."""
    draft: int = 0
    """The record that says what it cost, if it was written in place of another one."""


@dataclass
class Item:
    """What a provider made, once it is adopted."""

    segment: int
    """That adopted it."""
    window: tuple[int, ...]
    """The messages that came back, the item's own the last."""
    origin: str
    cut: int
    kept: tuple[int, ...]
    """What it does not cover of all that lies before its cut."""
    sealed: bool
    knows: frozenset[int]
    quotes: frozenset[int]
    erased: bool = False

    def covers(self, number: int) -> bool:
        return number < self.cut and number not in self.kept and number not in self.window


@dataclass(frozen=True)
class View:
    """What one segment shows: the messages from its cut on, those it keeps, and a summary of the others."""

    cut: int = 1
    summary: Summary | None = None
    kept: tuple[int, ...] = ()
    hidden: frozenset[int] = frozenset()
    redo: int | None = None
    keeper: str = "onefold"
    source: str = "created"
    unfolds: tuple[int, ...] = ()
    masked: frozenset[int] = frozenset()
    """Results that are shown as one line."""
    origin: int | None = None
    """Of one that only masks: the one that it stands on."""
    item: Item | None = None
    """What a provider made, for a context that is for its origin."""
    bare: frozenset[int] = frozenset()
    """Messages that everybody else is shown without the item in them."""

    def masking(self, masked: frozenset[int]) -> frozenset[int]:
        """Those of some results that this view would show."""
        return frozenset(n for n in masked if n >= self.cut and n not in self.hidden)


@dataclass
class Timed:
    """A lease, or a wait: over at its end, and over when more than its length is left, since the clock jumped."""

    until: float
    length: float

    def lasts(self, now: float) -> bool:
        return now < self.until <= now + self.length


@dataclass
class Act:
    """A compaction."""

    number: int
    base: int
    trigger: str
    allowed: int
    state: str = "requested"
    requests: int = 1
    attempts: int = 0
    fence: int = 0
    segment: int | None = None
    committed_by: int = 0
    """The fence of the claim whose commit it was; 0 if it was no claim's."""
    since: float = 0
    life: float = 0
    lease: Timed | None = None
    wait: Timed | None = None
    asked: int = 0
    """Attempts that asked a summarizer, or may have."""
    settled_at: float = 0
    gone: bool = False
    """Its holder is known to be dead."""

    @property
    def open(self) -> bool:
        return self.state in ("requested", "running")

    def alive(self, now: float) -> bool:
        return self.state == "running" and self.since <= now < self.since + self.life

    def held(self, now: float) -> bool:
        return self.alive(now) and self.lease is not None and self.lease.lasts(now) and not self.gone

    def dead(self, now: float) -> bool:
        return self.state == "running" and self.attempts >= self.allowed and not self.held(now)


@dataclass
class Pairs:
    results: dict[int, list[int]] = field(default_factory=dict)
    """By call; those under 0 answer no call that is there."""
    lacks: dict[int, list[str]] = field(default_factory=dict)
    """By call: the ids that have no result."""
    given_up: set[int] = field(default_factory=set)


@dataclass
class World:
    """All lives of one store, and the time."""

    now: float
    lives: dict[str, Life] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Whose each other id is."""
    gone: set[str] = field(default_factory=set)
    """Ids that were of a session which was deleted."""

    def create(self, id: str, keeper: str = "onefold") -> Life:
        if id in self.gone:
            raise Refused("SessionNotFound")
        if id not in self.lives:
            self.lives[id] = Life(self, id)
            self.lives[id].open_view(View(keeper=keeper))
        return self.lives[id]


class Life:
    def __init__(self, world: World, id: str) -> None:
        self.world = world
        self.id = id
        self.entries: dict[int, Entry] = {}
        self.views: dict[int, View] = {}
        self.last = self.head = 0
        self.keys: dict[str, tuple[list[int], Any]] = {}
        self.inputs: list[int] = []
        self.acts: list[Act] = []
        self.aliases: list[str] = []
        self.turn = 0
        self.turn_lease = Timed(0, 0)
        self.turn_gone = False
        """Its writer is known to be dead."""
        self.parent: str | None = None
        self.kind = ""
        self.births: list[int] = []
        """Where this one, its parent and so on began; the newest last."""
        self.lost = 0
        """Up to here its past was of a session that is deleted."""
        self.failures = self.failed_tokens = self.paid = self.rests = 0
        self.limits: tuple[int, Any] = (0, None)
        """The record that says which limits its agent goes by, and what it says."""
        self.tokens = 0
        """As the library said last: only the bound on automatic compactions needs it."""
        self.told: set[int] = set()
        """The segments in which its agent has told of a summary of its own that stands."""
        self.stood: list[tuple[str, str]] = []
        """The notes of its last context: of a fork's, some may be its parent's and go with theirs."""

    # ------------------------------------------------------------------ what is seen

    @property
    def forked_at(self) -> int:
        return self.births[-1] if self.births else 0

    @property
    def view(self) -> View:
        return self.views[self.head]

    def stands_on(self, number: int) -> int:
        """A segment, or the one below it that does more than mask."""
        return self.views[number].origin or number

    @property
    def stands(self) -> View:
        return self.views[self.stands_on(self.head)]

    def summary(self, view: View) -> Summary | None:
        return view.summary if view.summary is not None and view.summary.number > self.lost else None

    @property
    def open(self) -> Act | None:
        return next((a for a in self.acts if a.open), None)

    def visible(self, upto: int | None = None, start: int = 1, hidden: frozenset[int] | None = None) -> list[int]:
        """The messages that count, in order."""
        off = self.view.hidden if hidden is None else hidden
        stop = self.last if upto is None else upto
        return [
            n for n, e in sorted(self.entries.items()) if e.kind == "message" and start <= n <= stop and n not in off
        ]

    def silent(self, number: int) -> bool:
        """Whether nobody can tell if this record is hidden."""
        return number in self.entries and self.entries[number].kind.split(".")[0] in SILENT

    def joined(self, hidden: frozenset[int]) -> frozenset[int]:
        """With what lies between hidden records, where nobody can tell."""
        more: set[int] = set()
        for before, after in pairwise(sorted(hidden)):
            between = range(before + 1, after)
            if all(self.silent(n) for n in between):
                more |= {*between}
        return hidden | more

    def over(self, turn: int, upto: int) -> bool:
        """Whether a turn had ended at a record. A fork begins outside of its parent's turns."""
        ended = any(e.kind == "turn.settled" and e.turn == turn and n <= upto for n, e in self.entries.items())
        return turn > 0 and (ended or any(turn <= b < upto for b in self.births))

    def paired(self, numbers: Sequence[int], upto: int) -> Pairs:
        """Which result answers which call, when these messages are read in order."""
        pairs = Pairs()
        asked: dict[str, int] = {}
        for n in numbers:
            entry = self.entries[n]
            if entry.role == "assistant":  # the model was asked again: what has no result by now gets none
                pairs.given_up |= set(asked.values())
            if entry.answers is not None:
                call = asked.pop(entry.answers, None)
                pairs.results.setdefault(call or 0, []).append(n)
                if call is not None:
                    pairs.lacks[call].remove(entry.answers)
            for id in entry.calls:
                asked[id] = n
                pairs.lacks.setdefault(n, []).append(id)
        pairs.given_up |= {n for n in pairs.lacks if self.over(self.entries[n].turn, upto)}
        return pairs

    def cut_by(self, upto: int) -> int:
        return next((v.cut for n, v in sorted(self.views.items(), reverse=True) if n <= upto and v.cut <= upto), 1)

    def waiting(self, upto: int, hidden: frozenset[int]) -> dict[int, list[str]]:
        """The calls that still wait for a result at a record. What was cut away by then waits no more."""
        pairs = self.paired(self.visible(upto, self.cut_by(upto), hidden), upto)
        return {n: ids for n, ids in pairs.lacks.items() if ids and n not in pairs.given_up}

    def landing(self, to: int, hidden: frozenset[int]) -> int:
        """Going back ends at a closed group."""
        while waits := self.waiting(to, hidden):
            to = min(waits) - 1
        return to

    def legal_cut(self, cut: int, upto: int) -> bool:
        """No cut parts a call from its result."""
        pairs = self.paired(self.visible(upto, self.view.cut), upto)
        spans = [(call, max(pairs.results.get(call, [call]))) for call in pairs.lacks]
        spans += [(call, upto) for call in pairs.lacks if pairs.lacks[call] and call not in pairs.given_up]
        return not any(first < cut <= last for first, last in spans)

    def pinned(self, before: int | None = None) -> set[int]:
        """By marks before a record; by all of them."""
        found: set[int] = set()
        for n, e in sorted(self.entries.items()):
            if before is not None and n >= before:
                break
            if e.kind == "pin.added" and isinstance(e.body, list):
                found |= set(e.body)
            if e.kind == "pin.removed":
                found -= set(e.body)
        return found & set(self.visible())

    def prompts(self, before: int) -> list[list[int]]:
        """The system prompts that were ever in force by records before this one and are in view; the newest last."""
        seen = self.visible(before - 1)
        begins = [*takewhile(lambda n: self.entries[n].role == "system", seen)]
        marks = [e.body for n, e in sorted(self.entries.items()) if n < before and isinstance(e.body, Prompt)]
        said = [[n for n in mark.numbers if n in seen] for mark in marks]
        return [begins, *(some for some in said if some)]

    def notes(self, before: int | None = None) -> list[tuple[str, str]]:
        """What holds, in the order it was said: kind and text; by records before this one, or by all."""
        found: dict[tuple[str, str], tuple[str, str]] = {}
        for n, e in sorted(self.entries.items()):
            if e.kind == "note" and n not in self.view.hidden and (before is None or n < before):
                kind, text, key, _ = e.body
                found.pop((kind, key or f"#{n}"), None)
                if text:
                    found[kind, key or f"#{n}"] = (kind, text)
        return list(found.values())

    # ------------------------------------------------------------------ writing

    def add(self, kind: str, body: Any = None, turn: int = 0, key: str | None = None) -> int:
        self.last += 1
        self.entries[self.last] = Entry(kind, body, turn, key)
        return self.last

    def open_view(self, view: View) -> int:
        if (act := self.open) is not None:
            self.add("compaction.superseded")
            act.state = "superseded"
        self.head = self.add("segment.opened")
        self.views[self.head] = view
        if view.source != "masked":
            self.failures = self.paid = self.rests = 0
        return self.head

    def once(self, key: str | None, content: Any) -> list[int] | None:
        """What a key was used for before. Of what was erased, only its kind is known any more."""
        if key is None or key not in self.keys:
            return None
        numbers, was = self.keys[key]
        if was != content and was != ("erased", content[0]):
            raise Refused("KeyConflict")
        return numbers

    def append(
        self, bodies: list[Any], key: str | None = None, turn: int | None = None, kind: str = "message"
    ) -> list[int]:
        if (before := self.once(key, (kind, bodies))) is not None:
            return before
        if turn is not None and turn != self.turn:
            raise Refused("TurnLost")
        numbers = [self.add(kind, body, turn or 0, key) for body in bodies]
        if key is not None:
            self.keys[key] = (numbers, (kind, bodies))
        if kind == "input.queued":
            self.inputs += numbers
        return numbers

    def append_prompt(self, bodies: list[Any], turn: int | None = None) -> list[int]:
        numbers = self.append(bodies, None, turn)
        self.add("pin.added", Prompt(tuple(numbers)), turn or 0)
        return numbers

    def taken_back(self, numbers: Sequence[int]) -> list[int]:
        """Those that no context has, since they were undone or erased; of inputs, what became of them counts."""
        gone: list[int] = []
        for n in numbers:
            became = [n, *(t + 1 for t, e in self.entries.items() if e.kind == "input.taken" and e.body == n)]
            if any(b in self.view.hidden or self.entries[b].kind == "erased" for b in became):
                gone.append(n)
        return gone

    def take(self, key: str | None = None, turn: int | None = None) -> int | None:
        if key in self.keys:
            numbers, was = self.keys[key]
            if was != "taken":
                raise Refused("KeyConflict")
            return numbers[0] + 1
        if turn is not None and turn != self.turn:
            raise Refused("TurnLost")
        if not self.inputs:
            return None
        taken = self.inputs.pop(0)
        number = self.add("input.taken", taken, turn or 0, key)
        if key is not None:
            self.keys[key] = ([number], "taken")
        return self.add("message", self.entries[taken].body, turn or 0)

    # ------------------------------------------------------------------ turns

    def start(self, lease: float) -> int:
        if self.turn and self.turn_lease.lasts(self.world.now) and not self.turn_gone:
            raise Refused("TurnBusy")
        self.close("interrupted")
        self.turn_gone = False
        self.turn = self.add("turn.started", turn=self.last + 1)
        self.turn_lease = Timed(self.world.now + lease, lease)
        return self.turn

    def close(self, outcome: str) -> None:
        """Ends the open turn. If it did not settle by itself, its open calls get results that say so."""
        if not self.turn:
            return
        if outcome != "settled":
            for call, ids in self.waiting(self.last, self.view.hidden).items():
                if self.entries[call].turn == self.turn:
                    for id in ids:
                        how = "failed" if outcome == "failed" else f"was {outcome}"
                        why = f"(no result: the turn {how} before it came)"
                        self.add("message", {"role": "tool", "tool_call_id": id, "content": why}, self.turn)
        self.add("turn.settled", outcome, self.turn)
        self.turn = 0

    def end(self, turn: int, outcome: str) -> None:
        if turn == self.turn:
            self.close(outcome)
        elif Entry("turn.settled", outcome, turn) not in self.entries.values():
            raise Refused("TurnLost")

    # ------------------------------------------------------------------ compaction

    def ask(self, trigger: str, allowed: int = 3) -> None:
        self.acts.append(Act(self.add("compaction.requested"), self.head, trigger, allowed))

    def fail_for_good(self, act: Act, asked: bool = True) -> None:
        self.add("compaction.failed")
        act.state, act.settled_at = "failed", self.world.now
        act.asked += asked
        if not act.asked:
            self.rests = self.tokens
        elif act.trigger != "manual":
            self.failures, self.failed_tokens = self.failures + 1, self.tokens

    def held_back(self, trigger: str, allowed: int, act: Act | None) -> bool:
        """A person is always heard; a full context unless much failed a short while ago."""
        if trigger == "manual":
            return False
        full = trigger in URGENT
        if not full and self.paid >= allowed:
            return True
        if act is not None:
            return False
        if self.failures >= 3 and self.tokens < self.failed_tokens * 1.2:
            pause = min(600, 60 * 2 ** max(0, self.failures - 4))
            since = self.stands_on(self.head)
            tried = [a for a in self.acts if a.base >= since and a.state == "failed" and a.trigger == "limit"]
            if not full or any(Timed(a.settled_at + pause, pause).lasts(self.world.now) for a in tried):
                return True
        return not full and (self.tokens < self.rests * 1.2 or self.stands.source == "restored")

    def request(self, trigger: str, base: int, allowed: int) -> str:
        if self.kind == "review":
            raise Refused("CompactionDisabled")
        if base != self.head and (trigger != "manual" or base < self.stands_on(self.head)):
            return "moved on"
        act = self.open
        if act is not None and act.dead(self.world.now):
            self.fail_for_good(act)
            act = None
        if self.held_back(trigger, allowed, act):
            return "held back"
        if act is not None:
            self.add("compaction.joined")
            act.requests += 1
            act.wait = None if trigger == "manual" else act.wait
            return "joined"
        self.ask(trigger, allowed)
        return "opened"

    def claim(self, lease: float, life: float) -> Act | str:
        act, now = self.open, self.world.now
        if act is not None and act.dead(now):
            self.fail_for_good(act)
            act = None
        if act is None:
            return "nothing open"
        if act.wait is not None and act.wait.lasts(now):
            return "waiting"
        if act.held(now):
            return "held"
        act.asked += act.state == "running"  # the one before died, and may have asked
        act.fence = self.add("compaction.started")
        act.state, act.attempts, act.since, act.life, act.wait = "running", act.attempts + 1, now, life, None
        act.lease, act.gone = Timed(now + min(lease, life), lease), False
        return act

    def renew(self, act: Act, fence: int, lease: float) -> bool:
        if act.fence != fence or not act.alive(self.world.now):
            return False
        act.lease = Timed(min(self.world.now + lease, act.since + act.life), lease)
        return True

    def commit(
        self, act: Act, fence: int, *, cut: int, kept: Sequence[int], knows: Iterable[int], follow_up: Any,
        quotes: Iterable[int] = (),
    ) -> int:  # fmt: skip
        """The first valid summary wins, of whatever claim of the open compaction."""
        if act.committed_by == fence and act.segment is not None:
            return act.segment
        if not act.open:
            raise Refused("CompactionCancelled" if act.state == "cancelled" else "CompactionSuperseded")
        good = self.view.cut < cut <= fence and all(n < cut and n in self.visible() for n in (*kept, *quotes))
        if self.view.keeper != "onefold" or not good:
            raise Refused("CommitRefused")
        self.add("compaction.committed")
        act.state, act.committed_by = "committed", fence
        summary = Summary(self.last + 1, frozenset(knows), quotes=frozenset(quotes))
        view = replace(
            self.view, cut=cut, summary=summary, kept=tuple(kept), redo=None, unfolds=(), source="compaction",
            origin=None, item=None,
        )  # fmt: skip
        act.segment = self.open_view(replace(view, masked=view.masking(view.masked)))
        if follow_up is not None:
            self.inputs.append(self.add("input.queued", follow_up))
        return act.segment

    def draft(self) -> frozenset[int]:
        """What a new summary in place of the one in force knows: what that one knows."""
        if self.kind == "review":
            raise Refused("CompactionDisabled")
        told = self.summary(self.view)
        made = self.made_of_something()
        if self.view.keeper != "onefold" or told is None or made is None:
            raise Refused("OnefoldError")
        self.add("summary.drafted")
        if self.views[made].source == "compaction":
            return told.knows
        base = self.views[max(n for n in self.views if n < made)]  # a provider may not have been sent all of it
        before = self.summary(base)
        known = {*self.visible(self.view.cut - 1, base.cut), *base.kept}
        return frozenset(known | before.knows if before is not None else known)

    def made_of_something(self) -> int | None:
        """The newest fold of which the boundary is known that it replaced: summaries in its place are passed over."""
        before = {made: max((n for n in self.views if self.lost < n < made), default=None) for made in self.folds()}
        found = (m for m, base in before.items() if base is not None and self.views[base].cut < self.views[m].cut)
        return next(found, None)

    def take_draft(self, draft: int, head: int, knows: Iterable[int], quotes: Iterable[int]) -> int:
        """A draft in place of the summary in force: asked for, claimed and committed at once."""
        told = self.summary(self.view)
        if told is not None and told.draft == draft:
            return self.head
        if self.kind == "review":
            raise Refused("CompactionDisabled")
        if self.view.keeper != "onefold":
            raise Refused("OnefoldError")
        if self.stands_on(self.head) > head or head not in self.views:
            raise Refused("StaleHandle")
        if self.open is not None:
            raise Refused("NotNow")
        self.ask("manual", 1)
        act = self.acts[-1]
        act.fence, act.state, act.attempts = self.add("compaction.started"), "running", 1
        self.add("compaction.committed")
        act.state, act.committed_by = "committed", act.fence
        summary = Summary(self.last + 1, frozenset(knows), quotes=frozenset(quotes), draft=draft)
        view = replace(self.view, summary=summary, redo=None, unfolds=(), source="compaction", origin=None)
        act.segment = self.open_view(view)
        return act.segment

    def mask(self, numbers: Sequence[int], *, full: bool, by_hand: bool) -> None:
        """Results as one line each: what is not pinned, not of an open group, not short, and not masked yet."""
        if self.kind == "review":
            raise Refused("CompactionDisabled")
        if self.view.keeper != "onefold":
            raise Refused("OnefoldError")
        act = self.open
        if act is not None and (act.held(self.world.now) or by_hand or not full or act.trigger == "manual"):
            raise Refused("NotNow")
        if not by_hand and not full and self.stands.source == "restored":
            raise Refused("NotNow")
        waiting = self.waiting(self.last, self.view.hidden)
        given = self.paired(self.visible(start=self.view.cut), self.last).results
        stays = self.pinned() | self.view.masked | {n for call in waiting for n in given.get(call, ())}
        made = {n for n in numbers if n in self.visible(start=self.view.cut) and n not in stays and self.long(n)}
        if not made:
            raise Refused("OnefoldError")
        self.open_view(
            replace(
                self.view, masked=self.view.masked | made, origin=self.stands_on(self.head), redo=None, unfolds=(),
                source="masked",
            )
        )  # fmt: skip

    def told_by(self, sent: Iterable[int]) -> frozenset[int]:
        """The messages that a context knows, by its numbers."""
        known = {n for n in self.visible() if n in {*sent}}
        for n in sent:
            if n in self.views and (told := self.summary(self.views[n])) is not None:
                known |= told.knows
        item = self.item()
        return frozenset(known | item.knows if item is not None and item.window[-1] in {*sent} else known)

    def item(self) -> Item | None:
        """What a provider made, if what it covers is in view as it was then."""
        item = self.view.item
        made = self.views.get(item.segment) if item is not None else None
        if item is None or made is None or item.erased or self.view.keeper != "onefold":
            return None
        there = all(n in self.entries and self.entries[n].kind == "message" for n in item.window)
        return item if there and self.alike(item.cut, made.hidden, self.view.hidden) else None

    def adopt(self, window: Iterable[int], sent: Iterable[int], origin: str, quotes: Iterable[int], head: int) -> int:
        """What a provider made of all that it was sent becomes a boundary."""
        numbers, told, before = tuple(sorted({*window})), {*sent}, self.item()
        if before is not None and (before.window, before.origin) == (numbers, origin):
            return self.head
        if head != self.head:
            raise Refused("StaleHandle")
        if self.kind == "review":
            raise Refused("CompactionDisabled")
        if self.view.keeper != "onefold":
            raise Refused("OnefoldError")
        if (act := self.open) is not None and (act.held(self.world.now) or act.trigger == "manual"):
            raise Refused("NotNow")
        stop = numbers[-1]
        if not {*numbers} <= {*self.visible()} or self.entries[stop].item is None:
            raise Refused("OnefoldError")
        newer = before is not None and before.window[-1] >= stop
        if stop < self.view.cut or newer or any(self.is_gone(n) for n in told - {*(before.window if before else ())}):
            raise Refused("StaleHandle")
        return self.adopted(numbers, origin, frozenset(quotes), self.judged(numbers, told, before))

    def is_gone(self, number: int) -> bool:
        """Whether something that was sent is not in view as it was then."""
        if not 0 < number <= self.last:
            return False
        if number in self.views and self.views[number].summary is not None:
            return not self.alike(self.views[number].cut, self.views[number].hidden, self.view.hidden)
        if number not in self.entries:
            return True
        return number in self.view.hidden and self.entries[number].kind in ("message", "note", "erased")

    def judged(self, window: tuple[int, ...], sent: set[int], before: Item | None) -> tuple[int, tuple[int, ...]]:
        """Where an item cuts, and what lies before that and is not covered. No call is parted from its result."""
        stop = window[-1]
        upto, by_name = (before.cut, before.kept) if before and before.window[-1] in sent else (1, ())
        for n in sorted(sent & {*self.views}):
            if self.views[n].summary is not None and self.views[n].cut > upto:
                upto, by_name = self.views[n].cut, self.views[n].kept
        found = [n for n in self.visible(stop - 1, upto) if n not in window]
        left = {n for n in found if n not in sent}
        left |= {n for n in by_name if n not in sent and n not in window and n not in self.view.hidden}
        covered = {*found} - left
        prompt = self.prompts(stop)[-1]
        only_told = [n for n in left if n < self.view.cut and n not in (*self.view.kept, *prompt)]
        if only_told or (not covered and upto == 1):
            raise Refused("OnefoldError")
        start = self.view.cut if self.view.cut < stop else self.cut_by(stop - 1)
        open = self.paired(self.visible(stop - 1, start), stop - 1)
        waiting = [{c, *open.results.get(c, ())} for c, ids in open.lacks.items() if ids and c not in open.given_up]
        pairs = self.paired(found, stop - 1)
        groups = [{c, *pairs.results.get(c, ())} for c in pairs.lacks]
        if any(g & left and g & covered for g in groups) or any(g & covered for g in waiting):
            raise Refused("OnefoldError")
        after = max(covered, default=upto - 1)
        cut = min(n for n in (*left, stop) if n > after)
        kept = tuple(sorted(n for n in left if n < cut and n not in prompt))
        if any(g & {*kept} for g in waiting):
            raise Refused("NotNow")
        return cut, kept

    def adopted(
        self, window: tuple[int, ...], origin: str, quotes: frozenset[int], made: tuple[int, tuple[int, ...]]
    ) -> int:
        (cut, kept), said = made, self.entries[window[-1]]
        whole = window if said.rest is None else window[:-1]
        hidden = self.joined(self.view.hidden | {*whole})
        if any(n >= cut or n not in self.visible(hidden=hidden) for n in quotes):
            raise Refused("OnefoldError")
        number = self.last + 1 + (self.open is not None)
        knows = frozenset(int(n) for n in str(said.item).removesuffix(".").split("for ")[1].split(", ") if n)
        view = replace(
            self.view, hidden=hidden, bare=self.view.bare | {*window} - {*whole}, redo=None, unfolds=(),
            source="provider", origin=None,
            item=Item(number, window, origin, cut, kept, said.sealed, knows, quotes),
        )  # fmt: skip
        if not said.sealed:
            view = replace(view, cut=cut, kept=kept, summary=Summary(number, knows, quotes=quotes))
        return self.open_view(replace(view, masked=view.masking(view.masked)))

    def long(self, number: int) -> bool:
        entry = self.entries[number]
        return entry.answers is not None and len(entry.body["content"]) > 250

    def shown_short(self) -> set[int]:
        return {n for n in self.view.masked if n not in self.pinned(self.head)}

    def fail(self, act: Act, fence: int, retry_after: float | None, asked: bool = True) -> None:
        if act.state != "running" or act.fence != fence:
            return
        if retry_after is None or act.attempts >= act.allowed:
            self.fail_for_good(act, asked)
        else:
            self.add("compaction.failed")
            act.asked += asked
            act.state, act.wait = "requested", Timed(self.world.now + retry_after, retry_after)

    def hand_back(self, act: Act, fence: int, asked: bool) -> None:
        """No failure, and no attempt; but paid for, if a summarizer was asked."""
        if act.state == "running" and act.fence == fence:
            self.add("compaction.failed")
            act.state, act.attempts, act.wait = "requested", act.attempts - 1, None
            self.paid += asked

    def skip(self, act: Act, fence: int) -> None:
        if act.state == "running" and act.fence == fence:
            self.add("compaction.skipped")
            act.state, self.rests = "skipped", self.tokens

    def go_by(self, limits: Any) -> int:
        if self.limits[1] != limits:
            self.limits = (self.add("limits"), limits)
        return self.limits[0]

    def cancel(self) -> None:
        if (act := self.open) is not None:
            self.add("compaction.cancelled")
            act.state = "cancelled"

    # ------------------------------------------------------------------ what stands in every context, and names

    def group(self, number: int) -> list[int]:
        """A message with the call or the results that no provider takes apart from it."""
        cut = next((v.cut for _, v in sorted(self.views.items(), reverse=True) if v.cut <= number), 1)
        pairs = self.paired(self.visible(start=cut), self.last)
        for call, lacks in pairs.lacks.items():
            members = [call, *pairs.results.get(call, ())]
            if number in members:
                if lacks and call not in pairs.given_up:
                    raise Refused("OnefoldError")
                return members
        return [number]

    def pin(self, number: int) -> list[int]:
        if number not in self.visible():
            raise Refused("OnefoldError")
        group = self.group(number)
        if group == [number] and self.entries[number].answers is not None:
            raise Refused("OnefoldError")  # a result whose call is not there stands in no context
        if not set(group) <= self.pinned():
            self.add("pin.added", list(group))
        return group

    def unpin(self, number: int, group: Sequence[int]) -> None:
        """`group` is what the library lets go with it."""
        if number in self.pinned():
            self.add("pin.removed", group)

    def note(self, kind: str, text: str, key: str | None, source: tuple[int, ...]) -> None:
        said = [e.body for n, e in sorted(self.entries.items()) if e.kind == "note" and n not in self.view.hidden]
        before = next((t for k, t, about, _ in reversed(said) if key and (k, about) == (kind, key)), "")
        there = all(n in self.entries and self.entries[n].kind != "erased" for n in source)
        if not there or (not text and not before):
            raise Refused("OnefoldError")
        if text != before:
            self.add("note", (kind, text, key, source))

    def alias(self, name: str) -> None:
        owner = name if name in self.world.lives else self.world.names.get(name)
        if owner == self.id:
            return
        if owner is not None or name in self.world.gone:
            raise Refused("OnefoldError")
        self.world.names[name] = self.id
        self.aliases.append(name)
        self.add("alias", name)

    # ------------------------------------------------------------------ going back, and branching off

    def alike(self, cut: int, one: frozenset[int], other: frozenset[int]) -> bool:
        """Whether two views show the same before a cut, as far as anybody can tell."""
        return all(self.silent(n) for n in one ^ other if n < cut)

    def newest(self, hidden: frozenset[int], upto: int | None = None) -> View:
        """The newest boundary that knows none of the hidden records, and hides none that is not."""
        for number, view in sorted(self.views.items(), reverse=True):
            said = self.summary(view)
            same = self.alike(view.cut, view.hidden, hidden)
            if same and number <= (upto or self.last) and not (said and said.erased):
                return view
        return View()

    def pop(self) -> int | None:
        """Only the newest message. Without an open turn: else calls that stay would get results."""
        seen = self.visible()
        if not seen:
            return None
        self.rewind(seen[-1] - 1, exact=True)
        return seen[-1]

    def rewind(self, to: int, *, exact: bool = False) -> None:
        if not 0 <= to <= self.last:
            raise Refused("OnefoldError")
        to = to if exact else self.landing(to, self.view.hidden)
        if not self.visible(start=to + 1):
            raise Refused("OnefoldError")
        before, keeper = self.head, self.view.keeper
        if self.turn:  # its open calls are among what is hidden
            self.add("turn.settled", "cancelled", self.turn)
            self.turn = 0
        hidden = self.joined(self.view.hidden | set(range(to + 1, self.last + 1)))
        fits = self.newest(hidden)
        item = fits.item
        if item is not None and self.lost < item.segment and not item.erased and item.window[-1] > to:
            there = max((n for n in self.views if n <= to), default=0)  # what was in force there is so again
            fits = replace(fits, item=self.views[there].item if there else None)
        self.open_like(fits, hidden=hidden, redo=before, keeper=keeper)

    def open_like(self, view: View, masked: frozenset[int] | None = None, **other: Any) -> None:
        """A boundary that was there before. What was masked there or is now stays so, unless it is said what is."""
        now = self.view
        made = replace(view, **{"unfolds": (), "source": "restored", "origin": None} | other)
        made = replace(made, bare=(view.bare | now.bare) - made.hidden)
        self.open_view(replace(made, masked=made.masking(view.masked | now.masked if masked is None else masked)))

    def undo(self) -> None:
        if self.stands.unfolds and not self.said_since():  # what is taken back is that something was unfolded
            folded = self.views[max(n for n in self.views if n < self.stands_on(self.head))]
            self.move_boundary(folded, redo=self.head)
            return
        asked = [n for n in self.visible() if self.entries[n].role == "user"]
        if not asked:
            raise Refused("OnefoldError")
        turn = self.entries[asked[-1]].turn
        self.rewind(min(n for n in asked if n == asked[-1] or (turn and self.entries[n].turn == turn)) - 1)

    def redo(self) -> None:
        to = self.stands.redo or 0
        if to not in self.views:
            raise Refused("OnefoldError")
        if self.said_since():
            raise Refused("StaleHandle")
        stood = self.views[self.stands_on(to)]
        self.go_back_to(self.views[to], stood.redo, stood.unfolds)

    def restore(self, segment: int) -> None:
        if segment not in self.views:
            raise Refused("OnefoldError")
        self.go_back_to(self.views[segment], None, masked=self.views[segment].masked)

    def go_back_to(
        self, view: View, redo: int | None, unfolds: tuple[int, ...] = (), masked: frozenset[int] | None = None
    ) -> None:
        if (said := self.summary(view)) is not None and said.erased:
            raise Refused("OnefoldError")
        if not unfolds or view.hidden != self.view.hidden:
            self.close("cancelled")
        self.open_like(view, masked, redo=redo, keeper=self.view.keeper, unfolds=unfolds)

    def said_since(self) -> bool:
        since = self.stands_on(self.head)
        return any(n > since and e.kind == "message" for n, e in self.entries.items())

    def folds(self, of: View | None = None) -> list[int]:
        """The segments of the compactions in force, the newest first: the one that wrote the summary, the one whose
        summary that was made of, and so on."""
        found: list[int] = []
        view: View | None = of or self.view
        while view is not None and (said := self.summary(view)) is not None and said.number in self.views:
            found.append(said.number)
            view = self.views[max(n for n in self.views if n < said.number)]
        return found

    def unfold(self, segment: int | None, size: int) -> None:
        """What is seen is what the boundary shows that was in force before this compaction; nobody's turn ends. `size`
        is what the context would weigh then."""
        if self.view.keeper == "onefold" and segment in self.views and self.views[segment].source == "masked":
            self.unmask(segment, size)
            return
        made = self.view.summary
        item = self.view.item
        sealed = item is not None and item.segment == segment and (made is None or made.number != segment)
        if self.view.keeper == "onefold" and item is not None and sealed:
            self.move_boundary(replace(self.view, item=None), unfolds=(item.segment,))
            return
        stand = self.folds()
        if self.view.keeper != "onefold" or not stand or segment not in (None, *stand):
            raise Refused("OnefoldError")
        if self.limits[0] and size > self.limits[1].hard_tokens:
            raise Refused("ContextTooLarge")
        first = stand[0] if segment is None else segment
        before = self.views[max(n for n in self.views if n < first)]
        self.move_boundary(before, unfolds=tuple(sorted(n for n in stand if n >= first)))

    def unmask(self, segment: int, size: int) -> None:
        """What one masked is shown whole again."""
        before = max((n for n in self.views if n < segment), default=segment)
        made = self.views[segment].masked - self.views[before].masked
        if not made & self.view.masked:
            raise Refused("OnefoldError")
        if self.limits[0] and size > self.limits[1].hard_tokens:
            raise Refused("ContextTooLarge")
        self.move_boundary(self.view, unfolds=(segment,), masked=self.view.masked - made)

    def refold(self, segment: int | None) -> None:
        """The boundary of a compaction that stands for just what is in view before it, and for more than now."""
        found = sorted(self.views, reverse=True) if segment is None else [segment]
        for number in (n for n in found if n in self.views and self.views[n].source in ("compaction", "provider")):
            view = self.views[number]
            told = self.summary(view)
            again = view.cut > self.view.cut or self.instead(view) or self.sealed_on(number)
            fits = again and self.alike(view.cut, view.hidden, self.view.hidden)
            if self.view.keeper == "onefold" and fits and not (told is not None and told.erased):
                self.move_boundary(view)
                return
        raise Refused("OnefoldError")

    def sealed_on(self, number: int) -> bool:
        """Whether a segment adopted what cannot be read, on the boundary in force, which has no item."""
        view, now = self.views[number], self.view
        own = view.summary is not None and view.summary.number == number
        return view.source == "provider" and not own and view.summary is now.summary and now.item is None

    def instead(self, view: View) -> bool:
        """Whether its summary was written in place of the one in force, or of one that was."""
        now, told = self.summary(self.view), self.summary(view)
        if now is None or told is None or told is now or view.cut != self.view.cut:
            return False
        return now.number in self.folds(view)

    def move_boundary(
        self, view: View, redo: int | None = None, unfolds: tuple[int, ...] = (), masked: frozenset[int] | None = None
    ) -> None:
        """Another boundary for what is in view now. What was undone before can still be redone, if nothing was said
        since."""
        now = self.view
        redo = redo or (None if self.said_since() else self.stands.redo)
        self.open_like(view, masked, hidden=now.hidden, redo=redo, keeper=now.keeper, unfolds=unfolds)

    def fork(self, id: str, kind: str, at: int | None) -> None:
        """The same entries and views up to a closed group, and from there on a life of its own."""
        there = self.world.lives.get(id)
        if there is not None:
            same = (there.parent, there.kind) == (self.id, kind)
            if not same or (at is not None and self._lands(at) != there.forked_at):
                raise Refused("OnefoldError")
            return
        if id in self.world.names or id in self.world.gone:
            raise Refused("OnefoldError")
        upto = self._lands(self.last if at is None else at)
        view = self._in_force(upto)
        if (said := self.summary(view)) is not None and said.erased:
            view = replace(self.newest(view.hidden, upto), hidden=view.hidden)
        child = self.world.lives[id] = Life(self.world, id)
        child.entries = {n: e for n, e in self.entries.items() if n <= upto}
        child.views = {n: v for n, v in self.views.items() if n <= upto}
        child.parent, child.kind, child.last, child.lost = self.id, kind, upto, min(self.lost, upto)
        child.births = [*(b for b in self.births if b < upto), upto]
        born = child.add("fork")
        child.limits = (born, self.limits[1]) if self.limits[0] else (0, None)
        child.open_view(replace(view, redo=None, keeper="onefold", unfolds=(), source="forked", origin=None))

    def _lands(self, at: int) -> int:
        return self.landing(at, self._in_force(at).hidden)

    def _in_force(self, at: int) -> View:
        if not 1 <= at <= self.last or not (before := [n for n in self.views if n <= at]):
            raise Refused("OnefoldError")
        return self.views[max(before)]

    def keep(self, keeper: str) -> None:
        if keeper != self.view.keeper:
            self.open_view(replace(self.view, keeper=keeper, redo=None, unfolds=(), source="kept", origin=None))

    def observe(self) -> None:
        if self.view.keeper != "agent":
            raise Refused("OnefoldError")
        if self.open is None:
            self.ask("observed")
        act = next(a for a in self.acts if a.open)
        self.add("compaction.committed")
        act.state = "committed"
        act.segment = self.open_view(replace(self.view, redo=None, unfolds=(), source="observed", origin=None))
        self.told.add(act.segment)

    # ------------------------------------------------------------------ what people remove

    def erase(self, number: int) -> list[str]:
        """Gives the forks that it touched."""
        entry = self.entries.get(number) if number > self.forked_at else None
        if entry is None or not {entry.kind, entry.was} & set(CONTENT):
            raise Refused("OnefoldError")
        same = {number}  # an input and the message it became are the same content
        for n, e in self.entries.items():
            if e.kind == "input.taken" and e.body is not None and number in (e.body, n + 1):
                same |= {e.body, n + 1}
        said = {n for n in same if "message" in (self.entries[n].kind, self.entries[n].was)}
        read = {n for n in same if "input.queued" not in (self.entries[n].kind, self.entries[n].was)}
        gone = self.forget(said, same - said, read)
        return self._forget_in_forks(said, read, min(same | gone), deleted=0)

    def delete(self) -> list[str]:
        del self.world.lives[self.id]
        self.world.gone |= {self.id, *self.aliases}
        for name in self.aliases:
            del self.world.names[name]
        everything = set(range(1, self.last + 1))
        return self._forget_in_forks(everything, everything, 1, deleted=self.last)

    def _forget_in_forks(self, said: set[int], read: set[int], first: int, deleted: int) -> list[str]:
        """Every fork that has anything from the first erased record on as its past, and forks of those."""
        touched: list[str] = []
        for child in [c for c in self.world.lives.values() if c.parent == self.id and c.forked_at >= first]:
            gone = {n for n in said if n <= child.forked_at}
            theirs = {n for n in read if n <= child.forked_at}
            if deleted:
                child.lost = min(deleted, child.forked_at)
                child.entries = {n: e for n, e in child.entries.items() if n > child.lost}
                child.views = {n: v for n, v in child.views.items() if n > child.lost}
            child.forget(gone, set(), theirs)
            touched += [child.id, *child._forget_in_forks(gone, theirs, first, deleted and child.lost)]
        return touched

    def made_of_it(self, said: set[int]) -> set[int]:
        """Its own messages with items that cover something of this, or of what such an item is in."""
        found: set[int] = set()
        for n, v in sorted(self.views.items()):
            item = v.item if n > self.forked_at and v.item is not None and v.item.segment == n else None
            made_of = item is not None and any(item.covers(m) and m not in v.hidden for m in said | found)
            if item is not None and made_of and not item.erased:
                found |= {m for m in item.window if m > self.forked_at}
        return found

    def forget(self, said: set[int], others: set[int], read: set[int]) -> set[int]:
        """Tombstones for its own, no summary and no note that comes from what was said, and a view without it. What an
        agent told of itself after it could have read any of it goes as well."""
        head = self.view
        said |= self.made_of_it(said)  # for whoever asked, too: forks hear of it
        hidden = head.hidden | said
        own = {n: e for n, e in self.entries.items() if n > self.forked_at}
        found = [n for n, e in own.items() if n in said | others and e.kind in CONTENT]
        made = {n: v for n, v in self.views.items() if n > self.forked_at}
        told = [(v, v.summary) for n, v in made.items() if v.summary is not None and v.summary.number == n]
        spoiled: list[Summary | Item] = [
            summary for v, summary in told if any(n < v.cut and n not in v.hidden for n in said)
        ]
        for n, v in made.items():
            if v.item is not None and v.item.segment == n:
                item, own_text = v.item, v.summary is not None and v.summary.number == n
                if v.summary in spoiled or any(
                    m in item.window or (item.covers(m) and m not in v.hidden) for m in said
                ):
                    spoiled += [item, *([v.summary] if own_text and v.summary is not None else [])]
        found += [n for n, e in own.items() if e.kind == "note" and n not in found and said & set(e.body[3])]
        untold = {n for n in self.told if read and n > min(read)}
        nothing = not found and not untold and all(s.erased for s in spoiled)
        if nothing and hidden == head.hidden and self.notes() == self.stood:
            return set()
        self.told -= untold
        hidden = self.joined(hidden)
        was_open = self.open is not None
        for n in found:
            entry = self.entries[n]
            if entry.key is not None:
                numbers, was = self.keys[entry.key]
                self.keys[entry.key] = (numbers, was if was[0] == "erased" else ("erased", was[0]))
            if n in self.inputs:
                self.inputs.remove(n)
                self.add("input.taken")
            entry.kind, entry.body, entry.was = "erased", None, entry.kind
        for summary in spoiled:
            summary.erased = True
        self.add("erased")
        fits = self.newest(hidden)
        self.open_like(fits, hidden=hidden, redo=None, keeper=head.keeper, source="erased")
        if (was_open or fits.summary is not head.summary) and self.kind != "review" and head.keeper == "onefold":
            self.ask("erase")
        return set(found)

    # ------------------------------------------------------------------ what a model is sent

    def since(self, view: View | None = None) -> dict[int, list[int]]:
        """What was marked since the segment began, by its place: a note, or messages from before the cut that were
        pinned, between two lines."""
        view = view or self.view
        shown = set(self.by_name(view)) | {n for n in self.pinned(self.head) if n < view.cut}
        found: dict[int, list[int]] = {}
        for n, e in sorted(self.entries.items()):
            if n > self.head and e.kind == "note":
                found[n] = [n]
            if n > self.head and e.kind == "pin.added" and isinstance(e.body, list):
                group = [m for m in e.body if m < view.cut]
                if not set(group) <= shown:
                    shown |= set(group)
                    there = [m for m in group if m in self.visible()]
                    found[n] = [0, *self.arranged(there, all_over=True), 0] if there else []
        return found

    def quoted(self) -> set[int]:
        """Messages that are quoted beside the summary: not those that stand there anyway."""
        told = self.summary(self.view)
        return set() if told is None else {n for n in told.quotes if n not in self.view.kept}

    def by_name(self, view: View | None = None) -> list[int]:
        """What stands by name before the cut: the prompt, and what the segment keeps but for older prompts."""
        view = view or self.view
        *older, prompt = self.prompts(self.head)
        replaced = {n for some in older for n in some} - set(prompt) - self.pinned(self.head)
        kept = {n for n in view.kept if n not in replaced} | {n for n in prompt if n < view.cut}
        return [n for n in sorted(kept) if n in self.entries and self.entries[n].kind == "message"]

    def replaced(self, view: View | None = None) -> list[int]:
        """Prompts from the cut on that do not hold any more: no context has them."""
        *older, prompt = self.prompts(self.head)
        gone = {n for some in older for n in some} - set(prompt) - self.pinned(self.head)
        return sorted(n for n in gone if n >= (view or self.view).cut)

    def tail(self, start: int | None = None, view: View | None = None) -> list[int]:
        """Messages from the cut on, or from a later number, that stand there: no prompt that moved to the front, and
        none that it replaced."""
        elsewhere = {*self.prompts(self.head)[-1], *self.replaced(view)}
        return [n for n in self.visible(start=max(start or 1, (view or self.view).cut)) if n not in elsewhere]

    def arranged(
        self, numbers: Sequence[int], all_over: bool = False, since: dict[int, list[int]] | None = None,
        over: Sequence[int] = (),
    ) -> list[int]:  # fmt: skip
        """As they are given, but results right after their call; 0 is a result that never came, made up for the
        provider. What was marked `since` stands at its place, but parts no call from its result."""
        pairs = self.paired(numbers, self.last)
        marks = dict(sorted((since or {}).items()))
        order: list[int] = []
        for at, n in enumerate(numbers):
            for mark in [m for m in marks if m < n]:
                order += marks.pop(mark)
            if self.entries[n].answers is None:
                order += [n, *pairs.results.get(n, ())]
                spoken = any(self.entries[m].role in ("user", "system") for m in numbers[at + 1 :])
                if all_over or spoken or marks or n in pairs.given_up or n in over:
                    order += [0] * len(pairs.lacks.get(n, ()))
        return [*order, *(n for some in marks.values() for n in some)]

    def provided(self, item: Item) -> list[int]:
        """The same for the one that made the item: the prompt, what came back, what it does not cover and all that came
        since. Quotes and notes are one text, right behind what is sealed; else behind all that was there when it was
        adopted, since its provider may check that."""
        view = replace(self.view, cut=item.cut, kept=item.kept)
        prompt = self.prompts(self.head)[-1]
        kept = [n for n in self.by_name(view) if n not in prompt]
        pins = [n for n in sorted(self.pinned(self.head)) if n < item.cut and n not in (*kept, *prompt, *item.window)]
        quoted = [n for n in item.quotes if n not in item.kept and self.entries[n].kind == "message"]
        beside = [0] if quoted or self.notes(self.head) else []
        if first := self.arranged(pins, all_over=True):
            beside = [0, *first, 0, *beside]
        rest = [*kept, *(n for n in self.tail(view=view) if n not in item.window)]
        since = self.since(view)
        if item.sealed:
            return [*prompt, *item.window, *beside, *self.arranged(rest, since=since, over=kept)]
        since |= {item.segment: beside} if beside else {}
        return [*prompt, *self.arranged([*item.window, *rest], since=since, over=kept)]

    def context(self) -> list[int]:
        """The number of each message's record; 0 for the notes in front, and for lines of a user's that are made up."""
        view = self.view
        prompt = self.prompts(self.head)[-1]
        kept = [n for n in self.by_name() if n not in prompt]
        pins = [n for n in sorted(self.pinned(self.head)) if n < view.cut and n not in kept and n not in prompt]
        tail = self.tail()
        orphans = self.paired(tail, self.last).results.get(0, [])
        goes_on = any(n < self.head and n not in orphans for n in tail)
        with_pins = [n for n in kept if n in self.pinned(self.head) and self.entries[n].role in ("assistant", "tool")]
        with_pins = [n for n in with_pins if self.entries[n].calls or self.entries[n].answers]
        first = self.arranged(sorted((*pins, *with_pins)), all_over=True)
        kept = self.arranged([n for n in kept if n not in with_pins], all_over=True)
        stands = [*([0] if self.quoted() else []), *([self.head] if self.summary(view) else [])]
        stands += [0] if self.notes(self.head) else []
        told = [*prompt, *first, *stands, *kept] if goes_on else [*prompt, *first, *kept, *stands]
        if not goes_on and not stands and (first or kept):
            told.append(0)
        if not told:
            told = [*takewhile(lambda n: self.entries[n].role == "system", tail)]
            tail = tail[len(told) :]
        told += self.arranged(tail, since=self.since())
        for at, n in enumerate(told):
            role = self.entries[n].role if n in self.entries else ""
            if role in ("assistant", "tool"):
                return [*told[:at], 0, *told[at:]]
            if role != "system":
                break
        return told
