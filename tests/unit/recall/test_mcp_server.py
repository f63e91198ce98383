"""`onefold mcp`, spoken to by the real client over real pipes, and by one that breaks every rule."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import TextContent

import onefold
from onefold.model import Json
from onefold.recall import Recall, RecallTools
from onefold.recall.mcp_server import LONGEST, VERSIONS, McpServer
from tests.support.command_line import clean
from tests.support.helpers import PATIENCE
from tests.support.searches import user


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with onefold.open(path) as store:
        store.session("talk").append([user("the port is 8081"), user("lone \ud800 surrogate"), user("x" * 20_000)])
        store.session("other").append(user("another port"))
    return path


def command(path: Path, *options: str) -> list[str]:
    return ["-m", "onefold", "mcp", "--store", str(path), *options]


# ---------------------------------------------------------------------- the real client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_real_client_lists_and_calls_the_tools_f76(path: Path, mode: str) -> None:
    async def talk() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=command(path, "--session", "talk"), env=clean(path.parent)
        )
        async with Client(server, mode=mode, read_timeout_seconds=PATIENCE) as client:
            tools = (await client.list_tools()).tools
            found = await client.call_tool("recall_search", {"query": "port"})
            read = await client.call_tool("recall_read", {"first": 2, "last": 3})
            wrong = await client.call_tool("recall_read", {"first": "two"})
            with pytest.raises(MCPError, match="unknown tool: 'recall_forget'") as unknown:
                await client.call_tool("recall_forget", {})
            elsewhere = await client.call_tool("recall_search", {"query": "port", "session": "other"})

        assert [t.name for t in tools] == ["recall_search", "recall_read", "recall_expand"]
        assert all(t.annotations is not None and t.annotations.read_only_hint for t in tools)
        assert not found.is_error
        assert "#2 user" in said(found.content)
        assert "the «port» is 8081" in said(found.content)
        assert "the port is 8081" in said(read.content)
        assert wrong.is_error
        assert "first is an integer" in said(wrong.content)
        assert unknown.value.error.code == -32602
        assert elsewhere.is_error  # it is served one session, and no argument leads out of it

    def said(content: list[Json]) -> str:
        return "".join(c.text for c in content if isinstance(c, TextContent))

    anyio.run(talk)


def test_it_writes_no_record_and_without_an_index_no_file(path: Path) -> None:
    def files() -> set[str]:
        return {f.name for f in path.parent.iterdir()}

    with onefold.open(path) as store:
        records = [[*store.session(s).read()] for s in ("talk", "other")]
    before = files()

    with server(path, "--all-sessions", "--no-index") as ask:
        assert "8081" in ask("tools/call", name="recall_search", arguments={"query": "port 8081"})
        assert not any(name.endswith(".search") for name in files())
    with server(path, "--all-sessions") as ask:
        assert "8081" in ask("tools/call", name="recall_search", arguments={"query": "port 8081"})

    assert files() - before <= {"agent.db.search"}
    with onefold.open(path) as store:
        assert [[*store.session(s).read()] for s in ("talk", "other")] == records


def test_it_sees_what_is_said_while_it_runs(path: Path) -> None:
    with server(path, "--all-sessions") as ask, onefold.open(path) as store:
        assert "Nothing was found" in ask("tools/call", name="recall_search", arguments={"query": "zebra"})

        store.session("talk").append(user("a zebra"))

        assert "a «zebra»" in ask("tools/call", name="recall_search", arguments={"query": "zebra"})


def test_an_unknown_session_is_refused_at_the_start(tmp_path: Path, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *command(path, "--session", "nobody")],
        env=clean(tmp_path), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (2, "")
    assert "no session 'nobody'" in done.stderr


@pytest.mark.parametrize("options", [(), ("--session", "talk", "--all-sessions")])
def test_which_sessions_it_may_look_into_has_to_be_said(tmp_path: Path, path: Path, options: tuple[str, ...]) -> None:
    """L9: an agent that is given the command as it is sees nothing of what others said."""
    done = subprocess.run(
        [sys.executable, *command(path, *options)], input=b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n',
        env=clean(tmp_path), capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--session, or all of them with --all-sessions" in done.stderr


# ---------------------------------------------------------------------- a client that breaks every rule


class Ask:
    """Speaks to a server line by line."""

    def __init__(self, into: IO[bytes], out: IO[bytes]) -> None:
        self._into, self._out = into, out

    def __call__(self, method: str, **params: Json) -> str:
        return str(self.line(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()))

    def line(self, line: bytes) -> Json:
        self._into.write(line + b"\n")
        self._into.flush()
        return json.loads(self._out.readline())


@contextmanager
def server(path: Path, *options: str) -> Iterator[Ask]:
    process = subprocess.Popen(
        [sys.executable, *command(path, *options)],
        env=clean(path.parent), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    into, out = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    try:
        yield Ask(into, out)
        into.close()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait(PATIENCE)
        into.close()
        out.close()


@pytest.fixture
def served() -> Iterator[McpServer]:
    with onefold.open("memory:") as store:
        store.session("talk").append([user("the port is 8081"), user("lone \ud800 surrogate")])
        yield McpServer(RecallTools(Recall(store), None), "0")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"no json", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b'{"id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "recall_forget"}}', -32602),
        (
            b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "recall_read", "arguments": []}}',
            -32602,
        ),
    ],
)
def test_what_is_no_proper_request_is_an_error_with_its_code(served: McpServer, line: bytes, code: int) -> None:
    answer = served.answer(line)

    assert answer is not None
    assert answer["error"]["code"] == code


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("recall_search", {}, "needs query"),
        ("recall_search", {"query": 7}, "query is a string"),
        ("recall_search", {"query": "x", "limit": True}, "limit is an integer"),
        ("recall_search", {"query": "x", "session": "nobody"}, "no session 'nobody'"),
        ("recall_search", {"query": "x", "wherever": 1}, "no argument wherever"),
        ("recall_read", {"first": 1}, "needs session"),
        ("recall_read", {"first": 0, "session": "talk"}, "at least 1"),
        ("recall_read", {"first": 1 << 60, "session": "talk"}, "at least 1"),
        ("recall_expand", {"segment": 99, "session": "talk"}, "has no segment 99"),
    ],
)
def test_a_call_that_makes_no_sense_is_a_tool_error_in_words(
    served: McpServer, name: str, arguments: Json, words: str
) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}

    answer = served.answer(json.dumps(call).encode())

    assert answer is not None
    assert answer["result"]["isError"]
    assert words in answer["result"]["content"][0]["text"]


def test_the_version_is_the_clients_if_it_is_known_and_else_the_newest(served: McpServer) -> None:
    def agreed(version: Json) -> Json:
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": version}}
        answer = served.answer(json.dumps(request).encode())
        assert answer is not None
        return answer["result"]["protocolVersion"]

    assert [agreed(v) for v in VERSIONS] == [*VERSIONS]
    assert agreed("2099-01-01") == agreed(None) == VERSIONS[0]


def test_notifications_and_answers_get_no_answer_and_a_batch_gets_one_for_each_request(served: McpServer) -> None:
    assert served.answer(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}') is None
    assert served.answer(b'{"jsonrpc": "2.0", "id": 4, "result": {}}') is None

    batch = b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "method": "x"}, 3]'
    answer = served.answer(batch)

    assert answer is not None
    assert [a["id"] for a in answer] == [1, None]


def test_what_breaks_inside_is_an_error_for_the_client_and_the_server_goes_on(
    served: McpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(RecallTools, "answer", broken)

    answer = served.answer(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "recall_read"}}')

    assert answer is not None
    assert answer["error"] == {"code": -32603, "message": "ZeroDivisionError: oh"}
    assert "tools/call failed" in caplog.text


def test_the_server_outlives_garbage_endless_lines_and_text_that_is_no_utf8(path: Path) -> None:
    with server(path, "--all-sessions") as ask:
        assert ask.line(b"\x00garbage")["error"]["code"] == -32700
        assert ask.line(b"\n" + b"x" * (2 * LONGEST + 5))["error"]["code"] == -32600
        odd = ask("tools/call", name="recall_read", arguments={"first": 3, "last": 3, "session": "talk"})
        assert "lone \ufffd surrogate" in odd
        assert "'result': {}" in ask("ping")
