"""How a person gets into a server that was just started: by a login link on a terminal, or by a token."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, TypeAlias

import typer

from onefold.cli.output import line_on_stderr
from onefold.humanize import count
from onefold.server.security.host_check import is_loopback
from onefold.server.security.login_links import LIFE, LoginLinks, login_link, person
from onefold.server.security.tokens import Tokens, link

if TYPE_CHECKING:
    from onefold.server.settings import Settings

OpenOption: TypeAlias = Annotated[bool, typer.Option("--open", help="Open the page in a browser, signed in.")]


class SignIn:
    """Of one start of a server. What is printed to a pipe may be kept by a log, so a login link is for a terminal
    alone, and for a server that only this machine reaches."""

    def __init__(self, tokens: Tokens, settings: Settings, *, printed: TextIO, opens: bool = False) -> None:
        self._tokens = tokens
        self._opens = opens
        self._on_terminal = printed.isatty()
        self._file: Path | None = None
        local = is_loopback(settings.host) and settings.proxy is None and not settings.proxies
        self.links = LoginLinks(tokens, person()) if local and (self._on_terminal or opens) else None

    def tell(self, url: str, say: Callable[[str], None]) -> None:
        """Prints how to get in, and opens the page if that was asked for."""
        if self.links is not None and self._on_terminal:
            say(f"open {login_link(url, self.links.new())}")
            say(f"it signs you in once, within {count(int(LIFE // 60), 'minute')}; each start prints another")
        elif self.links is None and (secret := self._tokens.first()) is not None:
            say(f"open {link(url, secret)}")
            say("this link is shown once; `onefold token` makes more")
        if self._opens:
            self._open(url)

    def _open(self, url: str) -> None:
        """In a thread: a browser may take its time, and some end only when they are closed."""
        if not _can_open():
            line_on_stderr("there is no browser to open here; open the address above in one")
            return
        place = url if self.links is None else self._handed_over(login_link(url, self.links.new()))
        threading.Thread(target=webbrowser.open, args=(place,), name="onefold-browser", daemon=True).start()

    def _handed_over(self, address: str) -> str:
        """A file for this user alone that leads there: everybody here can see what programs are started with."""
        descriptor, name = tempfile.mkstemp(prefix="onefold-", suffix=".html")  # made with mode 600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f'<!doctype html><title>onefold</title><meta http-equiv="refresh" content="0; url={address}">\n')
        self._file = Path(name)
        return self._file.as_uri()

    def close(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def _can_open() -> bool:
    """Not so without a screen: a browser that shows text alone would take the terminal, and cannot show the page."""
    if os.environ.get("BROWSER") or sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
