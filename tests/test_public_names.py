"""The public face: these names stay. A change here is a change for everybody who uses the library."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

import onefold
from onefold import errors

ERRORS = {
    "OnefoldError": "Exception",
    "StoreError": "OnefoldError",
    "StoreTooNew": "StoreError",
    "StoreUnavailable": "StoreError",
    "StoreDamaged": "StoreError",
    "SessionNotFound": "OnefoldError",
    "Busy": "OnefoldError",
    "TurnLost": "OnefoldError",
    "InvalidMessage": "OnefoldError",
    "TooLarge": "InvalidMessage",
    "CompactionDisabled": "OnefoldError",
    "CommitRefused": "OnefoldError",
    "Superseded": "CommitRefused",
    "Cancelled": "CommitRefused",
    "Moved": "OnefoldError",
    "NotNow": "OnefoldError",
    "KeyConflict": "OnefoldError",
    "OutcomeUnknown": "OnefoldError",
}
THINGS = {
    "Appended", "Compaction", "CompactResult", "Context", "Finding", "Holder", "Material", "Policy", "Record", "Report",
    "Segment", "Session", "SessionState", "Store", "Summarizer", "Summary", "extract", "open",
}  # fmt: skip
STORE = {"address", "backup", "close", "compactions", "incarnation", "resolve", "session", "sessions", "verify"}
SESSION = {
    "alias", "append", "cancel", "compact", "compactions", "context", "follow", "head", "holder", "queue", "read",
    "segments", "state", "take",
}  # fmt: skip
CONTRACT = {
    "alias", "append", "cancel", "claim", "claim_next", "commit", "fail", "follow", "read", "renew", "request",
    "resolve", "restore",
}  # fmt: skip
FIELDS = {
    onefold.Appended: ["numbers", "duplicate"],
    onefold.CompactResult: ["id", "state", "changed", "joined", "applied", "cause", "segment"],
    onefold.Context: ["messages", "tokens", "segment", "numbers", "formats", "summary", "left_out", "last"],
    onefold.Holder: ["host", "pid", "thread", "agent", "nonce", "since", "until"],
    onefold.Material: ["session", "previous", "records", "instructions", "max_tokens", "attempt"],
    onefold.Record: ["number", "id", "kind", "at", "body", "format", "header", "key", "turn", "actor"],
    onefold.Summary: ["text", "cut_off", "by"],
}


def public(thing: type) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


def test_all_is_exactly_what_the_package_offers() -> None:
    assert set(onefold.__all__) == THINGS | set(ERRORS)
    assert len(onefold.__all__) == len(set(onefold.__all__))
    offered = {n for n, v in vars(onefold).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert offered == set(onefold.__all__)


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


def test_the_methods_of_a_store_and_a_session() -> None:
    assert public(onefold.Store) == STORE
    assert public(onefold.Session) == SESSION
    for thing in (onefold.Store, onefold.Session):
        for name in public(thing):
            assert callable(getattr(thing, name)) or isinstance(vars(thing)[name], property)


def test_a_session_has_its_id_and_a_store_its_journal_and_policy() -> None:
    with onefold.open("memory:") as store:
        assert store.session("s").id == "s"
        assert repr(store.session("s")) == "Session('s')"
        assert store.policy == onefold.Policy()
        assert public(type(store.journal)) >= CONTRACT


@pytest.mark.parametrize(("thing", "names"), FIELDS.items(), ids=lambda v: getattr(v, "__name__", ""))
def test_the_fields_of_what_is_handed_out(thing: type, names: list[str]) -> None:
    assert [f.name for f in dataclasses.fields(thing)] == names


def parameters(function: object) -> list[str]:
    assert callable(function)
    return [str(p.name if p.kind is not p.KEYWORD_ONLY else f"*{p.name}") for p in _signature(function)]


def _signature(function: object) -> list[inspect.Parameter]:
    assert callable(function)
    return [p for name, p in inspect.signature(function).parameters.items() if name != "self"]


def test_the_arguments_of_the_calls_that_everybody_makes() -> None:
    session = onefold.Session
    assert parameters(onefold.open) == ["address", "*create", "*summarizer", "*policy", "*clock", "*ids", "*agent"]
    assert parameters(onefold.Store.session) == ["id", "*create"]
    assert parameters(session.append)[:3] == ["messages", "*key", "*format"]
    assert parameters(session.context) == ["segment"]
    assert parameters(session.read) == ["start", "stop"]
    assert parameters(session.follow)[:1] == ["after"]
    assert parameters(session.compact)[:4] == ["summarizer", "*trigger", "*instructions", "*wait"]


def test_kinds_of_records_have_the_names_of_the_contract() -> None:
    from onefold import model

    kinds = {v for n, v in vars(model).items() if n.isupper() and isinstance(v, str) and v != "manual"}
    assert kinds == {
        "message", "segment.opened", "compaction.requested", "compaction.joined", "compaction.started",
        "compaction.committed", "compaction.failed", "compaction.cancelled", "compaction.superseded", "input.queued",
        "input.taken", "healed", "alias",
    }  # fmt: skip
