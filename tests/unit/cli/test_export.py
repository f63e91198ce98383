"""`onefold export` of a store that is in use: every session is in it, and what is not is said."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import onefold
from onefold import Session, Store
from onefold.cli import export
from onefold.export import all_parents_first
from onefold.messages import decode
from onefold.model import Json
from tests.conftest import said
from tests.support.command_line import program, run
from tests.support.helpers import Child, restless, together

MANY = 600
"""Sessions: more than a store lists at a time."""


def many(address: str, count: int) -> list[str]:
    names = [f"s{n:05}" for n in range(count)]
    with onefold.open(address) as store, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: store.session(name).append(said(1)), names))
    return names


def lines_of(text: str) -> list[Json]:
    return [decode(line) for line in text.split("\n") if line]


def test_an_export_while_another_process_writes_to_every_session_has_all_of_them(durable: str, tmp_path: Path) -> None:
    """In processes of their own, with the pages of a store as they are."""
    names = many(durable, MANY)

    with Child("keep_writing", path=durable, sessions=names) as writer:
        together(writer)
        for _ in range(2):
            done = program(tmp_path, "export", "--all", "--store", durable)

            assert done.returncode == 0, done.stderr
            found = lines_of(done.stdout)
            numbers = Counter((line["session"], line["number"]) for line in found)
            assert sorted({line["session"] for line in found}) == names
            assert max(numbers.values()) == 1
            assert done.stderr == f"onefold: {len(found):,} records of {MANY:,} sessions written\n"


def test_an_export_says_how_much_it_wrote_on_stderr_and_as_json(tmp_path: Path) -> None:
    many(str(tmp_path / "agent.db"), 3)
    call = partial(run, tmp_path, "export", "--all", "--store", "agent.db")

    piped, filed, told = call(), call("--out", "all.jsonl"), call("--out", "again.jsonl", "--json")

    assert piped.stderr == "onefold: 6 records of 3 sessions written\n"
    assert filed.stderr == "onefold: 6 records of 3 sessions written, to all.jsonl\n"
    assert (filed.stdout, told.stderr) == ("", "")
    assert decode(told.stdout) == {"out": "again.jsonl", "sessions": 3, "records": 6, "deleted": []}
    assert (tmp_path / "again.jsonl").read_text() == (tmp_path / "all.jsonl").read_text() == piped.stdout
    refused = call("--json")
    assert refused.returncode == 2
    assert "--out" in refused.stderr


def test_an_export_of_all_is_in_the_order_of_ids_but_parents_come_first(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "agent.db") as store:
        for name in ("b", "z", "a"):
            store.session(name).append(said(1))
        store.session("z").fork(id="m")
        store.session("m").fork(id="c")

    done = run(tmp_path, "export", "--all", "--store", "agent.db")

    assert list(dict.fromkeys(line["session"] for line in lines_of(done.stdout))) == ["a", "b", "z", "m", "c"]


# ---------------------------------------------------------------------- sessions that are deleted meanwhile


def exported(store: Store, then: dict[str, str]) -> tuple[list[str], export.ExportCounts]:
    """The sessions of an export, in which others are deleted as soon as the first line of one is written."""
    written = export.ExportCounts()
    seen: list[str] = []

    def write(line: str) -> None:
        session = decode(line)["session"]
        if session not in seen:
            seen.append(session)
            if (gone := then.get(session)) is not None:
                store.delete(gone)

    for session in all_parents_first(store, written.deleted):
        export._write(session, write, written)
    return seen, written


def test_a_session_that_is_deleted_before_its_turn_is_no_error_and_is_named(store: Store) -> None:
    for name in "abcd":
        store.session(name).append(said(1))

    seen, written = exported(store, {"a": "c"})

    assert seen == ["a", "b", "d"]
    assert (written.sessions, written.records, written.deleted) == (3, 6, ["c"])
    assert written.words() == (
        "6 records of 3 sessions written; 1 session deleted meanwhile, and at most begun here: 'c'"
    )


def test_a_session_that_is_deleted_while_it_is_written_ends_there_and_is_named(store: Store) -> None:
    store.session("a").append([said(n) for n in range(1, 1_200)])
    store.session("b").append(said(1))

    seen, written = exported(store, {"a": "a"})

    assert seen == ["a", "b"]
    assert (written.sessions, written.deleted) == (1, ["a"])
    assert 2 < written.records < 1_200


def test_a_fork_whose_parent_is_deleted_meanwhile_is_written_with_its_own_records(store: Store) -> None:
    store.session("z").append([said(1), said(2)])
    store.session("z").fork(id="b").append(said(3))
    store.session("a").append(said(1))

    seen, written = exported(store, {"a": "z"})

    assert seen == ["a", "b"]
    assert (written.sessions, written.deleted) == (2, ["z"])


def test_many_deleted_sessions_are_counted_and_some_named() -> None:
    written = export.ExportCounts(3, 9, [f"s{n}" for n in range(1_007)])

    assert written.words().endswith("1,007 sessions deleted meanwhile, and at most begun here: "
                                    "'s0', 's1', 's2', 's3', 's4' and 1,002 more")  # fmt: skip


def test_an_export_in_which_every_look_is_followed_by_a_write_is_whole(store: Store) -> None:
    names = [f"{n:02}" for n in range(20)]
    for name in names:
        store.session(name).append(said(1))

    with restless(store, names):
        seen, written = exported(store, {})

    assert seen == names
    assert (written.sessions, written.deleted) == (20, [])


# ---------------------------------------------------------------------- the list


def test_the_list_of_all_sessions_is_whole_and_in_the_order_of_activity(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    names = many(str(path), MANY)
    over = threading.Event()
    with onefold.open(path) as store, ThreadPoolExecutor(1) as threads:
        opened = [store.session(name) for name in names]
        begun = threading.Event()
        writing = threads.submit(_write_until, over, begun, opened)
        assert begun.wait(30)
        try:
            listed = decode(run(tmp_path, "sessions", "--store", path, "--json").stdout)
        finally:
            over.set()
        assert writing.result() > 0

    assert sorted(found["id"] for found in listed) == names
    times = [found["touched_at"] for found in listed]
    assert times == sorted(times, reverse=True)


def _write_until(over: threading.Event, begun: threading.Event, sessions: list[Session]) -> int:
    count = 0
    while not over.is_set():
        sessions[-1 - count % len(sessions)].append(said(1))
        count += 1
        begun.set()
    return count
