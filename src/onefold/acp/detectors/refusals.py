"""Whether an answer to the command to compact says that nothing came of it.

Agents say so in words, and in many: what is looked for is a short answer that denies, or names a failure. A summary is
longer. If in doubt it is a refusal: a compaction that is missed does less harm than one that never was.
"""

from __future__ import annotations

import re

_LONGEST = 400
"""Characters; whoever says more than that has summarized something."""
_COMPACT = r"(?:compact|compress|condens|summari)\w*"
_DENIED = (
    r"(?:nothing|not|no need|too (?:short|small|few|little)|fail(?:ed|s|ure)?|unable|cannot|(?:ca|could|did|wo)n'?t"
    r"|abort(?:ed)?|cancel?led|skip(?:ped|ping)?|already|error|unnecessary|unsupported|unavailable|disabled)"
)
_REFUSED = re.compile(
    rf"\W*(?:error|fail(?:ed|ure)|unable|cannot|can't|could not|couldn't|nothing|no\b|not\b|unknown|invalid|usage:"
    rf"|sorry|there (?:is|are|was|were) (?:nothing|no|not))"
    rf"|.*?\b{_DENIED}\b[^.\n]{{0,80}}\b{_COMPACT}"
    rf"|.*?\b{_COMPACT}\b[^.\n]{{0,80}}\b{_DENIED}\b",
    re.IGNORECASE | re.DOTALL,
)


def refuses(answer: str) -> bool:
    """Whether a command's answer says that nothing was compacted."""
    said = answer.strip().replace("\u2019", "'")
    return 0 < len(said) <= _LONGEST and _REFUSED.match(said) is not None
