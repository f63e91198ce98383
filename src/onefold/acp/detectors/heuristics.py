"""Agents that do not report compactions: inferred from the command that was sent and answered, a sudden drop of usage,
or an extra message.

Guesses, and marked as such: a compaction may go unnoticed, and rarely one is seen that was none. Where two explanations
are left, it was none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from onefold.acp.detectors.conversation_state import ObservedEvent
from onefold.acp.detectors.observation import ChunkedText, Observation, number, short, text_of, word
from onefold.acp.detectors.refusals import refuses
from onefold.acp.detectors.token_usage import TurnTotals, reported, spent

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
    totals: TurnTotals = field(default_factory=TurnTotals)
    asked: CompactCommand | None = None
    chain: MessageChain = field(default_factory=MessageChain)


def generic(state: HeuristicState, moment: ObservedEvent) -> tuple[HeuristicState, tuple[Observation, ...]]:
    """Any agent. The command is known to be one only if the agent has told of it."""
    return _guess(state, moment, known=bool(moment.now.commands & {"compact", "compress"}))


def opencode(state: HeuristicState, moment: ObservedEvent) -> tuple[HeuristicState, tuple[Observation, ...]]:
    """OpenCode: as any agent, and its summary is a message like others. It does not tell of its command."""
    chain, spoke = _chain(state.chain, moment)
    state, guessed = _guess(state, moment, known=True)
    return replace(state, chain=chain), spoke + guessed


def _guess(
    state: HeuristicState, moment: ObservedEvent, *, known: bool
) -> tuple[HeuristicState, tuple[Observation, ...]]:
    asked, told = _asked(state, moment, known=known)
    unclear = state.asked is not None and asked is None and not told
    usage, fell = _usage(state, moment, unclear=unclear)
    totals, less = state.totals.step(moment)
    return replace(state, asked=asked, usage=usage, totals=totals), told + fell + less


def compacted(state: HeuristicState) -> HeuristicState:
    """A compaction was reported: what the context held before it is no measure for what comes after it."""
    return replace(state, usage=ContextUsage(), totals=state.totals.forget())


def _asked(
    state: HeuristicState, moment: ObservedEvent, *, known: bool
) -> tuple[CompactCommand | None, tuple[Observation, ...]]:
    if known and moment.began is not None and moment.began.asks:
        return CompactCommand(state.usage.used or state.totals.newest), (
            Observation("started", "text", "the command was sent", automatic=False),
        )
    asked = state.asked
    if asked is None:
        return None, ()
    if moment.ended is not None and moment.ended.asks:
        worked = bool(spent(moment.result))
        return None, _answered(asked, worked=worked) if moment.result.get("stopReason") == "end_turn" else ()
    update = moment.update
    used = number(update.get("used")) if update.get("sessionUpdate") == "usage_update" else reported(update)
    asked = replace(asked, now=used) if used else asked
    if update.get("sessionUpdate") == "agent_message_chunk":
        return replace(asked, answer=asked.answer.add(text_of(update.get("content")))), ()
    return asked, ()


def _answered(asked: CompactCommand, *, worked: bool) -> tuple[Observation, ...]:
    """A command that ended well. What it is worth does not depend on usage: a summary of a short context may be longer
    than that was, and many agents tell only with the next turn. But usage that fell speaks for it, and if it fell by
    half, more loudly than words. One that ends without a word has done something if its model had to."""
    answer = str(asked.answer)
    fell = asked.used is not None and asked.now is not None and asked.now < asked.used
    halved = fell and (asked.now or 0) * 2 < (asked.used or 0)
    if not halved and refuses(answer):
        cause = f"the agent says: {short(answer)}"
        return (Observation("failed", "text", short(answer), automatic=False, cause=cause),)
    if not (answer.strip() or fell or worked):
        return ()
    done = Observation(
        "done",
        "text",
        f"the command was answered: {short(answer)}" if answer.strip() else "the command ended well",
        summary=answer or None,
        before=asked.used,
        after=asked.now,
        automatic=False,
        backed_by=("usage",) if fell else (),
    )
    return (done,)


def _usage(
    state: HeuristicState, moment: ObservedEvent, *, unclear: bool
) -> tuple[ContextUsage, tuple[Observation, ...]]:
    """A fall by more than half. A command may clear the context, and what is loaded is another one: no sign then. But
    where it is unclear what came of the command to compact, the next usage tells."""
    if (moment.ended is not None and moment.ended.slash and not unclear) or (
        moment.before.loading and not moment.now.loading
    ):
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
