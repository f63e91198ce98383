"""How each real agent is started: against a model on loopback, in a home of its own, with no way out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from onefold.model import Json
from tests.real.acp import Client
from tests.real.model import DirectedModel
from tests.real.outside import Outside
from tests.real.programs import installed

WINDOW = 32_000
"""The context of the model, in tokens, for those that take any."""


@dataclass(frozen=True)
class Agent:
    """One agent, ready to be started, by a test or by onefold."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    """All of it."""
    folder: Path
    """Where it works."""
    store: Path
    """Its own database or folder of sessions."""

    def start(self) -> Client:
        return Client(self.command, self.environment, self.folder)


Make = Callable[[Path, DirectedModel, Outside], Agent]


def private_home(home: Path, outside: Outside, **more: str) -> dict[str, str]:
    """The whole environment of a program: nothing of the one who runs the tests, no key and no home."""
    places = {f"XDG_{name}_HOME": name.lower() for name in ("DATA", "CONFIG", "STATE", "CACHE")}
    for folder in ("work", "tmp", *places.values()):
        (home / folder).mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "DO_NOT_TRACK": "1",
        **{name: str(home / place) for name, place in places.items()},
        **outside.environment,
        **more,
    }


# ---------------------------------------------------------------------- OpenCode


def opencode(home: Path, model: DirectedModel, outside: Outside, *, window: int = WINDOW) -> Agent:
    """`opencode acp`. No titles are made, so that every question to the model is a turn's or a compaction's."""
    program = installed("opencode")
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "local/model",
        "small_model": "local/model",
        "agent": {"title": {"disable": True}},
        "provider": {
            "local": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Local",
                "options": {"baseURL": model.openai, "apiKey": "none"},
                "models": {
                    "model": {"name": "Model", "tool_call": True, "limit": {"context": window, "output": 4_000}}
                },
            }
        },
    }
    environment = private_home(
        home,
        outside,
        OPENCODE_CONFIG=str(written(home / "opencode.json", settings)),
        OPENCODE_DB=str(home / "opencode.db"),
        npm_config_offline="true",
        **{
            f"OPENCODE_DISABLE_{what}": "1"
            for what in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE", "CLAUDE_CODE")
        },
    )
    return Agent("opencode", (str(program), "acp"), environment, home / "work", home / "opencode.db")


# ---------------------------------------------------------------------- Hermes


def hermes(home: Path, model: DirectedModel, outside: Outside, *, in_place: bool = True) -> Agent:
    """`hermes-acp`. Compactions keep the session's id, or begin a session with a new one."""
    program = installed("hermes")
    settings = {
        "model": {
            "provider": "custom",
            "default": "model",
            "base_url": model.openai,
            "api_key": "none",
            "context_length": 65_536,
        },
        "compression": {"in_place": in_place, "threshold": 0.8, "protect_last_n": 4, "protect_first_n": 1},
        "security": {"tirith_enabled": False},  # a scanner of commands, which it would download
        "auxiliary": {"title_generation": {"enabled": False}},
        "memory": {"memory_enabled": False, "user_profile_enabled": False},
    }
    (home / "hermes").mkdir(parents=True, exist_ok=True)
    written(home / "hermes/config.yaml", settings)
    environment = private_home(home, outside, HERMES_HOME=str(home / "hermes"))
    return Agent("hermes", (str(program),), environment, home / "work", home / "hermes/state.db")


# ---------------------------------------------------------------------- Codex


def codex(home: Path, model: DirectedModel, outside: Outside, *, window: int = WINDOW) -> Agent:
    """`codex-acp`, which starts Codex itself, with a provider of its own that speaks Responses."""
    node, program = installed("node"), installed("codex")
    folder = home / "codex"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(
        f"""
model = "model"
model_provider = "local"
model_context_window = {window}
model_auto_compact_token_limit = {window * 9 // 10}
check_for_update_on_startup = false
approval_policy = "never"
sandbox_mode = "danger-full-access"

[analytics]
enabled = false

[features]
apps = false
plugins = false
remote_plugin = false
plugin_discovery_prefetch = false

[model_providers.local]
name = "Local"
base_url = "{model.openai}"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 0
stream_max_retries = 0
"""
    )
    environment = private_home(home, outside, CODEX_HOME=str(folder), MODEL_PROVIDER="local", NO_BROWSER="1")
    return Agent("codex", (str(node), str(program)), environment, home / "work", folder / "sessions")


# ---------------------------------------------------------------------- Claude


def claude(home: Path, model: DirectedModel, outside: Outside) -> Agent:
    """`claude-agent-acp`, which starts Claude Code itself."""
    node, program = installed("node"), installed("claude")
    folder = home / "claude"
    folder.mkdir(parents=True, exist_ok=True)
    environment = private_home(
        home,
        outside,
        ANTHROPIC_BASE_URL=model.anthropic,
        ANTHROPIC_API_KEY="none",
        CLAUDE_CONFIG_DIR=str(folder),
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_TELEMETRY="1",
        DISABLE_AUTOUPDATER="1",
        DISABLE_ERROR_REPORTING="1",
        IS_SANDBOX="1",
    )
    return Agent("claude", (str(node), str(program)), environment, home / "work", folder / "projects")


AGENTS: Mapping[str, Make] = {"opencode": opencode, "hermes": hermes, "codex": codex, "claude": claude}


def written(path: Path, settings: Json) -> Path:
    """As JSON, which YAML reads too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=2))
    return path
