"""A hook of the build: the package's description is the README, with absolute links if pyproject.toml has the
repository's address (`project.urls.Repository`)."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VERSION = "src/onefold/version.py"


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        text = (root / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        if repository:
            version = re.search(r'^__version__ = "(.+)"$', (root / VERSION).read_text(encoding="utf-8"), re.MULTILINE)
            assert version is not None
            links = runpy.run_path(str(root / "release/links.py"))  # the root of the project is not importable here
            text = links["absolute_links"](text, repository, f"v{version[1]}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
