"""The measurement: five stretches, five compactions, and a look at what the context holds at the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import onefold
from fidelity.conversations import KINDS, STRETCHES, Conversation, Planted, conversation
from fidelity.forgetful import Forgetful
from fidelity.held_back import HELD_BACK
from onefold import Context, Policy
from onefold.messages import codec

SHARES = (0.10, 0.20, 0.30)
LEDGER, NOTES, TAIL, UNBOUNDED, OTHERWISE = "ledger", "notes", "tail", "unbounded", "otherwise"
WAYS = (LEDGER, TAIL)
"""What is measured at every size: with the ledger, and without it, its room given to the newest messages. At the aim
come `NOTES`, an agent that takes notes instead; `UNBOUNDED`, a ledger that nothing has to leave, so that what it lacks
was not found; and `OTHERWISE`, the ledger with facts said in the ways that are held back."""
AIM = 0.20
"""The share at which everything should be held."""
NOTED = frozenset({"rule", "preference", "value"})
"""Kinds that an agent which takes notes would note."""
LEDGER_SHARE, TAIL_SHARE, SUMMARY_SHARE = 0.45, 0.35, 0.10
"""Of the context's room. What is left over is for the message at which the tail begins."""
_NEAR = 400
"""Characters within which the parts of a fact have to stand in a message that is quoted whole."""
_TRIES = 6


@dataclass(frozen=True, slots=True)
class Look:
    """What one conversation's context held at the end."""

    conversation: Conversation
    share: float
    way: str
    tokens: int
    original: int
    quote_tokens: int
    lines: tuple[str, ...]
    """Of the ledger and the notes, as a model sees them."""
    held: tuple[bool, ...]
    """For each planted fact."""
    superseded: tuple[tuple[Planted, str], ...]
    """Facts with a line that shows a former value and not the present one."""
    injected: tuple[str, ...]
    """Lines that show an order which stood in tool output."""
    idle: tuple[str, ...]
    """Lines that hold nothing that was planted."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of fact, at one size, over all conversations."""

    kind: str
    share: float
    way: str
    held: int
    planted: int

    @property
    def rate(self) -> float:
        return self.held / self.planted if self.planted else 1.0


def looks(seeds: Iterable[int]) -> list[Look]:
    made = []
    for seed in seeds:
        talk = conversation(seed)
        made += [look(talk, share, way) for share in SHARES for way in WAYS]
        made += [look(talk, AIM, way) for way in (NOTES, UNBOUNDED)]
        made.append(look(conversation(seed, HELD_BACK), AIM, OTHERWISE))
    return made


def look(talk: Conversation, share: float, way: str) -> Look:
    """Goes through a conversation with a context of at most that share of its size."""
    original = sum(codec("openai-chat").header(m).tokens for m in talk.messages)
    room = int(original * share)
    policy = _policy(room, way)
    context = _went_through(talk, policy, noting=way == NOTES)
    for _ in range(_TRIES):  # the tail begins at a whole turn, so that it may be longer than it should
        if context.tokens <= room or way == UNBOUNDED:
            break
        policy = replace(policy, tail_tokens=max(1, policy.tail_tokens - (context.tokens - room)))
        context = _went_through(talk, policy, noting=way == NOTES)
    lines, others = _taken_apart(context)
    return Look(
        conversation=talk,
        share=share,
        way=way,
        tokens=context.tokens,
        original=original,
        quote_tokens=sum(_tokens(line) for line in lines),
        lines=lines,
        held=tuple(holds(fact, [*lines, *others]) for fact in talk.planted),
        superseded=tuple((f, line) for f in talk.planted if (line := shows_former(f, lines)) is not None),
        injected=tuple(line for line in lines if any(_plain(order) in _plain(line) for order in talk.injected)),
        idle=tuple(line for line in lines if not any(holds(fact, [line]) for fact in talk.planted)),
    )


def _policy(room: int, way: str) -> Policy:
    return Policy(
        tail_tokens=int(room * (TAIL_SHARE + (LEDGER_SHARE if way == TAIL else 0))),
        tail_share=0.7,
        summary_tokens=max(16, int(room * SUMMARY_SHARE)),
        quote_tokens=_ledger_room(room, way),
        attempts=1,
        backoff=(),
    )


def _ledger_room(room: int, way: str) -> int:
    if way == UNBOUNDED:
        return 1_000_000
    return int(room * LEDGER_SHARE) if way in (LEDGER, OTHERWISE) else 0


def _went_through(talk: Conversation, policy: Policy, *, noting: bool) -> Context:
    with onefold.open("memory:", summarizer=Forgetful(), policy=policy) as store:
        session = store.session("talk")
        for n in range(STRETCHES):
            session.append(list(talk.stretches[n]))
            for note in talk.noted if noting else ():
                if note.stretch == n and note.kind in NOTED:
                    session.note(note.kind, note.text, note.key)
            done = session.compact()
            if not done.applied:
                raise RuntimeError(f"seed {talk.seed}, stretch {n + 1}: not compacted: {done.state}, {done.cause}")
        return session.context()


def _taken_apart(context: Context) -> tuple[tuple[str, ...], list[str]]:
    """The lines of ledger and notes as a model sees them, and the text of everything else."""
    lines: list[str] = []
    others: list[str] = []
    for number, format, body in zip(context.numbers, context.formats, context.messages, strict=True):
        text = codec(format).text(body)
        if number == 0 and body["role"] == "user":
            lines += text.split("\n- ")[1:]
        else:
            others.append(text)
    return tuple(lines), others


def holds(fact: Planted, texts: Iterable[str]) -> bool:
    """Whether all that is needed of a fact stands together in one of the texts, word for word."""
    return any(_together([_plain(need) for need in fact.needs], _plain(text)) for text in texts)


def _together(needs: Sequence[str], text: str) -> bool:
    if not all(need in text for need in needs):
        return False
    *names, value = needs
    return any(
        all(name in text[max(0, at.start() - _NEAR) : at.end() + _NEAR] for name in names)
        for at in _word(value).finditer(text)
    )


def shows_former(fact: Planted, lines: Iterable[str]) -> str | None:
    """The first line in which a former value stands as if it still held."""
    now = _word(_plain(fact.value))
    for line in lines:
        text = _plain(line)
        for former in map(_plain, fact.stale):
            if _word(former).search(text) and not now.search(text) and _means(fact, former, text):
                return line
    return None


def _means(fact: Planted, former: str, text: str) -> bool:
    """Whether a line with that value is about that fact: "14:30" could be anything's."""
    quotes = (_plain(said).rstrip(".") for said in fact.said)
    return _plain(fact.needs[0]) in text or any(q in text for q in quotes) or len(text) - len(former) < 30


@cache
def _word(value: str) -> re.Pattern[str]:
    """The value alone: not as the beginning or the end of a longer name, path or number."""
    return re.compile(rf"(?<![\w/.-]){re.escape(value)}(?![\w-]|[./]\w)")


@lru_cache(maxsize=50_000)
def _plain(text: str) -> str:
    """Without what a phone or a line break changes."""
    return " ".join(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").split()).casefold()


def _tokens(line: str) -> int:
    return len(line.encode()) // 4 + 1


def rows(seen: Sequence[Look], share: float, way: str) -> list[Row]:
    """By kind, and all together at the end."""
    mine = [one for one in seen if one.share == share and one.way == way]
    made = []
    for kind in (*KINDS, "all"):
        marks = [
            mark
            for one in mine
            for fact, mark in zip(one.conversation.planted, one.held, strict=True)
            if kind in (fact.kind, "all")
        ]
        made.append(Row(kind, share, way, sum(marks), len(marks)))
    return made


def missed(seen: Sequence[Look], share: float) -> list[tuple[Look, Planted]]:
    """Facts that the context with the ledger did not hold."""
    return [
        (one, fact)
        for one in seen
        if one.share == share and one.way == LEDGER
        for fact, mark in zip(one.conversation.planted, one.held, strict=True)
        if not mark
    ]
