"""The line that a person types on a terminal: keys in, lines out."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from onefold.cli.line_editor import Entered, LineEditor

LEFT, RIGHT, UP, DOWN = b"\x1b[D", b"\x1b[C", b"\x1b[A", b"\x1b[B"


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (b"hello\r", "hello"),
        ("größe 好\r".encode(), "größe 好"),
        (b"helo" + LEFT + b"l\r", "hello"),
        (b"hellox\x7f\r", "hello"),
        (b"xhello\x01\x1b[3~\r", "hello"),
        (b"\x05oh\x01n" + RIGHT + RIGHT + b"!\r", "noh!"),
        (b"say it twice\x17\r", "say it"),
        (b"all of it\x15gone\r", "gone"),
        (b"keep this" + LEFT * 5 + b"\x0b\r", "keep"),
        (b"one\x1b\rtwo\r", "one\ntwo"),
        (b"\x1b[200~one\rtwo\x1b[201~\r", "one\ntwo"),
        (b"a\x1b[15~b\x00\r", "ab"),
    ],
)
def test_keys_become_a_line(typed: bytes, line: str) -> None:
    assert LineEditor().feed(typed) == [Entered(line)]
    editor = LineEditor()
    assert [key for byte in typed for key in editor.feed(bytes([byte]))] == [Entered(line)], "however they arrive"


def test_ctrl_c_and_ctrl_d_are_keys_and_ctrl_d_ends_only_an_empty_line() -> None:
    editor = LineEditor()

    assert editor.feed(b"ab\x03") == ["interrupt"]
    assert editor.feed(LEFT + b"\x04\r") == [Entered("a")]
    assert editor.feed(b"\x04") == ["end"]


def test_lines_of_the_past_come_back_and_what_was_begun_too() -> None:
    editor = LineEditor()
    editor.feed(b"first\rsecond\rsecond\rbegun")

    editor.feed(UP)
    assert editor.text == "second"
    editor.feed(UP + UP + UP)
    assert editor.text == "first"
    editor.feed(DOWN * 5)
    assert editor.text == "begun"


def test_the_line_is_drawn_with_its_cursor_and_never_wider_than_the_terminal() -> None:
    editor = LineEditor()
    editor.feed(b"abc" + LEFT)
    assert editor.drawn("> ", 20) == "\r\x1b[K> abc\x1b[1D"

    editor.feed(b"\x05" + b"x" * 100)
    drawn = editor.drawn("> ", 20).removeprefix("\r\x1b[K")
    assert len(drawn) <= 20
    assert drawn.endswith("xxx")


@given(st.binary(max_size=60), st.integers(12, 80))
def test_whatever_is_typed_nothing_that_acts_on_a_terminal_is_drawn(typed: bytes, width: int) -> None:
    editor = LineEditor()
    editor.feed(typed)

    drawn = editor.drawn("> ", width).removeprefix("\r\x1b[K").split("\x1b[")[0]

    assert drawn.isprintable()
    assert 0 <= editor.at <= len(editor.text)
