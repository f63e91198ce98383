"""What somebody erases or deletes is told by no room again and stands in no frame, whoever did it, in whatever process,
and whoever died on the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import onefold
from onefold.acp import frame_erasure
from onefold.acp.frame_log import FrameLog
from onefold.acp.frame_pages import NewFrame
from onefold.errors import SessionNotFound
from onefold.journal import erasure, sidecars
from onefold.jsonrpc import parse
from onefold.model import ERASED, INPUT_QUEUED, MESSAGE, Erased, Record
from onefold.recall import Recall
from onefold.store import Store
from tests.support.acp_clients import Client, Person, Place, Ran, Remote, blocks, is_method, is_update, place, texts
from tests.support.command_line import run as cli
from tests.support.hard_rooms import attached, kept, numbers
from tests.support.rooms import messages, records, run

WORD = "quokka7731"
ALL_KINDS = ("in", "out", "err", "note", "old")


def update(there: Place, session: str, method: str = "session/update", **said: Any) -> str:
    """A directive by which the agent says something of its own."""
    own = there.host.rooms[session].process.session
    params = {"sessionId": own, "update": said}
    path = Path(tempfile.mkdtemp()) / "frame"
    path.write_text(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))
    return f"[[raw:{path}]]"


def holding(found: list[Record]) -> list[int]:
    return [r.number for r in found if WORD in json.dumps(r.body)]


def frames_with_it(there: Place, session: str) -> list[tuple[int, str]]:
    return [row for row in kept(there, session, *ALL_KINDS) if WORD in row[1]]


def erase_all(there: Place, session: str) -> Erased:
    done = there.store.session(session).erase(*erasable(records(there, session)))
    assert holding(records(there, session)) == []
    return done


def erasable(found: list[Record]) -> list[int]:
    return [r.number for r in found if r.number in holding(found) and r.kind in (MESSAGE, INPUT_QUEUED)]


def hears_nothing(client: Client) -> None:
    assert [f.body for f in client.heard if WORD in json.dumps(f.body)] == []


def files_with_it(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and WORD.encode() in p.read_bytes())


async def full_room(there: Place) -> tuple[Client, str]:
    """A room in which the word got everywhere, and other things were said besides."""
    ann = await there.joined()
    session = next(iter(there.host.rooms))
    plan = update(there, session, sessionUpdate="plan", entries=[{"content": WORD, "status": "pending"}])
    title = update(there, session, sessionUpdate="session_info_update", title=f"about {WORD}")
    forged = update(there, session, method="onefold/erased", words=WORD)
    echo = update(there, session, sessionUpdate="user_message_chunk", content={"type": "text", "text": WORD})
    await ann.prompt(session, "[[say:a harmless beginning]] [[tool:harmless]]")
    await ann.prompt(
        session,
        f"[[think:hm {WORD}]] [[say:it is {WORD}]] [[tool:{WORD}]] [[call:{WORD}]] [[stderr:{WORD}]] "
        f"{plan} {title} {echo} {forged} [[usage:10]]",
    )
    await ann.prompt(session, "[[say:a harmless end]]")
    assert {kind for kind in ALL_KINDS if any(WORD in line for _, line in kept(there, session, kind))} >= {
        "in", "out", "err", "note",
    }  # fmt: skip
    return ann, session


# ---------------------------------------------------------------------- in a room that goes on


def test_nobody_who_comes_after_it_is_told_what_was_erased(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            _, session = await full_room(there)
            before = [number for number, _ in kept(there, session, "in", "note")]

            done = erase_all(there, session)

            assert (done.wiped, done.remains) == (True, ())
            assert frames_with_it(there, session) == []
            for more in ({"after": 0}, {"after": before[3]}, {"history": "all"}, {}):
                ben, shot = await attached(there, session, **more)
                await ben.prompt(session, "[[say:and on]]")
                hears_nothing(ben)
                assert WORD not in json.dumps(shot)
            for method in ("session/load", "session/resume"):
                cid = there.client()
                await cid.ask("initialize", protocolVersion=1)
                await cid.ask(method, sessionId=session, cwd="/", mcpServers=[])
                await cid.prompt(session, "[[say:and on]]")
                hears_nothing(cid)
            assert there.store.verify().findings == ()

    run(work)
    assert files_with_it(tmp_path) == []


def test_what_else_was_said_is_told_under_its_old_numbers(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            _, session = await full_room(there)
            before = dict(kept(there, session, "in", "note"))
            erase_all(there, session)

            after = dict(kept(there, session, "in", "note"))
            assert list(before) == [n for n in after if n in before]
            changed = [n for n in before if after[n] != before[n]]
            others = [before[n] for n in changed if WORD not in before[n] and '"id":' not in before[n]]
            assert all('"tool_call_update"' in line for line in others), "nothing else, but answers, and of the calls"

            ben, _ = await attached(there, session, after=0)
            await ben.until(is_method("onefold/turn_settled"), count=3)
            heard = numbers(ben)
            assert heard == sorted(set(heard))
            assert "".join(texts(ben.heard, "agent_message_chunk")) == "a harmless beginninga harmless end"
            assert [f.update.get("title") for f in ben.heard if is_update("tool_call")(f)] == ["harmless"]
            assert any(is_update("usage_update")(f) for f in ben.heard)
            stones = [f for f in ben.heard if f.method == "onefold/erased"]
            assert len([f for f in stones if "id" not in f.params]) >= 8
            (said,) = [f for f in stones if "id" in f.params]
            assert said.params["numbers"] == [r.number for r in records(there, session) if "was" in str(r.body)]

    run(work)


def test_who_is_there_is_told_that_it_was_erased_and_hears_on_without_a_gap(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            _, session = await full_room(there)
            ben, _ = await attached(there, session)
            await asyncio.to_thread(erase_all, there, session)

            (said,) = await ben.until(is_method("onefold/erased"))
            await ben.prompt(session, "[[say:hello]]")
            assert said.params["numbers"]
            heard = numbers(ben)
            assert heard == sorted(set(heard))
            last, _ = kept(there, session, "note")[-1]
            assert heard[-1] == last

    run(work)


def test_erased_in_another_process_it_is_gone_from_a_live_room(tmp_path: Path) -> None:
    async def work() -> None:
        with Ran(tmp_path, "--state", str(tmp_path / "state")) as served:
            ann = Remote(served, name="ann")
            await ann.prompt("s", f"[[say:it is {WORD}]] [[tool:{WORD}]] [[stderr:{WORD}]]")
            ann.heard.clear()
            with onefold.open(tmp_path / "agent.db") as store:
                found = list(store.session("s").read())
                done = await asyncio.to_thread(store.session("s").erase, *erasable(found))
                assert (done.wiped, done.remains) == (True, ())
            await ann.until(is_method("onefold/erased"))
            ben = Remote(served, name="ben")
            ben.last = 0
            await ben.prompt("s", "[[say:and on]]")
            await ann.until(is_method("onefold/turn_settled"))
            for client in (ann, ben):
                hears_nothing(client)
                assert client.numbers == sorted(set(client.numbers))
                await client.close()
        (tmp_path / "state").unlink()  # which is the agent's own
        assert files_with_it(tmp_path) == []
        served.again()
        try:
            cid = Remote(served, name="cid")
            cid.last = 0
            await cid.until(is_method("onefold/turn_settled"), count=2)
            hears_nothing(cid)
            await cid.close()
        finally:
            served.kill()

    run(work)


def test_a_prompt_that_waits_is_erased_and_nobody_waits_for_its_end(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            go = tmp_path / "go"
            runs = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[wait:{go}]] [[say:done]]"))
            waits = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"it is {WORD}"))
            await ben.until(lambda f: WORD in json.dumps(f.body))

            await asyncio.to_thread(erase_all, there, session)

            assert (await waits)["stopReason"] == "cancelled"
            _, shot = await attached(there, session)
            assert shot["queue"] == []
            go.touch()
            assert (await runs)["stopReason"] == "end_turn"
            assert frames_with_it(there, session) == []
            assert [m for m in messages(there, session) if WORD in json.dumps(m)] == []

    run(work)


def test_a_prompt_that_is_erased_in_the_moment_it_is_taken_gets_into_no_frame(tmp_path: Path) -> None:
    """The room has it in hand, has not kept its frames yet, and was not told that the journal changed."""

    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, f"[[say:fine]] {WORD}")
            ben, _ = await attached(there, session, after=there.host.rooms[session].recorder.last)
            room = there.host.rooms[session]
            (number,) = [r.number for r in records(there, session) if r.kind == MESSAGE and WORD in str(r.body)]

            async def in_hand() -> None:
                room.recorder.record = number
                said = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": WORD}}
                room.recorder.tell("session/update", {"update": said})
                room.recorder.keep("err", f"about to send {WORD}")
                await room.in_thread(lambda: there.store.session(session).erase(number))

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(there.host, "_poke", lambda *given: None)
                await room.post(in_hand)
                await ben.until(is_method("onefold/erased"))
            await ann.prompt(session, "[[say:and on]]")

            hears_nothing(ben)
            assert frames_with_it(there, session) == []
            assert [n for n, _ in kept(there, session, *ALL_KINDS)] == list(range(1, room.recorder.last + 1))

    run(work)


def test_what_waits_for_a_client_that_does_not_read_is_taken_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            ben, _ = await attached(there, session)
            assert ben._reading is not None
            ben._reading.cancel()
            await ann.prompt(session, f"[[say:harmless]] [[say:it is {WORD}]]")
            assert any(WORD in text for text, _ in ben.connection.send_queue._frames)

            await asyncio.to_thread(erase_all, there, session)
            await ann.prompt(session, "[[say:and on]]")

            ben.start()
            await ben.until(is_method("onefold/turn_settled"), count=2)
            hears_nothing(ben)
            assert "".join(texts(ben.heard, "agent_message_chunk")) == "harmlessand on"

    run(work)


def test_a_question_about_an_erased_call_is_withdrawn(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            asked = await ann.send("session/prompt", sessionId=session, prompt=blocks(f"[[ask:{WORD}]]"))
            await ann.until(is_method("session/request_permission"))
            (question,) = [r.number for r in records(there, session) if r.kind == "question.asked"]

            await asyncio.to_thread(there.store.session(session).erase, question)

            await asked
            assert "the answer was cancelled" in ann.said
            erase_all(there, session)
            ben, shot = await attached(there, session, after=0)
            await ben.prompt(session, "[[say:and on]]")
            hears_nothing(ben)
            assert WORD not in json.dumps(shot)
            assert frames_with_it(there, session) == []

    run(work)


def test_a_session_that_its_agent_tells_again_is_kept_without_its_words(tmp_path: Path) -> None:
    async def work() -> None:
        state = ("--state", str(tmp_path / "agent"), "--without", "resume")
        async with place(tmp_path, *state) as there:
            _, session = await full_room(there)
            erase_all(there, session)
        async with place(tmp_path, *state) as there:
            await (await there.host.enter(session)).ready()
            told = kept(there, session, "old")
            assert [f.update["sessionUpdate"] for _, line in told for f in parse(line)].count("agent_message_chunk") > 2
            assert frames_with_it(there, session) == []

    run(work)


def test_the_summary_that_an_agent_told_of_is_in_no_frame(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            summary = [{"type": "text", "text": f"they spoke of {WORD}"}]
            begun = update(there, session, sessionUpdate="compaction_update", compactionId="c", status="in_progress")
            ended = update(
                there, session, sessionUpdate="compaction_update", compactionId="c", status="completed", summary=summary
            )
            await ann.prompt(session, f"[[say:it is {WORD}]] {begun} {ended}")
            assert [r for r in records(there, session) if WORD in str(r.body.get("said"))]

            erase_all(there, session)

            assert frames_with_it(there, session) == []

    run(work)


# ---------------------------------------------------------------------- deleted


def test_the_room_of_a_deleted_session_ends_and_nothing_is_kept_of_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann, session = await full_room(there)
            room = there.host.rooms[session]
            hanging = await ann.send("session/prompt", sessionId=session, prompt=blocks("[[hang]]"))
            await asyncio.sleep(0)

            done = await asyncio.to_thread(there.store.delete, session)

            assert (done.wiped, done.remains) == (True, ())
            assert ann._reading is not None
            await ann._reading
            assert ann.connection.send_queue.closed == "its session was deleted"
            await asyncio.gather(*there.host._burying)
            assert session not in there.host.rooms
            assert not room.process.runs
            assert there.host.frames.known() == []
            with pytest.raises(SessionNotFound):
                await there.host.enter(session)
            with pytest.raises(SessionNotFound):
                there.host.frames.append(session, []).result()
            hanging.cancel()

    run(work)
    assert files_with_it(tmp_path) == []


def test_what_a_process_left_behind_of_a_deleted_session_is_removed_by_the_next(tmp_path: Path) -> None:
    """Killed between the journal's part and the frames'."""

    async def work() -> None:
        async with place(tmp_path) as there:
            _, session = await full_room(there)
        with onefold.open(tmp_path / "agent.db") as store, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sidecars, "forget", lambda *given, **more: [])
            store.delete(session)
            frames = FrameLog(str(tmp_path / "agent.db.frames"))
            assert frames.known() == [session]
            frame_erasure.settle(store.journal, frames)
            assert (frames.known(), frames.rooms()) == ([], [])
            frames.close()

    run(work)
    assert files_with_it(tmp_path) == []


def test_a_store_that_was_put_back_from_before_has_its_rooms_again(tmp_path: Path) -> None:
    def put_back() -> None:
        for left in tmp_path.glob("agent.db*"):
            if left.is_file() and ".frames" not in left.name:
                left.unlink()
        (tmp_path / "copy.db").rename(tmp_path / "agent.db")

    async def work() -> None:
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[say:hello]]")
            there.store.backup(tmp_path / "copy.db")
        with onefold.open(tmp_path / "agent.db") as store:
            store.delete(session)
        put_back()
        async with place(tmp_path, "--state", str(tmp_path / "state")) as there:
            room = await there.host.open(session, there.host.agents.named(None), cwd="/")
            await room.ready()
            ben, _ = await attached(there, session)
            await ben.prompt(session, "[[say:again]]")
            assert ben.said.endswith("again")

    run(work)


# ---------------------------------------------------------------------- whoever dies on the way


class Killed(BaseException):
    """The process ends here."""


def before(owner: Any, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        def dies(*given: Any, **more: Any) -> Any:
            raise Killed

        monkeypatch.setattr(owner, name, dies)

    return patch


STEPS = {
    "before the forks": before(erasure, "_forget_in_forks"),
    "before the store's files": before(erasure, "_clean"),
    "before what is beside it": before(sidecars, "forget"),
    "before the frames": before(frame_erasure, "forget"),
    "before the room": before(frame_erasure, "carry_out"),
    "before the frames' bytes": before(FrameLog, "wipe"),
    "before the copies": before(sidecars, "copies"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("what", ["erase", "delete"])
def test_what_was_cut_short_is_completed_by_saying_it_again(tmp_path: Path, what: str, step: str) -> None:
    path = tmp_path / "agent.db"
    session, number = _prepared(path)
    with onefold.open(path) as store:
        with pytest.MonkeyPatch.context() as patch:
            STEPS[step](patch)
            with pytest.raises(Killed):
                _do(store, what, session, number)

        done = _do(store, what, session, number)

        assert (done.wiped, done.remains) == (True, ())
        assert store.verify().findings == ()
    assert files_with_it(tmp_path) == []
    assert [row for row in _all_frames(path, session) if WORD in row] == []


@pytest.mark.parametrize("step", [s for s in STEPS if s not in ("before the forks", "before the frames' bytes")])
def test_what_was_cut_short_is_completed_by_whoever_opens_the_room(tmp_path: Path, step: str) -> None:
    path = tmp_path / "agent.db"
    session, number = _prepared(path)
    with onefold.open(path) as store, pytest.MonkeyPatch.context() as patch:
        STEPS[step](patch)
        with pytest.raises(Killed):
            _do(store, "erase", session, number)

    async def work() -> None:
        async with place(tmp_path) as there:
            room = await there.host.open(session, there.host.agents.named(None), cwd="/")
            ben, _ = await attached(there, session, after=0)
            await room.ready()
            hears_nothing(ben)
            assert frames_with_it(there, session) == []

    run(work)


def _do(store: Store, what: str, session: str, number: int) -> Any:
    return store.session(session).erase(number) if what == "erase" else store.delete(session)


def _all_frames(path: Path, session: str) -> list[str]:
    frames = FrameLog(f"{path}.frames")
    try:
        return [row.text for row in frames.read(session, 0, 10_000)]
    finally:
        frames.close()


def _prepared(path: Path) -> tuple[str, int]:
    """A room in which one prompt has the word and nothing else does, a fork of it, and an index that knows it."""

    async def work() -> None:
        async with place(path.parent) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, f"[[say:fine]] {WORD}")
            (number,) = [r.number for r in records(there, session) if r.kind == MESSAGE and WORD in str(r.body)]
            there.store.session(session).fork(id="f")
            assert Recall(there.store).search(WORD).hits
            found.append((session, number))

    found: list[tuple[str, int]] = []
    run(work)
    assert WORD in "".join(_all_frames(path, found[0][0]))
    return found[0]


# ---------------------------------------------------------------------- which frames belong to a record


def test_each_record_of_a_turn_takes_its_own_frames_along_and_no_other_ones(tmp_path: Path) -> None:
    """Each message of a turn has a word of its own; one of them is erased in each of many rooms alike."""
    prompt = "first [[say:second]] [[think:third]] [[say:fourth]] [[tool:fifth]] [[say:sixth]]"
    own = {
        "first": {"first", "second", "third", "fourth", "fifth", "sixth"},  # which the prompt says, too
        "second": {"second"},
        "third": {"third"},
        "fourth": {"fourth"},
        "fifth": {"fifth"},
        "sixth": {"sixth"},
    }

    async def work() -> None:
        async with place(tmp_path) as there:
            for word, gone in own.items():
                ann = there.client()
                await ann.ask("initialize", protocolVersion=1)
                session = (await ann.ask("session/new", cwd="/", mcpServers=[]))["sessionId"]
                await ann.prompt(session, prompt)
                said = [r for r in records(there, session) if r.kind == MESSAGE]
                chosen = [r.number for r in said if word in str(r.body) and (word == "first") == ("prompt" in r.body)]
                await asyncio.to_thread(there.store.session(session).erase, *chosen)

                ben, _ = await attached(there, session, after=0)
                await ben.until(is_method("onefold/turn_settled"))
                updates = [f.update for f in ben.heard if f.update]
                theirs = {
                    w for w in own if w in str([u for u in updates if u["sessionUpdate"] != "user_message_chunk"])
                }
                assert theirs == (set(own) - {"first"} if word == "first" else set(own) - {"first"} - gone)
                asked = [u for u in updates if u["sessionUpdate"] == "user_message_chunk"]
                assert (asked == []) is (word == "first")

    run(work)


def test_a_journal_in_which_nothing_was_erased_has_nothing_to_say_to_frames(tmp_path: Path) -> None:
    with onefold.open(tmp_path / "agent.db") as store:
        session = store.session("s")
        session.append({"role": "user", "content": "hello"})

        assert store.journal.backend.read(lambda tx: frame_erasure.gone(tx, "s")) is None
        assert store.journal.backend.read(lambda tx: frame_erasure.newest(tx, "s")) == 0


def test_of_several_erasures_each_is_carried_out_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            for n in range(3):
                await ann.prompt(session, f"[[say:answer {n}]] [[stderr:line {n}]]")
                prompts = [r.number for r in records(there, session) if r.kind == MESSAGE and "prompt" in r.body]
                await asyncio.to_thread(there.store.session(session).erase, prompts[-1])
                await asyncio.to_thread(there.store.session(session).erase, prompts[-1])
                ben, _ = await attached(there, session, after=0)
                await ben.prompt(session, "[[say:x]]")
            marks = [parse(line)[0].params for _, line in kept(there, session, "note") if "onefold/erased" in line]
            announced = [r for r in records(there, session) if r.kind == ERASED and "numbers" in r.body]
            assert [m["id"] for m in marks if "id" in m] == [r.id for r in announced]
            assert [line for _, line in kept(there, session, "err")] == ["{}"] * 3

    run(work)


def test_a_room_that_was_overtaken_by_a_frame_that_is_no_longer_there_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            ann = await there.joined()
            session = next(iter(there.host.rooms))
            await ann.prompt(session, "[[say:one]]")
            await asyncio.to_thread(there.host.frames.append(session, [NewFrame("err", "somebody else's", 1)]).result)
            assert await asyncio.to_thread(there.host.frames.retain, float("inf")) > 0

            await ann.prompt(session, "[[say:two]]")

            assert ann.said == "onetwo"

    run(work)


def test_a_program_that_knows_only_the_library_is_served(tmp_path: Path) -> None:
    """Frames that no room of this process keeps, and a store that has no agent."""
    path = tmp_path / "agent.db"
    session, number = _prepared(path)

    with onefold.open(path) as store:
        done = store.session(session).erase(number)

    assert (done.wiped, done.forks) == (True, ("f",))
    assert [row for row in _all_frames(path, session) if WORD in row] == []
    assert files_with_it(tmp_path) == []


def test_a_person_who_may_only_read_is_told_nothing_either(tmp_path: Path) -> None:
    async def work() -> None:
        async with place(tmp_path) as there:
            _, session = await full_room(there)
            erase_all(there, session)
            eve = there.client(Person("eve", ("read",)))
            await eve.ask("initialize", protocolVersion=1)
            shot = await eve.ask("session/attach", sessionId=session, after=0)
            await eve.until(is_method("onefold/turn_settled"), count=3)
            hears_nothing(eve)
            assert WORD not in json.dumps(shot)

    run(work)


# ---------------------------------------------------------------------- files that are in the way


def test_frames_that_cannot_be_cleaned_at_once_are_named_and_purged_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.db"
    session, number = _prepared(path)
    with onefold.open(path) as store:
        with monkeypatch.context() as large:
            large.setattr("onefold.acp.frame_log.WIPE_PAGES", 0)
            done = store.session(session).erase(number)

        assert not done.wiped
        assert [one.startswith(f"{path}.frames: ") for one in done.remains] == [True]
        assert store.purge()
    assert files_with_it(tmp_path) == []


def test_a_reader_of_the_frames_is_named_and_saying_it_again_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.acp.frame_log.WIPE_PATIENCE", 50)
    path = tmp_path / "agent.db"
    session, number = _prepared(path)
    with onefold.open(path) as store:
        with contextlib.closing(apsw.Connection(f"{path}.frames")) as reader:
            reader.execute("begin; select count(*) from pages").fetchall()
            done = store.session(session).erase(number)
        again = store.session(session).erase(number)

    assert (done.wiped, again.wiped) == (False, True)
    assert files_with_it(tmp_path) == []


def test_frames_that_are_damaged_are_named_and_the_journal_is_clean_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    session, number = _prepared(path)
    Path(f"{path}.frames").write_bytes(b"no database, but it has " + WORD.encode())
    for log in ("-wal", "-shm"):
        Path(f"{path}.frames{log}").unlink(missing_ok=True)

    with onefold.open(path) as store:
        done = store.session(session).erase(number)

    assert not done.wiped
    assert [".frames" in one for one in done.remains] == [True]
    assert files_with_it(tmp_path) == ["agent.db.frames"]


def test_copies_that_onefold_left_are_named_and_go_if_somebody_says_so(tmp_path: Path) -> None:
    path = tmp_path / "agent[1].db"
    ours = [tmp_path / f"{path.name}.{end}" for end in ("before-4", "before-5", "part-7f")]
    others = [tmp_path / name for name in ("agent1.db.before-5", "agent[1].db.bak")]
    for copy in (*ours, *others):
        copy.write_text(WORD)
    with onefold.open(path) as store:
        session = store.session("s")
        (number,) = session.append({"role": "user", "content": WORD}).numbers

        named = session.erase(number)
        removed = session.erase(number, remove_copies=True)

    assert (named.wiped, named.remains) == (False, tuple(map(str, ours)))
    assert (removed.wiped, removed.remains) == (True, ())
    assert files_with_it(tmp_path) == sorted(p.name for p in others), "which somebody else made"


def test_on_the_command_line_copies_are_named_before_and_after(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    copy = tmp_path / "agent.db.before-5"
    copy.write_text(WORD)
    with onefold.open(path) as store:
        store.session("s").append({"role": "user", "content": WORD})

    kept_it = cli(tmp_path, "erase", "s", "2", "--yes", "--store", path)
    took_it = cli(tmp_path, "delete", "s", "--yes", "--remove-copies", "--store", path)

    assert "may hold it, and stay without --remove-copies" in kept_it.stdout.replace("\n", " ")
    assert "may still be found in:" in kept_it.stdout
    assert "go whole with it" in took_it.stdout.replace("\n", " ")
    assert "may still be found" not in took_it.stdout
    assert not copy.exists()
