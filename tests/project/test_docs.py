"""What the pages say is tried: code is run, commands are run, names and links are looked up."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer.main

import onefold
from onefold import errors, model
from onefold.acp.room_journal import RoomJournal
from onefold.cli.app import app
from onefold.export import plain
from onefold.journal import pins_and_notes, turns, undo
from onefold.journal.process_liveness import Whereabouts
from onefold.messages import draft
from onefold.messages.codecs import FORMATS
from onefold.model import Claim, Gap, HolderId, Label, Quote, Quotes, Record, Summary, TurnClaim, Usage
from tests.frameworks.environments import FRAMEWORKS
from tests.support import postgres_server
from tests.support.pages import FENCE, TRIED, Block, blocks_of, name_of, prose_of, run_page

ROOT = Path(__file__).parents[2]
OUTSIDE = {ROOT / page for framework in FRAMEWORKS.values() for page in framework.pages}
"""Pages whose examples run in the environments of their frameworks: see tests/frameworks/."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = ROOT / "docs/reference/names.md"
RECORDS = ROOT / "docs/reference/records.md"
GUARANTEES = ROOT / "docs/guarantees.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
GLOSSARY = ROOT / "docs/concepts/glossary.md"
FAILURES = ROOT / "docs/concepts/field-failures.md"

_SERVER = "postgresql://db/agents"


@pytest.mark.parametrize("page", [p for p in PAGES if blocks_of(p) and p not in OUTSIDE], ids=name_of)
def test_every_example_of_a_page_runs_and_prints_what_the_page_shows(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run_page(page, tmp_path, _with_a_server(blocks_of(page), request))


def _with_a_server(blocks: list[Block], request: pytest.FixtureRequest) -> list[Block]:
    """A real one in place of that which the pages name."""
    if not any(_SERVER in b.text for b in blocks):
        return blocks
    address = postgres_server.new_address()
    request.addfinalizer(lambda: postgres_server.drop(address))
    return [replace(b, text=b.text.replace(f"{_SERVER}?", f"{address}&").replace(_SERVER, address)) for b in blocks]


def test_every_command_on_the_pages_that_is_not_run_is_a_target_of_the_makefile() -> None:
    used = {name for page in PAGES for name in re.findall(r"\bmake ([a-z-]+)\b(?=[`\s])", _code(page))}

    assert used
    assert used <= _targets()


def _code(page: Path) -> str:
    spans = re.findall(r"`(make [^`]+)`", prose_of(page))
    return "\n".join([*(f"{s} " for s in spans), *(c for b in blocks_of(page) for c in b.commands)]) + "\n"


def test_every_block_of_commands_of_onefold_is_tried() -> None:
    mixed = [
        f"{name_of(b.page)}:{b.line}"
        for page in PAGES
        for b in blocks_of(page)
        if not b.tried and any(line.startswith(TRIED) for line in b.commands)
    ]

    assert mixed == []


# ---------------------------------------------------------------------- links


def _anchors(page: Path) -> set[str]:
    """The names that a Markdown renderer gives to headings."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {_anchor(h) for h in headings}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _links(page: Path) -> Iterator[str]:
    yield from re.findall(r"\]\(([^)\s]+)\)", prose_of(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    lost = []
    for link in _links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            lost.append(link)

    assert lost == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        reached.add(page)
        linked = [(page.parent / link.partition("#")[0]).resolve() for link in _links(page) if "://" not in link]
        todo += [p for p in linked if p.suffix == ".md" and p.exists() and p not in reached]

    assert {name_of(p) for p in PAGES} <= {name_of(p) for p in reached}


# ---------------------------------------------------------------------- the map, the glossary, the failures


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_contributing_names_every_folder_every_package_and_every_target() -> None:
    page = CONTRIBUTING.read_text(encoding="utf-8")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    folders = {name.split("/")[0] for name in tracked.split("\0") if "/" in name}
    package = ROOT / "src/onefold"
    modules = (m for suffix in ("py", "js") for m in package.rglob(f"*.{suffix}"))
    packages = {str(m.parent.relative_to(package)) for m in modules} - {"."}

    assert packages
    assert sorted(f for f in folders if not re.search(rf"^{re.escape(f)}/ ", page, re.MULTILINE)) == []
    assert sorted(p for p in packages if f"`{p}/`" not in page) == []
    assert sorted(t for t in _targets() if f"| `make {t}` |" not in page) == []


def test_every_file_that_contributing_names_exists() -> None:
    named = set(re.findall(r"`(?:[\w/]+/)?(\w+\.py)`", CONTRIBUTING.read_text(encoding="utf-8")))
    folders = [ROOT / folder for folder in ("src", "tests", "verification", "release")]
    here = {path.name for folder in folders for path in folder.rglob("*.py")}

    assert len(named) > 20
    assert sorted(named - here - {"talk.py"}) == []  # which a page would save


def test_the_glossary_has_forty_words_at_most_in_order_each_in_one_sentence() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| ([A-Z].*) \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    words = [word for word, _ in rows]

    assert 0 < len(words) <= 40
    assert words == sorted(set(words))
    assert [
        word for word, said in rows if not re.fullmatch(r"[^.]+(\.[^. ][^.]*)*\.", re.sub(r"\]\([^)]*\)", "]", said))
    ] == []


def _promises_by_failure() -> dict[str, set[str]]:
    """The sections of the guarantees in which an id such as F04 stands."""
    found: dict[str, set[str]] = {}
    for section in re.split(r"^## ", GUARANTEES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        for id in re.findall(r"\bF\d\d\b", section):
            found.setdefault(id, set()).add(_anchor(section.splitlines()[0]))
    return found


def test_every_field_failure_links_to_a_promise_that_names_it_and_has_a_test() -> None:
    rows = dict(re.findall(r"^\| (F\d\d) \|(.*)$", FAILURES.read_text(encoding="utf-8"), re.MULTILINE))
    links = {id: set(re.findall(r"\(\.\./guarantees\.md#([\w-]+)\)", row)) for id, row in rows.items()}
    promises = _promises_by_failure()
    tests = "\n".join(f.read_text(encoding="utf-8") for f in (ROOT / "tests").rglob("test_*.py"))

    assert set(rows) == set(promises)
    assert sorted(id for id in rows if not links[id] or not links[id] <= promises[id]) == []
    assert sorted(id for id in rows if not re.search(rf"(\b|_){id}(\b|_)", tests, re.IGNORECASE)) == []


def test_every_number_of_the_comparison_in_the_readme_stands_on_a_page_that_it_links_to() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Compared with")[1].split("\n## ")[0]
    linked = {ROOT / link for link in re.findall(r"\]\(([^)\s]+)\)", section)}
    measured = {n for page in linked for n in _numbers(page.read_text(encoding="utf-8"))}

    said = _numbers(re.sub(r"\]\([^)]+\)", "]", section))

    assert said
    assert sorted(said - measured) == []


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:[.,]\d+)*", text))


# ---------------------------------------------------------------------- names


def _tests() -> set[str]:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {
        f"{f.relative_to(ROOT)}::{name}"
        for f in files
        for name in re.findall(
            r"^(?:async def |def |class )?([tT]est_?\w+)(?: =|\(|:)", f.read_text(encoding="utf-8"), re.MULTILINE
        )
    }


def test_every_test_named_by_a_promise_exists() -> None:
    rows = [
        line for line in GUARANTEES.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and "test" in line
    ]
    named = set(re.findall(r"`(tests/[\w/]+\.py::[tT]est_?\w+)`", GUARANTEES.read_text(encoding="utf-8")))
    loose = set(re.findall(r"\btest_\w+\b(?!\.py)", GUARANTEES.read_text(encoding="utf-8"))) - {
        n.split("::")[1] for n in named
    }

    assert rows
    assert sorted(named - _tests()) == []
    assert sorted(loose) == [], "a test is named with its file: `tests/test_x.py::test_y`"


def test_every_file_of_tests_that_the_page_on_security_names_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "docs/security.md").read_text(encoding="utf-8")))

    assert len(named) > 10
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


def test_every_promise_names_a_test() -> None:
    rows = [
        line
        for line in GUARANTEES.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| (?!---|promise|what)", line)
    ]

    assert rows
    assert [r for r in rows if not re.search(r"::[tT]est", r)] == []


def _kinds() -> set[str]:
    source = inspect.getsource(model)
    listed = source[source.index("# Kinds of records") : source.index("MANUAL = ")]
    return set(re.findall(r'^[A-Z_]+ = "([\w.]+)"$', listed, re.MULTILINE))


def test_every_kind_of_record_is_on_the_records_page() -> None:
    headings = set(re.findall(r"^## `([\w.]+)`$", RECORDS.read_text(encoding="utf-8"), re.MULTILINE))

    assert headings == _kinds()


def _is_handed_out(thing: object) -> bool:
    return isinstance(thing, type) and thing is not onefold.Record and not issubclass(thing, Exception)


def test_every_public_name_is_on_the_names_page() -> None:
    page = NAMES.read_text(encoding="utf-8")
    every_error = [n for n, o in vars(errors).items() if isinstance(o, type) and issubclass(o, errors.OnefoldError)]

    missing = [n for n in {*onefold.__all__, *every_error, *_kinds()} if not re.search(rf"`{n}\b", page)]

    assert sorted(missing) == []


@pytest.mark.parametrize("what", [thing for thing in vars(onefold).values() if _is_handed_out(thing)])
def test_every_public_member_of_a_class_is_on_the_names_page(what: type) -> None:
    section = NAMES.read_text(encoding="utf-8").split("## Library")[1].split("\n## ")[0]
    members = {n for n in vars(what) if not n.startswith("_")} | set(getattr(what, "__annotations__", ()))

    missing = [n for n in members if not re.search(rf"`(\w+\.)?{n}\b", section)]

    assert sorted(missing) == []


def test_every_command_is_on_the_names_page_and_none_is_there_that_does_not_exist() -> None:
    section = NAMES.read_text(encoding="utf-8").split("## Command line")[1].split("\n## ")[0]
    here = set(re.findall(r"^\| `onefold (\w+)", section, re.MULTILINE))
    group = typer.main.get_command(app)

    assert here == set(group.commands)  # type: ignore[attr-defined]  # an app with commands makes a group


def test_every_option_on_the_names_page_is_one_of_its_command() -> None:
    section = NAMES.read_text(encoding="utf-8").split("## Command line")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `onefold (\w+)(.*)$", section, re.MULTILINE)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # an app with commands makes a group

    named = {(name, option) for name, rest in rows for option in re.findall(r"`(--[\w-]+)", rest)}
    lost = [
        (n, o)
        for n, o in named
        if not any(o in (*parameter.opts, *parameter.secondary_opts) for parameter in commands[n].params)
    ]

    assert named
    assert sorted(lost) == []


def test_every_module_is_in_the_picture_of_the_parts() -> None:
    picture = (
        (ROOT / "docs/concepts/design.md").read_text(encoding="utf-8").split("## Parts, and who")[1].split("```")[1]
    )
    package = ROOT / "src/onefold"
    inside = [m for part in ("compaction", "journal", "messages") for m in (package / part).glob("*.py")]
    formats = {name.replace("-", "_") for name in FORMATS} | {"plain"}  # the picture has them as one
    modules = {m.stem for m in [*package.glob("*.py"), *inside] if not m.stem.startswith("_")} - formats

    assert sorted(m for m in modules if not re.search(rf"\b{m}\b", picture)) == []


def test_the_examples_of_the_readme_and_the_quickstart_are_type_checked() -> None:
    """`mypy` reads tests/typing; this sees to it that it reads what the pages show."""
    for page in ("README.md", "docs/quickstart.md"):
        checked = (ROOT / "tests/typing" / f"{Path(page).stem.lower()}.py").read_text(encoding="utf-8")
        shown = [b for b in blocks_of(ROOT / page) if b.language == "python" and b.file is None]

        assert shown
        assert [b.line for b in shown if b.text not in checked] == []


# ---------------------------------------------------------------------- records


def _every_record() -> list[Record]:
    """Sessions to which everything happened, with a clock and ids of their own: before an erasure, and after it."""
    count = itertools.count(1)
    clock = [1767225600.0]

    def ids() -> str:
        return f"id-{next(count)}"

    with onefold.open("memory:", clock=lambda: clock[0], ids=ids, agent="builder") as store:
        store.journal.leases.machine = _Laptop()
        session = store.session("fix-the-build")
        _compactions(store, session, clock, ids)
        _turns(store, session, clock)
        _marks(store, session)
        session.context()
        session.undo()
        session.redo()
        fork = session.fork("branch", at=16, id="try-another-way")
        kept = store.session("kept-by-its-agent", keeper="agent")
        kept.append({"role": "user", "content": "Why does the build fail?"})
        _agent(store, kept)
        kept.set_compaction_owner("onefold")
        before = [*session.read(), *kept.read()]
        kept.erase(2, next(r.number for r in kept.read() if r.kind == model.QUESTION_ASKED))
        session.erase(session.queue_input({"role": "user", "content": "My key is 1234."}))
        session.erase(2)
        rests = store.session("nothing-to-do")
        child = _rests(store, rests)
        rested = [*rests.read(), *child.read()]
        rests.erase(2)
        prompted = store.session("new-prompt")
        prompted.append({"role": "system", "content": "You mend builds."}, slot="prompt")
        unfolded = store.session("taken-back")
        _unfolds(store, unfolded)
        masked = store.session("one-line-each")
        _masks(masked)
        adopted = store.session("compacted-elsewhere")
        _adopts(adopted)
        return [
            *before, *session.read(), *fork.read(), *kept.read(), *rested, *rests.read(), *prompted.read(),
            *unfolded.read(), *masked.read(), *adopted.read(),
        ]  # fmt: skip


def _rests(store: onefold.Store, session: onefold.Session) -> onefold.Session:
    """One whose compactions come to nothing without a failure, and that says which limits its agent goes by."""
    journal = store.journal
    session.append({"role": "user", "content": "Hello."})
    session.go_by(onefold.Limits(window=200_000, output=8_000), "large-model")
    journal.request(session.id, trigger="upkeep")
    journal.hand_back(_claimed(journal.claim(session.id, _WHO)), "its process closed the store", asked=True)
    claim = _claimed(journal.claim(session.id, _WHO))
    journal.fail(claim, "StoreUnavailable: the disk did not answer", 0.0, asked=False, input="4f5a")
    journal.skip(_claimed(journal.claim(session.id, _WHO)), "there is nothing to compact since the last time")
    return session.fork("subagent", id="helper")


def _unfolds(store: onefold.Store, session: onefold.Session) -> None:
    """One whose compaction is taken back, and brought back."""
    session.append([{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello."}])
    store.journal.request(session.id)
    store.journal.commit(_claimed(store.journal.claim(session.id, _WHO)), "They said hello.")
    session.unfold()
    session.undo()
    with contextlib.suppress(onefold.SummarizerFailed):
        session.draft_summary(lambda material: " ")
    session.take_draft(session.draft_summary(_says_hello))
    session.erase(2)


def _says_hello(material: onefold.SummaryInput) -> onefold.Summary:
    return onefold.Summary("Both said hello.", by="large-model", spent=onefold.Usage(1, 20, 5, 0.001))


def _masks(session: onefold.Session) -> None:
    """One in which an old result of a tool is shown as one line."""
    call = {"id": "call-1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    session.append({"role": "user", "content": "Read it."})
    session.append({"role": "assistant", "content": None, "tool_calls": [call]})
    session.append({"role": "tool", "tool_call_id": "call-1", "content": "Lorem ipsum. " * 100})
    session.mask(4)


def _adopts(session: onefold.Session) -> None:
    """One that its provider compacted, and that went on."""
    session.append([{"role": "user", "content": "Plan my garden."}, {"role": "assistant", "content": "Gladly."}])
    sent = session.context()
    block = {"type": "compaction", "content": "A garden is to be planned."}
    answer = {"role": "assistant", "content": [block, {"type": "text", "text": "With a shed?"}]}
    (number,) = session.append(answer, format="anthropic").numbers
    session.adopt(number, origin=onefold.Origin("anthropic", model="large-model"), covers=sent)
    session.append({"role": "user", "content": "Yes."})
    session.undo()


def _agent(store: onefold.Store, session: onefold.Session) -> None:
    """One that asks something, compacts by itself, and ends."""
    room_journal = RoomJournal(store, session.id)
    info = {"name": "OpenCode", "version": "1.18"}
    command = ["opencode", "…"]
    started = {
        "agent": "opencode",
        "command": command,
        "cwd": "/work",
        "pid": 4711,
        "how": "new",
        "session": "ses_7f3a",
    }
    room_journal.started({**started, "info": info})
    options = [{"optionId": "once", "name": "Allow once", "kind": "allow_once"}]
    asked = {"sessionId": "ses_7f3a", "toolCall": {"toolCallId": "call-1"}, "options": options}
    room_journal.asked("question-1", "session/request_permission", asked, None)
    answer = {"result": {"outcome": {"outcome": "selected", "optionId": "once"}}}
    room_journal.answered("question-1", "answered", answer=answer, actor="ana")
    room_journal.finished("acp", ("acp", "usage"), act="acp:compaction-1", said="Ana asked why the build fails.")
    room_journal.unqueue(
        room_journal.queue({"prompt": [{"type": "text", "text": "Never mind."}]}, actor="ana", key=None), actor="ana"
    )
    room_journal.ended({"code": None, "signal": 9, "cause": "it was killed by SIGKILL"})


_WHO = HolderId(host="laptop", pid=4711, thread="MainThread", agent="builder", nonce="9f2c")


class _Laptop:
    """A machine whose processes live."""

    def this(self) -> Any:
        return {"machine": "412b4e5976ce29b8348b", "pid": 4711, "start": 80405}

    def whereabouts(self, process: Any) -> Whereabouts:
        return "here"


def _compactions(store: onefold.Store, session: onefold.Session, clock: list[float], ids: Callable[[], str]) -> None:
    journal = store.journal
    session.append({"role": "user", "content": "Why does the build fail?"}, key="input-1", actor="ana")
    session.append({"role": "assistant", "content": "A test needs the network."})
    for trigger, actor in (("threshold", "builder"), ("manual", "ana")):
        journal.request(session.id, trigger=trigger, base=1, attempts=2, actor=actor)
    claim = _claimed(journal.claim(session.id, _WHO))
    journal.fail(claim, "the summary is empty", 2.0, refusal="empty", spent=Usage(1, 310, 1, 0.0004))
    clock[0] += 2.0
    journal.fail(_claimed(journal.claim(session.id, _WHO)), "TimeoutError: no answer", 2.0)
    journal.request(session.id, trigger="overflow", base=1, instructions="Keep file names.")
    follow_up = draft({"role": "user", "content": "Go on."}, ids)
    claim = _claimed(journal.claim(session.id, _WHO))
    summary = Summary(
        "Ana asked why the build fails.", by="small-model", spent=Usage(1, 312, 9, 0.0005),
        instead_of=("large-model: unavailable",),
    )  # fmt: skip
    quotes = Quotes(
        (Quote(2, "/content", 0, 24, 0.0),), gaps=(Gap(3, 3, 1),), room=16, covers=10,
        labels=(Label(2, "/content", 0, 24, "goal", "build"),),
    )  # fmt: skip
    journal.commit(claim, summary, 3, kept=(2,), quotes=quotes, follow_up=follow_up)
    session.take_input()
    journal.request(session.id)
    session.cancel()
    journal.request(session.id)
    undo.restore(journal, session.id, 1, expect_head=session.head)
    session.alias("agent-7f3a")
    journal.backend.write(session.id, lambda tx: tx.add_input(session.id, 3))
    store.verify(fix=True)


def _turns(store: onefold.Store, session: onefold.Session, clock: list[float]) -> None:
    """One whose writer dies, and one that settles."""
    died = _begun(turns.start(store.journal, session.id, _WHO, owner="gateway"))
    call = {"id": "call-1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    said = [{"role": "user", "content": "Mend it."}, {"role": "assistant", "tool_calls": [call]}]
    store.journal.append(session.id, [draft(m, store.journal.new_id) for m in said], turn=died)
    clock[0] += 31.0
    lives = _begun(turns.start(store.journal, session.id, _WHO, owner="gateway"))
    store.journal.append(session.id, [draft({"role": "user", "content": "And now?"}, store.journal.new_id)], turn=lives)
    turns.end(store.journal, lives)


def _marks(store: onefold.Store, session: onefold.Session) -> None:
    session.pin(2, actor="ana")
    session.unpin(2, actor="ana")
    pins_and_notes.note(store.journal, session.id, "rule", "Do not push.", key="push", actor="ana", source=(2,))


def _claimed(answer: object) -> Claim:
    assert isinstance(answer, Claim)
    return answer


def _begun(answer: object) -> TurnClaim:
    assert isinstance(answer, TurnClaim)
    return answer


def _plain(record: Record) -> dict[str, Any]:
    head = {} if record.header is None else {"header": plain(record.header)}
    return {name: value for name, value in {**record._asdict(), **head}.items() if value is not None}


def _alike(value: object) -> str:
    """As text in which every id made by the library looks the same."""
    return re.sub(r'"id-\d+"', '"id-…"', json.dumps(value, sort_keys=True))


def _section(kind: str) -> str:
    return re.split(r"^## ", RECORDS.read_text(encoding="utf-8").split(f"## `{kind}`\n")[1], flags=re.MULTILINE)[0]


@pytest.mark.parametrize("kind", sorted(_kinds()))
def test_the_records_page_shows_real_records(kind: str) -> None:
    real = {_alike(_plain(r)) for r in _every_record() if r.kind == kind}

    shown = [json.loads(text) for language, text in FENCE.findall(_section(kind)) if language == "json"]

    assert shown
    assert [s for s in shown if _alike(s) not in real] == []


@pytest.mark.parametrize("kind", sorted(_kinds() - {model.MESSAGE, model.INPUT_QUEUED}))
def test_the_records_page_names_every_field_of_a_body(kind: str) -> None:
    """The body of a message, and of an input, is whatever the caller gave."""
    written = {name for r in _every_record() if r.kind == kind for name in r.body}

    named = set(re.findall(r"^\| `(\w+)` \|", _section(kind), re.MULTILINE))

    of_old = {"facts"} if kind == model.SEGMENT_OPENED else set()  # which this version reads and does not write
    assert named == written | of_old
