"""What is wrong with a summary, by name, before it may replace anything (F60, F63, F42)."""

from __future__ import annotations

import time
from collections.abc import Iterable

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from onefold import Summary
from onefold.compaction import prompt
from onefold.compaction.summarizer import SummaryInput, extractive_summary
from onefold.compaction.summary_checks import find_problem
from onefold.messages.codecs import estimate
from onefold.model import Header, Record, Usage


def about(text: str, *, cut_off: bool = False, previous: str | None = None, replaces: int = 10_000) -> str | None:
    refusal = find_problem(Summary(text, cut_off=cut_off), previous=previous, replaces=replaces, shrink=0.1)
    return None if refusal is None else refusal.words


@pytest.mark.parametrize("text", ["", "   ", "\n\t\n", "\u2003"])
def test_an_empty_summary_is_refused_f60(text: str) -> None:
    assert about(text) == "the summary is empty"


def test_a_summary_that_its_maker_calls_cut_off_is_refused_f60() -> None:
    assert about("The user asked for", cut_off=True) == "the summary was cut off before its end"


def test_a_summary_that_ends_inside_a_code_block_is_refused_f60() -> None:
    assert about("It ran:\n```\nmake test") == "the summary was cut off inside a code block"
    assert about("It ran:\n```\nmake test\n```\nand passed.") is None


@pytest.mark.parametrize(
    "text",
    [
        "Error",
        "ERROR!",
        "Error: the context is too long",
        "error (429)",
        "Error 429",
        "Internal Server Error",
        "Internal server error: try again",
        "**Error:** upstream",
        "RateLimitError: slow down",
        "openai.BadRequestError: Error code: 400",
        "ValueError('x')",
        "Exception: boom",
        "Traceback (most recent call last):\n  File ...",
        "HTTP 500",
        "HTTP/1.1 503 Service Unavailable",
        "status=502",
        "Error code: 400 - {'error': {'message': 'x'}}",
        "429 Too Many Requests",
        "503 Service Unavailable",
        "502 Bad Gateway",
        "504 Gateway Timeout",
        "Service Unavailable",
        "Rate limit exceeded, please retry",
        "Rate limit reached for requests",
        '{"error": {"type": "overloaded_error", "message": "Overloaded"}}',
        '{"type": "error", "error": {"type": "overloaded_error"}}',
        '{"error":"no credit"}',
        '{"message": "Forbidden"}',
    ],
)
def test_an_error_text_is_no_summary_f60(text: str) -> None:
    assert str(about(text)).startswith("the summary is an error text: ")


@pytest.mark.parametrize(
    "text",
    [
        "Error handling in parser.py was rewritten; the tests pass.",
        "Errors in the build were fixed by pinning the compiler.",
        "The user asked why the server answers with Error: 500. It was a missing header.",
        "Rate limit handling was added to the client, with a test.",
        "500 files were renamed; the build is green.",
        "Exceptions are now raised instead of returned.",
        "Status: the work is done; 3 tests remain.",
        "Code review found two problems, both fixed.",
        "Message queue and worker now share one connection.",
    ],
)
def test_a_summary_that_speaks_of_errors_is_fine(text: str) -> None:
    assert about(text) is None


def test_a_long_summary_may_begin_with_the_word() -> None:
    assert about("Error: 500 is what the user saw first. " + "Then the cause was found. " * 40) is None


@pytest.mark.parametrize("again", ["All is well.", "  all is\n\nWELL.  ", "ALL IS WELL."])
def test_the_same_summary_as_the_one_before_is_refused_f63(again: str) -> None:
    assert about(again, previous="All is well.") == "the summary is the same as the one before"
    assert about(again, previous="All was well.") is None


def test_a_summary_that_is_not_smaller_enough_is_no_progress_f42() -> None:
    assert str(about("x" * 4000, replaces=1000)).startswith("no progress: a summary of 1000 tokens for 1000")
    assert str(about("x" * 3604, replaces=1000)).startswith("no progress")
    assert about("x" * 3600, replaces=1000) is None


def named(
    text: str,
    *,
    previous: str | None = None,
    said: Iterable[str] | None = None,
    limit: int | None = None,
    calls: int = 1,
    by: str | None = "a model",
) -> str | None:
    made = Summary(text, by=by, spent=Usage(calls=calls))
    refusal = find_problem(made, previous=previous, replaces=1_000_000, shrink=0.1, said=said, limit=limit)
    return None if refusal is None else refusal.name


GOOD = {
    "prose": "The user wanted the importer to accept CSV files with a header. It does now, with tests.",
    "starts with the word error": "Error handling was moved from the views into one middleware; all 41 tests pass.",
    "starts with exception": "Exceptions from the worker now reach the caller. The retry loop was removed.",
    "starts with sorry": "Sorry-pages for outages were designed: a static 503 page, served by the proxy.",
    "first person": "I can't reach the staging host from this machine, so the user runs the migration by hand. Until "
    "then, I wait with the second pull request.",
    "as an aid": "As an aid for new people, a glossary was added to the docs (docs/glossary.md, 31 terms).",
    "speaks of a refusal": "The user asked for a scraper of a site that forbids it. The agent said \"I'm sorry, but I "
    "can't help with that\", and proposed the official API, which was then used.",
    "headings": "## Goal\nShip the billing export.\n\n## State\n- CSV writer done (`out/csv.py`)\n- 12 tests pass\n\n"
    "## Open work\n- XLSX writer\n\n## Next step\nThe agent was about to add openpyxl to the extras.",
    "ends with an item": "Decisions:\n- PostgreSQL 16, for its replication\n- no ORM\n- migrations as SQL files",
    "ends with an address": "The upstream bug is reported, and a fix is merged: https://example.org/project/pull/4412",
    "ends with a path": "The only file that is still to be changed is src/server/handlers/upload.py",
    "ends with a command": "To see the failure again: `pytest tests/test_sync.py -k late`",
    "ends with a code block": "The agreed signature:\n\n```python\ndef load(path: str) -> Config: ...\n```",
    "code in an item": "1. The config is now:\n   ```toml\n   [tool.x]\n   y = 1\n   ```\n2. The old file was removed.",
    "a fence within a longer fence": "The README shows it:\n````markdown\n```sh\nmake\n```\n````\nThat renders well.",
    "mentions a fence": "The parser lost everything after ``` in a line; a regression test was added.",
    "tilde fences": "Output was:\n~~~\n3 passed\n~~~",
    "table": "| file | state |\n| --- | --- |\n| a.py | done |\n| b.py | open |",
    "ends with a rule": "The release 2.4.0 was tagged and published.\n\n---",
    "ends with a number": "The cap that the user set for the monthly bill is 1200",
    "ends with a heading's answer": "Next step\n=========\nNone; the user said goodbye",
    "german": "Der Nutzer wollte die Rechnungen nach Datum sortiert haben; das ist erledigt. Offen ist noch der Export "
    "als PDF, für den die Bibliothek ausgesucht wurde (weasyprint).",
    "french": "L'utilisateur a demandé une page d'accueil en deux langues. La version française est en ligne, il "
    "reste la version anglaise, et le lien dans le pied de page.",
    "spanish": "El usuario pidió que no se tocara la base de producción; esa regla sigue vigente. La copia de prueba "
    "está lista en /srv/copia.",
    "chinese": "用户要求把登录页面改成两步验证。后端已完成\uff0c测试全部通过。前端还差错误提示。不要推送到 main 分支。",
    "japanese": "ユーザーは請求書の一覧を日付順にしたいと言った。並べ替えは完了し、テストも通った。"
    "残りはPDF出力である。",
    "russian": "Пользователь просил ускорить поиск. Индекс добавлен, запрос выполняется за 12 мс. Осталось обновить "
    "документацию и удалить старый код.",
    "arabic": "طلب المستخدم إضافة البحث إلى الصفحة الرئيسية، وقد تم ذلك. بقي اختبار الأداء.",
    "one line": "Done: renamed the package to `ledgerline`; nothing open.",
    "bold labels": "**Goal:** faster CI. **State:** from 14 to 6 minutes, by caching wheels. **Rule in force:** never "
    "skip the security scan. **Next:** split the integration job.",
    "json in the middle": 'The endpoint answers with\n```json\n{"error": {"code": 409}}\n```\nfor a name in use; '
    "the client shows it as a hint.",
    "long with error first": "Error: 500 was what the user reported. "
    + "Each cause was looked at and written down. " * 20,
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_good_summaries_of_many_styles_pass(text: str) -> None:
    said = ["Something else was talked about, at some length, and in other words than these.", "Yes."]

    assert named(text) is None
    assert named(text, previous="Nothing happened yet.", said=said, limit=estimate(text)) is None


@pytest.mark.parametrize(
    "text",
    [
        "The user asked for three things, two of which are done,",
        "The parser was rewritten and",
        "It was decided to use the",
        "The files that changed are (",
        "The agent was about to imple-",
        "Nothing was pushed —",
        "Open work:\n- the XLSX writer\n-",
        "Der Nutzer wollte das nicht, weil",
        "后端已完成\uff0c",
        "It ran:\n```\nmake test\n\nThe rest was fine.",
        "It ran:\n````\nmake test\n```",
        "It ran:\n```\nmake test\n~~~",
    ],
)
def test_a_summary_that_ends_in_mid_sentence_or_in_code_is_refused_f60(text: str) -> None:
    assert named(text) == "cut off"


def test_a_sentence_without_an_end_counts_as_cut_off_only_when_the_room_was_used_up_f60() -> None:
    text = "The user wanted the importer to accept CSV files with a header and the agent then sta"

    assert named(text, limit=estimate(text)) == "cut off"
    assert named(text, limit=estimate(text) + 1) is None
    assert named(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I\u2019m sorry, but I can\u2019t assist with that request.",
        "I am sorry, I cannot summarize this conversation.",
        "Sorry, I can't do that.",
        "I apologize, but I'm unable to process this content.",
        "Unfortunately, I am not able to fulfil this request.",
        "I cannot provide a summary of this conversation.",
        "I can't comply with this.",
        "I won't help with this.",
        "As an AI language model, I do not have access to earlier messages.",
        "I don't see any conversation to summarize.",
        "Could you please provide the conversation you would like summarized?",
        "Please share the transcript and I will summarise it.",
        "There is nothing to summarize.",
        "**I'm sorry, but I can't help with that.**",
        "Es tut mir leid, aber ich kann dabei nicht helfen.",
        "Je suis désolé, mais je ne peux pas vous aider.",
        "Lo siento, pero no puedo ayudar con eso.",
        "抱歉\uff0c我无法帮助您完成这个请求。",
        "申し訳ありませんが、その依頼にはお応えできません。",
    ],
)
def test_a_refusal_is_no_summary_f60(text: str) -> None:
    assert named(text) == "refusal"


def asking() -> prompt.Prompt:
    material = SummaryInput("s", "Before.", (), "Be brief.", 500, 2, refused="no progress: too long")
    return prompt.asked(material, nonce="n0nce", records=[prompt.PromptMessage(4, "user", "Hello.")])


def test_the_prompt_given_back_is_an_echo() -> None:
    given = asking()

    assert named(given.system) == "echo"
    assert named(given.user) == "echo"
    assert named(f"{given.system}\n\n{given.user}") == "echo"
    assert named(given.system.partition("\n\n")[0]) == "echo"


@pytest.mark.parametrize("part", prompt.CONSTANT, ids=range(len(prompt.CONSTANT)))
def test_each_part_of_the_prompt_given_back_is_an_echo(part: str) -> None:
    assert named(part) == "echo"


def test_a_summary_that_begins_with_the_instructions_is_an_echo_however_it_goes_on() -> None:
    opening = prompt.CONSTANT[0]

    assert named(opening + " " + GOOD["headings"] * 10) == "echo"
    assert named(GOOD["headings"] + " The user quoted this: " + opening + " " + GOOD["german"]) is None


CHAT = [
    "Please look at the importer: it refuses files with a header, and the error says nothing about which line is bad.",
    "I read importer.py. The header is parsed as data, so the first number fails. I would skip a row without numbers.",
    "Good, do that. But do not touch the exporter, it is being rewritten by somebody else this week.",
]


def test_a_model_that_copies_the_messages_out_is_an_echo() -> None:
    assert named("\n".join(CHAT), said=CHAT) == "echo"
    assert named("\n".join(f"#{n} user: {text}" for n, text in enumerate(CHAT)), said=CHAT) == "echo"
    assert named(CHAT[0].upper() + CHAT[1], said=CHAT) == "echo"
    assert named("\n".join(CHAT), said=["Other words."]) is None
    assert named("\n".join(CHAT)) is None


def test_a_summary_that_quotes_a_rule_is_no_echo() -> None:
    text = (
        f'The importer skips a header now and names the line. Rule in force: "{CHAT[2]}" The tests pass, and the change'
        " is on the branch header-row; the user wants to see it before it is merged."
    )

    assert named(text, said=CHAT) is None


def test_a_method_without_a_model_may_give_messages_as_they_are() -> None:
    records = tuple(
        Record(n, str(n), "message", 0.0, text, "json", Header("user", 9)) for n, text in enumerate(CHAT, 1)
    )
    made = extractive_summary(SummaryInput("s", None, records, None, 4000, 1))

    assert find_problem(made, previous=None, replaces=100_000, shrink=0.1, said=CHAT) is None
    assert named(made.text, said=CHAT, calls=3, by="extract") is None
    assert named("\n".join(CHAT), said=CHAT, calls=0) is None


@pytest.mark.parametrize("end", ["and then,", "see (", "```\nmake", "this is how it is done by the"])
def test_a_message_in_mid_sentence_is_no_fault_of_the_method_that_quotes_it(end: str) -> None:
    record = Record(2, "2", "message", 0.0, end, "json", Header("user", 9))

    made = extractive_summary(SummaryInput("s", f"Before:\n```\n{'x' * 400}\n```", (record,), None, 100, 1))

    assert find_problem(made, previous=None, replaces=100_000, shrink=0.1, said=[end], limit=1) is None


LONG = " ".join(
    f"In step {n} the {thing} was looked at, its {part} was changed, and the tests for it pass."
    for n, (thing, part) in enumerate(
        [("parser", "loop"), ("writer", "buffer"), ("cache", "key"), ("client", "timeout"), ("server", "log")] * 3
    )
)
NEWS = ["The exporter is finished, I think that it is. All of its tests are green, and Anna reviewed it."]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LONG, "equal"),
        (LONG.upper().replace(". ", ".\n\n* "), "only its form is new"),
        (LONG.replace("In step 7 the", "In step 7, that"), "only a filler is new"),
        (LONG.replace("the tests for it pass", "the tests for it succeed", 2), "only a synonym is new"),
        (LONG.replace("In step 14 the server was looked at, ", ""), "only something is missing"),
    ],
    ids=lambda v: v[:30] if isinstance(v, str) else v,
)
def test_a_summary_that_is_almost_the_last_one_with_nothing_new_is_refused_f63(text: str, why: str) -> None:
    assert named(text, previous=LONG, said=NEWS) == "same", why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LONG + " The exporter is finished.", "one more fact"),
        (LONG + " Der Export ist fertig.", "one more fact, in another language than the messages"),
        (LONG.replace("the tests for it pass.", "the exporter passes.", 1), "a word from the messages"),
        (LONG.replace("In step 7", "In step 77"), "another number"),
        (LONG.replace("server", "worker").replace("log", "queue"), "a fifth is about something else"),
        (". ".join(reversed(LONG.split(". "))), "another order"),
        ("Everything was checked, and the exporter is finished.", "much shorter"),
    ],
    ids=lambda v: v[-30:] if isinstance(v, str) else v,
)
def test_an_honest_update_of_a_long_summary_passes_f63(text: str, why: str) -> None:
    assert named(text, previous=LONG, said=NEWS) is None, why


def test_one_item_that_moved_from_open_to_done_is_an_update() -> None:
    items = [f"- item {n} of the list, as the user wrote it down" for n in range(40)]
    before = "\n".join(["Done:", *items[:20], "Open:", *items[20:]])
    after = "\n".join(["Done:", *items[:21], "Open:", *items[21:]])

    assert named(after, previous=before, said=NEWS) is None


def test_without_the_messages_any_new_word_counts_as_new() -> None:
    assert named(LONG.replace("pass.", "succeed.", 1), previous=LONG) is None
    assert named(LONG.replace("In step 14 the server was looked at, ", ""), previous=LONG) == "same"


ANYTHING = st.text(st.characters(codec=None)) | st.lists(
    st.sampled_from(
        ["```", "~~~", "\n", " ", "- ", "I'm sorry", "error", ":", "(", ",", "的", "\ud800", "\x00", "word", "7"]
    )
).map("".join)


@given(ANYTHING, st.none() | ANYTHING, st.none() | st.lists(ANYTHING), st.none() | st.integers(0, 50), st.booleans())
@settings(max_examples=300)
def test_a_check_says_something_of_any_text(
    text: str, previous: str | None, said: list[str] | None, limit: int | None, model: bool
) -> None:
    made = Summary(text, spent=Usage(calls=int(model)))

    found = find_problem(made, previous=previous, replaces=10_000, shrink=0.1, said=said, limit=limit)

    assert found is None or (found.name and found.words)


MIB = 1 << 20


@pytest.mark.parametrize(
    "unit",
    [
        "x",
        " ",
        "a ",
        "`",
        "```\n",
        "~~~a\n",
        "-",
        "(",
        ",",
        "I'm sorry ",
        "error",
        "Error: ",
        "的",
        "x\n",
        "\n",
        "- a\n",
        "a-",
        "é ",
    ],
)
def test_a_mebibyte_is_checked_in_linear_time(unit: str) -> None:
    text = (unit * MIB)[:MIB]

    def taken(text: str) -> float:
        begun = time.process_time()
        named(text + ".", previous=text, said=[text], limit=10)
        return time.process_time() - begun

    sixteenth = taken(text[: MIB // 16])
    assert taken(text) < max(0.5, 16 * 6 * sixteenth)


@given(st.text(st.characters(codec=None)), st.integers(0, 100), st.floats(0, 1))
@settings(max_examples=200)
def test_whatever_passes_is_smaller_than_what_it_replaces(text: str, replaces: int, shrink: float) -> None:
    found = find_problem(Summary(text), previous=None, replaces=replaces, shrink=shrink)

    assert found is not None or 0 < estimate(text.strip()) <= replaces * (1 - shrink)
