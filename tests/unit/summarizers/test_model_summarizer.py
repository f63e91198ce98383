"""Summarizers that ask a model, whichever it is: both real SDKs, against a server that does what servers do."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import onefold
from onefold import Summary, SummaryInput
from onefold.compaction.prompt import PromptMessage
from onefold.errors import SummarizerFailed
from onefold.ids import system_clock
from onefold.messages.codecs import estimate
from onefold.model import Fact, LabelEnd, Usage
from onefold.summarizers import AnthropicSummarizer, OpenAISummarizer
from onefold.summarizers.input_reduction import pruned, size, split, squeezed
from onefold.summarizers.model_summarizer import ModelSummarizer
from onefold.summarizers.provider_errors import OVERFLOW
from tests.support.helpers import await_record, converse, quick
from tests.support.model_server import Asked, ModelServer, Reply, breaks, cuts, fails, hangs, material, raw, says

GOOD = "## Goal\nMend the build.\n\n## Next step\nRun the tests."
FACTS = (
    '\n\n```json\n{"facts": [{"message": 2, "kind": "rule", "key": "push", "text": "do not push"}], '
    '"ends": [{"message": 1, "kind": "goal", "key": "release", "by": 2, "text": "leave it"}]}\n```'
)

Make = Callable[..., ModelSummarizer]


@pytest.fixture(params=["openai", "anthropic"])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a summarizer that asks a server; its waits take no time unless a test says so."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)

    def made(server: ModelServer, **options: Any) -> ModelSummarizer:
        options = {"api_key": "the-key", "wait": lambda seconds: None, "idle": 5.0, **options}
        if request.param == "openai":
            return OpenAISummarizer("small", base_url=server.openai, **options)
        return AnthropicSummarizer("small", base_url=server.anthropic, **options)

    return made


def failure(summarizer: ModelSummarizer, given: SummaryInput) -> SummarizerFailed:
    with pytest.raises(SummarizerFailed) as caught:
        summarizer(given)
    return caught.value


# ---------------------------------------------------------------------- one call


def test_a_streamed_answer_becomes_a_summary_with_its_facts_and_what_it_cost(make: Make) -> None:
    with ModelServer(says(*re.findall(r".{1,7}", GOOD + FACTS, re.DOTALL), usage=(2_000_000, 100_000))) as server:
        made = make(server, price=(0.5, 4.0))(material("Mend it, but do not push."))

    assert made.text == GOOD
    assert made.facts == (Fact("rule", "push", "do not push", 2, "model"),)
    assert made.ends == (LabelEnd(1, "goal", "release", 2, "leave it"),)
    assert made.by == "small"
    assert made.spent == Usage(1, 2_000_000, 100_000, 1.4)
    assert not made.cut_off
    assert "the-key" in str(server.requests[0].headers)  # in which header is for the SDK to say


def test_the_model_is_told_the_last_summary_the_ledger_the_wishes_and_every_message(make: Make) -> None:
    ledger = (Fact("rule", "push", "never push to main"),)
    given = material("one fine day", "another day", previous="It began.", instructions="Be brief.", facts=ledger)
    with ModelServer(says(GOOD)) as server:
        make(server)(given)

    told = server.requests[0].prompt
    assert all(t in told for t in ("#2 user: one fine day", "another day", "It began.", "Be brief.", "push to main"))


def test_an_answer_that_ran_out_of_room_says_so(make: Make) -> None:
    with ModelServer(says("## Goal\nMend the", stop="length")) as server:
        made = make(server)(material("Mend it."))

    assert made == Summary("## Goal\nMend the", cut_off=True, by="small", spent=Usage(1, 100, 20))


def test_an_empty_answer_is_left_to_the_checks(make: Make) -> None:
    with ModelServer(says()) as server:
        assert make(server)(material("Mend it.")).text == ""


def test_a_refusal_is_no_summary(make: Make) -> None:
    with ModelServer(says("I would rather not.", stop="refused")) as server:
        failed = failure(make(server), material("Mend it."))

    assert (failed.kind, failed.final, failed.spent) == ("refused", False, Usage(1, 100, 20))
    assert "I would rather not." in str(failed)


def test_text_that_no_utf8_can_carry_does_not_stop_a_summary(make: Make) -> None:
    with ModelServer(says(GOOD)) as server:
        assert make(server)(material("half \ud83d a character", previous="\udc00")).text == GOOD

    assert "half ? a character" in server.requests[0].text


# ---------------------------------------------------------------------- errors, by kind


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (fails(500), "unavailable"),
        (fails(529, "overloaded", code="overloaded_error"), "unavailable"),
        (raw(b"<html>Bad gateway</html>", status=502, content_type="text/html"), "unavailable"),
        (cuts(), "unavailable"),
        (cuts("## Goal"), "unavailable"),
        (says("## Goal", stop=None), "unavailable"),
        (breaks("## Goal"), "unavailable"),
        (fails(429, "Too many tokens, please wait.", code="rate_limit_error"), "rate limit"),
    ],
    ids=["500", "529", "html 502", "cut at once", "cut", "no end", "error in mid stream", "429"],
)
def test_what_may_pass_is_tried_again_and_every_call_is_counted(make: Make, reply: Reply, kind: str) -> None:
    waits: list[float] = []
    with ModelServer(reply, reply, says(GOOD)) as server:
        made = make(server, backoff=(1.0, 4.0), wait=waits.append)(material("Mend it."))
    with ModelServer(otherwise=reply) as always:
        failed = failure(make(always), material("Mend it."))

    assert made.text == GOOD
    assert made.spent.calls == 3
    assert made.spent.input_tokens >= 100
    assert sum(waits) == pytest.approx(5.0)
    assert (failed.kind, failed.final, failed.spent.calls, len(always.requests)) == (kind, False, 3, 3)


def test_what_was_said_before_a_connection_was_cut_is_paid_for(make: Make) -> None:
    with ModelServer(cuts("word " * 40), says(GOOD)) as server:
        made = make(server, price=(1.0, 1.0))(material("Mend it. " * 400))

    assert made.spent.output_tokens == 20 + 50
    assert made.spent.input_tokens >= 100 + 100
    assert made.spent.cost == pytest.approx((made.spent.input_tokens + made.spent.output_tokens) / 1e6)


def test_a_wait_that_the_provider_asks_for_is_kept(make: Make) -> None:
    waits: list[float] = []
    with ModelServer(fails(429, retry_after="7"), fails(429, retry_after_ms="250"), says(GOOD)) as server:
        make(server, wait=waits.append)(material("Mend it."))

    assert sum(waits) == pytest.approx(7.25)
    assert max(waits) <= 0.1


def test_a_wait_that_is_too_long_is_left_to_the_next_attempt(make: Make) -> None:
    with ModelServer(fails(429, "come back later", retry_after="90")) as server:
        failed = failure(make(server), material("Mend it."))

    assert (failed.kind, failed.retry_after, failed.final) == ("rate limit", 90.0, False)
    assert len(server.requests) == 1


def test_a_wait_until_a_date_is_understood(make: Make) -> None:
    with ModelServer(fails(429, retry_after="Fri, 15 Jan 2027 08:02:00 GMT")) as server:
        failed = failure(make(server, clock=lambda: 1_800_000_000.0), material("Mend it."))

    assert failed.retry_after == 120.0


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (fails(401, "no such key: the-key"), "give the right one as api_key"),
        (fails(402, "no credit"), "see to the account"),
        (fails(403, "not yours"), "use another key or another model"),
        (fails(404, "no such model"), "check model and base_url"),
        (fails(400, "temperature is odd"), "does not take the request"),
        (fails(429, "You exceeded your current quota", code="insufficient_quota"), "see to the account"),
    ],
    ids=["401", "402", "403", "404", "400", "no money"],
)
def test_what_will_not_change_by_itself_is_final_and_says_what_to_do(make: Make, reply: Reply, advice: str) -> None:
    with ModelServer(reply) as server:
        failed = failure(make(server), material("Mend it."))

    assert (failed.kind, failed.final, failed.spent) == ("setup", True, Usage(1))
    assert advice in str(failed)
    assert "the-key" not in str(failed)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"<html><h1>Sign in to the hotel's network</h1></html>",
        b"event: message_start\ndata: {broken\n\n",
        b'event: message_start\ndata: {"type": "message_start"}\n\n',
        b'data: {"choices": [{}]}\n\n',
        b'data: ["what", 1]\n\n',
        b"\x00\xff\xfe",
        b"",
    ],
    ids=["html", "broken json", "no message", "no delta", "a list", "bytes", "nothing"],
)
def test_what_is_no_answer_is_named_as_such(make: Make, body: bytes) -> None:
    with ModelServer(raw(body)) as server:
        failed = failure(make(server), material("Mend it."))

    assert (failed.kind, failed.final, failed.spent.calls) == ("garbage", False, 1)


def test_a_server_that_is_not_there_is_tried_again_and_then_given_up(make: Make) -> None:
    with ModelServer() as server:
        gone = make(server)
    failed = failure(gone, material("Mend it."))

    assert (failed.kind, failed.final, failed.spent) == ("unavailable", False, Usage(3))


@pytest.mark.parametrize("reply", [hangs(), hangs("## Goal")], ids=["before it begins", "in mid answer"])
def test_silence_ends_a_call(make: Make, reply: Reply) -> None:
    with ModelServer(reply, otherwise=says(GOOD)) as server:
        made = make(server, idle=0.2, retries=20)(material("Mend it."))

    assert made.text == GOOD
    assert made.spent.calls == len(server.requests) >= 2
    assert made.spent.input_tokens > 100


def test_an_answer_that_never_ends_is_ended(make: Make) -> None:
    with ModelServer(hangs("## Goal")) as server:

        def timer() -> float:
            return 1_000.0 if server.requests else 0.0

        failed = failure(
            make(server, idle=30.0, timeout=600.0, total=2_000.0, retries=0, timer=timer), material("Mend it.")
        )

        assert server.requests[0].left.wait(5)
    assert failed.kind == "timeout"


def test_all_calls_and_waits_together_have_an_end(make: Make) -> None:
    with ModelServer(otherwise=fails(500)) as server:
        failed = failure(make(server, total=30.0, retries=9, backoff=(40.0,), longest_wait=99.0), material("Mend it."))

    assert (failed.kind, len(server.requests)) == ("unavailable", 1)


# ---------------------------------------------------------------------- stopping


@pytest.mark.parametrize("reply", [hangs(), hangs("## Goal", "more")], ids=["before it begins", "in mid answer"])
def test_a_summary_that_nobody_wants_any_more_ends_within_a_moment(make: Make, reply: Reply) -> None:
    unwanted, ended = threading.Event(), threading.Event()
    caught: list[SummarizerFailed] = []
    with ModelServer(reply) as server:
        summarizer = make(server, idle=30.0)

        def work() -> None:
            caught.append(failure(summarizer, material("Mend it.", stopped=unwanted.is_set)))
            ended.set()

        worker = threading.Thread(target=work)
        worker.start()
        asked = server.await_requests(1)
        since = time.monotonic()
        unwanted.set()

        assert ended.wait(5)
        assert time.monotonic() - since < 4
        assert asked.left.wait(5)
        worker.join()
    assert (caught[0].kind, caught[0].spent.calls) == ("stopped", 1)


def test_a_wait_ends_at_once_when_nobody_wants_the_summary(make: Make) -> None:
    waits: list[float] = []
    with ModelServer(fails(429, retry_after="20")) as server:
        given = material("Mend it.", stopped=lambda: len(waits) >= 3)
        failed = failure(make(server, wait=waits.append), given)

    assert (failed.kind, len(waits), len(server.requests)) == ("stopped", 3, 1)


def test_nothing_is_sent_for_a_summary_that_nobody_wants(make: Make) -> None:
    with ModelServer() as server:
        assert failure(make(server), material("Mend it.", stopped=lambda: True)).kind == "stopped"

    assert server.requests == []


# ---------------------------------------------------------------------- input that does not fit


def numbered(count: int, words: int = 150) -> list[str]:
    return [f"message {n}: {f'word{n} ' * words}" for n in range(1, count + 1)]


def model_of(window: int) -> Callable[[Asked], Reply]:
    """A model that takes so many tokens, and answers with which messages it was shown."""

    def reply(asked: Asked) -> Reply:
        if estimate(asked.prompt) > window:
            return fails(400, f"This model's maximum context length is {window} tokens. However, you requested more.")
        shown = re.findall(r"(?:message|saw) (\d+)\b", asked.prompt)
        return says("## State\n" + ", ".join(f"saw {n}" for n in sorted(set(shown), key=int)))

    return reply


def seen(made: Summary) -> list[int]:
    return [int(n) for n in re.findall(r"saw (\d+)", made.text)]


def test_input_that_does_not_fit_is_summarised_in_parts_which_are_put_together_f61(make: Make) -> None:
    ledger = (Fact("rule", "push", "never push to main"),)
    given = material(*numbered(20), previous="saw 0 before", facts=ledger)
    with ModelServer(otherwise=model_of(3_000)) as server:
        made = make(server, window=3_000)(given)

    assert seen(made) == list(range(21))
    assert 4 <= len(server.requests) == made.spent.calls <= 8
    assert "never push to main" in server.requests[-1].prompt
    assert all("never push to main" in r.prompt for r in server.requests), "any part may end it"
    assert all("saw 0 before" not in r.prompt for r in server.requests[:-1])


def test_a_model_that_takes_less_than_was_thought_is_given_less_f61(make: Make) -> None:
    with ModelServer(otherwise=model_of(3_000)) as server:
        made = make(server, window=50_000)(material(*numbered(20)))

    assert seen(made) == list(range(1, 21))
    refused = sum(estimate(r.prompt) > 3_000 for r in server.requests)
    assert 1 <= refused <= 3
    assert made.spent.calls == len(server.requests)


def test_a_request_too_large_for_the_rate_is_split_since_no_wait_would_help_f61(make: Make) -> None:
    too_large = fails(429, "Request too large: Limit 30000, Requested 45000. The tokens must be reduced.")
    with ModelServer(too_large, otherwise=model_of(50_000)) as server:
        made = make(server)(material(*numbered(20)))

    assert seen(made) == list(range(1, 21))
    assert len(server.requests) > 2


def test_one_huge_message_is_split_inside_f61(make: Make) -> None:
    huge = "\n".join(f"message {n}" for n in range(1, 2_000))
    with ModelServer(otherwise=says(GOOD)) as server:
        make(server, window=4_000)(material(huge))

    shown = {int(n) for r in server.requests for n in re.findall(r"message (\d+)", r.prompt)}
    assert shown == set(range(1, 2_000))
    assert all(estimate(r.prompt) <= 4_000 for r in server.requests)


def test_summaries_of_parts_that_do_not_fit_together_are_put_together_in_steps(make: Make) -> None:
    def wordy(asked: Asked) -> Reply:
        return says("## State\n" + "It went on. " * 40)

    with ModelServer(otherwise=wordy) as server:
        made = make(server, window=2_000, calls=60)(material(*numbered(30), max_tokens=200))

    assert made.text.startswith("## State")
    assert all(estimate(r.prompt) <= 2_000 for r in server.requests)


def test_a_provider_that_always_overflows_is_asked_a_few_times_and_no_more_f61(make: Make) -> None:
    with ModelServer(otherwise=fails(400, "prompt is too long: 9 tokens > 8 maximum")) as server:
        failed = failure(make(server), material(*numbered(60)))

    assert (failed.kind, failed.final) == ("overflow", True)
    assert "prompt is too long" in str(failed)
    assert failed.spent == Usage(len(server.requests))
    assert len(server.requests) <= 8


def test_a_summary_takes_no_more_calls_than_it_may(make: Make) -> None:
    with ModelServer(otherwise=model_of(2_000)) as server:
        failed = failure(make(server, window=2_000, calls=5, prune=None), material(*numbered(60)))

    assert (failed.kind, failed.final, len(server.requests)) == ("overflow", True, 0)
    assert "5 are allowed" in str(failed)


def test_a_conversation_too_long_for_the_calls_is_shortened_evenly(make: Make) -> None:
    with ModelServer(otherwise=model_of(2_000)) as server:
        made = make(server, window=2_000, calls=10)(material(*numbered(60, words=300)))

    assert seen(made) == list(range(1, 61))
    assert len(server.requests) <= 10


def test_a_model_that_takes_very_little_gets_a_shortened_conversation_rather_than_none_f61(make: Make) -> None:
    with ModelServer(otherwise=model_of(2_000)) as server:
        made = make(server)(material(*numbered(60, words=300)))

    assert seen(made) == list(range(1, 61))
    assert len(server.requests) <= 32


def test_a_part_of_which_nothing_is_said_is_no_part(make: Make) -> None:
    with ModelServer(otherwise=says()) as server:
        failed = failure(make(server, window=2_000), material(*numbered(20)))

    assert (failed.kind, failed.spent.calls) == ("garbage", 1)


def test_facts_that_parts_found_are_kept_whatever_becomes_of_the_whole(make: Make) -> None:
    with ModelServer(says(GOOD + FACTS), otherwise=says(GOOD)) as server:
        made = make(server, window=2_000)(material(*numbered(20)))

    assert [(f.kind, f.text) for f in made.facts] == [("rule", "do not push")]
    assert [(end.kind, end.text) for end in made.ends] == [("goal", "leave it")]


@pytest.mark.parametrize(
    "words",
    [
        "context_length_exceeded",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "You passed 1015 input tokens and requested 10. However, the model's context length is only 1024.",
        "This gives a maximum input length of 1014 tokens. Please reduce the length of the input prompt.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "the input length exceeds the context length",
        "This endpoint's maximum context length is 65536 tokens. However, you requested about 70000 tokens.",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Please reduce the length of the messages or completion.",
        "Input length (265330) exceeds model's maximum context length (262144).",
        "Input is too long for requested model.",
        "Request too large for small: Limit 30000, Requested 45000. The input or output tokens must be reduced.",
    ],
)
def test_a_prompt_that_does_not_fit_is_recognised_in_whatever_words(words: str) -> None:
    assert OVERFLOW.search(words)


@pytest.mark.parametrize(
    "words",
    [
        "Invalid value for temperature: must be between 0 and 2.",
        "Unknown model: small-context",
        "Rate limit reached for requests per minute. Limit 500, used 500. Please try again in 12s.",
        "max_tokens must be at least 1",
    ],
)
def test_other_errors_are_not_taken_for_a_prompt_that_does_not_fit(words: str) -> None:
    assert not OVERFLOW.search(words)


# ---------------------------------------------------------------------- pruning and redaction


def results(count: int, words: int = 3_000) -> list[Any]:
    return [
        {"role": "tool", "tool_call_id": f"c{n}", "content": f"begin{n} " + "output " * words + f"end{n}"}
        for n in range(1, count + 1)
    ]


def test_old_tool_output_is_sent_by_its_beginning_and_end_and_the_newest_whole(make: Make) -> None:
    said = "keep this " * 3_000
    with ModelServer(otherwise=says(GOOD)) as server:
        make(server)(material(said, *results(5)))
        make(server, prune=None)(material(said, *results(5)))

    short, whole = server.requests[0].prompt, server.requests[1].prompt
    assert all(f"begin{n}" in short and f"end{n}" in short for n in range(1, 6))
    assert len(re.findall(r"\[… [\d,]+ characters left out …\]", short)) == 2
    assert short.count("keep this") == 3_000
    assert short.count("output ") == pytest.approx(3 * 3_000 + 2 * 570, abs=60)
    assert whole.count("output ") == pytest.approx(5 * 3_000, abs=20)


def test_pruning_says_how_much_is_left_out() -> None:
    text = "é" * 5_000
    (made,) = pruned(
        [PromptMessage(2, "tool", text)] + [PromptMessage(n, "tool", "x") for n in (3, 4, 5)], {2, 3, 4, 5}, 100
    )[:1]

    gone = int(re.findall(r"([\d,]+) characters", made.text)[0].replace(",", ""))
    assert made.text.count("é") + gone == 5_000
    assert size([made]) < 130


def test_splitting_and_squeezing_keep_to_their_room() -> None:
    records = [PromptMessage(n, "user", "wörd " * (n * 37)) for n in range(1, 40)]

    parts = split(records, 500)

    assert all(size(part) <= 500 for part in parts)
    assert "".join(r.text for part in parts for r in part) == "".join(r.text for r in records)
    assert size(squeezed(records, 5_000)) <= 5_000 + 39 * 12
    assert squeezed(records, 10**6) == tuple(records)


def test_nothing_leaves_the_process_that_was_not_redacted(make: Make) -> None:
    def redact(text: str) -> str:
        return text.replace("hunter2", "[secret]")

    given = material(
        "my password is hunter2",
        {"role": "tool", "tool_call_id": "c", "content": "x" * 6_001 + "hunter2" + "y" * 6_000},
        *numbered(12),
        previous="It was hunter2.",
        instructions="Leave out hunter2.",
        facts=(Fact("identifier", "hunter2", "the key is hunter2"),),
    )
    with ModelServer(otherwise=says(f"## Goal\nhunter2{FACTS.replace('do not push', 'not hunter2')}")) as server:
        make(server, redact=redact, window=3_000)(given)

    assert len(server.requests) > 2
    assert [r.text for r in server.requests if "hunter2" in r.text] == []
    assert "[secret]" in server.requests[0].text
    assert "[secret]" in server.requests[-1].text


def test_nothing_is_sent_if_it_cannot_be_redacted(make: Make) -> None:
    def redact(text: str) -> str:
        raise LookupError("no list of secrets")

    with ModelServer() as server:
        failed = failure(make(server, redact=redact), material("Mend it."))

    assert (failed.kind, failed.final, server.requests) == ("setup", True, [])
    assert "no list of secrets" in str(failed)


# ---------------------------------------------------------------------- in a session


def test_failures_are_recorded_with_their_cost_and_the_next_attempt_succeeds(make: Make) -> None:
    replies = (cuts("## Go"), says("## Go", stop="length"), says("No.", stop="refused"), fails(503), says(GOOD))
    with ModelServer(*replies) as server, onefold.open("memory:", policy=quick(attempts=5, quote_tokens=0)) as store:
        session = store.session("s")
        converse(session, 30)

        done = session.compact(make(server, retries=0, price=(1.0, 1.0)))

        assert (done.state, done.applied) == ("committed", True)
        assert session.context().summary == GOOD
        failed = [r.body for r in session.read() if r.kind == "compaction.failed"]
        assert [re.sub(r" at \S+| *: peer .*", "", f["cause"]) for f in failed] == [
            "small could not be reached, or the connection was cut",
            "the summary was cut off before its end",
            "small refused to write the summary: No.",
            "small is not available now (503: no)",
        ]
        assert [f["spent"]["calls"] for f in failed] == [1, 1, 1, 1]
        spent = session.compactions()[0].spent
        assert spent.calls == 5
        assert spent.input_tokens > 3 * 100
        assert spent.cost == pytest.approx((spent.input_tokens + spent.output_tokens) / 1e6)


def test_a_key_that_is_wrong_ends_the_compaction_at_once(make: Make) -> None:
    policy = quick(quote_tokens=0)
    with ModelServer(fails(401, "wrong"), says(GOOD)) as server, onefold.open("memory:", policy=policy) as store:
        session = store.session("s")
        converse(session, 30)

        failed = session.compact(make(server))
        mended = session.compact(make(server))

    assert (failed.state, failed.changed) == ("failed", False)
    assert "give the right one as api_key" in str(failed.cause)
    assert mended.applied


def test_a_provider_that_wants_to_be_left_alone_is_and_a_restart_does_not_change_that(make: Make) -> None:
    with ModelServer(fails(429, retry_after="90")) as server, onefold.open("memory:", policy=quick()) as store:
        session = store.session("s")
        converse(session, 30)
        session.compact(make(server), wait=False)

        failed = await_record(session, "compaction.failed")

        assert failed.body["retry_after"] == 90.0
        assert session.compactions()[0].waits(system_clock() + 80)
        assert len(server.requests) == 1


def test_a_compaction_that_is_cancelled_ends_the_call_of_the_model(make: Make) -> None:
    with ModelServer(hangs("## Goal")) as server, onefold.open("memory:", policy=quick()) as store:
        session = store.session("s")
        converse(session, 30)
        session.compact(make(server), wait=False)
        asked = server.await_requests(1)
        session.cancel()

        assert asked.left.wait(10)
        assert session.compactions()[-1].state == "cancelled"
