"""The HTTP API: what it reads is what the journal says, what it does the library does, and every refusal says why."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import onefold
from onefold import Limits, Policy, Session, Store, Summary, SummaryInput, Usage, errors
from onefold.cli.app import app as cli
from onefold.model import Json, SessionState
from onefold.recall import Recall
from onefold.server import error_responses as answers
from onefold.server import snapshot
from onefold.server.events.store_observer import Observer
from onefold.server.routes import drafts
from onefold.server.routes.read import router
from onefold.server.security.tokens import Principal
from onefold.server.session_cache import SessionCache
from onefold.server.settings import Settings
from onefold.storage.base import Transaction
from onefold.summarizers import fallbacks
from onefold.summarizers.openai import OpenAISummarizer
from tests.conftest import StoppedClock, claimed, running
from tests.support.api_server import PATIENCE, served
from tests.support.helpers import await_record, converse, quick
from tests.support.server_api import client_of, got

EVERYTHING = {"history": "all", "order": "oldest", "limit": "1000"}


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with client_of(store) as client:
        yield client


@pytest.fixture
def address(tmp_path: Path) -> str:
    """The API is the same on every kind of store; it is tried on the kind that a server has."""
    return str(tmp_path / "agent.db")


def posted(client: TestClient, path: str, body: Json = None, *, status: int = 200, session: str = "s") -> Any:
    answer = client.post(path, params={"session": session}, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


class Answer(Protocol):
    """Of a client in this process, or of a real one."""

    @property
    def status_code(self) -> int: ...
    @property
    def text(self) -> str: ...
    def json(self) -> Any: ...


def refused(answer: Answer, status: int, kind: str) -> str:
    """That it was refused in this way; and why."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["kind"] == kind
    return str(error["message"])


# ---------------------------------------------------------------------- the list


def test_sessions_come_with_the_latest_activity_first_in_pages(
    client: TestClient, store: Store, clock: StoppedClock
) -> None:
    for name in "abcde":
        clock.advance(10)
        store.session(name).append({"role": "user", "content": f"what of {name}?"})

    first = got(client, "/api/sessions", limit=2)
    second = got(client, "/api/sessions", limit=2, after=first["next"])
    third = got(client, "/api/sessions", limit=2, after=second["next"])

    assert [[s["id"] for s in page["sessions"]] for page in (first, second, third)] == [["e", "d"], ["c", "b"], ["a"]]
    assert (first["total"], third["next"]) == (5, None)
    assert first["sessions"][0]["title"] == "what of e?"


def walked(client: TestClient, **asked: Any) -> Iterator[list[str]]:
    """The ids of all sessions, a page at a time."""
    page = got(client, "/api/sessions", order="id", **asked)
    while page["next"] is not None:
        yield [s["id"] for s in page["sessions"]]
        page = got(client, "/api/sessions", order="id", after=page["next"], **asked)
    yield [s["id"] for s in page["sessions"]]


def test_sessions_are_walked_over_by_id_whatever_is_written_meanwhile(
    client: TestClient, store: Store, clock: StoppedClock
) -> None:
    for name in "abcdef":
        clock.advance(10)
        store.session(name).append({"role": "user", "content": f"what of {name}?"})

    pages = []
    for page in walked(client, limit=2):
        pages.append(page)
        clock.advance(10)
        for name in "fedc"[len(pages) - 1 :]:  # from the back to the front: a list by activity would lose them
            store.session(name).append({"role": "user", "content": "and then?"})
        if len(pages) == 2:
            store.delete("e")

    assert pages == [["a", "b"], ["c", "d"], ["f"]]
    assert [*walked(client)] == [["a", "b", "c", "d", "f"]]


def test_a_walk_by_id_goes_with_no_filter_and_with_no_cursor_of_another_list(client: TestClient, store: Store) -> None:
    for name in "ab":
        store.session(name)
    by_activity = got(client, "/api/sessions", limit=1)["next"]

    for asked in ({"q": "a"}, {"problems": "first"}):
        assert "order=id" in refused(client.get("/api/sessions", params={"order": "id", **asked}), 422, "Invalid")
    refused(client.get("/api/sessions", params={"order": "id", "after": by_activity}), 422, "Invalid")
    refused(client.get("/debug/sessions", params={"after": by_activity}), 422, "Invalid")


def test_a_row_says_what_its_session_says(client: TestClient, store: Store, session: Session) -> None:
    session.compact()

    [row] = got(client, "/api/sessions")["sessions"]

    state = session.state
    same = ("id", "created_at", "last", "head", "cut", "messages", "tokens", "segments", "committed", "pending")
    assert {name: row[name] for name in same} == {name: getattr(state, name) for name in same}
    assert not any(row[name] for name in ("open", "active", "holder", "turn", "parent"))
    assert row["keeper"] == "onefold"
    assert row["limit"] is None  # nobody said what its model takes, and nobody guesses
    assert row["problems"] == []


def test_a_row_says_the_limits_that_its_session_goes_by(client: TestClient, store: Store, session: Session) -> None:
    session.go_by(onefold.Limits(1_000, 100, soft=0.01, hard=0.02), "a model")

    [row] = got(client, "/api/sessions")["sessions"]

    assert row["limit"] == {"window": 1_000, "soft": 9, "hard": 18}
    assert row["problems"] == [f"over the hard limit: {session.state.tokens:,} of 18 tokens"]
    assert got(client, "/api/curve", session="s")["limit"] == row["limit"]
    session.go_by(onefold.Limits(2_000, 100), "a model")
    [row] = got(client, "/api/sessions", problems="first")["sessions"]
    assert (row["limit"]["window"], row["problems"]) == (2_000, [])


def test_the_list_is_filtered_by_id_and_by_title(client: TestClient, store: Store) -> None:
    store.session("billing-7").append({"role": "user", "content": "Why was I charged twice?"})
    store.session("x").append({"role": "user", "content": "The BILLING page is slow"})
    store.session("y").append({"role": "user", "content": "something else"})

    found = got(client, "/api/sessions", q="billing")

    assert {s["id"] for s in found["sessions"]} == {"billing-7", "x"}
    assert (found["total"], found["complete"], found["next"]) == (2, True, None)
    assert got(client, "/api/sessions", q="nothing like it")["sessions"] == []


def test_those_with_problems_come_first_and_the_pages_fit_together(
    client: TestClient, store: Store, clock: StoppedClock
) -> None:
    for name in ("calm", "failing", "new", "newest"):
        clock.advance(10)
        converse(store.session(name), 4)
        if name == "failing":
            store.journal.request(name, trigger="threshold", attempts=1)
            store.journal.fail(claimed(store.journal, name), "no model answers", None)

    pages, after = [], None
    while True:
        page = got(client, "/api/sessions", problems="first", limit=1, **({"after": after} if after else {}))
        pages += page["sessions"]
        if (after := page["next"]) is None:
            break

    assert [s["id"] for s in pages] == ["failing", "newest", "new", "calm"]
    assert pages[0]["problems"] == ["compaction failed once"]


def test_problems_are_said_in_words(client: TestClient, store: Store, session: Session, clock: StoppedClock) -> None:
    running(store.journal)
    turn = session.turn(owner="gateway")
    clock.advance(3600)

    [row] = got(client, "/api/sessions")["sessions"]
    turn.end()

    assert row["problems"] == [
        "whoever compacts it is silent: worker, process 1 on here, main",
        "the writer of its turn is silent: gateway",
    ]
    assert row["active"] is False
    assert row["open"] is True


def test_a_session_over_the_hard_limit_is_a_problem(store: Store, session: Session) -> None:
    with client_of(store, Settings(policy=Policy(window=100))) as client:
        [row] = got(client, "/api/sessions")["sessions"]

    assert row["problems"] == [f"over the hard limit: {row['tokens']} of {row['limit']['hard']} tokens"]


def test_a_title_goes_with_the_message_it_comes_from(client: TestClient, store: Store) -> None:
    session = store.session("s")
    session.append({"role": "system", "content": "You help."})
    first = session.append({"role": "user", "content": "My number is 4711"}).numbers[0]
    session.append({"role": "assistant", "content": "Fine."})
    session.append({"role": "user", "content": "and now?"})
    assert got(client, "/api/sessions")["sessions"][0]["title"] == "My number is 4711"

    session.erase(first)

    assert got(client, "/api/sessions")["sessions"][0]["title"] == "and now?"
    assert "4711" not in client.get("/api/sessions", params={"q": "4711"}).text


def test_the_roster_learns_of_changes_and_of_what_is_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch, clock: StoppedClock
) -> None:
    session_cache = SessionCache(store.journal.backend)
    for name in "abc":
        clock.advance(10)
        store.session(name)
    assert [s.id for s in session_cache.states()] == ["c", "b", "a"]

    monkeypatch.setattr("onefold.server.session_cache._PAGE", 1)
    for name in "ba":
        clock.advance(10)
        store.session(name).append({"role": "user", "content": "hello"})
    assert [(s.id, s.messages) for s in session_cache.states()] == [("a", 1), ("b", 1), ("c", 0)]

    store.delete("b")
    monkeypatch.setattr("onefold.server.session_cache._ANEW", -1.0)
    assert [s.id for s in session_cache.states()] == ["a", "c"]


@pytest.mark.parametrize(
    "query", [{"q": "gone"}, {"q": "find"}, {"problems": "first"}, {"q": "o", "problems": "first"}]
)
def test_a_session_that_was_deleted_elsewhere_is_in_no_list_and_no_total(store: Store, query: dict[str, str]) -> None:
    for name in ("gone", "there, too"):
        store.session(name).append({"role": "user", "content": "Find out why."})
        store.journal.request(name)
    client = client_of(store)  # nothing observes the store: what was deleted is met while the list is made
    assert got(client, "/api/sessions", order="id", limit=1)["total"] == 2

    store.delete("gone")

    found = got(client, "/api/sessions", **query)
    there = [] if query.get("q") == "gone" else ["there, too"]
    assert ([row["id"] for row in found["sessions"]], found["total"]) == (there, len(there))
    assert got(client, "/api/sessions", **query)["total"] == len(there)


def test_what_the_store_is_observed_to_have_lost_is_not_counted(store: Store) -> None:
    with client_of(store) as client:
        for name in "abc":
            store.session(name)
        assert got(client, "/api/sessions")["total"] == 3
        observer = client.app.state.app_state.hub.observer  # type: ignore[attr-defined]

        observer.deleted("b")

        assert got(client, "/api/sessions")["total"] == 2


def test_a_deletion_right_after_all_sessions_were_looked_at_is_found_by_the_next_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.server.events.store_observer.FEW", 1)  # as if there were many sessions
    observer, gone = Observer(store), list[str]()
    observer.deleted = gone.append
    for name in "ab":
        store.session(name)
    observer.begin()
    assert (observer.look(100.0), observer.partial) == ([], False)

    store.delete("a")

    assert (observer.look(101.0), observer.partial) == ([], True)
    observer.look(102.5)
    assert (gone, observer.partial) == (["a"], False)


# ---------------------------------------------------------------------- what is sent, and who would write


def test_what_is_sent_is_told_by_numbers_with_texts_for_what_no_record_holds(
    client: TestClient, session: Session
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    session.append({"role": "user", "content": "Look."})
    session.append({"role": "assistant", "content": None, "tool_calls": [call]}, format="openai-chat")
    session.append({"role": "user", "content": "Never mind."})
    session.note("rule", "Do not look.")
    context = session.context()

    seen = got(client, "/api/sent", session="s")

    assert seen["numbers"] == list(context.numbers)
    assert (seen["segment"], seen["last"], seen["tokens"]) == (context.segment, context.last, context.tokens)
    made = {at: one["kind"] for one in seen["others"] if (at := one["at"]) is not None}
    assert made == {at: "no result" for at, number in enumerate(context.numbers) if number == 0}
    assert made
    assert all(one["text"] and one["role"] == "tool" for one in seen["others"])


def test_a_masked_result_is_told_as_the_line_that_is_sent(client: TestClient, session: Session) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    session.append({"role": "user", "content": "Look."})
    session.append({"role": "assistant", "content": None, "tool_calls": [call]}, format="openai-chat")
    result = session.append(
        {"role": "tool", "tool_call_id": "c1", "content": "very long " * 500}, format="openai-chat"
    ).numbers[0]
    session.append({"role": "assistant", "content": "I looked."})
    posted(client, "/api/mask", {"head": session.head, "numbers": [result]})

    (masked,) = got(client, "/api/sent", session="s")["others"]

    assert (masked["kind"], masked["number"], masked["role"]) == ("masked", result, "tool")
    assert str(result) in masked["text"]
    assert len(masked["text"]) < 300


class Priced(OpenAISummarizer):
    def __post_init__(self) -> None:
        """Without the SDK: it is asked nothing here."""


def test_who_would_write_a_summary_is_told_with_what_it_costs_and_can_be_chosen(store: Store, session: Session) -> None:
    converse(session, 30)
    settings = Settings(
        summarizer=fallbacks(Priced("large-1", price=(2.0, 10.0)), onefold.extractive_summary),
        summarizers={"plain": onefold.extractive_summary, "own": lambda material: "By a function."},
        policy=quick(),
    )
    with client_of(store, settings) as client:
        told = got(client, "/api/summarizers", session="s")
        usual, plain, own = told["summarizers"]

        assert told["needless"] is None
        assert [(one["name"], one["by"], one["asks_model"]) for one in told["summarizers"]] == [
            (None, "large-1", True), ("plain", "extract", False), ("own", "<lambda>", None),
        ]  # fmt: skip
        assert usual["instead"] == ["extract"]
        assert usual["input_tokens"] > session.state.tokens / 2
        assert usual["cost"] == (usual["input_tokens"] * 2 + usual["output_tokens"] * 10) / 1e6
        assert (plain["input_tokens"], plain["cost"], own["cost"]) == (0, None, None)
        posted(client, "/api/compact", {"summarizer": "nobody"}, status=404)
        assert posted(client, "/api/compact", {"summarizer": "own", "wait": 20})["state"] == "committed"
        assert session.context().summary == "By a function."
        assert "cut" in str(got(client, "/api/summarizers", session="s")["needless"])


# ---------------------------------------------------------------------- attach


def test_after_a_reconnect_a_client_knows_whose_turn_runs_and_what_waits_f74(
    client: TestClient, store: Store, session: Session, clock: StoppedClock
) -> None:
    turn = session.turn(owner="gateway")
    waiting = session.queue_input({"role": "user", "content": "one more thing"})
    store.journal.request("s")
    clock.advance(5)
    claimed(store.journal)

    seen = got(client, "/api/attach", session="s", history="none")

    assert (seen["turn"]["owner"], seen["turn"]["number"], seen["turn"]["silent"]) == ("gateway", turn.number, False)
    assert [(r["number"], r["text"]) for r in seen["queue"]] == [(waiting, "one more thing")]
    compaction = seen["compaction"]
    assert (compaction["active"], compaction["holder"]["agent"], compaction["age"]) == (True, "worker", 5)
    assert compaction["open"]["state"] == "running"
    assert seen["questions"] == []
    assert seen["clients"] == []
    assert seen["records"] == []
    assert seen["follow_from"] == session.state.last
    turn.end()


def test_attach_says_how_the_last_compaction_went(client: TestClient, session: Session, clock: StoppedClock) -> None:
    clock.advance(60)
    session.compact()

    seen = got(client, "/api/attach", session="s")

    done = seen["compaction"]
    assert (done["active"], done["holder"], done["age"], done["open"]) == (False, None, None, None)
    assert (done["count"], done["last_source"]) == (1, "compaction")
    assert done["last_started"] == done["last_completed"] == clock.now
    assert seen["head"]["number"] == seen["session"]["head"] == session.head
    assert [s["number"] for s in seen["segments"]] == [s.number for s in session.segments()]
    assert seen["counters"]["records"] == session.state.last


def test_a_client_may_ask_for_the_segment_in_force_or_all_from_either_end(client: TestClient, session: Session) -> None:
    session.compact()
    converse(session, 3, start=7)
    cut, last = session.state.cut, session.state.last

    def numbers(**asked: Json) -> tuple[list[int], int | None]:
        seen = got(client, "/api/attach", session="s", **asked)
        return [r["number"] for r in seen["records"]], seen["cursor"]

    assert numbers(history="segment", order="oldest") == ([*range(cut, last + 1)], None)
    assert numbers(history="segment", order="newest") == ([*range(last, cut - 1, -1)], None)
    assert numbers(history="all", order="oldest", limit=3) == ([1, 2, 3], 4)
    assert numbers(history="all", order="newest", limit=3) == ([last, last - 1, last - 2], last - 2)
    assert numbers(history="none") == ([], None)


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_pages_from_a_cursor_give_every_record_once(client: TestClient, session: Session, order: str) -> None:
    converse(session, 30, start=7)
    last = session.state.last

    seen = got(client, "/api/attach", session="s", history="all", order=order, limit=7)
    found, cursor = [r["number"] for r in seen["records"]], seen["cursor"]
    while cursor is not None:
        place = {"start" if order == "oldest" else "stop": cursor}
        page = got(client, "/api/records", session="s", order=order, limit=7, **place)
        found += [r["number"] for r in page["records"]]
        cursor = page["next"]

    assert found == ([*range(1, last + 1)] if order == "oldest" else [*range(last, 0, -1)])


def test_what_is_written_while_somebody_attaches_is_followed_and_not_attached_f74(
    client: TestClient, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = snapshot.known

    def written_after_the_look(tx: Transaction, any_id: str) -> SessionState:
        state = looked(tx, any_id)
        session.append({"role": "user", "content": "at the worst moment"})
        return state

    monkeypatch.setattr(snapshot, "known", written_after_the_look)
    seen = got(client, "/api/attach", session="s", **EVERYTHING)

    assert [r["number"] for r in seen["records"]] == [*range(1, seen["follow_from"] + 1)]
    assert seen["counters"]["records"] == seen["session"]["last"] == seen["follow_from"] == 7
    assert next(session.follow(seen["follow_from"], idle=PATIENCE)).number == 8


def test_what_is_attached_and_what_is_followed_is_every_record_once_while_others_write_f74(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "agent.db") as store, client_of(store) as client:
        session = store.session("s")
        enough = threading.Event()
        allowed = threading.Semaphore(20)  # so many in all that one page holds them

        def write() -> None:
            while allowed.acquire() and not enough.is_set():
                session.append({"role": "user", "content": "one more"})

        writer = threading.Thread(target=write)
        writer.start()
        try:
            await_record(session, "message", times=20)
            for _ in range(10):
                allowed.release(60)
                seen = got(client, "/api/attach", session="s", **EVERYTHING)
                allowed.release(5)
                attached = [r["number"] for r in seen["records"]]
                following = session.follow(seen["follow_from"], idle=PATIENCE)
                followed = [next(following).number for _ in range(5)]

                assert [*attached, *followed] == [*range(1, seen["follow_from"] + 6)]
                assert seen["counters"]["records"] == seen["session"]["last"] == seen["follow_from"]
                assert seen["counters"]["messages"] == seen["follow_from"] - 1
        finally:
            enough.set()
            allowed.release()
            writer.join(PATIENCE)


def test_another_client_sees_a_compaction_begin_and_end_without_a_reload_f70(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "agent.db", policy=quick()) as store:
        converse(store.session("s"), 8)
        with served(store, tmp_path) as (address, headers), httpx.Client(headers=headers, timeout=PATIENCE) as watcher:
            asked = {"session": "s"}
            after = watcher.get(f"{address}/api/attach", params=asked).json()["follow_from"]
            resumed = {"Last-Event-ID": str(after)}
            with watcher.stream("GET", f"{address}/api/events", params=asked, headers=resumed) as events:
                done = httpx.post(
                    f"{address}/api/compact", params=asked, json={"wait": 10}, headers=headers, timeout=PATIENCE
                )
                seen: list[Json] = []
                for line in events.iter_lines():
                    if line.startswith("data: {") and "kind" in (said := json.loads(line[6:])):
                        seen.append(said)
                        if said["kind"] == "segment.opened":
                            break

    assert done.json()["state"] == "committed"
    assert [s["number"] for s in seen] == [*range(after + 1, after + 5)]
    assert [s["kind"].removeprefix("compaction.") for s in seen] == [
        "requested", "started", "committed", "segment.opened",
    ]  # fmt: skip
    assert {s["session"] for s in seen} == {"s"}
    assert seen[0]["actor"] == "tester"


def test_a_session_is_attached_to_by_any_id_it_has(client: TestClient, session: Session) -> None:
    session.alias("another name: a/b?c=1&d")

    seen = got(client, "/api/attach", session="another name: a/b?c=1&d")

    assert seen["session"]["id"] == "s"


def test_debug_lists_the_snapshot_of_every_session(client: TestClient, store: Store, session: Session) -> None:
    store.session("t")

    first = got(client, "/debug/sessions", limit=1)
    second = got(client, "/debug/sessions", limit=1, after=first["next"])

    both = [*first["sessions"], *second["sessions"]]
    assert {s["session"]["id"] for s in both} == {"s", "t"}
    assert all("compaction" in s and "turn" in s and "counters" in s for s in both)


# ---------------------------------------------------------------------- records, contexts, segments


def test_a_record_comes_out_as_it_went_in_whatever_it_holds(client: TestClient, store: Store) -> None:
    odd = {
        "role": "user",
        "content": "half \ud83d, \x00, <script>",
        "n": 12345678901234567890123,
        "deep": [[{"a": None}]],
    }
    store.session("s").append(odd)

    [record] = got(client, "/api/records", session="s", start=2)["records"]

    assert record["body"] == odd
    assert record["text"] == odd["content"]
    assert record["header"]["role"] == "user"
    assert "key" not in record
    assert got(client, "/api/context", session="s")["messages"] == [odd]


def test_a_page_of_large_records_ends_early(
    client: TestClient, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.server.snapshot._BYTES", 5_000)
    session.append([{"role": "user", "content": "x" * 2_000} for _ in range(6)])  # twice: as it is, and to read

    page = got(client, "/api/records", session="s", start=8)

    assert [r["number"] for r in page["records"]] == [8, 9]
    assert page["next"] == 10


def test_a_context_is_what_a_model_is_sent_in_any_format(client: TestClient, session: Session) -> None:
    session.compact()
    here = session.context()

    seen = got(client, "/api/context", session="s")
    older = got(client, "/api/context", session="s", segment=1)
    other = got(client, "/api/context", session="s", format="anthropic")

    assert seen["messages"] == here.messages
    assert (seen["tokens"], seen["numbers"], seen["segment"]) == (here.tokens, list(here.numbers), here.segment)
    assert seen["summary"] == here.summary
    assert len(older["messages"]) == 6
    assert other["messages"] == here.to("anthropic")
    assert "numbers" not in other


def test_a_segment_that_is_not_there_is_not_found(client: TestClient, session: Session) -> None:
    for path in ("/api/context", "/api/expand"):
        why = refused(client.get(path, params={"session": "s", "segment": 99}), 404, "NotFound")
        assert why == "session 's' has no segment 99; /api/segments lists them"


def test_a_summary_opens_to_the_messages_it_stands_for(client: TestClient, store: Store, session: Session) -> None:
    session.compact()
    cut = session.state.cut

    first = got(client, "/api/expand", session="s", limit=2)
    rest = got(client, "/api/expand", session="s", start=first["next"])

    found = [*first["records"], *rest["records"]]
    assert [r["number"] for r in found] == [*range(2, cut)]
    assert [r["body"] for r in found] == [r.body for r in Recall(store).expand("s")]
    assert got(client, "/api/expand", session="s", segment=1)["records"] == []


def test_compactions_come_open_ones_first_and_say_what_they_cost(
    client: TestClient, store: Store, session: Session, clock: StoppedClock
) -> None:
    clock.advance(1)
    session.compact(instructions="keep the names")
    converse(session, 4, start=7)
    store.journal.request("s", trigger="threshold", attempts=1)
    store.journal.fail(claimed(store.journal), "no model answers", None)
    clock.advance(1)
    running(store.journal)
    clock.advance(7)

    every = got(client, "/api/compactions")["compactions"]
    [failed] = got(client, "/api/compactions", state="failed", session="s")["compactions"]
    [still_open] = got(client, "/api/compactions", state="open")["compactions"]

    assert [c["state"] for c in every] == ["running", "failed", "committed"]
    assert (failed["cause"], failed["duration"], failed["active"]) == ("no model answers", 0, False)
    assert (still_open["age"], still_open["active"], still_open["holder"]["pid"]) == (7, True, 1)
    assert (every[2]["instructions"], every[2]["spent"]["calls"]) == ("keep the names", 0)
    assert got(client, "/api/compactions", limit=1)["compactions"] == every[:1]


def test_the_ledger_has_what_stands_in_every_context(client: TestClient, session: Session) -> None:
    session.note("rule", "Never push to main", "push")
    session.pin(3)

    seen = got(client, "/api/ledger", session="s")

    assert [(n["kind"], n["text"], n["key"]) for n in seen["notes"]] == [("rule", "Never push to main", "push")]
    assert seen["pins"] == [3]
    assert seen["facts"] == []


@pytest.mark.parametrize("points", [2, 5, 1000])
def test_the_curve_is_exact_where_segments_begin_and_at_the_end(
    client: TestClient, session: Session, points: int
) -> None:
    for round in range(3):
        converse(session, 12, start=10 * round)
        session.note("rule", f"rule {round}")
        session.compact()
    converse(session, 9)
    session.undo()
    converse(session, 5)
    session.pin(3)

    seen = got(client, "/api/curve", session="s", points=points)

    size = {p["number"]: p["tokens"] for p in seen["points"]}
    numbers = [p["number"] for p in seen["points"]]
    assert numbers == sorted(numbers)
    for opened in session.segments():
        assert size[opened.number] == opened.tokens_after
        if opened.base is not None:
            assert size[opened.number - 1] == opened.tokens_before
    assert size[session.state.last] == session.state.tokens
    assert len(numbers) <= points + 2 * len(session.segments()) + 1
    assert [m["source"] for m in seen["marks"]] == [s.source for s in session.segments()]


def test_the_curve_of_a_fork_begins_with_its_parent(client: TestClient, session: Session) -> None:
    session.compact()
    fork = session.fork(id="f")
    converse(fork, 4)

    seen = got(client, "/api/curve", session="f", points=1000)

    assert seen["points"][0]["number"] == 1
    assert seen["points"][-1] == {
        "number": fork.state.last, "at": seen["points"][-1]["at"], "tokens": fork.state.tokens,
    }  # fmt: skip
    assert [m["source"] for m in seen["marks"]] == ["created", "compaction", "forked"]


def test_a_search_finds_what_was_compacted_away(client: TestClient, store: Store, session: Session) -> None:
    session.append({"role": "user", "content": "The password is in vault seven"})
    number = session.state.last
    converse(session, 12, start=8)
    session.compact()

    seen = got(client, "/api/search", q="vault", session="s")

    assert [(h["session"], h["number"], h["place"]) for h in seen["hits"]][:1] == [("s", number, "past")]
    assert got(client, "/api/search", q="nobody-ever-said-it")["hits"] == []


def test_an_export_is_what_the_command_line_writes(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with onefold.open(path, policy=quick()) as store:
        parent = store.session("parent")
        converse(parent, 6)
        parent.append({"role": "user", "content": "half \ud83d"})
        converse(parent.fork(id="fork"), 3)
        with client_of(store) as client:
            whole = client.get("/api/export", params={"session": "fork"})
            alone = client.get("/api/export", params={"session": "fork", "parents": "false"})
            missing = client.get("/api/export", params={"session": "nobody"})

    written = CliRunner().invoke(cli, ["export", "fork", "--store", str(path)]).stdout
    assert whole.text == written
    assert whole.headers["content-type"] == "application/x-ndjson"
    assert {json.loads(line)["session"] for line in alone.text.splitlines()} == {"fork"}
    refused(missing, 404, "SessionNotFound")


def test_verify_says_what_is_wrong_in_words_and_mends_it(tmp_path: Path) -> None:
    from verification.operations import damage

    path = tmp_path / "agent.db"
    with onefold.open(path) as store:
        converse(store.session("s"), 4)
    damage(path, "update sessions set tokens = 7")

    with onefold.open(path) as store, client_of(store) as client:
        found = got(client, "/api/verify")
        mended = posted(client, "/api/verify", {"fix": True})
        after = got(client, "/api/verify")

    assert (found["healthy"], found["left"]) == (False, 1)
    assert "session s, " in found["findings"][0]["words"]
    assert (mended["left"], mended["findings"][0]["mended"]) == (0, True)
    assert after["healthy"] is True


# ---------------------------------------------------------------------- actions


def test_an_append_with_a_key_is_written_once(client: TestClient, session: Session) -> None:
    said = {"messages": [{"role": "user", "content": "hello"}], "key": "k-1", "actor": "gateway"}

    first = posted(client, "/api/append", said)
    again = posted(client, "/api/append", said)

    assert first == {"numbers": [8], "duplicate": False, "hidden": []}
    assert again == {"numbers": [8], "duplicate": True, "hidden": []}
    [record] = session.read(8)
    assert (record.actor, record.key) == ("gateway (server)", "k-1")
    other = {**said, "messages": {"role": "user", "content": "something else"}}
    answer = client.post("/api/append", params={"session": "s"}, json=other)
    assert "was used for other content at record 8" in refused(answer, 409, "KeyConflict")


@pytest.mark.parametrize("queue", [False, True])
def test_a_repeated_append_says_what_was_undone_since(client: TestClient, session: Session, queue: bool) -> None:
    said = {"messages": {"role": "user", "content": "hello"}, "key": "k-1", "queue": queue}
    first = posted(client, "/api/append", said)
    session.take_input()
    session.context()

    session.undo()

    assert posted(client, "/api/append", said) == {**first, "duplicate": True, "hidden": first["numbers"]}


def test_an_append_may_be_the_system_prompt_from_here_on(client: TestClient, session: Session) -> None:
    said = {"messages": {"role": "system", "content": "You are new."}, "slot": "prompt"}

    assert posted(client, "/api/append", said)["numbers"] == [8]

    assert [r.body.get("slot") for r in session.read(9)] == ["prompt"]
    for wrong in ({**said, "queue": True}, {**said, "messages": {"role": "user", "content": "hello"}}):
        answer = client.post("/api/append", params={"session": "s"}, json=wrong)
        assert "system prompt" in refused(answer, 400, "InvalidMessage")


def test_an_append_may_wait_for_the_next_turn(client: TestClient, session: Session) -> None:
    seen = posted(client, "/api/append", {"messages": {"role": "user", "content": "later"}, "queue": True})

    assert seen["numbers"] == [8]
    assert session.state.pending == 1
    assert session.state.messages == 6


def test_notes_and_pins_say_whose_they_are(client: TestClient, session: Session) -> None:
    noted = posted(client, "/api/note", {"kind": "rule", "text": "be brief", "key": "style"})
    pinned = posted(client, "/api/pin", {"number": 3, "actor": "ada"})
    let_go = posted(client, "/api/unpin", {"number": 3})
    posted(client, "/api/note", {"kind": "rule", "text": "", "key": "style"})

    assert noted == {"number": 8}
    assert pinned == let_go == {"numbers": [3]}
    assert [(r.kind, r.actor) for r in session.read(8)] == [
        ("note", "server"), ("pin.added", "ada (server)"), ("pin.removed", "server"), ("note", "server"),
    ]  # fmt: skip
    answer = client.post("/api/pin", params={"session": "s"}, json={"number": 1})
    assert "only messages are pinned" in refused(answer, 409, "Refused")


def test_an_undo_takes_back_what_the_client_has_seen(client: TestClient, session: Session) -> None:
    saw = got(client, "/api/attach", session="s")
    what = {"seen": saw["follow_from"], "head": saw["head"]["number"]}

    rehearsed = posted(client, "/api/undo", {**what, "dry_run": True})
    assert session.head == 1
    done = posted(client, "/api/undo", what)

    assert [r["number"] for r in rehearsed["changed"]] == [r["number"] for r in done["changed"]] == [6, 7]
    assert (done["dry_run"], done["segment"]["source"]) == (False, "restored")
    assert len(session.context().messages) == 4
    back = posted(client, "/api/redo", {"seen": session.state.last, "head": session.head})
    assert [r["number"] for r in back["changed"]] == [6, 7]
    assert len(session.context().messages) == 6
    posted(client, "/api/undo", {"seen": session.state.last, "head": session.head, "to": 2})
    assert len(session.context().messages) == 1


def test_a_compaction_is_unfolded_and_what_that_costs_is_told_before(client: TestClient, session: Session) -> None:
    before = session.context()
    session.compact(lambda material: "short")
    small = session.state.tokens
    head = session.head

    would = posted(client, "/api/unfold", {"head": head, "segment": head, "dry_run": True})
    assert session.head == head
    done = posted(client, "/api/unfold", {"head": head, "segment": head})

    assert (would["segment"]["tokens_before"], would["segment"]["tokens_after"]) == (small, before.tokens)
    assert (would["dry_run"], done["dry_run"], done["segment"]["unfolds"], done["limit"]) == (True, False, [head], None)
    assert session.context().messages == before.messages
    moved = client.post("/api/unfold", params={"session": "s"}, json={"head": head, "segment": head})
    refused(moved, 409, "Moved")
    nothing = client.post("/api/unfold", params={"session": "s"}, json={"head": session.head, "segment": head})
    assert "no compaction is in force" in refused(nothing, 409, "Refused")
    session.append({"role": "user", "content": "and then?"})
    back = posted(client, "/api/refold", {"head": session.head})
    assert (back["segment"]["summary"], back["segment"]["unfolds"]) == (head, [])
    assert session.context().summary == "short"
    session.go_by(Limits(session.state.tokens + 20, 10))
    large = client.post("/api/unfold", params={"session": "s"}, json={"head": session.head})
    assert "over the" in refused(large, 413, "TooLarge")


def test_tool_results_are_masked_and_what_that_saves_is_told_before(client: TestClient, session: Session) -> None:
    for n in range(12):
        calls = [{"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
        session.append({"role": "assistant", "content": None, "tool_calls": calls})
        session.append({"role": "tool", "tool_call_id": f"c{n}", "content": "word " * 300})
    head = session.head

    would = posted(client, "/api/mask", {"head": head, "dry_run": True})
    assert session.head == head
    done = posted(client, "/api/mask", {"head": head})

    assert len(done["segment"]["masked"]) == 2
    assert would["segment"]["tokens_after"] == done["segment"]["tokens_after"] < done["segment"]["tokens_before"]
    assert got(client, "/api/context", session="s")["masked"] == done["segment"]["masked"]
    refused(client.post("/api/mask", params={"session": "s"}, json={"head": head}), 409, "Moved")
    some = [r.number for r in session.read() if r.header is not None and r.header.result_ids][-1]
    assert some in posted(client, "/api/mask", {"head": session.head, "numbers": [some]})["segment"]["masked"]


def test_what_is_for_the_provider_that_made_it_alone_is_said(client: TestClient, session: Session) -> None:
    sent = session.context()
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABo"}
    (number,) = session.append(item, format="openai-responses").numbers
    assert got(client, "/api/attach", session="s", history="none")["provided"] == []
    session.adopt(number, origin=onefold.Origin("openai"), covers=sent)

    seen = got(client, "/api/attach", session="s", history="none")

    assert (seen["provided"], seen["head"]["hidden"]) == ([number], [[number, number]])
    assert number not in got(client, "/api/context", session="s")["numbers"]
    session.undo()
    assert got(client, "/api/attach", session="s", history="none")["provided"] == [], "that one was taken back"


def test_a_summary_is_drafted_compared_and_taken(store: Store, session: Session) -> None:
    def writes(material: SummaryInput) -> Summary:
        return Summary(f"Again: src/b.py. {material.instructions}", by="a model", spent=Usage(1, 900, 40))

    session.compact(lambda material: "At first: src/a.py.")
    head = session.head
    with client_of(store, Settings(summarizer=writes)) as client:
        draft = posted(client, "/api/drafts", {"head": head, "instructions": "Be brief."})
        assert (session.head, session.context().summary) == (head, "At first: src/a.py.")
        nobody = client.post("/api/drafts/take", params={"session": "s"}, json={"draft": "no such"})
        converse(store.session("other"), 2)
        elsewhere = client.post("/api/drafts/take", params={"session": "other"}, json={"draft": draft["draft"]})
        taken = posted(client, "/api/drafts/take", {"draft": draft["draft"]})
        again = posted(client, "/api/drafts/take", {"draft": draft["draft"]})
        late = client.post("/api/drafts", params={"session": "s"}, json={"head": head})
        second = posted(client, "/api/drafts", {"head": session.head})
        session.append({"role": "user", "content": "and then?"})
        session.undo()
        moved = client.post("/api/drafts/take", params={"session": "s"}, json={"draft": second["draft"]})

    assert (draft["text"], draft["present"]) == ("Again: src/b.py. Be brief.", "At first: src/a.py.")
    assert (draft["gains"], draft["loses"], draft["by"]) == (["src/b.py"], ["src/a.py"], "a model")
    assert draft["spent"] == {"calls": 1, "input_tokens": 900, "output_tokens": 40, "cost": None}
    for answer in (nobody, elsewhere):
        assert "no such draft here" in refused(answer, 409, "Refused")
    assert taken == again
    assert taken["segment"]["base"] == head
    refused(late, 409, "Moved")
    assert "Make another draft" in refused(moved, 409, "Moved")
    assert [r.body["spent"]["calls"] for r in session.read() if r.kind == "summary.drafted"] == [1, 1]


def test_who_may_not_read_is_told_nothing_of_a_draft_and_too_many_are_refused(store: Store, session: Session) -> None:
    began, goes_on = threading.Semaphore(0), threading.Event()

    def slow(material: SummaryInput) -> str:
        began.release()
        assert goes_on.wait(PATIENCE)
        return "Slowly: src/b.py."

    session.compact(lambda material: "At first: src/a.py.")
    body = {"head": session.head}
    with client_of(store, Settings(summarizer=slow)) as client, ThreadPoolExecutor(2) as pool:
        ask = partial(client.post, "/api/drafts", params={"session": "s"}, json=body)
        asked = [pool.submit(ask) for _ in range(2)]
        for _ in asked:
            assert began.acquire(timeout=PATIENCE)
        third = ask()
        goes_on.set()
        made = [one.result(PATIENCE) for one in asked]

    assert "2 drafts are being written" in refused(third, 503, "StoreUnavailable")
    assert [answer.status_code for answer in made] == [200, 200]
    kept = drafts._draft_json(
        "id", session.draft_summary(lambda material: "x y."), Principal("w", frozenset({"compact"}))
    )
    assert (kept["text"], kept["present"], kept["gains"], kept["loses"]) == (None, None, [], [])


def test_nobody_takes_back_what_they_have_not_seen(client: TestClient, session: Session) -> None:
    saw = got(client, "/api/attach", session="s")
    session.append({"role": "user", "content": "said meanwhile"})
    what = {"seen": saw["follow_from"], "head": saw["head"]["number"]}

    unseen = client.post("/api/undo", params={"session": "s"}, json=what)
    session.compact()
    moved = client.post("/api/undo", params={"session": "s"}, json={**what, "seen": session.state.last})
    unnamed = client.post("/api/undo", params={"session": "s"}, json={"head": session.head})

    assert "1 messages after record 7" in refused(unseen, 409, "Moved")
    refused(moved, 409, "Moved")
    assert "the field seen" in refused(unnamed, 422, "Invalid")
    assert session.segments()[-1].source == "compaction"


def test_a_fork_begins_where_it_is_asked_to(client: TestClient, session: Session, store: Store) -> None:
    made = posted(client, "/api/fork", {"kind": "review", "at": 4, "id": "a review"})
    now = posted(client, "/api/fork", {})

    assert made == {"id": "a review", "parent": "s", "at": 4, "kind": "review"}
    assert store.session("a review", create=False).state.parent == "s"
    assert now["at"] == 7
    answer = client.post("/api/compact", params={"session": "a review"}, json={})
    refused(answer, 409, "CompactionDisabled")


# ---------------------------------------------------------------------- compaction


class Waiting:
    """A summarizer that says when it is asked, and answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self, material: onefold.SummaryInput) -> str:
        self.calls += 1
        self.asked.set()
        assert self.go.wait(PATIENCE)
        return "what was said before, in short"


def test_a_compaction_goes_on_behind_the_answer_and_others_join_it(store: Store, session: Session) -> None:
    slow = Waiting()
    with client_of(store, Settings(summarizer=slow)) as client:
        first = posted(client, "/api/compact", {"instructions": "names"}, status=202)
        second = posted(client, "/api/compact", status=202)
        bounded = posted(client, "/api/compact", {"wait": 0.05}, status=202)
        threads = [t.name for t in threading.enumerate() if t.name.startswith("onefold-server-compact")]
        slow.go.set()
        await_record(session, "segment.opened", after=7)

        again = posted(client, "/api/compact", {"head": 1})

    assert {first["id"], second["id"], bounded["id"]} == {first["compaction"]["id"]}
    assert [first["joined"], second["joined"], bounded["joined"]] == [False, True, True]
    assert (first["state"], first["changed"], first["compaction"]["active"]) == ("running", False, True)
    assert (slow.calls, len(threads)) == (1, 1)
    assert session.context().summary == "what was said before, in short"
    assert (again["changed"], again["state"], again["segment"]) == (True, "committed", session.head)


def test_a_compaction_is_waited_for_if_asked(client: TestClient, session: Session) -> None:
    done = posted(client, "/api/compact", {"wait": 20})

    assert (done["state"], done["changed"], done["cause"]) == ("committed", True, None)
    assert done["compaction"]["duration"] is not None
    assert session.head == done["segment"]


def test_no_call_waits_longer_than_the_server_allows(store: Store, session: Session) -> None:
    slow = Waiting()
    with client_of(store, Settings(summarizer=slow, wait=0.05)) as client:
        seen = posted(client, "/api/compact", {"wait": 3600}, status=202)
        posted(client, "/api/cancel")
        slow.go.set()

    assert seen["state"] == "running"


def test_a_failed_attempt_is_tried_again_though_nobody_waits(store: Store, session: Session) -> None:
    answers = iter(["", "what was said before, in short"])
    with client_of(store, Settings(summarizer=lambda material: next(answers))) as client:
        client.post("/api/compact", params={"session": "s"})
        await_record(session, "compaction.failed", after=7)
        await_record(session, "segment.opened", after=7)

    assert session.compactions()[0].attempts == 2


def test_a_cancelled_compaction_changes_nothing(store: Store, session: Session) -> None:
    slow = Waiting()
    with client_of(store, Settings(summarizer=slow)) as client:
        posted(client, "/api/compact", status=202)
        assert slow.asked.wait(PATIENCE)
        ended = posted(client, "/api/cancel")
        nothing = posted(client, "/api/cancel")
        slow.go.set()

    assert ended["cancelled"]["state"] == "cancelled"
    assert nothing == {"cancelled": None}
    assert session.head == 1


def test_a_server_that_ends_hands_its_compactions_back(store: Store, session: Session) -> None:
    slow = Waiting()
    with client_of(store, Settings(summarizer=slow)) as client:
        posted(client, "/api/compact", status=202)
        assert slow.asked.wait(PATIENCE)

    assert session.compaction_holder() is None
    [left] = session.compactions()
    assert (left.state, left.cause) == ("requested", "the server ended")
    slow.go.set()
    assert session.compact(wait=True).state == "committed"


# ---------------------------------------------------------------------- refusals


def test_a_session_that_is_not_there_is_not_found_and_not_made(client: TestClient, store: Store) -> None:
    read = ("attach", "records", "context", "segments", "expand", "ledger", "curve")
    for name in read:
        refused(client.get(f"/api/{name}", params={"session": "nobody"}), 404, "SessionNotFound")
    for name, body in (("append", {"messages": {}}), ("compact", {}), ("fork", {}), ("pin", {"number": 1})):
        answer = client.post(f"/api/{name}", params={"session": "nobody"}, json=body)
        refused(answer, 404, "SessionNotFound")

    assert [*store.sessions()] == []


@pytest.mark.parametrize("id", ["a\x00b", "line\nbreak", "", "x" * 513, "\x7f"])
def test_an_id_that_cannot_be_one_is_refused_in_words(client: TestClient, id: str) -> None:
    why = refused(client.get("/api/attach", params={"session": id}), 422, "Invalid")

    assert why.startswith("the parameter session: ")


@pytest.mark.parametrize(
    ("path", "parameters", "names"),
    [
        ("/api/records", {"session": "s", "start": str(1 << 64)}, "start"),
        ("/api/records", {"session": "s", "start": "-1"}, "start"),
        ("/api/records", {"session": "s", "limit": "0"}, "limit"),
        ("/api/records", {"session": "s", "order": "sideways"}, "order"),
        ("/api/attach", {"session": "s", "history": "some"}, "history"),
        ("/api/context", {"session": "s", "segment": "one"}, "segment"),
        ("/api/context", {"session": "s", "format": "morse"}, "format"),
        ("/api/curve", {"session": "s", "points": "1000000"}, "points"),
        ("/api/search", {}, "q"),
        ("/api/attach", {}, "session"),
        ("/api/sessions", {"problems": "last"}, "problems"),
        ("/api/sessions", {"order": "size"}, "order"),
    ],
)
def test_a_bad_parameter_is_named(
    client: TestClient, session: Session, path: str, parameters: dict[str, str], names: str
) -> None:
    assert f"the parameter {names}: " in refused(client.get(path, params=parameters), 422, "Invalid")


def test_an_unknown_parameter_is_ignored_and_an_unknown_field_is_not(client: TestClient, session: Session) -> None:
    assert got(client, "/api/records", session="s", colour="green")["records"]

    answer = client.post("/api/compact", params={"session": "s"}, json={"instuctions": "names"})

    assert "the field instuctions: " in refused(answer, 422, "Invalid")
    assert session.state.compactions == 0


@pytest.mark.parametrize("after", ["no cursor", "W10", "WzFd", "eyJhIjoxfQ", "é"])
def test_a_cursor_of_somebody_else_is_refused(client: TestClient, after: str) -> None:
    for asked in ({}, {"q": "x"}, {"order": "id"}):
        refused(client.get("/api/sessions", params={"after": after, **asked}), 422, "Invalid")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"messages": ' + b"[" * 100_000, 400),
        (b'{"messages": ' + b"[" * 1_000 + b"]" * 1_000 + b"}", 400),
        (b'{"messages": NaN}', 400),
        (b'{"messages": {"role": "user", "content": 1e999}}', 400),
        (b'{"messages": ' + b"9" * 5_000 + b"}", 400),
        (b"\xff\xfe\xfd", 400),
        (b"{", 400),
        (b"", 422),
        (b"[]", 422),
        (b'{"messages": {}, "key": "\\ud800"}', 422),
        (b'{"messages": {}, "key": "a\\u0000"}', 422),
        (b'{"messages": {}, "format": "morse"}', 422),
        (b'{"messages": []}', 400),
        (b'{"messages": {"role": "tool"}, "format": "openai-chat"}', 400),
    ],
)
def test_a_bad_body_is_refused_and_nothing_is_written(
    client: TestClient, session: Session, body: bytes, status: int
) -> None:
    answer = client.post(
        "/api/append", params={"session": "s"}, content=body, headers={"Content-Type": "application/json"}
    )

    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]
    assert session.state.last == 7


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (errors.SessionNotFound("s"), 404, "SessionNotFound"),
        (errors.KeyConflict("x"), 409, "KeyConflict"),
        (errors.StaleHandle("x"), 409, "Moved"),
        (errors.TurnBusy("x"), 409, "Busy"),
        (errors.TurnLost("x"), 409, "TurnLost"),
        (errors.CompactionSuperseded("x", session="s", compaction="c"), 409, "Superseded"),
        (errors.CompactionDisabled("x"), 409, "CompactionDisabled"),
        (errors.InvalidMessage("x"), 400, "InvalidMessage"),
        (errors.MessageTooLarge("x"), 413, "TooLarge"),
        (errors.StoreUnavailable("x"), 503, "StoreUnavailable"),
        (errors.OutcomeUnknown("x"), 503, "OutcomeUnknown"),
        (errors.StoreDamaged("x"), 500, "StoreDamaged"),
        (errors.OnefoldError("there is nothing to undo"), 409, "Refused"),
    ],
)
def test_what_the_library_raises_has_one_answer(error: errors.OnefoldError, status: int, kind: str) -> None:
    answer = answers.refusal(error, now=0.0)

    assert answer.status_code == status
    assert json.loads(bytes(answer.body))["error"]["kind"] == kind


def test_what_is_held_back_says_for_how_long() -> None:
    answer = answers.refusal(errors.NotNow("not yet", session="s", retry_at=112.5), now=100.0)

    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "13")


def test_a_store_that_is_gone_is_said_to_be_and_no_failure_is_silent(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise errors.StoreUnavailable("the disk is full; nothing was read")

    def broken(*_: object) -> None:
        raise RuntimeError("secret words")

    with client_of(store) as client:
        monkeypatch.setattr("onefold.server.routes.read.attach", gone)
        away = client.get("/api/attach", params={"session": "s"})
        monkeypatch.setattr("onefold.server.routes.read.attach", broken)
        failed = client.get("/api/attach", params={"session": "s"})

    assert refused(away, 503, "StoreUnavailable") == "the disk is full; nothing was read"
    assert away.headers["Retry-After"] == "1"
    assert "written" not in away.json()["error"]["remedy"], "it was a read"
    assert "GET /api/attach failed" in refused(failed, 500, "RuntimeError")
    assert "secret words" not in failed.text


def test_one_verifies_at_a_time(client: TestClient, session: Session) -> None:
    from onefold.server.routes import read

    with read._verifying:
        answer = client.get("/api/verify")

    refused(answer, 429, "TryLater")
    assert int(answer.headers["Retry-After"]) >= 1


# ---------------------------------------------------------------------- what it says of itself


def test_a_path_that_is_not_there_and_a_method_it_does_not_have_are_said_to_be_so(client: TestClient) -> None:
    refused(client.get("/api/nothing"), 404, "NotFound")
    answer = client.put("/api/verify", json={})

    assert "GET, POST" in refused(answer, 405, "MethodNotAllowed")
    assert answer.headers["Allow"] == "GET, POST"


def test_openapi_tells_the_token_the_scopes_and_every_error(client: TestClient) -> None:
    described = got(client, "/openapi.json")

    assert described["security"] == [{"token": []}]
    assert described["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    assert described["paths"]["/healthz"]["get"]["security"] == []
    assert described["paths"]["/api/undo"]["post"]["x-scope"] == "write"
    for route in router.routes:
        responses = described["paths"][route.path]["get"]["responses"]  # type: ignore[attr-defined]
        assert {"200", "400", "401", "403", "404", "405", "409", "413", "422", "429", "500", "503"} <= {*responses}
        assert responses["422"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ErrorJson"}


def test_no_page_of_the_api_loads_anything_from_elsewhere(client: TestClient) -> None:
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        assert client.get(path).status_code == 404


def test_without_a_token_nothing_of_it_is_reached(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "agent.db") as store:
        store.session("s")
        with served(store, tmp_path) as (address, headers):
            without = httpx.get(f"{address}/api/sessions", timeout=PATIENCE)
            with_it = httpx.get(f"{address}/api/sessions", headers=headers, timeout=PATIENCE)

    refused(without, 401, "Unauthorized")
    assert with_it.json()["total"] == 1


def test_what_was_undone_does_not_make_a_context_too_large(store: Store) -> None:
    session = store.session("s")
    session.append({"role": "user", "content": "first"})
    session.append({"role": "user", "content": "x" * 5_000})
    with client_of(store, Settings(max_context=1_000)) as client:
        refused = client.get("/api/context", params={"session": "s"})
        session.undo()
        assert len(got(client, "/api/context", session="s")["messages"]) == 1
    assert (refused.status_code, refused.json()["error"]["kind"]) == (413, "TooLarge")


@pytest.mark.parametrize("how", ["pinned", "noted"])
def test_what_is_pinned_and_noted_counts_for_the_size_of_a_context(store: Store, how: str) -> None:
    session = store.session("s")
    session.append({"role": "user", "content": "x" * 5_000})
    if how == "pinned":
        session.pin(2)
    else:
        session.note("rule", "y" * 5_000)
    converse(session, 40)
    session.compact()
    small = Settings(max_context=9_000)
    with client_of(store, small) as client:
        assert len(got(client, "/api/context", session="s")["messages"]) > 1
    with client_of(store, Settings(max_context=4_000)) as client:
        message = refused(client.get("/api/context", params={"session": "s"}), 413, "TooLarge")

    assert "what is noted, pinned and kept from before record" in message
