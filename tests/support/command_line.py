"""Runs the command line in this process and in real ones."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import onefold
from onefold.cli import main
from onefold.cli.output import console

ODD = "lone \ud800, red \x1b[31m, back \u202e, bell \x07, [bold]no[/bold] :smile:\nsecond line"


def clean(folder: Path, **more: str) -> dict[str, str]:
    """An environment without settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ONEFOLD_", "XDG_", "COV_"))}
    return kept | {"HOME": str(folder), "NO_COLOR": "1", **more}


def program(folder: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The real program, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "onefold", *map(str, arguments)],
        cwd=folder,
        env=clean(folder, **environment),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def run(folder: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which takes a hundredth of the time: everything but the start is what it is."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n") for _ in range(2))
    argv = ["onefold", *map(str, arguments)]
    console.cache_clear()
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, clean(folder, **environment), clear=True),
        mock.patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return subprocess.CompletedProcess(argv, int(ended.value.code or 0), _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


def talk(path: Path, *, session: str = "talk", turns: int = 20) -> None:
    """A session with questions and long answers, worth compacting."""
    with onefold.open(path) as store:
        held = store.session(session)
        for i in range(turns):
            held.append({"role": "user", "content": f"question {i}"}, key=f"q{i}", actor="ada")
            held.append({"role": "assistant", "content": f"answer {i}: " + "word " * 120})


# ---------------------------------------------------------------------- what goes wrong


def assert_one_line(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """The exit code, nothing on stdout, and one line on stderr that says these things."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("onefold: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr
