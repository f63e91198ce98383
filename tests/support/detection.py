"""Messages whose format has to be found out."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from onefold.model import Json

# ---------------------------------------------------------------------- what each format's messages look like

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).map(str.strip).filter(bool)
ids = st.from_regex(r"[a-z]{2,4}_[a-z0-9]{4,8}", fullmatch=True)
some = st.dictionaries(st.sampled_from(["query", "path", "n"]), words | st.integers(), max_size=2)
cache = st.sampled_from([{}, {"cache_control": {"type": "ephemeral"}}])


def made(*required: dict[str, Any], **fields: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """An object with these fields, and perhaps with the last of several variants of more."""
    fixed = st.fixed_dictionaries(fields)
    return st.builds(lambda a, b: {**a, **b}, fixed, st.sampled_from(required)) if required else fixed


def typed(kind: str, **fields: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return made(type=st.just(kind), **fields)


texts = st.builds(lambda a, b: {**a, **b}, typed("text", text=words), cache)
source = st.sampled_from(
    [
        {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
        {"type": "url", "url": "https://example.org/a"},
        {"type": "text", "media_type": "text/plain", "data": "words"},
        {"type": "file", "file_id": "file_1"},
    ]
)

ANTHROPIC_ANSWERS = st.one_of(
    typed("thinking", thinking=words, signature=words),
    typed("redacted_thinking", data=words),
    typed("server_tool_use", id=ids, name=st.just("web_search"), input=some),
    typed("mcp_tool_use", id=ids, name=words, server_name=words, input=some),
    typed("compaction", content=words),
    typed("compaction", content=st.none(), encrypted_content=words),
    typed("text", text=words, citations=st.just([{"type": "char_location", "cited_text": "x"}])),
    made({"type": "fallback"}, to=some, trigger=some),
    typed("container_upload", file_id=ids),
    typed("some_later_block", of=some),
)
ANTHROPIC_ASKS = st.one_of(
    typed("image", source=source),
    typed("document", source=source, title=words),
    typed("search_result", source=words, title=words, content=st.just([{"type": "text", "text": "x"}])),
    typed("tool_addition", tool=some),
)


def anthropic_message(role: str, own: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """At least one block that is no other provider's, and an end that the API takes."""
    blocks = st.tuples(st.lists(texts, max_size=1), own, texts).map(lambda b: [*b[0], b[1], b[2]])
    return made(role=st.just(role), content=blocks)


plain = made(role=st.sampled_from(["user", "assistant"]), content=words)
text_blocks = made(role=st.just("user"), content=st.lists(texts, min_size=1, max_size=2))

item = {"status": "completed"}
RESPONSES = st.one_of(
    plain,
    typed("message", role=st.sampled_from(["user", "system"]), content=st.just([{"type": "input_text", "text": "x"}])),
    typed("message", role=st.just("assistant"), content=st.just([{"type": "refusal", "refusal": "no"}]), id=ids),
    typed("message", role=st.just("user"), content=words),
    made(role=st.just("user"), content=st.just([{"type": "input_image", "image_url": "https://example.org/a"}])),
    made(role=st.just("user"), content=st.just([{"type": "input_file", "file_id": "f"}])),
    made(item, type=st.just("web_search_call"), id=ids, action=some),
    made(item, type=st.just("file_search_call"), id=ids, queries=st.lists(words, max_size=2)),
    made(item, type=st.just("image_generation_call"), id=ids, result=words),
    made(item, type=st.just("code_interpreter_call"), id=ids, code=words, container_id=ids, outputs=st.just([])),
    made({}, {"output": "42"}, {"error": None}, type=st.just("mcp_call"), id=ids, name=words, server_label=words),
    typed("mcp_list_tools", id=ids, server_label=words, tools=st.just([])),
    typed("mcp_approval_request", id=ids, name=words, arguments=words, server_label=words),
    made({}, {"id": "cmp_1"}, type=st.just("compaction"), encrypted_content=words),
    typed("compaction_trigger"),
    typed("item_reference", id=ids),
    made({"role": "developer"}, type=st.just("additional_tools"), tools=st.just([])),
    typed("configuration_update", reasoning=st.just({"effort": "low"})),
    typed("some_later_call", id=ids, status=st.just("completed")),
    typed("a_later_item", id=ids, encrypted_content=words),
)
CHAT = st.one_of(
    plain,
    text_blocks,
    made(role=st.sampled_from(["system", "developer"]), content=words),
    made(role=st.just("user"), content=words, name=words),
    made(role=st.just("assistant"), content=words, reasoning_content=words),
    made(role=st.just("assistant"), content=st.none(), refusal=words),
    made(role=st.just("user"), content=st.just([{"type": "image_url", "image_url": {"url": "https://example.org/a"}}])),
    made(
        role=st.just("user"),
        content=st.just([{"type": "input_audio", "input_audio": {"data": "AAA=", "format": "wav"}}]),
    ),
    made(role=st.just("user"), content=st.just([{"type": "file", "file": {"file_id": "f"}}])),
    made(role=st.just("user"), content=st.just([{"type": "video_url", "video_url": {"url": "https://example.org/a"}}])),
    made(role=st.just("assistant"), content=st.just([{"type": "refusal", "refusal": "no"}])),
)
ANTHROPIC = st.one_of(
    plain,
    text_blocks,
    made(role=st.just("system"), content=words),
    anthropic_message("assistant", ANTHROPIC_ANSWERS),
    anthropic_message("user", ANTHROPIC_ASKS),
    made(
        {"type": "message", "id": "msg_1", "model": "m", "stop_reason": "end_turn"},
        role=st.just("assistant"),
        content=st.just([{"type": "text", "text": "whole"}]),
    ),
)
part = st.one_of(
    made(text=words),
    made({"thought": True}, text=words),
    made(inline_data=st.just({"mime_type": "image/png", "data": "AAA="})),
    made(inlineData=st.just({"mimeType": "image/png", "data": "AAA="})),
    made(file_data=st.just({"mime_type": "image/png", "file_uri": "https://example.org/a"})),
    made(executable_code=st.just({"code": "print(1)", "language": "PYTHON"})),
    made(executableCode=st.just({"code": "print(1)", "language": "PYTHON"})),
    made({"thought_signature": "x"}, text=words),
)
GEMINI = made(role=st.sampled_from(["user", "model"]), parts=st.lists(part, min_size=1, max_size=3))
ADK = st.one_of(
    made({"author": "user"}, {"author": "agent", "id": "e1", "invocation_id": "i"}, content=GEMINI),
    made({"author": "agent", "invocation_id": "i"}, actions=made(state_delta=some)),
)
PYDANTIC = st.one_of(
    made({"kind": "request"}, parts=st.lists(made({"part_kind": "user-prompt"}, content=words), min_size=1)),
    made({"kind": "response", "usage": {}}, parts=st.lists(made({"part_kind": "thinking"}, content=words), min_size=1)),
)
LANGCHAIN = st.one_of(
    made({"type": "human"}, {"type": "HumanMessageChunk"}, {"type": "ai"}, data=made(content=words, id=ids)),
    made({"type": "chat"}, data=made(content=words, role=st.just("user"))),
)
CLAUDE_CODE = st.one_of(
    made({"type": "user", "uuid": "u", "sessionId": "s"}, message=made({"role": "user"}, content=words)),
    made({"type": "summary"}, summary=words, leafUuid=ids),
    made({"type": "system", "uuid": "u", "sessionId": "s"}, content=words),
)
ACP = st.one_of(
    made({"sessionUpdate": "user_message_chunk"}, content=made({"type": "text"}, text=words)),
    made({"sessionUpdate": "agent_thought_chunk"}, content=made({"type": "text"}, text=words)),
    made({"sessionUpdate": "plan"}, entries=st.just([])),
    made({"sessionId": "s"}, prompt=st.lists(made({"type": "text"}, text=words), min_size=1)),
)
SHAPES: dict[str, st.SearchStrategy[Json]] = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "google-adk": ADK,
    "pydantic-ai": PYDANTIC,
    "langchain": LANGCHAIN,
    "claude-code": CLAUDE_CODE,
    "acp": ACP,
}
