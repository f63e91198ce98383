"""Where each peer runs: the environments of `frameworks`, with the stores that a framework keeps in packages apart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.frameworks.environments import FOLDER, FRAMEWORKS, ROOT, CannotInstall, install

_MORE = {
    "langchain": ("langgraph-checkpoint-sqlite==3.1.2",),
    "google-adk": ("sqlalchemy[asyncio]==2.1.8", "aiosqlite==0.22.1"),
}
_SHOWN = {
    "langchain": ("langchain", "langgraph", "langgraph-checkpoint-sqlite"),
    "google-adk": ("google-adk", "sqlalchemy"),
    "openai-agents": ("openai-agents",),
    "pydantic-ai": ("pydantic-ai-slim",),
    "claude-agent": ("claude-agent-sdk",),
    "hermes": ("hermes-agent",),
}
_HERMES = ("hermes-agent==0.19.0",)
_HERMES_NEEDS = ("requests==2.33.0", "pyyaml==6.0.3", "httpx[socks]==0.28.1", "openai==2.24.0")
"""What its routine for compression imports; the rest of what it depends on has no part in this."""
_PATIENCE = 600.0


def python(environment: str) -> Path:
    """The Python of an environment, made at first use. Raises CannotInstall."""
    if environment == "onefold":
        return Path(sys.executable)
    if environment == "hermes":
        return _hermes()
    framework = FRAMEWORKS[environment]
    install(framework)
    _stamped(framework.folder, _MORE.get(environment, ()))
    return framework.python


def versions(environment: str) -> str:
    """What is measured there."""
    names = _SHOWN.get(environment, ())
    code = f"import importlib.metadata as m, json; print(json.dumps([m.version(n) for n in {names!r}]))"
    said = subprocess.run([str(python(environment)), "-c", code], capture_output=True, text=True, check=True).stdout
    return ", ".join(f"{name} {version}" for name, version in zip(names, json.loads(said), strict=True))


def _hermes() -> Path:
    folder = FOLDER / "hermes"
    FOLDER.mkdir(exist_ok=True)
    if not (folder / "bin/python").exists():
        _run([sys.executable, "-m", "venv", str(folder)], "hermes")
    _stamped(folder, _HERMES_NEEDS)
    _stamped(folder, _HERMES, "--no-deps")
    return folder / "bin/python"


def _stamped(folder: Path, packages: tuple[str, ...], *options: str) -> None:
    """Installs what is not there yet."""
    stamp, wanted = folder / f".peers{''.join(options)}", "\n".join(packages)
    if not packages or (stamp.exists() and stamp.read_text() == wanted):
        return
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options]
    _run([*pip, *packages], folder.name)
    stamp.write_text(wanted)


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    if done.returncode != 0:
        raise CannotInstall(f"{name} cannot be installed here: {' '.join(done.stderr.splitlines()[-8:])}")
