"""A hook of the site: a link out of docs/ leads nowhere there, so its text is shown without one."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:SECURITY\.md|CONTRIBUTING\.md|README\.md|src/[^)]*)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _OUTSIDE.sub(r"\1", markdown)
