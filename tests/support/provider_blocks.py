"""What providers ran or brought along."""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

from onefold.model import Json

FOUND = "The quartz pump needs 17 bolts."
"""What a tool of the provider gave."""
ASKED = "quartz pump bolts"
"""What it was given."""
BLOB = "E" * 40_000
PICTURE = "iVBORw0KGgo" + "A" * 40_000


class Ran(NamedTuple):
    format: str
    body: Json
    read: tuple[str, ...] = (ASKED, FOUND)


def _answer(*blocks: Json) -> Json:
    return {"role": "assistant", "content": [*blocks, {"type": "text", "text": "Seventeen."}]}


def _served(name: str, given: Json, kind: str, content: Json) -> Json:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": name, "input": given}
    return _answer(use, {"type": kind, "tool_use_id": "srvtoolu_1", "content": content})


def _asks(*blocks: Json) -> Json:
    return {"role": "user", "content": [*blocks, {"type": "text", "text": "How many?"}]}


def _item(kind: str, **fields: Json) -> Json:
    return {"type": kind, "id": "x_1", "status": "completed", **fields}


def _plain(text: str) -> Json:
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, "title": ASKED}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


ANTHROPIC = [
    _served(
        "web_search",
        {"query": ASKED},
        "web_search_tool_result",
        [
            {
                "type": "web_search_result",
                "url": "https://x/y",
                "title": FOUND,
                "encrypted_content": BLOB,
                "page_age": "1 d",
            }
        ],
    ),
    _served(
        "web_fetch",
        {"url": ASKED},
        "web_fetch_tool_result",
        {"type": "web_fetch_result", "url": "https://x/y", "content": _plain(FOUND), "retrieved_at": "2026-11-17"},
    ),
    _served(
        "code_execution",
        {"code": ASKED},
        "code_execution_tool_result",
        {"type": "code_execution_result", "stdout": FOUND, "stderr": "", "return_code": 0, "content": []},
    ),
    _served(
        "bash_code_execution",
        {"command": ASKED},
        "bash_code_execution_tool_result",
        {"type": "bash_code_execution_result", "stdout": "", "stderr": FOUND, "return_code": 1, "content": []},
    ),
    _served(
        "text_editor_code_execution",
        {"command": "view", "path": ASKED},
        "text_editor_code_execution_tool_result",
        {"type": "text_editor_code_execution_view_result", "file_type": "text", "content": FOUND, "num_lines": 1},
    ),
    _served("advisor", {"question": ASKED}, "advisor_tool_result", {"type": "advisor_result", "text": FOUND}),
    _served(
        "tool_search_tool_regex",
        {"query": ASKED},
        "tool_search_tool_result",
        {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": FOUND}],
        },
    ),
    _answer(
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "server_name": "s", "input": {"q": ASKED}},
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcptoolu_1",
            "is_error": False,
            "content": [{"type": "text", "text": FOUND}],
        },
    ),
    _answer({"type": "mcp_tool_listing", "mcp_server_name": ASKED, "tools": [{"name": "f", "description": FOUND}]}),
    _answer({"type": "compaction", "content": f"{ASKED}: {FOUND}", "encrypted_content": BLOB}),
    _asks({"type": "search_result", "source": ASKED, "title": "t", "content": [{"type": "text", "text": FOUND}]}),
    _asks(_plain(FOUND)),
    _asks(
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": f"{ASKED} {FOUND}"}]}}
    ),
    _asks(
        {
            "type": "document",
            "title": ASKED,
            "source": {"type": "base64", "media_type": "text/markdown", "data": _encoded(FOUND)},
        }
    ),
    _asks({"type": "container_upload", "file_id": f"{ASKED} {FOUND}"}),
    _asks({"type": "some_later_block", "of": {"query": ASKED, "findings": [FOUND]}}),
]
RESPONSES = [
    _item("mcp_call", name="f", arguments=json.dumps({"q": ASKED}), output=FOUND, server_label="s"),
    _item("mcp_call", name="f", arguments=ASKED, output=None, server_label="s", error={"code": 3, "message": FOUND}),
    _item("code_interpreter_call", code=ASKED, container_id="c", outputs=[{"type": "logs", "logs": FOUND}]),
    _item(
        "file_search_call", queries=[ASKED], results=[{"file_id": "f", "filename": "a", "score": 0.5, "text": FOUND}]
    ),
    _item("web_search_call", action={"type": "search", "query": ASKED, "sources": [{"type": "url", "url": FOUND}]}),
    _item("image_generation_call", revised_prompt=f"{ASKED} {FOUND}", result=PICTURE, action="generate"),
    _item(
        "mcp_list_tools", server_label=ASKED, tools=[{"name": "f", "description": FOUND, "input_schema": {"a": BLOB}}]
    ),
    _item("tool_search_call", arguments={"q": ASKED, "of": FOUND}, execution="server", call_id=None),
    _item("tool_search_output", tools=[{"name": ASKED, "description": FOUND}], execution="server", call_id=None),
    _item("some_later_call", query=ASKED, findings=[FOUND]),
    _item("some_later_update", query=ASKED, findings=[FOUND]),
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "How many?"},
            {"type": "input_file", "filename": ASKED, "file_data": f"data:text/plain;base64,{_encoded(FOUND)}"},
        ],
    },
]
CHAT = [
    {
        "role": "assistant",
        "content": "Seventeen.",
        "executed_tools": [{"index": 0, "type": "search", "arguments": json.dumps({"q": ASKED}), "output": FOUND}],
    },
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "How many?"},
            {"type": "file", "file": {"filename": ASKED, "file_data": f"data:text/csv;base64,{_encoded(FOUND)}"}},
        ],
    },
    {"role": "user", "content": [{"type": "some_later_part", "query": ASKED, "findings": [FOUND]}]},
]


def _langchain(*blocks: Json, kind: str = "ai", **more: Json) -> Json:
    return {"type": kind, "data": {"type": kind, "content": [*blocks, {"type": "text", "text": "Seventeen."}], **more}}


LANGCHAIN = [
    *(_langchain(*m["content"][:-1]) for m in ANTHROPIC if m["role"] == "assistant"),
    *(_langchain(*m["content"][:-1], kind="human") for m in ANTHROPIC if m["role"] == "user"),
    *(_langchain(item) for item in RESPONSES if item["type"] != "message"),
    _langchain(additional_kwargs={"tool_outputs": [RESPONSES[0]]}),
    _langchain(
        {"type": "server_tool_call", "id": "s1", "name": "web_search", "args": {"query": ASKED}},
        {"type": "server_tool_result", "tool_call_id": "s1", "status": "success", "output": [{"title": FOUND}]},
    ),
    _langchain({"type": "non_standard", "value": RESPONSES[0]}),
    _langchain(
        {"type": "executable_code", "executable_code": ASKED, "language": 1},
        {"type": "code_execution_result", "code_execution_result": FOUND, "outcome": 1},
    ),
    _langchain({"type": "text-plain", "text": FOUND, "title": ASKED, "mime_type": "text/plain"}, kind="human"),
]


def _content(*parts: Json, role: str = "model") -> Json:
    return {"role": role, "parts": [*parts, {"text": "Seventeen."}]}


GEMINI = [
    _content(
        {"executable_code": {"code": ASKED, "language": "PYTHON"}},
        {"code_execution_result": {"outcome": "OUTCOME_OK", "output": FOUND}},
    ),
    _content(
        {"executableCode": {"code": ASKED, "language": "PYTHON", "id": "e1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": FOUND, "id": "e1"}},
    ),
    _content({"executable_code": {"code": f"{ASKED} {FOUND}", "language": "PYTHON"}}),
    _content({"code_execution_result": {"outcome": "OUTCOME_OK", "output": f"{ASKED} {FOUND}"}}),
    _content(
        {"tool_call": {"id": "t1", "tool_type": "GOOGLE_SEARCH_WEB", "args": {"queries": [ASKED]}}},
        {"tool_response": {"id": "t1", "tool_type": "GOOGLE_SEARCH_WEB", "response": {"found": FOUND}}},
    ),
    _content({"some_later_part": {"query": ASKED, "findings": FOUND}}),
    _content({"inline_data": {"mime_type": "text/plain", "data": _encoded(f"{ASKED} {FOUND}")}}, role="user"),
]


def _pydantic(*parts: Json) -> Json:
    return {"kind": "response", "parts": [*parts, {"part_kind": "text", "content": "Seventeen."}]}


PYDANTIC = [
    _pydantic(
        {"part_kind": "builtin-tool-call", "tool_name": "web_search", "args": {"q": ASKED}, "tool_call_id": "b1"},
        {
            "part_kind": "builtin-tool-return",
            "tool_name": "web_search",
            "tool_call_id": "b1",
            "content": [{"title": FOUND, "encrypted_content": BLOB}],
        },
    ),
    _pydantic({"part_kind": "compaction", "content": f"{ASKED} {FOUND}", "provider_name": "anthropic"}),
    _pydantic({"part_kind": "some-later-part", "query": ASKED, "findings": [FOUND]}),
    {
        "kind": "request",
        "parts": [
            {
                "part_kind": "user-prompt",
                "content": [
                    "How many?",
                    {"kind": "binary", "media_type": "text/plain", "data": _encoded(f"{ASKED} {FOUND}")},
                ],
            }
        ],
    },
]
ACP = [
    {"sessionId": "s", "prompt": [{"type": "resource", "resource": {"uri": ASKED, "text": FOUND}}]},
    {
        "sessionId": "s",
        "prompt": [
            {
                "type": "resource",
                "resource": {"uri": ASKED, "mimeType": "text/plain", "blob": _encoded(FOUND)},
            }
        ],
    },
    {"sessionUpdate": "user_message_chunk", "content": {"type": "resource_link", "uri": f"file:///{ASKED} {FOUND}"}},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "some_later_block", "query": ASKED, "found": FOUND}},
]
CASES = [
    *(Ran("anthropic", body) for body in ANTHROPIC),
    *(Ran("claude-code", {"type": body["role"], "message": body}) for body in ANTHROPIC),
    Ran("claude-code", {"type": "attachment", "attachment": {"type": "file", "filename": ASKED, "content": FOUND}}),
    *(Ran("openai-responses", body) for body in RESPONSES),
    *(Ran("openai-chat", body) for body in CHAT),
    *(Ran("langchain", body) for body in LANGCHAIN),
    *(Ran("gemini", body) for body in GEMINI),
    *(Ran("google-adk", {"author": "agent", "invocation_id": "i", "content": body}) for body in GEMINI),
    *(Ran("pydantic-ai", body) for body in PYDANTIC),
    *(Ran("acp", body) for body in ACP),
]
