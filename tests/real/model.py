"""The model behind the real agents: what it answers stands in the prompt, as directives at its end.

    hello [[say:hi]]                     answers "hi"
    two [[words:300]]                    answers with 300 words
    big [[say:big]] [[usage:29500]]      says that so many tokens went in
    run [[tool:bash {"command": "ls"}]]  wants a tool called; when it was, says so
    go [[tool:read {…}]] [[times:9]]     wants it called so often, one after the other
    wait [[hold]]                        says nothing until `release`

Everything else, above all the question for a summary, is answered with the same few words.
"""

from __future__ import annotations

import json
import re
import threading
from types import TracebackType

from onefold.model import Json
from tests.support.model_server import Asked, Call, ModelServer, Reply

_DIRECTIVE = re.compile(r"\[\[(\w+)(?::(.*?))?\]\]", re.DOTALL)
_AT_THE_END = re.compile(r"(?:\[\[\w+(?::(?:(?!\[\[).)*?)?\]\]\s*)+$", re.DOTALL)
_SUMMARY = "All of this was said and done, and nothing is open."
_PIECE = 20
_LONGEST = 60.0


class DirectedModel(ModelServer):
    """Answers as it is told by the prompts."""

    def __init__(self, summary: str = _SUMMARY) -> None:
        super().__init__(otherwise=self._directed)
        self._summary = summary
        self.summaries = 0
        """How many questions came without a directive: those for summaries, if the prompts all have one."""
        self._held = threading.Event()
        self._holds_summaries = False
        self.holding = threading.Event()
        """Set once an answer is held back."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        super().__exit__(kind, error, trace)

    def release(self) -> None:
        self._holds_summaries = False
        self._held.set()

    def hold_summaries(self) -> None:
        """From now on a summary is not given until `release`: whoever asks for one is in the middle of a compaction."""
        self._held.clear()
        self.holding.clear()
        self._holds_summaries = True

    def _directed(self, asked: Asked) -> Reply:
        told = directives(asked)
        self.summaries += not told
        if "hold" in told or (self._holds_summaries and not told):
            self.holding.set()
            self._held.wait(_LONGEST)
        given = int(told.get("usage") or len(asked.text) // 4)
        if "tool" in told:
            name, _, arguments = told["tool"].partition(" ")
            call = Call(name, json.loads(arguments or "{}"), f"call_{len(self.requests)}")
            return Reply(usage=(given, 10), calls=(call,))
        pieces = _pieces(told) or (self._summary,)
        return Reply(pieces, usage=(given, sum(len(p) for p in pieces) // 4 + 1))


def directives(asked: Asked) -> dict[str, str]:
    """What the newest prompt says the answer shall be; that it is done, once its tools were called so often."""
    messages = [m for m in asked.messages if m.get("role") not in ("system", "developer")]
    results = 0
    while messages and not _prompts(messages[-1]):
        results += _is_result(messages.pop())
    told = _told(messages[-1]) if messages else {}
    if results >= int(told.get("times", "1")):
        return {"say": "Done."}
    return told


def _prompts(message: Json) -> bool:
    return message.get("role") == "user" and bool(_texts(message)) and not _is_result(message)


def _told(message: Json) -> dict[str, str]:
    for block in reversed(_texts(message)):
        found = _AT_THE_END.search(block)
        if found is not None:
            return {name: value or "" for name, value in _DIRECTIVE.findall(found.group())}
    return {}


def _is_result(message: Json) -> bool:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return (
        message.get("role") == "tool"
        or message.get("type") == "function_call_output"
        or any(b.get("type") == "tool_result" for b in blocks)
    )


def _texts(message: Json) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    return [b["text"] for b in content or [] if isinstance(b.get("text"), str)]


def _pieces(told: dict[str, str]) -> tuple[str, ...]:
    if "words" in told:
        words = [f"word{n}" for n in range(int(told["words"]))]
        return tuple(" ".join(words[at : at + _PIECE]) + " " for at in range(0, len(words), _PIECE))
    return (told["say"],) if "say" in told else ()
