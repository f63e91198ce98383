"""Commands that are printed for a person to copy: whatever is put into one is quoted for a shell."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from onefold.server.security.tokens import Tokens, TokensError
from tests.support.helpers import ROOT

OURS = {"scope", "after.number"}
"""What is put into a command and is none of anybody else's words."""


def put_into_commands() -> Iterator[tuple[str, str]]:
    """Of each text in the source that has a command in backticks: where it stands, and what is put into the command."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.JoinedStr):
                continue
            whole = "".join(
                str(part.value) if isinstance(part, ast.Constant) else f"\0{n}\0" for n, part in enumerate(node.values)
            )
            for command in re.findall(r"`([a-z][^`\n]* [^`]*)`", whole):
                for number in re.findall(r"\0(\d+)\0", command):
                    part = node.values[int(number)]
                    assert isinstance(part, ast.FormattedValue)
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", ast.unparse(part.value)


def test_whatever_is_put_into_a_printed_command_is_quoted() -> None:
    found = list(put_into_commands())

    assert len(found) > 5
    assert [(where, what) for where, what in found if "quote" not in what and what not in OURS] == []


@pytest.mark.parametrize("wide", ["file", "folder"])
def test_the_remedy_for_a_file_of_tokens_can_be_copied_whatever_its_path(tmp_path: Path, wide: str) -> None:
    folder = tmp_path / "a; touch OWNED #"
    folder.mkdir(mode=0o700)
    file = folder / "it's $HOME.json"
    Tokens(file).new("a", ["read"])
    (file if wide == "file" else folder).chmod(0o777)

    with pytest.raises(TokensError) as refused:
        Tokens(file).find("x")

    (command,) = re.findall("`(chmod .*)`", str(refused.value))
    path = str(file if wide == "file" else folder)
    assert shlex.split(command) == ["chmod", "600" if wide == "file" else "700", path]
