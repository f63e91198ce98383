"""What is particular to endpoints that speak as OpenAI does: OpenAI itself, Ollama, vLLM, OpenRouter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import onefold
from onefold.errors import SummarizerFailed
from onefold.model import Usage
from onefold.summarizers import OpenAISummarizer
from tests.support.helpers import converse, quick
from tests.support.model_server import Asked, ModelServer, Reply, breaks, fails, material, raw, says

GOOD = "## Goal\nMend the build.\n\n## Next step\nRun the tests."


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a proxy nor a key of whoever runs the tests."""
    for name in [n for n in os.environ if n.lower().endswith("_proxy") or n.startswith("OPENAI_")]:
        monkeypatch.delenv(name)


def test_a_request_has_the_model_a_limit_and_asks_for_a_stream_and_its_usage() -> None:
    with ModelServer(says(GOOD)) as server:
        OpenAISummarizer("m", base_url=server.openai, body={"temperature": 0}, headers={"x-title": "agent"})(
            material("Mend it.", max_tokens=500)
        )

    sent = server.requests[0]
    assert sent.path == "/v1/chat/completions"
    assert [m["role"] for m in sent.body["messages"]] == ["system", "user"]
    assert {k: v for k, v in sent.body.items() if k != "messages"} == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 4_500,
        "temperature": 0,
    }
    assert sent.headers["x-title"] == "agent"


def test_openai_itself_is_given_the_limit_by_its_newer_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(says(GOOD)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        monkeypatch.setenv("OPENAI_API_KEY", "from-outside")
        OpenAISummarizer("m")(material("Mend it."))

    assert "max_tokens" not in server.requests[0].body
    assert server.requests[0].body["max_completion_tokens"] == 4_400
    assert server.requests[0].headers["authorization"] == "Bearer from-outside"


def test_a_key_in_the_environment_is_not_sent_to_another_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai-only")
    with ModelServer(says(GOOD)) as server:
        OpenAISummarizer("m", base_url=server.openai)(material("Mend it."))

    assert "for-openai-only" not in str(server.requests[0].headers)


def test_options_that_an_endpoint_does_not_know_are_left_out_from_then_on() -> None:
    def picky(asked: Asked) -> Reply:
        for name in ("stream_options", "max_tokens"):
            if name in asked.body:
                return fails(422 if "stream" in name else 400, f"Unknown parameter: '{name}'")
        return says(GOOD)

    with ModelServer(otherwise=picky) as server:
        summarizer = OpenAISummarizer("m", base_url=server.openai)
        first, second = summarizer(material("Mend it.")), summarizer(material("Mend it."))

    assert (first.text, first.spent.calls) == (GOOD, 3)
    assert (second.text, second.spent.calls) == (GOOD, 1)
    assert server.requests[-1].body["max_completion_tokens"] == 4_400


def test_without_usage_what_was_spent_is_estimated() -> None:
    with ModelServer(says(GOOD, usage=None)) as server:
        made = OpenAISummarizer("m", base_url=server.openai, price=(1.0, 2.0))(material("Mend it."))

    assert made.spent.calls == 1
    assert made.spent.input_tokens == pytest.approx(len(server.requests[0].prompt) / 4, rel=0.05)
    assert made.spent.output_tokens == pytest.approx(len(GOOD) / 4, abs=1)
    assert made.spent.cost == pytest.approx((made.spent.input_tokens + 2 * made.spent.output_tokens) / 1e6)


def test_a_refusal_in_the_message_counts_whatever_the_reason_to_stop_is() -> None:
    body = (
        b'data: {"choices": [{"index": 0, "delta": {"refusal": "I will "}, "finish_reason": null}]}\n\n'
        b'data: {"choices": [{"index": 0, "delta": {"refusal": "not."}, "finish_reason": null}]}\n\n'
        b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    )
    with ModelServer(raw(body)) as server, pytest.raises(SummarizerFailed, match=r"refused .*: I will not\.") as caught:
        OpenAISummarizer("m", base_url=server.openai)(material("Mend it."))

    assert caught.value.kind == "refused"


def test_what_a_gateway_passes_on_in_mid_stream_is_sorted_by_its_own_status() -> None:
    with (
        ModelServer(breaks(message="no such model", code="404")) as server,
        pytest.raises(SummarizerFailed, match="check model and base_url") as caught,
    ):
        OpenAISummarizer("m", base_url=server.openai)(material("Mend it."))

    assert (caught.value.final, caught.value.spent.calls) == (True, 1)


def test_a_model_that_thinks_aloud_first_has_its_thoughts_left_out() -> None:
    with ModelServer(says("<think>\nWhat do they want?\n</think>\n\n", GOOD)) as server:
        assert OpenAISummarizer("m", base_url=server.openai)(material("Mend it.")).text == GOOD


def test_no_key_and_an_address_that_is_none_are_said_at_once() -> None:
    for summarizer in (OpenAISummarizer("m"), OpenAISummarizer("m", base_url="localhost:11434/v1")):
        with pytest.raises(SummarizerFailed) as caught:
            summarizer(material("Mend it."))
        assert (caught.value.kind, caught.value.final, caught.value.spent) == ("setup", True, Usage(1))
        assert ("set OPENAI_API_KEY" in str(caught.value)) is (summarizer.base_url is None)


def test_a_password_in_an_address_is_in_no_message() -> None:
    assert OpenAISummarizer("m", base_url="http://me:secret@host:1/v1").who == "m at host:1"


# ---------------------------------------------------------------------- the command


def compact(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ONEFOLD_", "OPENAI_"))}
    return subprocess.run(
        [sys.executable, "-m", "onefold", "compact", "talk", "--store", "agent.db", *words],
        cwd=folder,
        env={**environment, "HOME": str(folder), "ONEFOLD_CONFIG": str(folder / "config.toml"), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with onefold.open(str(tmp_path / "agent.db"), policy=quick()) as store:
        converse(store.session("talk"), 60, words=60)
    return tmp_path


def summary(folder: Path) -> str | None:
    with onefold.open(str(folder / "agent.db")) as store:
        return store.session("talk").context().summary


def test_the_command_asks_the_model_that_the_config_file_names(folder: Path) -> None:
    with ModelServer(says(GOOD)) as server:
        (folder / "config.toml").write_text(
            f'[summarizer]\nkind = "openai"\nmodel = "m"\nbase_url = "{server.openai}"\napi_key_env = "MY_KEY"\n'
        )
        done = compact(folder, "--model", "other", "--instructions", "Be brief.", MY_KEY="the-key")

    assert done.returncode == 0, done.stderr
    assert summary(folder) == GOOD
    assert server.requests[0].body["model"] == "other"
    assert server.requests[0].headers["authorization"] == "Bearer the-key"
    assert "Be brief." in server.requests[0].prompt


def test_the_command_says_what_is_wrong_with_the_settings_and_can_do_without_them(folder: Path) -> None:
    (folder / "config.toml").write_text('[summarizer]\nkind = "openai"\nmodle = "m"\n')

    wrong = compact(folder)
    fine = compact(folder, "--summarizer", "extract")
    (folder / "config.toml").write_text("")
    whose = compact(folder, "--model", "m")

    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "needs a model" in wrong.stderr
    assert fine.returncode == 0, fine.stderr
    assert whose.returncode == 2
    assert "--model needs a provider" in whose.stderr
