"""Summaries by Anthropic's models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from onefold.compaction.prompt import Prompt
from onefold.errors import SummarizerFailed
from onefold.summarizers.cancellable_call import CancellableCall
from onefold.summarizers.model_summarizer import Heard, ModelSummarizer, Reason, ReportedUsage, StopReason
from onefold.summarizers.provider_errors import classify
from onefold.summarizers.sdk import connected, place, secret

_KEY = "ANTHROPIC_API_KEY"
_ENDS: dict[str, Reason] = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refused"}


@dataclass(frozen=True)
class AnthropicSummarizer(ModelSummarizer):
    """Asks a model of Anthropic.

    Without `api_key`, it is taken from the environment. A `base_url` gets no key but the one that is given here: the
    one in the environment is not meant for it.
    """

    package = "anthropic"

    model: str
    base_url: str | None = field(default=None, kw_only=True)
    api_key: str | None = field(default=None, kw_only=True, repr=False)

    @property
    def who(self) -> str:
        return place(self.model, self.base_url)

    @property
    def by(self) -> str:
        return self.model

    def says(self, prompt: Prompt, limit: int, line: CancellableCall) -> Iterator[Heard]:
        import anthropic

        with (
            connected(anthropic, anthropic.Anthropic, self, line) as client,
            client.messages.create(
                model=self.model,
                system=prompt.system,
                messages=[{"role": "user", "content": prompt.user}],
                max_tokens=limit,
                stream=True,
                extra_body=dict(self.body),
            ) as stream,
        ):
            for event in stream:
                yield from _heard(event)

    def failure(self, error: Exception) -> SummarizerFailed:
        hidden = secret(self.api_key, self.base_url, _KEY)
        return classify(error, who=self.who, variable=_KEY, clock=self.clock, secret=hidden)


def _heard(event: Any) -> Iterator[Heard]:
    match getattr(event, "type", None):
        case "message_start":
            yield _usage(event.message.usage)
        case "content_block_delta" if event.delta.type == "text_delta":
            yield event.delta.text
        case "message_delta":
            yield _usage(event.usage)
            if event.delta.stop_reason:
                yield StopReason(_ENDS.get(event.delta.stop_reason, "done"), _why(event.delta))


def _usage(usage: Any) -> ReportedUsage:
    """Input that was read from a cache is input too."""
    given = [
        getattr(usage, n, None) for n in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    ]
    return ReportedUsage(None if given[0] is None else sum(g or 0 for g in given), usage.output_tokens)


def _why(delta: Any) -> str:
    return str(getattr(getattr(delta, "stop_details", None), "explanation", None) or "")
