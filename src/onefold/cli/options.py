"""What commands have in common: which store, which session, and in which form to answer."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

import onefold
from onefold.errors import OnefoldError, StoreError
from onefold.storage.locations import data_folder

StoreOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--store", metavar="STORE", help="The store. Without it: see `onefold --help`.", show_default=False),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
SessionArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="SESSION", help="The session's id.", show_default=False)
]


WindowOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--window",
        min=1,
        metavar="TOKENS",
        help="What a model takes, where a session does not say. Without it: [limits] in the config file, else unknown.",
        show_default=False,
    ),
]


SummarizerOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--summarizer",
        metavar="KIND",
        help="Who writes the summary: extract, openai, anthropic, or a name in the config.",
    ),
]
ModelOption: TypeAlias = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="The model that writes the summary.")
]


class WrongUse(OnefoldError):
    """The command was called with invalid arguments."""


def open_store(given: str | None) -> onefold.Store:
    """Opens the store a command works on. No command makes one by accident."""
    address = locate(given)
    if address == "memory:":
        raise StoreError("a store in memory is seen by its own process only; name a file with --store")
    return onefold.open(address, create=False)


def locate(given: str | None) -> str:
    """The address of the store: option, environment, config file, default."""
    address = given or os.environ.get("ONEFOLD_STORE") or _configured()
    return address or str(default_store())


def default_store() -> Path:
    """Where the store is if nobody says otherwise."""
    return data_folder() / "onefold.db"


def config_path() -> Path:
    """Where the config file is, if there is one."""
    named = os.environ.get("ONEFOLD_CONFIG")
    return Path(named) if named else _home("XDG_CONFIG_HOME", ".config") / "onefold" / "config.toml"


def settings() -> dict[str, Any]:
    """What the config file says; nothing if there is none."""
    path = config_path()
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if os.environ.get("ONEFOLD_CONFIG"):
            raise WrongUse(f"the config file {path}, named by ONEFOLD_CONFIG, does not exist") from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise WrongUse(f"the config file {path} cannot be read: {error}") from None


def policy(window: int | None) -> onefold.Policy:
    """What to go by where a session's own record does not say: the option, else `[limits]` in the config file. Nobody
    guesses: where neither says anything, a session's window is unknown."""
    if window is not None:
        return onefold.Policy(window=window)
    section = settings().get("limits")
    if section is None:
        return onefold.Policy()
    if not isinstance(section, dict) or not set(section) <= {"window", "output", "soft", "hard"}:
        raise WrongUse(
            f"the config file {config_path()} says limits = {section!r}; make it a section [limits] with window, and "
            "if you like output, soft and hard"
        )
    try:
        usual = onefold.Policy(window=section["window"]).of()
        return onefold.Policy(limits=onefold.Limits(**{"output": usual.output, **section}))
    except (KeyError, TypeError, ValueError) as error:
        what = "window is missing" if isinstance(error, KeyError) else error
        raise WrongUse(f"[limits] in the config file {config_path()}: {what}") from None


def _configured() -> str | None:
    path = config_path()
    store = settings().get("store")
    if store is None:
        return None
    if not isinstance(store, str) or not store:
        raise WrongUse(f'the config file {path} says store = {store!r}; write a path in quotes: store = "agent.db"')
    if re.match(r"[a-z]{2,}:", store):
        return store
    # A relative path is meant from where the file lies: the command may be run anywhere.
    return str(path.absolute().parent / Path(store).expanduser()) + ("/" if store.endswith("/") else "")


def _home(variable: str, default: str) -> Path:
    """A folder by the XDG rules, which ignore a relative path."""
    named = os.environ.get(variable, "")
    return Path(named) if Path(named).is_absolute() else Path.home() / default
