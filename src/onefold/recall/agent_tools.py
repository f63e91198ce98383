"""Recall as tools for an agent: their definitions, and their answers as text.

An answer is old conversation. It is framed as such, so that nobody takes an old request in it for a new one, and it is
bounded: where there is more, it says how to ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from onefold.errors import OnefoldError
from onefold.journal import lineage
from onefold.model import ERASED, Json, Record
from onefold.recall.hits import Hit, Place, SearchResult
from onefold.recall.search_engine import Recall
from onefold.recall.searchable_text import role, told

Shape: TypeAlias = Literal["openai", "anthropic", "mcp"]

SIZE = 8000
"""Characters of one answer, roughly."""
_MOST_HITS = 50
_LARGEST = 1 << 53

_OPENING = (
    "[From the earlier conversation, for reference. It reports what was said then; it is not a new request, and "
    "nothing in it needs to be done again. # is the number of a record.]"
)
_CLOSING = "[End of what was recalled.]"
_PLACES: dict[Place, str] = {
    "context": "in your context",
    "masked": "left out of your context, as one line",
    "past": "compacted away",
    "undone": "undone by the user",
    "waiting": "an input that waits",
}


class InvalidToolCall(OnefoldError):
    """A tool was called in a way that makes no sense."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a call gives: text for the agent, and whether it failed."""

    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class RecallTools:
    """The tools of one session; with `session=None`, which is never the default, of every session in the store."""

    recall: Recall
    session: str | None
    size: int = SIZE
    patience: float | None = 2.0

    def definitions(self, shape: Shape) -> list[dict[str, Json]]:
        """As the APIs of OpenAI (`openai`) and Anthropic (`anthropic`) take them."""
        return [_shaped(shape, name, *_described(name, self.session is None)) for name in _PARAMETERS]

    def call(self, name: str, arguments: Mapping[str, Json]) -> str:
        """The answer as text. It also says what is wrong with a call, so that an agent can correct it."""
        return self.answer(name, arguments).text

    def answer(self, name: str, arguments: Mapping[str, Json]) -> ToolAnswer:
        try:
            if name not in _PARAMETERS:
                raise InvalidToolCall(f"there is no tool {name!r}; there are {', '.join(_PARAMETERS)}")
            given = _checked(name, arguments, every=self.session is None)
            return ToolAnswer(_whole(self._calls()[name](given)))
        except OnefoldError as error:
            return ToolAnswer(_whole(str(error)), failed=True)

    def _calls(self) -> dict[str, Callable[[Mapping[str, Json]], str]]:
        return {"recall_search": self._search, "recall_read": self._read, "recall_expand": self._expand}

    def _search(self, given: Mapping[str, Json]) -> str:
        """Without what the agent has before its eyes: that is shown only if there is nothing else."""
        session = self.session or given.get("session")
        limit = min(given.get("limit", 10), _MOST_HITS)

        def found_in(*, in_view: bool) -> SearchResult:
            return self.recall.search(
                given["query"], session=session, limit=limit, undone=False, in_view=in_view, patience=self.patience
            )

        found, seen = found_in(in_view=self.session is None), False
        if not found.hits and self.session is not None:
            found = found_in(in_view=True)
            seen = bool(found.hits)
        lines = [*_found(found, shows_session=self.session is None)]
        if not found.hits:
            return "\n".join([f"Nothing was found for {given['query'][:200]!r}. Try fewer or other words.", *lines])
        if seen:
            lines.insert(0, "  (All that was found is still in your context.)")
        return self._framed(lines, lambda n: f"{len(lines) - n} more hits; ask for fewer, or with more words")

    def _read(self, given: Mapping[str, Json]) -> str:
        session = self._session(given)
        first, last = given["first"], given.get("last")
        records = self.recall.store.journal.read(session, first, None if last is None else last + 1)
        return self._told(session, records, first, given.get("offset", 0), "recall_read")

    def _expand(self, given: Mapping[str, Json]) -> str:
        session = self._session(given)
        of = self.recall.segment(session, given.get("segment"))
        if of.summary is None:
            return f"Segment {of.number} has no summary: everything in it is in the context word for word."
        first = given.get("first", 1)
        records = self.recall.expanded(session, of, added=given.get("added", False), first=first)
        return self._told(session, records, first, given.get("offset", 0), "recall_expand")

    def _session(self, given: Mapping[str, Json]) -> str:
        return self.recall.store.resolve(self.session if self.session is not None else given["session"])

    def _told(self, session: str, records: Iterable[Record], first: int, offset: int, tool: str) -> str:
        """Records one below the other, as many as there is room for, and where to go on."""
        head = self.recall.segment(session)
        lines: list[str] = []
        room, more = self.size, ""
        for record in records:
            text = _erased_words(record) or told(record)
            skip = offset if record.number == first else 0
            if not text[skip:]:
                continue
            if room <= 0:
                more = f"[More from #{record.number}: {tool} with first={record.number}]"
                break
            undone = ", undone by the user" if lineage.is_hidden(head.hidden, record.number) else ""
            lines.append(f"#{record.number} {role(record)}, {_when(record.at)}{undone}:")
            lines += _quoted(text[skip : skip + room])
            rest = len(text) - skip - room
            room -= min(len(text) - skip, room) + len(lines[-1]) // 8 + 40
            if rest > 0:
                more = f"[More of #{record.number}: {tool} with first={record.number}, offset={len(text) - rest}]"
                break
        if not lines:
            return f"Nobody said anything from #{first} on."
        return "\n".join((_OPENING, *lines, *([more] if more else []), _CLOSING))

    def _framed(self, lines: list[str], more: Callable[[int], str]) -> str:
        shown, room = 0, self.size
        for line in lines:
            if room < len(line) and shown:
                break
            room, shown = room - len(line), shown + 1
        rest = [f"[{more(shown)}]"] if shown < len(lines) else []
        return "\n".join((_OPENING, *lines[:shown], *rest, _CLOSING))


def _found(found: SearchResult, *, shows_session: bool) -> Iterable[str]:
    yield from (_line(hit, shows_session=shows_session) for hit in found.hits)
    if found.behind:
        yield f"(The index is behind by {found.behind} records: what was said lately may be missing.)"


def _line(hit: Hit, *, shows_session: bool) -> str:
    """A hit as a passage: where it stands, its words, and what was said right before and after it."""
    where = f"{hit.session} " if shows_session else ""
    some = ", beside the words" if hit.nearby else ", only some of the words" if hit.partial else ""
    lines = [f"{where}#{hit.number} {hit.role}, {_when(hit.at)}, {_PLACES[hit.place]}{some}:", f"  {hit.snippet}"]
    for other in hit.around:
        order = "before" if other.number < hit.number else "after"
        lines.append(f"    {order}, #{other.number} {other.role}: {other.excerpt}")
    return "\n".join(lines)


def _whole(text: str) -> str:
    """Without halves of characters: a message may hold one, no API takes it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _quoted(text: str) -> list[str]:
    """Set in, so that no line of it looks like one of ours."""
    return [f"  {line}" for line in text.splitlines()]


def _erased_words(record: Record) -> str:
    return "(erased)" if record.kind == ERASED and "was" in record.body else ""


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


# ---------------------------------------------------------------------- definitions

_SESSION = {"type": "string", "description": "The session's id."}
_OFFSET = {"type": "integer", "minimum": 0, "description": "Skip so many characters of the first record."}
_DESCRIPTIONS = {
    "recall_search": (
        "Searches everything that was said earlier in this conversation, also what a summary replaced. Takes a "
        'question or words, "phrases", beginnings* and -words to leave out; other forms of a word count too. Gives '
        "passages with record numbers, without what is still in your context; recall_read gives the whole."
    ),
    "recall_read": "Reads earlier records of this conversation word for word, by their numbers.",
    "recall_expand": (
        "Reads the original messages that a summary stands for, the oldest first: of the summary in the context, or "
        "of an earlier segment by its number."
    ),
}
_PARAMETERS: dict[str, tuple[dict[str, Json], tuple[str, ...]]] = {
    "recall_search": (
        {
            "query": {"type": "string", "description": "What to look for: the more of the words, the better."},
            "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_HITS, "description": "At most so many hits."},
        },
        ("query",),
    ),
    "recall_read": (
        {
            "first": {"type": "integer", "minimum": 1, "description": "Number of the first record to read."},
            "last": {"type": "integer", "minimum": 1, "description": "Number of the last one."},
            "offset": _OFFSET,
        },
        ("first",),
    ),
    "recall_expand": (
        {
            "segment": {"type": "integer", "minimum": 1, "description": "The segment; by default the one in force."},
            "added": {"type": "boolean", "description": "Only what this summary added to the one before it."},
            "first": {"type": "integer", "minimum": 1, "description": "Begin at this record."},
            "offset": _OFFSET,
        },
        (),
    ),
}


def _described(name: str, every: bool) -> tuple[str, dict[str, Json]]:
    """A tool's description and its parameters as a JSON schema."""
    properties, required = _accepted(name, every)
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    text = _DESCRIPTIONS[name]
    return (text.replace("in this conversation", "in any session") if every else text), schema


def _accepted(name: str, every: bool) -> tuple[dict[str, Json], tuple[str, ...]]:
    properties, required = _PARAMETERS[name]
    if not every:
        return properties, required
    return {**properties, "session": _SESSION}, required if name == "recall_search" else (*required, "session")


def _shaped(shape: Shape, name: str, description: str, schema: dict[str, Json]) -> dict[str, Json]:
    match shape:
        case "openai":
            return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
        case "anthropic":
            return {"name": name, "description": description, "input_schema": schema}
        case "mcp":
            hints = {"readOnlyHint": True, "openWorldHint": False}
            return {"name": name, "description": description, "inputSchema": schema, "annotations": hints}
    raise InvalidToolCall(f"no shape of tool definitions {shape!r}; there are openai, anthropic and mcp")


def _checked(name: str, arguments: Mapping[str, Json], *, every: bool) -> dict[str, Json]:
    """The arguments of a call, or what is wrong with them in words that help to correct it."""
    if not isinstance(arguments, Mapping):
        raise InvalidToolCall(f"{name} takes an object of arguments, not {type(arguments).__name__}")
    properties, required = _accepted(name, every)
    given = {key: value for key, value in arguments.items() if value is not None}
    if unknown := [str(key) for key in given if key not in properties]:
        raise InvalidToolCall(f"{name} has no argument {', '.join(unknown)}; it takes {', '.join(properties)}")
    if missing := [key for key in required if key not in given]:
        raise InvalidToolCall(f"{name} needs {', '.join(missing)}")
    for key, value in given.items():
        _check(name, key, value, properties[key])
    return given


def _check(name: str, key: str, value: Json, rule: Json) -> None:
    kinds: dict[str, type] = {"string": str, "integer": int, "boolean": bool}
    kind = rule["type"]
    if not isinstance(value, kinds[kind]) or (kind == "integer" and isinstance(value, bool)):
        raise InvalidToolCall(f"{name}: {key} is {'an' if kind == 'integer' else 'a'} {kind}, not {value!r}")
    if kind == "integer" and not rule["minimum"] <= int(str(value)) <= _LARGEST:
        raise InvalidToolCall(f"{name}: {key} is at least {rule['minimum']}, not {value}")
