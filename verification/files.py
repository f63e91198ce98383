"""The store of plain files, with power lost, a process killed, or a disk full, at every call of every operation.

Each operation runs on a machine that notes everything (`folders`). Then the store is opened as it would be if power had
gone at any moment of it; or after a process was killed at a call, by one that had it open all along; or after a call
that failed. Always: the old state or the new one, what was promised is there, and opening it again changes nothing. The
index is derived, so each time it is gone, or as it was before, or as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import onefold
from onefold import Store
from onefold.errors import OnefoldError, OutcomeUnknown
from onefold.messages import draft
from onefold.storage.base import Transaction
from onefold.storage.jsonl import Disk, FilesBackend, layout
from onefold.storage.jsonl.deferred_index import QUIET
from verification.folders import FAULTS, LOSSES, Fault, Killed, Left, Machine, NotedDisk, Tree, moments
from verification.operations import OPERATIONS, SECRET, Act, counted_ids, fill, fixed_clock, rows, stored
from verification.told import Told


def _append(store: Store) -> Act:
    session = store.session("a")
    return lambda: session.append({"role": "user", "content": "one line, and its row may wait"})


ACTS = {name: prepare for name, prepare in OPERATIONS.items() if name != "heal"} | {"append while rows wait": _append}
"""All but the one that damages a SQLite store, and one that asks nothing before it writes."""
NAMES = tuple(ACTS)
STORE = "sessions"
OTHER = "z"
"""A session that no operation is about."""
SECRETS = ("erase", "erase an input that waits", "delete")
_NOTE = b'{"by":"1-gone","sessions":["a","s"]}\n'

State = dict[str, Any]
Index = Literal["as it is", "as it was", "gone"]
INDEXES: tuple[Index, ...] = ("as it is", "as it was", "gone")


def open_files(path: Path, disk: Disk | None = None, prefix: str = "new") -> Store:
    ids = counted_ids(prefix)
    backend = FilesBackend(path, clock=fixed_clock, ids=ids, disk=disk, names=counted_ids(f"{prefix}-name"))
    return stored(backend, ids, onefold.Policy(tail_tokens=100, tail_messages=1))


def prepare(path: Path) -> None:
    with open_files(path, prefix="old") as store:
        fill(store)


def state_of(store: Store, path: Path) -> State:
    """Everything that a store says, but for leases: whoever held one is gone, and they are in the index alone."""

    def work(tx: Transaction) -> State:
        found: State = {}
        for state in tx.sessions(1000, None):
            derived = tx.derived(state.id)
            derived.state = tx.session(state.id)
            found[f"of {state.id}"] = tx.records(state.id, 1, 1 << 60, 10_000)
            found[f"about {state.id}"] = derived
        return found

    return rows(path / layout.OWN / layout.INDEX, ("tombstones",)) | store.journal.backend.read(work)


def go_on(store: Store, session: str = "a") -> bool:
    """One more message; False if there is nothing any more to say it in."""
    said = draft({"role": "user", "content": "and then"}, counted_ids("on"))
    try:
        store.journal.append(session, [said])
    except OnefoldError as error:
        if "deleted" not in str(error):
            raise
        return False
    return True


class Wrong(Exception):
    """What was found does not open, or is not sound."""


def look(path: Path) -> State:
    """Opens a store that something happened to, and says all that is in it. Opened again, it says the same, and not a
    byte of its files is touched."""
    try:
        with open_files(path, prefix="look") as store:
            findings = store.verify().findings
            state = state_of(store, path)
        if findings:
            raise Wrong(str(findings[0]))
        _check_forks(state)
        before = _files(path)
        with open_files(path, prefix="again") as store:
            again = state_of(store, path)
    except OnefoldError as error:
        raise Wrong(str(error)) from error
    if again != state:
        raise Wrong("opened once more, it says something else")
    if _files(path) != before:
        raise Wrong("opened once more, its files were touched")
    return state


def _check_forks(state: State) -> None:
    for name, records in state.items():
        if name.startswith("of "):
            bases = [r.body["base"] for r in records if r.kind == "segment.opened"]
            if len(bases) != len(set(bases)):
                raise Wrong(f"session {name[3:]!r} is forked: {bases}")


def _files(path: Path) -> dict[str, tuple[bytes, int]]:
    """All that people see, and when it was changed."""
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in path.rglob("*")
        if file.is_file() and (file.parent.name != layout.OWN or file.name in (layout.DELETED, layout.STORE))
    }


def _holds(path: Path, secret: str) -> list[str]:
    return [name for name, (content, _) in _files(path).items() if secret.encode() in content]


# ---------------------------------------------------------------------- one operation


@dataclass(frozen=True, slots=True)
class Stage:
    """A store in which an operation is ready to be done, on a machine that notes everything."""

    name: str
    machine: Machine
    disk: NotedDisk
    store: Store
    act: Act
    path: Path


@contextlib.contextmanager
def staged(name: str, *, lag: bool = True) -> Iterator[Stage]:
    """With rows that wait for the index, if nothing is to be done before."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STORE
        machine = Machine(Path(folder))
        with open_files(path, NotedDisk(machine), "old") as store:
            fill(store)
            store.session(OTHER)
        disk = NotedDisk(machine)
        store = open_files(path, disk)
        try:
            act = ACTS[name](store)
            stage = Stage(name, machine, disk, store, act, path)
            if lag:
                lag_behind(stage)
            machine.watched = path / layout.OWN / layout.INDEX
            yield stage
        finally:
            store.close()


def lag_behind(stage: Stage) -> None:
    """Something more is said and acknowledged, and the index knows nothing of the last of it."""
    journal = stage.store.journal
    assert isinstance(journal.backend, FilesBackend)
    for n in range(3):
        for session in (OTHER,) if stage.name == "redo" else ("a", OTHER):  # nothing may come before a redo
            journal.backend._lag.quiet = QUIET
            aside = draft({"role": "user", "content": f"by the way {n}"}, counted_ids(f"aside-{session}{n}"))
            journal.append(session, [aside])


def power(name: str, seed: int, *, sparing: bool = False) -> Told:
    """Power lost at every moment of one operation, and of closing the store after it."""
    told, chance = Told(), random.Random(f"{name} {seed}")
    judge = Judge(name, told)
    for cut in _cuts(name):
        for loss, index in _CLEAN if cut.clean else _ways(chance, sparing=sparing):
            left = cut.tree.after(loss, chance)
            judge.take(f"{cut.where}, {loss}, index {index}", cut.promised, left, cut.index(index, chance))
    judge.done()
    return told


def twice(name: str, seed: int, *, sparing: bool = False) -> Told:
    """Power lost at every moment of one operation, and once more at every moment of the opening after it."""
    told, chance = Told(), random.Random(f"{name} twice {seed}")
    judge = Judge(name, told)
    for cut in _cuts(name):
        loss, index = _CLEAN[0] if cut.clean else chance.choice(_ways(chance))
        left, its_index = cut.tree.after(loss, chance), cut.index(index, chance)
        where = f"{cut.where}, {loss}, index {index}"
        if cut.clean:
            judge.take(where, cut.promised, left, its_index)
            continue
        for again in _opening(left, its_index, where):
            for loss, index in chance.sample(_ways(chance), 1 if sparing else 3):
                left = again.tree.after(loss, chance)
                judge.take(f"{again.where}, {loss}, index {index}", cut.promised, left, again.index(index, chance))
    judge.done()
    return told


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment at which power goes."""

    where: str
    tree: Tree
    promised: bool
    machine: Machine
    newest: int
    clean: bool = False
    """Nothing has happened yet, or all is over."""

    def index(self, index: Index, chance: random.Random) -> bytes | None:
        return _index(self.machine, self.tree, self.newest, index, chance)


def _cuts(name: str) -> Iterator[Cut]:
    """Of an operation, from before it begins to after the store is closed."""
    with staged(name) as stage:
        machine = stage.machine
        machine.note("begin")
        before = len(machine.events)
        stage.act()
        machine.acknowledge(name)
    machine.note("end")
    for place, event, tree, promised in moments(machine.events):
        if place >= before - 1:
            clean = place in (before - 1, len(machine.events) - 1)
            yield Cut(f"{name}: event {place - before}", tree, bool(promised), machine, event.index, clean)


def _opening(left: Left, index: bytes | None, where: str) -> Iterator[Cut]:
    """Of opening a store that has lost power."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STORE
        _lay_out(left, path, index, noted=False)
        machine = Machine(Path(folder), path / layout.OWN / layout.INDEX)
        machine.find(left, Path(folder))
        before = len(machine.events)
        with contextlib.suppress(OnefoldError), open_files(path, NotedDisk(machine), "found") as store:
            store.verify()
    for place, event, tree, _ in moments(machine.events):
        if place >= before:
            yield Cut(f"{where}, then event {place - before}", tree, False, machine, event.index)


_CLEAN: list[tuple[str, Index]] = [("nothing", "as it is")]


def _ways(chance: random.Random, *, sparing: bool = False) -> list[tuple[str, Index]]:
    ways: list[tuple[str, Index]] = [(loss, index) for loss in LOSSES for index in INDEXES]
    if not sparing:
        return ways
    first, *_, last = LOSSES
    return [(first, chance.choice(INDEXES)), (last, chance.choice(INDEXES)), chance.choice(ways)]


def _index(machine: Machine, tree: Tree, now: int, index: Index, chance: random.Random) -> bytes | None:
    """Its commits are not synced: the disk may have it as it was some commits ago, or not at all."""
    if index == "gone" or now < 0:
        return None
    ago = chance.choice((1, 1, 2, 5, 20)) if index == "as it was" else 0
    return machine.indexes[max(tree.oldest_index, now - ago)]


class Judge:
    """Opens what is left again and again, and says what is wrong when all of it has been seen."""

    def __init__(self, name: str, told: Told) -> None:
        self._name, self._told = name, told
        self._left: list[tuple[str, bool, State]] = []

    def take(self, where: str, promised: bool, left: Left, index: bytes | None) -> None:
        told = self._told
        told.faults += 1
        told.acknowledged += promised
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / STORE
            _lay_out(left, path, index, noted=len(self._left) % 2 == 0)
            try:
                state = look(path)
            except Wrong as error:
                told.unopenable += 1
                told.words.append(f"{where}: {error}")
                return
            if self._name in SECRETS and SECRET not in str(state) and (held := _holds(path, SECRET)):
                told.between += 1
                told.words.append(f"{where}: what is gone from the store is still in {held}")
        self._left.append((where, promised, state))

    def done(self) -> None:
        if not self._left:
            return
        old, new = self._left[0][2], self._left[-1][2]
        for where, promised, state in self._left:
            if promised and state != new:
                self._told.lost += 1
                self._told.words.append(f"{where}: what was acknowledged is not there")
            elif state not in (old, new):
                self._told.between += 1
                self._told.words.append(f"{where}: neither the old state nor the new one")


def _lay_out(left: Left, path: Path, index: bytes | None, *, noted: bool) -> None:
    """With an index, and with the note of a writer that is gone."""
    left.lay_out(path.parent)
    own = path / layout.OWN
    if own.is_dir():
        if index is not None:
            own.joinpath(layout.INDEX).write_bytes(index)
        own.joinpath(layout.LOCK).write_bytes(_NOTE if noted else b"")


# ---------------------------------------------------------------------- a longer life


@dataclass(frozen=True, slots=True)
class Promise:
    """What a writer was told: that something is there, or that it is gone."""

    kind: Literal["said", "erased", "to be deleted", "deleted", "segments"]
    session: str
    what: str = ""
    count: int = 0


def story(seed: int, *, sparing: bool = False) -> Told:
    """Appends, compactions, forks, content erased, a session deleted, closed and opened again."""
    told, chance = Told(), random.Random(f"story {seed}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STORE
        machine = Machine(Path(folder), path / layout.OWN / layout.INDEX)
        for part in range(3):
            with open_files(path, NotedDisk(machine), f"part{part}") as store:
                _live(store, machine, part, chance)
    for place, event, tree, promised in moments(machine.events):
        if sparing and chance.random() < 0.7:
            continue
        for loss, index in chance.sample(_ways(chance), 1 if sparing else 4):
            where = f"story {seed}: event {place}, {loss}, index {index}"
            told.faults += 1
            told.acknowledged += len(promised)
            _keeps(
                tree.after(loss, chance), _index(machine, tree, event.index, index, chance), [*promised], told, where
            )
    return told


def _live(store: Store, machine: Machine, part: int, chance: random.Random) -> None:
    def say(session: onefold.Session, what: str) -> int:
        content = f"{what} " + "x" * chance.randrange(3000)
        added = session.append({"role": "user", "content": content})
        machine.acknowledge(Promise("said", session.id, content))
        return added.numbers[-1]

    session = store.session("s")
    erased = [say(session, f"secret {part}-{n}") for n in range(2)]
    for n in range(5):
        say(session, f"message {part}-{n}")
        if n % 2:
            session.compact()
            machine.acknowledge(Promise("segments", "s", count=len(session.segments())))
    fork = session.fork(id=f"f{part}")
    say(fork, "in a fork")
    session.erase(erased[0])
    machine.acknowledge(Promise("erased", "s", f"secret {part}-0"))
    say(session, f"after {part}")
    if part:
        machine.acknowledge(Promise("to be deleted", f"f{part - 1}"))
        store.delete(f"f{part - 1}")
        machine.acknowledge(Promise("deleted", f"f{part - 1}"))


def _keeps(left: Left, index: bytes | None, promised: list[Any], told: Told, where: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STORE
        _lay_out(left, path, index, noted=len(promised) % 2 == 0)
        try:
            state = look(path)
        except Wrong as error:
            told.unopenable += 1
            told.words.append(f"{where}: {error}")
            return
        for promise in _broken(promised, state, path):
            told.lost += 1
            told.words.append(f"{where}: {promise}")


def _broken(promised: list[Promise], state: State, path: Path) -> Iterator[str]:
    there = {
        name[3:]: {str(r.body["content"]) for r in records if r.kind == "message"}
        for name, records in state.items()
        if name.startswith("of ")
    }
    gone = {p.session for p in promised if p.kind == "to be deleted"}
    erased = tuple(f"{p.what} " for p in promised if p.kind == "erased")
    for promise in promised:
        segments = [r for r in state.get(f"of {promise.session}", ()) if r.kind == "segment.opened"]
        match promise.kind:
            case "said" if promise.session not in gone and not promise.what.startswith("secret"):
                if promise.what not in there.get(promise.session, ()):
                    yield f"what was acknowledged is not there: {promise.what[:20]!r}"
            case "segments" if len(segments) < promise.count:
                yield f"{promise.count} segments were acknowledged, and {len(segments)} are there"
            case "deleted" if promise.session in there:
                yield f"session {promise.session!r} was deleted, and is there"
            case "erased" if any(message.startswith(erased) for message in there.get(promise.session, ())):
                yield f"{promise.what!r} was erased, and is there"
    for secret in erased:
        if held := [name for name in _holds(path, secret) if name.startswith("s/")]:
            yield f"{secret!r} was erased, and is still in {held}"


# ---------------------------------------------------------------------- killed, while another has the store open


@dataclass(frozen=True, slots=True)
class Killing:
    """How a process ends, and the session that another one writes to after it; "" if that only reads."""

    fault: Fault
    session: str


def bystander(name: str, seed: int, *, sparing: bool = False) -> Told:
    """A process killed at every call. One that had the store open all along goes on, and then power is lost."""
    told, chance = Told(), random.Random(f"{name} {seed}")
    for torn, session in ((False, "a"), (True, "a"), (False, OTHER), (False, "")):
        ends = _went_on(name, session, done=False), _went_on(name, session, done=True)
        for at in range(1, 1000):
            if sparing and chance.random() < 0.5:
                continue
            if not _killed(name, Killing(Fault(at, torn=torn), session), ends, chance, told):
                break
    return told


def _went_on(name: str, session: str, *, done: bool) -> State:
    """What is there if the operation is not done at all, or whole, and somebody else goes on; by one that is opened
    after it, and so looks at all."""
    with staged(name) as stage:
        if done:
            stage.act()
        with open_files(stage.path, NotedDisk(stage.machine), "by") as by:
            if session:
                go_on(by, session)
            return state_of(by, stage.path)


def _killed(name: str, end: Killing, ends: tuple[State, State], chance: random.Random, told: Told) -> bool:
    """False if the operation came to its end before that call."""
    with staged(name, lag=False) as stage, open_files(stage.path, NotedDisk(stage.machine), "by") as by:
        state_of(by, stage.path)
        lag_behind(stage)
        stage.disk.arm(end.fault)
        try:
            stage.act()
        except Killed:
            pass
        else:
            stage.disk.arm(None)
            return False
        where = (
            f"{name}: killed {'in' if end.fault.torn else 'at'} call {end.fault.at}, another "
            f"{f'wrote to {end.session!r}' if end.session else 'read'}"
        )
        told.faults += 1
        try:
            went_on = bool(end.session) and go_on(by, end.session)
            state = state_of(by, stage.path)
            stage.machine.acknowledge(went_on)
            told.acknowledged += went_on
        except OnefoldError as error:
            told.unopenable += 1
            told.words.append(f"{where}: {error}")
            return True
        if state not in ends:
            told.between += 1
            told.words.append(f"{where}: neither the old state nor the new one")
            return True
    if not end.session:
        return True  # who only reads does not finish what was begun, and may have seen the state before it
    machine = stage.machine
    *_, (_, event, tree, _) = moments(machine.events)
    for loss in ("everything unsynced", "nothing", chance.choice([*LOSSES])):
        told.faults += 1
        index = _index(machine, tree, event.index, chance.choice(INDEXES), chance)
        _same_after(tree.after(loss, chance), index, state, told, f"{where}, then power lost: {loss}")
    return True


def _same_after(left: Left, index: bytes | None, state: State, told: Told, where: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STORE
        _lay_out(left, path, index, noted=True)
        try:
            found = look(path)
        except Wrong as error:
            told.unopenable += 1
            told.words.append(f"{where}: {error}")
            return
    if found != state:
        told.lost += 1
        told.words.append(f"{where}: what somebody saw and was told is not there")


# ---------------------------------------------------------------------- calls that fail


def failing(name: str, seed: int, *, sparing: bool = False) -> Told:
    """A disk that is full, or fails, at every call: the error says the truth, and it goes on when there is room."""
    told, chance = Told(), random.Random(f"{name} {seed}")
    old, new = _went_on_alone(name, done=False), _went_on_alone(name, done=True)
    for what, fault in FAULTS.items():
        for at in range(1, 1000):
            if sparing and chance.random() < 0.6:
                continue
            if not _failed(name, f"{name}: {what}, call {at}", fault(at), (old, new), told):
                break
    return told


def _went_on_alone(name: str, *, done: bool) -> State:
    with staged(name) as stage:
        if done:
            stage.act()
        go_on(stage.store)
        return state_of(stage.store, stage.path)


def _failed(name: str, where: str, fault: Fault, ends: tuple[State, State], told: Told) -> bool:
    """False if the operation came to its end before that call."""
    old, new = ends
    with staged(name) as stage:
        stage.disk.arm(fault)
        allowed = [new]
        try:
            stage.act()
            told.acknowledged += 1
        except OutcomeUnknown:
            allowed = [old, new]
        except OnefoldError as error:
            allowed = [old]
            if "nothing was written" not in str(error).lower():
                told.words.append(f"{where}: does not say that nothing was written: {error}")
                told.between += 1
        except OSError as error:
            allowed = [old, new]
            told.between += 1
            told.words.append(f"{where}: an error that says nothing of the store: {error}")
        struck = stage.disk.reached
        stage.disk.arm(None)
        if not struck:
            return False
        told.faults += 1
        try:
            go_on(stage.store)
            state = state_of(stage.store, stage.path)
        except OnefoldError as error:
            told.stuck += 1
            told.words.append(f"{where}: does not go on: {error}")
            return True
        if state not in allowed:
            told.lost += 1
            told.words.append(f"{where}: {'acknowledged' if allowed == [new] else 'refused'}, and it is not so")
        try:
            if look(stage.path) != state:
                raise Wrong("opened again, it says something else")
        except Wrong as error:
            told.unopenable += 1
            told.words.append(f"{where}: {error}")
        return True


# ---------------------------------------------------------------------- all of it

METHODS: dict[str, Callable[..., Told]] = {"power": power, "twice": twice, "bystander": bystander, "failing": failing}


def everything(
    seed: int,
    *,
    sparing: bool,
    each: Callable[[str, Told], bool],
    only: Sequence[str] = ("",),
    methods: Iterable[str] = METHODS,
) -> None:
    """Every operation by every method, and a story. Ends early when `each` says so."""
    for method in methods:
        for name in NAMES:
            if any(part in name for part in only) and each(
                f"{method}, {name}", METHODS[method](name, seed, sparing=sparing)
            ):
                return
    if "" in only and "power" in methods:
        each("a story", story(seed, sparing=sparing))


def main() -> int:
    options = argparse.ArgumentParser(description="Loses power, kills and fails at every call, in a store of files.")
    options.add_argument("--quick", action="store_true", help="a few ways a moment")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", action="append", help="a part of an operation's name")
    options.add_argument("--method", choices=[*METHODS], action="append")
    options.add_argument("--first", action="store_true", help="ends at the first that is wrong")
    options.add_argument("--loud", action="store_true", help="says what came of each")
    options.add_argument("--most", type=int, default=10, help="so many words on what is wrong")
    chosen = options.parse_args()
    logging.getLogger("onefold").setLevel(logging.CRITICAL)
    told = Told()

    def each(name: str, one: Told) -> bool:
        told.add(one)
        if chosen.loud:
            print(f"{name}: {one}", flush=True)
        return chosen.first and not told.well

    everything(
        chosen.seed, sparing=chosen.quick, each=each, only=chosen.only or ("",), methods=chosen.method or METHODS
    )  # fmt: skip
    for line in told.words[: chosen.most]:
        print(line)
    print(told)
    return 0 if told.well else 1


if __name__ == "__main__":
    sys.exit(main())
