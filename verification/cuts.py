"""Real power cuts: a file system on a loop device is shut down at once, without writing out its log, and mounted again.

Needs root, loop devices and ext4. Where the machine has none of these, `why_not` says so, and so does the report.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import onefold
from onefold.errors import OnefoldError

_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_SIZE = 64 << 20


@dataclass(slots=True)
class Cut:
    """What a power cut left."""

    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: str | None = None


def why_not() -> str | None:
    """Why no power can be cut on this machine; None if it can."""
    if os.geteuid() != 0:
        return "only root may mount a file system and shut it down"
    for tool in ("mkfs.ext4", "mount", "umount", "losetup"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here"
    try:
        with tempfile.TemporaryDirectory() as folder, _mounted(Path(folder)) as (_, place):
            _cut(place)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"it did not work: {error}"
    return None


@contextmanager
def disk() -> Iterator[tuple[Path, Path]]:
    """A small file system of its own: its image, and where it is mounted."""
    with tempfile.TemporaryDirectory() as folder, _mounted(Path(folder)) as found:
        yield found


@contextmanager
def _mounted(folder: Path) -> Iterator[tuple[Path, Path]]:
    image, place = folder / "disk", folder / "mounted"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(_SIZE)
    _run("mkfs.ext4", "-q", "-F", "-b", "4096", str(image))
    _mount(image, place)
    try:
        yield image, place
    finally:
        _run("umount", str(place), check=False)


def _mount(image: Path, place: Path) -> None:
    _run("mount", "-o", "loop", str(image), str(place))


def _cut(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
    finally:
        os.close(handle)


def _run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True)


def once(image: Path, place: Path, chance: random.Random, *, files: bool = False) -> Cut:
    """Writers at work, a cut in the middle, and what is there after it."""
    found = Cut()
    name = f"agent-{chance.getrandbits(32):08x}"
    store = f"{place}/{name}/" if files else f"{place}/{name}.db"
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "verification.cuts", store, writer], stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parent.parent,
        )
        for writer in ("one", "two")
    ]  # fmt: skip
    heard: list[str] = []
    enough, after = threading.Event(), chance.randrange(5, 120)

    def listen(lines: Iterator[str]) -> None:
        for line in lines:
            heard.append(line.removesuffix("\n"))
            if len(heard) >= after:
                enough.set()
        enough.set()

    ears = [threading.Thread(target=listen, args=(w.stdout,), daemon=True) for w in writers]
    for ear in ears:
        ear.start()
    enough.wait(60)
    promised = list(heard)  # only what was acknowledged before the power went
    _cut(place)
    for writer in writers:
        writer.kill()
        writer.wait()
    for ear, writer in zip(ears, writers, strict=True):
        ear.join()
        if writer.stdout is not None:
            writer.stdout.close()
    _run("umount", str(place))
    _mount(image, place)
    found.acknowledged = len(promised)
    try:
        with onefold.open(store, create=False) as opened:
            there = {r.body["content"] for r in opened.session("s").read() if r.kind == "message"}
            found.lost = [said for said in promised if said not in there]
            if not opened.verify().healthy:
                found.wrong = "its derived rows are not what the journal says"
            opened.session("s").append({"role": "user", "content": "after"})
    except OnefoldError as error:
        found.wrong = str(error)
    for left in place.glob(f"{name}*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    return found


def rounds(count: int, seed: int, each: Callable[[Cut], None], *, files: bool = False) -> None:
    chance = random.Random(seed)
    with disk() as (image, place):
        for _ in range(count):
            each(once(image, place, chance, files=files))


def write(path: str, name: str) -> None:
    """A writer's whole life: messages, compactions, turns, and a line on stdout for each message that was promised."""
    try:
        with onefold.open(path, policy=onefold.Policy(tail_tokens=200, tail_messages=1)) as store:
            session = store.session("s")
            for n in range(1_000_000):
                content = f"{name} {n} " + "x" * (n * 37 % 900)
                session.append({"role": "user", "content": content})
                sys.stdout.write(content + "\n")
                sys.stdout.flush()
                if n % 20 == 19:
                    session.compact(wait=False)
    except (OnefoldError, OSError):
        return


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2])
