"""A recorded conversation through the real `Compactor`, call by call: what the model is sent, what the summarizer
reads, and how far away what is needed later is."""

from __future__ import annotations

import json
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count, takewhile
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import ClassVar, Literal, TypeAlias

import onefold
from benchmarks.masking.talks import Need, Talk, talks
from onefold import Compactor, Context, Limits, Policy, Session, Store, Summary, SummaryInput
from onefold.compaction.prompt import Prompt
from onefold.compactor import CompactionPlan, CompactionWanted, T, resume
from onefold.errors import OnefoldError, SummarizerFailed
from onefold.messages import codec
from onefold.messages.parts import estimate
from onefold.model import CompactResult, Json
from onefold.recall import Recall
from onefold.recall.agent_tools import RecallTools
from onefold.summarizers.cancellable_call import CancellableCall
from onefold.summarizers.model_summarizer import Heard, ModelSummarizer, StopReason

WINDOWS = (32_000, 64_000, 128_000)
DELAY = 3
"""Calls that an agent makes while a summary is written, where it need not wait for it."""
HITS = 10
"""What a search for an agent gives at most."""
_CHARACTERS = 3_000
_NOON = 1_800_000_000.0
_PATIENCE = 120.0
_WORDS = ["".join(Random(n).choices("aeiouklmnprst", k=3 + n % 7)) for n in range(400)]
Writer: TypeAlias = Literal["forgetful", "extract"]
Place: TypeAlias = Literal["context", "number", "search", "nowhere"]
PLACES: tuple[Place, ...] = ("context", "number", "search", "nowhere")


@dataclass(frozen=True, slots=True)
class Way:
    """How a conversation is kept within a window."""

    window: int
    mask: bool
    writer: Writer = "forgetful"

    @property
    def policy(self) -> Policy:
        limits = Limits(self.window, min(8_000, self.window // 8))
        return Policy(limits=limits) if self.mask else Policy(limits=limits, mask_tokens=0)


@dataclass(frozen=True, slots=True)
class Reached:
    """How far away something that was needed was, and what it took to get it."""

    lag: int
    place: Place
    tokens: int = 0
    """What the answers had in which it was looked for."""
    first: bool = True
    """It stands in the first answer of `recall_read`: a long result takes more than one."""
    right: int = 0
    """Of what was to choose from, how many hold it: masked results of calls like that one, or hits of a search."""
    of: int = 0


@dataclass(slots=True)
class Run:
    """What one conversation came to."""

    talk: str
    way: Way
    calls: int = 0
    sent: int = 0
    uncached: int = 0
    broken: int = 0
    """How often what was sent did not begin with all that was sent before."""
    waited: int = 0
    masks: int = 0
    summaries: int = 0
    asked: int = 0
    """Calls of the model that writes summaries: a long conversation takes several for one."""
    read: int = 0
    written: int = 0
    needs: list[Reached] = field(default_factory=list)

    @property
    def again(self) -> int:
        """Tokens it takes to get everything that is needed and not there."""
        return sum(n.tokens for n in self.needs)


@dataclass(frozen=True, kw_only=True)
class Model(ModelSummarizer):
    """Asked as every model is, with the real prompts. It writes well and remembers nothing."""

    package: ClassVar[str] = "json"
    made: Iterator[int] = field(default_factory=count, compare=False)

    @property
    def who(self) -> str:
        return "a model that forgets"

    @property
    def by(self) -> str:
        return self.who

    def says(self, prompt: Prompt, limit: int, line: CancellableCall) -> Iterator[Heard]:
        chance = Random(next(self.made))
        words = " ".join(chance.choices(_WORDS, k=_CHARACTERS // 6))
        yield f"## State\n{words[: min(_CHARACTERS, 2 * limit)]}."
        yield StopReason("done")

    def failure(self, error: Exception) -> SummarizerFailed:
        return SummarizerFailed(str(error), kind="garbage")


class Gated:
    """A summarizer whose summary is there when it is let go."""

    def __init__(self, way: Way, run: Run) -> None:
        self._ask = (
            Model(window=way.window, ids=lambda: "mark") if way.writer == "forgetful" else onefold.extractive_summary
        )
        self._run = run
        self.begun, self.gate = threading.Event(), threading.Event()

    def __call__(self, material: SummaryInput) -> Summary:
        made = self._ask(material)
        assert isinstance(made, Summary)
        self._run.summaries += 1
        self._run.asked += made.spent.calls
        self._run.read += made.spent.input_tokens
        self._run.written += made.spent.output_tokens
        self.begun.set()
        if not self.gate.wait(_PATIENCE):
            raise RuntimeError("the bench did not let its own summary go")
        return made


class Driven(Compactor):
    """The real one. What it asks for is done so that every run is the same: a summary that nobody waits for is there
    `DELAY` calls later."""

    def __init__(self, store: Store, way: Way, run: Run) -> None:
        self._gated = Gated(way, run)
        super().__init__(store, self._gated, way.policy)
        self._ready: int | None = None
        """The call from which on the summary that is being written is there."""
        self.call = 0
        self.waited = False

    def next(self, session: Session, *, begins: bool) -> Context:
        """What the model is sent in its next call, the first of a turn or a later one."""
        self.call += 1
        self.waited = False
        if self._ready is not None and self.call >= self._ready:
            self._let_go()
        return self.before_turn(session) if begins else self.mid_turn(session)

    def _let_go(self) -> None:
        self._gated.gate.set()
        self._store.finish(_PATIENCE)
        self._gated.gate.clear()
        self._ready = None

    def _run(self, rules: CompactionPlan[T]) -> T:
        told: CompactResult | OnefoldError | None = None
        while isinstance(ask := resume(rules, told), CompactionWanted):
            if ask.wait:
                self.waited = True
                self._let_go()
                self._gated.gate.set()
            self._gated.begun.clear()
            told = ask.session.compact(
                self._gated, trigger=ask.trigger, wait=ask.wait, base=ask.base, policy=self.policy
            )
            if ask.wait:
                self._gated.gate.clear()
            elif self._ready is None:
                while ask.session.state.open is not None and not self._gated.begun.wait(0.005):
                    pass  # it looks at the journal as it is now, and not at what comes meanwhile
                self._ready = self.call + DELAY
        return ask.answer


# ---------------------------------------------------------------------- one conversation


def run(name: str, way: Way, most: int | None = None) -> Run:
    """One of the recorded conversations, or its first so many messages."""
    (talk,) = (t for t in talks() if t.name == name)
    with tempfile.TemporaryDirectory(prefix="onefold-masking-") as folder:
        ids = count(1)
        address = Path(folder) / "agent.db"
        with onefold.open(address, clock=lambda: _NOON, ids=lambda: f"id-{next(ids):06}", policy=way.policy) as store:
            return _run(talk, way, store, talk.messages[:most])


def _run(talk: Talk, way: Way, store: Store, messages: Sequence[Json]) -> Run:
    made = Run(talk.name, way)
    session = store.session("s")
    compactor = Driven(store, way, made)
    needed = {need.use: need for need in talk.needs}
    numbers: list[int] = []
    before: list[Json] = []
    sizes: list[int] = []
    group: list[Json] = []
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            numbers += session.append(group).numbers
            context = compactor.next(session, begins=group[-1]["role"] == "user")
            group = []
            same = sum(
                1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, context.messages, strict=False))
            )
            sizes = [*sizes[:same], *(codec("openai-chat").header(m).tokens for m in context.messages[same:])]
            made.calls += 1
            made.sent += sum(sizes)
            made.uncached += sum(sizes[same:])
            made.broken += same < len(before)
            made.waited += compactor.waited
            before = context.messages
            if at in needed:
                made.needs.append(_reached(store, context, needed[at], numbers, messages))
        group.append(message)
    made.masks = sum(s.source == "masked" for s in session.segments())
    return made


# ---------------------------------------------------------------------- how far away something is


def _reached(store: Store, context: Context, need: Need, numbers: Sequence[int], messages: Sequence[Json]) -> Reached:
    number = numbers[need.result]
    if any(need.line in codec("openai-chat").text(m) for m in context.messages):
        return Reached(need.lag, "context")
    recall = Recall(store)
    tools = RecallTools(recall, "s", patience=None)
    if number in context.masked or re.search(rf"#{number}\b", context.summary or ""):
        alike = _alike(context, need, numbers, messages) or [number]
        read, first = _read(tools, number, need.line)
        right = sum(need.line in messages[numbers.index(n)]["content"] for n in alike)
        return Reached(need.lag, "number", read, first, right, len(alike))
    asked = tools.call("recall_search", {"query": need.cue})
    hits = [h.number for h in recall.search(need.cue, session="s", limit=HITS, patience=None)]
    right = sum(any(need.line in text for text in _texts(recall, n)) for n in hits)
    if number not in hits:
        return Reached(need.lag, "nowhere", estimate(asked), False, right, len(hits))
    read, first = _read(tools, number, need.line)
    return Reached(need.lag, "search", estimate(asked) + read, first, right, len(hits))


def _alike(context: Context, need: Need, numbers: Sequence[int], messages: Sequence[Json]) -> list[int]:
    """The masked results of calls to the same tool for the same thing: where one would look who remembers that."""

    def called(at: int) -> tuple[str, Json]:
        function = messages[at - 1]["tool_calls"][0]["function"]
        return function["name"], next(iter(json.loads(function["arguments"]).values()))

    return [n for n in context.masked if called(numbers.index(n)) == called(need.result)]


def _read(tools: RecallTools, number: int, line: str) -> tuple[int, bool]:
    """The tokens of the answers up to the one that holds a line, and whether that is the first."""
    tokens, offset = 0, 0
    while True:
        answer = tools.call("recall_read", {"first": number, "last": number, "offset": offset})
        tokens += estimate(answer)
        more = re.search(rf"with first={number}, offset=(\d+)\]", answer)
        if line in answer or more is None:
            return tokens, offset == 0
        offset = int(more[1])


def _texts(recall: Recall, number: int) -> list[str]:
    return [codec(r.format or "json").text(r.body) for r in recall.read("s", number, number) if r.kind == "message"]


# ---------------------------------------------------------------------- all of it


def everything(names: Sequence[str], windows: Sequence[int] = WINDOWS) -> list[tuple[str, Way]]:
    """Every conversation in every window, with masks and without; in the middle one, with a summary that names what it
    stands for as well."""
    ways = [Way(window, mask) for window in windows for mask in (True, False)]
    ways += [Way(windows[len(windows) // 2], mask, "extract") for mask in (True, False)]
    return [(name, way) for way in ways for name in names]


def measured(jobs: Sequence[tuple[str, Way]], most: int | None = None) -> list[Run]:
    processes = min(len(jobs), os.cpu_count() or 1)
    if processes == 1:
        return [run(name, way, most) for name, way in jobs]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(run, *zip(*jobs, strict=True), [most] * len(jobs)))
