"""JSON in which what goes in comes out equal, or is rejected.

orjson is fast and strict, but writes NaN as null and reads integers beyond 64 bits as floats, and rejects lone
surrogates, which tool output does contain. Text it cannot carry goes through the standard library and gets one
leading space, which JSON ignores and the reader takes as a sign to be careful.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator

import orjson

from onefold.errors import InvalidMessage
from onefold.model import Json

_CAREFUL = " "
_DEEPEST = 400  # far below the interpreter's limit, so that whoever reads it has room for calls of its own
_SPLIT = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def encode(value: Json) -> str:
    """The JSON text of a value, which `decode` turns back into an equal one."""
    try:
        text = orjson.dumps(value).decode()
        if type(value) is dict:
            for key, item in value.items():
                if type(item) is not str or type(key) is not str:
                    break
            else:
                return text  # an object of nothing but strings always comes back equal, and most messages are one
        same = orjson.loads(text) == value
    except (orjson.JSONEncodeError, RecursionError):
        text, same = _encode_carefully(value)
    if not same:
        try:
            where, why = next(_unfaithful(value, "message"), ("message", "it would not come back equal"))
        except RecursionError:
            where, why = "message", "it is nested too deeply to be stored, or contains itself"
        raise InvalidMessage(f"{where}: {why}; nothing was written")
    return text


def decode(text: str) -> Json:
    """The value of a JSON text that `encode` made."""
    if text.startswith(_CAREFUL):
        return json.loads(text)
    return orjson.loads(text)


def decode_or_text(text: str) -> Json:
    """The value of a JSON text, or the text itself if it is none: a model may write its arguments badly."""
    try:
        value = json.loads(text)
        encode(value)  # NaN, which json takes and nobody else does
    except (ValueError, RecursionError, InvalidMessage):
        return text
    return value


def digest(previous: str, kind: str, format: str | None, body: Json) -> str:
    """A running digest over the records of one keyed append. The order of an object's keys does not matter."""
    try:
        canonical = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        canonical = json.dumps(body, sort_keys=True).encode()
    running = hashlib.sha256(previous.encode())
    for part in (kind.encode(), (format or "").encode(), canonical):
        running.update(len(part).to_bytes(8, "big"))
        running.update(part)
    return running.hexdigest()


def _encode_carefully(value: Json) -> tuple[str, bool]:
    try:
        text = _CAREFUL + json.dumps(value, allow_nan=False, separators=(",", ":"))
        deep, same = _deep(value), json.loads(text) == value
    except RecursionError:
        deep, same = True, False
    except (TypeError, ValueError):
        return "", False
    if deep:
        raise InvalidMessage("message: it is nested too deeply to be stored; nothing was written")
    return text, same


def _deep(value: Json) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        inside = (v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list))
        level = [item for items in inside for item in items]
    return bool(level)


def _unfaithful(value: Json, path: str) -> Iterator[tuple[str, str]]:
    """Each place in a value that JSON cannot carry, and why."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path, f"{value} is not JSON; send null or a string"
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                yield path, f"the key {key!r} is not a string and would come back as one"
            else:
                yield from _unfaithful(key, path)
            yield from _unfaithful(item, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _unfaithful(item, f"{path}[{i}]")
    elif isinstance(value, str) and _SPLIT.search(value):
        yield path, "two surrogates side by side would come back as the one character they stand for; send that one"
    elif not isinstance(value, str | int | float | None):
        yield path, f"a {type(value).__name__} is not JSON; send a dict, list, str, number, bool or None"
