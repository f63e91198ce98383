"""Pages whose code is run: what blocks they have, what a block prints, and whether that is what the page shows."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = frozenset({"sh", "bash", "console", "shell"})
TRIED = ("onefold ", "python ", "mkdir ", "mv ", "cp ")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    shows: str | None
    """What the page says the block prints: a `text` block right behind it."""

    @property
    def file(self) -> str | None:
        """The name of the file that a Python block is to be saved as, by its first line."""
        found = re.match(r"# (\w+\.py)\n", self.text) if self.language == "python" else None
        return found[1] if found else None

    @property
    def commands(self) -> list[str]:
        lines = self.text.splitlines() if self.language in _SHELL else []
        return [line for line in lines if line.strip() and not line.startswith("#")]

    @property
    def tried(self) -> bool:
        """Commands of this project are tried; how to clone it or to install Python is not."""
        return bool(self.commands) and all(line.startswith(TRIED) for line in self.commands)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    blocks = []
    for this, behind in itertools.zip_longest(found, found[1:]):
        line = text.count("\n", 0, this.start()) + 1
        shown = behind and behind[1] == "text" and not text[this.end() : behind.start()].strip()
        blocks.append(Block(page, line, this[1], this[2], behind[2] if shown else None))
    return blocks


def prose_of(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def run_page(page: Path, folder: Path, of: list[Block] | None = None) -> None:
    """One page is one story: its blocks run in order, in one folder, Python blocks in one namespace."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    environment = _environment(folder)

    for block in blocks_of(page) if of is None else of:
        printed = _try(block, namespace, environment, folder)
        if printed is not None and block.shows is not None:
            assert _matches(printed, block.shows), f"{name_of(page)}:{block.line} printed\n{printed}"


def _environment(folder: Path) -> dict[str, str]:
    """No settings of whoever runs the tests, and the commands of this environment first. Without buffers, lines of two
    commands at once would be mixed."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ONEFOLD_") and name != "PYTHONUNBUFFERED"
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    homes = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(folder))
    return kept | homes | {"PATH": path, "COLUMNS": "120", "NO_COLOR": "1"}


def _try(block: Block, namespace: dict[str, Any], environment: dict[str, str], folder: Path) -> str | None:
    """What a block prints; None if it is none to try."""
    if block.file is not None:
        (folder / block.file).write_text(block.text)
    elif block.language == "python":
        return _run_python(block, namespace, folder)
    elif block.tried:
        done = subprocess.run(
            ["sh", "-e", "-c", block.text],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{name_of(block.page)}:{block.line}\n{done.stdout}{done.stderr}"
        return done.stdout
    return None


def _run_python(block: Block, namespace: dict[str, Any], folder: Path) -> str:
    code = compile("\n" * block.line + block.text, str(block.page), "exec", dont_inherit=True)
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def _matches(printed: str, shown: str) -> bool:
    """Line by line; … stands for whatever differs from run to run."""
    pattern = ".*?".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
