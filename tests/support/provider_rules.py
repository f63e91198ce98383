"""What each provider demands of a conversation, by its documentation and the words in which it refuses one.

One function a format. Each gives what its provider would refuse, in words, and the ids of calls at the end whose
results are what has to come next: an agent that runs its tools has those in its hands, and sends nothing before.
Nothing here uses the library: a rule that is wrong in both places would be no rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

Json = Any


@dataclass
class Verdict:
    wrong: list[str] = field(default_factory=list)
    due: list[str] = field(default_factory=list)

    def unless(self, holds: object, what: str) -> None:
        if not holds:
            self.wrong.append(what)


def anthropic(messages: list[Json]) -> Verdict:
    """Messages API: roles take turns, neighbours of one role count as one turn, and the first is the user's. The system
    prompt is a parameter, which the messages that open the list with role system are for. Newer models take such a
    message later too: behind a user's turn, and before an answer or at the end. For older ones those are taken out as
    well, and what is left must be right."""
    at = next((n for n, m in enumerate(messages) if m["role"] != "system"), len(messages))
    verdict = Verdict()
    said = messages[at:]
    roles = [m["role"] for m in said]
    for n, role in enumerate(roles):
        if role == "system":
            verdict.unless(roles[n - 1] == "user", "a system message that follows no user's")
            verdict.unless(roles[n + 1 : n + 2] in ([], ["assistant"]), "a system message before a user's")
    _anthropic_turns(_from_compaction([m for m in said if m["role"] != "system"], verdict), verdict)
    return verdict


def _from_compaction(messages: list[Json], verdict: Verdict) -> list[Json]:
    """What the model is shown: a `compaction` block with content takes the place of all that stands before it, and one
    without is passed over. One that was asked for is signed: it is the only one, and the first block of all."""
    held = [(m, b) for m in messages if isinstance(m["content"], list) for b in m["content"]]
    made = [(m, b) for m, b in held if b["type"] == "compaction" and b.get("content") is not None]
    for message, block in made:
        verdict.unless(message["role"] == "assistant", "a compaction block that is no answer's")
        verdict.unless(block["content"], "a compaction block with an empty text")
        if block.get("signature"):
            verdict.unless(len(made) == 1, "more than one compaction block with content")
            first = messages[0] is message and message["content"][0] is block
            verdict.unless(first, "a compaction block that is not the first of the conversation")
    if not made:
        return messages
    message, block = made[-1]
    at = next(n for n, m in enumerate(messages) if m is message)
    kept = message["content"][next(n for n, b in enumerate(message["content"]) if b is block) :]
    return [message | {"content": kept}, *messages[at + 1 :]]


def _anthropic_turns(messages: list[Json], verdict: Verdict) -> None:
    turns: list[tuple[str, list[Json]]] = []
    for role, some in groupby(messages, key=lambda m: m["role"]):
        verdict.unless(role in ("user", "assistant"), f"the role {role!r}")
        blocks: list[Json] = []
        for message in some:
            content = message["content"]
            made = [{"type": "text", "text": content}] if isinstance(content, str) else content
            verdict.unless(isinstance(made, list) and made, "a message without content")
            blocks += made
        turns.append((str(role), blocks))
    if not turns:
        return
    compacted = turns[0][1][0]["type"] == "compaction"
    verdict.unless(turns[0][0] == "user" or compacted, "the first message is not the user's")
    ids: list[str] = []
    for n, (role, blocks) in enumerate(turns):
        for block in blocks:
            verdict.unless(block["type"] != "text" or block["text"].strip(), "a text block without words")
        used = [b for b in blocks if b["type"] == "tool_use"]
        given = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        verdict.unless(not used or role == "assistant", "a tool_use of the user")
        verdict.unless(not given or role == "user", "a tool_result of the assistant")
        before = [b["id"] for b in turns[n - 1][1] if b["type"] == "tool_use"] if n else []
        verdict.unless({*given} <= {*before}, f"results {given} of no call in the message before")
        verdict.unless(len({*given}) == len(given), f"two results of one call among {given}")
        lacks = [id for id in before if id not in given]
        results_only = all(b["type"] == "tool_result" for b in blocks)
        if lacks and n == len(turns) - 1 and results_only:
            verdict.due += lacks
        else:
            verdict.unless(not lacks, f"tool_use {lacks} without tool_result in the next message")
        verdict.unless(
            all(b["type"] == "tool_result" for b in blocks[: len(given)]),
            "results that do not stand first in a message",
        )
        served = [b["id"] for b in blocks if b["type"] in ("server_tool_use", "mcp_tool_use")]
        found = [b["tool_use_id"] for b in blocks if b["type"].endswith("_tool_result")]
        verdict.unless({*found} <= {*served}, f"results {found} of no call that the provider made in this turn")
        paused = [id for id in served if id not in found]
        if n == len(turns) - 1:
            verdict.due += paused
        else:
            verdict.unless(not paused, f"calls {paused} of the provider's without a result in their turn")
        for block in used:
            ids.append(block["id"])
            verdict.unless(re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]), f"the id {block['id']!r}")
            verdict.unless(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", block["name"]), f"the tool name {block['name']!r}")
            verdict.unless(isinstance(block["input"], dict), "an input that is no object")
        if role == "assistant":
            ends = blocks[-1]["type"]
            verdict.unless(ends not in ("thinking", "redacted_thinking"), "an answer that ends in thought")
    verdict.unless(len({*ids}) == len(ids), f"two calls of one id among {ids}")
    role, blocks = turns[-1]
    if role == "assistant":
        verdict.due += [b["id"] for b in blocks if b["type"] == "tool_use"]
        text = blocks[-1].get("text", "")
        verdict.unless(text == text.rstrip(), "a last answer that ends in white space")


def claude_code(lines: list[Json]) -> Verdict:
    """Each line has a message of the Messages API."""
    return anthropic([line["message"] for line in lines])


def openai_chat(messages: list[Json]) -> Verdict:
    """Chat Completions: an answer with tool_calls is followed by a tool message for each of them, and by nothing else
    before; there is no tool message without such an answer. Content is null only where there are calls."""
    verdict = Verdict()
    due: list[str] = []
    for message in messages:
        role, content, calls = message["role"], message.get("content"), message.get("tool_calls") or []
        known = ("system", "developer", "user", "assistant", "tool")
        verdict.unless(role in known, f"the role {role!r}")
        if role == "tool":
            id = message["tool_call_id"]
            verdict.unless(id in due, f"a tool message for {id!r}, which no answer before it called")
            due = [d for d in due if d != id]
            verdict.unless(isinstance(content, str) or content, "a result without content")
            continue
        verdict.unless(not due, f"calls {due} without tool messages right behind")
        verdict.unless(content or (role == "assistant" and calls) or isinstance(content, str), f"no content of {role}")
        due = _called(calls, verdict)
    verdict.due = due
    return verdict


def _called(calls: Iterable[Json], verdict: Verdict) -> list[str]:
    ids = [c["id"] for c in calls]
    for call in calls:
        verdict.unless(call["type"] == "function" and isinstance(call["function"]["arguments"], str), f"a call {call}")
        verdict.unless(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"]), f"the name of {call}")
        verdict.unless(0 < len(call["id"]) <= 64, f"an id of {len(call['id'])} characters")
    verdict.unless(len({*ids}) == len(ids), f"two calls of one id among {ids}")
    return ids


def openai_responses(items: list[Json]) -> Verdict:
    """Responses: each call has its output behind it, each output its call before it, both once; reasoning is followed
    by what it led to; no two items have one id. An item that has its id needs the reasoning that led to it: here,
    those of `rs_7` are `fc_7.1`, `msg_7.2` and so on."""
    verdict = Verdict()
    made: list[str] = []
    given: list[str] = []
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        # What the provider compacted is no answer, and an answer may go on behind it.
        behind = next((i for i in items[at + 1 :] if i.get("type") != "compaction"), None)
        if kind == "message":
            verdict.unless(item["role"] in ("user", "assistant", "system", "developer"), f"the role {item['role']!r}")
            content = item["content"]
            verdict.unless(isinstance(content, str) or content, "a message without content")
            side = "output_" if item["role"] == "assistant" else "input_"
            for part in content if isinstance(content, list) else ():
                verdict.unless(part["type"].startswith(side) or part["type"] == "refusal", f"{part} of {item['role']}")
        elif kind == "function_call":
            verdict.unless(0 < len(item["call_id"]) <= 64, f"a call_id of {len(item['call_id'])} characters")
            verdict.unless(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["name"]), f"the name {item['name']!r}")
            verdict.unless(isinstance(item["arguments"], str), "arguments that are no string")
            made.append(item["call_id"])
        elif kind == "compaction":
            verdict.unless(isinstance(item["encrypted_content"], str), "a compaction item that was opened")
        elif kind == "mcp_approval_request":
            made.append(item["id"])
        elif kind in ("function_call_output", "mcp_approval_response"):
            id = item.get("call_id") or item["approval_request_id"]
            verdict.unless(id in made, f"an output of {id!r}, which no call before it made")
            given.append(id)
        if led := re.fullmatch(r"(?:fc|msg|ws)_(\w+)\.\d+", str(item.get("id"))):
            there = [i.get("id") for i in items[:at]]
            verdict.unless(f"rs_{led[1]}" in there, f"{item['id']} without its required reasoning item")
        if kind == "reasoning":
            goes_on = behind is not None and (
                str(behind.get("type")).endswith(("reasoning", "_call", "mcp_approval_request")) or _answers(behind)
            )
            verdict.unless(goes_on, "reasoning without what it led to")
    for ids in (made, given, [i["id"] for i in items if i.get("id")]):
        verdict.unless(len({*ids}) == len(ids), f"an id twice among {ids}")
    open = [id for id in made if id not in given]
    asked_since = [i for i in items[_last(items, open) + 1 :] if i.get("role") in ("user", "system", "developer")]
    verdict.unless(not open or not asked_since, f"calls {open} without an output")
    verdict.due = open
    return verdict


def _answers(item: Json) -> bool:
    return bool(item.get("type", "message") == "message" and item.get("role") == "assistant")


def _last(items: list[Json], ids: list[str]) -> int:
    return max((n for n, i in enumerate(items) if i.get("call_id", i.get("id")) in ids), default=-1)


def gemini(contents: list[Json]) -> Verdict:
    """Contents: the first is the user's, none is empty. A turn with function calls comes right behind a turn of the
    user or one with function responses, and is followed by one with as many responses as it has calls."""
    verdict = Verdict()
    due: list[tuple[str, str]] = []
    before: str | None = None
    for n, content in enumerate(contents):
        role, parts = content.get("role", "user"), content["parts"]
        verdict.unless(role in ("user", "model", "function"), f"the role {role!r}")
        verdict.unless(parts, "a content without parts")
        verdict.unless(n or role != "model", "the first content is the model's")
        for part in parts:
            verdict.unless(part.get("text", "words").strip(), "a text without words")
        calls = [(c["name"], str(c.get("id"))) for p in parts if (c := p.get("function_call"))]
        given = [(r["name"], str(r.get("id"))) for p in parts if (r := p.get("function_response"))]
        if due:
            ends = n == len(contents) - 1 and given and {*given} < {*due}
            verdict.unless(ends or sorted(given) == sorted(due), f"calls {due}, and behind them responses {given}")
            due = [d for d in due if d not in given]
        else:
            verdict.unless(not given, f"responses {given} that follow no call")
        for name, _ in calls:
            verdict.unless(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", name), f"the function name {name!r}")
        if calls:
            verdict.unless(
                role == "model" and before in ("user", "function"), "a function call right behind the model's"
            )
            due = calls
        before = role
    verdict.due = [id for _, id in due]
    return verdict


def google_adk(events: list[Json]) -> Verdict:
    """Events become contents as the kit makes them: without those that have none, with responses in a row as one."""
    contents: list[Json] = []
    for event in events:
        content = event.get("content") or {}
        if not content.get("parts"):
            continue
        responds = all("function_response" in p for p in content["parts"])
        if responds and contents and all("function_response" in p for p in contents[-1]["parts"]):
            contents[-1] = {"role": "user", "parts": contents[-1]["parts"] + content["parts"]}
        else:
            contents.append(content)
    return gemini(contents)


def pydantic_ai(messages: list[Json]) -> Verdict:
    """A request comes first. Each call of a response is answered in the requests behind it, before the next response
    and before the next prompt; and nothing else is answered."""
    verdict = Verdict()
    due: list[str] = []
    ids: list[str] = []
    for n, (kind, some) in enumerate(groupby(messages, key=lambda m: m["kind"])):
        parts = [p for m in some for p in m["parts"]]
        verdict.unless(parts, f"a {kind} without parts")
        stands_for = bool(parts) and parts[0]["part_kind"] == "compaction"  # for a request, and all that came before
        verdict.unless(n or kind == "request" or stands_for, "the first message is a response")
        if kind == "response":
            verdict.unless(not due, f"calls {due} without a return")
            due = [p["tool_call_id"] for p in parts if p["part_kind"] == "tool-call"]
            ids += due
            for part in parts:
                name = part.get("tool_name", "name")
                verdict.unless(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name), f"the tool name {name!r}")
            continue
        for part in parts:
            if part["part_kind"] == "tool-return":
                verdict.unless(part["tool_call_id"] in due, f"a return of {part['tool_call_id']!r}, which is no call")
                due = [d for d in due if d != part["tool_call_id"]]
            else:
                verdict.unless(not due, f"calls {due} without a return before the next prompt")
    verdict.unless(len({*ids}) == len(ids), f"two calls of one id among {ids}")
    verdict.due = due
    return verdict


def langchain(messages: list[Json]) -> Verdict:
    """As for chat, which most of its models speak; what is first, and ids, as the strictest of them demand."""
    kinds = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
    told: list[Json] = []
    verdict = Verdict()
    for message in messages:
        data = message["data"]
        made: dict[str, Json] = {"role": kinds.get(message["type"], message["type"]), "content": data["content"]}
        if message["type"] == "tool":
            made["tool_call_id"] = data["tool_call_id"]
        for call in data.get("tool_calls", ()):
            verdict.unless(re.fullmatch(r"[a-zA-Z0-9_-]+", call["id"]), f"the id {call['id']!r}")
            function = {"name": call["name"], "arguments": "{}"}
            made.setdefault("tool_calls", []).append({"id": call["id"], "type": "function", "function": function})
        told.append(made)
    said = [m for m in told if m["role"] != "system"]
    verdict.unless(not said or said[0]["role"] == "user", "the first message is not the user's")
    chat = openai_chat(told)
    return Verdict(verdict.wrong + chat.wrong, chat.due)


def acp(updates: list[Json]) -> Verdict:
    """What is told of a call comes behind it, and it ends once."""
    verdict = Verdict()
    open: list[str] = []
    for update in updates:
        kind = update.get("sessionUpdate")
        if kind == "tool_call":
            verdict.unless(update["toolCallId"] not in open, f"the call {update['toolCallId']!r} again")
            open.append(update["toolCallId"])
        if kind == "tool_call_update":
            verdict.unless(update["toolCallId"] in open, f"news of {update['toolCallId']!r}, which is no call")
        if kind in ("tool_call", "tool_call_update") and update.get("status") in ("completed", "failed"):
            open = [id for id in open if id != update["toolCallId"]]
    verdict.due = open
    return verdict


RULES: dict[str, Callable[[list[Json]], Verdict]] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "google-adk": google_adk,
    "pydantic-ai": pydantic_ai,
    "langchain": langchain,
    "claude-code": claude_code,
    "acp": acp,
}
