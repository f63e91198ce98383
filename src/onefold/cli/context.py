"""`onefold context`: what a model is sent now."""

from __future__ import annotations

from typing import Annotated

import typer

from onefold.cli.note import print_facts, print_note
from onefold.cli.options import JsonOption, SessionArgument, StoreOption, open_store, policy
from onefold.cli.output import as_json, safe, safe_lines, say, short, text_width
from onefold.cli.sessions import fork_kind
from onefold.cli.window import of_window
from onefold.compaction.context import Context
from onefold.context_parts import parts
from onefold.describe import numbered, said, turn_words, words
from onefold.export import plain
from onefold.humanize import count, listed
from onefold.journal import adoption, context_prefix, lineage
from onefold.messages.codecs import PLAIN, codec
from onefold.model import MESSAGE, NOTE, Json, Record, Segment
from onefold.session import Session
from onefold.store import Store


def command(
    session: SessionArgument,
    segment: Annotated[
        int | None,
        typer.Option("--segment", min=1, metavar="N", help="As an older segment has it.", show_default=False),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Whole texts, not only their beginnings.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Shows what a model is sent now.

    Prints the size in tokens, then what stands in every context (pinned messages and notes), then the fold (what the
    summary stands for, and the summary), then the messages that are sent word for word, with their numbers in the
    journal. With --json, the messages exactly as they are sent.

    \b
    Examples:
      onefold context my-session
      onefold context my-session --json | jq .messages
    """
    with open_store(store) as opened:
        found = opened.session(session, create=False)
        context = found.context(segment)
        if json:
            as_json({"session": session, **plain(context)})
            return
        ContextPage(opened, found, context, full=full).show()


class ContextPage:
    """A context from top to bottom, with a line where another part of it begins."""

    def __init__(self, store: Store, session: Session, context: Context, *, full: bool) -> None:
        self._store = store
        self._session = session
        self._context = context
        self._full = full
        self._now = store.journal.backend.read(lambda tx: tx.now)
        self._begins = self._segment(context.segment)
        self._pins = {*session.pins()}
        begins = store.journal.backend.read(
            lambda tx: context_prefix.of(tx, session.id, self._begins, context.last + 1)
        )
        self._notes = begins.opening.notes
        self._provided = store.journal.backend.read(lambda tx: adoption.apart(tx, session.id, self._begins))
        self._item = store.journal.backend.read(lambda tx: adoption.in_force(tx, session.id, self._begins))
        self._part = ""

    def show(self) -> None:
        self._head()
        blocks = {"summary": self._fold, "notes": self._noted, "quotes": self._quotes, "facts": self._facts}
        for part in parts(self._context):
            if part.kind in ("record", "masked"):
                for record in self._session.read(part.number, part.number + 1):
                    told = record.kind == MESSAGE and part.body != record.body
                    self._recorded(_as_sent(record, part.body) if told else record)
            elif part.kind in blocks:
                blocks[part.kind]()
            elif part.kind == "no result":
                self._message("", "tool", 0, "(made up: this call got no result)")
            else:
                around = (
                    "before what the model said first" if part.kind == "earlier" else "around what was said earlier"
                )
                self._message("", "user", 0, f"(made up: a line {around})")
        self._left_out()

    def _left_out(self) -> None:
        context = self._context
        if context.summary is None and context.numbers:
            say("nothing is folded: these are all messages" + (" in view" if self._begins.hidden else ""), style="dim")
        if context.masked:
            say(f"one line each, and whole in the journal: {numbered(context.masked)}", style="dim")
        if context.left_out:
            say(
                f"left out, without their call, replaced or only reasoning: {numbered(context.left_out)}",
                style="yellow",
            )
        if self._item is not None:
            whose = safe(self._item.origin.provider)
            say(f"{whose} is sent its own compaction in place of what that covers: {numbered(self._item.window)}")
        if self._provided:
            say(f"left out, for the provider that made it alone: {numbered(sorted(self._provided))}", style="dim")
        if taken := self._taken_back():
            hidden = listed(f"#{a} to #{b}" if a < b else f"#{a}" for a, b in taken)
            say(f"left out, undone or erased: {hidden}", style="dim")

    def _taken_back(self) -> list[tuple[int, int]]:
        out = tuple((n, n) for n in sorted(self._provided))
        return [(a, b - 1) for first, last in self._begins.hidden for a, b in lineage.visible(out, first, last + 1)]

    def _head(self) -> None:
        context, state = self._context, self._session.state
        sent = count(len(context.messages), "message")
        say(
            f"session {safe(self._session.id)}, segment {context.segment}: {sent}, about "
            f"{of_window(context.tokens, self._session.limits() or policy(None).said)}, as of record #{context.last}",
            style="bold",
        )
        if (kind := fork_kind(self._store, state)) is not None:
            say(f"a {safe(kind)} of {safe(str(state.parent))}, whose records are those up to #{state.forked_at}")
        if (turn := self._session.open_turn()) is not None:
            say(f"open: {safe(turn_words(turn, self._now))}", style="yellow")

    def _recorded(self, record: Record) -> None:
        tokens = record.header.tokens if record.header else 0
        role = record.header.role if record.header else ""
        early = record.number < self._begins.cut
        if record.number in self._context.pinned:
            self._enter("pinned: in every context, word for word")
            mark = ""
        else:
            prompt = record.number in self._context.prompt
            mark = "kept by name: " if early else "pinned: " if record.number in self._pins else ""
            mark = "system prompt: " if prompt else mark
            if self._part:
                self._enter(f"word for word from #{self._begins.cut} on")
        text = words(record) if record.kind == NOTE else said(record)
        self._message(f"#{record.number}", role, tokens, text, mark)

    def _noted(self) -> None:
        self._enter("notes: in every context, word for word")
        for note in self._notes:
            print_note(note, self._now)

    def _facts(self) -> None:
        self._enter("facts: carried from before the cut, word for word")
        print_facts(self._context.facts)

    def _quotes(self) -> None:
        if self._context.facts:
            self._enter("labels: what the summary's model called some of the words below")
            print_facts(self._context.facts)
        self._enter("quoted: said before the cut, word for word")
        shown = self._context.quotes if self._full else self._context.quotes[-12:]
        if len(shown) < len(self._context.quotes):
            more = count(len(self._context.quotes) - len(shown), "earlier quotation")
            say(f"  … {more}; --full shows them", style="dim")
        for one in shown:
            kinds = f" ({', '.join(one.kinds)})" if one.kinds else ""
            self._message(f"#{one.number}", one.who, 0, one.text or f"({one.size:,} characters)", safe(kinds).strip())

    def _fold(self) -> None:
        holds = self._segment(self._begins.summary or self._begins.number)
        sizes = f"{holds.tokens_before:,} → {holds.tokens_after:,} tokens when it was folded"
        self._enter(f"folded: everything before #{self._begins.cut} ({sizes})")
        lines = safe_lines(self._context.summary or "")
        shown = lines if self._full else lines[:12]
        for line in shown:
            say(f"  │ {line if self._full else short(line, text_width() - 4)}", style="cyan")
        if len(lines) > len(shown):
            say(f"  │ … {count(len(lines) - len(shown), 'more line')}; --full shows them", style="dim")

    def _message(self, number: str, role: str, tokens: int, text: str, mark: str = "") -> None:
        head = f"{number:<6} {short(role, 12):<12} {tokens:>6,}  {mark}"
        if self._full:
            say(head.rstrip(), style="bold")
            for line in safe_lines(text):
                say(f"    {line}")
        else:
            say(head + short(text, max(24, text_width() - len(head))))

    def _enter(self, part: str) -> None:
        if part != self._part:
            self._part = part
            say(f"─── {part}", style="cyan")

    def _segment(self, number: int) -> Segment:
        found = self._store.journal.backend.read(lambda tx: lineage.segment(tx, self._session.id, number))
        assert found is not None, "a context comes from a segment, and a summary from another"
        return found


def _as_sent(record: Record, body: Json) -> Record:
    return record._replace(body=body, header=codec(record.format or PLAIN).header(body))
