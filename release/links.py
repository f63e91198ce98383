"""Makes the links of the README absolute: on a package index a relative one leads nowhere.

Imports nothing of this project: the build runs it in an environment of its own.
"""

from __future__ import annotations

import re

_LINK = re.compile(r"(!?)(\[(?:[^\[\]]|\[[^\]]*\])*\])\((?!\w+:|#)([^)\s]+)\)")
"""Of an image or a link whose target is a path."""


def absolute_links(markdown: str, repository: str, ref: str) -> str:
    """The same text, with paths as addresses in the repository as of `ref`."""
    root = repository.rstrip("/")

    def absolute(link: re.Match[str]) -> str:
        image, text, path = link.groups()
        return f"{image}{text}({root}/{'raw' if image else 'blob'}/{ref}/{path})"

    return _LINK.sub(absolute, markdown)


def relative_links(markdown: str) -> list[str]:
    """The paths that a text links to."""
    return [link[3] for link in _LINK.finditer(markdown)]
