"""Whatever happens to a session in which items of a provider's are adopted: every context is one that its provider
takes, nothing is sent twice, and nothing of the past is missing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onefold
from onefold import Context, OnefoldError, Origin, Session
from onefold.journal import adoption
from onefold.messages.provider_item import item
from onefold.model import Json
from tests.conftest import CountedIds, StoppedClock
from tests.support.helpers import quick
from tests.support.histories import EXAMPLES, STEPS, Lives, check
from tests.support.provider_rules import RULES

SEAL = "gAAAAAB" + "Zk9x" * 40
SUMMED = "What the provider made of it."
WHO = {"anthropic": Origin("anthropic"), "openai-responses": Origin("openai"), "pydantic-ai": Origin("elsewhere")}


def made(format: str, rest: bool) -> Json:
    """An answer with an item, alone or with words behind it."""
    if format == "openai-responses":
        return {"type": "compaction", "encrypted_content": SEAL}
    if format == "anthropic":
        words = [{"type": "text", "text": "So I go on."}] if rest else []
        return {"role": "assistant", "content": [{"type": "compaction", "content": SUMMED}, *words]}
    words = [{"part_kind": "text", "content": "So I go on."}] if rest else []
    sealed = {"part_kind": "compaction", "provider_details": {"encrypted_content": SEAL}}
    return {"kind": "response", "parts": [sealed, *words]}


class Adopting(Lives):
    """The same, with a provider that compacts."""

    def adopt(self) -> None:
        format = self.pick([f for f in WHO if f in self.formats] or WHO)
        origin = WHO[format]
        sent = self.session.context(origin=origin)
        sends = [*sent.numbers, *sent.left_out]
        if self.pick([True, False]):
            self.say()  # while it was made
        elif self.pick([True, False]):
            sends = [n for n in sends if n != self.number()]
        again = []
        if format == "openai-responses" and self.pick([True, False]):
            spoken = [m for m in sent.to(format) if m.get("role") == "user"]
            again = [*self.session.append(spoken, format=format).numbers] if spoken else []
        (number,) = self.session.append(made(format, self.pick([True, False])), format=format).numbers
        self.session.adopt(*again, number, origin=origin, covers=sends)

    def adopt_older(self) -> None:
        """What came some time ago, by anybody who looked then."""
        items = [r.number for r in self.session.read() if r.kind == "message" and item(r.format, r.body)]
        if items:
            self.session.adopt(self.pick(items), origin=self.pick(WHO.values()), covers=range(1, self.number() + 1))

    def mask(self) -> None:
        self.session.mask(*(r.number for r in self.session.read() if r.kind == "message"))

    def unfold(self) -> None:
        segments = [s.number for s in self.session.segments() if s.source in ("provider", "compaction", "masked")]
        self.session.unfold(self.pick([None, *segments]))


def visible(session: Session) -> set[int]:
    hidden = session.segments()[-1].hidden
    said = [r.number for r in session.read() if r.kind == "message"]
    return {n for n in said if not any(a <= n <= b for a, b in hidden)}


def whole(session: Session, context: Context, covered: set[int]) -> None:
    """All that is in view is told, or stood for; nothing is told twice."""
    told = [n for n in context.numbers if n]
    assert len(told) == len({*told}), "nothing is sent twice"
    missing = visible(session) - {*told, *context.left_out} - covered
    assert not missing, f"{missing} of the past is missing"


def judge(session: Session) -> None:
    head = session.segments()[-1]
    plain = session.context()
    check(plain)
    assert plain.item == ()
    stood_for = set(range(1, head.cut)) if plain.summary is not None else set[int]()
    whole(session, plain, stood_for)
    for format, origin in WHO.items():
        context = session.context(origin=origin)
        if not context.item:
            assert context == plain
            continue
        wrong = RULES[format](context.to(format)).wrong
        assert wrong == [], f"{wrong}: {context.to(format)}"
        found = session.journal.backend.read(lambda tx: adoption.in_force(tx, session.id, head))
        assert found is not None
        whole(session, context, {n for n in range(1, found.cut) if found.covered(n)})
        assert {*found.window} <= {*context.numbers}
        assert not [
            n for n in context.numbers if n and found.covered(n) and n not in {*context.prompt, *context.pinned}
        ]
    assert SEAL not in str(plain.to("openai-chat"))


@pytest.mark.parametrize(
    "formats", [["anthropic"], ["openai-responses"], ["pydantic-ai"], ["anthropic", "openai-responses"]], ids="+".join
)
@given(data=st.data())
@settings(max_examples=EXAMPLES // 4)
def test_a_context_with_an_item_is_whole_and_one_that_its_provider_takes(
    formats: list[str], data: st.DataObject
) -> None:
    with onefold.open("memory:", policy=quick(), clock=StoppedClock(), ids=CountedIds()) as store:
        life = Adopting(store, data, formats)
        steps = [
            *(s for s in STEPS if s != "show"),
            *["adopt"] * 5,
            "adopt_older",
            "mask",
            "unfold",
            "undo",
            "rewind",
            "redo",
        ]
        for step in data.draw(st.lists(st.sampled_from(steps), min_size=3, max_size=14)):
            try:
                getattr(life, step)()
            except OnefoldError:
                life.session.context()
            judge(life.session)
        assert store.verify().healthy
