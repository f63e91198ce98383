"""Finding what was said: what counts as a word, what a query means, what is found where, and `onefold search`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onefold
from onefold import OnefoldError, Session, SessionNotFound, Store
from onefold.journal.journal import Journal
from onefold.model import Record
from onefold.recall import Recall, search
from onefold.recall.excerpts import excerpt
from onefold.recall.query import parse
from onefold.recall.searchable_text import searched
from onefold.recall.tokenizer import placed, words
from tests.conftest import StoppedClock, running
from tests.support.command_line import program, run
from tests.support.searches import find, numbers, user

# ---------------------------------------------------------------------- words and queries


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("src/app.py", ["src", "app", "py"]),
        ("PORT=8081", ["port", "8081"]),
        ("snake_case CamelCase", ["snake", "case", "camelcase", "camel", "case"]),
        ("parseHTTPRequest", ["parsehttprequest", "parse", "http", "request"]),
        ("फ़ाइलें", ["फ़ाइलें"]),
        ("الكِتاب", ["الكتاب"]),
        ("Йод", ["йод"]),
        ("٣٤٥", ["345"]),
        ("Café déjà", ["cafe", "deja"]),
        ("Cafe\u0301", ["cafe"]),
        ("Straße ΣΊΣΥΦΟΣ", ["strasse", "σισυφοσ"]),
        ("数据库连接", ["数", "据", "库", "连", "接"]),
        ("ガラス", ["ガ", "ラ", "ス"]),
        ("ﾆﾎﾝ", ["ニ", "ホ", "ン"]),
        ("\ud800 lone \x00 nul", ["lone", "nul"]),
        ("-- :: 🚀", []),
    ],
)
def test_a_word_is_a_run_of_letters_and_digits_without_case_and_accents(text: str, expected: list[str]) -> None:
    assert words(text) == expected
    assert [word for word, _, _ in placed(text)] == expected


@pytest.mark.parametrize(
    ("query", "text", "matches"),
    [
        ("apple pear", "a pear and an apple", True),
        ("apple pear", "an apple", False),
        ('"red apple"', "a red apple", True),
        ('"red apple"', "an apple is red", False),
        ("“red apple”", "a red apple", True),
        ("app*", "an apple", True),
        ('"red app"*', "a red apple", True),
        ("app", "an apple", False),
        ("apple -pear", "an apple", True),
        ("apple -pear", "an apple, a pear", False),
        ('apple -"red pear"', "a pear, an apple", True),
        ("-rf", "rm -rf /", True),
        ("--force", "git push --force", True),
        ("src/app.py", "see ./src/app.py:12", True),
        ("src/app.py", "app.py in src", False),
        ('"never closed', "it was never closed", True),
        ("=>", "a => b", True),
        ("=>", "a -> b", False),
        ("", "anything", False),
    ],
)
def test_what_a_query_means(query: str, text: str, matches: bool) -> None:
    assert parse(query).matches(text) is matches


def test_an_excerpt_shows_the_place_and_marks_it() -> None:
    text = "filler " * 100 + "the PORT=8081 is taken\nby a port scanner" + " filler" * 100

    piece, marks = excerpt(text, parse("port"))

    assert len(piece) <= 202
    assert "\n" not in piece
    assert [piece[a:b] for a, b in marks] == ["PORT", "port"]
    assert piece[0] == piece[-1] == "…"


def test_words_that_overlap_are_marked_once() -> None:
    piece, marks = excerpt("a b c d", parse('"a b" "b c"'))

    assert [piece[a:b] for a, b in marks] == ["a b c"]


# ---------------------------------------------------------------------- what is found


def test_what_was_compacted_away_is_found_by_its_words_f76(store: Store, session: Session, journal: Journal) -> None:
    told = session.append(user("the deploy key is in vault/keys.yml")).numbers[0]
    session.append([user(f"more {n}") for n in range(5)])
    journal.commit(running(journal), "They talked about a secret place.", told + 3)

    (hit,) = search(store, "vault/keys.yml", session="s")

    assert (hit.session, hit.number, hit.kind, hit.role, hit.place) == ("s", told, "message", "user", "past")
    assert hit.snippet == "the deploy key is in «vault/keys.yml»"
    assert not any("vault" in str(m) for m in session.context().messages)


def test_calls_results_notes_summaries_and_inputs_are_found_and_pictures_are_not(
    store: Store, session: Session, journal: Journal
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "etc/hosts"}'}}
    a, b, c = session.append(
        [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "127.0.0.1 localhost"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAAB3NZ"}},
                                         {"type": "text", "text": "what a picture"}]},
        ]
    ).numbers  # fmt: skip
    note = session.note("rule", "never touch production")
    segment = journal.commit(running(journal), "An elephant was mentioned.", 3).number
    waiting = session.queue_input(user("and then the giraffe"))

    assert find(store, "read_file etc/hosts") == [a]
    assert find(store, "localhost") == [b]
    assert find(store, "picture") == [c]
    assert find(store, "AAAAB3NZ") == []
    assert find(store, "production") == [note]
    assert find(store, "elephant") == [segment]
    assert [(h.number, h.place) for h in search(store, "giraffe")] == [(waiting, "waiting")]

    taken = session.take_input()

    assert taken is not None
    assert find(store, "giraffe") == [taken.number]


def test_the_best_comes_first_and_of_equals_the_newest(store: Store, clock: StoppedClock) -> None:
    session = store.session("s")
    same: list[int] = []
    for _ in range(3):
        clock.advance(1)
        same += session.append(user("apple and other things of the garden")).numbers
    best = session.append(user("apple apple")).numbers[0]

    assert find(store, "apple") == [best, *reversed(same)]
    assert find(store, "apple", limit=2) == [best, same[-1]]


def test_if_no_record_has_all_words_those_with_some_are_shown_and_say_so(store: Store) -> None:
    session = store.session("s")
    a, _ = session.append([user("the port is 8081"), user("nothing of it")]).numbers

    (hit,) = search(store, "which port does it listen on -nothing")

    assert (hit.number, hit.partial) == (a, True)


def test_what_was_undone_is_marked_and_can_be_left_out(store: Store, session: Session) -> None:
    gone = session.append(user("a zeppelin")).numbers[0]
    session.undo()

    assert [(h.number, h.place) for h in search(store, "zeppelin", session="s")] == [(gone, "undone")]
    assert search(store, "zeppelin", session="s", undone=False) == []

    session.redo()

    assert [h.place for h in search(store, "zeppelin", session="s", undone=False)] == ["context"]


def test_a_pinned_message_is_in_the_context_wherever_the_cut_lies(
    store: Store, session: Session, journal: Journal
) -> None:
    session.pin(2)
    journal.commit(running(journal), "so far", 6)

    places = {h.number: h.place for h in search(store, "message", session="s", limit=50)}

    assert places == {2: "context", 3: "past", 4: "past", 5: "past", 6: "context", 7: "context"}


def test_a_fork_finds_its_past_up_to_where_it_branched_off_and_a_record_is_shown_once(store: Store) -> None:
    parent = store.session("parent")
    before = parent.append(user("apple before")).numbers[0]
    fork = parent.fork(id="fork")
    after = parent.append([user("filler"), user("filler"), user("apple after")]).numbers[-1]
    own = fork.append(user("apple in the fork")).numbers[0]
    deeper = fork.fork(id="deeper")

    def found(session: str | None) -> set[tuple[str, int]]:
        return {(h.session, h.number) for h in search(store, "apple", session=session)}

    assert found("parent") == {("parent", before), ("parent", after)}
    assert found("fork") == {("parent", before), ("fork", own)}
    assert found(deeper.id) == {("parent", before), ("fork", own)}
    assert found(None) == {("parent", before), ("parent", after), ("fork", own)}


def test_a_session_is_searched_by_any_id_it_is_known_by(store: Store, session: Session) -> None:
    session.alias("of-the-agent")

    assert find(store, "message 3", session="of-the-agent")[0] == 4
    with pytest.raises(SessionNotFound):
        search(store, "x", session="nobody")


@pytest.mark.parametrize("index", [True, False])
def test_what_is_erased_is_not_found_and_neither_is_its_summary(
    store: Store, session: Session, journal: Journal, index: bool
) -> None:
    secret = session.append(user("the password is swordfish")).numbers[0]
    session.append([user("more"), user("and more")])
    journal.commit(running(journal), "swordfish was told", secret + 1)
    recall = Recall(store, index=index)
    assert len(recall.search("swordfish")) == 2

    session.erase(secret)

    assert numbers(recall.search("swordfish")) == []


def test_an_erased_record_is_not_shown_even_if_the_index_still_has_it(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = session.append(user("the password is swordfish")).numbers[0]
    assert find(store, "swordfish") == [secret]
    session.erase(secret)
    monkeypatch.setattr("onefold.recall.search_engine.catch_up", lambda *_, **__: 7)

    found = Recall(store).search("swordfish")

    assert (found.hits, found.behind) == ((), 7)


def test_a_deleted_session_leaves_the_index_whole(store: Store, session: Session) -> None:
    fork = session.fork(id="fork")
    own = fork.append(user("a message in the fork")).numbers[0]
    assert len(search(store, "message")) == 7

    store.delete("s")

    assert [(h.session, h.number) for h in search(store, "message")] == [("fork", own)]
    assert find(store, "message", session="fork") == [own]


def test_without_an_index_the_journal_is_read_the_newest_first(store: Store, session: Session) -> None:
    session.fork(id="fork").append(user("a message in the fork"))
    recall = Recall(store, index=False)

    found = recall.search("message", session="fork", limit=50)

    assert ("fork", 10) in [(h.session, h.number) for h in found]
    assert {h.number for h in found} == {2, 3, 4, 5, 6, 7, 10}
    assert not found.indexed
    assert sorted(numbers(recall.search("message -3", limit=50))) == [2, 3, 5, 6, 7, 10]
    assert {h.partial for h in recall.search("3 zebra")} == {True}
    assert recall.search("message", patience=0).behind == 10


def test_only_the_beginning_of_a_very_long_record_is_looked_at_and_no_blob() -> None:
    text = "first " + "x" * 600 + " second " + "word " * 60_000 + "last"
    record = Record(1, "id", "message", 0.0, user(text), "openai-chat")

    looked = searched(record)

    assert words(looked[:20]) == ["first", "second", "word"]
    assert not looked.endswith("last")


# ---------------------------------------------------------------------- whatever is said, whatever is asked

SAID = (
    "apple", "Äpfel", "src/app.py", "PORT=8081", "snake_case", "don't", "数据库", "検索", "한국어", "ภาษา", "straße",
    "İstanbul", "ﬁne", "C++", "x²", "Ǆ", "a\u0301e", "नमस्ते", "\U0001d518\U0001d52b\U0001d526", "½", "⑴", "--force",
    "«so»", '"quoted"', "*", "AND", "NEAR(x)", "col:umn", "\x00nul", "lone\ud800", "🚀", "\u202ertl", "ΣΊΣΥΦΟΣ", "s1",
    "said",
)  # fmt: skip

ASKED = st.tuples(st.sampled_from(["", "-", '"']), st.sampled_from(SAID), st.sampled_from(["", "*", '"']))
TYPED = (*"ab\"*-()^:+ {}[]'/.\x00,;%_", "AND ", "OR ", "NOT ", "NEAR(", "数", "“", "é")


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from(SAID), min_size=1, max_size=12), min_size=1, max_size=12), st.booleans())
def test_everything_said_is_found_by_each_of_its_words_f76(texts: list[list[str]], indexed: bool) -> None:
    with onefold.open("memory:") as store:
        session = store.session("s")
        said = dict(zip(session.append([user(" ".join(t)) for t in texts]).numbers, texts, strict=True))
        recall = Recall(store, index=indexed)

        for word in SAID:
            wanted = {number for number, text in said.items() if word in text}
            found = recall.search(word, limit=100, patience=None)
            assert wanted <= {*numbers(found)}, word


@settings(max_examples=100)
@given(st.lists(st.sampled_from(TYPED)).map("".join))
def test_whatever_somebody_types_is_a_query(query: str) -> None:
    with onefold.open("memory:") as store:
        store.session("s").append([user("a b ab 数é"), user("b AND a")])

        for index in (True, False):
            found = Recall(store, index=index).search(query)
            assert all(parse(query).matches(h.excerpt) for h in found if not h.partial)


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from(SAID), min_size=1, max_size=6), min_size=1, max_size=8),
    st.lists(ASKED, min_size=1, max_size=4),
)
def test_the_index_finds_what_reading_the_whole_journal_finds(
    texts: list[list[str]], asked: list[tuple[str, str, str]]
) -> None:
    query = " ".join(before + word + after for before, word, after in asked)
    with onefold.open("memory:") as store:
        store.session("s").append([user(" ".join(t)) for t in texts])

        by_index, by_reading = (Recall(store, index=i).search(query, patience=None) for i in (True, False))

        assert {(h.number, h.partial) for h in by_index} == {(h.number, h.partial) for h in by_reading}


def test_a_very_long_query_is_cut_and_answered(store: Store, session: Session) -> None:
    assert search(store, "word " * 10_000) != []
    assert search(store, '"' + "word " * 10_000) == []


# ---------------------------------------------------------------------- the command


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with onefold.open(path) as store:
        session = store.session("talk")
        session.append([user("the port is 8081"), user("red \x1b[31m port\nsecond line")])
        session.append(user("a port to undo"))
        session.undo()
        store.session("other").append(user("another port"))
    return path


def test_search_prints_what_it_found_with_marks_and_is_safe_for_a_terminal(tmp_path: Path, path: Path) -> None:
    done = program(tmp_path, "search", "port", "--store", path, "--session", "talk")

    assert (done.returncode, done.stderr) == (0, "")
    assert "#2 user" in done.stdout
    assert "the «port» is 8081" in done.stdout
    assert "(undone)" in done.stdout
    assert "\x1b" not in done.stdout
    assert "another" not in done.stdout
    assert "undo" not in run(tmp_path, "search", "port", "--hide-undone", "--store", path).stdout


def test_search_over_all_sessions_names_them_and_nothing_found_is_1(tmp_path: Path, path: Path) -> None:
    everywhere = run(tmp_path, "search", "port", "--store", path)
    nothing = run(tmp_path, "search", "zebra", "--store", path)
    unknown = run(tmp_path, "search", "port", "--session", "nobody", "--store", path)

    assert "other #2 user" in everywhere.stdout
    assert "talk #2 user" in everywhere.stdout
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (1, "", "onefold: nothing was found for 'zebra'\n")
    assert unknown.returncode == 2


def test_search_as_json(tmp_path: Path, path: Path) -> None:
    done = run(tmp_path, "search", "--store", path, "--json", "--limit", "1", "--", '"the port"', "-zebra")

    answer = json.loads(done.stdout)
    assert answer["query"] == '"the port" -zebra'
    assert (answer["behind"], answer["indexed"]) == (0, True)
    (hit,) = answer["hits"]
    assert (hit["session"], hit["number"], hit["place"], hit["marks"]) == ("talk", 2, "context", [[0, 8]])
    assert hit["snippet"] == "«the port» is 8081"


def test_search_rebuilds_the_index_when_told_to(tmp_path: Path, path: Path) -> None:
    run(tmp_path, "search", "port", "--store", path)
    index = path.with_name("agent.db.search")
    before = index.stat().st_mtime_ns

    done = run(tmp_path, "search", "port", "--rebuild", "--store", path)

    assert done.returncode == 0
    assert index.stat().st_mtime_ns > before


def test_a_search_makes_no_store_by_accident(tmp_path: Path) -> None:
    done = run(tmp_path, "search", "x", "--store", tmp_path / "none.db")

    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_segment_is_said_so(store: Store, session: Session) -> None:
    with pytest.raises(OnefoldError, match="has no segment 99"):
        Recall(store).expand("s", 99)
