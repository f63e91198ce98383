"""What commands print with. The text of a session is untrusted: it is shown, and never obeyed by the terminal."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from onefold.errors import OnefoldError, OutcomeUnknown, SessionNotFound, StoreError
from onefold.export import plain
from onefold.messages import encode
from onefold.model import Json

if TYPE_CHECKING:
    from rich.console import Console

# Controls, line separators, signs that turn the direction of writing, and surrogates: a terminal may act on them.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_WIDE = 100_000


def safe(text: str) -> str:
    """A text as one line in which everything that could act on a terminal is spelled out."""
    return _UNSAFE.sub(_spelled, text)


def safe_lines(text: str) -> list[str]:
    """A text as lines, each of them safe. Only a newline makes a new one; tabs are spaces."""
    return [safe(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n")]


def short(text: str, width: int) -> str:
    """The beginning of a text as one safe line, at most so many characters wide."""
    line = safe(" ".join(text[: width * 8].split()))
    return line if len(line) <= width and len(text) <= width * 8 else line[: max(0, width - 1)] + "…"


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    names = {10: "\\n", 13: "\\r", 9: "\\t"}
    return names.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _escape(found: re.Match[str]) -> str:
    return found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}"


@cache
def console(*, stderr: bool = False) -> Console:
    """The terminal, with colour if it is one; a pipe gets every line whole, whatever its length."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            _reader_left()

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDE
    return Quiet(stderr=stderr, markup=False, highlight=False, emoji=False, width=width, legacy_windows=False)


def say(text: str = "", style: str | None = None) -> None:
    """One line for people, on stdout."""
    _never_fail(sys.stdout)
    console().print(text, style=style, soft_wrap=True)


def text_width() -> int:
    """How wide a line may be: the terminal's width, or a fixed one in a pipe."""
    return console().width if on_terminal() else 120


def on_terminal() -> bool:
    return sys.stdout.isatty()


def raw(text: str) -> None:
    """Text for programs, on stdout, as UTF-8 whatever the terminal's encoding is. It is JSON, or ids: what a terminal
    could act on is sent to one as JSON's own escapes, which mean the same. A pipe gets it as it is."""
    try:
        sys.stdout.buffer.write((_UNSAFE.sub(_escape, text) if on_terminal() else text).encode())
    except BrokenPipeError:
        _reader_left()


def as_json(value: Json) -> None:
    """One JSON document on one line."""
    raw(encode(plain(value)) + "\n")


def as_json_array(values: Iterable[Json]) -> None:
    """One JSON array, one item a line, written as it comes: a journal may be long."""
    raw("[")
    for i, value in enumerate(values):
        raw((",\n" if i else "\n") + encode(value))
    raw("\n]\n")


def line_on_stderr(text: str) -> None:
    _never_fail(sys.stderr)
    sys.stderr.write(f"onefold: {safe(text)}\n")


def refuse(text: str) -> NoReturn:
    """Ends the command with exit code 1: the request was valid, and rejected."""
    line_on_stderr(text)
    raise SystemExit(1)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """What a session rejects ends the command with 1. A session or store that is missing does not: that is 2."""
    try:
        yield
    except (StoreError, SessionNotFound, OutcomeUnknown):
        raise
    except OnefoldError as error:
        refuse(str(error))


def prepare() -> None:
    """Before the first word: a program may be started without stdout or stderr."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  it is open as long as the program


def finish() -> None:
    """Sends what is still in the buffer, before the interpreter would complain that it cannot."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _to_nowhere()
    except OSError:
        _to_nowhere()
        raise


def send() -> None:
    """Sends what is still in the buffer, before somebody is told that it was written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _reader_left()


def _reader_left() -> NoReturn:
    """`onefold show x | head` closed the pipe: not a failure, and nobody is left to tell."""
    _to_nowhere()
    raise SystemExit(0)


def _to_nowhere() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _never_fail(stream: object) -> None:
    if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
        reconfigure(errors="backslashreplace")
