"""Correlation: several detectors, in any order and however often, and exactly the compactions there were."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from onefold.acp.compaction_correlator import (
    BOUND,
    BY_ITSELF,
    GRACE,
    CompactionBegan,
    CompactionCorrelator,
    CompactionFailed,
    CompactionFinished,
    Outcome,
)
from onefold.acp.detectors import STRENGTHS, Event, Family, Observation, StderrLine, ToAgent, see, watch
from onefold.acp.detectors.observation import What
from onefold.describe import CONFIDENCE
from onefold.model import MANUAL
from tests.support.agent_frames import (
    SESSION,
    answer,
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
    says,
    usage,
    vibe,
    vibe_typed,
)

OTHER = "20310102_030405_abcdef"
THIRD = "20310102_030406_fedcba"
NOON = 1_000.0


def joiner(**known: Iterable[str]) -> CompactionCorrelator:
    numbers = itertools.count(1)
    return CompactionCorrelator(lambda: f"c{next(numbers)}", **known)


def in_turn(**known: Iterable[str]) -> CompactionCorrelator:
    joining = joiner(**known)
    joining.turn_started()
    return joining


def saw(what: What, source: str, act: str | None = None, **more: object) -> Observation:
    return replace(Observation(what, source, f"{source} {what}", act=act), **more)  # type: ignore[arg-type]


def all_of(joining: CompactionCorrelator, *observations: Observation) -> list[Outcome]:
    return [outcome for one in observations for outcome in joining.observed(one, NOON)]


def text(event: Event) -> str:
    assert isinstance(event, StderrLine)
    return event.text


def finished(outcomes: Iterable[Outcome]) -> list[CompactionFinished]:
    return [one for one in outcomes if isinstance(one, CompactionFinished)]


def kinds(outcomes: Iterable[Outcome]) -> list[str]:
    return [type(one).__name__ for one in outcomes]


def told(family: Family, *events: Event, joining: CompactionCorrelator | None = None) -> list[Outcome]:
    """A whole conversation, as a room would show it."""
    watching, joining = watch(family), joining or joiner()
    outcomes: list[Outcome] = []
    for event in events:
        running = watching.traffic.running
        if isinstance(event, ToAgent) and event.frame.method == "session/prompt":
            joining.turn_started()
        watching, seen = see(watching, event)
        for one in seen:
            outcomes += joining.observed(one, NOON)
        if running and not watching.traffic.running:
            outcomes += joining.turn_settled(NOON)
    return outcomes + joining.tick(NOON + GRACE)


# ---------------------------------------------------------------------- one act


def test_a_beginning_and_an_end_are_one_compaction() -> None:
    begun, done = all_of(in_turn(), saw("started", "acp", "a", automatic=True), saw("done", "acp", "a", summary="gist"))

    assert begun == CompactionBegan("c1", BY_ITSELF, "acp")
    assert isinstance(done, CompactionFinished)
    assert (done.id, done.source, done.signals, done.key, done.summary) == ("c1", "acp", ("acp",), "acp:a", "gist")
    assert done.confidence == "high"


def test_an_end_alone_counts_if_it_is_told_well_enough() -> None:
    assert kinds(all_of(in_turn(), saw("done", "acp", "a"))) == ["CompactionFinished"]
    assert kinds(all_of(in_turn(), saw("done", "hermes.meta", "a"))) == ["CompactionFinished"]
    assert kinds(all_of(in_turn(), saw("done", "usage"))) == ["CompactionFinished"]
    assert kinds(all_of(in_turn(), saw("done", "hermes.stderr"))) == []


def test_completed_twice_is_once_f71() -> None:
    outcomes = all_of(in_turn(), saw("started", "acp", "a"), *[saw("done", "acp", "a")] * 3, saw("started", "acp", "a"))

    assert kinds(outcomes) == ["CompactionBegan", "CompactionFinished"]


def test_completed_twice_is_once_in_later_turns_and_after_a_restart_f71() -> None:
    joining = in_turn()
    (done,) = finished(all_of(joining, saw("done", "acp", "a")))
    joining.turn_settled(NOON)
    joining.turn_started()

    assert all_of(joining, saw("started", "acp", "a"), saw("done", "acp", "a")) == []
    assert done.key is not None
    assert all_of(in_turn(remembered=[done.key]), saw("started", "acp", "a"), saw("done", "acp", "a")) == []


def test_a_guess_is_marked_as_one() -> None:
    (done,) = finished(all_of(in_turn(), saw("done", "usage", before=9, after=2)))

    assert (done.confidence, done.source, done.before, done.after) == ("low", "usage", 9, 2)


def test_two_guesses_of_different_kinds_that_agree_are_more_than_one() -> None:
    (answered,) = finished(all_of(in_turn(), saw("done", "text", backed_by=("usage",))))
    (fell,) = finished(all_of(in_turn(), saw("started", "text"), saw("done", "usage")))
    (alone,) = finished(all_of(in_turn(), saw("started", "usage"), saw("done", "usage.meta")))

    assert [one.confidence for one in (answered, fell, alone)] == ["medium", "medium", "low"]
    assert answered.signals == ("text", "usage")


@pytest.mark.parametrize("source", sorted(STRENGTHS))
def test_of_each_source_it_is_known_how_sure_it_is(source: str) -> None:
    assert source in CONFIDENCE


def test_a_segment_begins_where_the_end_was_first_seen_f73() -> None:
    joining = in_turn(sources=["acp"])
    joining.observed(saw("started", "acp", "a"), NOON, 10)
    joining.observed(saw("done", "usage"), NOON, 12)

    (done,) = finished(joining.observed(saw("done", "acp", "a"), NOON, 15))

    assert (done.mark, done.signals) == (12, ("acp", "usage"))


def test_who_asked_is_told_by_the_detector_or_else_by_the_room() -> None:
    asked, silent = in_turn(), in_turn()
    asked.asked()

    outcomes = all_of(
        asked, saw("started", "acp", "a"), saw("done", "acp", "a"), saw("done", "acp", "b", automatic=True)
    )

    assert [one.trigger for one in outcomes if not isinstance(one, CompactionFailed)] == [MANUAL, MANUAL, BY_ITSELF]
    assert finished(all_of(silent, saw("done", "acp", "a")))[0].trigger == BY_ITSELF


# ---------------------------------------------------------------------- many detectors


ORDERS = list(
    itertools.permutations(
        [
            (saw("started", "hermes.stderr", old="A"), saw("done", "hermes.stderr", "B", old="A", new="B")),
            (saw("done", "hermes.meta", "B", old="A", new="B"),),
            (saw("done", "usage"),),
        ]
    )
)


@pytest.mark.parametrize("order", ORDERS)
def test_a_rotation_is_one_act_whoever_tells_it_first_f71(order: tuple[tuple[Observation, ...], ...]) -> None:
    done = finished(all_of(in_turn(), *itertools.chain.from_iterable(order)))

    assert len(done) == 1


def test_a_rotation_names_both_ids_of_the_session() -> None:
    (done,) = finished(told("hermes", prompt(1, "go"), hermes_started(SESSION), hermes_done(OTHER), answer(1)))

    assert (done.aliases, done.key, done.source) == ((SESSION, OTHER), f"hermes:{OTHER}", "hermes.stderr")


def test_a_stronger_kind_silences_the_weaker_from_then_on_f71() -> None:
    joining = in_turn()
    all_of(joining, saw("started", "acp", "a"), saw("done", "acp", "a"))
    joining.turn_settled(NOON)
    joining.turn_started()

    outcomes = all_of(
        joining,
        saw("done", "usage"),
        saw("started", "hermes.stderr"),
        saw("done", "hermes.stderr"),
        saw("failed", "hermes.stderr"),
        saw("done", "vibe.meta", "k"),
    )

    assert outcomes == []


def test_the_silence_outlives_a_restart() -> None:
    assert all_of(in_turn(sources=["usage", "acp", "gone"]), saw("done", "usage"), saw("done", "text")) == []


def test_what_reports_one_sort_of_compactions_silences_nobody_about_the_other() -> None:
    """An agent that says by the protocol what it does by itself, and in words what it is asked for."""
    by_itself = [saw("started", "acp", "a", automatic=True), saw("done", "acp", "a")]
    asked = [saw("started", "text", automatic=False), saw("done", "text", automatic=False)]

    joining = in_turn()
    turns = [all_of(joining, *by_itself)]
    for said in (asked, [saw("done", "usage")], asked):
        joining.turn_settled(NOON)
        joining.turn_started()
        turns.append(all_of(joining, *said))

    assert [len(finished(one)) for one in turns] == [1, 1, 0, 1]
    again = in_turn(sources=["acp"], asked=["text"])
    assert (len(finished(all_of(again, saw("done", "usage")))), len(finished(all_of(again, *asked)))) == (0, 1)


def test_who_has_told_of_what_was_asked_for_silences_the_guesses_about_that() -> None:
    asked = [saw("started", "text", automatic=False), saw("done", "text", automatic=False)]

    assert all_of(in_turn(asked=["acp"]), *asked) == []
    assert len(finished(all_of(in_turn(asked=["acp"]), saw("done", "usage")))) == 1


def test_a_silenced_detector_ends_and_fails_nothing_and_is_named_all_the_same() -> None:
    joining = in_turn()

    outcomes = all_of(
        joining,
        saw("started", "acp", "a"),
        saw("done", "usage"),
        saw("failed", "hermes.stderr"),
        saw("done", "acp", "a"),
    )

    assert kinds(outcomes) == ["CompactionBegan", "CompactionFinished"]
    assert finished(outcomes)[0].signals == ("acp", "usage")


def test_hermes_log_is_heard_beside_its_metadata_which_does_not_tell_all() -> None:
    turn = [prompt(1, "go"), hermes_started(SESSION), hermes_done(OTHER), hermes_rotated(SESSION, OTHER, 1), answer(1)]
    typed = [prompt(2, "/compact"), hermes_started(OTHER), hermes_done(OTHER), answer(2)]

    done = finished(told("hermes", *turn, *typed))

    assert [(one.trigger, one.source) for one in done] == [(BY_ITSELF, "hermes.stderr"), (MANUAL, "hermes.stderr")]


def test_a_late_and_weaker_word_about_a_finished_act_adds_none_f71() -> None:
    joining = in_turn()

    outcomes = all_of(
        joining, saw("done", "acp", "a"), saw("done", "usage"), saw("started", "text"), saw("done", "text")
    )
    outcomes += joining.turn_settled(NOON)
    outcomes += joining.observed(saw("done", "usage"), NOON)

    assert kinds(outcomes) == ["CompactionFinished"]


def test_two_in_one_turn_are_two() -> None:
    assert len(finished(all_of(in_turn(), saw("done", "acp", "a"), saw("done", "acp", "b")))) == 2
    assert len(finished(all_of(in_turn(), saw("done", "usage"), saw("done", "usage")))) == 2
    assert len(finished(all_of(in_turn(), saw("done", "vibe.tool", "a"), saw("done", "vibe.meta", "b")))) == 2


@pytest.mark.parametrize("fast", ["log", "metadata"])
def test_two_rotations_in_one_turn_are_two_though_the_metadata_comes_once(fast: str) -> None:
    log = [hermes_started(SESSION), hermes_done(OTHER), hermes_started(OTHER), hermes_done(THIRD)]
    events = [*log, hermes_rotated(SESSION, THIRD, 2)] if fast == "log" else [hermes_rotated(SESSION, THIRD, 2), *log]

    outcomes = told("hermes", loaded(0, _meta=provenance(SESSION)), prompt(1, "go"), *events, answer(1))

    assert [one.key for one in finished(outcomes)][-1] == f"hermes:{THIRD}"
    assert (len(finished(outcomes)), kinds(outcomes).count("CompactionFailed")) == (2, 0)


def test_a_guess_made_before_the_protocol_spoke_is_the_same_act() -> None:
    outcomes = all_of(in_turn(), saw("done", "usage"), *[saw("started", "acp", "a"), saw("done", "acp", "a")] * 2)

    assert kinds(outcomes) == ["CompactionFinished"]


# ---------------------------------------------------------------------- replays


def test_a_replay_on_load_is_none() -> None:
    replay = [load(2), compaction("a", "completed"), compaction("b", "in_progress"), compaction("b", "completed")]

    assert told("generic", *replay, loaded(2)) == []


def test_what_was_replayed_is_known_when_it_is_told_again() -> None:
    joining = in_turn()
    joining.replay_began()
    all_of(joining, saw("started", "acp", "a"), saw("done", "acp", "a"), saw("done", "vibe.meta", "k", replayed=True))
    joining.replay_ended()

    assert all_of(joining, saw("done", "acp", "a"), saw("done", "vibe.meta", "k")) == []
    assert kinds(all_of(joining, saw("done", "acp", "b"))) == ["CompactionFinished"]


def test_a_replay_shows_which_detector_the_agent_has() -> None:
    joining = in_turn()

    assert all_of(joining, saw("done", "acp", "a", replayed=True), saw("done", "usage")) == []


# ---------------------------------------------------------------------- beginnings without an end


def test_a_turn_that_settles_ends_what_it_began_f40() -> None:
    joining = in_turn()
    all_of(joining, saw("started", "acp", "a"))

    (failed,) = joining.turn_settled(NOON)

    assert (failed, joining.open) == (CompactionFailed("c1", "the turn ended without the end of it"), None)
    assert joining.turn_settled(NOON) == []


def test_lines_of_stderr_may_come_a_little_after_their_turn_f40() -> None:
    in_time, too_late = in_turn(), in_turn()
    for joining in (in_time, too_late):
        all_of(joining, saw("started", "hermes.stderr"))
        assert joining.turn_settled(NOON) == []
        assert joining.due == NOON + GRACE

    assert kinds(in_time.observed(saw("done", "hermes.stderr"), NOON + 1)) == ["CompactionFinished"]
    assert too_late.tick(NOON + GRACE - 0.1) == []
    assert kinds(too_late.tick(NOON + GRACE)) == ["CompactionFailed"]
    assert too_late.observed(saw("done", "hermes.stderr"), NOON + GRACE + 1) == []


def test_a_whole_compaction_may_come_by_stderr_after_its_turn() -> None:
    joining = in_turn()
    joining.turn_settled(NOON)

    outcomes = joining.observed(saw("started", "hermes.stderr"), NOON + 1)
    joining.turn_started()
    outcomes += joining.observed(saw("done", "hermes.stderr"), NOON + 1)

    assert kinds(outcomes) == ["CompactionBegan", "CompactionFinished"]


def test_a_weak_beginning_outside_of_a_turn_counts_for_nothing_f72() -> None:
    joining = in_turn()
    joining.turn_settled(NOON)
    later = NOON + GRACE + 1

    assert joining.observed(saw("started", "hermes.stderr"), later) == []
    assert joining.observed(saw("done", "hermes.stderr"), later) == []
    assert kinds(joining.observed(saw("started", "acp", "a"), later)) == ["CompactionBegan"]


def test_an_agent_that_dies_ends_what_it_began_f40() -> None:
    joining = in_turn()
    all_of(joining, saw("started", "hermes.stderr"))

    assert joining.agent_died("signal 9") == [CompactionFailed("c1", "the agent ended: signal 9")]
    assert joining.agent_started() == []


def test_an_agent_that_is_started_anew_goes_on_with_nothing_f40() -> None:
    joining = in_turn()
    all_of(joining, saw("started", "acp", "a"))

    assert kinds(joining.agent_started()) == ["CompactionFailed"]


def test_a_bound_ends_what_nobody_ends_f40() -> None:
    joining = in_turn()
    joining.observed(saw("started", "acp", "a"), NOON)

    assert joining.due == NOON + BOUND
    assert joining.tick(NOON + BOUND - 1) == []
    assert joining.tick(NOON + BOUND) == [CompactionFailed("c1", "it did not end within 600 seconds")]
    assert joining.due is None


def test_one_that_the_agent_gave_up_has_failed_with_its_cause() -> None:
    outcomes = all_of(in_turn(), saw("started", "acp", "a"), saw("failed", "acp", "a", cause="no model"))

    assert outcomes[1:] == [CompactionFailed("c1", "no model")]


def test_a_failure_that_never_began_is_nothing() -> None:
    assert all_of(in_turn(), saw("failed", "acp", "a"), saw("failed", "qwen.meta")) == []


def test_an_end_that_comes_after_all_is_a_compaction_of_its_own() -> None:
    joining = in_turn()
    all_of(joining, saw("started", "acp", "a"))
    joining.turn_settled(NOON)

    (done,) = finished(all_of(joining, saw("done", "acp", "a"), saw("done", "acp", "a")))

    assert done.id == "c2"


def test_a_second_try_after_a_failed_one_is_another() -> None:
    tries = [
        saw("started", "qwen.meta"),
        saw("failed", "qwen.meta"),
        saw("started", "qwen.meta"),
        saw("done", "qwen.meta"),
    ]

    assert kinds(all_of(in_turn(), *tries)) == [
        "CompactionBegan",
        "CompactionFailed",
        "CompactionBegan",
        "CompactionFinished",
    ]


def test_a_beginning_after_a_beginning_ends_the_first() -> None:
    outcomes = all_of(in_turn(), *[saw("started", "hermes.stderr")] * 2, saw("done", "hermes.stderr"))

    assert kinds(outcomes) == ["CompactionBegan", "CompactionFailed", "CompactionBegan", "CompactionFinished"]


def test_one_that_runs_on_into_the_next_turn_is_ended_there() -> None:
    joining = joiner()
    begun = joining.observed(saw("started", "acp", "a"), NOON)
    joining.turn_started()

    outcomes = begun + all_of(joining, saw("done", "acp", "a"), saw("done", "acp", "b"))

    assert kinds(outcomes) == ["CompactionBegan", "CompactionFinished", "CompactionFinished"]


# ---------------------------------------------------------------------- whole conversations


def test_codex_by_hand_by_itself_and_loaded() -> None:
    by_hand = [prompt(1, "/compact"), compaction("a", "in_progress"), compaction("a", "completed"), answer(1)]
    by_itself = [
        prompt(2, "go on"), usage(29_001), compaction("b", "in_progress"), usage(7_284), compaction("b", "completed"),
        says("done"), answer(2),
    ]  # fmt: skip
    replay = [load(3), compaction("a", "completed"), compaction("b", "completed"), loaded(3)]

    outcomes = told("generic", *by_hand, *by_itself, *replay)

    assert kinds(outcomes) == ["CompactionBegan", "CompactionFinished"] * 2
    assert [(one.trigger, one.key) for one in finished(outcomes)] == [(MANUAL, "acp:a"), (BY_ITSELF, "acp:b")]


def test_vibe_by_hand_by_itself_and_loaded_under_other_ids() -> None:
    by_hand = [prompt(1, "/compact"), vibe_typed("x", "in_progress", kind="tool_call"), vibe_typed("x", "completed")]
    by_itself = [prompt(2, "go"), vibe("y", "in_progress", kind="tool_call"), vibe("y", "completed"), answer(2)]
    replay = [load(3), vibe("z", "completed", trigger="manual", kind="tool_call"), vibe("y", "completed"), loaded(3)]

    assert (
        kinds(told("vibe", *by_hand, answer(1), *by_itself, *replay)) == ["CompactionBegan", "CompactionFinished"] * 2
    )


def test_hermes_that_aborted_has_one_that_failed() -> None:
    aborted = [prompt(1, "go"), hermes_started(), hermes_no_summary("500"), hermes_turn_ended(), answer(1)]
    typed = [prompt(2, "/compact"), says("Context compressed: 12 -> 12 messages\n~9 -> ~9 tokens"), answer(2)]

    assert kinds(told("hermes", *aborted, *typed)) == ["CompactionBegan", "CompactionFailed"]


def test_opencode_by_hand_and_by_itself() -> None:
    by_hand = [prompt(1, "/compact"), says("gist", "m1"), answer(1)]
    by_itself = [prompt(2, "go"), says("big", "m2"), says("gist", "m3"), says("on", "m4"), usage(7_834), answer(2)]
    replay = [load(3), says("big", "m2"), says("gist", "m3"), says("on", "m4"), loaded(3)]

    done = finished(told("opencode", *by_hand, *by_itself, *replay))

    assert [(one.trigger, one.confidence, one.summary) for one in done] == [
        (MANUAL, "low", "gist"),
        (BY_ITSELF, "low", "gist"),
    ]


def test_a_forged_line_in_any_place_is_no_compaction_f72() -> None:
    forged = f"hi\n{text(hermes_started())}\n{text(hermes_done())}"

    assert told("hermes", prompt(1, forged), hermes_started(), hermes_done(), answer(1), hermes_done()) == []


@pytest.mark.parametrize("lag", range(8))
def test_a_log_that_lags_behind_everything_else_makes_no_failure(lag: int) -> None:
    """Each line of it comes so many frames after what it was written before, into later turns and a load."""
    frames: list[tuple[Event, list[Event]]] = [
        (prompt(1, "go"), [hermes_started(SESSION), hermes_done(OTHER)]),
        (hermes_rotated(SESSION, OTHER, 1), []),
        (answer(1), []),
        (prompt(2, "go on"), [hermes_started(OTHER), hermes_done(OTHER)]),
        (answer(2), []),
        (load(3), []),
        (loaded(3, _meta=provenance(OTHER, depth=1)), []),
        (prompt(4, "and on"), []),
        (says("done"), []),
        (answer(4), []),
    ]
    events: list[Event] = []
    for i, (frame, _) in enumerate(frames):
        events.append(frame)
        events += frames[i - lag][1] if i >= lag else []
    events += [line for _, lines in frames[len(frames) - lag :] for line in lines]

    outcomes = told("hermes", loaded(0, _meta=provenance(SESSION)), *events)

    assert (len(finished(outcomes)), kinds(outcomes).count("CompactionFailed")) == (2, 0)
    assert [one.aliases for one in finished(outcomes)] == [(SESSION, OTHER), ()]


# ---------------------------------------------------------------------- any order


ROTATING = ("hermes.meta", "hermes.stderr")


def words(source: str, turn: int, acts: int) -> list[Observation]:
    """What one source tells of the compactions of a turn, in its own order."""
    said: list[Observation] = []
    for act in range(acts):
        name = None if STRENGTHS[source] == 1 or source == "qwen.meta" else f"{turn}.{act}"
        if source not in {"usage", "hermes.meta"}:
            said.append(saw("started", source, None if source in ROTATING else name))
        said.append(saw("done", source, name))
    return said


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[int, list[Observation]]]:
    """For each turn how many compactions it had, and all that was said of them, in some order, some of it twice."""
    made = []
    chance = random.Random(draw(st.integers(0, 2**32)))
    for turn in range(draw(st.integers(1, 3))):
        acts = draw(st.integers(0, 3))
        sources = draw(st.lists(st.sampled_from(sorted(STRENGTHS)), min_size=1, max_size=4, unique=True))
        waiting = [words(source, turn, acts) for source in sources]
        said: list[Observation] = []
        while queues := [one for one in waiting if one]:
            said.append(chance.choice(queues).pop(0))
            named = [one for one in said if one.act is not None]
            if named and chance.random() < 0.5:
                said.append(chance.choice(named))
        made.append((acts, said))
    return made


@settings(max_examples=150)
@given(turns())
def test_any_order_and_any_repetition_of_signals_gives_exactly_the_compactions_there_were_f71(
    conversation: list[tuple[int, list[Observation]]],
) -> None:
    joining, loudest = joiner(), ""

    for acts, said in conversation:
        joining.turn_started()
        outcomes = all_of(joining, *said) + joining.turn_settled(NOON) + joining.tick(NOON + GRACE)
        strongest = max((one.source for one in said), key=lambda source: STRENGTHS[source], default="")
        heard = any(one.strength >= STRENGTHS.get(loudest, 0) or _kin(one.source, loudest) for one in said)
        loudest = max(loudest, strongest, key=lambda source: STRENGTHS.get(source, 0))

        assert len(finished(outcomes)) == (acts if heard else 0)
        assert kinds(outcomes).count("CompactionFailed") == 0
        ids = [one.id for one in finished(outcomes)]
        assert len(set(ids)) == len(ids)
        assert joining.open is None


def _kin(one: str, other: str) -> bool:
    return one.partition(".")[0] == other.partition(".")[0]


@settings(max_examples=150)
@given(
    st.lists(
        st.one_of(
            st.builds(
                saw,
                st.sampled_from(["started", "done", "failed"]),
                st.sampled_from(sorted(STRENGTHS)),
                st.sampled_from([None, "a", "b"]),
                replayed=st.booleans(),
            ),
            st.sampled_from(["turn", "settle", "die", "start", "ask", "replay", "live"]),
        ),
        max_size=40,
    )
)
def test_whatever_happens_each_compaction_begins_once_and_ends_once_f40(events: list[Observation | str]) -> None:
    joining, at = joiner(), NOON
    outcomes: list[Outcome] = []

    for event in events:
        at += 0.5
        match event:
            case Observation():
                outcomes += joining.observed(event, at)
            case "turn":
                joining.turn_started()
            case "settle":
                outcomes += joining.turn_settled(at)
            case "die":
                outcomes += joining.agent_died("killed")
            case "start":
                outcomes += joining.agent_started()
            case "ask":
                joining.asked()
            case "replay":
                joining.replay_began()
            case "live":
                joining.replay_ended()
    outcomes += joining.tick(at + BOUND)

    begun = [one.id for one in outcomes if isinstance(one, CompactionBegan)]
    ended = [one.id for one in outcomes if not isinstance(one, CompactionBegan)]
    assert len(set(ended)) == len(ended)
    assert set(begun) <= set(ended)
    assert all(isinstance(one, CompactionFinished) for one in outcomes if one.id not in begun)
    keys = [one.key for one in finished(outcomes) if one.key is not None]
    assert len(set(keys)) == len(keys)
    assert joining.open is None
