"""`make release`: builds dist/ again, checks it, and says what to upload."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from onefold.version import __version__
from release.checks import find_problems

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    _run("build", "--outdir", str(DIST), str(ROOT))  # the wheel is built from the sdist, so both are tried
    files = sorted(DIST.iterdir())
    _run("twine", "check", "--strict", *map(str, files))

    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size:,} bytes  sha256 {digest}")
    problems = [p for wheel in DIST.glob("*.whl") for p in find_problems(wheel, ROOT, __version__)]
    if problems:
        print("\nNot ready to upload:", *problems, sep="\n- ", file=sys.stderr)
        return 1
    print(f"\nReady, and nothing was uploaded. The README's links lead to the tag v{__version__}, so push it first:")
    print(f"    git tag v{__version__} && git push origin v{__version__}")
    print(f"    .venv/bin/python -m twine upload {' '.join(str(f.relative_to(ROOT)) for f in files)}")
    return 0


def _run(module: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
