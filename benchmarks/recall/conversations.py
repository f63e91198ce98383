"""Generated conversations of agents, with questions that come long after and say in other words what was said.

Everything is drawn from a seed. Each question has one record that answers it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from benchmarks.recall.languages import Language, Matter
from onefold.model import Json

KINDS = ("inflected", "other words", "answered", "printed", "changed after", "who", "when")
_VALUES = (
    "Aurelia", "Bonsai", "Cobalt", "Dorado", "Ember", "Fjord", "Granite", "Harbor", "Indigo", "Juniper", "Krypton",
    "Lagoon", "Meteor", "Nimbus", "Onyx", "Pollux", "Quartz", "Rubicon", "Saffron", "Tundra", "Umbra", "Vortex",
    "Willow", "Xenon",
)  # fmt: skip
_NAMES = ("Nora", "Tarik", "Ines", "Pavel", "Greta", "Omar")
_VERBS = ("export", "merge", "rotate", "resolve", "archive", "import", "migrate", "collect")
_NOUNS = ("ledger", "cluster", "bucket", "schema", "tariff", "session", "queue", "digest", "voucher", "locale")
_DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Said:
    """A message with its time."""

    body: Json
    at: float
    asked: str | None = None
    """The number of a question that it answers, as `kind/n`."""


@dataclass(frozen=True, slots=True)
class Question:
    kind: str
    text: str
    id: str


@dataclass(slots=True)
class Conversation:
    said: list[Said] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


@dataclass(slots=True)
class _Piece:
    """Messages that stay in a row, and the question that one of them answers."""

    bodies: list[Json]
    answer: int = -1
    kind: str = ""
    text: str = ""


def conversation(language: Language, seed: int) -> Conversation:
    """Half a year of it."""
    dice = Random(f"{language.name} {seed}")
    pieces = [*_facts(language, dice), *_programs(language, dice), *_opinions(language, dice)]
    pieces += [_Piece([_filler(language, dice)]) for _ in range(2 * len(pieces))]
    dice.shuffle(pieces)
    made = Conversation()
    start = datetime(2026, 1, 1, 9, tzinfo=UTC).timestamp()
    step = 181 * _DAY / len(pieces)
    for i, piece in enumerate(pieces):
        at = start + i * step
        id = f"{piece.kind}/{i}" if piece.kind else None
        for j, body in enumerate(piece.bodies):
            if j and dice.random() < 0.15:
                made.said.append(Said(_filler(language, dice), at + 60 * j - 20))
            made.said.append(Said(body, at + 60 * j, id if j == piece.answer else None))
        if id is not None:
            made.questions.append(Question(piece.kind, piece.text, id))
    _ask_when(language, dice, made)
    return made


def _facts(language: Language, dice: Random) -> Iterator[_Piece]:
    """Each matter of each subject once: stated, stated in other words than it is asked for, or asked and answered."""
    for subject, asked in language.subjects:
        for matter in language.matters:
            value = _value(dice)
            kind = dice.choice(("inflected", "other words", "answered"))
            bodies, answer = _fact(language, dice, matter, kind=kind, subject=subject, value=value)
            text = matter.others if kind == "other words" else matter.later
            yield _Piece(bodies, answer, kind, text.format(q=asked))


def _fact(
    language: Language, dice: Random, matter: Matter, *, kind: str, subject: str, value: str
) -> tuple[list[Json], int]:
    said = _sentence(matter.said.format(s=subject, v=value))
    match kind:
        case "inflected":
            return [_user(said), _assistant(dice.choice(language.fillers[:4]))], 0
        case "other words":
            return [_user(matter.topic), _assistant(said)], 1
    question = _sentence(matter.asked.format(s=subject))
    return [_user(question), _assistant(dice.choice(language.answers).format(v=value))], 1


def _programs(language: Language, dice: Random) -> Iterator[_Piece]:
    """Calls and their results: what a program printed, and what was changed after tests failed."""
    names = [(verb, noun) for verb in _VERBS for noun in _NOUNS]
    dice.shuffle(names)
    for n, (verb, noun) in enumerate(names[:12]):
        name = dice.choice((f"{verb}{noun.title()}", f"tools/{verb}_{noun}.py", f"{verb}-{noun}"))
        call = _call(f"{verb}{noun}{n}", "bash", {"command": f"run {name} --all"})
        printed = f"{dice.randrange(100, 999)} rows, {dice.randrange(2, 99)} skipped, took {dice.randrange(2, 60)} s"
        text = language.printed.format(f=f"{verb} {noun}")
        yield _Piece([call, _result(f"{verb}{noun}{n}", printed)], 1, "printed", text)
    files = [f"src/{_NOUNS[n % len(_NOUNS)]}/{verb}_{n}.py" for n, verb in enumerate(_VERBS + _VERBS)]
    dice.shuffle(files)
    for n, (subject, asked) in enumerate(language.subjects):
        test, edit = f"test{n}", f"edit{n}"
        failed = f"{dice.randrange(2, 9)} failed, {dice.randrange(10, 99)} passed"
        changed = {"path": files[n], "old": f"limit = {n}", "new": f"limit = {n + dice.randrange(2, 9)}"}
        bodies = [
            _assistant(language.run.format(s=subject)),
            _call(test, "bash", {"command": "pytest -q"}),
            _result(test, failed),
            _call(edit, "edit_file", changed),
            _result(edit, "ok"),
        ]
        yield _Piece(bodies, 3, "changed after", _sentence(language.changed_after.format(q=asked)))


def _opinions(language: Language, dice: Random) -> Iterator[_Piece]:
    """What people think of a subject; each is asked for by the name of who said it."""
    for subject, asked in language.subjects:
        for name in dice.sample(_NAMES, 3):
            said = _user(_sentence(dice.choice(language.opinions).format(s=subject)), name)
            yield _Piece([said], 0, "who", language.who_said.format(n=name, q=asked))


def _ask_when(language: Language, dice: Random, made: Conversation) -> None:
    """Asks for opinions by their month, where only one of a subject is of that month."""
    by_month: dict[tuple[str, int], list[int]] = {}
    for i, one in enumerate(made.said):
        if one.asked is not None and one.asked.startswith("who/"):
            subject = next(s for s, _ in language.subjects if s.casefold() in one.body["content"].casefold())
            month = datetime.fromtimestamp(one.at, UTC).month
            by_month.setdefault((subject, month), []).append(i)
    for (subject, month), found in sorted(by_month.items()):
        if len(found) == 1 and month <= len(language.months):
            asked = dict(language.subjects)[subject]
            text = language.when_said.format(m=language.months[month - 1], q=asked)
            id = str(made.said[found[0]].asked)
            made.questions.append(Question("when", text, id))


def _filler(language: Language, dice: Random) -> Json:
    text = _sentence(dice.choice(language.fillers).format(s=dice.choice(language.subjects)[0]))
    return _user(text) if dice.random() < 0.5 else _assistant(text)


def _value(dice: Random) -> str:
    one, other = dice.sample(_VALUES, 2)
    return f"{one}-{other}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _user(text: str, name: str | None = None) -> Json:
    return {"role": "user", "content": text} | ({"name": name} if name is not None else {})


def _assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


def _call(id: str, name: str, arguments: dict[str, str]) -> Json:
    told = ", ".join(f'"{key}": "{value}"' for key, value in arguments.items())
    function = {"name": name, "arguments": f"{{{told}}}"}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def _result(id: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": text}
