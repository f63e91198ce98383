"""Takes messages apart into statements: one sentence or line each, who says it, and whether it is only shown.

What stands in code, in a block quote or in a pasted document is shown, not said: it is data, whoever sends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from onefold.compaction.subjects import word_set
from onefold.messages import codec
from onefold.messages.codecs import PLAIN
from onefold.messages.said import ANSWERS, Said, Text, objects
from onefold.model import Record

PERSON = "person"
AGENT = "agent"
TOOL = "tool"

_PERSONS = frozenset({"user", "system", "developer", "human"})
LONGEST = 1_000
"""A statement is no longer than that, in characters: what has no punctuation is taken apart between words."""


READ = 200_000
"""Of a longer text the beginning and the end are read, half of that each: it is a document with words around it."""


class Statement(NamedTuple):
    text: str
    """As it was said, but for white space."""
    voice: str
    source: int
    shown: bool = False
    """Code, a quotation, a document: what it says is nobody's word here."""
    heading: str = ""
    """The line with a colon that it is listed under."""


def said(record: Record) -> Said:
    return codec(record.format or PLAIN).parse(record.body)


def voice(role: str) -> str:
    return PERSON if role in _PERSONS else AGENT if role in ANSWERS else TOOL


def spoken(record: Record, parsed: Said) -> Iterator[Statement]:
    """What the plain text of a message states. Calls, results and reasoning are not spoken."""
    who = voice(parsed.role)
    if record.format == "anthropic" and parsed.role == "tool":
        who = PERSON  # what a user says while a tool works comes in one message with its result
    attached = _attached(record) if record.format == "acp" else frozenset()
    for part in parsed.parts:
        if isinstance(part, Text):
            yield from statements(part.text, who, record.number, shown=part.text in attached)


def statements(text: str, who: str, source: int, *, shown: bool = False) -> Iterator[Statement]:
    """The statements of a text, one after the other."""
    if len(text) > READ:
        text = f"{text[: READ // 2]}\n\n{text[-READ // 2 :]}"
    for block in _blocks(text):
        for sentence in sentences(block.text):
            yield Statement(sentence, who, source, shown or block.shown, block.heading)


class _Block(NamedTuple):
    text: str
    shown: bool
    heading: str


_FENCE = re.compile(r"\s{0,8}(```|~~~)")
_BULLET = re.compile(r"\s{0,40}(?:[-*•\u2013+]|\(?\d{1,3}[.)]|\[[ x]\])\s+")
_ASSIGNED = re.compile(r"\s{0,40}[\w.-]{1,60}\s?[=:]\s?\S")
_GOES_ON = re.compile(r"\s{0,40}(?:unless|except|without|until|but|if|when|or|and|nor)\b", re.IGNORECASE)
_TAG = re.compile(r"\s{0,20}<([A-Za-z][\w-]{0,40})(?:\s[^<>]{0,300})?>")
_DOCUMENTS = word_set(
    "article attachment code content diff doc document documents email example examples file files html log logs "
    "mail output page paste pasted quote quotes result results search_results source stderr stdout transcript "
    "tool_output tool_result web_page webpage xml"
)


def _blocks(text: str) -> Iterator[_Block]:
    """Lines, with those joined that a sentence runs over."""
    heading = held = closing = ""
    for line in text.split("\n"):
        if closing:
            if closing in line.casefold():
                closing = ""
            else:
                yield _Block(line, True, heading)
            continue
        bullet = _BULLET.match(line)
        if held and (bullet or not _runs_on(held, line)):
            yield _Block(held, False, heading)
            held = ""
        closing = _closing(line)
        listed = bullet or _ASSIGNED.match(line)
        if closing or not line.strip():
            continue
        if _shows(line):
            yield _Block(line.lstrip("> \t"), True, "")
        elif _heads(line):
            heading = line.strip().lstrip("#*-• ").rstrip("*")
            yield _Block(heading, False, "")
        else:
            heading = heading if listed or held else ""
            held = f"{held} {line.strip()}" if held else line[bullet.end() :] if bullet else line
    if held:
        yield _Block(held, False, heading)


def _closing(line: str) -> str:
    """What ends the code or the document that begins on this line; nothing if none begins, or it ends here too."""
    if fence := _FENCE.match(line):
        return fence[1]
    tag = _TAG.match(line)
    if tag is None or (name := tag[1].casefold()) not in _DOCUMENTS or f"</{name}>" in line.casefold():
        return ""
    return f"</{name}>"


def _shows(line: str) -> bool:
    """Whether the line is a quotation, or a document by itself."""
    tag = _TAG.match(line)
    return line.lstrip().startswith(">") or (tag is not None and tag[1].casefold() in _DOCUMENTS)


def _runs_on(held: str, line: str) -> bool:
    """Whether a line goes on with the one before: that was long and broken, or a condition follows."""
    if not line.strip() or len(held) > LONGEST or held.rstrip().endswith((".", "!", "?", ":", ";")):
        return False
    begins = line.lstrip()[:1]
    return bool(_GOES_ON.match(line)) or (len(held) >= 50 and begins.islower())


def _heads(line: str) -> bool:
    stripped = line.strip().rstrip("*")
    return len(stripped) <= 80 and stripped.endswith(":") and not stripped.endswith("::")


_END = re.compile(r"""[.!?]{1,3}["'”\u2019)\]*`]{0,3}\s+|[。！？]+""")  # noqa: RUF001  full stops of Chinese and Japanese
_SHORTENED = re.compile(
    r"(?:(?<!\d )\b(?:e\.g|i\.e|etc|vs|approx|mr|mrs|ms|dr|prof|st|fig|cf|inc|ltd|al)|\b[a-z]|\d)\.\s+$",
    re.IGNORECASE,
)
_BELONGS = re.compile(
    r"(?:unless|except|only if|until|but only|and only|or else|not even|no exceptions?|without exceptions?|"
    r"(?:never|no way|absolutely not|not with us|out of the question|forget it)(?=\W*$)|"
    r"(?:that|this) (?:also )?(?:includes|applies|goes)|(?:the )?same (?:goes|applies|for))\b",
    re.IGNORECASE,
)


def sentences(text: str) -> list[str]:
    """Sentences; a condition that stands alone ("Unless I say so.") stays with the one it belongs to."""
    found: list[str] = []
    start = 0
    for end in _END.finditer(text):
        after = text[end.end() : end.end() + 1]
        if text[end.start()] == "." and (_shortened(text, end) or (after.islower() and not _after_word(text, end))):
            continue
        found.append(text[start : end.end()])
        start = end.end()
    found.append(text[start:])
    joined: list[str] = []
    for one in found:
        for piece in _pieces(" ".join(one.split())):
            if joined and _BELONGS.match(piece) and len(joined[-1]) + len(piece) < LONGEST:
                joined[-1] = f"{joined[-1]} {piece}"
            else:
                joined.append(piece)
    return joined


def _after_word(text: str, end: re.Match[str]) -> bool:
    """Whether a word ends here: some people write no capitals."""
    return text[max(0, end.start() - 3) : end.start()].isalpha()


def _shortened(text: str, end: re.Match[str]) -> bool:
    match = _SHORTENED.search(text[max(0, end.start() - 8) : end.end()])
    return match is not None and (not match[0][0].isdigit() or end.start() < 4)


def _pieces(sentence: str) -> Iterator[str]:
    start = 0
    while len(sentence) - start > LONGEST:
        low, high = start + 200, start + LONGEST
        at = max(sentence.rfind("; ", low, high), sentence.rfind(", ", low, high))
        at = at if at > 0 else sentence.rfind(" ", low, high)
        at = at if at > 0 else high - 1
        yield sentence[start : at + 1].strip()
        start = at + 1
    if rest := sentence[start:].strip():
        yield rest


def _attached(record: Record) -> frozenset[str]:
    """Texts of files that a prompt brings along."""
    body = record.body
    if not isinstance(body, dict):
        return frozenset()
    content = body.get("prompt") or body.get("content")
    blocks = objects([content] if isinstance(content, dict) else content)
    held = [b["resource"] for b in blocks if isinstance(b.get("resource"), dict)]
    return frozenset(r["text"] for r in held if isinstance(r.get("text"), str))
