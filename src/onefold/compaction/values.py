"""Identifiers: names with values ("the staging port is 8081", `PORT=8081`), and paths, URLs, commits and ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from onefold.compaction.orders import LIMIT_NOUN, limit_name
from onefold.compaction.spans import EXACT
from onefold.compaction.subjects import Made, Sentence, name, plain, word_set
from onefold.compaction.terms import Term, term

_URL = re.compile(
    r"\b(?:https?|ftp|ssh|s3|gs|git|postgres(?:ql)?|mysql|redis|amqp|mongodb|file)://[^\s<>\"'`|\\^{}]{2,300}"
)
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_HEX = re.compile(r"(?<![\w/.-])(?=[0-9a-f]{0,39}[a-f])(?=[0-9a-f]{0,39}\d)(?:[0-9a-f]{7,12}|[0-9a-f]{40})(?![\w-])")
_PATH = re.compile(
    r"(?<![\w/:.@-])(?:~|\.{1,2}|[A-Za-z]:|/(?=/))?(?:[/\\][\w.@+%=-]{1,80}){1,12}/?|"
    r"(?<![\w/:.@-])[\w.@+-]{1,80}(?:/[\w.@+-]{1,80}){1,12}/?"
)
_FILE = re.compile(
    r"(?<![\w/.@-])[\w-]{1,80}(?:\.[\w-]{1,40}){0,3}\.(?:py|pyi|js|jsx|ts|tsx|go|rs|rb|java|kt|c|h|cc|cpp|hpp|cs|php|"
    r"swift|sql|"
    r"sh|bash|ps1|md|rst|txt|json|jsonl|ya?ml|toml|ini|cfg|conf|env|csv|tsv|xml|html|css|scss|lock|log|pdf|docx?|xlsx?|"
    r"pptx?|png|jpe?g|svg|zip|gz|tar|ipynb|tf|proto|gradle|db|sqlite|pem|key|service|vue|parquet)\b"
)
_HOST = re.compile(
    r"(?<![\w/.@-])(?:[A-Za-z0-9-]{1,60}\.){2,5}[a-z]{2,10}(?![\w.-])|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])"
)
_ID = re.compile(
    r"\b[A-Z][A-Z0-9]{0,9}-[A-Z0-9]{0,6}\d{1,12}\b|\b[a-z]{2,12}_[A-Za-z0-9]*\d[A-Za-z0-9]{3,40}\b|(?<![\w&])#\d{1,9}\b"
)
_LABELLED = re.compile(
    r"\b(?P<label>port|account|order|ticket|invoice|build|pr|pull request|issue|version|release|customer|case|room|"
    r"flight|"
    r"booking|reservation|table|run|job|commit|branch|tag|project|user id|id|ref|reference|policy|contract|phone|"
    r"extension)"
    r"(?: (?:number|no\.?|id))? (?P<value>#?(?=[\w./-]{0,30}\d)[\w./-]{1,40})",
    re.IGNORECASE,
)
_PROSE_SLASH = re.compile(
    r"^(?:and/or|n/a|w/o|w/|he/she|his/her|s/he|either/or|yes/no|on/off|true/false|input/output|i/o|\d+/\d+)$", re.I
)


class _Found(NamedTuple):
    kind: str
    value: str


def identifiers(text: str) -> Iterator[_Found]:
    """The exact names that a text mentions, each once."""
    seen: set[str] = set()
    for kind, raw in _all(text):
        value = raw.rstrip(".,;:!?)'\"`")
        if len(value) > 2 and not any(value in other for other in seen):
            seen.add(value)
            yield _Found(kind, value)


_DIGIT = re.compile(r"\d")


def _all(text: str) -> Iterator[tuple[str, str]]:
    if "://" in text:
        yield from (("url", m[0]) for m in _URL.finditer(text))
    if "@" in text:
        yield from (("mail", m[0]) for m in _MAIL.finditer(text))
    if "/" in text or "\\" in text:
        yield from (("path", m[0]) for m in _PATH.finditer(text) if _is_path(m[0]))
    if "." in text:
        yield from (("path", m[0]) for m in _FILE.finditer(text))
        yield from (("host", m[0]) for m in _HOST.finditer(text))
    if _DIGIT.search(text):
        yield from (("id", m[0]) for m in _UUID.finditer(text))
        yield from (("commit", m[0]) for m in _HEX.finditer(text))
        yield from (("id", m[0]) for m in _ID.finditer(text))
        yield from (("id", f"{m['label'].casefold()} {m['value']}") for m in _LABELLED.finditer(text))


def _is_path(found: str) -> bool:
    """A slash makes no path by itself: "and/or", "read/write"."""
    if _PROSE_SLASH.match(found):
        return False
    inner = found.strip("/\\")
    if found[0] in "/~." or found[1:2] == ":":
        return len(inner) > 2 and any(c.isalpha() for c in inner)
    return "." in inner.rsplit("/", 1)[-1] or inner.count("/") > 1 or any(c in "_-" or c.isdigit() for c in inner)


def mentioned(text: str) -> list[Made]:
    """The identifiers that a sentence only mentions, as one fact: the sentence says what they are."""
    found = list(identifiers(text)) if len(text) <= 2 * _SENTENCE else []
    if not found or len(found) > 8:
        return []
    return [Made("identifier", f"{found[0].kind} {', '.join(f.value for f in found)}"[:200], text)]


_PAIR = re.compile(
    r"(?<![\w=])(?:--|\$|-D)?(?P<name>[A-Za-z][\w.-]{0,60})\s?=\s?(?P<value>\"[^\"]{1,120}\"|'[^']{1,120}'|"
    r"[^\s,;=\"']{1,120})(?![=\w])"
)
_SHOWN_PAIR = re.compile(
    r"^\W{0,4}(?P<name>[A-Za-z][\w. "
    r"-]{0,40}?)[\"']?\s?[=:]\s?(?P<value>[\"']?(?=[\w./@:#-]{0,80}\d)[\w./@:#-]{3,80}[\"']?),?\W{0,3}$"
)


_HIT = re.compile(r"[^\s:]{1,200}[:-]\d{1,7}[:-]")
"""A line that a search found, with its place: there are always more of them."""


def shown(text: str) -> list[Made]:
    """What code, a document or a tool shows: the names alone, beside what was said, and in the place of none of it."""
    if len(text) > _SENTENCE or _HIT.match(text):
        return []
    if (pair := _shown_pair(text)) is not None:
        return [Made("identifier", f"tool {name(pair['name'])}={pair['value']}"[:200], text)]
    found = list(identifiers(text))
    if not found or len(found) > 3:
        return []
    values = ", ".join(f.value for f in found)
    return [Made("identifier", f"tool {values}"[:200], values)]


def bare(text: str) -> str:
    """The exact names in some words of a tool, without the words: they may be an order. Nothing if there are none."""
    if _shown_pair(text) is not None:
        return text
    return ", ".join(f.value for f in islice(identifiers(text), 8))


_WORDS_IN_LABEL = 3


def _shown_pair(text: str) -> re.Match[str] | None:
    """A short label with an exact value, and nothing else."""
    pair = _SHOWN_PAIR.match(text)
    return pair if pair is not None and len(pair["name"].split()) <= _WORDS_IN_LABEL else None


_LABELS = (
    r"(?:code ?word|pass(?:word|phrase|code)|token|code ?name|code|name|branch|user(?:name)?|host(?:name)?|region|"
    r"account|key|id|"
    r"identifier|ref(?:erence)?|channel|bucket|repo(?:sitory)?|table|e?mail|address|phone|number|version|contact|owner|"
    r"ticket|"
    r"database|db|server|port|url|link|path|folder|directory|file|client|customer|project|team|model|plan|language|"
    r"timezone|"
    r"cluster|namespace|endpoint|secret|tag|label|domain|ip|env(?:ironment)?|supplier|vendor|manager|lead|reviewer|"
    r"status page|admin|boss|approver|assignee|author|maintainer|on-call|supervisor)"
)
_DETERMINER = r"(?:the|our|my|your|his|her|their|its|this|\w+'s)"
_SKIP = (
    r"(?:it|this|that|there|what|which|who|he|she|they|i|we|you|here|these|those|if|when|how|why|where|nothing|"
    r"everything|"
    r"something|one|let|because|since|so|and|but|or|not|in|on|at|for|to|is|are)(?![\w-])"
)
_LEAD = (
    r"(?:^|(?<=[,;:.\u2013\u2014] )|\b(?:that|and|but|so|while|where|fyi|btw|note|remember|actually|now|also|because|"
    r"then|"
    r"case)[:,]? )"
)
_VALUE = (
    r"(?P<value>(?![(\[])(?:`[^`]{1,120}`|\"[^\"]{1,120}\"|“[^”]{1,120}”|(?=[^\s,;]{0,120}[\d/@_\\:#-])[^\s,;]{1,200}|"
    r"[$€£¥]\s?\d\S{0,20}|(?-i:[A-Z]{2,4} \d{1,6}\b)|(?:next |this )?(?:mon|tues|wednes|thurs|fri|satur|sun)day\b))"
)
_COPULA = (
    r"(?:is|are|=|:|will be|should be|must be|has to be|needs to be|equals|becomes|became|reads|stays|remains)"
    r"(?: now| currently| still| set to| at| in| on| under| called| named| stored in| stored at| located at| located "
    r"in| going to"
    r" be| to be| just| actually| exactly| always| hosted at| running on| port| number)*"
)
_IS = re.compile(
    rf"{_LEAD}(?P<name>(?!{_SKIP})(?:{_DETERMINER} )?(?!{_SKIP})[\w.'/#-]{{1,40}}(?: (?!is\b|are\b|was\b|will\b|"
    r"should\b|must\b|not\b)"
    rf"[\w.'/#-]{{1,40}}){{0,6}}?)(?: (?:now|currently|here|again))? ?(?:{_COPULA}) (?:(?P<word>{_VALUE}))",
    re.IGNORECASE,
)
_IS_CALLED = re.compile(
    rf"{_LEAD}(?P<name>(?:{_DETERMINER} )?(?:(?!{_SKIP}|the\b|our\b|my\b|an?\b)[\w.'/#-]{{1,40}} "
    rf"){{0,4}}{_LABELS}(?: (?:for|of|on|in) "
    rf"(?:the |our )?[\w-]{{1,30}}"
    rf"(?: [\w-]{{1,30}})?)?) {_COPULA} (?!(?:not|a|an|the|very|so|too|wrong|broken|down|missing|empty|slow|invalid|"
    r"unknown|gone|ready|done|"
    r"fine|ok|okay|correct|right|in|on|at|for|to|being|still|only|already|important|required|optional|valid|expired|"
    r"used|full|here|there"
    r"|good|bad|failing|running|working|clear|ugly|nice|great|long|short|too)\b)(?P<value>[\w.@#/-]{2,60}(?: "
    r"[A-Z][\w.-]{1,40}){0,3})",
    re.IGNORECASE,
)
_SET = re.compile(
    r"\b(?:set|change|changed|make|bump|bumped|raise|raised|increase|increased|lower|lowered|reduce|reduced|update|"
    r"updated|move|"
    r"switch|switched|extend|extended|correct|adjust|adjusted) "
    rf"(?P<name>(?:{_DETERMINER} )?(?!it\b|that\b|this\b|sure\b|them\b)[\w.'/-]{{1,40}}(?: "
    rf"(?!to\b)[\w.'/-]{{1,40}}){{0,5}}?)"
    rf"(?: from \S{{1,60}}(?: \w{{1,20}})?)? (?:back )?(?:to|at|=|as|into|down to|up to) {_VALUE}",
    re.IGNORECASE,
)
_MAKE = re.compile(
    rf"\b(?:make|set) (?P<name>(?:{_DETERMINER} )(?!sure\b)[\w.'/-]{{1,40}}(?: (?!to\b)[\w.'/-]{{1,40}}){{0,4}}?) "
    rf"{_VALUE}",
    re.IGNORECASE,
)
_MOVED = re.compile(
    rf"{_LEAD}(?P<name>(?:{_DETERMINER} )(?!{_SKIP})[\w.'/-]{{1,40}}(?: [\w.'/-]{{1,40}}){{0,4}}?) (?:has |was |is |"
    r"have |got |just )*(?:been )?"
    r"(?:changed|moved|slipped|shifted|switched|bumped|raised|lowered|increased|reduced|updated|extended|pushed|set|"
    r"went|goes|renamed|"
    r"rotated|reset)"
    rf"(?: from \S{{1,60}}(?: \w{{1,20}})?)? (?:back |up |down |out )?to {_VALUE}",
    re.IGNORECASE,
)
_RUNS = re.compile(
    rf"{_LEAD}(?P<scope>(?:{_DETERMINER} )?(?!{_SKIP})[\w.'/-]{{1,40}}(?: [\w.'/-]{{1,40}}){{0,3}}?) (?:now |"
    r"currently )?(?:runs?|listens?|lives|is"
    r"|sits|uses|serves|is running|is listening|has)(?: now)?(?: on| at| under)? (?P<label>port|version|branch|account|"
    r"region|table|build)"
    rf"(?: number)? {_VALUE}",
    re.IGNORECASE,
)
_USE_FOR = re.compile(
    rf"\buse (?P<label>(?!the\b|a\b)[a-z]{{2,20}}(?: [a-z]{{2,20}})?) {_VALUE} (?:for|on|in) (?:the |our "
    rf")?(?P<scope>[\w-]{{2,30}}(?: [\w-]{{2,30}}){{0,2}})",
    re.IGNORECASE,
)
_USE = re.compile(
    r"\b(?:use|using|target|targeting|need|require) (?:the |our |my )?(?P<name>[A-Za-z][\w-]{1,30}(?: (?!for\b|on\b|"
    r"in\b|with\b|and\b|of\b|at\b|to\b|"
    r"or\b|from\b|as\b)"
    rf"[\w-]{{1,30}}){{0,3}}?) (?=\S{{0,40}}\d){_VALUE}",
    re.IGNORECASE,
)
_COLON = re.compile(
    rf"^\W{{0,4}}(?P<name>(?:[\w'-]{{1,30}} ){{0,4}}{_LABELS}): ?(?P<value>\S{{2,60}}(?: \S{{1,40}}){{0,3}})$",
    re.IGNORECASE,
)
_LABEL_VALUE = re.compile(
    rf"^(?:and |the |our |but |for )*(?P<scope>(?!{_SKIP})[\w'-]{{2,30}}(?: [\w'-]{{2,30}})?) (?P<label>port|version|"
    r"account|branch|token|"
    rf"code|id|key|region|build|budget|limit|cap|number|password|bucket) {_VALUE}[.!]?$",
    re.IGNORECASE,
)
_NOW_IT_IS = re.compile(
    rf"{_LEAD}(?P<name>(?:{_DETERMINER} )(?!{_SKIP})[\w.'/-]{{1,40}}(?: [\w.'/-]{{1,40}}){{0,4}}?) (?:has |was |is |"
    r"have |just )*(?:been )?"
    r"(?:changed|moved|rotated|updated|replaced|renewed|reset)[:;,.]? (?:and |so |now )*(?:it's|it is|the new one "
    r"is)(?: now)? "
    rf"{_VALUE}",
    re.IGNORECASE,
)
_IS_NAMED = re.compile(
    rf"{_LEAD}(?P<name>(?:{_DETERMINER} )(?!{_SKIP})[\w'-]{{1,40}}(?: (?!is\b|are\b)[\w'-]{{1,40}}){{0,3}}?) (?:is|"
    r"are)(?: now| still)? "
    r"(?P<value>(?-i:[A-Z][\w'-]{1,30}(?: [A-Z][\w'-]{1,30}){0,2}))(?=[.,;!]|$| and | but | now)",
    re.IGNORECASE,
)
_LIMIT_IS = re.compile(
    rf"(?P<name>(?:{_DETERMINER} )?(?:(?!{_SKIP})[\w.'/-]{{1,40}} ){{0,4}}?(?:budget|limit|cap|quota|deadline|"
    r"timeout|ceiling|threshold|"
    rf"allowance|due date|cutoff|maximum|minimum|retention|sla)(?: (?:for|of|on) (?:the |our )?(?!\d)[\w-]{{2,30}}(?: "
    r"(?!is\b|are\b|must\b|was\b"
    rf"|has\b|to\b|now\b|stays\b|should\b|will\b)[\w-]{{2,30}}){{0,2}})?)(?: (?:now|has|was|got|is|been|just)){{0,3}} ?"
    rf"(?:{_COPULA}|(?:moved|slipped|shifted|changed|raised|lowered|extended|bumped|cut|reduced|increased|pushed|went|"
    r"goes)(?: back| "
    r"up| down| out)? to) "
    r"(?P<value>(?!not\b|very\b|too\b|so\b|a\b|the\b|tight|important|unclear|unknown|wrong|over\b|gone|fine|close|near|"
    r"reached|exceeded|hit\b|"
    r"error|is\b|was\b|in (?:the|danger)|on (?:the|track))[\w$€£¥#][\w$€£¥.,:/%-]{0,40})",
    re.IGNORECASE,
)
_SCOPE_BEFORE = re.compile(
    r"(?:^|[,;.:] |\band )(?:and |but )?(?:in|on|for|at) (?:the |our |my )?(?P<scope>[\w.-]{2,30}(?: "
    r"[\w.-]{2,30}){0,2}?),? (?=\S)",
    re.IGNORECASE,
)
_SCOPE_AFTER = re.compile(
    r"^[\w ]{0,20}?\b(?:in|on|for|at) (?:the |our |my )?(?P<scope>[A-Za-z][\w.-]{1,30}(?: (?:environment|env|server|"
    r"cluster|account|service|api|project|team|side|db|database))?)",
    re.IGNORECASE,
)
_NO_SCOPE = re.compile(
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|now|today|tomorrow|fact|total|this|that|me|us|you|it|general|"
    r"january|"
    r"february|march|april|may|june|july|august|september|october|november|december|noon|midnight|all|good|example|"
    r"case|"
    r"sure|the|moment|night|place|my|our|your|short|mind|use|addition|future|week|month|year|everything|everyone|note|"
    r"notes|"
    r"remember|reminder|fyi|btw|rule|important|correction|update|updated|changes?|changed|decision|config|"
    r"configuration|"
    r"settings?|values?|details|here|info|also|ps|new|sorry|actually|wait|ok|okay|summary|facts?|context|heads|to|one|"
    r"for|"
    r"things?|plan|and|but|so|hi|hey|thanks|yes|no|right|well|good|record|reference|clarity|ports?)(?![\w-])"
)
_SCOPE_HEAD = re.compile(r"^\W{0,4}(?P<scope>[\w-]{2,30}(?: [\w-]{2,30}){0,2}): (?=\S)")


_SENTENCE = 400
"""What gives a name a value is a sentence, and no longer than that."""
_GIVES = re.compile(r"=|: ")
_GIVING = word_set(
    "is are was equals becomes became reads stays remains set change changed make bump bumped raise raised "
    "increase increased lower lowered reduce reduced update updated move moved switch switched extend extended "
    "correct adjust adjusted run runs listen listens lives sits use uses using serves has went goes rotated slipped "
    "shifted reset "
    "pushed port version account cut be target need require"
)


def valued(said: Sentence) -> list[Made]:
    """Names that are given a value, one fact each. Two in one sentence are told apart, clause by clause."""
    text = said.text
    if len(text) > _SENTENCE:
        return []
    if (made := paired(said)) or (made := _read(text)):
        return made
    if _only_mentions(text):
        return []
    if not (_GIVES.search(said.low) or said.words & _GIVING) or _pattern(text) is None:
        return []
    clauses = _clauses(text)
    made = [m for clause in clauses if (m := _one(clause, whole=text if len(clauses) == 1 else clause)) is not None]
    if len(clauses) > 1 and (len(made) < len(clauses) or len({m.key for m in made}) < len(made)):
        whole = _one(text, whole=text)
        return [whole] if whole is not None else []
    return made if len(made) != 1 else [*made, *_also_for(made[0])]


_WORTH = re.compile(r"\d|[a-z][A-Z/_@:]|\s[\"“`(]?[A-Z]|\w-\w|->|=>|→|:|\b(?:now|instead|wrong|for|as|new)\b")


def _read(text: str) -> list[Made]:
    """What the words say of something, whichever way round."""
    if not _WORTH.search(text) or ("=" in text and " = " not in text and _PAIR.search(text)):
        return []
    if (found := term(text)) is None:
        return []
    if not found.sure and (_DATED.search(found.value) or not _CODE.search(found.value) or _is_address(found.value)):
        return []
    if _is_address(found.value) and not found.changes and not _LABELLED_NAME.search(found.subject):
        return []
    return [_made(found, text)]


def _only_mentions(text: str) -> bool:
    """Whether it is about a place: where something lies is no value that the next place takes over."""
    found = next(identifiers(text), None) if "/" in text or "\\" in text or "." in text else None
    return found is not None and found.kind in ("path", "url") and not _NAMES_PLACE.search(plain(text))


_NAMES_PLACE = re.compile(rf"\b(?!file\b|link\b|version\b|model\b|name\b){_LABELS}\b|=")
_CODE = re.compile(
    r"\d{4}|(?=\S*\d)\S*[A-Za-z]\S*\d|[A-Za-z]\S*-\S*\d|\d-\S|_\S*\d|[A-Z]+ \d+|^\S{1,12}\d{2,}$|\d\.\d+\.\d"
)
_DATED = re.compile(
    r"^(?:19|20)\d\d(?:$|\s)|^[$€£¥]|^\d{1,3}(?:[.,]\d{1,3})?(?: ?%|st|nd|rd|th)?(?: [a-z]|$)|^[A-Z]\w+ \d{1,2}$|"
    r"^\d+ [a-z]{2,}"
)
_LABELLED_NAME = re.compile(rf"\b(?!file|link|version|model){_LABELS}$")


def _is_address(value: str) -> bool:
    """Whether it is a path or a link: a sentence that mentions one gives no name a new value."""
    return bool(_PATH.fullmatch(value) or _URL.match(value) or _FILE.fullmatch(value)) and not value.startswith("v")


def _made(found: Term, text: str) -> Made:
    if not found.sure:
        return Made("identifier", f"{found.subject} {found.value}"[:200], text)
    if _LIKED.search(found.subject):
        return Made("preference", found.subject, text)
    if LIMIT_NOUN.search(found.subject):
        return Made("limit", found.subject, text)
    return Made("identifier", found.subject, text)


_NUMBERS = re.compile(r"\S*\d\S*")
_APART = re.compile(r"(?P<strong>;|,? and|,? while|,? whereas|,? but|,? vs\.?) |, ")


def paired(said: Sentence) -> list[Made]:
    """Two things with a value each in one sentence: each is a fact of its own, in its own words."""
    text = said.text
    if len(text) > _SENTENCE or len(_NUMBERS.findall(text)) < 2:
        return []
    parts: list[tuple[Term, str]] = []
    start = 0
    cuts = list(islice(_APART.finditer(text), 10))
    for n, cut in enumerate(cuts):
        left = text[start : cut.start()]
        end = cuts[n + 1].start() if n + 1 < len(cuts) else len(text)
        first = _own(left)
        second = _own(text[cut.end() : end]) or (_own(text[cut.end() :]) if cut["strong"] else None)
        if first is not None and second is not None and _differ(first, second):
            parts.append((first, left))
            start = cut.end()
    last = _own(text[start:]) if parts else None
    if last is None:
        return []
    return [_made(found._replace(sure=True), words) for found, words in [*parts, (last, text[start:])]]


def _own(clause: str) -> Term | None:
    found = term(clause.strip())
    return found if found is not None and found.exact == EXACT else None


def _differ(one: Term, other: Term) -> bool:
    return one.subject != other.subject and one.value != other.value and not other.former


_ALSO_FOR = re.compile(
    rf"(?:,|;|,? and|,? but|,? while) {_VALUE} (?:for|on|in|at) (?:the |our )?(?P<scope>[A-Za-z][\w-]{{1,30}})",
    re.IGNORECASE,
)


def _also_for(first: Made) -> list[Made]:
    """ "The port is 8081 on staging and 9090 on production": one sentence, but two things, which change apart."""
    scope, _, rest = first.key.partition(" ")
    found = {name(m["scope"]) for m in _ALSO_FOR.finditer(first.text)} if rest else set()
    return [
        first._replace(key=f"{other} {rest}") for other in sorted(found - {scope, ""}) if not _NO_SCOPE.match(other)
    ]


_BETWEEN = re.compile(
    r"(?:;|,? and|,? while|,? whereas|,? but|,|\.) (?!(?:not|instead|rather|no longer|unless|until)\b)(?=\S)"
)


def _clauses(text: str) -> list[str]:
    """The parts of a sentence that each give a value to a name of their own."""
    parts: list[str] = []
    start = 0
    for between in islice(_BETWEEN.finditer(text), 8):
        rest = _pattern(text[between.end() :])
        if rest is not None and rest.start <= 30 and _pattern(text[start : between.start()]) is not None:
            parts.append(text[start : between.start()])
            start = between.end()
    return [*parts, text[start:]]


class _Value(NamedTuple):
    called: str
    start: int
    end: int


_EXACT = r"[\d`\"“/@_\\#$€£¥]|\w[:-]\w|day\b"
_PATTERNS: tuple[tuple[re.Pattern[str], re.Pattern[str], bool], ...] = (
    (LIMIT_NOUN, _LIMIT_IS, False),
    (
        re.compile(r"\b(?:set|chang|make|bump|rais|increas|lower|reduc|updat|mov|switch|extend|correct|adjust)"),
        _SET,
        True,
    ),
    (re.compile(r"\b(?:make|set) "), _MAKE, True),
    (re.compile(r"ed to |ed from |\b(?:set|went|goes|reset|cut)\b|ed \w+ to "), _MOVED, True),
    (re.compile(r"\b(?:port|version|branch|account|region|table|build)\b"), _RUNS, True),
    (re.compile(r"\buse\b"), _USE_FOR, True),
    (re.compile(r"\b(?:us(?:e|ing)|target|need|require)"), _USE, True),
    (re.compile(r":"), _COLON, False),
    (re.compile(r"\d$|\d[.!]$|\w[.!]?$"), _LABEL_VALUE, True),
    (re.compile(_EXACT), _IS, True),
    (re.compile(r"\bit"), _NOW_IT_IS, True),
    (re.compile(r"\b(?:is|are)\b"), _IS_NAMED, False),
    (re.compile(rf"\b{_LABELS}\b"), _IS_CALLED, False),
)
"""What a sentence must have for a pattern to be worth a try, which is quick to see; the pattern; and whether its value
has to look exact."""


_EXACTLY = re.compile(_EXACT)


def _pattern(text: str) -> _Value | None:
    if "=" in text and (pair := _PAIR.search(text)) is not None:
        return _Value(pair["name"], pair.start(), pair.end())
    low = plain(text)
    exact = _EXACTLY.search(low) is not None
    for worth, pattern, needs_exact in _PATTERNS:
        if (exact or not needs_exact) and worth.search(low) and (match := pattern.search(text)) is not None:
            groups = match.groupdict()
            called = groups.get("name") or f"{groups['scope']} {groups['label']}"
            if name(called):
                return _Value(called, match.start(), match.end())
    return None


_LIKED = re.compile(r"\b(?:favou?rite|preferred)\b")


def _one(clause: str, *, whole: str) -> Made | None:
    found = _pattern(clause)
    if found is None:
        return None
    called = name(found.called)
    before = _SCOPE_BEFORE.search(clause, 0, max(0, found.start) + 40) if found.start else None
    after = _SCOPE_AFTER.match(clause[found.end :])
    head = _SCOPE_HEAD.match(clause)
    for scope in (
        head and head.end() <= found.start + 1 and head["scope"],
        before and before.end() <= found.start + 1 and before["scope"],
        after and after["scope"],
    ):
        if scope and not _NO_SCOPE.match(plain(scope)) and name(scope) and name(scope) not in called:
            called = f"{name(scope)} {called}"
            break
    if _LIKED.search(called):
        return Made("preference", called[:200], whole)
    if LIMIT_NOUN.search(called):
        return Made("limit", (limit_name(clause) or called)[:200], whole)
    return Made("identifier", called[:200], whole)
