"""Sessions with turns, and what is in view of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onefold import (
    Context,
    Segment,
    Session,
)
from onefold.journal.journal import Journal
from tests.conftest import running
from tests.support.helpers import said_in


def sight(context: Context) -> Any:
    """All of a context but for the segment it comes from, which every step back makes anew."""
    numbers = tuple("summary" if n == context.segment else n for n in context.numbers)
    return context.messages, context.tokens, numbers, context.formats, context.summary, context.left_out, context.notes


def looked(session: Session) -> Any:
    """What a session shows now. Its own count of that has to agree."""
    context = session.context()
    assert session.state.tokens == said_in(context)[1]
    return sight(context)


def fold(journal: Journal, text: str, cut: int | None = None) -> Segment:
    """A compaction of everything up to now, or up to a cut."""
    return journal.commit(running(journal), text, cut)


def nothing_changes(session: Session, act: Callable[[], object], error: type[Exception], match: str) -> None:
    before = session.state
    with pytest.raises(error, match=match):
        act()
    assert session.state == before
