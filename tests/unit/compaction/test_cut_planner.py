"""Where a cut may lie: groups, legal cuts and the planner, and what is true of them for any history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, takewhile

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

import onefold
from onefold import Context, Policy, Session, SummaryInput
from onefold.compaction.cut_planner import NoCut, Plan, Turns, plan
from onefold.messages import codec
from onefold.messages.tool_groups import Numbered, group, legal_cuts
from onefold.model import Header, Json
from tests.conftest import CountedIds, StoppedClock
from tests.support.plans import answer, calls, result, system, user


def numbered(messages: Sequence[Json], start: int = 2, step: int = 1) -> list[Numbered]:
    return [(start + i * step, codec("openai-chat").header(m)) for i, m in enumerate(messages)]


# ---------------------------------------------------------------------- an independent reading of a history


def pairs(messages: Sequence[Numbered]) -> dict[int, int]:
    """Each result and the call it answers: the last mention of its id before it, if that is a call."""
    found = {}
    for i, (number, header) in enumerate(messages):
        for id in header.result_ids:
            for earlier, other in reversed(messages[:i]):
                if id in other.call_ids:
                    found[number] = earlier
                if id in (*other.call_ids, *other.result_ids):
                    break
    return found


def unfinished(messages: Sequence[Numbered]) -> list[int]:
    """Messages with a call that still waits for its result, because the model has not been asked since."""
    answered: set[tuple[int, str]] = set()
    for i, (_, header) in enumerate(messages):
        for id in header.result_ids:
            for earlier, other in reversed(messages[:i]):
                if id in other.call_ids:
                    answered.add((earlier, id))
                if id in (*other.call_ids, *other.result_ids):
                    break
    return [
        number
        for i, (number, header) in enumerate(messages)
        if any((number, id) not in answered for id in header.call_ids)
        and not any(later.role == "assistant" for _, later in messages[i + 1 :])
    ]


def separates(messages: Sequence[Numbered], cut: int) -> bool:
    torn = any(call < cut <= reply for reply, call in pairs(messages).items())
    return torn or any(open < cut for open in unfinished(messages))


# ---------------------------------------------------------------------- groups


def test_parallel_calls_and_their_results_are_one_group() -> None:
    found = group(numbered([user(), calls("a", "b"), result("b"), result("a"), answer()]))

    (only,) = found.groups
    assert (only.members, only.closed) == ([3, 4, 5], True)
    assert found.orphans == frozenset()


def test_a_group_is_open_until_every_result_is_there() -> None:
    (waiting,) = group(numbered([calls("a", "b"), result("a")])).groups

    assert (waiting.members, waiting.waiting, waiting.closed) == ([2, 3], {"b"}, False)


def test_a_group_whose_model_was_asked_again_is_closed() -> None:
    (abandoned,) = group(numbered([calls("a"), user(), answer()])).groups

    assert abandoned.closed


def test_a_late_result_still_joins_its_group() -> None:
    (late,) = group(numbered([calls("a"), answer(), result("a")])).groups

    assert late.members == [2, 4]


def test_what_a_turn_left_open_that_is_over_counts_as_closed() -> None:
    history = numbered([calls("a", "b"), result("a"), user(), calls("c")])

    over, live = group(history, over={2, 3, 4}).groups

    assert (over.members, over.waiting, over.closed) == ([2, 3], {"b"}, True)
    assert (live.members, live.waiting, live.closed) == ([5], {"c"}, False)


def test_a_result_that_comes_after_its_turn_was_over_still_joins_its_group() -> None:
    (late,) = group(numbered([calls("a"), user(), result("a")]), over={2}).groups

    assert (late.members, late.waiting) == ([2, 4], set())


def test_a_cut_may_lie_behind_what_a_turn_left_open_that_is_over() -> None:
    history = numbered([user(), calls("a"), user(), user()])

    assert legal_cuts(history) == [2, 3]
    assert legal_cuts(history, over={2, 3}) == [2, 3, 4, 5]


def test_a_reused_id_belongs_to_its_latest_call() -> None:
    first, second = group(numbered([calls("a"), result("a"), calls("a"), result("a")])).groups

    assert (first.members, second.members) == ([2, 3], [4, 5])


def test_a_result_without_a_call_and_a_second_result_are_orphans() -> None:
    found = group(numbered([result("x"), calls("a"), result("a"), result("a")]))

    assert found.orphans == {2, 5}


@pytest.mark.parametrize(
    ("history", "legal"),
    [
        ([user(), answer(), user()], [2, 3, 4]),
        ([user(), calls("a"), result("a"), answer()], [2, 3, 5]),
        ([user(), calls("a", "b"), result("a"), result("b"), user()], [2, 3, 6]),
        ([user(), calls("a"), user("wait"), result("a"), answer()], [2, 3, 6]),
        ([user(), calls("a"), user(), user()], [2, 3]),
        ([user(), calls("a"), answer(), user()], [2, 3, 4, 5]),
        ([user(), calls("a"), answer(), result("a"), user()], [2, 3, 6]),
        ([result("x"), user()], [2, 3]),
        ([], []),
    ],
    ids=["plain", "pair", "parallel", "interleaved", "open", "abandoned", "late", "orphan", "empty"],
)
def test_legal_cuts(history: list[Json], legal: list[int]) -> None:
    assert legal_cuts(numbered(history)) == legal


# ---------------------------------------------------------------------- the planner, by example

SMALL = Policy(tail_tokens=10, tail_share=0.9, tail_messages=1, min_shrink=0.05, quote_tokens=0)


def prompt_of(messages: Sequence[Numbered]) -> list[int]:
    """The system and developer messages that a history begins with."""
    return [n for n, _ in takewhile(lambda m: m[1].role in ("system", "developer"), messages)]


def planned(
    history: Sequence[Json],
    *,
    kept: Sequence[Numbered] = (),
    policy: Policy = SMALL,
    pinned: Iterable[int] = (),
    turns: Turns | None = None,
) -> Plan | NoCut:
    messages = numbered(history)
    total = sum(h.tokens for _, h in (*kept, *messages))
    return plan(
        messages,
        kept=kept,
        total=total,
        policy=policy,
        prompt=prompt_of([*kept, *messages]),
        pinned=frozenset(pinned),
        turns=turns or Turns(),
    )


def test_the_newest_cut_that_leaves_the_tail_is_taken() -> None:
    history = [user("x" * 100), answer("x" * 100), user("x" * 100), answer("x" * 100), user("x" * 100)]

    assert planned(history) == Plan(6, ())


def test_a_tail_that_is_as_long_as_it_should_be_to_the_token_is_long_enough() -> None:
    messages: list[Numbered] = [(n, Header(tokens=10, role="user" if n % 2 else "assistant")) for n in range(1, 11)]
    policy = Policy(tail_tokens=20, tail_share=0.9, tail_messages=1)

    assert plan(messages, kept=(), total=100, policy=policy) == Plan(9, ())


def test_the_system_prompt_is_kept_by_name() -> None:
    history = [system(), {**system(), "role": "developer"}, user("x" * 400), answer("x" * 400), user("x" * 40)]

    assert planned(history) == Plan(6, (2, 3))


def test_a_prompt_that_was_replaced_goes_and_the_one_in_force_is_kept_c3() -> None:
    history = [system(), user("x" * 400), system("new"), answer("x" * 400), user("x" * 40)]
    messages = numbered(history)
    total = sum(h.tokens for _, h in messages)

    assert plan(messages, kept=(), total=total, policy=SMALL, prompt=[4]) == Plan(6, (4,))


def test_a_system_message_in_the_middle_is_no_system_prompt() -> None:
    history = [user("x" * 400), system(), answer("x" * 400), user("x" * 40)]

    assert planned(history) == Plan(5, ())


def test_a_long_turn_is_cut_inside_and_its_opening_message_kept() -> None:
    history = [user("do it"), *(m for n in range(20) for m in (calls(f"c{n}"), result(f"c{n}", "x" * 200)))]

    found = planned(history)

    assert isinstance(found, Plan)
    assert found.kept == (2,)
    assert found.cut == numbered(history)[-2][0]


def test_what_was_kept_before_is_kept_on_while_it_is_the_last_that_a_user_said() -> None:
    before = numbered([system(), user("do it")])
    history = [m for n in range(20, 40) for m in (calls(f"c{n}"), result(f"c{n}", "x" * 200))]
    messages = numbered(history, start=50)
    total = sum(h.tokens for _, h in (*before, *messages))

    found = plan(messages, kept=before, total=total, policy=SMALL, prompt=[2])

    assert found == Plan(messages[-2][0], (2, 3))


def test_what_was_kept_before_goes_when_a_user_spoke_again() -> None:
    before = numbered([system(), user("do it")])
    messages = numbered([answer("x" * 400), user("now that"), answer("x" * 40)], start=50)
    total = sum(h.tokens for _, h in (*before, *messages))

    assert plan(messages, kept=before, total=total, policy=SMALL, prompt=[2]) == Plan(51, (2,))


@pytest.mark.parametrize(
    "history",
    [
        [user("x" * 4000)],
        [system("x" * 4000), user("x"), answer("x" * 40)],
        [calls("a"), user("x" * 4000), user("x" * 4000)],
        [user("x" * 4000), calls("a"), result("a")],
    ],
    ids=["one message", "only a prompt", "open group", "the request itself"],
)
def test_a_cut_that_would_not_shrink_the_context_enough_is_no_cut_f42(history: list[Json]) -> None:
    found = planned(history)

    assert isinstance(found, NoCut)
    assert found.reason.startswith("no progress")


def test_a_huge_message_that_reaches_into_the_tail_does_not_stay_for_ever() -> None:
    history = [user("x" * 9000), answer("x" * 40), user("x" * 40)]

    found = planned(history, policy=Policy(tail_tokens=1000, tail_share=0.9, tail_messages=2))

    assert found == Plan(3, ())


FIVE = [user("x" * 400), answer("x" * 400), user("x" * 400), answer("x" * 400), user("x" * 40)]


def test_what_is_pinned_is_cut_like_the_rest_but_saves_nothing() -> None:
    assert planned(FIVE, pinned=[2, 3]) == Plan(6, ())
    assert planned(FIVE, pinned=[6]) == Plan(6, ()), "in the tail it makes no difference"


@pytest.mark.parametrize("pinned", [[2, 3, 4, 5], [2, 3, 4, 5, 6]])
def test_with_everything_pinned_no_cut_is_worth_making_f42(pinned: list[int]) -> None:
    found = planned(FIVE, pinned=pinned)

    assert isinstance(found, NoCut)
    assert found.reason.startswith("no progress")


def test_a_pin_that_is_kept_by_name_as_well_counts_once() -> None:
    kept = numbered([system("x" * 400), user("x" * 400)])
    messages = numbered([answer("x" * 200), user("now that"), answer("x" * 40)], start=50)
    total = sum(h.tokens for _, h in (*kept, *messages))

    found = plan(messages, kept=kept, total=total, policy=SMALL, prompt=[2], pinned=frozenset({2, 3}))

    assert found == Plan(51, (2,))


LONG_TURN = [user("do it"), *(m for n in range(20) for m in (calls(f"c{n}"), result(f"c{n}", "x" * 200)))]


def test_in_an_open_turn_its_opening_message_and_the_last_one_of_the_user_are_kept() -> None:
    history = [user("earlier"), answer(), *LONG_TURN, user("but quick"), calls("z"), result("z", "x" * 200), answer()]

    steered = planned(history, turns=Turns(opening=4))

    assert steered == Plan(46, (4, 45))
    assert planned(history) == Plan(45, ()), "without a turn, the last question is all there is to keep"


def test_what_came_before_an_open_turn_goes_first() -> None:
    history = [user("x" * 2000), answer("x" * 2000), *LONG_TURN]

    assert planned(history, turns=Turns(opening=4)) == Plan(4, ())


def test_a_call_of_a_turn_that_is_over_does_not_stop_a_cut() -> None:
    history = [user("x" * 40), calls("a"), user("x" * 400), user("x" * 400), user("x" * 40)]

    assert isinstance(planned(history), NoCut)
    assert planned(history, turns=Turns(over=frozenset({2, 3}))) == Plan(6, ())


def test_nothing_new_is_nothing_to_compact() -> None:
    found = plan([], kept=numbered([system()]), total=500, policy=SMALL)

    assert found == NoCut("there is nothing to compact since the last time")


def test_planning_ten_thousand_messages_takes_one_pass() -> None:
    class Watched(list[Numbered]):
        passes = 0

        def __iter__(self):  # type: ignore[no-untyped-def]
            Watched.passes += 1
            return super().__iter__()

    history = Watched((n, Header("user", 10)) for n in range(2, 10_002))

    assert isinstance(plan(history, kept=(), total=100_000, policy=Policy()), Plan)

    assert Watched.passes < 20


# ---------------------------------------------------------------------- any history: issue 2, 13


_ids = st.sampled_from("abcd")
_text = st.integers(0, 300).map(lambda size: "x" * size)
_loose = st.one_of(
    st.builds(user, _text),
    st.builds(answer, _text),
    st.lists(_ids, min_size=1, max_size=3, unique=True).map(lambda ids: calls(*ids)),
    st.builds(result, _ids, _text),
    st.builds(system, _text),
).map(lambda m: [m])


@st.composite
def _turn(draw: st.DrawFn) -> list[Json]:
    """A user's message and a loop of tool calls, in parallel, answered in any order, interrupted now and then."""
    turn = [user(draw(_text))]
    for _ in range(draw(st.integers(0, 6))):
        ids = draw(st.lists(_ids, min_size=1, max_size=3, unique=True))
        turn.append(calls(*ids))
        replies = [result(id, draw(_text)) for id in draw(st.permutations(ids))]
        if draw(st.integers(0, 4)) == 0:
            replies.insert(draw(st.integers(0, len(replies))), user("by the way"))
        turn += replies
    return [*turn, answer(draw(_text))] if draw(st.booleans()) else turn


def _histories(size: int) -> st.SearchStrategy[list[Json]]:
    parts = st.lists(st.one_of(_loose, _turn()), max_size=size)
    return st.builds(lambda first, rest: [*first, *(m for part in rest for m in part)], _prompt, parts)


_prompt = st.sampled_from([[], [system()], [system(), {"role": "developer", "content": "Be brief."}]])
_policies = st.builds(
    Policy,
    quote_tokens=st.just(0),
    tail_tokens=st.integers(0, 200),
    tail_share=st.sampled_from([0.0, 0.25, 0.5]),
    tail_messages=st.integers(1, 4),
    min_shrink=st.sampled_from([0.0, 0.02, 0.1]),
)


@given(_histories(12))
@settings(max_examples=300)
def test_a_cut_is_legal_exactly_if_it_separates_nothing_f26(history: list[Json]) -> None:
    messages = numbered(history, step=3)

    assert legal_cuts(messages) == [n for n, _ in messages if not separates(messages, n)]
    in_pairs = pairs(messages)
    assert group(messages).orphans == {n for n, h in messages if h.result_ids and n not in in_pairs}


def wanted(policy: Policy, total: int) -> int:
    return min(policy.tail_tokens, int(total * policy.tail_share))


def tail_of(messages: Sequence[Numbered], cut: int) -> int:
    return sum(h.tokens for n, h in messages if n >= cut)


def saved(messages: Sequence[Numbered], cut: int) -> int:
    """What a cut takes away, the system prompt and the last user message being kept."""
    prompt = [n for n, _ in takewhile(lambda m: m[1].role in ("system", "developer"), messages)]
    asked = [n for n, h in messages if h.role == "user"][-1:]
    return sum(h.tokens for n, h in messages if n < cut and n not in (*prompt, *asked))


@given(_histories(12), _policies)
@settings(max_examples=300)
def test_a_planned_cut_keeps_what_must_stay_for_any_history_f26(history: list[Json], policy: Policy) -> None:
    """The tail is whole, unless no cut that leaves it would save enough: then its least number of messages."""
    messages = numbered(history, step=3)
    total = sum(h.tokens for _, h in messages)

    found = plan(messages, kept=(), total=total, policy=policy, prompt=prompt_of(messages))

    if isinstance(found, NoCut):
        return
    stays = [(n, h) for n, h in messages if n >= found.cut]
    assert not separates(messages, found.cut)
    assert messages[0][0] < found.cut <= messages[-1][0]
    assert list(found.kept) == sorted(found.kept)
    assert all(n < found.cut for n in found.kept)
    assert len(stays) >= policy.tail_messages
    if tail_of(messages, found.cut) < wanted(policy, total):
        whole = [c for c in legal_cuts(messages)[1:] if tail_of(messages, c) >= wanted(policy, total)]
        assert all(saved(messages, c) < max(1, int(total * policy.min_shrink * 2)) for c in whole)
    said = [n for n, h in messages if h.role == "user"]
    assert not said or said[-1] >= found.cut or said[-1] in found.kept
    for number, header in messages:
        if header.role not in ("system", "developer"):
            break
        assert number >= found.cut or number in found.kept
    left = sum(h.tokens for n, h in messages if n >= found.cut or n in found.kept)
    assert left <= total * (1 - policy.min_shrink)


class Story:
    """A session that talks and compacts in turn, and what its summarizer was given."""

    def __init__(self, policy: Policy) -> None:
        self.store = onefold.open("memory:", policy=policy, clock=StoppedClock(), ids=CountedIds())
        self.session: Session = self.store.session("s")
        self.summarised: list[int] = []
        self.fences: dict[int, int] = {}
        self._count = count(1)

    def compact(self, meanwhile: list[Json]) -> None:
        given: list[SummaryInput] = []

        def summarizer(material: SummaryInput) -> str:
            given.append(material)
            if meanwhile and len(given) == 1:
                self.session.append(meanwhile)
            return f"s{next(self._count)}"

        done = self.session.compact(summarizer)
        if done.state == "committed":
            self.summarised += [r.number for r in given[-1].records]
            self.fences[done.segment] = self.session.compactions()[-1].fence
        elif meanwhile and not given:
            self.session.append(meanwhile)


def check_context(story: Story, context: Context) -> None:
    session = story.session
    records = {r.number: r for r in session.read() if r.kind == "message"}
    everything = [(n, r.header) for n, r in records.items() if r.header is not None]
    segment = session.segments()[-1]
    shown = [n for n in context.numbers if n not in (segment.number, 0)]

    # every visible message is before the cut and summarised, or in the context exactly once, or flagged
    assert story.summarised == [n for n in records if n < segment.cut]
    assert sorted([*shown, *context.left_out]) == sorted([*segment.kept, *(n for n in records if n >= segment.cut)])

    # a result never stands without its call before it, and each group stands together
    in_pairs = pairs([(n, h) for n, h in everything if n >= segment.cut])
    for place, number in enumerate(shown):
        if number in in_pairs:
            between = shown[shown.index(in_pairs[number]) + 1 : place]
            assert all(in_pairs.get(n) == in_pairs[number] for n in between)
    assert all(n in in_pairs for n in shown if records[n].header.result_ids)  # type: ignore[union-attr]

    # what is left out has no call at all, or one that was given up before the result came
    anywhere = pairs(everything)
    for number in context.left_out:
        call = anywhere.get(number, segment.cut)
        if call < segment.cut:
            fence = next(story.fences[s.number] for s in session.segments() if s.cut > call)
            assert number > fence
            assert any(h.role == "assistant" for n, h in everything if call < n < fence)

    # every call has a result, but for those that are still waited for; what never came is said to be missing
    answered = {id for b in context.messages if (id := b.get("tool_call_id")) is not None}
    last_answer = max((n for n, h in everything if h.role == "assistant"), default=0)
    for number in shown:
        header = records[number].header
        assert header is None or number == last_answer or {*header.call_ids} <= answered

    # the session's own count of its size is the context's, but for what is left out or said to be missing
    made_up = [b for n, b in zip(context.numbers, context.messages, strict=True) if n == 0]
    left_out = sum(h.tokens for n, h in everything if n in context.left_out)
    missing = sum(codec("openai-chat").header(b).tokens for b in made_up)
    assert session.state.tokens == context.tokens + left_out - missing

    said = [n for n, h in everything if h.role == "user"]
    assert not said or said[-1] in shown
    for number, header in everything:
        if header.role not in ("system", "developer"):
            break
        assert number in shown


@given(_prompt, st.lists(st.tuples(_histories(6), _histories(2)), min_size=1, max_size=5), _policies)
@settings(max_examples=100)
@example([], [([user("x" * 300), calls("a"), answer(), user(), answer("x" * 200), user()], [result("a")])] * 2, SMALL)
def test_compactions_in_a_row_lose_nothing_and_tear_nothing_apart_f26_f20(
    prompt: list[Json], chapters: list[tuple[list[Json], list[Json]]], policy: Policy
) -> None:
    story = Story(policy)
    written = list(prompt)
    if prompt:
        story.session.append(prompt)
    for before, meanwhile in chapters:
        if before:
            story.session.append(before)
        story.compact(meanwhile)
        written += [*before, *meanwhile]

        check_context(story, story.session.context())

    assert [r.body for r in story.session.read() if r.kind == "message"] == written
    assert story.store.verify().healthy
