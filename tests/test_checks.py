"""What is wrong with a summary, by name, before it may replace anything (F60, F63, F42)."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from onefold import Summary
from onefold.compaction.checks import complaint
from onefold.messages.codecs import estimate


def about(text: str, *, cut_off: bool = False, previous: str | None = None, replaces: int = 10_000) -> str | None:
    refusal = complaint(Summary(text, cut_off=cut_off), previous=previous, replaces=replaces, shrink=0.1)
    return None if refusal is None else refusal.words


@pytest.mark.parametrize("text", ["", "   ", "\n\t\n", "\u2003"])
def test_an_empty_summary_is_refused_f60(text: str) -> None:
    assert about(text) == "the summary is empty"


def test_a_summary_that_its_maker_calls_cut_off_is_refused_f60() -> None:
    assert about("The user asked for", cut_off=True) == "the summary was cut off before its end"


def test_a_summary_that_ends_inside_a_code_block_is_refused_f60() -> None:
    assert about("It ran:\n```\nmake test") == "the summary was cut off inside a code block"
    assert about("It ran:\n```\nmake test\n```\nand passed.") is None


@pytest.mark.parametrize(
    "text",
    [
        "Error",
        "ERROR!",
        "Error: the context is too long",
        "error (429)",
        "Error 429",
        "Internal Server Error",
        "Internal server error: try again",
        "**Error:** upstream",
        "RateLimitError: slow down",
        "openai.BadRequestError: Error code: 400",
        "ValueError('x')",
        "Exception: boom",
        "Traceback (most recent call last):\n  File ...",
        "HTTP 500",
        "HTTP/1.1 503 Service Unavailable",
        "status=502",
        "Error code: 400 - {'error': {'message': 'x'}}",
        "429 Too Many Requests",
        "503 Service Unavailable",
        "502 Bad Gateway",
        "504 Gateway Timeout",
        "Service Unavailable",
        "Rate limit exceeded, please retry",
        "Rate limit reached for requests",
        '{"error": {"type": "overloaded_error", "message": "Overloaded"}}',
        '{"type": "error", "error": {"type": "overloaded_error"}}',
        '{"error":"no credit"}',
        '{"message": "Forbidden"}',
    ],
)
def test_an_error_text_is_no_summary_f60(text: str) -> None:
    assert str(about(text)).startswith("the summary is an error text: ")


@pytest.mark.parametrize(
    "text",
    [
        "Error handling in parser.py was rewritten; the tests pass.",
        "Errors in the build were fixed by pinning the compiler.",
        "The user asked why the server answers with Error: 500. It was a missing header.",
        "Rate limit handling was added to the client, with a test.",
        "500 files were renamed; the build is green.",
        "Exceptions are now raised instead of returned.",
        "Status: the work is done; 3 tests remain.",
        "Code review found two problems, both fixed.",
        "Message queue and worker now share one connection.",
    ],
)
def test_a_summary_that_speaks_of_errors_is_fine(text: str) -> None:
    assert about(text) is None


def test_a_long_summary_may_begin_with_the_word() -> None:
    assert about("Error: 500 is what the user saw first. " + "Then the cause was found. " * 40) is None


@pytest.mark.parametrize("again", ["All is well.", "  all is\n\nWELL.  ", "ALL IS WELL."])
def test_the_same_summary_as_the_one_before_is_refused_f63(again: str) -> None:
    assert about(again, previous="All is well.") == "the summary is the same as the one before"
    assert about(again, previous="All was well.") is None


def test_a_summary_that_is_not_smaller_enough_is_no_progress_f42() -> None:
    assert str(about("x" * 4000, replaces=1000)).startswith("no progress: a summary of 1000 tokens for 1000")
    assert str(about("x" * 3604, replaces=1000)).startswith("no progress")
    assert about("x" * 3600, replaces=1000) is None


@given(st.text(st.characters(codec=None)), st.integers(0, 100), st.floats(0, 1))
@settings(max_examples=200)
def test_whatever_passes_is_smaller_than_what_it_replaces(text: str, replaces: int, shrink: float) -> None:
    found = complaint(Summary(text), previous=None, replaces=replaces, shrink=shrink)

    assert found is not None or 0 < estimate(text.strip()) <= replaces * (1 - shrink)
