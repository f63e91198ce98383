"""Summaries by any endpoint that speaks as OpenAI's chat API does: OpenAI, Ollama, vLLM, OpenRouter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from onefold.compaction.prompt import Prompt
from onefold.errors import SummarizerFailed
from onefold.summarizers.cancellable_call import CancellableCall
from onefold.summarizers.model_summarizer import (
    Heard,
    ModelSummarizer,
    OptionDropped,
    Reason,
    ReportedUsage,
    StopReason,
)
from onefold.summarizers.provider_errors import classify
from onefold.summarizers.sdk import connected, place, secret

_KEY = "OPENAI_API_KEY"
_ENDS: dict[str, Reason] = {"stop": "done", "length": "length", "content_filter": "refused"}

_UNKNOWN = re.compile(r"support|unknown|unrecogni[sz]ed|unexpected|extra|not (permitted|allowed)", re.IGNORECASE)


@dataclass(frozen=True)
class OpenAISummarizer(ModelSummarizer):
    """Asks a model of OpenAI, or at `base_url` any other that is spoken to in the same way.

    Without `api_key`, OpenAI's is taken from the environment. A `base_url` gets no key but the one that is given here:
    the one in the environment is not meant for it.
    """

    package = "openai"

    model: str
    base_url: str | None = field(default=None, kw_only=True)
    api_key: str | None = field(default=None, kw_only=True, repr=False)
    _unknown: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    """Options that the endpoint turned out not to know."""

    @property
    def who(self) -> str:
        return place(self.model, self.base_url)

    @property
    def by(self) -> str:
        return self.model

    def says(self, prompt: Prompt, limit: int, line: CancellableCall) -> Iterator[Heard]:
        import openai

        options = self._options(limit)
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        with connected(openai, openai.OpenAI, self, line) as client:
            create: Any = client.chat.completions.create  # its overloads do not know which options are sent
            try:
                stream = create(model=self.model, messages=messages, stream=True, **options)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                self._learn(f"{error} {error.body}", options, error)
                raise
            with stream:
                for chunk in stream:
                    yield from _heard(chunk)

    def failure(self, error: Exception) -> SummarizerFailed:
        hidden = secret(self.api_key, self.base_url, _KEY)
        return classify(error, who=self.who, variable=_KEY, clock=self.clock, secret=hidden)

    def _options(self, limit: int) -> dict[str, Any]:
        """OpenAI's newer models know the length of an answer by another name than everybody else."""
        new, old = "max_completion_tokens", "max_tokens"
        name = old if (self.base_url is not None and old not in self._unknown) or new in self._unknown else new
        options: dict[str, Any] = {name: limit, "extra_body": dict(self.body)}
        if "stream_options" not in self._unknown:
            options["stream_options"] = {"include_usage": True}
        return options

    def _learn(self, words: str, options: dict[str, Any], error: Exception) -> None:
        """Raises `Adjusted` if the endpoint names an option that can be left out."""
        if not _UNKNOWN.search(words):
            return
        for name in ("stream_options", "max_tokens", "max_completion_tokens"):
            if name in words and name in options and name not in self._unknown:
                self._unknown.add(name)
                raise OptionDropped(name) from error


def _heard(chunk: Any) -> Iterator[Heard]:
    if (usage := getattr(chunk, "usage", None)) is not None:
        yield ReportedUsage(usage.prompt_tokens, usage.completion_tokens)
    for choice in getattr(chunk, "choices", None) or ():
        delta = choice.delta
        yield delta.content or ""
        if getattr(delta, "refusal", None):
            yield StopReason("refused", delta.refusal)
        elif choice.finish_reason and choice.finish_reason != "error":
            yield StopReason(_ENDS.get(choice.finish_reason, "done"))
