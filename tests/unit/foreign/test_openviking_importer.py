"""Sessions of OpenViking brought into onefold: each message once, archives as boundaries, live messages after."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import onefold
from tests.support.imports import import_from, one, records, summary
from tests.support.openviking_folders import Commit, ids, line, log, session, tree

OVERVIEW = "# What was said\n"


@pytest.fixture
def store() -> Iterator[onefold.Store]:
    with onefold.open("memory:") as opened:
        yield opened


def in_view(store: onefold.Store, any_id: str) -> list[str]:
    """The summary, if there is one, and the ids of what stays."""
    messages = store.session(any_id).context().messages
    return ["summary" if m == summary(OVERVIEW) else m["id"] for m in messages]


def all_ids(store: onefold.Store, any_id: str) -> list[str | None]:
    return [r.body.get("id") for r in store.session(any_id).read() if r.kind == "message"]


def test_archives_are_boundaries_and_what_they_keep_stays(tmp_path: Path, store: onefold.Store) -> None:
    folder = session(
        tmp_path / "bench", ids(9, 14), Commit(ids(1, 4), keeps=ids(5, 6)), Commit(ids(5, 8), keeps=ids(9, 10))
    )
    before = tree(folder)

    result = one(import_from(folder, store))

    assert (result.session, result.new, result.boundaries) == ("bench", 14, 2)
    assert in_view(store, "bench") == ["summary", *ids(9, 14)]
    assert all_ids(store, "bench") == ids(1, 14)
    assert tree(folder) == before
    first, *_ = store.session("bench").context(store.session("bench").segments()[1].number).numbers
    kept = store.session("bench").segments()[1].cut
    assert first == store.session("bench").segments()[1].number
    assert next(store.session("bench").read(kept)).body["id"] == ids(5, 5)[0]


def test_messages_are_as_they_are_with_their_time(tmp_path: Path, store: onefold.Store) -> None:
    folder = session(tmp_path / "bench", ids(1, 1))

    import_from(folder, store)

    (said,) = (r for r in store.session("bench").read() if r.kind == "message")
    assert said.body == json.loads(line(ids(1, 1)[0]))
    assert (said.format, said.key, said.at) == ("json", f"openviking:{ids(1, 1)[0]}", 1794782891.0)


def test_archived_messages_that_are_live_again_are_told_once(tmp_path: Path, store: onefold.Store) -> None:
    folder = session(tmp_path / "bench", ids(1, 8), Commit(ids(1, 4), keeps=ids(5, 6)))

    result = one(import_from(folder, store))

    assert (result.new, in_view(store, "bench")) == (8, ["summary", *ids(5, 8)])


@pytest.mark.parametrize(
    ("commit", "words"),
    [
        (Commit(ids(1, 4), overview=False), "has no summary"),
        (Commit(ids(1, 4), done=None), "is not finished"),
        (Commit(ids(1, 4), done=None, failed="{}"), "is not finished"),
    ],
)
def test_an_archive_without_a_summary_or_an_end_moves_no_boundary(
    tmp_path: Path, store: onefold.Store, commit: Commit, words: str
) -> None:
    folder = session(tmp_path / "bench", ids(5, 6), commit)

    result = one(import_from(folder, store))

    assert (result.boundaries, result.lost) == (0, 0)
    assert words in result.left_out[0]
    assert in_view(store, "bench") == ids(1, 6)


def test_a_session_that_grew_and_was_committed_since_brings_just_that(tmp_path: Path, store: onefold.Store) -> None:
    folder = session(tmp_path / "bench", ids(1, 6))
    import_from(folder, store)
    before = records(store)["bench"]
    shutil.rmtree(folder)
    session(folder, ids(5, 8), Commit(ids(1, 4), keeps=ids(5, 6)))

    grown = one(import_from(folder, store))
    stands = records(store)
    again = one(import_from(folder, store))

    assert (grown.new, grown.boundaries, again.new, again.boundaries) == (2, 1, 0, 0)
    assert in_view(store, "bench") == ["summary", *ids(5, 8)]
    assert stands["bench"][: len(before)] == before
    assert records(store) == stands


def test_an_archive_that_was_finished_later_is_a_boundary_then(tmp_path: Path, store: onefold.Store) -> None:
    folder = session(tmp_path / "bench", ids(5, 8), Commit(ids(1, 4), keeps=ids(5, 6), done=None, overview=False))
    import_from(folder, store)
    shutil.rmtree(folder)
    session(folder, ids(5, 8), Commit(ids(1, 4), keeps=ids(5, 6)))

    late = one(import_from(folder, store))

    assert (late.new, late.boundaries) == (0, 1)
    assert in_view(store, "bench") == ["summary", *ids(5, 8)]


def test_lines_without_ids_and_lines_that_are_none(tmp_path: Path, store: onefold.Store) -> None:
    text = log([None, *ids(1, 2), None]) + line(ids(1, 1)[0], "other words") + "no JSON\n" + line(ids(3, 3)[0])[:-9]
    folder = session(tmp_path / "bench", text, count=None)

    result = one(import_from(folder, store))

    assert all_ids(store, "bench") == [None, *ids(1, 2), None, *ids(1, 1)]
    assert result.lost == 1
    assert "2 lines of messages.jsonl" in result.left_out[0]
    assert one(import_from(folder, store)).new == 0


def test_a_workspace_brings_every_session_also_two_of_one_name(tmp_path: Path, store: onefold.Store) -> None:
    session(tmp_path / "user/ana/sessions/bench", ids(1, 2))
    session(tmp_path / "user/bob/sessions/bench", ids(3, 5))
    session(tmp_path / "user/bob/sessions/other", ids(6, 6))

    results = import_from(tmp_path, store)
    again = import_from(tmp_path, store)

    assert [(r.session, r.new) for r in results] == [("bench", 2), ("openviking-bench", 3), ("other", 1)]
    assert "is another session here" in results[1].remarks[0]
    assert [(r.session, r.new) for r in again] == [("bench", 0), ("openviking-bench", 0), ("other", 0)]
