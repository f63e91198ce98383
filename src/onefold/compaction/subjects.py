"""What a statement is about, in normal form: keys that meet when the same thing is said in other words.

A key holds what tells look-alikes apart: `staging port` is not `production port`. Pure.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from onefold.model import Fact

FORBIDDEN, REQUIRED, FREE = -1, 1, 0


def word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


class Sentence(NamedTuple):
    """A sentence to look at: as it was said, for comparing, and its words, which tell quickly what it cannot be."""

    text: str
    low: str
    words: frozenset[str]


class Made(NamedTuple):
    """What was made of a statement: a fact that has no source yet."""

    kind: str
    key: str
    text: str


_TOKEN = re.compile(r"[^\s,;:!?\"“”()\[\]{}<>`*]{1,200}")
_LITTLE = word_set(
    "a an the this that these those to of in on at for with by from as into onto and or nor but so then also too "
    "just please kindly you your yours we our us i me my mine it its they them their he she his her is are be "
    "been being am was were do does did done not never ever always must should shall may might can could will "
    "would cannot can't don't dont doesn't didn't won't shouldn't mustn't couldn't hasn't haven't hadn't wasn't "
    "weren't isn't aren't needn't have has had having need needs want wants no any anyone anything all under "
    "circumstances circumstance now again anymore more longer actually ok okay well remember note important "
    "reminder make sure ensure certain really very ahead go feel free allowed permitted fine alright forbidden "
    "prohibited banned avoid stop refrain keep mind which there here let lets let's i'd i'm i'll i've you're "
    "you'll we're we'll we've it's that's rather like one thing other than only still yet already today currently "
    "instead point time matter what whatever said say rule rules about regarding policy rigid strictly absolutely "
    "condition conditions reason whatsoever forget drop lift scrap ignore disregard applies apply restriction ban "
    "freeze lifted required mandatory necessary welcome supposed promise careful"
)
_IRREGULAR = {
    "sent": "send",
    "wrote": "write",
    "written": "write",
    "ran": "run",
    "built": "build",
    "made": "make",
    "chose": "choose",
    "chosen": "choose",
    "paid": "pay",
    "took": "take",
    "bought": "buy",
    "sold": "sell",
    "told": "tell",
    "gave": "give",
    "given": "give",
    "went": "go",
    "gone": "go",
    "left": "leave",
    "kept": "keep",
    "spent": "spend",
    "met": "meet",
}
_CONDITION = re.compile(
    r"\b(?:without|unless|until|till|if|when|whenever|while|before|after|except|once|as long as|provided)\b"
)


def plain(text: str) -> str:
    """A text for comparing: one case, one kind of apostrophe, single spaces."""
    return " ".join(text.replace("’", "'").split()).casefold()  # noqa: RUF001


def tokens(text: str) -> list[str]:
    return [t for raw in _TOKEN.findall(plain(text)) if (t := raw.strip("'‘’.…-–—"))]  # noqa: RUF001


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """A word without its ending: pushing, pushed and pushes are one. Names with marks in them stay as they are."""
    if not word.isalpha() or len(word) < 4:
        return word
    word = _IRREGULAR.get(word, word)
    for ending, least in (("ing", 6), ("ed", 5), ("es", 5), ("s", 4)):
        if word.endswith(ending) and len(word) >= least and not word.endswith(("ss", "us", "is", "eed")):
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "sl":
        word = word[:-1]
    return (
        word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word.removesuffix("e") if len(word) > 3 else word
    )


def content(text: str) -> tuple[str, ...]:
    """The words that carry the matter, by their stems."""
    return tuple(stem(t) for t in tokens(text) if t not in _LITTLE)


_NOT_A_NAME = word_set(
    "the a an our my your their his her this that these those its new newest current currently now latest updated "
    "actual "
    "actually present also then so ok okay and but please remember note fyi btw correction update well yes no "
    "final correct right exact main overall real hi hey sorry wait oh ah hmm just only both for to of"
)
_OF = re.compile(r"\s(?:for|of|on|in|at|from|to)\s(?:the\s|our\s|my\s|your\s|a\s)?")


def name(phrase: str) -> str:
    """What a value is called: `port for staging`, `the new staging port` and `STAGING_PORT` are `staging port`."""
    parts = [_one_name(p) for p in _OF.split(f" {plain(phrase)} ")]
    return " ".join(p for p in reversed(parts) if p)


def _one_name(phrase: str) -> str:
    said = tokens(phrase)
    owned = any(t.endswith("'s") for t in said)  # the new API's version is not the API's version
    words = [t for t in said if t not in _NOT_A_NAME or (owned and t == "new")]
    return " ".join(_singular(w) for t in words for w in (t.replace("_", " ").split() if _is_word(t) else [t]))


def _is_word(token: str) -> bool:
    return token.replace("_", "").isalnum()


def _singular(word: str) -> str:
    if word.endswith("ies") and word.isalpha() and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.isalpha() and len(word) > 3 and word[-1] == "s" and word[-2] not in "sui" else word


_FREED = re.compile(
    r"\byou (?:may|can|could)\b(?! not| never| only|'t)|\b(?:allowed|permitted|free|welcome|cleared) to\b"
    r"|\bgo ahead\b|\bfeel free\b|\b(?:ok|okay|fine|alright|all right|allowed|permitted)(?: again| now|,|\.|$)"
    r"|\b(?:it'?s|it is)(?: now)? (?:ok|okay|fine|alright)\b"
    r"|\bno longer (?:need|have|appl|required|necessary|forbidden|off|banned|prohibited|in force|matters?)"
    r"|\b(?:don't|do not|needn't|doesn't|does not) (?:need|have) to\b|\bno need to\b"
    r"|\b(?:forget|drop|lift|scrap|ignore|disregard|cancel|withdraw|remove)\b[^.]{0,60}\b(?:rule|ban|restriction|freeze"
    r"|instruction|constraint|requirement|limit|what i said)\b"
    r"|\b(?:rule|ban|restriction|freeze|requirement)\b[^.]{0,60}\b(?:lifted|over|gone|off the table|no longer)\b"
)
_NOT = re.compile(
    r"\b(?:not|never|no|none|nobody|nothing|nowhere|neither|nor|cannot|avoid|stop|refrain|forbidden|prohibited|banned"
    r"|off[- ]limits|hands off|leave|stay (?:out|away)|without|dont|keep [^.]{1,40} out of)\b|n't\b"
)
_AFTER_ALL = re.compile(r"\b(?:don't|do not|never) (?:ever )?(?:forget|fail|neglect|omit)\b")
_DENIED = re.compile(
    r"\b(?:not|isn't|aren't|never|no longer) (?:ok|okay|fine|alright|allowed|permitted|free|cleared)\b"
)


class Order(NamedTuple):
    """A rule taken apart: which way it goes, what it is about, and under which condition it holds."""

    way: int
    base: tuple[str, ...]
    condition: tuple[str, ...]
    names_rule: bool
    """It names another rule ("forget the rule about …") and not an act."""


_NAMES_RULE = re.compile(r"\b(?:rule|ban|restriction|freeze|instruction|constraint|requirement|what i said)\b")


@lru_cache(maxsize=4096)
def order(text: str) -> Order:
    said = plain(text)
    act, condition = said, ""
    first = _CONDITION.search(said)
    if first is not None and len(content(said[: first.start()])) > 0:
        act, condition = said[: first.start()], said[first.start() :]
    elif first is not None and "," in said:
        condition, _, act = said.partition(",")
    freed = _FREED.search(act) is not None and not _DENIED.search(act)
    forbids = _NOT.search(act) is not None and not _AFTER_ALL.search(act)
    way = FREE if freed else FORBIDDEN if forbids else REQUIRED
    return Order(way, content(act), content(condition), way == FREE and _NAMES_RULE.search(act) is not None)


def order_key(text: str) -> str:
    parts = order(text)
    base = " ".join(parts.base)
    key = f"{base} / {' '.join(parts.condition)}" if parts.condition else base
    return key[:200] or plain(text)[:200]


_CHANGED = re.compile(
    r"\b(?:actually|instead|rather|now|no longer|anymore|switch\w*|chang\w+|mov\w+ to|replac\w+|scratch that|scrap|"
    r"correction|updat\w+|from now on|on second thoughts?|after all|revis\w+|new|bump\w*|rais\w+|lower\w*|increas\w+|"
    r"decreas\w+|reduc\w+|extend\w*|changed my mind|turns out|sorry|wait|make (?:it|that))\b"
)
_CHOSEN = re.compile(
    r"\b(?:use|using|uses|used|go with|going with|went with|stick with|pick|picked|choose|chose|chosen|prefer|prefers|"
    r"settled on|decided on|decide on|opted for|go for|switch(?:ed|ing)?(?: from \S{1,40})? to|mov(?:e|ed|ing)(?: from "
    r"\S{1,40})? to|default to|like|want)\s+"
    r"(?P<what>[^.;!?]{1,120}?)(?=$|[.;!?]|,|\s(?:for|in|as|over|instead|rather|not|because|since|when|on|and not)\b)"
)
_REJECTED = re.compile(
    r"\b(?:not|instead of|rather than|over|and not|don't use|do not use|no|never use|from|replac(?:e|ing)|drop|"
    r"no longer use|stop using)\s+(?P<what>[\w.+#/-]{1,40}(?:\s[\w.+#/-]{1,40})?)"
)
_PURPOSE = re.compile(
    r"\b(?:for|in|as|on)\s(?:the\s|our\s|all\s|my\s|a\s)?(?P<what>[\w./ -]{1,60}?)(?=$|[.,;!?]|\sinstead)"
)


_SUBJECT = re.compile(
    r"\b(?:the|our) (?P<what>[\w-]{2,30}(?: [\w-]{2,30}){0,2}?)(?: (?:will|shall|should|now|must|to|is|are|"
    r"going)){0,4} $"
)


class Choice(NamedTuple):
    chosen: tuple[str, ...]
    rejected: frozenset[str]
    purpose: str
    changes: bool


@lru_cache(maxsize=4096)
def choice(text: str) -> Choice:
    """What a decision or preference picks, over what, and for what."""
    said = plain(text)
    picked = _CHOSEN.search(said)
    chosen = content(picked["what"]) if picked else ()
    rejected = {w for m in _REJECTED.finditer(said) for w in content(m["what"])[:1]}
    after = said[picked.end() :] if picked else ""
    purpose = next((name(m["what"]) for m in _PURPOSE.finditer(after) if name(m["what"])), "")
    if picked and not purpose and (subject := _SUBJECT.search(said[: picked.start()])):
        purpose = name(subject["what"])
    return Choice(chosen, frozenset(rejected - set(chosen)), purpose, _CHANGED.search(said) is not None)


_BARE = re.compile(r"(?:path|url|commit|id|mail|host|tool) ")


def is_bare(fact: Fact) -> bool:
    """Whether it is an identifier that was only mentioned, and not one that was said to be something."""
    return fact.kind == "identifier" and _BARE.match(fact.key) is not None
