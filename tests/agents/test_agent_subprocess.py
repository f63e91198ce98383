"""The agent's process: pipes of any size and speed, and an end that is noticed, bounded, and reaches everybody."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onefold.acp import agent_subprocess as module
from onefold.acp.agent_subprocess import (
    AgentSubprocess,
    CannotStart,
    SubprocessExit,
    SubprocessGone,
    SubprocessNotReading,
)
from onefold.acp.pipes import CHUNK
from onefold.jsonrpc import Frame, notification, request, result
from onefold.model import Json
from tests.support.agent_children import alive
from tests.support.helpers import PATIENCE, ROOT

AGENT = [sys.executable, str(ROOT / "tests" / "support" / "scripted_agent.py")]
ECHO = "import sys\nfor line in sys.stdin.buffer: sys.stdout.buffer.write(line); sys.stdout.buffer.flush()"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 2 * PATIENCE))


class Heard:
    """All that a child said, and how it ended; a test can wait for any of it."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.lines: list[str] = []
        self.noise: list[str] = []
        self.left_out: list[str] = []
        self.ends: list[SubprocessExit] = []
        self.order: list[str] = []
        self.gate = asyncio.Event()
        """Closed, no frame is taken."""
        self.gate.set()
        self._changed = asyncio.Event()

    async def start(self, command: list[str], **more: Any) -> AgentSubprocess:
        return await AgentSubprocess.start(
            command,
            on_frame=self.frame,
            on_line=self.line,
            on_noise=self.noisy,
            on_left_out=self.too_large,
            on_end=self.end,
            **more,
        )

    async def frame(self, frame: Frame, size: int) -> None:
        await self.gate.wait()
        self._add("frame", self.frames, frame)

    async def line(self, text: str) -> None:
        self._add("line", self.lines, text)

    async def noisy(self, text: str) -> None:
        self._add("noise", self.noise, text)

    async def too_large(self, why: str) -> None:
        self._add("left out", self.left_out, why)

    async def end(self, ended: SubprocessExit) -> None:
        self._add("end", self.ends, ended)

    def _add(self, what: str, to: list[Any], item: Any) -> None:
        self.order.append(what)
        to.append(item)
        self._changed.set()

    async def until(self, holds: Callable[[], object], seconds: float = PATIENCE) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def answer(self, id: int) -> dict[str, Json]:
        await self.until(lambda: any(f.is_response and f.id == id for f in self.frames))
        return next(f.body for f in self.frames if f.is_response and f.id == id)

    @property
    def said(self) -> str:
        """What the scripted agent said, all of it."""
        updates = [f.update for f in self.frames if f.update.get("sessionUpdate") == "agent_message_chunk"]
        return "".join(update["content"]["text"] for update in updates)


class Talk:
    """A scripted agent with one session, ready to be prompted."""

    def __init__(self, child: AgentSubprocess, heard: Heard, session: str) -> None:
        self.child, self.heard, self.session = child, heard, session
        self._id = 10

    @classmethod
    async def begin(cls, *options: str, **more: Any) -> Talk:
        heard = Heard()
        child = await heard.start([*AGENT, *options], **more)
        child.send(request(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}}))
        child.send(request(2, "session/new", {"cwd": "/", "mcpServers": []}))
        return cls(child, heard, (await heard.answer(2))["result"]["sessionId"])

    def prompt(self, text: str) -> int:
        self._id += 1
        words = [{"type": "text", "text": text}]
        self.child.send(request(self._id, "session/prompt", {"sessionId": self.session, "prompt": words}))
        return self._id

    async def turn(self, text: str) -> None:
        assert (await self.heard.answer(self.prompt(text)))["result"] == {"stopReason": "end_turn"}


def folder_of(pid: int) -> str:
    return str(Path(f"/proc/{pid}/cwd").readlink())


def await_death(pid: int) -> None:
    """Of a process that is nobody's child here."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], PATIENCE)[0], f"process {pid} lives on"
    finally:
        os.close(handle)


# ---------------------------------------------------------------------- what it says


def test_frames_noise_and_lines_each_go_their_own_way() -> None:
    async def scenario() -> None:
        talk = await Talk.begin()

        await talk.turn("[[say:hello]] [[noise:Loading plugins...]] [[array]] [[stderr:a warning]]")

        assert talk.heard.said == "helloonetwo"
        assert talk.heard.noise == ["Loading plugins..."]
        await talk.heard.until(lambda: talk.heard.lines == ["a warning"])
        await talk.child.end()

    run(scenario())


def test_what_is_json_and_no_frame_is_noise_and_blank_lines_are_nothing() -> None:
    lines = [
        "",
        "  \r",
        "{}",
        "[]",
        "17",
        '{"jsonrpc":"2.0","result":1}',
        '[{"id":1,"result":{}},{"no":"frame"}]',
        '{"id":null,"error":{"code":-32700,"message":"no JSON"}}',
        '{"method":"a/b"}\r',
        '{"method":"' + "a\u2028b\x0b" + '"}',
    ]

    async def scenario() -> None:
        heard = Heard()
        await heard.start(python(f"import sys; sys.stdout.buffer.write({chr(10).join(lines).encode()!r})"))

        await heard.until(lambda: heard.ends)

        assert heard.noise == ["{}", "[]", "17", '{"jsonrpc":"2.0","result":1}', '{"no":"frame"}', lines[-1]]
        assert [f.body.get("method", f.body.get("id")) for f in heard.frames] == [1, None, "a/b"]

    run(scenario())


def test_only_a_newline_ends_a_line_and_odd_bytes_stop_nothing() -> None:
    code = (
        "import os\n"
        "os.write(1, '{\"method\":\"a\\u2028b\\x85c\"}\\n'.encode() + b'\\xff\\xfe no text\\n')\n"
        "os.write(2, b'caf\\xc3\\xa9 \\xff\\r\\n\\nlast')\n"
        'os.write(1, b\'{"id":1,"result":"cut off, but whole"}\')\n'
    )

    async def scenario() -> None:
        heard = Heard()
        await heard.start(python(code))

        await heard.until(lambda: heard.ends)

        assert [f.body for f in heard.frames] == [
            {"method": "a\u2028b\x85c"},
            {"id": 1, "result": "cut off, but whole"},
        ]
        assert heard.noise == ["\ufffd\ufffd no text"]
        assert heard.lines == ["café \ufffd", "", "last"]

    run(scenario())


def test_a_line_of_stderr_is_heard_before_every_frame_that_was_written_after_it() -> None:
    """Both pipes within a moment, as when an agent says in its log that it has compacted, and goes on at once."""
    rounds = 300
    code = f"""
import os, sys
for n in range({rounds}):
    sys.stdin.readline()
    os.write(1, b'{{"method":"before","params":{{"n":%d}}}}\\n' % n)
    os.write(2, b"done %d\\n" % n)
    os.write(1, b'{{"method":"after","params":{{"n":%d}}}}\\n' % n)
"""

    class Ordered(Heard):
        def __init__(self) -> None:
            super().__init__()
            self.told: list[str] = []

        async def frame(self, frame: Frame, size: int) -> None:
            self.told.append(f"{frame.method} {frame.params['n']}")
            await super().frame(frame, size)

        async def line(self, text: str) -> None:
            self.told.append(text)
            await super().line(text)

    async def scenario() -> None:
        heard = Ordered()
        child = await heard.start(python(code))
        for n in range(rounds):
            child.send(notification("on", {}))
            await heard.until(partial(_has, heard.told, f"after {n}", f"done {n}"))
        await child.end()

        order = heard.told
        late = [n for n in range(rounds) if order.index(f"done {n}") > order.index(f"after {n}")]
        early = [n for n in range(rounds) if order.index(f"done {n}") < order.index(f"before {n}")]
        print(f"of {rounds}: {len(late)} heard too late, {len(early)} heard before what came right before it")
        assert late == []

    run(scenario())


def _has(order: list[str], *wanted: str) -> bool:
    return {*wanted} <= {*order[-3:]}


def test_half_a_frame_at_the_end_is_noise() -> None:
    async def scenario() -> None:
        heard = Heard()
        await heard.start(python('print(\'{"method":"whole"}\'); print(\'{"method":"ha\', end=\'\')'))

        await heard.until(lambda: heard.ends)

        assert [f.method for f in heard.frames] == ["whole"]
        assert heard.noise == ['{"method":"ha']

    run(scenario())


def test_a_frame_of_eight_megabytes_comes_and_goes_whole() -> None:
    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python(ECHO))
        sent = notification("big", {"text": "x" * 8_000_000})

        child.send(sent)
        await heard.until(lambda: heard.frames)

        assert heard.frames == [sent]
        assert child.waiting == 0
        await child.end()

    run(scenario())


def test_a_line_of_stdout_without_an_end_ends_the_agent_and_little_of_it_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onefold.acp.agent_subprocess.LONGEST_FRAME", 1 << 19)
    monkeypatch.setattr("onefold.acp.agent_subprocess.LONGEST_LINE", 1 << 20)
    code = "import os\nwhile True: os.write(1, b'x' * 65536)"

    async def scenario() -> None:
        heard = Heard()
        await heard.start(python(code))
        await heard.until(lambda: heard.ends)
        assert "it wrote a line of more than 1,048,576 bytes" in heard.ends[0].cause
        assert not heard.frames

    run(scenario())


LARGE_LINES = """
import json, sys
print(sys.argv[1].replace("@", "x" * 600_000), flush=True)
print(json.dumps({"jsonrpc": "2.0", "method": "after"}), flush=True)
input()
"""


@pytest.mark.parametrize(
    "update",
    [
        '{"jsonrpc":"2.0","method":"session/update","params":{"update":"@"}}',
        '{"method": "session/update", "params": {"update": "@"}}',
    ],
)
def test_an_update_that_is_too_large_is_left_out_and_the_agent_goes_on(
    monkeypatch: pytest.MonkeyPatch, update: str
) -> None:
    monkeypatch.setattr("onefold.acp.agent_subprocess.LONGEST_FRAME", 1 << 19)

    async def scenario() -> None:
        heard = Heard()
        child = await heard.start([*python(LARGE_LINES), update])
        await heard.until(lambda: heard.frames)

        assert heard.left_out == [f"it has {len(update) + 599_999:,} bytes, and 524,288 are the most"]
        assert [frame.method for frame in heard.frames] == ["after"]
        await child.end()

    run(scenario())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            '{"jsonrpc":"2.0","id":1,"result":{"a":"@"}}',
            "a frame that is too large: it has 600,042 bytes, and 524,288 are the most",
        ),
        ('{"jsonrpc":"2.0","id":1,"method":"session/update","params":"@"}', "524,288 are the most"),
        ('{"jsonrpc":"2.0","method":"session/updates","params":"@"}', "524,288 are the most"),
        ('{"params":{"a":"@"},"method":"session/update"}', "524,288 are the most"),
    ],
)
def test_an_agent_whose_other_frame_is_too_large_is_ended_since_somebody_may_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, line: str, why: str
) -> None:
    monkeypatch.setattr("onefold.acp.agent_subprocess.LONGEST_FRAME", 1 << 19)

    async def scenario() -> None:
        heard = Heard()
        await heard.start([*python(LARGE_LINES), line])
        await heard.until(lambda: heard.ends)

        assert why in heard.ends[0].cause
        assert not heard.frames

    run(scenario())


def test_an_agent_whose_frame_is_more_than_it_looks_is_ended() -> None:
    code = 'print(\'{"method":"a","params":[\' + "[]," * 300_000 + "1]}", flush=True)\ninput()'

    async def scenario() -> None:
        heard = Heard()
        await heard.start(python(code))
        await heard.until(lambda: heard.ends)

        assert "it wrote a frame that is too large: it has more than 200,000 values" in heard.ends[0].cause
        assert not heard.frames

    run(scenario())


@pytest.mark.parametrize(
    ("said", "taken"), [("a", True), ("\\\\n", False), ("\u6f22", False), ("aaaaaaaaaa\\\\n", True)]
)
def test_a_frame_beyond_four_megabytes_is_taken_if_it_is_plain(said: str, taken: bool) -> None:
    code = f"""
import sys
update = '{{"method":"session/update","params":{{"a":"' + '{said}' * (5_000_000 // len('{said}'.encode())) + '"}}}}\\n'
sys.stdout.buffer.write(update.encode())
sys.stdout.buffer.flush()
input()
"""

    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python(code))
        await heard.until(lambda: heard.frames or heard.left_out)

        assert bool(heard.frames) is taken
        assert taken or "4,194,304 are the most for text that is not plain ASCII" in heard.left_out[0]
        await child.end()

    run(scenario())


def test_a_long_line_that_is_no_frame_is_cut_into_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.acp.agent_subprocess.LONGEST_SAID", 1 << 10)
    code = "print('x' * 3_000, flush=True)\ninput()"

    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python(code))
        await heard.until(lambda: len(heard.noise) == 3)

        assert "".join(heard.noise) == "x" * 3_000
        await child.end()

    run(scenario())


def test_a_child_that_is_held_says_no_more_until_it_goes_on_or_dies() -> None:
    code = """
import json, sys
for line in sys.stdin:
    print(line, end="", flush=True)
    print(line, end="", file=sys.stderr, flush=True)
    if "die" in line: break
"""

    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python(code))
        child.send(notification("a", {}))
        await heard.until(lambda: heard.frames and heard.lines)
        child.hold(True)
        child.send(notification("b", {}))
        await child._stderr.wait()  # it writes there last
        for _ in range(10):
            await asyncio.sleep(0)
        assert (len(heard.frames), len(heard.lines)) == (1, 1)
        child.hold(False)
        await heard.until(lambda: len(heard.frames) == 2 and len(heard.lines) == 2)

        child.hold(True)
        child.send(notification("die", {}))
        await heard.until(lambda: heard.ends)
        assert [frame.method for frame in heard.frames] == ["a", "b", "die"]
        assert len(heard.lines) == 3

    run(scenario())


def test_a_line_of_stderr_without_an_end_is_cut_into_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.acp.agent_subprocess.LONGEST_SAID", 1 << 20)
    code = "import os\nfor _ in range(64): os.write(2, b'x' * 65536)\nos.write(2, b'\\nlast\\n')"

    async def scenario() -> None:
        heard = Heard()
        await heard.start(python(code))
        await heard.until(lambda: heard.ends)
        assert heard.lines[-1] == "last"
        assert sum(map(len, heard.lines[:-1])) == 64 * 65536
        assert max(map(len, heard.lines)) <= (1 << 20) + CHUNK

    run(scenario())


def test_what_waits_for_a_child_that_does_not_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.acp.agent_subprocess.MOST_WAITING", 1 << 20)

    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python("import time\ntime.sleep(600)"))
        child.send(notification("large", {"text": "x" * (3 << 20)}))  # one by itself always passes
        held = child.waiting
        with pytest.raises(SubprocessNotReading, match="does not read"):
            child.send(notification("small", {}))
        assert child.waiting == held
        await child.end(0)

    run(scenario())


def test_the_time_for_a_long_line_grows_with_its_length_and_not_faster() -> None:
    code = "import os\nfor _ in range({}): os.write(2, b'x' * 4096)\nos.write(2, b'\\n')"

    async def seconds(pieces: int) -> float:
        heard = Heard()
        began = time.perf_counter()
        await heard.start(python(code.format(pieces)))
        await heard.until(lambda: heard.ends)
        assert sum(map(len, heard.lines)) == 4096 * pieces
        return time.perf_counter() - began

    async def scenario() -> None:
        short = min([await seconds(500) for _ in range(2)])
        long = await seconds(5000)
        assert long < 30 * short

    run(scenario())


def test_a_child_that_writes_before_it_reads_and_we_write_before_we_read_is_no_deadlock() -> None:
    code = (
        "import sys\n"
        'sys.stdout.write(\'{"method":"\' + "y" * 8_000_000 + \'"}\\n\')\n'
        "sys.stderr.write('e' * 8_000_000 + '\\n'); sys.stderr.flush()\n"
        "sys.stdout.flush()\n" + ECHO
    )

    async def scenario() -> None:
        heard = Heard()
        heard.gate.clear()
        child = await heard.start(python(code))
        sent = notification("ours", {"text": "x" * 8_000_000})

        child.send(sent)
        await heard.until(lambda: heard.lines)
        assert child.waiting > 7_000_000
        heard.gate.set()
        await heard.until(lambda: len(heard.frames) == 2)

        assert len(heard.frames[0].method or "") == 8_000_000
        assert heard.frames[1] == sent
        await child.end()

    run(scenario())


def test_a_flood_of_stderr_is_read_in_full_while_no_frame_is_taken() -> None:
    async def scenario() -> None:
        heard = Heard()
        heard.gate.clear()
        child = await heard.start(python(_FLOOD))

        await heard.until(lambda: len(heard.lines) == 100_000)
        assert heard.lines == [f"line {n}" for n in range(100_000)]
        assert not heard.frames
        assert not heard.ends

        heard.gate.set()
        await heard.until(lambda: heard.ends)
        assert len(heard.frames) == 50_000
        assert (await child.end()).code == 0

    run(scenario())


_FLOOD = """
import sys, threading
def flood():
    sys.stderr.write("".join(f"line {n}\\n" for n in range(100_000)))
    sys.stderr.flush()
thread = threading.Thread(target=flood)
thread.start()
sys.stdout.write('{"method":"m"}\\n' * 50_000)
sys.stdout.flush()
thread.join()
"""


def test_frames_are_taken_one_after_another_and_the_child_has_to_wait(tmp_path: Path) -> None:
    done = tmp_path / "done"
    code = (
        "import sys, pathlib\n"
        'sys.stdout.write(\'{"method":"m"}\\n\' * 50_000); sys.stdout.flush()\n'
        f"pathlib.Path({str(done)!r}).touch()\n"
    )

    async def scenario() -> None:
        heard = Heard()
        heard.gate.clear()
        child = await heard.start(python(code))

        await asyncio.sleep(0.5)
        assert not done.exists()
        assert not heard.frames
        heard.gate.set()
        await heard.until(lambda: heard.ends)

        assert len(heard.frames) == 50_000
        assert (await child.end()).code == 0

    run(scenario())


def test_a_child_that_never_pauses_leaves_the_event_loop_to_others() -> None:
    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python("import os\nwhile True: os.write(1, b'noise\\n' * 5000)"))
        await heard.until(lambda: heard.noise)

        longest = 0.0
        for _ in range(50):
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began)

        assert longest < 0.5
        assert (await child.end(grace=0.2)).signal in (signal.SIGTERM, signal.SIGKILL, signal.SIGPIPE)

    run(scenario())


# ---------------------------------------------------------------------- what it is sent


def test_what_a_stopped_child_does_not_take_waits_here_in_order() -> None:
    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python(ECHO))
        child.send(notification("first", {}))
        await heard.until(lambda: heard.frames)
        os.kill(child.pid, signal.SIGSTOP)

        began = time.perf_counter()
        for n in range(3000):
            child.send(notification("n", {"n": n, "pad": "x" * 1000}))
        assert time.perf_counter() - began < 2
        assert child.waiting > 2_000_000

        os.kill(child.pid, signal.SIGCONT)
        await heard.until(lambda: len(heard.frames) == 3001)
        assert [f.params["n"] for f in heard.frames[1:]] == list(range(3000))
        assert child.waiting == 0
        await child.end()

    run(scenario())


def test_an_agent_that_stops_reading_for_a_while_gets_all_of_it_in_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, go = tmp_path / "log", tmp_path / "go"
        talk = await Talk.begin("--log", str(log))

        await talk.turn(f"[[slow:{go}]] [[say:I am not listening]]")
        for n in range(500):
            talk.child.send(notification("note", {"n": n, "pad": "x" * 1000}))
        assert talk.child.waiting > 0
        go.touch()
        await talk.turn("[[say:now I am]]")

        received = [json.loads(line) for line in log.read_text().splitlines()]
        assert [f["params"]["n"] for f in received if f["method"] == "note"] == list(range(500))
        await talk.child.end()

    run(scenario())


def test_odd_text_goes_out_and_comes_back_equal() -> None:
    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python(ECHO))
        sent = notification("m", {"text": "a\x00b \ud800 \u2028 \U0001f5dc\n\r", "number": 10**30})

        child.send(sent)
        await heard.until(lambda: heard.frames)

        assert heard.frames == [sent]
        await child.end()

    run(scenario())


def test_env_is_all_of_its_environment_and_the_folder_is_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "before")
    here = dict(os.environ)
    monkeypatch.setenv("WITHHELD", "secret")
    folder = str(tmp_path.resolve())

    async def scenario() -> None:
        talk = await Talk.begin(env={**here, "GIVEN": "more"}, cwd=folder)

        await talk.turn("[[env:INHERITED]] [[env:GIVEN]] [[env:WITHHELD]]")

        assert talk.heard.said == "INHERITED=beforeGIVEN=moreWITHHELD=None"
        assert folder_of(talk.child.pid) == folder
        await talk.child.end()

    run(scenario())


def test_a_question_is_answered_over_the_same_pipes() -> None:
    async def scenario() -> None:
        talk = await Talk.begin()
        turn = talk.prompt("[[ask:may I?]]")
        await talk.heard.until(lambda: any(f.method == "session/request_permission" for f in talk.heard.frames))
        question = next(f for f in talk.heard.frames if f.is_request)
        assert question.id is not None

        talk.child.send(result(question.id, {"outcome": {"outcome": "selected", "optionId": "yes"}}))
        await talk.heard.answer(turn)

        assert talk.heard.said == "the answer was yes"
        await talk.child.end()

    run(scenario())


# ---------------------------------------------------------------------- its end


def test_a_killed_child_is_noticed_at_once_with_its_last_words() -> None:
    async def scenario() -> None:
        talk = await Talk.begin()

        talk.prompt("[[stderr:20]] [[say:my last words]] [[die]]")
        await talk.heard.until(lambda: talk.heard.ends, 5)

        (ended,) = talk.heard.ends
        assert (ended.code, ended.signal) == (None, signal.SIGKILL)
        assert "killed by signal 9 (SIGKILL)" in ended.cause
        assert ended.last_words == tuple(f"line {n}" for n in range(14, 20))
        assert talk.heard.said == "my last words"
        assert talk.heard.order[-1] == "end"
        with pytest.raises(
            SubprocessGone, match=r"is gone: it was killed by signal 9.*Nothing was sent; start it again"
        ):
            talk.child.send(notification("m", {}))
        assert await talk.child.end() == ended
        assert len(talk.heard.ends) == 1

    run(scenario())


def test_a_child_that_ends_by_itself_says_with_which_code() -> None:
    async def scenario() -> None:
        talk = await Talk.begin()

        talk.prompt("[[die:3]]")
        await talk.heard.until(lambda: talk.heard.ends)

        assert talk.heard.ends == [SubprocessExit(3, None, "it ended with exit code 3")]

    run(scenario())


def test_what_stood_in_the_pipes_at_its_death_is_taken_first_however_slowly() -> None:
    code = "import os\nos.write(1, b'{\"method\":\"m\"}\\n' * 3000)\nos.write(2, b'line\\n' * 3000)\nos._exit(0)"

    async def scenario() -> None:
        heard = Heard()
        heard.gate.clear()
        child = await heard.start(python(code))
        await heard.until(lambda: len(heard.lines) == 3000)
        await_death_of_child(child.pid)

        await asyncio.sleep(0.1)
        assert not heard.ends
        heard.gate.set()
        await heard.until(lambda: heard.ends)

        assert len(heard.frames) == 3000
        assert heard.order[-1] == "end"

    run(scenario())


def await_death_of_child(pid: int) -> None:
    """Waits until it is dead, without taking its exit code from whom it belongs to."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_somebody_who_takes_nothing_any_more_puts_the_news_off_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STUCK", 0.2)

    async def scenario() -> None:
        heard = Heard()
        heard.gate.clear()
        await heard.start(python('print(\'{"method":"m"}\')'))

        await heard.until(lambda: heard.ends, 10)

        assert not heard.frames

    run(scenario())
    assert "its last frames or lines were not handled" in caplog.text


@pytest.mark.parametrize("where", ["", ":away"])
def test_a_grandchild_that_holds_the_pipes_does_not_hide_the_death(where: str) -> None:
    async def scenario() -> None:
        talk = await Talk.begin()
        await talk.turn(f"[[grandchild{where}]]")
        grandchild = int(talk.heard.said.removeprefix("grandchild "))
        assert alive(grandchild)

        talk.prompt("[[say: and goodbye]] [[die]]")
        try:
            await talk.heard.until(lambda: talk.heard.ends, 5)

            assert talk.heard.said.endswith(" and goodbye")
            assert talk.heard.ends[0].signal == signal.SIGKILL
            if not where:
                await_death(grandchild)
        finally:
            if alive(grandchild):
                os.kill(grandchild, signal.SIGKILL)

    run(scenario())


def test_a_grandchild_that_floods_the_pipe_of_a_dead_child_is_not_listened_to() -> None:
    code = (
        "import subprocess, sys, os\n"
        "subprocess.Popen([sys.executable, '-c', 'import os\\nwhile True: os.write(1, b\"noise\\\\n\" * 1000)'])\n"
        "sys.stdin.readline()\n"
        "os.kill(os.getpid(), 9)\n"
    )

    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python(code))
        await heard.until(lambda: heard.noise)

        child.send(notification("die", {}))

        await heard.until(lambda: heard.ends, 5)

    run(scenario())


@pytest.mark.parametrize("where", ["", ":away"])
@pytest.mark.parametrize("stubborn", [False, True])
def test_an_end_reaches_grandchildren_and_is_bounded(where: str, stubborn: bool) -> None:
    async def scenario() -> None:
        talk = await Talk.begin(*(["--stubborn"] if stubborn else []))
        await talk.turn(f"[[grandchild{where}]]")
        grandchild = int(talk.heard.said.removeprefix("grandchild "))

        began = time.perf_counter()
        ended = await talk.child.end(grace=1.0)
        assert time.perf_counter() - began < 4

        assert not alive(grandchild)
        assert not alive(talk.child.pid)
        assert (ended.code, ended.signal) == ((None, signal.SIGKILL) if stubborn else (0, None))
        assert ended.cause.startswith("onefold ended it; ")
        assert talk.heard.ends == [ended]

    run(scenario())


def test_a_child_that_heeds_sigterm_only_is_ended_by_it() -> None:
    code = "import signal\nsignal.signal(15, lambda *_: exit(7))\nprint('up', flush=True)\nwhile True: signal.pause()"

    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python(code))
        await heard.until(lambda: heard.noise)

        assert (await child.end(grace=0.4)).code == 7

    run(scenario())


def test_what_was_sent_before_the_end_still_reaches_the_child() -> None:
    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python(ECHO))
        for n in range(200):
            child.send(notification("n", {"n": n, "pad": "x" * 10_000}))

        ended = await child.end()

        assert ended.code == 0
        assert [f.params["n"] for f in heard.frames] == list(range(200))

    run(scenario())


def test_an_end_asked_for_by_many_at_once_is_one_end_and_the_least_patient_decides() -> None:
    async def scenario() -> None:
        talk = await Talk.begin("--stubborn")
        slow = asyncio.create_task(talk.child.end(grace=60))
        await asyncio.sleep(0)
        with pytest.raises(SubprocessGone, match="it is about to end"):
            talk.prompt("too late")

        ends = await asyncio.gather(talk.child.end(grace=0), slow, talk.child.end(grace=0))

        assert ends[0].signal == signal.SIGKILL
        assert set(ends) == set(talk.heard.ends)
        assert len(talk.heard.ends) == 1

    run(scenario())


@pytest.mark.parametrize("number", [0, 1])
def test_a_child_that_closes_a_pipe_and_goes_on_is_ended(number: int) -> None:
    code = f"import os, signal\nos.close({number})\nos.write(2, b'up\\n')\nsignal.pause()"

    async def scenario() -> None:
        heard = Heard()
        child = await heard.start(python(code))
        await heard.until(lambda: heard.lines)
        if number == 0:
            child.send(notification("m", {}))
            with pytest.raises(SubprocessGone, match="it is about to end"):
                child.send(notification("m", {}))

        await heard.until(lambda: heard.ends)

        name = ["stdin", "stdout"][number]
        assert heard.ends[0].cause == f"it closed its {name}; it was killed by signal 15 (SIGTERM)"
        assert heard.ends[0].last_words == ("up",)

    run(scenario())


def test_somebody_who_fails_to_take_a_frame_ends_the_child_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: Frame, size: int) -> None:
        raise RuntimeError("a mistake")

    async def scenario() -> None:
        heard = Heard()
        child = await AgentSubprocess.start(
            python('print(\'{"method":"m"}\', flush=True); input()'),
            on_frame=fail,
            on_line=heard.line,
            on_noise=heard.noisy,
            on_left_out=heard.too_large,
            on_end=heard.end,
        )

        await heard.until(lambda: heard.ends)

        assert "could not be handled (RuntimeError('a mistake'))" in (await child.end()).cause

    run(scenario())
    assert "a mistake" in caplog.text


def test_an_event_loop_that_ends_leaves_no_agent_behind() -> None:
    pids = []

    async def scenario() -> None:
        talk = await Talk.begin("--stubborn")
        pids.append(talk.child.pid)

    run(scenario())
    assert not alive(pids[0])


def test_without_handles_for_processes_a_thread_notices_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")

    async def scenario() -> None:
        talk = await Talk.begin()
        await talk.turn("[[grandchild]]")
        grandchild = int(talk.heard.said.removeprefix("grandchild "))

        talk.prompt("[[die]]")
        await talk.heard.until(lambda: talk.heard.ends)

        assert talk.heard.ends[0].signal == signal.SIGKILL
        monkeypatch.undo()
        await_death(grandchild)

    run(scenario())


_HOST = """
import asyncio, sys
from onefold.acp.agent_subprocess import AgentSubprocess

async def nothing(*_): pass

async def main():
    child = await AgentSubprocess.start(
        sys.argv[1:], on_frame=nothing, on_line=nothing, on_noise=nothing, on_left_out=nothing, on_end=nothing
    )
    print(child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_an_agent_does_not_outlive_a_onefold_that_was_killed() -> None:
    with subprocess.Popen([*python(_HOST), *AGENT], cwd=ROOT, stdout=subprocess.PIPE) as host:
        try:
            assert host.stdout is not None
            agent = int(host.stdout.readline())
            assert alive(agent)
        finally:
            host.kill()

        await_death(agent)


# ---------------------------------------------------------------------- what cannot be started


def test_a_command_that_cannot_be_started_says_why_and_what_to_do(tmp_path: Path) -> None:
    plain, broken, foreign = tmp_path / "plain", tmp_path / "broken", tmp_path / "foreign"
    plain.write_text("no program")
    broken.write_text("#!/no/such/interpreter\n")
    foreign.write_text("no program")
    broken.chmod(0o755)
    foreign.chmod(0o755)
    wrong: list[tuple[list[str], str | None, str]] = [
        (["no-such-agent", "acp"], None, "'no-such-agent' cannot be started: it is not found. Install it"),
        ([str(tmp_path / "none")], None, "it is not found. Install it, or name it with its whole path"),
        ([str(plain)], None, "it is not executable, or a folder. Name a program, or make it one: chmod"),
        ([str(tmp_path)], None, "it is not executable, or a folder"),
        ([str(broken)], None, "the interpreter that its first line names is not there"),
        ([str(foreign)], None, "it is not a program for this machine"),
        ([sys.executable], str(tmp_path / "none"), "there is no folder"),
        ([sys.executable, "x" * 5_000_000], None, "its command and env are too long"),
        ([sys.executable, "a\x00b"], None, "Correct its command or env"),
        ([], None, "no command was given"),
    ]

    async def scenario() -> None:
        for command, cwd, said in wrong:
            heard = Heard()
            with pytest.raises(CannotStart) as caught:
                await heard.start(command, cwd=cwd)
            assert said in str(caught.value)
            assert not heard.order

    run(scenario())
