"""What a person erases or deletes is gone from the bytes on disk: the store, its log, and every file beside it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from onefold import Session, Store
from onefold.journal import pins_and_notes
from onefold.storage.sqlite import backend
from tests.conftest import running, said
from tests.support.fault_injection import backend_of, open_store
from tests.support.helpers import Child
from verification.operations import talk

MARKER = "wombat-0815-quokka"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path) as store:
        yield store
        assert store.verify().findings == ()


@pytest.fixture
def session(store: Store) -> Session:
    session = store.session("s")
    session.append(talk(6))
    return session


def holding(path: Path, marker: str = MARKER) -> list[str]:
    """The files in the store's folder that hold a text, in the encoding in which it is stored."""
    return sorted(f.name for f in path.parent.iterdir() if marker.encode() in f.read_bytes())


def left_of(path: Path, words: list[str]) -> list[str]:
    """Which of some texts any file in the store's folder holds."""
    files = [f.read_bytes() for f in path.parent.iterdir()]
    return [word for word in words if any(word.encode() in data for data in files)]


def written_out(store: Store) -> None:
    """Sees to it that what was written stands in the file itself and not in its log alone."""
    assert backend_of(store).purge()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Somebody in the middle of a read."""
    reader = apsw.Connection(str(path))
    try:
        reader.execute("begin")
        reader.execute("select count(*) from records").fetchall()
        yield
        reader.execute("commit")
    finally:
        reader.close()


# ---------------------------------------------------------------------- what is erased, by where it was


def _small(session: Session) -> int:
    return session.append({"role": "user", "content": MARKER}).numbers[0]


def _large(session: Session) -> int:
    """Five megabytes, so that it fills pages that hold nothing else."""
    return session.append({"role": "user", "content": f"{MARKER} " * (5_000_000 // len(MARKER))}).numbers[0]


def _among_others(session: Session) -> int:
    before = session.append(talk(200)).numbers
    session.append({"role": "user", "content": MARKER * 3})
    session.append(talk(200))
    return before[-1] + 1


def _in_a_summary(session: Session) -> int:
    number = _small(session)
    session.journal.commit(running(session.journal), f"they spoke of {MARKER}, " * 400)
    return number


def _in_older_summaries(session: Session) -> int:
    number = _in_a_summary(session)
    for n in range(3):
        session.append(talk(2, start=10 * n))
        session.journal.commit(running(session.journal), f"summary {n}: {MARKER}")
    return number


def _in_a_note(session: Session) -> int:
    return session.note("fact", f"{MARKER} is the word")


def _in_a_note_from_it(session: Session) -> int:
    number = _small(session)
    pins_and_notes.note(session.journal, "s", "fact", f"{MARKER} is the word", key="word", source=(number,))
    return number


def _in_an_input(session: Session) -> int:
    return session.queue_input({"role": "user", "content": MARKER})


def _in_an_input_that_was_taken(session: Session) -> int:
    number = _in_an_input(session)
    assert session.take_input() is not None
    return number


def _in_a_forks_summary(session: Session) -> int:
    number = _small(session)
    session.fork(id="f").append(said(1))
    session.journal.commit(running(session.journal, "f"), f"the fork knows {MARKER}")
    return number


def _in_a_call(session: Session) -> int:
    """Ids of calls stand in columns of their own."""
    call = {"id": MARKER, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return session.append({"role": "assistant", "content": None, "tool_calls": [call]}).numbers[0]


PLACES = [
    _small, _large, _among_others, _in_a_summary, _in_older_summaries, _in_a_note, _in_a_note_from_it, _in_an_input,
    _in_an_input_that_was_taken, _in_a_forks_summary, _in_a_call,
]  # fmt: skip


@pytest.mark.parametrize("where", ["in the log", "in the file"])
@pytest.mark.parametrize("put", PLACES)
def test_what_is_erased_is_in_no_file(
    store: Store, session: Session, path: Path, put: Callable[[Session], int], where: str
) -> None:
    number = put(session)
    if where == "in the file":
        written_out(store)
    assert holding(path)[-1] == ("agent.db" if where == "in the file" else "agent.db-wal")

    erased = session.erase(number)

    assert erased.wiped
    assert holding(path) == []


@pytest.mark.parametrize("where", ["in the log", "in the file"])
@pytest.mark.parametrize("put", PLACES)
def test_what_is_deleted_is_in_no_file(
    store: Store, session: Session, path: Path, put: Callable[[Session], int], where: str
) -> None:
    put(session)
    if where == "in the file":
        written_out(store)
    assert holding(path) != []

    deleted = store.delete("s")

    assert deleted.wiped
    assert holding(path) == []


def test_nothing_else_of_the_session_is_lost_from_the_file(store: Store, session: Session, path: Path) -> None:
    number = _among_others(session)

    session.erase(number)

    assert holding(path, "word200x11") == ["agent.db"]
    assert session.state.messages == 6 + 401


def test_it_does_not_come_back_when_the_store_is_opened_again(store: Store, session: Session, path: Path) -> None:
    number = _large(session)
    session.erase(number)
    store.close()

    with open_store(path) as again:
        again.session("s").append(talk(3))
        assert holding(path) == []
    assert holding(path) == []
    store.journal = open_store(path).journal


def test_every_message_of_a_long_talk_can_be_erased_without_a_trace(store: Store, path: Path) -> None:
    """Tombstones are smaller than what they stand for, so no row moves, and none leaves a copy behind."""
    chance = random.Random(4)
    session = store.session("s")
    said = [f"{MARKER}-{n:03}-" for n in range(80)]
    numbers = [
        session.append({"role": "user", "content": word * chance.choice((1, 5, 20, 60, 250))}).numbers[0]
        for word in said
    ]
    order = list(range(80))
    chance.shuffle(order)

    gone: list[str] = []
    for n in order:
        session.erase(numbers[n])
        gone.append(said[n])
        assert left_of(path, gone) == []


@pytest.mark.parametrize("seed", range(10, 16))
def test_sessions_that_were_written_side_by_side_are_deleted_without_a_trace(
    store: Store, path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    sessions = [store.session(f"s{n}") for n in range(8)]
    said: dict[str, list[str]] = {s.id: [] for s in sessions}
    for n in range(200):
        session = chance.choice(sessions)
        word = f"{MARKER}-{n:03}-"
        session.append({"role": "user", "content": word * chance.choice((1, 5, 20, 60, 120, 250))})
        said[session.id].append(word)

    gone: list[str] = []
    for session in chance.sample(sessions, 5):
        store.delete(session.id)
        gone += said[session.id]

    assert left_of(path, gone) == []


# ---------------------------------------------------------------------- while others use the store


def test_with_a_reader_in_the_way_it_says_so_and_the_next_erasure_finishes_it(
    store: Store, session: Session, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "SCRUB_PATIENCE", 20)
    number, other = _small(session), session.append({"role": "user", "content": "another"}).numbers[0]
    with reading(path):
        erased = session.erase(number)
        left = holding(path)

    finished = session.erase(other)

    assert not erased.wiped
    assert erased.numbers == (number,)
    assert left == ["agent.db-wal"]
    assert finished.wiped
    assert holding(path) == []


def test_the_next_time_the_log_is_written_out_finishes_it(
    store: Store, session: Session, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "SCRUB_PATIENCE", 20)
    number = _large(session)
    with reading(path):
        assert not session.erase(number).wiped
        assert holding(path) != []
    monkeypatch.setattr(backend, "CHECKPOINT_PAGES", 1)

    session.append({"role": "user", "content": "a few pages"})

    assert holding(path) == []


def test_saying_it_again_finishes_what_a_reader_was_in_the_way_of(
    store: Store, session: Session, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "SCRUB_PATIENCE", 20)
    number = _large(session)
    written_out(store)
    with reading(path):
        assert not session.erase(number).wiped
        assert holding(path) == ["agent.db"]

    again = session.erase(number)

    assert (again.numbers, again.wiped) == ((), True)
    assert holding(path) == []


def test_a_deletion_with_a_reader_in_the_way_is_finished_by_saying_it_again(
    store: Store, session: Session, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "SCRUB_PATIENCE", 20)
    _in_a_summary(session)
    with reading(path):
        assert not store.delete("s").wiped
        assert holding(path) != []

    again = store.delete("s")

    assert (again.records, again.wiped) == (0, True)
    assert holding(path) == []


def test_the_last_one_to_close_the_store_finishes_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "SCRUB_PATIENCE", 20)
    with open_store(path) as store:
        session = store.session("s")
        number = _small(session)
        with reading(path):
            assert not session.erase(number).wiped
        assert holding(path) == ["agent.db-wal"]

    assert holding(path) == []


def test_another_process_that_has_the_store_open_is_not_in_the_way(store: Store, session: Session, path: Path) -> None:
    """One that reads now and then holds nothing; one that follows asks and lets go again."""
    number = _small(session)
    with Child("append_until_told", module="tests.support.crash_children", path=str(path)) as writer:
        writer.hear("ready")

        erased = session.erase(number)

        assert erased.wiped
        assert holding(path) == []
        writer.say("go")
        writer.hear("writing")
        writer.say("stop")
        writer.hear("stopped")
    assert holding(path) == []


def test_a_large_store_is_rewritten_when_it_is_asked_to_be(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.storage.sqlite.backend.SCRUB_PAGES", 1)
    store.session("s").append({"role": "user", "content": MARKER})
    store.session("other").append({"role": "user", "content": "stays"})

    deleted = store.delete("s")

    assert not deleted.wiped
    assert store.purge()
    assert left_of(path, [MARKER]) == []
    assert store.session("other").context().messages == [{"role": "user", "content": "stays"}]
    assert store.verify().healthy
