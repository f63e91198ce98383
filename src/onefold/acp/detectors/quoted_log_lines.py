"""Log lines of Hermes that were sent over the wire as somebody's text: when its log repeats them, they are not reports.

They are known by their letters and digits alone. So it does not matter where a line was cut, into blocks of a prompt or
chunks of a message, nor what an agent puts between the parts when it joins them: white space, a line break, or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice

from onefold.model import Json

MOST = 8_192
"""Lines of one turn. If there are more, its log is not listened to until the next prompt."""
_SETS, _IN_A_SET = 16, 4_096
"""How many are remembered over all turns, the newest ones."""
_LONGEST = 1_024
"""Letters and digits of what identifies a line, at most; so many are kept of what a next chunk may complete."""
_CHANNELS = 32
_ALL_OF_IT = 16_384
"""Characters of a text that is looked at whole. Of a longer one it is its beginning and its end, where it may have been
cut, and what stands around each mark."""
_END = 4_096
_AROUND = 64, 640

_OTHERS = bytes(byte for byte in range(256) if not bytes([byte]).isalnum())
_MARK = b"agentcon"
_AS_WRITTEN = "agent.con"
_MARKS = (b"agentconversationcompression", b"agentconversationloop", b"agentcontextcompressor")
"""The names of the parts of Hermes that are listened to."""
_BEFORE = 18
"""The time and the level, or most of them."""
_IDENTIFIED = re.compile(
    rb"agentconversationcompression(?:"
    rb"contextcompressionstartedsession[0-9A-Za-z]{1,200}?messages\d{1,20}tokens(?:\d{1,20}|unknown)model"
    rb"|contextcompressiondonesession[0-9A-Za-z]{1,200}?messages\d{1,20}(?:roughtokens\d{1,20}awaitingreal|tokens)"
    rb"|[0-9A-Za-z]{16})"
    rb"|agentcon(?:versationloop|textcompressor)[0-9A-Za-z]{16}"
)


@dataclass(frozen=True, slots=True)
class QuotedLogLines:
    sets: tuple[frozenset[bytes], ...] = (frozenset(),)
    """The newest last."""
    tails: Mapping[str, bytes] = field(default_factory=dict)
    """Of each kind of text, how it ended: the next one of the kind may go on from there."""
    count: int = 0
    """In this turn."""

    @property
    def too_many(self) -> bool:
        return self.count > MOST

    def next_turn(self) -> QuotedLogLines:
        return replace(self, count=0)

    def heard(self, kind: str, body: Json) -> QuotedLogLines:
        """With what a frame says; those of one kind may go on where the last one ended."""
        texts: dict[str, list[bytes]] = {}
        for name, text in _texts(body):
            texts.setdefault(f"{kind}.{name}", []).append(_letters(text))
        known, tails = self, dict(self.tails)
        for channel, parts in texts.items():
            whole = tails.pop(channel, b"") + b"".join(parts)
            tails[channel] = whole[-_LONGEST:]
            if _MARK in whole:
                known = known._with(whole)
        while len(tails) > _CHANNELS:
            del tails[next(iter(tails))]
        return replace(known, tails=tails)

    def _with(self, letters: bytes) -> QuotedLogLines:
        if self.too_many:
            return self
        found = list(islice(_names(letters), MOST + 1))
        new = [name for name in dict.fromkeys(found) if not self._has(name)]
        count = MOST + 1 if len(found) > MOST else self.count + len(new)
        sets, newest = list(self.sets[:-1]), set(self.sets[-1])
        for name in new:
            if len(newest) >= _IN_A_SET:
                sets.append(frozenset(newest))
                newest = set()
            newest.add(name)
        return replace(self, sets=(*sets, frozenset(newest))[-_SETS:], count=count)

    def _has(self, name: bytes) -> bool:
        return any(name in known for known in self.sets)

    def __contains__(self, line: str) -> bool:
        return any(self._has(name) for name in _names(_letters(line)))


def _letters(text: str) -> bytes:
    if len(text) > _ALL_OF_IT:
        return b"|".join(_squeezed(part) for part in _parts(text.strip()))
    return _squeezed(text)


def _squeezed(text: str) -> bytes:
    return text.encode(errors="surrogatepass").translate(None, _OTHERS)


def _parts(text: str) -> Iterator[str]:
    """What of a long text may be a line of a log, or a part of one. Of too many marks the first ones: that is known
    then."""
    yield text[:_END]
    begin = end = 0
    for at in islice(_places(text), MOST + 1):
        if at - _AROUND[0] > end:
            yield text[begin:end]
            begin = at - _AROUND[0]
        end = at + _AROUND[1]
    yield text[begin:end]
    yield text[-_END:]


def _places(text: str) -> Iterator[int]:
    at = text.find(_AS_WRITTEN)
    while at >= 0:
        yield at
        at = text.find(_AS_WRITTEN, at + 1)


def _names(letters: bytes) -> Iterator[bytes]:
    """What identifies each line of the log that is in a text: when, who, and which numbers it tells. A line may stand
    in what looks like another, so each mark is looked at."""
    for mark in _MARKS:
        at = letters.find(mark)
        while at >= 0:
            if found := _IDENTIFIED.match(letters, at):
                yield blake2b(letters[max(0, at - _BEFORE) : found.end()], digest_size=12).digest()
            at = letters.find(mark, at + 1)


def _texts(body: Json) -> Iterator[tuple[str, str]]:
    """Every text with the name it has, in order."""
    waiting: list[tuple[str, Json]] = [("", body)]
    while waiting:
        name, one = waiting.pop()
        if isinstance(one, str):
            yield name, one
        elif isinstance(one, dict):
            waiting.extend(reversed(one.items()))
        elif isinstance(one, list):
            waiting.extend((name, each) for each in reversed(one))
