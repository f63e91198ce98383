"""Compactions that the provider makes, on every kind of store: an item is a message until it is adopted, and a context
has it for nobody but its origin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

import onefold
from onefold import (
    Compactor,
    Context,
    Limits,
    NotNow,
    OnefoldError,
    Origin,
    Policy,
    Session,
    StaleHandle,
    Store,
    Summary,
    SummaryInput,
)
from onefold.compaction.provider_adoption import adopt_new
from onefold.journal import adoption, replication, undo
from onefold.journal.journal import Journal
from onefold.messages import codec
from onefold.messages.codecs import estimate
from onefold.messages.provider_item import item, without
from onefold.model import Json, Label, Quote, Quotes
from tests.conftest import KINDS, running
from tests.support import provider_rules
from tests.support.helpers import quick
from tests.support.histories import check
from tests.support.undone_views import looked, nothing_changes

SEAL = "gAAAAAB" + "Zk9x" * 500
SIZE = len(SEAL) // 4
SUMMARY = "The user plans a garden. The shed stays; the beds are three metres long."
OPENAI = Origin("openai", "https://api.openai.com/v1", "org-1", "gpt-6-sol")
CLAUDE = Origin("anthropic", "https://api.anthropic.com", "org-2", "claude-opus-5-5")


# ---------------------------------------------------------------------- conversations, as both APIs document them


def asked(text: str) -> Json:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def answered(text: str, id: str | None = None) -> Json:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return said if id is None else said | {"id": id}


def called(n: int) -> list[Json]:
    return [
        {"type": "function_call", "call_id": f"call_{n}", "name": "measure", "arguments": f'{{"bed": {n}}}'},
        {"type": "function_call_output", "call_id": f"call_{n}", "output": f"bed {n} is {n} metres long"},
    ]


def sealed(id: str = "cmp_1") -> Json:
    return {"type": "compaction", "id": id, "encrypted_content": SEAL}


def says(text: str) -> Json:
    return {"role": "user", "content": text}


def thinks(text: str, *more: Json) -> Json:
    thought = {"type": "thinking", "thinking": f"about {text}", "signature": "c2lnbmVk"}
    return {"role": "assistant", "content": [thought, {"type": "text", "text": text}, *more]}


def uses(n: int) -> Json:
    return {"type": "tool_use", "id": f"toolu_{n}", "name": "measure", "input": {"bed": n}}


def used(n: int) -> Json:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"{n} metres"}]}


def block(text: str | None = SUMMARY, **more: Json) -> Json:
    return {"type": "compaction", "content": text, **more}


def compacts(*behind: Json, text: str | None = SUMMARY, **more: Json) -> Json:
    return {"role": "assistant", "content": [block(text, **more), *behind]}


@dataclass
class Talk:
    """A conversation with one provider, up to the answer that has the item."""

    session: Session
    origin: Origin
    format: str
    sent: Context
    before: tuple[int, ...]
    """Its messages before the item."""
    window: tuple[int, ...]
    after: tuple[int, ...]
    """What came with the item, behind it."""

    @property
    def item(self) -> int:
        return self.window[-1]

    def adopt(self) -> onefold.Segment:
        return self.session.adopt(*self.window, origin=self.origin, covers=self.sent)

    def native(self) -> Context:
        """The context for the item's own provider, which takes it as it is; and what it is made of."""
        context = self.session.context(origin=self.origin)
        rule = getattr(provider_rules, self.format.replace("-", "_"))
        assert rule(context.to(self.format)).wrong == [], context.to(self.format)
        sizes = [
            codec(f).header(m).tokens if n or "[Quoted" not in str(m) else estimate(m["content"])
            for n, f, m in zip(context.numbers, context.formats, context.messages, strict=True)
        ]
        assert 0 <= sum(sizes) - context.tokens <= 4, "by its size; a text of notes alone is counted bare"
        shown = [n for n in context.numbers if n]
        assert len(shown) == len({*shown}), "nothing is sent twice"
        return context

    def plain(self) -> Context:
        """The context for everybody else, who can take it."""
        context = self.session.context()
        thought = self.session.state.tokens - context.tokens  # of before the segment, and a made up line
        assert -20 < thought < 100 < SIZE, "counted by its size, without the item"
        check(context)
        assert (context.origin, context.item) == (None, ())
        assert SEAL not in str(context.messages), "nobody else can read it"
        return context


def _append(session: Session, *messages: Json, format: str) -> tuple[int, ...]:
    return session.append([*messages], format=format).numbers


def in_stream(session: Session) -> Talk:
    """OpenAI, `context_management`: the item comes in an answer, and the answer goes on behind it."""
    name = "openai-responses"
    before = _append(
        session, {"role": "developer", "content": "You plan gardens."}, asked("plan my garden"), answered("Gladly."),
        *called(1), answered("One bed is measured."), asked("never touch the shed"), format=name,
    )  # fmt: skip
    sent = session.context()
    (one,) = _append(session, sealed(), format=name)
    reasoned = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "cmVhc29u"}
    after = _append(session, reasoned, answered("It stays as it is.", "msg_1.1"), format=name)
    return Talk(session, OPENAI, name, sent, before, (one,), after)


def returned(session: Session) -> Talk:
    """OpenAI, `/responses/compact`: a window comes back, all messages of the user's and then the item."""
    name = "openai-responses"
    words = ("plan my garden", "never touch the shed")
    before = _append(
        session, asked(words[0]), answered("Gladly."), *called(1), asked(words[1]), answered("It stays."), format=name
    )
    sent = session.context()
    window = _append(session, *map(asked, words), sealed(), format=name)
    return Talk(session, OPENAI, name, sent, before, window, ())


def at_threshold(session: Session) -> Talk:
    """Anthropic, `compact_20260112`: the block opens an answer, which goes on with a call."""
    name = "anthropic"
    before = _append(
        session, {"role": "system", "content": "You plan gardens."}, says("plan my garden"), thinks("Gladly.", uses(1)),
        used(1), thinks("One bed is measured."), says("never touch the shed, and measure"), format=name,
    )  # fmt: skip
    sent = session.context()
    answer = compacts(
        {"type": "thinking", "thinking": "hm", "signature": "cw=="}, uses(2), encrypted_content="b3BhcXVl"
    )
    (one,) = _append(session, answer, format=name)
    after = _append(session, used(2), thinks("It is two metres."), format=name)
    return Talk(session, CLAUDE, name, sent, before, (one,), after)


def on_demand(session: Session) -> Talk:
    """Anthropic, `compaction: summarize`: a signed block alone, to be sent first, while the conversation goes on."""
    name = "anthropic"
    before = _append(
        session, says("plan my garden"), thinks("Gladly."), says("never touch the shed"), thinks("It stays."),
        format=name,
    )  # fmt: skip
    sent = session.context()
    meanwhile = _append(session, says("how long are the beds?"), thinks("Three metres."), format=name)
    (one,) = _append(session, compacts(signature="c2ln", tool_changes=[]), format=name)
    return Talk(session, CLAUDE, name, sent, before, (one,), meanwhile)


TALKS: dict[str, Callable[[Session], Talk]] = {
    "in stream": in_stream,
    "returned": returned,
    "at threshold": at_threshold,
    "on demand": on_demand,
}
SEALED = ("in stream", "returned")


@pytest.fixture
def session(store: Store) -> Session:
    return store.session("s")


@pytest.fixture(params=TALKS)
def talk(request: pytest.FixtureRequest, session: Session) -> Talk:
    return TALKS[request.param](session)


def shown(context: Context) -> list[int]:
    """What it tells of, with the reasoning that is left out since it was thought before the segment."""
    return sorted({n for n in context.numbers if n} | {*context.left_out})


def padded(session: Session) -> None:
    """Enough is said that there is room for quotes of it."""
    session.append([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "word " * 4_000}])


def told(context: Context) -> str:
    return str(context.to("openai-chat"))


# ---------------------------------------------------------------------- until it is adopted


def test_an_item_is_a_message_until_it_is_adopted(talk: Talk) -> None:
    context = talk.session.context()
    assert shown(context) == [*sorted((*talk.before, *talk.window, *talk.after))]
    assert context.item == ()
    looked(talk.session)


def test_a_conversation_with_items_comes_back_unchanged(talk: Talk) -> None:
    as_given = [r.body for r in talk.session.read() if r.kind == "message"]
    assert talk.session.context().messages == as_given
    talk.adopt()
    assert [r.body for r in talk.session.read() if r.kind == "message"] == as_given
    native = talk.native()
    by_number = dict(zip(native.numbers, native.messages, strict=True))
    for number in talk.window:
        (record,) = talk.session.read(number, number + 1)
        assert by_number[number] == record.body, "as the provider gave it"


def test_an_item_counts_by_its_size_and_is_no_word_in_brackets(session: Session) -> None:
    header = codec("openai-responses").header(sealed())
    assert header.tokens >= SIZE
    assert codec("openai-responses").text(sealed()) == ""
    assert codec("anthropic").text(compacts(text=None)) == ""
    assert SUMMARY in codec("anthropic").text(compacts())
    talk = in_stream(session)
    talk.adopt()
    assert talk.native().tokens > SIZE
    assert talk.plain().tokens < SIZE


@pytest.mark.parametrize(
    ("format", "body", "text", "rest"),
    [
        ("openai-responses", sealed(), None, False),
        ("anthropic", compacts(), SUMMARY, False),
        ("anthropic", compacts({"type": "text", "text": "so"}), SUMMARY, True),
        ("claude-code", {"type": "assistant", "message": compacts()}, SUMMARY, False),
        ("langchain", {"type": "ai", "data": {"content": [block()], "type": "ai"}}, SUMMARY, False),
        ("langchain", {"type": "ai", "data": {"content": [sealed(), {"type": "text", "text": "so"}]}}, None, True),
        (
            "pydantic-ai",
            {"kind": "response", "parts": [{"part_kind": "compaction", "content": SUMMARY}]},
            SUMMARY,
            False,
        ),
        (
            "pydantic-ai",
            {
                "kind": "response",
                "parts": [
                    {"part_kind": "compaction", "content": None, "provider_details": {"encrypted_content": SEAL}},
                    {"part_kind": "text", "content": "so"},
                ],
            },
            None,
            True,
        ),
    ],
)  # fmt: skip
def test_items_are_found_in_every_format_that_carries_them(
    format: str, body: Json, text: str | None, rest: bool
) -> None:
    found = item(format, body)
    assert found is not None
    assert (found.text, found.rest is not None) == (text, rest)
    if rest:
        assert without(format, found.rest) is found.rest
        assert codec(format).text(found.rest) == "so"


def test_a_block_that_failed_is_no_boundary(session: Session) -> None:
    numbers = session.append([says("a"), thinks("b"), says("c"), compacts(text=None)], format="anthropic").numbers
    assert without("anthropic", compacts(text=None)) == compacts(text=None)
    nothing_changes(
        session, lambda: session.adopt(numbers[-1], origin=CLAUDE, covers=numbers[:-1]), OnefoldError, "no compaction"
    )


def test_of_several_blocks_the_last_counts(session: Session) -> None:
    answer = compacts({"type": "text", "text": "x"}, block("what came of it"))
    numbers = session.append([says("a"), thinks("b"), says("c"), answer], format="anthropic").numbers
    session.adopt(numbers[-1], origin=CLAUDE, covers=numbers[:-1])
    assert session.context().summary == "what came of it"
    session.append(thinks("d"), format="anthropic")
    native = session.context(origin=CLAUDE)
    assert native.messages[0] == answer
    assert provider_rules.anthropic(native.to("anthropic")).wrong == []


# ---------------------------------------------------------------------- adopted


def test_a_context_has_the_item_for_its_origin_alone(talk: Talk) -> None:
    opened = talk.adopt()
    assert (opened.source, opened.item, talk.session.head) == ("provider", opened.number, opened.number)
    native, plain = talk.native(), talk.plain()
    assert (native.item, native.origin, native.summary) == (talk.window, talk.origin, None)
    assert {*talk.window} <= {*native.numbers}
    covered = {n for n in talk.before if n not in native.prompt}
    assert covered.isdisjoint(native.numbers), "it stands for them"
    assert {*talk.after} <= {*native.numbers}, "and for nothing that was not sent"
    for other in (
        replace(talk.origin, provider="other"),
        replace(talk.origin, endpoint="https://else.where"),
        replace(talk.origin, account="org-9"),
        replace(talk.origin, model="another"),
    ):
        assert talk.session.context(origin=other) == plain


@pytest.mark.parametrize("name", SEALED)
def test_instead_of_what_is_sealed_everybody_else_has_the_boundary_from_before(session: Session, name: str) -> None:
    talk = TALKS[name](session)
    talk.adopt()
    plain = talk.plain()
    assert plain.summary is None
    assert shown(plain) == sorted((*talk.before, *talk.after)), "all of the past, each message once"


@pytest.mark.parametrize("name", [n for n in TALKS if n not in SEALED])
def test_what_can_be_read_is_the_summary_for_everybody_else(session: Session, name: str) -> None:
    talk = TALKS[name](session)
    opened = talk.adopt()
    plain = talk.plain()
    assert plain.summary == SUMMARY
    assert told(plain).count(SUMMARY) == 1, "nothing is told twice"
    assert [n for n in shown(plain) if n not in (opened.number, *plain.prompt)] == [
        *sorted((*talk.after, *(talk.window if name == "at threshold" else ())))
    ]
    assert opened.tokens_after < opened.tokens_before + 200


def test_the_returned_window_is_whole_and_in_its_order_then_quotes_then_the_rest(session: Session) -> None:
    talk = returned(session)
    session.note("rule", "no gravel")
    talk.adopt()
    more = session.append(asked("and the paths?"), format=talk.format).numbers
    native = talk.native()
    assert native.numbers == (*talk.window, 0, *more)
    assert "no gravel" in str(native.messages[3])


def test_quotes_stand_behind_a_sealed_item_and_repeat_nothing_of_its_window(store: Store) -> None:
    with_quotes = replace(quick(), quote_tokens=2_000, quote_share=0.5)
    for name in SEALED:
        session = store.session(name)
        session.policy = with_quotes
        padded(session)
        talk = TALKS[name](session)
        talk.adopt()
        native = talk.native()
        assert native.numbers[: len(talk.window) + 1] == (*talk.window, 0)
        assert native.quotes
        assert str(native.messages).count("never touch the shed") == 1


def test_behind_a_block_nothing_stands_between_it_and_signed_reasoning(session: Session) -> None:
    session.policy = replace(quick(), quote_tokens=2_000, quote_share=0.5)
    padded(session)
    session.note("rule", "no gravel")
    talk = on_demand(session)
    session.pin(talk.before[2])
    talk.adopt()
    more = session.append([says("go on"), thinks("I do.")], format="anthropic").numbers
    native = talk.native()
    at = native.numbers.index(talk.after[-1])
    assert native.numbers[: at + 1] == (talk.item, *talk.after)
    assert [m["content"][0]["type"] for m in native.messages[: at + 1] if isinstance(m["content"], list)] == [
        "compaction",
        "thinking",
    ], "the turns that came meanwhile, unchanged"
    (text,) = [m for m in native.messages if "no gravel" in str(m)]
    assert "Quoted from earlier" in text["content"], "quotes and notes are one text"
    assert native.numbers[-2:] == more
    assert native.numbers.index(talk.before[2]) > at
    assert native.messages.index(text) < native.numbers.index(more[0])


def test_the_text_beside_a_block_waits_for_the_results_of_its_calls(session: Session) -> None:
    session.note("rule", "no gravel")
    numbers = session.append([says("a"), thinks("b"), says("measure")], format="anthropic").numbers
    (one,) = session.append(compacts(uses(1)), format="anthropic").numbers
    session.adopt(one, origin=CLAUDE, covers=numbers)
    (result,) = session.append(used(1), format="anthropic").numbers
    session.append(thinks("done"), format="anthropic")
    native = session.context(origin=CLAUDE)
    assert native.numbers[:3] == (one, result, 0)
    assert provider_rules.anthropic(native.to("anthropic")).wrong == []


def test_what_it_does_not_cover_is_kept_by_name(session: Session) -> None:
    numbers = session.append(
        [asked("a"), answered("b"), asked("unseen"), asked("c"), answered("d"), sealed()], format="openai-responses"
    ).numbers
    sent = [numbers[n] for n in (0, 1, 3, 4)]
    session.adopt(numbers[5], origin=OPENAI, covers=sent)
    assert session.context(origin=OPENAI).numbers == (numbers[5], numbers[2])
    assert shown(session.context()) == [*numbers[:5]]
    body = next(r.body for r in session.read() if r.number == session.head)
    assert body["adopts"]["kept"] == [numbers[2]]
    assert body["adopts"]["covers"] == [[1, numbers[1]], [numbers[3], numbers[4]]]


def test_what_was_appended_while_it_was_made_is_not_covered(session: Session) -> None:
    numbers = session.append([says("a"), thinks("b"), says("c")], format="anthropic").numbers
    (late,) = session.append(says("wait, no gravel"), format="anthropic").numbers
    (one,) = session.append(compacts({"type": "text", "text": "So be it."}), format="anthropic").numbers
    session.adopt(one, origin=CLAUDE, covers=numbers)
    assert session.context(origin=CLAUDE).numbers == (one, late)
    plain = session.context()
    assert plain.numbers[1:] == (late, one)
    assert SUMMARY not in str(plain.messages[-1])


def test_a_call_is_never_parted_from_its_result(session: Session) -> None:
    numbers = session.append([asked("a"), *called(1), sealed()], format="openai-responses").numbers
    nothing_changes(
        session, lambda: session.adopt(numbers[3], origin=OPENAI, covers=numbers[:2]), OnefoldError, "parts the call"
    )
    more = session.append([called(2)[0], sealed("cmp_2")], format="openai-responses").numbers
    covers = [*numbers, more[0]]
    nothing_changes(
        session, lambda: session.adopt(more[1], origin=OPENAI, covers=covers), OnefoldError, "parts the call"
    )


def test_what_is_kept_waits_for_nothing(session: Session) -> None:
    numbers = session.append(
        [asked("a"), called(1)[0], {"role": "developer", "content": "Be brief."}, sealed()], format="openai-responses"
    ).numbers
    sent = [numbers[0], numbers[2]]
    nothing_changes(session, lambda: session.adopt(numbers[3], origin=OPENAI, covers=sent), NotNow, "waits for its")


def test_a_window_is_of_messages_in_view(session: Session) -> None:
    talk = in_stream(session)
    window = (talk.before[-1], talk.item)
    session.undo()
    for numbers, why in ((window, "not messages in view"), ((), "has 1 to")):
        adopt = partial(session.adopt, *numbers, origin=OPENAI, covers=talk.before[:2])
        nothing_changes(session, adopt, OnefoldError, why)


def test_an_item_quotes_what_it_stands_for_and_nothing_else(session: Session, journal: Journal) -> None:
    talk = in_stream(session)
    said = Quotes((Quote(talk.after[-1], "/content/0/text", 0, 3, 1.0),))
    adopt = partial(
        adoption.adopt, journal, "s", talk.window, talk.sent.numbers, origin=OPENAI, expect_head=session.head, said=said
    )
    nothing_changes(session, adopt, OnefoldError, "nothing was adopted")


def test_said_again_it_is_the_same_adoption(talk: Talk) -> None:
    opened = talk.adopt()
    last = talk.session.state.last
    assert talk.adopt() == opened
    assert talk.session.state.last == last


def test_an_older_item_is_not_adopted_behind_a_newer_one(session: Session) -> None:
    talk = in_stream(session)
    sent = session.context()
    (newer,) = session.append(sealed("cmp_2"), format=talk.format).numbers
    session.adopt(newer, origin=OPENAI, covers=sent)
    nothing_changes(session, talk.adopt, OnefoldError, "a later item")


def test_one_item_after_another_is_adopted(talk: Talk) -> None:
    talk.adopt()
    name = talk.format
    ask = (asked if name == "openai-responses" else says)("and now?")
    again = sealed("cmp_2") if name == "openai-responses" else compacts(text="All of it again.")
    (question,) = _append(talk.session, ask, format=name)
    sent = talk.session.context(origin=talk.origin)
    (newer,) = _append(talk.session, again, format=name)
    talk.session.adopt(newer, origin=talk.origin, covers=sent)
    native = talk.native()
    assert native.item == (newer,)
    assert [n for n in shown(native) if n not in native.prompt] == [newer]
    plain = talk.plain()
    assert plain.summary == (None if name == "openai-responses" else "All of it again.")
    if name == "openai-responses":
        assert shown(plain) == sorted((*talk.before, *talk.after, question))


def test_an_item_on_a_summary_of_ours_covers_what_that_stands_for(session: Session, journal: Journal) -> None:
    first = session.append([asked("a"), answered("b"), asked("c")], format="openai-responses").numbers
    journal.commit(running(journal), "what was said", first[2])
    sent = session.context()
    (one,) = session.append(sealed(), format="openai-responses").numbers
    unseen = [n for n in sent.numbers if n in first]
    nothing_changes(session, lambda: session.adopt(one, origin=OPENAI, covers=unseen), OnefoldError, "summary")
    session.adopt(one, origin=OPENAI, covers=sent)
    assert shown(session.context(origin=OPENAI)) == [one]
    plain = session.context()
    assert (plain.summary, plain.numbers[1:]) == ("what was said", (first[2],))


def test_a_plain_context_is_counted_without_the_item_in_an_answer(session: Session) -> None:
    text = "The beds are three metres long. " * 100
    numbers = session.append([says("a"), says("b")], format="anthropic").numbers
    (one,) = session.append(compacts({"type": "text", "text": "so"}, text=text), format="anthropic").numbers
    opened = session.adopt(one, origin=CLAUDE, covers=numbers)
    looked(session)
    assert [n for n, _ in opened.adopted] == [one]
    session.append(says("c"), format="anthropic")
    looked(session)
    session.unfold(opened.number)
    looked(session)
    assert text not in str(session.context().messages)


# ---------------------------------------------------------------------- what comes after


def test_a_turn_after_it_is_undone_and_the_item_stays(talk: Talk) -> None:
    talk.adopt()
    talk.session.append({"role": "user", "content": "and the fence?"})
    before = talk.native()
    talk.session.undo()
    native = talk.native()
    assert native.item == talk.window
    assert shown(native) == [n for n in shown(before) if n != before.numbers[-1]]
    talk.plain()
    talk.session.redo()
    assert shown(talk.native()) == shown(before)


def test_an_undo_across_it_is_plain_for_everybody(talk: Talk) -> None:
    talk.adopt()
    talk.session.context()
    while talk.session.context(origin=talk.origin).item:
        talk.session.undo()
    native = talk.session.context(origin=talk.origin)
    assert native == talk.plain()
    assert {*shown(native)} <= {*talk.before, talk.session.head}
    talk.session.redo()
    assert talk.native().item == talk.window


@pytest.mark.parametrize("name", TALKS)
def test_a_rewind_to_right_before_it_leaves_the_past_plain(session: Session, name: str) -> None:
    talk = TALKS[name](session)
    talk.adopt()
    past = [n for n in (*talk.before, *talk.after) if n < talk.window[0]]
    session.append({"role": "user", "content": "more"})
    session.rewind(talk.window[0] - 1)
    context = session.context(origin=talk.origin)
    assert (context.item, context) == ((), talk.plain())
    session.append({"role": "user", "content": "another way"})
    session.undo()
    assert session.context(origin=talk.origin).item == ()
    if name in SEALED:
        assert shown(context) == past


def test_what_it_covers_is_erased_and_the_item_with_it(talk: Talk, store: Store) -> None:
    talk.adopt()
    gone = talk.before[1]
    erased = talk.session.erase(gone)
    assert talk.item in erased.numbers, "it was made of what is gone"
    context = talk.session.context(origin=talk.origin)
    assert (context.item, context) == ((), talk.plain())
    assert SUMMARY not in str([r.body for r in talk.session.read()])
    assert SEAL not in str([r.body for r in talk.session.read()])
    left = {*talk.before, *talk.after}.difference(erased.numbers)
    assert left <= {*context.numbers, *context.left_out}, "and nothing else of the past is missing"
    assert store.verify().healthy


def test_a_label_of_what_a_sealed_item_does_not_cover_is_erased_with_its_message(
    session: Session, journal: Journal
) -> None:
    words = ("plan my garden", "never move the shed")
    numbers = session.append([*map(asked, words), answered("Gladly."), asked("go on")], format=NAME).numbers
    quotes = tuple(Quote(n, "/content/0/text", 0, len(t), 1.0) for n, t in zip(numbers[:2], words, strict=True))
    rule = Label(numbers[1], "/content/0/text", 0, len(words[1]), "rule", "about the shed")
    said = Quotes(quotes, labels=(rule,))
    journal.commit(running(journal), "what was said", numbers[3], kept=[numbers[1]], quotes=said)
    sent = {*session.context().numbers} - {numbers[1]}
    (one,) = session.append(sealed(), format=NAME).numbers
    adoption.adopt(journal, "s", [one], sent, origin=OPENAI, expect_head=session.head, said=said)
    assert session.context(origin=OPENAI).numbers == (one, 0, numbers[1])

    session.erase(numbers[1])

    assert "shed" not in str([r.body for r in session.read()])


def test_the_item_itself_is_erased_and_so_is_its_text(talk: Talk) -> None:
    opened = talk.adopt()
    talk.session.erase(talk.item)
    context = talk.session.context(origin=talk.origin)
    assert (context.item, context) == ((), talk.plain())
    assert SUMMARY not in str([r.body for r in talk.session.read()])
    assert opened.number < talk.session.head


def test_what_came_later_is_erased_and_the_item_stays(talk: Talk) -> None:
    talk.adopt()
    (more,) = talk.session.append({"role": "user", "content": "my number is 12345"}).numbers
    talk.session.erase(more)
    assert talk.native().item == talk.window
    talk.plain()


def test_a_fork_at_it_has_the_item_and_one_before_it_has_the_past(talk: Talk) -> None:
    opened = talk.adopt()
    here = talk.session.fork(at=opened.number)
    mine = replace(talk, session=here)
    assert mine.native().item == talk.window
    assert shown(mine.native()) == shown(talk.native())
    mine.plain()
    early = talk.session.fork(at=talk.before[2])
    context = early.context(origin=talk.origin)
    assert context.item == ()
    assert context == early.context()
    talk.session.erase(talk.before[1])
    assert here.context(origin=talk.origin).item == ()


def test_it_is_taken_back_and_adopted_again(talk: Talk) -> None:
    opened = talk.adopt()
    before = talk.native()
    talk.session.unfold(opened.number)
    context = talk.session.context(origin=talk.origin)
    assert (context.item, context) == ((), talk.plain())
    assert {*talk.before} <= {*context.numbers, *context.left_out}
    talk.session.undo()
    assert talk.native().messages == before.messages or talk.native().item == talk.window
    talk.session.unfold(opened.number)
    talk.session.refold(opened.number)
    assert talk.native().item == talk.window


def test_an_ordinary_compaction_is_made_of_the_plain_text(talk: Talk) -> None:
    talk.adopt()
    seen: list[str] = []

    def summarizer(material: SummaryInput) -> Summary:
        seen.extend(material.text(r) for r in material.records)
        return Summary("It went on.")

    for n in range(4):
        talk.session.append([{"role": "user", "content": f"step {n} " + "word " * 60}])
        talk.session.append([{"role": "assistant", "content": f"done {n} " + "word " * 60}])
    result = talk.session.compact(summarizer)
    assert result.state == "committed", result
    assert SEAL not in "".join(seen)
    assert "[compaction]" not in "".join(seen)
    context = talk.session.context(origin=talk.origin)
    assert (context.item, context.summary) == ((), "It went on.")
    assert context == talk.plain()


@pytest.mark.parametrize("name", TALKS)
def test_what_nobody_adopted_is_cut_with_the_text_that_it_stands_for(session: Session, name: str) -> None:
    talk = TALKS[name](session)
    for n in range(4):
        session.append([{"role": "user", "content": f"step {n} " + "word " * 60}])
        session.append([{"role": "assistant", "content": f"done {n} " + "word " * 60}])
    seen: dict[int, str] = {}

    def summarizer(material: SummaryInput) -> Summary:
        seen.update((r.number, material.text(r)) for r in material.records)
        return Summary("A garden is planned.")

    result = session.compact(summarizer)

    assert result.state == "committed", result
    assert {*talk.before, *talk.window} <= {*seen}, "the plain text is read, and nothing is lost with the item"
    assert "never touch the shed" in "".join(seen.values())
    assert SEAL not in "".join(seen.values())
    assert "[compaction]" not in "".join(seen.values())
    assert (SUMMARY in seen[talk.item]) == (name not in SEALED), "what can be read of it is read"


def test_what_an_item_does_not_cover_is_in_the_next_summary(session: Session) -> None:
    numbers = session.append(
        [says("a"), thinks("b"), says("unseen: no gravel"), says("c"), thinks("d"), compacts()], format="anthropic"
    ).numbers
    session.adopt(numbers[5], origin=CLAUDE, covers=[numbers[n] for n in (0, 1, 3, 4)])
    for n in range(4):
        session.append([{"role": "user", "content": f"step {n} " + "word " * 60}])
        session.append([{"role": "assistant", "content": f"done {n} " + "word " * 60}])
    seen: list[str] = []

    def summarizer(material: SummaryInput) -> Summary:
        seen.extend(material.text(r) for r in material.records)
        return Summary("No gravel.")

    result = session.compact(summarizer)

    assert result.state == "committed", result
    assert "unseen: no gravel" in seen, "no summary knew it"


def test_nothing_that_was_taken_back_since_it_was_sent_is_covered(session: Session) -> None:
    first = session.append([says("a"), thinks("b"), says("my number is 12345"), thinks("noted")], format="anthropic")
    sent = session.context()
    session.undo()
    (one,) = session.append(compacts(text="Their number is 12345."), format="anthropic").numbers

    nothing_changes(session, lambda: session.adopt(one, origin=CLAUDE, covers=sent), StaleHandle, "was taken back")

    session.adopt(one, origin=CLAUDE, covers=first.numbers[:2])
    assert session.context().summary == "Their number is 12345."


def test_nothing_is_covered_whose_summary_was_taken_back(session: Session, journal: Journal) -> None:
    first = session.append([says("a"), thinks("b"), says("c"), thinks("d")], format="anthropic").numbers
    journal.commit(running(journal), "what was said", first[3] + 1)
    sent = session.context()
    session.undo()
    (one,) = session.append(compacts(), format="anthropic").numbers
    nothing_changes(session, lambda: session.adopt(one, origin=CLAUDE, covers=sent), StaleHandle, "was taken back")


def test_what_is_in_force_is_not_folded_again(talk: Talk) -> None:
    opened = talk.adopt()
    nothing_changes(talk.session, lambda: talk.session.refold(opened.number), OnefoldError, "was unfolded")


def test_a_clear_that_a_window_follows_is_an_adoption(session: Session, journal: Journal) -> None:
    """As a program does that compacts by clearing its session and writing what came back."""
    talk = returned(session)
    session.rewind(talk.window[0] - 1)
    sent = session.context()
    cleared = undo.clear(journal, session.id)

    undo.redo(journal, session.id, expect_head=cleared.number)
    window = _append(session, *map(asked, ("plan my garden", "never touch the shed")), sealed(), format=talk.format)
    session.adopt(*window, origin=OPENAI, covers=sent)

    again = replace(talk, window=window)
    assert again.native().item == window
    assert shown(again.plain()) == [*talk.before]


def test_masks_and_the_item_go_together_and_a_provider_that_edits_gets_no_masks(session: Session) -> None:
    talk = at_threshold(session)
    talk.adopt()
    for n in range(10, 24):
        big = used(n)
        big["content"][0]["content"] = f"result {n} " + "x " * 900
        session.append([thinks("so", uses(n)), big], format="anthropic")
    session.mask()
    native = talk.native()
    assert (len(native.masked), native.item) == (4, talk.window)
    edits = session.context(origin=replace(CLAUDE, edits=True))
    assert (edits.masked, edits.item) == ((), talk.window)
    assert edits.tokens > native.tokens
    talk.plain()


def test_it_gives_up_no_compaction_that_somebody_works_on(session: Session, journal: Journal) -> None:
    talk = in_stream(session)
    running(journal)
    nothing_changes(session, talk.adopt, NotNow, "is open")


def test_a_session_that_its_agent_compacts_adopts_nothing(session: Session) -> None:
    talk = in_stream(session)
    session.set_compaction_owner("agent")
    nothing_changes(session, talk.adopt, OnefoldError, "compacted by its agent")


def test_behind_a_cut_nothing_is_adopted(session: Session, journal: Journal) -> None:
    talk = in_stream(session)
    journal.commit(running(journal), "what was said")
    nothing_changes(session, talk.adopt, StaleHandle, "compacted behind")


# ---------------------------------------------------------------------- a window in place of what was cleared


NAME = "openai-responses"


def talked(session: Session) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What was sent to the provider, and what was said while that compacted."""
    prompt = {"role": "developer", "content": "You plan gardens."}
    sent = _append(session, prompt, asked("plan my garden"), answered("Gladly."), *called(1), format=NAME)
    return sent, _append(session, asked("never touch the shed"), answered("It stays."), format=NAME)


def replaced(session: Session, sent: tuple[int, ...], cleared: int, *window: Json) -> onefold.Segment:
    drafts = session.drafts([*window], NAME, None)
    return adopt_new(
        session.journal, "s", drafts, cleared=cleared, origin=OPENAI, covers={*sent}, policy=quick(), key="window"
    )


def test_a_window_that_follows_a_clear_is_adopted_and_nothing_is_cleared(store: Store) -> None:
    session = store.session("s")
    sent, meanwhile = talked(session)
    cleared = undo.clear(store.journal, "s").number
    assert session.context().messages == []

    opened = replaced(session, sent, cleared, asked("plan my garden"), sealed())

    window = (opened.number - 2, opened.number - 1)
    native = session.context(origin=OPENAI)
    assert (native.item, native.numbers) == (window, (sent[0], *window, *meanwhile)), "and what was not sent"
    assert session.context().numbers == (*sent, *meanwhile), "everybody else has the past"
    assert [r.number for r in session.read() if r.kind == "message"] == [*sent, *meanwhile, *window]
    assert replaced(session, sent, cleared, asked("plan my garden"), sealed()) == opened, "once"
    session.unfold(opened.number)
    assert session.context(origin=OPENAI).numbers == (*sent, *meanwhile)
    assert store.verify().findings == ()


def test_a_clear_stands_if_something_was_said_since_and_if_its_window_is_none(store: Store) -> None:
    session = store.session("s")
    sent, _ = talked(session)
    cleared = undo.clear(store.journal, "s").number

    nothing_changes(session, lambda: replaced(session, sent, cleared, asked("plan")), OnefoldError, "no compaction of")
    session.append(asked("hello"), format=NAME)
    nothing_changes(session, lambda: replaced(session, sent, cleared, sealed()), StaleHandle, "the clear stands")

    assert [m["role"] for m in session.context().to("openai-chat")] == ["user"]


def test_a_clear_of_what_an_agent_keeps_is_replaced_by_nothing(store: Store) -> None:
    session = store.session("s")
    sent, _ = talked(session)
    session.set_compaction_owner("agent")
    cleared = undo.clear(store.journal, "s").number

    nothing_changes(session, lambda: replaced(session, sent, cleared, sealed()), OnefoldError, "compacted by its agent")


def test_a_window_gives_up_no_compaction_that_somebody_works_on(store: Store) -> None:
    session = store.session("s")
    sent, _ = talked(session)
    running(store.journal)
    window = session.drafts([sealed()], NAME, None)
    arrives = partial(
        adopt_new, store.journal, "s", window, cleared=None, origin=OPENAI, covers={*sent}, policy=quick(), key="window"
    )

    nothing_changes(session, arrives, NotNow, "is open")
    store.journal.cancel("s")
    opened = arrives()
    assert session.context(origin=OPENAI).item == (opened.number - 1,)


# ---------------------------------------------------------------------- what an agent's loop holds


def test_an_agent_goes_on_with_its_item_where_the_plain_text_is_too_large(store: Store) -> None:
    limits = Limits(window=3_000, output=100, soft=0.5, hard=0.9)
    session = store.session("s")
    name = "openai-responses"
    long = session.append([asked("plan " + "word " * 2_000), answered("so " + "word " * 1_500)], format=name).numbers
    (one,) = session.append(sealed(), format=name).numbers
    session.adopt(one, origin=OPENAI, covers=long)
    session.append(asked("and now?"), format=name)
    asked_for: list[str] = []

    def summarizer(material: SummaryInput) -> Summary:
        asked_for.append("")
        return Summary("A long plan was made.")

    compactor = Compactor(store, summarizer, quick(limits=limits, tail_tokens=50, tail_share=0.1))
    context = compactor.before_turn(session, origin=OPENAI)
    assert (context.item, asked_for) == ((one,), [])
    assert compactor.mid_turn(session, origin=OPENAI).item == (one,)
    assert compactor.due_sessions(0) == [], "nobody pays for a summary that its agent does not need"
    plain = compactor.before_turn(session)
    assert (plain.item, plain.summary, asked_for) == ((), "A long plan was made.", [""])


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_has_the_item_too(kind: str, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with (
        onefold.open(str(tmp_path / "a.db"), policy=Policy()) as here,
        onefold.open(KINDS[kind](tmp_path / "b"), policy=Policy()) as there,
    ):
        talk = at_threshold(here.session("s"))
        talk.adopt()
        backend = here.journal.backend
        done = [*replication.copy(backend, there.journal, replication.wanted(backend), lambda n: None)]
        assert [d.cause for d in done] == [None]
        assert there.session("s").context(origin=CLAUDE) == talk.native()
        talk.session.erase(talk.before[1])
        done = [*replication.copy(backend, there.journal, replication.wanted(backend), lambda n: None)]
        assert [d.cause for d in done] == [None]
        assert there.session("s").context(origin=CLAUDE) == talk.session.context()
        assert SUMMARY not in str([r.body for r in there.session("s").read()])
