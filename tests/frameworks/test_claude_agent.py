"""OnefoldSessionStore under the Claude Agent SDK: its own conformance tests, and the real Claude Code, offline."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    Message,
    MirrorErrorMessage,
    ResultMessage,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    query,
)
from claude_agent_sdk.testing import run_session_store_conformance

import onefold
from onefold.integrations.claude_agent import OnefoldSessionStore, session_id
from onefold.messages.result_mask import masked
from onefold.model import Json
from tests.real.model import DirectedModel
from tests.real.outside import Outside
from tests.support.helpers import Child, at_barrier, restless, say
from tests.support.pages import run_page

ROOT = Path(__file__).parent.parent.parent
KEY: Any = {"project_key": "proj", "session_id": "sess"}
SUBAGENT: Any = {**KEY, "subpath": "subagents/agent-1"}
IN_JOURNAL = "proj/sess"


def line(n: int, **more: Json) -> Any:
    return {"type": "user", "uuid": f"u{n}", "message": {"role": "user", "content": f"text {n}"}, **more}


def run(story: Callable[[OnefoldSessionStore], Awaitable[None]], store: OnefoldSessionStore) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await story(store)

    asyncio.run(bounded())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def store(path: Path) -> Iterator[onefold.Store]:
    with onefold.open(path) as opened:
        yield opened


# ---------------------------------------------------------------------- the contract


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_the_sdk_s_own_conformance_tests_pass_whole(tmp_path: Path, kind: str) -> None:
    made: list[onefold.Store] = []

    def make() -> OnefoldSessionStore:
        made.append(onefold.open("memory:" if kind == "memory" else tmp_path / f"{len(made)}.db"))
        return OnefoldSessionStore(made[-1])

    asyncio.run(run_session_store_conformance(make))

    assert len(made) > 10
    for store in made:
        assert store.verify().healthy
        store.close()


def test_what_is_loaded_equals_what_was_written(store: onefold.Store) -> None:
    lines: list[Any] = [
        line(1, big=2**70, lone="\ud800", nothing=None, deep={"a": [{"b": []}]}),
        {"type": "mode", "mode": "normal"},
        {"type": "mode", "mode": "normal"},
        {"type": "assistant", "uuid": "u2", "message": {"role": "?", "content": 5}},
    ]

    async def story(kept: OnefoldSessionStore) -> None:
        await kept.append(KEY, lines)
        assert await kept.load(KEY) == lines

    run(story, OnefoldSessionStore(store))


def test_results_are_masked_by_claude_code_alone_and_lines_come_back_whole(path: Path) -> None:
    """What is loaded is what Claude Code resumes from: nothing in it is rendered, so nothing rendered comes back."""
    call = {"type": "tool_use", "id": "c1", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "word " * 100}
    lines: list[Any] = [
        line(1),
        {"type": "assistant", "uuid": "u2", "message": {"role": "assistant", "content": [call]}},
        {"type": "user", "uuid": "u3", "message": {"role": "user", "content": [result]}},
    ]

    async def story() -> None:
        with onefold.open(path) as store:
            await OnefoldSessionStore(store).append(KEY, lines)
            with pytest.raises(onefold.OnefoldError, match="nothing is masked"):
                store.session(IN_JOURNAL).mask(*[r.number for r in store.session(IN_JOURNAL).read()])
        with onefold.open(path) as store:
            kept = OnefoldSessionStore(store)
            loaded = await kept.load(KEY)
            assert loaded == lines
            shown: Any = masked("claude-code", lines[2], 4)
            await kept.append(KEY, [*lines[:2], shown, shown | {"uuid": "u4"}])
            assert await kept.load(KEY) == lines

    asyncio.run(story())


def test_a_batch_that_comes_again_is_written_once_and_lines_without_a_uuid_as_often_as_they_come(
    store: onefold.Store,
) -> None:
    async def story(kept: OnefoldSessionStore) -> None:
        await kept.append(KEY, [line(1), line(2)])
        await kept.append(KEY, [line(2), line(3)])
        await kept.append(KEY, [line(1), line(2), line(3)])
        await kept.append(KEY, [{"type": "tag"}])
        await kept.append(KEY, [{"type": "tag"}])
        assert await kept.load(KEY) == [line(1), line(2), line(3), {"type": "tag"}, {"type": "tag"}]

    run(story, OnefoldSessionStore(store))


def test_an_answer_that_is_lost_writes_nothing_twice(store: onefold.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store cannot tell whether it wrote: it is asked again, and lines without a uuid are known too."""
    backend = store.journal.backend
    write = type(backend).write
    lost: list[tuple[int, ...]] = []

    def forgetful(self: Any, session: str, work: Any, **options: Any) -> Any:
        done = write(self, session, work, **options)
        if type(done) is tuple and not lost:
            lost.append(done)
            raise onefold.OutcomeUnknown("the disk answers nothing; repeat with the same key")
        return done

    async def story(kept: OnefoldSessionStore) -> None:
        await kept.append(KEY, [line(1), {"type": "tag"}])
        assert await kept.load(KEY) == [line(1), {"type": "tag"}]

    monkeypatch.setattr(type(backend), "write", forgetful)
    run(story, OnefoldSessionStore(store))

    assert lost


def test_a_deleted_session_stays_deleted_however_late_a_batch_comes(store: onefold.Store) -> None:
    async def story(kept: OnefoldSessionStore) -> None:
        await kept.append(KEY, [line(1)])
        await kept.append(SUBAGENT, [line(2)])
        await kept.delete(KEY)
        for key in (KEY, SUBAGENT):
            with pytest.raises(onefold.SessionNotFound, match="was deleted"):
                await kept.append(key, [line(3)])
            assert await kept.load(key) is None

    run(story, OnefoldSessionStore(store))

    assert [*store.sessions()] == []


def test_names_with_slashes_are_not_taken_for_others(store: onefold.Store) -> None:
    async def story(kept: OnefoldSessionStore) -> None:
        odd: Any = {"project_key": "proj/sess", "session_id": "a%/b"}
        below: Any = {**odd, "subpath": "x/y"}
        await kept.append(KEY, [line(1)])
        await kept.append(odd, [line(2)])
        await kept.append(below, [line(3)])
        assert [s["session_id"] for s in await kept.list_sessions("proj/sess")] == ["a%/b"]
        assert [s["session_id"] for s in await kept.list_sessions("proj")] == ["sess"]
        assert await kept.list_subkeys(odd) == ["x/y"]
        assert await kept.load(KEY) == [line(1)]

    run(story, OnefoldSessionStore(store))


def test_all_transcripts_are_listed_while_each_of_them_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{n:02}" for n in range(8)]
    monkeypatch.setattr("onefold.store._PAGE", 2)
    memory = onefold.open("memory:")
    walk = memory.walk
    monkeypatch.setattr(memory, "walk", lambda after="", page=0: walk(after, page=2))

    async def story(kept: OnefoldSessionStore) -> None:
        for name in names:
            below: Any = {**KEY, "subpath": name}
            await kept.append({"project_key": "proj", "session_id": name}, [line(1)])
            await kept.append(below, [line(2)])
        ids = [*(f"proj/{name}" for name in names), *(f"proj/sess/{name}" for name in names)]
        with restless(memory, ids):
            sessions = await kept.list_sessions("proj")
            subkeys = await kept.list_subkeys({"project_key": "proj", "session_id": "sess"})
        assert sorted(s["session_id"] for s in sessions) == names
        assert sorted(subkeys) == names
        await kept.append(KEY, [line(3)])
        await kept.delete(KEY)
        assert [s.id for s in memory.walk()] == [f"proj/{name}" for name in names]

    with memory:
        run(story, OnefoldSessionStore(memory))


def test_a_transcript_that_is_deleted_while_they_are_listed_is_left_out(
    store: onefold.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = store.walk

    def and_deletes(after: str, page: int) -> Iterator[onefold.SessionState]:
        states = [*walk(after, page=page)]
        store.delete("proj/a")
        yield from states

    async def story(kept: OnefoldSessionStore) -> None:
        for name in "ab":
            await kept.append({"project_key": "proj", "session_id": name}, [line(1)])
        monkeypatch.setattr(store, "walk", and_deletes)
        assert [s["session_id"] for s in await kept.list_session_summaries("proj")] == ["b"]

    run(story, OnefoldSessionStore(store))


def test_the_sdk_s_helpers_read_what_is_kept(store: onefold.Store) -> None:
    session, directory = "3b0f8c1e-58a1-4b77-9d63-0d6b7b9f1c11", "/proj"

    async def story(kept: OnefoldSessionStore) -> None:
        key: Any = {"project_key": "-proj", "session_id": session}
        made = [line(n, sessionId=session, parentUuid=f"u{n - 1}" if n > 1 else None) for n in (1, 2, 3)]
        await kept.append(key, made)
        messages = await get_session_messages_from_store(kept, session, directory=directory)
        assert [m.message["content"] for m in messages] == ["text 1", "text 2", "text 3"]
        (listed,) = await list_sessions_from_store(kept, directory=directory)
        assert (listed.session_id, listed.first_prompt) == (session, "text 1")
        forked = await fork_session_via_store(kept, session, directory=directory)
        assert len(await list_sessions_from_store(kept, directory=directory)) == 2
        assert await kept.load({"project_key": "-proj", "session_id": forked.session_id}) is not None

    run(story, OnefoldSessionStore(store))


def test_a_compaction_of_claude_code_s_own_is_one_segment(store: onefold.Store) -> None:
    boundary: Any = {"type": "system", "subtype": "compact_boundary", "uuid": "b1", "content": "Conversation compacted"}
    told = line(3, isCompactSummary=True)

    async def story(kept: OnefoldSessionStore) -> None:
        await kept.append(KEY, [line(1), line(2)])
        await kept.append(KEY, [boundary, told])
        await kept.append(KEY, [boundary, told])

    run(story, OnefoldSessionStore(store))

    session = store.session(IN_JOURNAL)
    (_, opened) = session.segments()
    assert (opened.source, opened.keeper, opened.cut) == ("observed", "agent", 1)
    assert session.state.messages == 4
    with pytest.raises(onefold.CompactionDisabled):
        session.compact(onefold.extractive_summary)


def test_what_the_provider_compacted_for_claude_code_is_kept_as_it_is_and_told_to_everybody(
    store: onefold.Store,
) -> None:
    block = {"type": "compaction", "content": "A garden is planned. The shed stays.", "encrypted_content": "b3BhcXVl"}
    answer = {"role": "assistant", "content": [block, {"type": "text", "text": "It stays."}]}
    lines: list[Any] = [line(1), {"type": "assistant", "uuid": "u2", "message": answer}, line(3)]
    them = onefold.Origin("anthropic", model="claude-opus-5-5")

    async def story(kept: OnefoldSessionStore) -> None:
        await kept.append(KEY, lines)
        assert await kept.load(KEY) == lines, "Claude Code gets its own lines back, whatever is in them"

    run(story, OnefoldSessionStore(store))

    session = store.session(IN_JOURNAL)
    first, item, _ = [r.number for r in session.read() if r.kind == "message"]
    assert "The shed stays." in str(session.context().to("openai-chat"))
    with pytest.raises(onefold.OnefoldError, match="compacted by its agent, which keeps what its provider made"):
        session.adopt(item, origin=them, covers=[first])
    session.set_compaction_owner("onefold")  # somebody else goes on with it
    session.adopt(item, origin=them, covers=[first])
    native = session.context(origin=them)
    assert (native.item, native.to("claude-code")[0]) == ((item,), lines[1])
    plain = session.context()
    assert plain.summary == block["content"]
    assert [m["content"][0]["text"] for m in plain.to("anthropic")[1:]] == ["It stays.", "text 3"]


def test_a_store_that_is_away_says_so_and_nothing_is_written(store: onefold.Store) -> None:
    async def story(kept: OnefoldSessionStore) -> None:
        await kept.append(KEY, [line(1)])
        store.close()
        with pytest.raises(onefold.StoreError):
            await kept.append(KEY, [line(2)])

    run(story, OnefoldSessionStore(store))


# ---------------------------------------------------------------------- two processes


def mirror(path: str, name: str, rounds: int) -> None:
    """What each of two processes does: batches of its own, at the same time as the other's, each sent twice."""

    async def story(kept: OnefoldSessionStore) -> None:
        for n in range(rounds):
            await asyncio.to_thread(at_barrier)
            batch = [line(i, uuid=f"{name}-{n}-{i}") for i in range(10)]
            await kept.append(KEY, batch)
            await kept.append(KEY, batch)

    with onefold.open(path) as opened:
        run(story, OnefoldSessionStore(opened))
    say("done")


def test_two_processes_in_one_session_lose_nothing_and_tear_no_batch(path: Path, store: onefold.Store) -> None:
    rounds, names = 5, ("anna", "berta")
    children = [Child("mirror", module=__name__, path=str(path), name=n, rounds=rounds) for n in names]
    with children[0], children[1]:
        for _ in range(rounds):
            for child in children:
                child.hear("ready")
            for child in children:
                child.say("go")
        for child in children:
            child.hear("done")

    loaded = asyncio.run(OnefoldSessionStore(store).load(KEY)) or []
    written = [entry["uuid"] for entry in loaded]
    assert len(written) == len({*written}) == 2 * rounds * 10
    for at in range(0, len(written), 10):
        batch = written[at].rpartition("-")[0]
        assert written[at : at + 10] == [f"{batch}-{i}" for i in range(10)]
    for name in names:
        assert [u for u in written if u.startswith(name)] == [
            f"{name}-{n}-{i}" for n in range(rounds) for i in range(10)
        ]
    assert store.verify().healthy


# ---------------------------------------------------------------------- the real Claude Code


def environment(home: Path, model: DirectedModel, outside: Outside) -> dict[str, str]:
    """A home of its own, a model on this machine, and a proxy that lets nothing out."""
    return {
        **outside.environment,
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "ANTHROPIC_BASE_URL": model.anthropic,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_MODEL": "claude-sonnet-4-5",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "IS_SANDBOX": "1",
    }


async def ask(prompt: str, how: Any) -> tuple[list[Message], str]:
    said = [message async for message in query(prompt=prompt, options=how)]
    (result,) = [m for m in said if isinstance(m, ResultMessage)]
    assert not result.is_error, result
    return said, result.session_id


@pytest.mark.timeout(120)
def test_claude_code_goes_on_from_the_journal_in_another_home_and_its_compaction_is_seen(
    tmp_path: Path, store: onefold.Store
) -> None:
    """Each run has a home of its own: all that one can know of another comes from the store."""

    async def story(kept: OnefoldSessionStore) -> None:
        with Outside() as outside, DirectedModel() as model:

            async def at(home: str, prompt: str, **more: Any) -> str:
                (tmp_path / home / "work").mkdir(parents=True, exist_ok=True)
                how = ClaudeAgentOptions(
                    cwd=tmp_path / "one" / "work",
                    env=environment(tmp_path / home, model, outside),
                    session_store=kept,
                    setting_sources=[],
                    permission_mode="bypassPermissions",
                    **more,
                )
                return (await ask(prompt, how))[1]

            session = await at("one", 'Look. [[tool:Bash {"command": "echo found"}]] [[say:done]]')
            again = await at("two", "And then? [[say:second]]", resume=session)
            assert again == session
            asked = [m for m in model.requests[-1].messages if m["role"] != "system"]
            assert "Look." in str(asked[0])
            assert any("tool_result" in str(m) for m in asked)

            await at("three", "/compact", resume=session)
            await at("four", "Go on. [[say:third]]", resume=session)
            assert "Look. [[tool" not in str(model.requests[-1].messages)

    run(story, OnefoldSessionStore(store))

    (main,) = [s for s in store.sessions() if s.id.count("/") == 1]
    session = store.session(main.id)
    assert [s.source for s in session.segments()] == ["created", "observed"]
    uuids = [r.body["uuid"] for r in session.read() if r.kind == "message" and "uuid" in r.body]
    assert len(uuids) == len({*uuids}) > 10
    roles = [r.header.role for r in session.read() if r.header]
    assert {"user", "assistant", "tool", "other"} <= {*roles}
    assert store.verify().healthy


@pytest.mark.timeout(120)
def test_claude_code_goes_on_without_a_store_that_is_away_and_the_sdk_says_so(
    tmp_path: Path, store: onefold.Store
) -> None:
    async def story(kept: OnefoldSessionStore) -> None:
        store.close()
        with Outside() as outside, DirectedModel() as model:
            how = ClaudeAgentOptions(
                cwd=tmp_path, env=environment(tmp_path, model, outside), session_store=kept, setting_sources=[]
            )
            said, _ = await ask("Look. [[say:done]]", how)
        assert any(isinstance(m, MirrorErrorMessage) for m in said)

    run(story, OnefoldSessionStore(store))


# ---------------------------------------------------------------------- what is shown to people


def test_the_id_of_a_session_is_its_project_and_its_own() -> None:
    assert session_id({"project_key": "-home-anna", "session_id": "x"}) == "-home-anna/x"
    assert session_id({"project_key": "a/b", "session_id": "x", "subpath": "s/1"}) == "a%2Fb/x/s%2F1"


@pytest.mark.timeout(120)
def test_the_page_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Outside() as outside, DirectedModel() as model:
        for name, value in environment(tmp_path, model, outside).items():
            monkeypatch.setenv(name, value)

        run_page(ROOT / "docs/how-to/claude-agent.md", tmp_path)


def test_the_example_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples/claude_agent.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "in the journal" in done.stdout
