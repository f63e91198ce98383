"""Agents' rooms as a server offers them: over HTTP, at /acp, and to an editor that starts a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

import onefold
from onefold.jsonrpc import Frame
from onefold.model import MESSAGE
from onefold.server.security.tokens import Tokens
from tests.support.acp_clients import AGENT, Named, Ran, Refusal, blocks, config, is_method, is_update
from tests.support.server_rooms import Client, Server, client, onefold_run
from tests.support.servers import PATIENCE, TOKEN, Served, free_port

FORBIDDEN = -32001


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("rooms")
    onefold.open(folder / "agent.db").close()
    scripted = [sys.executable, str(AGENT)]
    lasting = [*scripted, "--state", str(folder / "state")]
    config(folder, scripted=scripted, lasting=lasting, broken=["no-such-program-anywhere"])
    reader, _ = Tokens(folder / "onefold" / "tokens.json").new("reader", ["read"])
    with Served(str(folder / "agent.db"), folder) as served:
        yield Server(served, reader)


@pytest.fixture
def lasting(server: Server) -> Iterator[tuple[str, Client]]:
    """The same with an agent that has its sessions in a file."""
    with client(server, "agent=lasting") as made:
        yield made.new(), made


@pytest.fixture
def room(server: Server) -> Iterator[tuple[str, Client]]:
    """A room of its own for each test, and the client that made it."""
    with client(server, "agent=scripted") as made:
        yield made.new(), made


class Command:
    """`onefold …` with ACP on its standard input and output."""

    def __init__(self, folder: Path, *words: str, **environ: str) -> None:
        env = {
            **os.environ, "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder), "ONEFOLD_TOKEN": TOKEN,
            **environ,
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "onefold", *words], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._limit = threading.Timer(2 * PATIENCE, self._process.kill)

    def __enter__(self) -> Client:
        self._limit.start()
        assert self._process.stdout is not None
        return Client(self._write, self._process.stdout.readline)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def leave(self) -> tuple[int, str]:
        """As an editor leaves: it closes the pipe. The exit code, and what was said on stderr."""
        _, err = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, err

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit.cancel()
        if self._process.poll() is None:
            self._process.kill()
        if self._process.stdout is not None and not self._process.stdout.closed:
            self._process.communicate()


# ---------------------------------------------------------------------- the calls


def test_rooms_are_listed_with_the_agents_that_can_be_started_and_what_one_may(
    server: Server, room: tuple[str, Client]
) -> None:
    session, _ = room

    told = server.get("rooms").json()

    assert told["agents"] == ["broken", "lasting", "scripted"]
    (mine,) = (r for r in told["rooms"] if r["session"] == session)
    assert mine == {
        "session": session, "agent": "scripted", "phase": "ready", "trouble": None, "clients": 1, "questions": 0,
    }  # fmt: skip
    assert told["may"] == ["read", "write", "agents", "compact", "admin"]
    assert server.get("rooms", server.reader).json()["may"] == ["read"]


def test_a_prompt_over_http_is_on_disk_when_it_is_answered_and_the_same_key_is_the_same_prompt(
    server: Server, room: tuple[str, Client]
) -> None:
    session, ann = room

    first = server.post("prompt", session, text="[[say:hello]] [[hang]]", key="k")
    again = server.post("prompt", session, text="[[say:hello]] [[hang]]", key="k")

    assert first.status_code == 200, first.text
    assert again.json() == first.json()
    (queued,) = (r for r in server.records(session) if r.kind == "input.queued")
    assert queued.number == first.json()["input"]
    ann.until(is_update("agent_message_chunk"))
    assert ann.said == "hello"
    assert server.post("stop", session).json() == {"asked": True}
    ann.notify("session/cancel", sessionId=session)


def test_what_waits_can_be_taken_back_once(server: Server, room: tuple[str, Client]) -> None:
    session, ann = room
    server.post("prompt", session, text="[[say:on it]] [[hang]]")
    ann.until(is_update("agent_message_chunk"))
    waits = server.post("prompt", session, text="[[say:never]]").json()["input"]
    server.post("prompt", session, text="[[say:later]]")
    assert server.snapshot(session)["queue"][0]["number"] == waits

    assert server.post("unqueue", session, input=waits).json() == {"unqueued": True}
    assert server.post("unqueue", session, input=waits).json() == {"unqueued": False}

    server.post("stop", session)
    ann.until(lambda frame: frame.update.get("content", {}).get("text") == "later")
    assert ann.said == "on itlater"


def test_a_steering_prompt_ends_the_turn_and_comes_before_all_that_waits(
    server: Server, room: tuple[str, Client]
) -> None:
    session, ann = room
    server.post("prompt", session, text="[[say:on it]] [[hang]]")
    ann.until(is_update("agent_message_chunk"))
    server.post("prompt", session, text="[[say:second]]")

    server.post("prompt", session, text="[[say:first]]", steer=True)

    ann.until(lambda frame: frame.update.get("content", {}).get("text") == "second")
    assert ann.said == "on itfirstsecond"


def test_a_question_is_answered_over_http_and_the_first_answer_counts(server: Server, room: tuple[str, Client]) -> None:
    session, ann = room
    server.post("prompt", session, text="[[ask:may I?]]")
    ann.until(is_method("session/request_permission"))
    (question,) = server.snapshot(session)["questions"]
    yes = {"outcome": {"outcome": "selected", "optionId": "yes"}}

    assert server.post("answer", session, question="another", answer=yes).json() == {"answered": False}
    assert server.post("answer", session, question=question["question"], answer=yes).json() == {"answered": True}

    ann.until(is_update("agent_message_chunk"))
    assert ann.said == "the answer was yes"
    assert server.post("answer", session, question=question["question"], answer=yes).json() == {"answered": False}
    (settled,) = (r for r in server.records(session) if r.kind == "question.settled")
    assert settled.actor is not None


def test_thirty_two_prompts_wait_and_no_more(server: Server, room: tuple[str, Client]) -> None:
    session, ann = room
    server.post("prompt", session, text="[[say:on it]] [[hang]]")
    ann.until(is_update("agent_message_chunk"))
    numbers = [server.post("prompt", session, text="[[say:.]]").json()["input"] for _ in range(32)]

    refused = server.post("prompt", session, text="[[say:one too many]]")

    assert refused.status_code == 409
    assert "32 prompts wait already" in refused.json()["error"]["message"]
    for number in numbers:
        server.post("unqueue", session, input=number)
    server.post("stop", session)


def test_a_room_is_restarted_and_closed_over_http_and_taken_up_by_the_next_prompt(
    server: Server, lasting: tuple[str, Client]
) -> None:
    session, ann = lasting
    server.post("prompt", session, text="[[say:on it]] [[deaf]]")
    ann.until(is_update("agent_message_chunk"))
    server.post("prompt", session, text="[[say:, and on]]")

    restarted = server.post("restart", session)

    assert restarted.status_code == 200, restarted.text
    assert restarted.json()["agent"] == "lasting"
    ann.until(lambda frame: frame.update.get("content", {}).get("text") == ", and on")
    assert server.post("close", session).json() == {"closed": True}
    assert server.post("close", session).json() == {"closed": False}
    assert server.snapshot(session)["agent"] == {"name": "lasting", "phase": "closed", "trouble": None}
    assert session not in [r["session"] for r in server.get("rooms").json()["rooms"]]
    server.post("prompt", session, text="[[say:, once more]]")
    ann.until(lambda frame: frame.update.get("content", {}).get("text") == ", once more")
    outcomes = [r.body["outcome"] for r in server.records(session) if r.kind == "turn.settled"]
    assert outcomes[:2] == ["interrupted", "settled"]


def test_what_is_only_for_a_running_agent_starts_none(server: Server, lasting: tuple[str, Client]) -> None:
    session, ann = lasting
    server.post("prompt", session, text="[[say:on it]] [[hang]]")
    ann.until(is_update("agent_message_chunk"))
    waits = server.post("prompt", session, text="[[say:never]]").json()["input"]
    server.post("close", session)
    before = [r.kind for r in server.records(session)]

    assert server.post("stop", session).json() == {"asked": False}
    assert server.post("answer", session, question="of before", answer={}).json() == {"answered": False}
    assert server.post("unqueue", session, input=waits).json() == {"unqueued": True}
    assert server.post("unqueue", session, input=waits).json() == {"unqueued": False}

    assert session not in [r["session"] for r in server.get("rooms").json()["rooms"]]
    assert "agent.started" not in [r.kind for r in server.records(session)][len(before) :]


def test_who_restarts_or_closes_what_is_no_room_is_told_so(server: Server) -> None:
    for call in ("restart", "close"):
        assert server.post(call, "no-such-session").status_code == 404
    with onefold.open(server.served.store) as store:
        store.session("without an agent").append({"role": "user", "content": "hello"})
    assert "has no agent" in server.post("restart", "without an agent").json()["error"]["message"]
    assert server.post("close", "without an agent").json() == {"closed": False}


def test_a_room_is_restarted_and_closed_from_a_terminal(server: Server, room: tuple[str, Client]) -> None:
    session, ann = room
    server.post("prompt", session, text="[[say:on it]] [[hang]]")
    ann.until(is_update("agent_message_chunk"))

    restarted = onefold_room(server, "restart", session)
    closed = onefold_room(server, "close", session, "--json")
    again = onefold_room(server, "close", session)
    nowhere = onefold_room(server, "restart", session, ONEFOLD_URL="")
    writes, _ = Tokens(Path(server.served.store).parent / "onefold" / "tokens.json").new("ci", ["read", "write"])
    by_a_writer = onefold_room(server, "close", session, ONEFOLD_TOKEN=writes)

    assert (restarted.returncode, restarted.stderr) == (0, "")
    assert f"restarted in {session}: the agent scripted is " in restarted.stdout
    assert json.loads(closed.stdout) == {"session": session, "closed": True}
    assert (again.returncode, again.stdout) == (1, "")
    assert "nothing was closed" in again.stderr
    assert nowhere.returncode == 2
    assert "--url or ONEFOLD_URL" in nowhere.stderr
    assert by_a_writer.returncode == 2
    assert "lacks the scope 'agents'" in by_a_writer.stderr


def onefold_room(server: Server, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ONEFOLD_TOKEN": TOKEN, "ONEFOLD_URL": server.served.url, **environ}
    command = [sys.executable, "-m", "onefold", "room", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


# ---------------------------------------------------------------------- who may


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("prompt", {"text": "[[say:no]]"}),
        ("unqueue", {"input": 1}),
        ("stop", {}),
        ("answer", {"question": "q", "answer": {}}),
        ("restart", {}),
        ("close", {}),
    ],
)
def test_who_may_only_read_is_refused_over_http(
    server: Server, room: tuple[str, Client], call: str, body: dict[str, Any]
) -> None:
    session, _ = room
    before = len(server.records(session))

    answer = server.post(call, session, server.reader, **body)

    assert answer.status_code == 403
    assert "agents" in answer.json()["error"]["message"]
    assert len(server.records(session)) == before


def test_who_may_only_read_looks_on_over_acp_and_nothing_it_says_has_an_effect(
    server: Server, room: tuple[str, Client]
) -> None:
    session, ann = room
    with client(server, f"session={session}", server.reader) as reader:
        reader.ask("initialize", protocolVersion=1)
        shot = reader.ask("session/attach", sessionId=session)
        assert shot["agent"]["phase"] == "ready"
        prompt = {"sessionId": session, "prompt": blocks("[[say:no]]")}
        for method, params in (
            ("session/prompt", prompt),
            ("onefold/steer", prompt),
            ("onefold/unqueue", {"sessionId": session, "input": 1}),
            ("onefold/compact", {"sessionId": session}),
            ("authenticate", {"methodId": "key"}),
            ("session/set_mode", {"sessionId": session, "modeId": "code"}),
            ("_own/thing", {"sessionId": session}),
        ):
            with pytest.raises(Refusal) as refused:
                reader.ask(method, **params)
            assert refused.value.code == FORBIDDEN, method

        ann.send("session/prompt", sessionId=session, prompt=blocks("[[ask:may I?]]"))
        asked = reader.until(is_method("onefold/question_asked"))
        reader.reply(Frame({"jsonrpc": "2.0", "id": asked.params["question"]}), {"outcome": {"outcome": "cancelled"}})
        reader.notify("session/cancel", sessionId=session)
        assert reader.ask("session/list")["sessions"]  # all that it said before was heard

        question = ann.until(is_method("session/request_permission"))
        ann.reply(question, {"outcome": {"outcome": "selected", "optionId": "yes"}})
        reader.until(is_method("onefold/turn_settled"))
        assert reader.said == "the answer was yes"
        assert not any(frame.method == "session/request_permission" for frame in reader.heard)


def test_who_may_only_read_starts_no_agent(server: Server) -> None:
    before = len(server.get("rooms").json()["rooms"])
    with client(server, "agent=scripted", server.reader) as reader, pytest.raises(Refusal) as refused:
        reader.ask("session/new", cwd="/", mcpServers=[])

    assert refused.value.code == FORBIDDEN
    assert len(server.get("rooms").json()["rooms"]) == before


@pytest.mark.parametrize("path", ["acp?agent=scripted", "api/live"])
def test_who_is_let_in_no_more_is_told_so_and_not_to_come_again(server: Server, path: str) -> None:
    """L11: 1012 means come again, which a client would do for ever."""
    tokens = Tokens(Path(server.served.store).parent / "onefold" / "tokens.json")
    passing, _ = tokens.new("passing", ["read", "write"])
    there = f"ws{server.served.url.removeprefix('http')}/{path}"
    with connect(there, additional_headers={"Authorization": f"Bearer {passing}"}) as socket:
        if path == "api/live":
            assert json.loads(socket.recv(timeout=PATIENCE))["event"] == "hello"
        tokens.revoke("passing")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=PATIENCE)

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    assert "this token no longer counts" in closed.value.rcvd.reason


def test_one_who_watches_is_asked_nothing_and_hears_everything(server: Server, room: tuple[str, Client]) -> None:
    session, ann = room
    with client(server, f"session={session}") as page:
        page.ask("session/attach", sessionId=session, history="none", watch=True)
        assert [c["kind"] for c in server.snapshot(session)["clients"]] == ["acp", "watch"]

        ann.send("session/prompt", sessionId=session, prompt=blocks("[[unknown:what?]] [[say:done]]"))
        question = ann.until(is_method("_scripted/question"))
        ann.decline(question, "not known")

        page.until(is_method("onefold/turn_settled"))
        assert "not known" in page.said
        assert not any(frame.is_request for frame in page.heard)


# ---------------------------------------------------------------------- what there is not


def test_a_session_that_is_not_there_is_told_apart_from_one_without_an_agent(server: Server) -> None:
    with onefold.open(server.served.store) as store:
        store.session("plain").append({"role": "user", "content": "hello"})
    calls: dict[str, dict[str, Any]] = {
        "prompt": {"text": "hi"}, "unqueue": {"input": 1}, "stop": {}, "answer": {"question": "q", "answer": 1},
    }  # fmt: skip

    for call, body in calls.items():
        nowhere, plain = server.post(call, "nowhere", **body), server.post(call, "plain", **body)
        assert (nowhere.status_code, plain.status_code) == (404, 409), call
        assert "onefold run --session plain -- COMMAND" in plain.json()["error"]["message"]
    with client(server, "session=plain") as lost:
        with pytest.raises(Refusal, match="has no agent"):
            lost.ask("session/attach", sessionId="plain")
        with pytest.raises(Refusal, match="nowhere"):
            lost.ask("session/load", sessionId="nowhere", cwd="/", mcpServers=[])


def test_a_server_without_agents_says_so(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "agent.db") as store:
        store.session("plain").append({"role": "user", "content": "hello"})
    with Served(str(tmp_path / "agent.db"), tmp_path) as served:
        server = Server(served, "")

        assert server.get("rooms").json()["rooms"] == []
        refused = server.post("prompt", "plain", text="hi")
        assert refused.status_code == 409
        assert "runs no agents" in refused.json()["error"]["message"]
        assert server.snapshot("plain")["agent"] is None
        with pytest.raises(InvalidStatus) as turned_away, client(server, "session=plain"):
            pass
        assert turned_away.value.response.status_code == 409
        assert b"runs no agents" in (turned_away.value.response.body or b"")
        command = Command(tmp_path, "attach", "--stdio", "plain", ONEFOLD_URL=served.url)
        with command as lost:
            assert lost.ended()
            code, told = command.leave()
        assert code == 2
        assert "rejected the connection: this server runs no agents" in told


def test_an_agent_that_is_not_named_or_cannot_be_started_is_said_at_once(server: Server) -> None:
    with (
        client(server, "agent=nobody") as lost,
        pytest.raises(Refusal, match=r"no agent 'nobody'.*broken, lasting, scripted"),
    ):
        lost.ask("session/new", cwd="/", mcpServers=[])
    with (
        client(server, "") as lost,
        pytest.raises(Refusal, match="say which agent: there are broken, lasting, scripted"),
    ):
        lost.ask("session/new", cwd="/", mcpServers=[])
    with client(server, "agent=broken") as lost, pytest.raises(Refusal, match=r"no-such-program-anywhere.*not found"):
        lost.ask("session/new", cwd="/", mcpServers=[])

    (down,) = (r for r in server.get("rooms").json()["rooms"] if r["agent"] == "broken")
    assert down["phase"] == "down"
    assert "not found" in down["trouble"]
    tries = [line for line in server.served.lines() if "no-such-program-anywhere" in line.get("cause", "")]
    assert len(tries) == 1


def test_a_second_server_on_the_store_says_that_the_agent_runs_elsewhere(tmp_path: Path) -> None:
    with Named(tmp_path) as first:
        assert first.process is not None
        with Served(str(tmp_path / "agent.db"), tmp_path) as served:
            second = Server(served, "")

            refused = second.post("prompt", "s", text="[[say:hi]]")

            assert refused.status_code == 409
            assert refused.json()["error"]["kind"] == "Hosted"
            assert f"run by another process ({first.process.pid})" in refused.json()["error"]["message"]
            with client(second, "session=s") as lost, pytest.raises(Refusal, match="run by another process"):
                lost.ask("session/attach", sessionId="s")
            first.kill()
            assert second.post("prompt", "s", text="[[say:hi]]").status_code == 200


def test_a_second_server_says_so_of_an_agent_that_its_config_does_not_name_too(tmp_path: Path) -> None:
    with Ran(tmp_path), Served(str(tmp_path / "agent.db"), tmp_path) as served:
        refused = Server(served, "").post("prompt", "s", text="[[say:hi]]")

        assert refused.json()["error"]["kind"] == "Hosted"


# ---------------------------------------------------------------------- an editor that starts a command


def test_two_editors_share_a_room_by_attach_stdio(tmp_path: Path) -> None:
    with Ran(tmp_path) as served:
        here = {"ONEFOLD_URL": served.url}
        first = Command(tmp_path, "attach", "--stdio", "s", **here)
        second = Command(tmp_path, "attach", "--stdio", "s", **here)
        with first as ann, second as ben:
            assert ann.new() == ben.new() == "s"

            ended = ann.send("session/prompt", sessionId="s", prompt=blocks("[[say:hello]] [[ask:may I?]]"))
            question = ben.until(is_method("session/request_permission"))
            ben.reply(question, {"outcome": {"outcome": "selected", "optionId": "no"}})

            assert ann.answer(ended)["stopReason"] == "end_turn"
            ben.until(lambda frame: "the answer" in frame.update.get("content", {}).get("text", ""))
            assert ann.said == ben.said == "hellothe answer was no"
            assert second.leave() == (0, "")
            ann.ask("session/prompt", sessionId="s", prompt=blocks("[[say:on]]"))
            assert first.leave() == (0, "")


def test_attach_stdio_to_what_is_not_there_says_so_and_ends(tmp_path: Path) -> None:
    nowhere = Command(tmp_path, "attach", "--stdio", "s", ONEFOLD_URL=f"http://127.0.0.1:{free_port()}")
    with nowhere as lost:
        assert lost.ended()
        code, said = nowhere.leave()

    assert code == 2
    assert "cannot be joined" in said


def test_run_stdio_speaks_acp_here_and_ends_when_its_editor_leaves(tmp_path: Path) -> None:
    onefold.open(tmp_path / "agent.db").close()
    words = ("run", "--stdio", "--port", "0", "--session", "s", "--store", str(tmp_path / "agent.db"))
    command = Command(tmp_path, *words, "--", sys.executable, str(AGENT))
    with command as editor:
        assert editor.new() == "s"
        assert editor.ask("session/prompt", sessionId="s", prompt=blocks("[[say:hello]]"))["stopReason"] == "end_turn"
        code, said = command.leave()

    assert code == 0
    assert "session s: the agent" in said
    assert editor.said == "hello"
    with onefold.open(tmp_path / "agent.db") as store:
        assert [r.kind for r in store.session("s", create=False).read()].count(MESSAGE) == 2
        assert store.verify().findings == ()


def test_run_with_a_command_that_does_not_exist_says_so_and_ends(tmp_path: Path) -> None:
    onefold.open(tmp_path / "agent.db").close()

    done = onefold_run(tmp_path, "--port", "0", "--", "no-such-program-anywhere")

    assert done.returncode == 2
    assert "'no-such-program-anywhere' cannot be started: it is not found" in done.stderr
    assert done.stdout == ""


def test_run_with_an_agent_that_ends_without_a_word_says_why_and_ends(tmp_path: Path) -> None:
    """A key that is missing, say: nobody has to look for that in a log in which it is tried again and again."""
    onefold.open(tmp_path / "agent.db").close()

    done = onefold_run(tmp_path, "--port", "0", "--", "sh", "-c", "echo 'no key: set AGENT_KEY' >&2; exit 3")

    assert done.returncode == 2
    assert "the agent 'sh' did not answer: it ended with exit code 3" in done.stderr
    assert "no key: set AGENT_KEY" in done.stderr
    assert done.stdout == ""


def test_run_at_a_port_that_is_taken_says_so_and_starts_no_agent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Ran(tmp_path) as served:
        done = onefold_run(tmp_path, "--port", str(served.port), "--", sys.executable, str(AGENT), "--log", str(log))

    assert done.returncode == 2
    assert str(served.port) in done.stderr
    assert not log.exists()


def test_run_without_an_agent_says_which_there_are(tmp_path: Path) -> None:
    onefold.open(tmp_path / "agent.db").close()
    config(tmp_path, one=["a"], two=["b"])

    done = onefold_run(tmp_path, "--port", "0")
    both = onefold_run(tmp_path, "--port", "0", "--agent", "one", "--", "two")

    assert (done.returncode, both.returncode) == (2, 2)
    assert "say which agent: there are one, two" in done.stderr
    assert "give one of them" in both.stderr


def test_run_again_with_the_session_goes_on_with_the_agent_that_the_config_names(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    with Named(tmp_path, "--state", state) as first:
        server = Server(first, "")
        with client(server, "session=s") as ann:
            ann.new()
            ann.ask("session/prompt", sessionId="s", prompt=blocks("[[say:the password is swordfish]]"))
        first.signal()
        assert first.ended() == 0

    class Again(Served):
        verb = "run"

    with Again(str(tmp_path / "agent.db"), tmp_path, "--session", "s") as second:
        server = Server(second, "")
        with client(server, "session=s") as ann:
            ann.ask("initialize", protocolVersion=1)
            ann.ask("session/load", sessionId="s", cwd="/", mcpServers=[])
            assert ann.said == "the password is swordfish"
            ann.ask("session/prompt", sessionId="s", prompt=blocks("[[say:, and on]]"))
        records = server.records("s")

    started = [r.body for r in records if r.kind == "agent.started"]
    assert [s["how"] for s in started] == ["new", "resume"]
    assert started[0]["session"] == started[1]["session"]
    spoken = [r.body["content"]["text"] for r in records if r.kind == MESSAGE and "content" in r.body]
    assert spoken == ["the password is swordfish", ", and on"]


def test_a_command_to_compact_that_an_agent_does_not_have_is_answered_with_why(tmp_path: Path) -> None:
    onefold.open(tmp_path / "agent.db").close()
    config(tmp_path, plain=[sys.executable, str(AGENT), "--family", "plain"])
    with Served(str(tmp_path / "agent.db"), tmp_path) as served:
        server = Server(served, "")
        with client(server, "agent=plain") as ann:
            ann.ask("initialize", protocolVersion=1)
            session = ann.ask("session/new", cwd="/", mcpServers=[])["sessionId"]
            answer = server.post("prompt", session, text="/compact")

            assert answer.json()["input"] is None
            assert "knows no command by which 'plain' compacts" in answer.json()["cause"]
            assert ann.said == ""
            ended = ann.ask("session/prompt", sessionId=session, prompt=blocks("/compact"))
            assert ended["stopReason"] == "end_turn"
            assert "was not compacted: onefold knows no command" in ann.said
