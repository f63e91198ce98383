"""Messages as frameworks write them."""

from __future__ import annotations

from onefold.model import Json
from tests.support.formats import PICTURE, in_anthropic


def in_langchain(n: int = 0, pad: str = "") -> list[Json]:
    def made(kind: str, **data: Json) -> Json:
        return {"type": kind, "data": {"type": kind, "id": f"{kind}-{n}", "additional_kwargs": {}, **data}}

    def called(id: str, path: str) -> Json:
        return {"name": "read", "args": {"path": path}, "id": id, "type": "tool_call"}

    blocks = [{"type": "reasoning", "reasoning": "Look first."}, "I look.", {"type": "tool_use", "id": f"a{n}"}]
    return [
        made("human", content=f"Why does it fail? {pad}"),
        made("human", content=[{"type": "image_url", "image_url": {"url": PICTURE}}]),
        made("ai", content=blocks, tool_calls=[called(f"a{n}", "a.txt"), called(f"b{n}", "b.txt")]),
        made("tool", content=f"log a {pad}", tool_call_id=f"a{n}", status="success"),
        made("tool", content=[{"type": "text", "text": f"log b {pad}"}], tool_call_id=f"b{n}"),
        made("ai", content="It needs the network.", tool_calls=[]),
    ]


def in_adk(n: int = 0, pad: str = "") -> list[Json]:
    def made(author: str, role: str, *parts: Json) -> Json:
        content = {"role": role, "parts": list(parts)}
        return {"author": author, "id": f"e{n}", "timestamp": 5.0 + n, "invocation_id": f"i{n}", "content": content}

    def called(id: str, path: str) -> Json:
        return {"function_call": {"id": id, "name": "read", "args": {"path": path}}}

    def answered(id: str, text: str) -> Json:
        return {"function_response": {"id": id, "name": "read", "response": {"result": text}}}

    picture = {"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgo="}}
    calls = called(f"a{n}", "a.txt"), called(f"b{n}", "b.txt")
    return [
        made("user", "user", {"text": f"Why does it fail? {pad}"}),
        made("user", "user", picture),
        made("mender", "model", {"text": "Look first.", "thought": True}, {"text": "I look."}, *calls),
        made("mender", "user", answered(f"a{n}", f"log a {pad}"), answered(f"b{n}", f"log b {pad}")),
        made("mender", "model", {"text": "It needs the network."}),
    ]


def in_claude(n: int = 0, pad: str = "") -> list[Json]:
    return [{"type": m["role"], "uuid": f"{n}-{i}", "message": m} for i, m in enumerate(in_anthropic(n, pad))]
