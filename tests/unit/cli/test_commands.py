"""The real program, run as people and scripts run it: one story per command, and the ways it can go wrong."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import onefold
from onefold.cli.output import safe, safe_lines, short
from onefold.describe import words
from onefold.humanize import ago
from onefold.messages import decode
from onefold.model import Claim, Json, Record
from tests.support.command_line import ODD, assert_one_line, clean, program, run, talk

COMMANDS = (
    "demo", "init", "sessions", "show", "search", "context", "compact", "summarize", "cancel", "pin", "note", "undo",
    "unfold", "fork", "erase", "delete", "verify", "doctor", "backup", "export", "import", "copy", "mcp", "worker",
    "serve", "run", "attach", "say", "room", "token",
)  # fmt: skip
READING = (["sessions"], ["show", "talk"], ["context", "talk"], ["verify"], ["export", "talk"])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    talk(path)
    return path


# ---------------------------------------------------------------------- help


def test_the_help_lists_every_command_and_says_how_a_store_is_found(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")

    assert done.returncode == 0
    listed = done.stdout.split("Commands:")[1]
    assert [line.split()[0] for line in listed.strip().splitlines()] == list(COMMANDS)
    assert "..." not in listed, "a sentence in the list is cut off: make it shorter"
    assert "ONEFOLD_STORE" in done.stdout
    assert "Exit codes" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_says_what_it_prints_and_gives_an_example(tmp_path: Path, command: str) -> None:
    done = run(tmp_path, command, "--help")

    assert done.returncode == 0
    assert "--store" in done.stdout or command in ("copy", "doctor", "room", "say", "token"), (
        "given paths, or knows no store"
    )
    assert "rints " in done.stdout or command in ("doctor", "token")
    assert "Example" in done.stdout
    assert f"\n    onefold {command}" in done.stdout


def test_the_version_is_the_installed_one(tmp_path: Path) -> None:
    from importlib.metadata import version

    assert program(tmp_path, "--version").stdout == f"onefold {version('onefold')}\n"


def test_help_does_not_load_what_only_commands_need(tmp_path: Path) -> None:
    code = "import sys; import onefold.cli.app; print([m for m in ('rich', 'pydantic') if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("command", "prints"),
    [
        (["sessions"], "talk"),
        (["show", "talk"], "[ada] question 19"),
        (["context", "talk"], "40 messages"),
        (["compact", "talk"], "compacted talk: "),
        (["verify"], "41 records: everything agrees with the journal"),
        (["backup", "copy.db"], "copied agent.db to copy.db"),
        (["export", "talk"], '"number":41'),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_every_command_runs_as_a_program(store: Path, command: list[str], prints: str) -> None:
    done = program(store.parent, *command, ONEFOLD_STORE="agent.db")

    assert done.returncode == 0, done.stderr
    assert prints in done.stdout
    beside = {
        "export": "onefold: 41 records of 1 session written\n",
        "compact": "onefold: the summary is written by extract, without a model\n",
    }
    assert done.stderr == beside.get(command[0], "")


# ---------------------------------------------------------------------- which store


def test_the_option_goes_before_the_variable_before_the_config_before_the_default(tmp_path: Path) -> None:
    homes = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}
    for place in ("config/onefold", "data/onefold", "by-config"):
        (tmp_path / place).mkdir(parents=True)
    for name, path in {
        "option": "option.db",
        "variable": "variable.db",
        "config": "by-config/config.db",
        "default": "data/onefold/onefold.db",
    }.items():
        talk(tmp_path / path, session=name, turns=1)

    def seen(*arguments: str, **environment: str) -> list[str]:
        done = run(tmp_path, "sessions", "--json", *arguments, **homes, **environment)
        assert done.returncode == 0, done.stderr
        return [session["id"] for session in decode(done.stdout)]

    assert seen() == ["default"]

    (tmp_path / "config/onefold/config.toml").write_text(f'store = "{tmp_path}/by-config/config.db"\n')
    assert seen() == ["config"]
    assert seen(ONEFOLD_STORE="variable.db") == ["variable"]
    assert seen("--store", "option.db", ONEFOLD_STORE="variable.db") == ["option"]


def test_a_config_file_can_be_named_and_its_path_is_meant_from_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    talk(tmp_path / "elsewhere/agent.db", turns=1)
    (tmp_path / "elsewhere/my.toml").write_text('store = "agent.db"\n')

    done = run(tmp_path, "sessions", "--json", ONEFOLD_CONFIG="elsewhere/my.toml")

    assert done.returncode == 0, done.stderr
    assert decode(done.stdout)[0]["id"] == "talk"


@pytest.mark.parametrize(
    ("content", "word"), [(None, "does not exist"), ("store = ", "cannot be read"), ("store = 7", "in quotes")]
)
def test_a_config_file_that_makes_no_sense_is_one_clear_line(tmp_path: Path, content: str | None, word: str) -> None:
    if content is not None:
        (tmp_path / "my.toml").write_text(content)

    done = run(tmp_path, "sessions", ONEFOLD_CONFIG="my.toml")

    assert_one_line(done, 2, "my.toml", word)


@pytest.mark.parametrize("command", [*READING, ["compact", "talk"], ["backup", "copy.db"]], ids=lambda c: c[0])
def test_a_store_that_is_not_there_is_an_error_and_is_not_made(tmp_path: Path, command: list[str]) -> None:
    done = program(tmp_path, *command, "--store", "nowhere.db")

    assert_one_line(done, 2, "nowhere.db", "no store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["show", "context", "compact", "export"])
def test_an_unknown_session_is_named_and_nothing_is_written(store: Path, command: str) -> None:
    before = store.read_bytes()

    done = run(store.parent, command, "nobody", "--store", store)

    assert_one_line(done, 2, "'nobody'", "onefold sessions")
    assert store.read_bytes() == before


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary, " * 100)

    done = program(tmp_path, "sessions", "--store", "notes.txt")

    assert_one_line(done, 2, "not a database", "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "dear diary, " * 100


def test_another_programs_database_is_left_as_it_is(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "theirs.db") as theirs:
        theirs.execute("create table sessions (id text)")
    theirs.close()
    before = (tmp_path / "theirs.db").read_bytes()

    done = program(tmp_path, "verify", "--fix", "--store", "theirs.db")

    assert_one_line(done, 2, "another program's", "theirs.db")
    assert (tmp_path / "theirs.db").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["theirs.db"]


def test_a_store_in_memory_cannot_be_looked_at(tmp_path: Path) -> None:
    assert_one_line(run(tmp_path, "sessions", "--store", "memory:"), 2, "memory")


@pytest.mark.parametrize(
    "wrong",
    [
        ["show"],
        ["shwo", "talk"],
        ["show", "talk", "--from", "x"],
        ["show", "talk", "--from", "0"],
        ["sessions", "--no"],
    ],
    ids=" ".join,
)
def test_wrong_use_ends_with_2_and_points_to_the_help(tmp_path: Path, wrong: list[str]) -> None:
    done = run(tmp_path, *wrong)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "Try 'onefold" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_early_ends_it_quietly(store: Path) -> None:
    talk(store, session="long", turns=300)
    reader, writer = os.pipe()
    os.close(reader)

    for command in (["show", "long", "--full"], ["show", "long", "--json"], ["export", "--all"], ["sessions"]):
        done = subprocess.run(
            [sys.executable, "-m", "onefold", *command, "--store", str(store)],
            stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False, env=clean(store.parent),
        )  # fmt: skip

        assert done.stderr == b"", command
        assert done.returncode == 0, command
    os.close(writer)


def test_output_that_cannot_be_written_is_an_error_and_not_half_an_answer(store: Path) -> None:
    command = [sys.executable, "-m", "onefold", "export", "talk", "--store", str(store)]

    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, timeout=60, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith(b"onefold: could not read or write")
    assert done.stderr.count(b"\n") == 1
    assert closed.stderr == b"onefold: 41 records of 1 session written\n"


# ---------------------------------------------------------------------- sessions


def test_sessions_lists_the_latest_first_with_their_numbers(store: Path) -> None:
    talk(store, session="later", turns=3)

    table = run(store.parent, "sessions", "--store", store).stdout.splitlines()
    listed = decode(run(store.parent, "sessions", "--store", store, "--json").stdout)

    assert [line.split()[0] for line in table] == ["session", "later", "talk", "2"]
    assert table[2].split()[1:3] == ["40", "41"]
    assert [(s["id"], s["messages"], s["last"], s["segments"], s["committed"]) for s in listed] == [
        ("later", 6, 7, 1, 0),
        ("talk", 40, 41, 1, 0),
    ]
    assert listed[0]["doing"] == {"state": "idle", "holder": None, "compaction": None}
    assert len(decode(run(store.parent, "sessions", "--store", store, "--json", "--limit", 1).stdout)) == 1


def test_sessions_says_who_compacts_since_when_and_who_waits(store: Path) -> None:
    from onefold.compaction.holder import this_process

    with onefold.open(store) as opened:
        opened.session("waits").append({"role": "user", "content": "hello"})
        opened.journal.request("waits", trigger="threshold")
        opened.journal.request("talk")
        assert isinstance(opened.journal.claim("talk", this_process("tester")), Claim)

        table = run(store.parent, "sessions", "--store", store).stdout
        listed = decode(run(store.parent, "sessions", "--store", store, "--json").stdout)

    assert f":{os.getpid()}" in next(line for line in table.splitlines() if line.startswith("talk"))
    assert "compacting for" in table
    assert "waiting, threshold" in table
    assert {s["id"]: s["doing"]["state"] for s in listed} == {"talk": "compacting", "waits": "waiting"}
    assert listed[0]["doing"]["holder"]["agent"] == "tester"


def test_an_empty_store_has_no_sessions_and_that_is_fine(tmp_path: Path) -> None:
    onefold.open(tmp_path / "empty.db").close()

    assert "no sessions" in run(tmp_path, "sessions", "--store", "empty.db").stdout
    assert decode(run(tmp_path, "sessions", "--store", "empty.db", "--json").stdout) == []


# ---------------------------------------------------------------------- show


def test_show_tells_a_compaction_in_words(store: Path) -> None:
    with onefold.open(store, agent="tester") as opened:
        assert opened.session("talk").compact(instructions="keep the names").changed

    told = run(store.parent, "show", "talk", "--store", store, "--from", 40).stdout

    assert "asked for by tester, trigger manual: compact segment 1; instructions: keep the names" in told
    assert f":{os.getpid()} (tester) works on it" in told
    assert "is a summary now (by extract)" in told
    assert "→" in told
    assert "summary: - user (#2): question 0" in told


def test_show_gives_a_part_whole_or_as_json(store: Path) -> None:
    part = run(store.parent, "show", "talk", "--store", store, "--from", 2, "--to", 3).stdout.splitlines()
    whole = run(store.parent, "show", "talk", "--store", store, "--from", 3, "--to", 3, "--full").stdout
    listed = json.loads(run(store.parent, "show", "talk", "--store", store, "--json").stdout)

    assert len(part) == 3, "the date, and two records"
    assert part[1].endswith("user      [ada] question 0")
    assert part[2].endswith("…")
    assert "word " * 119 in whole
    with onefold.open(store) as opened:
        records = list(opened.session("talk").read())
    assert [(r["number"], r["key"], r["body"]) for r in listed] == [(r.number, r.key, r.body) for r in records]


def test_show_beyond_the_end_says_where_the_end_is(store: Path) -> None:
    assert "ends at #41" in run(store.parent, "show", "talk", "--store", store, "--from", 99).stdout
    assert_one_line(run(store.parent, "show", "talk", "--store", store, "--from", 9, "--to", 8), 2, "--to 8")


def test_show_flags_a_tool_result_without_its_call_and_context_leaves_it_out(store: Path) -> None:
    call: Json = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    with onefold.open(store) as opened:
        session = opened.session("tools")
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        session.append({"role": "tool", "tool_call_id": "c1", "content": "fine"})
        session.append({"role": "tool", "tool_call_id": "c9", "content": "of no call"})

    told = run(store.parent, "show", "tools", "--store", store).stdout
    # The call lies before the first record shown, and still counts.
    part = json.loads(run(store.parent, "show", "tools", "--store", store, "--from", 3, "--json").stdout)
    context = run(store.parent, "context", "tools", "--store", store).stdout

    assert told.count("! a tool result without its call") == 1
    assert told.index("of no call") < told.index("! a tool result")
    assert [r["orphan"] for r in part] == [False, True]
    assert "left out, without their call, replaced or only reasoning: #4" in context


@pytest.mark.parametrize("full", [[], ["--full"]])
def test_what_a_session_says_cannot_act_on_the_terminal(tmp_path: Path, full: list[str]) -> None:
    with onefold.open(tmp_path / "odd.db") as opened:
        opened.session("odd").append({"role": "user", "content": ODD})

    for command in ("show", "context"):
        done = run(tmp_path, command, "odd", "--store", "odd.db", *full)

        assert done.returncode == 0, done.stderr
        assert r"lone \ud800, red \x1b[31m, back \u202e, bell \x07, [bold]no[/bold] :smile:" in done.stdout
        assert not set("\x1b\u202e\x07") & set(done.stdout)


def test_a_terminal_is_not_attacked_by_a_session_either(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "odd.db") as opened:
        opened.session("odd").append({"role": "user", "content": ODD})
    parent, child = pty.openpty()

    done = subprocess.run(
        [sys.executable, "-m", "onefold", "show", "odd", "--store", "odd.db"],
        cwd=tmp_path, env=clean(tmp_path, TERM="xterm", COLUMNS="200"), stdin=child, stdout=child, stderr=child,
        timeout=60, check=False,
    )  # fmt: skip
    os.close(child)
    seen = os.read(parent, 65536).decode()
    os.close(parent)

    assert done.returncode == 0, seen
    assert r"\ud800, red \x1b[31m, back \u202e" in seen
    assert "\x1b[31m" not in seen


HOSTILE = "".join(map(chr, (*range(0x20), *range(0x7E, 0xA1), 0x61C, *range(0x200D, 0x2010), *range(0x2027, 0x2030))))
HOSTILE += "\u2065\u2066\u2067\u2068\u2069\u206a\ufeff \\u202e \U0001f600 ä \u4e2d"


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "odd", "--json"],
        ["context", "odd", "--json"],
        ["search", "needle", "--json"],
        ["sessions", "--json"],
        ["export", "odd"],
        ["export", "--all"],
    ],
    ids=" ".join,
)
def test_json_on_a_terminal_does_not_act_on_it_and_says_the_same(tmp_path: Path, arguments: list[str]) -> None:
    """L5: a C1 control is an escape sequence in one byte, and an override turns the rest of the line around. In a pipe
    every byte is as it always was."""
    with onefold.open(tmp_path / "odd.db") as opened:
        opened.session("odd").append({"role": "user", "content": f"needle {HOSTILE}"})
    command = [sys.executable, "-m", "onefold", *arguments, "--store", "odd.db"]
    parent, child = pty.openpty()

    piped = subprocess.run(command, cwd=tmp_path, env=clean(tmp_path), capture_output=True, check=True)
    with subprocess.Popen(
        command, cwd=tmp_path, env=clean(tmp_path, TERM="xterm"), stdout=child, stderr=subprocess.PIPE
    ) as shown:  # fmt: skip
        os.close(child)
        seen = b""
        with contextlib.suppress(OSError):  # a terminal that nobody writes to any more
            while part := os.read(parent, 65536):
                seen += part
        shown.communicate(timeout=60)
    os.close(parent)

    text = seen.decode().replace("\r\n", "\n")
    assert re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]", text) == []
    assert shown.returncode == 0
    if arguments[0] == "export":
        assert [json.loads(line) for line in text.splitlines()] == [
            json.loads(line) for line in piped.stdout.decode().split("\n")[:-1]
        ]
    else:
        assert json.loads(text) == json.loads(piped.stdout)
    if arguments[0] in ("show", "context", "export"):
        assert "\u202e".encode() in piped.stdout


def test_a_terminal_that_knows_only_ascii_gets_everything_spelled_out(store: Path) -> None:
    done = program(store.parent, "show", "talk", "--store", store, PYTHONIOENCODING="ascii")

    assert done.returncode == 0, done.stderr
    assert r"\u2026" in done.stdout


# ---------------------------------------------------------------------- context


def test_context_shows_the_fold_and_what_is_word_for_word(store: Path) -> None:
    with onefold.open(store) as opened:
        session = opened.session("talk")
        session.compact()
        expected = session.context()
        cut = session.state.cut

    told = run(store.parent, "context", "talk", "--store", store).stdout
    sent = decode(run(store.parent, "context", "talk", "--store", store, "--json").stdout)
    before = decode(run(store.parent, "context", "talk", "--store", store, "--json", "--segment", 1).stdout)

    assert f"segment {expected.segment}: {len(expected.messages)} messages, about {expected.tokens:,} tokens" in told
    assert f"folded: everything before #{cut}" in told
    assert "│ - user (#2): question 0" in told
    assert f"\n#{cut}" in told
    assert sent["messages"] == expected.messages
    assert sent["numbers"] == list(expected.numbers)
    assert len(before["messages"]) == 40
    assert_one_line(run(store.parent, "context", "talk", "--store", store, "--segment", 7), 2, "no segment 7")


def test_json_carries_exactly_what_was_stored(tmp_path: Path) -> None:
    body = {"role": "user", "content": ODD + "\x00", "big": 2**70, "line": "a\u2028b"}
    with onefold.open(tmp_path / "odd.db") as opened:
        opened.session("odd").append(body)

    shown = decode(run(tmp_path, "context", "odd", "--store", "odd.db", "--json").stdout)
    lines = run(tmp_path, "export", "odd", "--store", "odd.db").stdout.split("\n")

    assert shown["messages"] == [body]
    assert decode(lines[1])["body"] == body
    assert lines[2:] == [""]


# ---------------------------------------------------------------------- compact


def test_compact_says_what_changed_and_refuses_when_there_is_nothing_to_gain(store: Path) -> None:
    done = run(store.parent, "compact", "talk", "--store", store, "--instructions", "be brief")
    while (again := run(store.parent, "compact", "talk", "--store", store)).returncode == 0:
        assert "→" in again.stdout
    as_json = run(store.parent, "compact", "talk", "--store", store, "--json")

    assert done.returncode == 0, done.stderr
    assert "compacted talk: " in done.stdout
    assert "→" in done.stdout
    with onefold.open(store) as opened:
        session = opened.session("talk")
        first = session.segments()[1]
        assert f"{first.tokens_before:,} → {first.tokens_after:,} tokens" in done.stdout
        assert session.compactions()[0].instructions == "be brief"
    assert_one_line(again, 1, "was not changed", "no progress")
    assert_one_line(
        program(store.parent, "compact", "talk", "--store", store),
        1,
        "was not changed",  # and no log of it
    )
    assert as_json.returncode == 1
    assert decode(as_json.stdout)["changed"] is False


def test_compact_does_not_wait_longer_than_it_is_told_for_somebody_else(store: Path) -> None:
    from onefold.compaction.holder import this_process

    with onefold.open(store) as opened:
        opened.journal.request("talk")
        assert isinstance(opened.journal.claim("talk", this_process("tester")), Claim)

        done = run(store.parent, "compact", "talk", "--store", store, "--wait", 0.1)

        assert_one_line(done, 1, "not done after 0.1 s", f":{os.getpid()} works on it")
        assert opened.session("talk").compactions()[0].requests == 2


# ---------------------------------------------------------------------- verify


def test_verify_finds_damage_says_it_in_words_and_mends_it(store: Path) -> None:
    healthy = run(store.parent, "verify", "--store", store)
    damage(store)

    found = run(store.parent, "verify", "--store", store)
    as_json = run(store.parent, "verify", "--store", store, "--json")
    mended = run(store.parent, "verify", "--fix", "--store", store)
    after = run(store.parent, "verify", "--store", store)

    assert healthy.returncode == 0
    assert "1 session, 41 records: everything agrees with the journal" in healthy.stdout
    assert found.returncode == 1
    assert "wrong: session talk, session" in found.stdout
    assert "onefold verify --fix" in found.stdout
    assert as_json.returncode == 1
    report = decode(as_json.stdout)
    assert (report["healthy"], report["left"], report["records"]) == (False, 1, 41)
    assert report["findings"][0]["session"] == "talk"
    assert mended.returncode == 0
    assert "all repaired" in mended.stdout
    assert after.returncode == 0
    assert "healed: 1 derived row repaired: session" in run(store.parent, "show", "talk", "--store", store).stdout


def test_verify_cannot_mend_a_journal_with_a_gap_and_says_so(store: Path) -> None:
    with sqlite3.connect(store) as damaged:
        damaged.execute("delete from records where number = 5")
    damaged.close()

    done = run(store.parent, "verify", "--fix", "--store", store)

    assert done.returncode == 1
    assert "damaged: session talk, journal" in done.stdout
    assert "restore a backup" in done.stdout


def damage(path: Path) -> None:
    with sqlite3.connect(path) as damaged:
        damaged.execute("update sessions set messages = 7")
    damaged.close()


# ---------------------------------------------------------------------- backup and export


def test_backup_makes_a_whole_copy_and_overwrites_nothing(store: Path) -> None:
    done = run(store.parent, "backup", "copy.db", "--store", store)
    copy = (store.parent / "copy.db").read_bytes()
    again = run(store.parent, "backup", "copy.db", "--store", store)
    nowhere = run(store.parent, "backup", "no/folder/copy.db", "--store", store)

    assert done.returncode == 0, done.stderr
    assert "copy.db" in done.stdout
    assert_one_line(again, 1, "copy.db exists already")
    assert_one_line(nowhere, 2, "no folder")
    assert (store.parent / "copy.db").read_bytes() == copy
    assert run(store.parent, "verify", "--store", "copy.db").returncode == 0
    assert run(store.parent, "export", "talk", "--store", "copy.db").stdout == (
        run(store.parent, "export", "talk", "--store", store).stdout
    )


def test_a_backup_says_as_json_what_it_copied_and_where(store: Path) -> None:
    done = run(store.parent, "backup", "copy.db", "--store", store, "--json")

    assert done.returncode == 0, done.stderr
    size = (store.parent / "copy.db").stat().st_size
    assert json.loads(done.stdout) == {"store": str(store), "path": "copy.db", "bytes": size}


def test_export_writes_every_record_with_all_its_fields(store: Path) -> None:
    talk(store, session="other", turns=2)
    with onefold.open(store) as opened:
        opened.session("talk").compact()
        records = {s: list(opened.session(s).read()) for s in ("talk", "other")}

    lines = [decode(line) for line in run(store.parent, "export", "--all", "--store", store).stdout.split("\n") if line]
    one = run(store.parent, "export", "other", "--store", store).stdout

    fields = {"session", "number", "id", "kind", "at", "turn", "key", "actor", "format", "header", "body"}
    assert all(set(line) == fields for line in lines)
    for session, expected in records.items():
        exported = [line for line in lines if line["session"] == session]
        assert [line["number"] for line in exported] == list(range(1, len(expected) + 1))
        assert [(x["id"], x["kind"], x["at"], x["key"], x["actor"], x["body"]) for x in exported] == [
            (r.id, r.kind, r.at, r.key, r.actor, r.body) for r in expected
        ]
    assert one.count("\n") == len(records["other"])


def test_export_into_a_file_overwrites_nothing_and_leaves_no_half(store: Path) -> None:
    out = store.parent / "all.jsonl"

    done = run(store.parent, "export", "--all", "--out", out, "--store", store)
    written = out.read_text(encoding="utf-8")
    again = run(store.parent, "export", "--all", "--out", out, "--store", store)
    unknown = run(store.parent, "export", "talk", "nobody", "--out", "half.jsonl", "--store", store)

    assert done.returncode == 0
    assert done.stdout == ""
    assert "41 records of 1 session" in done.stderr
    assert written == run(store.parent, "export", "talk", "--store", store).stdout
    assert_one_line(again, 1, "exists already")
    assert out.read_text(encoding="utf-8") == written
    assert_one_line(unknown, 2, "'nobody'")
    assert not (store.parent / "half.jsonl").exists()


@pytest.mark.parametrize("arguments", [[], ["talk", "--all"]])
def test_export_needs_to_know_what_to_export(store: Path, arguments: list[str]) -> None:
    assert_one_line(run(store.parent, "export", *arguments, "--store", store), 2, "--all")


# ---------------------------------------------------------------------- words, without a process


def test_texts_are_made_safe_and_short() -> None:
    assert safe("a\x1b[0m\u2066\udfff\x85\ufeff") == r"a\x1b[0m\u2066\udfff\x85\ufeff"
    assert safe("grüße 你好 👍") == "grüße 你好 👍"
    assert safe_lines("a\r\nb\u2028c\td") == ["a", r"b\u2028c d"]
    assert short("  a \n b  ", 10) == "a b"
    assert short("abcdef", 4) == "abc…"
    assert short("x" + " " * 1000, 4).startswith("x")
    assert short("", 4) == ""


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.2, "just now"), (59, "59 s ago"), (61, "1 min ago"), (7300, "2 h ago"), (86_400 * 3, "3 d ago"),
     (86_400 * 800, "2 y ago"), (-5, "in the future")],
)  # fmt: skip
def test_a_time_is_told_in_one_unit(seconds: float, expected: str) -> None:
    assert ago(1_000_000_000 - seconds, 1_000_000_000) == expected


@pytest.mark.parametrize("body", [None, [], 7, {}, {"holder": 1}, {"findings": 3}])
@pytest.mark.parametrize("kind", ["compaction.started", "segment.opened", "healed", "compaction.failed", "unheard.of"])
def test_a_record_that_makes_no_sense_is_still_shown(kind: str, body: Json) -> None:
    assert words(Record(1, "id", kind, 0.0, body)) is not None


# ---------------------------------------------------------------------- what a model takes


@pytest.mark.parametrize(
    ("config", "options", "window"),
    [
        ("", [], None),
        ("", ["--window", "5000"], 5_000),
        ("[limits]\nwindow = 9000\n", [], 9_000),
        ("[limits]\nwindow = 9000\nsoft = 0.5\nhard = 0.8\noutput = 100\n", ["--window", "5000"], 5_000),
    ],
)
def test_compact_says_which_window_it_goes_by_and_that_of_the_session_comes_first(
    tmp_path: Path, config: str, options: list[str], window: int | None
) -> None:
    (tmp_path / "config.toml").write_text(config)
    path = tmp_path / "agent.db"
    for id in ("known", "unknown"):
        talk(path, session=id)
    with onefold.open(path) as store:
        store.session("known").go_by(onefold.Limits(7_000, 100))

    said = {
        id: run(tmp_path, "compact", id, "--store", path, "--json", *options, ONEFOLD_CONFIG="config.toml")
        for id in ("known", "unknown")
    }

    assert json.loads(said["known"].stdout)["window"] == 7_000
    assert json.loads(said["unknown"].stdout)["window"] == window


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("limits = 5", "make it a section"),
        ("[limits]\nwindw = 5\n", "make it a section"),
        ("[limits]\noutput = 5\n", "window is missing"),
        ("[limits]\nwindow = 500\nsoft = 2\n", "soft < hard <= 1"),
        ('[limits]\nwindow = "much"\n', "config.toml"),
    ],
)
def test_limits_in_the_config_file_that_make_no_sense_are_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, why: str
) -> None:
    from onefold.cli.options import WrongUse, policy

    monkeypatch.setenv("ONEFOLD_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text(config)

    with pytest.raises(WrongUse, match=why):
        policy(None)
