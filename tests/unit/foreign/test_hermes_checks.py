"""The doctor on stores of Hermes Agent: each ill is shown by a store that has it, beside a healthy one like it."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from onefold import foreign
from onefold.errors import OnefoldError
from onefold.foreign.hermes.message_checks import DuplicateFinder, MessageRow
from onefold.model import Json
from tests.support.hermes_store import EARLY, NOW, SUMMARY, TIMED, Hermes, ask, ids, kept, look, repair


@pytest.fixture
def hermes(tmp_path: Path) -> Iterator[Hermes]:
    store = Hermes(tmp_path / "state.db")
    yield store
    store.connection.close()


def live(path: Path, session: str) -> list[str]:
    found = ask(path, "select content from messages where session_id = ? and active = 1 order by id", session)
    return [content for (content,) in found]


# ---------------------------------------------------------------------- healthy stores


@pytest.mark.parametrize("rotates", [False, True], ids=["in place", "by rotation"])
def test_a_healthy_store_with_a_thousand_messages_and_ten_compactions_gives_no_finding(
    hermes: Hermes, rotates: bool
) -> None:
    session = "s0"
    hermes.session(session)
    for number in range(1, 12):
        hermes.talk(session, 30, f"matter {number}")
        hermes.say(session, "user", "continue")
        if number == 11:
            break
        new = f"s{number}" if rotates else None
        hermes.compact(session, keep=22, into=new)
        session = new or session
        hermes.session(f"branch{number}", session, marks={"_branched_from": session})
        hermes.session(f"agent{number}", session, marks={"_delegate_from": session})
        hermes.say(f"branch{number}", "user", "another way")
    hermes.connection.execute(
        "update messages set active = 0 where id in (select id from messages where active = 1 order by id desc limit 3)"
    )
    path = hermes.done()

    assert foreign.store_at(path).version == "schema 22"
    assert ids(path) == []


def test_a_store_of_an_early_version_is_looked_at_by_the_columns_it_has(tmp_path: Path) -> None:
    store = Hermes(tmp_path / "state.db", EARLY)
    store.do(
        "insert into sessions values ('a', 'cli', null, 1, 2, 'compression', 1), ('b', 'cli', null, 1, null, null, 7)"
    )
    store.do("insert into messages (session_id, role, content, timestamp) values ('a', 'user', 'hi', 1)")
    store.do("insert into messages (session_id, role, tool_call_id) values ('b', 'tool', 'nobody')")
    path = store.done()

    assert foreign.store_at(path).version == "an early schema"
    assert ids(path) == ["ended-without-continuation:a", "result-without-call:2", "wrong-count:b"]
    assert repair(path) == ["result-without-call:2"]


# ---------------------------------------------------------------------- lines of sessions


def test_two_continuations_of_one_parent_are_a_fork_and_the_lost_one_becomes_a_branch_f01(hermes: Hermes) -> None:
    hermes.session("p")
    hermes.talk("p", 4)
    hermes.compact("p", into="winner")
    hermes.session("loser", "p")
    hermes.say("loser", "user", SUMMARY)
    hermes.say("winner", "user", "the newest")
    path = hermes.done()

    assert ids(path) == ["fork:p"]
    assert look(path)[0].facts == {"parent": "p", "kept": "winner", "others": ["loser"]}

    assert repair(path) == []
    assert ask(path, "select json_extract(model_config, '$._branched_from') from sessions where id = 'loser'") == [
        ("p",)
    ]
    assert kept(path)[0]["value"]["id"] == "loser"


@pytest.mark.parametrize(
    "marks",
    [{"_branched_from": "p"}, {"_delegate_from": "p"}],
    ids=["a branch", "a subagent"],
)
def test_a_branch_or_a_subagent_beside_a_continuation_is_no_fork(hermes: Hermes, marks: Json) -> None:
    hermes.session("p")
    hermes.talk("p", 4)
    hermes.compact("p", into="c")
    hermes.session("other", "p", marks=marks)
    hermes.say("other", "user", "hi")

    assert ids(hermes.done()) == []


def test_the_sessions_of_a_chat_that_was_reset_are_no_fork(hermes: Hermes) -> None:
    hermes.session("p")
    hermes.talk("p", 4)
    hermes.end("p", "session_reset")
    for id in ("a", "b"):
        hermes.session(id, "p")
        hermes.say(id, "user", "hi")

    assert ids(hermes.done()) == []


def test_a_marker_that_names_another_session_was_inherited_and_makes_no_branch(hermes: Hermes) -> None:
    hermes.session("root")
    hermes.session("agent", "root", marks={"_delegate_from": "root"})
    hermes.talk("agent", 4)
    hermes.end("agent")
    for id in ("one", "two"):
        hermes.session(id, "agent", marks={"_delegate_from": "root", "_branched_from": None})
        hermes.say(id, "user", SUMMARY)
    path = hermes.done()

    assert ids(path) == ["fork:agent"]


def test_a_parent_without_a_continuation_is_opened_again_f24(hermes: Hermes) -> None:
    for id in ("stuck", "closed"):
        hermes.session(id)
        hermes.talk(id, 2)
    hermes.end("stuck")
    hermes.end("closed", "cli_close")
    path = hermes.done()

    assert ids(path) == ["ended-without-continuation:stuck"]
    assert repair(path) == []
    assert ask(path, "select ended_at, end_reason from sessions where id = 'stuck'") == [(None, None)]


def test_an_empty_continuation_is_put_away_and_its_parent_goes_on(hermes: Hermes) -> None:
    hermes.session("p")
    hermes.talk("p", 2)
    hermes.end("p")
    hermes.session("empty", "p")
    hermes.session("q")
    hermes.talk("q", 4)
    hermes.compact("q", into="full")
    path = hermes.done()

    assert ids(path) == ["empty-continuation:empty"]
    assert repair(path) == []
    reasons = dict(ask(path, "select id, end_reason from sessions"))
    assert reasons == {"p": None, "empty": "orphaned_compression", "q": "compression", "full": None}


def test_an_empty_continuation_beside_a_full_one_is_an_ill_only_if_it_is_gone_on_with(hermes: Hermes) -> None:
    for p, closes in (("p", False), ("q", True)):
        hermes.session(p)
        hermes.talk(p, 4)
        hermes.compact(p, into=f"{p}-full")
        hermes.session(f"{p}-empty", p)
        if closes:
            hermes.end(f"{p}-empty", "ws_orphan_reap")
    path = hermes.done()

    assert ids(path) == ["empty-continuation:p-empty"]
    assert repair(path) == []
    assert ask(path, "select end_reason from sessions where id = 'p'") == [("compression",)]


def test_a_line_that_leads_back_to_itself_is_cut_at_the_session_that_began_first(hermes: Hermes) -> None:
    for id, parent in (("a", "c"), ("b", "a"), ("c", "b"), ("self", "self"), ("x", None), ("y", "x")):
        hermes.session(id, parent)
        hermes.say(id, "user", "hi")
    path = hermes.done()

    assert ids(path) == ["cycle:a", "cycle:self"]
    assert repair(path) == []
    parents = dict(ask(path, "select id, parent_session_id from sessions"))
    assert parents == {"a": None, "b": "a", "c": "b", "self": None, "x": None, "y": "x"}


def test_a_continuation_made_in_another_client_is_worth_a_note_and_no_ill(hermes: Hermes) -> None:
    hermes.session("p", source="telegram")
    hermes.talk("p", 4)
    hermes.compact("p", into="c")
    found = look(hermes.done())

    assert [f.id for f in found] == ["continued-elsewhere:p"]
    assert foreign.ills(found) == []


# ---------------------------------------------------------------------- locks, routes, goals


def test_locks_that_nobody_holds_are_removed_f41(hermes: Hermes) -> None:
    mine = f"pid={os.getpid()}:tid=1:agent=a:nonce=b"
    for id in ("held", "expired", "dead", "ended"):
        hermes.session(id)
        hermes.say(id, "user", "hi")
    hermes.end("ended", "cli_close")
    for id, holder, until in (
        ("held", mine, NOW + 100),
        ("expired", mine, NOW - 1),
        ("dead", "pid=999999999:tid=1:agent=a:nonce=b", NOW + 100),
        ("ended", mine, NOW + 100),
        ("gone", mine, NOW + 100),
    ):
        hermes.do("insert into compression_locks values (?, ?, ?, ?)", id, holder, NOW - 200, until)
    path = hermes.done()

    assert ids(path) == ["stale-lock:dead", "stale-lock:ended", "stale-lock:expired", "stale-lock:gone"]
    assert repair(path) == []
    assert ask(path, "select session_id from compression_locks") == [("held",)]


def test_routes_to_ended_sessions_lead_to_where_the_conversation_goes_on_f02(hermes: Hermes) -> None:
    hermes.session("p")
    hermes.talk("p", 4)
    hermes.compact("p", into="c")
    hermes.compact("c", into="tip", keep=2)
    hermes.session("reset")
    hermes.say("reset", "user", "hi")
    hermes.end("reset", "session_reset")
    hermes.session("accident")
    hermes.say("accident", "user", "hi")
    hermes.end("accident", "agent_close")
    for key, session in (("one", "p"), ("two", "reset"), ("three", "tip"), ("four", "accident"), ("five", "unknown")):
        entry = json.dumps({"session_key": key, "session_id": session, "suspended": False})
        hermes.do("insert into gateway_routing values ('', ?, ?, ?)", key, entry, NOW)
    hermes.do("insert into telegram_dm_topic_bindings values ('chat', '1', 'c')")
    path = hermes.done()

    assert ids(path) == [
        "route-to-ended-session:one",
        "route-to-ended-session:topic:chat:1",
        "route-to-ended-session:two",
    ]
    assert repair(path) == ["route-to-ended-session:two"]
    (entry,) = ask(path, "select entry_json from gateway_routing where session_key = 'one'")[0]
    assert json.loads(entry) == {"session_key": "one", "session_id": "tip", "suspended": False}
    assert ask(path, "select session_id from telegram_dm_topic_bindings") == [("tip",)]


def test_an_open_goal_moves_to_where_the_conversation_goes_on(hermes: Hermes) -> None:
    for p in ("open", "cleared", "taken"):
        hermes.session(p)
        hermes.talk(p, 4)
        hermes.compact(p, into=f"{p}-tip")
    goals = {"open": "active", "cleared": "cleared", "taken": "paused", "taken-tip": "active"}
    for id, status in goals.items():
        goal = json.dumps({"goal": f"of {id}", "status": status})
        hermes.do("insert into state_meta values (?, ?)", f"goal:{id}", goal)
    path = hermes.done()

    assert ids(path) == ["goal-on-ended-session:open", "goal-on-ended-session:taken"]
    assert repair(path) == []
    after = {key: json.loads(value) for key, value in ask(path, "select key, value from state_meta")}
    assert after["goal:open-tip"] == {"goal": "of open", "status": "active"}
    assert after["goal:open"]["status"] == after["goal:taken"]["status"] == "cleared"
    assert after["goal:taken-tip"]["goal"] == "of taken-tip"


# ---------------------------------------------------------------------- messages


def test_a_message_that_came_during_a_summary_is_put_back_in_place_f20(hermes: Hermes) -> None:
    for id, after in (("lost", 1), ("whole", 0)):
        hermes.session(id)
        hermes.talk(id, 6)
        hermes.say(id, "user", "and this came meanwhile")
        hermes.compact(id, after=after)
    path = hermes.done()

    assert ids(path) == ["swallowed-tail:lost"]
    assert repair(path) == []
    assert live(path, "lost")[-1] == "and this came meanwhile"
    assert ask(path, "select message_count from sessions where id = 'lost'") == [(8,)]


def test_a_message_that_came_during_a_summary_is_put_back_after_a_rotation_f20(hermes: Hermes) -> None:
    for id, after in (("lost", 1), ("whole", 0)):
        hermes.session(id)
        hermes.talk(id, 6)
        hermes.say(id, "user", "and this came meanwhile")
        hermes.compact(id, after=after, into=f"{id}-tip")
    path = hermes.done()

    assert ids(path) == ["swallowed-tail:lost"]
    assert repair(path) == []
    assert live(path, "lost-tip")[-1] == "and this came meanwhile"


def test_a_swallowed_message_is_only_reported_once_the_conversation_has_gone_on(hermes: Hermes) -> None:
    hermes.session("s")
    hermes.talk("s", 6)
    hermes.say("s", "user", "and this came meanwhile")
    hermes.compact("s", after=1)
    hermes.at += 60
    hermes.talk("s", 2, "something else")
    found = look(hermes.done())

    assert [(f.id, f.repairable) for f in found] == [("swallowed-tail:s", False)]
    assert "Report only" in found[0].remedy


def test_a_carried_message_that_was_changed_on_the_way_is_not_taken_for_a_lost_one(hermes: Hermes) -> None:
    hermes.session("s")
    hermes.talk("s", 6)
    last = hermes.say("s", "user", "<context>weather</context> go on")
    hermes.compact("s")
    hermes.do("update messages set content = 'go on' where id > ? and content like '%go on'", last)

    assert ids(hermes.done()) == []


def test_what_was_written_after_the_end_follows_in_the_continuation_if_nothing_was_said_since(hermes: Hermes) -> None:
    for id in ("behind", "between"):
        hermes.session(id)
        hermes.talk(id, 4)
        hermes.compact(id, into=f"{id}-tip")
        if id == "between":
            late = hermes.tick()
            hermes.say("between-tip", "user", "we went on")
            hermes.say(id, "user", "too late", at=late)
        else:
            hermes.say(id, "user", "too late")
    path = hermes.done()

    assert ids(path) == ["written-after-end:behind", "written-after-end:between"]
    assert repair(path) == ["written-after-end:between"]
    assert live(path, "behind-tip")[-1] == "too late"
    assert "too late" not in live(path, "behind")


@TIMED
@pytest.mark.parametrize("talks", [False, True], ids=["plain", "with calls"])
def test_what_a_second_compaction_wrote_again_is_archived_and_carried_nowhere_f04(
    hermes: Hermes, timed: bool, talks: bool
) -> None:
    hermes.session("p")
    if talks:
        hermes.talk("p", 7)
    else:
        hermes.chat("p", 20)
    known = hermes.rows("p")
    hermes.compact("p", keep=3 if talks else 1, into="winner")
    hermes.write_again("p", known[:-1], timed=timed)
    hermes.session("loser", "p")
    hermes.say("loser", "user", SUMMARY)
    hermes.say("winner", "user", "the newest")
    path = hermes.done()
    before = live(path, "winner")

    found = {f.id: f for f in look(path)}
    assert sorted(found) == ["fork:p", "written-twice:p"]
    assert len(found["written-twice:p"].facts["messages"]) == len(known) - 1

    assert repair(path) == []
    assert live(path, "p") == [row[2] for row in known]
    assert live(path, "winner") == before
    assert ask(path, "select message_count from sessions where id = 'p'") == [(len(known),)]
    assert sum(line["what"] == "messages" for line in kept(path)) == len(known) - 1


def test_what_is_new_beside_what_was_written_again_is_a_late_message_as_ever(hermes: Hermes) -> None:
    hermes.session("p")
    hermes.chat("p", 20)
    known = hermes.rows("p")
    hermes.compact("p", keep=2, into="tip")
    hermes.write_again("p", known)
    late = [hermes.say("p", "user", "and one more thing"), hermes.say("p", "assistant", "m19")]
    path = hermes.done()

    found = {f.id: f for f in look(path)}
    assert sorted(found) == ["written-after-end:p", "written-twice:p"]
    assert found["written-after-end:p"].facts["messages"] == late
    assert repair(path) == []
    assert live(path, "tip")[-2:] == ["and one more thing", "m19"]


@pytest.mark.parametrize(
    "said",
    [["m1"], ["m1"] * 30, ["m18", "m19"], [f"m{n}" for n in range(5, 12)], ["m3", "m2"] * 10,
     [f"m{n}" for n in range(19, 0, -1)], [w for n in range(0, 14, 2) for w in (f"m{n}", f"m{n + 1}", "new")]],
    ids=["a word", "a word often", "the last exchange", "seven messages", "a heartbeat", "another order",
         "answered anew"],
)  # fmt: skip
def test_what_people_say_again_is_no_double(hermes: Hermes, said: list[str]) -> None:
    hermes.session("p")
    hermes.chat("p", 20)
    hermes.compact("p", keep=2, into="tip")
    late = [hermes.say("p", "assistant" if word[-1] in "13579" else "user", word) for word in said]

    (found,) = look(hermes.done())

    assert (found.id, found.facts["messages"]) == ("written-after-end:p", late)


def test_a_short_conversation_is_written_twice_only_if_all_of_it_is(hermes: Hermes) -> None:
    for id, again in (("all", 5), ("most", 4)):
        hermes.session(id)
        hermes.chat(id, 5)
        known = hermes.rows(id)
        hermes.compact(id, keep=0, into=f"{id}-tip")
        hermes.write_again(id, known[:again])
    path = hermes.done()

    assert ids(path) == ["written-after-end:most", "written-twice:all"]


def test_doubles_are_those_rows_that_stand_in_a_run_and_no_others() -> None:
    """The runs as they are found, beside those that a plain search of every stretch finds."""
    flagged = 0
    for seed in range(400):
        dice = random.Random(seed)
        words = dice.choice([3, 9, 12, 40])
        said = [dice.randrange(words) for _ in range(dice.randrange(1, 30))]
        late_from = len(said)
        for _ in range(dice.randrange(1, 6)):
            start = dice.randrange(len(said))
            again = said[start : start + dice.randrange(1, 16)]
            said += again if dice.random() < 0.7 else [dice.randrange(words) for _ in again]
        doubles = DuplicateFinder(ended=0.5)
        for place, word in enumerate(said):
            doubles.add(as_row(place, word, at=float(place >= late_from)))

        expected = set()
        before = said[:late_from]
        short = 4 <= len(before) < 8 and len({*before}) == len(before)
        needed, source = (len(before), before) if short else (8, said)
        for first in range(late_from, len(said)):
            for last in range(first + needed, len(said) + 1):
                run = said[first:last]
                if len({*run}) >= needed and any(source[at : at + len(run)] == run for at in range(first)):
                    expected |= {*range(first, last)}
        assert doubles.found() == expected, seed
        flagged += len(expected)
    assert flagged > 800


def as_row(id: int, word: int, *, at: float) -> MessageRow:
    return MessageRow(id, "user", word, at, live=True, rewound=False, summary=False, task_list=False, result_of=None,
               calls=frozenset(), call_count=0)  # fmt: skip


def test_rows_that_were_inserted_again_and_again_are_archived_f09(hermes: Hermes) -> None:
    hermes.session("copied")
    for _ in range(4):
        hermes.talk("copied", 9)
    hermes.session("heartbeat")
    for _ in range(60):
        hermes.say("heartbeat", "user", "Look whether there is anything to do, and say so.")
        hermes.say("heartbeat", "assistant", "Nothing to do.")
    path = hermes.done()

    assert ids(path) == ["duplicated-rows:copied"]
    assert look(path)[0].facts["copies"] == 81
    assert repair(path) == []
    assert len(live(path, "copied")) == 27
    assert ask(path, "select message_count, tool_call_count from sessions where id = 'copied'") == [(27, 9)]
    assert ask(path, "select count(*) from messages where session_id = 'copied'") == [(108,)]


def test_a_result_without_its_call_is_archived_f26(hermes: Hermes) -> None:
    hermes.session("s")
    hermes.talk("s", 2)
    lost = hermes.say("s", "tool", "of nobody", result_of="nobody")
    hermes.session("codex")
    hermes.do("insert into messages (session_id, role, tool_calls, timestamp) values ('codex', 'assistant', ?, 1)",
              json.dumps([{"call_id": "call_1|fc_1"}]))  # fmt: skip
    hermes.do("update sessions set message_count = 1, tool_call_count = 1 where id = 'codex'")
    hermes.say("codex", "tool", "ok", result_of="call_1")
    path = hermes.done()

    assert ids(path) == [f"result-without-call:{lost}"]
    assert repair(path) == []
    assert ask(path, "select active, compacted from messages where id = ?", lost) == [(0, 1)]
    assert ask(path, "select message_count from sessions where id = 's'") == [(6,)]


def test_several_live_summaries_are_reported_and_equal_ones_archived(hermes: Hermes) -> None:
    for id, second in (("equal", SUMMARY), ("differ", SUMMARY + " and more"), ("one", "hello")):
        hermes.session(id)
        hermes.say(id, "user", SUMMARY)
        hermes.say(id, "assistant", "well")
        hermes.say(id, "user", second)
    path = hermes.done()

    assert ids(path) == ["several-summaries:differ", "several-summaries:equal"]
    assert repair(path) == ["several-summaries:differ"]
    assert live(path, "equal") == ["well", SUMMARY]


def test_a_wrong_count_is_set_right(hermes: Hermes) -> None:
    for id in ("messages", "calls", "none", "rewound"):
        hermes.session(id)
        if id != "none":
            hermes.talk(id, 2)
    hermes.do("update sessions set message_count = 99 where id = 'messages'")
    hermes.do("update sessions set tool_call_count = 0 where id = 'calls'")
    hermes.do("update sessions set message_count = 1 where id = 'none'")
    hermes.do("update messages set active = 0 where session_id = 'rewound' and role = 'tool'")
    path = hermes.done()

    assert ids(path) == ["wrong-count:calls", "wrong-count:messages", "wrong-count:none"]
    assert repair(path) == []
    counts = {id: tuple(rest) for id, *rest in ask(path, "select id, message_count, tool_call_count from sessions")}
    assert counts == {"messages": (6, 2), "calls": (6, 2), "none": (0, 0), "rewound": (6, 2)}


# ---------------------------------------------------------------------- damaged stores


def test_values_that_make_no_sense_are_passed_over(hermes: Hermes) -> None:
    for value in (None, 7, 1.5, b"\xff\x00", "{", "[1]", "\x00", "é" * 1000):
        hermes.do("insert or ignore into messages "
                  "(session_id, role, content, tool_calls, tool_call_id, timestamp, active) "
                  "values (?1, coalesce(?1, 'x'), ?1, ?1, ?1, coalesce(?1, 'x'), coalesce(?1, 1))", value)  # fmt: skip
        hermes.do("insert or ignore into sessions (id, source, model_config, parent_session_id, started_at, ended_at, "
                  "end_reason) values (?1, 'x', ?1, ?1, coalesce(?1, 0), ?1, ?1)", value)  # fmt: skip
        hermes.do("insert or ignore into compression_locks values (?1, coalesce(?1, 1), ?1, ?1)", value)
        hermes.do("insert or ignore into state_meta values (?, ?)", f"goal:{value!r}", value)
        hermes.do("insert or ignore into gateway_routing values ('', coalesce(?1, ''), coalesce(?1, ''), 1)", value)

    look(hermes.done())


@pytest.mark.parametrize("seed", range(24))
def test_a_damaged_file_gives_an_answer_or_a_clear_error_and_is_not_written_to(hermes: Hermes, seed: int) -> None:
    hermes.session("p")
    hermes.talk("p", 40)
    hermes.compact("p", into="c")
    path = hermes.done()
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
    assert [file.name for file in path.parent.iterdir()] == ["state.db"]
