"""The piece of a text that shows why it was found, with the positions to highlight."""

from __future__ import annotations

from collections.abc import Iterator

from onefold.model import Ranges
from onefold.recall.query import Query, Row, fits
from onefold.recall.tokenizer import placed

WIDTH = 200


def excerpt(text: str, query: Query, width: int = WIDTH) -> tuple[str, Ranges]:
    """At most so many characters around the first place that counts, on one line, and where in it to mark.

    Marks are stretches of the excerpt, from a character up to another one.
    """
    found = _joined(sorted({*_places(text, query)}))
    first = _best(found, width)
    start = max(0, first - width // 4)
    if start and (space := text.find(" ", start, first)) >= 0:
        start = space + 1
    piece = text[start : start + width]
    stop = start + len(piece)
    opening, closing = "…" if start else "", "…" if stop < len(text) else ""
    shift = len(opening) - start
    line = "".join(" " if c.isspace() else c for c in piece)  # one for one, so that the places stay
    return opening + line + closing, tuple((a + shift, b + shift) for a, b in found if a >= start and b <= stop)


def _joined(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places that overlap are one."""
    joined: list[tuple[int, int]] = []
    for start, stop in found:
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined


def _best(found: list[tuple[int, int]], width: int) -> int:
    """Where the most places lie close together; the first of such."""
    best, most = 0, 0
    for i, (place, _) in enumerate(found[:500]):
        near = sum(1 for a, _ in found[i : i + 20] if a < place + width * 3 // 4)
        if near > most:
            best, most = place, near
    return best


def _places(text: str, query: Query) -> Iterator[tuple[int, int]]:
    if not query.wanted:
        at = text.find(query.literal) if query.literal else -1
        if at >= 0:
            yield at, at + len(query.literal)
        return
    row = [*placed(text)]
    said = [word for word, _, _ in row]
    alone: set[str] = set()
    starts: list[str] = []
    longer: dict[str, list[tuple[Row, bool]]] = {}
    for phrase in query.shown:
        alone |= phrase.forms.keys()
        starts += phrase.starts
        for words, begins in ((phrase.words, phrase.begins), *((other, False) for other, _ in phrase.rows)):
            if len(words) > 1:
                longer.setdefault(words[0], []).append((words, begins))
            elif begins:
                starts += words
            else:
                alone |= {*words}
    begun = tuple(starts)
    for i, (word, start, stop) in enumerate(row):
        if word in alone or (begun and word.startswith(begun)):
            yield start, stop
        for words, begins in longer.get(word, ()):
            if fits(words, begins, said[i : i + len(words)]):
                yield start, row[i + len(words) - 1][2]
