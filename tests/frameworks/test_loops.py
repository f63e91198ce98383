"""The loops of people who have no framework, on the plain SDKs of OpenAI and Anthropic. Also a part of `make test`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import onefold
from onefold.messages import codec
from tests.frameworks.environments import FRAMEWORKS, ROOT
from tests.frameworks.trying import every_call_has_its_result, one_line, run_example, said
from tests.support.helpers import Child, at_barrier, quick, say, together
from tests.support.model_server import Asked, Call, ModelServer, Reply, calls, says
from tests.support.pages import run_page

HERE = FRAMEWORKS["loops"]
SMALL = quick(limits=onefold.Limits(1_500, 100, soft=0.6, hard=0.9), tail_tokens=200)
SCRIPT = (
    says("A test needs the network."),
    says("Yes."),
    calls(Call("read", {"path": "build.log"})),
    says("It is test_fetch."),
    says("test_fetch."),
)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(*SCRIPT) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        yield server


@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")  # a model grows old, and the page stays true
@pytest.mark.parametrize("page", HERE.pages)
def test_the_page_is_true(page: str, tmp_path: Path, model: ModelServer) -> None:
    run_page(ROOT / page, tmp_path)

    asked = [m["content"] for m in model.requests[1].messages]
    assert asked[0] == "Why does the build fail?"
    assert asked[2] == "Are you sure?"


@pytest.mark.parametrize("example", HERE.examples)
def test_the_example_runs_offline(example: str, tmp_path: Path) -> None:
    assert "compactions" in run_example(example, tmp_path)


# ---------------------------------------------------------------------- several processes


def openai_loop(path: str, url: str, tag: str, count: int) -> None:
    from openai import OpenAI

    from examples.openai_loop import ask

    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        _loop(path, tag, count, lambda session, compactor, said: ask(client, session, compactor, said))


def anthropic_loop(path: str, url: str, tag: str, count: int) -> None:
    from anthropic import Anthropic

    from examples.anthropic_loop import ask

    with Anthropic(base_url=url, api_key="none") as client:
        _loop(path, tag, count, lambda session, compactor, said: ask(client, session, compactor, said))


def _loop(path: str, tag: str, count: int, ask: Callable[[onefold.Session, onefold.Compactor, str], str]) -> None:
    """A process that runs the loop of an example again and again, and compacts."""
    with onefold.open(path, policy=SMALL) as store:
        session, compactor = store.session("shared"), onefold.Compactor(store)
        at_barrier()
        for n in range(count):
            ask(session, compactor, f"{tag}{n}")
    say("done")


@pytest.mark.parametrize("loop", ["openai_loop", "anthropic_loop"])
def test_two_processes_on_one_session_lose_nothing_and_never_fork(loop: str, tmp_path: Path) -> None:
    path, count, here = str(tmp_path / "a.db"), 4, "tests.frameworks.test_loops"
    numbers = itertools.count()

    def answer(asked: Asked) -> Reply:
        """Reads a log for each question. It is sent no call without its result."""
        format = "anthropic" if loop == "anthropic_loop" else "openai-chat"
        headers = [codec(format).header(message) for message in asked.messages]
        wanted = [id for header in headers for id in header.call_ids]
        assert wanted == [id for header in headers for id in header.result_ids]
        if headers[-1].result_ids:
            return says("Read.", usage=(len(asked.text) // 4, 1))
        return calls(Call("read_log", {"name": "a"}, id=f"call-{next(numbers)}"), usage=(len(asked.text) // 4, 1))

    with (
        ModelServer(otherwise=answer) as server,
        Child(loop, module=here, path=path, url=server.url, tag="a", count=count) as one,
        Child(loop, module=here, path=path, url=server.url, tag="b", count=count) as other,
    ):
        together(one, other)
        one.hear("done")
        other.hear("done")

    with onefold.open(path) as store:
        session = store.session("shared")
        records = said(session)
        assert one_line(session) > 0
        assert len(records) == 2 * count * 4
        every_call_has_its_result(records)
        asked = [r.body["content"] for r in records if r.header and r.header.role == "user"]
        for tag in ("a", "b"):
            assert [a for a in asked if a.startswith(tag)] == [f"{tag}{n}" for n in range(count)]
        assert store.verify().findings == ()
