"""Talking with an agent from a terminal: a whole conversation in `onefold attach`, and `onefold say` for scripts."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import onefold
from onefold.model import MESSAGE
from tests.support.acp_clients import AGENT, Ran
from tests.support.command_line import program
from tests.support.servers import TOKEN
from tests.support.terminals import TerminalSession


def attached(ran: Ran, folder: Path, *options: str) -> TerminalSession:
    return TerminalSession(folder, "attach", "s", "--url", ran.url, *options, ONEFOLD_TOKEN=TOKEN)


def said(folder: Path, ran: Ran, *arguments: str) -> tuple[int, str, str]:
    done = program(folder, "say", *arguments, ONEFOLD_URL=ran.url, ONEFOLD_TOKEN=TOKEN)
    return done.returncode, done.stdout, done.stderr


def agent_pid(ran: Ran) -> int:
    """Of the agent, which is the one child that onefold has."""
    assert ran.process is not None
    (pid,) = Path(f"/proc/{ran.process.pid}/task/{ran.process.pid}/children").read_text().split()
    return int(pid)


def test_a_whole_conversation_without_leaving_the_terminal(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with Ran(tmp_path, "--family", "acp", "--state", str(state)) as ran, attached(ran, tmp_path) as terminal:
        terminal.until("is ready")

        terminal.type("[[say:hello there]]\r")
        terminal.until("hello there\n")

        terminal.type("[[ask:delete it all]]\r")
        terminal.until("the agent asks: delete it all")
        terminal.until("2  Deny")
        terminal.type("what?\r")
        terminal.until("type the number of an option")
        terminal.type("2\r")
        terminal.until("the answer was no")

        terminal.type("/compact\r")
        terminal.until("── compacting …")
        terminal.until("── compacted, seen by acp")

        terminal.type("[[hang]]\r")
        terminal.until("…> ")
        terminal.type("\x03")
        terminal.until("the turn was cancelled")

        os.kill(agent_pid(ran), signal.SIGKILL)
        terminal.until("the agent ended")
        terminal.until("the agent runs again")
        terminal.type("[[say:I am back]]\r")
        terminal.until("I am back\n")

        terminal.type("\x04")
        assert terminal.ended() == 0
        assert "Traceback" not in terminal.screen

    with onefold.open(tmp_path / "agent.db") as store:
        kinds = [r.kind for r in store.session("s", create=False).read()]
    assert kinds.count("question.settled") == 1
    assert kinds.count("compaction.committed") == 1


def test_undo_takes_the_last_prompt_back_and_redo_brings_it_again(tmp_path: Path) -> None:
    with Ran(tmp_path) as ran, attached(ran, tmp_path) as terminal:
        terminal.until("is ready")
        terminal.type("[[say:one]]\r")
        terminal.until("one\n")

        terminal.type("/undo\r")
        terminal.until("undo: 2 messages are hidden now")
        terminal.type("/redo\r")
        terminal.until("redo: 2 messages are back")


def test_who_comes_later_sees_what_was_said_and_hears_the_others(tmp_path: Path) -> None:
    with Ran(tmp_path) as ran, attached(ran, tmp_path) as ann:
        ann.until("is ready")
        ann.type("[[say:first answer]]\r")
        ann.until("first answer\n")
        with attached(ran, tmp_path) as ben:
            ben.until("» [[say:first answer]]")
            ben.until("first answer\n")
            ben.until("is ready")

            ann.type("[[say:second answer]]\r")

            ben.until("» [[say:second answer]]")
            ben.until("second answer\n")


def test_a_line_that_is_typed_stays_whole_while_others_speak(tmp_path: Path) -> None:
    with Ran(tmp_path) as ran, attached(ran, tmp_path) as terminal:
        terminal.until("is ready")
        terminal.type("half a li")
        terminal.until("> half a li")

        assert said(tmp_path, ran, "s", "[[say:somebody else]]")[0] == 0

        terminal.until("somebody else\n")
        terminal.until("> half a li")
        terminal.type("ne\x1b[D\x7fm\r")  # one to the left, and another letter
        terminal.until("you said: half a lime")


def test_a_server_that_comes_again_is_gone_on_with(tmp_path: Path) -> None:
    with Ran(tmp_path, "--state", str(tmp_path / "state.json")) as ran, attached(ran, tmp_path) as terminal:
        terminal.until("is ready")
        ran.again()
        terminal.until("was cut; trying again")
        terminal.until("the agent runs again")
        terminal.type("[[say:still here]]\r")
        terminal.until("still here\n")


def test_a_terminal_that_only_follows_ends_with_ctrl_c_and_says_nothing(tmp_path: Path) -> None:
    with Ran(tmp_path) as ran, attached(ran, tmp_path, "--follow") as terminal:
        terminal.until("agent.started")

        terminal.type("\x03")

        assert terminal.ended() == 0
        assert "Traceback" not in terminal.screen


# ---------------------------------------------------------------------- scripts


def test_say_prints_the_answer_and_nothing_else(tmp_path: Path) -> None:
    with Ran(tmp_path) as ran:
        assert said(tmp_path, ran, "s", "[[think:hm]] [[tool:read]] [[say:the answer]]") == (0, "the answer\n", "")

        code, out, _ = said(tmp_path, ran, "s", "[[say:again]]", "--json")
        assert (code, json.loads(out)) == (
            0,
            {"session": "s", "stop_reason": "end_turn", "text": "again", "cause": None},
        )


def test_say_that_is_refused_or_comes_to_nothing_is_exit_code_one(tmp_path: Path) -> None:
    with Ran(tmp_path, "--family", "plain") as ran:
        failed = said(tmp_path, ran, "s", "[[fail:no model]]")
        compacted = said(tmp_path, ran, "s", "/compact")

    assert (failed[0], failed[1], "no model" in failed[2]) == (1, "", True)
    assert (compacted[0], compacted[1], "no command by which" in compacted[2]) == (1, "", True)


def test_say_goes_on_when_the_server_was_away_and_says_it_once(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Ran(tmp_path, "--state", str(tmp_path / "state.json")) as ran:
        script = TerminalSession(
            tmp_path,
            "say",
            "s",
            f"[[say:begun]] [[wait:{go}]] [[say: and done]]",
            "--url",
            ran.url,
            ONEFOLD_TOKEN=TOKEN,
        )
        with script:
            script.until("begun")
            ran.again()
            go.touch()
            assert script.ended() in (0, 1)  # its turn was interrupted; what matters is that it ends, and says so
            assert "Traceback" not in script.screen
    with onefold.open(tmp_path / "agent.db") as store:
        prompts = [r for r in store.session("s", create=False).read() if r.kind == MESSAGE and "prompt" in r.body]
    assert len(prompts) <= 1


def test_say_needs_a_server_and_something_to_say(tmp_path: Path) -> None:
    assert program(tmp_path, "say", "s", "hello").returncode == 2
    assert program(tmp_path, "say", "s", " ", ONEFOLD_URL="http://127.0.0.1:9").returncode == 2


# ---------------------------------------------------------------------- running


def test_a_command_that_cannot_be_started_leaves_no_session(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    onefold.open(store).close()
    for command in (["no-such-command"], [str(tmp_path)], ["false"]):
        done = program(tmp_path, "run", "--store", store, "--port", "0", "--", *command)

        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    named = program(tmp_path, "run", "--store", store, "--port", "0", "--session", "mine", "--", "no-such-command")

    assert named.returncode == 2
    with onefold.open(store) as opened:
        assert list(opened.sessions()) == []


def test_an_agent_that_everybody_knows_needs_no_config(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    onefold.open(store).close()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "codex-acp").write_text(f'#!/bin/sh\nexec python3 {AGENT} "$@"\n')
    (programs / "codex-acp").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"

    with TerminalSession(tmp_path, "run", "--store", str(store), "--port", "0", "codex", PATH=path) as terminal:
        terminal.until("the agent codex runs at")
        terminal.until("talk to it: ONEFOLD_URL=")
        terminal.type("\x03")
        assert terminal.ended() == 0
        assert "Traceback" not in terminal.screen
        assert '{"at"' not in terminal.screen, "the log is for people, on a terminal"

    missing = program(tmp_path, "run", "--store", store, "--port", "0", "hermes", PATH=str(programs))
    assert missing.returncode == 2
    assert "'hermes-acp' or 'hermes' is not found" in missing.stderr
