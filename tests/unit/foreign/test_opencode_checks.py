"""The doctor on stores of OpenCode: each ill is shown by a session that has it, beside a healthy one like it."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from onefold import foreign
from onefold.errors import OnefoldError
from onefold.foreign import ForeignFinding
from onefold.model import Json
from tests.support.hermes_store import ask, ids, kept, look, repair
from tests.support.opencode_store import SCHEMA, OpenCode


@pytest.fixture
def opencode(tmp_path: Path) -> Iterator[OpenCode]:
    store = OpenCode(tmp_path / "opencode.db")
    yield store
    store.connection.close()


def messages(path: Path, session: str) -> list[str]:
    return [id for (id,) in ask(path, "select id from message where session_id = ? order by id", session)]


def log_is_whole(path: Path) -> bool:
    """Every event has a number, without a gap, and the counter stands at the last."""
    logs = ask(path, "select count(*), max(e.seq), s.seq from event e join event_sequence s using (aggregate_id) "
                     "group by aggregate_id")  # fmt: skip
    return all(count == last + 1 == counter + 1 for count, last, counter in logs)


# ---------------------------------------------------------------------- healthy stores


def test_a_healthy_store_with_a_thousand_messages_and_ten_compactions_gives_no_finding(opencode: OpenCode) -> None:
    session = opencode.session("long")
    for number in range(10):
        prompts = [opencode.turn(session, f"question {number} {i}") for i in range(50)]
        opencode.compact(session, **({"tail_start_id": prompts[-2]} if number % 2 else {}))
        if number % 3 == 0:
            goes_on = opencode.ask(session, "Continue if you have next steps", synthetic=True)
            opencode.answer(session, goes_on)
    cut_short = opencode.ask(session, "a slow one")
    error = {"name": "MessageAbortedError"}
    opencode.message(session, "assistant", {"type": "text", "text": "he"}, parentID=cut_short, error=error)
    opencode.message(session, "assistant", parentID=cut_short, error=error)
    path = opencode.done()

    assert foreign.store_at(path).version == "version 1.18.33"
    assert ids(path) == []


def test_an_agent_that_works_for_hours_and_compacts_on_its_way_is_healthy(opencode: OpenCode) -> None:
    session = opencode.session("worker")
    opencode.turn(session)
    for _ in range(6):
        opencode.compact(session, auto=True)
        goes_on = opencode.ask(session, "Continue if you have next steps", synthetic=True)
        opencode.work(session, goes_on)
        opencode.answer(session, goes_on, "step by step")

    assert ids(opencode.done()) == []


def test_a_store_of_a_version_without_a_log_is_looked_at_and_repaired(tmp_path: Path) -> None:
    store = OpenCode(tmp_path / "opencode.db", SCHEMA)
    session = store.session("s")
    store.turn(session)
    marker = store.marker(session)
    path = store.done()

    assert ids(path) == [f"armed-marker:{marker}"]
    assert repair(path) == []


# ---------------------------------------------------------------------- markers


def test_a_marker_without_a_summary_is_armed_until_something_is_answered_f08(opencode: OpenCode) -> None:
    armed, stale, healthy = (opencode.session(name) for name in ("armed", "stale", "healthy"))
    for session in (armed, stale, healthy):
        opencode.turn(session)
    first = opencode.marker(armed)
    second = opencode.marker(stale)
    opencode.turn(stale)
    opencode.compact(healthy)
    path = opencode.done()

    found = {f.id: f for f in look(path)}
    assert sorted(found) == [f"armed-marker:{first}", f"stale-marker:{second}"]
    assert found[f"armed-marker:{first}"].severity == "harm"
    assert "the next prompt is not answered" in found[f"armed-marker:{first}"].means
    assert repair(path) == []
    assert first not in messages(path, armed)
    assert log_is_whole(path)
    assert [line["value"]["id"] for line in kept(path) if line["what"] == "message"] == [first, second]


def test_two_markers_and_one_summary_leave_one_stale_f07(opencode: OpenCode) -> None:
    session = opencode.session("s")
    opencode.turn(session)
    first = opencode.marker(session)
    second = opencode.marker(session)
    summary = opencode.summary(session, second)
    path = opencode.done()

    assert ids(path) == [f"stale-marker:{first}"]
    assert repair(path) == []
    assert messages(path, session)[-2:] == [second, summary]


def test_of_several_summaries_of_one_marker_the_newest_stays_f06(opencode: OpenCode) -> None:
    session, retried = opencode.session("s"), opencode.session("retried")
    marker = opencode.compact(session)
    newest = opencode.summary(session, marker, "## Objective\n- the newest")
    again = opencode.marker(retried)
    opencode.summary(retried, again, finish=None, error={"name": "APIError"})
    opencode.summary(retried, again)
    path = opencode.done()

    assert ids(path) == [f"several-summaries:{marker}"]
    assert repair(path) == []
    assert messages(path, session) == [marker, newest]


def test_a_summary_under_a_prompt_is_filed_under_its_marker_f08(opencode: OpenCode) -> None:
    session = opencode.session("s")
    opencode.turn(session)
    marker = opencode.marker(session)
    opencode.summary(session, marker, finish=None, error={"name": "APIError"})
    prompt = opencode.ask(session, "was never answered")
    summary = opencode.summary(session, prompt)
    opencode.turn(session)
    path = opencode.done()

    assert ids(path) == [f"summary-under-wrong-parent:{summary}"]
    assert repair(path, 1) == []
    ((data,),) = ask(path, "select data from message where id = ?", summary)
    assert json.loads(data)["parentID"] == marker
    assert json.loads(data)["summary"] is True
    assert log_is_whole(path)


def test_a_summary_under_a_prompt_is_only_reported_when_no_marker_is_left_for_it(opencode: OpenCode) -> None:
    before, after = opencode.session("before"), opencode.session("after")
    opencode.compact(before)
    first = opencode.summary(before, opencode.ask(before))
    marker = opencode.marker(after)
    second = opencode.summary(after, opencode.ask(after))
    opencode.summary(after, marker)
    path = opencode.done()

    found = sorted(look(path), key=lambda f: f.id)
    assert [(f.key, f.kind, f.repairable) for f in found] == [
        (id, "summary-under-wrong-parent", False) for id in sorted([first, second])
    ]
    assert all("Report only" in f.remedy for f in found)


@pytest.mark.parametrize(
    ("kind", "words", "state"),
    [
        ("unfinished-summary", "## Obj", {"finish": None, "completed": False}),
        ("failed-summary", "", {"finish": None, "error": {"name": "APIError"}}),
        ("failed-summary", "## Objective", {"error": {"name": "MessageAbortedError"}}),
        ("empty-summary", "", {}),
        ("empty-summary", " \n ", {}),
    ],
)
def test_a_summary_that_is_none_is_taken_out_with_its_marker_f60(
    opencode: OpenCode, kind: str, words: str, state: Json
) -> None:
    session, healthy = opencode.session("s"), opencode.session("healthy")
    for id in (session, healthy):
        opencode.turn(id)
    marker = opencode.marker(session)
    summary = opencode.summary(session, marker, words, **state)
    opencode.compact(healthy)
    path = opencode.done()

    assert f"{kind}:{summary}" in ids(path)
    assert ("armed-marker" in {f.kind for f in look(path)}) is ("finish" in state)
    assert repair(path) == []
    assert marker not in messages(path, session)
    assert summary not in messages(path, session)
    assert len(messages(path, healthy)) == 4
    assert log_is_whole(path)


def test_a_tail_that_begins_at_a_lost_message_begins_at_what_is_left_of_it(opencode: OpenCode) -> None:
    some, none, healthy = (opencode.session(name) for name in ("some", "none", "healthy"))
    opencode.turn(some)
    lost = opencode.turn(some)
    left = opencode.turn(some)
    first = opencode.compact(some, tail_start_id=lost)
    last = opencode.turn(none)
    second = opencode.compact(none, tail_start_id=last + "x")
    opencode.compact(healthy, tail_start_id=opencode.turn(healthy))
    opencode.do("delete from message where id = ? or data like ?", lost, f'%"{lost}"%')
    opencode.do("delete from message where session_id = ? and id > ? and id < ?", none, last, second)
    path = opencode.done()

    assert ids(path) == [f"dangling-tail:{first}", f"dangling-tail:{second}"]
    assert repair(path) == []
    tails = dict(ask(path, "select message_id, json_extract(data, '$.tail_start_id') from part "
                           "where data like '%compaction%'"))  # fmt: skip
    assert (tails[first], tails[second]) == (left, None)


def test_compactions_in_a_row_without_a_turn_between_them_are_reported_f42(opencode: OpenCode) -> None:
    session, twice = opencode.session("loop"), opencode.session("twice")
    for id, times in ((session, 43), (twice, 2)):
        prompt = opencode.ask(id, "q3")
        opencode.message(id, "assistant", parentID=prompt)
        for number in range(times):
            opencode.compact(id, auto=True, overflow=True)
            repeated = opencode.ask(id, "q3") if number == 0 else opencode.ask(id, "Continue", synthetic=True)
            opencode.message(id, "assistant", parentID=repeated)
    path = opencode.done()

    (found,) = look(path)
    assert (found.id, found.repairable, found.facts["count"]) == (f"compaction-run:{session}", False, 43)


def test_compactions_with_nothing_between_but_prompts_that_opencode_made_up_are_a_run_f42(opencode: OpenCode) -> None:
    session, asked, worked = (opencode.session(name) for name in ("runaway", "asked", "worked"))
    for id in (session, asked, worked):
        opencode.turn(id)
        for number in range(31):
            opencode.compact(id, auto=True)
            goes_on = opencode.ask(id, "Continue if you have next steps", synthetic=True)
            if id == worked and number % 2:
                opencode.work(id, goes_on)
            opencode.answer(id, goes_on, "All is done.")
            if id == asked and number % 2:
                opencode.turn(id, f"and {number}?")
    path = opencode.done()

    (found,) = look(path)
    assert (found.id, found.repairable, found.facts["count"]) == (f"compaction-run:{session}", False, 31)


def test_an_overflow_that_a_compaction_repaired_is_not_a_run(opencode: OpenCode) -> None:
    session = opencode.session("s")
    for number in range(6):
        prompt = opencode.ask(session, f"q{number}")
        opencode.message(session, "assistant", parentID=prompt)
        opencode.compact(session, auto=True, overflow=True)
        opencode.answer(session, opencode.ask(session, f"q{number}"))

    assert ids(opencode.done()) == []


# ---------------------------------------------------------------------- messages and events


def test_messages_without_parts_are_told_by_what_they_should_have_said(opencode: OpenCode) -> None:
    session = opencode.session("s")
    unanswered = opencode.message(session, "user")
    answered = opencode.message(session, "user")
    opencode.answer(session, answered)
    lost = opencode.message(session, "assistant", parentID=answered, finish="stop")
    begun = opencode.message(session, "assistant", parentID=answered, completed=False)
    path = opencode.done()

    found = {f.key: f for f in look(path)}
    assert {key: (f.kind, f.repairable) for key, f in found.items()} == {
        unanswered: ("message-without-parts", True),
        answered: ("message-without-parts", False),
        lost: ("message-without-parts", False),
        begun: ("answer-cut-off", False),
    }
    assert found[begun].severity == "note"
    assert f"message-without-parts:{unanswered}" not in repair(path)


def test_gaps_in_the_log_are_reported_and_a_counter_that_fell_behind_is_set_right(opencode: OpenCode) -> None:
    names = ("hole", "begins late", "ends early", "behind", "whole")
    hole, late, early, behind, whole = (opencode.session(name) for name in names)
    for session in (hole, late, early, behind, whole):
        opencode.turn(session)
    opencode.do("delete from event where aggregate_id = ? and seq in (2, 3)", hole)
    opencode.do("delete from event where aggregate_id = ? and seq = 0", late)
    opencode.do("delete from event where aggregate_id = ? and seq >= 5", early)
    opencode.do("update event_sequence set seq = 1 where aggregate_id = ?", behind)
    path = opencode.done()

    found = {f.id: f for f in look(path)}
    assert sorted(found) == [
        f"event-counter-behind:{behind}",
        f"event-gap:{late}",
        f"event-gap:{early}",
        f"event-gap:{hole}",
    ]
    places = {f.key: (f.facts["first"], f.facts["missing"]) for f in found.values() if f.kind == "event-gap"}
    assert places == {hole: (2, 2), late: (0, 1), early: (5, 2)}
    assert repair(path) == [f"event-gap:{late}", f"event-gap:{early}", f"event-gap:{hole}"]


# ---------------------------------------------------------------------- damaged stores


def test_values_that_make_no_sense_are_passed_over(opencode: OpenCode) -> None:
    odd: list[Json] = [None, 7, [], "x", {"role": 1}, {"role": "user", "time": []}, {"summary": True, "parentID": {}}]
    for value in odd:
        for name in ("a", "b"):
            opencode.do(
                "insert or ignore into message values (?, ?, 1, 1, ?)", f"{name}{value}", name, json.dumps(value)
            )
        part = json.dumps({"type": "compaction", "tail_start_id": value, "text": value})
        opencode.do("insert or ignore into part values (?, ?, 'a', 1, 1, ?)", f"p{value}", f"a{value}", part)
    for raw in (b"\xff", 7, "{", '{"summary":true', "\x00"):
        opencode.do("insert or ignore into message values (?1, ?1, ?1, ?1, ?1)", raw)
        opencode.do("insert or ignore into part values (?1, ?1, ?1, ?1, ?1, ?1)", raw)
        opencode.do("insert or ignore into event values (?1, ?1, ?1, ?1, ?1)", raw)

    found: list[ForeignFinding] = look(opencode.done())

    assert all(json.dumps(dict(f.facts)) for f in found)


@pytest.mark.parametrize("seed", range(24))
def test_a_damaged_file_gives_an_answer_or_a_clear_error_and_is_not_written_to(opencode: OpenCode, seed: int) -> None:
    session = opencode.session("s")
    for _ in range(30):
        opencode.turn(session)
        opencode.compact(session)
    path = opencode.done()
    chance = random.Random(seed)
    whole = bytearray(path.read_bytes())
    if seed % 4 == 0:
        whole = whole[: chance.randrange(1, len(whole))]
    for _ in range(chance.randrange(1, 40)):
        place = chance.randrange(0 if seed % 3 else 100, len(whole)) if len(whole) > 100 else 0
        whole[place] = chance.randrange(256)
    path.write_bytes(whole)

    with contextlib.suppress(OnefoldError):
        look(path)

    assert path.read_bytes() == whole
    assert [file.name for file in path.parent.iterdir()] == ["opencode.db"]
