"""The store of plain files: what its folders look like, what becomes of hand edits, and what it refuses."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import jsonschema_rs
import pytest

import onefold
from onefold import Session, Store, StoreDamaged, StoreError, StoreTooNew
from onefold.model import Json
from onefold.storage.jsonl import layout, store_lock
from onefold.storage.sqlite import path_checks
from tests.support.files_children import KillingDisk, everything, open_files, prepare
from tests.support.helpers import converse, kinds
from verification.kills import dies
from verification.operations import talk

FIRST = "0000000000.jsonl"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def made(root: Path) -> Path:
    """A store with session "a": six messages, a compaction, two more messages and an input. Its folder."""
    prepare(root)
    return root / "a"


def lines_of(file: Path) -> list[dict[str, Json]]:
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]]


def prints(root: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of change of every file of the sessions."""
    return {
        str(f.relative_to(root)): (f.read_bytes() if f.is_file() else b"", f.stat().st_mtime_ns)
        for f in root.rglob("*")
        if layout.OWN not in f.parts
    }


# ---------------------------------------------------------------------- what a person sees


def test_a_session_is_a_folder_that_is_read_from_top_to_bottom_with_no_tool(made: Path) -> None:
    files = sorted(f.name for f in made.iterdir())

    assert files == [FIRST, "0000000001.jsonl", "head.json"]
    first, second = lines_of(made / FIRST), lines_of(made / "0000000001.jsonl")
    assert [line["n"] for line in first + second] == list(range(1, len(first + second) + 1))
    assert first[1]["data"] == talk(1)[0]
    assert [line["kind"] for line in second][:2] == ["compaction.committed", "segment.opened"]
    assert second[1]["data"]["summary"] == "what was said"
    assert first[0]["session"] == second[0]["session"] == "a"
    assert json.loads((made / "head.json").read_text()) == {"session": "a", "file": "0000000001.jsonl", "segment": 11}


def test_every_line_is_what_the_schema_says(made: Path, root: Path) -> None:
    check = jsonschema_rs.validator_for(json.loads(Path(layout.__file__).with_name("schema.json").read_text()))
    with open_files(root) as store:
        session = store.session("a")
        session.append({"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]})  # fmt: skip
        session.pin(3)
        session.fork(id="f").append(talk(1))

    for file in root.glob("*/*.jsonl"):
        for line in lines_of(file):
            check.validate(line)


def test_files_and_folders_are_for_their_owner_alone(made: Path, root: Path) -> None:
    for path in (root, made, root / layout.OWN):
        assert path.stat().st_mode & 0o777 == 0o700
    for path in (*made.iterdir(), root / layout.OWN / layout.STORE):
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("id", ["Anna's chat", "../up", ".hidden", "a/b", "naïve", "x" * 512, "%41", "CON", "~home"])
def test_any_id_has_a_folder_of_its_own_inside_the_store(root: Path, id: str) -> None:
    with open_files(root) as store:
        store.session(id).append(talk(1))
        store.session("other").append(talk(2))

    folders = [f.name for f in root.iterdir() if f.name != layout.OWN]
    assert len(folders) == 2
    (root / layout.OWN / layout.INDEX).unlink()
    with open_files(root) as store:
        assert sorted(s.id for s in store.sessions()) == sorted([id, "other"])
        assert len(list(store.session(id).read())) == 2


ODD = [
    {"role": "user", "content": "line\u2028separator\u2029and\x85next\vline\fpage"},
    {"role": "user", "content": "NUL \x00 in the middle"},
    {"role": "user", "content": "half a character \ud83d"},
    {"n": 123456789012345678901234567890, "more": 5, "data": {"data": 1}},
    {"role": "user", "content": 'quotes ","data":{"x":1} and \\n'},
    {"role": "user", "content": "e\u0301 é \U0001f9ff"},
]


def test_odd_text_survives_a_reopening_and_a_new_index(root: Path) -> None:
    with open_files(root) as store:
        store.session("a").append(ODD)

    for remove_index in (False, True):
        if remove_index:
            (root / layout.OWN / layout.INDEX).unlink()
        with open_files(root) as store:
            assert [r.body for r in store.session("a").read(2)] == ODD
            assert store.verify().findings == ()


def test_a_line_of_60_mb_survives(root: Path) -> None:
    large = {"role": "user", "content": "x" * 60_000_000}
    with open_files(root) as store:
        store.session("a").append([large, talk(1)[0]])

    (root / layout.OWN / layout.INDEX).unlink()
    with open_files(root) as store:
        assert [r.body for r in store.session("a").read(2)] == [large, talk(1)[0]]


# ---------------------------------------------------------------------- a healthy folder


def test_a_healthy_folder_is_not_touched_by_opening_reading_and_verifying(made: Path, root: Path) -> None:
    before = prints(root)

    with open_files(root) as store:
        assert store.session("a").context().summary == "what was said"
        assert store.verify(fix=True).findings == ()

    assert prints(root) == before


def test_an_index_that_is_lost_damaged_or_of_another_store_is_made_anew(made: Path, root: Path) -> None:
    with open_files(root) as store:
        before = everything(store)
    files, index = prints(root), root / layout.OWN / layout.INDEX

    for damage in (index.unlink, partial(index.write_bytes, b"no database" * 100), partial(_of_another, root)):
        damage()
        with open_files(root) as store:
            assert everything(store) == before
            assert store.verify().findings == ()
    assert prints(root) == files


def _of_another(root: Path) -> None:
    said = json.loads((root / layout.OWN / layout.STORE).read_text())
    (root / layout.OWN / layout.STORE).write_text(json.dumps({**said, "incarnation": "another"}))


def test_a_store_that_an_older_program_made_is_taken_over_and_shut_to_that(
    made: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_files(root) as store:
        before = everything(store)
    files, says = prints(root), root / layout.OWN / layout.STORE
    now = json.loads(says.read_text())
    says.write_text(json.dumps({**now, "format": 1}))
    index = apsw.Connection(str(root / layout.OWN / layout.INDEX))
    index.pragma("user_version", 7)
    index.close()

    with open_files(root) as store:
        assert everything(store) == before
    assert json.loads(says.read_text()) == now
    monkeypatch.setattr(layout, "FORMAT", 1)
    with pytest.raises(StoreTooNew, match="Nothing was written"):
        open_files(root)
    assert prints(root) == files


def test_an_index_is_not_replaced_under_a_process_that_has_it_open(
    made: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lock, "_LOOKING", 0.05)
    with open_files(root) as store:
        _of_another(root)

        with pytest.raises(StoreDamaged, match="other processes have it open"):
            open_files(root)

        store.session("a").append(talk(1))


def test_a_head_that_is_missing_or_torn_is_written_again(made: Path, root: Path) -> None:
    head = made / "head.json"
    was = head.read_bytes()

    for damage in (head.unlink, partial(head.write_bytes, was[:10]), partial(head.write_bytes, b"")):
        damage()
        open_files(root).close()
        assert head.read_bytes() == was


# ---------------------------------------------------------------------- changed by hand


def _add(file: Path, *lines: Json) -> None:
    with file.open("a") as out:
        for line in lines:
            out.write((line if isinstance(line, str) else json.dumps(line)) + "\n")


def _by_hand(number: int, **other: Json) -> dict[str, Json]:
    return {"n": number, "id": f"hand-{number}", "at": 1_000_001, "kind": "message", "data": talk(1)[0], **other}


@pytest.mark.parametrize("while_open", [False, True])
def test_a_record_added_by_hand_at_the_end_is_taken(made: Path, root: Path, while_open: bool) -> None:
    newest = made / "0000000001.jsonl"
    last = lines_of(newest)[-1]["n"]
    if while_open:
        with open_files(root) as store:
            session = store.session("a")
            _add(newest, _by_hand(last + 1))
            session.append({"role": "user", "content": "after it"})
    else:
        _add(newest, _by_hand(last + 1))

    with open_files(root) as store:
        session = store.session("a")
        assert next(session.read(last + 1)).body == talk(1)[0]
        assert session.state.last == last + 1 + while_open
        assert store.verify().findings == ()


def test_a_line_changed_by_hand_is_told_with_its_number_and_the_rest_can_be_read(made: Path, root: Path) -> None:
    file = made / FIRST
    lines = file.read_text().split("\n")
    lines[3] = lines[3].replace('"kind":"message"', '"kind":"messag')
    file.write_text("\n".join(lines))
    before = prints(root)

    with open_files(root) as store:
        report = store.verify()

    assert not report.healthy
    assert any(f"{FIRST}, line 4" in f.found for f in report.findings), report.findings
    assert prints(root) == before

    (root / layout.OWN / layout.INDEX).unlink()
    with open_files(root) as store:
        assert [r.number for r in store.journal.read("a")] == [1, 2, 3]
        with pytest.raises(StoreDamaged, match=f"{FIRST}, line 4"):
            store.session("a").append(talk(1))
        assert any(f"{FIRST}, line 4" in f.found for f in store.verify().findings)
    assert file.read_text() == "\n".join(lines)

    lines[3] = lines[3].replace('"kind":"messag', '"kind":"message"')
    file.write_text("\n".join(lines))
    with open_files(root) as store:
        assert store.verify().findings == ()
        store.session("a").append(talk(1))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (_by_hand(99), "comes 99"),
        (_by_hand(17, kind="compaction.committed", data={"compaction": "never asked for"}), "makes no sense"),
        ("this is no JSON\n" + json.dumps(_by_hand(17)) + "\n" + json.dumps(_by_hand(18)), "not a record"),
        (_by_hand(17, session="b"), "of session 'b'"),
    ],
)
def test_what_is_added_by_hand_and_makes_no_sense_is_told_and_left_as_it_is(
    made: Path, root: Path, line: Json, why: str
) -> None:
    newest = made / "0000000001.jsonl"
    last, count = lines_of(newest)[-1]["n"], len(lines_of(newest))
    text = (
        (line if isinstance(line, str) else json.dumps(line)).replace("17", str(last + 1)).replace("18", str(last + 2))
    )
    _add(newest, text, json.dumps(_by_hand(last + 7)))
    written = newest.read_bytes()

    with open_files(root) as store:
        session = store.session("a")
        assert session.state.last == last
        with pytest.raises(StoreDamaged, match=f"line {count + 1}: .*{why}"):
            session.append(talk(1))
    assert newest.read_bytes() == written


def test_what_is_said_of_a_torn_file_is_true_of_its_context(
    made: Path, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = made / "0000000001.jsonl"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])

    with caplog.at_level(logging.WARNING), open_files(root) as store:
        session = store.session("a")
        with pytest.raises(StoreDamaged, match=r"0000000001\.jsonl, line"):
            session.context()
        assert [r.number for r in session.read(1, 4)] == [1, 2, 3]

    assert "it can be read where it is whole, and is not written to" in caplog.text


def test_records_that_are_gone_are_told_and_not_taken_for_an_end_f28(made: Path, root: Path) -> None:
    """F28: what cannot be found is no empty history, and nothing is written over it."""
    newest = made / "0000000001.jsonl"
    whole = newest.read_bytes()
    newest.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))

    with open_files(root) as store, pytest.raises(StoreDamaged, match="is gone or another one"):
        store.session("a").append(talk(1))

    newest.write_bytes(whole)
    with open_files(root) as store:
        store.session("a").append(talk(1))
        assert store.verify().findings == ()


def _edited(name: str, lines: list[str]) -> list[str]:
    match name:
        case "a word of the same length":
            lines[3] = lines[3].replace("words", "WORDS")
        case "a longer word":
            lines[3] = lines[3].replace("words", "many more words")
        case "a line gone":
            del lines[3]
        case "a line twice":
            lines.insert(3, lines[3])
        case "two lines in the other order":
            lines[3:5] = lines[4:2:-1]
        case "an empty line":
            lines.insert(3, "")
        case _:
            lines = [f"{line}\r" for line in lines]
    return lines


@pytest.mark.parametrize("file", [FIRST, "0000000001.jsonl"])
@pytest.mark.parametrize(
    "how",
    [
        "a word of the same length",
        "a longer word",
        "a line gone",
        "a line twice",
        "two lines in the other order",
        "an empty line",
        "other ends of lines",
    ],
)
def test_every_way_to_change_a_file_in_its_middle_is_told_with_its_line_and_nothing_is_written(
    root: Path, file: str, how: str
) -> None:
    with open_files(root) as store:
        session = store.session("a")
        session.append([{"role": "user", "content": f"words number {n}. " + "More of them. " * 40} for n in range(20)])
        assert session.compact(lambda m: "words of summary").applied
        session.append([{"role": "user", "content": f"words again {n}"} for n in range(5)])
    path = root / "a" / file
    whole = path.read_bytes()
    path.write_text("\n".join([*_edited(how, whole.decode().split("\n")[:-1]), ""]))
    before = prints(root)
    assert path.read_bytes() != whole

    with open_files(root) as store:
        found = [f.found for f in store.verify().findings]
        assert any(f"{file}, line " in f and ("as it was" in f or "cannot be read" in f) for f in found), found
        assert any(layout.INDEX in f for f in found), "it is not said how to take it as it is"
        assert not any("Nothing was" in f for f in found), "a read says nothing of what was written"
    assert prints(root) == before

    path.write_bytes(whole)
    with open_files(root) as store:
        assert store.verify().findings == ()
        store.session("a").append(talk(1))


def test_a_change_by_hand_is_taken_as_it_is_by_removing_the_index(made: Path, root: Path) -> None:
    """Somebody who takes a password out of a file by hand gets on with it."""
    file = made / FIRST
    file.write_text(file.read_text().replace(talk(1)[0]["content"], "nothing to see here"))
    (root / layout.OWN / layout.INDEX).unlink()

    with open_files(root) as store:
        assert store.verify().findings == ()
        assert next(store.session("a").read(2)).body["content"] == "nothing to see here"


def test_an_index_without_checksums_is_made_anew(made: Path, root: Path) -> None:
    index = apsw.Connection(str(root / layout.OWN / layout.INDEX))
    rows: list[Any] = index.execute("select place, body from records").fetchall()
    for at, where in rows:
        index.execute("update records set body = ? where place = ?", (where.rpartition(" ")[0], at))
    index.execute("delete from meta where name = 'places'")
    index.close()

    with open_files(root) as store:
        assert store.verify().findings == ()
        assert len(list(store.session("a").read())) > 10


def test_what_is_no_session_is_left_alone_and_in_peace(made: Path, root: Path) -> None:
    """A note beside the sessions, another one in a session's folder, a folder of git."""
    for path in (root / "notes.txt", made / "README.md", root / ".git" / "config", root / "drafts" / "one.md"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    before = prints(root)

    for remove_index in (False, True):
        if remove_index:
            (root / layout.OWN / layout.INDEX).unlink()
        with open_files(root) as store:
            assert [s.id for s in store.sessions()] == ["a"]
            assert store.verify(fix=True).findings == ()
    assert prints(root) == before


@pytest.mark.parametrize("remove_index", [False, True])
def test_a_copy_of_a_sessions_folder_is_told_and_not_taken_for_the_session(
    made: Path, root: Path, remove_index: bool
) -> None:
    shutil.copytree(made, root / "a.bak")
    (root / "a.bak" / "head.json").unlink()
    copied = prints(root / "a.bak")
    with open_files(root) as store:
        store.session("a").append(talk(1))
        before = everything(store)
    if remove_index:
        (root / layout.OWN / layout.INDEX).unlink()

    with open_files(root) as store:
        assert everything(store) == before
        (finding,) = store.verify(fix=True).findings
        assert "a.bak: it says that it is session 'a', whose folder is called a" in finding.found
        assert not finding.repaired
        store.session("a").append(talk(1))
    assert prints(root / "a.bak") == copied


@pytest.mark.parametrize("remove_index", [False, True])
def test_a_stray_file_with_an_old_base_is_told_and_left(made: Path, root: Path, remove_index: bool) -> None:
    with open_files(root) as store:
        converse(store.session("a"), 10)
        assert store.session("a").compact(lambda m: "another").applied
    stray = made / "0000000005.jsonl"
    shutil.copy(made / FIRST, stray)
    if remove_index:
        (root / layout.OWN / layout.INDEX).unlink()

    with open_files(root) as store:
        (finding,) = store.verify(fix=True).findings
        assert "a/0000000005.jsonl: it follows no segment of the session" in finding.found
        store.session("a").append(talk(1))
    assert stray.read_bytes() == (made / FIRST).read_bytes()


@pytest.mark.parametrize("remove_index", [False, True])
def test_a_stray_file_with_a_newer_base_is_told_and_nothing_is_written(
    made: Path, root: Path, remove_index: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be the newest of the session, whose middle is gone: so nobody writes over what it could be."""
    shutil.copy(made / FIRST, made / "0000000005.jsonl")
    if remove_index:
        (root / layout.OWN / layout.INDEX).unlink()
    files = prints(root)

    with open_files(root) as store:
        assert len([r for r in caplog.records if "0000000005.jsonl" in r.getMessage()]) <= 2
        assert any("0000000005.jsonl: no segment of this session" in f.found for f in store.verify().findings)
        with pytest.raises(StoreDamaged, match=r"0000000005\.jsonl"):
            store.session("a").append(talk(1))
    assert prints(root) == files


def test_a_second_successor_of_a_segment_cannot_be_linked(made: Path, root: Path) -> None:
    head = json.loads((made / "head.json").read_text())["segment"]
    with open_files(root) as store:
        session = store.session("a")
        os.link(made / "0000000001.jsonl", made / layout.file_name(head))

        with pytest.raises((StoreDamaged, onefold.StoreUnavailable)):
            session.compact(lambda m: "another")

    (made / layout.file_name(head)).unlink()
    with open_files(root) as store:
        assert store.verify().findings == ()
        assert store.session("a").compact(lambda m: "another").applied


# ---------------------------------------------------------------------- what a killed process leaves


def _killed(root: Path, act: Callable[[Session], Any], call: str, *, torn: bool = False) -> None:
    """Runs an act in a process that is killed before its first call of this name; torn, in the middle of it."""

    def run() -> None:
        disk = KillingDisk()
        session = open_files(root, disk).session("a")
        disk.arm(call=call, torn=torn)
        act(session)

    assert not dies(run)


def test_a_torn_line_is_cut_off_and_kept_beside_f29(made: Path, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """F29: a torn last line makes neither the next record unreadable nor the whole file."""
    newest = made / "0000000001.jsonl"
    whole = newest.read_bytes()
    _killed(root, lambda session: session.append({"role": "user", "content": "torn " * 50}), "write", torn=True)
    torn = newest.read_bytes().removeprefix(whole)
    assert torn
    assert not torn.endswith(b"\n")

    with caplog.at_level(logging.WARNING), open_files(root) as store:
        store.session("a").append({"role": "user", "content": "after it"})
        assert store.verify().findings == ()

    (kept,) = made.glob("*.torn-*")
    assert kept.read_bytes() == torn
    assert newest.read_bytes().startswith(whole + b'{"n":')
    assert "were not written whole" in caplog.text


def test_what_a_killed_process_left_is_settled_by_the_next_writer_without_reopening(made: Path, root: Path) -> None:
    with open_files(root, prefix="first") as store:
        session = store.session("a")
        last = session.state.last
        _killed(root, lambda other: other.append({"role": "user", "content": "durable, not in the index"}), "commit")
        assert session.state.last == last

        number = store.session("b").append(talk(1)).numbers[0]

        assert number == 2
        assert session.state.last == last + 1
        assert store.verify().findings == ()


def test_a_new_segment_that_was_not_linked_is_set_aside(made: Path, root: Path) -> None:
    _killed(root, lambda session: session.compact(lambda m: "never linked"), "link")
    assert [f for f in made.iterdir() if f.name.startswith(".new-")]

    with open_files(root) as store:
        session = store.session("a")
        assert session.context().summary == "what was said"
        (aside,) = made.glob("unfinished-*")
        assert "never linked" in aside.read_text()
        store.journal.cancel("a")  # of the dead process, whose lease is still in force
        assert session.compact(lambda m: "linked").applied


def test_no_write_that_empties_a_file_exists_so_none_can_be_lost_f22(made: Path, root: Path) -> None:
    """F22: a compaction changes no byte that was written before it, so what it folded cannot come back as live."""
    before = {f.name: f.read_bytes() for f in made.glob("*.jsonl")}

    with open_files(root) as store:
        session = store.session("a")
        converse(session, 6)
        session.compact(lambda m: "once more")
        shown = session.context().messages

    for name, text in before.items():
        assert (made / name).read_bytes().startswith(text)
    (root / layout.OWN / layout.INDEX).unlink()
    with open_files(root) as store:
        assert store.session("a").context().messages == shown


# ---------------------------------------------------------------------- what is refused


def test_a_network_file_system_is_refused(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / {tmp_path} rw - nfs4 server:/home rw\n")
    monkeypatch.setattr(path_checks, "MOUNTS", mounts)

    with pytest.raises(StoreError, match="network file system"):
        open_files(root)
    assert not root.exists()


def test_a_lock_that_keeps_nobody_out_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "lock_descriptor", lambda fd, *, blocking: True)

    with pytest.raises(StoreError, match="cannot be trusted"):
        open_files(root)


def test_a_folder_with_other_things_in_it_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")

    with pytest.raises(StoreError, match="holds other things"):
        open_files(tmp_path)
    assert [f.name for f in tmp_path.iterdir()] == ["thesis.tex"]


def test_no_store_is_made_by_accident(root: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        onefold.open(f"{root}/", create=False)
    assert not root.exists()


def test_the_ways_to_name_it(root: Path) -> None:
    onefold.open(f"files:{root}").close()

    for address in (f"{root}/", f"files:{root}", str(root), root):
        with onefold.open(address, create=False) as store:
            assert store.address == f"{root}/"


# ---------------------------------------------------------------------- many at once, copies, erasure


@pytest.fixture
def busy(made: Path, root: Path) -> Iterator[Store]:
    """A store that somebody else writes to all the time."""
    stop = threading.Event()
    with open_files(root, prefix="busy") as other, open_files(root, prefix="mine") as store:

        def write() -> None:
            session = other.session("busy")
            while not stop.is_set():
                session.append(talk(1))

        thread = threading.Thread(target=write)
        thread.start()
        yield store
        stop.set()
        thread.join(30)


def test_a_backup_is_one_view_of_each_session_while_others_write(busy: Store, root: Path, tmp_path: Path) -> None:
    busy.backup(tmp_path / "copy")

    with open_files(tmp_path / "copy") as copy:
        assert copy.generation != busy.generation
        assert copy.verify().findings == ()
        assert [*copy.session("a").read()] == [*busy.session("a").read()]
    with pytest.raises(StoreError, match="exists already"):
        busy.backup(tmp_path / "copy")


def test_a_reader_does_not_fail_when_an_erasure_writes_its_file_anew(made: Path, root: Path) -> None:
    with open_files(root, prefix="one") as one, open_files(root, prefix="two") as two:
        reading, session = two.session("a"), one.session("a")
        pages = reading.read(1)
        first = next(pages)
        failed: list[BaseException] = []
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                try:
                    assert [r.number for r in reading.read(1)][:8] == [1, 2, 3, 4, 5, 6, 7, 8]
                except BaseException as error:
                    failed.append(error)
                    return

        thread = threading.Thread(target=read)
        thread.start()
        for number in (2, 3, 4, 5):
            session.erase(number)
        stop.set()
        thread.join(30)

        assert first.number == 1
        assert not failed, failed
        assert kinds(session)[1:5] == ["erased"] * 4
        assert "word2x" not in (made / FIRST).read_text()


def test_threads_that_write_to_one_session_share_a_write(root: Path) -> None:
    with open_files(root) as store:
        session = store.session("a")
        threads = [threading.Thread(target=session.append, args=(talk(1, start=n),)) for n in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert session.state.last == 41
        assert store.verify().findings == ()
    (root / layout.OWN / layout.INDEX).unlink()
    with open_files(root) as store:
        assert sorted(r.body["content"] for r in store.session("a").read(2)) == sorted(
            talk(1, start=n)[0]["content"] for n in range(40)
        )


def test_what_is_deleted_leaves_no_folder_and_stays_deleted_without_the_index(made: Path, root: Path) -> None:
    with open_files(root) as store:
        store.session("a").alias("also-a")
        assert store.delete("a").wiped
    assert not made.exists()

    (root / layout.OWN / layout.INDEX).unlink()
    with open_files(root) as store:
        for id in ("a", "also-a"):
            with pytest.raises(onefold.SessionNotFound) as refused:
                store.session(id)
            assert refused.value.deleted
