"""Questions in other words than the answer: other forms of a word, parts of names, what was said around a record, by
whom and when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from onefold import Session, Store
from onefold.journal.journal import Journal
from onefold.model import Json
from onefold.recall import Recall, RecallTools, search
from onefold.recall.dates import Span, spans
from onefold.recall.query import parse
from onefold.recall.searchable_text import told
from tests.conftest import StoppedClock, running
from tests.support.searches import find, user


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("The tests failed twice.", "failing test"),
        ("The parties agreed.", "party agreement"),
        ("Der Server hat die Rechnungen gespeichert.", "Rechnung speichern"),
        ("Las facturas llegaron.", "qué factura"),
        ("Les données sont vérifiées.", "vérifier la donnée"),
        ("Мы изменили соединение с базой.", "изменение соединений"),
        ("Faturaları dün değiştirdim.", "faturanın"),
        ("Tiedostoissa on virheitä.", "tiedosto"),
        ("أرسلت الفواتير والكتب", "فواتير"),
        ("שלחתי את החשבוניות", "חשבונית"),
        ("测试失败以后我修改了支付模块", "哪个支付测试失败了？"),
        ("データベースの接続が切れました", "接続はいつ切れた？"),
        ("लड़कियों ने फ़ाइलें भेजीं", "फ़ाइल"),
    ],
)
def test_a_record_is_found_by_other_forms_of_its_words(store: Store, said: str, asked: str) -> None:
    session = store.session("s")
    wanted = session.append([user(said), *(user(f"{n} zzz qqq") for n in range(20))]).numbers[0]

    assert find(store, asked)[:1] == [wanted]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("see retryCount there", "retry"),
        ("see retry_count there", "retryCount"),
        ("see retryCount there", "retry_count"),
        ("open src/payments/charge.py", "charge.py"),
        ("open charge.py", "payments/charge.py"),
        ("commit a3f9c21b77d0", "a3f9c21"),
        ("commit a3f9c21", "a3f9c21b77d0"),
        ("that is 12,500 rows", "12500"),
        ("that is 12500 rows", "12,500"),
        ("ask Anna about it", "Anna's"),
        ("l'erreur est là", "erreur"),
    ],
)
def test_a_name_is_found_whole_and_in_parts(store: Store, said: str, asked: str) -> None:
    session = store.session("s")
    wanted = session.append([user(said), *(user(f"{n} zzz qqq") for n in range(20))]).numbers[0]

    assert find(store, asked) == [wanted]


def test_what_has_all_of_the_words_comes_first_then_most_then_some(store: Store) -> None:
    session = store.session("s")
    numbers: list[int] = []
    for text in ("apple", "apple pear plum", "apple pear"):
        numbers += session.append(user(text)).numbers
        session.append([user(f"filler {n}") for n in range(9)])

    found = [hit for hit in Recall(store).search("apple pear plum") if not hit.nearby]

    assert [hit.number for hit in found] == [numbers[1], numbers[2], numbers[0]]
    assert [hit.partial for hit in found] == [False, True, True]


def test_common_words_weigh_nothing_by_themselves_unless_there_are_no_others(store: Store) -> None:
    session = store.session("s")
    what, port = session.append([user("what did you do with the it of the"), user("the port")]).numbers

    assert find(store, "what is the port")[0] == port
    assert find(store, "what did you")[0] == what


def test_an_answer_without_any_of_the_words_is_found_by_the_question_before_it(store: Store) -> None:
    session = store.session("s")
    asked, answer = session.append([user("Which region should the invoices run in?"), user("Frankfurt.")]).numbers
    session.append([user(f"filler {n}") for n in range(10)])

    question, found = Recall(store).search("what region did we pick for the invoices", limit=2)

    assert (question.number, question.nearby) == (asked, False)
    assert (found.number, found.nearby, found.partial, found.marks) == (answer, True, True, ())
    assert [(one.number, one.role) for one in found.around] == [(asked, "user"), (answer + 1, "user")]


def test_a_name_alone_finds_only_what_has_it(store: Store) -> None:
    session = store.session("s")
    session.append([user("Which region?"), user("Frankfurt."), user("Fine.")])

    assert len(find(store, "Frankfurt")) == 1
    assert len(find(store, '"Frankfurt"')) == 1


@pytest.mark.parametrize("index", [True, False])
def test_what_stood_beside_something_erased_is_not_found_by_its_words(
    store: Store, session: Session, index: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, _ = session.append([user("The swordfish opens which door?"), user("The third.")]).numbers
    recall = Recall(store, index=index)
    assert len(recall.search("which door does the swordfish open", limit=2)) == 2

    session.erase(secret)
    monkeypatch.setattr("onefold.recall.search_engine.catch_up", lambda *_, **__: 7)  # the index still has its words

    assert recall.search("which door does the swordfish open").hits == ()


def test_who_said_it_counts(store: Store) -> None:
    session = store.session("s")
    session.append([user("The invoices look odd.") | {"name": name} for name in ("Nora", "Tarik", "Ines")])

    assert find(store, "what did Tarik say about the invoices")[0] == 3


def test_when_it_was_said_counts(store: Store, clock: StoppedClock) -> None:
    session = store.session("s")
    numbers: dict[int, int] = {}
    for month in range(1, 7):
        clock.advance(datetime(2030, month, 15, tzinfo=UTC).timestamp() - clock())
        numbers[month] = session.append(user("The invoices look odd.")).numbers[0]
        session.append([user(f"filler {n}") for n in range(8)])

    assert find(store, "what about the invoices in March 2030")[0] == numbers[3]
    assert find(store, "what about the invoices on 2030-04-15")[0] == numbers[4]
    assert find(store, "invoices im Februar")[0] == numbers[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on 8 May 2026", [Span(2026, 5, 8)]),
        ("May 8th, or 2026-05-09", [Span(2026, 5, 9), Span(None, 5, 8)]),
        ("in March", [Span(None, 3, None)]),
        ("you may march on", [Span(None, 3, None)]),
        ("5月8日", [Span(None, 5, 8)]),
        ("2026年5月", [Span(2026, 5, None)]),
        ("in 2026", [Span(2026, None, None)]),
        ("line 2000", [Span(2000, None, None)]),
        ("port 8081", []),
        ("2026-99-99", [Span(2026, 99, 99)]),
    ],
)
def test_the_times_that_a_query_names(text: str, expected: list[Span]) -> None:
    assert [*spans(text)] == expected
    assert all(span.bounds is None or span.bounds[0] < span.bounds[1] for span in spans(text))
    assert [*parse(text).times] == expected


def test_labels_and_facts_of_a_summary_are_found(store: Store, session: Session, journal: Journal) -> None:
    journal.commit(running(journal), "so far", 4)
    record = next(r for r in session.read() if r.kind == "segment.opened" and r.body.get("summary"))
    body: Json = record.body | {
        "facts": [["limit", "cost", "Spend 40 euros at most.", 2]],
        "labels": [[2, "/content", 0, 5, "rule", "quokka"]],
    }

    assert "limit cost: Spend 40 euros" in told(record._replace(body=body))
    assert "rule quokka" in told(record._replace(body=body))
    assert told(record._replace(body=body | {"erased": True})) == ""


# ---------------------------------------------------------------------- as an agent's tool


def test_an_agents_search_leaves_out_what_is_in_its_view_and_what_was_undone(
    store: Store, session: Session, journal: Journal
) -> None:
    away = session.append(user("the zeppelin is red")).numbers[0]
    session.append([user("more"), user("and more")])
    journal.commit(running(journal), "so far", away + 1)
    seen = session.append(user("the zeppelin is blue")).numbers[0]
    session.append(user("the zeppelin is green"))
    session.undo()
    tools = RecallTools(Recall(store), "s")

    answer = tools.call("recall_search", {"query": "zeppelin"})

    assert f"#{away} user" in answer
    assert "compacted away" in answer
    assert f"#{seen} user" not in answer
    assert "green" not in answer


def test_if_all_that_is_found_is_in_view_an_agent_is_told_so(store: Store, session: Session) -> None:
    session.append(user("the zeppelin is red"))

    answer = RecallTools(Recall(store), "s").call("recall_search", {"query": "zeppelin"})

    assert "still in your context" in answer
    assert "«zeppelin»" in answer


def test_an_agent_gets_passages_with_what_was_said_around_them(store: Store, session: Session) -> None:
    session.append([user("Which door?"), user("The zeppelin is red."), user("Good.")])

    answer = RecallTools(Recall(store), None).call("recall_search", {"query": "zeppelin"})

    assert "user: Which door?" in answer
    assert "user: Good." in answer


@pytest.mark.parametrize("index", [True, False])
def test_a_session_is_searched_with_the_forks_of_it_and_of_those_and_with_no_other(store: Store, index: bool) -> None:
    parent = store.session("parent")
    parent.append(user("a zeppelin"))
    child = parent.fork(id="child", kind="subagent")
    child.append(user("a zeppelin in the child"))
    child.fork(id="deeper").append(user("a zeppelin deeper"))
    store.session("other").append(user("a zeppelin elsewhere => there"))
    recall = Recall(store, index=index)
    assert recall.search("=>", session="parent", forks=True).hits == ()
    assert len(recall.search("=>")) == 1

    assert {hit.session for hit in recall.search("zeppelin", session="parent", forks=True)} == {
        "parent", "child", "deeper",
    }  # fmt: skip
    assert {hit.session for hit in recall.search("zeppelin", session="parent")} == {"parent"}
    assert {hit.session for hit in recall.search("zeppelin", session="child", forks=True)} == {
        "parent", "child", "deeper",
    }  # fmt: skip


def test_a_search_in_view_only_where_it_is_wanted(store: Store, session: Session, journal: Journal) -> None:
    journal.commit(running(journal), "so far", 4)

    assert {hit.place for hit in search(store, "message", session="s", in_view=False)} == {"past"}
