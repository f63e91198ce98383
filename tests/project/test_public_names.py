"""The public face: these names stay. A change here is a change for everybody who uses the library."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from importlib.metadata import version

import pytest

import onefold
from onefold import errors
from onefold.journal import agent_compactions, erasure, forks, pins_and_notes, turns, undo, unfold
from onefold.journal.journal import Journal
from tests.support.public_names import METHODS

ERRORS = {
    "OnefoldError": "Exception",
    "StoreError": "OnefoldError",
    "StoreTooNew": "StoreError",
    "StoreUnavailable": "StoreError",
    "StoreDamaged": "StoreError",
    "SessionNotFound": "OnefoldError",
    "TurnBusy": "OnefoldError",
    "TurnLost": "OnefoldError",
    "InvalidMessage": "OnefoldError",
    "MessageTooLarge": "InvalidMessage",
    "ContextTooLarge": "OnefoldError",
    "CompactionDisabled": "OnefoldError",
    "SummarizerFailed": "OnefoldError",
    "CommitRefused": "OnefoldError",
    "CompactionSuperseded": "CommitRefused",
    "CompactionCancelled": "CommitRefused",
    "StaleHandle": "OnefoldError",
    "NotNow": "OnefoldError",
    "KeyConflict": "OnefoldError",
    "OutcomeUnknown": "OnefoldError",
}
THINGS = {
    "AppendResult", "Compaction", "Compactor", "CompactResult", "Context", "Deleted", "Erased", "extractive_summary",
    "Fact", "Finding", "Holder", "LabelEnd", "Limits", "Note", "open", "OpenTurn", "Origin", "Policy", "Record",
    "Report", "Segment", "Session", "SessionState", "Store", "Summarizer", "Summary", "SummaryDraft", "SummaryInput",
    "Turn", "Usage",
}  # fmt: skip
STORE = {
    "address", "backup", "close", "compactions", "delete", "finish", "forks", "generation", "purge", "resolve",
    "session", "sessions", "verify", "walk",
}  # fmt: skip
SESSION = {
    "adopt", "alias", "aliases", "append", "cancel", "compact", "compaction_holder", "compactions", "context",
    "draft_summary", "erase", "facts", "follow", "fork", "go_by", "head", "hidden", "limits", "mask", "note", "notes",
    "open_turn", "pin", "pins", "queue_input", "read", "record_agent_compaction", "redo", "refold", "rewind",
    "segments", "set_compaction_owner", "state", "stop_turn", "take_draft", "take_input", "turn", "undo", "unfold",
    "unpin",
}  # fmt: skip
TURN = {"abandon", "append", "end", "id", "number", "take_input"}
CONTRACT = {
    Journal: {"append", "cancel", "claim", "claim_next", "commit", "create", "fail", "follow", "hand_back", "read",
              "renew", "request", "skip"},
    turns: {"end", "queue_input", "renew", "start", "stop", "take_input"},
    undo: {"redo", "restore", "rewind", "undo"},
    unfold: {"refold", "unfold"},
    forks: {"fork"},
    agent_compactions: {"record_agent_compaction", "set_compaction_owner"},
    pins_and_notes: {"alias", "go_by", "note", "pin", "resolve", "unpin"},
    erasure: {"delete", "erase"},
}  # fmt: skip
FIELDS = {
    onefold.AppendResult: ["numbers", "duplicate", "hidden"],
    onefold.CompactResult: ["id", "state", "changed", "joined", "applied", "cause", "segment"],
    onefold.Context: [
        "messages", "tokens", "segment", "numbers", "formats", "summary", "left_out", "last", "pinned", "notes",
        "facts", "quotes", "prompt", "masked", "origin", "item",
    ],
    onefold.Deleted: ["session", "records", "forks", "wiped", "remains"],
    onefold.Erased: ["session", "numbers", "summaries", "forks", "compaction", "wiped", "remains"],
    onefold.Holder: ["host", "pid", "thread", "agent", "nonce", "since", "until"],
    onefold.SummaryInput: [
        "session", "previous", "records", "instructions", "max_tokens", "attempt", "facts", "refused", "stopped",
    ],
    onefold.Fact: ["kind", "key", "text", "source", "by", "until"],
    onefold.Usage: ["calls", "input_tokens", "output_tokens", "cost"],
    onefold.Record: ["number", "id", "kind", "at", "body", "format", "header", "key", "turn", "actor"],
    onefold.Note: ["number", "kind", "text", "key", "actor", "at"],
    onefold.OpenTurn: ["id", "number", "owner", "holder", "since", "until"],
    onefold.Segment: [
        "number", "base", "cut", "source", "at", "compaction", "summary", "kept", "tokens_before", "tokens_after",
        "hidden", "redo", "keeper", "unfolds", "masked", "origin", "item", "adopted",
    ],
    onefold.SummaryDraft: ["session", "head", "number", "summary", "quotes", "present"],
    onefold.Summary: ["text", "cut_off", "by", "facts", "spent", "instead_of", "ends"],
}  # fmt: skip


def public(thing: type) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


def test_all_is_exactly_what_the_package_offers() -> None:
    assert set(onefold.__all__) == THINGS | set(ERRORS)
    assert len(onefold.__all__) == len(set(onefold.__all__))
    offered = {n for n, v in vars(onefold).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert offered == set(onefold.__all__)


def test_the_package_says_its_version() -> None:
    assert onefold.__version__ == version("onefold")


def test_every_name_in_all_is_there_and_documented() -> None:
    for name in onefold.__all__:
        thing = getattr(onefold, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name


@pytest.mark.parametrize(("name", "parent"), ERRORS.items())
def test_every_error_has_its_place_in_the_tree_and_says_what_it_means(name: str, parent: str) -> None:
    error = getattr(onefold, name)

    assert [base.__name__ for base in error.__bases__] == [parent]
    assert issubclass(error, onefold.OnefoldError)
    assert "__doc__" in vars(error)
    assert vars(error)["__doc__"].strip().endswith(".")


def test_there_is_no_error_that_is_not_public() -> None:
    defined = {n for n, v in vars(errors).items() if inspect.isclass(v) and issubclass(v, Exception)}

    assert defined == set(ERRORS)


def test_the_methods_of_a_store_a_session_and_a_turn() -> None:
    assert public(onefold.Store) == STORE
    assert public(onefold.Session) == SESSION | METHODS
    assert public(onefold.Turn) == TURN
    for thing in (onefold.Store, onefold.Session, onefold.Turn):
        for name in public(thing):
            assert callable(getattr(thing, name)) or isinstance(vars(thing)[name], property)


def test_a_session_has_its_id_and_a_store_its_journal_and_policy() -> None:
    with onefold.open("memory:") as store:
        assert store.session("s").id == "s"
        assert repr(store.session("s")) == "Session('s')"
        assert store.policy == onefold.Policy()
        assert type(store.journal) is Journal


@pytest.mark.parametrize(("where", "names"), CONTRACT.items(), ids=lambda v: getattr(v, "__name__", ""))
def test_the_operations_of_the_contract(where: object, names: set[str]) -> None:
    assert [n for n in sorted(names) if not inspect.isfunction(vars(where).get(n))] == []


@pytest.mark.parametrize(("thing", "names"), FIELDS.items(), ids=lambda v: getattr(v, "__name__", ""))
def test_the_fields_of_what_is_handed_out(thing: type, names: list[str]) -> None:
    fields = getattr(thing, "_fields", None) or [f.name for f in dataclasses.fields(thing)]
    assert list(fields) == names


def parameters(function: object) -> list[str]:
    assert callable(function)
    return [str(p.name if p.kind is not p.KEYWORD_ONLY else f"*{p.name}") for p in _signature(function)]


def _signature(function: object) -> list[inspect.Parameter]:
    assert callable(function)
    return [p for name, p in inspect.signature(function).parameters.items() if name != "self"]


def test_the_arguments_of_the_calls_that_everybody_makes() -> None:
    session = onefold.Session
    assert parameters(onefold.open) == [
        "address",
        "*create",
        "*summarizer",
        "*policy",
        "*clock",
        "*ids",
        "*agent",
        "*group",
    ]
    assert parameters(onefold.Store.session) == ["id", "*create", "*keeper"]
    assert parameters(session.append)[:3] == ["messages", "*key", "*format"]
    assert parameters(session.context) == ["segment", "*origin"]
    assert parameters(session.adopt)[-2:] == ["*origin", "*covers"]
    assert parameters(session.read) == ["start", "stop"]
    assert parameters(session.follow)[:1] == ["after"]
    assert parameters(session.compact)[:4] == ["summarizer", "*trigger", "*instructions", "*wait"]
    assert parameters(session.turn) == ["*owner", "*wait"]
    assert parameters(onefold.Turn.append) == parameters(session.append)
    assert parameters(onefold.Turn.end) == ["outcome", "cause"]
    assert parameters(session.note)[:3] == ["kind", "text", "key"]
    assert parameters(session.fork) == ["kind", "at", "*id"]
    assert parameters(session.undo) == parameters(session.redo) == []
    assert parameters(session.rewind) == ["to"]
    assert parameters(session.pin)[:1] == parameters(session.unpin)[:1] == ["number"]
    assert parameters(session.erase) == ["numbers", "*remove_copies"]


def test_a_word_that_the_contract_does_not_have_is_refused_with_nothing_written() -> None:
    with onefold.open("memory:") as store:
        session = store.session("s")
        turn = session.turn()
        before = session.state

        for use in (
            lambda: session.set_compaction_owner("nobody"),  # type: ignore[arg-type]
            lambda: store.session("new", keeper="nobody"),  # type: ignore[arg-type]
            lambda: session.fork("twig"),  # type: ignore[arg-type]
            lambda: turn.end("done"),  # type: ignore[arg-type]
        ):
            with pytest.raises(onefold.OnefoldError, match=r"is not a .*; use one of"):
                use()

        assert session.state == before
        assert [s.id for s in store.sessions()] == ["s"]
        turn.end()


def test_kinds_of_records_have_the_names_of_the_contract() -> None:
    from onefold import model

    kinds = {v for n, v in vars(model).items() if n.isupper() and isinstance(v, str) and v not in ("manual", "program")}
    assert kinds == {
        "message", "segment.opened", "compaction.requested", "compaction.joined", "compaction.started",
        "compaction.committed", "compaction.failed", "compaction.cancelled", "compaction.superseded", "input.queued",
        "input.taken", "healed", "alias", "turn.started", "turn.settled", "pin.added", "pin.removed", "note", "fork",
        "compaction.skipped", "limits", "erased", "agent.started", "agent.ended", "question.asked", "question.settled",
        "summary.drafted",
    }  # fmt: skip


def test_the_command_line_does_without_what_only_an_extra_installs() -> None:
    """As `pip install 'onefold[cli]'` and `make demo` have it: nothing of the other extras is there."""
    extras = ["filelock", "psycopg", "fastapi", "uvicorn", "anyio", "mcp", "openai", "anthropic"]
    hidden = f"import sys; sys.modules.update(dict.fromkeys({extras!r})); import onefold.cli.app, onefold.cli.demo"

    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_the_library_does_without_the_command_line_which_says_what_to_install() -> None:
    hidden = "import sys; sys.modules.update(dict.fromkeys(['typer', 'rich', 'click'])); import onefold.cli; "

    use = "onefold.open('memory:').session('s').append({'role': 'user', 'content': 'a'})"
    used = subprocess.run([sys.executable, "-c", f"{hidden} {use}"], capture_output=True, text=True, check=False)
    called = subprocess.run(
        [sys.executable, "-c", f"{hidden} onefold.cli.main()"], capture_output=True, text=True, check=False
    )

    assert used.returncode == 0, used.stderr
    assert (called.returncode, called.stdout) == (2, "")
    assert "pip install 'onefold[cli]'" in called.stderr
