"""`onefold copy`: sessions from one kind of store to another, killed and taken up again, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import onefold
from onefold import Record
from onefold.journal import agent_compactions, replication, turns
from onefold.journal.journal import Journal
from onefold.journal.replication import Copied
from onefold.journal.session_scan import scan_sessions
from onefold.messages import encode
from onefold.model import Claim, ClaimDenied, KeyUse, Segment
from tests.conftest import KINDS, StoppedClock, claimed, running, said, who
from tests.support import postgres_server
from tests.support.command_line import clean, run
from tests.support.helpers import restless
from tests.support.session_lives import fine, whole_life

DURABLE = [kind for kind in KINDS if kind != "memory"]
ODD = {"role": "user", "content": "nul \x00, lone \ud800", "big": -(2**80), "one": [1, 1.0, True, -0.0], "": None}


@pytest.fixture
def new_address(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Addresses of stores that are not there yet, by kind."""
    given: list[str] = []

    def make(kind: str) -> str:
        if kind == "postgres":
            given.append(postgres_server.new_address())
            return given[-1]
        folder = tmp_path / f"store-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return KINDS[kind](folder)

    yield make
    for address in given:
        postgres_server.drop(address)


def everything(address: str) -> None:
    """A store with all that can be in one."""
    whole_life(address)  # type: ignore[arg-type]  # any address will do
    with onefold.open(address) as store:
        store.session("odd").append(ODD, key="odd")
        watched = store.session("watched", keeper="agent")
        watched.append(said(1))
        watched.record_agent_compaction("agent", ["usage"])
        gone = store.session("gone")
        gone.append([said(n) for n in range(1, 5)])
        gone.alias("also-gone")
        gone.fork(id="orphan").append(said(1))
        store.delete("gone")
        store.session("waiting").queue_input(said(1), key="later")
        unfolded = store.session("unfolded")
        unfolded.append([said(n) for n in range(1, 9)])
        store.journal.commit(running(store.journal, "unfolded"), "all of it")
        unfolded.unfold()
        busy = store.session("busy")
        busy.append([said(n) for n in range(1, 9)])
        store.journal.request("busy")
        claimed(store.journal, "busy")
        turns.start(store.journal, "busy", who(), owner="gateway")


def content(address: str) -> dict[str, Any]:
    """All that a store says of its sessions, and of those that are gone."""
    with onefold.open(address, create=False) as store:
        backend = store.journal.backend
        found: dict[str, Any] = {"gone": backend.read(lambda tx: tx.tombstones(100, ""))}
        for id, _ in scan_sessions(backend):
            session = store.session(id, create=False)
            own = [*session.read(session.state.forked_at + 1)]
            texts = [encode(record.body) for record in own]
            derived = (session.state, session.segments(), session.compactions(), session.aliases(), session.pins())
            found[id] = (own, texts, *derived, session.notes(), session.context())
        return found


def healthy(address: str) -> bool:
    with onefold.open(address, create=False) as store:
        return store.verify().healthy


def bytes_of(*folders: Path) -> dict[str, str]:
    """Every file but the locks of stores of files, which whoever looks holds."""
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.name != "lock"}


def talk(address: str, session: str = "talk", messages: int = 30) -> None:
    with onefold.open(address) as store:
        store.session(session).append([said(n) for n in range(1, messages + 1)])


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a copy says to programs, sessions by their ids."""
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer | {"sessions": {one["session"]: one for one in answer["sessions"]}}


# ---------------------------------------------------------------------- all of it, between all kinds


@pytest.mark.parametrize("target", DURABLE)
@pytest.mark.parametrize("source", DURABLE)
def test_a_copy_has_everything_that_its_source_has(
    tmp_path: Path, new_address: Callable[[str], str], source: str, target: str
) -> None:
    one, other = new_address(source), new_address(target)
    everything(one)

    first = run(tmp_path, "copy", one, other, "--json")
    again = told(run(tmp_path, "copy", one, other, "--json"))

    assert first.returncode == 0, first.stderr
    assert content(other) == content(one)
    assert healthy(other)
    done = told(first)
    assert (done["made"], again["made"]) == (True, False)
    assert len(done["sessions"]) == 10
    assert done["deleted"] == [{"session": "gone", "ids": ["also-gone", "gone"], "new": True, "cause": None}]
    for before, after in zip(done["sessions"].values(), again["sessions"].values(), strict=True):
        assert before["new"] == before["verified"] == after["there"] == after["verified"] > 0
        assert (before["there"], after["new"], before["cause"]) == (0, 0, None)


@pytest.mark.parametrize("source", KINDS)
def test_a_store_in_memory_is_copied_to_and_from(new_address: Callable[[str], str], source: str) -> None:
    with onefold.open(new_address(source)) as one, onefold.open("memory:") as other:
        one.session("s").append([ODD, said(2)], key="k")
        one.session("s").fork(id="f")
        one.session("x")
        one.delete("x")

        done = [*_copy(one, other), *_copy(other, one)]
        buried = [*replication.copy_tombstones(one.journal.backend, other.journal)]

        assert [(c.session, c.new, c.there, c.cause) for c in done] == [
            ("s", 3, 0, None), ("f", 2, 0, None), ("s", 0, 3, None), ("f", 0, 2, None),
        ]  # fmt: skip
        assert [*other.session("f").read()] == [*one.session("f").read()]
        assert [b.new for b in buried] == [True]
        with pytest.raises(onefold.SessionNotFound, match="deleted"):
            other.session("x")


def _copy(one: onefold.Store, other: onefold.Store, *names: str) -> list[Copied]:
    source = one.journal.backend
    names_of = replication.wanted(source, names)
    return sorted(
        replication.copy(source, other.journal, names_of, lambda records: None), key=lambda c: -c.session.find("s")
    )


def test_the_summary_is_a_table_and_what_was_made_is_said(tmp_path: Path) -> None:
    talk(str(tmp_path / "a.db"))

    done = run(tmp_path, "copy", "a.db", "b.db")

    assert done.stderr == "onefold: made the store b.db\n"
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows == [
        ["sessions", "records"], ["copied", "1", "31"], ["already", "there", "0", "0"], ["differing", "0", "0"],
        ["verified", "1", "31"],
    ]  # fmt: skip


def test_named_sessions_are_copied_by_any_id_with_the_sessions_they_are_forks_of(tmp_path: Path) -> None:
    everything(str(tmp_path / "a.db"))

    done = told(run(tmp_path, "copy", "a.db", "b.db", "z-fork-of-the-fork", "--json"))
    alias = told(run(tmp_path, "copy", "a.db", "c.db", "also-talk", "orphan", "--json"))

    assert [*done["sessions"]] == ["talk", "a-fork", "z-fork-of-the-fork"]
    assert [*alias["sessions"]] == ["talk", "orphan"]
    assert done["deleted"] == []
    assert content(str(tmp_path / "b.db"))["talk"] == content(str(tmp_path / "a.db"))["talk"]


def test_each_segment_has_its_file_in_a_copy_in_plain_files(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    everything(f"{one}/")

    fine(run(tmp_path, "copy", f"{one}/", f"{other}/"))

    files = {str(p.relative_to(one)) for p in one.rglob("*.jsonl")}
    assert len(files) > 12
    assert {str(p.relative_to(other)) for p in other.rglob("*.jsonl")} == files


def test_nobody_holds_what_is_open_in_a_copy(tmp_path: Path, clock: StoppedClock) -> None:
    with onefold.open(tmp_path / "a.db", clock=clock) as one, onefold.open(tmp_path / "b.db", clock=clock) as other:
        one.session("s").append([said(n) for n in range(1, 7)])
        one.journal.request("s")
        claim = claimed(one.journal)
        _copy(one, other)

        assert isinstance(one.journal.claim("s", who("second")), ClaimDenied)
        assert other.journal.holder("s") is None
        second = claimed(other.journal, name="second")
        assert isinstance(second, Claim)
        assert (second.compaction, second.attempt) == (claim.compaction, 2)


# ---------------------------------------------------------------------- killed, and taken up again

_KILLED = """
import os, signal, sys
from onefold.cli import main
from onefold.journal import replication

where, left = sys.argv.pop(1), int(sys.argv.pop(1))
replication.MOST_RECORDS = 5

def deadly(real):
    def call(*arguments, **named):
        global left
        left -= 1
        if where == "after" and not left:
            real(*arguments, **named)
        return real(*arguments, **named) if left else os.kill(os.getpid(), signal.SIGKILL)
    return call

name = {"before": "ingest", "after": "ingest", "within": "_add", "verifying": "_is_same", "burying": "_wipe"}[where]
setattr(replication, name, deadly(getattr(replication, name)))
main()
"""


@pytest.mark.parametrize("target", DURABLE)
@pytest.mark.parametrize(
    ("where", "count"),
    [("before", 1), ("before", 9), ("after", 1), ("after", 12), ("within", 3), ("within", 47), ("verifying", 8),
     ("burying", 1)],
)  # fmt: skip
def test_a_copy_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, new_address: Callable[[str], str], target: str, where: str, count: int
) -> None:
    one, other = str(tmp_path / "a.db"), new_address(target)
    everything(one)
    before = content(one)

    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, where, str(count), "copy", one, other],
        env=clean(tmp_path), timeout=60, check=False, capture_output=True,
    )  # fmt: skip
    half = content(other)
    sound = healthy(other)
    done = told(run(tmp_path, "copy", one, other, "--json"))

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert sound
    assert len(half) < len(before) or half["gone"] != before["gone"] or half == before
    there = {id: one["there"] for id, one in done["sessions"].items() if one["there"]}
    assert there == {id: len(kept[0]) for id, kept in half.items() if id != "gone"}
    assert content(other) == before
    assert healthy(other)


def test_a_session_that_grew_gets_its_new_records(tmp_path: Path, new_address: Callable[[str], str]) -> None:
    one, other = str(tmp_path / "a.db"), new_address("files")
    talk(one)
    talk(one, "quiet")
    fine(run(tmp_path, "copy", one, other))
    with onefold.open(one) as store:
        store.session("talk").append(said(1))
        store.session("talk").compact()
        store.session("talk").undo()

    done = told(run(tmp_path, "copy", one, other, "--json"))["sessions"]

    assert (done["talk"]["there"], done["quiet"]["new"]) == (31, 0)
    assert done["talk"]["new"] == done["talk"]["last"] - 31 > 4
    assert content(other) == content(one)


def test_what_is_written_to_the_source_meanwhile_is_left_for_the_next_time(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        session = one.session("s")
        session.append([said(n) for n in range(1, 2000)], key="together")
        session.append([said(n) for n in range(1, 2000)])

        def more(records: int) -> None:
            session.append(said(1))
            one.session("new").append(said(1))

        source = one.journal.backend
        (done,) = replication.copy(source, other.journal, replication.wanted(source), more)
        (second, new) = sorted(_copy(one, other), key=lambda c: -c.last)

        assert (done.last, done.new, done.verified, done.cause) == (3999, 3999, 3999, None)
        assert (second.there, second.cause) == (3999, None)
        assert second.new == new.new - 1 > 10


# ---------------------------------------------------------------------- erased in the source since


@pytest.mark.parametrize("target", DURABLE)
def test_what_was_erased_since_the_last_copy_is_erased_in_the_copy_too(
    tmp_path: Path, new_address: Callable[[str], str], target: str
) -> None:
    one, other = str(tmp_path / "a.db"), new_address(target)
    everything(one)
    with onefold.open(one) as store:
        store.session("talk").append({"role": "user", "content": "my key is 98765"}, key="mine")
        store.session("talk").append([said(n) for n in range(1, 40)])
        assert store.session("talk").compact(trigger="manual").changed
        store.session("talk").fork(id="late").append(said(1))
    fine(run(tmp_path, "copy", one, other))
    with onefold.open(one) as store:
        session = store.session("talk")
        session.append(said(1))
        session.erase(next(r.number for r in session.read() if r.key == "mine"))
        session.append(said(1))

    would = told(run(tmp_path, "copy", one, other, "--dry-run", "--json"))["sessions"]
    done = told(run(tmp_path, "copy", one, other, "--json"))["sessions"]

    assert would["talk"]["erased"] == done["talk"]["erased"] >= 2, "the message, and the summary that covered it"
    assert [one["cause"] for one in done.values()] == [None] * 11
    assert content(other) == content(one)
    assert healthy(other)
    if target != "postgres":
        kept = list(Path(other).rglob("*")) if Path(other).is_dir() else [Path(other)]
        assert not any(b"98765" in path.read_bytes() for path in kept if path.is_file())


def test_what_is_erased_after_the_copy_began_is_erased_in_the_copy_too(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        session = one.session("s")
        session.append([said(n) for n in range(1, 9)])
        _copy(one, other)
        source = one.journal.backend
        began = replication.wanted(source)
        session.append(said(1))
        session.erase(3)

        (done,) = replication.copy(source, other.journal, began, lambda records: None)

        assert (done.erased, done.cause) == (1, None)
        assert [*other.session("s").read()] == [*session.read()]
        assert other.verify().healthy


def test_what_came_from_it_and_was_erased_with_it_is_erased_in_the_copy_too(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        session, journal = one.session("s"), one.journal
        call = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "98765"}
        (number,) = session.append(call, format="acp").numbers
        asked = {"question": "q", "method": "m", "params": {"toolCall": {"toolCallId": "c", "title": "98765"}}}
        journal.append("s", [journal.draft("question.asked", asked)])
        journal.fail(running(journal), "98765 is no summary", None)
        session.set_compaction_owner("agent")
        agent_compactions.record_agent_compaction(journal, "s", source="stream", said="they spoke of 98765")
        _copy(one, other)
        session.erase(number)

        (done,) = _copy(one, other)

        assert (done.erased, done.cause) == (4, None), "the call, the question, the cause, and what the agent told"
        assert [*other.session("s").read()] == [*session.read()]
        assert other.session("s").compactions() == session.compactions()
        assert "98765" not in str([*other.session("s").read()])
        assert other.verify().healthy


def test_what_is_erased_while_it_is_verified_is_said_and_mended_by_the_next_copy(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        session = one.session("s")
        session.append([said(n) for n in range(1, 9)])
        left = [3]
        source = one.journal.backend

        def seen(records: int) -> None:
            if left and other.session("s", create=False).state.last == 9:
                session.erase(left.pop())

        (done,) = replication.copy(source, other.journal, replication.wanted(source), seen)
        (again,) = _copy(one, other)

        assert (
            done.cause
            == "session 's': record 3 was erased in the source while it was copied; run the same command again"
        )
        assert (done.verified, again.erased, again.cause) == (0, 1, None)
        assert [*other.session("s").read()] == [*session.read()]


# ---------------------------------------------------------------------- others at work


def test_a_fork_that_is_made_while_the_copy_looks_round_finds_its_past_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        one.session("a").append(said(1))

        def look(session: str, tx: Any) -> replication.CopyPlan | None:
            found = real(session, tx)
            if session == "a":
                one.session("a").append([said(1), said(2)])
                one.session("a").fork(id="b")
            return found

        real = replication._want
        monkeypatch.setattr(replication, "_want", look)
        monkeypatch.setattr(replication, "scan_sessions", partial(scan_sessions, page=1))
        done = _copy(one, other)

        assert [(c.session, c.last, c.cause) for c in done] == [("a", 4, None), ("b", 6, None)]


def test_a_session_that_is_deleted_while_the_copy_looks_round_or_before_its_turn_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        for name in "abcd":
            one.session(name).append(said(1))

        def look(session: str, tx: Any) -> replication.CopyPlan | None:
            if session == "b":
                one.delete("c")
            return real(session, tx)

        def seen(records: int) -> None:
            if one.journal.backend.read(lambda tx: tx.deleted("d")) is None:
                one.delete("d")

        real = replication._want
        monkeypatch.setattr(replication, "_want", look)
        wanted = replication.wanted(one.journal.backend)
        done = [*replication.copy(one.journal.backend, other.journal, wanted, seen)]
        buried = [*replication.copy_tombstones(one.journal.backend, other.journal)]

        assert [w.session for w in wanted] == ["a", "b", "d"]
        assert [(c.session, c.new, c.cause) for c in done] == [("a", 2, None), ("b", 2, None)]
        assert [(b.session, b.new, b.cause) for b in buried] == [("c", True, None), ("d", True, None)]


def test_a_session_that_is_deleted_while_it_is_copied_is_said_so(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        one.session("a").append([said(n) for n in range(1, 9)])

        def seen(records: int) -> None:
            one.delete("a")

        wanted = replication.wanted(one.journal.backend)
        (done,) = replication.copy(one.journal.backend, other.journal, wanted, seen)
        (buried,) = replication.copy_tombstones(one.journal.backend, other.journal)

        assert done.cause is not None
        assert "gone from the source" in done.cause
        assert buried.cause is not None
        assert "Delete it there too" in buried.cause


def test_a_copy_in_which_every_look_is_followed_by_a_write_has_all_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{n:02}" for n in range(12)]
    monkeypatch.setattr(replication, "scan_sessions", partial(scan_sessions, page=2))
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        for name in names:
            one.session(name).append(said(1))
        with restless(one, names):
            done = _copy(one, other)

        assert sorted(c.session for c in done) == names
        assert [c.cause for c in done if c.cause is not None] == []
        assert [s.id for s in other.walk()] == names


def test_two_copies_at_once_end_as_one(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        session = one.session("s")
        session.append([said(n) for n in range(1, 9)])
        source = one.journal.backend
        began = replication.wanted(source)
        session.append(said(1))

        def second(records: int) -> None:
            inner.extend(_copy(one, other) if not inner else [])

        inner: list[Copied] = []
        (first,) = replication.copy(source, other.journal, began, second)
        (late,) = replication.copy(source, other.journal, began, lambda records: None)

        assert (inner[0].new, inner[0].verified, inner[0].cause) == (1, 10, None)
        assert (late.there, late.verified, late.cause) == (10, 10, None)
        assert first.cause is not None, "its target moved on under it, which it can only say"
        assert "somebody wrote to it meanwhile" in first.cause
        assert [*other.session("s").read()] == [*session.read()]


# ---------------------------------------------------------------------- what is refused


def test_a_session_that_went_its_own_way_is_refused_with_both_numbers_and_the_others_are_copied(
    tmp_path: Path, new_address: Callable[[str], str]
) -> None:
    one, other = str(tmp_path / "a.db"), new_address("files")
    talk(one, "apart")
    talk(one, "ahead")
    fine(run(tmp_path, "copy", one, other))
    for address, session, n in ((one, "apart", 3), (other, "apart", 1), (other, "ahead", 2)):
        talk(address, session, n)
    talk(one, "new")
    with onefold.open(one) as store:
        store.session("apart").fork(at=20, id="early fork")
        store.session("apart").fork(id="late fork")
    before = content(other)

    done = run(tmp_path, "copy", one, other)

    assert done.returncode == 1
    after = content(other)
    assert {id: after[id] for id in before} == before
    assert after.keys() == {*before, "new", "early fork"}
    assert "session 'late fork' is a fork of 'apart' at record 34, which was rejected" in done.stderr
    assert "It ends at record 34 in the source and at 32 in the target, and is the same up to 31" in done.stderr
    assert "It ends at record 31 in the source and at 33 in the target, and is the same up to 31" in done.stderr
    assert "differing             3" in done.stdout


def test_numbers_that_are_equal_and_not_the_same_differ(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        one.session("s").append({"n": 1}, format="json")
        _copy(one, other)

        def changed(tx: Any) -> None:
            record: Record = tx.record("s", 2)
            tx.rewrite("s", record, '{"n":1.0}')

        other.journal.backend.write("s", changed)
        (done,) = _copy(one, other)

        assert done.cause is not None
        assert "record 2 differs" in done.cause


@pytest.mark.parametrize(
    ("lie", "named"),
    [("key", "key 'k' is"), ("state", "its state is"), ("segment", "a segment is"), ("input", "an input is")],
)
def test_derived_rows_that_are_not_what_the_records_say_are_found(tmp_path: Path, lie: str, named: str) -> None:
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        one.session("s").append(said(1), key="k")
        one.session("s").append(said(2))

        def take_in(journal: Journal, session: str, records: Any, **named: Any) -> int:
            new = copying_take_in(journal, session, records, **named)
            journal.backend.write(session, lies[lie])
            return new

        lies: dict[str, Callable[[Any], None]] = {
            "key": lambda tx: tx.put_key("s", "k", KeyUse(2, 1, "another")),
            "state": lambda tx: tx.put_session(tx.session("s")._replace(messages=7)),
            "segment": lambda tx: tx.add_segment("s", Segment(9, 8, 1, "created", 0.0)),
            "input": lambda tx: tx.add_input("s", 2),
        }
        copying_take_in = replication.ingest
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(replication, "ingest", take_in)
            (done,) = _copy(one, other)

        assert done.cause is not None
        assert f"{named} not what its records say" in done.cause
        assert (done.new, done.verified) == (3, 0)


def test_a_record_that_does_not_come_back_the_same_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talk(str(tmp_path / "a.db"))

    def forgetful(journal: Journal, session: str, records: list[Record], **named: Any) -> int:
        return real(journal, session, [r._replace(actor="nobody") if r.number == 20 else r for r in records], **named)

    real = replication.ingest
    monkeypatch.setattr(replication, "ingest", forgetful)

    done = run(tmp_path, "copy", "a.db", "b.db")

    assert done.returncode == 1
    assert "record 20 differs" in done.stderr
    assert "verified              0        0" in done.stdout


def test_a_session_that_was_deleted_in_one_of_the_stores_is_refused_and_left(tmp_path: Path) -> None:
    one, other = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    for session in ("gone here", "gone there", "both"):
        talk(one, session)
    fine(run(tmp_path, "copy", one, other))
    for address, ids in ((one, ("gone here", "both")), (other, ("gone there", "both"))):
        with onefold.open(address) as store:
            for id in ids:
                store.delete(id)
    before = content(other)

    done = run(tmp_path, "copy", one, other)

    assert done.returncode == 1
    assert content(other) == before
    assert "session 'gone here' was deleted in the source" in done.stderr
    assert "session 'gone there' was deleted in the target, and its id stays taken" in done.stderr
    assert "both" not in done.stderr


def test_an_id_that_is_another_sessions_in_the_target_is_refused(tmp_path: Path) -> None:
    one, other = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    for address, session, alias in ((one, "s", "x"), (one, "y", "z"), (other, "x", "a"), (other, "b", "y")):
        talk(address, session)
        with onefold.open(address) as store:
            store.session(session).alias(alias)
    before = content(other)

    done = run(tmp_path, "copy", one, other)

    assert done.returncode == 1
    assert "session 'b' of the target has the alias 'y' already" in done.stderr
    assert "gives it another session's id for an alias" in done.stderr
    after = content(other)
    assert {id: after[id] for id in before} == before
    assert healthy(other)


def test_an_unknown_session_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    talk(str(tmp_path / "a.db"))

    done = run(tmp_path, "copy", "a.db", "b.db", "talk", "nobody")

    assert done.returncode == 2
    assert "no session 'nobody'" in done.stderr
    assert not (tmp_path / "b.db").exists()


@pytest.mark.parametrize("kind", DURABLE)
def test_a_store_is_not_copied_to_itself(tmp_path: Path, new_address: Callable[[str], str], kind: str) -> None:
    address = new_address(kind)
    talk(address)
    link = tmp_path / "link"
    if kind != "postgres":
        link.symlink_to(address.rstrip("/"))
    another = f"{address}&application_name=other" if kind == "postgres" else str(link)
    before = bytes_of(tmp_path)

    for target in (address, another):
        done = run(tmp_path, "copy", address, target)
        assert done.returncode == 2
        assert "the same store" in done.stderr

    assert bytes_of(tmp_path) == before


@pytest.mark.parametrize("place", ["memory:", "nowhere.db", "away/"])
def test_a_source_that_is_not_there_is_an_error_and_is_not_made(tmp_path: Path, place: str) -> None:
    done = run(tmp_path, "copy", place, "b.db")

    assert done.returncode == 2
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_a_target_that_cannot_be_written_is_an_error_and_is_left_as_it_is(
    tmp_path: Path, new_address: Callable[[str], str], kind: str
) -> None:
    one, other = str(tmp_path / "a.db"), new_address(kind)
    talk(one)
    talk(other, "first")
    talk(one, "second")
    full = "\n".join(
        ("import resource, signal", "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
         "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))", "from onefold.cli import main", "main()")
    )  # fmt: skip
    before = content(other)

    done = subprocess.run(
        [sys.executable, "-c", full, "copy", one, other],
        env=clean(tmp_path), timeout=60, check=False, capture_output=True, encoding="utf-8",
    )  # fmt: skip

    assert done.returncode == 2, done.stderr
    assert content(other) == before
    assert fine(run(tmp_path, "copy", one, other))
    assert content(other).keys() == {"gone", "talk", "first", "second"}


# ---------------------------------------------------------------------- what is not written


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_a_dry_run_says_what_would_be_and_writes_not_one_byte(
    tmp_path: Path, new_address: Callable[[str], str], kind: str
) -> None:
    one, other, none = new_address(kind), new_address(kind), new_address(kind)
    everything(one)
    fine(run(tmp_path, "copy", one, other, "other"))
    talk(one, "other")
    before = bytes_of(tmp_path)

    there = told(run(tmp_path, "copy", one, other, "--dry-run", "--json"))
    new = told(run(tmp_path, "copy", one, none, "--dry-run", "--json"))
    words = fine(run(tmp_path, "copy", one, none, "--dry-run"))

    assert bytes_of(tmp_path) == before
    assert not Path(none).exists()
    assert "TO does not exist; it would be created" in words
    assert (there["made"], new["made"]) == (False, True)
    assert [one["cause"] for one in there["sessions"].values()] == [None] * 10
    assert there["sessions"]["other"] | {"new": 30, "there": 31, "verified": 0} == there["sessions"]["other"]
    done = told(run(tmp_path, "copy", one, none, "--json"))
    for id, would in new["sessions"].items():
        assert would["new"] == done["sessions"][id]["new"]
    assert [b["new"] for b in new["deleted"]] == [b["new"] for b in done["deleted"]] == [True]


def test_a_dry_run_makes_no_store_on_a_server(tmp_path: Path, new_address: Callable[[str], str]) -> None:
    one, other = str(tmp_path / "a.db"), new_address("postgres")
    talk(one)

    assert "it would be created" in fine(run(tmp_path, "copy", one, other, "--dry-run"))
    with pytest.raises(onefold.StoreError, match="there is no store"):
        onefold.open(other, create=False)


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_nothing_of_the_source_is_written(tmp_path: Path, new_address: Callable[[str], str], kind: str) -> None:
    one, other = new_address(kind), new_address("sqlite")
    everything(one)
    before = bytes_of(Path(one).parent)

    fine(run(tmp_path, "copy", one, other))

    assert bytes_of(Path(one).parent) == before


def test_a_source_whose_derived_rows_are_damaged_is_not_mended_but_named(tmp_path: Path) -> None:
    talk(str(tmp_path / "a.db"))
    talk(str(tmp_path / "a.db"), "fine")
    with onefold.open(tmp_path / "a.db") as store:
        store.journal.backend.write("talk", lambda tx: tx.put_session(tx.session("talk")._replace(last=99)))  # type: ignore[union-attr]
    before = bytes_of(tmp_path)

    done = run(tmp_path, "copy", "a.db", "b.db")

    assert done.returncode == 1
    assert "repair it there: `onefold verify --fix`" in done.stderr
    assert before.items() <= bytes_of(tmp_path).items()
    assert content(str(tmp_path / "b.db")).keys() == {"gone", "fine"}


# ---------------------------------------------------------------------- how much at a time


def test_pages_and_parts_are_small_where_records_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def counted(journal: Journal, session: str, records: list[Record], **named: Any) -> int:
        taken.append(sum(len(encode(r.body)) for r in records))
        return real(journal, session, records, **named)

    def read(*arguments: Any) -> tuple[list[Record], int]:
        page, last = records(*arguments)
        pages.append(len(page))
        return page, last

    real, records, pages = replication.ingest, replication._records, list[int]()
    monkeypatch.setattr(replication, "ingest", counted)
    monkeypatch.setattr(replication, "_records", read)
    monkeypatch.setattr(replication, "MOST_BYTES", 100_000)
    with onefold.open(tmp_path / "a.db") as one, onefold.open(tmp_path / "b.db") as other:
        for n in range(60):
            one.session("s").append({"role": "user", "content": f"{n} " + "x" * 20_000})
        (done,) = _copy(one, other)

    assert (done.new, done.verified) == (61, 61)
    assert max(taken) < 130_000
    assert pages[0] == 16, "nothing is known of their size yet"
    assert max(pages[1:5]) == 5
    assert len(taken) > 10
