"""What children of the tests of turns do, each in a process of its own. Started by `tests.support.helpers.Child`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from onefold import OnefoldError, Session, Turn, TurnLost
from onefold.model import Json
from tests.support.children import Log, break_leases, open_store
from tests.support.helpers import at_barrier, hear, say

A_MOMENT = 0.05
"""How many seconds a writer gives others to begin a turn, before it begins its next."""


def puppet(
    path: str, session: str, owner: str, *, policy: Json = None, ahead: float = 0.0, broken: str | None = None,
    elsewhere: bool = False,
) -> None:  # fmt: skip
    """A writer that does what it is told, a word at a time, and says what came of it.

    Words: begin, append, take, end, and leave, which ends its process.
    """
    log = Log()
    if broken is not None:
        break_leases(broken)
    with open_store(path, policy=policy, ahead=ahead, elsewhere=elsewhere) as store:
        handle = store.session(session)
        turns: list[Turn] = []
        while (told := hear())["word"] != "leave":
            try:
                say(told["word"], error=None, **_obey(handle, turns, owner, told))
            except OnefoldError as error:
                say(told["word"], error=type(error).__name__, text=str(error))
    say("left", warnings=log.texts)


def _obey(handle: Session, turns: list[Turn], owner: str, told: dict[str, Json]) -> dict[str, Json]:
    match told["word"]:
        case "begin":
            turns.append(handle.turn(owner=owner, wait=told.get("wait", False)))
            return {"number": turns[-1].number}
        case "append":
            done = turns[-1].append(told["messages"], key=told.get("key"))
            return {"numbers": done.numbers, "duplicate": done.duplicate}
        case "take":
            taken = turns[-1].take_input(key=told.get("key"))
            return {"number": None if taken is None else taken.number}
        case "end":
            turns[-1].end(told.get("outcome", "settled"))
    return {}


def take_all(path: str, session: str, owner: str) -> None:
    """Takes inputs, each in a turn of its own, until none is left; says which it got."""
    with open_store(path) as store:
        handle = store.session(session)
        got: list[Json] = []
        at_barrier()
        while True:
            with handle.turn(owner=owner) as turn:
                taken = turn.take_input()
                if taken is None:
                    break
                got.append([taken.number, taken.body["content"], taken.turn])
            _give_way(handle)
        say("done", got=got)


def try_rounds(path: str, session: str, owner: str) -> None:
    """Round after round: tries to begin a turn at the same time as others, without waiting, and holds it if it can."""
    with open_store(path) as store:
        handle = store.session(session)
        while hear()["word"] == "round":
            at_barrier()
            try:
                turn: Turn | None = handle.turn(owner=owner, wait=False)
            except OnefoldError as error:
                turn = None
                say("tried", error=type(error).__name__)
            else:
                say("tried", error=None)
            hear("end")
            if turn is not None:
                turn.append({"role": "user", "content": owner})
                turn.end()
            say("ended")


def write_turns(
    path: str,
    session: str,
    owner: str,
    notes: str,
    *,
    seconds: float = 60.0,
    most: int = 1 << 30,
    appends: int = 4,
    policy: Json = None,
    ahead: float = 0.0,
    aloud: bool = False,
) -> None:
    """Turn after turn, each of several appends. What the store answered is noted in a file that outlives a kill;
    aloud, it is said as well."""
    with open_store(path, policy=policy, ahead=ahead) as store, Path(notes).open("a", buffering=1) as file:
        handle = store.session(session)

        def note(what: str, text: str = "", number: int = 0) -> None:
            file.write(json.dumps({"what": what, "text": text, "number": number}) + "\n")
            if aloud:
                say(what)

        at_barrier()
        until = time.monotonic() + seconds
        for n in range(most):
            if time.monotonic() >= until:
                break
            _write_one(handle, owner, f"{owner}/{os.getpid()}/{n}", appends, note)
            _give_way(handle)
        say("done")


def _write_one(handle: Session, owner: str, name: str, appends: int, note: Callable[..., None]) -> None:
    try:
        with handle.turn(owner=owner) as turn:
            for i in range(appends):
                text = f"{name}/{i}"
                try:
                    done = turn.append({"role": "assistant" if i else "user", "content": text})
                except TurnLost:
                    note("refused", text)
                    raise
                note("written", text, done.numbers[0])
    except TurnLost:
        note("lost")


def _give_way(handle: Session) -> None:
    """Lets others in: returns once another turn has begun, or after a moment in which none did."""
    for record in handle.follow(handle.state.last, idle=A_MOMENT):
        if record.kind == "turn.started":
            return


def fork_in_turn(path: str) -> None:
    """Forks in mid turn. Parent and child both try to go on with it; says what the child was told."""
    with open_store(path) as store:
        handle = store.session("s")
        with handle.turn(owner="parent") as turn:
            turn.append({"role": "user", "content": "before the fork"})
            heard, tell = os.pipe()
            pid = os.fork()
            if pid == 0:
                _in_the_child(handle, turn, tell)
            os.close(tell)
            with os.fdopen(heard) as lines:
                told = [json.loads(line) for line in lines]
            _, status = os.waitpid(pid, 0)
            last = handle.state.last
            turn.append({"role": "assistant", "content": "after the fork"})
        say("done", told=told, last=last, status=os.waitstatus_to_exitcode(status))


def _in_the_child(handle: Session, turn: Turn, tell: int) -> None:
    """Tries all that a turn can do, then closes what it has of the store, as an exit would."""
    try:
        for act in (
            lambda: turn.append({"role": "user", "content": "from the child"}),
            turn.take_input,
            turn.end,
            lambda: turn.abandon("the child ends"),
            lambda: handle.turn(wait=False),
        ):
            try:
                act()
                os.write(tell, b'"nothing"\n')
            except OnefoldError as error:
                os.write(tell, json.dumps(f"{type(error).__name__}: {error}").encode() + b"\n")
        handle.journal.backend.close()
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)
