"""What agents say about their compactions, in the shapes that real ones use: short scripts for tests."""

from __future__ import annotations

from onefold.acp.detectors import Event, FromAgent, ToAgent
from onefold.acp.line_reader import StderrLine
from onefold.jsonrpc import notification, request, result
from onefold.model import Json

SESSION = "5e551011-aaaa-4bbb-8ccc-0123456789ab"


def update(kind: str, /, *, session: str = SESSION, **fields: Json) -> Event:
    return FromAgent(
        notification("session/update", {"sessionId": session, "update": {"sessionUpdate": kind, **fields}})
    )


def prompt(id: int, text: str) -> Event:
    return ToAgent(request(id, "session/prompt", {"sessionId": SESSION, "prompt": [{"type": "text", "text": text}]}))


def answer(id: int, stop: str = "end_turn") -> Event:
    return FromAgent(result(id, {"stopReason": stop}))


def load(id: int) -> Event:
    return ToAgent(request(id, "session/load", {"sessionId": SESSION, "cwd": "/", "mcpServers": []}))


def loaded(id: int, **fields: Json) -> Event:
    return FromAgent(result(id, {**fields}))


def says(text: str, message: str | None = None, **fields: Json) -> Event:
    named = {} if message is None else {"messageId": message}
    return update("agent_message_chunk", content={"type": "text", "text": text}, **named, **fields)


def usage(used: int, size: int = 200_000) -> Event:
    return update("usage_update", used=used, size=size)


def commands(*names: str) -> Event:
    return update("available_commands_update", availableCommands=[{"name": name, "description": ""} for name in names])


def compaction(act: str, status: str, **fields: Json) -> Event:
    return update("compaction_update", compactionId=act, status=status, **fields)


# ---------------------------------------------------------------------- Hermes


def hermes_started(session: str = SESSION, *, count: int = 9, tokens: str = "63,359", focus: str = "None") -> Event:
    return StderrLine(
        "2031-01-02 03:04:05 [INFO] agent.conversation_compression: context compression started: "
        f"session={session} messages={count} tokens=~{tokens} model=some-model focus={focus}"
    )


def hermes_done(session: str = SESSION, *, count: int = 9, left: int = 5, tokens: str = "37,274") -> Event:
    return StderrLine(
        "2031-01-02 03:04:06 [INFO] agent.conversation_compression: context compression done: "
        f"session={session} messages={count}->{left} rough_tokens=~{tokens} awaiting_real_usage=true"
    )


def hermes_turn_ended(session: str = SESSION) -> Event:
    return StderrLine(
        "2031-01-02 03:04:07 [INFO] agent.conversation_loop: Turn ended: reason=text_response(finish_reason=stop) "
        f"model=some-model api_calls=1/90 response_len=4 session={session}"
    )


def hermes_no_summary(why: str) -> Event:
    return StderrLine(
        "2031-01-02 03:04:06 [WARNING] agent.context_compressor: Failed to generate context summary: "
        f"{why}. Further summary attempts paused for 60 seconds."
    )


def provenance(current: str, *, previous: str | None = None, depth: int = 0) -> dict[str, Json]:
    told: dict[str, Json] = {
        "acpSessionId": SESSION,
        "currentHermesSessionId": current,
        "rootHermesSessionId": SESSION,
        "compressionDepth": depth,
    }
    if previous is not None:
        told |= {"previousHermesSessionId": previous, "reason": "compression", "creatorKind": "compression"}
    return {"hermes": {"sessionProvenance": told}}


def hermes_rotated(previous: str, current: str, depth: int) -> Event:
    return update("session_info_update", title="t", _meta=provenance(current, previous=previous, depth=depth))


# ---------------------------------------------------------------------- Qwen Code, Mistral Vibe


def qwen(phase: str, text: str = "", *, source: str | None = "slash_command", **numbers: Json) -> Event:
    meta: dict[str, Json] = {"contextCompression": {"phase": phase, **numbers}}
    return says(text, _meta=meta if source is None else {**meta, "source": source})


def vibe(call: str, status: str, *, trigger: str = "automatic", kind: str = "tool_call_update") -> Event:
    return update(
        kind,
        toolCallId=call,
        title="Compacting context",
        status=status,
        rawInput={"trigger": trigger, "attempt": 1},
        _meta={"checkpoint_kind": "compaction"},
    )


def vibe_typed(call: str, status: str, *, kind: str = "tool_call_update") -> Event:
    title = "Compacting conversation history..." if status == "in_progress" else "Compacted conversation history"
    return update(kind, toolCallId=call, title=title, kind="other", status=status)
