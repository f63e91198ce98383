"""A summarizer from a table of settings, as a config file has it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from onefold.compaction.summarizer import Summarizer, extractive_summary
from onefold.errors import SummarizerFailed
from onefold.summarizers.anthropic import AnthropicSummarizer
from onefold.summarizers.fallback import fallbacks
from onefold.summarizers.openai import OpenAISummarizer

KINDS = ("openai", "anthropic", "extract")


def from_config(table: Mapping[str, object], *, environ: Mapping[str, str] = os.environ) -> Summarizer:
    """The summarizer that a table describes:

        kind = "openai"                # or "anthropic", or "extract", which needs no model
        model = "gpt-5-mini"
        base_url = "http://localhost:11434/v1"
        api_key_env = "MY_KEY"         # the variable that has the key; a key does not belong into a file
        fallback = "extract"           # who is asked if this one fails: a kind, or a table like this one

    and every other option of the summarizers that is a number or a table of values. Raises `SummarizerFailed` for
    what it does not understand.
    """
    settings = dict(table)
    others = settings.pop("fallback", None)
    first = _one(settings, environ)
    if others is None:
        return first
    tables = others if isinstance(others, list) else [others]
    return fallbacks(
        first, *(from_config({"kind": t} if isinstance(t, str) else _table(t), environ=environ) for t in tables)
    )


def _one(settings: dict[str, object], environ: Mapping[str, str]) -> Summarizer:
    kind = settings.pop("kind", None)
    if kind == "extract":
        _no_more(settings, "extract", ())
        return extractive_summary
    if kind not in ("openai", "anthropic"):
        raise _wrong(f"kind = {kind!r} is not a kind of summarizer; kinds are: {', '.join(KINDS)}")
    model = settings.pop("model", None)
    if not isinstance(model, str) or not model:
        raise _wrong(f'a summarizer of kind {kind!r} needs a model: model = "…"')
    key = _key(settings, environ)
    _no_more(settings, kind, _OPTIONS)
    options: dict[str, Any] = {name: _OPTIONS[name](name, value) for name, value in settings.items()}
    make = OpenAISummarizer if kind == "openai" else AnthropicSummarizer
    return make(model, api_key=key, **options)


def _key(settings: dict[str, object], environ: Mapping[str, str]) -> str | None:
    if "api_key" in settings:
        raise _wrong("a key does not belong into a config file; put it into a variable, and name that as api_key_env")
    variable = settings.pop("api_key_env", None)
    if variable is None:
        return None
    key = environ.get(_text("api_key_env", variable), "").strip()
    if not key:
        raise _wrong(f"api_key_env names {variable}, which is not set; set it to the key")
    return key


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(f'{name} = {value!r} is not text; write {name} = "…"')
    return value


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _wrong(f"{name} = {value!r} is not a number of seconds above 0")
    return float(value)


def _number(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(f"{name} = {value!r} is not a whole number from 0 on")
    return value


def _prune(name: str, value: object) -> int | None:
    return None if value is False else _number(name, value)


def _price(name: str, value: object) -> tuple[float, float]:
    match value:
        case [int() | float() as given, int() | float() as made]:
            return float(given), float(made)
    raise _wrong(f"{name} = {value!r} is not a price; write [input, output], each for a million tokens")


def _table(value: object, name: str = "fallback") -> dict[str, object]:
    if not isinstance(value, dict):
        raise _wrong(f"{name} = {value!r} is not a table")
    return value


def _words(name: str, value: object) -> dict[str, str]:
    return {k: _text(f"{name}.{k}", v) for k, v in _table(value, name).items()}


_OPTIONS: dict[str, Callable[[str, object], object]] = {
    "base_url": _text,
    "window": _number,
    "timeout": _seconds,
    "idle": _seconds,
    "connect": _seconds,
    "total": _seconds,
    "retries": _number,
    "longest_wait": _seconds,
    "calls": _number,
    "headroom": _number,
    "price": _price,
    "prune": _prune,
    "headers": _words,
    "body": lambda name, value: _table(value, name),
}


def _no_more(settings: Mapping[str, object], kind: str, known: Mapping[str, object] | tuple[()]) -> None:
    if unknown := sorted(set(settings) - set(known)):
        there = ", ".join(["kind", *(("model", "api_key_env", *known) if known else ()), "fallback"])
        raise _wrong(f"{', '.join(unknown)}: no option of a summarizer of kind {kind!r}; there are: {there}")


def _wrong(what: str) -> SummarizerFailed:
    return SummarizerFailed(f"the settings of the summarizer: {what}", kind="setup", final=True)
