"""An agent that speaks ACP on stdio and does what its prompts say, so that tests can have any agent they want.

    python tests/support/scripted_agent.py --family hermes --state FILE --log FILE

What a turn does stands in the prompt, in the order it stands there: `[[say:hello]] [[tool:read]] [[die]]`. The table of
directives is `DIRECTIVES`; a prompt without one is answered by an echo. How it compacts, by `[[compact]]` as if by
itself or by its command as a person would, depends on the family. Plain Python, so that it starts fast.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # the folder of tests, where `typing` is not Python's

import argparse
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DIRECTIVE = re.compile(r"\[\[(\w+)(?::(.*?))?\]\]", re.DOTALL)
SUMMARY = "the summary of what was said so far"
WINDOW = 100_000

NAMES = {
    "acp": "scripted-agent",
    "hermes": "hermes-agent",
    "hermes-rotate": "hermes-agent",
    "qwen": "qwen-code",
    "vibe": "@mistralai/mistral-vibe",
    "opencode": "OpenCode",
    "plain": "plain-agent",
}
COMMANDS = dict.fromkeys(NAMES, "compact") | {"qwen": "compress"}
"""By which command a person asks each of them to compact; the plain one knows none."""


class Refused(Exception):
    """The answer to a request is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class CompactionCancelled(Exception):
    """The client cancelled the turn."""


class Agent:
    """What lives as long as the process: its sessions, and the two pipes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.family: str = options.family
        self.kept: dict[str, Any] = {"sessions": {}, "compactions": 0, "prompts": 0, "ids": 0}
        if options.state and Path(options.state).exists():
            self.kept = json.loads(Path(options.state).read_text())
        self.shows_compaction = False
        self.open: set[str] = set()
        """Sessions that were made, loaded or resumed in this process; no other one can be prompted."""
        self.turns: dict[str, Turn] = {}
        self.answers: dict[str, tuple[threading.Event, dict[str, Any]]] = {}
        self.reading_from: str | None = None
        """A file that has to exist before the next line is read."""
        self._lock = threading.RLock()
        self._out = threading.Lock()

    # ------------------------------------------------------------------ the wire

    def run(self) -> None:
        for line in sys.stdin.buffer:
            frames = json.loads(line)
            for frame in frames if isinstance(frames, list) else [frames]:
                self._receive(frame)
            while self.reading_from and not Path(self.reading_from).exists():
                threading.Event().wait(0.01)
            self.reading_from = None
        while self.options.stubborn:
            threading.Event().wait(1)

    def _receive(self, frame: dict[str, Any]) -> None:
        if self.options.log:
            with Path(self.options.log).open("a") as log:
                log.write(json.dumps(frame) + "\n")
        method, id = frame.get("method"), frame.get("id")
        if method is None:
            answered, answer = self.answers.pop(str(id), (threading.Event(), {}))
            answer.update(frame)
            answered.set()
        elif method == "session/prompt":
            self._prompt(id, frame["params"])
        elif method == "session/cancel":
            if turn := self.turns.get(frame["params"]["sessionId"]):
                turn.cancelled.set()
        elif "id" in frame:
            self.answer(id, lambda: self._serve(method, frame.get("params") or {}))

    def write(self, line: str) -> None:
        with self._out:
            sys.stdout.buffer.write(line.encode() + b"\n")
            sys.stdout.buffer.flush()

    def send(self, **frame: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **frame}))

    def answer(self, id: Any, work: Callable[[], Any]) -> None:
        try:
            self.send(id=id, result=work())
        except Refused as error:
            self.send(id=id, error={"code": error.code, "message": str(error)})
        except Exception as error:  # a mistake in a test's prompt: told, so that nobody waits for an answer
            self.send(id=id, error={"code": -32603, "message": f"the scripted agent failed: {error!r}"})

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Asks the client something, and waits for its answer, also when the turn was cancelled."""
        id = self.next_id("ask")
        answered, answer = self.answers[id] = threading.Event(), {}
        self.send(id=id, method=method, params=params)
        answered.wait()
        return answer

    # ------------------------------------------------------------------ what it keeps

    def save(self) -> None:
        with self._lock:
            if self.options.state:
                new = Path(f"{self.options.state}.new")
                new.write_text(json.dumps(self.kept))
                new.replace(self.options.state)

    def next_id(self, kind: str) -> str:
        with self._lock:
            self.kept["ids"] += 1
            return f"{self.options.ids}-{kind}-{self.kept['ids']}"

    def session(self, id: str) -> dict[str, Any]:
        if id not in self.kept["sessions"]:
            raise Refused(-32002, f"no session {id}")
        session: dict[str, Any] = self.kept["sessions"][id]
        return session

    # ------------------------------------------------------------------ requests

    def _serve(self, method: str, params: dict[str, Any]) -> Any:
        without = self.options.without.split(",")
        self._misbehave(method)
        match method:
            case "initialize":
                capabilities = params.get("clientCapabilities") or {}
                self.shows_compaction = "compaction" in (capabilities.get("session") or {})
                return {
                    "protocolVersion": 1,
                    "agentInfo": {"name": NAMES[self.family], "version": "1.0"},
                    "agentCapabilities": {
                        "loadSession": "load" not in without,
                        "sessionCapabilities": {"list": {}, **({} if "resume" in without else {"resume": {}})},
                    },
                    "authMethods": [{"id": "key", "name": "a key"}],
                }
            case "authenticate":
                self.options.locked = False
                return {"_meta": {"welcome": params.get("secret")}}
            case "session/close":
                return {}
            case "session/new":
                id = self.next_id("session")
                self.kept["sessions"][id] = {"id": id, "cwd": params["cwd"], "inner": id, "history": [], "used": 0}
                self.save()
                return {"sessionId": id, **self._opened(id)}
            case "session/load" if "load" not in without:
                self._replay(self.session(params["sessionId"]))
                return self._opened(params["sessionId"])
            case "session/resume" if "resume" not in without:
                self.session(params["sessionId"])
                return self._opened(params["sessionId"])
            case "session/list":
                return {"sessions": [{"sessionId": id, "cwd": s["cwd"]} for id, s in self.kept["sessions"].items()]}
            case "session/set_mode":
                self.update(params["sessionId"], "current_mode_update", currentModeId=params["modeId"])
                return {}
            case "_test/state":
                return {**self.kept, "pid": os.getpid(), "running": list(self.turns)}
        raise Refused(-32601, f"no method {method}")

    def _misbehave(self, method: str) -> None:
        if method == self.options.dies:
            os._exit(3)
        if method == self.options.hangs:
            threading.Event().wait()
        while method == "session/new" and self.options.waits and not Path(self.options.waits).exists():
            threading.Event().wait(0.01)
        if self.options.locked and method in ("session/new", "session/load", "session/resume"):
            raise Refused(-32000, "log in first")
        if method in ("session/load", "session/resume") and "taking" in self.options.without:
            raise Refused(-32603, "the session cannot be read")

    def _opened(self, id: str) -> dict[str, Any]:
        self.open.add(id)
        command = {"name": COMMANDS[self.family], "description": "Makes the conversation shorter", "input": None}
        commands = [] if self.family == "plain" else [command]
        self.update(id, "available_commands_update", availableCommands=commands)
        modes = [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]
        opened = {"modes": {"currentModeId": "ask", "availableModes": modes}}
        return {**opened, "_meta": provenance(self.session(id))} if self.family.startswith("hermes") else opened

    def update(self, session: str, kind: str, /, **fields: Any) -> None:
        params = {"sessionId": session, "update": {"sessionUpdate": kind, **fields}}
        self.send(method="session/update", params=params)

    def _replay(self, session: dict[str, Any]) -> None:
        for entry in session["history"]:
            if entry["role"] == "compaction":
                replay_compaction(self, session["id"], entry)
            else:
                kind = {"user": "user_message_chunk", "agent": "agent_message_chunk"}.get(entry["role"])
                text = {"type": "text", "text": entry["text"]}
                self.update(session["id"], kind or "agent_thought_chunk", content=text, messageId=entry["id"])

    def _prompt(self, id: Any, params: dict[str, Any]) -> None:
        text = "".join(block.get("text", "") for block in params["prompt"])
        try:
            session = self.session(params["sessionId"])
            if session["id"] not in self.open:
                raise Refused(-32002, f"session {session['id']} is not open")
            if session["id"] in self.turns:
                raise Refused(-32600, "a turn is running in this session")
        except Refused as error:
            self.send(id=id, error={"code": error.code, "message": str(error)})
            return
        self.kept["prompts"] += 1
        turn = self.turns[session["id"]] = Turn(self, session, text)
        self.reading_from = next((value for name, value in turn.directives() if name == "slow"), None)
        threading.Thread(target=lambda: self.answer(id, turn.run), daemon=True).start()


class Turn:
    """From a prompt to its answer, in a thread of its own."""

    def __init__(self, agent: Agent, session: dict[str, Any], text: str) -> None:
        self.agent = agent
        self.session = session
        self.text = text
        self.cancelled = threading.Event()
        self.by_hand = agent.family != "plain" and text.partition(" ")[0].strip() == f"/{COMMANDS[agent.family]}"

    def directives(self) -> Iterator[tuple[str, str]]:
        yield from DIRECTIVE.findall(self.text)

    def run(self) -> dict[str, Any]:
        stop = "end_turn"
        try:
            self._remember("user", self.text)
            if self.by_hand:
                compact(self, self.text.partition(" ")[2])
            else:
                self._follow()
            if not self.cancelled.is_set():
                self.session["used"] += len(self.text) // 4 + 10
            self.update("usage_update", used=self.session["used"], size=WINDOW)
        except CompactionCancelled:
            stop = "cancelled"
        finally:
            self.agent.save()
            del self.agent.turns[self.session["id"]]
        return {"stopReason": stop}

    def _follow(self) -> None:
        for name, value in self.directives():
            DIRECTIVES[name](self, value)
        if not DIRECTIVE.search(self.text):
            say(self, f"you said: {self.text}")

    def update(self, kind: str, /, **fields: Any) -> None:
        self.agent.update(self.session["id"], kind, **fields)

    def chunk(self, kind: str, text: str, id: str, **fields: Any) -> None:
        if self.agent.family not in ("hermes", "hermes-rotate", "qwen"):
            fields["messageId"] = id
        self.update(kind, content={"type": "text", "text": text}, **fields)

    def speak(self, *texts: str, role: str = "agent") -> None:
        """One message, in so many chunks."""
        id = self._remember(role, "".join(texts))
        for text in texts:
            self.chunk("agent_message_chunk" if role == "agent" else "agent_thought_chunk", text, id)

    def _remember(self, role: str, text: str) -> str:
        id = self.agent.next_id("msg")
        self.session["history"].append({"role": role, "text": text, "id": id})
        return id

    def wait_for(self, path: str) -> None:
        while not Path(path).exists():
            if self.cancelled.wait(0.01):
                raise CompactionCancelled


# ---------------------------------------------------------------------- what a turn can be told


def say(turn: Turn, value: str) -> None:
    turn.speak(value)


def call(turn: Turn, value: str) -> None:
    """A tool call that is begun and told of, and never over."""
    id = turn.agent.next_id("call")
    turn.update("tool_call", toolCallId=id, title=value, kind="other", status="pending", rawInput={"name": value})
    said = [{"type": "content", "content": {"type": "text", "text": f"{value} goes on"}}]
    turn.update("tool_call_update", toolCallId=id, status="in_progress", content=said)


def withdraw(turn: Turn, value: str) -> None:
    """Asks something, and takes the question back at once."""
    turn.agent.send(id=value, method="session/request_permission", params={"sessionId": turn.session["id"]})
    turn.agent.send(method="$/cancel_request", params={"requestId": value})


def think(turn: Turn, value: str) -> None:
    turn.speak(value, role="thought")


def chunks(turn: Turn, value: str) -> None:
    turn.speak(*(f"word{n} " for n in range(int(value))))


def big(turn: Turn, value: str) -> None:
    turn.speak("x" * int(value))


def tool(turn: Turn, value: str) -> None:
    id = turn.agent.next_id("call")
    turn.update("tool_call", toolCallId=id, title=value, kind="other", status="pending", rawInput={"name": value})
    turn.update("tool_call_update", toolCallId=id, status="in_progress")
    said = [{"type": "content", "content": {"type": "text", "text": f"{value} is done"}}]
    turn.update("tool_call_update", toolCallId=id, status="completed", content=said)


def ask(turn: Turn, value: str) -> None:
    """A permission; says what the answer was."""
    id = turn.agent.next_id("call")
    options = [
        {"optionId": "yes", "name": "Allow once", "kind": "allow_once"},
        {"optionId": "no", "name": "Deny", "kind": "reject_once"},
    ]
    call = {"toolCallId": id, "title": value, "status": "pending"}
    params = {"sessionId": turn.session["id"], "toolCall": call, "options": options}
    answer = turn.agent.ask("session/request_permission", params)
    if turn.cancelled.is_set():
        raise CompactionCancelled
    outcome = answer["result"]["outcome"] if "result" in answer else {"outcome": answer["error"]["message"]}
    say(turn, f"the answer was {outcome.get('optionId') or outcome['outcome']}")


def permit(turn: Turn, value: str) -> None:
    """Tells of a call with its command, and asks for permission by the call's id alone; with `=` before it, by all."""
    id = turn.agent.next_id("call")
    call = {"title": "run it", "kind": "execute", "status": "pending", "rawInput": {"command": value.removeprefix("=")}}
    turn.update("tool_call", toolCallId=id, **call)
    options = [
        {"optionId": "yes", "name": "Allow once", "kind": "allow_once"},
        {"optionId": "no", "name": "Deny", "kind": "reject_once"},
    ]
    about = {"toolCallId": id, **(call if value.startswith("=") else {})}
    params = {"sessionId": turn.session["id"], "toolCall": about, "options": options}
    answer = turn.agent.ask("session/request_permission", params)
    if turn.cancelled.is_set():
        raise CompactionCancelled
    say(turn, f"the answer was {answer['result']['outcome'].get('optionId')}")


def request(turn: Turn, method: str, **params: Any) -> None:
    """Asks the client for something else; says the error, if it is one."""
    answer = turn.agent.ask(method, {"sessionId": turn.session["id"], **params})
    error = answer.get("error")
    say(turn, f"{method}: {error['code']} {error['message']}" if error else f"{method}: {answer.get('result')}")


def fs(turn: Turn, value: str) -> None:
    request(turn, "fs/read_text_file", path=value or "/etc/hostname")


def terminal(turn: Turn, value: str) -> None:
    request(turn, "terminal/create", command=value or "true")


def unknown(turn: Turn, value: str) -> None:
    turn.agent.send(method="_scripted/news", params={"sessionId": turn.session["id"], "news": value})
    request(turn, "_scripted/question", question=value)


def noise(turn: Turn, value: str) -> None:
    turn.agent.write(value)


def raw(turn: Turn, value: str) -> None:
    """The lines of a file, as they are."""
    for line in Path(value).read_text().splitlines():
        turn.agent.write(line)


def torn(turn: Turn, value: str) -> None:
    """Half a frame, and then it is dead."""
    sys.stdout.buffer.write(b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":')
    sys.stdout.buffer.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def array(turn: Turn, value: str) -> None:
    """Two frames in one line."""
    updates = [
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}} for text in ("one", "two")
    ]
    frames = [
        {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": turn.session["id"], "update": update}}
        for update in updates
    ]
    turn.agent.write(json.dumps(frames))


def complain(turn: Turn, value: str) -> None:
    """So many lines on stderr, or that one."""
    lines = [f"line {n}" for n in range(int(value))] if value.isdigit() else [value]
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()


def die(turn: Turn, value: str) -> None:
    """By SIGKILL, with an exit code, or in the middle of a compaction."""
    if value == "compacting":
        start_compaction(turn)
    if value.isdigit():
        os._exit(int(value))
    os.kill(os.getpid(), signal.SIGKILL)


def hang(turn: Turn, value: str) -> None:
    turn.cancelled.wait()
    raise CompactionCancelled


def deaf(turn: Turn, value: str) -> None:
    """Whoever asks it to stop."""
    threading.Event().wait()


def wait(turn: Turn, value: str) -> None:
    turn.wait_for(value)


def fail(turn: Turn, value: str) -> None:
    raise Refused(-32603, value or "it failed")


def env(turn: Turn, value: str) -> None:
    say(turn, f"{value}={os.environ.get(value)}")


def usage(turn: Turn, value: str) -> None:
    turn.session["used"] = int(value)
    turn.update("usage_update", used=int(value), size=WINDOW)


def grandchild(turn: Turn, value: str) -> None:
    """A process that holds the pipes open and would live on; with `away`, in a session of its own."""
    started = subprocess.Popen(["sleep", "90"], start_new_session=value == "away")
    say(turn, f"grandchild {started.pid}")


def slow(turn: Turn, value: str) -> None:
    """Read by the agent before the turn begins: it takes no more input until that file exists."""


# ---------------------------------------------------------------------- compaction, by family


def provenance(session: dict[str, Any], previous: str | None = None) -> dict[str, Any]:
    rotated = session["inner"] != session["id"]
    told = {
        "acpSessionId": session["id"],
        "currentHermesSessionId": session["inner"],
        "rootHermesSessionId": session["id"],
        "parentHermesSessionId": previous,
        "sessionKind": "continuation" if rotated else "root",
        "compressionDepth": sum(e["role"] == "compaction" for e in session["history"]) if rotated else 0,
    }
    if previous:
        told |= {"previousHermesSessionId": previous, "reason": "compression", "creatorKind": "compression"}
    return {"hermes": {"sessionProvenance": told}}


def hermes_log(level: str, name: str, message: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} [{level}] agent.{name}: {message}\n")
    sys.stderr.flush()


VIBE_TITLES = {
    True: {"in_progress": "Compacting conversation history...", "completed": "Compacted conversation history"},
    False: {"in_progress": "Compacting context", "completed": "Context compacted"},
}


def vibe_call(turn: Turn, id: str, status: str) -> dict[str, Any]:
    """A tool call that stands for a compaction; only one that nobody asked for is marked as such."""
    call = {"title": VIBE_TITLES[turn.by_hand].get(status, "Compaction failed"), "status": status}
    if turn.by_hand:
        return {"toolCallId": id, "kind": "other", **call}
    return {"toolCallId": f"checkpoint-{id}", "kind": "think", **call, "_meta": {"checkpoint_kind": "compaction"}}


def start_compaction(turn: Turn) -> str:
    """What tells of the beginning; the id of the act."""
    id = turn.agent.next_id("compaction")
    match turn.agent.family:
        case "acp" if turn.agent.shows_compaction:
            turn.update("compaction_update", compactionId=id, status="in_progress")
        case "hermes" | "hermes-rotate":
            told = f"session={turn.session['inner']} messages=9 tokens=~{turn.session['used']:,} model=m focus=None"
            hermes_log("INFO", "conversation_compression", f"context compression started: {told}")
        case "qwen":
            meta = {"contextCompression": {"phase": "progress"}, "source": "slash_command"}
            turn.chunk("agent_message_chunk", "Compressing context...", id, _meta=meta)
        case "vibe":
            turn.update("tool_call", **vibe_call(turn, id, "in_progress"))
    return id


def finish_compaction(turn: Turn, id: str, before: int) -> None:
    """What tells of a compaction that worked."""
    session, after = turn.session, turn.session["used"]
    match turn.agent.family:
        case "acp" if turn.agent.shows_compaction:
            summary = [{"type": "text", "text": SUMMARY}]
            turn.update("compaction_update", compactionId=id, status="completed", summary=summary)
        case "hermes" | "hermes-rotate":
            told = f"session={session['inner']} messages=9->4 rough_tokens=~{after:,} awaiting_real_usage=true"
            hermes_log("INFO", "conversation_compression", f"context compression done: {told}")
        case "qwen":
            phase = {"phase": "done", "originalTokenCount": before, "newTokenCount": after}
            meta = {"contextCompression": phase, "source": "slash_command"}
            turn.chunk("agent_message_chunk", f"Context compressed ({before} -> ~{after}).", id, _meta=meta)
        case "vibe":
            turn.update("tool_call_update", **vibe_call(turn, id, "completed"))
        case "opencode":
            turn.speak(*(f"{word} " for word in SUMMARY.split()))


def fail_compaction(turn: Turn, id: str) -> None:
    match turn.agent.family:
        case "acp" if turn.agent.shows_compaction:
            turn.update("compaction_update", compactionId=id, status="failed", error="no summary")
        case "hermes" | "hermes-rotate":
            hermes_log("WARNING", "context_compressor", "Failed to generate context summary: no answer.")
            complain(turn, "⚠ Compression aborted: no answer. No messages were dropped.")
        case "vibe":
            turn.update("tool_call_update", **vibe_call(turn, id, "failed"))
        case "qwen" | "opencode":
            say(turn, "Could not compress chat history due to an API error.")


def compact(turn: Turn, value: str) -> None:
    """`twice` tells of the end twice, `fail` and `nodone` have none, `wait:FILE` waits in the middle, as the directives
    behind a person's command do: `/compact fail`, `/compact [[wait:FILE]]`."""
    agent, session, before = turn.agent, turn.session, turn.session["used"]
    id = start_compaction(turn)
    if turn.by_hand:
        for name, told in turn.directives():
            DIRECTIVES[name](turn, told)
    if value.startswith("wait:"):
        turn.wait_for(value.removeprefix("wait:"))
    if value == "fail":
        fail_compaction(turn, id)
    if value in ("fail", "nodone"):
        return
    previous = session["inner"]
    if agent.family == "hermes-rotate":
        session["inner"] = agent.next_id("inner")
    session["used"] = before // 4
    session["history"].append({"role": "compaction", "id": id, "before": before, "after": before // 4})
    agent.kept["compactions"] += 1
    agent.save()
    for _ in range(2 if value == "twice" else 1):
        finish_compaction(turn, id, before)
    if agent.family == "hermes-rotate":
        turn.update("session_info_update", title="a title", _meta=provenance(session, previous))
    if agent.family.startswith("hermes") and turn.by_hand:
        say(turn, f"Context compressed: 9 -> 4 messages\n~{before:,} -> ~{session['used']:,} tokens")


def replay_compaction(agent: Agent, session: str, entry: dict[str, Any]) -> None:
    """How a load tells of one that was long ago. The others replay the messages they spoke, or nothing."""
    match agent.family:
        case "acp" if agent.shows_compaction:
            agent.update(session, "compaction_update", compactionId=entry["id"], status="completed")
        case "vibe":
            call = {"title": "Context compacted", "kind": "think", "status": "completed"}
            meta = {"checkpoint_kind": "compaction"}
            agent.update(session, "tool_call", toolCallId=f"checkpoint-{entry['id']}", **call, _meta=meta)
        case "qwen":
            phase = {"phase": "done", "originalTokenCount": entry["before"], "newTokenCount": entry["after"]}
            text = {"type": "text", "text": "Context compressed."}
            agent.update(session, "agent_message_chunk", content=text, _meta={"contextCompression": phase})


DIRECTIVES: dict[str, Callable[[Turn, str], None]] = {
    "say": say,
    "call": call,
    "withdraw": withdraw,
    "think": think,
    "chunks": chunks,
    "big": big,
    "tool": tool,
    "ask": ask,
    "permit": permit,
    "fs": fs,
    "terminal": terminal,
    "unknown": unknown,
    "noise": noise,
    "raw": raw,
    "torn": torn,
    "array": array,
    "stderr": complain,
    "forge": complain,
    "die": die,
    "hang": hang,
    "deaf": deaf,
    "wait": wait,
    "fail": fail,
    "env": env,
    "usage": usage,
    "grandchild": grandchild,
    "slow": slow,
    "compact": compact,
}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=list(NAMES), default="acp")
    parser.add_argument("--state", help="a file that its sessions outlive it in")
    parser.add_argument("--log", help="a file for every frame it receives, one JSON a line")
    parser.add_argument("--without", default="", help="what it cannot: load, resume; taking: when it comes to it")
    parser.add_argument("--locked", action="store_true", help="wants somebody to log in, in every process anew")
    parser.add_argument("--waits", help="a file that has to exist before it answers session/new")
    parser.add_argument("--dies", default="", help="in which request: initialize, session/load, …")
    parser.add_argument("--hangs", default="", help="the same, without an answer")
    parser.add_argument("--ids", default=os.urandom(4).hex(), help="what its ids begin with")
    parser.add_argument("--stubborn", action="store_true", help="ends neither at the end of stdin nor by SIGTERM")
    parser.add_argument("--life", type=int, default=600, help="seconds it lives at most, whatever becomes of its test")
    parser.add_argument("--script", default="{}", help="the same options as JSON")
    given = parser.parse_args()
    vars(given).update(json.loads(given.script))
    return given


if __name__ == "__main__":
    given = options()
    signal.alarm(given.life)
    if given.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Agent(given).run()
