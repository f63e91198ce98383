"""One connection, with any token or none, holds neither the event loop nor memory without bound.

Each test attacks a real server in a process of its own. Meanwhile somebody else asks `/healthz` again and again: the
longest time without an answer, and the most memory the server ever had, are the figures. `pytest -s` prints them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import resource
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

import onefold
from onefold.server.security.tokens import Scope, Tokens
from tests.support.acp_clients import AGENT, config
from tests.support.helpers import ROOT
from tests.support.servers import PATIENCE, Served

SILENCE = 0.25
"""Seconds without an answer to anybody else, beside those in which the machine was busy with others. A tenth is what
the page on security says of a quiet machine; a busy one adds to that, and an attack that works takes seconds."""


class TooLongSilent(AssertionError):
    """Nobody else was answered for longer than `SILENCE`."""


# Other programs only add to a silence, and what holds the server up does so each time: so an attack that was too long
# is made again, twice at most, on a server of its own.
pytestmark = pytest.mark.flaky(reruns=2, only_rerun=["TooLongSilent"])
MEMORY = 100 << 20
"""Bytes that an attack may cost at its peak."""
PING = "0.005"


@dataclass
class Target:
    served: Served
    secrets: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def connected(self, path: str, scope: str = "read") -> Iterator[ClientConnection]:
        address = f"ws://127.0.0.1:{self.served.port}{path}"
        headers = {"Authorization": f"Bearer {self.secrets[scope]}"}
        made: ClientConnection
        with connect(address, additional_headers=headers, max_size=None, compression=None, close_timeout=1) as made:
            yield made

    def status(self, name: str) -> int:
        assert self.served.process is not None
        lines = Path(f"/proc/{self.served.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10


class Watch:
    """Somebody else, who asks whether the server lives while it is attacked."""

    def __init__(self, target: Target, memory: int = MEMORY) -> None:
        self._target = target
        self._memory = memory
        self.silence = 0.0
        self.grown = 0

    def __enter__(self) -> Watch:
        assert self._target.served.process is not None
        pid = self._target.served.process.pid
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is counted from here
        self._before = self._target.status("VmRSS")
        command = [
            sys.executable,
            str(ROOT / "tests" / "support" / "silences.py"),
            str(self._target.served.port),
            str(pid),
            PING,
        ]
        self._asking = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._asking.stdout is not None
        assert self._asking.stdout.readline() == "asked\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        said, _ = self._asking.communicate(timeout=PATIENCE)
        self.grown = self._target.status("VmHWM") - self._before
        found = json.loads(said)
        self.silence = found["longest"]
        attack = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[2].partition(" ")[0]
        words = (
            f"{attack}: peak memory +{self.grown >> 20} MB, longest silence of /healthz {self.silence * 1000:.0f} ms "
            f"({found['wall'] * 1000:.0f} ms with what others took, {found['count']} times asked)"
        )
        print(words)
        if kind is None:
            if self.silence >= SILENCE:
                raise TooLongSilent(words)
            assert self.grown < self._memory, words


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    onefold.open(tmp_path / "agent.db").close()
    config(tmp_path, scripted=[sys.executable, str(AGENT)])
    tokens = Tokens(tmp_path / "onefold" / "tokens.json")
    scopes: tuple[Scope, ...] = ("read", "write", "admin")
    secrets: dict[str, str] = {
        scope: tokens.new(scope, [scope] if scope == "read" else ["read", "agents", scope])[0] for scope in scopes
    }
    with Served(str(tmp_path / "agent.db"), tmp_path) as served:
        yield Target(served, secrets)


def asked(id: int, method: str = "session/list", **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


# ---------------------------------------------------------------------- frames


def test_a_batch_of_requests_is_one_error_and_no_requests(target: Target) -> None:
    batch = f"[{','.join([asked(1)] * 500)}]"
    with target.connected("/acp") as client, Watch(target):
        client.send(batch)
        refused = json.loads(client.recv(PATIENCE))
        client.send(asked(2))
        after = json.loads(client.recv(PATIENCE))

    assert refused["id"] is None
    assert "send each frame by itself" in refused["error"]["message"]
    assert (after["id"], after["result"]) == (2, {"sessions": []})


def test_a_large_batch_from_a_token_that_may_write_costs_nothing(target: Target) -> None:
    batch = f"[{','.join([asked(1)] * 150_000)}]"
    with target.connected("/acp", "write") as client, Watch(target):
        client.send(batch)
        refused = json.loads(client.recv(PATIENCE))

    assert "send each frame by itself" in refused["error"]["message"]


HOSTILE = {
    "lists": ('{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[' + "[]," * 5_000_000 + "1]}}", "100,000 values"),
    "integers": (
        '{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[' + ",".join(["9" * 4_000] * 3_500) + "]}}",
        "4,000 digits",
    ),
    "depth": ('{"jsonrpc":"2.0","id":1,"method":"x","params":' + "[" * 90_000 + "]" * 90_000 + "}", "too deeply"),
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_a_frame_that_is_more_than_it_looks_is_refused_before_it_is_parsed(target: Target, shape: str) -> None:
    frame, why = HOSTILE[shape]
    with target.connected("/acp", "write") as client, Watch(target):
        client.send(frame)
        refused = json.loads(client.recv(PATIENCE))

    assert why in refused["error"]["message"]


def test_a_body_that_is_more_than_it_looks_is_refused_before_it_is_parsed(target: Target) -> None:
    body = '{"messages":[' + "[]," * 5_000_000 + "1]}"
    connection = http.client.HTTPConnection("127.0.0.1", target.served.port, timeout=PATIENCE)
    with Watch(target):
        connection.request(
            "POST", "/api/append?session=s", body, headers={"Authorization": f"Bearer {target.secrets['write']}"}
        )
        answer = connection.getresponse()
        said = json.loads(answer.read())
    connection.close()

    assert (answer.status, "more than 200,000 values" in said["error"]["message"]) == (400, True)


def test_requests_under_way_are_bounded_and_the_next_one_is_told_so(target: Target) -> None:
    with target.connected("/acp?agent=scripted", "write") as client:
        client.send(asked(1, "initialize", protocolVersion=1))
        client.send(asked(2, "session/new", cwd="/", mcpServers=[]))
        session = until(client, 2)["result"]["sessionId"]
        with Watch(target):
            for id in range(10, 210):
                client.send(
                    asked(id, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "[[hang]]"}])
                )
            refused = until(client, 209)
        assert "requests of this connection are under way" in refused["error"]["message"]


def test_frames_of_one_token_come_no_faster_than_its_rate(target: Target) -> None:
    """400 at once and 200 a second: 1,000 of them take three seconds, and nobody else waits."""
    with target.connected("/acp") as client, Watch(target):
        began = time.monotonic()
        for id in range(1, 1_001):
            client.send(asked(id, "no/such"))
        until(client, 1_000)
        assert time.monotonic() - began > 2.5


def test_no_frame_is_inflated(target: Target) -> None:
    address = f"ws://127.0.0.1:{target.served.port}/acp"
    headers = {"Authorization": f"Bearer {target.secrets['read']}"}
    with connect(address, additional_headers=headers, compression="deflate") as client:
        assert client.response is not None
        assert "Sec-WebSocket-Extensions" not in client.response.headers


# ---------------------------------------------------------------------- unfinished messages


class Raw:
    """A WebSocket that sends bytes as it likes."""

    def __init__(self, target: Target, path: str, scope: str = "read") -> None:
        port = target.served.port
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {target.secrets[scope]}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.head = b""
        while b"\r\n\r\n" not in self.head:
            self.head += self.socket.recv(1)

    def send(self, data: bytes) -> bool:
        """Whether it was taken: false once the server has ended the connection."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def last(self) -> bytes:
        """What is sent until the end of the connection: its end tells why."""
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while data := self.socket.recv(1 << 16):
                found = (found + data)[-300:]
        return found


def piece(data: bytes, opcode: int = 0, *, fin: bool = False) -> bytes:
    """A frame, masked with zeros."""
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 127]) + size.to_bytes(8)
    return bytes([(0x80 if fin else 0) | opcode]) + length + bytes(4) + data


@pytest.fixture
def raws() -> Iterator[list[Raw]]:
    made: list[Raw] = []
    yield made
    for one in made:
        one.socket.close()


@pytest.mark.parametrize(
    ("path", "scope", "most"),
    [
        ("/acp", "read", 64 << 10),
        ("/api/live", "read", 4 << 10),
        ("/api/live", "admin", 4 << 10),
        ("/acp", "write", 16 << 20),
    ],
)
def test_a_message_is_as_large_as_its_path_and_token_allow_and_then_the_socket_ends(
    target: Target, raws: list[Raw], path: str, scope: str, most: int
) -> None:
    raws.append(raw := Raw(target, path, scope))
    assert raw.head.startswith(b"HTTP/1.1 101")
    with Watch(target):
        raw.send(piece(b" " * (most // 2), 1))
        raw.send(piece(b" " * (most // 2 + 1)))
        assert (1009).to_bytes(2) in raw.last()


def test_empty_pieces_are_counted_too(target: Target, raws: list[Raw]) -> None:
    raws.append(raw := Raw(target, "/acp", "write"))
    with Watch(target):
        raw.send(piece(b" ", 1))
        pieces = piece(b"") * 20_000
        while raw.send(pieces):
            pass


def test_unfinished_messages_of_all_connections_have_one_budget(target: Target, raws: list[Raw]) -> None:
    """Twelve of them at fifteen megabytes each: the oldest ones go, and what is left is within the budget."""
    most = 64 << 20
    with Watch(target) as watch:
        for _ in range(12):
            raws.append(raw := Raw(target, "/acp", "write"))
            raw.send(piece(b" ", 1) + piece(b" " * (15 << 20))[: 15 << 20])
        assert (1013).to_bytes(2) in raws[0].last()
    assert watch.grown < most + (32 << 20)


@pytest.mark.parametrize("opcode", [9, 1])
def test_a_flood_of_tiny_frames_leaves_others_their_turn(target: Target, raws: list[Raw], opcode: int) -> None:
    """Pings whose answers nobody reads, and empty messages."""
    raws.append(raw := Raw(target, "/api/live"))
    raw.socket.settimeout(3)
    flood = piece(b"", opcode, fin=True) * 40_000
    with Watch(target):
        for _ in range(8):
            if not raw.send(flood):
                break


# ---------------------------------------------------------------------- idle connections


def test_idle_connections_keep_nobody_out(target: Target) -> None:
    """More than there may be, without a token, and each stays silent."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8_192)), hard))
    idle: list[socket.socket] = []
    try:
        with Watch(target):
            idle += (socket.create_connection(("127.0.0.1", target.served.port), PATIENCE) for _ in range(4_200))
            for _ in range(5):
                assert target.served.get("/api/sessions", target.secrets["read"])[0] == 200
    finally:
        for one in idle:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_that_never_end_their_handshake_keep_nobody_out(tmp_path: Path) -> None:
    """More than the process has descriptors for. None of them says a word of TLS."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run([*make.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    onefold.open(tmp_path / "agent.db").close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8_192)), hard))
    idle: list[socket.socket] = []
    trusting = ssl.create_default_context(cafile=str(cert))
    try:
        with Served(str(tmp_path / "agent.db"), tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as served:
            before = Target(served).status("VmRSS")
            idle += (socket.create_connection(("127.0.0.1", served.port), PATIENCE) for _ in range(4_600))
            for _ in range(5):
                asked = http.client.HTTPSConnection("localhost", served.port, timeout=PATIENCE, context=trusting)
                began = time.monotonic()
                asked.request("GET", "/healthz")
                assert asked.getresponse().status == 200
                asked.close()
                print(f"{(time.monotonic() - began) * 1000:.0f} ms for somebody who says something")
            assert served.process is not None
            held = len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))
            grown = Target(served).status("VmHWM") - before
            print(f"{held} descriptors, peak memory +{grown >> 20} MB")
            assert held < 200
            assert grown < MEMORY
    finally:
        for one in idle:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---------------------------------------------------------------------- agents


ENDLESS = "import os,time\nwhile True: os.write(1, b'x' * 65536)\n"
DEAF = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    result = {"protocolVersion": 1} if asked["method"] == "initialize" else {"sessionId": "x"}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    if asked["method"] == "session/new":
        time.sleep(600)
"""


def test_an_agent_whose_line_has_no_end_is_ended(tmp_path: Path) -> None:
    with with_agent(tmp_path, ENDLESS) as target, target.connected("/acp?agent=it", "write") as client:
        client.send(asked(1, "initialize", protocolVersion=1))
        until(client, 1)
        with Watch(target, memory=3 * (64 << 20)):
            client.send(asked(2, "session/new", cwd="/", mcpServers=[]))
            ends = time.monotonic() + PATIENCE
            while "a line of more than 67,108,864 bytes" not in target.served.log.read_text():
                assert time.monotonic() < ends
                assert target.served.get("/healthz")[0] == 200


HUGE = """
import json, sys
SHAPES = {
    "plain": ("x", 7 << 20), "lines": (r"\\n", 2_050_000), "wide": ("x", 4_150_000, "\\U0001F600"),
    "letters": ("\\u6f22", 1_350_000), "surrogate": ("x", 7 << 20, r"\\ud800"), "left-out": ("x", 60 << 20),
    "values": ("[],", 2_500_000), "bytes": (b"\\xff", 7 << 20),
}
shape, times = sys.argv[1], int(sys.argv[2])
sign, count, *end = SHAPES[shape]
update = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"x","update":{"sessionUpdate":"'
update += 'agent_message_chunk","content":{"type":"text","text":@}}}}'
if shape == "bytes":
    large = sign * count
else:
    text = sign * count + "".join(end)
    large = update.replace("@", f"[{text}1]" if shape == "values" else f'"{text}"').encode()
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked or "method" not in asked:
        continue
    result = {"protocolVersion": 1} if asked["method"] == "initialize" else {"sessionId": "x"}
    if asked["method"] == "session/prompt":
        result = {"stopReason": "end_turn"}
        for _ in range(times):
            sys.stdout.buffer.write(large + b"\\n")
            sys.stdout.buffer.flush()
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize(
    ("shape", "times"),
    [
        ("plain", 1), ("plain", 10), ("lines", 1), ("wide", 1), ("letters", 1), ("surrogate", 1), ("left-out", 1),
        ("values", 1), ("bytes", 1),
    ],
)  # fmt: skip
def test_large_frames_of_an_agent_keep_nobody_waiting(tmp_path: Path, shape: str, times: int) -> None:
    """As large as one may be, and beyond that; ten of them cost little more than one."""
    agent = with_agent(tmp_path, HUGE, shape, str(times))
    with agent as target, target.connected("/acp?agent=it", "write") as client:
        client.send(asked(1, "initialize", protocolVersion=1))
        client.send(asked(2, "session/new", cwd="/", mcpServers=[]))
        session = until(client, 2)["result"]["sessionId"]

        with Watch(target, 300 << 20):
            client.send(asked(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}]))
            assert until(client, 3)["result"]["stopReason"] == "end_turn"


@pytest.mark.parametrize(
    ("sign", "size", "end"),
    [("x", 15 << 20, ""), (" ", 15 << 20, ""), ("\n", 2_000_000, ""), ("x", 4_150_000, "\U0001f600")],
    ids=["plain", "spaces", "lines", "wide"],
)
def test_large_prompts_keep_nobody_waiting(tmp_path: Path, sign: str, size: int, end: str) -> None:
    with with_agent(tmp_path, HUGE, "plain", "0") as target, target.connected("/acp?agent=it", "write") as client:
        client.send(asked(1, "initialize", protocolVersion=1))
        client.send(asked(2, "session/new", cwd="/", mcpServers=[]))
        session = until(client, 2)["result"]["sessionId"]
        blocks = [{"type": "text", "text": sign * size + end}]
        params = {"sessionId": session, "prompt": blocks}
        prompt = {"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": params}
        with Watch(target, 600 << 20):
            client.send(json.dumps(prompt, ensure_ascii=False))
            assert until(client, 3)["result"]["stopReason"] == "end_turn"


def test_what_waits_for_an_agent_that_does_not_read_is_bounded_and_its_client_is_told(tmp_path: Path) -> None:
    with with_agent(tmp_path, DEAF) as target, target.connected("/acp?agent=it", "write") as client:
        client.send(asked(1, "initialize", protocolVersion=1))
        client.send(asked(2, "session/new", cwd="/", mcpServers=[]))
        session = until(client, 2)["result"]["sessionId"]
        large = {"jsonrpc": "2.0", "method": "_x/y", "params": {"sessionId": session, "d": "x" * (4 << 20)}}
        with Watch(target, memory=250 << 20):
            for _ in range(100):
                client.send(json.dumps(large))
            refused = json.loads(client.recv(PATIENCE))
            while "error" not in refused:
                refused = json.loads(client.recv(PATIENCE))

    assert refused["id"] is None
    assert "does not read" in refused["error"]["message"] or "under way" in refused["error"]["message"]


@contextmanager
def with_agent(folder: Path, code: str, *options: str) -> Iterator[Target]:
    onefold.open(folder / "agent.db").close()
    (folder / "agent.py").write_text(code)
    config(folder, it=[sys.executable, str(folder / "agent.py"), *options])
    secret, _ = Tokens(folder / "onefold" / "tokens.json").new("write", ["read", "write", "agents"])
    with Served(str(folder / "agent.db"), folder) as served:
        yield Target(served, {"write": secret})


def test_large_records_are_read_for_those_who_follow_a_few_at_a_time(target: Target) -> None:
    """A hundred megabytes in twenty records, for one who follows all sessions and one who follows this."""
    secret = target.secrets["read"]
    with onefold.open(target.served.store) as store, contextlib.ExitStack() as opened:
        session = store.session("large")
        session.append({"role": "user", "content": "first"})
        for query in ("", "?session=large"):
            stream = opened.enter_context(socket.create_connection(("127.0.0.1", target.served.port), PATIENCE))
            stream.sendall(
                f"GET /api/events{query} HTTP/1.1\r\nHost: 127.0.0.1:{target.served.port}\r\n"
                f"Authorization: Bearer {secret}\r\n\r\n".encode()
            )
            assert b"hello" in stream.recv(65_536) + stream.recv(65_536)
        with Watch(target, memory=150 << 20):
            for _ in range(4):
                session.append([{"role": "user", "content": "x" * (5 << 20)} for _ in range(5)])
            ends = time.monotonic() + PATIENCE
            while appended(target) < 20:
                assert time.monotonic() < ends
                threading.Event().wait(0.05)


def appended(target: Target) -> int:
    """Messages that the server has seen come."""
    found = re.search(r"^onefold_appends_total (\d+)", target.served.get("/metrics", target.secrets["read"])[1], re.M)
    return int(found[1]) if found else 0


# ---------------------------------------------------------------------- answers


def test_a_context_that_is_too_large_for_one_answer_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "agent.db") as store:
        session = store.session("big")
        for _ in range(40):
            session.append({"role": "user", "content": "x" * (5 << 20)})
    with with_agent(tmp_path, "") as target, Watch(target):
        status, said = target.served.get("/api/context?session=big", target.secrets["write"])

    assert status == 413
    assert json.loads(said)["error"] == {
        "kind": "TooLarge",
        "message": "the context of session 'big' has more than 33,554,432 bytes of messages: those of records 1 to 8 "
        "alone are more",
        "remedy": "read it in pages with /api/records, or compact the session",
    }


# ---------------------------------------------------------------------- probes


class Probes:
    """Connections without a token, each asking `/readyz` and waiting for the answer."""

    def __init__(self, target: Target, count: int) -> None:
        self._sockets = [socket.create_connection(("127.0.0.1", target.served.port), PATIENCE) for _ in range(count)]
        self._host = f"127.0.0.1:{target.served.port}"

    def ask(self) -> None:
        for one in self._sockets:
            one.sendall(f"GET /readyz HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())

    def answers(self) -> list[tuple[int, str]]:
        found = []
        for one in self._sockets:
            answer = http.client.HTTPResponse(one)
            answer.begin()
            found.append((answer.status, answer.read().decode()))
        return found

    def close(self) -> None:
        for one in self._sockets:
            one.close()


def test_probes_while_another_process_holds_the_lock_take_no_thread_and_tell_no_path(target: Target) -> None:
    held = sqlite3.connect(target.served.store, isolation_level=None)
    held.execute("begin immediate")
    probes = Probes(target, 60)
    try:
        with Watch(target):
            probes.ask()
            began = time.monotonic()
            assert target.served.get("/api/sessions", target.secrets["read"])[0] == 200
            waited = time.monotonic() - began
            found = probes.answers()
    finally:
        held.rollback()
        held.close()
        probes.close()

    assert waited < 0.75, "a read waited for the probes"
    assert {status for status, _ in found} == {503}
    assert not [words for _, words in found if target.served.store in words or "agent.db" in words]
    assert "write lock" in found[0][1]


def test_a_flood_of_probes_asks_the_store_once_a_second(target: Target) -> None:
    probes = Probes(target, 80)
    try:
        with Watch(target):
            for _ in range(5):
                probes.ask()
                assert {status for status, _ in probes.answers()} == {200}
    finally:
        probes.close()


def until(client: ClientConnection, id: int) -> Any:
    """The answer to a request."""
    while True:
        heard = json.loads(client.recv(PATIENCE))
        if heard.get("id") == id and "method" not in heard:
            return heard
