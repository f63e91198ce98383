"""`onefold init`: a new store, and the config file that names it."""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import Annotated

import typer

import onefold
from onefold.cli.options import JsonOption, StoreOption, WrongUse, config_path, default_store, locate
from onefold.cli.output import as_json, refuse, safe, say
from onefold.errors import StoreError
from onefold.messages import encode
from onefold.storage.locations import OWN, is_folder, path_of
from onefold.storage.permissions import make_folder, new_text

_FOR_A_GROUP = stat.S_ISGID | stat.S_IRWXG

_CONFIG = """\
# Settings of onefold. An option or a variable goes before what stands here; see `onefold --help`.

# The store that commands work on if neither --store nor ONEFOLD_STORE names one.
# A relative path is meant from where this file lies.
store = {store}
"""


def command(
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="Where to make the store.", show_default=False)
    ] = None,
    config: Annotated[bool, typer.Option("--config", help="Write a config file that names the store.")] = False,
    group: Annotated[bool, typer.Option("--group", help="Let the group of its files use it as well.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Makes a store, so that commands and agents can use it.

    Prints what was made and what to do next. Without PATH it makes the store that every command would use; see
    `onefold --help`. With --config it also writes the config file, unless there is one. It overwrites nothing: what is
    there stays as it is, and if nothing is left to make, the exit code is 1.

    A store is for its owner alone, whatever the umask: files have mode 600. With --group it is for the group of its
    folder too (660), and so is every sidecar file that is created later.

    \b
    Examples:
      onefold init agent.db
      onefold init --config
    """
    if path is not None and store is not None:
        raise WrongUse("PATH and --store both name the store; give one of them")
    settings = config_path()
    address = _address(path or store, settings if config else None)
    made = _make(address, group=group)
    wrote = config and _write(settings, address)
    if json:
        names = {"store": address, "made": made, "config": str(settings) if config else None, "config_made": wrote}
        as_json(names)
        raise SystemExit(0 if made or wrote else 1)
    there = f"{address} is a store already"
    if not made and not wrote:
        also = f", and {settings} a config file" if config else ""
        refuse(f"{there}{also}; nothing was written, init overwrites nothing")
    say(f"made the store {safe(address)}" if made else f"{safe(there)}; it stays as it is")
    if wrote:
        say(f"wrote the config file {safe(str(settings))}, which names it")
    elif config:
        say(f"{safe(str(settings))} is there already, and stays as it is", style="yellow")
    if group and made:
        _print_group(path_of(address))
    _print_next(address)


def _address(given: str | None, settings: Path | None) -> str:
    """The store to make. A config file that is about to be written need not be there yet."""
    if given is None and not os.environ.get("ONEFOLD_STORE") and settings is not None and not settings.exists():
        return str(default_store())
    return locate(given)


def _make(address: str, *, group: bool) -> bool:
    """Makes the store, unless it is there. True if it was not."""
    if address == "memory:":
        raise StoreError("a store in memory is seen by its own process only; name a file")
    file = path_of(address)
    there = file.joinpath(OWN).is_dir() if is_folder(address) else file.exists()
    if file == default_store():
        make_folder(file.parent)  # of any other path, a missing folder is more likely a mistake
    onefold.open(address, create=not there, group=group and not there).close()
    return not there


def _write(settings: Path, address: str) -> bool:
    """Writes the config file, unless there is one. True if there was none."""
    store = f"{path_of(address).absolute()}{'/' if is_folder(address) else ''}"
    try:
        make_folder(settings.parent)
        with new_text(settings) as file:
            file.write(_CONFIG.format(store=_quoted(store)))
    except FileExistsError:
        return False
    return True


def _print_group(file: Path) -> None:
    """What is left to do for a group: SQLite recreates its log, and the folder decides which group owns it."""
    folder = file if file.is_dir() else file.absolute().parent
    if folder.stat().st_mode & _FOR_A_GROUP == _FOR_A_GROUP:
        return
    name = safe(shlex.quote(str(folder)))
    say(f"its group cannot use it yet: chgrp GROUP {name} && chmod 2770 {name}", style="yellow")


def _quoted(text: str) -> str:
    """A string of TOML, which is one of JSON but for a sign that JSON leaves alone."""
    if re.search("[\ud800-\udfff]", text):
        raise WrongUse(f"a config file cannot name the store {text!r}, whose path is not UTF-8")
    return encode(text).strip().replace("\x7f", "\\u007f")


def _print_next(address: str) -> None:
    option = "" if _is_usual(address) else f" --store {safe(shlex.quote(address))}"
    say("next:")
    say(f'  in a program    onefold.open("{safe(address)}")')
    say(f"  from an export  onefold import FILE{option}")
    say(f"  what is in it   onefold sessions{option}")


def _is_usual(address: str) -> bool:
    try:
        return locate(None) == address
    except WrongUse:
        return False
