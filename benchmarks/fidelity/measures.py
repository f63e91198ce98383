"""The measurement: five stretches, five compactions, and a look at what the context says at the end.

All of it goes through the public library, as a program would: append, compact, look at the context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import onefold
from benchmarks.fidelity import languages, talks
from benchmarks.fidelity.languages import LANGUAGES
from benchmarks.fidelity.models import Eager, Forgetful, Honest
from benchmarks.fidelity.seen import Seen, ended, holds, labelled, only_former, plain, seen, shown, torn
from benchmarks.fidelity.talks import HELD_BACK, KNOWN, Planted, Talk, text
from onefold import Context, Policy

SHARES = (0.10, 0.20, 0.30)
AIM = 0.20
"""The share at which baselines and models are compared."""
QUOTES, SUMMARY, NEWEST, VERBATIM = "quotes", "summary", "newest", "verbatim"
WAYS = (QUOTES, VERBATIM, NEWEST, SUMMARY)
"""What carries facts: quotes; users' messages whole, the newest first, in the same room; the newest messages, with the
quotes' room added to theirs; nothing but the summary."""
NO_MODEL, HONEST, EAGER = "no model", "honest model", "model that takes traps for rules"
HELD_TO = (NO_MODEL, HONEST)
"""With these no trap may be labelled. What the third one calls a rule, code cannot always tell from one."""
MODELS: dict[str, Callable[[Talk], onefold.Summarizer]] = {
    NO_MODEL: lambda _: Forgetful(), HONEST: Honest, EAGER: Eager,
}  # fmt: skip
QUOTE_SHARE, TAIL_SHARE, SUMMARY_SHARE = 0.45, 0.35, 0.10
"""Of the context's room. What is left over is for the message at which the tail begins."""
MANY_ROUNDS = 20
ALL_FITS, HALF, TENTH = "all fits", "half", "a tenth"
ROOMS = {ALL_FITS: 4.0, HALF: 0.5, TENTH: 0.1}
"""Room for quotes, as a share of people's words."""
OVER, IN_FORCE = "ended", "in force"
_TRIES = 6


@dataclass(frozen=True, slots=True)
class Look:
    """What one conversation's context held at the end."""

    group: str
    share: float
    way: str
    model: str
    tokens: int
    original: int
    kinds: tuple[str, ...]
    """For each planted fact, as the next two."""
    held: tuple[bool, ...]
    former: tuple[bool, ...]
    """Only a value that no longer holds is shown."""
    missed: tuple[Planted, ...]
    injected: int
    """Orders from tool output that are shown outside the tool's own message."""
    quoted: int
    """Tokens of the quotes, about."""


@dataclass(frozen=True, slots=True)
class Lasting:
    """Facts that quotes held after five rounds, and that they no longer held after twenty."""

    name: str
    held: int
    lost: tuple[Planted, ...]


@dataclass(frozen=True, slots=True)
class Caught:
    """A trap, in one language, room and with one model."""

    group: str
    kind: str
    place: str
    room: str
    model: str
    shown: bool
    torn: bool
    labelled: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """Something taken back, in one language and room and with one model."""

    group: str
    room: str
    model: str
    how: str
    label: str
    """What became of the label that it got."""


@dataclass(slots=True)
class Found:
    """Everything that was measured."""

    looks: list[Look] = field(default_factory=list)
    lasting: list[Lasting] = field(default_factory=list)
    traps: list[Caught] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)

    def add(self, parts: Iterable[Found]) -> None:
        for part in parts:
            self.looks += part.looks
            self.lasting += part.lasting
            self.traps += part.traps
            self.ends += part.ends


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of the measurement, for a process of its own."""

    run: Callable[..., Found]
    given: tuple[object, ...]


# ------------------------------------------------------------------ all of it


def everything(conversations: int, seeds: int, spoken: Sequence[str] = LANGUAGES) -> list[Job]:
    """So many of the frozen conversations in both phrasings, and so many seeds in each language."""
    jobs = [
        Job(look, (group, n, share, QUOTES, NO_MODEL))
        for group, count in ((KNOWN, conversations), (HELD_BACK, conversations), *((one, seeds) for one in spoken))
        for n in range(count)
        for share in SHARES
    ]
    others = [(share, way) for share in SHARES for way in WAYS if way != QUOTES]
    jobs += [Job(look, (KNOWN, n, share, way, NO_MODEL)) for n in range(conversations) for share, way in others]
    jobs += [Job(look, (KNOWN, n, AIM, QUOTES, model)) for n in range(conversations) for model in (HONEST, EAGER)]
    jobs += [Job(lasting, (group, n)) for group in (KNOWN, HELD_BACK) for n in range(conversations)]
    jobs += [Job(lasting, (one, 0)) for one in spoken]
    jobs += [Job(trapped, (one, room, model)) for one in spoken for room in (None, *SHARES) for model in MODELS]
    return jobs + [Job(taken_back, (one, room, model)) for one in spoken for room in ROOMS for model in HELD_TO]


def measured(jobs: Sequence[Job], processes: int = 1) -> Found:
    found = Found()
    if processes == 1:
        found.add(map(_done, jobs))
        return found
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        found.add(pool.map(_done, jobs, chunksize=4))
    return found


def _done(job: Job) -> Found:
    return job.run(*job.given)


@cache
def conversation(group: str, n: int) -> Talk:
    if group in (KNOWN, HELD_BACK):
        return _frozen(group)[n]
    return _kit(group)[n] if group not in LANGUAGES else languages.facts(group, n)


@cache
def _frozen(group: str) -> list[Talk]:
    return talks.frozen(group)


@cache
def _kit(path: str) -> list[Talk]:
    return talks.kit(Path(path))


def of_kit(path: Path) -> list[Job]:
    """Somebody else's conversations at every size, with quotes and with the newest messages alone."""
    ways = ((share, way) for share in SHARES for way in (QUOTES, NEWEST))
    return [Job(look, (str(path), n, *way, NO_MODEL)) for way in ways for n in range(len(_kit(str(path))))]


# ------------------------------------------------------------------ its pieces


def look(group: str, n: int, share: float, way: str, model: str) -> Found:
    """Goes through a conversation with a context of at most that share of its size."""
    talk = conversation(group, n)
    original = size(talk)
    room = int(original * share)
    context, _ = _fitted(talk, room, _policy(room, way), model)
    view = seen(context)
    texts = [*view.texts, *(_newest_of_people(talk, int(room * QUOTE_SHARE)) if way == VERBATIM else ())]
    held = tuple(holds(fact, texts) for fact in talk.planted)
    made = Look(
        group=group, share=share, way=way, model=model, tokens=context.tokens, original=original,
        kinds=tuple(fact.kind for fact in talk.planted),
        held=held,
        former=tuple(only_former(fact, texts) for fact in talk.planted),
        missed=tuple(fact for fact, mark in zip(talk.planted, held, strict=True) if not mark),
        injected=sum(any(plain(order) in plain(one.words) for one in view.quotes) for order in talk.injected),
        quoted=sum(_tokens(one.words) for one in view.quotes),
    )  # fmt: skip
    return Found(looks=[made])


def lasting(group: str, n: int) -> Found:
    """Five rounds, then fifteen with nothing but small talk."""
    talk = conversation(group, n)
    room = int(size(talk) * AIM)
    chatter = [
        languages.small_talk(group if group in LANGUAGES else "en", 1_000 + extra, 8)
        for extra in range(MANY_ROUNDS - talks.ROUNDS)
    ]
    policy = replace(_policy(room, QUOTES), tail_tokens=room // 20, min_shrink=0.0)  # so that each round cuts something
    with onefold.open("memory:", summarizer=Forgetful(), policy=policy) as store:
        session = store.session("talk")
        for stretch in talk.stretches:
            _round(session, stretch)
        early = _held_by_quotes(talk, seen(session.context()))
        for idle in chatter:
            _round(session, idle)
        late = _held_by_quotes(talk, seen(session.context()))
    lost = tuple(fact for fact in talk.planted if fact in early and fact not in late)
    return Found(lasting=[Lasting(group, len(early), lost)])


def trapped(language: str, share: float | None, model: str) -> Found:
    """What becomes of every trap of a language, in a context of that share, or in one that people's words fit into."""
    talk = languages.traps(language, 0)
    room = int(size(talk) * (share or 1.0))
    tail = room // 20 if share is None else int(room * TAIL_SHARE)
    context, numbers = _fitted(talk, room, replace(_policy(room, QUOTES), tail_tokens=tail), model)
    view = seen(context)
    name = ALL_FITS if share is None else f"{100 * share:.0f} %"
    return Found(traps=[
        Caught(
            language, trap.kind, trap.place, name, model,
            shown(trap, view), torn(trap, view, numbers), labelled(trap, view, numbers),
        )
        for trap in talk.traps
    ])  # fmt: skip


def taken_back(language: str, room: str, model: str) -> Found:
    """Whether what ends something stands after it, with room for so much of people's words."""
    talk = languages.ends(language, 0)
    people = sum(_tokens(text(message)) for message in talk.messages if message["role"] == "user")
    whole = size(talk)
    policy = replace(_policy(whole, QUOTES), quote_tokens=int(people * ROOMS[room]), tail_tokens=whole // 20)
    context, _ = _went_through(talk, policy, model)
    view, labels = seen(context), {fact.key: OVER if fact.until else IN_FORCE for fact in context.facts}
    return Found(ends=[Ended(language, room, model, ended(e, view), labels.get(e.said, "")) for e in talk.ends])


# ------------------------------------------------------------------ how


@cache
def size(talk: Talk) -> int:
    """Of a whole conversation, in the library's own estimate of tokens."""
    with onefold.open("memory:") as store:
        session = store.session("whole")
        session.append(talk.messages)
        return session.context().tokens


def _policy(room: int, way: str) -> Policy:
    return Policy(
        window=1_000_000,
        tail_tokens=int(room * (TAIL_SHARE + (QUOTE_SHARE if way == NEWEST else 0))),
        tail_share=0.7,
        summary_tokens=max(16, int(room * SUMMARY_SHARE)),
        quote_tokens=int(room * QUOTE_SHARE) if way == QUOTES else 0,
        quote_share=0.9,
        attempts=1,
        backoff=(),
    )


def _fitted(talk: Talk, room: int, policy: Policy, model: str) -> tuple[Context, tuple[int, ...]]:
    """With a tail as short as it takes: it begins at a whole turn, so that it may be longer than it should."""
    gone = _went_through(talk, policy, model)
    for _ in range(_TRIES):
        if gone[0].tokens <= room:
            break
        policy = replace(policy, tail_tokens=max(1, policy.tail_tokens - (gone[0].tokens - room)))
        gone = _went_through(talk, policy, model)
    return gone


def _went_through(talk: Talk, policy: Policy, model: str) -> tuple[Context, tuple[int, ...]]:
    """The context at the end, and the number of each message."""
    numbers: list[int] = []
    with onefold.open("memory:", summarizer=MODELS[model](talk), policy=policy) as store:
        session = store.session("talk")
        for stretch in talk.stretches:
            numbers += _round(session, stretch)
        return session.context(), tuple(numbers)


def _round(session: onefold.Session, stretch: Sequence[onefold.model.Json]) -> tuple[int, ...]:
    numbers = session.append(list(stretch)).numbers
    done = session.compact()
    if not done.applied:
        raise RuntimeError(f"not compacted: {done.state}, {done.cause}")
    return numbers


def _held_by_quotes(talk: Talk, view: Seen) -> list[Planted]:
    words = ["\n".join(one.words for one in view.quotes)]
    return [fact for fact in talk.planted if holds(fact, words)]


def _newest_of_people(talk: Talk, room: int) -> list[str]:
    """People's messages whole, the newest first, until the next does not fit."""
    made: list[str] = []
    for message in reversed(talk.messages):
        if message["role"] == "user":
            room -= _tokens(text(message))
            if room < 0:
                break
            made.append(text(message))
    return made


def _tokens(words: str) -> int:
    return len(words.encode()) // 4 + 1
