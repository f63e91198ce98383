"""Ids and names of calls, as a provider takes them: in one context no two calls have the same id."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from onefold.messages.parts import ParsedMessage, Part, ToolCall, ToolResult

Shape: TypeAlias = Callable[[str], str]
"""What an id looks like where a provider asks for more than a string. Two may look alike."""

_LONGEST_NAME = 64


def any_id(id: str) -> str:
    return id


def short_id(longest: int) -> Shape:
    """Of so many characters at most."""

    def shaped(id: str) -> str:
        return id if 0 < len(id) <= longest else _cut(id or "call", longest)

    return shaped


def word_id(id: str) -> str:
    """Of letters, digits, `_` and `-`, as the strictest providers ask for."""
    return _cut(re.sub(r"[^a-zA-Z0-9_-]", "_", id) or "call", 64)


def tool_name(name: str) -> str:
    """The name of a tool as every provider takes it: an agent's own may be a sentence."""
    word = re.sub(r"[^a-zA-Z0-9_-]+", "_", name)[:_LONGEST_NAME] or "tool"
    return word if word[0].isalpha() or word[0] == "_" else f"_{word[: _LONGEST_NAME - 1]}"


def _cut(id: str, longest: int) -> str:
    return (
        id
        if len(id) <= longest
        else f"{id[: longest - 9]}_{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:8]}"
    )


class CallIds:
    """The ids of a context's calls as they are told, in order: what comes later changes none that was told before."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._names: dict[str, str] = {}
        """Of the tools, by the ids that were told."""
        self._waiting: dict[str, list[str]] = {}
        """By the id that was given: calls that have no result yet."""

    def of(self, said: Iterable[ParsedMessage]) -> Iterator[ParsedMessage]:
        """The same with ids of this provider, and one result for each call."""
        for one in said:
            if not any(isinstance(p, ToolCall | ToolResult) for p in one.parts):
                yield one
                continue
            parts: list[Part] = []
            for part in one.parts:
                if isinstance(part, ToolCall):
                    parts.append(replace(part, id=self.call(part, self._shape)))
                elif not isinstance(part, ToolResult):
                    parts.append(part)
                elif (id := self.result(part.id)) is not None:
                    parts.append(replace(part, id=id, name=self._names.get(id, "")))
            if parts:
                yield ParsedMessage(one.role, tuple(parts))

    def given(self, said: ParsedMessage, *, stays: bool) -> tuple[dict[str, str], dict[str, str]]:
        """For a message of the provider's own: which of its ids are told otherwise, of calls and of results. None is,
        if it `stays` as it is."""
        calls: dict[str, str] = {}
        results: dict[str, str] = {}
        for part in said.parts:
            if isinstance(part, ToolCall) and stays:
                self._call(part, part.id)
            elif isinstance(part, ToolCall):
                calls[part.id] = self.call(part, any_id)
            elif isinstance(part, ToolResult):
                results[part.id] = self.result(part.id) or part.id
        return {a: b for a, b in calls.items() if a != b}, {a: b for a, b in results.items() if a != b}

    def call(self, call: ToolCall, shape: Shape) -> str:
        """The id that a call is told by."""
        told = first = shape(call.id)
        again = 1
        while told in self._names:
            again += 1
            end = f"_{again}"
            told = f"{first[: 64 - len(end)]}{end}"
        self._call(call, told)
        return told

    def _call(self, call: ToolCall, told: str) -> None:
        self._names[told] = call.name
        self._waiting.setdefault(call.id, []).append(told)

    def result(self, id: str) -> str | None:
        """The id of the call that it answers; None for a second result of the same call."""
        if id not in self._waiting:
            return self._shape(id)
        waiting = self._waiting[id]
        return waiting.pop(0) if waiting else None
