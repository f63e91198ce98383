"""How large a context is, in a model's own tokens: an extra, since a vocabulary weighs more than the rest of onefold.

Without it sizes are estimates, four bytes a token, which the figures of the provider correct.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from onefold.compaction.context import Context
from onefold.messages import codec
from onefold.messages.codecs import estimate

Counter: TypeAlias = Callable[[str], int]
"""How many tokens a text has."""


def counter(vocabulary: str) -> Counter:
    """Counts in a vocabulary by its name, such as "o200k_base", "llama3" or "qwen3", without the network."""
    try:
        from splintr import Tokenizer  # 70 ms and 20 MB that a caller who estimates need not pay
    except ModuleNotFoundError as missing:
        raise ImportError(
            f"counting in {vocabulary!r} needs splintr-rs, which is an extra: pip install 'onefold[tokens]'; "
            "without it sizes are estimated"
        ) from missing
    tokenizer = Tokenizer.from_pretrained(vocabulary)

    def count(text: str) -> int:
        return len(tokenizer.encode_ordinary(text.encode("utf-8", "replace").decode()))

    return count


def counted(context: Context, count: Counter | None) -> int:
    """A context's size: what is text is counted, and pictures and what is around a message are estimated."""
    if count is None:
        return context.tokens
    size = context.tokens
    for name, body in zip(context.formats, context.messages, strict=True):
        text = codec(name).text(body)
        size += count(text) - estimate(text)
    return size
