"""`onefold serve` as a process: killed, drained, slowed down, and asked how it is."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import onefold
from onefold.cli import serve
from onefold.errors import StoreError
from onefold.journal.journal import Journal
from onefold.metrics import Counts, sizes
from onefold.model import Claim
from onefold.server.run import lease_warnings
from onefold.storage.memory import MemoryLeases
from tests.conftest import said, who
from tests.support.acp_clients import AGENT
from tests.support.helpers import quick
from tests.support.servers import PATIENCE, TOKEN, Served, free_port

SERVE = (sys.executable, "-m", "onefold", "serve", "--store")


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A store with a session of seven records."""
    path = str(tmp_path / "agent.db")
    with onefold.open(path) as store:
        store.session("s").append([said(n) for n in range(1, 7)])
    return path


def in_background(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_clients_of_a_killed_server_resume_at_the_next_one_and_nothing_is_lost_or_repeated(
    file: str, tmp_path: Path
) -> None:
    with Served(file, tmp_path, port=free_port()) as server, onefold.open(file) as store:
        clients = [server.faithful("s") for _ in range(4)]
        session, stop = store.session("s"), threading.Event()

        def load() -> None:
            while not stop.wait(0.001):  # else a fast disk has more to tell than clients to hear
                session.append([said(1), said(2)])

        writer = in_background(load)
        for _ in range(2):
            for client in clients:
                client.has(len(client.seen) + 100)
            server.kill()
            server.start()
        stop.set()
        writer.join(PATIENCE)
        last = session.state.last

        for client in clients:
            assert client.until(last) == [*range(1, last + 1)]
            assert client.cuts >= 2


def test_a_client_that_stops_reading_costs_little_and_slows_nobody(file: str, tmp_path: Path) -> None:
    with Served(file, tmp_path) as server, onefold.open(file) as store:
        asleep = [server.listen("s", 7) for _ in range(10)]
        awake = server.faithful("s")
        awake.has(7)
        before = server.memory
        session = store.session("s")
        for n in range(200):
            session.append([said(i) for i in range(100)])
            if n % 50 == 0:
                awake.has(100 * n)
        last = session.state.last
        assert last == 20_007

        assert awake.until(last) == [*range(1, last + 1)]
        grown = server.memory - before
        assert grown < 40 << 20, f"{grown / 2**20:.0f} MiB more for ten who do not read 9 MB each"

        told, seen = None, []
        while (event := asleep[0].event()) is not None:
            told = event
            seen += [event[2]["number"]] if event[0] == "record" else []
        assert told is not None
        assert told[0] == "resume"
        assert told[2] == {"after": seen[-1]}
        assert server.listen("s", asleep[0].last_id).numbers_until(last) == [*range(seen[-1] + 1, last + 1)]
        assert "onefold_follower_drops_total 10" in server.get("/metrics")[1]


def test_sigterm_tells_streams_to_resume_hands_back_and_ends_with_0(file: str, tmp_path: Path) -> None:
    with Served(file, tmp_path) as server:
        one, everywhere = server.listen("s", 0), server.listen(None)
        assert one.numbers_until(7) == [*range(1, 8)]

        server.signal()

        assert one.event() == ("resume", "7", {"after": 7})
        assert everywhere.event() is not None
        assert one.event() is None
        assert server.ended() == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), PATIENCE)
        assert [line["message"] for line in server.lines()][-2:] == ["the server drains", "the server has ended"]


def test_draining_takes_no_longer_than_it_is_given_whoever_does_not_read(file: str, tmp_path: Path) -> None:
    with Served(file, tmp_path, "--drain", "1") as server, onefold.open(file) as store:
        server.listen("s", 0)
        store.session("s").append([said(n) for n in range(20_000)])
        server.faithful("s").has(20_007)

        server.signal()

        assert server.ended() == 0


def test_a_second_signal_ends_it_at_once(file: str, tmp_path: Path) -> None:
    with Served(file, tmp_path, "--drain", "60") as server, onefold.open(file) as store:
        server.listen("s", 0)
        store.session("s").append([said(n) for n in range(20_000)])
        server.faithful("s").has(20_007)

        server.signal()
        _until(lambda: "the server drains" in server.log.read_text())
        server.signal(signal.SIGINT)

        assert server.ended() == 128 + signal.SIGINT


def test_a_port_that_is_taken_is_said_in_words(file: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*SERVE, file, "--port", str(port), "--tokens", str(tmp_path / "t")],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    assert done.returncode == 2
    assert f"port {port} of 127.0.0.1 is in use already" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_certificate_that_is_of_no_use_is_said_in_words(file: str, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no certificate")
    done = subprocess.run(
        [*SERVE, file, "--port", "0", "--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem"],
        capture_output=True, text=True, timeout=PATIENCE, check=False, env={**os.environ, "ONEFOLD_TOKEN": TOKEN},
    )  # fmt: skip

    assert done.returncode == 2
    assert "cannot be used for TLS" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_first_start_prints_a_link_once(file: str, tmp_path: Path) -> None:
    links = []
    for _ in range(2):
        with Served(file, tmp_path, ONEFOLD_TOKEN="") as server:
            server.signal()
            assert server.process is not None
            links.append(server.process.communicate(timeout=PATIENCE)[0])

    assert "/?token=onefold_" in links[0]
    assert "token=" not in links[1]


@contextlib.contextmanager
def on_a_terminal(file: str, folder: Path, *options: str, verb: tuple[str, ...] = ("serve",)) -> Iterator[Terminal]:
    """A server whose output a person sees."""
    ours, theirs = os.openpty()
    environ = {**os.environ, "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder), "ONEFOLD_TOKEN": ""}
    command = [sys.executable, "-m", "onefold", *verb, "--store", file, "--port", "0", *options]
    process = subprocess.Popen(command, env=environ, stdout=theirs, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    os.close(theirs)
    try:
        yield Terminal(ours)
    finally:
        process.kill()
        process.wait(PATIENCE)
        os.close(ours)


class Terminal:
    def __init__(self, end: int) -> None:
        self._end = end
        self.text = ""

    def until(self, pattern: str) -> re.Match[str]:
        """Reads until something is there."""
        while (found := re.search(pattern, self.text)) is None:
            assert select.select([self._end], [], [], PATIENCE)[0], f"{pattern!r} is missing: {self.text}"
            self.text += os.read(self._end, 4096).decode()
        return found


def followed(link: str) -> tuple[int, str]:
    """What a browser gets that opens a link: the status, and where it is sent."""
    parts = urlsplit(link)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        answer = connection.getresponse()
        return answer.status, answer.headers.get("location", "")
    finally:
        connection.close()


def test_each_start_on_a_terminal_prints_a_link_that_lets_a_browser_in_once(file: str, tmp_path: Path) -> None:
    links = []
    for _ in range(2):
        with on_a_terminal(file, tmp_path) as terminal:
            link = terminal.until(r"open (http://127\.0\.0\.1:\d+/\?login=[\w-]{43})\r?\n")[1]
            terminal.until("once, within 10 minutes")
            links.append(link)
            first, second = followed(link), followed(link)

        assert first[0] == 303
        assert first[1].startswith("/#page=")
        assert second[0] == 401
        assert "token=" not in terminal.text

    assert links[0] != links[1]
    kept = (tmp_path / "onefold" / "tokens.json").read_text()
    assert not any(link.partition("login=")[2] in kept for link in links)


def test_run_prints_such_a_link_too(file: str, tmp_path: Path) -> None:
    command = ("run",)
    options = ("--cwd", str(tmp_path), "--", sys.executable, str(AGENT), "--state", str(tmp_path / "agent.state"))
    with on_a_terminal(file, tmp_path, *options, verb=command) as terminal:
        link = terminal.until(r"open (http://\S+/\?login=[\w-]{43})")[1]

        assert followed(link)[0] == 303


def test_no_login_link_is_printed_into_a_pipe_or_for_a_public_address(file: str, tmp_path: Path) -> None:
    for _ in range(2):
        with Served(file, tmp_path, ONEFOLD_TOKEN="") as server:
            server.signal()
            assert server.process is not None
            printed = server.process.communicate(timeout=PATIENCE)[0]
        assert "login=" not in server.said + printed + server.log.read_text()

    with on_a_terminal(file, tmp_path, "--proxy", "https://agents.example.org") as terminal:
        terminal.until(r"at https://agents\.example\.org")
        assert "login=" not in terminal.text


def test_open_hands_the_link_to_a_browser_in_a_file_that_is_its_owners_alone(file: str, tmp_path: Path) -> None:
    """Everybody on the machine sees with which words a program is started, so the link is none of them."""
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    os.mkfifo(seen)
    browser.write_text(f'#!/bin/sh\necho "$1" > "{seen}"\n')
    browser.chmod(0o700)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with Served(file, tmp_path, "--open", ONEFOLD_TOKEN="", BROWSER=f"{browser} %s", TMPDIR=str(temporary)) as server:
        given = seen.read_text().strip()
        page = Path(urlsplit(given).path)
        content, mode = page.read_text(), page.stat().st_mode & 0o777
        link = re.search(r"url=(http://[^\"]+)", content)
        assert link is not None
        status = followed(link[1])[0]
        server.signal()
        assert server.process is not None
        printed = server.process.communicate(timeout=PATIENCE)[0]

    assert given.startswith("file://")
    assert (mode, status) == (0o600, 303)
    assert "login=" not in given
    assert "login=" not in printed
    assert "token=" not in printed
    assert not page.exists()


def test_the_usual_store_is_made_at_the_first_start_and_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ONEFOLD_STORE", "ONEFOLD_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))

    with serve.opened_store(None) as made:
        assert made.address == str(tmp_path / "onefold" / "onefold.db")
    with pytest.raises(StoreError, match="there is no store at"):
        serve.opened_store(str(tmp_path / "mistyped.db"))


def test_health_needs_no_token_and_numbers_do(file: str, tmp_path: Path) -> None:
    with Served(file, tmp_path) as server:
        assert server.get("/healthz", None) == (200, '{"status":"ok"}')
        assert server.get("/readyz", None)[0] == 200
        assert server.get("/metrics", None)[0] == 401
        assert server.get("/metrics")[0] == 200


def test_the_numbers_are_of_the_whole_store_whoever_writes(file: str, tmp_path: Path) -> None:
    with Served(file, tmp_path) as server, onefold.open(file, policy=quick()) as store:
        everywhere = server.listen(None)
        session = store.session("s")
        session.append([said(n) for n in range(20)])
        assert session.compact().changed
        journal = store.journal
        journal.request("s")
        first = journal.claim("s", who(), lease=0.05)
        assert isinstance(first, Claim)
        _until(lambda: isinstance(journal.claim("s", who("second"), lease=60), Claim))
        last = session.state.last
        while (event := everywhere.event()) is not None and event[2]["number"] < last:
            pass

        text = server.get("/metrics")[1]

        for line in (
            "onefold_appends_total 20", 'onefold_compactions_total{state="committed",trigger="manual"} 1',
            "onefold_compactions_active 1", "onefold_compaction_seconds_count 1", "onefold_takeovers_total 1",
            "onefold_followers 1", "onefold_follower_drops_total 0", "onefold_lease_errors_total 0",
        ):  # fmt: skip
            assert line in text.splitlines()
        names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        assert names == {
            f"onefold_{name}" for name in (
                "appends_total", "append_seconds", "compactions_total", "compactions_active", "compaction_seconds",
                "oldest_request_seconds", "commit_refused_total", "takeovers_total", "lease_errors_total",
                "store_bytes", "wal_bytes", "followers", "follower_drops_total",
            )
        }  # fmt: skip


def test_the_log_is_json_lines_that_name_who_and_why_and_never_what_was_said(file: str, tmp_path: Path) -> None:
    def fails(material: onefold.SummaryInput) -> str:
        raise RuntimeError("the model is on fire")

    with Served(file, tmp_path) as server, onefold.open(file, policy=quick(), summarizer=fails) as store:
        everywhere = server.listen(None)
        session = store.session("s")
        session.append({"role": "user", "content": "a word nobody else should read: xyzzy"})
        session.compact()
        last = session.state.last
        while (event := everywhere.event()) is not None and event[2]["number"] < last:
            pass

        failed = next(line for line in server.lines() if line["message"] == "compaction.failed")
        assert failed["session"] == "s"
        assert failed["fence"] > 7
        assert failed["compaction"]
        assert "process" in failed["holder"]
        assert "on fire" in failed["cause"]
        assert "xyzzy" not in server.log.read_text()
        assert TOKEN not in server.log.read_text()


def test_a_websocket_gets_the_same_from_a_real_server(file: str, tmp_path: Path) -> None:
    from websockets.asyncio.client import connect

    async def through_a_socket(server: Served) -> list[Any]:
        address = f"ws://127.0.0.1:{server.port}/api/live?session=s&after=3"
        async with connect(address, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as socket:
            return [json.loads(await asyncio.wait_for(socket.recv(), PATIENCE)) for _ in range(5)]

    with Served(file, tmp_path) as server:
        told = asyncio.run(through_a_socket(server))
        stream = server.listen("s", 3)
        events = [stream.event() for _ in range(4)]

        assert [(e["event"], e["id"], e["data"]) for e in told][1:] == events


def test_a_websocket_without_a_token_is_told_so_and_is_no_error_in_the_log(file: str, tmp_path: Path) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    with Served(file, tmp_path) as server:
        for path in ("/api/live?session=s", "/acp"):
            with pytest.raises(InvalidStatus) as refused:
                connect(f"ws://127.0.0.1:{server.port}{path}", open_timeout=PATIENCE).close()
            assert refused.value.response.status_code == 401
            assert b"a token is needed" in refused.value.response.body
        server.signal()
        assert server.ended() == 0

        assert [line for line in server.lines() if line["level"] == "error"] == []


def test_another_processes_compaction_reaches_the_page_as_it_happens_f70(file: str, tmp_path: Path) -> None:
    with Served(file, tmp_path) as server, onefold.open(file, policy=quick()) as store:
        watching = server.listen("s", 7)
        store.session("s").compact()

        kinds = [event[2]["kind"] for event in (watching.event() for _ in range(4)) if event is not None]
        assert kinds == ["compaction.requested", "compaction.started", "compaction.committed", "segment.opened"]


def test_a_client_that_comes_back_after_a_kill_knows_the_open_turn_and_misses_nothing_f74(
    file: str, tmp_path: Path
) -> None:
    with Served(file, tmp_path, port=free_port()) as server, onefold.open(file) as store:
        before = server.listen("s", 0)
        assert before.numbers_until(7)[-1] == 7
        server.kill()
        turn = store.session("s").turn(owner="gateway")
        server.start()

        status, body = server.get("/api/attach?session=s&history=none")
        snapshot = json.loads(body)
        assert (status, snapshot["turn"]["owner"]) == (200, "gateway")
        back = server.listen("s", before.last_id)
        told = back.event()
        assert told is not None
        assert (told[2]["kind"], told[2]["number"]) == ("turn.started", snapshot["follow_from"])
        turn.end()
        settled = back.event()
        assert settled is not None
        assert settled[2]["kind"] == "turn.settled"


def _until(met: Callable[[], bool]) -> None:
    """Waits for what no event tells: a line in another process's log, the end of a lease."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.02)):
        if met():
            return
        pause.wait(0.02)
    raise AssertionError("it did not happen in time")


def test_the_size_of_a_store_of_plain_files_is_that_of_all_its_files(tmp_path: Path) -> None:
    with onefold.open(f"{tmp_path / 'sessions'}/") as store:
        store.session("s").append({"role": "user", "content": "x" * 50_000})
        shown = next(line for line in sizes(store) if line.startswith("onefold_store_bytes "))

    assert 50_000 < int(shown.split()[1]) < 500_000


# ---------------------------------------------------------------------- what is counted of the log


def test_warnings_about_leases_are_counted_by_who_gives_them_and_not_by_their_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise OSError("no such thing")

    counts = Counts()
    with onefold.open("memory:", policy=quick()) as store:
        session = store.session("s")
        session.append([said(n) for n in range(20)])
        monkeypatch.setattr(MemoryLeases, "put", broken)

        with lease_warnings(counts):
            logging.getLogger("onefold").warning("a lease, a lease")
            assert session.compact(lambda material: "short").changed
        logging.getLogger("onefold.leases").warning("after the end")

    assert counts.lease_errors == 1  # it is said once


def test_a_lease_that_cannot_be_renewed_is_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    twice, calls = threading.Event(), []

    def broken(*_: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            twice.set()
        raise StoreError("not now")

    def summarize(material: onefold.SummaryInput) -> str:
        assert twice.wait(PATIENCE)  # the first one was said by now
        return "short"

    counts = Counts()
    with onefold.open("memory:", policy=quick(lease_renew_interval=0.01)) as store, lease_warnings(counts):
        session = store.session("s")
        session.append([said(n) for n in range(20)])
        monkeypatch.setattr(Journal, "renew", broken)
        assert session.compact(summarize).changed

    assert counts.lease_errors >= 1
