"""The configured agents: which command to run, where, and with which environment."""

from __future__ import annotations

import importlib
import math
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onefold.acp.room_errors import FORBIDDEN, RequestRejected
from onefold.errors import OnefoldError
from onefold.jsonrpc import INVALID_PARAMS, Frame
from onefold.model import Json

Redact = Callable[[Frame], Frame | None]
"""What is kept of a frame: another one, or nothing. What is passed on is not touched by it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OPTIONS = ("command", "env", "pass_env", "cwd", "folders", "mcp_servers")
_OPTION = re.compile(r"--?|-[A-Za-z]|--[A-Za-z][A-Za-z0-9_-]{0,40}")
_SHORT = re.compile(r"-[A-Za-z]")
_OURS = "ONEFOLD_"
"""Variables with these first letters are onefold's own: a token, the address of a store."""


class AgentUnusable(OnefoldError):
    """An agent is not known, or cannot be run as its settings say."""


@dataclass(frozen=True, slots=True)
class Agent:
    """A program that speaks the Agent Client Protocol on its standard input and output."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the environment; written nowhere."""
    cwd: str | None = None
    pass_env: tuple[str, ...] = ()
    """Variables that it gets though they are onefold's."""
    folders: tuple[str, ...] = ()
    """Where clients of a server may have it work, and below."""
    mcp_servers: bool = False
    """Whether clients of a server may name MCP servers for it, which are commands that it runs."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders, links followed; if the config file names none, where the server itself runs."""
        named = (*self.folders, *((self.cwd,) if self.cwd is not None else ()))
        return tuple(Path(one).expanduser().resolve() for one in named or (".",))

    def folder(self, asked: Json) -> str:
        """The folder a client asks it to work in, links followed. Rejected outside the allowed folders."""
        if not isinstance(asked, str) or not Path(asked).is_absolute():
            raise RequestRejected("cwd has to be an absolute path", INVALID_PARAMS)
        try:
            found = Path(asked).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise RequestRejected(f"cwd {asked!r:.200} is not a valid path: {error}", INVALID_PARAMS) from None
        if not any(found.is_relative_to(root) for root in self.roots):
            raise RequestRejected(
                f"the agent {self.name!r} works in {', '.join(map(str, self.roots))} and below, not in {asked!r:.200}; "
                f'`folders = ["…"]` under [agents.{self.name}] in the config file allows more',
                FORBIDDEN,
            )
        return str(found)

    def servers(self, asked: Json) -> list[Json]:
        """The MCP servers that a client of a server names for it. Rejected unless the config file allows that."""
        if asked is None:
            return []
        if not isinstance(asked, list):
            raise RequestRejected("mcpServers has to be a list", INVALID_PARAMS)
        if asked and not self.mcp_servers:
            raise RequestRejected(
                f"the agent {self.name!r} takes no mcpServers from clients, since it would run their commands; "
                f"`mcp_servers = true` under [agents.{self.name}] in the config file allows it",
                FORBIDDEN,
            )
        return asked


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents of a config file."""

    known: Mapping[str, Agent] = field(default_factory=dict)
    redact: Redact | None = None
    days: float = 30.0
    """How long raw frames are kept."""
    keys: frozenset[str] = frozenset()
    """The variables that have onefold's own keys, such as the summarizer's."""
    idle: float = 30.0
    """Minutes without a client and without work after which a room ends by itself; 0: never."""

    def environment(self, agent: Agent, given: Mapping[str, str]) -> dict[str, str]:
        """What an agent finds in its environment. Not what is onefold's own: with a token of the server an agent could
        answer its own questions."""
        passed = {
            name: value
            for name, value in given.items()
            if name in agent.pass_env or not (name.startswith(_OURS) or name in self.keys)
        }
        return {**passed, **agent.env}

    def named(self, name: str | None) -> Agent:
        """An agent by its name; without one, the only one there is."""
        if name is None:
            if len(self.known) == 1:
                return next(iter(self.known.values()))
            there = f"there are {', '.join(sorted(self.known))}" if self.known else "the config file names none"
            raise AgentUnusable(f"say which agent: {there}")
        if name not in self.known:
            there = ", ".join(sorted(self.known)) or "none"
            raise AgentUnusable(f"there is no agent {name!r} in the config file; there are: {there}")
        return self.known[name]

    def again(self, name: str, session: str) -> Agent:
        """The agent that a session had before, as the config file says it is run. A store names it, and no more: a
        command that stands in one may be anybody's, and is never run."""
        if name in self.known:
            return self.known[name]
        raise AgentUnusable(
            f"session {session!r} had the agent {name!r}, which the config file does not name, and a command is never "
            f"taken from a store; name it there under [agents.{name}], or give its command again: "
            f"`onefold run --session {shlex.quote(session)} -- COMMAND`"
        )


def agents(settings: Mapping[str, Any]) -> Agents:
    """The agents of a config file:

    [agents.opencode]
    command = "opencode acp"            # or a list of words
    env = { OPENCODE_CONFIG = "/etc/opencode.json" }
    pass_env = ["ONEFOLD_STORE"]        # what is onefold's own, and this agent may have
    cwd = "/home/me/project"
    folders = ["/home/me/other"]        # where clients of a server may have it work, too
    mcp_servers = false                 # whether they may name MCP servers, which it then runs

    [rooms]
    idle = 30                           # minutes after which a room with nobody and nothing in it ends; 0: never

    [frames]
    days = 30                           # how long raw frames are kept
    redact = "my_module:without_keys"   # what is kept of a frame
    """
    tables = settings.get("agents", {})
    if not isinstance(tables, dict):
        raise _wrong("agents is not a table; write [agents.NAME]")
    frames = settings.get("frames", {})
    if not isinstance(frames, dict):
        raise _wrong("frames is not a table; write [frames]")
    days = frames.get("days", 30.0)
    if isinstance(days, bool) or not isinstance(days, int | float) or days <= 0:
        raise _wrong(f"frames.days = {days!r} is invalid; write a number of days above 0")
    known = {name: _agent(name, table) for name, table in tables.items()}
    keys = frozenset(_key_variables(settings.get("summarizer")))
    return Agents(known, _redact(frames), float(days), keys, idle=_idle(settings.get("rooms", {})))


def _idle(rooms: Any) -> float:
    if not isinstance(rooms, dict) or set(rooms) - {"idle"}:
        raise _wrong("rooms is a table with one option: [rooms] with idle = 30")
    idle = rooms.get("idle", 30.0)
    if isinstance(idle, bool) or not isinstance(idle, int | float) or not 0 <= idle < math.inf:
        raise _wrong(f"rooms.idle = {idle!r} is not a number of minutes; write 30, or 0 for rooms that never end")
    return float(idle)


def _key_variables(table: Any) -> Iterator[str]:
    """The variables that a summarizer and its fallbacks have their keys in. Whether the table makes sense otherwise is
    for others to say."""
    for name, value in table.items() if isinstance(table, dict) else ():
        if name == "api_key_env" and isinstance(value, str):
            yield value
        elif name == "fallback":
            for other in value if isinstance(value, list) else [value]:
                yield from _key_variables(other)


def _agent(name: str, table: Any) -> Agent:
    if not _NAME.fullmatch(name):
        raise _wrong(f"{name!r} is not a valid agent name; use letters, digits, dots and dashes")
    if not isinstance(table, dict):
        raise _wrong(f"agents.{name} is not a table; write [agents.{name}]")
    if unknown := sorted(set(table) - set(_OPTIONS)):
        raise _wrong(f"agents.{name}: {', '.join(unknown)} is not an option; options are: {', '.join(_OPTIONS)}")
    env = table.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(v, str) for v in env.values()):
        raise _wrong(f'agents.{name}.env is a table of texts: env = {{ KEY = "…" }}')
    pass_env = table.get("pass_env", [])
    if not isinstance(pass_env, list) or not all(isinstance(v, str) and v for v in pass_env):
        raise _wrong(f'agents.{name}.pass_env is a list of names: pass_env = ["ONEFOLD_STORE"]')
    cwd = table.get("cwd")
    if cwd is not None and not isinstance(cwd, str):
        raise _wrong(f"agents.{name}.cwd is a folder, in quotes")
    folders = table.get("folders", [])
    if not isinstance(folders, list) or not all(isinstance(v, str) and _is_whole(v) for v in folders):
        raise _wrong(f'agents.{name}.folders is a list of absolute paths: folders = ["/home/me/project"]')
    mcp_servers = table.get("mcp_servers", False)
    if not isinstance(mcp_servers, bool):
        raise _wrong(f"agents.{name}.mcp_servers is true or false")
    command = words(table.get("command"), f"agents.{name}.command")
    return Agent(name, command, env, cwd, tuple(pass_env), tuple(folders), mcp_servers)


def _is_whole(path: str) -> bool:
    return path == "~" or path.startswith("~/") or Path(path).is_absolute()


def words(command: object, where: str = "command") -> tuple[str, ...]:
    """A command as its words."""
    match command:
        case str() if command.strip():
            return tuple(shlex.split(command))
        case [*parts] if parts and all(isinstance(p, str) and p for p in parts):
            return tuple(str(p) for p in parts)
    raise _wrong(f'{where} = {command!r} is not a command; write {where} = "opencode acp", or a list of words')


def shown(command: Sequence[str]) -> list[str]:
    """What of a command is written down: the program, and its options without what they are set to. Any other word may
    be a key, and no rule tells which."""
    return [*command[:1], *(_option(word) for word in command[1:])]


def _option(word: str) -> str:
    name, sign, _ = word.partition("=")
    if _OPTION.fullmatch(name):
        return f"{name}=…" if sign else name
    return f"{word[:2]}…" if _SHORT.match(word) else "…"


def adhoc(command: Sequence[str], *, cwd: str | None = None) -> Agent:
    """An agent that is named by its command alone."""
    name = command[0].replace("\\", "/").rsplit("/", 1)[-1]
    return Agent(name if _NAME.fullmatch(name) else "agent", tuple(command), cwd=cwd)


KNOWN: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "opencode": (("opencode", "acp"),),
    "claude": (("claude-agent-acp",), ("claude-code-acp",)),
    "codex": (("codex-acp",),),
    "hermes": (("hermes-acp",), ("hermes", "acp")),
}
"""Agents that need no config: by the name a person calls them, the commands by which they speak ACP."""


def well_known(name: str, path: str | None = None) -> Agent:
    """An agent by the name that everybody calls it, if it is installed here."""
    for command in KNOWN[name]:
        if shutil.which(command[0], path=path) is not None:
            return Agent(name, command)
    programs = " or ".join(repr(command[0]) for command in KNOWN[name])
    raise AgentUnusable(
        f"the agent {name!r} is not installed here: {programs} is not found. Install it, or give its command: "
        "`onefold run -- COMMAND`"
    )


def _redact(frames: Mapping[str, Any]) -> Redact | None:
    named = frames.get("redact")
    if named is None:
        return None
    module, _, function = str(named).partition(":")
    try:
        found: Redact = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise _wrong(f'frames.redact = {named!r} cannot be used ({error}); write "module:function"') from None
    return found


def _wrong(what: str) -> AgentUnusable:
    return AgentUnusable(f"the config file: {what}")
