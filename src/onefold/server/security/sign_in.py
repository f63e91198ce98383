"""What a browser is shown that is not let in yet, and that which takes it on from a link on another site.

Both are the same for everybody, and stand for themselves: whoever has no token gets no other file.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from importlib.resources import files

_PAGE = files("onefold.server.security").joinpath("sign_in.html").read_text(encoding="utf-8")
_STYLE = re.search(r"<style>(.*?)</style>", _PAGE, re.DOTALL)
assert _STYLE is not None, "the sign-in page brings its style along"
_HASH = base64.b64encode(hashlib.sha256(_STYLE[1].encode()).digest()).decode()

POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
).encode()
"""It runs no script, and may send its one field here."""


def sign_in_page(why: str) -> bytes:
    """The page, with what is in the way."""
    return _PAGE.replace("{why}", escape(f"{why[:1].upper()}{why[1:]}.")).encode()


def onward_page(place: str) -> bytes:
    """A page that goes on to a place of this server by itself. A browser that another site's link led here keeps the
    cookie, but does not send it with a redirect: only with what a page of this server asks for."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>onefold</title>'
        f'<meta http-equiv="refresh" content="0; url={escape(place)}"><p><a href="{escape(place)}">Go on</a></p></html>'
    ).encode()
