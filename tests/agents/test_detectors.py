"""Detectors: what each family of agents says when it compacts, and what only looks so."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from onefold.acp.detectors import (
    COMPACTION_CAPABILITY,
    DetectorState,
    Event,
    Family,
    FromAgent,
    Observation,
    ToAgent,
    as_tool_call,
    asks_to_compact,
    command,
    family,
    see,
    watch,
)
from onefold.acp.detectors.hermes import HermesState
from onefold.acp.detectors.observation import LONGEST_SUMMARY, ChunkedText
from onefold.acp.detectors.quoted_log_lines import MOST
from onefold.acp.line_reader import StderrLine
from onefold.jsonrpc import Frame, request, result
from onefold.model import Json
from tests.support.agent_frames import (
    SESSION,
    answer,
    commands,
    compaction,
    hermes_done,
    hermes_no_summary,
    hermes_rotated,
    hermes_started,
    hermes_turn_ended,
    load,
    loaded,
    prompt,
    provenance,
    qwen,
    says,
    update,
    usage,
    vibe,
    vibe_typed,
)

OTHER = "20310102_030405_abcdef"
THIRD = "20310102_030406_fedcba"
FAMILIES: tuple[Family, ...] = ("hermes", "qwen", "vibe", "opencode", "generic")


def shown(watch: DetectorState, events: Iterable[Event]) -> tuple[DetectorState, list[Observation]]:
    seen: list[Observation] = []
    for event in events:
        watch, more = see(watch, event)
        seen += more
    return watch, seen


def seen(family: Family, *events: Event) -> list[Observation]:
    return shown(watch(family), events)[1]


def whats(observations: Iterable[Observation]) -> list[tuple[str, str]]:
    return [(one.what, one.source) for one in observations]


def tool_call() -> Event:
    return update("tool_call", toolCallId="t", title="read", kind="read", status="pending")


# ---------------------------------------------------------------------- the protocol


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_listened_to_for_the_protocols_own_word(name: Family) -> None:
    told = seen(name, prompt(1, "go on"), compaction("a", "in_progress"), compaction("a", "completed"))

    assert [(o.what, o.source, o.act, o.strength) for o in told] == [
        ("started", "acp", "a", 4),
        ("done", "acp", "a", 4),
    ]
    assert told[0].automatic is True


def test_a_summary_comes_with_the_end_or_in_chunks_before_it() -> None:
    whole = seen("generic", compaction("a", "completed", summary=[{"type": "text", "text": "all of it"}]))
    chunks = seen(
        "generic",
        compaction("a", "in_progress"),
        update("compaction_summary_chunk", compactionId="a", content={"type": "text", "text": "piece "}),
        update("compaction_summary_chunk", compactionId="a", content={"type": "text", "text": "by piece"}),
        compaction("a", "completed"),
    )
    others = seen(
        "generic",
        update("compaction_summary_chunk", compactionId="b", content={"type": "text", "text": "not of a"}),
        compaction("a", "completed"),
    )

    assert [o.summary for o in (whole[-1], chunks[-1], others[-1])] == ["all of it", "piece by piece", None]


def test_a_failed_and_a_cancelled_one_have_failed_and_say_why() -> None:
    told = seen("generic", compaction("a", "failed", error="model overloaded"), compaction("b", "cancelled"))

    assert [(o.what, o.cause) for o in told] == [
        ("failed", "the agent says: model overloaded"),
        ("failed", "the agent says it was cancelled"),
    ]


@pytest.mark.parametrize(
    "odd",
    [
        update("compaction_update"),
        update("compaction_update", compactionId=7, status=["completed"]),
        update("compaction_update", compactionId="a", status="dreaming"),
        update("compaction_summary_chunk", compactionId=None, content="no block"),
        update("agent_message_chunk", content=None, _meta="no object"),
        update("usage_update", used="many", size=None),
        update("available_commands_update", availableCommands={"name": "compact"}),
        update("tool_call", toolCallId=None, _meta={"checkpoint_kind": "compaction"}),
        update("session_info_update", _meta={"hermes": {"sessionProvenance": "x", "reason": "compression"}}),
    ],
)
@pytest.mark.parametrize("name", FAMILIES)
def test_frames_of_odd_shape_are_no_compaction_and_no_error(name: Family, odd: Event) -> None:
    assert seen(name, prompt(1, "go on"), odd, answer(1)) == []


def test_updates_of_another_session_are_not_about_this_one() -> None:
    other = {"sessionUpdate": "compaction_update", "compactionId": "a", "status": "completed"}

    told = seen("generic", prompt(1, "go on"), update(other.pop("sessionUpdate"), session="a subagent's", **other))

    assert told == []


def test_what_is_told_while_a_session_is_loaded_is_marked_as_replayed() -> None:
    told = seen("generic", load(1), compaction("a", "completed"), loaded(1), compaction("b", "completed"))

    assert [(o.act, o.replayed) for o in told] == [("a", True), ("b", False)]


def test_the_capability_is_a_part_of_the_clients_capabilities() -> None:
    assert COMPACTION_CAPABILITY == {"session": {"compaction": {}}}


# ---------------------------------------------------------------------- as a tool call


def updated(event: Event) -> dict[str, Json]:
    assert isinstance(event, FromAgent)
    return event.frame.update


def call_of(event: Event, **how: Json) -> dict[str, Json]:
    call = as_tool_call(updated(event), **how)
    assert call is not None
    return call


def text(event: Event) -> str:
    assert isinstance(event, StderrLine)
    return event.text


def test_a_client_that_knows_no_compactions_is_shown_a_tool_call() -> None:
    begins = call_of(compaction("a", "in_progress"))
    ends = call_of(compaction("a", "completed", summary=[{"type": "text", "text": "the gist"}]))

    assert (begins["sessionUpdate"], begins["status"]) == ("tool_call", "in_progress")
    assert (ends["sessionUpdate"], ends["status"]) == ("tool_call_update", "completed")
    assert begins["toolCallId"] == ends["toolCallId"]
    assert ends["content"] == [{"type": "content", "content": {"type": "text", "text": "the gist"}}]


def test_a_tool_call_has_no_cancelled_and_says_why_it_failed() -> None:
    cancelled = call_of(compaction("a", "cancelled"))
    failed = call_of(compaction("a", "failed", error="model overloaded"))

    assert (cancelled["status"], "content" in cancelled) == ("failed", False)
    assert failed["content"][0]["content"]["text"] == "model overloaded"


def test_one_that_the_client_never_saw_begin_is_shown_as_a_new_call() -> None:
    assert call_of(compaction("a", "completed"), shown=False)["sessionUpdate"] == "tool_call"
    assert call_of(compaction("a", "in_progress"), shown=True)["sessionUpdate"] == "tool_call_update"


def test_chunks_are_shown_with_what_came_before_them_or_not_at_all() -> None:
    chunk = update("compaction_summary_chunk", compactionId="a", content={"type": "text", "text": " two"})

    assert call_of(chunk, before="one")["content"][0]["content"]["text"] == "one two"
    assert as_tool_call(updated(chunk)) is None


def test_other_updates_are_no_compactions() -> None:
    assert as_tool_call(updated(says("hello"))) is None
    assert as_tool_call({"sessionUpdate": "compaction_update", "status": "completed"}) is None


# ---------------------------------------------------------------------- which agent, and how it is asked


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hermes-agent", "hermes"),
        ("qwen-code", "qwen"),
        ("@mistralai/mistral-vibe", "vibe"),
        ("OpenCode", "opencode"),
        ("@agentclientprotocol/codex-acp", "generic"),
    ],
)
def test_an_agent_is_known_by_what_it_calls_itself(name: str, expected: Family) -> None:
    assert family({"agentInfo": {"name": name}}, ["sh", "/opt/opencode/start"]) == expected


@pytest.mark.parametrize(
    ("started", "expected"),
    [
        (["hermes-acp"], "hermes"),
        (["/usr/local/bin/qwen", "--acp"], "qwen"),
        (["npx", "opencode-ai", "acp"], "opencode"),
        (["/home/hermes/bin/other"], "generic"),
        ([], "generic"),
    ],
)
def test_one_that_does_not_say_is_known_by_its_command(started: list[str], expected: Family) -> None:
    assert family({}, started) == expected
    assert family({"agentInfo": None}, started) == expected


@pytest.mark.parametrize(
    ("name", "listed", "expected"),
    [
        ("hermes", (), "/compact"),
        ("qwen", (), "/compress"),
        ("vibe", ("compact", "help"), "/compact"),
        ("opencode", ("init",), "/compact"),
        ("qwen", ("compact",), "/compact"),
        ("hermes", ("help",), None),
        ("generic", (), None),
        ("generic", ("autocompact", "/compact"), "/compact"),
        ("generic", ("compress-fast", "compress"), "/compress"),
    ],
)
def test_each_is_asked_by_its_own_command(name: Family, listed: tuple[str, ...], expected: str | None) -> None:
    watching, _ = shown(watch(name), [commands(*listed)] if listed else [])

    assert command(watching) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [("/compact", ""), (" /compress  keep the paths ", "keep the paths"), ("/compaction", None), ("compact", None)],
)
def test_a_prompt_asks_to_compact_by_its_first_word(said: str, expected: str | None) -> None:
    assert asks_to_compact([{"type": "text", "text": said}]) == expected


# ---------------------------------------------------------------------- Hermes


def test_hermes_log_tells_of_one_in_place() -> None:
    told = seen("hermes", prompt(1, "go on"), hermes_started(), hermes_done(), answer(1))

    assert whats(told) == [("started", "hermes.stderr"), ("done", "hermes.stderr")]
    assert (told[0].automatic, told[1].act, told[1].new, told[1].before, told[1].after) == (
        True,
        None,
        None,
        63359,
        37274,
    )


def test_hermes_gives_the_session_a_new_id_and_tells_it_twice() -> None:
    told = seen(
        "hermes", prompt(1, "go on"), hermes_started(SESSION), hermes_done(OTHER), hermes_rotated(SESSION, OTHER, 1)
    )

    assert whats(told) == [("started", "hermes.stderr"), ("done", "hermes.stderr"), ("done", "hermes.meta")]
    assert told[1].key == told[2].key == f"hermes:{OTHER}"
    assert [(o.old, o.new) for o in told[1:]] == [(SESSION, OTHER)] * 2


def test_hermes_metadata_may_be_faster_than_its_log() -> None:
    told = seen(
        "hermes", prompt(1, "go on"), hermes_rotated(SESSION, OTHER, 1), hermes_started(SESSION), hermes_done(OTHER)
    )

    assert [o.key for o in told if o.what == "done"] == [f"hermes:{OTHER}"] * 2


def test_hermes_metadata_tells_of_a_turn_in_which_the_id_changed_twice() -> None:
    told = seen(
        "hermes", loaded(0, _meta=provenance(SESSION, depth=0)), prompt(1, "go on"), hermes_rotated(SESSION, THIRD, 2)
    )

    assert [(o.what, o.act) for o in told] == [("done", None), ("done", THIRD)]


def test_hermes_title_says_nothing_about_compactions() -> None:
    told = seen(
        "hermes",
        prompt(1, "go on"),
        hermes_rotated(SESSION, OTHER, 1),
        update("session_info_update", title="new", _meta=provenance(SESSION, depth=0)),
        load(2),
        loaded(2, _meta=provenance(OTHER, depth=1)),
    )

    assert whats(told) == [("done", "hermes.meta")]


def test_hermes_that_gave_up_has_failed_with_what_it_logged() -> None:
    told = seen(
        "hermes", prompt(1, "go on"), hermes_started(), hermes_no_summary("Error code: 500"), hermes_turn_ended()
    )

    assert whats(told) == [("started", "hermes.stderr"), ("failed", "hermes.stderr")]
    assert told[1].cause is not None
    assert "Error code: 500" in told[1].cause


@pytest.mark.parametrize(
    "line",
    [
        hermes_done(count=9, left=9, tokens="63,359"),
        StderrLine(
            "2031-01-02 03:04:06 [INFO] agent.conversation_compression: "
            f"Compression made no progress (session={SESSION}) — skipping boundary rewrite."
        ),
        StderrLine(
            "2031-01-02 03:04:06 [WARNING] agent.conversation_compression: compression skipped: another path is "
            f"compressing session={SESSION} (holder=x) — returning messages unchanged to avoid session fork"
        ),
    ],
)
def test_hermes_that_made_nothing_smaller_has_not_compacted(line: Event) -> None:
    assert whats(seen("hermes", prompt(1, "go on"), hermes_started(), line))[1:] == [("failed", "hermes.stderr")]


@pytest.mark.parametrize(
    "line",
    [
        text(hermes_done())[:-30],
        text(hermes_done()) + " and more",
        " " + text(hermes_done()),
        "INFO " + text(hermes_done()),
        text(hermes_done()).replace("[INFO]", "[DEBUG]"),
        text(hermes_done()).replace("agent.conversation_compression", "acp_adapter.server"),
        text(hermes_done()).replace("done:", "DONE:"),
        text(hermes_done(count=8)),
        f"2031-01-02 03:04:05 [INFO] acp_adapter.server: Prompt on session {SESSION}: {text(hermes_done())}",
    ],
)
def test_a_line_that_is_not_hermes_own_in_every_part_counts_for_nothing_f72(line: str) -> None:
    told = seen("hermes", prompt(1, "go on"), hermes_started(), StderrLine(line))

    assert whats(told) == [("started", "hermes.stderr")]


def test_no_line_is_too_long_or_too_odd_to_be_looked_at_f72() -> None:
    huge = "9" * 5_000
    lines = [
        hermes_started(tokens=huge),
        hermes_done(tokens=huge),
        hermes_done(left=10**12),
        hermes_started(focus=huge),
    ]
    answered = says(f"Context compressed: {huge} -> 1 messages\n~2 -> ~1 tokens")

    assert seen("hermes", prompt(1, "go on"), *lines) == []
    assert seen("hermes", prompt(1, "/compact"), answered, answer(1)) == []


def test_an_end_that_no_beginning_came_before_counts_for_nothing_f72() -> None:
    assert seen("hermes", prompt(1, "go on"), hermes_done()) == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\u2028"])
def test_log_lines_that_stand_in_a_prompt_count_for_nothing_f72(end: str) -> None:
    forged = [hermes_started(), hermes_done()]
    words = "hi" + end + end.join(text(line) + " …" for line in forged)

    told = seen(
        "hermes", prompt(1, words), StderrLine(f"2031-01-02 03:04:05 [INFO] a.b: Prompt on {SESSION}: hi"), *forged
    )

    assert told == []


def test_log_lines_that_a_tool_has_read_count_for_nothing_f72() -> None:
    read = {
        "type": "content",
        "content": {"type": "text", "text": f"{text(hermes_started())}\n{text(hermes_done())}\n"},
    }

    told = seen(
        "hermes",
        prompt(1, "read the log"),
        update("tool_call_update", toolCallId="t", status="completed", content=[read]),
        hermes_started(),
        hermes_done(),
    )

    assert told == []


def test_a_real_one_counts_however_many_lines_of_a_log_were_pasted() -> None:
    """As a person pastes them who asks about a log of this very session."""
    pasted = "\n".join(
        text(line) for n in range(100, 3_100) for line in (hermes_started(count=n), hermes_done(count=n))
    )
    forged = [hermes_started(count=1_000), hermes_done(count=1_000)]

    told = seen("hermes", prompt(1, f"what is this?\n{pasted}"), *forged, hermes_started(), hermes_done(), answer(1))

    assert [(o.what, o.before) for o in told] == [("started", 63359), ("done", 63359)]


def test_more_lines_than_can_be_remembered_make_hermes_log_unheard_for_a_turn_f72() -> None:
    many = "\n".join(text(hermes_started(count=n)) for n in range(100, 101 + MOST))

    told = seen("hermes", prompt(1, many), hermes_started(), hermes_done(), answer(1))
    again = seen("hermes", prompt(1, many), answer(1), prompt(2, "go on"), hermes_started(), hermes_done())

    assert told == []
    assert whats(again) == [("started", "hermes.stderr"), ("done", "hermes.stderr")]


def test_a_flood_of_one_line_costs_little_and_stays_bounded() -> None:
    """Sixteen megabytes of marks, which no line is made of."""
    flood = (text(hermes_started())[:60] + "agent.conversation_compression: ") * 180_000

    watching, _ = shown(watch("hermes"), [prompt(1, flood)])

    assert isinstance(watching.own, HermesState)
    assert watching.own.quotes.too_many
    assert sum(map(len, watching.own.quotes.sets)) <= MOST + 1


@given(st.data())
@settings(max_examples=200)
def test_no_line_is_put_together_from_pieces_that_went_over_the_wire(data: st.DataObject) -> None:
    """A prompt in blocks, or an answer in chunks, with frames of other kinds between them; an agent joins them as it
    likes, and its log has them in one line."""
    real = f"{text(hermes_started())}\n{text(hermes_done())}"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(real)), max_size=6)))
    ends = [0, *cuts, len(real)]
    pieces = [real[a:b] for a, b in itertools.pairwise(ends)]
    way = data.draw(st.sampled_from(["blocks", "chunks", "another session"]))
    said: list[Event]
    if way == "blocks":
        blocks = [{"type": "text", "text": piece} for piece in pieces]
        said = [ToAgent(request(1, "session/prompt", {"sessionId": SESSION, "prompt": blocks}))]
    else:
        said = [prompt(1, "go on")]
        for piece in pieces:
            chunk = {"content": {"type": "text", "text": piece}}
            said.append(update("agent_message_chunk", session=SESSION if way == "chunks" else "a subagent's", **chunk))
            said += data.draw(st.sampled_from([[], [usage(7)], [tool_call()]]))

    assert seen("hermes", *said, hermes_started(), hermes_done(), answer(1)) == []


def test_a_line_that_stands_in_what_looks_like_another_is_known_too() -> None:
    inner = text(hermes_started())
    outer = f"2031-01-02 03:04:04 [INFO] agent.conversation_compression: context compression started: session=x{inner}"

    assert seen("hermes", prompt(1, f"hi\n{outer}"), hermes_started(), hermes_done()) == []


def test_a_real_line_is_not_taken_for_one_that_differs_in_its_time_its_numbers_or_its_session() -> None:
    real = text(hermes_started())
    others = [
        real.replace("03:04:05", "03:04:04"),
        text(hermes_started(count=8)),
        text(hermes_started(tokens="63,358")),
        text(hermes_started(OTHER)),
        text(hermes_done()),
    ]

    told = seen("hermes", prompt(1, "\n".join(others)), hermes_started())

    assert whats(told) == [("started", "hermes.stderr")]


def test_a_real_one_counts_in_the_turn_of_a_forged_one_f72() -> None:
    told = seen(
        "hermes",
        prompt(1, f"hi\n{text(hermes_done(tokens='1'))}"),
        hermes_done(tokens="1"),
        hermes_started(),
        hermes_done(tokens="1"),
        hermes_done(),
    )

    assert whats(told) == [("started", "hermes.stderr"), ("done", "hermes.stderr")]
    assert told[1].after == 37274


def test_a_compaction_of_a_subagent_is_not_the_sessions() -> None:
    assert seen("hermes", prompt(1, "go on"), hermes_started(OTHER), hermes_done(OTHER)) == []


def test_hermes_answer_to_its_command_is_a_guess_and_only_where_it_logs_nothing() -> None:
    said = says("Context compressed: 12 -> 4 messages\n~15,175 -> ~13,170 tokens")
    nothing = says("Context compressed: 12 -> 12 messages\n~63,434 -> ~63,434 tokens")

    quiet = seen("hermes", prompt(1, "/compact"), said, answer(1))
    logging = seen("hermes", prompt(1, "/compact"), hermes_started(), hermes_done(), said, answer(1))

    assert [(o.what, o.source, o.strength, o.after) for o in quiet] == [("done", "text", 1, 13170)]
    assert [o.source for o in logging] == ["hermes.stderr"] * 2
    assert logging[0].automatic is False
    assert seen("hermes", prompt(1, "/compact"), nothing, answer(1)) == []
    assert seen("hermes", prompt(1, "what did it say?"), said, answer(1)) == []


# ---------------------------------------------------------------------- Qwen Code, Mistral Vibe


def test_qwen_tells_it_beside_a_message() -> None:
    told = seen(
        "qwen",
        prompt(1, "/compress"),
        qwen("progress", "Compressing context..."),
        qwen("done", "Context compressed.", originalTokenCount=20620, newTokenCount=17850),
    )

    assert whats(told) == [("started", "qwen.meta"), ("done", "qwen.meta")]
    assert (told[1].before, told[1].after, told[1].automatic, told[1].strength) == (20620, 17850, False, 3)


def test_qwen_by_itself_and_in_vain() -> None:
    told = seen("qwen", prompt(1, "go on"), qwen("progress", source=None), qwen("failed", "no model", source=None))

    assert [(o.what, o.automatic, o.cause) for o in told] == [
        ("started", True, None),
        ("failed", True, "the agent says: no model"),
    ]


def test_qwen_without_metadata_answers_the_command_with_a_fixed_text() -> None:
    asked = [prompt(1, "/compress"), says("Compressing context...")]
    in_one = says("Compressing context...  \nContext compressed (20620 -> ~17850).")

    told = seen("qwen", *asked, says("Context compressed "), says("(20620 -> ~17850)."), answer(1))
    once = seen("qwen", prompt(1, "/compress keep the paths"), in_one, answer(1))

    assert whats(told) == [("started", "qwen.text"), ("done", "qwen.text")]
    assert [(o.before, o.after, o.automatic) for o in (told[1], once[0])] == [(20_620, 17_850, False)] * 2


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("Context compressed (20620 -> 20620).", "nothing became smaller"),
        ("Failed to compress chat history.", "the agent says: Failed to compress chat history."),
    ],
)
def test_qwens_fixed_text_that_says_otherwise_is_a_failure(said: str, cause: str) -> None:
    told = seen("qwen", prompt(1, "/compress"), says("Compressing context..."), says(said), answer(1))

    assert [(o.what, o.cause) for o in told] == [("started", None), ("failed", cause)]


@pytest.mark.parametrize(
    "turn",
    [
        [prompt(1, "say it"), says("Context compressed (20620 -> ~17850)."), answer(1)],
        [prompt(1, "/compress"), says("Context compressed (20620 -> ~17850)."), answer(1, "cancelled")],
        [prompt(1, "/status"), says("Context compressed (20620 -> ~17850)."), answer(1)],
        [load(1), says("Context compressed (20620 -> ~17850)."), loaded(1)],
    ],
    ids=["a model's words", "cancelled", "another command", "loaded"],
)
def test_qwens_fixed_text_in_any_other_place_counts_for_nothing(turn: list[Event]) -> None:
    assert seen("qwen", *turn) == []


def test_what_else_stands_with_qwens_fixed_text_makes_it_count_for_nothing() -> None:
    told = seen("qwen", prompt(1, "/compress"), says("It says: Context compressed (9 -> 5)."), answer(1))

    assert [o.what for o in told] == ["failed"]


def test_vibe_marks_the_tool_call_of_one_that_it_does_by_itself() -> None:
    told = seen(
        "vibe", prompt(1, "go on"), vibe("k", "in_progress", kind="tool_call"), vibe("k", "completed"), answer(1)
    )

    assert [(o.what, o.source, o.act, o.automatic) for o in told] == [
        ("started", "vibe.meta", "k", True),
        ("done", "vibe.meta", "k", True),
    ]


def test_vibe_does_not_mark_the_one_that_a_person_typed() -> None:
    told = seen(
        "vibe", prompt(1, "/compact"), vibe_typed("k", "in_progress", kind="tool_call"), vibe_typed("k", "completed")
    )
    unasked = seen(
        "vibe", prompt(1, "go on"), vibe_typed("k", "in_progress", kind="tool_call"), vibe_typed("k", "completed")
    )

    assert [(o.what, o.source, o.automatic) for o in told] == [
        ("started", "vibe.tool", False),
        ("done", "vibe.tool", False),
    ]
    assert unasked == []


# ---------------------------------------------------------------------- guesses


def test_opencodes_answer_to_the_command_is_the_summary() -> None:
    told = seen(
        "opencode",
        prompt(1, "go on"),
        usage(7785),
        answer(1),
        prompt(2, "/compact"),
        says("what ", "m1"),
        says("was", "m1"),
        usage(1142),
        answer(2),
    )

    assert whats(told) == [("started", "text"), ("done", "text")]
    assert (told[1].summary, told[1].before, told[1].after, told[1].automatic) == ("what was", 7785, 1142, False)


@pytest.mark.parametrize(
    "turn",
    [[answer(2)], [says("what was", "m1"), answer(2, "cancelled")], [usage(7785), answer(2)]],
    ids=["no answer", "cancelled", "nothing fell"],
)
def test_a_command_of_which_nothing_is_told_is_no_compaction(turn: list[Event]) -> None:
    told = seen("opencode", prompt(1, "go on"), usage(7785), answer(1), prompt(2, "/compact"), *turn)

    assert whats(told) == [("started", "text")]


@pytest.mark.parametrize(
    ("after", "backed_by"), [((), ()), ((9_100,), ()), ((7_785,), ()), ((7_000,), ("usage",)), ((900,), ("usage",))]
)
def test_a_command_that_ended_well_counts_whatever_usage_does(
    after: tuple[int, ...], backed_by: tuple[str, ...]
) -> None:
    """A summary of a short context may be longer than that was."""
    for name in ("opencode", "generic"):
        told = seen(
            name,
            commands("compact"),
            prompt(1, "hello"),
            usage(7_785),
            answer(1),
            prompt(2, "/compact"),
            says("You said hello, and I did.", "m1"),
            *(usage(used) for used in after),
            answer(2),
        )

        assert whats(told) == [("started", "text"), ("done", "text")]
        assert told[1].backed_by == backed_by


def test_opencodes_second_command_on_a_short_context_counts_too() -> None:
    first = [prompt(2, "/compact"), says("You said hello.", "m2"), usage(1_142), answer(2)]
    second = [prompt(3, "/compact"), says("You said hello, and nothing more.", "m3"), usage(1_160), answer(3)]

    told = seen("opencode", prompt(1, "hello"), says("hi", "m1"), usage(7_762), answer(1), *first, *second)

    assert whats(told) == [("started", "text"), ("done", "text")] * 2


@pytest.mark.parametrize(
    "said",
    [
        "Nothing to compact.",
        "Not enough messages to compact.",
        "Compaction failed: the model is overloaded",
        "Error: no model",
        "There is nothing to summarize yet.",
        "The conversation is too short to be compacted.",
        "Could not compress the context (500)",
        "Compaction was skipped; the context is small.",
        "Compacting...\n\nCompacting failed: overloaded",
        "I can\u2019t compact this conversation.",
    ],
)
def test_an_answer_that_refuses_is_a_failure_with_its_words(said: str) -> None:
    told = seen(
        "generic", commands("compact"), prompt(1, "/compact"), *map(says, said.partition(" ")), usage(99), answer(1)
    )

    assert whats(told) == [("started", "text"), ("failed", "text")]
    assert told[1].cause is not None
    assert told[1].cause.startswith("the agent says: ")


@pytest.mark.parametrize(
    "said",
    [
        "Compacted.",
        "Context compacted: 12 messages became 4.",
        "Compacting...\n\nCompacting completed.",
        "The user asked why a test fails. " * 20 + "It was not compacted before.",
    ],
)
def test_an_answer_that_does_not_refuse_is_none(said: str) -> None:
    assert whats(seen("generic", commands("compact"), prompt(1, "/compact"), says(said), answer(1)))[1:] == [
        ("done", "text")
    ]


def test_usage_that_fell_by_half_speaks_louder_than_words() -> None:
    refused = [prompt(2, "/compact"), says("No changes were made to the files.", "m2")]

    told = seen("opencode", prompt(1, "hello"), usage(7_762), answer(1), *refused, usage(1_142), answer(2))

    assert whats(told)[1:] == [("done", "text")]


def test_where_it_is_unclear_what_came_of_a_command_the_next_usage_tells() -> None:
    silent = [commands("compact"), prompt(1, "go"), usage(90_000), answer(1), prompt(2, "/compact"), answer(2)]

    fell = seen("generic", *silent, prompt(3, "go on"), usage(9_000), answer(3))
    stayed = seen("generic", *silent, prompt(3, "go on"), usage(91_000), answer(3))

    assert whats(fell) == [("started", "text"), ("done", "usage")]
    assert whats(stayed) == [("started", "text")]


# ---------------------------------------------------------------------- token counts in _meta


def quota(id: int, total: int, *, camel: bool = True, models: tuple[str, ...] = ("m",)) -> Event:
    parts = {"totalTokens": total} if camel else {"input_tokens": total - 2, "output_tokens": 2}
    used = {"token_count": parts, "model_usage": [{"model": model, "token_count": parts} for model in models]}
    return FromAgent(result(id, {"stopReason": "end_turn", "_meta": {"quota": used}}))


def spends(total: int) -> Event:
    return says("", _meta={"usage": {"inputTokens": total - 5, "outputTokens": 5, "totalTokens": total}})


def turns_of(*totals: int, camel: bool = True) -> list[Event]:
    turns = [(prompt(id, "go on"), quota(id, total, camel=camel)) for id, total in enumerate(totals, 10)]
    return [event for turn in turns for event in turn]


@pytest.mark.parametrize("camel", [True, False])
def test_token_counts_of_turns_that_fell_are_a_guess(camel: bool) -> None:
    told = seen("generic", *turns_of(22_000, 195_000, 21_000, 22_000, camel=camel))

    assert [(o.what, o.source, o.before, o.after) for o in told] == [("done", "usage.meta", 195_000, 21_000)]


def test_token_counts_of_messages_tell_it_too() -> None:
    turns = [
        event
        for id, total in enumerate((22_000, 195_000, 21_000), 10)
        for event in (prompt(id, "go on"), spends(3 * total), spends(total), answer(id))
    ]

    assert whats(seen("generic", *turns)) == [("done", "usage.meta")]


@pytest.mark.parametrize(
    "events",
    [
        turns_of(22_000, 66_000, 23_000),
        turns_of(195_000, 21_000),
        turns_of(60_000, 195_000, 98_000),
        [usage(22_000), *turns_of(22_000, 195_000, 21_000)],
        [*turns_of(22_000, 195_000), prompt(2, "/clear"), answer(2), *turns_of(21_000)],
        [*turns_of(22_000, 195_000), load(3), spends(21_000), loaded(3), *turns_of(21_000)],
        [*turns_of(22_000, 195_000), prompt(2, "go"), quota(2, 21_000, models=("another",))],
        [*turns_of(22_000), prompt(2, "go"), tool_call(), quota(2, 195_000), *turns_of(21_000)],
        [*turns_of(22_000, 195_000), compaction("a", "completed", replayed=True), *turns_of(21_000)],
    ],
    ids=["called thrice", "too few", "half", "usage_update", "cleared", "loaded", "model", "tools", "reported"],
)
def test_token_counts_that_have_another_reason_to_fall_are_none(events: list[Event]) -> None:
    assert [o for o in seen("generic", *events) if o.source == "usage.meta"] == []


def test_a_command_that_ends_without_a_word_has_compacted_if_its_model_had_to_work() -> None:
    asked = [commands("compact"), prompt(1, "/compact")]

    assert whats(seen("generic", *asked, quota(1, 7_612))) == [("started", "text"), ("done", "text")]
    assert whats(seen("generic", *asked, quota(1, 0))) == [("started", "text")]


@pytest.mark.parametrize(
    ("turn", "summary"),
    [
        ([says("an answer", "m1"), says("the gist", "m2"), says("on I go", "m3")], "the gist"),
        ([says("", "m1"), tool_call(), says("the gist", "m2"), says("next: ", "m3"), tool_call()], "the gist"),
        ([says("the gist", "m1"), says("an answer", "m2")], None),
    ],
    ids=["after an answer", "between tool calls", "before an answer"],
)
def test_a_message_too_many_is_a_compaction_that_opencode_did_by_itself(turn: list[Event], summary: str | None) -> None:
    told = seen("opencode", prompt(1, "go on"), *turn, answer(1))

    assert whats(told) == [("started", "text"), ("done", "text")]
    assert (told[1].summary, told[1].automatic) == (summary, True)


def test_a_turn_that_was_cancelled_at_the_second_message_may_have_no_summary() -> None:
    told = seen("opencode", prompt(1, "go on"), says("an answer", "m1"), says("the gi", "m2"), answer(1, "cancelled"))

    assert whats(told) == [("started", "text")]


def test_messages_with_tool_calls_between_are_an_ordinary_turn() -> None:
    turn = [says("I look", "m1"), tool_call(), says("I look again", "m2"), tool_call(), says("found ", "m3")]

    assert seen("opencode", prompt(1, "go on"), *turn, says("it", "m3"), answer(1), prompt(2, "and?")) == []
    assert (
        seen("opencode", prompt(1, "a"), says("x", "m1"), answer(1), prompt(2, "b"), says("y", "m2"), answer(2)) == []
    )


def test_what_opencode_replays_on_load_is_no_chain_of_messages() -> None:
    assert seen("opencode", load(1), says("a", "m1"), says("b", "m2"), says("c", "m3"), loaded(1)) == []


def test_a_sudden_fall_of_usage_is_the_weakest_guess() -> None:
    told = seen("generic", prompt(1, "go on"), usage(195_001), usage(2_670))

    assert [(o.what, o.source, o.strength, o.before, o.after) for o in told] == [("done", "usage", 1, 195_001, 2_670)]


@pytest.mark.parametrize(
    "events",
    [
        [usage(100_000), usage(50_000)],
        [usage(100_000, 200_000), usage(10_000, 100_000)],
        [usage(100_000), usage(0), usage(99_000)],
        [prompt(2, "/clear"), usage(100_000), usage(1_000), answer(2)],
        [usage(100_000), prompt(2, "/clear"), answer(2), usage(1_000)],
        [usage(100_000), load(3), usage(1_000), loaded(3), usage(1_000)],
    ],
    ids=["half", "another model", "unknown for a while", "in a command", "after a command", "loaded"],
)
def test_a_fall_that_has_another_reason_is_none(events: list[Event]) -> None:
    assert seen("generic", *events) == []


def test_families_that_have_a_better_signal_do_not_guess_by_usage() -> None:
    better: tuple[Family, ...] = ("hermes", "qwen", "vibe")

    for name in better:
        assert seen(name, prompt(1, "go on"), usage(195_001), usage(2_670)) == []


def test_an_unknown_agents_command_counts_only_if_it_has_told_of_it() -> None:
    turn = [prompt(1, "/compact"), says("what was"), answer(1)]

    assert seen("generic", *turn) == []
    assert whats(seen("generic", commands("compact"), *turn)) == [("started", "text"), ("done", "text")]


# ---------------------------------------------------------------------- how it is made


def test_a_watch_is_a_value_and_seeing_changes_nothing_behind_it() -> None:
    before, _ = shown(watch("opencode"), [prompt(1, "/compact"), says("one", "m")])

    first, _ = shown(before, [says(" two", "m")])
    second, _ = shown(before, [says(" three", "m")])

    assert [see(w, answer(1))[1][0].summary for w in (before, first, second)] == ["one", "one two", "one three"]


def test_a_long_text_in_small_chunks_is_cut_off_and_not_copied_for_each() -> None:
    text = ChunkedText()
    for _ in range(LONGEST_SUMMARY // 64 + 10):
        text = text.add("12345678" * 8)

    assert len(str(text)) == LONGEST_SUMMARY
    assert text.add("more") is text


def test_frames_that_are_no_updates_are_taken_as_they_come() -> None:
    update = Frame({"method": "session/update"})
    odd: list[Event] = [
        answer(9),
        ToAgent(result(9, {})),
        ToAgent(update),
        FromAgent(update),
        FromAgent(Frame({})),
        StderrLine(""),
    ]

    for name in FAMILIES:
        assert seen(name, *odd) == []
