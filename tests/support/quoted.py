"""Sessions whose quotes are known."""

from __future__ import annotations

from onefold import Context, Session, SummaryInput
from onefold.model import Json
from tests.support.helpers import quick

QUOTING = quick(quote_tokens=2_000)


def forgetful(material: SummaryInput) -> str:
    return f"They talked, up to message {material.records[-1].number}."


def work(session: Session, times: int = 4) -> None:
    """What agents mostly do: much of their own words for few of people's."""
    for n in range(times):
        session.append([
            {"role": "user", "content": "Go on with it, please."},
            {"role": "assistant", "content": f"This is what was done in step {n}, in full: " + "and so on " * 120},
        ])  # fmt: skip


def folded(session: Session, *spoken: str) -> Context:
    """Says something, then much else, and compacts it away with a summarizer that forgets it."""
    if spoken:
        session.append([{"role": "user", "content": text} for text in spoken])
    work(session)
    result = session.compact(forgetful)
    assert result.applied, result.cause
    context = session.context()
    assert context.tokens == session.state.tokens
    return context


def quoted(context: Context) -> str:
    """The one message that quotes; nothing if there is none."""
    found = [m["content"] for n, m in zip(context.numbers, context.messages, strict=True) if n == 0]
    told = [text for text in found if isinstance(text, str) and text.startswith("[Quoted")]
    assert len(told) <= 1
    return "".join(told)


def body_of(session: Session, segment: int) -> dict[str, Json]:
    (record,) = session.read(segment, segment + 1)
    return dict(record.body)
