"""Quotes beside what is much too large for them: they stay within their room, and nobody is sent more than a model
takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import onefold
from onefold import Compactor, Context, Limits, Policy, Session
from onefold.messages.codecs import estimate
from onefold.model import Json
from tests.support.quoted import body_of, forgetful, quoted, work

LIMITS = Limits(window=128_000)
POLICY = Policy(limits=LIMITS, backoff=(0.0,))
RULE = "Never push to main, whatever happens."
_MEGABYTE = "Some words of a page that somebody pasted, and one more. "


def said(content: Json) -> Json:
    return {"role": "user", "content": content}


def _megabyte() -> list[Json]:
    return [said(_MEGABYTE * (1_000_000 // len(_MEGABYTE)))]


def _short_messages() -> list[Json]:
    return [said(f"And message number {n} says so.") for n in range(10_000)]


def _lines() -> list[Json]:
    return [said("\n".join(f"line {n}" for n in range(100_000)))]


def _parts() -> list[Json]:
    return [said([{"type": "text", "text": f"part {n}"} for n in range(100_000)])]


LARGE: dict[str, Callable[[], list[Json]]] = {
    "a megabyte": _megabyte, "short messages": _short_messages, "lines": _lines, "parts": _parts,
}  # fmt: skip


def check(session: Session, context: Context) -> None:
    """What a context quotes is within its room, by what is written there and by what the segment says."""
    size, body = estimate(quoted(context)), body_of(session, context.segment)
    assert 0 < size <= body["room"] <= min(POLICY.quote_tokens, LIMITS.window // 8, body["covers"] // 4)
    assert context.tokens <= LIMITS.hard_tokens


@pytest.mark.parametrize("large", LARGE)
def test_whatever_is_pasted_quotes_stay_within_their_room_and_contexts_within_the_hard_limit(large: str) -> None:
    with onefold.open("memory:", summarizer=forgetful, policy=POLICY) as store:
        session, compactor = store.session("s"), Compactor(store)
        session.append([said(RULE), *LARGE[large]()])
        for _ in range(3):
            work(session, 40)

            assert compactor.compact_now(session).applied

            sent = compactor.before_turn(session)
            check(session, sent)
        assert RULE in quoted(sent) or large == "short messages"


def test_what_was_just_pasted_and_is_too_large_for_the_model_is_sent_to_nobody() -> None:
    with onefold.open("memory:", summarizer=forgetful, policy=POLICY) as store:
        session, compactor = store.session("s"), Compactor(store)
        session.append(said(RULE))
        work(session, 40)
        session.append(_megabyte())

        with pytest.raises(onefold.ContextTooLarge, match="over the"):
            compactor.before_turn(session)
