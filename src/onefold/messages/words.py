"""A person's own words in a message, and where they stand in it."""

from __future__ import annotations

from collections.abc import Iterator

from onefold.messages.codecs import PLAIN, codec
from onefold.messages.said import Text
from onefold.model import Json


def spoken(format: str | None, body: Json) -> list[tuple[str, str]]:
    """What the speaker of a message says in plain words: pointers into its body, and the strings that stand there."""
    try:
        texts = [p.text for p in codec(format or PLAIN).parse(body).parts if isinstance(p, Text)]
    except Exception:
        return []
    places: dict[str, list[str]] = {}
    wanted = {*texts}
    for pointer, text in _strings(body, ""):
        if text in wanted:
            places.setdefault(text, []).append(pointer)
    return [(found.pop(0), text) for text in texts if text.strip() and (found := places.get(text))]


def _strings(value: Json, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield pointer, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(inner, f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _strings(inner, f"{pointer}/{at}")


def resolve(body: Json, pointer: str) -> str | None:
    """The string at a place; None if there is none."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(body, dict):
            body = body.get(key)
        elif isinstance(body, list) and key.isdigit() and int(key) < len(body):
            body = body[int(key)]
        else:
            return None
    return body if isinstance(body, str) else None
