"""`onefold pin`: messages that stand in every context, word for word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from onefold.cli.message_list import print_messages
from onefold.cli.options import JsonOption, SessionArgument, StoreOption, WrongUse, open_store
from onefold.cli.output import as_json, refuse, refusing, safe, say
from onefold.describe import numbered, said
from onefold.humanize import count
from onefold.model import Record
from onefold.session import Session


def command(
    session: SessionArgument,
    number: Annotated[
        int | None, typer.Argument(metavar="[NUMBER]", min=1, help="The message to pin.", show_default=False)
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Unpin it.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Keeps a message in every context; or lists those that are.

    Prints what is pinned, and the context's size before and after. A tool call is pinned with its results. Without a
    number it lists the pinned messages and writes nothing. Only messages in view can be pinned; unpinning one that
    is not pinned is rejected with exit code 1.

    \b
    Examples:
      onefold pin my-session
      onefold pin my-session 12
      onefold pin my-session 12 --remove
    """
    if number is None and remove:
        raise WrongUse("say which message to unpin: `onefold pin SESSION NUMBER --remove`")
    with open_store(store) as opened:
        found = opened.session(session, create=False)
        before = found.state.tokens
        numbers: tuple[int, ...] = ()
        if number is not None:
            with refusing():
                numbers = found.unpin(number) if remove else found.pin(number)
            if not numbers:
                refuse(f"session {found.id!r}: message {number} is not pinned; nothing was written")
        pinned = _pinned(found)
        after = found.state.tokens
    if number is None:
        _list(found.id, pinned, json=json)
    elif json:
        done = {"session": found.id, "removed" if remove else "pinned": numbers, "pins": [r.number for r in pinned]}
        as_json({**done, "tokens_before": before, "tokens_after": after})
    else:
        what = "no longer pinned" if remove else "pinned: in every context from now on"
        together = " (a call and its results go together)" if len(numbers) > 1 else ""
        say(f"{numbered(numbers)} {what}{together}")
        say(f"context of {safe(found.id)}: {before:,} → {after:,} tokens")


def _pinned(session: Session) -> list[Record]:
    return [record for n in session.pins() for record in session.read(n, n + 1)]


def _list(session: str, pinned: Sequence[Record], *, json: bool) -> None:
    if json:
        headed = [(r, r.header) for r in pinned if r.header is not None]
        as_json([{"number": r.number, "role": h.role, "tokens": h.tokens, "text": said(r)} for r, h in headed])
        return
    if not pinned:
        say(f"nothing is pinned in {safe(session)}")
        return
    say(f"{count(len(pinned), 'message')} of {safe(session)} pinned:", style="bold")
    print_messages(pinned)
