"""Every writing operation, ready to be run once: what a crash, a kill or a power cut is timed against.

`prepare` makes a store that has a bit of everything. An operation sets the stage in it, and gives what is to be done:
the one act that counts. Clock and ids are fixed, so that two runs of one write the same bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw

from onefold import Policy, Store
from onefold.journal import (
    adoption,
    agent_compactions,
    masks,
    pins_and_notes,
    replication,
    summary_drafts,
    turns,
    undo,
    unfold,
    window_adoption,
)
from onefold.journal.adoption import Origin
from onefold.journal.process_liveness import Whereabouts
from onefold.messages import draft
from onefold.model import Claim, HolderId, Ids, Json, Quote, Quotes, Segment, Summary, TurnClaim, Usage
from onefold.storage.base import Backend
from onefold.storage.jsonl import FilesBackend
from onefold.storage.sqlite import SqliteBackend
from onefold.storage.sqlite.backend import connect as usual_connect

NOW = 1_000_000.0
Act = Callable[[], object]
Connect = Callable[[str], apsw.Connection]
ME = HolderId("host", 1, "thread", None, "nonce")
SECRET = "axolotl-2718"


def fixed_clock() -> float:
    return NOW


def counted_ids(prefix: str = "id") -> Ids:
    """Ids in order, so that two runs of one story write the same bytes."""
    numbers = itertools.count(1)
    return lambda: f"{prefix}-{next(numbers)}"


def talk(count: int, *, start: int = 1, words: int = 12) -> list[Json]:
    """So many messages, user and assistant in turn, each one another and each some tens of tokens."""
    return [
        {
            "role": "user" if n % 2 else "assistant",
            "content": f"message {n}: " + " ".join(f"word{n}x{i}" for i in range(words)),
        }
        for n in range(start, start + count)
    ]


TABLES = (
    "meta", "records", "sessions", "segments", "compactions", "keys", "inputs", "aliases", "leases", "turn_leases",
    "tombstones",
)  # fmt: skip


_RECORDS = (
    "select session, number, id, kind, at, format, role, tokens, opens, closes, key, turn, actor, body "
    "from records join journals on sid = place >> 32"
)


def rows(path: Path, tables: tuple[str, ...] = TABLES) -> dict[str, list[Any]]:
    """All rows of a store, read past onefold, but for a note on its file. A table that is missing is left out."""
    connection = apsw.Connection(str(path))
    try:
        there = {name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")}
        asked = {t: f"select * from {t}" for t in tables if t in there}  # noqa: S608
        if "journals" in there and "records" in asked:
            asked["records"] = _RECORDS
        found = {t: connection.execute(query).fetchall() for t, query in asked.items()}
        return {t: sorted((row for row in some if row[0] != "gaps"), key=repr) for t, some in found.items()}
    finally:
        connection.close()


def damage(path: Path, *statements: str) -> None:
    """Changes a store by hand, past onefold."""
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


class Anywhere:
    """A machine of which nothing is known, so that the same operation writes the same in every process."""

    def this(self) -> Json:
        return None

    def whereabouts(self, process: Json) -> Whereabouts:
        return "elsewhere"


def stored(backend: Backend, ids: Ids, policy: Policy | None = None) -> Store:
    """A store that says nothing of the process it is opened in."""
    store = Store(backend, ids=ids, policy=policy)
    store.journal.leases.machine = Anywhere()
    return store


def prepare(path: str, connect: Connect = usual_connect) -> None:
    """A store with one session, an older compaction of it, an input that waits and a key."""
    ids = counted_ids("old")
    with stored(SqliteBackend(path, clock=fixed_clock, ids=ids, connect=connect), ids) as store:
        fill(store)


def fill(store: Store) -> None:
    session = store.session("a")
    session.append(talk(6), key="first")
    claim = _claim(store)
    store.journal.commit(claim, "what was said", cut=4)
    session.append(talk(2, start=7))
    session.queue_input({"role": "user", "content": "later"})


def _claim(store: Store) -> Claim:
    store.journal.request("a", trigger="manual")
    claim = store.journal.claim("a", ME)
    assert isinstance(claim, Claim)
    return claim


def _request(store: Store) -> Act:
    return lambda: store.journal.request("a", trigger="threshold", key="ask")


def _join(store: Store) -> Act:
    store.journal.request("a", trigger="threshold")
    return lambda: store.journal.request("a", trigger="manual")


def _claims(store: Store) -> Act:
    store.journal.request("a")
    return lambda: store.journal.claim("a", ME)


def _renew(store: Store) -> Act:
    claim = _claim(store)
    longer = replace(claim, lease=claim.lease + 7)
    return lambda: store.journal.renew(longer)


def _commit(store: Store) -> Act:
    claim = _claim(store)
    follow_up = draft({"role": "user", "content": "go on"}, counted_ids("follow"))
    return lambda: store.journal.commit(
        claim, "a new summary", cut=claim.upto, kept=[4], quotes=_quoting(2, 3), follow_up=follow_up
    )


def _quoting(*numbers: int) -> Quotes:
    """The first words of some messages."""
    return Quotes(tuple(Quote(n, "/content", 0, 9, 1.0) for n in numbers), room=1000, covers=max(numbers))


def _fail(store: Store) -> Act:
    claim = _claim(store)
    return lambda: store.journal.fail(claim, "the model is away", 5.0)


def _cancel(store: Store) -> Act:
    _claim(store)
    return lambda: store.journal.cancel("a")


def _restore(store: Store) -> Act:
    _claim(store)
    head = store.journal.state("a").head
    return lambda: undo.restore(store.journal, "a", 1, expect_head=head)


def _heal(store: Store) -> Act:
    damage(Path(store.address), "update sessions set head = 1, last = last - 2", "delete from inputs")
    return lambda: store.session("a")


def _commit_with_alias(store: Store) -> Act:
    claim = _claim(store)
    return lambda: store.journal.commit(claim, "a new summary", alias="also-a")


def _turn(store: Store) -> TurnClaim:
    turn = turns.start(store.journal, "a", ME, owner="gateway")
    assert isinstance(turn, TurnClaim)
    return turn


def _start_turn(store: Store) -> Act:
    return lambda: turns.start(store.journal, "a", ME, owner="gateway")


def _renew_turn(store: Store) -> Act:
    turn = _turn(store)
    longer = replace(turn, lease=turn.lease + 7)
    return lambda: turns.renew(store.journal, longer)


def _append_in_turn(store: Store) -> Act:
    turn = _turn(store)
    said = [draft(m, counted_ids("said")) for m in talk(2, start=9)]
    return lambda: store.journal.append("a", said, key="k", turn=turn)


def _take_in_turn(store: Store) -> Act:
    turn = _turn(store)
    return lambda: turns.take_input(store.journal, "a", turn=turn, key="k")


def _calls(store: Store, turn: TurnClaim) -> None:
    """Two calls that nobody has answered yet."""
    function = {"name": "look", "arguments": "{}"}
    calls = [{"id": id, "type": "function", "function": function} for id in ("one", "two")]
    asked = draft({"role": "assistant", "content": None, "tool_calls": calls}, counted_ids("asked"))
    store.journal.append("a", [asked], turn=turn)


def _end_turn(store: Store) -> Act:
    turn = _turn(store)
    _calls(store, turn)
    return lambda: turns.end(store.journal, turn, "failed", "the model is away")


def _stop_turn(store: Store) -> Act:
    _calls(store, _turn(store))
    return lambda: turns.stop(store.journal, "a", cause="enough")


def _take_turn_over(store: Store) -> Act:
    """From a writer that was not heard of since long ago."""
    ids, same = counted_ids("dead"), store.journal.backend
    assert isinstance(same, SqliteBackend)
    backend: SqliteBackend
    if isinstance(same, FilesBackend):
        backend = FilesBackend(same.address, clock=lambda: NOW - 1000, ids=ids, disk=same._disk)
    else:
        backend = SqliteBackend(same.address, clock=lambda: NOW - 1000, ids=ids, connect=same.connect)
    with stored(backend, ids) as long_ago:
        _calls(long_ago, _turn(long_ago))
    return lambda: turns.start(store.journal, "a", replace(ME, nonce="another"), owner="cron")


def _pin(store: Store) -> Act:
    return lambda: pins_and_notes.pin(store.journal, "a", 3)


def _unpin(store: Store) -> Act:
    pins_and_notes.pin(store.journal, "a", 3)
    return lambda: pins_and_notes.unpin(store.journal, "a", 3)


def _note(store: Store) -> Act:
    pins_and_notes.note(store.journal, "a", "path", "/old", key="home")
    return lambda: pins_and_notes.note(store.journal, "a", "path", "/new", key="home", source=(3,))


def _undo(store: Store) -> Act:
    """With a turn and a compaction open."""
    _calls(store, _turn(store))
    _claim(store)
    head = store.journal.state("a").head
    return lambda: undo.undo(store.journal, "a", expect_head=head)


def _redo(store: Store) -> Act:
    undone = undo.undo(store.journal, "a", expect_head=store.journal.state("a").head)
    _turn(store)
    _claim(store)
    return lambda: undo.redo(store.journal, "a", expect_head=undone.number)


def _rewind(store: Store) -> Act:
    _turn(store)
    _claim(store)
    head = store.journal.state("a").head
    return lambda: undo.rewind(store.journal, "a", 3, expect_head=head)


def _folded(store: Store) -> Segment:
    made = store.journal.commit(_claim(store), "what was said")
    store.session("a").append({"role": "user", "content": "said since"})
    return made


def _unfold(store: Store) -> Act:
    """With a turn and a compaction open."""
    made = _folded(store)
    _turn(store)
    _claim(store)
    return lambda: unfold.unfold(store.journal, "a", made.number)


def _undo_unfolding(store: Store) -> Act:
    opened = unfold.unfold(store.journal, "a", _folded(store).number)
    return lambda: undo.undo(store.journal, "a", expect_head=opened.number)


def _refold(store: Store) -> Act:
    made = _folded(store)
    unfold.unfold(store.journal, "a", made.number)
    store.session("a").append({"role": "user", "content": "and more"})
    return lambda: unfold.refold(store.journal, "a", made.number)


def _draft(store: Store) -> Act:
    head = _folded(store).number
    return lambda: summary_drafts.drafted(store.journal, "a", head, by="a model", spent=Usage(1, 1000, 100))


def _take_draft(store: Store) -> Act:
    """With a turn open."""
    head = _folded(store).number
    _turn(store)
    number = summary_drafts.drafted(store.journal, "a", head, by="a model", spent=Usage(1, 1000, 100))
    made = Summary("said in other words", by="a model")
    return lambda: summary_drafts.replaced(store.journal, "a", made, None, number=number, expect_head=head, who=ME)


def _answered(store: Store) -> list[int]:
    """A call with a long result."""
    call = {"id": "m1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    given = {"role": "tool", "tool_call_id": "m1", "content": "what the tool gave " * 40}
    said = store.session("a").append([{"role": "assistant", "content": None, "tool_calls": [call]}, given])
    return [said.numbers[1]]


def _mask(store: Store) -> Act:
    """With a compaction open that nobody works on."""
    numbers = _answered(store)
    store.journal.request("a", trigger="threshold")
    head = store.journal.state("a").head
    return lambda: masks.mask(store.journal, "a", numbers, expect_head=head, full=True)


def _unmask(store: Store) -> Act:
    numbers = _answered(store)
    made = masks.mask(store.journal, "a", numbers, expect_head=store.journal.state("a").head)
    return lambda: unfold.unfold(store.journal, "a", made.number)


THEM = Origin("anthropic", account="org", model="large")


def _compacted(store: Store) -> tuple[int, tuple[int, ...]]:
    """An answer in which the provider compacted what it was sent, and what that was."""
    session = store.session("a")
    sent = session.context()
    block = {"type": "compaction", "content": "What was said until then."}
    answer = {"role": "assistant", "content": [block, {"type": "text", "text": "I go on."}]}
    return session.append(answer, format="anthropic").numbers[0], sent.numbers


def _adopts(store: Store, number: int, sent: tuple[int, ...]) -> Segment:
    head, said = store.journal.state("a").head, Quotes((Quote(2, "/content", 0, 7, 1.0),))
    return adoption.adopt(store.journal, "a", [number], sent, origin=THEM, expect_head=head, said=said)


def _adopt(store: Store) -> Act:
    """With a compaction open that nobody works on."""
    number, sent = _compacted(store)
    store.journal.request("a", trigger="threshold")
    return lambda: _adopts(store, number, sent)


def _adopt_sealed(store: Store) -> Act:
    session = store.session("a")
    sent = session.context().numbers
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA" * 20}
    (number,) = session.append(item, format="openai-responses").numbers
    return lambda: _adopts(store, number, sent)


def _adopt_window(store: Store) -> Act:
    """What came back in place of all that the session was cleared of."""
    session = store.session("a")
    sent = session.context().numbers
    cleared = undo.clear(store.journal, "a").number
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA" * 20}
    window = session.drafts([{"role": "user", "content": "message 1"}, item], "openai-responses", None)
    return lambda: window_adoption.replace(store.journal, "a", cleared, window, sent, origin=THEM, key="window")


def _erase_adopted(store: Store) -> Act:
    """What an item covers, with the answer that holds it."""
    number, sent = _compacted(store)
    _adopts(store, number, sent)
    return lambda: store.session("a").erase(sent[-1])


def _observe(store: Store) -> Act:
    agent_compactions.set_compaction_owner(store.journal, "a", "agent")
    store.journal.request("a")
    return lambda: agent_compactions.record_agent_compaction(
        store.journal, "a", source="a hook", signals=("the transcript",)
    )


def _keep(store: Store) -> Act:
    _claim(store)
    return lambda: agent_compactions.set_compaction_owner(store.journal, "a", "agent")


def _secret(store: Store) -> int:
    """A message that a key, a summary and a note know of, and that was an input before; its number."""
    session = store.session("a")
    session.take_input()
    session.queue_input({"role": "user", "content": SECRET}, key="secret")
    taken = session.take_input()
    assert taken is not None
    pins_and_notes.note(store.journal, "a", "fact", f"it is {SECRET}", source=(taken.number,))
    store.journal.commit(_claim(store), f"they said {SECRET}", quotes=_quoting(2, taken.number))
    return taken.number


def _erase(store: Store) -> Act:
    number = _secret(store)
    _claim(store)
    return lambda: store.session("a").erase(number)


def _erase_input(store: Store) -> Act:
    number = store.session("a").queue_input({"role": "user", "content": SECRET}, key="secret")
    return lambda: store.session("a").erase(number)


def _delete(store: Store) -> Act:
    _secret(store)
    store.session("a").alias("also-a")
    _turn(store)
    _claim(store)
    return lambda: store.delete("also-a")


def prepare_forks(path: str) -> None:
    """A fork and a fork of that, each with a summary of its own that knows the secret."""
    prepare(path)
    ids = counted_ids("fork")
    with stored(SqliteBackend(path, clock=fixed_clock, ids=ids), ids) as store:
        _secret(store)
        session = store.session("a")
        for child in ("f", "g"):
            session = session.fork(id=child)
            session.append(talk(2, start=20))
            store.journal.request(child)
            claim = store.journal.claim(child, ME)
            assert isinstance(claim, Claim)
            store.journal.commit(claim, f"{child} knows {SECRET}")


def _erase_secret(store: Store) -> tuple[str, ...]:
    """Erases the message that was an input; the forks that lost it."""
    session = store.session("a")
    taken = max(r.number for r in session.read() if r.kind == "input.taken")
    return session.erase(taken + 1).forks


def _take_in(store: Store) -> Act:
    copy = list(store.session("a").read())
    return lambda: replication.ingest(store.journal, "b", copy)


OPERATIONS: dict[str, Callable[[Store], Act]] = {
    "create": lambda store: lambda: store.session("b"),
    "append one": lambda store: lambda: store.session("a").append(talk(1, start=9)),
    "append many with key": lambda store: lambda: store.session("a").append(talk(3, start=9), key="k"),
    "request": _request,
    "join": _join,
    "claim": _claims,
    "renew": _renew,
    "commit with follow-up": _commit,
    "fail": _fail,
    "cancel": _cancel,
    "restore": _restore,
    "queue": lambda store: lambda: store.session("a").queue_input({"role": "user", "content": "much later"}),
    "take": lambda store: lambda: store.session("a").take_input(),
    "alias": lambda store: lambda: store.session("a").alias("also-a"),
    "heal": _heal,
    "commit with alias": _commit_with_alias,
    "start a turn": _start_turn,
    "renew a turn": _renew_turn,
    "append in a turn": _append_in_turn,
    "take in a turn": _take_in_turn,
    "end a turn with open calls": _end_turn,
    "stop a turn with open calls": _stop_turn,
    "take over a dead turn": _take_turn_over,
    "pin": _pin,
    "unpin": _unpin,
    "note": _note,
    "undo with a turn and a compaction open": _undo,
    "redo": _redo,
    "rewind": _rewind,
    "unfold with a turn and a compaction open": _unfold,
    "undo an unfolding": _undo_unfolding,
    "refold": _refold,
    "draft a summary": _draft,
    "take a draft": _take_draft,
    "mask": _mask,
    "unmask": _unmask,
    "adopt what can be read": _adopt,
    "adopt what is sealed": _adopt_sealed,
    "adopt a window in place of a clear": _adopt_window,
    "erase what an adopted item covers": _erase_adopted,
    "fork": lambda store: lambda: store.session("a").fork(id="f"),
    "keep": _keep,
    "observe": _observe,
    "erase": _erase,
    "erase an input that waits": _erase_input,
    "delete": _delete,
    "take in": _take_in,
}

ONE_BY_ONE: dict[str, Callable[[Store], tuple[str, ...]]] = {
    "erase with forks": _erase_secret,
    "delete with forks": lambda store: store.delete("a").forks,
}
"""A transaction for each session: the one that was named, its fork, and the fork of that."""
