"""Summarising again, on every kind of store: a draft changes nothing, and taken it is one boundary more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from onefold import (
    CompactionDisabled,
    NotNow,
    OnefoldError,
    Policy,
    Session,
    SessionNotFound,
    StaleHandle,
    Store,
    SummarizerFailed,
    Summary,
    SummaryDraft,
    SummaryInput,
    Usage,
    aio,
)
from onefold.journal import masks, summary_drafts
from onefold.journal.journal import Journal
from onefold.model import DRAFTED, Claim, Quote, Quotes
from tests.conftest import who
from tests.support.helpers import PATIENCE, contents, converse, counted, kinds, quick
from tests.support.undone_views import fold, nothing_changes

PAID = Usage(1, 1_200, 80, 0.004)


def writes(text: str, seen: list[SummaryInput] | None = None) -> Callable[[SummaryInput], Summary]:
    def made(material: SummaryInput) -> Summary:
        if seen is not None:
            seen.append(material)
        return Summary(text, by="a model", spent=PAID)

    return made


@pytest.fixture
def talk(store: Store) -> Session:
    """A conversation whose beginning is folded twice, and goes on."""
    session = store.session("t")
    converse(session, 12)
    assert session.compact(writes("First: src/alpha.py on port 8080."), policy=quick()).changed
    converse(session, 10, start=13)
    assert session.compact(writes("Second: src/beta.py on port 9090, by order XK-42."), policy=quick()).changed
    converse(session, 2, start=23)
    return session


def drafted(session: Session, text: str = "Again: src/gamma.py on port 9090.") -> SummaryDraft:
    return session.draft_summary(writes(text), policy=quick())


def test_a_draft_is_made_of_what_the_summary_in_force_was_made_of(store: Store) -> None:
    session, first, again = store.session("s"), list[SummaryInput](), list[SummaryInput]()
    converse(session, 12)
    session.compact(writes("One."), policy=quick())
    converse(session, 10, start=13)
    session.compact(writes("Two.", first), policy=quick())
    converse(session, 3, start=23)
    session.draft_summary(writes("Again."), policy=quick())
    session.draft_summary(writes("Again.", again), policy=quick(), instructions="Be brief.")
    assert [r.number for r in again[0].records] == [r.number for r in first[0].records]
    assert (again[0].previous, again[0].instructions) == (first[0].previous, "Be brief.") == ("One.", "Be brief.")


def test_a_draft_changes_nothing_but_that_its_cost_is_counted(talk: Session, store: Store) -> None:
    before, head, last = talk.context(), talk.head, talk.state.last
    draft = drafted(talk)
    assert (talk.context().messages, talk.head, talk.state.last) == (before.messages, head, last + 1)
    assert kinds(talk)[-1] == DRAFTED
    record = next(iter(talk.read(last + 1)))
    spent = {"calls": 1, "input_tokens": 1_200, "output_tokens": 80, "cost": 0.004}
    assert record.body == {"segment": head, "by": "a model", "spent": spent}
    assert (draft.head, draft.number, draft.spent) == (head, record.number, PAID)
    assert "gamma" not in "".join(str(r.body) for r in talk.read()), "its words are nowhere in the journal"
    assert store.verify().findings == ()


def test_it_says_what_each_has_that_the_other_has_not(talk: Session) -> None:
    draft = drafted(talk)
    assert draft.present == "Second: src/beta.py on port 9090, by order XK-42."
    assert (draft.gains, draft.loses) == (("src/gamma.py",), ("src/beta.py", "XK-42"))
    before, now = draft.tokens
    assert before > now > 0


def test_taken_it_is_the_summary_from_here_on_and_nothing_else_changes(talk: Session, store: Store) -> None:
    draft, before = drafted(talk), talk.segments()[-1]
    talk.append({"role": "user", "content": "said while somebody reads the draft"})
    tail = contents(talk.context().messages)[-3:]
    opened = talk.take_draft(draft)
    assert (opened.source, opened.base, opened.cut, opened.kept) == (
        "compaction",
        before.number,
        before.cut,
        before.kept,
    )
    assert talk.context().summary == draft.text
    assert contents(talk.context().messages)[-3:] == tail
    assert opened.tokens_after == talk.state.tokens == talk.context().tokens
    assert kinds(talk)[-4:] == ["compaction.requested", "compaction.started", "compaction.committed", "segment.opened"]
    assert counted(talk, DRAFTED) == 1
    assert [c.spent for c in talk.compactions()][-1] == Usage(), "what it cost was counted once"
    assert store.verify().findings == ()


def test_taken_again_it_is_the_same_segment(talk: Session) -> None:
    draft = drafted(talk)
    opened = talk.take_draft(draft)
    last = talk.state.last
    assert talk.take_draft(draft) == opened
    assert talk.state.last == last


@pytest.mark.parametrize("moves", ["compact", "undo", "unfold", "restore", "erase", "another draft"])
def test_a_draft_for_a_head_that_has_moved_is_refused_with_nothing_written(talk: Session, moves: str) -> None:
    draft = drafted(talk)
    match moves:
        case "compact":
            converse(talk, 10, start=40)
            talk.context()
            assert talk.compact(writes("Third."), policy=quick()).changed
        case "undo":
            talk.undo()
        case "unfold":
            talk.unfold()
        case "restore":
            talk.rewind(talk.segments()[-1].cut)
        case "erase":
            talk.erase(next(r.number for r in talk.read() if r.kind == "message"))
        case _:
            talk.take_draft(drafted(talk, "Another one."))
    nothing_changes(talk, lambda: talk.take_draft(draft), StaleHandle, "Make another draft")


def test_nothing_but_masks_since_is_no_move(talk: Session, journal: Journal) -> None:
    draft = drafted(talk)
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    talk.append({"role": "assistant", "content": None, "tool_calls": [call]})
    result = talk.append({"role": "tool", "tool_call_id": "c1", "content": "word " * 400}).numbers
    masks.mask(journal, talk.id, result, expect_head=talk.head)
    opened = talk.take_draft(draft)
    assert [n for n, _ in opened.masked] == [*result]
    assert talk.context().summary == draft.text


def test_a_compaction_that_is_open_is_never_given_up(talk: Session, journal: Journal) -> None:
    draft = drafted(talk)
    journal.request(talk.id)
    nothing_changes(talk, lambda: talk.take_draft(draft), NotNow, "wait for it")
    claim = journal.claim(talk.id, who())
    nothing_changes(talk, lambda: talk.take_draft(draft), NotNow, "wait for it")
    assert isinstance(claim, Claim)
    journal.commit(claim, "Third.")
    nothing_changes(talk, lambda: talk.take_draft(draft), StaleHandle, "Make another")


def test_a_draft_keeps_nobody_from_compacting(talk: Session) -> None:
    """No claim is held while it is made, nor while somebody reads it."""
    began, goes_on = threading.Event(), threading.Event()

    def slow(material: SummaryInput) -> str:
        began.set()
        assert goes_on.wait(PATIENCE)
        return "Slowly: src/delta.py."

    made: list[SummaryDraft] = []
    thread = threading.Thread(target=lambda: made.append(talk.draft_summary(slow, policy=quick())))
    thread.start()
    assert began.wait(PATIENCE)
    assert talk.state.open is None
    converse(talk, 10, start=40)
    talk.context()
    assert talk.compact(writes("Third."), policy=quick()).applied
    goes_on.set()
    thread.join(PATIENCE)
    nothing_changes(talk, lambda: talk.take_draft(made[0]), StaleHandle, "Make another")
    assert counted(talk, DRAFTED) == 1, "what it cost is counted all the same"


def test_the_way_back_leads_to_the_summary_before_it_and_then_to_the_originals(talk: Session) -> None:
    second = talk.segments()[-1]
    opened = talk.take_draft(drafted(talk))
    assert talk.unfold().unfolds == (opened.number,)
    assert talk.context().summary == "Second: src/beta.py on port 9090, by order XK-42."
    talk.refold()
    assert talk.context().summary == "Again: src/gamma.py on port 9090."
    assert talk.unfold(second.number).unfolds == (second.number, opened.number)
    assert talk.context().summary == "First: src/alpha.py on port 8080."


def test_where_nothing_was_unfolded_the_summary_before_is_not_folded_again(talk: Session) -> None:
    talk.take_draft(drafted(talk))
    nothing_changes(talk, talk.refold, OnefoldError, "was unfolded")


def test_a_summary_that_was_written_again_is_written_again_of_the_same_messages(talk: Session) -> None:
    one, two = list[SummaryInput](), list[SummaryInput]()
    talk.take_draft(talk.draft_summary(writes("Again.", one), policy=quick()))
    talk.draft_summary(writes("And again.", two), policy=quick())
    assert [r.number for r in one[0].records] == [r.number for r in two[0].records] != []
    assert one[0].previous == two[0].previous == "First: src/alpha.py on port 8080."


def test_what_failed_or_was_refused_is_paid_for_and_changes_nothing(talk: Session) -> None:
    head = talk.head

    def fails(material: SummaryInput) -> str:
        raise SummarizerFailed("it is down", kind="unavailable", spent=PAID)

    with pytest.raises(SummarizerFailed, match="it is down"):
        talk.draft_summary(fails, policy=quick())
    with pytest.raises(SummarizerFailed):
        talk.draft_summary(writes("I'm sorry, but I cannot help with that."), policy=quick())
    records = [r.body for r in talk.read() if r.kind == DRAFTED]
    assert [r["refusal"] for r in records] == ["unavailable", "refusal"]
    assert [r["spent"]["calls"] for r in records] == [1, 1]
    assert talk.head == head


def test_what_is_not_for_onefold_to_summarise_again_is_said(store: Store, journal: Journal, session: Session) -> None:
    nothing_changes(session, lambda: drafted(session), OnefoldError, "nothing to summarise again")
    fold(journal, "all of it")
    other = store.session("o")
    draft = drafted(session)
    nothing_changes(other, lambda: other.take_draft(draft), OnefoldError, "was made for session 's'")
    review = session.fork("review", id="r")
    nothing_changes(review, lambda: drafted(review), CompactionDisabled, "does not compact")
    with pytest.raises(CompactionDisabled, match="switched off"):
        session.draft_summary(writes("Again."), policy=quick(enabled=False))
    session.set_compaction_owner("agent")
    nothing_changes(session, lambda: drafted(session), OnefoldError, "compacted by its agent")
    store.delete("s")
    with pytest.raises(SessionNotFound):
        session.take_draft(draft)


def test_a_fork_writes_its_parents_summary_again_for_itself(talk: Session) -> None:
    child = talk.fork(id="child")
    child.take_draft(drafted(child))
    assert child.context().summary == "Again: src/gamma.py on port 9090."
    assert talk.context().summary == "Second: src/beta.py on port 9090, by order XK-42."


def test_quotes_are_chosen_again_and_looked_at(store: Store, journal: Journal) -> None:
    session, goes_by = store.session("q"), Policy(tail_tokens=200)
    converse(session, 60, words=80)
    assert session.compact(writes("First."), policy=goes_by).changed
    before = session.context().quotes
    opened = session.take_draft(session.draft_summary(writes("Again: src/gamma.py."), policy=goes_by))
    assert session.context().quotes == before != ()
    assert opened.tokens_after == session.context().tokens
    beyond = Quotes((Quote(opened.cut, "/content", 0, 3, 1.0),))
    made = Summary("x")
    take = partial(summary_drafts.replaced, journal, "q", made, beyond, number=1, expect_head=opened.number, who=who())
    nothing_changes(session, take, OnefoldError, "not among the messages in view before its cut")


def test_an_erasure_leaves_nothing_of_a_summary_that_was_taken(talk: Session) -> None:
    talk.take_draft(drafted(talk, "They said that Ana is at the door, XK-42."))
    talk.erase(next(r.number for r in talk.read() if r.kind == "message"))
    assert "Ana" not in "".join(str(r.body) for r in talk.read())


def test_of_many_that_take_their_drafts_at_once_one_does(talk: Session, store: Store) -> None:
    drafts = [drafted(talk, f"Draft {n}: src/m{n}.py.") for n in range(6)]
    barrier, taken = threading.Barrier(6), list[int]()

    def take(draft: SummaryDraft) -> None:
        barrier.wait(PATIENCE)
        with suppress(StaleHandle, NotNow):
            taken.append(store.session("t").take_draft(draft).number)

    threads = [threading.Thread(target=take, args=(draft,)) for draft in drafts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(taken) == 1
    assert store.verify().findings == ()


@pytest.mark.anyio
async def test_the_same_awaited(talk: Session, store: Store) -> None:
    session = await aio.Store(store).session("t")

    async def model(material: SummaryInput) -> str:
        return "Awaited: src/epsilon.py."

    draft = await session.draft_summary(model, policy=quick())
    assert (await session.take_draft(draft)).cut == talk.segments()[-2].cut
    assert (await session.context()).summary == "Awaited: src/epsilon.py."


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_an_empty_or_enormous_summary_is_not_taken(talk: Session, journal: Journal) -> None:
    for text, why in (("  ", "is empty"), ("x" * ((1 << 20) + 1), "over the limit")):
        made = Summary(text)
        take = partial(
            summary_drafts.replaced, journal, talk.id, made, None, number=1, expect_head=talk.head, who=who()
        )
        nothing_changes(talk, take, OnefoldError, why)
