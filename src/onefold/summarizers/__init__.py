"""Summarizers that ask a model, each an extra of this package: `onefold[openai]`, `onefold[anthropic]`."""

from onefold.summarizers.anthropic import AnthropicSummarizer
from onefold.summarizers.fallback import fallbacks
from onefold.summarizers.openai import OpenAISummarizer
from onefold.summarizers.summarizer_config import from_config

__all__ = ["AnthropicSummarizer", "OpenAISummarizer", "fallbacks", "from_config"]
