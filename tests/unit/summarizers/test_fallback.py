"""Who is asked if a summarizer fails, and summarizers from a config file."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields

import pytest

import onefold
from onefold import Summary, SummaryInput
from onefold.errors import SummarizerFailed
from onefold.model import Usage
from onefold.summarizers import AnthropicSummarizer, OpenAISummarizer, fallbacks, from_config
from onefold.summarizers.fallback import Fallbacks
from tests.support.helpers import ROOT
from tests.support.model_server import ModelServer, fails, material, says

GOOD = "## Goal\nMend the build.\n\n## Next step\nRun the tests."


def numbered(count: int) -> list[str]:
    return [f"message {n}: {f'word{n} ' * 150}" for n in range(1, count + 1)]


# ---------------------------------------------------------------------- fallbacks


def test_a_fallback_says_whose_the_summary_is_and_who_failed_before() -> None:
    with ModelServer(fails(401, "no")) as first, ModelServer(says("", usage=(5, 6))) as second:
        chain = fallbacks(
            OpenAISummarizer("big", base_url=first.openai),
            AnthropicSummarizer("small", base_url=second.anthropic),
            onefold.extractive_summary,
        )
        made = chain(material(*numbered(4)))

    assert made.by == "extract"
    assert made.text.startswith("- user (#2): message 1")
    assert made.spent == Usage(2, 5, 6)
    assert re.fullmatch(r"big: big at .* rejected the key: .*\(401: no\)", made.instead_of[0])
    assert made.instead_of[1:] == ("small: the summary is empty",)


def test_without_a_failure_no_fallback_is_asked() -> None:
    with ModelServer(says(GOOD)) as server:
        made = fallbacks(OpenAISummarizer("small", base_url=server.openai), onefold.extractive_summary)(
            material(*numbered(4))
        )

    assert (made.text, made.by, made.instead_of) == (GOOD, "small", ())


def test_if_all_fail_the_error_names_all_and_another_try_is_worth_it_if_it_is_for_one() -> None:
    def wrong_key(given: SummaryInput) -> str:
        raise SummarizerFailed("no such key", kind="setup", final=True, spent=Usage(1))

    def busy(given: SummaryInput) -> str:
        raise SummarizerFailed("too much to do", kind="rate limit", retry_after=40.0, spent=Usage(1))

    with pytest.raises(SummarizerFailed) as caught:
        fallbacks(wrong_key, busy)(material("x"))
    with pytest.raises(SummarizerFailed) as final:
        fallbacks(wrong_key, wrong_key)(material("x"))

    assert str(caught.value) == "no summarizer made a summary: wrong_key: no such key; busy: too much to do"
    assert (caught.value.final, caught.value.retry_after, caught.value.spent) == (False, 40.0, Usage(2))
    assert (final.value.final, final.value.retry_after) == (True, None)


def test_what_is_raised_by_any_summarizer_is_a_reason_to_ask_the_next() -> None:
    async def broken(given: SummaryInput) -> str:
        raise LookupError("gone")

    made = fallbacks(broken, lambda given: "a fine summary")(material("word " * 200))

    assert (made.text, made.by, made.instead_of) == ("a fine summary", "<lambda>", ("broken: LookupError: gone",))


def test_a_summary_of_the_last_that_will_not_do_is_left_to_the_checks() -> None:
    made = fallbacks(lambda given: "", lambda given: Summary("", by="b"))(material("x"))

    assert made == Summary("", by="b", instead_of=("<lambda>: the summary is empty",))


def test_no_fallback_is_asked_for_a_summary_that_nobody_wants() -> None:
    asked: list[str] = []

    def stopped(given: SummaryInput) -> str:
        raise SummarizerFailed("nobody waits", kind="stopped", spent=Usage(1, 10, 0))

    def fails_at_once(given: SummaryInput) -> str:
        asked.append("first")
        raise LookupError

    def next_one(given: SummaryInput) -> str:
        asked.append("second")
        return "x"

    for first, given in (
        (stopped, material("x")),
        (fails_at_once, material("x", stopped=lambda: bool(asked))),
    ):
        with pytest.raises(SummarizerFailed) as caught:
            fallbacks(first, next_one)(given)
        assert caught.value.kind == "stopped"
    assert asked == ["first"]


# ---------------------------------------------------------------------- settings


def test_a_summarizer_is_made_from_settings() -> None:
    made = from_config(
        {
            "kind": "openai",
            "model": "small",
            "base_url": "http://localhost:1/v1",
            "api_key_env": "MY_KEY",
            "window": 8_000,
            "timeout": 20,
            "price": [0.5, 2],
            "prune": False,
            "headers": {"x-title": "agent"},
            "body": {"temperature": 0},
        },
        environ={"MY_KEY": "secret\n"},
    )

    assert made == OpenAISummarizer(
        "small",
        base_url="http://localhost:1/v1",
        api_key="secret",
        window=8_000,
        timeout=20.0,
        price=(0.5, 2.0),
        prune=None,
        headers={"x-title": "agent"},
        body={"temperature": 0},
    )
    assert "secret" not in repr(made)


def test_settings_may_name_no_model_and_who_is_asked_next() -> None:
    chain = from_config({"kind": "anthropic", "model": "small", "fallback": ["extract"]}, environ={})
    nested = from_config({"kind": "extract", "fallback": {"kind": "openai", "model": "m"}}, environ={})

    assert from_config({"kind": "extract"}) is onefold.extractive_summary
    assert isinstance(chain, Fallbacks)
    assert isinstance(nested, Fallbacks)
    assert isinstance(chain.summarizers[0], AnthropicSummarizer)
    assert chain.summarizers[1] is onefold.extractive_summary
    assert isinstance(nested.summarizers[1], OpenAISummarizer)


@pytest.mark.parametrize(
    ("table", "says_what"),
    [
        ({}, "kind = None is not a kind of summarizer; kinds are: openai, anthropic, extract"),
        ({"kind": "gpt"}, "kind = 'gpt' is not a kind"),
        ({"kind": "openai"}, 'needs a model: model = "…"'),
        (
            {"kind": "extract", "model": "m"},
            "model: no option of a summarizer of kind 'extract'; there are: kind, fallback",
        ),
        (
            {"kind": "openai", "model": "m", "tiemout": 3},
            "tiemout: no option .* there are: kind, model, api_key_env, base_",
        ),
        ({"kind": "openai", "model": "m", "timeout": "3"}, "timeout = '3' is not a number of seconds"),
        ({"kind": "openai", "model": "m", "window": True}, "window = True is not a whole number"),
        ({"kind": "openai", "model": "m", "price": 3}, "price = 3 is not a price"),
        ({"kind": "openai", "model": "m", "headers": {"a": 1}}, "headers.a = 1 is not text"),
        ({"kind": "openai", "model": "m", "api_key": "k"}, "does not belong into a config file"),
        ({"kind": "openai", "model": "m", "api_key_env": "NOPE"}, "names NOPE, which is not set"),
        ({"kind": "extract", "fallback": 5}, "fallback = 5 is not a table"),
        ({"kind": "extract", "fallback": "gpt"}, "kind = 'gpt' is not a kind"),
    ],
)
def test_settings_that_make_no_sense_are_named(table: dict[str, object], says_what: str) -> None:
    with pytest.raises(SummarizerFailed, match=says_what) as caught:
        from_config(table, environ={})

    assert (caught.value.kind, caught.value.final) == ("setup", True)


def test_a_missing_sdk_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.summarizers.sdk.find_spec", lambda name: None)

    for make, extra in ((OpenAISummarizer, "openai"), (AnthropicSummarizer, "anthropic")):
        with pytest.raises(SummarizerFailed, match=rf"pip install 'onefold\[{extra}\]'"):
            make("m")


# ---------------------------------------------------------------------- the page


PAGE = (ROOT / "docs/how-to/summarizer.md").read_text(encoding="utf-8")


def test_the_settings_on_the_page_are_taken() -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    assert blocks
    for block in blocks:
        from_config(tomllib.loads(block)["summarizer"], environ={"MY_KEY": "k"})


def test_every_option_is_on_the_page_with_its_default() -> None:
    rows = dict(re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", PAGE.split("## A server of your own")[0], re.MULTILINE))
    options = {f.name: f.default for f in fields(OpenAISummarizer) if f.kw_only and f.init}

    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)} | {"api_key", "base_url"}

    assert set(options) == named
    for name in (
        "window",
        "timeout",
        "idle",
        "connect",
        "total",
        "retries",
        "longest_wait",
        "calls",
        "headroom",
        "prune",
    ):
        assert float(rows[f"`{name}`"].replace(",", "")) == options[name]
