"""Sessions of Hermes Agent brought into onefold: one session for each conversation, and the context that Hermes has."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import onefold
from onefold.foreign.hermes.message_checks import DuplicateFinder
from onefold.model import Json
from tests.support.hermes_store import EARLY, SUMMARY, TIMED, Hermes, ask
from tests.support.imports import context, import_from, one, records, said, summary


@pytest.fixture
def hermes(tmp_path: Path) -> Iterator[Hermes]:
    store = Hermes(tmp_path / "state.db")
    yield store
    store.connection.close()


@pytest.fixture
def store() -> Iterator[onefold.Store]:
    with onefold.open("memory:") as opened:
        yield opened


def again(path: Path) -> Hermes:
    """The store goes on."""
    more = Hermes.__new__(Hermes)
    more.path, more.connection = path, apsw.Connection(str(path))
    more.connection.execute("begin")
    more.at = float(ask(path, "select max(timestamp) from messages")[0][0])
    return more


def sent(path: Path, session: str) -> list[Json]:
    """What Hermes sends for a session that has its summary first."""
    rows = ask(
        path,
        "select role, content, tool_call_id, tool_calls from messages where session_id = ? and active = 1 order by id",
        session,
    )
    messages = []
    for role, content, result_of, calls in rows:
        message = {"role": role, "content": content}
        message |= {"tool_calls": json.loads(calls)} if calls else {}
        message |= {"tool_call_id": result_of} if result_of else {}
        messages.append(message)
    return [summary(m["content"]) if m["content"].startswith(SUMMARY) else m for m in messages]


@pytest.mark.parametrize("rotates", [False, True], ids=["in place", "by rotation"])
def test_a_conversation_with_ten_compactions_is_one_session_with_the_context_that_hermes_has(
    hermes: Hermes, store: onefold.Store, rotates: bool
) -> None:
    session = "s0"
    hermes.session(session)
    names = [session]
    for number in range(1, 12):
        hermes.talk(session, 8, f"matter {number}")
        if number < 11:
            new = f"s{number}" if rotates else None
            hermes.compact(session, keep=6, into=new)
            session = new or session
            names += [new] if new else []
    path = hermes.done()

    result = one(import_from(path, store))

    assert (result.session, result.new, result.boundaries, result.cause) == ("s0", 264, 10, None)
    assert context(store, "s0") == sent(path, session)
    assert [m["content"] for m in said(store, "s0") if m["role"] == "user"] == [
        f"tell me about matter {number} {turn}" for number in range(1, 12) for turn in range(8)
    ]
    assert {store.resolve(name) for name in names} == {"s0"}
    assert store.session("s0").aliases() == names[1:]


def test_random_conversations_have_the_context_that_hermes_has(tmp_path: Path) -> None:
    for seed in range(25):
        dice = random.Random(seed)
        hermes = Hermes(tmp_path / f"{seed}.db")
        session, turns = "s0", 0
        hermes.session(session)
        for number in range(1, dice.randint(2, 7)):
            turns += (talked := dice.randint(3, 9))
            hermes.talk(session, talked, f"matter {number}")
            new = f"s{number}" if dice.random() < 0.5 else None
            hermes.compact(session, keep=3 * dice.randint(0, 3), into=new)
            session = new or session
        hermes.say(session, "user", "and now?")
        path = hermes.done()
        with onefold.open("memory:") as store:
            result = one(import_from(path, store))
            assert result.new == 3 * turns + 1, seed
            assert context(store, session) == sent(path, session), seed


def test_messages_have_their_times_and_keep_all_that_hermes_has_of_them(hermes: Hermes, store: onefold.Store) -> None:
    hermes.do("alter table messages add column reasoning text")
    hermes.do("alter table messages add column observed integer default 0")
    hermes.session("s")
    hermes.say("s", "user", "\x00json:" + json.dumps([{"type": "text", "text": "look"}]), at=1_700_000_000.25)
    hermes.say("s", "assistant", "aha", at=1_700_000_001.5)
    hermes.do("update messages set reasoning = 'hm' where id = 2")
    path = hermes.done()

    import_from(path, store)

    first, second = [r for r in store.session("s").read() if r.kind == "message"]
    assert first.body == {"role": "user", "content": [{"type": "text", "text": "look"}]}
    assert second.body == {"role": "assistant", "content": "aha", "hermes": {"reasoning": "hm"}}
    assert (first.at, second.at, first.key) == (1_700_000_000.25, 1_700_000_001.5, "hermes:1")
    assert store.session("s").state.touched_at == 1_700_000_001.5


def test_text_that_is_no_utf_8_and_calls_that_are_no_json_are_taken_in(hermes: Hermes, store: onefold.Store) -> None:
    hermes.session("s")
    hermes.say("s", "user", "x")
    hermes.say("s", "assistant", "y")
    hermes.do("update messages set content = cast(x'41ff42' as text) where id = 1")
    hermes.do("update messages set tool_calls = '[{' where id = 2")
    hermes.say("s", "user", "z" * 3_000_000)
    path = hermes.done()

    result = one(import_from(path, store))

    first, second, third = (r.body for r in store.session("s").read() if r.kind == "message")
    assert result.new == 3
    assert first["content"].encode("utf-8", "surrogateescape") == b"A\xffB"
    assert second["hermes"] == {"tool_calls": "[{"}
    assert len(third["content"]) == 3_000_000


def test_a_second_run_writes_nothing_and_a_store_that_grew_brings_just_what_is_new(
    hermes: Hermes, store: onefold.Store
) -> None:
    hermes.session("s0")
    hermes.talk("s0", 6)
    hermes.compact("s0", into="s1")
    path = hermes.done()
    import_from(path, store)
    before = records(store)

    same = one(import_from(path, store))
    unchanged = records(store) == before
    more = again(path)
    more.talk("s1", 5, "news")
    more.compact("s1", into="s2")
    more.say("s2", "user", "go on")
    more.done()
    grown = one(import_from(path, store))

    assert (same.new, same.boundaries, same.messages) == (0, 0, 18)
    assert unchanged
    assert (grown.new, grown.boundaries, grown.aliases, grown.messages) == (16, 1, 1, 34)
    assert records(store)["s0"][: len(before["s0"])] == before["s0"]
    assert context(store, "s2") == sent(path, "s2")


def test_two_continuations_are_the_session_and_a_branch_of_it(hermes: Hermes, store: onefold.Store) -> None:
    hermes.session("p")
    hermes.talk("p", 4)
    hermes.compact("p", keep=3, into="a")
    hermes.session("b", "p")
    hermes.say("b", "user", f"{SUMMARY} of b")
    for role, content in (("assistant", "work in b"), ("user", "more of b")):
        hermes.say("b", role, content)
    hermes.say("a", "user", "a is newer")
    path = hermes.done()

    main, branch = import_from(path, store)

    assert (main.session, branch.session, branch.fork, branch.boundaries) == ("p", "b", "branch", 1)
    assert "goes on as 2 sessions" in main.remarks[0]
    assert context(store, "a") == sent(path, "a")
    assert context(store, "b") == sent(path, "b")
    assert store.resolve("a") == "p"
    assert store.session("b").state.parent == "p"


def test_the_line_that_was_taken_in_first_stays_the_session_when_another_is_newer(
    hermes: Hermes, store: onefold.Store
) -> None:
    hermes.session("p")
    hermes.talk("p", 4)
    hermes.compact("p", keep=3, into="a")
    path = hermes.done()
    import_from(path, store)
    more = again(path)
    more.session("b", "p")
    more.say("b", "user", f"{SUMMARY} of b")
    more.say("b", "user", "b is newer")
    more.done()

    main, branch = import_from(path, store)

    assert (main.new, main.cause, branch.session, branch.fork) == (0, None, "b", "branch")
    assert context(store, "b") == sent(path, "b")


def test_a_branch_shares_its_past_and_a_subagent_begins_with_nothing_in_view(
    hermes: Hermes, store: onefold.Store
) -> None:
    hermes.session("p")
    hermes.talk("p", 2, "past")
    shared = hermes.rows("p")
    hermes.session("branch", "p", marks={"_branched_from": "p"})
    for _, role, content, result_of, calls, at in shared:
        made = tuple(c["id"] for c in json.loads(calls)) if calls else ()
        hermes.say("branch", role, content, at=at, result_of=result_of, calls=made)
    hermes.say("branch", "user", "another way")
    hermes.session("helper", "p", marks={"_delegate_from": "p"})
    hermes.say("helper", "user", "count the files")
    hermes.talk("p", 1, "future")
    hermes.session("other", "p")
    hermes.say("other", "user", "a session after a reset")
    path = hermes.done()

    results = {r.session: r for r in import_from(path, store)}

    assert {name: (r.fork, r.new) for name, r in results.items()} == {
        "p": (None, 9), "branch": ("branch", 1), "helper": ("subagent", 1), "other": (None, 1),
    }  # fmt: skip
    for name in ("p", "branch", "helper", "other"):
        assert context(store, name) == sent(path, name)
    assert store.session("branch").state.forked_at == store.session("helper").state.forked_at == 7
    assert [r.new for r in import_from(path, store)] == [0, 0, 0, 0]


def test_a_branch_whose_parent_is_not_here_is_a_session_of_its_own_and_stays_one(
    hermes: Hermes, store: onefold.Store
) -> None:
    hermes.session("p")
    hermes.talk("p", 2, "past")
    hermes.session("branch", "p", marks={"_branched_from": "p"})
    for _, role, content, result_of, calls, at in hermes.rows("p"):
        made = tuple(c["id"] for c in json.loads(calls)) if calls else ()
        hermes.say("branch", role, content, at=at, result_of=result_of, calls=made)
    path = hermes.done()

    alone = one(import_from(path, store, ["branch"]))
    both = import_from(path, store)

    assert (alone.fork, alone.new) == (None, 6)
    assert "where in it is not known" in alone.remarks[0]
    assert [(r.new, r.cause) for r in both] == [(6, None), (0, None)]
    assert context(store, "branch") == sent(path, "branch")


def test_what_was_rewound_is_kept_and_not_in_view_also_when_it_happens_later(
    hermes: Hermes, store: onefold.Store
) -> None:
    hermes.session("s")
    hermes.talk("s", 3)
    path = hermes.done()
    import_from(path, store)
    more = again(path)
    more.do("update messages set active = 0 where id > 3")
    more.say("s", "user", "another question")
    more.done()

    result = one(import_from(path, store))

    assert (result.new, result.cause) == (1, None)
    assert context(store, "s") == sent(path, "s")
    assert len(said(store, "s")) == 10
    assert one(import_from(path, store)).new == 0
    with onefold.open("memory:") as other:
        import_from(path, other)
        assert context(other, "s") == sent(path, "s")


def test_a_message_that_a_summary_swallowed_is_in_view_again(hermes: Hermes, store: onefold.Store) -> None:
    hermes.session("s")
    hermes.talk("s", 6)
    hermes.say("s", "user", "this came too late")
    hermes.compact("s", after=1)
    path = hermes.done()

    import_from(path, store)

    assert context(store, "s") == [*sent(path, "s"), {"role": "user", "content": "this came too late"}]


def test_what_was_written_to_an_ended_session_stays_in_view(hermes: Hermes, store: onefold.Store) -> None:
    hermes.session("s0")
    hermes.talk("s0", 4)
    hermes.compact("s0", keep=0, into="s1")
    hermes.say("s1", "user", "on")
    hermes.say("s0", "user", "a late word")
    path = hermes.done()

    import_from(path, store)

    first, *rest = sent(path, "s1")
    assert context(store, "s1") == [{"role": "user", "content": "a late word"}, first, *rest]


@TIMED
@pytest.mark.parametrize("missing", [0, 1], ids=["to the last", "without the last"])
@pytest.mark.parametrize("messages", [20, 600])
def test_what_a_second_compaction_wrote_again_is_in_no_context(
    hermes: Hermes, store: onefold.Store, timed: bool, missing: int, messages: int
) -> None:
    path = raced(hermes, timed=timed, missing=missing, messages=messages).done()

    main, branch = import_from(path, store)

    assert context(store, "winner") == sent(path, "winner")
    assert context(store, "loser") == sent(path, "loser")
    forked_at = store.session("loser").state.forked_at
    (last,) = store.session("p").read(forked_at, forked_at + 1)
    assert last.body["content"] == f"m{messages - 1}"
    assert forked_at < messages + 10
    assert f"{messages - missing} messages a second time" in main.remarks[1]
    assert (main.new, branch.fork) == (2 * messages - missing + 1, "branch")
    before = records(store)
    assert [(r.new, r.cause) for r in import_from(path, store)] == [(0, None), (0, None)]
    assert records(store) == before


def test_a_late_word_beside_what_was_written_again_stays_in_view(hermes: Hermes, store: onefold.Store) -> None:
    raced(hermes)
    hermes.say("p", "user", "m3")
    hermes.say("p", "user", "a late word")
    path = hermes.done()

    import_from(path, store)

    late = [{"role": "user", "content": words} for words in ("m3", "a late word")]
    told, *carried, newest = sent(path, "winner")
    assert context(store, "winner") == [told, *carried, *late, newest]


def test_a_session_that_was_written_to_twice_and_continues_another_has_one_summary(
    hermes: Hermes, store: onefold.Store
) -> None:
    hermes.session("first")
    hermes.talk("first", 4, "past")
    hermes.compact("first", keep=3, into="p")
    hermes.chat("p", 20)
    known = hermes.rows("p")
    hermes.compact("p", keep=2, into="tip")
    hermes.write_again("p", known)
    hermes.say("tip", "user", "the newest")
    path = hermes.done()

    assert one(import_from(path, store)).boundaries == 2
    assert context(store, "tip") == sent(path, "tip")


@pytest.mark.parametrize("newest", [False, True])
def test_what_was_taken_in_while_copies_were_taken_for_late_words_goes_on(
    hermes: Hermes, store: onefold.Store, monkeypatch: pytest.MonkeyPatch, newest: bool
) -> None:
    path = raced(hermes, newest=newest).done()
    with monkeypatch.context() as before:
        before.setattr(DuplicateFinder, "found", lambda self: frozenset())
        import_from(path, store)
    stands = records(store)

    again_the_same = [(r.new, r.cause) for r in import_from(path, store)]
    unchanged = records(store) == stands
    more = again(path)
    more.say("winner", "user", "on it goes")
    more.done()

    assert again_the_same == [(0, None), (0, None)]
    assert unchanged
    assert [(r.new, r.cause) for r in import_from(path, store)] == [(1, None), (0, None)]


def raced(
    hermes: Hermes, *, timed: bool = False, missing: int = 0, messages: int = 20, newest: bool = True
) -> Hermes:  # fmt: skip
    """Two compactions of one session at once: the second wrote down what it knew, and made a session of its own."""
    hermes.session("p")
    hermes.chat("p", messages)
    known = hermes.rows("p")
    hermes.compact("p", keep=2, into="winner")
    hermes.write_again("p", known[: messages - missing], timed=timed)
    hermes.session("loser", "p")
    hermes.say("loser", "user", f"{SUMMARY} of the loser", at=hermes.at - 1000)
    if newest:
        hermes.say("winner", "user", "the newest")
    return hermes


def test_words_that_were_said_before_and_again_after_a_compaction_are_two_messages(
    hermes: Hermes, store: onefold.Store
) -> None:
    hermes.session("s0")
    for _ in range(3):
        hermes.say("s0", "user", "continue")
        hermes.say("s0", "assistant", "done")
    hermes.compact("s0", keep=0, into="s1")
    hermes.tick()
    for _ in range(2):
        hermes.say("s1", "user", "continue")
        hermes.say("s1", "assistant", "done")
    path = hermes.done()

    assert one(import_from(path, store)).new == 10
    assert context(store, "s1") == sent(path, "s1")


def test_messages_that_a_compaction_keeps_in_front_of_its_summary_are_kept_by_name(
    hermes: Hermes, store: onefold.Store
) -> None:
    hermes.session("s0")
    hermes.say("s0", "user", "the goal")
    hermes.say("s0", "assistant", "understood")
    hermes.talk("s0", 4)
    hermes.end("s0")
    hermes.session("s1", "s0")
    hermes.say("s1", "user", "the goal")
    hermes.say("s1", "assistant", "understood")
    hermes.say("s1", "user", f"{SUMMARY} of it")
    hermes.say("s1", "user", "next")
    path = hermes.done()

    result = one(import_from(path, store))

    goal, understood, told, following = sent(path, "s1")
    assert (result.new, result.boundaries) == (15, 1)
    assert context(store, "s1") == [goal, understood, told, following]  # nothing was behind them when it was told


def test_a_store_of_an_early_version_is_taken_in(tmp_path: Path, store: onefold.Store) -> None:
    path = tmp_path / "state.db"
    connection = apsw.Connection(str(path))
    connection.execute(EARLY)
    connection.execute("insert into sessions (id, source, started_at) values ('s', 'cli', 1.0)")
    connection.execute("insert into messages (session_id, role, content) values ('s', 'user', 'hi')")
    connection.close()

    result = one(import_from(path, store))

    assert (result.new, context(store, "s")) == (1, [{"role": "user", "content": "hi"}])


def test_a_line_of_parents_that_leads_back_to_itself_is_taken_in_from_the_oldest_on(
    hermes: Hermes, store: onefold.Store
) -> None:
    for name, parent in (("a", "b"), ("b", "a")):
        hermes.session(name, parent)
        hermes.say(name, "user", f"word of {name}")
        hermes.end(name)
    path = hermes.done()

    result = one(import_from(path, store))

    assert (result.session, result.new) == ("a", 2)
    assert store.resolve("b") == "a"
