"""Each file is run by its name, where its framework is installed: see `make test-integrations`. One does without."""

from __future__ import annotations

from pathlib import Path

collect_ignore = [one.name for one in Path(__file__).parent.glob("test_*.py") if one.name != "test_loops.py"]
