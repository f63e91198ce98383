"""What must be in no file: passwords, environments, keys of MCP servers, and whatever a hook takes out."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onefold.acp import supervisor
from onefold.acp.agent_config import Agent, Agents, AgentUnusable, adhoc, agents, shown
from onefold.acp.room_errors import RequestRejected
from onefold.jsonrpc import Frame, notification, parse, text
from onefold.model import AGENT_ENDED, AGENT_STARTED, COMMITTED, TURN_SETTLED
from onefold.server.run import JsonLines
from tests.support.acp_clients import AGENT, Place, Ran, Refusal, Remote, blocks, is_method, place
from tests.support.hard_rooms import attached, kept
from tests.support.rooms import answer, messages, records, run

SECRET = "swordfish"


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    """The log, as a server writes it, with all that can be had."""
    stream, logger = io.StringIO(), logging.getLogger("onefold")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield stream
    logger.setLevel(level)
    logger.removeHandler(handler)


def bytes_of(folder: Path) -> bytes:
    """All that is in the store's files, the search index and the frames."""
    return b"".join(p.read_bytes() for p in folder.rglob("agent.db*") if p.is_file())


def all_frames(there: Place, session: str) -> str:
    """Frames are compressed, so bytes alone would say nothing."""
    return "\n".join(line for _, line in kept(there, session, "in", "out", "err", "note", "old"))


def using(there: Place, redact: Any) -> None:
    there.host.redact = redact
    there.host.agents = replace(there.host.agents, redact=redact)


def without_it(frame: Frame) -> Frame | None:
    (clean,) = parse(text(frame).replace(SECRET, "***"))
    return clean


def test_what_logs_in_and_what_is_set_for_agents_and_servers_is_in_no_file(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path, "--locked") as there:
            command = (sys.executable, str(AGENT), "--locked", "--log", str(tmp_path / "log"))
            agent = Agent("scripted", command, env={"KEY": f"env-{SECRET}"}, folders=("/",), mcp_servers=True)
            there.host.agents = Agents({"scripted": agent})
            servers = [
                {"name": "one", "command": "x", "args": [], "env": [{"name": "K", "value": f"mcp-{SECRET}"}]},
                {"name": "two", "type": "http", "url": "http://x", "headers": [{"name": "A", "value": SECRET}]},
            ]
            ann = there.client(agent="scripted")
            await ann.ask("initialize", protocolVersion=1)
            with pytest.raises(Refusal, match="log in first"):
                await ann.ask("session/new", cwd="/", mcpServers=servers)
            welcome = await ann.ask("authenticate", methodId="key", secret=f"auth-{SECRET}")
            assert SECRET in str(welcome)
            session = (await ann.ask("session/new", cwd="/", mcpServers=servers))["sessionId"]
            await ann.prompt(session, "[[say:hello]]")

            received = (tmp_path / "log").read_text()
            assert f"auth-{SECRET}" in received
            assert f"mcp-{SECRET}" in received
            frames = all_frames(there, session)
            assert "session/new" in frames
            assert '"two"' in frames
            assert SECRET not in frames
            assert SECRET not in str(records(there, session))
        assert SECRET.encode() not in bytes_of(tmp_path)

    run(work)


def test_the_hook_redacts_all_that_is_kept_and_nothing_that_is_passed_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            using(there, without_it)
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, f"[[say:the word is {SECRET}]] [[stderr:it is {SECRET}]] [[tool:{SECRET}]]")
            assert SECRET in ann.said
            asking = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[ask:{SECRET}?]]"))
            (question,) = await ann.until(is_method("session/request_permission"))
            assert SECRET in str(question.params)
            said = answer(question, "yes")
            await ann.put(Frame({**said.body, "result": {**said.body["result"], "_meta": {"note": SECRET}}}))
            await asking
            await ann.prompt(session, f"/compact keep {SECRET}")
            with pytest.raises(Refusal, match=SECRET):
                await ann.prompt(session, f"[[fail:no {SECRET}]]")
            with pytest.raises(Refusal, match="the agent ended"):
                await ann.prompt(session, f"[[stderr:dying of {SECRET}]] [[die]]")

            assert "***" in all_frames(there, session)
            assert SECRET not in all_frames(there, session)
            assert SECRET not in str(records(there, session))
            (first, *_) = messages(there, session)
            assert "***" in str(first)
        assert SECRET.encode() not in bytes_of(tmp_path)

    run(work)


def test_the_hook_sees_the_summary_that_an_agent_tells(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            using(there, lambda frame: Frame(parse(text(frame).replace("what was said", "***"))[0].body))
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[compact]]")
            (mark,) = (r.body for r in records(there, session) if r.body.get("source") == "observed")
            assert mark["said"] == "the summary of *** so far"

    run(work)


@pytest.mark.parametrize("how", ["raises", "nothing", "nonsense"])
def test_a_hook_that_fails_keeps_nothing_and_ends_nothing(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(frame: Frame) -> Any:
        if SECRET not in text(frame):
            return frame
        if how == "raises":
            raise RuntimeError("the hook has a bug")
        return None if how == "nothing" else {"not": "a frame"}

    async def work() -> None:
        async with place(tmp_path) as there:
            using(there, broken)
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            for _ in range(2):
                ended = await ann.prompt(session, f"[[say:{SECRET}]] [[stderr:{SECRET}]] [[tool:{SECRET}]]")
                assert ended["stopReason"] == "end_turn"
            await ann.prompt(session, f"/compact {SECRET}")
            await ann.prompt(session, "[[say:and on]]")
            await ben.until(is_method("onefold/turn_settled"), count=4)

            assert ann.said.endswith("and on")
            assert ann.said.count(SECRET) == ben.said.count(SECRET) == 2
            assert SECRET not in all_frames(there, session)
            assert SECRET not in str(records(there, session))
            assert [r.body["outcome"] for r in records(there, session) if r.kind == TURN_SETTLED] == ["settled"] * 4
            cid, _ = await attached(there, session, after=0)  # and the frames can still be read
            await cid.until(is_method("onefold/turn_settled"), count=4)
        assert SECRET.encode() not in bytes_of(tmp_path)

    with caplog.at_level(logging.ERROR, "onefold.acp"):
        run(work)
    complaints = [r for r in caplog.records if "redact hook failed" in r.getMessage()]
    assert len(complaints) == (1 if how == "raises" else 0)
    assert not [r for r in caplog.records if "a step in a room failed" in r.getMessage()]


def test_a_prompt_that_only_a_hook_knows_is_still_one_after_a_restart(tmp_path: Path) -> None:
    """What waits was kept without its secret: after a restart the agent gets what is left of it."""

    async def work() -> None:
        state = ("--state", str(tmp_path / "state"))
        async with place(tmp_path, *state) as there:
            using(there, without_it)
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            await ann.send("session/prompt", sessionId=session, prompt=blocks("[[hang]]"))
            await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[say:{SECRET}]]"))
            await ben.until(lambda f: f.method == "onefold/queue_changed" and "***" in str(f.params))
        async with place(tmp_path, *state) as there:
            using(there, without_it)
            ben = there.client()
            await ben.ask("session/attach", sessionId=session, after=1)
            await ben.until(lambda f: f.method == "onefold/turn_settled" and f.params["outcome"] == "settled")
            assert ben.said == "***"

    run(work)


# ---------------------------------------------------------------------- what an agent says on stderr


def test_the_last_lines_of_an_agent_that_dies_are_in_the_frames_and_nowhere_else(
    tmp_path: Path, log_lines: io.StringIO
) -> None:
    """Agents log prompts and keys; the log of onefold has neither, and those who only look on see no more of it."""

    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            with pytest.raises(Refusal, match=r"the agent ended: it ended with exit code 1$"):
                await ann.prompt(session, f"[[stderr:the prompt was {SECRET}]] [[die:1]]")
            await ann.prompt(session, "[[say:on]]")
            cid, shot = await attached(there, session, history="all")

            told = [r.body for r in records(there, session) if r.kind in (AGENT_ENDED, TURN_SETTLED)]
            assert told[0] == {**told[0], "outcome": "interrupted", "cause": "it ended with exit code 1"}
            assert told[1] == {"code": 1, "signal": None, "cause": "it ended with exit code 1"}
            assert SECRET not in str(told)
            notes = [f.body for client in (ann, ben, cid) for f in client.heard if str(f.method).startswith("onefold/")]
            assert "exit code 1" in str(notes)
            assert SECRET not in str([note for note in notes if note["method"] != "onefold/queue_changed"])
            assert SECRET not in str(shot["agent"])
            assert [line for _, line in kept(there, session, "err") if SECRET in line]

    run(work)

    assert '"cause":"it ended with exit code 1"' in log_lines.getvalue()
    assert SECRET not in log_lines.getvalue()


@pytest.mark.parametrize("broken", ["session/new", "session/load"])
def test_what_an_agent_answers_at_its_start_is_in_no_log(
    tmp_path: Path, broken: str, log_lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as: incorrect API key provided, and the key."""
    agent = tmp_path / "agent.py"
    agent.write_text(REFUSES % {"broken": broken, "word": SECRET})
    monkeypatch.setattr(supervisor, "GIVE_UP", 1)

    async def work() -> None:
        async with place(tmp_path) as there:
            room = await there.host.open("s", Agent("x", (sys.executable, str(agent))), cwd="/")
            if broken == "session/new":
                with pytest.raises(RequestRejected, match=SECRET):  # who starts it has to know
                    await room.ready()
            else:
                await room.ready()
                await there.host.shut("s", "again")
                await (await there.host.open("s", Agent("x", (sys.executable, str(agent))), cwd="/")).ready()

    run(work)

    assert f"{broken} with the error -32603" in log_lines.getvalue()
    assert SECRET not in log_lines.getvalue()


REFUSES = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    said = {"result": {"protocolVersion": 1, "sessionId": "own", "agentCapabilities": {"loadSession": True}}}
    if asked["method"] == "%(broken)s":
        said = {"error": {"code": -32603, "message": "%(word)s"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), **said}), flush=True)
"""


# ---------------------------------------------------------------------- what an agent is not handed


SUMMARIZER = {
    "kind": "openai",
    "model": "m",
    "api_key_env": "FIRST_KEY",
    "fallback": [
        {"kind": "openai", "model": "n", "api_key_env": "SECOND_KEY", "fallback": {"api_key_env": "THIRD_KEY"}}
    ],
}
OURS = ("ONEFOLD_TOKEN", "ONEFOLD_ANYTHING", "FIRST_KEY", "SECOND_KEY", "THIRD_KEY")


def test_an_agent_does_not_inherit_what_is_onefolds_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*OURS, "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, f"{name}-{SECRET}")
    command = [sys.executable, str(AGENT)]
    tables = {
        "plain": {"command": command},
        "trusted": {"command": command, "pass_env": ["ONEFOLD_TOKEN", "THIRD_KEY"]},
    }
    named = agents({"agents": tables, "summarizer": SUMMARIZER})

    async def work() -> None:
        async with place(tmp_path) as there:
            there.host.agents = named
            found = {}
            for agent in (*named.known.values(), adhoc(command)):
                await there.host.open(agent.name, agent, cwd="/")
                ann, _ = await attached(there, agent.name)
                await ann.prompt(agent.name, "".join(f"[[env:{name}]]" for name in os.environ))
                found[agent.name] = {name for name in os.environ if f"{name}={os.environ[name]}" in ann.said}

            assert found["plain"] & set(OURS) == set()
            assert found["trusted"] & set(OURS) == {"ONEFOLD_TOKEN", "THIRD_KEY"}
            assert found[adhoc(command).name] & set(OURS) == set()
            assert {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "PATH"} <= found["plain"]

    run(work)


def test_an_agent_under_onefold_run_cannot_answer_its_own_question_with_the_servers_token(tmp_path: Path) -> None:
    async def work() -> None:
        with Ran(tmp_path) as served:
            ann = Remote(served)
            try:
                await ann.prompt("s", "[[env:ONEFOLD_TOKEN]]")
                assert ann.said == "ONEFOLD_TOKEN=None"
            finally:
                await ann.close()

    run(work)


@pytest.mark.parametrize("wrong", ["ONEFOLD_STORE", [1], [""], {"a": "b"}])
def test_what_is_no_list_of_variables_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(AgentUnusable, match=r"agents\.one\.pass_env is a list of names"):
        agents({"agents": {"one": {"command": "x", "pass_env": wrong}}})


# ---------------------------------------------------------------------- what an agent says of others


def said_of(session: str, word: str) -> list[str]:
    """Everything that an agent may say unasked, of one of its sessions."""
    words = {"type": "text", "text": word}
    updates: list[dict[str, Any]] = [
        {"sessionUpdate": "agent_message_chunk", "content": words},
        {"sessionUpdate": "agent_thought_chunk", "messageId": "m", "content": words},
        {"sessionUpdate": "tool_call", "toolCallId": word, "title": word, "status": "completed"},
        {"sessionUpdate": "usage_update", "used": 1, "size": 2, "_meta": {"word": word}},
        {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": word, "description": word}]},
        {"sessionUpdate": "session_info_update", "title": word},
        {"sessionUpdate": "compaction_update", "compactionId": word, "status": "completed"},
    ]
    frames = [notification("session/update", {"sessionId": session, "update": update}) for update in updates]
    return [text(frame) for frame in (*frames, notification("_more/news", {"sessionId": session, "news": word}))]


def test_what_an_agent_says_of_another_session_is_neither_shown_nor_recorded_as_the_rooms(tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "state"), "--ids", "own")
    others = tmp_path / "others"

    async def work() -> None:
        async with place(tmp_path, *state) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            own = there.host.rooms[session].process.session or ""
            others.write_text("\n".join([*said_of("a-subagent", SECRET), *said_of(own, "mine")]))
            await ann.prompt(session, f"[[raw:{others}]] [[say:. the end]]")
            late, shot = await attached(there, session, history="all")
            again, _ = await attached(there, session, after=0)
            await again.until(is_method("onefold/turn_settled"))

            assert ann.said == "mine. the end"
            for client in (ann, late, again):
                assert SECRET not in str([frame.body for frame in client.heard])
            assert "mine" in str([frame.body for frame in late.heard])
            assert SECRET not in str(shot)
            assert SECRET not in str(records(there, session))
            assert "'toolCallId': 'mine'" in str(records(there, session))
            assert len(kept(there, session, "other")) == len(said_of("a-subagent", SECRET))
            assert SECRET in str(kept(there, session, "other"))
            kinds = [record.kind for record in records(there, session)]
            assert kinds.count(COMMITTED) == 1
            others.write_text("\n".join(said_of("a-subagent", SECRET)))
            await ann.prompt(session, f"[[raw:{others}]]")
        async with place(tmp_path, *state) as there:  # what was heard and is in no message yet is read again
            await attached(there, session)
            assert SECRET not in str(records(there, session))

    run(work)


# ---------------------------------------------------------------------- what a command has in it


@pytest.mark.parametrize(
    ("command", "written"),
    [
        (["opencode", "acp"], "opencode …"),
        (["a", f"--api-key={SECRET}", "--token", SECRET], "a --api-key=… --token …"),
        (["a", f"-p{SECRET}", "-p", SECRET, f"-p={SECRET}"], "a -p… -p … -p=…"),
        (["env", f"KEY={SECRET}", "agent", "--verbose", "--"], "env … … --verbose --"),
        (["sh", "-c", f"KEY={SECRET} agent"], "sh -c …"),
        (["a", f"-----BEGIN {SECRET}", f"-={SECRET}", f"--={SECRET}", f"https://me:{SECRET}@host"], "a … -=… --=… …"),
    ],
)
def test_of_a_command_its_program_and_its_options_are_written_down(command: list[str], written: str) -> None:
    assert shown(command) == written.split()


def test_a_key_in_a_command_is_in_no_file(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            command = (sys.executable, str(AGENT), "--script", json.dumps({"key": SECRET}))
            room = await there.host.open("s", Agent("keyed", command), cwd="/")
            await room.ready()

            (started,) = (r.body for r in records(there, "s") if r.kind == AGENT_STARTED)
            assert started["command"] == [sys.executable, "…", "--script", "…"]
            row = there.host.frames.room("s")
            assert row is not None
            assert row.command == started["command"]
            assert SECRET not in all_frames(there, "s")
        assert SECRET.encode() not in bytes_of(tmp_path)

    run(work)
