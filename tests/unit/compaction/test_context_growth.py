"""Within a segment a context only grows at its end, whatever happens: so a provider's prompt cache holds, and reasoning
that is checked against what went before it is taken.

What is promised, of two contexts of one segment, the earlier one first: what stands before the tail is the same, byte
for byte; and so is everything up to the first call that still lacks a result. A result that comes later moves up to its
call, and takes the place of a made-up one. Without results, the earlier context is how the later one begins.
"""

from __future__ import annotations

import os
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

import onefold
from onefold import Context, OnefoldError, Policy, Session, Store
from onefold.messages import encode
from onefold.messages.tool_groups import legal_cuts
from onefold.model import Claim, Json, Segment
from tests.conftest import CountedIds, StoppedClock, who
from tests.support.histories import FORMATS, check

EXAMPLES = max(150, int(os.environ.get("ONEFOLD_STEPS", "0")) // 12)
KINDS = ["openai-chat", "anthropic", "openai-responses"]


class Talk:
    """A session to which everything happens that leaves a segment in force, and now and then a new one begins."""

    def __init__(self, store: Store, data: st.DataObject) -> None:
        self.journal = store.journal
        self.session: Session = store.session("s")
        self.data = data
        self.open: list[tuple[str, str]] = []
        self.made = 0

    def pick(self, some: Any) -> Any:
        return self.data.draw(st.sampled_from(list(some)))

    def say(self) -> None:
        format = self.pick(KINDS)
        role = self.pick(["user", "user", "assistant", "system"])
        self.made += 1
        self.session.append(FORMATS[format]["say"](role, self.pick(["", f"word {self.made}"])), format=format)

    def call(self) -> None:
        format = self.pick(KINDS)
        self.made += 2
        ids = [f"c{self.made - n}" for n in range(self.pick([1, 2]))]
        self.session.append(FORMATS[format]["call"]("I look.", ids), format=format)
        self.open += [(format, id) for id in ids]

    def answer(self) -> None:
        if self.open:
            format, id = self.open.pop(self.pick(range(len(self.open))))
            self.session.append(FORMATS[format]["results"]([id]), format=format)

    def note(self) -> None:
        self.made += 1
        self.session.note("rule", self.pick([f"rule {self.made}", ""]), key=self.pick(["a", "b"]))

    def number(self) -> int:
        return int(self.pick([r.number for r in self.session.read() if r.kind == "message"] or [1]))

    def pin(self) -> None:
        self.session.pin(self.number())

    def unpin(self) -> None:
        self.session.unpin(self.number())

    def prompt(self) -> None:
        self.made += 1
        self.session.append({"role": "system", "content": f"version {self.made}"}, slot="prompt")

    def ask(self) -> None:
        """A compaction that fails."""
        claim = self._claimed()
        self.journal.fail(claim, "no answer", None)

    def compact(self) -> None:
        """At any legal cut, keeping any message by name."""
        claim = self._claimed()
        head = self.session.segments()[-1]
        said = [(r.number, r.header) for r in self.session.read(head.cut, claim.fence) if r.kind == "message"]
        seen = [(n, h) for n, h in said if h and not any(a <= n <= b for a, b in head.hidden)]
        cuts = [n for n in legal_cuts(seen) if n > head.cut]
        if not cuts:
            self.journal.fail(claim, "no cut", None)
            return
        cut = self.pick([*cuts, *([claim.fence] if not self.open else [])])
        before = [n for n, h in seen if n < cut and h.role in ("user", "system")]
        kept = self.data.draw(st.lists(st.sampled_from(before), max_size=2, unique=True)) if before else []
        self.journal.commit(claim, f"A summary up to {cut}.", cut, kept=sorted(kept))
        self.session.context()

    def undo(self) -> None:
        self.session.undo()
        self.open = []

    def _claimed(self) -> Claim:
        self.journal.request("s")
        claim = self.journal.claim("s", who())
        assert isinstance(claim, Claim)
        return claim


STEPS = ["say"] * 5 + ["call", "call", "answer", "answer", "answer", "note", "note", "pin", "pin", "pin", "unpin"]
STEPS += ["prompt", "ask", "compact", "compact", "undo"]


def is_result(body: Json) -> bool:
    content = body.get("content")
    blocks = content if isinstance(content, list) else []
    return (
        body.get("role") == "tool"
        or body.get("type") == "function_call_output"
        or any(isinstance(b, dict) and b.get("type") == "tool_result" for b in blocks)
    )


def front_of(context: Context, segment: Segment) -> int:
    """How many messages stand before the tail. Older ones also stand in it, where they were pinned since."""
    return next((at for at, n in enumerate(context.numbers) if n >= segment.cut and n != segment.number
                 and n not in context.prompt), len(context.numbers))  # fmt: skip


def steady(context: Context) -> int:
    """How many messages stand before the first call that has a made-up result, or none."""
    due = [
        at for at, (n, b) in enumerate(zip(context.numbers, context.messages, strict=True)) if n == 0 and is_result(b)
    ]
    calls = [at for at, b in enumerate(context.messages) if calls_of(b) - results_of(context.messages[at + 1 :])]
    return min([*due, *calls, len(context.messages)])


def calls_of(body: Json) -> set[str]:
    content = body.get("content")
    blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    found = {c["id"] for c in body.get("tool_calls") or ()} | {b["id"] for b in blocks if b.get("type") == "tool_use"}
    return found | ({body["call_id"]} if body.get("type") == "function_call" else set())


def results_of(messages: list[Json]) -> set[str]:
    found: set[str] = set()
    for body in messages:
        content = body.get("content")
        blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
        found |= {b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"}
        found |= {str(body["tool_call_id"])} if body.get("role") == "tool" else set()
        found |= {str(body["call_id"])} if body.get("type") == "function_call_output" else set()
    return found


def grew(before: Context, after: Context, segment: Segment) -> None:
    was, now = [encode(m) for m in before.messages], [encode(m) for m in after.messages]
    front = front_of(before, segment)
    assert now[:front] == was[:front], "what stands before the tail"
    same = max(front, steady(before))
    assert now[:same] == was[:same], "what stands before the first call that lacks a result"
    spoken = [encode(m) for m in before.messages if not is_result(m)]
    assert [encode(m) for m in after.messages if not is_result(m)][: len(spoken)] == spoken, "everything that was said"


@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_within_a_segment_a_context_only_grows_at_its_end(data: st.DataObject) -> None:
    with onefold.open("memory:", policy=Policy(tail_tokens=0), clock=StoppedClock(), ids=CountedIds()) as store:
        talk = Talk(store, data)
        talk.session.append({"role": "system", "content": "You are an agent."})
        contexts: dict[int, Context] = {}
        for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=4, max_size=24)):
            try:
                getattr(talk, step)()
            except OnefoldError:
                continue  # nothing to undo, a pin of a call that waits: refused, and nothing written
            for segment in talk.session.segments():
                context = talk.session.context(segment=segment.number)
                if segment.number in contexts:
                    grew(contexts[segment.number], context, segment)
                contexts[segment.number] = context
            check(talk.session.context())


# ---------------------------------------------------------------------- reasoning


class Thinking(Talk):
    """A model that signs what it thinks with what it was sent, as a provider does that checks it."""

    def answer_to(self, *, calls: bool) -> None:
        context = self.session.context()
        self.made += 1
        thought = {"type": "thinking", "thinking": "hm", "signature": sealed(context.to("anthropic"))}
        use = {"type": "tool_use", "id": f"c{self.made}", "name": "read", "input": {}}
        said = use if calls else {"type": "text", "text": f"answer {self.made}"}
        self.session.append({"role": "assistant", "content": [thought, said]}, format="anthropic")

    def turn(self) -> None:
        """A question, calls of tools that note or pin something while they run, and an answer."""
        self.made += 1
        self.session.append({"role": "user", "content": f"question {self.made}"}, format="anthropic")
        for _ in range(self.pick([0, 1, 2])):
            self.answer_to(calls=True)
            id = f"c{self.made}"
            self.meanwhile()
            self.session.append(FORMATS["anthropic"]["results"]([id]), format="anthropic")
            self.meanwhile()
        self.answer_to(calls=False)

    def meanwhile(self) -> None:
        try:
            getattr(self, self.pick(["note", "pin", "unpin", "prompt", "ask", "compact", "pass_by"]))()
        except OnefoldError:
            return

    def pass_by(self) -> None:
        """Nothing happens."""


def sealed(messages: list[Json]) -> str:
    return encode(messages)


@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_reasoning_is_sent_back_behind_just_what_it_was_thought_behind_or_not_at_all(data: st.DataObject) -> None:
    with onefold.open("memory:", policy=Policy(tail_tokens=0), clock=StoppedClock(), ids=CountedIds()) as store:
        talk = Thinking(store, data)
        talk.session.append({"role": "system", "content": "You are an agent."})
        for step in data.draw(st.lists(st.sampled_from(["turn", "turn", "meanwhile", "undo"]), min_size=2, max_size=8)):
            try:
                getattr(talk, step)()
            except OnefoldError:
                continue
            context = talk.session.context()
            told = context.to("anthropic")
            for at, message in enumerate(told):
                for block in message["content"] if isinstance(message["content"], list) else ():
                    if block.get("type") == "thinking":
                        assert block["signature"] == sealed(told[:at])
            for number, body in zip(context.numbers, context.messages, strict=True):
                if body["role"] == "assistant":
                    thinks = any(block["type"] == "thinking" for block in body["content"])
                    assert thinks == (number > context.segment), "all of it, never some"
