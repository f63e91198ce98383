"""Asks a model for a summary: what it is sent, how often and how long it is tried, and what that costs.

A provider's module only sends one prompt and gives back what comes. What to do about an error, an answer that was cut
off, and a conversation that does not fit is decided here.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, Literal, TypeAlias

from onefold.compaction.prompt import Answer, Prompt, PromptMessage, answer, asked, joined, merged, room, said
from onefold.compaction.summarizer import SummaryInput
from onefold.errors import SummarizerFailed
from onefold.ids import random_id, system_clock
from onefold.messages.codecs import estimate
from onefold.model import Clock, Ids, Record, Summary, Usage
from onefold.summarizers.cancellable_call import CancellableCall
from onefold.summarizers.input_reduction import pruned, split, squeezed
from onefold.summarizers.sdk import need

_RETRIED = frozenset({"rate limit", "unavailable", "timeout"})
_LOOK = 0.1
_SMALLEST = 100
"""Tokens of messages in a prompt, below which splitting on makes no sense."""
_PART = 128
"""Tokens that the summary of a part has at least."""


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """What the provider says a call took. Where it says so twice, the later one counts."""

    input_tokens: int | None = None
    output_tokens: int | None = None


Reason: TypeAlias = Literal["done", "length", "refused"]


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why the model stopped. An answer without one was cut off on its way."""

    reason: Reason
    words: str = ""


Heard: TypeAlias = str | ReportedUsage | StopReason


class OptionDropped(Exception):
    """The endpoint does not know an option that was sent. It is left out from now on: the call is worth repeating."""


class _CutOff(Exception):
    def __init__(self, text: str) -> None:
        super().__init__("cut off")
        self.text = text


@dataclass(frozen=True, kw_only=True)
class ModelSummarizer(ABC):
    """A summarizer that asks a model. It may be used by many threads at once. Times are in seconds, sizes in tokens."""

    window: int = 100_000
    """How much the model can read at once. More is split, and the parts' summaries are put together."""
    timeout: float = 180.0
    """For one answer, from the first byte sent to the last one received."""
    idle: float = 60.0
    """For silence: before the first word of an answer, and between two."""
    connect: float = 10.0
    total: float = 540.0
    """For everything, waits and further calls included: less than `Policy.attempt_timeout`."""
    retries: int = 2
    """How often one call is repeated after an error that may pass."""
    backoff: tuple[float, ...] = (1.0, 4.0, 15.0)
    """Waits before it is repeated, where the provider names none."""
    longest_wait: float = 30.0
    """A provider that asks for more is left to the next attempt of the compaction."""
    calls: int = 32
    """How many calls one summary may take, failed ones included."""
    headroom: int = 4_000
    """What an answer may have beyond the summary itself: for its facts, and for a model that thinks first."""
    price: tuple[float, float] | None = None
    """For a million tokens of input, and of output."""
    redact: Callable[[str], str] | None = None
    """Is given every text before it leaves the process, and what it makes of it is sent."""
    prune: int | None = 1_000
    """How much of an old tool result is sent: its beginning and its end. None: all of it."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request."""
    body: Mapping[str, object] = field(default_factory=dict)
    """Sent with every request, in addition to the usual fields: a temperature, an effort."""
    wait: Callable[[float], object] = field(default_factory=lambda: threading.Event().wait, repr=False, compare=False)
    ids: Ids = field(default=random_id, repr=False, compare=False)
    clock: Clock = field(default=system_clock, repr=False, compare=False)
    timer: Clock = field(default=time.monotonic, repr=False, compare=False)
    """What times are measured by; the clock only says how far off a date is."""

    package: ClassVar[str]
    """The SDK, which is also the name of the extra."""

    def __post_init__(self) -> None:
        need(self.package)

    @property
    @abstractmethod
    def who(self) -> str:
        """The model and where it is, for messages."""

    @property
    @abstractmethod
    def by(self) -> str:
        """The model, for the record."""

    @abstractmethod
    def says(self, prompt: Prompt, limit: int, line: CancellableCall) -> Iterator[Heard]:
        """Sends one prompt, with so many tokens for the answer, and gives what comes as it comes. Raises what the SDK
        raises."""

    @abstractmethod
    def failure(self, error: Exception) -> SummarizerFailed:
        """An error of the SDK, sorted."""

    def __call__(self, material: SummaryInput) -> Summary:
        import_module(self.package)  # takes a second the first time, which is nobody's silence
        return _SummaryJob(self, material).summary()


class _SummaryJob:
    """One summary in the making."""

    def __init__(self, asking: ModelSummarizer, material: SummaryInput) -> None:
        self._asking = asking
        self._given = material
        most = max(_PART, asking.window // 8)  # a small model has to read what it wrote of the parts
        self._material = replace(_redacted(material, self._clean), max_tokens=min(material.max_tokens, most))
        self._room = asking.window
        self._ends = asking.timer() + asking.total
        self._spent = Usage()

    def summary(self) -> Summary:
        by = self._asking.by
        try:
            made = self._answer()
        except _CutOff as cut:
            return Summary(answer(cut.text).summary, cut_off=True, by=by, spent=self._spent)
        except SummarizerFailed as failed:
            failed.spent = self._spent
            raise
        return Summary(made.summary, by=by, facts=made.facts, spent=self._spent, ends=made.ends)

    # ------------------------------------------------------------------ what is sent

    def _answer(self) -> Answer:
        records = self._records()
        prompt = asked(self._material, nonce=self._asking.ids(), records=records)
        if self._fits(prompt) and (made := self._try(prompt, self._material)):
            return made
        return self._merge(self._parts(records))

    def _records(self) -> tuple[PromptMessage, ...]:
        """The messages as they may be sent. Redacted whole, since a secret that is cut in two is not found."""
        records = tuple(PromptMessage(r.number, r.role, self._clean(r.text)) for r in said(self._given))
        keep = self._asking.prune
        if keep is None:
            return records
        results = {r.number for r in self._given.records if _is_result(r)}
        return pruned(records, results, keep)

    def _parts(self, records: Sequence[PromptMessage]) -> list[Answer]:
        """The summaries of as many parts as it takes."""
        todo = self._split(records)
        done: list[Answer] = []
        while todo:
            self._check_affordable(len(todo) + 1)
            count = len(done) + len(todo)
            material = replace(self._material, max_tokens=self._part_tokens(count))
            prompt = asked(material, nonce=self._asking.ids(), records=todo[0], part=(len(done) + 1, count))
            if made := self._try(prompt, material):
                done.append(self._checked(made, count))
                todo.popleft()
            else:
                todo = self._split([r for part in todo for r in part])
        return done

    def _split(self, records: Sequence[PromptMessage]) -> deque[tuple[PromptMessage, ...]]:
        """Messages in parts that fit, and no more of them than half of the calls that are left: the rest is for putting
        their summaries together, and for errors."""
        space = self._space()
        if self._asking.prune is not None:
            records = squeezed(records, space * max(1, (self._asking.calls - self._spent.calls) // 2))
        return deque(split(records, space))

    def _merge(self, parts: Sequence[Answer]) -> Answer:
        """One summary of those of the parts; in several steps, if they do not fit into one prompt."""
        if len(parts) == 1 and not self._material.previous and not self._material.facts:
            return parts[0]
        while True:
            prompt = self._merged(self._material, parts)
            if self._fits(prompt) and (made := self._try(prompt, self._material)):
                return joined(parts, made)
            if len(parts) < 2:
                raise self._too_small()
            parts = self._fewer(parts)

    def _fewer(self, parts: Sequence[Answer]) -> list[Answer]:
        """Neighbours put together, two by two. What stood before them belongs to the last step."""
        material = replace(self._material, previous=None, facts=(), max_tokens=self._part_tokens(len(parts) // 2))
        made: list[Answer] = []
        for pair in (parts[n : n + 2] for n in range(0, len(parts), 2)):
            if len(pair) < 2:
                made += pair
                continue
            prompt = self._merged(material, pair)
            if not self._fits(prompt):
                raise self._too_small()
            whole = joined(pair, answer(self._ask(prompt, material)))
            made.append(self._checked(whole, len(parts)))
        return made

    def _merged(self, material: SummaryInput, parts: Sequence[Answer]) -> Prompt:
        """What the parts found word for word is carried in any case, and is shown if there is room."""
        prompt = merged(material, parts, nonce=self._asking.ids())
        if self._fits(prompt):
            return prompt
        return merged(material, [Answer(p.summary) for p in parts], nonce=self._asking.ids())

    def _checked(self, part: Answer, count: int) -> Answer:
        if not part.summary.strip():
            raise SummarizerFailed(f"{self._asking.who} said nothing of one of {count} parts", kind="garbage")
        clean = self._clean
        facts = tuple(replace(f, text=clean(f.text), key=clean(f.key)) for f in part.facts)
        return Answer(clean(part.summary), facts, part.ends)

    def _fits(self, prompt: Prompt) -> bool:
        return _tokens(prompt) <= self._room

    def _try(self, prompt: Prompt, material: SummaryInput) -> Answer | None:
        """The answer; None if the model says that the prompt is too big for it. The next one is then to be smaller."""
        try:
            return answer(self._ask(prompt, material))
        except SummarizerFailed as failed:
            if failed.kind != "overflow" or failed.final:
                raise
            self._room = min(self._room, _tokens(prompt)) // 2
            self._space(failed)
            return None

    def _space(self, because: SummarizerFailed | None = None) -> int:
        """How many tokens of messages fit into the prompt for a part."""
        space = self._room - _tokens(asked(self._material, nonce="x" * 20, records=(), part=(10, 10)))
        if space < _SMALLEST:
            raise self._too_small(because) from because
        return space

    def _part_tokens(self, count: int) -> int:
        """How long the summary of a part may be, so that all of them fit into the prompt that puts them together."""
        space = self._room - _tokens(merged(self._material, (), nonce="x" * 20))
        return max(_PART, min(self._material.max_tokens, space * 2 // (3 * max(1, count))))

    def _too_small(self, because: SummarizerFailed | None = None) -> SummarizerFailed:
        said = f" ({because})" if because else ""
        return SummarizerFailed(
            f"{self._asking.who} cannot take even a small part of the conversation in {self._room} tokens{said}; "
            "give the summarizer a model with a larger window",
            kind="overflow",
            final=True,
        )

    def _check_affordable(self, more: int) -> None:
        if self._spent.calls + more > self._asking.calls:
            raise SummarizerFailed(
                f"a summary by {self._asking.who} would take {self._spent.calls + more} calls, "
                f"and {self._asking.calls} are allowed; raise `calls`, use a larger `window`, or set `prune`",
                kind="overflow",
                final=True,
            )

    def _clean(self, text: str) -> str:
        """A text as it may leave the process: redacted, and without the half characters that no UTF-8 can carry."""
        if self._asking.redact is not None:
            try:
                text = self._asking.redact(text)
            except Exception as error:
                raise SummarizerFailed(
                    f"nothing was sent, because `redact` failed: {type(error).__name__}: {error}",
                    kind="setup",
                    final=True,
                ) from error
        return text.encode("utf-8", "replace").decode()

    # ------------------------------------------------------------------ how it is sent

    def _ask(self, prompt: Prompt, material: SummaryInput) -> str:
        """The text of an answer. Errors that may pass are given some time to."""
        limit = min(room(material) + self._asking.headroom, max(2 * _PART, self._asking.window // 4))
        failures = 0
        self._check_affordable(1)
        while True:
            try:
                return self._ask_once(prompt, limit)
            except OptionDropped:
                continue
            except SummarizerFailed as failed:
                self._pause(self._wait_after(failed, failures))
                failures += 1

    def _wait_after(self, failed: SummarizerFailed, failures: int) -> float:
        """How long to wait before the call is repeated. Raises the error if it is not."""
        backoff = self._asking.backoff
        if failed.kind not in _RETRIED or failures >= self._asking.retries or self._spent.calls >= self._asking.calls:
            raise failed
        wait = failed.retry_after
        if wait is None:
            wait = backoff[min(failures, len(backoff) - 1)] if backoff else 0.0
        if wait > self._asking.longest_wait or self._asking.timer() + wait >= self._ends:
            raise failed
        return wait

    def _pause(self, seconds: float) -> None:
        while seconds > 0:
            self._look()
            self._asking.wait(min(seconds, _LOOK))
            seconds -= _LOOK
        self._look()

    def _look(self) -> None:
        if self._given.stopped():
            raise SummarizerFailed("nobody waits for the summary any more", kind="stopped")
        if self._asking.timer() >= self._ends:
            raise SummarizerFailed(f"no summary in {self._asking.total:g} s", kind="timeout")

    def _ask_once(self, prompt: Prompt, limit: int) -> str:
        self._look()
        line, call = CancellableCall(), _Call()
        until = min(self._asking.timer() + self._asking.timeout, self._ends)
        try:
            with (
                line.watched(self._given.stopped, until=until, timer=self._asking.timer),
                contextlib.closing(_closable(self._asking.says(prompt, limit, line))) as heard,
            ):
                for piece in heard:
                    call.take(piece)
            failed = self._cut(line)
        except OptionDropped:
            self._count(prompt, call, reached=False)
            raise
        except Exception as error:
            failed = self._cut(line) or self._asking.failure(error)
            self._count(prompt, call, reached=failed.kind in ("timeout", "stopped"))
            raise failed from error
        self._count(prompt, call, reached=failed is not None)
        if failed is not None:
            raise failed
        return self._whole(call)

    def _cut(self, line: CancellableCall) -> SummarizerFailed | None:
        if line.why is None:
            return None
        if line.why == "stopped":
            return SummarizerFailed("nobody waits for the summary any more", kind="stopped")
        return SummarizerFailed(f"{self._asking.who} did not finish its answer in time", kind="timeout")

    def _whole(self, call: _Call) -> str:
        who = self._asking.who
        if call.end is None and not call.began:
            raise SummarizerFailed(f"{who} answered with nothing that is an answer; check base_url", kind="garbage")
        if call.end is None:
            raise SummarizerFailed(f"{who} broke off in the middle of its answer", kind="unavailable")
        if call.end.reason == "refused":
            words = " ".join((call.end.words or call.text).split())[:300]
            raise SummarizerFailed(f"{who} refused to write the summary: {words or 'no reason given'}", kind="refused")
        if call.end.reason == "length":
            raise _CutOff(call.text)
        return call.text

    def _count(self, prompt: Prompt, call: _Call, *, reached: bool) -> None:
        """Adds a call to what was spent: as the provider counted it; by estimate, if it did not come to that; without
        tokens, if it was turned away."""
        reached = reached or call.began
        used = call.usage
        given = used.input_tokens if used.input_tokens is not None else _tokens(prompt) if reached else 0
        made = used.output_tokens if call.end and used.output_tokens is not None else estimate(call.text)
        price = self._asking.price
        cost = None if price is None else round((given * price[0] + made * price[1]) / 1e6, 9)
        self._spent += Usage(1, given, made, cost)


class _Call:
    """What was heard of one call so far."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.usage = ReportedUsage()
        self.end: StopReason | None = None
        self.began = False

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def take(self, piece: Heard) -> None:
        self.began = True
        match piece:
            case str():
                self._pieces.append(piece)
            case ReportedUsage(given, made):
                now = self.usage
                self.usage = ReportedUsage(
                    now.input_tokens if given is None else given, now.output_tokens if made is None else made
                )
            case StopReason(words=words) if self.end is not None and self.end.reason == "refused":
                self.end = StopReason("refused", self.end.words + words)
            case StopReason():
                self.end = piece


def _tokens(prompt: Prompt) -> int:
    return estimate(prompt.system) + estimate(prompt.user) + 8


def _is_result(record: Record) -> bool:
    return record.header is not None and (record.header.role == "tool" or bool(record.header.result_ids))


def _redacted(material: SummaryInput, clean: Callable[[str], str]) -> SummaryInput:
    """What goes into prompts in addition to the messages."""
    return replace(
        material,
        previous=None if material.previous is None else clean(material.previous),
        instructions=None if material.instructions is None else clean(material.instructions),
        facts=tuple(replace(f, key=clean(f.key), text=clean(f.text)) for f in material.facts),
    )


def _closable(heard: Iterator[Heard]) -> Any:
    """A generator has `close`, which ends the request; its type here does not say so."""
    return heard
