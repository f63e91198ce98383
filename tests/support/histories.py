"""Generated histories for the rules of every provider."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

from onefold import Context, Session, Store
from onefold.journal import undo
from onefold.messages import codec
from onefold.messages.tool_groups import legal_cuts
from onefold.model import Claim, Json
from tests.conftest import who
from tests.support.provider_rules import RULES

EXAMPLES = max(250, int(os.environ.get("ONEFOLD_STEPS", "0")) // 12)
"""In a long run, more."""

LOG = "a line of the log\n" * 20
"""What tools give: long enough to be shown as one line."""

# ---------------------------------------------------------------------- how each format says what agents say

Made = dict[str, Callable[..., list[Json]]]


def _chat_call(text: str, ids: list[str]) -> list[Json]:
    calls = [{"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}} for id in ids]
    return [{"role": "assistant", "content": text or None, "tool_calls": calls}]


def _anthropic_call(text: str, ids: list[str]) -> list[Json]:
    uses = [{"type": "tool_use", "id": id, "name": "read", "input": {}} for id in ids]
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    return [{"role": "assistant", "content": [thought, *([{"type": "text", "text": text}] if text else []), *uses]}]


def _anthropic_results(ids: list[str]) -> list[Json]:
    return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": LOG}]} for id in ids]


def _responses_call(text: str, ids: list[str]) -> list[Json]:
    said = (
        [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}] if text else []
    )
    calls = [{"type": "function_call", "call_id": id, "name": "read", "arguments": "{}"} for id in ids]
    return [{"type": "reasoning", "summary": []}, *said, *calls]


def _signed(answer: list[Json], name: str) -> list[Json]:
    """With the ids that the provider gives: by them it knows which reasoning led to what."""
    words = {"reasoning": "rs", "function_call": "fc", "web_search_call": "ws"}
    kinds = [words.get(item.get("type", ""), "msg") for item in answer]
    return [
        {**i, "id": f"{k}_{name}" + (f".{n}" if k != "rs" else "")}
        for n, (k, i) in enumerate(zip(kinds, answer, strict=True))
    ]


def _acp(kind: str, **more: Json) -> Json:
    return {"sessionUpdate": kind, **more}


def _acp_call(text: str, ids: list[str]) -> list[Json]:
    chunk = [_acp("agent_message_chunk", content={"type": "text", "text": text})] if text else []
    return [*chunk, *(_acp("tool_call", toolCallId=id, title="Read the file", status="pending") for id in ids)]


def _content(role: str, *parts: Json) -> Json:
    return {"role": role, "parts": [*parts]}


def _gemini_call(text: str, ids: list[str]) -> list[Json]:
    calls = [{"function_call": {"id": id, "name": "read", "args": {}}} for id in ids]
    return [_content("model", *([{"text": text}] if text else []), *calls)]


def _gemini_results(ids: list[str]) -> list[Json]:
    return [_content("user", {"function_response": {"id": id, "name": "read", "response": {"n": LOG}}}) for id in ids]


def _events(author: str, contents: list[Json]) -> list[Json]:
    return [{"author": author, "invocation_id": "i", "content": c} for c in contents]


def _pydantic(kind: str, *parts: Json) -> list[Json]:
    return [{"kind": kind, "parts": [*parts]}] if parts else []


def _pydantic_call(text: str, ids: list[str]) -> list[Json]:
    spoken = [{"part_kind": "text", "content": text}] if text else []
    calls = [{"part_kind": "tool-call", "tool_name": "read", "args": "{}", "tool_call_id": id} for id in ids]
    return _pydantic("response", *spoken, *calls)


def _langchain(kind: str, **data: Json) -> Json:
    return {"type": kind, "data": {"type": kind, **data}}


def _langchain_call(text: str, ids: list[str]) -> list[Json]:
    calls = [{"name": "read", "args": {}, "id": id, "type": "tool_call"} for id in ids]
    return [_langchain("ai", content=text, tool_calls=calls)]


FORMATS: dict[str, Made] = {
    "openai-chat": {
        "say": lambda role, text: [{"role": role, "content": text}],
        "call": _chat_call,
        "results": lambda ids: [{"role": "tool", "tool_call_id": id, "content": LOG} for id in ids],
    },
    "openai-responses": {
        "say": lambda role, text: [{"role": role, "content": text}],
        "call": _responses_call,
        "results": lambda ids: [{"type": "function_call_output", "call_id": id, "output": LOG} for id in ids],
    },
    "anthropic": {
        "say": lambda role, text: [{"role": "system" if role == "developer" else role, "content": text}],
        "call": _anthropic_call,
        "results": _anthropic_results,
    },
    "acp": {
        "say": lambda role, text: [
            _acp(f"{'agent' if role == 'assistant' else 'user'}_message_chunk", content={"type": "text", "text": text})
        ],
        "call": _acp_call,
        "results": lambda ids: [
            _acp("tool_call_update", toolCallId=id, status="completed", rawOutput={"n": LOG}) for id in ids
        ],
    },
    "gemini": {
        "say": lambda role, text: [_content("model" if role == "assistant" else "user", {"text": text})],
        "call": _gemini_call,
        "results": _gemini_results,
    },
    "google-adk": {
        "say": lambda role, text: _events(
            "agent" if role == "assistant" else "user",
            [_content("model" if role == "assistant" else "user", {"text": text})],
        ),
        "call": lambda text, ids: _events("agent", _gemini_call(text, ids)),
        "results": lambda ids: _events("agent", _gemini_results(ids)),
    },
    "pydantic-ai": {
        "say": lambda role, text: (
            _pydantic("response", {"part_kind": "text", "content": text})
            if role == "assistant"
            else _pydantic(
                "request", {"part_kind": "user-prompt" if role == "user" else "system-prompt", "content": text}
            )
        ),
        "call": _pydantic_call,
        "results": lambda ids: _pydantic(
            "request",
            *({"part_kind": "tool-return", "tool_name": "read", "tool_call_id": id, "content": LOG} for id in ids),
        ),
    },
    "langchain": {
        "say": lambda role, text: [
            _langchain({"user": "human", "assistant": "ai"}.get(role, "system"), content=text),
        ],
        "call": _langchain_call,
        "results": lambda ids: [_langchain("tool", content=LOG, tool_call_id=id) for id in ids],
    },
}
JSON: Made = {"say": lambda role, text: [{"role": role, "content": text}]}

IDS = {
    "anthropic": ["a_1", "a-1", "c0", "x" * 60],
    "pydantic-ai": ["a_1", "a-1", "c0", "x" * 60],
    "langchain": ["a_1", "a-1", "c0", "x" * 60],
    "openai-chat": ["a:1", "a/1", "a_1", "c0", "x" * 60],
    "openai-responses": ["a:1", "a/1", "a_1", "c0", "x" * 60],
}
ANY_IDS = ["a:1", "a/1", "a_1", "c0", "", "x" * 90, "ä\ud800"]

OWN_IDS = ("pydantic-ai", "langchain", "gemini", "google-adk", "acp")
"""Frameworks give each call an id of its own; so does an ACP agent. Chat models and their servers do not always."""

TEXTS = ["please", "I look.", "it works \n", "", " ", "\n\t"]

# ---------------------------------------------------------------------- histories


class Lives:
    """A session, and what may happen to it, chosen by chance."""

    def __init__(self, store: Store, data: st.DataObject, formats: list[str]) -> None:
        self.store = store
        self.data = data
        self.formats = formats
        self.session: Session = store.session("s")
        self.open: dict[str, list[str]] = {}
        """Calls that wait for a result, by format."""
        self.used = 0
        self.paused: Json = None
        """The result of a call that the provider made, where it paused before it had one."""
        self.signed = 0
        self.forks = 0

    def pick(self, some: Any) -> Any:
        return self.data.draw(st.sampled_from(list(some)))

    def text(self) -> str:
        return str(self.pick(TEXTS))

    def number(self) -> int:
        said = [r.number for r in self.session.read() if r.kind == "message"]
        return int(self.pick(said)) if said else 1

    def say(self) -> None:
        format = self.pick([*self.formats, *(["json"] if len(self.formats) > 1 else [])])
        role = self.pick(["user", "user", "assistant", "assistant", "system", "developer"])
        made = FORMATS.get(format, JSON)
        self.session.append(made["say"](role, self.text()), format=format)

    def called(self, format: str) -> list[str]:
        wanted = self.pick([1, 1, 2, 3])
        if format in OWN_IDS:
            self.used += wanted
            odd = self.pick(["", ":", "/", " "]) if format in ("gemini", "google-adk", "acp") else "_"
            return [f"{self.used - n}{odd}" for n in range(wanted)]
        return list(self.data.draw(st.permutations(IDS.get(format, ANY_IDS))))[:wanted]

    def call(self) -> None:
        format = self.pick(self.formats)
        ids = self.called(format)
        made = FORMATS[format]["call"](self.pick(["", "I look.", " "]).strip(), ids)
        if format == "openai-responses" and self.pick([True, False]):
            self.signed += 1
            made = _signed([made[0], *self.pick([[], [{"type": "web_search_call"}]]), *made[1:]], f"{self.signed}")
        self.session.append(made, format=format)
        self.open[format] = ids

    def answer(self) -> None:
        """Some of what waits, or all, in any order; also what does not wait any more."""
        if self.open:
            format = self.pick(sorted(self.open))
            ids = list(self.data.draw(st.permutations(self.open[format])))
            some = ids[: self.pick([1, 1, 9])]
            if some:
                self.session.append(FORMATS[format]["results"](some), format=format)
            if self.pick([True, True, False]):
                self.open[format] = ids[len(some) :]

    def work(self) -> None:
        """Calls, all their results, and words."""
        self.call()
        format = next(reversed(self.open))
        self.session.append(FORMATS[format]["results"](self.open.pop(format)), format=format)

    def show(self) -> None:
        """A picture, a search that the provider ran, news of a call, anything else."""
        blocks = [
            {"type": "server_tool_use", "id": f"srv{self.used}", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": f"srv{self.used}", "content": []},
            {"type": "text", "text": "found"},
        ]
        mcp = {"type": "mcp_call", "id": f"mcp{self.used}", "name": "f", "arguments": "{}", "output": "log"}
        asked = {"type": "mcp_approval_request", "id": f"ask{self.used}", "name": "f", "arguments": "{}"}
        given = {"type": "mcp_approval_response", "approval_request_id": f"ask{self.used}", "approve": True}
        code = [{"executable_code": {"code": "1"}}, {"code_execution_result": {"outcome": "OUTCOME_OK", "output": "1"}}]
        builtin = {"tool_name": "web", "tool_call_id": f"b{self.used}"}
        self.used += 1
        paused = {"role": "assistant", "content": blocks[:1]}
        if self.paused is not None:
            paused = {"role": "assistant", "content": [self.paused, blocks[2]]}
        told: dict[str, list[Json]] = {
            "anthropic": [
                paused,
                {"role": "assistant", "content": blocks},
                {"role": "assistant", "content": blocks[:2]},
                {"role": "user", "content": [{"type": "search_result", "source": "s", "title": "t", "content": []}]},
                {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}]},
            ],
            "acp": [
                _acp("plan", entries=[]),
                _acp("agent_thought_chunk", content={"type": "text", "text": "hm"}),
                *(_acp("tool_call_update", toolCallId=id, status="in_progress") for id in self.open.get("acp", ())),
            ],
            "openai-responses": [
                {"type": "web_search_call", "id": f"ws{self.used}", "status": "completed"},
                mcp,
                {"type": "image_generation_call", "id": f"ig{self.used}", "result": "iVBORw0KGgo" + "A" * 300},
                {"type": "compaction", "encrypted_content": "x"},
                asked,
                [asked, given],
                {"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]},
            ],
            "openai-chat": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
            ],
            "gemini": [_content("model", *code), _content("model", code[0]), _content("model", code[1])],
            "google-adk": [
                {"author": "agent", "invocation_id": "i", "actions": {"state_delta": {"a": 1}}},
                *_events("agent", [_content("model", *code), _content("model", code[1])]),
            ],
            "pydantic-ai": _pydantic(
                "response",
                {"part_kind": "builtin-tool-call", **builtin},
                {"part_kind": "builtin-tool-return", "content": {"n": 1}, **builtin},
            ),
            "langchain": [_langchain("ai", content=[mcp, {"type": "text", "text": "found"}])],
        }
        format = self.pick([f for f in told if f in self.formats] or ["json"])
        body = self.pick(told.get(format, [["any"]]))
        self.session.append(body, format=format)
        if body is paused:
            self.paused = blocks[1] if self.paused is None else None

    def think(self) -> None:
        """What a model thinks, and no more than that: the rest was taken back, or never came."""
        if "openai-responses" in self.formats:
            self.session.append({"type": "reasoning", "summary": [], "encrypted_content": "x"})
        elif "anthropic" in self.formats:
            self.session.append({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]})

    def in_turn(self) -> None:
        turn = self.session.turn(wait=False)
        format = self.pick(self.formats)
        turn.append(FORMATS[format]["say"]("user", "please"), format=format)
        ids = self.called(format)
        turn.append(FORMATS[format]["call"]("", ids), format=format)
        if self.pick([True, False]):
            turn.append(FORMATS[format]["results"](ids[:1]), format=format)
        turn.end(self.pick(["settled", "failed", "cancelled"]))

    def pin(self) -> None:
        self.session.pin(self.number())

    def unpin(self) -> None:
        self.session.unpin(self.number())

    def note(self) -> None:
        self.session.note("rule", "do not push", key=self.pick([None, "k"]))

    def mask(self) -> None:
        """Results as one line each, any of them."""
        given = [r.number for r in self.session.read() if r.header is not None and r.header.result_ids]
        self.session.mask(*self.data.draw(st.lists(st.sampled_from(given), min_size=1, unique=True)) if given else [])

    def prompt(self) -> None:
        self.session.append({"role": self.pick(["system", "developer"]), "content": "You are new."}, slot="prompt")

    def undo(self) -> None:
        self.session.undo()

    def redo(self) -> None:
        self.session.redo()

    def rewind(self) -> None:
        self.session.rewind(self.number())

    def unfold(self) -> None:
        self.session.unfold()

    def refold(self) -> None:
        self.session.refold()

    def pop(self) -> None:
        undo.pop(self.store.journal, self.session.id)

    def erase(self) -> None:
        self.session.erase(self.number())

    def fork(self) -> None:
        self.forks += 1
        self.session = self.session.fork(self.pick(["branch", "subagent"]), self.number(), id=f"f{self.forks}")

    def compact(self) -> None:
        """At any legal cut, keeping any messages by name."""
        journal = self.store.journal
        journal.request(self.session.id)
        claim = journal.claim(self.session.id, who())
        assert isinstance(claim, Claim)
        state = self.session.state
        hidden = self.session.segments()[-1].hidden
        said = [
            r
            for r in self.session.read(state.cut, claim.fence)
            if r.kind == "message" and not any(a <= r.number <= b for a, b in hidden)
        ]
        cuts = [n for n in legal_cuts([(r.number, r.header) for r in said if r.header]) if n > state.cut]
        cut = self.pick([*cuts, claim.fence]) if _closed(self.session) else self.pick(cuts) if cuts else None
        if cut is None:
            journal.fail(claim, "no cut", None)
            return
        before = [r.number for r in said if r.number < cut]
        kept = self.data.draw(st.lists(st.sampled_from(before), max_size=3, unique=True)) if before else []
        journal.commit(claim, "They looked for the fault.", cut, kept=tuple(sorted(kept)))
        self.session.context()


def _closed(session: Session) -> bool:
    return not any(n == 0 for n in session.context().numbers) and not RULES["acp"](session.context().to("acp")).due


STEPS = [
    *["say"] * 6,
    *["call"] * 2,
    *["answer"] * 3,
    *["work"] * 3,
    *["pin"] * 2,
    *["compact"] * 2,
    *(
        "show",
        "show",
        "think",
        "in_turn",
        "unpin",
        "note",
        "mask",
        "mask",
        "prompt",
        "undo",
        "redo",
        "rewind",
        "unfold",
        "refold",
        "pop",
        "erase",
        "fork",
    ),
]


def check(context: Context) -> None:
    for format, rule in RULES.items():
        told = context.to(format)
        assert rule(told).wrong == [], f"in {format}: {told}"
        for message in told:
            codec(format).header(message)
    ours = {context.formats[at] for at, number in enumerate(context.numbers) if number not in (0, context.segment)}
    if len(ours) == 1 and (format := ours.pop()) in ("openai-chat", "openai-responses"):
        # a summary, notes and the like are plain words, which these take as they are
        wrong = RULES[format](context.messages).wrong
        assert [w for w in wrong if "twice" not in w] == [], "in order, though an id that came twice stays as given"
    due = {format: len(rule(context.to(format)).due) for format, rule in RULES.items()}
    assert len({*due.values()}) == 1, f"what is to come next is the same in every format: {due}"
