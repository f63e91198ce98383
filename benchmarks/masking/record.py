"""Records the conversations that masking is measured on, from this repository: real files, listings, searches, diffs
and test runs, in the order of an agent's work. They were recorded once, so that the page stays comparable; the sessions
are made by a script, and what tools answer in them is real.

`python -m benchmarks.masking.record` records them again, from a clone with its history.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.masking.talks import RECORDED, Talk, expanded

ROOT = Path(__file__).parent.parent.parent
LONGEST = 20_000
"""Characters of one answer: tools of coding agents cut off about there."""

BROKEN = (
    (
        "src/onefold/messages/result_mask.py",
        "len(made) < len(result.text)",
        "len(made) > len(result.text)",
        "unit/messages/test_result_mask",
    ),
    (
        "src/onefold/compaction/limits.py",
        "size > limits.hard_tokens",
        "size < limits.hard_tokens",
        "unit/compaction/test_limits",
    ),
    ("src/onefold/compaction/policy.py", "self.attempts < 1", "self.attempts < 3", "unit/compaction/test_policy"),
    ("src/onefold/messages/tool_groups.py", "return", "return None  #", "unit/compaction/test_cut_planner"),
    ("src/onefold/messages/sentences.py", "return", "yield  #", "unit/messages/test_sentences"),
    ("src/onefold/messages/speaker_text.py", "lower()", "upper()", "unit/messages/test_speaker_text"),
    ("src/onefold/messages/formats/openai_chat.py", '"tool"', '"tools"', "unit/messages/test_lossless_json"),
    ("src/onefold/compaction/summary_checks.py", "<", ">", "unit/compaction/test_summary_checks"),
)
"""A file, what is changed in it for a run of tests that fails, and which tests."""

ASKS = (
    "Have a look at {path} and tell me what could go wrong there.",
    "The next thing is {name}. Find out who calls it before you touch anything.",
    "I think {path} has grown too long. What would you take out?",
    "Can you check whether {name} is covered by a test, and write one if it is not?",
    "A colleague says that {name} is slow. Please look into it.",
    "Go on with {path}. Keep the public names as they are.",
    "What changed around {name} in the last weeks?",
    "Something in {path} reads oddly to me: why does it look twice?",
    "Please finish what you began in {path}, then run the tests again.",
    "Before you go on: does {name} hold when two processes do it at once?",
)
RULES = (
    "Never push, I do that myself.",
    "Do not touch the files below docs/spec unless I say so.",
    "Keep every commit under 300 lines.",
    "Use the words of the design page in names and messages.",
    "Run the tests of a file before you say that it is done.",
    "No new dependency, whatever it would save.",
    "Tell me first when a change would alter what is stored.",
    "Answer in two sentences, the diff says the rest.",
)
SAYS = (
    "I look at it.", "That is where I begin.", "First I want to see who uses it.", "Let me check the tests.",
    "This needs a closer look.", "One more place to look at.", "I read the part before it as well.",
    "The names differ there, so I search for both.", "Now the change itself.", "I run the tests of this file.",
)  # fmt: skip
ENDS = (
    "Done: {path} does what you asked, and its tests pass.",
    "I found nothing wrong in {path}; what is odd there has a reason, which I put into a comment.",
    "{path} is shorter now. Two callers changed with it.",
    "It holds: the second one is refused, and nothing is written.",
    "The test was missing. It is there now, and it fails without the fix.",
)
SPEECH = (
    "Let me say what this is about, since you were not there when it was decided.",
    "We had a version of this that looked at every message, and it took seconds on the larger stores.",
    "People then asked why the same conversation gave two results on two machines.",
    "It came down to the order in which rows were read, which nobody had written down.",
    "So whatever we do about {name}, the order has to be said and not found by luck.",
    "The other half is in {path}, and I would rather not have both halves know of each other.",
    "If you see a way to have one of them ask the other, without a third name for the same thing, take it.",
    "I do not mind if it takes another day, as long as nobody has to read it twice.",
    "What I do mind is a flag: there are three already, and two of them mean the same.",
    "Think about what a person sees who opens this in a year, with none of us there to ask.",
)


@dataclass(frozen=True)
class Kind:
    """A sort of session: how many calls of the model it has, and how often each kind of step comes."""

    name: str
    about: str
    calls: int
    steps: dict[str, int]
    between: tuple[int, int] = (3, 8)
    """Calls between two messages of the person."""
    speech: int = 1
    """Sentences that the person says at once, at most."""


KINDS = (
    Kind("feature", "a feature over several modules: search, read, edit, test", 240,
         {"read": 6, "grep": 3, "edit": 4, "test": 2, "list": 1}),
    Kind("failing tests", "tests fail, and the cause is looked for", 180,
         {"fail": 4, "read": 4, "grep": 2, "edit": 2, "test": 2, "show": 1}),
    Kind("refactoring", "one name becomes another in many files", 400, {"grep": 3, "read": 4, "edit": 6, "test": 1}),
    Kind("review", "a person goes through the history with the agent", 200,
         {"show": 6, "log": 2, "read": 2}, between=(1, 4)),
    Kind("pages", "documentation is read and written", 160, {"page": 5, "read": 2, "edit": 3, "grep": 1}),
    Kind("logs", "long test logs and histories are searched", 150, {"suite": 4, "log": 3, "fail": 2, "grep": 2}),
    Kind("large files", "files are read whole, again and again", 120, {"whole": 6, "edit": 2, "test": 1}),
    Kind("small steps", "listings and short searches: nearly no result is large", 320,
         {"list": 4, "short": 6, "edit": 4, "peek": 4}),
    Kind("talk", "long explanations by a person, few calls", 110, {"peek": 3, "read": 1, "grep": 1},
         between=(1, 2), speech=10),
    Kind("long haul", "everything, for days", 380,
         {"read": 5, "grep": 3, "edit": 5, "test": 2, "fail": 1, "show": 1, "log": 1, "page": 1, "list": 2}),
)  # fmt: skip


@dataclass
class SummaryInput:
    """What tools answered, by name, as lists of lines."""

    texts: dict[str, list[str]] = field(default_factory=dict)

    def of(self, kind: str) -> list[str]:
        return sorted(name for name in self.texts if name.startswith(kind + " "))


def gathered(folder: Path) -> SummaryInput:
    """Everything that the sessions can ask for."""
    made, chance = SummaryInput(), Random(7)
    files = _run("git", "ls-files", "src", "tests", "docs").splitlines()
    code = [f for f in files if f.endswith(".py") and (ROOT / f).stat().st_size > 2_000]
    for path in chance.sample(code, 90):
        made.texts[f"file {path}"] = _lines((ROOT / path).read_text(encoding="utf-8"), 60_000)
    pages = [f for f in files if f.endswith(".md") and "guarantees" not in f and "spec" not in f]
    for path in chance.sample(pages, 24):
        made.texts[f"page {path}"] = _lines((ROOT / path).read_text(encoding="utf-8"))
    for name in chance.sample(_names(made), 120):
        found = _run("git", "grep", "-n", "-w", name, "--", "src", "tests", "docs/*.md")
        made.texts[f"grep {name}"] = _lines(found, 9_000)
    for folder_name in sorted({str(Path(f).parent) for f in files}):
        listed = _run("git", "ls-files", "--", folder_name).splitlines()
        made.texts[f"list {folder_name}"] = listed[:150]
    commits = _run("git", "log", "--format=%h", "--no-merges", "-n", "250").split()
    for commit in chance.sample(commits, 45):
        made.texts[f"show {commit}"] = _lines(_run("git", "show", "--format=%h %s", "--stat=100", "-p", commit), 14_000)
    for at in range(0, 200, 20):
        shown = _run("git", "log", "--format=%n%h %s", "--stat=100", "--skip", str(at), "-n", "20")
        made.texts[f"log from {at}"] = _lines(shown)
    made.texts |= dict(_test_runs(folder))
    return made


def _test_runs(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Real runs of tests in a copy: some pass, some fail since a line was changed."""
    copy = folder / "project"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", ".frameworks", "*.gz", "__pycache__"))
    for path, old, new, name in BROKEN:
        yield f"test tests/{name}.py", _tested(copy, f"tests/{name}.py", "-q")
        yield f"suite tests/{name}.py", _tested(copy, f"tests/{name}.py", "-v")
        text = (copy / path).read_text(encoding="utf-8")
        (copy / path).write_text(text.replace(old, new, 1), encoding="utf-8")
        yield f"fail tests/{name}.py", _tested(copy, f"tests/{name}.py", "-q", "--tb=long")
        yield f"fail tests/{name}.py, shorter", _tested(copy, f"tests/{name}.py", "-v", "--tb=short")
        (copy / path).write_text(text, encoding="utf-8")


def _tested(copy: Path, *how: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--maxfail=12", *how],
        cwd=copy, env={"PYTHONPATH": f"{copy / 'src'}:{copy}", "PATH": "/usr/bin:/bin", "COLUMNS": "100"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = done.stdout.replace(str(copy), "/project").replace(str(ROOT), "/project")
    told = re.sub(r"(/[\w.+-]+)*/(lib|bin)/python3?[\w./-]*", "/python", told)
    lines = [x for x in told.splitlines() if not x.startswith(("platform", "plugins", "hypothesis profile"))]
    return _lines("\n".join(lines))


def _names(made: SummaryInput) -> list[str]:
    found = {
        name
        for text in made.of("file")
        for line in made.texts[text]
        for name in re.findall(r"(?:def|class) (\w{6,})\(", line)
        if not name.startswith("test_")
    }
    return sorted(found)


def _run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _lines(text: str, most: int = LONGEST) -> list[str]:
    return text[:most].splitlines()


# ---------------------------------------------------------------------- sessions


class Session:
    """One session in the making."""

    def __init__(self, kind: Kind, material: SummaryInput, seed: int) -> None:
        self._kind, self._material, self._chance = kind, material, Random(seed)
        self._rules = self._chance.sample(RULES, 5)
        self._near: list[str] = []
        """The files that the work is about just now: agents come back to what they read."""
        self.messages: list[Any] = [
            {"role": "system", "content": "You are a coding agent. Work in the repository with your tools."}
        ]

    def made(self) -> list[Any]:
        calls = 0
        while calls < self._kind.calls:
            self._person()
            for _ in range(self._chance.randint(*self._kind.between)):
                (kind,) = self._chance.choices([*self._kind.steps], [*self._kind.steps.values()])
                self._step(kind)
                calls += 1
            self.messages.append({"role": "assistant", "content": self._filled(self._chance.choice(ENDS))})
            calls += 1
        return self.messages

    def _person(self) -> None:
        if not self._near or self._chance.random() < 0.4:
            self._near = self._chance.sample(self._material.of("file"), 4)
        said = [self._chance.choice(ASKS)]
        if self._kind.speech > 1:
            said += self._chance.choices(SPEECH, k=self._chance.randint(3, self._kind.speech))
        if self._rules and self._chance.random() < 0.2:
            said.append(self._rules.pop())
        self.messages.append({"role": "user", "content": self._filled(" ".join(said))})

    def _step(self, kind: str) -> None:
        arguments, result = getattr(self, f"_{kind}")()
        name = arguments.pop("tool")
        number = len(self.messages)
        call = {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        says = self._chance.choice(SAYS) if self._chance.random() < 0.5 else None
        self.messages += [
            {"role": "assistant", "content": says, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
        ]

    # Each gives the arguments of a call, and its result: words, or lines of something that was recorded.

    def _read(self, most: int = 220) -> tuple[dict[str, Any], Any]:
        text = self._chance.choice(self._near)
        there = len(self._material.texts[text])
        size = self._chance.randint(min(40, most // 2), most)
        first = self._chance.randrange(max(1, there - size))
        last = min(there, first + size)
        arguments = {"tool": "read", "path": text.split(" ", 1)[1], "offset": first + 1, "limit": last - first}
        return arguments, {"of": text, "from": first, "to": last, "numbered": True}

    def _peek(self) -> tuple[dict[str, Any], Any]:
        return self._read(14)

    def _whole(self) -> tuple[dict[str, Any], Any]:
        text = self._chance.choice(self._near)
        there = min(len(self._material.texts[text]), 400)
        return (
            {"tool": "read", "path": text.split(" ", 1)[1]},
            {"of": text, "from": 0, "to": there, "numbered": True},
        )

    def _any(self, kind: str, tool: str, key: str, how: str = "{}") -> tuple[dict[str, Any], Any]:
        text = self._chance.choice(self._material.of(kind))
        of = how.format(text.split(" ", 1)[1].removesuffix(", shorter"))
        return {"tool": tool, key: of}, {
            "of": text,
            "from": 0,
            "to": len(self._material.texts[text]),
            "numbered": False,
        }

    def _grep(self) -> tuple[dict[str, Any], Any]:
        return self._any("grep", "grep", "pattern")

    def _short(self) -> tuple[dict[str, Any], Any]:
        arguments, found = self._any("grep", "grep", "pattern")
        return {**arguments, "head": 5}, {**found, "to": min(5, found["to"])}

    def _list(self) -> tuple[dict[str, Any], Any]:
        return self._any("list", "list", "path")

    def _page(self) -> tuple[dict[str, Any], Any]:
        return self._any("page", "fetch", "url", "https://example.org/onefold/{}")

    def _show(self) -> tuple[dict[str, Any], Any]:
        return self._any("show", "bash", "command", "git show --stat -p {}")

    def _log(self) -> tuple[dict[str, Any], Any]:
        return self._any("log", "bash", "command", "git log --stat, {}")

    def _test(self) -> tuple[dict[str, Any], Any]:
        return self._any("test", "bash", "command", "pytest -q {}")

    def _suite(self) -> tuple[dict[str, Any], Any]:
        return self._any("suite", "bash", "command", "pytest -v {}")

    def _fail(self) -> tuple[dict[str, Any], Any]:
        return self._any("fail", "bash", "command", "pytest {}")

    def _edit(self) -> tuple[dict[str, Any], Any]:
        text = self._chance.choice(self._near)
        lines = self._material.texts[text]
        first = self._chance.randrange(max(1, len(lines) - 12))
        old = lines[first : first + self._chance.randint(2, 12)]
        new = [re.sub(r"\bself\b", "this", line) if "self" in line else f"{line}  # looked at" for line in old]
        path = text.split(" ", 1)[1]
        arguments = {"tool": "edit", "path": path, "old": "\n".join(old), "new": "\n".join(new)}
        return arguments, f"{path}: {len(old)} lines changed."

    def _filled(self, words: str) -> str:
        path = self._chance.choice(self._near).split(" ", 1)[1]
        name = self._chance.choice(self._material.of("grep")).split(" ", 1)[1]
        return words.format(path=path, name=name)


# ---------------------------------------------------------------------- what is needed later

LAGS = (6, 15, 30, 60, 100, 160)
"""Results between one that holds what is needed, and the call that needs it."""
_KNOWN = (
    re.compile(r"^ *(?P<answer>\d+)\t *(?:async )?(?:def|class) (?P<cue>(?!__)\w{5,})"),
    re.compile(r"^ *\d+\t *(?P<cue>[A-Z_]{5,}) = (?P<answer>.{2,60})$"),
    re.compile(r"^FAILED tests/(?P<cue>[\w/]+)\.py::(?P<answer>\w{12,})"),
    re.compile(r"^tests/(?P<cue>[\w/]+)\.py::(?P<answer>\w{12,})"),
    re.compile(r"^(?P<answer>[0-9a-f]{7,}) (?P<cue>\w[^:]{3,}:[^,.]{10,})"),
    re.compile(r"^(?P<answer>[\w/.]+\.(?:py|md):\d+):.*?(?:def|class) (?P<cue>(?!__)\w{5,})"),
)
"""Lines that answer a later question: what one knows of it, and what one needs to know."""


def needs(talk: Talk, chance: Random) -> list[dict[str, Any]]:
    """Later steps that need a line which stands in one earlier result, and nowhere else before them."""
    results = [at for at, m in enumerate(talk.messages) if m["role"] == "tool"]
    whole = [json.dumps(m, ensure_ascii=False) for m in talk.messages]
    made: list[dict[str, Any]] = []
    taken: set[str] = set()
    for place, at in enumerate(results):
        lag = LAGS[place % len(LAGS)]
        if place + lag >= len(results):
            continue
        use = results[place + lag] - 1
        for line, cue in _answers(talk.messages[at]["content"], chance):
            quoted = json.dumps(line, ensure_ascii=False)[1:-1]
            if line not in taken and sum(quoted in said for said in whole[:use]) == 1:
                made.append({"result": at, "use": use, "lag": lag, "cue": cue, "line": line})
                taken.add(line)
                break
    return made


def _answers(content: str, chance: Random) -> list[tuple[str, str]]:
    found = []
    for line in content.splitlines():
        for known in _KNOWN:
            if match := known.search(line):
                found.append((match.group().strip(), match["cue"]))
                break
    chance.shuffle(found)
    return found


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="onefold-record-") as folder:
        material = gathered(Path(folder))
    talks = []
    for seed, kind in enumerate(KINDS):
        messages = Session(kind, material, seed).made()
        whole = Talk(kind.name, kind.about, expanded(messages, material.texts), ())
        talks.append(
            {"talk": kind.name, "about": kind.about, "messages": messages, "needs": needs(whole, Random(seed))}
        )
    used = {m["content"]["of"] for t in talks for m in t["messages"] if isinstance(m["content"], dict)}
    texts = [{"text": name, "lines": material.texts[name]} for name in sorted(used)]
    rows = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in (*texts, *talks))
    RECORDED.write_bytes(gzip.compress(rows.encode(), 9, mtime=0))
    print(f"{RECORDED.name}: {RECORDED.stat().st_size:,} bytes, {len(talks)} sessions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
