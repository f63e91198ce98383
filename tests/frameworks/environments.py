"""One environment a framework, in a folder below `.frameworks`, made by pip at first use.

They do not all fit together, and each is to be had without the others. Versions are pinned; another pin, or other
needs of this project, installs anew. This project is installed editable, so a change of it is tried as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".frameworks"
_TOOLS = ("filelock>=4.2", "mypy>=2.0,<3", "pytest>=9.0", "pytest-timeout>=2.4")
"""What the tests need themselves: their helpers know every kind of store."""
_PATIENCE = 600.0


class CannotInstall(Exception):
    """A framework is not to be had on this machine."""


@dataclass(frozen=True)
class Framework:
    """What is installed and tried. A new framework is a module, a test, a page, an example, and one of these."""

    name: str
    extras: tuple[str, ...]
    packages: tuple[str, ...]
    """Pinned: what is tried is known."""
    examples: tuple[str, ...]
    """Not named like a package that they import: the folder of a script comes first where Python looks."""
    pages: tuple[str, ...]
    module: str | None = None
    lowest: bool = False
    """Whether it is tried in the oldest versions that this project says it takes."""

    @property
    def folder(self) -> Path:
        return FOLDER / (f"{self.name}-lowest" if self.lowest else self.name)

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    @property
    def test(self) -> Path:
        return ROOT / f"tests/frameworks/test_{self.name.replace('-', '_')}.py"

    @property
    def typed(self) -> list[str]:
        """What is type-checked where the framework's own types are known."""
        module = (f"src/onefold/integrations/{self.module}.py",) if self.module else ()
        return [*module, *self.examples, str(self.test.relative_to(ROOT))]


def _integration(name: str, package: str, example: str) -> Framework:
    page, module = f"docs/how-to/{name}.md", name.replace("-", "_")
    return Framework(name, (name,), (package,), (f"examples/{example}.py",), (page,), module)


FRAMEWORKS = {
    framework.name: framework
    for framework in (
        Framework(
            "loops",
            ("openai", "anthropic"),
            ("openai==3.49.0", "anthropic==2.8.0"),
            ("examples/openai_loop.py", "examples/anthropic_loop.py"),
            ("docs/how-to/openai.md", "docs/how-to/anthropic.md"),
        ),
        _integration("openai-agents", "openai-agents==0.24.0", "openai_agents"),
        _integration("claude-agent", "claude-agent-sdk==0.2.182", "claude_agent"),
        _integration("langchain", "langchain==1.4.5", "langchain_agent"),
        _integration("pydantic-ai", "pydantic-ai-slim==2.66.0", "pydantic_ai_agent"),
        _integration("google-adk", "google-adk==2.13.0", "google_adk"),
    )
}


def lowest(framework: Framework) -> Framework:
    """The same with the oldest versions that its extras allow, so that these bounds are tried and not believed."""
    bounds = [requirement.partition(">=") for requirement in _needed(framework.extras)]
    return replace(framework, packages=tuple(f"{name}=={oldest}" for name, _, oldest in bounds), lowest=True)


def install(framework: Framework) -> None:
    """Makes the environment, if it is not there as it is wanted. Raises CannotInstall."""
    stamp, wanted = framework.folder / ".installed", _wanted(framework)
    with _alone():
        if stamp.exists() and stamp.read_text() == wanted and framework.python.exists():
            return
        shutil.rmtree(framework.folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", "--clear", str(framework.folder)], framework)
        project = f"{ROOT}[{','.join(('cli', *framework.extras))}]"
        pip = [str(framework.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--editable", project, *framework.packages, *_TOOLS], framework)
        stamp.write_text(wanted)


def _wanted(framework: Framework) -> str:
    needed = [*_project()["dependencies"], *_needed(framework.extras)]
    return "\n".join((*needed, *framework.packages, *_TOOLS))


def _needed(extras: Sequence[str]) -> list[str]:
    optional = _project()["optional-dependencies"]
    return [package for extra in extras for package in optional[extra]]


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process installs at a time."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], framework: Framework) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=FOLDER,
            env={**os.environ, "PIP_NO_INPUT": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(f"{framework.name} cannot be installed here: {error}") from error
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise CannotInstall(f"{framework.name} cannot be installed here: {' '.join(said[-8:])}")
