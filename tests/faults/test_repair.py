"""Derived state that was damaged by hand is healed to what the journal says, once; a healthy store is not touched.

Item 12 of the core's promises.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onefold import StoreDamaged
from onefold.compaction.holder import this_process
from onefold.ids import random_id
from onefold.journal.verify import repair
from onefold.model import Claim
from onefold.storage.base import Transaction
from onefold.storage.sqlite import SqliteBackend
from onefold.storage.sqlite.queries import queries
from onefold.storage.sqlite.transaction import SqliteTransaction
from tests.support.fault_injection import open_store, prints
from tests.support.helpers import counted, kinds, quick
from verification.operations import damage, prepare, rows, talk

DERIVED = ("sessions", "segments", "compactions", "keys", "inputs", "aliases")

SEEN_AT_OPEN = {
    "head moved back": "update sessions set head = 1, cut = 1",
    "last too low": "update sessions set last = last - 3",
    "last too high": "update sessions set last = last + 3",
    "messages wrong": "update sessions set messages = 99",
    "tokens wrong": "update sessions set tokens = 0",
    "counts wrong": "update sessions set compactions = 7, committed = 5, segments = 1",
    "open without a compaction": "update sessions set open = 'ghost'",
    "seal wrong": "update sessions set seal = seal + 1",
    "a text where a number was": "update sessions set last = 'many'",
    "session row missing": "delete from sessions",
    "segment missing": "delete from segments where base > 0",
    "first segment missing": "delete from segments where base = 0",
    "all segments missing": "delete from segments",
    "segment too many": (
        "insert into segments select session, 900, 901, cut, source, at, null, null, kept, 0, 0, rest "
        "from segments limit 1"
    ),
    "compaction missing": "delete from compactions",
    "compaction too many": "insert into compactions select session, 'ghost', 'requested', requested_at, rest "
    "from compactions limit 1",
    "input missing": "delete from inputs",
    "input too many": "insert into inputs values ('a', 3)",
}

SEEN_BY_VERIFY = {
    "segment altered": "update segments set cut = cut + 1 where base > 0",
    "segment's list no JSON": "update segments set kept = 'x'",
    "compaction altered": "update compactions set state = 'running'",
    "compaction's rest altered": "update compactions set rest = replace(rest, '\"attempts\":1', '\"attempts\":9')",
    "compaction's rest no JSON": "update compactions set rest = '{'",
    "compaction's rest another shape": 'update compactions set rest = \'{"colour": "red"}\'',
    "key missing": "delete from keys",
    "key altered": "update keys set digest = 'x', first = 1",
    "key too many": "insert into keys values ('a', 'ghost', 1, 1, 'x')",
    "input altered": "update inputs set number = 3",
    "another base": "update segments set base = 2 where base > 0",
}

EVERYTHING = {**SEEN_AT_OPEN, **SEEN_BY_VERIFY}

SEAL = 15
"""Where a session's row has its checksum, which is another one as soon as any other column is."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was never damaged."""
    path = tmp_path_factory.mktemp("sound") / "store.db"
    prepare(str(path))
    return path


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copy(sound, tmp_path / "store.db"))


def _assert_healed_once(path: Path, sound: Path) -> None:
    """All derived rows are those of the store that was never damaged, but for the record that tells of the healing."""
    healed, expected = rows(path, DERIVED), rows(sound, DERIVED)
    for table in ("segments", "compactions", "keys", "inputs"):
        assert healed[table] == expected[table]
    (now,), (then,) = healed["sessions"], expected["sessions"]
    id, created, _, last, *rest = now
    rest[SEAL - 4], then = then[SEAL], list(then)
    assert (id, created, last - 1, rest) == (then[0], then[1], then[3], then[4:])
    assert rows(path, ("records",))["records"] != rows(sound, ("records",))["records"]
    with open_store(path) as store:
        session = store.session("a")
        said = [r for r in session.read() if r.kind == "healed"]
        assert [r.number for r in said] == [last]
        assert said[0].body["findings"]
    after = prints(path)
    with open_store(path) as store:
        assert store.session("a").context().summary == "what was said"
        assert store.verify(fix=True).healthy
    assert prints(path) == after, "opening again changes nothing"


@pytest.mark.parametrize("harm", SEEN_AT_OPEN)
def test_f22_damage_that_shows_is_healed_when_the_session_is_opened(path: Path, sound: Path, harm: str) -> None:
    """Item 12, F22: compared by identity with the journal, never by counting."""
    damage(path, SEEN_AT_OPEN[harm])

    with open_store(path) as store:
        session = store.session("a")
        assert session.context().summary == "what was said"
        assert session.head == session.segments()[-1].number

    _assert_healed_once(path, sound)


@pytest.mark.parametrize("harm", EVERYTHING)
def test_f22_verify_reports_any_damage_and_with_fix_heals_it_once(path: Path, sound: Path, harm: str) -> None:
    """Item 12, F22: every derived row, whatever became of it."""
    damage(path, EVERYTHING[harm])
    harmed = prints(path)

    with open_store(path) as store:
        looked = store.verify()
    untouched = prints(path)
    with open_store(path) as store:
        fixed = store.verify(fix=True)
        again = store.verify(fix=True)

    assert not looked.healthy
    assert untouched == harmed, "verify alone only looks"
    assert not any(f.fatal or f.repaired for f in looked.findings)
    assert fixed.findings
    assert all(f.repaired for f in fixed.findings)
    assert again.healthy
    _assert_healed_once(path, sound)


def test_a_session_whose_row_is_gone_is_found_again_without_creating_it(path: Path, sound: Path) -> None:
    """Item 12, F28: what cannot be found in the derived rows is looked for in the journal, never taken for new."""
    damage(path, *(f"delete from {table}" for table in DERIVED))  # noqa: S608  names of this module

    with open_store(path) as store:
        session = store.session("a", create=False)
        assert counted(session, "message") == 8

    _assert_healed_once(path, sound)


@pytest.mark.parametrize("table", [*DERIVED, "leases"])
def test_a_derived_table_that_is_gone_is_made_anew_by_verify(path: Path, table: str) -> None:
    """Item 12: the journal is enough for all of it."""
    before = rows(path, DERIVED)
    damage(path, f"drop table {table}")

    with open_store(path) as store:
        looked = store.verify()
        fixed = store.verify(fix=True)
        again = store.verify()

    assert any(table in f.found for f in looked.findings)
    assert fixed.findings
    assert all(f.repaired for f in fixed.findings)
    assert again.healthy
    after = rows(path, DERIVED)
    assert {t: after[t] for t in DERIVED if t != "sessions"} == {t: before[t] for t in DERIVED if t != "sessions"}


def test_work_goes_on_after_healing(path: Path) -> None:
    """Item 12: keys still count, the next record has the next number, and the session compacts again."""
    damage(path, "delete from keys", "update sessions set last = 3, head = 1", "delete from segments where base > 0")

    with open_store(path) as store:
        store.policy = quick()
        session = store.session("a")
        last = session.state.last
        repeated = session.append(talk(6), key="first")
        added = session.append(talk(20, start=9))
        result = session.compact()

        assert repeated.duplicate
        assert added.numbers[0] == last + 1
        assert result.applied
        assert [r.number for r in session.read()] == list(range(1, session.state.last + 1))
        assert store.verify().healthy


def test_a_healthy_store_is_not_written_to_not_one_byte(path: Path) -> None:
    """Item 12: file, time of change and everything beside it are as they were."""
    before = prints(path)

    for fix in (False, True):
        with open_store(path) as store:
            session = store.session("a")
            context = session.context()
            list(session.read())
            list(store.sessions())
            session.compaction_holder()
            report = store.verify(fix=fix)

        assert context.summary == "what was said"
        assert report.healthy
        assert prints(path) == before


def test_two_handles_that_meet_the_same_damage_heal_it_once(path: Path, sound: Path) -> None:
    """Item 12: the write transaction decides again, so the second one finds nothing to do."""
    with open_store(path) as one, open_store(path) as two:
        damage(path, "update sessions set head = 1")
        saw = [store.verify() for store in (one, two)]

        mended = [store.journal.backend.write("a", lambda tx: repair(tx, "a", random_id)) for store in (one, two)]

        assert [len(report.findings) for report in saw] == [1, 1]
        assert [len(findings) for findings in mended] == [1, 0]
    _assert_healed_once(path, sound)


BROKEN_JOURNALS = {
    "a record deleted": "delete from records where number = 4",
    "the first record deleted": "delete from records where number = 1",
    "a body that is no JSON": "update records set body = '{\"role\": ' where number = 4",
    "a body of nothing": "update records set body = '' where number = 4",
    "a careful body that is no JSON": "update records set body = ' [' where number = 4",
    "a body of bytes": "update records set body = x'ff00' where number = 4",
    "a record that makes no sense": "update records set body = '[]' where kind = 'compaction.started'",
    "a cut that is no number": "update records set body = '{\"base\": 1}' where number > 1 and kind = 'segment.opened'",
    "a compaction nobody asked for": "delete from records where kind = 'compaction.requested'",
    "a list of calls that is no JSON": "update records set opens = '[' where number = 3",
}


@pytest.mark.parametrize("harm", BROKEN_JOURNALS)
def test_f28_a_damaged_journal_is_reported_as_fatal_and_never_mended(path: Path, harm: str) -> None:
    """Item 12, F28: no fold can mend the truth itself; nothing is written over what is left of it."""
    damage(path, BROKEN_JOURNALS[harm])
    harmed = prints(path)

    with open_store(path) as store:
        looked = store.verify()
        fixed = store.verify(fix=True)

    assert [f.fatal for f in looked.findings] == [True]
    assert fixed.findings == looked.findings
    assert looked.findings[0].session == "a"
    assert prints(path) == harmed


def test_f28_a_damaged_journal_with_damaged_rows_is_refused_in_words(path: Path) -> None:
    """Item 12: opening such a session names it, says where it breaks, and points to the backup."""
    damage(path, "delete from records where number = 4", "update sessions set head = 1")
    harmed = prints(path)

    with open_store(path) as store, pytest.raises(StoreDamaged, match=r"'a'.*after record 3 comes 5.*backup"):
        store.session("a")

    assert prints(path) == harmed


def test_f28_reading_a_body_that_is_no_json_is_an_error_in_words(path: Path) -> None:
    damage(path, "update records set body = '{' where number = 9")

    with open_store(path) as store, pytest.raises(StoreDamaged, match=r"'a'.*9.*verify"):
        list(store.session("a").read())


def test_a_damaged_session_keeps_nobody_else_from_being_verified(path: Path) -> None:
    """F46: one session's damage is that session's."""
    with open_store(path) as store:
        store.session("b").append(talk(2))
        store.session("c").append(talk(2))
    damage(
        path,
        "delete from records where number = 2 and place >> 32 = (select sid from journals where session = 'b')",
        "delete from sessions where id = 'c'",
    )

    with open_store(path) as store:
        report = store.verify(fix=True)

        assert {(f.session, f.fatal, f.repaired) for f in report.findings} == {("b", True, False), ("c", False, True)}
        assert kinds(store.session("c"))[-1] == "healed"
        assert report.sessions == 3


@pytest.mark.parametrize(
    "ghost",
    [
        "insert into inputs values ('ghost', 3)",
        "insert into keys values ('ghost', 'k', 1, 1, 'x')",
        "insert into compactions select 'ghost', id, 'requested', requested_at, rest from compactions limit 1",
        (
            "insert into segments select 'ghost', base, number, cut, source, at, null, null, kept, 0, 0, rest "
            "from segments limit 1"
        ),
        (
            "insert into sessions select 'ghost', created_at, touched_at, last, head, cut, messages, tokens, segments, "
            "compactions, committed, open, pending, failures, failed_tokens, seal, turn, parent, forked_at, aliases, "
            'paid, rests, limits, "window" '
            "from sessions limit 1"
        ),
    ],
)
def test_derived_rows_of_a_session_without_records_are_reported(path: Path, ghost: str) -> None:
    """Item 12: rows that no journal stands behind are not passed over."""
    damage(path, ghost)

    with open_store(path) as store:
        report = store.verify()

    assert [(f.session, f.fatal) for f in report.findings] == [("ghost", True)]


def test_a_walk_meets_a_session_whose_row_is_gone_and_leaves_out_what_cannot_be_mended(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(path) as store:
        for name in ("b", "c", "d"):
            store.session(name).append(talk(2))
    damage(
        path,
        "delete from sessions where id in ('b', 'c')",
        "delete from records where number = 2 and place >> 32 = (select sid from journals where session = 'c')",
        "insert into inputs values ('cc ghost', 3)",
    )

    with open_store(path) as store:
        met = [state.id for state in store.walk(page=1)]

        assert met == ["a", "b", "d"]
        assert kinds(store.session("b"))[-1] == "healed"
    assert [(r.levelname, "'c'" in r.getMessage(), "backup" in r.getMessage()) for r in caplog.records] == [
        ("WARNING", True, True)
    ]


def test_a_page_of_a_walk_is_found_by_the_indexes_and_reads_no_table(path: Path) -> None:
    """However many sessions there are, and whatever each has: from one id to the next is a step in each index."""
    with open_store(path) as store:
        found = store.journal.backend.read(lambda tx: plan(tx, "walk", "", 100))

    assert len([line for line in found if "session>?" in line or "id>?" in line]) == 7
    assert [line for line in found if line.startswith("SCAN") and line not in ("SCAN walk", "SCAN CONSTANT ROW")] == []


def plan(tx: Transaction, query: str, *bindings: object) -> list[str]:
    assert isinstance(tx, SqliteTransaction)
    return [row[3] for row in tx.pen.execute(f"explain query plan {queries()[query]}", bindings)]


def test_f46_one_unreadable_compaction_does_not_hold_up_the_other_sessions(path: Path) -> None:
    with open_store(path) as store:
        for name in ("bad", "good"):
            store.session(name).append({"role": "user", "content": "hello"})
            store.journal.request(name)
    damage(path, "update compactions set rest = 'no JSON' where session = 'bad'")

    with open_store(path) as store:
        claimed = store.journal.claim_next(this_process())

    assert isinstance(claimed, Claim)
    assert claimed.session == "good"


def test_a_field_that_a_newer_program_added_is_passed_over(path: Path) -> None:
    with open_store(path) as store:
        store.session("s").append({"role": "user", "content": "hello"})
        asked = store.journal.request("s").compaction
        assert asked is not None
    damage(path, "update compactions set rest = json_set(rest, '$.mood', 'calm')")

    with open_store(path) as store:
        assert store.journal.compaction("s", asked.id) == asked


def test_a_session_that_was_just_written_to_is_healed_with_its_row(path: Path) -> None:
    """The row is known from the transaction before, is taken away with the others, and has to be written anew."""
    with open_store(path) as store:
        session = store.session("a")
        session.append(talk(1))
        backend = store.journal.backend
        assert isinstance(backend, SqliteBackend)
        backend.write("a", lambda tx: tx.drop_input("a", min(tx.derived("a").inputs)))

        found = store.verify(fix=True).findings

        assert [f.repaired for f in found] == [True]
        assert store.verify().healthy
        assert session.state.last == max(r.number for r in session.read())
