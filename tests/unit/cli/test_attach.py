"""`onefold attach`: a session in the terminal as it happens, from a store or from a server that comes and goes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import onefold
from onefold import Session
from onefold.cli.http_client import NotReached, Remote
from onefold.cli.options import WrongUse
from onefold.server.security.tokens import Tokens
from tests.conftest import said
from tests.support.helpers import quick
from tests.support.servers import PATIENCE, TOKEN, Served, free_port


class Attached:
    """`onefold attach` in a process of its own."""

    def __init__(self, *args: str, token: str = TOKEN) -> None:
        environ = {**os.environ, "ONEFOLD_TOKEN": token, "COLUMNS": "120"}
        environ.pop("ONEFOLD_URL", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "onefold", "attach", *args], env=environ,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._limit = threading.Timer(2 * PATIENCE, self._process.kill)

    def __enter__(self) -> Attached:
        self._limit.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit.cancel()
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def record(self) -> Any:
        line = self.line()
        assert line, self._process.communicate()
        return json.loads(line)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        out, err = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, out, err


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = str(tmp_path / "agent.db")
    with onefold.open(path) as store:
        store.session("s").append([said(n) for n in range(1, 7)])
    return path


def test_attach_shows_what_was_and_what_another_process_writes_and_ends_with_ctrl_c(file: str) -> None:
    with Attached("s", "--store", file, "--history", "all", "--json") as terminal, onefold.open(file) as store:
        assert [terminal.record()["number"] for _ in range(7)] == [*range(1, 8)]
        store.session("s").append(said(8))
        assert terminal.record()["body"] == said(8)

        terminal.interrupt()

        assert terminal.end() == (0, "", "")


def test_a_compaction_is_one_line_that_says_what_was_folded(file: str) -> None:
    with (
        Attached("s", "--store", file, "--history", "all") as terminal,
        onefold.open(file, policy=quick()) as store,
    ):
        shown = [terminal.line() for _ in range(8)]  # the day comes first
        assert "user" in shown[2]
        session = store.session("s")
        session.append({"role": "user", "content": "\x1b[2J what\nnow?"})
        hostile = terminal.line()
        session.compact()
        asked, works, folded = (terminal.line() for _ in range(3))

        assert "\\x1b[2J what now?" in hostile
        assert "compaction.requested" in asked
        assert "compaction.started" in works
        assert "── folded: everything before #" in folded
        with session.turn(owner="gateway"):
            assert "turn.started: a turn by gateway begins" in terminal.line()
        assert "turn.settled" in terminal.line()


def test_without_a_word_it_begins_with_the_current_segment(file: str) -> None:
    with onefold.open(file, policy=quick()) as store:
        session = store.session("s")
        session.append([said(n) for n in range(40)])
        session.compact()
        cut = session.state.cut
    assert cut > 1

    for args, first in (((), cut), (("--after", "3"), 4), (("--history", "all"), 1)):
        with Attached("s", "--store", file, "--json", *args) as terminal:
            assert terminal.record()["number"] == first


def test_a_server_that_is_killed_or_drained_is_followed_further_without_gap_or_repeat(
    file: str, tmp_path: Path
) -> None:
    with (
        Served(file, tmp_path, port=free_port()) as server,
        onefold.open(file) as store,
        Attached("s", "--url", server.url, "--history", "all", "--json") as terminal,
    ):
        session = store.session("s")
        numbers = [terminal.record()["number"] for _ in range(7)]
        server.kill()
        numbers += _written(session, terminal, server)
        server.signal()
        assert server.ended() == 0
        server.kill()
        numbers += _written(session, terminal, server)

        assert numbers == [*range(1, 28)]
        terminal.interrupt()
        code, _, err = terminal.end()
        assert code == 0
        assert "going on from #7" in err
        assert "going on from #17" in err


def _written(session: Session, terminal: Attached, server: Served) -> list[int]:
    """Numbers of ten records, half of them written while no server was there."""
    session.append([said(n) for n in range(5)])
    server.start()
    session.append([said(n) for n in range(5)])
    return [terminal.record()["number"] for _ in range(10)]


def test_a_session_deleted_meanwhile_ends_it_with_1_here_and_there(file: str, tmp_path: Path) -> None:
    with Served(file, tmp_path) as server, onefold.open(file) as store:
        for id, place in (("s", ("--store", file)), ("t", ("--url", server.url))):
            store.session(id).append(said(1))
            with Attached(id, *place, "--history", "all") as terminal:
                terminal.line()
                store.delete(id)
                code, _, err = terminal.end()

            assert code == 1
            assert f"session '{id}' was deleted; there is nothing left to follow" in err


def test_what_cannot_be_followed_is_said_and_ends_with_2(file: str, tmp_path: Path) -> None:
    with Served(file, tmp_path) as server:
        there = ("--url", server.url)
        for args, token, words in (
            (("nobody", "--store", file), TOKEN, "no session 'nobody'"),
            (("nobody", *there), TOKEN, "no session 'nobody'"),
            (("s", *there), "wrong-token-wrong-token-wrong", "the token does not count there"),
            (("s", *there), "", "it answers nobody without a token"),
            (("s", "--url", f"http://127.0.0.1:{free_port()}"), TOKEN, "is `onefold serve` running there?"),
            (("s", "--url", "ftp://somewhere"), TOKEN, "is not the address of a server"),
            (("s", *there, "--store", file), TOKEN, "both name a source"),
        ):
            with Attached(*args, token=token) as terminal:
                code, out, err = terminal.end()
            assert (code, out) == (2, "")
            assert words in err
            assert "Traceback" not in err


@pytest.mark.parametrize("stdio", [[], ["--stdio"]])
@pytest.mark.parametrize("url", ["agents.example.org:8642", "http://192.0.2.7", "HTTP://[2001:db8::7]:80/at"])
def test_a_token_does_not_go_to_another_machine_by_plain_http(url: str, stdio: list[str]) -> None:
    """L4: whoever is on the way would have it. Nobody is even asked where the machine is."""
    code, _, err = _attached("s", "--url", url, *stdio)

    assert code == 2
    assert "by plain http the token and what is said can be read on the way; nothing was sent" in err
    assert "https://" in err
    assert "--allow-http" in err
    with pytest.raises(WrongUse, match="plain http"):
        Remote(url, TOKEN)


def test_plain_http_goes_to_this_machine_and_where_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, int | None]] = []

    def request(connection: http.client.HTTPConnection, *_: Any, headers: dict[str, str]) -> None:
        heard.append((connection.host, connection.port))
        assert headers["Authorization"] == f"Bearer {TOKEN}"
        raise OSError("nobody is there")

    monkeypatch.setattr(http.client.HTTPConnection, "request", request)
    for remote in (
        *(Remote(url, TOKEN) for url in ("localhost:1", "http://127.8.9.1:2", "http://[::1]:3", "https://192.0.2.7")),
        Remote("http://192.0.2.7:4", TOKEN, allow_http=True),
    ):
        with pytest.raises(NotReached):
            remote.get("/api/attach")

    assert heard == [("localhost", 1), ("127.8.9.1", 2), ("::1", 3), ("192.0.2.7", 443), ("192.0.2.7", 4)]


def _attached(*args: str) -> tuple[int, str, str]:
    with Attached(*args) as terminal:
        return terminal.end()


def test_a_token_that_is_revoked_meanwhile_ends_it_at_once(file: str, tmp_path: Path) -> None:
    """L11: it is not told to come again, and so does not."""
    tokens = Tokens(tmp_path / "onefold" / "tokens.json")
    passing, _ = tokens.new("passing", ["read"])
    with (
        Served(file, tmp_path) as server,
        Attached("s", "--url", server.url, "--history", "all", "--json", token=passing) as terminal,
    ):
        assert terminal.record()["number"] == 1
        tokens.revoke("passing")
        code, _, err = terminal.end()

    assert code == 2
    assert "the token does not count there" in err
    assert "going on" not in err


def test_a_number_beyond_the_end_is_refused(file: str) -> None:
    with Attached("s", "--store", file, "--after", "99") as terminal:
        code, _, err = terminal.end()

    assert code == 1
    assert "ends at record 7, before 99" in err


def test_it_waits_longer_each_time_until_the_server_is_back(file: str, tmp_path: Path) -> None:
    waits: list[float] = []
    words: list[str] = []

    with Served(file, tmp_path, port=free_port()) as server, onefold.open(file) as store:

        def pause(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 8:
                server.start()

        records = Remote(server.url, TOKEN, pause=pause).follow("s", 0, words.append)
        assert [next(records).number for _ in range(7)] == [*range(1, 8)]
        server.kill()
        store.session("s").append(said(8))

        assert next(records).number == 8
        assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
        assert all("from #7" in line for line in words)
        records.close()  # type: ignore[attr-defined]


def test_a_server_that_was_never_there_is_not_waited_for() -> None:
    records = Remote(f"127.0.0.1:{free_port()}", None).follow("s", 0, lambda words: None)

    with pytest.raises(NotReached, match="no answer from http://127"):
        next(records)
