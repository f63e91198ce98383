"""`onefold compact`: by hand, with the summarizer of the config file or without a model."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

import onefold
from onefold.cli.options import (
    JsonOption,
    ModelOption,
    SessionArgument,
    StoreOption,
    SummarizerOption,
    WindowOption,
    WrongUse,
    config_path,
    open_store,
    policy,
    settings,
)
from onefold.cli.output import as_json, line_on_stderr, refuse, refusing, safe, say
from onefold.cli.window import of_window
from onefold.export import plain
from onefold.humanize import count
from onefold.journal import masks
from onefold.model import CompactResult, Holder, Segment

if TYPE_CHECKING:
    from onefold.summarizers.estimate import CostEstimate, SummarizerInfo


def command(
    session: SessionArgument,
    *,
    instructions: Annotated[
        str | None,
        typer.Option("--instructions", metavar="TEXT", help="Kept with the request, for whoever works on it."),
    ] = None,
    summarizer: SummarizerOption = None,
    model: ModelOption = None,
    mask: Annotated[
        bool,
        typer.Option("--mask", help="Write no summary: show old large tool results as one line each."),
    ] = False,
    wait: Annotated[float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for it.")] = 60.0,
    window: WindowOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Makes a session's context smaller, now.

    The summary is written as `[summarizer]` in the config file says. Without such a section it is made without a
    model: the beginnings of what was said. --summarizer and --model go before the file, and --summarizer may name one
    of its sections `[summarizers.NAME]`. Who writes it and about what that costs is said first, on stderr. If another
    process is at it already, this one waits for it and pays nothing. No message is deleted: `onefold show` still shows
    them all. Prints the context's size before and after; or why nothing changed, and then the exit code is 1.

    --mask asks no model: in place of each old large tool result the model is told its number and size, by which it can
    read it again. The newest results stay, and so does what is pinned. `onefold unfold my-session SEGMENT` shows them
    whole again.

    \b
    Example:
      onefold compact my-session --wait 10
      onefold compact my-session --summarizer extract
      onefold compact my-session --mask
    """
    if mask:
        _masked(session, store, policy(window), json=json)
        return
    chosen, goes_by = chosen_summarizer(summarizer, model), policy(window)
    with _engine_silent(), open_store(store) as opened:
        found = opened.session(session, create=False)
        if not json and found.segments()[-1].keeper == "onefold":
            _say_first(opened, found.id, chosen, goes_by)
        with refusing():
            result = found.compact(chosen, instructions=instructions, wait=wait, policy=goes_by)
        opens = next(s for s in found.segments() if s.number == result.segment)
        holder, limits = found.compaction_holder(), found.limits() or goes_by.said
    if json:
        sizes = {"tokens_before": opens.tokens_before, "tokens_after": opens.tokens_after} if result.changed else {}
        as_json({"session": session, **plain(result), **sizes, "window": limits.window if limits else None})
        if not result.changed:
            raise SystemExit(1)
        return
    if not result.changed:
        refuse(f"session {session!r} was not changed: {_why_not(result, holder, wait)}")
    say(_what_changed(result, opens, session, limits))


def _say_first(opened: onefold.Store, session: str, chosen: onefold.Summarizer, goes_by: onefold.Policy) -> None:
    """Before it is asked for, and on stderr: what it comes to is on stdout."""
    from onefold.summarizers.estimate import describe, estimate_summary

    cost = estimate_summary(opened.journal, session, chosen, goes_by)
    if not isinstance(cost, str):
        line_on_stderr(f"the summary is written by {who_writes(describe(chosen), cost)}")


def _masked(session: str, store: str | None, goes_by: onefold.Policy, *, json: bool) -> None:
    with open_store(store) as opened, refusing():
        found = opened.session(session, create=False)
        _, could = found.could_mask(goes_by)
        numbers = [number for number, _ in could.masks]
        if not numbers:
            refuse(f"session {session!r} was not changed: it has no old large tool result that is shown whole")
        after = masks.mask(opened.journal, found.id, numbers, expect_head=could.head, by_hand=True)
    if json:
        sizes = {"tokens_before": after.tokens_before, "tokens_after": after.tokens_after}
        as_json({"session": session, "masked": numbers, **sizes, "segment": after.number})
        return
    change = f"{after.tokens_before:,} → {after.tokens_after:,} tokens"
    say(f"masked {count(len(numbers), 'tool result')} of {safe(session)}: {change} (segment {after.number})")
    say(f"nothing is lost: `onefold unfold {safe(quote(session))} {after.number}` shows them whole again", style="dim")


def chosen_summarizer(kind: str | None = None, model: str | None = None) -> onefold.Summarizer:
    """Who writes summaries: as the options say, else the config file, else nobody's model."""
    section = settings().get("summarizer", {})
    if not isinstance(section, dict):
        raise WrongUse(
            f"the config file {config_path()} says summarizer = {section!r}; make it a section: [summarizer]"
        )
    if kind is not None and (named := _tables().get(kind)) is not None:
        section = named
    elif kind is not None and kind != section.get("kind"):
        section = {"kind": kind}  # what is written for another kind is not meant for this one
    if model is not None:
        section = {**section, "model": model}
    if not section:
        return onefold.extractive_summary
    if "kind" not in section:
        raise WrongUse(
            "--model needs a provider: add --summarizer openai or --summarizer anthropic, or a kind in the config file"
        )
    from onefold.summarizers import from_config

    return from_config(section)


def named_summarizers() -> dict[str, onefold.Summarizer]:
    """Those that the config file names, each in a section `[summarizers.NAME]`."""
    from onefold.summarizers import from_config

    return {name: from_config(table) for name, table in _tables().items()}


def _tables() -> dict[str, dict[str, object]]:
    tables = settings().get("summarizers", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise WrongUse(
            f"the config file {config_path()} says summarizers = {tables!r}; make each a section: [summarizers.NAME]"
        )
    return tables


def who_writes(info: SummarizerInfo, cost: CostEstimate | None = None) -> str:
    """Who writes a summary, and about what it costs, in words."""
    if info.asks_model is False:
        said = f"{info.by}, without a model"
    else:
        said = info.by
        if cost is not None and info.asks_model:
            said += f", about {cost.input_tokens:,} tokens in and up to {cost.output_tokens:,} out"
        if cost is not None and cost.cost is not None:
            said += f", {money(cost.cost)}"
    return said + (f"; if that fails {', then '.join(info.instead)}" if info.instead else "")


def money(cost: float) -> str:
    return f"${cost:.2f}" if cost >= 0.995 else f"${cost:.2g}"


@contextlib.contextmanager
def _engine_silent() -> Iterator[None]:
    """What the engine logs of a failed attempt, the command says itself."""
    log = logging.getLogger("onefold.compaction")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _what_changed(result: CompactResult, opens: Segment, session: str, limits: onefold.Limits | None) -> str:
    by = "" if result.applied else ", by another process that was at it already"
    sizes = f"{opens.tokens_before:,} → {of_window(opens.tokens_after, limits)}"
    folded = f"everything before #{opens.cut} is a summary now (segment {opens.number})"
    return f"compacted {safe(session)}: {sizes}{by}; {folded}"


def _why_not(result: CompactResult, holder: Holder | None, wait: float) -> str:
    if result.state in ("requested", "running"):
        who = f"{holder.host}:{holder.pid} works on it" if holder else "nobody works on it now"
        last = f"; the last attempt: {result.cause}" if result.cause else ""
        return f"not done after {wait:g} s, {who}{last}. It stays open; ask again with a longer --wait"
    if result.state == "skipped":
        return f"there is nothing to compact; {result.cause}"
    return f"the compaction {result.state}" + (f", {result.cause}" if result.cause else "")
