"""What every detector needs to know of the conversation: which turn runs, and what is only being loaded."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from onefold.acp.detectors.observation import Event, FromAgent, ToAgent, mapping, text_of, word
from onefold.acp.line_reader import StderrLine
from onefold.jsonrpc import Frame
from onefold.model import Json

ASKING = frozenset({"/compact", "/compress"})
"""First words of a prompt that asks the agent to compact."""

_STEMS = ("compact", "compress", "condens", "summari")
"""In the names of commands by which agents compact, and of methods."""
_LONGEST = 200
_FARTHEST = 16_384
"""Characters of one prompt that cannot be seen and are looked past. Whoever sends more may hide a command there."""

_OURS = frozenset({"session/prompt", "session/load", "session/resume"})


class RunningPrompt(NamedTuple):
    """A turn that runs."""

    id: str | int
    asks: bool
    """It is the command to compact."""
    slash: bool
    """It is some command, and not words for the model."""


@dataclass(frozen=True, slots=True)
class ConversationState:
    session: str | None = None
    """The agent's id of the session. Updates of others, such as those of its subagents, are not about it."""
    prompts: tuple[RunningPrompt, ...] = ()
    loads: frozenset[str | int] = frozenset()
    commands: frozenset[str] = frozenset()
    """That the agent has told of, without their slash."""
    compacting: frozenset[str] = frozenset()
    """Those of them that compact, by their names or by what the agent says of them."""

    @property
    def running(self) -> bool:
        return bool(self.prompts)

    @property
    def asked(self) -> bool:
        return any(p.asks for p in self.prompts)

    @property
    def slash(self) -> bool:
        return any(p.slash for p in self.prompts)

    @property
    def loading(self) -> bool:
        return bool(self.loads)


class ObservedEvent(NamedTuple):
    """An event, and what was known when it came."""

    event: Event
    before: ConversationState
    now: ConversationState

    @property
    def update(self) -> dict[str, Json]:
        """What a session/update of this session says."""
        return self.event.frame.update if isinstance(self.event, FromAgent) else {}

    @property
    def result(self) -> dict[str, Json]:
        """The agent's answer to a request."""
        return mapping(self.event.frame.body.get("result")) if isinstance(self.event, FromAgent) else {}

    @property
    def began(self) -> RunningPrompt | None:
        new = self.now.prompts[len(self.before.prompts) :]
        return new[0] if new else None

    @property
    def ended(self) -> RunningPrompt | None:
        return next((p for p in self.before.prompts if p not in self.now.prompts), None)


def follow(traffic: ConversationState, event: Event) -> ConversationState:
    match event:
        case StderrLine():
            return traffic
        case ToAgent(frame):
            return _sent(traffic, frame)
        case FromAgent(frame):
            if frame.update.get("sessionUpdate") == "available_commands_update":
                listed = frame.update.get("availableCommands")
                return replace(traffic, commands=_names(listed), compacting=_compacting(listed))
            if not frame.is_response or frame.id is None:
                return traffic
            return replace(
                traffic,
                prompts=tuple(p for p in traffic.prompts if p.id != frame.id),
                loads=traffic.loads - {frame.id},
            )


def asks_to_compact(prompt: Json) -> str | None:
    """The instructions that come with the command to compact, perhaps none (""); None if the prompt is another one."""
    words = text_of(prompt).split(maxsplit=1)
    if not words or words[0].lower() not in ASKING:
        return None
    return words[1].strip() if len(words) > 1 else ""


def may_compact(prompt: Json, commands: Collection[str]) -> bool:
    """Whether an agent may take a prompt for a command to compact, however it is spelled: one of these commands, or any
    that is called so. Rather too often than too seldom: who may compact need not care."""
    blocks = prompt if isinstance(prompt, list) else [prompt]
    texts = [b["text"] for b in blocks if isinstance(b, dict) and isinstance(b.get("text"), str)]
    hidden = 0
    for said in (*texts, "".join(texts)):
        text = said.lstrip()
        begin = _begin(text[: _FARTHEST + 1])
        hidden += begin
        name = _command(text[begin : begin + _LONGEST])
        if hidden > _FARTHEST or (name is not None and (name in commands or names_compaction(name))):
            return True
    return False


def names_compaction(name: str) -> bool:
    """Whether a command or a method is called as those that compact."""
    return any(stem in name.lower() for stem in _STEMS)


def _begin(said: str) -> int:
    """Where the first character stands that can be seen."""
    return next((i for i, c in enumerate(said) if c.isprintable() and not c.isspace()), len(said))


def _command(said: str) -> str | None:
    """The name of the command that a text is, whatever cannot be seen in it; None if it is none."""
    plain = unicodedata.normalize("NFKC", said)
    if not plain.startswith("/"):
        return None
    words = plain[1:].split(maxsplit=1)
    return "".join(c for c in words[0] if c.isprintable()).lower() if words else ""


def is_other(traffic: ConversationState, event: Event) -> bool:
    """Whether an update is about another session than this one."""
    return isinstance(event, FromAgent) and of_another(event.frame, traffic.session)


def of_another(frame: Frame, session: str | None) -> bool:
    """Whether an agent speaks of another session than this one, such as that of a subagent. One that names none, or
    before it has one, speaks of this one."""
    named = frame.params.get("sessionId")
    return frame.is_notification and session is not None and named is not None and named != session


def _sent(traffic: ConversationState, frame: Frame) -> ConversationState:
    if frame.id is None or frame.method not in _OURS:
        return traffic
    traffic = replace(traffic, session=word(frame.params.get("sessionId")) or traffic.session)
    if frame.method == "session/load":
        return replace(traffic, loads=traffic.loads | {frame.id})
    if frame.method == "session/prompt":
        said = frame.params.get("prompt")
        prompt = RunningPrompt(frame.id, asks_to_compact(said) is not None, text_of(said).lstrip().startswith("/"))
        return replace(traffic, prompts=(*traffic.prompts, prompt))
    return traffic


def _names(listed: Json) -> frozenset[str]:
    names = [word(mapping(one).get("name")) for one in listed] if isinstance(listed, list) else []
    return frozenset(name.removeprefix("/") for name in names if name is not None)


def _compacting(listed: Json) -> frozenset[str]:
    told = [mapping(one) for one in listed] if isinstance(listed, list) else []
    named = [(word(one.get("name")), f"{one.get('name')} {one.get('description')}") for one in told]
    return frozenset(name.removeprefix("/").lower() for name, says in named if name and names_compaction(says))
