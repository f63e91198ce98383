"""The commands for a session's life, run as people and scripts run them: going back, branching off, marking, removing,
and carrying sessions from one store to another."""

from __future__ import annotations

import os
import pty
import random
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import onefold
from onefold.cli import import_
from onefold.cli.export_file import FIELDS, exported
from onefold.compaction.holder import this_process
from onefold.describe import summary_of, turn_words, words
from onefold.journal import replication
from onefold.journal.journal import Journal
from onefold.journal.replication import ingest
from onefold.messages import decode, encode
from onefold.model import Claim, HolderId, Json, OpenTurn, Record, SessionState
from tests.support.command_line import assert_one_line, clean, program, run, talk
from tests.support.session_lives import KEY, fine, whole_life

CALL: Json = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A session of three questions and answers, in records 2 to 7, the answers 30 tokens each and more."""
    path = tmp_path / "agent.db"
    talk(path, turns=3)
    return path


@pytest.fixture
def call(store: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command on that store."""
    return lambda *arguments: run(store.parent, *arguments, "--store", store)


Call = Callable[..., subprocess.CompletedProcess[str]]


def contents(path: Path) -> list[Json]:
    """All that stands in a store, as an export says it."""
    done = run(path.parent, "export", "--all", "--store", path)
    assert done.returncode == 0, done.stderr
    return [decode(line) for line in done.stdout.split("\n") if line]


# ---------------------------------------------------------------------- all of them


@pytest.mark.parametrize(
    ("command", "prints"),
    [
        (["init", "new.db"], "made the store new.db"),
        (["cancel", "talk"], "cancelled the compaction of talk"),
        (["pin", "talk", "2"], "#2 pinned"),
        (["note", "talk", "rule", "be brief"], "rule noted"),
        (["undo", "talk"], "2 messages hidden"),
        (["fork", "talk", "--id", "child", "--json"], '"session":"child"'),
        (["erase", "talk", "2", "--yes"], "erased #2 of talk"),
        (["delete", "talk", "--yes"], "deleted talk"),
        (["import", "all.jsonl"], "8 there already"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_every_command_runs_as_a_program(store: Path, command: list[str], prints: str) -> None:
    with onefold.open(store) as opened:
        opened.journal.request("talk")
    fine(run(store.parent, "export", "--all", "--out", "all.jsonl", "--store", store))

    done = program(store.parent, *command, ONEFOLD_STORE="agent.db")

    assert done.returncode == 0, done.stderr
    assert prints in done.stdout
    assert done.stderr == ""


ON_A_SESSION = (
    ["undo"],
    ["unfold"],
    ["summarize"],
    ["compact", "--mask"],
    ["fork"],
    ["pin"],
    ["note"],
    ["cancel"],
    ["erase", "2", "--yes"],
    ["delete", "--yes"],
)


@pytest.mark.parametrize("command", ON_A_SESSION, ids=lambda c: c[0])
def test_an_unknown_session_is_named_and_nothing_is_written(store: Path, call: Call, command: list[str]) -> None:
    before = store.read_bytes()

    done = call(command[0], "nobody", *command[1:])

    assert_one_line(done, 2, "'nobody'", "onefold sessions")
    assert store.read_bytes() == before


@pytest.mark.parametrize("command", ON_A_SESSION, ids=lambda c: c[0])
def test_a_store_that_is_not_there_is_an_error_and_is_not_made(tmp_path: Path, command: list[str]) -> None:
    done = run(tmp_path, command[0], "talk", *command[1:], "--store", "nowhere.db")

    assert_one_line(done, 2, "nowhere.db", "no store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (["undo", "talk", "--redo", "--to", "3"], "--redo"),
        (["pin", "talk", "--remove"], "NUMBER"),
        (["note", "talk", "rule"], "needs a text"),
        (["note", "talk", "rule", "  "], "--remove"),
        (["note", "talk", "--key", "k"], "KIND"),
        (["note", "talk", "rule", "text", "--key", "k", "--remove"], "no text"),
        (["note", "talk", "rule", "--remove"], "--key"),
        (["note", "talk", "rule", "text", "--actor", "\x1b"], "--actor"),
        (["fork", "talk", "--id", "a\nb"], "--id"),
        (["erase", "talk", "2"], "--yes"),
        (["erase", "talk", "2", "--json"], "--yes"),
        (["delete", "talk", "--json"], "--yes"),
        (["init", "a.db"], "one of them"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_ends_with_2_and_writes_nothing(store: Path, call: Call, wrong: list[str], word: str) -> None:
    before = contents(store)

    done = call(*wrong)

    assert done.returncode == 2, done.stdout
    assert word in done.stderr
    assert done.stderr.count("\n") == 1
    assert contents(store) == before


@pytest.mark.parametrize(
    "wrong", [["undo"], ["fork", "talk", "--kind", "spoon"], ["erase", "talk"], ["pin", "talk", "0"], ["import"]]
)
def test_what_the_parser_refuses_points_to_the_help(store: Path, call: Call, wrong: list[str]) -> None:
    done = call(*wrong)

    assert done.returncode == 2
    assert "Try 'onefold" in done.stderr


# ---------------------------------------------------------------------- undo


def test_undo_says_what_it_hides_and_redo_brings_it_back(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        opened.session("talk").note("goal", "ship it")
        before = opened.session("talk").context()

    undone = fine(call("undo", "talk"))
    shown = fine(call("show", "talk"))
    context = fine(call("context", "talk"))
    redone = fine(call("undo", "talk", "--redo"))

    lines = undone.splitlines()
    assert lines[0] == "2 messages and 1 note hidden, from #6 on:"
    assert lines[1].split() == ["#6", "user", "question", "2"]
    assert lines[2].split()[:4] == ["#7", "assistant", "answer", "2:"]
    assert lines[3].split() == ["#8", "note", "goal:", "ship", "it"]
    with onefold.open(store) as opened:
        session = opened.session("talk")
        assert f"context of talk: {before.tokens:,} → {session.context(9).tokens:,} tokens" in undone
        assert session.context().messages[1:] == before.messages[:-1], "and the note stands in front now"
    assert "(undone) question 2" in shown
    assert "note: (undone) goal: ship it" in shown
    assert "(undone) question 1" not in shown
    assert "segment.opened: undone: #6 to #8 no longer count" in shown
    assert "left out, undone or erased: #6 to #8" in context
    assert "question 2" not in context
    assert redone.startswith("2 messages and 1 note restored, from #6 on:")
    assert "(undone)" not in fine(call("show", "talk"))


def test_undo_can_be_asked_what_it_would_do(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        turn = opened.session("talk").turn(owner="gateway")
        turn.append({"role": "user", "content": "now"})
        before = contents(store)

        told = fine(call("undo", "talk", "--dry-run"))
        rewind = decode(fine(call("undo", "talk", "--to", 3, "--dry-run", "--json")))
        assert contents(store) == before

        done = decode(fine(call("undo", "talk", "--to", 3, "--json")))

    assert told.splitlines()[0] == "would hide 1 message, from #9 on:"
    assert "would cancel: turn of gateway, begun" in told
    assert [c["number"] for c in rewind["changed"]] == [4, 5, 6, 7, 9]
    assert (rewind["dry_run"], done["dry_run"]) == (True, False)
    assert (rewind["step"], rewind["session"]) == ("rewind", "talk")
    names = ("changed", "tokens_before", "tokens_after")
    assert [rewind[name] for name in names] == [done[name] for name in names]
    assert rewind["segment"]["number"] == done["segment"]["number"]
    assert done["changed"][0] == {"number": 4, "kind": "message", "role": "user", "text": "question 1"}
    with onefold.open(store) as opened:
        state = opened.session("talk").state
        assert (state.turn, state.tokens) == (0, done["tokens_after"])


def test_a_rewind_lands_before_a_call_that_has_its_results_later(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        session = opened.session("talk")
        session.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
        session.append({"role": "tool", "tool_call_id": "c1", "content": "fine"})

    told = fine(call("undo", "talk", "--to", 8))

    assert told.splitlines()[0] == "2 messages hidden, from #8 on:"


def test_what_cannot_be_undone_is_refused_with_nothing_written(store: Path, call: Call) -> None:
    for _ in range(3):
        fine(call("undo", "talk"))
    before = contents(store)

    assert_one_line(call("undo", "talk"), 1, "nothing to undo")
    assert_one_line(call("undo", "talk", "--to", 99), 1, "cannot be rewound to 99")
    with onefold.open(store) as opened:
        opened.session("talk").append({"role": "user", "content": "something else"})
    assert_one_line(call("undo", "talk", "--redo"), 1, "messages came after the undo")
    assert contents(store)[: len(before)] == before


def test_of_a_long_rewind_both_ends_are_shown(store: Path, call: Call) -> None:
    talk(store, session="long", turns=30)

    lines = fine(call("undo", "long", "--to", 1, "--dry-run")).splitlines()

    assert lines[0] == "would hide 60 messages, from #2 on:"
    assert lines[21] == "  … 20 more messages …"
    assert lines[20].startswith("  #21 ")
    assert lines[22].startswith("  #42 ")
    assert lines[41].startswith("  #61 ")


# ---------------------------------------------------------------------- unfold


def test_unfold_says_what_it_costs_and_the_way_back_goes_to_the_summary(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        session = opened.session("talk")
        session.append([{"role": "user", "content": f"question {n} " + "word " * 60} for n in range(10, 16)])
        assert session.compact(lambda material: "it was about words").state == "committed"
        session.append({"role": "user", "content": "and then?"})
        head, small = session.head, session.state.tokens
        whole = opened.session("talk").context(segment=1).tokens

    would = decode(fine(call("unfold", "talk", "--dry-run", "--json")))
    told = fine(call("unfold", "talk", head, "--dry-run"))
    with onefold.open(store) as opened:
        assert opened.session("talk").head == head
    done = fine(call("unfold", "talk", head))
    shown = fine(call("show", "talk"))
    context = fine(call("context", "talk"))

    assert (would["step"], would["unfolds"], would["dry_run"], would["limit"]) == ("unfold", [head], True, None)
    assert (would["tokens_before"], would["tokens_after"]) == (small, whole)
    assert f"1 compaction would be unfolded (#{head}): verbatim from #1 on" in told
    assert f"context of talk: {small:,} → {whole:,} tokens (+{whole - small:,})" in told
    assert f"1 compaction unfolded (#{head})" in done
    assert "--refold" in done
    assert f"unfolded: the compaction #{head} is taken back, verbatim from #1 on" in shown
    assert "it was about words" not in context
    assert "1 compaction would be in force again: the unfolding is taken back" in fine(
        call("undo", "talk", "--dry-run")
    )
    assert "in force again" in fine(call("undo", "talk"))
    assert "1 compaction unfolded again" in fine(call("undo", "talk", "--redo"))
    assert f"folded: the compaction #{head}" in fine(call("show", "talk"))
    refolded = fine(call("unfold", "talk", "--refold"))
    assert "folded again: everything before #" in refolded
    assert "it was about words" in fine(call("context", "talk"))
    assert f"folded again: the compaction #{head} is in force again" in fine(call("show", "talk"))


def test_what_cannot_be_unfolded_is_refused_with_nothing_written(store: Path, call: Call) -> None:
    before = contents(store)
    assert_one_line(call("unfold", "talk"), 1, "no compaction is in force")
    assert_one_line(call("unfold", "talk", "--refold"), 1, "no compaction was unfolded")
    assert contents(store) == before
    with onefold.open(store) as opened:
        session = opened.session("talk")
        session.append([{"role": "user", "content": f"question {n} " + "word " * 60} for n in range(10, 16)])
        session.compact(lambda material: "it was about words")
        session.go_by(onefold.Limits(session.state.tokens + 20, 10))
    assert_one_line(call("unfold", "talk"), 1, "over the")
    assert_one_line(call("unfold", "talk", "1"), 1, "segment 1 is not a compaction in force")


# ---------------------------------------------------------------------- summarize, and masks


def test_a_summary_is_written_again_beside_the_present_one_and_taken_or_not(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        session = opened.session("talk")
        session.append([{"role": "user", "content": f"question {n} " + "word " * 60} for n in range(10, 16)])
        assert session.compact(lambda material: "it was about src/beta.py").state == "committed"

    thrown = fine(call("summarize", "talk"))
    with onefold.open(store) as opened:
        assert opened.session("talk").context().summary == "it was about src/beta.py"
    told = decode(fine(call("summarize", "talk", "--json")))
    taken = fine(call("summarize", "talk", "--yes"))

    assert "present, 6 tokens\n  it was about src/beta.py" in thrown
    assert "draft by extract, " in thrown
    assert "only in the present one: src/beta.py" in thrown
    assert "discarded: the present summary stays in force" in thrown
    assert (told["taken"], told["present"], told["loses"]) == (False, "it was about src/beta.py", ["src/beta.py"])
    assert (told["by"], told["segment"]) == ("extract", None)
    assert "has the new summary" in taken
    assert told["draft"].splitlines()[0] in fine(call("context", "talk"))
    shown = fine(call("show", "talk"))
    assert shown.count("was written once more by extract") == 3
    assert "1 compaction unfolded" in fine(call("unfold", "talk"))
    assert "src/beta.py" in fine(call("context", "talk"))


def test_what_cannot_be_summarised_again_is_refused_with_nothing_written(store: Path, call: Call) -> None:
    before = contents(store)
    assert_one_line(call("summarize", "talk", "--yes"), 1, "nothing to summarise again")
    assert contents(store) == before


def test_old_tool_results_are_masked_by_hand_and_shown_again(store: Path, call: Call) -> None:
    assert_one_line(call("compact", "talk", "--mask"), 1, "no old large tool result")
    with onefold.open(store) as opened:
        session = opened.session("talk")
        for n in range(12):
            calls = [{"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
            session.append({"role": "assistant", "content": None, "tool_calls": calls})
            session.append({"role": "tool", "tool_call_id": f"c{n}", "content": "word " * 300})
        before = session.state.tokens

    done = fine(call("compact", "talk", "--mask"))
    with onefold.open(store) as opened:
        made = opened.session("talk").segments()[-1]
    shown = fine(call("show", "talk"))

    assert f"masked 2 tool results of talk: {before:,} → {made.tokens_after:,} tokens (segment {made.number})" in done
    assert f"`onefold unfold talk {made.number}`" in done
    assert "2 tool results shown as one line each" in shown
    told = fine(call("context", "talk"))
    assert told.count("[The result #") == 2
    assert f"one line each, and whole in the journal: {', '.join(f'#{n}' for n, _ in made.masked)}" in told
    assert f"1 mask unfolded (#{made.number})" in fine(call("unfold", "talk", made.number))
    assert "[The result #" not in fine(call("context", "talk"))
    again = decode(fine(call("compact", "talk", "--mask", "--json")))
    assert (len(again["masked"]), again["tokens_before"], again["tokens_after"]) == (2, before, made.tokens_after)


def test_what_the_provider_compacted_is_not_called_undone(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        session = opened.session("talk")
        sent = session.context()
        item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABo"}
        (sealed,) = session.append(item, format="openai-responses").numbers
        session.adopt(sealed, origin=onefold.Origin("openai"), covers=sent)
        answer = {"role": "assistant", "content": [{"type": "compaction", "content": "A talk."}, _text("Go on.")]}
        asked = session.context()
        (read,) = session.append(answer, format="anthropic").numbers
        session.adopt(read, origin=onefold.Origin("anthropic"), covers=asked)

    shown, told = fine(call("show", "talk")), fine(call("context", "talk"))

    assert "(undone)" not in shown
    assert "(for its provider) " in next(line for line in shown.splitlines() if f"#{sealed} " in line)
    assert "undone or erased" not in told
    assert f"left out, for the provider that made it alone: #{sealed}" in told
    assert f"anthropic is sent its own compaction in place of what that covers: #{read}" in told
    assert next(line for line in told.splitlines() if line.startswith(f"#{read} ")).endswith(" Go on.")


def _text(words: str) -> Json:
    return {"type": "text", "text": words}


# ---------------------------------------------------------------------- fork


def test_fork_prints_the_new_id_alone_and_the_rest_to_stderr(store: Path, call: Call) -> None:
    done = call("fork", "talk")
    id = fine(done).strip()
    named = call("fork", "talk", "--kind", "review", "--at", 5, "--id", "look")
    again = call("fork", "talk", "--kind", "review", "--at", 5, "--id", "look")
    taken = call("fork", "talk", "--at", 3, "--id", "look")
    made = decode(fine(call("fork", "look", "--id", "deeper", "--json")))

    assert done.stdout == f"{id}\n"
    assert done.stderr.startswith("onefold: a branch of talk at #7; its context has")
    assert named.stdout == again.stdout == "look\n"
    assert "a review of talk at #5" in named.stderr
    assert_one_line(taken, 1, "'look'", "another id")
    assert_one_line(call("fork", "talk", "--at", 99), 1, "records 1 to 7")
    assert {name: made[name] for name in ("session", "parent", "kind", "at")} == {
        "session": "deeper", "parent": "look", "kind": "branch", "at": 7,
    }  # fmt: skip
    assert made["state"]["id"] == "deeper"
    with onefold.open(store) as opened:
        assert opened.session(id, create=False).context().messages == opened.session("talk").context().messages
        assert [r.number for r in opened.session("talk").read()] == list(range(1, 8)), (
            "nothing is written to the parent"
        )


def test_a_fork_begins_before_a_call_whose_results_come_later_and_says_so(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        session = opened.session("talk")
        session.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
        session.append({"role": "tool", "tool_call_id": "c1", "content": "fine"})

    done = call("fork", "talk", "--at", 8)

    assert "at #7, not #8: a call there has its results later" in done.stderr


def test_a_fork_shows_its_parent_everywhere(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        child = opened.session("talk").fork("subagent", 5, id="child")
        child.append({"role": "user", "content": "in the fork"})

    table = fine(call("sessions"))
    listed = {s["id"]: s for s in decode(fine(call("sessions", "--json")))}
    shown = fine(call("show", "child"))
    context = fine(call("context", "child"))
    older = call("context", "child", "--segment", 1)

    assert "subagent of talk at #5" in next(line for line in table.splitlines() if line.startswith("child"))
    assert (listed["child"]["parent"], listed["child"]["forked_at"]) == ("talk", 5)
    assert (listed["child"]["fork_kind"], listed["talk"]["fork_kind"]) == ("subagent", None)
    assert "question 1" in shown
    assert "question 2" not in shown
    assert "fork: it is a subagent of talk, whose records are those up to #5" in shown
    assert "a subagent of talk, whose records are those up to #5" in context.splitlines()[1]
    assert "in the fork" in fine(older), "a segment of its past in its parent is one of its own"


def test_a_review_is_not_compacted_and_that_is_a_refusal(store: Path, call: Call) -> None:
    fine(call("fork", "talk", "--kind", "review", "--id", "look"))

    assert_one_line(call("compact", "look"), 1, "'look' is a review of session 'talk'")


# ---------------------------------------------------------------------- pin and note


def test_pins_are_set_listed_and_let_go(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        session = opened.session("talk")
        session.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
        session.append({"role": "tool", "tool_call_id": "c1", "content": "fine"})

    empty = fine(call("pin", "talk"))
    pinned = fine(call("pin", "talk", 2))
    group = decode(fine(call("pin", "talk", 9, "--json")))
    listed = fine(call("pin", "talk"))
    as_json = decode(fine(call("pin", "talk", "--json")))
    removed = fine(call("pin", "talk", 2, "--remove"))
    gone = decode(fine(call("pin", "talk", 8, "--remove", "--json")))

    assert empty == "nothing is pinned in talk\n"
    assert pinned.startswith("#2 pinned: in every context from now on\ncontext of talk: ")
    assert (group["session"], group["pinned"], group["pins"]) == ("talk", [8, 9], [2, 8, 9])
    assert group["tokens_after"] == group["tokens_before"], "what a context shows anyway costs nothing"
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [
        ["#2", "user"],
        ["#8", "assistant"],
        ["#9", "tool"],
    ]
    assert as_json[0] == {"number": 2, "role": "user", "tokens": as_json[0]["tokens"], "text": "question 0"}
    assert [pin["number"] for pin in as_json] == [2, 8, 9]
    assert removed.startswith("#2 no longer pinned\n")
    assert (gone["removed"], gone["pins"]) == ([8, 9], [])
    assert "pin.added: #8, #9 pinned" in fine(call("show", "talk"))
    assert "pin.removed: #8, #9 no longer pinned" in fine(call("show", "talk"))


def test_what_cannot_be_pinned_is_refused(store: Path, call: Call) -> None:
    fine(call("undo", "talk"))

    assert_one_line(call("pin", "talk", 1), 1, "only messages are pinned")
    assert_one_line(call("pin", "talk", 99), 1, "is not there")
    assert_one_line(call("pin", "talk", 6), 1, "was undone")
    assert_one_line(call("pin", "talk", 2, "--remove"), 1, "message 2 is not pinned")


def test_notes_are_written_replaced_listed_and_taken_away(store: Path, call: Call) -> None:
    empty = fine(call("note", "talk"))
    first = fine(call("note", "talk", "rule", "never push", "--key", "git", "--actor", "ada"))
    again = decode(fine(call("note", "talk", "rule", "never push", "--key", "git", "--json")))
    fine(call("note", "talk", "rule", "never push to main", "--key", "git", "--actor", "bob"))
    fine(call("note", "talk", "goal", "two\nlines"))
    told = fine(call("note", "talk"))
    listed = decode(fine(call("note", "talk", "--json")))
    removed = fine(call("note", "talk", "goal", "--key", "#10", "--remove"))
    shown = fine(call("show", "talk"))

    assert empty == "no notes in talk\n"
    assert first.startswith("rule (git) noted, #8\ncontext of talk: ")
    assert (again["number"], again["duplicate"]) == (8, True)
    assert [(n["number"], n["kind"], n["key"], n["text"], n["actor"]) for n in listed["notes"]] == [
        (9, "rule", "git", "never push to main", "bob"),
        (10, "goal", "#10", "two\nlines", None),
    ]
    assert "2 notes in every context of talk" in told
    assert "#9     rule, key git, by bob, just now\n         never push to main\n" in told
    assert "         two\n         lines\n" in told
    assert removed.startswith("goal (#10) no longer holds\n")
    assert "note: rule (git) by ada: never push\n" in shown
    assert "note: goal (#10) no longer holds" in shown
    assert_one_line(call("note", "talk", "goal", "--key", "#10", "--remove"), 1, "has no note")
    assert_one_line(call("note", "talk", "rule", "x" * 20_000), 1, "over the limit")


def test_context_shows_pins_and_notes_apart(store: Path, call: Call) -> None:
    talk(store, session="long", turns=20)
    with onefold.open(store) as opened:
        session = opened.session("long")
        session.pin(2)
        session.note("rule", "be brief", actor="ada")
        assert session.compact().changed
        session.pin(session.state.cut)
        cut = session.state.cut

    told = fine(call("context", "long"))
    sent = decode(fine(call("context", "long", "--json")))

    parts = told.split("─── ")
    assert parts[1].startswith("pinned: in every context, word for word\n#2 ")
    assert "question 0" in parts[1]
    assert parts[2].startswith("quoted: said before the cut, word for word\n")
    assert "person" in parts[2]
    assert parts[3].startswith(f"folded: everything before #{cut} (")
    assert parts[4].startswith("notes: in every context, word for word\n")
    assert "rule, by ada" in parts[4]
    assert "be brief" in parts[4]
    assert parts[5].startswith(f"word for word from #{cut} on\n")
    assert parts[5].splitlines()[1].split()[3] == "pinned:", "and this one is in view anyway"
    assert sent["pinned"] == [2]
    assert [n["text"] for n in sent["notes"]] == ["be brief"]


def test_context_shows_a_result_that_was_made_up_for_what_it_is(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        session = opened.session("talk")
        session.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
        session.append([{"role": "user", "content": "never mind"}, {"role": "assistant", "content": "as you like"}])

    lines = fine(call("context", "talk")).splitlines()

    at = next(i for i, line in enumerate(lines) if line.startswith("#8 "))
    assert "(made up: this call got no result)" in lines[at + 1]
    assert lines[at + 2].startswith("#9 ")


# ---------------------------------------------------------------------- cancel, and what is open


def test_cancel_ends_the_open_compaction_and_says_who_was_at_it(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        opened.journal.request("talk")
        assert isinstance(opened.journal.claim("talk", this_process("tester")), Claim)

        told = fine(call("cancel", "talk"))
        again = call("cancel", "talk")
        opened.journal.request("talk", trigger="threshold")
        as_json = decode(fine(call("cancel", "talk", "--json")))

    assert "cancelled the compaction of talk: manual, asked for just now" in told
    assert f":{os.getpid()} worked on it" in told
    assert_one_line(again, 1, "no open compaction")
    assert (as_json["session"], as_json["holder"]) == ("talk", None)
    assert (as_json["compaction"]["state"], as_json["compaction"]["trigger"]) == ("cancelled", "threshold")


def test_cancel_ends_the_open_turn_and_its_writer_is_refused(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        turn = opened.session("talk").turn(owner="gateway")
        turn.append({"role": "user", "content": "now"})
        listed = decode(fine(call("sessions", "--json")))
        table = fine(call("sessions"))
        shown = fine(call("show", "talk"))
        context = fine(call("context", "talk"))

        told = fine(call("cancel", "talk", "--turn"))
        again = call("cancel", "talk", "--turn")
        with pytest.raises(onefold.TurnLost):
            turn.append({"role": "assistant", "content": "late"})

        other = opened.session("talk").turn(owner="other")
        as_json = decode(fine(call("cancel", "talk", "--turn", "--json")))
        with pytest.raises(onefold.TurnLost):
            other.end()

    assert listed[0]["open_turn"]["owner"] == "gateway"
    assert "turn of gateway, begun" in table
    assert "still open: turn of gateway, begun" in shown
    assert "turn.started: a turn by gateway begins" in shown
    assert "open: turn of gateway, begun" in context
    assert told.startswith("cancelled in talk: turn of gateway, begun")
    assert_one_line(again, 1, "no open turn")
    assert as_json["turn"]["owner"] == "other"
    after = fine(call("show", "talk"))
    assert "turn.settled: the turn was cancelled: it was cancelled by hand" in after
    assert "still open" not in after


# ---------------------------------------------------------------------- erase and delete


def secret(path: Path) -> None:
    """A session with a secret in record 8, a summary that has it, a fork from before it and one from after it."""
    with onefold.open(path) as opened:
        session = opened.session("talk")
        session.append({"role": "user", "content": KEY}, key="said-it")
        session.fork(at=5, id="early")
        session.fork(id="late")
        session.append([{"role": "assistant", "content": "noted: " + "word " * 200} for _ in range(20)])
        assert session.compact().changed


def test_erase_says_first_what_goes_and_then_what_went(store: Path, call: Call) -> None:
    secret(store)
    summary = next(s.number for s in _segments(store) if s.source == "compaction")

    told = fine(call("erase", "talk", 8, "--yes"))

    assert "1 record of talk to erase for good:\n  #8     user       the key is hunter2\n" in told
    assert f"summaries of it that go too: of segment {summary}\n" in told
    assert "forks that lose it from their past: late\n" in told
    assert "erased #8 of talk\n" in told
    assert "a new summary is asked for; `onefold compact talk` makes it now" in told
    assert told.endswith("backups, exports and other copies still have it\n")
    assert KEY not in encode(contents(store))
    shown = fine(call("show", "talk"))
    assert "erased: a message stood here; it was erased" in shown
    assert f"erased: #8 erased for good, and the summary of segment {summary} with it" in shown
    assert "segment.opened: a view without what was erased" in shown
    assert "erased: what was erased no longer counts" in fine(call("show", "late"))
    assert fine(call("compact", "talk"))


def _segments(path: Path) -> list[onefold.Segment]:
    with onefold.open(path) as opened:
        return opened.session("talk").segments()


def test_erase_without_yes_says_what_would_go_and_touches_nothing(store: Path, call: Call) -> None:
    secret(store)
    before = contents(store)

    done = call("erase", "talk", 8, 2)

    assert done.returncode == 2
    assert "2 records of talk to erase for good" in done.stdout
    assert "late" in done.stdout
    assert done.stderr.startswith("onefold: nothing was removed")
    assert contents(store) == before


def test_erase_is_all_or_nothing_as_far_as_can_be_told_before(store: Path, call: Call) -> None:
    secret(store)
    before = contents(store)

    assert_one_line(call("erase", "talk", 8, 99, "--yes"), 1, "no record 99")
    assert_one_line(call("erase", "talk", 8, 1, "--yes"), 1, "segment.opened")
    assert_one_line(call("erase", "late", 8, "--yes"), 1, "'talk'", "erase it there")
    assert contents(store) == before

    done = decode(fine(call("erase", "talk", 8, 2, "--yes", "--json")))

    assert (done["session"], done["numbers"], done["forks"]) == ("talk", [2, 8], ["early", "late"])
    assert done["wiped"] is True
    assert isinstance(done["compaction"], str)
    again = fine(call("erase", "talk", 8, "--yes"))
    assert "#8 of talk: erased before; forks are checked again" in again
    assert "they were erased before" in again


def test_an_input_and_the_message_it_became_are_erased_together_and_both_are_named(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        session = opened.session("talk")
        session.queue_input({"role": "user", "content": KEY})
        session.queue_input({"role": "user", "content": "nobody takes this"})
        assert session.take_input() is not None

    told = fine(call("erase", "talk", 11, "--yes"))
    fine(call("erase", "talk", 9, "--yes"))

    assert "#8 besides: the same content once more, or a note that comes from it" in told
    assert "erased #8, #11 of talk" in told
    shown = fine(call("show", "talk"))
    assert "erased: an input stood here; it was erased" in shown
    assert "the input #9 was erased, so nobody takes it" in shown


def test_delete_says_first_what_goes_and_the_id_stays_taken(store: Path, call: Call) -> None:
    secret(store)
    with onefold.open(store) as opened:
        opened.session("talk").alias("other-name")
        before = contents(store)

        refused = call("delete", "talk")
        assert contents(store) == before
        turn = opened.session("talk").turn()
        told = fine(call("delete", "other-name", "--yes"))
        del turn

    again = decode(fine(call("delete", "talk", "--yes", "--json")))

    assert refused.returncode == 2
    assert "session talk to delete for good:" in refused.stdout
    assert "also known as other-name" in told
    assert "a turn is open in it" in told
    assert "27 messages in " in told
    assert "forks that lose it from their past: early, late" in told
    assert "\ndeleted talk: " in told
    assert told.endswith("backups, exports and other copies still have it\n")
    assert KEY not in encode(contents(store))
    assert again == {"session": "talk", "records": 0, "forks": ["early", "late"], "wiped": True, "remains": []}
    assert "nothing was left of talk" in fine(call("delete", "talk", "--yes"))
    assert_one_line(call("show", "talk"), 2, "was deleted")
    assert fine(call("verify"))


@pytest.mark.parametrize(
    ("command", "question"), [(["erase", "talk", "2"], "1 record of talk"), (["delete", "talk"], "session talk to")]
)
@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_a_person_at_a_terminal_is_asked_and_no_is_the_default(
    store: Path, command: list[str], question: str, answer: str
) -> None:
    before = contents(store)
    parent, child = pty.openpty()
    os.write(parent, answer.encode() + b"\n")

    done = subprocess.run(
        [sys.executable, "-m", "onefold", *command, "--store", "agent.db"],
        cwd=store.parent, env=clean(store.parent, TERM="xterm", COLUMNS="80"), stdin=child, stdout=child, stderr=child,
        timeout=60, check=False,
    )  # fmt: skip
    os.close(child)
    seen = os.read(parent, 65536).decode()
    os.close(parent)

    assert question in seen
    assert "Remove it for good? [y/N]" in seen
    if answer == "y":
        assert done.returncode == 0, seen
        assert contents(store) != before
    else:
        assert done.returncode == 1, seen
        assert "nothing was removed" in seen
        assert contents(store) == before


# ---------------------------------------------------------------------- init


def test_init_makes_a_store_says_what_next_and_overwrites_nothing(tmp_path: Path) -> None:
    told = fine(run(tmp_path, "init", "agent.db"))
    talk(tmp_path / "agent.db", turns=1)
    before = contents(tmp_path / "agent.db")
    again = run(tmp_path, "init", "agent.db")
    as_json = run(tmp_path, "init", "--store", "agent.db", "--json")
    other = decode(fine(run(tmp_path, "init", "sqlite:other.db", "--json")))

    assert told.splitlines()[0] == "made the store agent.db"
    assert "onefold sessions --store agent.db" in told
    assert_one_line(again, 1, "agent.db is a store already", "overwrites nothing")
    assert as_json.returncode == 1
    assert decode(as_json.stdout) == {"store": "agent.db", "made": False, "config": None, "config_made": False}
    assert other["made"] is True
    assert (tmp_path / "other.db").exists()
    assert contents(tmp_path / "agent.db") == before


def test_init_leaves_other_files_and_places_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary, " * 100)

    assert_one_line(run(tmp_path, "init", "notes.txt"), 2, "not a database")
    assert_one_line(run(tmp_path, "init", "no/folder/agent.db"), 2, "no folder")
    assert_one_line(run(tmp_path, "init", "memory:"), 2, "memory")
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    assert (tmp_path / "notes.txt").read_text() == "dear diary, " * 100


def test_init_without_a_path_makes_the_store_that_every_command_finds(tmp_path: Path) -> None:
    told = fine(run(tmp_path, "init"))
    found = run(tmp_path, "sessions")

    assert "onefold sessions\n" in told, "no option is needed"
    assert (tmp_path / ".local/share/onefold/onefold.db").exists()
    assert fine(found).startswith("no sessions in ")


def test_init_writes_a_config_file_that_names_the_store_and_never_a_second_time(tmp_path: Path) -> None:
    (tmp_path / 'odd "name"').mkdir()
    store = tmp_path / 'odd "name"' / "my agent.db"
    config = tmp_path / ".config/onefold/config.toml"

    first = fine(run(tmp_path, "init", store, "--config"))
    written = config.read_text()
    again = run(tmp_path, "init", "--config")
    second = fine(run(tmp_path, "init", "second.db", "--config"))

    assert f"wrote the config file {config}" in first
    assert tomllib.loads(written) == {"store": str(store)}
    assert sum(line.startswith("#") for line in written.splitlines()) >= 3
    assert fine(run(tmp_path, "sessions")).startswith(f"no sessions in {store}")
    assert_one_line(again, 1, "is a store already", "a config file")
    assert "is there already, and stays as it is" in second
    assert config.read_text() == written


def test_init_writes_the_config_file_that_the_variable_names(tmp_path: Path) -> None:
    named = {"ONEFOLD_CONFIG": str(tmp_path / "mine.toml")}

    missing = run(tmp_path, "init", **named)
    done = decode(fine(run(tmp_path, "init", "--config", "--json", **named)))

    assert_one_line(missing, 2, "does not exist")
    assert done["config_made"] is True
    assert tomllib.loads((tmp_path / "mine.toml").read_text()) == {"store": done["store"]}
    assert fine(run(tmp_path, "sessions", **named)).startswith("no sessions")


@pytest.fixture
def life(tmp_path: Path) -> Path:
    whole_life(tmp_path / "life.db")
    fine(run(tmp_path, "export", "--all", "--out", "life.jsonl", "--store", "life.db"))
    fine(run(tmp_path, "init", "new.db"))
    return tmp_path


def states(store: onefold.Store) -> list[SessionState]:
    return [store.session(s.id).state for s in store.sessions()]


def test_what_is_exported_and_imported_is_exported_the_same_to_the_byte(life: Path) -> None:
    told = fine(run(life, "import", "life.jsonl", "--into", "new.db"))
    fine(run(life, "export", "--all", "--out", "again.jsonl", "--store", "new.db"))
    again = fine(run(life, "import", "life.jsonl", "--into", "new.db"))

    lines = (life / "life.jsonl").read_bytes().count(b"\n")
    assert told == f"4 sessions with {lines} records in life.jsonl: {lines} imported\n"
    assert again == f"4 sessions with {lines} records in life.jsonl: {lines} there already\n"
    assert (life / "again.jsonl").read_bytes() == (life / "life.jsonl").read_bytes()
    assert fine(run(life, "verify", "--store", "new.db"))
    with onefold.open(life / "life.db") as old, onefold.open(life / "new.db") as new:
        assert states(new) == states(old)
        for id in ("talk", "a-fork", "z-fork-of-the-fork", "other"):
            assert new.session(id, create=False).context() == old.session(id, create=False).context()
        assert new.resolve("also-talk") == "talk"
        session = new.session("talk")
        assert session.append([{"role": "user", "content": "both"}, {"role": "user", "content": "or none"}],
                              key="batch").duplicate  # fmt: skip
        assert session.append({"role": "user", "content": "anything"}, key="secret").duplicate, "a key stays taken"


def test_an_export_of_a_fork_has_its_own_records_only_and_its_parents_first(life: Path) -> None:
    def sessions(*arguments: str) -> list[tuple[str, int]]:
        lines = fine(run(life, "export", *arguments, "--store", "life.db")).split("\n")
        return [(record["session"], record["number"]) for record in map(decode, filter(None, lines))]

    whole = sessions("z-fork-of-the-fork")
    alone = sessions("z-fork-of-the-fork", "--no-parents")
    two = sessions("z-fork-of-the-fork", "also-talk", "--no-parents")

    assert list(dict.fromkeys(session for session, _ in whole)) == ["talk", "a-fork", "z-fork-of-the-fork"]
    with onefold.open(life / "life.db") as opened:
        for id in ("talk", "a-fork", "z-fork-of-the-fork"):
            state = opened.session(id).state
            assert [n for session, n in whole if session == id] == list(range(state.forked_at + 1, state.last + 1))
    assert alone == [line for line in whole if line[0] == "z-fork-of-the-fork"]
    assert list(dict.fromkeys(session for session, _ in two)) == ["talk", "z-fork-of-the-fork"]


def test_the_order_of_lines_does_not_matter_and_neither_do_repeated_ones(life: Path) -> None:
    lines = (life / "life.jsonl").read_bytes().split(b"\n")[:-1]
    mixed = [*lines, *lines[:40], b""]
    random.Random(4).shuffle(mixed)
    (life / "mixed.jsonl").write_bytes(b"\r\n".join(mixed))

    fine(run(life, "import", "mixed.jsonl", "--into", "new.db"))
    fine(run(life, "export", "--all", "--out", "again.jsonl", "--store", "new.db"))

    assert (life / "again.jsonl").read_bytes() == (life / "life.jsonl").read_bytes()


def test_an_import_from_a_pipe_is_the_same(life: Path) -> None:
    with (life / "life.jsonl").open("rb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "onefold", "import", "-", "--into", "new.db", "--json"],
            cwd=life, env=clean(life), stdin=file, capture_output=True, timeout=60, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert decode(done.stdout.decode())["file"] == "-"
    assert contents(life / "new.db") == contents(life / "life.db")


_KILLED = """
import os
from onefold.cli import import_, main
from onefold.journal import replication

left = int(os.environ["CALLS"])
real = import_.ingest

def ingest(*arguments, **named):
    global left
    left -= 1
    return real(*arguments, **named) if left else os._exit(9)

import_.ingest = ingest
replication.MOST_RECORDS = 5
main()
"""


@pytest.mark.parametrize("deadly", [1, 2, 9, 15])
def test_an_import_that_was_killed_goes_on_where_it_stopped(life: Path, deadly: int) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, "import", "life.jsonl", "--into", "new.db"],
        cwd=life, env=clean(life, CALLS=str(deadly)), timeout=60, check=False, capture_output=True,
    )  # fmt: skip
    half = contents(life / "new.db")
    healthy = run(life, "verify", "--store", "new.db")

    told = fine(run(life, "import", "life.jsonl", "--into", "new.db"))
    fine(run(life, "export", "--all", "--out", "again.jsonl", "--store", "new.db"))

    assert killed.returncode == 9, killed.stderr
    assert healthy.returncode == 0, healthy.stdout
    assert bool(half) == (deadly > 1)
    assert len(half) < len(contents(life / "life.db"))
    assert (f", {len(half)} there already" in told) == bool(half)
    assert (life / "again.jsonl").read_bytes() == (life / "life.jsonl").read_bytes()


def test_what_was_written_together_is_taken_in_together(life: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[list[Record]] = []

    def seen(journal: Journal, session: str, records: list[Record], *, alone: bool = False) -> int:
        parts.append(records)
        return ingest(journal, session, records)

    monkeypatch.setattr(import_, "ingest", seen)
    monkeypatch.setattr(replication, "MOST_RECORDS", 1)

    fine(run(life, "import", "life.jsonl", "--into", "new.db"))

    ends = [part[-1].kind for part in parts]
    assert len(parts) > 50
    assert not {"fork", "compaction.committed", "input.taken"} & {*ends}
    assert [len(part) for part in parts if part[0].key == "batch"] == [2]


def test_a_torn_last_line_is_named_and_the_rest_is_imported(life: Path) -> None:
    fine(run(life, "export", "other", "talk", "--out", "two.jsonl", "--store", "life.db"))
    whole = (life / "two.jsonl").read_bytes()
    lines = whole.count(b"\n")
    (life / "torn.jsonl").write_bytes(whole[:-30])

    torn = run(life, "import", "torn.jsonl", "--into", "new.db")
    as_json = run(life, "import", "torn.jsonl", "--into", "new.db", "--json")
    mended = fine(run(life, "import", "two.jsonl", "--into", "new.db"))

    assert torn.returncode == 1
    assert torn.stderr.startswith(f"onefold: line {lines} of torn.jsonl was skipped: the file ends inside it; ")
    assert f"{lines - 1} imported" in torn.stdout
    report = decode(as_json.stdout)
    assert as_json.returncode == 1
    assert [fault["line"] for fault in report["faults"]] == [lines]
    assert (report["new"], report["refused"]) == (0, 0)
    assert f": 1 imported, {lines - 1} there already" in mended


def test_a_bad_line_in_the_middle_ends_its_session_there_and_no_other(life: Path) -> None:
    lines = (life / "life.jsonl").read_text(encoding="utf-8").split("\n")
    bad = next(i for i, line in enumerate(lines) if decode(line)["session"] == "talk") + 9
    lines[bad] = lines[bad].replace('"kind":', '"sort":')
    (life / "bad.jsonl").write_text("\n".join(lines), encoding="utf-8")

    done = run(life, "import", "bad.jsonl", "--into", "new.db")
    dry = run(life, "import", "bad.jsonl", "--into", "new.db", "--dry-run")

    assert done.returncode == dry.returncode == 1
    assert f"line {bad + 1} of bad.jsonl was skipped: it is not a record: it lacks kind" in done.stderr
    assert "rejected: session 'talk': bad.jsonl lacks record 10, so it ends before it; 9 records before that: new" in (
        done.stderr
    )
    assert "rejected: session 'a-fork' is a fork of 'talk', which was rejected" in done.stderr
    with onefold.open(life / "new.db") as opened:
        assert {s.id: s.last for s in opened.sessions()} == {"talk": 9, "other": 31}


def test_a_session_that_differs_is_refused_with_the_first_difference_and_the_others_go_on(life: Path) -> None:
    fine(run(life, "import", "life.jsonl", "--into", "new.db"))
    with onefold.open(life / "new.db") as new, onefold.open(life / "life.db") as old:
        end = new.session("talk").state.last
        new.session("talk").append({"role": "user", "content": "here"})
        old.session("talk").append({"role": "user", "content": "there"})
        old.session("a-fork").append({"role": "user", "content": "one more"})
        old.session("other").append({"role": "user", "content": "one more"})
    fine(run(life, "export", "--all", "--out", "later.jsonl", "--store", "life.db"))
    before = contents(life / "new.db")

    dry = run(life, "import", "later.jsonl", "--into", "new.db", "--dry-run", "--json")
    assert contents(life / "new.db") == before
    done = run(life, "import", "later.jsonl", "--into", "new.db", "--json")
    told = run(life, "import", "later.jsonl", "--into", "new.db")

    for ran in (dry, done):
        report = decode(ran.stdout)
        by_id = {s["session"]: s for s in report["sessions"]}
        assert ran.returncode == 1
        assert {*report} == {"file", "store", "dry_run", "sessions", "new", "refused", "faults"}
        assert f"record {end + 1} differs from the one in this store" in by_id["talk"]["cause"]
        assert {id: s["new"] for id, s in by_id.items()} == {
            "talk": 0, "a-fork": 1, "z-fork-of-the-fork": 0, "other": 1,
        }  # fmt: skip
        assert (report["new"], report["refused"]) == (2, 1)
        assert by_id["a-fork"]["cause"] is None, "its past is the same on both sides"
    assert told.returncode == 1
    assert "rejected: session 'talk': record" in told.stderr
    assert "1 session rejected" in told.stdout


def test_a_fork_is_not_given_another_past_because_its_parent_has_the_same_id(life: Path) -> None:
    with onefold.open(life / "new.db") as new:
        new.session("talk").append([{"role": "user", "content": f"another {n}"} for n in range(200)])

    dry = run(life, "import", "life.jsonl", "--into", "new.db", "--dry-run")
    done = run(life, "import", "life.jsonl", "--into", "new.db")

    assert done.returncode == dry.returncode == 1
    for ran in (dry, done):
        assert "session 'talk': record 1 differs from the one in this store" in ran.stderr
        assert "session 'a-fork' is a fork of 'talk', which was rejected together with the shared past" in ran.stderr
    with onefold.open(life / "new.db") as new:
        assert {s.id for s in new.sessions()} == {"talk", "other"}


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_what_was_deleted_or_lacks_its_parent_is_refused(life: Path, dry_run: list[str]) -> None:
    with onefold.open(life / "new.db") as new:
        new.session("other")
        new.delete("other")
        new.session("known").alias("a-fork")
    fine(run(life, "export", "z-fork-of-the-fork", "a-fork", "other", "--no-parents", "--out", "some.jsonl",
             "--store", "life.db"))  # fmt: skip

    done = run(life, "import", "some.jsonl", "--into", "new.db", *dry_run)

    assert done.returncode == 1
    assert "rejected: session 'other' was deleted" in done.stderr
    assert "rejected: session 'known' of this store has the alias 'a-fork' already" in done.stderr
    assert "rejected: session 'z-fork-of-the-fork' is a fork of 'a-fork'" in done.stderr
    with onefold.open(life / "new.db") as new:
        assert [s.id for s in new.sessions()] == ["known"]


def test_a_dry_run_of_an_import_writes_nothing_and_counts_the_same(life: Path) -> None:
    lines = (life / "life.jsonl").read_bytes().count(b"\n")
    (life / "tail.jsonl").write_bytes(b"".join((life / "life.jsonl").read_bytes().splitlines(keepends=True)[5:]))

    dry = fine(run(life, "import", "life.jsonl", "--into", "new.db", "--dry-run"))
    alone = run(life, "export", "a-fork", "--no-parents", "--out", "alone.jsonl", "--store", "life.db")
    orphan = run(life, "import", "alone.jsonl", "--into", "new.db", "--dry-run")
    gap = run(life, "import", "tail.jsonl", "--into", "new.db", "--dry-run")

    assert dry == f"4 sessions with {lines} records in life.jsonl: {lines} would be imported\n"
    assert alone.returncode == 0
    assert orphan.returncode == 1
    assert "'talk', which is neither in this store nor in the file" in orphan.stderr
    assert gap.returncode == 1
    assert "and the file lacks record" in gap.stderr
    assert contents(life / "new.db") == []


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"", "it is empty"),
        (b"\n \n", "it is empty"),
        (b"dear diary", "not JSON: dear diary"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"PK\x03\x04", "zip archive"),
        (b"[\n{}\n]\n", "not JSON: ["),
        (b"[1, 2]\n", "a list"),
        (b"17\n", "a number"),
        (b"null\n", "null"),
        (b"{}\n", "no fields, not a record"),
        (b'{"role":"user","content":"hello"}\n', "role, content"),
        (b'{"a":' * 100_000, "not JSON"),
    ],
)
def test_a_file_that_is_something_else_is_refused_with_what_was_seen(store: Path, content: bytes, seen: str) -> None:
    (store.parent / "given").write_bytes(content)
    before = contents(store)

    done = run(store.parent, "import", "given", "--into", store)

    assert_one_line(done, 2, "given is not what `onefold export` writes", seen)
    assert contents(store) == before


def test_files_that_cannot_be_read_and_stores_that_are_not_there_are_named(store: Path) -> None:
    assert_one_line(run(store.parent, "import", "nope.jsonl", "--into", store), 2, "nope.jsonl cannot be read")
    assert_one_line(run(store.parent, "import", store, "--into", store), 2, "a database")
    assert_one_line(run(store.parent, "import", ".", "--into", store), 2, "no program is recognised")
    assert_one_line(run(store.parent, "import", store, "--into", "no.db"), 2, "no store")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session", ""), ("session", "a\nb"), ("number", 0), ("number", "7"), ("number", True), ("id", None),
        ("kind", 7), ("kind", "fork"), ("at", "now"), ("at", 10**400), ("turn", 7), ("key", 7), ("actor", []),
        ("format", 7), ("header", "x"), ("header", {"role": "user"}),
        ("header", {"role": "user", "tokens": 1, "opens": [7], "closes": []}),
        ("header", {"role": "user", "tokens": 2**70, "opens": [], "closes": []}),
    ],
)  # fmt: skip
def test_a_line_whose_field_makes_no_sense_is_left_out_by_its_number(tmp_path: Path, field: str, value: Json) -> None:
    good: Json = {**dict.fromkeys(FIELDS), "session": "s", "number": 1, "id": "i", "kind": "k", "at": 1.5, "body": {}}
    (tmp_path / "odd.jsonl").write_text(f"{encode(good)}\n{encode({**good, 'number': 2, field: value})}\n")

    wrong = "body" if value == "fork" else field
    with exported(str(tmp_path / "odd.jsonl")) as source:
        assert [(fault.line, fault.cause) for fault in source.faults] == [(2, f"its {wrong} is invalid")]
        assert [record.number for record, _ in source.read("s")] == [1]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("alias", True), ("compaction.started", {"compaction": 2**70}), ("segment.opened", {"cut": 1}), ("note", {}),
        ("input.taken", 7),
    ],
)  # fmt: skip
def test_a_record_that_makes_no_sense_to_the_journal_is_refused_and_no_traceback(
    store: Path, kind: str, body: Json
) -> None:
    talk(store, session="other", turns=1)
    lines = [decode(line) for line in fine(run(store.parent, "export", "--all", "--store", store)).split("\n") if line]
    bad = next(line for line in lines if line["session"] == "talk" and line["number"] == 7)
    bad |= {"kind": kind, "body": body, "header": None}
    (store.parent / "bad.jsonl").write_text("".join(encode(line) + "\n" for line in lines), encoding="utf-8")
    fine(run(store.parent, "init", "new.db"))

    done = run(store.parent, "import", "bad.jsonl", "--into", "new.db")

    assert done.returncode == 1
    assert done.stderr.startswith("onefold: rejected: session 'talk': record 7")
    there = {"talk"} if kind == "segment.opened" else set()  # what stands before a boundary is written before it
    assert {s["session"] for s in contents(store.parent / "new.db")} == {"other", *there}


def test_numbers_are_read_exactly_and_what_is_no_json_is_left_out(store: Path) -> None:
    lines = fine(run(store.parent, "export", "talk", "--store", store)).split("\n")
    lines[5] = lines[5].replace('"question 2"', "123456789012345678901234567890")
    lines[6] = lines[6].replace('"body":{', '"body":{"odd":NaN,')
    (store.parent / "odd.jsonl").write_text("\n".join(lines), encoding="utf-8")
    fine(run(store.parent, "init", "new.db"))

    done = run(store.parent, "import", "odd.jsonl", "--into", "new.db")

    assert "line 7 of odd.jsonl was skipped: NaN is not JSON" in done.stderr
    assert contents(store.parent / "new.db")[5]["body"]["content"] == 123456789012345678901234567890


def test_progress_is_shown_on_a_terminal_and_nowhere_else(life: Path) -> None:
    parent, child = pty.openpty()

    done = subprocess.run(
        [sys.executable, "-m", "onefold", "import", "life.jsonl", "--into", "new.db"],
        cwd=life, env=clean(life, TERM="xterm", COLUMNS="80"), stdin=child, stdout=subprocess.PIPE, stderr=child,
        timeout=60, check=False,
    )  # fmt: skip
    os.close(child)
    seen = os.read(parent, 65536).decode()
    os.close(parent)

    assert done.returncode == 0, seen
    assert "importing records" in seen
    assert b"importing" not in done.stdout


# ---------------------------------------------------------------------- words, without a process

BODIES: list[tuple[str, Json, str]] = [
    ("turn.settled", {"outcome": "settled", "cause": None}, "the turn is settled"),
    ("turn.settled", {"outcome": "failed", "cause": "boom"}, "the turn failed: boom"),
    ("turn.settled", {"outcome": "interrupted", "cause": None}, "the turn was interrupted"),
    ("segment.opened", {"source": "kept", "keeper": "agent", "tokens_before": 1, "tokens_after": 1},
     "from now on it is compacted by its agent"),
    ("segment.opened", {"source": "observed", "by": "a hook", "tokens_before": 1, "tokens_after": 1},
     "its agent compacted by itself, seen by a hook; no cut is moved"),
    ("segment.opened", {"source": "observed", "by": "acp", "witnesses": ["acp", "usage"], "tokens_before": 1,
                        "tokens_after": 1},
     "its agent compacted by itself, seen by acp and usage (high confidence); no cut is moved"),
    ("agent.started", {"agent": "hermes", "how": "new", "pid": 7},
     "the agent hermes runs, with a session of its own that is new: process 7"),
    ("agent.started", {"agent": "hermes", "how": "load", "pid": 7},
     "the agent hermes runs, and has loaded its session: process 7"),
    ("agent.ended", {"code": None, "signal": 9, "cause": "it was killed by SIGKILL"},
     "the agent ended: it was killed by SIGKILL"),
    ("question.asked", {"question": "q", "method": "session/request_permission", "params": {
        "toolCall": {"toolCallId": "c", "title": "rm -r build"}, "options": [
            {"optionId": "y", "name": "Allow once"}, {"optionId": "n", "name": "Deny"}]}},
     "the agent asks: rm -r build (Allow once, Deny)"),
    ("question.asked", {"question": "q", "method": "_own/thing", "params": {}},
     "the agent asks the clients: _own/thing"),
    ("question.settled", {"question": "q", "outcome": "withdrawn"}, "the agent's question was withdrawn"),
    ("question.settled", {"question": "q", "outcome": "answered", "answer": {
        "result": {"outcome": {"outcome": "selected", "optionId": "y"}}}},
     "the agent's question was answered: y"),
    ("question.settled", {"question": "q", "outcome": "answered", "answer": {"error": {"code": 1, "message": "no"}}},
     "the agent's question was answered with an error: no"),
    ("question.settled", {"question": "q", "outcome": "answered", "answer": {"result": None}},
     "the agent's question was answered"),
    ("input.taken", {"input": 4, "unqueued": True}, "the input #4 was taken back"),
    ("segment.opened", {"source": "restored", "restored": 1, "redo": 5, "cut": 1, "hidden": [[8, 8]],
                        "tokens_before": 10, "tokens_after": 4},
     "undone: #8 no longer counts, verbatim from #1 on; 10 → 4 tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body", "expected"), BODIES, ids=[f"{k} {b.get('source', '')}" for k, b, _ in BODIES])
def test_what_happens_in_a_life_is_told_in_words(kind: str, body: Json, expected: str) -> None:
    assert words(Record(9, "id", kind, 0.0, body)) == expected


@pytest.mark.parametrize("body", [None, [], 7, {}, {"numbers": 1}, {"was": []}, {"source": "restored", "hidden": 3}])
@pytest.mark.parametrize(
    "kind",
    [
        "turn.started", "turn.settled", "pin.added", "pin.removed", "note", "fork", "erased", "segment.opened",
        "agent.started", "agent.ended", "question.asked", "question.settled", "input.taken",
    ],
)  # fmt: skip
def test_a_record_that_makes_no_sense_is_still_shown(kind: str, body: Json) -> None:
    assert words(Record(1, "id", kind, 0.0, body)) is not None


def test_a_summary_is_found_whoever_told_it() -> None:
    assert summary_of(Record(1, "id", "segment.opened", 0.0, {"summary": "ours"})) == "ours"
    assert summary_of(Record(1, "id", "segment.opened", 0.0, {"source": "observed", "said": "its own"})) == "its own"
    assert summary_of(Record(1, "id", "segment.opened", 0.0, {"source": "observed"})) is None
    assert summary_of(Record(1, "id", "message", 0.0, {"said": "no"})) is None


def test_a_turn_whose_writer_is_silent_is_told_apart() -> None:
    turn = OpenTurn("t", 7, None, HolderId("here", 12, "main", None, "nonce"), 100.0, 130.0)

    assert turn_words(turn, 110.0) == "turn of here:12, begun 10 s ago"
    assert turn_words(turn, 130.0) == "turn of here:12, begun 30 s ago, not heard of any more"


def test_a_fork_whose_parent_was_deleted_is_taken_in_without_it(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        opened.session("talk").fork(id="child").append({"role": "user", "content": "my own"})
        opened.delete("talk")
    fine(call("export", "--all", "--out", "all.jsonl"))
    fine(run(store.parent, "init", "new.db"))

    rehearsed = fine(run(store.parent, "import", "all.jsonl", "--into", "new.db", "--dry-run"))
    fine(run(store.parent, "import", "all.jsonl", "--into", "new.db"))

    assert "1 session" in rehearsed
    with onefold.open(store.parent / "new.db") as opened:
        assert opened.session("child", create=False).context().messages == [{"role": "user", "content": "my own"}]
        assert opened.verify().healthy


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("pin.added", {"numbers": [[1]]}),
        ("pin.added", {"numbers": 3}),
        ("note", {"kind": ["rule"]}),
        ("segment.opened", {"kept": ["two"]}),
    ],
)
def test_what_was_edited_by_hand_so_that_no_context_can_be_made_is_refused(
    store: Path, call: Call, kind: str, change: Json
) -> None:
    with onefold.open(store) as opened:
        session = opened.session("talk")
        session.pin(2)
        session.note("rule", "be kind")
    fine(call("export", "--all", "--out", "all.jsonl"))
    lines = [decode(line) for line in (store.parent / "all.jsonl").read_text().split("\n") if line]
    edited = [line | {"body": line["body"] | change} if line["kind"] == kind else line for line in lines]
    (store.parent / "edited.jsonl").write_text("".join(encode(line) + "\n" for line in edited))
    fine(run(store.parent, "init", "new.db"))

    done = run(store.parent, "import", "edited.jsonl", "--into", "new.db")

    assert done.returncode == 1
    assert "invalid" in done.stderr + done.stdout
    with onefold.open(store.parent / "new.db") as opened:
        assert list(opened.sessions()) == []


def test_what_is_erased_leaves_the_search_index_too(store: Path, call: Call) -> None:
    with onefold.open(store) as opened:
        number = opened.session("talk").append({"role": "user", "content": "my xylophone"}).numbers[0]
    assert "xylophone" in fine(call("search", "xylophone"))
    index = store.with_name(f"{store.name}.search")
    assert b"xylophone" in index.read_bytes()

    fine(call("erase", "talk", number, "--yes"))

    assert b"xylophone" not in index.read_bytes()
    assert call("search", "xylophone").returncode == 1
