"""What happens in an agent's room, as lines for a terminal: frames go in, lines come out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from onefold.cli.output import safe, safe_lines, short
from onefold.humanize import count, listed
from onefold.model import Json

_CHUNKS: Mapping[str, tuple[str, str]] = {
    "user_message_chunk": ("» ", "bold"),
    "agent_message_chunk": ("", ""),
    "agent_thought_chunk": ("· ", "dim"),
}
"""How a message of each kind begins, and how it looks."""
_OVER: Mapping[str, str] = {"completed": "✓", "failed": "✗"}
_TITLES = 256
_LONGEST = 300


class Line(NamedTuple):
    """One line of text that is safe to print, and how it looks."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """What the agent asks: the options have ids and names."""

    id: Json
    title: str
    options: tuple[tuple[str, str], ...]

    def chosen(self, typed: str) -> str | None:
        """The id of the option that somebody typed: its number, or the beginning of its name."""
        said = typed.strip().lower()
        if said.isdigit() and 1 <= int(said) <= len(self.options):
            return self.options[int(said) - 1][0]
        found = [id for id, name in self.options if said and name.lower().startswith(said)]
        return found[0] if len(found) == 1 else None


class ConversationView:
    """One room. `running` says whether the agent is in a turn, and `questions` what it waits for."""

    def __init__(self, name: str) -> None:
        self.running = False
        self.questions: dict[str, Question] = {}
        self._name = name
        self._kind = ""
        self._text = ""
        self._begun = False
        """A line of the message was shown already."""
        self._titles: dict[str, str] = {}
        self._queued = 0

    # ------------------------------------------------------------------ what comes

    def attached(self, shot: Mapping[str, Json]) -> Iterator[Line]:
        """The answer to `session/attach`: what was said, and how it is now."""
        self.questions.clear()
        self.running = bool(shot.get("turn"))
        for one in shot.get("history") or ():
            yield from self.update(one["update"])
        yield from self.rest()
        agent = shot.get("agent") or {}
        trouble = f": {agent['trouble']}" if agent.get("trouble") else ""
        if agent:
            told = f"session {shot.get('sessionId')}: the agent {agent.get('name')} is {agent.get('phase')}{trouble}"
            yield Line(safe(told), "dim")

    def frame(self, frame: Mapping[str, Json]) -> Iterator[Line]:
        """A request of the agent, or something that happened."""
        method, params = str(frame.get("method")), frame.get("params") or {}
        if method == "session/update":
            yield from self.update(params.get("update") or {})
            return
        if method == "session/request_permission" and "id" in frame:
            yield from self.rest()
            yield from self._asked(frame["id"], params)
            return
        if method == "$/cancel_request":
            self.questions.pop(str(params.get("requestId")), None)
            return
        told = self._told(method, params)
        if told is not None:
            yield from self.rest()
        if told:
            yield Line(safe(told), "cyan")

    def update(self, update: Mapping[str, Json]) -> Iterator[Line]:
        """Something that the agent, or a person, says or does."""
        kind = str(update.get("sessionUpdate"))
        if kind in _CHUNKS:
            if kind != self._kind:
                yield from self.rest()
                self._kind = kind
            self._text += _text(update.get("content"))
            yield from self._whole_lines()
        elif kind in ("tool_call", "tool_call_update"):
            yield from self._call(update)
        elif kind == "plan":
            yield from self.rest()
            steps = update.get("entries") or []
            done = sum(isinstance(s, dict) and s.get("status") == "completed" for s in steps)
            yield Line(f"plan: {done} of {count(len(steps), 'step')} done", "dim")

    def rest(self) -> Iterator[Line]:
        """What of a message has no end of a line: it is over, or something else comes."""
        if self._text.strip():
            yield from self._shown(self._text)
        self._kind, self._text, self._begun = "", "", False

    # ------------------------------------------------------------------ in words

    def _whole_lines(self) -> Iterator[Line]:
        whole, end, left = self._text.rpartition("\n")
        if end:
            self._text = left
            yield from self._shown(whole)

    def _shown(self, text: str) -> Iterator[Line]:
        mark, style = _CHUNKS[self._kind]
        for line in safe_lines(text):
            yield Line((" " * len(mark) if self._begun else mark) + line, style)
            self._begun = True

    def _call(self, update: Mapping[str, Json]) -> Iterator[Line]:
        id, status = str(update.get("toolCallId")), str(update.get("status"))
        title = short(str(update.get("title") or self._titles.get(id) or "a tool"), _LONGEST)
        new = id not in self._titles
        self._titles[id] = title
        while len(self._titles) > _TITLES:
            del self._titles[next(iter(self._titles))]
        if status in _OVER:
            yield from self.rest()
            yield Line(f"{_OVER[status]} {title}", "dim")
            self._titles.pop(id, None)
        elif new:
            yield from self.rest()
            yield Line(f"→ {title}", "dim")

    def _asked(self, id: Json, params: Mapping[str, Json]) -> Iterator[Line]:
        call = params.get("toolCall") or {}
        title = short(str(call.get("title") or "go on"), _LONGEST)
        options = tuple(
            (str(o["optionId"]), str(o.get("name") or o["optionId"]))
            for o in params.get("options") or ()
            if isinstance(o, dict) and "optionId" in o
        )
        question = self.questions[str(id)] = Question(id, title, options)
        yield Line(f"the agent asks: {question.title}", "yellow")
        command = (call.get("rawInput") or {}).get("command") if isinstance(call.get("rawInput"), dict) else None
        if command:
            yield from (Line(f"    {line}", "yellow") for line in safe_lines(str(command)))
        for i, (_, name) in enumerate(question.options, 1):
            yield Line(f"  {i}  {safe(name)}", "yellow")

    def _told(self, method: str, params: Mapping[str, Json]) -> str | None:
        """In words; nothing to say is an empty text if it ends what was being said, else None."""
        cause = f": {params['cause']}" if params.get("cause") else ""
        match method:
            case "onefold/turn_started":
                self.running = True
            case "onefold/turn_settled":
                self.running = False
                if params.get("outcome") != "completed":
                    return f"the turn was {params.get('outcome')}{cause}"
                return ""
            case "onefold/cancelling":
                return f"{params.get('by')} asked it to stop"
            case "onefold/queue_changed":
                return self._queue(params.get("queue") or [])
            case "onefold/question_settled":
                self.questions.pop(str(params.get("question")), None)
                by = params.get("by")
                return f"{by} answered" if by and not str(by).startswith(self._name) else None
        return self._told_of_agent(method, params, cause)

    def _told_of_agent(self, method: str, params: Mapping[str, Json], cause: str) -> str | None:
        match method:
            case "onefold/compaction_started":
                return "── compacting …"
            case "onefold/compaction_done":
                if params.get("state") != "committed":
                    return f"── not compacted{cause}"
                sure = f" ({params['confidence']} confidence)" if params.get("confidence") else ""
                seen = params.get("witnesses") or [params.get("source")]
                return f"── compacted, seen by {listed(map(str, seen))}{sure}"
            case "onefold/agent_ended":
                self.running = False
                self.questions.clear()
                return f"the agent ended{cause}"
            case "onefold/agent_started" if params.get("how") != "new":
                return f"the agent runs again ({params.get('how')})"
            case "onefold/phase" if params.get("phase") in ("locked", "closed"):
                return f"the agent is {params['phase']}"
            case "onefold/left_out":
                return f"something that the agent said was too large{cause}"
            case "onefold/erased" if params.get("numbers"):
                return f"records were erased: {listed(map(str, params['numbers']))}"
        return None

    def _queue(self, queue: list[Json]) -> str | None:
        """Told when somebody's prompt has to wait, and not when the queue gets shorter."""
        grew, self._queued = len(queue) > self._queued, len(queue)
        return f"{count(len(queue), 'prompt')} waiting" if grew and self.running else None


def _text(content: Json) -> str:
    if not isinstance(content, dict):
        return ""
    if content.get("type") == "text":
        return str(content.get("text") or "")
    return f"[{content.get('type')}]"
