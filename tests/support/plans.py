"""Headers of messages and where they may be cut."""

from __future__ import annotations

from onefold.model import Json


def user(text: str = "please") -> Json:
    return {"role": "user", "content": text}


def answer(text: str = "done") -> Json:
    return {"role": "assistant", "content": text}


def calls(*ids: str) -> Json:
    made = [{"id": id, "type": "function", "function": {"name": "run", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(id: str, text: str = "output") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": text}


def system(text: str = "You are an agent.") -> Json:
    return {"role": "system", "content": text}
