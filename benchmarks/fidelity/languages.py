"""Conversations in eight languages from a seed. What is said stands in `phrases/`; the shapes are the same in all.

A seed plants the same facts, traps and ends at the same places in every language, among the same small talk, questions,
answers and tool output, so that languages can be compared with each other.
"""

from __future__ import annotations

import json
import re
import string
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.fidelity.talks import ROUNDS, End, Planted, Talk, Trap
from onefold.model import Json

LANGUAGES = ("en", "de", "pt", "tr", "ru", "ar", "zh", "ja")
"""English first: the others are measured against it. Turkish glues its words together, Russian is Cyrillic, Arabic
runs from right to left, Chinese and Japanese have no spaces."""
PHRASES = Path(__file__).parent / "phrases"
_KINDS = {"rules": "rule", "caps": "cap", "codes": "code", "paths": "path", "preferences": "preference"}
_TURNS = 21
"""Turns of a stretch in which nothing is planted: then a fact comes as often as in the frozen corpus."""


@dataclass(slots=True)
class _Said:
    """A few messages that belong together, and what is planted in them."""

    stretch: int
    texts: list[str]
    plain: bool = True
    """May stand in a longer message."""
    trap: Trap | None = None


@dataclass(slots=True)
class _Plan:
    rng: Random
    phrases: dict[str, Any]
    said: list[_Said] = field(default_factory=list)
    planted: list[Planted] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)


@cache
def phrases(language: str) -> dict[str, Any]:
    return tomllib.loads((PHRASES / f"{language}.toml").read_text(encoding="utf-8"))


def facts(language: str, seed: int) -> Talk:
    """Every sort of fact, planted as people brief an assistant: more at the beginning than later."""
    plan = _plan(language, seed)
    _plant_facts(plan, 1.0)
    return _written(plan, language, seed)


def traps(language: str, seed: int) -> Talk:
    """All traps of a language, and some facts that want the same room."""
    plan = _plan(language, seed)
    _plant_facts(plan, 0.5)
    for given in plan.phrases["traps"]:
        filled, before = _filled(plan, given["text"]), given.get("before")
        trap = Trap(given["kind"], given["place"], tuple(given["orders"]), given["intro"], 0, 0)
        texts = [filled] if before is None else [before, filled]
        plan.said.append(_Said(plan.rng.randrange(ROUNDS - 1), texts, plain=False, trap=trap))
    return _written(plan, language, seed)


def ends(language: str, seed: int) -> Talk:
    """Rules and values that end in ordinary words, a while later or in the very next message."""
    plan = _plan(language, seed)
    _plant_facts(plan, 0.5)
    for given in plan.phrases["ends"]:
        first = plan.rng.choice((0, 0, 1))
        plan.ends.append(End(given["said"], given["ended"]))
        if given.get("near", False):
            plan.said.append(_Said(first, [given["said"], given["ended"]], plain=False))
        else:
            plan.said.append(_Said(first, [given["said"]]))
            plan.said.append(_Said(plan.rng.choice((2, 2, 3)), [given["ended"]]))
    return _written(plan, language, seed)


def small_talk(language: str, seed: int, turns: int) -> list[Json]:
    """Nothing but small talk without a number in it, questions, and work that leads nowhere."""
    told = phrases(language)
    plan = _Plan(Random(seed), {**told, "small_talk": [form for form in told["small_talk"] if "#" not in form]})
    return [message for _ in range(turns) for message in _idle(plan)]


# ------------------------------------------------------------------ what is planted


def _plan(language: str, seed: int) -> _Plan:
    return _Plan(Random(seed), phrases(language))


def _plant_facts(plan: _Plan, share: float) -> None:
    rng = plan.rng
    for name, kind in _KINDS.items():
        forms = plan.phrases[name]
        for form in rng.sample(forms, round(len(forms) * share)):
            sentence, needs = _marked(plan, form)
            plan.said.append(_Said(rng.choice((0, 0, 0, 1, 1, 2, 3, 4)), [sentence]))
            plan.planted.append(Planted(kind, needs, (sentence,), form=f"{name} {forms.index(form)}"))
    changing = plan.phrases["values"]
    for states in rng.sample(changing, round(len(changing) * share)):
        made = [_marked(plan, form) for form in states]
        for (sentence, _), stretch in zip(made, sorted(rng.sample(range(ROUNDS), len(states))), strict=True):
            plan.said.append(_Said(stretch, [sentence]))
        stale = tuple(needs[-1] for _, needs in made[:-1])
        said = tuple(sentence for sentence, _ in made)
        plan.planted.append(Planted("value", made[-1][1], said, stale, f"values {changing.index(states)}"))


def _marked(plan: _Plan, form: str) -> tuple[str, tuple[str, ...]]:
    """A sentence without its brackets, and what stood in them, the value last."""
    filled = _filled(plan, form)
    needs = re.findall(r"\[(.*?)\]", filled)
    needs.sort(key=lambda need: any(sign.isdigit() for sign in need))
    return filled.replace("[", "").replace("]", ""), tuple(needs)


def _filled(plan: _Plan, form: str) -> str:
    """With digits, letters and names. No number begins with a zero."""
    rng = plan.rng
    made = ""
    for sign in form.replace("{name}", rng.choice(plan.phrases["names"])):
        if sign == "#":
            made += rng.choice(string.digits if made[-1:].isdigit() else string.digits[1:])
        elif sign == "^":
            made += rng.choice("ABCDEFGHJKLMNPQRTUVWXYZ")
        else:
            made += sign
    return made


# ------------------------------------------------------------------ how it is said


def _written(plan: _Plan, language: str, seed: int) -> Talk:
    rng, told = plan.rng, plan.phrases
    orders = [told["injected"][n % len(told["injected"])] for n in range(ROUNDS)]
    stretches: list[tuple[Json, ...]] = []
    traps: list[Trap] = []
    count = 0
    for n in range(ROUNDS):
        messages = [_message("system", told["system"])] if n == 0 else []
        turns: list[_Said | None] = [said for said in plan.said if said.stretch == n]
        turns += [None] * _TURNS
        rng.shuffle(turns)
        for said in turns:
            if said is None:
                messages += _idle(plan, orders[n])
                continue
            if said.trap is not None:
                first = count + len(messages)
                traps.append(replace(said.trap, at=first + 2 * (len(said.texts) - 1), intro_at=first))
            for words in said.texts:
                messages.append(_message("user", _composed(plan, words) if said.plain else words))
                messages.append(_message("assistant", _answer(plan, 0, 2)))
        messages += [_message("user", _chat(plan)), _message("assistant", _answer(plan, 1, 2))]
        count += len(messages)
        stretches.append(tuple(messages))
    return Talk(
        f"{told['name']} {seed}", language, tuple(stretches), tuple(plan.planted), tuple(told["injected"]),
        tuple(traps), tuple(plan.ends),
    )  # fmt: skip


def _composed(plan: _Plan, fact: str) -> str:
    """A message that says something worth keeping, somewhere in it."""
    rng, told = plan.rng, plan.phrases
    shape = rng.choice(("plain", "plain", "greeting", "middle", "middle", "list", "aside", "request"))
    if shape == "list":
        items = [fact, rng.choice(told["requests"]), _small(plan)]
        rng.shuffle(items)
        return "\n".join([rng.choice(told["heads"]), *(f"- {item}" for item in items)])
    if shape == "middle":
        return _joined(plan, [_small(plan), fact, _small(plan)])
    if shape == "aside":
        return _joined(plan, [_small(plan), rng.choice(told["asides"]), fact])
    if shape == "request":
        return _joined(plan, [rng.choice(told["requests"]), fact])
    return _joined(plan, [rng.choice(told["greetings"]), fact]) if shape == "greeting" else fact


def _joined(plan: _Plan, sentences: Sequence[str]) -> str:
    """One after the other, with a space where the language has one."""
    return ("" if plan.phrases["name"] in ("Chinese", "Japanese") else " ").join(sentences)


def _small(plan: _Plan) -> str:
    return _filled(plan, plan.rng.choice(plan.phrases["small_talk"]))


def _chat(plan: _Plan) -> str:
    rng = plan.rng
    asks = [rng.choice(plan.phrases["questions"])] if rng.random() < 0.5 else []
    return _joined(plan, [*(_small(plan) for _ in range(rng.randint(1, 2))), *asks])


def _idle(plan: _Plan, order: str = "") -> list[Json]:
    """A turn in which nothing is planted: chat, or work with tools."""
    rng, told = plan.rng, plan.phrases
    if rng.random() < 0.4:
        return [_message("user", _chat(plan)), _message("assistant", _answer(plan, 2, 5))]
    made = [_message("user", _joined(plan, [rng.choice(told["requests"]), *([_small(plan)] * rng.randint(0, 1))]))]
    for _ in range(rng.choice((1, 1, 2))):
        call = f"call_{rng.randrange(16**10):010x}"
        function = {"name": "look_up", "arguments": json.dumps({"page": rng.randrange(1, 90)})}
        wanted = [{"id": call, "type": "function", "function": function}]
        made.append({"role": "assistant", "content": None, "tool_calls": wanted})
        lines = [_filled(plan, rng.choice(told["tools"])) for _ in range(rng.randint(8, 20))]
        if order and rng.random() < 0.1:
            lines.insert(rng.randrange(len(lines)), order)
        made.append({"role": "tool", "tool_call_id": call, "content": "\n".join(lines)})
    return [*made, _message("assistant", _answer(plan, 2, 5))]


def _answer(plan: _Plan, least: int, most: int) -> str:
    rng, told = plan.rng, plan.phrases
    sentences = rng.sample(told["answers"], rng.randint(least, most))
    return _joined(plan, sentences or [rng.choice(told["nods"])])


def _message(role: str, words: str) -> Json:
    return {"role": role, "content": words}
