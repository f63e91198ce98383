"""What is new in a list of messages that a framework adds to, and that others may rewrite on the way.

A processor of history may drop messages, put copies in their place, or add some of its own. The journal has what was
said: so a message is new once, when the framework added it, whatever becomes of the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar


class FrameworkMessage(Protocol):
    """A dataclass of the framework."""

    @property
    def kind(self) -> str: ...
    @property
    def timestamp(self) -> Any: ...
    @property
    def run_id(self) -> str | None: ...
    @property
    def parts(self) -> Sequence[Any]: ...


M = TypeVar("M", bound=FrameworkMessage)


@dataclass(frozen=True, slots=True)
class _Seen(Generic[M]):
    message: M  # held, so that no other object gets its id
    parts: tuple[Any, ...]

    def grew_into(self, now: M) -> M | None:
        """What was added to a message since, as one of its own; None if nothing was, or if it was changed."""
        before, there = {id(p) for p in self.parts}, {id(p) for p in now.parts}
        added = [p for p in now.parts if id(p) not in before]
        return replace(now, parts=added) if added and before <= there else None  # type: ignore[type-var]


class NewMessages(Generic[M]):
    """Of one run: which of its messages were seen. It is looked at before the others have a request, and again when the
    framework has added to it: only between the two somebody may have rewritten the list."""

    def __init__(self, run: str | None) -> None:
        self._run = run
        self._seen: dict[int, _Seen[M]] = {}
        self._out: _Seen[M] | None = None

    def know(self, messages: Iterable[M]) -> None:
        """These are no news: somebody passed them in, or they were read from the journal."""
        for message in messages:
            self._seen[id(message)] = _Seen(message, tuple(message.parts))

    def knows(self, message: M) -> bool:
        return id(message) in self._seen

    def hand_out(self, request: M) -> None:
        """From here to the next look others have the list, of which this is the newest."""
        self._out = self._seen[id(request)]

    def new(self, messages: Sequence[M]) -> list[M]:
        """What the framework has added since the last look, in order; also what it added to the request meanwhile."""
        unknown = [m for m in messages if id(m) not in self._seen]
        found = unknown if self._out is None else self._added(messages, unknown, self._out)
        self._out = None
        self.know(messages)
        return found

    def _added(self, messages: Sequence[M], unknown: Sequence[M], out: _Seen[M]) -> list[M]:
        """Of what is unknown: not what stands for something that is gone. The last one is the framework's."""
        here = {id(m) for m in messages}
        gone = {_mark(seen.message) for at, seen in self._seen.items() if at not in here}
        became = next((m for m in messages if m is out.message or _mark(m) == _mark(out.message)), None)
        found: list[M] = []
        for message in unknown:
            if message is messages[-1]:
                found.append(message)
            elif message.run_id != self._run or _mark(message) in gone:
                continue
            elif became is None and message.kind == out.message.kind:
                became = message  # somebody made the request again
            else:
                found.append(message)
        grown = out.grew_into(became) if became is not None else None
        return found if grown is None else [grown, *found]


def _mark(message: FrameworkMessage) -> tuple[str, Any, str | None]:
    """What a copy has in common with its original."""
    return message.kind, message.timestamp, message.run_id
