"""What every test may ask for: a store of each kind, a clock that stands still until it is told, ids that count up."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import onefold
from onefold import Policy, Session, Store
from onefold.journal.journal import Journal
from onefold.model import Claim, HolderId, Json
from tests.support import postgres_server
from tests.support.helpers import quick

collect_ignore = ["real"]
"""They need programs that `make test-agents` installs."""

# The same examples every time and on every machine, and no file left behind.
settings.register_profile(
    "onefold", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("onefold")

# A program started in the background may have been told to ignore Ctrl-C, and its children would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

NOON = 1_800_000_000.0

# One line for each kind of store: its name, and its address given a folder for this test alone.
KINDS: dict[str, Callable[[Path], str]] = {
    "memory": lambda folder: "memory:",
    "sqlite": lambda folder: str(folder / "agent.db"),
    "files": lambda folder: f"{folder / 'sessions'}/",
    "postgres": lambda folder: postgres_server.empty_address(),
}
DURABLE = [kind for kind in KINDS if kind != "memory"]
SLOWER = ("files", "postgres")
"""Left out of the tests of every kind of store, unless `--all-stores` is said, as `.ci/run` does."""


class StoppedClock:
    """Seconds since 1970, which pass only when a test says so."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 6)


class CountedIds:
    """id-000001, id-000002, …: as unique as random ones, and the same in every run."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def __call__(self) -> str:
        return f"id-{next(self._count):06}"


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def ids() -> CountedIds:
    return CountedIds()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: many tests wait for a process, a lease or a browser."""
    return (os.cpu_count() or 1) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-stores", action="store_true", help="run the tests of every kind of store on all of them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--all-stores"):
        left_out = [item for item in items if _on_another_store(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in {*left_out}]
    items.sort(key=lambda item: item.get_closest_marker("first") is None)


def _on_another_store(item: pytest.Item) -> bool:
    """Whether it is a test of every kind of store, for a kind that is tried with `--all-stores` only."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return any(value == kind for value in params.values() for kind in SLOWER)


def pytest_sessionfinish() -> None:
    postgres_server.stop()


@pytest.fixture(params=list(KINDS))
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a store that is not there yet, for each kind of store."""
    yield from _address(request.param, tmp_path)


@pytest.fixture(params=DURABLE)
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The same, for each kind that outlives its process."""
    yield from _address(request.param, tmp_path)


def _address(kind: str, folder: Path) -> Iterator[str]:
    address = KINDS[kind](folder)
    yield address
    if kind == "postgres":
        postgres_server.give_back(address)


@pytest.fixture
def opened(clock: StoppedClock, ids: CountedIds) -> Iterator[Callable[..., Store]]:
    """Opens stores by address, with the test's clock and ids, and closes them at the end."""
    stores: list[Store] = []

    def open(address: str, *, policy: Policy | None = None, summarizer: onefold.Summarizer | None = None) -> Store:
        store = onefold.open(address, clock=clock, ids=ids, policy=policy or quick(), summarizer=summarizer)
        stores.append(store)
        return store

    yield open
    for store in stores:
        store.close()


@pytest.fixture
def store(address: str, opened: Callable[..., Store]) -> Iterator[Store]:
    """An open store of each kind. Whatever a test did to it, its derived rows are what its journal says."""
    store = opened(address)
    yield store
    assert store.verify().findings == ()


@pytest.fixture
def journal(store: Store) -> Journal:
    return store.journal


@pytest.fixture
def session(store: Store) -> Session:
    """A session with six messages: record 1 opens it, records 2 to 7 are user and assistant in turn."""
    session = store.session("s")
    session.append([said(n) for n in range(1, 7)])
    return session


@pytest.fixture
def other(store: Store, session: Session) -> Session:
    """A second handle on the same session, as another writer has it."""
    return store.session("s")


# ---------------------------------------------------------------------- what tests of the contract say


def said(n: int, role: str | None = None) -> Json:
    return {"role": role or ("user" if n % 2 else "assistant"), "content": f"message {n} " + "word " * 20}


def who(name: str = "worker") -> HolderId:
    return HolderId(host="here", pid=1, thread="main", agent=name, nonce=f"nonce of {name}")


def claimed(
    journal: Journal, session: str = "s", name: str = "worker", *, lease: float = 60, life: float = 600
) -> Claim:
    """A claim that has to be granted."""
    claim = journal.claim(session, who(name), lease=lease, life=life)
    assert isinstance(claim, Claim), claim
    return claim


def running(journal: Journal, session: str = "s", *, attempts: int = 3, trigger: str = "manual") -> Claim:
    """A compaction asked for and claimed."""
    journal.request(session, trigger=trigger, attempts=attempts)
    return claimed(journal, session)
