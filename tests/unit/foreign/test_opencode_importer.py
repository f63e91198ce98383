"""Sessions of OpenCode brought into onefold: parts as chat messages, summaries as boundaries, subagents as forks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import onefold
from onefold.model import Json
from tests.support.hermes_store import ask
from tests.support.imports import context, import_from, one, records, said, summary
from tests.support.opencode_store import OpenCode

SUMMARY = "## Objective\n- all of it"


@pytest.fixture
def opencode(tmp_path: Path) -> Iterator[OpenCode]:
    store = OpenCode(tmp_path / "opencode.db")
    yield store
    store.connection.close()


@pytest.fixture
def store() -> Iterator[onefold.Store]:
    with onefold.open("memory:") as opened:
        yield opened


def again(path: Path) -> OpenCode:
    more = OpenCode.__new__(OpenCode)
    more.path, more.connection, more.logs = path, apsw.Connection(str(path)), True
    more.connection.execute("begin")
    more.at = int(ask(path, "select max(time_created) from message")[0][0])
    more.number = 5000
    return more


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


def tool(id: str, status: str = "completed", **state: Json) -> Json:
    return {
        "type": "tool",
        "tool": "bash",
        "callID": id,
        "state": {"status": status, "input": {"command": id}, **state},
    }


def call(*ids: str) -> list[Json]:
    given = {id: json.dumps({"command": id}, separators=(",", ":")) for id in ids}
    return [{"id": id, "type": "function", "function": {"name": "bash", "arguments": given[id]}} for id in ids]


def test_a_compaction_is_a_boundary_with_its_summary_and_no_message(opencode: OpenCode, store: onefold.Store) -> None:
    id = opencode.session("s")
    opencode.turn(id, "one")
    opencode.turn(id, "two")
    opencode.compact(id)
    opencode.turn(id, "three")
    path = opencode.done()

    result = one(import_from(path, store))

    assert (result.new, result.boundaries, result.left_out) == (6, 1, ())
    assert context(store, id) == [summary(SUMMARY), user("three"), assistant("an answer")]
    assert [m["content"] for m in said(store, id)] == ["one", "an answer", "two", "an answer", "three", "an answer"]


def test_the_tail_that_a_compaction_keeps_stays_also_if_the_next_one_keeps_the_same(
    opencode: OpenCode, store: onefold.Store
) -> None:
    id = opencode.session("s")
    opencode.turn(id, "one")
    kept = opencode.turn(id, "two")
    opencode.compact(id, tail_start_id=kept)
    once = [summary(SUMMARY), user("two"), assistant("an answer")]
    opencode.compact(id, auto=True, tail_start_id=kept)
    opencode.ask(id, "three")
    path = opencode.done()

    import_from(path, store)

    told, *kept_of_it = once  # nothing was behind them when it was told the second time
    assert context(store, id) == [*kept_of_it, told, user("three")]
    segments = store.session(id).segments()
    assert [m.get("content") for m in store.session(id).context(segments[1].number).messages[:3]] == [
        m["content"] for m in once
    ]
    assert [c.trigger for c in store.session(id).compactions()] == ["manual", "limit"]


def test_an_answer_with_tools_is_calls_and_results_and_keeps_everything(
    opencode: OpenCode, store: onefold.Store
) -> None:
    id = opencode.session("s")
    prompt = opencode.message(
        id, "user", {"type": "text", "text": "look"}, {"type": "text", "text": "hidden", "ignored": True},
        {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AA"},
        {"type": "file", "mime": "text/plain", "url": "file:///a"},
    )  # fmt: skip
    opencode.message(
        id, "assistant", {"type": "step-start"}, {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "running"},
        tool("a", output="done", title="A"), tool("b", "error", error="no such file"), tool("c", "running"),
        {"type": "text", "text": "that was it"}, parentID=prompt, finish="stop",
    )  # fmt: skip
    path = opencode.done()

    import_from(path, store)

    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    assert context(store, id) == [
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
        {"role": "assistant", "content": "running", "tool_calls": call("a", "b", "c")},
        {"role": "tool", "tool_call_id": "a", "content": "done"},
        {"role": "tool", "tool_call_id": "b", "content": "no such file"},
        {"role": "tool", "tool_call_id": "c", "content": "[Tool execution was interrupted]"},
        assistant("that was it"),
    ]
    kept = json.dumps([r.body for r in store.session(id).read() if r.kind == "message"])
    for word in ("hidden", "file:///a", "hm", "step-start", '"title": "A"', prompt):
        assert word in kept


def test_compactions_that_are_not_in_force_move_no_boundary_and_are_told(
    opencode: OpenCode, store: onefold.Store
) -> None:
    id = opencode.session("s")
    opencode.turn(id, "one")
    opencode.marker(id)
    failed = opencode.marker(id)
    opencode.summary(id, failed, error={"name": "APIError"}, finish=None)
    empty = opencode.marker(id)
    opencode.summary(id, empty, words="")
    lost = opencode.compact(id, tail_start_id="msg_gone")
    stray = opencode.ask(id, "a prompt")
    opencode.summary(id, stray, words="a stray summary")
    path = opencode.done()

    result = one(import_from(path, store))

    assert (result.boundaries, result.cause, result.lost) == (0, None, 0)
    assert context(store, id) == [user("one"), assistant("an answer"), user("a prompt"), assistant("a stray summary")]
    told = " ".join(result.left_out)
    for marker in (failed, lost, "says nothing", "msg_gone"):
        assert marker in told


def test_an_answer_under_way_waits_for_the_next_import_and_what_changes_around_a_message_is_no_change(
    opencode: OpenCode, store: onefold.Store
) -> None:
    id = opencode.session("s")
    prompt = opencode.ask(id, "one")
    answer = opencode.message(id, "assistant", {"type": "text", "text": "I am"}, completed=False, parentID=prompt)
    path = opencode.done()
    first = one(import_from(path, store))
    more = again(path)
    more.do("update part set data = json_set(data, '$.text', 'I am done') where message_id = ?", answer)
    more.do("update message set data = json_set(data, '$.finish', 'stop', '$.time.completed', 1) where id = ?", answer)
    more.do("update message set data = json_set(data, '$.summary', json('{\"diffs\": [1]}')) where id = ?", prompt)
    more.done()

    second = one(import_from(path, store))

    assert (first.new, second.new, second.cause) == (1, 1, None)
    assert "not finished" in first.left_out[0]
    assert context(store, id) == [user("one"), assistant("I am done")]


def test_a_summary_that_came_after_what_follows_it_was_taken_in_lands_all_the_same(
    opencode: OpenCode, store: onefold.Store
) -> None:
    id = opencode.session("s")
    opencode.turn(id, "one")
    marker = opencode.marker(id)
    opencode.summary(id, marker, finish=None)
    opencode.ask(id, "typed meanwhile")
    path = opencode.done()
    import_from(path, store)
    before = context(store, id)
    more = again(path)
    more.do("update message set data = json_set(data, '$.finish', 'stop') where json_extract(data, '$.summary') = 1")
    more.done()

    late = one(import_from(path, store))
    stands = records(store)
    import_from(path, store)

    assert [m["content"] for m in before] == ["one", "an answer", "typed meanwhile"]
    assert (late.new, late.boundaries) == (0, 1)
    assert context(store, id) == [summary(SUMMARY), user("typed meanwhile")]
    assert records(store) == stands


def test_a_message_that_says_something_else_now_is_refused_and_nothing_is_changed(
    opencode: OpenCode, store: onefold.Store
) -> None:
    id, other = opencode.session("s"), opencode.session("t")
    opencode.turn(id, "one")
    opencode.turn(other, "two")
    path = opencode.done()
    import_from(path, store)
    before = records(store)
    more = again(path)
    more.do("update part set data = json_set(data, '$.text', 'ONE') where data like '%one%'")
    more.turn(id, "three")
    more.turn(other, "four")
    more.done()

    changed, grown = import_from(path, store)

    assert "has other content there" in (changed.cause or "")
    assert records(store)[id] == before[id]
    assert (grown.new, grown.cause) == (2, None)


def test_a_session_that_went_on_here_takes_nothing_more_from_there(opencode: OpenCode, store: onefold.Store) -> None:
    id = opencode.session("s")
    opencode.turn(id, "one")
    path = opencode.done()
    import_from(path, store)
    store.session(id).append({"role": "user", "content": "said here"})
    quiet = one(import_from(path, store))
    more = again(path)
    more.turn(id, "said there")
    more.done()

    both = one(import_from(path, store))

    assert quiet.cause is None
    assert "went on here" in (both.cause or "")
    assert context(store, id)[-1] == user("said here")


def test_a_subagents_session_is_a_fork_at_the_call_that_began_it(opencode: OpenCode, store: onefold.Store) -> None:
    id = opencode.session("s")
    opencode.turn(id, "one")
    prompt = opencode.ask(id, "two")
    child, orphan = opencode.session("child"), opencode.session("orphan")
    opencode.message(
        id, "assistant", tool("a", output="ok", metadata={"sessionId": child}), parentID=prompt, finish="stop"
    )
    opencode.turn(id, "three")
    opencode.turn(child, "do it")
    opencode.turn(orphan, "who began this?")
    opencode.do("alter table session add column parent_id text")
    opencode.do("update session set parent_id = ? where id in (?, ?)", id, child, orphan)
    path = opencode.done()

    results = {r.session: r for r in import_from(path, store)}

    forked = store.session(child).state
    at = next(r for r in store.session(id).read(forked.forked_at))
    assert results[child].fork == "subagent"
    assert (forked.parent, at.body["content"]) == (id, "two")
    assert context(store, child) == [user("do it"), assistant("an answer")]
    assert (results[orphan].fork, store.session(orphan).state.parent) == (None, None)
    assert "not known" in results[orphan].remarks[0]
    assert [r.new for r in import_from(path, store)] == [0, 0, 0]


def test_what_was_reverted_is_not_in_view_and_may_be_gone_there_later(opencode: OpenCode, store: onefold.Store) -> None:
    id = opencode.session("s")
    opencode.turn(id, "one")
    second = opencode.turn(id, "two")
    opencode.do("alter table session add column revert text")
    opencode.do("update session set revert = ?", json.dumps({"messageID": second}))
    path = opencode.done()
    import_from(path, store)
    reverted = context(store, id)
    more = again(path)
    more.do("update session set revert = null")
    more.do("delete from part where message_id in (select id from message where id >= ?)", second)
    more.do("delete from message where id >= ?", second)
    more.turn(id, "three")
    more.done()

    result = one(import_from(path, store))

    assert reverted == [user("one"), assistant("an answer")]
    assert (result.new, result.cause) == (2, None)
    assert context(store, id) == [*reverted, user("three"), assistant("an answer")]
    assert one(import_from(path, store)).new == 0
