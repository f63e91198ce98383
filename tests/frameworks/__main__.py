"""Runs each framework's tests and type checks with its own Python:

    python -m tests.frameworks [--lowest] [NAME…] [-- OPTIONS]

With `--lowest` the tests run with the oldest versions that the extras of this project allow. Types are checked with the
newest alone: they are finer there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from tests.frameworks.environments import FRAMEWORKS, ROOT, CannotInstall, Framework, install, lowest

_OLD = ("-W", "ignore::DeprecationWarning", "-W", "ignore::UserWarning")
"""What is old calls what is deprecated since, and warns of what it tries out: its own affair."""


def main(arguments: Sequence[str]) -> int:
    names, options = _split(arguments)
    oldest = "--lowest" in names
    names = [name for name in names if name != "--lowest"]
    if unknown := sorted({*names} - {*FRAMEWORKS}):
        print(f"no framework {', '.join(unknown)}; there are: {', '.join(FRAMEWORKS)}", file=sys.stderr)
        return 2
    chosen = [FRAMEWORKS[name] for name in names or FRAMEWORKS]
    came = {f.name: _tried(lowest(f) if oldest else f, options) for f in chosen}
    for name, said in came.items():
        print(f"{name}: {said or 'passed'}")
    failed = sum(1 for said in came.values() if said)
    print(f"frameworks: {len(came) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _tried(framework: Framework, options: Sequence[str]) -> str:
    """What is wrong with a framework's tests; nothing if they pass."""
    print(f"== {framework.name}: {' '.join(framework.packages)}", flush=True)
    try:
        install(framework)
    except CannotInstall as error:
        return str(error)
    python = str(framework.python)
    wrong = []
    tests = [
        python,
        "-m",
        "pytest",
        "--confcutdir",
        str(framework.test.parent),
        *(_OLD if framework.lowest else ()),
        str(framework.test),
        *options,
    ]
    if subprocess.run(tests, cwd=ROOT, check=False).returncode:
        wrong.append("its tests failed")
    if framework.lowest:
        return " and ".join(wrong)
    cache = f"--cache-dir={framework.folder / '.mypy_cache'}"
    if subprocess.run([python, "-m", "mypy", cache, *framework.typed], cwd=ROOT, check=False).returncode:
        wrong.append("its types do not fit")
    return " and ".join(wrong)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    given = list(arguments)
    at = given.index("--") if "--" in given else len(given)
    return given[:at], given[at + 1 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
