"""Agents that do not report compactions: inferred from the command that was sent, a sudden drop of usage, or an extra
message.

Guesses, and marked as such: a compaction may go unnoticed, and rarely one is seen that was none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from onefold.acp.detectors.conversation_state import ObservedEvent
from onefold.acp.detectors.observation import ChunkedText, Observation, number, short, text_of, word

_CHUNKS = ("agent_message_chunk", "agent_thought_chunk")


@dataclass(frozen=True, slots=True)
class ContextUsage:
    used: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class CompactCommand:
    """The command to compact, and what the agent has answered."""

    used: int | None = None
    """Tokens when it was sent."""
    answer: ChunkedText = field(default_factory=ChunkedText)
    now: int | None = None


@dataclass(frozen=True, slots=True)
class MessageChain:
    """Messages of one turn that follow each other with no tool call between.

    An agent that has answered without calling a tool is done, and does not speak again. If it does, it was asked in
    between: to summarise, or to go on after it has summarised. So two or three such messages in a row are one
    compaction.
    """

    message: str | None = None
    text: ChunkedText = field(default_factory=ChunkedText)
    alone: bool = False
    """No tool was called since this message began."""
    first: str | None = None
    """The text of the message before, if this one is the second of a chain."""


@dataclass(frozen=True, slots=True)
class HeuristicState:
    usage: ContextUsage = field(default_factory=ContextUsage)
    asked: CompactCommand | None = None
    chain: MessageChain = field(default_factory=MessageChain)


def generic(state: HeuristicState, moment: ObservedEvent) -> tuple[HeuristicState, tuple[Observation, ...]]:
    """Any agent. The command is known to be one only if the agent has told of it."""
    asked, told = _asked(state, moment, known=bool(moment.now.commands & {"compact", "compress"}))
    usage, fell = _usage(state, moment)
    return replace(state, asked=asked, usage=usage), told + fell


def opencode(state: HeuristicState, moment: ObservedEvent) -> tuple[HeuristicState, tuple[Observation, ...]]:
    """OpenCode: as any agent, and its summary is a message like others. It does not tell of its command."""
    asked, told = _asked(state, moment, known=True)
    usage, fell = _usage(state, moment)
    chain, spoke = _chain(state.chain, moment)
    return replace(state, asked=asked, usage=usage, chain=chain), told + spoke + fell


def _asked(
    state: HeuristicState, moment: ObservedEvent, *, known: bool
) -> tuple[CompactCommand | None, tuple[Observation, ...]]:
    if known and moment.began is not None and moment.began.asks:
        return CompactCommand(state.usage.used), (
            Observation("started", "text", "the command was sent", automatic=False),
        )
    asked = state.asked
    if asked is None:
        return None, ()
    if moment.ended is not None and moment.ended.asks:
        shrank = asked.now is None or asked.used is None or asked.now < asked.used
        if moment.result.get("stopReason") != "end_turn" or not asked.answer or not shrank:
            return None, ()
        done = Observation(
            "done",
            "text",
            f"the command was answered: {short(str(asked.answer))}",
            summary=str(asked.answer),
            before=asked.used,
            after=asked.now,
            automatic=False,
        )
        return None, (done,)
    update = moment.update
    if update.get("sessionUpdate") == "agent_message_chunk":
        return replace(asked, answer=asked.answer.add(text_of(update.get("content")))), ()
    if update.get("sessionUpdate") == "usage_update":
        return replace(asked, now=number(update.get("used"))), ()
    return asked, ()


def _usage(state: HeuristicState, moment: ObservedEvent) -> tuple[ContextUsage, tuple[Observation, ...]]:
    """A fall by more than half. A command may clear the context, and what is loaded is another one: no sign then."""
    if (moment.ended is not None and moment.ended.slash) or (moment.before.loading and not moment.now.loading):
        return ContextUsage(), ()
    update, last = moment.update, state.usage
    used, size = number(update.get("used")), number(update.get("size"))
    if update.get("sessionUpdate") != "usage_update" or not used:
        return last, ()
    usage = ContextUsage(used, size)
    if last.used is None or last.size != size or used * 2 >= last.used or moment.now.slash or moment.now.loading:
        return usage, ()
    seen = Observation(
        "done", "usage", f"usage fell from {last.used} to {used} of {size}", before=last.used, after=used
    )
    return usage, (seen,)


def _chain(chain: MessageChain, moment: ObservedEvent) -> tuple[MessageChain, tuple[Observation, ...]]:
    if moment.ended is not None:
        whole = moment.result.get("stopReason") == "end_turn"  # a turn that was cancelled may have ended in the summary
        return MessageChain(), _over(chain, None) if whole and chain.first is not None else ()
    if not moment.now.running or moment.now.slash:
        return chain, ()
    update = moment.update
    if update.get("sessionUpdate") in ("tool_call", "tool_call_update"):
        return replace(chain, alone=False, first=None), _over(chain, chain.first) if chain.first is not None else ()
    message = word(update.get("messageId"))
    if update.get("sessionUpdate") not in _CHUNKS or message is None:
        return chain, ()
    said = text_of(update.get("content")) if update.get("sessionUpdate") == "agent_message_chunk" else ""
    if message == chain.message:
        return replace(chain, text=chain.text.add(said)), ()
    following = MessageChain(message, ChunkedText().add(said), alone=True)
    if not chain.alone or not chain.text:
        return following, ()
    if chain.first is not None:
        return following, _over(chain, str(chain.text))
    seen = Observation("started", "text", "another message followed without a tool call", automatic=True)
    return replace(following, first=str(chain.text)), (seen,)


def _over(chain: MessageChain, summary: str | None) -> tuple[Observation, ...]:
    said = short(summary if summary is not None else str(chain.text))
    return (Observation("done", "text", f"one message too many: {said}", summary=summary, automatic=True),)
